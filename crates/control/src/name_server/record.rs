//! The entries of the last-known-good state: reduced objects and published serials as keys and values.
//!
//! Keys and values are in the format of `postcard`: the fields of the types here and of the compiler's inputs, in their order and
//! without their names. So each change of these types, except for a further key, needs another [`VERSION`], which is at the head of the file. The
//! entry of a served shard zone also contains the compiled zone.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::version_history::Published;
use crate::compiler::Digest;
use crate::compiler::challenges::ChallengeInput;
use crate::compiler::former_domains::FormerDomain;
use crate::compiler::inputs::{BindingInput, RouterInput};
use signpost_dns::wire::{Name, NameMap};
use signpost_dns::zone::parallel::in_parallel;
use signpost_dns::zone::{Serial, Zone, stored};
use signpost_types::v1alpha1::deletion_hold::DeletionHoldKind;

/// The format of the entries, and of the journal that contains them.
pub const VERSION: u32 = 4;

/// The size above which a zone is not stored compiled, and is rebuilt at the start: it would be rewritten whole with each change.
const STORED_OCTETS_MAX: usize = 64 << 10;
/// A zone with more owners is larger than that; measuring it would take time in proportion to its size.
const STORED_OWNERS_MAX: usize = 1024;

/// The live entries: hundreds of thousands are collected while no name is answered.
pub type LiveEntries<'a> = HashMap<&'a [u8], &'a [u8], foldhash::fast::RandomState>;

/// The contents of a state.
#[derive(Debug, Default, PartialEq)]
pub struct Loaded {
    /// The platform's domain, without a trailing dot.
    pub domain: String,
    pub routers: Vec<RouterInput>,
    pub bindings: Vec<BindingInput>,
    /// The published version of each zone.
    pub published: NameMap<Published>,
    /// The served zones, each in the format of [`stored`].
    pub zones: Vec<(Name, Box<[u8]>)>,
    /// The objects whose loss is held.
    pub held: Vec<StoredHold>,
    /// The platform's domain and the former domains that are served, with the configuration of their zones.
    pub domains: Vec<FormerDomain>,
    /// The ChallengeRecords, each with `<namespace>/<name>`.
    pub challenges: Vec<(Box<str>, ChallengeInput)>,
}

impl Loaded {
    /// Returns whether the platform has neither Routers nor Routes.
    pub fn is_vacant(&self) -> bool {
        self.routers.is_empty() && self.bindings.is_empty()
    }
}

/// An object whose loss is held, and the name of its hold.
pub type StoredHold = (DeletionHoldKind, Box<str>, Digest);

/// One change of the state: a key and its value, or `None` if it is removed.
pub type JournalEntry = (Vec<u8>, Option<Vec<u8>>);

