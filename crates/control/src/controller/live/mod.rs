//! Live before told: a Route's `Resolvable` turns true only after every listed name server was asked over the wire and
//! answered right, and turns false when that is no longer so. `docs/live.md` tells what that means to people.
//!
//! ```text
//!  ledger of serials ── which zone holds what, under which serial ─┐
//!                                                                  ├─► Proofs ─► checks ─► name servers (UDP, TCP)
//!  keeper of placement ── which Routes have changed ───────────────┘     │  ▲        │
//!                                                                        │  └────────┘
//!                                                                        └─► status of Routes and Routers, Events
//! ```
//!
//! The loop runs where the ledger does: only in the process that leads. It adds one write to the way of a new Route, and a
//! few questions a second, whatever the number of Routes: [`proofs`] says why that is enough.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::num::NonZeroI64;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::agenda::Job;
use self::check::{Fault, Seen, carry_out};
use self::feed::{RouteFeed, ZoneFeed};
use self::metrics::Metrics;
use self::proofs::{Proofs, Server};
use self::unheld::Unheld;
use self::write::{RouteWrite, Written};
use crate::client::backoff::random;
use crate::client::events::{Events, Notice, Reporter};
use crate::client::reflector::{Informer, ObjectKey, Store};
use crate::client::status::Statement;
use crate::compiler;
use crate::compiler::inputs::binding_key;
use crate::world::{BindingInfo, RouteInfo, RouterInfo};
use signpost_api::names::is_at_or_below;
use signpost_api::v1alpha1::deletion_hold::{DeletionHold, DeletionHoldKind};
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;
use signpost_runtime::telemetry::trace::Trace;

pub mod feed;
pub mod proofs;
mod routes;
pub mod shard;
pub mod standing;

pub mod agenda;
mod own;
mod unheld;
pub mod verdict;
mod waiting;

pub mod check;
pub mod write;

pub mod metrics;

#[cfg(test)]
pub(super) mod fake;
#[cfg(test)]
mod simulation;

/// Writes at a time. New Routes are scheduled and published beside this, which must not wait for it.
const WRITES_AT_A_TIME: usize = 16;
/// Checks at a time: a silent server holds each for some seconds.
const CHECKS_AT_A_TIME: usize = 64;
/// Questions a second that name servers are asked, all together, on average and at most at once.
const QUESTIONS_PER_SECOND: u32 = 500;
/// Events a second on average, and at most at once: an event costs the API a write, as a Route does, and tells what the
/// status tells.
const EVENTS_PER_SECOND: u32 = 20;
/// Routes judged in a row before anything else is looked at.
const JUDGED_IN_A_ROW: usize = 1024;
/// How long a write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long after a write failed it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What is asked, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The listed name servers; `None`: nobody is asked.
    pub servers: Option<Vec<Server>>,
    /// How long a name server may take to answer one question.
    pub timeout: Duration,
    /// How long after a right answer a zone is checked again, about.
    pub interval: Duration,
    /// Name of this process in events.
    pub instance: String,
    /// Apexes of the zones that this process serves from files.
    pub files: watch::Receiver<Arc<BTreeSet<Name>>>,
}

/// What the keeper of placement knows and tells.
#[derive(Clone)]
pub struct Routes {
    /// The informer of the Routes.
    pub routes: Store<RouteInfo>,
    /// The informer of the RouteBindings.
    pub bindings: Store<BindingInfo>,
    /// The informer of the Routers.
    pub routers: Store<RouterInfo>,
    /// The deletion holds.
    pub holds: Informer<DeletionHold>,
    /// Its news.
    pub feed: Arc<RouteFeed>,
}

