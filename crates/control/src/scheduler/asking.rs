//! Placing routes by the webhook: asking beside the loop, and judging in the loop what was answered.
//!
//! ```text
//!   place ─► consult ──rests──────────────────────────────────────────────┐
//!               │                                                         ▼
//!               └─► ask ─ ─ ─(beside)─ ─ ─► on_answered ──no answer──► fallback strategy
//!                    ▲                           │                        │
//!                    └──does not fit any more────┤                        ▼
//!                                                └──fits────────────► carry_out
//! ```
//!
//! While a route is asked about nothing is assumed of it but that it will have its custom host: the order in which routes were
//! looked at decides who gets one, not that of the answers. Its binding is assumed when the answer has been found to fit, by
//! the snapshot of that moment, so that no Router and no namespace ever gets more than it may have.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use tokio::task::{self, JoinError};
use tokio::time::{Instant, timeout};

use super::decision::{InvalidAnswer, decide_as_answered, feasible_routers};
use super::metrics::{CIRCUIT_OPEN, NO_LONGER_FEASIBLE, UNKNOWN_ROUTER};
use super::webhook::message::{Answer, AskedRouter, AskedSnapshot, Question};
use super::webhook::{AskError, Webhook};
use super::{Scheduler, Subject, UnderWay};
use crate::client::backoff::random;
use crate::client::events::Events;
use crate::client::lease::Term;
use crate::world::RouteInfo;
use signpost_api::v1alpha1::route::Route;

/// How often a route is asked about in a row, when the Router named cannot take it any more by the time of the answer.
const TIMES_MAX: u32 = 4;
/// How long reading the Route may take.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest name of a Router that is repeated in an explanation; the API allows no longer ones.
const NAME_CHARACTERS_MAX: usize = 253;

/// A question that is over.
pub(super) struct Answered {
    subject: Subject,
    webhook: Arc<Webhook>,
    /// The Routers asked about.
    routers: Vec<String>,
    /// How often the route was asked about in a row, this time included.
    times: u32,
    outcome: Told,
}

enum Told {
    /// What came of asking.
    Outcome(Result<Answer, AskError>),
    /// Nothing was asked: the Route is not what was looked at any more.
    Changed,
    /// Nothing was asked: the Route could not be read.
    Unread(String),
}

impl Scheduler {
    /// Asks the webhook about a route, or decides without it while it rests.
    pub(super) fn consult(
        &mut self,
        subject: Subject,
        webhook: Arc<Webhook>,
        term: &Term,
        under_way: &mut UnderWay,
        events: &Events,
    ) {
        if self.rest.may_ask(Instant::now()) {
            self.ask(subject, webhook, 1, term, under_way, events);
            return;
        }
        let failures = self.rest.failures();
        let why = format!("the webhook failed {failures} times in a row and is left alone for a while");
        self.fall_back(subject, &webhook, CIRCUIT_OPEN, &why, term, under_way, events);
    }

    fn ask(
        &mut self,
        subject: Subject,
        webhook: Arc<Webhook>,
        times: u32,
        term: &Term,
        under_way: &mut UnderWay,
        events: &Events,
    ) {
        let (routers, considered) = match feasible_routers(&subject.wish(), &self.snapshot) {
            Ok(feasible_routers) => feasible_routers,
            Err(nowhere) => {
                self.rest.withdrawn();
                return self.carry_out(subject, Err(nowhere), term, under_way, events);
            }
        };
        let undecided = under_way.questions.len();
        let snapshot = AskedSnapshot { revision: self.snapshot.revision(), considered, undecided };
        let (client, flying) = (self.client.clone(), subject.key.clone());
        let names = routers.iter().map(|router| router.name.clone()).collect();
        let task = under_way.questions.spawn(async move {
            let outcome = ask(&client, &subject, &webhook, routers, snapshot).await;
            Answered { subject, webhook, routers: names, times, outcome }
        });
        self.flights.insert(task.id(), flying);
    }

