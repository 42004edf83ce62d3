//! The schedule of probes, and their results. Events arrive as calls, with the time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::Settings;
use super::health_tracker::HealthTracker;
use super::metrics::Metrics;
use super::probe::{Check, Clients, Probe, ProbeError};
use crate::client::backoff::random;
use crate::client::reflector::Change;
use crate::status::health::is_panic;
use crate::work::queue::{Item, WorkQueue};
use crate::world::RouterInfo;
use crate::world::observations::HealthFindings;
use signpost_types::v1alpha1::router::{AddressHealth, AddressHealthState, HealthCheck, Router};

/// The wait after which a new address without a verdict is served, because the prober is overloaded.
const FIRST_VERDICT: Duration = Duration::from_secs(15);
/// The time within which the first probe of an address occurs, so that a new leader does not send all probes at once.
const FIRST_PROBE: Duration = Duration::from_millis(500);
/// The fraction of the interval by which the next probe can come earlier.
const JITTER: f64 = 0.1;
/// The delay between a verdict and its write: simultaneous changes are written together.
const SETTLE: Duration = Duration::from_millis(50);

/// The longest error that a verdict keeps, in characters.
const ERROR_LENGTH_MAX: usize = 200;

/// A Router and one of its addresses.
pub type Key = (String, IpAddr);

/// Each Router has its share of the permits for probes: one with unresponsive addresses delays only its own probes.
impl Item for Key {
    type Owner = String;

    fn owner(&self) -> &String {
        &self.0
    }
}

pub struct ProbeSchedule {
    settings: Settings,
    clients: Clients,
    metrics: Metrics,
    routers: HashMap<String, Checked>,
    /// The times at which addresses are due, and the probes in flight.
    pub queue: WorkQueue<Key>,
    /// The times at which to check Routers for pending writes.
    dirty: BTreeSet<(Instant, String)>,
}

/// A Router with a health check, or with the status of an earlier one to clear.
#[derive(Default)]
struct Checked {
    check: Option<HealthCheck>,
    /// The addresses to probe, in the order of the spec.
    order: Vec<IpAddr>,
    subjects: BTreeMap<IpAddr, ProbedAddress>,
    threshold: Option<u32>,
    /// The last findings; the reconciler compares them with the status.
    reported: Option<HealthFindings>,
}

struct ProbedAddress {
    tracker: HealthTracker,
    probe: Option<Result<Probe, ProbeError>>,
    since: Timestamp,
    error: Option<String>,
    /// Whether the verdict is from a former check, so that its report can be too.
    is_by_former: bool,
    /// The end of the wait for the first verdict.
    waits_until: Instant,
}

impl ProbedAddress {
    fn health(&self, now: Instant) -> Option<AddressHealthState> {
        match self.tracker.verdict() {
            Some(true) => Some(AddressHealthState::Healthy),
            Some(false) => Some(AddressHealthState::Unhealthy),
            None => (now >= self.waits_until).then_some(AddressHealthState::Unknown),
        }
    }
}

impl Checked {
    /// Returns the desired contents of the status.
    fn findings(&self, now: Instant) -> HealthFindings {
        let found = |ip: &IpAddr| {
            let subject = self.subjects.get(ip)?;
            let (health, since, error) = (subject.health(now)?, Time(subject.since), subject.error.clone());
            Some(AddressHealth { ip: ip.to_string(), health, since, error })
        };
        HealthFindings { addresses: self.order.iter().filter_map(found).collect(), threshold: self.threshold }
    }
}

