//! Lease: who leads, and heartbeats; a built-in kind of Kubernetes.

use std::sync::LazyLock;

use serde_json::Value;

use super::{Context, Hooks, event};
use crate::cause::Cause;
use crate::kind::columns::{BUILT_IN_AGE, Column, Columns};
use crate::kind::selectable::Selectable;
use crate::kind::{Aliases, HookReads, Kind, schemas};
use crate::schema::Schema;

/// The kind.
pub static LEASE: LazyLock<Kind> = LazyLock::new(|| Kind {
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    plural: "leases",
    aliases: Aliases { singular: "lease", ..Aliases::default() },
    namespaced: true,
    has_status: false,
    key_prefix: "/coordination.k8s.io/leases/",
    schema: Schema::new(schemas::of_built_in::<k8s_openapi::api::coordination::v1::Lease>()),
    columns: Columns::new(COLUMNS),
    selectable_fields: Selectable::new(&[]),
    time_to_live: None,
    view: None,
    hook_reads: HookReads::OftenTheSame,
});

const COLUMNS: &[Column] = &[Column::new("Holder", &["spec.holderIdentity"], "Who holds the lease."), BUILT_IN_AGE];

pub(super) struct Leases;

impl Hooks for Leases {
    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        times(object);
    }

    fn prepare_update(&self, _context: &Context<'_>, _old: &Value, new: &mut Value) {
        times(new);
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> Vec<Cause> {
        faults(object)
    }

    fn validate_update(&self, _context: &Context<'_>, _old: &Value, new: &Value) -> Vec<Cause> {
        faults(new)
    }
}

fn times(object: &mut Value) {
    event::micro_times(object, &["/spec/acquireTime", "/spec/renewTime"]);
}

fn faults(object: &Value) -> Vec<Cause> {
    let spec = &object["spec"];
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
