//! What changed between two versions of an object, as sets of fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::field_set::{Element, FieldSet};
use super::structure::{Shape, field, identity, items, shape};

/// What changed. Containers that come or go are in the sets themselves, beside what is in them.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

/// Compares two versions of an object.
pub(super) fn compare(schema: &Value, old: &Value, new: &Value) -> Changes {
    let mut changes = Changes::default();
    walk(Some(schema), Some(old), Some(new), &mut Vec::new(), &mut changes);
    changes
}

fn walk(
    schema: Option<&Value>,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<Element>,
    changes: &mut Changes,
) {
    // Most of an object is unchanged as a rule.
    if old == new {
        return;
    }
    match (old.map(|value| shape(schema, value)), new.map(|value| shape(schema, value))) {
        (Some(Shape::Object(old)), Some(Shape::Object(new))) => {
            for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
                visit_field(schema, old.get(name), new.get(name), name, path, changes);
            }
        }
        (None, Some(Shape::Object(new))) => {
            changes.added.insert(path);
            for (name, value) in new {
                visit_field(schema, None, Some(value), name, path, changes);
            }
        }
        (Some(Shape::Object(old)), None) => {
            changes.removed.insert(path);
            for (name, value) in old {
                visit_field(schema, Some(value), None, name, path, changes);
            }
        }
        (Some(Shape::List(old)), Some(Shape::List(new))) => visit_items(schema, old, new, path, changes),
        (None, Some(Shape::List(new))) => {
            changes.added.insert(path);
            visit_items(schema, &[], new, path, changes);
        }
        (Some(Shape::List(old)), None) => {
            changes.removed.insert(path);
            visit_items(schema, old, &[], path, changes);
        }
        (None, Some(Shape::Leaf)) => changes.added.insert(path),
        (Some(Shape::Leaf), None) => changes.removed.insert(path),
        (Some(_), Some(_)) => changes.modified.insert(path),
        (None, None) => {}
    }
}

fn visit_field(
    schema: Option<&Value>,
    old: Option<&Value>,
    new: Option<&Value>,
    name: &str,
    path: &mut Vec<Element>,
    changes: &mut Changes,
) {
    path.push(Element::Field(name.to_owned()));
    walk(field(schema, name).0, old, new, path, changes);
    path.pop();
}

fn visit_items(schema: Option<&Value>, old: &[Value], new: &[Value], path: &mut Vec<Element>, changes: &mut Changes) {
    let mut pairs: BTreeMap<Element, (Option<&Value>, Option<&Value>)> = BTreeMap::new();
    for item in old {
        if let Some(element) = identity(schema, item) {
            pairs.entry(element).or_default().0 = Some(item);
        }
    }
    for item in new {
        if let Some(element) = identity(schema, item) {
            pairs.entry(element).or_default().1 = Some(item);
        }
    }
    for (element, (old, new)) in pairs {
        path.push(element);
        walk(items(schema), old, new, path, changes);
        path.pop();
    }
}
