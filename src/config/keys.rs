//! The table of configuration keys: the one source of the file's keys, the flags, the environment variables, `--help` and
//! `docs/configuration.md`.

use super::jwt;

/// How a key's values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One text.
    Text,
    /// One path. In the file it is relative to the file's folder, elsewhere to the working directory.
    Path,
    /// One whole number from 0 on.
    Count,
    /// Several texts: an array in the file, a flag that repeats. The separators part values inside one flag or variable.
    List {
        /// What parts the values of one flag.
        flag: &'static [char],
        /// What parts the values of the environment variable.
        env: &'static [char],
    },
    /// Several paths, as a list.
    Paths,
    /// Several things of many parts: in the file an array of tables, elsewhere `key=value` pairs parted by commas.
    Tables {
        /// Keys whose values are paths, unless they are URLs.
        paths: &'static [&'static str],
    },
}

impl Shape {
    /// Whether there can be several values.
    pub fn is_list(self) -> bool {
        matches!(self, Shape::List { .. } | Shape::Paths | Shape::Tables { .. })
    }

    /// What parts the values of one flag.
    pub fn flag_separators(self) -> &'static [char] {
        if let Shape::List { flag, .. } = self { flag } else { &[] }
    }

    /// What parts the values of the environment variable.
    pub fn env_separators(self) -> &'static [char] {
        match self {
            Shape::List { env, .. } => env,
            Shape::Paths => &[':'],
            Shape::Tables { .. } => &[' '],
            _ => &[],
        }
    }
}

/// One configuration key.
#[derive(Debug)]
pub struct Key {
    /// Its name in the file; with `--` before it the flag; in upper case after `SIGNPOST_` the variable.
    pub name: &'static str,
    /// How values are written.
    pub shape: Shape,
    /// What stands for a value in help, such as `ADDR:PORT`.
    pub value_name: &'static str,
    /// The default, for people.
    pub default: &'static str,
    /// Whether SIGHUP brings a change into effect; others need a restart.
    pub reloads: bool,
    /// What it does.
    pub help: &'static str,
}

impl Key {
    /// The flag, such as `--dns-listen`.
    pub fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    /// The environment variable, such as `SIGNPOST_DNS_LISTEN`.
    pub fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }
}

/// What every environment variable of ours begins with.
pub const VARIABLE_PREFIX: &str = "SIGNPOST_";

/// Lists of plain words: parted by commas in flags and variables.
const WORDS: Shape = Shape::List { flag: &[','], env: &[',', ' '] };

