//! The Events of the API, for the page of that name.
//!
//! Like [`super::feed`], one informer of a scope serves all viewers that may list its Events: all namespaces, or one of them. It
//! runs only while a page of Events is open, because a large platform has some Events for each Route. An Event here has the
//! fields that the page displays.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ask::Failure;
use super::session::Session;
use super::{Answer, Shared, json_of};
use signpost_control::client::reflector::{self, ObjectKey, Store, reflect};

/// The time for which an informer is kept after its last use.
const KEPT_UNUSED: Duration = Duration::from_secs(60);
/// The maximum number of informers; beyond it, the least recently used one is dropped.
const FEEDS_MAX: usize = 64;
/// The maximum wait of a request for the first list.
const FIRST_LIST: Duration = Duration::from_secs(8);
/// The time without a connection after which a permitted viewer starts a new informer.
const DEAD_AFTER: Duration = Duration::from_secs(5);
/// The maximum number of Events in one response.
const PAGE_MAX: usize = 500;
/// The number of Events in one response without `limit`.
const PAGE: usize = 100;
/// The maximum number of values of a filter in one response: those with the most Events.
const CHOICES_MAX: usize = 100;

/// The informers of Events.
#[derive(Default)]
pub struct EventFeeds(Mutex<HashMap<Option<String>, Arc<EventFeed>>>);

struct EventFeed {
    events: Store<EventSummary>,
    born: Instant,
    used: Mutex<Instant>,
    _stop: DropGuard,
}

/// The displayed fields of an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSummary {
    warning: bool,
    reason: Box<str>,
    note: Box<str>,
    /// The kind of the object.
    kind: Box<str>,
    /// The namespace of the object; empty for a cluster-scoped kind.
    namespace: Box<str>,
    name: Box<str>,
    reporter: Box<str>,
    count: i32,
    /// The time of the last occurrence.
    at: Timestamp,
}

impl EventSummary {
    /// Returns the displayed fields of `event`.
    fn of(event: Event) -> EventSummary {
        let text = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
        let regarding = event.regarding.unwrap_or_default();
        let counted = event.series.as_ref().map(|series| series.count).or(event.deprecated_count);
        let last = event.series.map(|series| series.last_observed_time.0);
        let first = event.event_time.map(|time| time.0).or(event.deprecated_last_timestamp.map(|time| time.0));
        let created = event.metadata.creation_timestamp.map(|time| time.0);
        EventSummary {
            warning: event.type_.as_deref() == Some("Warning"),
            reason: text(event.reason),
            note: text(event.note),
            kind: text(regarding.kind),
            namespace: text(regarding.namespace),
            name: text(regarding.name),
            reporter: text(event.reporting_controller),
            count: counted.unwrap_or(1).max(1),
            at: last.or(first).or(created).unwrap_or_default(),
        }
    }
}

type Keyed = (ObjectKey, Arc<EventSummary>);

/// The filters of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// Words; each must occur in the reason, the message, or the object.
    q: String,
    namespace: String,
    kind: String,
    name: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    severity: String,
    reason: String,
    /// The number of Events to skip.
    offset: usize,
    /// The number to return, at most [`PAGE_MAX`].
    limit: usize,
}

