//! A source cluster in the life of a platform: its users and controllers, and its faults.
//!
//! Its Gateways have zones of their own. A Route has a host in the zone of its Gateway, or one in the platform's domain and in no zone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use signpost_control::sources::inventory::Kind;

use super::DOMAIN;
use super::chance::Chance;
use super::life::NAMESPACES;
use super::scenarios::cluster::{Cluster, Served};
use super::truth::Truth;

const GATEWAYS: [&str; 3] = ["gw1", "gw2", "gw3"];
const ROUTES: u64 = 8;
const CONTROLLER: &str = "example.com/envoy";
/// The kinds that faults hide.
const KINDS: [Kind; 5] = [Kind::Gateway, Kind::GatewayClass, Kind::HTTPRoute, Kind::ListenerSet, Kind::Namespace];

pub struct SourceCluster {
    pub cluster: Cluster,
    chance: Chance,
    truth: Arc<Mutex<Truth>>,
    gateways: BTreeSet<&'static str>,
    /// The Gateway of each Route, and whether its controller has accepted it; `None`: it reports nothing.
    routes: BTreeMap<u64, (&'static str, Option<bool>)>,
}

impl SourceCluster {
    /// Returns a cluster with a few objects.
    pub fn new(truth: Arc<Mutex<Truth>>, chance: Chance) -> Self {
        let cluster = Cluster::new();
        cluster.put(
            Kind::GatewayClass,
            json!({"metadata": {"name": "envoy"}, "spec": {"controllerName": CONTROLLER}, "status": accepted("True")}),
        );
        for namespace in NAMESPACES {
            cluster.put(Kind::Namespace, json!({"metadata": {"name": namespace}}));
        }
        let mut cluster = SourceCluster { cluster, chance, truth, gateways: BTreeSet::new(), routes: BTreeMap::new() };
        GATEWAYS.iter().take(2).for_each(|name| cluster.put_gateway(name));
        for number in 0..4 {
            cluster.put_route(number, GATEWAYS[number as usize % 2], Some(true));
        }
        cluster
    }

    /// Returns the zones and the hosts that the routers of the cluster serve.
    pub fn admitted(&self) -> BTreeSet<String> {
        let zones = self.gateways.iter().map(|name| zone(name));
        let is_admitted = |(_, (gateway, accepted)): &(&u64, &(&str, Option<bool>))| {
            self.gateways.contains(gateway) && *accepted == Some(true)
        };
        let routes = self.routes.iter().filter(is_admitted);
        zones.chain(routes.map(|(number, (gateway, _))| host(*number, gateway))).collect()
    }

    /// Performs one random action of a user or a controller, or begins or ends a fault.
    pub fn act(&mut self) {
        let number = self.chance.below(ROUTES);
        let name = *self.chance.one_of(&GATEWAYS).expect("some");
        let kind = *self.chance.one_of(&KINDS).expect("some");
        let known = self.routes.get(&number).copied();
        match (self.chance.below(16), known) {
            (0 | 1, None) => self.put_route(number, name, Some(true)),
            // Its controller removes its entry, as during a restart, and writes it again.
            (2, Some((gateway, _))) => self.put_route(number, gateway, None),
            (3, Some((gateway, _))) => self.put_route(number, gateway, Some(true)),
            (4, Some(_)) => self.put_route(number, name, Some(true)),
            (5, Some((gateway, _))) => self.put_route(number, gateway, Some(false)),
            (6, Some(_)) => self.delete_route(number),
            (7, _) if self.chance.below(3) == 0 && self.gateways.contains(name) => self.delete_gateway(name),
            (7 | 8, _) => self.put_gateway(name),
            (9, _) => self.fault(format!("{kind:?} is forbidden"), |cluster| cluster.forbid(kind, true)),
            (10, _) => self.fault(format!("lists of {kind:?} are empty"), |cluster| cluster.empty(kind, true)),
            (11, _) if kind != Kind::Namespace => {
                self.fault(format!("{kind:?} is not served"), |cluster| cluster.serve(kind, Served::No));
            }
            (12, _) => self.fault("it is away".to_owned(), |cluster| cluster.set_down(true)),
            (13..15, _) => self.heal(),
            _ => {}
        }
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.fault("its faults end".to_owned(), Cluster::heal);
    }

