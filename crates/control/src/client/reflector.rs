//! An informer of one kind of the API's objects, and the stream of its changes.
//!
//! [`reflect`] returns a [`Store`], which any number of readers share, and [`Changes`], which one consumer polls. The informer
//! has no task: polling the changes lists, watches, and reconnects, and dropping them stops the informer. A slow consumer slows
//! down only the watch. A change is in the store before the consumer gets it.
//!
//! `reflector/list_watch.rs` draws the states between list and watch.
//!
//! `kube::runtime::watcher` is similar, but is not used, because of its behavior here: it never lists again after a watch is
//! rejected with HTTP 410; it reconnects without a wait when a server ends each watch immediately; it hides bookmarks, which show
//! that an idle watch is alive; and one object that does not decode stops the whole kind. In this informer:
//!
//! - It drops an event that it has seen already, or that is older than its state of the object. An event out of order about an
//!   unknown object can be about a deleted one, so the informer lists.
//! - It reports an object that was deleted and re-created under its name, with both events lost or merged, as
//!   [`Applied::recreated`].
//! - A list without some known objects reports them as deleted in one [`Relist`], so that a consumer can check a suspicious loss
//!   as a whole.
//! - An object that does not decode keeps its last good value, and is counted; so does an object that the server itself cannot
//!   read and sends as a placeholder. An object without a last good value is known only to exist ([`Health::unknown`]).
//! - A forbidden list or watch is visible in [`Health`]. After a forbidden watch, the informer lists repeatedly with growing
//!   waits.
//! - The informer also lists after watches that repeatedly end or break before their first event, as behind a proxy that buffers
//!   events.
//! - It detects a server whose versions decreased (restored from a backup), and lists again.
//!
//! A projection can convert values on arrival, so that a consumer that needs three fields of 100,000 objects stores only three.
//!
//! Loops of a process that follow one kind share an [`Informer`]: there is one list-watch, and one value of each object.

use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::{BoxStream, Stream, StreamExt as _};
use kube::Resource;
use kube::api::{ApiResource, DynamicObject};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::compact_store::CompactStore;
pub use self::informer::Informer;
#[cfg(test)]
pub(crate) use self::list_watch::BARREN_MAX;
use self::list_watch::Reflector;

mod compact_store;
mod decode;
mod informer;
mod list_watch;
mod outage_log;
mod strip;

/// Caches all objects of kind `K` that `settings` selects, each converted by `project`.
///
/// Nothing happens until the [`Changes`] are polled. The first change is always a [`Change::Relisted`], after an unlimited time;
/// there is no error to handle, only [`Store::health`] to show.
pub fn reflect<K, V>(
    client: kube::Client,
    settings: Settings,
    project: impl Fn(K) -> V + Send + Sync + 'static,
) -> (Store<V>, Changes<V>)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
    V: Send + Sync + 'static,
{
    Informer::new(client, settings, project).read()
}

/// Returns the changes of the informer that updates `shared`.
fn changes<K, V>(
    client: kube::Client,
    settings: Settings,
    project: Box<dyn Fn(K) -> Arc<V> + Send + Sync>,
    shared: &Arc<Shared<V>>,
) -> BoxStream<'static, Change<V>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
    V: Send + Sync + 'static,
{
    let reflector = Reflector::new(client, settings, project, Arc::clone(shared));
    let stream = futures::stream::unfold(reflector, |mut reflector| async move {
        let change = reflector.next_change().await;
        Some((change, reflector))
    });
    stream.boxed()
}

/// The namespace, if the kind has one, and the name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    pub name: String,
}

impl ObjectKey {
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        ObjectKey { namespace: Some(namespace.to_owned()), name: name.to_owned() }
    }

    /// Returns the key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        ObjectKey { namespace: None, name: name.to_owned() }
    }

    /// Returns the namespace; empty for a cluster-scoped kind.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// An API that a process reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiOf {
    /// The API of Routers, Routes, and their neighbours.
    Platform,
    /// The API of the source cluster, which can be the same one.
    Sources,
}

