//! Whether custom hosts point here: the condition `HostPointsHere` of Routes with a host outside the platform.
//!
//! The host's DNS is its owner's, and name servers of the platform know nothing of it. So resolvers of the configuration
//! (`host.resolvers`) are asked, as clients of the host ask theirs: a host points here if its CNAME chain leads to one of the
//! Route's names, or if all its addresses are active ones of the Route's Router. Without resolvers nobody is asked, and the
//! condition is `Unknown`.
//!
//! What resolvers answer is not repeated in the message: the host is any name that a tenant wrote, and may be one that only the
//! platform's own network can resolve.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::live::check::PROBE_LABEL;
use crate::client::backoff::random;
use crate::client::reflector::{self, Change, Changes, ObjectKey, Store};
use crate::client::uid::Uid;
use crate::dns_client::{Data, Question};
use crate::reconcile::executor::Executor;
use crate::reconcile::queue::WorkQueue;
use crate::world::condition::{ConditionUpdate, Status};
use crate::world::observations::{About, Finding, Observations, Part};
use crate::world::{RouteInfo, World};
use signpost_api::v1alpha1::route::{HOST_POINTS_HERE, NameKind, Route};
use signpost_api::v1alpha1::router::{AddressState, Router};
use signpost_dns::wire::header::Rcode;
use signpost_dns::wire::{Name, RecordType};

/// Hosts that are asked for at a time; the namespaces share these places.
const HOSTS_AT_A_TIME: usize = 16;
/// How soon a host that does not point here is asked for again, at first: its owner has just been told what to do.
const RETRY_FIRST: Duration = Duration::from_secs(5);
/// The longest wait until a host is asked for again.
const RETRY_LONGEST: Duration = Duration::from_secs(300);
/// How long asking for one host may take, with all writes.
const LOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// How hosts are looked at.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Resolvers, asked in this order until one answers; none: nobody is asked.
    pub resolvers: Vec<SocketAddr>,
    /// How long one answer may take.
    pub patience: Duration,
}

/// What it counts; clones share it.
#[derive(Debug, Clone)]
pub struct Metrics {
    checks: Family<[(&'static str, &'static str); 1], Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let checks = Family::<[(&'static str, &'static str); 1], Counter>::default();
        for outcome in ["here", "elsewhere", "unknown", "failed"] {
            drop(checks.get_or_create(&[("outcome", outcome)]));
        }
        Metrics { checks }
    }
}

impl Metrics {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "host_checks",
            "Times that resolvers were asked whether a custom host points here, by what came of it",
            self.checks.clone(),
        );
    }
}

/// A Route with a custom host, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
struct View {
    uid: Uid,
    host: Box<str>,
    router: Option<Arc<str>>,
    /// Whether its status says where the host leads.
    is_told: bool,
}

impl View {
    fn new(route: &RouteInfo) -> Option<Self> {
        let host = route.custom_name.clone().filter(|_| route.bound)?;
        let is_told = route.conditions.has_points_here;
        Some(View { uid: route.uid.clone(), host, router: route.router.clone(), is_told })
    }

    /// Whether both are the same, but that this one may be told more than the other was.
    fn follows(&self, before: &View) -> bool {
        let of = |view: &View| (view.uid.clone(), view.host.clone(), view.router.clone());
        of(self) == of(before) && (self.is_told || !before.is_told)
    }
}

/// Looks at hosts until `stop`, and tells `observations`. `client`'s identity must be allowed to read Routes and Routers.
pub async fn run(client: kube::Client, world: World, settings: Settings, metrics: Metrics, stop: CancellationToken) {
    let (routes, changes) = world.routes.read();
    let observations = Arc::clone(&world.observations);
    observations.forget(Part::Pointing);
    let mut hosts = Hosts {
        client,
        settings: Arc::new(settings),
        metrics,
        routes,
        changes,
        observations,
        queue: WorkQueue::new(HOSTS_AT_A_TIME, [RETRY_FIRST, RETRY_LONGEST]),
        looks: Executor::new(LOOK_TIMEOUT),
    };
    loop {
        hosts.start_due();
        let wake_at = hosts.queue.next_at();
        tokio::select! {
            () = stop.cancelled() => break,
            change = hosts.changes.next() => hosts.on_change(change),
            Some((key, result)) = hosts.looks.next() => hosts.on_done(&key, result),
            () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
        }
    }
    hosts.looks.shutdown().await;
}

