//! The role `dns`: sockets, zone files, and the loop that follows the API.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::access::host_name;
use super::dns_metrics::DnsMetrics;
use super::engine::Engine;
use super::loops::{self, Follow, Following};
use super::query_log::{OpenError, QueryLog};
use super::runtime_settings::RuntimeSettings;
use super::secondaries::{self, Secondaries};
use super::tasks::Tasks;
use super::unrouted::Unrouted;
use super::{Error, platform};
use crate::admin::Admin;
use crate::admin::health::Check;
use crate::config::Settings;
use crate::config::settings;
use signpost_control::client::reflector::HealthProbe;
use signpost_control::compiler::{self, apex::serial_of};
use signpost_control::ledger::BaseSerial;
use signpost_control::name_server;
use signpost_control::name_server::denials::DENIAL_LONGEST;
use signpost_control::name_server::files::static_zones::{Counts, Reloader, StaticZones};
use signpost_control::name_server::last_known_good::StateError;
use signpost_control::name_server::reserved;
use signpost_control::name_server::status::Status;
use signpost_dns::nameserver::Transport;
use signpost_dns::transfer::Transfers;
use signpost_dns::transport::inherited_sockets::InheritedSockets;
use signpost_dns::transport::{self, Bound, Running};
use signpost_dns::update::{Job, Updates};
use signpost_dns::zone::policy::Policies;
use signpost_dns::zone::publish::Publisher;
use signpost_dns::zone::{Serial, ZoneDb};

/// The maximum time for which queries wait in the sockets for the zones when a process starts. After it, the server answers from
/// the available zones, and "not ready" for the others. A resolver queries another server after a second or two in any case, and
/// can cache SERVFAIL for minutes (RFC 2308 §7.1). A shorter wait would therefore lose answers, and a longer one would gain none.
const SILENT_LONGEST: Duration = Duration::from_secs(2);

/// The time without progress after which a worker or listener counts as hung: it runs several iterations per second, and a busy
/// machine delays them by less.
const HUNG_AFTER: Duration = Duration::from_secs(10);

/// The maximum time for the listeners to stop: with the default `tcp.write-timeout`, enough for a slow client and two connection
/// closes. If an operator has set a higher timeout, a stop does not wait for it.
const LISTENERS_END: Duration = Duration::from_secs(7);

/// Binds the sockets that are not inherited; `files_max` is the limit of open files.
pub fn bind(settings: &Settings, files_max: u64, given: &mut InheritedSockets) -> Result<Bound, transport::BindError> {
    let streams = stream_limits(settings, files_max);
    if streams.connections_max < settings.tcp.connections {
        tracing::warn!(
            connections = streams.connections_max,
            files = files_max,
            "connection limit of each transport reduced below tcp.connections: this process can open too few files; raise its hard \
             limit (LimitNOFILE=, ulimit -Hn), or lower tcp.connections"
        );
    }
    let mut config = transport::Config {
        addresses: settings.dns.listen.clone(),
        tls_addresses: settings.dns_tls.listen.clone(),
        quic_addresses: settings.dns_quic.listen.clone(),
        https_addresses: settings.dns_https.listen.clone(),
        https_path: settings.dns_https.path.clone(),
        streams,
        pin: settings.dns.pin_workers,
        udp_gso: settings.dns.udp_gso,
        udp_dont_fragment: settings.dns.dont_fragment,
        ..transport::Config::default()
    };
    if settings.dns.workers > 0 {
        config.udp_workers = settings.dns.workers;
    }
    transport::bind_with(&config, given)
}

/// Returns the limits for clients of each transport with connections. A quarter of the open files is left for all other parts:
/// the store, the API's connections, the sockets.
fn stream_limits(settings: &Settings, files_max: u64) -> transport::Limits {
    // Connections of QUIC use no files.
    let over_tcp = [&settings.dns_tls.listen, &settings.dns_https.listen];
    let transports = 1 + over_tcp.iter().filter(|listen| !listen.is_empty()).count();
    let for_clients = usize::try_from(files_max - files_max / 4).unwrap_or(usize::MAX) / transports;
    let tcp = &settings.tcp;
    transport::Limits {
        connections_max: tcp.connections.min(for_clients),
        connections_per_client_max: tcp.connections_per_client,
        idle: tcp.idle_timeout,
        read: tcp.read_timeout,
        write: tcp.write_timeout,
        ..transport::Limits::default()
    }
}

