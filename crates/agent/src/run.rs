//! The life of an agent: it follows the API, applies what it finds to the proxy, and reports.
//!
//! The last Site that was applied is on disk, so that an agent that starts while the API is unreachable serves it. Until the first
//! complete lists of all kinds, nothing else is applied.
//!
//! A change is applied by a task of its own, one at a time, so that neither a slow proxy nor a slow check of its configuration holds up
//! reports, the Lease, or the end of the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use signpost_types::instance::{CertificateReport, CertificatesReport, SecretFault};
use signpost_types::traffic::ANNOTATIONS;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::traffic::AccessLogOutput;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinError;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::certificates::Directory;
use crate::follow::Followed;
use crate::last_site::{LastSite, LastSiteFile};
use crate::lease::{Instance, Report, Revisions};
use crate::listeners::Listeners;
use crate::pending::PendingChanges;
use crate::proxy::{Applied, Fault, Proxy, ProxyError};
use crate::resolve::{Limits, Objects, Refused, Resolver, RouteFault, is_served};
use crate::secrets::{Origin, Secrets};
use crate::site::{Certificate, Changes, Host, Part, RouteKey, Site, Upstream};
use crate::traffic::access_log::{AccessLog, Output};
use crate::traffic::{INTERVAL, Meter, PAUSE_FACTOR, Traffic};

/// The pause in which changes are gathered: at least, and at most. In between, the time since the last change was applied is as long as
/// it took to apply, so that applying takes half of the time under load.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// The time between two checks of the proxy and the certificates.
const TICK: Duration = Duration::from_secs(1);
/// The time for a connection to the proxy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest wait of an agent that starts for the Secrets of its Routes, so that it serves their certificates from its first connection.
const SECRETS_WAIT: Duration = Duration::from_secs(5);
/// The file of the access log, in the directory of the agent.
const ACCESS_LOG: &str = "access.log";
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
    /// All addresses where the proxy listens.
    pub listeners: Vec<SocketAddr>,
    /// The rules for endpoints; the agent adds the listeners of all Routers.
    pub refused: Refused,
    /// The most servers of a Route, a namespace and the Router.
    pub limits: Limits,
    /// The time in which connections may finish when the proxy stops.
    pub drain: Duration,
}

pub struct Agent {
    settings: Settings,
    /// The proxy; locked while a Site is applied.
    proxy: Arc<Mutex<Box<dyn Proxy>>>,
    routes: Arc<Followed<Route>>,
    bindings: Arc<Followed<RouteBinding>>,
    services: Arc<Followed<Service>>,
    slices: Arc<Followed<EndpointSlice>>,
    routers: Arc<Followed<Router>>,
    directory: Option<Directory>,
    /// The certificates in the directory.
    files: BTreeMap<Host, Certificate>,
    /// The certificates of Secrets that Routes name.
    secrets: Arc<Secrets>,
    /// The certificates that the platform got.
    issued: Arc<Secrets>,
    /// The zone of the Router.
    zone: Option<String>,
    /// The end of the wait for Secrets at the start.
    secrets_by: Option<Instant>,
    listeners: Listeners,
    resolver: Resolver,
    /// The changes of the resolver's Site that the proxy does not serve yet.
    pending: PendingChanges,
    /// The resource versions up to which all objects are in the resolver.
    newest: Revisions,
    /// The last Site of an earlier run.
    restored: Option<LastSite>,
    /// Whether the proxy serves the Site of the resolver, apart from pending changes and the parts that it rejects.
    is_applied: bool,
    /// These parts.
    rejected: Vec<Fault>,
    /// The certificates of the last Site that was applied; `None` if they have changed since.
    certificates: Option<Arc<CertificatesReport>>,
    applying: Option<Applying>,
    /// The time at which the next change is applied, unless one is at that time.
    due: Option<Instant>,
    /// The end of the last change, and the pause after it.
    last: (Instant, Duration),
    probing: Option<AbortOnDropHandle<bool>>,
    /// Whether a failure leads to another try when the probe ends: at most one with each tick.
    may_retry: bool,
    /// Whether the next change is another try, also if nothing has changed.
    retries: bool,
    /// Whether certificates have changed since the last change began.
    has_new_certificates: bool,
    /// The deletion of what the proxy does not need any more.
    tidying: Option<AbortOnDropHandle<()>>,
    traffic: Arc<Traffic>,
    meter: Option<Arc<dyn Meter>>,
    access_log: Option<Arc<AccessLog>>,
    /// The Routes of the traffic that may be gone from the Site.
    gone: BTreeSet<RouteKey>,
    /// Whether all Routes of the traffic may differ from those of the Site.
    has_new_site: bool,
    /// The current reading of traffic, which ends with the time of the next.
    reading: Option<AbortOnDropHandle<Instant>>,
    /// The times of the last and the next reading.
    last_reading: Instant,
    next_reading: Instant,
    file: LastSiteFile,
    report: watch::Sender<Report>,
    renewed: watch::Sender<bool>,
}

