//! What all writes share: the live object, preparing and judging the new one, the commit, the answer.
//!
//! The order of a write stands in [`crate::registry`]. All trees here are in the representation of the request's
//! kind, a view perhaps; they become the stored one just before the commit.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::response::Response;
use futures::future::BoxFuture;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::admit::Admitted;
use crate::error::{ApiError, Cause};
use crate::negotiate::Format;
use crate::object::Object;
use crate::registry::field;
use crate::registry::turnstile::{self, Turnstile};
use crate::registry::{self, Context, Effect, Kind, Operation, Reader, SideWrite, bounds, metadata};
use crate::request::{FieldValidation, Resource, WriteOptions, is_built_in, is_namespace, object_key};
use crate::store::{Error, Expect, Key, KeyValue, Outcome, Revision, Txn, Write};
use crate::table::Include;
use crate::{Shared, apply, engine, object, respond, schema};
use signpost_api::identity::Identity;
use signpost_api::names::LabelRules;

/// The rules on labels where no platform is configured.
static DEFAULT_LABEL_RULES: LazyLock<LabelRules> = LazyLock::new(LabelRules::default);

/// How often a write that lost a race begins anew before it is a conflict.
pub(crate) const ATTEMPTS: usize = 6;
/// How long a write waits for the cache to show it. Past that it is answered all the same: it is durable.
const SHOWN_WAIT: Duration = Duration::from_secs(5);

/// A write under way: by whom, to what, how.
pub(crate) struct Writer<'a> {
    pub(crate) server: &'a Arc<Shared>,
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) identity: &'a Identity,
    pub(crate) options: WriteOptions,
    pub(crate) now: Timestamp,
}

/// An object as it is before a write.
pub(crate) struct Live {
    /// With its `resourceVersion`.
    pub(crate) tree: Value,
    /// The revision that wrote it.
    pub(crate) revision: u64,
    /// The size of its JSON, as stored.
    pub(crate) bytes: usize,
}

impl Live {
    fn new(kind: &Kind, object: &Object) -> Live {
        Live { revision: object.revision, bytes: object.stored_len(), tree: respond::as_tree(kind, object) }
    }
}

/// How a write ended.
pub(crate) struct Written {
    pub(crate) status: StatusCode,
    /// The object as it is now.
    pub(crate) object: Arc<Object>,
    /// What the client should hear.
    pub(crate) warnings: Vec<String>,
}

/// Which part of an object an update is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status.
    Main,
    /// The status.
    Status,
    /// The finalizers of a namespace's contents.
    Finalize,
}

/// What an update comes to.
pub(crate) enum Change {
    /// Nothing.
    None,
    /// The object as it will be.
    Put(Value),
    /// The last finalizer is gone from an object that is being deleted: it goes. With its last state.
    Delete(Value),
}

/// A commit that lost.
pub(crate) enum Lost {
    /// Someone else wrote one of the objects first; `main` is what the written key holds.
    Race {
        /// What the written key holds now.
        main: Option<KeyValue>,
    },
    /// It failed.
    Failed(ApiError),
}

impl From<ApiError> for Lost {
    fn from(error: ApiError) -> Self {
        Lost::Failed(error)
    }
}

impl<'a> Writer<'a> {
    pub(crate) fn new(
        server: &'a Arc<Shared>,
        resource: &'a Resource,
        identity: &'a Identity,
        options: WriteOptions,
    ) -> Self {
        let namespace = resource.namespace.as_deref();
        Writer { server, kind: resource.kind, namespace, identity, options, now: Timestamp::now() }
    }

    /// A write of the server itself: by its own loops, which stand above the table of rights.
    pub(crate) fn internal(
        server: &'a Arc<Shared>,
        kind: &'static Kind,
        namespace: Option<&'a str>,
        identity: &'a Identity,
    ) -> Self {
        let options = WriteOptions {
            dry_run: false,
            validation: FieldValidation::Ignore,
            manager: "signpost".to_owned(),
            manager_named: true,
            force: None,
        };
        Writer { server, kind, namespace, identity, options, now: Timestamp::now() }
    }

