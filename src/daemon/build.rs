//! Builds a process: all roles, in the order of their dependencies.
//!
//! Sockets come first, so that an address in use has no side effects; then the data directory; then the API, the loops that are
//! its clients, and the name server; and last the manifests, which are applied through the API like all objects.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use kube::Client;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use super::access::{self, Access};
use super::api::Api;
use super::certificate_metrics::CertificateMetrics;
use super::certificates::{self, Certificates, Source};
use super::data_dir::{DataDir, STATE};
use super::demo;
use super::dns::{self, Dns};
#[cfg(feature = "etcd")]
use super::etcd;
use super::http;
use super::loops::{Follow, Instances, Shared, Started};
use super::manifests::Document;
use super::runtime_settings::RuntimeSettings;
use super::scheduling;
use super::store::Engine;
use super::tasks::Tasks;
use super::{Error, Process, domains, inherited, maintenance, manifests, platform, room, sign_in, sockets};
use crate::admin::dashboard::Dashboard;
use crate::admin::dashboard::logins::Logins;
use crate::admin::health::{Check, Warning};
use crate::admin::host::Hosts;
use crate::admin::{self, Admin};
use crate::config::value::RouterRuntime;
use crate::config::{self, AdminTls, Role, Settings};
use signpost_api::identity::{
    GROUP_AUTHENTICATED, GROUP_MASTERS, Identity, USER_ADMIN, USER_CONTROLLER, USER_NAME_SERVER, USER_SCHEDULER,
};
use signpost_apiserver::store;
use signpost_control::client;
use signpost_control::client::failover::Servers;
use signpost_control::client::reflector::HealthProbe;
use signpost_control::compiler;
use signpost_control::instances::process::{self, Processes};
use signpost_control::ledger::BaseSerial;
use signpost_control::name_server::denials::WATCH_LONGEST;
use signpost_control::name_server::domain;
use signpost_control::name_server::last_known_good::{self, StateError};
use signpost_control::world::{self, World};
use signpost_dns::sys::files;
use signpost_dns::transport::Bound;
use signpost_dns::transport::inherited_sockets::InheritedSockets;
use signpost_dns::transport::tls_base::TlsBase;
use signpost_dns::zone::publish::Publisher;
use signpost_runtime::httpd::{self, ConnectionSlots};
use signpost_runtime::tls;

/// The assumed limit of open files if the system does not report it: the usual default.
const FILES_MAX_ASSUMED: u64 = 1_024;
/// The maximum number of damaged keys in the warning.
const DAMAGED_TOLD_MAX: usize = 5;

/// Builds all roles, or none, on inherited sockets where available. `example`: objects to apply before the manifests.
pub async fn process(
    settings: &Settings,
    example: Vec<Document>,
    given: InheritedSockets,
    admin: Admin,
    admin_runtime: Handle,
) -> Result<Process, Error> {
    let is_demo = !example.is_empty();
    let documents = [example, manifests::read(&settings.manifests).map_err(Error::Manifests)?].concat();
    let mut sockets = Sockets::bind(settings, given)?;
    let applied = (!documents.is_empty()).then(|| admin.health.add("api", "manifests", "not applied yet"));
    let mut build = Build::new(settings, admin, sockets.files_max, sockets.listened());
    build.is_demo = is_demo;
    let mut endpoints = Endpoints::new(&build, sockets.admin, admin_runtime);
    if settings.admin_tls() == AdminTls::Off {
        // It needs no certificate, so it can report what the rest waits for.
        endpoints.serve(&mut build.edge, None);
    }
    build.open_data_dir().await?;
    let store_check = settings.has(Role::Api).then(|| build.admin.health.add("api", "store", "not opened yet"));
    // It waits neither for the store nor for the API; with encrypted transports, it needs a certificate of the platform.
    let needs_certificate = settings.has_encrypted_dns();
    let mut name_server = match sockets.dns.take_if(|_| !needs_certificate) {
        Some(bound) => Some(build.load_zones(bound, None).await?),
        None => None,
    };
    let (access, engine) = build.access(&endpoints.addresses, &sockets.api, store_check.as_ref()).await?;
    let certificates = build.certificates(&endpoints, access.as_ref()).await?;
    if let Some(bound) = sockets.dns {
        name_server = Some(build.load_zones(bound, certificates.dns.as_ref()).await?);
    }
    endpoints.serve(&mut build.edge, certificates.admin.as_ref().map(|tls| tls.server_config()).transpose()?);
    build.open_api(access.zip(store_check), engine, sockets.api).await?;
    build.open_dashboard(&endpoints.dashboard).await?;
    let world = build.world().await?;
    // The zone files have been read, so serials can be allocated.
    let base = name_server.as_ref().map_or(BaseSerial::Unknown, dns::Loaded::base_serial);
    let served = name_server.as_ref().map(dns::Loaded::zones);
    let end_instances = CancellationToken::new();
    let loops = build.loops(world.as_ref(), base, served, end_instances.clone()).await?;
    let dns = match name_server {
        Some(loaded) => Some(build.dns(world, loaded).await?),
        None => None,
    };
    let Build { admin, starting, data_dir, api, runtime_settings, informers, control, serving, edge, .. } = build;
    if !informers.is_empty() {
        admin.metrics.write_with(move |page| client::metrics::write(&informers, page));
    }
    let mut process = Process {
        admin_addresses: endpoints.addresses,
        certificates,
        health: admin.health.clone(),
        api,
        dns,
        loops,
        runtime_settings,
        applied: None,
        end_instances,
        control,
        serving,
        edge,
        _data_dir: data_dir,
    };
    if let Some(check) = applied {
        process = process.apply(&documents).await?;
        check.ready();
    }
    starting.ready();
    Ok(process)
}

