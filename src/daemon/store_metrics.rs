//! What the API's store tells of itself, read when it is asked for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// Exposes whether the store takes writes.
#[derive(Debug)]
pub struct StoreMetrics(pub Arc<AtomicBool>);

impl Collector for StoreMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether the store takes writes (1), or its disk is full or fails (0).";
        let metric = encoder.encode_descriptor("store_writable", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(self.0.load(Ordering::Relaxed))).encode(metric)
    }
}
