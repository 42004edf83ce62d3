//! Validation: the faults of an object against its schema, told in the words of Kubernetes' own server.
//!
//! Only what structural schemas of ours and of the built-in kinds use is known here: types, `required`, `enum`, bounds of
//! numbers, texts, lists and maps, `pattern` (none is used by our schemas; rules do better), formats `int32`, `int64` and
//! `date-time`, `x-kubernetes-int-or-string`, and the unique keys of list-maps and list-sets.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{field_path, of_field};
use crate::apiserver::error::Cause;
use crate::apiserver::registry::field;

/// More faults than this are not looked for: an answer with thousands helps nobody, and costs much.
const CAUSES_MAX: usize = 64;

/// The faults of an object against its schema, one for each, in the order of the object.
pub fn validate(schema: &Value, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(schema, object, "", &mut causes);
    causes
}

fn walk(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= CAUSES_MAX {
        return;
    }
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        if !(value.is_i64() || value.is_u64() || value.is_string()) {
            causes.push(field::type_invalid(path, value, "integer,string"));
        }
        return;
    }
    let Some(kind) = schema.get("type").and_then(Value::as_str) else { return };
    match (kind, value) {
        ("object", Value::Object(fields)) => object(schema, fields, path, causes),
        ("array", Value::Array(items)) => array(schema, items, path, causes),
        ("string", Value::String(text)) => string(schema, value, text, path, causes),
        ("integer", Value::Number(number)) if !number.is_f64() => integer(schema, value, path, causes),
        ("number", Value::Number(_)) => integer(schema, value, path, causes),
        ("boolean", Value::Bool(_)) => {}
        _ => causes.push(field::type_invalid(path, value, kind)),
    }
}

fn object(schema: &Value, fields: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    for name in strings(schema.get("required")).filter(|name| !fields.contains_key(*name)) {
        causes.push(field::required(&field_path(path, name), ""));
    }
    if let Some(maximum) = bound(schema, "maxProperties")
        && fields.len() as u64 > maximum
    {
        causes.push(field::too_many(path, fields.len(), maximum));
    }
    for (name, value) in fields {
        if let Some(inner) = of_field(schema, name) {
            walk(inner, value, &field_path(path, name), causes);
        }
    }
}

fn array(schema: &Value, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    if let Some(maximum) = bound(schema, "maxItems")
        && items.len() as u64 > maximum
    {
        // Then neither each item nor the uniqueness of all is worth the work.
        causes.push(field::too_many(path, items.len(), maximum));
        return;
    }
    if let Some(minimum) = bound(schema, "minItems")
        && (items.len() as u64) < minimum
    {
        let value = Value::Array(items.to_vec());
        causes.push(field::invalid(path, &value, &format!("{path} in body should have at least {minimum} items")));
    }
    if let Some(inner) = schema.get("items") {
        for (index, item) in items.iter().enumerate() {
            walk(inner, item, &format!("{path}[{index}]"), causes);
        }
    }
    unique_items(schema, items, path, causes);
}

fn unique_items(schema: &Value, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let mut seen = HashSet::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let key = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => item.clone(),
            Some("map") => match list_map_key(schema, item) {
                Some(key) => Value::Object(key),
                None => continue,
            },
            _ => return,
        };
        if !seen.insert(key.to_string()) && causes.len() < CAUSES_MAX {
            causes.push(field::duplicate(&format!("{path}[{index}]"), &key));
        }
    }
}

/// The items of list-maps and list-sets that cannot be told apart, since one is there twice or lacks a key field, in an object
/// that may lack required fields otherwise.
pub fn item_faults(schema: &Value, object: &Value) -> Vec<Cause> {
    fn walk(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields.iter().filter(|(_, value)| value.is_object() || value.is_array()) {
                    if let Some(inner) = of_field(schema, name) {
                        walk(inner, value, &field_path(path, name), causes);
                    }
                }
            }
            Value::Array(items) => {
                unique_items(schema, items, path, causes);
                let is_map = schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("map");
                let Some(inner) = schema.get("items") else { return };
                for (index, item) in items.iter().enumerate() {
                    if causes.len() >= CAUSES_MAX {
                        return;
                    }
                    let path = format!("{path}[{index}]");
                    if is_map && list_map_key(schema, item).is_none() {
                        match item.is_object() {
                            true => causes.extend(
                                strings(schema.get("x-kubernetes-list-map-keys"))
                                    .filter(|name| item.get(name).is_none())
                                    .map(|name| field::required(&field_path(&path, name), "")),
                            ),
                            false => causes.push(field::type_invalid(&path, item, "object")),
                        }
                    }
                    walk(inner, item, &path, causes);
                }
            }
            _ => {}
        }
    }
    let mut causes = Vec::new();
    walk(schema, object, "", &mut causes);
    causes
}

/// The key fields of an item of a list-map; `None` if one is absent and has no default, which is a fault of its own.
pub(in crate::apiserver) fn list_map_key(schema: &Value, item: &Value) -> Option<Map<String, Value>> {
    let defaults = schema.get("items").and_then(|items| items.get("properties"));
    strings(schema.get("x-kubernetes-list-map-keys"))
        .map(|name| {
            let default = || defaults.and_then(|properties| properties.get(name)?.get("default"));
            let value = item.get(name).filter(|value| !value.is_null()).or_else(default)?;
            Some((name.to_owned(), value.clone()))
        })
        .collect()
}

