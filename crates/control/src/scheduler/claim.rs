//! Claims on names: creating the NameClaim is the lock.
//!
//! An existing claim can belong to this Route: from an earlier try, from an earlier Route of the same namespace and name (also in
//! quarantine, which exists for this purpose), or because it was released and its quarantine is over. Then it is taken over by a
//! write that carries the resourceVersion that was read.
//!
//! A host that a Route of the same namespace holds with another path is shared: the same kind of write adds the Route.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use crate::client::write;
use signpost_types::names::{host_claim_name, label_claim_name};
use signpost_types::v1alpha1::name_claim::{
    CLAIM_LABEL, CLAIM_LABEL_HOST, CLAIM_LABEL_LABEL, ClaimKind, HOLDERS_MAX, Holder, NameClaim, NameClaimSpec,
};
use signpost_types::v1alpha1::route::Route;

/// The most concurrent writes between reading and writing a claim, before the attempt ends.
const RACES_MAX: u32 = 5;

/// The owner of the name now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// The requesting holder has the name.
    Ours,
    /// Another Route's.
    Taken {
        /// That Route.
        by: Holder,
        /// The end of the quarantine of a host, if the Route was deleted.
        until: Option<Timestamp>,
    },
    /// The largest number of Routes already shares the host.
    Full,
    /// The host overlaps one of another namespace. Signpost's own server reports this, regardless of the scheduler's information.
    Overlaps,
    /// The requesting holder no longer exists.
    Gone,
}

