//! The objects of a cluster that sources read. Each type has the fields that count, and accepts any others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Source;
use crate::client::reflector::ObjectKey;

pub type Labels = BTreeMap<String, String>;

/// The annotation that preceded `spec.ingressClassName`, and is still in use.
pub const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
pub const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";
/// The group of Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
/// The prefix of the annotations of the platform.
const OWN_PREFIX: &str = "signpost.dev/";

/// A kind that sources read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Namespace,
    Service,
    EndpointSlice,
    IngressClass,
    Ingress,
    GatewayClass,
    Gateway,
    ListenerSet,
    HTTPRoute,
    GRPCRoute,
    TLSRoute,
    IngressController,
    Infrastructure,
    /// The Route of OpenShift.
    Route,
}

impl Kind {
    pub const ALL: [Kind; 14] = [
        Kind::Namespace,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::IngressClass,
        Kind::Ingress,
        Kind::GatewayClass,
        Kind::Gateway,
        Kind::ListenerSet,
        Kind::HTTPRoute,
        Kind::GRPCRoute,
        Kind::TLSRoute,
        Kind::IngressController,
        Kind::Infrastructure,
        Kind::Route,
    ];

    /// Returns the group and the name of the kind.
    pub fn group_and_name(self) -> (&'static str, &'static str) {
        match self {
            Kind::Namespace => ("", "Namespace"),
            Kind::Service => ("", "Service"),
            Kind::EndpointSlice => ("discovery.k8s.io", "EndpointSlice"),
            Kind::IngressClass => ("networking.k8s.io", "IngressClass"),
            Kind::Ingress => ("networking.k8s.io", "Ingress"),
            Kind::GatewayClass => (GATEWAY_GROUP, "GatewayClass"),
            Kind::Gateway => (GATEWAY_GROUP, "Gateway"),
            Kind::ListenerSet => (GATEWAY_GROUP, "ListenerSet"),
            Kind::HTTPRoute => (GATEWAY_GROUP, "HTTPRoute"),
            Kind::GRPCRoute => (GATEWAY_GROUP, "GRPCRoute"),
            Kind::TLSRoute => (GATEWAY_GROUP, "TLSRoute"),
            Kind::IngressController => ("operator.openshift.io", "IngressController"),
            Kind::Infrastructure => ("config.openshift.io", "Infrastructure"),
            Kind::Route => ("route.openshift.io", "Route"),
        }
    }

    pub fn name(self) -> &'static str {
        self.group_and_name().1
    }

    pub fn group(self) -> &'static str {
        self.group_and_name().0
    }

    /// Returns the kind with this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns whether its objects are those of Gateway API that have hosts.
    pub fn is_gateway_route(self) -> bool {
        matches!(self, Kind::HTTPRoute | Kind::GRPCRoute | Kind::TLSRoute)
    }

    /// Reads an object, without the annotations that no source reads: those of the platform, and those with other prefixes.
    pub fn read(self, mut object: Value, annotation_prefixes: &[String]) -> Result<Resource, serde_json::Error> {
        remove_nulls(&mut object);
        fn of<K: DeserializeOwned>(object: Value) -> Result<K, serde_json::Error> {
            K::deserialize(object)
        }
        let mut resource = match self {
            Kind::Namespace | Kind::IngressClass => Resource::Plain(of(object)?),
            Kind::Service => Resource::Service(of(object)?),
            Kind::EndpointSlice => Resource::EndpointSlice(of(object)?),
            Kind::Ingress => Resource::Ingress(of(object)?),
            Kind::GatewayClass => Resource::GatewayClass(of(object)?),
            Kind::Gateway => Resource::Gateway(of(object)?),
            Kind::ListenerSet => Resource::ListenerSet(of(object)?),
            Kind::HTTPRoute | Kind::GRPCRoute | Kind::TLSRoute => Resource::GatewayRoute(of(object)?),
            Kind::IngressController => Resource::IngressController(of(object)?),
            Kind::Infrastructure => Resource::Infrastructure(of(object)?),
            Kind::Route => Resource::OpenShiftRoute(of(object)?),
        };
        let meta = resource.meta_mut();
        meta.annotations.retain(|name, _| {
            let is_read = [CLASS_ANNOTATION, DEFAULT_ANNOTATION].contains(&name.as_str());
            is_read || name.starts_with(OWN_PREFIX) || annotation_prefixes.iter().any(|prefix| name.starts_with(prefix))
        });
        if !matches!(self, Kind::Namespace | Kind::Service | Kind::EndpointSlice) {
            meta.labels.clear();
        }
        Ok(resource)
    }
}

