//! Follows the delegation like a resolver, from the root or a given parent to the servers of the domain, and inspects
//! each server.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, join_all};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::survey::{
    Delegation, EncryptedTransport, Host, NameServers, Observations, Parent, Proof, Server, Start, Trail, Transfer,
    Zone,
};
use signpost_control::compiler::discovery::{self, Alpn};
use signpost_control::compiler::settings::text_of;
use signpost_control::dns_client::{Data, Query, QueryError, Record, Response};
use signpost_dns::wire::header::{FLAG_RD, Rcode};
use signpost_dns::wire::{Name, RecordType};

/// The maximum number of referrals on the way from the root.
const REFERRALS_MAX: usize = 16;
/// The servers of a zone that are queried until one responds.
const TRIED_MAX: usize = 6;
/// The maximum number of inspected servers, of the parent and of the domain.
const SERVERS_MAX: usize = 32;
/// The maximum depth of name servers whose names depend on other name servers.
const DEPTH_MAX: usize = 4;
/// A label that no route has been given: only a wildcard answers for it.
const GHOST: &[u8] = b"signpost-doctor--asks";
/// An option of the range for experiments (RFC 6891 §9), 65,001, which no server knows, with one octet.
const OPTION_UNKNOWN: [u8; 5] = [0xfd, 0xe9, 0, 1, 0];
const ADDRESSES: [RecordType; 2] = [RecordType::A, RecordType::AAAA];

pub struct DoctorTarget {
    /// The time limit of one try of a query.
    pub timeout: Duration,
    pub domain: Name,
    pub expected: NameServers,
    /// Whether loopback and private addresses are meant.
    pub private: bool,
    /// The parent's servers, if they are given: then no other server on the path is queried.
    pub parents: Vec<SocketAddr>,
    pub roots: Vec<SocketAddr>,
    /// The port of all servers that are found by the way.
    pub port: u16,
    /// Zones whose wildcards should answer, if the shards are known.
    pub shards: Option<Vec<Name>>,
    pub alias_zone: Name,
    pub host: Option<HostTarget>,
    /// The certificate authorities that the name servers' certificates may have.
    pub trust: ClientConfig,
}

/// The checks of a custom host.
pub struct HostTarget {
    pub name: Name,
    /// The expected target of its CNAME, if it is known.
    pub target: Option<Name>,
    /// Owner and text of the record that should prove it, if one should.
    pub proof: Option<(Name, String)>,
    pub resolver: SocketAddr,
}

impl DoctorTarget {
    /// Collects all observations, from many servers at once, so that only the slowest determines the time.
    pub async fn survey(&self) -> Observations {
        let mut survey = Observations {
            domain: self.domain.clone(),
            alias_zone: self.alias_zone.clone(),
            expected: self.expected.clone(),
            private: self.private,
            parent_zone: None,
            lost: None,
            parents: Vec::new(),
            servers: Vec::new(),
            without_address: Vec::new(),
            knows_shards: self.shards.is_some(),
            host: None,
        };
        let servers = match self.parents.is_empty() {
            false => Ok((None, self.parents.clone())),
            true => self.descend(&self.domain, true, 0).await.map(|(zone, servers)| (Some(zone), servers)),
        };
        match servers {
            Ok((zone, servers)) => {
                survey.parent_zone = zone;
                let ask = |address| async move { Parent { address, says: self.delegation(address).await } };
                survey.parents = join_all(servers.into_iter().take(SERVERS_MAX).map(ask)).await;
            }
            Err(why) => survey.lost = Some(why),
        }
        let (servers, without_address) = self.servers(&survey).await;
        survey.without_address = without_address;
        let inspect = |(name, address)| self.inspect(name, address);
        survey.servers = join_all(servers.into_iter().take(SERVERS_MAX).map(inspect)).await;
        if let Some(wanted) = &self.host {
            let proof = match &wanted.proof {
                None => None,
                Some((owner, text)) => {
                    let seen = self.has_text(owner, text, wanted.resolver).await;
                    Some(Proof { owner: owner.clone(), text: text.clone(), seen })
                }
            };
            let seen = self.trail(&wanted.name, wanted.resolver).await;
            survey.host = Some(Host { name: wanted.name.clone(), target: wanted.target.clone(), seen, proof });
        }
        survey
    }

    async fn ask(&self, server: SocketAddr, name: &Name, rtype: RecordType) -> Result<Response, QueryError> {
        Query::new(name, rtype).send(server, self.timeout).await
    }

