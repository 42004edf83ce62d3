//! The check whether the instances of Routers have certificates for their Routes: the conditions `CertificateReady` and
//! `CertificateExpiring`.
//!
//! Agents [report](signpost_types::instance) the certificates that their proxies serve. A Route that ends TLS at the router needs one on
//! each serving instance: for the name in `status.dns`, and valid now. Whether clients trust its issuer is not checked: it can be one of
//! the organization's own.
//!
//! A Route is examined when its generation or the condition changes, and all Routes of a Router when the certificates of one of its
//! instances or the serving instances change, and when a certificate expires or becomes valid. While no instance serves, the condition
//! stays.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::num::NonZeroI64;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::reflector::{Applied, Change, ObjectKey, Store};
use crate::client::uid::Uid;
use crate::observe::programmed::serving;
use crate::work::controller::{self, Controller, Inputs, Plan};
use crate::work::queue::WorkQueue;
use crate::world::condition::{ConditionUpdate, Status};
use crate::world::issuance::{Issuance, Note};
use crate::world::observations::{About, Observations, RouteFinding};
use crate::world::route::Reported;
use crate::world::{RouteInfo, RouterInfo, World};
use signpost_types::instance::{
    AGENT_NAMESPACE, CertificateReport, CertificatesReport, InstanceReport, SecretFault, ServedCertificate,
};
use signpost_types::text::{cut, listed};
use signpost_types::v1alpha1::route::{CERTIFICATE_EXPIRING, CERTIFICATE_READY};

/// The wait for room for more findings.
const NO_ROOM_WAIT: Duration = Duration::from_millis(5);
/// The longest wait for the next expiry: timers do not advance while a machine sleeps.
const DATE_LONGEST: Duration = Duration::from_secs(3600);
/// The time before the end of a certificate at which it expires soon: two weeks, which an operator needs. A certificate for a shorter
/// time is also renewed later, so the time is at most a sixth of its validity.
const SOON_LONGEST: i64 = 14 * 86_400;
const SOON_SHARE: i64 = 6;
/// The maximum number of instances, and of names of a certificate, that a condition names.
const NAMED_MAX: usize = 3;
/// The longest part of the reason why a file is not used, in octets.
const FAULT_OCTETS_MAX: usize = 200;

/// The metrics on `/metrics`; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    without: Gauge,
    expiry: Family<[(&'static str, String); 1], Gauge>,
}

impl Metrics {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        let help =
            "Routes with TLS that ends at the router, for which an instance of their Router has no valid certificate";
        registry.register("routes_without_certificate", help, self.without.clone());
        let help =
            "Earliest time at which a certificate of a serving instance of the Router expires, in seconds since 1970";
        registry.register("router_certificate_expiry_time_seconds", help, self.expiry.clone());
    }
}

/// Examines Routes until `stop`, which also ends with this process's leadership.
pub async fn run(world: World, metrics: Metrics, stop: CancellationToken) {
    let mut inputs = Inputs::default();
    let routes = inputs.read(&world.routes, Watch::take_routes);
    let routers = inputs.read(&world.routers, Watch::take_routers);
    let reports = inputs.read(&world.instances, Watch::take_reports);
    let issuance = world.issuance;
    let news = controller::signals(issuance.clone(), |issuance| issuance.wait().boxed());
    inputs.add(news, |watch: &mut Watch, ()| {
        let routers = watch.issuance.take_changed().into_iter().collect();
        watch.examine(&routers);
    });
    world.observations.forget(CERTIFICATE_READY);
    let (observations, queue) = (world.observations, WorkQueue::new(1, [Duration::ZERO; 2]));
    let (without, changes_at) = Default::default();
    let watch = Watch { routes, routers, reports, issuance, observations, metrics, queue, without, changes_at };
    controller::run(watch, inputs, stop).await;
}

struct Watch {
    routes: Store<RouteInfo>,
    routers: Store<RouterInfo>,
    reports: Store<Option<InstanceReport>>,
    /// The certificates that the platform gets.
    issuance: Issuance,
    observations: Arc<Observations>,
    metrics: Metrics,
    /// The Routes to examine.
    queue: WorkQueue<ObjectKey>,
    /// The Routes without a valid certificate.
    without: BTreeSet<ObjectKey>,
    /// The time at which the result for a Route of the Router changes by itself, in seconds since 1970.
    changes_at: BTreeMap<Arc<str>, i64>,
}

impl Controller for Watch {
    type Key = ObjectKey;
    type Job = Infallible;
    type Done = Infallible;

    const PACE: Duration = NO_ROOM_WAIT;

    fn queue(&mut self) -> &mut WorkQueue<ObjectKey> {
        &mut self.queue
    }

    /// Lets the Routes of Routers be examined whose certificates have expired or become valid.
    fn prepare(&mut self, _: Instant) {
        let now = Timestamp::now().as_second();
        let routers = self.changes_at.iter().filter(|(_, turn)| **turn <= now).map(|(router, _)| router.to_string());
        let routers: BTreeSet<String> = routers.collect();
        self.examine(&routers);
    }