/// Returns the platform's settings as a name server at these addresses sees them.
pub fn platform_settings(settings: &Settings, listened: &[SocketAddr]) -> Result<Arc<compiler::Settings>, Error> {
    let addresses: Vec<IpAddr> = listened.iter().map(SocketAddr::ip).collect();
    Ok(Arc::new(platform::settings(settings, &addresses, None)?))
}

/// A name server with the zones of its files and of its last-known-good state. It answers as soon as every name of the platform
/// has an answer, or [`SILENT_LONGEST`] has passed.
pub struct Loaded {
    zones: Arc<Publisher>,
    secondaries: Secondaries,
    updates: Arc<Updates>,
    /// The changes that clients of the name server request.
    jobs: mpsc::Receiver<Job>,
    engine: Arc<Engine>,
    here: String,
    listening: JoinHandle<std::io::Result<Running>>,
    files: Option<(Reloader, Arc<Mutex<Counts>>)>,
    /// The check of the zone files. It is ready when the name server runs.
    files_check: Option<Check>,
    platform: Option<LoadedPlatform>,
}

/// The zones that are built from the API's objects, as of the last-known-good state.
struct LoadedPlatform {
    settings: Arc<compiler::Settings>,
    zones: name_server::Started,
    status: Arc<Status>,
}

/// The platform that a name server follows.
pub struct Platform {
    pub settings: Arc<compiler::Settings>,
    /// The directory of the last-known-good state.
    pub state: PathBuf,
    /// Whether the API and its store are in this process: its zones are then never behind.
    pub has_store: bool,
}

/// The running name server of this process.
pub struct Dns {
    running: Arc<Running>,
    reload: Option<Reloader>,
    engine: Arc<Engine>,
    transfers: Arc<Transfers>,
    updates: Arc<Updates>,
    query_log: QueryLog,
}

/// Returns the location of this process for operators: its host name, and the addresses on which it answers.
fn here(settings: &Settings, addresses: &[SocketAddr]) -> String {
    /// The maximum number of listed addresses; more are not useful.
    const ADDRESSES_TOLD: usize = 3;
    let name = settings.server.id.clone().or_else(host_name).unwrap_or_else(|| "unnamed".to_owned());
    let addresses = addresses.iter().take(ADDRESSES_TOLD).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("{name} ({addresses})")
}

impl Loaded {
    /// Loads the zone files and the last-known-good state, and answers on `bound`. The API is not needed for that.
    pub async fn load(
        settings: &Settings,
        runtime_settings: &RuntimeSettings,
        mut bound: Bound,
        platform: Option<Platform>,
        tasks: &mut Tasks,
        admin: &Admin,
    ) -> Result<Self, Error> {
        let db =
            Arc::new(ZoneDb::with_policies(settings.metrics.zones, Policies::new(settings.dns.zone.iter().cloned())));
        let zones = Arc::new(Publisher::new(db.clone()));
        let files_check = settings.zones.as_ref().map(|_| admin.health.add("dns", "zone files", "not read yet"));
        let engine = Arc::new(Engine::new(settings));
        let (secondaries, keys) = Secondaries::new(settings, &zones)?;
        engine.set_keys(keys);
        if let Some(platform) = &platform {
            reserved::reserve(&zones, &platform.settings, &[]);
        }
        let (requests, jobs) = secondaries.requests(settings);
        let updates = requests.updates.clone();
        bound.set_handler(requests);
        tasks.spawn("NOTIFY", secondaries::notify(secondaries.notifier.clone(), tasks.stop_token()));
        let here = here(settings, &bound.addresses());
        let (loading, loaded) = oneshot::channel();
        let (answered, settings_of) = (db.clone(), engine.clone());
        let listening = tokio::spawn(async move {
            // Nothing is ever sent: the other end is dropped when the zones are available.
            let _ = timeout(SILENT_LONGEST, loaded).await;
            bound.start(&answered, settings_of.live())
        });
        let files = match &settings.zones {
            Some(folder) => Some(load_files(folder, &zones).await?),
            None => None,
        };
        if let Some(copied) = &secondaries.copied {
            secondaries::restore(copied, &zones).await;
            let (copied, stop) = (copied.clone(), tasks.stop_token());
            tasks.spawn("zones of primary servers", async move { copied.run(stop).await });
        }
        secondaries::check_catalog(secondaries.catalog.as_ref())?;
        let files = loops::serve_files(tasks, engine.clone(), files);
        // The zones of the files are complete and answer, regardless of the API.
        db.open();
        let platform = match platform {
            None => {
                db.set_ready();
                drop(loading);
                None
            }
            Some(platform) => {
                let threshold = runtime_settings.deletion_hold_threshold.subscribe();
                Some(LoadedPlatform::load(platform, settings, threshold, &zones, loading, admin).await?)
            }
        };
        Ok(Loaded { zones, secondaries, updates, jobs, engine, here, listening, files, files_check, platform })
    }

