//! A client that watches one kind through any API server, and continues at another one when a server sends nothing.
//!
//! It lists once, at the start. From then on its state comes from events alone, so at the end it equals a list only if no event was lost
//! between two servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::report::Report;
use crate::scene::{API_SERVERS, Scene, is_unavailable};
use signpost_testing::client::Client;
use signpost_testing::until;

/// The maximum silence of a server. Clients write continuously.
const SILENCE: Duration = Duration::from_secs(5);
/// The pause after a watch that ended.
const PAUSE: Duration = Duration::from_millis(200);

/// Takes each event: its type and its object.
pub type Listener = Box<dyn FnMut(&str, &Value) -> Result<(), String> + Send>;

/// A watch of one kind.
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// The resourceVersion of each object.
    state: Mutex<BTreeMap<String, u64>>,
    events: AtomicU64,
    /// The number of switches to another server.
    switches: AtomicU64,
    stop: AtomicBool,
}

impl Watcher {
    /// Watches the objects at `path`.
    pub fn start(scene: &Scene, path: String, report: &Arc<Report>, listener: Listener) -> Watcher {
        let shared = Arc::<Shared>::default();
        let servers = API_SERVERS.map(|name| (scene.client(name), scene.api(name))).to_vec();
        let watch =
            Watch { shared: Arc::clone(&shared), report: Arc::clone(report), servers, path, listener, revision: 0 };
        Watcher { shared, thread: Some(std::thread::spawn(move || watch.run())) }
    }

    /// Returns the objects that it has seen, and their resourceVersions.
    pub fn state(&self) -> BTreeMap<String, u64> {
        self.shared.state.lock().expect("no thread panics with it").clone()
    }

    /// Returns the number of events, and the number of switches to another server.
    pub fn counts(&self) -> (u64, u64) {
        (self.shared.events.load(Ordering::Relaxed), self.shared.switches.load(Ordering::Relaxed))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Watch {
    shared: Arc<Shared>,
    report: Arc<Report>,
    servers: Vec<(Client, SocketAddr)>,
    path: String,
    listener: Listener,
    revision: u64,
}

impl Watch {
    fn run(mut self) {
        let body = until("the objects are listed", || {
            let (status, body) = self.servers[0].0.send("GET", &self.path, None);
            assert!(status == 200 || is_unavailable(status), "all was ready: {status} {body}");
            if status == 200 { Ok(body) } else { Err(format!("{status} {body}")) }
        });
        let list: Value = serde_json::from_str(&body).expect("a list in JSON");
        for object in list["items"].as_array().into_iter().flatten() {
            self.shared.state.lock().expect("no thread panics with it").insert(name_of(object), revision(object));
            self.notify("ADDED", object);
        }
        self.revision = revision(&list);
        for server in (0..self.servers.len()).cycle() {
            if self.shared.stop.load(Ordering::Relaxed) {
                return;
            }
            self.watch(server);
            self.shared.switches.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
    }

    /// Watches one server until it ends or sends nothing more.
    fn watch(&mut self, server: usize) {
        let (client, address) = self.servers[server].clone();
        let query = format!("watch=1&allowWatchBookmarks=true&resourceVersion={}", self.revision);
        let url = format!("https://{address}{}?{query}", self.path);
        let request = client.http.get(url).bearer_auth(client.token()).timeout(Duration::from_secs(24 * 3600));
        client.runtime.block_on(async {
            let Ok(Ok(mut response)) = tokio::time::timeout(SILENCE, request.send()).await else { return };
            if response.status() != 200 {
                return;
            }
            let mut rest = Vec::new();
            while !self.shared.stop.load(Ordering::Relaxed) {
                let Ok(Ok(Some(chunk))) = tokio::time::timeout(SILENCE, response.chunk()).await else { return };
                rest.extend_from_slice(&chunk);
                while let Some(end) = rest.iter().position(|octet| *octet == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    if !self.take(&line) {
                        return;
                    }
                }
            }
        });
    }

    /// Takes a line; returns false after an error.
    fn take(&mut self, line: &[u8]) -> bool {
        let event: Value = match serde_json::from_slice(line) {
            Ok(event) => event,
            Err(error) => {
                self.report.violation(format!("watch of {}: {error}: {}", self.path, String::from_utf8_lossy(line)));
                return false;
            }
        };
        let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
        match kind {
            "ADDED" | "MODIFIED" | "DELETED" => self.apply(kind, object),
            "BOOKMARK" => self.revision = self.revision.max(revision(object)),
            // The history that servers keep is longer than any fault.
            _ if object["code"] == 410 => self.report.violation(format!("watch of {}: {object}", self.path)),
            _ => return false,
        }
        true
    }

    fn apply(&mut self, kind: &str, object: &Value) {
        let (name, found) = (name_of(object), revision(object));
        let mut state = self.shared.state.lock().expect("no thread panics with it");
        let before = state.get(&name).copied();
        // A transaction writes several objects under one revision, each once.
        let is_next = found >= self.revision && before.is_none_or(|before| found > before);
        if !is_next || before.is_some() == (kind == "ADDED") {
            let text = format!("{kind} {name} at {found} after {} (it was at {before:?})", self.revision);
            self.report.violation(format!("watch of {}: {text}", self.path));
        }
        if kind == "DELETED" {
            state.remove(&name);
        } else {
            state.insert(name, found);
        }
        drop(state);
        self.shared.events.fetch_add(1, Ordering::Relaxed);
        self.revision = self.revision.max(found);
        self.notify(kind, object);
    }

    fn notify(&mut self, kind: &str, object: &Value) {
        if let Err(error) = (self.listener)(kind, object) {
            self.report.violation(error);
        }
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Returns the resourceVersion of an object, or of a list.
pub fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|revision| revision.parse().ok()).unwrap_or_default()
}
