//! What chooses Routers: one of the strategies, or the webhook; as configured, and as it is used.

use std::fmt;
use std::sync::Arc;

use super::metrics::Metrics;
use super::strategy::{Strategy, StrategyName};
use super::webhook::{self, Webhook};

/// What chooses, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chooser {
    /// A strategy of ours.
    Strategy(StrategyName),
    /// An endpoint of the operator's.
    Webhook(webhook::Settings),
}

impl Chooser {
    /// The name as settings and explanations have it.
    pub fn name(&self) -> &'static str {
        match self {
            Chooser::Strategy(name) => name.as_str(),
            Chooser::Webhook(_) => webhook::NAME,
        }
    }
}

impl Default for Chooser {
    fn default() -> Self {
        Chooser::Strategy(StrategyName::default())
    }
}

impl fmt::Display for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What chooses, ready to be used.
#[derive(Clone)]
pub(super) enum InUse {
    Strategy(StrategyName),
    Webhook(Arc<Webhook>),
}

impl InUse {
    pub(super) fn new(chooser: &Chooser, metrics: &Metrics) -> Self {
        match chooser {
            Chooser::Strategy(name) => InUse::Strategy(*name),
            Chooser::Webhook(settings) => InUse::Webhook(Arc::new(Webhook::new(settings.clone(), metrics.clone()))),
        }
    }

    /// The strategy of ours, which has a say in which Routers may take a route; the webhook has none.
    pub(super) fn strategy(&self) -> Option<&'static dyn Strategy> {
        match self {
            InUse::Strategy(name) => Some(name.strategy()),
            InUse::Webhook(_) => None,
        }
    }

    /// Whether this is that very webhook, not another one or another start of it.
    pub(super) fn is(&self, webhook: &Arc<Webhook>) -> bool {
        matches!(self, InUse::Webhook(current) if Arc::ptr_eq(current, webhook))
    }
}
