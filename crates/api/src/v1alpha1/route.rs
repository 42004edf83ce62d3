//! A Route: the wish for a name that leads to an application.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Condition of a Route: a Router was chosen for it.
pub const SCHEDULED: &str = "Scheduled";
/// Reason of the condition [`SCHEDULED`] of a Route whose Router does not exist any more, or has another zone.
pub const ROUTER_GONE: &str = "RouterGone";
/// Condition of a Route: its host may be used by it.
pub const ADMITTED: &str = "Admitted";
/// Condition of a Route: its names are in a published zone.
pub const PUBLISHED: &str = "Published";
/// Condition of a Route: every listed name server was asked for its name and answered right.
pub const RESOLVABLE: &str = "Resolvable";

/// Condition of a Route whose Router has instances that report: each of them that is live serves it.
pub const PROGRAMMED: &str = "Programmed";
/// Condition of a Route: a request to its name reaches its application. It is [`RESOLVABLE`] and, if its Router has instances that
/// report, [`PROGRAMMED`].
pub const READY: &str = "Ready";

/// Condition of a Route: it is to move to another Router and has not yet. `False` once it has.
pub const MOVE_PENDING: &str = "MovePending";

/// Condition of a Route that has moved: a Router that it has left has records of its own where the Route's former name was, so
/// that this does not lead to the Route.
pub const FORMER_NAME_BLOCKED: &str = "FormerNameBlocked";

/// Annotation of a Route: the Router that it is to move to. It is gone when the Route is there.
pub const MOVE_ANNOTATION: &str = "signpost.dev/move-to";
/// What stands in place of a strategy on a binding whose Router was named by [`MOVE_ANNOTATION`].
pub const MOVE: &str = "move";

/// Condition of a Route with a host of its own: the host's DNS has the record that was asked for. It is there if the platform
/// wants hosts to be verified.
pub const HOST_VERIFIED: &str = "HostVerified";

/// Condition of a Route with a host of its own: the resolvers that are asked find that the host leads to the Route. `Unknown` where
/// none is asked, or none answers.
pub const HOST_POINTS_HERE: &str = "HostPointsHere";

/// Annotation of a Namespace: how many of its Routes may have a Router at a time, as a whole number. Without it, any number.
pub const QUOTA_ANNOTATION: &str = "signpost.dev/route-quota";

/// A Route asks for a DNS name that leads, through one of the platform's Routers, to an application. The scheduler places
/// it on a Router; `status` says under which name it is reached.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "signpost.dev",
    version = "v1alpha1",
    kind = "Route",
    plural = "routes",
    singular = "route",
    shortname = "rt",
    category = "signpost",
    namespaced,
    status = "RouteStatus",
    doc = "A Route asks for a DNS name that leads, through one of the platform's Routers, to an application. All fields of its spec may be left out: an empty spec asks for a name that the platform makes of namespace and name."
)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    /// A name of your own, such as `www.example.com` or `*.example.com`, without a dot at the end. It is used as it is and
    /// never changed by the platform; `status` says what to put into its DNS. Empty: the platform gives a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub host: Option<String>,
    /// The label to use in the platform's name instead of `<namespace>-<name>`; one DNS label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub subdomain: Option<String>,
    /// Path prefix that the router matches, such as `/shop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// What the router sends the traffic to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Target>,
    /// Further targets, at most three, each with its weight. A request goes to one of `to` and these, by their weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "kind"]))]
    pub alternate_backends: Vec<Target>,
    /// The target's port. Absent: every port of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<RoutePort>,
    /// How the router ends TLS. Absent: the Route serves plain HTTP only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// What the router sends the traffic to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The target's kind, `Service` as a rule.
    #[serde(default = "default_target_kind")]
    #[schemars(length(max = 253))]
    pub kind: String,
    /// The target's name in the Route's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The target's part of the sum of all weights is its share of the traffic; 0 to 256, absent: 100. 0 gets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 256))]
    pub weight: Option<u32>,
}

/// The weight of a target that has none.
pub const WEIGHT_DEFAULT: u32 = 100;

