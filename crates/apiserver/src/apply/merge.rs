//! Merges an applied configuration into an object, and removes fields from it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::{Element, FieldSet};
use super::structure::{Shape, field, identity, items, shape};
use crate::schema::Node;

/// Merges `config` into `live`: objects and lists with identities merge, and all other values are replaced.
pub(super) fn merge(schema: Option<&Node>, live: &Value, config: &Value) -> Value {
    match (shape(schema, live), shape(schema, config)) {
        (Shape::Object(ours), Shape::Object(theirs)) => {
            let mut merged = ours.clone();
            for (name, value) in theirs {
                let value = match ours.get(name) {
                    Some(ours) => merge(field(schema, name).0, ours, value),
                    None => value.clone(),
                };
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Shape::List(ours), Shape::List(theirs)) => Value::Array(merge_lists(schema, ours, theirs)),
        _ => config.clone(),
    }
}

/// Merges the items of both lists. Those of `config` keep their relative order, so that the result has the applied order; items
/// that only `live` has stay between the same neighbors where possible.
fn merge_lists(schema: Option<&Node>, live: &[Value], config: &[Value]) -> Vec<Value> {
    // Items without an identity lack a key field. They are kept unchanged, and validation reports them.
    let elements =
        |list: &[Value]| -> Vec<Option<Element>> { list.iter().map(|item| identity(schema, item)).collect() };
    let (live_elements, config_elements) = (elements(live), elements(config));
    let of_live: BTreeMap<&Element, &Value> =
        live_elements.iter().zip(live).filter_map(|(element, item)| Some((element.as_ref()?, item))).collect();
    let of_config: BTreeSet<&Element> = config_elements.iter().flatten().collect();
    let mut shared = config_elements.iter().flatten().filter(|element| of_live.contains_key(element));
    let mut next_shared = shared.next();

    let mut merged = Vec::with_capacity(live.len().max(config.len()));
    let mut done: BTreeSet<&Element> = BTreeSet::new();
    let (mut left, mut right) = (0, 0);
    while left < live.len() || right < config.len() {
        if left < live.len() {
            match &live_elements[left] {
                // The next item is in both: it is taken below, from the right side, in the same round.
                Some(element) if right < config.len() && config_elements[right].as_ref() == Some(element) => left += 1,
                // An item in both: skipped here, because it comes with the right side.
                Some(element) if of_config.contains(element) => {
                    let due = next_shared == Some(element);
                    if !due || right >= config.len() || done.contains(element) {
                        left += 1;
                        continue;
                    }
                    // It is next, but items that only the right side has come first.
                }
                // An item that only the left side has.
                _ => {
                    merged.push(live[left].clone());
                    left += 1;
                    continue;
                }
            }
        }
        if right < config.len() {
            let element = config_elements[right].as_ref();
            merged.push(match element.and_then(|element| of_live.get(element)) {
                Some(ours) => merge(items(schema), ours, &config[right]),
                None => config[right].clone(),
            });
            if let Some(element) = element {
                done.insert(element);
                if next_shared == Some(element) {
                    next_shared = shared.next();
                }
            }
            right += 1;
        }
    }
    merged
}

/// Returns `value` without the members of `set`. An object or a list that loses everything is replaced by `emptied`, if given.
pub(super) fn remove(schema: Option<&Node>, value: &Value, set: &FieldSet, emptied: Option<&Value>) -> Option<Value> {
    match shape(schema, value) {
        Shape::Leaf => Some(value.clone()),
        Shape::Object(fields) => {
            let mut kept = Map::new();
            for (name, field_value) in fields {
                let element = Element::Field(name.clone());
                if set.has(&element) {
                    continue;
                }
                let field_value = match set.below(&element) {
                    Some(below) => remove(field(schema, name).0, field_value, below, emptied),
                    None => Some(field_value.clone()),
                };
                if let Some(field_value) = field_value {
                    kept.insert(name.clone(), field_value);
                }
            }
            if kept.is_empty() && !fields.is_empty() { emptied.cloned() } else { Some(Value::Object(kept)) }
        }
        Shape::List(list) => {
            let mut kept = Vec::new();
            for item in list {
                match identity(schema, item) {
                    Some(element) if set.has(&element) => {}
                    Some(element) => match set.below(&element) {
                        Some(below) => kept.extend(remove(items(schema), item, below, emptied)),
                        None => kept.push(item.clone()),
                    },
                    None => kept.push(item.clone()),
                }
            }
            if kept.is_empty() && !list.is_empty() { emptied.cloned() } else { Some(Value::Array(kept)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn lists_with_identities_merge_in_order() {
        let schema = Node::of(&json!({"type": "array", "x-kubernetes-list-type": "set"}));
        for (live, config, merged) in [
            (json!([1, 2]), json!([2, 3]), json!([1, 2, 3])),
            (json!([1, 2, 3]), json!([3, 1]), json!([2, 3, 1])),
            (json!([1, 2]), json!([]), json!([1, 2])),
            (json!([]), json!([2, 1]), json!([2, 1])),
            (json!([1, 2, 3]), json!([1, 3, 4]), json!([1, 2, 3, 4])),
            (json!([1, 3]), json!([2, 1]), json!([2, 1, 3])),
        ] {
            assert_eq!(merge(Some(&schema), &live, &config), merged, "{live} {config}");
        }
    }

    proptest! {
        #[test]
        fn a_merged_list_holds_each_item_once_in_the_applied_order(
            live in proptest::collection::btree_set(0..20_i64, 0..10).prop_shuffle_vec(),
            config in proptest::collection::btree_set(0..20_i64, 0..10).prop_shuffle_vec(),
        ) {
            let schema = Node::of(&json!({"type": "array", "x-kubernetes-list-type": "set"}));
            let merged = merge(Some(&schema), &json!(live), &json!(config));
            let merged: Vec<i64> = merged.as_array().unwrap().iter().filter_map(Value::as_i64).collect();
            let all: BTreeSet<i64> = live.iter().chain(&config).copied().collect();
            prop_assert_eq!(merged.len(), all.len());
            prop_assert_eq!(merged.iter().copied().collect::<BTreeSet<_>>(), all);
            let applied: Vec<i64> = merged.iter().copied().filter(|item| config.contains(item)).collect();
            prop_assert_eq!(applied, config);
        }
    }

    /// A set as a list in random order.
    trait Shuffled: Strategy {
        fn prop_shuffle_vec(self) -> BoxedStrategy<Vec<i64>>;
    }

    impl<S: Strategy<Value = BTreeSet<i64>> + 'static> Shuffled for S {
        fn prop_shuffle_vec(self) -> BoxedStrategy<Vec<i64>> {
            self.prop_map(|set| set.into_iter().collect::<Vec<_>>()).prop_shuffle().boxed()
        }
    }

    #[test]
    fn what_loses_everything_goes() {
        let schema = Node::of(&json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "string"}}},
            "l": {"type": "array", "x-kubernetes-list-type": "set"}}}));
        let set = FieldSet::decode(&json!({"f:a": {"f:b": {}}, "f:l": {"v:1": {}}})).unwrap();
        for (value, kept) in [
            (json!({"a": {"b": "x", "c": "y"}, "l": [1, 2]}), Some(json!({"a": {"c": "y"}, "l": [2]}))),
            (json!({"a": {"b": "x"}, "l": [1]}), None),
            (json!({"a": {}, "l": []}), Some(json!({"a": {}, "l": []}))),
        ] {
            assert_eq!(remove(Some(&schema), &value, &set, None), kept, "{value}");
        }
    }
}
