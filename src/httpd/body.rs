//! A request's body with a bound on its size and on the time it may take.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Limited;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::Sleep;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that fails when it is over its bound of octets or of time.
pub(super) struct Bounded {
    inner: Pin<Box<Limited<Incoming>>>,
    deadline: Option<Pin<Box<Sleep>>>,
    within: Duration,
}

impl Bounded {
    /// `inner` with at most `octets`, all there `within` that time of the first look at it.
    pub(super) fn new(inner: Incoming, octets: usize, within: Duration) -> Self {
        Bounded { inner: Box::pin(Limited::new(inner, octets)), deadline: None, within }
    }
}

impl Body for Bounded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = self.inner.as_mut().poll_frame(context) {
            return Poll::Ready(frame);
        }
        let within = self.within;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        match deadline.as_mut().poll(context) {
            Poll::Ready(()) => {
                Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the body took too long").into())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
