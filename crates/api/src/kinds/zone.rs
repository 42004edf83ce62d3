//! Zone: the serials of a zone's versions, which the leading controller writes.

use std::sync::LazyLock;

use serde_json::Value;

use crate::rules::expr::this;
use crate::rules::{self, Rule};
use signpost_apiserver::cause::Cause;
use signpost_apiserver::json_scan::Json;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::kind::columns::{AGE, Cell, Column};
use signpost_apiserver::registry::{Context, Hooks};
use signpost_types::v1alpha1::zone::Zone;

pub static ZONE: LazyLock<Kind> =
    LazyLock::new(|| Kind::of::<Zone>().with_columns(COLUMNS).selectable_by(&["spec.type", "spec.router"]));

const COLUMNS: &[Column] = &[
    Column::new("Type", &["spec.type"], "Type of the zone: `parent`, `alias`, or `shard`."),
    Column::new("Serial", &["spec.versions"], "The newest serial.")
        .of_type("integer")
        .with_cell(|read, _| newest(read[0], "serial")),
    AGE,
    Column::new("Router", &["spec.router"], "The Router of the shard.").wide(),
    Column::new("Digest", &["spec.versions"], "Digest of the zone's input.")
        .with_cell(|read, _| newest(read[0], "digest"))
        .wide(),
];

/// Returns a field of the newest version of a zone.
fn newest<'a>(versions: Json<'a>, name: &str) -> Cell<'a> {
    Cell::As(versions.items().next().map_or_else(Json::default, |version| version.get([name])[0]))
}

pub(super) struct Zones;

impl Hooks for Zones {
    fn validate(&self, _context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        rules::check(&RULES, old, new)
    }
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(rules);

pub(crate) fn rules() -> Vec<Rule> {
    let is_shard = || this().field("type").is("shard");
    let mut rules = rules::immutable(&["type"], "field is immutable; delete the Zone and create it again");
    rules.extend([
        // The server accepts only lower-case domains as names, but their labels can be too long. A cluster assumes an unbounded
        // length for names, so a more detailed rule would exceed its cost limit.
        Rule::new(
            "",
            !this().field("metadata").field("name").matches("[^.]{64}"),
            "must be the zone's apex, with labels of at most 63 octets",
        )
        .about("metadata.name"),
        Rule::new("spec", !is_shard() | this().names("router"), "a zone of type shard belongs to a Router")
            .about("router")
            .required(),
        Rule::new("spec", is_shard() | !this().names("router"), "only a zone of type shard belongs to a Router")
            .about("router")
            .forbidden(),
        Rule::new("spec.versions[].digest", this().matches("^[0-9A-Fa-f]+$"), "must be hexadecimal"),
    ]);
    rules
}
