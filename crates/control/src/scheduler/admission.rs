//! Which route gets a custom host, and which wait for it.
//!
//! A route is kept out by a host of another namespace that overlaps with its own ([`super::hosts`]), by a proof that is missing,
//! by a route to which the very host is being given, or by one that holds it, which claiming it finds out. It waits for just
//! that, and is looked at again when that has changed; its wait in the queue is only the guard against a change that was missed.

use super::hosts::Hosts;
use super::lines::{Lines, Place};
use super::queue::Queue;
use crate::client::reflector::{Applied, Change, ObjectKey, Store};
use crate::client::uid::Uid;
use crate::world::{ClaimInfo, RouteInfo};
use signpost_api::names::host_claim_name;
use signpost_api::v1alpha1::name_claim::ClaimKind;

/// Why a route may not have its host: in a word, and in a sentence.
pub(super) type Refusal = (&'static str, String);

/// The routes that want custom hosts. Those that may have theirs now are put in the queue.
pub(super) struct Admission {
    routes: Store<RouteInfo>,
    claims: Store<ClaimInfo>,
    /// Whether a host is to be verified.
    prove: bool,
    /// Routes that want one and the same host.
    lines: Lines,
    /// Hosts that overlap.
    hosts: Hosts,
}

impl Admission {
    /// Nobody wants one.
    pub fn new(routes: Store<RouteInfo>, claims: Store<ClaimInfo>, prove: bool) -> Self {
        Admission { routes, claims, prove, lines: Lines::default(), hosts: Hosts::default() }
    }

    /// A route that wants a host is heard of.
    pub fn arrive(&mut self, key: &ObjectKey) {
        self.lines.arrive(key);
    }

    /// What keeps a route from claiming its custom host now, if something does. It waits for that.
    pub fn kept_out(&mut self, key: &ObjectKey, route: &RouteInfo, host: &str, queue: &mut Queue) -> Option<Refusal> {
        let refused = |message: String| Some(("HostAlreadyClaimed", message));
        if let Some(message) = self.wait_for_overlap(key, host) {
            self.give_up(key, route, queue);
            return refused(message);
        }
        if self.prove && !route.is_host_verified() {
            self.give_up(key, route, queue);
            let message = format!("{host} is to be verified yours: create the TXT record in status.challenge.record");
            return Some(("OwnershipNotVerified", message));
        }
        let contest = self.hosts.contest(host, key)?;
        self.hosts.wait(key, &contest);
        self.lines.join(&host_claim_name(host), route.created, key);
        refused(contest.message)
    }

    /// Has a route wait for a host of another namespace that overlaps with its own, if there is one. The answer says so.
    pub fn wait_for_overlap(&mut self, key: &ObjectKey, host: &str) -> Option<String> {
        let overlap = self.hosts.overlap(host, key.namespace())?;
        self.hosts.wait(key, &overlap);
        Some(overlap.message)
    }

    /// Keeps its custom host for a route that [`kept_out`](Self::kept_out) let pass, from when a Router is looked for on: whoever
    /// wants it after that waits, however long the answer of a webhook takes.
    pub fn reserve(&mut self, key: &ObjectKey, route: &RouteInfo, host: &str, queue: &mut Queue) {
        // Before the attempt, so that a release of the host during it is not missed.
        self.lines.join(&host_claim_name(host), route.created, key);
        let woken = self.hosts.reserve(host, key);
        self.look_at(woken, queue);
    }

    /// What was reserved for a route is free. Whoever waited to see what comes of that is looked at.
    pub fn release(&mut self, key: &ObjectKey, queue: &mut Queue) {
        let woken = self.hosts.release(key);
        self.look_at(woken, queue);
    }

    /// A route does not take its host for now: if that was offered to it, the next in line is looked at.
    pub fn give_up(&mut self, key: &ObjectKey, route: &RouteInfo, queue: &mut Queue) {
        self.release(key, queue);
        self.pass_on(key, route, queue);
    }

    /// The attempt of a route has ended, and it is not bound, but may be tried again soon: it keeps its place in the line as long
    /// as it is there.
    pub fn end_attempt(&mut self, key: &ObjectKey, route: &RouteInfo, queue: &mut Queue) {
        self.release(key, queue);
        if !self.routes.get(key).is_some_and(|now| now.uid == route.uid && !now.deleting) {
            self.pass_on(key, route, queue);
        }
    }

    /// Claims have changed.
    pub fn on_claims(&mut self, change: Change<ClaimInfo>, queue: &mut Queue) {
        let (applied, gone) = change.into_parts();
        let is_host = |claim: &ClaimInfo| claim.kind == ClaimKind::Host;
        let (mut names, mut woken) = (Vec::new(), Vec::new());
        for (key, last) in gone.into_iter().filter(|(_, last)| is_host(last)) {
            woken.extend(self.hosts.remove(&key.name, &last));
            names.push(key.name);
        }
        for Applied { key, now, before, .. } in applied.into_iter().filter(|one| is_host(&one.now)) {
            woken.extend(self.hosts.set(&key.name, before.as_deref(), &now));
            names.push(key.name);
        }
        for name in names {
            let (routes, prove) = (&self.routes, self.prove);
            woken.extend(match self.holder(&name) {
                Some(holder) => {
                    let is_holder = |key: &&ObjectKey| routes.get(key).is_some_and(|route| route.uid == holder);
                    self.lines.waiting(&name).find(is_holder).cloned()
                }
                // The one that has waited longest, of those that may have it; the others go on waiting.
                None => self.lines.offer(&name, |key| may_have_host(routes, key, prove)),
            });
        }
        self.look_at(woken, queue);
    }

    /// Looks again at routes that were kept from their host, the oldest first: of those that want one and the same host, or
    /// overlapping ones, it gets it.
    fn look_at(&self, woken: Vec<ObjectKey>, queue: &mut Queue) {
        let waits = |key: ObjectKey| {
            let route = self.routes.get(&key).filter(|route| !route.bound && !route.deleting)?;
            Some(self.lines.place(route.created, &key))
        };
        let mut woken: Vec<Place> = woken.into_iter().filter_map(waits).collect();
        woken.sort_unstable();
        woken.into_iter().for_each(|(.., key)| queue.push(key));
    }

    /// The route, as it was, waits for its host no more: it is bound.
    pub fn stop_waiting(&mut self, key: &ObjectKey, route: &RouteInfo) {
        self.hosts.stop(key);
        if let Some(host) = &route.host {
            self.lines.leave(&host_claim_name(host), route.created, key);
        }
    }

    /// The route, as it was, does not want its host any more: it is gone, or wants another one.
    pub fn leave(&mut self, key: &ObjectKey, route: &RouteInfo, queue: &mut Queue) {
        // The end of an attempt that is under way releases what it has reserved.
        if !queue.is_in_flight(key) {
            self.release(key, queue);
        }
        self.pass_on(key, route, queue);
        self.stop_waiting(key, route);
    }

    /// If the host of a route was offered to it, and is free, the next in line is looked at.
    fn pass_on(&mut self, key: &ObjectKey, route: &RouteInfo, queue: &mut Queue) {
        let Some(host) = &route.host else { return };
        let claim = host_claim_name(host);
        if self.holder(&claim).is_some() {
            return;
        }
        let (routes, prove) = (&self.routes, self.prove);
        let next = self.lines.pass_on(&claim, route.created, key, |key| may_have_host(routes, key, prove));
        next.into_iter().for_each(|next| queue.push(next));
    }

    /// The uid of the Route that holds the host of this claim, if one does.
    fn holder(&self, claim: &str) -> Option<Uid> {
        let claim = self.claims.get(&ObjectKey::cluster(claim)).filter(|claim| claim.released.is_none())?;
        Some(claim.holder_uid.clone())
    }
}

fn may_have_host(routes: &Store<RouteInfo>, key: &ObjectKey, prove: bool) -> bool {
    routes.get(key).is_some_and(|route| !route.bound && !route.deleting && (route.is_host_verified() || !prove))
}
