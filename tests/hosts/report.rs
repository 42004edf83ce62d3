//! The violations, and the log of events.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The maximum number of violations with their text; all are counted.
const VIOLATIONS_MAX: usize = 20;

/// The report of a run, which all threads write.
pub struct Report {
    start: Instant,
    count: AtomicU64,
    violations: Mutex<Vec<String>>,
    events: Mutex<Vec<String>>,
}

impl Report {
    /// Returns an empty one.
    pub fn new() -> Report {
        Report {
            start: Instant::now(),
            count: AtomicU64::new(0),
            violations: Mutex::default(),
            events: Mutex::default(),
        }
    }

    /// Adds to the time line, and prints it.
    pub fn event(&self, text: &str) {
        let line = format!("{:7.1} s  {text}", self.start.elapsed().as_secs_f64());
        println!("{line}");
        self.events.lock().expect("no thread panics with it").push(line);
    }

    /// Notes that an invariant does not hold.
    pub fn violation(&self, text: String) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut violations = self.violations.lock().expect("no thread panics with it");
        if violations.len() < VIOLATIONS_MAX {
            violations.push(format!("{:7.1} s  {text}", self.start.elapsed().as_secs_f64()));
        }
    }

    /// Panics with the time line if an invariant did not hold.
    #[track_caller]
    pub fn check(&self, seed: u64) {
        let count = self.count.load(Ordering::Relaxed);
        if count > 0 {
            let violations = self.violations.lock().expect("no thread panics with it").join("\n");
            let events = self.events.lock().expect("no thread panics with it").join("\n");
            panic!("seed {seed}: {count} violations, the first of them:\n{violations}\nwhat happened:\n{events}");
        }
    }
}