    /// What the sender of an object should know.
    pub(crate) fn warnings(&self, object: &Object) -> Vec<String> {
        let Some(warnings) = self.kind.rules.warnings() else { return Vec::new() };
        let tree = respond::as_tree(self.kind, object);
        let mut told = warnings(&tree);
        if self.kind.kind == "Router"
            && let Some(platform) = self.server.platform.get()
        {
            told.extend((platform.examine)(&tree));
        }
        told
    }

    /// What the sender of a new Router should know of the hosts of others.
    pub(crate) async fn warning_of_hosts(&self, object: &Object) -> Option<String> {
        if self.kind.kind != "Router" {
            return None;
        }
        let (router, reader) = (respond::as_tree(self.kind, object), CacheReader { server: self.server });
        // The Router is there, whatever comes of this.
        registry::router::taken_hosts(&router, &self.server.domain, &reader).await.ok().flatten()
    }

    /// What the sender of a Router should know of the names of routes on it.
    pub(crate) async fn warning_of_names(&self, object: &Object) -> Option<String> {
        let platform = self.server.platform.get().filter(|_| self.kind.kind == "Router")?;
        let (router, reader) = (respond::as_tree(self.kind, object), CacheReader { server: self.server });
        let taken = (platform.taken)(&router);
        // It was written, whatever comes of this.
        registry::router::taken_names(&router, &taken, &reader).await.ok().flatten()
    }

