//! The life of an agent: it follows the API, applies what it finds to the proxy, and reports.
//!
//! The last Site that was applied is on disk, so that an agent that starts while the API is unreachable serves it. Until the first
//! complete lists of all kinds, nothing else is applied.

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
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::certificates::Directory;
use crate::follow::Followed;
use crate::last_site::{LastSite, LastSiteFile};
use crate::lease::{Instance, Report};
use crate::proxy::Proxy;
use crate::resolve::{Objects, Resolver, RouteFault, is_served};
use crate::site::{Changes, Site};

/// The pause in which changes are gathered: at least, and at most. In between, the time since the last change was applied is as long as
/// it took to apply, so that applying takes half of the time under load.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// The time between two checks of the proxy and the certificates.
const TICK: Duration = Duration::from_secs(1);
/// The time for a connection to the proxy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The most faults that the log shows of one change.
const FAULTS_LOGGED_MAX: usize = 20;

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct Settings {
    pub instance: Instance,
    /// The address where the proxy listens for plain HTTP.
    pub http: SocketAddr,
    /// The directory for the last Site.
    pub directory: PathBuf,
    /// The directory with certificates.
    pub certificates: Option<PathBuf>,
    /// Whether endpoints on loopback addresses count; see [`Resolver::new`].
    pub loopback: bool,
    /// The time in which connections may finish when the proxy stops.
    pub drain: Duration,
}

pub struct Agent {
    settings: Settings,
    proxy: Box<dyn Proxy>,
    routes: Arc<Followed<Route>>,
    bindings: Arc<Followed<RouteBinding>>,
    services: Arc<Followed<Service>>,
    slices: Arc<Followed<EndpointSlice>>,
    directory: Option<Directory>,
    resolver: Resolver,
    /// The last Site of an earlier run.
    restored: Option<LastSite>,
    /// Whether the proxy serves the Site of the resolver, apart from the parts that it rejects.
    is_applied: bool,
    /// The number of these parts.
    rejected: usize,
    file: LastSiteFile,
    report: watch::Sender<Report>,
    renewed: watch::Sender<bool>,
}

