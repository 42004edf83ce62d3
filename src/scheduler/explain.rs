//! Decisions in words: the explanation kept on a RouteBinding, and the message of an unschedulable route.
//!
//! Both are bounded, however many Routers there are: the best few stand in full, and all of them in counts by reason, so that
//! no class of verdict goes unmentioned. Where not all stand in full, the names of each class follow in short.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::decision::{Fit, Nowhere, Verdict};
use super::strategy::Pick;
use crate::api::v1alpha1::route_binding::{Explanation, RouterVerdict, VerdictClass};

/// Routers told of in an explanation, of the 32 that the schema allows. Sixteen are about two kilobytes in each binding, and
/// a platform of a hundred thousand routes keeps them all in memory.
const VERDICTS_MAX: usize = 16;
/// Octets that the names of all classes may take. What many Routers have in common they often have in a row, so that this tells of
/// a thousand as a rule; and it is no more than half of what those told in full take.
const CLASS_OCTETS_MAX: usize = 1024;
/// Reason of those that could take the route, and are left out as long as others have not reached their soft capacity.
pub const ABOVE_SOFT_CAPACITY: &str = "AboveSoftCapacity";
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
    let mut order: Vec<usize> = (0..verdicts.len()).collect();
    // The chosen one, the eligible ones by score, those above their soft capacity, those filtered out; each by name.
    order.sort_by_key(|index| match verdicts[*index].fit {
        _ if *index == best.index => (0, Reverse(None)),
        Fit::Eligible(score) => (1, Reverse(score)),
        Fit::AboveSoftCapacity => (2, Reverse(None)),
        Fit::Rejected(_) => (3, Reverse(None)),
    });
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
        routers: order.into_iter().take(VERDICTS_MAX).map(|index| verdict(&verdicts[index])).collect(),
        classes: if verdicts.len() > VERDICTS_MAX { classes(verdicts) } else { Vec::new() },
        tie_break,
        snapshot: revision,
    }
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
        Fit::AboveSoftCapacity => (true, Some(ABOVE_SOFT_CAPACITY), Some("others are below their soft capacity"), None),
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

/// Routers of one class that follow one another.
struct Run<'a> {
    first: &'a str,
    last: &'a str,
    count: usize,
}

impl Run<'_> {
    fn text(&self) -> String {
        match self.count {
            1 => self.first.to_owned(),
            _ => format!("{}..{}", self.first, self.last),
        }
    }
}

