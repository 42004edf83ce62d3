//! Requests that a handler answers by many messages, or later ([`crate::nameserver::hand_off`]): their bounds, and the wait for
//! them.
//!
//! An answer of many messages exists as one message at a time: the next is made when the client has read it. It ends with the
//! connection, whose client has [`Limits::write`] for each message, and after [`Limits::transfer`] at the latest. These are
//! the longest times for which a client that stops reading, or reads slowly, can keep a replaced zone in memory.
//!
//! [`Limits::write`]: super::stream::Limits::write
//! [`Limits::transfer`]: super::stream::Limits::transfer

use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::admission::{Admission, Permit};
use crate::nameserver::hand_off::{Answer, Cursor, HandOff, Handler, refuse};
use crate::nameserver::signed::{self, Signed, complete_signed};
use crate::nameserver::{Context, Exchange, Outcome, Peer, Transport};
use crate::tsig::Signer;

/// The maximum number of requests of a connection that are in flight. A secondary server seldom needs as many; further ones get SERVFAIL,
/// and the client repeats them.
pub(super) const IN_FLIGHT_PER_CONNECTION_MAX: usize = 16;

/// The maximum number of answers of many messages in flight. Each has one message of 64 KiB, and keeps its version of a zone.
const MANY_MAX: usize = 128;

/// The maximum number of them for one client, an IPv4 address or a /56 of IPv6, so that one client cannot keep the others from their
/// transfers.
const MANY_PER_CLIENT_MAX: usize = 64;

/// The maximum number of later answers in flight on streams, and again over UDP, where the clients' addresses can be forged.
const LATER_MAX: usize = 1_024;

/// The time after which the client of a later answer gets SERVFAIL. `dig` and `nsupdate` repeat after 5 and 3 seconds; the idle time of
/// a QUIC connection is 10 seconds by default.
pub(super) const LATER_WAIT_MAX: Duration = Duration::from_secs(5);

/// The handler, and the room for its answers in flight. All workers share it.
pub(super) struct HandOffs {
    handler: Arc<dyn Handler>,
    /// The maximum time of an answer of many messages.
    many_time: Duration,
    many: Arc<Admission>,
    later: Arc<Semaphore>,
    later_udp: Arc<Semaphore>,
}

impl HandOffs {
    pub(super) fn new(handler: Arc<dyn Handler>, many_time: Duration) -> Self {
        let many = Arc::new(Admission::new(MANY_MAX, MANY_PER_CLIENT_MAX));
        let [later, later_udp] = [LATER_MAX, LATER_MAX].map(|most| Arc::new(Semaphore::new(most)));
        HandOffs { handler, many_time, many, later, later_udp }
    }
}

/// A request in flight.
pub(super) enum InFlight {
    Many(Many),
    Later(Later),
}

/// An answer of many messages.
pub(super) struct Many {
    pub(super) cursor: Box<dyn Cursor>,
    /// The signer of the messages, if the request was signed.
    pub(super) signer: Option<Signer>,
    pub(super) peer: Peer,
    pub(super) until: Instant,
    /// Whether a message has been made.
    pub(super) has_begun: bool,
    _permit: Permit,
}

/// An answer of one message that is not ready yet.
pub(super) struct Later {
    pub(super) answer: Pin<Box<dyn Future<Output = Vec<u8>> + Send>>,
    pub(super) query: Box<[u8]>,
    /// The signer of the answer, if the request was signed.
    pub(super) signer: Option<Signer>,
    pub(super) peer: Peer,
    _permit: OwnedSemaphorePermit,
}

/// Verifies a request with the outcome [`Outcome::Signed`], and passes one with the outcome [`Outcome::HandOff`] to the handler.
/// Returns the request if it is in flight then; otherwise, the exchange has its response. `has_room`: the connection may have one
/// more in flight.
#[cold]
pub(super) fn hand_over(
    hand_offs: Option<&HandOffs>,
    context: &Context<'_>,
    exchange: &mut Exchange<'_>,
    has_room: bool,
) -> Option<InFlight> {
    let Exchange { query, peer, response, outcome } = exchange;
    let mut signed = None;
    if *outcome == Outcome::Signed {
        (*outcome, signed) = signed::respond(context, query, peer, response);
    }
    let Outcome::HandOff(kind) = *outcome else { return None };
    let message = signed.as_ref().map_or(*query, Signed::query);
    let has_many = !matches!(peer.transport, Transport::Udp | Transport::Https);
    let signature = signed.as_ref().map(Signed::signature);
    let answer = hand_offs.and_then(|hand_offs| {
        let answer = hand_offs.handler.answer(&HandOff::of(kind, message, peer, context, signature)?)?;
        (has_many || !matches!(answer, Answer::Many(_))).then_some((hand_offs, answer))
    });
    let Some((hand_offs, answer)) = answer else {
        *outcome = match signed {
            Some(signed) => signed.refuse(context, peer, response),
            None => refuse(context, peer, response),
        };
        return None;
    };
    let (query, mut signer) = match signed.map(Signed::into_parts) {
        Some((query, signer)) => (query.into_boxed_slice(), Some(signer)),
        None => ((*query).into(), None),
    };
    let mut message = None;
    match answer {
        Answer::One(octets) => message = Some(octets),
        Answer::Many(cursor) => {
            if let Some(permit) = has_room.then(|| hand_offs.many.admit(peer.address.ip()).ok()).flatten() {
                let until = Instant::now() + hand_offs.many_time;
                return Some(InFlight::Many(Many {
                    cursor,
                    signer,
                    peer: *peer,
                    until,
                    has_begun: false,
                    _permit: permit,
                }));
            }
        }
        Answer::Later(answer) => {
            let udp = peer.transport == Transport::Udp;
            let room = if udp { &hand_offs.later_udp } else { &hand_offs.later };
            if let Some(permit) = has_room.then(|| Arc::clone(room).try_acquire_owned().ok()).flatten() {
                return Some(InFlight::Later(Later { answer, query, signer, peer: *peer, _permit: permit }));
            }
        }
    }
    *outcome = complete_signed(context, &query, peer, message.as_deref(), response, signer.as_mut());
    None
}

/// The requests in flight of one connection whose answers share a stream.
#[derive(Default)]
pub(super) struct Shared<'s> {
    pub(super) later: FuturesUnordered<BoxFuture<'s, Vec<u8>>>,
    pub(super) many: VecDeque<Many>,
}

/// The next message of one of them.
pub(super) enum Next {
    /// The message of a later answer.
    Message(Vec<u8>),
    /// The next message of this answer, which has yet to be made.
    Of(Many),
}

impl Shared<'_> {
    pub(super) fn has_room(&self) -> bool {
        self.later.len() + self.many.len() < IN_FLIGHT_PER_CONNECTION_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.later.is_empty() && self.many.is_empty()
    }

    /// Waits for the next message; forever if there is none. Answers of many messages take turns.
    pub(super) async fn next(&mut self) -> Next {
        let Shared { later, many } = self;
        let message = async {
            match later.next().await {
                Some(message) => message,
                None => pending().await,
            }
        };
        let first = async {
            match many.pop_front() {
                Some(many) => many,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            message = message => Next::Message(message),
            many = first => Next::Of(many),
        }
    }
}
