//! Values in the file, the environment, and flags: the texts of each key, with their locations.
//!
//! Flags win over environment variables, those over the file, and that over the defaults. All values of a key come from one
//! place: lists of two places are never joined.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{self, Key, VARIABLE_PREFIX};
use super::reader::{Layer, SetValues, Source};
use super::rule::{Arity, Form, split};
use super::settings::KEYS;
use super::{Error, Errors, find};

/// Reads the values in the text of the file `path`.
///
/// # Errors
///
/// All errors, in the order of their lines.
pub fn from_file(path: &Path, text: &str) -> Result<Layer, Errors> {
    let mut file = File { path, text, layer: Layer::new(), errors: Vec::new() };
    match DeTable::parse(text) {
        Ok(table) => file.table("", table.get_ref()),
        Err(error) => {
            file.errors.push((error.span().unwrap_or(0..0).start, error.message().to_owned()));
        }
    }
    file.errors.sort_by_key(|(at, _)| *at);
    let located =
        file.errors.iter().map(|(at, message)| Error { at: Some(file.source(*at)), message: message.clone() });
    Errors::unless_empty(located.collect()).map(|()| file.layer)
}

/// The file while it is read.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
    layer: Layer,
    errors: Vec<(usize, String)>,
}

/// A value of another type: its location, the expected type, and the found value.
type Wrong = (Range<usize>, &'static str, String);

impl File<'_> {
    fn source(&self, offset: usize) -> Source {
        let (line, column) = position(self.text, offset);
        Source::File { path: self.path.to_owned(), line, column }
    }

    fn table(&mut self, above: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let path =
                if above.is_empty() { name.get_ref().to_string() } else { format!("{above}.{}", name.get_ref()) };
            let inner = format!("{path}.");
            let is_table = KEYS.iter().any(|key| key.table == path || key.table.starts_with(&inner));
            match (find(&path), value.get_ref()) {
                (Some(key), _) => self.value(key, value),
                (None, DeValue::Table(below)) if is_table => self.table(&path, below),
                (None, found) => {
                    self.errors.push((name.span().start, unknown(above, name.get_ref(), found, is_table)));
                }
            }
        }
    }

    fn value(&mut self, key: &'static Key, value: &Spanned<DeValue<'_>>) {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        let source = self.source(value.span().start);
        match texts(key, value, directory) {
            Ok(values) => {
                self.layer.insert(key.path.as_str(), SetValues { values, source });
            }
            Err((span, expected, found)) => {
                let line = match expected.starts_with("without") {
                    true => String::new(),
                    false => format!("; write {}", key.assignment(&likely_value(key, value.get_ref()))),
                };
                self.errors.push((span.start, format!("\"{}\" must be {expected}, found {found}{line}", key.path)));
            }
        }
    }
}

/// Returns the value that was probably meant by one of another type.
fn likely_value(key: &Key, found: &DeValue<'_>) -> String {
    match (key.shape.form, found) {
        (Form::Duration, DeValue::Integer(number)) => format!("{}s", number.as_str()),
        (Form::Boolean, DeValue::String(text)) => (!matches!(&**text, "off" | "no" | "false")).to_string(),
        (Form::Integer, DeValue::String(text)) if text.parse::<u64>().is_ok() => text.to_string(),
        (Form::Text | Form::Path, DeValue::String(text)) if key.is_list() => text.to_string(),
        _ => key.example().to_owned(),
    }
}

/// Returns the error of a name in the file that is not the name of a key.
fn unknown(above: &str, name: &str, value: &DeValue<'_>, is_table: bool) -> String {
    let path = if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") };
    if is_table {
        return format!("\"{path}\" must be a table, found {}; write [{path}]", value.type_str());
    }
    let of_flag = KEYS.iter().find(|key| key.flag == name).map(|key| key.path.as_str());
    let nearest = || match value {
        DeValue::Table(_) => key::nearest(&path, KEYS.iter().map(|key| key.table).filter(|table| !table.is_empty())),
        _ => key::nearest(&path, KEYS.iter().map(|key| key.path.as_str())),
    };
    let suggestion = of_flag.or_else(nearest).map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default();
    format!("unknown key \"{path}\"{suggestion}; docs/configuration.md lists all keys")
}

fn wrong(value: &Spanned<DeValue<'_>>, expected: &'static str) -> Wrong {
    let found = match value.get_ref() {
        DeValue::String(text) => format!("string \"{text}\""),
        DeValue::Integer(number) => format!("integer {}", number.as_str()),
        other => other.type_str().to_owned(),
    };
    (value.span(), expected, found)
}