    /// Follows referrals from the root towards `name`: the last zone on the way, and its servers. A zone cut at `name` itself
    /// is not entered if `above`.
    async fn descend(&self, name: &Name, above: bool, depth: usize) -> Result<(Name, Vec<SocketAddr>), String> {
        let (mut zone, mut servers) = (Name::root(), self.roots.clone());
        for _ in 0..REFERRALS_MAX {
            let reply = self.first_answer(&servers, name).await.map_err(|why| format!("at {zone}: {why}"))?;
            let cut = referral(&reply, name).filter(|(cut, _)| cut.is_below(&zone) && !(above && cut == name));
            let Some((cut, names)) = cut.filter(|_| depth <= DEPTH_MAX) else { return Ok((zone, servers)) };
            servers = self.addresses_of(&names, depth).await;
            if servers.is_empty() {
                let names: Vec<&Name> = names.keys().collect();
                return Err(format!("the servers of {cut} have no addresses: {names:?}"));
            }
            zone = cut;
        }
        Err(format!("more than {REFERRALS_MAX} referrals from the root"))
    }

    async fn first_answer(&self, servers: &[SocketAddr], name: &Name) -> Result<Response, String> {
        let mut last = "no server is known".to_owned();
        for server in servers.iter().take(TRIED_MAX) {
            match self.ask(*server, name, RecordType::NS).await {
                Ok(reply) if matches!(reply.rcode, Rcode::NOERROR | Rcode::NXDOMAIN) => return Ok(reply),
                Ok(reply) => last = format!("{server} returned {}", reply.rcode),
                Err(error) => last = format!("{server}: {error}"),
            }
        }
        Err(last)
    }

    /// Returns the addresses of these servers, from their glue or found by the way from the root.
    async fn addresses_of(&self, names: &NameServers, depth: usize) -> Vec<SocketAddr> {
        let mut found: BTreeSet<IpAddr> = names.values().flatten().copied().collect();
        for name in names.keys() {
            // One that has to be looked for is enough.
            if found.is_empty() {
                found.extend(self.resolve(name, depth + 1).await);
            }
        }
        found.into_iter().map(|address| SocketAddr::new(address, self.port)).collect()
    }

    /// Returns the addresses of a name server outside the domain, by the way from the root.
    fn resolve<'a>(&'a self, name: &'a Name, depth: usize) -> BoxFuture<'a, Vec<IpAddr>> {
        async move {
            let mut found = Vec::new();
            let Ok((_, servers)) = self.descend(name, false, depth).await else { return found };
            for rtype in ADDRESSES {
                for server in servers.iter().take(TRIED_MAX) {
                    if let Ok(reply) = self.ask(*server, name, rtype).await {
                        found.extend(addresses(&reply, name));
                        break;
                    }
                }
            }
            found
        }
        .boxed()
    }

    /// Returns the delegation of the domain by one server of the parent.
    async fn delegation(&self, parent: SocketAddr) -> Result<Delegation, QueryError> {
        let reply = self.ask(parent, &self.domain, RecordType::NS).await?;
        Ok(Delegation { rcode: reply.rcode, servers: name_servers(&reply, &self.domain) })
    }

    /// Returns all listed name servers with all known addresses, and those without an address.
    async fn servers(&self, survey: &Observations) -> (Vec<(Vec<Name>, SocketAddr)>, Vec<Name>) {
        let mut known: NameServers = self.expected.clone();
        for delegation in survey.parents.iter().filter_map(|parent| parent.says.as_ref().ok()) {
            for (name, glue) in &delegation.servers {
                known.entry(name.clone()).or_default().extend(glue.iter().copied());
            }
        }
        let mut without = Vec::new();
        // An address with several names is queried once.
        let mut names: BTreeMap<IpAddr, Vec<Name>> = BTreeMap::new();
        for (name, mut addresses) in known {
            if addresses.is_empty() && !name.is_at_or_below(&self.domain) {
                addresses.extend(self.resolve(&name, 0).await);
            }
            addresses.iter().for_each(|address| names.entry(*address).or_default().push(name.clone()));
            if addresses.is_empty() {
                without.push(name);
            }
        }
        let all = names.into_iter().map(|(address, names)| (names, SocketAddr::new(address, self.port)));
        (all.collect(), without)
    }

