//! Clients that read and write a few objects at random servers, and record what they did.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};

use crate::history::{Action, Operation, Outcome, Version};
use crate::servers::{REGISTERS, Reply, Servers, request};

/// The number of objects: few, so that clients conflict.
const KEYS: u64 = 6;
/// The timeout of a client's request.
const PATIENCE: Duration = Duration::from_secs(6);
/// The longest pause between two requests of a client, in milliseconds.
const PAUSE_MILLISECONDS_MAX: u64 = 8;

/// Random numbers that follow from a seed.
pub struct SeededRandom(TestRng);

impl SeededRandom {
    /// Returns the numbers of one part of a run.
    pub fn new(seed: u64, part: u64) -> Self {
        let bytes: Vec<u8> = [seed, part, 0, 0].iter().flat_map(|number| number.to_le_bytes()).collect();
        SeededRandom(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }
}

/// A run: the servers, and what all clients share.
pub struct Run {
    pub servers: Servers,
    /// The logical clock.
    clock: AtomicU64,
    /// The last value that was written: each write has a value of its own.
    values: AtomicU64,
    /// The newest revision that any client has seen.
    newest: AtomicU64,
}

/// The record of a run: the operations on each key, and the results of lists.
#[derive(Default)]
pub struct Record {
    pub operations: BTreeMap<String, Vec<Operation>>,
    pub lists: Vec<List>,
}

/// A list: its revision, and the objects in it.
pub struct List {
    pub revision: u64,
    pub objects: BTreeMap<String, Version>,
}

impl Run {
    pub fn new(servers: Servers) -> Self {
        Run { servers, clock: AtomicU64::new(0), values: AtomicU64::new(0), newest: AtomicU64::new(0) }
    }

    /// Works as client number `number` until `end`.
    pub async fn work(&self, number: usize, mut draw: SeededRandom, end: Instant) -> Record {
        let mut client = Client { run: self, number, seen: BTreeMap::new(), record: Record::default() };
        while Instant::now() < end {
            client.turn(&mut draw).await;
            tokio::time::sleep(Duration::from_millis(draw.below(PAUSE_MILLISECONDS_MAX))).await;
        }
        client.record
    }

    /// Lists at each server, one after the other, as a client of its own.
    pub async fn list_everywhere(&self, number: usize) -> Record {
        let mut client = Client { run: self, number, seen: BTreeMap::new(), record: Record::default() };
        for server in 0..self.servers.count() {
            let until = Instant::now() + 10 * PATIENCE;
            while !client.list(server, PATIENCE).await {
                assert!(Instant::now() < until, "server {server} does not list");
            }
        }
        client.record
    }

