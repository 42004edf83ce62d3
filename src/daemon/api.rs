//! The role `api`: the store, the API server over it, and its HTTPS listeners.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use super::Error;
use super::access::{Access, NAME_SERVER_KUBECONFIG};
use super::data_dir::DataDir;
use super::encryption_key::{self, EncryptionKey};
use super::handover;
use super::maintenance;
use super::platform;
use super::room;
use super::sockets;
use super::store::Engine;
use super::tasks::Tasks;
use crate::admin::Admin;
use crate::admin::health::Check;
use crate::config::Settings;
use signpost_api::identity::Identity;
use signpost_api::kinds::{PlatformConfig, server_settings};
use signpost_apiserver::ApiServer;
use signpost_apiserver::audit::Audit;
use signpost_apiserver::audit::log::Log;
use signpost_apiserver::store::encrypted::{Encrypted, Keyring};
use signpost_apiserver::store::{Damage, Store};
use signpost_control::client;
use signpost_control::compiler::{self, ShardView};
use signpost_runtime::httpd::{self, ConnectionSlots};
use signpost_runtime::telemetry::page::Page;
use signpost_types::v1alpha1::router::Router;

/// The maximum time for the API to fill its cache from the store at the start. With one million Routes, the verification of the store
/// alone took 42 s.
const READY_WITHIN: Duration = Duration::from_secs(900);

/// The interval at which the start checks whether the disk is full: then it may take longer.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The running API of this process.
pub struct Api {
    server: ApiServer,
    /// The access control of the API.
    pub access: Arc<Access>,
    audit: Option<Arc<Audit>>,
    pub damage: Arc<Damage>,
    pub addresses: Vec<SocketAddr>,
}

impl Api {
    /// Starts the server over `engine` in `tasks`, and returns when it answers. Without an engine, it opens the file in the data
    /// directory. `access` controls access.
    pub async fn start(
        settings: &Settings,
        data_dir: &DataDir,
        engine: Option<Engine>,
        access: Arc<Access>,
        (listeners, places): (Vec<TcpListener>, Arc<ConnectionSlots>),
        tasks: &mut Tasks,
        (admin, check): (&Admin, &Check),
    ) -> Result<Self, Error> {
        let addresses = sockets::addresses(&listeners);
        let audit = room::when_there_is_room(check, async || open_audit(settings, data_dir)).await?;
        let engine = match engine {
            Some(engine) => engine,
            None => Engine::open_file(data_dir, check).await?,
        };
        engine.attend(settings, admin, tasks);
        let served = server_settings(platform_config(settings), access.authenticator());
        let key = EncryptionKey::read_or_create(&encryption_key::path(settings))?;
        let keyring = Arc::new(Keyring::new(&key.keys));
        let following = encryption_key::follow(key.path, keyring.clone(), tasks.stop_token());
        tasks.spawn("encryption key", following);
        let store: Arc<dyn Store> = Arc::new(Encrypted::new(engine.objects(), keyring, served.kinds.secret_prefixes()));
        let server = ApiServer::new(store.clone(), served);
        server.back_up_with(engine.backups());
        if let Some(audit) = &audit {
            server.audit_to(audit.clone());
        }
        let stop = tasks.stop_token();
        let running = server.clone();
        tasks.spawn("API server", async move { running.run(stop).await });
        let tls = access.server_config()?;
        let router = server.router();
        for (listener, address) in listeners.into_iter().zip(&addresses) {
            let (tls, router, stop) = (tls.clone(), router.clone(), tasks.stop_token());
            let serving = httpd::serve(listener, Some(tls), router, places.clone(), stop);
            tasks.spawn(format!("API listener {address}"), serving);
        }
        if let Some(secret) = settings.name_server_secret.clone() {
            let (client, file) = (client::in_cluster()?, data_dir.join(NAME_SERVER_KUBECONFIG));
            tasks.spawn(
                "name servers' Secret",
                handover::keep(client, file, secret, handover::LOOK_AGAIN, tasks.stop_token()),
            );
        }
        tasks.spawn("certificates", maintenance::keep(access.clone(), tasks.stop_token()));
        let mut since = Instant::now();
        while !server.is_ready() {
            if let Some(needed) = store.full() {
                check.missing(room::words(needed));
                since = Instant::now();
            }
            tokio::select! {
                () = server.ready() => {}
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
                what = tasks.failure() => return Err(Error::Failed(what)),
            }
            if since.elapsed() > READY_WITHIN {
                return Err(Error::ApiNotReady(READY_WITHIN));
            }
        }
        check.ready();
        engine.watch(settings, check.clone(), tasks);
        Ok(Api { server, access, audit, damage: store.damage(), addresses })
    }