struct Hosts {
    client: kube::Client,
    settings: Arc<Settings>,
    metrics: Metrics,
    routes: Store<RouteInfo>,
    changes: Changes<RouteInfo>,
    observations: Arc<Observations>,
    queue: WorkQueue<ObjectKey>,
    looks: Executor<ObjectKey, Option<(Found, Finding)>>,
}

impl Hosts {
    fn on_change(&mut self, change: Change<RouteInfo>) {
        let (applied, gone) = change.into_parts();
        gone.iter().for_each(|(key, _)| self.forget(key));
        applied.into_iter().for_each(|applied| self.on_route(applied));
    }

    fn on_route(&mut self, applied: reflector::Applied<RouteInfo>) {
        let reflector::Applied { key, now, before, .. } = applied;
        let Some(view) = View::new(&now) else { return self.forget(&key) };
        let before = before.and_then(|before| View::new(&before));
        if !before.is_some_and(|before| view.follows(&before)) {
            self.queue.succeeded(&key);
            self.queue.plan(key, Instant::now());
        }
    }

    fn forget(&mut self, key: &ObjectKey) {
        self.queue.forget(key);
        self.observations.set_route(key, Part::Pointing, None);
    }

    fn start_due(&mut self) {
        while let Some(key) = self.queue.begin(Instant::now()) {
            let (client, settings, of) = (self.client.clone(), Arc::clone(&self.settings), key.clone());
            self.looks.start(key, async move { look(&client, &settings, &of).await });
        }
    }

    fn on_done(&mut self, key: &ObjectKey, result: kube::Result<Option<(Found, Finding)>>) {
        self.queue.end(key);
        let found = match result {
            Ok(Some((found, finding))) => {
                self.observations.set_route(key, Part::Pointing, Some(finding));
                Some(found)
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(route = %key, %error, "whether the route's host points here is not known; trying again");
                None
            }
        };
        self.metrics.checks.get_or_create(&[("outcome", found.map_or("failed", Found::label))]).inc();
        if self.routes.get(key).is_none() || self.queue.has(key) {
            return;
        }
        match found {
            // Until the configuration changes there is nothing else to say.
            Some(Found::NotChecked) => {}
            Some(Found::Here) => {
                self.queue.succeeded(key);
                let wait = RETRY_LONGEST.mul_f64(0.75 + (random() >> 32) as f64 / f64::from(u32::MAX) / 2.0);
                self.queue.plan(key.clone(), Instant::now() + wait);
            }
            _ => self.queue.failed(key, Instant::now(), random()),
        }
    }
}

/// What is known of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Here,
    NoRecord,
    Elsewhere,
    /// No resolver answered.
    Unresolved,
    /// Nobody is asked.
    NotChecked,
}

impl Found {
    fn label(self) -> &'static str {
        match self {
            Found::Here => "here",
            Found::NoRecord | Found::Elsewhere => "elsewhere",
            Found::Unresolved | Found::NotChecked => "unknown",
        }
    }

    /// What the condition says; `record` is what the owner should create.
    fn told(self, host: &str, record: &str) -> ConditionUpdate {
        let (status, reason, message) = match self {
            Found::Here => (Status::True, "PointsHere", format!("{host} leads to a name or an address of the route")),
            Found::NoRecord => (Status::False, "NoRecord", format!("{host} has no record in DNS: create {record}")),
            Found::Elsewhere => {
                let message = format!("{host} leads to none of the route's names: create {record}");
                (Status::False, "PointsElsewhere", message)
            }
            Found::Unresolved => (
                Status::Unknown,
                "ResolverFailed",
                format!("no resolver of host.resolvers could resolve {host}; the record to create is {record}"),
            ),
            Found::NotChecked => (
                Status::Unknown,
                "NotChecked",
                format!("host.resolvers is not set, so that nobody is asked whether {host} has the record {record}"),
            ),
        };
        ConditionUpdate { kind: HOST_POINTS_HERE, status, reason, message }
    }
}

