//! An informer of one kind of the API's objects, and the stream of what changes in it.
//!
//! [`reflect`] gives a [`Store`], which any number of readers share, and [`Changes`], which one consumer polls. Polling it
//! drives everything: it lists, watches, reconnects; there is no task behind it, it stops when dropped, and a consumer that
//! is slow slows the watch down and nothing else. A change is in the store before it is told.
//!
//! The walk from list to watch and back is drawn in `reflector/list_watch.rs`.
//!
//! `kube::runtime::watcher` does nearly this, and is not used, for what it hides or does wrong here: a watch refused with
//! HTTP 410 never lists again; a server that ends each watch at once is asked again at once; bookmarks, which show that an
//! idle watch is alive, are not seen; one object that does not decode stops the whole kind. Here:
//!
//! - an event that was seen already, or is older than what is known of its object, is dropped; one that comes out of order,
//!   about an object of which nothing is known, may be of one that is gone, and has the informer list;
//! - an object deleted and made anew under its name, with both events lost or merged, is told as [`Applied::recreated`];
//! - a list that does not hold an object any more tells which ones vanished, in one [`Relist`], so that a consumer can
//!   judge a suspicious loss as a whole;
//! - an object that does not decode keeps its last good value, and is counted; so does one that the server itself cannot read
//!   and sends a placeholder of; one without a last good value is known to exist ([`Health::unknown`]);
//! - a forbidden list or watch is visible in [`Health`], and a forbidden watch makes the informer list again and again with
//!   growing waits instead of standing still;
//! - watches that end or break again and again before they tell anything, as behind a proxy that holds events back, have the
//!   informer list, too;
//! - a server whose versions went back (restored from a backup) is noticed, and listed anew.
//!
//! Values may be projected when they come in, so that a consumer that needs three fields of 100,000 objects keeps three.
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
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::compact_store::CompactStore;
pub use self::informer::Informer;
use self::list_watch::Reflector;

mod compact_store;
mod decode;
mod informer;
mod list_watch;
mod outage_log;
mod strip;

/// Caches all objects of kind `K` that `settings` selects, each kept as what `project` makes of it.
///
/// Nothing happens until the [`Changes`] are polled. The first change is always a [`Change::Relisted`], however long it
/// takes to get it; there is no error to handle, only [`Store::health`] to show.
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

/// The changes of the informer that keeps `shared`.
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

/// Where an object is: its namespace, if its kind has them, and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// The key of a namespaced object.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        ObjectKey { namespace: Some(namespace.to_owned()), name: name.to_owned() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        ObjectKey { namespace: None, name: name.to_owned() }
    }

    /// Its namespace; empty for a cluster-scoped kind.
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

/// What is cached, and how patiently.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Only this namespace; `None`: all.
    pub namespace: Option<String>,
    /// Only objects with these labels, in the API's syntax.
    pub label_selector: Option<String>,
    /// Only objects with these fields, in the API's syntax.
    pub field_selector: Option<String>,
    /// Objects in one page of a list. More is fewer requests, less is smaller answers.
    pub page_size: u32,
    /// A watch that tells nothing, not even a bookmark, for so long is taken for dead. API servers send a bookmark about
    /// every minute.
    pub silence_longest: Duration,
    /// The wait after the first failure in a row.
    pub backoff_first: Duration,
    /// The longest wait after a failure.
    pub backoff_longest: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            namespace: None,
            label_selector: None,
            field_selector: None,
            page_size: 500,
            silence_longest: Duration::from_secs(150),
            backoff_first: Duration::from_millis(100),
            backoff_longest: Duration::from_secs(10),
        }
    }
}

/// One step of the informer.
#[derive(Debug)]
pub enum Change<V> {
    /// An object was created or replaced.
    Applied(Applied<V>),
    /// An object was deleted.
    Deleted {
        /// Where it was.
        key: ObjectKey,
        /// Its last value known.
        last: Arc<V>,
    },
    /// The informer was compared with everything that is there: at the start, and whenever events may have been missed.
    Relisted(Relist<V>),
}

/// An object that was created or replaced.
#[derive(Debug)]
pub struct Applied<V> {
    /// Where it is.
    pub key: ObjectKey,
    /// Its value now.
    pub now: Arc<V>,
    /// The value known before; `None` if there was none.
    pub before: Option<Arc<V>>,
    /// Whether `before` was another object of this name, with another uid: it was deleted, and this one created.
    pub recreated: bool,
}

/// What a full list showed.
#[derive(Debug)]
pub struct Relist<V> {
    /// Whether it is the first: nothing was known before.
    pub first: bool,
    /// What is new or different.
    pub applied: Vec<Applied<V>>,
    /// What is gone, with the last values known.
    pub vanished: Vec<Gone<V>>,
    /// How many objects there are now.
    pub total: usize,
}

/// An object that is gone, and the last value known.
pub type Gone<V> = (ObjectKey, Arc<V>);

impl<V> Change<V> {
    /// What was created or replaced, and what is gone, with its last value known. What is gone goes first.
    pub fn into_parts(self) -> (Vec<Applied<V>>, Vec<Gone<V>>) {
        match self {
            Change::Applied(applied) => (vec![applied], Vec::new()),
            Change::Deleted { key, last } => (Vec::new(), vec![(key, last)]),
            Change::Relisted(relist) => (relist.applied, relist.vanished),
        }
    }

