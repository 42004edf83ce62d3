//! The numbers of the audit log, read when they are asked for.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::Audit;

/// Exposes what became of audit events, by the label `outcome`.
pub struct AuditMetrics(pub Arc<Audit>);

impl fmt::Debug for AuditMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditMetrics")
    }
}

impl Collector for AuditMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.log().counts();
        let help = "Audit events: written, lost since the file was too slow or could not be written, or suppressed: \
                    more requests that changed nothing than one user may have written.";
        let mut metric = encoder.encode_descriptor("api_audit_events", help, None, MetricType::Counter)?;
        for (outcome, count) in [("written", counts.written), ("lost", counts.lost), ("suppressed", counts.suppressed)]
        {
            ConstCounter::new(count).encode(metric.encode_family(&[("outcome", outcome)])?)?;
        }
        Ok(())
    }
}
