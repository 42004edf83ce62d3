//! Attacks on processor time, and on the signals that report a hang.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Platform, routes_path};

/// The number of finalizers in the attack. Without a bound, one patch of a deleting Route with these takes five seconds.
const FINALIZERS: usize = 30_000;

#[test]
fn a_tenant_cannot_send_more_finalizers_than_are_compared_quickly() {
    let platform = Platform::start(&[]);
    let (attacker, bystander) = (platform.tenant("attacker"), platform.bystander());
    let path = routes_path("attacker");
    let many: Vec<String> = (0..FINALIZERS).map(|i| format!("attack.example/f{i}")).collect();
    let route = |name: &str, finalizers: Value| {
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
               "metadata": {"name": name, "finalizers": finalizers}, "spec": {"to": {"name": "web"}}})
    };
    let refused = |method: &str, path: &str, body: &Value| {
        let (status, answer) = attacker.send(method, path, Some(body));
        assert_eq!(status, 422, "{method} {path}: {answer}");
        assert!(answer.contains("metadata.finalizers: Too many: 30000: must have at most 64 items"), "{answer}");
    };
    let (memory, disk) = (platform.resident_mib(), platform.disk_mib());
    let began = Instant::now();
    refused("POST", &path, &route("new", json!(many)));
    // A Route that is being deleted: each finalizer of a patch is looked for among those that hold it.
    let (status, answer) = attacker.send("POST", &path, Some(&route("held", json!(&many[..64]))));
    assert_eq!(status, 201, "{answer}");
    let held = format!("{path}/held");
    assert_eq!(attacker.send("DELETE", &held, None).0, 200);
    for _ in 0..20 {
        refused("PATCH", &held, &json!({"metadata": {"finalizers": many}}));
    }
    // 21 requests of 660 kB; without the bound each of the patches takes seconds by itself.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let (status, answer) = attacker.send("PATCH", &held, Some(&json!({"metadata": {"finalizers": null}})));
    assert_eq!(status, 200, "it can still be released: {answer}");
    let (memory_after, disk_after) = (platform.resident_mib(), platform.disk_mib());
    assert!(memory_after < memory + 256, "memory grew from {memory} to {memory_after} MiB");
    assert!(disk_after < disk + 512, "the data directory grew from {disk} to {disk_after} MiB");
    bystander.was_served_within(Duration::from_secs(5));
}
