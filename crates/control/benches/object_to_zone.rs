//! The cost of the name server's loop, from a changed object to the published zone, without the API.
//!
//! Bars (docs/performance.md): one changed zone among 100,000 within 2 ms p99 from the event to the new answer; one name
//! into an alias zone of 1,000,000 within 200 µs p99 of publisher time; 100,000 zones served from the last-good state
//! within 1 s. `SIGNPOST_BENCH_SCALE=0.01` makes everything a hundredth of that.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use signpost_control::compiler::health::{AddressInput, Health};
use signpost_control::compiler::inputs::{BindingInput, RouterInput};
use signpost_control::compiler::settings::text_of;
use signpost_control::compiler::{Platform, Settings, ShardView};
use signpost_control::name_server::domain::Domains;
use signpost_control::name_server::last_known_good::LastKnownGood;
use signpost_control::name_server::platform_zones::{Output, Zones};
use signpost_control::name_server::record;
use signpost_control::name_server::restore::Restored;
use signpost_dns::zone::parallel::in_parallel;
use signpost_dns::zone::publish::Publisher;
use signpost_dns::zone::{Serial, Ttl, ZoneDb};
use signpost_types::v1alpha1::router::Mode;

/// Changes that are timed.
const SAMPLES: u32 = 2_000;

/// The program's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let scale = std::env::var("SIGNPOST_BENCH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1.0_f64);
    let count = |full: f64| (full * scale) as u32;
    let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
    let settings = Arc::new(settings.expect("good settings"));
    one_shard(&settings, count(100_000.0));
    one_alias(&settings, count(1_000_000.0));
    one_former_name(&settings, count(100_000.0));
    from_last_good(&settings, count(100_000.0));
}

fn router(number: u32, last_octet: u8) -> RouterInput {
    let health = Health::Unknown;
    let address = |octet| AddressInput { ip: [192, 0, 2, octet].into(), active: true, priority: 0, weight: 1, health };
    RouterInput {
        name: format!("shard{number}").into(),
        created: 0,
        apex: format!("shard{number}.v3.example").parse().expect("a name"),
        ttl: Ttl::new(30).expect("small"),
        mode: Mode::ActiveActive,
        addresses: Box::from([address(1), address(last_octet)]),
        records: Box::default(),
        panic_percent: 0,
    }
}

fn binding(number: u32, shard: u32) -> Arc<BindingInput> {
    Arc::new(BindingInput {
        key: format!("namespace/route{number}").into(),
        created: 0,
        label: format!("namespace-route{number}").into(),
        shard: format!("shard{shard}.v3.example").into(),
        former_names: Box::default(),
        adopted: None,
        custom: None,
        leads_to: None,
    })
}

fn platform(settings: &Settings, routers: u32, bindings: u32) -> Platform {
    let mut platform = Platform::new(settings);
    let mut ignored = Vec::new();
    for number in 0..routers {
        let shard = Arc::new(ShardView::new(router(number, 2), settings));
        platform.put(&shard.name.clone(), Some(shard), &mut ignored);
        ignored.clear();
    }
    for number in 0..bindings {
        let binding = binding(number, number % routers.max(1));
        platform.put(&binding.key.clone(), Some(binding), &mut ignored);
        ignored.clear();
    }
    platform
}

fn carry_out(output: Output, publisher: &Publisher) {
    publisher.publish(output.changes);
}

fn publisher() -> (Arc<ZoneDb>, Publisher) {
    let db = Arc::<ZoneDb>::default();
    (Arc::clone(&db), Publisher::new(db))
}

fn report(what: &str, bar: &str, mut samples: Vec<Duration>) {
    samples.sort_unstable();
    let at = |share: f64| samples[((samples.len() - 1) as f64 * share) as usize];
    println!("{what}: p50 {:?}, p99 {:?}, largest {:?} (bar {bar})", at(0.5), at(0.99), at(1.0));
}

/// A route leaves a shard that very many have left: its former name comes, the ledger names the serial, the zone is published.
fn one_former_name(settings: &Arc<Settings>, former_names: u32) {
    let (db, publisher) = publisher();
    let start = Instant::now();
    let left = |number: u32| {
        let apex = "shard0.v3.example".parse().expect("a name");
        Arc::new(BindingInput { former_names: Box::from([apex]), ..(*binding(number, 1)).clone() })
    };
    let mut platform = platform(settings, 2, 0);
    let mut ignored = Vec::new();
    for number in 0..former_names {
        let left = left(number);
        platform.put(&left.key.clone(), Some(left), &mut ignored);
        ignored.clear();
    }
    let apex = "shard0.v3.example".parse().expect("a name");
    let mut zones = Zones::new(platform.clone(), settings.clone(), start);
    carry_out(zones.publish_due(start + Duration::from_secs(3600), 1_800_000_000), &publisher);
    println!("a shard with {former_names} former names, made and published: {:?}", start.elapsed());
    let own = ShardView::new(router(0, 2), settings).digest;
    let mut samples = Vec::new();
    for sample in 0..SAMPLES {
        let moved = left(former_names + sample);
        platform.put(&moved.key, Some(moved.clone()), &mut ignored);
        ignored.clear();
        let digest = own.plus(platform.former_names(&apex).digest());
        let start = Instant::now();
        zones.put(&moved.key.clone(), Some(moved), start);
        zones.set_ledger(&apex, Arc::from([(Serial(1_800_000_001 + sample), digest)]));
        carry_out(zones.publish_due(start, 1_800_000_000), &publisher);
        samples.push(start.elapsed());
        assert_eq!(db.get(&apex).and_then(|zone| zone.serial()), Some(Serial(1_800_000_001 + sample)));
    }
    report(&format!("one former name among {former_names}, event to published"), "200 µs p99", samples);
}

