//! Machine credentials in the wrong hands.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{Platform, is_long, routes_path};
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

    let refused = (0..2000)
        .map(|number| thief.send("POST", DELETION_HOLDS, Some(&hold(&format!("many-{number}")))))
        .find(|(status, _)| *status != 201);
    let (status, body) = refused.expect("there is a bound");
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("256 DeletionHolds"), "{body}");
    // An administrator finds room for what is real, and can clear up.
    platform.admin.ok_with(&["create", "-f", "-"], &hold("real").to_string());
    platform.admin.ok(&["delete", "deletionholds", "--all", "--wait=false"]);
    bystander.was_served();
}

/// One token sends thousands of rejected requests: the log keeps its contents, and the change by another user.
#[test]
fn refusals_of_one_user_leave_the_audit_log_alone() {
    let platform = Platform::start(&[]);
    let bystander = platform.bystander();
    let tenant = platform.tenant("flood");
    let requests = if is_long() { 50_000 } else { 3_000 };
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (tenant, refused) = (&tenant, &refused);
            scope.spawn(move || {
                for number in 0..requests / 4 {
                    let path = format!("/apis/signpost.dev/v1alpha1/routers/r{part}-{number}");
                    let (status, body) = tenant.send("DELETE", &path, None);
                    assert!(matches!(status, 403 | 429), "{status} {body}");
                    refused.fetch_add(usize::from(status == 403), Ordering::Relaxed);
                }
            });
        }
    });
    let refused = refused.into_inner();
    assert!(refused > requests / 2, "{refused}");
    bystander.was_served();
    platform.admin.ok(&["create", "namespace", "after"]);
    let log = eventually("the change is in the log", || {
        let log = std::fs::read_to_string(platform.data.join("audit.log")).ok()?;
        log.contains("\"name\":\"after\"").then_some(log)
    });
    let of = |user: &str| log.lines().filter(|line| line.contains(&format!("\"username\":\"{user}\""))).count();
    let written = of("flood");
    // A hundred at once, and ten per second: this is far below what was rejected however slow the machine is.
    assert!(written >= 100, "{written}");
    let suppressed = platform.metric("signpost_api_audit_events_total{outcome=\"suppressed\"}") as usize;
    assert!(suppressed >= refused - written, "{suppressed} of {refused}, {written} written");
    assert!(suppressed > 0 && of("bystander") > 0, "changes of others are there: {suppressed}");
}

/// One token makes changes until the log is full several times over: what others did stays in it.
#[test]
fn changes_of_one_user_leave_those_of_others_in_the_audit_log() {
    let platform = Platform::start(&["--audit-log-size", "1Mi", "--audit-log-files", "2"]);
    let (tenant, bystander) = (platform.tenant("flood"), platform.bystander());
    platform.admin.ok(&["create", "namespace", "before"]);
    let route = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": "app"},
                       "spec": {"to": {"name": "web"}}});
    assert_eq!(tenant.send("POST", &routes_path("flood"), Some(&route)).0, 201);
    // Each event repeats some kilobytes of the request, so that a few thousand of them fill the log.
    let path = format!("{}/app?fieldManager=flood&pretty={}", routes_path("flood"), "x".repeat(3_000));
    let changes = if is_long() { 20_000 } else { 2_000 };
    let mut made = 0;
    for number in 0..changes {
        let patch = json!({"metadata": {"annotations": {"round": number.to_string()}}});
        let (status, body) = tenant.send("PATCH", &path, Some(&patch));
        assert!(matches!(status, 200 | 429), "{status} {body}");
        made += usize::from(status == 200);
    }
    assert!(made * 2_000 > 3 << 20, "the log is full: {made} changes");
    bystander.was_served();
    // The newest change is in the file: so everything before it was written.
    platform.admin.ok(&["create", "namespace", "after"]);
    let log = eventually("the newest change is in the log", || {
        let read = |file: &str| std::fs::read_to_string(platform.data.join(file)).unwrap_or_default();
        let (older, newer) = (read("audit.log.1"), read("audit.log"));
        newer.contains("\"name\":\"after\"").then(|| older + &newer)
    });
    assert!(log.len() <= 2 << 20, "{}", log.len());
    assert!(log.contains("\"name\":\"before\""), "an older change of another user is there");
    let of = |user: &str| log.lines().filter(|line| line.contains(&format!("\"username\":\"{user}\""))).count();
    assert!(of("flood") > 0 && of("flood") < made, "{} of {made}", of("flood"));
}
