//! The validity periods of this process's certificates, read at each scrape.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::access::Access;
use super::certificates::Certificates;
use signpost_control::client;
use signpost_runtime::telemetry::page::{Page, Rows};
use signpost_runtime::tls;

/// The validity period of each certificate that the process presents to clients, or to the API as a client.
pub struct CertificateMetrics {
    /// The certificates of the API, in the process that serves it.
    pub api: Option<Arc<Access>>,
    /// The certificates of the admin endpoints and of encrypted DNS.
    pub shown: Certificates,
    /// The kubeconfig of the process, which can contain a client certificate.
    pub kubeconfig: Option<PathBuf>,
}

impl CertificateMetrics {
    fn periods(&self) -> impl Iterator<Item = (&'static str, Range<i64>)> {
        let [api, authority] = self.api.as_ref().map_or([None, None], |access| access.periods());
        let admin = self.shown.admin.as_ref().and_then(|source| source.origin().period());
        let dns = self.shown.dns.as_ref().and_then(|source| source.origin().period());
        let client = self.kubeconfig.as_deref().and_then(client::certificate_pem).and_then(|pem| tls::pem_period(&pem));
        let all = [("api", api), ("authority", authority), ("admin", admin), ("dns", dns), ("kubeconfig", client)];
        all.into_iter().filter_map(|(name, period)| Some((name, period?)))
    }

    pub fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let periods: Vec<_> = self.periods().collect();
        let rows = |time: fn(&Range<i64>) -> i64| -> Rows<'_, i64> {
            periods.iter().map(|(name, period)| (vec![("certificate", *name)], time(period))).collect()
        };
        let help = "Start of the validity of a certificate of this process, in seconds since the epoch";
        page.gauge("certificate_start_time_seconds", help, &rows(|period| period.start))?;
        let help = "End of the validity of a certificate of this process, in seconds since the epoch";
        page.gauge("certificate_expiry_time_seconds", help, &rows(|period| period.end))
    }
}
