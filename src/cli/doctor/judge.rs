//! Derives findings from observations: the problem, its severity, and the exact records that correct it. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::finding::{Diagnosis, Severity};
use super::survey::{Delegation, EncryptedTransport, Host, NameServers, Observations, Server, Start, Transfer, Zone};
use signpost_control::dns_client::QueryError;
use signpost_dns::wire::Name;
use signpost_dns::wire::header::Rcode;

use Severity::{Error, Good, Note, Warning};

/// TTL of records to add: a day is usual for a delegation, and an hour does for the first days.
const DELEGATION_TTL: u32 = 3_600;
/// The payload that nearly every path carries in one piece: Ethernet's 1,500 octets without the headers of IPv6 and
/// UDP.
const PAYLOAD_MAX: u16 = 1_452;
/// TTL of a custom host's alias.
const ALIAS_TTL: u32 = 300;

/// Returns all findings, in the order of the walk.
pub fn diagnose(survey: &Observations) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    let intended = intended(survey);
    delegation(survey, &Wanted::new(survey, &intended), &mut findings);
    addresses(survey, &intended, &mut findings);
    for server in &survey.servers {
        one_server(survey, server, &mut findings);
    }
    serials(survey, &mut findings);
    if !survey.knows_shards {
        let message = "the shards are unknown, so their wildcards were not checked; set --shard ZONE, or use a \
                       kubeconfig that may list Routers";
        findings.push(Diagnosis::new(Note, "shards-unknown", &survey.domain, message));
    }
    if let Some(host) = &survey.host {
        proof(host, &mut findings);
        custom_host(survey, host, &mut findings);
    }
    grouped(findings)
}

/// Returns equal findings of several servers as one, in the place of the first.
fn grouped(findings: Vec<Diagnosis>) -> Vec<Diagnosis> {
    let mut groups: Vec<Diagnosis> = Vec::new();
    for finding in findings {
        match groups.iter_mut().find(|group| group.matches(&finding)) {
            Some(group) => group.join(&finding),
            None => groups.push(finding),
        }
    }
    groups
}

/// The name servers that the parent should name, with those of their addresses that it can be given: a record with a private
/// address is one that this same report would call wrong.
struct Wanted<'a> {
    all: &'a NameServers,
    public: NameServers,
}

impl<'a> Wanted<'a> {
    fn new(survey: &Observations, all: &'a NameServers) -> Self {
        let is_good = |address: &&IpAddr| survey.private || not_public(**address).is_none();
        let of = |addresses: &BTreeSet<IpAddr>| addresses.iter().filter(is_good).copied().collect();
        Wanted { all, public: all.iter().map(|(name, addresses)| (name.clone(), of(addresses))).collect() }
    }

    /// Returns whether addresses of this name are known, and the parent can be given none of them.
    fn has_no_public(&self, name: &Name) -> bool {
        let is_empty = |of: &NameServers| of.get(name).is_none_or(BTreeSet::is_empty);
        !is_empty(self.all) && is_empty(&self.public)
    }
}

/// The advice if the records to add are unknown.
const NO_PUBLIC: &str = "no public address is known; add one to \"nameserver\", or set --private to accept the others";

/// Returns the intended name servers: those of the configuration, or those that the platform's own servers list.
fn intended(survey: &Observations) -> NameServers {
    if !survey.expected.is_empty() {
        return survey.expected.clone();
    }
    let authoritative = |server: &&Server| server.udp.as_ref().is_ok_and(|start| start.authoritative);
    survey
        .servers
        .iter()
        .filter(authoritative)
        .map(|server| &server.child)
        .find(|child| !child.is_empty())
        .cloned()
        .unwrap_or_default()
}

fn ns(domain: &Name, name: &Name) -> String {
    format!("{domain} {DELEGATION_TTL} IN NS {name}")
}

fn glue(name: &Name, address: &IpAddr) -> String {
    let rtype = if address.is_ipv4() { "A" } else { "AAAA" };
    format!("{name} {DELEGATION_TTL} IN {rtype} {address}")
}

/// Returns the records with which a parent delegates to these servers.
fn whole_delegation(domain: &Name, wanted: &Wanted<'_>) -> Vec<String> {
    let is_inside = |name: &Name| name.is_at_or_below(domain);
    let servers = || wanted.public.iter().filter(|(name, _)| !is_inside(name) || !wanted.has_no_public(name));
    let mut records: Vec<String> = servers().map(|(name, _)| ns(domain, name)).collect();
    for (name, addresses) in servers().filter(|(name, _)| is_inside(name)) {
        records.extend(addresses.iter().map(|address| glue(name, address)));
    }
    records
}

