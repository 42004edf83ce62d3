//! The condition `Ready` of a Route, which follows from others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::world::RouteInfo;
use crate::world::condition::{ConditionUpdate, Status};
use crate::world::route::Mark;
use signpost_types::v1alpha1::route::{PROGRAMMED, PUBLISHED, READY, RESOLVABLE, RESOLVED_REFS};

/// The conditions from which `Ready` follows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Whether instances of the Router report their Routes, so that `Programmed` counts.
    pub instances: bool,
    /// Whether the Services of Routes on the Router are known, so that `ResolvedRefs` counts.
    pub backends: bool,
    /// Whether name servers are queried, so that `Resolvable` counts; otherwise `Published` does.
    pub answers: bool,
}

/// Returns whether a Route's `Ready` is missing, or does not follow from its other conditions.
pub fn is_wrong(route: &RouteInfo, needs: Needs) -> bool {
    let names = &route.conditions.names;
    let names_are = if needs.answers { names.resolvable } else { names.published };
    let Some(names_are) = names_are.filter(|_| route.bound) else { return false };
    let reported = names.ready.map(Mark::is_true);
    let backends_are = match names.resolved_refs.filter(|_| needs.backends) {
        Some(refs) => refs.mark.is_true(),
        None => is_met_if_absent(needs, reported),
    };
    let is_ready =
        names_are.mark.is_true() && (!needs.instances || names.programmed.is_some_and(Mark::is_true)) && backends_are;
    let is_late = needs.backends && names.resolved_refs.is_some_and(|refs| !refs.is_current);
    reported != Some(is_ready) && !(is_ready && is_late)
}

/// Returns whether an absent `ResolvedRefs` permits `Ready`, whose status is `reported`. A new Route is not ready before its Services are
/// known. A Route that is ready stays so until then: it was so before the platform reported this condition.
fn is_met_if_absent(needs: Needs, reported: Option<bool>) -> bool {
    !needs.backends || reported == Some(true)
}

/// Returns the `Ready` condition of a Route of this generation that follows from the other ones; `None`: it does not change yet, because
/// nothing is known of the names, or of the Services of this generation.
pub fn statement(conditions: &[Condition], needs: Needs, generation: Option<i64>) -> Option<ConditionUpdate> {
    let find = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    let is_true = |kind: &str| find(kind).map(|condition| condition.status == "True");
    let refs = find(RESOLVED_REFS).filter(|_| needs.backends);
    let backends_are = refs.map_or_else(|| is_met_if_absent(needs, is_true(READY)), |refs| refs.status == "True");
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
        _ if !backends_are => {
            let why = "its backends are not known to be ready: see the condition ResolvedRefs";
            (Status::False, "BackendsNotReady", why.to_owned())
        }
        _ if refs.is_some_and(|refs| refs.observed_generation != generation) => return None,
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
            if refs.is_some() {
                message += ", and its backends are ready";
            }
            (Status::True, "Ready", message)
        }
    };
    Some(ConditionUpdate { kind: READY, status, reason, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::route::{Conditions, ReportedNames};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    /// Conditions by the first letters of their types, upper-case where they are true.
    fn conditions(letters: &str) -> Vec<Condition> {
        let condition = |letter: char| {
            let types = [PUBLISHED, RESOLVABLE, PROGRAMMED, RESOLVED_REFS, READY];
            let at = "urgby".find(letter.to_ascii_lowercase());
            let at = at.expect("pUblished, Resolvable, proGrammed, resolvedrefs (Backends), readY");
            let status = if letter.is_uppercase() { "True" } else { "False" };
            let last_transition_time = Time(Timestamp::UNIX_EPOCH);
            Condition {
                last_transition_time,
                message: String::new(),
                observed_generation: Some(1),
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
            let needs = Needs { instances, answers, ..Needs::default() };
            let said = statement(&conditions(letters), needs, Some(1));
            let said = said.map(|said| format!("{}: {}", said.reason, said.message));
            let fits = match (&said, expected) {
                (Some(said), Some(expected)) => said.contains(expected),
                (said, expected) => said.is_none() && expected.is_none(),
            };
            assert!(fits, "{letters} {answers} {instances}: {said:?}");
        }
    }

    #[test]
    fn backends_count_where_services_are_known() {
        let needs = Needs { instances: true, answers: true, backends: true };
        for (letters, generation, expected) in [
            ("URGB", 1, Some("Ready")),
            ("URGb", 1, Some("BackendsNotReady")),
            ("URgb", 1, Some("NotProgrammed")),
            ("urgb", 1, Some("NotResolvable")),
            // A new Route waits until its Services are known.
            ("URG", 1, Some("BackendsNotReady")),
            ("URGy", 1, Some("BackendsNotReady")),
            // A Route that was ready before the platform reported the condition stays so.
            ("URGY", 1, Some("Ready")),
            // The Services of the new generation are not known yet.
            ("URGBY", 2, None),
            ("URGBy", 2, None),
            ("URGb", 2, Some("BackendsNotReady")),
            ("UrGB", 2, Some("NotResolvable")),
        ] {
            let conditions = conditions(letters);
            let said = statement(&conditions, needs, Some(generation));
            assert_eq!(said.as_ref().map(|said| said.reason), expected, "{letters} {generation}");
            let names = ReportedNames::new(&conditions, Some(generation));
            let reported = Conditions { names, ..Conditions::default() };
            let route = RouteInfo { bound: true, conditions: reported, ..RouteInfo::default() };
            let reported = letters.find(['y', 'Y']).map(|at| letters[at..].starts_with('Y'));
            let has_changed = said.is_some_and(|said| reported != Some(said.is_true()));
            assert_eq!(is_wrong(&route, needs), has_changed, "{letters} {generation}");
            let unknown = Needs { backends: false, ..needs };
            let said = statement(&conditions, unknown, Some(generation)).map(|said| said.is_true());
            assert_eq!(said, Some(letters.starts_with("URG")), "{letters} {generation}");
        }
    }
}