/// Proves names until `stop`. `client`'s identity must be allowed to write the status of Routes and Routers, and Events.
pub async fn run(
    client: kube::Client,
    platform: Arc<compiler::Settings>,
    settings: Settings,
    (routes, zones): (Routes, Arc<ZoneFeed>),
    metrics: Metrics,
    stop: CancellationToken,
) {
    let reporter =
        Reporter { controller: "signpost.dev/verifier", action: "Verifying", instance: settings.instance.clone() };
    let (deletion_holds, mut deletion_hold_changes) = routes.holds.read();
    let (events, recording) = Events::new(client.clone(), reporter, metrics.events.clone());
    // It ends with this loop.
    let mut beside = JoinSet::new();
    beside.spawn(recording);
    routes.feed.open();
    let mut files = settings.files.clone();
    files.mark_changed();
    let mut prover = Prover {
        proofs: Proofs::new(platform, settings.servers.clone(), settings.interval),
        questions: Pace::new(QUESTIONS_PER_SECOND),
        told: Pace::new(EVENTS_PER_SECOND),
        client,
        settings,
        routes,
        zones,
        metrics,
        events,
        unheld: Unheld::default(),
        routers: HashMap::new(),
        writing: HashSet::new(),
        again: HashSet::new(),
        writes: JoinSet::new(),
        checks: JoinSet::new(),
    };
    loop {
        prover.take_news();
        let more = prover.judge_some();
        prover.start_checks();
        prover.metrics.reasons(prover.proofs.reasons());
        let wake_at = prover.next_time();
        tokio::select! {
            () = stop.cancelled() => break,
            () = prover.zones.wait() => {}
            () = prover.routes.feed.wait() => {}
            Ok(()) = files.changed() => {
                let now = files.borrow_and_update().clone();
                prover.proofs.take_files(now, Instant::now());
            }
            _ = deletion_hold_changes.next() => prover.proofs.take_deletion_holds(held_by(&deletion_holds)),
            Some(landed) = prover.checks.join_next() => prover.on_checked(landed),
            Some(landed) = prover.writes.join_next() => prover.on_written(landed),
            () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
            () = tokio::task::yield_now(), if more => {}
        }
    }
    prover.routes.feed.close();
    prover.metrics.forget_reasons();
    // Each write is whole by itself, and checks leave nothing behind.
    prover.writes.shutdown().await;
    prover.checks.shutdown().await;
}

struct Prover {
    client: kube::Client,
    settings: Settings,
    routes: Routes,
    zones: Arc<ZoneFeed>,
    metrics: Metrics,
    events: Events,
    proofs: Proofs,
    unheld: Unheld,
    /// What was written of each Router.
    routers: HashMap<String, (Statement, Option<Serial>)>,
    writing: HashSet<Subject>,
    /// Labels that were judged while their Route was being written.
    again: HashSet<Box<str>>,
    writes: JoinSet<(Subject, kube::Result<Written>)>,
    checks: JoinSet<(Job, Result<Seen, Fault>)>,
    questions: Pace,
    told: Pace,
}

/// What is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    /// The Route that has this label.
    Held(ObjectKey, Box<str>),
    /// A Route without a name in any zone.
    Unheld(ObjectKey),
    /// The Router of this zone.
    Router(Name),
}

impl Prover {
    fn take_news(&mut self) {
        let now = Instant::now();
        let news = self.zones.take();
        // A zone elsewhere may take hosts of routes, or let go of them; one of the platform's domain holds none.
        let comes_or_goes = |(apex, shard): (&Name, &Option<_>)| {
            self.proofs.is_other_elsewhere(apex, shard.is_some()).then(|| apex.clone())
        };
        let elsewhere: Vec<Name> = news.shards.iter().filter_map(comes_or_goes).collect();
        self.proofs.take(news, now);
        self.look_at_hosts_in(&elsewhere);
        for name in self.routes.feed.take_routers() {
            self.look_at_router(&name);
        }
        for key in self.routes.feed.take() {
            let bound = self.routes.routes.get(&key).is_some_and(|route| route.bound);
            let binding = self.routes.bindings.get(&key).filter(|_| bound);
            let held = binding.as_ref().is_some_and(|binding| self.holds(&key, &binding.label));
            match binding {
                Some(binding) if held => {
                    self.unheld.remove(&key);
                    self.proofs.look_at(&binding.label.to_ascii_lowercase());
                }
                Some(_) => self.unheld.insert(key, now),
                None => self.unheld.remove(&key),
            }
        }
    }

