//! Configuration: one TOML file, every key also a flag and an environment variable.
//!
//! [`keys::KEYS`] is the table of keys; [`layers`] reads the places where they are set; [`Settings`] is what they mean, so
//! that nothing further in checks again. [`load`] reports every fault at once, each with where the value stood.

pub mod jwt;
pub mod keys;
pub mod layers;
pub mod reference;
mod strategy;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::api::names;
use crate::apiserver::audit;
use crate::apiserver::auth::jwt::IssuerSettings;
use crate::controller::live::proofs::SERVERS_MAX;
use crate::nameserver::cookie::{Secret, SecretError};
use crate::nameserver::prefix::PrefixError;
use crate::nameserver::rrl::RateLimit;
use crate::nameserver::settings::NSID_OCTETS_MAX;
use crate::scheduler::chooser::Chooser;
use crate::scheduler::strategy::StrategyName;
use crate::scheduler::webhook;
use crate::telemetry::Format;
use crate::zone::numbers::NUMBERS_MAX;
use layers::{Given, Layer, LayerError, Source};

/// Most resolvers that are asked one after the other.
const RESOLVERS_MAX: usize = 8;
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

/// Most secrets of cookies: the one of now, and those before and after it, with room for a slow change. A bad cookie costs a
/// hash for each.
const COOKIE_SECRETS_MAX: usize = 4;
/// Most prefixes without rate limit: each is looked at for every answer over it.
const EXEMPT_MAX: usize = 256;

/// Longest `api-silence`: what a mirror takes for the death of its watch in any case.
const API_SILENCE_MAX: Duration = Duration::from_secs(150);

/// Longest `lame-duck`: whoever waits longer for a process to end has forgotten it.
const LAME_DUCK_MAX: Duration = Duration::from_secs(600);

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
    /// `verify-resolver`; empty: those of the system.
    pub resolvers: Vec<SocketAddr>,
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
    /// `domain`, in lower case, without a dot at the end.
    pub domain: String,
    /// `nameserver`; empty until the daemon knows its own addresses, if none was given.
    pub nameservers: Vec<NameServer>,
    /// `verify-names` and the keys whose names begin alike.
    pub verify: Verify,
    /// `strategy`; what chooses then follows from [`chooser`](Settings::chooser).
    pub strategy: Strategy,
    /// `webhook-url` and the keys whose names begin alike.
    pub webhook: Webhook,
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
    /// `server-id`, if one was given.
    pub server_id: Option<String>,
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
    /// `metrics-zones`, at most [`NUMBERS_MAX`].
    pub metrics_zones: usize,
    /// `metrics-unbound-names`.
    pub metrics_unbound_names: usize,
    /// `api-name`.
    pub api_names: Vec<String>,
    /// `api-tls-certificate` and `api-tls-key`, if they were given: both or neither.
    pub api_tls: Option<(PathBuf, PathBuf)>,
    /// `api-tls-ca`.
    pub api_tls_ca: Option<PathBuf>,
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
            (Strategy::Webhook, Webhook { url: Some(url), timeout, ca, fallback }) => {
                let (url, authorities) = (url.clone(), ca.clone());
                Chooser::Webhook(webhook::Settings { url, timeout: *timeout, authorities, fallback: *fallback })
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
    let faults = together(&settings);
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
    let mut settings = settings(&merged)?;
    settings.config.clone_from(&places.config);
    Ok((settings, merged.into_keys().collect()))
}

fn read_file(path: &Path) -> Result<Layer, Errors> {
    let unreadable = |reason: String| Errors(vec![LayerError::Unreadable { path: path.to_owned(), reason }.into()]);
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    layers::from_file(path, &text).map_err(|errors| Errors(errors.into_iter().map(Error::from).collect()))
}

