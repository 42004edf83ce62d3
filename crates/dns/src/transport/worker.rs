//! Per-worker query state: zone snapshot, settings, scratch buffers, counters, and random number generator.
//!
//! A UDP worker owns one. Stream connections share a few, each behind a mutex that is locked only for the microseconds of
//! answering one read, never over an await.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Cache};
use parking_lot::Mutex;

use super::clock::WallClock;
use super::hand_off::{HandOffs, InFlight, Later, Many, hand_over};
use super::query_log::{QueryLogReceiver, RING_RECORDS};
use super::random::Random;
use super::random_sampler::RandomSampler;
use super::ring::{RingSender, ring};
use super::wildcard_hits::{WildcardHitReceiver, WildcardSampler};
use crate::nameserver::hand_off::{Progress, count};
use crate::nameserver::query_log::Record;
use crate::nameserver::signed::complete_signed;
use crate::nameserver::{
    Context, Exchange, Limiter, Outcome, Peer, Response, Scratch, Settings, Stats, Transport, respond, respond_batch,
};
use crate::tsig::Signer;
use crate::zone::db::{Reader, ZoneDb};

/// The operator's current settings: a reload stores a new value, and each worker uses it from its next batch on.
pub type LiveSettings = Arc<ArcSwap<Settings>>;

/// The largest message on a stream (RFC 1035 §4.2.2: a length of two octets).
pub(super) const MESSAGE_OCTETS_MAX: usize = 65_535;

/// The state of one worker.
pub(super) struct QueryWorker {
    zones: Reader,
    settings: Cache<LiveSettings, Arc<Settings>>,
    scratch: Scratch,
    stats: Arc<Stats>,
    /// The buckets of clients, if datagrams are rate-limited; streams never are.
    limiter: Option<Limiter>,
    /// The handler of requests that are handed off, if there is one.
    hand_offs: Option<Arc<HandOffs>>,
    clock: WallClock,
    /// The arrival of the current batch, since the epoch.
    batch_at: Duration,
    samplers: Samplers,
    pub(super) random: Random,
}

/// The samplers of answered requests for other threads.
struct Samplers {
    query_log: RingSender<Record>,
    query_log_sampler: RandomSampler,
    wildcard_hits: WildcardSampler,
}

/// The readers' ends of the rings of a worker.
pub(super) struct WorkerOutputs {
    pub(super) query_log: QueryLogReceiver,
    pub(super) wildcard_hits: WildcardHitReceiver,
}

impl Samplers {
    /// Samples the requests of a batch, which came at `batch_at`, since the epoch.
    fn sample(&mut self, context: &Context<'_>, exchanges: &[Exchange<'_>], batch_at: Duration, random: &mut Random) {
        if let Some(every) = context.settings.query_log {
            let with_messages = context.settings.query_log_messages;
            let mut rest = exchanges;
            while let Some(at) = self.query_log_sampler.pick(every, rest.len(), random) {
                let Exchange { query, peer, response, outcome } = &rest[at];
                let record =
                    || Record::of(query, peer, batch_at, (*outcome, response), context.snapshot, with_messages);
                self.query_log.push_with(1, record);
                rest = &rest[at + 1..];
            }
        }
        if context.settings.wildcard_hits {
            self.wildcard_hits.begin(batch_at);
            let mut rest = exchanges;
            while let Some(at) = self.wildcard_hits.pick(rest.len(), random) {
                self.wildcard_hits.sample(rest[at].query, rest[at].outcome, context.snapshot);
                rest = &rest[at + 1..];
            }
        }
    }
}

impl QueryWorker {
    /// Returns a worker, and the readers' ends of its rings.
    pub(super) fn new(db: &ZoneDb, settings: &LiveSettings, hand_offs: Option<Arc<HandOffs>>) -> (Self, WorkerOutputs) {
        let (query_log_sender, query_log) = ring(RING_RECORDS);
        let (wildcard_sampler, wildcard_hits) = WildcardSampler::new();
        let query_worker = QueryWorker {
            zones: db.reader(),
            settings: Cache::new(Arc::clone(settings)),
            scratch: Scratch::new(),
            stats: Arc::new(Stats::with_zones(db.numbers_max())),
            clock: WallClock::new(),
            batch_at: Duration::ZERO,
            limiter: None,
            hand_offs,
            samplers: Samplers {
                query_log: query_log_sender,
                query_log_sampler: RandomSampler::default(),
                wildcard_hits: wildcard_sampler,
            },
            random: Random::new(),
        };
        (query_worker, WorkerOutputs { query_log, wildcard_hits })
    }

