//! The effects of changes of the API's objects on the index and the queue.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::claim;
use super::state::former_name_key;
use super::{Key, Reconciler};
use crate::client::reflector::{Applied, Change, ObjectKey};
use crate::hash::hash_of;
use crate::put::Put as _;
use crate::world::{BindingInfo, ClaimInfo, NamespaceInfo, RouteInfo, RouterInfo};
use signpost_types::v1alpha1::name_claim::ClaimKind;
use signpost_types::v1alpha1::route::{ADMITTED, HOST_POINTS_HERE};

/// The delay of writes of route counts per Router, so that all Routers together cause at most 50 writes per second.
const COUNT_DELAY_PER_ROUTER: Duration = Duration::from_millis(20);

impl Reconciler {
    pub(super) fn on_routes(&mut self, change: Change<RouteInfo>) {
        let (applied, gone) = change.into_parts();
        for (key, last) in gone {
            self.route_states.remove(&key, &last);
            // The deletion is certain: a Route that waits for the host must not wait for the informers to settle.
            for name in self.planner.index.claims_of(&key) {
                self.queue.add(Key::Claim(name), Instant::now());
            }
            self.on_route_gone(key);
        }
        applied.iter().for_each(|applied| self.on_route(applied));
    }

    fn on_route(&mut self, applied: &Applied<RouteInfo>) {
        let Applied { key, now, before, recreated } = applied;
        self.moves.iter_mut().for_each(|moves| moves.on_route(applied));
        if let Some(before) = before {
            self.route_states.remove(key, before);
        }
        self.route_states.add(key, now);
        if *recreated {
            self.on_route_gone(key.clone());
        }
        let was_deleting = match now.deleting {
            true => !self.planner.index.deleting.insert(key.clone()),
            false => self.planner.index.deleting.remove(key),
        };
        if was_deleting != now.deleting
            && let Some(binding) = self.planner.objects.bindings.get(key)
        {
            self.count_changed(&binding.router);
        }
        let of_host = |view: &RouteInfo| (view.host.clone(), view.prefix.clone(), view.conditions.host_verified());
        if before.as_ref().is_some_and(|before| of_host(before) != of_host(now)) {
            self.check_claims_of(key);
        }
        let refused = now.host.as_ref().filter(|_| now.bound && now.conditions.is_true(ADMITTED) == Some(false));
        self.planner.index.without_host.put(key.clone(), refused.map(ToString::to_string));
        if before.as_ref().is_none_or(|before| !before.is_placed_as(now)) && self.may_need_write(key, now) {
            self.soon(Key::Route(key.clone()));
        }
        let is_new = before.is_none() || *recreated;
        if is_new && !now.bound && self.term.is_some() {
            self.planner.index.appeared.insert(hash_of(key), Instant::now());
        }
    }

    /// Returns whether a Route may lack something that the reconciler writes by itself: one that waits for the scheduler does
    /// not.
    fn may_need_write(&self, key: &ObjectKey, route: &RouteInfo) -> bool {
        route.bound
            || route.conditions.get(HOST_POINTS_HERE).is_some()
            || route.is_challenged() && !self.settings.verify_hosts
            || self.planner.objects.bindings.get(key).is_some()
    }

    fn on_route_gone(&mut self, key: ObjectKey) {
        self.moves.iter_mut().for_each(|moves| moves.on_route_gone(&key));
        self.planner.index.take_appeared(&key);
        self.queue.add(Key::Findings(key.clone()), Instant::now());
        self.planner.index.without_host.remove(&key);
        self.planner.index.deleting.remove(&key);
        self.check_claims_of(&key);
        self.soon(Key::Binding(key));
    }

    pub(super) fn on_bindings(&mut self, change: Change<BindingInfo>) {
        let (applied, gone) = change.into_parts();
        for (key, last) in &gone {
            self.on_binding_gone(key, last);
            self.release_label(key);
        }
        applied.iter().for_each(|applied| self.on_binding(applied));
    }

