//! The check whether the instances of Routers serve the Routes: the condition `Programmed`.
//!
//! ```text
//!  RouteBinding, ──► waits until every serving instance ──► one HTTP probe ──► Programmed
//!  Route             has applied their resource versions    of an instance
//! ```
//!
//! A Route is checked when its binding or its generation has changed, its Router has other instances, or its status is not
//! `Programmed` at this generation, and again until it is. Until then, the condition stays about the earlier generation; if the Route
//! is not programmed after five seconds, the condition reports that. Routers without instances that report are skipped.
//!
//! The resource version of a Route is that at which its generation came, or the present one if that is not known. Later changes of its
//! status or metadata do not matter.
//!
//! If the clients of a Router are named by the PROXY protocol, a proxy can require it from the probe, too: nginx from all, HAProxy from
//! trusted proxies, while it rejects it from others. The probe then begins with `PROXY UNKNOWN`, so that its own address is that of
//! the client.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroI64;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use hyper_util::rt::TokioIo;
use kube::Api;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::util::MapFutureLayer;

use crate::client::backoff::random;
use crate::client::reflector::{Applied, Change, ObjectKey, Store};
use crate::client::transport_error::cause_text;
use crate::observe::network::simulated;
use crate::work::controller::{self, Action, Controller, Inputs, Plan};
use crate::work::queue::WorkQueue;
use crate::world::condition::{ConditionUpdate, Status};
use crate::world::observations::{About, Observations, RouteFinding};
use crate::world::route::Reported;
use crate::world::{BindingInfo, RouteInfo, RouterInfo, World};
use signpost_types::instance::{AGENT_NAMESPACE, InstanceReport};
use signpost_types::paths;
use signpost_types::probe::{PROBE_HEADER, ROUTE_HEADER, route_id};
use signpost_types::text::listed;
use signpost_types::v1alpha1::route::{PROGRAMMED, Route};
use signpost_types::v1alpha1::router::{Instance, InstanceState, RouterKind};

/// The most probes in flight, which the namespaces share.
const PROBES_MAX: usize = 64;
/// The time limit for reading the Route, and for the request to the instance.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause after a failed probe: the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(10));
/// The time after which a Route that is not programmed is reported: usually it takes milliseconds.
const GRACE: Duration = Duration::from_secs(5);
/// The maximum number of instances that a condition names.
const NAMED_MAX: usize = 3;
/// The time between two updates of the metrics, which scan every waiting Route.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// The metrics on `/metrics`; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    waiting: Gauge,
    unapplied: Family<[(&'static str, String); 1], Gauge>,
    probes: Family<[(&'static str, &'static str); 1], Counter>,
    times: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let probes: Family<_, Counter> = Family::default();
        for outcome in ["good", "bad"] {
            let _ = probes.get_or_create(&[("outcome", outcome)]);
        }
        // 1 ms to 131 s.
        let times = Histogram::new(exponential_buckets(0.001, 2.0, 18));
        Metrics { waiting: Gauge::default(), unapplied: Family::default(), probes, times }
    }
}

impl Metrics {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Routes that are not confirmed on every instance of their Router";
        registry.register("routes_not_programmed", help, self.waiting.clone());
        let help = "Routes that a serving instance of the Router has not applied at their present generation";
        registry.register("router_unapplied_routes", help, self.unapplied.clone());
        registry.register("route_probes", "Probes of Routes at instances, by outcome", self.probes.clone());
        let help =
            "Time from a change of a Route or its RouteBinding until every instance of its Router served the Route";
        registry.register("route_programmed_seconds", help, self.times.clone());
    }
}

