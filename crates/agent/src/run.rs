//! The life of an agent: it follows the API, applies what it finds to the proxy, and reports.
//!
//! The last Site that was applied is on disk, so that an agent that starts while the API is unreachable serves it. Until the first
//! complete lists of all kinds, nothing else is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use signpost_api::v1alpha1::route::Route;
use signpost_api::v1alpha1::route_binding::RouteBinding;
use signpost_runtime::tls::files;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::certificates::Directory;
use crate::follow::Followed;
use crate::lease::{Instance, Report};
use crate::proxy::{Proxy, ProxyError};
use crate::resolve::{Objects, RouteFault, is_served, resolve};
use crate::site::{Certificate, Host, Site};

/// The file with the last Site.
const LAST_SITE: &str = "site.json";
/// The pause in which changes are gathered: at least, and at most. In between, the time since the last change was applied is as long as
/// it took to apply, so that applying takes half of the time under load.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// The time between two checks of the proxy and the certificates, and the longest between two writes of the last Site.
const TICK: Duration = Duration::from_secs(1);
/// An applied Site is written at once, unless writing would then take more than this part of the time.
const SAVING_SHARE: u32 = 20;
/// The time for a connection to the proxy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The most faults that the log shows of one change.
const FAULTS_LOGGED_MAX: usize = 20;

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The instance.
    pub instance: Instance,
    /// The address where the proxy listens for plain HTTP.
    pub http: SocketAddr,
    /// The directory for the last Site.
    pub directory: PathBuf,
    /// The directory with certificates.
    pub certificates: Option<PathBuf>,
    /// Whether endpoints on loopback addresses count; see [`resolve`].
    pub loopback: bool,
    /// The time in which connections may finish when the proxy stops.
    pub drain: Duration,
}

/// An agent.
pub struct Agent {
    settings: Settings,
    proxy: Box<dyn Proxy>,
    routes: Arc<Followed<Route>>,
    bindings: Arc<Followed<RouteBinding>>,
    services: Arc<Followed<Service>>,
    slices: Arc<Followed<EndpointSlice>>,
    directory: Option<Directory>,
    certificates: BTreeMap<Host, Certificate>,
    /// The last Site of an earlier run.
    restored: Option<LastSite>,
    /// The Site that this run has applied last.
    applied: Option<LastSite>,
    is_saved: bool,
    /// The end of the last write of the last Site, and how long it took.
    saving: Option<(Instant, Duration)>,
    faults: Vec<RouteFault>,
    report: watch::Sender<Report>,
    renewed: watch::Sender<bool>,
}

/// The contents of the file with the last Site.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LastSite {
    revision: u64,
    site: Site,
}

impl Agent {
    /// Creates an agent.
    pub fn new(settings: Settings, proxy: Box<dyn Proxy>) -> Agent {
        let router = settings.instance.router.clone();
        let of_binding = router.clone();
        Agent {
            proxy,
            // A Route's status has the Router and former names of its binding; the Routes of other Routers are not kept.
            routes: Arc::new(Followed::new(move |route: &mut Route| {
                let Some(status) = route.status.take() else { return false };
                status.router.as_ref() == Some(&router)
                    || status.former_names.iter().any(|former| former.router == router)
            })),
            bindings: Arc::new(Followed::new(move |binding: &mut RouteBinding| {
                (binding.spec.explanation, binding.status) = (None, None);
                is_served(&of_binding, binding)
            })),
            services: Arc::new(Followed::new(|service: &mut Service| {
                service.annotations_mut().clear();
                true
            })),
            slices: Arc::new(Followed::new(|slice: &mut EndpointSlice| {
                slice.annotations_mut().clear();
                true
            })),
            directory: settings.certificates.clone().map(Directory::new),
            certificates: BTreeMap::new(),
            restored: None,
            applied: None,
            is_saved: true,
            saving: None,
            faults: Vec::new(),
            report: watch::Sender::new(Report::default()),
            renewed: watch::Sender::new(false),
            settings,
        }
    }

