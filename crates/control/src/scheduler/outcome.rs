//! The outcomes of binding attempts, and the resulting conditions.

use tokio::time::Instant;

use super::bind::{Outcome, names_kept};
use super::hosts::Refusal;
use super::{Attempt, Scheduler};
use crate::client::backoff::random;
use crate::client::events::Notice;
use crate::client::reflector::ObjectKey;
use crate::world::RouteInfo;
use crate::world::observations::RouteFinding;
use signpost_types::names::other_label;
use signpost_types::v1alpha1::name_claim::ClaimKind;
use signpost_types::v1alpha1::route::SCHEDULED;

/// The failures in a row before a route's conditions report them; fewer are over before a user could read them.
const FAILURES_TOLD: u32 = 3;

impl Scheduler {
    pub(super) fn on_attempt_ended(&mut self, attempt: &Attempt, result: kube::Result<Outcome>) {
        let Attempt { plan, started } = attempt;
        let (key, route) = (&plan.key, &plan.route);
        let outcome = result.unwrap_or_else(|error| self.binder.failure(&error));
        self.metrics.attempt(outcome.label(), started.elapsed().as_secs_f64());
        if !matches!(outcome, Outcome::Bound { .. } | Outcome::Moved) {
            self.snapshot.forget(key);
            self.requeue_for_room(&plan.placement.router);
            self.requeue_for_quota(key);
        }
        match outcome {
            Outcome::Bound { label } => {
                let note = format!("placed on {}: {}", plan.placement.router, plan.placement.explanation.summary);
                self.record(key, route, "Scheduled", note, false);
                let namespace = key.namespace();
                if let Some((reason, note)) = other_label(namespace, &key.name, route.subdomain.as_deref(), &label) {
                    self.record(key, route, reason, note, matches!(reason, "LabelTaken" | "SubdomainTaken"));
                }
                let host = route.host.as_deref().filter(|_| route.adopted.is_some());
                if let Some(overlap) = host.and_then(|host| self.hosts.overlap(host, namespace)) {
                    let note = format!("{}; the router uses the most specific host", overlap.refusal.1);
                    self.record(key, route, "HostOverlaps", note, true);
                }
                self.settle(key.clone(), route);
            }
            Outcome::Moved => {
                let note = format!("now on {}: {}", plan.placement.router, plan.placement.explanation.summary);
                self.record(key, route, "Moved", note, false);
                self.settle(key.clone(), route);
            }
            Outcome::AlreadyBound => {
                // If the route is still on the Router that it must leave, the move is retried.
                self.moves.mark_stuck(key);
                self.settle(key.clone(), route);
            }
            Outcome::HostHeld(conflict) => {
                self.hosts.give_up(key, route.host.as_deref());
                self.hosts.wait(key, route.created, &conflict);
                self.refuse(key, route, conflict.refusal);
            }
            Outcome::NotAdmitted(refusal) => {
                self.hosts.give_up(key, route.host.as_deref());
                self.refuse(key, route, refusal);
            }
            Outcome::Overlaps => self.on_overlap(key, route),
            Outcome::NamesKept { kind, most } => self.on_names_kept(key, route, (kind, most)),
            Outcome::Changed | Outcome::Deposed => {
                self.hosts.give_up(key, route.host.as_deref());
                self.queue.failed(key, Instant::now(), random());
            }
            Outcome::Fenced { error } => {
                if let Some(omitted) = self.failures.take(Instant::now()) {
                    tracing::warn!(route = %key, %error, omitted, "binding rejected: this process does not hold the Lease");
                }
                self.hosts.give_up(key, route.host.as_deref());
                self.queue.failed(key, Instant::now(), random());
            }
            Outcome::Failed { answered, error, owner_message } => {
                if let Some(omitted) = self.failures.take(Instant::now()) {
                    let router = &plan.placement.router;
                    tracing::warn!(route = %key, %router, %error, omitted, "failed to bind the Route");
                }
                self.hosts.give_up(key, route.host.as_deref());
                let failures = self.queue.failed(key, Instant::now(), random());
                if answered && failures >= FAILURES_TOLD {
                    let report = match plan.leaving {
                        Some(_) => RouteFinding::move_pending(&route.uid, "BindingFailed", owner_message),
                        None => RouteFinding::unscheduled(route, "BindingFailed", owner_message),
                    };
                    self.report(key, route, report);
                }
            }
        }
    }

