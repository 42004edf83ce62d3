//! Watchers that switch from server to server, and the committed history that they must see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::Value;
use signpost_apiserver::object::Object;
use signpost_apiserver::store::{EventKind, Key, Revision, Store};

use crate::clients::{SeededRandom, revision, version};
use crate::servers::{REGISTER, REGISTERS, Servers, request};

/// The maximum time for which a watcher stays with a server, in milliseconds.
const STAY_MILLISECONDS_MAX: u64 = 800;
/// The maximum time from the last write until a watcher sees the last event.
const CATCH_UP_MAX: Duration = Duration::from_secs(60);

/// A change of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub revision: u64,
    pub key: String,
    /// The value that it wrote; `None` if it deleted the object.
    pub value: Option<u64>,
    /// Whether the object was there before.
    pub is_new: bool,
}

/// Returns the changes from `start` on until `end`, as the store keeps them.
pub async fn committed(store: &Arc<dyn Store>, start: u64, end: u64) -> Vec<Event> {
    let mut watch = store.watch(&Key(REGISTER.key_prefix.into()), Revision(start));
    let mut events = Vec::new();
    while events.last().is_none_or(|last: &Event| last.revision < end) {
        let next = tokio::time::timeout(CATCH_UP_MAX, watch.next()).await.expect("the store has the last event");
        for event in next.expect("a watch continues").expect("history is kept") {
            let key = event.now.key.relative(REGISTER.key_prefix);
            let object = Object::from_stored(&REGISTER, key, &event.now.value, event.at.0).unwrap();
            let value = (event.kind == EventKind::Put).then(|| version(&object.tree()).value);
            let key = object.name().to_owned();
            events.push(Event { revision: event.at.0, key, value, is_new: event.before.is_none() });
        }
    }
    events
}

/// Follows the objects from `start` on, at one server after the other, until the revision that `end` gets.
pub async fn follow(servers: &Servers, start: u64, mut draw: SeededRandom, end: &AtomicU64) -> Vec<Event> {
    let mut watcher = Watcher { reached: start, events: Vec::new() };
    let mut deadline = None;
    loop {
        let last = end.load(Ordering::SeqCst);
        if last > 0 && watcher.reached >= last {
            return watcher.events;
        }
        if last > 0 {
            let deadline = *deadline.get_or_insert(Instant::now() + CATCH_UP_MAX);
            assert!(Instant::now() < deadline, "a watcher stays at {} of {last}", watcher.reached);
        }
        let server = draw.below(servers.count() as u64) as usize;
        let stay = Duration::from_millis(draw.below(STAY_MILLISECONDS_MAX));
        // Short ones end with a bookmark.
        let seconds = 1 + draw.below(3);
        let _ = tokio::time::timeout(stay, watcher.stay(servers, server, seconds)).await;
        tokio::time::sleep(Duration::from_millis(draw.below(10))).await;
    }
}

struct Watcher {
    /// The last revision that it received.
    reached: u64,
    events: Vec<Event>,
}

impl Watcher {
    /// Watches at one server until that ends the watch.
    async fn stay(&mut self, servers: &Servers, server: usize, seconds: u64) {
        let Some((client, _)) = servers.client(server) else { return };
        let from = self.reached;
        let path =
            format!("{REGISTERS}?watch=true&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds={seconds}");
        let Ok(response) = client.send(request(Method::GET, &path, "", &Value::Null)).await else { return };
        if response.status() != 200 {
            return;
        }
        let mut body = response.into_body();
        let mut text = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            text.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            while let Some(end) = text.iter().position(|octet| *octet == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                self.take(&serde_json::from_slice(&line).unwrap());
            }
        }
    }

    fn take(&mut self, event: &Value) {
        let object = &event["object"];
        let kind = event["type"].as_str().unwrap();
        assert_ne!(kind, "ERROR", "a watch from {} fails: {object}", self.reached);
        let at = revision(object);
        if kind != "BOOKMARK" {
            self.events.push(Event {
                revision: at,
                key: object["metadata"]["name"].as_str().unwrap().to_owned(),
                value: (kind != "DELETED").then(|| version(object).value),
                is_new: kind == "ADDED",
            });
        }
        self.reached = at;
    }
}
