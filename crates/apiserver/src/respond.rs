//! Conversions of results to HTTP responses.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::Stream;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use super::error::ApiError;
use super::kind::Kind;
use super::negotiate::{Format, Text};
use super::object::Object;
use super::{representation, table};

/// The maximum number of warnings in a response.
const WARNINGS_MAX: usize = 16;

/// Returns a JSON answer.
pub fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    typed(status, "application/json", body)
}

/// Returns an answer of a media type.
pub fn typed(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Plain text.
pub fn text(status: StatusCode, body: impl Into<Body>) -> Response {
    typed(status, "text/plain; charset=utf-8", body)
}

/// Returns the response for an unknown path.
pub fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Returns a stream of JSON lines, each sent at once.
pub fn stream(lines: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    use futures::StreamExt;
    json(StatusCode::OK, Body::from_stream(lines.map(Ok::<_, std::convert::Infallible>)))
}

/// Returns one object in the format that the client accepts.
pub fn object(
    status: StatusCode,
    kind: &'static Kind,
    format: Format,
    include: table::Include,
    object: &Object,
) -> Response {
    match format {
        Format::Objects(Text::Json) => json(status, representation::json(kind, object)),
        Format::Objects(Text::Yaml) => yaml(status, &representation::tree(kind, object)),
        Format::Metadata(version) => json(status, representation::metadata(object, version)),
        Format::Table(version) => json(status, table::of_one(kind, include, object, true, version)),
    }
}

/// YAML of a JSON tree.
pub fn yaml(status: StatusCode, tree: &Value) -> Response {
    match serde_saphyr::to_string(tree) {
        Ok(text) => typed(status, "application/yaml", text),
        Err(error) => axum::response::IntoResponse::into_response(ApiError::internal(error.to_string())),
    }
}

/// Adds `Warning` headers, which kubectl prints.
pub fn warn(response: &mut Response, warnings: &[String]) {
    for warning in warnings.iter().take(WARNINGS_MAX) {
        let safe: String = warning.chars().filter(|character| !character.is_control()).take(512).collect();
        let quoted = safe.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
