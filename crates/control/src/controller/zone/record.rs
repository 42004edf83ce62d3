//! The entries of the last-known-good state: reduced objects and published serials as keys and values.
//!
//! A key is one letter for the kind and the object's name; a value contains its fields: numbers little-endian, texts and lists
//! after their length. The entry of a served shard zone also contains the compiled zone.

use std::collections::HashMap;
use std::net::IpAddr;

use super::version_history::Published;
use crate::compiler::Digest;
use crate::compiler::health::{AddressInput, Health};
use crate::compiler::inputs::{BindingInput, RouterInput};
use signpost_dns::wire::{Name, NameMap};
use signpost_dns::zone::parallel::in_parallel;
use signpost_dns::zone::{Serial, Ttl, Zone, stored};
use signpost_types::v1alpha1::deletion_hold::DeletionHoldKind;
use signpost_types::v1alpha1::router::Mode;

const DOMAIN: u8 = b'd';
const ROUTER: u8 = b'r';
const BINDING: u8 = b'b';
const ZONE: u8 = b'z';
const HELD: u8 = b'h';

/// The size above which a zone is not stored compiled, and is rebuilt at the start: it would be rewritten whole with each change.
const STORED_OCTETS_MAX: usize = 64 << 10;
/// A zone with more owners is larger than that; measuring it would take time in proportion to its size.
const STORED_OWNERS_MAX: usize = 1024;

/// The live entries: hundreds of thousands are collected while no name is answered.
pub type LiveEntries<'a> = HashMap<&'a [u8], &'a [u8], foldhash::fast::RandomState>;

/// The contents of a state.
#[derive(Default)]
pub struct Loaded {
    /// The platform's domain, without a trailing dot.
    pub domain: String,
    /// The Routers.
    pub routers: Vec<RouterInput>,
    /// The bindings.
    pub bindings: Vec<BindingInput>,
    /// The published version of each zone.
    pub published: NameMap<Published>,
    /// The served zones, each in the format of [`stored`].
    pub zones: Vec<(Name, Box<[u8]>)>,
    /// The objects whose loss is held, with the name of their hold.
    pub held: Vec<(DeletionHoldKind, Box<str>, Digest)>,
}

/// One change of the state: a key and its value, or `None` if it is removed.
pub type JournalEntry = (Vec<u8>, Option<Vec<u8>>);

/// Returns the entry of the platform's domain.
pub fn domain(domain: &str) -> (Vec<u8>, Vec<u8>) {
    (vec![DOMAIN], domain.as_bytes().to_vec())
}

/// Returns the change to a Router's entry; without `router`, it is removed.
pub fn router(name: &str, router: Option<&RouterInput>) -> JournalEntry {
    let value = router.map(|router| {
        let mut fields = Fields(Vec::with_capacity(128));
        fields.number(router.created as u64);
        fields.octets(router.apex.as_wire());
        fields.number(u64::from(router.ttl.seconds()));
        fields.number(u64::from(router.mode == Mode::ActivePassive));
        fields.number(router.addresses.len() as u64);
        for address in &router.addresses {
            match address.ip {
                IpAddr::V4(ip) => fields.octets(&ip.octets()),
                IpAddr::V6(ip) => fields.octets(&ip.octets()),
            }
            fields.number(u64::from(address.active));
            fields.number(u64::from(address.priority));
            fields.number(u64::from(address.weight));
        }
        fields.number(router.records.len() as u64);
        router.records.iter().for_each(|record| fields.octets(record.as_bytes()));
        // Most Routers have no health check, and need no entry for it.
        if router.panic_percent > 0 || router.addresses.iter().any(|address| address.health != Health::Unknown) {
            fields.number(u64::from(router.panic_percent));
            router.addresses.iter().for_each(|address| fields.number(address.health as u64));
        }
        fields.0
    });
    (key(ROUTER, name.as_bytes()), value)
}

/// Returns the change to a binding's entry; without `binding`, it is removed.
pub fn binding(name: &str, binding: Option<&BindingInput>) -> JournalEntry {
    let value = binding.map(|binding| {
        let mut fields = Fields(Vec::with_capacity(64));
        fields.number(binding.created as u64);
        fields.octets(binding.label.as_bytes());
        fields.octets(binding.shard.as_bytes());
        // Nearly all bindings have none, and need no entry for it.
        if !binding.former_names.is_empty() || binding.leads_to.is_some() {
            fields.number(binding.former_names.len() as u64);
            binding.former_names.iter().for_each(|zone| fields.octets(zone.as_wire()));
            binding.leads_to.iter().for_each(|zone| fields.octets(zone.as_bytes()));
        }
        fields.0
    });
    (key(BINDING, name.as_bytes()), value)
}

