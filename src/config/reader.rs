//! Converts the texts of values, with their locations, to the fields of the settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::Error;
use super::key::Key;
use super::rule::{Arity, Field, Rule};

/// The location of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Flag(String),
    /// An environment variable.
    Variable(String),
    /// The configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// The column in characters, from 1 on.
        column: usize,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag(flag) => write!(f, "flag {flag}"),
            Source::Variable(variable) => write!(f, "environment variable {variable}"),
            Source::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
        }
    }
}

/// The values of a key in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetValues {
    /// The values as texts; one unless the key is a list.
    pub values: Vec<String>,
    /// The location.
    pub source: Source,
}

/// Values by the paths of their keys.
pub type Layer = BTreeMap<&'static str, SetValues>;

/// Reads settings one by one and collects the errors.
pub struct Reader<'a> {
    pub(super) layer: &'a Layer,
    pub(super) errors: Vec<Error>,
}

impl Reader<'_> {
    pub(super) fn read<T, F: Field<T>>(&mut self, key: &Key, rule: &Rule<T>) -> F {
        let values = match self.layer.get(key.path.as_str()) {
            Some(given) => self.values(key, given, rule),
            None => defaults(key, rule),
        };
        // A value with an error is missing; the default takes its place until the errors are reported.
        let field = F::collect(values).or_else(|| F::collect(defaults(key, rule)));
        field.expect("a setting that needs a value has a default")
    }

    fn values<T>(&mut self, key: &Key, given: &SetValues, rule: &Rule<T>) -> Vec<T> {
        let before = self.errors.len();
        let mut error = |found: &str, expected: String| {
            let found = if key.is_secret { "(not shown)" } else { found };
            let message = format!("\"{}\" is \"{found}\": {expected}", key.path);
            self.errors.push(Error { at: Some(given.source.clone()), message });
        };
        let mut values: Vec<T> = Vec::new();
        for text in &given.values {
            match (rule.parse)(text) {
                Ok(value) if values.iter().any(|earlier| (rule.clashes)(earlier, &value)) => {
                    error(text, "given twice".to_owned());
                }
                Ok(value) => values.push(value),
                Err(expected) => error(text, expected),
            }
        }
        if given.values.len() < rule.values_min {
            error("", format!("give at least one {}", rule.shape.value_name));
        } else if given.values.len() > rule.values_max {
            error(&format!("{} values", given.values.len()), format!("must have at most {} values", rule.values_max));
        }
        if self.errors.len() > before { Vec::new() } else { values }
    }
}

fn defaults<T>(key: &Key, rule: &Rule<T>) -> Vec<T> {
    let Some(text) = key.default.value else { return Vec::new() };
    let texts = match key.shape.arity {
        Arity::One => vec![text],
        Arity::List { .. } => text.split(',').collect(),
    };
    texts.into_iter().map(|text| (rule.parse)(text).expect("a default is valid")).collect()
}