/// Removes the members that are null. Go, and so Kubernetes, serves an empty list as null, such as `endpoints` of an EndpointSlice.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Makes [`Resource`] from the types of its variants.
macro_rules! resources {
    ($($Type:ident),+) => {
        /// An object of the cluster.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Resource {
            $( $Type($Type), )+
        }

        impl Resource {
            pub fn meta(&self) -> &Meta {
                match self {
                    $( Resource::$Type(object) => &object.metadata, )+
                }
            }

            fn meta_mut(&mut self) -> &mut Meta {
                match self {
                    $( Resource::$Type(object) => &mut object.metadata, )+
                }
            }
        }

        $( impl OfResource for $Type {
            fn of(resource: &Resource) -> Option<&Self> {
                match resource {
                    Resource::$Type(object) => Some(object),
                    _ => None,
                }
            }
        } )+
    };
}

resources!(
    Plain,
    Service,
    EndpointSlice,
    Ingress,
    GatewayClass,
    Gateway,
    ListenerSet,
    GatewayRoute,
    IngressController,
    Infrastructure,
    OpenShiftRoute
);

/// The type of the objects of a kind.
pub trait OfResource: Sized + 'static {
    fn of(resource: &Resource) -> Option<&Self>;
}

/// The objects of a kind.
pub type Objects = BTreeMap<ObjectKey, Arc<Resource>>;

/// The objects of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// The kinds whose objects are known.
    kinds: BTreeMap<Kind, Objects>,
    /// The kinds that the cluster does not serve, and has not served.
    absent: BTreeSet<Kind>,
    /// The objects that do not have the shape of their kind.
    unreadable: BTreeMap<Source, String>,
    /// The kinds that cannot be read now. Those in `kinds` have their last objects.
    pub failures: BTreeMap<Kind, String>,
}

impl Inventory {
    /// Adds all objects of a kind.
    pub fn add(&mut self, kind: Kind, objects: Vec<Value>, annotation_prefixes: &[String]) {
        self.replace(kind, Objects::new());
        for object in objects {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let (namespace, name) = (text("namespace"), text("name"));
            let key = ObjectKey { namespace: Some(namespace).filter(|namespace| !namespace.is_empty()), name };
            self.put(
                kind,
                key,
                kind.read(object, annotation_prefixes).map(Arc::new).map_err(|error| error.to_string()),
            );
        }
    }

    /// Sets all objects of a kind.
    pub fn replace(&mut self, kind: Kind, objects: Objects) -> Objects {
        self.absent.remove(&kind);
        self.unreadable.retain(|source, _| source.kind != kind.name());
        self.kinds.insert(kind, objects).unwrap_or_default()
    }

    /// Adds or replaces an object; one that cannot be read keeps its last value. Returns whether the object is different now.
    pub fn put(&mut self, kind: Kind, key: ObjectKey, object: Result<Arc<Resource>, String>) -> bool {
        let source = Source::named(kind, &key);
        match object {
            Ok(object) => {
                self.unreadable.remove(&source);
                let before = self.kinds.entry(kind).or_default().insert(key, Arc::clone(&object));
                before.is_none_or(|before| before != object)
            }
            Err(error) => self.unreadable.insert(source, error.clone()) != Some(error),
        }
    }

