//! Pruning: fields that the schema does not know are taken out, and named.

use serde_json::Value;

use super::{field_path, of_field, preserves_unknown};

/// At most this many paths are named; what is pruned is not bounded.
const PATHS_MAX: usize = 64;

/// Removes the fields that the schema does not know, and returns their paths, such as `spec.bogus` or
/// `spec.addresses[0].bogus`.
pub fn prune(schema: &Value, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(schema, object, "", &mut unknown);
    unknown
}

fn walk(schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            if preserves_unknown(schema) {
                return;
            }
            object.retain(|name, _| {
                let known = of_field(schema, name).is_some();
                if !known && unknown.len() < PATHS_MAX {
                    unknown.push(field_path(path, name));
                }
                known
            });
            for (name, field) in object.iter_mut().filter(|(_, field)| field.is_object() || field.is_array()) {
                if let Some(inner) = of_field(schema, name) {
                    walk(inner, field, &field_path(path, name), unknown);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.get("items") else { return };
            for (index, item) in items.iter_mut().enumerate().filter(|(_, item)| item.is_object() || item.is_array()) {
                walk(inner, item, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_fields_go_and_are_named() {
        let schema = json!({"properties": {
            "spec": {"properties": {
                "host": {"type": "string"},
                "to": {"type": "array", "items": {"properties": {"name": {"type": "string"}}}},
                "labels": {"additionalProperties": {"type": "string"}},
                "free": {"x-kubernetes-preserve-unknown-fields": true}
            }}
        }});
        let mut object = json!({
            "bogus": 1,
            "spec": {"host": "h", "bogus": {"x": 1}, "to": [{"name": "n", "bogus": 1}], "labels": {"any": "thing"}, "free": {"y": [1]}}
        });
        assert_eq!(prune(&schema, &mut object), ["bogus", "spec.bogus", "spec.to[0].bogus"]);
        assert_eq!(
            object,
            json!({"spec": {"host": "h", "to": [{"name": "n"}], "labels": {"any": "thing"}, "free": {"y": [1]}}})
        );
    }
}
