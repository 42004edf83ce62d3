//! NameClaims: the controller releases them after their Route, keeps them in quarantine, and deletes them.
//!
//! ```text
//!            Route deleted, or its name changed                            quarantine over
//!   held ─────────────────────────────────────────────────► released ──────────────────────► (deleted)
//!     ▲                                                        │
//!     └────── a Route of the same namespace and name ──────────┘   (or, for a host, the Route that has waited longest)
//! ```
//!
//! If hosts must be verified, the claim on a host is also released when its Route loses verification. That Route stays bound;
//! when it is verified again and the host is free, the claim is created for it again ([`reclaim`]).
//!
//! The label of a RouteBinding that finalizers keep after its Route is held until the RouteBinding is deleted.
//!
//! A *label* stays in quarantine for the time in the settings, thirty days by default: bookmarks, caches, and certificates of the
//! old application must not lead to another tenant's. During that time, only a Route of the same namespace and name gets it back,
//! through the scheduler. The *host* of a deleted Route is also reserved, for minutes: a Route that is deleted and re-created
//! keeps its host, even if others wait for it. After that, or immediately if the Route gave the host up, the scheduler gives it
//! to the Route that has waited longest, and its claim is deleted if no Route takes it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};

use super::Settings;
use crate::client::reflector::ObjectKey;
use crate::client::uid::Uid;
use crate::scheduler::claim::{Claimed, claim};
use crate::world::{BindingInfo, ClaimInfo, RouteInfo, later};
use signpost_types::names::covers;
use signpost_types::v1alpha1::name_claim::{ClaimKind, Holder, NameClaim, NameClaimSpec};
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::route_binding::RouteBinding;

/// The next action for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Keep,
    /// Nothing before this time.
    LookAgain(Timestamp),
    Release,
    /// The holder is another Route of the same namespace and name, and uses the claim: store its uid.
    Adopt,
    /// Delete the claim.
    Purge,
}

/// Returns the next action for `claim`, given the current Route under its holder's name, and that Route's binding.
pub fn next_step(
    claim: &ClaimInfo,
    route: Option<&RouteInfo>,
    binding: Option<&BindingInfo>,
    now: Timestamp,
    settings: &Settings,
) -> Step {
    if let Some(released) = claim.released.as_deref() {
        let end = match claim.kind {
            ClaimKind::Label => released.quarantine_until.unwrap_or(released.at),
            ClaimKind::Host => released.quarantine_until.unwrap_or_else(|| later(released.at, settings.host_grace)),
        };
        return if end <= now { Step::Purge } else { Step::LookAgain(end) };
    }
    // A finalizer can keep a former Route's binding, and with it the name, which is served until the binding is deleted.
    let is_left = |binding: &BindingInfo| binding.deleting || route.is_none();
    let is_of_label = |binding: &BindingInfo| binding.label.eq_ignore_ascii_case(&claim.value);
    if claim.kind == ClaimKind::Label && binding.is_some_and(|binding| is_left(binding) && is_of_label(binding)) {
        return Step::LookAgain(later(now, settings.host_grace));
    }
    let Some(route) = route else { return Step::Release };
    let is_holder = route.uid == claim.holder_uid;
    let binding = binding.filter(|binding| binding.route_uid == route.uid);
    let uses = match (claim.kind, binding) {
        (ClaimKind::Host, _) => {
            let wants = route.host.as_deref().is_some_and(|host| host.eq_ignore_ascii_case(&claim.value));
            // Without verification, a route holds no claim on a host. A host from before verification was enabled has a grace
            // period without a negative condition; a re-created Route must verify again.
            let is_verified = route.conditions.host_verified.unwrap_or(is_holder);
            Some(wants && (is_verified || !settings.verify_hosts))
        }
        (ClaimKind::Label, Some(binding)) => Some(binding.label.eq_ignore_ascii_case(&claim.value)),
        // The Route is about to be placed, which decides. A re-created Route can wait for long, and gets the label back when it
        // is placed.
        (ClaimKind::Label, None) => (!is_holder).then_some(false),
    };
    match uses {
        Some(false) => Step::Release,
        Some(true) if !is_holder => Step::Adopt,
        Some(true) => Step::Keep,
        None => Step::LookAgain(later(now, settings.host_grace)),
    }
}

