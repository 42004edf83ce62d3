//! The Router kind: one shard of the platform's routers.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::traffic::RouterProxy;

/// The condition of a Router that can accept and serve Routes.
pub const READY: &str = "Ready";
/// The reason of conditions of a Router without an active address: its names resolve to NODATA, which is an outage.
pub const NO_ACTIVE_ADDRESS: &str = "NoActiveAddress";
/// The condition of a Router whose whole spec is in use. If it is false, the message lists the parts that its zone is served
/// without.
pub const ACCEPTED: &str = "Accepted";
/// The condition of a Router with a health check whose active addresses are all healthy.
pub const ADDRESSES_HEALTHY: &str = "AddressesHealthy";
/// The condition of a Router in state `draining` that can be deleted: no Route is bound to it, and no former name leads through
/// its zone.
pub const DRAINED: &str = "Drained";
/// The condition of a Router with instances: at least `spec.instances` of them are serving.
pub const INSTANCES_READY: &str = "InstancesReady";
/// The condition of a Router whose zone is published on the name servers.
pub const ZONE_PUBLISHED: &str = "ZonePublished";

/// The condition of a Router for whose names the platform gets a certificate: there is a valid one for its zone and all names directly
/// below it.
pub const CERTIFICATE_READY: &str = "CertificateReady";

/// The annotation that allows the deletion of a Router with Routes. Its value must be the exact number of bound Routes. A DELETE
/// request with `forceDeleteRoutes=<number>` in its query or body has the same effect.
pub const FORCE_DELETE_ANNOTATION: &str = "signpost.dev/force-delete-routes";
/// The option of the DELETE request with the same effect as the annotation.
pub const FORCE_DELETE_OPTION: &str = "forceDeleteRoutes";
/// A Router is one shard: a group of HTTP routers that serve the same Routes behind one wildcard DNS name. The scheduler binds
/// Routes to it, and its zone answers every name below `spec.dns` with its addresses.
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
    doc = "A Router is one shard: a group of HTTP routers that serve the same Routes behind one wildcard DNS name."
)]
#[serde(rename_all = "camelCase")]
pub struct RouterSpec {
    /// A description. It has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
    /// The zone of the shard, such as `shard1.v3.rhcloud.com`, without a trailing dot. Defaults to the name of the Router below
    /// the platform domain. Immutable: to change it, create a new Router and move the Routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub dns: Option<String>,
    /// The labels of the Routes that can be bound to this Router. Empty or absent: all Routes. A Route must match both this
    /// selector and `namespaceSelector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_selector: Option<LabelSelector>,
    /// The labels of the namespaces whose Routes can be bound to this Router. Empty or absent: all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    // Fields of the spec itself.
    #[allow(missing_docs, reason = "a description would take the place of the spec's own in the schema")]
    #[serde(flatten)]
    pub instances: Instances,
    /// The addresses of the shard's instances, which the wildcard resolves to; at most 128. With `addressesFrom`, they are not in
    /// answers themselves, but set the weight, state, and priority of the addresses from that source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    // A cluster compares every pair of addresses with a CEL rule, and limits its cost to a million steps.
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ip"]))]
    pub addresses: Vec<Address>,
    /// The source of the addresses that the wildcard resolves to. Absent: `addresses`, or the instances if the platform runs them
    /// and `addresses` is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses_from: Option<AddressesFrom>,
    /// The way in which addresses share traffic. `active-active` returns all addresses, rotated. `active-passive` returns those
    /// with the lowest `priority` number that has an active address and, with a health check, enough healthy addresses.
    #[serde(default)]
    pub mode: Mode,
    /// The share of new Routes under the `weighted` strategy, relative to the weights of the other Routers; 0 to 1000.
    #[serde(default = "default_weight")]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: u32,
    /// The number of Routes that the shard is intended for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// The TTL of the wildcard's address records, in seconds; 0 to 86400.
    #[serde(default = "default_ttl")]
    #[schemars(range(min = 0, max = 86400))]
    pub ttl: u32,
    /// The scheduling state. `active`: new Routes can be bound. `cordoned`: existing Routes stay, and no new Routes are bound.
    /// `draining`: no new Routes are bound, and existing Routes move to other Routers.
    #[serde(default)]
    pub state: RouterState,
    /// Additional records of the shard's zone in zone-file syntax, relative to `dns`, such as `@ CAA 0 issue "ca.example"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 8192)), extend("x-kubernetes-list-type" = "atomic"))]
    pub records: Vec<String>,
    /// The health check of the addresses. Unhealthy addresses are not in answers while enough others are healthy. Absent:
    /// addresses are not probed, and all active addresses are in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// The settings of the proxies, and the maxima for `spec.traffic` of Routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<RouterProxy>,
}

