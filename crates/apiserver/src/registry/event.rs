//! Event: a report about an object, for users; one stored kind with two representations.
//!
//! Events are stored as core `v1` and also served as `events.k8s.io/v1`: the same object with other names for some fields.
//! Both take writes. They expire after an hour.

use std::sync::LazyLock;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::labels::check_key;
use super::{Context, Hooks};
use crate::cause::Cause;
use crate::json_scan::Json;
use crate::kind::columns::{self, Cell, Column};
use crate::kind::{Aliases, Kind, View};

/// The lifetime of an event after its last write, as in Kubernetes.
const TIME_TO_LIVE: Duration = Duration::from_secs(60 * 60);
/// The maximum length of an event's message without an `eventTime`. Kubernetes limits it only by the size of the object.
const MESSAGE_CHARACTERS_MAX: u64 = 8_192;
/// The maximum length of an event's note in the new representation, in octets, as in Kubernetes.
const NOTE_OCTETS_MAX: usize = 1024;
/// The maximum length of the action, the reason, and the reporting instance of an event with an `eventTime`, in octets, as in
/// Kubernetes.
const TEXT_OCTETS_MAX: usize = 128;
/// Name of a field in `events.k8s.io/v1` and in core `v1`, where they differ.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];
const CORE_API: &str = "v1";
const NEW_API: &str = "events.k8s.io/v1";

/// The stored representation, core `v1`.
pub static EVENT: LazyLock<Kind> = LazyLock::new(|| {
    let kind = Kind::built_in::<k8s_openapi::api::core::v1::Event>([
        ("message", json!({"maxLength": MESSAGE_CHARACTERS_MAX})),
        ("involvedObject", atomic()),
        ("related", atomic()),
    ]);
    both(kind.selectable_by(&[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ]))
});

/// The view `events.k8s.io/v1`.
pub static NEW_EVENT: LazyLock<Kind> = LazyLock::new(|| {
    let kind = Kind::built_in::<k8s_openapi::api::events::v1::Event>([
        ("note", json!({"maxLength": MESSAGE_CHARACTERS_MAX})),
        ("regarding", atomic()),
        ("related", atomic()),
    ]);
    let kind = both(kind.selectable_by(&[
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
        "reason",
        "reportingController",
        "type",
    ]));
    Kind { view: Some(View { from_stored: to_new, to_stored: to_core }), ..kind }
});

/// Sets the common properties of both representations: one key, the columns, and the lifetime of events.
fn both(kind: Kind) -> Kind {
    Kind {
        aliases: Aliases { short_names: &["ev"], ..kind.aliases },
        key_prefix: "/core/events/",
        time_to_live: Some(TIME_TO_LIVE),
        ..kind.with_columns(COLUMNS)
    }
}

/// References to objects are atomic when they are merged.
fn atomic() -> Value {
    json!({"x-kubernetes-map-type": "atomic"})
}

/// Converts the stored representation to `events.k8s.io/v1`.
pub fn to_new(event: Value) -> Value {
    renamed(event, NEW_API, |name| NAMES.iter().find(|(_, core)| *core == name).map(|(new, _)| *new))
}

/// Converts `events.k8s.io/v1` to the stored representation.
pub fn to_core(event: Value) -> Value {
    renamed(event, CORE_API, |name| NAMES.iter().find(|(new, _)| *new == name).map(|(_, core)| *core))
}

fn renamed(event: Value, api_version: &str, rename: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = event else { return event };
    let rename_all = |fields: Map<String, Value>, prefix: &str| -> Map<String, Value> {
        let renamed = fields.into_iter().map(|(name, value)| {
            let new = name.strip_prefix(prefix).and_then(&rename).map(|new| format!("{prefix}{new}"));
            (new.unwrap_or(name), value)
        });
        renamed.collect()
    };
    let mut fields = rename_all(fields, "");
    fields.insert("apiVersion".to_owned(), Value::from(api_version));
    // Field ownership uses the names of the representation.
    let entries = fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields"));
    for entry in entries.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut) {
        entry.insert("apiVersion".to_owned(), Value::from(api_version));
        if let Some(Value::Object(set)) = entry.get_mut("fieldsV1") {
            *set = rename_all(std::mem::take(set), "f:");
        }
    }
    Value::Object(fields)
}

pub(super) struct CoreEvents;

impl Hooks for CoreEvents {
    fn prepare(&self, _context: &Context<'_>, _old: Option<&Value>, new: &mut Value) {
        micro_times(new, &["/eventTime", "/series/lastObservedTime"]);
    }

    fn validate(&self, _context: &Context<'_>, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        validate(new, "reportingComponent")
    }
}

/// The paths of causes are those of the stored representation, as kube-apiserver reports them.
pub(super) struct NewEvents;

impl Hooks for NewEvents {
    fn prepare(&self, context: &Context<'_>, old: Option<&Value>, new: &mut Value) {
        CoreEvents.prepare(context, old, new);
    }

