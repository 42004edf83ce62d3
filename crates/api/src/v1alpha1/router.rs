//! A Router: one shard of the platform's routers.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Condition of a Router: it can take and serve routes.
pub const READY: &str = "Ready";
/// The reason of conditions where no address of a Router is active: its names lead nowhere, which is an outage.
pub const NO_ACTIVE_ADDRESS: &str = "NoActiveAddress";
/// Condition of a Router: all of its spec is used; if not, the message says what its zone is served without.
pub const ACCEPTED: &str = "Accepted";
/// Condition of a Router with a health check: all its active addresses are healthy.
pub const ADDRESSES_HEALTHY: &str = "AddressesHealthy";
/// Condition of a Router whose state is `draining`: no route is left on it and no former name leads through its zone, so that
/// it can be deleted.
pub const DRAINED: &str = "Drained";
/// Condition of a Router with instances: as many of them serve as `spec.instances` asks for.
pub const INSTANCES_READY: &str = "InstancesReady";
/// Condition of a Router: its zone is published on the name servers.
pub const ZONE_PUBLISHED: &str = "ZonePublished";

/// How to delete a Router that has routes: this annotation on it with exactly the number of routes bound to it. A DELETE
/// whose query or body says `forceDeleteRoutes=<number>` does the same.
pub const FORCE_DELETE_ANNOTATION: &str = "signpost.dev/force-delete-routes";
/// The option of the DELETE request that does as the annotation.
pub const FORCE_DELETE_OPTION: &str = "forceDeleteRoutes";
/// A Router is one shard: a group of HTTP routers that serve the same routes behind one wildcard DNS name. Routes are
/// placed on it by the scheduler, and its zone answers every name below `spec.dns` with its addresses.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "signpost.dev",
    version = "v1alpha1",
    kind = "Router",
    plural = "routers",
    singular = "router",
    shortname = "rtr",
    category = "signpost",
    status = "RouterStatus",
    doc = "A Router is one shard: a group of HTTP routers that serve the same routes behind one wildcard DNS name."
)]
#[serde(rename_all = "camelCase")]
pub struct RouterSpec {
    /// A note for people; it has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
    /// The shard's zone, such as `shard1.v3.rhcloud.com`, without a dot at the end. Defaults to the Router's name below the
    /// platform domain. It cannot be changed: make a new Router and move the routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub dns: Option<String>,
    /// Which routes may be placed here, by their labels. Empty or absent: any. A route must match this and
    /// `namespaceSelector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_selector: Option<LabelSelector>,
    /// Which routes may be placed here, by the labels of their namespace. Empty or absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    // Fields of the spec itself.
    #[allow(missing_docs, reason = "a description would take the place of the spec's own in the schema")]
    #[serde(flatten)]
    pub instances: Instances,
    /// The addresses of the shard's instances, which the wildcard answers with; at most 128. Beside `addressesFrom` these
    /// are not answered by themselves, but say weight, state and priority of those that come from there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    // A cluster compares each with each by a rule in CEL, and allows a million steps for it.
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ip"]))]
    pub addresses: Vec<Address>,
    /// Where the addresses come from that the wildcard answers with. Absent: from `addresses`; from the instances, if the
    /// platform runs these and `addresses` is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses_from: Option<AddressesFrom>,
    /// How addresses are used together. `active-active` answers with all of them, rotated; `active-passive` with those of
    /// the lowest `priority` number that has an active address, and of which, with a health check, enough are healthy.
    #[serde(default)]
    pub mode: Mode,
    /// Share of new routes under the `weighted` strategy, against the other Routers' weights; 0 to 1000.
    #[serde(default = "default_weight")]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: u32,
    /// How many routes the shard is meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Time to live of the wildcard's addresses, in seconds; 0 to 86400.
    #[serde(default = "default_ttl")]
    #[schemars(range(min = 0, max = 86400))]
    pub ttl: u32,
    /// Whether new routes come here: `active` takes them, `cordoned` keeps its routes and takes no new ones, `draining`
    /// takes none and its routes are moved to other Routers.
    #[serde(default)]
    pub state: RouterState,
    /// Further records of the shard's zone in zone-file syntax, relative to `dns`, such as `@ CAA 0 issue "ca.example"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 8192)), extend("x-kubernetes-list-type" = "atomic"))]
    pub records: Vec<String>,
    /// How the addresses are probed. Those that are found unhealthy are not answered, as long as enough others are healthy.
    /// Absent: none is probed, and all active ones are answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

/// Which instances a shard has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Instances {
    /// Who runs the instances: with `haproxy` and `nginx` the platform keeps `instances` of that proxy running, `external`
    /// ones are run by somebody else.
    #[serde(default, rename = "type")]
    pub kind: RouterKind,
    /// How many instances there are to be, 0 to 128. Absent: 1 if the platform runs them, and any number if not.
    #[serde(default, rename = "instances", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 128))]
    pub count: Option<u32>,
    /// The ports at which instances accept requests. Absent: 80 and 443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Ports>,
}

