//! Messages on a stream: two octets of length, then the message (RFC 1035 §4.2.2, RFC 7766).
//!
//! ```text
//!        ┌──────────── idle ◄───────────────┐
//!        ▼  some octets                     │ nothing left
//!  answer every whole message ──► write all answers at once ──► part of a message left: wait for the rest
//!        │ not a message                                                    │ too slow
//!        └────────────► answers so far, then close ◄────────────────────────┘
//! ```
//!
//! Each connection is one task over any byte stream, TLS included. It answers in the order of the queries, except for requests
//! in flight ([`super::hand_off`]); RFC 7766 §6.2.1.1 recommends that servers answer pipelined queries without delay and lets clients
//! match by ID. While answers wait to be written, nothing more is read, so a client can make the server hold at most one read and
//! [`Limits::unsent_octets_max`] (and one message beyond it). Between the messages of an answer of many, other queries are answered.

use std::future::{pending, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::admission::{Admission, Permit, Refusal};
use super::counters::Counters;
use super::hand_off::{InFlight, LATER_WAIT_MAX, Later, Next, Shared};
use super::worker::{Answered, StreamWorkerPool};
use crate::nameserver::Transport;

/// The limits of stream clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of connections of all stream listeners.
    pub connections_max: usize,
    /// The maximum number of connections of one client: an IPv4 address, or a /56 of IPv6, the network of one site.
    pub connections_per_client_max: usize,
    /// The maximum silence of a connection between messages. A tenth of it when three quarters of the connections are in use (RFC
    /// 7766 §6.2.3 lets a server vary it). Clients that request it receive the current value (RFC 7828).
    pub idle: Duration,
    /// The maximum time of a message from its first octet to its last.
    pub read: Duration,
    /// The maximum time for a client to read the answers that are written at once, [`Self::unsent_octets_max`] and one more; also
    /// the maximum time for all remaining answers when the server stops.
    pub write: Duration,
    /// The age at which a connection is closed after the current answers, even if there are more queries: the client repeats
    /// unfinished and further queries on another connection (RFC 7766 §6.2.4).
    pub lifetime: Duration,
    /// The time after which an answer of many messages, which is a zone transfer, ends unfinished: at 1 Mbit/s, that of a
    /// million names. For that time, a client that reads slowly can keep a replaced zone in memory.
    pub transfer: Duration,
    /// The number of octets of answers from which the server writes them before it computes more.
    pub unsent_octets_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 8_192,
            connections_per_client_max: 256,
            idle: Duration::from_secs(10),
            read: Duration::from_secs(5),
            write: Duration::from_secs(5),
            lifetime: Duration::from_secs(600),
            transfer: Duration::from_secs(600),
            unsent_octets_max: 64 * 1024,
        }
    }
}

/// The minimum size of a read: some 40 queries, and little enough to hold for each idle connection.
const READ_OCTETS: usize = 2_048;

/// The maximum size of a buffer between messages; larger ones are freed. With twice as much, an idle connection over TLS that
/// had pipelined took 20 KiB, of which TLS itself takes 10.
const KEPT_OCTETS_MAX: usize = 8 * 1024;

/// The size of a header (RFC 1035 §4.1.1): a shorter message cannot even be rejected.
const HEADER_OCTETS: usize = 12;

/// The time and the number of octets for which a connection that the server closed still reads, so that the client receives the
/// answers and not a reset.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_OCTETS_MAX: usize = 64 * 1024;

/// The maximum number of further reads of a connection after a stop request, for queries that have already arrived.
const LAST_READS_MAX: usize = 16;
/// The wait of each of those reads: octets that are already in the socket are seen only when the runtime has polled it. With a
/// shorter wait, a busy machine loses queries that had arrived; with a longer one, idle connections delay the end.
const LAST_READ_WAIT: Duration = Duration::from_millis(50);

