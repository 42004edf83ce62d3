//! Errors as `Status` objects of Kubernetes.
//!
//! Every error that the API server returns is an [`ApiError`]. Its constructors are the cases of the Kubernetes API conventions,
//! with the messages that `kubectl` and client libraries expect.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::cause::Cause;
use super::json_scan::present;
use super::kind::Kind;
use super::limits::Limit;
use crate::store;

/// The reason of an object that cannot be read from the store, as in kube-apiserver.
const DAMAGED: &str = "StoreReadError";
/// The maximum number of damaged keys in a response.
const DAMAGED_NAMED_MAX: usize = 10;

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, such as `NotFound`.
    pub reason: &'static str,
    /// The message for users.
    pub message: String,
    /// The failed resource: the plural or, for `Invalid`, the kind.
    pub kind: Option<String>,
    /// The API group of the failed resource.
    pub group: Option<String>,
    /// The name of the object.
    pub name: Option<String>,
    /// The individual faults.
    pub causes: Vec<Cause>,
    /// The time until a retry, in seconds.
    pub retry_after_seconds: Option<u32>,
    /// The limit that the request exceeded.
    pub limit: Option<Limit>,
}

impl ApiError {
    /// Returns a failure about nothing in particular.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        ApiError {
            code,
            reason,
            message: message.into(),
            kind: None,
            group: None,
            name: None,
            causes: Vec::new(),
            retry_after_seconds: None,
            limit: None,
        }
    }

    /// Returns the same failure, counted for a limit.
    pub fn limited(mut self, limit: Limit) -> Self {
        self.limit = Some(limit);
        self
    }

    fn about(mut self, kind: &Kind, name: &str) -> Self {
        self.kind = Some(kind.plural.to_owned());
        self.group = Some(kind.group.to_owned());
        self.name = Some(name.to_owned());
        self
    }

    /// Returns 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Returns 401: the credentials are invalid.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// Returns 404: the object does not exist.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", qualified(kind.plural, kind.group)))
            .about(kind, name)
    }

    /// Returns 404: a built-in API group has no such resource.
    pub fn no_such_resource() -> Self {
        let mut error = Self::new(404, "NotFound", "the server could not find the requested resource");
        error.group = Some(String::new());
        error
    }

    /// Returns 409: the object exists.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", qualified(kind.plural, kind.group)))
            .about(kind, name)
    }

    /// Returns 409: another client wrote first.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let what = qualified(kind.plural, kind.group);
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {what} {name:?}: {why}")).about(kind, name)
    }

    /// Returns 409: the object does not have the resource version that the client requires.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Returns 403: the operation is forbidden for a reason in the object, not in the user's permissions.
    pub fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let what = qualified(kind.plural, kind.group);
        let message = match name {
            "" => format!("{what} is forbidden: {why}"),
            name => format!("{what} {name:?} is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).about(kind, name)
    }

    /// Returns 422: the object violates its schema or its rules.
    pub fn invalid(kind: &Kind, name: &str, causes: Vec<Cause>) -> Self {
        Self::invalid_of(kind.kind, kind.group, name, causes)
    }

    /// Returns 422 for a type that is not a served kind, such as `CreateOptions` of the group `meta.k8s.io`.
    pub fn invalid_of(kind: &str, group: &str, name: &str, causes: Vec<Cause>) -> Self {
        let reported: Vec<String> = causes.iter().map(Cause::to_string).collect();
        let reported = match reported.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error =
            Self::new(422, "Invalid", format!("{} {name:?} is invalid: {reported}", qualified(kind, group)));
        error.kind = Some(kind.to_owned());
        error.group = Some(group.to_owned());
        error.name = Some(name.to_owned());
        if causes.iter().any(|cause| matches!(cause.reason, Cause::TOO_LONG | Cause::TOO_MANY)) {
            error.limit = Some(Limit::OBJECT_FIELDS);
        }
        error.causes = causes;
        error
    }

    /// Returns 405: the resource does not support this verb.
    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    /// Returns 406: no supported response format is acceptable to the client.
    pub fn not_acceptable(offered: &str) -> Self {
        Self::new(406, "NotAcceptable", format!("only the following media types are accepted: {offered}"))
    }

    /// Returns 410: the resource version is older than the available history.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Returns 413: the request or the object is too large.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// Returns 413: the object exceeds the maximum size of its kind.
    pub fn object_too_large(kind: &Kind, name: &str, found: usize, limit: usize) -> Self {
        let message = format!(
            "{} {name:?} is too large: its JSON, with metadata.managedFields, has {found} bytes: limit is {limit}",
            qualified(kind.plural, kind.group)
        );
        Self::too_large(message).about(kind, name).limited(Limit::OBJECT_SIZE)
    }

    /// Returns 415: the body's media type is not supported here.
    pub fn unsupported_media_type(taken: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!("the body of the request was in an unknown format - accepted media types include: {taken}"),
        )
    }

    /// Returns 429: too many concurrent requests.
    pub fn too_many_requests() -> Self {
        let mut error = Self::new(429, "TooManyRequests", "too many requests at once, please try again later");
        error.retry_after_seconds = Some(1);
        error.limited(Limit::REQUESTS_IN_FLIGHT)
    }

    /// Returns 500: an internal error.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {}", message.into()))
    }

    /// Returns 500: the values under these keys are unreadable, with the message of kube-apiserver (`StoreReadError`).
    pub fn damaged<K: std::fmt::Display>(keys: &[K]) -> Self {
        let named: Vec<String> = keys.iter().take(DAMAGED_NAMED_MAX).map(ToString::to_string).collect();
        let more = keys.len().saturating_sub(DAMAGED_NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message = format!(
            "the stored value of {}{more} is damaged: restore the object from a backup or drop it (\"check store\"); an \
             administrator can delete it with the option ignoreStoreReadErrorWithClusterBreakingPotential",
            named.join(", ")
        );
        let mut error = Self::new(500, DAMAGED, message.clone());
        let cause = |key: &String| Cause::new("UnexpectedServerResponse", key.as_str(), "the stored value is damaged");
        error.causes = named.iter().map(cause).collect();
        error
    }

    /// Returns whether it is one of [`Self::damaged`].
    pub fn is_damaged(&self) -> bool {
        self.reason == DAMAGED
    }

    /// Returns 503: temporarily unavailable.
    pub fn unavailable(message: impl Into<String>) -> Self {
        let mut error = Self::new(503, "ServiceUnavailable", message);
        error.retry_after_seconds = Some(1);
        error
    }

    /// Returns 507 (RFC 4918 §11.5): there is currently no space. It has no retry time, because clients would retry ten times
    /// before they show the error.
    pub fn full(message: impl Into<String>) -> Self {
        Self::new(507, "InsufficientStorage", message)
    }

    /// Returns 504: a timeout.
    pub fn timeout(message: impl Into<String>) -> Self {
        let mut error = Self::new(504, "Timeout", message);
        error.retry_after_seconds = Some(1);
        error
    }

    /// Returns 504: the requested resource version is in the future.
    pub fn version_too_large(wanted: u64, newest: u64) -> Self {
        let message = format!("Too large resource version: {wanted}, current: {newest}");
        let mut error = Self::timeout(message.clone());
        error.causes.push(Cause { reason: "ResourceVersionTooLarge", field: String::new(), message });
        error
    }

    /// Returns the object `Status` of this failure.
    pub fn status(&self) -> Value {
        let text = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        let causes: Vec<Value> = self.causes.iter().map(Cause::to_value).collect();
        let details = present(json!({
            "name": text(&self.name),
            "group": text(&self.group),
            "kind": text(&self.kind),
            "causes": Some(causes).filter(|causes| !causes.is_empty()),
            "retryAfterSeconds": self.retry_after_seconds,
        }));
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if details != json!({}) || self.group.is_some() {
            status["details"] = details;
        }
        status
    }
}