/// Returns a page of the Events that the user may list, the newest first.
pub(super) async fn events(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Answer {
    let session = shared.sessions.of(&headers)?;
    let rights = shared.settle(&session, session.rights().await)?;
    let scopes: Vec<Option<String>> = match rights.events {
        true => vec![None],
        false => rights.event_namespaces.into_iter().map(Some).collect(),
    };
    if scopes.is_empty() {
        let message = "the page requires the permission to list Events";
        return Err(Failure::new(StatusCode::FORBIDDEN, "Forbidden", message));
    }
    let events = shared.events.of(&session, scopes).await?;
    Ok(json_of(&page(&events, &wanted)))
}

impl EventFeeds {
    /// Returns the Events of these scopes, once each was listed.
    async fn of(&self, session: &Session, scopes: Vec<Option<String>>) -> Result<Vec<Keyed>, Failure> {
        let feeds: Vec<Arc<EventFeed>> = scopes.into_iter().map(|scope| self.take(scope, session)).collect();
        let deadline = tokio::time::Instant::now() + FIRST_LIST;
        for feed in &feeds {
            if tokio::time::timeout_at(deadline, feed.events.wait_synced()).await.is_err() {
                let why = feed.events.health().error.unwrap_or_else(|| "the request is still in progress".to_owned());
                let message = format!("the Events have not been listed yet: {why}");
                return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "Starting", message));
            }
        }
        Ok(feeds.iter().flat_map(|feed| feed.events.all()).collect())
    }

    fn take(&self, scope: Option<String>, session: &Session) -> Arc<EventFeed> {
        let mut feeds = self.0.lock();
        if let Some(feed) = feeds.get(&scope).filter(|feed| !feed.is_dead()) {
            *feed.used.lock() = Instant::now();
            return feed.clone();
        }
        if feeds.len() >= FEEDS_MAX {
            let oldest = feeds.iter().min_by_key(|(_, feed)| *feed.used.lock()).map(|(scope, _)| scope.clone());
            oldest.and_then(|scope| feeds.remove(&scope));
        }
        let feed = Arc::new(EventFeed::start(session.client.clone(), scope.clone()));
        feeds.insert(scope, feed.clone());
        feed
    }

    /// Drops unused informers.
    pub fn sweep(&self) {
        self.0.lock().retain(|_, feed| feed.used.lock().elapsed() < KEPT_UNUSED);
    }
}

impl EventFeed {
    fn start(client: kube::Client, namespace: Option<String>) -> Self {
        let settings = reflector::Settings { namespace, ..reflector::Settings::default() };
        let (events, mut changes) = reflect(client, settings, EventSummary::of);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            // The store is up to date as long as its changes are polled.
            while stopped.run_until_cancelled(changes.next()).await.is_some() {}
        });
        let now = Instant::now();
        EventFeed { events, born: now, used: Mutex::new(now), _stop: stop.drop_guard() }
    }

    fn is_dead(&self) -> bool {
        let health = self.events.health();
        let silent = health.age.map_or_else(|| self.born.elapsed(), |age| age.min(self.born.elapsed()));
        health.error.is_some() && !health.connected && silent > DEAD_AFTER
    }
}

/// Returns a page of the Events that match, the newest first, and the values of each filter with their number of Events.
fn page(events: &[Keyed], wanted: &Wanted) -> Value {
    let words: Vec<String> = wanted.q.split_whitespace().take(8).map(str::to_ascii_lowercase).collect();
    let mut namespaces: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut warnings = 0;
    for (_, event) in events {
        *namespaces.entry(&*event.namespace).or_default() += 1;
        *kinds.entry(&*event.kind).or_default() += 1;
        *reasons.entry(&*event.reason).or_default() += 1;
        warnings += usize::from(event.warning);
    }
    let mut found: Vec<&Keyed> = events.iter().filter(|(_, event)| is_wanted(event, wanted, &words)).collect();
    found.sort_by(|one, other| other.1.at.cmp(&one.1.at).then_with(|| one.0.cmp(&other.0)));
    let limit = if wanted.limit == 0 { PAGE } else { wanted.limit.min(PAGE_MAX) };
    let items: Vec<Value> = found.iter().skip(wanted.offset).take(limit).map(|event| item(event)).collect();
    json!({
        "all": events.len(),
        "warnings": warnings,
        "total": found.len(),
        "offset": wanted.offset,
        "items": items,
        "namespaces": choices(namespaces),
        "kinds": choices(kinds),
        "reasons": choices(reasons),
    })
}

/// Returns the values with the most Events, in their order.
fn choices(counts: BTreeMap<&str, usize>) -> Value {
    let mut counts: Vec<(&str, usize)> = counts.into_iter().filter(|(value, _)| !value.is_empty()).collect();
    if counts.len() > CHOICES_MAX {
        counts.sort_by_key(|(value, count)| (std::cmp::Reverse(*count), *value));
        counts.truncate(CHOICES_MAX);
        counts.sort_unstable();
    }
    json!(counts)
}

