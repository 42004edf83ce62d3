//! The table of configuration keys: the one source of the file's keys, the flags, the environment variables, `--help` and
//! `docs/configuration.md`.

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
}

impl Shape {
    /// Whether there can be several values.
    pub fn is_list(self) -> bool {
        matches!(self, Shape::List { .. } | Shape::Paths)
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
        help: "Folder whose `*.zone` master files are served as they are. SIGHUP reads those that changed.",
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
        help: "Where /livez, /readyz and /metrics are served, over plain HTTP. Port 0 takes a free one.",
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
        help: "`on` or `off`. On, UDP replies of one length to one address and port that are ready at the same time are given to the \
               kernel as one, which parts them (UDP_SEGMENT). Clients see no difference. A thread whose kernel, device or \
               path refuses that sends singly from then on.",
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
        name: "domain",
        shape: Shape::Text,
        value_name: "NAME",
        default: "v3.rhcloud.com",
        reloads: false,
        help: "The platform's domain: the parent zone of all shards. The default is the one of examples/rhcloud; set your \
               own before you let anyone delegate to you.",
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
        name: "strategy",
        shape: Shape::Text,
        value_name: "NAME",
        default: "round-robin",
        reloads: false,
        help: "How the scheduler chooses among the Routers that can take a route: `round-robin`, `least-routes`, \
               `weighted` or `rendezvous`.",
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
        name: "server-id",
        shape: Shape::Text,
        value_name: "TEXT",
        default: "none",
        reloads: true,
        help: "What this name server calls itself to whoever asks (NSID, and TXT of id.server in class CH), at most 128 \
               octets; none: it does not say.",
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
            assert!(key.name.bytes().all(|octet| octet.is_ascii_lowercase() || octet == b'-'), "{}", key.name);
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
