//! `signpost topology`: the Routes of each namespace by shard, and the shards with their addresses.

use std::collections::BTreeMap;

use clap::{ArgMatches, Command};
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::json;

use super::access::{self, API_TIMEOUT, Access, ApiLocation};
use super::output::{self, ListOptions, Listing};
use super::style::Style;
use super::table::{Cell, Table};
use super::{Outcome, note, option, progress};
use signpost_types::route_state::RouteState;
use signpost_types::v1alpha1::route::{NameKind, Route};
use signpost_types::v1alpha1::router::{AddressHealthState, AddressState, InstanceState, Router, RouterState};

/// The Routes of a row that have their names in it.
const NAMES_SHOWN: usize = 5;
/// The columns of the table of Routes.
const ROUTE_COLUMNS: [&str; 4] = ["namespace", "shard", "routes", "names"];
/// The columns of the table of shards. The last one is for wide output.
const SHARD_COLUMNS: [&str; 6] = ["shard", "state", "routes", "instances", "addresses", "zone"];

pub(super) fn command() -> Command {
    let filter = option("filter", "TEXT")
        .action(clap::ArgAction::Append)
        .help("List only Routes with this text in namespace, name, host, or Router (repeats: all must match)");
    Command::new("topology")
        .about("List the Routes of each namespace by shard, and the shards with their addresses")
        .after_help(
            "Without --namespace, the command lists all namespaces. -o json and -o yaml list all Routes with their \
             hosts, and -o name lists them as NAMESPACE/NAME. Exit codes: 0 listed, 1 the API is unreachable, 2 invalid \
             usage.",
        )
        .arg(filter)
        .arg(access::namespace_argument().help("List only the Routes of this namespace"))
        .args(output::list_arguments(ROUTE_COLUMNS.into_iter().chain(SHARD_COLUMNS)))
        .args(access::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let namespace = matches.get_one::<String>("namespace");
    let filters: Vec<String> = matches.get_many("filter").unwrap_or_default().cloned().collect();
    let read = || {
        let (routers, routes) = access::run(API_TIMEOUT, async {
            let access = place.connect().await?;
            if let Some(namespace) = namespace {
                access.require_namespace(namespace).await?;
            }
            progress::during("listing Routers and Routes", list(&access, namespace.map(String::as_str))).await
        })?;
        Ok(Topology::new(&routers, &routes, &filters))
    };
    ListOptions::of(matches).show(read, Topology::listing)
}

/// All there is. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
struct Topology {
    /// Sorted by name.
    namespaces: Vec<Namespace>,
    /// Sorted by name; with a filter, only those with a matching Route.
    shards: Vec<Shard>,
    /// The number of Routes that match the filter.
    routes: usize,
}

#[derive(Debug, Serialize)]
struct Namespace {
    name: String,
    routes: usize,
    /// Sorted by Router; Routes without one last.
    groups: Vec<Group>,
}

/// The routes of a namespace that are on one shard, or on none.
#[derive(Debug, Serialize)]
struct Group {
    router: Option<String>,
    /// Sorted by name.
    routes: Vec<Leaf>,
}

/// A route.
#[derive(Debug, Serialize)]
struct Leaf {
    name: String,
    /// The name by which it is reached.
    host: Option<String>,
    /// The reason why it has no Router.
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct Shard {
    name: String,
    zone: Option<String>,
    state: RouterState,
    /// The number of listed Routes on it.
    routes: usize,
    /// The total number of its Routes, if only some are listed.
    of: Option<u32>,
    addresses: Vec<Address>,
    /// The numbers of serving and of requested instances; absent: none report.
    #[serde(skip_serializing_if = "Option::is_none")]
    instances: Option<Instances>,
}

#[derive(Debug, Serialize)]
struct Instances {
    serving: u32,
    wanted: u32,
}

/// An address of a shard.
#[derive(Debug, Serialize)]
struct Address {
    ip: String,
    state: AddressState,
    /// Whether probes found it unhealthy, or its instance is dead.
    unhealthy: bool,
}

impl Topology {
    /// Returns the topology of these objects, with the routes that have every one of `filters` in their namespace, name, host
    /// or Router.
    fn new(routers: &[Router], routes: &[Route], filters: &[String]) -> Topology {
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
                let address = |address: &signpost_types::v1alpha1::router::Address| Address {
                    ip: address.ip.clone(),
                    state: address.state,
                    unhealthy: is_unhealthy(&address.ip) || has_dead_instance(router, &address.ip),
                };
                let routes = on.remove(&name).unwrap_or(0);
                let has = router.status.as_ref().and_then(|status| status.routes);
                Shard {
                    of: has.filter(|has| *has as usize > routes),
                    routes,
                    zone: router.spec.dns.clone(),
                    state: router.spec.state,
                    addresses: router.addresses().iter().map(address).collect(),
                    instances: instances(router),
                    name,
                }
            })
            .filter(|shard| filters.is_empty() || shard.routes > 0)
            .collect();
        shards.sort_by(|a, b| a.name.cmp(&b.name));
        Topology { namespaces, shards, routes: count }
    }

    /// Returns two tables: Routes by namespace and shard, and shards. Their names are those of the Routes.
    fn listing(&self) -> Listing {
        let mut groups = Table::bounded(ROUTE_COLUMNS);
        for namespace in &self.namespaces {
            for Group { router, routes } in &namespace.groups {
                let shard = match router {
                    Some(router) => Cell::from(router.as_str()),
                    None => Cell::styled(Style::Warning, "pending"),
                };
                let name = |leaf: &Leaf| match &leaf.reason {
                    Some(reason) => format!("{} ({reason})", leaf.name),
                    None => leaf.name.clone(),
                };
                let more = routes.len().saturating_sub(NAMES_SHOWN);
                let more = (more > 0).then(|| format!("and {more} more"));
                let names: Vec<String> = routes.iter().take(NAMES_SHOWN).map(name).chain(more).collect();
                let count = routes.len().to_string();
                groups.row_of(
                    routes.iter().map(|leaf| format!("{}/{}", namespace.name, leaf.name)).collect(),
                    [namespace.name.as_str().into(), shard, count.into(), names.join(", ").into()],
                );
            }
        }
        let mut shards = Table::bounded(SHARD_COLUMNS).hiding_last();
        for shard in &self.shards {
            let state = match shard.state {
                RouterState::Active => Cell::from(shard.state.word()),
                state => Cell::styled(Style::Warning, state.word()),
            };
            let routes = Cell::from(match shard.of {
                Some(all) => format!("{} of {all}", shard.routes),
                None => shard.routes.to_string(),
            });
            let address = |address: &Address| match address.state {
                AddressState::Active if address.unhealthy => format!("{} (unhealthy)", address.ip),
                AddressState::Active => address.ip.clone(),
                AddressState::Drained => format!("{} (drained)", address.ip),
            };
            let addresses: Vec<String> = shard.addresses.iter().map(address).collect();
            let addresses = match addresses.is_empty() {
                true => Cell::styled(Style::Bad, "none"),
                false => Cell::from(addresses.join(", ")),
            };
            let instances = match &shard.instances {
                None => Cell::from("-"),
                Some(Instances { serving, wanted }) if serving < wanted => {
                    Cell::styled(Style::Warning, format!("{serving}/{wanted}")).ranked(*serving)
                }
                Some(Instances { serving, wanted }) => Cell::from(format!("{serving}/{wanted}")).ranked(*serving),
            };
            let (routes, zone) = (routes.ranked(shard.routes), Cell::or_dash(shard.zone.as_deref()));
            shards.row_of(Vec::new(), [shard.name.as_str().into(), state, routes, instances, addresses, zone]);
        }
        Listing { tables: vec![groups, shards], note: None }
    }
}