    fn is_ready(&self) -> bool {
        let is_synced = self.routes.is_synced() && self.routers.is_synced() && self.reports.is_synced();
        is_synced && self.observations.has_room()
    }

    fn plan(&mut self, key: &ObjectKey, _: Instant) -> Plan<Infallible> {
        self.examine_route(key, Timestamp::now().as_second());
        Plan::Nothing
    }

    fn settle(&mut self, now: Instant) -> Option<Instant> {
        self.metrics.without.set(i64::try_from(self.without.len()).unwrap_or(i64::MAX));
        let turn = *self.changes_at.values().min()?;
        let wait = u64::try_from(turn - Timestamp::now().as_second()).unwrap_or(0);
        Some(now + Duration::from_secs(wait).min(DATE_LONGEST))
    }

    fn end(&mut self) {
        self.metrics.without.set(0);
        self.metrics.expiry.clear();
    }
}

impl Watch {
    fn take_routes(&mut self, change: Change<RouteInfo>) {
        let (applied, gone) = change.into_parts();
        for (key, _) in gone {
            self.forget(&key);
        }
        for Applied { key, now: route, before, .. } in applied {
            let differs = before.is_none_or(|before| subject(&before) != subject(&route));
            if route.tls_name.is_none() {
                self.forget(&key);
            } else if differs || !route.conditions.get(CERTIFICATE_READY).is_some_and(Reported::is_true_now) {
                self.queue.add(key, Instant::now());
            }
        }
    }

    fn forget(&mut self, key: &ObjectKey) {
        self.queue.forget(key);
        self.without.remove(key);
        self.observations.set_route(key, CERTIFICATE_READY, None);
    }

    /// Examines the Routes of a Router when other instances serve.
    fn take_routers(&mut self, change: Change<RouterInfo>) {
        let names = |router: &RouterInfo| -> BTreeSet<String> { serving(router).map(|one| one.name.clone()).collect() };
        let of = |router: &RouterInfo| (router.target.active.has_instances, names(router));
        let (applied, gone) = change.into_parts();
        let mut routers: BTreeSet<String> = gone.into_iter().map(|(key, _)| key.name).collect();
        for Applied { key, now, before, .. } in applied {
            if before.is_none_or(|before| of(&before) != of(&now)) {
                routers.insert(key.name);
            }
        }
        self.examine(&routers);
    }

    fn take_reports(&mut self, change: Change<Option<InstanceReport>>) {
        let (applied, gone) = change.into_parts();
        let applied = applied.into_iter().map(|applied| [applied.before, Some(applied.now)]);
        let gone = gone.into_iter().map(|(_, last)| [Some(last), None]);
        let mut routers = BTreeSet::new();
        for reports in applied.chain(gone) {
            let [before, now] = reports.each_ref().map(|report| Some((router(report)?, certificates(report))));
            if before != now {
                routers.extend([before, now].into_iter().flatten().map(|(router, _)| router.to_owned()));
            }
        }
        self.examine(&routers);
    }

    /// Lets all Routes of these Routers be examined.
    fn examine(&mut self, routers: &BTreeSet<String>) {
        if routers.is_empty() {
            return;
        }
        self.changes_at.retain(|router, _| !routers.contains(&**router));
        for router in routers {
            self.show_expiry(router);
        }
        let concerns = |route: &RouteInfo| {
            route.tls_name.is_some() && route.router.as_deref().is_some_and(|router| routers.contains(router))
        };
        let now = Instant::now();
        let concerned = self.routes.all().into_iter().filter(|(_, route)| concerns(route));
        concerned.for_each(|(key, _)| self.queue.add(key, now));
    }

    fn show_expiry(&self, router: &str) {
        let instances = self.routers.get(&ObjectKey::cluster(router)).map(|router| self.instances(&router));
        let reports = instances.iter().flatten().filter_map(|(_, report)| certificates(report));
        let served = reports.flat_map(|report| &report.certificates).filter_map(|one| one.served.as_ref());
        let labels = [("router", router.to_owned())];
        match served.map(|served| served.not_after).min() {
            Some(expiry) => _ = self.metrics.expiry.get_or_create(&labels).set(expiry),
            None => _ = self.metrics.expiry.remove(&labels),
        }
    }

    /// Returns the addresses and reports of the instances of a Router that serve.
    fn instances(&self, router: &RouterInfo) -> Vec<(String, Report)> {
        let key = |name: &str| ObjectKey::namespaced(AGENT_NAMESPACE, name);
        serving(router).map(|instance| (instance.ip.clone(), self.reports.get(&key(&instance.name)))).collect()
    }

