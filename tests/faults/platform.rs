//! The platform under test: its processes, the objects in its API, and a check that DNS matches them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use signpost_types::v1alpha1::deletion_hold::{Decision, DeletionHold, DeletionHoldKind};
use signpost_types::v1alpha1::route::{NameKind, Route};
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::{SCHEDULER_LEASE, SCHEDULER_LEASE_NAMESPACE};
use tokio::runtime::Runtime;

use crate::model::{Key, Model, Outcome, State};
use signpost_testing::dns::{Asker, RecordType, ResponseCode};
use signpost_testing::{Ports, Server, until};

pub const DOMAIN: &str = "v3.example";
/// The namespace of all routes here.
pub const NAMESPACE: &str = "live";
/// The timeout of a request to the API.
const REQUEST: Duration = Duration::from_secs(30);

/// The finalizer of routes that are held.
const HOLDER: &str = "example.org/holder";

/// The arguments of every process.
const COMMON: [&str; 6] =
    ["--domain", DOMAIN, "--nameserver", "ns1.v3.example=192.0.2.53", "--deletion-hold-threshold", "100"];

/// Arguments for `signpost serve`, with those that every process has.
pub fn arguments<'a>(own: &[&'a str]) -> Vec<&'a str> {
    [own, &COMMON].concat()
}

/// Returns a copy of a kubeconfig that leads to `server` instead, such as `https://127.0.0.1:1234`.
pub fn kubeconfig_to(original: &Path, server: &str, copy: PathBuf) -> PathBuf {
    let text = std::fs::read_to_string(original).expect("the API's process wrote it");
    let lines = text.lines().map(|line| match line.split_once("server:") {
        Some((before, _)) => format!("{before}server: \"{server}\"\n"),
        None => format!("{line}\n"),
    });
    std::fs::write(&copy, lines.collect::<String>()).expect("a folder of the test");
    copy
}

/// Starts `signpost serve` with these arguments and those that every process has.
pub fn start(ports: Ports, own: &[&str]) -> Server {
    Server::start(ports, &arguments(own))
}

/// Returns the same without waiting until it is ready.
pub fn spawn(ports: Ports, own: &[&str]) -> Server {
    Server::spawn(ports, &arguments(own))
}

/// The objects in the API, as an administrator reads and writes them.
pub struct Objects {
    runtime: Runtime,
    client: kube::Client,
}

/// The objects in the API.
#[derive(Default)]
pub struct Present {
    pub routers: Vec<Router>,
    pub routes: Vec<Route>,
}

impl Objects {
    pub fn of(kubeconfig: &Path) -> Objects {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("threads");
        let client = runtime
            .block_on(signpost_control::client::from_kubeconfig(
                kubeconfig,
                REQUEST,
                &signpost_control::client::failover::Servers::default(),
            ))
            .expect("the API's own kubeconfig");
        Objects { runtime, client }
    }

    /// Makes the namespace, two shards, and a route in it for each of `routes`.
    pub fn found(&self, model: &mut Model, routes: usize) {
        let namespace = Patch::Apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let patched = self.runtime.block_on(namespaces.patch(NAMESPACE, &parameters(), &namespace));
        patched.expect("the API is there");
        for (name, addresses) in [("shard1", "192.0.2.1"), ("shard2", "192.0.2.2,192.0.2.3")] {
            self.must(model, Key::Router(name.to_owned()), Some(addresses.to_owned()));
        }
        for number in 0..routes {
            self.must(model, Key::Route(format!("r{number}")), Some("first".to_owned()));
        }
    }

    /// Writes or deletes an object, and records the outcome in `model`.
    pub fn write(&self, model: &mut Model, key: Key, state: State) -> Outcome {
        let outcome = self.runtime.block_on(async {
            match tokio::time::timeout(REQUEST, self.send(&key, state.as_deref())).await {
                Ok(Ok(())) => Outcome::Acknowledged,
                Ok(Err(kube::Error::Api(status))) if status.code != 504 => {
                    Outcome::Refused(status.code, status.message.clone())
                }
                Ok(Err(error)) => Outcome::Doubtful(error.to_string()),
                Err(_) => Outcome::Doubtful("no answer".to_owned()),
            }
        });
        model.note(&key, state, &outcome);
        outcome
    }

    /// Writes it, which must work.
    pub fn must(&self, model: &mut Model, key: Key, state: State) {
        let what = format!("{key} to {state:?}");
        let outcome = self.write(model, key, state);
        assert_eq!(outcome, Outcome::Acknowledged, "{what}");
    }

