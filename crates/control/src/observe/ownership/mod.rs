//! Verification of ownership: a user who requests a custom host for a Route must control the host's DNS. Off unless
//! `verify.hosts` is on.
//!
//! Each Route with a host gets a challenge in its status, a TXT record to create. The host's own authoritative servers are
//! queried for it ([`authorities`]), and the condition `HostVerified` shows the result. The scheduler admits no host without it,
//! and the reconciler revokes `Admitted` when it is lost.
//!
//! ```text
//!   Unverified ──found──► Verified ──missing──► Verified, in grace ──missing for the grace period──► Unverified
//!                          ▲                       │ found
//!                          └───────────────────────┘
//! ```
//!
//! Routes that had a Router when verification was enabled start in grace. The end of the grace period is in the status
//! (`challenge.verifiedUntil`), so that neither a restart nor a new leader restarts it. While verification is off, the reconciler
//! removes challenges from the status: users should not create records that are not checked, and enabling it again starts with
//! the current Routes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use tokio::time::timeout;

use self::authorities::AuthoritativeServers;
use self::challenge::{Key, Proof};
use super::route_checks::{Checked, Metrics, Next, RouteCheck};
use crate::client::reflector::ObjectKey;
use crate::client::uid::Uid;
use crate::world::RouteInfo;
use crate::world::condition::ConditionUpdate;
use crate::world::observations::{About, Part, RouteFinding};
use signpost_types::names::{challenge_name, is_at_or_below, wanted_label};
use signpost_types::v1alpha1::route::{Challenge, HOST_VERIFIED, Phase, Route};

pub mod authorities;
pub mod challenge;
mod reach;

/// The first wait before a host that is not verified is queried again.
const RETRY_FIRST: Duration = Duration::from_secs(5);
/// The time for the placement of a Route whose host may be its system name, which needs no verification.
const OWN_WAIT: Duration = Duration::from_secs(5);
/// The longest wait before a host that is not verified, or has lost its record, is queried again.
const RETRY_LONGEST: Duration = Duration::from_secs(300);
/// The time limit for the queries of one host: after it, the record counts as missing.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for reading a Route.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// The check of hosts.
#[derive(Debug, Clone)]
pub struct OwnershipCheck {
    /// The platform's domain: hosts in it are the platform's own.
    pub domain: Arc<str>,
    /// The key of tokens.
    pub key: Key,
    /// The servers that are queried.
    pub authorities: AuthoritativeServers,
    /// The approximate time after which a found record is queried again.
    pub interval: Duration,
    /// The time for which a host stays admitted after its record was last found.
    pub grace: Duration,
}

pub fn metrics() -> Metrics {
    let help = "Checks of the ownership record of custom hosts on the hosts' own name servers, by outcome";
    Metrics::new("verify_host_checks", help, &["found", "missing", "failed"])
}

/// A Route with a host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTarget {
    uid: Uid,
    host: String,
    /// Whether it is not placed yet, and its host may be its system name.
    may_be_own: bool,
    /// Whether its status has a challenge and the condition.
    is_reported: bool,
}

impl HostTarget {
    /// Returns `None` for a host that is the Route's system name in the zone of its Router, and for one that its router has admitted.
    fn new(key: &ObjectKey, route: &RouteInfo) -> Option<Self> {
        let host = route.host.as_deref().filter(|_| !route.host_is_system && route.adopted.is_none())?;
        let namespace = key.namespace();
        let label = || wanted_label(namespace, &key.name, route.subdomain.as_deref());
        let may_be_own =
            !route.has_names && host.split_once('.').is_some_and(|(first, _)| first.eq_ignore_ascii_case(&label()));
        let is_reported = route.conditions.has_challenge && route.conditions.get(HOST_VERIFIED).is_some();
        Some(HostTarget { uid: route.uid.clone(), host: host.to_owned(), may_be_own, is_reported })
    }
}

impl RouteCheck for OwnershipCheck {
    type Target = HostTarget;
    const PART: Part = HOST_VERIFIED;
    const SUBJECT: &'static str = "whether the Route's host is verified";
    const TIMEOUT: Duration = Duration::from_secs(QUERY_TIMEOUT.as_secs() + 2 * READ_TIMEOUT.as_secs());

    fn target(&self, key: &ObjectKey, route: &RouteInfo) -> Option<HostTarget> {
        let target = HostTarget::new(key, route)?;
        let plain = target.host.strip_prefix("*.").unwrap_or(&target.host);
        (!is_at_or_below(plain, &self.domain)).then_some(target)
    }

