//! GET of one object.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::StatusCode;

use super::Call;
use super::related::CacheReader;
use crate::auth::rules::Access;
use crate::error::ApiError;
use crate::negotiate::{self, Offer};
use crate::object::Object;
use crate::respond;
use crate::store::Key;
use crate::table::Include;

/// The maximum wait of a read for a revision in the future.
pub const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// Returns the newest state, or any cached one if the client permits it with `resourceVersion`.
pub(crate) async fn get(call: &Call<'_>) -> Result<Response, ApiError> {
    let kind = call.resource.kind;
    let format = negotiate::format(call.headers, Offer::Object)?;
    let include = Include::parse(&call.query)?;
    check_rights(call)?;
    let cached = match resource_version(call.query.get("resourceVersion"))? {
        None if !call.server.cache.is_current(&*call.server.store).await? => None,
        Some(wanted) if wanted > 0 => {
            wait_for(call, wanted).await?;
            call.server.cache.kind_cache(kind).get(&call.resource.key())
        }
        _ => call.server.cache.kind_cache(kind).get(&call.resource.key()),
    };
    let object = match cached {
        Some(object) => object,
        None => read(call).await?,
    };
    Ok(respond::object(StatusCode::OK, kind, format, include, &object))
}

/// Rejects a read that the hooks of the kind deny.
fn check_rights(call: &Call<'_>) -> Result<(), ApiError> {
    let (resource, reader) = (&call.resource, CacheReader { server: call.server });
    let (namespace, name) = (resource.namespace.as_deref(), resource.name.as_deref());
    let hooks = call.server.kinds.hooks(resource.kind);
    match hooks.denies_get(call.identity, namespace, name.unwrap_or_default(), &reader)? {
        None => Ok(()),
        Some(why) => {
            let path = resource.path();
            let access = Access::resource("get", resource.kind.group, &path, namespace, name);
            Err(access.forbidden(call.identity, Some(why)))
        }
    }
}

/// Returns a `resourceVersion` parameter.
pub(crate) fn resource_version(text: Option<&str>) -> Result<Option<u64>, ApiError> {
    let broken = |_| ApiError::bad_request(format!("invalid resource version {:?}", text.unwrap_or_default()));
    text.map(str::parse).transpose().map_err(broken)
}

/// Waits until the cache contains the revision that a get or a list requires, so that the response need not wait for it.
pub(crate) async fn wait_for_wanted(call: &Call<'_>) -> Result<(), ApiError> {
    match call.query.get("resourceVersion").map(str::parse) {
        // With `continue`, that is an error, and a value that is not a number becomes one later.
        Some(Ok(wanted)) if call.query.get("continue").is_none() => wait_for(call, wanted).await,
        _ => Ok(()),
    }
}

/// Waits until the cache has reached `wanted`; 504 if that takes too long.
pub(crate) async fn wait_for(call: &Call<'_>, wanted: u64) -> Result<(), ApiError> {
    match call.server.cache.reaches(wanted, FUTURE_WAIT).await {
        true => Ok(()),
        false => Err(ApiError::version_too_large(wanted, call.server.cache.applied())),
    }
}

/// Returns the object as the store has it.
async fn read(call: &Call<'_>) -> Result<Arc<Object>, ApiError> {
    let kind = call.server.cache.kind_cache(call.resource.kind).kind;
    let key = call.resource.key();
    let (_, found) = call.server.store.get(&Key::below(kind.key_prefix, &key), None).await?;
    let name = call.resource.name.as_deref().unwrap_or_default();
    let found = found.ok_or_else(|| ApiError::not_found(call.resource.kind, name))?;
    let object = Object::from_stored(kind, &key, &found.value, found.modified.0);
    object.map(Arc::new).map_err(|_| ApiError::damaged(&[format!("{}{key}", kind.key_prefix)]))
}
