//! The numbers of servers that Routes may have.
//!
//! A server costs the proxy memory and time at each start and check. Without limits, one tenant's Route can have enough of them to stop
//! the changes of all tenants. The oldest Routes get their servers first, so that a new Route never takes any from another one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::Claim;
use crate::site::RouteKey;

/// The most servers of a Route, a namespace and a Router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub route: usize,
    pub namespace: usize,
    pub router: usize,
}

impl Default for Limits {
    /// A Deployment of more than 200 pods is rare, and with fewer than 200 of them the load is still spread. A namespace of a thousand
    /// Routes with 15 pods each gets all its servers, and cannot use up those of a Router. HAProxy checks a configuration with 20,000 servers
    /// in a second, and each needs 4 KiB of its memory.
    fn default() -> Limits {
        Limits { route: 200, namespace: 15_000, router: 50_000 }
    }
}

/// The servers of all Routes.
#[derive(Debug)]
pub(super) struct ServerQuotas {
    limits: Limits,
    namespaces: HashMap<String, Namespace>,
    /// The servers of all Routes, within the limits of the namespaces.
    total: usize,
    /// The namespaces whose Routes have changed.
    changed: HashSet<String>,
    /// The Routes that get fewer servers because of the limit of the Router.
    beyond: HashMap<RouteKey, usize>,
}

#[derive(Debug, Default)]
struct Namespace {
    /// The servers that each Route wants, at most as many as a Route may have.
    wanted: BTreeMap<Claim, usize>,
    total: usize,
    /// The Routes that get fewer because of the limit of the namespace.
    beyond: HashMap<RouteKey, usize>,
}

/// The limit because of which a Route gets fewer servers than it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Route,
    Namespace,
    Router,
}

impl ServerQuotas {
    pub(super) fn new(limits: Limits) -> ServerQuotas {
        let (namespaces, changed, beyond) = (HashMap::new(), HashSet::new(), HashMap::new());
        ServerQuotas { limits, namespaces, total: 0, changed, beyond }
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Records how many servers a Route wants; 0: it is gone.
    pub(super) fn want(&mut self, claim: &Claim, servers: usize) {
        let name = namespace(&claim.route);
        let Limits { route, namespace: most, .. } = self.limits;
        let of_namespace = self.namespaces.entry(name.to_owned()).or_default();
        let servers = servers.min(route);
        let before = match servers {
            0 => of_namespace.wanted.remove(claim).unwrap_or(0),
            _ => of_namespace.wanted.insert(claim.clone(), servers).unwrap_or(0),
        };
        if servers == before {
            return;
        }
        self.total -= of_namespace.total.min(most);
        of_namespace.total = of_namespace.total - before + servers;
        self.total += of_namespace.total.min(most);
        self.changed.insert(name.to_owned());
    }

    /// Distributes the servers again. Returns the Routes that may get another number because of a limit.
    pub(super) fn settle(&mut self) -> BTreeSet<RouteKey> {
        let mut routes = BTreeSet::new();
        let changed = std::mem::take(&mut self.changed);
        if changed.is_empty() {
            return routes;
        }
        for name in changed {
            let Some(namespace) = self.namespaces.get_mut(&name) else { continue };
            let most = self.limits.namespace;
            let beyond = match namespace.total > most {
                true => beyond(namespace.wanted.iter().map(|(claim, wanted)| (claim, *wanted)), most),
                false => HashMap::new(),
            };
            let before = std::mem::replace(&mut namespace.beyond, beyond);
            routes.extend(differences(&before, &namespace.beyond));
            if namespace.wanted.is_empty() {
                self.namespaces.remove(&name);
            }
        }
        let beyond = match self.total > self.limits.router {
            true => {
                let all = self.namespaces.values().flat_map(|namespace| {
                    let of = |(claim, wanted): (&_, &usize)| {
                        let Claim { route, .. }: &Claim = claim;
                        namespace.beyond.get(route).copied().unwrap_or(*wanted)
                    };
                    namespace.wanted.iter().map(move |entry| (entry.0, of(entry)))
                });
                beyond(all.collect::<BTreeMap<_, _>>(), self.limits.router)
            }
            false => HashMap::new(),
        };
        let before = std::mem::replace(&mut self.beyond, beyond);
        routes.extend(differences(&before, &self.beyond));
        routes
    }

    /// Returns how many servers a Route gets that wants some, and because of which limit they are fewer.
    pub(super) fn given(&self, route: &RouteKey, wanted: usize) -> (usize, Option<Scope>) {
        let of_namespace = self.namespaces.get(namespace(route)).and_then(|namespace| namespace.beyond.get(route));
        let limits = [
            (Some(self.limits.route), Scope::Route),
            (of_namespace.copied(), Scope::Namespace),
            (self.beyond.get(route).copied(), Scope::Router),
        ];
        let mut given = (wanted, None);
        for (most, scope) in limits {
            if let Some(most) = most.filter(|most| *most < given.0) {
                given = (most, Some(scope));
            }
        }
        given
    }
}

fn namespace(route: &RouteKey) -> &str {
    route.as_str().split_once('/').map_or("", |(namespace, _)| namespace)
}

/// Returns the Routes that do not get all that they want, with what they get.
fn beyond<'a>(wanted: impl IntoIterator<Item = (&'a Claim, usize)>, most: usize) -> HashMap<RouteKey, usize> {
    let (mut left, mut beyond) = (most, HashMap::new());
    for (claim, wanted) in wanted {
        let given = wanted.min(left);
        left -= given;
        if given < wanted {
            beyond.insert(claim.route.clone(), given);
        }
    }
    beyond
}

fn differences(before: &HashMap<RouteKey, usize>, after: &HashMap<RouteKey, usize>) -> BTreeSet<RouteKey> {
    let routes = before.keys().chain(after.keys());
    routes.filter(|route| before.get(*route) != after.get(*route)).cloned().collect()
}
