//! Defaults: absent fields that the schema has a value for are filled in, and `null` is treated as absent.
//!
//! None of the platform's fields is nullable, so a stored object never holds a `null`: in a patch it removes a field, in a create
//! it is dropped.

use serde_json::Value;

use super::node::Node;

/// Fills in the defaults of absent fields, and removes fields that are `null`.
pub fn apply_defaults(schema: &Node, object: &mut Value) {
    match object {
        Value::Object(fields) => {
            if !schema.preserves_unknown && fields.values().any(Value::is_null) {
                fields.retain(|_, field| !field.is_null());
            }
            for (name, default) in &schema.defaults {
                if !fields.contains_key(&**name) {
                    fields.insert(name.to_string(), default.clone());
                }
            }
            for (name, field) in fields.iter_mut().filter(|(_, field)| field.is_object() || field.is_array()) {
                if let Some(inner) = schema.field(name) {
                    apply_defaults(inner, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &schema.items {
                items
                    .iter_mut()
                    .filter(|item| item.is_object() || item.is_array())
                    .for_each(|item| apply_defaults(inner, item));
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
    fn absent_and_null_fields_get_their_defaults() {
        let schema = json!({"properties": {
            "weight": {"type": "integer", "default": 1},
            "host": {"type": "string"},
            "labels": {"additionalProperties": {"type": "string"}},
            "to": {"items": {"properties": {"weight": {"default": 2}}}},
            "inner": {"properties": {"deep": {"default": true}}}
        }});
        for (object, filled) in [
            (json!({}), json!({"weight": 1})),
            (json!({"weight": null, "host": null}), json!({"weight": 1})),
            (json!({"weight": 5, "labels": null}), json!({"weight": 5})),
            (json!({"weight": 5, "labels": {"a": null, "b": "c"}}), json!({"weight": 5, "labels": {"b": "c"}})),
            (
                json!({"weight": 5, "to": [{}, {"weight": 7}]}),
                json!({"weight": 5, "to": [{"weight": 2}, {"weight": 7}]}),
            ),
            (json!({"weight": 5, "inner": {}}), json!({"weight": 5, "inner": {"deep": true}})),
        ] {
            let mut found = object.clone();
            let schema = Node::of(&schema);
            apply_defaults(&schema, &mut found);
            assert_eq!(found, filled, "{object}");
        }
    }
}
