//! The desired contents of a condition in an object's status. Pure: time is an argument.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use signpost_types::text::{MESSAGE_OCTETS_MAX, cut};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The condition is met.
    True,
    /// The condition is not met.
    False,
    /// The state is unknown.
    Unknown,
}

impl Status {
    /// Returns the spelling of the API.
    pub fn text(self) -> &'static str {
        match self {
            Status::True => "True",
            Status::False => "False",
            Status::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(is_true: bool) -> Self {
        if is_true { Status::True } else { Status::False }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// The type, such as `Ready`.
    pub kind: &'static str,
    pub status: Status,
    /// The reason, as a single word.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub message: String,
}

impl ConditionUpdate {
    /// Returns whether its status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == Status::True
    }

    /// Returns the message, cut to the maximum length of a condition's message.
    pub fn message_text(&self) -> &str {
        cut(&self.message, MESSAGE_OCTETS_MAX)
    }

    /// Returns the condition of this update, new at `now`.
    pub fn condition(&self, generation: Option<i64>, now: Timestamp) -> Condition {
        Condition {
            type_: self.kind.to_owned(),
            status: self.status.text().to_owned(),
            reason: self.reason.to_owned(),
            message: self.message_text().to_owned(),
            observed_generation: generation,
            last_transition_time: Time(now),
        }
    }
}

/// Puts a statement into the conditions; returns whether that changed anything. `lastTransitionTime` changes only with the
/// condition's status.
pub fn state(
    conditions: &mut Vec<Condition>,
    statement: &ConditionUpdate,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let mut new = statement.condition(generation, now);
    let Some(condition) = conditions.iter_mut().find(|condition| condition.type_ == statement.kind) else {
        conditions.push(new);
        return true;
    };
    if condition.status == new.status {
        new.last_transition_time = condition.last_transition_time.clone();
    }
    let is_other = *condition != new;
    *condition = new;
    is_other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transitions_move_the_time_and_nothing_else_does() {
        let mut conditions = Vec::new();
        let mut statement =
            ConditionUpdate { kind: "Ready", status: Status::False, reason: "A", message: "a".to_owned() };
        let at = |second| Timestamp::from_second(second).expect("in range");
        assert!(state(&mut conditions, &statement, Some(1), at(10)));
        assert!(!state(&mut conditions, &statement, Some(1), at(20)));
        statement.reason = "B";
        assert!(state(&mut conditions, &statement, Some(1), at(30)));
        assert_eq!(conditions[0].last_transition_time, Time(at(10)));
        statement.status = Status::True;
        statement.message = "é".repeat(MESSAGE_OCTETS_MAX);
        assert!(state(&mut conditions, &statement, Some(2), at(40)));
        assert_eq!(conditions[0].last_transition_time, Time(at(40)));
        assert_eq!((conditions.len(), conditions[0].observed_generation), (1, Some(2)));
        assert_eq!(conditions[0].message.len(), MESSAGE_OCTETS_MAX);
        assert!(!state(&mut conditions, &statement, Some(2), at(50)), "a message that was cut is the same one");
    }
}