fn default_target_kind() -> String {
    "Service".to_owned()
}

/// The port of a Route's target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoutePort {
    /// Port of the target's endpoints: its number, or its name in the Service.
    #[schemars(extend("maxLength" = 63))]
    pub target_port: k8s_openapi::apimachinery::pkg::util::intstr::IntOrString,
}

/// How the router ends TLS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Where TLS ends: at the router (`edge`), at the application (`passthrough`), or at both (`reencrypt`).
    pub termination: Termination,
    /// Name of the Secret with the certificate; absent: the router's default certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub secret_name: Option<String>,
    /// How plain HTTP requests are answered: not at all (`None`, also if absent), as HTTPS ones (`Allow`), or with a redirect to
    /// HTTPS (`Redirect`). With `passthrough` it cannot be `Allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_edge_termination_policy: Option<InsecurePolicy>,
}

/// Where TLS ends.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Termination {
    Edge,
    Passthrough,
    Reencrypt,
}

/// How plain HTTP requests for a Route with TLS are answered; the values are those of OpenShift's Route.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InsecurePolicy {
    None,
    Allow,
    Redirect,
}

/// Where a Route stands. Only a RouteBinding changes `phase`, `dns`, `router`, `canonicalName`, `names` and `formerNames`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteStatus {
    /// `new` until a Router was chosen, then `scheduled`.
    #[serde(default)]
    pub phase: Phase,
    /// The final DNS name: `spec.host` where that is given, else the platform's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub dns: Option<String>,
    /// The Router that serves the Route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub router: Option<String>,
    /// The stable name to point a CNAME of your own at; it stays the same when the Route moves to another Router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub canonical_name: Option<String>,
    /// Every name by which the Route is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub names: Vec<AssignedName>,
    /// Names that the Route had before it was moved to another Router. Each still leads to it, as a CNAME, until the time it
    /// says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub former_names: Vec<FormerName>,
    /// What to put into the host's DNS, to prove that it is yours; if the platform wants that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<Challenge>,
    /// The `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is true of the Route at the moment: `Scheduled`, `Admitted`, `HostVerified`, `Published`, `Resolvable`, `MovePending`,
    /// `FormerNameBlocked`, `SelectorMismatch`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The record that proves that a host belongs to whoever wants it for a Route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Challenge {
    /// The name of the TXT record to create, without a dot at the end.
    #[schemars(length(max = 273))]
    pub name: String,
    /// Its text.
    #[schemars(length(max = 255))]
    pub value: String,
    /// The whole record in zone-file syntax.
    #[schemars(length(max = 1024))]
    pub record: String,
    /// Until when the host counts as verified, should the record be found no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_until: Option<Time>,
}

/// Whether a Route has a Router.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    #[default]
    New,
    Scheduled,
}

/// A name by which a Route is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignedName {
    /// The DNS name, without a dot at the end.
    #[schemars(length(max = 253))]
    pub name: String,
    /// What kind of name it is.
    #[serde(rename = "type")]
    pub kind: NameKind,
    /// For a custom name: the record to create in its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub record: Option<String>,
}

/// A name that a Route had on a Router that it has left: in the zone of that Router it is a CNAME of the Route's name of now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormerName {
    /// The former DNS name, without a dot at the end.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The Router that the Route was on.
    #[schemars(length(max = 253))]
    pub router: String,
    /// When the Route left it.
    pub since: Time,
    /// When the name begins to lead on, where it does not yet: the Route has come back to a Router that it had left, and
    /// resolvers may still hold that its name there leads here. Until then the name is answered as any other of that Router,
    /// and the other former names lead to it. The scheduler takes this away when it is time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,
    /// Until when the former name leads to the Route.
    pub until: Time,
}

/// Most former names of a Route. Whoever moves more often within the time that a former name lasts loses the oldest.
pub const FORMER_NAMES_MAX: usize = 16;

/// What kind of name a Route is reached by: the platform's name on its shard (`system`), the stable alias (`alias`), or
/// the user's own (`custom`).
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NameKind {
    System,
    Alias,
    Custom,
}
