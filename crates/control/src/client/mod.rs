//! Clients of the API for the platform's own control loops: a [`kube::Client`], created in one of three ways.
//!
//! - [`in_process`]: in one process with the API server the client calls its dispatcher directly, without a socket.
//! - [`from_kubeconfig`], [`from_context`]: over TLS with the contents of a kubeconfig file.
//! - [`in_cluster`]: over TLS with a Kubernetes service account.
//!
//! A component that sends requests on behalf of users takes a client without credentials, such as [`unproven_from_kubeconfig`], and
//! [`bearing`] each user's own token, so that the API authorizes each user.
//!
//! A client tries several API servers of one platform in turn ([`failover`]), and follows changes of its kubeconfig (`rotation`).
//!
//! The modules on top of it:
//!
//! - [`reflector`] lists and watches one kind of objects and reports changes.
//! - [`lease`] elects one leader among several processes.
//! - [`events`] and [`recorder`] record Events about objects.
//! - [`mod@write`] writes statuses.
//! - [`failure_log`] bounds what a burst of failures logs.
//! - [`server`] detects whether the other side is Signpost's own API server.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::header::{AUTHORIZATION, InvalidHeaderValue, USER_AGENT};
use http::{HeaderValue, Request};
use kube::Config;
use kube::client::{Body, ClientBuilder};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use parking_lot::Mutex;
use tower::ServiceExt as _;
use tower::util::MapRequestLayer;

use signpost_runtime::tls::served::{FileStamp, stamp_of};

use failover::Servers;

pub mod backoff;
pub mod events;
pub mod failover;
pub mod failure_log;
pub mod lease;
pub mod metrics;
pub mod recorder;
pub mod reflector;
mod rotation;
pub mod server;
pub mod transport_error;
pub mod uid;
pub mod write;

/// The time limit for connecting. The API is near; a longer wait only delays the next try.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The `User-Agent` of these clients. API servers use the part before the slash as the field manager of writes.
const AGENT: HeaderValue = HeaderValue::from_static(concat!("signpost/", env!("CARGO_PKG_VERSION")));

/// Returns a client of an API server in this process: each request goes directly to `service`, which determines its user.
///
/// Responses stream, including watches. A request runs in its caller's task, and ends with it. Call this function inside a tokio
/// runtime, like the others.
pub fn in_process(service: Router) -> kube::Client {
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, AGENT);
        service.clone().oneshot(request)
    });
    kube::Client::new(service, "default")
}

/// Returns a client of the API server that the kubeconfig file at `path` names, by its current context: server address,
/// certificate authority, and token or client certificate, as data in the file or as paths relative to it. `servers`, if there
/// are any, replace that one server. When the files change, the client follows.
///
/// The function sends nothing: an unreachable API server shows at the first request. Retries are left to the caller.
///
/// If the API sends nothing for `silence` on a connection with a pending request, the connection is considered dead, and the
/// request or watch fails. So no request waits indefinitely for an API that hangs, or whose packets a network drops.
pub async fn from_kubeconfig(path: &Path, silence: Duration, servers: &Servers) -> Result<kube::Client, ClientError> {
    let (path, servers) = (path.to_owned(), servers.clone());
    rotation::Source { path, with_credentials: true, silence, servers }.open().await
}

/// Returns a client for that context of a kubeconfig which was read from `origin`, or for its current context. It has no time
/// limit for responses.
pub async fn from_context(
    kubeconfig: Kubeconfig,
    context: Option<&str>,
    origin: &str,
    servers: Servers,
) -> Result<kube::Client, ClientError> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = config.map_err(|source| ClientError::Kubeconfig { path: origin.into(), source })?;
    let clients = servers.configurations(config).into_iter().map(connect).collect::<kube::Result<Arc<[_]>>>();
    let clients = clients.map_err(|error| ClientError::built_from(&origin, error))?;
    Ok(servers.client(clients))
}

/// Returns a client of the API server that the kubeconfig file at `path` names, without the credentials in it. `silence` and
/// `servers` are as in [`from_kubeconfig`].
pub async fn unproven_from_kubeconfig(
    path: &Path,
    silence: Duration,
    servers: &Servers,
) -> Result<kube::Client, ClientError> {
    let (path, servers) = (path.to_owned(), servers.clone());
    rotation::Source { path, with_credentials: false, silence, servers }.open().await
}

/// A bearer token that can be replaced while clients carry it. Clones share it.
#[derive(Clone)]
pub struct Bearer(Arc<Mutex<HeaderValue>>);

impl Bearer {
    /// Returns the token, or an error if a header cannot hold it.
    pub fn new(token: &str) -> Result<Self, InvalidHeaderValue> {
        Ok(Bearer(Arc::new(Mutex::new(authorization(token)?))))
    }

    /// Replaces the token for all requests from now on.
    pub fn replace(&self, token: &str) -> Result<(), InvalidHeaderValue> {
        let new = authorization(token)?;
        *self.0.lock() = new;
        Ok(())
    }
}