/// Checks Routes until `stop`, which also ends with this process's leadership.
pub async fn run(client: kube::Client, world: World, metrics: Metrics, stop: CancellationToken) {
    world.observations.forget(PROGRAMMED);
    let Some(http) = Clients::new() else { return stop.cancelled().await };
    let mut inputs = Inputs::default();
    let stores = Stores {
        routes: inputs.read(&world.routes, Watch::take_routes),
        bindings: inputs.read(&world.bindings, Watch::take_bindings),
        routers: inputs.read(&world.routers, Watch::take_routers),
        reports: inputs.read(&world.instances, |watch, _| watch.check_all()),
    };
    let (waiting, lags, observations) = (HashMap::new(), BTreeMap::new(), world.observations);
    // A Route never fails: its waits depend on the time since its change.
    let (queue, shown) = (WorkQueue::new(PROBES_MAX, [PAUSE.1; 2]), Instant::now());
    let watch = Watch { client, http, stores, metrics, waiting, queue, lags, shown, observations };
    controller::run(watch, inputs, stop).await;
}

/// The `metadata.generation` of a Route.
type Generation = Option<NonZeroI64>;

/// The reason of a Route whose path no proxy serves. The API rejects such a path, unless the Route has it from an earlier version.
const PATH_NOT_SUPPORTED: &str = "PathNotSupported";
const PROBE_FAILED: &str = "ProbeFailed";

/// The HTTP clients of requests to instances.
#[derive(Clone)]
pub(crate) struct Clients {
    plain: reqwest::Client,
    /// The client whose connections begin with the PROXY protocol.
    announcing: reqwest::Client,
}

/// The instance of a probe.
#[derive(Clone, Copy)]
pub(crate) struct ProbeTarget {
    pub(crate) address: SocketAddr,
    /// Whether its Router names clients by the PROXY protocol.
    is_announced: bool,
    /// Whether its proxy usually requires the protocol from all.
    is_nginx: bool,
}

impl ProbeTarget {
    /// Returns an instance of a Router; `None`: its address is not one.
    pub(crate) fn new(router: &RouterInfo, instance: &Instance) -> Option<ProbeTarget> {
        Some(ProbeTarget {
            address: SocketAddr::new(instance.ip.parse::<IpAddr>().ok()?, instance.http_port),
            is_announced: router.announces_clients(),
            is_nginx: instance.proxy == RouterKind::Nginx.word(),
        })
    }
}

impl Clients {
    /// Returns the clients; `None` after an error, which is logged.
    pub(crate) fn new() -> Option<Clients> {
        let http = || {
            let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
            // An instance that stops waits for its connections; the probe uses only HTTP.
            http.pool_max_idle_per_host(0).tls_certs_only([])
        };
        let announcing = http().connector_layer(MapFutureLayer::new(announced)).build();
        let (Ok(plain), Ok(announcing)) = (http().build(), announcing) else {
            tracing::error!("failed to create an HTTP client: instances get no requests");
            return None;
        };
        Some(Clients { plain, announcing })
    }

