//! Writes whose answers are not read: all that matters is whether they were done.
//!
//! An API server answers a write with the whole object. Whoever needs nothing of it, and writes thousands a second, is better
//! off without decoding it.

use kube::Resource;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::Serialize;
use serde_json::Value;

/// Creates `object` in `namespace`.
pub async fn create<K>(client: &kube::Client, namespace: Option<&str>, object: &K) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(K::url_path(&(), namespace)).create(&Default::default(), body);
    client.request_text(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
}

/// Patches the object `name` of kind `K` by a JSON merge patch (RFC 7386).
pub async fn merge<K>(client: &kube::Client, namespace: Option<&str>, name: &str, patch: &Value) -> kube::Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), namespace)).patch(name, &PatchParams::default(), &Patch::Merge(patch));
    client.request_text(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
}

/// Patches the status of the object `name` of kind `K` by `operations`, the text of a JSON patch (RFC 6902).
pub async fn patch_status<K>(
    client: &kube::Client,
    namespace: Option<&str>,
    name: &str,
    operations: Vec<u8>,
) -> kube::Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let request = http::Request::patch(format!("{}/{name}/status", K::url_path(&(), namespace)))
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(operations);
    let request = request.map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(drop)
}
