//! What chooses Routers: one of the strategies, or the webhook; as configured, and as it is used.

use std::fmt;
use std::sync::Arc;

use super::metrics::Metrics;
use super::strategy::{Strategy, StrategyName};
use super::webhook::{self, Webhook};

/// What chooses, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StrategyConfig {
    /// A strategy of ours.
    Strategy(StrategyName),
    /// An endpoint of the operator's.
    Webhook(webhook::Settings),
}

impl StrategyConfig {
    /// The name as settings and explanations have it.
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

/// What chooses, ready to be used.
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

    /// The strategy of ours, which has a say in which Routers may take a route; the webhook has none.
    pub(super) fn strategy(&self) -> Option<&'static dyn Strategy> {
        match self {
            ActiveStrategy::Strategy(name) => Some(name.strategy()),
            ActiveStrategy::Webhook(_) => None,
        }
    }

    /// Whether this is that very webhook, not another one or another start of it.
    pub(super) fn is(&self, webhook: &Arc<Webhook>) -> bool {
        matches!(self, ActiveStrategy::Webhook(current) if Arc::ptr_eq(current, webhook))
    }
}
