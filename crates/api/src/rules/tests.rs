//! Tests that the evaluation in Rust and the rules printed for a cluster find the same faults.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_cel::{CompiledSchema, Validator, compile_schema};
use proptest::sample::subsequence;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use signpost_apiserver::schema::{self, Node};

use super::*;
use crate::crds::{crds, rules_of};
use crate::kinds::fixture::DOMAIN;

const KINDS: [&str; 6] = ["Router", "Route", "RouteBinding", "NameClaim", "Zone", "DeletionHold"];

fn definition(kind: &str) -> Value {
    static ALL: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| crds(Some(DOMAIN)));
    let found = ALL.iter().find(|definition| definition.spec.names.kind == kind).expect("a kind of this API");
    serde_json::to_value(found).expect("JSON")["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

type Change = (String, Value);

/// `tests.yaml`.
static CASES: LazyLock<Value> = LazyLock::new(|| {
    let mut cases = schema::parse_yaml(include_bytes!("tests.yaml")).expect("it is YAML").0;
    expand(&mut cases);
    cases
});

/// Generates the long texts.
fn expand(value: &mut Value) {
    if let [Value::String(text), Value::Number(times), Value::String(end)] =
        value["repeat"].as_array().map_or(&[][..], Vec::as_slice)
    {
        let times = times.as_u64().expect("a small number") as usize;
        *value = Value::from(text.repeat(times) + end);
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(expand),
        Value::Object(fields) => fields.values_mut().for_each(expand),
        _ => {}
    }
}

/// Returns every field of a good object with every value; null leaves it out.
fn changes(case: &str) -> Vec<Change> {
    let pools = &CASES["pools"];
    let list = |values: &Value| values.as_array().expect("a list").clone();
    let mut changes = Vec::new();
    for (pointer, values) in CASES[case]["changes"].as_object().expect("fields") {
        let values = match values.as_str().map(|name| name.strip_suffix('?').unwrap_or(name)) {
            Some(pool @ ("numbers" | "selectors")) => list(&pools[pool]),
            Some(pool) => [list(&pools[pool]), list(&pools["texts"])].concat(),
            None => list(values),
        };
        let is_optional = CASES[case]["changes"][pointer].as_str().is_some_and(|name| name.ends_with('?'));
        let absent = is_optional.then_some(Value::Null);
        changes.extend(values.into_iter().chain(absent).map(|value| (pointer.clone(), value)));
    }
    changes
}

fn changed(case: &str, changes: &[Change]) -> Value {
    let mut object = CASES[case]["good"].clone();
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
        match (object.pointer_mut(parent), value) {
            (Some(Value::Object(fields)), Value::Null) => drop(fields.remove(name)),
            (Some(Value::Object(fields)), value) => drop(fields.insert(name.to_owned(), value.clone())),
            (Some(Value::Array(items)), value) if !value.is_null() => {
                items[name.parse::<usize>().expect("an index")] = value.clone();
            }
            _ => {}
        }
    }
    object
}

/// Returns the broken rules, as CEL, by the evaluation in Rust and by kube-cel.
fn broken(rules: &[Rule], compiled: &CompiledSchema, old: Option<&Value>, new: &Value) -> [BTreeSet<String>; 2] {
    let evaluated = rules.iter().filter(|rule| {
        let mut faults = Vec::new();
        rule.faults(old, new, &mut faults);
        !faults.is_empty()
    });
    let printed = Validator::new().validate_compiled(compiled, new, old);
    let printed = printed.err().into_iter().flat_map(|errors| errors.into_vec()).map(|error| error.rule);
    [evaluated.map(Rule::cel).collect(), printed.collect()]
}

