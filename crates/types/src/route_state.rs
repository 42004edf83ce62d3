//! The state of a Route as one word, derived from its conditions, for counts and lists of Routes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::v1alpha1::route::{
    ADMITTED, HOST_NOT_CHECKED, HOST_POINTS_HERE, NameKind, PUBLISHED, Phase, READY, RESOLVABLE, RESOLVED_REFS,
    RouteStatus, SCHEDULED,
};
use super::v1alpha1::router::NO_ACTIVE_ADDRESS;

/// The state of a Route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteState {
    /// Every name server answered correctly for the name of the Route.
    Resolvable,
    /// Every name server answers correctly for the platform's names of the Route; a resolver has not confirmed that its custom
    /// host leads here.
    Answered,
    /// The names of the Route resolve, and requests fail: the Route is not ready.
    Unready,
    /// The Route has a Router; there is no verification result for its name.
    Scheduled,
    /// The Route has a Router; verification of its name has failed or expired.
    Unverified,
    /// The Route has no Router.
    #[default]
    Pending,
    /// The Route may not have its host.
    Refused,
    /// The Route has a Router, and its name resolves to nothing: an outage.
    Down,
}

impl RouteState {
    /// All states, the best first.
    pub const ALL: [RouteState; 8] = [
        RouteState::Resolvable,
        RouteState::Answered,
        RouteState::Unready,
        RouteState::Scheduled,
        RouteState::Unverified,
        RouteState::Pending,
        RouteState::Refused,
        RouteState::Down,
    ];

    /// Returns the word for the state in JSON and in labels of metrics.
    pub fn word(self) -> &'static str {
        match self {
            RouteState::Resolvable => "resolvable",
            RouteState::Answered => "answered",
            RouteState::Unready => "unready",
            RouteState::Scheduled => "scheduled",
            RouteState::Unverified => "unverified",
            RouteState::Pending => "pending",
            RouteState::Refused => "refused",
            RouteState::Down => "down",
        }
    }

    /// Returns the state of a Route with this status, and the condition that determined it, if any.
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
            // Without resolvers, hosts are never checked, which is not a problem of the Route.
            let points = condition(HOST_POINTS_HERE);
            let is_open = points.is_none_or(|points| points.status != "True" && points.reason != HOST_NOT_CHECKED);
            if let Some(refs) = is(RESOLVED_REFS, "False") {
                (RouteState::Unready, Some(refs))
            } else if is_custom && is_open {
                (RouteState::Answered, points.or(Some(live)))
            } else if let Some(unready) = is(READY, "False") {
                (RouteState::Unready, Some(unready))
            } else {
                (RouteState::Resolvable, Some(live))
            }
        } else {
            (RouteState::Scheduled, condition(SCHEDULED))
        }
    }
}

/// Returns whether an unmet condition of a Route reports that its name resolves to nothing on all name servers.
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
                vec![bound.clone(), published, condition("Resolvable", "Unknown", "Querying")],
                RouteState::Unverified,
                Some("Querying"),
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
    }

    #[test]
    fn names_that_resolve_are_not_all() {
        let condition = |kind: &str, status: &str, reason: &str| {
            let at = "2026-01-01T00:00:00Z";
            json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at})
        };
        // Requests fail although the names resolve.
        let resolvable = condition("Resolvable", "True", "Resolvable");
        for (others, state, reason) in [
            (vec![condition("Ready", "True", "Ready")], RouteState::Resolvable, "Resolvable"),
            (vec![condition("Ready", "False", "NotProgrammed")], RouteState::Unready, "NotProgrammed"),
            (
                vec![condition("Ready", "False", "ResolvedRefs"), condition("ResolvedRefs", "False", "NoService")],
                RouteState::Unready,
                "NoService",
            ),
            (
                vec![condition("ResolvedRefs", "Unknown", "X"), condition("Ready", "Unknown", "X")],
                RouteState::Resolvable,
                "Resolvable",
            ),
        ] {
            let conditions: Vec<Value> = [resolvable.clone()].into_iter().chain(others).collect();
            let status: RouteStatus =
                serde_json::from_value(json!({"phase": "scheduled", "conditions": conditions})).expect("a status");
            let (found, decided) = RouteState::of(&status);
            assert_eq!((found, decided.map(|condition| condition.reason.as_str())), (state, Some(reason)));
        }
        // A custom host is not live until its own DNS was seen to lead to the platform, unless the platform does not check hosts.
        let names = json!([{"name": "www.shop.example", "type": "custom"}]);
        for (points, state) in [
            (None, RouteState::Answered),
            (Some(("Unknown", "ResolverFailed")), RouteState::Answered),
            (Some(("Unknown", "NotChecked")), RouteState::Resolvable),
            (Some(("False", "NoRecord")), RouteState::Answered),
            (Some(("True", "PointsHere")), RouteState::Resolvable),
        ] {
            let points = points.map(|(status, reason)| condition("HostPointsHere", status, reason));
            let conditions: Vec<Value> = [resolvable.clone()].into_iter().chain(points).collect();
            let status = json!({"phase": "scheduled", "names": names, "conditions": conditions});
            let status: RouteStatus = serde_json::from_value(status).expect("a status");
            assert_eq!(RouteState::of(&status).0, state);
        }
    }
}
