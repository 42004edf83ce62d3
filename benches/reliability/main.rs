//! The long form of `tests/reliability`: the real program with thousands of idle connections, slow readers, slow writers, and a
//! flood of garbage, one after the other and all together. It prints the rate and the latency of UDP answers under each load, and
//! the program's memory.
//!
//! `RELIABILITY_CONNECTIONS` and `RELIABILITY_SECONDS` change the number of connections (5,000) and the length of each
//! measurement (10). All traffic is on loopback and ends by itself.

#[path = "../../tests/reliability/clients.rs"]
#[allow(dead_code, reason = "shared with the tests, which use other parts")]
mod clients;
#[path = "../../tests/reliability/probe.rs"]
mod probe;
#[path = "../../tests/reliability/program.rs"]
#[allow(dead_code, reason = "shared with the tests, which use other parts")]
mod program;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clients::{Crowd, Flood};
use program::Program;

/// The number of garbage datagrams in a burst, followed by the pause.
const FLOOD_BURST: usize = 64;
const FLOOD_PAUSE: Duration = Duration::from_micros(200);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let connections = setting("RELIABILITY_CONNECTIONS", 5_000) as usize;
    let length = Duration::from_secs(setting("RELIABILITY_SECONDS", 10));
    let files = signpost_dns::sys::files::raise_open_files_max().expect("a limit of open files");
    assert!(
        files as usize > connections + 1_000,
        "{files} files may be open here, too few for {connections} connections"
    );
    println!("{connections} connections, {} s each measurement, at most {files} open files", length.as_secs());
    println!(
        "{:<44} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "load", "answers/s", "lost", "p50 µs", "p99 µs", "p99.9 µs", "RSS MiB", "peak MiB"
    );
    // Idle connections are to stay for the whole measurement; all else is as shipped.
    let start = || Program::start(&["--tcp-idle-timeout", "10m"]);

    let program = start();
    measure("nothing else", &program, length);
    let mut crowd = Crowd::open(program.dns, connections, None);
    let unanswered = crowd.ask_each(Duration::from_secs(10));
    measure(&format!("{} idle connections", connections - unanswered), &program, length);
    let gone = crowd.closed();
    assert_eq!((unanswered, gone), (0, 0), "idle connections were refused or lost");
    drop(crowd);

    let program = start();
    beside(&program, &format!("{} clients that never read", connections / 5), length, |program| {
        read_never(program, connections / 5)
    });

    let program = start();
    beside(&program, &format!("{} clients of an octet a second", connections / 5), length, |program| {
        write_slowly(program, connections / 5)
    });

    let program = start();
    let flood = Flood::start(program.dns, FLOOD_BURST, FLOOD_PAUSE);
    let (sent, from) = (flood.sent(), Instant::now());
    measure("a flood of garbage", &program, length);
    println!("    garbage: {:.0} datagrams/s", (flood.sent() - sent) as f64 / from.elapsed().as_secs_f64());
    drop(flood);

    let program = start();
    let mut crowd = Crowd::open(program.dns, connections, None);
    crowd.ask_each(Duration::from_secs(10));
    let flood = Flood::start(program.dns, FLOOD_BURST, FLOOD_PAUSE);
    beside(&program, "all of these", length, |program| {
        write_slowly(program, connections / 10) + read_never(program, connections / 10)
    });
    drop((flood, crowd));
    std::thread::sleep(Duration::from_secs(2));
    measure("all of them gone", &program, length);
}

/// Measures while another thread keeps bad clients coming: each round lets those of the last one go.
fn beside(program: &Program, what: &str, length: Duration, round: impl Fn(&Program) -> usize + Sync) {
    let busy = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let (start, mut let_go) = (Instant::now(), 0);
            while busy.load(Ordering::Relaxed) && start.elapsed() < 4 * length + Duration::from_secs(60) {
                let_go += round(program);
            }
            let_go
        });
        measure(what, program, length);
        busy.store(false, Ordering::Relaxed);
        println!("    closed by the program meanwhile: {}", clients.join().expect("bad clients do not panic"));
    });
}

/// Runs `count` clients that send many queries and read nothing, for longer than the program waits; returns the number of closed
/// connections.
fn read_never(program: &Program, count: usize) -> usize {
    let files = program.files();
    let mut crowd = Crowd::open(program.dns, count, Some(4096));
    crowd.ask_without_reading();
    std::thread::sleep(Duration::from_secs(7));
    // The clients cannot detect it themselves. Other connections can come and go meanwhile, so the number is limited to these.
    count - program.files().saturating_sub(files).min(count)
}

/// Runs `count` clients that write one octet per second, for longer than the program waits; returns the number of closed
/// connections.
fn write_slowly(program: &Program, count: usize) -> usize {
    let mut crowd = Crowd::open(program.dns, count, None);
    for at in 0..7 {
        crowd.write_one_octet(at);
        std::thread::sleep(Duration::from_secs(1));
    }
    crowd.closed()
}

/// Prints one line: the rate of answers with 64 queries in flight, and latencies with one.
fn measure(beside: &str, program: &Program, length: Duration) {
    let rate = probe::ask(program.dns, usize::MAX, length, 64);
    let latency = probe::ask(program.dns, usize::MAX, length, 1);
    let micros = |of_thousand: usize| latency.latency(of_thousand).as_secs_f64() * 1e6;
    let lost = (rate.asked - rate.answered) + (latency.asked - latency.answered);
    println!(
        "{beside:<44} {:>9.0} {lost:>8} {:>9.0} {:>9.0} {:>9.0} {:>9.1} {:>9.1}",
        rate.rate(),
        micros(500),
        micros(990),
        micros(999),
        program.resident_kib() as f64 / 1024.0,
        program.resident_peak_kib() as f64 / 1024.0,
    );
}