impl From<store::Error> for ApiError {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::WentBack { .. } => Self::expired("The resourceVersion is from before the store was restored."),
            store::Error::Compacted { .. } => Self::expired("The resourceVersion for the provided list is too old."),
            store::Error::Future { newest } => {
                Self::timeout(format!("Too large resource version, current: {}", newest.0))
            }
            store::Error::TooLarge { limit } => {
                Self::too_large(format!("the object is too large for the store: the limit is {limit} bytes"))
            }
            store::Error::Unavailable => Self::unavailable("the store is not available, please try again later"),
            store::Error::Full { needed } => Self::full(format!(
                "the disk of the API's data directory is full (less than {} MiB left): objects can be deleted, but not \
                 created or made larger, until space is freed",
                needed >> 20
            )),
            store::Error::NoSpace => Self::full(
                "etcd has reached its quota (alarm NOSPACE): objects can be deleted, but not created or changed; compact and \
                 defragment etcd, and disarm the alarm"
                    .to_owned(),
            ),
            store::Error::OutcomeUnknown => Self::timeout(
                "the store timed out and the write may have been committed; read the object before you retry",
            ),
            store::Error::Damaged { key, .. } => Self::damaged(&[key.0]),
            store::Error::Corrupt(what) => Self::internal(format!("the store is damaged: {what}")),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(axum::body::Body::from(self.status().to_string()));
        *response.status_mut() = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// `leases.coordination.k8s.io`, or `namespaces` in the core group.
pub fn qualified(resource: &str, group: &str) -> String {
    match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    }
}
