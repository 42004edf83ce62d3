//! The Lease by which an instance reports to the platform: that it serves, where, and what.
//!
//! The [format](signpost_types::instance) is shared with the platform. An instance whose proxy accepts no connections does not renew its
//! Lease, so that it expires; an instance that has left deletes it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use signpost_types::instance::{AGENT_NAMESPACE, CertificatesReport, InstanceReport, LEASE_DURATION, TrafficAccess};
use signpost_types::v1alpha1::router::InstanceState;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// The time between two renewals. Two can fail before the Lease expires.
const RENEWAL: Duration = Duration::from_secs(5);
/// The time between two tries after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// The least time between two renewals on average. Two in a row need no pause, so that a change that follows a periodic renewal is
/// reported at once.
const PAUSE: Duration = Duration::from_millis(100);
/// The time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// An instance of a Router.
#[derive(Clone, Debug)]
pub struct Instance {
    pub router: String,
    /// The address at which clients reach the proxy.
    pub address: IpAddr,
    /// The port for plain HTTP.
    pub http_port: u16,
    /// The port for TLS.
    pub https_port: u16,
    /// The word for the proxy, such as `haproxy`.
    pub proxy: &'static str,
    /// The way to read the traffic.
    pub traffic: Option<TrafficAccess>,
}

/// The resource versions up to which all objects of a kind that concern the Router are applied; 0 if that is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revisions {
    /// That of RouteBindings.
    pub bindings: u64,
    /// That of Routes.
    pub routes: u64,
}

impl Revisions {
    /// Returns the lower one of each kind.
    pub(crate) fn min(self, other: Revisions) -> Revisions {
        Revisions { bindings: self.bindings.min(other.bindings), routes: self.routes.min(other.routes) }
    }
}

/// The state of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The applied objects.
    pub revisions: Revisions,
    /// The certificates that the proxy serves; `None` if they are unknown.
    pub certificates: Option<Arc<CertificatesReport>>,
    /// The Routes that are served.
    pub routes: usize,
    /// The endpoints of the Routes that can get requests. A change of this number alone is reported with the next renewal.
    pub endpoints: usize,
    /// The Routes and certificates that are not, or not wholly, served.
    pub faults: usize,
    /// The Sites that were applied.
    pub changes: u64,
    /// The starts and reloads of the proxy among them.
    pub reloads: u64,
    /// Whether the objects of the API are known; if not, the last Site of an earlier run is served.
    pub is_synced: bool,
    /// Whether the proxy accepts connections.
    pub is_serving: bool,
    /// Whether the instance is about to stop.
    pub is_leaving: bool,
    /// The reason why the last Site could not be applied.
    pub error: Option<String>,
}

impl Instance {
    fn report(&self, report: &Report) -> InstanceReport {
        let Instance { router, address, http_port, https_port, proxy, traffic } = self.clone();
        InstanceReport {
            http_port,
            https_port,
            proxy: proxy.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: if report.is_leaving { InstanceState::Leaving } else { InstanceState::Serving },
            faults: u32::try_from(report.faults).unwrap_or(u32::MAX),
            endpoints: Some(u32::try_from(report.endpoints).unwrap_or(u32::MAX)),
            applied_revision: report.revisions.bindings,
            applied_routes: Some(report.revisions.routes),
            certificates: report.certificates.as_deref().cloned(),
            traffic,
            ..InstanceReport::new(&router, address, Timestamp::now())
        }
    }

    /// Keeps the Lease until `stop` fires, then deletes it. Sets `renewed` to whether the last request succeeded.
    pub(crate) async fn keep(
        self,
        client: kube::Client,
        mut reports: watch::Receiver<Report>,
        renewed: watch::Sender<bool>,
        stop: CancellationToken,
    ) {
        let leases: Api<Lease> = Api::namespaced(client, AGENT_NAMESPACE);
        let parameters = PatchParams::apply("signpost-agent").force();
        let name = self.report(&Report::default()).lease_name();
        // The time at which as many renewals as there were are due.
        let mut due = Instant::now();
        while !stop.is_cancelled() {
            let report = reports.borrow_and_update().clone();
            let mut pause = RENEWAL;
            due = due.max(Instant::now()) + PAUSE;
            if report.is_serving {
                let object = Patch::Apply(self.report(&report).to_lease());
                let request = leases.patch(&name, &parameters, &object);
                let result = timeout(REQUEST_TIMEOUT, request).await;
                let error = match result {
                    Ok(Ok(_)) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some("timed out".to_owned()),
                };
                renewed.send_if_modified(|renewed| std::mem::replace(renewed, error.is_none()) != error.is_none());
                if let Some(error) = error {
                    tracing::warn!(error, "failed to renew the Lease; retrying");
                    pause = RETRY;
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(pause) => {}
                Ok(()) = reports.changed() => sleep_until(due - PAUSE).await,
            }
        }
        let deleted = timeout(REQUEST_TIMEOUT, leases.delete(&name, &DeleteParams::default())).await;
        if !matches!(deleted, Ok(Ok(_))) {
            tracing::warn!("failed to delete the Lease; it expires within {} s", LEASE_DURATION.as_secs());
        }
    }
}
