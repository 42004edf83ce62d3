//! The report of a Router's instance: a Lease that its agent renews.
//!
//! The Leases are in [`AGENT_NAMESPACE`] and have the label [`SELECTOR`]. Annotations contain the
//! report. An instance that leaves deletes its Lease; the Lease of an instance that was killed expires.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::v1alpha1::router::{Instance, InstanceState};

/// The namespace in which router agents keep their Leases. It always exists, and differs from that of the schedulers' Lease.
pub const AGENT_NAMESPACE: &str = "default";
/// The label of all Leases of instances, as a label selector.
pub const SELECTOR: &str = "app.kubernetes.io/component=router-instance";
/// The time without a renewal after which an instance counts as dead.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);

/// The prefix of the annotations.
const PREFIX: &str = "instance.signpost.dev/";

/// Returns the name of an instance's Lease, which is unique among the instances of a platform: `router-NAME.ADDRESS-PORT`. The
/// text after the last dot is never part of the Router's name, so the name determines which agent may write the Lease.
pub fn lease_name(router: &str, address: IpAddr, http_port: u16) -> String {
    let address = match address {
        IpAddr::V4(address) => address.to_string().replace('.', "-"),
        // With all zeros, because no name ends in a dash.
        IpAddr::V6(address) => address.segments().map(|segment| format!("{segment:x}")).join("-"),
    };
    format!("router-{router}.{address}-{http_port}")
}

/// Returns the Router whose instances have a Lease of this name.
pub fn router_of(lease_name: &str) -> Option<&str> {
    Some(lease_name.strip_prefix("router-")?.rsplit_once('.')?.0)
}

/// A report. Each field but `renewed` and `duration` is an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceReport {
    /// The name of the Router.
    pub router: String,
    /// The address at which clients reach the proxy.
    pub address: IpAddr,
    /// The port for plain HTTP.
    pub http_port: u16,
    /// The port for TLS.
    pub https_port: u16,
    /// The word for the proxy, such as `haproxy`.
    pub proxy: String,
    /// The version of the agent.
    pub version: String,
    /// `serving` or `leaving`.
    pub state: InstanceState,
    /// The number of Routes and certificates that are not served, or served only in part.
    pub faults: u32,
    /// The resource version up to which all RouteBindings of the Router are applied; 0 if it is unknown.
    pub applied_revision: u64,
    /// The time when the Lease was renewed, by the clock of the agent.
    pub renewed: Timestamp,
    /// The time from a renewal to the expiry of the Lease.
    pub duration: Duration,
}

impl InstanceReport {
    /// Returns the [name](lease_name) of its Lease.
    pub fn lease_name(&self) -> String {
        lease_name(&self.router, self.address, self.http_port)
    }

    /// Returns the Lease with this report.
    pub fn to_lease(&self) -> Lease {
        let state = if self.state == InstanceState::Leaving { "leaving" } else { "serving" };
        let annotations = [
            ("router", self.router.clone()),
            ("address", self.address.to_string()),
            ("http-port", self.http_port.to_string()),
            ("https-port", self.https_port.to_string()),
            ("proxy", self.proxy.clone()),
            ("version", self.version.clone()),
            ("state", state.to_owned()),
            ("faults", self.faults.to_string()),
            ("applied-revision", self.applied_revision.to_string()),
        ];
        let annotations = annotations.map(|(name, value)| (format!("{PREFIX}{name}"), value));
        let labels = SELECTOR.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        Lease {
            metadata: ObjectMeta {
                name: Some(self.lease_name()),
                labels: Some(labels.into_iter().collect()),
                annotations: Some(annotations.into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.lease_name()),
                lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
                renew_time: Some(MicroTime(self.renewed)),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Parses a Lease; `None`: it is not the report of an instance.
    pub fn read(lease: &Lease) -> Option<InstanceReport> {
        let annotations = lease.metadata.annotations.as_ref()?;
        let text = |name: &str| annotations.get(&format!("{PREFIX}{name}")).map(String::as_str);
        let spec = lease.spec.as_ref()?;
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let report = InstanceReport {
            router: text("router")?.to_owned(),
            address: text("address")?.parse().ok()?,
            http_port: text("http-port")?.parse().ok()?,
            https_port: text("https-port")?.parse().ok()?,
            proxy: text("proxy")?.to_owned(),
            version: text("version").unwrap_or_default().to_owned(),
            state: if text("state") == Some("leaving") { InstanceState::Leaving } else { InstanceState::Serving },
            faults: text("faults").and_then(|count| count.parse().ok()).unwrap_or(0),
            applied_revision: text("applied-revision").and_then(|revision| revision.parse().ok()).unwrap_or(0),
            renewed: spec.renew_time.as_ref()?.0,
            duration: seconds.map_or(LEASE_DURATION, Duration::from_secs),
        };
        // The check prevents that an agent reports the address of another by mistake.
        (lease.metadata.name.as_deref() == Some(&report.lease_name())).then_some(report)
    }

    /// Returns the entry for this instance in the status of its Router.
    pub fn to_instance(&self, is_expired: bool) -> Instance {
        Instance {
            name: self.lease_name(),
            ip: self.address.to_string(),
            http_port: self.http_port,
            https_port: self.https_port,
            state: if is_expired { InstanceState::Expired } else { self.state },
            proxy: self.proxy.clone(),
            version: self.version.clone(),
            faults: self.faults,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(address: &str) -> InstanceReport {
        InstanceReport {
            router: "shard1".to_owned(),
            address: address.parse().expect("an address"),
            http_port: 80,
            https_port: 443,
            proxy: "haproxy".to_owned(),
            version: "1.0".to_owned(),
            state: InstanceState::Leaving,
            faults: 2,
            applied_revision: 7,
            renewed: Timestamp::UNIX_EPOCH,
            duration: LEASE_DURATION,
        }
    }

    #[test]
    fn a_lease_says_it_all() {
        for (address, name) in
            [("192.0.2.1", "router-shard1.192-0-2-1-80"), ("2001:db8::", "router-shard1.2001-db8-0-0-0-0-0-0-80")]
        {
            assert_eq!(router_of(name), Some("shard1"));
            let lease = report(address).to_lease();
            assert_eq!(lease.metadata.name.as_deref(), Some(name));
            assert_eq!(InstanceReport::read(&lease), Some(report(address)));
        }
    }

    /// Agents and control planes can have different versions, so the format never changes.
    #[test]
    fn its_words() {
        let lease = serde_json::to_value(report("192.0.2.1").to_lease()).expect("JSON");
        let annotations = &lease["metadata"]["annotations"];
        for (name, value) in [("router", "shard1"), ("state", "leaving"), ("applied-revision", "7"), ("faults", "2")] {
            assert_eq!(annotations[format!("instance.signpost.dev/{name}")], value, "{lease}");
        }
        assert_eq!(lease["metadata"]["labels"]["app.kubernetes.io/component"], "router-instance");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
    }

    #[test]
    fn what_is_not_a_report() {
        let lease = report("192.0.2.1").to_lease();
        let without = |name: &str| {
            let mut lease = lease.clone();
            lease.metadata.annotations.as_mut().expect("the report").remove(&format!("{PREFIX}{name}"));
            lease
        };
        for name in ["router", "address", "http-port", "https-port", "proxy"] {
            assert_eq!(InstanceReport::read(&without(name)), None, "{name}");
        }
        let mut renamed = lease.clone();
        renamed.metadata.name = Some("router-shard1.192-0-2-2-80".to_owned());
        assert_eq!(InstanceReport::read(&renamed), None);
        assert_eq!(InstanceReport::read(&Lease::default()), None);
    }
}
