//! The rules for the `metadata` of all kinds.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::Value;

use super::labels::{check_key, check_label, check_labels, check_subdomain};
use crate::cause::Cause;
use crate::kind::Kind;

/// The maximum number of octets that the keys and values of an object's annotations have together, as in Kubernetes.
const ANNOTATIONS_OCTETS_MAX: usize = 256 * 1024;
/// The maximum length of a text in an owner reference, in octets: a DNS subdomain is the longest possible name.
const OWNER_TEXT_OCTETS_MAX: usize = 253;
/// The maximum length of the base of a generated name in octets: the length of a name.
const GENERATE_NAME_OCTETS_MAX: usize = 253;

/// Returns a time as metadata hold it: whole seconds, `Z`.
pub(crate) fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// Returns the faults of an object's metadata beyond its schema: name and namespace, keys and values of labels, keys and size of
/// annotations, finalizers, owner references. With `old`, also of its change: name, namespace, uid are immutable, and no
/// finalizer can be added to an object that is being deleted.
pub fn validate(kind: &Kind, old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let metadata = &new["metadata"];
    let mut causes = Vec::new();
    if metadata["generateName"].as_str().is_some_and(|base| base.len() > GENERATE_NAME_OCTETS_MAX) {
        causes.push(Cause::too_long("metadata.generateName", GENERATE_NAME_OCTETS_MAX as u64));
    }
    match metadata["name"].as_str() {
        None | Some("") => causes.push(Cause::required("metadata.name", "name or generateName is required")),
        // Names of stored objects never change.
        Some(name) if old.is_none() => {
            let wrong = if kind.kind == "Namespace" { check_label(name) } else { check_subdomain(name) };
            causes.extend(wrong.map(|what| Cause::invalid("metadata.name", &metadata["name"], &what)));
        }
        Some(_) => {}
    }
    if kind.namespaced {
        match metadata["namespace"].as_str() {
            None | Some("") => causes.push(Cause::required("metadata.namespace", "")),
            Some(namespace) if old.is_none() => {
                let wrong = check_label(namespace);
                causes.extend(wrong.map(|what| Cause::invalid("metadata.namespace", &metadata["namespace"], &what)));
            }
            Some(_) => {}
        }
    } else if metadata["namespace"].as_str().is_some_and(|namespace| !namespace.is_empty()) {
        causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type"));
    }
    causes.extend(check_labels("metadata.labels", metadata.get("labels")));
    causes.extend(annotations(&metadata["annotations"]));
    for (index, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        if let Some(what) = finalizer.as_str().and_then(check_key) {
            causes.push(Cause::invalid(format!("metadata.finalizers[{index}]"), finalizer, &what));
        }
    }
    causes.extend(owners(&metadata["ownerReferences"]));
    if let Some(old) = old {
        causes.extend(changes(&old["metadata"], metadata));
    }
    causes.truncate(64);
    causes
}

fn annotations(annotations: &Value) -> Vec<Cause> {
    let Some(annotations) = annotations.as_object() else { return Vec::new() };
    let mut octets = 0;
    let mut causes = Vec::new();
    for (key, value) in annotations {
        octets += key.len() + value.as_str().map_or(0, str::len);
        // Kubernetes accepts upper case in the keys of annotations.
        if let Some(what) = check_key(&key.to_ascii_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &Value::from(key.as_str()), &what));
        }
    }
    if octets > ANNOTATIONS_OCTETS_MAX {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_OCTETS_MAX as u64));
    }
    causes
}

fn owners(owners: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut controller: Option<&str> = None;
    for (index, owner) in owners.as_array().into_iter().flatten().enumerate() {
        for name in ["apiVersion", "kind", "name", "uid"] {
            let path = || format!("metadata.ownerReferences[{index}].{name}");
            match owner[name].as_str() {
                Some("") => causes.push(Cause::invalid(path(), &owner[name], "must not be empty")),
                Some(text) if text.len() > OWNER_TEXT_OCTETS_MAX => {
                    causes.push(Cause::too_long(path(), OWNER_TEXT_OCTETS_MAX as u64));
                }
                _ => {}
            }
        }
        if owner["controller"].as_bool() == Some(true) {
            let name = owner["name"].as_str().unwrap_or_default();
            match controller {
                None => controller = Some(name),
                Some(first) => causes.push(Cause::invalid(
                    "metadata.ownerReferences",
                    owners,
                    &format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {name}"
                    ),
                )),
            }
        }
    }
    causes
}

