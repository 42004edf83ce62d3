//! The rules of Signpost's kinds that depend only on the object and its former state: defined once, as data.
//!
//! Signpost's server evaluates a rule ([`check`]); the CustomResourceDefinitions print it as CEL ([`declare`]). A test compares
//! both on the same objects. The rules of a kind are in its file below `kinds`. Checks that are impossible in CEL are in Rust
//! only:
//!
//! | kind | in Rust alone | where |
//! |---|---|---|
//! | all | A-labels (RFC 5890) are valid: `names::check_a_labels` | `kinds/*` |
//! | Router | `dns` is not the name of a name server | `kinds/router.rs`, `dns_fault` |
//! | Router | zones are unique, and take no names of others; a Router with Routes stays | `kinds/router.rs`, `before_commit` |
//! | Route | the host is its own name on a Router: it begins with the namespace | `kinds/route.rs`, `wished_host_fault` |
//! | Route | hosts in zones of the platform, labels of other namespaces, adoption, moves, the status | `kinds/route.rs`, `before_commit` |
//! | RouteBinding | `routeNamespace` is the object's own namespace | `kinds/route_binding.rs` |
//! | RouteBinding | Route, Router, label and leader match the binding | `kinds/route_binding.rs`, `before_commit` |
//! | NameClaim | the name of a claim on a host is a hash | `kinds/name_claim.rs`, `name_fault` |
//! | NameClaim | a quarantine has passed, by the clock | `kinds/name_claim.rs`, `takeover_fault` |
//! | NameClaim | hosts of two namespaces do not overlap; a held claim stays | `kinds/name_claim.rs`, `before_commit` |
//! | DeletionHold | permission to decide, and to change entries | `kinds/deletion_hold.rs` |
//!
//! On an update, a fault that the object had before, at the same value, is ignored. Other fields of an object that an earlier
//! version stored can thus be changed. A cluster does the same ("ratcheting").

pub(crate) mod expr;

use std::collections::HashSet;

use serde_json::{Value, json};
use signpost_apiserver::cause::Cause;
use signpost_apiserver::schema::structural::at;

use self::expr::{Expr, Function, Quantity, Scope, Val, old, this};
use signpost_types::names::Shape;

/// A rule: an expression that must hold for every value at a place of an object.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// The place of the values, such as `spec.addresses[].ip`.
    pub(crate) place: String,
    pub(crate) test: Expr,
    reason: Reason,
    message: String,
    /// The field below the place that a fault names.
    field: Option<&'static str>,
    /// The list below the place whose items the test checks, its variable, and the field of the item that a fault names.
    each: Option<(&'static str, &'static str, &'static str)>,
    /// Whether Signpost's server has a stricter rule instead.
    cluster_only: bool,
    /// Whether the test compares with the former object.
    compares: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Invalid,
    Required,
    Forbidden,
    Duplicate,
    /// The value is longer than this number of octets.
    TooLong(u64),
}

impl Rule {
    pub(crate) fn new(place: impl Into<String>, test: Expr, message: impl Into<String>) -> Rule {
        let compares = test.cel().contains("oldSelf");
        Rule {
            place: place.into(),
            test,
            reason: Reason::Invalid,
            message: message.into(),
            field: None,
            each: None,
            cluster_only: false,
            compares,
        }
    }

    /// Makes faults name this field below the place.
    pub(crate) fn about(self, field: &'static str) -> Rule {
        Rule { field: Some(field), ..self }
    }

    /// Applies the test to each item of the list `list` (the place itself if it is empty); faults name the field of the item.
    pub(crate) fn each(self, list: &'static str, variable: &'static str, field: &'static str) -> Rule {
        Rule { each: Some((list, variable, field)), field: Some(list).filter(|list| !list.is_empty()), ..self }
    }

    pub(crate) fn required(self) -> Rule {
        Rule { reason: Reason::Required, ..self }
    }

    pub(crate) fn forbidden(self) -> Rule {
        Rule { reason: Reason::Forbidden, ..self }
    }

    pub(crate) fn duplicate(self) -> Rule {
        Rule { reason: Reason::Duplicate, ..self }
    }

