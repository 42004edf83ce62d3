//! The duration of publishing, as a metric.

use std::time::Duration;

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The time that publishing takes; clones share it.
#[derive(Debug, Clone)]
pub struct Publishing(Histogram);

impl Default for Publishing {
    fn default() -> Self {
        // 16 µs, one name of a small platform, to 8 s, all zones of a large one.
        Publishing(Histogram::new(exponential_buckets(0.000_016, 2.0, 20)))
    }
}

impl Publishing {
    /// Adds it to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "zone_publish_seconds",
            "Time to build and publish the zones that were due, for each batch",
            self.0.clone(),
        );
    }

    pub(super) fn took(&self, time: Duration) {
        self.0.observe(time.as_secs_f64());
    }
}