    fn context(&self) -> Context<'_> {
        Context {
            identity: self.identity,
            domain: &self.server.domain,
            name_servers: self.server.platform.get().map_or(&[][..], |platform| &platform.name_servers[..]),
            label_rules: self.server.platform.get().map_or(&DEFAULT_LABEL_RULES, |platform| &platform.label_rules),
            namespace: self.namespace,
            manager: &self.options.manager,
            now: self.now,
        }
    }

    /// The kind as it is stored.
    pub(crate) fn stored_kind(&self) -> &'static Kind {
        self.server.cache.shelf(self.kind).kind
    }

    fn store_key(&self, name: &str) -> Key {
        engine::key(self.kind.key_prefix, &object_key(self.namespace, name))
    }

    /// The object as the cache has it, or, with `fresh` or if it is not there, as the store has it.
    pub(crate) async fn live(&self, name: &str, fresh: bool) -> Result<Option<Live>, ApiError> {
        let key = object_key(self.namespace, name);
        let cached = if fresh { None } else { self.server.cache.shelf(self.kind).get(&key) };
        if let Some(object) = cached {
            return Ok(Some(Live::new(self.kind, &object)));
        }
        let (_, found) = self.server.store.get(&self.store_key(name)).await?;
        let Some(found) = found else { return Ok(None) };
        let object = self.object(&key, &found.value, found.modified.0)?;
        Ok(Some(Live::new(self.kind, &object)))
    }

    pub(crate) fn object(&self, key: &str, value: &[u8], revision: u64) -> Result<Object, ApiError> {
        Object::from_stored(self.stored_kind(), key, value, revision)
            .map_err(|error| ApiError::internal(error.to_string()))
    }

    /// An object that is not committed, of a dry run.
    pub(crate) fn shown_admitted(&self, admitted: &Admitted, revision: u64) -> Result<Object, ApiError> {
        self.object(&object_key(self.namespace, &admitted.name), &admitted.value, revision)
    }

    /// An object that did not change, or whose deletion is shown.
    pub(crate) fn shown(&self, name: &str, tree: &Value, revision: u64) -> Result<Arc<Object>, ApiError> {
        let stored = self.to_stored(tree.clone());
        self.object(&object_key(self.namespace, name), &object::encode(&stored), revision).map(Arc::new)
    }

    pub(super) fn to_stored(&self, tree: Value) -> Value {
        match self.kind.view {
            None => tree,
            Some(view) => (view.to_stored)(tree),
        }
    }

    /// Prunes unknown fields; tells of them, or refuses them with `code`.
    pub(crate) fn prune(
        &self,
        object: &mut Value,
        duplicates: &[String],
        code: u16,
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let mut faults: Vec<String> = duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect();
        let strict = self.options.validation == FieldValidation::Strict;
        let whole = (strict && code == 422).then(|| object.clone());
        faults.extend(schema::prune(&self.kind.schema, object).iter().map(|path| format!("unknown field {path:?}")));
        match self.options.validation {
            _ if faults.is_empty() => {}
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(faults),
            FieldValidation::Strict => return Err(self.strict(whole, &faults)),
        }
        Ok(())
    }

    /// `patched` is what a patch makes of the object: 422 shows it, since the patch alone may not hold the field.
    fn strict(&self, patched: Option<Value>, faults: &[String]) -> ApiError {
        let told = format!("strict decoding error: {}", faults.join(", "));
        let Kind { kind, version, .. } = self.kind;
        match patched {
            None => {
                ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {told}"))
            }
            Some(mut patched) => {
                patched["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
                let cause = Cause::invalid("patch", &Value::from(patched.to_string()), &told);
                ApiError::invalid_of("", "", "", vec![cause])
            }
        }
    }

    /// Makes a new object of what the client sent: all of a create but the commit. `managed` says that its field sets are
    /// made already.
    pub(crate) fn prepare_create(&self, mut object: Value, managed: bool) -> Result<Value, ApiError> {
        self.verdict(&object, bounds::check(None, &object))?;
        let mut causes = Vec::new();
        if self.kind.has_status
            && let Some(sent) = object.as_object_mut().and_then(|object| object.remove("status"))
        {
            causes.extend(self.kind.rules.validate_sent_status(None, &sent));
        }
        let meta = metadata_of(&mut object)?;
        for server_set in
            ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "resourceVersion"]
        {
            meta.remove(server_set);
        }
        drop_empty(meta);
        causes.extend(registry::complete(&self.context(), self.kind, &mut object, managed));
        self.verdict(&object, causes)?;
        Ok(object)
    }

    fn verdict(&self, object: &Value, mut causes: Vec<Cause>) -> Result<(), ApiError> {
        // The schema and the rules may find the same fault.
        let mut seen = HashSet::new();
        causes.retain(|cause| seen.insert(cause.clone()));
        match causes.is_empty() {
            true => Ok(()),
            // Of the two views of events kube-apiserver names the stored one.
            false => Err(ApiError::invalid(self.stored_kind(), name_of(object), causes)),
        }
    }

    /// Makes of the object that the client wants what will be written: all of an update but the commit.
    pub(crate) fn prepare_update(
        &self,
        old: &Value,
        wanted: Value,
        part: Part,
        managed: bool,
    ) -> Result<Change, ApiError> {
        self.verdict(old, bounds::check(Some(old), &wanted))?;
        let (mut new, mut causes) = match part {
            Part::Main => self.prepare_main(old, wanted)?,
            Part::Status => {
                let mut new = with_member(old, wanted, "status");
                self.kind.rules.prepare_status(&self.context(), old, &mut new);
                (new, Vec::new())
            }
            Part::Finalize => (with_member(old, wanted, "spec"), Vec::new()),
        };
        let subresource = if part == Part::Status { Some("status") } else { None };
        if !managed {
            apply::track_update(self.kind, Some(old), &mut new, &self.options.manager, subresource, self.now);
        }
        schema::apply_defaults(&self.kind.schema, &mut new);
        causes.extend(self.schema_faults(old, &new));
        match part {
            Part::Main => {
                causes.extend(metadata::validate(self.kind, Some(old), &new));
                causes.extend(self.kind.rules.validate_update(&self.context(), old, &new));
            }
            Part::Status => causes.extend(self.kind.rules.validate_status_update(&self.context(), old, &new)),
            Part::Finalize => {}
        }
        self.verdict(&new, causes)?;
        if part == Part::Main && !is_built_in(self.kind) && content_differs(self.kind, old, &new) {
            new["metadata"]["generation"] = next_generation(old);
        }
        Ok(match () {
            () if self.is_released(&new) => Change::Delete(new),
            () if same(old, &new) => Change::None,
            () => Change::Put(new),
        })
    }

    /// The faults of a changed object against its schema. What an earlier version stored beyond a maximum may stay.
    fn schema_faults(&self, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = schema::validate(&self.kind.schema, new);
        let exceeds = |cause: &Cause| matches!(cause.reason, field::TOO_LONG | field::TOO_MANY);
        if causes.iter().any(exceeds) {
            let known = schema::validate(&self.kind.schema, old);
            let is_known = |cause: &Cause| known.iter().any(|known| exceeds(known) && known.field == cause.field);
            causes.retain(|cause| !exceeds(cause) || !is_known(cause));
        }
        causes
    }

    fn prepare_main(&self, old: &Value, mut new: Value) -> Result<(Value, Vec<Cause>), ApiError> {
        let mut causes = Vec::new();
        let old_meta = &old["metadata"];
        let meta = metadata_of(&mut new)?;
        for server_set in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            match old_meta.get(server_set) {
                Some(value) => meta.insert(server_set.to_owned(), value.clone()),
                None => meta.remove(server_set),
            };
        }
        meta.remove("selfLink");
        drop_empty(meta);
        if meta.get("uid").is_none_or(|uid| uid.is_null() || uid == "") {
            meta.insert("uid".into(), old_meta.get("uid").cloned().unwrap_or_default());
        }
        if self.kind.has_status {
            let object = new.as_object_mut().expect("its metadata were found");
            if let Some(sent) = object.remove("status") {
                causes.extend(self.kind.rules.validate_sent_status(Some(old), &sent));
            }
            if let Some(status) = old.get("status") {
                object.insert("status".to_owned(), status.clone());
            }
        }
        self.kind.rules.prepare_update(&self.context(), old, &mut new);
        Ok((new, causes))
    }

    /// Whether nothing holds an object any more that is being deleted.
    pub(crate) fn is_released(&self, object: &Value) -> bool {
        let meta = &object["metadata"];
        !meta["deletionTimestamp"].is_null() && is_empty(&meta["finalizers"]) && !self.holds_contents(object)
    }

    /// Whether this is a namespace whose contents are still to be deleted.
    pub(crate) fn holds_contents(&self, object: &Value) -> bool {
        is_namespace(self.kind) && !is_empty(&object["spec"]["finalizers"])
    }

    /// Asks the kind what a write entails.
    pub(crate) async fn before_commit(&self, operation: Operation<'_>) -> Result<Vec<SideWrite>, ApiError> {
        let reader = CacheReader { server: self.server };
        self.kind.rules.before_commit(&self.context(), operation, &reader).await
    }

    /// Commits a new object.
    pub(crate) async fn commit_create(
        &self,
        admitted: Admitted,
        side: Vec<SideWrite>,
        namespace: Option<(Key, Revision)>,
    ) -> Result<Arc<Object>, Lost> {
        let expect = namespace.map(|(key, at)| (key, Expect::At(at)));
        self.commit(admitted.name.clone(), Expect::Absent, Some(admitted), side, expect, false).await
    }

    /// Commits a changed object over `live`.
    pub(crate) async fn commit_update(
        &self,
        live: &Live,
        admitted: Admitted,
        side: Vec<SideWrite>,
    ) -> Result<Arc<Object>, Lost> {
        let (expect, frees) = (Expect::At(Revision(live.revision)), admitted.frees);
        self.commit(admitted.name.clone(), expect, Some(admitted), side, None, frees).await
    }

    /// Commits a deletion.
    pub(crate) async fn commit_delete(&self, live: &Live, side: Vec<SideWrite>) -> Result<u64, Lost> {
        let expect = Expect::At(Revision(live.revision));
        let name = name_of(&live.tree).to_owned();
        self.commit(name, expect, None, side, None, true).await.map(|object| object.revision)
    }

    async fn commit(
        &self,
        name: String,
        expect: Expect,
        admitted: Option<Admitted>,
        side: Vec<SideWrite>,
        also: Option<(Key, Expect)>,
        frees: bool,
    ) -> Result<Arc<Object>, Lost> {
        let key = self.store_key(&name);
        let (encoded, reservation) = match admitted {
            Some(Admitted { value, reservation, .. }) => (Some(value), reservation),
            None => (None, None),
        };
        let mut txn = Txn { expect: vec![(key.clone(), expect)], writes: Vec::new() };
        txn.expect.extend(also);
        txn.writes.push(match &encoded {
            Some(value) => Write::Put { key: key.clone(), value: value.clone(), ttl: self.kind.time_to_live },
            None => Write::Delete { key: key.clone() },
        });
        for write in side {
            add_side_write(&mut txn, write)?;
        }
        let server = self.server.clone();
        let committing = async move {
            let store = &server.store;
            if frees { store.commit_freeing(txn).await } else { store.commit(txn).await }
        };
        let committed = match reservation {
            None => committing.await,
            Some(reservation) => {
                // A client that goes away ends the request, but not the commit, which the reservation must outlast.
                let server = self.server.clone();
                let reserved = async move {
                    let committed = committing.await;
                    if let Ok(Outcome::Committed(revision)) = &committed {
                        server.cache.reaches(revision.0, SHOWN_WAIT).await;
                    }
                    drop(reservation);
                    committed
                };
                let reserved = tokio::spawn(reserved).await;
                reserved.map_err(|_| ApiError::internal("the commit met a fault of the server's own"))?
            }
        };
        let revision = match committed {
            Ok(Outcome::Committed(revision)) => revision.0,
            Ok(Outcome::Refused { at, found }) => {
                // Whoever tries again reads the cache, which must show why this was refused.
                self.server.cache.reaches(at.0, SHOWN_WAIT).await;
                return Err(Lost::Race { main: found.into_iter().next().flatten() });
            }
            Err(Error::OutcomeUnknown) => {
                // A store that cannot be read leaves it as unknown as before.
                let (_, found) =
                    self.server.store.get(&key).await.map_err(|_| ApiError::from(Error::OutcomeUnknown))?;
                match (found, &encoded) {
                    (Some(found), Some(value)) if found.value == *value => found.modified.0,
                    _ => return Err(Lost::Failed(Error::OutcomeUnknown.into())),
                }
            }
            Err(error) => return Err(Lost::Failed(error.into())),
        };
        if !self.server.cache.reaches(revision, SHOWN_WAIT).await {
            tracing::warn!(revision, "a write was answered before the watch cache showed it");
        }
        let relative = object_key(self.namespace, &name);
        // As a rule the cache has made it already.
        if let Some(shown) = self.server.cache.shelf(self.kind).get(&relative).filter(|it| it.revision == revision) {
            return Ok(shown);
        }
        // A deletion has no object to show but its revision.
        let value = encoded.unwrap_or_else(|| object::encode(&json!({})).into());
        Ok(Arc::new(self.object(&relative, &value, revision)?))
    }
}

