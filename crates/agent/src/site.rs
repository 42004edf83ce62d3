//! The model of what one router instance serves: hosts, paths, servers, TLS and certificates. Pure.
//!
//! Every text in a [`Site`] that a tenant can choose is a [`Host`] or a [`PathPrefix`], whose characters have no meaning in the
//! configuration of a proxy. A renderer can therefore write them without escapes.
//!
//! The matching rules are those that OpenShift and Gateway API document:
//! an exact host wins over a wildcard, a longer wildcard over a shorter one, and a longer path prefix over a shorter one.
//! The host is decided first: a request for an exact host never falls back to a wildcard.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use signpost_types::paths;
use signpost_types::traffic::{self, Network};
use signpost_types::v1alpha1::route::Termination;
use signpost_types::v1alpha1::traffic::ClientAddress;

/// The longest host, as in DNS.
const HOST_BYTES_MAX: usize = 253;
/// The longest path prefix; the limit of `spec.path` of a Route.
const PATH_BYTES_MAX: usize = 1_024;
/// The most labels that a wildcard matches. HAProxy looks them up one by one.
pub const WILDCARD_DEPTH_MAX: usize = 16;
/// The largest weight of a server; the limit of HAProxy.
pub const WEIGHT_MAX: u16 = 256;

/// The hosts, Routes and certificates of one router instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The virtual hosts. A Route with passthrough has the path `/` of its host.
    pub hosts: BTreeMap<Host, Paths>,
    /// The Routes that the hosts refer to.
    pub routes: BTreeMap<RouteKey, Upstream>,
    /// Whether the proxy sends a line about each request to the agent, for the access log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_access_log: bool,
    /// The certificates by host. They are read from files at each start, and never stored with the Site.
    #[serde(skip)]
    pub certificates: BTreeMap<Host, Certificate>,
    /// The settings of the Router.
    #[serde(default)]
    pub router: RouterSettings,
    /// The custom hosts for which the platform gets certificates. The proxy answers HTTP challenges of certificate authorities for those
    /// without an asterisk, if it has the thumbprint.
    #[serde(default)]
    pub issued: BTreeSet<Host>,
    /// The thumbprint of the platform's ACME account.
    #[serde(default)]
    pub thumbprint: Option<Thumbprint>,
}

/// The settings of a Router for its proxies that are not those of a Route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterSettings {
    /// The networks of proxies in front of the Router's instances.
    pub trusted_proxies: Vec<Network>,
    pub client_address: ClientAddress,
    /// The time for which the connection of a client can be idle between two requests; `None`: that of the agent.
    pub keep_alive_seconds: Option<u32>,
}

/// The Routes of a host by path prefix.
pub type Paths = BTreeMap<PathPrefix, RouteKey>;

/// The possible differences between two Sites, apart from certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The Routes whose [`Upstream`] may differ.
    pub routes: BTreeSet<RouteKey>,
    /// The hosts whose paths, or one of whose Routes, may differ.
    pub hosts: BTreeSet<Host>,
}

/// The servers of a Route, and its treatment of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Upstream {
    /// The UID of the Route. It stays secret: the identifiers in [`signpost_types::probe`] are hashes of it.
    pub uid: String,
    /// The end of TLS; `None`: the Route is served over plain HTTP only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination: Option<Termination>,
    /// The response to plain HTTP requests of a Route with TLS.
    #[serde(default)]
    pub insecure: Insecure,
    /// The endpoints in ascending order, without duplicates. With none of a weight above 0, requests get a 503.
    pub servers: Vec<Server>,
    /// The settings for the traffic, within the maxima of the Router.
    #[serde(default)]
    pub settings: traffic::Settings,
}

/// The response to a plain HTTP request for a host with TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Insecure {
    /// A 404.
    #[default]
    None,
    /// The response that a request over TLS gets.
    Allow,
    /// A redirect to `https`.
    Redirect,
}