    fn validate(&self, _context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let event = to_core(new.clone());
        let mut causes = validate(&event, "reportingController");
        match old {
            None => causes.extend(creation_faults(&event)),
            Some(old) => causes.extend(change_faults(&to_core(old.clone()), &event)),
        }
        causes
    }
}

fn creation_faults(event: &Value) -> Vec<Cause> {
    let mut causes = series(event);
    if is_unset(&event["eventTime"]) {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = event["type"].as_str().unwrap_or_default();
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(Cause::invalid("type", &json!(""), &format!("has invalid value: {kind}")));
    }
    let source = &event["source"];
    for (name, is_unset) in [
        ("firstTimestamp", is_unset(&event["firstTimestamp"])),
        ("lastTimestamp", is_unset(&event["lastTimestamp"])),
        ("count", event["count"].as_i64().unwrap_or_default() == 0),
        ("source", is_unset(&source["component"]) && is_unset(&source["host"])),
    ] {
        if !is_unset {
            causes.push(Cause::invalid(name, &json!(""), "needs to be unset"));
        }
    }
    causes
}

fn change_faults(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = if old["series"] != new["series"] { series(new) } else { Vec::new() };
    for name in IMMUTABLE {
        let (was, is) = (&old[name], &new[name]);
        if was != is && !(is_unset(was) && is_unset(is)) {
            let path = if name == "reportingComponent" { "reportingController" } else { name };
            causes.push(Cause::invalid(path, is, "field is immutable"));
        }
    }
    causes
}

/// The fields of an event that an update by `events.k8s.io/v1` cannot change.
const IMMUTABLE: [&str; 13] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Returns the rules for both representations, after kube-apiserver's `legacyValidateEvent`. An event with an `eventTime` can be
/// about an object of another namespace. `controller` is the name of the field `reportingComponent` in the causes.
fn validate(event: &Value, controller: &str) -> Vec<Cause> {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let of_object = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let wrong_namespace =
        || Cause::invalid("involvedObject.namespace", &Value::from(of_object), "does not match event.namespace");
    let mut causes = Vec::new();
    if is_unset(&event["eventTime"]) {
        if namespace != of_object && !(of_object.is_empty() && namespace == "default") {
            causes.push(wrong_namespace());
        }
        return causes;
    }
    if of_object.is_empty() && !matches!(namespace, "default" | "kube-system") {
        causes.push(wrong_namespace());
    }
    match text("reportingComponent") {
        "" => causes.push(Cause::required(controller, "")),
        name => causes.extend(check_key(name).map(|what| Cause::invalid(controller, &Value::from(name), &what))),
    }
    for (name, octets_max) in [
        ("reportingInstance", TEXT_OCTETS_MAX),
        ("action", TEXT_OCTETS_MAX),
        ("reason", TEXT_OCTETS_MAX),
        ("message", NOTE_OCTETS_MAX),
    ] {
        if text(name).is_empty() && name != "message" {
            causes.push(Cause::required(name, ""));
        }
        if text(name).len() > octets_max {
            let why = format!("can have at most {octets_max} characters");
            causes.push(Cause::invalid(name, &json!(""), &why));
        }
    }
    causes
}

/// Returns the faults of the series of an event that is written by `events.k8s.io/v1`.
fn series(event: &Value) -> Vec<Cause> {
    let Some(series) = event["series"].as_object() else { return Vec::new() };
    let mut causes = Vec::new();
    if series.get("count").and_then(Value::as_i64).unwrap_or_default() < 2 {
        causes.push(Cause::invalid("series.count", &json!(""), "should be at least 2"));
    }
    if series.get("lastObservedTime").is_none_or(is_unset) {
        causes.push(Cause::required("series.lastObservedTime", ""));
    }
    causes
}

/// Writes the times at these JSON pointers with exactly six decimals: clients in Go reject an object with any other number.
pub(super) fn micro_times(object: &mut Value, pointers: &[&str]) {
    for pointer in pointers {
        if let Some(Value::String(text)) = object.pointer_mut(pointer)
            && let Ok(time) = text.parse::<Timestamp>()
        {
            *text = time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        }
    }
}

