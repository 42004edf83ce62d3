//! The Route kind: a request for a DNS name that leads to an application.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::traffic::Traffic;

/// The condition of a Route that the scheduler has bound to a Router.
pub const SCHEDULED: &str = "Scheduled";
/// The reason of the condition [`SCHEDULED`] of a Route whose Router was deleted or has another zone.
pub const ROUTER_GONE: &str = "RouterGone";
/// The condition of a Route that may use its host.
pub const ADMITTED: &str = "Admitted";
/// The condition of a Route whose names are in a published zone.
pub const PUBLISHED: &str = "Published";
/// The condition of a Route whose name every listed name server answers correctly.
pub const RESOLVABLE: &str = "Resolvable";

/// The condition of a Route whose Router has instances that report: each live instance serves the Route.
pub const PROGRAMMED: &str = "Programmed";
/// The condition of a Route whose Router has instances that report: its Services and their ports exist, and endpoints are ready. The name
/// is that of Gateway API.
pub const RESOLVED_REFS: &str = "ResolvedRefs";
/// The condition of a Route that ends TLS at the router, where instances report: each live instance has a valid certificate for the
/// name of the Route.
pub const CERTIFICATE_READY: &str = "CertificateReady";
/// The condition of a Route of which a certificate that instances use expires soon: `True` until the certificate is replaced.
pub const CERTIFICATE_EXPIRING: &str = "CertificateExpiring";
/// The condition of a Route whose requests reach its application. It requires [`RESOLVABLE`] and, if the Router has instances
/// that report, [`PROGRAMMED`], [`RESOLVED_REFS`], and, for a Route that ends TLS at the router, [`CERTIFICATE_READY`].
pub const READY: &str = "Ready";

/// The value in place of a strategy on a binding that follows [`RouteSpec::adopted`].
pub const ADOPTED: &str = "adopted";

/// The condition of a Route with a pending move to another Router. `False` after the move.
pub const MOVE_PENDING: &str = "MovePending";

/// The condition of a moved Route whose former name is blocked: the former Router has its own records at that name, so the name
/// does not lead to the Route.
pub const FORMER_NAME_BLOCKED: &str = "FormerNameBlocked";

/// The condition of a Route with settings in `spec.traffic` or in annotations, not all of which its Router honors. It is present
/// only while it is `False`. [`READY`] does not depend on it.
pub const SETTINGS_HONORED: &str = "SettingsHonored";

/// The condition of a Route whose Router's selectors no longer match it.
pub const SELECTOR_MISMATCH: &str = "SelectorMismatch";

/// The annotation of a Route that names the Router to move to. It is removed when the move is complete.
pub const MOVE_ANNOTATION: &str = "signpost.dev/move-to";
/// The value in place of a strategy on a binding whose Router was named by [`MOVE_ANNOTATION`].
pub const MOVE: &str = "move";

/// The condition of a Route with a custom host whose DNS contains the required record. It is present if the platform verifies
/// hosts.
pub const HOST_VERIFIED: &str = "HostVerified";

/// The condition of a Route with a custom host that leads to the Route according to the configured resolvers. `Unknown` if no
/// resolver is configured, or if none responds.
pub const HOST_POINTS_HERE: &str = "HostPointsHere";
/// The reason of [`HOST_POINTS_HERE`] for a host that points to the alias below a former domain of the platform.
pub const POINTS_TO_FORMER_DOMAIN: &str = "PointsToFormerDomain";
/// The reason of [`HOST_POINTS_HERE`] on a platform that checks no host.
pub const HOST_NOT_CHECKED: &str = "NotChecked";

/// The properties of a condition of a Route. A new one is about a generation of the Route and about its binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteCondition {
    /// The type in the status.
    pub kind: &'static str,
    /// Whether a new generation of the Route does not change it, until its writer decides otherwise.
    pub is_unaffected: bool,
    /// Whether it is about the Router and the names of the binding, so that the next binding removes it.
    pub is_of_binding: bool,
    /// Whether its reason explains the Route if it is not `True`.
    pub is_explaining: bool,
}

impl RouteCondition {
    const fn new(kind: &'static str) -> Self {
        RouteCondition { kind, is_unaffected: false, is_of_binding: true, is_explaining: true }
    }

