//! Texts of decisions: the explanation stored in a RouteBinding, and the message of an unschedulable Route.
//!
//! Both are bounded for any number of Routers: the first few are listed with their results, the others are counted by reason.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt::Write as _;

use super::filter::{FilterResult, Fit, FitError, PlacementRequest};
use super::strategy::Pick;
use signpost_types::text::cut;
use signpost_types::v1alpha1::route_binding::{Explanation, ReasonCount, RouterVerdict, SUMMARY_OCTETS_MAX};

/// The maximum number of Routers that an explanation lists, of the 32 that the schema allows. Sixteen are about two kilobytes in
/// each binding, and the API server of a platform with 100,000 Routes holds all of them in memory.
const VERDICTS_MAX: usize = 16;
/// The most Routers named in a condition's message, which is displayed as one line.
const MESSAGE_ROUTERS_MAX: usize = 8;

/// Returns the explanation why `strategy` chose the Router at `best`, with an optional note.
pub fn placement(
    request: &PlacementRequest<'_>,
    verdicts: &[FilterResult<'_>],
    best: Pick,
    strategy: &str,
    remark: Option<&str>,
) -> Explanation {
    let eligible = verdicts.iter().filter(|verdict| !matches!(verdict.fit, Fit::Rejected(_))).count();
    let chosen = &verdicts[best.index].router.name;
    let mut summary =
        format!("strategy {strategy} selected {chosen}: {eligible} of {} feasible", routers(verdicts.len()));
    if let Some(remark) = remark {
        let _ = write!(summary, "; {remark}");
    }
    if best.tied > 0 {
        let _ = write!(summary, "; {} have the same score, and the first by name was selected", routers(best.tied + 1));
    }
    let above = verdicts.iter().filter(|verdict| verdict.fit == Fit::AboveSoftCapacity).count();
    if above > 0 {
        let _ = write!(summary, "; above their soft capacity: {above}");
    }
    let rejected = counts(verdicts.iter().filter(|verdict| matches!(verdict.fit, Fit::Rejected(_))));
    if !rejected.is_empty() {
        let _ = write!(summary, "; filtered out: {}", enumerate(&rejected));
    }
    let (listed, omitted) = rank(verdicts, best.index);
    Explanation {
        summary: cut(&summary, SUMMARY_OCTETS_MAX).to_owned(),
        moved_at: None,
        considered: bounded(verdicts.len()),
        eligible: bounded(eligible),
        routers: listed.into_iter().map(|index| verdict(request, &verdicts[index])).collect(),
        omitted: counts(omitted.into_iter().map(|index| &verdicts[index])),
    }
}

/// Returns the explanation of a Router that a source's router decided.
pub fn adopted(request: &PlacementRequest<'_>, decided: &FilterResult<'_>, summary: &str) -> Explanation {
    Explanation {
        summary: cut(summary, SUMMARY_OCTETS_MAX).to_owned(),
        considered: 1,
        eligible: 1,
        routers: vec![verdict(request, decided)],
        ..Explanation::default()
    }
}

/// Returns the Routers that the explanation lists, in this order: the chosen one, the eligible ones by score, those above their
/// soft capacity, those that were filtered out; each group by name, the order of `verdicts`. The second list holds the others,
/// unsorted.
fn rank(verdicts: &[FilterResult<'_>], chosen: usize) -> (Vec<usize>, Vec<usize>) {
    let place = |(index, verdict): (usize, &FilterResult<'_>)| match verdict.fit {
        _ if index == chosen => (0_u8, Reverse(None), index),
        Fit::Eligible(score) => (1, Reverse(score), index),
        Fit::AboveSoftCapacity => (2, Reverse(None), index),
        Fit::Rejected(_) => (3, Reverse(None), index),
    };
    let mut listed: Vec<_> = verdicts.iter().enumerate().map(place).collect();
    let mut omitted = Vec::new();
    if listed.len() > VERDICTS_MAX {
        listed.select_nth_unstable(VERDICTS_MAX);
        omitted = listed.split_off(VERDICTS_MAX);
    }
    listed.sort_unstable();
    let indices = |places: Vec<(_, _, usize)>| places.into_iter().map(|(.., index)| index).collect();
    (indices(listed), indices(omitted))
}

/// Returns the reason why no Router fits the route.
pub fn no_fit(request: &PlacementRequest<'_>, verdicts: &[FilterResult<'_>]) -> FitError {
    if verdicts.is_empty() {
        return FitError { reason: "NoRouter", message: "there are no Routers".to_owned() };
    }
    let (named, others) = verdicts.split_at(verdicts.len().min(MESSAGE_ROUTERS_MAX));
    let named: Vec<String> = named
        .iter()
        .map(|verdict| format!("{} {}", verdict.router.name, verdict.message(request).unwrap_or_default()))
        .collect();
    let mut message = format!("0/{} Routers are available: {}", verdicts.len(), named.join("; "));
    if !others.is_empty() {
        let _ = write!(message, "; and {} more: {}", others.len(), enumerate(&counts(others.iter())));
    }
    FitError { reason: "Unschedulable", message }
}

/// Returns a verdict as an explanation lists it.
pub fn verdict(request: &PlacementRequest<'_>, verdict: &FilterResult<'_>) -> RouterVerdict {
    let score = if let Fit::Eligible(score) = verdict.fit { score } else { None };
    let reason = Some(verdict.reason()).filter(|_| !matches!(verdict.fit, Fit::Eligible(_)));
    RouterVerdict {
        name: verdict.router.name.clone(),
        eligible: !matches!(verdict.fit, Fit::Rejected(_)),
        reason: reason.map(str::to_owned),
        message: verdict.message(request).map(Cow::into_owned),
        score,
        routes: Some(verdict.shard.routes),
    }
}

/// Counts verdicts by reason, in the order of the reasons.
fn counts<'a>(verdicts: impl Iterator<Item = &'a FilterResult<'a>>) -> Vec<ReasonCount> {
    // There are few reasons, and a thousand Routers for each decision: a search among the reasons costs less than a map.
    let mut counts: Vec<(&'static str, usize)> = Vec::new();
    for reason in verdicts.map(FilterResult::reason) {
        match counts.iter_mut().find(|(counted, _)| *counted == reason) {
            Some((_, count)) => *count += 1,
            None => counts.push((reason, 1)),
        }
    }
    counts.sort_unstable();
    let count = |(reason, count): (&str, usize)| ReasonCount { reason: reason.to_owned(), count: bounded(count) };
    counts.into_iter().map(count).collect()
}

/// Returns the counts as text, such as `2 Cordoned, 1 Draining`.
pub fn enumerate(counts: &[ReasonCount]) -> String {
    let texts: Vec<String> = counts.iter().map(|ReasonCount { reason, count }| format!("{count} {reason}")).collect();
    texts.join(", ")
}

fn routers(count: usize) -> String {
    if count == 1 { "1 Router".to_owned() } else { format!("{count} Routers") }
}

fn bounded(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
