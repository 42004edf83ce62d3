//! Request bodies: their formats, and their conversion to JSON trees.

use http::HeaderMap;
use serde_json::Value;

use crate::error::ApiError;
use crate::kind::Kind;
use crate::negotiate::content_type;
use crate::{protobuf, schema};

const TYPES: &str = "application/json, application/yaml";
const TYPES_WITH_PROTOBUF: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// An object that a client sent.
pub struct Sent {
    /// The object; `apiVersion` and `kind` are the kind's.
    pub object: Value,
    /// The paths of duplicate keys.
    pub duplicates: Vec<String>,
}

/// Reads an object of `kind`.
pub fn read(kind: &Kind, headers: &HeaderMap, body: &[u8]) -> Result<Sent, ApiError> {
    let mut sent = parse(headers, body, kind.is_built_in)?;
    check_type(kind, &mut sent.object)?;
    Ok(sent)
}

/// Reads a review.
pub fn read_review(headers: &HeaderMap, body: &[u8]) -> Result<Value, ApiError> {
    Ok(parse(headers, body, true)?.object)
}

/// Reads the options of a DELETE, which may be absent.
pub fn read_options(headers: &HeaderMap, body: &[u8]) -> Result<Value, ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    let options = parse(headers, body, true)?.object;
    match options.get("kind").and_then(Value::as_str) {
        None | Some("" | "DeleteOptions") => Ok(options),
        Some(other) => Err(ApiError::bad_request(format!("the body of a DELETE must be DeleteOptions, not {other}"))),
    }
}

fn parse(headers: &HeaderMap, body: &[u8], takes_protobuf: bool) -> Result<Sent, ApiError> {
    let content_type = content_type(headers);
    let parsed = match content_type.as_str() {
        "" | "application/json" => schema::parse_json(body),
        "application/yaml" | "application/x-yaml" | "text/yaml" => schema::parse_yaml(body),
        protobuf::MEDIA_TYPE if takes_protobuf => {
            return Ok(Sent { object: protobuf::decode(body)?, duplicates: Vec::new() });
        }
        _ => return Err(ApiError::unsupported_media_type(if takes_protobuf { TYPES_WITH_PROTOBUF } else { TYPES })),
    };
    if body.is_empty() {
        return Err(ApiError::bad_request("the body of the request is empty; an object must be sent"));
    }
    let (object, duplicates) =
        parsed.map_err(|error| ApiError::bad_request(format!("the object provided is unrecognized: {error}")))?;
    if !object.is_object() {
        return Err(ApiError::bad_request("the body of the request must be an object"));
    }
    Ok(Sent { object, duplicates })
}

/// Checks `apiVersion` and `kind`, which built-in kinds may leave out.
pub fn check_type(kind: &Kind, object: &mut Value) -> Result<(), ApiError> {
    let api_version = kind.api_version();
    let given = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (found_version, found_kind) = (given(object, "apiVersion"), given(object, "kind"));
    if found_kind.is_empty() && !kind.is_built_in {
        return Err(ApiError::bad_request("Object 'Kind' is missing: the body must have apiVersion and kind"));
    }
    if found_version.is_empty() && !kind.is_built_in {
        return Err(ApiError::bad_request("Object 'apiVersion' is missing: the body must have apiVersion and kind"));
    }
    if !found_version.is_empty() && found_version != api_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({found_version}) does not match the expected API version ({api_version})"
        )));
    }
    if !found_kind.is_empty() && found_kind != kind.kind {
        let what = format!("must be {}", kind.kind);
        let cause = crate::cause::Cause::invalid("kind", &Value::from(found_kind), &what);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(ApiError::invalid(kind, name, vec![cause]));
    }
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.kind.into();
    Ok(())
}
