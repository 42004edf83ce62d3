//! The metrics of sources, in the leader.

use std::collections::BTreeMap;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Derived;
use super::inventory::Kind;

/// The metrics on `/metrics`; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    derived: Family<[(&'static str, &'static str); 1], Gauge>,
    notes: Family<[(&'static str, String); 1], Gauge>,
    unreadable: Family<[(&'static str, String); 1], Gauge>,
    writes: Family<[(&'static str, &'static str); 1], Counter>,
}

impl Metrics {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("sources");
        let help = "Shards and names that the objects of the source cluster mean";
        registry.register("derived", help, self.derived.clone());
        let help = "Notes about objects of the source cluster, most of which are left out, by reason";
        registry.register("notes", help, self.notes.clone());
        let help = "Kinds of the source cluster that cannot be read; their last objects count";
        registry.register("unreadable", help, self.unreadable.clone());
        let help = "Writes of Routers and Routes that sources derive";
        registry.register("writes", help, self.writes.clone());
    }

    /// Shows a derivation, and the kinds that cannot be read.
    pub(super) fn set(&self, derived: &Derived, unreadable: impl Iterator<Item = Kind>) {
        for (what, count) in [("shard", derived.shards.len()), ("name", derived.names.len())] {
            self.derived.get_or_create(&[("type", what)]).set(count as i64);
        }
        let mut notes = BTreeMap::<String, i64>::new();
        derived.notes.iter().for_each(|note| *notes.entry(format!("{:?}", note.reason)).or_default() += 1);
        self.notes.clear();
        for (reason, count) in notes {
            self.notes.get_or_create(&[("reason", reason)]).set(count);
        }
        self.unreadable.clear();
        for kind in unreadable {
            self.unreadable.get_or_create(&[("kind", format!("{kind:?}"))]).set(1);
        }
    }

    /// Counts a write.
    pub(super) fn count(&self, is_ok: bool) {
        self.writes.get_or_create(&[("result", if is_ok { "ok" } else { "error" })]).inc();
    }

    /// Shows nothing, because another process leads.
    pub(super) fn clear(&self) {
        self.derived.clear();
        self.notes.clear();
        self.unreadable.clear();
    }
}