/// Executes the action for the claim `name`, by the current state in the API. Returns the name of the action.
pub async fn settle(client: &kube::Client, name: &str, settings: &Settings) -> kube::Result<Option<&'static str>> {
    let claims: Api<NameClaim> = Api::all(client.clone());
    let Some(mut claim) = claims.get_opt(name).await? else { return Ok(None) };
    let holder = claim.spec.holder.clone();
    let routes: Api<Route> = Api::namespaced(client.clone(), &holder.namespace);
    let bindings: Api<RouteBinding> = Api::namespaced(client.clone(), &holder.namespace);
    let route = routes.get_opt(&holder.name).await?.map(|route| RouteInfo::new(&route));
    let binding = bindings.get_opt(&holder.name).await?.map(|binding| BindingInfo::new(&binding));
    let now = Timestamp::now();
    let step = next_step(&ClaimInfo::new(&claim), route.as_ref(), binding.as_ref(), now, settings);
    let action = match (step, route) {
        (Step::Keep | Step::LookAgain(_), _) | (Step::Adopt, None) => return Ok(None),
        (Step::Purge, _) => return purge(&claims, claim).await,
        (Step::Release, route) => {
            claim.spec.released_at = Some(Time(now));
            claim.spec.quarantine_until = match claim.spec.kind {
                ClaimKind::Label => Some(Time(later(now, settings.quarantine))),
                ClaimKind::Host if settings.host_reservation.is_zero() => None,
                ClaimKind::Host => {
                    is_reserved_after(&claim.spec, route.as_ref()).then(|| Time(later(now, settings.host_reservation)))
                }
            };
            "released"
        }
        (Step::Adopt, Some(route)) => {
            claim.spec.holder.uid = route.uid.to_string();
            "adopted"
        }
    };
    // With the version that was read: a concurrent change is more recent.
    claims.replace(name, &PostParams::default(), &claim).await?;
    Ok(Some(action))
}

/// Returns whether a released host is reserved for its namespace and name: its Route was deleted, and may be re-created, or was
/// re-created and is not verified yet. A Route with another host, or without verification, has given it up.
fn is_reserved_after(claim: &NameClaimSpec, route: Option<&RouteInfo>) -> bool {
    route.is_none_or(|route| {
        let wants = route.host.as_deref().is_some_and(|host| host.eq_ignore_ascii_case(&claim.value));
        wants && route.uid != Uid::new(&claim.holder.uid)
    })
}

/// Returns whether a binding has no Route, or not the current one.
pub fn is_stray(binding: &BindingInfo, route: Option<&RouteInfo>) -> bool {
    route.is_none_or(|route| route.uid != binding.route_uid)
}

/// Returns whether two hosts overlap: one is a wildcard, and covers the other.
pub fn overlap(one: &str, other: &str) -> bool {
    covers(one, other) || covers(other, one)
}

/// Creates the claim on the host of the bound Route at `key` again, if the Route still has this uid and the host is free
/// according to the API.
pub async fn reclaim(client: &kube::Client, key: &ObjectKey, uid: &str) -> kube::Result<Option<&'static str>> {
    let namespace = key.namespace().to_owned();
    let routes: Api<Route> = Api::namespaced(client.clone(), &namespace);
    let route = routes.get_opt(&key.name).await?.filter(|route| route.metadata.uid.as_deref() == Some(uid));
    let Some(host) = route.and_then(|route| RouteInfo::new(&route).host) else { return Ok(None) };
    let holder = Holder { namespace, name: key.name.clone(), uid: uid.to_owned() };
    let claimed = claim(client, ClaimKind::Host, &host, &holder, Timestamp::now()).await?;
    Ok((claimed == Claimed::Ours).then_some("taken_back"))
}

