//! The traffic of an instance for others: totals and the busiest Routes of some namespaces, or one Route. Its size is bounded.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::history::History;
use super::{Counters, EndpointState, Rates, RouteTraffic, Traffic};
use crate::site::RouteKey;

/// The most Routes in a view.
pub const ROUTES_MAX: usize = 50;

/// The Routes in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Namespaces(BTreeSet<String>),
    /// One Route, as `namespace/name`.
    Route(String),
}

/// The traffic of an instance. Its JSON is an interface between versions: fields can be added, but not renamed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    pub totals: Totals,
    /// The Routes with the most requests, in descending order; with [`Scope::Route`], only that one.
    pub routes: Vec<RouteView>,
    /// The requests of all Routes of the instance that were not counted.
    pub lost: u64,
    /// The readings from the proxy. With 0, nothing is known yet.
    pub readings: u64,
    /// The last minutes of all Routes in the scope.
    #[serde(default)]
    pub history: History,
}

/// The sums of all Routes in the scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    #[serde(flatten)]
    pub counters: Counters,
    pub rates: Rates,
    pub open: Option<u64>,
    pub routes: u64,
    /// The endpoints by state.
    pub up: u64,
    pub down: u64,
    pub unknown: u64,
}

/// A Route in a view. Only a view of one Route has endpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteView {
    pub route: String,
    /// Whether an endpoint can get requests.
    pub ready: bool,
    #[serde(flatten)]
    pub traffic: RouteTraffic,
}

impl Traffic {
    /// Returns the traffic of the Routes in a scope.
    pub fn view(&self, scope: &Scope) -> View {
        let state = self.0.lock();
        let is_in = |route: &str| match scope {
            Scope::All => true,
            Scope::Namespaces(names) => route.split_once('/').is_some_and(|(namespace, _)| names.contains(namespace)),
            Scope::Route(wanted) => route == wanted,
        };
        let routes = || state.routes.iter().filter(|(key, _)| is_in(key.as_str()));
        let mut view = View { lost: state.lost, readings: state.readings, ..View::default() };
        view.history = History::of(&state.spans, routes().map(|(_, route)| &route.counts));
        routes().for_each(|(_, route)| view.totals.add(route));
        let mut busiest: Vec<_> = routes().collect();
        busiest.sort_by(|(_, one), (_, other)| {
            let rates = other.rates.requests.total_cmp(&one.rates.requests);
            rates.then(other.counters.total().cmp(&one.counters.total()))
        });
        let has_endpoints = matches!(scope, Scope::Route(_));
        let view_of = |(key, route): (&RouteKey, &RouteTraffic)| {
            let ready = !route.is_unavailable();
            let mut traffic = route.clone();
            if !has_endpoints {
                traffic.endpoints.clear();
            }
            RouteView { route: key.to_string(), ready, traffic }
        };
        view.routes = busiest.into_iter().take(ROUTES_MAX).map(view_of).collect();
        view
    }
}

impl RouteView {
    /// Adds the traffic of the same Route on another instance.
    pub fn merge(&mut self, other: RouteView) {
        self.ready |= other.ready;
        self.traffic.merge(other.traffic);
    }
}

impl Totals {
    /// Adds the totals of another instance of the same Routes.
    pub fn merge(&mut self, other: &Totals) {
        self.counters.add(&other.counters);
        self.rates.add(&other.rates);
        if let Some(open) = other.open {
            self.open = Some(self.open.unwrap_or_default().saturating_add(open));
        }
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.routes, other.routes);
        add(&mut self.up, other.up);
        add(&mut self.down, other.down);
        add(&mut self.unknown, other.unknown);
    }

    fn add(&mut self, route: &RouteTraffic) {
        self.counters.add(&route.counters);
        self.rates.add(&route.rates);
        if let Some(open) = route.open {
            *self.open.get_or_insert(0) += open;
        }
        self.routes += 1;
        for endpoint in &route.endpoints {
            match endpoint.state {
                EndpointState::Up => self.up += 1,
                EndpointState::Down => self.down += 1,
                EndpointState::Unknown => self.unknown += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Delta, Reading};
    use super::*;
    use crate::site::{Site, Upstream};
    use signpost_types::probe::route_id;

    /// A view has no Route of another namespace, and at most [`ROUTES_MAX`] of them.
    #[test]
    fn views() {
        let mut site = Site::default();
        for number in 0..60 {
            let (namespace, uid) = (if number < 55 { "shop" } else { "bank" }, format!("uid{number}"));
            let key = format!("{namespace}/r{number}").parse().expect("a Route");
            site.routes.insert(key, Upstream { uid, ..Upstream::default() });
        }
        let traffic = Traffic::default();
        traffic.follow(&site);
        let delta = |number: u64| {
            let mut delta = Delta::default();
            delta.counters.requests[2] = number;
            (route_id(&format!("uid{number}")).into(), delta)
        };
        let reading = Reading { routes: (0..60).map(delta).collect(), lost: 2 };
        traffic.add(reading, Duration::from_secs(5));
        let shop = Scope::Namespaces(BTreeSet::from(["shop".to_owned()]));
        for (scope, total, routes, first) in [
            (Scope::All, 59 * 60 / 2, ROUTES_MAX, Some("bank/r59")),
            (shop, 54 * 55 / 2, ROUTES_MAX, Some("shop/r54")),
            (Scope::Namespaces(BTreeSet::new()), 0, 0, None),
            (Scope::Route("shop/r7".to_owned()), 7, 1, Some("shop/r7")),
            (Scope::Route("shop/r59".to_owned()), 0, 0, None),
        ] {
            let view = traffic.view(&scope);
            let found = view.routes.first().map(|route| route.route.as_str());
            assert_eq!((view.totals.counters.total(), view.routes.len(), found), (total, routes, first), "{scope:?}");
            assert_eq!((view.lost, view.readings), (2, 1));
            let text = serde_json::to_string(&view).expect("JSON");
            let read: View = serde_json::from_str(&text).expect("it was written so");
            // Without rates, whose last digits can differ.
            assert_eq!((read.totals.counters, read.routes.len()), (view.totals.counters, routes));
        }
        // A Route that is created again begins with zero, and one that is gone is forgotten.
        site.routes.get_mut("shop/r7").expect("it is there").uid = "other".to_owned();
        site.routes.remove("bank/r59");
        traffic.follow(&site);
        assert_eq!(traffic.view(&Scope::Route("shop/r7".to_owned())).totals.counters.total(), 0);
        assert_eq!(traffic.view(&Scope::Route("shop/r8".to_owned())).totals.counters.total(), 8);
        assert!(traffic.view(&Scope::Route("bank/r59".to_owned())).routes.is_empty());
    }
}