/// A Site that the proxy is about to serve.
struct Applying {
    /// The outcome, and the pause before the next change.
    task: AbortOnDropHandle<(Result<Applied, ProxyError>, Duration)>,
    started: Instant,
    /// The Site and its revisions, if it is that of an earlier run.
    restored: Option<(Revisions, Arc<Site>)>,
}

impl Agent {
    pub fn new(settings: Settings, proxy: Box<dyn Proxy>) -> Agent {
        let router = settings.instance.router.clone();
        let (of_route, of_binding) = (router.clone(), router.clone());
        let (meter, access_log) = (proxy.meter(), proxy.access_log());
        Agent {
            proxy: Arc::new(Mutex::new(proxy)),
            // A Route's status has the Router and former names of its binding; the Routes of other Routers are not kept.
            routes: Arc::new(Followed::by_generation(move |route: &mut Route| {
                let Some(status) = route.status.take() else { return false };
                route.annotations_mut().retain(|name, _| ANNOTATIONS.contains(&name.as_str()));
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
            routers: Arc::new(Followed::new(|_: &mut Router| true)),
            directory: settings.certificates.clone().map(Directory::new),
            files: BTreeMap::new(),
            secrets: Arc::new(Secrets::new(&settings.directory, Origin::Routes)),
            issued: Arc::new(Secrets::new(&settings.directory, Origin::Platform)),
            zone: None,
            secrets_by: None,
            listeners: Listeners::new(settings.listeners.clone()),
            resolver: Resolver::new(&router, settings.refused.clone(), settings.limits),
            pending: PendingChanges::default(),
            newest: Revisions::default(),
            restored: None,
            is_applied: false,
            rejected: Vec::new(),
            certificates: None,
            applying: None,
            due: None,
            last: (Instant::now(), PAUSE.0),
            probing: None,
            may_retry: false,
            retries: false,
            has_new_certificates: false,
            tidying: None,
            traffic: Arc::default(),
            meter,
            access_log,
            gone: BTreeSet::new(),
            has_new_site: false,
            reading: None,
            last_reading: Instant::now(),
            next_reading: Instant::now(),
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

    /// Returns the traffic of the Routes, which grows while the agent runs.
    pub fn traffic(&self) -> Arc<Traffic> {
        self.traffic.clone()
    }

    /// Returns whether the last request to renew the Lease succeeded.
    pub fn renewed(&self) -> watch::Receiver<bool> {
        self.renewed.subscribe()
    }

    /// Runs until the instance has left. After `stopping`, it reports that it leaves, and continues to serve; after `left`, the proxy
    /// closes its listeners and lets connections finish. Errors are logged, and the agent tries again.
    pub async fn run(mut self, client: Client, stopping: impl Future<Output = ()>, left: impl Future<Output = ()>) {
        self.reload_certificates();
        self.merge_certificates();
        self.listeners.read_local();
        self.restore().await;
        let changed = Arc::new(Notify::new());
        let _following = [
            spawn_follower(&self.routes, &client, &changed),
            spawn_follower(&self.bindings, &client, &changed),
            spawn_follower(&self.services, &client, &changed),
            spawn_follower(&self.slices, &client, &changed),
            spawn_follower(&self.routers, &client, &changed),
        ];
        let secrets_changed = Arc::new(Notify::new());
        let _reading = [&self.secrets, &self.issued].map(|secrets| {
            let reading = secrets.clone().follow(client.clone(), secrets_changed.clone());
            AbortOnDropHandle::new(tokio::spawn(reading))
        });
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
        loop {
            let is_idle = self.applying.is_none();
            tokio::select! {
                () = &mut leaving => break,
                () = changed.notified() => self.schedule(),
                () = secrets_changed.notified() => self.settle_secrets(),
                () = sleep_until(self.due.unwrap_or_else(Instant::now)), if is_idle && self.due.is_some() => self.start().await,
                outcome = applied(&mut self.applying) => self.finish(outcome).await,
                is_serving = probed(&mut self.probing) => self.record_probe(is_serving),
                _ = ticks.tick() => self.tick().await,
            }
        }
        // What it has begun does not matter any more; it ends before it releases the proxy.
        (self.applying, self.tidying, self.reading) = (None, None, None);
        self.proxy.lock().await.stop(self.settings.drain).await;
        lease_stop.cancel();
        // Its requests have time limits, and it has no panic of its own.
        let _ = lease.await;
        self.file.finish(|| last_site(&self.report, &self.resolver)).await;
    }

    /// Lets the next change be applied, after the pause.
    fn schedule(&mut self) {
        let (ended, pause) = self.last;
        self.due.get_or_insert_with(|| (Instant::now() + PAUSE.0).max(ended + pause));
    }

    /// Starts to apply what the API has, if that is known.
    async fn start(&mut self) {
        self.due = None;
        let retries = std::mem::take(&mut self.retries);
        let has_new_certificates = std::mem::take(&mut self.has_new_certificates);
        if has_new_certificates {
            self.certificates = None;
        }
        let is_synced = self.routes.is_synced() && self.bindings.is_synced();
        // No endpoint is known as a listener of a Router before all Routers are.
        let is_synced = is_synced && self.services.is_synced() && self.slices.is_synced() && self.routers.is_synced();
        if !is_synced {
            if retries {
                self.apply_restored();
            }
            return;
        }
        let ((routes, of_routes), (bindings, of_bindings)) = (self.routes.take(), self.bindings.take());
        let newest = Revisions { bindings: of_bindings, routes: of_routes };
        let ((services, _), (slices, _)) = (self.services.take(), self.slices.take());
        self.update_routers();
        let (changes, faults) = self.resolver.update(Objects { routes, bindings, services, slices });
        let site = self.resolver.site();
        let changed = changes.iter().map(|change| change.route.clone());
        let (present, gone): (BTreeSet<_>, BTreeSet<_>) = changed.partition(|route| site.routes.contains_key(route));
        // The access log has the name of a Route from its first request to its last one.
        self.traffic.follow_routes(site, &present);
        self.gone.extend(gone);
        self.pending.extend(changes, std::mem::replace(&mut self.newest, newest));
        for fault in faults.iter().take(FAULTS_LOGGED_MAX) {
            let RouteFault { route, reason, message } = fault;
            match reason.is_note() {
                true => tracing::info!(%route, ?reason, message, "a Route is served, with a note"),
                false => tracing::warn!(%route, ?reason, message, "a Route is not served, or is served only in part"),
            }
        }
        let issued = Arc::new(self.resolver.issued(self.zone.as_deref()));
        let wants_others = self.secrets.want(self.resolver.secrets()) | self.issued.want(&issued);
        let has_new_secrets = wants_others && self.secrets.settle() | self.issued.settle();
        if has_new_secrets {
            self.merge_certificates();
            self.certificates = None;
        }
        let has_new_certificates = has_new_certificates || has_new_secrets;
        let are_read = self.secrets.is_read() && self.issued.is_read();
        if !self.report.borrow().is_synced && !are_read {
            let until = *self.secrets_by.get_or_insert_with(|| Instant::now() + SECRETS_WAIT);
            if Instant::now() < until {
                // The end of each read is a change.
                self.due = Some(until);
                return;
            }
        }
        self.report.send_if_modified(|report| !std::mem::replace(&mut report.is_synced, true));
        self.has_new_site |= self.restored.take().is_some();
        let is_serving = self.report.borrow().is_serving;
        if self.is_applied && self.pending.is_empty() && is_serving && !has_new_certificates {
            self.report_applied();
            self.save().await;
            return;
        }
        // After anything but a success, what the proxy serves is not known.
        let changes = match self.is_applied {
            true => Some(self.pending.take()),
            false => {
                self.pending.clear();
                None
            }
        };
        self.apply(self.resolver.site().clone(), changes, None);
    }

    /// Starts to make the proxy serve a Site.
    fn apply(&mut self, site: Arc<Site>, changes: Option<Changes>, restored: Option<(Revisions, Arc<Site>)>) {
        let proxy = self.proxy.clone();
        let task = tokio::spawn(async move {
            let mut proxy = proxy.lock().await;
            let outcome = proxy.apply(&site, changes.as_ref()).await;
            (outcome, proxy.pause())
        });
        self.applying = Some(Applying { task: AbortOnDropHandle::new(task), started: Instant::now(), restored });
    }

    /// Starts to make the proxy serve the Site of an earlier run.
    fn apply_restored(&mut self) {
        let Some(LastSite { revisions, site, .. }) = &self.restored else { return };
        let (revisions, mut site) = (*revisions, Site::clone(site));
        site.certificates.clone_from(&self.resolver.site().certificates);
        let site = Arc::new(site);
        self.apply(site.clone(), None, Some((revisions, site)));
    }

    /// Reports the outcome of a change, and continues with the next one.
    async fn finish(&mut self, (Applying { started, restored, .. }, (outcome, pause)): Outcome) {
        self.last = (Instant::now(), started.elapsed().clamp(PAUSE.0, PAUSE.1).max(pause));
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
        if let Ok(applied) = &outcome {
            // Certificates that were read meanwhile are reported with the next change.
            let has_changed = self.certificates.is_none() || self.rejected != applied.faults;
            if has_changed && !self.has_new_certificates {
                let secrets = [&*self.issued, &*self.secrets];
                let report = certificates(self.directory.as_ref(), secrets, &applied.faults);
                self.certificates = Some(Arc::new(report));
            }
            self.rejected.clone_from(&applied.faults);
            // A reload is by the whole Site.
            if applied.reloaded {
                self.pending.clear();
            }
        }
        match restored {
            None => {
                self.is_applied = outcome.is_ok();
                if self.is_applied {
                    self.report_applied();
                    self.file.has_changed(true);
                    self.save().await;
                }
            }
            Some((revisions, site)) if outcome.is_ok() => {
                let faults = self.rejected.len() + self.certificate_faults();
                let endpoints = site.routes.values().map(Upstream::endpoints).sum();
                self.report_site(revisions, site.routes.len(), endpoints, faults);
            }
            Some(_) => {}
        }
        if !self.report.borrow().is_serving {
            self.probe();
        }
        if self.has_new_certificates {
            self.due = Some(Instant::now());
        } else if self.due.take().is_some() || !self.pending.is_empty() {
            self.schedule();
        }
    }

    /// Reports the Site of the resolver, which the proxy serves.
    fn report_applied(&self) {
        let pending = self.pending.revisions(self.newest);
        let revisions = Revisions { bindings: self.resolver.revision(pending.bindings), ..pending };
        let faults = self.resolver.routes_at_fault() + self.rejected.len() + self.certificate_faults();
        self.report_site(revisions, self.resolver.site().routes.len(), self.resolver.endpoints(), faults);
    }

    fn report_site(&self, revisions: Revisions, routes: usize, endpoints: usize, faults: usize) {
        let certificates = &self.certificates;
        self.report.send_if_modified(|report| {
            let is_same = (report.revisions, report.routes, report.faults) == (revisions, routes, faults)
                && report.certificates == *certificates;
            (report.revisions, report.routes, report.faults) = (revisions, routes, faults);
            report.endpoints = endpoints;
            report.certificates.clone_from(certificates);
            !is_same
        });
    }

    /// Refuses the listeners of Routers as endpoints, and follows the settings of the own Router.
    fn update_routers(&mut self) {
        for (key, router) in self.routers.take().0 {
            if key.1 == self.settings.instance.router {
                self.update_access_log(router.as_deref());
                if let Some(router) = &router {
                    self.zone.clone_from(&router.spec.dns);
                    let acme = router.status.as_ref().and_then(|status| status.acme.as_ref());
                    let thumbprint = acme.and_then(|acme| acme.account_thumbprint.parse().ok());
                    let differs = self.resolver.set_router(router.spec.proxy.as_ref());
                    if self.resolver.set_thumbprint(thumbprint) | differs {
                        // The proxy must get all of the Site.
                        self.is_applied = false;
                    }
                }
            }
            self.listeners.put(key, router);
        }
        let mut refused = self.settings.refused.clone();
        refused.listeners.extend(self.listeners.all());
        self.resolver.set_refused(refused);
    }

    /// Follows the access log in the spec of the own Router.
    fn update_access_log(&mut self, router: Option<&Router>) {
        let Some(log) = self.access_log.clone() else { return };
        let wanted = router.and_then(|router| router.spec.proxy.as_ref()?.access_log.as_ref());
        let file = self.settings.directory.join(ACCESS_LOG);
        let output = wanted.map_or(Output::Off, |wanted| match (wanted.output, &wanted.server) {
            (AccessLogOutput::Stdout, _) => Output::Stdout,
            (AccessLogOutput::File, _) => Output::File(file),
            (AccessLogOutput::Syslog, server) => {
                let server = server.as_deref().and_then(|server| server.parse().ok());
                if server.is_none() {
                    tracing::warn!("spec.proxy.accessLog.server is not IP:PORT; no access log is written");
                }
                server.map_or(Output::Off, Output::Syslog)
            }
        });
        if self.resolver.set_access_log(output != Output::Off) {
            self.is_applied = false;
        }
        log.set(output, &self.traffic);
    }

    /// Starts a proxy that has ended, applies changed certificates and failed changes, and saves the last Site.
    async fn tick(&mut self) {
        if self.reload_certificates() {
            self.apply_certificates();
        }
        if self.secrets.is_due() || self.issued.is_due() {
            self.settle_secrets();
        }
        if self.applying.is_none() {
            // Changes that are none for the proxy wait for this, so that they do not delay the report of one that is.
            let is_ahead = self.is_applied && self.routes.revision() != self.newest.routes;
            // Not while a Site is applied: it would be copied.
            if self.listeners.read_local() || is_ahead {
                self.schedule();
            }
            self.tidy();
        }
        self.may_retry = true;
        self.probe();
        self.read_traffic().await;
        self.save().await;
    }

    /// Starts to read the traffic, when it is time.
    async fn read_traffic(&mut self) {
        let gone = std::mem::take(&mut self.gone);
        let site = self.restored.as_ref().map_or(self.resolver.site(), |last| &last.site);
        match std::mem::take(&mut self.has_new_site) {
            true => self.traffic.follow(site),
            false => self.traffic.follow_routes(site, &gone),
        }
        if let Some(reading) = self.reading.take_if(|reading| reading.is_finished()) {
            self.next_reading = joined(reading.await);
        }
        let Some(meter) = self.meter.clone().filter(|_| self.reading.is_none() && self.next_reading <= Instant::now())
        else {
            return;
        };
        let (traffic, elapsed) = (self.traffic.clone(), self.last_reading.elapsed());
        self.last_reading = Instant::now();
        self.reading = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let started = Instant::now();
            match meter.read().await {
                Ok(reading) => traffic.add(reading, elapsed),
                Err(error) => tracing::debug!(%error, "failed to read the traffic; retrying"),
            }
            started + INTERVAL.max(started.elapsed() * PAUSE_FACTOR)
        })));
    }

    /// Starts to delete what the proxy does not need any more, unless it still does that.
    fn tidy(&mut self) {
        if self.tidying.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            let proxy = self.proxy.clone();
            let tidying = tokio::spawn(async move { proxy.lock().await.tidy().await });
            self.tidying = Some(AbortOnDropHandle::new(tidying));
        }
    }