impl Process {
    /// Applies documents as the administrator. If one of them cannot be applied, the process ends.
    async fn apply(mut self, documents: &[Document]) -> Result<Self, Error> {
        let Some(api) = &self.api else { return Ok(self) };
        let groups = vec![GROUP_MASTERS.to_owned(), GROUP_AUTHENTICATED.to_owned()];
        let client = api.client(Identity { user: USER_ADMIN.to_owned(), groups });
        match manifests::apply(&client, documents).await {
            Ok(report) => self.applied = Some(report),
            Err(errors) => {
                self.drain().await;
                return Err(Error::Manifests(errors));
            }
        }
        Ok(self)
    }
}

/// The sockets of all roles of the process.
struct Sockets {
    admin: Vec<TcpListener>,
    api: Vec<TcpListener>,
    dns: Option<Bound>,
    /// The maximum number of open files.
    files_max: u64,
}

impl Sockets {
    fn bind(settings: &Settings, mut given: InheritedSockets) -> Result<Sockets, Error> {
        let mut listen = |role, addresses: &[SocketAddr], flag| match settings.has(role) {
            true => sockets::listen(addresses, flag, &mut given),
            false => Ok(Vec::new()),
        };
        let admin = listen(Role::Admin, &settings.admin.listen, "--admin-listen")?;
        let api = listen(Role::Api, &settings.api.listen, "--api-listen")?;
        files::outlive_file_size_max();
        // The usual soft limit of 1,024 files is for programs that use `select`.
        let files_max = files::raise_open_files_max().unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to raise the limit of open files");
            FILES_MAX_ASSUMED
        });
        let dns = settings.has(Role::Dns).then(|| dns::bind(settings, files_max, &mut given)).transpose()?;
        inherited::all_taken(&given)?;
        Ok(Sockets { admin, api, dns, files_max })
    }

    /// Returns the addresses on which the name server listens.
    fn listened(&self) -> Option<Vec<SocketAddr>> {
        self.dns.as_ref().map(Bound::addresses)
    }
}

/// The admin endpoints, which answer before the other parts exist.
struct Endpoints {
    addresses: Vec<SocketAddr>,
    dashboard: Dashboard,
    admin: Admin,
    hosts: Arc<Hosts>,
    /// The certificate of the listeners, once it exists; its names are accepted in requests.
    certificate: Arc<OnceLock<Arc<Source>>>,
    places: Arc<ConnectionSlots>,
    runtime: Handle,
    /// The listeners that are not served yet.
    listeners: Vec<TcpListener>,
}