/// Claims `value` for `holder`.
pub async fn claim(
    client: &kube::Client,
    kind: ClaimKind,
    value: &str,
    holder: &Holder,
    now: Timestamp,
) -> kube::Result<Claimed> {
    let api: Api<NameClaim> = Api::all(client.clone());
    let routes: Api<Route> = Api::namespaced(client.clone(), &holder.namespace);
    let fresh = new_claim(kind, value, holder, now);
    let name = fresh.metadata.name.clone().unwrap_or_default();
    let parameters = PostParams::default();
    let mut races = 0;
    loop {
        let refused = match write::create(client, None, &fresh).await {
            Ok(()) => return Ok(Claimed::Ours),
            Err(kube::Error::Api(status)) if status.code == 409 => kube::Error::Api(status),
            Err(error) if is_overlap(&error) => return Ok(Claimed::Overlaps),
            Err(error) => return Err(error),
        };
        if let Some(found) = api.get_opt(&name).await? {
            match evaluate(&found.spec, holder, now) {
                ClaimOutcome::Ours => return Ok(Claimed::Ours),
                ClaimOutcome::Full => return Ok(Claimed::Full),
                ClaimOutcome::Taken(by) => {
                    let until = found.spec.quarantine_until.filter(|_| kind == ClaimKind::Host);
                    return Ok(Claimed::Taken { by, until: until.map(|until| until.0) });
                }
                outcome @ (ClaimOutcome::Adopt | ClaimOutcome::Share) => {
                    // The claim was read first and is written last: if a newer Route replaced this one in between, its claim
                    // would have changed the version. Without this check, a late try for the older one, by a scheduler that has
                    // not noticed the change, could take the name from the newer one.
                    let live = routes.get_opt(&holder.name).await?;
                    if live.is_none_or(|route| route.metadata.uid.as_deref() != Some(&holder.uid)) {
                        return Ok(Claimed::Gone);
                    }
                    let mut adopted = fresh.clone();
                    adopted.metadata = found.metadata;
                    if outcome == ClaimOutcome::Share {
                        adopted.spec = shared(found.spec, holder);
                    }
                    match api.replace(&name, &parameters, &adopted).await {
                        Ok(_) => return Ok(Claimed::Ours),
                        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                        Err(error) if is_overlap(&error) => return Ok(Claimed::Overlaps),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        races += 1;
        if races > RACES_MAX {
            return Err(refused);
        }
    }
}

/// Returns whether there is already a claim on the first of these names that `holder` can have, so that it adds none to the
/// ledger.
pub async fn has_a_claim(
    client: &kube::Client,
    names: impl Iterator<Item = String>,
    holder: &Holder,
    now: Timestamp,
) -> kube::Result<bool> {
    let api: Api<NameClaim> = Api::all(client.clone());
    for name in names {
        match api.get_opt(&name).await? {
            None => return Ok(false),
            Some(found) if !matches!(evaluate(&found.spec, holder, now), ClaimOutcome::Taken(_)) => return Ok(true),
            Some(_) => {}
        }
    }
    // No label is left; the claim attempt detects and reports that.
    Ok(true)
}

/// Returns whether the server rejects the claim for its name.
fn is_overlap(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422 && causes.into_iter().any(|cause| cause.field == "spec.value")
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ClaimOutcome {
    Ours,
    /// Take over the whole claim.
    Adopt,
    /// Join the Routes that have the host.
    Share,
    Taken(Holder),
    Full,
}

fn evaluate(claim: &NameClaimSpec, holder: &Holder, now: Timestamp) -> ClaimOutcome {
    let is_ours = |other: &Holder| other.namespace == holder.namespace && other.name == holder.name;
    let is_shareable = claim.kind == ClaimKind::Host && claim.holder.namespace == holder.namespace;
    if claim.released_at.is_some() {
        let in_quarantine = claim.quarantine_until.as_ref().is_some_and(|until| until.0 > now);
        // A host is reserved for its namespace.
        return match in_quarantine && !is_shareable && !is_ours(&claim.holder) {
            true => ClaimOutcome::Taken(claim.holder.clone()),
            false => ClaimOutcome::Adopt,
        };
    }
    let holders = claim.holders();
    let ours = holders.iter().find(|other| is_ours(other));
    if ours.is_some_and(|ours| ours.uid == holder.uid && (!is_shareable || ours.path() == holder.path())) {
        return ClaimOutcome::Ours;
    }
    let others = || holders.iter().filter(|other| !is_ours(other));
    match (is_shareable, others().find(|other| other.path() == holder.path())) {
        (false, _) if ours.is_some() => ClaimOutcome::Adopt,
        (false, _) => ClaimOutcome::Taken(claim.holder.clone()),
        (true, Some(other)) => ClaimOutcome::Taken(other.clone()),
        (true, None) if others().count() >= HOLDERS_MAX => ClaimOutcome::Full,
        (true, None) => ClaimOutcome::Share,
    }
}

/// Returns the claim with `holder` among its Routes, in the place of an earlier Route of its name, or at the end.
fn shared(mut claim: NameClaimSpec, holder: &Holder) -> NameClaimSpec {
    let mut holders = claim.holders();
    match holders.iter_mut().find(|other| other.name == holder.name) {
        Some(ours) => ours.clone_from(holder),
        None => holders.push(holder.clone()),
    }
    let mut holders = holders.into_iter();
    let first = holders.next().expect("it has a holder");
    claim.set_holders(Holder { path: Some(first.path().to_owned()), ..first }, holders);
    claim
}

fn new_claim(kind: ClaimKind, value: &str, holder: &Holder, now: Timestamp) -> NameClaim {
    // Names are compared case-insensitively (RFC 4343), so the claim is on the lower-case one.
    let value = value.to_ascii_lowercase();
    let (name, label) = match kind {
        ClaimKind::Label => (label_claim_name(&value), CLAIM_LABEL_LABEL),
        ClaimKind::Host => (host_claim_name(&value), CLAIM_LABEL_HOST),
    };
    NameClaim {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some([(CLAIM_LABEL.to_owned(), label.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: NameClaimSpec {
            kind,
            value,
            holder: holder.clone(),
            sharers: Vec::new(),
            since: Time(now),
            released_at: None,
            quarantine_until: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let holder = |namespace: &str, name: &str, uid: &str| Holder {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            path: None,
        };
        let us = holder("ns", "app", "u2");
        let taken = |of: &Holder| ClaimOutcome::Taken(of.clone());
        for (of, released, until, verdict) in [
            (holder("ns", "app", "u2"), None, None, ClaimOutcome::Ours),
            (holder("ns", "app", "u1"), None, None, ClaimOutcome::Adopt),
            (holder("ns", "app", "u1"), Some(50), Some(500), ClaimOutcome::Adopt),
            (holder("ns", "app", "u2"), Some(50), Some(500), ClaimOutcome::Adopt),
            (holder("ns", "other", "u3"), None, None, taken(&holder("ns", "other", "u3"))),
            (holder("ns", "other", "u3"), Some(50), Some(500), taken(&holder("ns", "other", "u3"))),
            (holder("ns", "other", "u3"), Some(50), Some(99), ClaimOutcome::Adopt),
            (holder("ns", "other", "u3"), Some(50), None, ClaimOutcome::Adopt),
            (holder("other", "app", "u3"), None, None, taken(&holder("other", "app", "u3"))),
        ] {
            let mut claim = new_claim(ClaimKind::Label, "ns-app", &of, at(10)).spec;
            claim.released_at = released.map(|second| Time(at(second)));
            claim.quarantine_until = until.map(|second| Time(at(second)));
            assert_eq!(evaluate(&claim, &us, at(100)), verdict, "{claim:?}");
        }
    }

    #[test]
    fn routes_of_a_namespace_share_a_host() {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let holder = |namespace: &str, name: &str, uid: &str, path: &str| Holder {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            path: Some(path.to_owned()),
        };
        let (first, api) = (holder("ns", "first", "u1", "/"), holder("ns", "api", "u2", "/api"));
        let alone = new_claim(ClaimKind::Host, "www.shop.example", &first, at(10)).spec;
        let both = shared(alone.clone(), &api);
        assert_eq!(both.holders(), [first.clone(), api.clone()]);
        let released = NameClaimSpec { released_at: Some(Time(at(50))), ..alone.clone() };
        let reserved = NameClaimSpec { quarantine_until: Some(Time(at(500))), ..released.clone() };
        let full = (1..HOLDERS_MAX).fold(alone.clone(), |claim, number| {
            shared(claim, &holder("ns", &format!("r{number}"), "u", &format!("/{number}")))
        });
        for (what, claim, us, outcome) in [
            ("another path", &alone, api.clone(), ClaimOutcome::Share),
            ("the same path", &alone, holder("ns", "api", "u2", "/"), ClaimOutcome::Taken(first.clone())),
            ("another namespace", &alone, holder("other", "api", "u2", "/api"), ClaimOutcome::Taken(first.clone())),
            ("it has it", &both, api.clone(), ClaimOutcome::Ours),
            ("re-created", &both, holder("ns", "api", "u3", "/api"), ClaimOutcome::Share),
            ("with a path of its own", &both, holder("ns", "api", "u2", "/x"), ClaimOutcome::Share),
            ("with the other's path", &both, holder("ns", "first", "u1", "/api"), ClaimOutcome::Taken(api.clone())),
            ("released", &released, api.clone(), ClaimOutcome::Adopt),
            ("reserved, another path", &reserved, api.clone(), ClaimOutcome::Adopt),
            ("reserved, the same path", &reserved, holder("ns", "api", "u2", "/"), ClaimOutcome::Adopt),
            ("reserved", &reserved, holder("other", "first", "u2", "/"), ClaimOutcome::Taken(first.clone())),
            ("reserved for it", &reserved, holder("ns", "first", "u9", "/"), ClaimOutcome::Adopt),
            ("no room", &full, api.clone(), ClaimOutcome::Full),
            ("in it", &full, holder("ns", "r7", "u9", "/seven"), ClaimOutcome::Share),
        ] {
            assert_eq!(evaluate(claim, &us, at(100)), outcome, "{what}");
        }
        let again = shared(both.clone(), &holder("ns", "first", "u4", "/new"));
        assert_eq!(again.holders(), [holder("ns", "first", "u4", "/new"), api], "it keeps its place");
    }
}
