//! The RouteBinding kind: the decision that binds a Route to a Router.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::route::{AssignedName, FormerName};

/// The annotation of a binding with the fencing number of the leader that created it. The API server compares it with the
/// schedulers' Lease.
pub const FENCING_ANNOTATION: &str = "signpost.dev/fencing";
/// The field that the API server names when it rejects a fencing number that is not the Lease's.
pub const FENCING_FIELD: &str = "metadata.annotations[signpost.dev/fencing]";

/// The maximum length of the summary of a decision, in octets.
pub const SUMMARY_OCTETS_MAX: usize = 4_096;

/// A RouteBinding binds a Route to a Router. It has the name of its Route. The scheduler creates it; the same transaction sets
/// the phase, names, and Router of the Route. These fields cannot be set in another way.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "signpost.dev",
    version = "v1alpha1",
    kind = "RouteBinding",
    plural = "routebindings",
    singular = "routebinding",
    shortname = "rtb",
    category = "signpost",
    namespaced,
    doc = "A RouteBinding binds a Route to a Router and sets the status of the Route."
)]
#[serde(rename_all = "camelCase")]
pub struct RouteBindingSpec {
    /// The namespace of the Route. It is the namespace of the binding.
    #[schemars(length(max = 63))]
    pub route_namespace: String,
    /// The name of the Route. It is the name of the binding.
    #[schemars(length(max = 253))]
    pub route_name: String,
    /// The `metadata.uid` of the Route that the scheduler read. A Route that was deleted and re-created has another UID.
    #[serde(rename = "routeUID")]
    #[schemars(length(max = 128))]
    pub route_uid: String,
    /// The `metadata.resourceVersion` of the Route that the scheduler read. The API server rejects the binding if the Route has
    /// changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub route_resource_version: Option<String>,
    /// The name of the Router.
    #[schemars(length(max = 253))]
    pub router: String,
    /// The zone of the Router.
    #[schemars(length(max = 253))]
    pub dns: String,
    /// The label claimed for the Route, unique on the platform. It is the first label of the system name and of the alias.
    #[schemars(length(max = 63))]
    pub label: String,
    /// All names assigned to the Route: its system name, its alias, and its custom host.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub names: Vec<AssignedName>,
    /// The names that the Route had on former Routers and that still lead to it; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub former_names: Vec<FormerName>,
    /// The strategy that chose the Router, `move` if the Route's annotation `signpost.dev/move-to` named it, or `adopted` if
    /// `spec.adopted` of the Route named it.
    #[schemars(length(max = 63))]
    pub strategy: String,
    /// The explanation of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
}

impl RouteBindingSpec {
    /// Returns the explanation of the decision in one sentence.
    pub fn summary(&self) -> String {
        match &self.explanation {
            Some(explanation) if !explanation.summary.is_empty() => explanation.summary.clone(),
            _ => format!("the strategy {} chose Router {}", self.strategy, self.router),
        }
    }
}

/// The explanation of a decision: the results for all Routers at the time of the decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// A summary in one sentence.
    #[schemars(length(max = SUMMARY_OCTETS_MAX))]
    pub summary: String,
    /// The time of the last move of the Route. Absent: the Route has been on its Router since the binding was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_at: Option<Time>,
    /// The number of Routers that the scheduler considered.
    pub considered: u32,
    /// The number of Routers that could have taken the Route.
    pub eligible: u32,
    /// The Routers: the chosen one first, then the others by score, then the rejected ones; at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub routers: Vec<RouterVerdict>,
    /// The number of Routers that `routers` omits, for each reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub omitted: Vec<ReasonCount>,
}

/// The number of Routers with the same result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReasonCount {
    /// The reason as one word, as in `routers`. `Eligible`: these Routers rank no higher than the listed ones.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// The number of Routers.
    pub count: u32,
}

/// The result for one Router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterVerdict {
    /// The name of the Router.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Whether the Router could have taken the Route.
    pub eligible: bool,
    /// The reason for the rejection as one word, such as `Cordoned`, `RouteSelectorMismatch`, or `CapacityReached`. Absent if
    /// eligible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub reason: Option<String>,
    /// The reason for the rejection as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The score of the Router by the strategy; higher is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<i64>,
    /// The number of Routes that were bound to the Router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<u32>,
}
