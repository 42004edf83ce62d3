//! A mirror of one kind of the API's objects, and the stream of what changes in it.
//!
//! [`reflect`] gives a [`Store`], which any number of readers share, and [`Changes`], which one consumer polls. Polling it
//! drives everything: it lists, watches, reconnects; there is no task behind it, it stops when dropped, and a consumer that
//! is slow slows the watch down and nothing else. A change is in the store before it is told.
//!
//! ```text
//!            ┌──────────────────── version expired, went back, or was refused ─────────────────┐
//!            ▼                                                                                  │
//!   ──►   List  ── Resynced ──►  Connect  ──►  Watching  ── Applied, Deleted ──►  (stays)  ─────┤
//!                                   ▲                                                           │
//!                                   └──────────── connection ended, silent for too long ────────┘
//! ```
//!
//! `kube::runtime::watcher` does nearly this, and is not used, for what it hides or does wrong here: a watch refused with
//! HTTP 410 never lists again; a server that ends each watch at once is asked again at once; bookmarks, which show that an
//! idle watch is alive, are not seen; one object that does not decode stops the whole kind. Here:
//!
//! - an event that was seen already, or is older than what is known of its object, is dropped;
//! - an object deleted and made anew under its name, with both events lost or merged, is told as [`Applied::recreated`];
//! - a list that does not hold an object any more tells which ones vanished, in one [`Resync`], so that a consumer can
//!   judge a suspicious loss as a whole;
//! - an object that does not decode keeps its last good value, and is counted;
//! - a forbidden list or watch is visible in [`Health`], and a forbidden watch makes the mirror list again and again with
//!   growing waits instead of standing still;
//! - a server whose versions went back (restored from a backup) is noticed, and listed anew.
//!
//! Values may be projected when they come in, so that a consumer that needs three fields of 100,000 objects keeps three.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::{BoxStream, Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Resource;
use kube::api::{ListParams, ObjectMeta, WatchEvent, WatchParams};
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use tokio::sync::watch;
use tokio::time::Instant;

use super::backoff::Backoff;

/// Mirrors all objects of kind `K` that `settings` selects, each kept as what `project` makes of it.
///
/// Nothing happens until the [`Changes`] are polled. The first change is always a [`Change::Resynced`], however long it
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
    let shared = Arc::new(Shared::new(K::kind(&()).into_owned()));
    let mirror = Mirror {
        request: Request::new(K::url_path(&(), settings.namespace.as_deref())),
        client,
        backoff: Backoff::new(settings.backoff_first, settings.backoff_longest),
        decoding: Decoding::Strict,
        streaming: settings.streaming,
        settings,
        project: Box::new(project),
        shared: Arc::clone(&shared),
        phase: Phase::List,
    };
    let stream = futures::stream::unfold(mirror, |mut mirror| async move {
        let change = mirror.next_change().await;
        Some((change, mirror))
    });
    (Store { shared }, Changes { stream: stream.boxed() })
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
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// What is mirrored, and how patiently.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Only this namespace; `None`: all.
    pub namespace: Option<String>,
    /// Only objects with these labels, in the API's syntax.
    pub label_selector: Option<String>,
    /// Only objects with these fields, in the API's syntax.
    pub field_selector: Option<String>,
    /// Gets the present objects by the watch itself (`sendInitialEvents`) instead of a list. If the server refuses that,
    /// lists are used from then on.
    pub streaming: bool,
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
            streaming: false,
            page_size: 500,
            silence_longest: Duration::from_secs(150),
            backoff_first: Duration::from_millis(100),
            backoff_longest: Duration::from_secs(10),
        }
    }
}

/// One step of the mirror.
#[derive(Debug, Clone)]
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
    /// The mirror was compared with everything that is there: at the start, and whenever events may have been missed.
    Resynced(Resync<V>),
}

/// An object that was created or replaced.
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone)]
pub struct Resync<V> {
    /// Whether it is the first: nothing was known before.
    pub first: bool,
    /// What is new or different.
    pub applied: Vec<Applied<V>>,
    /// What is gone, with the last values known.
    pub vanished: Vec<(ObjectKey, Arc<V>)>,
    /// How many objects there are now.
    pub total: usize,
}

