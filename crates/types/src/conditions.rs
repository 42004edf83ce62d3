//! Conditions in a status that is JSON.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Sets a condition in a `status`; `lastTransitionTime` moves only when the condition's status changes.
pub fn set_condition(
    status: &mut Value,
    kind: &str,
    holds: bool,
    (reason, message): (&str, &str),
    generation: &Value,
    now: Timestamp,
) {
    let value = if holds { "True" } else { "False" };
    let mut condition = json!({
        "type": kind, "status": value, "reason": reason, "message": message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    if generation.is_number() {
        condition["observedGeneration"] = generation.clone();
    }
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(found) => {
            if found["status"] == value {
                condition["lastTransitionTime"] = found["lastTransitionTime"].clone();
            }
            *found = condition;
        }
        None => conditions.push(condition),
    }
}
