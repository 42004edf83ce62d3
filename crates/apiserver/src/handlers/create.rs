//! POST to a collection: creates an object.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::commit::{CommitConflict, Written};
use super::prepare::is_empty_status;
use super::writer::{Part, Writer, metadata_of, name_of};
use super::{Call, body};
use crate::audit::CreatedObject;
use crate::cause::Cause;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::negotiate::{self, Offer};
use crate::registry::Operation;
use crate::registry::namespace::NAMESPACE;
use crate::request::WriteOptions;
use crate::store::{Key, Revision};
use crate::table::Include;

/// The characters of generated names: no vowels, so that they form no words, and no similar glyphs.
const SUFFIX_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The number of characters in the suffix.
const SUFFIX_LENGTH: usize = 5;
/// The maximum length of a generated name's base: 63 in total.
const BASE_LENGTH_MAX: usize = 58;
/// The number of generated names to try.
const NAMES_TRIED: usize = 8;
/// The number of attempts of a create whose dependencies change. Retries on one server take turns, so a create loses further races only
/// to first attempts and to other servers.
const CREATES_AT_ONCE: usize = 64;

/// Answers a create.
pub(crate) async fn create(call: &Call<'_>, sent: &Bytes) -> Result<Response, ApiError> {
    let kind = call.resource.kind;
    let format = negotiate::format(call.headers, Offer::Object)?;
    let include = Include::parse(&call.query)?;
    let options = WriteOptions::parse(&call.query, call.headers, "CreateOptions")?;
    let writer = Writer::new(call.server, &call.resource, call.identity, options);
    let body::Sent { mut object, duplicates } = body::read(kind, call.headers, sent)?;
    let mut warnings = Vec::new();
    writer.prune(&mut object, &duplicates, 400, &mut warnings)?;
    let mut written = create_object(&writer, object, false).await?;
    written.warnings.splice(0..0, warnings);
    let made = CreatedObject {
        name: written.object.name().to_owned(),
        uid: written.object.uid().to_owned(),
        revision: written.object.revision,
    };
    let mut response = written.respond(kind, format, include);
    response.extensions_mut().insert(made);
    Ok(response)
}

