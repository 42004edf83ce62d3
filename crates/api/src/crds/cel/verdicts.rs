//! One table of good and bad objects, judged twice: by the Rust rules, and by the definition's schema and CEL rules. Both must
//! take the same ones, and find the faults of the others at the same fields.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_cel::{Validator, compile_schema};
use serde_json::{Value, json};

use signpost_apiserver::registry::metadata;
use signpost_apiserver::schema::{self, Node};

use self::cases::cases;
use super::cost;
use crate::crds::crds;
use crate::kinds::fixture::{DOMAIN, check_create, check_update, context, known};

mod cases;

/// A kind, the stored object's spec and status if it is an update, the new one's, and whether it is good. All are named as
/// [`object`] says unless they bring metadata.
type Case = (&'static str, Option<Value>, Value, bool);

fn definition(kind: &str) -> Value {
    static ALL: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| crds(Some(DOMAIN)));
    let found = ALL.iter().find(|definition| definition.spec.names.kind == kind).expect("a kind of ours");
    serde_json::to_value(found).expect("JSON")["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn object(kind: &str, mut parts: Value) -> Value {
    parts["apiVersion"] = json!("signpost.dev/v1alpha1");
    parts["kind"] = json!(kind);
    if parts["metadata"].is_null() {
        let name = if kind == "Zone" { "s1.v3.example" } else { "n-r" };
        parts["metadata"] = json!({"name": name});
        if known(kind).namespaced {
            parts["metadata"]["namespace"] = json!("n");
        }
    }
    parts
}

/// What a cluster finds: the faults of the schema, of the metadata, and of the rules, whose texts are noted in `broken`.
///
/// A cluster does not fill in what our server fills in beyond the schema's defaults (a Router's `dns`), so that is done.
fn faults_in_cluster(kind: &str, old: Option<&Value>, new: &Value, broken: &mut BTreeSet<String>) -> Vec<String> {
    let (kind, definition) = (known(kind), definition(kind));
    let schema = Node::of(&definition);
    let context = context();
    let mut new = new.clone();
    let old = old.cloned().map(|mut old| {
        schema::apply_defaults(&schema, &mut old);
        old
    });
    match &old {
        None => context.kinds.hooks(kind).prepare_create(&context, &mut new),
        Some(old) => context.kinds.hooks(kind).prepare_update(&context, old, &mut new),
    }
    schema::apply_defaults(&schema, &mut new);
    let mut found: Vec<String> = schema::validate(&schema, &new)
        .into_iter()
        .chain(metadata::validate(kind, old.as_ref(), &new))
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    // A cluster does not run rules on what the schema refuses.
    if found.is_empty()
        && let Err(errors) = Validator::new().validate(&definition, &new, old.as_ref())
    {
        for error in errors.iter() {
            broken.insert(error.rule.clone());
            found.push(format!("{}: {} ({:?})", error.field_path, error.message, error.kind));
        }
    }
    found
}

/// The field that a fault is at.
fn path(fault: &str) -> &str {
    fault.split_once(": ").map_or("", |(path, _)| path.trim_start_matches('.'))
}

#[test]
fn both_give_the_same_verdicts() {
    let (mut broken, mut wrong) = (BTreeSet::new(), Vec::new());
    for (kind, old, new, good) in cases() {
        let (old, new) = (old.map(|old| object(kind, old)), object(kind, new));
        let ours = match &old {
            None => check_create(kind, new.clone()),
            Some(old) => check_update(kind, old, new.clone()),
        };
        if ours.is_empty() != good {
            wrong.push(format!("our server: {kind} {old:?} {new} {ours:?}"));
        }
        let theirs = faults_in_cluster(kind, old.as_ref(), &new, &mut broken);
        if theirs.is_empty() != good {
            wrong.push(format!("a cluster: {kind} {old:?} {new} {theirs:?}"));
        }
        // A definition points at a field, not at an item of a list, and of metadata at nothing. Of a fault that makes others it
        // tells all.
        let meets = |ours: &str, theirs: &str| ours.starts_with(theirs) || theirs.starts_with(ours);
        if !ours.iter().all(|ours| theirs.iter().any(|theirs| meets(path(ours), path(theirs)))) {
            wrong.push(format!("at other fields: {kind} {new} {ours:?} {theirs:?}"));
        }
    }
    // A rule that no object breaks is not tested.
    for kind in KINDS {
        for rule in super::rules(kind, Some(DOMAIN)) {
            if !broken.contains(&rule.rule) {
                wrong.push(format!("no object of the table breaks this rule of {kind}: {}", rule.rule));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const KINDS: [&str; 6] = ["Router", "Route", "RouteBinding", "NameClaim", "Zone", "DeletionHold"];

#[test]
fn every_rule_compiles_at_its_place_and_is_cheap() {
    for kind in KINDS {
        let mut definition = definition(kind);
        let (mut count, mut all) = (0, 0_u64);
        for rule in super::rules(kind, Some(DOMAIN)) {
            // With a margin, since the estimate of another version may be another one.
            let cost = cost::cost(&definition, &rule.place, &rule.rule);
            assert!(cost <= cost::RULE_MAX / 2, "{kind} {}: {} costs {cost}", rule.place, rule.rule);
            all = all.saturating_add(cost);
            let place = super::at(&mut definition, &rule.place);
            let place = place.unwrap_or_else(|| panic!("{kind} has no {}", rule.place));
            let compiled = compile_schema(place);
            assert!(!compiled.has_errors(), "{kind} {}: {:?}", rule.place, compiled.compilation_errors());
            assert!(rule.message.len() <= 2_048 && !rule.message.contains('\n'), "{}", rule.message);
            // A field path leads to a field that the schema has. What metadata holds, it does not say.
            if let Some(path) = rule.field {
                let path = path.strip_prefix('.').unwrap_or_else(|| panic!("{kind}: {path} begins with a dot"));
                let field = path.split('.').try_fold(&*place, |schema, name| schema["properties"].get(name));
                assert!(field.is_some(), "{kind} {}: there is no field {path}", rule.place);
            }
            // Items of a list without keys are not known again after a change.
            let is_in_list = rule.place.contains("[]") || rule.place.contains("{}");
            assert!(!(is_in_list && rule.rule.contains("oldSelf")), "{kind} {}: {}", rule.place, rule.rule);
            count += 1;
        }
        assert!(count > 0, "{kind}");
        assert!(all <= cost::DEFINITION_MAX / 2, "{kind}: all rules together cost {all}");
    }
}

#[test]
fn the_definitions_are_structural() {
    for kind in KINDS {
        let mut faults = Vec::new();
        structural(&definition(kind), "", &mut faults);
        assert_eq!(faults, Vec::<String>::new(), "{kind}");
    }
}

/// What a cluster demands of a schema: one type at each place, no references and no alternatives, keys of list-maps that are
/// required or have a default, defaults that are valid.
fn structural(schema: &Value, path: &str, faults: &mut Vec<String>) {
    let Some(fields) = schema.as_object() else { return faults.push(format!("{path}: not an object")) };
    let any = schema["x-kubernetes-int-or-string"] == true || schema["x-kubernetes-preserve-unknown-fields"] == true;
    if !any && !schema["type"].is_string() {
        faults.push(format!("{path}: no type"));
    }
    for name in ["$ref", "oneOf", "anyOf", "allOf", "not", "uniqueItems", "nullable", "definitions"] {
        if fields.contains_key(name) {
            faults.push(format!("{path}: {name}"));
        }
    }
    // Clients refuse what is not of the field's type; a cluster takes it.
    let is_of_type = |value: &Value| match schema["type"].as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        _ => true,
    };
    if !schema["enum"].as_array().into_iter().flatten().all(is_of_type) {
        faults.push(format!("{path}: a value of enum is not of its type"));
    }
    if fields.contains_key("properties") && fields.contains_key("additionalProperties") {
        faults.push(format!("{path}: both properties and additionalProperties"));
    }
    if let Some(default) = fields.get("default") {
        faults.extend(
            schema::validate(&Node::of(schema), default).iter().map(|cause| format!("{path}: default {cause:?}")),
        );
    }
    for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let item = &schema["items"];
        let required = item["required"].as_array().is_some_and(|names| names.iter().any(|name| name == key));
        if !required && item["properties"][key]["default"].is_null() {
            faults.push(format!("{path}: the key {key} is neither required nor has a default"));
        }
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        structural(inner, &format!("{path}.{name}"), faults);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get(name) {
            structural(inner, &format!("{path}.{name}"), faults);
        }
    }
}
