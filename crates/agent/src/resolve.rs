//! Objects of the API to the [`Site`] that a Router's instances serve. Pure.
//!
//! A Route is served on the Router that its RouteBinding names, under the names that the binding assigns, and no others. A Router
//! that a Route has left continues to serve it while the binding has a former name there, for clients whose resolvers still return
//! the old addresses.
//!
//! `port.targetPort` means a port of the endpoints by number or name, as in OpenShift; a number that no endpoint has means the port
//! of the Service with that number. A Route without a port means the first TCP port of the Service, and has a note if there are several:
//! OpenShift sends requests to all of them, which its users report as a fault (openshift/origin#2092, #5040). A headless Service is like any
//! other. A Service of type ExternalName is not supported: with it,
//! a tenant could make the router connect to hosts that only the router can reach.

mod backends;
mod refused;
mod shares;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use signpost_types::instance::{AGENT_NAMESPACE, certificate_name};
use signpost_types::paths;
use signpost_types::traffic::{Network, Requested};
use signpost_types::v1alpha1::route::{self, NameKind, Route, RouteSpec, Tls};
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::traffic::{NETWORKS_MAX, RouterProxy, TrafficMaxima};

pub use self::backends::Destination;
use self::backends::{Backends, ResolvedTarget, distribute, upstream};
pub use self::refused::{NETWORKS, Refused, networks};
pub use self::shares::Limits;
use self::shares::{Scope, ServerQuotas};
use crate::site::{
    Certificate, Changes, Host, PathPrefix, Paths, RouteKey, RouterSettings, Site, Thumbprint, Upstream,
};

/// Namespace and name.
pub type Key = (String, String);

/// Changed objects of one kind; `None`: there is none any more.
pub type Changed<K> = Vec<(Key, Option<Arc<K>>)>;

/// Changed objects.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub routes: Changed<Route>,
    /// The RouteBindings; those to other Routers may be among them.
    pub bindings: Changed<RouteBinding>,
    pub services: Changed<Service>,
    pub slices: Changed<EndpointSlice>,
}

/// A reason why a Route is not, or not wholly, served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteFault {
    pub route: RouteKey,
    pub reason: Reason,
    /// The object and what is wrong with it.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The Route has no target, or one that is not a Service.
    NoTarget,
    /// A target does not exist.
    NoService,
    /// A target does not have the Route's port.
    NoPort,
    /// No endpoint of any target is ready: requests get a 503.
    NoReadyEndpoints,
    /// An older Route has the same host and path.
    Conflict,
    /// The proxies do not support the Route's path or one of its names.
    Unsupported,
    /// An endpoint must not get requests: see [`Refused`].
    RefusedEndpoint,
    /// The Route, its namespace or the Router has more endpoints than its limit: see [`Limits`].
    TooManyEndpoints,
    /// The Route has no port, and its Service several: the first one gets the requests. This is a note; the Route is served.
    FirstPort,
}

impl Reason {
    /// Returns whether the Route is served in full.
    pub fn is_note(self) -> bool {
        self == Reason::FirstPort
    }
}

/// A Route that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    pub route: RouteKey,
    /// The hosts that it has or had.
    pub hosts: BTreeSet<Host>,
    /// The servers that it has and had, and the networks of clients: a proxy takes about as long for each.
    pub servers: usize,
    /// Whether its binding may have changed.
    pub binding: bool,
    /// Whether the Route itself may have changed.
    pub spec: bool,
}

impl FromIterator<RouteChange> for Changes {
    fn from_iter<T: IntoIterator<Item = RouteChange>>(changes: T) -> Changes {
        let mut all = Changes::default();
        for change in changes {
            all.routes.insert(change.route);
            all.hosts.extend(change.hosts);
        }
        all
    }
}

