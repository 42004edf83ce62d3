//! Configuration: one TOML file, every key also a flag and an environment variable.
//!
//! [`keys::KEYS`] is the table of keys; [`layers`] reads the places where they are set; [`Settings`] is what they mean, so
//! that nothing further in checks again. [`load`] reports every fault at once, each with where the value stood.

pub mod changed;
pub mod jwt;
pub mod keys;
pub mod layers;
mod reading;
pub mod reference;
pub mod strategy;
mod value;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use layers::{Layer, LayerError, Source};
use signpost_api::kinds::quotas::Limits;
use signpost_api::names::LabelRules;
use signpost_apiserver::audit;
use signpost_apiserver::auth::jwt::IssuerSettings;
use signpost_control::scheduler::chooser::Chooser;
use signpost_control::scheduler::strategy::StrategyName;
use signpost_control::scheduler::webhook;
use signpost_dns::nameserver::cookie::Secret;
use signpost_dns::nameserver::rrl::RateLimit;
use signpost_runtime::telemetry::Format;

/// A Secret of a Kubernetes cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Where name servers answer, unless something else is said (RFC 1035 §4.2).
pub const DNS_PORT: u16 = 53;

/// A thing that a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Serves the API.
    Api,
    /// Places routes on routers, and keeps the ledgers of names and serials.
    Scheduler,
    /// Answers queries.
    Dns,
    /// Serves health and metrics.
    Admin,
}

impl Role {
    /// All roles, in the order in which they start.
    pub const ALL: [Role; 4] = [Role::Api, Role::Scheduler, Role::Dns, Role::Admin];

    /// Its word in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Role::Api => "api",
            Role::Scheduler => "scheduler",
            Role::Dns => "dns",
            Role::Admin => "admin",
        }
    }
}

/// A name server of the platform's zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameServer {
    /// Its name, without a dot at the end.
    pub name: String,
    /// Its public addresses; none only for a name outside the domain.
    pub addresses: Vec<IpAddr>,
}

/// What clients of the API's and of the admin listeners may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// `http-connections`, at least 1.
    pub connections_max: usize,
    /// `http-connections-per-client`, at least 1.
    pub connections_per_client_max: usize,
    /// `http-idle-timeout`, at least a second.
    pub idle: Duration,
}

/// What clients of the name server's TCP listeners may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tcp {
    /// `tcp-connections`, at least 1.
    pub connections_max: usize,
    /// `tcp-connections-per-client`, at least 1.
    pub connections_per_client_max: usize,
    /// `tcp-idle-timeout`, at least a second.
    pub idle: Duration,
    /// `tcp-read-timeout`, at least a second.
    pub read: Duration,
    /// `tcp-write-timeout`, at least a second.
    pub write: Duration,
}

/// What is done with DNS cookies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieMode {
    /// They are ignored.
    Off,
    /// They are answered.
    On,
    /// They are answered, and a client that sends one must come back with ours.
    Require,
}

/// How lines of the query log are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// A JSON object a line.
    Json,
    /// Columns parted by spaces.
    Text,
}

/// How much of clients' addresses is in the query log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogClients {
    /// Address and port.
    Full,
    /// The network: a /24 or a /48.
    Network,
    /// Nothing.
    None,
}

/// How the admin endpoints are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminTls {
    /// Over plain HTTP.
    Off,
    /// Over HTTPS, with the API's certificate or one of the process's own making.
    On,
    /// Over HTTPS, with a certificate of the operator's.
    Files {
        /// `admin-tls-certificate`.
        certificate: PathBuf,
        /// `admin-tls-key`.
        key: PathBuf,
    },
}

/// Where spans of objects' walks go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracing {
    /// `trace-endpoint`, with its path; `None`: nowhere.
    pub endpoint: Option<String>,
    /// `trace-headers`.
    pub headers: Option<PathBuf>,
    /// `trace-ca`.
    pub ca: Option<PathBuf>,
    /// `trace-share`, from 1 to 100.
    pub percent: u32,
    /// `trace-service`.
    pub service: String,
}

/// The query log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryLog {
    /// `query-log`: one request in so many is logged; `None`: none is.
    pub every: Option<NonZeroU32>,
    /// `query-log-file`; `None`: standard output.
    pub file: Option<PathBuf>,
    /// `query-log-format`.
    pub format: LogFormat,
    /// `query-log-clients`.
    pub clients: LogClients,
}

/// How name servers are asked whether names are live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verify {
    /// `verify-names`.
    pub is_on: bool,
    /// `verify-server`; empty: those of `nameserver`, or of `dns-listen`.
    pub servers: Vec<VerifyServer>,
    /// `verify-timeout`, at least a second.
    pub timeout: Duration,
    /// `verify-interval`, at least a second.
    pub interval: Duration,
    /// `verify-hosts`.
    pub hosts: bool,
    /// `verify-hosts-interval`, at least a second.
    pub hosts_interval: Duration,
    /// `verify-hosts-grace`.
    pub hosts_grace: Duration,
    /// `verify-hosts-private-addresses`.
    pub hosts_private: bool,
    /// `verify-resolver`; empty: those of the system.
    pub resolvers: Vec<SocketAddr>,
    /// `host-resolvers`; empty: nobody is asked whether custom hosts point here.
    pub host_resolvers: Vec<Resolver>,
}