    /// Begins a batch at `moment`; returns the seconds since the epoch.
    pub(super) fn begin(&mut self, moment: Instant) -> u64 {
        self.batch_at = self.clock.at(moment);
        self.batch_at.as_secs()
    }

    /// Returns the counters of this worker.
    pub(super) fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Releases replaced zones and settings. A worker without work calls it periodically; each batch also releases them.
    pub(super) fn refresh(&mut self) {
        self.zones.snapshot();
        self.settings.load();
    }

    /// Re-creates the scratch buffers, which a panic may have left half-changed.
    pub(super) fn clean(&mut self) {
        self.scratch = Scratch::new();
    }

    /// Answers one batch of datagrams from one snapshot; returns the later answers, with the numbers of their datagrams.
    pub(super) fn answer_batch(&mut self, exchanges: &mut [Exchange<'_>]) -> Vec<(usize, Later)> {
        let settings: &Settings = self.settings.load();
        if settings.rate_limit.is_some() != self.limiter.is_some() {
            // Once after a reload: the only allocation in a batch.
            self.limiter = settings.rate_limit.is_some().then(|| Limiter::new(keys()));
        }
        let limiter = self.limiter.as_ref();
        let context = Context { snapshot: self.zones.snapshot(), settings, stats: &self.stats, limiter };
        respond_batch(&context, &mut self.scratch, exchanges);
        // Allocates only for these rare answers.
        let mut later = Vec::new();
        for (number, exchange) in exchanges.iter_mut().enumerate() {
            if let Outcome::HandOff(_) | Outcome::Signed = exchange.outcome
                && let Some(InFlight::Later(answer)) = hand_over(self.hand_offs.as_deref(), &context, exchange, true)
            {
                later.push((number, answer));
            }
        }
        self.samplers.sample(&context, exchanges, self.batch_at, &mut self.random);
        later
    }

    /// Answers one message of a stream into `buffer`; `None` if there is no response. `idle` is the maximum silence of the connection,
    /// if it must be sent; `has_room`: the connection may have one more request in flight.
    pub(super) fn answer_one(
        &mut self,
        query: &[u8],
        (address, transport, idle): (SocketAddr, Transport, Option<Duration>),
        now: u64,
        buffer: &mut [u8],
        has_room: bool,
    ) -> Option<Answered> {
        // In units of 100 ms.
        let keepalive = idle.map(|idle| u16::try_from(idle.as_millis() / 100).unwrap_or(u16::MAX));
        let peer = Peer { address, transport, now, random: self.random.next(), keepalive };
        let settings = self.settings.load();
        let context = Context { snapshot: self.zones.snapshot(), settings, stats: &self.stats, limiter: None };
        let mut exchange = Exchange::new(query, peer, buffer);
        exchange.outcome = respond(&context, query, &peer, &mut exchange.response);
        let in_flight = match exchange.outcome {
            Outcome::HandOff(_) | Outcome::Signed => {
                hand_over(self.hand_offs.as_deref(), &context, &mut exchange, has_room)
            }
            _ => None,
        };
        let exchanges = std::slice::from_ref(&exchange);
        self.samplers.sample(&context, exchanges, self.batch_at, &mut self.random);
        if let Some(in_flight) = in_flight {
            return Some(Answered::InFlight(in_flight));
        }
        let octets = exchange.response.octets().len();
        let is_answered = exchange.outcome == Outcome::Reply && (1..=MESSAGE_OCTETS_MAX).contains(&octets);
        is_answered.then_some(Answered::One(octets))
    }
}

/// The answer to one message of a stream.
pub(super) enum Answered {
    /// A message of this many octets in the buffer.
    One(usize),
    /// Many messages, or one that comes later.
    InFlight(InFlight),
}

/// The workers that stream connections share. There are more of them than processors, so that two connections seldom need the
/// same one.
pub(super) struct StreamWorkerPool {
    stream_workers: Vec<Mutex<StreamWorker>>,
    stats: Vec<Arc<Stats>>,
}

/// A worker with room for one response of a stream.
pub(super) struct StreamWorker {
    pub(super) query_worker: QueryWorker,
    pub(super) buffer: Box<[u8]>,
}

impl StreamWorker {
    /// Returns the response to a request that was handed off: `message`, or SERVFAIL.
    pub(super) fn complete(&mut self, later: &mut Later, message: Option<&[u8]>) -> &[u8] {
        let QueryWorker { zones, settings, stats, .. } = &mut self.query_worker;
        let context = Context { snapshot: zones.snapshot(), settings: settings.load(), stats, limiter: None };
        let mut response = Response::new(&mut self.buffer);
        let Later { query, peer, signer, .. } = later;
        complete_signed(&context, query, peer, message, &mut response, signer.as_mut());
        let octets = response.octets().len();
        &self.buffer[..octets]
    }

