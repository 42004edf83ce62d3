//! The objects of a cluster that sources read. Each type has the fields that count, and accepts any others.
//!
//! Kinds that come with the Kubernetes API are those of `k8s-openapi`; Gateway API and OpenShift are described here.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{Selector, SelectorExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Source;

pub type Labels = BTreeMap<String, String>;

/// The group of Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The objects of a kind; `None`: they are unknown.
pub type Listed<K> = Option<Vec<K>>;

/// The objects of a cluster.
#[derive(Debug, Default)]
pub struct Inventory {
    pub namespaces: Listed<Namespace>,
    pub services: Listed<Service>,
    pub endpoint_slices: Listed<EndpointSlice>,
    pub ingress_classes: Listed<IngressClass>,
    pub ingresses: Listed<Ingress>,
    pub gateway_classes: Listed<GatewayClass>,
    pub gateways: Listed<Gateway>,
    pub listener_sets: Listed<ListenerSet>,
    /// The routes of each kind: `HTTPRoute`, `GRPCRoute`, `TLSRoute`.
    pub gateway_routes: BTreeMap<&'static str, Vec<GatewayRoute>>,
    pub ingress_controllers: Listed<IngressController>,
    pub infrastructures: Listed<Infrastructure>,
    pub openshift_routes: Listed<OpenShiftRoute>,
    /// The objects that do not have the shape of their kind, and the kinds that cannot be listed, without a name.
    pub unreadable: Vec<(Source, String)>,
}

/// The group and name of each kind that sources read.
pub const KINDS: [(&str, &str); 14] = [
    ("", "Namespace"),
    ("", "Service"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "Ingress"),
    (GATEWAY_GROUP, "GatewayClass"),
    (GATEWAY_GROUP, "Gateway"),
    (GATEWAY_GROUP, "ListenerSet"),
    (GATEWAY_GROUP, "HTTPRoute"),
    (GATEWAY_GROUP, "GRPCRoute"),
    (GATEWAY_GROUP, "TLSRoute"),
    ("operator.openshift.io", "IngressController"),
    ("config.openshift.io", "Infrastructure"),
    ("route.openshift.io", "Route"),
];

impl Inventory {
    /// Adds all objects of one of [`KINDS`]; another kind changes nothing.
    pub fn add(&mut self, (group, kind): (&str, &str), objects: Vec<Value>) {
        let Some((_, kind)) = KINDS.iter().find(|known| **known == (group, kind)) else { return };
        match *kind {
            "Namespace" => self.namespaces = Some(self.read(kind, objects)),
            "Service" => self.services = Some(self.read(kind, objects)),
            "EndpointSlice" => self.endpoint_slices = Some(self.read(kind, objects)),
            "IngressClass" => self.ingress_classes = Some(self.read(kind, objects)),
            "Ingress" => self.ingresses = Some(self.read(kind, objects)),
            "GatewayClass" => self.gateway_classes = Some(self.read(kind, objects)),
            "Gateway" => self.gateways = Some(self.read(kind, objects)),
            "ListenerSet" => self.listener_sets = Some(self.read(kind, objects)),
            "IngressController" => self.ingress_controllers = Some(self.read(kind, objects)),
            "Infrastructure" => self.infrastructures = Some(self.read(kind, objects)),
            "Route" => self.openshift_routes = Some(self.read(kind, objects)),
            _ => {
                let routes = self.read(kind, objects);
                self.gateway_routes.insert(kind, routes);
            }
        }
    }

    /// Notes that the objects of a kind cannot be listed.
    pub fn add_unknown(&mut self, kind: &'static str, reason: String) {
        self.unreadable.push((Source { kind, namespace: String::new(), name: String::new() }, reason));
    }

    /// Reads the objects of a kind; those of another shape are in `unreadable`.
    fn read<K: DeserializeOwned>(&mut self, kind: &'static str, objects: Vec<Value>) -> Vec<K> {
        let read = |object: Value| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let source = Source { kind, namespace: text("namespace"), name: text("name") };
            match K::deserialize(object) {
                Ok(object) => Some(object),
                Err(error) => {
                    self.unreadable.push((source, error.to_string()));
                    None
                }
            }
        };
        objects.into_iter().filter_map(read).collect()
    }

    pub(super) fn cluster_ips(&self) -> impl Iterator<Item = IpAddr> {
        let specs = self.services.iter().flatten().filter_map(|service| service.spec.as_ref());
        let ips = specs.flat_map(|spec| spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip));
        ips.filter_map(|ip| ip.parse().ok())
    }

    pub(super) fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        let is_it = |service: &&Service| is_named(&service.metadata, namespace, name);
        self.services.iter().flatten().find(is_it)
    }

    /// Returns the labels of a namespace, if they are known.
    pub(super) fn labels(&self, namespace: &str) -> Option<Labels> {
        let is_it = |found: &&Namespace| found.metadata.name.as_deref() == Some(namespace);
        let found = self.namespaces.as_ref()?.iter().find(is_it)?;
        Some(found.metadata.labels.clone().unwrap_or_default())
    }
}