impl Endpoints {
    fn new(build: &Build<'_>, listeners: Vec<TcpListener>, runtime: Handle) -> Self {
        let admin = build.admin.clone();
        let addresses = sockets::addresses(&listeners);
        let certificate = Arc::new(OnceLock::<Arc<Source>>::new());
        let certified = certificate.clone();
        let hosts = Hosts::new(access::names(&addresses, &build.settings.admin.name), move |name| {
            certified.get().is_some_and(|certificate| certificate.origin().is_for(name))
        });
        if !addresses.is_empty() {
            let help = "Requests to the admin endpoints rejected because of the name in their Host header";
            admin.metrics.register(|registry| registry.register("admin_hosts_refused", help, hosts.refused()));
        }
        let dashboard = Dashboard::new(&admin);
        let places = build.admin_places.clone();
        Endpoints { addresses, dashboard, admin, hosts, certificate, places, runtime, listeners }
    }

    /// Serves on the listeners that are not served yet; with `shown`, over HTTPS.
    fn serve(&mut self, edge: &mut Tasks, shown: Option<Arc<ServerConfig>>) {
        for listener in std::mem::take(&mut self.listeners) {
            let router = self.hosts.checked(admin::router(self.admin.clone(), self.dashboard.clone()));
            let (shown, places, stop) = (shown.clone(), self.places.clone(), edge.stop_token());
            edge.spawn_on("admin listener", &self.runtime, async move {
                match listener.into_std().and_then(TcpListener::from_std) {
                    Ok(listener) => httpd::serve(listener, shown, router, places, stop).await,
                    Err(error) => tracing::error!(%error, "the admin endpoint failed to listen"),
                }
            });
        }
    }
}

/// A process that is being built.
struct Build<'a> {
    settings: &'a Settings,
    /// Whether the process serves the example platform.
    is_demo: bool,
    admin: Admin,
    /// The check that keeps the process from being ready before the other checks exist.
    starting: Check,
    data_dir: Option<DataDir>,
    /// The API of this process.
    api: Option<Api>,
    /// The API servers, for a process without the role `api`. All clients share them.
    api_servers: Servers,
    runtime_settings: RuntimeSettings,
    /// The addresses on which the name server listens, or would listen.
    listened: Vec<SocketAddr>,
    api_places: Arc<ConnectionSlots>,
    admin_places: Arc<ConnectionSlots>,
    informers: Vec<(&'static str, HealthProbe)>,
    control: Tasks,
    serving: Tasks,
    edge: Tasks,
}

impl<'a> Build<'a> {
    fn new(settings: &'a Settings, admin: Admin, files_max: u64, listened: Option<Vec<SocketAddr>>) -> Self {
        let starting = admin.health.add("process", "start", "it is starting");
        let (api_places, admin_places) =
            (http::api_places(settings, files_max), http::admin_places(settings, files_max));
        let servers = [(Role::Api, "api", &api_places), (Role::Admin, "admin", &admin_places)];
        let servers = servers.into_iter().filter(|(role, ..)| settings.has(*role));
        let servers: Vec<_> = servers.map(|(_, name, places)| (name, places.clone())).collect();
        admin.metrics.write_with(move |page| http::write_metrics(&servers, page));
        Build {
            settings,
            is_demo: false,
            admin,
            starting,
            data_dir: None,
            api: None,
            api_servers: Servers::new(settings.api_server.clone()),
            runtime_settings: RuntimeSettings::new(settings),
            listened: listened.unwrap_or_else(|| settings.dns.listen.clone()),
            api_places,
            admin_places,
            informers: Vec::new(),
            control: Tasks::default(),
            serving: Tasks::default(),
            edge: Tasks::default(),
        }
    }

    async fn open_data_dir(&mut self) -> Result<(), Error> {
        if self.settings.needs_data_dir() {
            let open = async || DataDir::open(&self.settings.data_dir);
            self.data_dir = Some(room::when_there_is_room(&self.starting, open).await?);
        }
        Ok(())
    }

