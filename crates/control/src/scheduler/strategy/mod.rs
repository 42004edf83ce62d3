//! Strategies: the choice among the Routers that may take a route.
//!
//! A [`Strategy`] gives each candidate a score; [`pick`] takes the highest, and of equal scores the first by name, so that equal
//! input always gives equal output. Strategies are pure: their history comes with the candidates, and is derived from the
//! existing bindings, so that a restart loses nothing.
//!
//! To add a strategy, add a file here, a variant of [`StrategyName`] and of [`StrategyName::ALL`], and a line in the conformance
//! suites below and in `tests/simulation/scenarios/conformance.rs`, which all strategies pass. `docs/internals/scheduler.md` shows
//! the steps.

use std::fmt;
use std::str::FromStr;

mod least_routes;
mod rendezvous;
mod round_robin;
mod weighted;

/// Chooses among Routers that may take a route.
pub trait Strategy: Send + Sync {
    /// Returns the name in settings and explanations.
    fn name(&self) -> StrategyName;

    /// Returns whether the strategy can ever choose this candidate. The others are reported to the user as filtered out.
    fn admits(&self, _candidate: &Candidate<'_>) -> bool {
        true
    }

    /// Returns a score for each candidate, in order; higher is better. All of them are eligible.
    fn score(&self, route: RouteName<'_>, candidates: &[Candidate<'_>]) -> Vec<i64>;
}

/// The route to place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteName<'a> {
    /// The Route's namespace.
    pub namespace: &'a str,
    /// The Route's name.
    pub name: &'a str,
}

/// A Router that may take the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The Router's name.
    pub name: &'a str,
    /// The Router's `spec.weight`.
    pub weight: u32,
    /// The number of routes bound to the Router, including those being bound.
    pub routes: u32,
    /// The Router's last assignment, as a number that grows with each assignment; 0: never.
    pub last_assigned: u64,
}

/// The best candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// The candidate's index.
    pub index: usize,
    /// The number of others with the same score.
    pub tied: usize,
}

/// Returns the candidate with the highest score; of equal scores, the first name in byte order. `None` without any.
pub fn pick(candidates: &[Candidate<'_>], scores: &[i64]) -> Option<Pick> {
    let ranked = || candidates.iter().zip(scores).enumerate();
    let (index, (_, best)) = ranked()
        .max_by(|(_, (a, score_a)), (_, (b, score_b))| score_a.cmp(score_b).then_with(|| b.name.cmp(a.name)))?;
    let tied = scores.iter().filter(|score| *score == best).count() - 1;
    Some(Pick { index, tied })
}

/// The strategies there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum StrategyName {
    /// The Router that waited longest is next.
    #[default]
    RoundRobin,
    /// The Router with the fewest routes.
    LeastRoutes,
    /// The Router that is furthest below its share by weight.
    Weighted,
    /// The highest hash of route and Router: few changes when Routers are added or removed.
    Rendezvous,
}

impl StrategyName {
    /// All strategies. Settings accept exactly these.
    pub const ALL: [StrategyName; 4] =
        [StrategyName::RoundRobin, StrategyName::LeastRoutes, StrategyName::Weighted, StrategyName::Rendezvous];

    /// Returns the name in settings and explanations.
    pub fn as_str(self) -> &'static str {
        match self {
            StrategyName::RoundRobin => "round-robin",
            StrategyName::LeastRoutes => "least-routes",
            StrategyName::Weighted => "weighted",
            StrategyName::Rendezvous => "rendezvous",
        }
    }

    pub fn strategy(self) -> &'static dyn Strategy {
        match self {
            StrategyName::RoundRobin => &round_robin::RoundRobin,
            StrategyName::LeastRoutes => &least_routes::LeastRoutes,
            StrategyName::Weighted => &weighted::Weighted,
            StrategyName::Rendezvous => &rendezvous::Rendezvous,
        }
    }
}

impl fmt::Display for StrategyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StrategyName {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        let found = StrategyName::ALL.into_iter().find(|name| name.as_str() == text);
        found.ok_or_else(|| UnknownStrategy(text.to_owned()))
    }
}

/// The error for a name that is not a strategy's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown strategy {0:?}; the built-in strategies are {all}", all = StrategyName::ALL.map(StrategyName::as_str).join(", "))]
pub struct UnknownStrategy(pub String);

#[cfg(test)]
mod tests {
    use super::{Candidate, RouteName, Strategy, StrategyName, pick};
    use proptest::{prop_assert_eq, proptest};

    /// A platform small enough to watch: Routers with weights, routes placed one after the other.
    struct Platform {
        routers: Vec<(String, u32, u32, u64)>,
        turn: u64,
    }

    impl Platform {
        fn new(weights: &[u32]) -> Self {
            let routers =
                weights.iter().enumerate().map(|(i, weight)| (format!("shard{i:02}"), *weight, 0, 0)).collect();
            Platform { routers, turn: 0 }
        }

        fn candidates(&self) -> Vec<Candidate<'_>> {
            self.routers
                .iter()
                .map(|(name, weight, routes, last_assigned)| Candidate {
                    name,
                    weight: *weight,
                    routes: *routes,
                    last_assigned: *last_assigned,
                })
                .collect()
        }

        fn choose(&self, strategy: &dyn Strategy, name: &str) -> Option<usize> {
            let all = self.candidates();
            let admitted: Vec<usize> = (0..all.len()).filter(|i| strategy.admits(&all[*i])).collect();
            let candidates: Vec<Candidate<'_>> = admitted.iter().map(|i| all[*i]).collect();
            let scores = strategy.score(RouteName { namespace: "ns", name }, &candidates);
            assert_eq!(scores.len(), candidates.len());
            pick(&candidates, &scores).map(|pick| admitted[pick.index])
        }