    fn on_binding(&mut self, applied: &Applied<BindingInfo>) {
        let key = &applied.key;
        if let Some(before) = &applied.before {
            self.on_binding_gone(key, before);
        }
        *self.planner.index.counts.entry(applied.now.router.clone()).or_default() += 1;
        for former_name in &*applied.now.former_names {
            self.planner.index.former_names.insert(former_name_key(former_name, key));
            self.count_changed(&former_name.router);
        }
        self.count_changed(&applied.now.router);
        self.soon(Key::Binding(key.clone()));
        self.soon(Key::Route(key.clone()));
        self.moves.iter_mut().for_each(|moves| moves.on_binding(applied));
        if let Some(time) = self.writer.names.as_mut().and_then(|names| names.time_of(&applied.now)) {
            self.queue.add(Key::FormerNames(key.clone()), time);
        }
        // Another label than before leaves a claim behind.
        if applied.before.as_ref().is_some_and(|before| before.label != applied.now.label) {
            self.check_claims_of(key);
        }
    }

    fn on_binding_gone(&mut self, key: &ObjectKey, last: &BindingInfo) {
        for former_name in &*last.former_names {
            self.planner.index.former_names.remove(&former_name_key(former_name, key));
            self.count_changed(&former_name.router);
        }
        if let Some(count) = self.planner.index.counts.get_mut(&last.router) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.planner.index.counts.remove(&last.router);
            }
        }
        self.count_changed(&last.router);
    }

    /// Checks the label's claim: a binding that existed longer than its Route prevented its release.
    fn release_label(&mut self, key: &ObjectKey) {
        self.moves.iter_mut().for_each(|moves| moves.on_binding_gone(key));
        if self.planner.objects.routes.get(key).is_none() {
            self.check_claims_of(key);
        }
    }

    /// Checks all Routers: RouteBindings kept by the deletion hold can be on any of them, and a DeletionHold lists only a few
    /// names.
    pub(super) fn on_deletion_holds(&mut self) {
        let held = self
            .planner
            .deletion_holds
            .all()
            .into_iter()
            .fold(0_u32, |sum, (_, held)| sum.saturating_add(held.bindings_served_on()));
        if std::mem::replace(&mut self.planner.index.held, held) != held {
            self.check_routers();
        }
    }

    /// Checks all Routers.
    pub(super) fn check_routers(&mut self) {
        for (key, _) in self.planner.objects.routers.all() {
            self.queue.add(Key::Router(key.name), Instant::now());
        }
    }

    fn count_changed(&mut self, router: &str) {
        let routers = u32::try_from(self.planner.objects.routers.len()).unwrap_or(u32::MAX);
        let wait = self.settings.settle + COUNT_DELAY_PER_ROUTER.saturating_mul(routers);
        self.queue.add(Key::Router(router.to_owned()), Instant::now() + wait);
    }

    pub(super) fn on_claims(&mut self, change: Change<ClaimInfo>) {
        let (applied, gone) = change.into_parts();
        for (key, last) in &gone {
            self.on_claim_gone(key, last);
            self.check_hosts(last, None);
        }
        applied.iter().for_each(|applied| self.on_claim(applied));
    }

    fn on_claim(&mut self, applied: &Applied<ClaimInfo>) {
        let (key, now) = (&applied.key, &applied.now);
        if let Some(before) = applied.before.as_ref().filter(|before| !before.holders().eq(now.holders())) {
            self.on_claim_gone(key, before);
            let gone = before.holders().map(|(route, ..)| route);
            let gone = gone.filter(|route| now.holders().all(|(holder, ..)| holder != *route));
            gone.for_each(|route| self.soon(Key::Route(route)));
        }
        let entries = now.holders().map(|(route, ..)| (hash_of(&route), key.name.as_str().into()));
        self.planner.index.claims_of.extend(entries);
        self.soon(Key::Claim(key.name.clone()));
        self.check_hosts(now, applied.before.as_deref());
        self.moves.iter_mut().for_each(|moves| moves.on_claim(now));
    }

    /// Checks the Routes after the change or deletion of a claim on a host: those that have lost it may get it back, and its
    /// holder has it.
    fn check_hosts(&mut self, claim: &ClaimInfo, before: Option<&ClaimInfo>) {
        if claim.kind != ClaimKind::Host || before.is_some_and(|before| before == claim) {
            return;
        }
        let is_concerned =
            |host: &&String| host.eq_ignore_ascii_case(&claim.value) || claim::overlap(host, &claim.value);
        let concerned = self.planner.index.without_host.iter().filter(|(_, host)| is_concerned(host));
        let concerned: Vec<ObjectKey> = concerned.map(|(key, _)| key.clone()).collect();
        concerned.into_iter().for_each(|key| self.soon(Key::Route(key)));
    }

    fn on_claim_gone(&mut self, key: &ObjectKey, last: &ClaimInfo) {
        for (route, ..) in last.holders() {
            self.planner.index.claims_of.remove(&(hash_of(&route), key.name.as_str().into()));
        }
    }

    fn check_claims_of(&mut self, key: &ObjectKey) {
        self.planner.index.claims_of(key).into_iter().for_each(|name| self.soon(Key::Claim(name)));
    }

    pub(super) fn on_routers(&mut self, change: Change<RouterInfo>) {
        let counts = &self.planner.index.counts;
        self.moves.iter_mut().for_each(|moves| moves.on_routers(&change, |router| counts.contains_key(router)));
        let first = change.is_first();
        let (applied, gone) = change.into_parts();
        // The Routers whose routes are checked: their selectors changed, or they were deleted or added.
        let mut changed: HashSet<String> = gone.into_iter().map(|(key, _)| key.name).collect();
        let mut zones_differ = !changed.is_empty();
        changed.iter().for_each(|router| self.queue.add(Key::Router(router.clone()), Instant::now()));
        let index = &self.planner.index;
        let routes_left = |router: &str| index.former_names_on(router).map(|(.., route)| route.clone());
        let mut left: Vec<ObjectKey> = changed.iter().flat_map(|router| routes_left(router)).collect();
        let mut routers = Vec::new();
        for applied in applied {
            routers.push(applied.key.name.clone());
            let (before, now) = (applied.before, applied.now);
            if before.as_ref().map_or(!first, |before| !before.places_as(&now)) {
                changed.insert(applied.key.name.clone());
            }
            if before
                .as_ref()
                .is_none_or(|before| before.record_labels() != now.record_labels() || before.zone() != now.zone())
            {
                left.extend(routes_left(&applied.key.name));
            }
            // The zone of a deleted Router may have returned with another Router's name.
            if before.as_ref().is_none_or(|before| before.zone() != now.zone()) {
                zones_differ = true;
                let in_zone = index.former_names.iter().filter(|(_, zone, ..)| now.has_zone(zone));
                left.extend(in_zone.map(|(.., route)| route.clone()));
            }
        }
        if zones_differ {
            // Their records can be in the zone of another one.
            let all = self.planner.objects.routers.all();
            let with_records = all.into_iter().filter(|(_, router)| !router.object.spec.records.is_empty());
            routers.extend(with_records.map(|(key, _)| key.name));
        }
        routers.into_iter().for_each(|router| self.soon(Key::Router(router)));
        left.into_iter().for_each(|key| self.soon(Key::Route(key)));
        changed.retain(|router| self.planner.index.counts.contains_key(router.as_str()));
        if !changed.is_empty() {
            self.check_routes(|_, binding| changed.contains(&*binding.router));
        }
    }

    pub(super) fn on_namespaces(&mut self, change: Change<NamespaceInfo>) {
        if change.is_first() {
            return;
        }
        let (mut applied, _) = change.into_parts();
        applied.retain(|one| one.before.as_ref().is_none_or(|before| before.labels != one.now.labels));
        let changed: HashSet<String> = applied.into_iter().map(|applied| applied.key.name).collect();
        if !changed.is_empty() {
            self.check_routes(|key, _| key.namespace.as_ref().is_some_and(|namespace| changed.contains(namespace)));
        }
    }

    fn check_routes(&mut self, which: impl Fn(&ObjectKey, &BindingInfo) -> bool) {
        for (key, binding) in self.planner.objects.bindings.all() {
            if which(&key, &binding) {
                self.soon(Key::Route(key));
            }
        }
    }

    fn soon(&mut self, key: Key) {
        self.queue.add(key, Instant::now() + self.settings.settle);
    }
}
