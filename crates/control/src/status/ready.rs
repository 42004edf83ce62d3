//! The condition `Ready` of a Route, which follows from others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::world::RouteInfo;
use crate::world::condition::{ConditionUpdate, Status};
use crate::world::route::Mark;
use signpost_types::v1alpha1::route::{PROGRAMMED, PUBLISHED, READY, RESOLVABLE};

/// The conditions from which `Ready` follows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Whether instances of the Router report their Routes, so that `Programmed` counts.
    pub instances: bool,
    /// Whether name servers are queried, so that `Resolvable` counts; otherwise `Published` does.
    pub answers: bool,
}

/// Returns whether a Route's `Ready` is missing, or does not follow from its other conditions.
pub fn is_wrong(route: &RouteInfo, needs: Needs) -> bool {
    let names = &route.conditions.names;
    let names_are = if needs.answers { names.resolvable } else { names.published };
    let Some(names_are) = names_are.filter(|_| route.bound) else { return false };
    let is_ready = names_are.mark.is_true() && (!needs.instances || names.programmed.is_some_and(Mark::is_true));
    names.ready.map(Mark::is_true) != Some(is_ready)
}

/// Returns the `Ready` condition that follows from the other ones; `None`: nothing is known of the names yet.
pub fn statement(conditions: &[Condition], needs: Needs) -> Option<ConditionUpdate> {
    let is_true = |kind: &str| {
        conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status == "True")
    };
    let names_are = if needs.answers { RESOLVABLE } else { PUBLISHED };
    let (status, reason, message) = match (is_true(names_are)?, needs.instances, is_true(PROGRAMMED)) {
        (false, ..) if needs.answers => {
            let why = "not all names resolve: see the condition Resolvable";
            (Status::False, "NotResolvable", why.to_owned())
        }
        (false, ..) => {
            let why = "not all names are published: see the condition Published";
            (Status::False, "NotPublished", why.to_owned())
        }
        (true, true, None | Some(false)) => {
            let why = "not every instance of its Router serves the Route: see the condition Programmed";
            (Status::False, "NotProgrammed", why.to_owned())
        }
        (true, has_instances, _) => {
            let mut message = match needs.answers {
                true => "all names resolve".to_owned(),
                // A name server can have another answer.
                false => {
                    "all names are published; name servers are not queried, because verify.names is false".to_owned()
                }
            };
            if has_instances {
                message += ", and every instance of its Router serves the Route";
            }
            (Status::True, "Ready", message)
        }
    };
    Some(ConditionUpdate { kind: READY, status, reason, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    /// Conditions by the first letters of their types, upper-case where they are true.
    fn conditions(letters: &str) -> Vec<Condition> {
        let condition = |letter: char| {
            let types = [PUBLISHED, RESOLVABLE, PROGRAMMED];
            let at = "urg".find(letter.to_ascii_lowercase()).expect("pUblished, Resolvable, proGrammed");
            let status = if letter.is_uppercase() { "True" } else { "False" };
            let last_transition_time = Time(Timestamp::UNIX_EPOCH);
            Condition {
                last_transition_time,
                message: String::new(),
                observed_generation: None,
                reason: "X".to_owned(),
                status: status.to_owned(),
                type_: types[at].to_owned(),
            }
        };
        letters.chars().map(condition).collect()
    }

    #[test]
    fn what_it_follows_from() {
        let unverified = "all names are published; name servers are not queried, because verify.names is false";
        for (answers, instances, letters, expected) in [
            (true, false, "", None),
            (true, false, "U", None),
            (true, false, "UR", Some("Ready: all names resolve")),
            (true, false, "Ur", Some("NotResolvable: not all names resolve: see the condition Resolvable")),
            (true, true, "URG", Some("Ready: all names resolve, and every instance of its Router serves the Route")),
            (
                true,
                true,
                "UR",
                Some("NotProgrammed: not every instance of its Router serves the Route: see the condition Programmed"),
            ),
            (
                true,
                true,
                "URg",
                Some("NotProgrammed: not every instance of its Router serves the Route: see the condition Programmed"),
            ),
            (true, true, "UrG", Some("NotResolvable: not all names resolve: see the condition Resolvable")),
            (false, false, "", None),
            (false, false, "U", Some(unverified)),
            (false, false, "u", Some("NotPublished: not all names are published: see the condition Published")),
            // Findings from the verification of names no longer count.
            (false, false, "Ur", Some(unverified)),
            (
                false,
                true,
                "U",
                Some("NotProgrammed: not every instance of its Router serves the Route: see the condition Programmed"),
            ),
            (false, true, "UG", Some("and every instance of its Router serves the Route")),
        ] {
            let said = statement(&conditions(letters), Needs { instances, answers });
            let said = said.map(|said| format!("{}: {}", said.reason, said.message));
            let fits = match (&said, expected) {
                (Some(said), Some(expected)) => said.contains(expected),
                (said, expected) => said.is_none() && expected.is_none(),
            };
            assert!(fits, "{letters} {answers} {instances}: {said:?}");
        }
    }
}
