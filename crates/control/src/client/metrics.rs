//! The health of informers as metrics, read at each scrape.

use std::fmt;

use super::reflector::{Health, HealthProbe};
use signpost_runtime::telemetry::page::{Labels, Page, Rows};

/// Writes the health of informers, each with the labels `owner` (the component that runs it) and `kind` (of its objects).
pub fn write(informers: &[(&'static str, HealthProbe)], page: &mut Page<'_>) -> fmt::Result {
    let all: Vec<(&'static str, Health)> = informers.iter().map(|(owner, probe)| (*owner, probe())).collect();
    let flag = |is_set: fn(&Health) -> bool| -> Rows<'_, i64> {
        all.iter().map(|one| (labels(one), i64::from(is_set(&one.1)))).collect()
    };
    page.gauge("informer_synced", "Whether the informer has synced (1) or not (0)", &flag(|health| health.synced))?;
    page.gauge("informer_connected", "Whether a watch is open (1) or not (0)", &flag(|health| health.connected))?;
    let objects: Rows<'_, i64> = all.iter().map(|one| (labels(one), one.1.objects as i64)).collect();
    page.gauge("informer_objects", "Objects in the informer", &objects)?;
    let ages: Rows<'_, f64> = all.iter().filter_map(|one| Some((labels(one), one.1.age?.as_secs_f64()))).collect();
    let help = "Seconds since the last message from the API; up to about 60 on an idle watch";
    page.gauge("informer_age_seconds", help, &ages)?;
    let undecodable: Rows<'_, u64> = all.iter().map(|one| (labels(one), one.1.undecodable)).collect();
    page.counter("informer_undecodable", "Objects and events that failed to decode", &undecodable)?;
    let mut restarts: Rows<'_, u64> = Vec::new();
    for one in &all {
        let reason = |reason: &'static str| [labels(one), vec![("reason", reason)]].concat();
        restarts.extend(one.1.restarts.iter().map(|(restart, count)| (reason(restart.label()), *count)));
    }
    page.counter("informer_restarts", "Reconnects and relists of the informer, by reason", &restarts)
}

fn labels<'a>((owner, health): &'a (&'static str, Health)) -> Labels<'a> {
    vec![("owner", *owner), ("kind", health.kind.as_str())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reflector::{Settings, reflect};
    use prometheus_client::registry::Registry;
    use signpost_runtime::telemetry::page::collector;
    use signpost_types::v1alpha1::router::Router;

    #[tokio::test]
    async fn they_are_exposed() {
        let client = crate::client::in_process(axum::Router::new());
        let (store, _changes) = reflect(client, Settings::default(), |router: Router| router);
        let mut registry = Registry::with_prefix("signpost");
        let informers = [("scheduler", store.probe())];
        registry.register_collector(collector(move |page| write(&informers, page)));
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
