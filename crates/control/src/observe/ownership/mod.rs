//! Proof of control: that whoever wants a custom host for a Route may change the host's DNS. Off unless `verify.hosts` is on.
//!
//! Each Route with a host gets a challenge in its status, a TXT record to create. The host's own authoritative servers are
//! asked for it ([`authorities`]), and the condition `HostVerified` says what came of it; the scheduler admits no host without
//! it, and the reconciler takes `Admitted` back when it is lost.
//!
//! ```text
//!   Unverified ──found──► Verified ──missing──► Verified, in grace ──missing for the grace period──► Unverified
//!                          ▲                       │ found
//!                          └───────────────────────┘
//! ```
//!
//! Routes that had a Router when the switch was turned on begin in grace. The end of the grace period stands in the status
//! (`challenge.verifiedUntil`), so that neither a restart nor another leader begins it anew. While the switch is off, the
//! reconciler takes challenges out of the status: nobody is to create a record that nobody asks for, and who
//! turns it on again begins with the Routes as they are then.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::authorities::Authorities;
use self::challenge::{Key, Proof};
use crate::client::backoff::random;
use crate::client::reflector::{self, Change, Changes, ObjectKey, Store};
use crate::client::uid::Uid;
use crate::reconcile::executor::Executor;
use crate::reconcile::queue::{Item, WorkQueue};
use crate::world::condition::ConditionUpdate;
use crate::world::observations::{About, Finding, Observations, Part};
use crate::world::{RouteInfo, World};
use signpost_api::names::{challenge_name, is_at_or_below, wanted_label};
use signpost_api::v1alpha1::route::{Challenge, HOST_VERIFIED, Phase, Route};

pub mod authorities;
pub mod challenge;
mod reach;

/// Hosts that are asked for at a time. The namespaces share these places: owners may have name servers that take their time.
const HOSTS_AT_A_TIME: usize = 16;
/// How soon a host that is not verified is asked for again, at first.
const RETRY_FIRST: Duration = Duration::from_secs(5);
/// How long a Route has to be placed whose host may be the name that the platform is to give it, which needs no proof.
const OWN_WAIT: Duration = Duration::from_secs(5);
/// The longest wait until a host that is not verified, or has lost its record, is asked for again.
const RETRY_LONGEST: Duration = Duration::from_secs(300);
/// How long asking for one host may take: longer is as good as no record.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);
/// How long reading a Route may take.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// How hosts are verified.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The platform's domain: hosts in it are the platform's own.
    pub domain: Arc<str>,
    /// What tokens are made with.
    pub key: Key,
    /// Who is asked.
    pub authorities: Authorities,
    /// How long after it was found the record is looked for again, about.
    pub interval: Duration,
    /// How long a host stays admitted after its record was found last.
    pub grace: Duration,
}

/// What it counts; clones share it.
#[derive(Debug, Clone)]
pub struct Metrics {
    checks: Family<[(&'static str, &'static str); 1], Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let checks = Family::<[(&'static str, &'static str); 1], Counter>::default();
        for outcome in ["found", "missing", "failed"] {
            drop(checks.get_or_create(&[("outcome", outcome)]));
        }
        Metrics { checks }
    }
}

impl Metrics {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "verify_host_checks",
            "Times that a custom host's own name servers were asked for its record, by what came of it",
            self.checks.clone(),
        );
    }
}

/// A Route with a host, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
struct HostView {
    uid: String,
    host: String,
    /// Whether it is not placed yet, and its host begins as the name does that the platform is to give it.
    may_be_own: bool,
    /// Whether its status has a challenge and says what came of it.
    is_told: bool,
}

impl HostView {
    /// None for a host that is the name which the platform has given the Route in the zone of its Router.
    fn new(key: &ObjectKey, route: &RouteInfo) -> Option<Self> {
        let host = route.host.as_deref().filter(|_| !route.host_is_system)?;
        let namespace = key.namespace();
        let label = || wanted_label(namespace, &key.name, route.subdomain.as_deref());
        let may_be_own =
            !route.has_names && host.split_once('.').is_some_and(|(first, _)| first.eq_ignore_ascii_case(&label()));
        let is_told = route.conditions.has_challenge && route.conditions.has_host_verified;
        Some(HostView { uid: route.uid.to_string(), host: host.to_owned(), may_be_own, is_told })
    }

