//! Namespace: a tenant, a built-in kind of Kubernetes.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Context, HookResult, Hooks, Operation, Reader};
use crate::cause::Cause;
use crate::error::ApiError;
use crate::kind::columns::{BUILT_IN_AGE, Column};
use crate::kind::{Aliases, HookReads, Kind};
use crate::limits;

/// The namespaces that always exist on every server.
pub(super) const ALWAYS: [&str; 2] = ["default", "kube-system"];
/// The label with which a namespace selector selects one namespace by its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The kind.
pub static NAMESPACE: LazyLock<Kind> = LazyLock::new(|| {
    let by_type = json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]});
    let kind = Kind::built_in::<k8s_openapi::api::core::v1::Namespace>([("status.conditions", by_type)]);
    Kind {
        aliases: Aliases { short_names: &["ns"], ..kind.aliases },
        namespaced: false,
        has_status: true,
        ..kind.with_columns(COLUMNS).selectable_by(&["status.phase"]).read_by_hooks(HookReads::OftenTheSame)
    }
});

const COLUMNS: &[Column] = &[
    Column::new("Status", &["status.phase"], "`Active`, or `Terminating` during the deletion of its contents."),
    BUILT_IN_AGE,
];

pub(super) struct Namespaces;

#[async_trait]
impl Hooks for Namespaces {
    fn prepare(&self, _context: &Context<'_>, old: Option<&Value>, new: &mut Value) {
        name_label(new);
        let Some(old) = old else {
            new["spec"] = json!({"finalizers": ["kubernetes"]});
            new["status"] = json!({"phase": "Active"});
            return;
        };
        // Only the endpoint `finalize`, which is the server's own here, changes the spec.
        if let Some(spec) = old.get("spec") {
            new["spec"] = spec.clone();
        }
    }

    fn validate(&self, context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let faults = |object: &Value| limits::annotation_faults(context.kinds.quotas(), object);
        // Values that were stored before the annotations had a meaning are kept.
        let known = old.map(faults).unwrap_or_default();
        faults(new).into_iter().filter(|fault| !known.contains(fault)).collect()
    }

    fn validate_status_update(&self, _context: &Context<'_>, old: &Value, new: &Value) -> Vec<Cause> {
        let phase = &new["status"]["phase"];
        match (phase.as_str(), old["metadata"]["deletionTimestamp"].is_null()) {
            (Some("Active"), true) | (Some("Terminating"), false) => Vec::new(),
            (_, true) => {
                vec![Cause::invalid(
                    "status.phase",
                    phase,
                    "may only be 'Active' if the namespace is not being deleted",
                )]
            }
            (_, false) => {
                vec![Cause::invalid(
                    "status.phase",
                    phase,
                    "may only be 'Terminating' if the namespace is being deleted",
                )]
            }
        }
    }

    async fn before_commit(&self, context: &Context<'_>, operation: Operation<'_>, _: &dyn Reader) -> HookResult {
        if let Operation::Delete { old, .. } = operation
            && let Some(name) = old["metadata"]["name"].as_str()
            && context.kinds.namespaces().contains(&name)
        {
            return Err(ApiError::forbidden(&NAMESPACE, name, "this namespace may not be deleted"));
        }
        Ok(Vec::new())
    }
}

fn name_label(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if labels.is_null() {
        *labels = json!({});
    }
    // The schema reports labels of another type.
    if let (Some(labels), true) = (labels.as_object_mut(), name.is_string()) {
        labels.insert(NAME_LABEL.to_owned(), name);
    }
}
