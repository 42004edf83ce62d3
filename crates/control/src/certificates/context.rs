//! The parts of the loop that all orders use.

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Settings;
use super::budget::Budget;
use super::ca::{self, Session};
use super::plan::Failure;
use crate::observe::programmed::Clients;

pub(super) struct Context {
    pub(super) client: kube::Client,
    pub(super) settings: Settings,
    pub(super) instances: Clients,
    pub(super) http: reqwest::Client,
    pub(super) budget: Mutex<Budget>,
    /// Held while an account is read or created, so that there is one.
    account: tokio::sync::Mutex<()>,
    thumbprint: watch::Sender<Option<String>>,
}

impl Context {
    pub(super) fn new(
        client: kube::Client,
        settings: Settings,
        instances: Clients,
        budget: Budget,
        thumbprint: watch::Sender<Option<String>>,
    ) -> Result<Context, String> {
        let http = ca::http(&settings.ca)?;
        let (budget, account) = (Mutex::new(budget), tokio::sync::Mutex::default());
        Ok(Context { client, settings, instances, http, budget, account, thumbprint })
    }

    pub(super) async fn session(&self) -> Result<Session, Failure> {
        let _one = self.account.lock().await;
        let session = ca::open(&self.client, &self.settings.ca, &self.http).await?;
        self.thumbprint.send_if_modified(|known| known.replace(session.thumbprint.clone()) != *known);
        Ok(session)
    }
}