fn has_dead_instance(router: &Router, ip: &str) -> bool {
    ip.parse().is_ok_and(|ip| router.listed_instance(ip) == Some(InstanceState::Expired))
}

/// Returns the instances of a Router, if some report.
fn instances(router: &Router) -> Option<Instances> {
    let status = router.status.as_ref()?;
    let reported = || u32::try_from(status.instances.len()).unwrap_or(u32::MAX);
    Some(Instances { serving: status.ready_instances?, wanted: router.instances_wanted().unwrap_or_else(reported) })
}

/// Returns the Routers and Routes that the user may read. A tenant gets the Routes of its namespace, and of Routers only the
/// contents of these Routes.
async fn list(access: &Access, namespace: Option<&str>) -> Result<(Vec<Router>, Vec<Route>), String> {
    let of = |namespace: &str| Api::<Route>::namespaced(access.client.clone(), namespace);
    let (routers, all) = match namespace {
        Some(namespace) => {
            let routes = of(namespace);
            let listed = access.list(&routes, ListParams::default());
            let (routers, routes) = tokio::try_join!(access.all_permitted::<Router>(), listed)?;
            (routers, Some(routes))
        }
        None => tokio::try_join!(access.all_permitted::<Router>(), access.all_permitted::<Route>())?,
    };
    let routes = match all {
        Some(routes) => routes,
        None => {
            note(format_args!(
                "you are not allowed to list the Routes of all namespaces; showing namespace {}",
                access.namespace
            ));
            access.list(&of(&access.namespace), ListParams::default()).await?
        }
    };
    let routers = routers.unwrap_or_else(|| {
        note("you are not allowed to list Routers; showing only what these Routes contain");
        routers_of(&routes)
    });
    Ok((routers, routes))
}