    /// Starts to write the last Site, if it has changed and the proxy serves it.
    async fn save(&mut self) {
        if self.is_applied {
            self.file.save(|| last_site(&self.report, &self.resolver)).await;
        }
    }

    /// Starts to test whether the proxy accepts connections.
    fn probe(&mut self) {
        let mut address = self.settings.http;
        match address.ip() {
            ip if !ip.is_unspecified() => {}
            ip if ip.is_ipv4() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            _ => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        }
        let connect = async move { matches!(timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await, Ok(Ok(_))) };
        self.probing.get_or_insert_with(|| AbortOnDropHandle::new(tokio::spawn(connect)));
    }

    /// Reports whether the proxy accepts connections. A tick leads to another try if it does not, or if a change failed.
    fn record_probe(&mut self, is_serving: bool) {
        self.report.send_if_modified(|report| std::mem::replace(&mut report.is_serving, is_serving) != is_serving);
        let has_failed = self.report.borrow().error.is_some();
        if std::mem::take(&mut self.may_retry) && (!is_serving || has_failed) {
            self.retries = true;
            self.due.get_or_insert_with(Instant::now);
        }
    }

    fn certificate_faults(&self) -> usize {
        self.directory.as_ref().map_or(0, Directory::faults) + self.secrets.faults() + self.issued.faults()
    }