/// The instances of a shard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Instances {
    /// The kind of the instances. `haproxy` and `nginx`: the platform keeps `instances` instances of that proxy running.
    /// `external`: another party runs the instances.
    #[serde(default, rename = "type")]
    pub kind: RouterKind,
    /// The desired number of instances, 0 to 128. Absent: 1 if the platform runs them, otherwise any number.
    #[serde(default, rename = "instances", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 128))]
    pub count: Option<u32>,
    /// The ports at which instances accept requests. Absent: 80 and 443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Ports>,
}

/// The kind of a shard's instances.
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
    /// Returns the value in JSON and in text. For a proxy, it is also the name of the program.
    pub fn word(self) -> &'static str {
        match self {
            RouterKind::External => "external",
            RouterKind::Haproxy => "haproxy",
            RouterKind::Nginx => "nginx",
        }
    }

    /// Returns whether the platform runs the instances.
    pub fn is_managed(self) -> bool {
        self != RouterKind::External
    }
}

/// The ports of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ports {
    /// The port for plain HTTP, 1 to 65535.
    #[serde(default = "default_http")]
    #[schemars(range(min = 1, max = 65535))]
    pub http: u16,
    /// The port for TLS, 1 to 65535; must differ from `http`.
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

/// The source of a shard's addresses: either `instances` or `serviceSelector`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressesFrom {
    /// Use the addresses of the live instances, as their Leases report them. When an instance is killed, its address is removed
    /// when its Lease expires, as long as enough other instances are live, by the panic threshold of `healthCheck` or of the
    /// configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub instances: bool,
    /// Use the addresses of the Services and EndpointSlices in `namespace` with these labels. For a Service: the addresses of its
    /// load balancer, or those that its host name resolves to, otherwise its external IPs, otherwise, unless it is of type LoadBalancer, its ready endpoints. For an
    /// EndpointSlice: its ready endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_selector: Option<LabelSelector>,
    /// The namespace of the Services and EndpointSlices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// The health check of a shard's addresses. The leading controller sends the probes from its own host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// The type of a probe: `tcp` opens a connection; `http` and `https` send a GET request.
    #[serde(default, rename = "type")]
    pub kind: CheckKind,
    /// The port to probe, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// The time between probes of an address, in seconds; 1 to 3600. A random jitter shortens it by up to 10 %.
    #[serde(default = "default_interval")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: u32,
    /// The timeout of a probe, in seconds; 1 to 60.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1, max = 60))]
    pub timeout_seconds: u32,
    /// The number of consecutive successful probes that make an unhealthy address healthy; 1 to 10. Each further fall within ten
    /// minutes doubles the number, up to eight times its value.
    #[serde(default = "default_rise")]
    #[schemars(range(min = 1, max = 10))]
    pub rise: u32,
    /// The number of consecutive failed probes that make a healthy address unhealthy; 1 to 10.
    #[serde(default = "default_fall")]
    #[schemars(range(min = 1, max = 10))]
    pub fall: u32,
    /// The path and query of the request, for `http` and `https`.
    #[serde(default = "default_path")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// The status codes of a successful response, for `http` and `https`: codes and ranges, separated by commas. Redirects are
    /// responses; the probe does not follow them.
    #[serde(default = "default_statuses")]
    #[schemars(length(min = 3, max = 127))]
    pub expected_statuses: String,
    /// The Host header of the request. For `https`, it is also the SNI name, and the certificate must be valid for it. Absent:
    /// the address itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub host: Option<String>,
    /// Accept any certificate, for `https`, instead of only those that the system's certificate authorities signed.
    #[serde(default)]
    pub insecure: bool,
    /// The panic threshold: the percentage of active addresses that must be healthy, 0 to 100. Below it, all active addresses are
    /// in answers. Absent: the value of the configuration (`health.panic-threshold`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub panic_threshold: Option<u32>,
}

/// The type of a probe.
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

/// The TTL of a Router without the field, in seconds.
pub fn default_ttl() -> u32 {
    30
}