fn delegation(survey: &Observations, intended: &Wanted<'_>, findings: &mut Vec<Diagnosis>) {
    let domain = &survey.domain;
    let zone = survey.parent_zone.as_ref().map_or("the parent zone".to_owned(), |zone| format!("the zone {zone}"));
    if let Some(why) = &survey.lost {
        let message = format!(
            "no referrals from the root lead to {domain}: {why}; if this machine cannot query the root servers, set \
             --parent ADDRESS"
        );
        findings
            .push(Diagnosis::new(Error, "parent-not-found", domain, message).add(whole_delegation(domain, intended)));
        return;
    }
    let mut answers: Vec<(&std::net::SocketAddr, &Delegation)> = Vec::new();
    for parent in &survey.parents {
        let subject = format!("parent {}", parent.address);
        match &parent.says {
            Err(fault) => findings.push(Diagnosis::new(Error, "parent-silent", subject, fault.to_string())),
            Ok(says) if says.servers.is_empty() && !matches!(says.rcode, Rcode::NOERROR | Rcode::NXDOMAIN) => {
                let message =
                    format!("it returned {}: it is not authoritative for the parent zone of {domain}", says.rcode);
                findings.push(Diagnosis::new(Error, "parent-not-authoritative", subject, message));
            }
            Ok(says) => answers.push((&parent.address, says)),
        }
    }
    let Some((_, first)) = answers.first() else { return };
    for (address, says) in &answers {
        let subject = format!("parent {address}");
        if says.servers.is_empty() {
            let records = whole_delegation(domain, intended);
            let lacking: Vec<String> =
                intended.all.keys().filter(|name| intended.has_no_public(name)).map(Name::to_string).collect();
            let mut message = format!("it does not delegate {domain} ({})", says.rcode);
            if !lacking.is_empty() {
                message += &format!("; it cannot delegate to {}: {NO_PUBLIC}", lacking.join(", "));
            }
            if !records.is_empty() {
                message += &format!("; add to {zone}:");
            }
            findings.push(Diagnosis::new(Error, "delegation-missing", subject, message).add(records));
            continue;
        }
        if says.servers != first.servers {
            let message =
                "its delegation differs from that of the first server of the parent; synchronize the parent's servers";
            findings.push(Diagnosis::new(Warning, "parents-differ", &subject, message));
        }
        let before = findings.len();
        compare(domain, &zone, &subject, &says.servers, intended, findings);
        if findings.len() == before {
            let names = list(says.servers.keys());
            findings.push(Diagnosis::new(Good, "delegation", subject, format!("it delegates {domain} to {names}")));
        }
    }
}

/// A parent's delegation and the intended one.
fn compare(
    domain: &Name,
    zone: &str,
    subject: &str,
    says: &NameServers,
    wanted: &Wanted<'_>,
    findings: &mut Vec<Diagnosis>,
) {
    let intended = wanted.all;
    for (name, addresses) in &wanted.public {
        let inside = name.is_at_or_below(domain);
        if inside && wanted.has_no_public(name) {
            let lacks = match says.get(name) {
                None => "does not list",
                Some(there) if there.is_empty() => "has no address of",
                // What it has instead may well be right.
                Some(_) => continue,
            };
            let message = format!("it {lacks} {name}: {NO_PUBLIC}");
            findings.push(Diagnosis::new(Error, "ns-not-public", subject, message));
            continue;
        }
        let Some(there) = says.get(name) else {
            let mut records = vec![ns(domain, name)];
            records.extend(addresses.iter().filter(|_| inside).map(|address| glue(name, address)));
            let message = format!("it does not list {name}; add to {zone}:");
            findings.push(Diagnosis::new(Error, "ns-missing", subject, message).add(records));
            continue;
        };
        if !inside {
            continue;
        }
        if there.is_empty() {
            let message =
                format!("it has no glue for {name}, so resolvers cannot find the address; add glue to {zone}:");
            let records = addresses.iter().map(|address| glue(name, address));
            findings.push(Diagnosis::new(Error, "glue-missing", subject, message).add(records));
        } else if there != addresses && !addresses.is_empty() {
            let message =
                format!("its glue for {name} differs from the addresses of {name}; correct the glue in {zone}:");
            let add = addresses.difference(there).map(|address| glue(name, address));
            let remove = there.difference(addresses).map(|address| glue(name, address));
            findings.push(Diagnosis::new(Error, "glue-wrong", subject, message).add(add).remove(remove));
        }
    }
    if intended.is_empty() {
        let lacking = says.iter().filter(|(name, there)| there.is_empty() && name.is_at_or_below(domain));
        for (name, _) in lacking {
            let message = format!(
                "it has no glue for {name}, so resolvers cannot find the address; add the A and AAAA records to {zone}"
            );
            findings.push(Diagnosis::new(Error, "glue-missing", subject, message));
        }
        return;
    }
    for name in says.keys().filter(|name| !intended.contains_key(*name)) {
        let message = format!("it lists {name}, which is not a name server of {domain}; remove from {zone}:");
        findings.push(Diagnosis::new(Warning, "ns-extra", subject, message).remove([ns(domain, name)]));
    }
}

