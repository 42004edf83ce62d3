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
//! Each connection is one task over anything that reads and writes, so that TLS needs nothing new. It answers in the order
//! of the queries, since no answer ever waits for anything; RFC 7766 §6.2.1.1 asks servers to answer pipelined queries
//! without delay and lets clients match by ID. While answers wait to be written nothing more is read, so what a client can
//! make the server hold is one read and [`Limits::unsent_octets_max`] (and one message beyond it).

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::admission::Admission;
use super::counters::Counters;
use super::desk::{Desks, MESSAGE_OCTETS_MAX};
use crate::nameserver::Transport;

/// What stream clients may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once, over all stream listeners.
    pub connections_max: usize,
    /// Connections at once of one client: an IPv4 address, or a /56 of IPv6, which is what one site has.
    pub connections_per_client_max: usize,
    /// How long a connection may be silent between messages. A tenth of it when three quarters of the connections are
    /// taken (RFC 7766 §6.2.3 lets a server vary it). Tell the same to clients: `nameserver::Settings::keepalive`.
    pub idle: Duration,
    /// How long a message may take from its first octet to its last.
    pub read: Duration,
    /// How long the answers to what one read brought may take to be taken.
    pub write: Duration,
    /// After how long a connection is closed when its answers are written. A client that has begun another message sends it
    /// again (RFC 7766 §6.2.4).
    pub lifetime: Duration,
    /// From how many octets of answers on they are written before more are made.
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
            unsent_octets_max: 64 * 1024,
        }
    }
}

/// How many octets a read takes at least: some 40 queries, and little enough to hold for each idle connection.
const READ_OCTETS: usize = 2_048;

/// What a buffer may keep between messages; larger ones are given back.
const KEPT_OCTETS_MAX: usize = 16 * 1024;

/// A header (RFC 1035 §4.1.1): what is shorter cannot even be refused.
const HEADER_OCTETS: usize = 12;

/// How long, and for how many octets, a connection that is closed by us still reads, so that the client gets the answers
/// and not a reset in their place.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_OCTETS_MAX: usize = 64 * 1024;

/// How many more reads a connection gets when it is told to stop, for queries that have already arrived.
const LAST_READS_MAX: usize = 16;
/// How long each of those reads waits: octets that lie in the socket already are seen only when the runtime has polled
/// it. Shorter, and a busy machine loses queries that had arrived; longer, and idle connections delay the end.
const LAST_READ_WAIT: Duration = Duration::from_millis(50);

/// What all connections share.
pub(super) struct Service {
    pub(super) desks: Desks,
    pub(super) counters: Counters,
    pub(super) limits: Limits,
    pub(super) admission: Admission,
    /// Numbers the connections, to spread them over the desks.
    connections: AtomicUsize,
    /// Set before the token is cancelled; a busy connection sees it without taking the token's lock.
    stopping: AtomicBool,
    stop: CancellationToken,
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// By the client, after all its queries were answered.
    ByClient,
    /// It was silent for too long.
    Idle,
    /// A message did not come whole in time.
    SlowRead,
    /// Answers were not taken in time.
    SlowWrite,
    /// A message that is none, or that nobody may answer.
    Malformed,
    /// It was open for long enough.
    Old,
    /// The server stops.
    Stopped,
    /// It broke.
    Broken,
}

impl Service {
    pub(super) fn new(desks: Desks, limits: Limits) -> Self {
        let admission = Admission::new(limits.connections_max, limits.connections_per_client_max);
        Service {
            desks,
            counters: Counters::default(),
            limits,
            admission,
            connections: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            stop: CancellationToken::new(),
        }
    }

    /// Tells every connection and listener to finish.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.cancel();
    }

    /// Returns when [`Self::stop`] was called.
    pub(super) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Serves one connection to its end.
    pub(super) async fn serve<S>(&self, stream: S, peer: SocketAddr, transport: Transport) -> Ended
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let opened = Instant::now();
        let mut connection = Connection {
            service: self,
            stream,
            peer,
            transport,
            desk: self.connections.fetch_add(1, Ordering::Relaxed),
            input: BytesMut::new(),
            output: Vec::new(),
            // One timer for all of a connection's waits; it is set anew only when it fires too early.
            timer: Box::pin(sleep_until(opened + self.limits.idle)),
            opened,
            partial_since: None,
        };
        let ended = connection.run().await;
        connection.close(ended).await;
        let counters = &self.counters;
        match ended {
            Ended::Idle => counters.idle_timeouts.add_shared(1),
            Ended::SlowRead => counters.read_timeouts.add_shared(1),
            Ended::SlowWrite => counters.write_timeouts.add_shared(1),
            Ended::Malformed => counters.malformed.add_shared(1),
            Ended::Broken => counters.broken.add_shared(1),
            Ended::ByClient | Ended::Old | Ended::Stopped => {}
        }
        ended
    }
}

struct Connection<'a, S> {
    service: &'a Service,
    stream: S,
    peer: SocketAddr,
    transport: Transport,
    desk: usize,
    input: BytesMut,
    output: Vec<u8>,
    timer: Pin<Box<Sleep>>,
    opened: Instant,
    /// When the first octet of the message at hand came.
    partial_since: Option<Instant>,
}

/// How far the input was answered.
#[derive(PartialEq)]
enum Answered {
    /// Up to the last whole message.
    All,
    /// As far as the output has room.
    Some,
    /// Up to something that ends the connection.
    UpToFault,
}