/// The [`Site`] of a Router, and the objects from which it follows. A change costs what depends on it, and not the size of the Site.
#[derive(Debug)]
pub struct Resolver {
    router: String,
    routes: HashMap<RouteKey, Arc<Route>>,
    bindings: HashMap<RouteKey, Arc<RouteBinding>>,
    backends: Backends,
    served: HashMap<RouteKey, Served>,
    /// The served Routes that refer to each Service, which need not exist.
    users: HashMap<Key, BTreeSet<RouteKey>>,
    /// The Routes that have each path of a host. The first one wins.
    claims: HashMap<Host, BTreeMap<PathPrefix, BTreeSet<Claim>>>,
    /// The resource versions of the bindings whose Route has not come yet.
    waiting: HashMap<RouteKey, u64>,
    shares: ServerQuotas,
    /// Whether all Routes must be resolved again.
    is_stale: bool,
    /// The maxima of the Routes' settings.
    maxima: Option<TrafficMaxima>,
    faults: HashMap<RouteKey, BTreeSet<(Reason, String)>>,
    /// The Secrets with the certificates of hosts.
    secrets: Arc<BTreeMap<Host, Key>>,
    /// The endpoints of the Site that can get requests.
    endpoints: usize,
    site: Arc<Site>,
}

/// The references of a Route that is bound to the Router.
#[derive(Debug)]
struct Served {
    claim: Claim,
    path: PathPrefix,
    hosts: BTreeSet<Host>,
    services: BTreeSet<Key>,
    /// The targets; `None`: the Route cannot be served.
    targets: Option<Vec<ResolvedTarget>>,
    /// The faults of the Route, except conflicts and limits.
    faults: BTreeSet<(Reason, String)>,
}

/// A Route in the order in which Routes win a host and path: the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    since: Option<Time>,
    route: RouteKey,
}

impl Resolver {
    /// Creates a resolver for a Router without Routes.
    pub fn new(router: &str, refused: Refused, limits: Limits) -> Resolver {
        Resolver {
            router: router.to_owned(),
            routes: HashMap::new(),
            bindings: HashMap::new(),
            backends: Backends::new(refused),
            served: HashMap::new(),
            users: HashMap::new(),
            claims: HashMap::new(),
            waiting: HashMap::new(),
            shares: ServerQuotas::new(limits),
            is_stale: false,
            maxima: None,
            faults: HashMap::new(),
            secrets: Arc::default(),
            endpoints: 0,
            site: Arc::default(),
        }
    }

    /// Replaces the rules for endpoints; the next update applies them. Returns whether they differ.
    pub fn set_refused(&mut self, refused: Refused) -> bool {
        let differs = self.backends.set_refused(refused);
        self.is_stale |= differs;
        differs
    }

    /// Replaces the settings of the Router: at once in the Site, and in that of its Routes with the next update. Returns whether the
    /// former differ.
    pub fn set_router(&mut self, proxy: Option<&RouterProxy>) -> bool {
        let maxima = proxy.and_then(|proxy| proxy.maxima.clone());
        self.is_stale |= self.maxima != maxima;
        self.maxima = maxima;
        let settings = proxy.map(router_settings).unwrap_or_default();
        let differs = self.site.router != settings;
        if differs {
            Arc::make_mut(&mut self.site).router = settings;
        }
        differs
    }

    pub fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// Returns the number of endpoints of the Site that can get requests.
    pub fn endpoints(&self) -> usize {
        self.endpoints
    }

    /// Returns the Secrets with the certificates of hosts: of a host with several paths, that of the Route with the shortest one that
    /// names a Secret.
    pub fn secrets(&self) -> &Arc<BTreeMap<Host, Key>> {
        &self.secrets
    }

    /// Returns the Secrets with the certificates that the platform gets: for the zone of the Router, and for custom hosts. Without a
    /// thumbprint, it gets none.
    pub fn issued(&self, zone: Option<&str>) -> BTreeMap<Host, Key> {
        let Some(_) = &self.site.thumbprint else { return BTreeMap::new() };
        let secret = |host: &str| (AGENT_NAMESPACE.to_owned(), certificate_name(&self.router, host));
        let hosts = self.site.issued.iter().map(|host| (host.clone(), secret(host.as_str())));
        let wildcard = zone.map(|zone| format!("*.{}", zone.to_ascii_lowercase()));
        let of_zone = wildcard.iter().flat_map(|wildcard| [&**wildcard, &wildcard[2..]].map(|host| (host, wildcard)));
        let of_zone = of_zone.filter_map(|(host, wildcard)| Some((host.parse().ok()?, secret(wildcard))));
        hosts.chain(of_zone).collect()
    }

