//! The metadata of the API as a protected resource (RFC 9728): the identity providers at which its users sign in.
//!
//! A command line reads the document before it has a credential, with [`PublicClient`] in addition to the members of the
//! standard. It contains no secrets. Without a provider for the sign-in, there is no document.

use axum::response::Response;
use http::request::Parts;
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};

use super::Authenticator;
use crate::error::ApiError;
use crate::respond;

/// The path of the document (RFC 9728 §3).
pub const PATH: &str = "/.well-known/oauth-protected-resource";

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceMetadata {
    /// The URL of the API, as the client addressed it.
    pub resource: String,
    /// The issuers of the providers.
    pub authorization_servers: Vec<String>,
    /// The places of tokens in requests.
    pub bearer_methods_supported: Vec<String>,
    /// The clients for command lines, which RFC 9728 leaves to each API. Other APIs have none.
    #[serde(default)]
    pub clients: Vec<PublicClient>,
}

/// A client that is registered at an identity provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicClient {
    /// The URL of the provider, exactly as in `iss` of its tokens.
    pub issuer: String,
    /// The name of the client at the provider.
    pub client_id: String,
    /// The scopes to request, instead of the usual ones that the provider supports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The certificate authorities in PEM to trust for the provider instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
}

/// Answers this path; `None` for others, and without a provider.
pub(crate) fn answer(authenticator: &Authenticator, path: &str, parts: &Parts) -> Option<Result<Response, ApiError>> {
    let clients = authenticator.sign_in();
    if path != PATH || clients.is_empty() {
        return None;
    }
    let host = || parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = parts.uri.authority().map(http::uri::Authority::as_str).or_else(host).unwrap_or_default();
    let document = ResourceMetadata {
        resource: format!("https://{authority}"),
        authorization_servers: clients.iter().map(|client| client.issuer.clone()).collect(),
        bearer_methods_supported: vec!["header".to_owned()],
        clients: clients.to_vec(),
    };
    let text = serde_json::to_string(&document).map_err(|error| ApiError::internal(error.to_string()));
    Some(text.map(|text| respond::json(StatusCode::OK, text)))
}
