//! The condition `Ready` of a Route, which follows from others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::world::RouteInfo;
use crate::world::condition::{ConditionUpdate, Status};
use crate::world::route::Mark;
use signpost_api::v1alpha1::route::{PROGRAMMED, READY, RESOLVABLE};

/// Whether what a Route says of `Ready` is missing or does not follow from the conditions that it says.
pub fn is_wrong(route: &RouteInfo, has_instances: bool) -> bool {
    let names = &route.conditions.names;
    let Some(resolvable) = names.resolvable.filter(|_| route.bound) else { return false };
    let is_ready = resolvable.mark.is_true() && (!has_instances || names.programmed.is_some_and(Mark::is_true));
    names.ready.map(Mark::is_true) != Some(is_ready)
}

/// What `Ready` says beside the other conditions; `None`: nothing is known of the names yet.
pub fn statement(conditions: &[Condition], has_instances: bool) -> Option<ConditionUpdate> {
    let is_true = |kind: &str| {
        conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status == "True")
    };
    let (status, reason, message) = match (is_true(RESOLVABLE)?, is_true(PROGRAMMED)) {
        (false, _) => (Status::False, "NotResolvable", "not all names resolve: the condition Resolvable says why"),
        (true, programmed) if has_instances && programmed != Some(true) => (
            Status::False,
            "NotProgrammed",
            "not every instance of its Router serves it: the condition Programmed says why",
        ),
        (true, Some(true)) => (Status::True, "Ready", "its names resolve, and every instance of its Router serves it"),
        (true, _) => (Status::True, "Ready", "its names resolve"),
    };
    Some(ConditionUpdate { kind: READY, status, reason, message: message.to_owned() })
}