    /// Applies the certificates of Secrets, and reports their faults, if any has changed.
    fn settle_secrets(&mut self) {
        if self.secrets.settle() | self.issued.settle() || !self.report.borrow().is_synced {
            self.apply_certificates();
        }
    }

    /// Applies changed certificates. They do not wait for other changes.
    fn apply_certificates(&mut self) {
        self.merge_certificates();
        (self.has_new_certificates, self.retries) = (true, true);
        self.due = Some(Instant::now());
    }

    /// Gives the Site the certificates of files, of those that the platform got, which come before, and of Secrets that Routes name, which
    /// come first.
    fn merge_certificates(&mut self) {
        let mut certificates = self.files.clone();
        certificates.extend(self.issued.certificates());
        certificates.extend(self.secrets.certificates());
        self.resolver.set_certificates(certificates);
    }

    /// Reads the certificates if they have changed; returns whether they have.
    fn reload_certificates(&mut self) -> bool {
        match self.directory.as_mut().map(Directory::changed) {
            None | Some(Ok(None)) => false,
            Some(Ok(Some(certificates))) => {
                tracing::info!(certificates = certificates.len(), "read the certificates");
                self.files = certificates;
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
        let is_adopted = self.proxy.lock().await.adopt().await;
        self.restored = self.file.read();
        self.has_new_site = self.restored.is_some();
        let Some(last) = &self.restored else { return };
        let (routes, revisions, certificates) = (last.site.routes.len(), last.revisions, last.certificates.clone());
        tracing::info!(routes, revision = revisions.bindings, "starting with the last-known-good Site");
        match is_adopted {
            // What it serves may be newer than the file.
            true => {
                self.report.send_modify(|report| {
                    (report.revisions, report.routes, report.certificates) = (revisions, routes, certificates);
                });
                self.probe();
            }
            false => self.apply_restored(),
        }
    }
}

type Outcome = (Applying, (Result<Applied, ProxyError>, Duration));

/// Waits until a Site is applied; without end if none is about to be.
async fn applied(applying: &mut Option<Applying>) -> Outcome {
    let Some(current) = applying else { return std::future::pending().await };
    let outcome = joined((&mut current.task).await);
    (applying.take().expect("it has just ended"), outcome)
}

/// Waits for the outcome of a probe; without end if there is none.
async fn probed(probing: &mut Option<AbortOnDropHandle<bool>>) -> bool {
    let Some(current) = probing else { return std::future::pending().await };
    let is_serving = joined(current.await);
    *probing = None;
    is_serving
}

/// Returns the outcome of a task. Its panic is one of the agent.
fn joined<T>(outcome: Result<T, JoinError>) -> T {
    outcome.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Returns the current state for the file.
fn last_site(report: &watch::Sender<Report>, resolver: &Resolver) -> LastSite {
    let report = report.borrow();
    LastSite { revisions: report.revisions, certificates: report.certificates.clone(), site: resolver.site().clone() }
}

/// Returns the certificates that a proxy serves, which rejects some parts. Later Secrets come before earlier ones.
fn certificates(directory: Option<&Directory>, secrets: [&Secrets; 2], rejected: &[Fault]) -> CertificatesReport {
    let mut certificates: BTreeMap<Host, CertificateReport> = directory.map(Directory::report).unwrap_or_default();
    for (host, mut report) in secrets.into_iter().flat_map(Secrets::report) {
        if report.served.is_none() {
            report.served = certificates.remove(&host).and_then(|file| file.served);
        }
        certificates.insert(host, report);
    }
    for fault in rejected {
        if let Part::Certificate(host) = &fault.part
            && let Some(certificate) = certificates.get_mut(host)
        {
            // Its message has names of files.
            (certificate.served, certificate.fault) = (None, Some("the proxy rejects the certificate".to_owned()));
            if let Some(secret) = &mut certificate.secret {
                secret.reason.get_or_insert(SecretFault::Invalid);
            }
        }
    }
    CertificatesReport::new(certificates.into_values().collect())
}

fn spawn_follower<K>(objects: &Arc<Followed<K>>, client: &Client, changed: &Arc<Notify>) -> AbortOnDropHandle<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    K: Send + Sync + 'static,
{
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    AbortOnDropHandle::new(tokio::spawn(objects.clone().follow(api, changed.clone())))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use async_trait::async_trait;
    use kube::runtime::watcher::Event;

    use super::*;

    /// A proxy that never finishes a change.
    struct Stuck {
        events: Arc<parking_lot::Mutex<Vec<&'static str>>>,
    }

    #[async_trait]
    impl Proxy for Stuck {
        async fn adopt(&mut self) -> bool {
            false
        }

        async fn apply(&mut self, _: &Site, _: Option<&Changes>) -> Result<Applied, ProxyError> {
            self.events.lock().push("apply");
            std::future::pending().await
        }

        async fn stop(&mut self, _: Duration) {
            self.events.lock().push("stop");
        }
    }

    /// Returns an agent of the Router shard1.
    fn agent(http: SocketAddr, directory: &Path, certificates: Option<&Path>, proxy: impl Proxy + 'static) -> Agent {
        let instance = Instance {
            router: "shard1".to_owned(),
            address: http.ip(),
            http_port: http.port(),
            https_port: 1,
            proxy: "haproxy",
            traffic: None,
        };
        let settings = Settings {
            instance,
            http,
            listeners: vec![http],
            directory: directory.to_owned(),
            certificates: certificates.map(Path::to_owned),
            refused: Refused::default(),
            limits: Limits::default(),
            drain: Duration::ZERO,
        };
        Agent::new(settings, Box::new(proxy))
    }

    /// An agent whose proxy does not finish a change reports whether it serves, and stops.
    #[tokio::test]
    async fn a_change_blocks_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let last = LastSite { revisions: Revisions::default(), certificates: None, site: Arc::default() };
        let text = serde_json::to_string(&last).expect("it is data");
        signpost_runtime::tls::files::write_private(&directory.path().join("site.json"), text.as_bytes())
            .expect("it is written");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let http = listener.local_addr().expect("it is bound");
        let events = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let agent = agent(http, directory.path(), None, Stuck { events: events.clone() });
        let mut report = agent.report();
        // Nothing listens there.
        let api = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        let client = Client::try_from(api).expect("a client");
        let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(agent.run(client, async { stopping.await.expect("a signal") }, async {}));
        let patience = Duration::from_secs(20);
        timeout(patience, report.wait_for(|report| report.is_serving)).await.expect("in time").expect("it runs");
        assert_eq!(*events.lock(), ["apply"]);
        stop.send(()).expect("it runs");
        timeout(patience, running).await.expect("it stops").expect("without a panic");
        assert_eq!(*events.lock(), ["apply", "stop"]);
    }

    /// A proxy that finishes a change when the test permits that, and records the number of certificates in each.
    struct Gated {
        permits: Arc<tokio::sync::Semaphore>,
        certificates: Arc<parking_lot::Mutex<Vec<usize>>>,
    }

    #[async_trait]
    impl Proxy for Gated {
        async fn adopt(&mut self) -> bool {
            false
        }

        async fn apply(&mut self, site: &Site, _: Option<&Changes>) -> Result<Applied, ProxyError> {
            self.certificates.lock().push(site.certificates.len());
            self.permits.acquire().await.expect("it is open").forget();
            Ok(Applied::default())
        }

        async fn stop(&mut self, _: Duration) {}
    }

    /// The first Site waits for all kinds. Certificates are read while it is applied, and are the next change.
    #[tokio::test]
    async fn nothing_waits_for_a_long_change() {
        let (directory, files) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let permits = Arc::new(tokio::sync::Semaphore::new(0));
        let certificates = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let proxy = Gated { permits: permits.clone(), certificates: certificates.clone() };
        let http = "127.0.0.1:1".parse().expect("an address");
        let mut agent = agent(http, directory.path(), Some(files.path()), proxy);
        agent.routes.apply(Event::InitDone);
        agent.bindings.apply(Event::InitDone);
        agent.services.apply(Event::InitDone);
        agent.slices.apply(Event::InitDone);
        agent.start().await;
        assert!(agent.applying.is_none(), "an endpoint can be a Router");
        agent.routers.apply(Event::InitDone);
        agent.start().await;
        assert!(agent.applying.is_some());

        let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).expect("a name");
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        std::fs::write(files.path().join("a.example.pem"), pem).expect("written");
        agent.tick().await;
        assert_eq!(agent.resolver.site().certificates.len(), 1);
        permits.add_permits(2);
        let outcome = applied(&mut agent.applying).await;
        agent.finish(outcome).await;
        assert!(agent.due.is_some_and(|due| due <= Instant::now()), "they do not wait for other changes");
        agent.start().await;
        let outcome = applied(&mut agent.applying).await;
        agent.finish(outcome).await;
        assert_eq!(*certificates.lock(), [0, 1]);
        assert!(agent.due.is_none() && agent.is_applied);
    }
}
