//! The checker itself: histories written by hand, and those of a real register, whole and falsified.

use proptest::prelude::*;

use super::{State, Violation, check, step};
use crate::history::{Action, Operation, Outcome, Version};

fn operation(invoked: u64, returned: u64, action: Action, outcome: Outcome) -> Operation {
    Operation { client: 0, server: 0, invoked, returned, action, outcome }
}

fn version(value: u64) -> Version {
    Version { value, revision: 10 * value }
}

fn found(value: u64) -> Outcome {
    Outcome::Found(Some(version(value)))
}

fn written(value: u64) -> Outcome {
    Outcome::Written(version(value).revision)
}

fn replace(expected: u64, value: u64) -> Action {
    Action::Replace { expected: version(expected), value }
}

/// One operation: beginning, return, action, outcome.
type Row = (u64, u64, Action, Outcome);

#[track_caller]
fn assert_linearizable(expected: bool, lines: &[Row]) {
    let history: Vec<_> = lines.iter().map(|line| operation(line.0, line.1, line.2, line.3)).collect();
    let result = check(&history);
    assert_eq!(result.is_ok(), expected, "{result:?}\n{history:#?}");
}

#[test]
fn histories_of_a_register() {
    use Action::{Create, Delete, Read, Set, Swap};
    let created = (0, 1, Create(1), written(1));
    // A read concurrent with a write finds the value before or after it.
    assert_linearizable(true, &[created, (2, 7, Set(2), written(2)), (3, 4, Read, found(1)), (5, 6, Read, found(2))]);
    assert_linearizable(true, &[(0, 3, Read, Outcome::Found(None)), (1, 2, Create(1), written(1))]);
    // One of two conditional writes wins.
    assert_linearizable(true, &[created, (2, 5, replace(1, 2), written(2)), (3, 4, replace(1, 3), Outcome::Differs)]);
    assert_linearizable(true, &[created, (2, 3, Delete(None), Outcome::Deleted), (4, 5, Set(2), Outcome::Absent)]);
    // A write that changes nothing shows the revision that is there.
    assert_linearizable(
        true,
        &[created, (2, 3, Set(1), written(1)), (4, 5, Swap { expected: 1, value: 2 }, written(2))],
    );
    // A write whose answer was lost takes effect at once, late, or never.
    let lost = (2, 3, Set(2), Outcome::Unknown);
    assert_linearizable(true, &[created, lost, (4, 5, Read, found(2))]);
    assert_linearizable(true, &[created, lost, (4, 5, Read, found(1)), (6, 7, Read, found(2))]);
    assert_linearizable(
        true,
        &[created, lost, (4, 5, Read, found(1)), (6, 7, Set(3), written(3)), (8, 9, Read, found(3))],
    );
    assert_linearizable(true, &[(0, 1, Create(1), Outcome::Unknown), (2, 3, Create(2), Outcome::Present)]);
}

#[test]
fn histories_of_no_register() {
    use Action::{Create, Delete, Read, Set, Swap};
    let created = (0, 1, Create(1), written(1));
    let set = (2, 3, Set(2), written(2));
    // A stale read, of a value and of an absence, and two reads that disagree about the order.
    assert_linearizable(false, &[created, set, (4, 5, Read, found(1))]);
    assert_linearizable(false, &[created, (2, 3, Read, Outcome::Found(None))]);
    assert_linearizable(false, &[created, (2, 9, Set(2), written(2)), (3, 4, Read, found(2)), (5, 6, Read, found(1))]);
    // A lost update: both conditional writes win.
    assert_linearizable(false, &[created, (2, 5, replace(1, 2), written(2)), (3, 4, replace(1, 3), written(3))]);
    // A write that takes effect twice, one without an answer too.
    assert_linearizable(false, &[created, set, (4, 5, Set(3), written(3)), (6, 7, Read, found(2))]);
    let lost = (2, 3, Set(2), Outcome::Unknown);
    let late = [(4, 5, Read, found(2)), (6, 7, Set(3), written(3)), (8, 9, Read, found(2))];
    assert_linearizable(false, &[&[created, lost][..], &late].concat());
    // It cannot take effect before it begins.
    assert_linearizable(false, &[created, (2, 3, Read, found(2)), (4, 5, Set(2), Outcome::Unknown)]);
    // Errors that do not match the state.
    assert_linearizable(false, &[created, (2, 3, Set(2), Outcome::Absent)]);
    assert_linearizable(false, &[created, (2, 3, replace(1, 2), Outcome::Differs)]);
    assert_linearizable(false, &[created, (2, 3, Swap { expected: 1, value: 2 }, Outcome::Differs)]);
    assert_linearizable(false, &[(0, 1, Create(1), Outcome::Present)]);
    assert_linearizable(
        false,
        &[created, (2, 3, Delete(None), Outcome::Deleted), (4, 5, Delete(None), Outcome::Deleted)],
    );
    // "Nothing to change" of a state that was overwritten, and a revision that goes back.
    assert_linearizable(false, &[created, set, (4, 5, Set(1), written(1))]);
    assert_linearizable(false, &[created, set, (4, 5, Set(3), Outcome::Written(15))]);
}

