//! What is known of each route whose names are verified, found by its label.
//!
//! There may be 100,000, so that a label is that of the route's binding, and not one more text.

use std::borrow::Borrow;
use std::collections::HashMap;
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

/// The routes, found by their labels, which are those of their bindings.
#[derive(Debug, Default)]
pub(super) struct RouteStates(HashMap<ByLabel, RouteState>);

/// A binding in the place of its label.
#[derive(Debug)]
struct ByLabel(Arc<BindingInput>);

impl RouteStates {
    pub fn get(&self, label: &str) -> Option<&RouteState> {
        self.0.get(label)
    }

    pub fn get_mut(&mut self, label: &str) -> Option<&mut RouteState> {
        self.0.get_mut(label)
    }

    pub fn contains_key(&self, label: &str) -> bool {
        self.0.contains_key(label)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The labels, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &Box<str>> {
        self.0.values().map(|route| &route.binding.label)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Box<str>, &RouteState)> {
        self.0.values().map(|route| (&route.binding.label, route))
    }

    /// Puts a route in the place of the one that had its label.
    pub fn insert(&mut self, route: RouteState) {
        let label = ByLabel(Arc::clone(&route.binding));
        self.0.remove(&*label.0.label);
        self.0.insert(label, route);
    }

    pub fn remove(&mut self, label: &str) -> Option<RouteState> {
        self.0.remove(label)
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
            let binding =
                BindingInput { key, created: 0, label, shard, former_names: Box::default(), former_names_to: None };
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
            routes.0.iter().all(|(label, route)| Arc::ptr_eq(&label.0, &route.binding)),
            "no binding is kept longer"
        );
    }
}
