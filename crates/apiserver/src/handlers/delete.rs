//! DELETE of an object or a collection, finalizers, and the treatment of dependents.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::commit::{ATTEMPTS, CommitConflict};
use super::get::{FUTURE_WAIT, wait_for};
use super::list;
use super::prepare::next_generation;
use super::writer::{CurrentObject, Writer};
use super::{Call, body};
use crate::auth::rules::Access;
use crate::cause::Cause;
use crate::error::ApiError;
use crate::json_scan::present;
use crate::kind::Kind;
use crate::negotiate::{self, Format, Offer, Text};
use crate::object::Object;
use crate::registry::metadata::whole_seconds;
use crate::registry::{Operation, RelatedWrite};
use crate::request::{Query, WriteOptions};
use crate::respond;
use crate::selector::Selector;
use crate::store::{self, Key, Outcome, Txn, Write};
use crate::table::Include;
use crate::work::{self, OBJECTS_LARGE};

/// The verb of the permission to delete an unreadable object.
const UNSAFE_DELETE: &str = "unsafe-delete-ignore-read-errors";
/// The finalizer that holds an object until its dependents no longer refer to it.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// The finalizer that holds an object until the dependents that block its deletion are deleted.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// The options of a deletion.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deletion {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) propagation: Option<Propagation>,
    /// The query parameters and the body, for rules.
    pub(crate) options: Value,
}

/// The treatment of dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// The result of a deletion.
pub(crate) enum Deleted {
    /// The object is deleted; this was its last state.
    Gone(Value),
    /// Finalizers hold the object; this is its current state.
    Held(Arc<Object>),
}

/// Answers a DELETE request.
pub(crate) async fn delete(call: &Call<'_>, sent: &Bytes) -> Result<Response, ApiError> {
    let kind = call.resource.kind;
    let format = negotiate::format(call.headers, Offer::Object)?;
    let include = Include::parse(&call.query)?;
    let (writer, deletion) = prepare(call, sent)?;
    let name = call.resource.name.as_deref().unwrap_or_default();
    if deletion.ignores_read_errors()
        && let Some(response) = delete_damaged(call, &writer).await?
    {
        return Ok(response);
    }
    Ok(match delete_object(&writer, name, &deletion).await? {
        Deleted::Held(object) => respond::object(StatusCode::OK, kind, format, include, &object),
        Deleted::Gone(last) => {
            let status = success(kind, name, &last);
            match format {
                Format::Objects(Text::Yaml) => respond::yaml(StatusCode::OK, &status),
                _ => respond::json(StatusCode::OK, status.to_string()),
            }
        }
    })
}

/// Deletes an object whose stored value is damaged, without reading it: its finalizers and rules are unknown. `None` if the
/// object is readable or does not exist. As in kube-apiserver, this requires a separate permission.
async fn delete_damaged(call: &Call<'_>, writer: &Writer<'_>) -> Result<Option<Response>, ApiError> {
    let (kind, resource) = (call.resource.kind, &call.resource);
    let namespace = resource.namespace.as_deref();
    let access = Access::resource(UNSAFE_DELETE, kind.group, kind.plural, namespace, resource.name.as_deref());
    call.server.authorizer.authorize(call.identity, &access)?;
    let stored = call.server.cache.kind_cache(kind).kind;
    let key = Key::below(stored.key_prefix, &resource.key());
    match call.server.store.get(&key, None).await {
        Err(store::Error::Damaged { .. }) => {}
        Ok((_, Some(found)))
            if Object::from_stored(stored, &resource.key(), &found.value, found.modified.0).is_err() => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Ok(None),
    }
    if !writer.options.dry_run {
        tracing::warn!(key = %key.0, user = %call.identity.user, "deleting a damaged object without reading it");
        let txn = Txn { writes: vec![Write::Delete { key }], ..Txn::default() };
        let Outcome::Committed(revision) = call.server.store.commit(txn).await? else {
            return Err(ApiError::internal("rejected an unconditional deletion"));
        };
        call.server.cache.reaches(revision.0, FUTURE_WAIT).await;
    }
    let name = resource.name.as_deref().unwrap_or_default();
    Ok(Some(respond::json(StatusCode::OK, success(kind, name, &Value::Null).to_string())))
}