/// Keys whose values differ, those that a reload brings into effect first.
pub fn changed(old: &Settings, new: &Settings) -> (Vec<&'static str>, Vec<&'static str>) {
    let differs = |name: &str| match name {
        "roles" => old.roles != new.roles,
        "data-dir" => old.data_dir != new.data_dir,
        "zones" => old.zones != new.zones,
        "manifests" => old.manifests != new.manifests,
        "kubeconfig" => old.kubeconfig != new.kubeconfig,
        "dns-listen" => old.dns_listen != new.dns_listen,
        "api-listen" => old.api_listen != new.api_listen,
        "admin-listen" => old.admin_listen != new.admin_listen,
        "admin-tls" | "admin-tls-certificate" | "admin-tls-key" => old.admin_tls != new.admin_tls,
        "admin-name" => old.admin_names != new.admin_names,
        "dns-workers" => old.dns_workers != new.dns_workers,
        "dns-pin-workers" => old.dns_pin_workers != new.dns_pin_workers,
        "dns-reply-trains" => old.dns_reply_trains != new.dns_reply_trains,
        "dns-dont-fragment" => old.dns_dont_fragment != new.dns_dont_fragment,
        "tcp-connections" => old.tcp.connections_max != new.tcp.connections_max,
        "tcp-connections-per-client" => old.tcp.connections_per_client_max != new.tcp.connections_per_client_max,
        "tcp-idle-timeout" => old.tcp.idle != new.tcp.idle,
        "tcp-read-timeout" => old.tcp.read != new.tcp.read,
        "tcp-write-timeout" => old.tcp.write != new.tcp.write,
        "domain" => old.domain != new.domain,
        "nameserver" => old.nameservers != new.nameservers,
        "verify-names" => old.verify.is_on != new.verify.is_on,
        "verify-server" => old.verify.servers != new.verify.servers,
        "verify-timeout" => old.verify.timeout != new.verify.timeout,
        "verify-interval" => old.verify.interval != new.verify.interval,
        "verify-hosts" => old.verify.hosts != new.verify.hosts,
        "verify-hosts-interval" => old.verify.hosts_interval != new.verify.hosts_interval,
        "verify-hosts-grace" => old.verify.hosts_grace != new.verify.hosts_grace,
        "verify-resolver" => old.verify.resolvers != new.verify.resolvers,
        "strategy" => old.strategy != new.strategy,
        "webhook-url" => old.webhook.url != new.webhook.url,
        "webhook-timeout" => old.webhook.timeout != new.webhook.timeout,
        "webhook-ca" => old.webhook.ca != new.webhook.ca,
        "webhook-fallback" => old.webhook.fallback != new.webhook.fallback,
        "drain-rate" => old.drain_rate != new.drain_rate,
        "trail-minimum" => old.trail_minimum != new.trail_minimum,
        "trail-quiet" => old.trail_quiet != new.trail_quiet,
        "trail-maximum" => old.trail_maximum != new.trail_maximum,
        "name-quarantine" => old.name_quarantine != new.name_quarantine,
        "server-id" => old.server_id != new.server_id,
        "dns-cookies" => old.dns_cookies != new.dns_cookies,
        "dns-cookie-secret" => old.dns_cookie_secrets != new.dns_cookie_secrets,
        "dns-rate-limit" => old.dns_rate_limit.per_second != new.dns_rate_limit.per_second,
        "dns-rate-limit-mode" => old.dns_rate_limit.enforced != new.dns_rate_limit.enforced,
        "dns-rate-limit-window" => old.dns_rate_limit.window != new.dns_rate_limit.window,
        "dns-rate-limit-slip" => old.dns_rate_limit.slip != new.dns_rate_limit.slip,
        "dns-rate-limit-ipv4-prefix" => old.dns_rate_limit.ipv4_prefix != new.dns_rate_limit.ipv4_prefix,
        "dns-rate-limit-ipv6-prefix" => old.dns_rate_limit.ipv6_prefix != new.dns_rate_limit.ipv6_prefix,
        "dns-rate-limit-exempt" => old.dns_rate_limit.exempt != new.dns_rate_limit.exempt,
        "query-log" => old.query_log.every != new.query_log.every,
        "query-log-file" => old.query_log.file != new.query_log.file,
        "query-log-format" => old.query_log.format != new.query_log.format,
        "query-log-clients" => old.query_log.clients != new.query_log.clients,
        "brake-share" => old.brake_share != new.brake_share,
        "stale-after" => old.stale_after != new.stale_after,
        "api-silence" => old.api_silence != new.api_silence,
        "health-probes" => old.health_probes_max != new.health_probes_max,
        "health-panic-threshold" => old.health_panic_percent != new.health_panic_percent,
        "metrics-zones" => old.metrics_zones != new.metrics_zones,
        "metrics-unbound-names" => old.metrics_unbound_names != new.metrics_unbound_names,
        "api-name" => old.api_names != new.api_names,
        "api-tls-certificate" | "api-tls-key" => old.api_tls != new.api_tls,
        "api-tls-ca" => old.api_tls_ca != new.api_tls_ca,
        "jwt-issuer" => old.jwt_issuers != new.jwt_issuers,
        "audit" => old.audit != new.audit,
        "audit-log" => old.audit_log != new.audit_log,
        "audit-log-size" | "audit-log-files" => old.audit_bounds != new.audit_bounds,
        "trace-endpoint" => old.tracing.endpoint != new.tracing.endpoint,
        "trace-headers" => old.tracing.headers != new.tracing.headers,
        "trace-ca" => old.tracing.ca != new.tracing.ca,
        "trace-share" => old.tracing.percent != new.tracing.percent,
        "trace-service" => old.tracing.service != new.tracing.service,
        "lame-duck" => old.lame_duck != new.lame_duck,
        "log-level" => old.log_level != new.log_level,
        "log-format" => old.log_format != new.log_format,
        _ => unreachable!("a key of the table without a setting: {name}"),
    };
    let all = keys::KEYS.iter().filter(|key| differs(key.name));
    let (now, restart): (Vec<_>, Vec<_>) = all.partition(|key| key.reloads);
    let names = |keys: Vec<&keys::Key>| keys.iter().map(|key| key.name).collect();
    (names(now), names(restart))
}

