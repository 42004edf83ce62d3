//! JSON patch (RFC 6902) and merge patch (RFC 7396).

use json_patch::PatchOperation;
use json_patch::jsonptr::Pointer;
use serde_json::Value;

use super::error::ApiError;
use super::limits::Limit;

/// The maximum number of operations of one patch, as in Kubernetes: each may move the whole document.
const OPERATIONS_MAX: usize = 10_000;
/// The maximum number of octets of JSON that the `copy` and `move` operations of one patch may handle together. Copying a list into itself
/// doubles it, so without a bound thirty operations fill any memory.
const COPIED_OCTETS_MAX: usize = 3 * 1024 * 1024;
/// The maximum number of list items that the operations of one patch can shift: each `add` or `remove` at the front of a list
/// moves all others. 10 million take some 50 ms.
const SHIFTED_ITEMS_MAX: usize = 10_000_000;
/// The maximum depth of a patch's result. The reader limits the depth of each body, but a patch can stack one on another, and
/// every walk over a value is recursive.
const LEVELS_MAX: usize = 128;

/// Applies a JSON patch. A body that is not a list of operations is 400. A failed `test` or a missing path is 422 and leaves
/// `target` unchanged. A patch that copies too much is 413.
pub fn json_patch(target: &mut Value, body: &[u8]) -> Result<(), ApiError> {
    let operations: Vec<PatchOperation> = serde_json::from_slice(body).map_err(|error| {
        ApiError::bad_request(format!("the body is not a JSON patch (a list of operations): {error}"))
    })?;
    if operations.len() > OPERATIONS_MAX {
        let found = operations.len();
        let message = format!("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {found}");
        return Err(ApiError::too_large(message).limited(Limit::PATCH));
    }
    let mut patched = target.clone();
    let (mut copied_octets, mut shifted_items) = (0, 0);
    for (index, operation) in operations.iter().enumerate() {
        let source = match operation {
            PatchOperation::Add(add) => Some(&add.value),
            PatchOperation::Replace(replace) => Some(&replace.value),
            PatchOperation::Copy(copy) => copy.from.resolve(&patched).ok(),
            PatchOperation::Move(motion) => motion.from.resolve(&patched).ok(),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
        };
        shifted_items += items_behind(&patched, operation.path());
        if let PatchOperation::Move(motion) = operation {
            shifted_items += items_behind(&patched, &motion.from);
        }
        if shifted_items > SHIFTED_ITEMS_MAX {
            let message = format!("the patch shifts more than {SHIFTED_ITEMS_MAX} list items");
            return Err(ApiError::too_large(message).limited(Limit::PATCH));
        }
        if let Some(source) = source {
            if matches!(operation, PatchOperation::Copy(_) | PatchOperation::Move(_)) {
                copied_octets += source.to_string().len();
                if copied_octets > COPIED_OCTETS_MAX {
                    let message = format!("the patch copies more than {COPIED_OCTETS_MAX} bytes");
                    return Err(ApiError::too_large(message).limited(Limit::PATCH));
                }
            }
            if levels(source) + operation.path().count() > LEVELS_MAX {
                return Err(unprocessable(format!("the patch nests deeper than {LEVELS_MAX} levels")));
            }
        }
        // In Kubernetes' interpretation, an absent field is null: clients test that there is no finalizer yet.
        if let PatchOperation::Test(test) = operation
            && test.value.is_null()
            && test.path.resolve(&patched).is_err()
        {
            continue;
        }
        json_patch::patch_unsafe(&mut patched, std::slice::from_ref(operation)).map_err(|error| {
            unprocessable(format!(
                "the server rejected our request due to an error in our request: operation {index} of the JSON patch, at \
                 \"{}\": {}",
                error.path, error.kind
            ))
        })?;
    }
    *target = patched;
    Ok(())
}

/// Applies a merge patch: `null` removes, objects merge, all else replaces.
pub fn merge_patch(target: &mut Value, patch: &Value) {
    json_patch::merge(target, patch);
}

/// Returns the number of items after the item at `path`, if it is in a list.
fn items_behind(tree: &Value, path: &Pointer) -> usize {
    let Some((parent, last)) = path.split_back() else { return 0 };
    let items = parent.resolve(tree).ok().and_then(Value::as_array).map_or(0, Vec::len);
    // `-` is behind the last item.
    last.decoded().parse().map_or(0, |index: usize| items.saturating_sub(index))
}