/// The mirrored objects; clones share them.
pub struct Store<V> {
    shared: Arc<Shared<V>>,
}

impl<V> Clone for Store<V> {
    fn clone(&self) -> Self {
        Store { shared: Arc::clone(&self.shared) }
    }
}

impl<V> Store<V> {
    /// The value at `key`.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        self.shared.objects().get(key).map(|entry| Arc::clone(&entry.value))
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
        *self.shared.synced.borrow()
    }

    /// Waits until everything was listed once. Something must poll the [`Changes`] meanwhile.
    pub async fn wait_synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // The sender lives in `shared`, which `self` holds.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// [`Store::health`] as a function, for those who do not care what is mirrored.
    pub fn probe(&self) -> HealthProbe
    where
        V: Send + Sync + 'static,
    {
        let store = self.clone();
        Arc::new(move || store.health())
    }

    /// How the mirror fares at the moment.
    pub fn health(&self) -> Health {
        let state = self.shared.state();
        Health {
            kind: self.shared.kind.clone(),
            synced: *self.shared.synced.borrow(),
            connected: state.connected,
            age: state.heard.map(|heard| heard.elapsed()),
            error: state.error.clone(),
            restarts: Restart::ALL.map(|reason| (reason, state.restarts[reason as usize])),
            undecodable: state.undecodable,
            objects: self.len(),
            version: state.version.clone(),
        }
    }
}

/// Asks a mirror for its health, whatever it holds.
pub type HealthProbe = Arc<dyn Fn() -> Health + Send + Sync>;

/// How a mirror fares.
#[derive(Debug, Clone)]
pub struct Health {
    /// The kind that is mirrored, such as `Route`.
    pub kind: String,
    /// Whether everything was listed once.
    pub synced: bool,
    /// Whether a watch is open.
    pub connected: bool,
    /// How long ago the API was last heard, be it by a list, an event or a bookmark; `None`: never. On an idle watch this
    /// grows to about a minute and falls back.
    pub age: Option<Duration>,
    /// What went wrong last, if it has not been put right since.
    pub error: Option<String>,
    /// How often the mirror had to connect or list again, by reason.
    pub restarts: [(Restart, u64); Restart::ALL.len()],
    /// How many objects or events did not decode.
    pub undecodable: u64,
    /// How many objects there are.
    pub objects: usize,
    /// The version up to which everything is known.
    pub version: String,
}

/// Why a mirror connected or listed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Restart {
    /// The server ended the watch in good order, as it does every few minutes.
    Closed,
    /// No connection, or it broke.
    Unreachable,
    /// The watch told nothing for too long.
    Silent,
    /// The version is older than the history the server keeps (410).
    Expired,
    /// The server does not let us in (401 or 403).
    Forbidden,
    /// The server failed, or asked us to wait (429, 5xx).
    Failing,
    /// The answer was not what it must be.
    Garbage,
    /// The server's versions went back.
    WentBack,
}

impl Restart {
    /// All reasons, in their order.
    pub const ALL: [Restart; 8] = [
        Restart::Closed,
        Restart::Unreachable,
        Restart::Silent,
        Restart::Expired,
        Restart::Forbidden,
        Restart::Failing,
        Restart::Garbage,
        Restart::WentBack,
    ];

    /// The reason as a metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Restart::Closed => "closed",
            Restart::Unreachable => "unreachable",
            Restart::Silent => "silent",
            Restart::Expired => "expired",
            Restart::Forbidden => "forbidden",
            Restart::Failing => "failing",
            Restart::Garbage => "garbage",
            Restart::WentBack => "went_back",
        }
    }
}

/// The changes of a mirror, in order; it never ends. Dropping a `next` that has not come loses nothing.
pub struct Changes<V> {
    stream: BoxStream<'static, Change<V>>,
}

