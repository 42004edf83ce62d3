//! Zone: the ledger of serials, which the leading controller writes.

use std::sync::LazyLock;

use serde_json::Value;

use crate::kinds::former;
use crate::names;
use crate::v1alpha1::zone::Zone;
use signpost_apiserver::cause::Cause;
use signpost_apiserver::json_scan::Json;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::kind::columns::{AGE, Cell, Column};
use signpost_apiserver::registry::{Context, Hooks};

/// The kind.
pub static ZONE: LazyLock<Kind> = LazyLock::new(|| {
    Kind::of::<Zone>().with_columns(COLUMNS).selectable_by(&["spec.type", "spec.router"]).formerly(former::ZONE)
});

const COLUMNS: &[Column] = &[
    Column::new("Type", &["spec.type"], "What the zone is made for: `parent`, `alias` or `shard`."),
    Column::new("Serial", &["spec.versions"], "The newest serial.")
        .of_type("integer")
        .with_cell(|read, _| newest(read[0], "serial")),
    AGE,
    Column::new("Router", &["spec.router"], "The Router whose shard it is.").wide(),
    Column::new("Digest", &["spec.versions"], "Digest of what the zone was made from.")
        .with_cell(|read, _| newest(read[0], "digest"))
        .wide(),
];

/// What the newest of a zone's versions says.
fn newest<'a>(versions: Json<'a>, name: &str) -> Cell<'a> {
    Cell::As(versions.items().next().map_or_else(Json::default, |version| version.get([name])[0]))
}

pub(super) struct Zones;

impl Hooks for Zones {
    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> Vec<Cause> {
        let name = &object["metadata"]["name"];
        let wrong = name.as_str().and_then(|name| names::check_domain(name).err());
        let mut causes: Vec<Cause> = wrong
            .map(|error| Cause::invalid("metadata.name", name, &format!("must be the zone's apex: {error}")))
            .into_iter()
            .collect();
        causes.extend(faults(object));
        causes
    }

    fn validate_update(&self, _context: &Context<'_>, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = faults(new);
        if old["spec"]["type"] != new["spec"]["type"] {
            let what = "field is immutable: delete the Zone and create it anew";
            causes.push(Cause::invalid("spec.type", &new["spec"]["type"], what));
        }
        causes
    }
}

fn faults(object: &Value) -> Vec<Cause> {
    let spec = &object["spec"];
    let mut causes = Vec::new();
    let router = spec["router"].as_str().filter(|router| !router.is_empty());
    match (spec["type"].as_str(), router) {
        (Some("shard"), None) => {
            causes.push(Cause::required("spec.router", "a zone of type shard belongs to a Router"))
        }
        (Some("parent" | "alias"), Some(_)) => {
            causes.push(Cause::forbidden("spec.router", "only a zone of type shard belongs to a Router"));
        }
        _ => {}
    }
    for (index, version) in spec["versions"].as_array().into_iter().flatten().enumerate() {
        let digest = &version["digest"];
        if digest
            .as_str()
            .is_some_and(|digest| digest.is_empty() || !digest.bytes().all(|octet| octet.is_ascii_hexdigit()))
        {
            let path = format!("spec.versions[{index}].digest");
            causes.push(Cause::invalid(&path, digest, "must be hexadecimal"));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::fixture::{check_create, check_update};
    use serde_json::{Value, json};

    fn zone(name: &str, spec: Value) -> Value {
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Zone", "metadata": {"name": name}, "spec": spec})
    }

    #[test]
    fn faults_have_their_paths() {
        let version = json!({"serial": 1, "digest": "00ff", "at": "2026-01-01T00:00:00Z"});
        for (name, spec, expected) in [
            ("s1.v3.example", json!({"type": "shard", "router": "s1", "versions": [version]}), vec![]),
            ("v3.example", json!({"type": "parent"}), vec![]),
            ("v3.example", json!({"type": "shard"}), vec!["spec.router"]),
            ("v3.example", json!({"type": "alias", "router": "s1"}), vec!["spec.router"]),
            (
                "v3.example",
                json!({"type": "parent", "versions": [{"serial": -1, "digest": "x", "at": "now"}]}),
                vec!["spec.versions[0].at", "spec.versions[0].serial", "spec.versions[0].digest"],
            ),
            ("v3.example", json!({"type": "other"}), vec!["spec.type"]),
        ] {
            let found = check_create("Zone", zone(name, spec.clone()));
            let paths: Vec<&str> = found.iter().filter_map(|cause| cause.split(": ").next()).collect();
            assert_eq!(paths, expected, "{spec}");
        }
        let old = zone("z.example", json!({"type": "parent"}));
        assert_eq!(check_update("Zone", &old, zone("z.example", json!({"type": "alias"}))).len(), 1);
    }
}