/// Checks the addresses on their own.
fn addresses(survey: &Observations, intended: &NameServers, findings: &mut Vec<Diagnosis>) {
    for name in &survey.without_address {
        let message = "no address found for this name server, so it was not checked; add its A or AAAA records";
        findings.push(Diagnosis::new(Error, "ns-without-address", name, message));
    }
    let mut seen: BTreeMap<IpAddr, &str> = BTreeMap::new();
    for server in &survey.servers {
        seen.entry(server.address.ip()).or_insert(&server.name);
    }
    if !survey.private {
        for (address, name) in &seen {
            if let Some(kind) = not_public(*address) {
                let message = format!(
                    "{address} is {kind}, which other resolvers cannot reach; set the public address in \"nameserver\" \
                     and in the parent zone, or set --private"
                );
                findings.push(Diagnosis::new(Error, "address-not-public", *name, message));
            }
        }
    }
    let all: BTreeSet<&IpAddr> = intended.values().flatten().chain(seen.keys()).collect();
    if all.len() == 1 {
        let message =
            "there is only one name server address: if it fails, no name resolves (RFC 1034 §4.1 requires two)";
        findings.push(Diagnosis::new(Warning, "one-server", &survey.domain, message));
    }
}

/// Returns the kind of an address that is not public.
fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_loopback() => Some("a loopback address"),
        _ if address.is_unspecified() || address.is_multicast() => Some("an unspecified or multicast address"),
        IpAddr::V4(address) if address.is_private() => Some("a private address"),
        IpAddr::V6(address) if address.is_unique_local() => Some("a private address"),
        IpAddr::V4(address) if address.is_link_local() => Some("a link-local address"),
        IpAddr::V6(address) if address.is_unicast_link_local() => Some("a link-local address"),
        // RFC 6598: shared by carriers.
        IpAddr::V4(address) if matches!(address.octets(), [100, 64..=127, ..]) => Some("a shared address"),
        _ => None,
    }
}

fn one_server(survey: &Observations, server: &Server, findings: &mut Vec<Diagnosis>) {
    let domain = &survey.domain;
    let subject = format!("{} ({})", server.name, server.address);
    let mut say = |severity, code, message: String| findings.push(Diagnosis::new(severity, code, &subject, message));
    let udp = match &server.udp {
        Ok(start) => start,
        Err(fault) => {
            say(
                Error,
                "udp-silent",
                format!(
                    "over UDP: {fault}; check that the server is running and that UDP port {} is open",
                    server.address.port()
                ),
            );
            if server.tcp.is_ok() {
                say(Note, "tcp", "it answers over TCP".to_owned());
            }
            return;
        }
    };
    if !is_served(udp) {
        say(
            Error,
            "not-authoritative",
            format!("it is not authoritative for {domain} ({}); a listed name server must be", how(udp)),
        );
        return;
    }
    let faults = faults_of(survey, server, udp);
    if faults.is_empty() {
        let serial = udp.serial.map_or(String::new(), |serial| format!(", serial {serial}"));
        let encrypted: Vec<String> = server.encrypted.iter().map(|one| one.transport.to_string()).collect();
        let and = if encrypted.is_empty() { String::new() } else { format!(", and over {}", encrypted.join(", ")) };
        say(Good, "server", format!("authoritative over UDP and TCP{and}{serial}"));
    }
    faults.into_iter().for_each(|(severity, code, message)| say(severity, code, message));
}

