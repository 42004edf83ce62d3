//! Serves the streams of an HTTP/2 connection in the connection's own task.
//!
//! `hyper` gives each stream to an executor. As tasks of the runtime, streams would wake the connection one by one, and each response
//! would be a separate write. Here, a turn of the connection answers all requests that a read contained, and ends with one write.
//!
//! Each response is written to TLS before the next one, so its frames follow each other in TLS records of their own. HTTP/2 allows
//! other orders, but `dnsperf` 2.10 loses responses that share a record.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{FuturesUnordered, StreamExt as _};
use hyper::rt::Executor;
use parking_lot::Mutex;

use super::super::buffered::Cork;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Streams that `hyper` has accepted, and that do not run yet.
#[derive(Clone, Default)]
pub(super) struct Accepted(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Accepted {
    fn execute(&self, stream: F) {
        self.0.lock().push(Box::pin(stream));
    }
}

/// A connection with its streams.
pub(super) struct WithStreams<'c, C> {
    pub(super) connection: Pin<&'c mut C>,
    accepted: Accepted,
    cork: Cork,
    running: FuturesUnordered<Stream>,
}

impl<'c, C: Future> WithStreams<'c, C> {
    /// `accepted` is the executor of the connection, and `cork` that of its socket.
    pub(super) fn new(connection: Pin<&'c mut C>, accepted: Accepted, cork: Cork) -> Self {
        WithStreams { connection, accepted, cork, running: FuturesUnordered::new() }
    }

    /// Returns whether streams are in progress.
    pub(super) fn has_streams(&self) -> bool {
        !self.running.is_empty()
    }

    /// Serves the connection and its streams, until the connection ends.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<C::Output> {
        loop {
            if let Poll::Ready(ended) = self.connection.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            self.cork.set(true);
            let responses = self.poll_streams(context);
            self.cork.set(false);
            match responses {
                Poll::Ready(Some(ended)) => return Poll::Ready(ended),
                // The next turn flushes the responses.
                Poll::Ready(None) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Runs the streams, and writes the response of each. Returns the end of the connection, or `Pending` if there was no response.
    fn poll_streams(&mut self, context: &mut Context<'_>) -> Poll<Option<C::Output>> {
        let mut responses = Poll::Pending;
        loop {
            self.running.extend(self.accepted.0.lock().drain(..));
            let Poll::Ready(Some(())) = self.running.poll_next_unpin(context) else { return responses };
            responses = Poll::Ready(None);
            if let Poll::Ready(ended) = self.connection.as_mut().poll(context) {
                return Poll::Ready(Some(ended));
            }
        }
    }
}
