//! The states of an informer: it lists, watches, and restarts if necessary.
//!
//! ```text
//!            ┌──────────────── version expired, decreased, or was rejected ────────────────────┐
//!            ▼                                                                                 │
//!   ──►   List  ── Relisted ──►  Connect  ──►  Watching  ── Applied, Deleted ──►  (stays)  ────┤
//!                                   ▲                                                          │
//!                                   └──────────── connection ended, silent for too long ───────┘
//! ```

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Resource;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::compact_store::{CompactStore, Entry, Version};
use super::decode::{Decoded, Decoding, Events, Identity, Lenient, Page, Strict, decoded_events};
use super::outage_log::InformerLog;
use super::{Applied, Change, ObjectKey, Relist, Restart, Settings, Shared};
use crate::client::backoff::Backoff;
use signpost_runtime::causes::chain;
use signpost_types::v1alpha1::{DAMAGED_ANNOTATION, DAMAGED_HEADER, DAMAGED_PLACEHOLDERS};

/// The age from which a watch is reopened immediately after the server ended it, and soon after it broke.
const LIVED_LONG: Duration = Duration::from_secs(1);

/// The longest time after [`Settings::watch_longest`] for a watch to end.
const LATE_END: Duration = Duration::from_secs(5);

/// The number of watches in a row without an event or bookmark after which the informer lists. Two short watches and a list are within the
/// time for which name servers deny names ([`DENIAL_LONGEST`](crate::name_server::denials::DENIAL_LONGEST)).
pub const BARREN_MAX: u32 = 2;

/// The state that keeps one informer up to date.
pub(super) struct Reflector<K, V> {
    client: kube::Client,
    request: Request,
    settings: Settings,
    project: Box<dyn Fn(K) -> Arc<V> + Send + Sync>,
    shared: Arc<Shared<V>>,
    backoff: Backoff,
    /// The time of the request for the last list, if no watch has followed yet.
    listed: Option<Instant>,
    /// Whether the watch has sent anything.
    has_events: bool,
    /// The preceding watches in a row that sent nothing.
    barren: u32,
    decoding: Decoding,
    log: InformerLog,
    phase: Phase<K>,
}

enum Phase<K> {
    /// All objects must be listed.
    List,
    /// All changes up to `version` are known. `check`: first compare the server's version with it.
    Connect { version: String, check: bool },
    /// The open watch reports changes. `requested`: the time before the requests that opened it.
    Watching { events: Events<K>, version: String, since: Instant, requested: Instant },
}

/// Returns the token of the next page, if the metadata is before the items, where servers write it.
fn continuation(text: &str) -> Option<String> {
    const ITEMS: &str = "\"items\":[";
    let (head, _) = text.split_once(ITEMS)?;
    let page: Page<IgnoredAny> = serde_json::from_str(&format!("{head}{ITEMS}]}}")).ok()?;
    page.metadata.continue_.filter(|token| !token.is_empty())
}

/// The objects of a list so far, complete or not.
struct Listed<V> {
    objects: CompactStore<V>,
    /// The objects that exist but did not decode.
    undecoded: Vec<ObjectKey>,
}

impl<V> Default for Listed<V> {
    fn default() -> Self {
        Listed { objects: CompactStore::default(), undecoded: Vec::new() }
    }
}

/// The reason why the informer must restart, and the phase from which it does.
struct Failure {
    reason: Restart,
    error: Option<String>,
    /// Whether changes may have been missed.
    relist: bool,
}

