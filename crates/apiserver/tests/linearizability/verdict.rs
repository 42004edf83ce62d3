//! The properties of a run: one register for each object, reads that are never older than an observed write, and watches without
//! gaps and duplicates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::checker::{self, Violation};
use crate::clients::{List, Record};
use crate::history::{Action, Operation, Outcome, Version};
use crate::watchers::Event;

/// All that was seen of a run.
pub struct Evidence {
    pub records: Vec<Record>,
    /// The changes that the store keeps, in order.
    pub committed: Vec<Event>,
    /// The events of each watcher.
    pub watched: Vec<Vec<Event>>,
}

/// The first fault that is found, with the history that shows it.
pub fn evaluate(mut evidence: Evidence) -> Result<(), String> {
    for events in &evidence.watched {
        same_events(events, &evidence.committed)?;
    }
    let states = States::new(&evidence.committed);
    let mut histories = BTreeMap::<String, Vec<Operation>>::new();
    let mut lists = Vec::new();
    for record in evidence.records.drain(..) {
        for (key, operations) in record.operations {
            histories.entry(key).or_default().extend(operations);
        }
        lists.extend(record.lists);
    }
    for list in &lists {
        is_snapshot(list, &states)?;
    }
    for (key, history) in &mut histories {
        history.sort_by_key(|operation| operation.invoked);
        let fault = are_committed(key, history, &states)
            .and_then(|()| are_never_older(key, history, &states))
            .and_then(|()| is_linearizable(history));
        fault.map_err(|fault| format!("{key}: {fault}\n{}", text(history)))?;
    }
    Ok(())
}

fn text(history: &[Operation]) -> String {
    history.iter().fold(String::new(), |mut text, operation| {
        let _ = writeln!(text, "{operation}");
        text
    })
}

/// A watcher sees each committed change once, in order.
fn same_events(seen: &[Event], committed: &[Event]) -> Result<(), String> {
    let differ = (0..seen.len().max(committed.len())).find(|place| seen.get(*place) != committed.get(*place));
    let Some(place) = differ else { return Ok(()) };
    let around =
        |events: &[Event]| events[place.saturating_sub(3).min(events.len())..].iter().take(8).cloned().collect();
    let (seen, committed): (Vec<Event>, Vec<Event>) = (around(seen), around(committed));
    Err(format!("a watcher differs from the store at event {place}:\n{seen:#?}\nand the store has\n{committed:#?}"))
}

/// A list shows the state at its revision.
fn is_snapshot(list: &List, states: &States) -> Result<(), String> {
    let expected = states.at(list.revision);
    if list.objects == expected {
        return Ok(());
    }
    Err(format!("the list at {} shows {:?}, and the store had {expected:?}", list.revision, list.objects))
}

/// Checks that acknowledged writes are committed at the revision of the response, and that rejected writes are not.
fn are_committed(key: &str, history: &[Operation], states: &States) -> Result<(), String> {
    let mut written = BTreeMap::<u64, usize>::new();
    for value in history.iter().filter_map(|operation| operation.action.written()) {
        *written.entry(value).or_default() += 1;
    }
    let stored: BTreeSet<u64> = states.versions(key).map(|version| version.value).collect();
    for operation in history {
        let Some(value) = operation.action.written() else { continue };
        match operation.outcome {
            Outcome::Written(revision) => {
                let version = Version { value, revision };
                if !states.versions(key).any(|stored| stored == version) {
                    return Err(format!("acknowledged and not committed: {operation}"));
                }
            }
            Outcome::Unknown => {}
            _ if written[&value] == 1 && stored.contains(&value) => {
                return Err(format!("refused and committed: {operation}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that no read returns a state that ended before a revision of the object that any client had seen when the read began.
fn are_never_older(key: &str, history: &[Operation], states: &States) -> Result<(), String> {
    let mut seen: Vec<(u64, u64)> = history
        .iter()
        .filter_map(|operation| match operation.outcome {
            Outcome::Written(revision) => Some((operation.returned, revision)),
            Outcome::Found(found) => Some((operation.returned, found?.revision)),
            _ => None,
        })
        .collect();
    seen.sort_unstable();
    let mut seen = seen.into_iter().peekable();
    let mut floor = 0;
    for operation in history {
        while let Some((_, revision)) = seen.next_if(|(returned, _)| *returned < operation.invoked) {
            floor = floor.max(revision);
        }
        let Outcome::Found(found) = operation.outcome else { continue };
        let wanted = match operation.action {
            Action::ReadFrom(revision) => revision,
            _ => floor,
        };
        if !states.is_shown_after(key, found, wanted) {
            return Err(format!("older than {wanted}: {operation}"));
        }
    }
    Ok(())
}

fn is_linearizable(history: &[Operation]) -> Result<(), String> {
    checker::check(history).map_err(|violation| match violation {
        Violation::TooLong => "the search for a linearization takes too long".to_owned(),
        Violation::NotLinearizable { longest, stuck } => {
            let last: Vec<_> = longest[longest.len().saturating_sub(12)..].iter().map(|at| history[*at]).collect();
            format!("not linearizable: nothing explains\n{}after\n{}\nof", text(&[history[stuck]]), text(&last))
        }
    })
}

/// The states of all objects, as the store keeps them.
struct States {
    /// The changes of each key: the revision, and the value after it.
    changes: BTreeMap<String, Vec<(u64, Option<u64>)>>,
}

impl States {
    fn new(committed: &[Event]) -> Self {
        let mut changes = BTreeMap::<String, Vec<_>>::new();
        for Event { revision, key, value, .. } in committed {
            changes.entry(key.clone()).or_default().push((*revision, *value));
        }
        States { changes }
    }

    fn changes(&self, key: &str) -> &[(u64, Option<u64>)] {
        self.changes.get(key).map_or(&[], Vec::as_slice)
    }

    fn versions(&self, key: &str) -> impl Iterator<Item = Version> {
        self.changes(key).iter().filter_map(|(revision, value)| Some(Version { value: (*value)?, revision: *revision }))
    }

    /// Returns all objects at a revision.
    fn at(&self, revision: u64) -> BTreeMap<String, Version> {
        let newest = |changes: &[(u64, Option<u64>)]| {
            let (revision, value) = *changes[..changes.partition_point(|(at, _)| *at <= revision)].last()?;
            Some(Version { value: value?, revision })
        };
        self.changes.iter().filter_map(|(key, changes)| Some((key.clone(), newest(changes)?))).collect()
    }

    /// Returns whether the object was as `found` at `revision` or later.
    fn is_shown_after(&self, key: &str, found: Option<Version>, revision: u64) -> bool {
        let changes = self.changes(key);
        let shown = |at: u64, value: Option<u64>| value.map(|value| Version { value, revision: at });
        // The state before the first change, and those from each change until the next one.
        let states = std::iter::once((0, None)).chain(changes.iter().copied());
        let ends = changes.iter().map(|(at, _)| *at).chain([u64::MAX]);
        states.zip(ends).any(|((at, value), end)| end > revision && shown(at, value) == found)
    }
}