    fn examine_route(&mut self, key: &ObjectKey, now: i64) {
        let route = self.routes.get(key);
        let router = route.as_ref().and_then(|route| self.routers.get(&ObjectKey::cluster(route.router.as_deref()?)));
        let router = router.filter(|router| router.target.active.has_instances);
        let (Some(route), Some(router)) = (route, router) else { return self.forget(key) };
        let (Some(name), Some(router_name)) = (&route.tls_name, &route.router) else { return self.forget(key) };
        let instances = self.instances(&router);
        if instances.is_empty() {
            return;
        }
        let reports: Vec<_> =
            instances.iter().map(|(address, report)| (address.as_str(), certificates(report))).collect();
        let secret = route.tls_secret.as_deref().map(|secret| (key.namespace.as_deref().unwrap_or_default(), secret));
        let Examined { ready, expiring, turn } = examine((name, secret), router_name, &reports, now);
        let issuance = self.issuance.of(router_name, name).filter(|_| secret.is_none());
        let ready = issuance.into_iter().fold(ready, with_note);
        if let Some(turn) = turn {
            let known = self.changes_at.entry(router_name.clone()).or_insert(turn);
            *known = turn.min(*known);
        }
        match ready.is_true() {
            true => _ = self.without.remove(key),
            false => _ = self.without.insert(key.clone()),
        }
        // A certificate that does not expire soon is worth a condition only after one that did.
        let is_worth = |expiring: &ConditionUpdate| expiring.is_true() || route.conditions.get(expiring.kind).is_some();
        let statements = [Some(ready), Some(expiring).filter(is_worth)].into_iter().flatten();
        let is_reported = |one: &ConditionUpdate| route.conditions.get(one.kind).is_some_and(|said| said.is_as(one));
        let statements: Vec<_> = statements.filter(|statement| !is_reported(statement)).collect();
        if !statements.is_empty() {
            let about = About::Generation(route.generation, router_name.clone());
            let finding = RouteFinding::new(&route.uid, about, statements);
            self.observations.set_route(key, CERTIFICATE_READY, Some(finding));
        }
    }
}

/// The report of an instance, if its Lease is known.
type Report = Option<Arc<Option<InstanceReport>>>;

fn certificates(report: &Report) -> Option<&CertificatesReport> {
    report.as_deref()?.as_ref()?.certificates.as_ref()
}

fn router(report: &Report) -> Option<&str> {
    Some(&report.as_deref()?.as_ref()?.router)
}

/// Returns the parts of a Route on which the condition depends.
fn subject(route: &RouteInfo) -> (&Uid, Option<NonZeroI64>, Option<&str>, Option<&str>, Option<&str>) {
    let (name, secret) = (route.tls_name.as_deref(), route.tls_secret.as_deref());
    (&route.uid, route.generation, route.router.as_deref(), name, secret)
}

/// The reasons why an instance has no valid certificate for a name, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// The Secret of the Route is not used.
    Secret(SecretFault),
    /// Another Route of the host names another Secret, or the instance does not know this one yet.
    OtherSecret,
    NoCertificate,
    NameMismatch,
    Expired,
    NotYetValid,
    /// Whether it has one is unknown.
    NotReported,
}

/// The certificate that an instance uses for a name.
#[derive(Debug, Clone, Copy)]
struct Found<'a> {
    fault: Option<Fault>,
    certificate: Option<&'a ServedCertificate>,
    /// The reason why the file for the name, or the Secret, is not used.
    file_fault: Option<&'a str>,
}

/// The Secret of a Route, by namespace and name.
type SecretName<'a> = Option<(&'a str, &'a str)>;

/// The conditions of a Route, and the time at which one changes by itself, in seconds since 1970.
struct Examined {
    ready: ConditionUpdate,
    expiring: ConditionUpdate,
    turn: Option<i64>,
}