    /// Makes each controller report about each Route.
    pub fn settle(&mut self) {
        let silent = self.routes.iter().filter(|(_, (_, accepted))| accepted.is_none());
        let silent: Vec<_> = silent.map(|(number, (gateway, _))| (*number, *gateway)).collect();
        silent.into_iter().for_each(|(number, gateway)| self.put_route(number, gateway, Some(true)));
    }

    fn fault(&self, what: String, begin: impl FnOnce(&Cluster)) {
        self.truth.lock().note(format!("the source cluster: {what}"));
        begin(&self.cluster);
    }

    fn put_gateway(&mut self, name: &'static str) {
        let address = format!("203.0.113.{}", 1 + self.chance.below(200));
        self.truth.lock().note(format!("Gateway {name} has {address}"));
        self.gateways.insert(name);
        let all = json!({"namespaces": {"from": "All"}});
        self.cluster.put(
            Kind::Gateway,
            json!({
                "metadata": {"name": name, "namespace": "infra"},
                "spec": {"gatewayClassName": "envoy", "listeners": [
                    {"name": "https", "hostname": format!("*.{}", zone(name)), "port": 443, "protocol": "HTTPS",
                     "allowedRoutes": all},
                    {"name": "any", "port": 80, "protocol": "HTTP", "allowedRoutes": all},
                ]},
                "status": {
                    "addresses": [{"value": address}], "conditions": [{"type": "Programmed", "status": "True"}],
                },
            }),
        );
    }

    fn delete_gateway(&mut self, name: &'static str) {
        self.truth.lock().note(format!("Gateway {name} is deleted"));
        self.gateways.remove(name);
        self.forget_refused();
        self.cluster.delete(Kind::Gateway, &format!("infra/{name}"));
    }

    fn put_route(&mut self, number: u64, gateway: &'static str, is_accepted: Option<bool>) {
        self.truth.lock().note(format!("HTTPRoute r{number} on {gateway} is accepted: {is_accepted:?}"));
        self.routes.insert(number, (gateway, is_accepted));
        self.forget_refused();
        let parent = json!({"name": gateway, "namespace": "infra"});
        let entry = |is_accepted: bool| {
            let mut entry = accepted(if is_accepted { "True" } else { "False" });
            entry["parentRef"] = parent.clone();
            entry["controllerName"] = CONTROLLER.into();
            entry
        };
        let namespace = NAMESPACES[number as usize % NAMESPACES.len()];
        self.cluster.put(
            Kind::HTTPRoute,
            json!({
                "metadata": {"name": format!("r{number}"), "namespace": namespace},
                "spec": {"hostnames": [host(number, gateway)], "parentRefs": [parent]},
                "status": {"parents": is_accepted.map(entry).into_iter().collect::<Vec<_>>()},
            }),
        );
    }

    fn delete_route(&mut self, number: u64) {
        self.truth.lock().note(format!("HTTPRoute r{number} is deleted"));
        self.routes.remove(&number);
        self.forget_refused();
        let namespace = NAMESPACES[number as usize % NAMESPACES.len()];
        self.cluster.delete(Kind::HTTPRoute, &format!("{namespace}/r{number}"));
    }

    /// Permits the withdrawal of the zones and hosts that no router serves any more.
    fn forget_refused(&self) {
        let zones = self.gateways.iter().map(|name| zone(name));
        let is_refused =
            |(gateway, accepted): &(&str, Option<bool>)| !self.gateways.contains(gateway) || *accepted == Some(false);
        let routes = self.routes.iter().filter(|(_, route)| !is_refused(route));
        let served: BTreeSet<String> =
            zones.chain(routes.map(|(number, (gateway, _))| host(*number, gateway))).collect();
        self.truth.lock().kept.retain(|name| served.contains(name));
    }
}

fn zone(gateway: &str) -> String {
    format!("{gateway}.{DOMAIN}")
}

/// Returns the host of a Route: each fourth one is in no zone.
fn host(number: u64, gateway: &str) -> String {
    match number % 4 {
        3 => format!("own{number}.{DOMAIN}"),
        _ => format!("r{number}.{}", zone(gateway)),
    }
}

fn accepted(status: &str) -> Value {
    json!({"conditions": [{"type": "Accepted", "status": status}]})
}
