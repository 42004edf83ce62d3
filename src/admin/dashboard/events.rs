//! The Events of the API, for the page of that name.
//!
//! An informer of a [`super::pool`] runs only while a page of Events is open, because a large platform has some Events for each
//! Route. An Event here has the fields that the page displays.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ask::Failure;
use super::pool::{Pool, Scope};
use super::{Answer, Shared, json_of, page_size, search_words};
use signpost_control::client::reflector::{Changes, ObjectKey, reflect};

/// The maximum number of values of a filter in one response: those with the most Events.
const CHOICES_MAX: usize = 100;

/// The informers of Events.
pub type EventFeeds = Pool<EventSummary>;

/// The displayed fields of an Event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventSummary {
    #[serde(skip)]
    warning: bool,
    reason: Box<str>,
    note: Box<str>,
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
    /// The number to return, at most [`super::PAGE_MAX`].
    limit: usize,
}

/// Returns a page of the Events that the user may list, the newest first.
pub(super) async fn events(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Answer {
    let (session, rights) = shared.signed_in(&headers).await?;
    let scopes: Vec<Scope> = match rights.events {
        true => vec![None],
        false => rights.event_namespaces.into_iter().map(Some).collect(),
    };
    if scopes.is_empty() {
        let message = "the page requires the permission to list Events";
        return Err(Failure::new(StatusCode::FORBIDDEN, "Forbidden", message));
    }
    let start = |settings| {
        let (events, changes) = reflect(session.client.clone(), settings, EventSummary::of);
        (events, (), poll(changes))
    };
    let feeds = shared.events.of(scopes, start).await?;
    let events: Vec<Keyed> = feeds.iter().flat_map(|feed| feed.objects.all()).collect();
    Ok(json_of(&page(&events, &wanted)))
}

/// Polls the changes, so that the store stays up to date.
async fn poll(mut changes: Changes<EventSummary>) {
    loop {
        changes.next().await;
    }
}

/// Returns a page of the Events that match, problems first and then the newest first, and the values of each filter with their number of Events.
fn page(events: &[Keyed], wanted: &Wanted) -> Value {
    let words = search_words(&wanted.q);
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
    let order = |(key, event): &Keyed| (Reverse(event.warning), Reverse(event.at), key.clone());
    found.sort_by_cached_key(|event| order(event));
    let shown = found.iter().skip(wanted.offset).take(page_size(wanted.limit));
    let items: Vec<Value> = shown.map(|event| item(event)).collect();
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
    let mut item = json!(**event);
    item["key"] = json!(key.to_string());
    item["type"] = json!(if event.warning { "Warning" } else { "Normal" });
    item
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
