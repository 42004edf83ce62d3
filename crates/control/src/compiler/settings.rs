//! The parts of a name server's configuration in every zone: the platform's domain, the name servers, the SOA's numbers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::digest::Digest;
use super::discovery::{self, OfferedTransport};
use signpost_dns::wire::Name;
use signpost_dns::zone::rrset::Rdata;
use signpost_dns::zone::{Contents, Ttl};
use signpost_types::names;

/// The valid configuration of the platform's zones: [`Settings::new`] rejects configurations that are unusable for zones.
#[derive(Debug, Clone)]
pub struct Settings {
    domain: Name,
    alias_apex: Name,
    hostmaster: Name,
    name_servers: Vec<NameServer>,
    transports: Vec<OfferedTransport>,
    /// The path of DNS over HTTPS.
    https_path: String,
    /// The owners of SVCB records, and their data.
    services: Vec<(Name, Vec<Rdata>)>,
    /// The settings of the former domains whose zones are served.
    pub(super) former_domains: Vec<Arc<Settings>>,
    /// The SOA's timers.
    pub timers: Timers,
    /// The TTL of SOA and NS records, of delegations, and of the name servers' addresses.
    pub infrastructure_ttl: Ttl,
    /// The TTL of an alias's CNAME: the time for resolvers to notice that a Route has moved.
    pub alias_ttl: Ttl,
    /// The records of `zones/<domain>.zone`, which the parent zone includes.
    pub base: Option<Arc<Contents>>,
}

/// A name server of the platform's zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameServer {
    /// The name in NS records.
    pub name: Name,
    /// The addresses; required if the name is inside the platform's domain.
    pub addresses: Vec<IpAddr>,
}

/// The four times of an SOA (RFC 1035 §3.3.13), in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// The interval of a secondary's SOA queries.
    pub refresh: u32,
    /// The wait of a secondary after a failure.
    pub retry: u32,
    /// The time without contact to the primary after which a secondary stops answering.
    pub expire: u32,
    /// The time for which NXDOMAIN can be cached (RFC 2308 §5). Short, because a name that is queried a moment too early should
    /// appear soon.
    pub minimum: u32,
}

impl Default for Timers {
    fn default() -> Self {
        Timers { refresh: 3600, retry: 600, expire: 1_209_600, minimum: 30 }
    }
}

/// The reason why a configuration is unusable for zones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The domain is not a valid name, or leaves no room for the labels below it.
    #[error("the platform's domain {0:?} is not a usable domain name")]
    Domain(String),
    /// A name server inside the domain has no address, so that no resolver could find it.
    #[error("name server {0} is inside the platform's domain and needs an address: --nameserver NAME=ADDRESS")]
    Address(Name),
    /// A name server is inside the alias zone, whose names belong to routes.
    #[error("name server {0} is inside the alias zone; choose another name")]
    InAliases(Name),
    /// The same name server is named twice.
    #[error("name server {0} is listed twice; list all its addresses together")]
    Twice(Name),
}

impl Settings {
    /// Returns settings with default times. Without `name_servers`, there is one, `ns1.<domain>`, at `listen_addresses`.
    pub fn new(
        domain: &str,
        name_servers: Vec<NameServer>,
        listen_addresses: &[IpAddr],
    ) -> Result<Settings, SettingsError> {
        let bad_domain = || SettingsError::Domain(domain.to_owned());
        let apex: Name = domain.parse().map_err(|_| bad_domain())?;
        // A label of 63 octets has to fit below `routes.<domain>`.
        if apex.is_root() || apex.as_wire().len() + names::ALIAS_LABEL.len() + 1 + 64 > 255 {
            return Err(bad_domain());
        }
        let alias_apex = apex.prepend(names::ALIAS_LABEL.as_bytes()).map_err(|_| bad_domain())?;
        let hostmaster = apex.prepend(b"hostmaster").map_err(|_| bad_domain())?;
        let mut name_servers = name_servers;
        if name_servers.is_empty() {
            let name = apex.prepend(b"ns1").map_err(|_| bad_domain())?;
            name_servers.push(NameServer { name, addresses: listen_addresses.to_vec() });
        }
        for server in &mut name_servers {
            // The unspecified address, on which a socket may listen, is not a usable target.
            server.addresses.retain(|address| !address.is_unspecified());
            server.addresses.iter_mut().for_each(|address| *address = address.to_canonical());
            server.addresses.sort_unstable();
            server.addresses.dedup();
        }
        for (at, server) in name_servers.iter().enumerate() {
            if server.addresses.is_empty() && server.name.is_at_or_below(&apex) {
                return Err(SettingsError::Address(server.name.clone()));
            }
            if server.name.is_at_or_below(&alias_apex) {
                return Err(SettingsError::InAliases(server.name.clone()));
            }
            if name_servers[..at].iter().any(|earlier| earlier.name == server.name) {
                return Err(SettingsError::Twice(server.name.clone()));
            }
        }
        Ok(Settings {
            domain: apex,
            alias_apex,
            hostmaster,
            name_servers,
            timers: Timers::default(),
            infrastructure_ttl: Ttl::new(3600).expect("within the bound of RFC 2181"),
            alias_ttl: Ttl::new(30).expect("within the bound of RFC 2181"),
            transports: Vec::new(),
            https_path: String::new(),
            services: Vec::new(),
            former_domains: Vec::new(),
            base: None,
        })
    }

