//! NameClaims.

use jiff::Timestamp;

use crate::client::reflector::ObjectKey;
use crate::client::uid::Uid;
use signpost_types::v1alpha1::name_claim::{ClaimKind, NameClaim};

#[derive(Debug, Clone, PartialEq)]
pub struct ClaimInfo {
    /// The kind of the claimed name: label or host.
    pub kind: ClaimKind,
    /// The label or the host, in lower case.
    pub value: Box<str>,
    /// `namespace/name` of the Route that holds it, or held it last.
    pub holder: Box<str>,
    /// The uid of that Route.
    pub holder_uid: Uid,
    /// The release, if there was one: most claims are held.
    pub released: Option<Box<Released>>,
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
        ClaimInfo {
            kind: spec.kind,
            value: spec.value.to_ascii_lowercase().into(),
            holder: [&*spec.holder.namespace, "/", &spec.holder.name].concat().into(),
            holder_uid: Uid::new(&spec.holder.uid),
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

    /// Returns the namespace of that Route.
    pub fn namespace(&self) -> &str {
        self.holder.split_once('/').unwrap_or_default().0
    }

    fn quarantine_until(&self) -> Option<Timestamp> {
        self.released.as_deref().and_then(|released| released.quarantine_until)
    }
}