    /// Sends a request to an instance like its clients, and then the other way: whether the proxy has trusted proxies can depend on the
    /// options of its agent.
    pub(crate) async fn request<T, F>(
        &self,
        target: ProbeTarget,
        asked: impl Fn(reqwest::Client) -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = Result<T, String>>,
    {
        let (first, second) = match target {
            ProbeTarget { is_announced: false, .. } => (&self.plain, None),
            ProbeTarget { is_nginx: true, .. } => (&self.announcing, Some(&self.plain)),
            _ => (&self.plain, Some(&self.announcing)),
        };
        match (asked(first.clone()).await, second) {
            (Err(error), Some(second)) => asked(second.clone()).await.map_err(|_| error),
            (served, _) => served,
        }
    }
}

/// Begins a connection with the PROXY protocol, without an address of a client.
async fn announced<C, E: From<std::io::Error>>(connection: impl Future<Output = Result<C, E>>) -> Result<C, E>
where
    TokioIo<C>: AsyncWrite + Unpin,
{
    let mut connection = TokioIo::new(connection.await?);
    connection.write_all(b"PROXY UNKNOWN\r\n").await?;
    Ok(connection.into_inner())
}

/// Sends a request for a Route to an instance, as any client can. Returns the generation that is served; the error is the reason why
/// it is not, and its text.
async fn probe(
    client: kube::Client,
    http: Clients,
    key: &ObjectKey,
    target: ProbeTarget,
) -> Result<Generation, (&'static str, String)> {
    let route = read(client, key).await.map_err(|error| (PROBE_FAILED, error))?;
    let path = route.spec.path.as_deref().filter(|path| path.starts_with('/')).unwrap_or(paths::ROOT);
    if let Err(error) = paths::check(path) {
        return Err((PATH_NOT_SUPPORTED, format!("no proxy serves spec.path {path:?}: it {error}")));
    }
    let served = http.request(target, |http| request(http, &route, path, target.address)).await;
    served.map_err(|error| (PROBE_FAILED, error))?;
    Ok(route.metadata.generation.and_then(NonZeroI64::new))
}

async fn read(client: kube::Client, key: &ObjectKey) -> Result<Route, String> {
    let routes = Api::<Route>::namespaced(client, key.namespace());
    let route = timeout(PROBE_TIMEOUT, routes.get(&key.name)).await;
    let route = route.map_err(|_| format!("the API did not return the Route within {} s", PROBE_TIMEOUT.as_secs()))?;
    route.map_err(|error| format!("failed to read the Route: {error}"))
}

async fn request(http: reqwest::Client, route: &Route, path: &str, place: SocketAddr) -> Result<(), String> {
    let host = route.status.as_ref().and_then(|status| status.names.first()).map(|name| name.name.clone());
    let host = host.unwrap_or_default();
    let answer = async {
        if let Some(answer) = simulated(place, &host) {
            return answer.await;
        }
        let request = http.get(format!("http://{place}{path}")).header(PROBE_HEADER, "1");
        let sent = request.header(reqwest::header::HOST, &host).send().await;
        sent.map(|response| http::Response::from(response).map(drop)).map_err(|error| cause_text(error, "the host"))
    };
    let answer = timeout(PROBE_TIMEOUT, answer).await;
    let answer = answer.map_err(|_| format!("{place} did not respond within {} s", PROBE_TIMEOUT.as_secs()))?;
    let response = answer.map_err(|error| format!("{place}: {error}"))?;
    let served = response.headers().get(ROUTE_HEADER).and_then(|id| id.to_str().ok());
    match served {
        Some(id) if id == route_id(route.metadata.uid.as_deref().unwrap_or_default()) => Ok(()),
        Some(_) => Err(format!("{place} serves another Route at the name")),
        None => Err(format!(
            "{place} does not serve the Route: it responded with HTTP status {}",
            response.status().as_u16()
        )),
    }
}

/// The objects that define the Router of each Route.
struct Stores {
    routes: Store<RouteInfo>,
    bindings: Store<BindingInfo>,
    routers: Store<RouterInfo>,
    reports: Store<Option<InstanceReport>>,
}

impl Stores {
    fn is_synced(&self) -> bool {
        self.routes.is_synced() && self.bindings.is_synced() && self.routers.is_synced() && self.reports.is_synced()
    }

