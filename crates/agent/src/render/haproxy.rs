//! HAProxy's configuration, laid out so that almost nothing needs a reload.
//!
//! The configuration file names no Route. It has two pools of numbered backends, one for HTTP and one for TLS passthrough, and two
//! maps: `hosts.map` leads from a host to its virtual host, `paths.map` from virtual host and path to a backend. A new Route takes a
//! free backend of the pool, whose servers and map entries are added through the Runtime API. Only a pool that is used up needs
//! a reload, which makes it larger.
//!
//! ```text
//! :80  ─► frontend http  ──────────────────────────┐ hosts.map, paths.map
//!                                                  ├────► backend h0 … hN ─► servers
//! :443 ─► frontend tls ─┬─► backend https ─► frontend https
//!             hosts.map └─► backend t0 … tN ─► servers (passthrough)
//! ```
//!
//! The keys of `paths.map` and the paths that are looked up in it end with `/`, so that the longest prefix (`map_beg`, a prefix
//! tree) always ends with a whole element.

mod settings;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use signpost_types::probe::{BACKEND_HEADER, PROBE_HEADER, ROUTE_HEADER, TRACE_HEADER, backend_id, route_id};
use signpost_types::v1alpha1::traffic::{ClientAddress, ProxyProtocol};

use self::settings::Entries;
use super::{
    Account, DEFAULT_CERTIFICATE, HOPS_MAX, INVALID_HOST, LOOP_DETECTED, LOOP_TOKEN, METHOD_NOT_ALLOWED, MISDIRECTED,
    NO_RESPONSE, NOT_FOUND, Settings, TIMED_OUT, UNAVAILABLE, certificate_file,
};
use crate::site::{
    Certificate, Changes, Host, Paths, RouteKey, RouterSettings, Server, Site, Thumbprint, Upstream, WILDCARD_DEPTH_MAX,
};

/// The backends that are free after a reload, so that as many Routes can come before the next. An empty backend takes
/// 16 KiB of HAProxy's memory, 5 KiB of which are its rules; 12,000 of them add 0.4 s to a reload.
const SPARE_HTTP: usize = 1_024;
/// The free backends for passthrough.
const SPARE_TCP: usize = 128;
/// The value in `hosts.map` of a host whose TLS ends at the router: the backend that leads there.
const TERMINATED: &str = "https";
/// The backend of HTTP Routes without a ready endpoint.
pub(crate) const UNAVAILABLE_HTTP: &str = "unavailable";
/// The first letter of backends for passthrough.
pub(crate) const TCP: char = 't';
/// The backend of passthrough Routes without a ready endpoint.
const UNAVAILABLE_TCP: &str = "unavailable-tcp";

/// The socket of the Runtime API, in the directory of the configuration.
pub const WORKER_SOCKET: &str = "worker.sock";
/// The socket of the agent for a line about each request.
pub const LOG_SOCKET: &str = "log.sock";
/// The main file.
pub const CONFIG: &str = "haproxy.cfg";
const HOSTS: &str = "hosts.map";
const PATHS: &str = "paths.map";
/// The hosts whose HTTP challenges the proxy answers.
const CHALLENGES: &str = "challenges.map";
const CERTIFICATE_LIST: &str = "certificates.list";
const SCRIPT: &str = "router.lua";
/// The section with the table of connections by client.
const CLIENTS: &str = "clients";

/// The contents of a running HAProxy: which Route has which backend, and the entries of maps and lists.
#[derive(Debug)]
pub struct Layout {
    http: Pool,
    tcp: Pool,
    hosts: BTreeMap<Host, VirtualHost>,
    certificates: BTreeMap<Host, Certificate>,
    has_access_log: bool,
    /// The options of servers with TLS, without the name.
    verify: &'static str,
    /// The settings of the Router, which are in the configuration.
    router: RouterSettings,
    /// The thumbprint for HTTP challenges, which is, too.
    thumbprint: Option<Thumbprint>,
    /// The settings of Routes without any of their own.
    defaults: String,
}

/// The value of all entries in `challenges.map`.
const ISSUED: &str = "issued";

/// The map entries of a host.
#[derive(Debug)]
struct VirtualHost {
    /// The value in `hosts.map`.
    tls: String,
    /// Whether it is in `challenges.map`.
    answers_challenges: bool,
    /// The entries of `paths.map`.
    paths: BTreeMap<String, String>,
}

/// A command of the Runtime API and the response that means success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The command, with the newline at its end.
    pub text: String,
    /// A part of the response to a command that succeeded; empty: the response is empty.
    pub success: &'static str,
}

/// Numbered backends of the same kind.
#[derive(Debug)]
struct Pool {
    prefix: char,
    size: usize,
    free: Vec<usize>,
    slots: BTreeMap<RouteKey, Slot>,
    /// The numbers of `slots`.
    used: BTreeSet<usize>,
    /// Servers that no Route uses any more, by backend. They still have connections, or are not deleted yet.
    retired: BTreeMap<usize, BTreeSet<String>>,
}

/// The backend of a Route.
#[derive(Debug)]
struct Slot {
    number: usize,
    /// The Route as its servers are; empty before they are added.
    upstream: Upstream,
    /// The Route's entries in maps of settings.
    entries: Entries,
}

