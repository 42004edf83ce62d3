//! How much of a topology is drawn, so that it stays of a size that can be looked at.

use super::model::{Group, Namespace, Shard, Topology};

/// How many routes of a group may be named at most, from the most detailed on.
const NAMED: [usize; 8] = [usize::MAX, 100, 50, 20, 10, 5, 3, 1];
/// Shards named beside a namespace that is drawn without groups.
pub(super) const SHARDS_BESIDE: usize = 4;
/// Addresses of a shard that are named where not everything is.
const ADDRESSES_NAMED: usize = 8;

/// How much is drawn.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// How many namespaces; the ones with the most routes.
    pub(super) namespaces: usize,
    /// Whether a namespace's routes are told by shard.
    pub(super) groups: bool,
    /// How many routes of a group are named; the rest is counted.
    pub(super) named: usize,
    /// How many shards; the ones with the most routes.
    pub(super) shards: usize,
    /// How many addresses of a shard.
    pub(super) addresses: usize,
}

impl Layout {
    /// The most detail that takes about `size` lines or nodes; with 0, everything.
    pub(super) fn new(topology: &Topology, size: usize) -> Layout {
        let everything = Layout {
            namespaces: usize::MAX,
            groups: true,
            named: usize::MAX,
            shards: usize::MAX,
            addresses: usize::MAX,
        };
        if size == 0 {
            return everything;
        }
        let groups = || topology.namespaces.iter().flat_map(|namespace| &namespace.groups);
        let of_group = |named: usize, group: &Group| 1 + group.routes.len().min(named.saturating_add(1));
        let below = |named: usize| groups().map(|group| of_group(named, group)).sum::<usize>();
        let fixed = topology.namespaces.len() + topology.shards.len();
        let addresses = ADDRESSES_NAMED;
        if let Some(named) = NAMED.into_iter().find(|named| fixed + below(*named) <= size) {
            return Layout { named, addresses, ..everything };
        }
        if fixed + groups().count() <= size {
            return Layout { named: 0, addresses, ..everything };
        }
        // Half of the room for shards if they need it; a namespace is then a line of its own.
        let shards = topology.shards.len().min((size / 2).max(1));
        let namespaces = size.saturating_sub(shards).max(1);
        Layout { namespaces, groups: false, named: 0, shards, addresses }
    }

    /// The namespaces that are drawn, by name; and of the others how many, and how many routes they have.
    pub(super) fn namespaces<'t>(&self, topology: &'t Topology) -> (Vec<&'t Namespace>, usize, usize) {
        most(&topology.namespaces, self.namespaces, |namespace| namespace.routes)
    }

    /// The shards that are drawn, by name; and of the others how many, and how many routes they have.
    pub(super) fn shards<'t>(&self, topology: &'t Topology) -> (Vec<&'t Shard>, usize, usize) {
        most(&topology.shards, self.shards, |shard| shard.routes)
    }
}

/// The `count` heaviest of `all`, in their order; and of the others how many, and their weight.
pub(super) fn most<T>(all: &[T], count: usize, weight: impl Fn(&T) -> usize) -> (Vec<&T>, usize, usize) {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(weight(&all[*at])));
    let rest = order.split_off(count.min(order.len()));
    order.sort_unstable();
    (order.into_iter().map(|at| &all[at]).collect(), rest.len(), rest.into_iter().map(|at| weight(&all[at])).sum())
}

/// `1 route`, `2 routes`.
pub(super) fn routes(count: usize) -> String {
    format!("{count} {}", if count == 1 { "route" } else { "routes" })
}

#[cfg(test)]
mod tests {
    use super::super::model::fixture::{route, router, small};
    use super::super::{drawing, tree};
    use super::*;
    use crate::cli::style::Painter;
    use serde_json::json;

    #[test]
    fn the_most_detail_that_has_room() {
        let topology = small();
        assert_eq!(Layout::new(&topology, 0).named, usize::MAX);
        // Two namespaces, two shards, four groups, five routes.
        assert_eq!(Layout::new(&topology, 13).named, usize::MAX);
        assert_eq!(Layout::new(&topology, 8).named, 0);
        let tight = Layout::new(&topology, 3);
        assert_eq!((tight.groups, tight.namespaces, tight.shards), (false, 2, 1));
        assert_eq!(Layout::new(&topology, 1).namespaces, 1);
    }

    #[test]
    fn ten_thousand_routes_stay_of_a_size() {
        let routers: Vec<_> =
            (0..50).map(|n| router(&format!("shard{n}"), &json!({"addresses": [{"ip": "192.0.2.1"}]}))).collect();
        for namespaces in [1, 20, 400, 10_000] {
            let routes: Vec<_> = (0..10_000)
                .map(|n| {
                    route(&format!("ns{}", n % namespaces), &format!("r{n}"), Some(&format!("shard{}", n / 7 % 50)))
                })
                .collect();
            let topology = Topology::new(&routers, &routes, &[]);
            for size in [60, 200, 2_000] {
                let plan = Layout::new(&topology, size);
                let lines = tree::text(&topology, &plan, Painter::PLAIN).lines().count();
                // Headings, and lines that say how much more there is.
                assert!(lines <= size + 12, "{namespaces} namespaces, {size}: {lines} lines");
                assert!(lines >= 30, "{namespaces} namespaces, {size}: {lines} lines");
                let nodes = drawing::dot(&topology, &plan).lines().filter(|line| line.contains("[label=")).count();
                // Edges have labels as well, and shards have addresses.
                assert!(nodes <= 6 * size, "{namespaces} namespaces, {size}: {nodes} nodes");
            }
        }
    }

    #[test]
    fn the_heaviest_are_taken() {
        let all = [5, 1, 9, 3];
        assert_eq!(most(&all, 2, |weight| *weight), (vec![&5, &9], 2, 4));
        assert_eq!(most(&all, usize::MAX, |weight| *weight).1, 0);
    }
}
