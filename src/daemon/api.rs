//! The role `api`: the store, the API server over it, and its HTTPS listeners.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use tokio::net::TcpListener;

use super::Error;
use super::access::Access;
use super::data_dir::DataDir;
use super::sockets;
use super::tasks::Tasks;
use crate::admin::health::Check;
use crate::api::identity::Identity;
use crate::apiserver::auth::Authenticator;
use crate::apiserver::auth::certificate::PeerCertificate;
use crate::apiserver::auth::tokens::Tokens;
use crate::apiserver::{self, ApiServer};
use crate::client;
use crate::config::Settings;
use crate::httpd::{self, ClientCertificate, Limits};
use crate::store::Engine;

/// How long the API may take to fill its cache from the store at the start.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The running API of this process.
pub struct Api {
    server: ApiServer,
    access: Arc<Access>,
    addresses: Vec<SocketAddr>,
}

impl Api {
    /// Opens the store, starts the server in `tasks`, and returns when it answers.
    pub async fn start(
        settings: &Settings,
        data_dir: &DataDir,
        listeners: Vec<TcpListener>,
        tasks: &mut Tasks,
        check: &Check,
    ) -> Result<Self, Error> {
        let addresses = sockets::addresses(&listeners);
        let access = Arc::new(Access::open(data_dir, settings, &addresses)?);
        let tokens = access.kubeconfigs()?;
        let in_file = |source| Error::Tokens { path: data_dir.join("pki/tokens"), source };
        let tokens = Tokens::parse(&tokens).map_err(in_file)?;
        let path = data_dir.join("");
        let opened = tokio::task::spawn_blocking(move || Engine::open(&path, Default::default())).await;
        let store = opened.expect("opening a store does not panic")?;
        let authenticator = Arc::new(Authenticator::new(tokens));
        let server_settings = apiserver::Settings { domain: settings.domain.clone(), authenticator };
        let server = ApiServer::new(Arc::new(store), server_settings);
        let stop = tasks.stop_token();
        let running = server.clone();
        tasks.spawn("API server", async move { running.run(stop).await });
        let tls = access.authority().server_config()?;
        let router = server.router().layer(middleware::from_fn(name_certificate));
        for (listener, address) in listeners.into_iter().zip(&addresses) {
            let (tls, router, stop) = (tls.clone(), router.clone(), tasks.stop_token());
            let serving = httpd::serve(listener, Some(tls), router, Limits::default(), stop);
            tasks.spawn(format!("API listener {address}"), serving);
        }
        tasks.spawn("certificates", access.clone().keep(tasks.stop_token()));
        tokio::time::timeout(READY_WITHIN, server.ready()).await.map_err(|_| Error::ApiNotReady(READY_WITHIN))?;
        check.ready();
        Ok(Api { server, access, addresses })
    }

    /// A client in this process that speaks as `identity`.
    pub fn client(&self, identity: Identity) -> kube::Client {
        client::in_process(self.server.router(), identity)
    }

    /// Who gets in, and how.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// Hands the client certificate that the listener verified to the API server.
async fn name_certificate(mut request: Request, next: Next) -> Response {
    if let Some(certificate) = request.extensions_mut().remove::<ClientCertificate>() {
        let ClientCertificate { common_name, organizations } = certificate;
        request.extensions_mut().insert(PeerCertificate { common_name, organizations });
    }
    next.run(request).await
}
