//! `/version`, `/healthz`, `/livez`, `/readyz`: the endpoints without authentication.

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::error::ApiError;
use super::request::Query;
use super::{Product, Shared, respond};
use crate::store;

/// The Kubernetes minor version whose contract this server follows; clients warn if theirs differs too much.
const KUBERNETES_MINOR: &str = "32";

/// Returns `/readyz` for `/readyz/cache`, and any other path unchanged.
pub fn root_of(path: &str) -> &str {
    ["/healthz", "/livez", "/readyz"]
        .into_iter()
        .find(|root| path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/')))
        .unwrap_or(path)
}

/// Answers these paths; `None` for others.
pub(crate) fn answer(server: &Shared, path: &str, query: &Query) -> Option<Result<Response, ApiError>> {
    let checks: Vec<(&str, bool)> = match path.trim_end_matches('/') {
        "/version" => return Some(Ok(version(&server.product))),
        "/livez" | "/healthz" => vec![("ping", true)],
        "/readyz" => vec![
            ("ping", true),
            ("watch-cache", server.cache.applied() > 0),
            ("namespaces", server.is_ready()),
            // Clients must use a server that reaches the store.
            ("store", server.store.is_reachable()),
            ("shutdown", !server.stopping.is_cancelled()),
        ],
        _ => return None,
    };
    let excluded: Vec<&str> = query.all("exclude").collect();
    let checks: Vec<_> = checks.into_iter().filter(|(name, _)| !excluded.contains(name)).collect();
    let failed = checks.iter().any(|(_, good)| !good);
    // Clients need not move to another server: every other object is served.
    let damaged = server.store.damage().count();
    let root = path.trim_matches('/');
    // Clients need not move to another server: it answers all reads.
    let full = server.store.full().filter(|_| root.starts_with("readyz"));
    if !failed && full.is_none() && !query.flag("verbose") {
        return Some(Ok(respond::text(StatusCode::OK, "ok")));
    }
    let mut reported = String::new();
    for (name, good) in checks {
        reported += &if good { format!("[+]{name} ok\n") } else { format!("[-]{name} failed\n") };
    }
    if let Some(needed) = full {
        reported += &format!("[!]disk {}\n", ApiError::from(store::Error::Full { needed }));
    }
    if damaged > 0 && root.starts_with("readyz") {
        let name = server.product.name;
        reported += &format!("[!]stored-values {damaged} damaged; the log and \"{name} check store\" name them\n");
    }
    reported += &format!("{root} check {}\n", if failed { "failed" } else { "passed" });
    let status = if failed { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    Some(Ok(respond::text(status, reported)))
}

fn version(product: &Product) -> Response {
    let git_version = format!("v1.{KUBERNETES_MINOR}.0+{}.{}", product.name, product.version);
    let platform = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let version = json!({
        "major": "1", "minor": KUBERNETES_MINOR, "gitVersion": git_version, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{platform}", std::env::consts::OS),
    });
    respond::json(StatusCode::OK, version.to_string())
}