    #[cfg_attr(not(feature = "etcd"), expect(unused_variables))]
    /// Opens the access control of the API in the process that serves it, and the store if it contains the access data.
    async fn access(
        &mut self,
        admin_addresses: &[SocketAddr],
        listeners: &[TcpListener],
        check: Option<&Check>,
    ) -> Result<(Option<Arc<Access>>, Option<Engine>), Error> {
        let (Some(data_dir), Some(check)) = (self.data_dir.as_ref(), check) else { return Ok((None, None)) };
        let further = || match self.settings.admin_tls() {
            AdminTls::On => access::names(admin_addresses, &self.settings.admin.name).collect(),
            AdminTls::Off | AdminTls::Files { .. } => Vec::new(),
        };
        let of_dns = if self.settings.has_encrypted_dns() { self.dns_names()? } else { Vec::new() };
        let further = || further().into_iter().chain(of_dns.clone()).collect();
        let listened = sockets::addresses(listeners);
        let open = async || {
            let open = async || Access::open(data_dir, self.settings, &listened, further());
            room::when_there_is_room(&self.starting, open).await
        };
        #[cfg(feature = "etcd")]
        if self.settings.store == config::Engine::Etcd {
            let etcd = etcd::connected(self.settings, check).await?;
            let (access, secrets) = etcd::shared_access(self.settings, data_dir, etcd.clone(), open).await?;
            self.serving.spawn("shared secrets", secrets.keep(self.serving.stop_token()));
            return Ok((Some(Arc::new(access)), Some(Engine::Etcd(etcd))));
        }
        Ok((Some(Arc::new(open().await?)), None))
    }

    /// Returns the certificates of the admin endpoints and of encrypted DNS.
    async fn certificates(
        &mut self,
        endpoints: &Endpoints,
        access: Option<&Arc<Access>>,
    ) -> Result<Certificates, Error> {
        let (settings, data_dir) = (self.settings, self.data_dir.as_ref());
        let names = self.dns_names()?;
        let open = async || -> Result<_, tls::Error> {
            let admin = Source::admin(settings, data_dir, access, &endpoints.addresses)?;
            Ok(Certificates { admin, dns: Source::dns(settings, data_dir, access, names.clone())? })
        };
        let shown: Certificates = room::when_there_is_room(&self.starting, open).await?;
        let kubeconfig = self.settings.kubeconfig.clone();
        let metrics = CertificateMetrics { api: access.cloned(), shown: shown.clone(), kubeconfig };
        self.admin.metrics.write_with(move |page| metrics.write(page));
        let stop = self.edge.stop_token();
        if !endpoints.addresses.is_empty() {
            self.edge.spawn("dashboard", endpoints.dashboard.clone().run(stop.clone()));
        }
        for source in shown.each() {
            self.edge.spawn("certificate", maintenance::keep(source.clone(), stop.clone()));
        }
        match &shown.admin {
            // It is set only once.
            Some(source) => drop(endpoints.certificate.set(source.clone())),
            None => certificates::warn_of_plain(&endpoints.addresses),
        }
        Ok(shown)
    }

    /// Returns the names in the certificate of encrypted DNS.
    fn dns_names(&self) -> Result<Vec<String>, Error> {
        let settings = self.settings;
        let has_platform = settings.has_platform() && settings.has_encrypted_dns();
        let platform = has_platform.then(|| dns::platform_settings(settings, &self.listened)).transpose()?;
        Ok(certificates::dns_names(settings, platform.as_deref()))
    }

    async fn open_api(
        &mut self,
        access: Option<(Arc<Access>, Check)>,
        engine: Option<Engine>,
        listeners: Vec<TcpListener>,
    ) -> Result<(), Error> {
        let (Some(data_dir), Some((access, check))) = (&self.data_dir, access) else { return Ok(()) };
        let (on, about) = ((listeners, self.api_places.clone()), (&self.admin, &check));
        let api = Api::start(self.settings, data_dir, engine, access, on, &mut self.serving, about).await?;
        // Before anything is created from the objects.
        let client = api.client(Identity::user(USER_CONTROLLER));
        let found = domain::disagreement_after_taking_over(&client, &domains(self.settings)).await;
        if let Some(other) = found.map_err(|error| Error::Failed(format!("the store: {error}")))? {
            return Err(Error::DomainMismatch(other));
        }
        self.admin.health.warn("api", "stored values", damaged_values(&api.damage));
        self.admin.metrics.write_with(api.metrics());
        self.api = Some(api);
        Ok(())
    }

