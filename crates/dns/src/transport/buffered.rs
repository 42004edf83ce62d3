//! A socket that collects writes until a flush. Each response is then a separate TLS record, and one system call writes several.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The amount from which a write is passed on without a flush, in octets.
const OCTETS_MAX: usize = 32 * 1024;

/// A socket with its collected octets. Their memory is released after each flush.
pub(super) struct Buffered<S> {
    socket: S,
    octets: Vec<u8>,
    written: usize,
    cork: Cork,
}

/// Whether a socket ignores flushes, so that further writes join the collected octets. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Cork(Arc<AtomicBool>);

impl Cork {
    /// Sets or removes the cork. After its removal, another flush is necessary.
    pub(super) fn set(&self, is_corked: bool) {
        self.0.store(is_corked, Ordering::Relaxed);
    }
}

impl<S: AsyncWrite + Unpin> Buffered<S> {
    pub(super) fn new(socket: S) -> Self {
        Buffered { socket, octets: Vec::new(), written: 0, cork: Cork::default() }
    }

    /// Returns the cork of this socket.
    pub(super) fn cork(&self) -> Cork {
        self.cork.clone()
    }

    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.octets.len() {
            match ready!(Pin::new(&mut self.socket).poll_write(context, &self.octets[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.octets = Vec::new();
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Buffered<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Buffered<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        if self.octets.len() + octets.len() > OCTETS_MAX {
            ready!(self.poll_drain(context))?;
        }
        self.octets.extend_from_slice(octets);
        Poll::Ready(Ok(octets.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.cork.0.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_drain(context))?;
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    #[tokio::test]
    async fn writes_leave_with_the_flush() {
        let (near, mut far) = duplex(8);
        let mut buffered = Buffered::new(near);
        buffered.write_all(b"one").await.expect("it is collected");
        buffered.write_all(b" and two, more than the pipe holds").await.expect("it is collected");
        let mut octets = [0; 37];
        let cork = buffered.cork();
        cork.set(true);
        buffered.flush().await.expect("it is ignored");
        cork.set(false);
        assert!(futures::poll!(pin!(far.read(&mut octets))).is_pending());
        let (flushed, read) = tokio::join!(buffered.flush(), far.read_exact(&mut octets));
        flushed.expect("all octets are written");
        read.expect("all octets arrive");
        assert_eq!(&octets, b"one and two, more than the pipe holds");
        assert_eq!(buffered.octets.capacity(), 0);
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_limits_the_memory() {
        let (near, _far) = duplex(8);
        let mut buffered = Buffered::new(near);
        let large = vec![0; OCTETS_MAX];
        buffered.write_all(&large).await.expect("it is collected");
        assert!(futures::poll!(pin!(buffered.write_all(b"more"))).is_pending());
    }
}
