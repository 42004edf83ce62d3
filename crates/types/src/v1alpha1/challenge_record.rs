//! The ChallengeRecord kind: a TXT record that proves the control of a name to a certification authority.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names;

/// The maximum number of values of a name.
pub const VALUES_MAX: usize = 10;
/// The longest time from the creation of a ChallengeRecord to its expiry, in hours.
pub const EXPIRY_HOURS_MAX: i64 = 24;

/// A ChallengeRecord is one value of a TXT record at `_acme-challenge` below a name of its namespace's Routes. The name servers of the
/// platform serve it from its creation to its deletion. It is deleted when it expires.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "signpost.dev",
    version = "v1alpha1",
    kind = "ChallengeRecord",
    plural = "challengerecords",
    singular = "challengerecord",
    shortname = "chal",
    category = "signpost",
    namespaced,
    doc = "A ChallengeRecord is a TXT record that proves the control of a name to a certification authority (RFC 8555)."
)]
#[serde(rename_all = "camelCase")]
pub struct ChallengeRecordSpec {
    /// The name of the TXT record, in lower case and without a trailing dot: `_acme-challenge.` and a name of a Route of this namespace, or
    /// the label of such a Route and `.acme.` and the platform's domain. In the platform's namespace, also `_acme-challenge.` and the zone
    /// of a Router.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The text of the record: one string of printable ASCII characters.
    #[schemars(length(min = 1, max = 255))]
    pub value: String,
    /// The name of the TSIG key with which a client added the record. Absent: the platform added it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
    /// The time at which the record is deleted, at most 24 hours after its creation.
    pub expires_at: Time,
}

impl ChallengeRecordSpec {
    /// Returns the `metadata.name` of the record: there is one object for each name, value, and key.
    pub fn object_name(&self) -> String {
        names::challenge_record_name([&self.name, &self.value, self.key.as_deref().unwrap_or_default()])
    }
}