    /// Enables sign-in to the dashboard, through the API of this process or of the kubeconfig.
    async fn open_dashboard(&self, dashboard: &Dashboard) -> Result<(), Error> {
        let door = match (&self.api, &self.settings.kubeconfig) {
            (Some(api), _) => Some(api.unproven_client()),
            (None, Some(path)) => {
                let read_timeout = self.settings.api.read_timeout;
                Some(client::unproven_from_kubeconfig(path, read_timeout, &self.api_servers).await?)
            }
            (None, None) => None,
        };
        let providers = sign_in::providers(self.settings)?;
        let logins = Logins::new(providers).map_err(|error| Error::Failed(format!("dashboard: {error}")))?;
        let has_api = self.api.is_some() || self.settings.kubeconfig.is_some();
        let own = if has_api { Some(self.client(USER_SCHEDULER).await?) } else { None };
        dashboard.open(door, own, logins);
        Ok(())
    }

    /// Returns whether this process has the API and its store, which cannot be unreachable.
    fn has_store(&self) -> bool {
        self.settings.has(Role::Api) && self.settings.store != config::Engine::Etcd
    }

    /// Returns the objects that all loops of this process read, with the rights of one of them.
    async fn world(&self) -> Result<Option<World>, Error> {
        let schedules = self.settings.has(Role::Scheduler);
        let user = match schedules {
            true => USER_SCHEDULER,
            false if self.settings.dns_follows_api() => USER_NAME_SERVER,
            false => return Ok(None),
        };
        let mut reading = world::Settings::of(dns::platform_settings(self.settings, &self.listened)?);
        let is_name_server = self.settings.has(Role::Dns) && self.settings.dns_follows_api();
        reading.watch_longest = (is_name_server && !self.has_store()).then_some(WATCH_LONGEST);
        Ok(Some(World::new(&self.client(user).await?, reading)))
    }

    /// Returns a client of the API: in this process as `user`, otherwise with the credentials of the kubeconfig.
    async fn client(&self, user: &str) -> Result<Client, Error> {
        match (&self.api, &self.settings.kubeconfig) {
            (Some(api), _) => Ok(api.client(Identity::user(user))),
            (None, Some(path)) => {
                Ok(client::from_kubeconfig(path, self.settings.api.read_timeout, &self.api_servers).await?)
            }
            (None, None) => unreachable!("the configuration was checked: these roles need an API"),
        }
    }

    /// Starts the loops of the role `scheduler`.
    async fn loops(
        &mut self,
        world: Option<&World>,
        base: BaseSerial,
        served: Option<Arc<Publisher>>,
        end_instances: CancellationToken,
    ) -> Result<Option<Started>, Error> {
        let settings = self.settings;
        let (true, Some(data_dir), Some(world)) = (settings.has(Role::Scheduler), &self.data_dir, world) else {
            return Ok(None);
        };
        let instance = room::when_there_is_room(&self.starting, async || data_dir.instance()).await?;
        let host_key =
            async || settings.verify.hosts.then(|| data_dir.host_key(settings.verify.hosts_key.as_deref())).transpose();
        platform::check_chooser(&settings.chooser()).await;
        let platform = dns::platform_settings(settings, &self.listened)?;
        let runtime = self.instances(data_dir, &platform, end_instances).await?;
        let sources = self.source_cluster().await?.map(|client| (client, Arc::default()));
        let shared = Shared {
            config: settings,
            scheduler: self.client(USER_SCHEDULER).await?,
            controller: self.client(USER_CONTROLLER).await?,
            world,
            platform,
            instance: &instance,
            listened: &self.listened,
            host_key: room::when_there_is_room(&self.starting, host_key).await?,
            authority: settings.certificate_authority().map_err(Error::Configuration)?,
            base,
            served,
            runtime_settings: &self.runtime_settings,
            sources,
            admin: &self.admin,
        };
        Ok(Some(shared.start(runtime, &mut self.control, &mut self.informers)))
    }