fn add_side_write(txn: &mut Txn, write: SideWrite) -> Result<(), ApiError> {
    let (prefix, ttl) = if write.kind == turnstile::KIND {
        (turnstile::PREFIX, None)
    } else {
        let kind = registry::find_kind(write.kind)
            .ok_or_else(|| ApiError::internal(format!("a rule writes the unknown kind {}", write.kind)))?;
        // One that is made anew need not have been read.
        let changes = matches!(write.effect, Effect::Put(_)) && write.expect.is_some();
        if changes && !registry::CHANGED_BY_RULES.contains(&write.kind) {
            return Err(ApiError::internal(format!("a rule changes a {}, which it has not read whole", write.kind)));
        }
        (kind.key_prefix, kind.time_to_live)
    };
    let key = engine::key(prefix, &object_key(write.namespace.as_deref(), &write.name));
    let expect = match &write.expect {
        None => Expect::Absent,
        Some(version) => {
            let revision = version.parse().map_err(|_| {
                ApiError::internal(format!("a rule expects {key:?} at {version:?}, which is no resource version"))
            })?;
            Expect::At(Revision(revision))
        }
    };
    if write.effect != Effect::Pass {
        txn.expect.push((key.clone(), expect));
    }
    match write.effect {
        Effect::Put(object) => {
            let value = engine::value(object::encode(&object));
            txn.writes.push(Write::Put { key, value, ttl });
        }
        Effect::Pass => {
            let value = engine::value(object::encode(&json!({})));
            txn.writes.push(Write::Put { key, value, ttl });
        }
        Effect::Delete => txn.writes.push(Write::Delete { key }),
        Effect::Keep => {}
    }
    Ok(())
}

