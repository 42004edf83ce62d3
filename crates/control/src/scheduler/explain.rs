//! Decisions in words: the explanation kept on a RouteBinding, and the message of an unschedulable route.
//!
//! Both are bounded, however many Routers there are: the best few stand in full, and all of them in counts by reason, so that
//! no class of verdict goes unmentioned. Where not all stand in full, the names of each class follow in short; and where these do
//! not fit, a map in which each Router's class is found by its name ([`class_map`](super::class_map)).

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::class_map::{CLASSES_MAX, ClassMap};
use super::decision::{Fit, Nowhere, Verdict};
use super::filter::{Rejection, Wish};
use super::snapshot::Snapshot;
use super::strategy::Pick;
use signpost_api::text::cut;
use signpost_api::v1alpha1::route_binding::{Explanation, RouterVerdict, SUMMARY_OCTETS_MAX, VerdictClass};

/// Routers told of in an explanation, of the 32 that the schema allows. Sixteen are about two kilobytes in each binding, and
/// a platform of a hundred thousand routes keeps them all in memory.
const VERDICTS_MAX: usize = 16;
/// Octets that the names of all classes may take. What many Routers have in common they often have in a row, so that this tells of
/// a thousand as a rule; and it is no more than half of what those told in full take. Where it does not, a map tells of all.
const CLASS_OCTETS_MAX: usize = 1024;
/// Reason of those that could take the route, and are left out as long as others have not reached their soft capacity.
pub const ABOVE_SOFT_CAPACITY: &str = "AboveSoftCapacity";
/// Routers told of by name in a condition's message, which people read as one line.
const MESSAGE_ROUTERS_MAX: usize = 8;

