//! The invariants in calm, after a long time without faults.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use signpost_api::kinds::{deletion_hold, name_claim, route, route_binding, router, zone};
use signpost_dns::wire::Name;
use signpost_dns::zone::{Serial, Zone, ZoneDb};
use signpost_types::names::covers;
use signpost_types::paths::prefix;
use signpost_types::v1alpha1::SOURCE_LABEL;

use super::published::Server;
use super::{
    Truth, bound_uid, conditions, derived_name, holders, is_older, is_taken_by_none, is_true, kstatus, names,
    newest_version, observed, outdated, paths_of, reason, text,
};
use crate::name_server::{Rcode, addresses, ask};
use crate::person::is_in_zone;
use crate::{PANIC_PERCENT, WITH_INSTANCES};

/// The suffix of alias names.
const ALIASES: &str = ".routes.v3.example.";

impl Truth {
    /// Returns the violations after a long time without faults.
    pub fn unrest(&self) -> Vec<String> {
        let mut unrest = Vec::new();
        let routers: Vec<_> = self.all(router::ROUTER.key_prefix).collect();
        let takes = |router: &Value| router["spec"]["state"].as_str().is_none_or(|state| state == "active");
        for prefix in [route::ROUTE.key_prefix, router::ROUTER.key_prefix] {
            for (key, object) in self.all(prefix) {
                // A pending move, and conditions of a Route that waits, are about the last attempt.
                let is_bound = object["status"]["phase"] == "scheduled";
                let counts = |part: &String| part == "status" || is_bound && part != "MovePending";
                let parts: Vec<String> = outdated(object).into_iter().filter(counts).collect();
                if !parts.is_empty() {
                    unrest.push(format!("{key} reports an earlier generation: {}", parts.join(", ")));
                }
            }
        }
        for (key, route) in self.all(route::ROUTE.key_prefix) {
            let uid = route["metadata"]["uid"].as_str().unwrap_or_default();
            let Some(binding) = self.get(route_binding::ROUTE_BINDING.key_prefix, key) else {
                let host = route["spec"]["host"].as_str();
                let held =
                    host.is_some_and(|host| self.is_in_the_way(key, route, host) || !self.is_proven(route, host));
                let held = held || is_taken_by_none(route);
                // A Route that requests a Router waits for that Router.
                let adopted = route["spec"]["adopted"]["router"].as_str();
                let asked = adopted.or(route["metadata"]["annotations"]["signpost.dev/move-to"].as_str());
                // One that shares its host waits for the Router of the first Route with it.
                let shared = host.filter(|_| adopted.is_none());
                let leader = shared.and_then(|host| self.host_leader(key, host)).map(|(_, router)| router);
                let is_meant = |router: &Value| {
                    let name = &router["metadata"]["name"];
                    // Those of sources take only hosts that their own routers admit.
                    let is_of_source = !router["metadata"]["labels"][SOURCE_LABEL].is_null();
                    asked.is_none_or(|asked| name == asked)
                        && leader.as_ref().is_none_or(|leader| name == leader)
                        && (adopted.is_some() || !is_of_source)
                };
                if !held && routers.iter().any(|(_, router)| is_meant(router) && takes(router)) {
                    unrest.push(format!("{key} has no binding: {}", conditions(route)));
                }
                continue;
            };
            if bound_uid(binding) != uid {
                unrest.push(format!("the binding of {key} is another Route's"));
            } else if route["status"]["phase"] != "scheduled"
                || route["status"]["router"] != binding["spec"]["router"]
                || route["status"]["names"] != binding["spec"]["names"]
            {
                unrest.push(format!("{key} does not report its Router: {}", conditions(route)));
            } else if self.get(router::ROUTER.key_prefix, text(&binding["spec"]["router"])).is_some() {
                let has_instances = text(&binding["spec"]["router"]) == WITH_INSTANCES;
                let is_backed = !has_instances || self.is_backed(key);
                let found = reason(route, "ResolvedRefs");
                let is_expected = match (has_instances, is_backed) {
                    (false, _) => found.is_empty(),
                    (true, true) => found == "ResolvedRefs",
                    (true, false) => ["BackendNotFound", "NoReadyEndpoints"].contains(&found),
                };
                if !is_expected || (!is_backed && is_true(route, "Ready")) {
                    unrest.push(format!("{key} has an endpoint: {is_backed}, and {}", conditions(route)));
                }
                // A Route whose path became that of an older one keeps its Router.
                let host = route["spec"]["host"].as_str();
                let has_path = host.is_none_or(|host| !self.is_in_the_way(key, route, host));
                let admitted = (!self.verify_hosts && has_path).then_some("Admitted");
                for kind in ["Scheduled", "Resolvable"]
                    .into_iter()
                    .chain(is_backed.then_some("Ready"))
                    .chain(admitted)
                    .filter(|kind| !is_true(route, kind))
                {
                    unrest.push(format!("{key} is not {kind}: {}", conditions(route)));
                }
                if is_true(route, "Ready") && kstatus(route) != "Current" {
                    unrest.push(format!("{key} is {} by kstatus: {}", kstatus(route), conditions(route)));
                }
                if observed(route, "Ready") != route["metadata"]["generation"].as_i64() {
                    unrest.push(format!("{key} is Ready at an earlier generation: {}", conditions(route)));
                }
                let router =
                    self.get(router::ROUTER.key_prefix, text(&binding["spec"]["router"])).expect("it is there");
                let expected = self.answered_of(router);
                for (server, db) in self.running() {
                    let found = |name: &Name| (ask(db, name), addresses(db, name));
                    // An alias has only its CNAME as the answer, if another zone follows.
                    let is_right = |name: &Name| match name.to_string().ends_with(ALIASES) {
                        true => ask(db, name) == Rcode::NOERROR,
                        false => found(name) == (Rcode::NOERROR, expected.clone()),
                    };
                    let wrong = names(route).into_iter().filter(|name| !is_right(name));
                    unrest.extend(wrong.map(|name| format!("{server} answers {:?} for {name}", found(&name))));
                }
            }
            // The admission of its host decides the Router of an adopted Route.
            let is_adopted = !route["spec"]["adopted"].is_null();
            if is_adopted && binding["spec"]["router"] != route["spec"]["adopted"]["router"] {
                unrest.push(format!("{key} is not on the Router that admitted its host"));
            }
            let shared = route["spec"]["host"].as_str().filter(|_| !is_adopted);
            let leader = shared.and_then(|host| self.host_leader(key, host));
            let follows = leader.as_ref().is_some_and(|(leader, _)| leader != key);
            if let Some((leader, router)) = leader.filter(|(_, router)| binding["spec"]["router"] != router.as_str())
                && self.get(router::ROUTER.key_prefix, &router).is_some_and(takes)
            {
                unrest.push(format!("{key} is not on {router} like {leader}, which has its host"));
            }
            let is_asked = !route["metadata"]["annotations"]["signpost.dev/move-to"].is_null();
            let to = text(&route["metadata"]["annotations"]["signpost.dev/move-to"]);
            if to != text(&binding["spec"]["router"])
                && self.get(router::ROUTER.key_prefix, to).is_some_and(takes)
                && !is_taken_by_none(route)
                && !follows
                && !is_adopted
            {
                unrest.push(format!("{key} has a request to move to {to}: {}", conditions(route)));
            }
            let drains = self.get(router::ROUTER.key_prefix, text(&binding["spec"]["router"]));
            let drains = drains.is_some_and(|router| router["spec"]["state"] == "draining");
            if is_true(route, "MovePending") && !is_asked && !drains && !follows {
                unrest.push(format!("{key} reports a pending move that is not requested: {}", conditions(route)));
            }
            if route["status"]["formerNames"] != binding["spec"]["formerNames"] {
                unrest.push(format!("{key} does not report its former names"));
            }
        }
        for (key, binding) in self.all(route_binding::ROUTE_BINDING.key_prefix) {
            if !self.is_there(&bound_uid(binding)) {
                unrest.push(format!("the binding {key} has no Route"));
            }
        }
        self.unrest_outside(&mut unrest);
        self.unrest_of_sources(&mut unrest);
        for (key, claim) in self.all(name_claim::NAME_CLAIM.key_prefix) {
            for uid in holders(claim) {
                match self.all(route::ROUTE.key_prefix).find(|(_, route)| route["metadata"]["uid"] == uid.as_str()) {
                    None => unrest.push(format!("the claim {key} is held by a Route that is gone")),
                    Some((of, route))
                        if claim["spec"]["type"] == "host" && !self.is_proven(route, text(&route["spec"]["host"])) =>
                    {
                        unrest.push(format!("the host {key} is held by {of}, which has not proven it"));
                    }
                    _ => {}
                }
            }
            for (name, path) in paths_of(claim).filter(|_| claim["spec"]["type"] == "host") {
                let of = format!("{}/{name}", text(&claim["spec"]["holder"]["namespace"]));
                let route = self.get(route::ROUTE.key_prefix, &of);
                if route.is_some_and(|route| prefix(route["spec"]["path"].as_str()) != path) {
                    unrest.push(format!("the claim {key} has the path {path} for {of}, which has another one"));
                }
            }
        }
        let holds = self.all(deletion_hold::DELETION_HOLD.key_prefix);
        unrest.extend(holds.map(|(name, _)| format!("DeletionHold {name} is still there")));
        let running = self.published.servers.values().filter(|server| server.db.is_some());
        let named: BTreeMap<Name, Serial> = self
            .all(zone::ZONE.key_prefix)
            .filter_map(|(key, zone)| Some((key.parse().ok()?, newest_version(zone)?)))
            .collect();
        // A server that counted on alone, and returned to contents in the ledger, stays ahead of it until the next change.
        let as_named = |apex: &Name, serial: Serial| named.get(apex).copied().filter(|named| is_older(*named, serial));
        let serials_of = |server: &Server| -> BTreeMap<Name, Option<u32>> {
            let serial = |zone: &Zone| zone.serial().map(|serial| as_named(zone.apex(), serial).unwrap_or(serial).0);
            server.zones.iter().map(|zone| (zone.apex().clone(), serial(zone))).collect()
        };
        let serials: BTreeSet<_> = running.map(|server| format!("{:?}", serials_of(server))).collect();
        if serials.len() > 1 && !self.reused_revisions {
            unrest.push(format!("name servers do not agree: {serials:?}"));
        }
        unrest
    }