impl Layout {
    /// Lays out a Site, with room for more Routes.
    pub fn new(site: &Site, settings: &Settings) -> Layout {
        let verify = match settings.upstream_authorities {
            Some(_) => "verify required ca-file authorities.pem",
            None => "verify none",
        };
        let used = |tcp| site.routes.values().filter(|upstream| needs_backend(upstream, tcp)).count();
        let pool = |prefix, tcp, spare| Pool::new(prefix, used(tcp), spare);
        let (http, tcp) = (pool('h', false, SPARE_HTTP), pool(TCP, true, SPARE_TCP));
        let certificates = BTreeMap::new();
        let has_access_log = site.has_access_log;
        let (router, defaults) = (site.router.clone(), settings::default_fields(settings));
        let (hosts, thumbprint) = (BTreeMap::new(), site.thumbprint.clone());
        let mut layout =
            Layout { http, tcp, hosts, certificates, has_access_log, verify, router, thumbprint, defaults };
        layout
            .advance(site, &site.certificates, None)
            .expect("the pools have room for the Site, from which their sizes come");
        layout
    }

    /// Changes the layout to that of another Site, and returns the commands that make a running HAProxy follow. Only what may have
    /// changed is compared; `None`: all of it. Certificates, which are those of the Site or some of them, are always compared whole.
    ///
    /// `None` as the outcome: a pool is used up. The layout is then in an undefined state; a new one and a reload are necessary.
    pub fn advance(
        &mut self,
        site: &Site,
        certificates: &BTreeMap<Host, Certificate>,
        changes: Option<&Changes>,
    ) -> Option<Vec<Command>> {
        let changes = changes.map_or_else(|| Cow::Owned(self.all_changes(site)), Cow::Borrowed);
        let mut commands = self.advance_certificates(certificates);
        let mut retire = Vec::new();
        for (pool, tcp) in [(&mut self.http, false), (&mut self.tcp, true)] {
            for route in &changes.routes {
                match site.routes.get(route).filter(|upstream| needs_backend(upstream, tcp)) {
                    Some(upstream) => {
                        pool.place(route, upstream, self.verify, &mut commands, &mut retire)?;
                        pool.set(route, upstream, &self.defaults, &mut commands, &mut retire);
                    }
                    None => pool.release(route, &mut retire),
                }
            }
        }
        let (mut of_paths, mut of_hosts) = (MapCommands::new(PATHS), MapCommands::new(HOSTS));
        let mut of_challenges = MapCommands::new(CHALLENGES);
        for host in &changes.hosts {
            let after = site.hosts.get(host).map(|routes| self.virtual_host(site, host, routes));
            let before = self.hosts.remove(host);
            let tls =
                |of: &Option<VirtualHost>| BTreeMap::from_iter(of.iter().map(|of| (host.to_string(), of.tls.clone())));
            of_hosts.advance(&tls(&before), &tls(&after));
            let issued = |of: &Option<VirtualHost>| {
                let issued = of.iter().filter(|of| of.answers_challenges);
                BTreeMap::from_iter(issued.map(|_| (host.to_string(), ISSUED.to_owned())))
            };
            of_challenges.advance(&issued(&before), &issued(&after));
            let paths = |of: &Option<VirtualHost>| of.as_ref().map(|of| of.paths.clone()).unwrap_or_default();
            of_paths.advance(&paths(&before), &paths(&after));
            self.hosts.extend(after.map(|after| (host.clone(), after)));
        }
        commands.extend(of_paths.changes.into_iter().chain(of_hosts.changes).chain(of_challenges.changes));
        // A host goes before its paths, and these before the servers they lead to.
        commands.extend(of_challenges.removals.into_iter().chain(of_hosts.removals).chain(of_paths.removals));
        commands.extend(retire);
        Some(commands)
    }

    /// Returns all that may differ between the layout and a Site.
    fn all_changes(&self, site: &Site) -> Changes {
        let routes = self.http.slots.keys().chain(self.tcp.slots.keys()).chain(site.routes.keys());
        let hosts = self.hosts.keys().chain(site.hosts.keys());
        Changes { routes: routes.cloned().collect(), hosts: hosts.cloned().collect() }
    }

    /// Returns the backends of Routes, each with the identifier of its Route; `changes`: only those of Routes that may have changed.
    pub fn backends(&self, changes: Option<&Changes>) -> Vec<(String, String)> {
        let of_pool = |pool: &Pool| -> Vec<(String, String)> {
            let name = |slot: &Slot| (format!("{}{}", pool.prefix, slot.number), route_id(&slot.upstream.uid));
            match changes {
                Some(changes) => changes.routes.iter().filter_map(|route| pool.slots.get(route)).map(name).collect(),
                None => pool.slots.values().map(name).collect(),
            }
        };
        [&self.http, &self.tcp].into_iter().flat_map(of_pool).collect()
    }

    /// Returns whether the configuration has the settings of the Router, the access log, and the thumbprint. Others need a reload.
    pub fn has_settings_of(&self, site: &Site) -> bool {
        self.router == site.router && self.has_access_log == site.has_access_log && self.thumbprint == site.thumbprint
    }

    /// Returns the number of servers that no Route uses any more.
    pub fn retired(&self) -> usize {
        [&self.http, &self.tcp].into_iter().flat_map(|pool| pool.retired.values()).map(BTreeSet::len).sum()
    }

