//! Certificates from a certificate authority (ACME, RFC 8555): for the zone of each Router whose instances report, and for custom hosts of Routes
//! whose TLS ends there and that name no Secret.
//!
//! ```text
//!  Routers, Routes ──► Subject, Blocked? ──► plan::next (pure) ──► order: CA, challenges ──► Secret ──► agents
//!                                                 ▲                   │
//!                                                 └── Attempt ◄───────┘
//! ```
//!
//! The leader runs it. A subject has at most one order at a time, because it is one key of the work queue. Its `Attempt` is a
//! Secret in the platform's namespace, which no agent reads: the private key and the URL of the order, stored before the CA signs anything,
//! the failures so far, and the orders of the last hour. The next leader therefore continues the order, waits as long as this one would have,
//! and has the same budget.
//!
//! Names of a zone are proven by DNS-01, with two ChallengeRecords that every name server which answers must have first. So are custom hosts
//! with an asterisk, whose owners lead `_acme-challenge` below them to a name of the platform by a CNAME record.
//! Custom hosts are proven by HTTP-01: their DNS leads here already, and every instance answers by itself, from the token of the request and
//! the thumbprint in its Router's status.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::stream::once;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::context::Context;
use self::order::{Ended, Outcome};
use self::plan::{Blocked, Subject};
use crate::client::backoff::random;
use crate::client::events::{self, Counters, Events, Notice};
use crate::client::reflector::{Applied, Change, ObjectKey, Store};
use crate::observe::programmed::{Clients, ProbeTarget, serving};
use crate::observe::verify::state::Server;
use crate::put::Put as _;
use crate::work::controller::{self, Action, Controller, Inputs, Plan, changes};
use crate::work::queue::WorkQueue;
use crate::world::condition::{ConditionUpdate, Status};
use crate::world::issuance::{Issuance, Note};
use crate::world::observations::{Observations, RouterFinding};
use crate::world::{BindingInfo, RouteInfo, RouterInfo, World};
use signpost_types::names::{acme_challenge_name, acme_name};
use signpost_types::v1alpha1::route::HOST_POINTS_HERE;
use signpost_types::v1alpha1::router::CERTIFICATE_READY;

pub mod ca;

mod ari;
mod budget;
mod caa;
mod challenges;
mod context;
mod objects;
mod order;
mod plan;
mod suggestions;

/// The most orders in progress, which the namespaces share.
const ORDERS_MAX: usize = 8;
/// The time limit of an order. The next job continues it.
const ORDER_TIMEOUT: Duration = Duration::from_secs(300);
/// The pause after an order that ended without a result, such as by its time limit: the first and the longest.
const PAUSE: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(3600)];
/// The longest time between two checks of a certificate: its Secret can be gone, and the clock can change.
const LOOK: i64 = 3_600;
/// The most Routers on which a certificate of a host that has moved is looked up.
const OTHERS_MAX: usize = 256;
/// The wait for the binding of a Route.
const BINDING: Duration = Duration::from_secs(1);
/// The time between two searches for unused certificates.
const SWEEP: Duration = Duration::from_secs(6 * 3_600);
/// The port to which certificate authorities connect (RFC 8555 §8.3).
const HTTP_PORT: u16 = 80;

/// The settings of the loop.
#[derive(Clone)]
pub struct Settings {
    pub ca: ca::Settings,
    /// The listed name servers, the resolvers for CAA records, and the time for an answer of each.
    pub servers: Vec<Server>,
    pub resolvers: Vec<SocketAddr>,
    pub patience: Duration,
    /// Whether hosts need a proof of ownership.
    pub verify_hosts: bool,
    /// The most orders of a namespace, and of all together, in an hour.
    pub namespace_orders: u32,
    pub orders: u32,
    /// The identity of the process.
    pub instance: String,
}