    /// Whether it is the first list: nothing was known before.
    pub fn is_first(&self) -> bool {
        matches!(self, Change::Relisted(Relist { first: true, .. }))
    }
}

// The derived impls would ask for a `V` that is `Clone`.
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
    /// Whether the reader that this store belongs to got the first list.
    synced: Arc<watch::Sender<bool>>,
}

impl<V> Clone for Store<V> {
    fn clone(&self) -> Self {
        Store { shared: Arc::clone(&self.shared), synced: Arc::clone(&self.synced) }
    }
}

impl<V> Store<V> {
    /// The value at `key`.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        self.shared.objects().get(key).map(|entry| Arc::clone(&entry.value))
    }

    /// The value at `key`, with the object's resourceVersion.
    pub fn get_versioned(&self, key: &ObjectKey) -> Option<(Arc<V>, Box<str>)> {
        self.shared.objects().get(key).map(|entry| (Arc::clone(&entry.value), entry.version.text()))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.objects().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them as they are at one moment, in no order. Takes time in their number.
    pub fn all(&self) -> Vec<(ObjectKey, Arc<V>)> {
        self.shared.objects().iter().map(|(key, entry)| (key.clone(), Arc::clone(&entry.value))).collect()
    }

    /// Whether everything was listed once. Before that, an object that is not here may well exist.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until everything was listed once. Something must poll the [`Changes`] meanwhile.
    pub async fn wait_synced(&self) {
        let mut synced = self.synced.subscribe();
        // `self` holds the sender.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Has the informer list everything once more, for whoever doubts what the last list said. It is told as a
    /// [`Change::Relisted`] when it is there.
    pub fn relist(&self) {
        self.shared.again.notify_one();
    }

    /// [`Store::health`] as a function, for those who do not care what is cached.
    pub fn probe(&self) -> HealthProbe
    where
        V: Send + Sync + 'static,
    {
        let store = self.clone();
        Arc::new(move || store.health())
    }

    /// The objects that exist and of which no value is known: see [`Health::unknown`].
    pub fn unknown(&self) -> Vec<ObjectKey> {
        self.shared.state().unknown.iter().cloned().collect()
    }

    /// How the informer fares at the moment.
    pub fn health(&self) -> Health {
        self.shared.health_of(&self.synced)
    }
}

/// Asks an informer for its health, whatever it holds.
pub type HealthProbe = Arc<dyn Fn() -> Health + Send + Sync>;

/// How an informer fares.
#[derive(Debug, Clone)]
pub struct Health {
    /// The kind that is cached, such as `Route`.
    pub kind: String,
    /// Whether everything was listed once.
    pub synced: bool,
    /// Whether a watch is open.
    pub connected: bool,
    /// How long ago the API was last heard, be it by a list, an event or a bookmark; `None`: never. On an idle watch this
    /// grows to about a minute and falls back; when a watch ends, it was heard until then, unless it is taken for dead.
    pub age: Option<Duration>,
    /// What went wrong last, if it has not been put right since.
    pub error: Option<String>,
    /// How often the informer had to connect or list again, by reason.
    pub restarts: [(Restart, u64); Restart::ALL.len()],
    /// How many objects or events did not decode.
    pub undecodable: u64,
    /// How many objects exist of which no value is known: they cannot be read, and never could since this process started.
    pub unknown: usize,
    /// How many objects there are.
    pub objects: usize,
    /// The version up to which everything is known.
    pub version: String,
}

/// Why an informer connected or listed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Restart {
    /// The server ended the watch in good order, as it does every few minutes.
    Closed,
    /// No connection, or it broke.
    Unreachable,
    /// The watch told nothing for too long.
    TimedOut,
    /// The version is older than the history the server keeps (410).
    Expired,
    /// The server does not let us in (401 or 403).
    Forbidden,
    /// The server failed, or asked us to wait (429, 5xx).
    Failing,
    /// The server does not know the kind (404).
    Missing,
    /// The answer was not what it must be.
    InvalidResponse,
    /// The server's versions went back.
    RevisionRegressed,
    /// Someone here asked for a list ([`Store::relist`]).
    Requested,
}

impl Restart {
    /// All reasons, in their order.
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

    /// The reason as a metric's label.
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

/// The changes of an informer, in order; it never ends. Dropping a `next` that has not come loses nothing.
pub struct Changes<V> {
    stream: BoxStream<'static, Change<V>>,
    is_behind: Box<dyn Fn() -> bool + Send + Sync>,
}

impl<V> Changes<V> {
    /// The next change, whenever it comes.
    pub async fn next(&mut self) -> Change<V> {
        self.stream.next().await.expect("an informer never ends")
    }

    /// Whether the [`Store`] shows changes already that are yet to be told here.
    pub fn is_behind(&self) -> bool {
        (self.is_behind)()
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
    /// Rings when someone asks for a list.
    again: Notify,
}

#[derive(Default)]
struct State {
    connected: bool,
    last_contact: Option<Instant>,
    error: Option<String>,
    restarts: [u64; Restart::ALL.len()],
    undecodable: u64,
    /// Objects that exist, and of which no value is known.
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

    /// How the informer fares, for whom `synced` says whether all was told.
    fn health_of(&self, synced: &watch::Sender<bool>) -> Health {
        // Who changes the objects takes the state under their lock, so this must not wait for them under the state's.
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
