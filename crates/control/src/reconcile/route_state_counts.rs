//! The number of Routes by state, as metrics: counted from the changes of the informer, so that a scrape has a fixed cost.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::client::reflector::ObjectKey;
use crate::world::RouteInfo;
use signpost_runtime::telemetry::page::{Page, Rows};
use signpost_types::route_state::RouteState;

/// The most distinct reasons. The scheduler has a handful; any other text in a condition is `other`.
const REASONS_MAX: usize = 32;
/// The reason of a Route without conditions.
const NOT_LOOKED_AT: &str = "Pending";

/// Counts of Routes; clones share them.
#[derive(Debug, Clone, Default)]
pub struct RouteStateCounts(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    route_states: [i64; RouteState::ALL.len()],
    namespaces: HashMap<Box<str>, i64>,
    /// The Routes without a Router, by the reason of their condition. A reason that occurred once stays, with zero.
    waiting: BTreeMap<Box<str>, i64>,
}

impl RouteStateCounts {
    /// Adds a Route that is new or has changed.
    pub fn add(&self, key: &ObjectKey, route: &RouteInfo) {
        self.counts().count(key, route, 1);
    }

    /// Removes a Route that was added, because it was deleted or has changed.
    pub fn remove(&self, key: &ObjectKey, route: &RouteInfo) {
        self.counts().count(key, route, -1);
    }

    /// Writes the metrics.
    pub fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let counts = self.counts();
        let states = RouteState::ALL.iter().zip(counts.route_states);
        let states: Rows<'_, i64> = states.map(|(state, count)| (vec![("state", state.word())], count)).collect();
        page.gauge("routes", "Routes by state", &states)?;
        let namespaces = i64::try_from(counts.namespaces.len()).unwrap_or(i64::MAX);
        page.level("route_namespaces", "Namespaces with Routes", namespaces)?;
        let waiting = counts.waiting.iter();
        let waiting: Rows<'_, i64> = waiting.map(|(reason, count)| (vec![("reason", &**reason)], *count)).collect();
        let help = "Routes without a Router, by the reason of their condition Scheduled; Pending: no condition yet";
        page.gauge("routes_unscheduled", help, &waiting)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock()
    }
}

impl Counts {
    fn count(&mut self, key: &ObjectKey, route: &RouteInfo, by: i64) {
        self.route_states[route.conditions.state as usize] += by;
        let namespace = key.namespace();
        match self.namespaces.get_mut(namespace) {
            Some(routes) => {
                *routes += by;
                if *routes == 0 {
                    self.namespaces.remove(namespace);
                }
            }
            None => drop(self.namespaces.insert(namespace.into(), by)),
        }
        if route.conditions.state == RouteState::Pending {
            let reason = route.conditions.waits_for.as_deref().unwrap_or(NOT_LOOKED_AT);
            let known = self.waiting.len() < REASONS_MAX || self.waiting.contains_key(reason);
            *self.waiting.entry(if known { reason } else { "other" }.into()).or_default() += by;
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::world::route::Conditions;
    use signpost_runtime::telemetry::page::collector;

    #[test]
    fn what_comes_and_goes_is_counted() {
        let route_states = RouteStateCounts::default();
        let key = |name: &str| ObjectKey::namespaced("shop", name);
        let of = |conditions: Conditions| RouteInfo { conditions, ..RouteInfo::default() };
        let waits = |reason: &str| of(Conditions { waits_for: Some(reason.into()), ..Conditions::default() });
        let live = of(Conditions { state: RouteState::Resolvable, ..Conditions::default() });
        route_states.add(&key("a"), &RouteInfo::default());
        route_states.add(&key("b"), &waits("Unschedulable"));
        route_states.remove(&key("a"), &RouteInfo::default());
        route_states.add(&key("a"), &live);
        for reason in 0..REASONS_MAX * 2 {
            route_states.add(&ObjectKey::namespaced("many", &reason.to_string()), &waits(&format!("Reason{reason}")));
        }
        let mut registry = Registry::with_prefix("signpost");
        let counted = route_states.clone();
        registry.register_collector(collector(move |page| counted.write(page)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("it is text");
        for line in [
            "signpost_routes{state=\"resolvable\"} 1",
            "signpost_routes{state=\"pending\"} 65",
            "signpost_routes{state=\"refused\"} 0",
            "signpost_route_namespaces 2",
            "signpost_routes_unscheduled{reason=\"Pending\"} 0",
            "signpost_routes_unscheduled{reason=\"Unschedulable\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(text.matches("signpost_routes_unscheduled{").count() <= REASONS_MAX + 1, "{text}");
        route_states.remove(&key("a"), &live);
        route_states.remove(&key("b"), &waits("Unschedulable"));
        assert_eq!(route_states.counts().namespaces.len(), 1);
    }
}