    const fn unaffected(self) -> Self {
        RouteCondition { is_unaffected: true, ..self }
    }

    /// Keeps it when the Route gets another binding.
    const fn lasting(self) -> Self {
        RouteCondition { is_unaffected: true, is_of_binding: false, ..self }
    }

    const fn not_explaining(self) -> Self {
        RouteCondition { is_explaining: false, ..self }
    }
}

/// The conditions of a Route. The first explaining one that is not `True` explains the Route.
pub static CONDITIONS: [RouteCondition; 15] = [
    RouteCondition::new(ADMITTED).lasting(),
    RouteCondition::new(SCHEDULED).lasting(),
    RouteCondition::new(PUBLISHED),
    RouteCondition::new(RESOLVABLE),
    RouteCondition::new(PROGRAMMED),
    RouteCondition::new(RESOLVED_REFS),
    RouteCondition::new(CERTIFICATE_READY),
    RouteCondition::new(HOST_POINTS_HERE).unaffected(),
    RouteCondition::new(CERTIFICATE_EXPIRING).not_explaining(),
    RouteCondition::new(READY).not_explaining(),
    RouteCondition::new(MOVE_PENDING).lasting().not_explaining(),
    RouteCondition::new(SELECTOR_MISMATCH).lasting().not_explaining(),
    RouteCondition::new(SETTINGS_HONORED).unaffected().not_explaining(),
    RouteCondition::new(FORMER_NAME_BLOCKED).lasting().not_explaining(),
    RouteCondition::new(HOST_VERIFIED).lasting().not_explaining(),
];

/// The annotation of a Namespace that limits how many of its Routes can be bound at a time, as a whole number. Without it, the
/// number is not limited.
pub const QUOTA_ANNOTATION: &str = "signpost.dev/route-quota";

/// A Route requests a DNS name that leads, through one of the platform's Routers, to an application. The scheduler binds the
/// Route to a Router; `status` contains its names.
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
    doc = "A Route requests a DNS name that resolves to one of the platform's Routers, which forwards traffic to an \
           application. All fields of its spec are optional: with an empty spec, the platform derives the name from namespace and name."
)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    /// A custom host, such as `www.example.com` or `*.example.com`, without a trailing dot. The platform uses it unchanged;
    /// `status` contains the record to create in its DNS. Empty: the platform assigns a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub host: Option<String>,
    /// The label in the platform's name, instead of `<namespace>-<name>`; one DNS label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub subdomain: Option<String>,
    /// The path prefix that the router matches, such as `/shop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// The target of the traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Target>,
    /// Additional targets, at most three, each with a weight. The router sends each request to `to` or to one of these, in
    /// proportion to the weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "kind"]))]
    pub alternate_backends: Vec<Target>,
    /// The port of the target. Absent: the first TCP port of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<RoutePort>,
    /// The TLS settings. Absent: the Route serves plain HTTP only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// The settings of the router for the Route's traffic, such as timeouts, limits, and the permitted clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// The admission of `host` by the router of a source, such as a Gateway. The platform's sources set it; it requires the verb
    /// `adopt` on `routes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Adopted>,
}

/// The admission of a Route's host by a router that the platform does not configure. The Route keeps the host unchanged, and its
/// binding follows the admission instead of the scheduler's strategy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Adopted {
    /// The Router that represents the router that admitted the host.
    #[schemars(length(min = 1, max = 253))]
    pub router: String,
    /// The object, and the part of it, that admitted the host, as text: `listener https of Gateway infra/eu`.
    #[schemars(length(min = 1, max = 1024))]
    pub by: String,
}

/// A target of a Route's traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The kind of the target, normally `Service`.
    #[serde(default = "default_target_kind")]
    #[schemars(length(max = 253))]
    pub kind: String,
    /// The name of the target in the Route's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The weight of the target, 0 to 256. Its share of the traffic is its weight divided by the sum of all weights; 0 receives
    /// none. Absent: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 256))]
    pub weight: Option<u32>,
}

/// The default weight of a target.
pub const WEIGHT_DEFAULT: u32 = 100;

fn default_target_kind() -> String {
    "Service".to_owned()
}

