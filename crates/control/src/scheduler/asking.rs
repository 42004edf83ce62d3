//! Placement by the webhook: calls run outside the loop, and the loop checks the answers.
//!
//! ```text
//!   place ─► consult ──circuit open───────────────────────────────────────┐
//!               │                                                         ▼
//!               └─► call ─ ─ (outside) ─ ► on_answered ──no answer───► fallback strategy
//!                    ▲                           │                        │
//!                    └──no longer fits───────────┤                        ▼
//!                                                └──fits────────────► carry_out
//! ```
//!
//! While a call about a Route is in flight, the scheduler assumes only that the Route gets its custom host: the order of
//! scheduling, not the order of answers, decides which Route gets a host. The scheduler assumes the binding when the answer fits
//! the current snapshot, so that no Router and no namespace ever exceeds its limit.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use tokio::time::{Instant, timeout};

use super::Scheduler;
use super::cycle::QueuedRoute;
use super::decision::{InvalidAnswer, decide_as_answered, feasible_routers};
use super::metrics::{CIRCUIT_OPEN, NO_LONGER_FEASIBLE, UNKNOWN_ROUTER};
use super::webhook::message::{self, Answer};
use super::webhook::{CallError, Webhook};
use crate::client::backoff::random;
use crate::client::lease::Term;
use crate::client::reflector::ObjectKey;
use crate::world::RouteInfo;
use signpost_types::v1alpha1::route::Route;

/// The most calls in a row about a Route, if the chosen Router can no longer take it when the answer arrives.
const TIMES_MAX: u32 = 4;
/// The time limit for reading the Route.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest name of a Router that is repeated in an explanation; the API allows no longer ones.
const NAME_CHARACTERS_MAX: usize = 253;

/// A call of the webhook.
pub(super) struct Call {
    pub(super) queued: QueuedRoute,
    webhook: Arc<Webhook>,
    /// The Routers that it may choose.
    routers: Vec<String>,
    /// The number of calls in a row for this Route, including this one.
    times: u32,
}

impl Scheduler {
    /// Calls the webhook, or decides without it while its circuit breaker is open.
    pub(super) fn consult(&mut self, queued: QueuedRoute, webhook: Arc<Webhook>) {
        if self.choice.rest.may_ask(Instant::now()) {
            return self.call(queued, webhook, 1);
        }
        let failures = self.choice.rest.failures();
        let why = format!("the webhook is not called after {failures} failures in a row (circuit breaker open)");
        self.fall_back(queued, &webhook, CIRCUIT_OPEN, &why);
    }

    fn call(&mut self, queued: QueuedRoute, webhook: Arc<Webhook>, times: u32) {
        let (routers, considered) = match feasible_routers(&queued.request(&self.hosts), &self.snapshot) {
            Ok(feasible_routers) => feasible_routers,
            Err(error) => {
                self.choice.rest.withdrawn();
                return self.carry_out(queued, Err(error));
            }
        };
        let snapshot = message::snapshot(self.snapshot.revision(), considered, self.in_flight.calls.len());
        let names = routers.iter().map(|feasible| feasible.router.name.clone()).collect();
        let routers = routers.iter().map(|feasible| message::router(feasible.router, feasible.shard)).collect();
        let (client, called, route) = (self.binder.client.clone(), Arc::clone(&webhook), Arc::clone(&queued.route));
        let (key, namespace) = (queued.key.clone(), Arc::clone(&queued.namespace));
        self.in_flight.calls.start(Call { queued, webhook, routers: names, times }, async move {
            let Some(route) = read(&client, &key, &route).await? else { return Ok(None) };
            Ok(Some(called.ask(&message::question(route, &namespace, routers, snapshot)).await))
        });
    }

    /// Handles the end of a call; `None` as the result: the Route has changed since it was scheduled.
    pub(super) fn on_answered(&mut self, call: Call, result: kube::Result<Option<Result<Answer, CallError>>>) {
        let Call { queued, webhook, routers, times } = call;
        let now = Instant::now();
        if let Err(error) = &result
            && let Some(omitted) = self.failures.take(now)
        {
            tracing::warn!(route = %queued.key, %error, omitted, "failed to read the Route");
        }
        // A replaced webhook no longer decides, and its failures do not count against the new one.
        let is_in_use = self.choice.in_use.is(&webhook);
        let outcome = result.ok().flatten();
        match &outcome {
            Some(outcome) if is_in_use => self.choice.mind(outcome, now),
            None if is_in_use => self.choice.rest.withdrawn(),
            _ => {}
        }
        let term = self.term.clone().filter(Term::is_current);
        let (Some(outcome), Some(term)) = (outcome, term) else {
            self.hosts.give_up(&queued.key, queued.route.host.as_deref());
            self.queue.failed(&queued.key, now, random());
            return;
        };
        let (key, before, started) = (queued.key.clone(), queued.route, queued.started);
        let Some(queued) = self.queued(queued.key, started, term) else {
            return self.hosts.give_up(&key, before.host.as_deref());
        };
        if !is_in_use || !queued.route.decides_as(&before) {
            return self.place(queued);
        }
        let (reason, why) = match outcome {
            Err(error) => (error.label(), format!("the webhook {error}")),
            Ok(answer) if !routers.contains(&answer.router) => {
                let name: String = answer.router.chars().take(NAME_CHARACTERS_MAX).collect();
                (UNKNOWN_ROUTER, format!("the webhook returned {name:?}, which is not one of the feasible Routers"))
            }
            Ok(answer) => {
                match self.timed(|all| decide_as_answered(&queued.request(&all.hosts), &all.snapshot, &answer)) {
                    Ok(placement) => return self.carry_out(queued, Ok(placement)),
                    Err(InvalidAnswer::FitError(error)) => return self.carry_out(queued, Err(error)),
                    Err(InvalidAnswer::Router(_)) if times < TIMES_MAX => return self.call(queued, webhook, times + 1),
                    Err(InvalidAnswer::Router(why)) => {
                        (NO_LONGER_FEASIBLE, format!("the webhook selected {}, which now {why}", answer.router))
                    }
                }
            }
        };
        self.fall_back(queued, &webhook, reason, &why);
    }

    fn fall_back(&mut self, queued: QueuedRoute, webhook: &Webhook, reason: &'static str, why: &str) {
        self.metrics.webhook_fallback(reason);
        let decided = self.decide_by(&queued, webhook.settings.fallback, Some(why));
        self.carry_out(queued, decided);
    }
}

/// Reads the whole Route, because the scheduler stores only the fields that decide; `None` if these have changed.
async fn read(client: &kube::Client, key: &ObjectKey, decided: &RouteInfo) -> kube::Result<Option<Route>> {
    let routes: Api<Route> = Api::namespaced(client.clone(), key.namespace());
    let late = |_| kube::Error::ReadEvents(io::Error::new(io::ErrorKind::TimedOut, "the API did not answer in time"));
    let route = timeout(READ_TIMEOUT, routes.get_opt(&key.name)).await.map_err(late)??;
    Ok(route.filter(|route| RouteInfo::new(route).decides_as(decided)))
}
