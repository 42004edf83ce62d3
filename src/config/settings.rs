//! The table of settings: the one source of the file's keys, the flags, the environment variables, their defaults and
//! bounds, help, `docs/configuration.md`, and the differences that a reload finds. [`super::key`] describes its syntax.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;

use super::issuer;
use super::key::{settings, unset};
use super::reader::Reader;
use super::rule::{boolean, by, duration, number, parsed, path, size, table, text, words};
use super::secondary::{self, Primary, Secondary};
use super::value::{
    self, CookieMode, Engine, LogClients, LogFormat, NameServer, Resolver, Role, RouterRuntime, SecretName, Strategy,
};
use signpost_apiserver::audit::Policy;
use signpost_apiserver::auth::jwt::IssuerSettings;
use signpost_control::compiler::discovery::OfferedTransport;
use signpost_control::observe::verify::state::{SERVERS_MAX, Server};
use signpost_control::scheduler::strategy::StrategyName;
use signpost_control::sources::Mode;
use signpost_dns::nameserver::cookie::Secret;
use signpost_dns::nameserver::prefix::Prefix;
use signpost_dns::nameserver::settings::NSID_OCTETS_MAX;
use signpost_dns::transfer::Rule;
use signpost_dns::transfer::catalog::Group;
use signpost_dns::transport::https::request::TemplatePath;
use signpost_dns::update::Right;
use signpost_dns::wire;
use signpost_dns::zone::counter_slots::NUMBERS_MAX;
use signpost_dns::zone::policy::{ZonePattern, ZonePolicy};
use signpost_runtime::telemetry::{self, Format};
use signpost_runtime::trust;

/// A request tries each of them.
const API_SERVERS_MAX: usize = 16;
/// Each resolver is queried only after the previous one failed.
const RESOLVERS_MAX: usize = 8;
/// The Zone object of the platform lists them.
const RESERVED_LABELS_MAX: usize = 1_000;
/// The current secret, and those before and after it, with room for a slow change. An invalid cookie costs a hash for each.
const COOKIE_SECRETS_MAX: usize = 4;
/// Every response over the limit is compared with each prefix.
const EXEMPT_MAX: usize = 256;
/// Each new zone is compared with all apexes that have no counter yet.
const ZONE_POLICIES_MAX: usize = 1_000;
/// Each update is compared with all of them.
const UPDATES_MAX: usize = 1_000;
/// Each request for a transfer is compared with all of them.
const TRANSFERS_MAX: usize = 1_000;
/// Each of them is notified of each change.
const SECONDARIES_MAX: usize = 64;
/// Each zone from them has a task.
const PRIMARIES_MAX: usize = 1_000;
/// Each new zone is compared with them.
const GROUPS_MAX: usize = 256;
/// The account lists them.
const ACME_CONTACTS_MAX: usize = 8;
/// A table of `jwt-issuer`, for error messages.
const ISSUER_EXAMPLE: &str = "{ issuer = \"…\", audience = \"…\", jwks = \"…\" }";
/// The greatest quotas: twice as much is still a number.
const COUNT_MAX: u64 = 1_000_000_000;
const BYTES_MAX: u64 = 1 << 40;

