//! Servers that stay at an old version of the alias zone: which aliases they have shown all the same, and which are still to be
//! asked for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use signpost_dns::zone::Serial;

/// Routes among which those are looked for that are asked for: many may be verified of this server and wait for another.
const LOOKED_AT: usize = 1024;

/// See the module. Routes are named by their labels.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// The aliases that such servers have shown, each with the version in which it was seen.
    shown: HashMap<Box<str>, BTreeMap<usize, Serial>>,
    /// Routes that were told that a server has an old version.
    told: BTreeSet<Box<str>>,
    /// The one of them that was looked at last.
    turn: Box<str>,
}

impl Behind {
    /// The server has shown the route's alias in this version.
    pub fn show(&mut self, label: &str, server: usize, found: Serial) {
        self.shown.entry(label.into()).or_default().insert(server, found);
    }

    /// The version in which the server has shown the route's alias.
    pub fn shown(&self, label: &str, server: usize) -> Option<Serial> {
        self.shown.get(label)?.get(&server).copied()
    }

    /// Whether the route was told that a server has an old version.
    pub fn set_told(&mut self, label: &str, is_told: bool) {
        match is_told {
            true => drop(self.told.insert(label.into())),
            false => drop(self.told.remove(label)),
        }
    }

    /// The routes that were told so.
    pub fn told(&self) -> impl Iterator<Item = &Box<str>> {
        self.told.iter()
    }

    /// At most so many of those that were told so, and whose aliases the server has not shown, from the one that was looked at last;
    /// the next time others come first.
    pub fn next_told(&mut self, server: usize, is_wanted: impl Fn(&str) -> bool, most: usize) -> Vec<Box<str>> {
        let after = self.told.range::<str, _>((Bound::Excluded(&*self.turn), Bound::Unbounded));
        let up_to = self.told.range::<str, _>((Bound::Unbounded, Bound::Included(&*self.turn)));
        let mut last = None;
        let looked_at = after.chain(up_to).take(LOOKED_AT).inspect(|label| last = Some((*label).clone()));
        let wanted = looked_at.filter(|label| is_wanted(label) && self.shown(label, server).is_none());
        let wanted = wanted.take(most).cloned().collect();
        if let Some(last) = last {
            self.turn = last;
        }
        wanted
    }

    /// The label is no route's any more.
    pub fn forget(&mut self, label: &str) {
        self.shown.remove(label);
        self.told.remove(label);
    }
}
