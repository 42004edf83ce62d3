//! The NameClaim kind: an entry in the registry of names.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::paths;

/// The label of every claim. It lets clients watch claims on hosts without the many claims on labels.
pub const CLAIM_LABEL: &str = "signpost.dev/claim";
/// The value of [`CLAIM_LABEL`] for claims on custom hosts.
pub const CLAIM_LABEL_HOST: &str = "host";
/// The value of [`CLAIM_LABEL`] for claims on labels.
pub const CLAIM_LABEL_LABEL: &str = "label";
/// The maximum number of Routes that share a host.
pub const HOLDERS_MAX: usize = 200;

/// A NameClaim records which Route holds a name: a label of the platform's names, or a custom host. The name of a label's claim
/// is the label. The name of a host's claim is `host.<hash of the host>`. Routes of one namespace share a host, each with another
/// path: the first one is the holder.
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
    /// The Route that holds the name, or that held it last. Of several Routes with a host, the first one; the others are on its
    /// Router.
    pub holder: Holder,
    /// The other Routes of the holder's namespace that share the host, in the order in which they claimed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 199), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"]))]
    pub sharers: Vec<Sharer>,
    /// The time when the holder claimed the name.
    pub since: Time,
    /// The time when the holder released the name. Absent while it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Time>,
    /// The end of the quarantine. Until then, only a Route with the same namespace and name can claim a label, and only a Route of the
    /// same namespace a host. Absent while the name is held.
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
    /// The path prefix that the Route has on a host. Absent: `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
}

/// A Route that shares a host with the holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sharer {
    /// The name of the Route.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The `metadata.uid` of the Route.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// The path prefix that the Route has on the host.
    #[schemars(length(max = 1024))]
    pub path: String,
}

impl Holder {
    /// Returns the path prefix of the Route.
    pub fn path(&self) -> &str {
        paths::prefix(self.path.as_deref())
    }
}

impl NameClaimSpec {
    /// Returns the Routes that have the name, or had it last, the first one first.
    pub fn holders(&self) -> Vec<Holder> {
        let namespace = &self.holder.namespace;
        let holder = |Sharer { name, uid, path }: &Sharer| Holder {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
            path: Some(path.clone()),
        };
        std::iter::once(self.holder.clone()).chain(self.sharers.iter().map(holder)).collect()
    }

    /// Replaces the Routes that have the name by `first` and others of its namespace.
    pub fn set_holders(&mut self, first: Holder, others: impl IntoIterator<Item = Holder>) {
        let sharer = |holder: Holder| Sharer { path: holder.path().to_owned(), name: holder.name, uid: holder.uid };
        self.sharers = others.into_iter().map(sharer).collect();
        self.holder = first;
    }
}