/// Looks at the host of one Route. `None`: there is nothing to be said of it.
async fn look(client: &kube::Client, settings: &Settings, key: &ObjectKey) -> kube::Result<Option<(Found, Finding)>> {
    let routes: Api<Route> = Api::namespaced(client.clone(), key.namespace());
    let Some(route) = routes.get_opt(&key.name).await? else { return Ok(None) };
    let Some(View { uid, host, router, .. }) = View::new(&RouteInfo::new(&route)) else { return Ok(None) };
    let status = route.status.unwrap_or_default();
    let names = status.names.iter().filter(|name| name.kind != NameKind::Custom).map(|name| &name.name);
    let names = names.chain(status.former_names.iter().map(|former| &former.name));
    let names = names.filter_map(|name| name.parse().ok()).collect();
    let found = match settings.resolvers.is_empty() {
        true => Found::NotChecked,
        false => {
            let addresses = match &router {
                Some(router) => addresses_of(client, router).await?,
                None => Vec::new(),
            };
            resolve(settings, &host, &Target { names, addresses }).await
        }
    };
    let record = status.names.iter().find_map(|name| name.record.as_deref()).unwrap_or("the one in status.names");
    let statements = vec![found.told(&host, record)];
    let about = About::Name(NameKind::Custom, host.into());
    Ok(Some((found, Finding { uid, about, statements, challenge: None })))
}

async fn addresses_of(client: &kube::Client, router: &str) -> kube::Result<Vec<IpAddr>> {
    let router = Api::<Router>::all(client.clone()).get_opt(router).await?;
    let addresses = router.as_ref().map(Router::addresses).unwrap_or_default();
    let active = addresses.iter().filter(|address| address.state == AddressState::Active);
    Ok(active.filter_map(|address| address.ip.parse().ok()).collect())
}

/// What a host must lead to.
#[derive(Debug, Default)]
struct Target {
    /// Names of the Route that the platform answers for.
    names: Vec<Name>,
    /// Active addresses of its Router: where an apex, which can have no CNAME, may lead.
    addresses: Vec<IpAddr>,
}

/// Asks resolvers where a host leads.
async fn resolve(settings: &Settings, host: &str, target: &Target) -> Found {
    let name: Result<Name, _> = match host.strip_prefix("*.") {
        // Any name that a wildcard answers for; this one is nobody's.
        Some(above) => format!("{PROBE_LABEL}{:016x}.{above}", random()).parse(),
        None => host.parse(),
    };
    let Ok(name) = name else { return Found::NoRecord };
    let mut found = Vec::new();
    let mut failed = false;
    // The CNAME by itself: a resolver that cannot follow it to the platform's domain still tells where it leads.
    for rtype in [RecordType::CNAME, RecordType::A, RecordType::AAAA] {
        match answers(settings, &Question { name: name.clone(), rtype }).await {
            Some(answers) => found.extend(answers),
            None => failed = true,
        }
        if found.iter().any(|data| matches!(data, Data::Cname(to) if target.names.contains(to))) {
            return Found::Here;
        }
    }
    let mut addresses =
        found.iter().filter_map(|data| if let Data::Address(address) = data { Some(address) } else { None });
    match (failed, found.is_empty()) {
        (true, true) => Found::Unresolved,
        (false, true) => Found::NoRecord,
        // Half an answer is none for the half that is missing, and what leads elsewhere does so all the same.
        _ if addresses.clone().next().is_some() && addresses.all(|address| target.addresses.contains(address)) => {
            match failed {
                true => Found::Unresolved,
                false => Found::Here,
            }
        }
        _ => Found::Elsewhere,
    }
}

