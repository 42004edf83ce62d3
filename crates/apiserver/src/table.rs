//! Tables: lists as `kubectl get` prints them, with the columns of the kind.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cause::Cause;
use super::error::ApiError;
use super::kind::Kind;
use super::kind::columns::Column;
use super::negotiate::MetaVersion;
use super::object::Object;
use super::representation;
use super::request::Query;

/// The part of each object that a row includes in addition to its cells.
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
    /// Returns the query parameter `includeObject`; 422 if it is none of the three.
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

/// Makes rows.
pub struct Rows {
    kind: &'static Kind,
    include: Include,
    version: MetaVersion,
    /// The buffer for the decompressed JSON of one object at a time.
    json: Vec<u8>,
}

impl Rows {
    /// Returns rows for objects of this kind.
    pub fn new(kind: &'static Kind, include: Include, version: MetaVersion) -> Rows {
        Rows { kind, include, version, json: Vec::new() }
    }

    /// Appends the row of one object; `now` is in seconds since the epoch.
    pub fn write(&mut self, out: &mut Vec<u8>, object: &Object, now: i64) {
        self.json.clear();
        object.write_json(&mut self.json);
        out.extend_from_slice(b"{\"cells\":[");
        let mut between = false;
        if !names_itself(self.kind) {
            write(out, object.name());
            between = true;
        }
        for cell in self.kind.columns.cells(&self.json, now) {
            if std::mem::replace(&mut between, true) {
                out.push(b',');
            }
            cell.write(out);
        }
        out.push(b']');
        match self.include {
            Include::None => {}
            Include::Metadata => {
                out.extend_from_slice(b",\"object\":");
                representation::write_metadata(out, &self.json[object.metadata()], self.version);
            }
            Include::Object => {
                out.extend_from_slice(b",\"object\":");
                match self.kind.view {
                    None => out.extend_from_slice(&self.json),
                    Some(_) => representation::write_json(out, self.kind, object),
                }
            }
        }
        out.push(b'}');
    }
}

/// Returns a table of one object. In a watch only the first has the columns.
pub fn of_one(
    kind: &'static Kind,
    include: Include,
    object: &Object,
    with_columns: bool,
    version: MetaVersion,
) -> Vec<u8> {
    let mut out = head(kind, &json!({"resourceVersion": object.revision.to_string()}), with_columns, version);
    Rows::new(kind, include, version).write(&mut out, object, Timestamp::now().as_second());
    out.extend_from_slice(b"]}");
    out
}

/// Returns the table up to its rows.
pub fn head(kind: &Kind, metadata: &Value, with_columns: bool, version: MetaVersion) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(br#"{"kind":"Table","apiVersion":""#);
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(br#"","metadata":"#);
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
    let column = |column: &Column| {
        json!({
            "name": column.name, "type": column.kind, "format": "",
            "description": column.description, "priority": column.priority,
        })
    };
    let name = if names_itself(kind) { None } else { Some(name) };
    name.into_iter().chain(kind.columns.iter().map(column)).collect()
}

/// Returns whether the kind's own columns contain the name (the last one, for events), so that it is not added in front.
fn names_itself(kind: &Kind) -> bool {
    kind.columns.iter().any(|column| column.name == "Name")
}

fn write(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("strings and JSON trees serialize, and a Vec takes all");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::object::encode;
    use crate::object::sample::Dictionary;
    use crate::registry::event::{EVENT, NEW_EVENT};
    use crate::registry::lease::LEASE;

    fn object(kind: &Kind, key: &str, tree: &Value) -> Object {
        Object::from_stored(kind, key, &encode(tree), 7).expect("an object")
    }

    fn row(kind: &'static Kind, include: Include, object: &Object) -> String {
        let now = "2026-01-01T00:01:07Z".parse::<Timestamp>().expect("a time").as_second();
        let mut out = Vec::new();
        let mut rows = Rows::new(kind, include, MetaVersion::V1);
        rows.write(&mut out, object, now);
        let first = out.len();
        rows.write(&mut out, object, now);
        assert_eq!(out[..first], out[first..], "one row leaves nothing for the next");
        out.truncate(first);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn a_row_is_the_cells_and_what_is_included() {
        let kind = &*LEASE;
        let lease = object(
            kind,
            "shop/web",
            &json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {
                    "name": "web", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": {"a": "\"},{\"creationTimestamp\":\"\\"},
                    "managedFields": [{"fieldsV1": {"f:spec": {"f:holderIdentity": {}}}}],
                },
                "spec": {"holderIdentity": "\"web\""},
            }),
        );
        let cells = r#"{"cells":["web","\"web\"","67s"]"#;
        let json = String::from_utf8(lease.json().to_vec()).expect("UTF-8");
        let metadata = &json[lease.metadata()];
        assert!(metadata.starts_with(r#"{"resourceVersion":"7","annotations""#), "{metadata}");
        let partial = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#;
        let all = [
            (Include::None, format!("{cells}}}")),
            (Include::Metadata, format!("{cells},\"object\":{partial}{metadata}}}}}")),
            (Include::Object, format!("{cells},\"object\":{json}}}")),
        ];
        for (include, expected) in &all {
            assert_eq!(row(kind, *include, &lease), *expected);
        }
        lease.pack(&Arc::new(Dictionary::new(b"another object's text, with \"metadata\" and \"status\"")));
        for (include, expected) in &all {
            assert_eq!(row(kind, *include, &lease), *expected, "at rest");
        }
    }

    #[test]
    fn both_views_of_an_event_have_the_same_cells() {
        let core = &*EVENT;
        let event = object(
            core,
            "shop/e",
            &json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "shop"},
                "involvedObject": {"kind": "Lease", "name": "web"}, "message": " placed\n", "type": "Normal",
                "reason": "Scheduled", "reportingComponent": "scheduler", "eventTime": "2026-01-01T00:00:00.000000Z",
                "series": {"count": 3},
            }),
        );
        let cells = r#"{"cells":["67s","Normal","Scheduled","lease/web",null,"scheduler","placed","67s",3,"e"]"#;
        let new = &*NEW_EVENT;
        for kind in [core, new] {
            assert_eq!(row(kind, Include::None, &event), format!("{cells}}}"));
            let whole = row(kind, Include::Object, &event);
            assert!(whole.starts_with(cells) && whole.contains(&kind.api_version()), "{whole}");
        }
        assert!(row(new, Include::Object, &event).contains(r#""note":" placed\n""#));
    }
}
