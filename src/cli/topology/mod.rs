//! `signpost topology`: namespace → route → shard → address, as a text tree or as a drawing.
//!
//! However many routes there are, what is printed stays of a size that can be looked at: routes are grouped by
//! namespace and shard, and of each group as many are named as there is room for ([`plan`]).

mod drawing;
mod model;
mod plan;
mod tree;

use std::collections::BTreeMap;

use clap::{ArgMatches, Command, value_parser};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use self::model::Topology;
use self::plan::Layout;
use super::access::{self, API_TIMEOUT, Access, ApiLocation};
use super::output::{self, Format};
use super::{Outcome, note, option, progress};
use signpost_api::v1alpha1::route::{NameKind, Route};
use signpost_api::v1alpha1::router::Router;

pub(super) fn command() -> Command {
    let format = option("format", "FORMAT")
        .value_parser(["text", "dot", "mermaid"])
        .default_value("text")
        .help("How to draw it: a text tree, Graphviz, or Mermaid");
    let filter = option("filter", "TEXT")
        .action(clap::ArgAction::Append)
        .help("Only routes with this text in namespace, name, host or Router (repeats: all must be there)");
    let size = option("size", "N")
        .value_parser(value_parser!(usize))
        .default_value("200")
        .help("About how many lines or nodes it may have; 0 names every route");
    Command::new("topology")
        .about("Draw the namespaces, their Routes by shard, and the shards' addresses")
        .after_help(
            "Of all namespaces, unless one is named. Where there are more routes than --size has room for, they are \
             counted by namespace and shard. -o json and -o yaml always tell of all. Exit codes: 0 drawn, 1 the API \
             does not answer, 2 invalid usage.\n\nsignpost topology --format dot | dot -Tsvg > topology.svg",
        )
        .args([format, filter, size])
        .arg(access::namespace_argument().help("Only routes of this namespace"))
        .arg(output::argument())
        .args(access::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let namespace = matches.get_one::<String>("namespace");
    let filters: Vec<String> = matches.get_many("filter").unwrap_or_default().cloned().collect();
    let (routers, routes) = access::run(API_TIMEOUT, async {
        let access = place.connect().await?;
        progress::during("listing Routers and routes", list(&access, namespace.map(String::as_str))).await
    })?;
    let topology = Topology::new(&routers, &routes, &filters);
    let plan = Layout::new(&topology, *matches.get_one::<usize>("size").expect("it has a default"));
    Format::of(matches).show(&topology, |painter| match matches.get_one::<String>("format").map(String::as_str) {
        Some("dot") => drawing::dot(&topology, &plan),
        Some("mermaid") => drawing::mermaid(&topology, &plan),
        _ => tree::text(&topology, &plan, painter),
    })
}

/// The Routers and routes that the user may see. A tenant sees the routes of its namespace, and of Routers what these tell.
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
                "you may not list the routes of all namespaces: these are those of {}",
                access.namespace
            ));
            access.list(&of(&access.namespace), ListParams::default()).await?
        }
    };
    let routers = routers.unwrap_or_else(|| {
        note("you may not list Routers: they are shown as far as these routes tell");
        told_by(&routes)
    });
    Ok((routers, routes))
}

/// The Routers that routes are on, with the zones that their names are in.
fn told_by(routes: &[Route]) -> Vec<Router> {
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
