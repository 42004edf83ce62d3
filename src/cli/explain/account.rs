//! The explanation of one Route, and its text output.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;

use crate::cli::backends::Backends;
use crate::cli::style::{Painter, Style};
use crate::cli::table::{Cell, Properties, Table};
use crate::cli::traffic;
use signpost_agent::traffic::view::RouteView;
use signpost_control::scheduler::explain::enumerate;
use signpost_types::v1alpha1::route::{AssignedName, FormerName, Phase, Route};
use signpost_types::v1alpha1::route_binding::{Explanation, RouteBinding, RouterVerdict};

/// The explanation of one Route. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RouteExplanation {
    namespace: String,
    name: String,
    uid: String,
    phase: Phase,
    placement: Option<Placement>,
    conditions: Vec<Condition>,
    /// Absent if the user may not read Services and EndpointSlices.
    backends: Option<Backends>,
    /// The traffic on all instances; absent if it is not known.
    traffic: Option<RouteView>,
    why_not: Option<WhyNot>,
}

/// The placement of the Route in its binding.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Placement {
    router: String,
    dns: String,
    strategy: String,
    placed_at: Option<Time>,
    names: Vec<AssignedName>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    former_names: Vec<FormerName>,
    explanation: Option<Explanation>,
}

/// The reason why the Route is not on a given Router.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WhyNot {
    router: String,
    answer: String,
    /// The verdict when the route was placed, if it was kept.
    when_placed: Option<RouterVerdict>,
    /// The current verdict; absent if the Router was deleted.
    now: Option<RouterVerdict>,
}

impl RouteExplanation {
    /// Returns the explanation of a Route with this binding.
    pub(super) fn new(route: &Route, binding: Option<RouteBinding>, backends: Option<Backends>) -> RouteExplanation {
        let metadata = &route.metadata;
        let status = route.status.clone().unwrap_or_default();
        let placement = binding.map(|binding| Placement {
            placed_at: placed_at(&binding),
            router: binding.spec.router,
            dns: binding.spec.dns,
            strategy: binding.spec.strategy,
            names: binding.spec.names,
            former_names: binding.spec.former_names,
            explanation: binding.spec.explanation,
        });
        RouteExplanation {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            phase: status.phase,
            placement,
            conditions: status.conditions,
            backends,
            traffic: None,
            why_not: None,
        }
    }

    /// Adds the traffic of the Route.
    pub(super) fn set_traffic(&mut self, traffic: Option<RouteView>) {
        self.traffic = traffic;
    }

    /// Returns the Router that the route is on, and the strategy that chose it.
    pub(super) fn placed(&self) -> Option<(&str, &str)> {
        self.placement.as_ref().map(|placement| (placement.router.as_str(), placement.strategy.as_str()))
    }

    /// Returns whether the stored explanation mentions the Router.
    pub(super) fn mentions(&self, router: &str) -> bool {
        self.verdict(router).is_some() || self.placement.as_ref().is_some_and(|placement| placement.router == router)
    }

    fn verdict(&self, router: &str) -> Option<&RouterVerdict> {
        let explanation = self.placement.as_ref()?.explanation.as_ref()?;
        explanation.routers.iter().find(|verdict| verdict.name == router)
    }

    /// Adds why the route is not on this Router, which was made at `created`, if it is still there; `now` is its verdict of this
    /// moment.
    pub(super) fn answer_why_not(&mut self, router: &str, created: Option<Time>, now: Option<RouterVerdict>) {
        let message = now.as_ref().map(|now| now.message.as_deref().unwrap_or_default());
        let eligible = now.as_ref().is_some_and(|now| now.eligible);
        let answer = match (&self.placement, message) {
            (None, None) => format!("{router} was deleted"),
            (None, Some(message)) if eligible => {
                format!("{router} {message} now; for the reason why the Route is not scheduled, see its conditions")
            }
            (None, Some(message)) => format!("{router} {message}"),
            (Some(placement), _) if placement.router == router => format!("the Route is on {router}"),
            (Some(placement), message) => {
                let then = self.when_placed(placement, router, created);
                let now = match message {
                    None => "it was deleted since then".to_owned(),
                    Some(message) if self.verdict(router).is_some() => format!("now it {message}"),
                    Some(message) => format!("evaluated now, not at the time of the decision: it {message}"),
                };
                let stays = if eligible { ", but the scheduler does not move a bound Route" } else { "" };
                format!("{router} when the Route was bound: {then}; {now}{stays}")
            }
        };
        let when_placed = self.verdict(router).cloned();
        self.why_not = Some(WhyNot { router: router.to_owned(), answer, when_placed, now });
    }

