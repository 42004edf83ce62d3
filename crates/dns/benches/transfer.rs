//! Transfers of a zone with a million names, without the network: AXFR, and IXFR of one change.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use signpost_dns::nameserver::hand_off::{Answer, HandOff, HandOffKind, Handler, Progress};
use signpost_dns::nameserver::{Context, Peer, Settings, Stats, Transport};
use signpost_dns::transfer::{Rule, Transfers};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::builder::OwnerChange;
use signpost_dns::zone::publish::{Change, Origin, Publisher, What, build};
use signpost_dns::zone::{Contents, Rrset, Serial, Ttl, ZoneDb};

const NAMES: u32 = 1_000_000;
const APEX: &str = "routes.example.";

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// A zone of aliases, with this serial.
fn aliases() -> Contents {
    let mut contents = Contents::new(name(APEX));
    let ttl = Ttl::new(60).expect("a TTL");
    let soa = [name("ns.example.").as_wire(), name("admin.example.").as_wire(), &[0, 0, 0, 1], &[0; 16]].concat();
    contents.add(name(APEX), RecordType::SOA, ttl, soa.into()).expect("in the zone");
    contents.add(name(APEX), RecordType::NS, ttl, name("ns.example.").as_wire().into()).expect("in the zone");
    for number in 0..NAMES {
        let target = name(&format!("team-app{number}.shard{}.example.", number % 50));
        let owner = name(&format!("team-app{number}.{APEX}"));
        contents.add(owner, RecordType::CNAME, ttl, target.as_wire().into()).expect("in the zone");
    }
    contents
}

/// Returns the number of messages and of octets of the answer.
fn transfer(transfers: &Transfers, zones: &Publisher, message: &[u8], buffer: &mut [u8]) -> (usize, usize) {
    let address = "192.0.2.1:4000".parse().expect("an address");
    let peer = Peer { address, transport: Transport::Tcp, now: 0, random: 0, keepalive: None };
    let (settings, stats, snapshot) = (Settings::default(), Stats::new(), zones.db().snapshot());
    let context = Context { snapshot: &snapshot, settings: &settings, stats: &stats, limiter: None };
    let request = HandOff::of(HandOffKind::Transfer, message, &peer, &context, None).expect("it has a question");
    let Some(Answer::Many(mut cursor)) = transfers.answer(&request) else { panic!("it is permitted") };
    let (mut messages, mut sum) = (0, 0);
    loop {
        messages += 1;
        match cursor.fill(buffer) {
            Progress::More(octets) => sum += black_box(octets),
            Progress::Last(octets) => return (messages, sum + octets),
        }
    }
}

fn transfers(criterion: &mut Criterion) {
    let networks = vec!["0.0.0.0/0".parse().expect("a prefix")];
    let transfers = Arc::new(Transfers::new(vec![Rule { zones: Vec::new(), networks, keys: Vec::new(), tls: false }]));
    let zones = Publisher::new(Arc::new(ZoneDb::new()));
    let listener = Arc::clone(&transfers);
    zones.listen(move |step| listener.record(step));
    zones.publish([Change::whole(Origin::Objects, build(aliases()).expect("a zone"))]);
    let question =
        |qtype: u8| [&[0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], name(APEX).as_wire(), &[0, qtype, 0, 1]].concat();
    let mut buffer = vec![0; 65_535];

    let mut group = criterion.benchmark_group("transfer");
    group.measurement_time(Duration::from_secs(5)).sample_size(10);
    let axfr = question(252);
    let start = Instant::now();
    let (messages, octets) = transfer(&transfers, &zones, &axfr, &mut buffer);
    let took = start.elapsed();
    let rate = f64::from(NAMES) / took.as_secs_f64();
    println!("AXFR of {NAMES} names: {messages} messages, {octets} octets, {took:?}, {rate:.0} names per second");
    group.bench_function("AXFR of a million names", |bencher| {
        bencher.iter(|| transfer(&transfers, &zones, &axfr, &mut buffer));
    });

    let mut serial = 1u32;
    group.bench_function("one change in a million names, and its IXFR", |bencher| {
        bencher.iter(|| {
            let mut ixfr = question(251);
            ixfr[9] = 1;
            ixfr.extend_from_slice(b"\xc0\x0c\0\x06\0\x01\0\0\0\0\0\x16\0\0");
            ixfr.extend_from_slice(&serial.to_be_bytes());
            ixfr.extend_from_slice(&[0; 16]);
            serial += 1;
            let target = name(&format!("moved{serial}.shard1.example."));
            let rdata = vec![target.as_wire().into()];
            let rrsets = vec![Rrset { rtype: RecordType::CNAME, ttl: Ttl::new(60).expect("a TTL"), rdata }];
            let owner = name(&format!("team-app{}.{APEX}", serial % NAMES));
            let changes = vec![OwnerChange { owner, rrsets, weights: Vec::new() }];
            zones.publish([Change::of(&name(APEX), Origin::Objects, What::Owners { changes, serial: Serial(serial) })]);
            let (messages, octets) = transfer(&transfers, &zones, &ixfr, &mut buffer);
            assert!(messages == 1 && octets < 1_000, "the difference, not the zone");
        });
    });
    group.finish();
}

criterion_group!(benches, transfers);
criterion_main!(benches);
