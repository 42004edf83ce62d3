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
use crate::hash::hash_of;
use signpost_types::assignment::has_main_names;
use signpost_types::names::challenge_name;
use signpost_types::paths;
use signpost_types::route_state::RouteState;
use signpost_types::traffic::Requested;
use signpost_types::v1alpha1::route::{
    ADMITTED, Adopted, AssignedName, CONDITIONS, FormerName, HOST_VERIFIED, MOVE_ANNOTATION, MOVE_PENDING, NameKind,
    Phase, Route, RouteCondition, SCHEDULED, Tls,
};
use signpost_types::v1alpha1::{SOURCE_LABEL, SOURCE_OBJECT_ANNOTATION};

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
    /// `spec.adopted`: the admission of the host.
    pub adopted: Option<Box<Adopted>>,
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
    /// The marks of a source, if one wrote it.
    pub source: Option<Box<SourceMarks>>,
    /// The Secret with the certificate for that name.
    pub tls_secret: Option<Box<str>>,
    pub conditions: Conditions,
}

/// The marks of a Route that a source wrote, and its admission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceMarks {
    /// The value of [`SOURCE_LABEL`].
    pub uid: Box<str>,
    /// The value of [`SOURCE_OBJECT_ANNOTATION`].
    pub object: Box<str>,
    /// `spec.adopted.router`.
    pub router: Box<str>,
    /// `spec.adopted.by`.
    pub by: Box<str>,
}

impl SourceMarks {
    /// Reads the marks of a Route.
    fn new(route: &Route) -> Option<Self> {
        let uid = route.metadata.labels.as_ref()?.get(SOURCE_LABEL)?;
        let annotations = route.metadata.annotations.as_ref();
        let object = annotations.and_then(|annotations| annotations.get(SOURCE_OBJECT_ANNOTATION));
        let adopted = route.spec.adopted.as_ref();
        Some(SourceMarks {
            uid: uid.as_str().into(),
            object: object.map_or("", String::as_str).into(),
            router: adopted.map_or("", |adopted| &adopted.router).into(),
            by: adopted.map_or("", |adopted| &adopted.by).into(),
        })
    }
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
    /// The known conditions in its status, in the order of [`CONDITIONS`].
    pub reported: Box<[Reported]>,
    /// Whether `status.observedGeneration` is not that of the Route.
    pub is_outdated: bool,
    /// Whether its status has a challenge.
    pub has_challenge: bool,
    /// Whether that is of its present host.
    pub is_host_challenged: bool,
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
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            generation: metadata.generation.and_then(NonZeroI64::new),
            version: metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0),
            labels: metadata.labels.clone().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            prefix: Some(paths::prefix(route.spec.path.as_deref())).filter(|path| *path != paths::ROOT).map(Box::from),
            subdomain: text(&route.spec.subdomain),
            targets: RouteTargets::of(&route.spec),
            adopted: route.spec.adopted.clone().map(Box::new),
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
            source: SourceMarks::new(route).map(Box::new),
            tls_secret: route
                .spec
                .tls
                .as_ref()
                .filter(|tls| tls.ends_at_router())
                .and_then(|tls| text(&tls.secret_name)),
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
            && self.adopted == other.adopted
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
        let has = |info: &RouteInfo, kind: &str| info.conditions.get(kind).is_some();
        [SCHEDULED, ADMITTED, MOVE_PENDING].into_iter().any(|kind| has(self, kind) && !has(other, kind))
    }

    /// Returns whether both have the same placement and conditions about it: conditions of their names aside, they are equal.
    pub fn is_placed_as(&self, other: &RouteInfo) -> bool {
        let of = |info: &RouteInfo| {
            let Conditions { is_outdated, has_challenge, is_host_challenged, .. } = info.conditions;
            (info.bound, is_outdated, has_challenge, is_host_challenged)
        };
        of(self) == of(other)
            && self.conditions.unaffected().eq(other.conditions.unaffected())
            && self.uid == other.uid
            && (&self.host, &self.custom_name, &self.router) == (&other.host, &other.custom_name, &other.router)
            && self.tls_name == other.tls_name
            && self.path() == other.path()
            && self.names == other.names
            && self.has_wrong_main_names == other.has_wrong_main_names
            && self.requested == other.requested
            && self.labels == other.labels
    }

    /// Returns the Router that its host's admission names.
    pub fn adopted_router(&self) -> Option<&str> {
        self.adopted.as_ref().map(|adopted| adopted.router.as_str())
    }

    /// Returns whether the ownership of its host is verified.
    pub fn is_host_verified(&self) -> bool {
        self.conditions.host_verified() == Some(true)
    }

    /// Returns whether the status has a challenge for the host, or the result of one.
    pub fn is_challenged(&self) -> bool {
        self.conditions.has_challenge || self.conditions.get(HOST_VERIFIED).is_some()
    }
}

fn tls_name(route: &Route) -> Option<Box<str>> {
    let ends_here = route.spec.tls.as_ref().is_some_and(Tls::ends_at_router);
    let status = route.status.as_ref().filter(|status| ends_here && status.phase == Phase::Scheduled)?;
    status.dns.as_deref().map(|name| name.to_ascii_lowercase().into())
}