    /// Makes the next message of an answer, and returns whether it is the last. `None` if the answer takes too long, or its cursor
    /// made no message.
    fn fill(&mut self, many: &mut Many) -> Option<(&[u8], bool)> {
        let moment = tokio::time::Instant::now();
        if moment >= many.until {
            return None;
        }
        let room = self.buffer.len() - many.signer.as_ref().map_or(0, Signer::octets);
        let (mut octets, is_last) = match many.cursor.fill(&mut self.buffer[..room]) {
            Progress::More(octets) => (octets, false),
            Progress::Last(octets) => (octets, true),
        };
        if let Some(signer) = many.signer.as_mut().filter(|_| octets > 0) {
            // The messages can be minutes apart.
            let now = self.query_worker.begin(moment.into_std());
            octets = signer.sign(&mut self.buffer, octets, now)?;
        }
        let message = self.buffer.get(..octets).filter(|message| !message.is_empty())?;
        if !std::mem::replace(&mut many.has_begun, true) {
            count(&self.query_worker.stats, &many.peer, message);
        }
        Some((message, is_last))
    }
}

impl StreamWorkerPool {
    pub(super) fn new(
        count: usize,
        db: &ZoneDb,
        settings: &LiveSettings,
        hand_offs: Option<Arc<HandOffs>>,
    ) -> (Self, Vec<WorkerOutputs>) {
        let (stream_workers, outputs): (Vec<_>, Vec<_>) =
            (0..count).map(|_| QueryWorker::new(db, settings, hand_offs.clone())).unzip();
        let stats = stream_workers.iter().map(|query_worker| Arc::clone(query_worker.stats())).collect();
        let stream_worker =
            |query_worker| Mutex::new(StreamWorker { query_worker, buffer: vec![0; MESSAGE_OCTETS_MAX].into() });
        (StreamWorkerPool { stream_workers: stream_workers.into_iter().map(stream_worker).collect(), stats }, outputs)
    }

    pub(super) fn stats(&self) -> &[Arc<Stats>] {
        &self.stats
    }

    /// Makes the next message of an answer on the connection with this number, and returns what `take` makes of it and of whether it is the
    /// last. `None`: see [`StreamWorker::fill`].
    pub(super) fn next_message<T>(
        &self,
        connection: usize,
        many: &mut Many,
        take: impl FnOnce(&[u8], bool) -> T,
    ) -> Option<T> {
        // Threads that wait for the processor go first, such as those that answer over UDP. Without it, their p99 was seven times as
        // long during transfers (bench `secondaries`).
        std::thread::yield_now();
        self.with(connection, |worker| {
            let (message, is_last) = worker.fill(many)?;
            Some(take(message, is_last))
        })
    }

    /// Uses the worker of the connection with this number. Do not await meanwhile.
    pub(super) fn with<T>(&self, connection: usize, work: impl FnOnce(&mut StreamWorker) -> T) -> T {
        let query_worker = &self.stream_workers[connection % self.stream_workers.len()];
        // A worker has no state that a panic could leave half-changed: each answer starts from the beginning.
        work(&mut query_worker.lock())
    }

    /// Releases replaced zones and settings.
    pub(super) fn refresh(&self) {
        for query_worker in &self.stream_workers {
            query_worker.lock().query_worker.refresh();
        }
    }
}

/// Returns a new secret of this process.
fn keys() -> [u64; 2] {
    [0, 1].map(|number| RandomState::new().hash_one(number))
}
