//! A NameClaim: an entry of the ledger of names.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Label of every claim, so that claims on hosts can be watched without the many on labels.
pub const CLAIM_LABEL: &str = "signpost.dev/claim";
/// Its value for claims on custom hosts.
pub const CLAIM_LABEL_HOST: &str = "host";
/// Its value for claims on labels.
pub const CLAIM_LABEL_LABEL: &str = "label";

/// A NameClaim says who holds a name: a label of the platform's names, or a custom host. A label's claim has the label as
/// its name; a host's claim has the name `host.<hash of the host>`.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "signpost.dev",
    version = "v1alpha1",
    kind = "NameClaim",
    plural = "nameclaims",
    singular = "nameclaim",
    shortname = "nc",
    category = "signpost",
    doc = "A NameClaim says who holds a name: a label of the platform's names, or a custom host."
)]
#[serde(rename_all = "camelCase")]
pub struct NameClaimSpec {
    /// What is claimed: a `label` of the platform's names, or a whole `host`.
    #[serde(rename = "type")]
    pub kind: ClaimKind,
    /// The label or the host.
    #[schemars(length(min = 1, max = 253))]
    pub value: String,
    /// The Route that holds the name, or held it last.
    pub holder: Holder,
    /// Since when the holder has it.
    pub since: Time,
    /// When the holder let it go; absent while it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Time>,
    /// Until when only a Route of the same namespace and name can have it again; absent while it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine_until: Option<Time>,
}

/// What a claim is on.
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
    /// Namespace of the Route.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name of the Route.
    #[schemars(length(max = 253))]
    pub name: String,
    /// `metadata.uid` of the Route.
    #[schemars(length(max = 128))]
    pub uid: String,
}