/// Returns the response for a deleted object.
fn success(kind: &Kind, name: &str, last: &Value) -> Value {
    let details = present(json!({
        "name": name,
        "kind": kind.plural,
        "uid": last["metadata"]["uid"].as_str(),
        "group": Some(kind.group).filter(|group| !group.is_empty()),
    }));
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Answers the deletion of a collection with the list of the deleted objects.
pub(crate) async fn delete_collection(call: &Call<'_>, sent: &Bytes) -> Result<Response, ApiError> {
    let kind = call.resource.kind;
    let format = negotiate::format(call.headers, Offer::Object)?;
    let include = Include::parse(&call.query)?;
    let selector = Selector::parse(kind, call.query.text("labelSelector"), call.query.text("fieldSelector"))?;
    let limit = call.query.number("limit")?.filter(|limit| *limit > 0);
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let (writer, deletion) = prepare(call, sent)?;
    if !call.server.cache.is_current(&*call.server.store).await? {
        wait_for(call, call.server.store.revision().await?.0).await?;
    }
    let snapshot = call.server.cache.snapshot(kind, &call.resource.prefix());
    let damaged = list::placeholders(call, &selector, &snapshot.damaged);
    let is_large = !selector.is_everything() && snapshot.objects.len() >= OBJECTS_LARGE;
    let permit = call.work.permit(is_large).await;
    let chosen: Vec<_> = work::beside(is_large, || {
        snapshot.objects.into_iter().filter(|object| selector.matches(kind, object)).take(limit).collect()
    });
    drop(permit);
    let mut deleted: Vec<Arc<Object>> = Vec::new();
    for object in chosen {
        match delete_object(&writer, object.name(), &deletion).await {
            Ok(_) => deleted.push(object),
            // Another client deleted it concurrently.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    if !damaged.is_empty() {
        return Err(list::damaged_objects(call, &damaged));
    }
    let metadata = json!({"resourceVersion": call.server.cache.applied().to_string()});
    Ok(list::write(call, format, include, metadata, deleted).await)
}

fn prepare<'a>(call: &'a Call<'_>, sent: &Bytes) -> Result<(Writer<'a>, Deletion), ApiError> {
    let mut options = WriteOptions::parse(&call.query, call.headers, "DeleteOptions")?;
    let sent = body::read_options(call.headers, sent)?;
    let deletion = Deletion::parse(&call.query, sent)?;
    match deletion.options.get("dryRun") {
        Some(Value::Array(values)) if values.iter().all(|value| value == "All") => {
            options.dry_run |= !values.is_empty()
        }
        Some(Value::Array(_)) => {
            return Err(invalid("dryRun", "Unsupported value: supported values: \"All\""));
        }
        _ => {}
    }
    Ok((Writer::new(call.server, &call.resource, call.identity, options), deletion))
}

fn invalid(field: &str, message: &str) -> ApiError {
    let cause = Cause::new("FieldValueNotSupported", field, message);
    ApiError::invalid_of("DeleteOptions", "meta.k8s.io", "", vec![cause])
}

impl Deletion {
    /// Returns whether to delete an object even if it cannot be read.
    fn ignores_read_errors(&self) -> bool {
        let option = &self.options["ignoreStoreReadErrorWithClusterBreakingPotential"];
        *option == true || *option == "true"
    }

    fn parse(query: &Query, body: Value) -> Result<Self, ApiError> {
        let mut options = query.to_map();
        if let Value::Object(body) = body {
            options.extend(body);
        }
        let options = Value::Object(options);
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let orphan = match &options["orphanDependents"] {
            Value::Bool(orphan) => Some(*orphan),
            Value::String(orphan) => Some(orphan == "true"),
            _ => None,
        };
        let propagation = match (text(&options["propagationPolicy"]).as_deref(), orphan) {
            (Some(_), Some(_)) => {
                let message = "Invalid value: orphanDependents and deletionPropagation cannot be both set";
                return Err(invalid("propagationPolicy", message));
            }
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some(other), _) => {
                let message = format!(
                    "Unsupported value: {other:?}: supported values: \"Background\", \"Foreground\", \"Orphan\""
                );
                return Err(invalid("propagationPolicy", &message));
            }
            (None, None) => None,
        };
        Ok(Deletion {
            uid: text(&options["preconditions"]["uid"]),
            resource_version: text(&options["preconditions"]["resourceVersion"]),
            propagation,
            options,
        })
    }
}