    /// Returns a client in this process that speaks as `identity`.
    pub fn client(&self, identity: Identity) -> kube::Client {
        client::in_process(self.server.router_as(identity))
    }

    /// Returns a client in this process without an identity: the credentials of its requests determine the user.
    pub fn unproven_client(&self) -> kube::Client {
        client::in_process(self.server.router())
    }

    /// Returns a writer of the API's metrics: the requests that its limits rejected, and the outcomes of audit events.
    pub fn metrics(&self) -> impl Fn(&mut Page<'_>) -> fmt::Result + use<> {
        let (refusals, audit) = (self.server.refusals().clone(), self.audit.clone());
        move |page| {
            let help = "API requests that a limit rejected, by limit; docs/limits.md describes each";
            page.counts("api_limited_requests", help, "limit", refusals.counts())?;
            if let Some(audit) = &audit {
                let counts = audit.log().counts();
                let outcomes = [("written", counts.written), ("lost", counts.lost), ("suppressed", counts.suppressed)];
                let help = "Audit events, by outcome: written; lost, because the file was too slow or a write failed; suppressed, \
                            because clients without credentials sent too many requests";
                page.counts("api_audit_events", help, "outcome", outcomes)?;
            }
            Ok(())
        }
    }

    /// Reloads replaced files: users, certificates, the audit log.
    pub fn reload(&self) {
        self.access.reload();
        if let Some(audit) = &self.audit {
            audit.log().reopen();
        }
    }
}

/// Returns the platform settings for the zones; if the configuration is not sufficient for zones, only names.
fn platform_config(settings: &Settings) -> PlatformConfig {
    // Without name servers in the configuration, there is one; its address does not affect Routers.
    let platform = platform::settings(settings, &[IpAddr::from(Ipv4Addr::LOCALHOST)], None).ok();
    let names = |platform: &compiler::Settings| {
        platform.name_servers().iter().map(|server| compiler::settings::text_of(&server.name)).collect()
    };
    let name_servers = platform.as_ref().map(names).unwrap_or_default();
    let (known, of_records) = (platform.clone(), platform.clone());
    let record_names = move |router: &Router| {
        let shard = of_records.as_ref().and_then(|platform| ShardView::read(router, platform, &mut Vec::new()));
        let contents = shard.map(|shard| shard.contents());
        let owners = contents.iter().flat_map(|contents| contents.owners()).filter(|(owner, _)| !owner.is_wildcard());
        owners.map(|(owner, _)| compiler::settings::text_of(owner)).collect()
    };
    let diagnose_router = move |router: &Router| {
        let Some(platform) = &platform else { return Vec::new() };
        let mut diagnostics = Vec::new();
        let shard = ShardView::read(router, platform, &mut diagnostics);
        diagnostics.extend(shard.into_iter().flat_map(|shard| shard.diagnostics));
        diagnostics.into_iter().map(|diagnostic| format!("{}: {}", diagnostic.path, diagnostic.message)).collect()
    };
    let occupied_labels = move |router: &Router| {
        let Some(platform) = &known else { return Vec::new() };
        let shard = ShardView::read(router, platform, &mut Vec::new());
        let labels = shard.iter().flat_map(|shard| shard.expectation.all_taken());
        labels.map(|(label, why)| (label.into(), why.to_string())).collect()
    };
    PlatformConfig {
        name_servers,
        label_rules: settings.label_rules(),
        limits: settings.limits(),
        diagnose_router: Box::new(diagnose_router),
        occupied_labels: Box::new(occupied_labels),
        record_names: Box::new(record_names),
        ..PlatformConfig::new(settings.domain.clone())
    }
}

fn open_audit(settings: &Settings, data_dir: &DataDir) -> Result<Option<Arc<Audit>>, Error> {
    let Some(policy) = settings.audit.policy else { return Ok(None) };
    let path = settings.audit.log.clone().unwrap_or_else(|| data_dir.join("audit.log"));
    let log = Log::open(&path, settings.audit_bounds()).map_err(|source| Error::Audit { path, source })?;
    Ok(Some(Arc::new(Audit::new(policy, log))))
}