/// Returns the conditions of a Route that clients reach over TLS by this name, with the certificate of this Secret, by the certificates that
/// the serving instances of its Router report with their addresses. `now` is in seconds since 1970.
fn examine(
    (name, secret): (&str, SecretName<'_>),
    router: &str,
    instances: &[(&str, Option<&CertificatesReport>)],
    now: i64,
) -> Examined {
    let found: Vec<Found<'_>> = instances.iter().map(|(_, report)| find(name, secret, *report, now)).collect();
    let turn = |found: &Found<'_>| match (found.fault, found.certificate?) {
        (None, certificate) if now < soon(certificate) => Some(soon(certificate)),
        (None, certificate) => Some(certificate.not_after.saturating_add(1)),
        (Some(Fault::NotYetValid), certificate) => Some(certificate.not_before),
        _ => None,
    };
    let turn = found.iter().filter_map(turn).min();
    let worst = found.iter().filter_map(|one| one.fault).min();
    // This one decides: it has the worst fault, or expires first.
    let decides = found.iter().filter(|one| one.fault == worst);
    let decides = decides.min_by_key(|one| one.certificate.map(|certificate| certificate.not_after));
    let certificate = decides.and_then(|one| one.certificate);
    let with_fault = instances.iter().zip(&found).filter(|(_, found)| found.fault == worst);
    let places: Vec<&str> = with_fault.map(|((address, _), _)| *address).collect();
    let places = listed(&places, NAMED_MAX);
    let (status, reason, message) = match worst {
        None => {
            let until = moment(certificate.map(|certificate| certificate.not_after));
            let message =
                format!("every live instance of Router {router} has a certificate for {name}, valid until {until}");
            (Status::True, "CertificateValid", message)
        }
        Some(Fault::Secret(fault)) => {
            let details = found.iter().filter(|one| one.fault == worst).find_map(|one| one.file_fault);
            of_secret(fault, secret.unwrap_or_default(), (router, &places), details, certificate)
        }
        Some(Fault::OtherSecret) => {
            let (_, secret) = secret.unwrap_or_default();
            let message = format!(
                "{FIELD}: instances of Router {router} do not use the Secret {secret} for {name}; of several Routes of a host, that with \
                 the shortest path decides: {places}"
            );
            (Status::False, "SecretNotUsed", message)
        }
        Some(Fault::NoCertificate) => (
            Status::False,
            "NoCertificate",
            format!("instances of Router {router} have no certificate for {name}: {places}"),
        ),
        Some(Fault::NameMismatch) => {
            let names = listed(certificate.map_or(&[][..], |certificate| &certificate.names), NAMED_MAX);
            let names = if names.is_empty() { "no name" } else { &names };
            let message =
                format!("the certificate that instances of Router {router} use for {name} is for {names}: {places}");
            (Status::False, "NameMismatch", message)
        }
        Some(Fault::Expired) => {
            let at = moment(certificate.map(|certificate| certificate.not_after));
            let message =
                format!("the certificate of instances of Router {router} for {name} expired at {at}: {places}");
            (Status::False, "Expired", message)
        }
        Some(Fault::NotYetValid) => {
            let at = moment(certificate.map(|certificate| certificate.not_before));
            let message = format!(
                "the certificate of instances of Router {router} for {name} is not valid before {at}: {places}"
            );
            (Status::False, "NotYetValid", message)
        }
        Some(Fault::NotReported) => {
            let message = format!("instances of Router {router} do not report their certificate for {name}: {places}");
            (Status::Unknown, "NotReported", message)
        }
    };
    let file_fault = found.iter().filter(|one| one.fault == worst && secret.is_none()).find_map(|one| one.file_fault);
    let file_fault = file_fault.map(|fault| format!("; its file cannot be used: {}", cut(fault, FAULT_OCTETS_MAX)));
    let message = message + &file_fault.unwrap_or_default();
    let ready = ConditionUpdate { kind: CERTIFICATE_READY, status, reason, message };
    Examined { ready, expiring: expiring(name, router, instances, &found, now), turn }
}

/// Adds to a condition what the platform does for the certificate, if it gets it: as the reason if there is no certificate at all.
fn with_note(ready: ConditionUpdate, note: Note) -> ConditionUpdate {
    let ConditionUpdate { status, reason, message, .. } = &ready;
    match (*status, *reason) {
        // The Router's condition has that of its zone: another message would be one write for each Route.
        (Status::True, _) if note.is_of_zone => ready,
        (Status::False, "NoCertificate") if !note.is_issued => {
            ConditionUpdate { reason: note.reason, message: format!("{message}; {}", note.message), ..ready }
        }
        _ => ConditionUpdate { message: format!("{message}; {}", note.message), ..ready },
    }
}

/// Returns the condition for a fault of a Secret, which instances at `places` report with `details`.
fn of_secret(
    fault: SecretFault,
    secret: (&str, &str),
    (router, places): (&str, &str),
    details: Option<&str>,
    earlier: Option<&ServedCertificate>,
) -> (Status, &'static str, String) {
    let details = cut(details.unwrap_or_default(), FAULT_OCTETS_MAX);
    let status = if fault == SecretFault::Unread { Status::Unknown } else { Status::False };
    let (reason, message) = secret_fault(fault, secret, router, details);
    let earlier = earlier.map(|certificate| {
        let until = moment(Some(certificate.not_after));
        format!("; the earlier certificate, valid until {until}, stays in use")
    });
    (status, reason, format!("{FIELD}: {message}: {places}{}", earlier.unwrap_or_default()))
}

/// The field that faults of a Secret name.
const FIELD: &str = "spec.tls.secretName";

