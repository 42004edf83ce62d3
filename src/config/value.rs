//! Values whose text form only the configuration uses.

use std::net::{IpAddr, SocketAddr};

use axum::http::Uri;

use super::DNS_PORT;
use super::key::Default;
use super::pairs::Pairs;
use super::rule::{Rule, by, split};
use signpost_apiserver::audit::Policy;
use signpost_control::observe::verify::state::Server;
use signpost_control::scheduler::strategy::StrategyName;
use signpost_control::scheduler::webhook;
use signpost_control::sources::Mode;
use signpost_dns::nameserver::prefix::Prefix;
use signpost_dns::zone::policy::{Counters, ZonePattern, ZonePolicy};
use signpost_runtime::trust;
use signpost_types::names;

/// A role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Serves the API.
    Api,
    /// Binds Routes to Routers, and runs the controllers.
    Scheduler,
    /// Answers queries.
    Dns,
    /// Serves health and metrics.
    Admin,
}

impl Role {
    /// All roles, in the order in which they start.
    pub const ALL: [Role; 4] = [Role::Api, Role::Scheduler, Role::Dns, Role::Admin];
    pub(super) const WORDS: [(&str, Role); 4] =
        [("api", Role::Api), ("scheduler", Role::Scheduler), ("dns", Role::Dns), ("admin", Role::Admin)];

    /// Returns the name in the configuration.
    pub fn word(self) -> &'static str {
        Role::WORDS[self as usize].0
    }
}

/// A name server of the platform's zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameServer {
    /// The name, without a dot at the end.
    pub name: String,
    /// The public addresses; none only for a name outside the domain.
    pub addresses: Vec<IpAddr>,
}

/// The use of DNS cookies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieMode {
    /// Ignore cookies.
    Off,
    /// Answer cookies.
    On,
    /// Answer cookies, and require a server cookie from clients that send a client cookie.
    Require,
}

pub(super) const COOKIE_MODES: [(&str, CookieMode); 3] =
    [("on", CookieMode::On), ("off", CookieMode::Off), ("require", CookieMode::Require)];

/// The format of the query log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Columns, separated by spaces.
    Text,
    /// Messages of dnstap.info in Frame Streams.
    Dnstap,
}

pub(super) const LOG_FORMATS: [(&str, LogFormat); 3] =
    [("json", LogFormat::Json), ("text", LogFormat::Text), ("dnstap", LogFormat::Dnstap)];

/// The client data in the query log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogClients {
    /// Address and port.
    Full,
    /// The network: a /24 or a /48.
    Network,
    /// Nothing.
    None,
}

pub(super) const LOG_CLIENTS: [(&str, LogClients); 3] =
    [("full", LogClients::Full), ("network", LogClients::Network), ("none", LogClients::None)];

/// The store of the role `api`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// A file in the data directory.
    File,
    /// A cluster of etcd.
    Etcd,
}

pub(super) const ENGINES: [(&str, Engine); 2] = [("file", Engine::File), ("etcd", Engine::Etcd)];

/// Reads the URL of a member of etcd.
pub(super) fn etcd_url(text: &str) -> Result<String, &'static str> {
    trust::url(text.trim_end_matches('/'))
}

/// Reads the prefix of the keys in etcd.
pub(super) fn etcd_prefix(text: &str) -> Result<String, &'static str> {
    let is_plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet))
    };
    match text.strip_prefix('/') {
        Some(parts) if text.len() <= 256 && parts.split('/').all(is_plain) => Ok(text.to_owned()),
        _ => Err("must be a path of letters, digits, dashes, dots and underscores, such as /signpost"),
    }
}

/// The runtime of the instances of Routers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterRuntime {
    /// This process, as its child processes.
    Process,
    /// A Kubernetes cluster, as pods.
    Kubernetes,
    /// Nothing.
    Off,
}

pub(super) const ROUTER_RUNTIMES: [(&str, RouterRuntime); 3] =
    [("process", RouterRuntime::Process), ("kubernetes", RouterRuntime::Kubernetes), ("off", RouterRuntime::Off)];

/// The types of the Services of Routers; the texts are those of Kubernetes.
pub(super) const SERVICE_TYPES: [(&str, &str); 3] =
    [("ClusterIP", "ClusterIP"), ("NodePort", "NodePort"), ("LoadBalancer", "LoadBalancer")];

pub(super) const SOURCE_MODES: [(&str, Mode); 3] =
    [("off", Mode::Off), ("show", Mode::Show), ("publish", Mode::Publish)];

/// Reads `CLASS=ZONE`.
pub(crate) fn ingress_class(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((class, dns)) if !class.is_empty() => Ok((class.to_owned(), zone(dns)?)),
        _ => Err("must be CLASS=ZONE".to_owned()),
    }
}

/// Reads `KEY=VALUE` of a label.
pub(super) fn label_pair(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("must be KEY=VALUE"),
    }
}

pub(super) const AUDIT_POLICIES: [(&str, Option<Policy>); 3] =
    [("writes", Some(Policy::Writes)), ("all", Some(Policy::All)), ("off", None)];

