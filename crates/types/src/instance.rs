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
use serde::{Deserialize, Serialize};

use crate::names::host_hash;
use crate::v1alpha1::router::{Instance, InstanceState};

/// The namespace in which router agents keep their Leases. It belongs to the platform, because a Lease puts an address into DNS: in a
/// cluster, the roles `edit` and `admin` of a namespace include its Leases. It differs from the namespace of the schedulers' Lease, which
/// agents have no rights on.
pub const AGENT_NAMESPACE: &str = "signpost-machines";
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

/// Returns the name of the Secret, in [`AGENT_NAMESPACE`], with the certificate that the platform got for a host of a Router: a custom host,
/// or `*.` and the zone of the Router for its wildcard. As for [`lease_name`], the name determines which agents may read it.
pub fn certificate_name(router: &str, host: &str) -> String {
    format!("router-{router}.{}", host_hash(host))
}

/// Returns the Router whose instances have a Lease, or a certificate of the platform, of this name.
pub fn router_of(name: &str) -> Option<&str> {
    Some(name.strip_prefix("router-")?.rsplit_once('.')?.0)
}

/// The maximum size of the annotation with certificates, in bytes: a quarter of what Kubernetes allows for all annotations of an
/// object. It holds about 400 certificates with one name each. A Lease is written every few seconds, and each write stores it whole.
pub const CERTIFICATES_BYTES_MAX: usize = 64 << 10;

/// The certificates of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificatesReport {
    /// The certificates by host, in ascending order.
    #[serde(default)]
    pub certificates: Vec<CertificateReport>,
    /// The number of hosts that the report leaves out, because of its maximum size.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
}

/// The certificate that an instance has for a host. It contains nothing that clients of the host do not see, apart from `fault`. With
/// neither `served` nor `fault`, the report has no room for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateReport {
    /// The name in TLS handshakes for which the proxy uses it: a host, or `*.` and a domain. A wildcard matches one label.
    pub host: String,
    /// The certificate; absent with a fault: the proxy has none for the host.
    #[serde(flatten)]
    pub served: Option<ServedCertificate>,
    /// The reason why the file or the Secret of the host is not used. With `served`, the proxy uses an earlier certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The Secret that a Route of the host names; `None`: the certificate is one that the platform got, or from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretReport>,
}

/// The Secret of a host's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretReport {
    /// The name of the Secret, in the namespace of the Route.
    pub name: String,
    /// The reason why it is not used, with `fault` as the details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SecretFault>,
}

/// A reason why an agent does not use a Secret, the most basic first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SecretFault {
    /// The agent may not read it.
    Forbidden,
    /// The Secret does not exist.
    NotFound,
    /// The type is not `kubernetes.io/tls`.
    WrongType,
    /// The certificate, the chain, or the key is too large, or the namespace has too many.
    TooLarge,
    /// The certificate or the key cannot be read, or is too weak.
    Invalid,
    /// The key does not belong to the certificate.
    KeyMismatch,
    /// The certificate is not for the host.
    NameMismatch,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The agent has not read it yet, or the API does not answer. Also a reason that this version does not know.
    #[serde(other)]
    Unread,
}

/// The maximum size of the annotation with the access to traffic, in bytes.
pub const TRAFFIC_BYTES_MAX: usize = 4 << 10;

/// The path at which an agent serves its traffic. With the query `route=NAMESPACE/NAME`, it is that of one Route; with `namespace=NAME`,
/// which can be repeated, that of these namespaces; otherwise that of all Routes.
pub const TRAFFIC_PATH: &str = "/traffic";

/// The way to read the traffic of an instance: by HTTPS at its address. Both sides prove that they know the Lease: the agent has
/// the private key of the certificate in it, and a client sends the token. A user who may read the Lease may therefore read the traffic.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficAccess {
    /// The TCP port.
    pub port: u16,
    /// The bearer token: 64 lower-case hexadecimal digits.
    pub token: String,
    /// The only certificate that the agent has, which is self-signed: DER in base64.
    pub certificate: String,
}

impl std::fmt::Debug for TrafficAccess {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TrafficAccess(port {})", self.port)
    }
}

impl TrafficAccess {
    /// Returns the certificate in DER; `None`: it is not valid base64.
    pub fn certificate_der(&self) -> Option<Vec<u8>> {
        data_encoding::BASE64.decode(self.certificate.as_bytes()).ok()
    }

    fn is_valid(&self) -> bool {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        self.port > 0 && self.token.len() == 64 && self.token.bytes().all(is_digit) && self.certificate_der().is_some()
    }
}

/// A certificate that a proxy sends to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedCertificate {
    /// The SHA-256 fingerprint, in lower-case hexadecimal digits.
    pub sha256: String,
    /// The start of its validity, in seconds since 1970.
    pub not_before: i64,
    /// The last second of its validity, in seconds since 1970.
    pub not_after: i64,
    /// The DNS names that it is for, in lower case.
    #[serde(default)]
    pub names: Vec<String>,
}

