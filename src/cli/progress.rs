//! Progress of what takes longer than a second, on a terminal: one line on standard error, which goes when it is done.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// How long something may take without a word.
const SILENCE: Duration = Duration::from_secs(1);
/// How often the line is written anew.
const PACE: Duration = Duration::from_millis(500);

/// Waits for `work`, and tells that it goes on: `what` it is, and for how long.
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
                // Nobody is left to tell if this fails.
                let _ = write!(stderr(), "\r{what} … {} s", started.elapsed().as_secs());
                let _ = stderr().flush();
            }
        }
    }
}

/// Takes the line away.
fn wipe() {
    let _ = write!(stderr(), "\r\x1b[K");
    let _ = stderr().flush();
}