/// One or more resolvers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolver {
    System,
    /// The resolver at this address.
    At(SocketAddr),
}

/// A Secret of a Kubernetes cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretName {
    pub namespace: String,
    pub name: String,
}

/// The method by which the scheduler chooses Routers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// A built-in strategy.
    Own(StrategyName),
    /// The webhook; `webhook.url` is set then.
    Webhook,
}

pub(super) fn strategies() -> impl Iterator<Item = (&'static str, Strategy)> {
    let own = StrategyName::ALL.into_iter().map(|name| (name.as_str(), Strategy::Own(name)));
    own.chain([(webhook::NAME, Strategy::Webhook)])
}

/// Returns the rule of a list of listening addresses: at least one.
pub(super) fn listen() -> Rule<SocketAddr> {
    let address = |text: &str| {
        let expected = "must be ADDR:PORT with an IP address, such as 127.0.0.1:5300 or [::1]:5300";
        text.parse().map_err(|_| expected)
    };
    by("ADDR:PORT", address).list().not_empty().unless(|a: &SocketAddr, b| a == b && a.port() != 0)
}

/// No domain by default: names below a domain of others would be useless.
pub(super) const NO_DOMAIN: Default = Default { value: Some(""), shown: "none" };

/// Reads a domain, or nothing.
pub(super) fn optional_zone(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { zone(text) }
}

pub(super) fn zone(text: &str) -> Result<String, String> {
    let name = domain_name(text)?;
    names::check_zone(&name).map_err(|error| error.to_string())?;
    Ok(name)
}

fn domain_name(text: &str) -> Result<String, String> {
    let plain = text.strip_suffix('.').unwrap_or(text);
    names::check_domain(plain).map_err(|error| error.to_string())?;
    Ok(plain.to_ascii_lowercase())
}

/// Reads a domain name or an IP address.
pub(super) fn host(text: &str) -> Result<String, String> {
    if text.parse::<IpAddr>().is_ok() { Ok(text.to_owned()) } else { domain_name(text) }
}

pub(super) fn label(text: &str) -> Result<String, &'static str> {
    let expected = "must be one label of a host name: at most 63 letters, digits and inner dashes, no dots";
    names::is_host_label(text).then(|| text.to_ascii_lowercase()).ok_or(expected)
}

/// Reads a network of endpoints that get no requests, or the word for the default ones.
pub(super) fn refused_network(text: &str) -> Result<String, String> {
    match text {
        "default" => Ok(text.to_owned()),
        _ => text.parse().map(|prefix: Prefix| prefix.to_string()).map_err(|error| error.to_string()),
    }
}

/// Reads `NAME=ADDR[,ADDR]`; the addresses may be missing.
pub(super) fn name_server(text: &str) -> Result<NameServer, String> {
    let (name, list) = text.split_once('=').unwrap_or((text, ""));
    let address = |text: &String| match text.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => Err(format!("{address} is not an address that clients can query")),
        Ok(address) => Ok(address),
        Err(_) => Err(format!("must be NAME=ADDR[,ADDR] with IP addresses; \"{text}\" is not an IP address")),
    };
    let addresses = split(list, &[',']).iter().map(address).collect::<Result<_, _>>()?;
    Ok(NameServer { name: domain_name(name)?, addresses })
}

/// Reads `[NAME=]ADDR[:PORT]`.
pub(super) fn verify_server(text: &str) -> Result<Server, String> {
    let (name, address) = match text.split_once('=') {
        Some((name, address)) => (domain_name(name)?, address),
        None => (String::new(), text),
    };
    Ok(Server { name, address: server_address(address)? })
}

/// Reads `ADDR[:PORT]` of a server to query.
///
/// # Errors
///
/// The expected form.
pub fn server_address(text: &str) -> Result<SocketAddr, &'static str> {
    let plain = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let parsed: Option<SocketAddr> =
        text.parse().ok().or_else(|| plain.parse::<IpAddr>().ok().map(|address| (address, DNS_PORT).into()));
    match parsed {
        Some(address) if address.ip().is_unspecified() => Err("the unspecified address is not an address of a server"),
        Some(address) if address.port() == 0 => Err("port 0 is not a port of a server"),
        Some(address) => Ok(address),
        None => Err("must be ADDR[:PORT] with an IP address, such as 192.0.2.53 or [2001:db8::53]:53"),
    }
}

/// Returns the resolvers that /etc/resolv.conf names.
pub fn system_resolvers() -> Vec<SocketAddr> {
    resolvers_of(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
}

fn resolvers_of(text: &str) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())?
    });
    servers.filter_map(|word| word.parse::<IpAddr>().ok()).map(|address| (address, DNS_PORT).into()).collect()
}

/// Reads `system`, or `ADDR[:PORT]` of a resolver.
pub(super) fn resolver(text: &str) -> Result<Resolver, String> {
    match text {
        "system" => Ok(Resolver::System),
        text => server_address(text).map(Resolver::At).map_err(|error| format!("{error}, or system")),
    }
}