    pub fn remove(&mut self, kind: Kind, key: &ObjectKey) -> bool {
        let was_unreadable = self.unreadable.remove(&Source::named(kind, key)).is_some();
        self.kinds.get_mut(&kind).and_then(|objects| objects.remove(key)).is_some() || was_unreadable
    }

    /// Notes that the cluster does not serve a kind. If its objects are known, they stay.
    pub fn set_absent(&mut self, kind: Kind) {
        if !self.kinds.contains_key(&kind) {
            self.absent.insert(kind);
        }
    }

    /// Returns whether the objects of a kind were listed.
    pub fn is_known(&self, kind: Kind) -> bool {
        self.kinds.contains_key(&kind)
    }

    /// Returns whether the objects of a kind were listed, or the cluster does not serve it.
    pub fn is_settled(&self, kind: Kind) -> bool {
        self.is_known(kind) || self.absent.contains(&kind)
    }

    pub fn is_absent(&self, kind: Kind) -> bool {
        self.absent.contains(&kind)
    }

    /// Returns whether an object exists that cannot be read, and of which no earlier value is known.
    pub fn is_unread(&self, source: &Source) -> bool {
        self.unreadable.contains_key(source)
            && Kind::named(source.kind).is_none_or(|kind| self.object(kind, &source.key()).is_none())
    }

    /// Returns the objects that cannot be read, and the reasons.
    pub fn unreadable(&self) -> &BTreeMap<Source, String> {
        &self.unreadable
    }

    /// Returns the objects of a kind; none if they are unknown.
    pub fn all<K: OfResource>(&self, kind: Kind) -> impl Iterator<Item = &K> {
        self.objects(kind).filter_map(|(_, object)| K::of(object))
    }

    pub fn objects(&self, kind: Kind) -> impl Iterator<Item = (&ObjectKey, &Arc<Resource>)> {
        self.kinds.get(&kind).into_iter().flatten()
    }

    pub fn object(&self, kind: Kind, key: &ObjectKey) -> Option<&Arc<Resource>> {
        self.kinds.get(&kind)?.get(key)
    }

    /// Returns the objects of a kind in a namespace.
    pub fn in_namespace<'a>(&'a self, kind: Kind, namespace: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        let from = ObjectKey::namespaced(namespace, "");
        let objects = self.kinds.get(&kind).into_iter().flat_map(move |objects| objects.range(from.clone()..));
        objects.map(|(key, _)| key).take_while(move |key| key.namespace() == namespace)
    }

    pub(super) fn cluster_ips(&self) -> BTreeSet<IpAddr> {
        let specs = self.all::<Service>(Kind::Service).map(|service| &service.spec);
        specs
            .flat_map(|spec| spec.cluster_ips.iter().chain(&spec.cluster_ip))
            .filter_map(|ip| ip.parse().ok())
            .collect()
    }

    pub(super) fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        Service::of(self.object(Kind::Service, &ObjectKey::namespaced(namespace, name))?)
    }

    /// Returns the labels of a namespace, if they are known.
    pub(super) fn labels(&self, namespace: &str) -> Option<&Labels> {
        Some(&self.object(Kind::Namespace, &ObjectKey::cluster(namespace))?.meta().labels)
    }
}

/// Returns whether a selector selects labels; `None`: it is invalid.
pub(super) fn selects(selector: &LabelSelector, labels: &Labels) -> Option<bool> {
    Some(Selector::try_from(selector.clone()).ok()?.matches(labels))
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub labels: Labels,
    pub annotations: Labels,
    pub creation_timestamp: Option<Timestamp>,
    pub generation: Option<i64>,
}

/// An object with metadata, a spec and a status.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, bound = "S: Default + DeserializeOwned, T: Default + DeserializeOwned")]
pub struct Object<S, T> {
    pub metadata: Meta,
    pub spec: S,
    pub status: T,
}

/// A part of an object that is not read.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Ignored {}

/// A Namespace or an IngressClass.
pub type Plain = Object<Ignored, Ignored>;

pub type Service = Object<ServiceSpec, Balanced>;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs")]
    pub external_ips: Vec<String>,
}

