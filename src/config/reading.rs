//! From texts to [`Settings`]: each key's default and bounds, and what goes together. [`super::value`] says what one text
//! may be.

use std::net::SocketAddr;

use super::layers::{Given, Layer};
use super::value::{
    api_name, api_silence, audit_policy, cookie_mode, cookie_secret, duration, label, lame_duck, lease_duration,
    limit_mode, listen_address, log_format, log_level, metrics_zones, name_server, number, one_in, path,
    query_log_clients, query_log_format, resolver, role, secret_name, server_address, server_text, service, size,
    switch, timeout, trace_endpoint, verify_server, workers, zone_name,
};
use super::{
    AdminTls, Error, Errors, Http, QueryLog, Role, Settings, Strategy, Tcp, Tracing, Verify, Webhook, jwt, strategy,
};
use signpost_api::kinds::quotas::Limits;
use signpost_api::names::{LabelRules, RESERVED_LABELS};
use signpost_apiserver::audit;
use signpost_apiserver::limits::{Amount, CLUSTER_OBJECT_BYTES};
use signpost_control::controller::live::proofs::SERVERS_MAX;
use signpost_dns::nameserver::prefix::PrefixError;
use signpost_dns::nameserver::rrl::RateLimit;

/// Most resolvers that are asked one after the other.
const RESOLVERS_MAX: usize = 8;
/// Reserved labels; the Zone of the platform lists them.
const RESERVED_LABELS_MAX: usize = 1_000;
/// Most secrets of cookies: the one of now, and those before and after it, with room for a slow change. A bad cookie costs a
/// hash for each.
const COOKIE_SECRETS_MAX: usize = 4;
/// Most prefixes without rate limit: each is looked at for every answer over it.
const EXEMPT_MAX: usize = 256;

/// The greatest quotas: nobody has so much, and twice as much is still a number.
const COUNT_MAX: u64 = 1_000_000_000;
const SIZE_MAX: u64 = 1 << 40;

/// What the texts mean.
pub(super) fn settings(layer: &Layer) -> Result<Settings, Errors> {
    let mut reader = Reader { layer, errors: Vec::new() };
    let domain = reader.optional("domain", zone_name).unwrap_or_default();
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
        http: Http {
            connections_max: reader.one("http-connections", "8192", |text| number(text, 1..=1_000_000)),
            connections_per_client_max: reader
                .one("http-connections-per-client", "1024", |text| number(text, 1..=1_000_000)),
            idle: reader.one("http-idle-timeout", "2m", timeout),
        },
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
        former_domain: reader.optional("former-domain", zone_name),
        verify: Verify {
            is_on: reader.one("verify-names", "on", switch),
            servers: reader.at_most("verify-server", SERVERS_MAX, verify_server),
            timeout: reader.one("verify-timeout", "1s", timeout),
            interval: reader.one("verify-interval", "30s", timeout),
            hosts: reader.one("verify-hosts", "off", switch),
            hosts_interval: reader.one("verify-hosts-interval", "1h", timeout),
            hosts_grace: reader.one("verify-hosts-grace", "7d", duration),
            hosts_private: reader.one("verify-hosts-private-addresses", "off", switch),
            resolvers: reader.at_most("verify-resolver", RESOLVERS_MAX, server_address),
            host_resolvers: reader.at_most("host-resolvers", RESOLVERS_MAX, resolver),
        },
        strategy: reader.one("strategy", "round-robin", strategy::strategy),
        webhook: Webhook {
            url: reader.optional("webhook-url", strategy::url),
            timeout: reader.one("webhook-timeout", "2s", timeout),
            ca: reader.optional("webhook-ca", path),
            token: reader.optional("webhook-token-file", path),
            allow_http: reader.one("webhook-allow-http", "off", switch),
            fallback: reader.one("webhook-fallback", "round-robin", strategy::fallback),
        },
        lease_duration: reader.one("lease-duration", "15s", lease_duration),
        drain_rate: reader.one("drain-rate", "10", |text| number(text, 1..=10_000)),
        trail_minimum: reader.one("trail-minimum", "7d", duration),
        trail_quiet: Some(reader.one("trail-quiet", "1d", duration)).filter(|quiet| !quiet.is_zero()),
        trail_maximum: reader.one("trail-maximum", "90d", duration),
        name_quarantine: reader.one("name-quarantine", "30d", duration),
        name_quarantine_max: reader.one("name-quarantine-max", "10000", |text| number(text, 1..=1_000_000)),
        host_reservation: reader.one("host-reservation", "10m", duration),
        label_rules: LabelRules {
            reserved: reader.bounded("reserved-labels", &RESERVED_LABELS, RESERVED_LABELS_MAX, label),
            tenant_subdomains: reader.one("tenant-subdomains", "on", switch),
        },
        limits: Limits {
            object_bytes: reader.one("object-size", "64Ki", |text| size(text, 16 << 10..=CLUSTER_OBJECT_BYTES as u64))
                as usize,
            routes: Amount {
                objects: reader.one("namespace-routes", "10000", |text| number(text, 0..=COUNT_MAX)),
                bytes: reader.one("namespace-route-bytes", "32Mi", |text| size(text, 0..=SIZE_MAX)),
            },
            events: Amount {
                objects: reader.one("namespace-events", "5000", |text| number(text, 0..=COUNT_MAX)),
                bytes: reader.one("namespace-event-bytes", "8Mi", |text| size(text, 0..=SIZE_MAX)),
            },
        },
        server_id: reader.optional("server-id", server_text),
        server_version: reader.optional("server-version", server_text),
        dns_udp_payload: reader.one("dns-udp-payload", "1232", |text| number(text, 512..=4096)),
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
        name_server_secret: reader.optional("name-server-secret", secret_name),
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
    if let Some(url) = &settings.webhook.url
        && !settings.webhook.allow_http
        && strategy::is_readable_on_its_way(url)
    {
        let text = "\"webhook-url\" is plain http to another machine, where others can read and change it: use https, or \
                    set \"webhook-allow-http\" to \"on\"";
        reader.errors.push(Error::Together(text.to_owned()));
    }
    if settings.trail_maximum < settings.trail_minimum {
        let text = "\"trail-maximum\" is shorter than \"trail-minimum\": raise the one, or lower the other".to_owned();
        reader.errors.push(Error::Together(text));
    }
    for (at, server) in settings.nameservers.iter().enumerate() {
        if settings.nameservers[..at].iter().any(|earlier| earlier.name == server.name) {
            let text = format!("\"nameserver\": {} is given twice; list all its addresses together", server.name);
            reader.errors.push(Error::Together(text));
        }
    }
    let mut issuers: Vec<&str> = settings.jwt_issuers.iter().map(|one| one.issuer.as_str()).collect();
    issuers.sort_unstable();
    if let Some(twice) = issuers.windows(2).find(|pair| pair[0] == pair[1]) {
        reader.errors.push(Error::Together(format!("\"jwt-issuer\": the issuer {} is given twice", twice[0])));
    }
    if reader.errors.is_empty() { Ok(settings) } else { Err(Errors(reader.errors)) }
}

/// Faults between values that are each valid.
pub(super) fn together(settings: &Settings) -> Vec<&'static str> {
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
        self.bounded(key, &[], count, parse)
    }

    /// A list that is not longer than `count`.
    fn bounded<T>(
        &mut self,
        key: &'static str,
        default: &[&str],
        count: usize,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let list = self.list(key, default, parse);
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