fn is_wanted(event: &EventSummary, wanted: &Wanted, words: &[String]) -> bool {
    let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
    let has = |word: &String| {
        let object = format!("{}/{}", event.namespace, event.name);
        let texts = [&*event.reason, &*event.note, &*event.kind, object.as_str()];
        texts.iter().any(|text| text.to_ascii_lowercase().contains(word.as_str()))
    };
    is(&wanted.namespace, &event.namespace)
        && is(&wanted.kind, &event.kind)
        && is(&wanted.name, &event.name)
        && is(&wanted.reason, &event.reason)
        && is(&wanted.severity, if event.warning { "Warning" } else { "Normal" })
        && words.iter().all(has)
}

fn item((key, event): &Keyed) -> Value {
    json!({
        "key": key.to_string(),
        "type": if event.warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "note": event.note,
        "kind": event.kind,
        "namespace": event.namespace,
        "name": event.name,
        "reporter": event.reporter,
        "count": event.count,
        "at": event.at.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, fields: Value) -> Keyed {
        let mut object = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"namespace": "shop", "name": name},
            "regarding": {"kind": "Route", "namespace": "shop", "name": "front"},
        });
        for (field, value) in fields.as_object().expect("an object") {
            object[field] = value.clone();
        }
        let event: Event = serde_json::from_value(object).expect("an Event");
        (ObjectKey::namespaced("shop", name), Arc::new(EventSummary::of(event)))
    }

    fn events() -> Vec<Keyed> {
        let series = json!({"count": 7, "lastObservedTime": "2026-01-01T00:00:09.000000Z"});
        vec![
            event("a", json!({"type": "Normal", "reason": "Scheduled", "eventTime": "2026-01-01T00:00:02.000000Z"})),
            event(
                "b",
                json!({"type": "Warning", "reason": "FailedScheduling", "note": "0/3 Routers are available",
                "eventTime": "2026-01-01T00:00:01.000000Z", "series": series}),
            ),
            event(
                "c",
                json!({"type": "Normal", "reason": "AddressHealthy", "eventTime": "2026-01-01T00:00:03.000000Z",
                "regarding": {"kind": "Router", "name": "shard1"}}),
            ),
        ]
    }

    #[test]
    fn events_are_filtered_and_the_newest_is_first() {
        let found = |wanted: Wanted| -> Vec<String> {
            let answer = page(&events(), &wanted);
            let items = answer["items"].as_array().expect("a list").iter();
            items.map(|item| item["reason"].as_str().expect("text").to_owned()).collect()
        };
        let text = |text: &str| text.to_owned();
        assert_eq!(found(Wanted::default()), ["FailedScheduling", "AddressHealthy", "Scheduled"]);
        assert_eq!(found(Wanted { kind: text("Router"), ..Wanted::default() }), ["AddressHealthy"]);
        assert_eq!(found(Wanted { namespace: text("shop"), limit: 1, ..Wanted::default() }), ["FailedScheduling"]);
        assert_eq!(found(Wanted { severity: text("Warning"), ..Wanted::default() }), ["FailedScheduling"]);
        assert_eq!(found(Wanted { q: text("shop/front SCHED"), offset: 1, ..Wanted::default() }), ["Scheduled"]);
        assert_eq!(found(Wanted { name: text("shard1"), ..Wanted::default() }), ["AddressHealthy"]);
        let answer = page(&events(), &Wanted::default());
        assert_eq!((&answer["total"], &answer["warnings"]), (&json!(3), &json!(1)));
        assert_eq!(answer["kinds"], json!([["Route", 2], ["Router", 1]]));
        assert_eq!(
            (&answer["items"][0]["count"], &answer["items"][0]["at"]),
            (&json!(7), &json!("2026-01-01T00:00:09Z"))
        );
    }
}
