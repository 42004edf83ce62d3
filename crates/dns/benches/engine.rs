//! The query engine alone: nanoseconds a query, one core, no sockets.
//!
//! A platform as DESIGN.md has it: a parent zone with a delegation for each shard, and a zone with a wildcard of four A
//! records for each. Queries have EDNS, random labels, and visit shards in random order, so that with 100,000 zones hardly a
//! zone is in the nearer caches when it is queried.
//!
//! Prints the processor time of this thread where the kernel reports it, so that neighbours on the machine count only
//! by what they do to the caches; elsewhere it is time on the wall.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use signpost_dns::nameserver::cookie::{Cookies, Secret};
use signpost_dns::nameserver::rrl::RateLimit;
use signpost_dns::nameserver::{
    BATCH_MAX, Context, Exchange, Limiter, Outcome, Peer, Response, Scratch, Settings, Stats, Transport, respond,
    respond_batch,
};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::db::ZoneDb;
use signpost_dns::zone::policy::Policies;
use signpost_dns::zone::{Contents, Ttl, Zone};

const QUERIES: usize = 1 << 16;
const PARENT: &str = "v3.example.";
/// Zones with counters of their own: the default of `--metrics-zones`.
const COUNTED_ZONES: usize = 200;

fn main_group(criterion: &mut Criterion) {
    for zones in [100, 1_000, 100_000] {
        let db = platform(zones);
        let mut group = criterion.benchmark_group(format!("engine/{zones} zones"));
        group.measurement_time(Duration::from_secs(3)).sample_size(20);
        for (kind, queries) in questions(zones) {
            group.bench_function(BenchmarkId::new(kind, "single"), |bencher| {
                bencher.iter_custom(|iterations| single(&db, &queries, iterations));
            });
            group.bench_function(BenchmarkId::new(kind, "batch"), |bencher| {
                bencher.iter_custom(|iterations| batched(&db, &Guard::off(), &queries, iterations));
            });
        }
        for (kind, guard, queries) in guarded(zones) {
            group.bench_function(BenchmarkId::new(kind, "batch"), |bencher| {
                bencher.iter_custom(|iterations| batched(&db, &guard, &queries, iterations));
            });
        }
        group.finish();
    }
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn ttl() -> Ttl {
    Ttl::new(60).expect("is small")
}

fn zone(apex: &str, fill: impl FnOnce(&mut Contents)) -> Zone {
    let mut contents = Contents::new(name(apex));
    let soa = [name("ns1.v3.example.").as_wire(), name("hostmaster.v3.example.").as_wire(), &[1; 20]].concat();
    let mut add = |rtype, rdata: &[u8]| contents.add(name(apex), rtype, ttl(), rdata.into()).expect("in the zone");
    add(RecordType::SOA, &soa);
    add(RecordType::NS, name("ns1.v3.example.").as_wire());
    add(RecordType::NS, name("ns2.v3.example.").as_wire());
    fill(&mut contents);
    Zone::build(contents).expect("a zone")
}

fn platform(zones: u32) -> ZoneDb {
    let db = ZoneDb::with_policies(COUNTED_ZONES, Policies::default());
    let parent = zone(PARENT, |contents| {
        let mut add = |owner: &str, rtype, rdata: &[u8]| {
            contents.add(name(owner), rtype, ttl(), rdata.into()).expect("in the zone");
        };
        add("ns1.v3.example.", RecordType::A, &[192, 0, 2, 1]);
        add("ns2.v3.example.", RecordType::A, &[192, 0, 2, 2]);
        for index in 0..zones {
            let owner = format!("shard{index}.{PARENT}");
            add(&owner, RecordType::NS, name("ns1.v3.example.").as_wire());
            add(&owner, RecordType::NS, name("ns2.v3.example.").as_wire());
            let owner = format!("away{index}.{PARENT}");
            let server = format!("ns.{owner}");
            add(&owner, RecordType::NS, name(&server).as_wire());
            add(&server, RecordType::A, &index.to_be_bytes());
        }
    });
    let shards = (0..zones).map(|index| {
        zone(&format!("shard{index}.{PARENT}"), |contents| {
            for address in 0..4u8 {
                let [_, b, c, d] = index.to_be_bytes();
                contents
                    .add(name(&format!("*.shard{index}.{PARENT}")), RecordType::A, ttl(), [b, c, d, address].into())
                    .expect("in the zone");
            }
        })
    });
    db.publish_many(shards);
    db.publish(parent);
    db.set_ready();
    db
}

fn questions(zones: u32) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 16
    };
    let mut many = |build: &dyn Fn(u64, u64) -> Vec<u8>| (0..QUERIES).map(|_| build(random(), random())).collect();
    let zones = u64::from(zones);
    vec![
        ("hit A", many(&|a, b| query(&format!("app-{:x}.shard{}.{PARENT}", a % 0xfff_ffff, b % zones), RecordType::A))),
        (
            "nodata AAAA",
            many(&|a, b| query(&format!("app-{:x}.shard{}.{PARENT}", a % 0xfff_ffff, b % zones), RecordType::AAAA)),
        ),
        ("nxdomain", many(&|a, _| query(&format!("app-{:x}.{PARENT}", a % 0xfff_ffff), RecordType::A))),
        (
            "referral",
            many(&|a, b| query(&format!("app-{:x}.away{}.{PARENT}", a % 0xfff_ffff, b % zones), RecordType::A)),
        ),
    ]
}

