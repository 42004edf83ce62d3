//! One process: configure, build, run, drain.
//!
//! [`run`] is the whole life of `signpost serve`; `build` combines the roles. Within one process, the loops use the same client
//! as over the network, with a function call instead of TLS.

pub mod access;
pub mod api;
pub mod banner;
mod build;
mod certificate_metrics;
mod certificates;
pub mod configuration;
pub mod data_dir;
pub mod demo;
pub mod dns;
pub mod dns_metrics;
pub mod encryption_key;
pub mod engine;
#[cfg(feature = "etcd")]
pub mod etcd;
mod freshness;
mod handover;
mod http;
mod inherited;
mod loops;
pub mod maintenance;
pub mod manifests;
pub mod platform;
pub mod query_log;
pub mod restored;
pub mod room;
pub mod router_agent;
pub mod runtime_settings;
pub mod scheduling;
pub mod secondaries;
pub mod sign_in;
pub mod signals;
pub mod sockets;
mod store;
pub mod supervisor;
pub mod tasks;
mod traffic_server;
pub mod unrouted;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::api::Api;
use self::certificates::Certificates;
use self::data_dir::DataDir;
use self::dns::Dns;
use self::loops::Started;
use self::runtime_settings::RuntimeSettings;
use self::signals::{Signal, Signals};
use self::tasks::Tasks;
use crate::admin::Admin;
use crate::admin::health::Health;
use crate::admin::liveness::Liveness;
use crate::config::{self, ConfigSources, Settings};
use signpost_apiserver::store::embedded::OpenError;
use signpost_control::name_server::domain::{DomainMismatch, Domains};
use signpost_control::name_server::files::static_zones;
use signpost_control::name_server::last_known_good::StateError;
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::{client, compiler};
use signpost_dns::transport;
use signpost_runtime::telemetry::{self, Log};
use signpost_runtime::tls;

/// The threads of the admin endpoint: one more than a slow scrape takes.
const ADMIN_THREADS: usize = 2;
/// The interval at which the control runtime counts an iteration.
const BEAT_INTERVAL: Duration = Duration::from_millis(250);
/// The time without progress after which the control runtime counts as hung. Any work for tenants takes less; a deadlock does
/// not.
const CONTROL_HUNG_AFTER: Duration = Duration::from_secs(60);
/// The maximum time for the loops to stop.
const DRAIN: Duration = Duration::from_secs(4);
/// The maximum time for a whole stop, without the lame-duck period: the loops, the listeners, and the rest.
const STOP_LONGEST: Duration = Duration::from_secs(15);