    /// Sets the thumbprint of the platform's ACME account; returns whether that is a change.
    pub fn set_thumbprint(&mut self, thumbprint: Option<Thumbprint>) -> bool {
        let differs = self.site.thumbprint != thumbprint;
        if differs {
            Arc::make_mut(&mut self.site).thumbprint = thumbprint;
        }
        differs
    }

    /// Replaces the certificates of the Site.
    pub fn set_certificates(&mut self, certificates: BTreeMap<Host, Certificate>) {
        Arc::make_mut(&mut self.site).certificates = certificates;
    }

    /// Sets whether the Site has an access log; returns whether that is a change.
    pub fn set_access_log(&mut self, has_access_log: bool) -> bool {
        let differs = self.site.has_access_log != has_access_log;
        if differs {
            Arc::make_mut(&mut self.site).has_access_log = has_access_log;
        }
        differs
    }

    /// Returns the number of Routes that are not, or not wholly, served.
    pub fn routes_at_fault(&self) -> usize {
        let is_at_fault = |faults: &&BTreeSet<(Reason, String)>| faults.iter().any(|(reason, _)| !reason.is_note());
        self.faults.values().filter(is_at_fault).count()
    }

    /// Returns the resource version up to which all bindings are resolved, of which the newest is `newest`. A binding whose Route has not
    /// come yet is not resolved.
    pub fn revision(&self, newest: u64) -> u64 {
        self.waiting.values().min().map_or(newest, |oldest| newest.min(oldest.saturating_sub(1)))
    }

    /// Follows changed objects. Returns what has changed in the Site, and the faults that are new.
    pub fn update(&mut self, objects: Objects) -> (Vec<RouteChange>, Vec<RouteFault>) {
        let of_routes = put(&mut self.routes, objects.routes);
        let of_bindings = put(&mut self.bindings, objects.bindings);
        let mut changed: BTreeSet<RouteKey> = of_routes.union(&of_bindings).cloned().collect();
        for (key, service) in objects.services {
            if self.backends.put_service(key.clone(), service) {
                changed.extend(self.users.get(&key).into_iter().flatten().cloned());
            }
        }
        for (key, slice) in objects.slices {
            for service in self.backends.put_slice(key, slice) {
                changed.extend(self.users.get(&service).into_iter().flatten().cloned());
            }
        }
        if std::mem::take(&mut self.is_stale) {
            changed.extend(self.served.keys().cloned());
        }
        let mut hosts: BTreeMap<RouteKey, BTreeSet<Host>> = BTreeMap::new();
        for route in changed {
            let mut of_route = self.leave(&route);
            of_route.extend(self.enter(&route));
            hosts.insert(route, of_route);
        }
        for route in self.shares.settle() {
            let Some(served) = self.served.get(&route) else { continue };
            hosts.entry(route).or_insert_with(|| served.hosts.clone());
        }
        let servers: HashMap<RouteKey, usize> =
            hosts.keys().filter_map(|route| Some((route.clone(), self.replace_upstream(route)?))).collect();
        let mut settled: HashMap<Host, bool> = HashMap::new();
        let mut concerned: BTreeSet<RouteKey> = hosts.keys().cloned().collect();
        for host in hosts.values().flatten() {
            if !settled.contains_key(host) {
                let (has_changed, claimants) = self.settle(host);
                settled.insert(host.clone(), has_changed);
                concerned.extend(claimants);
            }
        }
        let change = |(route, hosts): (RouteKey, BTreeSet<Host>)| {
            let servers = servers.get(&route).copied();
            let has_changed = servers.is_some() || hosts.iter().any(|host| settled.get(host) == Some(&true));
            let (binding, spec) = (of_bindings.contains(&route), of_routes.contains(&route));
            has_changed.then_some(RouteChange { route, hosts, servers: servers.unwrap_or_default(), binding, spec })
        };
        let changes = hosts.into_iter().filter_map(change).collect();
        let faults = concerned.into_iter().flat_map(|route| self.update_faults(route)).collect();
        (changes, faults)
    }

