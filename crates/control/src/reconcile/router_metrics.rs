//! The number of routes of each Router as a metric, from the Routers' own statuses, read at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::client::reflector::Store;
use crate::world::RouterInfo;

/// The most Routers in the metric, the first by name: the size of the output must be bounded.
const ROUTERS_MAX: usize = 2_000;

/// Reads an informer of the Routers.
pub struct RouterMetrics(pub Store<RouterInfo>);

impl fmt::Debug for RouterMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouterMetrics")
    }
}

impl Collector for RouterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut routers: Vec<(String, i64)> = self
            .0
            .all()
            .into_iter()
            .filter_map(|(key, view)| Some((key.name, i64::from(view.object.status.as_ref()?.routes?))))
            .collect();
        routers.sort();
        routers.truncate(ROUTERS_MAX);
        let help = "Routes bound to a Router, from the Router's status.";
        let mut metric = encoder.encode_descriptor("router_routes", help, None, MetricType::Gauge)?;
        for (router, routes) in &routers {
            ConstGauge::new(*routes).encode(metric.encode_family(&[("router", router.as_str())])?)?;
        }
        Ok(())
    }
}
