//! Progress of operations longer than a second: one line on standard error, if that is a terminal, until the end.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// The time until the first progress line.
const SILENCE: Duration = Duration::from_secs(1);
/// The interval between updates of the line.
const PACE: Duration = Duration::from_millis(500);

/// Waits for `work`, and displays its name `what` and the elapsed time.
pub(super) async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
    if !stderr().is_terminal() {
        return work.await;
    }
    let started = Instant::now();
    let mut ticks = interval_at(started + SILENCE, PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::pin!(work);
    let mut is_shown = false;
    loop {
        tokio::select! {
            done = &mut work => {
                if is_shown {
                    wipe();
                }
                return done;
            }
            _ = ticks.tick() => {
                is_shown = true;
                // A failure of this cannot be reported.
                let _ = write!(stderr(), "\r{what} … {} s", started.elapsed().as_secs());
                let _ = stderr().flush();
            }
        }
    }
}

/// Erases the line.
fn wipe() {
    let _ = write!(stderr(), "\r\x1b[K");
    let _ = stderr().flush();
}
