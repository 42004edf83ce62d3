//! The scheduler's metrics.

use std::sync::atomic::AtomicI64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::queue::Depths;
use crate::client::events::Counters;

type Label = [(&'static str, &'static str); 1];

/// The scheduler's metrics; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    attempts: Family<Label, Counter>,
    attempt_seconds: Histogram,
    decision_seconds: Histogram,
    routes: Family<Label, Gauge>,
    draining: Family<Label, Gauge>,
    pub(super) woken: Counter,
    pub(crate) missed: Counter,
    pub(super) events: Counters,
    leading: Gauge<i64, AtomicI64>,
    webhook_calls: Family<Label, Counter>,
    webhook_seconds: Histogram,
    webhook_fallbacks: Family<Label, Counter>,
}

/// The possible results of requests to the webhook.
const WEBHOOK_RESULTS: [&str; 7] =
    ["answered", "unusable", "unreachable", "timeout", "status", "too_large", "malformed"];
/// The reason if the webhook chose a Router that was not in the request. The other reasons are the results of a request.
pub(super) const UNKNOWN_ROUTER: &str = "unknown_router";
/// The chosen Router could no longer take the route.
pub(super) const NO_LONGER_FEASIBLE: &str = "no_longer_feasible";
/// The reason if the webhook had failed many times in a row, and was not called.
pub(super) const CIRCUIT_OPEN: &str = "circuit_open";

/// Counters that begin with 0 for each value of their label, so that events that have never happened are not missing.
fn from_zero(label: &'static str, values: &[&'static str]) -> Family<Label, Counter> {
    let family = Family::<Label, Counter>::default();
    for value in values {
        drop(family.get_or_create(&[(label, *value)]));
    }
    family
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            attempts: Family::default(),
            // 0.5 ms to 16 s.
            attempt_seconds: Histogram::new(exponential_buckets(0.0005, 2.0, 16)),
            // 1 µs to 4 ms.
            decision_seconds: Histogram::new(exponential_buckets(0.000_001, 2.0, 13)),
            routes: Family::default(),
            draining: Family::default(),
            woken: Counter::default(),
            missed: Counter::default(),
            events: Counters::default(),
            leading: Gauge::default(),
            webhook_calls: from_zero("result", &WEBHOOK_RESULTS),
            // 0.5 ms to 16 s.
            webhook_seconds: Histogram::new(exponential_buckets(0.0005, 2.0, 16)),
            webhook_fallbacks: from_zero(
                "reason",
                &[&WEBHOOK_RESULTS[1..], &[UNKNOWN_ROUTER, NO_LONGER_FEASIBLE, CIRCUIT_OPEN]].concat(),
            ),
        }
    }
}

impl Metrics {
    /// Adds them all to `registry`, under names that begin with `scheduler_` (and the registry's own prefix).
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("scheduler");
        registry.register(
            "attempts",
            "Attempts to schedule a Route, by result; fenced: the API rejected the binding because the process does \
             not lead, or because there is no valid Lease",
            self.attempts.clone(),
        );
        registry.register(
            "attempt_seconds",
            "Time from the removal of a Route from the queue until its binding was confirmed or failed",
            self.attempt_seconds.clone(),
        );
        registry.register(
            "decision_seconds",
            "Time to filter, score, and select Routers, without API calls",
            self.decision_seconds.clone(),
        );
        registry.register(
            "pending_routes",
            "Routes without a Router, by queue; router_gone: bound to a Router that does not exist",
            self.routes.clone(),
        );
        registry.register(
            "draining_routes",
            "Routes on draining Routers, by whether they wait for their turn or no Router can take them",
            self.draining.clone(),
        );
        registry.register(
            "requeued_routes",
            "Routes requeued because an event could make them schedulable",
            self.woken.clone(),
        );
        registry.register("missed_routes", "Routes found only by the periodic search", self.missed.clone());
        self.events.register(registry);
        registry.register("leading", "Whether this process leads (1) or not (0)", self.leading.clone());
        registry.register("webhook_calls", "Requests to the webhook, by result", self.webhook_calls.clone());
        registry.register(
            "webhook_seconds",
            "Duration of requests to the webhook, with any result",
            self.webhook_seconds.clone(),
        );
        registry.register(
            "webhook_fallbacks",
            "Decisions by the fallback strategy instead of the webhook, by reason",
            self.webhook_fallbacks.clone(),
        );
    }

    pub(super) fn attempt(&self, result: &'static str, seconds: f64) {
        self.attempts.get_or_create(&[("result", result)]).inc();
        self.attempt_seconds.observe(seconds);
    }

    pub(super) fn decision(&self, seconds: f64) {
        self.decision_seconds.observe(seconds);
    }

    pub(super) fn webhook_call(&self, result: &'static str, seconds: Option<f64>) {
        self.webhook_calls.get_or_create(&[("result", result)]).inc();
        if let Some(seconds) = seconds {
            self.webhook_seconds.observe(seconds);
        }
    }

    pub(super) fn webhook_fallback(&self, reason: &'static str) {
        self.webhook_fallbacks.get_or_create(&[("reason", reason)]).inc();
    }

    pub(super) fn depths(&self, depths: Depths) {
        for (place, count) in [
            ("active", depths.active),
            ("backoff", depths.backing_off),
            ("unschedulable", depths.unschedulable),
            ("in_flight", depths.in_flight),
        ] {
            self.routes.get_or_create(&[("queue", place)]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn orphans(&self, count: usize) {
        self.routes.get_or_create(&[("queue", "router_gone")]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn drain(&self, (waiting, stuck): (usize, usize)) {
        for (place, count) in [("waiting", waiting), ("stuck", stuck)] {
            self.draining.get_or_create(&[("place", place)]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn leading(&self, leads: bool) {
        self.leading.set(i64::from(leads));
    }
}