async fn purge(claims: &Api<NameClaim>, claim: NameClaim) -> kube::Result<Option<&'static str>> {
    let name = claim.metadata.name.unwrap_or_default();
    let preconditions = Preconditions { uid: claim.metadata.uid, resource_version: claim.metadata.resource_version };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match claims.delete(&name, &parameters).await {
        Ok(_) => Ok(Some("purged")),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::claim::Released;
    use crate::world::route::Conditions;

    fn route(uid: &str, host: Option<&str>) -> RouteInfo {
        RouteInfo { uid: Uid::new(uid), host: host.map(Box::from), ..RouteInfo::default() }
    }

    #[test]
    fn the_host_of_a_deleted_route_is_kept_for_it() {
        let holder = Holder { namespace: "ns".to_owned(), name: "app".to_owned(), uid: "u1".to_owned() };
        let claim = NameClaimSpec {
            kind: ClaimKind::Host,
            value: "www.shop.example".to_owned(),
            holder,
            since: Time(Timestamp::UNIX_EPOCH),
            released_at: None,
            quarantine_until: None,
        };
        for (what, route, kept) in [
            ("deleted", None, true),
            ("created again, unverified", Some(route("u2", Some("WWW.shop.example"))), true),
            ("created again without it", Some(route("u2", None)), false),
            ("given up", Some(route("u1", Some("x.example"))), false),
            ("its proof is lost", Some(route("u1", Some("www.shop.example"))), false),
        ] {
            assert_eq!(is_reserved_after(&claim, route.as_ref()), kept, "{what}");
        }
    }

    #[test]
    fn steps() {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let settings = Settings::default();
        let now = at(1_000_000);
        let held = |kind: ClaimKind| ClaimInfo {
            kind,
            value: if kind == ClaimKind::Label { "ns-app" } else { "www.shop.example" }.into(),
            holder: "ns/app".into(),
            holder_uid: Uid::new("u1"),
            released: None,
        };
        let released = |kind: ClaimKind, at_second: i64, until: Option<i64>| ClaimInfo {
            released: Some(Box::new(Released { at: at(at_second), quarantine_until: until.map(at) })),
            ..held(kind)
        };
        let unverified = |uid: &str, host_verified: Option<bool>| RouteInfo {
            conditions: Conditions { host_verified, ..Conditions::default() },
            ..route(uid, Some("www.shop.example"))
        };
        let binding = |uid: &str, label: &str| BindingInfo {
            route_uid: Uid::new(uid),
            label: label.into(),
            ..BindingInfo::default()
        };
        let left = |label: &str| BindingInfo { deleting: true, ..binding("u1", label) };
        let (label, host) = (ClaimKind::Label, ClaimKind::Host);
        let soon = Step::LookAgain(later(now, settings.host_grace));
        for (what, claim, route, binding, step) in [
            ("its route is gone", held(label), None, None, Step::Release),
            ("a finalizer holds what its route has left", held(label), None, Some(left("ns-app")), soon),
            ("it was not marked yet", held(label), None, Some(binding("u1", "ns-app")), soon),
            ("the held binding has another label", held(label), None, Some(left("other")), Step::Release),
            ("a host is not held so", held(host), None, Some(left("ns-app")), Step::Release),
            ("it is bound", held(label), Some(route("u1", None)), Some(binding("u1", "ns-app")), Step::Keep),
            ("it is about to be bound", held(label), Some(route("u1", None)), None, soon),
            (
                "another label is used",
                held(label),
                Some(route("u1", None)),
                Some(binding("u1", "other")),
                Step::Release,
            ),
            (
                "re-created, not yet bound",
                held(label),
                Some(route("u2", None)),
                Some(binding("u1", "ns-app")),
                Step::Release,
            ),
            ("re-created and bound", held(label), Some(route("u2", None)), Some(binding("u2", "ns-app")), Step::Adopt),
            ("re-created elsewhere", held(label), Some(route("u2", None)), Some(binding("u2", "x")), Step::Release),
            ("in quarantine", released(label, 1, Some(2_000_000)), None, None, Step::LookAgain(at(2_000_000))),
            ("quarantine over", released(label, 1, Some(999_999)), None, None, Step::Purge),
            ("host held", held(host), Some(route("u1", Some("WWW.Shop.example"))), None, Step::Keep),
            ("host changed", held(host), Some(route("u1", Some("x.example"))), None, Step::Release),
            ("host given up", held(host), Some(route("u1", None)), None, Step::Release),
            ("host's route gone", held(host), None, None, Step::Release),
            ("host's route re-created", held(host), Some(route("u2", Some("www.shop.example"))), None, Step::Adopt),
            ("host unverified, not required", held(host), Some(unverified("u1", Some(false))), None, Step::Keep),
            ("host just released", released(host, 999_990, None), None, None, Step::LookAgain(at(1_000_050))),
            ("host without a new claim", released(host, 999_940, None), None, None, Step::Purge),
        ] {
            assert_eq!(next_step(&claim, route.as_ref(), binding.as_ref(), now, &settings), step, "{what}");
        }
        let settings = Settings { verify_hosts: true, ..settings };
        for (what, uid, verified, step) in [
            ("verified", "u1", Some(true), Step::Keep),
            ("held from before, no condition yet", "u1", None, Step::Keep),
            ("the proof is lost", "u1", Some(false), Step::Release),
            ("re-created and not verified yet", "u2", None, Step::Release),
            ("re-created and verified", "u2", Some(true), Step::Adopt),
        ] {
            let route = unverified(uid, verified);
            assert_eq!(next_step(&held(host), Some(&route), None, now, &settings), step, "{what}");
        }
    }
}
