//! The one way by which our own control loops speak to the API: a [`kube::Client`], got in three ways.
//!
//! - [`in_process`]: in one process with the API server the client calls its dispatcher directly, without a socket. The
//!   caller's [`Identity`] travels as an extension of the HTTP request, which no request from a network can carry.
//! - [`from_kubeconfig`], [`from_context`]: over TLS with what a kubeconfig file says.
//! - [`in_cluster`]: over TLS with a Kubernetes service account.
//!
//! Whoever asks on behalf of others takes [`in_process_unproven`] or [`unproven_from_kubeconfig`], which prove nothing by
//! themselves, and [`bearing`] each one's own token, so that the API decides what each may see.
//!
//! Several API servers of one platform are tried in turn ([`failover`]), and a kubeconfig may change while it is in use
//! (`rotation`).
//!
//! Above it stand [`reflector`], which lists and watches a kind of objects and tells what changed, and [`lease`], which elects
//! one leader among several processes; [`events`] and [`recorder`] tell people what became of an object, and [`mod@write`] writes
//! statuses. [`server`] knows whether the other side is our own.

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
use tower::ServiceExt as _;
use tower::util::MapRequestLayer;

use signpost_api::identity::Identity;
use signpost_runtime::tls::served::{FileStamp, stamp_of};

use failover::Servers;

pub mod backoff;
pub mod events;
pub mod failover;
pub mod lease;
pub mod metrics;
pub mod recorder;
pub mod reflector;
mod rotation;
pub mod server;
pub mod transport_error;
pub mod uid;
pub mod write;

/// How long connecting may take. The API is near; a longer wait only delays the next try.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How our clients name themselves. API servers take what stands before the slash for the field manager of our writes.
const AGENT: HeaderValue = HeaderValue::from_static(concat!("signpost/", env!("CARGO_PKG_VERSION")));

/// A client of the API server in this process: each request goes straight into `service`, sent by `identity`.
///
/// Answers stream, watches included. A request runs in its caller's task, and ends with it. To be called inside a runtime of
/// tokio, as all three.
pub fn in_process(service: Router, identity: Identity) -> kube::Client {
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.extensions_mut().insert(identity.clone());
        request.headers_mut().insert(USER_AGENT, AGENT);
        service.clone().oneshot(request)
    });
    kube::Client::new(service, "default")
}

/// A client of the API server that the kubeconfig file at `path` names, by its current context: server address, certificate
/// authority, and token or client certificate, as data in the file or as paths relative to it. `servers`, if there are any, take
/// the place of that one server. When the files change, the client follows.
///
/// Nothing is sent yet: an API server that does not answer shows at the first request. Repeating is left to the caller.
///
/// A connection on which the API says nothing for `silence` while an answer is due is taken for dead: the request, or the
/// watch, fails. So no request waits for ever for an API that hangs, or for one whose packets a network drops.
pub async fn from_kubeconfig(path: &Path, silence: Duration, servers: &Servers) -> Result<kube::Client, ClientError> {
    let (path, servers) = (path.to_owned(), servers.clone());
    rotation::Source { path, with_credentials: true, silence, servers }.open().await
}

/// A client by that context of a kubeconfig which was read from `origin`; by its current one if there is none. It waits for
/// answers as long as it takes.
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

/// A client of the API server in this process that proves nothing: a request is the one of whoever its headers say.
pub fn in_process_unproven(service: Router) -> kube::Client {
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, AGENT);
        service.clone().oneshot(request)
    });
    kube::Client::new(service, "default")
}

/// A client of the API server that the kubeconfig file at `path` names, without the credentials in it. `silence` and `servers` are
/// as in [`from_kubeconfig`].
pub async fn unproven_from_kubeconfig(
    path: &Path,
    silence: Duration,
    servers: &Servers,
) -> Result<kube::Client, ClientError> {
    let (path, servers) = (path.to_owned(), servers.clone());
    rotation::Source { path, with_credentials: false, silence, servers }.open().await
}

/// `client`, whose requests all carry this bearer token. An error if no header can hold it.
pub fn bearing(client: kube::Client, token: &str) -> Result<kube::Client, InvalidHeaderValue> {
    let mut bearer = HeaderValue::from_str(&format!("Bearer {token}"))?;
    bearer.set_sensitive(true);
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        let client = client.clone();
        async move { client.send(request).await }
    });
    Ok(kube::Client::new(service, "default"))
}

/// A client of the Kubernetes API server of the cluster whose pod this process runs in, by the pod's service account.
pub fn in_cluster() -> Result<kube::Client, ClientError> {
    let config = Config::incluster().map_err(ClientError::InCluster)?;
    connect(config).map_err(|error| ClientError::built_from(&"the pod's service account", error))
}

/// What the current context of a kubeconfig says, and the files that say it, as they looked before they were read.
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

/// The client certificate of a kubeconfig's current context, in PEM; `None` if it has none, or cannot be read.
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
    // Each of our loops repeats in its own manner and counts it. The client's own repeats, up to fifteen, would hide an
    // outage from them, and hold a lease's renewal for longer than the lease lives.
    config.default_retry = false;
    let named = MapRequestLayer::new(|mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, AGENT);
        request
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&named).build())
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read, or does not say what is needed.
    #[error(
        "cannot use the kubeconfig {}: {source}; it must name a current context with a cluster and a user", path.display()
    )]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: KubeconfigError,
    },
    /// This process does not run in a cluster's pod, or the pod has no service account.
    #[error("cannot use the pod's service account: {0}; outside a cluster give a kubeconfig")]
    InCluster(#[source] InClusterError),
    /// Certificates, keys or addresses do not make a client.
    #[error("cannot make an API client from {from}: {source}")]
    Build {
        /// The file, or what else the settings came from.
        from: String,
        /// What is wrong.
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
    use axum::Extension;
    use axum::routing::get;
    use http::HeaderMap;
    use k8s_openapi::api::core::v1::Namespace;
    use kube::Api;

    #[tokio::test]
    async fn in_process_requests_carry_the_identity() {
        let service = Router::new().route(
            "/api/v1/namespaces/{name}",
            get(|Extension(identity): Extension<Identity>, headers: HeaderMap| async move {
                assert_eq!(headers.get(USER_AGENT), Some(&AGENT));
                format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{}"}}}}"#, identity.user)
            }),
        );
        let client = in_process(service, Identity::user("someone"));
        let namespace: Namespace = Api::all(client).get("x").await.expect("it is there");
        assert_eq!(namespace.metadata.name.as_deref(), Some("someone"));
    }

    #[tokio::test]
    async fn requests_on_behalf_of_others_carry_their_token_and_no_identity() {
        let service = Router::new().route(
            "/api/v1/namespaces/{name}",
            get(|identity: Option<Extension<Identity>>, headers: HeaderMap| async move {
                assert!(identity.is_none());
                assert_eq!(headers[AUTHORIZATION], "Bearer s3cret");
                r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}"#
            }),
        );
        let client = bearing(in_process_unproven(service.clone()), "s3cret").expect("a header");
        let _: Namespace = Api::all(client).get("x").await.expect("it is there");
        assert!(bearing(in_process_unproven(service), "two\nlines").is_err());
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