/// What the texts mean.
fn settings(layer: &Layer) -> Result<Settings, Errors> {
    let mut reader = Reader { layer, errors: Vec::new() };
    let domain = reader.one("domain", "v3.rhcloud.com", domain_name);
    let mut roles = reader.list("roles", &["api", "scheduler", "dns", "admin"], role);
    roles.sort();
    roles.dedup();
    let settings = Settings {
        config: None,
        roles,
        data_dir: reader.one("data-dir", "signpost-data", path),
        zones: reader.optional("zones", path),
        manifests: reader.list("manifests", &[], path),
        kubeconfig: reader.optional("kubeconfig", path),
        dns_listen: reader.listen("dns-listen", "127.0.0.1:5300"),
        api_listen: reader.listen("api-listen", "127.0.0.1:6453"),
        admin_listen: reader.listen("admin-listen", "127.0.0.1:9453"),
        admin_tls: reader.admin_tls(),
        admin_names: reader.list("admin-name", &[], api_name),
        dns_workers: reader.one("dns-workers", "0", workers),
        dns_pin_workers: reader.one("dns-pin-workers", "off", switch),
        dns_reply_trains: reader.one("dns-reply-trains", "on", switch),
        dns_dont_fragment: reader.one("dns-dont-fragment", "on", switch),
        tcp: Tcp {
            connections_max: reader.one("tcp-connections", "8192", |text| number(text, 1..=1_000_000)),
            connections_per_client_max: reader
                .one("tcp-connections-per-client", "256", |text| number(text, 1..=1_000_000)),
            idle: reader.one("tcp-idle-timeout", "10s", timeout),
            read: reader.one("tcp-read-timeout", "5s", timeout),
            write: reader.one("tcp-write-timeout", "5s", timeout),
        },
        nameservers: reader.list("nameserver", &[], |text| name_server(text, &domain)),
        domain,
        verify: Verify {
            is_on: reader.one("verify-names", "on", switch),
            servers: reader.at_most("verify-server", SERVERS_MAX, verify_server),
            timeout: reader.one("verify-timeout", "1s", timeout),
            interval: reader.one("verify-interval", "30s", timeout),
            hosts: reader.one("verify-hosts", "off", switch),
            hosts_interval: reader.one("verify-hosts-interval", "1h", timeout),
            hosts_grace: reader.one("verify-hosts-grace", "7d", duration),
            resolvers: reader.at_most("verify-resolver", RESOLVERS_MAX, server_address),
        },
        strategy: reader.one("strategy", "round-robin", strategy::strategy),
        webhook: Webhook {
            url: reader.optional("webhook-url", strategy::url),
            timeout: reader.one("webhook-timeout", "2s", timeout),
            ca: reader.optional("webhook-ca", path),
            fallback: reader.one("webhook-fallback", "round-robin", strategy::fallback),
        },
        drain_rate: reader.one("drain-rate", "10", |text| number(text, 1..=10_000)),
        trail_minimum: reader.one("trail-minimum", "7d", duration),
        trail_quiet: Some(reader.one("trail-quiet", "1d", duration)).filter(|quiet| !quiet.is_zero()),
        trail_maximum: reader.one("trail-maximum", "90d", duration),
        name_quarantine: reader.one("name-quarantine", "30d", duration),
        server_id: reader.optional("server-id", server_id),
        dns_cookies: reader.one("dns-cookies", "on", cookie_mode),
        dns_cookie_secrets: reader.at_most("dns-cookie-secret", COOKIE_SECRETS_MAX, cookie_secret),
        dns_rate_limit: reader.rate_limit(),
        query_log: QueryLog {
            every: reader.one("query-log", "0", one_in),
            file: reader.optional("query-log-file", path),
            format: reader.one("query-log-format", "json", query_log_format),
            clients: reader.one("query-log-clients", "full", query_log_clients),
        },
        brake_share: reader.one("brake-share", "25", |text| number(text, 1..=100)),
        stale_after: Some(reader.one("stale-after", "0s", duration)).filter(|after| !after.is_zero()),
        api_silence: reader.one("api-silence", "150s", api_silence),
        health_probes_max: reader.one("health-probes", "256", |text| number(text, 1..=10_000)),
        health_panic_percent: reader.one("health-panic-threshold", "50", |text| number(text, 0..=100)),
        metrics_zones: reader.one("metrics-zones", "200", metrics_zones),
        metrics_unbound_names: reader.one("metrics-unbound-names", "20", |text| number(text, 0..=100)) as usize,
        api_names: reader.list("api-name", &[], api_name),
        api_tls: reader.optional("api-tls-certificate", path).zip(reader.optional("api-tls-key", path)),
        api_tls_ca: reader.optional("api-tls-ca", path),
        jwt_issuers: reader.list("jwt-issuer", &[], |text| jwt::issuer(text, duration)),
        audit: reader.one("audit", "writes", audit_policy),
        audit_log: reader.optional("audit-log", path),
        audit_bounds: audit::log::Bounds {
            octets: reader.one("audit-log-size", "64", |text| number(text, 1..=65_536)) << 20,
            files: reader.one("audit-log-files", "4", |text| number(text, 1..=1_000)) as usize,
        },
        tracing: Tracing {
            endpoint: reader.optional("trace-endpoint", trace_endpoint),
            headers: reader.optional("trace-headers", path),
            ca: reader.optional("trace-ca", path),
            percent: reader.one("trace-share", "100", |text| number(text, 1..=100)),
            service: reader.one("trace-service", "signpost", service),
        },
        lame_duck: reader.one("lame-duck", "0s", lame_duck),
        log_level: reader.one("log-level", "info", log_level),
        log_format: reader.one("log-format", "human", log_format),
    };
    let given = |key: &str| layer.contains_key(key);
    for (certificate, key) in [("api-tls-certificate", "api-tls-key"), ("admin-tls-certificate", "admin-tls-key")] {
        if given(certificate) != given(key) {
            let text = format!("\"{certificate}\" and \"{key}\" go together: give both, or neither");
            reader.errors.push(Error::Together(text));
        }
    }
    if settings.strategy == Strategy::Webhook && !given("webhook-url") {
        let text = "\"strategy\" is \"webhook\": give \"webhook-url\" as well".to_owned();
        reader.errors.push(Error::Together(text));
    }
    let mut issuers: Vec<&str> = settings.jwt_issuers.iter().map(|one| one.issuer.as_str()).collect();
    issuers.sort_unstable();
    if let Some(twice) = issuers.windows(2).find(|pair| pair[0] == pair[1]) {
        reader.errors.push(Error::Together(format!("\"jwt-issuer\": the issuer {} is given twice", twice[0])));
    }
    if reader.errors.is_empty() { Ok(settings) } else { Err(Errors(reader.errors)) }
}