/// The shared state of all connections of a transport.
pub(super) struct Service {
    /// The workers, shared by all services.
    pub(super) stream_workers: Arc<StreamWorkerPool>,
    pub(super) counters: Counters,
    pub(super) limits: Limits,
    pub(super) admission: Arc<Admission>,
    /// Numbers the connections, to spread them over the workers.
    pub(super) connections: AtomicUsize,
    /// The time of the stop request; set before the token is cancelled. A busy connection sees it without taking the token's
    /// lock.
    stopping: OnceLock<Instant>,
    stop: CancellationToken,
}

/// The reason why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The client closed it after all its queries were answered.
    ByClient,
    /// The connection was silent for too long.
    Idle,
    /// A message was not complete in time.
    SlowRead,
    /// The client did not read answers in time.
    SlowWrite,
    /// The message is malformed, or must not be answered.
    Malformed,
    /// The client cancelled too many requests.
    Cancelled,
    /// The connection reached its maximum lifetime.
    Old,
    /// The server stops.
    Stopped,
    /// The connection failed.
    Broken,
}

impl Service {
    pub(super) fn new(stream_workers: Arc<StreamWorkerPool>, limits: Limits) -> Self {
        let admission = Arc::new(Admission::new(limits.connections_max, limits.connections_per_client_max));
        Service {
            stream_workers,
            counters: Counters::default(),
            limits,
            admission,
            connections: AtomicUsize::new(0),
            stopping: OnceLock::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Admits a client, or counts the refusal.
    pub(super) fn admit(&self, client: IpAddr) -> Option<Permit> {
        let refused = match self.admission.admit(client) {
            Ok(permit) => return Some(permit),
            Err(Refusal::Total) => &self.counters.refused_total,
            Err(Refusal::Client) => &self.counters.refused_client,
        };
        refused.add_shared(1);
        None
    }

    /// Requests every connection and listener to finish.
    pub(super) fn stop(&self) {
        // If requested twice, the first time counts.
        self.stopping.get_or_init(Instant::now);
        self.stop.cancel();
    }

    /// Returns the time until which answers are written, if a stop was requested.
    pub(super) fn last_moment(&self) -> Option<Instant> {
        self.stopping.get().map(|since| *since + self.limits.write)
    }

    /// Waits until [`Self::stop`] is called.
    pub(super) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Returns the message of a later answer, or SERVFAIL after [`LATER_WAIT_MAX`]; when the server stops, after half of the time for
    /// the last answers.
    pub(super) async fn wait_for(&self, mut later: Later) -> Vec<u8> {
        let last = async {
            self.stopped().await;
            sleep(self.limits.write / 2).await;
        };
        let answer = tokio::select! {
            biased;
            answer = timeout(LATER_WAIT_MAX, &mut later.answer) => answer.ok(),
            () = last => None,
        };
        self.stream_workers.with(0, |worker| worker.complete(&mut later, answer.as_deref()).to_vec())
    }

    /// Returns the maximum silence of a connection at present.
    pub(super) fn idle(&self) -> Duration {
        let idle = self.limits.idle;
        if self.admission.is_crowded() { idle / 10 } else { idle }
    }

    /// Serves one connection to its end.
    pub(super) async fn serve<S>(&self, stream: S, peer: SocketAddr, transport: Transport) -> CloseReason
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let opened = Instant::now();
        let mut connection = Connection {
            service: self,
            stream,
            peer,
            transport,
            query_worker: self.connections.fetch_add(1, Ordering::Relaxed),
            input: BytesMut::new(),
            output: Vec::new(),
            in_flight: None,
            // One timer for all waits of a connection; it is reset only when it fires too early.
            timer: Box::pin(sleep_until(opened + self.limits.idle)),
            opened,
            active_at: opened,
            partial_since: None,
        };
        let ended = connection.run().await;
        connection.close(ended).await;
        self.count_end(ended);
        ended
    }

    /// Counts the end of a connection.
    pub(super) fn count_end(&self, ended: CloseReason) {
        let counters = &self.counters;
        match ended {
            CloseReason::Idle => counters.idle_timeouts.add_shared(1),
            CloseReason::SlowRead => counters.read_timeouts.add_shared(1),
            CloseReason::SlowWrite => counters.write_timeouts.add_shared(1),
            CloseReason::Malformed | CloseReason::Cancelled => counters.malformed.add_shared(1),
            CloseReason::Broken => counters.broken.add_shared(1),
            CloseReason::ByClient | CloseReason::Old | CloseReason::Stopped => {}
        }
    }
}

struct Connection<'a, S> {
    service: &'a Service,
    stream: S,
    peer: SocketAddr,
    transport: Transport,
    query_worker: usize,
    input: BytesMut,
    output: Vec<u8>,
    /// The requests in flight, if there are any.
    in_flight: Option<Box<Shared<'a>>>,
    timer: Pin<Box<Sleep>>,
    opened: Instant,
    /// The time of the last answer.
    active_at: Instant,
    /// The arrival of the first octet of the current message.
    partial_since: Option<Instant>,
}

