//! Input that belongs to no request: HTTP/2 frames such as PING and SETTINGS (CVE-2019-9512, CVE-2019-9515), empty DATA, or
//! WINDOW_UPDATE.
//!
//! The server must process these frames, and acknowledge some. While a watch is in flight, the connection is not idle, so a client
//! could send them without an end. Each connection therefore has a budget of input. Reading uses it up. Four things add to it: a
//! request, the octets of a body, the octets of responses (a client acknowledges them by WINDOW_UPDATE), and time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The budget of a connection in octets. It is more than the window of an HTTP/2 connection (1 MiB), so a client can send a body
/// that no request reads yet. With PING frames, it is used up after 120,000, or 0.1 s of processor time.
pub(super) const OCTETS_MAX: usize = 2 << 20;
/// The octets that each request adds: those of its headers at most, and of its frames.
pub(super) const REQUEST_OCTETS: usize = 128 << 10;
/// The octets of responses that add one. Clients update two windows, in 26 octets, after 4 KiB at the earliest.
const WRITTEN_PART: usize = 64;
/// The octets that each second adds: 30 PING frames. Clients send one in some seconds.
const OCTETS_OF_SECOND: f64 = 512.0;

/// The budget of a connection.
pub(super) struct Input(Mutex<Budget>);

struct Budget {
    left: usize,
    filled: Instant,
    is_exhausted: bool,
}

impl Default for Input {
    fn default() -> Self {
        Input(Mutex::new(Budget { left: OCTETS_MAX, filled: Instant::now(), is_exhausted: false }))
    }
}

impl Input {
    /// Adds octets that the client may send.
    pub(super) fn expect(&self, octets: usize) {
        let mut budget = self.0.lock();
        budget.left = (budget.left + octets).min(OCTETS_MAX);
    }

    /// Returns whether the client has sent more than it may.
    pub(super) fn is_exhausted(&self) -> bool {
        self.0.lock().is_exhausted
    }

    /// Takes octets that the client has sent.
    fn take(&self, octets: usize) -> io::Result<()> {
        let mut budget = self.0.lock();
        if budget.left < octets {
            // Time counts only here, so that the clock is not read for each input.
            let now = Instant::now();
            let added = ((now - budget.filled).as_secs_f64() * OCTETS_OF_SECOND) as usize;
            budget.left = (budget.left + added).min(OCTETS_MAX);
            budget.filled = now;
        }
        match budget.left.checked_sub(octets) {
            Some(left) => budget.left = left,
            None => {
                budget.is_exhausted = true;
                return Err(io::Error::other("the client sent too much that belongs to no request"));
            }
        }
        Ok(())
    }
}

/// A stream whose input is taken from a budget.
pub(super) struct Metered<S> {
    stream: S,
    input: Arc<Input>,
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S, input: Arc<Input>) -> Self {
        Metered { stream, input }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        Poll::Ready(self.input.take(into.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let written = std::task::ready!(Pin::new(&mut self.stream).poll_write(context, octets))?;
        self.input.expect(written / WRITTEN_PART);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = std::task::ready!(Pin::new(&mut self.stream).poll_write_vectored(context, octets))?;
        self.input.expect(written / WRITTEN_PART);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
