//! From the three places where keys are set to one list of texts for each key, with where it stood.
//!
//! Flags win over environment variables, those over the file, and that over the defaults. A key is taken from one place
//! whole: lists of two places are never joined.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, KEYS, Key, Shape, VARIABLE_PREFIX};

/// Where a value stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// On the command line.
    Flag(String),
    /// In the environment.
    Variable(String),
    /// In the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// Line, from 1 on.
        line: usize,
        /// Column in characters, from 1 on.
        column: usize,
    },
    /// Nowhere.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag(flag) => write!(f, "flag {flag}"),
            Source::Variable(variable) => write!(f, "environment variable {variable}"),
            Source::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Source::Default => write!(f, "default"),
        }
    }
}

/// What was given for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Its values as text; one unless the key is a list.
    pub values: Vec<String>,
    /// Where they stood.
    pub source: Source,
}

/// Keys with what was given for them.
pub type Layer = BTreeMap<&'static str, Given>;

/// A fault in the file or in a variable, before values are looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayerError {
    /// The file cannot be read.
    #[error("{}: cannot read the configuration file: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The file is no TOML.
    #[error("{at}: {message}")]
    Syntax {
        /// Where.
        at: Source,
        /// What the TOML reader says.
        message: String,
    },
    /// No such key.
    #[error("{at}: unknown key \"{key}\"{}; docs/configuration.md lists all keys", did_you_mean(*suggestion))]
    UnknownKey {
        /// Where.
        at: Source,
        /// What was found.
        key: String,
        /// The known key most like it.
        suggestion: Option<&'static str>,
    },
    /// A value of the wrong type.
    #[error("{at}: \"{key}\" must be {expected}, found {found}{}", example(key))]
    WrongType {
        /// Where.
        at: Source,
        /// The key.
        key: &'static str,
        /// What it must be.
        expected: &'static str,
        /// TOML's word for what it is.
        found: &'static str,
    },
}

/// A value as the key takes it, to follow what is wrong with another one.
fn example(key: &str) -> String {
    let Some(key) = keys::find(key) else { return String::new() };
    let value = match (key.shape, key.value_name) {
        (Shape::Text, "DURATION") => "\"5s\"",
        (Shape::Text, "SWITCH") => "\"on\"",
        (Shape::Text, "NAME") => "\"apps.example.com\"",
        (Shape::Path, "DIR") => "\"/var/lib/signpost\"",
        (Shape::Path, _) => "\"/etc/signpost/file\"",
        (Shape::Count, _) => "5",
        (Shape::List { .. }, "ADDR:PORT") => "[\"127.0.0.1:5300\"]",
        (Shape::List { .. }, "NAME=ADDR[,ADDR]") => "[\"ns1.apps.example.com=192.0.2.53\"]",
        _ => return String::new(),
    };
    format!(", such as {} = {value}", key.name)
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default()
}

/// Reads the file layer from the text of `path`. All faults are reported, not just the first.
pub fn from_file(path: &Path, text: &str) -> Result<Layer, Vec<LayerError>> {
    let place = |span: Range<usize>| {
        let (line, column) = position(text, span.start);
        Source::File { path: path.to_owned(), line, column }
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = place(error.span().unwrap_or(0..0));
        vec![LayerError::Syntax { at, message: error.message().to_owned() }]
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut layer = Layer::new();
    let mut errors = Vec::new();
    for (name, value) in table.get_ref() {
        let at = place(name.span());
        let Some(key) = keys::find(name.get_ref()) else {
            let key = name.get_ref().to_string();
            let suggestion = keys::nearest(&key, KEYS.iter().map(|key| key.name));
            errors.push(LayerError::UnknownKey { at, key, suggestion });
            continue;
        };
        match texts(key, value, folder) {
            Ok(values) => {
                layer.insert(key.name, Given { values, source: place(value.span()) });
            }
            Err((span, expected, found)) => {
                errors.push(LayerError::WrongType { at: place(span), key: key.name, expected, found })
            }
        }
    }
    errors.sort_by_key(|error| match error {
        LayerError::UnknownKey { at: Source::File { line, .. }, .. }
        | LayerError::WrongType { at: Source::File { line, .. }, .. } => *line,
        _ => 0,
    });
    if errors.is_empty() { Ok(layer) } else { Err(errors) }
}

/// The values of a key in the file, or where what was expected and what was found.
fn texts(
    key: &'static Key,
    value: &Spanned<DeValue<'_>>,
    folder: &Path,
) -> Result<Vec<String>, (Range<usize>, &'static str, &'static str)> {
    let wrong = |value: &Spanned<DeValue<'_>>, expected| (value.span(), expected, value.get_ref().type_str());
    let in_folder = |text: &str| folder.join(text).to_string_lossy().into_owned();
    match (key.shape, value.get_ref()) {
        (Shape::Text, DeValue::String(text)) => Ok(vec![text.to_string()]),
        (Shape::Path, DeValue::String(text)) => Ok(vec![in_folder(text)]),
        (Shape::Text | Shape::Path, _) => Err(wrong(value, "a string")),
        (Shape::Count, DeValue::Integer(number)) => Ok(vec![number.as_str().to_owned()]),
        (Shape::Count, _) => Err(wrong(value, "a whole number")),
        (Shape::List { .. } | Shape::Paths, DeValue::Array(items)) => {
            let text = |item: &Spanned<DeValue<'_>>| match (key.shape, item.get_ref()) {
                (Shape::Paths, DeValue::String(text)) => Ok(in_folder(text)),
                (_, DeValue::String(text)) => Ok(text.to_string()),
                _ => Err(wrong(item, "an array of strings")),
            };
            items.iter().map(text).collect()
        }
        (Shape::List { .. } | Shape::Paths, _) => Err(wrong(value, "an array of strings")),
        (Shape::Tables { paths }, DeValue::Array(items)) => {
            items.iter().map(|item| pairs(paths, item, folder)).collect()
        }
        (Shape::Tables { .. }, _) => Err(wrong(value, TABLES)),
    }
}