/// All keys, in the order in which people read of them.
pub static KEYS: &[Key] = &[
    Key {
        name: "roles",
        shape: WORDS,
        value_name: "LIST",
        default: "api,scheduler,dns,admin",
        reloads: false,
        help: "What this process does: `api` serves the API from a store in the data directory, `scheduler` places routes on \
               routers and keeps the ledgers, `dns` answers queries, `admin` serves health and metrics. Without `api`, \
               `scheduler` and `dns` reach the API by --kubeconfig; `dns` with only --zones needs no API.",
    },
    Key {
        name: "data-dir",
        shape: Shape::Path,
        value_name: "DIR",
        default: "signpost-data",
        reloads: false,
        help: "Folder of all that is kept: store, certificates, kubeconfigs, last-good zones. Made with mode 0700 if it is \
               not there. Not used by a process that only serves zone files.",
    },
    Key {
        name: "zones",
        shape: Shape::Path,
        value_name: "DIR",
        default: "none",
        reloads: false,
        help: "Folder whose `*.zone` master files are served as they are. Those that change are read again, by SIGHUP at once.",
    },
    Key {
        name: "manifests",
        shape: Shape::Paths,
        value_name: "PATH",
        default: "none",
        reloads: false,
        help: "YAML or JSON file of objects, or a folder of them, applied to the API at every start. Needs the role `api`.",
    },
    Key {
        name: "kubeconfig",
        shape: Shape::Path,
        value_name: "FILE",
        default: "none",
        reloads: false,
        help: "Where the API is and who we are there, for a process without the role `api`; such as the \
               `name-server.kubeconfig` that the API's process writes into its data directory.",
    },
    Key {
        name: "dns-listen",
        shape: WORDS,
        value_name: "ADDR:PORT",
        default: "127.0.0.1:5300",
        reloads: false,
        help: "Where queries are answered, over UDP and TCP. Port 0 takes a free one, the same for both.",
    },
    Key {
        name: "api-listen",
        shape: WORDS,
        value_name: "ADDR:PORT",
        default: "127.0.0.1:6453",
        reloads: false,
        help: "Where the API is served, over HTTPS. Port 0 takes a free one.",
    },
    Key {
        name: "admin-listen",
        shape: WORDS,
        value_name: "ADDR:PORT",
        default: "127.0.0.1:9453",
        reloads: false,
        help: "Where the dashboard, /livez, /readyz and /metrics are served, over plain HTTP unless `admin-tls` is on. Port 0 \
               takes a free one.",
    },
    Key {
        name: "admin-tls",
        shape: Shape::Text,
        value_name: "SWITCH",
        default: "on with `admin-tls-certificate`, else off",
        reloads: false,
        help: "`on`: the admin endpoints are served over HTTPS alone. Without a certificate given, with the API's where this \
               process has the role `api`, else with one that an authority in `<data-dir>/admin-pki` signs.",
    },
    Key {
        name: "admin-name",
        shape: WORDS,
        value_name: "NAME",
        default: "none",
        reloads: false,
        help: "A further host name or address by which browsers and Prometheus reach the admin endpoints. They answer requests \
               for other names with status 421, health checks excepted; the certificate of `admin-tls` is valid for it. \
               localhost, IP addresses, this host's name, and the names in the certificate are accepted without it.",
    },
    Key {
        name: "admin-tls-certificate",
        shape: Shape::Path,
        value_name: "FILE",
        default: "none",
        reloads: false,
        help: "Certificate chain in PEM that the admin endpoints show, the server's own first. It is read again when the file \
               is replaced, and by SIGHUP; a bad file leaves the former one in use. Needs `admin-tls-key`.",
    },
    Key {
        name: "admin-tls-key",
        shape: Shape::Path,
        value_name: "FILE",
        default: "none",
        reloads: false,
        help: "Private key in PEM of `admin-tls-certificate`.",
    },
    Key {
        name: "http-connections",
        shape: Shape::Count,
        value_name: "N",
        default: "8192",
        reloads: false,
        help: "Connections to the API at once, and as many to the admin endpoints, 1 to 1000000; at most an eighth of the \
               files that the system lets this process open. For a new connection beyond it the oldest one without a request \
               in flight is closed. An eighth is reserved for loopback and for the platform's own processes.",
    },
    Key {
        name: "http-connections-per-client",
        shape: Shape::Count,
        value_name: "N",
        default: "1024",
        reloads: false,
        help: "The same for one client: an IPv4 address, or a /56 of IPv6.",
    },
    Key {
        name: "http-idle-timeout",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "2m",
        reloads: false,
        help: "How long a connection to the API or to the admin endpoints may have no request in flight. A watch is a request \
               in flight. The first request of a connection must arrive within 10s, or within this time if it is shorter.",
    },
    Key {
        name: "dns-workers",
        shape: Shape::Count,
        value_name: "N",
        default: "0",
        reloads: false,
        help: "Threads that answer UDP queries on each address, 1 to 256; 0: one for each processor.",
    },
    Key {
        name: "dns-pin-workers",
        shape: Shape::Text,
        value_name: "SWITCH",
        default: "off",
        reloads: false,
        help: "`on` or `off`. On, the n-th UDP thread of each address stays on the n-th of the processors that this process may use. For a \
               machine that does nothing else; beside other work the system's scheduler knows better.",
    },
    Key {
        name: "dns-reply-trains",
        shape: Shape::Text,
        value_name: "SWITCH",
        default: "on",
        reloads: false,
        help: "`on` or `off`. On, four and more UDP replies of one length to one address and port that are ready at the \
               same time are given to the kernel as one, which parts them (UDP_SEGMENT). Clients see no difference. A \
               thread whose kernel, device or path refuses that sends singly from then on.",
    },
    Key {
        name: "dns-dont-fragment",
        shape: Shape::Text,
        value_name: "SWITCH",
        default: "on",
        reloads: false,
        help: "`on` or `off`. On, UDP replies over IPv4 carry the DF bit, as all IPv6 does in effect: they have at most 1,232 \
               octets, which fit everywhere, and the kernel need not number them for fragments. Turn it off if clients \
               are behind a way that takes fewer than 1,260 octets. Off or on, what is heard of a way's MTU is not believed.",
    },
    Key {
        name: "tcp-connections",
        shape: Shape::Count,
        value_name: "N",
        default: "8192",
        reloads: false,
        help: "TCP connections of the name server at once, 1 to 1000000; at most three quarters of the files that the system \
               lets this process open.",
    },
    Key {
        name: "tcp-connections-per-client",
        shape: Shape::Count,
        value_name: "N",
        default: "256",
        reloads: false,
        help: "The same of one client: an IPv4 address, or a /56 of IPv6.",
    },
    Key {
        name: "tcp-idle-timeout",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "10s",
        reloads: false,
        help: "How long a TCP connection may be silent between queries; a tenth of it while three quarters of the \
               connections are taken. Clients that ask are told (RFC 7828).",
    },
    Key {
        name: "tcp-read-timeout",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "5s",
        reloads: false,
        help: "How long a query may take from its first octet to its last.",
    },
    Key {
        name: "tcp-write-timeout",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "5s",
        reloads: false,
        help: "How long a client may take to read its answers.",
    },
    Key {
        name: "domain",
        shape: Shape::Text,
        value_name: "NAME",
        default: "none; with `manifests`, the zone above their Routers' `dns`",
        reloads: false,
        help: "The platform's domain: the parent zone of all shards. A process needs one, unless it serves zone files alone.",
    },
    Key {
        name: "former-domain",
        shape: Shape::Text,
        value_name: "NAME",
        default: "none",
        reloads: false,
        help: "The domain that the platform had before, where `domain` is changed on purpose: every name becomes another one, \
               and what is kept of the former domain goes. Without it a process does not begin on the objects of another \
               domain. All processes need it, for one start.",
    },
    Key {
        name: "nameserver",
        // An address list is parted by commas already, so several name servers are several flags.
        shape: Shape::List { flag: &[], env: &[' '] },
        value_name: "NAME=ADDR[,ADDR]",
        default: "ns1.<domain> with the addresses of --dns-listen",
        reloads: false,
        help: "A name server of the platform's zones and its public addresses; the first is the SOA's primary. A name \
               outside the domain may go without addresses. All processes need the same list.",
    },
    Key {
        name: "verify-names",
        shape: Shape::Text,
        value_name: "SWITCH",
        default: "on",
        reloads: false,
        help: "`on`: the listed name servers are asked for every route's names before `Resolvable` is said of it, and again from \
               time to time; `off`: nobody is asked, and nothing is said of that. See docs/live.md.",
    },
    Key {
        name: "verify-server",
        shape: WORDS,
        value_name: "[NAME=]ADDR[:PORT]",
        default: "the addresses of every `nameserver` at port 53; without any, `dns-listen`",
        reloads: false,
        help: "A name server that is asked whether names are live, at most 32; port 53 if none is given. For name servers that \
               answer at another address or port than resolvers are told.",
    },
    Key {
        name: "verify-timeout",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "1s",
        reloads: false,
        help: "How long a name server may take to answer one question before it is asked once more.",
    },
    Key {
        name: "verify-interval",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "30s",
        reloads: false,
        help: "About how long after a right answer a zone is checked again on a name server.",
    },
    Key {
        name: "verify-hosts",
        shape: Shape::Text,
        value_name: "SWITCH",
        default: "off",
        reloads: false,
        help: "`on`: a route gets a host of its own only after the host's own name servers were found to have the TXT record \
               that the route's status asks for; see docs/ownership.md. All processes with the role `scheduler` need the same.",
    },
    Key {
        name: "verify-hosts-interval",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "1h",
        reloads: false,
        help: "About how long after it was found the record of a host is looked for again.",
    },
    Key {
        name: "verify-hosts-grace",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "7d",
        reloads: false,
        help: "How long a host stays admitted after its record was found last.",
    },
    Key {
        name: "verify-hosts-private-addresses",
        shape: Shape::Text,
        value_name: "SWITCH",
        default: "off",
        reloads: false,
        help: "`on`: for `verify-hosts`, name servers are queried at private addresses and at those of this machine as well. The \
               owners of hosts choose these addresses, so turn it on only where they may reach that network anyway.",
    },
    Key {
        name: "verify-resolver",
        shape: WORDS,
        value_name: "ADDR[:PORT]",
        default: "those of /etc/resolv.conf",
        reloads: false,
        help: "Resolver that finds the name servers of hosts, for `verify-hosts`; at most 8, queried in this order.",
    },
    Key {
        name: "lease-duration",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "15s",
        reloads: false,
        help: "How long after the last renewal of a leader that died another scheduler takes over, in whole seconds from 3s to 5m. \
               The leader renews five times in that time, and stops leading after two thirds without an answer of the API. \
               One that is stopped hands over at once.",
    },
    Key {
        name: "host-resolvers",
        shape: WORDS,
        value_name: "ADDR[:PORT]",
        default: "none",
        reloads: false,
        help: "Resolvers that are asked whether the custom hosts of routes point here, for the condition `HostPointsHere`; at most \
               8, asked in this order. `system` stands for those of /etc/resolv.conf. Without any, nobody is asked, and the \
               condition is `Unknown`. Each host is asked for again at least every 5 to 7 minutes.",
    },
    Key {
        name: "strategy",
        shape: Shape::Text,
        value_name: "NAME",
        default: "round-robin",
        reloads: true,
        help: "How the scheduler chooses among the Routers that can take a route: `round-robin`, `least-routes`, \
               `weighted`, `rendezvous`, or `webhook`, which asks `webhook-url`. Routes that have a Router keep it when this \
               changes.",
    },
    Key {
        name: "webhook-url",
        shape: Shape::Text,
        value_name: "URL",
        default: "none",
        reloads: true,
        help: "Endpoint of your own that the strategy `webhook` asks which Router a route shall have; see docs/scheduling.md for \
               what it is asked and answers. `https`, or `http` at a loopback address; for other addresses see \
               `webhook-allow-http`.",
    },
    Key {
        name: "webhook-timeout",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "2s",
        reloads: true,
        help: "How long the webhook may take to answer. It is asked twice at most.",
    },
    Key {
        name: "webhook-ca",
        shape: Shape::Path,
        value_name: "FILE",
        default: "none",
        reloads: true,
        help: "Authorities in PEM to trust for `webhook-url` instead of those of the system, or the very certificate that it shows. \
               SIGHUP reads it again.",
    },
    Key {
        name: "webhook-token-file",
        shape: Shape::Path,
        value_name: "FILE",
        default: "none",
        reloads: true,
        help: "File of a token that each question to `webhook-url` carries, as `Authorization: Bearer TOKEN`. It is read for each \
               question, so a new token needs no reload.",
    },
    Key {
        name: "webhook-allow-http",
        shape: Shape::Text,
        value_name: "SWITCH",
        default: "off",
        reloads: true,
        help: "`on`: `webhook-url` may be plain `http` at another machine. Others on the network can then read the questions and \
               the token, and give answers of their own.",
    },
    Key {
        name: "webhook-fallback",
        shape: Shape::Text,
        value_name: "NAME",
        default: "round-robin",
        reloads: true,
        help: "The strategy that decides when the webhook gives no answer to go by: `round-robin`, `least-routes`, `weighted` \
               or `rendezvous`. The explanation of the route says why it did.",
    },
    Key {
        name: "drain-rate",
        shape: Shape::Count,
        value_name: "N",
        default: "10",
        reloads: false,
        help: "Routes that are moved in a second from Routers whose state is `draining`, all of them together, 1 to 10000. Each \
               move changes the name of a route and sends its users to another Router.",
    },
    Key {
        name: "trail-minimum",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "7d",
        reloads: false,
        help: "How long the former name of a route that was moved leads to its new one, such as `30d`, `12h`, `15m` or `90s`; \
               longer if caches may hold the former addresses for longer. Until then the Router that it left is not deleted.",
    },
    Key {
        name: "trail-quiet",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "1d",
        reloads: false,
        help: "How long the former name of a route that was moved must not have been asked for before it ends, such as `12h` or \
               `30m`: each time that it is asked for keeps it for so long, but not beyond `trail-maximum`. `0s`: it ends, asked \
               for or not. Schedulers and name servers need the same.",
    },
    Key {
        name: "trail-maximum",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "90d",
        reloads: false,
        help: "How long after the move a former name ends that is still asked for, so that a program which nobody mends does \
               not hold it, and the Router, for ever. It never ends before its time by `trail-minimum`.",
    },
    Key {
        name: "name-quarantine",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "30d",
        reloads: false,
        help: "How long a released label is kept for a route of the same namespace and name, such as `30d`, `12h`, `15m` or \
               `90s`.",
    },
    Key {
        name: "name-quarantine-max",
        shape: Shape::Count,
        value_name: "N",
        default: "10000",
        reloads: false,
        help: "How many labels may be in quarantine for a namespace, from 1 to 1000000. Routes of one that has as many and need a \
               new label wait, with the reason `NamesInQuarantine`, until one is free: else whoever makes and deletes Routes \
               of ever new names would fill the store. As many hosts may be reserved for it (`host-reservation`).",
    },
    Key {
        name: "host-reservation",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "10m",
        reloads: false,
        help: "How long the host of a deleted Route is kept for a Route of the same namespace and name, such as `10m` or `1h`. \
               Routes that wait for the host have the reason `HostReserved` meanwhile. `0s`: the next of them gets it at once.",
    },
    Key {
        name: "reserved-labels",
        shape: WORDS,
        value_name: "LIST",
        default: "routes,localhost,wpad,isatap,autodiscover,mta-sts,login,admin",
        reloads: false,
        help: "Labels that no Route gets, instead of the default list; `routes` is always one of them. The API refuses them as a \
               `subdomain`; a Route whose namespace and name make one gets a label with a hash. The API servers and the \
               schedulers need the same list, at most 1000 labels.",
    },
    Key {
        name: "tenant-subdomains",
        shape: Shape::Text,
        value_name: "SWITCH",
        default: "on",
        reloads: false,
        help: "`off`: only administrators may set `subdomain` of a Route; the API refuses it from everyone else. Routes that have \
               one keep it.",
    },
    Key {
        name: "object-size",
        shape: Shape::Text,
        value_name: "SIZE",
        default: "64Ki",
        reloads: false,
        help: "The most bytes of the stored JSON of an object in a namespace, field sets included, 16Ki to 512Ki. The API refuses a \
               larger one with 413. The platform's own processes may write twice as much, for the status. A Router, a Zone or \
               another object without a namespace may have 512Ki.",
    },
    Key {
        name: "namespace-routes",
        shape: Shape::Count,
        value_name: "N",
        default: "10000",
        reloads: false,
        help: "The most Routes of a namespace, whether or not they have a Router. The API refuses further ones with 403. The \
               annotation `signpost.dev/max-routes` of a Namespace sets another number.",
    },
    Key {
        name: "namespace-route-bytes",
        shape: Shape::Text,
        value_name: "SIZE",
        default: "32Mi",
        reloads: false,
        help: "The most bytes of the Routes of a namespace together, status and field sets included: a usual Route has 3Ki. The \
               annotation `signpost.dev/max-route-bytes` of a Namespace sets another number.",
    },
    Key {
        name: "namespace-events",
        shape: Shape::Count,
        value_name: "N",
        default: "5000",
        reloads: false,
        help: "The most Events of a namespace. The platform's own processes may write twice as many, and drop further ones. The \
               annotation `signpost.dev/max-events` of a Namespace sets another number.",
    },
    Key {
        name: "namespace-event-bytes",
        shape: Shape::Text,
        value_name: "SIZE",
        default: "8Mi",
        reloads: false,
        help: "The most bytes of the Events of a namespace together. The platform's own processes may write twice as much. The \
               annotation `signpost.dev/max-event-bytes` of a Namespace sets another number.",
    },
    Key {
        name: "server-id",
        shape: Shape::Text,
        value_name: "TEXT",
        default: "none",
        reloads: true,
        help: "What this name server calls itself to whoever asks (NSID, and TXT of id.server in class CH), at most 128 \
               octets; none: it does not say.",
    },
    Key {
        name: "server-version",
        shape: Shape::Text,
        value_name: "TEXT",
        default: "none",
        reloads: true,
        help: "What this name server tells of its version to whoever asks for TXT of version.bind or version.server in class CH \
               (RFC 4892), at most 128 octets; none: it refuses to say.",
    },
    Key {
        name: "dns-udp-payload",
        shape: Shape::Count,
        value_name: "OCTETS",
        default: "1232",
        reloads: true,
        help: "Largest response over UDP, whatever the client allows, and what the server says of itself in EDNS: 512 to 4096. \
               1232 is never fragmented on its way; more can be, and lets a forger of addresses send more to others.",
    },
    Key {
        name: "dns-cookies",
        shape: Shape::Text,
        value_name: "MODE",
        default: "on",
        reloads: true,
        help: "`on`: a query with a DNS cookie (RFC 7873) gets one that proves the client's address from then on; `off`: \
               cookies are ignored; `require`: a datagram with a client's cookie but no good one of ours is answered \
               BADCOOKIE.",
    },
    Key {
        name: "dns-cookie-secret",
        shape: WORDS,
        value_name: "HEX",
        default: "drawn at start and every day",
        reloads: true,
        help: "Secret of 32 hexadecimal digits that cookies are made from; all name servers behind one address need the \
               same. The first makes cookies, all verify them; at most 4. A flag shows in the list of processes: better the file or \
               the variable.",
    },
    Key {
        name: "dns-rate-limit",
        shape: Shape::Count,
        value_name: "N",
        default: "0",
        reloads: true,
        help: "Answers of one kind that a network of clients gets in a second over UDP, from each worker; 0: no limit. What \
               comes over TCP or with a good cookie is not limited.",
    },
    Key {
        name: "dns-rate-limit-mode",
        shape: Shape::Text,
        value_name: "MODE",
        default: "enforce",
        reloads: true,
        help: "`enforce` the rate limit, or `watch`: only count what would be over it.",
    },
    Key {
        name: "dns-rate-limit-window",
        shape: Shape::Count,
        value_name: "SECONDS",
        default: "5",
        reloads: true,
        help: "How many seconds' worth of answers a network that was silent may have at once, 1 to 3600.",
    },
    Key {
        name: "dns-rate-limit-slip",
        shape: Shape::Count,
        value_name: "N",
        default: "1",
        reloads: true,
        help: "Each N-th answer over the limit is replaced by a truncated one, with which a real client turns to TCP, or is \
               sent as a bare error if it was an error; the others are dropped. 1: every one; 0: all are dropped; at most 1000.",
    },
    Key {
        name: "dns-rate-limit-ipv4-prefix",
        shape: Shape::Count,
        value_name: "BITS",
        default: "24",
        reloads: true,
        help: "Bits of an IPv4 address that make a network of clients, 1 to 32.",
    },
    Key {
        name: "dns-rate-limit-ipv6-prefix",
        shape: Shape::Count,
        value_name: "BITS",
        default: "56",
        reloads: true,
        help: "Bits of an IPv6 address that make a network of clients, 1 to 128.",
    },
    Key {
        name: "dns-rate-limit-exempt",
        shape: WORDS,
        value_name: "PREFIX",
        default: "none",
        reloads: true,
        help: "Clients without rate limit, such as `192.0.2.0/24` or `2001:db8::53`; at most 256.",
    },
    Key {
        name: "query-log",
        shape: Shape::Count,
        value_name: "N",
        default: "0",
        reloads: true,
        help: "Logs one DNS request in N, drawn at random, with its answer: 1 logs every one, 0 none. What the writer cannot \
               keep up with is left out and counted; answers never wait for it.",
    },
    Key {
        name: "query-log-file",
        shape: Shape::Path,
        value_name: "FILE",
        default: "none",
        reloads: true,
        help: "Where the query log is appended, made with mode 0640 if it is not there; none: standard output. SIGHUP opens \
               it anew, so that it can be moved away first.",
    },
    Key {
        name: "query-log-format",
        shape: Shape::Text,
        value_name: "FORMAT",
        default: "json",
        reloads: true,
        help: "`json`, one object a line, or `text`, one line of columns.",
    },
    Key {
        name: "query-log-clients",
        shape: Shape::Text,
        value_name: "WHAT",
        default: "full",
        reloads: true,
        help: "What the query log tells of clients: `full`, address and port; `network`, only the /24 of an IPv4 address or the \
               /48 of an IPv6 address; `none`.",
    },
    Key {
        name: "brake-share",
        shape: Shape::Count,
        value_name: "PERCENT",
        default: "25",
        reloads: true,
        help: "How many of a hundred RouteBindings may be missing at once from the API's list, or deleted within a minute, before \
               a name server holds them: it serves them on until someone approves the loss (`signpost brake`). From 1 to 100; \
               with 100 only a list that has none of them is held. Of Routers, each that is missing from a list is held.",
    },
    Key {
        name: "stale-after",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "0s",
        reloads: true,
        help: "After how long without a word from the API a name server marks its answers from the platform's zones as possibly \
               stale (EDE 3, RFC 8914), such as `10m`; `0s`: never. It goes on answering in any case.",
    },
    Key {
        name: "api-silence",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "150s",
        reloads: false,
        help: "How long the API may say nothing to a process without the role `api` while an answer, an event or a bookmark is due, \
               before its connection is taken for dead and another is made; from `1s` to `150s`. The API sends a bookmark a minute: \
               with less than that, idle watches are opened anew for nothing.",
    },
    Key {
        name: "health-probes",
        shape: Shape::Count,
        value_name: "N",
        default: "256",
        reloads: true,
        help: "Probes of addresses that the leading controller has under way at a time, from 1 to 10000. Routers share these \
               places, so that one whose addresses hang delays no other's probes. With too few, probes come late.",
    },
    Key {
        name: "health-panic-threshold",
        shape: Shape::Count,
        value_name: "PERCENT",
        default: "50",
        reloads: true,
        help: "How many of a hundred active addresses of a Router with a health check must be healthy for health to count; with \
               fewer, all are answered. From 0 to 100. A Router's `healthCheck.panicThreshold` goes before.",
    },
    Key {
        name: "metrics-zones",
        shape: Shape::Count,
        value_name: "N",
        default: "200",
        reloads: false,
        help: "Zones whose requests /metrics counts one by one, at most 10000: the first that are served, of those that come \
               together the ones with the shortest names. All others are counted together as `other`.",
    },
    Key {
        name: "metrics-unbound-names",
        shape: Shape::Count,
        value_name: "N",
        default: "20",
        reloads: false,
        help: "Of the names that a shard's wildcard answers though no Route has them, how many are told at /unbound-names for \
               each shard: those asked most, at most 100. With 0 they are not counted at all.",
    },
    Key {
        name: "api-name",
        shape: WORDS,
        value_name: "NAME",
        default: "none",
        reloads: false,
        help: "A further host name or address by which clients reach the API, for its certificate. localhost, the loopback \
               addresses, the addresses listened on and this host's name are in it anyway. The first one given stands in \
               the kubeconfigs.",
    },
    Key {
        name: "api-tls-certificate",
        shape: Shape::Path,
        value_name: "FILE",
        default: "none",
        reloads: false,
        help: "Certificate chain in PEM that the API serves instead of its self-made one, the server's own first. It is read \
               again when the file is replaced, and by SIGHUP; a bad file leaves the former one in use. Needs \
               `api-tls-key`.",
    },
    Key {
        name: "api-tls-key",
        shape: Shape::Path,
        value_name: "FILE",
        default: "none",
        reloads: false,
        help: "Private key in PEM of `api-tls-certificate`.",
    },
    Key {
        name: "api-tls-ca",
        shape: Shape::Path,
        value_name: "FILE",
        default: "none",
        reloads: false,
        help: "Authorities in PEM that clients should trust for `api-tls-certificate`; they stand in the kubeconfigs. None: \
               clients trust what their system trusts.",
    },
    Key {
        name: "name-server-secret",
        shape: Shape::Text,
        value_name: "NAMESPACE/NAME",
        default: "none",
        reloads: false,
        help: "In a pod with the role `api`: the Secret of the Kubernetes cluster that this process keeps equal to \
               `name-server.kubeconfig` in its data directory, under the key `kubeconfig`, for the pods of name servers. The \
               pod's service account needs the verbs `create` and `patch` on it.",
    },
    Key {
        name: "jwt-issuer",
        shape: Shape::Tables { paths: &jwt::PATHS },
        value_name: "KEY=VALUE,...",
        default: "none",
        reloads: false,
        help: "An identity provider whose tokens (JWT) the API takes: `issuer` (to the letter), `audience` (repeats), `jwks` \
               (its keys: a file, or an https URL), and if wanted `ca` (authorities for that URL), `algorithm` (repeats; \
               RS, PS, ES and EdDSA by default), `username-claim` (`sub`), `username-prefix` and `groups-prefix` (`ISSUER#`), \
               `groups-claim` (`groups`), `leeway` (`30s`). Groups give the rights: with `groups-prefix=signpost:` the \
               provider's group `viewers` is the role of viewers.",
    },
    Key {
        name: "audit",
        shape: Shape::Text,
        value_name: "WHAT",
        default: "writes",
        reloads: false,
        help: "What is written to the audit log of the API: `writes` (and refusals), `all` (reads as well) or `off`.",
    },
    Key {
        name: "audit-log",
        shape: Shape::Path,
        value_name: "FILE",
        default: "<data-dir>/audit.log",
        reloads: false,
        help: "The audit log, a JSON object (`audit.k8s.io/v1` Event) a line, mode 0600. SIGHUP opens it anew.",
    },
    Key {
        name: "audit-log-size",
        shape: Shape::Count,
        value_name: "MIB",
        default: "64",
        reloads: false,
        help: "Size in MiB at which the audit log is turned over (`audit.log.1` and so on), 1 to 65536.",
    },
    Key {
        name: "audit-log-files",
        shape: Shape::Count,
        value_name: "N",
        default: "4",
        reloads: false,
        help: "How many files of the audit log are kept, the newest included, 1 to 1000. In the oldest one each user has an equal \
               share, so that one user cannot push the events of others out.",
    },
    Key {
        name: "trace-endpoint",
        shape: Shape::Text,
        value_name: "URL",
        default: "none",
        reloads: false,
        help: "OpenTelemetry collector that gets the spans of each Route's walk from its creation until its name is proven, by \
               OTLP over HTTP, such as `http://127.0.0.1:4318` (then `/v1/traces` is added). None: there are no spans. See \
               docs/tracing.md.",
    },
    Key {
        name: "trace-headers",
        shape: Shape::Path,
        value_name: "FILE",
        default: "none",
        reloads: false,
        help: "File of headers for `trace-endpoint`, `Name: value` a line, such as a token of the collector's.",
    },
    Key {
        name: "trace-ca",
        shape: Shape::Path,
        value_name: "FILE",
        default: "none",
        reloads: false,
        help: "Authorities in PEM to trust for `trace-endpoint` instead of those of the system.",
    },
    Key {
        name: "trace-share",
        shape: Shape::Count,
        value_name: "PERCENT",
        default: "100",
        reloads: false,
        help: "Of how many of a hundred Routes there are spans, 1 to 100. Which ones follows from their uids, so all processes with \
               the same share take the same ones.",
    },
    Key {
        name: "trace-service",
        shape: Shape::Text,
        value_name: "NAME",
        default: "signpost",
        reloads: false,
        help: "What this service is called in traces (`service.name`).",
    },
    Key {
        name: "lame-duck",
        shape: Shape::Text,
        value_name: "DURATION",
        default: "0s",
        reloads: true,
        help: "How long the process goes on answering after SIGTERM or SIGINT, at most 10m: /readyz says 503 at once, so that \
               balancers and routing turn to others before it ends. A second signal ends it without waiting.",
    },
    Key {
        name: "log-level",
        shape: Shape::Text,
        value_name: "LEVEL",
        default: "info",
        reloads: true,
        help: "`error`, `warn`, `info`, `debug` or `trace`, or directives such as `info,signpost::scheduler=debug`.",
    },
    Key {
        name: "log-format",
        shape: Shape::Text,
        value_name: "FORMAT",
        default: "human",
        reloads: false,
        help: "`human` or `json`, one line an event, on standard error.",
    },
];

