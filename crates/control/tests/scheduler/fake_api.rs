//! A small Kubernetes API in memory: list, watch, create, replace, merge patch, delete of any kind, with versions.
//!
//! It keeps to what the API conventions say where our client relies on it, and can be told to misbehave: to answer late, to
//! fail before or after the commit, to break watches, to forget its history. Creating a RouteBinding sets the Route's
//! status in the same commit, unless it plays a server that does not know how.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use futures::StreamExt as _;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use signpost_api::identity::Identity;
use signpost_api::names::covers;
use signpost_control::client::in_process;
use tokio::sync::watch;

/// How the API misbehaves; each share is out of 1000 requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Writes that are answered with 409 and not done.
    pub conflicts: u64,
    /// Writes that are answered with 500 and not done.
    pub failures: u64,
    /// Writes that are done and answered with 500.
    pub lost_answers: u64,
    /// Watches that end after an event.
    pub broken_watches: u64,
    /// Watches that tell the events that come together twice, and in the reverse order.
    pub disorder: bool,
    /// Longest delay of any answer, in milliseconds.
    pub delay_longest_millis: u64,
}

/// The API; clones are the same one.
#[derive(Clone)]
pub struct FakeApi {
    state: Arc<Mutex<State>>,
    version: Arc<watch::Sender<u64>>,
    random: Arc<AtomicU64>,
    /// Whether creating a RouteBinding sets the Route's status.
    transactional: bool,
    /// Whether it says that it is our own, and has a binding claim a label that nobody ever claimed.
    our_own: bool,
}

#[derive(Default)]
struct State {
    version: u64,
    uids: u64,
    objects: BTreeMap<Key, Value>,
    history: Vec<Event>,
    /// The version of the last event that was forgotten.
    forgotten: u64,
    faults: Faults,
    down: bool,
    /// Grows when every connection is cut.
    epoch: u64,
    forbidden_watches: bool,
    /// Whether a claim on a host is refused that overlaps one of another namespace.
    guards_overlaps: bool,
    /// Uids of Routes in the order in which they were bound.
    bound: Vec<String>,
    requests: BTreeMap<String, u64>,
    /// The kind of request that waits.
    held: Option<&'static str>,
}

/// Plural, namespace (empty: none), name.
type Key = (String, String, String);

#[derive(Clone)]
struct Event {
    version: u64,
    kind: &'static str,
    plural: String,
    object: Value,
}

struct Target {
    plural: String,
    namespace: String,
    name: String,
    subresource: String,
    query: BTreeMap<String, String>,
}

impl FakeApi {
    pub fn new(seed: u64) -> Self {
        FakeApi {
            state: Arc::default(),
            version: Arc::new(watch::Sender::new(0)),
            random: Arc::new(AtomicU64::new(seed)),
            transactional: true,
            our_own: false,
        }
    }

    /// A server that says it is our own.
    pub fn our_own(self) -> Self {
        FakeApi { our_own: true, ..self }
    }

    /// A server without transactions over two objects.
    pub fn without_transactions(self) -> Self {
        FakeApi { transactional: false, ..self }
    }