/// The treatment of a request, by the scheme over which it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send it to a server.
    Serve,
    /// Redirect the client to `https`.
    Redirect,
    /// Respond that there is no such page.
    Refuse,
}

impl Action {
    /// Returns the word in maps and configurations.
    pub fn word(self) -> &'static str {
        match self {
            Action::Serve => "serve",
            Action::Redirect => "redirect",
            Action::Refuse => "refuse",
        }
    }
}

impl Upstream {
    /// Returns the treatment of plain HTTP requests.
    pub fn over_http(&self) -> Action {
        match (self.termination, self.insecure) {
            (None, _) => Action::Serve,
            (_, Insecure::Redirect) => Action::Redirect,
            (Some(Termination::Passthrough), _) | (_, Insecure::None) => Action::Refuse,
            (_, Insecure::Allow) => Action::Serve,
        }
    }

    /// Returns the treatment of requests over TLS that ends at the router.
    pub fn over_https(&self) -> Action {
        match self.termination {
            Some(Termination::Edge | Termination::Reencrypt) => Action::Serve,
            Some(Termination::Passthrough) | None => Action::Refuse,
        }
    }

    /// Returns the number of endpoints that can get requests.
    pub fn endpoints(&self) -> usize {
        self.servers.iter().filter(|server| server.weight > 0).count()
    }

    /// Returns whether TLS connections go to the application without decryption.
    pub fn is_passthrough(&self) -> bool {
        self.termination == Some(Termination::Passthrough)
    }

    /// Returns whether any server takes requests.
    pub fn is_available(&self) -> bool {
        self.servers.iter().any(|server| server.weight > 0)
    }
}

/// An endpoint of an application.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Server {
    /// Address and port.
    pub address: SocketAddr,
    /// The name in the certificate of the endpoint, with [`Termination::Reencrypt`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_name: Option<Host>,
    /// The share of requests in relation to the other servers; at most [`WEIGHT_MAX`]. With 0 it gets none.
    pub weight: u16,
}

/// A certificate for clients of the router.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Certificate {
    /// The certificate, its chain and its private key in PEM. Shared, so that equal ones are often compared by address.
    pub pem: Arc<str>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Certificate({} bytes)", self.pem.len())
    }
}

/// A part of a Site that can be left out if a proxy rejects it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Route(RouteKey),
    Certificate(Host),
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Route(route) => write!(formatter, "Route {route}"),
            Part::Certificate(host) => write!(formatter, "the certificate of {host}"),
        }
    }
}

impl Site {
    /// Returns the virtual host that serves a host, with the name under which it is in `hosts`: the host itself, or otherwise the
    /// longest wildcard above it. The host is in lower case, without a port or a dot at the end.
    pub fn virtual_host(&self, host: &str) -> Option<(&Host, &Paths)> {
        let suffixes = host.match_indices('.').map(|(at, _)| format!("*{}", &host[at..])).take(WILDCARD_DEPTH_MAX);
        std::iter::once(host.to_owned()).chain(suffixes).find_map(|name| self.hosts.get_key_value(name.as_str()))
    }

    /// Returns the Route that serves a request, by its host (see [`Self::virtual_host`]) and path.
    pub fn route(&self, host: &str, path: &str) -> Option<&RouteKey> {
        let (_, paths) = self.virtual_host(host)?;
        let matching = paths.iter().filter(|(prefix, _)| prefix.matches(path));
        matching.max_by_key(|(prefix, _)| prefix.as_str().len()).map(|(_, route)| route)
    }

    /// Returns whether the proxy answers HTTP challenges for a host. A host with an asterisk is not proven by them.
    pub fn answers_challenges(&self, host: &Host) -> bool {
        !host.is_wildcard() && self.issued.contains(host)
    }