    /// Adds the differences between the platform and its environment: the targets of hosts, their owners, and the healthy
    /// addresses.
    fn unrest_outside(&self, unrest: &mut Vec<String>) {
        for (key, route) in self.all(route::ROUTE.key_prefix) {
            let Some(host) = route["spec"]["host"].as_str() else { continue };
            let is_proven = self.is_proven(route, host);
            let is_adopted = !route["spec"]["adopted"].is_null();
            if self.verify_hosts && !is_adopted && is_true(route, "HostVerified") != is_proven {
                unrest.push(format!("the record of {key} is there: {is_proven}, and {}", conditions(route)));
            }
            let leads_to = self.outside.lock().leads_to(host);
            let leads_here = leads_to.is_some_and(|to| {
                let to = to.parse().expect("a name");
                names(route).contains(&to) || self.sharers(key, host).any(|other| names(other).contains(&to))
            });
            let is_bound = route["status"]["phase"] == "scheduled";
            if is_bound && !is_in_zone(&route["spec"]["host"]) && is_true(route, "HostPointsHere") != leads_here {
                unrest.push(format!("{host} leads to {key}: {leads_here}, and {}", conditions(route)));
            }
        }
        for (key, router) in self.all(router::ROUTER.key_prefix) {
            let bound =
                self.all(route_binding::ROUTE_BINDING.key_prefix).map(|(_, binding)| &binding["spec"]["router"]);
            let count = bound.filter(|router| *router == key).count();
            if router["status"]["routes"] != count {
                unrest.push(format!("{key} has {count} routes, and reports {}", router["status"]["routes"]));
            }
            let expected = self.answered_of(router);
            let apex = text(&router["spec"]["dns"]);
            let name: Name = format!("any.{apex}").parse().expect("a name");
            for (server, db) in self.running() {
                let found = addresses(db, &name);
                if found != expected {
                    unrest.push(format!("{server} answers {found:?} for {key}, which should be {expected:?}"));
                }
            }
        }
    }

