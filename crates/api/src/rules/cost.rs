//! The cost of a definition's rules by the estimate of the Kubernetes API server, which rejects definitions that cost too much.
//!
//! The estimate is that of cel-go's `checker/cost.go`, with the sizes of Kubernetes' `apiextensions`. A text has `maxLength`
//! characters of four octets or, if unbounded, the length of a request. A list or map has `maxItems` or `maxProperties` entries,
//! or as many as fit into a request. `metadata.name` is not bounded there. The cost of a rule is multiplied by the number of its
//! places in an object. Only the maximum matters, so minimum costs are left out.

use cel::common::ast::{Expr, IdedExpr, LiteralValue};
use cel::parser::Parser;
use serde_json::Value;

/// The maximum size of a request in octets.
const REQUEST_OCTETS: u64 = 3 * 1024 * 1024;
/// The maximum cost of a rule, over all places of an object.
pub(super) const RULE_MAX: u64 = 10_000_000;
/// The maximum cost of all rules of a definition.
pub(super) const DEFINITION_MAX: u64 = 100_000_000;
/// The size of unbounded values.
const UNKNOWN: u64 = u64::MAX;

/// Returns the cost of `rule` at `place` in the whole `schema`.
pub(super) fn cost(schema: &Value, place: &str, rule: &str) -> u64 {
    let (mut node, mut times) = (schema, 1_u64);
    for part in place.split('.').filter(|part| !part.is_empty()) {
        let name = part.trim_end_matches("[]").trim_end_matches("{}");
        node = &node["properties"][name];
        if name != part {
            times = times.saturating_mul(size(node));
            node = if part.ends_with("[]") { &node["items"] } else { &node["additionalProperties"] };
        }
    }
    let parsed = Parser::new().parse(rule).unwrap_or_else(|error| panic!("{rule}: {error}"));
    let root = if place.is_empty() { What::Object(node) } else { What::Schema(node) };
    let mut estimator = Estimator { root, variables: Vec::new() };
    estimator.of(&parsed).cost.saturating_mul(times)
}

/// Returns the maximum number of characters, items, or entries.
fn size(schema: &Value) -> u64 {
    let bound = |name: &str| schema[name].as_u64();
    if schema["x-kubernetes-int-or-string"] == true {
        return REQUEST_OCTETS - 2;
    }
    match schema["type"].as_str() {
        Some("string") => match (bound("maxLength"), schema["enum"].as_array(), schema["format"].as_str()) {
            (_, _, Some("date-time" | "date" | "duration")) => 32,
            (Some(characters), ..) => characters * 4,
            (None, Some(values), _) => {
                values.iter().filter_map(Value::as_str).map(|value| value.len() as u64).max().unwrap_or(0)
            }
            _ => REQUEST_OCTETS - 2,
        },
        Some("array") => {
            bound("maxItems").unwrap_or_else(|| (REQUEST_OCTETS - 2) / (least_octets(&schema["items"]) + 1))
        }
        Some("object") if !schema["additionalProperties"].is_null() => bound("maxProperties")
            .unwrap_or_else(|| (REQUEST_OCTETS - 2) / (least_octets(&schema["additionalProperties"]) + 6)),
        Some("object") => UNKNOWN,
        _ => 1,
    }
}

/// Returns the minimum size of a value in a request, in octets.
fn least_octets(schema: &Value) -> u64 {
    match schema["type"].as_str() {
        Some("object" | "array") => {
            let required: Vec<&str> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let fields = required.iter().filter(|name| schema["properties"][*name]["default"].is_null());
            2 + fields.map(|name| name.len() as u64 + 4 + least_octets(&schema["properties"][*name])).sum::<u64>()
        }
        Some("string") => 2,
        Some("boolean") => 4,
        _ => 1,
    }
}

/// The value of an expression.
#[derive(Clone, Copy)]
enum What<'a> {
    /// A whole object, whose metadata has only a name.
    Object(&'a Value),
    Metadata,
    Schema(&'a Value),
    /// The list result of a function: the estimate assumes that its items are as long as the value to which the rule applies.
    Made,
    /// The accumulator of a macro.
    Gathered,
    /// Any other value, with or without a known size.
    Other,
}

#[derive(Clone, Copy)]
struct Found<'a> {
    cost: u64,
    size: u64,
    what: What<'a>,
}

