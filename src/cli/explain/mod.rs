//! `signpost explain route`: why a route is on its Router, why not on another one, or why on none.
//!
//! A placed route's explanation is the one that was kept on its RouteBinding when it was placed; that of a route that waits
//! are its conditions. What `--why-not` says of this moment is judged by the scheduler's own filter.

mod account;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use self::account::{Account, Now};
use super::{Exit, complain, print, serve};
use crate::api::names::is_at_or_below;
use crate::api::v1alpha1::route::Route;
use crate::api::v1alpha1::route_binding::RouteBinding;
use crate::api::v1alpha1::router::Router;
use crate::client;
use crate::client::reflector::ObjectKey;
use crate::config;
use crate::scheduler::facts::{NamespaceFacts, RouteFacts, RouterFacts};
use crate::scheduler::filter::{Wish, judge};
use crate::scheduler::snapshot::Shard;

/// The keys of the configuration that say where the API is, and which names are the platform's.
const KEYS: &[&str] = &["kubeconfig", "data-dir", "domain"];
/// How long the API may take, all in all.
const API_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn command() -> Command {
    let route = Arg::new("route")
        .value_name("NAMESPACE/NAME")
        .required(true)
        .value_parser(|text: &str| match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok((namespace.to_owned(), name.to_owned()))
            }
            _ => Err("must be NAMESPACE/NAME"),
        })
        .help("The Route");
    let why_not =
        Arg::new("why-not").long("why-not").value_name("ROUTER").help("Says why the route is not on this Router, too");
    let output = Arg::new("output")
        .long("output")
        .short('o')
        .value_name("FORMAT")
        .value_parser(["text", "json", "yaml"])
        .default_value("text")
        .help("How to print it");
    let route = Command::new("route")
        .about("Says why a route is on its Router, why not on another one, or why on none")
        .after_help(
            "The API is the one of --kubeconfig, else of <data-dir>/kubeconfig. Exit codes: 0 explained, 1 there is no such \
             Route or Router or the API does not answer, 2 called wrongly.",
        )
        .arg(route)
        .args([why_not, output])
        .args(serve::arguments_of(KEYS));
    Command::new("explain")
        .about("Says why things are as they are")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(route)
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    let Some(("route", matches)) = matches.subcommand() else { return Exit::Usage };
    let settings = match config::read(&serve::places(matches)) {
        Ok(settings) => settings,
        Err(errors) => {
            errors.0.iter().for_each(complain);
            return Exit::Usage;
        }
    };
    let kubeconfig = settings.kubeconfig.clone().unwrap_or_else(|| settings.data_dir.join("kubeconfig"));
    let (namespace, name) = matches.get_one::<(String, String)>("route").expect("clap demands it");
    let question = Question {
        namespace,
        name,
        why_not: matches.get_one::<String>("why-not").map(String::as_str),
        domain: &settings.domain,
        kubeconfig: &kubeconfig,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let account = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let asked = runtime.block_on(async { tokio::time::timeout(API_TIMEOUT, question.answer()).await });
        asked.unwrap_or_else(|_| Err(question.unanswered("it takes too long")))
    });
    let output = matches.get_one::<String>("output").expect("it has a default").as_str();
    super::exit_of(account.and_then(|account| account.render(output)).map(|text| print(&text)))
}

/// What is asked, and whom.
struct Question<'a> {
    namespace: &'a str,
    name: &'a str,
    why_not: Option<&'a str>,
    domain: &'a str,
    kubeconfig: &'a PathBuf,
}

impl Question<'_> {
    async fn answer(&self) -> Result<Account, String> {
        let path: &Path = self.kubeconfig;
        let client = client::from_kubeconfig(path).await.map_err(|error| error.to_string())?;
        let told = |error: kube::Error| match error {
            kube::Error::Api(status) => self.unanswered(&status.message),
            error => self.unanswered(&error.to_string()),
        };
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
                Some(router) => Some(self.judge(&client, route, router).await),
                None => None,
            };
            if now.is_none() && !account.tells_of(name) {
                return Err(format!("there is no Router {name}"));
            }
            account.answer_why_not(name, created, now);
        }
        Ok(account)
    }

    fn unanswered(&self, why: &str) -> String {
        format!("the API of {} does not answer as needed: {why}", self.kubeconfig.display())
    }

    /// Whether the Router could take the Route as things are now.
    async fn judge(&self, client: &Client, route: Route, router: Router) -> Now {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        // Not everyone who may see a Route may see its Namespace; then a selector of namespaces is left out of account.
        let namespace = namespaces.get_opt(self.namespace).await.ok().flatten();
        let sees_namespace = namespace.is_some();
        let namespace = namespace.map(NamespaceFacts::from).unwrap_or_default();
        let routes = router.status.as_ref().and_then(|status| status.routes).unwrap_or(0);
        let mut router = RouterFacts::new(router, self.domain);
        if !sees_namespace {
            router.namespace_selector = Ok(kube::core::Selector::default());
        }
        let route = RouteFacts::from(route);
        let is_platform_name = |host: &&str| is_at_or_below(host, self.domain) || is_at_or_below(host, &router.dns);
        let platform_host = route.host.as_deref().filter(is_platform_name);
        let key = ObjectKey::namespaced(self.namespace, self.name);
        let wish = Wish { key: &key, route: &route, namespace: &namespace, platform_host, leaving: None };
        let shard = Shard { routes, ..Shard::default() };
        match judge(&wish, &router, &shard, None) {
            Ok(()) => Now { eligible: true, reason: None, message: "could take the route".to_owned(), routes },
            Err(rejection) => Now {
                eligible: false,
                reason: Some(rejection.reason()),
                message: rejection.message().to_owned(),
                routes,
            },
        }
    }
}
