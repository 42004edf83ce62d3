//! The tables `[[dns.transfer]]`, `[[dns.secondary]]`, `[[dns.catalog.group]]`, `[[dns.primary]]` and `[[dns.update]]`: who may transfer
//! zones, who is notified of their changes, the groups of a catalog, the primary servers of zones, and who may change the TXT records of
//! challenges.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use tokio_rustls::rustls::pki_types::ServerName;

use super::pairs::Pairs;
use super::value::server_address;
use signpost_dns::nameserver::prefix::Prefix;
use signpost_dns::transfer::Rule;
use signpost_dns::transfer::catalog::{CATALOG_OCTETS_MAX, Group};
use signpost_dns::update::Right;
use signpost_dns::wire::Name;
use signpost_dns::zone::policy::ZonePattern;
use signpost_types::names::is_host_label;

/// An example of each, for error messages.
pub(super) const TRANSFER_EXAMPLE: &str = "{ network = \"192.0.2.0/24\", key = \"transfer.example\" }";
pub(super) const SECONDARY_EXAMPLE: &str = "{ address = \"192.0.2.53\", key = \"transfer.example\" }";
pub(super) const UPDATE_EXAMPLE: &str = "{ key = \"acme.team-a\", namespace = \"team-a\" }";

pub(super) const GROUP_EXAMPLE: &str = "{ name = \"shards\", zone = \"*.apps.example.com\" }";

pub(super) const PRIMARY_EXAMPLE: &str =
    "{ zone = \"example.org\", address = \"192.0.2.1\", key = \"transfer.example\" }";
/// The keys of [`primary`] that are paths.
pub(super) const PRIMARY_PATHS: [&str; 1] = ["ca"];

/// The port of DNS over TLS (RFC 7858 §3.1).
const TLS_PORT: u16 = 853;

/// The longest name of a group: it is one character-string.
const GROUP_OCTETS_MAX: usize = 255;

/// A secondary server that is notified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secondary {
    /// The address of its DNS server.
    pub address: SocketAddr,
    /// The name of the key that signs the requests.
    pub key: Option<Name>,
    /// The zones; none: all.
    pub zones: Vec<ZonePattern>,
    /// The source address of the requests.
    pub source: Option<IpAddr>,
    /// Whether it is queried to verify names, like a name server.
    pub verify: bool,
}

/// A primary server of some zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Primary {
    /// The zones, at least one.
    pub zones: Vec<Name>,
    /// The address of its DNS server.
    pub address: SocketAddr,
    /// The name of the key that signs the requests.
    pub key: Option<Name>,
    /// The name in its certificate, for encrypted transfers.
    pub tls: Option<ServerName<'static>>,
    /// The CA certificates to trust for it instead of the system's.
    pub ca: Option<PathBuf>,
}

/// Reads a rule of transfers.
pub(super) fn transfer(text: &str) -> Result<Rule, String> {
    let pairs = Pairs::read(text, &["zone", "network", "key", "transport"], &["zone", "network", "key"])?;
    let tls = match pairs.one("transport") {
        None => false,
        Some("tls") => true,
        Some(other) => return Err(format!("transport \"{other}\" must be tls, or not set")),
    };
    let (networks, keys) = (pairs.all("network", Prefix::from_str)?, pairs.all("key", name)?);
    if networks.is_empty() && keys.is_empty() {
        return Err(
            "network or key is missing; set network=PREFIX (0.0.0.0/0 and ::/0 for everyone), key=NAME, or both"
                .to_owned(),
        );
    }
    Ok(Rule { zones: pairs.all("zone", ZonePattern::from_str)?, networks, keys, tls })
}

/// Reads a secondary server.
pub(super) fn secondary(text: &str) -> Result<Secondary, String> {
    let pairs = Pairs::read(text, &["address", "key", "zone", "source", "verify"], &["zone"])?;
    let [address] = pairs.all("address", server_address)?[..] else {
        return Err("address is missing; set address=ADDR[:PORT]".to_owned());
    };
    let source = pairs.all("source", IpAddr::from_str)?.pop();
    if source.is_some_and(|source| source.is_ipv4() != address.is_ipv4()) {
        return Err("source and address must be of the same family".to_owned());
    }
    let zones = pairs.all("zone", ZonePattern::from_str)?;
    let verify = pairs.all("verify", bool::from_str)?.pop().unwrap_or(false);
    if verify && !zones.is_empty() {
        return Err("verify needs a server of all zones: remove zone, or verify".to_owned());
    }
    Ok(Secondary { address, key: pairs.all("key", name)?.pop(), zones, source, verify })
}

/// Reads the name of a catalog.
pub(super) fn catalog(text: &str) -> Result<Name, String> {
    let name = name(text)?;
    match name.as_wire().len() {
        1 => Err("must not be the root".to_owned()),
        octets if octets > CATALOG_OCTETS_MAX => {
            Err(format!("must have at most {CATALOG_OCTETS_MAX} octets, because names of its records are longer"))
        }
        _ => Ok(name),
    }
}

/// Reads a group of a catalog.
pub(super) fn group(text: &str) -> Result<Group, String> {
    let pairs = Pairs::read(text, &["name", "zone"], &["zone"])?;
    let name = pairs.one("name").filter(|name| !name.is_empty()).ok_or("name is missing; set name=TEXT")?;
    if name.len() > GROUP_OCTETS_MAX {
        return Err(format!("name must have at most {GROUP_OCTETS_MAX} octets"));
    }
    Ok(Group { name: name.to_owned(), zones: pairs.all("zone", ZonePattern::from_str)? })
}