/// Who runs the instances of a shard.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouterKind {
    #[default]
    External,
    Haproxy,
    Nginx,
}

impl RouterKind {
    /// Its word in JSON and in text; of a proxy also the name of its program.
    pub fn word(self) -> &'static str {
        match self {
            RouterKind::External => "external",
            RouterKind::Haproxy => "haproxy",
            RouterKind::Nginx => "nginx",
        }
    }

    /// Whether the platform runs the instances.
    pub fn is_managed(self) -> bool {
        self != RouterKind::External
    }
}

/// The ports of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ports {
    /// For plain HTTP, 1 to 65535.
    #[serde(default = "default_http")]
    #[schemars(range(min = 1, max = 65535))]
    pub http: u16,
    /// For TLS, 1 to 65535; another one than `http`.
    #[serde(default = "default_https")]
    #[schemars(range(min = 1, max = 65535))]
    pub https: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Ports { http: default_http(), https: default_https() }
    }
}

fn default_http() -> u16 {
    80
}

fn default_https() -> u16 {
    443
}

/// Where a shard's addresses come from: either `instances` or `serviceSelector`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressesFrom {
    /// From the live instances, as their Leases report them. An instance that is killed leaves when its Lease expires, as long
    /// as enough others are live: the panic threshold of `healthCheck` or the configuration counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub instances: bool,
    /// From the Services and EndpointSlices in `namespace` with these labels: the addresses of a Service's load balancer, else
    /// its external IPs, else, unless it is of type LoadBalancer, its ready endpoints; of an EndpointSlice its ready endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_selector: Option<LabelSelector>,
    /// The namespace of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// How the addresses of a shard are probed. The leading controller does it, from where it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// What a probe does: `tcp` opens a connection, `http` and `https` send a GET request.
    #[serde(default, rename = "type")]
    pub kind: CheckKind,
    /// The port that is probed, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Time between the probes of an address, in seconds; each comes up to a tenth earlier, at random. 1 to 3600.
    #[serde(default = "default_interval")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: u32,
    /// How long a probe may take, in seconds; 1 to 60.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1, max = 60))]
    pub timeout_seconds: u32,
    /// Good probes in a row that make an unhealthy address healthy; 1 to 10. Each fall within ten minutes doubles it, up to
    /// eight times as many.
    #[serde(default = "default_rise")]
    #[schemars(range(min = 1, max = 10))]
    pub rise: u32,
    /// Bad probes in a row that make a healthy address unhealthy; 1 to 10.
    #[serde(default = "default_fall")]
    #[schemars(range(min = 1, max = 10))]
    pub fall: u32,
    /// Path and query of the request, for `http` and `https`.
    #[serde(default = "default_path")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// Status codes of a good answer, for `http` and `https`: codes and ranges parted by commas. Redirects are answers, and are
    /// not followed.
    #[serde(default = "default_statuses")]
    #[schemars(length(min = 3, max = 127))]
    pub expected_statuses: String,
    /// The Host header of the request, and for `https` the name that is asked for and that the certificate must be for.
    /// Absent: the address itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub host: Option<String>,
    /// For `https`: takes any certificate, instead of one that the system's authorities vouch for.
    #[serde(default)]
    pub insecure: bool,
    /// How many of a hundred active addresses must be healthy for health to count; with fewer, all are answered. 0 to 100.
    /// Absent: what the configuration says (`health.panic-threshold`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub panic_threshold: Option<u32>,
}