    /// Returns the Router of a Route, if its instances report.
    fn router_of(&self, binding: &BindingInfo) -> Option<Arc<RouterInfo>> {
        self.routers.get(&ObjectKey::cluster(&binding.router)).filter(|router| router.target.active.has_instances)
    }
}

/// Routes that are not known to be programmed.
struct Watch {
    client: kube::Client,
    http: Clients,
    stores: Stores,
    metrics: Metrics,
    waiting: HashMap<ObjectKey, Waiting>,
    queue: WorkQueue<ObjectKey>,
    /// The Routers whose instances lag according to the metrics, with the number of Routes.
    lags: BTreeMap<Arc<str>, i64>,
    /// The time of the last update of the metrics.
    shown: Instant,
    observations: Arc<Observations>,
}

/// A Route that waits.
struct Waiting {
    since: Instant,
    pause: Duration,
    /// The probe in flight, which ends with the wait: that of an instance that hangs must not delay the next binding.
    probe: Option<DropGuard>,
    /// The Route's generation, and the resource version that instances must have applied for it; `None` before the first check.
    generation: Option<(Generation, u64)>,
    /// Whether the Route was programmed with its former binding, or before this process led: no probe is necessary if nothing
    /// lags.
    is_known: bool,
    /// Whether a probe with this binding and generation succeeded.
    is_probed: bool,
    /// The Router, if one of its instances has not applied the binding or the Route.
    lags_at: Option<Arc<str>>,
    /// The reason why the Route is not programmed.
    error: Option<(&'static str, String)>,
}

impl Controller for Watch {
    type Key = ObjectKey;
    type Job = (ProbeTarget, CancellationToken);
    /// `None`: the wait has ended.
    type Done = Option<Result<Generation, (&'static str, String)>>;

    const JOB_TIMEOUT: Duration = Duration::from_secs(3 * PROBE_TIMEOUT.as_secs());
    const PACE: Duration = PAUSE.0;

    fn queue(&mut self) -> &mut WorkQueue<ObjectKey> {
        &mut self.queue
    }

    fn is_ready(&self) -> bool {
        self.stores.is_synced() && self.observations.has_room()
    }

    /// Checks a Route, and returns the instance to probe, if that is necessary.
    fn plan(&mut self, key: &ObjectKey, now: Instant) -> Plan<Self::Job> {
        let Some(waiting) = self.waiting.get_mut(key) else { return Plan::Nothing };
        let stores = &self.stores;
        let (route, binding) = (stores.routes.get(key), stores.bindings.get(key));
        let (Some(route), Some(binding)) = (route.filter(|route| route.bound), binding) else {
            // The Route is reported when it is bound.
            self.forget(key);
            return Plan::Nothing;
        };
        // One of the two watches can lag, and delivers later.
        let is_of = binding.route_uid == route.uid && route.router.as_ref() == Some(&binding.router);
        let router = stores.router_of(&binding).filter(|_| is_of);
        let Some(router) = router else {
            self.forget(key);
            return Plan::Nothing;
        };
        // The event of another generation is about to come, and begins the wait again. A store that was restored has lower versions.
        let is_other = |(generation, version)| generation != route.generation || version > route.version;
        if waiting.generation.is_none_or(is_other) {
            (waiting.generation, waiting.is_probed) = (Some((route.generation, route.version)), false);
        }
        let version = waiting.generation.map_or(0, |(_, version)| version);
        let is_true = route.conditions.get(PROGRAMMED).is_some_and(Reported::is_true_now);
        let serving: Vec<&Instance> = serving(&router).collect();
        // Of an agent that does not report Routes, only the probe shows that it serves this one.
        let is_behind = |report: &InstanceReport| {
            report.applied_revision < binding.turn || report.applied_routes.is_some_and(|applied| applied < version)
        };
        let lags = |instance: &&&Instance| {
            let report = stores.reports.get(&ObjectKey::namespaced(AGENT_NAMESPACE, &instance.name));
            report.is_none_or(|report| Option::as_ref(&report).is_none_or(is_behind))
        };
        let lagging: Vec<&str> = serving.iter().filter(lags).map(|instance| &*instance.ip).collect();
        waiting.lags_at = (!lagging.is_empty()).then(|| binding.router.clone());
        if serving.is_empty() {
            let message = format!("no instance of Router {} serves: see its condition InstancesReady", binding.router);
            waiting.error = Some(("NoInstance", message));
        } else if !lagging.is_empty() {
            let (router, named) = (&binding.router, listed(&lagging, NAMED_MAX));
            let message = format!("instances of Router {router} have not applied the Route yet: {named}");
            waiting.error = Some(("NotApplied", message));
        } else if waiting.is_probed || waiting.is_known && is_true {
            let since = waiting.since;
            self.waiting.remove(key);
            if !is_true {
                self.metrics.times.observe(now.duration_since(since).as_secs_f64());
                let (count, router) = (serving.len(), &binding.router);
                let message = format!("{count} of {count} live instances of Router {router} serve the Route");
                report(&self.observations, key, &route, Status::True, "Programmed", message);
            }
            return Plan::Nothing;
        } else {
            // A different instance each time, so that no single instance represents all.
            let at = usize::try_from(random()).unwrap_or(0) % serving.len();
            if let Some(target) = ProbeTarget::new(&router, serving[at]) {
                let ended = CancellationToken::new();
                waiting.probe = Some(ended.clone().drop_guard());
                return Plan::Act((target, ended));
            }
        }
        self.next_check(key, &route, now).map_or(Plan::Nothing, Plan::At)
    }

    fn act(&self, key: &ObjectKey, (target, ended): Self::Job) -> Action<Self::Done> {
        let (client, http, key) = (self.client.clone(), self.http.clone(), key.clone());
        async move { Ok(ended.run_until_cancelled(probe(client, http, &key, target)).await) }.boxed()
    }

    fn done(&mut self, key: ObjectKey, result: kube::Result<Self::Done>, now: Instant) {
        let result = result.unwrap_or_else(|error| Some(Err((PROBE_FAILED, error.to_string()))));
        let Some(result) = result else { return };
        let outcome = if result.is_ok() { "good" } else { "bad" };
        self.metrics.probes.get_or_create(&[("outcome", outcome)]).inc();
        // Another binding or generation arrived meanwhile, and is checked anyway.
        let Some(waiting) = self.waiting.get_mut(&key).filter(|_| !self.queue.has(&key)) else { return };
        waiting.probe = None;
        let awaited = waiting.generation.map(|(generation, _)| generation);
        let result = result.and_then(|probed| match awaited == Some(probed) {
            true => Ok(()),
            false => Err((PROBE_FAILED, "the Route changed during the probe".to_owned())),
        });
        match (result, self.stores.routes.get(&key)) {
            (Ok(()), _) => {
                waiting.is_probed = true;
                self.queue.plan(key, now);
            }
            (Err(error), Some(route)) => {
                waiting.error = Some(error);
                let next_at = self.next_check(&key, &route, now);
                next_at.into_iter().for_each(|at| self.queue.plan(key.clone(), at));
            }
            (Err(_), None) => self.forget(&key),
        }
    }

    fn settle(&mut self, now: Instant) -> Option<Instant> {
        if self.waiting.is_empty() || now >= self.shown + SHOW_INTERVAL {
            self.show();
            self.shown = now;
        }
        None
    }

    fn end(&mut self) {
        self.waiting.clear();
        self.show();
    }
}

impl Watch {
    /// Updates the metrics of waiting Routes and their Routers.
    fn show(&mut self) {
        self.metrics.waiting.set(i64::try_from(self.waiting.len()).unwrap_or(i64::MAX));
        let mut lags: BTreeMap<Arc<str>, i64> = BTreeMap::new();
        for router in self.waiting.values().filter_map(|waiting| waiting.lags_at.as_ref()) {
            *lags.entry(router.clone()).or_default() += 1;
        }
        let labels = |router: &str| [("router", router.to_owned())];
        for router in self.lags.keys().filter(|router| !lags.contains_key(*router)) {
            self.metrics.unapplied.remove(&labels(router));
        }
        for (router, count) in &lags {
            self.metrics.unapplied.get_or_create(&labels(router)).set(*count);
        }
        self.lags = lags;
    }

