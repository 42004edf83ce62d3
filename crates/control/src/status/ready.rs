//! The condition `Ready` of a Route, which follows from others.
//!
//! It is about the generation of the Route that these are about. While one of them is about an earlier generation, `Ready` keeps
//! that one, so that nothing claims a generation before it is verified.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::table::{ConditionInputs, Missing, Required, TABLE};
use crate::world::RouteInfo;
use crate::world::condition::{ConditionUpdate, Status};
use signpost_types::v1alpha1::route::READY;

/// The state of a condition that `Ready` follows from.
#[derive(Debug, Clone, Copy)]
struct Found {
    is_true: bool,
    /// Whether it is about the current generation.
    is_current: bool,
}

/// A condition that counts, with its state.
type Counted = (&'static str, Required, Option<Found>);

fn counting(facts: ConditionInputs, find: impl Fn(&'static str) -> Option<Found>) -> Vec<Counted> {
    let rows = TABLE.into_iter().filter_map(|row| {
        let (required, found) = (row.required.filter(|required| (required.counts)(&facts))?, find(row.kind));
        (row.has)(&facts).unwrap_or(found.is_some()).then_some((row.kind, required, found))
    });
    rows.collect()
}

/// Returns whether the Route is ready, and the position of the condition that decides it: the first one that is not met, otherwise the
/// first one about an earlier generation. `None`: one of them is not known yet.
fn decide(counting: &[Counted]) -> Option<(bool, usize)> {
    let (mut earlier, mut is_known) = (None, true);
    for (at, (_, required, found)) in counting.iter().enumerate() {
        match (found, required.missing) {
            (Some(Found { is_true: false, .. }), _) | (None, Missing::Unmet) => return Some((false, at)),
            (Some(Found { is_current, .. }), _) => earlier = earlier.or((!is_current).then_some(at)),
            (None, Missing::Undecided) => return None,
            (None, Missing::Pending) => is_known = false,
        }
    }
    is_known.then_some((true, earlier.unwrap_or(0)))
}

/// Returns whether a Route's `Ready` is missing, or does not follow from its other conditions.
pub fn is_wrong(route: &RouteInfo, facts: ConditionInputs) -> bool {
    let find = |kind| {
        let reported = route.conditions.get(kind)?;
        Some(Found { is_true: reported.mark.is_true(), is_current: reported.is_current })
    };
    let counting = counting(facts, find);
    let Some((is_ready, at)) = decide(&counting).filter(|_| route.bound) else { return false };
    let is_current = counting[at].2.is_none_or(|found| found.is_current);
    route.conditions.get(READY).map(|ready| (ready.mark.is_true(), ready.is_current)) != Some((is_ready, is_current))
}

/// Returns the `Ready` condition that follows from the other ones of a Route of this generation, and the generation that it is about.
/// `None`: it is not known yet.
pub fn statement(
    conditions: &[Condition],
    facts: ConditionInputs,
    generation: Option<i64>,
) -> Option<(ConditionUpdate, Option<i64>)> {
    let condition = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    let found = |condition: &Condition| Found {
        is_true: condition.status == "True",
        is_current: condition.observed_generation == generation,
    };
    let counting = counting(facts, |kind| condition(kind).map(found));
    let (is_ready, at) = decide(&counting)?;
    let (kind, required, _) = &counting[at];
    let (reason, message) = match is_ready {
        true => {
            let met: Vec<&str> = counting.iter().map(|(_, required, _)| required.met).collect();
            ("Ready", met.join(", and "))
        }
        false => (required.reason, format!("{}: see the condition {kind}", required.unmet)),
    };
    let update = ConditionUpdate { kind: READY, status: Status::from(is_ready), reason, message };
    Some((update, condition(kind).map_or(generation, |condition| condition.observed_generation)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::route::Conditions;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use signpost_types::v1alpha1::route::{CERTIFICATE_READY, PROGRAMMED, PUBLISHED, RESOLVABLE, RESOLVED_REFS};

    /// The generation of the Route.
    const GENERATION: i64 = 7;

    /// Conditions by the first letters of their types, upper-case where they are true. A digit after a letter is its generation.
    fn conditions(letters: &str) -> Vec<Condition> {
        let generation = |at: usize| letters[at + 1..].chars().next().and_then(|next| next.to_digit(10)).map(i64::from);
        let condition = |(at, letter): (usize, char)| {
            let observed_generation = Some(generation(at).unwrap_or(GENERATION));
            let types = [PUBLISHED, RESOLVABLE, PROGRAMMED, RESOLVED_REFS, CERTIFICATE_READY, READY];
            let at = "urgbcy".find(letter.to_ascii_lowercase());
            let at = at.expect("pUblished, Resolvable, proGrammed, resolvedrefs (Backends), Certificate, readY");
            let status = if letter.is_uppercase() { "True" } else { "False" };
            let last_transition_time = Time(Timestamp::UNIX_EPOCH);
            Condition {
                last_transition_time,
                message: String::new(),
                observed_generation,
                reason: "X".to_owned(),
                status: status.to_owned(),
                type_: types[at].to_owned(),
            }
        };
        letters.char_indices().filter(|(_, letter)| letter.is_alphabetic()).map(condition).collect()
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
            let facts =
                ConditionInputs { instances: Some(instances), verifies_names: answers, ..ConditionInputs::default() };
            let said = statement(&conditions(letters), facts, Some(GENERATION));
            let said = said.map(|(said, _)| format!("{}: {}", said.reason, said.message));
            let fits = match (&said, expected) {
                (Some(said), Some(expected)) => said.contains(expected),
                (said, expected) => said.is_none() && expected.is_none(),
            };
            assert!(fits, "{letters} {answers} {instances}: {said:?}");
        }
    }

    /// Whether it is ready, and at which generation; and whether the status of a Route has it so, or lacks it.
    #[test]
    fn the_generation_that_it_is_about() {
        let instances = ConditionInputs { instances: Some(true), verifies_names: true, ..ConditionInputs::default() };
        let certificate = ConditionInputs { has_tls: true, ..instances };
        let backends = ConditionInputs { services: true, ..instances };
        let both = ConditionInputs { services: true, ..certificate };
        // The conditions of an unknown Router count if there are any.
        let unknown = ConditionInputs { instances: None, ..both };
        for (facts, letters, expected) in [
            (certificate, "RGC", Some((true, 7))),
            // `Programmed` was not verified for the present generation.
            (certificate, "RG6C", Some((true, 6))),
            (certificate, "R5G6C", Some((true, 5))),
            (certificate, "RGC6", Some((true, 6))),
            // A condition that is not met at the present generation counts immediately.
            (certificate, "RG6c", Some((false, 7))),
            (certificate, "rG6C", Some((false, 7))),
            (certificate, "Rg6C", Some((false, 6))),
            (certificate, "Rg6c", Some((false, 6))),
            (certificate, "Rg", Some((false, 7))),
            (certificate, "RC", Some((false, 7))),
            // The certificate is about to be known.
            (certificate, "RG", None),
            (certificate, "RG6", None),
            // The store is back at an earlier generation.
            (certificate, "RG9C", Some((true, 9))),
            (backends, "RGB", Some((true, 7))),
            (backends, "RGb", Some((false, 7))),
            (backends, "Rgb", Some((false, 7))),
            // The Services of the present generation are not known yet.
            (backends, "RGB6", Some((true, 6))),
            (backends, "RGb6", Some((false, 6))),
            // The Services of a new Route are about to be known.
            (backends, "RG", None),
            (both, "RGBC", Some((true, 7))),
            (both, "RGB5C6", Some((true, 5))),
            (both, "RGB6c", Some((false, 7))),
            (both, "RGC", None),
            (unknown, "R", Some((true, 7))),
            (unknown, "RGc", Some((false, 7))),
        ] {
            let found = statement(&conditions(letters), facts, Some(GENERATION));
            let found = found.map(|(said, generation)| (said.is_true(), generation.expect("it has one")));
            assert_eq!(found, expected, "{letters}");
            let Some((is_ready, generation)) = expected else { continue };
            let ready = format!("{}{generation}", if is_ready { 'Y' } else { 'y' });
            let other = format!("{}{generation}", if is_ready { 'y' } else { 'Y' });
            for (more, is_wrong) in [("", true), (&*ready, false), (&*other, true)] {
                let conditions = Conditions::of(&conditions(&format!("{letters}{more}")), Some(GENERATION));
                let route = RouteInfo { bound: true, conditions, ..RouteInfo::default() };
                assert_eq!(super::is_wrong(&route, facts), is_wrong, "{letters} {more}");
            }
        }
    }
}
