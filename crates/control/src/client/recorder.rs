//! Records Events (`events.k8s.io/v1`), and joins equal ones to a series, as client-go's recorder of that API does.
//!
//! Events are equal if the same reporter sends the same `type`, `action`, `reason`, and `note` for the same object. Equal events
//! have the same name ([`name_of`]), so the API detects a repetition: its creation is a conflict, and the `series` of the first
//! event counts it and records its time. A series ends when the API removes the Event: on Signpost's own server, an hour after
//! its last write.
//!
//! client-go does not compare the note, and so loses all notes but the first. The notes of Signpost name Routers and servers.

use jiff::Timestamp;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use serde_json::json;

use super::write;
use crate::hash::hash_of;

/// Records an event that happened now: a new one, or a repetition in its series. A failure is not retried.
pub async fn record(client: &kube::Client, event: &Event) -> kube::Result<()> {
    let namespace = event.metadata.namespace.as_deref();
    match write::create(client, namespace, event).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        done => return done,
    }
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let known: Api<Event> = Api::namespaced(client.clone(), namespace.unwrap_or_default());
    let count = known.get(name).await?.series.map_or(1, |series| series.count);
    let last_observed_time = MicroTime(Timestamp::now());
    let series = EventSeries { count: count.saturating_add(1), last_observed_time };
    write::merge::<Event>(client, namespace, name, &json!({"series": series})).await
}

/// Returns the name of an event about the object `name`: the same for equal events, and a different one for all others.
pub fn name_of(name: &str, event: &Event) -> String {
    let about = event.regarding.as_ref();
    let about = about.map(|about| (&about.kind, &about.namespace, &about.name, &about.uid));
    let says = (&event.type_, &event.action, &event.reason, &event.note);
    let hash = hash_of(&(about, says, &event.reporting_controller, &event.reporting_instance));
    format!("{name}.{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ObjectReference;

    #[test]
    fn equal_events_have_the_same_name() {
        let front = ObjectReference { name: Some("front".to_owned()), ..ObjectReference::default() };
        let note = |note: &str| Some(note.to_owned());
        let event = Event { note: note("on one"), regarding: Some(front), ..Event::default() };
        let name = name_of("front", &event);
        let later = Event { event_time: Some(MicroTime(Timestamp::now())), ..event.clone() };
        assert_eq!(name_of("front", &later), name);
        for other in [
            Event { note: note("on two"), ..event.clone() },
            Event { type_: note("Warning"), ..event.clone() },
            Event { reporting_instance: note("another"), ..event.clone() },
            Event { regarding: None, ..event },
        ] {
            assert_ne!(name_of("front", &other), name, "{other:?}");
        }
    }
}