/// The columns read the stored representation, for both API versions, so that both print alike.
const COLUMNS: &[Column] = &[
    Column::new(
        "Last Seen",
        &["series.lastObservedTime", "lastTimestamp", "firstTimestamp", "eventTime"],
        "Time since the event happened last.",
    )
    .with_cell(seen),
    Column::new("Type", &["type"], "`Normal` or `Warning`."),
    Column::new("Reason", &["reason"], "The reason, in CamelCase."),
    Column::new("Object", &["involvedObject.kind", "involvedObject.name"], "The object of the event.").with_cell(
        |read, _| {
            let kind = read[0].text().unwrap_or_default().to_ascii_lowercase();
            match read[1].text() {
                Some(name) if !name.is_empty() => Cell::text(format!("{kind}/{name}")),
                _ => Cell::text(kind),
            }
        },
    ),
    Column::new("Subobject", &["involvedObject.fieldPath"], "The part of the object, if set.").wide(),
    Column::new(
        "Source",
        &["source.component", "reportingComponent", "source.host", "reportingInstance"],
        "The component that reported the event.",
    )
    .with_cell(|read, _| {
        let either = |first: Json<'_>, second: Json<'_>| {
            let first = first.text().filter(|text| !text.is_empty());
            first.or_else(|| second.text()).unwrap_or_default().into_owned()
        };
        let (component, host) = (either(read[0], read[1]), either(read[2], read[3]));
        Cell::text(if host.is_empty() { component } else { format!("{component}, {host}") })
    })
    .wide(),
    Column::new("Message", &["message"], "What happened.").with_cell(|read, _| match read[0].text() {
        Some(message) => Cell::text(message.trim().to_owned()),
        None => Cell::Blank,
    }),
    Column::new("First Seen", &["firstTimestamp", "eventTime"], "Time since the event happened first.")
        .with_cell(seen)
        .wide(),
    Column::new("Count", &["series.count", "count"], "Number of occurrences.")
        .with_cell(|read, _| {
            let of_series = read[0].number();
            Cell::Number(of_series.or(read[1].number().filter(|count| *count > 0)).unwrap_or(1))
        })
        .wide(),
    Column::new("Name", &["metadata.name"], "Name of the Event object.").wide(),
];

/// Returns the time since the first existing one of these times.
fn seen<'a>(read: &[Json<'a>], now: i64) -> Cell<'a> {
    let time = read.iter().find(|time| time.text().is_some()).copied().unwrap_or_default();
    match columns::since(time, now) {
        Cell::Blank => Cell::text("<unknown>"),
        since => since,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::columns::Columns;

    #[test]
    fn the_two_representations_are_each_other() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "involvedObject": {"kind": "Lease", "name": "r"}, "message": "m",
            "source": {"component": "c"}, "firstTimestamp": "f", "lastTimestamp": "l", "count": 3, "reason": "R",
            "reportingComponent": "c", "reportingInstance": "i", "eventTime": "t", "type": "Normal",
            "metadata": {"name": "e", "managedFields": [
                {"manager": "m", "apiVersion": "v1", "fieldsV1": {"f:message": {}, "f:reason": {}}}]}
        });
        let new = to_new(core.clone());
        assert_eq!(new["apiVersion"], "events.k8s.io/v1");
        assert_eq!(new["regarding"]["name"], "r");
        assert_eq!(new["note"], "m");
        assert_eq!(new["deprecatedCount"], 3);
        assert!(new.get("message").is_none());
        assert_eq!(new["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:note": {}, "f:reason": {}}));
        assert_eq!(to_core(new), core);
    }

    #[test]
    fn fields_are_selected_in_each_representation() {
        let event = json!({"metadata": {"name": "e"}, "involvedObject": {"name": "r"}, "source": {"component": "c"}});
        let kind = &EVENT;
        assert_eq!(kind.field(&event, "involvedObject.name").as_deref(), Some("r"));
        assert_eq!(kind.field(&event, "source").as_deref(), Some("c"));
        assert_eq!(kind.field(&event, "reason").as_deref(), Some(""));
        assert_eq!(kind.field(&event, "message"), None);
        let new = &NEW_EVENT;
        assert_eq!(new.field(&to_new(event), "regarding.name").as_deref(), Some("r"));
    }

    #[test]
    fn times_have_six_decimals() {
        let mut event = json!({"eventTime": "2026-01-02T03:04:05Z", "series": {"lastObservedTime": "2026-01-02T04:04:05.1234567+01:00"}});
        micro_times(&mut event, &["/eventTime", "/series/lastObservedTime", "/none"]);
        assert_eq!(
            event,
            json!({"eventTime": "2026-01-02T03:04:05.000000Z", "series": {"lastObservedTime": "2026-01-02T03:04:05.123456Z"}})
        );
    }

    #[test]
    fn rows_read_as_kubectl_prints_them() {
        let event = json!({
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Lease", "name": "r", "fieldPath": "spec"}, "message": " m\n",
            "source": {"component": "c", "host": "h"}, "firstTimestamp": "2026-01-01T00:00:00Z", "type": "Normal", "reason": "R",
            "eventTime": null
        });
        let now = "2026-01-01T00:01:07Z".parse::<Timestamp>().unwrap().as_second();
        let columns = Columns::new(COLUMNS);
        let json = event.to_string();
        let read = |cell: Cell<'_>| {
            let mut out = Vec::new();
            cell.write(&mut out);
            serde_json::from_slice(&out).expect("JSON")
        };
        let cells: Vec<Value> = columns.cells(json.as_bytes(), now).map(read).collect();
        assert_eq!(
            cells,
            ["67s", "Normal", "R", "lease/r", "spec", "c, h", "m", "67s"]
                .map(Value::from)
                .into_iter()
                .chain([Value::from(1), Value::from("e")])
                .collect::<Vec<_>>()
        );
    }
}