        fn place(&mut self, strategy: &dyn Strategy, name: &str) -> Option<usize> {
            let index = self.choose(strategy, name)?;
            self.turn += 1;
            self.routers[index].2 += 1;
            self.routers[index].3 = self.turn;
            Some(index)
        }

        fn counts(&self) -> Vec<u32> {
            self.routers.iter().map(|router| router.2).collect()
        }
    }

    #[test]
    fn names_are_read_back() {
        for name in StrategyName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
            assert_eq!(name.strategy().name(), name);
        }
        let error = "random".parse::<StrategyName>().expect_err("there is none");
        assert!(error.to_string().contains("round-robin"));
    }

    /// A strategy is a file here; one that is not in `ALL` could not be selected.
    #[test]
    fn all_has_every_strategy() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/scheduler/strategy");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .expect("the directory of this file")
            .map(|entry| {
                entry.expect("readable").path().file_stem().expect("a file").to_string_lossy().replace('_', "-")
            })
            .filter(|name| name != "mod")
            .collect();
        let mut all = StrategyName::ALL.map(StrategyName::as_str);
        files.sort();
        all.sort_unstable();
        assert_eq!(files, all);
    }

    #[test]
    fn conformance_no_candidate_is_no_choice() {
        for name in StrategyName::ALL {
            assert_eq!(Platform::new(&[]).choose(name.strategy(), "a"), None, "{name}");
        }
    }

    /// Each strategy has its promised spread over 1,200 routes on Routers of these weights.
    #[test]
    fn conformance_spread() {
        for (name, weights, expected, tolerance) in [
            (StrategyName::RoundRobin, vec![1, 1, 1], vec![400, 400, 400], 0),
            (StrategyName::RoundRobin, vec![9, 1, 1], vec![400, 400, 400], 0),
            (StrategyName::LeastRoutes, vec![1, 1, 1, 1], vec![300, 300, 300, 300], 0),
            (StrategyName::Weighted, vec![1, 2, 3], vec![200, 400, 600], 1),
            (StrategyName::Weighted, vec![0, 1, 1], vec![0, 600, 600], 1),
            (StrategyName::Weighted, vec![1000, 200], vec![1000, 200], 1),
            // A hash gives a random distribution: four standard deviations of a binomial.
            (StrategyName::Rendezvous, vec![1, 1, 1], vec![400, 400, 400], 66),
        ] {
            let mut platform = Platform::new(&weights);
            for i in 0..1200 {
                platform.place(name.strategy(), &format!("route{i}"));
            }
            for (count, expected) in platform.counts().into_iter().zip(expected) {
                assert!(count.abs_diff(expected) <= tolerance, "{name} {weights:?}: {:?}", platform.counts());
            }
        }
    }

    /// Round robin gives each of n Routers one of any n routes in a row, even after an uneven start.
    #[test]
    fn round_robin_gives_each_its_turn() {
        let mut platform = Platform::new(&[1; 5]);
        platform.routers[3].2 = 500;
        let strategy = StrategyName::RoundRobin.strategy();
        let order: Vec<_> = (0..10).filter_map(|i| platform.place(strategy, &format!("r{i}"))).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
        // A Router that is added late gets one route, not all that it missed.
        platform.routers.push(("a-late-one".to_owned(), 1, 0, 0));
        let order: Vec<_> = (0..6).filter_map(|i| platform.place(strategy, &format!("s{i}"))).collect();
        assert_eq!(order, [5, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn rendezvous_moves_only_what_must() {
        let strategy = StrategyName::Rendezvous.strategy();
        let all = Platform::new(&[1; 10]);
        let mut fewer = Platform::new(&[1; 10]);
        fewer.routers.remove(4);
        let mut more = Platform::new(&[1; 10]);
        more.routers.insert(6, ("new".to_owned(), 1, 0, 0));
        let mut moved = 0;
        for i in 0..500 {
            let name = format!("route{i}");
            let before = all.choose(strategy, &name).map(|index| all.routers[index].0.clone());
            let after = fewer.choose(strategy, &name).map(|index| fewer.routers[index].0.clone());
            assert!(before == after || before.as_deref() == Some("shard04"), "{name}: {before:?} {after:?}");
            let with_more = more.choose(strategy, &name).map(|index| more.routers[index].0.clone());
            assert!(before == with_more || with_more.as_deref() == Some("new"), "{name}: {before:?} {with_more:?}");
            moved += u32::from(before != with_more);
        }
        // One of eleven, plus or minus four standard deviations of a binomial.
        assert!(moved.abs_diff(500 / 11) < 26, "{moved}");
    }

    proptest! {
        /// Equal input gives equal output, for any order of the candidates.
        #[test]
        fn conformance_deterministic(
            routers in proptest::collection::btree_map("[a-z]{1,6}", (0_u32..5, 0_u32..50, 0_u64..50), 1..8),
            route in "[a-z]{1,8}",
        ) {
            for name in StrategyName::ALL {
                let strategy = name.strategy();
                let mut candidates: Vec<Candidate<'_>> = routers
                    .iter()
                    .map(|(name, (weight, routes, last_assigned))| {
                        Candidate { name, weight: *weight, routes: *routes, last_assigned: *last_assigned }
                    })
                    .filter(|candidate| strategy.admits(candidate))
                    .collect();
                let chosen = |candidates: &[Candidate<'_>]| {
                    let scores = strategy.score(RouteName { namespace: "ns", name: &route }, candidates);
                    pick(candidates, &scores).map(|pick| candidates[pick.index].name.to_owned())
                };
                let forward = chosen(&candidates);
                prop_assert_eq!(forward.is_some(), !candidates.is_empty());
                candidates.reverse();
                prop_assert_eq!(forward, chosen(&candidates));
            }
        }
    }
}
