//! What is known of each route whose names are verified, found by its label.
//!
//! There may be 100,000, so that a label is that of the route's binding, and not one more text.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tokio::time::Instant;

use crate::compiler::inputs::BindingInput;
use signpost_dns::zone::Serial;

/// A route's names.
#[derive(Debug)]
pub(super) struct RouteState {
    pub binding: Arc<BindingInput>,
    /// The version of the alias zone that it appeared in.
    pub serial: Serial,
    /// Since when that is known.
    pub since: Instant,
    /// Servers to be asked for its own names: below [`SERVERS_MAX`](super::proofs::SERVERS_MAX) about the shard, above about the alias.
    pub to_ask: u64,
    /// Why it is resolvable or not, as far as that is known.
    pub reason: Option<&'static str>,
}

/// What is said of routes that nothing is known of yet, where they are counted.
pub const PENDING: &str = "Pending";

/// The routes, found by their labels, which are those of their bindings.
#[derive(Debug, Default)]
pub(super) struct RouteStates {
    routes: HashMap<ByLabel, RouteState>,
    /// How many there are for each reason ever met.
    counts: BTreeMap<&'static str, usize>,
}

/// A binding in the place of its label.
#[derive(Debug)]
struct ByLabel(Arc<BindingInput>);

impl RouteStates {
    pub fn get(&self, label: &str) -> Option<&RouteState> {
        self.routes.get(label)
    }

    pub fn get_mut(&mut self, label: &str) -> Option<&mut RouteState> {
        self.routes.get_mut(label)
    }

    pub fn contains_key(&self, label: &str) -> bool {
        self.routes.contains_key(label)
    }

    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// The labels, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &Box<str>> {
        self.routes.values().map(|route| &route.binding.label)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Box<str>, &RouteState)> {
        self.routes.values().map(|route| (&route.binding.label, route))
    }

    /// Puts a route in the place of the one that had its label.
    pub fn insert(&mut self, route: RouteState) {
        let label = ByLabel(Arc::clone(&route.binding));
        self.remove(&label.0.label);
        self.count(None, Some(route.reason.unwrap_or(PENDING)));
        self.routes.insert(label, route);
    }

    pub fn remove(&mut self, label: &str) -> Option<RouteState> {
        let route = self.routes.remove(label)?;
        self.count(Some(route.reason.unwrap_or(PENDING)), None);
        Some(route)
    }

    /// The route is resolvable or not, for this reason.
    pub fn set_reason(&mut self, label: &str, reason: &'static str) {
        if let Some(route) = self.routes.get_mut(label) {
            let before = route.reason.replace(reason).unwrap_or(PENDING);
            self.count(Some(before), Some(reason));
        }
    }

    /// How many routes there are for each reason ever met; those that nothing can be said of yet are [`PENDING`].
    pub fn reasons(&self) -> &BTreeMap<&'static str, usize> {
        &self.counts
    }

    fn count(&mut self, off: Option<&'static str>, on: Option<&'static str>) {
        if let Some(count) = off.and_then(|reason| self.counts.get_mut(reason)) {
            *count -= 1;
        }
        if let Some(reason) = on {
            *self.counts.entry(reason).or_default() += 1;
        }
    }
}

impl Borrow<str> for ByLabel {
    fn borrow(&self) -> &str {
        &self.0.label
    }
}

impl Hash for ByLabel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.label.hash(state);
    }
}

impl PartialEq for ByLabel {
    fn eq(&self, other: &Self) -> bool {
        self.0.label == other.0.label
    }
}

impl Eq for ByLabel {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_takes_the_place_of_the_one_with_its_label() {
        let route = |key: &str, label: &str| {
            let (key, label, shard) = (key.into(), label.into(), "shard.example".into());
            let binding = BindingInput { key, created: 0, label, shard, former_names: Box::default(), leads_to: None };
            RouteState { binding: Arc::new(binding), serial: Serial(1), since: Instant::now(), to_ask: 0, reason: None }
        };
        let mut routes = RouteStates::default();
        for (key, label) in [("n/a", "one"), ("n/b", "two"), ("n/c", "one")] {
            routes.insert(route(key, label));
        }
        assert_eq!(routes.get("one").map(|route| &*route.binding.key), Some("n/c"));
        assert!(routes.iter().all(|(label, route)| *label == route.binding.label) && routes.keys().count() == 2);
        routes.get_mut("two").expect("put in").to_ask = 7;
        assert_eq!(routes.remove("two").map(|route| route.to_ask), Some(7));
        assert!(!routes.contains_key("two") && routes.contains_key("one"));
        assert!(
            routes.routes.iter().all(|(label, route)| Arc::ptr_eq(&label.0, &route.binding)),
            "no binding is kept longer"
        );
    }
}