    /// Follows the API in `tasks` if there is one to follow, and returns when the name server answers.
    pub async fn run(
        self,
        settings: &Settings,
        runtime_settings: &RuntimeSettings,
        follow: Option<Follow>,
        tasks: &mut Tasks,
        admin: &Admin,
        informers: &mut Vec<(&'static str, HealthProbe)>,
    ) -> Result<Dns, Error> {
        let Loaded { zones, secondaries, updates, jobs, engine, here, listening, files, files_check, platform } = self;
        let db = zones.db().clone();
        let followed = platform.as_ref().map(|platform| (platform.settings.clone(), platform.status.clone()));
        if let (Some(platform), Some(follow)) = (platform, follow) {
            let LoadedPlatform { settings, zones, status } = platform;
            let (engine, stale_after) = (engine.clone(), runtime_settings.stale_after.subscribe());
            let updates = (jobs, settings, db.clone());
            let following = Following { follow, here, zones, updates, status, engine, stale_after };
            following.start(tasks, admin, informers);
        }
        let mut running = listening.await.expect("opening the listeners does not panic").map_err(Error::Workers)?;
        for pulse in running.pulses() {
            admin.liveness.watch(pulse.name.clone(), HUNG_AFTER, move || pulse.iterations());
        }
        let running = Arc::new(running);
        tasks.watch("the name server", running.ended());
        let query_log = QueryLog::start(&settings.query_log, settings.server.id.as_deref(), running.query_log())?;
        let (reload, files) = files.unzip();
        let (platform, status) = followed.unzip();
        let unrouted = platform.zip(status.clone()).filter(|_| settings.metrics.unrouted_names > 0);
        let unrouted = unrouted.map(|(platform, status)| {
            let unrouted = Arc::new(Unrouted::new(settings.metrics.unrouted_names, db.clone(), platform, status));
            tasks.spawn("unrouted names", unrouted.clone().run(running.wildcard_hits(), tasks.stop_token()));
            let reported = unrouted.clone();
            admin.unrouted.open(move || reported.report());
            unrouted
        });
        let (counts, query_log_counts) = (Arc::downgrade(&running), query_log.counts().clone());
        let Secondaries { transfers, notifier, catalog, copied } = secondaries;
        if let Some(catalog) = catalog {
            let (status, stop) = (status.clone(), tasks.stop_token());
            // The files have been read. A list of the objects' zones is complete like a denial of names.
            let is_complete =
                move || status.as_ref().is_none_or(|status| status.losses().is_synced() && status.state().is_denying);
            tasks.spawn("catalog", async move { catalog.run(is_complete, stop).await });
        }
        admin.served.open(zones, copied.clone());
        admin.secondaries.open(notifier.clone());
        let metrics = DnsMetrics {
            running: counts,
            db,
            query_log: query_log_counts,
            files,
            status,
            unrouted,
            transfers: transfers.clone(),
            updates: updates.clone(),
            notifier,
            copied,
        };
        // Reported last, so that a client that sees it gets no "not ready" answers.
        if let Some(check) = files_check {
            check.ready();
        }
        admin.metrics.write_with(move |page| metrics.write(page));
        Ok(Dns { running, reload, engine, transfers, updates, query_log })
    }

    /// Returns the zones that it serves.
    pub fn zones(&self) -> Arc<Publisher> {
        self.zones.clone()
    }

    /// Returns the serial in the file of the platform's domain, which has been read at this point.
    pub fn base_serial(&self) -> BaseSerial {
        let base = self.platform.as_ref().and_then(|platform| self.zones.base(platform.settings.domain()));
        base.as_deref().and_then(serial_of).map_or(BaseSerial::None, |serial| BaseSerial::Known(Serial(serial)))
    }
}

impl Dns {
    /// Returns the addresses of the listeners.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.running.addresses()
    }

