//! The garbage collector: deletes dependents when their owners are deleted.
//!
//! One loop follows all kinds in the cache and keeps an index from owner to dependents. It behaves like a Kubernetes cluster, in
//! the same visible steps. After a *background* deletion, it deletes dependents whose owners are all deleted. For a *foreground*
//! deletion, it deletes the dependents first and then removes the finalizer `foregroundDeletion` from the owner. To *orphan*, it
//! removes the owner from the dependents' references and then the finalizer `orphan` from the owner.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::auth::identity::Identity;
use super::error::ApiError;
use super::handlers::delete::{Deletion, FINALIZER_FOREGROUND, FINALIZER_ORPHAN, Propagation, delete_object};
use super::handlers::update::change;
use super::handlers::writer::{Part, Writer};
use super::kind::Kind;
use super::object::{Object, Owner};
use super::request::object_key;
use super::store::Key;
use super::watch_cache::{Cursor, TooOld};

/// The time to collect further changes: dependents are usually created and deleted together.
const GATHER: Duration = Duration::from_millis(20);
/// The time until a retry after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// The maximum number of changes per batch.
const CHANGES_AT_ONCE: usize = 1_024;

/// The identity of an object: the index of its stored kind among the kind caches, and its key.
type Id = (usize, Arc<str>);

/// Collects until `cancel` fires.
pub(crate) async fn run(server: &Arc<Shared>, cancel: &CancellationToken) {
    let work = async {
        loop {
            server.cache.reaches(1, RETRY).await;
            if server.cache.applied() == 0 {
                continue;
            }
            let mut collector = Collector::new(server);
            // The ring was overwritten before it was read: restart with the current objects.
            while collector.collect().await.is_ok() {}
        }
    };
    cancel.run_until_cancelled(work).await;
}

struct Collector<'a> {
    server: &'a Arc<Shared>,
    cursors: Vec<Cursor>,
    /// The dependents of each owner, by the owner's UID.
    dependents: HashMap<Box<str>, BTreeSet<Id>>,
    /// The objects to check.
    pending: BTreeSet<Id>,
}

impl<'a> Collector<'a> {
    fn new(server: &'a Arc<Shared>) -> Self {
        let mut collector =
            Collector { server, cursors: Vec::new(), dependents: HashMap::new(), pending: BTreeSet::new() };
        for (place, kind_cache) in server.cache.kind_caches().iter().enumerate() {
            let (snapshot, cursor) = server.cache.snapshot_and_follow(kind_cache.kind, "");
            collector.cursors.push(cursor);
            for object in &snapshot.objects {
                collector.saw(place, None, Some(object));
            }
        }
        collector
    }

    /// Runs one round: read changes, process due objects, sleep until there are more.
    async fn collect(&mut self) -> Result<(), TooOld> {
        let seen = self.server.cache.applied();
        for place in 0..self.cursors.len() {
            loop {
                let changes = self.cursors[place].take(CHANGES_AT_ONCE)?;
                if changes.is_empty() {
                    break;
                }
                for change in changes {
                    let now = if change.deleted { None } else { Some(&change.now) };
                    self.saw(place, change.before.as_ref(), now);
                }
            }
        }
        let mut failed = BTreeSet::new();
        for id in std::mem::take(&mut self.pending) {
            if let Err(error) = self.process(&id).await {
                tracing::debug!(object = &*id.1, %error, "garbage collection failed; retrying");
                failed.insert(id);
            }
        }
        let wait = if failed.is_empty() { Duration::from_secs(60) } else { RETRY };
        self.pending.extend(failed);
        self.server.cache.reaches(seen + 1, wait).await;
        tokio::time::sleep(if self.pending.is_empty() { GATHER } else { RETRY }).await;
        Ok(())
    }