/// An instance of a shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    /// The IPv4 or IPv6 address, such as `192.0.2.1` or `2001:db8::1`.
    #[schemars(length(min = 2, max = 45))]
    pub ip: String,
    /// The weight of the address: how often it is in an answer, relative to the shard's other addresses of its family; 1 to 1000.
    #[serde(default = "default_weight")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: u32,
    /// The state of the address: `active` addresses are in answers, `drained` addresses are not.
    #[serde(default)]
    pub state: AddressState,
    /// The order of use in mode `active-passive`, 0 to 100: the lowest number with an active address is in use.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub priority: u32,
}

/// The state of an address: whether it is in answers.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AddressState {
    #[default]
    Active,
    Drained,
}

/// The way in which the addresses of a shard share traffic.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    #[default]
    ActiveActive,
    ActivePassive,
}

/// The scheduling state of a shard.
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
    /// Returns the value in JSON and in text.
    pub fn word(self) -> &'static str {
        match self {
            RouterState::Active => "active",
            RouterState::Cordoned => "cordoned",
            RouterState::Draining => "draining",
        }
    }
}

/// The number of Routes that a shard is intended for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// The soft limit: above this number of Routes, the scheduler prefers other shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<u32>,
    /// The hard limit: the maximum number of Routes that the scheduler binds to this Router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard: Option<u32>,
}

impl Address {
    /// Returns an address with the default settings.
    pub fn new(ip: IpAddr) -> Self {
        Address { ip: ip.to_string(), weight: default_weight(), state: AddressState::Active, priority: 0 }
    }
}

impl Router {
    /// Returns the source of the addresses; `None`: `spec.addresses` is the only source.
    pub fn addresses_from(&self) -> Option<&AddressesFrom> {
        static INSTANCES: AddressesFrom = AddressesFrom { instances: true, service_selector: None, namespace: None };
        let spec = &self.spec;
        let is_implied = spec.instances.kind.is_managed() && spec.addresses.is_empty();
        spec.addresses_from.as_ref().or(is_implied.then_some(&INSTANCES))
    }

    /// Returns the addresses in use.
    pub fn addresses(&self) -> &[Address] {
        match self.addresses_from() {
            None => &self.spec.addresses,
            Some(_) => self.status.as_ref().map_or(&[], |status| &status.current_addresses),
        }
    }

    /// Returns the field with the addresses in use.
    pub fn addresses_field(&self) -> &'static str {
        if self.addresses_from().is_some() { "status.currentAddresses" } else { "spec.addresses" }
    }

    /// Returns the ports at which the instances accept requests.
    pub fn ports(&self) -> Ports {
        self.spec.instances.ports.unwrap_or_default()
    }

    /// Returns whether the instances report the Routes that they serve.
    pub fn has_instances(&self) -> bool {
        let reports = self.status.as_ref().is_some_and(|status| !status.instances.is_empty());
        reports || self.spec.instances.kind.is_managed() || self.addresses_from().is_some_and(|from| from.instances)
    }

    /// Returns whether clients can reach an instance at its address. Always true if the addresses do not come from instances.
    pub fn includes_instance(&self, address: IpAddr) -> bool {
        let is_from_instances = self.addresses_from().is_some_and(|from| from.instances);
        !is_from_instances || self.addresses().iter().any(|one| one.ip.parse() == Ok(address))
    }

    /// Returns the state of the instances at an address of `spec.addresses`, the best one of several; `None`: none has reported
    /// there, or the addresses come from elsewhere. `Expired` is also the state of an instance whose Lease no longer exists.
    pub fn listed_instance(&self, address: IpAddr) -> Option<InstanceState> {
        if self.addresses_from().is_some() {
            return None;
        }
        let address = address.to_canonical();
        let is_there = |instance: &&Instance| instance.ip.parse().is_ok_and(|ip: IpAddr| ip.to_canonical() == address);
        let instances = self.status.iter().flat_map(|status| &status.instances);
        instances.filter(is_there).map(|instance| instance.state).min()
    }

    /// Returns the kinds of the proxies that agents configure, each once: that of the Router, or those that instances report.
    pub fn proxies(&self) -> Vec<RouterKind> {
        let kind = self.spec.instances.kind;
        if kind.is_managed() {
            return vec![kind];
        }
        let instances = || self.status.iter().flat_map(|status| &status.instances);
        let is_there = |kind: &RouterKind| instances().any(|instance| instance.proxy == kind.word());
        [RouterKind::Haproxy, RouterKind::Nginx].into_iter().filter(is_there).collect()
    }

    /// Returns the desired number of instances; `None`: any number.
    pub fn instances_wanted(&self) -> Option<u32> {
        self.spec.instances.count.or(self.spec.instances.kind.is_managed().then_some(1))
    }
}