    /// Returns commands that delete servers without connections, each with the backend and the server for [`Self::deleted`]: at most a
    /// number of them, in turn from the `first` on.
    pub fn deletions(&self, first: usize, most: usize) -> Vec<(Command, String, String)> {
        let retired = || {
            [&self.http, &self.tcp].into_iter().flat_map(|pool| {
                let backends = pool.retired.iter();
                backends
                    .flat_map(move |(number, servers)| servers.iter().map(move |server| (pool.prefix, number, server)))
            })
        };
        let count = self.retired();
        let chosen = retired().chain(retired()).skip(first % count.max(1)).take(most.min(count));
        let deletion = |(prefix, number, server): (char, &usize, &String)| {
            let backend = format!("{prefix}{number}");
            (Command::new(format!("del server {backend}/{server}"), "deleted"), backend, server.clone())
        };
        chosen.map(deletion).collect()
    }

    /// Records that a server was deleted; the last one of a released backend makes it free.
    pub fn deleted(&mut self, backend: &str, server: &str) {
        for pool in [&mut self.http, &mut self.tcp] {
            let Some(number) = backend.strip_prefix(pool.prefix).and_then(|number| number.parse().ok()) else {
                continue;
            };
            let Some(servers) = pool.retired.get_mut(&number) else { continue };
            servers.remove(server);
            if servers.is_empty() {
                pool.retired.remove(&number);
                if !pool.used.contains(&number) {
                    pool.free.push(number);
                }
            }
        }
    }

    /// Returns all files of the configuration by name.
    pub fn files(&self, settings: &Settings) -> BTreeMap<String, String> {
        let hosts = self.hosts.iter().map(|(host, of)| format!("{host} {}\n", of.tls));
        let paths = self.hosts.values().flat_map(|of| &of.paths).map(|(path, value)| format!("{path} {value}\n"));
        let issued =
            self.hosts.iter().filter(|(_, of)| of.answers_challenges).map(|(host, _)| format!("{host} {ISSUED}\n"));
        let list = |(host, _): (&Host, _)| format!("{} {host}\n", certificate_file(host));
        let mut files = BTreeMap::from([
            (CONFIG.to_owned(), self.config(settings)),
            (HOSTS.to_owned(), hosts.collect()),
            (PATHS.to_owned(), paths.collect()),
            (CHALLENGES.to_owned(), issued.collect()),
            (CERTIFICATE_LIST.to_owned(), self.certificates.iter().map(list).collect()),
            (settings::SETTINGS.to_owned(), self.map_file(|entries| &entries.settings)),
            (settings::NETWORKS.to_owned(), self.map_file(|entries| &entries.networks)),
            ("503.http".to_owned(), response("503 Service Unavailable", UNAVAILABLE)),
            (SCRIPT.to_owned(), script()),
        ]);
        files.extend(
            self.certificates.iter().map(|(host, certificate)| (certificate_file(host), certificate.pem.to_string())),
        );
        files
    }

    /// Returns the file of a map of settings.
    fn map_file(&self, map: fn(&Entries) -> &BTreeMap<String, String>) -> String {
        let slots = self.http.slots.values().chain(self.tcp.slots.values());
        slots.flat_map(|slot| map(&slot.entries)).map(|(key, value)| format!("{key} {value}\n")).collect()
    }

    /// Returns the entries that a host has in the maps.
    fn virtual_host(&self, site: &Site, host: &Host, routes: &Paths) -> VirtualHost {
        let tls = match site.passthrough(routes) {
            Some(route) => self.tcp.backend(route).unwrap_or_else(|| UNAVAILABLE_TCP.to_owned()),
            None => TERMINATED.to_owned(),
        };
        let mut paths = BTreeMap::new();
        for (path, route) in routes {
            let Some(upstream) = site.routes.get(route) else { continue };
            let backend = self.http.backend(route).unwrap_or_else(|| UNAVAILABLE_HTTP.to_owned());
            let (http, https) = (upstream.over_http().word(), upstream.over_https().word());
            let (path, id) = (path.as_str().trim_end_matches('/'), route_id(&upstream.uid));
            paths.insert(format!("{host}{path}/"), format!("{backend}:{http}:{https}:{id}"));
        }
        VirtualHost { tls, answers_challenges: site.answers_challenges(host), paths }
    }

    /// Returns the names of the files with certificates.
    pub(crate) fn certificate_files(&self) -> BTreeSet<String> {
        self.certificates.keys().map(certificate_file).collect()
    }

    fn advance_certificates(&mut self, wanted: &BTreeMap<Host, Certificate>) -> Vec<Command> {
        let mut commands = Vec::new();
        if self.certificates == *wanted {
            return commands;
        }
        for (host, certificate) in wanted {
            let file = certificate_file(host);
            let before = self.certificates.get(host);
            if before == Some(certificate) {
                continue;
            }
            if before.is_none() {
                commands.push(Command::new(format!("new ssl cert {file}"), "New empty certificate"));
            }
            // An empty line ends the payload.
            let pem: String =
                certificate.pem.lines().filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect();
            commands.push(Command::new(format!("set ssl cert {file} <<\n{pem}"), "Transaction "));
            commands.push(Command::new(format!("commit ssl cert {file}"), "Success!"));
            if before.is_none() {
                commands
                    .push(Command::new(format!("add ssl crt-list {CERTIFICATE_LIST} <<\n{file} {host}\n"), "Success!"));
            }
        }
        for host in self.certificates.keys().filter(|host| !wanted.contains_key(*host)) {
            let file = certificate_file(host);
            commands.push(Command::new(format!("del ssl crt-list {CERTIFICATE_LIST} {file}"), "deleted"));
            commands.push(Command::new(format!("del ssl cert {file}"), "deleted"));
        }
        self.certificates.clone_from(wanted);
        commands
    }