/// A Router's address changes, the ledger names its serial, the zone is published.
fn one_shard(settings: &Arc<Settings>, shards: u32) {
    let (db, publisher) = publisher();
    let start = Instant::now();
    let mut zones = Zones::new(platform(settings, shards, 0), settings.clone(), start);
    let late = start + Duration::from_secs(3600);
    carry_out(zones.publish_due(late, 1_800_000_000), &publisher);
    println!("{shards} shards, made and published: {:?}", start.elapsed());
    let mut samples = Vec::new();
    for sample in 0..SAMPLES {
        let number = sample.wrapping_mul(7919) % shards;
        let changed = router(number, 3 + (sample % 250) as u8);
        let apex = changed.apex.clone();
        let start = Instant::now();
        let shard = Arc::new(ShardView::new(changed, settings));
        zones.put(&shard.name, Some(Arc::clone(&shard)), start);
        zones.set_ledger(&apex, Arc::from([(Serial(1_800_000_001 + sample), shard.digest)]));
        carry_out(zones.publish_due(start, 1_800_000_000), &publisher);
        samples.push(start.elapsed());
        assert_eq!(db.get(&apex).and_then(|zone| zone.serial()), Some(Serial(1_800_000_001 + sample)));
    }
    report(&format!("one shard of {shards}, event to published"), "2 ms p99", samples);
}

/// A new binding's alias among many.
fn one_alias(settings: &Arc<Settings>, aliases: u32) {
    let (db, publisher) = publisher();
    let start = Instant::now();
    let mut zones = Zones::new(platform(settings, 10, aliases), settings.clone(), start);
    carry_out(zones.publish_due(start + Duration::from_secs(3600), 1_800_000_000), &publisher);
    println!("{aliases} aliases, made and published: {:?}", start.elapsed());
    let mut samples = Vec::new();
    for sample in 0..SAMPLES {
        let new = binding(aliases + sample, sample % 10);
        let start = Instant::now();
        zones.put(&new.key.clone(), Some(new), start);
        let digest = zones.platform().alias_digest();
        zones.set_ledger(settings.alias_apex(), Arc::from([(Serial(1_800_000_001 + sample), digest)]));
        carry_out(zones.publish_due(start, 1_800_000_000), &publisher);
        samples.push(start.elapsed());
    }
    let served = db.get(settings.alias_apex()).expect("the alias zone");
    assert_eq!(served.serial(), Some(Serial(1_800_000_000 + SAMPLES)));
    report(&format!("one alias into {aliases}, event to published"), "200 µs p99", samples);
}

/// A restart while the API is down.
fn from_last_good(settings: &Arc<Settings>, shards: u32) {
    let folder = std::env::temp_dir().join(format!("signpost-bench-{}", std::process::id()));
    let domain = text_of(settings.domain());
    {
        let (state, _) = LastKnownGood::open(&folder, &Domains::unchanged(&domain)).expect("a folder of our own");
        let start = Instant::now();
        let mut zones = Zones::new(platform(settings, shards, 0), settings.clone(), start);
        let output = zones.publish_due(start + Duration::from_secs(3600), 1_800_000_000);
        let routers = zones.platform().routers().map(|router| record::router(&router.name, Some(router)));
        let step = publisher().1.publish(output.changes);
        let serials = step.swaps.iter().map(|swap| {
            let zone = swap.after.as_ref().map(|after| &*after.zone).filter(|zone| zone.apex() != settings.domain());
            record::zone(
                &swap.apex,
                zones.version(&swap.apex),
                zone.filter(|zone| zone.apex() != settings.alias_apex()),
            )
        });
        state.write(routers.chain(serials).collect());
    }
    let octets = std::fs::metadata(folder.join("last-good")).map_or(0, |metadata| metadata.len());
    let start = Instant::now();
    let (db, publisher) = publisher();
    let (state, opened) = LastKnownGood::open(&folder, &Domains::unchanged(&domain)).expect("the folder is there");
    let mut loaded = opened.loaded.expect("it was written");
    let read = start.elapsed();
    let restored = Restored::take(&mut loaded, settings);
    let made = start.elapsed();
    publisher.publish(restored.changes(settings));
    let served = start.elapsed();
    assert_eq!(db.zone_count(), shards as usize + 2);
    let mut platform = Platform::new(settings);
    let mut ignored = Vec::new();
    for (router, shard) in in_parallel(&loaded.routers, |router| Arc::new(ShardView::new(router.clone(), settings))) {
        platform.put(&router.name, Some(shard), &mut ignored);
    }
    let files = BTreeMap::new();
    let (zones, output) =
        Zones::restore(platform, settings.clone(), loaded.published, restored, files, Instant::now(), 1_800_000_000);
    carry_out(output, &publisher);
    println!(
        "{shards} shards from the last-good state of {octets} octets: read {read:?}, made {made:?}, served {served:?} (bar 1 s), objects known {:?}",
        start.elapsed()
    );
    assert_eq!(db.zone_count(), shards as usize + 2);
    black_box((state, zones));
    if let Err(error) = std::fs::remove_dir_all(&folder) {
        eprintln!("{}: {error}", folder.display());
    }
}
