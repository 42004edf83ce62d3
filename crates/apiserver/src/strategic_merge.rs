//! Strategic merge patch, the form in which `kubectl` edits and applies built-in kinds.
//!
//! It is a merge patch (RFC 7396) with two differences. A few lists are not replaced but merged: as sets, or item by item if the
//! items have a key (`LISTS`). And a patch can contain directives next to the fields:
//!
//! | directive | where | means |
//! |---|---|---|
//! | `$patch: delete` | in an object | the object is emptied; an item of a keyed list goes |
//! | `$patch: replace` | in an object, or as an item of a list | the other contents of the patch replace the existing ones |
//! | `$retainKeys: [a, b]` | in an object | all other fields of it go |
//! | `$deleteFromPrimitiveList/f: [x]` | next to the list `f` | these values go |
//! | `$setElementOrder/f: [x, y]` | next to the list `f` | the order of the merged list |
//!
//! Items that the order does not name, which others have added meanwhile, stay where they were among those it names.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use super::error::ApiError;
use super::schema::structural;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// The way in which a list is patched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    /// The patch replaces the list.
    Atomic,
    /// The values are added to the list.
    Set,
    /// Items are merged with existing items with the same value of this field.
    Keyed(&'static str),
}

/// The lists of the built-in kinds served here that Kubernetes merges; all others are replaced. There is one table for all kinds:
/// the path does not exist in kinds without such a list.
const LISTS: &[(&[&str], List)] = &[
    (&["metadata", "finalizers"], List::Set),
    (&["metadata", "ownerReferences"], List::Keyed("uid")),
    (&["spec", "ports"], List::Keyed("port")),
    (&["status", "conditions"], List::Keyed("type")),
];

/// Adds to the schema of a built-in kind the lists that are merged, and their key fields: `kubectl apply` computes its patches
/// from these.
pub fn describe_lists(schema: &mut Value) {
    for (path, list) in LISTS {
        let Some(place) = structural::at(schema, &path.join(".")) else { continue };
        place["x-kubernetes-patch-strategy"] = "merge".into();
        if let List::Keyed(key) = list {
            place["x-kubernetes-patch-merge-key"] = (*key).into();
        }
    }
}

/// Applies a strategic merge patch. An invalid directive, or an item without its list's key, is 400; then `target` is partially
/// patched.
pub fn strategic_merge(target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let patch = patch.as_object().ok_or_else(|| ApiError::bad_request("a strategic merge patch must be an object"))?;
    merge_object(object_of(target), patch, &mut Vec::new())
}

fn merge_object<'p>(
    target: &mut Map<String, Value>,
    patch: &'p Map<String, Value>,
    path: &mut Vec<&'p str>,
) -> Result<(), ApiError> {
    match directive(patch)? {
        Some(Directive::Delete) => {
            target.clear();
            return Ok(());
        }
        Some(Directive::Replace) => {
            *target = patch.clone();
            target.remove(PATCH);
            return Ok(());
        }
        None => {}
    }
    if let Some(keys) = patch.get(RETAIN_KEYS) {
        retain(target, patch, items_of(keys, RETAIN_KEYS)?)?;
    }
    for (name, value) in patch {
        if is_directive(name) {
            continue;
        }
        path.push(name);
        match value {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(patch) => {
                let inner = target.entry(name.as_str()).or_insert(Value::Null);
                merge_object(object_of(inner), patch, path)?;
            }
            // Handled below, with its directives.
            Value::Array(_) => {}
            scalar => {
                target.insert(name.clone(), scalar.clone());
            }
        }
        path.pop();
    }
    for name in lists_of(patch) {
        path.push(name);
        merge_list(target, patch, name, path)?;
        path.pop();
    }
    Ok(())
}

