//! `serve --demo`: the example platform. The program contains the manifests of `examples/rhcloud`, so it needs no files.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use signpost_runtime::tls::{self, Authority, files};

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

/// The zone of the shard `local`.
const LOCAL_ZONE: &str = "local.v3.rhcloud.com";
/// The directory in the data directory with the certificate of the shard `local`, and of its authority.
const CERTIFICATES: &str = "demo-certificates";
/// The file in the data directory with the certificate of that authority, which clients must trust.
pub const AUTHORITY: &str = "demo-certificates/ca.crt";

/// Returns the directory with the certificate of the shard `local`, for agents. An authority of the example signs it, which is created with
/// it at the first start. Each start renews them, if they are due.
pub fn certificates(data_dir: &Path) -> Result<PathBuf, tls::Error> {
    let folder = data_dir.join(CERTIFICATES);
    let names = [LOCAL_ZONE.to_owned(), format!("*.{LOCAL_ZONE}")];
    let authority = Authority::open(&folder, names, SystemTime::now())?;
    let served = folder.join("served");
    files::private_folder(&served)?;
    files::write_private(&served.join(format!("_wildcard.{LOCAL_ZONE}.pem")), authority.server_pem()?.as_bytes())?;
    Ok(served)
}

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