    pub fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = Router::new().fallback(move |request: Request| {
            let api = api.clone();
            async move { api.answer(request).await }
        });
        in_process(service, Identity::user("test"))
    }

    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// From now on (or no more) every request fails as if there were no server, and open watches end.
    pub fn set_down(&self, down: bool) {
        {
            let mut state = self.state();
            state.down = down;
            state.epoch += 1;
        }
        self.version.send_modify(|_| ());
    }

    pub fn forbid_watches(&self, forbidden: bool) {
        self.state().forbidden_watches = forbidden;
        self.version.send_modify(|_| ());
    }

    /// Refuses claims on hosts that overlap those of other namespaces, as our own server does.
    pub fn guard_overlaps(&self) {
        self.state().guards_overlaps = true;
    }

    /// From now on requests of this kind, as `POST routebindings`, wait until another kind is held, or none.
    pub fn hold(&self, what: Option<&'static str>) {
        self.state().held = what;
        self.version.send_modify(|_| ());
    }

    /// Forgets all history: watches from before answer 410.
    pub fn forget_history(&self) {
        let mut state = self.state();
        state.forgotten = state.version;
        state.history.clear();
    }

    /// Goes back to an earlier version number, as a server restored from a backup does.
    pub fn go_back_to(&self, version: u64) {
        let mut state = self.state();
        state.version = version;
        state.history.clear();
        state.forgotten = version;
        drop(state);
        self.version.send_replace(version);
    }

    /// Creates or replaces an object without any fault.
    pub fn put(&self, plural: &str, object: Value) -> Value {
        let mut state = self.state();
        let key = key_of(plural, &object);
        let object =
            if state.objects.contains_key(&key) { state.replace(&key, object) } else { state.create(&key, object) };
        self.announce(state);
        object
    }

    pub fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let mut state = self.state();
        state.delete(&(plural.to_owned(), namespace.to_owned(), name.to_owned()));
        self.announce(state);
    }

    /// Deletes and creates under one lock: a watcher that reads late sees both, a lister only the second.
    pub fn recreate(&self, plural: &str, object: Value) {
        let mut state = self.state();
        let key = key_of(plural, &object);
        state.delete(&key);
        state.create(&key, object);
        self.announce(state);
    }

    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.state().objects.get(&(plural.to_owned(), namespace.to_owned(), name.to_owned())).cloned()
    }

    pub fn all(&self, plural: &str) -> Vec<Value> {
        let state = self.state();
        state.objects.iter().filter(|(key, _)| key.0 == plural).map(|(_, object)| object.clone()).collect()
    }

    /// Uids of Routes in the order in which they were bound.
    pub fn bound(&self) -> Vec<String> {
        self.state().bound.clone()
    }

    /// How often each kind of request was made, as `POST routebindings`.
    pub fn requests(&self, what: &str) -> u64 {
        self.state().requests.get(what).copied().unwrap_or(0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn announce(&self, state: MutexGuard<'_, State>) {
        let version = state.version;
        drop(state);
        self.version.send_replace(version);
    }

    /// SplitMix64: the same faults for the same seed, as far as the order of requests is the same.
    fn random(&self) -> u64 {
        let mut z = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn happens(&self, share: u64) -> bool {
        self.random() % 1000 < share
    }

    async fn answer(&self, request: Request) -> Response {
        if request.uri().path() == "/version" {
            let version = if self.our_own { "v1.32.0+signpost.0" } else { "v1.32.0" };
            let texts = ["gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"];
            let mut answer: Value = texts.iter().map(|name| ((*name).to_owned(), json!(""))).collect();
            (answer["major"], answer["minor"], answer["gitVersion"]) = (json!("1"), json!("32"), json!(version));
            return json_response(200, &answer);
        }
        let target = parse(&request);
        let method = request.method().clone();
        let body = to_bytes(request.into_body(), 1 << 20).await.expect("a small body");
        let watches = target.query.contains_key("watch");
        let what = format!("{} {}", if watches { "WATCH" } else { method.as_str() }, target.plural);
        *self.state().requests.entry(what.clone()).or_default() += 1;
        let mut version = self.version.subscribe();
        while self.state().held == Some(&what) {
            version.changed().await.expect("the API is there as long as it is asked");
        }
        let faults = {
            let state = self.state();
            if state.down {
                return status(503, "ServiceUnavailable", "down");
            }
            if watches && state.forbidden_watches {
                return status(403, "Forbidden", "no watching");
            }
            state.faults
        };
        if faults.delay_longest_millis > 0 {
            tokio::time::sleep(Duration::from_millis(self.random() % faults.delay_longest_millis)).await;
        }
        if method == Method::GET {
            return if target.query.contains_key("watch") { self.watch(&target, faults) } else { self.read(&target) };
        }
        if self.happens(faults.conflicts) {
            return status(409, "Conflict", "injected conflict");
        }
        if self.happens(faults.failures) {
            return status(500, "InternalError", "injected failure");
        }
        let mut state = self.state();
        let answer = self.write(&mut state, &method, &target, &body);
        self.announce(state);
        if self.happens(faults.lost_answers) {
            return status(500, "InternalError", "injected loss of the answer");
        }
        answer
    }

    fn read(&self, target: &Target) -> Response {
        let state = self.state();
        if !target.name.is_empty() {
            return match state.objects.get(&target.key()) {
                Some(object) => json_response(200, object),
                None => status(404, "NotFound", &format!("{} {:?} not found", target.plural, target.name)),
            };
        }
        let mut items: Vec<&Value> = state
            .objects
            .iter()
            .filter(|(key, object)| target.selects(&key.0, object))
            .map(|(_, object)| object)
            .collect();
        let start: usize = target.query.get("continue").and_then(|token| token.parse().ok()).unwrap_or(0);
        let limit: usize = target.query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
        let more = items.len() > start.saturating_add(limit);
        items = items.into_iter().skip(start).take(limit).collect();
        let token = if more { (start + limit).to_string() } else { String::new() };
        json_response(
            200,
            &json!({
                "kind": "List", "apiVersion": "v1", "items": items,
                "metadata": {"resourceVersion": state.version.to_string(), "continue": token},
            }),
        )
    }

    fn watch(&self, target: &Target, faults: Faults) -> Response {
        let from: u64 = target.query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        let mut first = Vec::new();
        let mut seen = from;
        {
            let state = self.state();
            if target.query.get("sendInitialEvents").is_some_and(|send| send == "true") {
                for (_, object) in state.objects.iter().filter(|(key, object)| target.selects(&key.0, object)) {
                    first.push(line("ADDED", object));
                }
                let annotations = json!({"k8s.io/initial-events-end": "true"});
                let metadata = json!({"resourceVersion": state.version.to_string(), "annotations": annotations});
                first.push(line("BOOKMARK", &json!({"kind": "X", "apiVersion": "v1", "metadata": metadata})));
                seen = state.version;
            } else if from < state.forgotten {
                first.push(line("ERROR", &status_object(410, "Expired", "too old resource version")));
                return stream_response(futures::stream::iter(first.into_iter().map(Ok)));
            }
        }
        let (api, target, epoch) = (self.clone(), Arc::new(target.clone_selection()), self.state().epoch);
        let follow = futures::stream::unfold(
            (api, target, seen, self.version.subscribe(), false),
            move |(api, target, mut seen, mut version, ended)| async move {
                if ended {
                    return None;
                }
                loop {
                    version.borrow_and_update();
                    let lines = {
                        let state = api.state();
                        if state.epoch != epoch || state.forbidden_watches || seen < state.forgotten {
                            return None;
                        }
                        let start = state.history.partition_point(|event| event.version <= seen);
                        let events = state.history[start..].iter();
                        let events = events.filter_map(|event| {
                            let kind = if target.selects(&event.plural, &event.object) {
                                event.kind
                            } else if event.plural == target.plural && target.query.contains_key("fieldSelector") {
                                // Whether it was selected before is not kept: who never heard of it passes that over.
                                "DELETED"
                            } else {
                                return None;
                            };
                            Some(line(kind, &event.object))
                        });
                        let mut lines: Vec<String> = events.collect();
                        if faults.disorder {
                            lines = lines.into_iter().rev().flat_map(|line| [line.clone(), line]).collect();
                        }
                        seen = seen.max(state.version);
                        lines
                    };
                    if !lines.is_empty() {
                        let ended = api.happens(faults.broken_watches);
                        let chunk: Result<String, std::io::Error> = Ok(lines.concat());
                        return Some((chunk, (api, target, seen, version, ended)));
                    }
                    if version.changed().await.is_err() {
                        return None;
                    }
                }
            },
        );
        stream_response(futures::stream::iter(first.into_iter().map(Ok)).chain(follow))
    }

    fn write(&self, state: &mut State, method: &Method, target: &Target, body: &[u8]) -> Response {
        let key = target.key();
        let sent: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let sent_version = sent["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let stored = state.objects.get(&key).cloned();
        let differs = |stored: &Value| {
            sent_version.as_ref().is_some_and(|version| stored["metadata"]["resourceVersion"] != version.as_str())
        };
        match (method.as_str(), stored) {
            ("POST" | "PUT", _) if state.overlaps(&target.plural, &sent) => {
                let mut refusal = status_object(422, "Invalid", "it overlaps");
                refusal["details"] = json!({"causes": [{"field": "spec.value", "reason": "FieldValueForbidden"}]});
                json_response(422, &refusal)
            }
            ("POST", _) => {
                let mut key = target.key();
                key.2 = sent["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                if state.objects.contains_key(&key) {
                    return status(409, "AlreadyExists", &format!("{} {:?} already exists", key.0, key.2));
                }
                if key.0 == "routebindings"
                    && let Some(refusal) = self.bind(state, &key, &sent)
                {
                    return refusal;
                }
                json_response(201, &state.create(&key, sent))
            }
            (_, None) => status(404, "NotFound", &format!("{} {:?} not found", key.0, key.2)),
            (_, Some(stored)) if differs(&stored) => status(409, "Conflict", "the object has been modified"),
            ("PUT", Some(_)) => {
                if key.0 == "routebindings"
                    && self.transactional
                    && let Some(refusal) = rebind(state, &key, &sent)
                {
                    return refusal;
                }
                json_response(200, &state.replace(&key, sent))
            }
            ("PATCH", Some(stored)) => {
                let mut changed = stored.clone();
                let mut patch = sent;
                if target.subresource == "status" {
                    patch = json!({"status": patch["status"]});
                }
                json_patch::merge(&mut changed, &patch);
                if changed == stored {
                    return json_response(200, &stored);
                }
                json_response(200, &state.replace(&key, changed))
            }
            ("DELETE", Some(stored)) => {
                let uid = &sent["preconditions"]["uid"];
                if !uid.is_null() && *uid != stored["metadata"]["uid"] {
                    return status(409, "Conflict", "the uid is another");
                }
                if key.0 == "routes" {
                    state.delete(&("routebindings".to_owned(), key.1.clone(), key.2.clone()));
                }
                state.delete(&key);
                json_response(200, &status_object(200, "", "deleted"))
            }
            _ => status(405, "MethodNotAllowed", "no such verb"),
        }
    }

    /// What creating a RouteBinding entails, or why it is refused.
    fn bind(&self, state: &mut State, key: &Key, binding: &Value) -> Option<Response> {
        let spec = &binding["spec"];
        let route_key = ("routes".to_owned(), key.1.clone(), key.2.clone());
        let uid = spec["routeUID"].as_str().unwrap_or_default().to_owned();
        if !self.transactional {
            state.bound.push(uid);
            return None;
        }
        let Some(mut route) = state.objects.get(&route_key).cloned() else {
            return Some(status(404, "NotFound", "no such Route"));
        };
        if route["metadata"]["uid"] != uid.as_str()
            || route["metadata"]["resourceVersion"] != spec["routeResourceVersion"]
        {
            return Some(status(409, "Conflict", "the Route has changed"));
        }
        let claim = ("nameclaims".to_owned(), String::new(), spec["label"].as_str().unwrap_or_default().to_owned());
        match state.objects.get(&claim) {
            Some(claim) if claim["spec"]["holder"]["uid"] == uid.as_str() => {}
            None if self.our_own => {
                let holder = json!({"namespace": key.1, "name": key.2, "uid": uid});
                let spec =
                    json!({"type": "label", "value": claim.2, "holder": holder, "since": "2025-01-01T00:00:00Z"});
                let metadata = json!({"name": claim.2});
                let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": metadata, "spec": spec});
                state.create(&claim, object);
            }
            _ => return Some(status(409, "Conflict", "the label is not claimed")),
        }
        let names = spec["names"].as_array().cloned().unwrap_or_default();
        let host = route["spec"]["host"].as_str().map(str::to_owned);
        let mut route_status = route["status"].as_object().cloned().unwrap_or_default();
        route_status.insert("phase".to_owned(), json!("scheduled"));
        route_status.insert("dns".to_owned(), host.map_or_else(|| names[0]["name"].clone(), Value::from));
        route_status.insert("router".to_owned(), spec["router"].clone());
        route_status.insert("names".to_owned(), Value::from(names));
        route["status"] = Value::Object(route_status);
        state.replace(&route_key, route);
        state.bound.push(uid);
        None
    }
}

/// What replacing a RouteBinding entails, or why it is refused.
fn rebind(state: &mut State, key: &Key, binding: &Value) -> Option<Response> {
    let (spec, before) = (&binding["spec"], state.objects[key]["spec"].clone());
    let route_key = ("routes".to_owned(), key.1.clone(), key.2.clone());
    let Some(mut route) = state.objects.get(&route_key).cloned() else {
        return Some(status(404, "NotFound", "no such Route"));
    };
    let moves = before["router"] != spec["router"] || before["dns"] != spec["dns"];
    if moves && route["metadata"]["resourceVersion"] != spec["routeResourceVersion"] {
        return Some(status(409, "Conflict", "the Route has changed"));
    }
    route["status"]["router"] = spec["router"].clone();
    route["status"]["names"] = spec["names"].clone();
    route["status"]["formerNames"] = spec.get("formerNames").cloned().unwrap_or_else(|| json!([]));
    if moves {
        if let Some(Value::Object(annotations)) = route["metadata"].get_mut("annotations") {
            annotations.remove("signpost.dev/move-to");
        }
        let conditions = route["status"].get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
        for condition in conditions.filter(|condition| condition["type"] == "MovePending") {
            condition["status"] = json!("False");
            condition["reason"] = json!("Moved");
        }
    }
    state.replace(&route_key, route);
    None
}

impl State {
    /// Whether a claim is to be refused for what other namespaces hold.
    fn overlaps(&self, plural: &str, sent: &Value) -> bool {
        let host = |claim: &Value| claim["spec"]["value"].as_str().unwrap_or_default().to_owned();
        let is_in_the_way = |(key, claim): (&Key, &Value)| {
            key.0 == "nameclaims"
                && claim["spec"]["type"] == "host"
                && claim["spec"]["releasedAt"].is_null()
                && claim["spec"]["holder"]["namespace"] != sent["spec"]["holder"]["namespace"]
                && (covers(&host(claim), &host(sent)) || covers(&host(sent), &host(claim)))
        };
        let is_host = plural == "nameclaims" && sent["spec"]["type"] == "host";
        self.guards_overlaps && is_host && self.objects.iter().any(is_in_the_way)
    }

    fn create(&mut self, key: &Key, mut object: Value) -> Value {
        self.uids += 1;
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(format!("uid-{}", self.uids));
        metadata["resourceVersion"] = json!(self.version.to_string());
        metadata["generation"] = json!(1);
        if !key.1.is_empty() {
            metadata["namespace"] = json!(key.1);
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
        }
        self.record("ADDED", key, object)
    }

    fn replace(&mut self, key: &Key, mut object: Value) -> Value {
        self.version += 1;
        let stored = &self.objects[key];
        let metadata = &mut object["metadata"];
        metadata["uid"] = stored["metadata"]["uid"].clone();
        metadata["creationTimestamp"] = stored["metadata"]["creationTimestamp"].clone();
        metadata["resourceVersion"] = json!(self.version.to_string());
        self.record("MODIFIED", key, object)
    }

    fn record(&mut self, kind: &'static str, key: &Key, object: Value) -> Value {
        self.objects.insert(key.clone(), object.clone());
        self.history.push(Event { version: self.version, kind, plural: key.0.clone(), object: object.clone() });
        object
    }

    fn delete(&mut self, key: &Key) {
        let Some(mut object) = self.objects.remove(key) else { return };
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.history.push(Event { version: self.version, kind: "DELETED", plural: key.0.clone(), object });
    }
}

impl Target {
    fn key(&self) -> Key {
        (self.plural.clone(), self.namespace.clone(), self.name.clone())
    }

    fn selects(&self, plural: &str, object: &Value) -> bool {
        let in_namespace = self.namespace.is_empty() || object["metadata"]["namespace"] == self.namespace.as_str();
        let labelled = self.query.get("labelSelector").is_none_or(|selector| {
            let (label, value) = selector.split_once('=').expect("only equality is known here");
            object["metadata"]["labels"][label] == value
        });
        let chosen = self.query.get("fieldSelector").is_none_or(|selector| {
            let value =
                |field: &str| field.split('.').fold(object, |value, name| &value[name]).as_str().map(str::to_owned);
            match selector.strip_suffix("!=") {
                Some(field) => value(field).is_some_and(|text| !text.is_empty()),
                None => {
                    let (field, wanted) = selector.split_once('=').expect("a field that is there, or has a value");
                    value(field).is_some_and(|text| text == wanted)
                }
            }
        });
        plural == self.plural && in_namespace && labelled && chosen
    }

    fn clone_selection(&self) -> Self {
        Target {
            plural: self.plural.clone(),
            namespace: self.namespace.clone(),
            name: String::new(),
            subresource: String::new(),
            query: self.query.clone(),
        }
    }
}

fn key_of(plural: &str, object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (plural.to_owned(), text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

fn parse(request: &Request) -> Target {
    let mut segments = request.uri().path().trim_matches('/').split('/').map(str::to_owned);
    // `api/v1` or `apis/<group>/<version>`.
    let skipped = if segments.next().as_deref() == Some("api") { 1 } else { 2 };
    let rest: Vec<String> = segments.skip(skipped).collect();
    let at = |index: usize| rest.get(index).cloned().unwrap_or_default();
    let query = request.uri().query().unwrap_or_default().split('&').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), value.replace("%3D", "=").replace("%2F", "/").replace("%21", "!")))
    });
    let query = query.collect();
    if rest.len() >= 3 && rest[0] == "namespaces" {
        Target { plural: at(2), namespace: at(1), name: at(3), subresource: at(4), query }
    } else {
        Target { plural: at(0), namespace: String::new(), name: at(1), subresource: at(2), query }
    }
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn status_object(code: u16, reason: &str, message: &str) -> Value {
    let outcome = if code < 300 { "Success" } else { "Failure" };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": outcome, "message": message, "reason": reason, "code": code,
    })
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    json_response(code, &status_object(code, reason, message))
}

fn json_response(code: u16, value: &Value) -> Response {
    let response = Response::builder().status(StatusCode::from_u16(code).expect("a status code"));
    response.header("content-type", "application/json").body(Body::from(value.to_string())).expect("it is whole")
}

fn stream_response(lines: impl futures::Stream<Item = Result<String, std::io::Error>> + Send + 'static) -> Response {
    Response::builder().header("content-type", "application/json").body(Body::from_stream(lines)).expect("it is whole")
}
