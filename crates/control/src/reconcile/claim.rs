//! NameClaims: the controller releases them after their Route, keeps them in quarantine, and deletes them.
//!
//! ```text
//!            Route deleted, or its name changed                            quarantine over
//!   held ─────────────────────────────────────────────────► released ──────────────────────► (deleted)
//!     ▲                                                        │
//!     └────── a Route of the same namespace and name ──────────┘   (or, for a host, the Route that has waited longest)
//! ```
//!
//! Routes of one namespace share the claim on a host, each with another path. A Route that no longer uses the host leaves the claim, and
//! the last one releases it. If a Route changes its path to that of another one, the older of both has the path, as the agents decide
//! (`resolve`); the other one leaves the claim.
//!
//! If hosts must be verified, the claim on a host is also released when its Route loses verification. That Route stays bound;
//! when it is verified again and the host is free, the claim is created for it again ([`reclaim`]).
//!
//! While the loss of a Route is held ([`Owners`]), its claims stay.
//!
//! The label of a RouteBinding that finalizers keep after its Route is held until the RouteBinding is deleted.
//!
//! A *label* stays in quarantine for the time in the settings, thirty days by default: bookmarks, caches, and certificates of the
//! old application must not lead to another tenant's. During that time, only a Route of the same namespace and name gets it back,
//! through the scheduler. The *host* of a deleted Route is also reserved, for minutes: a Route that is deleted and re-created
//! keeps its host, even if others wait for it. After that, or immediately if the Route gave the host up, the scheduler gives it
//! to the Route that has waited longest, and its claim is deleted if no Route takes it.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{PostParams, Preconditions};

use super::Settings;
use crate::client::reflector::ObjectKey;
use crate::client::uid::Uid;
use crate::client::write;
use crate::scheduler::claim::{Claimed, claim};
use crate::world::owners::Owners;
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
    /// The holder is another Route of the same namespace and name, and uses the claim: store its uid. Of a host, the Routes that use it, or
    /// their paths, have changed.
    Update,
    /// Delete the claim.
    Purge,
}

/// Returns the next action for `claim`, given the current Routes under its holders' names, and the binding of the first one.
pub fn next_step<'a>(
    claim: &ClaimInfo,
    find: impl Fn(&ObjectKey) -> Option<&'a RouteInfo>,
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
    if claim.kind == ClaimKind::Host {
        let users = users(claim, find, settings);
        let is_same = || users.iter().map(|user| (user.key.clone(), user.uid, user.path)).eq(claim.holders());
        return match users.is_empty() {
            true => Step::Release,
            false if is_same() => Step::Keep,
            false => Step::Update,
        };
    }
    let route = find(&claim.holder_key());
    // A finalizer can keep a former Route's binding, and with it the name, which is served until the binding is deleted.
    let is_left = |binding: &BindingInfo| binding.deleting || route.is_none();
    let is_of_label = |binding: &BindingInfo| binding.label.eq_ignore_ascii_case(&claim.value);
    if binding.is_some_and(|binding| is_left(binding) && is_of_label(binding)) {
        return Step::LookAgain(later(now, settings.host_grace));
    }
    let Some(route) = route else { return Step::Release };
    let is_holder = route.uid == claim.holder_uid;
    let binding = binding.filter(|binding| binding.route_uid == route.uid);
    let uses = match binding {
        Some(binding) => Some(binding.label.eq_ignore_ascii_case(&claim.value)),
        // The Route is about to be placed, which decides. A re-created Route can wait for long, and gets the label back when it
        // is placed.
        None => (!is_holder).then_some(false),
    };
    match uses {
        Some(false) => Step::Release,
        Some(true) if !is_holder => Step::Update,
        Some(true) => Step::Keep,
        None => Step::LookAgain(later(now, settings.host_grace)),
    }
}

/// A Route that uses the host of a claim.
struct User<'a> {
    key: ObjectKey,
    uid: &'a Uid,
    path: &'a str,
    created: i64,
}

/// Returns the Routes of a claim on a host that still use it, in the order of the claim. Of those with one path, the oldest has it.
fn users<'a>(
    claim: &ClaimInfo,
    find: impl Fn(&ObjectKey) -> Option<&'a RouteInfo>,
    settings: &Settings,
) -> Vec<User<'a>> {
    let mut users: Vec<User<'a>> = Vec::new();
    for (key, uid, _) in claim.holders() {
        let Some(route) = find(&key) else { continue };
        let wants = route.host.as_deref().is_some_and(|host| host.eq_ignore_ascii_case(&claim.value));
        // Without verification, a route holds no claim on a host. A host from before verification was enabled has a grace
        // period without a negative condition; a re-created Route must verify again.
        let is_verified = route.conditions.host_verified().unwrap_or(route.uid == *uid);
        if wants && (is_verified || !settings.verify_hosts || route.adopted.is_some()) {
            users.push(User { key, uid: &route.uid, path: route.path(), created: route.created });
        }
    }
    let oldest = |path: &str| users.iter().filter(|user| user.path == path).map(|user| (user.created, &user.key)).min();
    let is_oldest: Vec<bool> = users.iter().map(|user| oldest(user.path) == Some((user.created, &user.key))).collect();
    let mut is_oldest = is_oldest.into_iter();
    users.retain(|_| is_oldest.next() == Some(true));
    users
}

