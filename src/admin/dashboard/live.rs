//! Updates by server-sent events: at most two messages per second for each viewer, each of bounded size.
//!
//! A message contains the changes since the previous one, by name if the list is short, the newest sample of metrics for
//! permitted users, and the health of the informer and of the process. The page then requests the changed data that it shows. The
//! only state of a viewer is the version up to which it has received changes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::ask::Failure;
use super::feed::{ChangeSummary, Feed};
use super::places::StreamPermit;
use super::session::Session;

/// The minimum time between two messages.
const PACE: Duration = Duration::from_millis(500);
/// The interval of messages to a viewer without news: they show that the connection works.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The interval at which the API is queried whether the user may still see this.
const CHECK: Duration = Duration::from_secs(10);
/// The maximum number of streams, over all viewers. Each is a connection and some kilobytes.
pub(super) const STREAMS_MAX: usize = 512;
/// The maximum number of concurrent streams of a user over all sessions; a hidden browser tab closes its own.
pub(super) const STREAMS_OF_USER_MAX: usize = 16;

/// One viewer's stream.
struct Viewer {
    shared: Arc<Shared>,
    session: Arc<Session>,
    feeds: Vec<Arc<Feed>>,
    /// The version of each feed up to which this viewer has received changes.
    sent: Vec<u64>,
    /// Whether the user may list Zones, and so see metrics.
    zones: bool,
    sampled: u64,
    state: Value,
    ticks: tokio::time::Interval,
    spoke: Instant,
    checked: Instant,
    over: bool,
    stop: CancellationToken,
    permit: StreamPermit,
    /// Counts as a use of the session while it lives.
    _open: Arc<()>,
}

/// Returns the answer to a viewer.
pub async fn stream(shared: Arc<Shared>, session: Arc<Session>) -> Result<Response, Failure> {
    let permit = shared.streams.take(&session.user).ok_or_else(too_many)?;
    let open = session.streams.clone();
    let rights = session.rights().await?;
    let feeds = shared.feeds.permitted(&session, &rights).await?;
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let now = Instant::now();
    let viewer = Viewer {
        sent: feeds.iter().map(|feed| feed.version()).collect(),
        stop: shared.stopping(),
        shared,
        session,
        feeds,
        zones: rights.zones,
        sampled: 0,
        state: Value::Null,
        ticks,
        spoke: now,
        checked: now,
        over: false,
        permit,
        _open: open,
    };
    let pieces = stream::unfold(viewer, |mut viewer| async move {
        let message = viewer.next().await?;
        Some((Ok::<_, Infallible>(message), viewer))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies that buffer responses would delay the messages.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

impl Viewer {
    /// Returns the next message; `None` after the last.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.over {
            tokio::select! {
                () = self.stop.cancelled() => return None,
                () = self.permit.lost() => return Some(self.end(&too_many())),
                _ = self.ticks.tick() => {}
            }
            if self.checked.elapsed() >= CHECK {
                self.checked = Instant::now();
                if let Err(failure) = self.check().await {
                    // The page then requests the session, and learns from its status what to do.
                    return Some(self.end(&failure));
                }
            }
            if let Some(message) = self.news() {
                self.spoke = Instant::now();
                return Some(event("news", &message));
            }
        }
        None
    }

    /// Returns the last message.
    fn end(&mut self, failure: &Failure) -> Bytes {
        self.over = true;
        event("end", &json!({"reason": failure.reason, "message": failure.message}))
    }

    /// Checks that the user may still see the contents of this stream.
    async fn check(&mut self) -> Result<(), Failure> {
        if !self.shared.sessions.holds(&self.session) {
            return Err(Failure::new(StatusCode::UNAUTHORIZED, "SignedOut", "the session has ended"));
        }
        match self.session.rights().await {
            Ok(rights) => {
                let feeds = self.shared.feeds.permitted(&self.session, &rights).await?;
                let same = feeds.len() == self.feeds.len()
                    && feeds.iter().zip(&self.feeds).all(|(one, other)| Arc::ptr_eq(one, other));
                if !same || rights.zones != self.zones {
                    return Err(Failure::new(StatusCode::RESET_CONTENT, "Changed", "your permissions have changed"));
                }
                Ok(())
            }
            // While the API is unavailable, the page keeps its contents and shows a notice.
            Err(failure) if failure.reason == "ApiAway" => Ok(()),
            Err(failure) => {
                if failure.status == StatusCode::UNAUTHORIZED {
                    self.shared.sessions.forget(&self.session);
                }
                Err(failure)
            }
        }
    }

    /// Returns the next message, if there is one.
    fn news(&mut self) -> Option<Value> {
        let mut message = serde_json::Map::new();
        let mut changed: Option<ChangeSummary> = None;
        for (feed, sent) in self.feeds.iter().zip(&mut self.sent) {
            feed.touch();
            let news = feed.since(*sent);
            if news.version == *sent {
                continue;
            }
            *sent = news.version;
            changed = Some(match changed.take() {
                None => news,
                Some(before) => before.and(news),
            });
        }
        if let Some(changed) = changed {
            message.insert("changed".to_owned(), json!(changed));
        }
        let newest = self.shared.samples.newest();
        if self.zones && newest != self.sampled {
            self.sampled = newest;
            message.insert("sample".to_owned(), self.shared.samples.last().unwrap_or_default());
        }
        let state = state(&self.shared, &self.feeds, self.zones);
        if state != self.state || message.is_empty() && self.spoke.elapsed() >= HEARTBEAT {
            self.state = state.clone();
            message.insert("state".to_owned(), state);
        }
        (!message.is_empty()).then_some(Value::Object(message))
    }
}

/// Returns the health of the informers and, for users that may see metrics, the failed checks of this process.
fn state(shared: &Shared, feeds: &[Arc<Feed>], zones: bool) -> Value {
    let healths: Vec<_> = feeds.iter().map(|feed| feed.objects.health()).collect();
    let error = healths.iter().filter(|health| !health.connected).find_map(|health| health.error.clone());
    let report = shared.admin.health.report();
    let (missing, warnings) = if zones { (report.missing(), report.warnings()) } else { Default::default() };
    let connected = healths.iter().all(|health| health.connected);
    json!({"connected": connected, "error": error, "missing": missing, "warnings": warnings})
}

fn too_many() -> Failure {
    let message = "too many pages are open; close some";
    Failure::new(StatusCode::TOO_MANY_REQUESTS, "TooManyStreams", message)
}

fn event(name: &str, data: &Value) -> Bytes {
    // JSON text has no newline of its own.
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}
