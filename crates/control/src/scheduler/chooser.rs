//! The choice of Routers by one of the strategies or the webhook: its configuration and its state.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::metrics::Metrics;
use super::strategy::{Strategy, StrategyName};
use super::webhook::circuit_breaker::CircuitBreaker;
use super::webhook::message::Answer;
use super::webhook::{self, CallError, Webhook};

/// The configured strategy or webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StrategyConfig {
    /// A built-in strategy.
    Strategy(StrategyName),
    /// An endpoint of the operator's.
    Webhook(webhook::Settings),
}

impl StrategyConfig {
    /// Returns the name in settings and explanations.
    pub fn name(&self) -> &'static str {
        match self {
            StrategyConfig::Strategy(name) => name.as_str(),
            StrategyConfig::Webhook(_) => webhook::NAME,
        }
    }
}

impl Default for StrategyConfig {
    fn default() -> Self {
        StrategyConfig::Strategy(StrategyName::default())
    }
}

impl fmt::Display for StrategyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The strategy or webhook, ready for use.
#[derive(Clone)]
pub(super) enum ActiveStrategy {
    Strategy(StrategyName),
    Webhook(Arc<Webhook>),
}

impl ActiveStrategy {
    pub(super) fn new(chooser: &StrategyConfig, metrics: &Metrics) -> Self {
        match chooser {
            StrategyConfig::Strategy(name) => ActiveStrategy::Strategy(*name),
            StrategyConfig::Webhook(settings) => {
                ActiveStrategy::Webhook(Arc::new(Webhook::new(settings.clone(), metrics.clone())))
            }
        }
    }

    /// Returns the built-in strategy, which can restrict the Routers that may take a route; the webhook cannot.
    pub(super) fn strategy(&self) -> Option<&'static dyn Strategy> {
        match self {
            ActiveStrategy::Strategy(name) => Some(name.strategy()),
            ActiveStrategy::Webhook(_) => None,
        }
    }

    /// Returns whether this is the same webhook, not another one or another start of it.
    pub(super) fn is(&self, webhook: &Arc<Webhook>) -> bool {
        matches!(self, ActiveStrategy::Webhook(current) if Arc::ptr_eq(current, webhook))
    }
}

/// The current strategy or webhook, and whether it works.
pub(super) struct Choice {
    pub(super) in_use: ActiveStrategy,
    /// The circuit breaker of the webhook, if that is used.
    pub(super) rest: CircuitBreaker,
    /// The sender for changes of the strategy while this object exists.
    switch: watch::Sender<StrategyConfig>,
    switched: watch::Receiver<StrategyConfig>,
}

impl Choice {
    pub(super) fn new(chooser: &StrategyConfig, metrics: &Metrics) -> Self {
        let (switch, switched) = watch::channel(chooser.clone());
        Choice { in_use: ActiveStrategy::new(chooser, metrics), rest: CircuitBreaker::default(), switch, switched }
    }

    /// Changes what chooses.
    pub(super) fn switch(&self) -> watch::Sender<StrategyConfig> {
        self.switch.clone()
    }

    /// Waits until something else is to choose.
    pub(super) async fn switched(&mut self) {
        self.switched.changed().await.expect("the sender is held");
    }

    /// Has that choose from now on.
    pub(super) fn take(&mut self, metrics: &Metrics) {
        let chooser = self.switched.borrow_and_update().clone();
        tracing::info!(strategy = %chooser, "scheduling strategy changed");
        (self.in_use, self.rest) = (ActiveStrategy::new(&chooser, metrics), CircuitBreaker::default());
    }

    /// Records from the outcome of a call whether the webhook works.
    pub(super) fn mind(&mut self, outcome: &Result<Answer, CallError>, now: Instant) {
        match outcome {
            Err(error) if error.is_outage() => {
                if let Some(rest) = self.rest.failed(now) {
                    let failures = self.rest.failures();
                    tracing::warn!(%error, failures, "webhook circuit breaker opened for {} s", rest.as_secs());
                }
            }
            Ok(_) | Err(_) => {
                if self.rest.is_resting() {
                    tracing::info!("webhook circuit breaker closed");
                }
                self.rest.answered();
            }
        }
    }
}
