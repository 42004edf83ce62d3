//! `kill -9` at random moments, of the whole program and of single roles, in the middle of writes and of starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::model::{Key, Model, Outcome};
use crate::observer::Observer;
use crate::platform::{Objects, alias_of, spawn, start};
use signpost_testing::{DataDir, Ports, Server, eventually};

/// The maximum number of Routes.
const ROUTES_MAX: u64 = 40;
/// The longest time that writers have before the kill, beyond that of their first writes.
const WRITING: Duration = Duration::from_millis(400);
/// The minimum number of acknowledged writes in each round before the kill, on a machine of any speed.
const WRITES_MIN: u64 = 2;
/// The longest time that a start has before the kill.
const STARTING: Duration = Duration::from_millis(800);

/// A recovery that takes longer is worth a line.
const SLOW: Duration = Duration::from_secs(10);

fn rounds() -> u64 {
    std::env::var("SIGNPOST_FAULT_ROUNDS").map_or(8, |rounds| rounds.parse().expect("SIGNPOST_FAULT_ROUNDS: a number"))
}

fn seed() -> u64 {
    std::env::var("SIGNPOST_FAULT_SEED").map_or(20_261_122, |seed| seed.parse().expect("SIGNPOST_FAULT_SEED: a number"))
}

/// Numbers that repeat with the seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn within(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.below(longest.as_micros() as u64))
    }
}

/// Whether Routers are added and deleted, too: a name server that was away holds such a deletion until an administrator approves it.
#[derive(Clone, Copy, PartialEq)]
enum Shards {
    ComeAndGo,
    Stay,
}

/// Makes one change.
fn change(objects: &Objects, model: &mut Model, observer: &Observer, random: &mut Random, shards: Shards) -> Outcome {
    let number = random.next() % 1_000_000;
    let (key, state) = match random.below(100) {
        0..50 => (Key::Route(format!("r{}", random.below(ROUTES_MAX))), Some(format!("to-{number}"))),
        50..70 => (Key::Route(format!("r{}", random.below(ROUTES_MAX))), None),
        70..85 => {
            let addresses = format!("192.0.2.{},192.0.2.{}", 10 + number % 90, 110 + number % 90);
            (Key::Router(format!("shard{}", 1 + random.below(2))), Some(addresses))
        }
        _ if shards == Shards::Stay => (Key::Route("r0".to_owned()), Some(format!("to-{number}"))),
        85..95 => (Key::Router(format!("spare{}", random.below(4))), Some(format!("192.0.2.{}", 200 + number % 50))),
        _ => (Key::Router(format!("spare{}", random.below(4))), None),
    };
    if state.is_none() {
        // The name is no longer live from the request of the deletion.
        match &key {
            Key::Route(route) => observer.forget(&alias_of(route)),
            Key::Router(router) => observer.forget(&format!("probe.{router}.{}", crate::platform::DOMAIN)),
        }
        if !model.present().contains(&key) {
            return Outcome::Acknowledged;
        }
    }
    let outcome = objects.write(model, key.clone(), state);
    if let Outcome::Refused(code, why) = &outcome {
        // One whose earlier deletion was in doubt.
        assert_eq!(*code, 404, "{key}: {why}");
    }
    outcome
}

/// Kills `servers` when the first writes are acknowledged and `after` that.
fn kill(servers: Vec<Server>, after: Duration, acknowledged: &Arc<AtomicU64>) -> JoinHandle<()> {
    let acknowledged = Arc::clone(acknowledged);
    std::thread::spawn(move || {
        eventually("writes are acknowledged", || (acknowledged.load(Ordering::Relaxed) >= WRITES_MIN).then_some(()));
        std::thread::sleep(after);
        servers.into_iter().for_each(Server::kill);
    })
}

