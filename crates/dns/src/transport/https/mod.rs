//! DNS over HTTPS (RFC 8484): the common part of all versions of HTTP. [`request`], [`response`], and [`http2`] are pure; `tcp` has the
//! connections of HTTP/2 and HTTP/1.1, `http3` those of HTTP/3.
//!
//! HTTP/2 is our own, because it is on the path of each query: `hyper` and `h2` needed most of the time of an answer, for tasks, futures,
//! and locks, although no answer waits. HTTP/1.1, which few clients use, is that of `hyper`, and HTTP/3 that of `h3`.
//!
//! `hyper` and `h3` are used directly and not `hickory-server` 0.26.3, whose HTTP listeners do not support GET (`hickory-net`
//! `h2.rs`, `message_from`), reset the stream of a rejected request instead of sending a status, set no cache headers, limit
//! neither connections nor clients, and send responses made of `Record`s, never existing octets.
//!
//! There is no status 429: a client with too many connections is rejected before its handshake, as on every transport, and a
//! client that does not read its answers is disconnected after a wait.

#[cfg(feature = "quic")]
mod bounded;
pub mod http2;
#[cfg(feature = "quic")]
pub(super) mod http3;
pub mod request;
pub mod response;
pub(super) mod tcp;

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use hyper::{Method, Request, Response};
use tokio::time::timeout;

use self::request::{Refusal, Source, TemplatePath};
use self::response::Common;
use super::requests::{Answer, Requests, SMALL_OCTETS};
use super::stream::CloseReason;
use super::worker::MESSAGE_OCTETS_MAX;

/// The settings of DNS over HTTPS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpsConfig {
    /// The path of the URI template.
    pub path: TemplatePath,
    /// Whether HTTP/3 is served, too, on the same addresses by UDP. That needs the feature `quic`.
    pub http3: bool,
}

/// The maximum size of the head of a request in octets, measured as in RFC 9113 §6.5.2.
const HEAD_OCTETS_MAX: u32 = 16 * 1024;

/// The shared state of the connections of a listener.
#[derive(Debug, Default)]
pub struct Site {
    /// The path of the URI template.
    pub path: TemplatePath,
    /// The common headers of all responses.
    pub common: Common,
}

/// The body of a request.
pub(super) trait Body {
    /// Returns the next octets; `None` at the end. An error is the end of the request.
    fn chunk(&mut self) -> impl Future<Output = Option<Result<Bytes, Aborted>>> + Send;
}

/// The client has cancelled the request, or the connection ends.
#[derive(Debug, thiserror::Error)]
#[error("no response")]
pub(super) struct Aborted;

/// The reason why there is no response.
pub(super) enum Unanswered {
    Aborted,
    Closes(CloseReason),
}

impl Site {
    /// Answers a request; for HEAD, only the length of the answer is used.
    pub(super) async fn respond<B: Body>(
        &self,
        requests: &Requests,
        peer: SocketAddr,
        request: Request<B>,
    ) -> Result<Response<Option<Answer>>, Unanswered> {
        let began = requests.begin();
        let (head, mut body) = request.into_parts();
        let mut query = Vec::new();
        let fields = request::Head::new(&head.method, &head.uri, &head.headers);
        let query = match request::read(&self.path, &fields, &mut query) {
            Ok(Source::Head) => Ok(Bytes::from(query)),
            Ok(Source::Body) => self.read(requests, &mut body).await?,
            Err(refusal) => Err(refusal),
        };
        let query = match query {
            Ok(query) => query,
            Err(refusal) => return Ok(self.common.refusal(refusal, None)),
        };
        let answer = match requests.answer(&query, peer, began, false).await {
            Ok(answer) => answer,
            // The error affects only this request.
            Err(CloseReason::Malformed) => return Ok(self.common.refusal(Refusal::BadRequest, None)),
            Err(reason) => return Err(Unanswered::Closes(reason)),
        };
        requests.record(began);
        let mut response = self.common.answer(&answer.octets, None);
        if head.method != Method::HEAD {
            *response.body_mut() = Some(answer);
        }
        Ok(response)
    }

    /// Reads a query from a body, in the time that a message may take.
    async fn read<B: Body>(&self, requests: &Requests, body: &mut B) -> Result<Result<Bytes, Refusal>, Unanswered> {
        let read = async {
            let Some(first) = body.chunk().await.transpose()? else { return Ok(Ok(Bytes::new())) };
            let Some(mut chunk) = body.chunk().await.transpose()? else { return Ok(checked(first)) };
            let mut octets = BytesMut::from(first);
            let mut large = None;
            loop {
                if octets.len() + chunk.len() > MESSAGE_OCTETS_MAX {
                    return Ok(Err(Refusal::ContentTooLarge));
                }
                if octets.len() + chunk.len() > SMALL_OCTETS && large.is_none() {
                    large = requests.large().await;
                }
                octets.extend_from_slice(&chunk);
                match body.chunk().await.transpose()? {
                    Some(next) => chunk = next,
                    None => return Ok(Ok(octets.freeze())),
                }
            }
        };
        match timeout(requests.service.limits.read, read).await {
            Ok(Ok(octets)) => Ok(octets),
            Ok(Err(Aborted)) => Err(Unanswered::Aborted),
            Err(_) => Err(Unanswered::Closes(CloseReason::SlowRead)),
        }
    }
}

fn checked(octets: Bytes) -> Result<Bytes, Refusal> {
    if octets.len() > MESSAGE_OCTETS_MAX { Err(Refusal::ContentTooLarge) } else { Ok(octets) }
}
