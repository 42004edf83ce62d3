//! What is told of one route, and how it is written.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;

use super::Now;
use super::others::Others;
use crate::cli::style::{Painter, Style};
use crate::cli::table::{Cell, Properties, Table};
use signpost_api::names::{alias_zone, domain_of_alias};
use signpost_api::v1alpha1::route::{AssignedName, MOVE, MOVE_ANNOTATION, NameKind, Phase, Route, Trail};
use signpost_api::v1alpha1::route_binding::{Explanation, RouteBinding, RouterVerdict, TrailUse};
use signpost_control::scheduler::explain::{ABOVE_SOFT_CAPACITY, InShort, in_short};

/// What is told of one route. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RouteExplanation {
    namespace: String,
    name: String,
    uid: String,
    phase: Phase,
    placement: Option<Placement>,
    conditions: Vec<Condition>,
    /// Names of the route at which something else is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hidden: Vec<Hidden>,
    why_not: Option<WhyNot>,
}

/// A name of the route at which something else is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hidden {
    name: String,
    /// In words that follow the name.
    by: String,
}

/// Where the route is, as its binding says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Placement {
    router: String,
    dns: String,
    strategy: String,
    placed_at: Option<Time>,
    names: Vec<AssignedName>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trails: Vec<Trail>,
    /// When former names were asked for last; those that were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trail_uses: Vec<TrailUse>,
    explanation: Option<Explanation>,
}

/// Why the route is not on a certain Router.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WhyNot {
    router: String,
    /// In a sentence.
    answer: String,
    /// The verdict when the route was placed, if it was kept.
    when_placed: Option<RouterVerdict>,
    /// How things are now; absent if the Router is gone.
    now: Option<Now>,
}

impl Placement {
    /// Who made it, and how, in words that follow "but".
    fn choice(&self) -> String {
        match self.strategy.as_str() {
            MOVE => format!("{MOVE_ANNOTATION} named {}", self.router),
            strategy => format!("{strategy} chose {}", self.router),
        }
    }
}

impl RouteExplanation {
    /// What is told of a Route with this binding.
    pub(super) fn new(route: &Route, binding: Option<RouteBinding>) -> RouteExplanation {
        let metadata = &route.metadata;
        let status = route.status.clone().unwrap_or_default();
        let placement = binding.map(|binding| Placement {
            placed_at: placed_at(&binding),
            router: binding.spec.router,
            dns: binding.spec.dns,
            strategy: binding.spec.strategy,
            names: binding.spec.names,
            trails: binding.spec.trails,
            trail_uses: binding.status.unwrap_or_default().trails,
            explanation: binding.spec.explanation,
        });
        RouteExplanation {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            phase: status.phase,
            placement,
            conditions: status.conditions,
            hidden: Vec::new(),
            why_not: None,
        }
    }

    /// Adds which names of the route are something else's.
    pub(super) fn tell_others(&mut self, others: &Others) {
        let Some(placement) = &self.placement else { return };
        let hidden = placement.names.iter().filter_map(|name| {
            let zone = match name.kind {
                NameKind::System => placement.dns.clone(),
                NameKind::Alias => alias_zone(domain_of_alias(&name.name)?),
                NameKind::Custom => return None,
            };
            Some(Hidden { by: others.at(&name.name, &zone)?, name: name.name.clone() })
        });
        self.hidden = hidden.collect();
    }

    /// The Router that the route is on, and the strategy that chose it.
    pub(super) fn placed(&self) -> Option<(&str, &str)> {
        self.placement.as_ref().map(|placement| (placement.router.as_str(), placement.strategy.as_str()))
    }

    /// Whether the explanation that was kept speaks of the Router.
    pub(super) fn tells_of(&self, router: &str) -> bool {
        self.verdict(router).is_some() || self.placement.as_ref().is_some_and(|placement| placement.router == router)
    }

    fn verdict(&self, router: &str) -> Option<&RouterVerdict> {
        let explanation = self.placement.as_ref()?.explanation.as_ref()?;
        explanation.routers.iter().find(|verdict| verdict.name == router)
    }