impl<V> Changes<V> {
    /// The next change, whenever it comes.
    pub async fn next(&mut self) -> Change<V> {
        self.stream.next().await.expect("a mirror never ends")
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
    objects: RwLock<HashMap<ObjectKey, Entry<V>>>,
    state: Mutex<State>,
    synced: watch::Sender<bool>,
}

struct Entry<V> {
    uid: Box<str>,
    version: Box<str>,
    value: Arc<V>,
}

#[derive(Default)]
struct State {
    connected: bool,
    heard: Option<Instant>,
    error: Option<String>,
    restarts: [u64; Restart::ALL.len()],
    undecodable: u64,
    version: String,
}

impl<V> Shared<V> {
    fn new(kind: String) -> Self {
        Shared { kind, objects: RwLock::default(), state: Mutex::default(), synced: watch::Sender::new(false) }
    }

    /// No holder of these locks runs foreign code, so that a poisoned one still guards whole data.
    fn objects(&self) -> std::sync::RwLockReadGuard<'_, HashMap<ObjectKey, Entry<V>>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn objects_mut(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<ObjectKey, Entry<V>>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Mirror<K, V> {
    client: kube::Client,
    request: Request,
    settings: Settings,
    project: Box<dyn Fn(K) -> V + Send + Sync>,
    shared: Arc<Shared<V>>,
    backoff: Backoff,
    decoding: Decoding,
    streaming: bool,
    phase: Phase<K, V>,
}

type Events<K> = BoxStream<'static, kube::Result<WatchEvent<Decoded<K>>>>;

enum Phase<K, V> {
    /// All objects are to be read.
    List,
    /// They are being read by the watch itself.
    Streaming { events: Events<K>, listed: Listed<V> },
    /// Everything is known up to `version`. `check`: see whether the server's version is at least that, first.
    Connect { version: String, check: bool },
    /// Changes are told as they happen.
    Watching { events: Events<K>, version: String, since: Instant },
}

/// What a list, complete or not, has shown so far.
struct Listed<V> {
    objects: HashMap<ObjectKey, Entry<V>>,
    /// Objects that are there but did not decode.
    undecoded: Vec<ObjectKey>,
}

impl<V> Default for Listed<V> {
    fn default() -> Self {
        Listed { objects: HashMap::new(), undecoded: Vec::new() }
    }
}

/// Why the mirror must start again, and from where.
struct Failure {
    reason: Restart,
    error: Option<String>,
    /// Whether changes may have been missed.
    relist: bool,
}

impl<K, V> Mirror<K, V>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
    V: Send + Sync + 'static,
{
    async fn next_change(&mut self) -> Change<V> {
        loop {
            match self.step().await {
                Ok(Some(change)) => return change,
                Ok(None) => {}
                Err(failure) => self.recover(failure).await,
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Change<V>>, Failure> {
        match &mut self.phase {
            Phase::List if self.streaming => self.start_streaming().await.map(|()| None),
            Phase::List => self.list().await.map(Some),
            Phase::Streaming { .. } => self.collect_streamed().await,
            Phase::Connect { version, check } => {
                let (version, check) = (version.clone(), *check);
                self.connect(version, check).await.map(|()| None)
            }
            Phase::Watching { .. } => self.watch().await,
        }
    }

    async fn list(&mut self) -> Result<Change<V>, Failure> {
        let mut listed = Listed::default();
        let mut continue_token = None;
        loop {
            let page = self.page(continue_token).await?;
            self.heard();
            for object in page.items {
                self.take_in(object, &mut listed);
            }
            continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if continue_token.is_none() {
                let version = page.metadata.resource_version.filter(|version| !version.is_empty());
                let version = version.ok_or_else(|| Failure::garbage("the list has no resourceVersion"))?;
                return Ok(self.resync(listed, version));
            }
        }
    }

    async fn page(&mut self, continue_token: Option<String>) -> Result<Page<Decoded<K>>, Failure> {
        let parameters = ListParams {
            label_selector: self.settings.label_selector.clone(),
            field_selector: self.settings.field_selector.clone(),
            limit: Some(self.settings.page_size),
            continue_token,
            ..ListParams::default()
        };
        let request = self.request.list(&parameters).map_err(|error| Failure::garbage(&error.to_string()))?;
        // Not `Client::request`, which logs the whole text of a list that does not decode.
        let answer = tokio::time::timeout(self.settings.silence_longest, self.client.request_text(request));
        let text = answer.await.map_err(|_| Failure::silent())?.map_err(|error| Failure::of(&error))?;
        let page = match self.decoding {
            Decoding::Strict => serde_json::from_str::<Page<Strict<K>>>(&text).map(Page::decoded),
            Decoding::Lenient => serde_json::from_str::<Page<Lenient<K>>>(&text).map(Page::decoded),
        };
        page.map_err(|error| Failure::garbage(&error.to_string()))
    }

    async fn start_streaming(&mut self) -> Result<(), Failure> {
        match self.open("0", true).await {
            Ok(events) => {
                self.phase = Phase::Streaming { events, listed: Listed::default() };
                Ok(())
            }
            Err(Failure { reason: Restart::Garbage, .. }) => {
                self.streaming = false;
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    async fn collect_streamed(&mut self) -> Result<Option<Change<V>>, Failure> {
        let event = self.event().await?;
        let Phase::Streaming { listed, .. } = &mut self.phase else { return Ok(None) };
        let mut listed = std::mem::take(listed);
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => self.take_in(object, &mut listed),
            WatchEvent::Deleted(object) => {
                listed.objects.remove(&object.identity().key);
            }
            WatchEvent::Bookmark(bookmark) => {
                if bookmark.metadata.annotations.contains_key("k8s.io/initial-events-end") {
                    let change = self.resync(listed, bookmark.metadata.resource_version.clone());
                    self.shared.state().connected = true;
                    if let Phase::Streaming { events, .. } = std::mem::replace(&mut self.phase, Phase::List) {
                        let version = bookmark.metadata.resource_version;
                        self.phase = Phase::Watching { events, version, since: Instant::now() };
                    }
                    return Ok(Some(change));
                }
            }
            WatchEvent::Error(status) => return Err(Failure::of_status(&status)),
        }
        if let Phase::Streaming { listed: place, .. } = &mut self.phase {
            *place = listed;
        }
        Ok(None)
    }

    async fn connect(&mut self, version: String, check: bool) -> Result<(), Failure> {
        if check && went_back(&version, &self.present_version().await?) {
            return Err(Failure { reason: Restart::WentBack, error: None, relist: true });
        }
        let events = self.open(&version, false).await?;
        self.heard();
        self.shared.state().connected = true;
        self.phase = Phase::Watching { events, version, since: Instant::now() };
        Ok(())
    }

    /// The server's version at the moment, by the smallest list there is.
    async fn present_version(&mut self) -> Result<String, Failure> {
        let parameters = ListParams { limit: Some(1), ..ListParams::default() };
        let request = self.request.list(&parameters).map_err(|error| Failure::garbage(&error.to_string()))?;
        let answer = tokio::time::timeout(self.settings.silence_longest, self.client.request_text(request));
        let text = answer.await.map_err(|_| Failure::silent())?.map_err(|error| Failure::of(&error))?;
        let page: Page<serde::de::IgnoredAny> =
            serde_json::from_str(&text).map_err(|error| Failure::garbage(&error.to_string()))?;
        Ok(page.metadata.resource_version.unwrap_or_default())
    }

    async fn open(&mut self, version: &str, send_initial_events: bool) -> Result<Events<K>, Failure> {
        let parameters = WatchParams {
            label_selector: self.settings.label_selector.clone(),
            field_selector: self.settings.field_selector.clone(),
            bookmarks: true,
            send_initial_events,
            ..WatchParams::default()
        };
        let request = self.request.watch(&parameters, version).map_err(|error| Failure::garbage(&error.to_string()))?;
        let opened = async {
            Ok(match self.decoding {
                Decoding::Strict => decoded_events::<Strict<K>, K>(self.client.request_events(request).await?),
                Decoding::Lenient => decoded_events::<Lenient<K>, K>(self.client.request_events(request).await?),
            })
        };
        match tokio::time::timeout(self.settings.silence_longest, opened).await {
            Err(_) => Err(Failure::silent()),
            Ok(Err(error)) => {
                let mut failure = Failure::of(&error);
                // An answer, but not a watch: nothing is known of what this version is worth, so ask for everything. It
                // is the cure for 410, and for a forbidden watch a slow but true mirror.
                failure.relist = matches!(error, kube::Error::Api(_));
                Err(failure)
            }
            Ok(Ok(events)) => Ok(events),
        }
    }

    async fn watch(&mut self) -> Result<Option<Change<V>>, Failure> {
        let event = self.event().await?;
        self.backoff.reset();
        let change = self.take(event);
        if let Phase::Watching { version, .. } = &self.phase {
            self.shared.state().version.clone_from(version);
        }
        change
    }

    fn take(&mut self, event: WatchEvent<Decoded<K>>) -> Result<Option<Change<V>>, Failure> {
        let Phase::Watching { version, .. } = &mut self.phase else { return Ok(None) };
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let identity = object.identity();
                note_version(version, &identity.version)?;
                Ok(self.apply(object, identity))
            }
            WatchEvent::Deleted(object) => {
                let identity = object.identity();
                note_version(version, &identity.version)?;
                Ok(self.delete(&identity))
            }
            WatchEvent::Bookmark(bookmark) => {
                if went_back(version, &bookmark.metadata.resource_version) {
                    return Err(Failure { reason: Restart::WentBack, error: None, relist: true });
                }
                note_version(version, &bookmark.metadata.resource_version)?;
                Ok(None)
            }
            WatchEvent::Error(status) => Err(Failure { relist: true, ..Failure::of_status(&status) }),
        }
    }

    /// The next event of the open watch.
    async fn event(&mut self) -> Result<WatchEvent<Decoded<K>>, Failure> {
        let (Phase::Watching { events, .. } | Phase::Streaming { events, .. }) = &mut self.phase else {
            return Err(Failure::garbage("no watch is open"));
        };
        let event = tokio::time::timeout(self.settings.silence_longest, events.next()).await;
        match event.map_err(|_| Failure::silent())? {
            Some(Ok(event)) => {
                self.heard();
                Ok(event)
            }
            Some(Err(error)) => Err(Failure::of(&error)),
            None => Err(Failure { reason: Restart::Closed, error: None, relist: false }),
        }
    }

    /// Counts the failure, waits, and chooses where to go on.
    async fn recover(&mut self, failure: Failure) {
        // A server that lets a watch live for a while and ends it is asked again at once; all else waits.
        let lived = match &self.phase {
            Phase::Watching { since, .. } => since.elapsed() >= Duration::from_secs(1),
            _ => false,
        };
        let in_order = failure.reason == Restart::Closed;
        {
            let mut state = self.shared.state();
            state.connected = false;
            state.restarts[failure.reason as usize] += 1;
            if failure.error.is_some() {
                state.error.clone_from(&failure.error);
            }
        }
        if let Some(error) = &failure.error {
            tracing::warn!(kind = %self.shared.kind, reason = failure.reason.label(), %error, "mirror starts again");
        }
        if failure.reason == Restart::Garbage {
            self.decoding = Decoding::Lenient;
        }
        self.phase = match std::mem::replace(&mut self.phase, Phase::List) {
            Phase::Watching { version, .. } | Phase::Connect { version, .. } if !failure.relist => {
                // An orderly end and a cut connection look alike from here, so that the server's version is looked at
                // in any case.
                Phase::Connect { version, check: true }
            }
            _ => Phase::List,
        };
        if !(in_order && lived) {
            tokio::time::sleep(self.backoff.next_wait()).await;
        }
    }

    fn take_in(&self, object: Decoded<K>, listed: &mut Listed<V>) {
        let identity = object.identity();
        match object {
            Decoded::Good(object) => {
                // An unchanged object keeps its value, so that a list of what is known already costs little.
                let known = self.shared.objects().get(&identity.key).and_then(|entry| {
                    let same = entry.version == identity.version && entry.uid == identity.uid;
                    same.then(|| Arc::clone(&entry.value))
                });
                let value = known.unwrap_or_else(|| Arc::new(self.project(object)));
                let Identity { key, uid, version } = identity;
                listed.objects.insert(key, Entry { uid, version, value });
            }
            Decoded::Bad { error, .. } => {
                self.count_undecodable(&identity.key, &error);
                listed.undecoded.push(identity.key);
            }
        }
    }

    fn resync(&mut self, mut listed: Listed<V>, version: String) -> Change<V> {
        let mut objects = self.shared.objects_mut();
        for key in listed.undecoded {
            if let Some(last_good) = objects.remove(&key) {
                listed.objects.insert(key, last_good);
            }
        }
        let mut before = std::mem::replace(&mut *objects, listed.objects);
        let mut applied = Vec::new();
        for (key, entry) in objects.iter() {
            let old = before.remove(key);
            if old.as_ref().is_some_and(|old| Arc::ptr_eq(&old.value, &entry.value)) {
                continue;
            }
            applied.push(Applied {
                key: key.clone(),
                now: Arc::clone(&entry.value),
                recreated: old.as_ref().is_some_and(|old| old.uid != entry.uid),
                before: old.map(|old| old.value),
            });
        }
        let total = objects.len();
        drop(objects);
        let vanished = before.into_iter().map(|(key, entry)| (key, entry.value)).collect();
        {
            let mut state = self.shared.state();
            state.error = None;
            state.version.clone_from(&version);
        }
        self.phase = match std::mem::replace(&mut self.phase, Phase::List) {
            streaming @ Phase::Streaming { .. } => streaming,
            _ => Phase::Connect { version, check: false },
        };
        let first = !self.shared.synced.send_replace(true);
        Change::Resynced(Resync { first, applied, vanished, total })
    }

    fn apply(&self, object: Decoded<K>, identity: Identity) -> Option<Change<V>> {
        let object = match object {
            Decoded::Good(object) => object,
            Decoded::Bad { error, .. } => {
                self.count_undecodable(&identity.key, &error);
                return None;
            }
        };
        let known = |entry: &Entry<V>| entry.uid == identity.uid && !is_newer(&identity.version, &entry.version);
        if self.shared.objects().get(&identity.key).is_some_and(known) {
            return None;
        }
        let now = Arc::new(self.project(object));
        let Identity { key, uid, version } = identity;
        let old =
            self.shared.objects_mut().insert(key.clone(), Entry { uid: uid.clone(), version, value: Arc::clone(&now) });
        let recreated = old.as_ref().is_some_and(|old| old.uid != uid);
        Some(Change::Applied(Applied { key, now, before: old.map(|old| old.value), recreated }))
    }

    fn delete(&self, identity: &Identity) -> Option<Change<V>> {
        let mut objects = self.shared.objects_mut();
        // The deletion of an earlier object of this name, told late, must not take the present one.
        if objects.get(&identity.key).is_none_or(|entry| entry.uid != identity.uid) {
            return None;
        }
        let last = objects.remove(&identity.key)?.value;
        Some(Change::Deleted { key: identity.key.clone(), last })
    }

    fn project(&self, mut object: K) -> V {
        // Half of many an object, and of no use to any consumer.
        object.meta_mut().managed_fields = None;
        (self.project)(object)
    }

    fn heard(&self) {
        self.shared.state().heard = Some(Instant::now());
    }

    fn count_undecodable(&self, key: &ObjectKey, error: &str) {
        self.shared.state().undecodable += 1;
        tracing::warn!(kind = %self.shared.kind, object = %key, %error, "object does not decode; its last good value stays");
    }
}

impl Failure {
    fn garbage(error: &str) -> Self {
        Failure { reason: Restart::Garbage, error: Some(error.to_owned()), relist: true }
    }

    fn silent() -> Self {
        Failure { reason: Restart::Silent, error: Some("the API said nothing for too long".to_owned()), relist: false }
    }

    fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Failure::of_status(status),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Failure::garbage(&error.to_string()),
            error => Failure { reason: Restart::Unreachable, error: Some(chain(error)), relist: false },
        }
    }

    fn of_status(status: &kube::core::Status) -> Self {
        let reason = match status.code {
            401 | 403 => Restart::Forbidden,
            410 => Restart::Expired,
            429 | 500.. => Restart::Failing,
            _ => Restart::Garbage,
        };
        let error = format!("{} ({} {})", status.message, status.code, status.reason);
        Failure { reason, error: Some(error), relist: true }
    }
}

/// An error with its causes, which is where a connection's fault stands.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

fn note_version(known: &mut String, now: &str) -> Result<(), Failure> {
    if now.is_empty() {
        return Err(Failure::garbage("a watch event has no resourceVersion"));
    }
    now.clone_into(known);
    Ok(())
}

/// Whether version `a` is newer than `b`. Where they are no numbers, which the API conventions allow, any difference
/// counts as newer.
fn is_newer(a: &str, b: &str) -> bool {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a > b,
        _ => a != b,
    }
}

/// Whether the server is now at a version before the `known` one.
fn went_back(known: &str, now: &str) -> bool {
    matches!((known.parse::<u64>(), now.parse::<u64>()), (Ok(known), Ok(now)) if now < known)
}

/// Whether an object that does not decode fails its whole list (fast), or only itself (by way of a JSON value). The first
/// failure switches.
#[derive(Clone, Copy)]
enum Decoding {
    Strict,
    Lenient,
}

#[derive(Clone)]
enum Decoded<K> {
    Good(K),
    Bad { meta: Box<ObjectMeta>, error: String },
}

struct Identity {
    key: ObjectKey,
    uid: Box<str>,
    version: Box<str>,
}

impl<K: Resource> Decoded<K> {
    fn identity(&self) -> Identity {
        let meta = match self {
            Decoded::Good(object) => object.meta(),
            Decoded::Bad { meta, .. } => meta,
        };
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().to_owned();
        Identity {
            key: ObjectKey { namespace: meta.namespace.clone(), name: text(&meta.name) },
            uid: text(&meta.uid).into(),
            version: text(&meta.resource_version).into(),
        }
    }
}

#[derive(Deserialize)]
struct Page<T> {
    metadata: ListMeta,
    items: Vec<T>,
}

impl<T> Page<T> {
    fn decoded<K>(self) -> Page<Decoded<K>>
    where
        T: Into<Decoded<K>>,
    {
        Page { metadata: self.metadata, items: self.items.into_iter().map(Into::into).collect() }
    }
}

#[derive(Clone)]
struct Strict<K>(K);

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Strict<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        K::deserialize(deserializer).map(Strict)
    }
}