/// The answers of the first resolver that gives any, which may be that there are none.
async fn answers(settings: &Settings, question: &Question) -> Option<Vec<Data>> {
    for resolver in &settings.resolvers {
        match question.ask_resolver(*resolver, settings.patience).await {
            Ok(reply) if matches!(reply.rcode, Rcode::NOERROR | Rcode::NXDOMAIN) => {
                return Some(reply.answers.into_iter().map(|record| record.data).collect());
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::live::fake::{FakeServer, Say};

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    fn address(text: &str) -> Data {
        Data::Address(text.parse().expect("an address"))
    }

    #[tokio::test]
    async fn where_hosts_lead() {
        let resolver = FakeServer::start(|question, _| {
            let first = question.name.labels().next().expect("a label").to_vec();
            let alias = |text: &str| Say::Records(vec![Data::Cname(name(text))]);
            let is_v4 = question.rtype == RecordType::A;
            vec![match (first.as_slice(), question.rtype) {
                (b"alias" | b"former", RecordType::CNAME) if first == b"alias" => alias("shop-www.routes.v3.example."),
                (b"former", RecordType::CNAME) => alias("shop-www.old.v3.example."),
                (b"away", RecordType::CNAME) => alias("cdn.example."),
                (b"away", _) => Say::Rcode(Rcode::SERVFAIL),
                (b"apex", _) if is_v4 => Say::Records(vec![address("192.0.2.1")]),
                (b"mixed", _) if is_v4 => Say::Records(vec![address("192.0.2.1"), address("198.51.100.7")]),
                (b"chain", RecordType::A) => Say::Records(vec![
                    Data::Cname(name("www.other.example.")),
                    Data::Cname(name("SHOP-www.routes.v3.example.")),
                    address("203.0.113.9"),
                ]),
                (b"half", _) if is_v4 => Say::Records(vec![address("192.0.2.1")]),
                (b"half" | b"broken", _) => Say::Rcode(Rcode::SERVFAIL),
                (first, RecordType::CNAME) if first.starts_with(PROBE_LABEL.as_bytes()) => {
                    alias("shop-www.routes.v3.example.")
                }
                (b"gone", _) => Say::Rcode(Rcode::NXDOMAIN),
                _ => Say::Records(Vec::new()),
            }]
        })
        .await;
        let dead = FakeServer::start(|_, _| vec![Say::Rcode(Rcode::REFUSED)]).await;
        let target = Target {
            names: vec![
                name("shop-www.s1.v3.example."),
                name("shop-www.routes.v3.example."),
                name("shop-www.old.v3.example."),
            ],
            addresses: vec!["192.0.2.1".parse().expect("an address")],
        };
        let settings = Settings { resolvers: vec![dead.address, resolver.address], patience: Duration::from_secs(60) };
        for (host, expected) in [
            ("alias.shop.test", Found::Here),
            ("former.shop.test", Found::Here),
            ("chain.shop.test", Found::Here),
            ("apex.shop.test", Found::Here),
            ("*.shop.test", Found::Here),
            ("away.shop.test", Found::Elsewhere),
            ("mixed.shop.test", Found::Elsewhere),
            ("gone.shop.test", Found::NoRecord),
            ("empty.shop.test", Found::NoRecord),
            ("half.shop.test", Found::Unresolved),
            ("broken.shop.test", Found::Unresolved),
        ] {
            assert_eq!(resolve(&settings, host, &target).await, expected, "{host}");
        }
        let silent = Settings { resolvers: vec![dead.address], ..settings };
        assert_eq!(resolve(&silent, "alias.shop.test", &target).await, Found::Unresolved);
    }

    #[test]
    fn a_route_is_looked_at_when_something_of_it_is_other() {
        let view = |host: &str, router: &str, is_told: bool| View {
            uid: Uid::new("u"),
            host: host.into(),
            router: Some(router.into()),
            is_told,
        };
        let (bare, told) = (view("a", "s1", false), view("a", "s1", true));
        assert!(told.follows(&bare) && told.follows(&told) && bare.follows(&bare), "what is told is no news");
        assert!(!bare.follows(&told), "it was taken away");
        for other in [view("b", "s1", true), view("a", "s2", true)] {
            assert!(!other.follows(&told), "{other:?}");
        }
    }
}
