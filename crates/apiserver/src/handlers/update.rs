//! PUT: replaces an object or its status. And the loop for every change of an existing object.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::commit::{ATTEMPTS, CommitConflict, Written};
use super::prepare::Change;
use super::writer::{CurrentObject, Part, Writer, metadata_of};
use super::{Call, body};
use crate::cause::Cause;
use crate::error::ApiError;
use crate::negotiate::{self, Offer};
use crate::object::Object;
use crate::registry::Operation;
use crate::request::{Subresource, WriteOptions};
use crate::table::Include;

/// Answers a PUT request.
pub(crate) async fn update(call: &Call<'_>, sent: &Bytes) -> Result<Response, ApiError> {
    let kind = call.resource.kind;
    let format = negotiate::format(call.headers, Offer::Object)?;
    let include = Include::parse(&call.query)?;
    let options = WriteOptions::parse(&call.query, call.headers, "UpdateOptions")?;
    let writer = Writer::new(call.server, &call.resource, call.identity, options);
    let name = call.resource.name.as_deref().unwrap_or_default();
    let body::Sent { mut object, duplicates } = body::read(kind, call.headers, sent)?;
    let mut warnings = Vec::new();
    writer.prune(&mut object, &duplicates, 400, &mut warnings)?;
    let sent_name = object["metadata"]["name"].as_str().unwrap_or_default();
    if sent_name != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({sent_name}) does not match the name on the URL ({name})"
        )));
    }
    fit_namespace(&mut object, writer.namespace)?;
    let unversioned = object["metadata"]["resourceVersion"].as_str().is_none_or(str::is_empty);
    let part = part(call.resource.subresource);
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let wanted = |live: &CurrentObject| {
        // A missing object must return 404 to `kubectl replace`, so only an existing one is checked.
        if unversioned && !may_leave_out_version(kind) {
            let cause = Cause::new(
                "FieldValueInvalid",
                "metadata.resourceVersion",
                "Invalid value: 0x0: must be specified for an update",
            );
            return Err(ApiError::invalid(kind, name, vec![cause]));
        }
        let found = live.tree["metadata"]["uid"].as_str().unwrap_or_default();
        if !uid.is_empty() && uid != found {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
            return Err(ApiError::conflict(kind, name, &why));
        }
        Ok((object.clone(), false))
    };
    let mut written = change(&writer, name, part, wanted).await?.ok_or_else(|| ApiError::not_found(kind, name))?;
    written.warnings.splice(0..0, warnings);
    Ok(written.respond(kind, format, include))
}

/// Returns the part of an object that a request is about.
pub(crate) fn part(subresource: Option<Subresource>) -> Part {
    match subresource {
        None => Part::Main,
        Some(Subresource::Status) => Part::Status,
        Some(Subresource::Finalize) => Part::Finalize,
    }
}

/// Kubernetes permits unconditional replacement of these kinds.
fn may_leave_out_version(kind: &crate::kind::Kind) -> bool {
    kind.is_built_in && kind.plural != "leases"
}

/// Checks that the namespace in an object is that of the URL, or absent.
pub(crate) fn fit_namespace(object: &mut Value, namespace: Option<&str>) -> Result<(), ApiError> {
    let meta = metadata_of(object)?;
    let found = meta.get("namespace").and_then(Value::as_str).unwrap_or_default();
    match namespace {
        Some(namespace) if found.is_empty() => {
            meta.insert("namespace".to_owned(), namespace.into());
        }
        Some(namespace) if found == namespace => {}
        None if found.is_empty() => {}
        _ => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}

/// Changes an existing object into the result of `wanted` (`true`: its field sets are already computed), and retries if another
/// client wrote first. If the wanted object has a `resourceVersion`, it must match the stored one. `None`: the object does not
/// exist.
///
/// An update that ends without a commit, with an error or without a change, is evaluated against the store's object: another
/// server may have replaced the one in the cache.
pub(crate) async fn change(
    writer: &Writer<'_>,
    name: &str,
    part: Part,
    wanted: impl Fn(&CurrentObject) -> Result<(Value, bool), ApiError>,
) -> Result<Option<Written>, ApiError> {
    let mut fresh = false;
    for _ in 0..ATTEMPTS {
        let Some(live) = writer.live(name, fresh).await? else { return Ok(None) };
        match try_change(writer, name, part, &live, &wanted).await {
            Ok(object) => {
                let warnings = if part == Part::Main { writer.warnings(false, &object) } else { Vec::new() };
                return Ok(Some(Written { status: StatusCode::OK, object, warnings }));
            }
            Err(CommitConflict::Failed(error)) if live.is_final(&error) => return Err(error),
            Err(_) => fresh = true,
        }
    }
    Err(ApiError::modified(writer.kind, name))
}

async fn try_change(
    writer: &Writer<'_>,
    name: &str,
    part: Part,
    live: &CurrentObject,
    wanted: impl Fn(&CurrentObject) -> Result<(Value, bool), ApiError>,
) -> Result<Arc<Object>, CommitConflict> {
    let (new, managed) = wanted(live)?;
    let version = new["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !version.is_empty() && version != live.revision.to_string() {
        version.parse::<u64>().map_err(|_| ApiError::bad_request(format!("invalid resource version {version:?}")))?;
        return Err(ApiError::modified(writer.kind, name).into());
    }
    let dry_run = writer.options.dry_run;
    match writer.prepare_update(&live.tree, new, part, managed)? {
        // Another server may have written the object to replace.
        Change::None if live.is_cached => Err(CommitConflict::Race { main: None }),
        Change::None => Ok(writer.shown(name, &live.tree, live.revision)?),
        Change::Put(new) => {
            let side = writer.before_commit(Operation::Update { old: &live.tree, new: &new }).await?;
            let admitted = writer.admit(new, Some(live), part)?;
            match dry_run {
                true => Ok(Arc::new(writer.shown_admitted(&admitted, live.revision)?)),
                false => writer.commit_update(live, admitted, side).await,
            }
        }
        Change::Delete(last) => {
            // The deletion was checked when it began, with the rules and consent at that time.
            let side = writer.before_commit(Operation::Release { old: &last }).await?;
            if !dry_run {
                writer.commit_delete(live, side).await?;
            }
            Ok(writer.shown(name, &last, live.revision)?)
        }
    }
}
