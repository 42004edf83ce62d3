//! The properties of sources, which `fuzz/fuzz_targets/sources.rs` checks with other inputs, too.

#[path = "source_properties/properties.rs"]
mod properties;

use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_choices(choices in vec(any::<u8>(), 0..600)) {
        properties::derived(&choices);
    }
}

/// The generator makes objects that mean something: otherwise, the property would hold for nothing.
#[test]
fn choices_reach_every_kind_of_name() {
    let mut seen = std::collections::BTreeMap::new();
    let mut state = 1_u64;
    for _ in 0..3_000 {
        let choices: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        })
        .take(500)
        .collect();
        for kind in properties::derived(&choices) {
            *seen.entry(kind).or_insert(0) += 1;
        }
    }
    for kind in ["HTTPRoute", "GRPCRoute", "TLSRoute", "Route", "Ingress", "Service"] {
        assert!(seen.get(kind).is_some_and(|count| *count >= 1), "{kind}: {seen:?}");
    }
}