fn merge_list(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    name: &str,
    path: &[&str],
) -> Result<(), ApiError> {
    let reported = match patch.get(name) {
        Some(Value::Array(items)) => Some(items.as_slice()),
        // The list was removed, or is not a list any longer.
        Some(_) => return Ok(()),
        None => None,
    };
    let part = |prefix: &str| {
        let directive = format!("{prefix}{name}");
        patch.get(&directive).map(|value| items_of(value, &directive)).transpose()
    };
    let (gone, order) = (part(DELETE_FROM)?.unwrap_or_default(), part(SET_ORDER)?);
    let gone: HashSet<&Value> = gone.iter().collect();
    let before = target.get(name).and_then(Value::as_array).cloned();
    let list = LISTS.iter().find(|(place, _)| *place == path).map_or(List::Atomic, |(_, list)| *list);
    let mut merged = before.clone().unwrap_or_default();
    match list {
        List::Atomic => {
            merged = reported.map_or(merged, <[Value]>::to_vec);
            merged.retain(|item| !gone.contains(item));
        }
        List::Set => {
            merged.retain(|item| !gone.contains(item));
            let mut there: HashSet<Value> = merged.iter().cloned().collect();
            let new = reported.unwrap_or_default().iter().filter(|item| there.insert((*item).clone()));
            merged.extend(new.cloned());
        }
        List::Keyed(_) if !gone.is_empty() => {
            return Err(fault(path, "its items are objects; to delete one, use an item with $patch: delete"));
        }
        List::Keyed(key) => merge_items(&mut merged, reported.unwrap_or_default(), key, path)?,
    }
    let id = |item: &Value| match list {
        List::Keyed(key) => item[key].clone(),
        _ => item.clone(),
    };
    if list != List::Atomic {
        let ids = |items: &[Value]| items.iter().map(id).collect::<Vec<_>>();
        let reported = reported.unwrap_or_default().iter().filter(|item| item.get(PATCH).is_none());
        let reported: Vec<Value> = reported.map(id).collect();
        let order = match order {
            Some(order) => {
                let order = ids(order);
                let named: HashSet<&Value> = order.iter().collect();
                if let Some(missing) = reported.iter().find(|id| !named.contains(id)) {
                    return Err(fault(path, &format!("{missing} is missing in {SET_ORDER}{name}")));
                }
                order
            }
            None => reported,
        };
        merged = in_order(merged, &ids(before.as_deref().unwrap_or_default()), &order, id);
    }
    if before.is_some() || reported.is_some() {
        target.insert(name.to_owned(), Value::Array(merged));
    }
    Ok(())
}

/// Merges the items of a keyed list.
fn merge_items<'p>(
    merged: &mut Vec<Value>,
    reported: &'p [Value],
    key: &'static str,
    path: &[&'p str],
) -> Result<(), ApiError> {
    let mut patches = Vec::with_capacity(reported.len());
    for item in reported {
        let Value::Object(item) = item else { return Err(fault(path, "its items must be objects")) };
        patches.push((item, directive(item)?));
    }
    if patches.iter().any(|(_, directive)| *directive == Some(Directive::Replace)) {
        let others = patches.into_iter().filter(|(_, directive)| directive.is_none());
        *merged = others.map(|(item, _)| Value::Object(item.clone())).collect();
        return Ok(());
    }
    // Deleted items leave a hole until the end, so that the indexes of the others do not change.
    let mut slots: Vec<Option<Value>> = merged.drain(..).map(Some).collect();
    let mut places: HashMap<Value, Vec<usize>> = HashMap::new();
    for (place, item) in slots.iter().enumerate() {
        places.entry(item.as_ref().map_or(Value::Null, |item| item[key].clone())).or_default().push(place);
    }
    for (item, directive) in patches {
        let id = item.get(key).ok_or_else(|| fault(path, &format!("each item must have the field {key:?}")))?;
        if directive == Some(Directive::Delete) {
            for place in places.remove(id).into_iter().flatten() {
                slots[place] = None;
            }
            continue;
        }
        let found = places.entry(id.clone()).or_insert_with(|| {
            slots.push(Some(Value::Null));
            vec![slots.len() - 1]
        });
        let target = slots[found[0]].get_or_insert(Value::Null);
        merge_object(object_of(target), item, &mut path.to_vec())?;
    }
    merged.extend(slots.into_iter().flatten());
    Ok(())
}

/// Returns the items in this order. Items that are not in it keep their relative order, and follow the same item of the order as
/// in `before`.
fn in_order(items: Vec<Value>, before: &[Value], order: &[Value], id: impl Fn(&Value) -> Value) -> Vec<Value> {
    let (before, order) = (first_places(before), first_places(order));
    let place = |places: &HashMap<&Value, usize>, item: &Value| places.get(&id(item)).copied();
    let (mut named, mut others): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| order.contains_key(&id(item)));
    named.sort_by_cached_key(|item| place(&order, item));
    others.reverse();
    named.reverse();
    let mut ordered = Vec::with_capacity(named.len() + others.len());
    while let (Some(one), Some(other)) = (named.last(), others.last()) {
        let stood_in_front = match (place(&before, one), place(&before, other)) {
            (Some(one), Some(other)) => one < other,
            // New items come last.
            _ => false,
        };
        ordered.extend(if stood_in_front { named.pop() } else { others.pop() });
    }
    ordered.extend(named.into_iter().rev());
    ordered.extend(others.into_iter().rev());
    ordered
}

/// Returns the first index of each value.
fn first_places(values: &[Value]) -> HashMap<&Value, usize> {
    let mut places = HashMap::with_capacity(values.len());
    for (place, value) in values.iter().enumerate() {
        places.entry(value).or_insert(place);
    }
    places
}

