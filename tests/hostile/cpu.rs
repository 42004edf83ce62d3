//! Attacks on processor time, and on the signals that report a hang.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Platform, is_long, routes_path};
use signpost_testing::eventually;

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
    let cpu = platform.server.cpu();
    refused("POST", &path, &route("new", json!(many)));
    // A Route that is being deleted: each finalizer of a patch is looked for among those that hold it.
    let (status, answer) = attacker.send("POST", &path, Some(&route("held", json!(&many[..64]))));
    assert_eq!(status, 201, "{answer}");
    let held = format!("{path}/held");
    assert_eq!(attacker.send("DELETE", &held, None).0, 200);
    for _ in 0..20 {
        refused("PATCH", &held, &json!({"metadata": {"finalizers": many}}));
    }
    // 21 requests of 660 kB; without the bound each of the patches takes seconds of a processor.
    let cpu = platform.server.cpu() - cpu;
    assert!(cpu < Duration::from_secs(30), "{cpu:?}");
    let (status, answer) = attacker.send("PATCH", &held, Some(&json!({"metadata": {"finalizers": null}})));
    assert_eq!(status, 200, "it can still be released: {answer}");
    let (memory_after, disk_after) = (platform.resident_mib(), platform.disk_mib());
    assert!(memory_after < memory + 256, "memory grew from {memory} to {memory_after} MiB");
    assert!(disk_after < disk + 512, "the data directory grew from {disk} to {disk_after} MiB");
    bystander.was_served();
}

/// Lists whose selector is expensive and takes nothing, lists in YAML, and large patches, many at once: what costs the most for the
/// least that is sent.
#[test]
fn expensive_lists_and_patches_hold_up_nobody() {
    let platform = Platform::start(&[]);
    let attacker = platform.tenant("attacker");
    // Tenants have Events written about them; an administrator writes these.
    let writer = platform.user("writer", &["--role", "admin"]);
    eventually("the server knows the writer", || {
        (writer.send("GET", &routes_path("attacker"), None).0 == 200).then_some(())
    });
    let (events, views) = ("/api/v1/namespaces/attacker/events", "/apis/events.k8s.io/v1/namespaces/attacker/events");
    let (made, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let objects = if is_long() { 10_000 } else { 1_200 };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let number = made.fetch_add(1, Ordering::Relaxed);
                    if number >= objects {
                        return;
                    }
                    let event = json!({"metadata": {"name": format!("e{number}"), "namespace": "attacker"},
                        "involvedObject": {"kind": "Route", "namespace": "attacker", "name": "none"},
                        "reason": "Attack", "message": "x", "type": "Normal"});
                    let (status, answer) = writer.send("POST", events, Some(&event));
                    assert_eq!(status, 201, "{answer}");
                }
            });
        }
    });
    let bystander = platform.bystander();
    let memory = platform.resident_mib();
    let lists = [
        format!("{views}?fieldSelector=reason%3Dnone"),
        format!("{views}?fieldSelector=reason%3Dnone&limit=1"),
        format!("{events}?fieldSelector=reason%3Dnone&watch=true&timeoutSeconds=1"),
        format!("{views}?labelSelector=a,b,!c,d%20in%20(x,y)"),
    ];
    let patch = json!({"metadata": {"annotations": {"fill": "x".repeat(1 << 20)}}});
    let routes = &routes_path("attacker");
    let route = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
        "metadata": {"name": "none", "namespace": "attacker"}, "spec": {}});
    let (status, answer) = attacker.send("POST", routes, Some(&route));
    assert_eq!(status, 201, "{answer}");
    let (lists, attacker, answers) = (&lists, &attacker, &AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..32 {
            let (patch, stop) = (&patch, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match thread % 8 {
                        7 => drop(attacker.send("PATCH", &format!("{routes}/none"), Some(patch))),
                        _ => drop(attacker.send("GET", &lists[thread % lists.len()], None)),
                    }
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs(if is_long() { 120 } else { 8 }));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(answers.load(Ordering::Relaxed) > 32, "the attack takes place");
    let grown = platform.resident_mib().saturating_sub(memory);
    assert!(grown < 256, "{grown} MiB more");
    bystander.was_served();
}
