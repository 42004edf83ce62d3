//! Selectors in query parameters: `labelSelector=a=b,c in (x,y),!d` and `fieldSelector=metadata.name=x,spec.host!=y`.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::error::ApiError;
use super::kind::Kind;
use super::limits::Limit;
use super::object::Object;
use super::registry::labels::{check_key, check_value};

/// The maximum length of a selector in octets. Longer ones are not realistic.
const SELECTOR_OCTETS_MAX: usize = 64 * 1024;
/// The maximum number of requirements of a selector.
const REQUIREMENTS_MAX: usize = 64;
/// The maximum number of values in all `in` and `notin` requirements of one selector.
const VALUES_MAX: usize = 1_000;

fn too_much(limit: String) -> ApiError {
    ApiError::bad_request(format!("a selector may have at most {limit}")).limited(Limit::SELECTOR)
}

/// The filter of a list or a watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// The requirements on labels; all must hold.
    labels: Vec<LabelRequirement>,
    /// The requirements on fields; all must hold.
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement {
    path: String,
    equal: bool,
    value: String,
}

impl Selector {
    /// Parses the two query parameters (empty: everything) for a kind; 400 if they are invalid or name a field that is not
    /// selectable.
    pub fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Selector, ApiError> {
        if labels.len() > SELECTOR_OCTETS_MAX || fields.len() > SELECTOR_OCTETS_MAX {
            return Err(too_much(format!("{SELECTOR_OCTETS_MAX} bytes")));
        }
        let labels =
            parse_labels(labels).map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = parse_fields(fields)?;
        for requirement in &fields {
            if kind.field(&Value::Null, &requirement.path).is_none() {
                return Err(ApiError::bad_request(format!("field label not supported: {}", requirement.path)));
            }
        }
        if labels.len() + fields.len() > REQUIREMENTS_MAX {
            return Err(too_much(format!("{REQUIREMENTS_MAX} requirements")));
        }
        let values: usize = labels.iter().map(LabelRequirement::values).sum();
        if values > VALUES_MAX {
            return Err(too_much(format!("{VALUES_MAX} values")));
        }
        Ok(Selector { labels, fields })
    }

    /// Restricts the selector to the object of that name.
    pub fn and_name(mut self, name: &str) -> Selector {
        self.fields.push(FieldRequirement { path: "metadata.name".into(), equal: true, value: name.into() });
        self
    }

    /// Returns the requirements on labels as a query parameter, which [`Self::parse`] parses into the same requirements.
    pub fn labels_text(&self) -> String {
        joined(&self.labels)
    }

    /// Returns the requirements on fields as a query parameter.
    pub fn fields_text(&self) -> String {
        joined(&self.fields)
    }

    /// Returns whether it takes everything.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns whether it takes `object`, which `kind` (a view perhaps) shows.
    pub fn matches(&self, kind: &Kind, object: &Object) -> bool {
        self.labels.iter().all(|requirement| requirement.matches(object)) && self.matches_fields(kind, object)
    }

    /// Returns whether it takes no object of the name and namespace of `object`, of which nothing else is known.
    pub fn excludes(&self, object: &Object) -> bool {
        self.fields.iter().any(|requirement| {
            let equals = match requirement.path.as_str() {
                "metadata.name" => object.name() == requirement.value,
                "metadata.namespace" => object.namespace().unwrap_or_default() == requirement.value,
                _ => return false,
            };
            equals != requirement.equal
        })
    }

    fn matches_fields(&self, kind: &Kind, object: &Object) -> bool {
        let mut viewed = None;
        self.fields.iter().all(|requirement| {
            let equals = match (requirement.path.as_str(), &kind.view) {
                ("metadata.name", _) => object.name() == requirement.value,
                ("metadata.namespace", _) => object.namespace().unwrap_or_default() == requirement.value,
                (path, None) => {
                    let at = kind.selectable_fields.iter().position(|field| *field == path);
                    at.and_then(|at| object.field(at)).is_some_and(|value| value == requirement.value)
                }
                (path, Some(view)) => {
                    let tree = viewed.get_or_insert_with(|| (view.from_stored)(object.tree_without_managed_fields()));
                    kind.field(tree, path).unwrap_or_default() == requirement.value
                }
            };
            equals == requirement.equal
        })
    }
}

