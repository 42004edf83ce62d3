//! `signpost explain route`: explains why a Route is on its Router, not on another one, or on none. `signpost explain KIND/NAME` does so
//! for the names of an object of another API ([`source`]).
//!
//! The explanation of a bound Route is on its RouteBinding since it was bound; that of an unscheduled Route is in its
//! conditions. For `--why-not`, the scheduler's own filter also evaluates the current Router: a stored explanation
//! lists only the first Routers, and objects change. The output ends with the endpoints that get the Route's requests.

mod account;
mod source;

use std::net::Ipv4Addr;
use std::sync::Arc;

use clap::{Arg, ArgMatches, Command};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::ListParams;

use self::account::RouteExplanation;
use self::source::{SourceExplanation, SourceName};
use super::access::{self, API_TIMEOUT, Access, ApiLocation};
use super::backends::Backends;
use super::output::{self, Format};
use super::platform::PlatformSettings;
use super::{Exit, Outcome, option, serve, traffic};
use crate::config;
use signpost_control::client::reflector::ObjectKey;
use signpost_control::compiler::settings::NameServer;
use signpost_control::scheduler::explain;
use signpost_control::scheduler::filter::{FilterResult, HostLeader, PlacementRequest};
use signpost_control::scheduler::snapshot::Shard;
use signpost_control::scheduler::strategy::StrategyName;
use signpost_control::world::router::RouterTarget;
use signpost_control::world::{NamespaceInfo, RouteInfo};
use signpost_types::names::{self, host_claim_name, takes_names_of};
use signpost_types::v1alpha1::name_claim::{Holder, NameClaim};
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::route_binding::{RouteBinding, RouterVerdict};
use signpost_types::v1alpha1::router::Router;

/// The configuration keys for the API, and for the names of the platform.
const KEYS: &[&str] = &["kubeconfig", "api-server", "data-dir", "domain", "nameserver"];

pub(super) fn command() -> Command {
    let why_not = option("why-not", "ROUTER").help("Also explain why the Route is not on this Router");
    let route = Command::new("route")
        .about("Explain why a Route is on its Router, not on another one, or on none, and list its endpoints")
        .after_help(
            "Exit codes: 0 explained, 1 the Route or Router does not exist, or the API is unreachable, 2 invalid \
             usage.",
        )
        .arg(access::route_argument())
        .args([why_not, access::namespace_argument(), output::argument()])
        .args(serve::arguments_of(KEYS))
        .arg(access::context_argument());
    let source = Arg::new("source")
        .value_name("KIND/[NAMESPACE/]NAME")
        .value_parser(SourceName::parse)
        .help("The Gateway, HTTPRoute, IngressController, Ingress, Service, or OpenShift Route that names come from");
    Command::new("explain")
        .about("Explain scheduling decisions, and the names of Gateways, Ingresses, and OpenShift routes")
        .after_help(
            "Without a subcommand, the command explains an object of the source cluster: the Routers and Routes that come from \
             it, and the state of their names. Exit codes: 0 explained, 1 nothing comes from the object, or the API is \
             unreachable, 2 invalid usage.",
        )
        .args([source, access::namespace_argument(), output::argument()])
        .args(access::arguments())
        .args_conflicts_with_subcommands(true)
        .arg_required_else_help(true)
        .subcommand(route)
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let Some(("route", matches)) = matches.subcommand() else { return explain_source(matches) };
    let place = ApiLocation::of(matches)?;
    let route = access::route(matches)?;
    let why_not = matches.get_one::<String>("why-not").map(String::as_str);
    let account = access::run(API_TIMEOUT, async {
        let access = place.connect().await?;
        let key = access.key(&route);
        Question { key, why_not, place: &place, access: &access }.answer().await
    })?;
    Format::of(matches).show(&account, |painter| account.text(painter))
}

fn explain_source(matches: &ArgMatches) -> Outcome {
    let Some(source) = matches.get_one::<SourceName>("source") else { return Ok(Exit::Usage) };
    access::check_namespace(matches, source.namespace.as_ref())?;
    let place = ApiLocation::of(matches)?;
    let explanation = access::run(API_TIMEOUT, async {
        let access = place.connect().await?;
        SourceExplanation::find(&access, source).await
    })?;
    Format::of(matches).show(&explanation, |painter| explanation.text(painter))
}