/// Returns the faults of a server that answers over UDP and serves the domain.
fn faults_of(survey: &Observations, server: &Server, udp: &Start) -> Vec<(Severity, &'static str, String)> {
    let domain = &survey.domain;
    let mut faults = Vec::new();
    let mut say = |severity, code, message: String| faults.push((severity, code, message));
    if let Err(fault) = &server.tcp {
        let message = format!("over TCP: {fault}; open TCP port {}: large responses require it", server.address.port());
        say(Error, "tcp-silent", message);
    }
    if udp.recursion {
        say(
            Warning,
            "recursion",
            "it offers recursion to all clients; turn recursion off on an authoritative server".to_owned(),
        );
    }
    edns(udp, server).into_iter().for_each(|(code, message)| say(Warning, code, message));
    if server.transfer == Transfer::Given {
        say(
            Warning,
            "transfer-open",
            format!("it allows all clients to transfer the zone {domain} (AXFR); restrict transfers"),
        );
    }
    for Zone { apex, start, wildcard } in &server.zones {
        match (start, wildcard) {
            (Err(fault), _) => say(Error, "zone-missing", format!("{apex}: {fault}")),
            (Ok(start), _) if !is_served(start) => {
                say(Error, "zone-missing", format!("it is not authoritative for {apex} ({})", how(start)));
            }
            (_, Some(Ok(addresses))) if addresses.is_empty() => {
                let message =
                    format!("{apex}: the wildcard has no address; check that its Router has an active address");
                say(Error, "wildcard-empty", message);
            }
            (_, Some(Err(found))) => {
                let message =
                    format!("{apex}: a query for a name below it returned {found}, not the records of the wildcard");
                say(Error, "wildcard-missing", message);
            }
            (_, None | Some(Ok(_))) => {}
        }
    }
    for EncryptedTransport { host, transport, checked } in &server.encrypted {
        if let Err(fault) = checked {
            let message = format!(
                "over {transport}, which the SVCB records of {host} offer: {fault}; open the port, replace \"dns.certificate\", give its CA \
                 with --tls-ca, or remove {transport} from \"nameserver-transport\""
            );
            say(Error, "encrypted-failed", message);
        }
    }
    if !survey.expected.is_empty() && !server.child.keys().eq(survey.expected.keys()) {
        let message = format!(
            "its NS records of {domain} list {}, but \"nameserver\" here lists {}; set the same \"nameserver\" for all \
             processes",
            list(server.child.keys()),
            list(survey.expected.keys())
        );
        say(Error, "ns-differ", message);
    }
    faults
}

fn edns(udp: &Start, server: &Server) -> Vec<(&'static str, String)> {
    let Some(payload) = udp.edns else {
        return vec![("edns-missing", "the response has no EDNS; a middlebox may remove it".to_owned())];
    };
    let mut faults = Vec::new();
    if payload > PAYLOAD_MAX {
        let message = format!("its UDP payload size is {payload} octets, which can be fragmented; set 1232");
        faults.push(("edns-size", message));
    }
    if server.unknown_option != Ok(Rcode::NOERROR) {
        let found = word(&server.unknown_option);
        let message =
            format!("it returned {found} for an unknown EDNS option; it should ignore the option (RFC 6891 §6.1.2)");
        faults.push(("edns-option", message));
    }
    if server.unknown_version != Ok(Rcode::BADVERS) {
        let found = word(&server.unknown_version);
        let message = format!("it returned {found} for an unknown EDNS version, not BADVERS (RFC 6891 §6.1.3)");
        faults.push(("edns-version", message));
    }
    faults
}

fn is_served(start: &Start) -> bool {
    start.rcode == Rcode::NOERROR && start.authoritative && start.serial.is_some()
}

fn how(start: &Start) -> String {
    match start.rcode {
        Rcode::NOERROR if !start.authoritative => "its answer is not authoritative".to_owned(),
        Rcode::NOERROR => "it returned no SOA record".to_owned(),
        rcode => format!("it returned {rcode}"),
    }
}

fn word(answer: &Result<Rcode, QueryError>) -> String {
    match answer {
        Ok(rcode) => rcode.to_string(),
        Err(_) => "nothing".to_owned(),
    }
}

fn list<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    let names: Vec<String> = names.map(Name::to_string).collect();
    if names.is_empty() { "no name server".to_owned() } else { names.join(", ") }
}