fn query(owner: &str, qtype: RecordType) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    message.extend_from_slice(name(owner).as_wire());
    message.extend_from_slice(&qtype.0.to_be_bytes());
    message.extend_from_slice(&[0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    message
}

fn peer(random: u32) -> Peer {
    Peer {
        address: SocketAddr::from(([192, 0, 2, 53], 4000)),
        transport: Transport::Udp,
        now: 1_800_000_000,
        random,
        keepalive: None,
    }
}

fn single(db: &ZoneDb, queries: &[Vec<u8>], iterations: u64) -> Duration {
    let (mut reader, settings, stats) = (db.reader(), Settings::default(), Stats::with_zones(COUNTED_ZONES));
    let mut buffer = [0; 1232];
    let start = now();
    for (turn, query) in (0..iterations).zip(queries.iter().cycle()) {
        let context = Context { snapshot: reader.snapshot(), settings: &settings, stats: &stats, limiter: None };
        let mut response = Response::new(&mut buffer);
        let outcome = respond(&context, query, &peer((turn as u32).wrapping_mul(0x9e37_79b9)), &mut response);
        assert_eq!(outcome, Outcome::Reply);
        black_box(response.octets());
    }
    now().saturating_sub(start).max(Duration::from_nanos(1))
}

/// Settings, and a table if they limit answers.
struct Guard {
    settings: Settings,
    limiter: Option<Limiter>,
}

impl Guard {
    fn off() -> Self {
        Guard { settings: Settings::default(), limiter: None }
    }

    fn on(cookies: bool, limit: bool) -> Self {
        let first = Secret::new([7; 16]);
        let settings = Settings {
            cookies: cookies.then(|| Cookies { first, others: Box::default(), required: false }),
            // Never reached: what is measured is the counting.
            rate_limit: limit.then(|| RateLimit { per_second: 1_000_000, window: 3_600, ..RateLimit::default() }),
            ..Settings::default()
        };
        Guard { settings, limiter: limit.then(|| Limiter::new([1, 2])) }
    }
}

/// Answers as `hit A` with cookies and rate limiting: what the two cost, each and together.
fn guarded(zones: u32) -> Vec<(&'static str, Guard, Vec<Vec<u8>>)> {
    let plain = questions(zones).swap_remove(0).1;
    let client = |query: &Vec<u8>| with_cookie(query, b"client-1");
    let clients: Vec<Vec<u8>> = plain.iter().map(client).collect();
    // What the first answer brought, of which the address and the time are all queries'.
    let guard = Guard::on(true, false);
    let db = platform(1);
    let (mut reader, stats, mut buffer) = (db.reader(), Stats::with_zones(COUNTED_ZONES), [0; 1232]);
    let context = Context { snapshot: reader.snapshot(), settings: &guard.settings, stats: &stats, limiter: None };
    let mut response = Response::new(&mut buffer);
    respond(&context, &clients[0], &peer(0), &mut response);
    let full = response.octets().last_chunk::<24>().expect("the cookie is the last of an answer").to_owned();
    let good = plain.iter().map(|query| with_cookie(query, &full)).collect();
    vec![
        ("hit A, cookie ignored", Guard::off(), clients.clone()),
        ("hit A, limited", Guard::on(false, true), plain),
        ("hit A, cookie made", Guard::on(true, false), clients.clone()),
        ("hit A, cookie made, limited", Guard::on(true, true), clients),
        ("hit A, good cookie, exempt", Guard::on(true, true), good),
    ]
}

/// A copy of `query` with a cookie in its OPT record, which has no other option.
fn with_cookie(query: &[u8], cookie: &[u8]) -> Vec<u8> {
    let mut message = query[..query.len() - 2].to_vec();
    message.extend_from_slice(&(cookie.len() as u16 + 4).to_be_bytes());
    message.extend_from_slice(&[0, 10, 0, cookie.len() as u8]);
    message.extend_from_slice(cookie);
    message
}

fn batched(db: &ZoneDb, guard: &Guard, queries: &[Vec<u8>], iterations: u64) -> Duration {
    let (mut reader, stats) = (db.reader(), Stats::with_zones(COUNTED_ZONES));
    let (settings, limiter) = (&guard.settings, guard.limiter.as_ref());
    let mut scratch = Scratch::new();
    let mut arena = vec![0u8; BATCH_MAX * 1232];
    let mut batches = queries.chunks_exact(BATCH_MAX).cycle();
    let rounds = iterations.div_ceil(BATCH_MAX as u64);
    let start = now();
    for round in 0..rounds {
        let context = Context { snapshot: reader.snapshot(), settings, stats: &stats, limiter };
        let queries = batches.next().expect("goes round");
        let mut exchanges: Vec<Exchange<'_>> = queries
            .iter()
            .zip(arena.chunks_exact_mut(1232))
            .zip(0u32..)
            .map(|((query, buffer), index)| {
                Exchange::new(query, peer((round as u32 * 64 + index).wrapping_mul(0x9e37_79b9)), buffer)
            })
            .collect();
        respond_batch(&context, &mut scratch, &mut exchanges);
        for exchange in &exchanges {
            black_box(exchange.response.octets());
        }
    }
    let took = now().saturating_sub(start).max(Duration::from_nanos(1));
    took.mul_f64(iterations as f64 / (rounds * BATCH_MAX as u64) as f64)
}

/// Processor time of this thread, or time on the wall, since some moment.
fn now() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // The kernel adds up a thread's time when it leaves the processor.
    std::thread::yield_now();
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = schedstat.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok());
    nanoseconds.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

criterion_group!(benches, main_group);
criterion_main!(benches);
