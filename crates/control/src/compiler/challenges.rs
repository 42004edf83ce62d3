//! The proofs for certification authorities: TXT records from ChallengeRecords.
//!
//! ```text
//! _acme-challenge.app-test.shard1.v3.example.   TXT    in the zone of the shard
//! _acme-challenge.app-test.routes.v3.example.   TXT    in the alias zone
//! app-test.acme.v3.example.                     TXT    in the parent zone: custom hosts lead here by a CNAME record
//! ```
//!
//! A certificate lets its owner answer for the name. So a record is served only while a RouteBinding of its namespace has the name, or,
//! for the name of a shard, if it is in the platform's namespace. In the zone of a shard, the names that the record makes exist get copies
//! of the wildcard's records, like those of a Router's further records (see [`super::shard`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::wire_form;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::{Rrset, Ttl};
use signpost_types::names::{ACME_CHALLENGE_LABEL, ACME_LABEL};
use signpost_types::v1alpha1::SCHEDULER_LEASE_NAMESPACE;
use signpost_types::v1alpha1::challenge_record::{ChallengeRecord, VALUES_MAX};

/// The TTL of the records. Clients add the next proof of a name as soon as they have deleted the last one.
const TTL_SECONDS: u32 = 1;

/// A ChallengeRecord, reduced. The last-known-good state on disk contains it in this form: a change of the fields needs another version of its format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChallengeInput {
    pub namespace: Box<str>,
    #[serde(with = "wire_form::name")]
    pub owner: Name,
    pub value: Box<str>,
    /// The creation time, in seconds since 1970. Of more than [`VALUES_MAX`] values, the oldest are served.
    pub created: i64,
    /// The time after which the record is not served, in seconds since 1970.
    pub expires: i64,
}

impl ChallengeInput {
    /// Reads a ChallengeRecord; `None`: its name or value cannot be in a zone.
    pub fn read(record: &ChallengeRecord) -> Option<Self> {
        let spec = &record.spec;
        let owner: Name = spec.name.to_ascii_lowercase().parse().ok()?;
        let is_text = (1..=255).contains(&spec.value.len());
        let created = record.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        is_text.then(|| ChallengeInput {
            namespace: record.metadata.namespace.as_deref().unwrap_or_default().into(),
            owner,
            value: spec.value.as_str().into(),
            created,
            expires: spec.expires_at.0.as_second(),
        })
    }

    /// Returns whether the record is one of the platform itself.
    pub fn is_of_platform(&self) -> bool {
        *self.namespace == *SCHEDULER_LEASE_NAMESPACE
    }

    /// Returns the name that the record is about, if it begins with `_acme-challenge`.
    pub fn subject(&self) -> Option<Name> {
        let first = self.owner.labels().next()?;
        first.eq_ignore_ascii_case(ACME_CHALLENGE_LABEL.as_bytes()).then(|| self.owner.parent()).flatten()
    }
}

/// Returns whether custom hosts of the Route with the first label of the name lead there, in the parent zone of `domain`.
pub fn is_of_host(owner: &Name, domain: &Name) -> bool {
    let above = owner.parent().filter(|above| above.parent().as_ref() == Some(domain));
    above.is_some_and(|above| {
        above.labels().next().is_some_and(|label| label.eq_ignore_ascii_case(ACME_LABEL.as_bytes()))
    })
}

/// Returns the first label of a name, which may be that of a Route.
pub fn first_label(name: &Name) -> Option<String> {
    String::from_utf8(name.labels().next()?.to_ascii_lowercase()).ok()
}

/// The TXT values of names in one zone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextValues(BTreeMap<Name, BTreeSet<Box<str>>>);

impl TextValues {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a value, unless the name has [`VALUES_MAX`].
    pub fn add(&mut self, owner: &Name, value: &str) {
        let values = self.0.entry(owner.clone()).or_default();
        if values.len() < VALUES_MAX {
            values.insert(value.into());
        }
    }

    /// Replaces the values of a name.
    pub fn set(&mut self, owner: &Name, values: BTreeSet<Box<str>>) {
        match values.is_empty() {
            true => drop(self.0.remove(owner)),
            false => drop(self.0.insert(owner.clone(), values)),
        }
    }

    pub fn of(&self, owner: &Name) -> Option<&BTreeSet<Box<str>>> {
        self.0.get(owner)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Name, &BTreeSet<Box<str>>)> {
        self.0.iter()
    }

    pub fn owners(&self) -> impl Iterator<Item = &Name> {
        self.0.keys()
    }

    pub fn rrsets(&self) -> impl Iterator<Item = (&Name, Rrset)> {
        self.0.iter().map(|(owner, values)| (owner, rrset(values)))
    }
}

/// Returns the TXT records with these values.
pub fn rrset(values: &BTreeSet<Box<str>>) -> Rrset {
    let rdata = values.iter().map(|value| {
        let length = u8::try_from(value.len()).expect("ChallengeInput::read has checked the length");
        [&[length], value.as_bytes()].concat().into_boxed_slice()
    });
    let ttl = Ttl::new(TTL_SECONDS).expect("smaller than a TTL");
    Rrset { rtype: RecordType::TXT, ttl, rdata: rdata.collect() }
}

/// Returns the contribution of a name's values to the digest of its zone.
pub fn digest(owner: &[u8], values: &BTreeSet<Box<str>>) -> Digest {
    values.iter().fold(Digest::default(), |digest, value| digest.plus(Digest::of_text(owner, value.as_bytes())))
}
