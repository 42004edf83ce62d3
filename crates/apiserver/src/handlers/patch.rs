//! PATCH: JSON patch, merge patch, strategic merge patch (of built-in kinds) and server-side apply.

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::commit::Written;
use super::create::create_object;
use super::update::{change, fit_namespace, part};
use super::writer::{CurrentObject, Part, Writer};
use super::{Call, body};
use crate::auth::rules::Access;
use crate::cause::Cause;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::negotiate::{self, Offer, content_type};
use crate::request::WriteOptions;
use crate::strategic_merge::strategic_merge;
use crate::table::Include;
use crate::{apply, patch, schema};

/// The type of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Type {
    fn parse(kind: &Kind, content_type: &str) -> Result<Type, ApiError> {
        Ok(match content_type {
            "application/json-patch+json" => Type::Json,
            "application/merge-patch+json" => Type::Merge,
            "application/apply-patch+yaml" => Type::Apply,
            // As in Kubernetes: custom kinds do not define how their lists merge.
            "application/strategic-merge-patch+json" if kind.is_built_in => Type::Strategic,
            _ => {
                return Err(ApiError::unsupported_media_type(
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ));
            }
        })
    }
}

/// Answers a patch.
pub(crate) async fn patch(call: &Call<'_>, sent: &Bytes) -> Result<Response, ApiError> {
    let kind = call.resource.kind;
    let format = negotiate::format(call.headers, Offer::Object)?;
    let include = Include::parse(&call.query)?;
    let r#type = Type::parse(kind, &content_type(call.headers))?;
    let options = WriteOptions::parse(&call.query, call.headers, "PatchOptions")?;
    let mut causes = Vec::new();
    if r#type == Type::Apply && !options.manager_named {
        causes.push(Cause::required("fieldManager", "is required for apply patch"));
    }
    if r#type != Type::Apply && options.force.is_some() {
        causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    if !causes.is_empty() {
        return Err(ApiError::invalid_of("PatchOptions", "meta.k8s.io", "", causes));
    }
    let name = call.resource.name.as_deref().unwrap_or_default();
    let part = part(call.resource.subresource);
    let writer = Writer::new(call.server, &call.resource, call.identity, options);
    let written = match r#type {
        Type::Json => json_patch(&writer, name, part, sent).await?,
        Type::Merge => {
            let merge = |tree: &mut Value, patch: &Value| {
                patch::merge_patch(tree, patch);
                Ok(())
            };
            merge_patch(&writer, name, part, sent, merge).await?
        }
        Type::Strategic => merge_patch(&writer, name, part, sent, strategic_merge).await?,
        Type::Apply => apply_patch(&writer, name, part, sent).await?,
    };
    Ok(written.respond(kind, format, include))
}

async fn json_patch(writer: &Writer<'_>, name: &str, part: Part, sent: &Bytes) -> Result<Written, ApiError> {
    patched(writer, name, part, &[], |tree| patch::json_patch(tree, sent)).await
}

async fn merge_patch(
    writer: &Writer<'_>,
    name: &str,
    part: Part,
    sent: &Bytes,
    apply: impl Fn(&mut Value, &Value) -> Result<(), ApiError>,
) -> Result<Written, ApiError> {
    let (merge, duplicates) =
        schema::parse_json(sent).map_err(|error| ApiError::bad_request(format!("the patch is not JSON: {error}")))?;
    if !merge.is_object() {
        return Err(ApiError::bad_request("a merge patch must be an object"));
    }
    patched(writer, name, part, &duplicates, |tree| apply(tree, &merge)).await
}

async fn patched(
    writer: &Writer<'_>,
    name: &str,
    part: Part,
    duplicates: &[String],
    apply: impl Fn(&mut Value) -> Result<(), ApiError>,
) -> Result<Written, ApiError> {
    let kind = writer.kind;
    let warnings = parking_lot::Mutex::new(Vec::new());
    let wanted = |live: &CurrentObject| {
        let mut new = live.tree.clone();
        apply(&mut new)?;
        if !new.is_object() {
            return Err(ApiError::bad_request("the patch result is not an object"));
        }
        let mut reported = Vec::new();
        writer.prune(&mut new, duplicates, 422, &mut reported)?;
        *warnings.lock() = reported;
        body::check_type(kind, &mut new)?;
        check_identity(kind, name, writer.namespace, &live.tree, &mut new)?;
        Ok((new, false))
    };
    let mut written = change(writer, name, part, wanted).await?.ok_or_else(|| ApiError::not_found(kind, name))?;
    let reported = warnings.into_inner();
    written.warnings.splice(0..0, reported);
    Ok(written)
}

