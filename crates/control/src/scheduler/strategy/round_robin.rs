//! `round-robin`: the Router that waited longest for a route is next.
//!
//! With the same eligible Routers each time, this is the plain circle. If the eligible Routers differ between routes, each Router
//! still gets a route as soon as it has waited longest among the eligible ones; a circle over positions would favor a Router
//! behind a gap. Over any n routes in a row with the same n eligible Routers, each gets exactly one. A new Router gets one route
//! first and then only its share: it does not attract every new route until it has caught up, as with `least-routes`.
//!
//! The assignments are those of the existing bindings: after a restart, they are in the order in which the store committed them,
//! so that the circle continues.

use super::{Candidate, RouteName, Strategy, StrategyName};

pub struct RoundRobin;

impl Strategy for RoundRobin {
    fn name(&self) -> StrategyName {
        StrategyName::RoundRobin
    }

    /// Returns the number of candidates with an assignment since this one's last as the score.
    fn score(&self, _route: RouteName<'_>, candidates: &[Candidate<'_>]) -> Vec<i64> {
        let mut assigned: Vec<u64> = candidates.iter().map(|candidate| candidate.last_assigned).collect();
        assigned.sort_unstable();
        let later = |candidate: &Candidate<'_>| {
            assigned.len() - assigned.partition_point(|turn| *turn <= candidate.last_assigned)
        };
        candidates.iter().map(|candidate| i64::try_from(later(candidate)).unwrap_or(i64::MAX)).collect()
    }
}
