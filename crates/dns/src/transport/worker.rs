//! What a worker sits at: its view of the zones and of the settings, its working memory, its counters and its dice.
//!
//! A UDP worker owns one. Stream connections share a handful, each behind a mutex that is held for the microseconds it
//! takes to answer what one read brought, never over an await.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Cache};
use parking_lot::Mutex;

use super::clock::WallClock;
use super::query_log::{Sampler, Tap};
use super::random::Random;
use super::wildcard_hits::{WildcardHitReceiver, WildcardSampler};
use crate::nameserver::{
    Context, Exchange, Limiter, Outcome, Peer, Response, Scratch, Settings, Stats, Transport, respond, respond_batch,
};
use crate::zone::db::{Reader, ZoneDb};

/// The operator's settings as they are now: a reload stores a new value, and each worker takes it with its next batch.
pub type LiveSettings = Arc<ArcSwap<Settings>>;

/// The largest message on a stream (RFC 1035 §4.2.2: a length of two octets).
pub(super) const MESSAGE_OCTETS_MAX: usize = 65_535;

/// One worker's place.
pub(super) struct QueryWorker {
    zones: Reader,
    settings: Cache<LiveSettings, Arc<Settings>>,
    scratch: Scratch,
    stats: Arc<Stats>,
    /// Clients' buckets, from the moment that datagrams are to be rate-limited. Streams are not, so theirs stays none.
    limiter: Option<Limiter>,
    clock: WallClock,
    /// When the batch at hand came, since the epoch.
    batch_at: Duration,
    sampler: Sampler,
    lookout: WildcardSampler,
    pub(super) random: Random,
}

/// Where that comes out which a desk leaves for others.
pub(super) struct WorkerOutputs {
    pub(super) query_log: Tap,
    pub(super) sightings: WildcardHitReceiver,
}

impl QueryWorker {
    /// A desk, and where that comes out which it leaves for others.
    pub(super) fn new(db: &ZoneDb, settings: &LiveSettings) -> (Self, WorkerOutputs) {
        let (sampler, query_log) = Sampler::new();
        let (lookout, sightings) = WildcardSampler::new();
        let query_worker = QueryWorker {
            zones: db.reader(),
            settings: Cache::new(Arc::clone(settings)),
            scratch: Scratch::new(),
            stats: Arc::new(Stats::with_zones(db.numbers_max())),
            clock: WallClock::new(),
            batch_at: Duration::ZERO,
            limiter: None,
            sampler,
            lookout,
            random: Random::new(),
        };
        (query_worker, WorkerOutputs { query_log, sightings })
    }

    /// A batch has come at `moment`; returns the seconds since the epoch.
    pub(super) fn begin(&mut self, moment: Instant) -> u64 {
        self.batch_at = self.clock.at(moment);
        self.batch_at.as_secs()
    }

    /// The counters this desk's user writes.
    pub(super) fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Lets go of zones and settings that have been replaced. A worker without work does so now and then; one with work
    /// does it by working.
    pub(super) fn refresh(&mut self) {
        self.zones.snapshot();
        self.settings.load();
    }

    /// Makes the working memory anew, after a panic may have left it half-changed.
    pub(super) fn clean(&mut self) {
        self.scratch = Scratch::new();
    }

