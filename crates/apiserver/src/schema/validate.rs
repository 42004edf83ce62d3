//! Validation: the faults of an object against its schema, with the messages of kube-apiserver.
//!
//! It supports only the features that the structural schemas of the platform's and of the built-in kinds use: types, `required`,
//! `enum`, bounds of numbers, texts, lists, and maps, `pattern` (none of the platform's schemas uses one; rules give better
//! messages), formats `int32`, `int64`, and `date-time`, `x-kubernetes-int-or-string`, and the unique keys of list-maps and
//! list-sets.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::node::{List, Node, Type};
use super::path::Path;
use crate::cause::Cause;

/// The maximum number of reported faults: a response with thousands is not useful, and expensive.
const CAUSES_MAX: usize = 64;
/// The maximum number of list items that are compared pairwise, which needs no allocation.
const COMPARED_MAX: usize = 16;

/// Returns the faults of an object against its schema, one for each, in the order of the object.
pub fn validate(schema: &Node, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(schema, object, &Path::Root, &mut causes);
    causes
}

fn walk(schema: &Node, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if causes.len() >= CAUSES_MAX {
        return;
    }
    if schema.int_or_string {
        match value {
            Value::String(text) => string(schema, value, text, path, causes),
            Value::Number(number) if !number.is_f64() => {}
            _ => causes.push(Cause::type_invalid(&path.to_string(), value, "integer,string")),
        }
        return;
    }
    let Some(kind) = schema.kind else { return };
    match (kind, value) {
        (Type::Object, Value::Object(fields)) => object(schema, fields, path, causes),
        (Type::Array, Value::Array(items)) => array(schema, items, path, causes),
        (Type::String, Value::String(text)) => string(schema, value, text, path, causes),
        (Type::Integer, Value::Number(number)) if !number.is_f64() => integer(schema, value, path, causes),
        (Type::Number, Value::Number(_)) => integer(schema, value, path, causes),
        (Type::Boolean, Value::Bool(_)) => {}
        _ => causes.push(Cause::type_invalid(&path.to_string(), value, kind.as_str())),
    }
}

fn object(schema: &Node, fields: &Map<String, Value>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    for name in schema.required.iter().filter(|name| !fields.contains_key(&***name)) {
        causes.push(Cause::required(Path::Field(path, name).to_string(), ""));
    }
    if let Some(maximum) = schema.bounds.properties_max
        && fields.len() as u64 > maximum
    {
        causes.push(Cause::too_many(path.to_string(), fields.len(), maximum));
    }
    for (name, value) in fields {
        if let Some(inner) = schema.field(name) {
            walk(inner, value, &Path::Field(path, name), causes);
        }
    }
}

fn array(schema: &Node, items: &[Value], path: &Path<'_>, causes: &mut Vec<Cause>) {
    let (minimum, maximum) = schema.bounds.items;
    if let Some(maximum) = maximum
        && items.len() as u64 > maximum
    {
        // Then checking each item, or the uniqueness of all, is too much work.
        causes.push(Cause::too_many(path.to_string(), items.len(), maximum));
        return;
    }
    if let Some(minimum) = minimum
        && (items.len() as u64) < minimum
    {
        let (path, value) = (path.to_string(), Value::Array(items.to_vec()));
        causes.push(Cause::invalid(&path, &value, &format!("{path} in body should have at least {minimum} items")));
    }
    if let Some(inner) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            walk(inner, item, &Path::Item(path, index), causes);
        }
    }
    unique_items(schema, items, path, causes);
}

fn unique_items(schema: &Node, items: &[Value], path: &Path<'_>, causes: &mut Vec<Cause>) {
    if schema.list == List::Atomic || items.len() <= COMPARED_MAX && are_unique(schema, items) {
        return;
    }
    let mut seen = HashSet::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let key = match &schema.list {
            List::Set => item.clone(),
            List::Map(_) => match list_map_key(schema, item) {
                Some(key) => Value::Object(key),
                None => continue,
            },
            List::Atomic => return,
        };
        if !seen.insert(key.to_string()) && causes.len() < CAUSES_MAX {
            causes.push(Cause::duplicate(Path::Item(path, index).to_string(), &key));
        }
    }
}

/// Returns whether no two of a few items are the same one.
fn are_unique(schema: &Node, items: &[Value]) -> bool {
    let same = |a: &Value, b: &Value| match &schema.list {
        List::Set => a == b,
        List::Map(keys) => keys.iter().all(|name| {
            let (a, b) = (key_field(schema, a, name), key_field(schema, b, name));
            a.is_some() && a == b
        }),
        List::Atomic => false,
    };
    items.iter().enumerate().all(|(index, item)| !items[..index].iter().any(|before| same(before, item)))
}