    /// Returns the Route that receives the TLS connections for a host without decryption.
    pub fn passthrough<'a>(&self, paths: &'a Paths) -> Option<&'a RouteKey> {
        paths.get("/").filter(|route| self.routes.get(*route).is_some_and(Upstream::is_passthrough))
    }

    pub fn parts(&self) -> Vec<Part> {
        let routes = self.routes.keys().cloned().map(Part::Route);
        routes.chain(self.certificates.keys().cloned().map(Part::Certificate)).collect()
    }

    /// Returns the Site with only the given parts; a host without any path is left out, too.
    pub fn only(&self, parts: &BTreeSet<Part>) -> Site {
        let has = |route: &RouteKey| parts.contains(&Part::Route(route.clone()));
        let hosts = self.hosts.iter().map(|(host, paths)| {
            let paths = paths.iter().filter(|(_, route)| has(route));
            (host.clone(), paths.map(|(path, route)| (path.clone(), route.clone())).collect::<Paths>())
        });
        let routes = self.routes.iter().filter(|(route, _)| has(route));
        let certificates = self.certificates.iter();
        let certificates = certificates.filter(|(host, _)| parts.contains(&Part::Certificate((*host).clone())));
        Site {
            hosts: hosts.filter(|(_, paths)| !paths.is_empty()).collect(),
            routes: routes.map(|(key, route)| (key.clone(), route.clone())).collect(),
            certificates: certificates.map(|(host, certificate)| (host.clone(), certificate.clone())).collect(),
            has_access_log: self.has_access_log,
            router: self.router.clone(),
            issued: self.issued.clone(),
            thumbprint: self.thumbprint.clone(),
        }
    }

    /// Returns a number that changes when the part changes.
    pub fn fingerprint(&self, part: &Part) -> u64 {
        let mut hasher = DefaultHasher::new();
        match part {
            Part::Route(route) => {
                self.routes.get(route).hash(&mut hasher);
                for (host, paths) in &self.hosts {
                    for (path, _) in paths.iter().filter(|(_, at)| *at == route) {
                        (host, path).hash(&mut hasher);
                    }
                }
            }
            Part::Certificate(host) => self.certificates.get(host).hash(&mut hasher),
        }
        hasher.finish()
    }
}

/// A text that cannot be part of a Site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {kind}")]
pub struct Invalid {
    kind: &'static str,
    text: String,
}

