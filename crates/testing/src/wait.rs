//! Waiting until something is true.

use std::time::{Duration, Instant};

use crate::running;

/// The time limit of every wait. A debug build on a busy two-core machine needs more than a minute to compact a large store.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// The time limit after a process of the program under test has ended unexpectedly. What it did before may still arrive.
const PATIENCE_AFTER_END: Duration = Duration::from_secs(5);
/// The shortest and the longest pause between two attempts. A pause is twice as long as the attempt before it: an attempt can be a process,
/// such as `kubectl`, and what a test waits for needs the processors, too.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Tries until `attempt` succeeds, and panics with the last reason when it never does. The end of a process of the program under
/// test shortens the wait, unless the test has ended that process or seen its end.
#[track_caller]
pub fn until<T, E: std::fmt::Display>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let mut deadline = Instant::now() + PATIENCE;
    let mut ended = String::new();
    loop {
        let began = Instant::now();
        let reason = match attempt() {
            Ok(found) => return found,
            Err(reason) => reason,
        };
        assert!(Instant::now() < deadline, "never came true: {what}: {reason}{ended}");
        let pause = (2 * began.elapsed()).clamp(PAUSE.0, PAUSE.1);
        if ended.is_empty()
            && let Some(id) = running::ended()
        {
            deadline = deadline.min(Instant::now() + PATIENCE_AFTER_END);
            ended = format!("; process {id} has ended");
        }
        std::thread::sleep(pause);
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::wait_for;
    use crate::{DataDir, Process};

    #[test]
    #[should_panic(expected = "has ended")]
    fn the_end_of_the_program_ends_a_wait() {
        let folder = DataDir::new();
        let program = folder.join("signpost");
        std::os::unix::fs::symlink("/bin/false", &program).expect("a link");
        let _process = Process::logged(&mut Command::new(&program));
        wait_for("nothing", || false);
    }
}