    fn is_same(now: &HostTarget, before: &HostTarget) -> bool {
        let is_reported = now.is_reported || !before.is_reported;
        *now == HostTarget { is_reported: now.is_reported, ..before.clone() } && is_reported
    }

    /// Reports the challenge of a host without one before any server is queried, which can take time.
    fn start(&self, key: &ObjectKey, route: &RouteInfo, target: &HostTarget) -> (Duration, Option<RouteFinding>) {
        if target.may_be_own {
            return (OWN_WAIT, None);
        }
        if route.bound || route.conditions.is_host_challenged {
            return (Duration::ZERO, None);
        }
        let fresh = self.fresh_challenge(key, target);
        let proof = Proof::Missing("not checked yet".to_owned());
        let (condition, challenge) = evaluate(None, &fresh, false, &proof, Timestamp::now(), self.grace);
        (Duration::ZERO, Some(finding(target, About::Unchallenged(target.host.clone()), condition, challenge)))
    }

    fn retry(&self) -> [Duration; 2] {
        [RETRY_FIRST, RETRY_LONGEST.min(self.interval.max(RETRY_FIRST))]
    }

    async fn check(
        &self,
        client: &kube::Client,
        key: &ObjectKey,
        target: &HostTarget,
    ) -> kube::Result<Option<Checked>> {
        let routes: Api<Route> = Api::namespaced(client.clone(), key.namespace());
        let Some(route) = routes.get_opt(&key.name).await? else { return Ok(None) };
        let fresh = self.fresh_challenge(key, target);
        let challenge = known_challenge(&route, &target.host).unwrap_or(&fresh).clone();
        let proof = match challenge.name.parse() {
            Ok(name) => match timeout(QUERY_TIMEOUT, self.authorities.texts(&name)).await {
                Ok(texts) => Proof::of(&challenge, texts),
                Err(_) => Proof::Missing(format!(
                    "no response from the host's name servers within {} seconds",
                    QUERY_TIMEOUT.as_secs()
                )),
            },
            Err(error) => Proof::Missing(format!("{} is not a valid domain name: {error}", challenge.name)),
        };
        // The Route may have changed during the queries.
        let Some(route) = routes.get_opt(&key.name).await? else { return Ok(None) };
        if HostTarget::new(key, &RouteInfo::new(&route)).as_ref() != Some(target) {
            return Ok(None);
        }
        let reported = known_challenge(&route, &target.host);
        let (condition, challenge) = evaluate(reported, &fresh, is_bound(&route), &proof, Timestamp::now(), self.grace);
        let (outcome, next) = match proof {
            Proof::Found => ("found", Next::After(self.interval)),
            Proof::Missing(_) => ("missing", Next::Retry),
        };
        let finding = finding(target, About::Host(target.host.clone()), condition, challenge);
        Ok(Some(Checked { outcome, finding, next }))
    }
}

impl OwnershipCheck {
    fn fresh_challenge(&self, key: &ObjectKey, target: &HostTarget) -> Challenge {
        self.key.challenge(key.namespace(), &target.uid, &target.host)
    }
}

fn finding(target: &HostTarget, about: About, condition: ConditionUpdate, challenge: Challenge) -> RouteFinding {
    RouteFinding { uid: target.uid.clone(), about, statements: vec![condition], challenge: Some(challenge) }
}

/// Returns the challenge in a Route's status, if it is for this host.
fn known_challenge<'a>(route: &'a Route, host: &str) -> Option<&'a Challenge> {
    let challenge = route.status.as_ref()?.challenge.as_ref()?;
    (challenge.name == challenge_name(host)).then_some(challenge)
}

fn is_bound(route: &Route) -> bool {
    route.status.as_ref().is_some_and(|status| status.phase == Phase::Scheduled)
}