    /// Takes a Route out of all that it takes part in, except the Site. Returns its hosts.
    fn leave(&mut self, route: &RouteKey) -> BTreeSet<Host> {
        self.waiting.remove(route);
        let Some(served) = self.served.remove(route) else { return BTreeSet::new() };
        for service in &served.services {
            let users = self.users.get_mut(service).expect("it has this Route");
            users.remove(route);
            if users.is_empty() {
                self.users.remove(service);
            }
        }
        for host in &served.hosts {
            let routes = self.claims.get_mut(host).and_then(|paths| paths.get_mut(&served.path));
            routes.expect("it has this Route").remove(&served.claim);
        }
        self.shares.want(&served.claim, 0);
        served.hosts
    }

    /// Resolves a Route, if the Router serves it. Returns its hosts.
    fn enter(&mut self, key: &RouteKey) -> BTreeSet<Host> {
        let binding = self.bindings.get(key).filter(|binding| is_served(&self.router, binding));
        let Some(binding) = binding else { return BTreeSet::new() };
        let route = self.routes.get(key);
        let Some(route) = route.filter(|route| route.metadata.uid.as_deref() == Some(&binding.spec.route_uid)) else {
            let version = binding.metadata.resource_version.as_ref().and_then(|version| version.parse().ok());
            self.waiting.extend(version.map(|version| (key.clone(), version)));
            return BTreeSet::new();
        };
        let namespace = route.metadata.namespace.as_deref().unwrap_or_default();
        let (mut hosts, mut services, mut faults) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut resolved = None;
        let mut report = |reason, message| _ = faults.insert((reason, message));
        let path = path(&route.spec, &mut report);
        if path.is_some() {
            for name in names(binding) {
                match name.parse::<Host>() {
                    Ok(host) => _ = hosts.insert(host),
                    Err(error) => report(Reason::Unsupported, error.to_string()),
                }
            }
            let targets = route.spec.to.iter().chain(&route.spec.alternate_backends);
            services.extend(targets.map(|target| (namespace.to_owned(), target.name.clone())));
            resolved = Some(self.backends.targets(namespace, &route.spec, &mut report));
        }
        let path = path.unwrap_or_else(PathPrefix::root);
        let claim = Claim { since: route.metadata.creation_timestamp.clone(), route: key.clone() };
        for host in &hosts {
            let paths = self.claims.entry(host.clone()).or_default();
            paths.entry(path.clone()).or_default().insert(claim.clone());
        }
        for service in &services {
            self.users.entry(service.clone()).or_default().insert(key.clone());
        }
        self.shares.want(&claim, wanted(resolved.iter().flatten()));
        let served = Served { claim, path, hosts: hosts.clone(), services, targets: resolved, faults };
        self.served.insert(key.clone(), served);
        hosts
    }

    /// Resolves a Route of the Site again. Returns the servers that it has and had, if anything differs.
    fn replace_upstream(&mut self, key: &RouteKey) -> Option<usize> {
        let after = self.upstream(key);
        let before = self.site.routes.get(key);
        if before == after.as_ref() {
            return None;
        }
        let networks = |upstream: &Upstream| upstream.settings.networks.as_ref().map_or(0, Vec::len);
        let size = |upstream: &Upstream| upstream.servers.len() + networks(upstream);
        let servers = before.into_iter().chain(&after).map(size).sum();
        self.endpoints -= before.map_or(0, Upstream::endpoints);
        self.endpoints += after.as_ref().map_or(0, Upstream::endpoints);
        let routes = &mut Arc::make_mut(&mut self.site).routes;
        match after {
            Some(upstream) => _ = routes.insert(key.clone(), upstream),
            None => _ = routes.remove(key),
        }
        Some(servers)
    }

    fn upstream(&self, key: &RouteKey) -> Option<Upstream> {
        let targets = self.served.get(key)?.targets.as_ref()?;
        let (given, _) = self.shares.given(key, wanted(targets));
        let (route, binding) = (self.routes.get(key)?, self.bindings.get(key)?);
        let namespace = route.metadata.namespace.as_deref().unwrap_or_default();
        let upstream = upstream(namespace, &route.spec, distribute(targets, given));
        let settings = Requested::of(&route.spec, route.metadata.annotations.as_ref()).within(self.maxima.as_ref());
        Some(Upstream { uid: binding.spec.route_uid.clone(), settings, ..upstream })
    }

