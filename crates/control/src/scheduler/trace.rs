//! Trace spans of an attempt to place a Route: the decision, and its execution.

use tokio::time::Instant;

use super::bind::{Outcome, Plan};
use super::decision::Placement;
use signpost_runtime::telemetry::trace::Trace;

/// Records an attempt that began at `started` and has just ended.
pub(super) fn attempt(plan: &Plan, outcome: &Outcome, started: Instant) {
    let Some(trace) = Trace::of(&plan.route.uid.to_string()) else { return };
    let Placement { router, strategy, explanation, .. } = &plan.placement;
    let began = started.into_std();
    let mut span = trace
        .step("schedule", began)
        .with("signpost.route", plan.key.to_string())
        .with("signpost.router", router.as_str())
        .with("signpost.outcome", outcome.label());
    let decide = span.part("decide", began).with("signpost.strategy", *strategy);
    decide.with("signpost.reason", explanation.summary.as_str()).end_at(plan.decided);
    let mut bind = span.part("bind", plan.decided).with("signpost.outcome", outcome.label());
    if let Outcome::Failed { error, .. } | Outcome::Fenced { error } = outcome {
        (span, bind) = (span.failed(error.as_str()), bind.failed(error.as_str()));
    }
    bind.end();
    span.end();
}