const TABLES: &str = "an array of tables, or of strings such as \"key=value,key=value\"";

/// A table as `key=value` pairs. Commas part them, so no value may hold one.
fn pairs(
    paths: &[&str],
    item: &Spanned<DeValue<'_>>,
    folder: &Path,
) -> Result<String, (Range<usize>, &'static str, &'static str)> {
    let table = match item.get_ref() {
        DeValue::String(text) => return Ok(text.to_string()),
        DeValue::Table(table) => table,
        other => return Err((item.span(), TABLES, other.type_str())),
    };
    let mut pairs = Vec::new();
    for (name, value) in table {
        let several = match value.get_ref() {
            DeValue::Array(values) => values.iter().collect(),
            _ => vec![value],
        };
        for value in several {
            let DeValue::String(text) = value.get_ref() else {
                return Err((value.span(), "strings, or arrays of strings, in its tables", value.get_ref().type_str()));
            };
            if text.contains(',') {
                return Err((value.span(), "without commas in its values", "a comma"));
            }
            let key: &str = name.get_ref();
            let is_path = paths.contains(&key) && !text.contains("://");
            let text = if is_path { folder.join(&**text).to_string_lossy().into_owned() } else { text.to_string() };
            pairs.push(format!("{key}={text}"));
        }
    }
    Ok(pairs.join(","))
}

/// Reads the environment layer. Variables of ours that are no key are left alone, since Kubernetes itself sets such ones
/// (`SIGNPOST_SERVICE_HOST`) beside a Service of our name; [`unknown_variables`] names them for a warning.
pub fn from_environment(variables: &[(String, String)]) -> Layer {
    let given = |key: &'static Key| {
        let name = key.variable();
        let (_, text) = variables.iter().find(|(variable, text)| *variable == name && !text.is_empty())?;
        let values = split(text, key.shape.env_separators());
        Some((key.name, Given { values, source: Source::Variable(name) }))
    };
    KEYS.iter().filter_map(given).collect()
}

/// Variables that look as if meant for us and are no key, with the nearest known variable.
pub fn unknown_variables(variables: &[(String, String)]) -> Vec<(String, Option<String>)> {
    let is_known = |name: &str| name == "SIGNPOST_CONFIG" || KEYS.iter().any(|key| key.variable() == name);
    let set_by_kubernetes = |name: &str| name.contains("_SERVICE_") || name.contains("_PORT");
    let names = variables.iter().map(|(name, _)| name.as_str());
    names
        .filter(|name| name.starts_with(VARIABLE_PREFIX) && !is_known(name) && !set_by_kubernetes(name))
        .map(|name| {
            let stem = name[VARIABLE_PREFIX.len()..].to_ascii_lowercase();
            let nearest = keys::nearest(&stem, KEYS.iter().map(|key| key.name)).and_then(keys::find);
            (name.to_owned(), nearest.map(Key::variable))
        })
        .collect()
}

/// Parts `text` at any of `separators`, leaving out empty parts; whole if there are none.
pub fn split(text: &str, separators: &[char]) -> Vec<String> {
    if separators.is_empty() {
        return vec![text.to_owned()];
    }
    text.split(separators).map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Line and column in characters, both from 1 on, of an octet of `text`.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