fn string(schema: &Value, value: &Value, text: &str, path: &str, causes: &mut Vec<Cause>) {
    if let Some(Value::Array(allowed)) = schema.get("enum")
        && !allowed.contains(value)
    {
        let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        causes.push(field::not_supported(path, value, &allowed));
        return;
    }
    // OpenAPI counts characters.
    let length = || text.chars().count() as u64;
    if let Some(maximum) = bound(schema, "maxLength")
        && length() > maximum
    {
        causes.push(field::too_long(path, maximum));
        return;
    }
    if let Some(minimum) = bound(schema, "minLength")
        && length() < minimum
    {
        let what = format!("{path} in body should be at least {minimum} chars long");
        causes.push(field::invalid(path, value, &what));
    }
    if schema.get("format").and_then(Value::as_str) == Some("date-time") && text.parse::<Timestamp>().is_err() {
        causes.push(field::invalid(
            path,
            value,
            &format!("{path} in body must be of type date-time, such as \"2026-01-31T12:00:00Z\": {value}"),
        ));
    }
}

fn integer(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
    let found = value.as_f64().unwrap_or(f64::NAN);
    if let Some(minimum) = limit("minimum")
        && found < minimum
    {
        let what = format!("{path} in body should be greater than or equal to {minimum}");
        causes.push(field::invalid(path, value, &what));
    } else if let Some(maximum) = limit("maximum")
        && found > maximum
    {
        let what = format!("{path} in body should be less than or equal to {maximum}");
        causes.push(field::invalid(path, value, &what));
    } else if let Some(format) = schema.get("format").and_then(Value::as_str) {
        let fits = match format {
            "int32" => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            "int64" => value.is_i64(),
            _ => true,
        };
        if !fits {
            causes.push(field::invalid(path, value, &format!("{path} in body must be of type {format}: {value}")));
        }
    }
}

fn bound(schema: &Value, name: &str) -> Option<u64> {
    schema.get(name).and_then(Value::as_u64)
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn faults_are_told_as_kubernetes_does() {
        let schema = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 5},
            "weight": {"type": "integer", "format": "int64", "minimum": 1, "maximum": 1000},
            "small": {"type": "integer", "format": "int32"},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "since": {"type": "string", "format": "date-time"},
            "port": {"x-kubernetes-int-or-string": true},
            "on": {"type": "boolean"},
            "list": {"type": "array", "maxItems": 3, "items": {"type": "object", "required": ["ip"], "properties": {
                "ip": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["ip"]},
            "set": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
            "labels": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string"}}
        }});
        for (object, expected) in [
            (
                json!({"name": "x", "port": 80, "on": true, "since": "2026-01-02T03:04:05.123456Z", "labels": {"a": "b"}}),
                vec![],
            ),
            (json!({}), vec!["name: Required value"]),
            (json!({"name": ""}), vec!["name: Invalid value: \"\": name in body should be at least 1 chars long"]),
            (json!({"name": "toolong"}), vec!["name: Too long: may not be more than 5 bytes"]),
            (
                json!({"name": "x", "weight": "5"}),
                vec!["weight: Invalid value: \"string\": weight in body must be of type integer: \"string\""],
            ),
            (
                json!({"name": "x", "weight": 1.5}),
                vec!["weight: Invalid value: \"number\": weight in body must be of type integer: \"number\""],
            ),
            (
                json!({"name": "x", "weight": 0}),
                vec!["weight: Invalid value: 0: weight in body should be greater than or equal to 1"],
            ),
            (
                json!({"name": "x", "weight": 1001}),
                vec!["weight: Invalid value: 1001: weight in body should be less than or equal to 1000"],
            ),
            (
                json!({"name": "x", "small": 4_000_000_000_u64}),
                vec!["small: Invalid value: 4000000000: small in body must be of type int32: 4000000000"],
            ),
            (json!({"name": "x", "mode": "c"}), vec!["mode: Unsupported value: \"c\": supported values: \"a\", \"b\""]),
            (
                json!({"name": "x", "since": "today"}),
                vec![
                    "since: Invalid value: \"today\": since in body must be of type date-time, such as \
                     \"2026-01-31T12:00:00Z\": \"today\"",
                ],
            ),
            (
                json!({"name": "x", "port": true}),
                vec!["port: Invalid value: \"boolean\": port in body must be of type integer,string: \"boolean\""],
            ),
            (
                json!({"name": "x", "list": [{"ip": "a"}, {"ip": "a"}, {}]}),
                vec!["list[2].ip: Required value", "list[1]: Duplicate value: {\"ip\":\"a\"}"],
            ),
            (json!({"name": "x", "list": [{}, {}, {}, {}]}), vec!["list: Too many: 4: must have at most 3 items"]),
            (json!({"name": "x", "set": [1, 2, 1]}), vec!["set[2]: Duplicate value: 1"]),
            (
                json!({"name": "x", "labels": {"a": "1", "b": "2", "c": "3"}}),
                vec!["labels: Too many: 3: must have at most 2 items"],
            ),
            (
                json!({"name": "x", "labels": []}),
                vec!["labels: Invalid value: \"array\": labels in body must be of type object: \"array\""],
            ),
            (
                json!({"name": null}),
                vec!["name: Invalid value: \"null\": name in body must be of type string: \"null\""],
            ),
        ] {
            let found: Vec<String> =
                validate(&schema, &object).iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
            assert_eq!(found, expected, "{object}");
        }
    }

    #[test]
    fn a_hostile_object_yields_bounded_causes() {
        let schema = json!({"type": "array", "items": {"type": "string"}});
        let object = Value::Array(vec![json!(1); 100_000]);
        assert!(validate(&schema, &object).len() <= CAUSES_MAX);
    }
}
