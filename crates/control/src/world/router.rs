//! Routers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};

use super::Settings;
use crate::compiler::settings::NameServer;
use crate::compiler::{self, Diagnostic, ShardView};
use signpost_types::v1alpha1::SOURCE_LABEL;
use signpost_types::v1alpha1::router::{AddressState, Capacity, Router, RouterState, RouterStatus};
use signpost_types::v1alpha1::traffic::{ClientAddress, TrafficMaxima};

pub type Labels = BTreeMap<String, String>;

/// A Router. There are few, so the object is kept unchanged with the values that are read from it.
#[derive(Debug, Clone)]
pub struct RouterInfo {
    pub object: Arc<Router>,
    /// The inputs for placing routes on it.
    pub target: RouterTarget,
    /// The compiled zone, if one is possible.
    pub shard: Option<Arc<ShardView>>,
    /// The problems of its fields, except `spec.records`: the zone has those.
    pub diagnostics: Box<[Diagnostic]>,
}

impl RouterInfo {
    /// Reads a Router.
    pub fn new(router: &Router, settings: &Settings) -> Self {
        let mut diagnostics = Vec::new();
        let shard = ShardView::read(router, &settings.platform, &mut diagnostics).map(Arc::new);
        let target = RouterTarget::new(router, &settings.platform.domain_text(), shard.as_deref());
        RouterInfo { object: Arc::new(router.clone()), target, shard, diagnostics: diagnostics.into() }
    }

    /// Returns whether routes must leave the Router.
    pub fn is_draining(&self) -> bool {
        self.target.state == RouterState::Draining
    }

    /// Returns whether its selectors match a route with these labels in a namespace with those.
    pub fn selects(&self, route: &Labels, namespace: &Labels) -> bool {
        matches(&self.target.route_selector, route) && matches(&self.target.namespace_selector, namespace)
    }

    /// Returns whether both are the same for the statuses of their Routes: the selectors, the proxies and their maxima, and whether there
    /// are instances.
    pub fn places_as(&self, other: &RouterInfo) -> bool {
        if (self.maxima(), self.object.proxies()) != (other.maxima(), other.object.proxies()) {
            return false;
        }
        let (own, other) = (&self.target, &other.target);
        (&own.route_selector, &own.namespace_selector) == (&other.route_selector, &other.namespace_selector)
            && own.active.has_instances == other.active.has_instances
    }

    /// Returns the maxima for the settings of its Routes.
    pub fn maxima(&self) -> Option<&TrafficMaxima> {
        self.object.spec.proxy.as_ref()?.maxima.as_ref()
    }

    /// Returns whether trusted proxies in front of its instances name clients by the PROXY protocol.
    pub fn announces_clients(&self) -> bool {
        let proxy = self.object.spec.proxy.as_ref();
        proxy.is_some_and(|proxy| proxy.client_address == ClientAddress::ProxyProtocol)
    }

    /// Returns all problems of its fields.
    pub fn faults(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().chain(self.shard.iter().flat_map(|shard| &shard.diagnostics))
    }

    /// Returns the labels, in lower case, at which its spec has records directly below its zone's apex: no former name can be
    /// there.
    pub fn record_labels(&self) -> Option<&BTreeSet<Box<str>>> {
        self.shard.as_ref().map(|shard| &shard.record_labels).filter(|labels| !labels.is_empty())
    }

    /// Returns whether its spec has records at this label.
    pub fn has_records_at(&self, label: &str) -> bool {
        // Nearly no Router has any.
        self.record_labels().is_some_and(|labels| labels.contains(label.to_ascii_lowercase().as_str()))
    }

    /// Returns the zone in its spec; the API sets it if it is omitted.
    pub fn zone(&self) -> Option<&str> {
        self.object.spec.dns.as_deref().filter(|dns| !dns.is_empty())
    }

    /// Returns whether its zone is known to differ from `dns`.
    pub fn has_other_zone(&self, dns: &str) -> bool {
        self.zone().is_some_and(|own| !own.eq_ignore_ascii_case(dns))
    }

    /// Returns whether its zone is known to be `dns`.
    pub fn has_zone(&self, dns: &str) -> bool {
        self.zone().is_some_and(|own| own.eq_ignore_ascii_case(dns))
    }
}

