//! Tables: lists as `kubectl get` prints them, with the columns of the kind.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::error::{ApiError, Cause};
use super::object::{Object, without_managed_fields};
use super::registry::Kind;
use super::request::Query;
use super::respond;

/// What each row carries beside its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    /// The object's metadata.
    Metadata,
    /// The whole object.
    Object,
    /// Nothing.
    None,
}

impl Include {
    /// The query parameter `includeObject`; 422 if it is none of the three.
    pub fn parse(query: &Query) -> Result<Self, ApiError> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Include::Metadata),
            "Object" => Ok(Include::Object),
            "None" => Ok(Include::None),
            other => {
                let message =
                    format!("Unsupported value: {other:?}: supported values: \"Metadata\", \"None\", \"Object\"");
                let cause = Cause::new("FieldValueNotSupported", "includeObject", message);
                Err(ApiError::invalid_of("TableOptions", "meta.k8s.io", "", vec![cause]))
            }
        }
    }
}

/// The rows of objects, joined by commas.
pub fn rows<'a>(kind: &Kind, include: Include, objects: impl Iterator<Item = &'a Object>) -> Vec<u8> {
    let now = Timestamp::now().as_second();
    let mut out = Vec::new();
    for object in objects {
        if !out.is_empty() {
            out.push(b',');
        }
        row(&mut out, kind, include, object, now);
    }
    out
}

/// Appends the row of one object; `now` is in seconds since the epoch.
pub fn row(out: &mut Vec<u8>, kind: &Kind, include: Include, object: &Object, now: i64) {
    let json = object.json();
    let tree = without_managed_fields(&json);
    let tree = match kind.view {
        None => tree,
        Some(view) => (view.from_stored)(tree),
    };
    out.extend_from_slice(b"{\"cells\":[");
    let name = if names_itself(kind) { None } else { Some(Value::from(object.name())) };
    let cells = kind.columns.iter().map(|column| (column.cell)(&tree, now));
    for (index, cell) in name.into_iter().chain(cells).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, &cell);
    }
    out.push(b']');
    match include {
        Include::None => {}
        Include::Metadata => {
            out.extend_from_slice(b",\"object\":");
            respond::write_metadata(out, &object.metadata_of(&json));
        }
        Include::Object => {
            out.extend_from_slice(b",\"object\":");
            out.extend_from_slice(&respond::as_json(kind, object));
        }
    }
    out.push(b'}');
}

/// A table of rows that [`rows`] made. In a watch only the first has the columns.
pub fn table(kind: &Kind, metadata: &Value, with_columns: bool, rows: &[u8]) -> Vec<u8> {
    let mut out = head(kind, metadata, with_columns);
    out.extend_from_slice(rows);
    out.extend_from_slice(b"]}");
    out
}

/// The table up to its rows.
pub fn head(kind: &Kind, metadata: &Value, with_columns: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(br#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":"#);
    write(&mut out, metadata);
    out.extend_from_slice(b",\"columnDefinitions\":");
    write(&mut out, &if with_columns { columns(kind) } else { Value::Null });
    out.extend_from_slice(b",\"rows\":[");
    out
}

fn columns(kind: &Kind) -> Value {
    let name = json!({
        "name": "Name", "type": "string", "format": "name", "priority": 0,
        "description": "Name of the object, unique within its namespace.",
    });
    let column = |column: &super::registry::Column| {
        json!({
            "name": column.name, "type": column.kind, "format": "",
            "description": column.description, "priority": column.priority,
        })
    };
    let name = if names_itself(kind) { None } else { Some(name) };
    name.into_iter().chain(kind.columns.iter().map(column)).collect()
}

/// Whether the name is among the kind's own columns (of events it is the last), and so does not stand in front.
fn names_itself(kind: &Kind) -> bool {
    kind.columns.iter().any(|column| column.name == "Name")
}

fn write(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(out, value).expect("JSON trees serialize, and a Vec takes all");
}