    /// Adds why the route is not on this Router, which was made at `created`, if it is still there.
    pub(super) fn answer_why_not(&mut self, router: &str, created: Option<Time>, now: Option<Now>) {
        let answer = match &self.placement {
            None => match &now {
                Some(now) if now.eligible => format!(
                    "{router} could take the route now; what keeps the route from being placed is said by its conditions"
                ),
                Some(now) => format!("{router} {}", now.message),
                None => format!("{router} is gone"),
            },
            Some(placement) if placement.router == router => format!("the route is on {router}"),
            Some(placement) => {
                let then = self.when_placed(placement, router, created);
                match &now {
                    None => format!("{then}; by now it is gone"),
                    Some(now) if now.eligible => {
                        format!("{then}; by now it could take the route, but a placed route is not moved")
                    }
                    Some(now) => format!("{then}; as things are now, it {}", now.message),
                }
            }
        };
        let when_placed = self.verdict(router).cloned();
        self.why_not = Some(WhyNot { router: router.to_owned(), answer, when_placed, now });
    }

    /// What there was to say of the Router when the route was placed.
    fn when_placed(&self, placement: &Placement, router: &str, created: Option<Time>) -> String {
        let Some(explanation) = &placement.explanation else {
            return "whoever placed the route kept no explanation".to_owned();
        };
        let score_of = |name: &str| self.verdict(name).and_then(|verdict| verdict.score);
        let above =
            "could have taken the route, but had reached its soft capacity, and others are below their soft capacity";
        match self.verdict(router) {
            Some(verdict) if verdict.eligible => match (&verdict.message, verdict.score, score_of(&placement.router)) {
                (Some(_), ..) => format!("{router} {above}"),
                (None, Some(own), Some(best)) if own == best => format!(
                    "{router} was as good as {}, by the score {own}; a tie goes to the first by name",
                    placement.router
                ),
                (None, Some(own), Some(best)) if own < best => format!(
                    "{router} could have taken the route, but {} chose {}, whose score {best} was above {own}",
                    placement.strategy, placement.router
                ),
                _ => format!("{router} could have taken the route, but {}", placement.choice()),
            },
            Some(verdict) => {
                let reason = verdict.reason.as_deref().unwrap_or("it was filtered out");
                format!("{router} could not take the route when it was placed ({reason})")
            }
            None if created.is_some_and(|made| placement.placed_at.as_ref().is_some_and(|at| made.0 > at.0)) => {
                format!("{router} was not there yet when the route was placed")
            }
            None => match in_short(explanation, router) {
                InShort::LeftOut(ABOVE_SOFT_CAPACITY) => format!("{router} {above}"),
                InShort::LeftOut(reason) => {
                    format!("{router} could not take the route when it was placed ({reason})")
                }
                InShort::Eligible => format!("{router} could have taken the route, but {}", placement.choice()),
                InShort::NotSeen => format!(
                    "{router} was none of the {} Routers that were looked at when the route was placed",
                    explanation.considered
                ),
                InShort::Untold => format!(
                    "{router} is not among those of {} Routers that the explanation had room for: others were better, or it \
                     could not take the route",
                    explanation.considered
                ),
            },
        }
    }