    /// Of a Route as the API has it.
    fn of(route: &Route) -> Option<Self> {
        let (namespace, name) = (route.metadata.namespace.clone(), route.metadata.name.clone().unwrap_or_default());
        Self::new(&ObjectKey { namespace, name }, &RouteInfo::new(route))
    }

    /// Whether both are the same, but that this one may be told more than the other was.
    fn follows(&self, before: &HostView) -> bool {
        let HostView { uid, host, may_be_own, is_told } = self;
        (uid, host, may_be_own) == (&before.uid, &before.host, &before.may_be_own) && (*is_told || !before.is_told)
    }
}

/// Verifies hosts until `stop`, and tells `observations`. `client`'s identity must be allowed to read Routes.
pub async fn run(client: kube::Client, world: World, settings: Settings, metrics: Metrics, stop: CancellationToken) {
    let (hosts, changes) = world.routes.read();
    let observations = Arc::clone(&world.observations);
    observations.forget(Part::Ownership);
    let retry_longest = RETRY_LONGEST.min(settings.interval.max(RETRY_FIRST));
    let mut owners = Owners {
        client,
        settings: Arc::new(settings),
        metrics,
        hosts,
        changes,
        observations,
        queue: WorkQueue::new(HOSTS_AT_A_TIME, [RETRY_FIRST, retry_longest]),
        questions: Executor::new(ASK_TIMEOUT + 2 * READ_TIMEOUT),
    };
    loop {
        owners.start_due();
        let wake_at = owners.queue.next_at();
        tokio::select! {
            () = stop.cancelled() => break,
            change = owners.changes.next() => owners.on_change(change),
            Some((key, judged)) = owners.questions.next() => owners.on_judged(&key, judged),
            () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
        }
    }
    owners.questions.shutdown().await;
}

/// Each namespace has its share of the places.
impl Item for ObjectKey {
    type Owner = Option<String>;

    fn owner(&self) -> &Option<String> {
        &self.namespace
    }
}

struct Owners {
    client: kube::Client,
    settings: Arc<Settings>,
    metrics: Metrics,
    hosts: Store<RouteInfo>,
    changes: Changes<RouteInfo>,
    observations: Arc<Observations>,
    queue: WorkQueue<ObjectKey>,
    questions: Executor<ObjectKey, Option<Judged>>,
}

impl Owners {
    fn on_change(&mut self, change: Change<RouteInfo>) {
        let (applied, gone) = change.into_parts();
        gone.iter().for_each(|(key, _)| self.forget(key));
        applied.into_iter().for_each(|applied| self.on_host(applied));
    }

    fn on_host(&mut self, applied: reflector::Applied<RouteInfo>) {
        let reflector::Applied { key, now: route, before, .. } = applied;
        let is_elsewhere = |view: &HostView| {
            let plain = view.host.strip_prefix("*.").unwrap_or(&view.host);
            !is_at_or_below(plain, &self.settings.domain)
        };
        let Some(view) = HostView::new(&key, &route).filter(is_elsewhere) else { return self.forget(&key) };
        if before.and_then(|before| HostView::new(&key, &before)).is_some_and(|before| view.follows(&before)) {
            return;
        }
        if !view.may_be_own && !route.bound && !route.conditions.is_host_challenged {
            self.tell(&key, &route, &view);
        }
        self.queue.succeeded(&key);
        let wait = if view.may_be_own { OWN_WAIT } else { Duration::ZERO };
        self.queue.plan(key, Instant::now() + wait);
    }

    /// Tells the challenge of a host that has none yet: before anyone is asked, which may take its time.
    fn tell(&self, key: &ObjectKey, route: &RouteInfo, view: &HostView) {
        let fresh = self.settings.fresh_challenge(key, view);
        let proof = Proof::Missing("it was not looked for yet".to_owned());
        let judged = judge(None, &fresh, false, &proof, Timestamp::now(), self.settings.grace);
        let finding = judged.finding(route.uid.clone(), About::Unchallenged(view.host.clone()));
        self.observations.set_route(key, Part::Ownership, Some(finding));
    }

