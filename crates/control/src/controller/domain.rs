//! Whose objects these are: the ledger's parent Zone is named after the domain of the platform that wrote it.
//!
//! A process that is configured for another domain would take every name of that one away and give all routes others, be it
//! by a typing error or by a flag left out. So it does nothing before [`disagreement`] has found none: where the API is in
//! the process it does not start, and where the API is elsewhere it waits, and says so. A platform whose domain is meant to
//! change says which one it had before (`former-domain`).
//!
//! A platform without Routers and Routes has no names to lose: the scheduler, or the process with the API, takes it over under
//! any domain ([`Duty::Lead`]), and removes the Zones of the other one.

use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, ListParams, Preconditions};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use signpost_api::v1alpha1::route::Route;
use signpost_api::v1alpha1::router::Router;
use signpost_api::v1alpha1::zone::{Zone, ZoneKind};

/// How often it is looked again while the domains differ, or the API does not say.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How long the API may take to say.
const ASK_TIMEOUT: Duration = Duration::from_secs(15);
/// Zones of one page.
const PAGE_ZONES: u32 = 500;

/// The objects are of another domain than this process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API's objects are of the platform {found} (its Zone says so), and this process is configured for {configured}, under \
     which every name would be another one: set domain to {found} (--domain); or, if the domain is to change and all names \
     with it, set former-domain to {found} (--former-domain)"
)]
pub struct DomainMismatch {
    /// The domain of the objects.
    pub found: String,
    /// That of this process.
    pub configured: String,
}

/// A platform's domain, and the one that it had before; both without a dot at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domains {
    /// The domain.
    pub domain: String,
    /// What it was before, if it is being changed.
    pub former: Option<String>,
}

impl Domains {
    /// A domain that was never another one.
    pub fn unchanged(domain: &str) -> Self {
        Domains { domain: domain.to_owned(), former: None }
    }

    /// Whether what is of the domain `found` may be taken over, and what comes of it if not.
    pub fn agree(&self, found: &str) -> Result<(), DomainMismatch> {
        if found == self.domain || self.former.as_deref() == Some(found) {
            return Ok(());
        }
        Err(DomainMismatch { found: found.to_owned(), configured: self.domain.clone() })
    }
}

/// What a process does where the domain of the API's objects is another one and there are none but Zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// It waits until another process has taken the platform over.
    Follow,
    /// It takes the platform over.
    Lead,
}

/// As [`disagreement`], after a platform without Routers and Routes was taken over.
///
/// # Errors
///
/// Those of the client.
pub async fn disagreement_after_taking_over(
    client: &kube::Client,
    domains: &Domains,
) -> kube::Result<Option<DomainMismatch>> {
    let Some(other) = disagreement(client, domains).await? else { return Ok(None) };
    let one = ListParams::default().limit(1);
    let (routers, routes): (Api<Router>, Api<Route>) = (Api::all(client.clone()), Api::all(client.clone()));
    if !routers.list(&one).await?.items.is_empty() || !routes.list(&one).await?.items.is_empty() {
        return Ok(Some(other));
    }
    let zones: Api<Zone> = Api::all(client.clone());
    // Without Routers there are few: those of the platform, and what is left of shards that went a moment ago.
    for zone in zones.list(&ListParams::default()).await?.items {
        let name = zone.metadata.name.unwrap_or_default();
        let preconditions = Some(Preconditions { uid: zone.metadata.uid, resource_version: None });
        match zones.delete(&name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
            Ok(_) => {
                tracing::info!(zone = %name, "the Zone of the former domain was removed: there are no Routers and Routes")
            }
            // Another process was faster.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
    }
    disagreement(client, domains).await
}

/// How the domain of the API's objects differs from that of `domains`, if it does. An API without a parent Zone is anyone's.
///
/// # Errors
///
/// Those of the client.
pub async fn disagreement(client: &kube::Client, domains: &Domains) -> kube::Result<Option<DomainMismatch>> {
    let api: Api<Zone> = Api::all(client.clone());
    let is_parent = |zone: &Zone| zone.spec.kind == ZoneKind::Parent;
    match api.get_opt(&domains.domain).await {
        Ok(own) if own.as_ref().is_some_and(is_parent) => return Ok(None),
        // It is there, and damaged.
        Err(kube::Error::Api(status)) if status.reason == "StoreReadError" => return Ok(None),
        own => drop(own?),
    }
    // It is one among those of all shards; but they are looked through only where our own is not there.
    let mut page = ListParams::default().limit(PAGE_ZONES);
    loop {
        let zones = api.list(&page).await?;
        let parents =
            zones.items.iter().filter(|zone| is_parent(zone)).filter_map(|zone| zone.metadata.name.as_deref());
        if let Some(other) = parents.filter_map(|found| domains.agree(found).err()).next() {
            return Ok(Some(other));
        }
        match zones.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(None),
        }
    }
}

/// Waits until the domains agree, and has `report` told why they do not. Whether they do by now: `false` is the end by `stop`.
pub async fn agreed(
    client: &kube::Client,
    domains: &Domains,
    duty: Duty,
    stop: &CancellationToken,
    report: impl Fn(Option<&DomainMismatch>),
) -> bool {
    let mut reported = None;
    let look = async || match duty {
        Duty::Follow => disagreement(client, domains).await,
        Duty::Lead => disagreement_after_taking_over(client, domains).await,
    };
    loop {
        let found = tokio::select! {
            () = stop.cancelled() => return false,
            found = timeout(ASK_TIMEOUT, look()) => found,
        };
        match found {
            Ok(Ok(None)) => {
                report(None);
                return true;
            }
            Ok(Ok(Some(other))) => {
                report(Some(&other));
                if reported.as_ref() != Some(&other) {
                    tracing::error!("nothing is done: {other}");
                    reported = Some(other);
                }
            }
            // Whoever cannot be heard is told by all the informers.
            Ok(Err(error)) => tracing::debug!(%error, "the API does not say of which domain its objects are"),
            Err(_) => tracing::debug!("the API did not say in time of which domain its objects are"),
        }
        tokio::select! {
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}