    /// For people.
    pub(super) fn text(&self, painter: Painter) -> String {
        let mut facts = Properties::default();
        let mut fact = |name: &str, text: String| facts.add(name, text);
        fact("route", format!("{}/{}", self.namespace, self.name));
        match &self.placement {
            Some(placement) => {
                fact("router", format!("{} ({})", placement.router, placement.dns));
                for name in &placement.names {
                    fact("name", name.name.clone());
                }
                for trail in &placement.trails {
                    let from = trail.from.as_ref().map_or(String::new(), |from| format!("from {} ", from.0));
                    let asked = placement.trail_uses.iter().find(|used| used.name == trail.name);
                    let asked = match asked.map(|used| used.last_asked.0).filter(|asked| *asked >= trail.since.0) {
                        Some(asked) => format!("asked for at {asked}"),
                        None => "not asked for, as far as is told".to_owned(),
                    };
                    fact(
                        "former name",
                        format!("{} (leads here {from}until {} at least; {asked})", trail.name, trail.until.0),
                    );
                }
                fact("strategy", placement.strategy.clone());
                if let Some(at) = &placement.placed_at {
                    fact("placed", at.0.to_string());
                }
                if let Some(explanation) = &placement.explanation {
                    fact("why", explanation.summary.clone());
                    if let Some(tie) = &explanation.tie_break {
                        fact("tie", tie.clone());
                    }
                    if let Some(snapshot) = &explanation.snapshot {
                        fact("snapshot", format!("the Routers as of version {snapshot}"));
                    }
                }
            }
            None => fact("router", "none".to_owned()),
        }
        for condition in &self.conditions {
            let Condition { type_, status, reason, message, .. } = condition;
            fact(type_, format!("{status}, {reason}: {message}"));
        }
        for Hidden { name, by } in &self.hidden {
            fact("hidden", format!("{name} {by}"));
        }
        if self.placement.is_none() && self.conditions.is_empty() {
            fact("why", "no scheduler has looked at the route yet".to_owned());
        }
        if let Some(why_not) = &self.why_not {
            fact("why not", why_not.answer.clone());
        }
        let mut text = facts.text(painter);
        let explanation = self.placement.as_ref().and_then(|placement| placement.explanation.as_ref());
        if let Some(explanation) = explanation.filter(|explanation| !explanation.routers.is_empty()) {
            text.push('\n');
            text.push_str(&table(explanation, painter));
        }
        text
    }
}

/// Since when the route is on its Router: since it was moved there, or since the binding was made.
fn placed_at(binding: &RouteBinding) -> Option<Time> {
    let moved = binding.spec.explanation.as_ref().and_then(|explanation| explanation.moved_at.clone());
    // A binding of before that was written down has trails, each from the moment of a move.
    let left = binding.spec.trails.iter().map(|trail| &trail.since).max_by_key(|since| since.0).cloned();
    moved.or(left).or_else(|| binding.metadata.creation_timestamp.clone())
}