    async fn send(&self, key: &Key, state: Option<&str>) -> kube::Result<()> {
        let routers: Api<Router> = Api::all(self.client.clone());
        let routes: Api<Route> = Api::namespaced(self.client.clone(), NAMESPACE);
        let (how, gone) = (parameters(), DeleteParams::default());
        match (key, state) {
            (Key::Router(name), None) => routers.delete(name, &gone).await.map(drop),
            (Key::Route(name), None) => routes.delete(name, &gone).await.map(drop),
            (Key::Router(name), Some(addresses)) => {
                let addresses: Vec<_> = addresses.split(',').map(|ip| json!({"ip": ip})).collect();
                // The spare ones take no routes, so that they can be deleted.
                let state = if name.starts_with("spare") { "cordoned" } else { "active" };
                let object = json!({
                    "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name},
                    "spec": {"addresses": addresses, "state": state},
                });
                routers.patch(name, &how, &Patch::Apply(object)).await.map(drop)
            }
            (Key::Route(name), Some(target)) => {
                let object = json!({
                    "apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
                    "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"to": {"name": target}},
                });
                routes.patch(name, &how, &Patch::Apply(object)).await.map(drop)
            }
        }
    }

    /// Makes a route that a finalizer holds.
    pub fn hold(&self, model: &mut Model, name: &str) {
        self.must(model, Key::Route(name.to_owned()), Some("held".to_owned()));
        self.patch(name, json!({"metadata": {"finalizers": [HOLDER]}})).expect("it can be held");
    }

    /// Deletes a Route that [`Self::hold`] created: marks it, checks that it is held, and removes the finalizer.
    pub fn delete_held(&self, model: &mut Model, name: &str) {
        let routes: Api<Route> = Api::namespaced(self.client.clone(), NAMESPACE);
        let deleted = self.runtime.block_on(routes.delete(name, &DeleteParams::default())).expect("it is marked");
        let marked = deleted.left().expect("the finalizer holds it");
        assert!(marked.metadata.deletion_timestamp.is_some());
        self.patch(name, json!({"metadata": {"finalizers": null}})).expect("it is released");
        model.note(&Key::Route(name.to_owned()), None, &Outcome::Acknowledged);
    }

    /// Gives a route an annotation.
    pub fn annotate(&self, name: &str, value: &str) -> kube::Result<()> {
        self.patch(name, json!({"metadata": {"annotations": {"example.org/note": value}}}))
    }