impl Written {
    /// The answer to the client.
    pub(crate) fn respond(self, kind: &'static Kind, format: Format, include: Include) -> Response {
        let mut response = respond::object(self.status, kind, format, include, &self.object);
        respond::warn(&mut response, &self.warnings);
        response
    }
}

/// Reads of rules: from the cache, which has shown every write that was answered. What a rule then writes is committed
/// only if what it read is still so.
pub(crate) struct CacheReader<'a> {
    pub(crate) server: &'a Arc<Shared>,
}

impl Reader for CacheReader<'_> {
    fn get<'a>(
        &'a self,
        kind: &'a str,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, ApiError>> {
        Box::pin(async move {
            let shelf = self.server.cache.shelf(known(kind)?);
            let tree = |object: Arc<Object>| match kind {
                kind if registry::READ_OFTEN.contains(&kind) => shelf.trees.of(&object),
                kind if registry::CHANGED_BY_RULES.contains(&kind) => Arc::new(object.tree()),
                _ => Arc::new(object.tree_without_managed_fields()),
            };
            Ok(shelf.get(&object_key(namespace, name)).map(tree))
        })
    }

    fn list<'a>(&'a self, kind: &'a str, namespace: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(async move {
            let prefix = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
            let snapshot = self.server.cache.snapshot(known(kind)?, &prefix);
            Ok(snapshot.objects.iter().map(|object| object.tree_without_managed_fields()).collect())
        })
    }

    fn matching<'a>(
        &'a self,
        kind: &'a str,
        field: &'a str,
        test: &'a (dyn Fn(&str) -> bool + Sync),
    ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(async move {
            let kind = known(kind)?;
            let place = place_of(kind, field)?;
            let wanted = |object: &Object| object.field(place).is_some_and(test);
            let (found, _) = self.server.cache.page(kind, "", usize::MAX, Some(&wanted));
            Ok(found.objects.iter().map(|object| object.tree_without_managed_fields()).collect())
        })
    }

    fn count<'a>(&'a self, kind: &'a str, field: &'a str, value: &'a str) -> BoxFuture<'a, Result<usize, ApiError>> {
        Box::pin(async move {
            let kind = known(kind)?;
            let place = place_of(kind, field)?;
            let same = |object: &Object| object.field(place) == Some(value);
            let (found, _) = self.server.cache.page(kind, "", usize::MAX, Some(&same));
            Ok(found.objects.len())
        })
    }

    fn passed<'a>(&'a self, turnstile: &'a Turnstile<'a>) -> BoxFuture<'a, Result<Option<String>, ApiError>> {
        Box::pin(async move {
            let (at, found) = self.server.store.get(&turnstile.key()).await?;
            if !self.server.cache.reaches(at.0, SHOWN_WAIT).await {
                return Err(ApiError::unavailable("the server is behind its store, please try again"));
            }
            Ok(found.map(|found| found.modified.0.to_string()))
        })
    }
}

