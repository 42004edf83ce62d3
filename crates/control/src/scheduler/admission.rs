//! Which route gets a custom host, and which wait for it.
//!
//! A route is kept out by a host of another namespace that overlaps with its own ([`super::hosts`]), by a proof that is missing,
//! by a route to which the very host is being given, or by one that holds it, which claiming it finds out. It waits for just
//! that, and is looked at again when that has changed; its wait in the queue is only the guard against a change that was missed.

use tokio::time::Instant;

use super::lines::Place;
use super::report::Report;
use super::{FAILURES_TOLD, Scheduler, Subject};
use crate::client::backoff::random;
use crate::client::events::Events;
use crate::client::reflector::{self, Change, ObjectKey};
use crate::client::uid::Uid;
use crate::world::{ClaimInfo, RouteInfo, quarantine};
use signpost_api::names::host_claim_name;
use signpost_api::v1alpha1::name_claim::ClaimKind;

/// Why a route may not have its host: in a word, and in a sentence.
pub(super) type Refusal = (&'static str, String);

impl Scheduler {
    /// What keeps a route from claiming its custom host now, if something does. It waits for that.
    pub(super) fn kept_out(&mut self, key: &ObjectKey, route: &RouteInfo, host: &str) -> Option<Refusal> {
        let refused = |message: String| Some(("HostAlreadyClaimed", message));
        if let Some(overlap) = self.hosts.overlap(host, key.namespace.as_deref().unwrap_or_default()) {
            self.hosts.wait(key, &overlap);
            self.give_up_host(key, route);
            return refused(overlap.message);
        }
        if self.settings.prove_hosts && !route.is_host_proven() {
            self.give_up_host(key, route);
            let message = format!("{host} is to be proven yours: create the TXT record in status.challenge.record");
            return Some(("OwnershipUnproven", message));
        }
        let contest = self.hosts.contest(host, key)?;
        self.hosts.wait(key, &contest);
        self.lines.join(&host_claim_name(host), route.created, key);
        refused(contest.message)
    }

    /// Keeps its custom host for a route that [`kept_out`](Self::kept_out) let pass, from when a Router is looked for on: whoever
    /// wants it after that waits, however long the answer of a webhook takes.
    pub(super) fn reserve_host(&mut self, subject: &Subject) {
        let Some(host) = subject.custom_host() else { return };
        // Before the attempt, so that a release of the host during it is not missed.
        self.lines.join(&host_claim_name(host), subject.route.created, &subject.key);
        let woken = self.hosts.reserve(host, &subject.key);
        self.look_at(woken);
    }

    /// A route does not take its host for now. Whoever waited to see that is looked at; and if the host was offered to it, the
    /// next in line.
    pub(super) fn give_up_host(&mut self, key: &ObjectKey, route: &RouteInfo) {
        let woken = self.hosts.release(key);
        self.look_at(woken);
        self.pass_host_on(key, route);
    }

    /// The attempt of a route has ended, and it is not bound, but may be tried again soon: it keeps its place in the line as long
    /// as it is there.
    pub(super) fn release_host(&mut self, key: &ObjectKey, route: &RouteInfo) {
        let woken = self.hosts.release(key);
        self.look_at(woken);
        if !self.routes.get(key).is_some_and(|now| now.uid == route.uid && !now.deleting) {
            self.pass_host_on(key, route);
        }
    }

    /// The API says that a route's host overlaps one that another namespace holds, of which nothing was known when the route was
    /// looked at. By now it may be: then that is waited for. If not, the mirror lags, or does not show that claim at all.
    pub(super) fn on_overlap(&mut self, key: &ObjectKey, route: &RouteInfo, events: &Events) {
        let host = route.host.as_deref().unwrap_or_default();
        self.give_up_host(key, route);
        if let Some(overlap) = self.hosts.overlap(host, key.namespace.as_deref().unwrap_or_default()) {
            self.hosts.wait(key, &overlap);
            return self.refuse(key, route, "HostAlreadyClaimed", overlap.message, events);
        }
        if self.queue.failed(key, Instant::now(), random()) >= FAILURES_TOLD {
            let message = format!("{host} overlaps a host that a route of another namespace holds");
            self.report(key, route, Report::not_admitted(&route.uid, "HostAlreadyClaimed", message), events);
        }
    }

    pub(super) fn on_claims(&mut self, change: Change<ClaimInfo>) {
        for freed in quarantine::freed(&change) {
            if self.names_kept(freed.kind, &freed.namespace).is_none() {
                self.waking.for_names_of(&freed.namespace);
            }
        }
        let (applied, gone) = match change {
            Change::Applied(applied) => (vec![applied], Vec::new()),
            Change::Deleted { key, last } => (Vec::new(), vec![(key, last)]),
            Change::Resynced(resync) => (resync.applied, resync.vanished),
        };
        let is_host = |claim: &ClaimInfo| claim.kind == ClaimKind::Host;
        let (mut names, mut woken) = (Vec::new(), Vec::new());
        for (key, last) in gone.into_iter().filter(|(_, last)| is_host(last)) {
            woken.extend(self.hosts.remove(&key.name, &last));
            names.push(key.name);
        }
        for reflector::Applied { key, now, before, .. } in applied.into_iter().filter(|one| is_host(&one.now)) {
            woken.extend(self.hosts.set(&key.name, before.as_deref(), &now));
            names.push(key.name);
        }
        for name in names {
            woken.extend(match self.holder(&name) {
                Some(holder) => {
                    let is_holder = |key: &&ObjectKey| self.routes.get(key).is_some_and(|route| route.uid == holder);
                    self.lines.waiting(&name).find(is_holder).cloned()
                }
                None => self.offer(&name),
            });
        }
        self.look_at(woken);
    }

    /// Looks again at routes that were kept from their host, the oldest first: of those that want one and the same host, or
    /// overlapping ones, it gets it.
    pub(super) fn look_at(&mut self, woken: Vec<ObjectKey>) {
        let waits = |key: ObjectKey| {
            let route = self.routes.get(&key).filter(|route| !route.bound && !route.deleting)?;
            Some(self.lines.place(route.created, &key))
        };
        let mut woken: Vec<Place> = woken.into_iter().filter_map(waits).collect();
        woken.sort_unstable();
        woken.into_iter().for_each(|(.., key)| self.queue.push(key));
    }

    /// The route, as it was, waits for its host no more: it is bound.
    pub(super) fn stop_waiting_for_host(&mut self, key: &ObjectKey, route: &RouteInfo) {
        self.hosts.stop(key);
        if let Some(host) = &route.host {
            self.lines.leave(&host_claim_name(host), route.created, key);
        }
    }

    /// The route, as it was, does not want its host any more: it is gone, or wants another one.
    pub(super) fn leave_line(&mut self, key: &ObjectKey, route: &RouteInfo) {
        // The end of an attempt that is under way releases what it has reserved.
        if !self.queue.is_in_flight(key) {
            let woken = self.hosts.release(key);
            self.look_at(woken);
        }
        self.pass_host_on(key, route);
        self.stop_waiting_for_host(key, route);
    }

    /// If the host of a route was offered to it, and is free, the next in line is looked at.
    fn pass_host_on(&mut self, key: &ObjectKey, route: &RouteInfo) {
        let Some(host) = &route.host else { return };
        let claim = host_claim_name(host);
        if self.holder(&claim).is_some() {
            return;
        }
        let (routes, prove) = (&self.routes, self.settings.prove_hosts);
        let may = |key: &ObjectKey| routes.get(key).is_some_and(|route| may_have_host(&route, prove));
        if let Some(next) = self.lines.pass_on(&claim, route.created, key, may) {
            self.queue.push(next);
        }
    }

    /// The one that has waited longest for a free host, of those that may have it; the others go on waiting.
    fn offer(&mut self, claim: &str) -> Option<ObjectKey> {
        let (routes, prove) = (&self.routes, self.settings.prove_hosts);
        self.lines.offer(claim, |key| routes.get(key).is_some_and(|route| may_have_host(&route, prove)))
    }

    /// The uid of the Route that holds the host of this claim, if one does.
    fn holder(&self, claim: &str) -> Option<Uid> {
        self.claims
            .get(&ObjectKey::cluster(claim))
            .filter(|claim| claim.released.is_none())
            .map(|claim| claim.holder_uid.clone())
    }
}

fn may_have_host(route: &RouteInfo, prove_hosts: bool) -> bool {
    !route.bound && !route.deleting && (route.is_host_proven() || !prove_hosts)
}