    /// Returns the state of the Router when the Route was bound.
    fn when_placed(&self, placement: &Placement, router: &str, created: Option<Time>) -> String {
        let Some(explanation) = &placement.explanation else { return "no explanation was recorded".to_owned() };
        let is_younger = created.is_some_and(|made| placement.placed_at.as_ref().is_some_and(|at| made.0 > at.0));
        match self.verdict(router) {
            Some(verdict) => {
                let best = self.verdict(&placement.router).and_then(|chosen| chosen.score);
                let score = verdict.score.zip(best).map(|(own, best)| {
                    let tie = if own == best { ", and a tie goes to the first by name" } else { "" };
                    format!(", score {own}, where {} had {best}{tie}", placement.router)
                });
                let message = verdict.message.as_ref().map(|message| format!(", it {message}"));
                format!("{}{}{}", word(verdict), score.unwrap_or_default(), message.unwrap_or_default())
            }
            None if is_younger => "it did not exist yet".to_owned(),
            None => {
                let (listed, considered) = (explanation.routers.len(), explanation.considered);
                let others = others(explanation);
                format!("not among the {listed} of {considered} Routers that the explanation lists{others}")
            }
        }
    }

    /// Returns the text output.
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
                for former in &placement.former_names {
                    let from = former.from.as_ref().map_or(String::new(), |from| format!("from {} ", from.0));
                    fact("former name", format!("{} (answered {from}until {})", former.name, former.until.0));
                }
                fact("strategy", placement.strategy.clone());
                if let Some(at) = &placement.placed_at {
                    fact("placed", at.0.to_string());
                }
                if let Some(explanation) = &placement.explanation {
                    fact("why", explanation.summary.clone());
                }
            }
            None => fact("router", "none".to_owned()),
        }
        for condition in &self.conditions {
            let Condition { type_, status, reason, message, .. } = condition;
            fact(type_, format!("{status}, {reason}: {message}"));
        }
        if self.placement.is_none() && self.conditions.is_empty() {
            fact("why", "the scheduler has not processed the Route yet".to_owned());
        }
        if let Some(backends) = &self.backends {
            backends.target_lines().for_each(|line| fact("backend", line));
            backends.fault_lines().for_each(|line| fact("fault", line));
        }
        for (name, line) in self.traffic.iter().flat_map(traffic::lines) {
            fact(name, line);
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

/// Returns the time at which the Route was moved to its Router, or at which its binding was created.
fn placed_at(binding: &RouteBinding) -> Option<Time> {
    let moved = binding.spec.explanation.as_ref().and_then(|explanation| explanation.moved_at.clone());
    moved.or_else(|| binding.metadata.creation_timestamp.clone())
}

/// Returns the Routers with their verdicts, as columns.
fn table(explanation: &Explanation, painter: Painter) -> String {
    let mut table = Table::new(["ROUTER", "VERDICT", "SCORE", "ROUTES", "WHY"]);
    for (at, verdict) in explanation.routers.iter().enumerate() {
        let word = if at == 0 { "Chosen" } else { word(verdict) };
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
    let listed = u32::try_from(explanation.routers.len()).unwrap_or(u32::MAX);
    if let Some(more) = explanation.considered.checked_sub(listed).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more{}", others(explanation));
    }
    text
}

fn word(verdict: &RouterVerdict) -> &str {
    match (&verdict.reason, verdict.eligible) {
        (Some(reason), _) => reason,
        (None, true) => "Eligible",
        (None, false) => "FilteredOut",
    }
}

/// Returns the reasons of the Routers that the explanation does not list, in parentheses; nothing if it lists all.
fn others(explanation: &Explanation) -> String {
    match &explanation.omitted[..] {
        [] => String::new(),
        omitted => format!(" ({})", enumerate(omitted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::objects::object;
    use serde_json::json;

    fn placed() -> RouteExplanation {
        let explanation = json!({
            "summary": "why", "considered": 20, "eligible": 4, "omitted": [{"reason": "Cordoned", "count": 15}],
            "routers": [
                {"name": "shard1", "eligible": true, "score": -3, "routes": 3},
                {"name": "shard2", "eligible": true, "score": -3, "routes": 3},
                {"name": "shard3", "eligible": true, "score": -12, "routes": 12},
                {"name": "shard4", "eligible": true, "reason": "AboveSoftCapacity",
                    "message": "has reached its soft capacity, and others have not", "routes": 9},
                {"name": "shard5", "eligible": false, "reason": "Cordoned", "message": "is cordoned", "routes": 0},
            ],
        });
        let spec = json!({
            "routeNamespace": "shop", "routeName": "front", "routeUID": "u1", "router": "shard1", "dns": "shard1.v3.example",
            "label": "shop-front", "strategy": "least-routes", "names": [], "explanation": explanation,
        });
        let metadata = json!({"namespace": "shop", "name": "front", "creationTimestamp": "2025-01-02T03:04:05Z"});
        let route: Route = object("Route", metadata.clone(), json!({}), json!({"phase": "scheduled"}));
        let binding = object("RouteBinding", metadata, spec, json!(null));
        RouteExplanation::new(&route, Some(binding), None)
    }

    fn verdict(eligible: bool, reason: Option<&str>, message: &str) -> RouterVerdict {
        let (reason, message) = (reason.map(str::to_owned), Some(message.to_owned()));
        RouterVerdict { eligible, reason, message, ..RouterVerdict::default() }
    }

    #[test]
    fn why_not() {
        let at = |text: &str| Some(Time(text.parse().expect("a time")));
        let cordoned = || verdict(false, Some("Cordoned"), "is cordoned");
        let fine = || verdict(true, None, "could take the Route");
        let could = "could take the Route, but the scheduler does not move a bound Route";
        let moment = "evaluated now, not at the time of the decision: it";
        let tie = "Eligible, score -3, where shard1 had -3, and a tie goes to the first by name";
        let unlisted = "not among the 5 of 20 Routers that the explanation lists (15 Cordoned)";
        let full = "AboveSoftCapacity, it has reached its soft capacity, and others have not";
        for (router, created, now, answer) in [
            ("shard2", None, Some(fine()), format!("{tie}; now it {could}")),
            (
                "shard3",
                None,
                Some(cordoned()),
                "Eligible, score -12, where shard1 had -3; now it is cordoned".to_owned(),
            ),
            ("shard4", None, None, format!("{full}; it was deleted since then")),
            ("shard5", None, Some(cordoned()), "Cordoned, it is cordoned; now it is cordoned".to_owned()),
            ("shard6", at("2024-01-01T00:00:00Z"), Some(cordoned()), format!("{unlisted}; {moment} is cordoned")),
            ("shard7", at("2026-01-01T00:00:00Z"), Some(fine()), format!("it did not exist yet; {moment} {could}")),
        ] {
            let mut account = placed();
            account.answer_why_not(router, created, now);
            let answer = format!("{router} when the Route was bound: {answer}");
            assert_eq!(account.why_not.map(|why| why.answer), Some(answer));
        }
        assert!(placed().mentions("shard5") && !placed().mentions("shard6"));
    }
}
