//! The Leases of instances.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use signpost_control::observe::instances;
use signpost_types::instance::{AGENT_NAMESPACE, InstanceReport};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::scheduling::platform;
use super::{Scene, placement};

/// Renews the Lease of an instance of `shard1`, `seconds` after the start.
fn renew(api: &Scene, octet: u8, seconds: i64) {
    let report = InstanceReport::new("shard1", [192, 0, 2, octet].into(), Timestamp::constant(seconds, 0));
    let mut lease = serde_json::to_value(report.to_lease()).expect("it is data");
    lease["metadata"]["namespace"] = json!(AGENT_NAMESPACE);
    api.put("leases", lease);
}

fn instances_with_a_lease(api: &Scene) -> Vec<Value> {
    let address = |lease: &Value| lease["metadata"]["annotations"]["instance.signpost.dev/address"].clone();
    api.all("leases").iter().map(address).collect()
}

#[tokio::test]
async fn the_lease_of_a_dead_instance_is_deleted_once_others_serve() {
    let api = platform(1).await;
    let stop = CancellationToken::new();
    let (world, metrics) = (placement::world(&api), instances::Metrics::default());
    let running = tokio::spawn(instances::run(api.client(), world, 50, metrics, stop.clone()));
    renew(&api, 1, 0);
    let (dead, serving) = (json!("192.0.2.1"), json!("192.0.2.2"));
    for seconds in (0..1_300).step_by(10) {
        // Alone, it is answered although it is dead.
        let is_alone = seconds < 640;
        if !is_alone {
            renew(&api, 2, seconds);
        }
        sleep(Duration::from_secs(10)).await;
        let found = instances_with_a_lease(&api);
        assert!(found.contains(&serving) != is_alone, "{seconds} s: {found:?}");
        assert!(!is_alone || found.contains(&dead), "{seconds} s: {found:?}");
    }
    assert_eq!(instances_with_a_lease(&api), [serving]);
    assert_eq!(api.connection.requests("DELETE leases"), 1);
    stop.cancel();
    running.await.expect("no panic");
}
