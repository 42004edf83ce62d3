//! One process: configure, build, run, drain.
//!
//! [`run`] is the whole life of `signpost serve`. `Process::start` puts the roles together in the order in which they
//! need one another: sockets first, so that an address in use costs nothing; then the data directory; then the API, the
//! loops that are its clients, the name server; and last the manifests, which go in through the API like anyone's. Within
//! one process the loops use the same client as from afar, over a function call instead of TLS.

pub mod access;
pub mod admin_tls;
pub mod api;
pub mod banner;
mod certificate_metrics;
pub mod configuration;
pub mod data_dir;
pub mod dns;
pub mod dns_metrics;
pub mod engine;
mod handover;
mod http;
mod inherited;
pub mod maintenance;
pub mod manifests;
pub mod platform;
pub mod query_log;
pub mod restored;
pub mod room;
pub mod runtime_settings;
pub mod scheduling;
pub mod signals;
pub mod sockets;
pub mod store_metrics;
pub mod supervisor;
pub mod tasks;
pub mod traces;
pub mod unrouted;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_util::task::AbortOnDropHandle;

use self::access::Access;
use self::api::Api;
use self::certificate_metrics::CertificateMetrics;
use self::data_dir::DataDir;
use self::dns::{Dns, Follow};
use self::http::HttpMetrics;
use self::runtime_settings::RuntimeSettings;
use self::signals::{Signal, Signals};
use self::store_metrics::StoreMetrics;
use self::tasks::Tasks;
use crate::admin::dashboard::Dashboard;
use crate::admin::health::{Health, Warning};
use crate::admin::host::Hosts;
use crate::admin::liveness::Liveness;
use crate::admin::{self, Admin};
use crate::config::{self, AdminTls, Places, Role, Settings};
use signpost_api::identity::{
    GROUP_AUTHENTICATED, GROUP_MASTERS, Identity, USER_ADMIN, USER_CONTROLLER, USER_NAME_SERVER, USER_SCHEDULER,
};
use signpost_api::v1alpha1::zone::ZonePlatform;
use signpost_apiserver::audit::metrics::AuditMetrics;
use signpost_apiserver::limits::LimitMetrics;
use signpost_apiserver::store;
use signpost_control::client::metrics::InformerMetrics;
use signpost_control::controller::domain::{self, DomainMismatch, Domains};
use signpost_control::controller::ledger::BaseSerial;
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::world::{self, World};
use signpost_control::{client, compiler, controller};
use signpost_dns::sys::files;
use signpost_dns::transport;
use signpost_dns::transport::inherited_sockets::InheritedSockets;
use signpost_runtime::httpd;
use signpost_runtime::telemetry::{self, Log};
use signpost_runtime::tls;

/// How many files may be open where the system does not say: what it is nearly everywhere.
const FILES_MAX_ASSUMED: u64 = 1_024;
/// Threads of the admin endpoint: one more than a slow scrape takes.
const ADMIN_THREADS: usize = 2;
/// How often the control runtime counts a turn.
const BEAT_INTERVAL: Duration = Duration::from_millis(250);
/// How long the control runtime may stand still. Whatever tenants ask of it passes sooner; a deadlock does not.
const CONTROL_HUNG_AFTER: Duration = Duration::from_secs(60);
/// How long the loops may take to end.
const DRAIN: Duration = Duration::from_secs(4);
/// How long all of a stop takes at most, the lame duck apart: the loops, the listeners, the rest.
const STOP_LONGEST: Duration = Duration::from_secs(15);

