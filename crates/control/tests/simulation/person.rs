//! The actions of users: on objects of the API, and outside of it.

use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use signpost_api::kinds::{endpoint_slice, route, route_binding, router, service};
use signpost_types::backends::SERVICE_LABEL;
use signpost_types::v1alpha1::SOURCE_LABEL;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::Router;
use tokio::time::sleep;

use super::life::{Life, NAMESPACES};
use super::{AGENTS, DOMAIN, NOWHERE, SHARDS, WITH_INSTANCES, dns_of};

/// The hosts of Routes.
pub const HOSTS: [&str; 4] = ["www.shop.example", "blog.example", "*.blog.example", "eu.blog.example"];

/// The paths of Routes with a host; two of them are equal.
const PATHS: [&str; 4] = ["/", "/", "/api", "/api/"];

impl Life {
    /// Performs one random action.
    pub async fn person(&mut self) {
        let routes = self.own_keys(route::ROUTE.key_prefix);
        let routers = self.own_keys(router::ROUTER.key_prefix);
        let (route, router) = (self.chance.one_of(&routes).cloned(), self.chance.one_of(&routers).cloned());
        match (self.chance.below(23), route, router) {
            (0..5, ..) if routes.len() < 30 => drop(self.create_route().await),
            // Deleted again while it is bound.
            (5, ..) => {
                let key = self.create_route().await;
                sleep(Duration::from_millis(self.chance.below(20))).await;
                self.delete_route(&key).await;
            }
            (6..8, Some(key), _) => {
                self.delete_route(&key).await;
                if self.chance.below(2) == 0 {
                    sleep(Duration::from_millis(self.chance.below(3_000))).await;
                    self.create_route_as(&key).await;
                }
            }
            (8, Some(key), _) if self.chance.below(3) == 0 => {
                let path = *self.chance.one_of(&PATHS).expect("some");
                self.patch_route(&key, json!({"spec": {"path": path}})).await;
            }
            (8, Some(key), _) => {
                let value = self.chance.below(9);
                let patch = match self.chance.below(2) {
                    0 => json!({"metadata": {"labels": {"version": value.to_string()}}}),
                    _ => json!({"spec": {"to": {"weight": 1 + value}}}),
                };
                self.patch_route(&key, patch).await;
            }
            (9 | 10, Some(key), Some(router)) => {
                let to = if self.chance.below(4) == 0 { Value::Null } else { router.into() };
                self.patch_route(&key, json!({"metadata": {"annotations": {"signpost.dev/move-to": to}}})).await;
            }
            (11, _, Some(router)) if router != WITH_INSTANCES => {
                // Once, or several times within a second or two.
                for _ in 0..1 + self.chance.below(2) * self.chance.below(6) {
                    let addresses: Vec<Value> = self.addresses();
                    self.patch_router(&router, json!({"spec": {"addresses": addresses}})).await;
                    sleep(Duration::from_millis(self.chance.below(600))).await;
                }
            }
            (12, _, Some(router)) => {
                let state = *self.chance.one_of(&["active", "active", "cordoned", "draining"]).expect("some");
                self.patch_router(&router, json!({"spec": {"state": state}})).await;
            }
            (13, ..) => {
                let name = format!("shard{}", 1 + self.chance.below(SHARDS));
                self.create_router(&name).await;
            }
            (14, _, Some(router)) => {
                // Users do not delete one that a name resolves to, now or since a move.
                let leads = |binding: &Value| {
                    let former_names = binding["formerNames"].as_array().into_iter().flatten();
                    former_names.chain([binding]).any(|one| one["router"] == *router)
                };
                let prefix = route_binding::ROUTE_BINDING.key_prefix;
                let is_used = self.truth.lock().all(prefix).any(|(_, binding)| leads(&binding["spec"]));
                if !is_used && routers.len() > 1 {
                    self.delete_router(&router).await;
                    if self.chance.below(2) == 0 {
                        sleep(Duration::from_millis(self.chance.below(5_000))).await;
                        self.create_router(&router).await;
                    }
                }
            }
            (16, _, Some(router)) => self.probed(&router).await,
            (15 | 17 | 18, ..) => self.owner(),
            (19, Some(key), _) => self.take_conditions(&key).await,
            (20, Some(key), _) => {
                let is_ready = self.chance.below(2) == 0;
                self.deploy(&key, is_ready).await;
            }
            // A restart, whose result depends on its time.
            (21, Some(key), _) => {
                self.deploy(&key, false).await;
                sleep(Duration::from_millis(self.chance.below(10_000))).await;
                self.deploy(&key, true).await;
            }
            (22, Some(key), _) => {
                self.delete_service(&key).await;
                if self.chance.below(2) == 0 {
                    sleep(Duration::from_millis(self.chance.below(10_000))).await;
                    self.deploy(&key, true).await;
                }
            }
            _ => {}
        }
    }