    /// Has a Router told of its zone again, if its status does not say what was written there.
    fn look_at_router(&mut self, name: &str) {
        let Some(view) = self.routes.routers.get(&ObjectKey::cluster(name)) else { return };
        let Some((statement, serial)) = self.routers.get(name) else { return };
        if !view.says_of_zone(statement, serial.map(|serial| serial.0)) {
            self.routers.remove(name);
            self.proofs.look_at_router(name);
        }
    }

    /// Has the Routes judged whose own hosts lie in one of these zones.
    fn look_at_hosts_in(&mut self, zones: &[Name]) {
        if zones.is_empty() {
            return;
        }
        let zones: Vec<String> = zones.iter().map(check::text).collect();
        for (key, route) in self.routes.routes.all() {
            let lies = |host: &str| zones.iter().any(|zone| is_at_or_below(host, zone));
            if route.host.as_deref().is_some_and(lies)
                && let Some(binding) = self.routes.bindings.get(&key)
            {
                self.proofs.look_at(&binding.label.to_ascii_lowercase());
            }
        }
    }

    /// Whether the label's names are those of the Route at `key`.
    fn holds(&self, key: &ObjectKey, label: &str) -> bool {
        let binding = self.proofs.binding(&label.to_ascii_lowercase());
        binding.is_some_and(|binding| *binding.key == *binding_key(namespace(key), &key.name))
    }

    /// Judges what is to be judged, as long as more may be written at a time; whether there is more.
    fn judge_some(&mut self) -> bool {
        let now = Instant::now();
        for _ in 0..JUDGED_IN_A_ROW {
            if !self.may_write() {
                // The end of a write brings us back here.
                return false;
            }
            if let Some(apex) = self.proofs.pop_changed_shard(now) {
                self.judge_router(apex);
                continue;
            }
            if let Some(key) = self.unheld.pop_late(now) {
                self.judge_unheld(key);
                continue;
            }
            let Some(label) = self.proofs.pop_dirty(now) else { return false };
            self.judge(label, now);
        }
        true
    }

    fn may_write(&self) -> bool {
        self.writes.len() < WRITES_AT_A_TIME
    }

    fn judge(&mut self, label: Box<str>, now: Instant) {
        let Some(binding) = self.proofs.binding(&label).cloned() else { return };
        let Some((namespace, name)) = binding.key.split_once('/') else { return };
        let key = ObjectKey::namespaced(namespace, name);
        let route = self.routes.routes.get_versioned(&key);
        let host = route.as_ref().and_then(|(route, _)| route.host.as_deref());
        let saying = self.proofs.saying(&label, host, now, Timestamp::now());
        let known = saying.resolvable.as_ref().or(saying.published.as_ref().filter(|_| !self.proofs.asks_anyone()));
        self.proofs.note(&label, known.map(|statement| statement.reason));
        if saying.published.is_none() {
            self.proofs.look_at_when_late(&label, now);
        }
        // A Route that the informer does not show as bound yet is told of when it is.
        let Some((route, version)) = route.filter(|(route, _)| route.bound) else { return };
        let statements = route.conditions.told.lacks(saying);
        let subject = Subject::Held(key.clone(), label.clone());
        if self.writing.contains(&subject) {
            self.again.insert(label);
            return;
        }
        if statements.is_empty() {
            return;
        }
        self.write(
            subject,
            RouteWrite {
                key,
                uid: route.uid.to_string(),
                generation: route.generation.map(NonZeroI64::get),
                fresh: route.conditions.told.is_nothing().then_some(version),
                system_name: Some(format!("{}.{}", binding.label, binding.shard)),
                statements,
            },
        );
    }

    fn judge_unheld(&mut self, key: ObjectKey) {
        let route = self.routes.routes.get(&key).filter(|route| route.bound);
        let binding = self.routes.bindings.get(&key);
        let held = binding.as_ref().is_some_and(|binding| self.holds(&key, &binding.label));
        if let (Some(route), Some(_), false) = (route, binding, held) {
            let statements = route.conditions.told.lacks(self.proofs.unheld_saying());
            let (uid, generation) = (route.uid.to_string(), route.generation.map(NonZeroI64::get));
            let subject = Subject::Unheld(key.clone());
            if !statements.is_empty() && !self.writing.contains(&subject) {
                self.write(subject, RouteWrite { key, uid, generation, fresh: None, system_name: None, statements });
            }
        }
    }