impl<K, V> Reflector<K, V>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(
        client: kube::Client,
        settings: Settings,
        project: Box<dyn Fn(K) -> Arc<V> + Send + Sync>,
        shared: Arc<Shared<V>>,
    ) -> Self {
        Reflector {
            request: Request::new(settings.path::<K>()),
            client,
            backoff: Backoff::new(settings.backoff_first, settings.backoff_longest),
            listed: None,
            has_events: false,
            barren: 0,
            decoding: Decoding::Strict,
            log: InformerLog::new(settings.of, &shared.kind),
            settings,
            project,
            shared,
            phase: Phase::List,
        }
    }

    /// Waits for the next change.
    pub(super) async fn next_change(&mut self) -> Change<V> {
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
            Phase::List => self.list().await.map(Some),
            Phase::Connect { version, check } => {
                let (version, check) = (version.clone(), *check);
                self.connect(version, check).await.map(|()| None)
            }
            Phase::Watching { .. } => self.watch().await,
        }
    }

    async fn list(&mut self) -> Result<Change<V>, Failure> {
        let (mut listed, requested) = (Listed::default(), Instant::now());
        let mut text = self.request_page(None)?.await?;
        loop {
            // The server prepares the next page while this process decodes the current one.
            let early = continuation(&text);
            let next = early.clone().map(|token| self.request_page(Some(token))).transpose()?;
            let next = next.map(|request| AbortOnDropHandle::new(tokio::spawn(request)));
            let page = self.decode(&text)?;
            self.note_contact();
            for object in page.items {
                self.take_in(object, &mut listed);
            }
            let token = page.metadata.continue_.filter(|token| !token.is_empty());
            text = match (token, next) {
                (None, _) => {
                    let version = page.metadata.resource_version.filter(|version| !version.is_empty());
                    let version = version.ok_or_else(|| Failure::invalid("the list has no resourceVersion"))?;
                    self.listed = Some(requested);
                    return Ok(self.resync(listed, version));
                }
                (token, Some(next)) if token == early => {
                    next.await.map_err(|error| Failure::invalid(&error.to_string()))??
                }
                (token, _) => self.request_page(token)?.await?,
            };
        }
    }

    fn request_page(
        &self,
        continue_token: Option<String>,
    ) -> Result<impl Future<Output = Result<String, Failure>> + Send + use<K, V>, Failure> {
        let parameters = ListParams {
            label_selector: self.settings.label_selector.clone(),
            field_selector: self.settings.field_selector.clone(),
            limit: Some(self.settings.page_size),
            continue_token,
            ..ListParams::default()
        };
        let mut request = self.request.list(&parameters).map_err(|error| Failure::invalid(&error.to_string()))?;
        take_placeholders(&mut request);
        let (client, patience) = (self.client.clone(), self.settings.silence_longest);
        Ok(async move {
            // `Client::request` logs the whole text of a list that does not decode.
            let answer = timeout(patience, client.request_text(request));
            answer.await.map_err(|_| Failure::timed_out())?.map_err(|error| Failure::of(&error))
        })
    }

    fn decode(&self, text: &str) -> Result<Page<Decoded<K>>, Failure> {
        let page = match self.decoding {
            // A placeholder is not an object of this kind, and not a reason to use the slow decoding from now on.
            Decoding::Strict => match serde_json::from_str::<Page<Strict<K>>>(text) {
                Err(_) if text.contains(DAMAGED_ANNOTATION) => {
                    serde_json::from_str::<Page<Lenient<K>>>(text).map(Page::decoded)
                }
                page => page.map(Page::decoded),
            },
            Decoding::Lenient => serde_json::from_str::<Page<Lenient<K>>>(text).map(Page::decoded),
        };
        page.map_err(|error| Failure::invalid(&error.to_string()))
    }

    async fn connect(&mut self, version: String, check: bool) -> Result<(), Failure> {
        let requested = Instant::now();
        // The list is in the queues of all readers now.
        if let Some(listed) = self.listed.take() {
            self.shared.state().caught_up = Some(listed);
        }
        if check && went_back(&version, &self.present_version().await?) {
            return Err(Failure { reason: Restart::RevisionRegressed, error: None, relist: true });
        }
        let events = self.open(&version).await?;
        self.note_contact();
        self.has_events = false;
        self.shared.state().connected = true;
        self.phase = Phase::Watching { events, version, since: Instant::now(), requested };
        Ok(())
    }

    /// Returns the server's current version, by the smallest possible list.
    async fn present_version(&mut self) -> Result<String, Failure> {
        let parameters = ListParams { limit: Some(1), ..ListParams::default() };
        let mut request = self.request.list(&parameters).map_err(|error| Failure::invalid(&error.to_string()))?;
        take_placeholders(&mut request);
        let answer = timeout(self.settings.silence_longest, self.client.request_text(request));
        let text = answer.await.map_err(|_| Failure::timed_out())?.map_err(|error| Failure::of(&error))?;
        let page: Page<IgnoredAny> =
            serde_json::from_str(&text).map_err(|error| Failure::invalid(&error.to_string()))?;
        Ok(page.metadata.resource_version.unwrap_or_default())
    }

    async fn open(&mut self, version: &str) -> Result<Events<K>, Failure> {
        let parameters = WatchParams {
            label_selector: self.settings.label_selector.clone(),
            field_selector: self.settings.field_selector.clone(),
            bookmarks: true,
            timeout: Some(u32::try_from(self.settings.watch_longest.as_secs()).unwrap_or(u32::MAX)),
            ..WatchParams::default()
        };
        let request = self.request.watch(&parameters, version).map_err(|error| Failure::invalid(&error.to_string()));
        let mut request = request?;
        take_placeholders(&mut request);
        let opened = async {
            Ok(match self.decoding {
                Decoding::Strict => decoded_events::<Strict<K>, K>(self.client.request_events(request).await?),
                Decoding::Lenient => decoded_events::<Lenient<K>, K>(self.client.request_events(request).await?),
            })
        };
        match timeout(self.settings.silence_longest, opened).await {
            Err(_) => Err(Failure::timed_out()),
            Ok(Err(error)) => {
                let mut failure = Failure::of(&error);
                // An error response instead of a watch does not show whether this version is usable, so list everything. A list
                // resolves 410, and makes a slow but correct informer of a forbidden watch.
                failure.relist = matches!(error, kube::Error::Api(_));
                Err(failure)
            }
            Ok(Ok(events)) => Ok(events),
        }
    }

    async fn watch(&mut self) -> Result<Option<Change<V>>, Failure> {
        let event = self.event().await?;
        self.backoff.reset();
        self.has_events = true;
        let change = self.take(event);
        if let Phase::Watching { version, .. } = &self.phase {
            self.shared.state().version.clone_from(version);
        }
        change
    }

    fn take(&mut self, event: WatchEvent<Decoded<K>>) -> Result<Option<Change<V>>, Failure> {
        let Phase::Watching { version, requested, .. } = &mut self.phase else { return Ok(None) };
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let identity = object.identity();
                if went_back(version, &identity.version) {
                    if self.shared.objects().get(&identity.key).is_none() {
                        // The event is out of order, and its object is unknown: it is new, or already deleted. A list shows
                        // which.
                        return Err(Failure { reason: Restart::RevisionRegressed, error: None, relist: true });
                    }
                } else {
                    note_version(version, &identity.version)?;
                }
                Ok(self.apply(object, identity))
            }
            WatchEvent::Deleted(object) => {
                let identity = object.identity();
                if !went_back(version, &identity.version) {
                    note_version(version, &identity.version)?;
                }
                let is_placeholder = object.is_placeholder();
                if is_placeholder && self.shared.objects().get(&identity.key).is_none() {
                    // Consumers can know the object from before this process started: they need a list.
                    return Err(Failure { reason: Restart::Requested, error: None, relist: true });
                }
                Ok(self.delete(&identity, is_placeholder))
            }
            WatchEvent::Bookmark(bookmark) => {
                if went_back(version, &bookmark.metadata.resource_version) {
                    return Err(Failure { reason: Restart::RevisionRegressed, error: None, relist: true });
                }
                note_version(version, &bookmark.metadata.resource_version)?;
                // The message itself can be old, so only the request has a certain time.
                self.shared.state().caught_up = Some(*requested);
                Ok(None)
            }
            WatchEvent::Error(status) => Err(Failure { relist: true, ..Failure::of_status(&status) }),
        }
    }

    /// Returns the next event of the open watch.
    async fn event(&mut self) -> Result<WatchEvent<Decoded<K>>, Failure> {
        let Phase::Watching { events, .. } = &mut self.phase else {
            return Err(Failure::invalid("no watch is open"));
        };
        let longest = self.settings.silence_longest.min(self.settings.watch_longest + LATE_END);
        let event = tokio::select! {
            event = timeout(longest, events.next()) => event,
            () = self.shared.again.notified() => {
                return Err(Failure { reason: Restart::Requested, error: None, relist: true });
            }
        };
        match event.map_err(|_| Failure::timed_out())? {
            Some(Ok(event)) => {
                self.note_contact();
                Ok(event)
            }
            Some(Err(error)) => Err(Failure::of(&error)),
            None => Err(Failure { reason: Restart::Closed, error: None, relist: false }),
        }
    }

    /// Counts the failure, waits, and chooses the next phase.
    async fn recover(&mut self, failure: Failure) {
        // If a server lets a watch live for a while and ends it, the watch is reopened immediately; all other cases wait.
        let lived = match &self.phase {
            Phase::Watching { since, .. } => since.elapsed() >= LIVED_LONG,
            _ => false,
        };
        let in_order = matches!(failure.reason, Restart::Closed | Restart::Requested);
        let is_renewal = failure.reason == Restart::Closed && self.has_lasted();
        // A proxy between this process and the server can end every watch before its first event, or buffer all events. Only
        // lists reveal the missed changes.
        if matches!(self.phase, Phase::Watching { .. }) {
            self.barren = if self.has_events { 0 } else { self.barren.saturating_add(1) };
        }
        let is_barren = self.barren > 0 && (!lived || self.barren.is_multiple_of(BARREN_MAX));
        {
            let mut state = self.shared.state();
            // A watch that was open until now is a sign of life of the API, even after a long silence, but not if it is
            // considered dead.
            if state.connected && failure.reason != Restart::TimedOut {
                state.last_contact = Some(Instant::now());
            }
            if !is_renewal {
                state.connected = false;
                state.restarts[failure.reason as usize] += 1;
            }
            if failure.error.is_some() {
                state.error.clone_from(&failure.error);
            }
        }
        if let Some(error) = &failure.error {
            self.log.failed(failure.reason, error);
        }
        if failure.reason == Restart::InvalidResponse {
            self.decoding = Decoding::Lenient;
        }
        self.phase = match std::mem::replace(&mut self.phase, Phase::List) {
            Phase::Connect { version, .. } if !failure.relist => Phase::Connect { version, check: true },
            Phase::Watching { version, .. } if !failure.relist && !is_barren => {
                // A normal end and a cut connection are indistinguishable here, so the server's version is always checked.
                Phase::Connect { version, check: true }
            }
            _ => Phase::List,
        };
        if lived {
            // It worked, even if nothing happened meanwhile, and does not count as an earlier failure.
            self.backoff.reset();
        }
        if !(in_order && lived) {
            sleep(self.backoff.next_wait()).await;
        }
    }

    /// Returns whether the watch that has ended was open for as long as requested.
    fn has_lasted(&self) -> bool {
        match &self.phase {
            // The server measures from the request.
            Phase::Watching { since, .. } => since.elapsed() + LIVED_LONG >= self.settings.watch_longest,
            _ => false,
        }
    }

    fn take_in(&self, object: Decoded<K>, listed: &mut Listed<V>) {
        let identity = object.identity();
        match object {
            Decoded::Good(object) => {
                // An unchanged object keeps its value, so that a list of known objects costs little.
                let known = self.shared.objects().get(&identity.key).and_then(|entry| {
                    let same = entry.version == Version::new(&identity.version) && entry.uid == identity.uid;
                    same.then(|| Arc::clone(&entry.value))
                });
                let value = known.unwrap_or_else(|| self.project(object));
                let Identity { key, uid, version } = identity;
                listed.objects.insert(key, Entry { uid, version: Version::new(&version), value });
            }
            Decoded::Bad { error, .. } => {
                self.count_undecodable(&identity.key, &error);
                listed.undecoded.push(identity.key);
            }
        }
    }

    fn resync(&mut self, mut listed: Listed<V>, version: String) -> Change<V> {
        let mut objects = self.shared.objects_mut();
        let mut unknown = HashSet::new();
        for key in listed.undecoded {
            match objects.remove(&key) {
                Some(last_good) => drop(listed.objects.insert(key, last_good)),
                None => drop(unknown.insert(key)),
            }
        }
        self.shared.state().unknown = unknown;
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
        self.phase = Phase::Connect { version, check: false };
        let first = !self.shared.synced.send_replace(true);
        Change::Relisted(Relist { first, applied, vanished, total })
    }

    fn apply(&self, object: Decoded<K>, identity: Identity) -> Option<Change<V>> {
        let object = match object {
            Decoded::Good(object) => object,
            Decoded::Bad { error, .. } => {
                self.count_undecodable(&identity.key, &error);
                if self.shared.objects().get(&identity.key).is_none() {
                    self.shared.state().unknown.insert(identity.key);
                }
                return None;
            }
        };
        self.shared.state().unknown.remove(&identity.key);
        // The object is known already, or an earlier one, of any uid: versions are comparable across all objects.
        let version = Version::new(&identity.version);
        let known = |entry: &Entry<V>| {
            entry.uid == identity.uid && !version.is_newer_than(&entry.version) || entry.version.went_back(&version)
        };
        if self.shared.objects().get(&identity.key).is_some_and(known) {
            return None;
        }
        let now = self.project(object);
        let Identity { key, uid, .. } = identity;
        let entry = Entry { uid: uid.clone(), version, value: Arc::clone(&now) };
        let old = self.shared.objects_mut().insert(key.clone(), entry);
        let recreated = old.as_ref().is_some_and(|old| old.uid != uid);
        Some(Change::Applied(Applied { key, now, before: old.map(|old| old.value), recreated }))
    }

    fn delete(&self, identity: &Identity, is_placeholder: bool) -> Option<Change<V>> {
        let mut objects = self.shared.objects_mut();
        self.shared.state().unknown.remove(&identity.key);
        // The late deletion of an earlier object of this name must not delete the current one. For a placeholder, the version
        // decides, because the server does not know the uid of the deleted object.
        let version = Version::new(&identity.version);
        let is_another = |entry: &Entry<V>| match is_placeholder {
            true => entry.version.is_newer_than(&version),
            false => entry.uid != identity.uid,
        };
        if objects.get(&identity.key).is_none_or(is_another) {
            return None;
        }
        let last = objects.remove(&identity.key)?.value;
        Some(Change::Deleted { key: identity.key.clone(), last })
    }

    fn project(&self, mut object: K) -> Arc<V> {
        // Managed fields are half of many objects, and no consumer needs them.
        object.meta_mut().managed_fields = None;
        (self.project)(object)
    }

    fn note_contact(&mut self) {
        self.log.answered();
        self.shared.state().last_contact = Some(Instant::now());
    }

    fn count_undecodable(&self, key: &ObjectKey, error: &str) {
        self.shared.state().undecodable += 1;
        tracing::warn!(kind = %self.shared.kind, object = %key, %error, "failed to decode an object; keeping its last good value");
    }
}

