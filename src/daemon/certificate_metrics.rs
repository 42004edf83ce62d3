//! When the certificates of this process end, read when it is asked for.

use std::fmt;
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

/// Exposes the end of each certificate that the process shows to clients, or to the API as a client.
pub struct CertificateMetrics {
    /// The certificates of the API, in the process that serves it.
    pub api: Option<Arc<Access>>,
    /// The certificate of the admin endpoints, if they speak HTTPS.
    pub admin: Option<Arc<Source>>,
    /// The kubeconfig that the process uses, which may hold a client certificate.
    pub kubeconfig: Option<PathBuf>,
}

impl CertificateMetrics {
    fn ends(&self) -> impl Iterator<Item = (&'static str, i64)> {
        let [api, authority] = self.api.as_ref().map_or([None, None], |access| access.ends());
        let admin = self.admin.as_ref().and_then(|source| source.end());
        let client = self.kubeconfig.as_deref().and_then(client::certificate_pem).and_then(|pem| tls::pem_end(&pem));
        let all = [("api", api), ("authority", authority), ("admin", admin), ("kubeconfig", client)];
        all.into_iter().filter_map(|(name, end)| Some((name, end?)))
    }
}

impl fmt::Debug for CertificateMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.ends()).finish()
    }
}

impl Collector for CertificateMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "When a certificate of this process ends, in seconds since 1970.";
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("certificate_expiry_time", help, unit, MetricType::Gauge)?;
        for (name, end) in self.ends() {
            ConstGauge::new(end).encode(family.encode_family(&[("certificate", name)])?)?;
        }
        Ok(())
    }
}