/// Returns the reason and the message of a Secret that instances do not use. The details are those of an agent: a user if it may not read the
/// Secret, otherwise a text that follows "it".
fn secret_fault(
    fault: SecretFault,
    (namespace, name): (&str, &str),
    router: &str,
    details: &str,
) -> (&'static str, String) {
    let secret = format!("Secret {name} of namespace {namespace}");
    match fault {
        SecretFault::NotFound => ("SecretNotFound", format!("{secret} does not exist")),
        SecretFault::Forbidden => {
            // Agents of all Routers, so that the Route can move.
            let account = details.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
            let subject = match (account, details) {
                (Some((place, _)), _) => format!("--group=system:serviceaccounts:{place}"),
                (None, "") => "--user=USER, which is the user of the agents".to_owned(),
                (None, user) => format!("--user={user}"),
            };
            let role = format!("signpost-{name}");
            let message = format!(
                "agents of Router {router} may not read {secret}; to permit it, run \"kubectl create role {role} -n {namespace} \
                 --verb=get --resource=secrets --resource-name={name}\" and \"kubectl create rolebinding {role} -n {namespace} \
                 --role={role} {subject}\""
            );
            ("SecretForbidden", message)
        }
        SecretFault::Unread => {
            ("NotReported", format!("instances of Router {router} have not read {secret}: {details}"))
        }
        SecretFault::WrongType => ("SecretWrongType", format!("{secret} cannot be used: {details}")),
        SecretFault::TooLarge => ("SecretTooLarge", format!("{secret} cannot be used: {details}")),
        SecretFault::Invalid => ("SecretInvalid", format!("{secret} cannot be used: {details}")),
        SecretFault::KeyMismatch => ("KeyMismatch", format!("{secret} cannot be used: {details}")),
        SecretFault::NameMismatch => ("NameMismatch", format!("{secret} cannot be used: {details}")),
        SecretFault::Expired => ("Expired", format!("{secret} cannot be used: {details}")),
        SecretFault::NotYetValid => ("NotYetValid", format!("{secret} cannot be used: {details}")),
    }
}

/// Returns the time from which a certificate expires soon.
fn soon(certificate: &ServedCertificate) -> i64 {
    let validity = certificate.not_after.saturating_sub(certificate.not_before);
    certificate.not_after.saturating_sub(SOON_LONGEST.min(validity / SOON_SHARE))
}

fn expiring(
    name: &str,
    router: &str,
    instances: &[(&str, Option<&CertificatesReport>)],
    found: &[Found<'_>],
    now: i64,
) -> ConditionUpdate {
    let end = |found: &Found<'_>| {
        let counts = matches!(found.fault, None | Some(Fault::Expired));
        let certificate = found.certificate.filter(|certificate| counts && now >= soon(certificate));
        certificate.map(|certificate| certificate.not_after)
    };
    let expiring = instances.iter().zip(found).filter(|(_, found)| end(found).is_some());
    let expiring: Vec<&str> = expiring.map(|((address, _), _)| *address).collect();
    let (status, reason, message) = match found.iter().filter_map(end).min() {
        Some(first) => {
            let (end, places) = (moment(Some(first)), listed(&expiring, NAMED_MAX));
            let message = format!("the certificate of instances of Router {router} for {name} ends at {end}: {places}");
            (Status::True, "ExpiresSoon", message)
        }
        None => (Status::False, "NotSoon", format!("no certificate for {name} expires soon")),
    };
    ConditionUpdate { kind: CERTIFICATE_EXPIRING, status, reason, message }
}

/// Returns the certificate that an instance uses for a name, as proxies choose it: that of the name itself, otherwise that of the
/// wildcard for its first label.
fn find<'a>(name: &str, secret: SecretName<'_>, report: Option<&'a CertificatesReport>, now: i64) -> Found<'a> {
    let not_reported = Found { fault: Some(Fault::NotReported), certificate: None, file_fault: None };
    let Some(report) = report else { return not_reported };
    if let Some((_, secret)) = secret {
        let Some(entry) = report.of(name) else {
            let fault = if report.omitted > 0 { Fault::NotReported } else { Fault::OtherSecret };
            return Found { fault: Some(fault), ..not_reported };
        };
        let reported = entry.secret.as_ref().filter(|reported| reported.name == secret);
        let fault = match reported {
            Some(reported) => reported.reason.map(Fault::Secret),
            None if entry.served.is_none() && entry.fault.is_none() => Some(Fault::NotReported),
            None => Some(Fault::OtherSecret),
        };
        if fault.is_some() {
            return Found { fault, certificate: entry.served.as_ref(), file_fault: entry.fault.as_deref() };
        }
    }
    let wildcard = name.split_once('.').and_then(|(_, domain)| report.of(&format!("*.{domain}")));
    let entries = [report.of(name), wildcard];
    let is_cut = |entry: &CertificateReport| entry.served.is_none() && entry.fault.is_none();
    let file_fault = entries.into_iter().flatten().find_map(|entry| entry.fault.as_deref());
    let Some(entry) = entries.into_iter().flatten().find(|entry| entry.served.is_some() || is_cut(entry)) else {
        let fault = if report.omitted > 0 { Fault::NotReported } else { Fault::NoCertificate };
        return Found { fault: Some(fault), certificate: None, file_fault };
    };
    let Some(certificate) = &entry.served else { return not_reported };
    let fault = match certificate {
        // The certificate of the name itself can be among those left out.
        _ if entry.host != name && report.omitted > 0 => Some(Fault::NotReported),
        certificate if !certificate.covers(name) => Some(Fault::NameMismatch),
        certificate if now > certificate.not_after => Some(Fault::Expired),
        certificate if now < certificate.not_before => Some(Fault::NotYetValid),
        _ => None,
    };
    Found { fault, certificate: Some(certificate), file_fault }
}