#[test]
fn the_error_names_the_operation_without_a_valid_order() {
    let history = [
        operation(0, 1, Action::Create(1), written(1)),
        operation(2, 3, Action::Set(2), written(2)),
        operation(4, 5, Action::Read, found(1)),
    ];
    assert_eq!(check(&history), Err(Violation::NotLinearizable { longest: vec![0, 1], stuck: 2 }));
}

/// A random operation: its action, the time from its start to its effect and from its effect to its return, and its outcome.
type Drawn = (u8, u64, u64, u8);

/// Returns a history of a real register: each operation takes effect at its turn, somewhere between its beginning and its return.
fn real(drawn: &[Drawn]) -> Vec<Operation> {
    let (mut state, mut past, mut next): (State, Vec<Version>, u64) = (None, vec![version(1)], 2);
    let mut history = Vec::new();
    for (turn, (kind, before, after, fate)) in drawn.iter().enumerate() {
        let at = 1_000 * (turn as u64 + 1);
        let (newest, older) = (past[past.len() - 1], past[usize::from(*kind) % past.len()]);
        let action = match kind % 9 {
            0..=2 => Action::Read,
            3 => Action::Create(next),
            4 => Action::Replace { expected: newest, value: next },
            5 => Action::Set(if *kind > 200 { older.value } else { next }),
            6 => Action::Swap { expected: newest.value, value: next },
            7 => Action::Replace { expected: older, value: next },
            _ => Action::Delete((*kind > 128).then_some(newest)),
        };
        let now = state.map(|held| Version { value: held.value, revision: held.revision.unwrap() });
        let is_lost = fate % 16 == 0;
        // Some never take effect.
        let outcome = if is_lost && fate % 32 == 0 { Outcome::Unknown } else { outcome(now, action, at) };
        let operation = operation(at - before.min(&at), at + after, action, outcome);
        state = step(state, &operation).filter(|_| outcome != Outcome::Unknown).unwrap_or(state);
        if let Outcome::Written(revision) = outcome {
            past.push(Version { value: action.written().unwrap(), revision });
            next += 1;
        }
        history.push(Operation { outcome: if is_lost { Outcome::Unknown } else { outcome }, ..operation });
    }
    history
}

/// Returns the outcome of an operation on a register with the value `now`.
fn outcome(now: Option<Version>, action: Action, revision: u64) -> Outcome {
    let fits = |expected| if now == Some(expected) { Outcome::Written(revision) } else { Outcome::Differs };
    match (action, now) {
        (Action::Read | Action::ReadFrom(_), now) => Outcome::Found(now),
        (Action::Create(_), None) => Outcome::Written(revision),
        (Action::Create(_), Some(_)) => Outcome::Present,
        (_, None) => Outcome::Absent,
        (Action::Replace { expected, .. }, _) => fits(expected),
        (Action::Set(value), Some(now)) if value == now.value => Outcome::Written(now.revision),
        (Action::Set(_), _) => Outcome::Written(revision),
        (Action::Swap { expected, .. }, Some(now)) if expected != now.value => Outcome::Differs,
        (Action::Swap { .. }, _) => Outcome::Written(revision),
        (Action::Delete(Some(expected)), Some(now)) if expected != now => Outcome::Differs,
        (Action::Delete(_), _) => Outcome::Deleted,
    }
}

/// Returns every read that can be made to find a value which another one had replaced before the read began: with that value.
fn stale_reads(history: &[Operation]) -> Vec<(usize, Version)> {
    // Values that are written once: others may be there again.
    let is_unique =
        |value: u64| history.iter().filter(|operation| operation.action.written() == Some(value)).count() == 1;
    let writes: Vec<_> = history
        .iter()
        .filter_map(|operation| match operation.outcome {
            Outcome::Written(revision) => Some((operation, Version { value: operation.action.written()?, revision })),
            _ => None,
        })
        .filter(|(_, version)| is_unique(version.value))
        .collect();
    let mut stale = Vec::new();
    for (number, read) in history.iter().enumerate().filter(|(_, read)| matches!(read.outcome, Outcome::Found(_))) {
        let is_replaced =
            |old: &Operation| writes.iter().any(|(new, _)| old.returned < new.invoked && new.returned < read.invoked);
        stale.extend(writes.iter().filter(|(old, _)| is_replaced(old)).map(|(_, version)| (number, *version)));
    }
    stale
}

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    // Up to five operations overlap, and some last long.
    let before = prop_oneof![9 => 0..2_500u64, 1 => 0..30_000u64];
    let after = prop_oneof![9 => 0..2_500u64, 1 => 0..30_000u64];
    prop::collection::vec((any::<u8>(), before, after, any::<u8>()), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_history_of_a_real_register_is_linearizable(drawn in drawn()) {
        let history = real(&drawn);
        prop_assert_eq!(check(&history), Ok(()), "{:#?}", history);
    }

    #[test]
    fn a_read_of_what_was_replaced_is_found(drawn in drawn(), pick in any::<prop::sample::Index>()) {
        let mut history = real(&drawn);
        let stale = stale_reads(&history);
        prop_assume!(!stale.is_empty());
        let (number, version) = stale[pick.index(stale.len())];
        history[number].outcome = Outcome::Found(Some(version));
        let result = check(&history);
        prop_assert!(matches!(result, Err(Violation::NotLinearizable { .. })), "{number} {result:?} {history:#?}");
    }
}
