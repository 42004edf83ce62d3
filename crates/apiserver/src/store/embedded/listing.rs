//! A page of a list under construction: the versions of keys, merged with the heads, which list the existing keys.

use std::cmp::Ordering;
use std::iter::Peekable;

use super::damage::Damaged;
use super::seal::{self, Version as Stored};
use crate::store::{Error, Key, KeyValue, Page, Result, Revision};

/// A page in the making.
pub(super) struct Listing<'a> {
    pub(super) page: Page,
    pub(super) limit: usize,
    pub(super) at: u64,
    /// The keys that exist now, from the start of the list on.
    pub(super) heads: Peekable<redb::Range<'a, &'static str, (u64, u64)>>,
    pub(super) prefix: &'a str,
    /// The order of the heads.
    pub(super) order: Order,
}

impl Listing<'_> {
    /// Adds what is the newest version of its key, unless that is a deletion. Returns whether the page can take more.
    pub(super) fn push(&mut self, (key, revision): (&str, u64), version: &[u8]) -> Result<bool> {
        let modified = self.heads_before(Some(key))?;
        let found = match seal::version(key, revision, version) {
            // A newer version was lost.
            Stored::Value { .. } | Stored::Deletion if modified.is_some_and(|modified| modified > revision) => {
                Stored::Damaged
            }
            Stored::Deletion if modified.is_some() => Stored::Damaged,
            found => found,
        };
        match found {
            Stored::Deletion => {}
            Stored::Damaged => self.damaged(key, modified.unwrap_or(revision)),
            Stored::Value { .. } if self.page.items.len() == self.limit => {
                self.page.more = true;
                // Damaged keys after the last value are on the next page.
                let last = self.page.items.last().map(|item| item.key.clone());
                self.page.damaged.retain(|damaged| last.as_ref().is_some_and(|last| damaged.key < *last));
                return Ok(false);
            }
            Stored::Value { created, value } => self.page.items.push(KeyValue::of(key, revision, created, value)),
        }
        Ok(true)
    }

    /// Reports the heads before `key` (or all remaining ones), which have no version. Returns the revision of the head of `key`,
    /// if it has one that was written up to the page's revision.
    pub(super) fn heads_before(&mut self, key: Option<&str>) -> Result<Option<u64>> {
        loop {
            let Some(head) = self.heads.peek() else { return Ok(None) };
            let Ok((name, head)) = head else {
                return Err(Error::Corrupt("failed to read the keys".to_owned()));
            };
            let (name, (_, modified)) = (name.value().to_owned(), head.value());
            let order = key.map_or(Ordering::Less, |key| name.as_str().cmp(key));
            if order == Ordering::Greater || !name.starts_with(self.prefix) {
                return Ok(None);
            }
            self.order.check(&name, 0)?;
            self.heads.next();
            let is_written = modified <= self.at;
            match order {
                Ordering::Equal => return Ok(is_written.then_some(modified)),
                _ if is_written => self.damaged(&name, modified),
                _ => {}
            }
        }
    }

    fn damaged(&mut self, key: &str, modified: u64) {
        self.page.damaged.push(Damaged { key: Key(key.into()), modified: Revision(modified) });
    }
}

/// The order of entries, checked as they come: damaged pages could otherwise be walked in a circle.
#[derive(Default)]
pub(super) struct Order {
    last: Option<(Box<str>, u64)>,
}

impl Order {
    pub(super) fn check(&mut self, key: &str, number: u64) -> Result<()> {
        match &mut self.last {
            Some((last, before)) if **last == *key && *before < number => *before = number,
            Some((last, _)) if **last >= *key => {
                return Err(Error::Corrupt(format!("the entries of {key} are not in order")));
            }
            last => *last = Some((key.into(), number)),
        }
        Ok(())
    }
}
