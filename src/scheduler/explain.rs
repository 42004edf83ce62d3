//! Decisions in words: the explanation kept on a RouteBinding, and the message of an unschedulable route.
//!
//! Both are bounded, however many Routers there are: the best few stand in full, and all of them in counts by reason, so that
//! no class of verdict goes unmentioned.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::decision::{Fit, Nowhere, Verdict};
use super::strategy::Pick;
use crate::api::v1alpha1::route_binding::{Explanation, RouterVerdict};

/// Routers told of in an explanation, of the 32 that the schema allows. Sixteen are about two kilobytes in each binding, and
/// a platform of a hundred thousand routes keeps them all in memory.
const VERDICTS_MAX: usize = 16;
/// Routers told of by name in a condition's message, which people read as one line.
const MESSAGE_ROUTERS_MAX: usize = 8;

/// Why the Router at `best` was chosen by `strategy`, with what there is to say of that, if anything.
pub fn placement(
    verdicts: &[Verdict<'_>],
    best: Pick,
    strategy: &str,
    remark: Option<&str>,
    revision: Option<String>,
) -> Explanation {
    let eligible = verdicts.iter().filter(|verdict| !matches!(verdict.fit, Fit::Rejected(_))).count();
    let chosen = &verdicts[best.index].router.name;
    let mut summary = format!("{strategy} chose {chosen} among {eligible} eligible of {}", routers(verdicts.len()));
    if let Some(remark) = remark {
        let _ = write!(summary, ": {remark}");
    }
    let above = verdicts.iter().filter(|verdict| matches!(verdict.fit, Fit::AboveSoftCapacity)).count();
    if above > 0 {
        let _ = write!(summary, "; above their soft capacity: {above}");
    }
    let reasons = reasons(verdicts.iter());
    if !reasons.is_empty() {
        let _ = write!(summary, "; filtered out: {reasons}");
    }
    let tie_break =
        (best.tied > 0).then(|| format!("{} with the same score; the first by name was taken", routers(best.tied + 1)));
    Explanation {
        summary,
        moved_at: None,
        considered: bounded(verdicts.len()),
        eligible: bounded(eligible),
        routers: foremost(verdicts, best.index).into_iter().map(|index| verdict(&verdicts[index])).collect(),
        tie_break,
        snapshot: revision,
    }
}

/// Those that are told of: the chosen one, the eligible ones by score, those above their soft capacity, those filtered out;
/// each by name, in which order `verdicts` are. Only so many are sorted.
fn foremost(verdicts: &[Verdict<'_>], chosen: usize) -> Vec<usize> {
    let place = |(index, verdict): (usize, &Verdict<'_>)| match verdict.fit {
        _ if index == chosen => (0_u8, Reverse(None), index),
        Fit::Eligible(score) => (1, Reverse(score), index),
        Fit::AboveSoftCapacity => (2, Reverse(None), index),
        Fit::Rejected(_) => (3, Reverse(None), index),
    };
    let mut order: Vec<_> = verdicts.iter().enumerate().map(place).collect();
    if order.len() > VERDICTS_MAX {
        order.select_nth_unstable(VERDICTS_MAX);
        order.truncate(VERDICTS_MAX);
    }
    order.sort_unstable();
    order.into_iter().map(|(.., index)| index).collect()
}

/// Why there is no Router for the route.
pub fn nowhere(verdicts: &[Verdict<'_>]) -> Nowhere {
    if verdicts.is_empty() {
        return Nowhere { reason: "NoRouter", message: "there is no Router yet".to_owned() };
    }
    let mut message = format!("none of {} can take the route", routers(verdicts.len()));
    for (index, verdict) in verdicts.iter().take(MESSAGE_ROUTERS_MAX).enumerate() {
        let Fit::Rejected(rejection) = verdict.fit else { continue };
        let separator = if index == 0 { ": " } else { "; " };
        let _ = write!(message, "{separator}{} {}", verdict.router.name, rejection.message());
    }
    if let Some(others) = verdicts.get(MESSAGE_ROUTERS_MAX..).filter(|others| !others.is_empty()) {
        let _ = write!(message, "; and {} more: {}", others.len(), reasons(others.iter()));
    }
    Nowhere { reason: "Unschedulable", message }
}

fn verdict(verdict: &Verdict<'_>) -> RouterVerdict {
    let (eligible, reason, message, score) = match verdict.fit {
        Fit::Eligible(score) => (true, None, None, score),
        Fit::AboveSoftCapacity => (true, Some("AboveSoftCapacity"), Some("others are below their soft capacity"), None),
        Fit::Rejected(rejection) => (false, Some(rejection.reason()), Some(rejection.message()), None),
    };
    RouterVerdict {
        name: verdict.router.name.clone(),
        eligible,
        reason: reason.map(str::to_owned),
        message: message.map(str::to_owned),
        score,
        routes: Some(verdict.shard.routes),
    }
}

/// How many were rejected for which reason: `2 Cordoned, 1 Draining`.
fn reasons<'a>(verdicts: impl Iterator<Item = &'a Verdict<'a>>) -> String {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for verdict in verdicts {
        if let Fit::Rejected(rejection) = verdict.fit {
            *counts.entry(rejection.reason()).or_default() += 1;
        }
    }
    let texts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    texts.join(", ")
}

fn routers(count: usize) -> String {
    if count == 1 { "1 Router".to_owned() } else { format!("{count} Routers") }
}

fn bounded(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