    /// Adds the differences between the platform and what the routers of the source cluster serve.
    fn unrest_of_sources(&self, unrest: &mut Vec<String>) {
        let Some(admitted) = &self.admitted else { return };
        let objects = self.all(route::ROUTE.key_prefix).chain(self.all(router::ROUTER.key_prefix));
        let derived: BTreeSet<String> =
            objects.filter_map(|(_, object)| derived_name(object)).map(str::to_owned).collect();
        if derived != *admitted {
            unrest.push(format!("the source cluster serves {admitted:?}, and the platform has {derived:?}"));
        }
        for host in admitted {
            let name: Name = format!("{host}.").parse().expect("a name");
            for (server, db) in self.running().filter(|(_, db)| ask(db, &name) != Rcode::NOERROR) {
                unrest.push(format!("{server} answers {:?} for {name} of a source", ask(db, &name)));
            }
        }
    }

    /// Returns the running name servers.
    fn running(&self) -> impl Iterator<Item = (&str, &ZoneDb)> {
        self.published.servers.iter().filter_map(|(name, server)| Some((name.as_str(), &**server.db.as_ref()?)))
    }

    /// Returns the addresses of a Router that must be in answers.
    fn answered_of(&self, router: &Value) -> BTreeSet<IpAddr> {
        let outside = self.outside.lock();
        if router["metadata"]["name"] == WITH_INSTANCES {
            return outside.instances.keys().copied().collect();
        }
        let addresses = router["spec"]["addresses"].as_array().into_iter().flatten();
        let all: BTreeSet<IpAddr> = addresses.filter_map(|address| text(&address["ip"]).parse().ok()).collect();
        if router["spec"]["healthCheck"].is_null() {
            return all;
        }
        let well: BTreeSet<IpAddr> = all.difference(&outside.dead).copied().collect();
        let is_enough = !well.is_empty() && well.len() * 100 >= all.len() * PANIC_PERCENT as usize;
        if is_enough { well } else { all }
    }