impl ProbeSchedule {
    /// Returns a schedule without Routers.
    pub fn new(settings: Settings, metrics: Metrics) -> Self {
        ProbeSchedule {
            queue: WorkQueue::new(settings.probes_max, [Duration::ZERO; 2]),
            settings,
            clients: Clients::default(),
            metrics,
            routers: HashMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    pub fn take_change(&mut self, change: Change<RouterInfo>, now: Instant, time: Timestamp) {
        let (applied, gone) = change.into_parts();
        gone.iter().for_each(|(key, _)| self.forget(&key.name));
        applied.iter().for_each(|applied| self.set(&applied.key.name, &applied.now.object, now, time));
    }

    fn forget(&mut self, name: &str) {
        if let Some(router) = self.routers.remove(name) {
            router.subjects.keys().for_each(|ip| self.queue.forget(&(name.to_owned(), *ip)));
            self.metrics.forget(name);
        }
    }

    fn set(&mut self, name: &str, object: &Router, now: Instant, time: Timestamp) {
        let reported = HealthFindings::of_status(object.status.as_ref());
        if object.spec.health_check.is_none() && reported == HealthFindings::default() {
            return self.forget(name);
        }
        let router = self.routers.entry(name.to_owned()).or_default();
        let Some(check) = &object.spec.health_check else {
            // Its verdicts must be removed; nothing is probed any more.
            router.subjects.keys().for_each(|ip| self.queue.forget(&(name.to_owned(), *ip)));
            *router = Checked::default();
            self.metrics.forget(name);
            self.dirty.insert((now, name.to_owned()));
            return;
        };
        let mut addresses: Vec<IpAddr> = Vec::new();
        for ip in object.addresses().iter().filter_map(|address| address.ip.parse().ok()) {
            if !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
        if router.check.as_ref() != Some(check) {
            for subject in router.subjects.values_mut() {
                subject.probe = None;
                subject.is_by_former = true;
                subject.tracker.set_bounds(check.rise, check.fall);
            }
            router.check = Some(check.clone());
        }
        router.threshold = Some(check.panic_threshold.unwrap_or(self.settings.panic_percent));
        router.subjects.retain(|ip, _| {
            let stays = addresses.contains(ip);
            if !stays {
                self.queue.forget(&(name.to_owned(), *ip));
            }
            stays
        });
        self.metrics.retain(name, &addresses);
        for ip in &addresses {
            if router.subjects.contains_key(ip) {
                continue;
            }
            let reported = reported.addresses.iter().find(|found| found.ip.parse() == Ok(*ip));
            let verdict = reported.and_then(|found| match found.health {
                AddressHealthState::Healthy => Some(true),
                AddressHealthState::Unhealthy => Some(false),
                AddressHealthState::Unknown => None,
            });
            // An address that was served as unknown stays served.
            let waits_until = if reported.is_some() { now } else { now + FIRST_VERDICT };
            let next = now + FIRST_PROBE.mul_f64(chance());
            let subject = ProbedAddress {
                tracker: HealthTracker::new(check.rise, check.fall, verdict),
                probe: None,
                since: reported.map_or(time, |found| found.since.0),
                error: reported.and_then(|found| found.error.clone()),
                // The address may have changed during the gap.
                is_by_former: reported.is_some(),
                waits_until,
            };
            if let Some(up) = verdict {
                self.metrics.set_up(name, *ip, up);
            }
            router.subjects.insert(*ip, subject);
            self.queue.plan((name.to_owned(), *ip), next);
            self.dirty.insert((waits_until, name.to_owned()));
        }
        router.order = addresses;
        self.metrics.set_panic(name, object.status.as_ref().is_some_and(is_panic));
        if router.reported.as_ref() != Some(&router.findings(now)) {
            self.dirty.insert((now, name.to_owned()));
        }
    }

    /// Takes in how a probe ended.
    pub fn take_outcome(&mut self, key: &Key, outcome: Result<(), ProbeError>, now: Instant, time: Timestamp) {
        self.metrics.count_probe(outcome.is_ok());
        let (name, ip) = key;
        let Some(router) = self.routers.get_mut(name) else { return };
        let (Some(check), Some(subject)) = (&router.check, router.subjects.get_mut(ip)) else { return };
        if self.queue.has(key) {
            // The Router was deleted and re-created differently.
            return;
        }
        let interval = Duration::from_secs(u64::from(check.interval_seconds.max(1)));
        let next = now + interval.mul_f64(1.0 - JITTER * chance());
        self.queue.plan(key.clone(), next);
        if subject.tracker.take(outcome.is_ok(), now.into_std()) {
            subject.since = time;
            subject.error = outcome.as_ref().err().map(reported);
            self.metrics.set_up(name, *ip, outcome.is_ok());
            subject.is_by_former = false;
            self.dirty.insert((now + SETTLE, name.clone()));
        } else if subject.is_by_former && subject.tracker.verdict() == Some(outcome.is_ok()) {
            subject.is_by_former = false;
            subject.error = outcome.as_ref().err().map(reported);
            self.dirty.insert((now + SETTLE, name.clone()));
        }
    }

    /// Returns the probe of an address, if it has one; the error is a fault of this machine, which counts as a failed probe.
    pub fn probe(&mut self, key: &Key) -> Option<Result<Probe, ProbeError>> {
        let router = self.routers.get_mut(&key.0)?;
        let (check, subject) = (router.check.as_ref()?, router.subjects.get_mut(&key.1)?);
        Some(subject.probe.get_or_insert_with(|| Probe::new(key.1, Check::new(check), &self.clients)).clone())
    }

    /// Returns the next Router with new findings, and these.
    pub fn next_findings(&mut self, now: Instant) -> Option<(String, HealthFindings)> {
        while self.dirty.first().is_some_and(|(at, _)| *at <= now) {
            let (_, name) = self.dirty.pop_first()?;
            let Some(router) = self.routers.get_mut(&name) else { continue };
            let findings = router.findings(now);
            if router.reported.as_ref() != Some(&findings) {
                router.reported = Some(findings.clone());
                return Some((name, findings));
            }
        }
        None
    }

    /// Returns the time of the next findings.
    pub fn next_findings_at(&self) -> Option<Instant> {
        self.dirty.first().map(|(at, _)| *at)
    }
}

/// Returns an error in the form of a status.
fn reported(error: &ProbeError) -> String {
    error.to_string().chars().take(ERROR_LENGTH_MAX).collect()
}

/// Returns a random number from 0 to 1.
fn chance() -> f64 {
    (random() >> 32) as f64 / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reflector::{Applied, ObjectKey};
    use crate::world;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn applied(router: Value) -> Change<RouterInfo> {
        let router: Router = serde_json::from_value(router).expect("a Router");
        let key = ObjectKey::cluster(router.metadata.name.as_deref().expect("a name"));
        let now = Arc::new(RouterInfo::new(&router, &world::Settings::of_domain("v3.example")));
        Change::Applied(Applied { key, now, before: None, recreated: false })
    }

    fn router(addresses: &[&str], check: Value, reported: Value) -> Value {
        named_router("s", addresses, check, reported)
    }

    fn named_router(name: &str, addresses: &[impl AsRef<str>], check: Value, reported: Value) -> Value {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip.as_ref()})).collect();
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name},
            "spec": {"addresses": addresses, "healthCheck": check}, "status": reported})
    }

    fn schedule() -> ProbeSchedule {
        plan_with(16)
    }

    fn plan_with(probes_max: usize) -> ProbeSchedule {
        let settings = Settings { probes_max, panic_percent: 50 };
        ProbeSchedule::new(settings, Metrics::default())
    }

    fn healths(findings: &HealthFindings) -> String {
        findings.addresses.iter().map(|found| format!("{} {:?};", found.ip, found.health)).collect()
    }

    const TIME: Timestamp = Timestamp::UNIX_EPOCH;

    fn next_probe(schedule: &mut ProbeSchedule, now: Instant) -> Option<(Key, Result<Probe, ProbeError>)> {
        let key = schedule.queue.begin(now)?;
        let probe = schedule.probe(&key).expect("it has a health check");
        Some((key, probe))
    }

    fn take_outcome(schedule: &mut ProbeSchedule, key: &Key, outcome: Result<(), ProbeError>, now: Instant) {
        schedule.queue.end(key);
        schedule.take_outcome(key, outcome, now, TIME);
    }

    /// Gives all probes that are due these outcomes.
    fn probe_all(schedule: &mut ProbeSchedule, now: Instant, good: impl Fn(&IpAddr) -> bool) -> usize {
        let mut count = 0;
        let mut under_way = Vec::new();
        while let Some((key, probe)) = next_probe(schedule, now) {
            probe.expect("a probe over TCP can always be made");
            under_way.push(key);
            count += 1;
        }
        for key in under_way {
            let outcome = if good(&key.1) { Ok(()) } else { Err(ProbeError::Unreachable("refused".to_owned())) };
            take_outcome(schedule, &key, outcome, now);
        }
        count
    }

    #[test]
    fn verdicts_are_written_once_and_all_together() {
        let mut schedule = schedule();
        let start = Instant::now();
        let check = json!({"port": 80, "intervalSeconds": 10, "fall": 2, "rise": 1});
        schedule.take_change(applied(router(&["192.0.2.1", "192.0.2.2"], check.clone(), json!({}))), start, TIME);
        assert_eq!(probe_all(&mut schedule, start + FIRST_PROBE, |_| true), 2, "all are probed soon");
        let now = start + FIRST_PROBE + SETTLE;
        let (name, findings) = schedule.next_findings(now).expect("there are verdicts");
        assert_eq!((name.as_str(), findings.threshold), ("s", Some(50)));
        assert_eq!(healths(&findings), "192.0.2.1 Healthy;192.0.2.2 Healthy;");
        assert!(schedule.next_findings(now).is_none());
        assert!(schedule.next_findings(now + SETTLE).is_none(), "nothing has changed since");

        // A single bad outcome does not count; the second in a row is written, with the reason.
        let is_good = |ip: &IpAddr| ip.to_string() != "192.0.2.2";
        let now = now + Duration::from_secs(10);
        assert_eq!(probe_all(&mut schedule, now, is_good), 2);
        assert!(schedule.next_findings(now + SETTLE).is_none());
        let now = now + Duration::from_secs(10);
        assert_eq!(probe_all(&mut schedule, now, is_good), 2);
        let (_, findings) = schedule.next_findings(now + SETTLE).expect("a verdict has changed");
        assert_eq!(healths(&findings), "192.0.2.1 Healthy;192.0.2.2 Unhealthy;");
        assert_eq!(findings.addresses[1].error.as_deref(), Some("refused"));
        assert!(schedule.next_findings(now + SETTLE).is_none());

        // Without a health check, the verdicts are removed, and no probe is left.
        let reported =
            json!({"addresses": [{"ip": "192.0.2.1", "health": "healthy", "since": "2026-01-01T00:00:00Z"}]});
        schedule.take_change(applied(router(&["192.0.2.1"], Value::Null, reported)), now, TIME);
        assert_eq!(schedule.next_findings(now).expect("to be cleared").1, HealthFindings::default());
        schedule.take_change(applied(router(&["192.0.2.1"], Value::Null, json!({}))), now, TIME);
        let later = now + Duration::from_secs(100);
        assert!(
            next_probe(&mut schedule, later).is_none()
                && schedule.next_findings(later).is_none()
                && schedule.routers.is_empty()
        );
    }

    #[test]
    fn a_new_leader_goes_on_from_the_verdicts() {
        let mut schedule = schedule();
        let start = Instant::now();
        let message = "0 of 3 active addresses are healthy; unhealthy: 192.0.2.1 (refused)";
        let reported = json!({"panicThreshold": 30, "addresses": [
            {"ip": "192.0.2.1", "health": "unhealthy", "since": "2026-01-01T00:00:00Z", "error": "refused"},
            {"ip": "192.0.2.2", "health": "unknown", "since": "2026-01-01T00:00:00Z"},
        ], "conditions": [{"type": "AddressesHealthy", "status": "False", "reason": "SomeUnhealthy", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let check = json!({"port": 80, "rise": 2, "panicThreshold": 30});
        schedule.take_change(applied(router(&["192.0.2.1", "192.0.2.2", "192.0.2.3"], check, reported)), start, TIME);
        let reported = "192.0.2.1 Unhealthy;192.0.2.2 Unknown;";
        assert_eq!(schedule.next_findings(start).map(|(_, findings)| healths(&findings)).as_deref(), Some(reported));
        assert_eq!(probe_all(&mut schedule, start + FIRST_PROBE, |ip| ip.to_string() == "192.0.2.1"), 3);
        let (_, findings) = schedule.next_findings(start + FIRST_PROBE + SETTLE).expect("first verdicts");
        let expected = "192.0.2.1 Unhealthy;192.0.2.2 Unhealthy;192.0.2.3 Unhealthy;";
        assert_eq!(healths(&findings), expected, "one good outcome of two that are needed");
        assert_eq!(findings.addresses[0].since.0.as_second(), 1_767_225_600, "it has been so since then");
    }

    #[test]
    fn who_is_not_probed_in_time_is_unknown() {
        let mut schedule = schedule();
        let start = Instant::now();
        schedule.take_change(applied(router(&["192.0.2.1"], json!({"port": 80}), json!({}))), start, TIME);
        let (key, _) = next_probe(&mut schedule, start + FIRST_PROBE).expect("it is due");
        assert_eq!(schedule.next_findings(start).map(|(_, findings)| healths(&findings)).as_deref(), Some(""));
        let late = start + FIRST_VERDICT;
        assert_eq!(
            schedule.next_findings(late).map(|(_, findings)| healths(&findings)).as_deref(),
            Some("192.0.2.1 Unknown;")
        );
        take_outcome(&mut schedule, &key, Ok(()), late);
        let (_, findings) = schedule.next_findings(late + SETTLE).expect("the verdict has come");
        assert_eq!(healths(&findings), "192.0.2.1 Healthy;");
        // The result for an address that is removed during its probe is dropped.
        let later = late + Duration::from_secs(10);
        let (key, _) = next_probe(&mut schedule, later).expect("it is due");
        schedule.take_change(applied(router(&["192.0.2.9"], json!({"port": 80}), json!({}))), later, TIME);
        take_outcome(&mut schedule, &key, Err(ProbeError::Unreachable("refused".to_owned())), later);
        assert!(schedule.routers["s"].subjects.keys().all(|ip| ip.to_string() == "192.0.2.9"));
    }

    #[test]
    fn routers_that_hang_starve_no_other() {
        const HUNG: usize = 4;
        let mut schedule = plan_with(256);
        let start = Instant::now();
        let addresses = |router: usize| (0..128).map(|at| format!("192.0.{router}.{at}")).collect::<Vec<_>>();
        let check = json!({"port": 80, "intervalSeconds": 5, "timeoutSeconds": 60});
        for hung in 0..HUNG {
            let router = named_router(&format!("hung{hung}"), &addresses(hung), check.clone(), json!({}));
            schedule.take_change(applied(router), start, TIME);
        }
        let now = start + FIRST_PROBE;
        let hanging: Vec<Key> = std::iter::from_fn(|| next_probe(&mut schedule, now)).map(|(key, _)| key).collect();
        for hung in 0..HUNG {
            let count = hanging.iter().filter(|key| key.0 == format!("hung{hung}")).count();
            assert!((256 / (HUNG + 1)..=256 / HUNG).contains(&count), "they share alike: {count}");
        }
        assert_eq!(schedule.queue.next_at(), None, "they have what they may have");

        // These probes never end. Another Router is not affected: its verdicts arrive before the first deadline.
        let healthy = named_router("healthy", &addresses(HUNG), check, json!({}));
        schedule.take_change(applied(healthy), now, TIME);
        let now = now + FIRST_PROBE;
        let mut probed = 0;
        while let Some((key, _)) = next_probe(&mut schedule, now) {
            assert_eq!(key.0, "healthy");
            take_outcome(&mut schedule, &key, Ok(()), now);
            probed += 1;
        }
        assert_eq!(probed, 128);
        let (name, findings) = std::iter::from_fn(|| schedule.next_findings(now + SETTLE))
            .find(|(name, _)| name == "healthy")
            .expect("its health has changed");
        assert!(findings.addresses.iter().all(|found| found.health == AddressHealthState::Healthy), "{name}");
        // Its probes continue, an interval later, while the others still hang.
        let later = now + Duration::from_secs(5);
        assert_eq!(next_probe(&mut schedule, later).map(|(key, _)| key.0).as_deref(), Some("healthy"));
    }
}
