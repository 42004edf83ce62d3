//! The health of informers as metrics, read at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;

use super::reflector::{Health, HealthProbe};

/// Exposes the health of informers, each with the labels `owner` (the component that runs it) and `kind` (of its objects).
pub struct InformerMetrics {
    informers: Vec<(&'static str, HealthProbe)>,
}

impl InformerMetrics {
    /// Returns the metrics of these informers, each with the name of its owner. Register them with
    /// [`Registry::register_collector`].
    ///
    /// [`Registry::register_collector`]: prometheus_client::registry::Registry::register_collector
    pub fn new(informers: Vec<(&'static str, HealthProbe)>) -> Self {
        InformerMetrics { informers }
    }
}

impl fmt::Debug for InformerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerMetrics").field("informers", &self.informers.len()).finish()
    }
}

impl Collector for InformerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<(&'static str, Health)> = self.informers.iter().map(|(owner, probe)| (*owner, probe())).collect();
        gauge(&mut encoder, &all, "informer_synced", "Whether the informer has synced (1) or not (0).", |health| {
            Some(f64::from(u8::from(health.synced)))
        })?;
        gauge(&mut encoder, &all, "informer_connected", "Whether a watch is open (1) or not (0).", |health| {
            Some(f64::from(u8::from(health.connected)))
        })?;
        gauge(&mut encoder, &all, "informer_objects", "Objects in the informer.", |health| {
            Some(health.objects as f64)
        })?;
        let help = "Seconds since the last message from the API; up to about 60 on an idle watch.";
        gauge(&mut encoder, &all, "informer_age_seconds", help, |health| health.age.map(|age| age.as_secs_f64()))?;
        let help = "Objects and events that failed to decode.";
        let mut metric = encoder.encode_descriptor("informer_undecodable", help, None, MetricType::Counter)?;
        for (owner, health) in &all {
            count(&mut metric, &[("owner", owner), ("kind", &health.kind)], health.undecodable)?;
        }
        let help = "Reconnects and relists of the informer, by reason.";
        let mut metric = encoder.encode_descriptor("informer_restarts", help, None, MetricType::Counter)?;
        for (owner, health) in &all {
            for (reason, restarts) in health.restarts {
                count(&mut metric, &[("owner", owner), ("kind", &health.kind), ("reason", reason.label())], restarts)?;
            }
        }
        Ok(())
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    all: &[(&'static str, Health)],
    name: &str,
    help: &str,
    value: impl Fn(&Health) -> Option<f64>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (owner, health) in all {
        if let Some(value) = value(health) {
            let labels = [("owner", *owner), ("kind", health.kind.as_str())];
            prometheus_client::metrics::gauge::ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn count(metric: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> fmt::Result {
    prometheus_client::metrics::counter::ConstCounter::new(value).encode(metric.encode_family(&labels)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reflector::{Settings, reflect};
    use prometheus_client::registry::Registry;
    use signpost_api::v1alpha1::router::Router;

    #[tokio::test]
    async fn they_are_exposed() {
        let client = crate::client::in_process(axum::Router::new(), signpost_api::identity::Identity::user("test"));
        let (store, _changes) = reflect(client, Settings::default(), |router: Router| router);
        let mut registry = Registry::with_prefix("signpost");
        registry.register_collector(Box::new(InformerMetrics::new(vec![("scheduler", store.probe())])));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("it is text");
        for line in [
            r#"signpost_informer_synced{owner="scheduler",kind="Router"} 0"#,
            r#"signpost_informer_restarts_total{owner="scheduler",kind="Router",reason="expired"} 0"#,
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("informer_age_seconds{"), "no message yet: {text}");
    }
}
