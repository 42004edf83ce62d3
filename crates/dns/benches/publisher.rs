//! The publisher alone: from a change to the moment when readers see it.
//!
//! In addition to criterion's mean, each case prints its median and its 99th percentile. The bars are those of
//! DESIGN.md §10: 200 µs for one name in an alias zone of 1,000,000.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::db::ZoneDb;
use signpost_dns::zone::{Contents, OwnerChange, Rrset, Ttl, Zone};

const ZONES: u32 = 100_000;
const NAMES: u32 = 1_000_000;

fn publisher(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("publisher");
    group.measurement_time(Duration::from_secs(3)).sample_size(20);

    let db = ZoneDb::new();
    let start = Instant::now();
    db.publish_many((0..ZONES).map(|index| shard(index, 0)));
    let octets: usize = db.zones().iter().map(|zone| zone.octets()).sum();
    println!(
        "{ZONES} zones compiled and published in {:?}, {} octets of image a zone",
        start.elapsed(),
        octets / ZONES as usize
    );
    // A reader that polls at intervals, as workers do: versions are kept for it.
    let mut reader = db.reader();
    let mut turn = 0u32;
    let mut one_zone = || {
        turn = turn.wrapping_add(1);
        let contents = shard_contents(turn.wrapping_mul(7919) % ZONES, turn);
        let start = Instant::now();
        db.publish(Zone::build(contents).expect("a zone"));
        let took = start.elapsed();
        black_box(reader.snapshot().zone_count());
        took
    };
    percentiles("one zone among 100,000", &mut one_zone);
    group.bench_function("one zone among 100,000", |bencher| {
        bencher.iter_custom(|iterations| (0..iterations).map(|_| one_zone()).sum());
    });

    for (what, is_signed) in [("one name among 1,000,000", false), ("one name among 1,000,000, signed", true)] {
        let db = ZoneDb::new();
        let contents = aliases(is_signed);
        let start = Instant::now();
        let zone = Zone::build(contents).expect("a zone");
        println!("{what}: compiled in {:?}, {} octets per name", start.elapsed(), zone.octets() / NAMES as usize);
        db.publish(zone);
        let mut reader = db.reader();
        let mut turn = 0u32;
        let mut one_name = || {
            turn = turn.wrapping_add(1);
            let changes = one_change(turn, is_signed);
            let start = Instant::now();
            let zone = db.get(&name(APEX)).expect("was published").with_changes(&changes).expect("a zone");
            db.publish(zone);
            let took = start.elapsed();
            black_box(reader.snapshot().zone_count());
            took
        };
        percentiles(what, &mut one_name);
        group.bench_function(what, |bencher| {
            bencher.iter_custom(|iterations| (0..iterations).map(|_| one_name()).sum());
        });
    }
    group.finish();
}

/// A new alias or another target, with a new serial; in a signed zone also another proof of a neighbor.
fn one_change(turn: u32, is_signed: bool) -> Vec<OwnerChange> {
    let known = |turn: u32| alias(turn.wrapping_mul(7919) % NAMES);
    let owner = if turn.is_multiple_of(4) { alias(NAMES + turn) } else { known(turn) };
    let cname = |turn| vec![rrset(RecordType::CNAME, &target(turn))];
    let mut changes = vec![(owner.clone(), cname(turn)), (name(APEX), apex_rrsets(turn))];
    if is_signed {
        changes.push((known(turn + 1), cname(turn + 1)));
        changes.iter_mut().for_each(|(_, rrsets)| rrsets.extend(proof(&owner)));
    }
    changes.into_iter().map(|(owner, rrsets)| OwnerChange { owner, rrsets, weights: vec![] }).collect()
}

fn percentiles(what: &str, once: &mut dyn FnMut() -> Duration) {
    let mut times: Vec<Duration> = (0..20_000).map(|_| once()).collect();
    times.sort();
    println!("{what}: median {:?}, 99th percentile {:?}, most {:?}", times[10_000], times[19_800], times[19_999]);
}

const APEX: &str = "routes.v3.example.";

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn ttl() -> Ttl {
    Ttl::new(60).expect("is small")
}

fn rrset(rtype: RecordType, rdata: &[u8]) -> Rrset {
    Rrset { rtype, ttl: ttl(), rdata: vec![rdata.into()] }
}

fn apex_rrsets(serial: u32) -> Vec<Rrset> {
    let server = name("ns1.v3.example.");
    let soa = [server.as_wire(), name("hostmaster.v3.example.").as_wire(), &serial.to_be_bytes(), &[1; 16]].concat();
    vec![rrset(RecordType::SOA, &soa), rrset(RecordType::NS, server.as_wire())]
}

fn alias(index: u32) -> Name {
    name(&format!("namespace{}-route{index}.{APEX}", index % 1000))
}

fn target(index: u32) -> Vec<u8> {
    name(&format!("namespace{}-route{index}.shard{}.v3.example.", index % 1000, index % 50)).as_wire().to_vec()
}

fn aliases(are_signed: bool) -> Contents {
    let mut contents = Contents::new(name(APEX));
    let mut set = |owner: &Name, rrsets: Vec<Rrset>| {
        let proof = if are_signed { proof(owner).into() } else { vec![] };
        for rrset in rrsets.into_iter().chain(proof) {
            contents.set(owner.clone(), rrset).expect("in the zone");
        }
    };
    set(&name(APEX), apex_rrsets(1));
    for index in 0..NAMES {
        set(&alias(index), vec![rrset(RecordType::CNAME, &target(index))]);
    }
    contents
}

/// An NSEC record, and octets in place of its signature.
fn proof(next: &Name) -> [Rrset; 2] {
    let nsec = [next.as_wire(), &[0, 1, 4]].concat();
    let signature = [&RecordType::NSEC.0.to_be_bytes()[..], &[13; 16], name(APEX).as_wire(), &[7; 64]].concat();
    [rrset(RecordType::NSEC, &nsec), rrset(RecordType::RRSIG, &signature)]
}

fn shard_contents(index: u32, serial: u32) -> Contents {
    let apex = name(&format!("shard{index}.v3.example."));
    let mut contents = Contents::new(apex.clone());
    for rrset in apex_rrsets(serial) {
        contents.set(apex.clone(), rrset).expect("in the zone");
    }
    let wildcard = apex.wildcard().expect("is short");
    for address in 0..4u8 {
        let [_, b, c, _] = index.to_be_bytes();
        contents
            .add(wildcard.clone(), RecordType::A, ttl(), [b, c, serial as u8, address].into())
            .expect("in the zone");
    }
    contents
}

fn shard(index: u32, serial: u32) -> Zone {
    Zone::build(shard_contents(index, serial)).expect("a zone")
}

criterion_group!(benches, publisher);
criterion_main!(benches);
