//! GET with `watch=true`: a stream of changes, one JSON object per line.
//!
//! The connection of a watcher pulls: it reads changes from the cache's ring at its own pace, at most one piece at a time, and
//! sleeps when there are none. A watch that begins before the ring first reads the store's history. If the history is no longer
//! available, the watch ends with one `ERROR` line with code 410 inside the 200 response, because clients repeat a 410 of HTTP
//! itself indefinitely.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::json;
use tokio::time::Instant;

use super::Call;
use super::get::{resource_version, wait_for};
use super::list::{self, invalid_options};
use crate::Shared;
use crate::cause::Cause;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::negotiate::{self, Format, Offer};
use crate::object::Object;
use crate::selector::Selector;
use crate::store::{self, Event, Key, Revision};
use crate::table::{self, Include};
use crate::watch_cache::{Change, Cursor, event_line};
use crate::work::{OBJECTS_LARGE, UsersWork};
use crate::{representation, respond};

/// The minimum duration of a watch without `timeoutSeconds`. The actual duration is random, up to twice as long, so that watchers
/// that arrived together do not return together.
const TIMEOUT_MIN: Duration = Duration::from_secs(30 * 60);
/// The maximum duration of a watch.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// The interval of bookmarks on an idle watch.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The time between the last bookmark of a watch and its end.
const LAST_BOOKMARK: Duration = Duration::from_millis(1_500);
/// The maximum number of changes per read from the ring.
const CHANGES_AT_ONCE: usize = 256;
/// The maximum size of a piece of the stream, give or take one line.
const CHUNK_OCTETS: usize = 64 * 1024;

/// Answers a watch: the stream's head immediately, its lines as they arrive.
pub(crate) async fn watch(call: &Call<'_>) -> Result<Response, ApiError> {
    let kind = call.resource.kind;
    let bookmarks = call.query.flag("allowWatchBookmarks");
    let offer = if bookmarks { Offer::WatchWithBookmarks } else { Offer::Watch };
    let format = negotiate::format(call.headers, offer)?;
    let include = Include::parse(&call.query)?;
    let mut selector = Selector::parse(kind, call.query.text("labelSelector"), call.query.text("fieldSelector"))?;
    if let Some(name) = &call.resource.name {
        selector = selector.and_name(name);
    }
    let timeout = match call.query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds).min(TIMEOUT_MAX),
        _ => TIMEOUT_MIN + TIMEOUT_MIN.mul_f64(f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)),
    };
    let start = start(call).await?;
    let now = Instant::now();
    let mut watcher = Watcher {
        server: call.server.clone(),
        kind,
        format,
        include,
        prefix: call.resource.prefix(),
        selector,
        initial: VecDeque::new(),
        placeholders: 0,
        work: call.work.clone(),
        is_large: false,
        announce: None,
        source: Source::Ended,
        reported: 0,
        next_bookmark: if bookmarks { following_bookmark(now, now + timeout) } else { None },
        end: now + timeout,
        columns_sent: false,
    };
    watcher.begin(start, call)?;
    let lines = futures::stream::unfold(watcher, |mut watcher| async move { Some((watcher.next().await?, watcher)) });
    Ok(respond::stream(lines))
}

/// The number of initial objects per batch: some milliseconds with any selector.
const OBJECTS_AT_ONCE: usize = 512;

/// Returns the time of the bookmark after `now`: in a minute, or shortly before the end.
fn following_bookmark(now: Instant, end: Instant) -> Option<Instant> {
    let last = end.checked_sub(LAST_BOOKMARK)?;
    (now < last).then(|| last.min(now + BOOKMARK_EVERY))
}

/// The start of a watch.
enum Start {
    /// The existing objects; `announce`: followed by a bookmark.
    Objects { announce: bool },
    /// After a revision.
    After(u64),
    /// Now.
    Now,
}