/// The selection of objects, and the timing of an informer.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The API that is read, for the log.
    pub of: ApiOf,
    /// The kind to list, for a type that is used for several kinds; `None`: the kind of the type.
    pub resource: Option<ApiResource>,
    /// Only this namespace; `None`: all.
    pub namespace: Option<String>,
    /// Only objects with these labels, in the API's syntax.
    pub label_selector: Option<String>,
    /// Only objects with these fields, in the API's syntax.
    pub field_selector: Option<String>,
    /// The objects in one page of a list. More means fewer requests; fewer means smaller responses.
    pub page_size: u32,
    /// The longest time without a response, or without an event or the end of a watch; after it, the request is considered dead.
    pub silence_longest: Duration,
    /// The duration of a watch, in whole seconds, below [`Self::silence_longest`]: API servers send a bookmark about every minute, but none
    /// about objects that do not change if their etcd reports no progress. A reader that needs [`Store::caught_up`] has short watches:
    /// only a new request shows how current the objects are.
    pub watch_longest: Duration,
    /// The wait after the first failure in a row.
    pub backoff_first: Duration,
    /// The longest wait after a failure.
    pub backoff_longest: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            of: ApiOf::Platform,
            resource: None,
            namespace: None,
            label_selector: None,
            field_selector: None,
            page_size: 500,
            silence_longest: Duration::from_secs(150),
            watch_longest: Duration::from_secs(140),
            backoff_first: Duration::from_millis(100),
            backoff_longest: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// Returns the name of the kind to list.
    fn kind<K: Resource<DynamicType = ()>>(&self) -> String {
        self.resource.as_ref().map_or_else(|| K::kind(&()).into_owned(), |resource| resource.kind.clone())
    }

    /// Returns the path of the objects to list.
    fn path<K: Resource<DynamicType = ()>>(&self) -> String {
        let namespace = self.namespace.as_deref();
        match &self.resource {
            Some(resource) => DynamicObject::url_path(resource, namespace),
            None => K::url_path(&(), namespace),
        }
    }
}

/// One change of the informer.
#[derive(Debug)]
pub enum Change<V> {
    /// An object was created or replaced.
    Applied(Applied<V>),
    /// An object was deleted.
    Deleted {
        /// The object's key.
        key: ObjectKey,
        /// The last known value.
        last: Arc<V>,
    },
    /// The informer was compared with a full list: at the start, and whenever it may have missed events.
    Relisted(Relist<V>),
}

/// An object that was created or replaced.
#[derive(Debug)]
pub struct Applied<V> {
    /// The object's key.
    pub key: ObjectKey,
    /// The current value.
    pub now: Arc<V>,
    /// The previously known value; `None` if there was none.
    pub before: Option<Arc<V>>,
    /// Whether `before` was another object of this name, with another uid: it was deleted, and this one created.
    pub recreated: bool,
}

/// The result of a full list.
#[derive(Debug)]
pub struct Relist<V> {
    /// Whether this is the first list: no objects were known before.
    pub first: bool,
    /// The objects that are new or different.
    pub applied: Vec<Applied<V>>,
    /// The deleted objects, with their last known values.
    pub vanished: Vec<Gone<V>>,
    /// The current number of objects.
    pub total: usize,
}

/// A deleted object, and its last known value.
pub type Gone<V> = (ObjectKey, Arc<V>);

impl<V> Change<V> {
    /// Returns the created or replaced objects, and the deleted ones with their last known values. Handle the deleted ones first.
    pub fn into_parts(self) -> (Vec<Applied<V>>, Vec<Gone<V>>) {
        match self {
            Change::Applied(applied) => (vec![applied], Vec::new()),
            Change::Deleted { key, last } => (Vec::new(), vec![(key, last)]),
            Change::Relisted(relist) => (relist.applied, relist.vanished),
        }
    }

    /// Returns whether this is the first list: no objects were known before.
    pub fn is_first(&self) -> bool {
        matches!(self, Change::Relisted(Relist { first: true, .. }))
    }
}

// The derived impls would require `V: Clone`.
impl<V> Clone for Change<V> {
    fn clone(&self) -> Self {
        match self {
            Change::Applied(applied) => Change::Applied(applied.clone()),
            Change::Deleted { key, last } => Change::Deleted { key: key.clone(), last: Arc::clone(last) },
            Change::Relisted(resync) => Change::Relisted(Relist {
                first: resync.first,
                applied: resync.applied.clone(),
                vanished: resync.vanished.clone(),
                total: resync.total,
            }),
        }
    }
}

