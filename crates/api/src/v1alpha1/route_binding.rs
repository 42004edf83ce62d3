//! A RouteBinding: the decision that puts a Route on a Router.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::route::{AssignedName, FormerName};

/// Annotation of a binding: the fencing number of the leader that made it, which the API compares with the schedulers' Lease.
pub const FENCING_ANNOTATION: &str = "signpost.dev/fencing";
/// The field that a refusal names when that number is not the Lease's.
pub const FENCING_FIELD: &str = "metadata.annotations[signpost.dev/fencing]";

/// The most octets of the sentence that explains a choice.
pub const SUMMARY_OCTETS_MAX: usize = 4_096;

/// A RouteBinding puts a Route on a Router. It has its Route's name. The scheduler creates it, and creating it sets the
/// Route's phase, names and Router in the same transaction; nothing else can.
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
    status = "RouteBindingStatus",
    doc = "A RouteBinding puts a Route on a Router; creating it sets the Route's status."
)]
#[serde(rename_all = "camelCase")]
pub struct RouteBindingSpec {
    /// Namespace of the Route: the binding's own.
    #[schemars(length(max = 63))]
    pub route_namespace: String,
    /// Name of the Route: the binding's own.
    #[schemars(length(max = 253))]
    pub route_name: String,
    /// `metadata.uid` of the Route that was looked at; a Route deleted and made anew has another.
    #[serde(rename = "routeUID")]
    #[schemars(length(max = 128))]
    pub route_uid: String,
    /// `metadata.resourceVersion` of the Route that was looked at. The binding is refused if the Route has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub route_resource_version: Option<String>,
    /// Name of the Router.
    #[schemars(length(max = 253))]
    pub router: String,
    /// The Router's zone.
    #[schemars(length(max = 253))]
    pub dns: String,
    /// The label claimed for the Route, unique on the platform: the first label of its system name and of its alias.
    #[schemars(length(max = 63))]
    pub label: String,
    /// Every name assigned to the Route: its system name, its alias, its custom host.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub names: Vec<AssignedName>,
    /// Names that the Route had on Routers that it has left, and that still lead to it; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub former_names: Vec<FormerName>,
    /// The strategy that chose the Router; `move` if the Route's annotation `signpost.dev/move-to` named it.
    #[schemars(length(max = 63))]
    pub strategy: String,
    /// Why this Router was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
}

impl RouteBindingSpec {
    /// Returns why the Route is on its Router, in one sentence.
    pub fn summary(&self) -> String {
        match &self.explanation {
            Some(explanation) if !explanation.summary.is_empty() => explanation.summary.clone(),
            _ => format!("the strategy {} chose Router {}", self.strategy, self.router),
        }
    }
}

/// What name servers have noticed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteBindingStatus {
    /// Former names that clients have asked for, at most 16. A name that is not here was not asked for since its former name began, as
    /// far as name servers could tell the API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub former_names: Vec<FormerNameUse>,
}

/// That a former name is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormerNameUse {
    /// The former DNS name, as in `spec.formerNames`.
    #[schemars(length(max = 253))]
    pub name: String,
    /// When it was asked for last, as name servers tell now and then.
    pub last_queried_time: Time,
}

/// Why a Router was chosen: the verdicts on all Routers at the time of the decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// One sentence for people.
    #[schemars(length(max = SUMMARY_OCTETS_MAX))]
    pub summary: String,
    /// For a Route that was moved: when it was. One that was not has been on its Router since the binding was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_at: Option<Time>,
    /// How many Routers were looked at.
    pub considered: u32,
    /// How many of them could have taken the Route.
    pub eligible: u32,
    /// The Routers, the chosen one first, then by score, then those that were filtered out; at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub routers: Vec<RouterVerdict>,
    /// The number of Routers that `routers` does not list, for each reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub omitted: Vec<ReasonCount>,
}

/// The number of Routers with the same verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReasonCount {
    /// The reason in one word, as in `routers`; `Eligible`: no better than the Routers that are listed.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// The number of Routers.
    pub count: u32,
}

/// What was found of one Router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterVerdict {
    /// Name of the Router.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Whether it could have taken the Route.
    pub eligible: bool,
    /// If not: the reason in one word, such as `Cordoned`, `RouteSelectorMismatch`, `CapacityReached`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub reason: Option<String>,
    /// The reason in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The strategy's score; higher is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<i64>,
    /// How many routes were bound to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<u32>,
}
