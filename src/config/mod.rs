//! Configuration: one TOML file with tables; every setting is also a flag and an environment variable.
//!
//! [`settings`] is the table of all settings. [`rule`] has the parsers of values, [`layers`] reads the places where values
//! can be, [`reader`] makes [`Settings`] of them. [`load`] reports all errors at once, each with its location.

mod issuer;
pub mod key;
pub mod layers;
mod pairs;
pub mod parts;
pub mod reader;
pub mod reference;
pub mod rule;
pub mod secondary;
pub mod settings;
pub mod value;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use key::Key;
pub use parts::AdminTls;
use reader::{Layer, Reader, Source};
pub use settings::{KEYS, Settings};
use signpost_runtime::trust;
use signpost_types::names::is_at_or_below;
use value::LogFormat;
pub use value::{Engine, NameServer, Role, RouterRuntime, Strategy};

/// The port of name servers, unless the configuration names another one (RFC 1035 §4.2).
pub const DNS_PORT: u16 = 53;

/// One error of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The location, if one value is wrong; contradictions have none.
    pub at: Option<Source>,
    /// The problem, and what to do.
    pub message: String,
}

impl Error {
    /// Returns an error without a location.
    pub fn new(message: impl Into<String>) -> Error {
        Error { at: None, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.iter().try_for_each(|at| write!(f, "{at}: "))?;
        f.write_str(&self.message)
    }
}

/// All errors of a configuration, one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors(pub Vec<Error>);

impl Errors {
    fn unless_empty(errors: Vec<Error>) -> Result<(), Errors> {
        if errors.is_empty() { Ok(()) } else { Err(Errors(errors)) }
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Error::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Errors {}

/// The places of values, as the process found them; a reload reads the file again.
#[derive(Debug, Clone, Default)]
pub struct ConfigSources {
    /// `--config` or `SIGNPOST_CONFIG`.
    pub config: Option<PathBuf>,
    pub flags: Layer,
    /// The environment variables.
    pub environment: Vec<(String, String)>,
    /// `--demo` of `serve`.
    pub is_demo: bool,
}

/// Reads the settings of a server, whose roles and settings fit together.
///
/// # Errors
///
/// All errors of the configuration.
pub fn load(places: &ConfigSources) -> Result<Settings, Errors> {
    let settings = read(places)?;
    Errors::unless_empty(unusable(&settings)).map(|()| settings)
}

/// Reads the settings of a command other than `serve`, without a check whether one process can have all of them.
///
/// # Errors
///
/// All errors of the configuration.
pub fn read(places: &ConfigSources) -> Result<Settings, Errors> {
    read_given(places).map(|(settings, _)| settings)
}

/// Reads the same, and the paths of the keys that are set; the others have their defaults.
///
/// # Errors
///
/// All errors of the configuration.
pub fn read_given(places: &ConfigSources) -> Result<(Settings, BTreeSet<&'static str>), Errors> {
    let mut merged = match &places.config {
        None => Layer::new(),
        Some(path) => read_file(path)?,
    };
    merged.extend(layers::from_environment(&places.environment));
    merged.extend(places.flags.clone());
    let mut reader = Reader { layer: &merged, errors: Vec::new() };
    let mut settings = Settings::read(&mut reader);
    Errors::unless_empty(reader.errors)?;
    settings.roles.sort();
    settings.roles.dedup();
    let mut errors = without_addresses(&settings, &merged);
    errors.extend(contradictions(&settings, &merged));
    Errors::unless_empty(errors).map(|()| (settings, merged.into_keys().collect()))
}

pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Returns the paths of the keys whose values differ: first those that a reload applies, then those that need a restart.
pub fn changed(old: &Settings, new: &Settings) -> (Vec<&'static str>, Vec<&'static str>) {
    let (now, restart): (Vec<&Key>, Vec<&Key>) = old.differing(new).into_iter().partition(|key| key.reloads);
    let paths = |keys: Vec<&'static Key>| keys.into_iter().map(|key| key.path.as_str()).collect();
    (paths(now), paths(restart))
}

fn read_file(path: &Path) -> Result<Layer, Errors> {
    let unreadable = |error| {
        let message = format!("{}: cannot read the configuration file: {error}", path.display());
        Errors(vec![Error::new(message)])
    };
    layers::from_file(path, &std::fs::read_to_string(path).map_err(unreadable)?)
}

/// Resolvers find a name server inside the domain only by its glue.
fn without_addresses(settings: &Settings, layer: &Layer) -> Vec<Error> {
    let domain = &settings.domain;
    let lacks = |server: &&NameServer| server.addresses.is_empty() && is_at_or_below(&server.name, domain);
    let servers = settings.nameserver.iter().filter(|_| !domain.is_empty()).filter(lacks);
    let error = |server: &NameServer| {
        let (name, at) = (&server.name, layer.get("nameserver").map(|given| given.source.clone()));
        let expected = format!("a name server inside {domain} needs its addresses: {name}=ADDR[,ADDR]");
        Error { at, message: format!("\"nameserver\" is \"{name}\": {expected}") }
    };
    servers.map(error).collect()
}

/// Keys that are set together, or not at all.
const PAIRS: [[&str; 2]; 6] = [
    ["api.tls-certificate", "api.tls-key"],
    ["admin.tls-certificate", "admin.tls-key"],
    ["dns.certificate", "dns.key"],
    ["etcd.certificate", "etcd.key"],
    ["etcd.user", "etcd.password-file"],
    ["acme.external-account", "acme.external-account-key-file"],
];

/// Contradictions between values that are each valid.
fn contradictions(settings: &Settings, layer: &Layer) -> Vec<Error> {
    let mut faults = Vec::new();
    for [one, other] in PAIRS {
        if layer.contains_key(one) != layer.contains_key(other) {
            faults.push(Error::new(format!("\"{one}\" and \"{other}\" belong together: set both, or neither")));
        }
    }
    let mut fault = |is_wrong: bool, text: &str| {
        if is_wrong {
            faults.push(Error::new(text));
        }
    };
    fault(
        settings.admin.tls == Some(false) && settings.admin.tls_certificate.is_some(),
        "\"admin.tls\" is false, and \"admin.tls-certificate\" is set: remove one of them",
    );
    fault(
        settings.store == Engine::Etcd && settings.etcd.endpoints.is_empty(),
        "\"store\" is \"etcd\": set \"etcd.endpoints\" as well",
    );
    fault(
        settings.store == Engine::Etcd && !cfg!(feature = "etcd"),
        "\"store\" is \"etcd\", but this binary was built without etcd: build it with \"--features etcd\", or use a package",
    );
    let log = &settings.query_log;
    let is_dnstap = log.format == LogFormat::Dnstap;
    fault(
        is_dnstap && log.file.is_none() == log.socket.is_none(),
        "\"query-log.format\" is \"dnstap\": set \"query-log.file\" or \"query-log.socket\", and not both",
    );
    fault(
        !is_dnstap && log.socket.is_some(),
        "\"query-log.socket\" is set: set \"query-log.format\" to \"dnstap\" as well",
    );
    let webhook = &settings.webhook;
    fault(
        settings.scheduler.strategy == Strategy::Webhook && webhook.url.is_none(),
        "\"scheduler.strategy\" is \"webhook\": set \"webhook.url\" as well",
    );
    fault(
        !webhook.allow_http && webhook.url.as_deref().is_some_and(trust::is_readable_on_its_way),
        "\"webhook.url\" is plain http to another machine, where others can read and change it: use https, or set \
         \"webhook.allow-http\" to true",
    );
    faults
}

/// Reasons why one process cannot have these settings.
fn unusable(settings: &Settings) -> Vec<Error> {
    let has = |role| settings.has(role);
    let is_in_cluster = settings.routers.runtime == RouterRuntime::Kubernetes;
    let faults = [
        (settings.roles.is_empty(), "\"roles\" is empty: give at least one of api, scheduler, dns, admin"),
        (
            has(Role::Api) && settings.kubeconfig.is_some(),
            "\"kubeconfig\" names the API of another process, but \"roles\" has api: remove one of them",
        ),
        (
            !settings.api_server.is_empty() && !has(Role::Api) && settings.kubeconfig.is_none(),
            "\"api-server\" replaces the server of a kubeconfig: set \"kubeconfig\" as well",
        ),
        (
            has(Role::Scheduler) && !has(Role::Api) && settings.kubeconfig.is_none(),
            "the role scheduler needs an API: give --kubeconfig, or add the role api",
        ),
        (
            has(Role::Dns) && !settings.dns_follows_api() && settings.zones.is_none() && !settings.has_primaries(),
            "the role dns has nothing to serve: give --zones or --kubeconfig, or add the role api",
        ),
        (
            has(Role::Dns) && !settings.dns_follows_api() && !settings.dns.update.is_empty(),
            "\"dns.update\" is set, but a process that only serves zone files has no Routes: remove it, or give --kubeconfig",
        ),
        (
            !settings.manifests.is_empty() && !has(Role::Api),
            "\"manifests\" are applied by the process with the role api: remove them here, or use kubectl apply",
        ),
        (
            has(Role::Scheduler) && is_in_cluster && settings.routers.image.is_none(),
            "\"routers.runtime\" is \"kubernetes\": set \"routers.image\" as well",
        ),
        (
            has(Role::Scheduler) && has(Role::Api) && is_in_cluster && settings.routers.access_secret.is_none(),
            "\"routers.runtime\" is \"kubernetes\" and \"roles\" has api: set \"routers.access-secret\", because the service \
             accounts of the cluster are unknown to the API of this process",
        ),
        (
            has(Role::Admin) && settings.admin_tls() == AdminTls::On && !settings.has_platform(),
            "\"admin.tls\" is true, but a process that only serves zone files stores no certificate: set \
             \"admin.tls-certificate\" and \"admin.tls-key\"",
        ),
        (
            settings.has_encrypted_dns() && settings.dns.certificate.is_none() && !settings.has_platform(),
            "an encrypted transport is set, but a process that only serves zone files stores no certificate: set \
             \"dns.certificate\" and \"dns.key\"",
        ),
    ];
    faults.into_iter().filter(|(is_wrong, _)| *is_wrong).map(|(_, text)| Error::new(text)).collect()
}