    /// Schedules a check of a Route; `is_known`: its status was `Programmed`, and neither it nor its binding has changed.
    fn add(&mut self, key: ObjectKey, is_known: bool, generation: Option<(Generation, u64)>) {
        let (since, pause) = (Instant::now(), PAUSE.0);
        self.forget(&key);
        let (probe, is_probed, lags_at, error) = (None, false, None, None);
        let waiting = Waiting { since, pause, probe, generation, is_known, is_probed, lags_at, error };
        self.queue.plan(key.clone(), since);
        self.waiting.insert(key, waiting);
    }

    /// Removes a Route, and the finding about it that is not written yet: after a move and a move back, it would be about the
    /// present Router again.
    fn forget(&mut self, key: &ObjectKey) {
        self.observations.set_route(key, PROGRAMMED, None);
        self.waiting.remove(key);
        self.queue.forget(key);
    }

    fn take_bindings(&mut self, change: Change<BindingInfo>) {
        let is_first = change.is_first();
        let (applied, gone) = change.into_parts();
        gone.iter().for_each(|(key, _)| self.forget(key));
        for applied in applied {
            self.add(applied.key, is_first, None);
        }
    }

    /// Checks a Route of a new generation, and a bound Route without `Programmed` in its status, regardless of earlier results: a
    /// status may have been written from an outdated state, and a store can be restored.
    fn take_routes(&mut self, change: Change<RouteInfo>) {
        for Applied { key, now: route, before, .. } in change.into_parts().0 {
            let differs = |before: &RouteInfo| (&before.uid, before.generation) != (&route.uid, route.generation);
            let has_changed = before.is_some_and(|before| differs(&before));
            let is_true = route.conditions.get(PROGRAMMED).is_some_and(Reported::is_true_now);
            let is_reported = || self.observations.route(&key).get(PROGRAMMED).is_some();
            let is_due = || has_changed || !is_true && !self.waiting.contains_key(&key) && !is_reported();
            let router = || self.stores.bindings.get(&key).and_then(|binding| self.stores.router_of(&binding));
            if route.bound && is_due() && router().is_some() {
                self.add(key, false, Some((route.generation, route.version)));
            }
        }
    }