struct Question<'a> {
    key: ObjectKey,
    why_not: Option<&'a str>,
    place: &'a ApiLocation,
    access: &'a Access,
}

impl Question<'_> {
    async fn answer(&self) -> Result<RouteExplanation, String> {
        let client = &self.access.client;
        let ObjectKey { namespace, name } = &self.key;
        let namespace = namespace.as_deref().unwrap_or_default();
        let failure = |error: kube::Error| self.access.unanswered(error);
        let routes: Api<Route> = Api::namespaced(client.clone(), namespace);
        let route = routes.get_opt(name).await.map_err(failure)?;
        let route = route.ok_or_else(|| format!("NotFound: there is no Route {}", self.key))?;
        let bindings: Api<RouteBinding> = Api::namespaced(client.clone(), namespace);
        let binding = bindings.get_opt(name).await.map_err(failure)?;
        // An earlier Route's of the same name may not be cleared away yet.
        let binding = binding.filter(|binding| route.metadata.uid.as_deref() == Some(&binding.spec.route_uid));
        let backends = Backends::find(self.access, &route).await?;
        let mut account = RouteExplanation::new(&route, binding, backends);
        if let Some((router, _)) = account.placed() {
            let traffic = traffic::of(client.clone(), router, &self.key.to_string()).await;
            account.set_traffic(traffic);
        }
        // Without access to Zones, the flags apply.
        let platform = PlatformSettings::find(self.place, self.access).await.ok();
        if let Some(name) = self.why_not {
            let routers: Api<Router> = Api::all(client.clone());
            let router = routers.get_opt(name).await.map_err(failure)?;
            let created = router.as_ref().and_then(|router| router.metadata.creation_timestamp.clone());
            let now = match router {
                Some(router) => Some(self.evaluate(route, account.placed(), router, platform).await),
                None => None,
            };
            if now.is_none() && !account.mentions(name) {
                return Err(format!("NotFound: there is no Router {name}"));
            }
            account.answer_why_not(name, created, now);
        }
        Ok(account)
    }

    /// Evaluates whether the Router can take the Route now; the Route is on another Router by some strategy, or on
    /// none.
    async fn evaluate(
        &self,
        route: Route,
        placed: Option<(&str, &str)>,
        router: Router,
        platform: Option<PlatformSettings>,
    ) -> RouterVerdict {
        // A tenant may not read Zones; the Route's own alias has the domain.
        let of_alias =
            route.status.as_ref().and_then(|status| names::domain_of_alias(status.canonical_name.as_deref()?));
        let domain = match of_alias {
            Some(domain) if !self.place.is_given("domain") => domain.to_owned(),
            _ => match &platform {
                Some(platform) => platform.domain.clone(),
                None => domain_by(&router),
            },
        };
        let servers = match &platform {
            Some(platform) => platform.name_servers.as_deref().unwrap_or_default(),
            None => &self.place.settings.nameserver,
        };
        let server = |server: &config::NameServer| {
            // Only the names matter here.
            Some(NameServer { name: server.name.parse().ok()?, addresses: vec![Ipv4Addr::LOCALHOST.into()] })
        };
        let servers = servers.iter().filter_map(server).collect();
        let strategy = match placed {
            Some((_, strategy)) => strategy.parse().ok(),
            // The platform's current strategy, if it is known and built in.
            None => platform.filter(|platform| platform.caveat.is_none()).map(|platform| platform.strategy),
        };
        let placement = Placement { router: placed.map(|(router, _)| router), strategy };
        let namespaces: Api<Namespace> = Api::all(self.access.client.clone());
        // Not everyone who may see a Route may see its Namespace; then a selector of namespaces is left out of account.
        let namespace = namespaces.get_opt(self.key.namespace.as_deref().unwrap_or_default()).await.ok().flatten();
        let sees_namespace = namespace.is_some();
        let namespace = namespace.map(NamespaceInfo::from).unwrap_or_default();
        let routes = router.status.as_ref().and_then(|status| status.routes).unwrap_or(0);
        let mut router = RouterTarget::read(&router, &domain, servers);
        if !sees_namespace {
            router.namespace_selector = Ok(kube::core::Selector::default());
        }
        let sharing = self.sharing(&route, placement.router).await;
        evaluate_now(&self.key, &RouteInfo::new(&route), placement, &sharing, &namespace, &router, routes, &domain)
    }

    /// Returns the other Routes of the namespace that have the host of a Route, by its claim. A user who may not read claims gets the
    /// verdict without them.
    async fn sharing(&self, route: &Route, on: Option<&str>) -> Sharing {
        let (Some(host), client) = (&route.spec.host, &self.access.client) else { return Sharing::default() };
        let claim = Api::<NameClaim>::all(client.clone()).get_opt(&host_claim_name(host)).await.ok().flatten();
        let holders = claim.map(|claim| claim.spec.holders()).unwrap_or_default();
        let namespace = self.key.namespace.as_deref().unwrap_or_default();
        if !holders.iter().any(|holder| holder.namespace == namespace) {
            return Sharing::default();
        }
        let routes =
            self.access.list(&Api::<Route>::namespaced(client.clone(), namespace), ListParams::default()).await;
        let routes = routes.unwrap_or_default();
        Sharing::of(&self.key, on.is_some(), &holders, &routes)
    }
}

