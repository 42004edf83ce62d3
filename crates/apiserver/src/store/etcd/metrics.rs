//! Metrics of etcd as a client sees it.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::is_full;

/// Upper bounds of the buckets in seconds: a request to a healthy cluster takes 1 to 10 ms.
const SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// The metrics; clones share them.
#[derive(Clone)]
pub struct Metrics {
    up: Gauge,
    full: Gauge,
    seconds: Family<[(&'static str, &'static str); 1], Histogram>,
    pub(super) reopened: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let constructor: fn() -> Histogram = || Histogram::new(SECONDS);
        let seconds = Family::new_with_constructor(constructor);
        Metrics { up: Gauge::default(), full: Gauge::default(), seconds, reopened: Counter::default() }
    }
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Whether etcd answered the last request (1) or no member did (0)";
        registry.register("store_up", help, self.up.clone());
        let help = "Whether etcd rejected the last write of a value because it is full (1): the alarm NOSPACE";
        registry.register("store_full", help, self.full.clone());
        let help = "Duration of requests to etcd, including retries, by operation";
        registry.register_with_unit("store_request", help, Unit::Seconds, self.seconds.clone());
        let help = "Number of times that a watch of etcd failed and was reopened";
        registry.register("store_watch_reopened", help, self.reopened.clone());
    }

    /// Returns whether etcd answered the last request.
    pub fn is_up(&self) -> bool {
        self.up.get() == 1
    }

    /// Returns whether etcd refused the last write of a value since it is full.
    pub fn is_full(&self) -> bool {
        self.full.get() == 1
    }

    pub(super) fn observe(&self, operation: &'static str, took: Duration, error: Option<&etcd_client::Error>) {
        self.seconds.get_or_create(&[("operation", operation)]).observe(took.as_secs_f64());
        // etcd is up if it returned the error itself. Codes: 14 UNAVAILABLE, 4 DEADLINE_EXCEEDED, 1 broken connection.
        let is_up = match error {
            None => true,
            Some(etcd_client::Error::GRpcStatus(status)) => !matches!(status.code() as i32, 1 | 4 | 14),
            Some(_) => false,
        };
        self.up.set(i64::from(is_up));
        if error.is_some_and(is_full) {
            self.full.set(1);
        }
    }

    /// Records that etcd stored a value. A full cluster accepts all requests that store none, such as a deletion, so they do not
    /// show that it has space again.
    pub(super) fn stored(&self) {
        self.full.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cluster_stays_full_until_it_stores_a_value() {
        let metrics = Metrics::default();
        metrics.full.set(1);
        for operation in ["txn", "range"] {
            metrics.observe(operation, Duration::ZERO, None);
            assert!(metrics.is_full(), "a deletion or a read, {operation}");
        }
        metrics.stored();
        assert!(!metrics.is_full());
    }
}
