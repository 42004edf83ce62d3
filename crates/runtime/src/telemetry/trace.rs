//! Spans of an object's walk: from the write of a Route until its name is verified to be answered.
//!
//! ```text
//!   api.write ──┬── schedule ──┬── decide
//!   (the API)   │   (scheduler)└── bind
//!               ├── compile        from the RouteBinding's arrival in a name server until its zones are built
//!               ├── publish        until the name is answered, including the wait for the zone's serial
//!               └── prove          until every listed name server was queried and the status of the Route is updated
//! ```
//!
//! The walk is not a call stack: it crosses tasks and processes that watch objects. No context is passed along. Instead, each
//! process derives the same two numbers from the Route's UID: the trace id is the UID itself without its dashes, and the id of
//! the root span is a hash of it. The UID also determines whether a Route is traced, so that all processes agree. The query path
//! has no spans.
//!
//! Without a collector, nothing is stored or computed: [`Trace::of`] returns `None`. With one, a completed span goes into a queue
//! of fixed size, and is counted and dropped if the queue is full; [`super::otlp`] reads the queue.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::{digest, rand};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

/// The maximum number of queued spans. A collector that is slow for a moment loses none; more would only use memory.
pub const WAITING_MAX: usize = 8_192;

/// The receiver of spans, once it is set.
static SINK: OnceLock<Sink> = OnceLock::new();

struct Sink {
    queue: mpsc::Sender<Span>,
    /// The largest hash of a UID that is traced.
    sampled_to: u64,
    counters: Counters,
}

/// The counters of spans by outcome; clones share them.
#[derive(Debug, Clone)]
pub struct Counters(Family<[(&'static str, &'static str); 1], Counter>);

impl Default for Counters {
    fn default() -> Self {
        let counters = Counters(Family::default());
        ["sent", "failed", "dropped"].iter().for_each(|result| counters.count(result, 0));
        counters
    }
}

impl Counters {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Spans for the trace collector, by outcome";
        registry.register("trace_spans", help, self.0.clone());
    }

    /// Adds `spans` to the counter of `result`.
    pub(super) fn count(&self, result: &'static str, spans: usize) {
        self.0.get_or_create(&[("result", result)]).inc_by(spans as u64);
    }
}

/// Enables spans for `percent` percent of the Routes, in the whole process. The caller must send the spans from the returned
/// receiver. A second call in one process changes nothing and returns `None`.
pub fn open(percent: u32, counters: Counters) -> Option<mpsc::Receiver<Span>> {
    let (queue, spans) = mpsc::channel(WAITING_MAX);
    SINK.set(Sink { queue, sampled_to: share(percent), counters }).ok()?;
    Some(spans)
}

fn share(percent: u32) -> u64 {
    u64::try_from(u128::from(u64::MAX) * u128::from(percent.min(100)) / 100).unwrap_or(u64::MAX)
}

/// The trace of one Route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    id: [u8; 16],
    root: [u8; 8],
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The id of the trace.
    pub trace: [u8; 16],
    /// The id of the span.
    pub id: [u8; 8],
    /// The parent span; `None` for the root span.
    pub parent: Option<[u8; 8]>,
    /// The name of the operation.
    pub name: &'static str,
    /// The start of the span.
    pub began: SystemTime,
    /// The end of the span.
    pub ended: SystemTime,
    /// The attributes of the span.
    pub attributes: Vec<(&'static str, String)>,
    /// The error, if there was one.
    pub fault: Option<String>,
}

impl Trace {
    /// Returns the trace of the Route with this uid; `None` if it is not traced.
    pub fn of(uid: &str) -> Option<Trace> {
        let sink = SINK.get()?;
        let (trace, hash) = Trace::derived(uid);
        (hash <= sink.sampled_to).then_some(trace)
    }