fn moment(seconds: Option<i64>) -> String {
    let moment = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    moment.map_or("an unknown time".to_owned(), |moment| moment.to_string())
}

#[cfg(test)]
mod tests {
    use signpost_types::instance::SecretReport;

    use super::*;

    const NOW: i64 = 1_767_225_600;

    /// Returns a report of entries `host names from until fault`: the names with commas; the days from now, or `-` for both without a
    /// certificate.
    fn report(entries: &[&str]) -> CertificatesReport {
        let entry = |entry: &&str| {
            let [host, names, from, until, fault] = entry.split(' ').collect::<Vec<_>>()[..] else { panic!("{entry}") };
            let day = |days: &str| days.parse::<i64>().ok().map(|days| NOW + days * 86_400);
            let names = names.split(',').filter(|name| *name != "-").map(str::to_owned).collect();
            let served =
                |(not_before, not_after)| ServedCertificate { sha256: String::new(), not_before, not_after, names };
            let fault = (fault != "-").then(|| fault.to_owned());
            // A fault `SECRET=REASON:TEXT` is that of a Secret, or none with an empty reason.
            let (secret, fault) = match fault.as_deref().and_then(|fault| fault.split_once('=')) {
                Some((name, rest)) => {
                    let (reason, text) = rest.split_once(':').unwrap_or((rest, ""));
                    let reason = serde_json::from_value(reason.into()).ok().filter(|_| !reason.is_empty());
                    let fault = reason.is_some().then(|| text.replace('_', " "));
                    (Some(SecretReport { name: name.to_owned(), reason }), fault)
                }
                None => (None, fault),
            };
            CertificateReport { host: host.to_owned(), served: day(from).zip(day(until)).map(served), fault, secret }
        };
        CertificatesReport { certificates: entries.iter().map(entry).collect(), omitted: 0 }
    }

    #[test]
    fn the_certificate_of_a_name() {
        let wildcard = "*.s1.example *.s1.example -1 1 -";
        for (name, entries, expected) in [
            (
                "web.s1.example",
                vec![wildcard],
                "True CertificateValid: every live instance of Router s1 has a certificate",
            ),
            (
                "shop.example",
                vec![wildcard],
                "False NoCertificate: instances of Router s1 have no certificate for shop.example",
            ),
            // A wildcard is for one label.
            ("a.web.s1.example", vec![wildcard], "False NoCertificate"),
            ("s1.example", vec![wildcard], "False NoCertificate"),
            ("shop.example", vec!["shop.example www.shop.example,shop.example -1 1 -"], "True"),
            ("*.shop.example", vec!["*.shop.example *.shop.example -1 1 -"], "True"),
            ("*.shop.example", vec!["*.shop.example *.example -1 1 -"], "False NameMismatch"),
            // Proxies use the certificate by the name of its file.
            (
                "shop.example",
                vec!["shop.example a.example,b.example,c.example,d.example -1 1 -"],
                "False NameMismatch: the certificate that instances of Router s1 use for shop.example is for a.example, b.example, \
                 c.example and 1 more: 192.0.2.1",
            ),
            ("shop.example", vec!["a.example shop.example -1 1 -"], "False NoCertificate"),
            (
                "shop.example",
                vec!["shop.example - -1 1 -"],
                "False NameMismatch: the certificate that instances of Router s1 use \
             for shop.example is for no name: 192.0.2.1",
            ),
            // The certificate of the name itself comes first, also if it is not valid.
            (
                "web.s1.example",
                vec![wildcard, "web.s1.example web.s1.example -2 -1 -"],
                "False Expired: the certificate of instances of Router s1 for web.s1.example expired at 2025-12-31T00:00:00Z: \
                 192.0.2.1",
            ),
            (
                "web.s1.example",
                vec![wildcard, "web.s1.example - - - damaged"],
                "True CertificateValid: every live instance of \
             Router s1 has a certificate for web.s1.example, valid until 2026-01-02T00:00:00Z; its file cannot be used: damaged",
            ),
            (
                "shop.example",
                vec!["shop.example shop.example 1 2 -"],
                "False NotYetValid: the certificate of instances of Router s1 for shop.example is not valid before \
                 2026-01-02T00:00:00Z: 192.0.2.1",
            ),
            ("shop.example", vec!["shop.example shop.example 0 0 -"], "True"),
            ("shop.example", vec!["shop.example shop.example -1 1 damaged"], "True"),
            (
                "shop.example",
                vec!["shop.example - - - damaged"],
                "False NoCertificate: instances of Router s1 have no certificate for shop.example: 192.0.2.1; its file cannot be \
                 used: damaged",
            ),
            // The report has no room for it.
            ("shop.example", vec!["shop.example - - - -"], "Unknown NotReported"),
            ("web.s1.example", vec![wildcard, "web.s1.example - - - -"], "Unknown NotReported"),
        ] {
            let report = report(&entries);
            let said = examine((name, None), "s1", &[("192.0.2.1", Some(&report))], NOW).ready;
            let said = format!("{} {}: {}", said.status.text(), said.reason, said.message);
            assert!(said.starts_with(expected), "{name} {entries:?}: {said}");
        }
    }