impl Failure {
    fn invalid(error: &str) -> Self {
        Failure { reason: Restart::InvalidResponse, error: Some(error.to_owned()), relist: true }
    }

    fn timed_out() -> Self {
        Failure {
            reason: Restart::TimedOut,
            error: Some("no message from the API for too long".to_owned()),
            relist: false,
        }
    }

    fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Failure::of_status(status),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Failure::invalid(&error.to_string()),
            error => Failure { reason: Restart::Unreachable, error: Some(chain(error)), relist: false },
        }
    }

    fn of_status(status: &kube::core::Status) -> Self {
        let reason = match status.code {
            401 | 403 => Restart::Forbidden,
            404 => Restart::Missing,
            410 => Restart::Expired,
            429 | 500.. => Restart::Failing,
            _ => Restart::InvalidResponse,
        };
        let error = format!("{} ({} {})", status.message, status.code, status.reason);
        Failure { reason, error: Some(error), relist: true }
    }
}

/// Requests placeholders of objects that the server cannot read. Without a placeholder, such an object would fail the whole list,
/// or look deleted. Other servers ignore the header.
fn take_placeholders(request: &mut http::Request<Vec<u8>>) {
    request.headers_mut().insert(DAMAGED_HEADER, http::HeaderValue::from_static(DAMAGED_PLACEHOLDERS));
}

fn note_version(known: &mut String, now: &str) -> Result<(), Failure> {
    if now.is_empty() {
        return Err(Failure::invalid("a watch event has no resourceVersion"));
    }
    now.clone_into(known);
    Ok(())
}

/// Returns whether the server is now at a version before `known`.
fn went_back(known: &str, now: &str) -> bool {
    Version::new(known).went_back(&Version::new(now))
}
