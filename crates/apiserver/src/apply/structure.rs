//! The merge structure of a schema: which parts of an object are atomic and which are merged.
//!
//! An object has parts unless it is marked `x-kubernetes-map-type: atomic`. A list is atomic unless it is marked
//! `x-kubernetes-list-type: set` or `map`. Without a schema (inside `x-kubernetes-preserve-unknown-fields`), objects have parts
//! and all other values are atomic. A value that is not of its schema's type is atomic; validation rejects it later.

use serde_json::{Map, Value};

use super::field_set::{Element, FieldSet};
use crate::schema::Node;
use crate::schema::node::{List, Type};
use crate::schema::validate::list_map_key;

/// The structure of a value.
pub(super) enum Shape<'a> {
    /// One value.
    Leaf,
    /// An object with parts.
    Object(&'a Map<String, Value>),
    /// A list whose items have identities.
    List(&'a [Value]),
}

/// Returns the structure of `value` under its schema; `None`: there is no schema here.
pub(super) fn shape<'a>(schema: Option<&Node>, value: &'a Value) -> Shape<'a> {
    match value {
        Value::Object(fields) => match schema {
            Some(Node { is_atomic_map: true, .. }) => Shape::Leaf,
            None | Some(Node { kind: None | Some(Type::Object), .. }) => Shape::Object(fields),
            Some(_) => Shape::Leaf,
        },
        Value::Array(items) if schema.is_some_and(|schema| schema.list != List::Atomic) => Shape::List(items),
        _ => Shape::Leaf,
    }
}

/// Returns the schema of a field, and whether it is declared by name.
pub(super) fn field<'a>(schema: Option<&'a Node>, name: &str) -> (Option<&'a Node>, bool) {
    let Some(schema) = schema else { return (None, false) };
    let inner = schema.field(name);
    // The structure inside a schemaless field follows from its values.
    (inner.filter(|inner| !inner.preserves_unknown || inner.has_properties()), schema.property(name).is_some())
}

/// Returns the schema of a list's items.
pub(super) fn items(schema: Option<&Node>) -> Option<&Node> {
    schema.and_then(|schema| schema.items.as_deref())
}

/// Returns the identity of a list's item; `None` if it lacks a key field, which validation refuses later.
pub(super) fn identity(schema: Option<&Node>, item: &Value) -> Option<Element> {
    let schema = schema?;
    match &schema.list {
        List::Set => Some(Element::value(item)),
        List::Map(_) => list_map_key(schema, item).map(|key| Element::key(&key)),
        List::Atomic => None,
    }
}

/// Returns the fields that the manager of an apply of `value` owns: the leaves, the items of lists, empty objects, and objects
/// that the schema does not declare by name; not the containers.
pub(super) fn applied_fields(schema: Option<&Node>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(schema, value, &mut Vec::new(), &mut set);
    set
}

fn collect(schema: Option<&Node>, value: &Value, path: &mut Vec<Element>, set: &mut FieldSet) {
    match shape(schema, value) {
        Shape::Leaf => set.insert(path),
        Shape::Object(fields) => {
            for (name, field_value) in fields {
                let (inner, declared) = field(schema, name);
                path.push(Element::Field(name.clone()));
                collect(inner, field_value, path, set);
                let empty = field_value.as_object().is_some_and(Map::is_empty);
                if empty || !declared {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Shape::List(list) => {
            for item in list {
                let Some(element) = identity(schema, item) else { continue };
                path.push(element);
                collect(items(schema), item, path, set);
                set.insert(path);
                path.pop();
            }
        }
    }
}

/// Follows a set along the schema, for [`FieldSet::with_containers`].
pub(super) fn step<'a>(schema: Option<&'a Node>, element: &Element) -> (Option<&'a Node>, bool) {
    match element {
        Element::Field(name) => field(schema, name),
        Element::Key(_) | Element::Value(_) | Element::Index(_) => (items(schema), false),
    }
}
