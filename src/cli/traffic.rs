//! The traffic of a Route, as the agents of its Router count it, for the output of commands.

use kube::Client;

use crate::agents;
use signpost_agent::traffic::view::RouteView;
use signpost_agent::traffic::{Endpoint, EndpointState};

/// The most instances that are queried.
const INSTANCES_MAX: usize = 8;
/// The most endpoints in the text; the JSON has all.
const ENDPOINTS_SHOWN_MAX: usize = 20;

/// Returns the traffic of a Route on the instances of its Router; `None` if the user may not read their Leases, or no instance
/// returns it.
pub(super) async fn of(client: Client, router: &str, route: &str) -> Option<RouteView> {
    let instances = agents::list(client).await.ok()?.into_iter().filter(|instance| instance.router == router);
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("route", route).finish();
    let views = instances.take(INSTANCES_MAX).map(|instance| {
        let query = query.clone();
        async move { agents::request(&instance, &query).await }
    });
    let views = futures::future::join_all(views).await.into_iter().flatten();
    let routes = views.flat_map(|view| view.routes).filter(|found| found.route == route);
    routes.reduce(|mut sum, other| {
        sum.merge(other);
        sum
    })
}

/// Returns lines about the traffic of a Route, each with its name.
pub(super) fn lines(RouteView { traffic, .. }: &RouteView) -> Vec<(&'static str, String)> {
    let rates = traffic.rates;
    let share = |part: f64| if rates.requests > 0.0 { 100.0 * part / rates.requests } else { 0.0 };
    let time = traffic.mean_ms.map(|mean| format!(", {mean:.1} ms to the response")).unwrap_or_default();
    let total = format!(
        "{:.2} requests per second, {:.1} % with status 5xx, {:.1} % without an answer{time}",
        rates.requests,
        share(rates.server_errors),
        share(rates.errors)
    );
    let answered: u64 = traffic.endpoints.iter().map(|endpoint| endpoint.answered).fold(0, u64::saturating_add);
    let endpoint = |endpoint: &Endpoint| {
        let state = match endpoint.state {
            EndpointState::Up => "up",
            EndpointState::Down => "down",
            EndpointState::Unknown => "no requests yet",
        };
        let share = if answered > 0 { 100.0 * endpoint.answered as f64 / answered as f64 } else { 0.0 };
        let Endpoint { address, failed, .. } = endpoint;
        ("endpoint", format!("{address}: {state}, {share:.0} % of the answers, {failed} failed"))
    };
    std::iter::once(("traffic", total))
        .chain(traffic.endpoints.iter().take(ENDPOINTS_SHOWN_MAX).map(endpoint))
        .collect()
}