/// Reads a primary server.
pub(super) fn primary(text: &str) -> Result<Primary, String> {
    let pairs = Pairs::read(text, &["zone", "address", "key", "tls", "ca"], &["zone"])?;
    let zones = pairs.all("zone", name)?;
    if zones.is_empty() {
        return Err("zone is missing; set zone=NAME".to_owned());
    }
    let tls = pairs.all("tls", |text| ServerName::try_from(text.to_owned()))?.pop();
    let address = |text: &str| match text.parse() {
        Ok(host) if tls.is_some() => Ok(SocketAddr::new(host, TLS_PORT)),
        _ => server_address(text),
    };
    let [address] = pairs.all("address", address)?[..] else {
        return Err("address is missing; set address=ADDR[:PORT]".to_owned());
    };
    let ca = pairs.one("ca").map(PathBuf::from);
    if ca.is_some() && tls.is_none() {
        return Err("ca is of encrypted transfers: set tls=NAME, the name in the certificate of the server".to_owned());
    }
    Ok(Primary { zones, address, key: pairs.all("key", name)?.pop(), tls, ca })
}

/// Reads a right to change the records of a namespace's challenges.
pub(super) fn update(text: &str) -> Result<Right, String> {
    let pairs = Pairs::read(text, &["key", "namespace"], &[])?;
    let missing = |key: &str, value: &str| format!("{key} is missing; set {key}={value}");
    let [key] = &pairs.all("key", name)?[..] else { return Err(missing("key", "NAME")) };
    let namespace = pairs.one("namespace").ok_or_else(|| missing("namespace", "NAMESPACE"))?;
    if !is_host_label(namespace) {
        return Err(format!("namespace \"{namespace}\" is not the name of a namespace"));
    }
    Ok(Right { key: key.clone(), holder: namespace.into() })
}

fn name(text: &str) -> Result<Name, String> {
    Name::parse(text.as_bytes(), &Name::root()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let rule =
            transfer("zone=a.example,zone=*.b.example,network=192.0.2.0/24,network=::/0,key=k.example,transport=tls");
        let expected = Rule {
            zones: vec![ZonePattern::Apex(name("a.example.")), ZonePattern::Below(name("b.example."))],
            networks: vec!["192.0.2.0/24".parse().expect("a prefix"), "::/0".parse().expect("a prefix")],
            keys: vec![name("k.example.")],
            tls: true,
        };
        assert_eq!(rule, Ok(expected));
        let server = secondary("address=192.0.2.53,key=k.example,zone=a.example,source=192.0.2.1").expect("valid");
        assert_eq!((server.address.to_string().as_str(), server.key), ("192.0.2.53:53", Some(name("k.example."))));
        assert!(!server.verify && secondary("address=192.0.2.53,verify=true").expect("valid").verify);
        for (text, expected) in [
            ("zone=a.example", "network or key is missing"),
            ("network=192.0.2.1/24", "network \"192.0.2.1/24\": has bits after the prefix"),
            ("key=a..b", "key \"a..b\": a label is empty"),
            ("key=a,transport=tcp", "transport \"tcp\" must be tls"),
            ("keys=a", "unknown key \"keys\"; keys are zone, network, key, transport"),
            ("key", "\"key\" must be KEY=VALUE"),
        ] {
            let error = transfer(text).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let right = update("key=Acme.example,namespace=team-a").expect("valid");
        assert_eq!((right.key, &*right.holder), (name("acme.example."), "team-a"));
        for (text, expected) in [
            ("namespace=a", "key is missing"),
            ("key=a", "namespace is missing"),
            ("key=a,key=b,namespace=a", "key is set twice"),
            ("key=a,namespace=A.b", "namespace \"A.b\" is not the name of a namespace"),
        ] {
            let error = update(text).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        for (text, expected) in [
            ("key=a", "address is missing"),
            ("address=192.0.2.53,address=192.0.2.54", "address is set twice"),
            ("address=0.0.0.0", "address \"0.0.0.0\": the unspecified address"),
            ("address=192.0.2.53,source=::1", "source and address"),
            ("address=192.0.2.53,verify=yes", "verify \"yes\": provided string was not `true` or `false`"),
            ("address=192.0.2.53,zone=a.example,verify=true", "verify needs a server of all zones"),
        ] {
            let error = secondary(text).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn catalogs_are_read() {
        assert_eq!(catalog("catalog.invalid").map(|name| name.to_string()).as_deref(), Ok("catalog.invalid."));
        let long = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(17));
        assert!(catalog(".").is_err() && catalog(&long).is_err_and(|error| error.contains("at most 210 octets")));
        let shards = group("name=shards,zone=*.b.example").expect("valid");
        assert_eq!((shards.name.as_str(), shards.zones.len()), ("shards", 1));
        assert!(group("zone=a").is_err_and(|error| error.starts_with("name is missing")));
    }

    #[test]
    fn primary_servers_are_read() {
        let server =
            primary("zone=a.example,zone=b.example,address=192.0.2.1,tls=ns1.example,ca=/ca.pem").expect("valid");
        assert_eq!((server.zones.len(), server.address.to_string().as_str()), (2, "192.0.2.1:853"));
        let server = primary("zone=a.example,address=192.0.2.1,key=k.example").expect("valid");
        assert_eq!((server.address.port(), server.key), (53, Some("k.example.".parse().expect("a name"))));
        for (text, expected) in [
            ("address=192.0.2.1", "zone is missing"),
            ("zone=a.example", "address is missing"),
            ("zone=*.a.example,address=ns1.example", "address \"ns1.example\""),
            ("zone=a,address=192.0.2.1,ca=/ca.pem", "ca is of encrypted transfers"),
            ("zone=a,address=192.0.2.1,tls=a b", "tls \"a b\""),
        ] {
            let error = primary(text).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