/// Returns the lists, maps, and texts of `new` above their maximum, and checks nothing below such a list or map. `old` is the
/// stored object: a value that exceeded the maximum there is accepted if it does not grow.
///
/// The write path calls this before any other step, so that the work of the others is bounded: a rule can compare all items of a
/// list with each other.
pub fn sizes(schema: &Node, old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk_sizes(schema, old, new, &Path::Root, &mut causes);
    causes
}

fn walk_sizes(schema: &Node, old: Option<&Value>, new: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if causes.len() >= CAUSES_MAX {
        return;
    }
    let exceeded = |maximum: Option<u64>, found: usize, before: Option<usize>| {
        maximum.filter(|maximum| found as u64 > *maximum && before.is_none_or(|before| found > before))
    };
    match new {
        Value::Array(items) => {
            let before = old.and_then(Value::as_array).map(Vec::len);
            if let Some(maximum) = exceeded(schema.bounds.items.1, items.len(), before) {
                causes.push(Cause::too_many(path.to_string(), items.len(), maximum));
                return;
            }
            let Some(inner) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                walk_sizes(inner, old.and_then(|old| old.get(index)), item, &Path::Item(path, index), causes);
            }
        }
        Value::Object(fields) => {
            let before = old.and_then(Value::as_object).map(Map::len);
            if let Some(maximum) = exceeded(schema.bounds.properties_max, fields.len(), before) {
                causes.push(Cause::too_many(path.to_string(), fields.len(), maximum));
                return;
            }
            for (name, value) in fields {
                if let Some(inner) = schema.field(name) {
                    walk_sizes(inner, old.and_then(|old| old.get(name)), value, &Path::Field(path, name), causes);
                }
            }
        }
        Value::String(text) => {
            // OpenAPI counts characters, of which there are no more than octets.
            let before = old.and_then(Value::as_str).map(|before| before.chars().count());
            let long = schema.bounds.lengths.1.filter(|maximum| text.len() as u64 > *maximum);
            if let Some(maximum) = long.and_then(|_| exceeded(long, text.chars().count(), before)) {
                causes.push(Cause::too_long(path.to_string(), maximum));
            }
        }
        _ => {}
    }
}

/// Returns the values of `object` that have the wrong type. The object may lack required fields.
pub fn type_faults(schema: &Node, object: &Value) -> Vec<Cause> {
    let mut causes = validate(schema, object);
    causes.retain(|cause| cause.reason == Cause::TYPE_INVALID);
    causes
}

/// Returns the items of list-maps and list-sets that cannot be told apart, since one is there twice or lacks a key field, in an
/// object that may lack required fields otherwise.
pub fn item_faults(schema: &Node, object: &Value) -> Vec<Cause> {
    fn walk(schema: &Node, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields.iter().filter(|(_, value)| value.is_object() || value.is_array()) {
                    if let Some(inner) = schema.field(name) {
                        walk(inner, value, &Path::Field(path, name), causes);
                    }
                }
            }
            Value::Array(items) => {
                unique_items(schema, items, path, causes);
                let Some(inner) = &schema.items else { return };
                for (index, item) in items.iter().enumerate() {
                    if causes.len() >= CAUSES_MAX {
                        return;
                    }
                    let path = Path::Item(path, index);
                    if let List::Map(keys) = &schema.list
                        && list_map_key(schema, item).is_none()
                    {
                        match item.is_object() {
                            true => causes.extend(
                                keys.iter()
                                    .filter(|name| item.get(&***name).is_none())
                                    .map(|name| Cause::required(Path::Field(&path, name).to_string(), "")),
                            ),
                            false => causes.push(Cause::type_invalid(&path.to_string(), item, "object")),
                        }
                    }
                    walk(inner, item, &path, causes);
                }
            }
            _ => {}
        }
    }
    let mut causes = Vec::new();
    walk(schema, object, &Path::Root, &mut causes);
    causes
}

/// Returns the key fields of an item of a list-map; `None` if one is absent and has no default, which is a fault of its own.
pub(crate) fn list_map_key(schema: &Node, item: &Value) -> Option<Map<String, Value>> {
    let List::Map(keys) = &schema.list else { return Some(Map::new()) };
    keys.iter().map(|name| Some((name.to_string(), key_field(schema, item, name)?.clone()))).collect()
}

