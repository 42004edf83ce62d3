//! The statuses of Routes and Routers. Pure: time is an argument.
//!
//! [`route`], [`scheduling`], [`router`], [`instances`], and [`health`] decide every condition, each in one place; [`table`] shows
//! which Routes have those that follow [findings](crate::world::observations). The [reconciler](crate::reconcile) is the only writer.

pub mod health;
pub mod instances;
pub mod ready;
pub mod route;
pub mod router;
pub mod scheduling;
pub mod table;

use crate::world::condition::ConditionUpdate;

/// Returns the update of a condition that is true or false.
fn update(kind: &'static str, is_true: bool, reason: &'static str, message: impl Into<String>) -> ConditionUpdate {
    ConditionUpdate { kind, status: is_true.into(), reason, message: message.into() }
}
