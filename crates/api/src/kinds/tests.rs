//! Tests of the rejected objects of each kind (`faults.yaml`).

use serde_json::{Value, json};
use signpost_apiserver::schema;
use signpost_apiserver::schema::structural::bound;

use super::fixture::{NOW, cell, check_create, check_update, known};
use super::*;

/// Returns an object of a kind with what every one has, unless the case has it.
fn object(kind: &str, case: &Value) -> Value {
    let names =
        json!([{"name": "n-r.s1.v3.example", "type": "system"}, {"name": "n-r.routes.v3.example", "type": "alias"}]);
    let (name, spec) = match kind {
        "Router" => ("shard1", json!({})),
        "RouteBinding" => (
            "r",
            json!({"routeNamespace": "n", "routeName": "r", "routeUID": "u", "router": "s1", "dns": "s1.v3.example",
                "label": "n-r", "names": names, "strategy": "round-robin"}),
        ),
        "NameClaim" => (
            "n-r",
            json!({"type": "label", "value": "n-r", "since": NOW, "holder": {"namespace": "n", "name": "r", "uid": "u"}}),
        ),
        "Zone" => ("s1.v3.example", json!({"type": "shard", "router": "s1"})),
        "DeletionHold" => ("h", json!({"type": "Router", "objects": 3, "known": 3, "cause": "list"})),
        "EndpointSlice" => ("web-1", Value::Null),
        "Secret" => ("web-tls", Value::Null),
        _ => ("r", json!({})),
    };
    let mut metadata = json!({"name": name});
    if known(kind).namespaced {
        metadata["namespace"] = json!("n");
    }
    let mut object = json!({"apiVersion": known(kind).api_version(), "kind": kind, "metadata": metadata});
    if !spec.is_null() {
        object["spec"] = spec;
    } else if kind == "EndpointSlice" {
        object["addressType"] = json!("IPv4");
        object["endpoints"] = json!([]);
    }
    for (field, value) in case.as_object().expect("an object") {
        match (field.as_str(), value) {
            ("old" | "faults" | "paths", _) => {}
            ("spec", Value::Object(fields)) => object["spec"].as_object_mut().unwrap().extend(fields.clone()),
            (field, value) => object[field] = value.clone(),
        }
    }
    for former in object.pointer_mut("/spec/formerNames").and_then(Value::as_array_mut).into_iter().flatten() {
        let times = json!({"router": "s1", "since": NOW, "until": NOW});
        former.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
    }
    object
}

#[test]
fn faults_have_their_paths_and_words() {
    let (cases, _) = schema::parse_yaml(include_bytes!("faults.yaml")).expect("it is YAML");
    for (kind, cases) in cases.as_object().expect("lists by kind") {
        for case in cases.as_array().expect("a list") {
            let new = object(kind, case);
            let found = match &case["old"] {
                Value::Null => check_create(kind, new),
                old => check_update(kind, &object(kind, old), new),
            };
            let list = |expected: &Value| expected.as_array().cloned().unwrap_or_default();
            if case["paths"].is_null() {
                assert_eq!(json!(found), json!(list(&case["faults"])), "{kind} {case}");
            } else {
                let paths: Vec<&str> = found.iter().filter_map(|fault| fault.split(": ").next()).collect();
                assert_eq!(json!(paths), json!(list(&case["paths"])), "{kind} {case} {found:?}");
            }
        }
    }
}

#[test]
fn every_field_has_a_description_and_a_bound() {
    for kind in kinds(PlatformConfig::new("v3.example")).iter() {
        let mut found = Vec::new();
        without_description(kind.schema.document(), "", &mut found);
        assert_eq!(found, Vec::<String>::new(), "{} {}", kind.group, kind.kind);
        // The server limits the lists, maps, and texts of the metadata; it limits their field sets only by the size of the
        // object, because an object that was stored with more must stay writable.
        let mut schema = kind.schema.document().clone();
        schema["properties"].as_object_mut().expect("fields").remove("metadata");
        let mut bounded = schema.clone();
        bound(&mut bounded);
        assert_eq!(json_patch::diff(&schema, &bounded).0, [], "{} {}", kind.group, kind.kind);
    }
}

/// Adds the paths of fields without a description to `found`: `kubectl explain` would print `<empty>`.
fn without_description(schema: &Value, path: &str, found: &mut Vec<String>) {
    if schema.get("description").and_then(Value::as_str).is_none_or(str::is_empty) {
        found.push(path.to_owned());
    }
    let inner = schema.get("items").or_else(|| schema.get("additionalProperties")).unwrap_or(schema);
    if let Some(Value::Object(properties)) = inner.get("properties") {
        for (name, property) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            without_description(property, &path, found);
        }
    }
}

#[test]
fn cells_of_an_empty_object_are_blank_and_do_not_panic() {
    for kind in kinds(PlatformConfig::new("v3.example")).iter() {
        for object in [json!({}), Value::Null, json!({"spec": [], "status": 1, "metadata": "x"})] {
            for column in kind.columns.iter() {
                let _ = cell(kind, column.name, &object);
            }
        }
    }
}
