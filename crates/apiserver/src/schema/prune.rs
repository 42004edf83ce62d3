//! Pruning: removes and reports unknown fields.

use serde_json::Value;

use super::node::Node;
use super::path::Path;

/// The maximum number of reported paths; the number of pruned fields is not limited.
const PATHS_MAX: usize = 64;

/// Removes the fields that are not in the schema, and returns their paths, such as `spec.bogus` or `spec.addresses[0].bogus`.
pub fn prune(schema: &Node, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(schema, object, &Path::Root, &mut unknown);
    unknown
}

fn walk(schema: &Node, value: &mut Value, path: &Path<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            if schema.preserves_unknown {
                return;
            }
            object.retain(|name, _| {
                let known = schema.field(name).is_some();
                if !known && unknown.len() < PATHS_MAX {
                    unknown.push(Path::Field(path, name).to_string());
                }
                known
            });
            for (name, field) in object.iter_mut().filter(|(_, field)| field.is_object() || field.is_array()) {
                if let Some(inner) = schema.field(name) {
                    walk(inner, field, &Path::Field(path, name), unknown);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate().filter(|(_, item)| item.is_object() || item.is_array()) {
                walk(inner, item, &Path::Item(path, index), unknown);
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
        assert_eq!(prune(&Node::of(&schema), &mut object), ["bogus", "spec.bogus", "spec.to[0].bogus"]);
        assert_eq!(
            object,
            json!({"spec": {"host": "h", "to": [{"name": "n"}], "labels": {"any": "thing"}, "free": {"y": [1]}}})
        );
    }
}