    fn patch(&self, name: &str, patch: serde_json::Value) -> kube::Result<()> {
        let routes: Api<Route> = Api::namespaced(self.client.clone(), NAMESPACE);
        let (how, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.runtime.block_on(routes.patch(name, &how, &patch)).map(drop)
    }

    /// Returns all there is, if the API answers.
    pub fn present(&self) -> Result<Present, String> {
        let routers: Api<Router> = Api::all(self.client.clone());
        let routes: Api<Route> = Api::namespaced(self.client.clone(), NAMESPACE);
        let all = ListParams::default();
        let listed = self.runtime.block_on(async {
            tokio::time::timeout(REQUEST, async { tokio::try_join!(routers.list(&all), routes.list(&all)) }).await
        });
        match listed {
            Ok(Ok((routers, routes))) => Ok(Present { routers: routers.items, routes: routes.items }),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the API does not answer".to_owned()),
        }
    }

    /// Returns the time when the scheduler's leader renewed its Lease, by its own clock, in seconds since 1970.
    pub fn lease_renewed(&self) -> Option<i64> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), SCHEDULER_LEASE_NAMESPACE);
        let lease = self.runtime.block_on(leases.get(SCHEDULER_LEASE)).ok()?;
        Some(lease.spec?.renew_time?.0.as_second())
    }

    /// Waits until the API answers, and checks that it has every acknowledged write and nothing else.
    pub fn check_kept(&self, model: &mut Model, when: &str) {
        let present = until(&format!("{when}: the API lists its objects"), || self.present());
        if let Err(fault) = model.check(&present.states()) {
            panic!("{when}: acknowledged writes are lost:\n{fault}");
        }
    }

    /// Waits until the name server matches the objects, and returns the live names. Approves the deletion holds of deleted Routers, as
    /// an administrator does: a name server that was killed before it saw a deletion finds the Router missing from its first list.
    pub fn check_served_after_approval(&self, model: &Model, dns: SocketAddr, when: &str) -> BTreeSet<String> {
        let mut asker = Asker::new(dns);
        until(&format!("{when}: DNS equals the objects"), || {
            self.approve_deletions(model)?;
            self.present()?.compare(model, &mut asker)
        })
    }

    /// Approves each deletion hold, whose objects must all be Routers that are deleted.
    fn approve_deletions(&self, model: &Model) -> Result<(), String> {
        let (api, gone) = (Api::<DeletionHold>::all(self.client.clone()), model.gone());
        let holds = self.runtime.block_on(api.list(&ListParams::default())).map_err(|error| error.to_string())?;
        for hold in holds.items.iter().filter(|hold| hold.is_undecided()) {
            let status = hold.status.clone().unwrap_or_default();
            let is_gone = |name: &String| gone.contains(&Key::Router(name.clone()));
            assert!(
                hold.spec.kind == DeletionHoldKind::Router && status.names.iter().all(is_gone),
                "a hold of other objects than deleted Routers: {hold:?}"
            );
            let decision = json!({"decision": Decision::Approve, "decidedAt": Time(Timestamp::now())});
            let (name, patch) = (name_of(&hold.metadata), Patch::Merge(json!({"spec": decision})));
            let patched = self.runtime.block_on(api.patch(&name, &PatchParams::default(), &patch));
            patched.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Waits until the name server matches the objects, and returns the live names and the duration.
    pub fn check_served(&self, model: &Model, dns: SocketAddr, when: &str) -> (BTreeSet<String>, Duration) {
        let (begun, mut asker) = (Instant::now(), Asker::new(dns));
        let what = format!("{when}: DNS equals the objects");
        let names = until(&what, || self.present()?.compare(model, &mut asker));
        (names, begun.elapsed())
    }
}

fn parameters() -> PatchParams {
    PatchParams::apply("faults").force()
}

impl Present {
    /// Each object in the model's words.
    pub fn states(&self) -> BTreeMap<Key, String> {
        let routers = self.routers.iter().map(|router| {
            let addresses: Vec<String> = router.spec.addresses.iter().map(|address| address.ip.to_string()).collect();
            (Key::Router(name_of(&router.metadata)), addresses.join(","))
        });
        let routes = self.routes.iter().map(|route| {
            let target = route.spec.to.as_ref().map(|target| target.name.clone());
            (Key::Route(name_of(&route.metadata)), target.unwrap_or_default())
        });
        routers.chain(routes).collect()
    }

    /// Compares the name server with these objects; returns all live names, or the first difference.
    fn compare(&self, model: &Model, asker: &mut Asker) -> Result<BTreeSet<String>, String> {
        let mut live = BTreeSet::new();
        let mut shards: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
        let mut ask = |name: &str| {
            let answer = asker.ask(name, RecordType::A, Duration::from_secs(2));
            answer.ok_or_else(|| format!("{name} is not answered"))
        };
        for router in &self.routers {
            let name = name_of(&router.metadata);
            let addresses: Result<BTreeSet<IpAddr>, _> =
                router.spec.addresses.iter().map(|address| address.ip.to_string().parse()).collect();
            let addresses = addresses.map_err(|error| format!("{name}: {error}"))?;
            let probe = format!("probe.{name}.{DOMAIN}");
            let answer = ask(&probe)?;
            if answer.addresses != addresses {
                return Err(format!("{probe}: {answer:?} instead of {addresses:?}"));
            }
            shards.insert(name, addresses);
            live.insert(probe);
        }
        for route in &self.routes {
            let name = name_of(&route.metadata);
            let status = route.status.as_ref().ok_or_else(|| format!("route {name} has no status"))?;
            let router = status.router.as_ref().ok_or_else(|| format!("route {name} has no router"))?;
            let alias = status.canonical_name.as_ref().ok_or_else(|| format!("route {name} has no alias"))?;
            let system = status.names.iter().find(|name| name.kind == NameKind::System);
            let system = system.ok_or_else(|| format!("route {name} has no system name"))?;
            let addresses = shards.get(router).ok_or_else(|| format!("route {name} is on {router}, which is gone"))?;
            let answer = ask(&system.name)?;
            if answer.addresses != *addresses {
                return Err(format!("{}: {answer:?} instead of {addresses:?}", system.name));
            }
            let answer = ask(alias)?;
            if answer.alias.as_deref() != Some(&system.name) {
                return Err(format!("{alias}: {answer:?} instead of an alias of {}", system.name));
            }
            live.extend([system.name.clone(), alias.clone()]);
        }
        for gone in model.gone() {
            let name = match &gone {
                Key::Router(name) => format!("probe.{name}.{DOMAIN}"),
                Key::Route(name) => alias_of(name),
            };
            let answer = ask(&name)?;
            if answer.rcode != ResponseCode::NXDomain {
                return Err(format!("{gone} is deleted, and {name} is answered with {answer:?}"));
            }
        }
        Ok(live)
    }
}

/// Returns the alias of a route here: nothing else claims its label.
pub fn alias_of(route: &str) -> String {
    format!("{NAMESPACE}-{route}.routes.{DOMAIN}")
}

fn name_of(metadata: &kube::api::ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}