fn joined(requirements: &[impl fmt::Display]) -> String {
    requirements.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let list = |values: &BTreeSet<String>| values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        match &self.operator {
            Operator::In(values) if values.len() == 1 => write!(f, "{key}={}", list(values)),
            Operator::In(values) => write!(f, "{key} in ({})", list(values)),
            Operator::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", list(values)),
            Operator::NotIn(values) => write!(f, "{key} notin ({})", list(values)),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            Operator::LessThan(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

impl fmt::Display for FieldRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, if self.equal { "=" } else { "!=" })?;
        for character in self.value.chars() {
            if matches!(character, '\\' | ',' | '=') {
                f.write_str("\\")?;
            }
            write!(f, "{character}")?;
        }
        Ok(())
    }
}

impl LabelRequirement {
    fn values(&self) -> usize {
        match &self.operator {
            Operator::In(values) | Operator::NotIn(values) => values.len(),
            _ => 0,
        }
    }

    fn matches(&self, object: &Object) -> bool {
        let found = object.labels().find(|(key, _)| **key == *self.key).map(|(_, value)| value);
        let number = || found.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => found.is_some_and(|found| values.contains(found)),
            Operator::NotIn(values) => !found.is_some_and(|found| values.contains(found)),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
            Operator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Operator::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`, `!a`, `a>5`, `a<5`, joined by commas.
fn parse_labels(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let mut requirements = Vec::new();
    for part in split_outside_parentheses(text)? {
        let part = part.trim();
        if part.is_empty() {
            if text.trim().is_empty() {
                break;
            }
            return Err("found ',', expected: !, identifier, or 'end of string'".to_owned());
        }
        requirements.push(parse_label(part)?);
    }
    Ok(requirements)
}

fn parse_label(part: &str) -> Result<LabelRequirement, String> {
    let requirement = |key: &str, operator| {
        let key = key.trim().to_owned();
        match check_key(&key) {
            Some(what) => Err(format!("invalid label key {key:?}: {what}")),
            None => Ok(LabelRequirement { key, operator }),
        }
    };
    let value = |value: &str| {
        let value = value.trim().to_owned();
        match check_value(&value) {
            Some(what) => Err(format!("invalid label value {value:?}: {what}")),
            None => Ok(value),
        }
    };
    let number = |text: &str| {
        let text = text.trim();
        text.parse().map_err(|_| format!("{text:?}: for 'Gt', 'Lt' operators, the value must be an integer"))
    };
    if let Some(key) = part.strip_prefix('!') {
        return requirement(key, Operator::DoesNotExist);
    }
    if let Some(open) = part.find('(') {
        let values = part[open + 1..].strip_suffix(')').ok_or_else(|| format!("{part:?}: expected ')' at the end"))?;
        let values = values.split(',').map(value).collect::<Result<BTreeSet<_>, _>>()?;
        let mut words = part[..open].split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => requirement(key, Operator::In(values)),
            (Some(key), Some("notin"), None) => requirement(key, Operator::NotIn(values)),
            _ => Err(format!("{part:?}: expected 'in' or 'notin' before '('")),
        };
    }
    let Some(at) = part.find(['=', '!', '>', '<']) else { return requirement(part, Operator::Exists) };
    let (key, rest) = part.split_at(at);
    if let Some(rest) = rest.strip_prefix("!=") {
        return requirement(key, Operator::NotIn(BTreeSet::from([value(rest)?])));
    }
    if let Some(rest) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        return requirement(key, Operator::In(BTreeSet::from([value(rest)?])));
    }
    match rest.split_at(1) {
        (">", rest) => requirement(key, Operator::GreaterThan(number(rest)?)),
        ("<", rest) => requirement(key, Operator::LessThan(number(rest)?)),
        _ => Err(format!("{part:?}: expected one of =, ==, !=, >, <, in, notin")),
    }
}

fn split_outside_parentheses(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match (character, inside) {
            ('(', false) => inside = true,
            (')', true) => inside = false,
            ('(', true) | (')', false) => return Err(format!("unexpected {character:?} at {at}")),
            (',', false) => {
                parts.push(&text[start..at]);
                start = at + 1;
                if parts.len() > REQUIREMENTS_MAX {
                    return Err(format!("more than {REQUIREMENTS_MAX} requirements"));
                }
            }
            _ => {}
        }
    }
    if inside {
        return Err("expected ')'".to_owned());
    }
    parts.push(&text[start..]);
    Ok(parts)
}

/// Parses `path=value`, `path==value`, `path!=value`, joined by commas; `\,`, `\=`, and `\\` are escapes.
fn parse_fields(text: &str) -> Result<Vec<FieldRequirement>, ApiError> {
    let mut requirements = Vec::new();
    for part in split_unescaped(text) {
        if part.is_empty() {
            continue;
        }
        let broken = || ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'"));
        let at = part.find(['=', '!']).ok_or_else(broken)?;
        let (path, rest) = part.split_at(at);
        let (equal, value) = match () {
            () if rest.starts_with("!=") => (false, &rest[2..]),
            () if rest.starts_with("==") => (true, &rest[2..]),
            () if rest.starts_with('=') => (true, &rest[1..]),
            () => return Err(broken()),
        };
        requirements.push(FieldRequirement { path: path.trim().to_owned(), equal, value: unescape(value) });
    }
    Ok(requirements)
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        out.push(if character == '\\' { characters.next().unwrap_or('\\') } else { character });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, labels: &[(&str, &str)]) -> Option<bool> {
        let object = Object::for_selector_tests(labels);
        let requirements = parse_labels(selector).ok()?;
        Some(requirements.iter().all(|requirement| requirement.matches(&object)))
    }

    #[test]
    fn labels() {
        let object = &[("app", "shop"), ("tier", "5"), ("example.com/x", "")][..];
        for (selector, verdict) in [
            ("", Some(true)),
            ("app=shop", Some(true)),
            ("app==shop", Some(true)),
            ("app = shop", Some(true)),
            ("app!=shop", Some(false)),
            ("other!=shop", Some(true)),
            ("app in (shop,bar)", Some(true)),
            ("app in(bar)", Some(false)),
            ("app notin (bar, baz)", Some(true)),
            ("other notin (bar)", Some(true)),
            ("app", Some(true)),
            ("!app", Some(false)),
            ("!other", Some(true)),
            ("tier>4", Some(true)),
            ("tier<5", Some(false)),
            ("app>4", Some(false)),
            ("example.com/x=", Some(true)),
            ("app in (shop),tier=5,!z", Some(true)),
            ("app in (shop", None),
            ("app)", None),
            ("app=shop,", None),
            ("-a=b", None),
            ("a b/c", None),
            ("/c", None),
            ("!x(y)/z", None),
            ("a=b c", None),
            ("tier>x", None),
            ("a of (b)", None),
        ] {
            assert_eq!(check(selector, object), verdict, "{selector}");
        }
    }

    #[test]
    fn requirements_and_values_are_bounded() {
        let kind = &*crate::registry::lease::LEASE;
        let labels = |count: usize| (0..count).map(|i| format!("k{i}")).collect::<Vec<_>>().join(",");
        let fields = |count: usize| vec!["metadata.name!=x"; count].join(",");
        let values =
            |count: usize| format!("a in ({})", (0..count).map(|i| i.to_string()).collect::<Vec<_>>().join(","));
        for (labels, fields, good) in [
            (labels(REQUIREMENTS_MAX), String::new(), true),
            (labels(REQUIREMENTS_MAX + 1), String::new(), false),
            (String::new(), fields(REQUIREMENTS_MAX + 1), false),
            (labels(REQUIREMENTS_MAX), fields(1), false),
            (values(VALUES_MAX), String::new(), true),
            (values(VALUES_MAX + 1), String::new(), false),
        ] {
            let parsed = Selector::parse(kind, &labels, &fields);
            assert_eq!(parsed.is_ok(), good, "{labels} {fields}");
            assert!(parsed.err().is_none_or(|error| error.code == 400));
        }
    }

    #[test]
    fn fields() {
        let parsed = parse_fields(r"metadata.name=a,spec.host!=b\,c,,x==y").expect("right");
        let reported: Vec<_> = parsed.iter().map(|one| (one.path.as_str(), one.equal, one.value.as_str())).collect();
        assert_eq!(reported, [("metadata.name", true, "a"), ("spec.host", false, "b,c"), ("x", true, "y")]);
        assert!(parse_fields("metadata.name").is_err());
        assert!(parse_fields("a!b").is_err());
    }
}