/// The metrics on `/metrics`; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    orders: Family<[(&'static str, &'static str); 1], Counter>,
    failures: Family<[(&'static str, String); 1], Counter>,
    failing: Family<[(&'static str, &'static str); 1], Gauge>,
    expiry: Family<[(&'static str, String); 2], Gauge>,
    events: Counters,
}

impl Default for Metrics {
    fn default() -> Self {
        let orders: Family<_, Counter> = Family::default();
        for outcome in ["issued", "failed"] {
            let _ = orders.get_or_create(&[("outcome", outcome)]);
        }
        let (failures, failing, expiry) = (Family::default(), Family::default(), Family::default());
        Metrics { orders, failures, failing, expiry, events: Counters::default() }
    }
}

impl Metrics {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("acme_orders", "Orders of certificates that ended, by outcome", self.orders.clone());
        let help =
            "Failed orders of certificates, by reason: the type of the problem that the CA reports, or where it failed";
        registry.register("acme_failures", help, self.failures.clone());
        let help = "Certificates whose last order failed, by class: zone or host";
        registry.register("acme_failing_certificates", help, self.failing.clone());
        let help = "Earliest expiry of a certificate that the platform got, in seconds since 1970, by Router and class: zone or host";
        registry.register("acme_certificate_expiry_time_seconds", help, self.expiry.clone());
        self.events.register(registry.sub_registry_with_prefix("acme"));
    }
}

/// Gets certificates until `stop`, which also ends with this process's leadership.
pub async fn run(client: kube::Client, world: World, settings: Settings, metrics: Metrics, stop: CancellationToken) {
    world.observations.forget(CERTIFICATE_READY);
    let Some(instances) = Clients::new() else { return stop.cancelled().await };
    let (thumbprint, thumbprints) = watch::channel(None);
    let (verify_hosts, instance) = (settings.verify_hosts, settings.instance.clone());
    let context = match Context::new(client, settings, instances, thumbprint) {
        Ok(context) => Arc::new(context),
        Err(error) => {
            tracing::error!(error, "cannot get certificates: correct the settings of acme");
            return stop.cancelled().await;
        }
    };
    let mut inputs = Inputs::default();
    let routes = inputs.read(&world.routes, Issuer::take_routes);
    let routers = inputs.read(&world.routers, Issuer::take_routers);
    let bindings = inputs.read(&world.bindings, |_: &mut Issuer, _| {});
    inputs.add(changes(thumbprints), |issuer: &mut Issuer, thumbprint| {
        issuer.thumbprint = thumbprint;
        issuer.publish_thumbprint();
    });
    let reporter = events::Reporter { controller: "signpost.dev/certificates", action: "Ordering", instance };
    let (events, recording) = Events::new(context.client.clone(), reporter, metrics.events.clone());
    inputs.add(once(recording), |_, ()| {});
    let issuer = Issuer {
        context,
        routes,
        routers,
        bindings,
        domain: world.settings.platform.domain_text(),
        observations: world.observations,
        issuance: world.issuance,
        metrics,
        verify_hosts,
        queue: WorkQueue::new(ORDERS_MAX, PAUSE),
        hosts: BTreeMap::new(),
        expiry: BTreeMap::new(),
        failing: BTreeSet::new(),
        events,
        thumbprint: None,
    };
    let client = issuer.context.client.clone();
    tokio::join!(controller::run(issuer, inputs, stop.clone()), stop.run_until_cancelled(sweep(client)));
}

/// Deletes unused certificates, without end.
async fn sweep(client: kube::Client) {
    loop {
        if let Err(error) = objects::sweep(&client, Timestamp::now().as_second()).await {
            tracing::warn!(%error, "failed to look for certificates that have expired; retrying later");
        }
        sleep(SWEEP).await;
    }
}

struct Issuer {
    context: Arc<Context>,
    routes: Store<RouteInfo>,
    routers: Store<RouterInfo>,
    bindings: Store<BindingInfo>,
    domain: String,
    observations: Arc<Observations>,
    issuance: Issuance,
    metrics: Metrics,
    verify_hosts: bool,
    queue: WorkQueue<Subject>,
    /// The Routes of each custom host.
    hosts: BTreeMap<Subject, BTreeSet<ObjectKey>>,
    /// The expiry of each certificate.
    expiry: BTreeMap<Subject, i64>,
    /// The certificates whose last order failed.
    failing: BTreeSet<Subject>,
    events: Events,
    thumbprint: Option<String>,
}

/// A subject to work on.
struct Job {
    blocked: Option<Blocked>,
    /// The names of TXT records that can prove it: the owner of a host with an asterisk chooses one. None: instances answer.
    proofs: Vec<String>,
    /// The serving instances of its Router.
    instances: Vec<ProbeTarget>,
    /// Other Routers, on which a host can have been before.
    others: Vec<String>,
}

impl Controller for Issuer {
    type Key = Subject;
    type Job = Job;
    type Done = Outcome;

    const JOB_TIMEOUT: Duration = ORDER_TIMEOUT;

    fn queue(&mut self) -> &mut WorkQueue<Subject> {
        &mut self.queue
    }

    fn is_ready(&self) -> bool {
        self.routes.is_synced() && self.routers.is_synced() && self.bindings.is_synced()
    }

    fn plan(&mut self, subject: &Subject, now: Instant) -> Plan<Job> {
        let router = self.routers.get(&ObjectKey::cluster(&subject.router)).filter(|router| is_served(router));
        let Some(router) = router.filter(|router| self.is_wanted(subject, router)) else {
            self.forget(subject);
            return Plan::Nothing;
        };
        let instances = serving(&router).filter_map(|instance| ProbeTarget::new(&router, instance)).collect();
        let others = self.routers.all().into_iter().map(|(key, _)| key.name).filter(|name| *name != subject.router);
        let (blocked, others) = (self.blocked(subject, &router), others.take(OTHERS_MAX).collect());
        let proofs = if subject.is_zone() {
            vec![acme_challenge_name(&subject.host)]
        } else if subject.is_wildcard_host() {
            let labels = self.labels_of(subject);
            // The binding can come after the Route's status.
            if labels.is_empty() {
                return Plan::At(now + BINDING);
            }
            labels.iter().map(|label| acme_name(label, &self.domain)).collect()
        } else {
            Vec::new()
        };
        Plan::Act(Job { blocked, proofs, instances, others })
    }

    fn act(&self, subject: &Subject, job: Job) -> Action<Outcome> {
        let (context, subject) = (self.context.clone(), subject.clone());
        async move { order::advance(&context, &subject, job).await }.boxed()
    }

    fn done(&mut self, subject: Subject, result: kube::Result<Outcome>, now: Instant) {
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::warn!(router = subject.router, host = subject.host, %error, "failed to work on a certificate; retrying");
                return self.queue.failed(&subject, now, random());
            }
        };
        self.queue.succeeded(&subject);
        let wait = (outcome.next_at - Timestamp::now().as_second()).clamp(1, LOOK);
        self.queue.add(subject.clone(), now + Duration::from_secs(wait.unsigned_abs()));
        match &outcome.ended {
            Some(Ended::Issued { is_renewal }) => {
                self.metrics.orders.get_or_create(&[("outcome", "issued")]).inc();
                let reason = if *is_renewal { "CertificateRenewed" } else { "CertificateIssued" };
                self.record(&subject, false, reason, &outcome.note.message);
            }
            Some(Ended::Failed { reason, message, is_news }) => {
                self.metrics.orders.get_or_create(&[("outcome", "failed")]).inc();
                self.metrics.failures.get_or_create(&[("reason", reason.clone())]).inc();
                if *is_news {
                    let names = subject.names().join(" and ");
                    self.record(&subject, true, "CertificateFailed", &format!("no certificate for {names}: {message}"));
                }
            }
            None => {}
        }
        match outcome.is_failing {
            true => self.failing.insert(subject.clone()),
            false => self.failing.remove(&subject),
        };
        self.show_failing();
        self.expiry.put(subject.clone(), outcome.not_after);
        self.show_expiry(&subject);
        self.report(&subject, outcome.note);
    }

    fn end(&mut self) {
        self.metrics.expiry.clear();
        self.metrics.failing.clear();
        self.issuance.clear();
    }
}

