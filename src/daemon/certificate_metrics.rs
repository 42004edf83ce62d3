//! The validity periods of this process's certificates, read at each scrape.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::access::Access;
use super::admin_tls::Source;
use signpost_control::client;
use signpost_runtime::tls;

/// Exposes the validity period of each certificate that the process presents to clients, or to the API as a client.
pub struct CertificateMetrics {
    /// The certificates of the API, in the process that serves it.
    pub api: Option<Arc<Access>>,
    /// The certificate of the admin endpoints, if they speak HTTPS.
    pub admin: Option<Arc<Source>>,
    /// The kubeconfig that the process uses, which may hold a client certificate.
    pub kubeconfig: Option<PathBuf>,
}

impl CertificateMetrics {
    fn periods(&self) -> impl Iterator<Item = (&'static str, Range<i64>)> {
        let [api, authority] = self.api.as_ref().map_or([None, None], |access| access.periods());
        let admin = self.admin.as_ref().and_then(|source| source.period());
        let client = self.kubeconfig.as_deref().and_then(client::certificate_pem).and_then(|pem| tls::pem_period(&pem));
        let all = [("api", api), ("authority", authority), ("admin", admin), ("kubeconfig", client)];
        all.into_iter().filter_map(|(name, period)| Some((name, period?)))
    }
}

impl fmt::Debug for CertificateMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.periods()).finish()
    }
}

impl Collector for CertificateMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let periods: Vec<_> = self.periods().collect();
        let start: fn(&Range<i64>) -> i64 = |period| period.start;
        let end: fn(&Range<i64>) -> i64 = |period| period.end;
        for (metric, help, time) in [
            (
                "certificate_start_time",
                "When a certificate of this process becomes valid, in seconds since 1970.",
                start,
            ),
            ("certificate_expiry_time", "When a certificate of this process ends, in seconds since 1970.", end),
        ] {
            let unit = Some(&Unit::Seconds);
            let mut family = encoder.encode_descriptor(metric, help, unit, MetricType::Gauge)?;
            for (name, period) in &periods {
                ConstGauge::new(time(period)).encode(family.encode_family(&[("certificate", *name)])?)?;
            }
        }
        Ok(())
    }
}