    /// Returns what runs the instances of Routers.
    async fn instances(
        &self,
        data_dir: &DataDir,
        platform: &compiler::Settings,
        end: CancellationToken,
    ) -> Result<Instances, Error> {
        let settings = self.settings;
        let servers = scheduling::servers_to_ask(settings, platform, &self.listened);
        let name_servers = servers.into_iter().map(|server| server.address).collect();
        Ok(match settings.routers.runtime {
            // They run in the same process as the only API.
            RouterRuntime::Process if self.api.is_some() => {
                let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
                let certificates = match &settings.routers.certificates {
                    None if self.is_demo => Some(demo::certificates(&data_dir.join(""))?),
                    configured => configured.clone(),
                };
                let processes = process::Settings {
                    program: std::env::current_exe().map_err(Error::Workers)?,
                    directory: absolute(data_dir.join("routers")),
                    kubeconfig: absolute(data_dir.join(access::ROUTER_AGENT_KUBECONFIG)),
                    api_servers: settings.api_server.clone(),
                    certificates: certificates.map(absolute),
                    name_servers,
                    upstream_authorities: settings.routers.upstream_ca.clone().map(absolute),
                    options: settings.local_agent_options(),
                };
                let metrics = process::Metrics::default();
                self.admin.metrics.register(|registry| metrics.register(registry));
                Instances::Processes(Box::new(Processes::open(processes, metrics)), end)
            }
            RouterRuntime::Kubernetes => {
                Instances::Pods(Box::new((self.cluster().await?, settings.pods(name_servers))))
            }
            RouterRuntime::Process | RouterRuntime::Off => Instances::Off,
        })
    }

    /// Returns the API of the cluster in which instances run.
    async fn cluster(&self) -> Result<Client, Error> {
        let settings = self.settings;
        let read_timeout = settings.api.read_timeout;
        Ok(match (&settings.routers.cluster_kubeconfig, &settings.kubeconfig) {
            // Not the platform's own API.
            (Some(path), _) => client::from_kubeconfig(path, read_timeout, &Servers::default()).await?,
            (None, Some(path)) => client::from_kubeconfig(path, read_timeout, &self.api_servers).await?,
            (None, None) => client::in_cluster()?,
        })
    }

    /// Returns the API of the cluster that the sources read, if any is on.
    async fn source_cluster(&self) -> Result<Option<Client>, Error> {
        let settings = self.settings;
        if settings.sources().kinds().is_empty() {
            return Ok(None);
        }
        let read_timeout = settings.api.read_timeout;
        let client = match (&settings.sources.kubeconfig, client::in_cluster(), &settings.kubeconfig) {
            (Some(path), ..) => client::from_kubeconfig(path, read_timeout, &Servers::default()).await?,
            (None, Ok(in_cluster), _) => in_cluster,
            (None, Err(_), Some(path)) => client::from_kubeconfig(path, read_timeout, &self.api_servers).await?,
            (None, Err(error), None) => {
                return Err(Error::Failed(format!("sources: {error}; outside of a pod, set sources.kubeconfig")));
            }
        };
        Ok(Some(client))
    }

    /// Loads the zones that the name server has by itself, and answers from them.
    async fn load_zones(&mut self, mut bound: Bound, certificate: Option<&Arc<Source>>) -> Result<dns::Loaded, Error> {
        let settings = self.settings;
        if let Some(certificate) = certificate {
            let tls = TlsBase::new(certificate.origin().certificate());
            bound.set_tls(tls.map_err(|error| Error::Failed(format!("encrypted DNS: {error}")))?);
        }
        let platform = match &self.data_dir {
            Some(data_dir) if settings.dns_follows_api() => {
                let (platform, state) = (dns::platform_settings(settings, &self.listened)?, data_dir.join(STATE));
                let prepare = async || last_known_good::prepare(&state, &platform.domain_text());
                room::when_there_is_room(&self.starting, prepare).await?;
                Some(dns::Platform { settings: platform, state, has_store: self.has_store() })
            }
            _ => None,
        };
        let control = &mut self.control;
        let loaded = dns::Loaded::load(settings, &self.runtime_settings, bound, platform, control, &self.admin).await;
        loaded.map_err(|error| match error {
            // The state is that of the objects in this process.
            Error::State(StateError::DomainMismatch { other, .. }) if settings.has(Role::Api) => other.into(),
            error => error,
        })
    }

    /// Starts the name server's loops over the API.
    async fn dns(&mut self, world: Option<World>, loaded: dns::Loaded) -> Result<Dns, Error> {
        let settings = self.settings;
        let follow = match (&self.data_dir, world) {
            (Some(data_dir), Some(world)) if settings.dns_follows_api() => Some(Follow {
                client: self.client(USER_NAME_SERVER).await?,
                world,
                instance: room::when_there_is_room(&self.starting, async || data_dir.instance()).await?,
            }),
            _ => None,
        };
        let (control, informers) = (&mut self.control, &mut self.informers);
        loaded.run(settings, &self.runtime_settings, follow, control, &self.admin, informers).await
    }
}

/// Returns a warning about damaged values in the store.
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
