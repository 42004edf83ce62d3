//! Serves the streams of an HTTP/2 connection in the connection's own task.
//!
//! `hyper` gives each stream to an executor. As tasks of the runtime, they would wake the connection one by one, and each
//! response would be a separate write. Here, one iteration of the connection answers all requests of a read with one write.
//!
//! Each response is written to TLS before the next one. Its frames therefore follow each other, in separate TLS records: HTTP/2
//! allows other orders, but `dnsperf` 2.10 loses responses that share a record.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::stream::{FuturesUnordered, StreamExt as _};
use hyper::rt::Executor;
use parking_lot::Mutex;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Streams that `hyper` has accepted, and that do not run yet.
#[derive(Clone, Default)]
pub(super) struct Accepted(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Accepted {
    fn execute(&self, stream: F) {
        self.0.lock().push(Box::pin(stream));
    }
}

/// Whether responses are collected: then a flush does nothing.
#[derive(Clone, Default)]
pub(super) struct Corked(Arc<AtomicBool>);

impl Corked {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, is_corked: bool) {
        self.0.store(is_corked, Ordering::Relaxed);
    }
}

/// A connection with its streams.
pub(super) struct WithStreams<'c, C> {
    pub(super) connection: Pin<&'c mut C>,
    accepted: Accepted,
    corked: Corked,
    running: FuturesUnordered<Stream>,
}

impl<'c, C: Future> WithStreams<'c, C> {
    /// `accepted` is the executor of the connection, and `corked` holds back its flushes.
    pub(super) fn new(connection: Pin<&'c mut C>, accepted: Accepted, corked: Corked) -> Self {
        WithStreams { connection, accepted, corked, running: FuturesUnordered::new() }
    }

    /// Serves the connection and its streams, until the connection ends.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<C::Output> {
        loop {
            if let Poll::Ready(ended) = self.connection.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            self.corked.set(true);
            let mut has_written = false;
            loop {
                self.running.extend(self.accepted.0.lock().drain(..));
                let Poll::Ready(Some(())) = self.running.poll_next_unpin(context) else { break };
                has_written = true;
                if let Poll::Ready(ended) = self.connection.as_mut().poll(context) {
                    self.corked.set(false);
                    return Poll::Ready(ended);
                }
            }
            self.corked.set(false);
            if !has_written {
                return Poll::Pending;
            }
        }
    }
}