/// Returns whether agents of a Router serve certificates.
fn is_served(router: &RouterInfo) -> bool {
    router.target.active.has_instances && router.shard.is_some() && !router.target.deleting
}

/// Returns the subject of the custom host of a Route whose certificate the platform gets.
fn host_of(key: &ObjectKey, route: &RouteInfo) -> Option<Subject> {
    let name = route.tls_name.as_deref().filter(|_| route.tls_secret.is_none() && !route.deleting)?;
    let is_custom = route.custom_name.as_deref().is_some_and(|custom| custom.eq_ignore_ascii_case(name));
    let (namespace, router) = (key.namespace.clone()?, route.router.as_deref()?);
    is_custom.then(|| Subject::host(&namespace, router, name))
}

impl Issuer {
    fn take_routes(&mut self, change: Change<RouteInfo>) {
        let (applied, gone) = change.into_parts();
        let applied = applied.into_iter().map(|Applied { key, now, before, .. }| (key, before, Some(now)));
        let gone = gone.into_iter().map(|(key, last)| (key, Some(last), None));
        for (key, before, after) in gone.chain(applied) {
            let of = |route: &Option<Arc<RouteInfo>>| host_of(&key, route.as_deref()?);
            let state = |route: &Option<Arc<RouteInfo>>| self.may_be_proven(route.as_deref()?).then_some(());
            let (former, subject) = (of(&before), of(&after));
            if former == subject && state(&before) == state(&after) {
                continue;
            }
            for subject in former.iter().chain(&subject) {
                if let Some(routes) = self.hosts.get_mut(subject) {
                    routes.remove(&key);
                }
                self.queue.add(subject.clone(), Instant::now());
            }
            subject.into_iter().for_each(|subject| _ = self.hosts.entry(subject).or_default().insert(key.clone()));
            self.hosts.retain(|_, routes| !routes.is_empty());
        }
    }