/// Executes the action for the claim `name`, by the current state in the API. Returns the name of the action.
pub async fn settle(
    client: &kube::Client,
    name: &str,
    planned: Step,
    settings: &Settings,
    owners: &Owners,
) -> kube::Result<Option<&'static str>> {
    let claims: Api<NameClaim> = Api::all(client.clone());
    let Some(mut claim) = claims.get_opt(name).await? else { return Ok(None) };
    let (info, holder) = (ClaimInfo::new(&claim), claim.spec.holder.clone());
    let routes: Api<Route> = Api::namespaced(client.clone(), &holder.namespace);
    let bindings: Api<RouteBinding> = Api::namespaced(client.clone(), &holder.namespace);
    let mut found: HashMap<ObjectKey, RouteInfo> = HashMap::new();
    for (key, ..) in info.holders() {
        let route = routes.get_opt(&key.name).await?;
        found.extend(route.map(|route| (key, RouteInfo::new(&route))));
    }
    let binding = bindings.get_opt(&holder.name).await?.map(|binding| BindingInfo::new(&binding));
    let now = Timestamp::now();
    let step = next_step(&info, |key| found.get(key), binding.as_ref(), now, settings);
    // The informer has not shown yet, or just now, that the Route is missing, so its loss was not judged at the time of the plan.
    if step == Step::Release && planned != step || info.is_kept(|key| owners.keeps_route(key)) {
        return Ok(None);
    }
    let action = match step {
        Step::Keep | Step::LookAgain(_) => return Ok(None),
        Step::Purge => return purge(&claims, claim).await,
        Step::Release => {
            let route = found.get(&info.holder_key());
            claim.spec.sharers.clear();
            claim.spec.released_at = Some(Time(now));
            claim.spec.quarantine_until = match claim.spec.kind {
                ClaimKind::Label => Some(Time(later(now, settings.quarantine))),
                ClaimKind::Host if settings.host_reservation.is_zero() => None,
                ClaimKind::Host => {
                    is_reserved_after(&claim.spec, route).then(|| Time(later(now, settings.host_reservation)))
                }
            };
            "released"
        }
        Step::Update if info.kind == ClaimKind::Host => {
            let users = users(&info, |key| found.get(key), settings);
            let mut holders = users.iter().map(|user| Holder {
                namespace: holder.namespace.clone(),
                name: user.key.name.clone(),
                uid: user.uid.to_string(),
                path: Some(user.path.to_owned()),
            });
            let Some(first) = holders.next() else { return Ok(None) };
            claim.spec.set_holders(first, holders);
            "updated"
        }
        Step::Update => {
            let Some(route) = found.get(&info.holder_key()) else { return Ok(None) };
            claim.spec.holder.uid = route.uid.to_string();
            "updated"
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
        wants && route.uid != Uid::from(&*claim.holder.uid)
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
    let Some(route) = route.map(|route| RouteInfo::new(&route)) else { return Ok(None) };
    let Some(host) = &route.host else { return Ok(None) };
    let path = Some(route.path().to_owned());
    let holder = Holder { namespace, name: key.name.clone(), uid: uid.to_owned(), path };
    let claimed = claim(client, ClaimKind::Host, host, &holder, Timestamp::now()).await?;
    Ok((claimed == Claimed::Ours).then_some("taken_back"))
}

async fn purge(claims: &Api<NameClaim>, claim: NameClaim) -> kube::Result<Option<&'static str>> {
    let name = claim.metadata.name.unwrap_or_default();
    let preconditions = Preconditions { uid: claim.metadata.uid, resource_version: claim.metadata.resource_version };
    Ok(write::delete(claims, &name, Some(preconditions)).await?.then_some("purged"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::claim::{Released, SharedHost};
    use crate::world::route::Conditions;
    use signpost_types::v1alpha1::route::HOST_VERIFIED;

    fn route(uid: &str, host: Option<&str>) -> RouteInfo {
        RouteInfo { uid: Uid::from(uid), host: host.map(Box::from), ..RouteInfo::default() }
    }

    #[test]
    fn the_host_of_a_deleted_route_is_kept_for_it() {
        let holder = Holder { namespace: "ns".to_owned(), name: "app".to_owned(), uid: "u1".to_owned(), path: None };
        let claim = NameClaimSpec {
            kind: ClaimKind::Host,
            value: "www.shop.example".to_owned(),
            holder,
            sharers: Vec::new(),
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
            holder_uid: Uid::from("u1"),
            shares: None,
            released: None,
        };
        let released = |kind: ClaimKind, at_second: i64, until: Option<i64>| ClaimInfo {
            released: Some(Box::new(Released { at: at(at_second), quarantine_until: until.map(at) })),
            ..held(kind)
        };
        let unverified = |uid: &str, host_verified: Option<bool>| {
            let reported = Conditions::of_statuses(host_verified.map(|is_true| (HOST_VERIFIED, is_true)));
            let conditions = Conditions { is_host_challenged: true, ..reported };
            RouteInfo { conditions, ..route(uid, Some("www.shop.example")) }
        };
        let binding = |uid: &str, label: &str| BindingInfo {
            route_uid: Uid::from(uid),
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
            ("re-created and bound", held(label), Some(route("u2", None)), Some(binding("u2", "ns-app")), Step::Update),
            ("re-created elsewhere", held(label), Some(route("u2", None)), Some(binding("u2", "x")), Step::Release),
            ("in quarantine", released(label, 1, Some(2_000_000)), None, None, Step::LookAgain(at(2_000_000))),
            ("quarantine over", released(label, 1, Some(999_999)), None, None, Step::Purge),
            ("host held", held(host), Some(route("u1", Some("WWW.Shop.example"))), None, Step::Keep),
            ("host changed", held(host), Some(route("u1", Some("x.example"))), None, Step::Release),
            ("host given up", held(host), Some(route("u1", None)), None, Step::Release),
            ("host's route gone", held(host), None, None, Step::Release),
            ("host's route re-created", held(host), Some(route("u2", Some("www.shop.example"))), None, Step::Update),
            ("host unverified, not required", held(host), Some(unverified("u1", Some(false))), None, Step::Keep),
            ("host just released", released(host, 999_990, None), None, None, Step::LookAgain(at(1_000_050))),
            ("host without a new claim", released(host, 999_940, None), None, None, Step::Purge),
        ] {
            let found = next_step(&claim, |_| route.as_ref(), binding.as_ref(), now, &settings);
            assert_eq!(found, step, "{what}");
        }
        let settings = Settings { verify_hosts: true, ..settings };
        for (what, uid, verified, step) in [
            ("verified", "u1", Some(true), Step::Keep),
            ("held from before, no condition yet", "u1", None, Step::Keep),
            ("the proof is lost", "u1", Some(false), Step::Release),
            ("re-created and not verified yet", "u2", None, Step::Release),
            ("re-created and verified", "u2", Some(true), Step::Update),
        ] {
            let route = unverified(uid, verified);
            assert_eq!(next_step(&held(host), |_| Some(&route), None, now, &settings), step, "{what}");
        }
    }

    #[test]
    fn routes_that_share_a_host_come_and_go() {
        let claim = |holders: &[(&str, &str, &str)]| {
            let [(name, uid, path), others @ ..] = holders else { unreachable!("there is one") };
            let sharer = |(name, uid, path): &(&str, &str, &str)| ((*name).into(), Uid::from(*uid), (*path).into());
            let shares = SharedHost { path: (*path).into(), sharers: others.iter().map(sharer).collect() };
            ClaimInfo {
                kind: ClaimKind::Host,
                value: "www.shop.example".into(),
                holder: ["ns/", name].concat().into(),
                holder_uid: Uid::from(*uid),
                shares: Some(Box::new(shares)),
                released: None,
            }
        };
        let routes = |all: &[(&str, &str, &str, i64)]| -> HashMap<ObjectKey, RouteInfo> {
            let of = |(name, uid, path, created): &(&str, &str, &str, i64)| {
                let prefix = Some(*path).filter(|path| *path != "/").map(Box::from);
                let route = RouteInfo { prefix, created: *created, ..route(uid, Some("www.shop.example")) };
                (ObjectKey::namespaced("ns", name), route)
            };
            all.iter().map(of).collect()
        };
        let settings = Settings::default();
        let both = claim(&[("web", "u1", "/"), ("api", "u2", "/api")]);
        for (what, there, step, users_now) in [
            ("both", routes(&[("web", "u1", "/", 1), ("api", "u2", "/api", 2)]), Step::Keep, "web/ api/api"),
            ("the first is gone", routes(&[("api", "u2", "/api", 2)]), Step::Update, "api/api"),
            ("the second is gone", routes(&[("web", "u1", "/", 1)]), Step::Update, "web/"),
            ("none is left", routes(&[]), Step::Release, ""),
            ("re-created", routes(&[("web", "u1", "/", 1), ("api", "u9", "/api", 9)]), Step::Update, "web/ api/api"),
            ("another path", routes(&[("web", "u1", "/", 1), ("api", "u2", "/v2", 2)]), Step::Update, "web/ api/v2"),
            ("the path of an older one", routes(&[("web", "u1", "/", 1), ("api", "u2", "/", 2)]), Step::Update, "web/"),
            ("the path of a newer one", routes(&[("web", "u1", "/", 2), ("api", "u2", "/", 1)]), Step::Update, "api/"),
            ("of the same age", routes(&[("web", "u1", "/", 1), ("api", "u2", "/", 1)]), Step::Update, "api/"),
        ] {
            assert_eq!(next_step(&both, |key| there.get(key), None, Timestamp::UNIX_EPOCH, &settings), step, "{what}");
            let users = users(&both, |key| there.get(key), &settings);
            let users: Vec<String> = users.iter().map(|user| format!("{}{}", user.key.name, user.path)).collect();
            assert_eq!(users.join(" "), users_now, "{what}");
        }
    }
}
