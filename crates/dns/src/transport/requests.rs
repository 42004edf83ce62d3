//! The requests of one connection whose requests are separate futures: DNS over QUIC and DNS over HTTPS.
//!
//! A [`super::stream`] answers in order, and so bounds its memory by not reading on. Here, each request runs separately, and
//! waits for the octets of its query and for its client to read the answer. [`Requests`] limits their total memory, and decides
//! when the connection ends ([`Requests::end`]). A request in flight ([`super::hand_off`]) prevents the end by silence.

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

use super::hand_off::{IN_FLIGHT_PER_CONNECTION_MAX, InFlight, Many};
use super::stream::{CloseReason, Service};
use super::worker::{Answered, MESSAGE_OCTETS_MAX};
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
    /// Each request in flight has a clone, so that the count shows their number.
    in_flight: Arc<()>,
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

/// The further messages of an answer.
pub(super) struct FurtherMessages {
    many: Many,
    _in_flight: Arc<()>,
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
            in_flight: Arc::default(),
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

    /// Answers one query that arrived at `began`, with the two octets of its length in front if it is `framed`: the first message, and
    /// the [`Self::next`] ones if there are many. Waits while the client has too many octets of other answers to read.
    pub(super) async fn answer(
        &self,
        query: &[u8],
        peer: SocketAddr,
        began: Instant,
        framed: bool,
    ) -> Result<(Answer, Option<FurtherMessages>), CloseReason> {
        let Service { stream_workers, counters, .. } = &*self.service;
        counters.messages.add_shared(1);
        let permit = self.room().await?;
        let has_room = self.in_flight() < IN_FLIGHT_PER_CONNECTION_MAX;
        let answered = stream_workers.with(self.next_worker(), |place| {
            let now = place.query_worker.begin(began.into_std());
            let client = (peer, self.transport, None);
            Some(match place.query_worker.answer_one(query, client, now, &mut place.buffer, has_room)? {
                Answered::One(octets) => Ok(message(&place.buffer[..octets], framed)),
                Answered::InFlight(request) => Err(request),
            })
        });
        match answered {
            Some(Ok(octets)) => Ok((self.share(octets, permit), None)),
            Some(Err(request)) => {
                drop(permit);
                let in_flight = Arc::clone(&self.in_flight);
                match request {
                    InFlight::Many(many) => self.next(FurtherMessages { many, _in_flight: in_flight }).await,
                    InFlight::Later(later) => {
                        let octets = message(&self.service.wait_for(later).await, framed);
                        Ok((self.share(octets, self.room().await?), None))
                    }
                }
            }
            None => Err(CloseReason::Malformed),
        }
    }

    /// Returns the next message of an answer of many, with its length in front, and the further ones unless it is the last.
    pub(super) async fn next(
        &self,
        mut further: FurtherMessages,
    ) -> Result<(Answer, Option<FurtherMessages>), CloseReason> {
        let permit = self.room().await?;
        if self.service.last_moment().is_some_and(|moment| Instant::now() >= moment) {
            return Err(CloseReason::Stopped);
        }
        let workers = &self.service.stream_workers;
        let filled = workers
            .next_message(self.next_worker(), &mut further.many, |octets, is_last| (message(octets, true), is_last));
        let Some((octets, is_last)) = filled else { return Err(CloseReason::SlowWrite) };
        Ok((self.share(octets, permit), (!is_last).then_some(further)))
    }

    /// Waits for room for the largest answer.
    async fn room(&self) -> Result<OwnedSemaphorePermit, CloseReason> {
        let permit = match Arc::clone(&self.unsent).try_acquire_many_owned(ANSWER_OCTETS_MAX as u32) {
            Ok(permit) => permit,
            Err(_) => {
                let room = Arc::clone(&self.unsent).acquire_many_owned(ANSWER_OCTETS_MAX as u32);
                let Ok(Ok(permit)) = timeout(self.service.limits.write, room).await else {
                    return Err(CloseReason::SlowWrite);
                };
                permit
            }
        };
        if let Some(ended) = self.ended.get() {
            return Err(*ended);
        }
        Ok(permit)
    }

    /// Returns an answer that keeps its share of the room.
    fn share(&self, octets: Bytes, mut permit: OwnedSemaphorePermit) -> Answer {
        drop(permit.split(ANSWER_OCTETS_MAX - octets.len()));
        Answer { octets, _permit: permit, _interval: Arc::clone(&self.interval.lock()) }
    }

    fn next_worker(&self) -> usize {
        self.next_worker.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of requests in flight.
    fn in_flight(&self) -> usize {
        Arc::strong_count(&self.in_flight) - 1
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
                if self.in_flight() == 0 {
                    return CloseReason::Idle;
                }
                self.begin();
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
        if self.in_flight() > 0 && self.service.last_moment().is_none() {
            return self.service.limits.transfer;
        }
        self.service.limits.read + self.service.limits.write
    }
}

/// Returns a message, with its length in front if it is `framed`.
fn message(octets: &[u8], framed: bool) -> Bytes {
    let mut message = BytesMut::with_capacity(2 + octets.len());
    if framed {
        message.put_u16(octets.len() as u16);
    }
    message.extend_from_slice(octets);
    message.freeze()
}