    /// Queues all subjects of a Router when its zone, its ports, or whether its instances report have changed.
    fn take_routers(&mut self, change: Change<RouterInfo>) {
        let of = |router: &RouterInfo| (is_served(router), router.zone().map(str::to_owned), router.object.ports());
        let (applied, gone) = change.into_parts();
        let mut changed: BTreeSet<String> = gone.iter().map(|(key, _)| key.name.clone()).collect();
        for (key, last) in gone {
            last.zone().into_iter().for_each(|zone| self.forget(&Subject::zone(&key.name, zone)));
        }
        for Applied { key, now: router, before, .. } in applied {
            if before.is_some_and(|before| of(&before) == of(&router)) {
                continue;
            }
            router.zone().into_iter().for_each(|zone| self.queue.add(Subject::zone(&key.name, zone), Instant::now()));
            changed.insert(key.name);
        }
        let hosts: Vec<Subject> =
            self.hosts.keys().filter(|subject| changed.contains(&subject.router)).cloned().collect();
        hosts.into_iter().for_each(|subject| self.queue.add(subject, Instant::now()));
        self.publish_thumbprint();
    }

    /// Publishes the thumbprint in the statuses of Routers.
    fn publish_thumbprint(&self) {
        let Some(thumbprint) = &self.thumbprint else { return };
        for (key, router) in self.routers.all() {
            let is_known = || self.observations.router(&key.name).acme.as_ref() == Some(thumbprint);
            if is_served(&router) && !is_known() {
                self.observations.set_router(&key.name, |findings| findings.acme = Some(thumbprint.clone()));
            }
        }
    }

    fn is_wanted(&self, subject: &Subject, router: &RouterInfo) -> bool {
        let zone = router.zone().unwrap_or_default();
        match subject.is_zone() {
            true => *subject == Subject::zone(&subject.router, zone),
            // The wildcard of the zone is for it, too.
            false => {
                let is_covered =
                    subject.host.split_once('.').is_some_and(|(_, parent)| parent.eq_ignore_ascii_case(zone));
                self.hosts.contains_key(subject) && !is_covered
            }
        }
    }