/// The inputs for placing routes on a Router.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterTarget {
    pub name: String,
    /// `metadata.resourceVersion`.
    pub version: String,
    /// The zone.
    pub dns: String,
    pub labels: Labels,
    /// The selector of the routes' labels. An error is the reason why the selector is invalid.
    pub route_selector: Result<Selector, String>,
    /// The selector of the labels of the routes' namespace.
    pub namespace_selector: Result<Selector, String>,
    /// Whether it takes new routes.
    pub state: RouterState,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether a source derived it.
    pub is_of_source: bool,
    /// Share of new routes.
    pub weight: u32,
    /// The number of routes that it may have.
    pub capacity: Capacity,
    /// The addresses that are answered with.
    pub active: ActiveAddresses,
    /// `spec.ttl`, in seconds.
    pub ttl: u32,
    /// The time until which caches can hold its addresses for longer than that.
    pub ttl_horizon: Option<Timestamp>,
    /// Whether its condition `ZonePublished` reports that a name server gives wrong answers for its zone, or does not have it.
    pub is_unpublished: bool,
    /// Labels, in lower case, whose names in its zone have other targets: by its records, or as a name server's name.
    pub taken: BTreeSet<Box<str>>,
    /// Whether its zone has addresses at the apex.
    pub has_apex: bool,
}

/// The addresses of a Router that are in answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveAddresses {
    pub any: bool,
    /// Whether one is an IPv4 address.
    pub ipv4: bool,
    /// Whether one is an IPv6 address.
    pub ipv6: bool,
    /// Whether the instances there report their Routes.
    pub has_instances: bool,
}

impl RouterTarget {
    /// Returns the inputs from a Router on the platform `domain` with these name servers.
    pub fn read(router: &Router, domain: &str, servers: Vec<NameServer>) -> Self {
        // The zones of an unusable domain are unknown.
        let settings = match servers.is_empty() {
            true => compiler::Settings::of_domain(domain),
            false => compiler::Settings::new(domain, servers, &[]),
        };
        let shard = settings.ok().and_then(|settings| ShardView::read(router, &settings, &mut Vec::new()));
        RouterTarget::new(router, domain, shard.as_ref())
    }

    /// Returns the inputs from a Router, its zone, and the platform's domain, below which the zone is if the Router names none.
    fn new(router: &Router, domain: &str, shard: Option<&ShardView>) -> Self {
        let (spec, metadata) = (&router.spec, &router.metadata);
        let name = metadata.name.clone().unwrap_or_default();
        let active = router.addresses().iter().filter(|address| address.state == AddressState::Active);
        // The zone has no others.
        let active: Vec<IpAddr> =
            active.filter_map(|address| address.ip.parse().ok()).map(|ip: IpAddr| ip.to_canonical()).collect();
        let is_unpublished = router.status.as_ref().is_some_and(RouterStatus::is_zone_unserved);
        let dns = spec.dns.clone().filter(|dns| !dns.is_empty()).unwrap_or_else(|| format!("{name}.{domain}"));
        let taken = shard.into_iter().flat_map(|shard| shard.expectation.all_taken());
        RouterTarget {
            is_unpublished,
            taken: taken.map(|(label, _)| label.into()).collect(),
            has_apex: shard.is_some_and(ShardView::has_apex),
            dns,
            version: metadata.resource_version.clone().unwrap_or_default(),
            route_selector: selector(&spec.route_selector),
            namespace_selector: selector(&spec.namespace_selector),
            state: spec.state,
            deleting: metadata.deletion_timestamp.is_some(),
            is_of_source: metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(SOURCE_LABEL)),
            weight: spec.weight,
            capacity: spec.capacity.clone().unwrap_or_default(),
            active: ActiveAddresses {
                any: !active.is_empty(),
                ipv4: active.iter().any(IpAddr::is_ipv4),
                ipv6: active.iter().any(IpAddr::is_ipv6),
                has_instances: router.has_instances(),
            },
            ttl: spec.ttl,
            ttl_horizon: router.status.as_ref().and_then(|status| status.ttl_horizon.as_ref()).map(|horizon| horizon.0),
            labels: metadata.labels.clone().unwrap_or_default(),
            name,
        }
    }

    /// Returns whether any input of decisions differs, which the version and the TTL are not.
    pub fn differs_from(&self, other: &RouterTarget) -> bool {
        let deciding =
            |facts: &RouterTarget| RouterTarget { version: String::new(), ttl: 0, ttl_horizon: None, ..facts.clone() };
        deciding(self) != deciding(other)
    }
}

/// Reads a selector; without one, it matches everything.
pub(crate) fn selector(selector: &Option<LabelSelector>) -> Result<Selector, String> {
    Selector::try_from(selector.clone().unwrap_or_default()).map_err(|error| error.to_string())
}

