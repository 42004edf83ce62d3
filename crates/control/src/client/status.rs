//! Writes to the `status` of objects that have several writers, without fights.
//!
//! A status is read, changed and written with the resourceVersion that was read, so that no writer undoes what another
//! wrote meanwhile; a write that would change nothing is not sent.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use signpost_api::text::{MESSAGE_OCTETS_MAX, cut};

/// How often a write is tried again when others write the same object at the same time.
const CONFLICTS_MAX: u32 = 6;

/// Changes the status of the object `name`. `change` looks at the object as it is, and gives the fields of `status` that
/// shall be different (a JSON merge patch: lists as a whole), or `None` if all is as it should be.
///
/// The answer is the object after that; `None` if it does not exist. After six conflicts in a row the last one is the error.
pub async fn update_status<K>(
    api: &Api<K>,
    name: &str,
    mut change: impl FnMut(&K) -> Option<Value>,
) -> kube::Result<Option<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut conflicts = 0;
    loop {
        let Some(object) = api.get_opt(name).await? else { return Ok(None) };
        let Some(status) = change(&object) else { return Ok(Some(object)) };
        let patch = json!({"metadata": {"resourceVersion": object.meta().resource_version}, "status": status});
        match api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(object) => return Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(kube::Error::Api(status)) if status.code == 409 && conflicts < CONFLICTS_MAX => conflicts += 1,
            Err(error) => return Err(error),
        }
    }
}

/// What a condition shall say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Its type, such as `Ready`.
    pub kind: &'static str,
    /// Whether it is so.
    pub is_true: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub message: String,
}

impl Statement {
    /// Its message, as long as a condition's may be.
    pub fn told(&self) -> &str {
        cut(&self.message, MESSAGE_OCTETS_MAX)
    }
}

/// Puts a statement into the conditions; the answer is whether that changed anything. `lastTransitionTime` moves only when
/// the condition's status does.
pub fn state(conditions: &mut Vec<Condition>, statement: &Statement, generation: Option<i64>, now: Timestamp) -> bool {
    let Statement { kind, is_true, reason, .. } = statement;
    put(conditions, (kind, if *is_true { "True" } else { "False" }, reason, statement.told()), generation, now)
}

/// The same of a condition's type, status, reason and message, where the status may be `Unknown`.
pub fn put(
    conditions: &mut Vec<Condition>,
    (kind, status, reason, message): (&str, &str, &str, &str),
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let Some(condition) = conditions.iter_mut().find(|condition| condition.type_ == kind) else {
        conditions.push(Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: generation,
            last_transition_time: Time(now),
        });
        return true;
    };
    let before = condition.clone();
    if condition.status != status {
        condition.last_transition_time = Time(now);
        status.clone_into(&mut condition.status);
    }
    reason.clone_into(&mut condition.reason);
    message.clone_into(&mut condition.message);
    condition.observed_generation = generation;
    *condition != before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transitions_move_the_time_and_nothing_else_does() {
        let mut conditions = Vec::new();
        let mut statement = Statement { kind: "Ready", is_true: false, reason: "A", message: "a".to_owned() };
        let at = |second| Timestamp::from_second(second).expect("in range");
        assert!(state(&mut conditions, &statement, Some(1), at(10)));
        assert!(!state(&mut conditions, &statement, Some(1), at(20)));
        statement.reason = "B";
        assert!(state(&mut conditions, &statement, Some(1), at(30)));
        assert_eq!(conditions[0].last_transition_time, Time(at(10)));
        statement.is_true = true;
        statement.message = "é".repeat(MESSAGE_OCTETS_MAX);
        assert!(state(&mut conditions, &statement, Some(2), at(40)));
        assert_eq!(conditions[0].last_transition_time, Time(at(40)));
        assert_eq!((conditions.len(), conditions[0].observed_generation), (1, Some(2)));
        assert_eq!(conditions[0].message.len(), MESSAGE_OCTETS_MAX);
        assert!(!state(&mut conditions, &statement, Some(2), at(50)), "a message that was cut is the same one");
    }
}