    /// Returns whether a Route's host leads here, and is verified where that is required.
    fn may_be_proven(&self, route: &RouteInfo) -> bool {
        route.conditions.is_true(HOST_POINTS_HERE) == Some(true) && (!self.verify_hosts || route.is_host_verified())
    }

    /// Returns why a certificate cannot be ordered now.
    fn blocked(&self, subject: &Subject, router: &RouterInfo) -> Option<Blocked> {
        if subject.is_zone() {
            return None;
        }
        let routes = self.hosts.get(subject).into_iter().flatten();
        if !routes.filter_map(|key| self.routes.get(key)).any(|route| self.may_be_proven(&route)) {
            return Some(Blocked::Elsewhere);
        }
        let port = router.object.ports().http;
        (port != HTTP_PORT && !subject.is_wildcard_host()).then_some(Blocked::Port(port))
    }

    /// Returns the labels of the Routes with the host.
    fn labels_of(&self, subject: &Subject) -> Vec<String> {
        let routes = self.hosts.get(subject).into_iter().flatten();
        routes.filter_map(|key| Some(self.bindings.get(key)?.label.to_string())).collect()
    }

    fn forget(&mut self, subject: &Subject) {
        self.queue.forget(subject);
        self.context.suggestions.forget(subject);
        self.failing.remove(subject);
        self.show_failing();
        self.expiry.remove(subject);
        self.show_expiry(subject);
        self.issuance.set(&subject.router, &subject.host, None);
    }

    fn report(&self, subject: &Subject, note: Note) {
        if subject.is_zone() && self.routers.get(&ObjectKey::cluster(&subject.router)).is_some() {
            let status = Status::from(note.is_issued);
            let message = note.message.clone();
            let statement = ConditionUpdate { kind: CERTIFICATE_READY, status, reason: note.reason, message };
            let known = self.observations.router(&subject.router);
            if known.conditions.get(CERTIFICATE_READY).is_none_or(|known| known.statement != statement) {
                let finding = RouterFinding { statement, serial: None };
                self.observations.set_router(&subject.router, |findings| {
                    findings.conditions.set(CERTIFICATE_READY, Some(finding));
                });
            }
        }
        self.issuance.set(&subject.router, &subject.host, Some(note));
    }

    /// Records an Event about a certificate: on the Router for that of its zone, otherwise on the Routes with the host.
    fn record(&self, subject: &Subject, is_warning: bool, reason: &'static str, note: &str) {
        let record = |kind, object: &ObjectKey, uid: String| {
            let (object, note) = (object.clone(), note.to_owned());
            self.events.record(Notice { api_version: None, kind, object, uid, is_warning, reason, note });
        };
        if subject.is_zone() {
            let key = ObjectKey::cluster(&subject.router);
            let uid = self.routers.get(&key).and_then(|router| router.object.metadata.uid.clone());
            return record("Router", &key, uid.unwrap_or_default());
        }
        for key in self.hosts.get(subject).into_iter().flatten() {
            if let Some(route) = self.routes.get(key) {
                record("Route", key, route.uid.to_string());
            }
        }
    }

    fn show_failing(&self) {
        for (class, is_zone) in [("zone", true), ("host", false)] {
            let count = self.failing.iter().filter(|subject| subject.is_zone() == is_zone).count();
            self.metrics.failing.get_or_create(&[("class", class)]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Shows the first expiry of the certificates of a subject's class.
    fn show_expiry(&self, subject: &Subject) {
        let class = if subject.is_zone() { "zone" } else { "host" };
        let of_class = |of: &Subject| of.router == subject.router && of.is_zone() == subject.is_zone();
        let first = self.expiry.iter().filter(|(of, _)| of_class(of)).map(|(_, expiry)| *expiry).min();
        let labels = [("router", subject.router.clone()), ("class", class.to_owned())];
        match first {
            Some(first) => _ = self.metrics.expiry.get_or_create(&labels).set(first),
            None => _ = self.metrics.expiry.remove(&labels),
        }
    }
}