fn authorization(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns `client` with this bearer token in all requests.
pub fn bearing(client: kube::Client, bearer: Bearer) -> kube::Client {
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(AUTHORIZATION, bearer.0.lock().clone());
        let client = client.clone();
        async move { client.send(request).await }
    });
    kube::Client::new(service, "default")
}

/// Returns a client of the Kubernetes API server of this pod's cluster, with the pod's service account.
pub fn in_cluster() -> Result<kube::Client, ClientError> {
    let config = Config::incluster().map_err(ClientError::InCluster)?;
    connect(config).map_err(|error| ClientError::built_from(&"the pod's service account", error))
}

/// Returns the current context of a kubeconfig, and its files with the stamps that they had before they were read.
async fn read(path: &Path) -> Result<(Config, Vec<(PathBuf, FileStamp)>), ClientError> {
    let unusable = |source| ClientError::Kubeconfig { path: path.to_owned(), source };
    let mut files = vec![(path.to_owned(), stamp_of(path))];
    let kubeconfig = Kubeconfig::read_from(path).map_err(unusable)?;
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let named = clusters
        .map(|cluster| &cluster.certificate_authority)
        .chain(users.flat_map(|user| [&user.client_certificate, &user.client_key, &user.token_file]));
    files.extend(named.flatten().map(|file| (file.into(), stamp_of(Path::new(file)))));
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(unusable)?;
    Ok((config, files))
}

/// Returns the client certificate of a kubeconfig's current context, in PEM; `None` if it has none, or cannot be read.
pub fn certificate_pem(path: &Path) -> Option<Vec<u8>> {
    let kubeconfig = Kubeconfig::read_from(path).ok()?;
    let context =
        kubeconfig.contexts.iter().find(|context| Some(&context.name) == kubeconfig.current_context.as_ref())?;
    let user = context.context.as_ref()?.user.as_ref()?;
    let secret = kubeconfig.auth_infos.iter().find(|info| info.name == *user)?.auth_info.as_ref()?;
    match (&secret.client_certificate_data, &secret.client_certificate) {
        (Some(data), _) => data_encoding::BASE64.decode(data.as_bytes()).ok(),
        (None, Some(file)) => std::fs::read(file).ok(),
        (None, None) => None,
    }
}

fn connect(mut config: Config) -> kube::Result<kube::Client> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Each control loop retries in its own way and counts the retries. The client's own retries, up to fifteen, would hide an
    // outage from the loops, and hold a lease's renewal for longer than the lease lasts.
    config.default_retry = false;
    let named = MapRequestLayer::new(|mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, AGENT);
        request
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&named).build())
}

/// The reason why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read, or lacks a required value.
    #[error(
        "cannot use the kubeconfig {}: {source}; it must name a current context with a cluster and a user", path.display()
    )]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        #[source]
        source: KubeconfigError,
    },
    /// This process does not run in a cluster's pod, or the pod has no service account.
    #[error("cannot use the pod's service account: {0}; outside a cluster, set a kubeconfig")]
    InCluster(#[source] InClusterError),
    /// The certificates, keys, or addresses are not valid for a client.
    #[error("cannot create an API client from {from}: {source}")]
    Build {
        /// The file, or the other source of the settings.
        from: String,
        #[source]
        source: Box<kube::Error>,
    },
}

impl ClientError {
    fn built_from(from: &dyn Display, error: kube::Error) -> Self {
        ClientError::Build { from: from.to_string(), source: Box::new(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use http::HeaderMap;
    use k8s_openapi::api::core::v1::Namespace;
    use kube::Api;

    #[tokio::test]
    async fn requests_on_behalf_of_others_carry_their_token() {
        let service = Router::new().route(
            "/api/v1/namespaces/{name}",
            get(|headers: HeaderMap| async move {
                assert_eq!(headers.get(USER_AGENT), Some(&AGENT));
                let token = headers[AUTHORIZATION].to_str().expect("text").replace("Bearer ", "");
                format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{token}"}}}}"#)
            }),
        );
        let bearer = Bearer::new("s3cret").expect("a header");
        let client = bearing(in_process(service), bearer.clone());
        let sent = async || {
            let namespace: Namespace = Api::all(client.clone()).get("x").await.expect("it is there");
            namespace.metadata.name.expect("it has a name")
        };
        assert_eq!(sent().await, "s3cret");
        bearer.replace("renewed").expect("a header");
        assert_eq!(sent().await, "renewed");
        assert!(bearer.replace("two\nlines").is_err() && Bearer::new("two\nlines").is_err());
    }

    #[tokio::test]
    async fn errors_name_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let message = async |path: &Path| match from_kubeconfig(path, Duration::from_secs(9), &Servers::default()).await
        {
            Ok(_) => panic!("it cannot be used"),
            Err(error) => error.to_string(),
        };
        assert!(message(&path).await.contains(&path.display().to_string()));
        std::fs::write(&path, "apiVersion: v1\nkind: Config\nclusters: 7\n").expect("written");
        assert!(message(&path).await.contains("kubeconfig"));
        std::fs::write(&path, "apiVersion: v1\nkind: Config\n").expect("written");
        assert!(message(&path).await.contains("current context"));
    }
}