    fn write(&mut self, subject: Subject, write: RouteWrite) {
        self.writing.insert(subject.clone());
        let client = self.client.clone();
        self.writes.spawn(async move {
            let result = timeout(WRITE_TIMEOUT, write::route(&client, &write)).await;
            (subject, result.unwrap_or_else(|_| Err(silent())))
        });
    }

    fn judge_router(&mut self, apex: Name) {
        let Some((name, statement, serial)) = self.proofs.router_saying(&apex) else { return };
        // A good verdict is not told anew because it was reached anew.
        let is_told = self.routers.get(&name).is_some_and(|(told, told_serial)| {
            *told_serial == serial && (*told == statement || told.is_true && statement.is_true)
        });
        let subject = Subject::Router(apex);
        if is_told || !self.writing.insert(subject.clone()) {
            return;
        }
        self.routers.insert(name.clone(), (statement.clone(), serial));
        let client = self.client.clone();
        self.writes.spawn(async move {
            let write = write::router(&client, &name, &statement, serial);
            let result = timeout(WRITE_TIMEOUT, write).await.unwrap_or_else(|_| Err(silent()));
            (subject, result.map(|()| Written::default()))
        });
    }

    fn on_written(&mut self, landed: Result<(Subject, kube::Result<Written>), JoinError>) {
        let (subject, result) = match landed {
            Ok(landed) => landed,
            Err(error) => return tracing::error!(%error, "writing what was found out panicked"),
        };
        self.writing.remove(&subject);
        self.metrics.written(result.is_ok());
        match (&subject, &result) {
            (Subject::Held(key, label), Ok(written)) => {
                self.trace(key, label, written);
                self.tell(key, written);
            }
            (Subject::Unheld(key), Ok(written)) => self.tell(key, written),
            (Subject::Router(apex), Ok(_)) => self.proofs.look_at_shard(apex.clone()),
            (_, Err(error)) => tracing::warn!(?subject, %error, "a condition cannot be written; it is tried again"),
        }
        if result.is_err() {
            match subject {
                Subject::Held(_, label) => self.proofs.look_at_later(&label, Instant::now() + RETRY_AFTER),
                Subject::Unheld(key) => self.unheld.insert(key, Instant::now()),
                Subject::Router(apex) => {
                    let name = self.proofs.router_saying(&apex).map(|(name, ..)| name);
                    name.map(|name| self.routers.remove(&name));
                    self.proofs.look_at_shard_later(apex, Instant::now() + RETRY_AFTER);
                }
            }
        } else if let Subject::Held(_, label) = subject
            && self.again.remove(&label)
        {
            self.proofs.look_at(&label);
        }
    }

    /// The span of a proof: from the moment at which the ledger named a version of the zones with the Route's names.
    fn trace(&self, key: &ObjectKey, label: &str, written: &Written) {
        if written.resolvable.as_ref().is_none_or(|resolvable| !resolvable.is_true) {
            return;
        }
        let Some(trace) = self.routes.routes.get(key).and_then(|route| Trace::of(&route.uid.to_string())) else {
            return;
        };
        let Some(since) = self.proofs.known_since(label) else { return };
        let span = trace.step("prove", since.into_std()).with("signpost.route", key.to_string());
        span.with("signpost.label", label).with("signpost.resolvable", "true").end();
    }

    /// Tells what has changed by an Event, and measures.
    fn tell(&mut self, key: &ObjectKey, written: &Written) {
        if written.resolvable.as_ref().is_some_and(|resolvable| resolvable.is_true)
            && let Some(appeared) = self.routes.feed.take_appeared(key)
        {
            self.metrics.resolvable_after(appeared.elapsed());
        }
        let Some(route) = self.routes.routes.get(key) else { return };
        for (turned, good, bad) in
            [(&written.published, "Published", "NotPublished"), (&written.resolvable, "Resolvable", "NotResolvable")]
        {
            let Some(Statement { is_true, reason, message, .. }) = turned else { continue };
            if !self.told.take(1, Instant::now()) {
                self.metrics.events.dropped.inc();
                continue;
            }
            let notice = Notice {
                route: key.clone(),
                uid: route.uid.to_string(),
                is_warning: !is_true,
                reason: if *is_true { good } else { bad },
                note: if *is_true { message.clone() } else { format!("{reason}: {message}") },
            };
            self.events.tell(notice);
        }
    }

