//! Changes that the proxy does not serve yet. They leave in batches, one Route of each namespace in turn, so that no tenant waits
//! for the thousands of another one.

use std::collections::{BTreeMap, VecDeque};

use crate::lease::Revisions;
use crate::resolve::RouteChange;
use crate::site::{Changes, RouteKey};

/// The most Routes of a batch. HAProxy follows it within some 20 ms; with a larger one, the first Route of a tenant waits longer, and with
/// a smaller one, the pauses between batches count.
const ROUTES_MAX: usize = 64;
/// The number of servers after which a batch ends: each server that comes or goes is at most two commands of HAProxy's Runtime API.
const SERVERS_MAX: usize = 250;

#[derive(Debug, Default)]
pub(crate) struct PendingChanges {
    changes: BTreeMap<RouteKey, Pending>,
    /// The Routes of each namespace, the first come first.
    namespaces: BTreeMap<String, VecDeque<RouteKey>>,
    /// The namespaces, in the order in which their changes are taken.
    order: VecDeque<String>,
}

#[derive(Debug)]
struct Pending {
    change: RouteChange,
    /// The resource versions before the Route or its binding changed; the highest possible if it has not.
    before: Revisions,
}

impl PendingChanges {
    /// Adds changed Routes. Up to the resource versions `known`, objects were known before.
    pub(crate) fn extend(&mut self, changes: Vec<RouteChange>, known: Revisions) {
        for change in changes {
            let before = Revisions {
                bindings: if change.binding { known.bindings } else { u64::MAX },
                routes: if change.spec { known.routes } else { u64::MAX },
            };
            if let Some(pending) = self.changes.get_mut(&change.route) {
                pending.change.hosts.extend(change.hosts);
                pending.change.servers += change.servers;
                pending.before = pending.before.min(before);
                continue;
            }
            let (namespace, _) = change.route.as_str().split_once('/').expect("it is namespace/name");
            if !self.namespaces.contains_key(namespace) {
                self.order.push_back(namespace.to_owned());
            }
            self.namespaces.entry(namespace.to_owned()).or_default().push_back(change.route.clone());
            self.changes.insert(change.route.clone(), Pending { change, before });
        }
    }

    /// Takes the next batch.
    pub(crate) fn take(&mut self) -> Changes {
        let (mut batch, mut servers) = (Vec::new(), 0);
        while batch.len() < ROUTES_MAX && servers < SERVERS_MAX {
            let Some(namespace) = self.order.pop_front() else { break };
            let routes = self.namespaces.get_mut(&namespace).expect("it has a turn");
            let route = routes.pop_front().expect("a namespace without Routes has no turn");
            match routes.is_empty() {
                true => _ = self.namespaces.remove(&namespace),
                false => self.order.push_back(namespace),
            }
            let Pending { change, .. } = self.changes.remove(&route).expect("it is in its namespace");
            servers += change.servers;
            batch.push(change);
        }
        batch.into_iter().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = PendingChanges::default();
    }

    /// Returns the resource versions up to which nothing is pending, of which the newest are `newest`.
    pub(crate) fn revisions(&self, newest: Revisions) -> Revisions {
        self.changes.values().map(|pending| pending.before).fold(newest, Revisions::min)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn change(route: &str, servers: usize, binding: bool) -> RouteChange {
        let hosts = BTreeSet::from([format!("{}.example", route.replace('/', ".")).parse().expect("a host")]);
        RouteChange { route: route.parse().expect("a Route"), hosts, servers, binding, spec: !binding }
    }

    fn revisions(bindings: u64, routes: u64) -> Revisions {
        Revisions { bindings, routes }
    }

    #[test]
    fn no_namespace_waits_for_another() {
        let mut pending = PendingChanges::default();
        pending.extend((0..5_000).map(|at| change(&format!("many/r{at:04}"), 2, true)).collect(), revisions(7, 3));
        assert_eq!(pending.take().routes.len(), ROUTES_MAX);
        pending.extend(
            vec![change("one/a", 200, true), change("two/a", 2, false), change("many/r0064", 1, false)],
            revisions(9, 4),
        );
        let batch = pending.take();
        assert!(batch.routes.contains("one/a") && batch.routes.contains("two/a"));
        assert!(batch.hosts.contains("one.a.example"));
        // The first come first, and a Route once.
        assert!(batch.routes.contains("many/r0064") && batch.routes.len() < ROUTES_MAX);
        assert_eq!(pending.revisions(revisions(10, 12)), revisions(7, 12), "the changed Routes are in the batch");
        pending.extend(vec![change("one/b", 1, false)], revisions(10, 5));
        pending.extend(vec![change("one/b", 1, false)], revisions(10, 6));
        assert_eq!(pending.revisions(revisions(10, 12)), revisions(7, 5));
        let mut batches = 0;
        while !pending.is_empty() {
            assert!(!pending.take().routes.contains("many/r0064"));
            batches += 1;
        }
        assert_eq!((batches, pending.revisions(revisions(10, 12))), (77, revisions(10, 12)));
    }

    #[test]
    fn servers_end_a_batch() {
        let mut pending = PendingChanges::default();
        pending.extend((0..10).map(|at| change(&format!("many/r{at}"), 200, false)).collect(), revisions(1, 2));
        assert_eq!(pending.take().routes.len(), 2);
        assert_eq!(pending.revisions(revisions(10, 12)), revisions(10, 2));
    }
}