    fn saw(&mut self, place: usize, before: Option<&Arc<Object>>, now: Option<&Arc<Object>>) {
        fn owners(object: Option<&Arc<Object>>) -> &[Owner] {
            object.map_or(&[], |object| object.owners())
        }
        let (had, has) = (owners(before), owners(now));
        let Some(object) = now.or(before) else { return };
        let id = || -> Id { (place, object.key().into()) };
        for owner in had.iter().filter(|owner| !has.contains(owner)) {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(&id());
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
            // An owner that waits for its dependents may wait for this object.
            self.pending.extend(self.find(owner, object.namespace()).filter(|owner| self.is_held(owner)));
        }
        for owner in has {
            self.dependents.entry(owner.uid.clone()).or_default().insert(id());
        }
        if had != has && !has.is_empty() || now.is_some_and(|now| now.is_deleting()) {
            self.pending.insert(id());
        }
        if now.is_none()
            && let Some(dependents) = self.dependents.get(object.uid())
        {
            self.pending.extend(dependents.iter().cloned());
        }
    }

    fn get(&self, (place, key): &Id) -> Option<Arc<Object>> {
        self.server.cache.kind_caches()[*place].get(key)
    }

    fn is_held(&self, id: &Id) -> bool {
        self.get(id).is_some_and(|object| object.is_deleting())
    }

    /// Returns the location of an owner: in the dependent's namespace, or cluster-scoped. `None` if the kind is not served.
    fn find(&self, owner: &Owner, namespace: Option<&str>) -> Option<Id> {
        let same = |kind: &&Kind| *kind.kind == *owner.kind && *kind.api_version() == *owner.api_version;
        let kind = self.server.kinds.iter().find(same)?;
        let place = self
            .server
            .cache
            .kind_caches()
            .iter()
            .position(|kind_cache| kind_cache.kind.key_prefix == kind.key_prefix)?;
        let namespace = if kind.namespaced { Some(namespace.unwrap_or_default()) } else { None };
        Some((place, object_key(namespace, &owner.name).into()))
    }

    async fn process(&self, id: &Id) -> Result<(), ApiError> {
        let Some(object) = self.get(id) else { return Ok(()) };
        if object.is_deleting() {
            self.release(id, &object).await?;
        }
        if !object.owners().is_empty() {
            self.check_owner(id, &object).await?;
        }
        Ok(())
    }

