//! What the scheduler keeps of each object: the few fields that decide, so that 100,000 of them stay small.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::core::{Selector, SelectorExt as _};

use crate::client::slim;
use crate::client::uid::Uid;
use signpost_api::names::{alias_name, challenge_name, is_host_label};
use signpost_api::v1alpha1::name_claim::NameClaim;
use signpost_api::v1alpha1::route::{
    ADMITTED, AssignedName, HOST_PROVEN, MOVE_ANNOTATION, MOVE_PENDING, NameKind, Phase, QUOTA_ANNOTATION, Route,
    SCHEDULED,
};
use signpost_api::v1alpha1::route_binding::RouteBinding;
use signpost_api::v1alpha1::router::{AddressState, Router, RouterState, RouterStatus};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A Route.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteFacts {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.creationTimestamp` in seconds since the epoch.
    pub created: i64,
    /// Its labels.
    pub labels: slim::Labels,
    /// `spec.host`, if it is not empty.
    pub host: Option<Box<str>>,
    /// `spec.subdomain`, if it is not empty.
    pub subdomain: Option<Box<str>>,
    /// Whether its status says that it has a Router.
    pub bound: bool,
    /// The Router that its status names.
    pub router: Option<Arc<str>>,
    /// The Router that it is to be on, if its annotation says so.
    pub move_to: Option<Arc<str>>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether its host is proven to be its owner's.
    pub host_proven: bool,
    /// Its condition `Scheduled`.
    pub scheduled: Option<Mark>,
    /// Its condition `Admitted`.
    pub admitted: Option<Mark>,
    /// Its condition `MovePending`.
    pub moving: Option<Mark>,
}

impl RouteFacts {
    /// Whether scheduling would look at both alike: status aside, they are the same.
    pub fn decides_as(&self, other: &RouteFacts) -> bool {
        self.uid == other.uid
            && self.deleting == other.deleting
            && self.bound == other.bound
            && self.router == other.router
            && self.move_to == other.move_to
            && self.host == other.host
            && self.host_proven == other.host_proven
            && self.subdomain == other.subdomain
            && self.labels == other.labels
    }

    /// Whether a condition of the other one is missing that this one has.
    pub fn says_more_than(&self, other: &RouteFacts) -> bool {
        let conditions = |facts: &RouteFacts| [facts.scheduled, facts.admitted, facts.moving];
        let mut both = conditions(self).into_iter().zip(conditions(other));
        both.any(|(own, other)| own.is_some() && other.is_none())
    }
}

/// A condition, small enough to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(NonZeroU64);

/// What makes a digest of nothing a digest: a mark or none takes eight octets.
const HIGHEST: NonZeroU64 = NonZeroU64::MIN.saturating_add((1 << 63) - 1);

impl Mark {
    /// The mark of a condition that says this.
    pub fn of(status: &str, reason: &str, message: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (status, reason, message).hash(&mut hasher);
        // A digest whose lowest bit says whether the status is `True`, and whose highest is set.
        let digest = hasher.finish() & !1 | u64::from(status == "True");
        Mark(HIGHEST | digest)
    }

    /// Whether its status is `True`.
    pub fn is_true(self) -> bool {
        self.0.get() & 1 == 1
    }

    fn find(conditions: &[Condition], kind: &str) -> Option<Self> {
        let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
        Some(Mark::of(&condition.status, &condition.reason, &condition.message))
    }
}

impl From<&Route> for RouteFacts {
    fn from(route: &Route) -> Self {
        let status = route.status.as_ref();
        let conditions = status.map_or(&[][..], |status| &status.conditions);
        let move_to = route.metadata.annotations.as_ref().and_then(|annotations| annotations.get(MOVE_ANNOTATION));
        let proves = |host: &String| {
            status
                .and_then(|status| status.challenge.as_ref())
                .is_some_and(|challenge| challenge.name == challenge_name(host))
                && Mark::find(conditions, HOST_PROVEN).is_some_and(Mark::is_true)
        };
        let host_proven = route.spec.host.as_ref().is_some_and(proves);
        let bound = status.filter(|status| status.phase == Phase::Scheduled);
        let text = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(Box::from);
        RouteFacts {
            move_to: move_to.filter(|router| !router.is_empty()).map(|router| slim::text(router)),
            uid: Uid::of(route.metadata.uid.as_deref()),
            created: route.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            labels: (&route.metadata.labels).into(),
            host: text(&route.spec.host),
            subdomain: text(&route.spec.subdomain),
            bound: bound.is_some(),
            router: bound.and_then(|status| status.router.as_deref()).map(slim::text),
            deleting: route.metadata.deletion_timestamp.is_some(),
            host_proven,
            scheduled: Mark::find(conditions, SCHEDULED),
            admitted: Mark::find(conditions, ADMITTED),
            moving: Mark::find(conditions, MOVE_PENDING),
        }
    }
}

/// A Router.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterFacts {
    /// Its name.
    pub name: String,
    /// `metadata.resourceVersion`.
    pub version: String,
    /// Its zone.
    pub dns: String,
    /// Its labels.
    pub labels: Labels,
    /// Which routes it takes, by their labels. An error says why the selector cannot be read.
    pub route_selector: Result<Selector, String>,
    /// Which routes it takes, by the labels of their namespace.
    pub namespace_selector: Result<Selector, String>,
    /// Whether it takes new routes.
    pub state: RouterState,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Share of new routes.
    pub weight: u32,
    /// Above this many routes others are preferred.
    pub capacity_soft: Option<u32>,
    /// At this many routes no more are placed here.
    pub capacity_hard: Option<u32>,
    /// Whether it has an address that is answered with.
    pub has_active_address: bool,
    /// Whether one of these is an IPv4 address.
    pub has_ipv4: bool,
    /// Whether one of these is an IPv6 address.
    pub has_ipv6: bool,
    /// `spec.ttl`, in seconds.
    pub ttl: u32,
    /// Until when caches may hold its addresses for longer than that.
    pub ttl_horizon: Option<Timestamp>,
    /// Whether its condition `ZonePublished` says that a name server answers for its zone, and wrongly or not from it.
    pub is_unpublished: bool,
    /// Labels, in lower case, whose names in its zone lead elsewhere: by its records, or being a name server's.
    pub taken: BTreeSet<Box<str>>,
}

impl RouterFacts {
    /// What decides of a Router on the platform `domain`, below which its zone is if it names none.
    pub fn new(router: Router, domain: &str) -> Self {
        let spec = router.spec;
        let name = router.metadata.name.unwrap_or_default();
        let capacity = spec.capacity.unwrap_or_default();
        let active = || spec.addresses.iter().filter(|address| address.state == AddressState::Active);
        let has = |family: fn(&IpAddr) -> bool| {
            active().any(|address| address.ip.parse::<IpAddr>().is_ok_and(|ip| family(&ip)))
        };
        let is_unpublished = router.status.as_ref().is_some_and(RouterStatus::is_zone_unserved);
        let dns = spec.dns.filter(|dns| !dns.is_empty()).unwrap_or_else(|| format!("{name}.{domain}"));
        let own = |ip: &IpAddr| spec.addresses.iter().any(|address| address.ip.parse() == Ok(*ip));
        let taken = spec.records.iter().filter_map(|record| taken_label(record, &dns, own)).collect();
        RouterFacts {
            is_unpublished,
            taken,
            dns,
            version: router.metadata.resource_version.unwrap_or_default(),
            route_selector: selector(spec.route_selector),
            namespace_selector: selector(spec.namespace_selector),
            state: spec.state,
            deleting: router.metadata.deletion_timestamp.is_some(),
            weight: spec.weight,
            capacity_soft: capacity.soft,
            capacity_hard: capacity.hard,
            has_active_address: active().next().is_some(),
            has_ipv4: has(IpAddr::is_ipv4),
            has_ipv6: has(IpAddr::is_ipv6),
            ttl: spec.ttl,
            ttl_horizon: router.status.and_then(|status| status.ttl_horizon).map(|horizon| horizon.0),
            labels: router.metadata.labels.unwrap_or_default(),
            name,
        }
    }

    /// Takes note of which of the platform's name servers have their names in its zone.
    pub fn with_name_servers(mut self, servers: &[String]) -> Self {
        let labels = servers.iter().filter_map(|server| {
            let (label, zone) = server.split_once('.')?;
            zone.eq_ignore_ascii_case(&self.dns).then(|| label.to_ascii_lowercase().into_boxed_str())
        });
        self.taken.extend(labels);
        self
    }

    /// Whether anything that decides is different: the version and the TTL do not.
    pub fn differs_from(&self, other: &RouterFacts) -> bool {
        let deciding =
            |facts: &RouterFacts| RouterFacts { version: String::new(), ttl: 0, ttl_horizon: None, ..facts.clone() };
        deciding(self) != deciding(other)
    }
}

/// The label of a name right below the zone `dns` that one of `spec.records` leads elsewhere: by a delegation, an alias, or an
/// address that is none of the Router's own. Other records only add to what is there. What is read amiss here is told of the
/// route when the name servers are asked.
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

fn selector(selector: Option<LabelSelector>) -> Result<Selector, String> {
    Selector::try_from(selector.unwrap_or_default()).map_err(|error| error.to_string())
}

/// Whether `labels` meet a selector; one that cannot be read matches nothing.
pub fn matches(selector: &Result<Selector, String>, labels: &Labels) -> bool {
    selector.as_ref().is_ok_and(|selector| selector.matches(labels))
}

/// A Namespace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NamespaceFacts {
    /// Its labels.
    pub labels: Labels,
    /// How many of its routes may have a Router.
    pub quota: Quota,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// How many routes of a Namespace may have a Router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Quota {
    /// Any number.
    #[default]
    Unlimited,
    /// This many.
    AtMost(u32),
    /// The annotation says this, which is no number. As with a selector that cannot be read, nothing is placed: a quota
    /// that a slip of the pen lifts is none.
    Unreadable(String),
}

impl Quota {
    fn parse(text: &str) -> Self {
        // `parse` would take a sign as well.
        let is_digits = text.bytes().all(|octet| octet.is_ascii_digit());
        let quota = text.parse().ok().filter(|_| is_digits);
        quota.map_or_else(|| Quota::Unreadable(text.to_owned()), Quota::AtMost)
    }
}

impl From<Namespace> for NamespaceFacts {
    fn from(namespace: Namespace) -> Self {
        let phase = namespace.status.and_then(|status| status.phase);
        let quota = namespace.metadata.annotations.as_ref().and_then(|annotations| annotations.get(QUOTA_ANNOTATION));
        NamespaceFacts {
            quota: quota.map_or(Quota::Unlimited, |text| Quota::parse(text)),
            terminating: namespace.metadata.deletion_timestamp.is_some() || phase.as_deref() == Some("Terminating"),
            labels: namespace.metadata.labels.unwrap_or_default(),
        }
    }
}

/// A RouteBinding.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BindingFacts {
    /// Uid of the Route that it binds.
    pub route_uid: Uid,
    /// The Router.
    pub router: Arc<str>,
    /// Digest of its zone, as it was when the route was bound; 0: not known.
    pub zone: u64,
    /// A number that grows with each commit, to order bindings by.
    pub turn: u64,
    /// See [`BindingFacts::trail_turn`]: few have one.
    pub next_trail: Option<Box<Timestamp>>,
}

impl BindingFacts {
    /// Of a RouteBinding of the platform with this domain. Names are due to be changed at once if its alias is of another
    /// domain, which the platform had before.
    pub fn of_platform(binding: &RouteBinding, domain: &str) -> Self {
        let mut facts = BindingFacts::from(binding);
        if alias_to_change(binding, domain).is_some() {
            facts.next_trail = Some(Box::new(Timestamp::UNIX_EPOCH));
        }
        facts
    }

    /// When the first of its trails begins or is over.
    pub fn trail_turn(&self) -> Option<Timestamp> {
        self.next_trail.as_deref().copied()
    }

    /// Whether its Router of now has another zone than the one that the route has its name in: it was deleted and made again.
    pub fn is_zone_gone(&self, router: &RouterFacts) -> bool {
        self.zone != 0 && self.zone != zone_digest(&router.dns)
    }
}

/// The alias that a binding is to have below `domain`, if it has another one.
pub fn alias_to_change(binding: &RouteBinding, domain: &str) -> Option<String> {
    let alias = alias_name(&binding.spec.label, domain);
    let differs = |name: &AssignedName| name.kind == NameKind::Alias && !name.name.eq_ignore_ascii_case(&alias);
    binding.spec.names.iter().any(differs).then_some(alias)
}

/// A zone's name in eight octets, of which there is one in each binding.
fn zone_digest(dns: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    dns.to_ascii_lowercase().hash(&mut hasher);
    hasher.finish().max(1)
}

impl From<&RouteBinding> for BindingFacts {
    fn from(binding: &RouteBinding) -> Self {
        // Versions are opaque by the API's conventions, and numbers on every known server; else the time must do.
        let version = binding.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        let created = binding.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        let turns = binding.spec.trails.iter().map(|trail| trail.from.as_ref().unwrap_or(&trail.until).0);
        BindingFacts {
            next_trail: turns.min().map(Box::new),
            route_uid: Uid::new(&binding.spec.route_uid),
            zone: zone_digest(&binding.spec.dns),
            router: slim::text(&binding.spec.router),
            turn: version.unwrap_or_else(|| u64::try_from(created).unwrap_or(0)),
        }
    }
}

/// A NameClaim on a custom host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostClaimFacts {
    /// Uid of the Route that holds it; `None` once it was let go.
    pub holder_uid: Option<Uid>,
    /// Whether it was released and is kept for a Route of the same namespace and name; the claim is deleted when that is over.
    pub is_reserved: bool,
    /// The host.
    pub host: String,
    /// The namespace of the Route that holds it, or held it last.
    pub namespace: String,
}

impl From<NameClaim> for HostClaimFacts {
    fn from(claim: NameClaim) -> Self {
        let held = claim.spec.released_at.is_none();
        let holder = claim.spec.holder;
        HostClaimFacts {
            holder_uid: held.then(|| Uid::new(&holder.uid)),
            is_reserved: !held && claim.spec.quarantine_until.is_some(),
            host: claim.spec.value,
            namespace: holder.namespace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_small() {
        assert!(size_of::<RouteFacts>() <= 136, "{}", size_of::<RouteFacts>());
        assert!(size_of::<BindingFacts>() <= 64, "{}", size_of::<BindingFacts>());
    }

    #[test]
    fn marks_tell_conditions_apart() {
        let mark = Mark::of("True", "Scheduled", "placed on shard1");
        assert!(mark.is_true() && mark == Mark::of("True", "Scheduled", "placed on shard1"));
        for other in
            [("False", "Scheduled", "placed on shard1"), ("True", "", "placed on shard1"), ("True", "Scheduled", "")]
        {
            assert_ne!(Mark::of(other.0, other.1, other.2), mark, "{other:?}");
        }
        assert!(!Mark::of("False", "x", "y").is_true() && !Mark::of("Unknown", "x", "y").is_true());
    }

    #[test]
    fn selectors_match_as_kubernetes_says() {
        let labels: Labels = [("tier", "gold"), ("zone", "eu")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (json, verdict) in [
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
            assert_eq!(matches(&selector(Some(parsed)), &labels), verdict, "{json}");
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
            ("False", "BrakeHeld", false),
            ("False", "NotAnswering", false),
        ] {
            let router = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
                "metadata": {"name": "shard1"}, "spec": {"addresses": []}, "status": {"conditions": [{
                    "type": "ZonePublished", "status": status, "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
            let facts = RouterFacts::new(serde_json::from_value(router).expect("a Router"), "v3.example");
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
            let facts = RouterFacts::new(serde_json::from_value(router).expect("a Router"), "v3.example");
            assert_eq!(facts.taken.iter().map(|label| &**label).collect::<Vec<_>>(), Vec::from_iter(taken), "{record}");
        }
        let servers = ["NS2.shard1.v3.example", "ns1.v3.example", "ns.far.shard1.v3.example"].map(str::to_owned);
        let facts =
            crate::scheduler::filter::tests::router("shard1", serde_json::Value::Null).with_name_servers(&servers);
        assert_eq!(facts.taken, BTreeSet::from(["ns2".into()]));
    }

    #[test]
    fn quotas() {
        for (annotations, quota) in [
            (serde_json::json!({}), Quota::Unlimited),
            (serde_json::json!({QUOTA_ANNOTATION: "0"}), Quota::AtMost(0)),
            (serde_json::json!({QUOTA_ANNOTATION: "100"}), Quota::AtMost(100)),
            (serde_json::json!({QUOTA_ANNOTATION: " 3"}), Quota::Unreadable(" 3".to_owned())),
            (serde_json::json!({QUOTA_ANNOTATION: "+3"}), Quota::Unreadable("+3".to_owned())),
            (serde_json::json!({QUOTA_ANNOTATION: ""}), Quota::Unreadable(String::new())),
            (serde_json::json!({QUOTA_ANNOTATION: "-1"}), Quota::Unreadable("-1".to_owned())),
            (serde_json::json!({QUOTA_ANNOTATION: "many"}), Quota::Unreadable("many".to_owned())),
        ] {
            let object = serde_json::json!({"metadata": {"name": "ns", "annotations": annotations}});
            let namespace: Namespace = serde_json::from_value(object).expect("a Namespace");
            assert_eq!(NamespaceFacts::from(namespace).quota, quota);
        }
    }
}