/// Returns whether the metadata have a namespace and a name.
fn is_named(metadata: &ObjectMeta, namespace: &str, name: &str) -> bool {
    metadata.namespace.as_deref() == Some(namespace) && metadata.name.as_deref() == Some(name)
}

/// Returns whether a selector selects labels; `None`: it is invalid.
pub(super) fn selects(selector: &LabelSelector, labels: &Labels) -> Option<bool> {
    Some(Selector::try_from(selector.clone()).ok()?.matches(labels))
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub labels: Labels,
    pub annotations: Labels,
    pub creation_timestamp: Option<Timestamp>,
    pub generation: Option<i64>,
}

impl Meta {
    pub(super) fn of(metadata: &ObjectMeta) -> Meta {
        Meta {
            name: metadata.name.clone().unwrap_or_default(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: metadata.annotations.clone().unwrap_or_default(),
            creation_timestamp: metadata.creation_timestamp.as_ref().map(|time| time.0),
            generation: metadata.generation,
        }
    }
}

/// An object with metadata, a spec and a status.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, bound = "S: Default + DeserializeOwned, T: Default + DeserializeOwned")]
pub struct Object<S, T> {
    pub metadata: Meta,
    pub spec: S,
    pub status: T,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: Option<String>,
    pub message: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Conditions {
    pub conditions: Vec<Condition>,
}

impl Conditions {
    pub(super) fn is_true(&self, kind: &str) -> bool {
        is_true(&self.conditions, kind)
    }
}

pub(super) fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
}

/// A GatewayClass of Gateway API.
pub type GatewayClass = Object<GatewayClassSpec, Conditions>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClassSpec {
    pub controller_name: String,
}

/// A Gateway of Gateway API.
pub type Gateway = Object<GatewaySpec, GatewayStatus>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    pub gateway_class_name: String,
    pub listeners: Vec<Listener>,
    pub allowed_listeners: Option<AllowedRoutes>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayStatus {
    pub conditions: Vec<Condition>,
    pub addresses: Vec<GatewayAddress>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayAddress {
    /// Absent: `IPAddress`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub value: String,
}

/// Listeners for a Gateway in an object of their own.
pub type ListenerSet = Object<ListenerSetSpec, Conditions>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSetSpec {
    pub parent_ref: ParentRef,
    pub listeners: Vec<Listener>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listener {
    pub name: String,
    pub hostname: Option<String>,
    pub port: Option<i64>,
    pub protocol: String,
    pub allowed_routes: Option<AllowedRoutes>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedRoutes {
    pub namespaces: Option<FromNamespaces>,
    pub kinds: Vec<AllowedKind>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FromNamespaces {
    /// `All`, `Same`, `Selector` or `None`.
    pub from: Option<String>,
    pub selector: Option<LabelSelector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedKind {
    pub group: Option<String>,
    pub kind: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentRef {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    pub name: String,
    pub section_name: Option<String>,
    pub port: Option<i64>,
}

/// An HTTPRoute, a GRPCRoute or a TLSRoute of Gateway API.
pub type GatewayRoute = Object<GatewayRouteSpec, GatewayRouteStatus>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayRouteSpec {
    pub hostnames: Vec<String>,
    pub parent_refs: Vec<ParentRef>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayRouteStatus {
    pub parents: Vec<ParentStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentStatus {
    pub parent_ref: ParentRef,
    pub controller_name: String,
    pub conditions: Vec<Condition>,
}

/// An IngressController of OpenShift.
pub type IngressController = Object<IngressControllerSpec, IngressControllerStatus>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressControllerSpec {
    pub route_selector: Option<LabelSelector>,
    pub namespace_selector: Option<LabelSelector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressControllerStatus {
    pub domain: String,
    pub namespace_selector: Option<LabelSelector>,
    pub route_selector: Option<LabelSelector>,
    pub endpoint_publishing_strategy: Option<PublishingStrategy>,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PublishingStrategy {
    #[serde(rename = "type")]
    pub kind: String,
}

/// The infrastructure of an OpenShift cluster.
pub type Infrastructure = Object<Value, InfrastructureStatus>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfrastructureStatus {
    /// The settings of each platform; those of one are set.
    pub platform_status: BTreeMap<String, Value>,
}

/// A Route of OpenShift.
pub type OpenShiftRoute = Object<Value, OpenShiftRouteStatus>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenShiftRouteStatus {
    pub ingress: Vec<RouteIngress>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteIngress {
    pub host: String,
    pub router_name: String,
    pub conditions: Vec<Condition>,
}