/// The progress of answering the input.
enum WriteProgress {
    /// Up to the last whole message.
    All,
    /// Answered until the output was full.
    Some,
    /// Up to a fault that ends the connection.
    UpToFault,
}

/// The outcome of a read.
enum ReadOutcome {
    Octets,
    /// Nothing yet, but a request in flight has a message.
    Next(Next),
    End,
    Silence,
    Stop,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    async fn run(&mut self) -> CloseReason {
        loop {
            let (deadline, slow) = self.deadline();
            let ended = match self.read(deadline).await {
                Ok(ReadOutcome::Octets) => self.respond().await,
                Ok(ReadOutcome::Next(next)) => self.proceed(next).await.err(),
                Ok(ReadOutcome::End) => return self.drain(CloseReason::ByClient).await,
                Ok(ReadOutcome::Silence) if slow == CloseReason::Old => return self.drain(slow).await,
                Ok(ReadOutcome::Silence) => return slow,
                Ok(ReadOutcome::Stop) => return self.finish().await,
                // Over TLS: the end without close_notify. Messages have lengths, so a truncated one is detected.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return CloseReason::ByClient,
                Err(_) => return CloseReason::Broken,
            };
            if let Some(ended) = ended {
                return ended;
            }
            if self.service.stopping.get().is_some() {
                return self.finish().await;
            }
            if self.opened.elapsed() >= self.service.limits.lifetime {
                return self.drain(CloseReason::Old).await;
            }
        }
    }

    /// Returns the time until which the client must send something, and the reason to end otherwise.
    fn deadline(&self) -> (Instant, CloseReason) {
        let limits = &self.service.limits;
        if let Some(since) = self.partial_since {
            return (since + limits.read, CloseReason::SlowRead);
        }
        let (idle_at, old_at) = (self.active_at + self.service.idle(), self.opened + limits.lifetime);
        if old_at < idle_at || self.in_flight.is_some() {
            (old_at, CloseReason::Old)
        } else {
            (idle_at, CloseReason::Idle)
        }
    }

