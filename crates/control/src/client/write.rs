//! Writes of statuses and objects: a status is read before it is written, so that no writer reverts another one's change; other
//! writes discard the response, because decoding the whole object is wasteful at thousands of writes per second.

use std::fmt::Debug;

use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::Request;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The number of retries when other clients write the same object at the same time.
const CONFLICTS_MAX: u32 = 6;

/// Changes the status of the object `name`. `change` receives the current object, and returns the fields of `status` to change (a
/// JSON merge patch: lists as a whole), or `None` if no change is necessary.
///
/// Returns the object after that; `None` if it does not exist. After six conflicts in a row, the last one is the error.
pub async fn update_status<K>(
    api: &Api<K>,
    name: &str,
    mut change: impl FnMut(&K) -> Option<Value>,
) -> kube::Result<Option<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut conflicts = 0;
    loop {
        let Some(object) = api.get_opt(name).await? else { return Ok(None) };
        let Some(status) = change(&object) else { return Ok(Some(object)) };
        let patch = json!({"metadata": {"resourceVersion": object.meta().resource_version}, "status": status});
        match api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(object) => return Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(kube::Error::Api(status)) if status.code == 409 && conflicts < CONFLICTS_MAX => conflicts += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Deletes the object `name`; with `preconditions`, only if it meets them. Returns whether it did: the object may be gone, or another one.
pub async fn delete<K>(api: &Api<K>, name: &str, preconditions: Option<Preconditions>) -> kube::Result<bool>
where
    K: Clone + DeserializeOwned + Debug,
{
    let is_conditional = preconditions.is_some();
    match api.delete(name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 || is_conditional && status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates `object` in `namespace`.
pub async fn create<K>(client: &kube::Client, namespace: Option<&str>, object: &K) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(K::url_path(&(), namespace)).create(&Default::default(), body);
    client.request_text(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
}

/// Patches the object `name` of kind `K` with a JSON merge patch (RFC 7386).
pub async fn merge<K>(client: &kube::Client, namespace: Option<&str>, name: &str, patch: &Value) -> kube::Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), namespace)).patch(name, &PatchParams::default(), &Patch::Merge(patch));
    client.request_text(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
}

/// Applies the fields of an object of kind `K` as the field manager `manager`, also those that others own (server-side apply).
pub async fn apply<K>(
    client: &kube::Client,
    namespace: Option<&str>,
    name: &str,
    manager: &str,
    object: &Value,
) -> kube::Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let parameters = PatchParams::apply(manager).force();
    let request = Request::new(K::url_path(&(), namespace)).patch(name, &parameters, &Patch::Apply(object));
    client.request_text(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
}