impl Agent {
    pub fn new(settings: Settings, proxy: Box<dyn Proxy>) -> Agent {
        let router = settings.instance.router.clone();
        let (of_route, of_binding) = (router.clone(), router.clone());
        Agent {
            proxy,
            // A Route's status has the Router and former names of its binding; the Routes of other Routers are not kept.
            routes: Arc::new(Followed::new(move |route: &mut Route| {
                let Some(status) = route.status.take() else { return false };
                status.router.as_ref() == Some(&of_route)
                    || status.former_names.iter().any(|former| former.router == of_route)
            })),
            bindings: Arc::new(Followed::new(move |binding: &mut RouteBinding| {
                binding.spec.explanation = None;
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
            resolver: Resolver::new(&router, settings.loopback),
            restored: None,
            is_applied: false,
            rejected: 0,
            file: LastSiteFile::new(&settings.directory),
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
    /// closes its listeners and lets connections finish. Errors are logged, and the agent tries again.
    pub async fn run(mut self, client: Client, stopping: impl Future<Output = ()>, left: impl Future<Output = ()>) {
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
        // The time at which changes that have come are applied.
        let mut due: Option<Instant> = None;
        loop {
            tokio::select! {
                () = &mut leaving => break,
                () = changed.notified(), if due.is_none() => {
                    let pause = pause.saturating_sub(applied.elapsed()).max(PAUSE.0);
                    due = Some(Instant::now() + pause.max(self.proxy.pause()));
                }
                () = sleep_until(due.unwrap_or(applied)), if due.is_some() => {
                    due = None;
                    let started = Instant::now();
                    self.update().await;
                    (applied, pause) = (Instant::now(), started.elapsed().clamp(PAUSE.0, PAUSE.1));
                }
                _ = ticks.tick() => self.tick().await,
            }
        }
        self.proxy.stop(self.settings.drain).await;
        lease_stop.cancel();
        // Its requests have time limits, and it has no panic of its own.
        let _ = lease.await;
        self.file.finish(|| last_site(&self.report, &self.resolver)).await;
    }

    /// Applies what the API has, if that is known.
    async fn update(&mut self) {
        let is_synced = self.routes.is_synced() && self.bindings.is_synced();
        if !is_synced || !self.services.is_synced() || !self.slices.is_synced() {
            return;
        }
        let ((routes, _), (bindings, newest)) = (self.routes.take(), self.bindings.take());
        let ((services, _), (slices, _)) = (self.services.take(), self.slices.take());
        let (changes, faults) = self.resolver.update(Objects { routes, bindings, services, slices });
        for fault in faults.iter().take(FAULTS_LOGGED_MAX) {
            let RouteFault { route, reason, message } = fault;
            tracing::warn!(%route, ?reason, message, "a Route is not served, or is served only in part");
        }
        self.report.send_if_modified(|report| !std::mem::replace(&mut report.is_synced, true));
        self.restored = None;
        let is_serving = self.report.borrow().is_serving;
        let is_same = self.is_applied && changes.is_empty() && is_serving;
        if !is_same {
            // After anything but a success, what the proxy serves is not known.
            let known = self.is_applied.then_some(&changes);
            let site = self.resolver.site().clone();
            self.is_applied = self.apply(&site, known).await;
        }
        if self.is_applied {
            let (revision, routes) = (self.resolver.revision(newest), self.resolver.site().routes.len());
            let faults = self.resolver.routes_at_fault() + self.rejected + self.certificate_faults();
            self.report.send_if_modified(|report| {
                let before = (report.revision, report.routes, report.faults);
                (report.revision, report.routes, report.faults) = (revision, routes, faults);
                before != (revision, routes, faults)
            });
            self.file.has_changed(!is_same);
            self.save().await;
        }
        if !is_serving {
            self.probe().await;
        }
    }

    /// Makes the proxy serve a Site; returns whether it does.
    async fn apply(&mut self, site: &Site, changes: Option<&Changes>) -> bool {
        let outcome = self.proxy.apply(site, changes).await;
        self.report.send_modify(|report| match &outcome {
            Ok(applied) => {
                report.error = None;
                report.changes += 1;
                report.reloads += u64::from(applied.reloaded);
            }
            Err(error) => {
                tracing::error!(%error, "failed to apply a change; the proxy keeps its previous configuration");
                report.error = Some(error.to_string());
            }
        });
        self.rejected = outcome.as_ref().map_or(self.rejected, |applied| applied.faults.len());
        outcome.is_ok()
    }

    /// Makes the proxy serve the Site of an earlier run.
    async fn apply_restored(&mut self) {
        let Some(LastSite { revision, site }) = &self.restored else { return };
        let (revision, mut site) = (*revision, Site::clone(site));
        site.certificates.clone_from(&self.resolver.site().certificates);
        if self.apply(&site, None).await {
            let faults = self.rejected + self.certificate_faults();
            self.report.send_modify(|report| {
                (report.revision, report.routes, report.faults) = (revision, site.routes.len(), faults);
            });
        }
        self.probe().await;
    }

    /// Starts a proxy that has ended, applies changed certificates and failed changes, and saves the last Site.
    async fn tick(&mut self) {
        let has_changed = self.reload_certificates();
        self.probe().await;
        let report = self.report.borrow().clone();
        if has_changed || !report.is_serving || report.error.is_some() {
            // Certificates are compared whole.
            self.is_applied &= !has_changed;
            match report.is_synced {
                true => self.update().await,
                false => self.apply_restored().await,
            }
        }
        self.save().await;
    }

    /// Starts to write the last Site, if it has changed and the proxy serves it.
    async fn save(&mut self) {
        if self.is_applied {
            self.file.save(|| last_site(&self.report, &self.resolver)).await;
        }
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

    fn certificate_faults(&self) -> usize {
        self.directory.as_ref().map_or(0, Directory::faults)
    }

    /// Reads the certificates if they have changed; returns whether they have.
    fn reload_certificates(&mut self) -> bool {
        match self.directory.as_mut().map(Directory::changed) {
            None | Some(Ok(None)) => false,
            Some(Ok(Some(certificates))) => {
                tracing::info!(certificates = certificates.len(), "read the certificates");
                self.resolver.set_certificates(certificates);
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
        self.restored = self.file.read();
        let Some(last) = &self.restored else { return };
        let (routes, revision) = (last.site.routes.len(), last.revision);
        tracing::info!(routes, revision, "starting with the last-known-good Site");
        match is_adopted {
            // What it serves may be newer than the file.
            true => {
                self.report.send_modify(|report| (report.revision, report.routes) = (revision, routes));
                self.probe().await;
            }
            false => self.apply_restored().await,
        }
    }
}

/// Returns the current state for the file.
fn last_site(report: &watch::Sender<Report>, resolver: &Resolver) -> LastSite {
    LastSite { revision: report.borrow().revision, site: resolver.site().clone() }
}

fn spawn_follower<K>(objects: &Arc<Followed<K>>, client: &Client, changed: &Arc<Notify>) -> AbortOnDropHandle<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    K: Send + Sync + 'static,
{
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    AbortOnDropHandle::new(tokio::spawn(objects.clone().follow(api, changed.clone())))
}