    /// Handles an overlap with a host of another namespace that the API reports, and that was unknown when the route was
    /// scheduled. If it is known now, the route waits for that host. If not, the informer lags, or does not show that claim at
    /// all.
    fn on_overlap(&mut self, key: &ObjectKey, route: &RouteInfo) {
        let host = route.host.as_deref().unwrap_or_default();
        self.hosts.give_up(key, route.host.as_deref());
        if let Some(overlap) = self.hosts.overlap(host, key.namespace()) {
            self.hosts.wait(key, route.created, &overlap);
            return self.refuse(key, route, overlap.refusal);
        }
        if self.queue.failed(key, Instant::now(), random()) >= FAILURES_TOLD {
            let message = format!("{host} overlaps with a host that a Route of another namespace holds");
            self.report(key, route, RouteFinding::not_admitted(route, "HostAlreadyClaimed", message));
        }
    }

    /// Handles a route that needs a new label or host that its namespace currently may not have.
    fn on_names_kept(&mut self, key: &ObjectKey, route: &RouteInfo, (kind, most): (ClaimKind, u32)) {
        self.hosts.give_up(key, route.host.as_deref());
        let namespace = key.namespace();
        if self.names_kept(kind, namespace).is_none() {
            // A name was freed meanwhile, and a route that does not wait yet is not notified.
            self.queue.failed(key, Instant::now(), random());
            return;
        }
        self.requeuer.awaits_names(namespace);
        self.queue.unschedulable(key, Instant::now(), random());
        let (reason, message) = names_kept(kind, most);
        self.report(key, route, RouteFinding::unscheduled(route, reason, message));
    }

    /// Returns the number of names of a kind in quarantine for a namespace, if that is the maximum.
    pub(super) fn names_kept(&self, kind: ClaimKind, namespace: &str) -> Option<u32> {
        self.quarantined.full(kind, namespace, self.settings.quarantined_max)
    }

    /// Handles a route whose host is not admitted, and which waits until that changes.
    pub(super) fn refuse(&mut self, key: &ObjectKey, route: &RouteInfo, (reason, message): Refusal) {
        self.queue.unschedulable(key, Instant::now(), random());
        self.report(key, route, RouteFinding::not_admitted(route, reason, message));
    }

    fn settle(&mut self, key: ObjectKey, route: &RouteInfo) {
        self.moves.moved(&key);
        self.queue.done(&key);
        self.hosts.stop(&key);
        if self.objects.routes.get(&key).is_none_or(|now| now.uid != route.uid) {
            // The Route was deleted in that moment, and its claim can be released before it is seen.
            self.hosts.give_up(&key, route.host.as_deref());
        }
    }

    pub(super) fn report(&mut self, key: &ObjectKey, route: &RouteInfo, report: RouteFinding) {
        // The informer can lag behind a report in flight, which then has no effect.
        if report.is_said_by(route) || self.observations.has_route(key, SCHEDULED, &report) {
            return;
        }
        if let Some(statement) = report.trouble() {
            let note = format!("{}: {}", statement.reason, statement.message);
            self.record(key, route, "FailedScheduling", note, true);
        }
        self.observations.set_route(key, SCHEDULED, Some(report));
    }

    fn record(&self, key: &ObjectKey, route: &RouteInfo, reason: &'static str, note: String, is_warning: bool) {
        let (object, uid) = (key.clone(), route.uid.to_string());
        self.in_flight.events.record(Notice {
            api_version: None,
            kind: "Route",
            object,
            uid,
            is_warning,
            reason,
            note,
        });
    }
}