/// Checks that all servers have the same serial of each zone.
fn serials(survey: &Observations, findings: &mut Vec<Diagnosis>) {
    let mut zones: BTreeMap<&Name, BTreeMap<u32, Vec<String>>> = BTreeMap::new();
    for server in &survey.servers {
        let own = std::iter::once((&survey.domain, &server.udp));
        for (apex, start) in own.chain(server.zones.iter().map(|zone| (&zone.apex, &zone.start))) {
            if let Ok(Start { serial: Some(serial), authoritative: true, .. }) = start {
                zones.entry(apex).or_default().entry(*serial).or_default().push(server.address.to_string());
            }
        }
    }
    for (apex, serials) in zones.iter().filter(|(_, serials)| serials.len() > 1) {
        let each: Vec<String> =
            serials.iter().map(|(serial, servers)| format!("{serial} at {}", servers.join(", "))).collect();
        let message = format!(
            "the servers have different serials: {}; if a server stays behind, check its connection to the API",
            each.join("; ")
        );
        findings.push(Diagnosis::new(Warning, "serials-differ", apex, message));
    }
}

/// Checks for the record that a platform with `verify.hosts` requires.
fn proof(host: &Host, findings: &mut Vec<Diagnosis>) {
    let Some(proof) = &host.proof else { return };
    findings.push(match &proof.seen {
        Err(why) => Diagnosis::new(Error, "host-unseen", &host.name, why.clone()),
        Ok(true) => Diagnosis::new(Good, "host-proof", &host.name, "the ownership record exists"),
        Ok(false) => {
            let message = "the ownership record is missing, so the host is not admitted; add to the zone of the host:";
            let record = format!("{} {ALIAS_TTL} IN TXT \"{}\"", proof.owner, proof.text);
            Diagnosis::new(Error, "host-unverified", &host.name, message).add([record])
        }
    });
}

fn custom_host(survey: &Observations, host: &Host, findings: &mut Vec<Diagnosis>) {
    let name = &host.name;
    let record = |target: &dyn std::fmt::Display| format!("{name} {ALIAS_TTL} IN CNAME {target}");
    let wanted = host.target.as_ref().map_or_else(|| format!("<label>.{}", survey.alias_zone), Name::to_string);
    let ask_for = match host.target {
        Some(_) => "change the zone of the host:",
        None => "change the zone of the host (for the label, see status.canonicalName of the Route):",
    };
    let trail = match &host.seen {
        Ok(trail) => trail,
        Err(why) => return findings.push(Diagnosis::new(Error, "host-unseen", name, why.as_str())),
    };
    let Some(first) = trail.aliases.first() else {
        let finding = match trail.addresses.is_empty() {
            true => Diagnosis::new(Error, "host-missing", name, format!("it has no CNAME and no address; {ask_for}")),
            false => {
                let message = format!(
                    "it has address records of its own ({}), which do not change when its Route moves; {ask_for}",
                    trail.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
                );
                let of =
                    |address: &IpAddr| format!("{name} IN {} {address}", if address.is_ipv4() { "A" } else { "AAAA" });
                Diagnosis::new(Warning, "host-addresses", name, message).remove(trail.addresses.iter().map(of))
            }
        };
        return findings.push(finding.add([record(&wanted)]));
    };
    let leads_into = |zone: &Name| trail.aliases.iter().any(|alias| alias.is_at_or_below(zone));
    let replace = |severity, code, message: String| {
        Diagnosis::new(severity, code, name, message).remove([record(first)]).add([record(&wanted)])
    };
    match &host.target {
        Some(target) if !trail.aliases.contains(target) => {
            let message = format!("its CNAME target is {first}, but the alias of its Route is {target}; {ask_for}");
            return findings.push(replace(Error, "host-wrong-alias", message));
        }
        None if !leads_into(&survey.domain) => {
            let message = format!("its CNAME target {first} does not lead to {}; {ask_for}", survey.domain);
            return findings.push(replace(Error, "host-elsewhere", message));
        }
        None if !leads_into(&survey.alias_zone) => {
            let message =
                format!("its CNAME target {first} is a name in one shard, which ends after the Route moves; {ask_for}");
            findings.push(replace(Warning, "host-no-stable-alias", message));
        }
        _ => {}
    }
    if trail.addresses.is_empty() {
        let end = trail.aliases.last().unwrap_or(first);
        let message = format!(
            "its CNAME leads to {end}, which has no address ({}); check that its Route is scheduled",
            trail.rcode
        );
        findings.push(Diagnosis::new(Error, "host-dead-end", name, message));
    } else {
        let addresses: Vec<String> = trail.addresses.iter().map(IpAddr::to_string).collect();
        let message = format!("it leads through {} to {}", list(trail.aliases.iter()), addresses.join(", "));
        findings.push(Diagnosis::new(Good, "host", name, message));
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