    fn forget(&mut self, key: &ObjectKey) {
        self.queue.forget(key);
        self.observations.set_route(key, Part::Ownership, None);
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        while let Some(key) = self.queue.begin(now) {
            let Some(view) = self.view(&key) else {
                self.queue.end(&key);
                continue;
            };
            let (client, settings, of) = (self.client.clone(), Arc::clone(&self.settings), key.clone());
            self.questions.start(key, async move { ask(&client, &settings, &of, &view).await });
        }
    }

    fn view(&self, key: &ObjectKey) -> Option<HostView> {
        self.hosts.get(key).and_then(|route| HostView::new(key, &route))
    }

    fn on_judged(&mut self, key: &ObjectKey, judged: kube::Result<Option<Judged>>) {
        self.queue.end(key);
        let outcome = match &judged {
            Ok(Some(Judged { found: true, .. })) => "found",
            Ok(_) => "missing",
            Err(error) => {
                tracing::warn!(route = %key, %error, "whether the route's host is verified is not known; trying again");
                "failed"
            }
        };
        self.metrics.checks.get_or_create(&[("outcome", outcome)]).inc();
        let Some(view) = self.view(key) else { return };
        if let Ok(Some(judged)) = &judged {
            let finding = judged.finding(Uid::new(&view.uid), About::Host(view.host));
            self.observations.set_route(key, Part::Ownership, Some(finding));
        }
        if self.queue.has(key) {
            return;
        }
        if outcome == "found" {
            self.queue.succeeded(key);
            let wait = self.settings.interval.mul_f64(0.75 + (random() >> 32) as f64 / f64::from(u32::MAX) / 2.0);
            self.queue.plan(key.clone(), Instant::now() + wait);
        } else {
            self.queue.failed(key, Instant::now(), random());
        }
    }
}

/// What is to be said of a host.
#[derive(Debug, Clone, PartialEq)]
struct Judged {
    found: bool,
    statement: ConditionUpdate,
    challenge: Challenge,
}

impl Judged {
    fn finding(&self, uid: Uid, about: About) -> Finding {
        Finding { uid, about, statements: vec![self.statement.clone()], challenge: Some(self.challenge.clone()) }
    }
}

impl Settings {
    fn fresh_challenge(&self, key: &ObjectKey, view: &HostView) -> Challenge {
        self.key.challenge(key.namespace(), &view.uid, &view.host)
    }
}

/// Asks for the record of one host, and judges what came of it. `None`: the Route is another one by now.
async fn ask(
    client: &kube::Client,
    settings: &Settings,
    key: &ObjectKey,
    view: &HostView,
) -> kube::Result<Option<Judged>> {
    let routes: Api<Route> = Api::namespaced(client.clone(), key.namespace());
    let Some(route) = routes.get_opt(&key.name).await? else { return Ok(None) };
    let fresh = settings.fresh_challenge(key, view);
    let challenge = known_challenge(&route, &view.host).unwrap_or(&fresh).clone();
    let proof = match challenge.name.parse() {
        Ok(name) => match timeout(ASK_TIMEOUT, settings.authorities.texts(&name)).await {
            Ok(texts) => Proof::of(&challenge, texts),
            Err(_) => Proof::Missing(format!(
                "the host's own name servers have not said within {} seconds whether they have it",
                ASK_TIMEOUT.as_secs()
            )),
        },
        Err(error) => Proof::Missing(format!("{} is no name that could be asked for: {error}", challenge.name)),
    };
    // It may have changed while its name servers took their time.
    let Some(route) = routes.get_opt(&key.name).await? else { return Ok(None) };
    let told = known_challenge(&route, &view.host);
    let judged = judge(told, &fresh, is_bound(&route), &proof, Timestamp::now(), settings.grace);
    Ok((HostView::of(&route).as_ref() == Some(view)).then_some(judged))
}

/// The challenge in a Route's status, if it is of this host.
fn known_challenge<'a>(route: &'a Route, host: &str) -> Option<&'a Challenge> {
    let challenge = route.status.as_ref()?.challenge.as_ref()?;
    (challenge.name == challenge_name(host)).then_some(challenge)
}

fn is_bound(route: &Route) -> bool {
    route.status.as_ref().is_some_and(|status| status.phase == Phase::Scheduled)
}

