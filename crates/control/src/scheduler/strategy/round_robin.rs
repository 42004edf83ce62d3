//! `round-robin`: whoever waited longest for a route is next.
//!
//! With the same Routers eligible each time this is the plain circle. When routes differ in which Routers may take them,
//! each Router still gets its turn as soon as it is the one that waited longest among those eligible; a circle over
//! positions would favour whoever stands behind a gap. Over any n routes in a row with the same n Routers eligible, each
//! gets exactly one. A new Router gets one turn first and no more than its part after: it does not draw every new route
//! until it has caught up, which is `least-routes`.
//!
//! The assigned are those of the bindings that exist: after a restart they stand in the order in which the store committed
//! them, so that the circle goes on where it was.

use super::{Candidate, RouteName, Strategy, StrategyName};

pub struct RoundRobin;

impl Strategy for RoundRobin {
    fn name(&self) -> StrategyName {
        StrategyName::RoundRobin
    }

    /// The score is the number of candidates that had a turn since this one's last.
    fn score(&self, _route: RouteName<'_>, candidates: &[Candidate<'_>]) -> Vec<i64> {
        let mut assigned: Vec<u64> = candidates.iter().map(|candidate| candidate.last_assigned).collect();
        assigned.sort_unstable();
        let later = |candidate: &Candidate<'_>| {
            assigned.len() - assigned.partition_point(|turn| *turn <= candidate.last_assigned)
        };
        candidates.iter().map(|candidate| i64::try_from(later(candidate)).unwrap_or(i64::MAX)).collect()
    }
}