/// A resolver that is asked, or some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolver {
    /// Those of the system.
    System,
    /// The one at this address.
    At(SocketAddr),
}

/// A name server that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyServer {
    /// Its name, without a dot at the end, if one was given.
    pub name: Option<String>,
    /// Where it answers.
    pub address: SocketAddr,
}

/// How Routers are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// By a strategy of ours.
    Own(StrategyName),
    /// By the webhook, whose `webhook-url` is given then.
    Webhook,
}

/// The webhook that may choose Routers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// `webhook-url`, if it was given.
    pub url: Option<String>,
    /// `webhook-timeout`, at least a second.
    pub timeout: Duration,
    /// `webhook-ca`, if it was given.
    pub ca: Option<PathBuf>,
    /// `webhook-token-file`, if it was given.
    pub token: Option<PathBuf>,
    /// `webhook-allow-http`.
    pub allow_http: bool,
    /// `webhook-fallback`.
    pub fallback: StrategyName,
}

/// What the keys mean: every value is valid, and they fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The file that was read, if one was.
    pub config: Option<PathBuf>,
    /// `roles`, in the order of [`Role::ALL`], none twice.
    pub roles: Vec<Role>,
    /// `data-dir`.
    pub data_dir: PathBuf,
    /// `zones`.
    pub zones: Option<PathBuf>,
    /// `manifests`.
    pub manifests: Vec<PathBuf>,
    /// `kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `dns-listen`, at least one.
    pub dns_listen: Vec<SocketAddr>,
    /// `api-listen`, at least one.
    pub api_listen: Vec<SocketAddr>,
    /// `admin-listen`, at least one.
    pub admin_listen: Vec<SocketAddr>,
    /// `admin-tls` and the keys whose names begin with it.
    pub admin_tls: AdminTls,
    /// `admin-name`.
    pub admin_names: Vec<String>,
    /// `http-connections` to `http-idle-timeout`.
    pub http: Http,
    /// `dns-workers`: 0 for one each processor, at most 256.
    pub dns_workers: usize,
    /// `dns-pin-workers`.
    pub dns_pin_workers: bool,
    /// `dns-reply-trains`.
    pub dns_reply_trains: bool,
    /// `dns-dont-fragment`.
    pub dns_dont_fragment: bool,
    /// `tcp-connections` to `tcp-write-timeout`.
    pub tcp: Tcp,
    /// `domain`, in lower case, without a dot at the end; empty if none is given, which only a process may leave so that
    /// serves zone files alone.
    pub domain: String,
    /// `former-domain`, likewise.
    pub former_domain: Option<String>,
    /// `nameserver`; empty until the daemon knows its own addresses, if none was given.
    pub nameservers: Vec<NameServer>,
    /// `verify-names` and the keys whose names begin alike.
    pub verify: Verify,
    /// `strategy`; what chooses then follows from [`chooser`](Settings::chooser).
    pub strategy: Strategy,
    /// `webhook-url` and the keys whose names begin alike.
    pub webhook: Webhook,
    /// `lease-duration`, from 3 to 300 seconds.
    pub lease_duration: Duration,
    /// `drain-rate`, at least 1.
    pub drain_rate: u32,
    /// `trail-minimum`.
    pub trail_minimum: Duration,
    /// `trail-quiet`; `None`: it makes no difference whether a former name is asked for.
    pub trail_quiet: Option<Duration>,
    /// `trail-maximum`.
    pub trail_maximum: Duration,
    /// `name-quarantine`.
    pub name_quarantine: Duration,
    /// `name-quarantine-max`, at least 1.
    pub name_quarantine_max: u32,
    /// `host-reservation`; zero: none.
    pub host_reservation: Duration,
    /// `reserved-labels` and `tenant-subdomains`.
    pub label_rules: LabelRules,
    /// `object-size` to `namespace-event-bytes`.
    pub limits: Limits,
    /// `server-id`, if one was given.
    pub server_id: Option<String>,
    /// `server-version`, if one was given.
    pub server_version: Option<String>,
    /// `dns-udp-payload`: octets, from 512 to 4096.
    pub dns_udp_payload: u16,
    /// `dns-cookies`.
    pub dns_cookies: CookieMode,
    /// `dns-cookie-secret`; empty if the process is to draw its own.
    pub dns_cookie_secrets: Vec<Secret>,
    /// `dns-rate-limit` (0 for none) and the keys whose names begin with it.
    pub dns_rate_limit: RateLimit,
    /// `query-log` and its companions.
    pub query_log: QueryLog,
    /// `brake-share`, from 1 to 100.
    pub brake_share: u32,
    /// `stale-after`; `None`: never.
    pub stale_after: Option<Duration>,
    /// `api-silence`, from a second to `API_SILENCE_MAX`.
    pub api_silence: Duration,
    /// `health-probes`, at least 1.
    pub health_probes_max: usize,
    /// `health-panic-threshold`, at most 100.
    pub health_panic_percent: u32,
    /// `metrics-zones`, at most [`signpost_dns::zone::numbers::NUMBERS_MAX`].
    pub metrics_zones: usize,
    /// `metrics-unbound-names`.
    pub metrics_unbound_names: usize,
    /// `api-name`.
    pub api_names: Vec<String>,
    /// `api-tls-certificate` and `api-tls-key`, if they were given: both or neither.
    pub api_tls: Option<(PathBuf, PathBuf)>,
    /// `api-tls-ca`.
    pub api_tls_ca: Option<PathBuf>,
    /// `name-server-secret`.
    pub name_server_secret: Option<SecretName>,
    /// `jwt-issuer`.
    pub jwt_issuers: Vec<IssuerSettings>,
    /// `audit`; `None`: off.
    pub audit: Option<audit::Policy>,
    /// `audit-log`; `None`: in the data directory.
    pub audit_log: Option<PathBuf>,
    /// `audit-log-size` and `audit-log-files`.
    pub audit_bounds: audit::log::Bounds,
    /// `trace-endpoint` and the keys whose names begin alike.
    pub tracing: Tracing,
    /// `lame-duck`, at most `LAME_DUCK_MAX`.
    pub lame_duck: Duration,
    /// `log-level`.
    pub log_level: String,
    /// `log-format`.
    pub log_format: Format,
}

