//! Routers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};

use super::Settings;
use super::examination::Examination;
use crate::compiler::Diagnostic;
use crate::compiler::inputs::RouterInput;
use signpost_types::names::is_host_label;
use signpost_types::v1alpha1::router::{AddressState, Capacity, Router, RouterState, RouterStatus};

pub type Labels = BTreeMap<String, String>;

/// A Router. There are few, so the object is kept unchanged with the values that are read from it.
#[derive(Debug, Clone)]
pub struct RouterInfo {
    pub object: Arc<Router>,
    /// The inputs for placing routes on it.
    pub target: RouterTarget,
    /// The input for its zone, if it has one.
    pub input: Option<Arc<RouterInput>>,
    /// The problems of its fields.
    pub diagnostics: Box<[Diagnostic]>,
    /// The compiler's results, if the platform's zones are known.
    pub examination: Option<Examination>,
}

impl RouterInfo {
    /// Reads a Router.
    pub fn new(router: &Router, settings: &Settings) -> Self {
        let mut diagnostics = Vec::new();
        let input = RouterInput::read(router, &settings.domain, &mut diagnostics).map(Arc::new);
        let target = RouterTarget::new(router, &settings.domain).with_name_servers(&settings.name_servers);
        let examination =
            settings.platform.as_deref().map(|platform| Examination::new(router, input.as_deref(), platform));
        RouterInfo { object: Arc::new(router.clone()), target, input, diagnostics: diagnostics.into(), examination }
    }

    /// Returns whether routes must leave the Router.
    pub fn is_draining(&self) -> bool {
        self.target.state == RouterState::Draining
    }

    /// Returns whether its selectors match a route with these labels in a namespace with those.
    pub fn selects(&self, route: &Labels, namespace: &Labels) -> bool {
        matches(&self.target.route_selector, route) && matches(&self.target.namespace_selector, namespace)
    }

    /// Returns whether both are the same for the statuses of their Routes: the selectors, and whether there are instances.
    pub fn places_as(&self, other: &RouterInfo) -> bool {
        let (own, other) = (&self.target, &other.target);
        (&own.route_selector, &own.namespace_selector) == (&other.route_selector, &other.namespace_selector)
            && own.active.has_instances == other.active.has_instances
    }

    /// Returns labels, in lower case, whose names in its zone do not resolve to the Router, and the reason as text that follows
    /// the name.
    pub fn taken(&self) -> impl Iterator<Item = (&str, &str)> {
        let taken = self.examination.iter().flat_map(|examination| &examination.taken);
        taken.map(|(label, why)| (&**label, &**why))
    }

