//! The routes that nothing can be said of yet: by shard, and in the order of the alias zone's versions that they need.
//!
//! A check proves whatever waits for it, and of the thousands that may wait it looks at none that it says nothing new of.

use std::collections::{BTreeMap, HashMap, HashSet};

use signpost_dns::zone::Serial;

type Labels = HashSet<Box<str>>;

/// Labels of routes, each with its shard and the version of the alias zone in which it appeared.
#[derive(Debug)]
pub(super) struct Waiting {
    by_version: BTreeMap<u64, Labels>,
    by_shard: HashMap<Box<str>, Labels>,
    /// The version of the alias zone up to which each server has shown what waits, if nothing is wrong with it since.
    reached: Box<[Option<u64>]>,
    /// The newest version so far.
    newest: u64,
}

impl Waiting {
    /// Nothing waits for any of so many servers.
    pub(super) fn new(servers: usize) -> Self {
        let (by_version, by_shard) = (BTreeMap::new(), HashMap::new());
        // High enough for what is older than the first.
        Waiting { by_version, by_shard, reached: vec![None; servers].into(), newest: 1 << 32 }
    }

    /// The route of `label` waits.
    pub(super) fn insert(&mut self, label: &str, shard: &str, serial: Serial) {
        let version = self.version(serial);
        self.newest = self.newest.max(version);
        self.by_version.entry(version).or_default().insert(label.into());
        if let Some(labels) = self.by_shard.get_mut(shard) {
            labels.insert(label.into());
        } else {
            self.by_shard.insert(shard.into(), Labels::from([label.into()]));
        }
    }

    /// It waits no more.
    pub(super) fn remove(&mut self, label: &str, shard: &str, serial: Serial) {
        let version = self.version(serial);
        if let Some(labels) = self.by_version.get_mut(&version) {
            labels.remove(label);
            if labels.is_empty() {
                self.by_version.remove(&version);
            }
        }
        if let Some(labels) = self.by_shard.get_mut(shard) {
            labels.remove(label);
            if labels.is_empty() {
                self.by_shard.remove(shard);
            }
        }
    }

    /// Whether the route of `label`, which is of `shard`, waits.
    pub(super) fn contains(&self, label: &str, shard: &str) -> bool {
        self.by_shard.get(shard).is_some_and(|labels| labels.contains(label))
    }

    /// What waits, by the versions of the alias zone.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Box<str>> {
        self.by_version.values().flatten()
    }

    /// What waits of a shard.
    pub(super) fn of_shard(&self, shard: &str) -> impl Iterator<Item = &Box<str>> {
        self.by_shard.get(shard).into_iter().flatten()
    }

    /// The oldest version of the alias zone that something needs.
    pub(super) fn oldest(&self) -> Option<Serial> {
        self.by_version.keys().next().copied().map(serial_of)
    }

    /// Whether something needs a newer version of the alias zone than this.
    pub(super) fn needs_after(&self, serial: Serial) -> bool {
        self.by_version.keys().next_back().is_some_and(|newest| *newest > self.version(serial))
    }

    /// A server has shown the alias zone in this version: what waits that it had not shown before.
    pub(super) fn reach(&mut self, server: usize, serial: Serial) -> impl Iterator<Item = &Box<str>> {
        let version = self.version(serial);
        let before = self.reached[server].replace(version);
        let is_new = move |version: u64| before.is_none_or(|before| version > before);
        let shown = self.by_version.range(..=version).rev();
        shown.take_while(move |(version, _)| is_new(**version)).flat_map(|(_, labels)| labels)
    }

    /// It is in doubt what a server has shown: the next time everything counts again.
    pub(super) fn doubt(&mut self, server: usize) {
        self.reached[server] = None;
    }

    /// A serial without its wrapping around, beside those that were met so far (RFC 1982).
    fn version(&self, serial: Serial) -> u64 {
        // The low half is the serial of the newest.
        let ahead = serial.0.wrapping_sub(self.newest as u32) as i32;
        self.newest.saturating_add_signed(i64::from(ahead))
    }
}

fn serial_of(version: u64) -> Serial {
    Serial(version as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted<'a>(labels: impl Iterator<Item = &'a Box<str>>) -> Vec<&'a str> {
        let mut labels: Vec<&str> = labels.map(|label| &**label).collect();
        labels.sort_unstable();
        labels
    }

    #[test]
    fn each_version_is_shown_once_a_server() {
        for start in [0_u32, 1_700_000_000, 3_000_000_000, u32::MAX - 1] {
            let serial = |ahead: u32| Serial(start.wrapping_add(ahead));
            let mut waiting = Waiting::new(2);
            assert_eq!((waiting.oldest(), waiting.needs_after(serial(0))), (None, false));
            for (label, shard, ahead) in [("a", "s1", 0), ("b", "s2", 2), ("c", "s1", 2), ("d", "s2", 5)] {
                waiting.insert(label, shard, serial(ahead));
            }
            assert_eq!(waiting.oldest(), Some(serial(0)));
            assert_eq!(waiting.iter().count(), 4);
            assert_eq!((waiting.needs_after(serial(4)), waiting.needs_after(serial(5))), (true, false));
            assert_eq!(sorted(waiting.reach(0, serial(1))), ["a"]);
            assert_eq!(sorted(waiting.reach(0, serial(3))), ["b", "c"]);
            assert_eq!(sorted(waiting.reach(0, serial(3))), [""; 0]);
            assert_eq!(sorted(waiting.reach(1, serial(2))), ["a", "b", "c"]);
            // A server that went back shows again what it had lost.
            assert_eq!(sorted(waiting.reach(0, serial(1))), [""; 0]);
            assert_eq!(sorted(waiting.reach(0, serial(2))), ["b", "c"]);
            waiting.doubt(0);
            assert_eq!(sorted(waiting.reach(0, serial(9))), ["a", "b", "c", "d"]);
            assert_eq!(sorted(waiting.of_shard("s1")), ["a", "c"]);
            waiting.remove("a", "s1", serial(0));
            assert!(!waiting.contains("a", "s1") && waiting.contains("c", "s1") && !waiting.contains("c", "s2"));
            assert_eq!(waiting.oldest(), Some(serial(2)));
            for (label, shard, ahead) in [("b", "s2", 2), ("c", "s1", 2), ("d", "s2", 5)] {
                waiting.remove(label, shard, serial(ahead));
            }
            assert!(waiting.by_version.is_empty() && waiting.by_shard.is_empty());
        }
    }
}
