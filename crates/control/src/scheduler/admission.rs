//! The admission of a Route's custom host.
//!
//! A Route is not admitted because of an overlapping host of another namespace ([`super::hosts`]), missing ownership
//! verification, a Route that is about to claim the same host and path, or a Route that holds it. It waits for exactly that change; its
//! backoff in the queue is only a safeguard against a missed change. A host that the router of a source admitted needs no verification
//! and may overlap.

use std::sync::Arc;

use jiff::Timestamp;

use super::Scheduler;
use super::filter::HostLeader;
use super::hosts::Refusal;
use crate::client::reflector::{Change, ObjectKey};
use crate::world::{ClaimInfo, RouteInfo, quarantine};
use signpost_types::v1alpha1::name_claim::ClaimKind;

impl Scheduler {
    /// Returns why a Route may not claim its custom host now. It then waits until that changes.
    pub(super) fn refusal(&mut self, key: &ObjectKey, route: &RouteInfo, host: &str) -> Option<Refusal> {
        let overlap = self.hosts.overlap(host, key.namespace());
        if let Some(overlap) = overlap.filter(|_| route.adopted.is_none()) {
            self.hosts.give_up(key, Some(host));
            self.hosts.wait(key, route.created, &overlap);
            return Some(overlap.refusal);
        }
        if self.settings.verify_hosts && route.adopted.is_none() && !route.is_host_verified() {
            self.hosts.give_up(key, Some(host));
            let message =
                format!("ownership of {host} is not verified: create the TXT record in status.challenge.record");
            return Some(("OwnershipNotVerified", message));
        }
        let conflict = self.hosts.conflict(host, route.path(), key, Timestamp::now())?;
        self.hosts.wait(key, route.created, &conflict);
        Some(conflict.refusal)
    }

    /// Returns the Route that decides the Router of all Routes with a host, with that Router: the first one that has a Router. `None`: the
    /// Route at `key` is the first one.
    pub(super) fn host_leader(&self, key: &ObjectKey, host: &str) -> Option<HostLeader> {
        let router_of = |other: &ObjectKey| {
            let route = self.objects.routes.get(other)?;
            let binding = self.objects.bindings.get(other).filter(|binding| binding.route_uid == route.uid);
            match binding {
                Some(binding) => Some(binding.router.to_string()),
                None => self.snapshot.assumed(other).filter(|_| other != key).map(str::to_owned),
            }
        };
        let mut routes = self.hosts.routes_of(host, key);
        let (leader, router) = routes.find_map(|other| Some((other, router_of(other)?)))?;
        (leader != key).then(|| HostLeader { name: leader.name.clone(), router })
    }

    /// Returns the bound Routes that follow the Route at `key` to another Router, because they share its host.
    pub(super) fn followers(&self, key: &ObjectKey, host: &str) -> Vec<(ObjectKey, Arc<RouteInfo>)> {
        let others = self.hosts.routes_of(host, key).filter(|other| *other != key);
        let routes = others.filter_map(|other| Some((other.clone(), self.objects.routes.get(other)?)));
        routes.filter(|(_, route)| route.bound && !route.deleting).collect()
    }

    /// Ends the host requests of a Route in this earlier state: it was deleted, or has another host now.
    pub(super) fn leave_host(&mut self, key: &ObjectKey, route: &RouteInfo) {
        // The end of an attempt in flight gives up its reservation.
        if !self.queue.is_in_flight(key) {
            self.hosts.give_up(key, route.host.as_deref());
        }
        self.hosts.stop(key);
    }

    pub(super) fn on_claims(&mut self, change: Change<ClaimInfo>) {
        for (kind, namespace) in quarantine::freed(&change) {
            if self.names_kept(kind, &namespace).is_none() {
                self.requeuer.for_names_of(&namespace);
            }
        }
        let (applied, gone) = change.into_parts();
        for (key, last) in gone.iter().filter(|(_, last)| last.kind == ClaimKind::Host) {
            self.hosts.remove(&key.name, last);
        }
        for applied in applied.iter().filter(|applied| applied.now.kind == ClaimKind::Host) {
            self.hosts.set(&applied.key.name, &applied.now);
        }
    }

    /// Makes the Routes due whose hosts may be free. Returns whether there are any.
    pub(super) fn push_woken(&mut self) -> bool {
        let woken = self.hosts.take_woken();
        let any = !woken.is_empty();
        woken.into_iter().for_each(|key| self.queue.push(key));
        any
    }
}