async fn start(call: &Call<'_>) -> Result<Start, ApiError> {
    let query = &call.query;
    let version = resource_version(query.get("resourceVersion"))?;
    let matching = query.text("resourceVersionMatch");
    let forbidden = |why: &str| Err(invalid_options(Cause::forbidden("resourceVersionMatch", why)));
    if query.get("sendInitialEvents").is_none() {
        if !matching.is_empty() {
            return forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        }
        return Ok(match version {
            None | Some(0) => Start::Objects { announce: false },
            Some(version) => Start::After(version),
        });
    }
    if matching != "NotOlderThan" {
        return forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    if !query.flag("sendInitialEvents") {
        return Ok(version.filter(|version| *version > 0).map_or(Start::Now, Start::After));
    }
    match version {
        Some(0) => {}
        Some(wanted) => wait_for(call, wanted).await?,
        // As consistent as a list: no earlier commit may be missing.
        None if call.server.cache.is_current(&*call.server.store).await? => {}
        None => wait_for(call, call.server.store.revision().await?.0).await?,
    }
    Ok(Start::Objects { announce: true })
}

/// One watch.
struct Watcher {
    server: Arc<Shared>,
    kind: &'static Kind,
    format: Format,
    include: Include,
    prefix: String,
    selector: Selector,
    /// The initial objects that are not sent yet.
    initial: VecDeque<Arc<Object>>,
    /// The number of placeholders of damaged objects at the end of the initial ones; the selector does not filter them.
    placeholders: usize,
    /// The turns at the initial objects, if there are many.
    work: UsersWork,
    is_large: bool,
    /// The bookmark after the initial objects, if it is not sent yet.
    announce: Option<u64>,
    source: Source,
    /// The revision up to which all changes were sent.
    reported: u64,
    /// The time of the next bookmark, if there is one.
    next_bookmark: Option<Instant>,
    end: Instant,
    columns_sent: bool,
}

/// The source of changes.
enum Source {
    /// The cache.
    Ring(Cursor),
    /// The store's history, until it reaches the range of the ring.
    History(BoxStream<'static, store::Result<Vec<Event>>>),
    /// No source: the stream has ended.
    Ended,
}

/// The result of a wait.
enum Woken {
    Changes(Vec<Arc<Change>>),
    Bookmark,
    TooOld(u64),
    Over,
}

impl Watcher {
    fn begin(&mut self, start: Start, call: &Call<'_>) -> Result<(), ApiError> {
        let cache = &self.server.cache;
        match start {
            Start::Objects { announce } => {
                let (snapshot, cursor) = cache.snapshot_and_follow(self.kind, &self.prefix);
                let damaged = list::placeholders(call, &self.selector, &snapshot.damaged);
                self.placeholders = damaged.len();
                self.initial = snapshot.objects.into_iter().chain(damaged).collect();
                self.is_large = self.initial.len() >= OBJECTS_LARGE;
                self.announce = announce.then_some(snapshot.revision);
                self.reported = snapshot.revision;
                self.source = Source::Ring(cursor);
            }
            Start::Now => {
                self.reported = cache.applied();
                self.source =
                    cache.follow_from(self.kind, &self.prefix, self.reported).map_or(Source::Ended, Source::Ring);
            }
            Start::After(revision) => {
                self.reported = revision;
                self.source = match cache.follow_from(self.kind, &self.prefix, revision) {
                    Ok(cursor) => Source::Ring(cursor),
                    // Of all kinds: the next write of any kind shows that the history has caught up with the ring.
                    Err(_) => Source::History(self.server.store.watch(&Key("/".into()), Revision(revision))),
                };
            }
        }
        Ok(())
    }

    /// Returns the next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.initial.is_empty() {
            let permit = self.work.permit(self.is_large).await;
            let chunk = self.initial_chunk();
            drop(permit);
            if !chunk.is_empty() {
                return Some(chunk);
            }
            // Yield between objects that the selector does not match.
            tokio::task::yield_now().await;
        }
        if let Some(revision) = self.announce.take() {
            return Some(self.bookmark(revision, true));
        }
        loop {
            match self.wait().await {
                Woken::Changes(changes) => {
                    let chunk = self.lines(&changes);
                    if !chunk.is_empty() {
                        return Some(chunk);
                    }
                }
                Woken::Bookmark => return Some(self.bookmark(self.reported, false)),
                Woken::TooOld(oldest) => {
                    self.source = Source::Ended;
                    let error = ApiError::expired(format!("too old resource version: {} ({oldest})", self.reported));
                    return Some(event_line("ERROR", error.status().to_string().as_bytes()));
                }
                Woken::Over => return None,
            }
        }
    }

    fn initial_chunk(&mut self) -> Bytes {
        let mut chunk = Vec::new();
        for _ in 0..OBJECTS_AT_ONCE {
            if chunk.len() >= CHUNK_OCTETS {
                break;
            }
            let Some(object) = self.initial.pop_front() else { break };
            if self.initial.len() < self.placeholders || self.selector.matches(self.kind, &object) {
                chunk.extend_from_slice(&event_line("ADDED", &self.shown(&object)));
            }
        }
        chunk.into()
    }

    async fn wait(&mut self) -> Woken {
        loop {
            let now = Instant::now();
            if now >= self.end {
                return Woken::Over;
            }
            let wake = self.next_bookmark.unwrap_or(self.end);
            match &mut self.source {
                Source::Ended => return Woken::Over,
                Source::Ring(cursor) => {
                    // Read before the ring: a change that is not in the ring then did not happen up to this revision.
                    let applied = self.server.cache.applied();
                    let Ok(changes) = cursor.take(CHANGES_AT_ONCE) else {
                        // The watcher is too slow. It can resume from the last revision that it received.
                        return Woken::Over;
                    };
                    if !changes.is_empty() {
                        self.reported = changes.last().map_or(self.reported, |change| change.revision);
                        return Woken::Changes(changes);
                    }
                    self.reported = self.reported.max(applied);
                    if self.next_bookmark.is_some_and(|due| now >= due) {
                        self.next_bookmark = following_bookmark(now, self.end);
                        return Woken::Bookmark;
                    }
                    tokio::select! {
                        () = cursor.changed() => {}
                        () = tokio::time::sleep_until(wake) => {}
                        () = self.server.stopping.cancelled() => return Woken::Over,
                    }
                }
                Source::History(stream) => {
                    let events = tokio::select! {
                        events = stream.next() => events,
                        () = tokio::time::sleep_until(self.end) => return Woken::Over,
                        () = self.server.stopping.cancelled() => return Woken::Over,
                    };
                    return match events {
                        Some(Ok(events)) => self.historic(&events),
                        Some(Err(store::Error::Compacted { oldest })) => Woken::TooOld(oldest.0),
                        Some(Err(store::Error::WentBack { newest })) => Woken::TooOld(newest.0),
                        Some(Err(_)) | None => Woken::Over,
                    };
                }
            }
        }
    }

    /// Returns the lines of one revision of history; the ring takes over as soon as possible.
    fn historic(&mut self, events: &[Event]) -> Woken {
        let Some(at) = events.last().map(|event| event.at.0) else { return Woken::Changes(Vec::new()) };
        let kind_cache = self.server.cache.kind_cache(self.kind);
        let ours = events.iter().filter(|event| event.now.key.0.starts_with(kind_cache.kind.key_prefix));
        let changes = ours.filter_map(|event| Change::from_event(kind_cache, event)).map(Arc::new).collect();
        self.reported = at;
        if let Ok(cursor) = self.server.cache.follow_from(self.kind, &self.prefix, at) {
            self.source = Source::Ring(cursor);
        }
        Woken::Changes(changes)
    }

    /// Returns the lines of those changes that this watch is about.
    fn lines(&mut self, changes: &[Arc<Change>]) -> Bytes {
        let ours: Vec<_> = changes.iter().filter(|change| change.now.key().starts_with(&self.prefix)).collect();
        if let [one] = ours.as_slice() {
            // Usually, one change arrives at a time, and all watchers without a selector share its line.
            return self.line(one).unwrap_or_default();
        }
        let mut chunk = Vec::new();
        for change in ours {
            if let Some(line) = self.line(change) {
                chunk.extend_from_slice(&line);
            }
        }
        chunk.into()
    }

    /// Returns the line of one change, if it is visible to this watch: an object that leaves the selector is `DELETED` with its
    /// former contents; one that enters is `ADDED`.
    fn line(&mut self, change: &Change) -> Option<Bytes> {
        let plain = matches!(self.format, Format::Objects(_)) && self.kind.view.is_none();
        if plain && self.selector.is_everything() {
            return Some(change.line());
        }
        let matches = |object: &Arc<Object>| self.selector.matches(self.kind, object);
        let was = change.before.as_ref().filter(|before| matches(before));
        let is = !change.deleted && matches(&change.now);
        let event_type = match (was, is) {
            (None, true) => "ADDED",
            (Some(_), true) => "MODIFIED",
            (Some(_), false) if change.deleted => "DELETED",
            (Some(before), false) => {
                let left = before.at(change.revision);
                return Some(event_line("DELETED", &self.shown(&left)));
            }
            // For an unreadable object, it is unknown whether it was selected.
            (None, false) if change.deleted && change.before.is_none() => "DELETED",
            (None, false) => return None,
        };
        if plain && event_type == change.event_type() {
            return Some(change.line());
        }
        Some(event_line(event_type, &self.shown(&change.now)))
    }

    /// Returns an object in the format of this watch.
    fn shown(&mut self, object: &Object) -> Bytes {
        match self.format {
            Format::Objects(_) => representation::json(self.kind, object),
            Format::Metadata(version) => representation::metadata(object, version),
            Format::Table(version) => {
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                table::of_one(self.kind, self.include, object, columns, version).into()
            }
        }
    }

    fn bookmark(&self, revision: u64, ends_initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = match self.format {
            Format::Metadata(version) => ("PartialObjectMetadata".to_owned(), version.api_version().to_owned()),
            _ => (self.kind.kind.to_owned(), self.kind.api_version()),
        };
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        event_line("BOOKMARK", object.to_string().as_bytes())
    }
}