    /// Reads the available data, waiting until `deadline`.
    async fn read(&mut self, deadline: Instant) -> io::Result<ReadOutcome> {
        let missing = match self.input.first_chunk::<2>() {
            Some(length) => (2 + usize::from(u16::from_be_bytes(*length))).saturating_sub(self.input.len()),
            None => 0,
        };
        self.input.reserve(missing.max(READ_OCTETS / 2));
        if self.timer.deadline() > deadline {
            self.timer.as_mut().reset(deadline);
        }
        let mut stopped = pin!(self.service.stop.cancelled());
        loop {
            tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.input) => {
                    if read? == 0 {
                        return Ok(ReadOutcome::End);
                    }
                    self.read_on().await;
                    return Ok(ReadOutcome::Octets);
                }
                () = &mut stopped => return Ok(ReadOutcome::Stop),
                next = next(&mut self.in_flight) => return Ok(ReadOutcome::Next(next)),
                () = self.timer.as_mut() => {
                    if Instant::now() >= deadline {
                        return Ok(ReadOutcome::Silence);
                    }
                    self.timer.as_mut().reset(deadline);
                }
            }
        }
    }

    /// Reads further available data without waiting. TLS returns one record at a time, and clients send each query in its own:
    /// queries that arrived together are answered together. Over TCP, one read has returned everything.
    async fn read_on(&mut self) {
        while self.transport != Transport::Tcp && self.input.len() < READ_OCTETS {
            self.input.reserve(READ_OCTETS / 2);
            let mut read = pin!(self.stream.read_buf(&mut self.input));
            if !matches!(poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await, Poll::Ready(Ok(1..))) {
                return;
            }
        }
    }

    /// Answers all whole messages of the input, in one write where they fit; returns how that ended the connection.
    ///
    /// The queries of one read can result in megabytes of answers. A client that reads each write just in time would be served
    /// for minutes that way, so the end of the connection is also checked between writes.
    async fn respond(&mut self) -> Option<CloseReason> {
        let mut begun = std::time::Instant::now();
        loop {
            let before = self.input.len();
            let (messages, answered) = self.answer(begun);
            if self.input.is_empty() {
                self.partial_since = None;
            } else if self.input.len() < before || self.partial_since.is_none() {
                self.partial_since = Some(Instant::from_std(begun));
            }
            let flushed = self.flush().await;
            if messages > 0 {
                let done = std::time::Instant::now();
                let took = done.saturating_duration_since(begun);
                self.service.counters.durations(self.transport).record_shared(messages, took);
                begun = done;
                self.active_at = Instant::from_std(done);
            }
            if let Err(ended) = flushed {
                return Some(ended);
            }
            match answered {
                WriteProgress::Some => {}
                WriteProgress::All => break,
                WriteProgress::UpToFault => return Some(CloseReason::Malformed),
            }
            if let Some(ended) = self.overdue() {
                return Some(ended);
            }
        }
        if self.output.capacity() > KEPT_OCTETS_MAX {
            self.output = Vec::new();
        }
        if self.input.is_empty() && self.input.capacity() > KEPT_OCTETS_MAX {
            self.input = BytesMut::new();
        }
        None
    }

    /// Returns the reason to end now, although there is more to answer.
    fn overdue(&self) -> Option<CloseReason> {
        if self.service.last_moment().is_some_and(|moment| Instant::now() >= moment) {
            return Some(CloseReason::Stopped);
        }
        (self.opened.elapsed() >= self.service.limits.lifetime).then_some(CloseReason::Old)
    }

    /// Turns whole messages of `input`, which came at `moment`, into answers in `output`; returns how many there were.
    fn answer(&mut self, moment: std::time::Instant) -> (u64, WriteProgress) {
        let idle = Some(self.service.idle());
        let Connection { service, input, output, in_flight, peer, transport, .. } = self;
        let mut messages = 0;
        let answered = service.stream_workers.with(self.query_worker, |worker| {
            let now = worker.query_worker.begin(moment);
            loop {
                if output.len() >= service.limits.unsent_octets_max {
                    return WriteProgress::Some;
                }
                let Some(length) = input.first_chunk::<2>() else { return WriteProgress::All };
                let length = usize::from(u16::from_be_bytes(*length));
                if length < HEADER_OCTETS {
                    return WriteProgress::UpToFault;
                }
                let Some(query) = input.get(2..2 + length) else { return WriteProgress::All };
                messages += 1;
                let client = (*peer, *transport, idle);
                let has_room = in_flight.as_ref().is_none_or(|in_flight| in_flight.has_room());
                match worker.query_worker.answer_one(query, client, now, &mut worker.buffer, has_room) {
                    Some(Answered::One(octets)) => put(output, &worker.buffer[..octets]),
                    Some(Answered::InFlight(request)) => {
                        let in_flight = in_flight.get_or_insert_default();
                        match request {
                            InFlight::Many(many) => in_flight.many.push_back(many),
                            InFlight::Later(later) => in_flight.later.push(Box::pin(service.wait_for(later))),
                        }
                    }
                    // A message that must not be answered, such as a response, does not come from a real client.
                    None => return WriteProgress::UpToFault,
                }
                input.advance(2 + length);
            }
        });
        service.counters.messages.add_shared(messages);
        (messages, answered)
    }

    /// Writes the output.
    async fn flush(&mut self) -> Result<(), CloseReason> {
        if self.output.is_empty() {
            return Ok(());
        }
        let mut deadline = Instant::now() + self.service.limits.write;
        if let Some(moment) = self.service.last_moment() {
            deadline = deadline.min(moment);
        }
        if self.timer.deadline() > deadline {
            self.timer.as_mut().reset(deadline);
        }
        let mut written = pin!(async {
            self.stream.write_all(&self.output).await?;
            // TLS keeps encrypted data until it is flushed.
            self.stream.flush().await
        });
        loop {
            tokio::select! {
                biased;
                done = &mut written => match done {
                    Ok(()) => break,
                    Err(_) => return Err(CloseReason::Broken),
                },
                () = self.timer.as_mut() => {
                    if Instant::now() >= deadline {
                        return Err(CloseReason::SlowWrite);
                    }
                    self.timer.as_mut().reset(deadline);
                }
            }
        }
        self.output.clear();
        Ok(())
    }

    /// Writes the next message of a request in flight.
    async fn proceed(&mut self, next: Next) -> Result<(), CloseReason> {
        let Connection { service, output, in_flight, .. } = self;
        match next {
            Next::Message(message) => put(output, &message),
            Next::Of(mut many) => {
                let is_last = service.stream_workers.next_message(self.query_worker, &mut many, |message, is_last| {
                    put(output, message);
                    is_last
                });
                match (is_last, &mut *in_flight) {
                    (Some(false), Some(in_flight)) => in_flight.many.push_back(many),
                    (Some(_), _) => {}
                    (None, _) => return Err(CloseReason::SlowWrite),
                }
            }
        }
        if in_flight.as_ref().is_some_and(|in_flight| in_flight.is_empty()) {
            *in_flight = None;
        }
        self.flush().await?;
        self.active_at = Instant::now();
        if self.in_flight.is_none() && self.output.capacity() > KEPT_OCTETS_MAX {
            self.output = Vec::new();
        }
        Ok(())
    }

    /// Completes the requests in flight, without reading further ones. A stop limits the time for that.
    async fn drain(&mut self, ended: CloseReason) -> CloseReason {
        while self.in_flight.is_some() {
            if self.service.last_moment().is_some_and(|moment| Instant::now() >= moment) {
                return CloseReason::Stopped;
            }
            let next = next(&mut self.in_flight).await;
            if let Err(ended) = self.proceed(next).await {
                return ended;
            }
        }
        ended
    }

    /// Answers the queries that have already arrived when the server stops, as far as the client reads the answers in time.
    async fn finish(&mut self) -> CloseReason {
        for _ in 0..LAST_READS_MAX {
            self.input.reserve(READ_OCTETS / 2);
            match timeout(LAST_READ_WAIT, self.stream.read_buf(&mut self.input)).await {
                Ok(Ok(read)) if read > 0 => {}
                _ => break,
            }
            if let Some(ended) = self.respond().await {
                return ended;
            }
        }
        self.drain(CloseReason::Stopped).await
    }

    /// Closes so that the client receives the written data.
    async fn close(mut self, ended: CloseReason) {
        if matches!(ended, CloseReason::Broken | CloseReason::SlowWrite) {
            return;
        }
        // A client that has disconnected needs no close_notify.
        drop(timeout(LINGER, self.stream.shutdown()).await);
        if matches!(ended, CloseReason::Malformed | CloseReason::Old | CloseReason::Stopped) {
            let mut left = LINGER_OCTETS_MAX;
            let drain = async {
                self.input.clear();
                while left > 0 {
                    self.input.clear();
                    self.input.reserve(READ_OCTETS);
                    match self.stream.read_buf(&mut self.input).await {
                        Ok(read) if read > 0 => left = left.saturating_sub(read),
                        _ => break,
                    }
                }
            };
            drop(timeout(LINGER, drain).await);
        }
    }
}

/// Appends a message with its length in front.
fn put(output: &mut Vec<u8>, message: &[u8]) {
    output.extend_from_slice(&(message.len() as u16).to_be_bytes());
    output.extend_from_slice(message);
}

/// Waits for the next message of the requests in flight; forever if there is none.
async fn next(in_flight: &mut Option<Box<Shared<'_>>>) -> Next {
    match in_flight {
        Some(in_flight) => in_flight.next().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