    /// Gives each path of a host to its oldest Route. Returns whether any path has another Route, and all Routes that claim one.
    fn settle(&mut self, host: &Host) -> (bool, Vec<RouteKey>) {
        let Some(claims) = self.claims.get_mut(host) else { return (false, Vec::new()) };
        claims.retain(|_, routes| !routes.is_empty());
        let winners = claims.iter().filter_map(|(path, routes)| Some((path.clone(), routes.first()?.route.clone())));
        let winners: Paths = winners.collect();
        let claimants = claims.values().flatten().map(|claim| claim.route.clone()).collect();
        if claims.is_empty() {
            self.claims.remove(host);
        }
        let secret = winners.values().find_map(|route| secret_of(self.routes.get(route)?));
        let is_issued = secret.is_none() && self.is_issued(host, &winners);
        let has_changed = self.site.hosts.get(host) != Some(&winners) || self.site.issued.contains(host) != is_issued;
        if self.secrets.get(host) != secret.as_ref() {
            let secrets = Arc::make_mut(&mut self.secrets);
            match secret {
                Some(secret) => _ = secrets.insert(host.clone(), secret),
                None => _ = secrets.remove(host),
            }
        }
        if has_changed {
            let site = Arc::make_mut(&mut self.site);
            match winners.is_empty() {
                true => _ = site.hosts.remove(host),
                false => _ = site.hosts.insert(host.clone(), winners),
            }
            match is_issued {
                true => _ = site.issued.insert(host.clone()),
                false => _ = site.issued.remove(host),
            }
        }
        (has_changed, claimants)
    }

    /// Returns whether the platform gets a certificate for a host whose Routes name no Secret: a custom host with TLS that ends here.
    fn is_issued(&self, host: &Host, paths: &Paths) -> bool {
        let ends_here = |key: &RouteKey| {
            let route = self.routes.get(key)?;
            let names = &self.bindings.get(key)?.spec.names;
            let is_its_own = |name: &str| name.eq_ignore_ascii_case(host.as_str());
            let is_custom = names.iter().any(|name| name.kind == NameKind::Custom && is_its_own(&name.name));
            Some(is_custom && route.spec.tls.as_ref().is_some_and(Tls::ends_at_router))
        };
        self.site.passthrough(paths).is_none() && paths.values().any(|route| ends_here(route) == Some(true))
    }

    /// Records the faults of a Route. Returns those that are new.
    fn update_faults(&mut self, route: RouteKey) -> Vec<RouteFault> {
        let mut faults = BTreeSet::new();
        if let Some(Served { path, hosts, targets, faults: own, .. }) = self.served.get(&route) {
            faults.clone_from(own);
            let wanted = wanted(targets.iter().flatten());
            if let (given, Some(scope)) = self.shares.given(&route, wanted) {
                faults.insert((Reason::TooManyEndpoints, beyond(scope, self.shares.limits(), given, wanted)));
            }
            for host in hosts {
                let winner = self.site.hosts.get(host).and_then(|paths| paths.get(path));
                let older = winner.filter(|winner| **winner != route);
                let message = older.map(|older| format!("{host}{path} is already used by the older Route {older}"));
                faults.extend(message.map(|message| (Reason::Conflict, message)));
            }
        }
        let before = self.faults.remove(&route).unwrap_or_default();
        let fault = |(reason, message)| RouteFault { route: route.clone(), reason, message };
        let new = faults.difference(&before).cloned().map(fault).collect();
        if !faults.is_empty() {
            self.faults.insert(route, faults);
        }
        new
    }
}

/// Returns the Secret of a Route that needs a certificate here. It is in the Route's namespace.
fn secret_of(route: &Arc<Route>) -> Option<Key> {
    let tls = route.spec.tls.as_ref().filter(|tls| tls.ends_at_router())?;
    let name = tls.secret_name.as_ref().filter(|name| !name.is_empty() && !name.contains('/'))?;
    Some((route.metadata.namespace.clone()?, name.clone()))
}