/// Returns the journal entry for the published version of a zone: with the zone, if a restart needs to serve it from there.
pub fn zone(apex: &Name, published: Option<&Published>, zone: Option<&Zone>) -> JournalEntry {
    let value = published.map(|published| {
        let mut fields = Fields(Vec::with_capacity(64));
        fields.number(u64::from(published.serial.0));
        fields.octets(&published.digest.0.to_le_bytes());
        fields.octets(&published.config.0.to_le_bytes());
        fields.number(u64::from(published.provisional));
        let is_small = |zone: &&Zone| zone.owner_count() <= STORED_OWNERS_MAX && zone.octets() <= STORED_OCTETS_MAX;
        if let Some(octets) = zone.filter(is_small).and_then(stored::store) {
            fields.octets(&octets);
        }
        fields.0
    });
    (key(ZONE, apex.to_lowercase().as_wire()), value)
}

/// Returns the journal entry for an object whose loss is held, by the hold with the name `hold`; `None`: not held.
pub fn held(kind: DeletionHoldKind, name: &str, hold: Option<Digest>) -> JournalEntry {
    let value = hold.map(|hold| hold.0.to_le_bytes().to_vec());
    (key(HELD, &[&[kind_letter(kind)], name.as_bytes()].concat()), value)
}

fn kind_letter(kind: DeletionHoldKind) -> u8 {
    match kind {
        DeletionHoldKind::Router => ROUTER,
        DeletionHoldKind::RouteBinding => BINDING,
    }
}