    /// Processes an object that is being deleted and may wait for its dependents.
    async fn release(&self, id: &Id, object: &Object) -> Result<(), ApiError> {
        let tree = object.tree_without_managed_fields();
        let finalizers: Vec<&str> =
            tree["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let dependents = self.dependents.get(object.uid()).cloned().unwrap_or_default();
        if finalizers.contains(&FINALIZER_ORPHAN) {
            for dependent in &dependents {
                self.strip(dependent, &[object.uid().into()]).await?;
            }
            return self.take_finalizer(id, FINALIZER_ORPHAN).await;
        }
        if !finalizers.contains(&FINALIZER_FOREGROUND) {
            return Ok(());
        }
        let mut blocked = false;
        let mut kept = None;
        for dependent in &dependents {
            let Some(found) = self.get(dependent) else { continue };
            let blocks = found.owners().iter().any(|owner| *owner.uid == *object.uid() && owner.blocks);
            if !found.is_deleting() {
                // Dependents with their own dependents are deleted in the foreground, too.
                let propagation = match self.dependents.contains_key(found.uid()) {
                    true => Propagation::Foreground,
                    false => Propagation::Background,
                };
                // A dependent that cannot be deleted yet does not block the others.
                kept = self.delete(dependent, &found, propagation).await.err().or(kept);
            }
            blocked |= blocks && self.get(dependent).is_some_and(|still| still.uid() == found.uid());
        }
        match kept {
            Some(error) => Err(error),
            None if blocked => Ok(()),
            None => self.take_finalizer(id, FINALIZER_FOREGROUND).await,
        }
    }

    /// Processes an object with owners: deletes it when none of them exists, and removes references to deleted owners.
    async fn check_owner(&self, id: &Id, object: &Object) -> Result<(), ApiError> {
        let mut gone = Vec::new();
        let owners = object.owners();
        for owner in owners {
            if self.is_gone(owner, object.namespace()).await? {
                gone.push(owner.uid.clone());
            }
        }
        match gone.len() {
            0 => Ok(()),
            all if all == owners.len() => {
                if object.is_deleting() {
                    Ok(())
                } else {
                    self.delete(id, object, Propagation::Background).await
                }
            }
            _ => self.strip(id, &gone).await,
        }
    }

    /// Returns whether an owner does not exist. Of kinds that are not served here nothing is known, so they count as there.
    async fn is_gone(&self, owner: &Owner, namespace: Option<&str>) -> Result<bool, ApiError> {
        let Some(id) = self.find(owner, namespace) else { return Ok(false) };
        if self.get(&id).is_some_and(|found| found.uid() == &*owner.uid) {
            return Ok(false);
        }
        // The cache can be behind another server, so it is not sufficient evidence for a deletion.
        let kind = self.server.cache.kind_caches()[id.0].kind;
        let (_, found) = self.server.store.get(&Key::below(kind.key_prefix, &id.1), None).await?;
        let Some(found) = found else { return Ok(true) };
        let found = Object::from_stored(kind, &id.1, &found.value, found.modified.0);
        Ok(found.is_ok_and(|found| found.uid() != &*owner.uid))
    }

    async fn delete(&self, id: &Id, object: &Object, propagation: Propagation) -> Result<(), ApiError> {
        let identity = Identity::server();
        let kind = self.server.cache.kind_caches()[id.0].kind;
        let writer = Writer::internal(self.server, kind, object.namespace(), &identity);
        let deletion =
            Deletion { uid: Some(object.uid().to_owned()), propagation: Some(propagation), ..Deletion::default() };
        match delete_object(&writer, object.name(), &deletion).await {
            Err(error) if error.code == 404 => Ok(()),
            // Another object of that name exists, which is not garbage. If it is still the same object, its kind rejects its
            // deletion for now, for example because others depend on it, and the collector retries.
            Err(error) if error.code == 409 && self.get(id).is_none_or(|found| found.uid() != object.uid()) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    /// Removes references to these owners from a dependent.
    async fn strip(&self, id: &Id, gone: &[Box<str>]) -> Result<(), ApiError> {
        self.edit(id, |metadata| {
            let is_gone = |owner: &Value| gone.iter().any(|uid| owner["uid"].as_str() == Some(uid));
            remove_from(metadata, "ownerReferences", is_gone);
        })
        .await
    }

    async fn take_finalizer(&self, id: &Id, finalizer: &str) -> Result<(), ApiError> {
        self.edit(id, |metadata| remove_from(metadata, "finalizers", |found| found == finalizer)).await
    }

    async fn edit(&self, id: &Id, edit: impl Fn(&mut Value)) -> Result<(), ApiError> {
        let Some(object) = self.get(id) else { return Ok(()) };
        let identity = Identity::server();
        let kind = self.server.cache.kind_caches()[id.0].kind;
        let writer = Writer::internal(self.server, kind, object.namespace(), &identity);
        let edited = change(&writer, object.name(), Part::Main, |live| {
            let mut new = live.tree.clone();
            edit(&mut new["metadata"]);
            Ok((new, false))
        });
        edited.await.map(|_| ())
    }
}

fn remove_from(metadata: &mut Value, list: &str, unwanted: impl Fn(&Value) -> bool) {
    let Some(metadata) = metadata.as_object_mut() else { return };
    if let Some(items) = metadata.get_mut(list).and_then(Value::as_array_mut) {
        items.retain(|item| !unwanted(item));
        if items.is_empty() {
            metadata.remove(list);
        }
    }
}