/// The Routers with their verdicts, as columns.
fn table(explanation: &Explanation, painter: Painter) -> String {
    let mut table = Table::new(["ROUTER", "VERDICT", "SCORE", "ROUTES", "WHY"]);
    for (at, verdict) in explanation.routers.iter().enumerate() {
        let word = match (&verdict.reason, verdict.eligible) {
            _ if at == 0 => "Chosen",
            (Some(reason), _) => reason,
            (None, true) => "Eligible",
            (None, false) => "FilteredOut",
        };
        let style = match verdict.eligible {
            _ if at == 0 => Style::Good,
            true => Style::Dim,
            false => Style::Warning,
        };
        table.row([
            Cell::from(verdict.name.as_str()),
            Cell::styled(style, word),
            Cell::or_dash(verdict.score.map(|score| score.to_string())),
            Cell::or_dash(verdict.routes.map(|routes| routes.to_string())),
            Cell::from(verdict.message.clone().unwrap_or_default()),
        ]);
    }
    let mut text = table.text(painter);
    let kept = u32::try_from(explanation.routers.len()).unwrap_or(u32::MAX);
    if let Some(others) = explanation.considered.checked_sub(kept).filter(|others| *others > 0) {
        let _ = writeln!(text, "and {others} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use signpost_control::scheduler::class_map::Layout;

    fn route(status: Value) -> Route {
        let object = json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
            "metadata": {"namespace": "shop", "name": "front", "uid": "u1"}, "spec": {}, "status": status,
        });
        serde_json::from_value(object).expect("a Route")
    }

    fn placed() -> RouteExplanation {
        let binding = json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
            "metadata": {"namespace": "shop", "name": "front", "creationTimestamp": "2025-01-02T03:04:05Z"},
            "spec": {
                "routeNamespace": "shop", "routeName": "front", "routeUID": "u1", "router": "shard1",
                "dns": "shard1.v3.example", "label": "shop-front", "strategy": "least-routes",
                "names": [{"name": "shop-front.shard1.v3.example", "type": "system"}],
                "explanation": {
                    "summary": "least-routes chose shard1 among 4 eligible of 20 Routers; filtered out: 16 Cordoned",
                    "considered": 20, "eligible": 4, "snapshot": "42", "tieBreak": "2 Routers with the same score",
                    "routers": [
                        {"name": "shard1", "eligible": true, "score": -3, "routes": 3},
                        {"name": "shard2", "eligible": true, "score": -3, "routes": 3},
                        {"name": "shard3", "eligible": true, "score": -12, "routes": 12},
                        {"name": "shard4", "eligible": true, "reason": "AboveSoftCapacity",
                            "message": "others are below their soft capacity", "routes": 9},
                        {"name": "shard5", "eligible": false, "reason": "Cordoned", "message": "is cordoned", "routes": 0},
                    ],
                },
            },
        });
        let conditions = json!([{"type": "Scheduled", "status": "True", "reason": "Bound", "message": "placed on shard1",
            "lastTransitionTime": "2025-01-02T03:04:05Z"}]);
        let binding = serde_json::from_value(binding).expect("a RouteBinding");
        RouteExplanation::new(&route(json!({"phase": "scheduled", "conditions": conditions})), Some(binding))
    }

    #[test]
    fn a_placed_route_as_text() {
        let expected = "\
route       shop/front
router      shard1 (shard1.v3.example)
name        shop-front.shard1.v3.example
strategy    least-routes
placed      2025-01-02T03:04:05Z
why         least-routes chose shard1 among 4 eligible of 20 Routers; filtered out: 16 Cordoned
tie         2 Routers with the same score
snapshot    the Routers as of version 42
Scheduled   True, Bound: placed on shard1

ROUTER   VERDICT             SCORE   ROUTES   WHY
shard1   Chosen              -3      3
shard2   Eligible            -3      3
shard3   Eligible            -12     12
shard4   AboveSoftCapacity   -       9        others are below their soft capacity
shard5   Cordoned            -       0        is cordoned
and 15 more
";
        assert_eq!(placed().text(Painter::PLAIN), expected);
    }

    #[test]
    fn why_not() {
        let at = |text: &str| Some(Time(text.parse().expect("a time")));
        let cordoned =
            || Now { eligible: false, reason: Some("Cordoned"), message: "is cordoned".to_owned(), routes: 0 };
        let fine = || Now { eligible: true, reason: None, message: "could take the route".to_owned(), routes: 0 };
        for (router, created, now, answer) in [
            ("shard1", None, Some(fine()), "the route is on shard1"),
            (
                "shard2",
                None,
                Some(fine()),
                "shard2 was as good as shard1, by the score -3; a tie goes to the first by name; by now it could \
                 take the route, but a placed route is not moved",
            ),
            (
                "shard3",
                None,
                Some(cordoned()),
                "shard3 could have taken the route, but least-routes chose shard1, whose score -3 was above -12; as \
                 things are now, it is cordoned",
            ),
            (
                "shard4",
                None,
                None,
                "shard4 could have taken the route, but had reached its soft capacity, and others are below their soft \
                 capacity; by now it is gone",
            ),
            (
                "shard5",
                None,
                Some(cordoned()),
                "shard5 could not take the route when it was placed (Cordoned); as things are now, it is cordoned",
            ),
            (
                "shard6",
                at("2024-01-01T00:00:00Z"),
                Some(cordoned()),
                "shard6 is not among those of 20 Routers that the explanation had room for: others were better, or it could \
                 not take the route; as things are now, it is cordoned",
            ),
            (
                "shard7",
                at("2026-01-01T00:00:00Z"),
                Some(fine()),
                "shard7 was not there yet when the route was placed; by now it could take the route, but a placed \
                 route is not moved",
            ),
        ] {
            let mut account = placed();
            account.answer_why_not(router, created, now);
            assert_eq!(account.why_not.as_ref().map(|why| why.answer.as_str()), Some(answer));
            assert!(account.text(Painter::PLAIN).contains(&format!("why not     {answer}\n")));
        }
        assert!(placed().tells_of("shard5") && !placed().tells_of("shard6"));
    }

    #[test]
    fn why_not_one_that_is_told_in_short_or_that_nobody_chose() {
        let with_classes = |strategy: &str| {
            let mut account = placed();
            let placement = account.placement.as_mut().expect("it is placed");
            strategy.clone_into(&mut placement.strategy);
            let classes = json!([{"reason": "AboveSoftCapacity", "count": 2, "routers": ["shard4", "shard7"]},
                {"reason": "Cordoned", "count": 16, "routers": ["shard10..shard19", "shard5..shard6", "shard9"]}]);
            let explanation = placement.explanation.as_mut().expect("it is explained");
            explanation.classes = serde_json::from_value(classes).expect("classes");
            explanation.routers.iter_mut().for_each(|verdict| verdict.score = None);
            account
        };
        for (strategy, router, told) in [
            ("weighted", "shard6", "shard6 could not take the route when it was placed (Cordoned)"),
            ("weighted", "shard15", "shard15 could not take the route when it was placed (Cordoned)"),
            (
                "weighted",
                "shard7",
                "shard7 could have taken the route, but had reached its soft capacity, and others are below their soft \
                 capacity",
            ),
            ("weighted", "shard8", "shard8 could have taken the route, but weighted chose shard1"),
            ("move", "shard8", "shard8 could have taken the route, but signpost.dev/move-to named shard1"),
            ("move", "shard3", "shard3 could have taken the route, but signpost.dev/move-to named shard1"),
        ] {
            let mut account = with_classes(strategy);
            account.answer_why_not(router, None, None);
            let answer = account.why_not.map(|why| why.answer);
            assert_eq!(answer, Some(format!("{told}; by now it is gone")));
        }
        // By a map, which knows one that was not looked at.
        let names: Vec<String> = (1..=19).map(|number| format!("shard{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let class = |index: usize| u8::try_from(index % 3).expect("small");
        let map = Layout::new(&names).expect("there is one").map(class);
        for (router, told) in [
            ("shard19", "shard19 could have taken the route, but weighted chose shard1"),
            ("shard15", "shard15 could not take the route when it was placed (Cordoned)"),
            ("shard30", "shard30 was none of the 19 Routers that were looked at when the route was placed"),
        ] {
            let mut account = with_classes("weighted");
            let explanation = account.placement.as_mut().and_then(|placement| placement.explanation.as_mut());
            let explanation = explanation.expect("it is explained");
            (explanation.considered, explanation.class_map) = (19, Some(map.clone()));
            explanation.classes.iter_mut().for_each(|class| class.routers.clear());
            account.answer_why_not(router, None, None);
            let answer = account.why_not.map(|why| why.answer);
            assert_eq!(answer, Some(format!("{told}; by now it is gone")));
        }
    }

    #[test]
    fn a_route_that_waits() {
        let conditions = json!([{"type": "Scheduled", "status": "False", "reason": "NoRouter",
            "message": "there is no Router yet", "lastTransitionTime": "2025-01-02T03:04:05Z"}]);
        let mut account = RouteExplanation::new(&route(json!({"phase": "new", "conditions": conditions})), None);
        let cordoned = Now { eligible: false, reason: Some("Cordoned"), message: "is cordoned".to_owned(), routes: 0 };
        account.answer_why_not("shard1", None, Some(cordoned));
        let expected = "\
route       shop/front
router      none
Scheduled   False, NoRouter: there is no Router yet
why not     shard1 is cordoned
";
        assert_eq!(account.text(Painter::PLAIN), expected);
        let unseen = RouteExplanation::new(&route(json!({})), None);
        assert!(unseen.text(Painter::PLAIN).contains("no scheduler has looked at the route yet"));
    }
}