fn changes(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["name", "namespace", "uid", "creationTimestamp"] {
        if old.get(name) != new.get(name) && new.get(name).is_some_and(|value| value != "") {
            causes.push(Cause::invalid(format!("metadata.{name}"), &new[name], "field is immutable"));
        }
    }
    if !old["deletionTimestamp"].is_null() {
        let held: HashSet<&Value> = old["finalizers"].as_array().into_iter().flatten().collect();
        let added: Vec<&Value> =
            new["finalizers"].as_array().into_iter().flatten().filter(|finalizer| !held.contains(finalizer)).collect();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|finalizer| finalizer.to_string()).collect();
            let what = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &what));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::apply::vectors;
    use crate::registry::namespace::NAMESPACE;

    #[test]
    fn faults_of_metadata_have_their_paths() {
        let (things, namespace) = (&vectors::kind(), &*NAMESPACE);
        let wide = &Kind { namespaced: false, ..vectors::kind() };
        for (kind, metadata, expected) in [
            (things, json!({"name": "a.b-c", "namespace": "n", "labels": {"a": "b"}}), vec![]),
            (things, json!({"namespace": "n"}), vec!["metadata.name"]),
            (things, json!({"name": "A", "namespace": "n"}), vec!["metadata.name"]),
            (things, json!({"name": "a"}), vec!["metadata.namespace"]),
            (things, json!({"name": "a", "namespace": "n.m"}), vec!["metadata.namespace"]),
            (wide, json!({"name": "a.b"}), vec![]),
            (wide, json!({"name": "a", "namespace": "n"}), vec!["metadata.namespace"]),
            (namespace, json!({"name": "a.b"}), vec!["metadata.name"]),
            (wide, json!({"name": "a", "labels": {"-": "b", "c": "-"}}), vec!["metadata.labels", "metadata.labels"]),
            (wide, json!({"name": "a", "annotations": {"Example.com/x": "b", "-": "x"}}), vec!["metadata.annotations"]),
            (wide, json!({"name": "a", "annotations": {"x": "y".repeat(300_000)}}), vec!["metadata.annotations"]),
            (wide, json!({"name": "a", "finalizers": ["ok/x", "-"]}), vec!["metadata.finalizers[1]"]),
            (
                wide,
                json!({"name": "a", "ownerReferences": [
                    {"apiVersion": "v1", "kind": "K", "name": "", "uid": "u", "controller": true},
                    {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "v", "controller": true}]}),
                vec!["metadata.ownerReferences[0].name", "metadata.ownerReferences"],
            ),
        ] {
            let found: Vec<String> =
                validate(kind, None, &json!({"metadata": metadata})).into_iter().map(|cause| cause.field).collect();
            assert_eq!(found, expected, "{metadata}");
        }
    }

    #[test]
    fn what_cannot_change_is_reported() {
        let wide = &Kind { namespaced: false, ..vectors::kind() };
        let old = json!({"metadata": {"name": "a", "uid": "1", "finalizers": ["x/y"], "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        for (metadata, expected) in [
            (json!({"name": "a", "uid": "1", "finalizers": ["x/y"]}), vec![]),
            (json!({"name": "a", "uid": "1"}), vec![]),
            (json!({"name": "b", "uid": "2"}), vec!["metadata.name", "metadata.uid"]),
            (json!({"name": "a", "uid": "1", "finalizers": ["x/y", "x/z"]}), vec!["metadata.finalizers"]),
        ] {
            let found: Vec<String> = validate(wide, Some(&old), &json!({"metadata": metadata}))
                .into_iter()
                .map(|cause| cause.field)
                .collect();
            assert_eq!(found, expected, "{metadata}");
        }
    }
}