/// Reads the URL of an ACME directory, which RFC 8555 §6.1 requires to be `https`.
pub(super) fn acme_directory(text: &str) -> Result<String, String> {
    let url = trust::url(text)?;
    match url.starts_with("https:") {
        true => Ok(url),
        false => Err("must be https".to_owned()),
    }
}

/// Reads an address for mail.
pub(super) fn mail_address(text: &str) -> Result<String, &'static str> {
    let is_valid = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b'?' | b'<' | b'>');
    let parts = text.split_once('@').filter(|(user, host)| !user.is_empty() && host.contains('.'));
    match parts.is_some() && text.len() <= 254 && text.bytes().all(is_valid) {
        true => Ok(text.to_owned()),
        false => Err("must be an address for mail, such as ops@example.org"),
    }
}

/// Reads the URL of an API server.
pub(super) fn api_server(text: &str) -> Result<Uri, String> {
    let url = trust::url(text)?;
    if trust::is_readable_on_its_way(&url) {
        return Err("must be https, or http at a loopback address: plain http exposes the credentials".to_owned());
    }
    Ok(url.parse().expect("it is a URL"))
}

/// Returns the namespace and the name of a Secret.
pub(super) fn secret_name(text: &str) -> Result<SecretName, &'static str> {
    let is_label = |label: &str| {
        let is_plain = |octet: u8| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'-');
        !label.is_empty() && label.bytes().all(is_plain) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_name = |text: &str| text.len() <= 253 && text.split('.').all(is_label);
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(SecretName { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("must be NAMESPACE/NAME, such as signpost/signpost-name-server"),
    }
}

/// A table of `dns.zone`, for error messages.
pub(super) const ZONE_EXAMPLE: &str = "{ name = \"example.org\", counters = \"always\" }";

/// Reads the policy of some zones.
pub(super) fn zone_policy(text: &str) -> Result<(ZonePattern, ZonePolicy), String> {
    let pairs = Pairs::read(text, &["name", "counters"], &[])?;
    let name = pairs.one("name").ok_or("name is missing; set name=APEX, name=*.NAME or name=*")?;
    let zones = name.parse().map_err(|error| format!("name \"{name}\": {error}; write an apex, *.NAME or *"))?;
    let counters = pairs.one("counters").map(|value| {
        let found = ZONE_COUNTERS.iter().find(|(word, _)| *word == value).map(|(_, counters)| *counters);
        found.ok_or_else(|| format!("counters \"{value}\" must be first, always or never"))
    });
    Ok((zones, ZonePolicy { counters: counters.transpose()?.unwrap_or_default() }))
}

const ZONE_COUNTERS: [(&str, Counters); 3] =
    [("first", Counters::First), ("always", Counters::Always), ("never", Counters::Never)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_may_go_without_port() {
        for (text, meant) in [
            ("192.0.2.1", "192.0.2.1:53"),
            ("192.0.2.1:5300", "192.0.2.1:5300"),
            ("2001:db8::1", "[2001:db8::1]:53"),
            ("[2001:db8::1]", "[2001:db8::1]:53"),
            ("[2001:db8::1]:5300", "[2001:db8::1]:5300"),
        ] {
            assert_eq!(server_address(text).map(|address| address.to_string()).as_deref(), Ok(meant), "{text}");
        }
        assert!(server_address("ns1.example.org").is_err());
    }

    #[test]
    fn policies_of_zones() {
        for (text, expected) in [
            ("name=example.org,counters=always", Ok(("example.org.", Counters::Always))),
            ("counters=never, name=Example.Org.", Ok(("example.org.", Counters::Never))),
            ("name=a", Ok(("a.", Counters::First))),
            ("counters=never", Err("name is missing")),
            ("name=a,counters=yes", Err("must be first, always or never")),
            ("name=a..b", Err("name \"a..b\"")),
            ("name=a,name=b", Err("name is set twice")),
            ("name=a,serial=1", Err("unknown key \"serial\"")),
        ] {
            match (zone_policy(text), expected) {
                (Ok((zones, policy)), Ok((apex, counters))) => {
                    assert_eq!(zones, ZonePattern::Apex(apex.parse().expect("a name")), "{text}");
                    assert_eq!(policy.counters, counters, "{text}");
                }
                (Err(error), Err(words)) => assert!(error.contains(words), "{text}: {error}"),
                (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
            }
        }
        assert_eq!(
            zone_policy("name=*.a").map(|(zones, _)| zones),
            Ok(ZonePattern::Below("a".parse().expect("a name")))
        );
    }

    #[test]
    fn resolvers_of_the_system() {
        let text = "# made by hand\nsearch example\nnameserver 192.0.2.53\n nameserver\t2001:db8::53 \nnameserver x\n";
        let found: Vec<String> = resolvers_of(text).iter().map(SocketAddr::to_string).collect();
        assert_eq!(found, ["192.0.2.53:53", "[2001:db8::53]:53"]);
    }
}
