//! API servers in this process, over stores that they may share, and requests to them.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::{Client, CustomResource};
use parking_lot::RwLock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::identity::{GROUP_MASTERS, Identity};
use signpost_apiserver::auth::rules::MastersOnly;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::registry::Hooks;
use signpost_apiserver::registry::kinds::Kinds;
use signpost_apiserver::store::Store;
use signpost_apiserver::{ApiServer, Settings};
use tokio_util::sync::CancellationToken;

/// A value in an object.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[kube(group = "register.example", version = "v1", kind = "Register", namespaced)]
struct RegisterSpec {
    value: u64,
}

/// The kind of all objects here.
pub static REGISTER: LazyLock<Kind> = LazyLock::new(Kind::of::<Register>);

/// The path of the objects.
pub const REGISTERS: &str = "/apis/register.example/v1/namespaces/default/registers";

/// The maximum start time of a server, with any state of its store.
const START_TIME_MAX: Duration = Duration::from_secs(60);

struct Plain;

impl Hooks for Plain {}

/// The servers, by their numbers. Any of them may be away.
pub struct Servers(Vec<RwLock<Option<Running>>>);

struct Running {
    client: Client,
    /// Ends the server and its clients' requests.
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// The end of a request.
pub enum Reply {
    /// There is no server: the request was not sent.
    NotSent,
    /// No response came in time, or the server went away.
    Lost,
    Response(u16, Value),
}

impl Servers {
    pub fn new(count: usize) -> Self {
        Servers((0..count).map(|_| RwLock::new(None)).collect())
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Starts a server over `store`, and waits until it is ready.
    pub async fn start(&self, number: usize, store: Arc<dyn Store>) {
        let kinds = Kinds::new([(&*REGISTER, Arc::new(Plain) as Arc<dyn Hooks>)]);
        let settings = Settings::new(kinds, Arc::new(MastersOnly), Arc::new(Authenticator::default()));
        let server = ApiServer::new(store, settings);
        let stop = CancellationToken::new();
        let (running, cancel) = (server.clone(), stop.clone());
        let task = tokio::spawn(async move { running.run(cancel).await });
        tokio::time::timeout(START_TIME_MAX, server.ready()).await.expect("a server starts");
        let user = Identity { user: "client".to_owned(), groups: vec![GROUP_MASTERS.to_owned()] };
        let client = Client::new(server.router().layer(axum::Extension(user)), "default");
        *self.0[number].write() = Some(Running { client, stop, task });
    }

    /// Ends a server in the midst of its requests.
    pub async fn stop(&self, number: usize) {
        let running = self.0[number].write().take().expect("the server runs");
        running.stop.cancel();
        running.task.await.unwrap();
    }

    /// Returns the client of a server, and a token that fires when the server goes away.
    pub fn client(&self, number: usize) -> Option<(Client, CancellationToken)> {
        self.0[number].read().as_ref().map(|running| (running.client.clone(), running.stop.clone()))
    }

    /// Sends a request, and gives it up after `patience`.
    pub async fn send(&self, number: usize, request: Request<Body>, patience: Duration) -> Reply {
        let Some((client, stop)) = self.client(number) else { return Reply::NotSent };
        let exchange = async {
            let response = client.send(request).await.ok()?;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.ok()?.to_bytes();
            Some(Reply::Response(status, serde_json::from_slice(&body).unwrap_or_default()))
        };
        let exchange = stop.run_until_cancelled(tokio::time::timeout(patience, exchange));
        exchange.await.and_then(Result::ok).flatten().unwrap_or(Reply::Lost)
    }
}

/// Returns a request with a body of this type.
pub fn request(method: Method, path: &str, content_type: &str, body: &Value) -> Request<Body> {
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    request.body(Body::from(body)).unwrap()
}