/// Deletes an object, or starts its deletion; 404 if it does not exist.
pub(crate) async fn delete_object(writer: &Writer<'_>, name: &str, deletion: &Deletion) -> Result<Deleted, ApiError> {
    let mut fresh = false;
    for _ in 0..ATTEMPTS {
        let live = writer.live(name, fresh).await?.ok_or_else(|| ApiError::not_found(writer.kind, name))?;
        match try_delete(writer, name, &live, deletion).await {
            Ok(deleted) => return Ok(deleted),
            Err(CommitConflict::Failed(error)) if live.is_final(&error) => return Err(error),
            Err(_) => fresh = true,
        }
    }
    Err(ApiError::modified(writer.kind, name))
}

async fn try_delete(
    writer: &Writer<'_>,
    name: &str,
    live: &CurrentObject,
    deletion: &Deletion,
) -> Result<Deleted, CommitConflict> {
    check_preconditions(writer.kind, name, &live.tree, deletion)?;
    let operation = match live.tree["metadata"]["deletionTimestamp"].is_null() {
        true => Operation::Delete { old: &live.tree, options: &deletion.options },
        false => Operation::Release { old: &live.tree },
    };
    let side = writer.before_commit(operation).await?;
    match marked(writer, &live.tree, deletion) {
        None if writer.options.dry_run => Ok(Deleted::Gone(live.tree.clone())),
        None => writer.commit_delete(live, side).await.map(|_| Deleted::Gone(live.tree.clone())),
        Some(new) if new == live.tree && live.is_cached => Err(CommitConflict::Race { main: None }),
        Some(new) if writer.options.dry_run || new == live.tree => {
            Ok(Deleted::Held(writer.shown(name, &new, live.revision)?))
        }
        Some(new) => {
            let side = side.into_iter().filter_map(RelatedWrite::expectation).collect();
            writer.commit_update(live, writer.admit_marked(new), side).await.map(Deleted::Held)
        }
    }
}

fn check_preconditions(kind: &Kind, name: &str, live: &Value, deletion: &Deletion) -> Result<(), ApiError> {
    let checks = [("UID", "uid", &deletion.uid), ("ResourceVersion", "resourceVersion", &deletion.resource_version)];
    for (reported, field, wanted) in checks {
        let found = live["metadata"][field].as_str().unwrap_or_default();
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
            let why = format!(
                "Precondition failed: {reported} in precondition: {wanted}, {reported} in object meta: {found}"
            );
            return Err(ApiError::conflict(kind, name, &why));
        }
    }
    Ok(())
}

/// Returns the object marked for deletion, if something holds it; `None` if it can go at once.
fn marked(writer: &Writer<'_>, live: &Value, deletion: &Deletion) -> Option<Value> {
    let finalizers = live["metadata"]["finalizers"].as_array().into_iter().flatten();
    let mut finalizers: Vec<&str> = finalizers.filter_map(Value::as_str).collect();
    if let Some(propagation) = deletion.propagation {
        finalizers.retain(|finalizer| !matches!(*finalizer, FINALIZER_ORPHAN | FINALIZER_FOREGROUND));
        match propagation {
            Propagation::Orphan => finalizers.push(FINALIZER_ORPHAN),
            Propagation::Foreground => finalizers.push(FINALIZER_FOREGROUND),
            Propagation::Background => {}
        }
    }
    if finalizers.is_empty() && !writer.holds_contents(live) {
        return None;
    }
    let mut new = live.clone();
    let meta = &mut new["metadata"];
    match finalizers.is_empty() {
        true => {
            meta.as_object_mut().map(|meta| meta.remove("finalizers"));
        }
        false => meta["finalizers"] = json!(finalizers),
    }
    if live["metadata"].get("deletionTimestamp").is_none_or(Value::is_null) {
        meta["deletionTimestamp"] = whole_seconds(writer.now).into();
        meta["deletionGracePeriodSeconds"] = 0.into();
        if !writer.kind.is_built_in {
            meta["generation"] = next_generation(live);
        }
    }
    if writer.kind.is_namespace() {
        new["status"]["phase"] = "Terminating".into();
    }
    Some(new)
}