impl Conditions {
    fn new(route: &Route) -> Self {
        let (status, generation) = (route.status.as_ref(), route.metadata.generation);
        let (state, decided) = status.map(RouteState::of).unwrap_or_default();
        let challenge = status.and_then(|status| status.challenge.as_ref());
        let host = route.spec.host.as_deref().unwrap_or_default();
        Conditions {
            is_outdated: status.and_then(|status| status.observed_generation) != generation,
            has_challenge: challenge.is_some(),
            is_host_challenged: challenge.is_some_and(|challenge| challenge.name == challenge_name(host)),
            state,
            waits_for: decided
                .filter(|_| state == RouteState::Pending)
                .map(|condition| condition.reason.as_str().into()),
            ..Conditions::of(status.map_or(&[][..], |status| &status.conditions), generation)
        }
    }

    /// Returns these conditions of a Route of this generation.
    pub fn of(conditions: &[Condition], generation: Option<i64>) -> Self {
        let reported = |known: &'static RouteCondition| {
            let condition = conditions.iter().find(|condition| condition.type_ == known.kind)?;
            Some(Reported {
                mark: Mark::of(&condition.status, &condition.reason, &condition.message),
                reason: reason_digest(&condition.reason),
                row: u8::try_from(CONDITIONS.iter().position(|row| row == known)?).ok()?,
                is_current: condition.observed_generation == generation,
            })
        };
        Conditions { reported: CONDITIONS.iter().filter_map(reported).collect(), ..Conditions::default() }
    }

    /// Returns these conditions, at the generation of the Route.
    #[cfg(test)]
    pub fn of_statuses(conditions: impl IntoIterator<Item = (&'static str, bool)>) -> Self {
        let update = |(kind, is_true): (&'static str, bool)| ConditionUpdate {
            kind,
            status: is_true.into(),
            reason: "",
            message: String::new(),
        };
        Conditions::of_updates(conditions.into_iter().map(update))
    }

    #[cfg(test)]
    pub fn of_updates(updates: impl IntoIterator<Item = ConditionUpdate>) -> Self {
        let conditions = updates.into_iter().map(|update| update.condition(None, jiff::Timestamp::UNIX_EPOCH));
        Conditions::of(&conditions.collect::<Vec<_>>(), None)
    }

    /// Returns the state of a condition.
    pub fn get(&self, kind: &str) -> Option<Reported> {
        self.reported.iter().find(|reported| reported.known().kind == kind).copied()
    }

    /// Returns whether the status of a condition is `True`, if there is one.
    pub fn is_true(&self, kind: &str) -> Option<bool> {
        self.get(kind).map(|reported| reported.mark.is_true())
    }

    /// Returns whether a condition is not met for this reason.
    pub fn is_refused(&self, kind: &str, reason: &str) -> bool {
        self.get(kind).is_some_and(|reported| !reported.mark.is_true() && reported.has_reason(reason))
    }

    /// Returns the conditions of an earlier generation that a new one does not change.
    pub fn outdated(&self) -> impl Iterator<Item = &'static str> {
        self.unaffected().filter(|reported| !reported.is_current).map(|reported| reported.known().kind)
    }

    /// Returns the status of `HostVerified` for the present host.
    pub fn host_verified(&self) -> Option<bool> {
        self.is_true(HOST_VERIFIED).filter(|_| self.is_host_challenged)
    }

    fn unaffected(&self) -> impl Iterator<Item = &Reported> {
        self.reported.iter().filter(|reported| reported.known().is_unaffected)
    }
}

/// The state of a condition, small enough to keep and compare: there can be 100,000 Routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported {
    /// The condition.
    pub mark: Mark,
    /// The digest of the reason.
    reason: u32,
    /// The index in [`CONDITIONS`].
    row: u8,
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

    /// Returns whether it has this reason.
    pub fn has_reason(self, reason: &str) -> bool {
        self.reason == reason_digest(reason)
    }

    fn known(self) -> &'static RouteCondition {
        &CONDITIONS[usize::from(self.row)]
    }
}

/// Returns a digest that distinguishes the few reasons of a condition.
fn reason_digest(reason: &str) -> u32 {
    (hash_of(reason) >> 32) as u32
}

/// A condition, small enough to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(NonZeroU64);

/// The bit that makes every digest nonzero: an optional mark takes eight bytes.
const HIGHEST: NonZeroU64 = NonZeroU64::MIN.saturating_add((1 << 63) - 1);

impl Mark {
    /// Returns the mark of a condition with these values.
    pub fn of(status: &str, reason: &str, message: &str) -> Self {
        // The digest's lowest bit is set if the status is `True`, and its highest is always set.
        let digest = hash_of(&(status, reason, message)) & !1 | u64::from(status == "True");
        Mark(HIGHEST | digest)
    }

    /// Returns the mark of the condition of an update.
    pub fn of_update(update: &ConditionUpdate) -> Self {
        Mark::of(update.status.text(), update.reason, update.message_text())
    }

    /// Returns whether its status is `True`.
    pub fn is_true(self) -> bool {
        self.0.get() & 1 == 1
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