#[test]
fn the_rules_find_the_same_in_both_languages() {
    for kind in KINDS {
        let (rules, compiled) = (rules_of(kind, Some(DOMAIN)), compile_schema(&definition(kind)));
        let seen = std::cell::RefCell::new(BTreeSet::new());
        let compare = |old: Option<&Value>, new: &Value| {
            let [evaluated, printed] = broken(&rules, &compiled, old, new);
            assert_eq!(evaluated, printed, "{kind} {old:?} {new}");
            seen.borrow_mut().extend(evaluated);
        };
        let is_of_kind = |case: &&String| case.split(' ').next() == Some(kind);
        for case in CASES.as_object().expect("named cases").keys().filter(is_of_kind) {
            let (changes, good) = (changes(case), changed(case, &[]));
            assert_eq!(broken(&rules, &compiled, Some(&good), &good), [BTreeSet::new(), BTreeSet::new()], "{case}");
            for change in &changes {
                compare(Some(&good), &changed(case, std::slice::from_ref(change)));
            }
            // Several simultaneous changes, before and after.
            let some = || subsequence(changes.clone(), 0..4.min(changes.len()));
            let objects = (proptest::option::of(some()), some());
            let mut runner = TestRunner::new(Config { cases: 16, failure_persistence: None, ..Config::default() });
            let run = runner.run(&objects, |(old, new)| {
                let old = old.map(|old| changed(case, &old));
                compare(old.as_ref(), &changed(case, &new));
                Ok(())
            });
            run.expect("both languages agree");
        }
        let unseen: Vec<String> = rules.iter().map(Rule::cel).filter(|rule| !seen.borrow().contains(rule)).collect();
        assert_eq!(unseen, Vec::<String>::new(), "no object breaks these rules of {kind}");
    }
}

#[test]
fn every_rule_compiles_at_its_place_and_is_cheap() {
    for kind in KINDS {
        let mut definition = definition(kind);
        let mut all = 0_u64;
        for rule in rules_of(kind, Some(DOMAIN)) {
            let (place, text) = (&rule.place, rule.cel());
            // With a margin, because the estimate of another version can differ.
            let cost = cost::cost(&definition, place, &text);
            assert!(cost <= cost::RULE_MAX / 2, "{kind} {place}: {text} costs {cost}");
            all = all.saturating_add(cost);
            let node = at(&mut definition, place).unwrap_or_else(|| panic!("{kind} has no {place}"));
            let compiled = compile_schema(node);
            assert!(!compiled.has_errors(), "{kind} {place}: {:?}", compiled.compilation_errors());
            assert!(!rule.message.is_empty() && rule.message.len() <= 2_048 && !rule.message.contains('\n'), "{text}");
            // A field path leads to a field that the schema has.
            if let Some(path) = rule.field.filter(|path| !path.starts_with("metadata")) {
                let field = path.split('.').try_fold(&*node, |schema, name| schema["properties"].get(name));
                assert!(field.is_some(), "{kind} {place}: there is no field {path}");
            }
            assert!(!(place.contains("[]") && rule.compares), "{kind} {place}: {text}");
        }
        assert!(all <= cost::DEFINITION_MAX / 2, "{kind}: all rules together cost {all}");
    }
}

#[test]
fn what_was_stored_with_a_fault_can_change_elsewhere() {
    let rules = [Rule::new("spec.a", this().matches("^x"), "must begin with x").forbidden()];
    let object = |a: &str, b: i64| json!({"spec": {"a": a, "b": b}});
    for (before, after, good) in [
        (None, object("y", 1), false),
        (Some(object("y", 1)), object("y", 2), true),
        (Some(object("y", 1)), object("z", 1), false),
        (Some(object("x", 1)), object("y", 1), false),
    ] {
        assert_eq!(check(&rules, before.as_ref(), &after).is_empty(), good, "{before:?} {after}");
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

/// Checks the requirements of a cluster for a schema: one type at each place, no references and no alternatives, keys of
/// list-maps that are required or have a default, and valid defaults.
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
    // Clients reject a value that is not of the field's type; a cluster accepts it.
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