impl Settings {
    /// Whether this process has the role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// What chooses Routers.
    pub fn chooser(&self) -> Chooser {
        match (self.strategy, &self.webhook) {
            (Strategy::Webhook, Webhook { url: Some(url), timeout, ca, token, fallback, .. }) => {
                let (url, authorities, token) = (url.clone(), ca.clone(), token.clone());
                Chooser::Webhook(webhook::Settings { url, timeout: *timeout, authorities, token, fallback: *fallback })
            }
            // Without a URL the settings are refused.
            (Strategy::Webhook, Webhook { fallback, .. }) => Chooser::Strategy(*fallback),
            (Strategy::Own(name), _) => Chooser::Strategy(name),
        }
    }

    /// Whether the DNS server follows the API's objects, not only zone files.
    pub fn dns_follows_api(&self) -> bool {
        self.has(Role::Dns) && (self.has(Role::Api) || self.kubeconfig.is_some())
    }

    /// Whether anything is kept on disk. A process that serves only zone files keeps nothing.
    pub fn needs_data_dir(&self) -> bool {
        self.has(Role::Api) || self.has(Role::Scheduler) || self.dns_follows_api()
    }
}

/// One fault of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// In the file or a variable as such.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// A value that its key cannot have.
    #[error("{at}: \"{key}\" is \"{found}\": {expected}")]
    Value {
        /// Where it stood.
        at: Source,
        /// The key.
        key: &'static str,
        /// The value.
        found: String,
        /// What it must be.
        expected: String,
    },
    /// Values that do not go together.
    #[error("{0}")]
    Together(String),
}

/// All faults of a configuration, a line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors(pub Vec<Error>);

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if at == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

/// The places where keys were set, as the process found them; kept for a reload, which reads the file anew.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// `--config` or `SIGNPOST_CONFIG`.
    pub config: Option<PathBuf>,
    /// What flags gave.
    pub flags: Layer,
    /// The environment variables.
    pub environment: Vec<(String, String)>,
}

/// Reads the file, if one was named, and makes settings of all places, which fit together.
pub fn load(places: &Places) -> Result<Settings, Errors> {
    let settings = read(places)?;
    let faults = reading::together(&settings);
    if faults.is_empty() {
        return Ok(settings);
    }
    Err(Errors(faults.into_iter().map(|text| Error::Together(text.to_owned())).collect()))
}

/// As [`load`], for commands other than `serve`: what keys mean is checked, and not whether one process can do it all.
pub fn read(places: &Places) -> Result<Settings, Errors> {
    read_given(places).map(|(settings, _)| settings)
}

/// The same, and which keys are set in any of the places: the others have their defaults.
pub fn read_given(places: &Places) -> Result<(Settings, BTreeSet<&'static str>), Errors> {
    let file = match &places.config {
        None => Layer::new(),
        Some(path) => read_file(path)?,
    };
    let mut merged = file;
    merged.extend(layers::from_environment(&places.environment));
    merged.extend(places.flags.clone());
    let mut settings = reading::settings(&merged)?;
    settings.config.clone_from(&places.config);
    Ok((settings, merged.into_keys().collect()))
}

fn read_file(path: &Path) -> Result<Layer, Errors> {
    let unreadable = |reason: String| Errors(vec![LayerError::Unreadable { path: path.to_owned(), reason }.into()]);
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    layers::from_file(path, &text).map_err(|errors| Errors(errors.into_iter().map(Error::from).collect()))
}
