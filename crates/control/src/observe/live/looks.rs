//! What is to be judged, now and later: routes by their labels, and shards for their Routers.

use std::collections::{BTreeSet, HashSet, VecDeque};

use tokio::time::Instant;

use signpost_dns::wire::Name;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Routes, each once, in the order in which they came.
    line: VecDeque<Box<str>>,
    present: HashSet<Box<str>>,
    later: BTreeSet<(Instant, Box<str>)>,
    shards: HashSet<Name>,
}

impl Looks {
    /// The route of `label` is to be judged.
    pub fn push(&mut self, label: &str) {
        if !self.present.contains(label) {
            self.present.insert(label.into());
            self.line.push_back(label.into());
        }
    }

    /// The same, at a later time.
    pub fn push_later(&mut self, label: &str, at: Instant) {
        self.later.insert((at, label.into()));
    }

    /// The next route to be judged.
    pub fn pop(&mut self, now: Instant) -> Option<Box<str>> {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            let (_, label) = self.later.pop_first().expect("it was there");
            self.push(&label);
        }
        let Some(label) = self.line.pop_front() else {
            // After a storm of them the room is given back.
            (self.line, self.present) = Default::default();
            return None;
        };
        self.present.remove(&label);
        Some(label)
    }

    /// The Router of a shard is to be judged.
    pub fn push_shard(&mut self, apex: Name) {
        self.shards.insert(apex);
    }

    /// The next shard whose Router is to be judged.
    pub fn pop_shard(&mut self) -> Option<Name> {
        let apex = self.shards.iter().next()?.clone();
        self.shards.take(&apex)
    }

    /// When the next is to be judged that is not to be now.
    pub fn next_at(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }
}