/// The key of that name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known name that is most like `unknown`, if one is like enough: at most a third of its letters differ.
pub fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (edit_distance(unknown, name), name))
        .filter(|(distance, name)| *distance <= name.len().max(unknown.len()).div_ceil(3))
        .min()
        .map(|(_, name)| name)
}

/// How many letters must be put in, left out or replaced to make `b` of `a` (Levenshtein). Dashes, underscores and dots
/// count as the same letter, since people mix them up.
fn edit_distance(a: &str, b: &str) -> usize {
    let same = |octet: u8| if matches!(octet, b'_' | b'.') { b'-' } else { octet.to_ascii_lowercase() };
    let b: Vec<u8> = b.bytes().map(same).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().map(same).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_plain() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..at].iter().all(|other| other.name != key.name), "{} twice", key.name);
            assert!(key.name.bytes().all(|octet| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{}", key.name);
            assert!(key.help.ends_with('.'), "{}: {}", key.name, key.help);
        }
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        let names = || KEYS.iter().map(|key| key.name);
        for (unknown, suggestion) in [
            ("dns_listen", Some("dns-listen")),
            ("dns.listen", Some("dns-listen")),
            ("dns-listn", Some("dns-listen")),
            ("nameservers", Some("nameserver")),
            ("datadir", Some("data-dir")),
            ("colour", None),
        ] {
            assert_eq!(nearest(unknown, names()), suggestion, "{unknown}");
        }
    }
}
