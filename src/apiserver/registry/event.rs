//! Event: what happened to an object, for people; one stored kind with two representations.
//!
//! Events are stored as core `v1` and also served as `events.k8s.io/v1`: the same object with other names for some fields.
//! Both take writes. They expire after an hour.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::columns::{self, text_at};
use super::{Column, Context, Kind, Rules, View, field, metadata};
use crate::apiserver::error::Cause;
use crate::apiserver::schema::Schema;

/// How long an event lives after its last write, as in Kubernetes.
const TIME_TO_LIVE: Duration = Duration::from_secs(60 * 60);
/// Longest note of an event in the new representation, in octets, as in Kubernetes.
const NOTE_OCTETS_MAX: usize = 1024;
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
pub(super) fn core_kind() -> Kind {
    let mut schema = metadata::of_built_in::<k8s_openapi::api::core::v1::Event>();
    atomic(&mut schema, &["involvedObject", "related"]);
    Kind {
        group: "",
        schema: Schema::new(schema),
        columns: CORE_COLUMNS,
        selectable_fields: &[
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
        ],
        view: None,
        rules: &CoreEvents,
        ..both()
    }
}

/// The view `events.k8s.io/v1`.
pub(super) fn new_kind() -> Kind {
    let mut schema = metadata::of_built_in::<k8s_openapi::api::events::v1::Event>();
    atomic(&mut schema, &["regarding", "related"]);
    Kind {
        group: "events.k8s.io",
        schema: Schema::new(schema),
        columns: NEW_COLUMNS,
        selectable_fields: &[
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
        ],
        view: Some(View { from_stored: to_new, to_stored: to_core }),
        rules: &NewEvents,
        ..both()
    }
}

fn both() -> Kind {
    Kind {
        group: "",
        version: "v1",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        categories: &[],
        namespaced: true,
        has_status: false,
        key_prefix: "/core/events/",
        schema: Schema::new(Value::Null),
        columns: &[],
        selectable_fields: &[],
        time_to_live: Some(TIME_TO_LIVE),
        view: None,
        rules: &CoreEvents,
    }
}

/// References to objects are one value each when they are merged.
fn atomic(schema: &mut Value, names: &[&str]) {
    for name in names {
        schema["properties"][*name]["x-kubernetes-map-type"] = json!("atomic");
    }
}

/// From the stored representation to `events.k8s.io/v1`.
pub fn to_new(event: Value) -> Value {
    renamed(event, NEW_API, |name| NAMES.iter().find(|(_, core)| *core == name).map(|(new, _)| *new))
}

/// From `events.k8s.io/v1` to the stored representation.
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
    // Who owns which field is told in the names of the representation.
    let entries = fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields"));
    for entry in entries.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut) {
        entry.insert("apiVersion".to_owned(), Value::from(api_version));
        if let Some(Value::Object(set)) = entry.get_mut("fieldsV1") {
            *set = rename_all(std::mem::take(set), "f:");
        }
    }
    Value::Object(fields)
}

struct CoreEvents;

impl Rules for CoreEvents {
    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        micro_times(object, &["/eventTime", "/series/lastObservedTime"]);
    }

    fn prepare_update(&self, _context: &Context<'_>, _old: &Value, new: &mut Value) {
        micro_times(new, &["/eventTime", "/series/lastObservedTime"]);
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> Vec<Cause> {
        same_namespace(object, "involvedObject")
    }

    fn validate_update(&self, _context: &Context<'_>, _old: &Value, new: &Value) -> Vec<Cause> {
        same_namespace(new, "involvedObject")
    }
}

struct NewEvents;

impl Rules for NewEvents {
    fn prepare_create(&self, context: &Context<'_>, object: &mut Value) {
        CoreEvents.prepare_create(context, object);
    }