/// Faults between values that are each valid.
fn together(settings: &Settings) -> Vec<&'static str> {
    let has = |role| settings.has(role);
    let mut faults = Vec::new();
    if settings.roles.is_empty() {
        faults.push("\"roles\" is empty: give at least one of api, scheduler, dns, admin");
    }
    if has(Role::Api) && settings.kubeconfig.is_some() {
        faults.push("\"kubeconfig\" names another process's API, but \"roles\" has api: leave out one of the two");
    }
    if has(Role::Scheduler) && !has(Role::Api) && settings.kubeconfig.is_none() {
        faults.push("the role scheduler needs an API: give --kubeconfig, or add the role api");
    }
    if has(Role::Dns) && !settings.dns_follows_api() && settings.zones.is_none() {
        faults.push("the role dns has nothing to serve: give --zones or --kubeconfig, or add the role api");
    }
    if !settings.manifests.is_empty() && !has(Role::Api) {
        faults.push(
            "\"manifests\" are applied by the process with the role api: leave them out here, or use kubectl apply",
        );
    }
    if has(Role::Admin) && settings.admin_tls == AdminTls::On && !settings.needs_data_dir() {
        faults.push(
            "\"admin-tls\" is on, and a process that serves zone files alone keeps no certificate of its own: give \
             \"admin-tls-certificate\" and \"admin-tls-key\"",
        );
    }
    faults
}