/// What a probe does.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    #[default]
    Tcp,
    Http,
    Https,
}

fn default_interval() -> u32 {
    5
}

fn default_timeout() -> u32 {
    2
}

fn default_rise() -> u32 {
    2
}

fn default_fall() -> u32 {
    3
}

fn default_path() -> String {
    "/".to_owned()
}

fn default_statuses() -> String {
    "200-399".to_owned()
}

fn default_weight() -> u32 {
    1
}

fn default_ttl() -> u32 {
    30
}

/// One instance of a shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    /// IPv4 or IPv6 address, such as `192.0.2.1` or `2001:db8::1`.
    #[schemars(length(min = 2, max = 45))]
    pub ip: String,
    /// How often the address is part of an answer, against the shard's other addresses of its family; 1 to 1000.
    #[serde(default = "default_weight")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: u32,
    /// Whether the address is answered with: `active` is, `drained` is not.
    #[serde(default)]
    pub state: AddressState,
    /// Order of use under mode `active-passive`: the lowest number with an active address is answered; 0 to 100.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub priority: u32,
}

/// Whether an address is answered with.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AddressState {
    #[default]
    Active,
    Drained,
}

/// How the addresses of a shard are used together.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    #[default]
    ActiveActive,
    ActivePassive,
}

/// Whether a shard takes new routes.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouterState {
    #[default]
    Active,
    Cordoned,
    Draining,
}

impl RouterState {
    /// Its word in JSON and in text.
    pub fn word(self) -> &'static str {
        match self {
            RouterState::Active => "active",
            RouterState::Cordoned => "cordoned",
            RouterState::Draining => "draining",
        }
    }
}

/// How many routes a shard is meant for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// Above this many routes, other shards are preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<u32>,
    /// At this many routes, no more are placed here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard: Option<u32>,
}

impl Address {
    /// One that is answered like any other.
    pub fn new(ip: IpAddr) -> Self {
        Address { ip: ip.to_string(), weight: default_weight(), state: AddressState::Active, priority: 0 }
    }
}

impl Router {
    /// Where the addresses come from; `None`: `spec.addresses` is all there is.
    pub fn addresses_from(&self) -> Option<&AddressesFrom> {
        static INSTANCES: AddressesFrom = AddressesFrom { instances: true, service_selector: None, namespace: None };
        let spec = &self.spec;
        let is_implied = spec.instances.kind.is_managed() && spec.addresses.is_empty();
        spec.addresses_from.as_ref().or(is_implied.then_some(&INSTANCES))
    }

    /// The addresses in use.
    pub fn addresses(&self) -> &[Address] {
        match self.addresses_from() {
            None => &self.spec.addresses,
            Some(_) => self.status.as_ref().map_or(&[], |status| &status.current_addresses),
        }
    }