/// What came of a read.
enum Heard {
    Octets,
    End,
    Silence,
    Stop,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    async fn run(&mut self) -> Ended {
        let limits = &self.service.limits;
        loop {
            let (deadline, slow) = match self.partial_since {
                Some(since) => (since + limits.read, Ended::SlowRead),
                None => (Instant::now() + self.idle(), Ended::Idle),
            };
            match self.read(deadline).await {
                Ok(Heard::Octets) => {}
                Ok(Heard::End) => return Ended::ByClient,
                Ok(Heard::Silence) => return slow,
                Ok(Heard::Stop) => return self.finish().await,
                Err(_) => return Ended::Broken,
            }
            if let Some(ended) = self.respond().await {
                return ended;
            }
            if self.service.stopping.load(Ordering::Acquire) {
                return self.finish().await;
            }
            if self.opened.elapsed() >= limits.lifetime {
                return Ended::Old;
            }
        }
    }

    /// How long it may be silent now.
    fn idle(&self) -> Duration {
        let idle = self.service.limits.idle;
        if self.service.admission.is_crowded() { idle / 10 } else { idle }
    }

    /// Reads what there is, waiting until `deadline`.
    async fn read(&mut self, deadline: Instant) -> io::Result<Heard> {
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
                    return Ok(if read? == 0 { Heard::End } else { Heard::Octets });
                }
                () = &mut stopped => return Ok(Heard::Stop),
                () = self.timer.as_mut() => {
                    if Instant::now() >= deadline {
                        return Ok(Heard::Silence);
                    }
                    self.timer.as_mut().reset(deadline);
                }
            }
        }
    }

    /// Answers all whole messages of the input, in one write where they fit; returns how that ended the connection.
    async fn respond(&mut self) -> Option<Ended> {
        let mut begun = std::time::Instant::now();
        loop {
            let before = self.input.len();
            let (messages, answered) = self.answer(begun);
            if self.input.is_empty() {
                self.partial_since = None;
            } else if self.input.len() < before || self.partial_since.is_none() {
                self.partial_since = Some(Instant::now());
            }
            let flushed = self.flush().await;
            if messages > 0 {
                let done = std::time::Instant::now();
                let took = done.saturating_duration_since(begun);
                self.service.counters.durations(self.transport).record_shared(messages, took);
                begun = done;
            }
            if let Err(ended) = flushed {
                return Some(ended);
            }
            match answered {
                Answered::Some => {}
                Answered::All => break,
                Answered::UpToFault => return Some(Ended::Malformed),
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

    /// Turns whole messages of `input`, which came at `moment`, into answers in `output`; returns how many there were.
    fn answer(&mut self, moment: std::time::Instant) -> (u64, Answered) {
        let Connection { service, input, output, peer, transport, .. } = self;
        let mut messages = 0;
        let answered = service.desks.with(self.desk, |place| {
            let now = place.desk.begin(moment);
            loop {
                if output.len() >= service.limits.unsent_octets_max {
                    return Answered::Some;
                }
                let Some(length) = input.first_chunk::<2>() else { return Answered::All };
                let length = usize::from(u16::from_be_bytes(*length));
                if length < HEADER_OCTETS {
                    return Answered::UpToFault;
                }
                let Some(query) = input.get(2..2 + length) else { return Answered::All };
                messages += 1;
                let answer = place.desk.answer_one(query, *peer, *transport, now, &mut place.buffer);
                // What deserves no answer, such as a response, comes from nobody who is here to ask.
                let Some(octets) = answer.filter(|octets| (1..=MESSAGE_OCTETS_MAX).contains(octets)) else {
                    return Answered::UpToFault;
                };
                output.extend_from_slice(&(octets as u16).to_be_bytes());
                output.extend_from_slice(&place.buffer[..octets]);
                input.advance(2 + length);
            }
        });
        service.counters.messages.add_shared(messages);
        (messages, answered)
    }

    /// Writes the output.
    async fn flush(&mut self) -> Result<(), Ended> {
        if self.output.is_empty() {
            return Ok(());
        }
        let deadline = Instant::now() + self.service.limits.write;
        if self.timer.deadline() > deadline {
            self.timer.as_mut().reset(deadline);
        }
        let mut written = pin!(async {
            self.stream.write_all(&self.output).await?;
            // TLS keeps what it has encrypted until told.
            self.stream.flush().await
        });
        loop {
            tokio::select! {
                biased;
                done = &mut written => match done {
                    Ok(()) => break,
                    Err(_) => return Err(Ended::Broken),
                },
                () = self.timer.as_mut() => {
                    if Instant::now() >= deadline {
                        return Err(Ended::SlowWrite);
                    }
                    self.timer.as_mut().reset(deadline);
                }
            }
        }
        self.output.clear();
        Ok(())
    }

    /// Answers what has already arrived when the server stops.
    async fn finish(&mut self) -> Ended {
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
        Ended::Stopped
    }

    /// Closes so that the client gets what was written.
    async fn close(mut self, ended: Ended) {
        if matches!(ended, Ended::Broken | Ended::SlowWrite) {
            return;
        }
        // One that is gone already needs no goodbye.
        drop(timeout(LINGER, self.stream.shutdown()).await);
        if matches!(ended, Ended::Malformed | Ended::Old | Ended::Stopped) {
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