/// The Routes that have the host of another one, which limit its Router as in the scheduler.
#[derive(Debug, Default)]
struct Sharing {
    leader: Option<HostLeader>,
    followers: Vec<(ObjectKey, Arc<RouteInfo>)>,
}

impl Sharing {
    /// Returns the Route that decides the Router, the first holder on one; or, if that is the Route at `key`, those that follow it.
    fn of(key: &ObjectKey, is_placed: bool, holders: &[Holder], routes: &[Route]) -> Sharing {
        let find = |holder: &Holder| routes.iter().find(|route| route.metadata.uid.as_deref() == Some(&*holder.uid));
        let placed = holders.iter().filter_map(|holder| {
            let route = find(holder)?;
            Some((holder, route, route.status.as_ref()?.router.clone()?))
        });
        let placed: Vec<_> = placed.collect();
        match placed.first() {
            Some((holder, _, router)) if holder.name != key.name => Sharing {
                leader: Some(HostLeader { name: holder.name.clone(), router: router.clone() }),
                followers: Vec::new(),
            },
            Some(_) if is_placed => {
                let others = placed.into_iter().skip(1);
                let follower = |(holder, route, _): (&Holder, &Route, String)| {
                    (ObjectKey::namespaced(&holder.namespace, &holder.name), Arc::new(RouteInfo::new(route)))
                };
                Sharing { leader: None, followers: others.map(follower).collect() }
            }
            _ => Sharing::default(),
        }
    }
}

/// The Router of a Route, and the built-in strategy that selects it, if they are known.
#[derive(Debug, Clone, Copy, Default)]
struct Placement<'a> {
    router: Option<&'a str>,
    strategy: Option<StrategyName>,
}

/// Returns the platform's domain, derived from a Router that has the name of its zone; otherwise the Router's zone, whose names
/// matter.
fn domain_by(router: &Router) -> String {
    let dns = router.spec.dns.as_deref().unwrap_or_default();
    let name = router.metadata.name.as_deref().unwrap_or_default();
    dns.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')).unwrap_or(dns).to_owned()
}