/// Writes until the program is dead, and counts the writes that were acknowledged.
fn write_until_dead(acknowledged: &AtomicU64, mut change: impl FnMut() -> Outcome) {
    while !matches!(change(), Outcome::Doubtful(_)) {
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

/// Records the duration of a recovery, and prints long ones.
fn note(times: &mut Vec<Duration>, started: Instant, when: &str) {
    let took = started.elapsed();
    if took > SLOW {
        println!("{when}: DNS equals the objects only after {took:?}");
    }
    times.push(took);
}

/// Returns the greatest and the middle of several times.
fn figures(times: &mut [Duration]) -> String {
    times.sort();
    match (times.get(times.len() / 2), times.last()) {
        (Some(median), Some(longest)) => format!("median {median:?}, longest {longest:?}"),
        _ => "none".to_owned(),
    }
}

#[test]
fn of_the_whole_program() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let arguments = ["--data-dir", data.path()];
    let mut server = start(ports, &arguments);
    let objects = Objects::of(&data.join("kubeconfig"));
    let (mut model, mut random) = (Model::default(), Random(seed()));
    objects.found(&mut model, 6);
    let observer = Observer::start(ports.dns);
    observer.watch(objects.check_served(&model, ports.dns, "at first").0);
    let (mut writes, mut recoveries, begun) = (0, Vec::new(), Instant::now());
    for round in 0..rounds() {
        let (when, after) = (format!("round {round}"), random.within(WRITING));
        let acknowledged = Arc::default();
        let killer = kill(vec![server], after, &acknowledged);
        let write = || change(&objects, &mut model, &observer, &mut random, Shards::ComeAndGo);
        write_until_dead(&acknowledged, write);
        killer.join().expect("it was alive");
        writes += acknowledged.load(Ordering::Relaxed);
        if random.below(4) == 0 {
            let early = spawn(ports, &arguments);
            std::thread::sleep(random.within(STARTING));
            early.kill();
        }
        let started = Instant::now();
        server = start(ports, &arguments);
        objects.check_kept(&mut model, &when);
        observer.watch(objects.check_served_after_approval(&model, ports.dns, &when));
        note(&mut recoveries, started, &when);
        observer.report().assert_honest(&when);
    }
    let (rounds, took, recovered) = (rounds(), begun.elapsed(), figures(&mut recoveries));
    println!("{rounds} kills of the whole program in {took:?}: {writes} writes acknowledged, none lost");
    println!("from the start to DNS equal to the objects: {recovered}; {}", observer.report());
    assert!(writes > rounds, "only {writes} writes");
}

#[test]
fn of_single_roles() {
    let (api_data, dns_data, scheduler_data) = (DataDir::new(), DataDir::new(), DataDir::new());
    let all_ports = [Ports::free(), Ports::free(), Ports::free()];
    let api_arguments = ["--roles", "api,admin", "--data-dir", api_data.path()];
    let api = start(all_ports[0], &api_arguments);
    let path = |name: &str| api_data.join(name).to_str().expect("UTF-8").to_owned();
    let (of_dns, of_scheduler) = (path("name-server.kubeconfig"), path("scheduler.kubeconfig"));
    let dns_arguments = ["--roles", "dns,admin", "--data-dir", dns_data.path(), "--kubeconfig", &of_dns];
    let scheduler_arguments = [
        "--roles",
        "scheduler,admin",
        "--data-dir",
        scheduler_data.path(),
        "--kubeconfig",
        &of_scheduler,
        "--verify-names",
        "false",
    ];
    let arguments: [&[&str]; 3] = [&api_arguments, &dns_arguments, &scheduler_arguments];
    let begin = |role: usize| start(all_ports[role], arguments[role]);
    let mut running: [Option<Server>; 3] = [Some(api), Some(begin(1)), Some(begin(2))];
    let dns = all_ports[1].dns;

    let objects = Objects::of(&api_data.join("kubeconfig"));
    let (mut model, mut random) = (Model::default(), Random(seed()));
    objects.found(&mut model, 6);
    let observer = Observer::start(dns);
    observer.watch(objects.check_served(&model, dns, "at first").0);
    let (mut writes, mut recoveries, begun) = (0, Vec::new(), Instant::now());
    for round in 0..rounds() {
        // Every role alone, and any two of them, in turn.
        let victims: &[usize] = [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2]][(round % 6) as usize];
        let (when, after) = (format!("round {round}, of {victims:?}"), random.within(WRITING));
        observer.turn_page();
        let killed: Vec<Server> = victims.iter().filter_map(|victim| running[*victim].take()).collect();
        let acknowledged = Arc::default();
        let killer = kill(killed, after, &acknowledged);
        let mut write = || change(&objects, &mut model, &observer, &mut random, Shards::Stay);
        if victims.contains(&0) {
            write_until_dead(&acknowledged, write);
        } else {
            while !killer.is_finished() {
                assert_eq!(write(), Outcome::Acknowledged, "{when}: the API lives");
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        }
        killer.join().expect("they were alive");
        writes += acknowledged.load(Ordering::Relaxed);
        let started = Instant::now();
        for victim in victims {
            running[*victim] = Some(begin(*victim));
        }
        objects.check_kept(&mut model, &when);
        observer.watch(objects.check_served(&model, dns, &when).0);
        note(&mut recoveries, started, &when);
        if victims.contains(&1) {
            observer.report().assert_honest(&when);
        } else {
            observer.report().assert_steady(&when);
        }
    }
    let (rounds, took, recovered) = (rounds(), begun.elapsed(), figures(&mut recoveries));
    println!("{rounds} kills of single roles in {took:?}: {writes} writes acknowledged, none lost");
    println!("from the start to DNS equal to the objects: {recovered}");
    assert!(writes > rounds, "only {writes} writes");
}
