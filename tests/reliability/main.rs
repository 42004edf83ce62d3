//! The real program with abusive clients: its UDP answers continue, its memory stays bounded, and its limits and timeouts work as
//! configured. These are the short forms, with some hundred clients, and claim nothing about speed; `cargo bench --bench
//! reliability` is the long form, with figures in docs/reliability.md.

#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod clients;
mod probe;
mod program;

use std::time::{Duration, Instant};

use clients::{Crowd, Flood};
use program::Program;
use signpost_testing::{PATIENCE, wait_for};

fn start(flags: &[&str]) -> Program {
    signpost_dns::sys::files::raise_open_files_max().unwrap();
    Program::start(flags)
}

/// Sends `count` queries over UDP, and repeats lost ones: loopback drops packets if buffers are full.
fn udp_answers_flow(program: &Program, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    let mut answered = 0;
    while answered < count {
        answered += probe::ask(program.dns, count - answered, PATIENCE, 1).answered;
        assert!(Instant::now() < deadline, "{answered} of {count} answers only");
    }
}

/// Returns the growth of memory use, in KiB.
fn growth_kib(program: &Program, before: u64) -> u64 {
    program.resident_kib().saturating_sub(before)
}

#[test]
fn idle_connections_cost_little() {
    // No connection is closed before the last one has sent its query, at any speed.
    let program = start(&["--tcp-idle-timeout", "10m"]);
    let before = program.resident_kib();
    let mut crowd = Crowd::open(program.dns, 600, None);
    assert_eq!(crowd.ask_each(PATIENCE), 0, "each is answered");
    udp_answers_flow(&program, 200);
    let growth = growth_kib(&program, before);
    assert!(growth < 600 * 64, "600 idle connections took {growth} KiB");
    assert_eq!(crowd.closed(), 0);
}

#[test]
fn idle_connections_are_closed_in_time() {
    let program = start(&["--tcp-idle-timeout", "2s"]);
    let crowd = Crowd::open(program.dns, 600, None);
    wait_for("all idle connections are closed", || crowd.closed() == 600);
    udp_answers_flow(&program, 50);
}

#[test]
fn connections_are_capped_in_total_and_by_client() {
    let program =
        // Where three quarters are taken, a tenth of this is how long each may be silent.
        start(&["--tcp-connections", "220", "--tcp-connections-per-client", "190", "--tcp-idle-timeout", "10m"]);
    // 200 come from the first address, of which 190 are taken, and 10 from the second.
    let mut crowd = Crowd::open(program.dns, 210, None);
    assert_eq!(crowd.ask_each(PATIENCE), 10, "an address has 190 connections at most");
    // 20 more would fit.
    let mut more = Crowd(Crowd::open(program.dns, 230, None).0.split_off(200));
    assert_eq!(more.ask_each(PATIENCE), 10, "220 at most in total");
    udp_answers_flow(&program, 50);
    drop((crowd, more));
    wait_for("closed connections make room", || Crowd::open(program.dns, 1, None).ask_each(PATIENCE) == 0);
}

#[test]
fn clients_that_never_read_are_let_go_and_hold_little() {
    let program = start(&["--tcp-write-timeout", "2s", "--tcp-idle-timeout", "60s"]);
    let (before, files) = (program.resident_kib(), program.files());
    let mut crowd = Crowd::open(program.dns, 100, Some(4096));
    // Before the queries: from then on, each connection is closed after two seconds, regardless of the others.
    assert_eq!(crowd.ask_each(PATIENCE), 0, "they are connected");
    crowd.ask_without_reading();
    udp_answers_flow(&program, 200);
    let growth = growth_kib(&program, before);
    // Each may hold its unsent answers, one message beyond them, and a read.
    assert!(growth < 100 * 512, "100 clients that never read took {growth} KiB");
    // The clients cannot detect it, because they do not read.
    wait_for("clients that never read are disconnected", || program.files() <= files);
}

#[test]
fn clients_that_write_an_octet_at_a_time_are_let_go() {
    let program = start(&["--tcp-read-timeout", "2s", "--tcp-idle-timeout", "60s"]);
    let before = program.resident_kib();
    let mut crowd = Crowd::open(program.dns, 300, None);
    for at in 0..4 {
        crowd.write_one_octet(at);
        udp_answers_flow(&program, 50);
    }
    let growth = growth_kib(&program, before);
    assert!(growth < 300 * 64, "300 slow writers took {growth} KiB");
    wait_for("slow writers are disconnected", || crowd.closed() == 300);
    // A client that is as slow but completes in time gets an answer.
    assert_eq!(Crowd::open(program.dns, 3, None).ask_each(PATIENCE), 0);
}

#[test]
fn a_flood_of_garbage_hinders_no_one() {
    let mut program = start(&[]);
    udp_answers_flow(&program, 50);
    let before = program.resident_kib();
    let flood = Flood::start(program.dns, 50, Duration::from_millis(2));
    udp_answers_flow(&program, 500);
    wait_for("20,000 datagrams of garbage", || flood.sent() > 20_000);
    udp_answers_flow(&program, 200);
    drop(flood);
    let growth = growth_kib(&program, before);
    assert!(growth < 16 * 1024, "garbage took {growth} KiB");
    assert!(program.server.is_running());
}

/// The soft limit that most systems start a process with is for programs that use `select`.
#[test]
fn the_limit_of_open_files_is_raised() {
    let program = start(&[]);
    let hard = signpost_dns::sys::files::raise_open_files_max().unwrap();
    assert_eq!(program.files_max(), hard);
}
