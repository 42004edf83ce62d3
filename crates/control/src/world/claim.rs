//! NameClaims.

use jiff::Timestamp;

use crate::client::reflector::ObjectKey;
use crate::client::uid::Uid;
use signpost_types::paths;
use signpost_types::v1alpha1::name_claim::{ClaimKind, NameClaim, Sharer};

#[derive(Debug, Clone, PartialEq)]
pub struct ClaimInfo {
    /// The kind of the claimed name: label or host.
    pub kind: ClaimKind,
    /// The label or the host, in lower case.
    pub value: Box<str>,
    /// `namespace/name` of the Route that holds it, or held it last; of several, the first one.
    pub holder: Box<str>,
    /// The uid of that Route.
    pub holder_uid: Uid,
    /// The paths of a host: most claims are on labels or whole hosts.
    pub shares: Option<Box<SharedHost>>,
    /// The release, if there was one: most claims are held.
    pub released: Option<Box<Released>>,
}

/// The name, uid and path of a Route that shares a host with another.
pub type SharerInfo = (Box<str>, Uid, Box<str>);

/// The paths of a host with several Routes, or with one that has not all paths.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedHost {
    /// The path of the first holder.
    pub path: Box<str>,
    /// The other Routes.
    pub sharers: Box<[SharerInfo]>,
}

/// A claim that was released.
#[derive(Debug, Clone, PartialEq)]
pub struct Released {
    /// When.
    pub at: Timestamp,
    /// The end of the quarantine.
    pub quarantine_until: Option<Timestamp>,
}

impl ClaimInfo {
    /// Reads a NameClaim.
    pub fn new(claim: &NameClaim) -> Self {
        let spec = &claim.spec;
        let sharer =
            |sharer: &Sharer| (sharer.name.as_str().into(), Uid::from(&*sharer.uid), sharer.path.as_str().into());
        let path = spec.holder.path();
        let has_all = path == paths::ROOT && spec.sharers.is_empty();
        ClaimInfo {
            kind: spec.kind,
            value: spec.value.to_ascii_lowercase().into(),
            holder: [&*spec.holder.namespace, "/", &spec.holder.name].concat().into(),
            holder_uid: Uid::from(&*spec.holder.uid),
            shares: (!has_all).then(|| {
                Box::new(SharedHost { path: path.into(), sharers: spec.sharers.iter().map(sharer).collect() })
            }),
            released: spec.released_at.as_ref().map(|at| {
                let quarantine_until = spec.quarantine_until.as_ref().map(|time| time.0);
                Box::new(Released { at: at.0, quarantine_until })
            }),
        }
    }

    /// Returns whether the claim was released and is reserved for a Route of the same namespace and name. After that, it is
    /// deleted.
    pub fn is_quarantined(&self) -> bool {
        self.quarantine_until().is_some()
    }

    /// Returns whether it is in quarantine at this time.
    pub fn is_reserved(&self, now: Timestamp) -> bool {
        self.quarantine_until().is_some_and(|until| until > now)
    }

    /// Returns the Route that holds the claim, or held it last.
    pub fn holder_key(&self) -> ObjectKey {
        let (namespace, name) = self.holder.split_once('/').unwrap_or_default();
        ObjectKey::namespaced(namespace, name)
    }

    /// Returns the Routes that hold the claim, or held it last, with their uids and paths, the first one first.
    pub fn holders(&self) -> impl Iterator<Item = (ObjectKey, &Uid, &str)> {
        let shares = self.shares.as_deref();
        let first = (self.holder_key(), &self.holder_uid, shares.map_or(paths::ROOT, |shares| &shares.path));
        let others = shares.into_iter().flat_map(|shares| &shares.sharers);
        std::iter::once(first).chain(others.map(|(name, uid, path)| {
            let path: &str = path;
            (ObjectKey::namespaced(self.namespace(), name), uid, path)
        }))
    }

    /// Returns whether the loss of one of its Routes is held.
    pub fn is_kept(&self, keeps: impl Fn(&ObjectKey) -> bool) -> bool {
        self.released.is_none() && self.holders().any(|(key, ..)| keeps(&key))
    }

    /// Returns whether several Routes share the host.
    pub fn is_shared(&self) -> bool {
        self.shares.as_deref().is_some_and(|shares| !shares.sharers.is_empty())
    }

    /// Returns the namespace of that Route.
    pub fn namespace(&self) -> &str {
        self.holder.split_once('/').unwrap_or_default().0
    }

    fn quarantine_until(&self) -> Option<Timestamp> {
        self.released.as_deref().and_then(|released| released.quarantine_until)
    }
}
