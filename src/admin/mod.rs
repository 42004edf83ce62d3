//! The admin endpoints of a running process, over HTTP or HTTPS: `/livez`, `/readyz`, `/metrics`, and the [`dashboard`].
//!
//! Nothing here changes anything. Each role adds its readiness conditions to [`health::Health`], and its metrics to
//! [`metrics::Metrics`]; a scrape reads counters and affects no query thread.

pub mod dashboard;
pub mod exposition;
pub mod health;
pub mod host;
pub mod liveness;
pub mod metrics;
pub mod secondaries;
pub mod sources;
pub mod unrouted;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

use dashboard::Dashboard;
use dashboard::zones::ServedZones;
use health::Health;
use liveness::Liveness;
use metrics::Metrics;
use secondaries::Secondaries;
use sources::Sources;
use unrouted::Unrouted;

use signpost_runtime::httpd::Peer;

#[derive(Clone, Default)]
pub struct Admin {
    /// The readiness checks.
    pub health: Arc<Health>,
    /// The liveness checks.
    pub liveness: Arc<Liveness>,
    pub metrics: Arc<Metrics>,
    /// The queried names without a Route.
    pub unrouted: Arc<Unrouted>,
    /// The report about the sources.
    pub sources: Arc<Sources>,
    /// The state of the secondary servers.
    pub secondaries: Arc<Secondaries>,
    /// The zones of the process's name server.
    pub served: Arc<ServedZones>,
    /// The addresses of the process's name server.
    pub dns_listen: Vec<SocketAddr>,
}

/// Returns the endpoints, those of the dashboard among them.
pub fn router(admin: Admin, dashboard: Dashboard) -> Router {
    let reports = Router::new()
        .route("/unrouted-names", get(|State(admin): State<Admin>| async move { respond(admin.unrouted.text()) }))
        .route("/sources", get(|State(admin): State<Admin>| async move { respond(admin.sources.text()) }))
        .route("/secondaries", get(|State(admin): State<Admin>| async move { respond(admin.secondaries.text()) }))
        .route_layer(middleware::from_fn_with_state(dashboard.clone(), for_operators));
    Router::new()
        .route("/", get(index))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .merge(reports)
        .with_state(admin)
        .merge(dashboard.router())
}

/// Returns a list of the endpoints or, for browsers, the dashboard.
async fn index(headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.contains("text/html") {
        return Redirect::to("/dashboard/").into_response();
    }
    let text = "signpost\n\n/livez           liveness\n\
                /readyz          readiness, with the state of each check\n\
                /metrics         metrics for Prometheus\n\
                /unrouted-names  queried names of shards without a Route, as JSON\n\
                /sources         shards and names of the source cluster, as JSON\n\
                /secondaries     notifications to secondary servers, as JSON\n\
                /dashboard/      the dashboard\n";
    text.into_response()
}

/// A lost connection to the API must not fail liveness, because the zones are still served. A hung worker must.
async fn livez(State(admin): State<Admin>) -> Response {
    let hung = admin.liveness.hung(Instant::now());
    match hung.is_empty() {
        true => "ok\n".into_response(),
        false => (StatusCode::INTERNAL_SERVER_ERROR, hung.join("\n") + "\n").into_response(),
    }
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let report = admin.health.report();
    let status = if report.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, report.to_string()).into_response()
}

async fn scrape(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    admin.metrics.respond(&headers)
}

/// Returns the response with a report in JSON, or with the reason why there is none.
fn respond(report: Result<String, String>) -> Response {
    match report {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(reason) => (StatusCode::NOT_FOUND, reason + "\n").into_response(),
    }
}

/// Restricts access to reports that name Routes or zones of all namespaces, former ones among them: to clients on this machine, and to
/// users that may list Zones.
async fn for_operators(
    State(dashboard): State<Dashboard>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    // A proxy on this machine forwards requests of others.
    let is_passed_on = headers.keys().any(|name| is_of_a_proxy(name.as_str()));
    if !is_passed_on && peer.is_some_and(|Extension(Peer(peer))| peer.ip().to_canonical().is_loopback()) {
        return next.run(request).await;
    }
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = authorization.and_then(|value| value.strip_prefix("Bearer ")) else {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], NOT_FOR_ALL).into_response();
    };
    match dashboard.sees_all(token.trim()).await {
        Ok(true) => next.run(request).await,
        Ok(false) => (StatusCode::FORBIDDEN, NOT_FOR_ALL).into_response(),
        Err(failure) => failure.into_response(),
    }
}