/// Rejects a patch that changes the name, the namespace, or the UID.
fn check_identity(
    kind: &Kind,
    name: &str,
    namespace: Option<&str>,
    old: &Value,
    new: &mut Value,
) -> Result<(), ApiError> {
    let found = new["metadata"]["name"].as_str().unwrap_or_default();
    if found != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    fit_namespace(new, namespace)?;
    let (was, is) = (&old["metadata"]["uid"], &new["metadata"]["uid"]);
    if !is.is_null() && is != was {
        let cause = Cause::invalid("metadata.uid", is, "field is immutable");
        return Err(ApiError::invalid(kind, name, vec![cause]));
    }
    Ok(())
}

/// Returns the configuration that an apply sends, which is validated without the live object.
fn applied_config(writer: &Writer<'_>, name: &str, sent: &Bytes) -> Result<Value, ApiError> {
    let kind = writer.kind;
    let (mut config, duplicates) =
        schema::parse_yaml(sent).map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
    if !config.is_object() {
        return Err(ApiError::bad_request("an apply patch must be an object"));
    }
    for key in ["apiVersion", "kind"] {
        if config.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
            return Err(ApiError::bad_request(format!("an apply patch must have {key}")));
        }
    }
    body::check_type(kind, &mut config)?;
    let mut faults: Vec<String> = duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect();
    faults.extend(
        schema::prune(&kind.schema, &mut config).iter().map(|path| format!("field not declared in schema: .{path}")),
    );
    if !faults.is_empty() {
        return Err(ApiError::bad_request(format!("failed to create typed patch object: {}", faults.join(", "))));
    }
    if config["metadata"]["name"].as_str().is_none_or(str::is_empty) {
        config["metadata"]["name"] = name.into();
    }
    let mut unchanged = config.clone();
    check_identity(kind, name, writer.namespace, &Value::Null, &mut unchanged).or_else(|error| match error.code {
        // The UID in the configuration is compared with the live object's below.
        422 => Ok(()),
        _ => Err(error),
    })?;
    config["metadata"]["namespace"] = unchanged["metadata"]["namespace"].take();
    if config["metadata"]["namespace"].is_null() {
        config["metadata"].as_object_mut().map(|meta| meta.remove("namespace"));
    }
    Ok(config)
}

async fn apply_patch(writer: &Writer<'_>, name: &str, part: Part, sent: &Bytes) -> Result<Written, ApiError> {
    let kind = writer.kind;
    let config = applied_config(writer, name, sent)?;
    let manager = writer.options.manager.as_str();
    let force = writer.options.force.unwrap_or(false);
    let subresource = if part == Part::Status { Some("status") } else { None };
    let version = config["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let uid = config["metadata"]["uid"].clone();
    let wanted = |live: &CurrentObject| {
        if !uid.is_null() && uid != live.tree["metadata"]["uid"] {
            return Err(ApiError::conflict(kind, name, "the UID of the object differs from the UID in the patch"));
        }
        writer.check_sizes(Some(&live.tree), &config)?;
        if part == Part::Main
            && kind.has_status
            && let Some(status) = config.get("status")
        {
            writer.check_sent_status(&live.tree, status)?;
        }
        let mut new =
            apply::server_side_apply(kind, Some(&live.tree), config.clone(), manager, force, subresource, writer.now)?;
        if !version.is_empty() {
            new["metadata"]["resourceVersion"] = version.as_str().into();
        }
        Ok((new, true))
    };
    for _ in 0..2 {
        if let Some(written) = change(writer, name, part, wanted).await? {
            return Ok(written);
        }
        if part != Part::Main {
            return Err(ApiError::not_found(kind, name));
        }
        if !version.is_empty() {
            return Err(ApiError::modified(kind, name));
        }
        // A request that creates an object requires the permission to create.
        let access = Access::resource("create", kind.group, kind.plural, writer.namespace, Some(name));
        writer.server.authorizer.authorize(writer.identity, &access)?;
        writer.check_sizes(None, &config)?;
        let mut new = apply::server_side_apply(kind, None, config.clone(), manager, force, None, writer.now)?;
        if let (Some(status), Some(new)) = (config.get("status"), new.as_object_mut()) {
            // The create checks it, and drops it.
            new.entry("status").or_insert_with(|| status.clone());
        }
        match create_object(writer, new, true).await {
            // Another client created it first: then this is a change.
            Err(error) if error.reason == "AlreadyExists" => {}
            Ok(written) => return Ok(Written { status: StatusCode::CREATED, ..written }),
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::modified(kind, name))
}
