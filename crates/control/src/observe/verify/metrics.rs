//! The metrics of name verification.

use std::collections::BTreeMap;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::state::Server;

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
    silent: Family<[(&'static str, String); 2], Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let checks = Family::<Label, Counter>::default();
        for outcome in OUTCOMES {
            drop(checks.get_or_create(&[("outcome", outcome)]));
        }
        Metrics { checks, queries: Counter::default(), not_resolvable: Family::default(), silent: Family::default() }
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
        let help = "Whether a listed name server does not answer, or only SERVFAIL, so that Routes do not wait for it";
        registry.register("name_server_silent", help, self.silent.clone());
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

    pub(super) fn set_silent(&self, server: &Server, is_silent: bool) {
        let labels = [("server", server.name.clone()), ("address", server.address.to_string())];
        self.silent.get_or_create(&labels).set(i64::from(is_silent));
    }

    /// Removes the series of reasons and servers, since another process leads.
    pub(super) fn clear(&self) {
        self.not_resolvable.clear();
        self.silent.clear();
    }
}