    /// Answers a batch of datagrams from one snapshot.
    pub(super) fn answer_batch(&mut self, exchanges: &mut [Exchange<'_>]) {
        let settings: &Settings = self.settings.load();
        if settings.rate_limit.is_some() != self.limiter.is_some() {
            // Once after a reload: the one allocation that a batch may meet.
            self.limiter = settings.rate_limit.is_some().then(|| Limiter::new(keys()));
        }
        let limiter = self.limiter.as_ref();
        let context = Context { snapshot: self.zones.snapshot(), settings, stats: &self.stats, limiter };
        respond_batch(&context, &mut self.scratch, exchanges);
        if let Some(every) = context.settings.query_log {
            let mut rest = &*exchanges;
            while let Some(at) = self.sampler.pick(every, rest.len(), &mut self.random) {
                let exchange = &rest[at];
                let answered = (exchange.outcome, &exchange.response);
                self.sampler.log(exchange.query, &exchange.peer, self.batch_at, answered, context.snapshot);
                rest = &rest[at + 1..];
            }
        }
        if context.settings.sightings {
            self.lookout.begin(self.batch_at);
            let mut rest = &*exchanges;
            while let Some(at) = self.lookout.pick(rest.len(), &mut self.random) {
                self.lookout.look(rest[at].query, rest[at].outcome, context.snapshot);
                rest = &rest[at + 1..];
            }
        }
    }

    /// Answers one message of a stream into `buffer`; returns the length of the response, `None` if there is none. `idle` is
    /// how long the connection may be silent, if that is to be told.
    pub(super) fn answer_one(
        &mut self,
        query: &[u8],
        (address, transport, idle): (SocketAddr, Transport, Option<Duration>),
        now: u64,
        buffer: &mut [u8],
    ) -> Option<usize> {
        // In units of 100 ms.
        let keepalive = idle.map(|idle| u16::try_from(idle.as_millis() / 100).unwrap_or(u16::MAX));
        let peer = Peer { address, transport, now, random: self.random.next(), keepalive };
        let settings = self.settings.load();
        let context = Context { snapshot: self.zones.snapshot(), settings, stats: &self.stats, limiter: None };
        let mut response = Response::new(buffer);
        let outcome = respond(&context, query, &peer, &mut response);
        if let Some(every) = context.settings.query_log
            && self.sampler.pick(every, 1, &mut self.random).is_some()
        {
            self.sampler.log(query, &peer, self.batch_at, (outcome, &response), context.snapshot);
        }
        if context.settings.sightings {
            self.lookout.begin(self.batch_at);
            if self.lookout.pick(1, &mut self.random).is_some() {
                self.lookout.look(query, outcome, context.snapshot);
            }
        }
        match outcome {
            Outcome::Reply => Some(response.octets().len()),
            Outcome::Drop => None,
        }
    }
}

/// The desks that stream connections share. More desks than processors, so that two connections seldom want the same.
pub(super) struct StreamWorkerPool {
    stream_workers: Vec<Mutex<StreamWorker>>,
    stats: Vec<Arc<Stats>>,
}

/// A desk with room for one response of a stream.
pub(super) struct StreamWorker {
    pub(super) query_worker: QueryWorker,
    pub(super) buffer: Box<[u8]>,
}

impl StreamWorkerPool {
    pub(super) fn new(count: usize, db: &ZoneDb, settings: &LiveSettings) -> (Self, Vec<WorkerOutputs>) {
        let (stream_workers, outputs): (Vec<_>, Vec<_>) = (0..count).map(|_| QueryWorker::new(db, settings)).unzip();
        let stats = stream_workers.iter().map(|query_worker| Arc::clone(query_worker.stats())).collect();
        let stream_worker =
            |query_worker| Mutex::new(StreamWorker { query_worker, buffer: vec![0; MESSAGE_OCTETS_MAX].into() });
        (StreamWorkerPool { stream_workers: stream_workers.into_iter().map(stream_worker).collect(), stats }, outputs)
    }

    pub(super) fn stats(&self) -> &[Arc<Stats>] {
        &self.stats
    }

    /// Uses the desk of the connection with this number. Do not await meanwhile.
    pub(super) fn with<T>(&self, connection: usize, work: impl FnOnce(&mut StreamWorker) -> T) -> T {
        let query_worker = &self.stream_workers[connection % self.stream_workers.len()];
        // A desk has no state that a panic could leave half-changed: each answer starts anew.
        work(&mut query_worker.lock())
    }

    /// Lets go of what has been replaced.
    pub(super) fn refresh(&self) {
        for query_worker in &self.stream_workers {
            query_worker.lock().query_worker.refresh();
        }
    }
}

/// A secret of this process, another each time.
fn keys() -> [u64; 2] {
    [0, 1].map(|number| RandomState::new().hash_one(number))
}
