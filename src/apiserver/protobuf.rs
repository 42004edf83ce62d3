//! Bodies of requests in Kubernetes' protobuf, which kubectl and client-go send for built-in kinds.

use serde_json::Value;

use super::error::ApiError;

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Decodes a body into the object as JSON. A broken body is 400, a kind without a message here 415.
pub fn decode(_body: &[u8]) -> Result<Value, ApiError> {
    todo!()
}
