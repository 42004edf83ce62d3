//! The parts of the loop that all orders use.

use tokio::sync::{Mutex, watch};

use super::Settings;
use super::budget::{Budget, PlacedOrder};
use super::ca::{self, Session};
use super::objects;
use super::plan::Failure;
use super::suggestions::Suggestions;
use crate::observe::programmed::Clients;

pub(super) struct Context {
    pub(super) client: kube::Client,
    pub(super) settings: Settings,
    pub(super) instances: Clients,
    pub(super) http: reqwest::Client,
    pub(super) suggestions: Suggestions,
    /// `None`: the orders of former leaders are not known yet.
    budget: Mutex<Option<Budget>>,
    /// Held while an account is read or created, so that there is one.
    account: Mutex<()>,
    thumbprint: watch::Sender<Option<String>>,
}

impl Context {
    pub(super) fn new(
        client: kube::Client,
        settings: Settings,
        instances: Clients,
        thumbprint: watch::Sender<Option<String>>,
    ) -> Result<Context, String> {
        let http = ca::http(&settings.ca)?;
        let (suggestions, budget, account) = (Suggestions::default(), Mutex::default(), Mutex::default());
        Ok(Context { client, settings, instances, http, suggestions, budget, account, thumbprint })
    }

    /// Counts an order of a namespace, or returns the time at which there can be one.
    pub(super) async fn take_order(&self, namespace: Option<&str>, now: i64) -> kube::Result<Result<PlacedOrder, i64>> {
        self.with_budget(|budget| budget.take(namespace, now)).await
    }

    /// Returns the time at which a namespace can have an order, unless it can have one now.
    pub(super) async fn may_order(&self, namespace: Option<&str>, now: i64) -> kube::Result<Result<(), i64>> {
        self.with_budget(|budget| budget.check(namespace, now)).await
    }

    async fn with_budget<T>(&self, work: impl FnOnce(&mut Budget) -> T) -> kube::Result<T> {
        let mut budget = self.budget.lock().await;
        let budget = match &mut *budget {
            Some(budget) => budget,
            unknown => {
                let Settings { namespace_orders, orders, .. } = self.settings;
                unknown.insert(Budget::new(namespace_orders, orders, objects::orders(&self.client).await?))
            }
        };
        Ok(work(budget))
    }

    pub(super) async fn session(&self) -> Result<Session, Failure> {
        let _one = self.account.lock().await;
        let session = ca::open(&self.client, &self.settings.ca, &self.http).await?;
        self.thumbprint.send_if_modified(|known| known.replace(session.thumbprint.clone()) != *known);
        Ok(session)
    }
}