/// The status of a Service or an Ingress.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Balanced {
    pub load_balancer: Balancer,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Balancer {
    pub ingress: Vec<BalancerIngress>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BalancerIngress {
    pub ip: Option<String>,
    pub hostname: Option<String>,
}

impl Balanced {
    /// Returns the addresses and host names of the load balancer.
    pub(super) fn targets(&self) -> impl Iterator<Item = String> {
        self.load_balancer.ingress.iter().filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone()))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    pub metadata: Meta,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    pub addresses: Vec<String>,
    pub conditions: EndpointConditions,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointConditions {
    pub ready: Option<bool>,
}

pub type Ingress = Object<IngressSpec, Balanced>;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressSpec {
    pub ingress_class_name: Option<String>,
    pub rules: Vec<IngressRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressRule {
    pub host: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
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

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClassSpec {
    pub controller_name: String,
}

/// A Gateway of Gateway API.
pub type Gateway = Object<GatewaySpec, GatewayStatus>;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    pub gateway_class_name: String,
    pub listeners: Vec<Listener>,
    pub allowed_listeners: Option<AllowedRoutes>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayStatus {
    pub conditions: Vec<Condition>,
    pub addresses: Vec<GatewayAddress>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayAddress {
    /// Absent: `IPAddress`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub value: String,
}

/// Listeners for a Gateway in an object of their own.
pub type ListenerSet = Object<ListenerSetSpec, ListenerSetStatus>;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSetStatus {
    pub conditions: Vec<Condition>,
    pub listeners: Vec<ListenerStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerStatus {
    pub name: String,
    pub conditions: Vec<Condition>,
}

impl ListenerSetStatus {
    /// Returns whether the controller uses a listener: another object can have its host and port.
    pub(super) fn uses(&self, listener: &Listener) -> bool {
        let mut statuses = self.listeners.iter().filter(|status| status.name == listener.name);
        statuses.all(|status| {
            let is_refused = |condition: &Condition| condition.kind == "Accepted" && condition.status == "False";
            !is_true(&status.conditions, "Conflicted") && !status.conditions.iter().any(is_refused)
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSetSpec {
    pub parent_ref: ParentRef,
    pub listeners: Vec<Listener>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listener {
    pub name: String,
    pub hostname: Option<String>,
    pub port: Option<i64>,
    pub protocol: String,
    pub allowed_routes: Option<AllowedRoutes>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedRoutes {
    pub namespaces: Option<FromNamespaces>,
    pub kinds: Vec<AllowedKind>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FromNamespaces {
    /// `All`, `Same`, `Selector` or `None`.
    pub from: Option<String>,
    pub selector: Option<LabelSelector>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
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

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayRouteSpec {
    pub hostnames: Vec<String>,
    pub parent_refs: Vec<ParentRef>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayRouteStatus {
    pub parents: Vec<ParentStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentStatus {
    pub parent_ref: ParentRef,
    pub controller_name: String,
    pub conditions: Vec<Condition>,
}

/// An IngressController of OpenShift.
pub type IngressController = Object<Ignored, IngressControllerStatus>;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressControllerStatus {
    pub domain: String,
    pub namespace_selector: Option<LabelSelector>,
    pub route_selector: Option<LabelSelector>,
    pub endpoint_publishing_strategy: Option<PublishingStrategy>,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PublishingStrategy {
    #[serde(rename = "type")]
    pub kind: String,
}

/// The infrastructure of an OpenShift cluster.
pub type Infrastructure = Object<Ignored, InfrastructureStatus>;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfrastructureStatus {
    /// The settings of each platform; those of one are set.
    pub platform_status: BTreeMap<String, Value>,
}

/// A Route of OpenShift.
pub type OpenShiftRoute = Object<Ignored, OpenShiftRouteStatus>;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenShiftRouteStatus {
    pub ingress: Vec<RouteIngress>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteIngress {
    pub host: String,
    pub router_name: String,
    pub conditions: Vec<Condition>,
}