    /// Adds or removes a health check of a Router, or makes one of its addresses fail or recover.
    async fn probed(&mut self, router: &str) {
        let spec = self.truth.lock().get(router::ROUTER.key_prefix, router).map(|router| router["spec"].clone());
        let Some(spec) = spec.filter(|_| router != WITH_INSTANCES) else { return };
        if spec["healthCheck"].is_null() || self.chance.below(8) == 0 {
            let check = json!({"type": "tcp", "port": 80, "intervalSeconds": 30, "rise": 2, "fall": 2});
            let check = if spec["healthCheck"].is_null() { check } else { Value::Null };
            return self.patch_router(router, json!({"spec": {"healthCheck": check}})).await;
        }
        let addresses: Vec<Value> = spec["addresses"].as_array().cloned().unwrap_or_default();
        let ip = self.chance.one_of(&addresses).and_then(|address| address["ip"].as_str()?.parse::<IpAddr>().ok());
        let Some(ip) = ip else { return };
        let mut outside = self.outside.lock();
        let is_dead = outside.dead.insert(ip) || !outside.dead.remove(&ip);
        self.truth.lock().note(format!("{ip} {}", if is_dead { "dies" } else { "is back" }));
    }

    /// Changes a host's DNS on behalf of its owner: as the platform requires, or contrary to it.
    fn owner(&self) {
        let routes: Vec<Value> =
            self.truth.lock().all(route::ROUTE.key_prefix).map(|(_, route)| route.clone()).collect();
        let with_host: Vec<&Value> = routes.iter().filter(|route| !is_in_zone(&route["spec"]["host"])).collect();
        let with_host: Vec<&Value> = with_host.into_iter().filter(|route| route["spec"]["host"].is_string()).collect();
        let Some(route) = self.chance.one_of(&with_host) else { return };
        let host = route["spec"]["host"].as_str().expect("it has one");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let is_asked = self.chance.below(4) > 0;
        let mut outside = self.outside.lock();
        if let Some(challenge) = text(&route["status"]["challenge"]["name"]).filter(|_| self.chance.below(3) > 0) {
            let record = text(&route["status"]["challenge"]["value"]).filter(|_| is_asked);
            self.truth.lock().note(format!("{challenge} TXT {record:?}"));
            outside.set(&challenge, "TXT", record.as_deref());
        } else {
            let alias = text(&route["status"]["canonicalName"]);
            let alias = if is_asked { alias.map(|alias| alias + ".") } else { Some("elsewhere.example.".to_owned()) };
            self.truth.lock().note(format!("{host} CNAME {alias:?}"));
            outside.set(host, "CNAME", alias.as_deref());
        }
    }

    pub fn keys(&self, prefix: &str) -> Vec<String> {
        self.truth.lock().all(prefix).map(|(key, _)| key.to_owned()).collect()
    }