struct Estimator<'a> {
    root: What<'a>,
    variables: Vec<(String, Found<'a>)>,
}

/// Returns `percent` percent of `size`, rounded up.
fn part(size: u64, percent: u64) -> u64 {
    if size == UNKNOWN { UNKNOWN } else { size.saturating_mul(percent).div_ceil(100) }
}

fn traversal(size: u64) -> u64 {
    part(size, 10)
}

impl<'a> Estimator<'a> {
    fn of(&mut self, expression: &IdedExpr) -> Found<'a> {
        let scalar = |cost: u64| Found { cost, size: 1, what: What::Other };
        match &expression.expr {
            Expr::Literal(LiteralValue::String(text)) => {
                Found { size: text.inner().chars().count() as u64, ..scalar(0) }
            }
            Expr::Literal(_) | Expr::Unspecified => scalar(0),
            Expr::Ident(name) => {
                let known = self.variables.iter().rev().find(|(variable, _)| variable == name);
                match known {
                    Some((_, found)) => Found { cost: 1, ..*found },
                    None if name == "self" || name == "oldSelf" => Found { cost: 1, ..self.value(self.root) },
                    None => panic!("nothing is known of {name}"),
                }
            }
            Expr::Select(select) => {
                let operand = self.of(&select.operand);
                let cost = operand.cost.saturating_add(1);
                if select.test {
                    return scalar(cost);
                }
                let field = select.field.strip_prefix("__").and_then(|name| name.strip_suffix("__"));
                let what = match (operand.what, field.unwrap_or(&select.field)) {
                    (What::Object(_), "metadata") => What::Metadata,
                    (What::Metadata, "name") => return Found { size: REQUEST_OCTETS - 2, ..scalar(cost) },
                    (What::Object(schema) | What::Schema(schema), name) => {
                        let inner = &schema["properties"][name];
                        assert!(!inner.is_null(), "there is no field {name}");
                        What::Schema(inner)
                    }
                    (_, name) => panic!("nothing is known of what has the field {name}"),
                };
                Found { cost, ..self.value(what) }
            }
            Expr::List(list) => {
                let cost = list.elements.iter().fold(10, |sum: u64, one| sum.saturating_add(self.of(one).cost));
                Found { cost, size: list.elements.len() as u64, what: What::Made }
            }
            Expr::Call(call) => {
                let target = call.target.as_deref().map(|target| self.of(target));
                let arguments: Vec<Found<'a>> = call.args.iter().map(|argument| self.of(argument)).collect();
                self.call(&call.func_name, target, &arguments)
            }
            Expr::Comprehension(all) => {
                let (range, first) = (self.of(&all.iter_range), self.of(&all.accu_init));
                assert!(all.iter_var2.is_none(), "macros of two variables are not known here");
                let item = match range.what {
                    What::Schema(schema) if schema["type"] == "array" => self.value(What::Schema(&schema["items"])),
                    // The server does not know the length of keys, and assumes that they are empty.
                    What::Schema(_) => Found { size: 0, ..scalar(1) },
                    _ => Found { size: self.value(self.root).size, ..scalar(1) },
                };
                self.variables.push((all.accu_var.clone(), Found { what: What::Gathered, ..scalar(1) }));
                self.variables.push((all.iter_var.clone(), item));
                let turn = self.of(&all.loop_cond).cost.saturating_add(self.of(&all.loop_step).cost);
                self.variables.pop();
                let result = self.of(&all.result).cost;
                self.variables.pop();
                let cost = [first.cost, result, range.size.saturating_mul(turn)];
                let cost = cost.into_iter().fold(range.cost, u64::saturating_add);
                match all.accu_init.expr {
                    Expr::List(_) => Found { cost, size: range.size, what: What::Made },
                    _ => scalar(cost),
                }
            }
            Expr::Map(_) | Expr::Struct(_) => panic!("rules make no maps"),
        }
    }

    fn value(&self, what: What<'a>) -> Found<'a> {
        let size = match what {
            What::Schema(schema) => size(schema),
            _ => UNKNOWN,
        };
        Found { cost: 1, size, what }
    }

    fn call(&self, name: &str, target: Option<Found<'a>>, arguments: &[Found<'a>]) -> Found<'a> {
        let sum = arguments.iter().chain(&target).fold(0, |sum: u64, one| sum.saturating_add(one.cost));
        let at = |index: usize| arguments.get(index).map_or(UNKNOWN, |one| one.size);
        let on = target.map_or(UNKNOWN, |target| target.size);
        let scalar = |cost: u64| Found { cost: sum.saturating_add(cost), size: 1, what: What::Other };
        let text = |cost: u64, size: u64| Found { size, ..scalar(cost) };
        match (name, arguments) {
            ("_&&_" | "_||_", _) => scalar(0),
            ("_?_:_", [condition, one, other]) => Found {
                cost: condition.cost.saturating_add(one.cost.max(other.cost)),
                size: one.size.max(other.size),
                what: if one.size >= other.size { one.what } else { other.what },
            },
            ("_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_", _) => scalar(traversal(at(0).min(at(1)))),
            // For lists, and for the counts of macros.
            ("_+_", [one, other]) if [one, other].iter().any(|one| matches!(one.what, What::Gathered | What::Made)) => {
                Found { what: What::Made, ..scalar(1) }
            }
            ("_+_", _) => text(traversal(at(0).saturating_add(at(1))), at(0).saturating_add(at(1))),
            ("@in", _) => scalar(at(1)),
            ("_[_]", [of, _]) => {
                let inner = match of.what {
                    What::Schema(schema) if schema["type"] == "array" => self.value(What::Schema(&schema["items"])),
                    What::Schema(schema) => self.value(What::Schema(&schema["additionalProperties"])),
                    _ => Found { what: What::Other, ..self.value(self.root) },
                };
                Found { cost: sum.saturating_add(1), ..inner }
            }
            ("matches", _) => scalar(traversal(on.saturating_add(1)).saturating_mul(part(at(0), 25))),
            ("contains", _) => scalar(traversal(on).saturating_mul(traversal(at(0)))),
            ("startsWith" | "endsWith", _) => scalar(traversal(at(0))),
            ("lowerAscii" | "upperAscii" | "substring" | "trim", _) => text(traversal(on), on),
            // The replacement is never longer here.
            ("replace", _) => text(part(on, 20), on),
            ("split", _) => Found { what: What::Made, ..text(part(on, 20), on) },
            ("indexOf", _) => scalar(traversal(on)),
            ("bytes", _) => text(traversal(at(0)), at(0).saturating_mul(4)),
            ("string", _) => text(1, UNKNOWN),
            (
                "!_"
                | "-_"
                | "size"
                | "isIP"
                | "ip"
                | "family"
                | "isLoopback"
                | "isUnspecified"
                | "isGlobalUnicast"
                | "isLinkLocalUnicast"
                | "@not_strictly_false",
                _,
            ) => scalar(1),
            _ => panic!("nothing is known of what {name} costs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Costs from error messages of API servers.
    #[test]
    fn the_estimate_is_the_servers() {
        let schema = json!({"type": "object", "properties": {
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {
                "text": {"type": "string", "maxLength": 10},
                "list": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 10}},
                "long": {"type": "array", "items": {"type": "string"}}}}}});
        for (place, rule, expected) in [
            ("spec.text", "self == 'x'", 2),
            // 41 divided by ten, rounded up, with a regular expression of three characters, which counts as one.
            ("spec.text", "self.matches('abc')", 6),
            ("spec.list[]", "self == 'x'", 10),
            // For each item: the condition 2, the result so far 1, the rule's own 1, which compares nothing; and 2 around them.
            ("spec.list", "self.all(one, one != '')", 22),
            ("", "self.metadata.name.matches('0123456789')", 943_722),
            // The maximum number of items of two octets and a comma in a request.
            ("spec.long[]", "self == 'x'", 2_097_150),
        ] {
            assert_eq!(cost(&schema, place, rule), expected, "{place} {rule}");
        }
        // A pattern of this length exceeded the budget by a factor of 1.2.
        let long = format!("self.metadata.name.matches('{}')", "x".repeat(155));
        assert_eq!(cost(&schema, "", &long), 12_268_350);
    }
}