settings! {
    /// The settings of a process: every value is valid, and they are consistent.
    Settings "General" {
        /// The roles of this process: `api` serves the API from a store in the data directory, `scheduler` binds Routes
        /// to Routers and runs the controllers, `dns` answers queries, `admin` serves health and metrics. Without
        /// `api`, the roles `scheduler` and `dns` connect to the API with `kubeconfig`; `dns` with only `zones` needs
        /// no API.
        roles: Vec<Role> = words("ROLE", Role::WORDS).list(), "api,scheduler,dns,admin", common;
        /// The directory for the store, certificates, kubeconfigs, and last-known-good zones. It is created with mode
        /// 0700 if it does not exist. A process that only serves zone files does not use it.
        data_dir: PathBuf = path("DIR"), "signpost-data", common;
        /// The store of the role `api`: `file`, in the data directory, for one API server; `etcd`, in the cluster of
        /// `etcd.endpoints`, for any number of them. See docs/three-machines.md.
        store: Engine = words("ENGINE", value::ENGINES), "file";
        /// The domain of the platform: the parent zone of all shards. It is required, except for a process that only
        /// serves zone files, and with `serve --demo`.
        domain: String = by("NAME", value::optional_zone), value::NO_DOMAIN, common;
        /// The former domain of the platform. Set it for one start on all processes when you change `domain` on
        /// purpose: every name changes. Without it, a process refuses to start on the objects of another domain.
        /// Afterwards it has no effect: the former domain is served until you remove it from the Zone of the domain
        /// (docs/domain.md).
        former_domain: Option<String> = by("NAME", value::zone), unset("none");
        /// A name server of the platform's zones and its public addresses; the first is the primary in the SOA record.
        /// A name server outside the domain needs no addresses. All processes need the same list.
        nameserver: Vec<NameServer> =
            by("NAME=ADDR[,ADDR]", value::name_server).list_of_lists().unless(|a, b| a.name == b.name),
            unset("ns1.<domain> with the addresses of `dns.listen`"), common;
        /// An encrypted transport of all name servers, to publish in SVCB records (RFC 9461) at `_dns.<name server>`:
        /// `dot`, `doq` or `h2` (HTTPS), with `:PORT` if it is not 853 or 443. All processes need the same list. See
        /// docs/encrypted-dns.md.
        nameserver_transport: Vec<OfferedTransport> =
            parsed::<OfferedTransport>("ALPN[:PORT]").list().unless(|a, b| a == b), unset("none: no SVCB records");
        /// The directory of zone files (`*.zone`) to serve. Changed files are reloaded automatically; SIGHUP reloads them
        /// immediately.
        zones: Option<PathBuf> = path("DIR"), unset("none"), common;
        /// A YAML or JSON file of objects, or a directory of such files, to apply to the API at every start. Requires
        /// the role `api`.
        manifests: Vec<PathBuf> = path("PATH").list(), unset("none");
        /// The kubeconfig of the API, for a process without the role `api`; for example `name-server.kubeconfig` from
        /// the data directory of the API server. When it changes, or a file that it names, the next request uses it.
        kubeconfig: Option<PathBuf> = path("FILE"), unset("none"), common;
        /// The URL of an API server of the platform, in place of the one in `kubeconfig`, whose authority and credentials
        /// stay in use: `https`, or `http` at a loopback address. With several, requests go to one of them as long as it
        /// answers, and then to another one. All of them need the same store. Agents that this process starts get the
        /// same list; in a process with the role `api`, it is only for them.
        api_server: Vec<Uri> = by("URL", value::api_server).list().at_most(API_SERVERS_MAX).unless(|a, b| a == b),
            unset("the one in `kubeconfig`");
        /// The Secret of the Kubernetes cluster that this process, in a pod with the role `api`, keeps equal to
        /// `name-server.kubeconfig`, under the key `kubeconfig`, for the pods of name servers. The service account of
        /// the pod needs the verbs `create` and `patch` on it.
        name_server_secret: Option<SecretName> = by("NAMESPACE/NAME", value::secret_name), unset("none");
        /// The time to keep serving after SIGTERM or SIGINT. /readyz returns 503 immediately, so that load balancers
        /// and routers can shift traffic. A second signal stops the process at once.
        lame_duck: Duration = duration(0..=600), "0s", reload, common;
        /// An identity provider whose tokens (JWT) the API accepts. Required: `issuer` (exact match), `audience`
        /// (repeats), and `jwks` (its keys: a file, or an https URL). Optional: `ca` (CA certificates for the
        /// provider), `algorithm` (repeats; default RS, PS, ES and EdDSA), `username-claim` (`sub`), `username-prefix`
        /// and `groups-prefix` (`ISSUER#`), `groups-claim` (`groups`), `leeway` (`30s`). Groups grant permissions: with
        /// `groups-prefix=signpost:`, the group `viewers` of the provider has the role of viewers. `client-id` lets
        /// users sign in there, with the dashboard and `kubectl`; it is also the default of `audience`. Optional with it:
        /// `client-secret-file` (of the dashboard), `cli-client-id` (of `kubectl`, if it differs), `scope` (repeats;
        /// default those of `openid`, `profile`, `email`, `groups` and `offline_access` that the provider supports). See
        /// docs/sign-in.md.
        jwt_issuer: Vec<IssuerSettings> =
            table(&issuer::PATHS, ISSUER_EXAMPLE, issuer::parse).list().unless(|a, b| a.issuer == b.issuer), unset("none");
    }
    etcd: Etcd "etcd" "etcd" {
        /// The URL of a member of the cluster for the store `etcd`, such as `https://10.0.0.11:2379`; list all members.
        endpoints: Vec<String> = by("URL", value::etcd_url).list(), unset("none");
        /// The prefix of all keys, such as `/signpost`. Platforms that share a cluster need different prefixes. Better, each has a cluster: the
        /// servers of a platform that writes little do not see the writes of others, and take up to half a second longer for a read.
        prefix: String = by("PREFIX", value::etcd_prefix), "/signpost";
        /// The CA certificates in PEM to trust for `endpoints` instead of the system's certificates.
        ca: Option<PathBuf> = path("FILE"), unset("none");
        /// The client certificate in PEM. Requires `etcd.key`.
        certificate: Option<PathBuf> = path("FILE"), unset("none");
        /// The private key of `certificate` in PEM.
        key: Option<PathBuf> = path("FILE"), unset("none");
        /// The user of etcd. Requires `password-file`.
        user: Option<String> = text("NAME", 1..=256), unset("none");
        /// A file with the password of `user`.
        password_file: Option<PathBuf> = path("FILE"), unset("none");
        /// The file with the key that encrypts Secrets at rest, in any store, and the secrets that API servers share in etcd:
        /// the private key of their CA, tokens and users. The first API server creates it; copy it to the others before their
        /// first start. Each line is a key, 32 octets in Base64: the first encrypts, all decrypt.
        encryption_key: Option<PathBuf> = path("FILE"), unset("<data-dir>/encryption.key");
        /// The time to keep old revisions, so that watches can resume. API servers compact etcd's history beyond it, as
        /// kube-apiserver does. `0s`: they do not; configure etcd to do it.
        history: Duration = duration(0..), "10m";
    }
    dns: Dns "dns" "DNS server" {
        /// The addresses that answer queries over UDP and TCP. Port 0 selects a free port, the same for both.
        listen: Vec<SocketAddr> = value::listen(), "127.0.0.1:5300", common;
        /// The number of threads that answer UDP queries on each address; 0: one for each processor.
        workers: usize = number("N", 0..=256), "0";
        /// Pin the n-th UDP thread of each address to the n-th processor that this process may use. Use it only on a
        /// machine that runs nothing else.
        pin_workers: bool = boolean(), "false";
        /// Send four or more UDP responses of one length to one client as one message (UDP generic segmentation
        /// offload). Clients see no difference. A thread whose kernel, device, or path rejects such a message sends
        /// singly from then on.
        udp_gso: bool = boolean(), "true";
        /// Set the DF bit in UDP responses over IPv4, which are at most 1,232 octets long. Turn it off if clients are
        /// behind a path with an MTU below 1,260 octets. In both modes, the server ignores path MTU messages.
        dont_fragment: bool = boolean(), "true";
        /// The maximum size of a UDP response, and the size that the server announces in EDNS. Responses of 1232 octets
        /// are never fragmented; larger ones can be, and increase amplification for clients with forged addresses.
        udp_payload: u16 = number("OCTETS", 512..=4096), "1232", reload;
        /// The use of DNS cookies (RFC 7873). `on`: answer a query that has a cookie with a server cookie. `off`:
        /// ignore cookies. `require`: answer BADCOOKIE to a UDP query with a client cookie but without a valid server
        /// cookie.
        cookies: CookieMode = words("MODE", value::COOKIE_MODES), "on", reload;
        /// The secret of server cookies: 32 hexadecimal digits. All name servers behind one address need the same
        /// secrets. The first one signs, and all of them verify. Flags are visible in the list of processes: use the
        /// file or the variable.
        cookie_secret: Vec<Secret> = parsed::<Secret>("HEX").list().at_most(COOKIE_SECRETS_MAX),
            unset("a random one, replaced every day"), reload, secret;
        /// The time without a response from the API after which answers are marked as possibly stale (EDE 3, RFC 8914). It is
        /// about the platform's zones. `0s`: never. The name server continues to answer in any case.
        stale_after: Duration = duration(0..), "0s", reload;
        /// The settings of some zones. `name` is required: an apex, such as `example.org`; `*.example.org` for all zones
        /// below that name; or `*` for all zones. The apex comes before patterns, and of patterns the longest applies. `counters` is
        /// whether a zone has a request counter of its own in /metrics. With `first`, the default, the first `metrics.zones`
        /// zones have one. With `always`, the zone comes before those without this setting, as long as counters are free;
        /// one is reserved for each apex. With `never`, its requests count as `other`.
        zone: Vec<(ZonePattern, ZonePolicy)> = table(&[], value::ZONE_EXAMPLE, value::zone_policy).list().at_most(ZONE_POLICIES_MAX).unless(|a, b| a.0 == b.0),
            unset("none");
        /// The certificate chain of the encrypted transports in PEM, the server's own certificate first. It is reloaded
        /// when the file changes, and by SIGHUP; after an error the former one stays in use. Requires `dns.key`. Without
        /// it, they use a certificate of the platform's CA for the names and addresses of `nameserver`.
        certificate: Option<PathBuf> = path("FILE"), unset("none");
        /// The private key of `certificate` in PEM.
        key: Option<PathBuf> = path("FILE"), unset("none");
        /// A file with TSIG keys (RFC 8945), as `key` statements of BIND or as the section `key` of Knot. Only its owner may
        /// have permission to read it. `signpost key tsig generate` makes one.
        tsig_keys: Vec<PathBuf> = path("FILE").list(), unset("none"), reload;
        /// A right to transfer zones (AXFR and IXFR); without any, transfers are refused. Set `network` (a prefix; repeats),
        /// `key` (the name of a TSIG key; repeats), or both: then a request needs one of each. Optional: `zone` (a name,
        /// or `*.NAME` for all zones below it; repeats; default all zones) and `transport` (`tls`: only encrypted). See
        /// docs/secondaries.md.
        transfer: Vec<Rule> = table(&[], secondary::TRANSFER_EXAMPLE, secondary::transfer).list().at_most(TRANSFERS_MAX),
            unset("none: transfers are refused"), reload;
        /// A secondary server to notify of changed zones (NOTIFY). Required: `address`. Optional: `key` (the name of the
        /// TSIG key that signs the requests), `zone` (as in `dns.transfer`; repeats; default all zones) and `source` (the
        /// source address, normally the address that the secondary server transfers from). With `verify` (`true`), a Route is
        /// `Resolvable` only when this server has its names, too. See docs/secondaries.md.
        secondary: Vec<Secondary> =
            table(&[], secondary::SECONDARY_EXAMPLE, secondary::secondary).list().at_most(SECONDARIES_MAX)
                .unless(|a, b| a == b), unset("none");
        /// A right of an ACME client to change the TXT records of challenges (RFC 2136). Without any, UPDATE is not
        /// implemented. Required: `key`, which is the name of a TSIG key, and `namespace`, in which it can change
        /// `_acme-challenge` below the names of Routes. See docs/acme.md.
        update: Vec<Right> = table(&[], secondary::UPDATE_EXAMPLE, secondary::update).list().at_most(UPDATES_MAX)
            .unless(|a, b| a.key == b.key), unset("none"), reload;
        /// A primary server of zones that this name server copies, as a secondary server. Required: `zone` (the name of a
        /// zone; repeats) and `address`. Optional: `key` (the name of the TSIG key that signs the requests), `tls` (the name in the
        /// server's certificate, for encrypted transfers) and `ca` (its CA certificates in PEM, instead of the
        /// system's). A zone can have several primary servers. See docs/secondary-zones.md.
        primary: Vec<Primary> =
            table(&secondary::PRIMARY_PATHS, secondary::PRIMARY_EXAMPLE, secondary::primary).list().at_most(PRIMARIES_MAX)
                .unless(|a, b| a == b), unset("none");
    }
    dns_catalog: DnsCatalog "dns.catalog" "Catalog zone" {
        /// The name of the catalog zone (RFC 9432), such as `catalog.invalid`: a list of the zones that `dns.transfer` is about,
        /// from which secondary servers add and remove zones. It must not be at or below a zone that is served. Only clients
        /// with the right to transfer it get answers. See docs/secondaries.md.
        name: Option<wire::Name> = by("NAME", secondary::catalog), unset("none: there is no catalog");
        /// Zones that the catalog puts into a group. Required: `name`. Optional: `zone` (as in `dns.transfer`; repeats; default
        /// all zones). Of the groups of a zone, the first one counts.
        group: Vec<Group> = table(&[], secondary::GROUP_EXAMPLE, secondary::group).list().at_most(GROUPS_MAX), unset("none");
    }
    dns_tls: DnsTls "dns.tls" "DNS over TLS" {
        /// The addresses that answer queries over TLS, usually at port 853. Port 0 selects a free port. The limits of
        /// `tcp` apply to it separately. See docs/encrypted-dns.md.
        listen: Vec<SocketAddr> = value::listen(), unset("none");
    }
    dns_https: DnsHttps "dns.https" "DNS over HTTPS" {
        /// The addresses that answer queries over HTTPS (HTTP/2 and HTTP/1.1), usually at port 443. Port 0 selects a free
        /// port. The limits of `tcp` apply to it separately. See docs/encrypted-dns.md.
        listen: Vec<SocketAddr> = value::listen(), unset("none");
        /// The path of the URI template, without its variable (RFC 8484): `/dns-query` means
        /// `https://<name>/dns-query{?dns}`.
        path: TemplatePath = parsed::<TemplatePath>("PATH"), "/dns-query";
    }
    dns_quic: DnsQuic "dns.quic" "DNS over QUIC" {
        /// The addresses that answer queries over QUIC, usually at port 853. Port 0 selects a free port. The limits of
        /// `tcp` apply to it separately. See docs/encrypted-dns.md.
        listen: Vec<SocketAddr> = value::listen(), unset("none");
    }
    dns_rate_limit: DnsRateLimit "dns.rate-limit" "Response rate limiting" {
        /// The number of responses of one kind that a client network gets per second over UDP, from each worker; 0: no
        /// limit. Queries over TCP or with a valid cookie are not limited.
        per_second: Option<u32> = number("N", 0..=1_000_000),
            unset("1000, only of responses larger than three times their query to addresses that are not private"), reload;
        /// `enforce` the rate limit, or only `watch`: count the responses over it.
        mode: bool = words("MODE", [("enforce", true), ("watch", false)]), "enforce", reload;
        /// The burst for a client network that was idle: it gets the responses of this time at once.
        window: Duration = duration(1..=3600), "5s", reload;
        /// Replace every N-th response over the limit with a truncated one, so that a real client retries over TCP, or
        /// with a bare error if it was an error; drop the others. 1: replace all; 0: drop all.
        slip: u16 = number("N", 0..=1000), "1", reload;
        /// The prefix length of an IPv4 client network.
        ipv4_prefix: u8 = number("BITS", 1..=32), "24", reload;
        /// The prefix length of an IPv6 client network.
        ipv6_prefix: u8 = number("BITS", 1..=128), "56", reload;
        /// A client network without a rate limit, such as `192.0.2.0/24` or `2001:db8::53`.
        exempt: Vec<Prefix> = parsed::<Prefix>("PREFIX").list().at_most(EXEMPT_MAX), unset("none"), reload;
    }
    tcp: Tcp "tcp" "DNS over TCP" {
        /// The maximum number of TCP connections of the name server, and as many of each encrypted transport that it
        /// listens on; all together at most three quarters of the files that this process may open.
        connections: usize = number("N", 1..=1_000_000), "8192";
        /// The maximum number of these connections for one client: an IPv4 address, or an IPv6 /56.
        connections_per_client: usize = number("N", 1..=1_000_000), "256";
        /// The time that a TCP connection may be idle between queries; a tenth of it while three quarters of the connections
        /// are in use. Clients that request the value get it (RFC 7828).
        idle_timeout: Duration = duration(1..), "10s";
        /// The maximum time from the first octet of a query to its last, and for a TLS handshake.
        read_timeout: Duration = duration(1..), "5s";
        /// The maximum time for a client to read its responses.
        write_timeout: Duration = duration(1..), "5s";
    }
    server: Identity "server" "DNS server identity" {
        /// The name that this name server reports to clients on request (NSID, and TXT of id.server in class CH).
        id: Option<String> = text("TEXT", 1..=NSID_OCTETS_MAX), unset("none: it reports no name"), reload;
        /// The version that this name server reports for TXT of version.bind or version.server in class CH (RFC 4892).
        version: Option<String> = text("TEXT", 1..=NSID_OCTETS_MAX), unset("none: it refuses the query"), reload;
    }
    api: Api "api" "API server" {
        /// The addresses that serve the API over HTTPS. Port 0 selects a free port.
        listen: Vec<SocketAddr> = value::listen(), "127.0.0.1:6453", common;
        /// An additional host name or address of the API, for its certificate. localhost, the loopback addresses, the
        /// addresses of `api.listen`, and the name of this host are always included. The first one is the server in the
        /// kubeconfigs.
        name: Vec<String> = by("NAME", value::host).list(), unset("none"), common;
        /// The certificate chain of the API in PEM, the server's own certificate first, instead of a self-signed one.
        /// It is reloaded when the file changes, and by SIGHUP; after an error the former one stays in use. Requires
        /// `tls-key`.
        tls_certificate: Option<PathBuf> = path("FILE"), unset("none");
        /// The private key of `tls-certificate` in PEM.
        tls_key: Option<PathBuf> = path("FILE"), unset("none");
        /// The CA certificates in PEM for clients to trust with `tls-certificate`; they are copied to the kubeconfigs.
        tls_ca: Option<PathBuf> = path("FILE"), unset("none: clients trust the CAs of their system");
        /// The time that a process without the role `api` waits for a response, an event, or a bookmark that is due, before
        /// it reconnects. The API sends one bookmark per minute: with less than that, idle watches are restarted in
        /// vain.
        read_timeout: Duration = duration(1..=150), "150s";
        /// The maximum size of the stored JSON of a namespaced object, including managed fields. The API rejects a
        /// larger one with 413. The platform's own processes may write twice as much, for the status. Cluster-scoped
        /// objects may have 512Ki.
        object_size: u64 = size(16 << 10..=512 << 10), "64Ki";
    }
    namespace: Namespace "namespace" "Quotas of a namespace" {
        /// The maximum number of Routes in a namespace, bound or not. The API rejects more with 403. The annotation
        /// `signpost.dev/max-routes` of a Namespace overrides it. Neither has an effect on the API of a Kubernetes cluster.
        routes: u64 = number("N", 0..=COUNT_MAX), "10000";
        /// The maximum total size of the Routes in a namespace, including status and managed fields: a typical Route
        /// has 3Ki. The annotation `signpost.dev/max-route-bytes` of a Namespace overrides it.
        route_bytes: u64 = size(0..=BYTES_MAX), "32Mi";
        /// The maximum number of Events in a namespace. The platform's own processes may write twice as many, and drop
        /// more. The annotation `signpost.dev/max-events` of a Namespace overrides it.
        events: u64 = number("N", 0..=COUNT_MAX), "5000";
        /// The maximum total size of the Events in a namespace. The platform's own processes may write twice as much.
        /// The annotation `signpost.dev/max-event-bytes` of a Namespace overrides it.
        event_bytes: u64 = size(0..=BYTES_MAX), "8Mi";
    }
    audit: Audit "audit" "Audit log of the API" {
        /// The requests to record: `writes` (and rejected requests), `all` (also reads), or `off`.
        policy: Option<Policy> = words("POLICY", value::AUDIT_POLICIES), "writes";
        /// The audit log: one JSON object (`audit.k8s.io/v1` Event) per line, mode 0600. SIGHUP reopens it.
        log: Option<PathBuf> = path("FILE"), unset("<data-dir>/audit.log");
        /// The size at which the audit log is rotated (`audit.log.1`, …).
        log_size: u64 = size(1 << 20..=64 << 30), "64Mi";
        /// The number of audit log files to keep, including the current one. A rotation deletes the oldest one.
        log_files: usize = number("N", 1..=1_000), "4";
    }
    http: Http "http" "HTTP connections of the API and admin listeners" {
        /// The maximum number of connections to the API, and as many to the admin endpoints; at most an eighth of the
        /// files that this process may open. Beyond it, a new connection replaces the oldest one without a request in
        /// flight. An eighth is reserved for loopback and for the platform's own processes.
        connections: usize = number("N", 1..=1_000_000), "8192";
        /// The maximum number of these connections for one client: an IPv4 address, or an IPv6 /56.
        connections_per_client: usize = number("N", 1..=1_000_000), "1024";
        /// The time that a connection may have no request in flight. A watch is a request in flight. The first request must
        /// arrive within 10s, or within this time if it is shorter.
        idle_timeout: Duration = duration(1..), "2m";
    }
    scheduler: Scheduler "scheduler" "Scheduler" {
        /// The strategy that chooses among the feasible Routers of a Route; `webhook` calls `webhook.url`. Bound Routes
        /// stay on their Router when it changes.
        strategy: Strategy = words("NAME", value::strategies()), "round-robin", reload, common;
        /// The number of Routes to move per second from Routers in state `draining`, in total. Each move changes the
        /// name of a Route and sends its users to another Router.
        drain_rate: u32 = number("N", 1..=10_000), "10";
        /// The time after the last renewal of a failed leader at which another scheduler takes over. The leader renews five
        /// times in that time, and stops leading after two thirds without a response from the API. A leader that stops
        /// releases it at once.
        lease_duration: Duration = duration(3..=300), "15s";
    }
    webhook: Webhook "webhook" "Scheduler webhook" {
        /// The endpoint that the strategy `webhook` calls; see docs/scheduling.md for its requests and responses.
        /// `https`, or `http` at a loopback address; for other addresses see `allow-http`.
        url: Option<String> = by("URL", trust::url), unset("none"), reload;
        /// The maximum time for a response of the webhook. Signpost calls it at most twice.
        timeout: Duration = duration(1..), "2s", reload;
        /// The CA certificates in PEM to trust for `url` instead of the system's certificates, or the certificate
        /// of the server itself. SIGHUP reloads it.
        ca: Option<PathBuf> = path("FILE"), unset("none"), reload;
        /// A file with a token that each request to `url` carries, as `Authorization: Bearer TOKEN`. The file is read
        /// for each request, so that a new token needs no reload.
        token_file: Option<PathBuf> = path("FILE"), unset("none"), reload;
        /// Permit plain `http` to another machine. Others on the network can then read the requests and the token, and
        /// forge responses.
        allow_http: bool = boolean(), "false", reload;
        /// The strategy that decides when the webhook gives no usable response. The explanation of the Route names the
        /// cause.
        fallback: StrategyName = words("NAME", StrategyName::ALL.map(|name| (name.as_str(), name))), "round-robin", reload;
    }
    name: Name "name" "Names of Routes" {
        /// The time to reserve a released label for a Route of the same namespace and name, such as `30d` or `12h`.
        quarantine: Duration = duration(0..), "30d";
        /// The maximum number of labels in quarantine for a namespace. Beyond it, Routes that need a new label wait,
        /// with the reason `NamesInQuarantine`; otherwise a tenant could fill the store. As many hosts may be reserved
        /// for a namespace.
        quarantine_max: u32 = number("N", 1..=1_000_000), "10000";
        /// The labels that no Route gets, instead of the default list; `routes` is always one of them. The API rejects
        /// them as a `subdomain`; a Route whose namespace and name form one gets a label with a hash. The API servers
        /// and the schedulers need the same list.
        reserved_labels: Vec<String> = by("LABEL", value::label).list().at_most(RESERVED_LABELS_MAX),
            "routes,localhost,wpad,isatap,autodiscover,mta-sts,login,admin";
        /// Let tenants set `subdomain` of a Route. `false`: the API rejects it from everyone but administrators; Routes
        /// that have one keep it.
        tenant_subdomains: bool = boolean(), "true";
    }
    former_name: FormerName "former-name" "Former names of moved Routes" {
        /// The time that the former name of a moved Route leads to its new name, such as `30d` or `12h`; it is longer
        /// if caches can hold the former addresses for longer. Until then, the former Router is not deleted.
        retention: Duration = duration(0..), "7d";
    }
    host: Host "host" "Custom hosts" {
        /// The time to reserve the host of a deleted Route for the Routes of its namespace. Other Routes
        /// that need the host have the reason `HostReserved` meanwhile. `0s`: the next of them gets it at once.
        reservation: Duration = duration(0..), "10m";
        /// A resolver to query whether the custom hosts of Routes point here, for the condition `HostPointsHere`;
        /// queried in this order. `system` means those of /etc/resolv.conf. Without any, the condition is
        /// `Unknown`. Each host is queried again at least every 5 to 7 minutes.
        resolvers: Vec<Resolver> = by("ADDR[:PORT]", value::resolver).list().at_most(RESOLVERS_MAX), unset("none");
    }
    verify: Verify "verify" "Verification of names and hosts" {
        /// Query the listed name servers for a Route's names before setting `Resolvable`, and repeat periodically.
        /// `false`: do not query, and do not set `Resolvable`. See docs/live.md.
        names: bool = boolean(), "true";
        /// A name server to query for verification, by default at port 53. Use it if name servers answer at another
        /// address or port than resolvers use.
        server: Vec<Server> = by("[NAME=]ADDR[:PORT]", value::verify_server).list().at_most(SERVERS_MAX),
            unset("the addresses of every `nameserver` at port 53; without any, `dns.listen`");
        /// The maximum time for an answer of a name server, after which the query is sent again, once.
        timeout: Duration = duration(1..), "1s";
        /// The approximate time between two checks of a zone on a name server after a correct answer.
        interval: Duration = duration(1..), "30s";
        /// Verify the ownership of custom hosts: a Route gets a custom host only after the host's own name servers
        /// returned the TXT record in the Route's status; see docs/ownership.md. All processes with the role
        /// `scheduler` need the same value.
        hosts: bool = boolean(), "false";
        /// The file with the key of the records that prove the ownership of hosts. It is created if it does not exist.
        /// All processes with the role `scheduler` need the same key: copy the file, or records stop being valid when
        /// another scheduler leads.
        hosts_key: Option<PathBuf> = path("FILE"), unset("<data-dir>/host-challenge.key");
        /// The approximate time between two queries for the record of a verified host.
        hosts_interval: Duration = duration(1..), "1h";
        /// The time that a host stays verified after its record was last found.
        hosts_grace: Duration = duration(0..), "7d";
        /// Query name servers of hosts at private addresses and at those of this machine, too. The owners of hosts
        /// choose these addresses: set it only if they may reach that network anyway.
        hosts_private_addresses: bool = boolean(), "false";
        /// A resolver that finds the name servers of hosts for `hosts`, and the addresses of load balancers that have a host
        /// name instead; queried in this order.
        resolver: Vec<SocketAddr> = by("ADDR[:PORT]", value::server_address).list().at_most(RESOLVERS_MAX),
            unset("those of /etc/resolv.conf");
    }
    acme: Acme "acme" "Certificates from a certificate authority (ACME)" {
        /// The URL of the directory of a certificate authority, such as `https://acme-v02.api.letsencrypt.org/directory`. The
        /// leading process with the role `scheduler` then gets certificates for the zones of Routers, and for custom hosts
        /// whose Routes name no Secret. With it you accept the authority's terms of service. All processes with the role
        /// `scheduler` need the same values of this section. See docs/certificates.md.
        directory: Option<String> = by("URL", value::acme_directory), unset("none: the platform gets no certificates");
        /// An address for mail of the authority about the account, such as `ops@example.org`.
        contact: Vec<String> = by("ADDRESS", value::mail_address).list().at_most(ACME_CONTACTS_MAX).unless(|a, b| a == b),
            unset("none");
        /// The profile of certificates, if the authority has several.
        profile: Option<String> = text("NAME", 1..=64), unset("that of the authority");
        /// The identifier of the key that binds the account to one at the authority's operator (external account binding).
        /// Requires `acme.external-account-key-file`.
        external_account: Option<String> = text("ID", 1..=256), unset("none");
        /// The file with that key: an HMAC key in Base64 for URLs, as authorities give it. Requires `acme.external-account`.
        external_account_key_file: Option<PathBuf> = path("FILE"), unset("none");
        /// The CA certificates in PEM to trust for `directory` instead of the system's certificates.
        ca_file: Option<PathBuf> = path("FILE"), unset("none");
        /// The most orders of custom hosts of a namespace in an hour. Other hosts of the namespace wait. Renewals count, too.
        namespace_orders: u32 = number("N", 1..=1_000_000), "20";
        /// The most orders of custom hosts in an hour. Authorities limit the orders of an account: Let's Encrypt has 300 in
        /// three hours. Those of zones count, and do not wait.
        orders: u32 = number("N", 1..=1_000_000), "90";
    }
    deletion_hold: DeletionHold "deletion-hold" "Deletion holds" {
        /// The percentage of RouteBindings that, if they are missing from the API's list or deleted within a minute, a
        /// name server holds: it continues to serve them until the deletion is approved. 100: only a list without
        /// any RouteBinding is held. Each Router that is missing from a list is held.
        threshold: u32 = number("PERCENT", 1..=100), "25", reload;
    }
    health: Health "health" "Health checks of addresses" {
        /// The number of probes in flight of the leading controller. Routers share it fairly, so that one whose
        /// addresses time out delays no other. If it is too low, probes are late.
        probes: usize = number("N", 1..=10_000), "256", reload;
        /// The percentage of the active addresses of a Router that must be healthy for health to count; with fewer, all
        /// addresses are in answers. `healthCheck.panicThreshold` of a Router overrides it.
        panic_threshold: u32 = number("PERCENT", 0..=100), "50", reload;
    }
    routers: Routers "routers" "Instances of Routers" {
        /// The runtime of the instances of Routers with the type `haproxy` or `nginx`. `process`: a process with the
        /// roles `api` and `scheduler` runs them on this machine. `kubernetes`: the leading process with the role
        /// `scheduler` runs them as pods of a cluster. `off`: no instances run. The instances keep running when that
        /// process ends, unless the runtime is `process` and SIGINT ends it, and the next one adopts them.
        runtime: RouterRuntime = words("RUNTIME", value::ROUTER_RUNTIMES), "process";
        /// The directory of the certificates of these instances, for the runtime `process`; see `--certificates` of
        /// `signpost agent`.
        certificates: Option<PathBuf> = path("DIR"), unset("none");
        /// The proxies in front of these instances, as networks or addresses: their `X-Forwarded-*` headers are kept, and
        /// they have no limit of connections. See `--trusted-proxies` of `signpost agent`; other values of these options
        /// start new instances.
        trusted_proxies: Vec<Prefix> = parsed::<Prefix>("PREFIX").list().at_most(EXEMPT_MAX), unset("none");
        /// The most connections of one client of these instances: an IPv4 address or an IPv6 /64.
        client_connections: Option<u32> = number("NUMBER", 1..=1_000_000), unset("1024");
        /// The networks whose addresses get no requests as endpoints; `default` means those of docs/agent.md.
        refused_endpoint_networks: Vec<String> = by("PREFIX", value::refused_network).list().at_most(EXEMPT_MAX),
            unset("default");
        /// The endpoints that get no requests, in addition to the listeners of Routers, and of this process for the
        /// runtime `process`.
        refused_endpoints: Vec<SocketAddr> = parsed::<SocketAddr>("ADDR:PORT").list().at_most(EXEMPT_MAX), unset("none");
        /// The most servers of a Route.
        route_servers: Option<u32> = number("NUMBER", 1..=1_000_000), unset("200");
        /// The most servers of the Routes of a namespace; the oldest Routes come first.
        namespace_servers: Option<u32> = number("NUMBER", 1..=1_000_000), unset("15000");
        /// The most servers of all Routes of a Router; the oldest Routes come first.
        router_servers: Option<u32> = number("NUMBER", 1..=1_000_000), unset("50000");
        /// The user of proxies, for the runtime `process`, if this process runs as root. See `--proxy-user` of
        /// `signpost agent`.
        proxy_user: Option<String> = text("NAME", 1..=32), unset("that with the name of the proxy");
        /// Further files and directories that proxies may read, for the runtime `process`. See `--proxy-files` of
        /// `signpost agent`.
        proxy_files: Vec<PathBuf> = path("PATH").list(), unset("none");
        /// The certificate authorities that verify applications, for the runtime `process`; see `--upstream-ca` of
        /// `signpost agent`.
        upstream_ca: Option<PathBuf> = path("FILE"), unset("none: not verified");
        /// The image of these instances, for the runtime `kubernetes`: it has `/usr/bin/signpost`, HAProxy and nginx
        /// (`deploy/container/Containerfile.router`). Another image is rolled out without a failed request.
        image: Option<String> = text("IMAGE", 1..=512), unset("none");
        /// The namespace of the pods, for the runtime `kubernetes`. Other platforms need other namespaces.
        namespace: String = by("NAME", value::label), "signpost-routers";
        /// The kubeconfig of the cluster, for the runtime `kubernetes`.
        cluster_kubeconfig: Option<PathBuf> = path("FILE"),
            unset("`kubeconfig`; with the role `api`, the service account of the pod");
        /// The type of the Service of each Router, for the runtime `kubernetes`.
        service_type: &'static str = words("TYPE", value::SERVICE_TYPES), "ClusterIP";
        /// Let pods use the network of their nodes, for the runtime `kubernetes`.
        host_network: bool = boolean(), "false";
        /// The processor time that each pod requests, for the runtime `kubernetes`.
        cpu: String = text("QUANTITY", 1..=32), "100m";
        /// The memory that each pod requests, and the most that it can use, for the runtime `kubernetes`.
        memory: String = text("QUANTITY", 1..=32), "512Mi";
        /// The Secret in `namespace` with the certificates, for the runtime `kubernetes`: its keys are the names of
        /// the files that `--certificates` of `signpost agent` describes.
        certificates_secret: Option<String> = text("NAME", 1..=253), unset("none");
        /// The ConfigMap in `namespace` with the certificate authorities that verify applications, for the runtime
        /// `kubernetes`, under the key `ca.crt`; see `--upstream-ca` of `signpost agent`.
        upstream_ca_config_map: Option<String> = text("NAME", 1..=253), unset("none: not verified");
        /// The Secret in `namespace` with the kubeconfig of agents, for the runtime `kubernetes`, under the key
        /// `kubeconfig`. Required in a process with the role `api`.
        access_secret: Option<String> = text("NAME", 1..=253), unset("none: the service account of each pod");
    }
    sources: Sources "sources" "Sources: Gateways, OpenShift routes, Ingresses, and Services of a cluster" {
        /// The use of the Gateways of a cluster and their routes. `off`: they are not read. `show`: `signpost sources` shows
        /// which Routers and Routes they mean, and nothing is written. `publish`: the leading process with the role
        /// `scheduler` writes them. Written objects stay when the use changes; see docs/sources.md.
        gateway: Mode = words("USE", value::SOURCE_MODES), "off";
        /// The use of IngressControllers and Routes of OpenShift; see `gateway`.
        openshift: Mode = words("USE", value::SOURCE_MODES), "off";
        /// The use of Ingresses of the classes in `ingress-classes`; see `gateway`.
        ingress: Mode = words("USE", value::SOURCE_MODES), "off";
        /// The use of Services of the type LoadBalancer with a host name in an annotation; see `gateway`.
        service: Mode = words("USE", value::SOURCE_MODES), "off";
        /// The kubeconfig of the cluster.
        kubeconfig: Option<PathBuf> = path("FILE"), unset("the service account of the pod; outside of a pod, `kubeconfig`");
        /// A further domain in which the zones of shards can be. It must be delegated to the platform. The zones of other
        /// shards must be below `domain`.
        domains: Vec<String> = by("DOMAIN", value::zone).list().unless(|a, b| a == b), unset("none");
        /// The controllers whose GatewayClasses count.
        gateway_controllers: Vec<String> = text("NAME", 1..=253).list().unless(|a, b| a == b), unset("all controllers");
        /// The zone of the shard of an ingress class. Ingresses of other classes do not count.
        ingress_classes: Vec<(String, String)> = by("CLASS=ZONE", value::ingress_class).list().unless(|a, b| a.0 == b.0),
            unset("none");
        /// A label of the namespaces whose routes, Ingresses, and Services count; with several, a namespace needs all.
        namespace_selector: Vec<(String, String)> = by("KEY=VALUE", value::label_pair).list().unless(|a, b| a.0 == b.0),
            unset("all namespaces");
        /// The prefixes of the annotations of external-dns that are read; the first one found counts.
        annotation_prefixes: Vec<String> = text("PREFIX", 1..=253).list().not_empty(),
            "external-dns.kubernetes.io/,external-dns.alpha.kubernetes.io/";
        /// Publish private addresses of shards, which only clients in your networks reach.
        private_addresses: bool = boolean(), "false";
    }
    query_log: QueryLog "query-log" "Query log" {
        /// Log one DNS request in N, selected at random, with its response: 1 logs all, 0 none. Records that the writer
        /// cannot keep up with are dropped and counted; responses never wait for it.
        sample: u32 = number("N", 0..=u32::MAX), "0", reload;
        /// The file to append the query log to, created with mode 0640. SIGHUP reopens it, so that it can be rotated.
        file: Option<PathBuf> = path("FILE"), unset("none: standard output"), reload;
        /// The format: `json`, one object per line; `text`, columns; `dnstap`, the messages of dnstap.info, to `file` or
        /// `socket`.
        format: LogFormat = words("FORMAT", value::LOG_FORMATS), "json", reload;
        /// The Unix socket of a dnstap receiver, instead of `file`, if `format` is `dnstap`. Signpost connects to it as soon
        /// as it exists, and again after a failure.
        socket: Option<PathBuf> = path("FILE"), unset("none"), reload;
        /// The client data to log: `full`, address and port; `network`, the IPv4 /24 or IPv6 /48; `none`.
        clients: LogClients = words("WHAT", value::LOG_CLIENTS), "full", reload;
    }
    admin: Admin "admin" "Admin endpoints" {
        /// The addresses that serve the dashboard, /livez, /readyz and /metrics, over plain HTTP unless `tls` is set.
        /// Port 0 selects a free port.
        listen: Vec<SocketAddr> = value::listen(), "127.0.0.1:9453", common;
        /// An additional host name or address of the admin endpoints. They answer requests for other names with status
        /// 421, except health checks; the certificate of `tls` is valid for it. localhost, IP addresses, the name of
        /// this host, and the names in the certificate are always accepted.
        name: Vec<String> = by("NAME", value::host).list(), unset("none");
        /// Serve the admin endpoints over HTTPS only. Without `tls-certificate`, they use the certificate of the API if
        /// this process has the role `api`, and otherwise one signed by a CA in `<data-dir>/admin-pki`.
        tls: Option<bool> = boolean(), unset("true with `tls-certificate`, otherwise false"), common;
        /// The certificate chain of the admin endpoints in PEM, the server's own certificate first. It is reloaded when
        /// the file changes, and by SIGHUP; after an error the former one stays in use. Requires `tls-key`.
        tls_certificate: Option<PathBuf> = path("FILE"), unset("none");
        /// The private key of `tls-certificate` in PEM.
        tls_key: Option<PathBuf> = path("FILE"), unset("none");
    }
    metrics: Metrics "metrics" "Metrics" {
        /// The number of zones with separate request counters in /metrics: the first zones that are served, and of zones
        /// that load together those with the shortest names. All others are counted as `other`.
        zones: usize = number("N", 0..=NUMBERS_MAX), "200";
        /// The number of names per shard to report that the wildcard of the shard answers but no Route has: those with
        /// the most queries. 0: do not count them.
        unrouted_names: usize = number("N", 0..=100), "20";
    }
    log: Log "log" "Log of the process" {
        /// `error`, `warn`, `info`, `debug` or `trace`, or directives such as `info,signpost::scheduler=debug`.
        level: String = by("LEVEL", telemetry::level), "info", reload, common;
        /// The format of log lines on standard error.
        format: Format = words("FORMAT", [("human", Format::Human), ("json", Format::Json)]), "human", common;
    }
}
