//! Verification of the platform domain of the API's objects: the ledger's parent Zone is named after it.
//!
//! A process with another configured domain would remove every name and give all routes new ones, because of a typing error or a
//! missing flag. So it does nothing until [`disagreement`] returns none. A process with the API in it does not start; a process
//! with a remote API waits, and reports the mismatch. To change the domain of a platform, configure the old one too
//! (`former-domain`).
//!
//! The parent Zone of a domain lists the former domains that are still served. So the API has them for every process, and the
//! setting is needed only for the change itself: a process in which it is missing or left over does nothing else. A domain that
//! another one lists is not the platform's: a process with it as its domain was forgotten in the change.
//!
//! A platform without Routers, Routes and RouteBindings has no names to lose: the scheduler, or the process with the API, takes it over under
//! any domain ([`Duty::Lead`]), and removes the Zones of the old domain.

use std::time::Duration;

use kube::Api;
use kube::api::{ListParams, Preconditions};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::write;
use crate::compiler::settings::text_of;
use crate::world::parents::Parents;
use signpost_dns::wire::Name;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::zone::Zone;

/// The interval of checks while the domains differ, or the API does not respond.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// The interval of checks for a change of the domain by another process.
const CHANGE_INTERVAL: Duration = Duration::from_secs(10);
/// The time limit of a check.
const ASK_TIMEOUT: Duration = Duration::from_secs(15);
const PAGE_ZONES: u32 = 500;

/// The objects are of another domain than this process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "domain mismatch: this process is configured for {configured}, but the API's objects belong to the platform domain \
     {found}; set domain to {found} (--domain), or, to rename every Route to {configured}, set former-domain to \
     {found} (--former-domain)"
)]
pub struct DomainMismatch {
    pub found: String,
    /// That of this process.
    pub configured: String,
}

/// A platform's domain, and its former domain; both without a trailing dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domains {
    pub domain: String,
    /// The former domain, while the domain is being changed.
    pub former: Option<String>,
}

impl Domains {
    /// Returns a domain that was never changed.
    pub fn unchanged(domain: &str) -> Self {
        Domains { domain: domain.to_owned(), former: None }
    }

    /// Returns the former domain as a name.
    pub fn former_name(&self) -> Option<Name> {
        self.former.as_ref()?.parse().ok()
    }

    /// Checks that objects of the domain `found` may be taken over; the error states the consequences.
    pub fn agree(&self, found: &str) -> Result<(), DomainMismatch> {
        if found == self.domain || self.former.as_deref() == Some(found) {
            return Ok(());
        }
        Err(DomainMismatch { found: found.to_owned(), configured: self.domain.clone() })
    }
}

/// The duty of a process if the API's objects are of another domain and are only Zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// The process waits until another one has taken the platform over.
    Follow,
    /// The process takes the platform over.
    Lead,
}

/// Returns the result of [`disagreement`] after taking over a platform without Routers, Routes and RouteBindings.
///
/// # Errors
///
/// The errors of the client.
pub async fn disagreement_after_taking_over(
    client: &kube::Client,
    domains: &Domains,
) -> kube::Result<Option<DomainMismatch>> {
    let Some(other) = disagreement(client, domains).await? else { return Ok(None) };
    let one = ListParams::default().limit(1);
    let (routers, routes): (Api<Router>, Api<Route>) = (Api::all(client.clone()), Api::all(client.clone()));
    let bindings: Api<RouteBinding> = Api::all(client.clone());
    // The bindings of lost Routes are still there.
    if !routers.list(&one).await?.items.is_empty()
        || !routes.list(&one).await?.items.is_empty()
        || !bindings.list(&one).await?.items.is_empty()
    {
        return Ok(Some(other));
    }
    let zones: Api<Zone> = Api::all(client.clone());
    // Without Routers there are few Zones: the platform's, and those of recently deleted shards.
    for zone in zones.list(&ListParams::default()).await?.items {
        let name = zone.metadata.name.unwrap_or_default();
        let preconditions = Some(Preconditions { uid: zone.metadata.uid, resource_version: None });
        // Otherwise another process was faster.
        if write::delete(&zones, &name, preconditions).await? {
            tracing::info!(zone = %name, "removed the Zone of the former domain: it has no Routers or Routes");
        }
    }
    disagreement(client, domains).await
}

/// Returns the difference between the domain of the API's objects and that of `domains`, if there is one. An API without a parent
/// Zone matches any domain.
///
/// # Errors
///
/// The errors of the client.
pub async fn disagreement(client: &kube::Client, domains: &Domains) -> kube::Result<Option<DomainMismatch>> {
    let api: Api<Zone> = Api::all(client.clone());
    match api.get_opt(&domains.domain).await {
        // It is there, and damaged.
        Err(kube::Error::Api(status)) if status.reason == "StoreReadError" => return Ok(None),
        own => drop(own?),
    }
    let mut parents = Parents::default();
    let mut page = ListParams::default().fields("spec.type=parent").limit(PAGE_ZONES);
    loop {
        let zones = api.list(&page).await?;
        for zone in &zones.items {
            if let Some(apex) = zone.metadata.name.as_deref().and_then(|name| name.parse().ok()) {
                parents.set(&apex, Some(zone));
            }
        }
        match zones.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(disagreement_of(&parents, domains)),
        }
    }
}

/// Returns the difference between the domain of the parent Zones and that of `domains`, if there is one.
fn disagreement_of(parents: &Parents, domains: &Domains) -> Option<DomainMismatch> {
    let own: Name = domains.domain.parse().ok()?;
    let agrees = |found: &Name| domains.agree(&text_of(found)).err();
    if parents.former_domains(&own).is_some() {
        return parents.successor(&own).and_then(agrees);
    }
    parents.others(&own).filter(|apex| parents.successor(apex).is_none()).find_map(agrees)
}

/// Waits until a domain that agreed no longer does: another process has changed it.
pub async fn disagrees(client: &kube::Client, domains: &Domains) {
    loop {
        tokio::time::sleep(CHANGE_INTERVAL).await;
        if let Ok(Ok(Some(_))) = timeout(ASK_TIMEOUT, disagreement(client, domains)).await {
            return;
        }
    }
}

/// Waits until the domains agree, and calls `report` with the reason while they do not. Returns `false` if `stop` ended the wait.
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
                    tracing::error!("waiting for a matching domain: {other}");
                    reported = Some(other);
                }
            }
            // The informers report an API that is unreachable.
            Ok(Err(error)) => tracing::debug!(%error, "failed to read the platform domain of the API's objects"),
            Err(_) => tracing::debug!("timed out reading the platform domain of the API's objects"),
        }
        tokio::select! {
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}
