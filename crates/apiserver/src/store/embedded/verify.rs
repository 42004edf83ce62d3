//! The check of a whole file: every checksum, and whether the tables agree with each other.
//!
//! A small file is checked before the store is used, a larger one in a background thread. The start does not wait for it, because
//! the API's cache reads, and thus verifies, each newest value anyway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::Shared;
use super::damage::{Damage, Damaged};
use super::seal;
use super::tables::{Reader, unavailable};
use crate::store::{Error, Key, Result};

/// The default of [`super::Options::verified_first_bytes_max`].
pub(super) const FIRST_BYTES_MAX: u64 = 32 << 20;

/// The number of values between two checks that the store is still in use.
const PAGE_VALUES: usize = 1_000;

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// The number of valid values.
    pub values: u64,
    /// The damaged values, by key.
    pub damaged: Vec<Damaged>,
    /// The number of revisions of history that are unreadable. Clients that need them list again; no object depends on them.
    pub lost_history: u64,
}

/// Checks the whole contents of `reader`. Calls `goes_on` from time to time and stops when it returns `false`.
///
/// # Errors
///
/// [`Error::Corrupt`] if the tables contradict each other, so that the file is unusable.
pub(in crate::store) fn verify(reader: &Reader, mut goes_on: impl FnMut() -> bool) -> Result<Verified> {
    let mut found = Verified::default();
    let everything = Key("".into());
    let mut from: Option<Key> = None;
    while goes_on() {
        let page = reader.list(&everything, from.as_ref(), None, Some(PAGE_VALUES))?;
        found.damaged.extend(page.damaged);
        for item in &page.items {
            // A value that a scan of the table returns must also be found from its root.
            match reader.get(&item.key, None) {
                Ok((_, Some(again))) if again.modified == item.modified => {}
                Ok(_) => return Err(Error::Corrupt(format!("{} is not found under its key", item.key.0))),
                Err(error) => return Err(error),
            }
            if reader.heads.get(&*item.key.0).map_err(|error| unavailable(error.into()))?.is_none() {
                found.damaged.push(Damaged { key: item.key.clone(), modified: item.modified });
            } else {
                found.values += 1;
            }
        }
        match page.items.last() {
            Some(last) if page.more => from = Some(Key(format!("{}\0", last.key.0).into())),
            _ => break,
        }
    }
    found.damaged.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    found.lost_history = history(reader, &mut goes_on)?;
    reader.deadlines()?;
    Ok(found)
}

/// Checks that there is an entry for each revision of history; returns the number of unreadable ones.
fn history(reader: &Reader, mut goes_on: impl FnMut() -> bool) -> Result<u64> {
    let fault = |error: redb::StorageError| unavailable(error.into());
    let (mut lost, mut expected) = (0, reader.compacted().0 + 1);
    for entry in reader.log.range(expected..).map_err(fault)? {
        let (revision, stored) = entry.map_err(fault)?;
        if revision.value() != expected {
            return Err(Error::Corrupt(format!("the log has {} in the place of {expected}", revision.value())));
        }
        lost += u64::from(seal::log_entry(expected, stored.value()).is_none());
        expected += 1;
        if expected % 4_096 == 0 && !goes_on() {
            return Ok(lost);
        }
    }
    match expected == reader.newest().0 + 1 {
        true => Ok(lost),
        false => Err(Error::Corrupt(format!("the log ends with {} before the newest revision", expected - 1))),
    }
}

/// Reports the results of a check.
pub(super) fn report(found: &Verified, begun: Instant, damage: &Damage) {
    found.damaged.iter().for_each(|damaged| damage.note(damaged));
    let Verified { values, damaged, lost_history } = found;
    let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(values, damaged = damaged.len(), lost_history, milliseconds, "the store was verified");
}

/// Checks the file of a store, and stops when the store is closed.
pub(super) fn run(shared: &Weak<Shared>, stop: &AtomicBool) {
    let begun = Instant::now();
    let Some((reader, damage)) = shared.upgrade().map(|shared| (shared.reader(), Arc::clone(&shared.damage))) else {
        return;
    };
    let goes_on = || !stop.load(Ordering::Relaxed) && !damage.is_broken();
    match damage.guard(|| verify(&reader?, goes_on)) {
        Ok(_) if stop.load(Ordering::Relaxed) => {}
        Ok(mut found) => {
            // A value that was written or deleted meanwhile is no longer damaged.
            let now = |damaged: &Damaged| shared.upgrade()?.read(|reader| reader.get(&damaged.key, None)).ok();
            let is_settled = |damaged: &Damaged| {
                now(damaged).is_some_and(|(_, now)| now.is_none_or(|now| now.modified > damaged.modified))
            };
            found.damaged.retain(|damaged| !is_settled(damaged));
            report(&found, begun, &damage);
        }
        // The consequence was reported.
        Err(error) => tracing::error!(%error, "the check of the store's file ended early"),
    }
}
