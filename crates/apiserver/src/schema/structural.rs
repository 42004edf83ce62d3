//! Converts the schemas of Rust types to structural schemas of Kubernetes.
//!
//! `schemars` writes numbers as floats, its own formats (`uint32`), `nullable` for each `Option`, and descriptions with the line
//! breaks of the source. The schemas of shared types (label selectors, conditions, metadata) lack the attributes that define how
//! lists merge. This module corrects all of that, for the server and for the CRDs.

use serde_json::{Map, Value, json};

/// Converts a schema in place.
pub fn make_structural(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    for key in ["$schema", "title", "nullable", "$defs", "definitions", "components"] {
        object.remove(key);
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = joined_lines(text);
    }
    // From an `Option`: absent fields need no value, and kubectl accepts only values of the field's type.
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    numbers(object);
    shared_types(object);
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(make_structural);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(key) {
            make_structural(inner);
        }
    }
}

/// Returns the lines of a paragraph as one; paragraphs stay apart.
fn joined_lines(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        words.join(" ")
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// Converts bounds of integers to integers, and removes formats that OpenAPI does not define.
fn numbers(object: &mut Map<String, Value>) {
    if object.get("type").and_then(Value::as_str) != Some("integer") {
        return;
    }
    if let Some("uint8" | "uint16" | "uint32" | "uint64" | "uint") = object.get("format").and_then(Value::as_str) {
        let widest = match object.get("format").and_then(Value::as_str) {
            Some("uint8") => i64::from(u8::MAX),
            Some("uint16") => i64::from(u16::MAX),
            Some("uint32") => i64::from(u32::MAX),
            _ => i64::MAX,
        };
        object.insert("format".to_owned(), json!("int64"));
        object.entry("minimum").or_insert(json!(0));
        object.entry("maximum").or_insert(json!(widest));
    }
    for key in ["minimum", "maximum"] {
        if let Some(limit) = object.get_mut(key)
            && let Some(float) = limit.as_f64().filter(|_| limit.is_f64())
            && float.fract() == 0.0
        {
            *limit = json!(float as i64);
        }
    }
}

/// Adds the attributes of shared types that are in Kubernetes' own documents, but not in the Rust types.
fn shared_types(object: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = object.get_mut("properties") else { return };
    let has = |properties: &Map<String, Value>, names: &[&str]| names.iter().all(|name| properties.contains_key(*name));
    if has(properties, &["matchLabels", "matchExpressions"]) {
        // LabelSelector: atomic, because half a selector selects other objects. Many objects are matched against every selector,
        // and a cluster needs the maximum cost of a rule over it. The bounds are far above realistic sizes.
        set(properties, "matchLabels", json!({"maxProperties": 64}));
        if let Some(Value::Object(value)) =
            properties.get_mut("matchLabels").and_then(|labels| labels.get_mut("additionalProperties"))
        {
            value.insert("maxLength".to_owned(), json!(63));
        }
        set(properties, "matchExpressions", json!({"x-kubernetes-list-type": "atomic", "maxItems": 64}));
        if let Some(Value::Object(requirement)) =
            properties.get_mut("matchExpressions").and_then(|list| list.get_mut("items")?.get_mut("properties"))
        {
            set(requirement, "key", json!({"maxLength": 317}));
            let operators = ["In", "NotIn", "Exists", "DoesNotExist"];
            set(requirement, "operator", json!({"maxLength": 63, "enum": operators}));
            set(requirement, "values", json!({"x-kubernetes-list-type": "atomic", "maxItems": 64}));
            if let Some(Value::Object(value)) = requirement.get_mut("values").and_then(|list| list.get_mut("items")) {
                value.insert("maxLength".to_owned(), json!(63));
            }
        }
        object.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    } else if has(properties, &["lastTransitionTime", "reason", "message", "status", "type"]) {
        // Condition, with the bounds that controller-gen writes into every CRD.
        set(properties, "message", json!({"maxLength": 32768}));
        set(properties, "reason", json!({"minLength": 1, "maxLength": 1024}));
        set(properties, "status", json!({"enum": ["True", "False", "Unknown"]}));
        set(properties, "type", json!({"maxLength": 316}));
        set(properties, "observedGeneration", json!({"minimum": 0}));
    } else if has(properties, &["ownerReferences", "finalizers", "managedFields"]) {
        let by_uid = json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]});
        set(properties, "ownerReferences", by_uid);
        if let Some(Value::Object(owner)) = properties.get_mut("ownerReferences").and_then(|list| list.get_mut("items"))
        {
            owner.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
        set(properties, "finalizers", json!({"x-kubernetes-list-type": "set"}));
        set(properties, "managedFields", json!({"x-kubernetes-list-type": "atomic"}));
        if let Some(Value::Object(entry)) =
            properties.get_mut("managedFields").and_then(|list| list.get_mut("items")?.get_mut("properties"))
        {
            set(entry, "fieldsV1", json!({"x-kubernetes-preserve-unknown-fields": true}));
        }
    }
}

