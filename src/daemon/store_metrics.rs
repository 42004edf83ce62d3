//! What the API's store tells of itself, read when it is asked for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use signpost_apiserver::store::Damage;

/// Exposes whether the store takes writes, and what of it is damaged.
pub struct StoreMetrics {
    /// Whether it takes writes.
    pub writable: Arc<AtomicBool>,
    /// What is damaged in it.
    pub damage: Arc<Damage>,
}

impl fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreMetrics").finish_non_exhaustive()
    }
}

impl Collector for StoreMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether the store takes writes (1), or its disk is full or fails (0).";
        let metric = encoder.encode_descriptor("store_writable", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(self.writable.load(Ordering::Relaxed))).encode(metric)?;
        let help = "Stored values that are damaged: they are neither served nor taken for deleted.";
        let metric = encoder.encode_descriptor("store_damaged_values", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(self.damage.count()).unwrap_or(i64::MAX)).encode(metric)
    }
}