impl ServedCertificate {
    /// Returns whether it is for a name, which is in lower case: one of its names is equal, or a wildcard for the first label
    /// (RFC 9525 §6.3).
    pub fn covers(&self, name: &str) -> bool {
        let parent = name.split_once('.').map(|(_, parent)| parent);
        let is_wildcard = |pattern: &str| pattern.strip_prefix("*.").is_some_and(|domain| parent == Some(domain));
        self.names.iter().any(|pattern| pattern == name || is_wildcard(pattern))
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl CertificateReport {
    fn of_host(host: &str) -> CertificateReport {
        CertificateReport { host: host.to_owned(), ..CertificateReport::default() }
    }

    /// Returns its size in the annotation.
    fn bytes(&self) -> usize {
        serde_json::to_string(self).map_or(0, |text| text.len() + ",".len())
    }
}

impl CertificatesReport {
    /// Returns a report of these certificates, which are in the order of their hosts. Hosts come before details where its maximum size
    /// does not allow all: a host without a certificate of its own uses that of a wildcard.
    pub fn new(mut certificates: Vec<CertificateReport>) -> CertificatesReport {
        let mut room = CERTIFICATES_BYTES_MAX - r#"{"certificates":[],"omitted":18446744073709551615}"#.len();
        let mut fits = |bytes: usize| {
            let fits = bytes <= room;
            room -= if fits { bytes } else { 0 };
            fits
        };
        let all = certificates.len();
        certificates.retain(|one| fits(CertificateReport::of_host(&one.host).bytes()));
        for certificate in &mut certificates {
            let host = CertificateReport::of_host(&certificate.host);
            if !fits(certificate.bytes() - host.bytes()) {
                *certificate = host;
            }
        }
        CertificatesReport { omitted: all - certificates.len(), certificates }
    }

    /// Returns the entry of a host or wildcard.
    pub fn of(&self, host: &str) -> Option<&CertificateReport> {
        let at = self.certificates.binary_search_by(|one| one.host.as_str().cmp(host)).ok()?;
        self.certificates.get(at)
    }
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
    /// The number of endpoints of all Routes that the instance serves; `None` if the agent does not report it.
    pub endpoints: Option<u32>,
    /// The resource version up to which all RouteBindings of the Router are applied; 0 if it is unknown.
    pub applied_revision: u64,
    /// The resource version up to which all Routes of the Router are applied; 0 if it is unknown, `None` if the agent does not
    /// report it.
    pub applied_routes: Option<u64>,
    /// The certificates that the proxy serves; `None` if they are unknown.
    pub certificates: Option<CertificatesReport>,
    /// The way to read the traffic of the instance; `None`: the agent offers none.
    pub traffic: Option<TrafficAccess>,
    /// The time when the Lease was renewed, by the clock of the agent.
    pub renewed: Timestamp,
    /// The time from a renewal to the expiry of the Lease.
    pub duration: Duration,
}

impl InstanceReport {
    /// Returns the report of an instance that serves with HAProxy at the usual ports, and has applied nothing.
    pub fn new(router: &str, address: IpAddr, renewed: Timestamp) -> InstanceReport {
        InstanceReport {
            router: router.to_owned(),
            address,
            http_port: 80,
            https_port: 443,
            proxy: "haproxy".to_owned(),
            version: String::new(),
            state: InstanceState::Serving,
            faults: 0,
            endpoints: None,
            applied_revision: 0,
            applied_routes: None,
            certificates: None,
            traffic: None,
            renewed,
            duration: LEASE_DURATION,
        }
    }

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
        let certificates = self.certificates.as_ref().and_then(|report| serde_json::to_string(report).ok());
        let optional = [
            ("applied-routes", self.applied_routes.map(|revision| revision.to_string())),
            ("endpoints", self.endpoints.map(|count| count.to_string())),
            ("certificates", certificates),
            ("traffic", self.traffic.as_ref().and_then(|access| serde_json::to_string(access).ok())),
        ];
        let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let annotations = annotations.into_iter().chain(optional);
        let annotations = annotations.map(|(name, value)| (format!("{PREFIX}{name}"), value)).collect();
        let labels = SELECTOR.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        Lease {
            metadata: ObjectMeta {
                name: Some(self.lease_name()),
                labels: Some(labels.into_iter().collect()),
                annotations: Some(annotations),
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
            endpoints: text("endpoints").and_then(|count| count.parse().ok()),
            applied_revision: text("applied-revision").and_then(|revision| revision.parse().ok()).unwrap_or(0),
            applied_routes: text("applied-routes").and_then(|revision| revision.parse().ok()),
            certificates: text("certificates")
                .filter(|report| report.len() <= CERTIFICATES_BYTES_MAX)
                .and_then(|report| serde_json::from_str(report).ok()),
            traffic: text("traffic")
                .filter(|access| access.len() <= TRAFFIC_BYTES_MAX)
                .and_then(|access| serde_json::from_str(access).ok())
                .filter(TrafficAccess::is_valid),
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
            endpoints: self.endpoints.filter(|_| !is_expired),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(address: &str) -> InstanceReport {
        InstanceReport {
            version: "1.0".to_owned(),
            state: InstanceState::Leaving,
            faults: 2,
            endpoints: Some(5),
            applied_revision: 7,
            applied_routes: Some(9),
            certificates: Some(CertificatesReport { certificates: certificates(), omitted: 3 }),
            traffic: Some(access()),
            ..InstanceReport::new("shard1", address.parse().expect("an address"), Timestamp::UNIX_EPOCH)
        }
    }

    fn access() -> TrafficAccess {
        TrafficAccess { port: 9454, token: "0".repeat(64), certificate: "MAA=".to_owned() }
    }

    fn certificates() -> Vec<CertificateReport> {
        let names = vec!["*.a.example".to_owned()];
        let served = ServedCertificate { sha256: "ab".repeat(32), not_before: 1, not_after: 2, names };
        vec![
            CertificateReport { host: "*.a.example".to_owned(), served: Some(served), ..CertificateReport::default() },
            CertificateReport {
                host: "b.example".to_owned(),
                served: None,
                fault: Some("damaged".to_owned()),
                secret: Some(SecretReport { name: "b-tls".to_owned(), reason: Some(SecretFault::Invalid) }),
            },
        ]
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
        assert_eq!(annotations["instance.signpost.dev/applied-routes"], "9");
        assert_eq!(annotations["instance.signpost.dev/endpoints"], "5");
        let expected = format!(
            r#"{{"certificates":[{{"host":"*.a.example","sha256":"{}","notBefore":1,"notAfter":2,"names":["*.a.example"]}},"#,
            "ab".repeat(32)
        ) + r#"{"host":"b.example","fault":"damaged","secret":{"name":"b-tls","reason":"Invalid"}}],"omitted":3}"#;
        assert_eq!(annotations["instance.signpost.dev/certificates"], expected);
        assert_eq!(lease["metadata"]["labels"]["app.kubernetes.io/component"], "router-instance");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
    }

    /// An agent that does not report them differs from one that has applied and serves nothing.
    #[test]
    fn what_an_agent_does_not_report_is_unknown() {
        let known = report("192.0.2.1");
        let report =
            InstanceReport { endpoints: None, applied_routes: None, certificates: None, traffic: None, ..known };
        let lease = report.to_lease();
        assert_eq!(lease.metadata.annotations.as_ref().map(|annotations| annotations.len()), Some(9));
        assert_eq!(InstanceReport::read(&lease), Some(report));
    }

    /// A token becomes a header, so that its characters are fixed.
    #[test]
    fn access_to_traffic() {
        let with = |access: &str| {
            let mut lease = report("192.0.2.1").to_lease();
            let annotations = lease.metadata.annotations.as_mut().expect("the report");
            annotations.insert(format!("{PREFIX}traffic"), access.to_owned());
            InstanceReport::read(&lease).expect("the rest is valid").traffic
        };
        let token = "0".repeat(64);
        assert_eq!(with(&format!(r#"{{"port":9454,"token":"{token}","certificate":"MAA="}}"#)), Some(access()));
        for (port, token, certificate) in [
            ("0", token.as_str(), "MAA="),
            ("70000", &token, "MAA="),
            ("9454", "short", "MAA="),
            ("9454", &"\r".repeat(64), "MAA="),
            ("9454", &token, "*"),
            ("9454", &token, &"A".repeat(TRAFFIC_BYTES_MAX)),
        ] {
            let access = format!(r#"{{"port":{port},"token":{token:?},"certificate":"{certificate}"}}"#);
            assert_eq!(with(&access), None, "{access}");
        }
    }

    #[test]
    fn certificates_are_bounded() {
        let certificate = |number: usize| {
            let host = format!("host{number:05}.example");
            let served =
                certificates()[0].served.clone().map(|one| ServedCertificate { names: vec![host.clone()], ..one });
            CertificateReport { host, served, ..CertificateReport::default() }
        };
        for (count, omitted, full) in [(0, 0, 0), (300, 0, 300), (1_000, 0, 274), (3_000, 742, 0)] {
            let report = CertificatesReport::new((0..count).map(certificate).collect());
            let with_details = report.certificates.iter().filter(|one| one.served.is_some()).count();
            let text = serde_json::to_string(&report).expect("JSON");
            assert!(text.len() <= CERTIFICATES_BYTES_MAX, "{}", text.len());
            assert_eq!((report.omitted, with_details), (omitted, full), "{count}");
            assert_eq!(report.of("host00299.example").is_some(), count >= 300);
            assert_eq!(serde_json::from_str::<CertificatesReport>(&text).expect("it reads"), report);
        }
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