/// Reads keys one by one and gathers the faults.
struct Reader<'a> {
    layer: &'a Layer,
    errors: Vec<Error>,
}

impl Reader<'_> {
    fn one<T>(&mut self, key: &'static str, default: &str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        let fallback = || parse(default).expect("a default is valid");
        self.optional(key, &parse).unwrap_or_else(fallback)
    }

    fn optional<T>(&mut self, key: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let given = self.layer.get(key)?;
        let value = given.values.last()?;
        self.parse(key, given, value, &parse)
    }

    fn list<T>(&mut self, key: &'static str, default: &[&str], parse: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        match self.layer.get(key) {
            Some(given) => given.values.iter().filter_map(|value| self.parse(key, given, value, &parse)).collect(),
            None => default.iter().map(|text| parse(text).expect("a default is valid")).collect(),
        }
    }

    fn listen(&mut self, key: &'static str, default: &str) -> Vec<SocketAddr> {
        let addresses = self.list(key, &[default], listen_address);
        let Some(given) = self.layer.get(key) else { return addresses };
        if given.values.is_empty() {
            self.errors.push(value_error(key, given, "", "give at least one ADDR:PORT".to_owned()));
        }
        for (at, address) in addresses.iter().enumerate() {
            if address.port() != 0 && addresses[..at].contains(address) {
                let expected = "the address is given twice".to_owned();
                self.errors.push(value_error(key, given, &address.to_string(), expected));
            }
        }
        addresses
    }

    /// A certificate turns TLS on by itself.
    fn admin_tls(&mut self) -> AdminTls {
        let on = self.optional("admin-tls", switch);
        let files = self.optional("admin-tls-certificate", path).zip(self.optional("admin-tls-key", path));
        match (on, files) {
            (Some(false), Some(_)) => {
                let text = "\"admin-tls\" is off, and \"admin-tls-certificate\" is given: leave out one of the two";
                self.errors.push(Error::Together(text.to_owned()));
                AdminTls::Off
            }
            (_, Some((certificate, key))) => AdminTls::Files { certificate, key },
            (Some(true), None) => AdminTls::On,
            (_, None) => AdminTls::Off,
        }
    }

    /// A list that is empty by default, and not longer than `count`.
    fn at_most<T>(&mut self, key: &'static str, count: usize, parse: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let list = self.list(key, &[], parse);
        if let Some(given) = self.layer.get(key).filter(|_| list.len() > count) {
            let found = format!("{} values", list.len());
            self.errors.push(value_error(key, given, &found, format!("there may be {count} at most")));
        }
        list
    }

    fn rate_limit(&mut self) -> RateLimit {
        let prefix = |text: &str| text.parse().map_err(|error: PrefixError| error.to_string());
        let exempt = self.at_most("dns-rate-limit-exempt", EXEMPT_MAX, prefix);
        let default = RateLimit::default();
        RateLimit {
            per_second: self
                .optional("dns-rate-limit", |text| number(text, 0..=1_000_000))
                .unwrap_or(default.per_second),
            enforced: self.optional("dns-rate-limit-mode", limit_mode).unwrap_or(default.enforced),
            window: self.optional("dns-rate-limit-window", |text| number(text, 1..=3600)).unwrap_or(default.window),
            slip: self.optional("dns-rate-limit-slip", |text| number(text, 0..=1000)).unwrap_or(default.slip),
            ipv4_prefix: self
                .optional("dns-rate-limit-ipv4-prefix", |text| number(text, 1..=32))
                .unwrap_or(default.ipv4_prefix),
            ipv6_prefix: self
                .optional("dns-rate-limit-ipv6-prefix", |text| number(text, 1..=128))
                .unwrap_or(default.ipv6_prefix),
            exempt: exempt.into(),
        }
    }

    fn parse<T>(
        &mut self,
        key: &'static str,
        given: &Given,
        value: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        parse(value).map_err(|expected| self.errors.push(value_error(key, given, value, expected))).ok()
    }
}

