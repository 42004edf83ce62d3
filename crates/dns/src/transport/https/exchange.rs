//! One request and its response, of either version of HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::super::requests::Requests;
use super::super::stream::CloseReason;
use super::super::worker::MESSAGE_OCTETS_MAX;
use super::request::{self, Source, TemplatePath};
use super::response;

/// The maximum total size of the queries of a connection that are not answered yet: two of the largest ones. With less, a client could
/// not send a large query and others at the same time.
pub(super) const QUERY_OCTETS_MAX: u32 = 128 * 1024;

/// The requests of one connection.
pub(super) struct Exchanges {
    pub(super) requests: Requests,
    template: Arc<TemplatePath>,
    peer: SocketAddr,
    /// The permits for octets of queries: [`QUERY_OCTETS_MAX`].
    queries: Semaphore,
}

/// The connection ends, or the client has cancelled the request.
#[derive(Debug, thiserror::Error)]
#[error("no response")]
pub(super) struct Aborted;

/// The reason why there is no answer.
enum Unanswered {
    /// The client gets a status.
    Refused(StatusCode),
    /// The client has cancelled the request, or the connection has failed.
    Cancelled,
    /// The connection ends.
    Closes(CloseReason),
}

impl Exchanges {
    pub(super) fn new(requests: Requests, template: Arc<TemplatePath>, peer: SocketAddr) -> Self {
        Exchanges { requests, template, peer, queries: Semaphore::new(QUERY_OCTETS_MAX as usize) }
    }

    /// Returns the response to a request.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Aborted> {
        let mut unfinished = Unfinished(Some(&self.requests));
        let response = self.respond(request).await;
        unfinished.0 = None;
        let response = match response {
            Ok(response) => response,
            // The error affects only this request.
            Err(Unanswered::Refused(status)) => response::refusal(status, Full::default()),
            Err(Unanswered::Cancelled) => {
                self.requests.cancelled();
                return Err(Aborted);
            }
            Err(Unanswered::Closes(reason)) => {
                self.requests.fail(reason);
                return Err(Aborted);
            }
        };
        self.requests.answered();
        Ok(response)
    }

    async fn respond(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Unanswered> {
        let began = self.requests.begin();
        let is_head = *request.method() == Method::HEAD;
        let (query, _room) = self.query(request).await?;
        let (answer, _) =
            self.requests.answer(&query, self.peer, began, false).await.map_err(|reason| match reason {
                CloseReason::Malformed => Unanswered::Refused(StatusCode::BAD_REQUEST),
                reason => Unanswered::Closes(reason),
            })?;
        self.requests.record(began);
        let mut response = response::answer(&answer.octets, Full::default());
        // For HEAD, only the length of the answer is used.
        if !is_head {
            *response.body_mut() = Full::new(Bytes::from_owner(answer));
        }
        Ok(response)
    }

    /// Returns the query of a request, with its share of the connection's octets. The other parts of the request are released.
    async fn query(&self, request: Request<Incoming>) -> Result<(Bytes, SemaphorePermit<'_>), Unanswered> {
        let (head, body) = request.into_parts();
        let source = request::read(&self.template, &head.method, &head.uri, &head.headers);
        // It can have 16 KiB, which must not wait for the body.
        drop(head);
        match source.map_err(Unanswered::Refused)? {
            Source::Head(query) => {
                let room = self.room(query.len())?;
                Ok((query.into(), room))
            }
            Source::Body => match timeout(self.requests.service.limits.read, self.read(body)).await {
                Ok(query) => query,
                Err(_) => Err(Unanswered::Closes(CloseReason::SlowRead)),
            },
        }
    }

    async fn read(&self, mut body: Incoming) -> Result<(Bytes, SemaphorePermit<'_>), Unanswered> {
        let (mut octets, mut room) = (BytesMut::new(), self.room(0)?);
        while let Some(frame) = body.frame().await {
            // Trailers have no meaning.
            let Ok(chunk) = frame.map_err(|_| Unanswered::Cancelled)?.into_data() else { continue };
            if octets.len() + chunk.len() > MESSAGE_OCTETS_MAX {
                return Err(Unanswered::Refused(StatusCode::PAYLOAD_TOO_LARGE));
            }
            room.merge(self.room(chunk.len())?);
            octets.extend_from_slice(&chunk);
        }
        Ok((octets.freeze(), room))
    }

    /// Returns permits for this many octets of queries, at most those of one message.
    fn room(&self, octets: usize) -> Result<SemaphorePermit<'_>, Unanswered> {
        self.queries.try_acquire_many(octets as u32).map_err(|_| Unanswered::Refused(StatusCode::SERVICE_UNAVAILABLE))
    }
}

/// A request that has no result yet. If it is dropped before, the client has cancelled the request.
struct Unfinished<'r>(Option<&'r Requests>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(requests) = self.0 {
            requests.cancelled();
        }
    }
}