/// The reason why a process did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Listen(#[from] sockets::ListenError),
    #[error("cannot listen: {0}")]
    ListenDns(#[from] transport::BindError),
    #[error("{0}")]
    Configuration(String),
    #[error(transparent)]
    DataDir(#[from] data_dir::DataDirError),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[cfg(feature = "etcd")]
    #[error("etcd: {0}")]
    Etcd(String),
    #[error("{0}")]
    EncryptionKey(String),
    #[error("certificates: {0}")]
    Tls(#[from] tls::Error),
    #[error("cannot open the audit log {}: {source} (--audit-log, or --audit-policy off)", path.display())]
    Audit { path: PathBuf, source: std::io::Error },
    #[error("the API was not ready within {} seconds; see the log", .0.as_secs())]
    ApiNotReady(Duration),
    #[error(transparent)]
    Client(#[from] client::ClientError),
    #[error(transparent)]
    Platform(#[from] compiler::settings::SettingsError),
    #[error(transparent)]
    DomainMismatch(#[from] DomainMismatch),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("{0} (--zones)")]
    ZoneFiles(#[from] static_zones::FolderError),
    #[error(transparent)]
    QueryLog(#[from] query_log::OpenError),
    #[error("no manifest was applied:\n{}", lines(.0))]
    Manifests(Vec<manifests::ManifestError>),
    #[error("cannot start threads: {0}")]
    Workers(std::io::Error),
    #[error("{0}; see the log")]
    Failed(String),
}

impl Error {
    /// Returns whether the configuration is the reason, so that another start with the same one ends alike.
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            Error::Configuration(_)
                | Error::Platform(_)
                | Error::DomainMismatch(_)
                | Error::ZoneFiles(_)
                | Error::Manifests(_)
        )
    }
}

fn lines(errors: &[manifests::ManifestError]) -> String {
    errors.iter().map(|error| format!("  {error}")).collect::<Vec<_>>().join("\n")
}

/// Runs a process from its first step to its last. Returns after a request to stop, or when it cannot continue.
pub fn run(places: ConfigSources, mut settings: Settings) -> Result<(), Error> {
    // First, while there is only one thread: it removes environment variables.
    let given = inherited::from_environment()?;
    let log = telemetry::init(&settings.log.level, settings.log.format);
    for (variable, nearest) in config::layers::unknown_variables(&places.environment) {
        let hint = nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        tracing::warn!("environment variable {variable} is not a setting{hint}");
    }
    // All TLS of this process uses one provider; a second call finds it there.
    let _ = aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Workers)?;
    // Health requests have their own threads, independent of the load by tenants.
    let mut health = tokio::runtime::Builder::new_multi_thread();
    let health = health.worker_threads(ADMIN_THREADS).thread_name("admin").enable_all();
    let health = health.build().map_err(Error::Workers)?;
    let dns_listen = if settings.has(config::Role::Dns) { settings.dns.listen.clone() } else { Vec::new() };
    let admin = Admin { dns_listen, ..Admin::default() };
    let alive = supervisor::keep_alive(admin.liveness.clone()).map_err(Error::Workers)?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::new().map_err(Error::Workers)?;
        let example = if places.is_demo { demo::documents() } else { Vec::new() };
        let beating = AbortOnDropHandle::new(tokio::spawn(beat(admin.liveness.clone())));
        let mut process = tokio::select! {
            built = build::process(&settings, example, given, admin, health.handle().clone()) => built?,
            () = signals.end() => return Ok(()),
        };
        banner::print(&process, &settings, places.is_demo);
        supervisor::ready(&roles(&settings));
        let outcome = process.serve(&mut signals, places, &mut settings, log).await;
        supervisor::stopping("stopping", settings.lame_duck + STOP_LONGEST);
        if outcome.is_ok() {
            process.lame_duck(settings.lame_duck, &mut signals).await;
        }
        if signals.is_interrupted() {
            process.end_instances.cancel();
        }
        tracing::info!("stopping");
        tokio::select! {
            () = process.drain() => {}
            // A second signal requests an immediate stop.
            () = signals.end() => {}
        }
        drop(beating);
        outcome
    });
    drop(alive);
    runtime.shutdown_timeout(Duration::from_secs(1));
    health.shutdown_background();
    outcome
}

/// Counts iterations of the control runtime, so that a hang is detected.
async fn beat(liveness: Arc<Liveness>) {
    let beats = Arc::new(AtomicU64::new(0));
    let read = Arc::downgrade(&beats);
    liveness.watch("the control runtime", CONTROL_HUNG_AFTER, move || Some(read.upgrade()?.load(Ordering::Relaxed)));
    loop {
        tokio::time::sleep(BEAT_INTERVAL).await;
        beats.fetch_add(1, Ordering::Relaxed);
    }
}

/// A running process.
struct Process {
    admin_addresses: Vec<SocketAddr>,
    certificates: Certificates,
    health: Arc<Health>,
    api: Option<Api>,
    dns: Option<Dns>,
    /// The loops of the role `scheduler`, if this process has it.
    loops: Option<Started>,
    runtime_settings: RuntimeSettings,
    applied: Option<manifests::Report>,
    /// The handle that stops the instances of Routers with this process.
    end_instances: CancellationToken,
    control: Tasks,
    /// The API, which stops after the loops, so that a leader can release its Lease.
    serving: Tasks,
    /// The admin endpoints, which show how the other parts stop.
    edge: Tasks,
    /// Held until all other parts have stopped.
    _data_dir: Option<DataDir>,
}

impl Process {
    /// Runs until a request to stop, or until a critical part fails.
    async fn serve(
        &mut self,
        signals: &mut Signals,
        places: ConfigSources,
        settings: &mut Settings,
        log: Option<Log>,
    ) -> Result<(), Error> {
        loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    Signal::End => return Ok(()),
                    Signal::Reload => {
                        supervisor::reloading();
                        self.reload(&places, settings, log.as_ref()).await;
                        supervisor::ready(&roles(settings));
                    }
                },
                what = self.control.failure() => return Err(Error::Failed(what)),
                what = self.serving.failure() => return Err(Error::Failed(what)),
                what = self.edge.failure() => return Err(Error::Failed(what)),
            }
        }
    }

    /// Reports the process as not ready, and continues to serve for `time`, in which load balancers and resolvers move to other
    /// servers. A second signal to stop, or a failure, ends it early.
    async fn lame_duck(&mut self, time: Duration, signals: &mut Signals) {
        let _ = self.health.add("process", "stop", "shutdown requested; still serving for the lame-duck period");
        if time.is_zero() {
            return;
        }
        tracing::info!(
            seconds = time.as_secs(),
            "shutdown requested: /readyz fails, still serving for the lame-duck period"
        );
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = signals.end() => {}
            what = self.control.failure() => tracing::error!("{what}"),
            what = self.serving.failure() => tracing::error!("{what}"),
            what = self.edge.failure() => tracing::error!("{what}"),
        }
    }

    /// Reloads the configuration, the zone files, users, and certificates.
    async fn reload(&self, places: &ConfigSources, settings: &mut Settings, log: Option<&Log>) {
        if let Some(dns) = &self.dns {
            dns.reload();
        }
        if let Some(api) = &self.api {
            api.reload();
        }
        self.certificates.reload();
        let new = match configuration::load(places) {
            Ok(new) => new,
            Err(errors) => {
                for error in &errors.0 {
                    tracing::error!("{error}");
                }
                tracing::error!("failed to reload the configuration; all settings keep their values");
                return;
            }
        };
        let (now, restart) = config::changed(settings, &new);
        let query_log = settings.query_log.clone();
        settings.reload(&new);
        if now.contains(&"log.level")
            && let Some(Err(error)) = log.map(|log| log.set_level(&settings.log.level))
        {
            tracing::error!("log.level: {error}");
        }
        self.runtime_settings.turn(settings);
        // Even if these keys are unchanged: a file that they name can have changed.
        if let Some(loops) = &self.loops {
            loops.published.send_if_modified(|published| {
                let Some(published) = published else { return false };
                let was = published.clone();
                (published.strategy, published.webhook_fallback) = platform::chosen_by(settings);
                *published != was
            });
            let chooser = settings.chooser();
            platform::check_chooser(&chooser).await;
            let differs = *loops.switch.borrow() != chooser;
            if differs || matches!(chooser, StrategyConfig::Webhook(_)) {
                loops.switch.send_replace(chooser);
            }
        }
        if let Some(dns) = &self.dns {
            // Even if nothing has changed: its file may have been renamed.
            if let Err(error) = dns.open_query_log(&settings.query_log).await {
                tracing::error!("failed to open the query log; it stays unchanged: {error}");
                settings.query_log = query_log;
            }
            dns.configure(settings);
        }
        tracing::info!(changed = now.join(", "), "configuration reloaded");
        if !restart.is_empty() {
            tracing::warn!("changes of these keys require a restart: {}", restart.join(", "));
        }
    }

    /// Stops everything in order: the loops and the API, then the name server, then the admin endpoints.
    async fn drain(self) {
        for tasks in [self.control, self.serving] {
            for late in tasks.end(DRAIN).await {
                tracing::warn!("{late} did not stop in time");
            }
        }
        if let Some(dns) = self.dns {
            dns.stop().await;
        }
        self.edge.end(Duration::from_millis(500)).await;
        drop(self.api);
    }
}

/// Returns the platform's domain, and the former domain.
fn domains(settings: &Settings) -> Domains {
    Domains { domain: settings.domain.clone(), former: settings.former_domain.clone() }
}

/// Returns the roles of the process, for the service manager's status line.
fn roles(settings: &Settings) -> String {
    let words: Vec<&str> = settings.roles.iter().map(|role| role.word()).collect();
    format!("running as {}", words.join(", "))
}
