//! Answers in pieces whose client stops taking them.
//!
//! A connection asks an answer's body for its next piece as soon as it has room for one. A body that has given a piece and
//! is not asked again stands before a client that does not read: over HTTP/2 that can be one stream among busy ones, which
//! the connection's own bound on writes does not see. Such a body is dropped, and with it what it holds: a watch's place,
//! the objects of a list. When the client asks again after all, the answer ends in an error, so that it is not taken for
//! whole.
//!
//! ```text
//!   asked ──▶ pending ──▶ asked       may last for ever: nothing is there to be taken
//!   asked ──▶ a piece ──▶ asked
//!               └── twice `stall` at most ──▶ dropped
//! ```

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio_util::task::AbortOnDropHandle;

/// `body`, dropped when it stands still for `stall`, at most twice as long. A body of one piece is left as it is: the
/// connection has taken it over whole.
pub(super) fn paced(body: Body, stall: Duration) -> Body {
    if body.is_end_stream() || body.size_hint().exact().is_some() {
        return body;
    }
    let state = State { body: Some(body), given: 0, waits: false };
    Body::new(Paced { state: Arc::new(Mutex::new(state)), stall, guard: None })
}

struct Paced {
    state: Arc<Mutex<State>>,
    stall: Duration,
    /// Looks whether the body stands still; begins with the first piece.
    guard: Option<AbortOnDropHandle<()>>,
}

struct State {
    /// `None` after it was dropped for standing still.
    body: Option<Body>,
    /// How many pieces it gave.
    given: u64,
    /// Whether it gave a piece and was not asked since.
    waits: bool,
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut state = lock(&self.state);
        let State { body: Some(body), given, waits } = &mut *state else {
            let error = io::Error::new(io::ErrorKind::TimedOut, "the client took nothing of the answer for too long");
            return Poll::Ready(Some(Err(axum::Error::new(error))));
        };
        let polled = Pin::new(body).poll_frame(context);
        *waits = matches!(polled, Poll::Ready(Some(Ok(_))));
        *given += u64::from(*waits);
        let (waits, first) = (*waits, self.guard.is_none());
        drop(state);
        if waits && first {
            let guard = tokio::spawn(guard(Arc::downgrade(&self.state), self.stall));
            self.guard = Some(AbortOnDropHandle::new(guard));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.state).body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.state).body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

/// Drops the body when it waits over the same piece at two looks.
async fn guard(state: Weak<Mutex<State>>, stall: Duration) {
    let mut waited_after = None;
    loop {
        tokio::time::sleep(stall).await;
        let Some(state) = state.upgrade() else { return };
        let mut state = lock(&state);
        let waits_after = state.waits.then_some(state.given);
        if waits_after.is_some() && waits_after == waited_after {
            state.body = None;
            return;
        }
        waited_after = waits_after;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A body that panicked is not asked again; its state is whole.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
