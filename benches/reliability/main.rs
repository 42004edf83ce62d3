//! The long form of `tests/reliability`: the real program with thousands of idle connections, slow readers, slow writers and a
//! flood of garbage, one after the other and all together. Prints how UDP answers fare beside each, and the program's memory.
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

use std::path::Path;
use std::time::{Duration, Instant};

use clients::{Crowd, Flood};
use program::Program;

/// Slow writers end by the program's default of 5 s; new ones take their place.
const SLOW_ROUND: Duration = Duration::from_secs(1);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let connections = setting("RELIABILITY_CONNECTIONS", 5_000) as usize;
    let length = Duration::from_secs(setting("RELIABILITY_SECONDS", 10));
    let files = signpost::sys::files::raise_open_files_max().expect("a limit of open files");
    assert!(
        files as usize > connections + 1_000,
        "{files} files may be open here, too few for {connections} connections"
    );
    println!("{connections} connections, {} s each measurement, at most {files} open files", length.as_secs());
    println!(
        "{:<44} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "beside", "answers/s", "lost", "p50 µs", "p99 µs", "p99.9 µs", "RSS MiB", "peak MiB"
    );
    // Idle connections are to stay for the whole measurement; all else is as shipped.
    let start = || Program::start(Path::new(env!("CARGO_BIN_EXE_signpost")), &["--tcp-idle-timeout", "10m"]);

    let program = start();
    measure("nothing else", &program, length);
    let mut crowd = Crowd::open(program.dns, connections, None);
    let unanswered = crowd.ask_each(Duration::from_secs(10));
    measure(&format!("{} idle connections", connections - unanswered), &program, length);
    let gone = crowd.closed();
    assert_eq!((unanswered, gone), (0, 0), "idle connections were refused or lost");
    drop(crowd);

    let program = start();
    let files = program.files();
    let readers = slow_readers(&program, connections / 5);
    measure(&format!("{} clients that never read", readers.0.len()), &program, length);
    println!("    still connected at the end: {} of {}", program.files().saturating_sub(files), readers.0.len());
    drop(readers);

    let program = start();
    let busy = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        let writing =
            scope.spawn(|| slow_writers(&program, connections / 5, &busy, 4 * length + Duration::from_secs(60)));
        measure(&format!("{} clients of an octet a second", connections / 5), &program, length);
        busy.store(false, std::sync::atomic::Ordering::Relaxed);
        println!("    let go and replaced: {}", writing.join().expect("slow writers do not panic"));
    });

    let program = start();
    let flood = Flood::start(program.dns, 64, Duration::from_micros(200));
    let (sent, from) = (flood.sent(), Instant::now());
    measure("a flood of garbage", &program, length);
    println!("    garbage: {:.0} datagrams/s", (flood.sent() - sent) as f64 / from.elapsed().as_secs_f64());
    drop(flood);

    let program = start();
    let mut crowd = Crowd::open(program.dns, connections, None);
    crowd.ask_each(Duration::from_secs(10));
    let readers = slow_readers(&program, connections / 10);
    let flood = Flood::start(program.dns, 64, Duration::from_micros(200));
    busy.store(true, std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        let writing =
            scope.spawn(|| slow_writers(&program, connections / 10, &busy, 4 * length + Duration::from_secs(60)));
        measure("all of these", &program, length);
        busy.store(false, std::sync::atomic::Ordering::Relaxed);
        writing.join().expect("slow writers do not panic");
    });
    drop((flood, readers, crowd));
    std::thread::sleep(Duration::from_secs(2));
    measure("all of them gone", &program, length);
}

fn slow_readers(program: &Program, count: usize) -> Crowd {
    let mut crowd = Crowd::open(program.dns, count, Some(4096));
    crowd.ask_without_reading();
    crowd
}

/// Keeps `count` clients busy with an octet a second while `busy`; how many the program let go.
fn slow_writers(program: &Program, count: usize, busy: &std::sync::atomic::AtomicBool, longest: Duration) -> usize {
    let start = Instant::now();
    let mut let_go = 0;
    while busy.load(std::sync::atomic::Ordering::Relaxed) && start.elapsed() < longest {
        let mut crowd = Crowd::open(program.dns, count, None);
        for at in 0..7 {
            crowd.write_one_octet(at);
            std::thread::sleep(SLOW_ROUND);
        }
        let_go += crowd.closed();
    }
    let_go
}

/// One line: the rate of answers with 64 queries under way, latencies with one.
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