impl<V> Clone for Applied<V> {
    fn clone(&self) -> Self {
        let Applied { key, now, before, recreated } = self;
        Applied { key: key.clone(), now: Arc::clone(now), before: before.clone(), recreated: *recreated }
    }
}

/// The cached objects; clones share them.
pub struct Store<V> {
    shared: Arc<Shared<V>>,
    /// Whether the reader of this store got the first list.
    synced: Arc<watch::Sender<bool>>,
}

impl<V> Clone for Store<V> {
    fn clone(&self) -> Self {
        Store { shared: Arc::clone(&self.shared), synced: Arc::clone(&self.synced) }
    }
}

impl<V> Store<V> {
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        self.shared.objects().get(key).map(|entry| Arc::clone(&entry.value))
    }

    /// Returns the value at `key`, with the object's resourceVersion.
    pub fn get_versioned(&self, key: &ObjectKey) -> Option<(Arc<V>, Box<str>)> {
        self.shared.objects().get(key).map(|entry| (Arc::clone(&entry.value), entry.version.text()))
    }

    pub fn len(&self) -> usize {
        self.shared.objects().len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all objects of one moment, in no order, in time linear in their number.
    pub fn all(&self) -> Vec<(ObjectKey, Arc<V>)> {
        self.shared.objects().iter().map(|(key, entry)| (key.clone(), Arc::clone(&entry.value))).collect()
    }

    /// Returns whether a list was complete once. Before that, an object that is missing here can exist.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until a list was complete once. Something must poll the [`Changes`] meanwhile.
    pub async fn wait_synced(&self) {
        let mut synced = self.synced.subscribe();
        // `self` holds the sender.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Requests a new list, for a caller that doubts the last one. The result arrives as a [`Change::Relisted`].
    pub fn relist(&self) {
        self.shared.again.notify_one();
    }

    /// Returns [`Store::health`] as a function, for callers that are independent of the cached type.
    pub fn probe(&self) -> HealthProbe
    where
        V: Send + Sync + 'static,
    {
        let store = self.clone();
        Arc::new(move || store.health())
    }

    /// Returns the time up to which all changes of the API are here: the time of the last request for which the server has sent all
    /// earlier changes. It can be older than [`Settings::watch_longest`].
    pub fn caught_up(&self) -> Option<Instant> {
        self.shared.state().caught_up
    }

    /// Returns the objects that exist but have no known value: see [`Health::unknown`].
    pub fn unknown(&self) -> Vec<ObjectKey> {
        self.shared.state().unknown.iter().cloned().collect()
    }

    /// Returns the informer's current health.
    pub fn health(&self) -> Health {
        self.shared.health_of(&self.synced)
    }
}

/// A function that returns the health of an informer of any type.
pub type HealthProbe = Arc<dyn Fn() -> Health + Send + Sync>;

/// The health of an informer.
#[derive(Debug, Clone)]
pub struct Health {
    /// The kind that is cached, such as `Route`.
    pub kind: String,
    /// Whether a list was complete once.
    pub synced: bool,
    /// Whether a watch is open.
    pub connected: bool,
    /// The time since the last list, event, or bookmark of the API; `None`: never. On an idle watch, it grows to about a minute
    /// and falls back. When a watch ends, the API counts as alive until then, unless the watch is considered dead.
    pub age: Option<Duration>,
    /// The last error, if it is not resolved.
    pub error: Option<String>,
    /// The number of times that the informer had to connect or list again, by reason.
    pub restarts: [(Restart, u64); Restart::ALL.len()],
    /// The number of objects or events that did not decode.
    pub undecodable: u64,
    /// The number of objects without a known value: they cannot be read, and never could since this process started.
    pub unknown: usize,
    pub objects: usize,
    /// The version up to which all changes are known.
    pub version: String,
}

/// The reason why an informer connected or listed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Restart {
    /// The server ended the watch normally, as it does every few minutes.
    Closed,
    /// The connection failed or broke.
    Unreachable,
    /// The watch sent nothing for too long.
    TimedOut,
    /// The version is older than the history the server keeps (410).
    Expired,
    /// The server rejects the credentials or the access (401 or 403).
    Forbidden,
    /// The server failed, or requested a wait (429, 5xx).
    Failing,
    /// The server does not know the kind (404).
    Missing,
    /// The response was invalid.
    InvalidResponse,
    /// The server's versions decreased.
    RevisionRegressed,
    /// A caller in this process requested a list ([`Store::relist`]).
    Requested,
}

