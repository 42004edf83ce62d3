//! Responses whose client stops reading.
//!
//! A connection polls a response's body for its next piece when it has room for one. A body that has data and is not polled
//! belongs to a client that does not read. Over HTTP/2, that can be one stream among busy ones, which the connection's own limit
//! on writes does not detect. After `stall`, at most twice that, the body is dropped with all its resources: the slot of a watch,
//! the permit of a request, the objects of a list. If the client reads again later, the response ends with an error, so that it
//! is not taken for complete.
//!
//! ```text
//!   new    ──────────────── twice `stall` at most ──▶ dropped
//!   polled ──▶ pending ──▶ polled       for any time: the body has no data
//!   polled ──▶ a piece ──▶ polled
//!                └── twice `stall` at most ──▶ dropped
//! ```
//!
//! A response of known length is treated the same. It is passed on in copied pieces, so that the connection holds at most one of
//! them for each stream. Its end is separate from its last piece, so that the response counts until that piece is sent.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::places::InFlight;

/// The largest piece that the connection takes at once: a frame of HTTP/2.
const PIECE_OCTETS: usize = 16 << 10;

/// Wraps `body`, which is dropped with `in_flight` when its client reads nothing of it for `stall`, at most twice as long.
pub(super) fn paced(body: Body, stall: Duration, in_flight: InFlight) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let state = State { body: Some((body, in_flight)), rest: Bytes::new(), given: 0, waits: true };
    let state = Arc::new(Mutex::new(state));
    let guard = AbortOnDropHandle::new(tokio::spawn(guard(Arc::downgrade(&state), stall)));
    Body::new(Paced { state, _guard: guard })
}

/// Wraps `body`, which keeps `held` until it is consumed or dropped.
pub fn holding(body: Body, held: impl Send + 'static) -> Body {
    // The closure lives as long as the body.
    Body::new(body.map_err(move |error| {
        let _held = &held;
        error
    }))
}

struct Paced {
    state: Arc<Mutex<State>>,
    /// The task that checks whether the body stalls.
    _guard: AbortOnDropHandle<()>,
}

struct State {
    /// `None` after it was dropped because of a stall.
    body: Option<(Body, InFlight)>,
    /// The rest of a piece that is larger than the connection gets at once.
    rest: Bytes,
    /// The number of delivered pieces.
    given: u64,
    /// Whether the body is new or has delivered a piece, and was not polled since.
    waits: bool,
}

impl State {
    /// Returns at most the next piece of the rest.
    fn piece(&mut self) -> Bytes {
        if self.rest.len() <= PIECE_OCTETS {
            return std::mem::take(&mut self.rest);
        }
        // A copy: a slice would keep the whole response in memory as long as the connection holds this piece.
        Bytes::copy_from_slice(&self.rest.split_to(PIECE_OCTETS))
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some((body, _)) = &mut state.body else {
            let error = io::Error::new(io::ErrorKind::TimedOut, "the client read nothing of the response for too long");
            return Poll::Ready(Some(Err(axum::Error::new(error))));
        };
        let polled = if state.rest.is_empty() { Pin::new(body).poll_frame(context) } else { Poll::Pending };
        let polled = match polled {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if data.len() > PIECE_OCTETS => {
                    state.rest = data;
                    Poll::Ready(Some(Ok(Frame::data(state.piece()))))
                }
                Ok(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(frame) => Poll::Ready(Some(Ok(frame))),
            },
            Poll::Pending if !state.rest.is_empty() => Poll::Ready(Some(Ok(Frame::data(state.piece())))),
            other => other,
        };
        state.waits = matches!(polled, Poll::Ready(Some(Ok(_))));
        state.given += u64::from(state.waits);
        polled
    }

    fn is_end_stream(&self) -> bool {
        // The connection polls again only after it has sent the last piece.
        false
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.state.lock();
        let Some((body, _)) = &state.body else { return SizeHint::default() };
        let (hint, rest) = (body.size_hint(), state.rest.len() as u64);
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole
    }
}

/// Drops the body when two consecutive checks find it waiting at the same piece.
async fn guard(state: Weak<Mutex<State>>, stall: Duration) {
    let mut waited_after = None;
    loop {
        tokio::time::sleep(stall).await;
        let Some(state) = state.upgrade() else { return };
        let mut state = state.lock();
        let waits_after = state.waits.then_some(state.given);
        if waits_after.is_some() && waits_after == waited_after {
            state.rest = Bytes::new();
            if let Some((_, in_flight)) = state.body.take() {
                in_flight.stalled();
            }
            return;
        }
        waited_after = waits_after;
    }
}
