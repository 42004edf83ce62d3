//! The known damage of the file: the values with invalid checksums, and whether the file is readable at all.
//!
//! A damaged value harms only its own object: it is reported here under its key until it is written or deleted. Damage of
//! `redb`'s own pages shows as a panic or as entries that contradict each other; nothing in the file can be trusted then, and
//! the process must end ([`Damage::broken`]).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::store::encrypted::Unreadable;
use crate::store::{Error, Key, Result, Revision};

/// The maximum number of damaged values whose keys are kept in memory; further ones are only counted in the log.
const KEYS_MAX: usize = 10_000;

/// The maximum number of damaged values that the log lists individually.
const LOGGED_MAX: usize = 100;

/// A value that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The key of the value.
    pub key: Key,
    /// The revision that wrote the value, according to the file.
    pub modified: Revision,
}

/// The known damage of a store.
pub struct Damage {
    path: PathBuf,
    keys: Mutex<BTreeMap<Key, Revision>>,
    count: AtomicUsize,
    broken: watch::Sender<Option<String>>,
}

impl Default for Damage {
    fn default() -> Self {
        Self::new(PathBuf::new())
    }
}

impl Damage {
    /// Nothing is known to be damaged in the file at `path`.
    pub fn new(path: PathBuf) -> Self {
        let broken = watch::Sender::new(None);
        Damage { path, keys: Mutex::default(), count: AtomicUsize::new(0), broken }
    }

    /// Remembers a damaged value; returns the number of known ones if it was not known.
    fn remember(&self, Damaged { key, modified }: &Damaged) -> Option<usize> {
        let mut keys = self.keys.lock();
        if keys.contains_key(key) || keys.len() >= KEYS_MAX {
            return None;
        }
        keys.insert(key.clone(), *modified);
        self.count.store(keys.len(), Ordering::Relaxed);
        Some(keys.len())
    }

    /// Remembers a value that cannot be decrypted; the log reports it the first time.
    pub(in crate::store) fn note_unreadable(&self, damaged: &Damaged, why: Unreadable) {
        if self.remember(damaged).is_some_and(|count| count <= LOGGED_MAX) {
            tracing::error!(
                key = %damaged.key.0, revision = damaged.modified.0, %why,
                "a stored value cannot be decrypted: it is not served and does not count as deleted; add its key to \
                 encryption.key and restart, or delete the object"
            );
        }
    }

    /// Remembers a damaged value; the log reports it the first time.
    pub fn note(&self, damaged: &Damaged) {
        let Damaged { key, modified } = damaged;
        let Some(count) = self.remember(damaged) else { return };
        if count <= LOGGED_MAX {
            tracing::error!(
                key = %key.0, revision = modified.0, store = %self.path.display(),
                "a stored value is damaged: it is not served and does not count as deleted; run \"check store\" for \
                 how to restore or drop it"
            );
        } else if count == LOGGED_MAX + 1 {
            tracing::error!(store = %self.path.display(), "more than {LOGGED_MAX} stored values are damaged; \"check store\" lists all");
        }
    }

    /// Forgets a key that was written or deleted.
    pub(in crate::store) fn settle(&self, key: &Key) {
        // Nearly always nothing is damaged.
        if self.count() > 0 {
            let mut keys = self.keys.lock();
            if keys.remove(key).is_some() {
                tracing::info!(key = %key.0, "a damaged value was replaced or deleted");
            }
            self.count.store(keys.len(), Ordering::Relaxed);
        }
    }

    /// Returns the number of values that are known to be damaged.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the first of them by key, at most `max`.
    pub fn first(&self, max: usize) -> Vec<Damaged> {
        let of = |(key, modified): (&Key, &Revision)| Damaged { key: key.clone(), modified: *modified };
        self.keys.lock().iter().take(max).map(of).collect()
    }

    /// Returns whether the file itself cannot be trusted any more.
    pub fn is_broken(&self) -> bool {
        self.broken.borrow().is_some()
    }

    /// Reports that the file itself cannot be trusted, with the finding `why`. Only the first report counts.
    pub(super) fn break_off(&self, why: &str) {
        let reported = format!(
            "{}: the store's file is damaged ({why}); stop the server, run \"check store\", and restore a backup with \
             \"restore\"",
            self.path.display()
        );
        self.broken.send_if_modified(|broken| {
            let is_first = broken.is_none();
            broken.get_or_insert(reported);
            is_first
        });
    }

    /// Waits until the file is found to be damaged as a whole, and returns what to report. The process must end then.
    pub async fn broken(&self) -> String {
        let mut broken = self.broken.subscribe();
        match broken.wait_for(Option::is_some).await.ok().and_then(|why| why.clone()) {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }

    /// Runs a read of the file. A panic, and what contradicts itself, break the store off.
    pub(super) fn guard<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.is_broken() {
            return Err(Error::Unavailable);
        }
        match catch(read) {
            Ok(Err(Error::Corrupt(why))) => {
                self.break_off(&why);
                Err(Error::Corrupt(why))
            }
            Ok(Err(Error::Damaged { key, modified })) => {
                self.note(&Damaged { key: key.clone(), modified });
                Err(Error::Damaged { key, modified })
            }
            Ok(read) => read,
            Err(()) => {
                self.break_off("its pages contradict each other");
                Err(Error::Unavailable)
            }
        }
    }
}

thread_local! {
    /// Whether a panic on this thread is an expected result of reading a damaged file.
    static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs work on a file of `redb`, which trusts its own pages: its documentation states that opening a file that was altered from
/// outside can panic. A panic is an error then. Its message and backtrace are about `redb`, not about what the operator must do, so
/// they are logged at level debug only.
pub(in crate::store) fn catch<T>(work: impl FnOnce() -> T) -> std::result::Result<T, ()> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match IS_EXPECTED.get() {
            true => tracing::debug!(%panic, "redb panicked on a damaged file"),
            false => others(panic),
        }));
    });
    let was_expected = IS_EXPECTED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_EXPECTED.set(was_expected);
    done.map_err(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn values_are_reported_until_they_are_written_and_a_panic_breaks_off() {
        let damage = Damage::new("store".into());
        let damaged = |name: &str| Damaged { key: Key(name.into()), modified: Revision(3) };
        for name in ["/b", "/a", "/b"] {
            damage.note(&damaged(name));
        }
        assert_eq!((damage.count(), damage.first(1)), (2, vec![damaged("/a")]));
        damage.settle(&Key("/a".into()));
        damage.settle(&Key("/c".into()));
        assert_eq!(damage.first(9), [damaged("/b")]);
        assert_eq!(damage.guard(|| Ok(7)).ok(), Some(7));
        assert!(!damage.is_broken());
        let panicked: Result<()> = damage.guard(|| panic!("a page of a B-tree"));
        assert!(matches!(panicked, Err(Error::Unavailable)));
        assert!(damage.guard(|| Ok(7)).is_err(), "nothing more is read");
        let reported = damage.broken().await;
        assert!(reported.starts_with("store: ") && reported.contains("\"check store\""), "{reported}");
    }
}
