//! `signpost explain route`: why a route is on its Router, why not on another one, or why on none.
//!
//! A placed route's explanation is the one that was kept on its RouteBinding when it was placed; that of a route that
//! waits are its conditions. What `--why-not` says of this moment is judged by the scheduler's own filter.

mod account;

use clap::{Arg, ArgMatches, Command};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use self::account::{Account, Now};
use super::access::{self, API_TIMEOUT, Access, Place};
use super::output::{self, Format};
use super::platform::Platform;
use super::{Exit, serve};
use crate::api::names::{self, is_at_or_below};
use crate::api::v1alpha1::route::Route;
use crate::api::v1alpha1::route_binding::RouteBinding;
use crate::api::v1alpha1::router::Router;
use crate::client::reflector::ObjectKey;
use crate::scheduler::facts::{NamespaceFacts, RouteFacts, RouterFacts};
use crate::scheduler::filter::{Wish, judge};
use crate::scheduler::snapshot::Shard;

/// The keys of the configuration that say where the API is, and which names are the platform's.
const KEYS: &[&str] = &["kubeconfig", "data-dir", "domain"];

pub(super) fn command() -> Command {
    let why_not =
        Arg::new("why-not").long("why-not").value_name("ROUTER").help("Says why the route is not on this Router, too");
    let route = Command::new("route")
        .about("Says why a route is on its Router, why not on another one, or why on none")
        .after_help(
            "Exit codes: 0 explained, 1 there is no such Route or Router or the API does not answer, 2 called wrongly.",
        )
        .arg(access::route_argument())
        .args([why_not, access::namespace_argument(), output::argument()])
        .args(serve::arguments_of(KEYS))
        .arg(access::context_argument());
    Command::new("explain")
        .about("Says why things are as they are")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(route)
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    let Some(("route", matches)) = matches.subcommand() else { return Exit::Usage };
    let place = match Place::of(matches) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    let route = match access::route(matches) {
        Ok(route) => route,
        Err(exit) => return exit,
    };
    let why_not = matches.get_one::<String>("why-not").map(String::as_str);
    let account = access::run(API_TIMEOUT, async {
        let access = place.connect().await?;
        let ObjectKey { namespace, name } = route.key(&access);
        Question { namespace: &namespace.unwrap_or_default(), name: &name, why_not, place: &place, access: &access }
            .answer()
            .await
    });
    let format = Format::of(matches);
    super::exit_of(account.and_then(|account| format.show(&account, |painter| account.text(painter))))
}

/// What is asked, and whom.
struct Question<'a> {
    namespace: &'a str,
    name: &'a str,
    why_not: Option<&'a str>,
    place: &'a Place,
    access: &'a Access,
}

impl Question<'_> {
    async fn answer(&self) -> Result<Account, String> {
        let client = &self.access.client;
        let told = |error: kube::Error| self.access.unanswered(error);
        let routes: Api<Route> = Api::namespaced(client.clone(), self.namespace);
        let route = routes.get_opt(self.name).await.map_err(told)?;
        let route = route.ok_or_else(|| format!("there is no Route {}/{}", self.namespace, self.name))?;
        let bindings: Api<RouteBinding> = Api::namespaced(client.clone(), self.namespace);
        let binding = bindings.get_opt(self.name).await.map_err(told)?;
        // An earlier Route's of the same name may not be cleared away yet.
        let binding = binding.filter(|binding| route.metadata.uid.as_deref() == Some(&binding.spec.route_uid));
        let mut account = Account::new(&route, binding);
        if let Some(name) = self.why_not {
            let routers: Api<Router> = Api::all(client.clone());
            let router = routers.get_opt(name).await.map_err(told)?;
            let created = router.as_ref().and_then(|router| router.metadata.creation_timestamp.clone());
            let now = match router {
                Some(router) => Some(self.judge(route, router).await?),
                None => None,
            };
            if now.is_none() && !account.tells_of(name) {
                return Err(format!("there is no Router {name}"));
            }
            account.answer_why_not(name, created, now);
        }
        Ok(account)
    }

    /// Whether the Router could take the Route as things are now.
    async fn judge(&self, route: Route, router: Router) -> Result<Now, String> {
        // A tenant may not read Zones, and is told the domain by the Route's own alias.
        let of_alias =
            route.status.as_ref().and_then(|status| names::domain_of_alias(status.canonical_name.as_deref()?));
        let domain = match of_alias {
            Some(domain) if !self.place.is_given("domain") => domain.to_owned(),
            _ => Platform::find(self.place, self.access).await?.domain,
        };
        let namespaces: Api<Namespace> = Api::all(self.access.client.clone());
        // Not everyone who may see a Route may see its Namespace; then a selector of namespaces is left out of account.
        let namespace = namespaces.get_opt(self.namespace).await.ok().flatten();
        let sees_namespace = namespace.is_some();
        let namespace = namespace.map(NamespaceFacts::from).unwrap_or_default();
        let routes = router.status.as_ref().and_then(|status| status.routes).unwrap_or(0);
        let mut router = RouterFacts::new(router, &domain);
        if !sees_namespace {
            router.namespace_selector = Ok(kube::core::Selector::default());
        }
        let route = RouteFacts::from(route);
        let is_platform_name = |host: &&str| is_at_or_below(host, &domain) || is_at_or_below(host, &router.dns);
        let platform_host = route.host.as_deref().filter(is_platform_name);
        let key = ObjectKey::namespaced(self.namespace, self.name);
        let wish = Wish { key: &key, route: &route, namespace: &namespace, platform_host, leaving: None };
        let shard = Shard { routes, ..Shard::default() };
        Ok(match judge(&wish, &router, &shard, None) {
            Ok(()) => Now { eligible: true, reason: None, message: "could take the route".to_owned(), routes },
            Err(rejection) => Now {
                eligible: false,
                reason: Some(rejection.reason()),
                message: rejection.message().to_owned(),
                routes,
            },
        })
    }
}