    /// Returns whether the owner of a Route's host has created the challenge record.
    fn is_proven(&self, route: &Value, host: &str) -> bool {
        let challenge = &route["status"]["challenge"];
        let is_seen = || self.outside.lock().get(text(&challenge["name"]), "TXT") == challenge["value"].as_str();
        let is_required = self.verify_hosts && route["spec"]["adopted"].is_null();
        !is_required || challenge["value"].is_string() && is_seen() && !host.is_empty()
    }

    /// Requires that all names that are resolvable now stay so.
    pub fn all_is_live(&mut self) {
        let all: Vec<_> = self.all(route::ROUTE.key_prefix).map(|(_, route)| route.clone()).collect();
        all.iter().filter(|route| is_true(route, "Resolvable")).for_each(|route| self.is_live(route));
    }

    /// Returns whether another namespace holds `host`, or an overlapping one, or another Route its path.
    fn is_in_the_way(&self, key: &str, route: &Value, host: &str) -> bool {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let path = prefix(route["spec"]["path"].as_str());
        self.all(name_claim::NAME_CLAIM.key_prefix).any(|(_, claim)| {
            let value = text(&claim["spec"]["value"]);
            let is_held = claim["spec"]["type"] == "host" && !holders(claim).is_empty();
            is_held
                && match claim["spec"]["holder"]["namespace"] == namespace {
                    true => value == host && paths_of(claim).any(|(other, its)| other != name && its == path),
                    false => value == host || covers(value, host) || covers(host, value),
                }
        })
    }

    /// Returns the claim on a host in the namespace of a Route.
    fn claim_on(&self, key: &str, host: &str) -> Option<&Value> {
        let (namespace, _) = key.split_once('/').unwrap_or_default();
        let claims = self.all(name_claim::NAME_CLAIM.key_prefix).map(|(_, claim)| claim);
        let mut of_host =
            claims.filter(|claim| claim["spec"]["type"] == "host" && text(&claim["spec"]["value"]) == host);
        of_host.find(|claim| claim["spec"]["holder"]["namespace"] == namespace)
    }

    /// Returns the first Route with a host that is bound, by its key, and its Router.
    fn host_leader(&self, key: &str, host: &str) -> Option<(String, String)> {
        let (namespace, _) = key.split_once('/').unwrap_or_default();
        paths_of(self.claim_on(key, host)?).find_map(|(name, _)| {
            let key = format!("{namespace}/{name}");
            let binding = self.get(route_binding::ROUTE_BINDING.key_prefix, &key)?;
            Some((key, text(&binding["spec"]["router"]).to_owned()))
        })
    }

    /// Returns the other Routes that share the host of a Route on its Router.
    fn sharers<'a>(&'a self, key: &'a str, host: &str) -> impl Iterator<Item = &'a Value> {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let holders: Vec<&str> =
            self.claim_on(key, host).into_iter().flat_map(paths_of).map(|(name, _)| name).collect();
        let router = self.get(route::ROUTE.key_prefix, key).map(|route| &route["status"]["router"]);
        let is_one = holders.contains(&name);
        let others = holders.into_iter().filter(move |other| is_one && *other != name);
        let routes = others.filter_map(move |other| self.get(route::ROUTE.key_prefix, &format!("{namespace}/{other}")));
        routes.filter(move |route| Some(&route["status"]["router"]) == router)
    }
}