    /// Returns the state of the agent, and its changes.
    pub fn report(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Returns whether the last request to renew the Lease succeeded.
    pub fn renewed(&self) -> watch::Receiver<bool> {
        self.renewed.subscribe()
    }

    /// Runs until the instance has left. After `stopping`, it reports that it leaves, and continues to serve; after `left`, the proxy
    /// closes its listeners and lets connections finish.
    ///
    /// # Errors
    ///
    /// If the proxy cannot be stopped. Other errors are logged, and the agent tries again.
    pub async fn run(
        mut self,
        client: Client,
        stopping: impl Future<Output = ()>,
        left: impl Future<Output = ()>,
    ) -> Result<(), ProxyError> {
        self.reload_certificates();
        self.restore().await;
        let changed = Arc::new(Notify::new());
        let _following = [
            spawn_follower(&self.routes, &client, &changed),
            spawn_follower(&self.bindings, &client, &changed),
            spawn_follower(&self.services, &client, &changed),
            spawn_follower(&self.slices, &client, &changed),
        ];
        let lease_stop = CancellationToken::new();
        let lease = self.settings.instance.clone().keep(
            client,
            self.report.subscribe(),
            self.renewed.clone(),
            lease_stop.clone(),
        );
        let lease = tokio::spawn(lease);
        let report = self.report.clone();
        let mut leaving = pin!(async {
            stopping.await;
            tracing::info!("leaving");
            report.send_modify(|report| report.is_leaving = true);
            left.await;
        });
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut applied, mut pause) = (Instant::now(), PAUSE.0);
        loop {
            tokio::select! {
                () = &mut leaving => break,
                () = changed.notified() => {
                    sleep(pause.saturating_sub(applied.elapsed()).max(PAUSE.0)).await;
                    let started = Instant::now();
                    self.update().await;
                    (applied, pause) = (Instant::now(), started.elapsed().clamp(PAUSE.0, PAUSE.1));
                }
                _ = ticks.tick() => self.tick().await,
            }
        }
        let stopped = self.proxy.stop(self.settings.drain).await;
        lease_stop.cancel();
        // Its requests have time limits, and it has no panic of its own.
        let _ = lease.await;
        self.save();
        stopped
    }

    /// Applies what the API has, if that is known.
    async fn update(&mut self) {
        let (Some((routes, _)), Some((bindings, revision))) = (self.routes.objects(), self.bindings.objects()) else {
            return;
        };
        let (Some((services, _)), Some((slices, _))) = (self.services.objects(), self.slices.objects()) else { return };
        let objects = Objects { routes: &routes, bindings: &bindings, services: &services, slices: &slices };
        let (site, faults) = resolve(&self.settings.instance.router, objects, self.settings.loopback);
        let revision = applied_revision(revision, &bindings, &routes);
        self.report.send_if_modified(|report| !std::mem::replace(&mut report.is_synced, true));
        self.serve(LastSite { revision, site }, faults).await;
    }

    /// Applies a Site, and reports the outcome.
    async fn serve(&mut self, mut wanted: LastSite, faults: Vec<RouteFault>) {
        wanted.site.certificates = self.certificates.clone();
        let is_same = self.applied.as_ref().is_some_and(|applied| applied.site == wanted.site);
        let is_serving = self.report.borrow().is_serving;
        let outcome = match is_same && is_serving {
            true => None,
            false => Some(self.proxy.apply(&wanted.site).await),
        };
        log_new(&faults, &self.faults);
        self.report.send_modify(|report| {
            let rejected = match &outcome {
                // The parts that the proxy rejected before are still left out.
                None => report.faults - routes_at_fault(&self.faults),
                Some(Ok(applied)) => {
                    report.error = None;
                    report.changes += 1;
                    report.reloads += u64::from(applied.reloaded);
                    applied.faults.len()
                }
                Some(Err(error)) => {
                    tracing::error!(%error, "failed to apply a change; the proxy serves what it served before");
                    report.error = Some(error.to_string());
                    return;
                }
            };
            (report.revision, report.routes) = (wanted.revision, wanted.site.routes.len());
            report.faults = routes_at_fault(&faults) + rejected;
        });
        if let Some(Err(_)) = outcome {
            return;
        }
        self.is_saved &= is_same;
        self.applied = Some(wanted);
        self.faults = faults;
        if self.saving.is_none_or(|(at, took)| at.elapsed() >= took * SAVING_SHARE) {
            self.save();
        }
        if !is_serving {
            self.probe().await;
        }
    }

    /// Starts a proxy that has ended, applies changed certificates and failed changes, and saves the last Site.
    async fn tick(&mut self) {
        let has_changed = self.reload_certificates();
        self.probe().await;
        let report = self.report.borrow().clone();
        if has_changed || !report.is_serving || report.error.is_some() {
            let last = self.applied.as_ref().or(self.restored.as_ref()).filter(|_| !report.is_synced);
            match last.cloned() {
                Some(last) => self.serve(last, Vec::new()).await,
                None => self.update().await,
            }
        }
        self.save();
    }

