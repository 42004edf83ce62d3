//! The traffic in the metrics of the agent: the busiest Routes, one series for all others, and totals.

use std::fmt;

use signpost_runtime::telemetry::page::{Page, Rows};

use super::{Counters, EndpointState, State, Traffic};
use crate::site::RouteKey;

/// The classes of a status in `class`. `none`: the client ended the request before a response.
const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];
/// The value of `route` for all Routes that have no series of their own. It has no slash, so that no Route has it.
pub const OTHER: &str = "other";

impl Traffic {
    pub fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let state = self.0.lock();
        let (chosen, other) = state.busiest.counters();
        let mut counters: Vec<(&str, &Counters)> = chosen.iter().map(|(key, one)| (key.as_str(), *one)).collect();
        counters.push((OTHER, other));
        let requests: Rows<'_, u64> = counters
            .iter()
            .flat_map(|(route, one)| {
                let rows = CLASSES.iter().zip(one.requests).filter(|(_, count)| *count > 0);
                rows.map(move |(class, count)| (vec![("route", *route), ("class", *class)], count))
            })
            .collect();
        page.counter("agent_route_requests", "Finished requests for a Route, by the class of their status", &requests)?;
        for (name, help, value) in [
            (
                "agent_route_errors",
                "Requests and connections for a Route that no endpoint answered",
                (|one| one.errors) as fn(&Counters) -> u64,
            ),
            ("agent_route_connections", "Connections with TLS passthrough for a Route", |one| one.connections),
            ("agent_route_received_bytes", "Bytes from clients for a Route", |one| one.bytes_in),
            ("agent_route_sent_bytes", "Bytes to clients for a Route", |one| one.bytes_out),
        ] {
            page.counts(name, help, "route", counters.iter().map(|(route, one)| (*route, value(one))))?;
        }
        state.write_routes(&chosen, page)?;
        state.write_totals(page)
    }
}

impl State {
    /// Writes the gauges of the chosen Routes.
    fn write_routes(&self, chosen: &[(&RouteKey, &Counters)], page: &mut Page<'_>) -> fmt::Result {
        let routes = || chosen.iter().filter_map(|(key, _)| Some((key.as_str(), self.routes.get(*key)?)));
        let open: Rows<'_, i64> =
            routes().filter_map(|(key, one)| Some((vec![("route", key)], one.open?.cast_signed()))).collect();
        page.gauge("agent_route_open_requests", "Requests and connections for a Route in progress", &open)?;
        let mean: Rows<'_, f64> =
            routes().filter_map(|(key, one)| Some((vec![("route", key)], one.mean_ms? / 1_000.0))).collect();
        let help = "Mean time to the head of the response, over the last 512 requests for a Route";
        page.gauge("agent_route_response_seconds", help, &mean)?;
        let ready: Rows<'_, i64> =
            routes().map(|(key, one)| (vec![("route", key)], i64::from(!one.is_unavailable()))).collect();
        page.gauge("agent_route_ready", "Whether a Route has an endpoint that can get requests (1)", &ready)
    }

    fn write_totals(&self, page: &mut Page<'_>) -> fmt::Result {
        let endpoints = || self.routes.values().flat_map(|route| &route.endpoints);
        let count = |state| endpoints().filter(|endpoint| endpoint.state == state).count();
        let states = [("up", EndpointState::Up), ("down", EndpointState::Down), ("unknown", EndpointState::Unknown)];
        let rows: Rows<'_, i64> = states
            .into_iter()
            .map(|(word, state)| (vec![("state", word)], i64::try_from(count(state)).unwrap_or(i64::MAX)))
            .collect();
        page.gauge("agent_endpoints", "Endpoints by the outcome of the last requests to them", &rows)?;
        page.count(
            "agent_traffic_lost",
            "Requests that are in no counter of a Route, because the proxy or the agent lost them",
            self.lost,
        )?;
        page.count("agent_traffic_readings", "Readings of the traffic from the proxy", self.readings)
    }
}