    fn config(&self, settings: &Settings) -> String {
        let settings = &settings.of_router(&self.router);
        let mut text = global(settings) + &settings::sections();
        let port = match settings.public_https_port {
            443 => String::new(),
            port => format!(":{port}"),
        };
        let log = if self.has_access_log { ACCESS_LOG } else { "" };
        let http = binds(&settings.http) + &limits(settings) + log;
        let owner = settings.account.as_ref().map(|account| format!(" uid {}", account.uid)).unwrap_or_default();
        let https = format!(
            "    bind unix@https.sock mode 600{owner} accept-proxy ssl crt {DEFAULT_CERTIFICATE} crt-list {CERTIFICATE_LIST} alpn h2,http/1.1\n{}{log}",
            trusted(settings)
        );
        let misdirected = format!(
            "    http-request return status 421 content-type text/plain string \"{}\" if {{ var(txn.vhost),map_str({HOSTS}) -m found }} !{{ var(txn.vhost),map_str({HOSTS}) -m str {TERMINATED} }}\n",
            quoted(MISDIRECTED)
        );
        let probe = format!(
            "    http-request return status 204 hdr {ROUTE_HEADER} %[var(txn.route),field(4,:)] if {{ req.fhdr({PROBE_HEADER}) -m len gt 0 }} {{ var(txn.route) -m found }}\n"
        );
        // Before the Routes, so that no path, redirect, list of networks, or limit of a tenant is in the way.
        let challenge = self.thumbprint.as_ref().map_or_else(String::new, |thumbprint| {
            format!(
                "    http-request return status 200 content-type text/plain lf-string \"%[path,field(4,/)].{thumbprint}\" if {{ path -m reg ^/[.]well-known/acme-challenge/[A-Za-z0-9_-]{{1,128}}$ }} {{ var(txn.host),map_str({CHALLENGES}) -m found }}\n"
            )
        });
        for (name, binds, field, first, last, forwarded_port) in [
            ("http", &http, 2, challenge.as_str(), probe.as_str(), "%[dst_port]"),
            ("https", &https, 3, misdirected.as_str(), "", &settings.public_https_port.to_string()),
        ] {
            let virtual_host = virtual_host_rules("http-request", "txn", "req.fhdr(host),field(1,:),lower,rtrim(.)");
            let _ = write!(
                text,
                r#"
frontend {name}
{binds}    http-request return status 405 content-type text/plain string "{method_not_allowed}" if {{ method CONNECT TRACE }}
    http-request return status 400 content-type text/plain string "{invalid_host}" unless {{ req.fhdr_cnt(host) 1 }} {{ req.fhdr(host) -m reg ^[A-Za-z0-9._-]+(:[0-9]+)?$ }}
{virtual_host}{first}    http-request set-var(txn.path) path
    http-request set-var(txn.route) var(txn.vhost),concat(,txn.path,/),map_beg({PATHS}) if {{ var(txn.vhost) -m found }}
{last}    http-request set-var(txn.action) var(txn.route),field({field},:)
    http-request redirect code 302 location https://%[var(txn.host)]{port}%[pathq] if {{ var(txn.action) -m str redirect }}
    http-request return status 404 content-type text/plain string "{not_found}" if !{{ var(txn.action) -m str serve }}
{limits}    # A reload ends idle connections with their next response, not before, so that no request is lost.
    option idle-close-on-response
    http-request set-var(txn.trace) bool(true) if {{ req.fhdr({TRACE_HEADER}) -m len gt 0 }}
    http-response del-header {BACKEND_HEADER}
    http-response del-header {ROUTE_HEADER}
    http-response set-header {BACKEND_HEADER} %[srv_name,field(1,-)] if {{ var(txn.trace) -m found }}
{responses}{headers}    use_backend %[var(txn.route),field(1,:)]
"#,
                method_not_allowed = quoted(METHOD_NOT_ALLOWED),
                invalid_host = quoted(INVALID_HOST),
                not_found = quoted(NOT_FOUND),
                limits = settings::request_rules(settings),
                responses = settings::response_rules(name),
                headers = header_rules(name, forwarded_port, settings.client_address),
            );
        }
        text.push_str(&tls_frontend(settings));
        self.http.write(&http_backend(settings), self.verify, &mut text);
        self.tcp.write("    mode tcp\n", self.verify, &mut text);
        text
    }
}

