//! What is drawn: namespaces with their routes by shard, and shards with their addresses.

use std::collections::BTreeMap;

use serde::Serialize;

use signpost_api::route_state::RouteState;
use signpost_api::v1alpha1::route::Route;
use signpost_api::v1alpha1::router::{AddressHealthState, AddressState, Router, RouterState};

/// All there is. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
pub(super) struct Topology {
    /// By name.
    pub(super) namespaces: Vec<Namespace>,
    /// By name; with a filter only those that have a route which it lets through.
    pub(super) shards: Vec<Shard>,
    /// How many routes there are that the filter lets through.
    pub(super) routes: usize,
}

/// A namespace.
#[derive(Debug, Serialize)]
pub(super) struct Namespace {
    pub(super) name: String,
    pub(super) routes: usize,
    /// By Router; those without one last.
    pub(super) groups: Vec<Group>,
}

/// The routes of a namespace that are on one shard, or on none.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    pub(super) router: Option<String>,
    /// By name.
    pub(super) routes: Vec<Leaf>,
}

/// A route.
#[derive(Debug, Serialize)]
pub(super) struct Leaf {
    pub(super) name: String,
    /// The name by which it is reached.
    pub(super) host: Option<String>,
    /// Why it has no Router.
    pub(super) reason: Option<String>,
}

/// A shard.
#[derive(Debug, Serialize)]
pub(super) struct Shard {
    pub(super) name: String,
    pub(super) state: RouterState,
    /// How many of the routes here are on it.
    pub(super) routes: usize,
    /// How many it has in all, where only some are looked at.
    pub(super) of: Option<u32>,
    pub(super) addresses: Vec<Address>,
}

/// An address of a shard.
#[derive(Debug, Serialize)]
pub(super) struct Address {
    pub(super) ip: String,
    pub(super) state: AddressState,
    /// Whether probes found it unhealthy.
    pub(super) unhealthy: bool,
}

impl Topology {
    /// Returns the topology of these objects, with the routes that have every one of `filters` in their namespace, name, host
    /// or Router.
    pub(super) fn new(routers: &[Router], routes: &[Route], filters: &[String]) -> Topology {
        let filters: Vec<String> = filters.iter().map(|filter| filter.to_ascii_lowercase()).collect();
        // The last place for routes without a Router: no name sorts after it.
        let mut by_namespace: BTreeMap<String, BTreeMap<(bool, String), Vec<Leaf>>> = BTreeMap::new();
        let mut on: BTreeMap<String, usize> = BTreeMap::new();
        let mut count = 0;
        for route in routes {
            let status = route.status.clone().unwrap_or_default();
            let reason = match status.router {
                Some(_) => None,
                None => RouteState::of(&status).1.map(|condition| condition.reason.clone()),
            };
            let namespace = route.metadata.namespace.clone().unwrap_or_default();
            let name = route.metadata.name.clone().unwrap_or_default();
            let host = status.dns.or_else(|| route.spec.host.clone());
            let fields = [Some(&namespace), Some(&name), host.as_ref(), status.router.as_ref()];
            let fields = fields.map(|field| field.map(|field| field.to_ascii_lowercase()).unwrap_or_default());
            if !filters.iter().all(|filter| fields.iter().any(|field| field.contains(filter.as_str()))) {
                continue;
            }
            count += 1;
            if let Some(router) = &status.router {
                *on.entry(router.clone()).or_default() += 1;
            }
            let group = (status.router.is_none(), status.router.unwrap_or_default());
            let leaf = Leaf { name, host, reason };
            by_namespace.entry(namespace).or_default().entry(group).or_default().push(leaf);
        }
        let namespaces = by_namespace.into_iter().map(|(name, groups)| Namespace {
            name,
            routes: groups.values().map(Vec::len).sum(),
            groups: groups
                .into_iter()
                .map(|((waits, router), mut routes)| {
                    routes.sort_by(|a, b| a.name.cmp(&b.name));
                    Group { router: (!waits).then_some(router), routes }
                })
                .collect(),
        });
        let namespaces = namespaces.collect();
        let mut shards: Vec<Shard> = routers
            .iter()
            .map(|router| {
                let name = router.metadata.name.clone().unwrap_or_default();
                let verdicts = router.status.as_ref().map(|status| &*status.addresses).unwrap_or_default();
                let is_unhealthy = |ip: &str| {
                    verdicts.iter().any(|verdict| verdict.ip == ip && verdict.health == AddressHealthState::Unhealthy)
                };
                let address = |address: &signpost_api::v1alpha1::router::Address| Address {
                    ip: address.ip.clone(),
                    state: address.state,
                    unhealthy: is_unhealthy(&address.ip),
                };
                let routes = on.remove(&name).unwrap_or(0);
                let has = router.status.as_ref().and_then(|status| status.routes);
                Shard {
                    of: has.filter(|has| *has as usize > routes),
                    routes,
                    state: router.spec.state,
                    addresses: router.spec.addresses.iter().map(address).collect(),
                    name,
                }
            })
            .filter(|shard| filters.is_empty() || shard.routes > 0)
            .collect();
        shards.sort_by(|a, b| a.name.cmp(&b.name));
        Topology { namespaces, shards, routes: count }
    }
}

