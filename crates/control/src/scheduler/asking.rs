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

use super::Scheduler;
use super::cycle::Subject;
use super::decision::{InvalidAnswer, decide_as_answered, feasible_routers};
use super::metrics::{CIRCUIT_OPEN, NO_LONGER_FEASIBLE, UNKNOWN_ROUTER};
use super::webhook::message::{Answer, AskedRouter, AskedSnapshot, Question};
use super::webhook::{AskError, Webhook};
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
    pub(super) fn consult(&mut self, subject: Subject, webhook: Arc<Webhook>, term: &Term, events: &Events) {
        if self.choice.rest.may_ask(Instant::now()) {
            self.ask(subject, webhook, 1, term, events);
            return;
        }
        let failures = self.choice.rest.failures();
        let why = format!("the webhook failed {failures} times in a row and is left alone for a while");
        self.fall_back(subject, &webhook, CIRCUIT_OPEN, &why, term, events);
    }

    fn ask(&mut self, subject: Subject, webhook: Arc<Webhook>, times: u32, term: &Term, events: &Events) {
        let (routers, considered) = match feasible_routers(&subject.wish(), &self.snapshot) {
            Ok(feasible_routers) => feasible_routers,
            Err(nowhere) => {
                self.choice.rest.withdrawn();
                return self.carry_out(subject, Err(nowhere), term, events);
            }
        };
        let undecided = self.under_way.questions.len();
        let snapshot = AskedSnapshot { revision: self.snapshot.revision(), considered, undecided };
        let (client, flying) = (self.binder.client.clone(), subject.key.clone());
        let names = routers.iter().map(|router| router.name.clone()).collect();
        let task = self.under_way.questions.spawn(async move {
            let outcome = ask(&client, &subject, &webhook, routers, snapshot).await;
            Answered { subject, webhook, routers: names, times, outcome }
        });
        self.under_way.owners.insert(task.id(), flying);
    }

    pub(super) fn on_answered(&mut self, landed: Result<(task::Id, Answered), JoinError>, events: &Events) {
        let now = Instant::now();
        let Answered { subject, webhook, routers, times, outcome } = match landed {
            Ok((id, answered)) => {
                self.under_way.owners.remove(&id);
                answered
            }
            Err(error) => {
                let Some(key) = self.under_way.owners.remove(&error.id()) else { return };
                self.admission.release(&key, &mut self.queue);
                if error.is_cancelled() {
                    // Another strategy chooses by now: the route is placed by that, at once.
                    self.queue.done(&key);
                    self.queue.push(key);
                } else {
                    tracing::error!(%error, route = %key, "asking the webhook panicked");
                    self.choice.rest.withdrawn();
                    self.queue.failed(&key, now, random());
                }
                return;
            }
        };
        // One that is not asked any more has no say, and its failures are not the new one's.
        let is_in_use = self.choice.in_use.is(&webhook);
        let outcome = match outcome {
            Told::Outcome(outcome) => outcome,
            Told::Changed | Told::Unread(_) => {
                if let Told::Unread(error) = &outcome {
                    tracing::warn!(route = %subject.key, error, "the route cannot be read");
                }
                if is_in_use {
                    self.choice.rest.withdrawn();
                }
                self.admission.end_attempt(&subject.key, &subject.route, &mut self.queue);
                self.queue.failed(&subject.key, now, random());
                return;
            }
        };
        if is_in_use {
            self.choice.mind(&outcome, now);
        }
        let Some(term) = self.term.clone().filter(Term::is_current) else {
            self.admission.end_attempt(&subject.key, &subject.route, &mut self.queue);
            self.queue.failed(&subject.key, now, random());
            return;
        };
        let (key, before, started) = (subject.key.clone(), subject.route, subject.started);
        let Some(subject) = self.subject(subject.key, started, events) else {
            return self.admission.end_attempt(&key, &before, &mut self.queue);
        };
        if !is_in_use || !subject.route.decides_as(&before) {
            return self.place(subject, &term, events);
        }
        let (reason, why) = match outcome {
            Err(error) => (error.label(), format!("the webhook {error}")),
            Ok(answer) if !routers.contains(&answer.router) => {
                let name: String = answer.router.chars().take(NAME_CHARACTERS_MAX).collect();
                (UNKNOWN_ROUTER, format!("the webhook named {name:?}, which is none of the Routers it was asked about"))
            }
            Ok(answer) => match self.timed(|all| decide_as_answered(&subject.wish(), &all.snapshot, &answer)) {
                Ok(placement) => return self.carry_out(subject, Ok(placement), &term, events),
                Err(InvalidAnswer::FitError(nowhere)) => {
                    return self.carry_out(subject, Err(nowhere), &term, events);
                }
                Err(InvalidAnswer::Router(_)) if times < TIMES_MAX => {
                    return self.ask(subject, webhook, times + 1, &term, events);
                }
                Err(InvalidAnswer::Router(why)) => {
                    (NO_LONGER_FEASIBLE, format!("the webhook chose {}, which {why} since it was asked", answer.router))
                }
            },
        };
        self.fall_back(subject, &webhook, reason, &why, &term, events);
    }

    fn fall_back(
        &mut self,
        subject: Subject,
        webhook: &Webhook,
        reason: &'static str,
        why: &str,
        term: &Term,
        events: &Events,
    ) {
        self.metrics.webhook_fallback(reason);
        let decided = self.decide_by(&subject, webhook.settings.fallback, Some(why));
        self.carry_out(subject, decided, term, events);
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
    let namespace = subject.key.namespace();
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
