//! From client-side to server-side apply: `kubectl apply` keeps what it applied in an annotation, and `kubectl apply
//! --server-side` takes its fields over from there.

use serde_json::Value;

use super::managers::Manager;
use super::{Conflicts, compare, structure};
use crate::apply::field_set::FieldSet;
use crate::schema::Node;

/// The manager for whom this is done, and nobody else: a user who wants none of it names another manager.
pub(super) const MANAGER: &str = "kubectl";
/// What client-side apply writes.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Most octets of the annotation; a larger one is left as it is, since with it no annotation could be written any more.
const OCTETS_MAX: usize = 256 * 1024;

/// Those of the conflicts that remain when the fields of the annotation that are still as applied count as the manager's.
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

/// Writes the applied configuration into the annotation, if the object has it: a user may go back to client-side apply.
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