    /// Sends all queries to one name server.
    async fn inspect(&self, names: Vec<Name>, address: SocketAddr) -> Server {
        let domain = &self.domain;
        let name = names.iter().map(Name::to_string).collect::<Vec<_>>().join(", ");
        let soa = Query::new(domain, RecordType::SOA);
        let udp = Query { flags: FLAG_RD, ..soa }.send(address, self.timeout).await.map(|reply| start(&reply));
        let tcp = soa.send_over_tcp(address, self.timeout).await.map(|reply| start(&reply));
        if let Err(error) = &udp {
            // A server that does not respond gets no further queries.
            let (unknown_option, unknown_version) = (Err(error.clone()), Err(error.clone()));
            let (child, transfer, zones, encrypted) = (BTreeMap::new(), Transfer::Unknown, Vec::new(), Vec::new());
            return Server {
                name,
                address,
                udp,
                tcp,
                child,
                unknown_option,
                unknown_version,
                transfer,
                zones,
                encrypted,
            };
        }
        let mut child = NameServers::new();
        if let Ok(reply) = self.ask(address, domain, RecordType::NS).await {
            child = name_servers(&reply, domain);
            for (server, known) in child.iter_mut().filter(|(server, _)| server.is_at_or_below(domain)) {
                for rtype in ADDRESSES {
                    let replies = self.ask(address, server, rtype).await;
                    known.extend(replies.iter().flat_map(|reply| addresses(reply, server)));
                }
            }
        }
        let transfer = match Query::new(domain, RecordType::AXFR).send_over_tcp(address, self.timeout).await {
            Ok(reply) if reply.rcode == Rcode::NOERROR && !reply.answers.is_empty() => Transfer::Given,
            Ok(_) | Err(QueryError::Unreachable(_)) if tcp.is_ok() => Transfer::Refused,
            _ => Transfer::Unknown,
        };
        let mut zones = vec![self.zone(address, &self.alias_zone, false).await];
        for shard in self.shards.iter().flatten() {
            zones.push(self.zone(address, shard, true).await);
        }
        let unknown_option = Query { options: &OPTION_UNKNOWN, ..soa }.send(address, self.timeout).await;
        let unknown_version = Query { edns_version: 1, ..soa }.send(address, self.timeout).await;
        let (unknown_option, unknown_version) =
            (unknown_option.map(|reply| reply.rcode), unknown_version.map(|reply| reply.rcode));
        let mut encrypted = Vec::new();
        for host in names {
            encrypted.extend(self.encrypted(host, address).await);
        }
        Server { name, address, udp, tcp, child, unknown_option, unknown_version, transfer, zones, encrypted }
    }

    /// Checks that a TLS listener answers for each transport over TLS that a name server's SVCB records offer.
    async fn encrypted(&self, host: Name, address: SocketAddr) -> Vec<EncryptedTransport> {
        let Some(owner) = discovery::owner(&host) else { return Vec::new() };
        let Ok(response) = self.ask(address, &owner, RecordType::SVCB).await else { return Vec::new() };
        let records =
            response.answers.iter().filter(|record| record.rtype == RecordType::SVCB && record.owner == owner);
        let offers = records.filter_map(|record| discovery::offered(&record.rdata, &host)).flatten();
        let mut all = Vec::new();
        for transport in offers.filter(|transport| transport.alpn != Alpn::Doq) {
            let port = transport.port.unwrap_or_else(|| transport.alpn.default_port());
            let handshake = self.handshake(&host, SocketAddr::new(address.ip(), port), transport.alpn);
            let checked = match timeout(self.timeout, handshake).await {
                Ok(done) => done.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no TLS handshake within {} ms", self.timeout.as_millis())),
            };
            all.push(EncryptedTransport { host: host.clone(), transport, checked });
        }
        all
    }