/// Returns a key field of an item of a list-map, or its default.
pub(crate) fn key_field<'a>(schema: &'a Node, item: &'a Value, name: &str) -> Option<&'a Value> {
    let default = || schema.items.as_ref()?.default_of(name);
    item.get(name).filter(|value| !value.is_null()).or_else(default)
}

fn string(schema: &Node, value: &Value, text: &str, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if let Some(allowed) = &schema.allowed
        && !allowed.contains(value)
    {
        let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        causes.push(Cause::not_supported(path.to_string(), value, &allowed));
        return;
    }
    let (minimum, maximum) = schema.bounds.lengths;
    // OpenAPI counts characters, of which there are no more than octets.
    let length = || text.chars().count() as u64;
    if let Some(maximum) = maximum
        && text.len() as u64 > maximum
        && length() > maximum
    {
        causes.push(Cause::too_long(path.to_string(), maximum));
        return;
    }
    if let Some(minimum) = minimum
        && length() < minimum
    {
        let path = path.to_string();
        let what = format!("{path} in body should be at least {minimum} chars long");
        causes.push(Cause::invalid(&path, value, &what));
    }
    if schema.format.as_deref() == Some("date-time") && text.parse::<Timestamp>().is_err() {
        let path = path.to_string();
        causes.push(Cause::invalid(
            &path,
            value,
            &format!("{path} in body must be of type date-time, such as \"2026-01-31T12:00:00Z\": {value}"),
        ));
    }
}

fn integer(schema: &Node, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let (minimum, maximum) = schema.bounds.numbers;
    let found = value.as_f64().unwrap_or(f64::NAN);
    let mut invalid = |what: &dyn Fn(&str) -> String| {
        let path = path.to_string();
        causes.push(Cause::invalid(&path, value, &what(&path)));
    };
    if let Some(minimum) = minimum
        && found < minimum
    {
        invalid(&|path| format!("{path} in body should be greater than or equal to {minimum}"));
    } else if let Some(maximum) = maximum
        && found > maximum
    {
        invalid(&|path| format!("{path} in body should be less than or equal to {maximum}"));
    } else if let Some(format) = schema.format.as_deref() {
        let fits = match format {
            "int32" => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            "int64" => value.is_i64(),
            _ => true,
        };
        if !fits {
            invalid(&|path| format!("{path} in body must be of type {format}: {value}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn faults_are_reported_as_kubernetes_does() {
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
            let found: Vec<String> = validate(&Node::of(&schema), &object)
                .iter()
                .map(|cause| format!("{}: {}", cause.field, cause.message))
                .collect();
            assert_eq!(found, expected, "{object}");
        }
    }

    #[test]
    fn sizes_are_found_whatever_else_is_wrong_and_may_shrink() {
        let schema = Node::of(&json!({"type": "object", "required": ["name"], "properties": {
            "a": {"type": "array", "items": {"type": "boolean"}},
            "name": {"type": "string", "maxLength": 3},
            "list": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 1}},
            "map": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string", "maxLength": 1}}
        }}));
        for (old, new, expected) in [
            (None, json!({"name": "abc", "list": ["x", "y"], "map": {"a": "b"}}), vec![]),
            (None, json!({"name": "äöü"}), vec![]),
            // More faults of types than are reported hide no list.
            (None, json!({"a": vec![1; 100], "list": ["xx", "y", "z"]}), vec!["list"]),
            (None, json!({"name": "abcd", "list": ["xx"], "map": {"a": "bb"}}), vec!["list[0]", "map.a", "name"]),
            (None, json!({"map": {"a": "b", "c": "d"}}), vec!["map"]),
            (Some(json!({"list": ["x", "y", "z"]})), json!({"list": ["x", "y", "v"]}), vec![]),
            (Some(json!({"list": ["x", "y", "z"]})), json!({"list": ["x", "y", "z", "v"]}), vec!["list"]),
            (Some(json!({"name": "abcde"})), json!({"name": "vwxyz"}), vec![]),
            (Some(json!({"name": "abcde"})), json!({"name": "abcdef"}), vec!["name"]),
        ] {
            let found: Vec<String> = sizes(&schema, old.as_ref(), &new).into_iter().map(|cause| cause.field).collect();
            assert_eq!(found, expected, "{old:?} {new}");
        }
    }

    #[test]
    fn a_hostile_object_yields_bounded_causes() {
        let schema = json!({"type": "array", "items": {"type": "string"}});
        let object = Value::Array(vec![json!(1); 100_000]);
        assert!(validate(&Node::of(&schema), &object).len() <= CAUSES_MAX);
    }
}