    #[test]
    fn what_the_platform_does_for_a_certificate() {
        let none = vec!["other.example other.example -1 1 -"];
        let good = vec!["shop.example shop.example -1 1 -"];
        for (entries, is_issued, is_of_zone, expected) in [
            (
                &none,
                false,
                false,
                "False OrderFailed: instances of Router s1 have no certificate for shop.example: 192.0.2.1; refused",
            ),
            (&none, false, true, "False OrderFailed: instances"),
            // They are about to read it.
            (
                &none,
                true,
                false,
                "False NoCertificate: instances of Router s1 have no certificate for shop.example: 192.0.2.1; refused",
            ),
            (
                &good,
                true,
                false,
                "True CertificateValid: every live instance of Router s1 has a certificate for shop.example, valid \
             until 2026-01-02T00:00:00Z; refused",
            ),
            (
                &good,
                true,
                true,
                "True CertificateValid: every live instance of Router s1 has a certificate for shop.example, valid \
             until 2026-01-02T00:00:00Z",
            ),
        ] {
            let report = report(entries);
            let ready = examine(("shop.example", None), "s1", &[("192.0.2.1", Some(&report))], NOW).ready;
            let message = "refused".to_owned();
            let said = with_note(ready, Note { is_issued, is_of_zone, reason: "OrderFailed", message });
            let said = format!("{} {}: {}", said.status.text(), said.reason, said.message);
            assert!(
                said.starts_with(expected) && said.ends_with("refused") == expected.ends_with("refused") || is_of_zone,
                "{said}"
            );
        }
    }

    /// A Route with a Secret needs the certificate of that Secret, and the messages have what to do. The earlier certificate may be in use.
    #[test]
    fn the_certificate_of_a_secret() {
        let good = "shop.example shop.example -1 1";
        let wildcard = "*.example *.example -1 1 -";
        for (entries, expected) in [
            (
                vec![format!("{good} web-tls=")],
                "True CertificateValid: every live instance of Router s1 has a certificate for shop.example",
            ),
            (
                vec![format!("{good} other-tls=")],
                "False SecretNotUsed: spec.tls.secretName: instances of Router s1 do not use the Secret web-tls",
            ),
            (vec![format!("{good} -")], "False SecretNotUsed"),
            (vec![wildcard.to_owned()], "False SecretNotUsed"),
            (
                vec![wildcard.to_owned(), "shop.example - - - web-tls=NotFound:".to_owned()],
                "False SecretNotFound: spec.tls.secretName: Secret web-tls of namespace shop does not exist: 192.0.2.1",
            ),
            (
                vec![format!("{good} web-tls=NotFound:")],
                "False SecretNotFound: spec.tls.secretName: Secret web-tls of namespace shop does not exist: 192.0.2.1; the earlier \
                 certificate, valid until 2026-01-02T00:00:00Z, stays in use",
            ),
            (
                vec!["shop.example - - - web-tls=Forbidden:system:serviceaccount:signpost:agent".to_owned()],
                "False SecretForbidden: spec.tls.secretName: agents of Router s1 may not read Secret web-tls of namespace shop; to permit \
                 it, run \"kubectl create role signpost-web-tls -n shop --verb=get --resource=secrets --resource-name=web-tls\" and \
                 \"kubectl create rolebinding signpost-web-tls -n shop --role=signpost-web-tls \
                 --group=system:serviceaccounts:signpost\": 192.0.2.1",
            ),
            (
                vec![format!("{good} web-tls=KeyMismatch:the_private_key_does_not_belong_to_the_certificate")],
                "False KeyMismatch: spec.tls.secretName: Secret web-tls of namespace shop cannot be used: the private key does not belong \
                 to the certificate: 192.0.2.1; the earlier",
            ),
            (
                vec!["shop.example - - - web-tls=Expired:x".to_owned()],
                "False Expired: spec.tls.secretName: Secret web-tls",
            ),
            (vec!["shop.example - - - web-tls=NotYetValid:x".to_owned()], "False NotYetValid: spec.tls.secretName: "),
            (vec!["shop.example - - - web-tls=NameMismatch:x".to_owned()], "False NameMismatch: spec.tls.secretName: "),
            (vec!["shop.example - - - web-tls=WrongType:x".to_owned()], "False SecretWrongType: spec.tls.secretName: "),
            (vec!["shop.example - - - web-tls=TooLarge:x".to_owned()], "False SecretTooLarge: spec.tls.secretName: "),
            (vec!["shop.example - - - web-tls=Invalid:x".to_owned()], "False SecretInvalid: spec.tls.secretName: "),
            (vec!["shop.example - - - web-tls=Unread:x".to_owned()], "Unknown NotReported: spec.tls.secretName: "),
            // A reason of a later version.
            (vec!["shop.example - - - web-tls=Revoked:x".to_owned()], "Unknown NotReported: spec.tls.secretName: "),
            // The one in use has expired.
            (
                vec!["shop.example shop.example -2 -1 web-tls=".to_owned()],
                "False Expired: the certificate of instances of Router s1",
            ),
            // The report has no room for it.
            (vec!["shop.example - - - -".to_owned()], "Unknown NotReported"),
        ] {
            let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
            let report = report(&entries);
            let subject = ("shop.example", Some(("shop", "web-tls")));
            let said = examine(subject, "s1", &[("192.0.2.1", Some(&report))], NOW).ready;
            let said = format!("{} {}: {}", said.status.text(), said.reason, said.message);
            assert!(said.starts_with(expected), "{entries:?}: {said}");
        }
    }