    /// Returns the labels, in lower case, at which its spec has records directly below its zone's apex: no former name can be
    /// there.
    pub fn record_labels(&self) -> Option<&BTreeSet<Box<str>>> {
        self.examination.as_ref().map(|examination| &examination.record_labels).filter(|labels| !labels.is_empty())
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
    /// Returns the inputs from a Router on the platform `domain`, below which its zone is if it names none.
    pub fn new(router: &Router, domain: &str) -> Self {
        let (spec, metadata) = (&router.spec, &router.metadata);
        let name = metadata.name.clone().unwrap_or_default();
        let active = || router.addresses().iter().filter(|address| address.state == AddressState::Active);
        let has = |family: fn(&IpAddr) -> bool| {
            active().any(|address| address.ip.parse::<IpAddr>().is_ok_and(|ip| family(&ip)))
        };
        let is_unpublished = router.status.as_ref().is_some_and(RouterStatus::is_zone_unserved);
        let dns = spec.dns.clone().filter(|dns| !dns.is_empty()).unwrap_or_else(|| format!("{name}.{domain}"));
        let own = |ip: &IpAddr| router.addresses().iter().any(|address| address.ip.parse() == Ok(*ip));
        let taken = spec.records.iter().filter_map(|record| taken_label(record, &dns, own)).collect();
        RouterTarget {
            is_unpublished,
            taken,
            dns,
            version: metadata.resource_version.clone().unwrap_or_default(),
            route_selector: selector(&spec.route_selector),
            namespace_selector: selector(&spec.namespace_selector),
            state: spec.state,
            deleting: metadata.deletion_timestamp.is_some(),
            weight: spec.weight,
            capacity: spec.capacity.clone().unwrap_or_default(),
            active: ActiveAddresses {
                any: active().next().is_some(),
                ipv4: has(IpAddr::is_ipv4),
                ipv6: has(IpAddr::is_ipv6),
                has_instances: router.has_instances(),
            },
            ttl: spec.ttl,
            ttl_horizon: router.status.as_ref().and_then(|status| status.ttl_horizon.as_ref()).map(|horizon| horizon.0),
            labels: metadata.labels.clone().unwrap_or_default(),
            name,
        }
    }

    /// Records the platform's name servers whose names are in its zone.
    pub fn with_name_servers(mut self, servers: &[String]) -> Self {
        let labels = servers.iter().filter_map(|server| {
            let (label, zone) = server.split_once('.')?;
            zone.eq_ignore_ascii_case(&self.dns).then(|| label.to_ascii_lowercase().into_boxed_str())
        });
        self.taken.extend(labels);
        self
    }

    /// Returns whether any input of decisions differs, which the version and the TTL are not.
    pub fn differs_from(&self, other: &RouterTarget) -> bool {
        let deciding =
            |facts: &RouterTarget| RouterTarget { version: String::new(), ttl: 0, ttl_horizon: None, ..facts.clone() };
        deciding(self) != deciding(other)
    }
}

/// Returns the label of a name directly below the zone `dns` whose target is changed by one of `spec.records`: by a delegation,
/// an alias, or an address that is not the Router's own. Other records only add to the existing ones. A mistake here is reported
/// for the route when the name servers are queried.
fn taken_label(record: &str, dns: &str, is_own: impl Fn(&IpAddr) -> bool) -> Option<Box<str>> {
    if record.starts_with(char::is_whitespace) {
        return None;
    }
    let mut words = record.split_ascii_whitespace();
    let owner = words.next()?.to_ascii_lowercase();
    let is_class = |word: &str| ["IN", "CH", "HS"].iter().any(|class| class.eq_ignore_ascii_case(word));
    let kind = words.find(|word| !word.starts_with(|first: char| first.is_ascii_digit()) && !is_class(word))?;
    let leads_elsewhere = match kind.to_ascii_uppercase().as_str() {
        "NS" | "CNAME" => true,
        "A" | "AAAA" => !words.next().and_then(|address| address.parse().ok()).is_some_and(|address| is_own(&address)),
        _ => false,
    };
    let label = match owner.strip_suffix('.') {
        Some(whole) => whole.strip_suffix(&dns.to_ascii_lowercase())?.strip_suffix('.')?,
        None => &owner,
    };
    (leads_elsewhere && is_host_label(label)).then(|| label.into())
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
            let facts = RouterTarget::new(&serde_json::from_value(router).expect("a Router"), "v3.example");
            assert_eq!(facts.is_unpublished, is_unpublished, "{reason}");
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
            ("shop-late A 192.0.2.1", None),
            ("_acme-challenge.app TXT token", None),
            ("app TXT a", None),
            ("below.app A 192.0.2.77", None),
            ("@ CAA 0 issue \"ca.example\"", None),
            ("", None),
        ] {
            let router = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
                "metadata": {"name": "shard1"}, "spec": {"addresses": [{"ip": "192.0.2.1"}], "records": [record]}});
            let facts = RouterTarget::new(&serde_json::from_value(router).expect("a Router"), "v3.example");
            assert_eq!(facts.taken.iter().map(|label| &**label).collect::<Vec<_>>(), Vec::from_iter(taken), "{record}");
        }
        let servers = ["NS2.shard1.v3.example", "ns1.v3.example", "ns.far.shard1.v3.example"].map(str::to_owned);
        let router = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
            "metadata": {"name": "shard1"}, "spec": {"addresses": [{"ip": "192.0.2.1"}]}});
        let router = serde_json::from_value(router).expect("a Router");
        let facts = RouterTarget::new(&router, "v3.example").with_name_servers(&servers);
        assert_eq!(facts.taken, BTreeSet::from(["ns2".into()]));
    }
}