/// Keeps the fields in `$retainKeys`, which must include all fields that the patch sets.
fn retain(target: &mut Map<String, Value>, patch: &Map<String, Value>, keys: &[Value]) -> Result<(), ApiError> {
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let kept = |name: &str| keys.contains(name);
    let set = patch.iter().filter(|(name, value)| !is_directive(name) && !value.is_null());
    if let Some((name, _)) = set.into_iter().find(|(name, _)| !kept(name)) {
        return Err(ApiError::bad_request(format!("{RETAIN_KEYS} does not contain {name:?}, which the patch sets")));
    }
    target.retain(|name, _| kept(name));
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    Delete,
    Replace,
}

fn directive(patch: &Map<String, Value>) -> Result<Option<Directive>, ApiError> {
    match patch.get(PATCH).map(|value| value.as_str().unwrap_or_default()) {
        None | Some("merge") => Ok(None),
        Some("delete") => Ok(Some(Directive::Delete)),
        Some("replace") => Ok(Some(Directive::Replace)),
        Some(_) => Err(ApiError::bad_request(format!("{PATCH} must be \"delete\", \"merge\" or \"replace\""))),
    }
}

fn is_directive(name: &str) -> bool {
    name == PATCH || name == RETAIN_KEYS || name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER)
}

/// Returns the fields of an object that a patch has a list for, or a directive about one.
fn lists_of(patch: &Map<String, Value>) -> BTreeSet<&str> {
    let list = |(name, value): (&'_ String, &Value)| -> Option<usize> {
        let prefixes = [DELETE_FROM, SET_ORDER];
        let prefix = prefixes.iter().find(|prefix| name.starts_with(**prefix)).map(|prefix| prefix.len());
        prefix.or_else(|| (value.is_array() && !is_directive(name)).then_some(0))
    };
    patch.iter().filter_map(|(name, value)| list((name, value)).map(|start| &name[start..])).collect()
}

fn items_of<'p>(value: &'p Value, directive: &str) -> Result<&'p [Value], ApiError> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| ApiError::bad_request(format!("{directive} must be a list")))
}

/// Returns the object that a value is, or that it becomes.
fn object_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was just made one")
}

fn fault(path: &[&str], what: &str) -> ApiError {
    ApiError::bad_request(format!("the strategic merge patch of {} cannot be applied: {what}", path.join(".")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_have_their_results() {
        let (cases, _) = crate::schema::parse_yaml(include_bytes!("strategic_merge.yaml")).expect("it is YAML");
        let lists = cases.as_object().expect("lists by part").iter();
        for (part, case) in
            lists.flat_map(|(part, list)| list.as_array().expect("a list").iter().map(move |case| (part, case)))
        {
            let mut found = json!({ part: case["target"] });
            match (strategic_merge(&mut found, &json!({ part: case["patch"] })), case["error"].as_str()) {
                (Ok(()), None) => assert_eq!(found[part], case["result"], "{case}"),
                (Err(error), Some(expected)) => {
                    assert_eq!(error.code, 400, "{case}");
                    assert!(error.message.contains(expected), "{case}: {}", error.message);
                }
                (found, _) => panic!("{case}: {found:?}"),
            }
        }
    }

    #[test]
    fn long_lists_take_little_time() {
        let many: Vec<String> = (0..30_000).map(|i| format!("a/x{i}")).collect();
        let reversed: Vec<&String> = many.iter().rev().collect();
        let owners = |names: &[&String]| -> Vec<Value> { names.iter().map(|uid| json!({"uid": uid})).collect() };
        let mut target =
            json!({"metadata": {"finalizers": many, "ownerReferences": owners(&many.iter().collect::<Vec<_>>())}});
        let patch = json!({"metadata": {
            "finalizers": reversed, "$setElementOrder/finalizers": reversed, "ownerReferences": owners(&reversed)}});
        let began = std::time::Instant::now();
        strategic_merge(&mut target, &patch).expect("a good patch");
        // A pairwise comparison would take minutes.
        assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
        assert_eq!(target["metadata"]["finalizers"], json!(reversed));
        assert_eq!(target["metadata"]["ownerReferences"], json!(owners(&reversed)));
    }

    fn patches() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            "(delete|replace|merge|a|b)".prop_map(Value::from),
            (0..3).prop_map(Value::from),
        ];
        let name = "(\\$patch|\\$retainKeys|(\\$setElementOrder/|\\$deleteFromPrimitiveList/|)(metadata|finalizers|ownerReferences|uid|a))";
        leaf.prop_recursive(5, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(name, inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_patch_panics_and_none_adds_to_finalizers_twice(patch in patches()) {
            let mut target = json!({"metadata": {"finalizers": ["a", "c"], "ownerReferences": [{"uid": "a"}]}});
            if strategic_merge(&mut target, &json!({"metadata": {"finalizers": [patch.clone()]}, "a": patch})).is_ok() {
                let finalizers = target["metadata"]["finalizers"].as_array().expect("a list");
                prop_assert!(finalizers.len() <= 3 && finalizers.contains(&json!("a")) && finalizers.contains(&json!("c")));
            }
        }
    }
}