    /// Reports whether the proxy accepts connections.
    async fn probe(&mut self) {
        let mut address = self.settings.http;
        match address.ip() {
            ip if !ip.is_unspecified() => {}
            ip if ip.is_ipv4() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            _ => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        }
        let is_serving = matches!(timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await, Ok(Ok(_)));
        self.report.send_if_modified(|report| std::mem::replace(&mut report.is_serving, is_serving) != is_serving);
    }

    /// Reads the certificates if they have changed; returns whether they have.
    fn reload_certificates(&mut self) -> bool {
        match self.directory.as_mut().map(Directory::changed) {
            None | Some(Ok(None)) => false,
            Some(Ok(Some(certificates))) => {
                tracing::info!(certificates = certificates.len(), "read the certificates");
                self.certificates = certificates;
                true
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "failed to read the directory with certificates");
                false
            }
        }
    }

    /// Serves the last Site of an earlier run, unless its proxy still does.
    async fn restore(&mut self) {
        let is_adopted = self.proxy.adopt().await;
        self.restored = self.read_last();
        let Some(last) = self.restored.clone() else { return };
        let (routes, revision) = (last.site.routes.len(), last.revision);
        tracing::info!(routes, revision, "starting with the last-known-good Site");
        match is_adopted {
            // What it serves may be newer than the file.
            true => {
                self.report.send_modify(|report| (report.revision, report.routes) = (revision, routes));
                self.probe().await;
            }
            false => self.serve(last, Vec::new()).await,
        }
    }

    /// Reads the last Site of an earlier run.
    fn read_last(&self) -> Option<LastSite> {
        let path = self.settings.directory.join(LAST_SITE);
        let text = files::read(&path).map_err(|error| error.to_string());
        let last = text.and_then(|text| {
            text.map(|text| serde_json::from_str(&text)).transpose().map_err(|error| error.to_string())
        });
        last.unwrap_or_else(|error| {
            tracing::error!(file = %path.display(), error, "failed to read the last-known-good Site");
            None
        })
    }

    /// Writes the Site that is served into the file, unless it is there.
    fn save(&mut self) {
        let Some(applied) = self.applied.as_ref().filter(|_| !self.is_saved) else { return };
        let started = Instant::now();
        let text = serde_json::to_vec(applied).expect("its keys are texts");
        match files::write_private(&self.settings.directory.join(LAST_SITE), &text) {
            Ok(()) => self.is_saved = true,
            Err(error) => tracing::error!(%error, "failed to write the last-known-good Site"),
        }
        self.saving = Some((Instant::now(), started.elapsed()));
    }
}

/// The resource version up to which all bindings are applied, of which the newest is `newest`. A binding whose Route has not come yet
/// is not applied.
fn applied_revision(newest: u64, bindings: &[Arc<RouteBinding>], routes: &[Arc<Route>]) -> u64 {
    let known: std::collections::HashSet<_> = routes.iter().filter_map(|route| route.metadata.uid.as_deref()).collect();
    let waiting = bindings.iter().filter(|binding| !known.contains(binding.spec.route_uid.as_str()));
    let version = |binding: &Arc<RouteBinding>| binding.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    waiting.filter_map(version).min().map_or(newest, |oldest| newest.min(oldest.saturating_sub(1)))
}

/// The number of Routes that have a fault, or more than one.
fn routes_at_fault(faults: &[RouteFault]) -> usize {
    faults.iter().map(|fault| &fault.route).collect::<BTreeSet<_>>().len()
}

/// Logs the faults that were not there before.
fn log_new(faults: &[RouteFault], before: &[RouteFault]) {
    for fault in faults.iter().filter(|fault| !before.contains(fault)).take(FAULTS_LOGGED_MAX) {
        tracing::warn!(route = %fault.route, reason = ?fault.reason, message = fault.message, "a Route is not, or not wholly, served");
    }
}

fn spawn_follower<K>(objects: &Arc<Followed<K>>, client: &Client, changed: &Arc<Notify>) -> AbortOnDropHandle<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    K: Send + Sync + 'static,
{
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    AbortOnDropHandle::new(tokio::spawn(objects.clone().follow(api, changed.clone())))
}