    pub(super) fn on_answered(
        &mut self,
        landed: Result<(task::Id, Answered), JoinError>,
        under_way: &mut UnderWay,
        events: &Events,
    ) {
        let now = Instant::now();
        let Answered { subject, webhook, routers, times, outcome } = match landed {
            Ok((id, answered)) => {
                self.flights.remove(&id);
                answered
            }
            Err(error) => {
                let Some(key) = self.flights.remove(&error.id()) else { return };
                let woken = self.hosts.release(&key);
                self.look_at(woken);
                if error.is_cancelled() {
                    // Another strategy chooses by now: the route is placed by that, at once.
                    self.queue.done(&key);
                    self.queue.push(key);
                } else {
                    tracing::error!(%error, route = %key, "asking the webhook panicked");
                    self.rest.withdrawn();
                    self.queue.failed(&key, now, random());
                }
                return;
            }
        };
        // One that is not asked any more has no say, and its failures are not the new one's.
        let is_in_use = self.chooser.is(&webhook);
        let outcome = match outcome {
            Told::Outcome(outcome) => outcome,
            Told::Changed | Told::Unread(_) => {
                if let Told::Unread(error) = &outcome {
                    tracing::warn!(route = %subject.key, error, "the route cannot be read");
                }
                if is_in_use {
                    self.rest.withdrawn();
                }
                self.release_host(&subject.key, &subject.route);
                self.queue.failed(&subject.key, now, random());
                return;
            }
        };
        if is_in_use {
            self.mind(&outcome, now);
        }
        let Some(term) = self.term.clone().filter(Term::is_current) else {
            self.release_host(&subject.key, &subject.route);
            self.queue.failed(&subject.key, now, random());
            return;
        };
        let (key, before, started) = (subject.key.clone(), subject.route, subject.started);
        let Some(subject) = self.subject(subject.key, started, events) else {
            return self.release_host(&key, &before);
        };
        if !is_in_use || !subject.route.decides_as(&before) {
            return self.place(subject, &term, under_way, events);
        }
        let (reason, why) = match outcome {
            Err(error) => (error.label(), format!("the webhook {error}")),
            Ok(answer) if !routers.contains(&answer.router) => {
                let name: String = answer.router.chars().take(NAME_CHARACTERS_MAX).collect();
                (UNKNOWN_ROUTER, format!("the webhook named {name:?}, which is none of the Routers it was asked about"))
            }
            Ok(answer) => match self.timed(|all| decide_as_answered(&subject.wish(), &all.snapshot, &answer)) {
                Ok(placement) => return self.carry_out(subject, Ok(placement), &term, under_way, events),
                Err(InvalidAnswer::FitError(nowhere)) => {
                    return self.carry_out(subject, Err(nowhere), &term, under_way, events);
                }
                Err(InvalidAnswer::Router(_)) if times < TIMES_MAX => {
                    return self.ask(subject, webhook, times + 1, &term, under_way, events);
                }
                Err(InvalidAnswer::Router(why)) => {
                    (NO_LONGER_FEASIBLE, format!("the webhook chose {}, which {why} since it was asked", answer.router))
                }
            },
        };
        self.fall_back(subject, &webhook, reason, &why, &term, under_way, events);
    }

    #[expect(clippy::too_many_arguments, reason = "what the loop owns is lent to each step")]
    fn fall_back(
        &mut self,
        subject: Subject,
        webhook: &Webhook,
        reason: &'static str,
        why: &str,
        term: &Term,
        under_way: &mut UnderWay,
        events: &Events,
    ) {
        self.metrics.webhook_fallback(reason);
        let decided = self.decide_by(&subject, webhook.settings.fallback, Some(why));
        self.carry_out(subject, decided, term, under_way, events);
    }

    /// Whether the webhook works, by what came of a question.
    fn mind(&mut self, outcome: &Result<Answer, AskError>, now: Instant) {
        match outcome {
            Err(error) if error.is_outage() => {
                if let Some(rest) = self.rest.failed(now) {
                    let failures = self.rest.failures();
                    tracing::warn!(%error, failures, "the webhook is left alone for {} s", rest.as_secs());
                }
            }
            Ok(_) | Err(_) => {
                if self.rest.is_resting() {
                    tracing::info!("the webhook answers again");
                }
                self.rest.answered();
            }
        }
    }
}

/// Reads the whole Route, of which the scheduler keeps only what decides, and asks about it.
async fn ask(
    client: &kube::Client,
    subject: &Subject,
    webhook: &Webhook,
    routers: Vec<AskedRouter>,
    snapshot: AskedSnapshot,
) -> Told {
    let namespace = subject.key.namespace.as_deref().unwrap_or_default();
    let routes: Api<Route> = Api::namespaced(client.clone(), namespace);
    let route = match timeout(READ_TIMEOUT, routes.get_opt(&subject.key.name)).await {
        Ok(Ok(Some(route))) => route,
        Ok(Ok(None)) => return Told::Changed,
        Ok(Err(error)) => return Told::Unread(error.to_string()),
        Err(_) => return Told::Unread("the API did not answer in time".to_owned()),
    };
    if !RouteInfo::new(&route).decides_as(&subject.route) {
        return Told::Changed;
    }
    let question = Question::new(route, &subject.namespace, routers, snapshot);
    Told::Outcome(webhook.ask(&question).await)
}
