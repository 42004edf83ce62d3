//! The NameClaim kind: an entry in the registry of names.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The label of every claim. It lets clients watch claims on hosts without the many claims on labels.
pub const CLAIM_LABEL: &str = "signpost.dev/claim";
/// The value of [`CLAIM_LABEL`] for claims on custom hosts.
pub const CLAIM_LABEL_HOST: &str = "host";
/// The value of [`CLAIM_LABEL`] for claims on labels.
pub const CLAIM_LABEL_LABEL: &str = "label";

/// A NameClaim records which Route holds a name: a label of the platform's names, or a custom host. The name of a label's claim
/// is the label. The name of a host's claim is `host.<hash of the host>`.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "signpost.dev",
    version = "v1alpha1",
    kind = "NameClaim",
    plural = "nameclaims",
    singular = "nameclaim",
    shortname = "nc",
    category = "signpost",
    doc = "A NameClaim records the Route that holds a name: a label of the platform's names, or a custom host."
)]
#[serde(rename_all = "camelCase")]
pub struct NameClaimSpec {
    /// The type of the claimed name: a `label` of the platform's names, or a whole `host`.
    #[serde(rename = "type")]
    pub kind: ClaimKind,
    /// The claimed label or host.
    #[schemars(length(min = 1, max = 253))]
    pub value: String,
    /// The Route that holds the name, or that held it last.
    pub holder: Holder,
    /// The time when the holder claimed the name.
    pub since: Time,
    /// The time when the holder released the name. Absent while it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Time>,
    /// The end of the quarantine. Until then, only a Route with the same namespace and name can claim the name. Absent while it
    /// is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine_until: Option<Time>,
}

/// The type of a claimed name.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimKind {
    Label,
    Host,
}

/// The Route that holds a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The namespace of the Route.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The name of the Route.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The `metadata.uid` of the Route.
    #[schemars(length(max = 128))]
    pub uid: String,
}
