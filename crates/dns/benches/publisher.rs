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
        db.publish(Zone::build(&contents).expect("a zone"));
        let took = start.elapsed();
        black_box(reader.snapshot().zone_count());
        took
    };
    percentiles("one zone among 100,000", &mut one_zone);
    group.bench_function("one zone among 100,000", |bencher| {
        bencher.iter_custom(|iterations| (0..iterations).map(|_| one_zone()).sum());
    });

    let db = ZoneDb::new();
    let start = Instant::now();
    let zone = Zone::build(&aliases()).expect("a zone");
    println!("{NAMES} aliases compiled in {:?}, {} octets per name", start.elapsed(), zone.octets() / NAMES as usize);
    db.publish(zone);
    let mut reader = db.reader();
    let mut turn = 0u32;
    let mut one_name = || {
        turn = turn.wrapping_add(1);
        let owner = match turn % 4 {
            0 => alias(NAMES + turn),
            _ => alias(turn.wrapping_mul(7919) % NAMES),
        };
        let changes = [
            OwnerChange { owner, rrsets: vec![rrset(RecordType::CNAME, &target(turn))], weights: vec![] },
            OwnerChange { owner: name(APEX), rrsets: apex_rrsets(turn), weights: vec![] },
        ];
        let start = Instant::now();
        let zone = db.get(&name(APEX)).expect("was published").with_changes(&changes).expect("a zone");
        db.publish(zone);
        let took = start.elapsed();
        black_box(reader.snapshot().zone_count());
        took
    };
    percentiles("one name among 1,000,000", &mut one_name);
    group.bench_function("one name among 1,000,000", |bencher| {
        bencher.iter_custom(|iterations| (0..iterations).map(|_| one_name()).sum());
    });
    group.finish();
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

fn aliases() -> Contents {
    let mut contents = Contents::new(name(APEX));
    for rrset in apex_rrsets(1) {
        contents.set(name(APEX), rrset).expect("in the zone");
    }
    for index in 0..NAMES {
        contents.set(alias(index), rrset(RecordType::CNAME, &target(index))).expect("in the zone");
    }
    contents
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
    Zone::build(&shard_contents(index, serial)).expect("a zone")
}

criterion_group!(benches, publisher);
criterion_main!(benches);