/// Where a field stands among those that a kind can be selected by.
fn place_of(kind: &Kind, field: &str) -> Result<usize, ApiError> {
    let place = kind.selectable_fields.iter().position(|selectable| *selectable == field);
    place.ok_or_else(|| ApiError::internal(format!("a rule asks for the unknown field {field}")))
}

fn known(kind: &str) -> Result<&'static Kind, ApiError> {
    registry::find_kind(kind).ok_or_else(|| ApiError::internal(format!("a rule reads the unknown kind {kind}")))
}

/// The metadata of an object, made if they are absent; 400 if they are something else.
pub(crate) fn metadata_of(object: &mut Value) -> Result<&mut Map<String, Value>, ApiError> {
    let object = object.as_object_mut().ok_or_else(|| ApiError::bad_request("an object is expected"))?;
    let meta = object.entry("metadata").or_insert(Value::Null);
    if meta.is_null() {
        *meta = json!({});
    }
    meta.as_object_mut().ok_or_else(|| ApiError::bad_request("metadata must be an object"))
}

/// What has nothing in it is not stored: the last label that goes takes `labels` along.
fn drop_empty(meta: &mut Map<String, Value>) {
    for name in ["labels", "annotations", "finalizers", "ownerReferences", "generateName"] {
        let is_empty = meta.get(name).is_some_and(|value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        });
        if is_empty {
            meta.remove(name);
        }
    }
}

