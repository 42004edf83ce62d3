//! The way that a resolver goes: from the root, or from a given parent, to the servers of the domain; and the look at
//! each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::thread;

use super::ask::{Client, Fault, QueryOptions, text};
use super::survey::{Delegation, Host, NameServers, Observations, Parent, Proof, Server, Start, Trail, Transfer, Zone};
use signpost_control::dns_client::{Data, QueryError, Record, Response};
use signpost_dns::wire::RecordType;
use signpost_dns::wire::header::Rcode;

/// Most referrals on the way from the root.
const REFERRALS_MAX: usize = 16;
/// Servers of a zone that are asked until one answers.
const TRIED_MAX: usize = 6;
/// Most servers that are looked at, of the parent and of the domain.
const SERVERS_MAX: usize = 32;
/// How often a name server's name may need another one's to be found.
const DEPTH_MAX: usize = 4;
/// A label that no route has been given: only a wildcard answers for it.
const GHOST: &str = "signpost-doctor--asks";

/// What to look at.
pub struct DoctorTarget {
    /// Who asks.
    pub client: Client,
    /// The domain, with its dot.
    pub domain: String,
    /// What the configuration says of its name servers.
    pub expected: NameServers,
    /// Whether loopback and private addresses are meant.
    pub private: bool,
    /// The parent's servers, if they are given: then nobody else is asked on the way.
    pub parents: Vec<SocketAddr>,
    /// The root's servers.
    pub roots: Vec<SocketAddr>,
    /// The port of all servers that are found by the way.
    pub port: u16,
    /// Zones whose wildcards should answer, if the shards are known.
    pub shards: Option<Vec<String>>,
    /// The alias zone.
    pub alias_zone: String,
    /// A custom host.
    pub host: Option<HostTarget>,
}

/// What to look at of a custom host.
pub struct HostTarget {
    /// Its name.
    pub name: String,
    /// What its alias should be, if that is known.
    pub target: Option<String>,
    /// Owner and text of the record that should prove it, if one should.
    pub proof: Option<(String, String)>,
    /// The resolver to ask.
    pub resolver: SocketAddr,
}

impl DoctorTarget {
    /// Looks at everything.
    pub fn survey(&self) -> Observations {
        let mut survey = Observations {
            domain: self.domain.clone(),
            expected: self.expected.clone(),
            private: self.private,
            knows_shards: self.shards.is_some(),
            ..Observations::default()
        };
        let servers = match self.parents.is_empty() {
            false => Ok((None, self.parents.clone())),
            true => self.find_parent().map(|(zone, servers)| (Some(zone), servers)),
        };
        match servers {
            Ok((zone, servers)) => {
                survey.parent_zone = zone;
                survey.parents = self.each(&servers, |address| Parent { address, says: self.delegation(address) });
            }
            Err(why) => survey.lost = Some(why),
        }
        let (servers, without_address) = self.servers(&survey);
        survey.without_address = without_address;
        survey.servers = self.each(&servers, |(name, address)| self.look(name, address));
        survey.host = self.host.as_ref().map(|wish| Host {
            name: wish.name.clone(),
            target: wish.target.clone(),
            seen: self.trail(&wish.name, wish.resolver),
            proof: wish.proof.as_ref().map(|(owner, text)| Proof {
                owner: owner.clone(),
                text: text.clone(),
                seen: self.has_text(owner, text, wish.resolver),
            }),
        });
        survey
    }

    /// Does the same for many at once, in threads: the slowest alone is waited for.
    fn each<T: Clone + Send + Sync, R: Send>(&self, of: &[T], look: impl Fn(T) -> R + Sync) -> Vec<R> {
        let look = &look;
        thread::scope(|scope| {
            let all: Vec<_> = of.iter().take(SERVERS_MAX).cloned().map(|one| scope.spawn(move || look(one))).collect();
            all.into_iter().map(|one| one.join().expect("looking does not panic")).collect()
        })
    }