/// Why the Router at `best` was chosen by `strategy`, with what there is to say of that, if anything. The verdicts are those of the
/// snapshot's Routers, in their order.
pub fn placement(
    wish: &Wish<'_>,
    verdicts: &[Verdict<'_>],
    best: Pick,
    strategy: &str,
    remark: Option<&str>,
    snapshot: &Snapshot,
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
    let (classes, class_map) =
        if verdicts.len() > VERDICTS_MAX { classes(verdicts, snapshot) } else { (Vec::new(), None) };
    Explanation {
        summary: cut(&summary, SUMMARY_OCTETS_MAX).to_owned(),
        moved_at: None,
        considered: bounded(verdicts.len()),
        eligible: bounded(eligible),
        routers: foremost(verdicts, best.index).into_iter().map(|index| verdict(wish, &verdicts[index])).collect(),
        classes,
        class_map,
        tie_break,
        snapshot: snapshot.revision(),
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
pub fn nowhere(wish: &Wish<'_>, verdicts: &[Verdict<'_>]) -> Nowhere {
    if verdicts.is_empty() {
        return Nowhere { reason: "NoRouter", message: "there is no Router yet".to_owned() };
    }
    let mut message = format!("none of {} can take the route", routers(verdicts.len()));
    for (index, verdict) in verdicts.iter().take(MESSAGE_ROUTERS_MAX).enumerate() {
        let Fit::Rejected(rejection) = verdict.fit else { continue };
        let separator = if index == 0 { ": " } else { "; " };
        let _ = write!(message, "{separator}{} {}", verdict.router.name, rejection.told(wish, verdict.router));
    }
    if let Some(others) = verdicts.get(MESSAGE_ROUTERS_MAX..).filter(|others| !others.is_empty()) {
        let _ = write!(message, "; and {} more: {}", others.len(), reasons(others.iter()));
    }
    Nowhere { reason: "Unschedulable", message }
}

fn verdict(wish: &Wish<'_>, verdict: &Verdict<'_>) -> RouterVerdict {
    let (eligible, reason, message, score) = match verdict.fit {
        Fit::Eligible(score) => (true, None, None, score),
        Fit::AboveSoftCapacity => {
            (true, Some(ABOVE_SOFT_CAPACITY), Some("others are below their soft capacity".into()), None)
        }
        Fit::Rejected(rejection) => (false, Some(rejection.reason()), Some(rejection.told(wish, verdict.router)), None),
    };
    RouterVerdict {
        name: verdict.router.name.clone(),
        eligible,
        reason: reason.map(str::to_owned),
        message: message.map(Cow::into_owned),
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
    /// How long the text is.
    fn octets(&self) -> usize {
        if self.count == 1 { self.first.len() } else { self.first.len() + "..".len() + self.last.len() }
    }

    fn text(&self) -> String {
        match self.count {
            1 => self.first.to_owned(),
            _ => format!("{}..{}", self.first, self.last),
        }
    }
}

/// How many classes there may be: one for each rejection, and one for those above their soft capacity.
const CLASSES: usize = Rejection::ALL.len() + 1;
const _: () = assert!(CLASSES < CLASSES_MAX as usize, "a map has room for all of them, and for those of none");

/// The class of a Router that was filtered out or not preferred, below [`CLASSES`].
fn class(fit: Fit) -> Option<usize> {
    match fit {
        Fit::Eligible(_) => None,
        Fit::AboveSoftCapacity => Some(Rejection::ALL.len()),
        Fit::Rejected(rejection) => Some(rejection as usize),
    }
}

/// Which Routers, which are in the order of their names, were filtered out or not preferred, by reason. The classes that take the
/// least room are told first, since what is rare says more. If there is not room for all of them, the others stand in the map.
fn classes(verdicts: &[Verdict<'_>], snapshot: &Snapshot) -> (Vec<VerdictClass>, Option<String>) {
    let mut runs: [Vec<Run<'_>>; CLASSES] = Default::default();
    let mut before = None;
    for verdict in verdicts {
        let (now, name) = (class(verdict.fit), verdict.router.name.as_str());
        if let Some(runs) = now.and_then(|class| runs.get_mut(class)) {
            match runs.last_mut().filter(|_| before == now) {
                Some(run) => (run.last, run.count) = (name, run.count + 1),
                None => runs.push(Run { first: name, last: name, count: 1 }),
            }
        }
        before = now;
    }
    let octets = |runs: &[Run<'_>]| runs.iter().map(Run::octets).sum::<usize>();
    let reason = |class: usize| Rejection::ALL.get(class).map_or(ABOVE_SOFT_CAPACITY, |rejection| rejection.reason());
    let found = runs.iter().enumerate().filter(|(_, runs)| !runs.is_empty());
    let mut by_size: Vec<_> = found.map(|(class, runs)| (octets(runs), reason(class), class, runs)).collect();
    by_size.sort_unstable_by_key(|(octets, reason, ..)| (*octets, *reason));
    let all_fit = by_size.iter().map(|(octets, ..)| octets).sum::<usize>() <= CLASS_OCTETS_MAX;
    let layout = if all_fit { None } else { snapshot.layout().filter(|layout| layout.names() == verdicts.len()) };
    let mut room = CLASS_OCTETS_MAX;
    let mut classes: Vec<(usize, VerdictClass)> = by_size
        .into_iter()
        .map(|(octets, reason, class, runs)| {
            // With a map a beginning of the names would tell nothing that it does not.
            if layout.is_some() && octets > room {
                room = 0;
            }
            let (mut count, mut told, mut routers) = (0, 0, Vec::new());
            for run in runs {
                count += run.count;
                match room.checked_sub(run.octets()) {
                    Some(left) => {
                        (room, told) = (left, told + run.count);
                        routers.push(run.text());
                    }
                    // What is told is the beginning, in order.
                    None => room = 0,
                }
            }
            let untold = Some(bounded(count - told)).filter(|untold| *untold > 0);
            (class, VerdictClass { reason: reason.to_owned(), count: bounded(count), routers, untold })
        })
        .collect();
    classes.sort_by(|(_, a), (_, b)| a.reason.cmp(&b.reason));
    let map = layout.map(|layout| {
        let mut numbers = [0; CLASSES];
        for ((class, _), number) in classes.iter().zip(1..) {
            numbers[*class] = number;
        }
        layout.map(|index| class(verdicts[index].fit).map_or(0, |class| numbers[class]))
    });
    (classes.into_iter().map(|(_, class)| class).collect(), map)
}

/// What an explanation says of a Router that is not told in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InShort<'a> {
    /// It was left out for this reason.
    LeftOut(&'a str),
    /// It could take the route, and others had better scores.
    Eligible,
    /// It was none of those that were looked at.
    NotSeen,
    /// Nothing: it is one of those for which there was no room.
    Untold,
}

/// What `explanation` says of the Router `name`, which is not among those told in full.
pub fn in_short<'a>(explanation: &'a Explanation, name: &str) -> InShort<'a> {
    let is_in = |text: &String| match text.split_once("..") {
        Some((first, last)) => (first..=last).contains(&name),
        None => text == name,
    };
    if let Some(map) = explanation.class_map.as_deref().and_then(ClassMap::read) {
        let class = |number: usize| explanation.classes.get(number).map(|class| class.reason.as_str());
        return match map.class(name).map(usize::from) {
            None => InShort::NotSeen,
            Some(0) => InShort::Eligible,
            Some(number) => class(number - 1).map_or(InShort::NotSeen, InShort::LeftOut),
        };
    }
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
    use crate::client::reflector::ObjectKey;
    use crate::scheduler::filter::tests::router;
    use crate::world::{NamespaceInfo, RouteInfo};
    use serde_json::json;

    /// Explains a choice of the first among so many Routers, of which `name` says what they are called and `fit` how they are.
    fn explained_of(
        count: usize,
        name: impl Fn(usize) -> String,
        fit: impl Fn(usize) -> Fit,
    ) -> (Vec<String>, Explanation) {
        let mut snapshot = Snapshot::default();
        let names: Vec<String> = (0..count).map(name).collect();
        names.iter().for_each(|name| snapshot.set_router(router(name, json!({}))));
        let (route, namespace) = (RouteInfo::default(), NamespaceInfo::default());
        let key = ObjectKey::namespaced("ns", "app");
        let wish = Wish { key: &key, route: &route, namespace: &namespace, platform_host: None, leaving: None };
        let verdict = |(number, (router, shard))| Verdict { router, shard, fit: fit(number) };
        let verdicts: Vec<Verdict<'_>> = snapshot.routers().enumerate().map(verdict).collect();
        let explanation = placement(&wish, &verdicts, Pick { index: 0, tied: 0 }, "weighted", None, &snapshot);
        (names, explanation)
    }

    fn explained(count: usize, fit: impl Fn(usize) -> Fit) -> (Vec<String>, Explanation) {
        explained_of(count, |number| format!("shard{number:04}"), fit)
    }

    /// What an explanation is to say of a Router that was found to be so.
    fn said_of(fit: Fit) -> InShort<'static> {
        match fit {
            Fit::Eligible(_) => InShort::Eligible,
            Fit::AboveSoftCapacity => InShort::LeftOut(ABOVE_SOFT_CAPACITY),
            Fit::Rejected(rejection) => InShort::LeftOut(rejection.reason()),
        }
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
        assert_eq!(explanation.class_map, None, "the names fit");
        for (number, name) in names.iter().enumerate() {
            assert_eq!(in_short(&explanation, name), said_of(fit(number)), "{name}");
        }
    }

    /// A thousand Routers of long names, whose neighbours are never of one class, of as many classes as there are.
    #[test]
    fn where_the_names_do_not_fit_a_map_tells_of_each() {
        let kinds: Vec<Fit> = Rejection::ALL.into_iter().map(Fit::Rejected).collect();
        let kinds = [kinds, vec![Fit::AboveSoftCapacity, Fit::Eligible(Some(0))]].concat();
        for count in [5, kinds.len()] {
            let fit = |number: usize| match number {
                0 => Fit::Eligible(Some(1)),
                700 => Fit::Rejected(Rejection::Deleting),
                _ => kinds[kinds.len() - 1 - number % count],
            };
            let long = |number: usize| format!("r{number:04}-{}", "a".repeat(40));
            let (names, explanation) = explained_of(1000, long, fit);
            let map = explanation.class_map.as_ref().expect("the names do not fit");
            assert!(map.len() <= 1700, "{}", map.len());
            let size = serde_json::to_string(&explanation).expect("JSON").len();
            assert!(size < 7 * 1024, "{size}");
            for (number, name) in names.iter().enumerate() {
                assert_eq!(in_short(&explanation, name), said_of(fit(number)), "{name}");
            }
            let rare = explanation.classes.iter().find(|class| class.reason == "Deleting").expect("it is told");
            let told = if count == 5 { (1, 1, None) } else { (67, 0, Some(67)) };
            assert_eq!((rare.count, rare.routers.len(), rare.untold), told, "the rare by their names, too");
            let strangers = (0..1000).map(|number| format!("stranger{number}"));
            let unseen = strangers.filter(|name| in_short(&explanation, name) == InShort::NotSeen).count();
            assert!(unseen > 900, "{unseen}");
        }
    }

    #[test]
    fn rejections_are_numbered_in_their_order() {
        for (number, rejection) in Rejection::ALL.into_iter().enumerate() {
            assert_eq!(class(Fit::Rejected(rejection)), Some(number));
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let fit = |number: usize| match number {
            40 => Fit::Rejected(Rejection::Draining),
            _ if number % 2 == 1 => Fit::Rejected(Rejection::Cordoned),
            _ => Fit::Eligible(Some(0)),
        };
        // More than a map is made for.
        let (names, explanation) = explained(2000, fit);
        assert_eq!(explanation.class_map, None);
        let [cordoned, draining] = &explanation.classes[..] else { panic!("{:?}", explanation.classes) };
        let room = cordoned.routers.iter().chain(&draining.routers).map(String::len).sum::<usize>();
        assert!(room <= CLASS_OCTETS_MAX && room > CLASS_OCTETS_MAX - 10, "{room}");
        assert_eq!(
            (draining.routers.as_slice(), draining.untold),
            (&["shard0040".to_owned()][..], None),
            "the rare first"
        );
        let told = u32::try_from(cordoned.routers.len()).expect("a few");
        assert_eq!((cordoned.count, cordoned.untold), (1000, Some(1000 - told)));
        assert_eq!(in_short(&explanation, &names[1]), InShort::LeftOut("Cordoned"));
        assert_eq!(in_short(&explanation, &names[999]), InShort::Untold);
        assert_eq!(in_short(&explanation, &names[998]), InShort::Untold);
        // Those that are all told in full need none.
        assert!(explained(VERDICTS_MAX, fit).1.classes.is_empty());
        // What was kept before there were classes, or maps, is not taken for whole, nor what is no map.
        let before = Explanation { classes: Vec::new(), ..explanation.clone() };
        assert_eq!(in_short(&before, &names[998]), InShort::Untold);
        let broken = Explanation { class_map: Some("no map".to_owned()), ..explanation };
        assert_eq!(in_short(&broken, &names[998]), InShort::Untold);
    }
}