fn value_error(key: &'static str, given: &Given, found: &str, expected: String) -> Error {
    // An error is printed and logged; a secret is neither.
    let found = if key == "dns-cookie-secret" { "(not shown)" } else { found };
    Error::Value { at: given.source.clone(), key, found: found.to_owned(), expected }
}

fn role(text: &str) -> Result<Role, String> {
    let found = Role::ALL.into_iter().find(|role| role.word() == text);
    found.ok_or_else(|| "must be one of api, scheduler, dns, admin".to_owned())
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(PathBuf::from(text)) }
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be ADDR:PORT with an IP address, such as 127.0.0.1:5300 or [::1]:5300".to_owned())
}

fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 0..=256) => Ok(count),
        _ => Err("must be a number from 0 to 256".to_owned()),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

/// A time that a connection may take; none at all would refuse every client.
fn timeout(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be a second at least".to_owned()),
        duration => Ok(duration),
    }
}

fn api_silence(text: &str) -> Result<Duration, String> {
    let silence = duration(text)?;
    let range = Duration::from_secs(1)..=API_SILENCE_MAX;
    if range.contains(&silence) { Ok(silence) } else { Err("must be from 1s to 150s".to_owned()) }
}

fn lame_duck(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time > LAME_DUCK_MAX { Err("must be 10m at most".to_owned()) } else { Ok(time) }
}

/// A whole number within `range`.
fn number<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + fmt::Display,
{
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("must be a number from {} to {}", range.start(), range.end()))
}

fn cookie_mode(text: &str) -> Result<CookieMode, String> {
    match text {
        "off" => Ok(CookieMode::Off),
        "on" => Ok(CookieMode::On),
        "require" => Ok(CookieMode::Require),
        _ => Err("must be on, off or require".to_owned()),
    }
}

fn cookie_secret(text: &str) -> Result<Secret, String> {
    text.parse().map_err(|error: SecretError| error.to_string())
}

fn limit_mode(text: &str) -> Result<bool, String> {
    match text {
        "enforce" => Ok(true),
        "watch" => Ok(false),
        _ => Err("must be enforce or watch".to_owned()),
    }
}

fn one_in(text: &str) -> Result<Option<NonZeroU32>, String> {
    match text.parse() {
        Ok(every) => Ok(NonZeroU32::new(every)),
        Err(_) => Err(format!("must be a number from 0 to {}", u32::MAX)),
    }
}

fn query_log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "json" => Ok(LogFormat::Json),
        "text" => Ok(LogFormat::Text),
        _ => Err("must be json or text".to_owned()),
    }
}

fn query_log_clients(text: &str) -> Result<LogClients, String> {
    match text {
        "full" => Ok(LogClients::Full),
        "network" => Ok(LogClients::Network),
        "none" => Ok(LogClients::None),
        _ => Err("must be full, network or none".to_owned()),
    }
}

fn metrics_zones(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(zones @ 0..=NUMBERS_MAX) => Ok(zones),
        _ => Err(format!("must be a number from 0 to {NUMBERS_MAX}")),
    }
}

fn domain_name(text: &str) -> Result<String, String> {
    let plain = text.strip_suffix('.').unwrap_or(text);
    names::check_domain(plain).map_err(|error| error.to_string())?;
    Ok(plain.to_ascii_lowercase())
}