/// Why a process did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] sockets::ListenError),
    /// An address of the name server cannot be listened on.
    #[error("cannot listen: {0}")]
    ListenDns(#[from] transport::BindError),
    /// The service manager passes sockets that cannot be used.
    #[error(transparent)]
    Inherited(#[from] inherited::InheritedError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] data_dir::DataDirError),
    /// The store in it cannot be opened.
    #[error(transparent)]
    Store(#[from] store::embedded::OpenError),
    /// Certificates or kubeconfigs cannot be had.
    #[error("certificates: {0}")]
    Tls(#[from] tls::Error),
    /// The audit log cannot be written.
    #[error("cannot open the audit log {}: {source} (--audit-log, or --audit-policy off)", path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The API did not come up.
    #[error("the API was not ready within {} seconds; see the log", .0.as_secs())]
    ApiNotReady(Duration),
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Client(#[from] client::ClientError),
    /// Domain and name servers do not make a zone.
    #[error(transparent)]
    Platform(#[from] compiler::settings::SettingsError),
    /// The store is that of a platform with another domain.
    #[error(transparent)]
    DomainMismatch(#[from] DomainMismatch),
    /// The zone files cannot be read.
    #[error("{0} (--zones)")]
    ZoneFiles(#[from] controller::static_zones::FolderError),
    /// Spans cannot be sent.
    #[error("{0} (--trace-endpoint, --trace-headers, --trace-ca)")]
    Traces(#[from] telemetry::otlp::SetupError),
    /// The query log cannot be written.
    #[error(transparent)]
    QueryLog(#[from] query_log::OpenError),
    /// Manifests were refused; nothing of them was applied.
    #[error("nothing of the manifests was applied:\n{}", lines(.0))]
    Manifests(Vec<manifests::ManifestError>),
    /// The system refuses threads.
    #[error("cannot start threads: {0}")]
    Workers(std::io::Error),
    /// Something that must run ended.
    #[error("{0}; see the log")]
    Failed(String),
}

impl Error {
    /// Whether the configuration is the reason, so that another start with the same one ends alike.
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            Error::Inherited(_)
                | Error::Platform(_)
                | Error::DomainMismatch(_)
                | Error::ZoneFiles(_)
                | Error::Traces(_)
                | Error::Manifests(_)
        )
    }
}

/// How many damaged keys are named where the process tells how it fares.
const DAMAGED_TOLD_MAX: usize = 5;

/// Tells of damaged values in the store.
fn damaged_values(damage: &Arc<store::Damage>) -> Warning {
    let damage = damage.clone();
    Box::new(move || {
        let count = damage.count();
        let keys: Vec<String> =
            damage.first(DAMAGED_TOLD_MAX).iter().map(|damaged| damaged.key.0.to_string()).collect();
        let more = if count > keys.len() { ", …" } else { "" };
        (count > 0).then(|| format!("{count} damaged: {}{more}; see \"signpost check store\"", keys.join(", ")))
    })
}

fn lines(errors: &[manifests::ManifestError]) -> String {
    errors.iter().map(|error| format!("  {error}")).collect::<Vec<_>>().join("\n")
}

/// Runs a process from its first step to its last. Returns when it was told to end, or when it cannot go on.
pub fn run(places: Places, mut settings: Settings) -> Result<(), Error> {
    // First, while there is but one thread: it takes variables out of the environment.
    let given = inherited::from_environment()?;
    let log = telemetry::init(&settings.log.level, settings.log.format);
    for (variable, nearest) in config::layers::unknown_variables(&places.environment) {
        let hint = nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        tracing::warn!("environment variable {variable} is no setting{hint}");
    }
    // All TLS of this process uses one provider; a second call finds it there.
    let _ = aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Workers)?;
    // Health is answered by threads of its own, whatever tenants make the others do.
    let mut health = tokio::runtime::Builder::new_multi_thread();
    let health = health.worker_threads(ADMIN_THREADS).thread_name("admin").enable_all();
    let health = health.build().map_err(Error::Workers)?;
    let admin = Admin::default();
    let alive = supervisor::keep_alive(admin.liveness.clone()).map_err(Error::Workers)?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::new().map_err(Error::Workers)?;
        let beating = AbortOnDropHandle::new(tokio::spawn(beat(admin.liveness.clone())));
        let mut process = tokio::select! {
            started = Process::start(&settings, given, admin, health.handle().clone()) => started?,
            () = signals.end() => return Ok(()),
        };
        process.announce(&settings);
        supervisor::ready(&roles(&settings));
        let outcome = process.serve(&mut signals, places, &mut settings, log).await;
        supervisor::stopping("stopping", settings.lame_duck + STOP_LONGEST);
        if outcome.is_ok() {
            process.lame_duck(settings.lame_duck, &mut signals).await;
        }
        tracing::info!("stopping");
        tokio::select! {
            () = process.drain() => {}
            // Whoever asks twice means now.
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

/// Counts turns of the control runtime, so that it is noticed when it stands still.
async fn beat(liveness: Arc<Liveness>) {
    let turns = Arc::new(AtomicU64::new(0));
    let read = Arc::downgrade(&turns);
    liveness.watch("the control runtime", CONTROL_HUNG_AFTER, move || Some(read.upgrade()?.load(Ordering::Relaxed)));
    loop {
        tokio::time::sleep(BEAT_INTERVAL).await;
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// A running process.
struct Process {
    admin_addresses: Vec<SocketAddr>,
    /// What the admin endpoints show; `None`: they speak plain HTTP.
    admin_tls: Option<Arc<admin_tls::Source>>,
    health: Arc<Health>,
    api: Option<Api>,
    dns: Option<Dns>,
    /// Changes what chooses Routers, if this process has the role `scheduler`.
    switch: Option<watch::Sender<StrategyConfig>>,
    /// Changes what the API tells of the configuration, likewise.
    told: Option<watch::Sender<Option<ZonePlatform>>>,
    /// Settings that the loops go by.
    runtime_settings: RuntimeSettings,
    applied: Option<manifests::Report>,
    /// Scheduler and control loops.
    control: Tasks,
    /// The API, which ends after the loops: a leader lets its Lease go.
    serving: Tasks,
    /// The admin endpoints, which show how the others end.
    edge: Tasks,
    /// Held until all else has ended.
    _data_dir: Option<DataDir>,
}

impl Process {
    /// Builds all roles, or none, on sockets that are `given` where there are any.
    async fn start(
        settings: &Settings,
        mut given: InheritedSockets,
        admin: Admin,
        admin_runtime: Handle,
    ) -> Result<Self, Error> {
        let documents = manifests::read(&settings.manifests).map_err(Error::Manifests)?;
        let admin_sockets = listen(settings, Role::Admin, &settings.admin.listen, "--admin-listen", &mut given)?;
        let api_sockets = listen(settings, Role::Api, &settings.api.listen, "--api-listen", &mut given)?;
        files::outlive_file_size_max();
        // The usual soft limit of 1,024 files is for programs that use `select`.
        let files_max = files::raise_open_files_max().unwrap_or_else(|error| {
            tracing::warn!(%error, "the limit of open files could not be raised");
            FILES_MAX_ASSUMED
        });
        let dns_sockets = settings.has(Role::Dns).then(|| dns::bind(settings, files_max, &mut given)).transpose()?;
        inherited::all_taken(&given)?;
        let listened = dns_sockets.as_ref().map_or_else(|| settings.dns.listen.clone(), transport::Bound::addresses);
        let applied = (!documents.is_empty()).then(|| admin.health.add("api", "manifests", "they are not applied yet"));
        // The admin endpoints answer before anything else is there: without this check nothing would be missing yet.
        let starting = admin.health.add("process", "start", "it is starting");
        let (mut control, mut serving, mut edge) = (Tasks::new(), Tasks::new(), Tasks::new());
        let runtime_settings = RuntimeSettings::new(settings);
        let admin_addresses = sockets::addresses(&admin_sockets);
        let dashboard = Dashboard::new(admin.health.clone(), admin.metrics.clone());
        let api_places = http::api_places(settings, files_max);
        let admin_places = http::admin_places(settings, files_max);
        let servers = [(Role::Api, "api", &api_places), (Role::Admin, "admin", &admin_places)];
        let servers = servers.into_iter().filter(|(role, ..)| settings.has(*role));
        admin.metrics.collect(HttpMetrics(servers.map(|(_, name, places)| (name, places.clone())).collect()));
        // The names in a certificate are accepted as soon as it is there.
        let certificate = Arc::new(OnceLock::<Arc<admin_tls::Source>>::new());
        let certified = certificate.clone();
        let hosts = Hosts::new(access::names(&admin_addresses, &settings.admin.name), move |name| {
            certified.get().is_some_and(|certificate| certificate.is_for(name))
        });
        if !admin_sockets.is_empty() {
            let help = "Requests to the admin endpoints refused for the name in their Host header";
            admin.metrics.register(|registry| registry.register("admin_hosts_refused", help, hosts.refused()));
        }
        let serve_admin = |edge: &mut Tasks, sockets: Vec<TcpListener>, shown: Option<Arc<ServerConfig>>| {
            for listener in sockets {
                let router = hosts.checked(admin::router(admin.clone(), dashboard.clone()));
                let (shown, places, stop) = (shown.clone(), admin_places.clone(), edge.stop_token());
                edge.spawn_on("admin listener", &admin_runtime, async move {
                    match listener.into_std().and_then(TcpListener::from_std) {
                        Ok(listener) => httpd::serve(listener, shown, router, places, stop).await,
                        Err(error) => tracing::error!(%error, "the admin endpoint cannot listen"),
                    }
                });
            }
        };
        let mut admin_sockets = admin_sockets;
        if settings.admin_tls() == AdminTls::Off {
            // It needs no certificate, so it can say what the rest waits for.
            serve_admin(&mut edge, std::mem::take(&mut admin_sockets), None);
        }
        let data_dir = match settings.needs_data_dir() {
            true => Some(room::when_there_is_room(&starting, async || DataDir::open(&settings.data_dir)).await?),
            false => None,
        };
        traces::start(&settings.trace, data_dir.as_ref(), &mut edge, &admin)?;
        let access = match &data_dir {
            Some(data_dir) if settings.has(Role::Api) => {
                let further = || match settings.admin_tls() {
                    AdminTls::On => access::names(&admin_addresses, &settings.admin.name).collect(),
                    AdminTls::Off | AdminTls::Files { .. } => Vec::new(),
                };
                let listened = sockets::addresses(&api_sockets);
                let open = async || Access::open(data_dir, settings, &listened, further());
                Some(Arc::new(room::when_there_is_room(&starting, open).await?))
            }
            _ => None,
        };
        let admin_tls =
            async || admin_tls::Source::open(settings, data_dir.as_ref(), access.as_ref(), &admin_addresses);
        let admin_tls = room::when_there_is_room(&starting, admin_tls).await?;
        admin.metrics.collect(CertificateMetrics {
            api: access.clone(),
            admin: admin_tls.clone(),
            kubeconfig: settings.kubeconfig.clone(),
        });
        if let Some(tls) = &admin_tls {
            // It is set once.
            let _ = certificate.set(tls.clone());
        }
        if !admin_addresses.is_empty() {
            edge.spawn("dashboard", dashboard.clone().run(edge.stop_token()));
        }
        match &admin_tls {
            Some(tls) => edge.spawn("admin certificate", maintenance::keep(tls.clone(), edge.stop_token())),
            None => admin_tls::warn_of_plain(&admin_addresses),
        }
        let shown = admin_tls.as_ref().map(|tls| tls.server_config()).transpose()?;
        serve_admin(&mut edge, admin_sockets, shown);
        let api = match (&data_dir, access) {
            (Some(data_dir), Some(access)) => {
                let check = admin.health.add("api", "store", "it is being opened");
                let api =
                    Api::start(settings, data_dir, access, (api_sockets, api_places), &mut serving, &check).await?;
                // Before anything is made of the objects.
                let client = api.client(Identity::user(USER_CONTROLLER));
                let found = domain::disagreement_after_taking_over(&client, &domains(settings)).await;
                if let Some(other) = found.map_err(|error| Error::Failed(format!("the store: {error}")))? {
                    return Err(Error::DomainMismatch(other));
                }
                Some(api)
            }
            _ => None,
        };
        dashboard.open(match (&api, &settings.kubeconfig) {
            (Some(api), _) => Some(api.unproven_client()),
            (None, Some(path)) => Some(client::unproven_from_kubeconfig(path, settings.api.read_timeout).await?),
            (None, None) => None,
        });
        if let Some(api) = &api {
            admin.metrics.collect(LimitMetrics(api.refusals().clone()));
        }
        if let Some(audit) = api.as_ref().and_then(Api::audit) {
            admin.metrics.collect(AuditMetrics(audit.clone()));
        }
        if let Some(api) = &api {
            let damage = api.damage().clone();
            admin.health.warn("api", "stored values", damaged_values(&damage));
            admin.metrics.collect(StoreMetrics { writable: api.store_writable().clone(), damage });
        }
        let mut informers = Vec::new();
        let (mut switch, mut told) = (None, None);
        let (base_serial, base) = watch::channel(None);
        let (told_files, files) = watch::channel(Arc::default());
        // The loops of this process read one World, with the rights of one of them.
        let user = match settings.has(Role::Scheduler) {
            true => Some(USER_SCHEDULER),
            false => settings.dns_follows_api().then_some(USER_NAME_SERVER),
        };
        let world = match user {
            Some(user) => {
                let mut reading = world::Settings::of(dns::platform_settings(settings, &listened)?);
                // Nothing but the status of Routers depends on an examination of their fields.
                reading.platform = reading.platform.filter(|_| settings.has(Role::Scheduler));
                Some(World::new(&client_as(settings, api.as_ref(), user).await?, reading))
            }
            None => None,
        };
        if let (true, Some(data_dir), Some(world)) = (settings.has(Role::Scheduler), &data_dir, &world) {
            let platform = dns::platform_settings(settings, &listened)?;
            let scheduler = client_as(settings, api.as_ref(), USER_SCHEDULER).await?;
            let controller = client_as(settings, api.as_ref(), USER_CONTROLLER).await?;
            let clients = scheduling::Clients { scheduler, controller, world };
            let instance = room::when_there_is_room(&starting, async || data_dir.instance()).await?;
            let host_key = async || settings.verify.hosts.then(|| data_dir.host_key()).transpose();
            let host_key = room::when_there_is_room(&starting, host_key).await?;
            let here = scheduling::Here {
                instance: &instance,
                listened: &listened,
                host_key,
                files,
                runtime_settings: &runtime_settings,
            };
            platform::check_chooser(&settings.chooser()).await;
            let started = scheduling::start(settings, clients, platform, base, here, &mut control, &admin);
            informers = started.informers;
            switch = Some(started.switch);
            told = Some(started.told);
        }
        let follow = match (&data_dir, world) {
            (Some(data_dir), Some(world)) if settings.dns_follows_api() => Some(Follow {
                client: client_as(settings, api.as_ref(), USER_NAME_SERVER).await?,
                world,
                platform: dns::platform_settings(settings, &listened)?,
                state: api.is_none().then(|| data_dir.join("state")),
                instance: room::when_there_is_room(&starting, async || data_dir.instance()).await?,
            }),
            _ => None,
        };
        let dns = match dns_sockets {
            Some(sockets) => {
                let tasks = &mut control;
                Some(Dns::start(settings, &runtime_settings, sockets, follow, tasks, &admin, &mut informers).await?)
            }
            None => None,
        };
        // The zone files were read: the ledger may begin.
        base_serial.send_replace(Some(dns.as_ref().map_or(BaseSerial::Unknown, Dns::base_serial)));
        if let Some(dns) = &dns {
            control.spawn("apexes of zone files", dns.tell_files(told_files, control.stop_token()));
        }
        if !informers.is_empty() {
            admin.metrics.collect(InformerMetrics::new(informers));
        }
        let health = admin.health.clone();
        let mut process = Process {
            admin_addresses,
            admin_tls,
            health,
            api,
            dns,
            switch,
            told,
            runtime_settings,
            applied: None,
            control,
            serving,
            edge,
            _data_dir: data_dir,
        };
        if let (Some(api), Some(check)) = (&process.api, applied) {
            let groups = vec![GROUP_MASTERS.to_owned(), GROUP_AUTHENTICATED.to_owned()];
            let client = api.client(Identity { user: USER_ADMIN.to_owned(), groups });
            match manifests::apply(&client, &documents).await {
                Ok(report) => {
                    check.ready();
                    process.applied = Some(report);
                }
                Err(errors) => {
                    process.drain().await;
                    return Err(Error::Manifests(errors));
                }
            }
        }
        starting.ready();
        Ok(process)
    }

    /// Tells the operator what listens where, and what to try.
    fn announce(&self, settings: &Settings) {
        banner::print(&banner::Facts {
            settings,
            dns: self.dns.as_ref().map(Dns::addresses).unwrap_or_default(),
            api: self.api.as_ref(),
            admin: &self.admin_addresses,
            admin_scheme: if self.admin_tls.is_some() { "https" } else { "http" },
            applied: self.applied.as_ref(),
        });
    }

    /// Runs until told to end, or until something fails that must not.
    async fn serve(
        &mut self,
        signals: &mut Signals,
        places: Places,
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

    /// Says that it is not ready any more, and goes on as before for `time`, in which balancers and resolvers turn to others.
    /// A second signal to end, or something that fails, cuts it short.
    async fn lame_duck(&mut self, time: Duration, signals: &mut Signals) {
        let _ = self.health.add("process", "stop", "it was told to end and answers for a while yet (lame-duck)");
        if time.is_zero() {
            return;
        }
        tracing::info!(seconds = time.as_secs(), "told to end: not ready from now on, still answering (lame-duck)");
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = signals.end() => {}
            what = self.control.failure() => tracing::error!("{what}"),
            what = self.serving.failure() => tracing::error!("{what}"),
            what = self.edge.failure() => tracing::error!("{what}"),
        }
    }

    /// Reads the configuration, the zone files, users and certificates again.
    async fn reload(&self, places: &Places, settings: &mut Settings, log: Option<&Log>) {
        if let Some(dns) = &self.dns {
            dns.reload();
        }
        if let Some(api) = &self.api {
            api.reload();
        }
        if let Some(tls) = &self.admin_tls {
            tls.reload();
        }
        let new = match configuration::load(places) {
            Ok(new) => new,
            Err(errors) => {
                for error in &errors.0 {
                    tracing::error!("{error}");
                }
                tracing::error!("the configuration is not reloaded; all settings stay as they were");
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
        // Even if nothing has changed in these keys: the file that one of them names may have.
        let chooser = settings.chooser();
        if let Some(told) = &self.told {
            told.send_if_modified(|told| {
                let Some(told) = told else { return false };
                let was = told.clone();
                (told.strategy, told.webhook_fallback) = platform::chosen_by(settings);
                *told != was
            });
        }
        if let Some(switch) = &self.switch {
            platform::check_chooser(&chooser).await;
            let differs = *switch.borrow() != chooser;
            if differs || matches!(chooser, StrategyConfig::Webhook(_)) {
                switch.send_replace(chooser);
            }
        }
        if let Some(dns) = &self.dns {
            // Even if nothing has changed: its file may have been moved away.
            if let Err(error) = dns.open_query_log(&settings.query_log()).await {
                tracing::error!("the query log stays as it was: {error}");
                settings.query_log = query_log;
            }
            dns.configure(settings);
        }
        tracing::info!(changed = now.join(", "), "the configuration was reloaded");
        if !restart.is_empty() {
            tracing::warn!("changes of these keys need a restart: {}", restart.join(", "));
        }
    }

    /// Ends everything in order: the loops and the API, then answers, then the admin endpoints.
    async fn drain(self) {
        for tasks in [self.control, self.serving] {
            for late in tasks.end(DRAIN).await {
                tracing::warn!("{late} did not end in time");
            }
        }
        if let Some(dns) = self.dns {
            dns.stop().await;
        }
        self.edge.end(Duration::from_millis(500)).await;
        drop(self.api);
    }
}

/// Listens for a role, if this process has it.
fn listen(
    settings: &Settings,
    role: Role,
    addresses: &[SocketAddr],
    flag: &'static str,
    given: &mut InheritedSockets,
) -> Result<Vec<TcpListener>, sockets::ListenError> {
    if settings.has(role) { sockets::listen(addresses, flag, given) } else { Ok(Vec::new()) }
}

/// The platform's domain, and the one that it had before.
fn domains(settings: &Settings) -> Domains {
    Domains { domain: settings.domain.clone(), former: settings.former_domain.clone() }
}

/// What the process does, for the service manager's status line.
fn roles(settings: &Settings) -> String {
    let words: Vec<&str> = settings.roles.iter().map(|role| role.word()).collect();
    format!("running as {}", words.join(", "))
}

/// A client of the API: in this process as `user`, else as whoever the kubeconfig says.
async fn client_as(settings: &Settings, api: Option<&Api>, user: &str) -> Result<kube::Client, Error> {
    match (api, &settings.kubeconfig) {
        (Some(api), _) => Ok(api.client(Identity::user(user))),
        (None, Some(path)) => Ok(client::from_kubeconfig(path, settings.api.read_timeout).await?),
        (None, None) => unreachable!("the configuration was checked: these roles need an API"),
    }
}