/// Returns the settings of a Router, without texts that are not networks.
fn router_settings(proxy: &RouterProxy) -> RouterSettings {
    let networks = proxy.trusted_proxies.iter().filter_map(|network| Network::try_from(network.clone()).ok());
    RouterSettings {
        trusted_proxies: networks.take(NETWORKS_MAX).collect(),
        client_address: proxy.client_address,
        keep_alive_seconds: proxy.keep_alive_seconds,
    }
}

/// Returns the number of servers that targets want.
fn wanted<'a>(targets: impl IntoIterator<Item = &'a ResolvedTarget>) -> usize {
    targets.into_iter().map(|target| target.endpoints.addresses.len()).sum()
}

fn beyond(scope: Scope, limits: Limits, given: usize, wanted: usize) -> String {
    let (what, limit) = match scope {
        Scope::Route => return format!("requests go to {given} of {wanted} endpoints, the limit of a Route"),
        Scope::Namespace => ("namespace", limits.namespace),
        Scope::Router => ("Router", limits.router),
    };
    format!(
        "the Routes of the {what} have more than {limit} endpoints: requests go to {given} of the {wanted} endpoints of this \
         Route, because older Routes come first"
    )
}

/// Replaces the objects that have changed. Returns their Routes.
fn put<K>(objects: &mut HashMap<RouteKey, Arc<K>>, changed: Changed<K>) -> BTreeSet<RouteKey> {
    let mut routes = BTreeSet::new();
    for ((namespace, name), object) in changed {
        let Ok(route) = RouteKey::try_from(format!("{namespace}/{name}")) else { continue };
        match object {
            Some(object) => _ = objects.insert(route.clone(), object),
            None => _ = objects.remove(&route),
        }
        routes.insert(route);
    }
    routes
}

pub(crate) fn key(metadata: &ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// Returns whether a Router serves the Route of a binding.
pub(crate) fn is_served(router: &str, binding: &RouteBinding) -> bool {
    binding.spec.router == router || binding.spec.former_names.iter().any(|former| former.router == router)
}

/// Returns all names that the platform assigned.
fn names(binding: &RouteBinding) -> impl Iterator<Item = String> {
    let names = binding.spec.names.iter().map(|name| &name.name);
    names.chain(binding.spec.former_names.iter().map(|former| &former.name)).map(|name| name.to_ascii_lowercase())
}

/// Resolves the targets of one Route, as a [`Resolver`] does for all: its endpoints by target, and why it is not, or not wholly, served,
/// apart from conflicts with other Routes, the limits of the namespace and the Router, and the settings of agents.
pub fn destinations(
    route: &Route,
    services: &[Arc<Service>],
    slices: &[Arc<EndpointSlice>],
    refused: Refused,
) -> (Vec<Destination>, Vec<(Reason, String)>) {
    let mut faults = Vec::new();
    let mut report = |reason, message| faults.push((reason, message));
    let (namespace, _) = key(&route.metadata);
    path(&route.spec, &mut report);
    let mut backends = Backends::new(refused);
    for service in services {
        backends.put_service(key(&service.metadata), Some(service.clone()));
    }
    for slice in slices {
        backends.put_slice(key(&slice.metadata), Some(slice.clone()));
    }
    let targets = backends.targets(&namespace, &route.spec, &mut report);
    let (limits, wanted) = (Limits::default(), wanted(&targets));
    if wanted > limits.route {
        report(Reason::TooManyEndpoints, beyond(Scope::Route, limits, limits.route, wanted));
    }
    (distribute(&targets, limits.route), faults)
}

/// Returns the path that a Route has on its hosts. With passthrough it has them all, because the proxy does not see any path.
fn path(spec: &RouteSpec, report: &mut impl FnMut(Reason, String)) -> Option<PathPrefix> {
    if spec.tls.as_ref().is_some_and(|tls| tls.termination == route::Termination::Passthrough) {
        return Some(PathPrefix::root());
    }
    let path = spec.path.as_deref().filter(|path| !path.is_empty()).unwrap_or(paths::ROOT);
    if let Err(error) = paths::check(path) {
        report(Reason::Unsupported, format!("the proxies do not support the path {path:?}: it {error}"));
        return None;
    }
    paths::prefix(Some(path)).parse().ok()
}

#[cfg(test)]
mod tests;
