//! What all writes share: the live object, preparing and judging the new one, the commit, the answer.
//!
//! The order of a write stands in [`crate::registry`]. All trees here are in the representation of the request's
//! kind, a view perhaps; they become the stored one just before the commit.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::admit::Admitted;
use super::difference::{content_differs, same, with_member};
use super::related::{self, CacheReader};
use crate::auth::identity::Identity;
use crate::error::{ApiError, Cause};
use crate::negotiate::Format;
use crate::object::Object;
use crate::registry::field;
use crate::registry::{self, Context, Hooks, Kind, Operation, RelatedWrite, bounds, metadata};
use crate::request::{FieldValidation, Resource, WriteOptions, is_built_in, is_namespace, object_key};
use crate::store::{Error, Key, KeyValue, Outcome, Precondition, Revision, Txn, Write};
use crate::table::Include;
use crate::{Shared, apply, engine, object, respond, schema};

/// How often a write that lost a race begins anew before it is a conflict.
pub(crate) const ATTEMPTS: usize = 6;
/// How long a write waits for the cache to show it. Past that it is answered all the same: it is durable.
pub(super) const SHOWN_WAIT: Duration = Duration::from_secs(5);

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
            manager: server.product.name.to_owned(),
            manager_named: true,
            force: None,
        };
        Writer { server, kind, namespace, identity, options, now: Timestamp::now() }
    }

    /// The hooks of the kind.
    pub(crate) fn hooks(&self) -> &'a dyn Hooks {
        self.server.kinds.hooks(self.kind)
    }

    /// What the sender of an object should know.
    pub(crate) async fn warnings(&self, is_new: bool, object: &Object) -> Vec<String> {
        if !self.hooks().has_warnings() {
            return Vec::new();
        }
        let (tree, reader) = (respond::as_tree(self.kind, object), CacheReader { server: self.server });
        self.hooks().warnings(is_new, &tree, &reader).await
    }

    fn context(&self) -> Context<'_> {
        Context {
            kinds: &self.server.kinds,
            identity: self.identity,
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
            causes.extend(self.sent_status_fault(None, &sent));
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

    /// The fault of the `status` that a client sent to the main resource, where only one writer sets it. `old` is the stored
    /// object; `None`: it is created.
    fn sent_status_fault(&self, old: Option<&Value>, sent: &Value) -> Option<Cause> {
        let status_writer = self.hooks().status_writer()?;
        if is_empty_status(sent) || old.and_then(|old| old.get("status")) == Some(sent) {
            return None;
        }
        let or = if old.is_some() { ", or send back the stored one unchanged" } else { "" };
        Some(field::forbidden("status", &format!("only {status_writer} sets it; leave status out of the object{or}")))
    }

    /// Rejects an apply whose `status` says something new, where only one writer sets it.
    pub(crate) fn check_sent_status(&self, live: &Value, sent: &Value) -> Result<(), ApiError> {
        match self.sent_status_fault(Some(live), sent) {
            Some(cause) => Err(ApiError::invalid(self.kind, name_of(live), vec![cause])),
            None => Ok(()),
        }
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
                self.hooks().prepare_status(&self.context(), old, &mut new);
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
                causes.extend(self.hooks().validate_update(&self.context(), old, &new));
            }
            Part::Status => causes.extend(self.hooks().validate_status_update(&self.context(), old, &new)),
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
                causes.extend(self.sent_status_fault(Some(old), &sent));
            }
            if let Some(status) = old.get("status") {
                object.insert("status".to_owned(), status.clone());
            }
        }
        self.hooks().prepare_update(&self.context(), old, &mut new);
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
    pub(crate) async fn before_commit(&self, operation: Operation<'_>) -> Result<Vec<RelatedWrite>, ApiError> {
        let reader = CacheReader { server: self.server };
        self.hooks().before_commit(&self.context(), operation, &reader).await
    }

    /// Commits a new object.
    pub(crate) async fn commit_create(
        &self,
        admitted: Admitted,
        side: Vec<RelatedWrite>,
        namespace: Option<(Key, Revision)>,
    ) -> Result<Arc<Object>, Lost> {
        let expect = namespace.map(|(key, at)| (key, Precondition::At(at)));
        self.commit(admitted.name.clone(), Precondition::Absent, Some(admitted), side, expect, false).await
    }

    /// Commits a changed object over `live`.
    pub(crate) async fn commit_update(
        &self,
        live: &Live,
        admitted: Admitted,
        side: Vec<RelatedWrite>,
    ) -> Result<Arc<Object>, Lost> {
        let (expect, frees) = (Precondition::At(Revision(live.revision)), admitted.frees);
        self.commit(admitted.name.clone(), expect, Some(admitted), side, None, frees).await
    }

    /// Commits a deletion.
    pub(crate) async fn commit_delete(&self, live: &Live, side: Vec<RelatedWrite>) -> Result<u64, Lost> {
        let expect = Precondition::At(Revision(live.revision));
        let name = name_of(&live.tree).to_owned();
        self.commit(name, expect, None, side, None, true).await.map(|object| object.revision)
    }

    async fn commit(
        &self,
        name: String,
        expect: Precondition,
        admitted: Option<Admitted>,
        side: Vec<RelatedWrite>,
        also: Option<(Key, Precondition)>,
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
            related::add(&self.server.kinds, &mut txn, write)?;
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

impl Written {
    /// The answer to the client.
    pub(crate) fn respond(self, kind: &'static Kind, format: Format, include: Include) -> Response {
        let mut response = respond::object(self.status, kind, format, include, &self.object);
        respond::warn(&mut response, &self.warnings);
        response
    }
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

/// Whether a `status` says nothing.
pub(super) fn is_empty_status(status: &Value) -> bool {
    status.is_null() || status.as_object().is_some_and(Map::is_empty)
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