    /// The zone above the domain, and its servers.
    fn find_parent(&self) -> Result<(String, Vec<SocketAddr>), String> {
        let (mut zone, mut servers) = (".".to_owned(), self.roots.clone());
        for _ in 0..REFERRALS_MAX {
            let reply = self.first_answer(&servers, &self.domain).map_err(|why| format!("at {zone}: {why}"))?;
            let Some((cut, names)) = referral(&reply, &self.domain).filter(|(cut, _)| is_below(cut, &zone)) else {
                return Ok((zone, servers));
            };
            if cut == self.domain {
                return Ok((zone, servers));
            }
            servers = self.addresses_of(&names, 0);
            if servers.is_empty() {
                let names: Vec<&String> = names.keys().collect();
                return Err(format!("the servers of {cut} have no addresses: {names:?}"));
            }
            zone = cut;
        }
        Err(format!("more than {REFERRALS_MAX} referrals from the root"))
    }

    fn first_answer(&self, servers: &[SocketAddr], name: &str) -> Result<Response, String> {
        let mut last = "no server is known".to_owned();
        for server in servers.iter().take(TRIED_MAX) {
            match self.client.ask(*server, name, RecordType::NS, QueryOptions::Udp) {
                Ok(reply) if matches!(reply.rcode, Rcode::NOERROR | Rcode::NXDOMAIN) => return Ok(reply),
                Ok(reply) => last = format!("{server} answers {}", reply.rcode),
                Err(fault) => last = format!("{server}: {fault}"),
            }
        }
        Err(last)
    }

    /// The addresses of these servers, from their glue or found by the way from the root.
    fn addresses_of(&self, names: &NameServers, depth: usize) -> Vec<SocketAddr> {
        let mut found = BTreeSet::new();
        for (name, glue) in names {
            match glue.is_empty() {
                false => found.extend(glue.iter().copied()),
                // One that has to be looked for is enough.
                true if found.is_empty() => found.extend(self.resolve(name, depth + 1)),
                true => {}
            }
        }
        found.into_iter().map(|address| SocketAddr::new(address, self.port)).collect()
    }

    /// The addresses of a name server outside the domain, by the way from the root.
    fn resolve(&self, name: &str, depth: usize) -> Vec<IpAddr> {
        if depth > DEPTH_MAX {
            return Vec::new();
        }
        let (mut zone, mut servers) = (".".to_owned(), self.roots.clone());
        for _ in 0..REFERRALS_MAX {
            let Ok(reply) = self.first_answer(&servers, name) else { return Vec::new() };
            match referral(&reply, name).filter(|(cut, _)| is_below(cut, &zone)) {
                Some((cut, names)) => (servers, zone) = (self.addresses_of(&names, depth), cut),
                None => {
                    let ask = |rtype| {
                        let asked = |server: &SocketAddr| self.client.ask(*server, name, rtype, QueryOptions::Udp).ok();
                        servers
                            .iter()
                            .take(TRIED_MAX)
                            .find_map(asked)
                            .map_or(Vec::new(), |reply| addresses(&reply, name))
                    };
                    return [ask(RecordType::A), ask(RecordType::AAAA)].concat();
                }
            }
        }
        Vec::new()
    }

    /// What one server of the parent says of the domain.
    fn delegation(&self, parent: SocketAddr) -> Result<Delegation, Fault> {
        let reply = self.client.ask(parent, &self.domain, RecordType::NS, QueryOptions::Udp)?;
        let servers = name_servers(&reply, &self.domain);
        Ok(Delegation { rcode: reply.rcode.to_string(), servers })
    }

    /// All name servers that somebody names, at all addresses that somebody knows; and those without any.
    fn servers(&self, survey: &Observations) -> (Vec<(String, SocketAddr)>, Vec<String>) {
        let mut known: NameServers = self.expected.clone();
        for delegation in survey.parents.iter().filter_map(|parent| parent.says.as_ref().ok()) {
            for (name, glue) in &delegation.servers {
                known.entry(name.clone()).or_default().extend(glue.iter().copied());
            }
        }
        let mut without = Vec::new();
        for (name, addresses) in &mut known {
            if addresses.is_empty() && !is_at_or_below(name, &self.domain) {
                addresses.extend(self.resolve(name, 0));
            }
            if addresses.is_empty() {
                without.push(name.clone());
            }
        }
        // An address that has several names is asked once.
        let mut names: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
        for (name, addresses) in known {
            for address in addresses {
                names.entry(address).or_default().push(name.clone());
            }
        }
        let all = names.into_iter().map(|(address, names)| (names.join(", "), SocketAddr::new(address, self.port)));
        (all.collect(), without)
    }