    /// Returns settings for reading the objects of a platform of which only the domain is known. Its name server is one at the
    /// loopback address, which does not affect Routers.
    pub fn of_domain(domain: &str) -> Result<Settings, SettingsError> {
        Settings::new(domain, Vec::new(), &[Ipv4Addr::LOCALHOST.into()])
    }

    /// Returns these settings with another base of the parent zone.
    #[must_use]
    pub fn with_base(&self, base: Option<Arc<Contents>>) -> Settings {
        Settings { base, ..self.clone() }
    }

    /// Returns these settings with SVCB records for the encrypted transports that all name servers inside the domain offer.
    /// `path` is that of DNS over HTTPS.
    #[must_use]
    pub fn with_transports(mut self, transports: &[OfferedTransport], path: &str) -> Settings {
        let servers = self.name_servers.iter().filter(|server| server.name.is_at_or_below(&self.domain));
        self.services = servers.filter_map(|server| discovery::records(&server.name, transports, path)).collect();
        (self.transports, self.https_path) = (transports.to_vec(), path.to_owned());
        self
    }

    /// Returns the settings of the former domains whose zones are served.
    pub fn former_domains(&self) -> &[Arc<Settings>] {
        &self.former_domains
    }

    /// Returns the encrypted transports that all name servers offer.
    pub fn transports(&self) -> &[OfferedTransport] {
        &self.transports
    }

    /// Returns the path of DNS over HTTPS.
    pub fn https_path(&self) -> &str {
        &self.https_path
    }

    /// Returns the owners of the SVCB records of name servers, with the records' data.
    pub fn services(&self) -> &[(Name, Vec<Rdata>)] {
        &self.services
    }

    /// Returns the platform's domain, the apex of the parent zone.
    pub fn domain(&self) -> &Name {
        &self.domain
    }

    /// Returns the apex of the alias zone, `routes.<domain>`.
    pub fn alias_apex(&self) -> &Name {
        &self.alias_apex
    }

    /// Returns the mailbox in SOA records, `hostmaster.<domain>`.
    pub fn hostmaster(&self) -> &Name {
        &self.hostmaster
    }

    /// Returns the name servers, at least one; the first is the SOA's MNAME.
    pub fn name_servers(&self) -> &[NameServer] {
        &self.name_servers
    }

    /// Returns the domain in the form of the API's objects: lower case, without a trailing dot.
    pub fn domain_text(&self) -> String {
        text_of(&self.domain)
    }

    /// Returns a digest over all settings of one domain: zones built with equal settings from equal objects are equal.
    pub fn digest(&self) -> Digest {
        let mut octets = Vec::with_capacity(256);
        let mut put = |part: &[u8]| {
            octets.extend_from_slice(&(part.len() as u64).to_be_bytes());
            octets.extend_from_slice(part);
        };
        put(self.domain.as_wire());
        put(self.hostmaster.as_wire());
        for server in &self.name_servers {
            put(server.name.as_wire());
            server.addresses.iter().for_each(|address| put(address.to_string().as_bytes()));
        }
        for (owner, rdata) in &self.services {
            put(owner.as_wire());
            rdata.iter().for_each(|rdata| put(rdata));
        }
        let Timers { refresh, retry, expire, minimum } = self.timers;
        for number in [refresh, retry, expire, minimum, self.infrastructure_ttl.seconds(), self.alias_ttl.seconds()] {
            put(&number.to_be_bytes());
        }
        if let Some(base) = &self.base {
            put(&Digest::of_contents(base).0.to_be_bytes());
        }
        Digest::of_octets(&octets)
    }
}

/// Returns a name in the form of the API's objects: lower case, without a trailing dot.
pub fn text_of(name: &Name) -> String {
    let mut text = name.to_lowercase().to_string();
    text.pop();
    text
}