    /// Checks the Routes of a Router when other instances serve.
    fn take_routers(&mut self, change: Change<RouterInfo>) {
        if change.is_first() {
            return;
        }
        let serving = |router: &RouterInfo| {
            let names: BTreeSet<String> = serving(router).map(|instance| instance.name.clone()).collect();
            (names, router.target.active.has_instances)
        };
        let is_other = |before: Option<&RouterInfo>, now: &RouterInfo| before.map(serving) != Some(serving(now));
        let applied = change.into_parts().0.into_iter();
        let changed: BTreeSet<String> = applied
            .filter(|applied| is_other(applied.before.as_deref(), &applied.now))
            .map(|applied| applied.key.name)
            .collect();
        if changed.is_empty() {
            return;
        }
        for (key, binding) in self.stores.bindings.all() {
            if changed.contains(&*binding.router) && !self.waiting.contains_key(&key) {
                self.add(key, true, None);
            }
        }
    }

    /// Instances have applied more.
    fn check_all(&mut self) {
        let now = Instant::now();
        for (key, _) in self.waiting.iter().filter(|(_, waiting)| !waiting.is_probed && waiting.probe.is_none()) {
            self.queue.add(key.clone(), now);
        }
    }

    /// Returns the time of the next check of a Route, and reports the reason if it has waited for long.
    fn next_check(&mut self, key: &ObjectKey, route: &RouteInfo, now: Instant) -> Option<Instant> {
        let waiting = self.waiting.get_mut(key)?;
        let late = waiting.since + GRACE;
        if let Some((reason, message)) = waiting.error.clone().filter(|_| now >= late) {
            report(&self.observations, key, route, Status::False, reason, message);
        }
        let wanted = now + waiting.pause.mul_f64(1.0 + (random() % 256) as f64 / 1024.0);
        waiting.pause = (waiting.pause * 2).min(PAUSE.1);
        Some(if now < late { wanted.min(late) } else { wanted })
    }
}

/// Returns the instances of a Router that serve.
pub(crate) fn serving(router: &RouterInfo) -> impl Iterator<Item = &Instance> {
    let instances = router.object.status.iter().flat_map(|status| &status.instances);
    instances.filter(|instance| instance.state == InstanceState::Serving)
}

fn report(
    observations: &Observations,
    key: &ObjectKey,
    route: &RouteInfo,
    status: Status,
    reason: &'static str,
    message: String,
) {
    let Some(router) = route.router.clone() else { return };
    let update = ConditionUpdate { kind: PROGRAMMED, status, reason, message };
    if route.conditions.get(PROGRAMMED).is_some_and(|reported| reported.is_as(&update)) {
        return;
    }
    let finding = RouteFinding::new(&route.uid, About::Generation(route.generation, router), vec![update]);
    observations.set_route(key, PROGRAMMED, Some(finding));
}
