//! Changed aliases that are not known to be in any version of the alias zone yet.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::compiler::Digest;
use crate::compiler::inputs::BindingInput;
use signpost_dns::zone::Serial;

/// The number of waiting changes from which several changes of one alias are merged.
const CHANGES_MAX: usize = 65_536;

/// The changes, oldest first.
pub struct AliasChanges {
    changes: VecDeque<AliasChange>,
    /// The number from which several changes of one alias are merged.
    max: usize,
}

/// An alias that has come, changed, or gone.
pub struct AliasChange {
    /// The alias's label.
    pub label: Box<str>,
    /// The current binding; `None`: it was deleted.
    pub binding: Option<Arc<BindingInput>>,
    /// The zone's digest after that.
    pub after: Digest,
    /// The zone's newest version then. An earlier one may have had the same contents, and does not count: deleting and
    /// re-creating a Route brings the zone back to an earlier state, but not to the earlier version.
    pub since: Option<Serial>,
}

impl Default for AliasChanges {
    fn default() -> Self {
        AliasChanges { changes: VecDeque::new(), max: CHANGES_MAX }
    }
}

impl AliasChanges {
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Adds the newest change.
    pub fn push(&mut self, change: AliasChange) {
        self.changes.push_back(change);
    }

    /// Takes the changes that a version of `versions`, newest first, contains: it contains all changes before its state was
    /// reached.
    pub fn take_held(
        &mut self,
        mut versions: impl Iterator<Item = (Serial, Digest)>,
    ) -> Option<(Serial, impl Iterator<Item = AliasChange>)> {
        let (serial, last) = versions.find_map(|(serial, digest)| {
            let is_held = |change: &AliasChange| {
                let is_since = change.since.is_none_or(|since| serial == since || serial.is_after(since));
                change.after == digest && is_since
            };
            self.changes.iter().rposition(is_held).map(|last| (serial, last))
        })?;
        Some((serial, self.changes.drain(..=last)))
    }

    /// Bounds the waiting changes to the number of aliases plus `CHANGES_MAX`: a change that no intermediate version contains is
    /// in the last one.
    pub fn merge(&mut self) {
        if self.changes.len() < self.max {
            return;
        }
        let Some(AliasChange { after, since, .. }) = self.changes.back() else { return };
        let (after, since) = (*after, *since);
        let last: HashMap<_, _> = self.changes.drain(..).map(|change| (change.label, change.binding)).collect();
        self.changes = last.into_iter().map(|(label, binding)| AliasChange { label, binding, after, since }).collect();
        self.max = self.changes.len() + CHANGES_MAX;
    }
}