    /// Returns the keys of the objects that no source wrote.
    fn own_keys(&self, prefix: &str) -> Vec<String> {
        let truth = self.truth.lock();
        let own = truth.all(prefix).filter(|(_, object)| object["metadata"]["labels"][SOURCE_LABEL].is_null());
        own.map(|(key, _)| key.to_owned()).collect()
    }

    fn addresses(&self) -> Vec<Value> {
        let first = self.chance.below(200);
        (0..1 + self.chance.below(3)).map(|next| json!({"ip": format!("198.51.100.{}", first + next)})).collect()
    }

    /// Creates a Route; its key.
    async fn create_route(&mut self) -> String {
        self.made += 1;
        let namespace = *self.chance.one_of(&NAMESPACES).expect("some");
        // A few recurring names, and a few pairs whose default labels are the same.
        let name = match self.chance.below(3) {
            0 => format!("app{}", self.chance.below(6)),
            1 => format!("eu-app{}", self.chance.below(4)),
            _ => format!("r{}", self.made),
        };
        let key = format!("{namespace}/{name}");
        self.create_route_as(&key).await;
        key
    }

    async fn create_route_as(&mut self, key: &str) {
        let (namespace, name) = key.split_once('/').expect("a key");
        let mut spec = json!({"to": {"kind": "Service", "name": name}});
        if self.chance.below(3) == 0 {
            spec["host"] = json!(self.chance.one_of(&HOSTS));
            spec["path"] = json!(self.chance.one_of(&PATHS));
        }
        if self.chance.below(8) == 0 {
            spec["subdomain"] = json!(format!("sub{}", self.chance.below(3)));
        }
        if self.chance.below(4) == 0 {
            spec["tls"] = json!({"termination": "edge"});
        }
        let is_adopted = self.chance.below(8) == 0;
        if is_adopted {
            // The platform does not run the proxies of a source's router.
            let router = *self.chance.one_of(&["shard1", "shard3", "shard4", "shard5"]).expect("some");
            let in_zone = format!("{name}.{namespace}.{}", dns_of(router));
            let host = if self.chance.below(3) == 0 { self.chance.one_of(&HOSTS).expect("some") } else { &*in_zone };
            spec["host"] = json!(host);
            spec["adopted"] = json!({"router": router, "by": "listener https of Gateway infra/eu"});
            spec.as_object_mut().expect("a spec").remove("subdomain");
        }
        let labels = if !is_adopted && self.chance.below(16) == 0 { json!({"pool": NOWHERE}) } else { json!({}) };
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        let route = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": metadata, "spec": spec});
        let api = kube::Api::<Route>::namespaced(self.api.admin(), namespace);
        let (object, parameters) = (object(route), PostParams::default());
        self.write(format!("{}{key}", route::ROUTE.key_prefix), api.create(&parameters, &object)).await;
        self.deploy(key, true).await;
    }