/// A whole number and its unit: `s`, `m`, `h` or `d`.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "must be a whole number and s, m, h or d, such as 30d".to_owned();
    let split = text.len().saturating_sub(1);
    let (number, unit) = text.split_at_checked(split).ok_or_else(expected)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(expected()),
    };
    let number: u32 = number.parse().map_err(|_| expected())?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

fn server_id(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("must not be empty".to_owned()),
        length if length > NSID_OCTETS_MAX => Err(format!("must be no more than {NSID_OCTETS_MAX} octets")),
        _ => Ok(text.to_owned()),
    }
}

fn api_name(text: &str) -> Result<String, String> {
    if text.parse::<IpAddr>().is_ok() { Ok(text.to_owned()) } else { domain_name(text) }
}

fn name_server(text: &str, domain: &str) -> Result<NameServer, String> {
    let (name, list) = text.split_once('=').unwrap_or((text, ""));
    let name = domain_name(name)?;
    let address = |text: &str| match text.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => Err(format!("{address} is no address that anyone can ask")),
        Ok(address) => Ok(address),
        Err(_) => Err(format!("must be NAME=ADDR[,ADDR] with IP addresses; \"{text}\" is none")),
    };
    let addresses: Vec<IpAddr> =
        layers::split(list, &[',']).iter().map(|text| address(text)).collect::<Result<_, _>>()?;
    if addresses.is_empty() && names::is_at_or_below(&name, domain) {
        return Err(format!("a name server inside {domain} needs its addresses: {name}=ADDR[,ADDR]"));
    }
    Ok(NameServer { name, addresses })
}

/// `[NAME=]ADDR[:PORT]`.
fn verify_server(text: &str) -> Result<VerifyServer, String> {
    let (name, address) = match text.split_once('=') {
        Some((name, address)) => (Some(domain_name(name)?), address),
        None => (None, text),
    };
    let shape = "must be [NAME=]ADDR[:PORT] with an IP address, such as ns1.example.com=127.0.0.1:5301";
    let address =
        server_address(address).map_err(|error| if error == NO_ADDRESS { shape.to_owned() } else { error })?;
    Ok(VerifyServer { name, address })
}

const NO_ADDRESS: &str = "must be ADDR[:PORT] with an IP address, such as 192.0.2.53 or [2001:db8::53]:53";

/// `ADDR[:PORT]` of a server that is asked.
fn server_address(text: &str) -> Result<SocketAddr, String> {
    let plain = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let parsed: Option<SocketAddr> =
        text.parse().ok().or_else(|| plain.parse::<IpAddr>().ok().map(|address| (address, DNS_PORT).into()));
    match parsed {
        Some(address) if address.ip().is_unspecified() => Err(format!("{} is no address to ask", address.ip())),
        Some(address) if address.port() == 0 => Err("port 0 is no port to ask".to_owned()),
        Some(address) => Ok(address),
        None => Err(NO_ADDRESS.to_owned()),
    }
}

/// The URL that takes spans. One without a path is a collector's, where that is `/v1/traces`.
fn trace_endpoint(text: &str) -> Result<String, String> {
    let url = strategy::url(text)?;
    let bare = url.trim_end_matches('/');
    let is_bare = bare.split_once("://").is_some_and(|(_, rest)| !rest.contains(['/', '?']));
    Ok(if is_bare { format!("{bare}/v1/traces") } else { url })
}

/// A name for people and programs to read.
fn service(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|octet| octet.is_ascii_graphic()) && (1..=128).contains(&text.len());
    if is_plain { Ok(text.to_owned()) } else { Err("must be 1 to 128 characters of ASCII without spaces".to_owned()) }
}

fn log_level(text: &str) -> Result<String, String> {
    match text.parse::<tracing_subscriber::EnvFilter>() {
        Ok(_) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err("must be error, warn, info, debug or trace, or directives such as info,signpost=debug".to_owned()),
    }
}

fn audit_policy(text: &str) -> Result<Option<audit::Policy>, String> {
    match text {
        "writes" => Ok(Some(audit::Policy::Writes)),
        "all" => Ok(Some(audit::Policy::All)),
        "off" => Ok(None),
        _ => Err("must be writes, all or off".to_owned()),
    }
}

fn log_format(text: &str) -> Result<Format, String> {
    match text {
        "human" => Ok(Format::Human),
        "json" => Ok(Format::Json),
        _ => Err("must be human or json".to_owned()),
    }
}
