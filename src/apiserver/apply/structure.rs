//! What in an object is one value and what has parts: the schema's merge structure.
//!
//! An object has parts unless it is marked `x-kubernetes-map-type: atomic`. A list is one value unless it is marked
//! `x-kubernetes-list-type: set` or `map`. Where there is no schema (inside `x-kubernetes-preserve-unknown-fields`), objects
//! have parts and all else is a value. A value that is not of its schema's type is one value; validation refuses it later.

use serde_json::{Map, Value};

use super::field_set::{Element, FieldSet};
use crate::apiserver::schema::validate::list_map_key;
use crate::apiserver::schema::{of_field, preserves_unknown};

/// The structure of a value.
pub(super) enum Shape<'a> {
    /// One value.
    Leaf,
    /// An object with parts.
    Object(&'a Map<String, Value>),
    /// A list whose items have identities.
    List(&'a [Value]),
}

/// The structure of `value` under its schema; `None`: there is no schema here.
pub(super) fn shape<'a>(schema: Option<&Value>, value: &'a Value) -> Shape<'a> {
    let attribute = |name: &str| schema.and_then(|schema| schema.get(name)).and_then(Value::as_str);
    match value {
        Value::Object(_) if attribute("x-kubernetes-map-type") == Some("atomic") => Shape::Leaf,
        Value::Object(fields) if attribute("type").is_none_or(|kind| kind == "object") => Shape::Object(fields),
        Value::Array(items) if matches!(attribute("x-kubernetes-list-type"), Some("set" | "map")) => Shape::List(items),
        _ => Shape::Leaf,
    }
}

/// The schema of a field, and whether it is declared by name.
pub(super) fn field<'a>(schema: Option<&'a Value>, name: &str) -> (Option<&'a Value>, bool) {
    let Some(schema) = schema else { return (None, false) };
    let declared = schema.get("properties").is_some_and(|properties| properties.get(name).is_some());
    let inner = of_field(schema, name);
    // The inside of a schemaless field is told by the values in it.
    (inner.filter(|inner| !(preserves_unknown(inner) && inner.get("properties").is_none())), declared)
}

/// The schema of a list's items.
pub(super) fn items(schema: Option<&Value>) -> Option<&Value> {
    schema.and_then(|schema| schema.get("items"))
}

/// The identity of a list's item; `None` if it lacks a key field, which validation refuses later.
pub(super) fn identity(schema: Option<&Value>, item: &Value) -> Option<Element> {
    let schema = schema?;
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => Some(Element::value(item)),
        Some("map") => list_map_key(schema, item).map(|key| Element::key(&key)),
        _ => None,
    }
}

/// The fields that someone who applies `value` owns: the leaves, the items of lists, empty objects, and objects that the
/// schema does not declare by name; not the containers.
pub(super) fn applied_fields(schema: Option<&Value>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(schema, value, &mut Vec::new(), false, &mut set);
    set
}

/// Every field that is there, containers included.
pub(super) fn present_fields(schema: Option<&Value>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(schema, value, &mut Vec::new(), true, &mut set);
    set
}

fn collect(schema: Option<&Value>, value: &Value, path: &mut Vec<Element>, containers: bool, set: &mut FieldSet) {
    match shape(schema, value) {
        Shape::Leaf => set.insert(path),
        Shape::Object(fields) => {
            for (name, field_value) in fields {
                let (inner, declared) = field(schema, name);
                path.push(Element::Field(name.clone()));
                collect(inner, field_value, path, containers, set);
                let empty = field_value.as_object().is_some_and(Map::is_empty);
                if containers || empty || !declared {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Shape::List(list) => {
            for item in list {
                let Some(element) = identity(schema, item) else { continue };
                path.push(element);
                collect(items(schema), item, path, containers, set);
                set.insert(path);
                path.pop();
            }
        }
    }
}

/// Follows a set along the schema, for [`FieldSet::with_containers`].
pub(super) fn step<'a>(schema: Option<&'a Value>, element: &Element) -> (Option<&'a Value>, bool) {
    match element {
        Element::Field(name) => field(schema, name),
        Element::Key(_) | Element::Value(_) | Element::Index(_) => (items(schema), false),
    }
}
