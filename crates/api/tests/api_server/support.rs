//! A server over a store in memory, and requests to it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use signpost_api::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, Identity};
use signpost_api::kinds::quotas::Limits;
use signpost_api::kinds::{PlatformConfig, server_settings};
use signpost_apiserver::ApiServer;
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::tokens::{self, Tokens};
use signpost_apiserver::store::Store;
use signpost_apiserver::store::embedded::Embedded;
use signpost_apiserver::store::encrypted::{Encrypted, KEY_OCTETS, Keyring};
use signpost_apiserver::store::memory::Memory;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The path of our group.
pub const GROUP: &str = "/apis/signpost.dev/v1alpha1";
pub const ROUTES: &str = "/apis/signpost.dev/v1alpha1/namespaces/default/routes";
/// A token that the server knows, of the user `tina` who is a tenant of `default`.
pub const TOKEN: &str = "a-token-for-tests";
/// A token of the administrator.
pub const ADMIN_TOKEN: &str = "another-token-for-tests";
/// A timeout that no operation here reaches.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    pub api: ApiServer,
    pub store: Arc<dyn Store>,
    stop: CancellationToken,
    /// Deleted with the server.
    folder: Option<tempfile::TempDir>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }
}

pub fn admin() -> Identity {
    Identity { user: "admin".into(), groups: vec![GROUP_MASTERS.into(), GROUP_AUTHENTICATED.into()] }
}

impl Server {
    /// Starts a server over a store in memory, or over a file if `SIGNPOST_TEST_STORE=embedded` is set.
    pub async fn start() -> Server {
        Self::start_with(Limits::default()).await
    }

    pub async fn start_with(limits: Limits) -> Server {
        if std::env::var("SIGNPOST_TEST_STORE").as_deref() != Ok("embedded") {
            return Self::over_with(Arc::new(Memory::new()), limits).await;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let store = Embedded::open(folder.path(), Default::default()).expect("a store");
        let mut server = Self::over_with(Arc::new(store), limits).await;
        server.folder = Some(folder);
        server
    }

    pub async fn over(store: Arc<dyn Store>) -> Server {
        Self::over_with(store, Limits::default()).await
    }

    pub async fn over_with(store: Arc<dyn Store>, limits: Limits) -> Server {
        Self::over_all(store, limits, [1; KEY_OCTETS]).await
    }

    /// Starts a server whose Secrets have this key.
    pub async fn over_with_key(store: Arc<dyn Store>, key: [u8; KEY_OCTETS]) -> Server {
        Self::over_all(store, Limits::default(), key).await
    }

    async fn over_all(store: Arc<dyn Store>, limits: Limits, key: [u8; KEY_OCTETS]) -> Server {
        let line = tokens::line(TOKEN, "tina", &["signpost:tenant:default".into()]);
        let line = format!("{line}\n{}\n", tokens::line(ADMIN_TOKEN, "admin", &[GROUP_MASTERS.into()]));
        let authenticator = Arc::new(Authenticator::new(Tokens::parse(&line).expect("a token line")));
        let config = PlatformConfig { limits, ..PlatformConfig::new("v3.example") };
        let settings = server_settings(config, authenticator);
        let keyring = Arc::new(Keyring::new(&[key]));
        let encrypted = Encrypted::new(store.clone(), keyring, settings.kinds.secret_prefixes());
        let api = ApiServer::new(Arc::new(encrypted), settings);
        let stop = CancellationToken::new();
        let (running, stopped) = (api.clone(), stop.clone());
        tokio::spawn(async move { running.run(stopped).await });
        tokio::time::timeout(PATIENCE, api.ready()).await.expect("the server becomes ready");
        Server { api, store, stop, folder: None }
    }

    /// Fires when the server is dropped.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub fn client(&self) -> kube::Client {
        self.client_of(admin())
    }

    pub fn client_of(&self, identity: Identity) -> kube::Client {
        kube::Client::new(self.api.router().layer(axum::Extension(identity)), "default")
    }

    /// Sends as the administrator. Headers are `Name: value` lines.
    pub async fn send(&self, method: &str, path: &str, headers: &[&str], body: impl Into<String>) -> Reply {
        self.send_as(Some(admin()), method, path, headers, body.into().into_bytes()).await
    }

    pub async fn send_as(
        &self,
        identity: Option<Identity>,
        method: &str,
        path: &str,
        headers: &[&str],
        body: Vec<u8>,
    ) -> Reply {
        let response = self.open(identity, method, path, headers, body).await;
        let (parts, body) = response.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.expect("in time").expect("a body").to_bytes();
        Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8(body.to_vec()).expect("UTF-8"),
        }
    }

    pub async fn open(
        &self,
        identity: Option<Identity>,
        method: &str,
        path: &str,
        headers: &[&str],
        body: Vec<u8>,
    ) -> http::Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for header in headers {
            let (name, value) = header.split_once(": ").expect("a header");
            request = request.header(name, value);
        }
        let mut request = request.body(Body::from(body)).expect("a request");
        if let Some(identity) = identity {
            request.extensions_mut().insert(identity);
        }
        self.api.router().oneshot(request).await.expect("routers do not fail")
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &["content-type: application/json"], body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Reply {
        self.send("PUT", path, &["content-type: application/json"], body.to_string()).await
    }

    pub async fn merge(&self, path: &str, body: &Value) -> Reply {
        self.send("PATCH", path, &["content-type: application/merge-patch+json"], body.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, &[], "").await
    }

    pub async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, &[]).await
    }

    pub async fn watch_as(&self, path: &str, headers: &[&str]) -> Watch {
        let response = self.open(Some(admin()), "GET", path, headers, Vec::new()).await;
        assert_eq!(response.status(), 200);
        let stream = response.into_body().into_data_stream();
        Watch { stream, rest: String::new() }
    }

    /// Waits until `path` is not found any more.
    pub async fn gone(&self, path: &str) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < deadline {
            if self.get(path).await.status == 404 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{path} is still there: {}", self.get(path).await.text);
    }
}

pub struct Watch {
    stream: axum::body::BodyDataStream,
    rest: String,
}

impl Watch {
    /// Returns the next line; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((line, rest)) = self.rest.split_once('\n') {
                let line = serde_json::from_str(line).expect("a JSON line");
                self.rest = rest.to_owned();
                return Some(line);
            }
            let chunk = tokio::time::timeout(PATIENCE, self.stream.next()).await.expect("a line in time")?;
            self.rest += std::str::from_utf8(&chunk.expect("a chunk")).expect("UTF-8");
        }
    }

    /// Returns the next line as `TYPE name`.
    pub async fn reported(&mut self) -> String {
        let line = self.next().await.expect("a line");
        format!(
            "{} {}",
            line["type"].as_str().unwrap_or("?"),
            line["object"]["metadata"]["name"].as_str().unwrap_or("-")
        )
    }

    /// Returns whether nothing comes for a little while.
    pub async fn is_silent(&mut self) -> bool {
        self.rest.is_empty() && tokio::time::timeout(Duration::from_millis(150), self.stream.next()).await.is_err()
    }
}

pub fn route(name: &str) -> Value {
    json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": name},
        "spec": {"to": {"kind": "Service", "name": "web"}},
    })
}

pub fn router(name: &str) -> Value {
    json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name},
        "spec": {"addresses": [{"ip": "192.0.2.1"}]},
    })
}

pub fn labelled(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["labels"][key] = value.into();
    object
}

pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a resourceVersion")
}
