//! Limits on the lists and maps of an object's metadata.
//!
//! The write path checks them before it computes anything from a client's input, so that no later step must handle a list of
//! arbitrary length. An object that was stored with more (by a version with other limits) stays writable as long as the list
//! does not grow.

use serde_json::Value;

use crate::cause::Cause;

/// The fields of `metadata` with the maximum number of items of each. Kubernetes limits only the size of the object. Real objects
/// have a few of each; selectors and the garbage collector walk them for every object.
const ITEMS_MAX: [(&str, usize); 5] =
    [("finalizers", 64), ("ownerReferences", 64), ("labels", 128), ("annotations", 256), ("managedFields", 64)];

/// Returns a cause for each list or map of the metadata that has too many items.
pub fn check(old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let too_many = |(name, maximum): &(&str, usize)| {
        let found = count(&new["metadata"][*name]);
        let kept = old.map_or(0, |old| count(&old["metadata"][*name]));
        (found > *maximum.max(&kept)).then(|| Cause::too_many(format!("metadata.{name}"), found, *maximum as u64))
    };
    ITEMS_MAX.iter().filter_map(too_many).collect()
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_list_and_map_is_bounded_and_may_shrink() {
        for (name, maximum) in ITEMS_MAX {
            let of = |items: usize| match name {
                "labels" | "annotations" => {
                    let members: serde_json::Map<_, _> = (0..items).map(|i| (format!("k{i}"), json!("v"))).collect();
                    json!({"metadata": {name: members}})
                }
                _ => json!({"metadata": {name: vec![json!("a/b"); items]}}),
            };
            let fields = |old: Option<&Value>, new: &Value| -> Vec<String> {
                check(old, new).into_iter().map(|cause| cause.field).collect()
            };
            let path = format!("metadata.{name}");
            assert!(fields(None, &of(maximum)).is_empty(), "{name}");
            assert_eq!(fields(None, &of(maximum + 1)), [path.as_str()]);
            assert!(fields(Some(&of(maximum + 5)), &of(maximum + 4)).is_empty(), "{name}: it shrinks");
            assert_eq!(fields(Some(&of(maximum + 5)), &of(maximum + 6)), [path.as_str()]);
        }
    }
}