/// The port of a Route's target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoutePort {
    /// The port of the target's endpoints: its number, or its name in the Service.
    #[schemars(extend("maxLength" = 63))]
    pub target_port: k8s_openapi::apimachinery::pkg::util::intstr::IntOrString,
}

/// The TLS settings of a Route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// The place where TLS ends: at the router (`edge`), at the application (`passthrough`), or at both (`reencrypt`).
    pub termination: Termination,
    /// The name of the Secret with the certificate. Absent: the default certificate of the router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub secret_name: Option<String>,
    /// The response to plain HTTP requests: `None` (also if absent) rejects them, `Allow` serves them like HTTPS requests, and
    /// `Redirect` redirects them to HTTPS. With `passthrough`, `Allow` is invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_edge_termination_policy: Option<InsecurePolicy>,
}

/// The place where TLS ends.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Termination {
    Edge,
    Passthrough,
    Reencrypt,
}

impl Tls {
    /// Returns whether TLS ends at the router, which then needs a certificate.
    pub fn ends_at_router(&self) -> bool {
        matches!(self.termination, Termination::Edge | Termination::Reencrypt)
    }
}

/// The response to plain HTTP requests for a Route with TLS. The values are those of OpenShift's Route.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InsecurePolicy {
    None,
    Allow,
    Redirect,
}

/// The status of a Route. Only a RouteBinding can change `phase`, `dns`, `router`, `canonicalName`, `names`, and `formerNames`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteStatus {
    /// The phase: `new` until the Route is bound to a Router, then `scheduled`.
    #[serde(default)]
    pub phase: Phase,
    /// The final DNS name: `spec.host` if set, otherwise the platform's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub dns: Option<String>,
    /// The Router that serves the Route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub router: Option<String>,
    /// The stable name to use as the target of a CNAME record. It stays the same when the Route moves to another Router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub canonical_name: Option<String>,
    /// All names of the Route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub names: Vec<AssignedName>,
    /// The names that the Route had before it moved to another Router. Each remains a CNAME for the Route until its `until` time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub former_names: Vec<FormerName>,
    /// The record to create in the host's DNS to verify ownership of the host. Present if the platform verifies hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<Challenge>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The current conditions of the Route: `Scheduled`, `Admitted`, `HostVerified`, `Published`, `Resolvable`, `MovePending`,
    /// `FormerNameBlocked`, `SelectorMismatch`, `SettingsHonored`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The record that verifies ownership of a Route's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Challenge {
    /// The name of the TXT record to create, without a trailing dot.
    #[schemars(length(max = 273))]
    pub name: String,
    /// The text of the TXT record.
    #[schemars(length(max = 255))]
    pub value: String,
    /// The whole record in zone-file syntax.
    #[schemars(length(max = 1024))]
    pub record: String,
    /// The time until which the host counts as verified if the record is no longer found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_until: Option<Time>,
}

/// The phase of a Route: whether it is bound to a Router.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    #[default]
    New,
    Scheduled,
}

/// A name of a Route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignedName {
    /// The DNS name, without a trailing dot.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The type of the name.
    #[serde(rename = "type")]
    pub kind: NameKind,
    /// The record to create in the zone of a custom name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub record: Option<String>,
}

/// A name of a Route on a former Router. In the zone of that Router, it is a CNAME for the Route's current name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormerName {
    /// The former DNS name, without a trailing dot.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The former Router of the Route.
    #[schemars(length(max = 253))]
    pub router: String,
    /// The time when the Route left that Router.
    pub since: Time,
    /// The time when the name becomes a CNAME. Present if the Route has returned to a Router that it left before: resolvers can
    /// still cache the CNAME from that Router to this name. Until this time, the name is answered like any other name of its
    /// Router, and the other former names lead to it. The scheduler removes this field when the time has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,
    /// The time until which the former name leads to the Route.
    pub until: Time,
}

/// The maximum number of former names of a Route. A Route that moves more often within the retention period loses the oldest.
pub const FORMER_NAMES_MAX: usize = 16;

/// The type of a Route's name: the platform's name on its shard (`system`), the stable alias (`alias`), the user's own name
/// (`custom`), or the Route's host in the zone of its shard, as the router of a source admitted it (`adopted`).
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NameKind {
    System,
    Alias,
    Custom,
    Adopted,
}
