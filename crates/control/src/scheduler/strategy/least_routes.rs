//! `least-routes`: the Router with the fewest routes. A new Router takes every new route until it has caught up.

use super::{Candidate, RouteName, Strategy, StrategyName};

pub struct LeastRoutes;

impl Strategy for LeastRoutes {
    fn name(&self) -> StrategyName {
        StrategyName::LeastRoutes
    }

    /// Returns the negative number of routes as the score.
    fn score(&self, _route: RouteName<'_>, candidates: &[Candidate<'_>]) -> Vec<i64> {
        candidates.iter().map(|candidate| -i64::from(candidate.routes)).collect()
    }
}
