//! The metrics of name verification.

use std::collections::BTreeMap;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Label = [(&'static str, &'static str); 1];

/// The outcomes of checks.
pub const OUTCOMES: [&str; 6] =
    ["right", "not_answering", "error_answer", "not_authoritative", "wrong_answer", "old_serial"];

/// The metrics; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    checks: Family<Label, Counter>,
    pub(super) queries: Counter,
    not_resolvable: Family<Label, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let checks = Family::<Label, Counter>::default();
        for outcome in OUTCOMES {
            drop(checks.get_or_create(&[("outcome", outcome)]));
        }
        Metrics { checks, queries: Counter::default(), not_resolvable: Family::default() }
    }
}

impl Metrics {
    /// Adds them all to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "routes_not_resolvable",
            "Routes with a Router that are not resolvable, by reason; Pending: not verified yet",
            self.not_resolvable.clone(),
        );
        let registry = registry.sub_registry_with_prefix("verify");
        registry.register("checks", "Checks of a zone on a name server, by outcome", self.checks.clone());
        registry.register("questions", "Verification queries sent to name servers", self.queries.clone());
    }

    pub(super) fn count_check(&self, outcome: &'static str) {
        self.checks.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub(super) fn set_reasons(&self, counts: &BTreeMap<&'static str, usize>) {
        for (reason, count) in counts.iter().filter(|(reason, _)| !matches!(**reason, "Resolvable" | "Published")) {
            self.not_resolvable.get_or_create(&[("reason", *reason)]).set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }

    /// Removes the series of reasons, since another process leads.
    pub(super) fn clear_reasons(&self) {
        self.not_resolvable.clear();
    }
}
