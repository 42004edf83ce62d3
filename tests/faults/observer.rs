//! An observer that continuously queries live names on a name server, and records every wrong answer.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use signpost_testing::dns::Asker;
use signpost_testing::eventually;

/// The timeout of a query: longer than a busy machine lets a process wait for the CPU, because that is not a failure of the name
/// server.
const PATIENCE: Duration = Duration::from_secs(8);
/// The pause between two queries, so that the observer leaves the CPU to the observed process.
const PAUSE: Duration = Duration::from_millis(2);
/// The minimum number of answers in a report.
const ANSWERS_MIN: u64 = 20;
/// The maximum number of recorded lies; all are counted.
const LIES_MAX: usize = 20;

/// Watches one name server from a thread of its own, until it is dropped.
pub struct Observer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// The live names, each with the number under which it became one.
    names: Mutex<BTreeMap<String, u64>>,
    numbers: AtomicU64,
    report: Mutex<Report>,
    stop: AtomicBool,
}

/// The observations.
#[derive(Default, Clone)]
pub struct Report {
    /// Answers with an address or an alias.
    pub answers: u64,
    /// SERVFAIL: the name server reports that it has no data.
    pub failures: u64,
    /// Questions without any answer.
    pub silences: u64,
    /// NXDOMAIN, NODATA, REFUSED and all else for a name that is live.
    pub lies: u64,
    /// The first of these answers.
    pub said: Vec<String>,
    /// The longest time between two answers.
    pub gap: Duration,
    /// The longest time that one question took.
    pub slowest: Duration,
}

impl Observer {
    pub fn start(server: SocketAddr) -> Observer {
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        let thread = std::thread::spawn(move || watched.observe(server));
        Observer { shared, thread: Some(thread) }
    }

    /// Adds live names.
    pub fn watch(&self, names: impl IntoIterator<Item = String>) {
        let mut live = lock(&self.shared.names);
        for name in names {
            live.entry(name).or_insert_with(|| self.shared.numbers.fetch_add(1, Ordering::Relaxed));
        }
    }

    /// This name is live no longer.
    pub fn forget(&self, name: &str) {
        lock(&self.shared.names).remove(name);
    }

    /// Returns the observations so far, once there are enough.
    pub fn report(&self) -> Report {
        eventually("the observer has seen something", || {
            let report = lock(&self.shared.report);
            (report.answers + report.lies >= ANSWERS_MIN).then(|| report.clone())
        })
    }

    /// Returns the observations so far and resets the counts.
    pub fn turn_page(&self) -> Report {
        self.report();
        std::mem::take(&mut lock(&self.shared.report))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Shared {
    fn observe(&self, server: SocketAddr) {
        let mut asker = Asker::new(server);
        let mut heard = Instant::now();
        let mut last = String::new();
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            let next = {
                let names = lock(&self.names);
                let behind = (std::ops::Bound::Excluded(last.clone()), std::ops::Bound::Unbounded);
                let next = names.range(behind).next().or_else(|| names.iter().next());
                next.map(|(name, number)| (name.clone(), *number))
            };
            let Some((name, number)) = next else {
                heard = Instant::now();
                continue;
            };
            let asked = Instant::now();
            let answer = asker.ask(&name, RecordType::A, PATIENCE);
            // The name may have been deleted while the answer was in flight.
            let is_live = lock(&self.names).get(&name) == Some(&number);
            let mut report = lock(&self.report);
            match answer {
                None => report.silences += 1,
                Some(answer) if answer.is_live() => {
                    report.answers += 1;
                    report.slowest = report.slowest.max(asked.elapsed());
                    report.gap = report.gap.max(heard.elapsed());
                    heard = Instant::now();
                }
                Some(answer) if answer.rcode == ResponseCode::ServFail => report.failures += 1,
                Some(answer) if is_live => {
                    report.lies += 1;
                    if report.said.len() < LIES_MAX {
                        report.said.push(format!("{name}: {answer:?}"));
                    }
                }
                Some(_) => {}
            }
            drop(report);
            last = name;
        }
    }
}

impl Report {
    /// Asserts that it never denied a live name, and that it answered.
    pub fn assert_honest(&self, when: &str) {
        assert_eq!(self.lies, 0, "{when}: lies: {self}");
        assert!(self.answers > 0, "{when}: nothing was answered: {self}");
    }

    /// Asserts that it answered every query for a live name with its data.
    pub fn assert_steady(&self, when: &str) {
        self.assert_honest(when);
        // The system may drop a datagram where buffers are full.
        assert!(self.failures == 0 && self.silences * 1000 <= self.answers.max(1000), "{when}: {self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} answers, {} SERVFAIL, {} silent, {} lies, longest gap {:?}, slowest answer {:?}",
            self.answers, self.failures, self.silences, self.lies, self.gap, self.slowest
        )?;
        self.said.iter().try_for_each(|said| write!(formatter, "\n  {said}"))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