    /// Asks one name server everything.
    fn look(&self, name: String, address: SocketAddr) -> Server {
        let ask = |of: &str, rtype, manner| self.client.ask(address, of, rtype, manner);
        let domain = self.domain.as_str();
        let udp = ask(domain, RecordType::SOA, QueryOptions::Recursive).map(|reply| start(&reply));
        if let Err(fault) = &udp {
            // Whoever does not answer at all is not asked twenty times more.
            let tcp = ask(domain, RecordType::SOA, QueryOptions::Tcp).map(|reply| start(&reply));
            let (unknown_option, unknown_version) = (Err(fault.clone()), Err(fault.clone()));
            let (child, transfer, zones) = (BTreeMap::new(), Transfer::Unknown, Vec::new());
            return Server { name, address, udp, tcp, child, unknown_option, unknown_version, transfer, zones };
        }
        let tcp = ask(domain, RecordType::SOA, QueryOptions::Tcp).map(|reply| start(&reply));
        let mut child = NameServers::new();
        if let Ok(reply) = ask(domain, RecordType::NS, QueryOptions::Udp) {
            child = name_servers(&reply, domain);
            for (server, known) in child.iter_mut().filter(|(server, _)| is_at_or_below(server, domain)) {
                for rtype in [RecordType::A, RecordType::AAAA] {
                    let replies = ask(server, rtype, QueryOptions::Udp);
                    known.extend(replies.iter().flat_map(|reply| addresses(reply, server)));
                }
            }
        }
        let transfer = match self.client.ask(address, domain, RecordType::AXFR, QueryOptions::Tcp) {
            Ok(reply) if reply.rcode == Rcode::NOERROR && !reply.answers.is_empty() => Transfer::Given,
            Ok(_) | Err(Fault::Query(QueryError::Unreachable(_))) if tcp.is_ok() => Transfer::Refused,
            _ => Transfer::Unknown,
        };
        let mut zones = vec![self.zone(address, &self.alias_zone, false)];
        zones.extend(self.shards.iter().flatten().map(|shard| self.zone(address, shard, true)));
        Server {
            name,
            udp,
            tcp,
            child,
            unknown_option: ask(domain, RecordType::SOA, QueryOptions::UnknownOption)
                .map(|reply| reply.rcode.to_string()),
            unknown_version: ask(domain, RecordType::SOA, QueryOptions::UnknownVersion)
                .map(|reply| reply.rcode.to_string()),
            transfer,
            zones,
            address,
        }
    }

    fn zone(&self, server: SocketAddr, apex: &str, has_wildcard: bool) -> Zone {
        let start = self.client.ask(server, apex, RecordType::SOA, QueryOptions::Udp).map(|reply| start(&reply));
        let wildcard = (has_wildcard && start.is_ok()).then(|| {
            let ghost = format!("{GHOST}.{apex}");
            let mut found = BTreeSet::new();
            for rtype in [RecordType::A, RecordType::AAAA] {
                match self.client.ask(server, &ghost, rtype, QueryOptions::Udp) {
                    Ok(reply) if reply.rcode == Rcode::NOERROR => found.extend(addresses(&reply, &ghost)),
                    Ok(reply) => return Err(reply.rcode.to_string()),
                    Err(fault) => return Err(fault.to_string()),
                }
            }
            Ok(found)
        });
        Zone { apex: apex.to_owned(), start, wildcard }
    }

    /// Whether the resolver finds this text.
    fn has_text(&self, owner: &str, wanted: &str, resolver: SocketAddr) -> Result<bool, String> {
        let reply = self.ask_resolver(resolver, owner, RecordType::TXT)?;
        let wanted = Data::Text(wanted.as_bytes().to_vec());
        Ok(reply.answers.iter().any(|record| record.data == wanted && text(&record.owner) == owner))
    }