/// A key. Names of zones are in the wire format, in lower case.
#[derive(Serialize, Deserialize)]
enum Key<'a> {
    Domain,
    Router(&'a str),
    Binding(&'a str),
    Zone(&'a [u8]),
    Held(DeletionHoldKind, &'a str),
    Domains,
    Challenge(&'a str),
}

/// The value of a zone: its published version and, if a restart serves it from there, the zone in the format of [`stored`].
#[derive(Serialize, Deserialize)]
struct ZoneValue<'a> {
    serial: u32,
    digest: u128,
    config: u128,
    provisional: bool,
    #[serde(borrow)]
    zone: Option<&'a [u8]>,
}

/// Returns the entry of the platform's domain.
pub fn domain(domain: &str) -> (Vec<u8>, Vec<u8>) {
    (encode(&Key::Domain), encode(&domain))
}

/// Returns the entry of the served domains: the platform's, then the former ones.
pub fn domains(domains: &[FormerDomain]) -> JournalEntry {
    (encode(&Key::Domains), Some(encode(&domains)))
}

/// Returns the change to a Router's entry; without `router`, it is removed.
pub fn router(name: &str, router: Option<&RouterInput>) -> JournalEntry {
    (encode(&Key::Router(name)), router.map(encode))
}

/// Returns the change to a binding's entry; without `binding`, it is removed.
pub fn binding(name: &str, binding: Option<&BindingInput>) -> JournalEntry {
    (encode(&Key::Binding(name)), binding.map(encode))
}

/// Returns the change to the entry of a ChallengeRecord; without `challenge`, it is removed.
pub fn challenge(name: &str, challenge: Option<&ChallengeInput>) -> JournalEntry {
    (encode(&Key::Challenge(name)), challenge.map(encode))
}

/// Returns the journal entry for the published version of a zone: with the zone, if a restart needs to serve it from there.
pub fn zone(apex: &Name, published: Option<&Published>, zone: Option<&Zone>) -> JournalEntry {
    let value = published.map(|published| {
        let is_small = |zone: &&Zone| zone.owner_count() <= STORED_OWNERS_MAX && zone.octets() <= STORED_OCTETS_MAX;
        let stored = zone.filter(is_small).and_then(stored::store);
        encode(&ZoneValue {
            serial: published.serial.0,
            digest: published.digest.0,
            config: published.config.0,
            provisional: published.provisional,
            zone: stored.as_deref(),
        })
    });
    (encode(&Key::Zone(apex.to_lowercase().as_wire())), value)
}

/// Returns the journal entry for an object whose loss is held, by the hold with the name `hold`; `None`: not held.
pub fn held(kind: DeletionHoldKind, name: &str, hold: Option<Digest>) -> JournalEntry {
    (encode(&Key::Held(kind, name)), hold.map(|hold| encode(&hold.0)))
}

/// Reads all entries; `None` if one is not in this program's format.
pub fn load(live: LiveEntries<'_>) -> Option<Loaded> {
    let (mut zones, mut routers) = (Vec::new(), Vec::new());
    let mut loaded = Loaded::default();
    for (key, value) in live {
        match decode(key)? {
            Key::Domain => loaded.domain = decode(value)?,
            Key::Router(name) => routers.push((name, value)),
            Key::Binding(name) => loaded.bindings.push(BindingInput { key: name.into(), ..decode(value)? }),
            Key::Zone(apex) => zones.push((apex, value)),
            Key::Domains => loaded.domains = decode(value)?,
            Key::Challenge(name) => loaded.challenges.push((name.into(), decode(value)?)),
            Key::Held(kind, name) => loaded.held.push((kind, name.into(), Digest(decode(value)?))),
        }
    }
    loaded.published.reserve(zones.len());
    for (_, zone) in in_parallel(&zones, |(apex, value)| read_zone(apex, value)) {
        let (apex, published, zone) = zone?;
        loaded.zones.extend(zone.map(|zone| (apex.clone(), zone)));
        loaded.published.insert(apex, published);
    }
    let read = |(name, value): &(&str, &[u8])| Some(RouterInput { name: (*name).into(), ..decode(value)? });
    let routers = in_parallel(&routers, read);
    loaded.routers = routers.into_iter().map(|(_, router)| router).collect::<Option<_>>()?;
    Some(loaded)
}

/// The published version of a zone, and the zone itself if it was written.
type StoredZone = (Name, Published, Option<Box<[u8]>>);

fn read_zone(apex: &[u8], value: &[u8]) -> Option<StoredZone> {
    let value: ZoneValue<'_> = decode(value)?;
    let published = Published {
        serial: Serial(value.serial),
        digest: Digest(value.digest),
        config: Digest(value.config),
        provisional: value.provisional,
    };
    Some((Name::from_wire(apex).ok()?, published, value.zone.map(Into::into)))
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("a vector takes any number of octets, and the lengths of all lists are known")
}

/// Reads a value that takes all of the octets.
fn decode<'a, T: Deserialize<'a>>(octets: &'a [u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(octets).ok()?;
    rest.is_empty().then_some(value)
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::IpAddr;

    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use proptest::sample::select;
    use signpost_dns::wire::RecordType;
    use signpost_dns::zone::{Contents, Ttl};
    use signpost_types::v1alpha1::router::Mode;

    use super::*;
    use crate::compiler::health::{AddressInput, Health};

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    fn dns_name() -> impl Strategy<Value = Name> {
        "[a-z0-9]{1,9}(\\.[a-z]{1,9}){1,3}\\.".prop_map(|text| name(&text))
    }

    fn routers() -> impl Strategy<Value = Vec<RouterInput>> {
        let health = select(vec![Health::Unknown, Health::Pending, Health::Up, Health::Down]);
        let address = (any::<IpAddr>(), any::<bool>(), any::<u32>(), any::<u16>(), health)
            .prop_map(|(ip, active, priority, weight, health)| AddressInput { ip, active, priority, weight, health });
        let mode = select(vec![Mode::ActiveActive, Mode::ActivePassive]);
        let fields = (any::<i64>(), dns_name(), 0..=Ttl::MAX.seconds(), mode, vec(address, 0..3), any::<u8>());
        let router = (fields, vec(".{0,9}", 0..3));
        btree_map("[a-z]{1,9}", router, 0..4).prop_map(|routers| {
            let router = |(name, (fields, records)): (String, (_, Vec<String>))| {
                let (created, apex, ttl, mode, addresses, panic_percent): (_, _, _, _, Vec<AddressInput>, _) = fields;
                RouterInput {
                    name: name.into(),
                    created,
                    apex,
                    ttl: Ttl::new(ttl).expect("in range"),
                    mode,
                    addresses: addresses.into(),
                    records: records.into_iter().map(Into::into).collect(),
                    panic_percent,
                }
            };
            routers.into_iter().map(router).collect()
        })
    }

    fn bindings() -> impl Strategy<Value = Vec<BindingInput>> {
        let text = || "[a-z.]{0,20}";
        let host = || proptest::option::of(dns_name());
        let hosts = (host(), host());
        let binding = (any::<i64>(), text(), text(), vec(dns_name(), 0..3), proptest::option::of(text()), hosts);
        btree_map("[a-z]{1,9}/[a-z]{1,9}", binding, 0..4).prop_map(|bindings| {
            let binding = |(key, (created, label, shard, former_names, leads_to, hosts)): (String, _)| {
                let (label, shard, former_names, leads_to): (String, String, Vec<Name>, Option<String>) =
                    (label, shard, former_names, leads_to);
                let (adopted, custom) = hosts;
                BindingInput {
                    key: key.into(),
                    created,
                    label: label.into(),
                    shard: shard.into(),
                    former_names: former_names.into(),
                    leads_to: leads_to.map(Into::into),
                    adopted,
                    custom,
                }
            };
            bindings.into_iter().map(binding).collect()
        })
    }

    /// Returns any state without zones.
    pub fn state() -> impl Strategy<Value = Loaded> {
        let digest = || any::<u128>().prop_map(Digest);
        let published =
            (any::<u32>(), digest(), digest(), any::<bool>()).prop_map(|(serial, digest, config, provisional)| {
                Published { serial: Serial(serial), digest, config, provisional }
            });
        let published = vec((dns_name(), published), 0..4).prop_map(NameMap::from_iter);
        let held = btree_map("[a-z]{1,9}", (select(DeletionHoldKind::ALL.to_vec()), digest()), 0..4);
        let held =
            held.prop_map(|held| held.into_iter().map(|(name, (kind, hold))| (kind, name.into(), hold)).collect());
        let servers = || vec(("[a-z.]{1,9}", vec(any::<IpAddr>(), 0..3)), 0..3);
        let domain = ("[a-z.]{1,9}", servers(), vec("[a-z0-9:]{1,9}", 0..3), ".{0,9}").prop_map(
            |(domain, name_servers, transports, https_path)| FormerDomain {
                domain,
                name_servers,
                transports,
                https_path,
            },
        );
        let challenge = ("[a-z]{1,9}", dns_name(), "[ -~]{1,43}", any::<i64>(), any::<i64>());
        let challenges = btree_map("[a-z]{1,9}/[a-z]{1,9}", challenge, 0..4).prop_map(|challenges| {
            let challenge =
                |(key, (namespace, owner, value, created, expires)): (String, (String, _, String, _, _))| {
                    let (namespace, value) = (namespace.into(), value.into());
                    (key.into(), ChallengeInput { namespace, owner, value, created, expires })
                };
            challenges.into_iter().map(challenge).collect()
        });
        let state = ("[a-z.]{1,20}", routers(), bindings(), published, held, vec(domain, 0..3), challenges);
        state.prop_map(|(domain, routers, bindings, published, held, domains, challenges)| {
            sorted(Loaded { domain, routers, bindings, published, zones: Vec::new(), held, domains, challenges })
        })
    }

    /// Returns the entries of a state without zones.
    pub fn entries(state: &Loaded) -> Vec<(Vec<u8>, Vec<u8>)> {
        let routers = state.routers.iter().map(|one| router(&one.name, Some(one)));
        let bindings = state.bindings.iter().map(|one| binding(&one.key, Some(one)));
        let published = state.published.iter().map(|(apex, published)| zone(apex, Some(published), None));
        let holds = state.held.iter().map(|(kind, name, hold)| held(*kind, name, Some(*hold)));
        let challenges = state.challenges.iter().map(|(key, one)| challenge(key, Some(one)));
        let changes = routers.chain(bindings).chain(published).chain(holds).chain([domains(&state.domains)]);
        let changes = changes.chain(challenges);
        let entries = changes.map(|(key, value)| (key, value.expect("it is put")));
        entries.chain([domain(&state.domain)]).collect()
    }

    /// Returns the state with its lists in the order of their names: they are read in any order.
    pub fn sorted(mut state: Loaded) -> Loaded {
        state.routers.sort_by(|a, b| a.name.cmp(&b.name));
        state.bindings.sort_by(|a, b| a.key.cmp(&b.key));
        state.challenges.sort_by(|a, b| a.0.cmp(&b.0));
        state.held.sort_by(|a, b| (a.0 as u8, &a.1).cmp(&(b.0 as u8, &b.1)));
        state
    }

    fn live(entries: &[(Vec<u8>, Vec<u8>)]) -> LiveEntries<'_> {
        entries.iter().map(|(key, value)| (&key[..], &value[..])).collect()
    }

    proptest! {
        #[test]
        fn a_state_reads_back(state in state()) {
            let entries = entries(&state);
            let found = load(live(&entries)).map(sorted);
            prop_assert_eq!(found.as_ref(), Some(&state));
            for at in 0..entries.len() {
                let mut longer = entries.clone();
                longer[at].1.push(0);
                prop_assert!(load(live(&longer)).is_none(), "octets after a value");
                let mut shorter = entries.clone();
                shorter[at].1.pop();
                prop_assert!(load(live(&shorter)).is_none(), "a value cut short");
            }
        }

        /// The checksums of the journal exclude other octets, but none of them may end the process.
        #[test]
        fn other_octets_are_read_or_rejected(
            state in state(), entry in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), octet in any::<u8>(),
        ) {
            let mut entries = entries(&state);
            let entry = entry.index(entries.len());
            let (key, value) = &mut entries[entry];
            let at = at.index(key.len() + value.len());
            *key.iter_mut().chain(value).nth(at).expect("it is within both") = octet;
            if let Some(found) = load(live(&entries)) {
                let found = sorted(Loaded { zones: Vec::new(), ..found });
                let written = self::entries(&found);
                prop_assert_eq!(load(live(&written)).map(sorted), Some(found));
            }
        }
    }

    fn sample() -> Loaded {
        let address = |ip: &str, active, health| AddressInput {
            ip: ip.parse().expect("an address"),
            active,
            priority: 3,
            weight: 7,
            health,
        };
        let router = RouterInput {
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
        let binding = BindingInput {
            key: "ns/r".into(),
            created: 9,
            label: "ns-r".into(),
            shard: "shard1.v3.example".into(),
            former_names: Box::from([name("shard0.v3.example."), name("old.example.")]),
            adopted: None,
            custom: Some(name("www.v3.example.")),
            leads_to: Some("shard0.v3.example".into()),
        };
        let published =
            Published { serial: Serial(u32::MAX), digest: Digest(u128::MAX), config: Digest(1), provisional: true };
        Loaded {
            domain: "v3.example".to_owned(),
            routers: vec![router],
            bindings: vec![binding],
            published: NameMap::from_iter([(name("v3.example."), published)]),
            zones: Vec::new(),
            held: vec![(DeletionHoldKind::RouteBinding, "ns/gone".into(), Digest(7))],
            domains: vec![FormerDomain {
                domain: "v3.example".to_owned(),
                name_servers: vec![("ns1.v3.example".to_owned(), vec![IpAddr::from([192, 0, 2, 53])])],
                transports: vec!["dot".to_owned()],
                https_path: "/dns-query".to_owned(),
            }],
            challenges: vec![(
                "ns/c".into(),
                ChallengeInput {
                    namespace: "ns".into(),
                    owner: name("_acme-challenge.ns-r.shard1.v3.example."),
                    value: "proof".into(),
                    created: 10,
                    expires: 3_610,
                },
            )],
        }
    }

    /// The encoding of an unchanged version: if this fails, [`VERSION`] needs another number, and this test another sum.
    #[test]
    fn the_format_is_the_one_of_its_version() {
        let octets: Vec<u8> = entries(&sample()).into_iter().flat_map(|(key, value)| [key, value].concat()).collect();
        let sum = octets.iter().fold(0u64, |sum, octet| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*octet));
        assert_eq!((VERSION, octets.len(), sum), (4, 349, 17_403_911_841_229_861_835));
    }

    #[test]
    fn zones_read_back() {
        let published = sample().published[&name("v3.example.")];
        let soa = [name("ns.example.").as_wire(), name("admin.example.").as_wire(), &[7; 20]].concat().into();
        let mut contents = Contents::new(name("Shard1.v3.example."));
        let ttl = Ttl::new(30).expect("small");
        contents.add(name("shard1.v3.example."), RecordType::SOA, ttl, soa).expect("in the zone");
        let image = Zone::build(contents.clone()).expect("it has a SOA");
        let (key, value) = zone(&name("Shard1.v3.example."), Some(&published), Some(&image));
        let loaded = load(live(&[(key, value.expect("it is put"))])).expect("it was written here");
        assert_eq!(loaded.published, NameMap::from_iter([(name("shard1.v3.example."), published)]));
        let [(apex, octets)] = &loaded.zones[..] else { panic!("{} zones", loaded.zones.len()) };
        let zone = stored::restore(octets).expect("it was stored");
        assert_eq!((apex, zone.contents()), (&name("shard1.v3.example."), contents));
    }
}