    /// Returns the ids, and the number that decides whether the Route is traced.
    fn derived(uid: &str) -> (Trace, u64) {
        let hash = digest::digest(&digest::SHA256, uid.as_bytes());
        let part = |from: usize| <[u8; 8]>::try_from(&hash.as_ref()[from..from + 8]).expect("a hash has 32 octets");
        let (root, decides) = (part(16), u64::from_be_bytes(part(24)));
        let hashed = || <[u8; 16]>::try_from(&hash.as_ref()[..16]).expect("a hash has 32 octets");
        let id = uuid::Uuid::try_parse(uid).map_or_else(|_| hashed(), uuid::Uuid::into_bytes);
        (Trace { id, root }, decides)
    }

    /// Returns the root span, which began at `began` and ends on request.
    pub fn first(self, name: &'static str, began: Instant) -> Step {
        Step::new(self, self.root, None, name, began)
    }

    /// Returns a span below the first.
    pub fn step(self, name: &'static str, began: Instant) -> Step {
        Step::new(self, random_id(), Some(self.root), name, began)
    }
}

/// A span in progress.
#[derive(Debug)]
pub struct Step {
    trace: Trace,
    id: [u8; 8],
    parent: Option<[u8; 8]>,
    name: &'static str,
    began: Instant,
    attributes: Vec<(&'static str, String)>,
    fault: Option<String>,
}

impl Step {
    fn new(trace: Trace, id: [u8; 8], parent: Option<[u8; 8]>, name: &'static str, began: Instant) -> Step {
        Step { trace, id, parent, name, began, attributes: Vec::new(), fault: None }
    }

    /// Adds an attribute.
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Step {
        self.attributes.push((key, value.into()));
        self
    }

    /// Sets the error.
    pub fn failed(mut self, why: impl Into<String>) -> Step {
        self.fault = Some(why.into());
        self
    }

    /// Returns a part of it that began at `began`.
    pub fn part(&self, name: &'static str, began: Instant) -> Step {
        Step::new(self.trace, random_id(), Some(self.id), name, began)
    }

    /// Ends the span now.
    pub fn end(self) {
        self.end_at(Instant::now());
    }

    /// Ends the span at `ended`.
    pub fn end_at(self, ended: Instant) {
        let Some(sink) = SINK.get() else { return };
        // Both clocks are read together, so that spans of one process keep their order.
        let (now, wall) = (Instant::now(), SystemTime::now());
        let at = |moment: Instant| wall - now.saturating_duration_since(moment).min(Duration::from_secs(86_400));
        let Step { trace, id, parent, name, began, attributes, fault } = self;
        let (began, ended) = (at(began), at(ended.max(began)));
        let span = Span { trace: trace.id, id, parent, name, began, ended, attributes, fault };
        if sink.queue.try_send(span).is_err() {
            sink.counters.count("dropped", 1);
        }
    }
}

fn random_id() -> [u8; 8] {
    let mut id = [0; 8];
    rand::fill(&mut id).expect("the system's generator of random numbers never fails once it is up");
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_from_the_uid() {
        let uid = "6b0f8f0e-2c57-4d0a-9c7e-0d7d5a3f1b2c";
        let (trace, _) = Trace::derived(uid);
        assert_eq!(trace, Trace::derived(uid).0);
        assert_eq!(data_encoding::HEXLOWER.encode(&trace.id), uid.replace('-', ""));
        assert_ne!(trace.root, Trace::derived("6b0f8f0e-2c57-4d0a-9c7e-0d7d5a3f1b2d").0.root);
        assert_ne!(Trace::derived("no uuid").0.id, Trace::derived("no uuid either").0.id);
    }

    #[test]
    fn the_share_that_is_traced() {
        assert_eq!((share(0), share(100), share(1_000)), (0, u64::MAX, u64::MAX));
        let traced = |percent| {
            let uids = (0..2_000_u32).map(|number| uuid::Uuid::from_u128(u128::from(number) << 64).to_string());
            uids.filter(|uid| Trace::derived(uid).1 <= share(percent)).count()
        };
        assert!((430..570).contains(&traced(25)), "{}", traced(25));
        assert!(traced(50) > traced(25));
    }
}
