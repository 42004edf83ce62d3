//! The numbers of labels in quarantine, and of reserved hosts, for each namespace.
//!
//! A released label is reserved for a Route of the same namespace and name, usually for weeks, and uses space in the store for
//! that time. A user who creates and deletes Routes with new names would fill the store, regardless of the quota of Routes. So a
//! namespace with too many such labels gets no unused label until one of them is free. It keeps its current labels, and a Route
//! whose name is in quarantine gets its label back. Signpost does not end a quarantine early to make room: otherwise such Routes
//! could push a label out of quarantine, and its caches, bookmarks, and certificates would lead to the next user of the label.
//! The hosts of deleted Routes, which are reserved for minutes, are counted in the same way, but separately: each of them is an
//! object, too.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ClaimInfo;
use crate::client::reflector::Change;
use signpost_types::v1alpha1::name_claim::ClaimKind;

/// The field selector of the relevant claims, for a client that needs no others.
pub const SELECTOR: &str = "spec.quarantineUntil!=";

/// The kind of name, label or host, and the namespace of the Routes that held them last.
pub type QuarantineKey = (ClaimKind, Box<str>);

/// The counts of each kind; clones share them. The informer of claims updates them before its readers get a change.
#[derive(Debug, Clone, Default)]
pub struct Quarantined(Arc<Mutex<HashMap<QuarantineKey, u32>>>);

impl Quarantined {
    /// Returns the count of a kind for a namespace.
    pub fn count(&self, kind: ClaimKind, namespace: &str) -> u32 {
        self.0.lock().get(&(kind, namespace.into())).copied().unwrap_or(0)
    }

    /// Returns `most`, if a namespace has that many of a kind.
    pub fn full(&self, kind: ClaimKind, namespace: &str, most: u32) -> Option<u32> {
        (self.count(kind, namespace) >= most).then_some(most)
    }

    pub fn take(&self, change: &Change<ClaimInfo>) {
        let (less, more) = keys(change);
        less.iter().for_each(|key| self.remove(key));
        more.into_iter().for_each(|key| self.add(key));
    }

    pub fn add(&self, key: QuarantineKey) {
        *self.0.lock().entry(key).or_default() += 1;
    }

    pub fn remove(&self, key: &QuarantineKey) {
        let mut counts = self.0.lock();
        if let Some(count) = counts.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(key);
            }
        }
    }
}

/// Returns the quarantined names before and after a change.
fn keys(change: &Change<ClaimInfo>) -> (Vec<QuarantineKey>, Vec<QuarantineKey>) {
    let (applied, gone) = match change {
        Change::Applied(applied) => (std::slice::from_ref(applied), Vec::new()),
        Change::Deleted { last, .. } => (&[][..], vec![last]),
        Change::Relisted(resync) => (&resync.applied[..], resync.vanished.iter().map(|(_, last)| last).collect()),
    };
    let before = applied.iter().filter_map(|applied| applied.before.as_ref()).chain(gone);
    let less = before.filter_map(|claim| key_of(claim)).collect();
    (less, applied.iter().filter_map(|applied| key_of(&applied.now)).collect())
}

fn key_of(claim: &ClaimInfo) -> Option<QuarantineKey> {
    claim.is_quarantined().then(|| (claim.kind, claim.namespace().into()))
}

/// Returns the namespaces with fewer or other names in quarantine, or reserved, after a change.
pub fn freed(change: &Change<ClaimInfo>) -> impl Iterator<Item = QuarantineKey> {
    keys(change).0.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reflector::{Applied, ObjectKey};
    use crate::client::uid::Uid;
    use crate::world::claim::Released;
    use jiff::Timestamp;

    #[test]
    fn a_namespace_that_has_its_share_is_full_until_one_is_free() {
        let labels = Quarantined::default();
        let full = |kind, namespace| labels.full(kind, namespace, 2);
        let claim = |namespace: &str| {
            let released = Released { at: Timestamp::UNIX_EPOCH, quarantine_until: Some(Timestamp::MAX) };
            Arc::new(ClaimInfo {
                kind: ClaimKind::Label,
                value: "a".into(),
                holder: [namespace, "/a"].concat().into(),
                holder_uid: Uid::default(),
                shares: None,
                released: Some(Box::new(released)),
            })
        };
        let set = |label: &str, namespace: &str, before: Option<&str>| {
            let key = ObjectKey::cluster(label);
            labels.take(&Change::Applied(Applied {
                key,
                now: claim(namespace),
                before: before.map(claim),
                recreated: false,
            }));
        };
        let gone = |label: &str, namespace: &str| {
            let change = Change::Deleted { key: ObjectKey::cluster(label), last: claim(namespace) };
            labels.take(&change);
            assert!(freed(&change).eq([(ClaimKind::Label, namespace.into())]));
        };
        set("a", "ns", None);
        assert_eq!(full(ClaimKind::Label, "ns"), None);
        set("b", "ns", None);
        assert_eq!((full(ClaimKind::Label, "ns"), full(ClaimKind::Label, "other")), (Some(2), None));
        set("b", "ns", Some("ns"));
        assert_eq!(labels.count(ClaimKind::Label, "ns"), 2, "it is the same one");
        set("c", "ns", None);
        assert_eq!(full(ClaimKind::Host, "ns"), None, "hosts are counted by themselves");
        gone("a", "ns");
        assert_eq!(full(ClaimKind::Label, "ns"), Some(2), "two are left");
        gone("b", "ns");
        assert_eq!(full(ClaimKind::Label, "ns"), None);
        gone("c", "ns");
        assert!(labels.0.lock().is_empty());
    }
}
