//! `weighted`: the Router that is furthest below its share of all routes by `spec.weight`.
//!
//! It chooses the Router for which routes ÷ weight would be smallest with the new route, which is D'Hondt's method of allocating
//! seats: with the same eligible Routers, each gets its share of all routes, except for rounding. A Router of weight 0 is never
//! chosen.

use super::{Candidate, RouteName, Strategy, StrategyName};

/// Routes per weight are compared in millionths, exactly enough for 10⁶ routes at weights up to 1000.
const SCALE: i64 = 1_000_000;

pub struct Weighted;

impl Strategy for Weighted {
    fn name(&self) -> StrategyName {
        StrategyName::Weighted
    }

    fn admits(&self, candidate: &Candidate<'_>) -> bool {
        candidate.weight > 0
    }

    /// Returns the number of routes with the new one, divided by the weight, in millionths, negative, as the score.
    fn score(&self, _route: RouteName<'_>, candidates: &[Candidate<'_>]) -> Vec<i64> {
        let load =
            |candidate: &Candidate<'_>| (i64::from(candidate.routes) + 1) * SCALE / i64::from(candidate.weight.max(1));
        candidates.iter().map(|candidate| -load(candidate)).collect()
    }
}
