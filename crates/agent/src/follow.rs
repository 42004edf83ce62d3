//! The objects of one kind that concern a Router, as of a list-watch.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::resolve::{Changed, Key, key};

/// The first and the longest pause after an error of a watch; it doubles with each error in a row.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// The objects of one kind. An object that cannot be decoded keeps its last valid version.
pub(crate) struct Followed<K> {
    /// Whether an object concerns the Router; it may drop unused fields.
    wants: Box<dyn Fn(&mut K) -> bool + Send + Sync>,
    /// Whether an object with an equal uid and generation is the same.
    by_generation: bool,
    state: Mutex<State<K>>,
}

struct State<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// The objects of a list that is not complete yet, and the highest resource version among them.
    listed: Option<(BTreeMap<Key, Arc<K>>, u64)>,
    /// The objects that may have changed since they were taken.
    changed: BTreeSet<Key>,
    is_synced: bool,
    revision: u64,
}

impl<K> Followed<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    pub(crate) fn new(wants: impl Fn(&mut K) -> bool + Send + Sync + 'static) -> Followed<K> {
        let (objects, changed) = (BTreeMap::new(), BTreeSet::new());
        let state = State { objects, listed: None, changed, is_synced: false, revision: 0 };
        Followed { wants: Box::new(wants), by_generation: false, state: Mutex::new(state) }
    }

    /// Follows a kind whose status and metadata do not matter: a change of these alone is not a change. It moves only
    /// [`Self::revision`].
    pub(crate) fn by_generation(wants: impl Fn(&mut K) -> bool + Send + Sync + 'static) -> Followed<K> {
        Followed { by_generation: true, ..Followed::new(wants) }
    }

    /// Returns whether a list is complete.
    pub(crate) fn is_synced(&self) -> bool {
        self.state.lock().is_synced
    }

    /// Takes the objects that have changed since the last call, and returns the highest resource version among those that concern the
    /// Router, deleted ones included.
    pub(crate) fn take(&self) -> (Changed<K>, u64) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let changed = std::mem::take(&mut state.changed).into_iter();
        (changed.map(|key| (key.clone(), state.objects.get(&key).cloned())).collect(), state.revision)
    }

    /// Returns the resource version that the next [`Self::take`] returns.
    pub(crate) fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    /// Lists and watches without end. Each change notifies `changed`.
    pub(crate) async fn follow(self: Arc<Self>, api: Api<DeserializeGuard<K>>, changed: Arc<Notify>) {
        let mut pause = PAUSE.0;
        loop {
            let mut events = watcher(api.clone(), watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        // Each try begins with this event, also one that fails.
                        if !matches!(event, Event::Init) {
                            pause = PAUSE.0;
                        }
                        if self.apply(event) {
                            changed.notify_one();
                        }
                    }
                    Err(error) => {
                        tracing::warn!(kind = %K::kind(&()), %error, "failed to watch; retrying");
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(PAUSE.1);
                        // The watcher would always start at the same revision.
                        if matches!(&error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
                        {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Applies an event; returns whether anything that concerns the Router has changed.
    pub(crate) fn apply(&self, event: Event<DeserializeGuard<K>>) -> bool {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        match event {
            Event::Init => {
                state.listed = Some(Default::default());
                false
            }
            Event::InitApply(object) => {
                let (mut objects, highest) = state.listed.take().unwrap_or_default();
                let version = revision(&object);
                let has_changed = self.insert(object, &mut objects, state);
                state.listed = Some((objects, if has_changed { highest.max(version) } else { highest }));
                false
            }
            Event::InitDone => {
                let (listed, highest) = state.listed.take().unwrap_or_default();
                // Not the higher one of both: a list after the store went back to an earlier state is all that is known.
                state.revision = highest;
                let before = std::mem::replace(&mut state.objects, listed);
                state.changed.extend(before.into_keys());
                state.changed.extend(state.objects.keys().cloned());
                state.is_synced = true;
                true
            }
            Event::Apply(object) => {
                let mut objects = std::mem::take(&mut state.objects);
                let (key, version) = (key(object.meta()), revision(&object));
                let before = objects.get(&key).cloned();
                let concerns = self.insert(object, &mut objects, state);
                if concerns {
                    state.revision = state.revision.max(version);
                }
                let is_same = self.by_generation
                    && before.zip(objects.get(&key)).is_some_and(|(before, now)| has_same_generation(&*before, &**now));
                state.objects = objects;
                let has_changed = concerns && !is_same;
                if has_changed {
                    state.changed.insert(key);
                }
                has_changed
            }
            Event::Delete(object) => {
                let key = key(object.meta());
                let was_there = state.objects.remove(&key).is_some();
                if was_there {
                    state.changed.insert(key);
                    state.revision = state.revision.max(revision(&object));
                }
                was_there
            }
        }
    }

    /// Puts an object into a map, or takes it out if it does not concern the Router any more. Returns whether it does or did.
    fn insert(&self, object: DeserializeGuard<K>, into: &mut BTreeMap<Key, Arc<K>>, state: &State<K>) -> bool {
        let key = key(object.meta());
        let wanted = match object.0 {
            Ok(mut object) => {
                object.managed_fields_mut().clear();
                (self.wants)(&mut object).then(|| Arc::new(object))
            }
            Err(error) => {
                let (namespace, name) = &key;
                tracing::warn!(kind = %K::kind(&()), namespace, name, %error, "failed to decode an object; using its last valid state");
                state.objects.get(&key).or_else(|| into.get(&key)).cloned()
            }
        };
        match wanted {
            Some(object) => {
                into.insert(key, object);
                true
            }
            None => into.remove(&key).is_some(),
        }
    }
}

fn has_same_generation(one: &impl Resource, other: &impl Resource) -> bool {
    let (one, other) = (one.meta(), other.meta());
    one.generation.is_some()
        && (&one.uid, one.generation, &one.annotations) == (&other.uid, other.generation, &other.annotations)
}

/// Returns the resource version; 0 if it is not a number.
fn revision(object: &impl Resource) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::{Value, json};

    use super::*;

    fn object(name: &str, revision: u32, spec: Value) -> DeserializeGuard<Service> {
        let metadata = json!({"namespace": "test", "name": name, "resourceVersion": revision.to_string()});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("an object")
    }

    #[test]
    fn events() {
        let followed = Followed::<Service>::new(|service| service.name_any() != "other");
        let mut known = BTreeMap::new();
        let mut seen = || {
            let (changed, revision) = followed.is_synced().then(|| followed.take())?;
            known.extend(changed);
            known.retain(|_, object| object.is_some());
            Some((known.keys().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(" "), revision))
        };
        let good = || json!({"type": "ClusterIP"});
        let bad = || json!({"type": 7});
        let some = |names: &str, revision| Some((names.to_owned(), revision));
        for (event, has_changed, expected) in [
            (Event::Init, false, None),
            (Event::InitApply(object("a", 3, good())), false, None),
            (Event::InitApply(object("other", 9, good())), false, None),
            (Event::InitApply(object("b", 2, good())), false, None),
            (Event::InitDone, true, some("a b", 3)),
            (Event::Apply(object("c", 10, good())), true, some("a b c", 10)),
            (Event::Apply(object("other", 11, good())), false, some("a b c", 10)),
            // An object that cannot be decoded keeps its last valid version, also after a list.
            (Event::Apply(object("a", 12, bad())), true, some("a b c", 12)),
            (Event::Apply(object("new", 13, bad())), false, some("a b c", 12)),
            (Event::Delete(object("b", 14, good())), true, some("a c", 14)),
            (Event::Delete(object("other", 15, good())), false, some("a c", 14)),
            // The version counts with the objects.
            (Event::Init, false, some("a c", 14)),
            (Event::InitApply(object("a", 16, bad())), false, some("a c", 14)),
            (Event::InitDone, true, some("a", 16)),
            // The store is back at an earlier state.
            (Event::Init, false, some("a", 16)),
            (Event::InitApply(object("a", 8, good())), false, some("a", 16)),
            (Event::InitApply(object("other", 9, good())), false, some("a", 16)),
            (Event::InitDone, true, some("a", 8)),
        ] {
            let text = format!("{event:?}");
            assert_eq!((followed.apply(event), seen()), (has_changed, expected), "{text}");
        }
    }

    #[test]
    fn an_equal_generation_moves_only_the_version() {
        let followed = Followed::<Service>::by_generation(|service| service.name_any() != "other");
        let object = |uid: &str, generation: Option<i64>, revision| {
            let mut object = object("a", revision, json!({}));
            let metadata = object.meta_mut();
            (metadata.uid, metadata.generation) = (Some(uid.to_owned()), generation);
            object
        };
        for (uid, generation, revision, has_changed) in [
            ("u1", Some(1), 10, true),
            ("u1", Some(1), 11, false),
            ("u1", Some(2), 12, true),
            ("u1", Some(2), 13, false),
            // It was deleted and re-created.
            ("u2", Some(2), 14, true),
            // A kind without generations.
            ("u2", None, 15, true),
            ("u2", None, 16, true),
        ] {
            let event = Event::Apply(object(uid, generation, revision));
            assert_eq!(followed.apply(event), has_changed, "{uid} {generation:?}");
            assert_eq!(followed.revision(), u64::from(revision));
            let (changed, version) = followed.take();
            assert_eq!((changed.len(), version), (usize::from(has_changed), u64::from(revision)));
        }
    }
}