/// Returns the condition for a verification result, and the challenge. A `reported` challenge is unchanged, for any key of this
/// process.
fn evaluate(
    reported: Option<&Challenge>,
    fresh: &Challenge,
    is_bound: bool,
    proof: &Proof,
    now: Timestamp,
    grace: Duration,
) -> (ConditionUpdate, Challenge) {
    let mut challenge = reported.unwrap_or(fresh).clone();
    let end = jiff::SignedDuration::try_from(grace).ok().and_then(|grace| now.checked_add(grace).ok());
    // Rounded to seconds: it is compared with the stored value.
    let end = Timestamp::from_second(end.unwrap_or(Timestamp::MAX).as_second()).unwrap_or(Timestamp::MAX);
    let until = challenge.verified_until.as_ref().map(|until| until.0);
    let (is_true, reason, message) = match proof {
        Proof::Found => {
            // Written only at intervals: the rest of the grace period is long.
            let renew = until.is_none_or(|until| now + (end.duration_since(now) * 3 / 4) > until);
            if renew {
                challenge.verified_until = Some(Time(end));
            }
            (true, "Verified", format!("the host's own name servers have the record {}", challenge.record))
        }
        Proof::Missing(why) => match until {
            Some(until) if until > now => {
                let message =
                    format!("{why}; the host stays admitted until {until} without the record {}", challenge.record);
                (true, "RecordMissing", message)
            }
            None if reported.is_none() && is_bound => {
                challenge.verified_until = Some(Time(end));
                let message = format!(
                    "the host was admitted before verification was required, and stays admitted until {end}; create \
                     the record {}",
                    challenge.record
                );
                (true, "GracePeriod", message)
            }
            _ => (false, "OwnershipNotVerified", format!("create the record {}; {why}", challenge.record)),
        },
    };
    (ConditionUpdate { kind: HOST_VERIFIED, status: is_true.into(), reason, message }, challenge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_taken_away_is_looked_at_again() {
        let key = Key::new(&[7; 32]);
        let view = |host: &str, has_challenge: bool, has_condition: bool| {
            let challenge = has_challenge.then(|| key.challenge("shop", "u1", host));
            let condition = json!({"type": HOST_VERIFIED, "status": "True", "reason": "Verified", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let conditions: Vec<_> = has_condition.then_some(condition).into_iter().collect();
            let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
                "metadata": {"namespace": "shop", "name": "www", "uid": "u1"},
                "spec": {"host": host, "to": {"name": "web"}}, "status": {"challenge": challenge, "conditions": conditions}});
            let route = RouteInfo::new(&serde_json::from_value(object).expect("a Route"));
            HostTarget::new(&ObjectKey::namespaced("shop", "www"), &route).expect("it has a host")
        };
        let (whole, bare) = (view("www.shop.example", true, true), view("www.shop.example", false, false));
        let is_same = OwnershipCheck::is_same;
        assert!(is_same(&whole, &bare) && is_same(&bare, &bare) && is_same(&whole, &whole), "a report is not a change");
        for (has_challenge, has_condition) in [(false, false), (true, false), (false, true)] {
            assert!(!is_same(&view("www.shop.example", has_challenge, has_condition), &whole));
        }
        assert!(!is_same(&view("shop.example", true, true), &whole), "another host is");
    }

    #[test]
    fn a_proof_lasts_for_its_grace_period() {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let key = Key::new(&[7; 32]);
        let fresh = key.challenge("shop", "u1", "www.shop.example");
        let (grace, now) = (Duration::from_secs(1000), at(50_000));
        let until =
            |second: Option<i64>| Challenge { verified_until: second.map(|second| Time(at(second))), ..fresh.clone() };
        let missing = Proof::Missing("it is not there".to_owned());
        for (what, reported, is_bound, proof, reason, then) in [
            ("never seen", None, false, &missing, "OwnershipNotVerified", None),
            ("found", Some(until(None)), false, &Proof::Found, "Verified", Some(51_000)),
            ("found again soon", Some(until(Some(50_900))), true, &Proof::Found, "Verified", Some(50_900)),
            ("found again later", Some(until(Some(50_700))), true, &Proof::Found, "Verified", Some(51_000)),
            ("lost", Some(until(Some(50_001))), true, &missing, "RecordMissing", Some(50_001)),
            ("lost for long", Some(until(Some(50_000))), true, &missing, "OwnershipNotVerified", Some(50_000)),
            ("and found", Some(until(Some(40_000))), true, &Proof::Found, "Verified", Some(51_000)),
            ("bound before the switch", None, true, &missing, "GracePeriod", Some(51_000)),
            ("reported and not yet verified", Some(until(None)), true, &missing, "OwnershipNotVerified", None),
        ] {
            let (condition, challenge) = evaluate(reported.as_ref(), &fresh, is_bound, proof, now, grace);
            let ends = challenge.verified_until.as_ref().map(|until| until.0.as_second());
            assert_eq!((condition.reason, ends), (reason, then), "{what}");
            assert_eq!(condition.is_true(), reason != "OwnershipNotVerified", "{what}");
            assert!(condition.message.contains(&fresh.record), "{what}: {}", condition.message);
        }
        // Another leader's key changes nothing for the owner.
        let other = Key::new(&[8; 32]).challenge("shop", "u1", "www.shop.example");
        let (_, challenge) = evaluate(Some(&until(None)), &other, false, &missing, now, grace);
        assert_eq!(challenge.value, fresh.value);
    }
}
