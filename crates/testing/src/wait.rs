//! Waiting until something is true.

use std::time::{Duration, Instant};

/// The time limit of every wait. A debug build on a busy two-core machine needs more than a minute to compact a large store.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// The shortest and the longest pause between two attempts. A pause is as long as the attempt before it: an attempt can be a process, such
/// as `kubectl`, and what a test waits for needs the processors, too.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Tries until `attempt` succeeds, and panics with the last reason when it never does.
#[track_caller]
pub fn until<T, E: std::fmt::Display>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let began = Instant::now();
        match attempt() {
            Ok(found) => return found,
            Err(reason) if Instant::now() > deadline => panic!("never came true: {what}: {reason}"),
            Err(_) => std::thread::sleep(began.elapsed().clamp(PAUSE.0, PAUSE.1)),
        }
    }
}

/// Tries until `probe` returns something.
#[track_caller]
pub fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    until(what, || probe().ok_or("nothing found"))
}

/// Waits until `holds` returns true.
#[track_caller]
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}