    /// Returns the addresses of each encrypted transport, by its short name.
    pub fn encrypted(&self) -> Vec<(&'static str, Vec<SocketAddr>)> {
        let transports = [("DoT", Transport::Tls), ("DoH", Transport::Https), ("DoQ", Transport::Quic)];
        transports.map(|(name, transport)| (name, self.running.encrypted_addresses(transport).to_vec())).into()
    }

    /// Applies the settings that can change at run time, with each worker's next batch.
    pub fn configure(&self, settings: &Settings) {
        self.engine.configure(settings);
        // Even if the paths are unchanged: the files can have changed.
        match secondaries::load_keys(settings) {
            Ok(keys) => {
                self.engine.set_keys(keys);
                self.transfers.set_rules(settings.dns.transfer.clone());
                self.updates.set_rights(settings.dns.update.clone());
            }
            Err(error) => tracing::error!(
                "the keys, and the rights to transfer zones and change challenges, stay unchanged: {error}"
            ),
        }
    }

    /// Reopens the query log's file and applies these settings; [`Self::configure`] then updates the workers.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the file cannot be opened: then the log continues unchanged.
    pub async fn open_query_log(&self, settings: &settings::QueryLog) -> Result<(), OpenError> {
        self.query_log.configure(settings).await
    }

    /// Reloads the zone files; the log has the result.
    pub fn reload(&self) {
        if let Some(reload) = self.reload.clone() {
            tokio::spawn(async move { drop(reload.reload().await) });
        }
    }

    /// Stops when pending queries are answered, or after the time limit.
    pub async fn stop(self) {
        // A scrape holds the counters for a moment; the listeners stop when it releases them.
        if let Some(running) = Arc::into_inner(self.running)
            && timeout(LISTENERS_END, running.stop()).await.is_err()
        {
            tracing::warn!("DNS clients did not read all responses in time; connections closed");
        }
        // Last, so that it includes all answers up to then.
        self.query_log.stop().await;
    }
}

async fn load_files(folder: &Path, zones: &Arc<Publisher>) -> Result<StaticZones, Error> {
    let mut files = StaticZones::new(folder, zones.clone());
    let loading = tokio::task::spawn_blocking(move || files.load().map(|loaded| (files, loaded)));
    let (files, loaded) = loading.await.expect("reading zone files does not panic")?;
    tracing::info!(served = loaded.served, refused = loaded.refused, "zone files loaded");
    Ok(files)
}

impl LoadedPlatform {
    /// Serves the last-known-good state, and drops `loading` as soon as all names have an answer.
    async fn load(
        platform: Platform,
        settings: &Settings,
        deletion_hold_threshold: watch::Receiver<u32>,
        zones: &Arc<Publisher>,
        loading: oneshot::Sender<Infallible>,
        admin: &Admin,
    ) -> Result<Self, StateError> {
        let Platform { settings: platform, state, has_store } = platform;
        let status = Arc::new(Status::default());
        let publishing = name_server::metrics::Publishing::default();
        admin.metrics.register(|registry| publishing.register(registry));
        let options = name_server::Options {
            settings: platform.clone(),
            state: Some(state),
            former_domain: settings.former_domain.clone(),
            zones: zones.clone(),
            deletion_hold_threshold,
            denial_longest: (!has_store).then_some(DENIAL_LONGEST),
            status: status.clone(),
            publishing,
            loading,
        };
        let zones = name_server::start(options).await?;
        Ok(LoadedPlatform { settings: platform, zones, status })
    }
}
