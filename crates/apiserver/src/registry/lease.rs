//! Lease: leader election, and heartbeats; a built-in kind of Kubernetes.

use std::sync::LazyLock;

use serde_json::Value;

use super::{Context, Hooks, event};
use crate::cause::Cause;
use crate::kind::columns::{BUILT_IN_AGE, Column};
use crate::kind::{HookReads, Kind};

/// The kind.
pub static LEASE: LazyLock<Kind> = LazyLock::new(|| {
    Kind::built_in::<k8s_openapi::api::coordination::v1::Lease>([])
        .with_columns(COLUMNS)
        .read_by_hooks(HookReads::OftenTheSame)
});

const COLUMNS: &[Column] = &[Column::new("Holder", &["spec.holderIdentity"], "The holder of the Lease."), BUILT_IN_AGE];

pub(super) struct Leases;

impl Hooks for Leases {
    fn prepare(&self, _context: &Context<'_>, _old: Option<&Value>, new: &mut Value) {
        event::micro_times(new, &["/spec/acquireTime", "/spec/renewTime"]);
    }

    fn validate(&self, _context: &Context<'_>, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let spec = &new["spec"];
        let mut causes = Vec::new();
        if spec["leaseDurationSeconds"].as_i64().is_some_and(|seconds| seconds <= 0) {
            let value = &spec["leaseDurationSeconds"];
            causes.push(Cause::invalid("spec.leaseDurationSeconds", value, "must be greater than 0"));
        }
        if spec["leaseTransitions"].as_i64().is_some_and(|transitions| transitions < 0) {
            let value = &spec["leaseTransitions"];
            causes.push(Cause::invalid("spec.leaseTransitions", value, "must be greater than or equal to 0"));
        }
        causes
    }
}
