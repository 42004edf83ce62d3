//! Requests to the API with a user's own client, and their errors.

use std::time::Duration;

use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde_json::{Value, json};

/// The timeout of a request to the API.
const ANSWER_LONGEST: Duration = Duration::from_secs(10);
/// The maximum size of a response in octets: 500 objects of the maximum size.
const ANSWER_OCTETS_MAX: usize = 8 << 20;

/// The error of a request, as the browser receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub status: StatusCode,
    /// The reason as one word: the API's own, or `SignedOut`, `ApiAway`, `Starting`.
    pub reason: String,
    pub message: String,
}

impl Failure {
    pub fn new(status: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        Failure { status, reason: reason.to_owned(), message: message.into() }
    }

    /// Returns the failure of an API that does not respond.
    pub fn away(why: impl Into<String>) -> Self {
        Failure::new(StatusCode::BAD_GATEWAY, "ApiAway", why)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({"reason": self.reason, "message": self.message}).to_string();
        let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
        (self.status, headers, body).into_response()
    }
}

/// Sends `body` to `path` and reads the answer.
pub async fn post(client: &kube::Client, path: &str, body: &Value) -> Result<Value, Failure> {
    let request =
        Request::post(path).header(header::CONTENT_TYPE, "application/json").body(body.to_string().into_bytes());
    let octets = send(client, request.map(|request| request.map(Body::from))).await?;
    serde_json::from_slice(&octets).map_err(|error| Failure::away(format!("the API's response is not JSON: {error}")))
}

/// Reads the resource at `path`, including its query, as JSON text.
pub async fn get(client: &kube::Client, path: &str) -> Result<Vec<u8>, Failure> {
    send(client, Request::get(path).header(header::ACCEPT, "application/json").body(Body::empty())).await
}

async fn send(client: &kube::Client, request: Result<Request<Body>, axum::http::Error>) -> Result<Vec<u8>, Failure> {
    let request = request.map_err(|_| Failure::new(StatusCode::BAD_REQUEST, "BadRequest", "not a path of the API"))?;
    let answer = async {
        let response = client.send(request).await.map_err(|error| Failure::away(error.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_OCTETS_MAX).collect().await;
        let octets = body.map_err(|error| Failure::away(error.to_string()))?.to_bytes();
        if status.is_success() {
            return Ok(octets.to_vec());
        }
        let refusal: Value = serde_json::from_slice(&octets).unwrap_or_default();
        let reason = refusal["reason"].as_str().unwrap_or("Failed");
        let message = refusal["message"].as_str().unwrap_or("the API rejected the request without a message");
        Err(Failure::new(status, reason, message))
    };
    let late = || Failure::away(format!("no response from the API within {} seconds", ANSWER_LONGEST.as_secs()));
    tokio::time::timeout(ANSWER_LONGEST, answer).await.unwrap_or_else(|_| Err(late()))
}
