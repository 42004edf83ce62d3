//! A request's body with a bound on its size and on the time it may take.
//!
//! A response can be ready before the body has arrived, as when a write is rejected. The rest of the body is then read and
//! thrown away within the same bounds, since HTTP/1.1 cannot use the connection otherwise.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;
use tokio::time::Sleep;

use super::flood::Input;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that fails when it exceeds its limit of octets or of time.
pub(super) struct Bounded {
    /// `None` after it failed.
    inner: Option<Pin<Box<Limited<Incoming>>>>,
    deadline: Option<Pin<Box<Sleep>>>,
    within: Duration,
    rest: Option<oneshot::Sender<Pin<Box<Limited<Incoming>>>>>,
    /// The meter of the connection's input, to which the body is legitimate input.
    input: Arc<Input>,
}

/// The part of a request's body that its handler did not read.
pub(super) struct UnreadBody {
    rest: oneshot::Receiver<Pin<Box<Limited<Incoming>>>>,
    had_any: bool,
    input: Arc<Input>,
}

impl Bounded {
    /// Wraps `inner` with a limit of `octets`; the body must be complete `within` that time of the first poll.
    pub(super) fn new(inner: Incoming, octets: usize, within: Duration, input: Arc<Input>) -> (Self, UnreadBody) {
        let had_any = !inner.is_end_stream();
        let (sender, rest) = oneshot::channel();
        let inner = Some(Box::pin(Limited::new(inner, octets)));
        let unread = UnreadBody { rest, had_any, input: input.clone() };
        (Bounded { inner, deadline: None, within, rest: Some(sender), input }, unread)
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        if let (Some(inner), Some(rest)) = (self.inner.take(), self.rest.take()) {
            // The receiver is gone if the request itself was abandoned.
            let _ = rest.send(inner);
        }
    }
}

impl UnreadBody {
    /// Reads the rest `within` that time. Returns false if it is incomplete: then the connection cannot carry another request.
    pub(super) async fn drained(mut self, within: Duration) -> bool {
        if !self.had_any {
            return true;
        }
        let Ok(mut body) = self.rest.try_recv() else { return false };
        let drain = async {
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                self.input.expect(octets_of(&frame));
            }
            true
        };
        tokio::time::timeout(within, drain).await.unwrap_or(false)
    }
}

fn octets_of(frame: &Frame<Bytes>) -> usize {
    frame.data_ref().map_or(0, Bytes::len)
}

impl Body for Bounded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = inner.as_mut().poll_frame(context) {
            match &frame {
                Some(Ok(frame)) => self.input.expect(octets_of(frame)),
                Some(Err(_)) => self.inner = None,
                None => {}
            }
            return Poll::Ready(frame);
        }
        let within = self.within;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        match deadline.as_mut().poll(context) {
            Poll::Ready(()) => {
                self.inner = None;
                Poll::Ready(Some(Err(
                    io::Error::new(io::ErrorKind::TimedOut, "timed out while receiving the body").into()
                )))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map(|inner| inner.size_hint()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::sync::CancellationToken;

    use super::super::{Limits, serve};
    use super::*;

    async fn until(stream: &mut TcpStream, end: &str) -> String {
        let mut said = Vec::new();
        while !said.ends_with(end.as_bytes()) {
            let read = tokio::time::timeout(Duration::from_secs(60), stream.read_buf(&mut said));
            assert!(read.await.expect("in time").expect("reads") > 0, "{}", String::from_utf8_lossy(&said));
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    #[tokio::test]
    async fn a_connection_outlives_a_refused_body_or_announces_its_end() {
        let refuse = || async { (http::StatusCode::FORBIDDEN, "refused") };
        let router = axum::Router::new().route("/", post(refuse)).route("/hello", get(|| async { "hello" }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        tokio::spawn(serve(listener, None, router, Limits::default(), CancellationToken::new()));

        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nabcd").await.expect("writes");
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.write_all(b"efghGET /hello HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("writes");
        let said = until(&mut stream, "hello").await;
        assert!(said.starts_with("HTTP/1.1 403") && !said.contains("connection: close"), "{said}");

        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nabcd").await.expect("writes");
        let said = until(&mut stream, "refused").await;
        assert!(said.contains("connection: close"), "{said}");
    }
}