/// `metadata.name`, or empty text.
pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// A time as metadata hold it: whole seconds, `Z`.
pub(crate) fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// `generation` after a change.
pub(crate) fn next_generation(old: &Value) -> Value {
    (old["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into()
}

/// Whether an update is part of a deletion: it begins one, or takes away what holds the object.
pub(super) fn releases(old: &Value, new: &Value) -> bool {
    let began = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    let holders = |object: &Value| {
        let count = |list: &Value| list.as_array().map_or(0, Vec::len);
        count(&object["metadata"]["finalizers"]) + count(&object["spec"]["finalizers"])
    };
    began(new) && (!began(old) || holders(new) < holders(old))
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

/// `old` with one member, and the field sets, of `wanted`.
fn with_member(old: &Value, mut wanted: Value, member: &str) -> Value {
    let field_sets = |object: &Value| object["metadata"].get("managedFields").is_some();
    // As a rule nothing else was touched, and then `wanted` is that already.
    if !wanted[member].is_null()
        && (field_sets(&wanted) || !field_sets(old))
        && same_but(old, &wanted, &["metadata", member])
        && same_but(&old["metadata"], &wanted["metadata"], &["managedFields"])
    {
        return wanted;
    }
    let mut new = old.clone();
    match wanted.get_mut(member).map(Value::take) {
        Some(value) if !value.is_null() => new[member] = value,
        _ => {
            new.as_object_mut().map(|object| object.remove(member));
        }
    }
    if let Some(managed) = wanted.pointer_mut("/metadata/managedFields") {
        new["metadata"]["managedFields"] = managed.take();
    }
    new
}

/// Whether anything but metadata and status differs.
fn content_differs(kind: &Kind, old: &Value, new: &Value) -> bool {
    !same_but(old, new, if kind.has_status { &["metadata", "status"] } else { &["metadata"] })
}

/// Whether two objects are the same but for the times of their field sets and their `resourceVersion`.
fn same(old: &Value, new: &Value) -> bool {
    let (meta, new_meta) = (&old["metadata"], &new["metadata"]);
    let field_sets = match (&meta["managedFields"], &new_meta["managedFields"]) {
        (Value::Array(entries), Value::Array(new_entries)) => {
            let mut pairs = entries.iter().zip(new_entries);
            entries.len() == new_entries.len() && pairs.all(|(entry, new)| same_but(entry, new, &["time"]))
        }
        (entries, new_entries) => entries == new_entries,
    };
    field_sets && same_but(old, new, &["metadata"]) && same_but(meta, new_meta, &["resourceVersion", "managedFields"])
}

/// Whether two values are the same but for these members.
fn same_but(one: &Value, other: &Value, but: &[&str]) -> bool {
    let (Some(members), Some(others)) = (one.as_object(), other.as_object()) else { return one == other };
    let counts = |(name, _): &(&String, &Value)| !but.contains(&name.as_str());
    members.iter().filter(counts).eq(others.iter().filter(counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_anyway_does_not_count() {
        let object = |version: &str, time: &str, fields: Value, status: &str| {
            json!({"kind": "K", "metadata": {"name": "n", "resourceVersion": version,
                "managedFields": [{"manager": "m", "time": time, "fieldsV1": fields}]}, "status": status})
        };
        let old = object("1", "then", json!({"f:a": {}}), "s");
        for (new, is_same) in [
            (object("2", "now", json!({"f:a": {}}), "s"), true),
            (object("1", "then", json!({"f:b": {}}), "s"), false),
            (object("1", "then", json!({"f:a": {}}), "t"), false),
            (json!({"kind": "K", "metadata": {"name": "n", "resourceVersion": "1"}, "status": "s"}), false),
            (json!({"kind": "K", "metadata": {"name": "n"}}), false),
        ] {
            assert_eq!(same(&old, &new), is_same, "{new}");
        }
    }

    #[test]
    fn a_subresource_takes_its_own_member_and_leaves_the_rest() {
        let old = json!({"metadata": {"name": "n", "managedFields": ["old"]}, "spec": {"a": 1}, "status": {"b": 1}});
        let with = |path: &str, value: Value| {
            let mut wanted = old.clone();
            *wanted.pointer_mut(path).expect("it is there") = value;
            wanted
        };
        let status = json!({"b": 2});
        let expected = with("/status", status.clone());
        assert_eq!(with_member(&old, expected.clone(), "status"), expected);
        for (path, value) in [("/spec/a", json!(2)), ("/metadata/name", json!("other"))] {
            let mut wanted = with(path, value);
            wanted["status"] = status.clone();
            assert_eq!(with_member(&old, wanted, "status"), expected, "{path}");
        }
        let mut without = old.clone();
        without.as_object_mut().expect("an object").remove("status");
        assert_eq!(with_member(&old, with("/status", Value::Null), "status"), without);
        let mut cleared = expected.clone();
        cleared["metadata"].as_object_mut().expect("an object").remove("managedFields");
        assert_eq!(with_member(&old, cleared, "status"), expected);
    }
}
