//! A source cluster: a small API server of any kinds, with the faults that sources meet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::{Request, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use signpost_control::sources::inventory::Kind;
use signpost_control::sources::{ANNOTATION_PREFIXES, Family, Mode, Settings};
use tokio::sync::watch;

/// Clones share it.
#[derive(Clone)]
pub struct Cluster(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Announces each revision, and each break of the watches.
    bell: watch::Sender<u64>,
}

/// Whether a kind is served.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Served {
    Yes,
    /// The definition is being removed.
    Removing,
    No,
}

#[derive(Default)]
struct State {
    revision: u64,
    kinds: BTreeMap<Kind, BTreeMap<String, Value>>,
    served: BTreeMap<Kind, Served>,
    /// The kinds that may not be listed or watched.
    forbidden: BTreeSet<Kind>,
    /// The kinds whose lists are empty by mistake.
    emptied: BTreeSet<Kind>,
    /// Whether no request is answered.
    is_down: bool,
    events: Vec<(u64, Kind, &'static str, Value)>,
    /// The oldest revision of which events are kept.
    compacted: u64,
    /// The number of times that all watches were cut.
    breaks: u64,
    uids: u64,
}

/// Returns the settings of a source that publishes the Gateways of the cluster.
pub fn settings() -> Settings {
    Settings {
        modes: BTreeMap::from([(Family::Gateway, Mode::Publish)]),
        domain: "v3.example".to_owned(),
        domains: Vec::new(),
        gateway_controllers: Vec::new(),
        ingress_classes: BTreeMap::new(),
        namespace_selector: None,
        annotation_prefixes: ANNOTATION_PREFIXES.map(str::to_owned).into(),
        private_addresses: false,
    }
}

impl Cluster {
    /// Returns a cluster that serves all kinds that sources read.
    pub fn new() -> Self {
        let served = Kind::ALL.into_iter().map(|kind| (kind, Served::Yes)).collect();
        let state = State { revision: 1, served, ..State::default() };
        Cluster(Arc::new(Shared { state: Mutex::new(state), bell: watch::Sender::new(0) }))
    }