/// Creates `object`. `managed`: its field sets are already computed (by an apply).
pub(crate) async fn create_object(writer: &Writer<'_>, mut object: Value, managed: bool) -> Result<Written, ApiError> {
    let meta = metadata_of(&mut object)?;
    let text = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (name, base) = (text("name"), text("generateName"));
    if !text("resourceVersion").is_empty() {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let namespace = text("namespace");
    if !namespace.is_empty() && Some(namespace.as_str()) != writer.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if let Some(namespace) = writer.namespace {
        meta.insert("namespace".to_owned(), namespace.into());
    }
    let mut warnings = finalizer_warnings(&object);
    warnings.extend(drop_read_status(writer.kind, writer.hooks().status_writer(), &mut object));
    if name.is_empty() && base.is_empty() {
        let cause = Cause::required("metadata.name", "name or generateName is required");
        return Err(ApiError::invalid(writer.kind, "", vec![cause]));
    }
    let mut written = match name.is_empty() {
        false => create_named(writer, object, managed).await?,
        true => create_generated(writer, &base, &object, managed).await?,
    };
    written.warnings.extend(warnings);
    written.warnings.extend(writer.warnings(true, &written.object));
    Ok(written)
}

/// Creates `object` under a free name.
async fn create_generated(writer: &Writer<'_>, base: &str, object: &Value, managed: bool) -> Result<Written, ApiError> {
    let mut result = Err(ApiError::already_exists(writer.kind, base));
    for _ in 0..NAMES_TRIED {
        let mut object = object.clone();
        object["metadata"]["name"] = generated(base).into();
        result = create_named(writer, object, managed).await;
        if result.as_ref().err().is_none_or(|error| error.reason != "AlreadyExists") {
            break;
        }
    }
    result
}

async fn create_named(writer: &Writer<'_>, object: Value, managed: bool) -> Result<Written, ApiError> {
    let name = name_of(&object).to_owned();
    let exists = || ApiError::already_exists(writer.kind, &name);
    let mut turn = None;
    for _ in 0..CREATES_AT_ONCE {
        let namespace = home(writer, &name).await?;
        // As in kube-apiserver, an invalid object is 422 even if its name is taken.
        let new = writer.prepare_create(object.clone(), managed)?;
        let side = writer.before_commit(Operation::Create(&new)).await;
        // The checks against other objects can fail merely because the object exists: then report that instead. Without an error
        // or a dry run, the commit detects it.
        if (side.is_err() || writer.options.dry_run) && writer.live(&name, true).await?.is_some() {
            return Err(exists());
        }
        let side = side?;
        let admitted = writer.admit(new, None, Part::Main)?;
        if writer.options.dry_run {
            let object = Arc::new(writer.shown_admitted(&admitted, 0)?.unwritten());
            return Ok(Written { status: StatusCode::CREATED, object, warnings: Vec::new() });
        }
        match writer.commit_create(admitted, side, namespace).await {
            Ok(object) => return Ok(Written { status: StatusCode::CREATED, object, warnings: Vec::new() }),
            Err(CommitConflict::Race { main: Some(_) }) => return Err(exists()),
            Err(CommitConflict::Race { main: None }) => {
                if turn.is_none() {
                    turn = Some(writer.server.retries.turn(writer.kind, writer.namespace).await);
                }
            }
            Err(CommitConflict::Failed(error)) => return Err(error),
        }
    }
    Err(ApiError::conflict(writer.kind, &name, "related objects keep changing; please try again"))
}

/// Returns the namespace that a new object goes to, at the revision that the commit demands, so that none is created into a
/// namespace whose contents were just found to be gone.
async fn home(writer: &Writer<'_>, name: &str) -> Result<Option<(Key, Revision)>, ApiError> {
    let Some(namespace) = writer.namespace.filter(|_| writer.kind.namespaced) else { return Ok(None) };
    let namespaces = &*NAMESPACE;
    let kind_cache = writer.server.cache.kind_cache(namespaces);
    let (revision, deleting) = match kind_cache.get(namespace) {
        Some(found) => (found.revision, found.is_deleting()),
        None => {
            // Another server may have created it just now.
            let (_, found) = writer.server.store.get(&Key::below(namespaces.key_prefix, namespace), None).await?;
            (found.ok_or_else(|| ApiError::not_found(namespaces, namespace))?.modified.0, false)
        }
    };
    if deleting {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut error = ApiError::forbidden(writer.kind, name, &why);
        let message = format!("namespace {namespace} is being terminated");
        error.causes.push(Cause::new("NamespaceTerminating", "metadata.namespace", message));
        return Err(error);
    }
    Ok(Some((Key::below(namespaces.key_prefix, namespace), Revision(revision))))
}

fn generated(base: &str) -> String {
    let cut = base.char_indices().take_while(|(at, character)| at + character.len_utf8() <= BASE_LENGTH_MAX).count();
    let mut name: String = base.chars().take(cut).collect();
    // 27 characters: the modulo bias of a byte does not matter here.
    let random = uuid::Uuid::new_v4();
    let random = random.as_bytes().iter().take(SUFFIX_LENGTH);
    name.extend(random.map(|octet| char::from(SUFFIX_CHARACTERS[usize::from(*octet) % SUFFIX_CHARACTERS.len()])));
    name
}

/// Removes the status of an object that was read from an API, such as from a file written by `kubectl get -o yaml`. Such a file
/// is not a request to set the status, and `kubectl replace --force` has already deleted the object when it creates it. If only
/// one writer sets the status (`status_writer`), returns a warning.
fn drop_read_status(kind: &Kind, status_writer: Option<&str>, object: &mut Value) -> Option<String> {
    // Only a server sets a UID.
    let was_read = object["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty());
    let status = object.as_object_mut().filter(|_| was_read && kind.has_status)?.remove("status")?;
    let status_writer = status_writer.filter(|_| !is_empty_status(&status))?;
    Some(format!("status was dropped: only {status_writer} can set it"))
}

fn finalizer_warnings(object: &Value) -> Vec<String> {
    let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let known = ["orphan", "foregroundDeletion", "kubernetes"];
    let vague = finalizers.filter(|finalizer| !finalizer.contains('/') && !known.contains(finalizer));
    vague
        .map(|finalizer| {
            format!(
                "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name including a path (/) to avoid \
                 accidental conflicts with other finalizer writers"
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_status_of_a_copy_is_ignored() {
        let copy =
            |uid: &str, status: Value| json!({"metadata": {"name": "r", "uid": uid}, "spec": {}, "status": status});
        for (uid, status, left, reported) in [
            ("u1", json!({"phase": "scheduled", "dns": "x.test"}), false, true),
            ("u1", json!({}), false, false),
            // A hand-written status is rejected.
            ("", json!({"phase": "scheduled"}), true, false),
        ] {
            let mut object = copy(uid, status.clone());
            let warning = drop_read_status(&NAMESPACE, Some("a controller"), &mut object);
            assert_eq!((object.get("status").is_some(), warning.is_some()), (left, reported), "{uid} {status}");
        }
    }

    #[test]
    fn generated_names() {
        let name = generated("lease-");
        assert!(name.starts_with("lease-") && name.len() == 11, "{name}");
        assert_eq!(generated(&"a".repeat(100)).len(), 63);
        assert_ne!(generated("x"), generated("x"));
    }
}