/// The frontend for TLS, which finds out where it ends, and the backends without Routes.
fn tls_frontend(settings: &Settings) -> String {
    format!(
        r"
frontend tls
    mode tcp
{binds}{limits}    tcp-request inspect-delay 5s
    tcp-request content reject if !{{ req.ssl_hello_type 1 }}
{virtual_host}{networks}    use_backend %[var(sess.vhost),map_str({HOSTS})] if {{ var(sess.vhost) -m found }}
    default_backend {TERMINATED}

backend {TERMINATED}
    mode tcp
    # The frontend behind it ends a connection first.
    timeout tunnel {longest}ms
    server https unix@https.sock send-proxy-v2

backend {UNAVAILABLE_HTTP}
    # Counts the requests of each Route, by its identifier.
    stick-table type string len 17 size 16k expire 1h store http_req_cnt
    http-request track-sc1 var(txn.route),field(4,:)

backend {UNAVAILABLE_TCP}
    mode tcp
",
        binds = binds(&settings.https),
        limits = limits(settings),
        networks = settings::connection_rules(HOSTS),
        longest = settings::TIME_MAX_MS.max(settings.stream_timeout.as_millis()) + 60_000,
        virtual_host = virtual_host_rules("tcp-request content", "sess", "req.ssl_sni,lower"),
    )
}

/// Sections that are the same for all Routes.
fn global(settings: &Settings) -> String {
    let account = settings.account.as_ref();
    let account = account.map(|Account { uid, gid, .. }| format!("    uid {uid}\n    gid {gid}\n")).unwrap_or_default();
    format!(
        r"# Written by signpost agent, which overwrites changes.
global
{account}    stats socket unix@worker.sock mode 600 level admin expose-fd listeners
    stats timeout 1m
    # The limit for the remaining connections of a replaced worker.
    hard-stop-after 30m
    # More would only cost memory: HAProxy reserves some for each possible descriptor.
    fd-hard-limit {DESCRIPTORS_MAX}
    lua-load-per-thread {SCRIPT}
    # The head of a request or response fits into a buffer, without the part for headers that are added: 32 KiB.
    tune.bufsize 36864
    tune.maxrewrite 4096
    tune.http.maxhdr 256
    ssl-default-bind-options ssl-min-ver TLSv1.2
    ssl-default-server-options ssl-min-ver TLSv1.2

defaults
    mode http
    balance roundrobin
    timeout connect 5s
    timeout client {response}
    timeout client-fin 5s
    timeout server {response}
    timeout server-fin 5s
    timeout http-request 10s
    timeout http-keep-alive {keep_alive}
    timeout tunnel {stream}
    timeout queue 5s
    # A request of which nothing was sent is tried again on another server, twice. A request of which an application may have seen
    # a part is never sent again (RFC 9110 §9.2.2).
    retries 2
    option redispatch 1
    retry-on conn-failure
    errorfile 503 503.http

# The connections of each client. One that leaves is forgotten after a minute.
backend {CLIENTS}
    stick-table type ipv6 size 1m expire 1m store conn_cur
",
        response = milliseconds(settings.response_timeout),
        stream = milliseconds(settings.stream_timeout),
        keep_alive = milliseconds(settings.keep_alive),
    )
}

/// The access log of a frontend: text in JSON for the agent. The converter `json` escapes what clients send, which is
/// cut off, because a line must fit into a datagram.
const ACCESS_LOG: &str = r#"    option dontlognull
    log unix@log.sock len 16384 format raw local0
    unique-id-format %[uuid]
    http-request set-header X-Request-Id %[unique-id]
    http-request set-var(txn.log_agent) req.fhdr(User-Agent),bytes(0,512)
    http-request set-var(txn.log_host) req.fhdr(host),bytes(0,256)
    http-request set-var(txn.log_path) pathq,bytes(0,1024)
    log-format 'a|{"r":"%[var(txn.route),field(4,:)]","s":"%ST","method":"%[capture.req.method,json(utf8s)]","scheme":"%[ssl_fc,iif(https,http)]","host":"%[var(txn.log_host),json(utf8s)]","path":"%[var(txn.log_path),json(utf8s)]","protocol":"%[capture.req.ver,json(utf8s)]","agent":"%[var(txn.log_agent),json(utf8s)]","client":"%[src]","id":"%ID","in":"%U","out":"%B","endpoint":"%si:%sp","head":"%Tr","total":"%Ta"}'
"#;

/// The most descriptors that HAProxy opens. Half as many connections of clients are possible.
pub const DESCRIPTORS_MAX: u64 = 200_000;

