//! `rendezvous`: the highest hash of route and Router (highest random weight).
//!
//! Each pair of route and Router has a number that depends on nothing else, and the highest wins. So a removed Router affects
//! only its own routes, and an added one takes only those that it wins. A re-created route returns to the same Router, even on
//! another platform with the same names. The distribution is random: of r routes on n Routers, each gets r ÷ n plus or minus a
//! few times √(r ÷ n).
//!
//! The hash is implemented here because it must never change: FNV-1a over the names, then the finisher of SplitMix64, which gives
//! unrelated numbers to names that differ in one letter.

use super::{Candidate, RouteName, Strategy, StrategyName};

pub struct Rendezvous;

impl Strategy for Rendezvous {
    fn name(&self) -> StrategyName {
        StrategyName::Rendezvous
    }

    /// Returns the upper 53 bits of the hash as the score, so that JSON readers represent it exactly.
    fn score(&self, route: RouteName<'_>, candidates: &[Candidate<'_>]) -> Vec<i64> {
        // Names contain no slash, so two pairs never have the same bytes.
        let of_route = fnv(fnv(fnv(FNV_BASIS, route.namespace), "/"), route.name);
        let score = |candidate: &Candidate<'_>| finish(fnv(fnv(of_route, "/"), candidate.name)) >> 11;
        candidates.iter().map(|candidate| i64::try_from(score(candidate)).unwrap_or(i64::MAX)).collect()
    }
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

fn fnv(hash: u64, text: &str) -> u64 {
    text.bytes().fold(hash, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(FNV_PRIME))
}

fn finish(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_never_changes() {
        let candidate = Candidate { name: "shard1", weight: 1, routes: 0, last_assigned: 0 };
        let scores = Rendezvous.score(RouteName { namespace: "myapp", name: "test" }, &[candidate]);
        assert_eq!(scores, [6_264_579_638_652_195]);
    }
}
