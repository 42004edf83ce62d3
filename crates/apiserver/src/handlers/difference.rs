//! The difference between the stored and the wanted object.

use serde_json::Value;

use crate::kind::Kind;

/// Returns `old` with one member, and the field sets, of `wanted`.
pub(super) fn with_member(old: &Value, mut wanted: Value, member: &str) -> Value {
    let field_sets = |object: &Value| object["metadata"].get("managedFields").is_some();
    // Usually, nothing else was changed, and `wanted` has this value already.
    if !wanted[member].is_null()
        && (field_sets(&wanted) || !field_sets(old))
        && same_but(old, &wanted, &["metadata", member])
        && same_but(&old["metadata"], &wanted["metadata"], &["managedFields"])
    {
        return wanted;
    }
    let mut new = old.clone();
    match wanted.get_mut(member).map(Value::take) {
        Some(value) if !value.is_null() => new[member] = value,
        _ => {
            new.as_object_mut().map(|object| object.remove(member));
        }
    }
    if let Some(managed) = wanted.pointer_mut("/metadata/managedFields") {
        new["metadata"]["managedFields"] = managed.take();
    }
    new
}

/// Returns whether anything but metadata and status differs.
pub(super) fn content_differs(kind: &Kind, old: &Value, new: &Value) -> bool {
    !same_but(old, new, if kind.has_status { &["metadata", "status"] } else { &["metadata"] })
}

/// Returns whether two objects are equal except for the times of their field sets and their `resourceVersion`.
pub(super) fn same(old: &Value, new: &Value) -> bool {
    let (meta, new_meta) = (&old["metadata"], &new["metadata"]);
    let field_sets = match (&meta["managedFields"], &new_meta["managedFields"]) {
        (Value::Array(entries), Value::Array(new_entries)) => {
            let mut pairs = entries.iter().zip(new_entries);
            entries.len() == new_entries.len() && pairs.all(|(entry, new)| same_but(entry, new, &["time"]))
        }
        (entries, new_entries) => entries == new_entries,
    };
    field_sets && same_but(old, new, &["metadata"]) && same_but(meta, new_meta, &["resourceVersion", "managedFields"])
}

/// Returns whether two values are equal except for these members.
fn same_but(one: &Value, other: &Value, but: &[&str]) -> bool {
    let (Some(members), Some(others)) = (one.as_object(), other.as_object()) else { return one == other };
    let counts = |(name, _): &(&String, &Value)| !but.contains(&name.as_str());
    members.iter().filter(counts).eq(others.iter().filter(counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_anyway_does_not_count() {
        let object = |version: &str, time: &str, fields: Value, status: &str| {
            json!({"kind": "K", "metadata": {"name": "n", "resourceVersion": version,
                "managedFields": [{"manager": "m", "time": time, "fieldsV1": fields}]}, "status": status})
        };
        let old = object("1", "then", json!({"f:a": {}}), "s");
        for (new, is_same) in [
            (object("2", "now", json!({"f:a": {}}), "s"), true),
            (object("1", "then", json!({"f:b": {}}), "s"), false),
            (object("1", "then", json!({"f:a": {}}), "t"), false),
            (json!({"kind": "K", "metadata": {"name": "n", "resourceVersion": "1"}, "status": "s"}), false),
            (json!({"kind": "K", "metadata": {"name": "n"}}), false),
        ] {
            assert_eq!(same(&old, &new), is_same, "{new}");
        }
    }

    #[test]
    fn a_subresource_takes_its_own_member_and_leaves_the_rest() {
        let old = json!({"metadata": {"name": "n", "managedFields": ["old"]}, "spec": {"a": 1}, "status": {"b": 1}});
        let with = |path: &str, value: Value| {
            let mut wanted = old.clone();
            *wanted.pointer_mut(path).expect("it is there") = value;
            wanted
        };
        let status = json!({"b": 2});
        let expected = with("/status", status.clone());
        assert_eq!(with_member(&old, expected.clone(), "status"), expected);
        for (path, value) in [("/spec/a", json!(2)), ("/metadata/name", json!("other"))] {
            let mut wanted = with(path, value);
            wanted["status"] = status.clone();
            assert_eq!(with_member(&old, wanted, "status"), expected, "{path}");
        }
        let mut without = old.clone();
        without.as_object_mut().expect("an object").remove("status");
        assert_eq!(with_member(&old, with("/status", Value::Null), "status"), without);
        let mut cleared = expected.clone();
        cleared["metadata"].as_object_mut().expect("an object").remove("managedFields");
        assert_eq!(with_member(&old, cleared, "status"), expected);
    }
}