impl RouterStatus {
    /// Returns whether the condition [`ZONE_PUBLISHED`] reports a name server that answers, but without the Router's current
    /// zone. A name server that does not respond, or that a deletion hold keeps at an earlier state, can still serve the zone.
    pub fn is_zone_unserved(&self) -> bool {
        let unserved = ["NotAuthoritative", "ErrorAnswer", "WrongAnswer", "OldSerial", "ZoneWithheld"];
        let zone = self.conditions.iter().find(|condition| condition.type_ == ZONE_PUBLISHED);
        zone.is_some_and(|zone| zone.status == "False" && unserved.contains(&zone.reason.as_str()))
    }
}

/// The status of a Router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterStatus {
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The current conditions of the Router: `Ready`, `Accepted`, `AddressesHealthy`, `InstancesReady`, `ZonePublished`,
    /// `CertificateReady`, `Drained`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The number of Routes bound to the shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<u32>,
    /// The SOA serial at which the zone's current records were first published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<u32>,
    /// The number of Routes that have left the shard and whose former names in its zone still lead to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_names: Option<u32>,
    /// The time until which the last former name leads to its Route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_names_until: Option<Time>,
    /// The time until which resolvers can cache addresses of the shard for longer than `spec.ttl`, because it was lowered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_horizon: Option<Time>,
    /// The addresses in use, if they do not come from `spec.addresses`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ip"]))]
    pub current_addresses: Vec<Address>,
    /// The instances that have reported, at most 128. If `spec.addresses` contains the address of an instance whose Lease no longer
    /// exists, the instance stays here as `expired`, until one reports at that address, or `spec.addresses` drops it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub instances: Vec<Instance>,
    /// The number of instances that serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_instances: Option<u32>,
    /// The probe results of each address, for a Router with a health check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ip"]))]
    pub addresses: Vec<AddressHealth>,
    /// The panic threshold in use: the percentage of active addresses that must be healthy, and not have a dead instance, for that to
    /// count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub panic_threshold: Option<u32>,
    /// The state of the certificates that the platform gets from a certificate authority (ACME). Absent: it gets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acme: Option<AcmeStatus>,
}

/// The certificates that the platform gets for a shard and for custom hosts of its Routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcmeStatus {
    /// The thumbprint of the key of the platform's ACME account (RFC 8555, section 8.1): 43 characters. Instances answer HTTP challenges
    /// for custom hosts with it.
    #[schemars(length(min = 43, max = 43))]
    pub account_thumbprint: String,
}

/// An instance of a shard, as its Lease reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// The name of the Lease of the instance, in the namespace `signpost-machines`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The address at which clients reach the instance.
    #[schemars(length(min = 2, max = 45))]
    pub ip: String,
    /// The port for plain HTTP.
    pub http_port: u16,
    /// The port for TLS.
    pub https_port: u16,
    /// The state: `serving`; `leaving` (about to stop, and no longer in answers); or `expired` (its Lease was not renewed in
    /// time, or no longer exists).
    pub state: InstanceState,
    /// The proxy, such as `haproxy`.
    #[schemars(length(max = 63))]
    pub proxy: String,
    /// The version of the agent.
    #[schemars(length(max = 63))]
    pub version: String,
    /// The number of Routes that the instance does not serve, or serves only in part.
    #[serde(default)]
    pub faults: u32,
    /// The number of endpoints that can get requests, of all Routes together. An endpoint of several Routes counts for each. Absent: the
    /// agent does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<u32>,
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

/// The probe results of one address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressHealth {
    /// The address.
    #[schemars(length(min = 2, max = 45))]
    pub ip: String,
    /// The health by probes: `healthy`, `unhealthy`, or `unknown` (no result in time), which counts as healthy.
    pub health: AddressHealthState,
    /// The time of the last change of `health`.
    pub since: Time,
    /// The error of the probe that made the address unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub error: Option<String>,
}

/// The health of an address.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AddressHealthState {
    Healthy,
    Unhealthy,
    Unknown,
}