    #[test]
    fn every_instance_needs_it() {
        let (good, old, later) = (
            report(&["shop.example shop.example -1 9 -"]),
            report(&["shop.example shop.example -1 2 -"]),
            report(&["shop.example shop.example 3 9 -"]),
        );
        let (none, expired) = (report(&[]), report(&["shop.example shop.example -2 -1 -"]));
        let cut = CertificatesReport { omitted: 1, ..report(&["*.example *.example -1 9 -"]) };
        let day = |days: i64| Some(NOW + days * 86_400);
        // A sixth of the validity before the end.
        let soon = |days: i64, validity: i64| Some(NOW + days * 86_400 - validity * 86_400 / 6);
        for (reports, expected, turn) in [
            (vec![Some(&good), Some(&old)], "True CertificateValid 2026-01-03", soon(2, 3)),
            (vec![Some(&good), None], "Unknown NotReported 192.0.2.2", soon(9, 10)),
            (vec![Some(&cut)], "Unknown NotReported 192.0.2.1", None),
            (vec![Some(&good), Some(&later)], "False NotYetValid 192.0.2.2", day(3)),
            (vec![Some(&expired), Some(&later), None], "False Expired 192.0.2.1", day(3)),
            (vec![Some(&expired), Some(&none), None, Some(&none)], "False NoCertificate 192.0.2.2, 192.0.2.4", None),
            (vec![Some(&none); 5], "False NoCertificate 192.0.2.1, 192.0.2.2, 192.0.2.3 and 2 more", None),
        ] {
            let addresses: Vec<String> = (1..=reports.len()).map(|octet| format!("192.0.2.{octet}")).collect();
            let instances: Vec<_> = addresses.iter().map(String::as_str).zip(reports.iter().copied()).collect();
            let Examined { ready: said, turn: found, .. } = examine(("shop.example", None), "s1", &instances, NOW);
            let (head, rest) =
                expected.split_at(expected.find("192").or(expected.find("2026")).expect("a place or date"));
            assert_eq!(format!("{} {} ", said.status.text(), said.reason), head);
            assert!(said.message.contains(rest) && found == turn, "{said:?} {found:?} {turn:?}");
        }
    }

    /// The days of validity of the certificate of each instance, whether one expires soon, and the day of the next change.
    #[test]
    fn a_certificate_expires_soon() {
        for (days, expected, turn) in [
            (vec!["-76 14"], Some("ends at 2026-01-15T00:00:00Z: 192.0.2.1"), Some((14, 1))),
            (vec!["-75 15"], None, Some((1, 0))),
            // A sixth of six days.
            (vec!["-5 1"], Some("ends at 2026-01-02T00:00:00Z"), Some((1, 1))),
            (vec!["-4 2"], None, Some((1, 0))),
            (
                vec!["-1 89", "-80 10", "-81 9"],
                Some("ends at 2026-01-10T00:00:00Z: 192.0.2.2, 192.0.2.3"),
                Some((9, 1)),
            ),
            // Until it is replaced.
            (vec!["-91 -1"], Some("ends at 2025-12-31T00:00:00Z"), None),
            (vec!["1 2"], None, Some((1, 0))),
        ] {
            let report = |days: &&str| report(&[&format!("shop.example shop.example {days} -")]);
            let reports: Vec<_> = days.iter().map(report).collect();
            let addresses: Vec<String> = (1..=reports.len()).map(|octet| format!("192.0.2.{octet}")).collect();
            let instances: Vec<_> = addresses.iter().map(String::as_str).zip(reports.iter().map(Some)).collect();
            let examined = examine(("shop.example", None), "s1", &instances, NOW);
            let said = Some(examined.expiring).filter(ConditionUpdate::is_true).map(|said| said.message);
            assert_eq!(said.is_some(), expected.is_some(), "{days:?}");
            assert!(said.is_none_or(|said| said.contains(expected.unwrap_or_default())), "{days:?}");
            let turn = turn.map(|(day, seconds): (i64, i64)| NOW + day * 86_400 + seconds);
            assert_eq!(examined.turn, turn, "{days:?}");
        }
    }
}
