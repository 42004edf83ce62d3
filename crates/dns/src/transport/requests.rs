//! The requests of one connection whose requests are separate futures: DNS over QUIC and DNS over HTTPS.
//!
//! A [`super::stream`] answers in order, and so bounds its memory by not reading on. Here, each request runs separately, and
//! waits for the octets of its query and for its client to read the answer. [`Requests`] limits their total memory, and decides
//! when the connection ends ([`Requests::end`]).

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::stream::{CloseReason, Service};
use super::worker::MESSAGE_OCTETS_MAX;
use crate::nameserver::Transport;

/// The maximum number of open requests of a connection. A client that pipelines more waits a round trip. With a higher limit,
/// each connection could hold more incomplete queries.
pub(super) const REQUESTS_MAX: u32 = 128;

/// The maximum number of cancelled requests of a connection above the number of answered ones. Each costs the server about as
/// much as the client, which sends no query then (RFC 9250 §5.3.1, RFC 9113 §10.5).
const CANCELLED_MAX: u64 = 256;

/// The maximum size of an answer in octets, including its two octets of length.
const ANSWER_OCTETS_MAX: usize = 2 + MESSAGE_OCTETS_MAX;

/// The shared state of the requests of one connection.
pub(super) struct Requests {
    pub(super) service: Arc<Service>,
    transport: Transport,
    /// Numbers the requests, to spread them over the workers.
    next_worker: AtomicUsize,
    opened: Instant,
    /// The time of the last request, in milliseconds after `opened`.
    last_request: AtomicU64,
    /// The permits for octets of unread answers: [`Limits::unsent_octets_max`], and room for two more answers, because the size
    /// of an answer is known only when it exists.
    ///
    /// [`Limits::unsent_octets_max`]: super::stream::Limits::unsent_octets_max
    unsent: Arc<Semaphore>,
    /// The current interval of [`Self::unread`]. Each answer has a clone, so that the count shows whether answers of an interval are
    /// left.
    interval: Mutex<Arc<()>>,
    answered: AtomicU64,
    cancelled: AtomicU64,
    ended: OnceLock<CloseReason>,
    ending: CancellationToken,
}

/// One answer, with its share of the connection's unsent octets, which its drop releases.
pub(super) struct Answer {
    pub(super) octets: Bytes,
    _permit: OwnedSemaphorePermit,
    /// The interval in which it was made.
    _interval: Arc<()>,
}

impl AsRef<[u8]> for Answer {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

impl Requests {
    pub(super) fn new(service: Arc<Service>, transport: Transport) -> Self {
        let unsent = service.limits.unsent_octets_max.min(Semaphore::MAX_PERMITS / 2) + 2 * ANSWER_OCTETS_MAX;
        let unsent = Arc::new(Semaphore::new(unsent));
        Requests {
            transport,
            next_worker: AtomicUsize::new(service.connections.fetch_add(1, Ordering::Relaxed)),
            opened: Instant::now(),
            last_request: AtomicU64::new(0),
            unsent,
            interval: Mutex::default(),
            answered: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            ended: OnceLock::new(),
            ending: CancellationToken::new(),
            service,
        }
    }

    /// Counts a new request; returns its time of arrival.
    pub(super) fn begin(&self) -> Instant {
        let now = Instant::now();
        self.last_request.store((now - self.opened).as_millis() as u64, Ordering::Relaxed);
        now
    }

    /// Answers one query that arrived at `began`, with the two octets of its length in front if it is `framed`. Waits while the
    /// client has too many octets of other answers to read.
    pub(super) async fn answer(
        &self,
        query: &[u8],
        peer: SocketAddr,
        began: Instant,
        framed: bool,
    ) -> Result<Answer, CloseReason> {
        let Service { limits, stream_workers, counters, .. } = &*self.service;
        counters.messages.add_shared(1);
        let mut permit = match Arc::clone(&self.unsent).try_acquire_many_owned(ANSWER_OCTETS_MAX as u32) {
            Ok(permit) => permit,
            Err(_) => {
                let room = Arc::clone(&self.unsent).acquire_many_owned(ANSWER_OCTETS_MAX as u32);
                let Ok(Ok(permit)) = timeout(limits.write, room).await else { return Err(CloseReason::SlowWrite) };
                permit
            }
        };
        if let Some(ended) = self.ended.get() {
            return Err(*ended);
        }
        let octets = stream_workers.with(self.next_worker.fetch_add(1, Ordering::Relaxed), |place| {
            let now = place.query_worker.begin(began.into_std());
            let answer = place.query_worker.answer_one(query, (peer, self.transport, None), now, &mut place.buffer);
            let octets = answer.filter(|octets| (1..=MESSAGE_OCTETS_MAX).contains(octets))?;
            let mut answer = BytesMut::with_capacity(2 + octets);
            if framed {
                answer.put_u16(octets as u16);
            }
            answer.extend_from_slice(&place.buffer[..octets]);
            Some(answer.freeze())
        });
        let Some(octets) = octets else { return Err(CloseReason::Malformed) };
        drop(permit.split(ANSWER_OCTETS_MAX - octets.len()));
        Ok(Answer { octets, _permit: permit, _interval: Arc::clone(&self.interval.lock()) })
    }

    /// Records the duration of a request that began at `began`.
    pub(super) fn record(&self, began: Instant) {
        self.service.counters.durations(self.transport).record_shared(1, began.elapsed());
    }

    /// Counts an answered request.
    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that the client cancelled.
    pub(super) fn cancelled(&self) {
        let cancelled = self.cancelled.fetch_add(1, Ordering::Relaxed);
        if cancelled >= self.answered.load(Ordering::Relaxed) + CANCELLED_MAX {
            self.fail(CloseReason::Cancelled);
        }
    }

    /// Ends the connection; the first reason counts.
    pub(super) fn fail(&self, reason: CloseReason) {
        self.ended.get_or_init(|| reason);
        self.ending.cancel();
    }

    /// Waits until the connection must end: by [`Self::fail`], because an answer is not read, after silence, at its maximum age, or
    /// because the server stops.
    pub(super) async fn end(&self) -> CloseReason {
        let mut unread = pin!(self.unread());
        loop {
            let last = Duration::from_millis(self.last_request.load(Ordering::Relaxed));
            let idle_at = self.opened + last + self.service.idle();
            let old_at = self.opened + self.service.limits.lifetime;
            tokio::select! {
                biased;
                () = self.ending.cancelled() => return self.ended.get().copied().unwrap_or(CloseReason::Broken),
                () = self.service.stopped() => return CloseReason::Stopped,
                () = &mut unread => return CloseReason::SlowWrite,
                () = sleep_until(idle_at.min(old_at)) => {}
            }
            if Instant::now() >= old_at {
                return CloseReason::Old;
            }
            if self.last_request.load(Ordering::Relaxed) == last.as_millis() as u64 {
                return CloseReason::Idle;
            }
        }
    }

    /// Waits until an answer exists for longer than the write timeout, at most twice as long: time is divided into intervals of the
    /// timeout, and at the end of each one, no answer of the interval before it may be left.
    async fn unread(&self) {
        let mut before = Arc::default();
        loop {
            sleep(self.service.limits.write).await;
            if Arc::strong_count(&before) > 1 {
                return;
            }
            before = std::mem::take(&mut *self.interval.lock());
        }
    }

    /// Returns the remaining time of the current requests when the connection ends.
    pub(super) fn last_wait(&self) -> Duration {
        self.service.limits.read + self.service.limits.write
    }
}
