//! The apex of every zone of the platform: the SOA (RFC 1035 §3.3.13), the NS records, and the addresses and SVCB records of
//! name servers whose names are in the zone.

use std::net::IpAddr;

use super::settings::{NameServer, Settings, Timers};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::Contents;
use signpost_dns::zone::rrset::{Rdata, Rrset, Ttl};

/// The octets of the numbers at the end of the data of an SOA record: serial, refresh, retry, expire, minimum.
const SOA_NUMBERS_OCTETS: usize = 20;

/// Sets SOA and NS at the apex, and the addresses and SVCB records of name servers inside the zone at their names, replacing
/// records of these types.
pub fn dress(contents: &mut Contents, settings: &Settings, serial: u32) {
    let apex = contents.apex().clone();
    for Rrset { rtype, ttl, rdata } in soa_and_ns(settings, serial) {
        set(contents, &apex, rtype, ttl, rdata);
    }
    for server in settings.name_servers().iter().filter(|server| server.name.is_at_or_below(&apex)) {
        set_addresses(contents, server, settings.infrastructure_ttl);
    }
    for (owner, rdata) in settings.services().iter().filter(|(owner, _)| owner.is_at_or_below(&apex)) {
        set(contents, owner, RecordType::SVCB, settings.infrastructure_ttl, rdata.clone());
    }
}

/// Returns the SVCB records that the settings give a name.
pub fn service_rrset(owner: &Name, settings: &Settings) -> Option<Rrset> {
    let (_, rdata) = settings.services().iter().find(|(name, _)| name == owner)?;
    Some(Rrset { rtype: RecordType::SVCB, ttl: settings.infrastructure_ttl, rdata: rdata.clone() })
}

/// Returns the SOA of a zone, and its NS records.
pub fn soa_and_ns(settings: &Settings, serial: u32) -> Vec<Rrset> {
    let mut soa = [settings.name_servers()[0].name.as_wire(), settings.hostmaster().as_wire()].concat();
    let Timers { refresh, retry, expire, minimum } = settings.timers;
    for number in [serial, refresh, retry, expire, minimum] {
        soa.extend_from_slice(&number.to_be_bytes());
    }
    let ttl = settings.infrastructure_ttl;
    vec![
        Rrset { rtype: RecordType::SOA, ttl, rdata: vec![soa.into()] },
        Rrset { rtype: RecordType::NS, ttl, rdata: name_server_rdata(settings) },
    ]
}

/// Returns the NS records' data: the name servers' names.
pub fn name_server_rdata(settings: &Settings) -> Vec<Rdata> {
    settings.name_servers().iter().map(|server| server.name.as_wire().into()).collect()
}

/// Sets the A and AAAA records of a name server, replacing the existing ones at the name: the configuration is authoritative.
pub fn set_addresses(contents: &mut Contents, server: &NameServer, ttl: Ttl) {
    if server.addresses.is_empty() {
        return;
    }
    for rtype in [RecordType::A, RecordType::AAAA, RecordType::CNAME] {
        contents.remove(&server.name, rtype);
    }
    for rrset in address_rrsets(server, ttl) {
        contents.set(server.name.clone(), rrset).expect("the name server is in the zone");
    }
}

/// Returns the nonempty A and AAAA RRsets of a name server.
pub fn address_rrsets(server: &NameServer, ttl: Ttl) -> Vec<Rrset> {
    let mut rrsets: Vec<Rrset> = Vec::new();
    // The addresses are sorted, IPv4 before IPv6.
    for &address in &server.addresses {
        let (rtype, rdata) = address_record(address);
        match rrsets.last_mut() {
            Some(last) if last.rtype == rtype => last.rdata.push(rdata),
            _ => rrsets.push(Rrset { rtype, ttl, rdata: vec![rdata] }),
        }
    }
    rrsets
}

/// Returns the record type and data of an address.
pub fn address_record(address: IpAddr) -> (RecordType, Rdata) {
    match address {
        IpAddr::V4(address) => (RecordType::A, Rdata::from(address.octets())),
        IpAddr::V6(address) => (RecordType::AAAA, Rdata::from(address.octets())),
    }
}

/// Sets an RRset of an owner that is known to be in the zone.
pub(super) fn set(contents: &mut Contents, owner: &Name, rtype: RecordType, ttl: Ttl, rdata: Vec<Rdata>) {
    contents
        .set(owner.clone(), Rrset { rtype, ttl, rdata })
        .expect("the owner is in the zone and the type no meta-type");
}

/// Returns the octets of the serial in the data of an SOA record: the first of the five numbers after its names.
pub(super) fn serial_octets(rdata: &mut [u8]) -> Option<&mut [u8; 4]> {
    rdata.last_chunk_mut::<SOA_NUMBERS_OCTETS>()?.first_chunk_mut()
}

/// Returns the serial of the zone's SOA; `None` if it has none.
pub fn serial_of(contents: &Contents) -> Option<u32> {
    let soa = contents.get(contents.apex(), RecordType::SOA)?;
    let numbers = soa.rdata.first()?.last_chunk::<SOA_NUMBERS_OCTETS>()?;
    Some(u32::from_be_bytes(*numbers.first_chunk()?))
}

/// Sets the serial of the zone's SOA, if it has one.
pub fn set_serial(contents: &mut Contents, serial: u32) {
    let apex = contents.apex().clone();
    let Some(mut soa) = contents.get(&apex, RecordType::SOA).cloned() else { return };
    let Some(octets) = soa.rdata.first_mut().and_then(|rdata| serial_octets(rdata)) else { return };
    *octets = serial.to_be_bytes();
    set(contents, &apex, RecordType::SOA, soa.ttl, soa.rdata);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apex_is_dressed_and_its_serial_set() {
        let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
        let settings = settings.expect("good settings");
        let mut zone = Contents::new(settings.domain().clone());
        dress(&mut zone, &settings, 7);
        assert_eq!(serial_of(&zone), Some(7));
        set_serial(&mut zone, u32::MAX);
        assert_eq!(serial_of(&zone), Some(u32::MAX));
        let ns1 = "ns1.v3.example.".parse().expect("a name");
        assert_eq!(zone.get(&ns1, RecordType::A).expect("an address").rdata, [Rdata::from([192, 0, 2, 53])]);
        let mut shard = Contents::new("s.v3.example.".parse().expect("a name"));
        dress(&mut shard, &settings, 7);
        assert_eq!(shard.owner_count(), 1, "a name server outside the zone has no address in it");
        assert!(serial_octets(&mut [0, 0, 1]).is_none());
    }
}