/// Reads all entries; `None` if one is not in this program's format.
pub fn load(live: LiveEntries<'_>) -> Option<Loaded> {
    let (mut zones, mut routers, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (key, value) in live {
        let (kind, name) = key.split_first()?;
        let fields = Reader(value);
        match *kind {
            ZONE => zones.push((name, fields)),
            ROUTER => routers.push((name, fields)),
            kind => others.push((kind, name, fields)),
        }
    }
    let mut loaded = Loaded::default();
    loaded.published.reserve(zones.len());
    for (_, zone) in in_parallel(&zones, |(name, fields)| read_zone(name, fields.clone())) {
        let (apex, published, zone) = zone?;
        loaded.zones.extend(zone.map(|zone| (apex.clone(), zone)));
        loaded.published.insert(apex, published);
    }
    let routers = in_parallel(&routers, |(name, fields)| read_router(text(name)?, &mut fields.clone()));
    loaded.routers = routers.into_iter().map(|(_, router)| router).collect::<Option<_>>()?;
    for (kind, name, mut fields) in others {
        match kind {
            DOMAIN => loaded.domain = String::from_utf8(fields.0.to_vec()).ok()?,
            BINDING => loaded.bindings.push(BindingInput {
                key: text(name)?,
                created: fields.number()? as i64,
                label: text(fields.octets()?)?,
                shard: text(fields.octets()?)?.into(),
                former_names: read_former_names(&mut fields)?,
                leads_to: read_leads_to(&mut fields)?,
            }),
            HELD => {
                let (letter, name) = name.split_first()?;
                let kind = DeletionHoldKind::ALL.into_iter().find(|kind| kind_letter(*kind) == *letter)?;
                let hold = Digest(u128::from_le_bytes(fields.0.try_into().ok()?));
                loaded.held.push((kind, text(name)?, hold));
            }
            _ => return None,
        }
    }
    Some(loaded)
}

/// The published version of a zone, and the zone itself if it was written.
type StoredZone = (Name, Published, Option<Box<[u8]>>);

fn read_zone(name: &[u8], mut fields: Reader<'_>) -> Option<StoredZone> {
    let apex = Name::from_wire(name).ok()?;
    let published = Published {
        serial: Serial(u32::try_from(fields.number()?).ok()?),
        digest: fields.digest()?,
        config: fields.digest()?,
        provisional: fields.number()? != 0,
    };
    let zone = if fields.0.is_empty() { None } else { Some(fields.octets()?.into()) };
    Some((apex, published, zone))
}

fn read_router(name: Box<str>, fields: &mut Reader<'_>) -> Option<RouterInput> {
    let created = fields.number()? as i64;
    let apex = Name::from_wire(fields.octets()?).ok()?;
    let ttl = Ttl::new(u32::try_from(fields.number()?).ok()?)?;
    let mode = if fields.number()? == 0 { Mode::ActiveActive } else { Mode::ActivePassive };
    let count = fields.number()?;
    let addresses: Option<Box<[_]>> = (0..count)
        .map(|_| {
            let octets = fields.octets()?;
            let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
            let ip = v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()?;
            let active = fields.number()? != 0;
            let priority = u32::try_from(fields.number()?).ok()?;
            let weight = u16::try_from(fields.number()?).ok()?;
            Some(AddressInput { ip, active, priority, weight, health: Health::Unknown })
        })
        .collect();
    let count = fields.number()?;
    let records: Option<Box<[_]>> = (0..count).map(|_| text(fields.octets()?)).collect();
    let (mut addresses, records) = (addresses?, records?);
    let panic_percent = read_health(&mut addresses, fields)?;
    Some(RouterInput { name, created, apex, ttl, mode, addresses, records, panic_percent })
}

/// Reads the known health of each address, if it was written, and returns the panic threshold.
fn read_health(addresses: &mut [AddressInput], fields: &mut Reader<'_>) -> Option<u8> {
    if fields.0.is_empty() {
        return Some(0);
    }
    let panic_percent = u8::try_from(fields.number()?).ok()?;
    for address in addresses {
        let number = fields.number()?;
        let all = [Health::Unknown, Health::Pending, Health::Up, Health::Down];
        address.health = all.into_iter().find(|health| *health as u64 == number)?;
    }
    Some(panic_percent)
}

fn read_former_names(fields: &mut Reader<'_>) -> Option<Box<[Name]>> {
    if fields.0.is_empty() {
        return Some(Box::default());
    }
    let count = fields.number()?;
    (0..count).map(|_| Name::from_wire(fields.octets()?).ok()).collect()
}

fn read_leads_to(fields: &mut Reader<'_>) -> Option<Option<Box<str>>> {
    if fields.0.is_empty() { Some(None) } else { text(fields.octets()?).map(Some) }
}

fn key(kind: u8, name: &[u8]) -> Vec<u8> {
    [&[kind], name].concat()
}

fn text(octets: &[u8]) -> Option<Box<str>> {
    std::str::from_utf8(octets).ok().map(Into::into)
}

struct Fields(Vec<u8>);

impl Fields {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn octets(&mut self, octets: &[u8]) {
        self.number(octets.len() as u64);
        self.0.extend_from_slice(octets);
    }
}

#[derive(Clone)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn octets(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (octets, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(octets)
    }

    fn digest(&mut self) -> Option<Digest> {
        Some(Digest(u128::from_le_bytes(self.octets()?.try_into().ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_dns::wire::RecordType;
    use signpost_dns::zone::Contents;

    #[test]
    fn entries_read_back() {
        let name = |text: &str| text.parse::<Name>().expect("a name of a test");
        let address = |ip: &str, active, health| AddressInput {
            ip: ip.parse().expect("an address"),
            active,
            priority: 3,
            weight: 7,
            health,
        };
        let router_in = RouterInput {
            name: "shard1".into(),
            created: -5,
            apex: name("Shard1.v3.example."),
            ttl: Ttl::new(30).expect("small"),
            mode: Mode::ActivePassive,
            addresses: Box::from([
                address("192.0.2.1", true, Health::Down),
                address("2001:db8::1", false, Health::Pending),
            ]),
            records: Box::from(["@ TXT x".into()]),
            panic_percent: 30,
        };
        let plain =
            RouterInput { name: "plain".into(), addresses: Box::default(), panic_percent: 0, ..router_in.clone() };
        let binding_in = BindingInput {
            key: "ns/r".into(),
            created: 9,
            label: "ns-r".into(),
            shard: "shard1.v3.example".into(),
            former_names: Box::from([name("shard0.v3.example."), name("old.example.")]),
            leads_to: Some("shard0.v3.example".into()),
        };
        let published =
            Published { serial: Serial(u32::MAX), digest: Digest(u128::MAX), config: Digest(1), provisional: true };
        let soa = [name("ns.example.").as_wire(), name("admin.example.").as_wire(), &[7; 20]].concat().into();
        let mut contents = Contents::new(name("Shard1.v3.example."));
        let ttl = Ttl::new(30).expect("small");
        contents.add(name("shard1.v3.example."), RecordType::SOA, ttl, soa).expect("in the zone");
        let image = Zone::build(&contents).expect("it has a SOA");
        let (domain_key, domain_value) = domain("v3.example");
        let changes = [
            router("shard1", Some(&router_in)),
            router("plain", Some(&plain)),
            binding("ns/r", Some(&binding_in)),
            zone(&name("V3.example."), Some(&published), None),
            zone(&name("Shard1.v3.example."), Some(&published), Some(&image)),
            held(DeletionHoldKind::Router, "shard9", Some(Digest(9 << 64))),
            held(DeletionHoldKind::RouteBinding, "ns/gone", Some(Digest(7))),
            (domain_key, Some(domain_value)),
        ];
        let live: LiveEntries<'_> =
            changes.iter().map(|(key, value)| (&key[..], value.as_deref().expect("it is put"))).collect();
        let mut loaded = load(live.clone()).expect("it was written here");
        loaded.routers.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(loaded.domain, "v3.example");
        assert_eq!(loaded.routers, [plain, router_in]);
        assert_eq!(loaded.bindings, [binding_in]);
        let apexes = ["v3.example.", "shard1.v3.example."].map(|apex| (name(apex), published));
        assert_eq!(loaded.published, NameMap::from_iter(apexes));
        let mut held = loaded.held.clone();
        held.sort_by(|a, b| a.1.cmp(&b.1));
        let expected = [
            (DeletionHoldKind::RouteBinding, "ns/gone".into(), Digest(7)),
            (DeletionHoldKind::Router, "shard9".into(), Digest(9 << 64)),
        ];
        assert_eq!(held, expected);
        let [(apex, octets)] = &loaded.zones[..] else { panic!("{} zones", loaded.zones.len()) };
        let zone = stored::restore(octets).expect("it was stored");
        assert_eq!((apex, zone.contents()), (&name("shard1.v3.example."), contents));
        for (key, value) in live {
            if key[0] != b'd' && !value.is_empty() {
                assert!(
                    load(LiveEntries::from_iter([(key, &value[..value.len() - 1])])).is_none(),
                    "a value cut short"
                );
            }
        }
    }
}