fn binds(addresses: &[std::net::SocketAddr]) -> String {
    addresses.iter().map(|at| format!("    bind {at}\n")).collect()
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

/// The condition `trusted`: whether the client is a proxy in front of this one.
fn trusted(settings: &Settings) -> String {
    if settings.trusted_proxies.is_empty() {
        return "    acl trusted always_false\n".to_owned();
    }
    settings.trusted_proxies.iter().map(|network| format!("    acl trusted src {network}\n")).collect()
}

/// Rules of a public listener that limit the connections of each client: an IPv4 address, or an IPv6 /64, which is what one customer
/// of a provider has at least.
fn limits(settings: &Settings) -> String {
    // With the PROXY protocol, the client is known after the connection.
    let (announced, rule) = match settings.client_address {
        ClientAddress::XForwardedFor => ("", "connection"),
        ClientAddress::ProxyProtocol => ("    tcp-request connection expect-proxy layer4 if trusted\n", "session"),
    };
    format!(
        "{}{announced}    tcp-request {rule} track-sc0 src,ipmask(32,64) table {CLIENTS} if !trusted\n    tcp-request {rule} reject if {{ sc0_conn_cur gt {} }}\n",
        trusted(settings),
        settings.client_connections_max
    )
}

/// Rules for the headers of requests that go to applications, and of their responses.
///
/// `^` and `$` and lower case: the names of headers are lower-case here. Some applications cannot distinguish `_` from `-` in a name (CGI).
fn header_rules(scheme: &str, port: &str, client_address: ClientAddress) -> String {
    // With the PROXY protocol, the client is the one in the protocol, and the headers are its own, in whichever network it is.
    let if_of_client = match client_address {
        ClientAddress::XForwardedFor => " if !trusted",
        ClientAddress::ProxyProtocol => "",
    };
    format!(
        r#"    http-request return status 508 content-type text/plain string "{loop_detected}" if {{ req.hdr_cnt(CDN-Loop) ge {HOPS_MAX} }} {{ lua.hops -m int ge {HOPS_MAX} }}
    http-request add-header CDN-Loop {LOOP_TOKEN}
    # The absolute form (RFC 9112 §3.2.2) is for proxies; HAProxy has compared its authority with Host.
    http-request set-uri / if {{ url_beg -i http:// https:// }} !{{ path -m found }}
    http-request set-uri %[pathq] if {{ url_beg -i http:// https:// }}
    # Headers by which a client could claim another identity or address.
    http-request del-header ^(proxy|((x[-_](cluster[-_])?|true[-_])?client|x[-_]real)[-_]ip|x[-_]scheme|x[-_]original[-_]url|x[-_]rewrite[-_]url|signpost[-_](trace|probe|route|backend))$ -m reg
    http-request del-header ^x(_forwarded[-_]|-forwarded_)(for|proto|host|port|server|ssl|prefix)$ -m reg
    http-request del-header ^(forwarded|x-forwarded-(for|proto|host|port|server|ssl|prefix))$ -m reg{if_of_client}
    http-request add-header X-Forwarded-For %[src] if {{ req.fhdr_cnt(X-Forwarded-For) gt 1 }}
    http-request set-header X-Forwarded-For "%[req.fhdr(X-Forwarded-For)], %[src]" if {{ req.fhdr_cnt(X-Forwarded-For) 1 }}
    http-request set-header X-Forwarded-For %[src] if {{ req.fhdr_cnt(X-Forwarded-For) 0 }}
    http-request set-header X-Forwarded-Proto {scheme} if !{{ req.fhdr(X-Forwarded-Proto) -m found }}
    http-request set-header X-Forwarded-Host %[req.fhdr(host)] if !{{ req.fhdr(X-Forwarded-Host) -m found }}
    http-request set-header X-Forwarded-Port {port} if !{{ req.fhdr(X-Forwarded-Port) -m found }}
    # Headers of one connection (RFC 9110 §7.6.1, §7.8, §10.1.4). The last one that HAProxy itself needs is that of a WebSocket.
    http-request set-var(txn.websocket) bool(true) if {{ req.hdr(Upgrade) -m str -i websocket }} {{ req.hdr(Connection) -m str -i upgrade }} {{ var(txn.settings),field(9,:) -m str 1 }}
    acl websocket var(txn.websocket) -m found
    # Another protocol, alone and one of the Route's.
    http-request set-var(txn.upgrade) req.fhdr(Upgrade),lower if !websocket {{ req.hdr(Connection) -m str -i upgrade }}
    acl upgrade var(txn.backend),concat(:,txn.upgrade),map_str({settings_map}) -m found
    acl trailers req.hdr(TE) -m str -i trailers
    http-request set-header Upgrade websocket if websocket
    http-request set-header Connection upgrade if websocket or upgrade
    http-request del-header ^(connection|upgrade)$ -m reg if !websocket !upgrade
    http-request set-header TE trailers if trailers
    http-request del-header TE if !trailers
    http-request del-header ^(keep-alive|proxy-connection|http2-settings)$ -m reg
    http-response del-header ^(keep-alive|proxy-connection)$ -m reg
    http-response del-header ^(connection|upgrade)$ -m reg if !{{ status 101 426 }}
    # For the script: the time limit of the response, and its begin.
    http-request set-var(txn.timeout) var(txn.settings),field(1,:),add(0)
    http-request set-var(txn.timeout) var(txn.settings),field(2,:),add(0) if {{ req.hdr(Accept) -m beg -i text/event-stream }}
    http-request set-var(txn.start) date(0,ms)
"#,
        loop_detected = quoted(LOOP_DETECTED),
        settings_map = settings::SETTINGS,
    )
}

/// The rules of each backend for HTTP: HAProxy 2.6 does not run those of a `defaults` section, and a frontend cannot have them.
///
/// If an application closes without a response, HAProxy by itself closes the client's connection, too (for the second and later
/// requests of a connection), or resets the HTTP/2 stream with REFUSED_STREAM. By RFC 9113 §8.7, that code means that the request
/// was not processed, so that clients send it again. Therefore a response without a status gets to the script, which answers 502.
/// The delay must be longer than every timeout.
///
/// A worker that is replaced does not do this for new requests: in HAProxy 2.6, waiting for the status would sometimes lose a response
/// that comes together with the end of the server's connection, which such a worker requests.
fn http_backend(settings: &Settings) -> String {
    let longest = settings.stream_timeout.max(settings.response_timeout).as_millis();
    let delay = longest.max(settings::TIME_MAX_MS) * 2;
    let of_routes = settings::BACKEND;
    format!(
        r"    mode http
{of_routes}    tcp-response inspect-delay {delay}ms
    tcp-response content accept if {{ stopping }} || {{ status 100:599 }}
    tcp-response content lua.no-response
"
    )
}

/// The most milliseconds by which HAProxy's timers and its date differ: the date follows changes of the system's clock. A timeout must not
/// look like an application that closed.
const CLOCK_DIFFERENCE_MS: u32 = 100;

/// The script of the actions that no rule can do.
fn script() -> String {
    let (no_response, timed_out) = (quoted(NO_RESPONSE), quoted(TIMED_OUT));
    format!(
        r#"-- Written by signpost agent, which overwrites changes.

-- Answers a request that the application did not answer. HAProxy does not give the reason; a timeout is recognized by the time that passed.
core.register_action("no-response", {{"tcp-res"}}, function(txn)
    local elapsed = txn.f:date(0, "ms") - (txn:get_var("txn.start") or 0)
    local reply = txn:reply()
    if elapsed + {CLOCK_DIFFERENCE_MS} >= (txn:get_var("txn.timeout") or 0) then
        reply:set_status(504, "Gateway Timeout")
        reply:set_body("{timed_out}")
    else
        reply:set_status(502, "Bad Gateway")
        reply:set_body("{no_response}")
    end
    reply:add_header("content-type", "text/plain")
    txn:done(reply)
end)

-- Counts how often the request has passed this platform, by the members of all lines of CDN-Loop (RFC 8586 §2).
core.register_fetches("hops", function(txn)
    local hops = 0
    for _, line in pairs(txn.http:req_get_headers()["cdn-loop"] or {{}}) do
        for member in string.gmatch(line, "[^,]+") do
            if string.match(string.lower(member), "^%s*([^%s;]*)") == "{LOOP_TOKEN}" then
                hops = hops + 1
            end
        end
    end
    return hops
end)
"#
    ) + settings::SCRIPT
}

/// Rules that set `vhost` in a scope of variables to the key of `hosts.map` for a host: the host itself, or otherwise the longest
/// wildcard above it.
fn virtual_host_rules(rule: &str, scope: &str, host: &str) -> String {
    let unknown = format!("!{{ var({scope}.vhost) -m found }}");
    let mut text = format!(
        "    {rule} set-var({scope}.host) {host}
    {rule} set-var({scope}.suffix) var({scope}.host)
    {rule} set-var({scope}.vhost) var({scope}.host) if {{ var({scope}.host),map_str({HOSTS}) -m found }}\n"
    );
    for _ in 0..WILDCARD_DEPTH_MAX {
        let _ = write!(
            text,
            "    {rule} set-var({scope}.suffix) var({scope}.suffix),field(2,.,0) if {unknown}
    {rule} set-var({scope}.wildcard) str(*),concat(.,{scope}.suffix) if {unknown}
    {rule} set-var({scope}.vhost) var({scope}.wildcard) if {unknown} {{ var({scope}.wildcard),map_str({HOSTS}) -m found }}\n"
        );
    }
    text
}

/// Returns text for a quoted argument of the configuration.
fn quoted(text: &str) -> String {
    text.replace('\n', "\\n")
}

/// Returns a whole response, for `errorfile`.
fn response(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain\r\nCache-Control: no-cache\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Returns whether a Route needs a backend of one kind.
fn needs_backend(upstream: &Upstream, tcp: bool) -> bool {
    upstream.is_passthrough() == tcp && upstream.is_available()
}

/// Commands that change the entries of a map.
struct MapCommands {
    file: &'static str,
    changes: Vec<Command>,
    removals: Vec<Command>,
}

impl MapCommands {
    fn new(file: &'static str) -> MapCommands {
        MapCommands { file, changes: Vec::new(), removals: Vec::new() }
    }

    /// Replaces entries.
    fn advance(&mut self, before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) {
        let file = self.file;
        // A semicolon ends a command.
        let escaped = |key: &str| key.replace(';', "\\;");
        for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(value)) {
            let verb = if before.contains_key(key) { "set" } else { "add" };
            self.changes.push(Command::new(format!("{verb} map {file} {} {value}", escaped(key)), ""));
        }
        let removed = before.keys().filter(|key| !after.contains_key(*key));
        self.removals.extend(removed.map(|key| Command::new(format!("del map {file} {}", escaped(key)), "")));
    }
}

impl Command {
    fn new(text: String, success: &'static str) -> Command {
        Command { text: text + "\n", success }
    }

    /// Returns whether a response means success.
    pub fn is_success(&self, response: &str) -> bool {
        if self.success.is_empty() { response.trim().is_empty() } else { response.contains(self.success) }
    }
}

impl Pool {
    fn new(prefix: char, used: usize, spare: usize) -> Pool {
        // In proportion to the use, too, so that the number of reloads grows with the logarithm of the number of Routes.
        let size = used + spare.max(used / 4);
        let (slots, used, retired) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Pool { prefix, size, free: (0..size).rev().collect(), slots, used, retired }
    }

    /// Returns the name of the backend of a Route.
    fn backend(&self, route: &RouteKey) -> Option<String> {
        self.slots.get(route).map(|slot| format!("{}{}", self.prefix, slot.number))
    }

    /// Gives a Route a backend, and this the Route's servers.
    fn place(
        &mut self,
        route: &RouteKey,
        upstream: &Upstream,
        verify: &str,
        commands: &mut Vec<Command>,
        retire: &mut Vec<Command>,
    ) -> Option<()> {
        if !self.slots.contains_key(route) {
            let number = self.free.pop()?;
            let slot = Slot { number, upstream: Upstream::default(), entries: Entries::default() };
            self.used.insert(slot.number);
            self.slots.insert(route.clone(), slot);
        }
        let slot = self.slots.get_mut(route)?;
        if slot.upstream == *upstream {
            return Some(());
        }
        let number = slot.number;
        let before = std::mem::replace(&mut slot.upstream, upstream.clone());
        let mut before: BTreeMap<_, _> = servers(&before).map(|(name, server)| (name, server.weight)).collect();
        for (name, server) in servers(upstream) {
            let weight = server.weight;
            let full_name = format!("{}{number}/{name}", self.prefix);
            let retired = self.retired.get_mut(&number).is_some_and(|names| names.remove(&name));
            match before.remove(&name) {
                Some(old) if old == weight => continue,
                None if !retired => {
                    let options = server_options(server, upstream.settings.proxy_protocol, verify);
                    commands.push(Command::new(format!("add server {full_name} {options}"), "New server registered"));
                }
                _ => commands.push(Command::new(format!("set server {full_name} weight {weight}"), "")),
            }
            commands.push(Command::new(format!("set server {full_name} state ready"), ""));
        }
        self.retire(number, before.into_keys().collect(), retire);
        Some(())
    }

    /// Sets the entries of a placed Route in the maps of settings. Networks come before the setting that requires them.
    fn set(
        &mut self,
        route: &RouteKey,
        upstream: &Upstream,
        defaults: &str,
        commands: &mut Vec<Command>,
        retire: &mut Vec<Command>,
    ) {
        let Some(slot) = self.slots.get_mut(route) else { return };
        let after = Entries::new(&format!("{}{}", self.prefix, slot.number), upstream, defaults);
        let before = std::mem::replace(&mut slot.entries, after);
        change_entries(&before, &slot.entries, commands, retire);
    }

    /// Takes the backend of a Route that needs none any more.
    fn release(&mut self, route: &RouteKey, retire: &mut Vec<Command>) {
        let Some(slot) = self.slots.remove(route) else { return };
        self.used.remove(&slot.number);
        change_entries(&slot.entries, &Entries::default(), &mut Vec::new(), retire);
        self.retire(slot.number, servers(&slot.upstream).map(|(name, _)| name).collect(), retire);
    }

    /// Stops new requests to servers, which can be deleted when their connections have ended.
    fn retire(&mut self, number: usize, servers: Vec<String>, retire: &mut Vec<Command>) {
        let state = |name: &String| format!("set server {}{number}/{name} state maint", self.prefix);
        retire.extend(servers.iter().map(|name| Command::new(state(name), "")));
        if !servers.is_empty() {
            self.retired.entry(number).or_default().extend(servers);
        }
    }

    /// Writes the backends with the servers that they have now.
    fn write(&self, rules: &str, verify: &str, text: &mut String) {
        let slots: BTreeMap<usize, &Slot> = self.slots.values().map(|slot| (slot.number, slot)).collect();
        for number in 0..self.size {
            let _ = write!(text, "\nbackend {}{number}\n{rules}", self.prefix);
            let Some(upstream) = slots.get(&number).map(|slot| &slot.upstream) else { continue };
            for (name, server) in servers(upstream) {
                let options = server_options(server, upstream.settings.proxy_protocol, verify);
                let _ = writeln!(text, "    server {name} {options}");
            }
        }
    }
}

/// Replaces entries in the maps of settings; removals come last.
fn change_entries(before: &Entries, after: &Entries, commands: &mut Vec<Command>, retire: &mut Vec<Command>) {
    let mut networks = MapCommands::new(settings::NETWORKS);
    networks.advance(&before.networks, &after.networks);
    let mut of_routes = MapCommands::new(settings::SETTINGS);
    of_routes.advance(&before.settings, &after.settings);
    commands.extend(networks.changes.into_iter().chain(of_routes.changes));
    retire.extend(of_routes.removals.into_iter().chain(networks.removals));
}

/// Returns the servers of a Route by name. All options of a server but the weight follow from its name, which begins with the
/// identifier of the endpoint: a traced response shows it.
fn servers(upstream: &Upstream) -> impl Iterator<Item = (String, &Server)> {
    upstream.servers.iter().map(|server| {
        let id = backend_id(&upstream.uid, server.address);
        let announced = upstream.settings.proxy_protocol.map(|version| match version {
            ProxyProtocol::V1 => "-v1",
            ProxyProtocol::V2 => "-v2",
        });
        let verified = server.tls_name.as_ref().map(|name| format!("-{name}"));
        (id + announced.unwrap_or_default() + &verified.unwrap_or_default(), server)
    })
}

fn server_options(server: &Server, announced: Option<ProxyProtocol>, verify: &str) -> String {
    let Server { address, tls_name, weight } = server;
    let announced = announced.map_or("", |version| match version {
        ProxyProtocol::V1 => " send-proxy",
        ProxyProtocol::V2 => " send-proxy-v2",
    });
    let verified = match tls_name {
        None => String::new(),
        Some(name) if verify == "verify none" => format!(" ssl {verify} sni str({name})"),
        Some(name) => format!(" ssl {verify} verifyhost {name} sni str({name})"),
    };
    format!("{address} weight {weight}{announced}{verified}")
}

#[cfg(test)]
mod tests;