    fn ask_resolver(&self, resolver: SocketAddr, name: &str, rtype: RecordType) -> Result<Response, String> {
        let reply = self.client.ask(resolver, name, rtype, QueryOptions::Recursive);
        let reply = reply.map_err(|fault| format!("the resolver {resolver} does not help: {fault}"))?;
        match reply.rcode {
            Rcode::NOERROR | Rcode::NXDOMAIN => Ok(reply),
            rcode => Err(format!("the resolver {resolver} answers {rcode} for {name}")),
        }
    }

    /// What the resolver says of a host.
    fn trail(&self, host: &str, resolver: SocketAddr) -> Result<Trail, String> {
        let mut trail = Trail::default();
        for rtype in [RecordType::A, RecordType::AAAA] {
            let reply = self.ask_resolver(resolver, host, rtype)?;
            let mut at = host.to_owned();
            let mut aliases = Vec::new();
            while let Some(target) = alias(&reply.answers, &at).filter(|_| aliases.len() <= reply.answers.len()) {
                aliases.push(target.clone());
                at = target;
            }
            trail.addresses.extend(addresses(&reply, &at));
            if trail.aliases.len() < aliases.len() {
                trail.aliases = aliases;
            }
            trail.rcode = reply.rcode.to_string();
        }
        Ok(trail)
    }
}

fn alias(records: &[Record], owner: &str) -> Option<String> {
    records.iter().find_map(|record| match &record.data {
        Data::Cname(target) if text(&record.owner) == owner => Some(text(target)),
        _ => None,
    })
}

/// The addresses of `owner` in the answer and additional sections.
fn addresses(reply: &Response, owner: &str) -> Vec<IpAddr> {
    let records = reply.answers.iter().chain(&reply.additionals);
    let address = |record: &Record| match record.data {
        Data::Address(address) if text(&record.owner) == owner => Some(address),
        _ => None,
    };
    records.filter_map(address).collect()
}

fn start(reply: &Response) -> Start {
    Start {
        rcode: reply.rcode.to_string(),
        authoritative: reply.is_authoritative(),
        recursion: reply.offers_recursion(),
        edns: reply.edns.as_ref().map(|edns| edns.payload_octets_max),
        serial: reply.serial().map(|serial| serial.0),
    }
}

/// The cut that a reply refers to on the way to `name`, and the servers below it with their glue.
fn referral(reply: &Response, name: &str) -> Option<(String, NameServers)> {
    if reply.is_authoritative() || reply.rcode != Rcode::NOERROR {
        return None;
    }
    let is_ns =
        |record: &&Record| matches!(record.data, Data::NameServer(_)) && is_at_or_below(name, &text(&record.owner));
    let cut = text(&reply.authorities.iter().find(is_ns)?.owner);
    let servers = name_servers(reply, &cut);
    Some((cut, servers))
}

/// The name servers of `zone` in any section, with what addresses the reply has of them.
fn name_servers(reply: &Response, zone: &str) -> NameServers {
    let mut servers = NameServers::new();
    for record in reply.answers.iter().chain(&reply.authorities) {
        if let (Data::NameServer(name), true) = (&record.data, text(&record.owner) == zone) {
            let name = text(name);
            let glue = addresses(reply, &name).into_iter().collect();
            servers.insert(name, glue);
        }
    }
    servers
}

/// Whether `name` is `zone` or below it.
pub fn is_at_or_below(name: &str, zone: &str) -> bool {
    name == zone || is_below(name, zone)
}

fn is_below(name: &str, zone: &str) -> bool {
    zone == "." && name != "." || name.strip_suffix(zone).is_some_and(|front| front.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_compared_by_whole_labels() {
        for (name, zone, below) in [
            ("a.example.", "example.", true),
            ("example.", "example.", false),
            ("badexample.", "example.", false),
            ("example.", ".", true),
            (".", ".", false),
        ] {
            assert_eq!(is_below(name, zone), below, "{name} {zone}");
        }
        assert!(is_at_or_below("example.", "example."));
    }
}
