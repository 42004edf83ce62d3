//! The migration from client-side to server-side apply: `kubectl apply` stores the applied configuration in an annotation, and
//! `kubectl apply --server-side` takes over its fields from there.

use serde_json::Value;

use super::managers::Manager;
use super::{Conflicts, compare, structure};
use crate::apply::field_set::FieldSet;
use crate::schema::Node;

/// The only manager with this migration. A user who does not want it uses another manager name.
pub(super) const MANAGER: &str = "kubectl";
/// The annotation that client-side apply writes.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The maximum length of the annotation in octets. A longer one is not updated: with it, no other annotation could be written.
const OCTETS_MAX: usize = 256 * 1024;

/// Returns the conflicts that remain after the manager takes over the annotation's fields that are still as applied.
pub(super) fn not_allowed(schema: &Node, live: &Value, conflicts: Conflicts) -> Conflicts {
    let allowed = still_as_applied(schema, live).unwrap_or_default();
    let remaining =
        conflicts.into_iter().map(|(manager, set): (Manager, FieldSet)| (manager, set.difference(&allowed)));
    remaining.filter(|(_, set)| !set.is_empty()).collect()
}

fn still_as_applied(schema: &Node, live: &Value) -> Option<FieldSet> {
    let text = live["metadata"]["annotations"][ANNOTATION].as_str()?;
    let applied: Value = serde_json::from_str(text).ok()?;
    let changes = compare::compare(schema, &applied, live);
    let set = structure::applied_fields(Some(schema), &applied);
    Some(set.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
}

/// Writes the applied configuration into the annotation, if the object has it: a user can then return to client-side apply.
pub(super) fn keep_up(result: &mut Value, config: &Value) {
    let Some(annotation) = result.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(ANNOTATION)) else {
        return;
    };
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{config}\n");
    if text.len() <= OCTETS_MAX {
        *annotation = Value::String(text);
    }
}