#[cfg(test)]
pub(super) mod fixture {
    use super::*;
    use serde_json::{Value, json};

    /// A route on a Router, or waiting.
    pub(in super::super) fn route(namespace: &str, name: &str, router: Option<&str>) -> Route {
        let status = match router {
            Some(router) => {
                json!({"phase": "scheduled", "router": router, "dns": format!("{namespace}-{name}.{router}.example")})
            }
            None => {
                json!({"conditions": [{"type": "Scheduled", "status": "False", "reason": "NoRouter", "message": "none",
                "lastTransitionTime": "2025-01-01T00:00:00Z"}]})
            }
        };
        let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "spec": {}, "status": status,
            "metadata": {"namespace": namespace, "name": name}});
        serde_json::from_value(object).expect("a Route")
    }

    /// A Router with this spec.
    pub(in super::super) fn router(name: &str, spec: &Value) -> Router {
        let object =
            json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name}, "spec": spec});
        serde_json::from_value(object).expect("a Router")
    }

    /// Two shards, two namespaces, five routes.
    pub(in super::super) fn small() -> Topology {
        let routers = [
            router("shard2", &json!({"state": "cordoned"})),
            router("shard1", &json!({"addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2", "state": "drained"}]})),
        ];
        let routes = [
            route("shop", "front", Some("shard1")),
            route("shop", "cart", Some("shard1")),
            route("shop", "vault", None),
            route("blog", "www", Some("shard1")),
            route("blog", "old", Some("shard2")),
        ];
        Topology::new(&routers, &routes, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{route, router};
    use super::*;
    use serde_json::json;

    #[test]
    fn filters_look_everywhere_and_all_must_pass() {
        let routers = [router("shard1", &json!({})), router("shard2", &json!({}))];
        let routes = [
            route("shop", "front", Some("shard1")),
            route("shop", "cart", Some("shard2")),
            route("blog", "front", Some("shard2")),
        ];
        for (filters, routes_left, shards) in [
            (&[][..], 3, &["shard1", "shard2"][..]),
            (&["FRONT"], 2, &["shard1", "shard2"]),
            (&["front", "shop"], 1, &["shard1"]),
            (&["cart.shard2.ex"], 1, &["shard2"]),
            (&["nothing"], 0, &[]),
        ] {
            let filters: Vec<String> = filters.iter().map(|filter| (*filter).to_owned()).collect();
            let topology = Topology::new(&routers, &routes, &filters);
            assert_eq!(topology.routes, routes_left, "{filters:?}");
            assert_eq!(
                topology.shards.iter().map(|shard| shard.name.as_str()).collect::<Vec<_>>(),
                shards,
                "{filters:?}"
            );
        }
    }
}