/// Returns the depth of a value; a scalar has 0.
fn levels(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns 422 without an object: Kubernetes gives no details here.
fn unprocessable(message: String) -> ApiError {
    ApiError::new(422, "Invalid", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_patch_cannot_shift_a_long_list_without_end() {
        let mut operations = vec![json!({"op": "add", "path": "/l", "value": vec![1; 100_000]})];
        operations.extend(vec![json!({"op": "remove", "path": "/l/0"}); 1_000]);
        let body = json!(operations).to_string();
        let mut target = json!({"a": 1});
        let error = json_patch(&mut target, body.as_bytes()).expect_err("too much work");
        assert_eq!((error.code, &target), (413, &json!({"a": 1})), "{}", error.message);
        // Appending is cheap, as are many changes of a short list.
        let mut operations = vec![json!({"op": "add", "path": "/l", "value": []})];
        operations.extend(vec![json!({"op": "add", "path": "/l/-", "value": 1}); 4_000]);
        operations.extend(vec![json!({"op": "remove", "path": "/l/0"}); 1_000]);
        json_patch(&mut target, json!(operations).to_string().as_bytes()).expect("little work");
        assert_eq!(target["l"].as_array().map(Vec::len), Some(3_000));
    }

    #[test]
    fn json_patches_apply_or_leave_all_as_it_was() {
        for (patch, code) in [
            (r#"[{"op":"replace","path":"/a","value":2}]"#, None),
            (r#"[]"#, None),
            (r#"[{"op":"test","path":"/a","value":1},{"op":"remove","path":"/b"}]"#, None),
            (r#"[{"op":"add","path":"/b/-","value":3}]"#, None),
            (r#"[{"op":"test","path":"/none/deep","value":null}]"#, None),
            (r#"[{"op":"test","path":"/a","value":null}]"#, Some(422)),
            (r#"[{"op":"replace","path":"/a","value":2},{"op":"test","path":"/a","value":1}]"#, Some(422)),
            (r#"[{"op":"remove","path":"/none"}]"#, Some(422)),
            (r#"[{"op":"add","path":"/b/9","value":3}]"#, Some(422)),
            (r#"[{"op":"move","from":"/b","path":"/b/0"}]"#, Some(422)),
            (r#"{"a":1}"#, Some(400)),
            (r#"[{"op":"explode","path":"/a"}]"#, Some(400)),
            (r#"[{"op":"replace","path":"a","value":2}]"#, Some(400)),
            ("", Some(400)),
        ] {
            let before = json!({"a": 1, "b": [1, 2]});
            let mut target = before.clone();
            let found = json_patch(&mut target, patch.as_bytes());
            assert_eq!(found.as_ref().err().map(|error| error.code), code, "{patch} {found:?}");
            if code.is_some() {
                assert_eq!(target, before, "{patch}");
            }
        }
    }

    #[test]
    fn a_patch_cannot_double_for_ever() {
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": ["0123456789"]})];
        operations.extend(std::iter::repeat_n(json!({"op": "copy", "from": "/a", "path": "/a/-"}), 60));
        let body = serde_json::to_vec(&operations).unwrap();
        let mut target = json!({});
        assert_eq!(json_patch(&mut target, &body).unwrap_err().code, 413);
        assert_eq!(target, json!({}));
    }

    #[test]
    fn a_patch_cannot_nest_for_ever() {
        let nested = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": nested})];
        for _ in 0..50 {
            operations.push(json!({"op": "add", "path": "/b", "value": nested}));
            operations.push(json!({"op": "move", "from": "/a", "path": format!("/b{}", "/a".repeat(100))}));
            operations.push(json!({"op": "move", "from": "/b", "path": "/a"}));
        }
        let body = serde_json::to_vec(&operations).unwrap();
        assert_eq!(json_patch(&mut json!({}), &body).unwrap_err().code, 422);
    }

    #[test]
    fn merge_patches_follow_the_examples_of_the_rfc() {
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut found = target.clone();
            merge_patch(&mut found, &patch);
            assert_eq!(found, result, "{target} {patch}");
        }
    }

    proptest! {
        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut target = json!({"a": {"b": [1, 2]}});
            let _ = json_patch(&mut target, &body);
        }

        #[test]
        fn no_operation_panics(
            op in "(add|remove|replace|move|copy|test)",
            from in "(/[ab01~/-]{0,3}){0,3}",
            path in "(/[ab01~/-]{0,3}){0,3}",
        ) {
            let body = json!([{"op": op, "from": from, "path": path, "value": {"c": [3]}}]).to_string();
            let mut target = json!({"a": {"b": [1, [2]]}, "": {"0": 1}});
            let _ = json_patch(&mut target, body.as_bytes());
        }
    }
}