/// What a proof means. A challenge that was told stays as it was, whatever key the leader of now has.
fn judge(
    told: Option<&Challenge>,
    fresh: &Challenge,
    is_bound: bool,
    proof: &Proof,
    now: Timestamp,
    grace: Duration,
) -> Judged {
    let mut challenge = told.unwrap_or(fresh).clone();
    let end = jiff::SignedDuration::try_from(grace).ok().and_then(|grace| now.checked_add(grace).ok());
    // To the second: it is compared with what comes back.
    let end = Timestamp::from_second(end.unwrap_or(Timestamp::MAX).as_second()).unwrap_or(Timestamp::MAX);
    let until = challenge.verified_until.as_ref().map(|until| until.0);
    let (is_true, reason, message) = match proof {
        Proof::Found => {
            // Written now and then only: the rest of the grace period is long.
            let renew = until.is_none_or(|until| now + (end.duration_since(now) * 3 / 4) > until);
            if renew {
                challenge.verified_until = Some(Time(end));
            }
            (true, "Verified", format!("the host's own name servers have the record {}", challenge.record))
        }
        Proof::Missing(why) => match until {
            Some(until) if until > now => {
                let message = format!("{why}; the host stays admitted until {until} without {}", challenge.record);
                (true, "RecordMissing", message)
            }
            None if told.is_none() && is_bound => {
                challenge.verified_until = Some(Time(end));
                let message = format!(
                    "the host was admitted before hosts were to be verified, and stays so until {end}; create {}",
                    challenge.record
                );
                (true, "GracePeriod", message)
            }
            _ => (false, "OwnershipNotVerified", format!("create the record {}; {why}", challenge.record)),
        },
    };
    Judged {
        found: *proof == Proof::Found,
        statement: ConditionUpdate { kind: HOST_VERIFIED, status: is_true.into(), reason, message },
        challenge,
    }
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
            HostView::of(&serde_json::from_value(object).expect("a Route")).expect("it has a host")
        };
        let (whole, bare) = (view("www.shop.example", true, true), view("www.shop.example", false, false));
        assert!(whole.follows(&bare) && bare.follows(&bare) && whole.follows(&whole), "what is told is no news");
        for (has_challenge, has_condition) in [(false, false), (true, false), (false, true)] {
            assert!(!view("www.shop.example", has_challenge, has_condition).follows(&whole));
        }
        assert!(!view("shop.example", true, true).follows(&whole), "another host is");
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
        for (what, told, is_bound, proof, reason, then) in [
            ("never seen", None, false, &missing, "OwnershipNotVerified", None),
            ("found", Some(until(None)), false, &Proof::Found, "Verified", Some(51_000)),
            ("found again soon", Some(until(Some(50_900))), true, &Proof::Found, "Verified", Some(50_900)),
            ("found again later", Some(until(Some(50_700))), true, &Proof::Found, "Verified", Some(51_000)),
            ("lost", Some(until(Some(50_001))), true, &missing, "RecordMissing", Some(50_001)),
            ("lost for long", Some(until(Some(50_000))), true, &missing, "OwnershipNotVerified", Some(50_000)),
            ("and found", Some(until(Some(40_000))), true, &Proof::Found, "Verified", Some(51_000)),
            ("bound before the switch", None, true, &missing, "GracePeriod", Some(51_000)),
            ("told and not yet verified", Some(until(None)), true, &missing, "OwnershipNotVerified", None),
        ] {
            let judged = judge(told.as_ref(), &fresh, is_bound, proof, now, grace);
            let ends = judged.challenge.verified_until.as_ref().map(|until| until.0.as_second());
            assert_eq!((judged.statement.reason, ends), (reason, then), "{what}");
            assert_eq!(judged.statement.is_true(), reason != "OwnershipNotVerified", "{what}");
            assert!(judged.statement.message.contains(&fresh.record), "{what}: {}", judged.statement.message);
        }
        // Another leader's key changes nothing for the owner.
        let other = Key::new(&[8; 32]).challenge("shop", "u1", "www.shop.example");
        let judged = judge(Some(&until(None)), &other, false, &missing, now, grace);
        assert_eq!(judged.challenge.value, fresh.value);
    }
}