    /// The field that has the addresses in use.
    pub fn addresses_field(&self) -> &'static str {
        if self.addresses_from().is_some() { "status.currentAddresses" } else { "spec.addresses" }
    }

    /// The ports at which its instances accept requests.
    pub fn ports(&self) -> Ports {
        self.spec.instances.ports.unwrap_or_default()
    }

    /// Whether its instances report what they serve.
    pub fn has_instances(&self) -> bool {
        let reports = self.status.as_ref().is_some_and(|status| !status.instances.is_empty());
        reports || self.spec.instances.kind.is_managed() || self.addresses_from().is_some_and(|from| from.instances)
    }

    /// Whether clients find an instance by its address: always, if the addresses do not come from instances.
    pub fn includes_instance(&self, address: IpAddr) -> bool {
        let is_from_instances = self.addresses_from().is_some_and(|from| from.instances);
        !is_from_instances || self.addresses().iter().any(|one| one.ip.parse() == Ok(address))
    }

    /// How many instances there are to be; `None`: any number.
    pub fn instances_wanted(&self) -> Option<u32> {
        self.spec.instances.count.or(self.spec.instances.kind.is_managed().then_some(1))
    }
}

impl RouterStatus {
    /// Whether the condition [`ZONE_PUBLISHED`] says that a name server answers, and not with the Router's zone as it is. One that
    /// does not answer, or that the deletion hold keeps at what was, may well serve the zone.
    pub fn is_zone_unserved(&self) -> bool {
        let unserved = ["NotAuthoritative", "ErrorAnswer", "WrongAnswer", "OldSerial"];
        let zone = self.conditions.iter().find(|condition| condition.type_ == ZONE_PUBLISHED);
        zone.is_some_and(|zone| zone.status == "False" && unserved.contains(&zone.reason.as_str()))
    }
}

/// What the platform says of a Router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterStatus {
    /// The `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is true of the Router at the moment: `Ready`, `Accepted`, `AddressesHealthy`, `InstancesReady`, `ZonePublished`,
    /// `Drained`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// How many routes are bound to the shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<u32>,
    /// SOA serial under which the zone's records of now appeared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<u32>,
    /// How many routes have left the shard whose former names in its zone still lead to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_names: Option<u32>,
    /// Until when the last of these does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_names_until: Option<Time>,
    /// Until when resolvers may hold addresses of the shard for longer than `spec.ttl`, since that was lowered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_horizon: Option<Time>,
    /// The addresses in use, where they do not come from `spec.addresses`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ip"]))]
    pub current_addresses: Vec<Address>,
    /// The instances that have reported, at most 128.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub instances: Vec<Instance>,
    /// How many of them serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_instances: Option<u32>,
    /// What probes found of each address, for a Router with a health check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ip"]))]
    pub addresses: Vec<AddressHealth>,
    /// How many of a hundred active addresses must be healthy for health to count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub panic_threshold: Option<u32>,
}

/// One instance of a shard, as its Lease reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// The name of its Lease, in the namespace `default`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The address at which clients reach it.
    #[schemars(length(min = 2, max = 45))]
    pub ip: String,
    /// The port for plain HTTP.
    pub http_port: u16,
    /// The port for TLS.
    pub https_port: u16,
    /// `serving`; `leaving`: it is about to stop and is not answered any more; `expired`: its Lease was not renewed in time.
    pub state: InstanceState,
    /// The proxy, such as `haproxy`.
    #[schemars(length(max = 63))]
    pub proxy: String,
    /// The version of the agent.
    #[schemars(length(max = 63))]
    pub version: String,
    /// How many Routes it does not, or not wholly, serve.
    #[serde(default)]
    pub faults: u32,
}

/// The state of an instance.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    Serving,
    Leaving,
    Expired,
}

/// What probes found of one address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressHealth {
    /// The address.
    #[schemars(length(min = 2, max = 45))]
    pub ip: String,
    /// `healthy` and `unhealthy` by probes; `unknown` if there was no verdict in time, which counts as healthy.
    pub health: AddressHealthState,
    /// Since when it is so.
    pub since: Time,
    /// What the probe met that made it unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub error: Option<String>,
}

/// A verdict on an address.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AddressHealthState {
    Healthy,
    Unhealthy,
    Unknown,
}