/// Returns the schema at a place such as `spec.addresses[].ip`; the root is empty, the values of a map are `{}`.
pub fn at<'a>(schema: &'a mut Value, place: &str) -> Option<&'a mut Value> {
    let mut node = schema;
    for part in place.split('.').filter(|part| !part.is_empty()) {
        let (name, inner) = match part.strip_suffix("[]") {
            Some(name) => (name, Some("items")),
            None => match part.strip_suffix("{}") {
                Some(name) => (name, Some("additionalProperties")),
                None => (part, None),
            },
        };
        node = node.get_mut("properties")?.get_mut(name)?;
        if let Some(inner) = inner {
            node = node.get_mut(inner)?;
        }
    }
    Some(node)
}

/// Adds attributes to the schema at a place; see [`at`].
pub fn extend(schema: &mut Value, place: &str, attributes: Value) {
    let node = at(schema, place);
    assert!(node.is_some(), "the schema has no {place}");
    if let (Some(Value::Object(node)), Value::Object(attributes)) = (node, attributes) {
        node.extend(attributes);
    }
}

/// Adds limits to the unbounded texts, lists, and maps of the built-in kinds, which Kubernetes limits only by the size of the
/// object. Real ones are far below.
pub fn bound(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    if let Some((key, maximum)) = unbounded_here(object) {
        object.insert(key.to_owned(), json!(maximum));
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(bound);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(key) {
            bound(inner);
        }
    }
}

/// Returns the attribute that bounds a schema and that it lacks, with the bound of built-in kinds.
fn unbounded_here(schema: &Map<String, Value>) -> Option<(&'static str, u64)> {
    let lacks = |key: &str| !schema.contains_key(key);
    let is_time = || schema.get("format").is_some_and(|format| format == "date-time");
    let is_mixed = schema.contains_key("x-kubernetes-int-or-string");
    match schema.get("type").and_then(Value::as_str) {
        Some("string") if lacks("maxLength") && lacks("enum") && !is_time() => Some(("maxLength", 1_024)),
        None if is_mixed && lacks("maxLength") => Some(("maxLength", 1_024)),
        Some("array") if lacks("maxItems") => Some(("maxItems", 64)),
        Some("object") if !lacks("additionalProperties") && lacks("maxProperties") => Some(("maxProperties", 64)),
        _ => None,
    }
}

/// Adds attributes to the schema of a field.
fn set(properties: &mut Map<String, Value>, name: &str, attributes: Value) {
    if let (Some(Value::Object(property)), Value::Object(attributes)) = (properties.get_mut(name), attributes) {
        property.extend(attributes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_of_schemars_becomes_structural() {
        let mut schema = json!({"title": "T", "type": "object", "description": "One\nline.\n\nTwo.", "properties": {
            "weight": {"type": "integer", "format": "uint32", "nullable": true, "minimum": 0.0},
            "decision": {"type": "string", "enum": ["approve", null], "nullable": true},
            "selector": {"type": "object", "properties": {
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                "matchExpressions": {"type": "array", "items": {"type": "object", "properties": {"values": {"type": "array"}}}}}}
        }});
        make_structural(&mut schema);
        let expected = json!({"type": "object", "description": "One line.\n\nTwo.", "properties": {
            "weight": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 4294967295_u32},
            "decision": {"type": "string", "enum": ["approve"]},
            "selector": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}, "maxProperties": 64},
                "matchExpressions": {"type": "array", "x-kubernetes-list-type": "atomic", "maxItems": 64, "items": {
                    "type": "object", "properties": {
                        "values": {"type": "array", "x-kubernetes-list-type": "atomic", "maxItems": 64}}}}}}
        }});
        assert_eq!(schema, expected);
    }
}