    async fn handshake(&self, host: &Name, address: SocketAddr, alpn: Alpn) -> io::Result<()> {
        let mut trust = self.trust.clone();
        trust.alpn_protocols = vec![alpn.as_str().into()];
        let name = ServerName::try_from(text_of(host)).map_err(io::Error::other)?;
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(trust)).connect(name, stream).await.map(drop)
    }

    async fn zone(&self, server: SocketAddr, apex: &Name, has_wildcard: bool) -> Zone {
        let start = self.ask(server, apex, RecordType::SOA).await.map(|reply| start(&reply));
        let ghost = apex.prepend(GHOST).ok().filter(|_| has_wildcard && start.is_ok());
        let wildcard = match ghost {
            None => None,
            Some(ghost) => Some(self.wildcard(server, &ghost).await),
        };
        Zone { apex: apex.clone(), start, wildcard }
    }

    /// Returns the addresses of a name that only a wildcard gives.
    async fn wildcard(&self, server: SocketAddr, ghost: &Name) -> Result<BTreeSet<IpAddr>, String> {
        let mut found = BTreeSet::new();
        for rtype in ADDRESSES {
            match self.ask(server, ghost, rtype).await {
                Ok(reply) if reply.rcode == Rcode::NOERROR => found.extend(addresses(&reply, ghost)),
                Ok(reply) => return Err(reply.rcode.to_string()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(found)
    }

    /// Returns whether the resolver finds this text.
    async fn has_text(&self, owner: &Name, wanted: &str, resolver: SocketAddr) -> Result<bool, String> {
        let reply = self.ask_resolver(resolver, owner, RecordType::TXT).await?;
        let wanted = Data::Text(wanted.as_bytes().to_vec());
        Ok(reply.answers.iter().any(|record| record.data == wanted && record.owner == *owner))
    }

    async fn ask_resolver(&self, resolver: SocketAddr, name: &Name, rtype: RecordType) -> Result<Response, String> {
        let reply = Query { flags: FLAG_RD, ..Query::new(name, rtype) }.send(resolver, self.timeout).await;
        let reply = reply.map_err(|error| format!("resolver {resolver}: query failed: {error}"))?;
        match reply.rcode {
            Rcode::NOERROR | Rcode::NXDOMAIN => Ok(reply),
            rcode => Err(format!("resolver {resolver} returned {rcode} for {name}")),
        }
    }

    /// Returns the resolver's response for a host.
    async fn trail(&self, host: &Name, resolver: SocketAddr) -> Result<Trail, String> {
        let mut trail = Trail { rcode: Rcode::NOERROR, aliases: Vec::new(), addresses: BTreeSet::new() };
        for rtype in ADDRESSES {
            let reply = self.ask_resolver(resolver, host, rtype).await?;
            let mut at = host.clone();
            let mut aliases = Vec::new();
            while let Some(target) = alias(&reply.answers, &at).filter(|_| aliases.len() <= reply.answers.len()) {
                aliases.push(target.clone());
                at = target;
            }
            trail.addresses.extend(addresses(&reply, &at));
            if trail.aliases.len() < aliases.len() {
                trail.aliases = aliases;
            }
            trail.rcode = reply.rcode;
        }
        Ok(trail)
    }
}

fn alias(records: &[Record], owner: &Name) -> Option<Name> {
    records.iter().find_map(|record| match &record.data {
        Data::Cname(target) if record.owner == *owner => Some(target.clone()),
        _ => None,
    })
}

/// Returns the addresses of `owner` in the answer and additional sections.
fn addresses(reply: &Response, owner: &Name) -> Vec<IpAddr> {
    let records = reply.answers.iter().chain(&reply.additionals);
    let address = |record: &Record| match record.data {
        Data::Address(address) if record.owner == *owner => Some(address),
        _ => None,
    };
    records.filter_map(address).collect()
}

fn start(reply: &Response) -> Start {
    Start {
        rcode: reply.rcode,
        authoritative: reply.is_authoritative(),
        recursion: reply.offers_recursion(),
        edns: reply.edns.as_ref().map(|edns| edns.payload_octets_max),
        serial: reply.serial().map(|serial| serial.0),
    }
}

/// Returns the cut that a reply refers to on the way to `name`, and the servers below it with their glue.
fn referral(reply: &Response, name: &Name) -> Option<(Name, NameServers)> {
    if reply.is_authoritative() || reply.rcode != Rcode::NOERROR {
        return None;
    }
    let is_ns = |record: &&Record| matches!(record.data, Data::NameServer(_)) && name.is_at_or_below(&record.owner);
    let cut = reply.authorities.iter().find(is_ns)?.owner.clone();
    let servers = name_servers(reply, &cut);
    Some((cut, servers))
}

/// Returns the name servers of `zone` in any section, with their addresses in the reply.
fn name_servers(reply: &Response, zone: &Name) -> NameServers {
    let records = reply.answers.iter().chain(&reply.authorities).filter(|record| record.owner == *zone);
    let server = |record: &Record| match &record.data {
        Data::NameServer(name) => Some((name.clone(), addresses(reply, name).into_iter().collect())),
        _ => None,
    };
    records.filter_map(server).collect()
}