    /// Begins the checks that are due, as many as the pace allows.
    fn start_checks(&mut self) {
        let now = Instant::now();
        while self.checks.len() < CHECKS_AT_A_TIME && self.questions.is_open(now) {
            let Some(job) = self.proofs.next_job(now, random()) else { return };
            let questions = job.check.questions();
            self.questions.take(u32::try_from(questions).unwrap_or(u32::MAX), now);
            self.metrics.questions.inc_by(questions as u64);
            let (address, patience) = (self.proofs.server(job.server).address, self.settings.timeout);
            self.checks.spawn(async move {
                let result = carry_out(address, &job.check, patience).await;
                (job, result)
            });
        }
    }

    fn on_checked(&mut self, landed: Result<(Job, Result<Seen, Fault>), JoinError>) {
        match landed {
            Ok((job, result)) => {
                self.metrics.check(result.as_ref().map_or_else(Fault::label, |_| "right"));
                self.proofs.landed(&job, result, Instant::now(), random());
            }
            Err(error) => tracing::error!(%error, "a check panicked"),
        }
    }

    fn next_time(&self) -> Option<Instant> {
        let now = Instant::now();
        // Where too much is under way, its end brings us back.
        let unheld = self.unheld.next_late_at().filter(|_| self.may_write());
        let looks = self.proofs.next_look_at().filter(|_| self.may_write());
        let checks = self.proofs.next_check_at().filter(|_| self.checks.len() < CHECKS_AT_A_TIME);
        let checks = checks.map(|at| at.max(self.questions.opens_at(now)));
        [unheld, looks, checks].into_iter().flatten().min()
    }
}

/// The DeletionHolds that name servers have entered.
fn held_by(deletion_holds: &Store<DeletionHold>) -> BTreeMap<String, DeletionHoldKind> {
    let is_entered =
        |deletion_hold: &DeletionHold| deletion_hold.status.as_ref().is_some_and(|status| !status.holders.is_empty());
    let entered = deletion_holds.all().into_iter().filter(|(_, deletion_hold)| is_entered(deletion_hold));
    entered.map(|(key, deletion_hold)| (key.name, deletion_hold.spec.kind)).collect()
}

fn namespace(key: &ObjectKey) -> &str {
    key.namespace.as_deref().unwrap_or_default()
}

fn silent() -> kube::Error {
    kube::Error::ReadEvents(std::io::Error::new(std::io::ErrorKind::TimedOut, "the API did not answer in time"))
}

/// A pace: so many a second on average, and at most a second's worth at once.
#[derive(Debug)]
struct Pace {
    per_second: u32,
    /// When all that was taken is paid back.
    until: Option<Instant>,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Pace { per_second, until: None }
    }

    /// Whether something may be taken.
    fn is_open(&self, now: Instant) -> bool {
        self.opens_at(now) <= now
    }

    /// When something may be taken.
    fn opens_at(&self, now: Instant) -> Instant {
        self.until.and_then(|until| until.checked_sub(Duration::from_secs(1))).map_or(now, |opens| opens.max(now))
    }

    /// Takes `count`, if it may.
    fn take(&mut self, count: u32, now: Instant) -> bool {
        let open = self.is_open(now);
        if open {
            let paid = self.until.map_or(now, |until| until.max(now));
            self.until = Some(paid + Duration::from_secs(1).saturating_mul(count) / self.per_second);
        }
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_allows_a_second_at_once_and_then_so_many_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new(10);
        let taken = |pace: &mut Pace, now| (0..100).filter(|_| pace.take(1, now)).count();
        assert_eq!(taken(&mut pace, start), 11);
        assert_eq!(taken(&mut pace, start + Duration::from_millis(350)), 3);
        assert!(!pace.is_open(start + Duration::from_millis(350)));
        assert!(pace.is_open(pace.opens_at(start + Duration::from_millis(350))));
        assert_eq!(taken(&mut pace, start + Duration::from_secs(60)), 11);
    }
}
