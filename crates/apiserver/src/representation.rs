//! The representation of an object as one of its kinds, possibly a view, whole or only its metadata.

use bytes::Bytes;
use serde_json::Value;

use super::kind::Kind;
use super::negotiate::MetaVersion;
use super::object::Object;

/// Returns the JSON of an object as `kind` (a view perhaps) shows it.
pub fn json(kind: &Kind, object: &Object) -> Bytes {
    match kind.view {
        None => object.json(),
        Some(_) => tree(kind, object).to_string().into(),
    }
}

/// Appends the same.
pub fn write_json(out: &mut Vec<u8>, kind: &Kind, object: &Object) {
    match kind.view {
        None => object.write_json(out),
        Some(_) => out.extend_from_slice(&json(kind, object)),
    }
}

/// Returns the tree of an object as `kind` shows it.
pub fn tree(kind: &Kind, object: &Object) -> Value {
    match kind.view {
        None => object.tree(),
        Some(view) => (view.from_stored)(object.tree()),
    }
}

/// Returns the object's metadata as `PartialObjectMetadata`.
pub fn metadata(object: &Object, version: MetaVersion) -> Bytes {
    let mut out = Vec::new();
    write_metadata(&mut out, &object.json()[object.metadata()], version);
    out.into()
}

/// Appends a `PartialObjectMetadata` of the JSON of some metadata.
pub fn write_metadata(out: &mut Vec<u8>, metadata: &[u8], version: MetaVersion) {
    out.reserve(metadata.len() + 80);
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":""#);
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(br#"","metadata":"#);
    out.extend_from_slice(metadata);
    out.push(b'}');
}
