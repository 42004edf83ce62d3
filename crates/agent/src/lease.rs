//! The Lease by which an instance reports to the platform: that it serves, where, and what.
//!
//! The namespace is [`AGENT_NAMESPACE`]. The annotations below hold the report. An instance whose proxy accepts no connections does not
//! renew its Lease, so that it expires; an instance that has left deletes it.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use signpost_api::access::AGENT_NAMESPACE;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The label of all Leases of router instances; its value is `router-instance`.
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// The prefix of the annotations: `router`, `address`, `http-port`, `https-port`, `proxy`, `version`, `state` (`serving` or `leaving`),
/// `faults` (the number of Routes and certificates that are not, or not wholly, served) and `applied-revision` (every RouteBinding of
/// the Router up to this resource version is applied).
pub const ANNOTATION_PREFIX: &str = "instance.signpost.dev/";
/// Longer than this without a renewal, an instance counts as dead.
const DURATION: Duration = Duration::from_secs(15);
/// The time between two renewals. Two can fail before the Lease expires.
const RENEWAL: Duration = Duration::from_secs(5);
/// The time between two tries after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// The least time between two renewals, also if the applied revision changes.
const PAUSE: Duration = Duration::from_millis(100);
/// The time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// An instance of a Router.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The name of the Router.
    pub router: String,
    /// The address at which clients reach the proxy.
    pub address: IpAddr,
    /// The port for plain HTTP.
    pub http_port: u16,
    /// The port for TLS.
    pub https_port: u16,
    /// The word for the proxy, such as `haproxy`.
    pub proxy: &'static str,
}

/// The state of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Every RouteBinding of the Router up to this resource version is applied; 0 if that is unknown.
    pub revision: u64,
    /// The Routes that are served.
    pub routes: usize,
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
    /// Returns the name of its Lease, which is unique among the instances of a platform.
    fn lease(&self) -> String {
        let address: String = self.address.to_string().replace(['.', ':'], "-");
        format!("router-{}-{address}-{}", self.router, self.http_port)
    }

    fn object(&self, report: &Report) -> Value {
        let Instance { router, address, http_port, https_port, proxy } = self;
        let state = if report.is_leaving { "leaving" } else { "serving" };
        let annotations = [
            ("router", router.clone()),
            ("address", address.to_string()),
            ("http-port", http_port.to_string()),
            ("https-port", https_port.to_string()),
            ("proxy", (*proxy).to_owned()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("state", state.to_owned()),
            ("faults", report.faults.to_string()),
            ("applied-revision", report.revision.to_string()),
        ];
        let annotations = annotations.map(|(name, value)| (format!("{ANNOTATION_PREFIX}{name}"), Value::from(value)));
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.lease(),
                "labels": {COMPONENT_LABEL: "router-instance"},
                "annotations": serde_json::Map::from_iter(annotations),
            },
            "spec": {
                "holderIdentity": self.lease(),
                "leaseDurationSeconds": DURATION.as_secs(),
                "renewTime": format!("{:.6}", Timestamp::now()),
            },
        })
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
        while !stop.is_cancelled() {
            let report = reports.borrow_and_update().clone();
            let mut pause = RENEWAL;
            if report.is_serving {
                let (name, object) = (self.lease(), Patch::Apply(self.object(&report)));
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
                Ok(()) = reports.changed() => sleep(PAUSE).await,
            }
        }
        let deleted = timeout(REQUEST_TIMEOUT, leases.delete(&self.lease(), &DeleteParams::default())).await;
        if !matches!(deleted, Ok(Ok(_))) {
            tracing::warn!("failed to delete the Lease; it expires within {} s", DURATION.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report() {
        let instance = |address: &str| Instance {
            router: "shard1".to_owned(),
            address: address.parse().expect("an address"),
            http_port: 80,
            https_port: 443,
            proxy: "haproxy",
        };
        let report = Report { revision: 7, faults: 2, is_leaving: true, ..Report::default() };
        let lease: Lease = serde_json::from_value(instance("192.0.2.1").object(&report)).expect("a Lease");
        let annotations = lease.metadata.annotations.expect("the report");
        for (name, value) in
            [("address", "192.0.2.1"), ("state", "leaving"), ("applied-revision", "7"), ("faults", "2")]
        {
            assert_eq!(annotations[&format!("{ANNOTATION_PREFIX}{name}")], value);
        }
        assert_eq!(lease.spec.expect("a spec").lease_duration_seconds, Some(15));
        assert_eq!(instance("192.0.2.1").lease(), "router-shard1-192-0-2-1-80");
        assert_eq!(instance("2001:db8::").lease(), "router-shard1-2001-db8---80");
    }
}