impl Restart {
    /// All reasons, in order.
    pub const ALL: [Restart; 10] = [
        Restart::Closed,
        Restart::Unreachable,
        Restart::TimedOut,
        Restart::Expired,
        Restart::Forbidden,
        Restart::Failing,
        Restart::Missing,
        Restart::InvalidResponse,
        Restart::RevisionRegressed,
        Restart::Requested,
    ];

    /// Returns the reason as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Restart::Closed => "closed",
            Restart::Unreachable => "unreachable",
            Restart::TimedOut => "timeout",
            Restart::Expired => "expired",
            Restart::Forbidden => "forbidden",
            Restart::Failing => "failing",
            Restart::Missing => "missing",
            Restart::InvalidResponse => "invalid_response",
            Restart::RevisionRegressed => "revision_regressed",
            Restart::Requested => "requested",
        }
    }
}

/// The changes of an informer, in order, without an end. Dropping a pending `next` loses nothing.
pub struct Changes<V> {
    stream: BoxStream<'static, Change<V>>,
    is_behind: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl<V> Changes<V> {
    /// Waits for the next change.
    pub async fn next(&mut self) -> Change<V> {
        self.stream.next().await.expect("an informer never ends")
    }

    /// Returns whether the [`Store`] shows changes that this stream has not returned yet.
    pub fn is_behind(&self) -> bool {
        (self.is_behind)()
    }

    /// Returns [`Self::is_behind`] for a stream that another owner polls.
    pub fn behind(&self) -> Arc<dyn Fn() -> bool + Send + Sync> {
        Arc::clone(&self.is_behind)
    }
}

impl<V> Stream for Changes<V> {
    type Item = Change<V>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Change<V>>> {
        self.stream.poll_next_unpin(context)
    }
}

struct Shared<V> {
    kind: String,
    objects: RwLock<CompactStore<V>>,
    state: Mutex<State>,
    synced: watch::Sender<bool>,
    /// Notifies of a requested list.
    again: Notify,
}

#[derive(Default)]
struct State {
    connected: bool,
    last_contact: Option<Instant>,
    /// See [`Store::caught_up`].
    caught_up: Option<Instant>,
    error: Option<String>,
    restarts: [u64; Restart::ALL.len()],
    undecodable: u64,
    /// The objects that exist, but have no known value.
    unknown: HashSet<ObjectKey>,
    version: String,
}

impl<V> Shared<V> {
    fn new(kind: String) -> Self {
        let (objects, state, synced) = (RwLock::default(), Mutex::default(), watch::Sender::new(false));
        Shared { kind, objects, state, synced, again: Notify::new() }
    }

    fn objects(&self) -> RwLockReadGuard<'_, CompactStore<V>> {
        self.objects.read()
    }

    fn objects_mut(&self) -> RwLockWriteGuard<'_, CompactStore<V>> {
        self.objects.write()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the informer's health for the reader of `synced`.
    fn health_of(&self, synced: &watch::Sender<bool>) -> Health {
        // A thread that changes the objects takes the state under their lock, so this must not wait for them under the state's
        // lock.
        let objects = self.objects().len();
        let state = self.state();
        Health {
            kind: self.kind.clone(),
            synced: *synced.borrow(),
            connected: state.connected,
            age: state.last_contact.map(|at| at.elapsed()),
            error: state.error.clone(),
            restarts: Restart::ALL.map(|reason| (reason, state.restarts[reason as usize])),
            undecodable: state.undecodable,
            unknown: state.unknown.len(),
            objects,
            version: state.version.clone(),
        }
    }
}