    /// Creates an additional object and returns its revision.
    pub async fn mark(&self, name: &str) -> u64 {
        let until = Instant::now() + 10 * PATIENCE;
        loop {
            let create = request(Method::POST, REGISTERS, "application/json", &object(name, 0, None));
            match self.servers.send(0, create, PATIENCE).await {
                Reply::Response(201, created) => return version(&created).revision,
                // An earlier attempt, whose response was lost.
                Reply::Response(409, _) => {
                    let read = request(Method::GET, &format!("{REGISTERS}/{name}"), "", &Value::Null);
                    if let Reply::Response(200, found) = self.servers.send(0, read, PATIENCE).await {
                        return version(&found).revision;
                    }
                }
                _ => {}
            }
            assert!(Instant::now() < until, "{name} cannot be written");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

struct Client<'a> {
    run: &'a Run,
    number: usize,
    /// The last version of each object that this client has seen.
    seen: BTreeMap<String, Version>,
    record: Record,
}

impl Client<'_> {
    async fn turn(&mut self, draw: &mut SeededRandom) {
        let server = draw.below(self.run.servers.count() as u64) as usize;
        let key = format!("r{}", draw.below(KEYS));
        // Some clients go away in the midst of their requests.
        let patience = if draw.below(50) == 0 { Duration::from_millis(draw.below(5)) } else { PATIENCE };
        let seen = self.seen.get(&key).copied();
        let new = || self.run.values.fetch_add(1, Ordering::SeqCst) + 1;
        let action = match (draw.below(100), seen) {
            (0..8, _) => {
                self.list(server, patience).await;
                return;
            }
            (8..14, _) => Action::ReadFrom(self.run.newest.load(Ordering::SeqCst)),
            (14..38, _) => Action::Read,
            (38..50, _) => Action::Create(new()),
            (50..66, Some(expected)) => Action::Replace { expected, value: new() },
            (66..72, Some(seen)) => Action::Set(seen.value),
            (72..80, Some(seen)) => Action::Swap { expected: seen.value, value: new() },
            (80..84, Some(expected)) => Action::Delete(Some(expected)),
            (84..90, _) => Action::Delete(None),
            _ => Action::Set(new()),
        };
        let invoked = self.run.tick();
        let reply = self.run.servers.send(server, request_of(&key, action), patience).await;
        let outcome = outcome(action, &reply);
        self.note(&key, Operation { client: self.number, server, invoked, returned: 0, action, outcome });
        if matches!(reply, Reply::NotSent) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Lists; whether there was an answer.
    async fn list(&mut self, server: usize, patience: Duration) -> bool {
        let invoked = self.run.tick();
        let reply = self.run.servers.send(server, request(Method::GET, REGISTERS, "", &Value::Null), patience).await;
        let Reply::Response(200, list) = reply else { return false };
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        let objects: BTreeMap<_, _> =
            list["items"].as_array().unwrap().iter().map(|item| (name(item), version(item))).collect();
        let returned = self.run.tick();
        for key in (0..KEYS).map(|number| format!("r{number}")) {
            let outcome = Outcome::Found(objects.get(&key).copied());
            let action = Action::Read;
            self.note(&key, Operation { client: self.number, server, invoked, returned, action, outcome });
        }
        self.record.lists.push(List { revision: revision(&list), objects });
        true
    }

    fn note(&mut self, key: &str, mut operation: Operation) {
        if operation.returned == 0 {
            operation.returned = self.run.tick();
        }
        let version = match (operation.outcome, operation.action.written()) {
            (Outcome::Found(found), _) => found,
            (Outcome::Written(revision), Some(value)) => Some(Version { value, revision }),
            _ => None,
        };
        if let Some(version) = version {
            self.seen.insert(key.to_owned(), version);
            self.run.newest.fetch_max(version.revision, Ordering::SeqCst);
        }
        self.record.operations.entry(key.to_owned()).or_default().push(operation);
    }
}

fn request_of(key: &str, action: Action) -> http::Request<kube::client::Body> {
    let path = format!("{REGISTERS}/{key}");
    let json = "application/json";
    match action {
        Action::Read => request(Method::GET, &path, json, &Value::Null),
        Action::ReadFrom(revision) => {
            request(Method::GET, &format!("{path}?resourceVersion={revision}"), json, &Value::Null)
        }
        Action::Create(value) => request(Method::POST, REGISTERS, json, &object(key, value, None)),
        Action::Replace { expected, value } => request(Method::PUT, &path, json, &object(key, value, Some(expected))),
        Action::Set(value) => {
            request(Method::PATCH, &path, "application/merge-patch+json", &json!({"spec": {"value": value}}))
        }
        Action::Swap { expected, value } => {
            let test = json!({"op": "test", "path": "/spec/value", "value": expected});
            let replace = json!({"op": "replace", "path": "/spec/value", "value": value});
            request(Method::PATCH, &path, "application/json-patch+json", &json!([test, replace]))
        }
        Action::Delete(expected) => {
            let preconditions = expected.map(|version| json!({"resourceVersion": version.revision.to_string()}));
            let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
            request(Method::DELETE, &path, json, &options)
        }
    }
}

fn object(name: &str, value: u64, expected: Option<Version>) -> Value {
    let revision = expected.map(|version| version.revision.to_string());
    let metadata = json!({"name": name, "resourceVersion": revision});
    json!({"apiVersion": "register.example/v1", "kind": "Register", "metadata": metadata, "spec": {"value": value}})
}

/// Returns the version that an object shows.
pub fn version(object: &Value) -> Version {
    Version { value: object["spec"]["value"].as_u64().unwrap(), revision: revision(object) }
}

pub fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Returns the outcome in a reply.
fn outcome(action: Action, reply: &Reply) -> Outcome {
    let is_read = matches!(action, Action::Read | Action::ReadFrom(_));
    let (status, body) = match reply {
        Reply::NotSent => return Outcome::Failed,
        Reply::Lost => return Outcome::Unknown,
        Reply::Response(status, body) => (*status, body),
    };
    match (status, action) {
        (200, Action::Delete(_)) => Outcome::Deleted,
        (200, _) if is_read => Outcome::Found(Some(version(body))),
        (200 | 201, _) => {
            assert_eq!(
                Some(version(body).value),
                action.written(),
                "the response to a write shows another value: {body}"
            );
            Outcome::Written(version(body).revision)
        }
        (404, _) if is_read => Outcome::Found(None),
        (404, _) => Outcome::Absent,
        (409, Action::Create(_)) if body["reason"] == "AlreadyExists" => Outcome::Present,
        (409, Action::Replace { .. } | Action::Delete(Some(_))) => Outcome::Differs,
        (422, Action::Swap { .. }) => Outcome::Differs,
        // Each attempt lost a race, or the server reports that nothing was written.
        (409 | 429 | 503 | 507, _) => Outcome::Failed,
        (500 | 504, _) if is_read => Outcome::Failed,
        (500 | 504, _) => Outcome::Unknown,
        _ => panic!("{action:?}: {status} {body}"),
    }
}