/// Which Routers, which are in the order of their names, were filtered out or not preferred, by reason. The classes that take the
/// least room are told first, since what is rare says more.
fn classes(verdicts: &[Verdict<'_>]) -> Vec<VerdictClass> {
    let class = |verdict: &Verdict<'_>| match verdict.fit {
        Fit::Eligible(_) => None,
        Fit::AboveSoftCapacity => Some(ABOVE_SOFT_CAPACITY),
        Fit::Rejected(rejection) => Some(rejection.reason()),
    };
    let mut runs: BTreeMap<&'static str, Vec<Run<'_>>> = BTreeMap::new();
    let mut before = None;
    for verdict in verdicts {
        let (now, name) = (class(verdict), verdict.router.name.as_str());
        if let Some(reason) = now {
            let runs = runs.entry(reason).or_default();
            match runs.last_mut().filter(|_| before == now) {
                Some(run) => (run.last, run.count) = (name, run.count + 1),
                None => runs.push(Run { first: name, last: name, count: 1 }),
            }
        }
        before = now;
    }
    let octets = |runs: &[Run<'_>]| runs.iter().map(|run| run.first.len() + run.last.len()).sum::<usize>();
    let mut by_size: Vec<_> = runs.into_iter().collect();
    by_size.sort_by_key(|(reason, runs)| (octets(runs), *reason));
    let mut room = CLASS_OCTETS_MAX;
    let mut classes: Vec<VerdictClass> = by_size
        .into_iter()
        .map(|(reason, runs)| {
            let (mut count, mut told, mut routers) = (0, 0, Vec::new());
            for run in runs {
                count += run.count;
                let text = run.text();
                match room.checked_sub(text.len()) {
                    Some(left) => {
                        (room, told) = (left, told + run.count);
                        routers.push(text);
                    }
                    // What is told is the beginning, in order.
                    None => room = 0,
                }
            }
            let untold = Some(bounded(count - told)).filter(|untold| *untold > 0);
            VerdictClass { reason: reason.to_owned(), count: bounded(count), routers, untold }
        })
        .collect();
    classes.sort_by(|a, b| a.reason.cmp(&b.reason));
    classes
}

/// What an explanation says of a Router that is not told in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InShort<'a> {
    /// It was left out for this reason.
    LeftOut(&'a str),
    /// It could take the route, and others had better scores.
    Eligible,
    /// Nothing: it is one of those for which there was no room.
    Untold,
}

/// What `explanation` says of the Router `name`, which was looked at and is not among those told in full.
pub fn in_short<'a>(explanation: &'a Explanation, name: &str) -> InShort<'a> {
    let is_in = |text: &String| match text.split_once("..") {
        Some((first, last)) => (first..=last).contains(&name),
        None => text == name,
    };
    let class = explanation.classes.iter().find(|class| class.routers.iter().any(is_in));
    let rejected = explanation.classes.iter().filter(|class| class.reason != ABOVE_SOFT_CAPACITY);
    // An explanation of before there were classes tells of none.
    let is_whole = rejected.map(|class| class.count).sum::<u32>()
        == explanation.considered.saturating_sub(explanation.eligible)
        && explanation.classes.iter().all(|class| class.untold.is_none());
    match class {
        Some(class) => InShort::LeftOut(&class.reason),
        None if is_whole => InShort::Eligible,
        None => InShort::Untold,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::facts::RouterFacts;
    use crate::scheduler::filter::Rejection;
    use crate::scheduler::filter::tests::router;
    use crate::scheduler::snapshot::Shard;
    use serde_json::json;

    /// Explains a choice of the first among so many Routers, of which `fit` says how they are.
    fn explained(count: usize, fit: impl Fn(usize) -> Fit) -> (Vec<String>, Explanation) {
        let routers: Vec<RouterFacts> =
            (0..count).map(|number| router(&format!("shard{number:04}"), json!({}))).collect();
        let shard = Shard::default();
        let verdicts: Vec<Verdict<'_>> = routers
            .iter()
            .enumerate()
            .map(|(number, router)| Verdict { router, shard: &shard, fit: fit(number) })
            .collect();
        let explanation = placement(&verdicts, Pick { index: 0, tied: 0 }, "weighted", None, None);
        (routers.into_iter().map(|router| router.name).collect(), explanation)
    }

    #[test]
    fn of_a_thousand_routers_each_ones_class_is_known() {
        let fit = |number: usize| match number {
            0 => Fit::Eligible(Some(1)),
            _ if number % 100 == 7 => Fit::Rejected(Rejection::Cordoned),
            300..350 => Fit::AboveSoftCapacity,
            500..900 => Fit::Rejected(Rejection::RouteSelectorMismatch),
            _ => Fit::Eligible(Some(0)),
        };
        let (names, explanation) = explained(1000, fit);
        let size = serde_json::to_string(&explanation).expect("it is JSON").len();
        assert!(size < 4096, "{size}");
        assert_eq!(explanation.routers.len(), VERDICTS_MAX);
        let classes: Vec<_> = explanation.classes.iter().map(|class| (class.reason.as_str(), class.count)).collect();
        assert_eq!(classes, [("AboveSoftCapacity", 49), ("Cordoned", 10), ("RouteSelectorMismatch", 396)]);
        assert_eq!(explanation.classes[0].routers, ["shard0300..shard0306", "shard0308..shard0349"]);
        for (number, name) in names.iter().enumerate() {
            let expected = match fit(number) {
                Fit::Eligible(_) => InShort::Eligible,
                Fit::AboveSoftCapacity => InShort::LeftOut(ABOVE_SOFT_CAPACITY),
                Fit::Rejected(rejection) => InShort::LeftOut(rejection.reason()),
            };
            assert_eq!(in_short(&explanation, name), expected, "{name}");
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let fit = |number: usize| match number {
            40 => Fit::Rejected(Rejection::Draining),
            _ if number % 2 == 1 => Fit::Rejected(Rejection::Cordoned),
            _ => Fit::Eligible(Some(0)),
        };
        let (names, explanation) = explained(1000, fit);
        let [cordoned, draining] = &explanation.classes[..] else { panic!("{:?}", explanation.classes) };
        let room = cordoned.routers.iter().chain(&draining.routers).map(String::len).sum::<usize>();
        assert!(room <= CLASS_OCTETS_MAX && room > CLASS_OCTETS_MAX - 10, "{room}");
        assert_eq!(
            (draining.routers.as_slice(), draining.untold),
            (&["shard0040".to_owned()][..], None),
            "the rare first"
        );
        let told = u32::try_from(cordoned.routers.len()).expect("a few");
        assert_eq!((cordoned.count, cordoned.untold), (500, Some(500 - told)));
        assert_eq!(in_short(&explanation, &names[1]), InShort::LeftOut("Cordoned"));
        assert_eq!(in_short(&explanation, &names[999]), InShort::Untold);
        assert_eq!(in_short(&explanation, &names[998]), InShort::Untold);
        // Those that are all told in full need none.
        assert!(explained(VERDICTS_MAX, fit).1.classes.is_empty());
        // What was kept before there were classes is not taken for whole.
        let before = Explanation { classes: Vec::new(), ..explanation };
        assert_eq!(in_short(&before, &names[998]), InShort::Untold);
    }
}