/// Returns the scheduler's verdict on a Router with this number of Routes.
#[allow(clippy::too_many_arguments, reason = "each is one input of the filter")]
fn evaluate_now(
    key: &ObjectKey,
    route: &RouteInfo,
    placement: Placement<'_>,
    sharing: &Sharing,
    namespace: &NamespaceInfo,
    router: &RouterTarget,
    routes: u32,
    domain: &str,
) -> RouterVerdict {
    let is_platform_name = |host: &&str| takes_names_of(host, domain) || takes_names_of(host, &router.dns);
    let platform_host = route.host.as_deref().filter(|_| route.adopted.is_none()).filter(is_platform_name);
    let leaving = placement.router.filter(|on| *on != router.name);
    let (host_leader, followers) = (sharing.leader.as_ref(), sharing.followers.as_slice());
    let request = PlacementRequest {
        platform_host,
        leaving,
        host_leader,
        followers,
        ..PlacementRequest::new(key, route, namespace)
    };
    let shard = Shard { routes, ..Shard::default() };
    let verdict = FilterResult::of(&request, router, &shard, placement.strategy.map(StrategyName::strategy));
    let mut now = explain::verdict(&request, &verdict);
    now.message.get_or_insert_with(|| "could take the Route".to_owned());
    now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::objects::object;
    use serde_json::{Value, json};

    /// The command passes to the filter the Router of the Route, its strategy, and the hosts that are names of the
    /// platform.
    #[test]
    fn the_filter_evaluates_as_for_the_scheduler() {
        let domain = "v3.example";
        let unpublished = json!({"conditions": [{"type": "ZonePublished", "status": "False", "reason": "WrongAnswer",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let (full, heavy) = (json!({"capacity": {"hard": 5}}), json!({"weight": 0}));
        let (weighted, other) = (Some(StrategyName::Weighted), Some(StrategyName::RoundRobin));
        for (spec, status, host, on, strategy, reason) in [
            (json!({}), Value::Null, None, None, None, None),
            (full, Value::Null, None, None, None, Some("CapacityReached")),
            (json!({}), unpublished.clone(), None, Some("shard1"), None, Some("ZoneNotPublished")),
            (json!({}), unpublished, None, None, None, None),
            (json!({}), Value::Null, Some("shop-front.shard1.v3.example"), None, None, Some("HostElsewhere")),
            // A rejection by a strategy counts only for Routes that this strategy places.
            (heavy.clone(), Value::Null, None, None, None, None),
            (heavy.clone(), Value::Null, None, None, weighted, Some("ZeroWeight")),
            (heavy, Value::Null, None, Some("shard1"), other, None),
        ] {
            let mut merged = json!({"addresses": [{"ip": "192.0.2.1"}]});
            json_patch::merge(&mut merged, &spec);
            let router =
                RouterTarget::read(&object("Router", json!({"name": "shard2"}), merged, status), domain, Vec::new());
            let route = RouteInfo { host: host.map(Into::into), ..RouteInfo::default() };
            let (key, placement) = (ObjectKey::namespaced("shop", "front"), Placement { router: on, strategy });
            let (alone, namespace) = (Sharing::default(), NamespaceInfo::default());
            let now = evaluate_now(&key, &route, placement, &alone, &namespace, &router, 5, domain);
            assert_eq!((now.eligible, now.reason.as_deref()), (reason.is_none(), reason), "{spec}");
        }
    }

    #[test]
    fn the_routes_with_the_same_host_are_named() {
        let route = |name: &str, router: Option<&str>, labels: &Value| -> Route {
            let status = json!({"phase": "scheduled", "router": router});
            object(
                "Route",
                json!({"name": name, "namespace": "shop", "uid": name, "labels": labels}),
                json!({}),
                status,
            )
        };
        let routes = [
            route("waits", None, &json!({})),
            route("root", Some("shard1"), &json!({})),
            route("api", Some("shard1"), &json!({"tier": "gold"})),
        ];
        let holders = ["waits", "root", "api"].map(|name| Holder {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            path: Some(format!("/{name}")),
        });
        let (domain, namespace) = ("v3.example", NamespaceInfo::default());
        let spec = json!({"addresses": [{"ip": "192.0.2.1"}],
            "routeSelector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}});
        let router =
            RouterTarget::read(&object("Router", json!({"name": "shard2"}), spec, Value::Null), domain, Vec::new());
        for (name, message) in [
            ("waits", "is not the Router of Route root, which decides for all Routes with the host"),
            ("root", "cannot take Route api, which shares the host"),
        ] {
            let key = ObjectKey::namespaced("shop", name);
            let route = routes.iter().find(|route| route.metadata.name.as_deref() == Some(name)).expect("it is one");
            let on = route.status.as_ref().and_then(|status| status.router.as_deref());
            let sharing = Sharing::of(&key, on.is_some(), &holders, &routes);
            let placement = Placement { router: on, strategy: None };
            let now = evaluate_now(&key, &RouteInfo::new(route), placement, &sharing, &namespace, &router, 0, domain);
            assert_eq!(now.message.as_deref(), Some(message), "{name}");
        }
    }

    #[test]
    fn a_router_shows_the_domain() {
        for (dns, domain) in [("s1.v3.example", "v3.example"), ("apps.other.example", "apps.other.example")] {
            let router = object("Router", json!({"name": "s1"}), json!({"dns": dns}), Value::Null);
            assert_eq!(domain_by(&router), domain);
        }
    }
}
