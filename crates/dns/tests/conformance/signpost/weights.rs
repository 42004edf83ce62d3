//! DESIGN §5: weights act by inclusion in the answer, never by order.

use std::collections::BTreeMap;

use signpost_dns::wire::RecordType;
use signpost_dns::zone::Zone;

use crate::conformance::stage::{Stage, contents, records};

fn shares(weights: &[u16]) -> Vec<f64> {
    let text: String = (0..weights.len()).map(|index| format!("* A 192.0.2.{index}\n")).collect();
    let mut contents = contents("z.test.", &format!("@ SOA ns admin\n{text}"));
    let owner = "*.z.test.".parse().expect("a name");
    contents.set_weights(&owner, RecordType::A, weights.to_vec()).expect("there are as many");
    let mut stage = Stage::new([Zone::build(contents).expect("a zone")]);
    let rounds = 20_000u32;
    let mut counts = BTreeMap::<String, u32>::new();
    for round in 0..rounds {
        // Any good sequence would do: the multiplier is odd, so these are all different.
        stage.peer.random = round.wrapping_mul(0x9e37_79b1);
        let answer = records(&stage.ask("a.z.test. A noedns"));
        assert!(!answer.is_empty(), "at least one is always there");
        for record in answer {
            *counts.entry(record.rdata).or_default() += 1;
        }
    }
    let share = |index| f64::from(*counts.get(&format!("192.0.2.{index}")).unwrap_or(&0)) / f64::from(rounds);
    (0..weights.len()).map(share).collect()
}

#[test]
fn inclusion_is_in_proportion_to_the_largest() {
    for weights in [&[100, 50, 10][..], &[1, 2, 3, 4], &[0, 1], &[65535, 1], &[7, 7, 7], &[0, 0]] {
        let heaviest = f64::from(*weights.iter().max().expect("there are some")).max(1.0);
        let equal = weights.iter().all(|weight| *weight == weights[0]);
        for (weight, share) in weights.iter().zip(shares(weights)) {
            let expected = if equal { 1.0 } else { f64::from(*weight) / heaviest };
            assert!((share - expected).abs() < 0.02, "{weights:?}: {weight} has {share}, not {expected}");
            assert!(expected < 1.0 || share == 1.0, "{weights:?}: the heaviest are always there");
        }
    }
}
