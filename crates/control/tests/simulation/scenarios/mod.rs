//! Scenarios: the exact behavior of the client and the scheduler in a situation that a test creates, including texts and numbers
//! of requests. They use the API of the simulation, and the invariants of [`Truth`](crate::truth::Truth) also hold in them.

mod adopted;
mod backends;
pub mod cluster;
mod conformance;
mod holds;
mod hosts;
mod instances;
mod lease;
mod moves;
mod names;
mod placement;
mod reflector;
mod scheduling;
mod sources;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use signpost_api::identity::USER_CONTROLLER;
use signpost_api::kinds::{deletion_hold, endpoint_slice, service, zone};

use crate::api::{Api, Behaviour};
use crate::chance::Chance;
use crate::connection::{Connection, Weather};
use crate::system::{VirtualTime, mix};
use crate::truth::Truth;

/// The API of a scenario, and the one connection that all of its processes share.
struct Scene {
    api: Api,
    connection: Connection,
    /// The number of objects created.
    made: Mutex<u64>,
    time: Option<VirtualTime>,
}

impl Scene {
    /// Starts a scene in virtual time, which needs only the API.
    async fn start(behaviour: Behaviour) -> Scene {
        let time = VirtualTime::begin();
        let mut scene = Scene::in_real_time(behaviour).await;
        scene.time = Some(time);
        scene
    }

    /// Returns a scene for scenarios with sockets, in which time must pass for both ends.
    async fn in_real_time(behaviour: Behaviour) -> Scene {
        let chance = Chance::new(1);
        // The leader in a scenario has no Lease.
        let truth = Arc::new(Mutex::new(Truth::new(None, Arc::default())));
        let api = Api::start(behaviour, truth, chance).await;
        let connection = api.connection("scenario");
        connection.keep_events();
        Scene { api, connection, made: Mutex::default(), time: None }
    }

    fn client(&self) -> kube::Client {
        self.connection.client(USER_CONTROLLER)
    }

    fn set_weather(&self, weather: Weather) {
        *self.api.weather.lock() = weather;
    }

    /// Sets whether the connection is down; open watches end.
    async fn set_down(&self, down: bool) {
        self.connection.cut(down);
        if down {
            self.api.restart().await;
        }
    }

    /// Creates or replaces an object, bypassing the rules of the server.
    fn put(&self, plural: &str, mut object: Value) -> Value {
        let key = key_of(plural, &object);
        let mut made = self.made.lock();
        *made += 1;
        let before = self.get_by(&key);
        let metadata = &mut object["metadata"];
        match before {
            Some(before) => {
                metadata["uid"] = before["metadata"]["uid"].clone();
                metadata["creationTimestamp"] = before["metadata"]["creationTimestamp"].clone();
            }
            None => {
                metadata["uid"] = json!(format!("00000000-0000-4000-8000-{:012x}", mix(*made) >> 16));
                metadata["generation"] = json!(1);
                if metadata["creationTimestamp"].is_null() {
                    metadata["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
                }
            }
        }
        self.api.put(key, Some(&object));
        object
    }

    fn delete(&self, plural: &str, namespace: &str, name: &str) {
        self.api.put(key(plural, namespace, name), None);
    }

    /// Deletes and creates in one moment: a watcher that reads late sees both, a lister only the second.
    fn recreate(&self, plural: &str, object: Value) {
        self.api.put(key_of(plural, &object), None);
        self.put(plural, object);
    }

    fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.get_by(&key(plural, namespace, name))
    }

    fn get_by(&self, key: &str) -> Option<Value> {
        self.api.truth.lock().get("", key).cloned()
    }

    fn all(&self, plural: &str) -> Vec<Value> {
        let truth = self.api.truth.lock();
        truth.all(prefix(plural)).map(|(_, object)| object.clone()).collect()
    }

    /// Counts objects without copies of them, for the conditions of `until`.
    fn count(&self, plural: &str, is_one: impl Fn(&Value) -> bool) -> usize {
        self.api.truth.lock().all(prefix(plural)).filter(|(_, object)| is_one(object)).count()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || !self.api.truth.lock().is_broken(), "an invariant was broken");
    }
}

fn prefix(plural: &str) -> &'static str {
    match plural {
        "namespaces" => "/core/namespaces/",
        "events" => "/core/events/",
        "leases" => "/coordination.k8s.io/leases/",
        "routers" => "/signpost.dev/routers/",
        "routes" => "/signpost.dev/routes/",
        "routebindings" => "/signpost.dev/routebindings/",
        "nameclaims" => "/signpost.dev/nameclaims/",
        "zones" => zone::ZONE.key_prefix,
        "deletionholds" => deletion_hold::DELETION_HOLD.key_prefix,
        "services" => service::SERVICE.key_prefix,
        "endpointslices" => endpoint_slice::ENDPOINT_SLICE.key_prefix,
        other => panic!("{other} are not in any scenario"),
    }
}

fn key(plural: &str, namespace: &str, name: &str) -> String {
    let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    format!("{}{namespace}{name}", prefix(plural))
}

fn key_of(plural: &str, object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    key(plural, text("namespace"), text("name"))
}

/// Waits until `done`, for at most five minutes: far longer than anything here takes, even on a busy machine.
async fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(300);
    while !done() {
        assert!(tokio::time::Instant::now() < deadline, "it never came: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn router(name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name},
        "spec": {"dns": format!("{name}.v3.example"), "addresses": [{"ip": "192.0.2.1"}]},
    });
    json_patch::merge(&mut object["spec"], spec);
    object
}

fn route(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
        "metadata": {"namespace": namespace, "name": name}, "spec": spec, "status": {"phase": "new"},
    })
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn condition(object: &Value, kind: &str) -> Option<(String, String, String)> {
    let conditions = object["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}
