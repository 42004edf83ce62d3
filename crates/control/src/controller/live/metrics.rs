//! What the proof of names counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::client::events::Counters;

type Label = [(&'static str, &'static str); 1];

/// How checks end.
pub const OUTCOMES: [&str; 6] =
    ["right", "not_answering", "error_answer", "not_authoritative", "wrong_answer", "old_serial"];

/// The metrics; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    create_to_resolvable: Arc<Histogram>,
    checks: Family<Label, Counter>,
    pub(super) questions: Counter,
    not_resolvable: Family<Label, Gauge>,
    writes: Family<Label, Counter>,
    pub(super) events: Counters,
}

impl Default for Metrics {
    fn default() -> Self {
        let checks = Family::<Label, Counter>::default();
        for outcome in OUTCOMES {
            drop(checks.get_or_create(&[("outcome", outcome)]));
        }
        let writes = Family::<Label, Counter>::default();
        for result in ["written", "failed"] {
            drop(writes.get_or_create(&[("result", result)]));
        }
        Metrics {
            // 1 ms to 131 s.
            create_to_resolvable: Arc::new(Histogram::new(exponential_buckets(0.001, 2.0, 18))),
            checks,
            questions: Counter::default(),
            not_resolvable: Family::default(),
            writes,
            events: Counters::default(),
        }
    }
}

impl Metrics {
    /// Adds them all to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "route_create_to_resolvable_seconds",
            "Time from the first sight of a new route until every listed name server had answered right for it and its status said so",
            (*self.create_to_resolvable).clone(),
        );
        registry.register(
            "routes_not_resolvable",
            "Routes with a Router that are not resolvable, by reason; Pending: not known yet",
            self.not_resolvable.clone(),
        );
        let registry = registry.sub_registry_with_prefix("verify");
        registry.register("checks", "Checks of a zone on a name server, by how they ended", self.checks.clone());
        registry.register("questions", "Questions that name servers were asked", self.questions.clone());
        registry.register("status_writes", "Writes of what was found to Routes and Routers", self.writes.clone());
        registry.register("events", "Events recorded", self.events.recorded.clone());
        registry.register(
            "events_dropped",
            "Events not recorded since too many came at once",
            self.events.dropped.clone(),
        );
    }

    pub(super) fn check(&self, outcome: &'static str) {
        self.checks.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub(super) fn written(&self, is_done: bool) {
        self.writes.get_or_create(&[("result", if is_done { "written" } else { "failed" })]).inc();
    }

    pub(super) fn resolvable_after(&self, time: Duration) {
        self.create_to_resolvable.observe(time.as_secs_f64());
    }

    pub(super) fn reasons(&self, counts: &BTreeMap<&'static str, usize>) {
        for (reason, count) in counts.iter().filter(|(reason, _)| !matches!(**reason, "Resolvable" | "Published")) {
            self.not_resolvable.get_or_create(&[("reason", *reason)]).set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }

    /// Nothing is known any more: another process leads.
    pub(super) fn forget_reasons(&self) {
        self.not_resolvable.clear();
    }
}
