//! Computes the changes between two versions of an object, as sets of fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::field_set::{Element, FieldSet};
use super::structure::{Shape, field, identity, items, shape};
use crate::schema::Node;

/// The changes. The sets include added and removed containers themselves as well as their contents.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

/// Compares two versions of an object, except `metadata.managedFields`. It walks both in parallel and allocates nothing for equal
/// parts.
pub(super) fn compare(schema: &Node, old: &Value, new: &Value) -> Changes {
    walk(Some(schema), Some(old), Some(new), PathState::Root).below
}

/// The part of a walk's position that affects the result.
#[derive(Clone, Copy, PartialEq)]
enum PathState {
    Root,
    Metadata,
    Inside,
}

/// The changes of one field itself and below it.
#[derive(Default)]
struct Found {
    itself: Option<What>,
    below: Changes,
}

#[derive(Clone, Copy)]
enum What {
    Added,
    Modified,
    Removed,
}

impl From<What> for Found {
    fn from(what: What) -> Self {
        Found { itself: Some(what), below: Changes::default() }
    }
}

impl Changes {
    /// Adds the changes at an element, if there are any.
    fn put(&mut self, element: impl Fn() -> Element, Found { itself, below }: Found) {
        self.added.put(&element, matches!(itself, Some(What::Added)), below.added);
        self.modified.put(&element, matches!(itself, Some(What::Modified)), below.modified);
        self.removed.put(&element, matches!(itself, Some(What::Removed)), below.removed);
    }
}

fn walk(schema: Option<&Node>, old: Option<&Value>, new: Option<&Value>, place: PathState) -> Found {
    match (old.map(|value| shape(schema, value)), new.map(|value| shape(schema, value))) {
        (None, None) => Found::default(),
        (Some(Shape::Object(_)) | None, Some(Shape::Object(_))) | (Some(Shape::Object(_)), None) => {
            Found { itself: came_or_went(old, new), below: fields(schema, old, new, place) }
        }
        (Some(Shape::List(_)) | None, Some(Shape::List(_))) | (Some(Shape::List(_)), None) => {
            Found { itself: came_or_went(old, new), below: listed(schema, old, new) }
        }
        (None, Some(Shape::Leaf)) => What::Added.into(),
        (Some(Shape::Leaf), None) => What::Removed.into(),
        (Some(_), Some(_)) if old == new => Found::default(),
        (Some(_), Some(_)) => What::Modified.into(),
    }
}

fn came_or_went(old: Option<&Value>, new: Option<&Value>) -> Option<What> {
    match (old, new) {
        (None, Some(_)) => Some(What::Added),
        (Some(_), None) => Some(What::Removed),
        _ => None,
    }
}

fn fields(schema: Option<&Node>, old: Option<&Value>, new: Option<&Value>, place: PathState) -> Changes {
    let mut changes = Changes::default();
    // Most writes change a few fields of one part; the comparison of all other parts needs no schema.
    if place == PathState::Inside && old == new {
        return changes;
    }
    let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
    let mut visit = |name: &String, old: Option<&Value>, new: Option<&Value>| {
        if place == PathState::Metadata && name == "managedFields" {
            return;
        }
        let inner =
            if place == PathState::Root && name == "metadata" { PathState::Metadata } else { PathState::Inside };
        changes.put(|| Element::Field(name.clone()), walk(field(schema, name).0, old, new, inner));
    };
    for (name, value) in old.into_iter().flatten() {
        visit(name, Some(value), new.and_then(|new| new.get(name)));
    }
    for (name, value) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name)) {
            visit(name, None, Some(value));
        }
    }
    changes
}

fn listed(schema: Option<&Node>, old: Option<&Value>, new: Option<&Value>) -> Changes {
    let mut changes = Changes::default();
    // Most lists are unchanged, and keys of list items are expensive to compute.
    if old == new {
        return changes;
    }
    let mut pairs: BTreeMap<Element, (Option<&Value>, Option<&Value>)> = BTreeMap::new();
    for item in old.and_then(Value::as_array).into_iter().flatten() {
        if let Some(element) = identity(schema, item) {
            pairs.entry(element).or_default().0 = Some(item);
        }
    }
    for item in new.and_then(Value::as_array).into_iter().flatten() {
        if let Some(element) = identity(schema, item) {
            pairs.entry(element).or_default().1 = Some(item);
        }
    }
    for (element, (old, new)) in &pairs {
        changes.put(|| element.clone(), walk(items(schema), *old, *new, PathState::Inside));
    }
    changes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::vectors::{any_value, kind};
    use super::*;

    /// Lists every field of a value by its path, with its value if it is a leaf.
    fn flat(
        schema: Option<&Node>,
        value: &Value,
        path: &[Element],
        found: &mut BTreeMap<Vec<Element>, (u8, Option<Value>)>,
    ) {
        let below = |element: Element| [path, &[element]].concat();
        let itself = match shape(schema, value) {
            Shape::Leaf => (0, Some(value.clone())),
            Shape::Object(fields) => {
                for (name, value) in fields {
                    flat(field(schema, name).0, value, &below(Element::Field(name.clone())), found);
                }
                (1, None)
            }
            Shape::List(list) => {
                let last: BTreeMap<_, _> =
                    list.iter().filter_map(|item| Some((identity(schema, item)?, item))).collect();
                for (element, item) in last {
                    flat(items(schema), item, &below(element), found);
                }
                (2, None)
            }
        };
        found.insert(path.to_vec(), itself);
    }

    /// Returns the same by way of all paths of both versions.
    fn by_paths(schema: &Node, old: &Value, new: &Value) -> Changes {
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        flat(Some(schema), old, &[], &mut before);
        flat(Some(schema), new, &[], &mut after);
        let mut changes = Changes::default();
        let other_shape = |path: &[Element]| {
            (0..path.len()).any(
                |end| matches!((before.get(&path[..end]), after.get(&path[..end])), (Some(a), Some(b)) if a.0 != b.0),
            )
        };
        for path in before.keys().chain(after.keys()).filter(|path| !other_shape(path)) {
            match (before.get(path), after.get(path)) {
                (Some(a), Some(b)) if a == b => {}
                (Some(_), Some(_)) => changes.modified.insert(path),
                (None, _) => changes.added.insert(path),
                (_, None) => changes.removed.insert(path),
            }
        }
        changes
    }

    proptest! {
        #[test]
        fn both_are_walked_at_one_time(old in any_value(), new in any_value(), same in any_value()) {
            let kind = kind();
            for (old, new) in [(&old, &new), (&old, &json!({})), (&json!({}), &new), (&old, &old)] {
                let of = |spec: &Value| json!({"spec": {"extra": {"same": same}, "to": [{"name": "a", "weight": spec}]}, "metadata": {"labels": spec}});
                for (old, new) in [(json!({"spec": old}), json!({"spec": new})), (of(old), of(new))] {
                    let found = compare(&kind.schema, &old, &new);
                    prop_assert_eq!(found, by_paths(&kind.schema, &old, &new), "{} {}", old, new);
                }
            }
        }
    }

    #[test]
    fn the_books_themselves_are_no_fields() {
        let with = |sets: Value| json!({"metadata": {"name": "n", "managedFields": sets}, "managedFields": sets});
        let changes = compare(&kind().schema, &with(json!(1)), &with(json!(2)));
        assert_eq!(changes.modified.paths(), [".managedFields"]);
        assert!(changes.added.is_empty() && changes.removed.is_empty());
    }
}
