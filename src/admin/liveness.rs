//! Detects hung parts of a process: DNS workers and listeners, and the control runtime.
//!
//! Each of them counts its iterations, several per second even without work. A separate thread (`daemon::supervisor`) samples the
//! counters; a part whose counter has not changed for its limit is hung. Neither the sampling nor `/livez` waits for any code
//! that serves tenants.
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The maximum time between two samples that are comparable: after a longer gap, the whole process or the machine was stopped.
const LOOKS_APART_MAX: Duration = Duration::from_secs(3);
/// The time without a sample after which the sampling thread itself counts as hung.
const UNWATCHED_MAX: Duration = Duration::from_secs(30);

/// The function that returns a counter of iterations; `None` after its owner received the request to stop.
type Beats = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// All that is watched.
#[derive(Default)]
pub struct Liveness {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parts: Vec<Part>,
    sampled: Option<Instant>,
}

struct Part {
    name: String,
    limit: Duration,
    beats: Beats,
    /// The counter at the last sample that found progress, and the time since.
    seen: u64,
    still: Duration,
}

impl Liveness {
    /// Watches a part, which is hung when `turns` stays the same for `limit`.
    pub fn watch(
        &self,
        name: impl Into<String>,
        limit: Duration,
        beats: impl Fn() -> Option<u64> + Send + Sync + 'static,
    ) {
        let (seen, still) = (beats().unwrap_or(0), Duration::ZERO);
        self.state.lock().parts.push(Part { name: name.into(), limit, beats: Box::new(beats), seen, still });
    }

    /// Samples all counters.
    pub fn sample(&self, now: Instant) {
        let mut state = self.state.lock();
        let since = state.sampled.replace(now).map_or(Duration::ZERO, |sampled| now.saturating_duration_since(sampled));
        let since = if since > LOOKS_APART_MAX { Duration::ZERO } else { since };
        state.parts.retain_mut(|part| {
            let Some(beats) = (part.beats)() else { return false };
            part.still = if beats == part.seen { part.still + since } else { Duration::ZERO };
            part.seen = beats;
            true
        });
    }

    /// Returns the parts that were hung at the last look, a sentence for each.
    pub fn hung(&self, now: Instant) -> Vec<String> {
        let state = self.state.lock();
        let hung = state.parts.iter().filter(|part| part.still >= part.limit && (part.beats)() == Some(part.seen));
        let mut hung: Vec<String> =
            hung.map(|part| format!("{} is hung: no progress for {} s", part.name, part.still.as_secs())).collect();
        if state.sampled.is_some_and(|sampled| now.saturating_duration_since(sampled) > UNWATCHED_MAX) {
            hung.push("the watchdog thread is hung".to_owned());
        }
        hung
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    #[test]
    fn what_stands_still_for_its_limit_is_hung_and_named() {
        let liveness = Liveness::default();
        let (beats, gone) = (Arc::new(AtomicU64::new(7)), Arc::new(AtomicBool::new(false)));
        let read = (beats.clone(), gone.clone());
        let worker = move || (!read.1.load(Ordering::Relaxed)).then(|| read.0.load(Ordering::Relaxed));
        liveness.watch("the worker", Duration::from_secs(10), worker);
        let mut now = Instant::now();
        let mut pass = |seconds: u64| {
            for _ in 0..seconds {
                now += Duration::from_secs(1);
                liveness.sample(now);
            }
            (now, liveness.hung(now))
        };
        assert!(pass(10).1.is_empty(), "nine seconds since the first sample");
        assert_eq!(pass(1).1, ["the worker is hung: no progress for 10 s"]);
        beats.fetch_add(1, Ordering::Relaxed);
        assert!(pass(1).1.is_empty());
        assert_eq!(pass(10).1.len(), 1);
        // A part that progressed after the last sample is not hung.
        beats.fetch_add(1, Ordering::Relaxed);
        assert!(pass(0).1.is_empty());
        // The whole process was stopped, as under SIGSTOP: this is not evidence about the worker.
        let (at, _) = pass(5);
        liveness.sample(at + Duration::from_secs(3600));
        assert!(liveness.hung(at + Duration::from_secs(3600)).is_empty());
        // Nothing samples any longer.
        let hung = liveness.hung(at + Duration::from_secs(7200));
        assert_eq!(hung, ["the watchdog thread is hung"]);
        gone.store(true, Ordering::Relaxed);
        assert!(pass(20).1.is_empty(), "the watched part has ended");
    }
}
