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
pub enum Standing {
    /// Every name server was asked for its name and answered right.
    Live,
    /// Every name server answers its names of the platform right; that its own host points here is not known.
    Answered,
    /// It has a Router; nobody has said whether its name is answered.
    Placed,
    /// It has a Router; its name is not proven to be answered, or not any more.
    Unproven,
    /// It has no Router.
    #[default]
    Waiting,
    /// It may not have its host.
    Refused,
    /// It has a Router, and its name leads nowhere: an outage.
    Down,
}

impl Standing {
    /// All of them, the best first.
    pub const ALL: [Standing; 7] = [
        Standing::Live,
        Standing::Answered,
        Standing::Placed,
        Standing::Unproven,
        Standing::Waiting,
        Standing::Refused,
        Standing::Down,
    ];

    /// Its word, as in JSON and in labels of metrics.
    pub fn word(self) -> &'static str {
        match self {
            Standing::Live => "live",
            Standing::Answered => "answered",
            Standing::Placed => "placed",
            Standing::Unproven => "unproven",
            Standing::Waiting => "waiting",
            Standing::Refused => "refused",
            Standing::Down => "down",
        }
    }

    /// Where a Route with this status stands, and the condition that decided it, if one did.
    pub fn of(status: &RouteStatus) -> (Standing, Option<&Condition>) {
        let condition = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
        let is = |kind: &str, value: &str| condition(kind).filter(|condition| condition.status == value);
        let proof = [RESOLVABLE, PUBLISHED];
        let unproven = proof.iter().find_map(|kind| condition(kind).filter(|condition| condition.status != "True"));
        if let Some(refused) = is(ADMITTED, "False") {
            (Standing::Refused, Some(refused))
        } else if status.phase == Phase::New {
            (Standing::Waiting, condition(SCHEDULED))
        } else if let Some(down) = proof.iter().find_map(|kind| is(kind, "False").filter(|said| is_outage(said))) {
            (Standing::Down, Some(down))
        } else if let Some(unproven) = unproven {
            (Standing::Unproven, Some(unproven))
        } else if let Some(live) = is(RESOLVABLE, "True") {
            let is_custom = status.names.iter().any(|name| name.kind == NameKind::Custom);
            match is_custom && is(HOST_POINTS_HERE, "True").is_none() {
                true => (Standing::Answered, condition(HOST_POINTS_HERE).or(Some(live))),
                false => (Standing::Live, Some(live)),
            }
        } else {
            (Standing::Placed, condition(SCHEDULED))
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
        for (phase, conditions, standing, reason) in [
            ("new", vec![], Standing::Waiting, None),
            ("new", vec![condition("Scheduled", "False", "Unschedulable")], Standing::Waiting, Some("Unschedulable")),
            ("scheduled", vec![bound.clone()], Standing::Placed, Some("Bound")),
            ("scheduled", vec![bound.clone(), condition("Resolvable", "True", "Yes")], Standing::Live, Some("Yes")),
            (
                "scheduled",
                vec![bound.clone(), published, condition("Resolvable", "Unknown", "Asking")],
                Standing::Unproven,
                Some("Asking"),
            ),
            (
                "scheduled",
                vec![condition("Published", "True", "Published"), condition("Resolvable", "False", "NotAnswering")],
                Standing::Unproven,
                Some("NotAnswering"),
            ),
            (
                "scheduled",
                vec![condition("Published", "False", "NotPublished"), condition("Resolvable", "False", "Pending")],
                Standing::Down,
                Some("NotPublished"),
            ),
            (
                "scheduled",
                vec![condition("Published", "True", "Published"), condition("Resolvable", "False", "NoActiveAddress")],
                Standing::Down,
                Some("NoActiveAddress"),
            ),
            (
                "scheduled",
                vec![bound, condition("Admitted", "False", "HostAlreadyClaimed"), condition("Resolvable", "True", "x")],
                Standing::Refused,
                Some("HostAlreadyClaimed"),
            ),
        ] {
            let status: Value = json!({"phase": phase, "conditions": conditions});
            let status: RouteStatus = serde_json::from_value(status).expect("a status");
            let (found, decided) = Standing::of(&status);
            assert_eq!((found, decided.map(|condition| condition.reason.as_str())), (standing, reason));
        }
        // Nothing says live of a host whose own DNS was not seen to lead here.
        let names = json!([{"name": "www.shop.example", "type": "custom"}]);
        let resolvable = condition("Resolvable", "True", "Resolvable");
        for (points, standing) in [
            (None, Standing::Answered),
            (Some("Unknown"), Standing::Answered),
            (Some("False"), Standing::Answered),
            (Some("True"), Standing::Live),
        ] {
            let points = points.map(|status| condition("HostPointsHere", status, "X"));
            let conditions: Vec<Value> = [resolvable.clone()].into_iter().chain(points).collect();
            let status = json!({"phase": "scheduled", "names": names, "conditions": conditions});
            let status: RouteStatus = serde_json::from_value(status).expect("a status");
            assert_eq!(Standing::of(&status).0, standing);
        }
    }
}
