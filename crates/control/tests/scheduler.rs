//! The client and the scheduler against an API in memory that can be told to misbehave.

#[path = "scheduler/conformance.rs"]
mod conformance;
#[path = "scheduler/fake_api.rs"]
mod fake_api;
#[path = "scheduler/lease.rs"]
mod lease;
#[path = "scheduler/moves.rs"]
mod moves;
#[path = "scheduler/names.rs"]
mod names;
#[path = "scheduler/placement.rs"]
mod placement;
#[path = "scheduler/reflector.rs"]
mod reflector;
#[path = "scheduler/scheduling.rs"]
mod scheduling;
#[path = "scheduler/webhook.rs"]
mod webhook;
#[path = "scheduler/whole.rs"]
mod whole;

use std::time::Duration;

use serde_json::{Value, json};

/// Waits until `done`, for at most five minutes: far longer than anything here takes, even on a busy machine.
async fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(300);
    while !done() {
        assert!(tokio::time::Instant::now() < deadline, "it never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn router(name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name},
        "spec": {"dns": format!("{name}.v3.example"), "addresses": [{"ip": "192.0.2.1"}]},
    });
    json_patch::merge(&mut object["spec"], spec);
    object
}

fn route(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
        "metadata": {"namespace": namespace, "name": name}, "spec": spec, "status": {"phase": "new"},
    })
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn condition(object: &Value, kind: &str) -> Option<(String, String, String)> {
    let conditions = object["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}
