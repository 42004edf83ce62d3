//! Brake: a loss that the name servers hold back. They make it and say who holds; an administrator decides.

use serde_json::Value;

use super::columns::{self, AGE, Cell, Column, Columns};
use super::selectable::Selectable;
use super::{Context, Kind, Rules, crd, field};
use crate::api::v1alpha1::brake::Brake;
use crate::api::v1alpha1::{CATEGORY, GROUP, VERSION};
use crate::apiserver::error::Cause;
use crate::apiserver::schema::Schema;
use crate::apiserver::skim::Json;

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
        columns: Columns::new(COLUMNS),
        selectable_fields: Selectable::new(&["spec.type", "spec.decision"]),
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
        reads: &["spec.type"],
        cell: columns::shown,
    },
    Column {
        name: "Objects",
        kind: "integer",
        priority: 0,
        description: "How many are held.",
        reads: &["status.objects", "status.objects", "spec.objects"],
        cell: |read, _| Cell::As(now(read)),
    },
    Column {
        name: "Known",
        kind: "integer",
        priority: 0,
        description: "How many of this kind were known.",
        reads: &["status.objects", "status.known", "spec.known"],
        cell: |read, _| Cell::As(now(read)),
    },
    Column {
        name: "Cause",
        kind: "string",
        priority: 0,
        description: "How they came to be missing: `list` or `burst`.",
        reads: &["spec.cause"],
        cell: columns::shown,
    },
    Column {
        name: "Decision",
        kind: "string",
        priority: 0,
        description: "What an administrator has said: `approve` or `reject`.",
        reads: &["spec.decision"],
        cell: columns::shown,
    },
    Column {
        name: "Holders",
        kind: "string",
        priority: 0,
        description: "The name servers that hold.",
        reads: &["status.holders"],
        cell: |read, _| {
            let holders = read[0].items().map(|holder| holder.get(["host", "server"]));
            columns::list(holders.filter_map(|names| names.into_iter().find_map(Json::text)), 3)
        },
    },
    AGE,
    Column {
        name: "Names",
        kind: "string",
        priority: 1,
        description: "The first of the missing objects.",
        reads: &["status.objects", "status.names", "spec.names"],
        cell: |read, _| columns::list(now(read).items().filter_map(Json::text), 3),
    },
];

/// What is held now, which the status says; what was when it began, until a name server has entered how many objects that are.
fn now<'a>(read: &[Json<'a>]) -> Json<'a> {
    let [objects, now, then] = *read else { return Json::default() };
    if objects.is_null() { then } else { now }
}

struct Brakes;

impl Rules for Brakes {
    fn validate_update(&self, _context: &Context<'_>, old: &Value, new: &Value) -> Vec<Cause> {
        let changed = FIXED.iter().filter(|name| old["spec"][**name] != new["spec"][**name]);
        let what = "field is immutable: only decision and decidedAt may change";
        changed.map(|name| field::invalid(&format!("spec.{name}"), &new["spec"][*name], what)).collect()
    }
}