/// Returns the Routers that routes are on, with the zones that their names are in.
fn routers_of(routes: &[Route]) -> Vec<Router> {
    let on = routes.iter().filter_map(|route| {
        let status = route.status.as_ref()?;
        let system = status.names.iter().find(|name| name.kind == NameKind::System)?;
        Some((status.router.clone()?, system.name.split_once('.')?.1.to_owned()))
    });
    let zones: BTreeMap<String, String> = on.collect();
    let router = |(name, dns): (String, String)| {
        let spec = serde_json::from_value(json!({"dns": dns})).expect("a Router needs no field");
        Router::new(&name, spec)
    };
    zones.into_iter().map(router).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::objects::object;
    use crate::cli::style::Painter;
    use serde_json::Value;

    /// A route on a Router, or waiting.
    fn route(namespace: &str, name: &str, router: Option<&str>) -> Route {
        let waits = json!({"conditions": [{"type": "Scheduled", "status": "False", "reason": "NoRouter", "message": "none",
            "lastTransitionTime": "2025-01-01T00:00:00Z"}]});
        let on = |router| json!({"phase": "scheduled", "router": router, "dns": format!("{namespace}-{name}.{router}.example")});
        let status = router.map_or(waits, on);
        object("Route", json!({"namespace": namespace, "name": name}), json!({}), status)
    }

    #[test]
    fn two_tables() {
        let routers = [
            object(
                "Router",
                json!({"name": "shard2"}),
                json!({"state": "cordoned", "type": "haproxy", "instances": 2}),
                json!({"readyInstances": 1}),
            ),
            object(
                "Router",
                json!({"name": "shard1"}),
                json!({"addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2", "state": "drained"}]}),
                Value::Null,
            ),
        ];
        let mut routes = vec![
            route("shop", "front", Some("shard1")),
            route("shop", "cart", Some("shard1")),
            route("shop", "vault", None),
        ];
        routes.extend((0..7).map(|number| route("blog", &format!("p{number}"), Some("shard2"))));
        let expected = "\
NAMESPACE   SHARD     ROUTES   NAMES
blog        shard2    7        p0, p1, p2, p3, p4, and 2 more
shop        shard1    2        cart, front
shop        pending   1        vault (NoRouter)

SHARD    STATE      ROUTES   INSTANCES   ADDRESSES
shard1   active     2        -           192.0.2.1, 192.0.2.2 (drained)
shard2   cordoned   7        1/2         none
";
        let listing = Topology::new(&routers, &routes, &[]).listing();
        assert_eq!(ListOptions::default().text(listing, Painter::PLAIN), expected);
        // Filters look everywhere, and all must pass.
        for (filters, left, shards) in [
            (&["FRONT"][..], 1, &["shard1"][..]),
            (&["p", "shop"], 3, &["shard1"]),
            (&["p3.shard2.ex"], 1, &["shard2"]),
            (&["nothing"], 0, &[]),
        ] {
            let filters: Vec<String> = filters.iter().map(|filter| (*filter).to_owned()).collect();
            let topology = Topology::new(&routers, &routes, &filters);
            let names: Vec<&str> = topology.shards.iter().map(|shard| shard.name.as_str()).collect();
            assert_eq!((topology.routes, names.as_slice()), (left, shards), "{filters:?}");
        }
    }
}