impl<K> From<Strict<K>> for Decoded<K> {
    fn from(Strict(object): Strict<K>) -> Self {
        Decoded::Good(object)
    }
}

#[derive(Clone)]
struct Lenient<K>(Decoded<K>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = serde_json::Value::deserialize(deserializer)?;
        match K::deserialize(&value) {
            Ok(object) => Ok(Lenient(Decoded::Good(object))),
            Err(error) => {
                let meta = serde_json::from_value(value["metadata"].take()).map_err(serde::de::Error::custom)?;
                Ok(Lenient(Decoded::Bad { meta, error: error.to_string() }))
            }
        }
    }
}

impl<K> From<Lenient<K>> for Decoded<K> {
    fn from(Lenient(decoded): Lenient<K>) -> Self {
        decoded
    }
}

fn decoded_events<T, K>(events: impl Stream<Item = kube::Result<WatchEvent<T>>> + Send + 'static) -> Events<K>
where
    T: Into<Decoded<K>> + Send + 'static,
    K: Send + 'static,
{
    let decode = |event| match event {
        WatchEvent::Added(object) => WatchEvent::Added(T::into(object)),
        WatchEvent::Modified(object) => WatchEvent::Modified(T::into(object)),
        WatchEvent::Deleted(object) => WatchEvent::Deleted(T::into(object)),
        WatchEvent::Bookmark(bookmark) => WatchEvent::Bookmark(bookmark),
        WatchEvent::Error(status) => WatchEvent::Error(status),
    };
    events.map(move |event| event.map(decode)).boxed()
}
