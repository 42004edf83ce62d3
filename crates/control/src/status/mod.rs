//! What the statuses of Routes and Routers say. Pure: time comes in as an argument.
//!
//! [`route`], [`scheduling`], [`router`], [`instances`] and [`health`] decide every condition, each in one place. One writer carries that out: the
//! [reconciler](crate::reconcile).

pub mod health;
pub mod instances;
pub mod ready;
pub mod route;
pub mod router;
pub mod scheduling;

use crate::world::condition::ConditionUpdate;

/// Returns what a condition that is true or false should say.
fn update(kind: &'static str, is_true: bool, reason: &'static str, message: impl Into<String>) -> ConditionUpdate {
    ConditionUpdate { kind, status: is_true.into(), reason, message: message.into() }
}