/// Returns the texts of a value in the file.
fn texts(key: &Key, value: &Spanned<DeValue<'_>>, directory: &Path) -> Result<Vec<String>, Wrong> {
    let expected = match key.shape.form {
        Form::Tables { .. } => "an array of tables, or of strings such as \"key=value,key=value\"",
        _ if key.is_list() => "an array of strings",
        Form::Boolean => "a boolean",
        Form::Integer => "a whole number",
        Form::Duration => "a duration (a string)",
        Form::Size => "a size (a string, or a number of bytes)",
        _ => "a string",
    };
    let text = |value: &Spanned<DeValue<'_>>| match (key.shape.form, value.get_ref()) {
        (Form::Path, DeValue::String(text)) => Ok(directory.join(&**text).to_string_lossy().into_owned()),
        (Form::Text | Form::Duration | Form::Size | Form::Tables { .. }, DeValue::String(text)) => Ok(text.to_string()),
        (Form::Boolean, DeValue::Boolean(is_true)) => Ok(is_true.to_string()),
        (Form::Integer | Form::Size, DeValue::Integer(number)) => Ok(number.as_str().to_owned()),
        (Form::Tables { paths, .. }, DeValue::Table(table)) => pairs(paths, table, directory),
        _ => Err(wrong(value, expected)),
    };
    match (key.shape.arity, value.get_ref()) {
        (Arity::One, _) => text(value).map(|text| vec![text]),
        (Arity::List { .. }, DeValue::Array(items)) => items.iter().map(text).collect(),
        (Arity::List { .. }, _) => Err(wrong(value, expected)),
    }
}

/// Returns a table as `key=value` pairs. Commas separate them, so no value may contain one.
fn pairs(paths: &[&str], table: &DeTable<'_>, directory: &Path) -> Result<String, Wrong> {
    let mut pairs = Vec::new();
    for (name, value) in table {
        let several = match value.get_ref() {
            DeValue::Array(values) => values.iter().collect(),
            _ => vec![value],
        };
        for value in several {
            let key: &str = name.get_ref();
            let text = match value.get_ref() {
                DeValue::Boolean(is_true) => is_true.to_string(),
                DeValue::String(text) if text.contains(',') => {
                    return Err((value.span(), "without commas in its values", "a comma".to_owned()));
                }
                DeValue::String(text) if paths.contains(&key) && !text.contains("://") => {
                    directory.join(&**text).to_string_lossy().into_owned()
                }
                DeValue::String(text) => text.to_string(),
                _ => return Err(wrong(value, "strings, booleans, or arrays of strings, in its tables")),
            };
            pairs.push(format!("{key}={text}"));
        }
    }
    Ok(pairs.join(","))
}

/// Reads the environment. Unknown variables with our prefix are not an error, because Kubernetes sets such variables
/// (`SIGNPOST_SERVICE_HOST`) for a Service of our name; [`unknown_variables`] lists them for a warning.
pub fn from_environment(variables: &[(String, String)]) -> Layer {
    let given = |key: &'static Key| {
        let variable = key.variable();
        let (name, text) = variables.iter().find(|(name, text)| *name == variable && !text.is_empty())?;
        let separators = if let Arity::List { variable, .. } = key.shape.arity { variable } else { &[] };
        Some((key.path.as_str(), SetValues { values: split(text, separators), source: Source::Variable(name.clone()) }))
    };
    KEYS.iter().filter_map(given).collect()
}

/// Returns the values of a flag, which may have been given several times.
pub fn from_flag<'a>(key: &'static Key, given: impl Iterator<Item = &'a String>) -> SetValues {
    let separators = if let Arity::List { flag, .. } = key.shape.arity { flag } else { &[] };
    let values = given.flat_map(|value| split(value, separators)).collect();
    SetValues { values, source: Source::Flag(format!("--{}", key.flag)) }
}

/// Variables with our prefix that are not known, each with the most similar known variable.
pub fn unknown_variables(variables: &[(String, String)]) -> Vec<(String, Option<String>)> {
    let is_known = |name: &str| name == "SIGNPOST_CONFIG" || KEYS.iter().any(|key| key.variable() == name);
    let set_by_kubernetes = |name: &str| name.contains("_SERVICE_") || name.contains("_PORT");
    let names = variables.iter().map(|(name, _)| name.as_str());
    names
        .filter(|name| name.starts_with(VARIABLE_PREFIX) && !is_known(name) && !set_by_kubernetes(name))
        .map(|name| {
            let stem = name[VARIABLE_PREFIX.len()..].to_ascii_lowercase();
            let nearest = key::nearest(&stem, KEYS.iter().map(|key| key.flag.as_str()));
            (name.to_owned(), nearest.map(key::variable))
        })
        .collect()
}

/// Returns the line and the column in characters, both from 1 on, of an octet of `text`.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
