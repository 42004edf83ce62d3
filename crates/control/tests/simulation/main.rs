//! The whole control plane and its name servers in one thread, under virtual time: several processes with schedulers and all
//! other loops, several name servers, and one API with every possible fault. A seed determines all events; the invariants are
//! checked after every commit of the API and every publication of a zone ([`truth`]).
//!
//! - `SIMULATION_SEEDS` (a number; [`SEEDS`]) runs more.
//! - `SIMULATION_SEED=7 cargo test --test simulation one_seed` runs one, and `SIMULATION_TRACE=1` prints its events.

mod agent;
mod api;
mod chance;
mod connection;
mod control_plane;
mod life;
mod name_server;
mod outside;
mod person;
mod scenarios;
mod source_cluster;
mod system;
mod truth;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use signpost_control::compiler::Settings;
use signpost_control::compiler::settings::NameServer;

/// The program's allocator. That of the C library takes ten percent more time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DOMAIN: &str = "v3.example";
/// The retention of a former name.
const FORMER_NAME: Duration = Duration::from_secs(900);
const SERVERS: [&str; 3] = ["ns1", "ns2", "ns3"];
/// The processes that may lead.
const PLANES: [&str; 3] = ["plane1", "plane2", "plane3"];
/// The instances that start and stop, each with its address, all of one Router.
const AGENTS: [(&str, Ipv4Addr); 2] =
    [("agent1", Ipv4Addr::new(10, 55, 0, 1)), ("agent2", Ipv4Addr::new(10, 55, 0, 2))];
/// A serial that is ahead of every clock.
const AHEAD: u32 = 3_000_000_000;
/// The most Routers.
const SHARDS: u64 = 5;
/// The Router that has instances.
const WITH_INSTANCES: &str = "shard2";
/// The panic threshold.
const PANIC_PERCENT: u32 = 50;
/// The time for which a host stays verified without its record.
const GRACE: Duration = Duration::from_secs(300);
/// The duration of a name server's watch, the longest time for which it denies names without word from the API, and the time after
/// which Routes do not wait for one that does not answer. Longer than in the program: renewed watches are most of the events in calm.
const WATCH: Duration = Duration::from_secs(40);
const DENIAL: Duration = Duration::from_secs(120);
const SILENCE: Duration = Duration::from_secs(125);
/// The value of the label `pool` that no Router selects.
const NOWHERE: &str = "nowhere";
const SEEDS: u64 = 72;
/// The number of parallel runs: each is a process of one thread.
const AT_A_TIME: usize = 2;

/// Returns the zone of a Router. Some are inside another one, whose Router can be missing.
fn dns_of(router: &str) -> String {
    match router {
        "shard4" => format!("shard4.{}", dns_of("shard1")),
        "shard5" => format!("shard5.{}", dns_of("shard4")),
        name => format!("{name}.{DOMAIN}"),
    }
}

/// Returns the platform's settings, the same for all processes.
fn settings() -> Arc<Settings> {
    let server = |(number, name): (usize, &&str)| NameServer {
        name: format!("{name}.{DOMAIN}").parse().expect("a name"),
        addresses: vec![address_of(number).ip()],
    };
    let servers = SERVERS.iter().enumerate().map(server).collect();
    Arc::new(Settings::new(DOMAIN, servers, &[]).expect("good settings"))
}

fn address_of(number: usize) -> SocketAddr {
    let octet = u8::try_from(number + 1).expect("few");
    // Not an address for documentation, which is never queried.
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 53, 0, octet)), 53)
}

/// Runs one seed in a process of its own, because some values from the system's entropy are created once per process.
fn run_one(seed: u64) -> Output {
    let program = std::env::current_exe().expect("this executable");
    let mut command = Command::new(program);
    command.args(["one_seed", "--exact", "--nocapture"]).env("SIMULATION_SEED", seed.to_string());
    command.stdin(Stdio::null()).output().expect("it runs")
}

/// The last line of a seed's output.
#[derive(Debug, PartialEq)]
struct Ended {
    hours: f64,
    /// The sum of its history.
    history: String,
}

fn ended(output: &Output) -> Option<Ended> {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rev().find_map(|line| line.strip_prefix("simulated "))?;
    let (hours, history) = line.split_once(" hours, history ")?;
    Some(Ended { hours: hours.parse().ok()?, history: history.to_owned() })
}

#[test]
fn one_seed() {
    let Ok(seed) = std::env::var("SIMULATION_SEED") else { return };
    let seed: u64 = seed.parse().expect("SIMULATION_SEED is a number");
    system::simulate(seed, move || life::live(seed));
}

#[test]
fn the_same_seed_has_the_same_history() {
    let [one, two] = [run_one(1), run_one(1)].map(|output| ended(&output));
    assert!(one.is_some() && one == two, "{one:?} and {two:?}");
}

#[test]
fn whatever_goes_wrong_the_invariants_hold() {
    let seeds = std::env::var("SIMULATION_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let first: u64 = std::env::var("SIMULATION_FIRST").ok().and_then(|first| first.parse().ok()).unwrap_or(0);
    let (next, began, found) = (AtomicU64::new(first), Instant::now(), Mutex::new((0.0, Vec::new())));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let output = run_one(seed);
                    let mut found = found.lock();
                    match ended(&output).filter(|_| output.status.success()) {
                        Some(ended) => found.0 += ended.hours,
                        None => {
                            let history = String::from_utf8_lossy(&output.stderr).into_owned();
                            found.1.push((seed, history));
                            next.store(u64::MAX / 2, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let (hours, failed) = found.into_inner();
    let seconds = began.elapsed().as_secs_f64();
    println!("{hours:.0} simulated hours of {seeds} seeds in {seconds:.0} s");
    for (seed, history) in &failed {
        println!("--- seed {seed}\n{history}");
    }
    assert!(failed.is_empty(), "seeds {:?} fail", failed.iter().map(|(seed, _)| seed).collect::<Vec<_>>());
}
