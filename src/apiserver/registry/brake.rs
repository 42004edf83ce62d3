//! Brake: a loss that the name servers hold back. They make it and say who holds; an administrator decides.

use serde_json::Value;

use super::columns::{self, AGE};
use super::{Column, Context, Kind, Rules, crd, field};
use crate::api::v1alpha1::brake::Brake;
use crate::api::v1alpha1::{CATEGORY, GROUP, VERSION};
use crate::apiserver::error::Cause;
use crate::apiserver::schema::Schema;

/// How a Brake began. What has become of it is told in its status by name servers, who may not decide.
const FIXED: [&str; 5] = ["type", "objects", "known", "cause", "names"];

pub(super) fn kind() -> Kind {
    Kind {
        group: GROUP,
        version: VERSION,
        kind: "Brake",
        plural: "brakes",
        singular: "brake",
        short_names: &["brk"],
        categories: &[CATEGORY],
        namespaced: false,
        has_status: true,
        key_prefix: "/signpost.dev/brakes/",
        schema: Schema::new(crd::schema_of::<Brake>()),
        columns: COLUMNS,
        selectable_fields: &["spec.type", "spec.decision"],
        time_to_live: None,
        view: None,
        rules: &Brakes,
    }
}

const COLUMNS: &[Column] = &[
    Column {
        name: "Type",
        kind: "string",
        priority: 0,
        description: "Kind of the missing objects.",
        cell: |object, _| columns::at(object, "spec.type"),
    },
    Column {
        name: "Objects",
        kind: "integer",
        priority: 0,
        description: "How many are held.",
        cell: |object, _| now(object, "objects"),
    },
    Column {
        name: "Known",
        kind: "integer",
        priority: 0,
        description: "How many of this kind were known.",
        cell: |object, _| now(object, "known"),
    },
    Column {
        name: "Cause",
        kind: "string",
        priority: 0,
        description: "How they came to be missing: `list` or `burst`.",
        cell: |object, _| columns::at(object, "spec.cause"),
    },
    Column {
        name: "Decision",
        kind: "string",
        priority: 0,
        description: "What an administrator has said: `approve` or `reject`.",
        cell: |object, _| columns::at(object, "spec.decision"),
    },
    Column {
        name: "Holders",
        kind: "string",
        priority: 0,
        description: "The name servers that hold.",
        cell: |object, _| {
            let holders = object["status"]["holders"].as_array().into_iter().flatten();
            columns::list(holders.filter_map(|holder| holder["host"].as_str().or(holder["server"].as_str())), 3)
        },
    },
    AGE,
    Column {
        name: "Names",
        kind: "string",
        priority: 1,
        description: "The first of the missing objects.",
        cell: |object, _| {
            let names = now(object, "names");
            columns::list(names.as_array().into_iter().flatten().filter_map(Value::as_str), 3)
        },
    },
];

/// What is held now; what was when it began, until a name server has entered.
fn now(object: &Value, field: &str) -> Value {
    let part = if object["status"]["objects"].is_null() { "spec" } else { "status" };
    object[part].get(field).cloned().unwrap_or(Value::Null)
}

struct Brakes;

impl Rules for Brakes {
    fn validate_update(&self, _context: &Context<'_>, old: &Value, new: &Value) -> Vec<Cause> {
        let changed = FIXED.iter().filter(|name| old["spec"][**name] != new["spec"][**name]);
        let what = "field is immutable: only decision and decidedAt may change";
        changed.map(|name| field::invalid(&format!("spec.{name}"), &new["spec"][*name], what)).collect()
    }
}
