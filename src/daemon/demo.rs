//! `serve --demo`: the example platform. The program contains the manifests of `examples/rhcloud`, so it needs no files.

use std::path::Path;

use super::manifests::{Document, split};
use super::router_agent::ProxyKind;

/// The domain of the example platform.
pub const DOMAIN: &str = "v3.rhcloud.com";

/// The paths and texts of the manifests.
const FILES: [(&str, &str); 4] = [
    ("examples/rhcloud/00-namespaces.yaml", include_str!("../../examples/rhcloud/00-namespaces.yaml")),
    ("examples/rhcloud/10-routers.yaml", include_str!("../../examples/rhcloud/10-routers.yaml")),
    ("examples/rhcloud/20-routes.yaml", include_str!("../../examples/rhcloud/20-routes.yaml")),
    ("examples/rhcloud/local/20-application.yaml", include_str!("../../examples/rhcloud/local/20-application.yaml")),
];
/// The shard `local`, whose instances run on this machine. Without HAProxy, it would be an outage.
const LOCAL: (&str, &str) =
    ("examples/rhcloud/local/10-router.yaml", include_str!("../../examples/rhcloud/local/10-router.yaml"));

/// Returns whether the example has the shard `local`.
pub fn has_local() -> bool {
    ProxyKind::Haproxy.program().is_some()
}

/// Returns the objects of the example platform, Namespaces first.
pub fn documents() -> Vec<Document> {
    let (mut documents, mut errors) = (Vec::new(), Vec::new());
    for (path, text) in FILES.into_iter().chain(has_local().then_some(LOCAL)) {
        split(Path::new(path), text, &mut documents, &mut errors);
    }
    assert!(errors.is_empty(), "the examples are valid: {errors:?}");
    documents
}
