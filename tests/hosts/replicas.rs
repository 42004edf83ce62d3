//! The properties when all faults are over: nothing is lost, and all replicas are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::clients::{KnownRoute, routes_path};
use crate::observers::{Addresses, addresses, zone_of};
use crate::promises::{Promise, Promises, VERSION, condition};
use crate::scene::{ANSWER, API_SERVERS, DOMAIN, NAME_SERVERS, NAMESPACE, ROUTERS, Scene, serial};
use crate::watcher::{Watcher, revision};
use signpost_testing::PATIENCE;
use signpost_testing::dns::{Answer, Asker, RecordType, ResponseCode};

/// Waits until all of it holds; returns how many Routes there are.
pub fn are_equal(
    scene: &Scene,
    known: &BTreeMap<String, KnownRoute>,
    promises: &Promises,
    watchers: &[(&str, &Watcher)],
) -> usize {
    until("each Route is as acknowledged, and resolvable", || {
        let routes = list(scene, API_SERVERS[0], &routes_path())?;
        are_as_acknowledged(&routes, known)?;
        let live = promises.all().len();
        if live == routes.len() { Ok(()) } else { Err(format!("{live} of {} are resolvable", routes.len())) }
    });
    until("the API servers have equal objects, and each Route has one binding", || {
        for kind in ["routers", "zones", "nameclaims", "deletionholds"] {
            equal_lists(scene, &format!("/apis/signpost.dev/v1alpha1/{kind}"))?;
        }
        let routes = equal_lists(scene, &routes_path())?;
        let bindings = equal_lists(scene, &bindings_path())?;
        are_bound_once(&routes, &bindings)
    });
    for (path, watcher) in watchers {
        until("a watch has seen everything", || {
            let listed = list(scene, API_SERVERS[1], path)?;
            let listed: BTreeMap<String, u64> =
                listed.iter().map(|object| (text(&object["metadata"]["name"]), revision(object))).collect();
            let seen = watcher.state();
            let differs = |(name, at): &(&String, &u64)| listed.get(*name) != Some(*at);
            match seen.iter().find(differs) {
                None if seen.len() == listed.len() => Ok(()),
                found => Err(format!("{found:?} of {} objects; {} are listed", seen.len(), listed.len())),
            }
        });
    }
    let live = promises.all();
    until("the name servers have equal serials", || equal_serials(scene));
    let routers = addresses(scene);
    for Promise { route, .. } in &live {
        until(&format!("all servers answer for Route {route}"), || {
            // An alias that leads to the former Router leads to the current one half a minute later.
            let promise = promises.of(route).ok_or("it is no longer promised")?;
            is_answered(scene, &promise, &routers)
        });
    }
    are_gone(scene, known, &live);
    until("the name servers have equal serials", || equal_serials(scene));
    live.len()
}