/// Returns whether a proxy has added this header: RFC 7239, RFC 9110 §7.6.3, and what proxies and networks use instead, in all
/// their spellings. A client on this machine needs none of them.
fn is_of_a_proxy(header: &str) -> bool {
    const STARTS: [&str; 7] = ["forwarded", "via", "x-forwarded", "x-original", "x-real", "x-proxy", "x-envoy"];
    const ENDS: [&str; 4] = ["client-ip", "connecting-ip", "remote-addr", "remote-ip"];
    STARTS.iter().any(|start| header.starts_with(start)) || ENDS.iter().any(|end| header.ends_with(end))
}
const NOT_FOR_ALL: &str = "the report is available to requests from this machine, and to users of the API who may list \
                           Zones; send such a user's token as \"Authorization: Bearer TOKEN\"\n";

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    fn endpoints(admin: &Admin) -> Router {
        router(admin.clone(), Dashboard::new(admin))
    }

    async fn get(admin: &Admin, path: &str) -> (StatusCode, String) {
        let mut request = http::Request::get(path).body(Body::empty()).expect("a request");
        request.extensions_mut().insert(Peer(([127, 0, 0, 1], 40_000).into()));
        let response = endpoints(admin).oneshot(request).await.expect("answers");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn liveness_names_what_is_hung() {
        let admin = Admin::default();
        let limit = std::time::Duration::from_secs(2);
        admin.liveness.watch("DNS worker 0", limit, || Some(1));
        let start = Instant::now();
        admin.liveness.sample(start);
        assert_eq!(get(&admin, "/livez").await.0, StatusCode::OK);
        admin.liveness.sample(start + limit);
        let (status, text) = get(&admin, "/livez").await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(text.starts_with("DNS worker 0 is hung"), "{text}");
    }

    #[tokio::test]
    async fn the_report_of_sources_is_served_to_this_machine() {
        let admin = Admin::default();
        let (status, text) = get(&admin, "/sources").await;
        assert!(status == StatusCode::NOT_FOUND && text.contains("reads no source cluster"), "{text}");
        admin.sources.open(|| Ok(serde_json::json!({})));
        assert_eq!(get(&admin, "/sources").await, (StatusCode::OK, "{}".to_owned()));
    }

    #[tokio::test]
    async fn the_state_of_secondary_servers_is_served_to_this_machine() {
        let admin = Admin::default();
        let (status, text) = get(&admin, "/secondaries").await;
        assert!(status == StatusCode::NOT_FOUND && text.contains("dns.secondary"), "{text}");
        let address = "192.0.2.53:53".parse().expect("an address");
        let server = signpost_dns::notify::Secondary { address, key: None, zones: Vec::new(), source: None };
        admin.secondaries.open(Arc::new(signpost_dns::notify::Notifier::new(vec![server])));
        let expected = r#"{"servers":[{"server":"192.0.2.53:53","total":0,"zones":[]}]}"#;
        assert_eq!(get(&admin, "/secondaries").await, (StatusCode::OK, expected.to_owned()));
    }

    #[tokio::test]
    async fn unrouted_names_are_served_to_this_machine() {
        let admin = Admin::default();
        let (status, text) = get(&admin, "/unrouted-names").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(text.contains("metrics.unrouted-names"), "{text}");
        admin.unrouted.open(unrouted::Report::default);
        let (status, text) = get(&admin, "/unrouted-names").await;
        assert_eq!((status, text.as_str()), (StatusCode::OK, r#"{"since":"1970-01-01T00:00:00Z","zones":[]}"#));
        let of_proxies = "forwarded,via,x-forwarded-for,x-forwarded,x-forwarded-host,x-forwarded-proto,x-forwarded-server,x-real-ip,\
                          x-original-forwarded-for,x-original-host,client-ip,x-client-ip,true-client-ip,x-cluster-client-ip,\
                          fastly-client-ip,cf-connecting-ip,x-envoy-external-address,x-remote-addr,x-remote-ip,x-proxyuser-ip";
        let of_proxies = of_proxies.split(',').map(|header| ([127, 0, 0, 1], header));
        for (peer, header) in of_proxies.chain([([192, 0, 2, 1], "x")]) {
            let request = http::Request::get("/unrouted-names").header(header, "192.0.2.1");
            let mut request = request.body(Body::empty()).expect("a request");
            request.extensions_mut().insert(Peer((peer, 40_000).into()));
            let response = endpoints(&admin).oneshot(request).await.expect("answers");
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{peer:?} {header}");
        }
    }

    #[tokio::test]
    async fn metrics_come_in_both_formats() {
        let admin = Admin::default();
        let (status, text) = get(&admin, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("# TYPE signpost_build_info gauge\nsignpost_build_info{"), "{text}");
        let request = http::Request::get("/metrics").header("accept", "application/openmetrics-text");
        let request = request.body(Body::empty()).expect("a request");
        let response = endpoints(&admin).oneshot(request).await.expect("answers");
        let content_type = response.headers()[header::CONTENT_TYPE].to_str().expect("text").to_owned();
        assert!(content_type.starts_with("application/openmetrics-text; version=1.0.0"), "{content_type}");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        assert!(body.ends_with(b"# EOF\n"));
        assert_eq!(get(&admin, "/nothing").await.0, StatusCode::NOT_FOUND);
    }
}
