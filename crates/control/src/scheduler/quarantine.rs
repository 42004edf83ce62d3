//! How many labels are in quarantine, and how many hosts are reserved, for each namespace, and which have as many as they may.
//!
//! A label that was let go is kept for a Route of the same namespace and name, for weeks as a rule, and takes room in the store
//! for as long. Whoever makes and deletes Routes of ever new names would fill it, whatever the quota of Routes. So a namespace
//! with too many gets no label that nobody had, until one of them is free; what it has it keeps, and a Route of a name that is in
//! quarantine gets its label back. None is freed early to make room: then the very same Routes would wash a label out of its
//! quarantine, and its caches, bookmarks and certificates would lead to whoever asked for it next. The hosts of deleted Routes,
//! which are reserved for minutes, are counted in the same way and by themselves: each of them is an object, too.

use std::collections::HashMap;

use crate::client::reflector::Change;
use crate::world::ClaimInfo;
use signpost_api::v1alpha1::name_claim::ClaimKind;

/// The field selector of the claims in question, for a client that needs no others.
pub const SELECTOR: &str = "spec.quarantineUntil!=";

/// A label in quarantine, or a reserved host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QuarantineKey {
    /// Which of the two.
    pub kind: ClaimKind,
    /// The namespace of the Route that held it last.
    pub namespace: Box<str>,
}

impl QuarantineKey {
    /// Of a claim, if that is in quarantine.
    fn of(claim: &ClaimInfo) -> Option<Self> {
        claim.is_quarantined().then(|| QuarantineKey::new(claim.kind, claim.namespace()))
    }

    /// A name of this kind, which a Route of the namespace held last.
    pub fn new(kind: ClaimKind, namespace: &str) -> Self {
        QuarantineKey { kind, namespace: namespace.into() }
    }
}

/// The labels in quarantine and the reserved hosts, counted.
#[derive(Debug)]
pub struct Quarantined {
    most: u32,
    counts: HashMap<QuarantineKey, u32>,
}

impl Quarantined {
    /// None; a namespace may have `most` of each.
    pub fn new(most: u32) -> Self {
        Quarantined { most, counts: HashMap::new() }
    }

    /// How many of a kind a namespace may have, if it has them.
    pub fn is_full(&self, kind: ClaimKind, namespace: &str) -> Option<u32> {
        self.is_full_of(&QuarantineKey::new(kind, namespace))
    }

    fn is_full_of(&self, facts: &QuarantineKey) -> Option<u32> {
        (self.counts.get(facts).copied().unwrap_or(0) >= self.most).then_some(self.most)
    }

    /// Takes in a change; the answer names the namespaces that may have new names again.
    pub fn take(&mut self, change: &Change<ClaimInfo>) -> Vec<String> {
        let (applied, gone) = match change {
            Change::Applied(applied) => (std::slice::from_ref(applied), Vec::new()),
            Change::Deleted { last, .. } => (&[][..], vec![last]),
            Change::Relisted(resync) => (&resync.applied[..], resync.vanished.iter().map(|(_, last)| last).collect()),
        };
        let before = applied.iter().filter_map(|applied| applied.before.as_ref());
        let mut less: Vec<QuarantineKey> = before.chain(gone).filter_map(|claim| QuarantineKey::of(claim)).collect();
        let were_full: Vec<bool> = less.iter().map(|key| self.is_full_of(key).is_some()).collect();
        less.iter().for_each(|key| self.discount(key));
        applied.iter().filter_map(|applied| QuarantineKey::of(&applied.now)).for_each(|key| self.count(&key));
        let mut were_full = were_full.into_iter();
        less.retain(|facts| were_full.next() == Some(true) && self.is_full_of(facts).is_none());
        let mut roomy: Vec<String> = less.into_iter().map(|facts| facts.namespace.into()).collect();
        roomy.sort_unstable();
        roomy.dedup();
        roomy
    }

    /// One more.
    pub fn count(&mut self, facts: &QuarantineKey) {
        *self.counts.entry(facts.clone()).or_default() += 1;
    }

    /// One less.
    pub fn discount(&mut self, facts: &QuarantineKey) {
        if let Some(count) = self.counts.get_mut(facts) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(facts);
            }
        }
    }
}

/// Why a route gets no label, or not its host, for now: in a word, and in a sentence.
pub fn refusal(kind: ClaimKind, most: u32) -> (&'static str, String) {
    let message = match kind {
        ClaimKind::Label => format!(
            "{most} labels of former routes of the namespace are in quarantine, and no more are allowed (name.quarantine-max): \
             the route gets a label when one of them is free again; a route by the name of one of those gets its label back at \
             once"
        ),
        ClaimKind::Host => format!(
            "{most} hosts of deleted routes of the namespace are reserved, and no more are allowed (name.quarantine-max): the \
             route gets its host when one of them is free again; a route by the name and with the host of one of those gets it \
             back at once"
        ),
    };
    ("NamesInQuarantine", message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::reflector::{Applied, ObjectKey};
    use crate::client::uid::Uid;
    use crate::world::claim::Released;
    use jiff::Timestamp;

    #[test]
    fn a_namespace_that_has_its_share_is_full_until_one_is_free() {
        let mut labels = Quarantined::new(2);
        let facts = |namespace: &str| {
            let released = Released { at: Timestamp::UNIX_EPOCH, quarantine_until: Some(Timestamp::MAX) };
            Arc::new(ClaimInfo {
                kind: ClaimKind::Label,
                value: "a".into(),
                holder: [namespace, "/a"].concat().into(),
                holder_uid: Uid::default(),
                released: Some(Box::new(released)),
            })
        };
        let set = |label: &str, namespace: &str, before: Option<&str>| {
            let key = ObjectKey::cluster(label);
            Change::Applied(Applied { key, now: facts(namespace), before: before.map(facts), recreated: false })
        };
        let gone =
            |label: &str, namespace: &str| Change::Deleted { key: ObjectKey::cluster(label), last: facts(namespace) };
        let none: [&str; 0] = [];
        assert_eq!(labels.take(&set("a", "ns", None)), none);
        assert_eq!(labels.is_full(ClaimKind::Label, "ns"), None);
        assert_eq!(labels.take(&set("b", "ns", None)), none);
        assert_eq!(
            (labels.is_full(ClaimKind::Label, "ns"), labels.is_full(ClaimKind::Label, "other")),
            (Some(2), None)
        );
        assert_eq!(labels.take(&set("b", "ns", Some("ns"))), none, "it is the same one");
        assert_eq!(labels.take(&set("c", "ns", None)), none);
        assert_eq!(labels.is_full(ClaimKind::Host, "ns"), None, "hosts are counted by themselves");
        assert_eq!(labels.take(&gone("a", "ns")), none, "two are left");
        assert_eq!(labels.take(&gone("b", "ns")), ["ns"]);
        assert_eq!(labels.take(&gone("c", "ns")), none, "there was room before");
        assert!(labels.counts.is_empty());
    }
}