/// Returns whether `labels` match a selector; an invalid selector matches nothing.
pub fn matches(selector: &Result<Selector, String>, labels: &Labels) -> bool {
    selector.as_ref().is_ok_and(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_as_kubernetes_says() {
        let labels: Labels = [("tier", "gold"), ("zone", "eu")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (json, diagnostic) in [
            (r"{}", true),
            (r#"{"matchLabels":{"tier":"gold"}}"#, true),
            (r#"{"matchLabels":{"tier":"gold","x":"y"}}"#, false),
            (r#"{"matchExpressions":[{"key":"tier","operator":"In","values":["gold","silver"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"NotIn","values":["gold"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"absent","operator":"NotIn","values":["gold"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"DoesNotExist"}]}"#, false),
            (r#"{"matchExpressions":[{"key":"tier","operator":"Like","values":["g"]}]}"#, false),
        ] {
            let parsed: LabelSelector = serde_json::from_str(json).expect("a selector");
            assert_eq!(matches(&selector(&Some(parsed)), &labels), diagnostic, "{json}");
        }
    }

    #[test]
    fn a_zone_that_is_not_served_is_known_by_the_condition() {
        for (status, reason, is_unpublished) in [
            ("True", "Published", false),
            ("False", "NotAuthoritative", true),
            ("False", "ErrorAnswer", true),
            ("False", "WrongAnswer", true),
            ("False", "OldSerial", true),
            ("False", "DeletionHeld", false),
            ("False", "NotAnswering", false),
        ] {
            let router = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
                "metadata": {"name": "shard1"}, "spec": {"addresses": []}, "status": {"conditions": [{
                    "type": "ZonePublished", "status": status, "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
            let facts =
                RouterTarget::read(&serde_json::from_value(router).expect("a Router"), "v3.example", Vec::new());
            assert_eq!(facts.is_unpublished, is_unpublished, "{reason}");
        }
    }

    #[test]
    fn only_addresses_that_the_zone_can_have_are_active() {
        for (addresses, active) in [
            (serde_json::json!([]), [false; 3]),
            (serde_json::json!([{"ip": "192.0.2.256"}, {"ip": "one.example"}]), [false; 3]),
            (serde_json::json!([{"ip": "192.0.2.1", "state": "drained"}]), [false; 3]),
            (serde_json::json!([{"ip": "192.0.2.256"}, {"ip": "2001:db8::1"}]), [true, false, true]),
            (serde_json::json!([{"ip": "::ffff:192.0.2.1"}]), [true, true, false]),
        ] {
            let router = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
                "metadata": {"name": "shard1"}, "spec": {"addresses": addresses}});
            let facts =
                RouterTarget::read(&serde_json::from_value(router).expect("a Router"), "v3.example", Vec::new());
            assert_eq!([facts.active.any, facts.active.ipv4, facts.active.ipv6], active, "{addresses}");
        }
    }

    #[test]
    fn labels_that_something_else_has() {
        for (record, taken) in [
            ("shop-late A 192.0.2.77", Some("shop-late")),
            ("Shop-Late 300 IN AAAA 2001:db8::77", Some("shop-late")),
            ("shop-late IN 300 cname elsewhere.example.", Some("shop-late")),
            ("deleg NS ns.elsewhere.example.", Some("deleg")),
            ("shop-late.Shard1.v3.example. A 192.0.2.77", Some("shop-late")),
            ("shop-late.shard2.v3.example. A 192.0.2.77", None),
            ("shop\\045late A 192.0.2.77", Some("shop-late")),
            ("shop-late A 192.0.2.1", None),
            ("_acme-challenge.app TXT token", None),
            ("app TXT a", None),
            ("below.app A 192.0.2.77", None),
            ("@ CAA 0 issue \"ca.example\"", None),
            ("", None),
        ] {
            let router = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
                "metadata": {"name": "shard1"}, "spec": {"addresses": [{"ip": "192.0.2.1"}], "records": [record]}});
            let facts =
                RouterTarget::read(&serde_json::from_value(router).expect("a Router"), "v3.example", Vec::new());
            assert_eq!(facts.taken.iter().map(|label| &**label).collect::<Vec<_>>(), Vec::from_iter(taken), "{record}");
        }
        let servers = ["NS2.shard1.v3.example", "ns1.v3.example", "ns.far.shard1.v3.example"];
        let server = |name: &str| NameServer {
            name: name.parse().expect("a name"),
            addresses: vec!["192.0.2.1".parse().expect("an address")],
        };
        let router = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
            "metadata": {"name": "shard1"}, "spec": {"addresses": [{"ip": "192.0.2.1"}]}});
        let router = serde_json::from_value(router).expect("a Router");
        let facts = RouterTarget::read(&router, "v3.example", servers.map(server).into());
        assert_eq!(facts.taken, BTreeSet::from(["ns2".into()]));
    }
}
