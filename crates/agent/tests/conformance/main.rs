//! One suite for the real proxies: HAProxy and nginx on loopback addresses, with real applications behind them.

mod bench;
mod challenges;
mod client;
mod headers;
mod hostile;
mod isolation;
mod limits;
mod probe;
mod recorder;
mod reload;
mod rfc9110;
mod rfc9112;
mod rfc9113;
mod routing;
mod rules;
mod settings;
mod tls;
mod traffic;

/// Runs each scenario with each proxy, and those of a second list with HAProxy only.
macro_rules! scenarios {
    ($($module:ident::$name:ident),* $(,)?; haproxy_only: $($only_module:ident::$only:ident),* $(,)?) => {
        scenarios!(haproxy, $($module::$name,)* $($only_module::$only),*);
        scenarios!(nginx, $($module::$name),*);
    };
    ($proxy:ident, $($module:ident::$name:ident),*) => {
        mod $proxy {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$module::$name(super::bench::Bench::new(stringify!($proxy))).await;
            })*
        }
    };
}

scenarios!(
    rules::documented_rules,
    routing::hosts_and_paths,
    routing::servable_paths,
    routing::weights,
    routing::hostile_requests,
    tls::termination,
    tls::insecure_requests,
    tls::certificates,
    tls::handshakes,
    challenges::answers,
    probe::probes,
    probe::traces,
    reload::no_request_fails,
    reload::rejected_route,
    reload::rejected_certificate,
    reload::crash,
    reload::drain,
    isolation::other_files,
    isolation::users,
    hostile::injections,
    hostile::services_of_others,
    hostile::very_many_routes,
    hostile::very_many_servers,
    hostile::router_itself,
    hostile::garbage_certificates,
    rfc9110::delivered_once,
    rfc9110::timeouts,
    rfc9110::refused_connections,
    rfc9110::failures_disable_nothing,
    rfc9110::methods,
    rfc9110::connection_headers,
    rfc9110::upgrades,
    rfc9110::upgrade_required,
    rfc9110::interim_responses,
    rfc9112::host,
    rfc9112::absolute_form,
    rfc9112::paths_as_sent,
    rfc9112::fragments,
    rfc9112::smuggling,
    rfc9112::response_framing,
    rfc9113::requests,
    rfc9113::streams,
    headers::forged,
    headers::trusted,
    headers::responses,
    limits::heads,
    limits::bodies,
    limits::events,
    limits::idle_websocket,
    limits::slow_heads,
    limits::slow_bodies,
    limits::connections_of_a_client,
    limits::loops,
    limits::loop_of_a_route,
    traffic::counts,
    traffic::reloads,
    traffic::changed_routes,
    traffic::connections,
    traffic::access_log,
    settings::table,
    settings::maxima,
    settings::longer_tunnels,
    settings::sessions,
    settings::client_addresses,
    settings::proxy_protocol,
    settings::passthrough,
    settings::many_settings;
    haproxy_only:
    rfc9110::interim_response_and_close,
    rfc9113::websocket,
    reload::old_servers,
    reload::batches_with_a_rejected_certificate,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn haproxy_follows_a_thousand_changes_without_a_reload() {
    reload::thousand_changes(bench::Bench::new("haproxy")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn haproxy_with_ten_thousand_routes() {
    reload::ten_thousand_routes(bench::Bench::new("haproxy")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_with_a_thousand_routes() {
    reload::thousand_routes(bench::Bench::new("nginx")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_replaced_workers() {
    reload::replaced_workers(bench::Bench::new("nginx")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn haproxy_without_lua() {
    reload::without_lua(bench::Bench::new("haproxy")).await;
}

#[test]
fn without_root() {
    isolation::without_root(&[
        "haproxy::other_files",
        "haproxy::no_request_fails",
        "haproxy::certificates",
        "nginx::other_files",
        "nginx::no_request_fails",
        "nginx::certificates",
    ]);
}
