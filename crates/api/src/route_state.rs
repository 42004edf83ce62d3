//! Where a Route stands, in one word: what its conditions come to for whoever counts Routes or looks at a list of them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::v1alpha1::route::{
    ADMITTED, HOST_POINTS_HERE, NameKind, PUBLISHED, Phase, RESOLVABLE, RouteStatus, SCHEDULED,
};
use super::v1alpha1::router::NO_ACTIVE_ADDRESS;

/// Where a route stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteState {
    /// Every name server was asked for its name and answered right.
    Resolvable,
    /// Every name server answers its names of the platform right; that its own host points here is not known.
    Answered,
    /// It has a Router; nobody has said whether its name is answered.
    Scheduled,
    /// It has a Router; its name is not verified to be answered, or not any more.
    Unverified,
    /// It has no Router.
    #[default]
    Pending,
    /// It may not have its host.
    Refused,
    /// It has a Router, and its name leads nowhere: an outage.
    Down,
}

impl RouteState {
    /// All of them, the best first.
    pub const ALL: [RouteState; 7] = [
        RouteState::Resolvable,
        RouteState::Answered,
        RouteState::Scheduled,
        RouteState::Unverified,
        RouteState::Pending,
        RouteState::Refused,
        RouteState::Down,
    ];

    /// Its word, as in JSON and in labels of metrics.
    pub fn word(self) -> &'static str {
        match self {
            RouteState::Resolvable => "resolvable",
            RouteState::Answered => "answered",
            RouteState::Scheduled => "scheduled",
            RouteState::Unverified => "unverified",
            RouteState::Pending => "pending",
            RouteState::Refused => "refused",
            RouteState::Down => "down",
        }
    }

    /// Where a Route with this status stands, and the condition that decided it, if one did.
    pub fn of(status: &RouteStatus) -> (RouteState, Option<&Condition>) {
        let condition = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
        let is = |kind: &str, value: &str| condition(kind).filter(|condition| condition.status == value);
        let proof = [RESOLVABLE, PUBLISHED];
        let unverified = proof.iter().find_map(|kind| condition(kind).filter(|condition| condition.status != "True"));
        if let Some(refused) = is(ADMITTED, "False") {
            (RouteState::Refused, Some(refused))
        } else if status.phase == Phase::New {
            (RouteState::Pending, condition(SCHEDULED))
        } else if let Some(down) = proof.iter().find_map(|kind| is(kind, "False").filter(|said| is_outage(said))) {
            (RouteState::Down, Some(down))
        } else if let Some(unverified) = unverified {
            (RouteState::Unverified, Some(unverified))
        } else if let Some(live) = is(RESOLVABLE, "True") {
            let is_custom = status.names.iter().any(|name| name.kind == NameKind::Custom);
            match is_custom && is(HOST_POINTS_HERE, "True").is_none() {
                true => (RouteState::Answered, condition(HOST_POINTS_HERE).or(Some(live))),
                false => (RouteState::Resolvable, Some(live)),
            }
        } else {
            (RouteState::Scheduled, condition(SCHEDULED))
        }
    }
}

/// Whether a condition of a Route that is not met says that the name leads nowhere, whomever one asks.
fn is_outage(said: &Condition) -> bool {
    said.type_ == PUBLISHED || said.reason == NO_ACTIVE_ADDRESS
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_conditions_come_to() {
        let condition = |kind: &str, status: &str, reason: &str| {
            let at = "2026-01-01T00:00:00Z";
            json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at})
        };
        let bound = condition("Scheduled", "True", "Bound");
        let published = condition("Published", "True", "Ok");
        for (phase, conditions, state, reason) in [
            ("new", vec![], RouteState::Pending, None),
            ("new", vec![condition("Scheduled", "False", "Unschedulable")], RouteState::Pending, Some("Unschedulable")),
            ("scheduled", vec![bound.clone()], RouteState::Scheduled, Some("Bound")),
            (
                "scheduled",
                vec![bound.clone(), condition("Resolvable", "True", "Yes")],
                RouteState::Resolvable,
                Some("Yes"),
            ),
            (
                "scheduled",
                vec![bound.clone(), published, condition("Resolvable", "Unknown", "Asking")],
                RouteState::Unverified,
                Some("Asking"),
            ),
            (
                "scheduled",
                vec![condition("Published", "True", "Published"), condition("Resolvable", "False", "NotAnswering")],
                RouteState::Unverified,
                Some("NotAnswering"),
            ),
            (
                "scheduled",
                vec![condition("Published", "False", "NotPublished"), condition("Resolvable", "False", "Pending")],
                RouteState::Down,
                Some("NotPublished"),
            ),
            (
                "scheduled",
                vec![condition("Published", "True", "Published"), condition("Resolvable", "False", "NoActiveAddress")],
                RouteState::Down,
                Some("NoActiveAddress"),
            ),
            (
                "scheduled",
                vec![bound, condition("Admitted", "False", "HostAlreadyClaimed"), condition("Resolvable", "True", "x")],
                RouteState::Refused,
                Some("HostAlreadyClaimed"),
            ),
        ] {
            let status: Value = json!({"phase": phase, "conditions": conditions});
            let status: RouteStatus = serde_json::from_value(status).expect("a status");
            let (found, decided) = RouteState::of(&status);
            assert_eq!((found, decided.map(|condition| condition.reason.as_str())), (state, reason));
        }
        // Nothing says live of a host whose own DNS was not seen to lead here.
        let names = json!([{"name": "www.shop.example", "type": "custom"}]);
        let resolvable = condition("Resolvable", "True", "Resolvable");
        for (points, state) in [
            (None, RouteState::Answered),
            (Some("Unknown"), RouteState::Answered),
            (Some("False"), RouteState::Answered),
            (Some("True"), RouteState::Resolvable),
        ] {
            let points = points.map(|status| condition("HostPointsHere", status, "X"));
            let conditions: Vec<Value> = [resolvable.clone()].into_iter().chain(points).collect();
            let status = json!({"phase": "scheduled", "names": names, "conditions": conditions});
            let status: RouteStatus = serde_json::from_value(status).expect("a status");
            assert_eq!(RouteState::of(&status).0, state);
        }
    }
}