/// Defines a text that has been checked, with its conversions.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $valid:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;
            fn try_from(text: String) -> Result<$name, Invalid> {
                if $valid(&text) { Ok($name(text)) } else { Err(Invalid { kind: $kind, text }) }
            }
        }

        impl std::str::FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<$name, Invalid> {
                $name::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> String {
                text.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

checked_text!(
    /// A host such as `www.example.org`, or a wildcard such as `*.example.org`, which matches every host below it. It consists of
    /// lower-case letters, digits, `-` and `_`, and has no dot at the end.
    Host,
    "host",
    is_host
);
checked_text!(
    /// A path such as `/shop`, which matches the paths `/shop` and `/shop/…`, but not `/shopping`. It is one that
    /// [`signpost_types::paths`] allows, and has no `/` at the end unless it is `/`.
    PathPrefix,
    "path prefix",
    is_path_prefix
);
checked_text!(
    /// A Route as `namespace/name`.
    RouteKey,
    "Route",
    is_route_key
);

checked_text!(
    /// The thumbprint of an ACME account's key (RFC 8555 §8.1): 32 octets in Base64 for URLs.
    Thumbprint,
    "thumbprint",
    is_thumbprint
);

impl Host {
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }
}

impl PathPrefix {
    pub fn root() -> PathPrefix {
        PathPrefix(paths::ROOT.to_owned())
    }

    /// Returns whether a path begins with this prefix, at the end of an element.
    pub fn matches(&self, path: &str) -> bool {
        let prefix = self.0.trim_end_matches('/');
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

fn is_host(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(allowed)
    };
    text.len() <= HOST_BYTES_MAX && name.split('.').all(is_label)
}

fn is_path_prefix(text: &str) -> bool {
    text.len() <= PATH_BYTES_MAX && paths::check(text).is_ok() && paths::prefix(Some(text)) == text
}

fn is_route_key(text: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    text.split_once('/').is_some_and(|(namespace, name)| is_name(namespace) && is_name(name))
}

fn is_thumbprint(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a Site with a Route for each pair of host and path; the Route has the pair's text as its name.
    fn site(pairs: &[(&str, &str)]) -> Site {
        let mut site = Site::default();
        for (at, (host, path)) in pairs.iter().enumerate() {
            let route: RouteKey = format!("test/r{at}").parse().expect("a Route");
            site.routes.insert(route.clone(), Upstream::default());
            let host = site.hosts.entry(host.parse().expect("a host")).or_default();
            host.insert(path.parse().expect("a path"), route);
        }
        site
    }

    #[test]
    fn matching() {
        let site = site(&[
            ("a.example", "/"),         // 0
            ("a.example", "/shop"),     // 1
            ("a.example", "/shop/new"), // 2
            ("*.w.example", "/"),       // 3
            ("*.x.w.example", "/"),     // 4
            ("b.w.example", "/only"),   // 5
        ]);
        let cases = [
            ("a.example", "/", Some(0)),
            ("a.example", "/shop", Some(1)),
            ("a.example", "/shop/", Some(1)),
            ("a.example", "/shop/cart", Some(1)),
            // On element boundaries: Gateway API, PathPrefix.
            ("a.example", "/shopping", Some(0)),
            ("a.example", "/shop/new", Some(2)),
            ("a.example", "/shop/newer", Some(1)),
            ("a.example", "/SHOP", Some(0)),
            ("x.a.example", "/", None),
            ("example", "/", None),
            // A wildcard matches one label or more.
            ("c.w.example", "/", Some(3)),
            ("d.c.w.example", "/", Some(3)),
            ("w.example", "/", None),
            ("c.x.w.example", "/", Some(4)),
            ("x.w.example", "/", Some(3)),
            // The exact host owns all paths of its name.
            ("b.w.example", "/only/x", Some(5)),
            ("b.w.example", "/", None),
            ("c.b.w.example", "/", Some(3)),
        ];
        for (host, path, expected) in cases {
            let expected = expected.map(|at: usize| format!("test/r{at}"));
            assert_eq!(site.route(host, path).map(RouteKey::to_string), expected, "{host}{path}");
        }
    }

    #[test]
    fn hosts_and_paths_that_are_refused() {
        for host in [
            "",
            ".",
            "a..b",
            "A.example",
            "a b",
            "a\nb",
            "a;b",
            "*",
            "*.*.a",
            "a.*.b",
            "\"",
            "$a",
            "{a}",
            "a/b",
            "a:80",
        ] {
            assert!(host.parse::<Host>().is_err(), "{host:?}");
        }
        for path in [
            "", "shop", "/shop/", "//", "/a//b", "/a/../b", "/.", "/a b", "/a\n", "/a%2Fb", "/a\"", "/a{", "/a\\",
            "/a?b", "/é",
        ] {
            assert!(path.parse::<PathPrefix>().is_err(), "{path:?}");
        }
        for path in ["/", "/a;b", "/$x", "/it's", "/a,b(c)*+=:@~!&", "/a%20b", "/caf%C3%A9"] {
            assert!(path.parse::<PathPrefix>().is_ok(), "{path:?}");
        }
    }

    #[test]
    fn a_site_survives_its_file() {
        let before = site(&[("a.example", "/"), ("*.w.example", "/shop")]);
        let text = serde_json::to_string(&before).expect("it is data");
        assert_eq!(serde_json::from_str::<Site>(&text).expect("it was written so"), before);
        assert!(serde_json::from_str::<Site>(&text.replace("a.example", "a.ex ample")).is_err());
    }
}