    pub(crate) fn too_long(self, octets_max: u64) -> Rule {
        Rule { reason: Reason::TooLong(octets_max), ..self }
    }

    /// Restricts the rule to clusters: Signpost's server has a stricter one.
    pub(crate) fn in_clusters(self) -> Rule {
        Rule { cluster_only: true, ..self }
    }

    pub(crate) fn cel(&self) -> String {
        let Some((list, variable, _)) = self.each else { return self.test.cel() };
        let all = |list: Expr| list.items(Quantity::All, variable, self.test.clone());
        match list {
            "" => all(this()).cel(),
            list => (!this().has(list) | all(this().field(list))).cel(),
        }
    }

    fn cause(&self, path: String, value: &Value) -> Cause {
        match self.reason {
            Reason::Invalid => Cause::invalid(path, value, &self.message),
            Reason::Required => Cause::required(path, &self.message),
            Reason::Forbidden => Cause::forbidden(path, &self.message),
            Reason::Duplicate => Cause::duplicate(path, value),
            Reason::TooLong(octets_max) => Cause::too_long(path, octets_max),
        }
    }

    /// Adds the faults of one value at the place.
    fn faults_at<'a>(&'a self, path: &str, node: &'a Value, before: Option<&'a Value>, faults: &mut Vec<Fault<'a>>) {
        let before = before.map(|before| Scope { name: "oldSelf", value: Val::of(before), outer: None });
        let scope = Scope { name: "self", value: Val::of(node), outer: before.as_ref() };
        let mut fault = |path: String, value| faults.push(Fault { cause: self.cause(path, value), value });
        let Some((list, variable, field)) = self.each else {
            // An error is a fault of the schema, which reports it: with correct types and fields, no rule fails to evaluate.
            if self.test.holds(&scope) == Some(false) {
                let field = self.field.unwrap_or_default();
                fault(joined(path, field), below(node, field));
            }
            return;
        };
        let items = below(node, list).as_array().map_or(&[][..], Vec::as_slice);
        let broken = items.iter().enumerate().filter(|(_, item)| {
            let scope = Scope { name: variable, value: Val::of(item), outer: Some(&scope) };
            self.test.holds(&scope) == Some(false)
        });
        // Of equal items, the first is valid.
        for (index, item) in broken.skip(usize::from(self.reason == Reason::Duplicate)) {
            fault(joined(&format!("{}[{index}]", joined(path, list)), field), below(item, field));
        }
    }

    fn faults<'a>(&'a self, before: Option<&'a Value>, object: &'a Value, faults: &mut Vec<Fault<'a>>) {
        if !self.place.contains("[]") {
            let there = |object: &'a Value| Some(below(object, &self.place)).filter(|value| !value.is_null());
            let before = before.and_then(there);
            if let Some(value) = there(object).filter(|_| before.is_some() || !self.compares) {
                self.faults_at(&self.place, value, before, faults);
            }
            return;
        }
        // Items of a list cannot be matched after a change, so no rule about them compares.
        let mut values = vec![(String::new(), object)];
        for part in self.place.split('.').filter(|part| !part.is_empty()) {
            let name = part.trim_end_matches("[]");
            let inner = values.into_iter().filter_map(|(path, value)| {
                let inner = value.get(name).filter(|inner| !inner.is_null())?;
                Some((joined(&path, name), inner))
            });
            values = match name == part {
                true => inner.collect(),
                false => inner
                    .flat_map(|(path, list)| {
                        let items = list.as_array().map_or(&[][..], Vec::as_slice).iter().enumerate();
                        items.map(move |(index, item)| (format!("{path}[{index}]"), item))
                    })
                    .collect(),
            };
        }
        values.into_iter().for_each(|(path, value)| self.faults_at(&path, value, None, faults));
    }
}

#[derive(PartialEq, Eq, Hash)]
struct Fault<'a> {
    cause: Cause,
    value: &'a Value,
}

fn joined(path: &str, field: &str) -> String {
    match (path, field) {
        (path, "") => path.to_owned(),
        ("", field) => field.to_owned(),
        (path, field) => format!("{path}.{field}"),
    }
}

/// Returns the value of a field, such as `metadata.name`.
fn below<'a>(value: &'a Value, field: &str) -> &'a Value {
    field.split('.').filter(|name| !name.is_empty()).fold(value, |value, name| &value[name])
}