    pub fn client(&self) -> kube::Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let cluster = cluster.clone();
            async move { cluster.answer(&request.map(Body::new)) }
        });
        kube::Client::new(service, "default")
    }

    /// Creates or replaces an object.
    pub fn put(&self, kind: Kind, mut object: Value) {
        self.change(|state| {
            let key = key_of(&object);
            state.revision += 1;
            let before = state.kinds.entry(kind).or_default().get(&key);
            let (what, uid) = match before {
                Some(before) => ("MODIFIED", before["metadata"]["uid"].clone()),
                None => {
                    state.uids += 1;
                    ("ADDED", json!(format!("uid-{}", state.uids)))
                }
            };
            let metadata = &mut object["metadata"];
            metadata["uid"] = uid;
            metadata["resourceVersion"] = json!(state.revision.to_string());
            state.kinds.entry(kind).or_default().insert(key, object.clone());
            state.events.push((state.revision, kind, what, object));
        });
    }

    pub fn delete(&self, kind: Kind, key: &str) {
        self.change(|state| state.delete(kind, key));
    }

    /// Deletes an object without an event: watches break, and their revisions are too old.
    pub fn delete_unseen(&self, kind: Kind, key: &str) {
        self.change(|state| {
            state.delete(kind, key);
            state.forget();
        });
    }

    pub fn keys(&self, kind: Kind) -> Vec<String> {
        self.0.state.lock().kinds.get(&kind).into_iter().flat_map(|objects| objects.keys().cloned()).collect()
    }

    /// Removes the definition of a kind as Kubernetes does: its objects are deleted first.
    pub fn remove_definition(&self, kind: Kind) {
        self.change(|state| {
            state.served.insert(kind, Served::Removing);
        });
        for key in self.keys(kind) {
            self.delete(kind, &key);
        }
        self.serve(kind, Served::No);
    }

    pub fn serve(&self, kind: Kind, served: Served) {
        self.change(|state| {
            state.served.insert(kind, served);
            state.forget();
        });
    }

    /// Sets whether a kind may be listed and watched.
    pub fn forbid(&self, kind: Kind, is_forbidden: bool) {
        self.change(|state| {
            if is_forbidden {
                state.forbidden.insert(kind)
            } else {
                state.forbidden.remove(&kind)
            };
            state.forget();
        });
    }

    /// Sets whether lists of a kind are empty by mistake.
    pub fn empty(&self, kind: Kind, is_emptied: bool) {
        self.change(|state| {
            if is_emptied {
                state.emptied.insert(kind)
            } else {
                state.emptied.remove(&kind)
            };
            state.forget();
        });
    }

    pub fn set_down(&self, is_down: bool) {
        self.change(|state| {
            state.is_down = is_down;
            state.breaks += 1;
        });
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.change(|state| {
            state.is_down = false;
            state.forbidden.clear();
            state.emptied.clear();
            state.served.values_mut().for_each(|served| *served = Served::Yes);
            state.forget();
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.state.lock());
        self.0.bell.send_modify(|rings| *rings += 1);
    }

    pub fn answer(&self, request: &Request<Body>) -> Result<Response<Body>, Box<dyn std::error::Error + Send + Sync>> {
        let state = self.0.state.lock();
        if state.is_down {
            return Err("the connection was refused".into());
        }
        let path = request.uri().path().trim_end_matches('/');
        let query = request.uri().query().unwrap_or_default();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        Ok(match parts[..] {
            ["apis"] => whole(&state.groups()),
            ["api", "v1"] => whole(&state.resources("")),
            ["apis", group, "v1"] => whole(&state.resources(group)),
            ["api", "v1", .., plural] => self.objects(&state, "", plural, query),
            ["apis", group, "v1", .., plural] => self.objects(&state, group, plural, query),
            _ => status(StatusCode::NOT_FOUND),
        })
    }

    /// Lists or watches.
    fn objects(&self, state: &State, group: &str, plural: &str, query: &str) -> Response<Body> {
        let is_it = |kind: &&Kind| kind.group() == group && kind.plural() == plural;
        let all = Kind::ALL;
        let Some(kind) = all.iter().find(is_it).copied().filter(|kind| state.served[kind] != Served::No) else {
            return status(StatusCode::NOT_FOUND);
        };
        if state.forbidden.contains(&kind) {
            return status(StatusCode::FORBIDDEN);
        }
        if !query.contains("watch=") {
            let objects = state.kinds.get(&kind).filter(|_| !state.emptied.contains(&kind));
            let items: Vec<&Value> = objects.into_iter().flat_map(BTreeMap::values).collect();
            let list = json!({"kind": format!("{}List", kind.name()), "apiVersion": "v1",
                "metadata": {"resourceVersion": state.revision.to_string()}, "items": items});
            return whole(&list);
        }
        let of = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let after: u64 = of("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or_default();
        if after < state.compacted {
            return status(StatusCode::GONE);
        }
        let (cluster, breaks, bell) = (self.clone(), state.breaks, self.0.bell.subscribe());
        let events = stream::unfold((after, bell), move |(after, mut bell)| {
            let cluster = cluster.clone();
            async move {
                loop {
                    bell.borrow_and_update();
                    {
                        let state = cluster.0.state.lock();
                        if state.breaks != breaks {
                            return None;
                        }
                        let new = |(revision, of, ..): &&(u64, Kind, _, _)| *revision > after && *of == kind;
                        let new: Vec<_> = state.events.iter().filter(new).collect();
                        if let Some((last, ..)) = new.last() {
                            let lines = new
                                .iter()
                                .map(|(_, _, what, object)| format!("{}\n", json!({"type": what, "object": object})));
                            return Some((Bytes::from(lines.collect::<String>()), (*last, bell)));
                        }
                    }
                    bell.changed().await.ok()?;
                }
            }
        });
        Response::new(Body::from_stream(events.map(Ok::<Bytes, std::convert::Infallible>)))
    }
}

impl State {
    fn delete(&mut self, kind: Kind, key: &str) {
        let Some(mut object) = self.kinds.get_mut(&kind).and_then(|objects| objects.remove(key)) else { return };
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.events.push((self.revision, kind, "DELETED", object));
    }

    /// Breaks the watches, and forgets all events.
    fn forget(&mut self) {
        self.revision += 1;
        self.compacted = self.revision;
        self.events.clear();
        self.breaks += 1;
    }

    fn groups(&self) -> Value {
        let served = Kind::ALL.into_iter().filter(|kind| self.served[kind] != Served::No);
        let groups: BTreeSet<&str> = served.map(Kind::group).filter(|group| !group.is_empty()).collect();
        let groups = groups.into_iter().map(|group| {
            let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
            json!({"name": group, "versions": [version], "preferredVersion": version})
        });
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.collect::<Vec<_>>()})
    }

    fn resources(&self, group: &str) -> Value {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.group() == group && self.served[kind] != Served::No);
        let resources = kinds.map(|kind| {
            let mut verbs = vec!["delete", "get", "list", "watch"];
            if self.served[&kind] == Served::Yes {
                verbs.push("create");
            }
            json!({"name": kind.plural(), "singularName": "", "namespaced": true, "kind": kind.name(), "verbs": verbs})
        });
        let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources.collect::<Vec<_>>()})
    }
}

/// Returns the key of an object: its namespace, if it has one, and its name.
pub fn key_of(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().expect("an object has a name");
    object["metadata"]["namespace"].as_str().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

fn whole(body: &Value) -> Response<Body> {
    let response = Response::builder().header("content-type", "application/json");
    response.body(Body::from(body.to_string())).expect("it is whole")
}

fn status(code: StatusCode) -> Response<Body> {
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
        "message": format!("simulated: {reason}"), "code": code.as_u16()});
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(body.to_string())).expect("it is whole")
}
