//! The invariants in calm, after a long time without faults.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use signpost_api::kinds::{deletion_hold, name_claim, route, route_binding, router, zone};
use signpost_dns::wire::Name;
use signpost_dns::zone::{Serial, Zone, ZoneDb};
use signpost_types::names::covers;

use super::published::Server;
use super::{
    Truth, bound_uid, conditions, holder, is_older, is_taken_by_none, is_true, names, newest_version, observed, reason,
    text,
};
use crate::name_server::{Rcode, addresses, ask};
use crate::{PANIC_PERCENT, WITH_INSTANCES};

/// The suffix of alias names.
const ALIASES: &str = ".routes.v3.example.";

impl Truth {
    /// Returns the violations after a long time without faults.
    pub fn unrest(&self) -> Vec<String> {
        let mut unrest = Vec::new();
        let routers: Vec<_> = self.all(router::ROUTER.key_prefix).collect();
        let takes = |router: &Value| router["spec"]["state"].as_str().is_none_or(|state| state == "active");
        for (key, route) in self.all(route::ROUTE.key_prefix) {
            let uid = route["metadata"]["uid"].as_str().unwrap_or_default();
            let Some(binding) = self.get(route_binding::ROUTE_BINDING.key_prefix, key) else {
                let host = route["spec"]["host"].as_str();
                let held = host.is_some_and(|host| self.is_in_the_way(key, host) || !self.is_proven(route, host));
                let held = held || is_taken_by_none(route);
                // A Route that requests a Router waits for that Router.
                let asked = route["metadata"]["annotations"]["signpost.dev/move-to"].as_str();
                let is_meant = |router: &Value| asked.is_none_or(|asked| router["metadata"]["name"] == asked);
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
                let admitted = (!self.verify_hosts).then_some("Admitted");
                for kind in ["Scheduled", "Resolvable"]
                    .into_iter()
                    .chain(is_backed.then_some("Ready"))
                    .chain(admitted)
                    .filter(|kind| !is_true(route, kind))
                {
                    unrest.push(format!("{key} is not {kind}: {}", conditions(route)));
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
            let is_asked = !route["metadata"]["annotations"]["signpost.dev/move-to"].is_null();
            let to = text(&route["metadata"]["annotations"]["signpost.dev/move-to"]);
            if to != text(&binding["spec"]["router"])
                && self.get(router::ROUTER.key_prefix, to).is_some_and(takes)
                && !is_taken_by_none(route)
            {
                unrest.push(format!("{key} has a request to move to {to}: {}", conditions(route)));
            }
            let drains = self.get(router::ROUTER.key_prefix, text(&binding["spec"]["router"]));
            let drains = drains.is_some_and(|router| router["spec"]["state"] == "draining");
            if is_true(route, "MovePending") && !is_asked && !drains {
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
        for (key, claim) in self.all(name_claim::NAME_CLAIM.key_prefix) {
            let Some(uid) = holder(claim) else { continue };
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
            if self.verify_hosts && is_true(route, "HostVerified") != is_proven {
                unrest.push(format!("the record of {key} is there: {is_proven}, and {}", conditions(route)));
            }
            let leads_to = self.outside.lock().leads_to(host);
            let leads_here = leads_to.is_some_and(|to| names(route).contains(&to.parse().expect("a name")));
            let is_bound = route["status"]["phase"] == "scheduled";
            if is_bound && is_true(route, "HostPointsHere") != leads_here {
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
        !self.verify_hosts || challenge["value"].is_string() && is_seen() && !host.is_empty()
    }

    /// Requires that all names that are resolvable now stay so.
    pub fn all_is_live(&mut self) {
        let all: Vec<_> = self.all(route::ROUTE.key_prefix).map(|(_, route)| route.clone()).collect();
        all.iter().filter(|route| is_true(route, "Resolvable")).for_each(|route| self.is_live(route));
    }

    /// Returns whether another Route holds `host`, or an overlapping one in another namespace.
    fn is_in_the_way(&self, key: &str, host: &str) -> bool {
        let namespace = |key: &str| key.split('/').next().unwrap_or_default().to_owned();
        self.all(name_claim::NAME_CLAIM.key_prefix).any(|(_, claim)| {
            let (value, by) = (text(&claim["spec"]["value"]), &claim["spec"]["holder"]);
            let is_other = format!("{}/{}", text(&by["namespace"]), text(&by["name"])) != key;
            let overlaps = by["namespace"] != namespace(key).as_str() && (covers(value, host) || covers(host, value));
            claim["spec"]["type"] == "host" && holder(claim).is_some() && is_other && (value == host || overlaps)
        })
    }
}