#[track_caller]
fn until(what: &str, mut attempt: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(reason) = attempt() {
        assert!(Instant::now() < deadline, "never came true: {what}: {reason}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

pub fn bindings_path() -> String {
    format!("/apis/signpost.dev/v1alpha1/namespaces/{NAMESPACE}/routebindings")
}

/// Every name server answers for the names of a Route exactly as it should, and the resolver finds its addresses.
fn is_answered(scene: &Scene, promise: &Promise, routers: &Addresses) -> Result<(), String> {
    let label = promise.system.split('.').next().unwrap_or_default();
    let target = format!("{label}.{}", zone_of(&promise.leads_to));
    for (name, server) in NAME_SERVERS.iter().zip(scene.name_servers()) {
        let alias = ask(server, &promise.alias);
        let system = ask(server, &promise.system);
        let is_right = alias.as_ref().is_some_and(|answer| answer.alias.as_ref() == Some(&target))
            && system.as_ref().is_some_and(|answer| answer.addresses == routers[&promise.router]);
        if !is_right {
            return Err(format!("{name}: {alias:?}, {system:?}; {promise:?}"));
        }
    }
    match ask(scene.resolver(), &promise.alias) {
        Some(answer) if answer.addresses == routers[&promise.leads_to] => Ok(()),
        answer => Err(format!("the resolver: {answer:?}; {promise:?}")),
    }
}

/// No acknowledged write is lost, and none came from nowhere.
fn are_as_acknowledged(routes: &[Value], known: &BTreeMap<String, KnownRoute>) -> Result<(), String> {
    let found: BTreeMap<&str, &Value> =
        routes.iter().filter_map(|route| Some((route["metadata"]["name"].as_str()?, route))).collect();
    for (name, known) in known {
        let route = found.get(name.as_str());
        let uid = route.and_then(|route| route["metadata"]["uid"].as_str());
        if uid != known.uid.as_deref() {
            return Err(format!("Route {name} is lost, or not deleted: {known:?}, found {route:?}"));
        }
        let Some(route) = route else { continue };
        let version = text(&route["metadata"]["annotations"][VERSION]);
        if version != known.acknowledged.to_string() {
            return Err(format!("Route {name} lost a write: {known:?}, found {route:?}"));
        }
        let is_there = known.target.as_ref().is_none_or(|target| route["status"]["router"] == **target);
        if !is_there || condition(route, "Ready") != Some("True") {
            return Err(format!("Route {name} is not where it should be, or not ready: {known:?}, found {route:?}"));
        }
    }
    match found.keys().find(|name| !known.contains_key(**name)) {
        None => Ok(()),
        Some(name) => Err(format!("no client created Route {name}")),
    }
}

fn are_bound_once(routes: &[Value], bindings: &[Value]) -> Result<(), String> {
    let bound: BTreeMap<String, &Value> =
        bindings.iter().map(|binding| (text(&binding["spec"]["routeUID"]), &binding["spec"]["router"])).collect();
    if bound.len() != bindings.len() || bindings.len() != routes.len() {
        return Err(format!("{} Routes, {} bindings of {} Routes", routes.len(), bindings.len(), bound.len()));
    }
    let is_other = |route: &&Value| bound.get(&text(&route["metadata"]["uid"])) != Some(&&route["status"]["router"]);
    routes.iter().find(is_other).map_or(Ok(()), |route| Err(format!("its binding has another Router: {route}")))
}

/// Returns the objects at a path, if both API servers have the same.
fn equal_lists(scene: &Scene, path: &str) -> Result<Vec<Value>, String> {
    let [first, second] = API_SERVERS.map(|name| list(scene, name, path));
    let (first, second) = (first?, second?);
    match first.iter().zip(&second).find(|(first, second)| first != second) {
        Some((first, second)) => Err(format!("{path}: {first} and {second}")),
        None if first.len() == second.len() => Ok(first),
        None => Err(format!("{path}: {} and {} objects", first.len(), second.len())),
    }
}

fn list(scene: &Scene, api_server: &str, path: &str) -> Result<Vec<Value>, String> {
    let (status, body) = scene.client(api_server).send("GET", path, None);
    let mut list: Value = serde_json::from_str(&body).unwrap_or_default();
    match list["items"].take() {
        Value::Array(items) if status == 200 => Ok(items),
        _ => Err(format!("{api_server}: {path}: {status} {body}")),
    }
}

fn equal_serials(scene: &Scene) -> Result<(), String> {
    let zones = ROUTERS.iter().chain(&["routes"]).map(|name| format!("{name}.{DOMAIN}."));
    for zone in zones.chain([format!("{DOMAIN}.")]) {
        let zone = zone.trim_end_matches('.');
        let serials = scene.name_servers().map(|server| serial(server, zone));
        if serials[0].is_none() || serials.iter().any(|serial| *serial != serials[0]) {
            return Err(format!("{zone}: {serials:?}"));
        }
    }
    Ok(())
}

/// The aliases of deleted Routes are gone from every name server.
fn are_gone(scene: &Scene, known: &BTreeMap<String, KnownRoute>, live: &[Promise]) {
    let labels: BTreeSet<&str> = live.iter().filter_map(|promise| promise.alias.split('.').next()).collect();
    let deleted = known.iter().filter(|(_, known)| known.uid.is_none()).map(|(name, _)| format!("{NAMESPACE}-{name}"));
    for label in deleted.filter(|label| !labels.contains(label.as_str())) {
        for (name, server) in NAME_SERVERS.iter().zip(scene.name_servers()) {
            until(&format!("{name} answers for {label}"), || {
                let answer = ask(server, &format!("{label}.routes.{DOMAIN}")).ok_or("no answer")?;
                assert!(answer.rcode == ResponseCode::NXDomain, "{name}: {label}: {answer:?}");
                Ok(())
            });
        }
    }
}

fn ask(server: SocketAddr, name: &str) -> Option<Answer> {
    Asker::new(server).ask(name, RecordType::A, ANSWER)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