    /// Creates or changes the Service of a Route and its only endpoint.
    async fn deploy(&self, key: &str, is_ready: bool) {
        let (namespace, name) = key.split_once('/').expect("a key");
        let parameters = PatchParams::apply("person").force();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": 80}]}});
        let services = kube::Api::<Service>::namespaced(self.api.admin(), namespace);
        let service = Patch::Apply(service);
        let write = services.patch(name, &parameters, &service);
        self.write(format!("{}{key}", service::SERVICE.key_prefix), write).await;
        let endpoints = json!([{"addresses": ["192.0.2.80"], "conditions": {"ready": is_ready}}]);
        let slice_name = format!("{name}-1");
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": slice_name, "labels": {SERVICE_LABEL: name}}, "endpoints": endpoints,
            "ports": [{"port": 8080}]});
        let slices = kube::Api::<EndpointSlice>::namespaced(self.api.admin(), namespace);
        let slice = Patch::Apply(slice);
        let write = slices.patch(&slice_name, &parameters, &slice);
        self.write(format!("{}{key}-1", endpoint_slice::ENDPOINT_SLICE.key_prefix), write).await;
    }

    async fn delete_service(&self, key: &str) {
        let (namespace, name) = key.split_once('/').expect("a key");
        let services = kube::Api::<Service>::namespaced(self.api.admin(), namespace);
        let parameters = DeleteParams::default();
        self.write(format!("{}{key}", service::SERVICE.key_prefix), services.delete(name, &parameters)).await;
    }

    async fn patch_route(&mut self, key: &str, patch: Value) {
        let (namespace, name) = key.split_once('/').expect("a key");
        let api = kube::Api::<Route>::namespaced(self.api.admin(), namespace);
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.write(format!("{}{key}", route::ROUTE.key_prefix), api.patch(name, &parameters, &patch)).await;
    }

    /// Removes all conditions from a status: their owners restore them.
    async fn take_conditions(&mut self, key: &str) {
        let (namespace, name) = key.split_once('/').expect("a key");
        let api = kube::Api::<Route>::namespaced(self.api.admin(), namespace);
        let patch = Patch::Merge(json!({"status": {"conditions": null}}));
        let parameters = PatchParams::default();
        let write = api.patch_status(name, &parameters, &patch);
        self.write(format!("{}{key}", route::ROUTE.key_prefix), write).await;
    }

    async fn delete_route(&mut self, key: &str) {
        let (namespace, name) = key.split_once('/').expect("a key");
        let api = kube::Api::<Route>::namespaced(self.api.admin(), namespace);
        let parameters = DeleteParams::default();
        self.write(format!("{}{key}", route::ROUTE.key_prefix), api.delete(name, &parameters)).await;
    }

    pub async fn create_router(&mut self, name: &str) {
        let selector = json!({"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": [NOWHERE]}]});
        let (dns, addresses) = (dns_of(name), self.addresses());
        let mut spec = json!({"dns": dns, "addresses": addresses, "routeSelector": selector});
        // Its addresses are those of its instances, or the spec lists them: then only a report shows that there are instances, and
        // the leader gets those of running ones a moment after the Router.
        let has_instances = !self.outside.lock().instances.is_empty();
        if name == WITH_INSTANCES && self.lists_instances && !has_instances {
            spec["addresses"] = AGENTS.iter().map(|(_, ip)| json!({"ip": ip.to_string()})).collect();
        } else if name == WITH_INSTANCES {
            spec["addressesFrom"] = json!({"instances": true});
        }
        let router =
            json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name}, "spec": spec});
        let (api, router, parameters) =
            (kube::Api::<Router>::all(self.api.admin()), object(router), PostParams::default());
        self.write(format!("{}{name}", router::ROUTER.key_prefix), api.create(&parameters, &router)).await;
    }

    async fn patch_router(&mut self, name: &str, patch: Value) {
        let (api, parameters) = (kube::Api::<Router>::all(self.api.admin()), PatchParams::default());
        self.write(format!("{}{name}", router::ROUTER.key_prefix), api.patch(name, &parameters, &Patch::Merge(patch)))
            .await;
    }

    async fn delete_router(&mut self, name: &str) {
        let (api, parameters) = (kube::Api::<Router>::all(self.api.admin()), DeleteParams::default());
        self.write(format!("{}{name}", router::ROUTER.key_prefix), api.delete(name, &parameters)).await;
    }

    /// Writes as a user does: the write succeeds, or is rejected.
    async fn write<T>(&self, key: String, write: impl Future<Output = kube::Result<T>>) {
        self.truth.lock().admin_writes = Some(key.clone());
        let result = pin!(write).await;
        let mut truth = self.truth.lock();
        truth.admin_writes = None;
        if let Err(error) = result {
            truth.note(format!("a person's write of {key} is refused: {error}"));
        }
    }
}

/// Returns whether a host is in a zone of the platform.
pub fn is_in_zone(host: &Value) -> bool {
    host.as_str().is_some_and(|host| host.ends_with(&format!(".{DOMAIN}")))
}

pub fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of a test")
}
