//! One suite for the real proxies: HAProxy and nginx on loopback addresses, with real applications behind them.

mod bench;
mod client;
mod hostile;
mod probe;
mod reload;
mod routing;
mod rules;
mod tls;

/// Runs each scenario with each proxy.
macro_rules! scenarios {
    ($($module:ident::$name:ident),* $(,)?) => {
        scenarios!(haproxy, $($module::$name),*);
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
    routing::weights,
    routing::hostile_requests,
    tls::termination,
    tls::insecure_requests,
    tls::certificates,
    probe::probes,
    probe::traces,
    reload::no_request_fails,
    reload::rejected_route,
    reload::rejected_certificate,
    reload::crash,
    reload::drain,
    hostile::injections,
    hostile::services_of_others,
    hostile::very_many_routes,
    hostile::garbage_certificates,
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
