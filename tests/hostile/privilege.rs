//! Machine credentials in the wrong hands.

use serde_json::{Value, json};

use crate::support::{Platform, routes_path};
use signpost_testing::eventually;

const DELETION_HOLDS: &str = "/apis/signpost.dev/v1alpha1/deletionholds";

fn hold(name: &str) -> Value {
    json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "DeletionHold", "metadata": {"name": name},
           "spec": {"type": "Router", "objects": 1, "known": 1, "cause": "list"}})
}

fn entry(server: &str, set: &str) -> Value {
    let now = jiff::Timestamp::now().to_string();
    json!({"server": server, "since": now, "generation": 1, "set": set, "lastHeartbeatTime": now})
}

/// A stolen credential of a name server cannot forge a decision or another name server's entry.
#[test]
fn a_stolen_name_server_credential_decides_nothing() {
    let platform = Platform::start(&[]);
    let bystander = platform.bystander();
    let thief = platform.user("ns-stolen", &["--role", "name-server"]);
    let other = platform.user("ns-other", &["--role", "name-server"]);
    eventually("the users are known", || {
        [&thief, &other].iter().all(|user| user.send("GET", DELETION_HOLDS, None).0 == 200).then_some(())
    });

    // No decision at creation, with any method of creating an object.
    let mut decided = hold("decided");
    decided["spec"]["decision"] = json!("approve");
    for user in [&thief, &other] {
        let (status, body) = user.send("POST", DELETION_HOLDS, Some(&decided));
        assert_eq!(status, 422, "{body}");
        assert!(body.contains("spec.decision"), "{body}");
    }
    let decided = decided.to_string();
    for flags in [&["create", "-f", "-"][..], &["apply", "--server-side", "-f", "-"], &["apply", "-f", "-"]] {
        let refusal = platform.admin.refused(flags, &decided);
        assert!(refusal.contains("spec.decision"), "{flags:?}: {refusal}");
    }
    let mut stuck = hold("stuck");
    stuck["metadata"]["finalizers"] = json!(["example.org/stuck"]);
    assert_eq!(thief.send("POST", DELETION_HOLDS, Some(&stuck)).0, 422);

    // What it may do, and no decision after that.
    assert_eq!(thief.send("POST", DELETION_HOLDS, Some(&hold("held"))).0, 201);
    let (path, status_path) = (format!("{DELETION_HOLDS}/held"), format!("{DELETION_HOLDS}/held/status"));
    assert_eq!(thief.send("PATCH", &path, Some(&json!({"spec": {"decision": "approve"}}))).0, 403);

    // The other name server enters; its entry is its own.
    let entered = json!({"status": {"holders": [entry("other", "s1")]}});
    let (status, body) = other.send("PATCH", &status_path, Some(&entered));
    assert_eq!(status, 200, "{body}");
    for holders in [json!([]), json!([entry("other", "forged")]), json!([entry("thief", "s1")])] {
        let (status, body) = thief.send("PATCH", &status_path, Some(&json!({"status": {"holders": holders}})));
        assert_eq!(status, 422, "{body}");
        assert!(body.contains("ns-other"), "{body}");
    }
    let (status, body) = thief.send("DELETE", &path, None);
    assert_eq!(status, 403, "{body}");
    let now: Value = serde_json::from_str(&other.send("GET", &path, None).1).expect("JSON");
    assert_eq!(now["status"]["holders"][0]["set"], "s1");
    assert_eq!(now["status"]["holders"][0]["user"], "ns-other");
    assert_eq!(now["spec"]["decision"], Value::Null);

    // Nothing of the rest of the platform, either.
    for (method, path) in [
        ("DELETE", "/apis/signpost.dev/v1alpha1/routers/shard1".to_owned()),
        ("PATCH", "/apis/signpost.dev/v1alpha1/routers/shard1".to_owned()),
        ("DELETE", routes_path("bystander") + "/app"),
        ("GET", "/api/v1/events".to_owned()),
    ] {
        let patch = json!({"metadata": {"labels": {"x": "y"}}});
        let (status, body) = thief.send(method, &path, (method == "PATCH").then_some(&patch));
        assert_eq!(status, 403, "{method} {path}: {body}");
    }
    bystander.was_served();
}

/// The reports of a stolen name server credential are limited: an entry that would expire in a hundred years, and the maximum
/// number of DeletionHolds.
#[test]
fn forged_reports_lapse_and_are_few() {
    let platform = Platform::start(&[]);
    let bystander = platform.bystander();
    let thief = platform.user("ns-stolen", &["--role", "name-server"]);
    eventually("the user is known", || (thief.send("GET", DELETION_HOLDS, None).0 == 200).then_some(()));
    assert_eq!(thief.send("POST", DELETION_HOLDS, Some(&hold("forever"))).0, 201);
    let mut forged = entry("ns1", "s1");
    forged["lastHeartbeatTime"] = json!("2126-01-01T00:00:00Z");
    let entered = json!({"status": {"holders": [forged]}});
    let (status, body) = thief.send("PATCH", &format!("{DELETION_HOLDS}/forever/status"), Some(&entered));
    assert_eq!(status, 200, "{body}");
    let stored: Value = serde_json::from_str(&body).expect("JSON");
    let heard: jiff::Timestamp =
        stored["status"]["holders"][0]["lastHeartbeatTime"].as_str().expect("text").parse().expect("a time");
    assert!(heard <= jiff::Timestamp::now() + jiff::SignedDuration::from_mins(10), "{heard}");

    // Several at a time, because the server removes a DeletionHold without an entry after half a minute.
    let refused = |thread: usize| {
        (0..250)
            .map(|number| thief.send("POST", DELETION_HOLDS, Some(&hold(&format!("many-{thread}-{number}")))))
            .find(|(status, _)| *status != 201)
    };
    let refused: Vec<(u16, String)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || refused(thread))).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("it does not panic")).collect()
    });
    assert!(!refused.is_empty(), "there is a bound");
    for (status, body) in refused {
        assert_eq!(status, 403, "{body}");
        assert!(body.contains("256 DeletionHolds"), "{body}");
    }
    // An administrator finds room for what is real, and can clear up.
    platform.admin.ok_with(&["create", "-f", "-"], &hold("real").to_string());
    platform.admin.ok(&["delete", "deletionholds", "--all", "--wait=false"]);
    bystander.was_served();
}
