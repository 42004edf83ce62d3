//! Routes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::{NonZeroI64, NonZeroU64};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::BindingInfo;
use super::backend::RouteTargets;
use super::condition::ConditionUpdate;
use super::router::Labels;
use crate::client::uid::Uid;
use signpost_types::assignment::has_main_names;
use signpost_types::names::challenge_name;
use signpost_types::paths;
use signpost_types::route_state::RouteState;
use signpost_types::traffic::Requested;
use signpost_types::v1alpha1::route::{
    ADMITTED, AssignedName, CERTIFICATE_READY, FORMER_NAME_BLOCKED, FormerName, HOST_POINTS_HERE, HOST_VERIFIED,
    MOVE_ANNOTATION, MOVE_PENDING, NameKind, PROGRAMMED, PUBLISHED, Phase, READY, RESOLVABLE, RESOLVED_REFS,
    ROUTER_GONE, Route, RouteStatus, SCHEDULED, SETTINGS_HONORED, Tls,
};

/// The condition of a Route that is bound to a Router whose selectors no longer match it.
pub const SELECTOR_MISMATCH: &str = "SelectorMismatch";
/// The reason of the condition `Admitted` of a Route whose host another one holds.
pub const HOST_TAKEN: &str = "HostAlreadyClaimed";
/// The reason of the conditions `Published` and `Resolvable` if no zone contains the names.
pub const NOT_PUBLISHED: &str = "NotPublished";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteInfo {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.creationTimestamp` in seconds since the epoch.
    pub created: i64,
    /// `metadata.generation`; none is 0.
    pub generation: Option<NonZeroI64>,
    /// `metadata.resourceVersion`; 0 if it is not a number.
    pub version: u64,
    /// `metadata.labels`.
    pub labels: Labels,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `spec.host`, if it is not empty.
    pub host: Option<Box<str>>,
    /// The path prefix that `spec.path` means, if it is not `/`.
    pub prefix: Option<Box<str>>,
    /// `spec.subdomain`, if it is not empty.
    pub subdomain: Option<Box<str>>,
    pub targets: RouteTargets,
    /// The settings that it requests.
    pub requested: Option<Box<Requested>>,
    /// The Router that its annotation requests.
    pub move_to: Option<Arc<str>>,
    /// Whether its status names a Router.
    pub bound: bool,
    /// The Router that its status names.
    pub router: Option<Arc<str>>,
    /// Whether its status lists names.
    pub has_names: bool,
    /// The host of its own among these names.
    pub custom_name: Option<Box<str>>,
    /// Whether `spec.host` is its system name in its Router's zone.
    pub host_is_system: bool,
    /// The digest of the names and former names in its status.
    pub names: NamesDigest,
    /// Whether it is bound, and `status.dns` or `status.canonicalName` does not follow from its host and names.
    pub has_wrong_main_names: bool,
    /// The name in its status that clients use over TLS that ends at the router, in lower case, if it has such TLS.
    pub tls_name: Option<Box<str>>,
    pub conditions: Conditions,
}

/// A digest of the names and former names of a Route, to detect whether its status lists those of its binding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NamesDigest(u64);

impl NamesDigest {
    pub fn new(names: &[AssignedName], former_names: &[FormerName]) -> Self {
        let mut hasher = DefaultHasher::new();
        for name in names {
            (&name.name, name.kind as u8, &name.record).hash(&mut hasher);
        }
        for former in former_names {
            let from = former.from.as_ref().map(|from| from.0);
            (&former.name, &former.router, former.since.0, from, former.until.0).hash(&mut hasher);
        }
        NamesDigest(hasher.finish())
    }
}

/// The conditions of a Route, and the values that depend on them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conditions {
    /// The parts of the status that are about an earlier generation.
    pub outdated: Outdated,
    pub scheduled: Option<Mark>,
    /// Whether `Scheduled` reports that the Router was deleted.
    pub router_gone: bool,
    pub admitted: Option<Mark>,
    /// Whether `Admitted` reports that another Route holds the host.
    pub host_taken: bool,
    /// `MovePending`.
    pub moving: Option<Mark>,
    /// [`SELECTOR_MISMATCH`].
    pub mismatch: Option<bool>,
    /// `SettingsHonored`.
    pub settings: Option<Mark>,
    /// The message of `FormerNameBlocked`, if that is true.
    pub former_name_blocked: Option<Box<str>>,
    /// The status of `HostVerified` for the current host.
    pub host_verified: Option<bool>,
    /// Whether there is a condition `HostVerified`, for any host.
    pub has_host_verified: bool,
    /// Whether its status has a challenge.
    pub has_challenge: bool,
    /// Whether that is of its present host.
    pub is_host_challenged: bool,
    /// Whether it has a condition `HostPointsHere`.
    pub has_points_here: bool,
    /// `Published`, `Resolvable`, `Programmed`, `ResolvedRefs`, `CertificateReady` and `Ready`.
    pub names: ReportedNames,
    /// The state that they add up to.
    pub state: RouteState,
    /// The reason of the deciding condition, if the Route waits for a Router.
    pub waits_for: Option<Box<str>>,
}

impl RouteInfo {
    /// Reads a Route.
    pub fn new(route: &Route) -> Self {
        let (metadata, status) = (&route.metadata, route.status.as_ref());
        let move_to = metadata.annotations.as_ref().and_then(|annotations| annotations.get(MOVE_ANNOTATION));
        let bound = status.filter(|status| status.phase == Phase::Scheduled);
        let text = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(Box::from);
        let host: Option<Box<str>> = text(&route.spec.host);
        let names = || status.into_iter().flat_map(|status| &status.names);
        let is_host = |name: &str| host.as_deref().is_some_and(|host| host.eq_ignore_ascii_case(name));
        RouteInfo {
            uid: Uid::of(metadata.uid.as_deref()),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            generation: metadata.generation.and_then(NonZeroI64::new),
            version: metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0),
            labels: metadata.labels.clone().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            prefix: Some(paths::prefix(route.spec.path.as_deref())).filter(|path| *path != paths::ROOT).map(Box::from),
            subdomain: text(&route.spec.subdomain),
            targets: RouteTargets::of(&route.spec),
            requested: Some(Requested::of(&route.spec, metadata.annotations.as_ref()))
                .filter(|requested| !requested.is_empty())
                .map(Box::new),
            move_to: move_to.filter(|router| !router.is_empty()).map(|router| router.as_str().into()),
            bound: bound.is_some(),
            router: bound.and_then(|status| status.router.as_deref()).map(Arc::from),
            has_names: names().next().is_some(),
            custom_name: names().find(|name| name.kind == NameKind::Custom).map(|name| name.name.as_str().into()),
            host_is_system: names().any(|name| name.kind == NameKind::System && is_host(&name.name)),
            names: status
                .map_or_else(NamesDigest::default, |status| NamesDigest::new(&status.names, &status.former_names)),
            has_wrong_main_names: bound.is_some_and(|status| !has_main_names(route.spec.host.as_deref(), status)),
            tls_name: tls_name(route),
            conditions: Conditions::new(route),
            host,
        }
    }

    /// Returns the path prefix.
    pub fn path(&self) -> &str {
        self.prefix.as_deref().unwrap_or(paths::ROOT)
    }

    /// Returns whether the status matches the binding.
    pub fn reports(&self, binding: &BindingInfo) -> bool {
        self.bound
            && !self.has_wrong_main_names
            && self.router.as_ref() == Some(&binding.router)
            && self.names == binding.names
    }

    /// Returns whether both are the same for scheduling: status aside, they are equal.
    pub fn decides_as(&self, other: &RouteInfo) -> bool {
        self.uid == other.uid
            && self.deleting == other.deleting
            && self.bound == other.bound
            && self.router == other.router
            && self.move_to == other.move_to
            && self.host == other.host
            && self.path() == other.path()
            && self.is_host_verified() == other.is_host_verified()
            && self.subdomain == other.subdomain
            && self.labels == other.labels
    }

    /// Returns whether the scheduler must handle the change from `before`: the Route is different, its conditions must be
    /// restored, or it waits, and its status must report the present generation.
    pub fn is_news(&self, before: Option<&RouteInfo>) -> bool {
        before.is_none_or(|before| {
            !self.decides_as(before)
                || before.has_more_conditions_than(self)
                || !self.bound && self.generation != before.generation
        })
    }

    /// Returns whether the other one lacks a condition that this one has, of those that the scheduler writes.
    fn has_more_conditions_than(&self, other: &RouteInfo) -> bool {
        let marks = |info: &RouteInfo| [info.conditions.scheduled, info.conditions.admitted, info.conditions.moving];
        let mut both = marks(self).into_iter().zip(marks(other));
        both.any(|(own, other)| own.is_some() && other.is_none())
    }

    /// Returns whether both have the same placement and conditions about it: conditions of their names aside, they are equal.
    pub fn is_placed_as(&self, other: &RouteInfo) -> bool {
        let of = |info: &RouteInfo| {
            let Conditions { scheduled, admitted, mismatch, host_verified, host_taken, router_gone, .. } =
                info.conditions;
            let said = (scheduled.map(Mark::is_true), admitted.map(Mark::is_true), mismatch, host_verified);
            let reported = (info.conditions.has_points_here, info.is_challenged(), info.conditions.outdated);
            (info.bound, said, host_taken, router_gone, reported)
        };
        of(self) == of(other)
            && self.uid == other.uid
            && (&self.host, &self.custom_name, &self.router) == (&other.host, &other.custom_name, &other.router)
            && self.tls_name == other.tls_name
            && self.path() == other.path()
            && self.names == other.names
            && self.has_wrong_main_names == other.has_wrong_main_names
            && self.conditions.former_name_blocked == other.conditions.former_name_blocked
            && (&self.requested, self.conditions.settings) == (&other.requested, other.conditions.settings)
            && self.labels == other.labels
    }

    /// Returns whether the ownership of its host is verified.
    pub fn is_host_verified(&self) -> bool {
        self.conditions.host_verified == Some(true)
    }

    /// Returns whether the status has a challenge for the host, or the result of one.
    pub fn is_challenged(&self) -> bool {
        self.conditions.has_challenge || self.conditions.has_host_verified
    }
}

fn tls_name(route: &Route) -> Option<Box<str>> {
    let ends_here = route.spec.tls.as_ref().is_some_and(Tls::ends_at_router);
    let status = route.status.as_ref().filter(|status| ends_here && status.phase == Phase::Scheduled)?;
    status.dns.as_deref().map(|name| name.to_ascii_lowercase().into())
}

impl Conditions {
    fn new(route: &Route) -> Self {
        let status = route.status.as_ref();
        let conditions = status.map_or(&[][..], |status| &status.conditions);
        let (state, decided) = status.map(RouteState::of).unwrap_or_default();
        let find = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
        let reports = |kind: &str| find(kind).map(|condition| condition.status == "True");
        let is_refused = |kind: &str, reason: &str| {
            find(kind).is_some_and(|condition| condition.status == "False" && condition.reason == reason)
        };
        let challenge = status.and_then(|status| status.challenge.as_ref());
        let is_of_host = || {
            let host = route.spec.host.as_deref().unwrap_or_default();
            challenge.is_some_and(|challenge| challenge.name == challenge_name(host))
        };
        Conditions {
            outdated: Outdated::new(status, route.metadata.generation),
            scheduled: Mark::find(conditions, SCHEDULED),
            router_gone: is_refused(SCHEDULED, ROUTER_GONE),
            admitted: Mark::find(conditions, ADMITTED),
            host_taken: is_refused(ADMITTED, HOST_TAKEN),
            moving: Mark::find(conditions, MOVE_PENDING),
            mismatch: reports(SELECTOR_MISMATCH),
            settings: Mark::find(conditions, SETTINGS_HONORED),
            former_name_blocked: find(FORMER_NAME_BLOCKED)
                .filter(|found| found.status == "True")
                .map(|found| found.message.as_str().into()),
            host_verified: reports(HOST_VERIFIED).filter(|_| is_of_host()),
            has_host_verified: find(HOST_VERIFIED).is_some(),
            has_challenge: challenge.is_some(),
            is_host_challenged: is_of_host(),
            has_points_here: find(HOST_POINTS_HERE).is_some(),
            names: ReportedNames::new(conditions, route.metadata.generation),
            state,
            waits_for: decided
                .filter(|_| state == RouteState::Pending)
                .map(|condition| condition.reason.as_str().into()),
        }
    }
}

/// The conditions that a new generation of the Route does not change, until their writers judge otherwise.
const STANDING: [&str; 8] = [
    SCHEDULED,
    ADMITTED,
    MOVE_PENDING,
    SELECTOR_MISMATCH,
    FORMER_NAME_BLOCKED,
    HOST_VERIFIED,
    HOST_POINTS_HERE,
    SETTINGS_HONORED,
];

/// The parts of a status whose `observedGeneration` is not that of the Route: a bit for each condition of `STANDING`, and one for the
/// status itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outdated(u16);

impl Outdated {
    const STATUS: u16 = 1 << STANDING.len();

    fn new(status: Option<&RouteStatus>, generation: Option<i64>) -> Self {
        let Some(status) = status else { return Outdated(if generation.is_some() { Self::STATUS } else { 0 }) };
        let is_outdated = |kind: &str| {
            let mut conditions = status.conditions.iter();
            conditions.any(|condition| condition.type_ == kind && condition.observed_generation != generation)
        };
        let bits = STANDING.iter().enumerate().filter(|(_, kind)| is_outdated(kind)).map(|(bit, _)| 1 << bit);
        let of_status = if status.observed_generation == generation { 0 } else { Self::STATUS };
        Outdated(bits.fold(of_status, |all, bit| all | bit))
    }

    /// Returns whether the status itself is.
    pub fn has_status(self) -> bool {
        self.0 & Self::STATUS != 0
    }

    /// Returns the conditions that are.
    pub fn conditions(self) -> impl Iterator<Item = &'static str> {
        STANDING.iter().enumerate().filter(move |(bit, _)| self.0 & (1 << bit) != 0).map(|(_, kind)| *kind)
    }
}

/// The conditions about a Route's names, shortened: there can be 100,000 Routes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportedNames {
    /// The state of `Published`.
    pub published: Option<Reported>,
    /// The state of `Resolvable`.
    pub resolvable: Option<Reported>,
    /// The state of `Programmed`.
    pub programmed: Option<Reported>,
    /// The state of `ResolvedRefs`.
    pub resolved_refs: Option<Reported>,
    /// The state of `CertificateReady`.
    pub certificate: Option<Reported>,
    /// The state of `Ready`.
    pub ready: Option<Reported>,
}

/// The state of one of these conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported {
    /// The condition.
    pub mark: Mark,
    /// Whether it reports that no zone contains the names.
    pub is_unpublished: bool,
    /// Whether it is about the current generation of the Route.
    pub is_current: bool,
}

impl Reported {
    /// Returns whether it is about the current generation of the Route, and its status is `True`.
    pub fn is_true_now(self) -> bool {
        self.is_current && self.mark.is_true()
    }

    /// Returns whether it is about the current generation, and as an update has it.
    pub fn is_as(self, update: &ConditionUpdate) -> bool {
        self.is_current && self.mark == Mark::of_update(update)
    }
}

impl ReportedNames {
    /// Returns the states in the conditions of a Route of this generation.
    pub fn new(conditions: &[Condition], generation: Option<i64>) -> Self {
        let reported = |kind: &str| {
            let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
            Some(Reported {
                mark: Mark::of(&condition.status, &condition.reason, &condition.message),
                is_unpublished: condition.reason == NOT_PUBLISHED,
                is_current: condition.observed_generation == generation,
            })
        };
        ReportedNames {
            published: reported(PUBLISHED),
            resolvable: reported(RESOLVABLE),
            programmed: reported(PROGRAMMED),
            resolved_refs: reported(RESOLVED_REFS),
            certificate: reported(CERTIFICATE_READY),
            ready: reported(READY),
        }
    }
}

/// A condition, small enough to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(NonZeroU64);

/// The bit that makes every digest nonzero: an optional mark takes eight bytes.
const HIGHEST: NonZeroU64 = NonZeroU64::MIN.saturating_add((1 << 63) - 1);

impl Mark {
    /// Returns the mark of a condition with these values.
    pub fn of(status: &str, reason: &str, message: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (status, reason, message).hash(&mut hasher);
        // The digest's lowest bit is set if the status is `True`, and its highest is always set.
        let digest = hasher.finish() & !1 | u64::from(status == "True");
        Mark(HIGHEST | digest)
    }

    /// Returns the mark of the condition of an update.
    pub fn of_update(update: &ConditionUpdate) -> Self {
        Mark::of(update.status.text(), update.reason, &update.message)
    }

    /// Returns whether its status is `True`.
    pub fn is_true(self) -> bool {
        self.0.get() & 1 == 1
    }

    fn find(conditions: &[Condition], kind: &str) -> Option<Self> {
        let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
        Some(Mark::of(&condition.status, &condition.reason, &condition.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_differ_where_conditions_do() {
        let mark = Mark::of("True", "Scheduled", "placed on shard1");
        assert!(mark.is_true() && mark == Mark::of("True", "Scheduled", "placed on shard1"));
        for other in
            [("False", "Scheduled", "placed on shard1"), ("True", "", "placed on shard1"), ("True", "Scheduled", "")]
        {
            assert_ne!(Mark::of(other.0, other.1, other.2), mark, "{other:?}");
        }
        assert!(!Mark::of("False", "x", "y").is_true() && !Mark::of("Unknown", "x", "y").is_true());
    }
}
