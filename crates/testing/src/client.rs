//! An HTTPS client that trusts only one CA.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Runtime;

/// The media types that `kubectl get` accepts.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Returns a builder of clients that trust the authorities in `pem` alone.
pub fn trusting(pem: &str) -> reqwest::ClientBuilder {
    let certificates = reqwest::Certificate::from_pem_bundle(pem.as_bytes()).expect("certificates in PEM");
    reqwest::Client::builder().no_proxy().tls_certs_only(certificates).timeout(Duration::from_secs(60))
}

/// A client of one server. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    /// The client below it, for requests that [`Client::send`] cannot make.
    pub http: reqwest::Client,
    /// Runs the requests.
    pub runtime: Arc<Runtime>,
    base: String,
    token: Option<String>,
}

impl Client {
    /// Returns a client of `server`.
    pub fn new(http: reqwest::ClientBuilder, server: SocketAddr) -> Client {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Client {
            http: http.build().expect("a client"),
            runtime: Arc::new(runtime.expect("a runtime")),
            base: format!("https://{server}"),
            token: None,
        }
    }

    /// Returns the same client with a bearer token.
    pub fn with_token(self, token: &str) -> Client {
        Client { token: Some(token.to_owned()), ..self }
    }

    /// Returns the bearer token.
    pub fn token(&self) -> &str {
        self.token.as_deref().expect("the client has a token")
    }

    /// Sends a request, `PATCH` as a merge patch; returns the status (0 and an error without a response) and the body.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
        let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.header("content-type", media_type).body(body.to_string());
        }
        self.finish(request)
    }

    /// Gets `path`; `None` without a response.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        Some(self.send("GET", path, None)).filter(|(status, _)| *status != 0)
    }

    /// Gets `path` as a Table, as `kubectl get` does.
    pub fn table(&self, path: &str) -> String {
        let (status, body) = self.finish(self.request("GET", path).header("accept", TABLE));
        assert_ne!(status, 0, "{path}: {body}");
        body
    }

    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method.parse().expect("a method"), format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    fn finish(&self, request: reqwest::RequestBuilder) -> (u16, String) {
        self.runtime.block_on(async {
            match request.send().await {
                Ok(response) => (response.status().as_u16(), response.text().await.unwrap_or_default()),
                Err(error) => (0, format!("{error:?}")),
            }
        })
    }
}