    fn prepare_update(&self, context: &Context<'_>, old: &Value, new: &mut Value) {
        CoreEvents.prepare_update(context, old, new);
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> Vec<Cause> {
        let mut causes = same_namespace(object, "regarding");
        for name in ["action", "reason", "reportingController", "reportingInstance", "eventTime"] {
            if object[name].as_str().is_none_or(str::is_empty) {
                causes.push(field::required(name, ""));
            }
        }
        if !matches!(object["type"].as_str(), Some("Normal" | "Warning")) {
            causes.push(field::not_supported("type", &object["type"], &["Normal", "Warning"]));
        }
        causes.extend(note(object));
        causes
    }

    fn validate_update(&self, _context: &Context<'_>, _old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = same_namespace(new, "regarding");
        causes.extend(note(new));
        causes
    }
}

fn note(event: &Value) -> Option<Cause> {
    let long = event["note"].as_str().is_some_and(|note| note.len() > NOTE_OCTETS_MAX);
    long.then(|| field::too_long("note", NOTE_OCTETS_MAX as u64))
}

/// An event lives in the namespace of the object it is about; for an object without one, in `default` or `kube-system`.
fn same_namespace(event: &Value, reference: &str) -> Vec<Cause> {
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let of_object = event[reference]["namespace"].as_str().unwrap_or_default();
    if namespace == of_object || of_object.is_empty() && matches!(namespace, "default" | "kube-system") {
        return Vec::new();
    }
    let path = format!("{reference}.namespace");
    vec![field::invalid(&path, &Value::from(of_object), "does not match event.namespace")]
}

/// Writes the times at these JSON pointers with exactly six decimals: clients in Go refuse an object with other ones.
pub(super) fn micro_times(object: &mut Value, pointers: &[&str]) {
    for pointer in pointers {
        if let Some(Value::String(text)) = object.pointer_mut(pointer)
            && let Ok(time) = text.parse::<Timestamp>()
        {
            *text = time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        }
    }
}

const fn column(name: &'static str, priority: u8, description: &'static str, cell: fn(&Value, i64) -> Value) -> Column {
    Column { name, kind: "string", priority, description, cell }
}

const CORE_COLUMNS: &[Column] = &[
    column("Last Seen", 0, "Time since the event happened last.", last_seen),
    column("Type", 0, "`Normal` or `Warning`.", |event, _| columns::at(event, "type")),
    column("Reason", 0, "Why, in one word.", |event, _| columns::at(event, "reason")),
    column("Object", 0, "The object it happened to.", object_cell),
    column("Subobject", 1, "The part of the object.", |event, _| columns::at(event, "involvedObject.fieldPath")),
    column("Source", 1, "Who says so.", source_cell),
    column("Message", 0, "What happened.", |event, _| match event["message"].as_str() {
        Some(message) => Value::from(message.trim()),
        None => Value::Null,
    }),
    column("First Seen", 1, "Time since the event happened first.", first_seen),
    column("Count", 1, "How often it happened.", |event, _| {
        let of_series = event["series"]["count"].as_i64();
        Value::from(of_series.or(event["count"].as_i64().filter(|count| *count > 0)).unwrap_or(1))
    }),
    column("Name", 1, "The event's own name.", |event, _| columns::at(event, "metadata.name")),
];

const NEW_COLUMNS: &[Column] = &[
    column("Last Seen", 0, "Time since the event happened last.", |event, now| last_seen(&to_core(event.clone()), now)),
    column("Type", 0, "`Normal` or `Warning`.", |event, _| columns::at(event, "type")),
    column("Reason", 0, "Why, in one word.", |event, _| columns::at(event, "reason")),
    column("Object", 0, "The object it happened to.", |event, now| object_cell(&to_core(event.clone()), now)),
    column("Subobject", 1, "The part of the object.", |event, _| columns::at(event, "regarding.fieldPath")),
    column("Source", 1, "Who says so.", |event, now| source_cell(&to_core(event.clone()), now)),
    column("Message", 0, "What happened.", |event, _| columns::at(event, "note")),
    column("First Seen", 1, "Time since the event happened first.", |event, now| {
        first_seen(&to_core(event.clone()), now)
    }),
    column("Count", 1, "How often it happened.", |event, _| {
        let of_series = event["series"]["count"].as_i64();
        Value::from(of_series.or(event["deprecatedCount"].as_i64().filter(|count| *count > 0)).unwrap_or(1))
    }),
    column("Name", 1, "The event's own name.", |event, _| columns::at(event, "metadata.name")),
];

fn last_seen(event: &Value, now: i64) -> Value {
    let time = text_at(event, "series.lastObservedTime")
        .or_else(|| text_at(event, "lastTimestamp"))
        .or_else(|| text_at(event, "firstTimestamp"))
        .or_else(|| text_at(event, "eventTime"));
    unknown_if_null(columns::since(time, now))
}

fn first_seen(event: &Value, now: i64) -> Value {
    let time = text_at(event, "firstTimestamp").or_else(|| text_at(event, "eventTime"));
    unknown_if_null(columns::since(time, now))
}

fn unknown_if_null(cell: Value) -> Value {
    if cell.is_null() { Value::from("<unknown>") } else { cell }
}

fn object_cell(event: &Value, _now: i64) -> Value {
    let kind = text_at(event, "involvedObject.kind").unwrap_or_default().to_ascii_lowercase();
    match text_at(event, "involvedObject.name") {
        Some(name) if !name.is_empty() => Value::from(format!("{kind}/{name}")),
        _ => Value::from(kind),
    }
}

fn source_cell(event: &Value, _now: i64) -> Value {
    let component = text_at(event, "source.component").filter(|component| !component.is_empty());
    let component = component.or_else(|| text_at(event, "reportingComponent")).unwrap_or_default();
    let host = text_at(event, "source.host").filter(|host| !host.is_empty());
    let host = host.or_else(|| text_at(event, "reportingInstance")).unwrap_or_default();
    match host {
        "" => Value::from(component),
        host => Value::from(format!("{component}, {host}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::registry::{find, find_kind};

    #[test]
    fn the_two_representations_are_each_other() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "involvedObject": {"kind": "Route", "name": "r"}, "message": "m",
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
        let kind = find_kind("Event").unwrap();
        assert_eq!(kind.field(&event, "involvedObject.name").as_deref(), Some("r"));
        assert_eq!(kind.field(&event, "source").as_deref(), Some("c"));
        assert_eq!(kind.field(&event, "reason").as_deref(), Some(""));
        assert_eq!(kind.field(&event, "message"), None);
        let new = find("events.k8s.io", "v1", "events").unwrap();
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
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Route", "name": "r", "fieldPath": "spec"}, "message": " m\n",
            "source": {"component": "c", "host": "h"}, "firstTimestamp": "2026-01-01T00:00:00Z", "type": "Normal", "reason": "R",
            "eventTime": null
        });
        let now = "2026-01-01T00:01:07Z".parse::<Timestamp>().unwrap().as_second();
        let cells: Vec<Value> = CORE_COLUMNS.iter().map(|column| (column.cell)(&event, now)).collect();
        assert_eq!(
            cells,
            ["67s", "Normal", "R", "route/r", "spec", "c, h", "m", "67s"]
                .map(Value::from)
                .into_iter()
                .chain([Value::from(1), Value::from("e")])
                .collect::<Vec<_>>()
        );
        let new: Vec<Value> = NEW_COLUMNS.iter().map(|column| (column.cell)(&to_new(event.clone()), now)).collect();
        assert_eq!(new[..6], cells[..6]);
    }
}