/// Returns the faults of an object: of each field the first. `before` is the object as stored if it is an update.
pub(crate) fn check(rules: &[Rule], before: Option<&Value>, object: &Value) -> Vec<Cause> {
    let mut faults = Vec::new();
    rules.iter().filter(|rule| !rule.cluster_only).for_each(|rule| rule.faults(before, object, &mut faults));
    if let Some(before) = before
        && !faults.is_empty()
    {
        let mut known = Vec::new();
        rules.iter().for_each(|rule| rule.faults(None, before, &mut known));
        let known: HashSet<Fault<'_>> = known.into_iter().collect();
        faults.retain(|fault| !known.contains(fault));
    }
    let mut causes: Vec<Cause> = Vec::new();
    add(&mut causes, faults.into_iter().map(|fault| fault.cause));
    causes
}

/// Adds the causes at fields without a cause.
pub(crate) fn add(causes: &mut Vec<Cause>, more: impl IntoIterator<Item = Cause>) {
    let mut fields: HashSet<String> = causes.iter().map(|known| known.field.clone()).collect();
    causes.extend(more.into_iter().filter(|cause| fields.insert(cause.field.clone())));
}

/// Puts rules into the schema of a definition.
pub(crate) fn declare(rules: &[Rule], schema: &mut Value) {
    for rule in rules {
        let Some(Value::Object(node)) = at(schema, &rule.place) else { continue };
        let mut validation = json!({"rule": rule.cel(), "message": rule.message});
        // The schema of a definition does not describe the fields of metadata.
        if let Some(field) = rule.field.filter(|field| !field.starts_with("metadata")) {
            validation["fieldPath"] = format!(".{field}").into();
        }
        match rule.reason {
            Reason::Invalid | Reason::TooLong(_) => {}
            Reason::Required => validation["reason"] = "FieldValueRequired".into(),
            Reason::Forbidden => validation["reason"] = "FieldValueForbidden".into(),
            Reason::Duplicate => validation["reason"] = "FieldValueDuplicate".into(),
        }
        let list = node.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        list.as_array_mut().map(|list| list.push(validation)).unwrap_or_default();
    }
}

/// Returns rules that a name below `place` has the shape of a table of [`signpost_types::names`], one rule per line. `guard` names the
/// exceptions.
pub(crate) fn shape<E: std::fmt::Display>(
    place: &str,
    field: Option<&'static str>,
    guard: Option<Expr>,
    shapes: &'static [Shape<E>],
) -> Vec<Rule> {
    let rules = shapes.iter().map(|shape| {
        let subject = field.map_or(this(), |field| this().field(field));
        let matches = subject.matches(shape.pattern);
        let good = if shape.must_match { matches } else { !matches };
        let test = match &guard {
            Some(guard) => guard.clone() | good,
            None => good,
        };
        Rule { field, ..Rule::new(place, test, shape.error.to_string()) }
    });
    rules.collect()
}

/// Returns the rule that a text is an address or a network.
pub(crate) fn network(place: &str) -> Rule {
    let is_v6 = this().matches(":");
    let v6 = this().matches("^[^/]+(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?$");
    let v4 = this().matches("^[^/]+(/(3[0-2]|[12]?[0-9]))?$");
    Rule::new(
        place,
        this().call(Function::Part('/', 0)).call(Function::IsIp) & is_v6.choose(v6, v4),
        "must be an address or a network, such as 192.0.2.0/24 or 2001:db8::/32; not an IPv4-mapped one",
    )
}

/// Returns rules that these required fields of `spec` do not change.
pub(crate) fn immutable(fields: &[&'static str], message: &'static str) -> Vec<Rule> {
    let rule =
        |field: &&'static str| Rule::new("spec", this().field(field).is(old().field(field)), message).about(field);
    fields.iter().map(rule).collect()
}

/// Returns rules that these required texts are not empty.
pub(crate) fn not_empty(places: &[&str], message: &str) -> Vec<Rule> {
    places.iter().map(|place| Rule::new(*place, !this().is(""), message).required()).collect()
}

#[cfg(test)]
mod cost;
#[cfg(test)]
mod tests;
