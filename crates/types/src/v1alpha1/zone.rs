//! The Zone kind: the serial that every name server uses for the same contents.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Zone records the serial of each version of a zone that is built from API objects. Its name is the apex of the zone. The
/// leading controller writes it. Every name server with the same contents publishes them under that serial, so that all name
/// servers agree, also after a restart.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "signpost.dev",
    version = "v1alpha1",
    kind = "Zone",
    plural = "zones",
    singular = "zone",
    shortname = "zn",
    category = "signpost",
    doc = "A Zone maps serials to the contents of a zone that is generated from API objects."
)]
#[serde(rename_all = "camelCase")]
pub struct ZoneSpec {
    /// The purpose of the zone: the platform's `parent` zone, the `alias` zone, or a `shard`.
    #[serde(rename = "type")]
    pub kind: ZoneKind,
    /// The Router of the zone, for a shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub router: Option<String>,
    /// The most recent versions of the zone, newest first; at most 16.
    #[serde(default)]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub versions: Vec<ZoneVersion>,
    /// The platform's settings in the leading controller, for the parent zone. Tools use them for predictions; they affect
    /// nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<ZonePlatform>,
    /// The former domains of the platform, for the parent zone. The name servers serve their parent and alias zones as before. The
    /// leading controller adds a domain when the platform's domain changes. Remove it to end the service of its zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub former_domains: Vec<String>,
}

/// The maximum number of former domains that are served.
pub const FORMER_DOMAINS_MAX: usize = 16;

/// Returns the parent Zone of the platform's domain: no other one lists it as a former domain. Of several, which belong to an
/// unfinished change of the domain, it is the last written one.
pub fn current_parent(zones: &[Zone]) -> Option<&Zone> {
    let parents = || zones.iter().filter(|zone| zone.spec.kind == ZoneKind::Parent);
    let is_former = |zone: &Zone| {
        let lists =
            |other: &Zone| other.spec.former_domains.iter().any(|former| Some(former) == zone.metadata.name.as_ref());
        parents().any(lists)
    };
    let written = |zone: &&Zone| zone.spec.versions.first().map(|version| version.at.0);
    parents().filter(|zone| !is_former(zone)).max_by_key(written)
}

/// The platform's settings, for clients that cannot read its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZonePlatform {
    /// The name servers of every zone. The first one is the primary name server in the SOA.
    #[serde(default)]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub name_servers: Vec<ZoneNameServer>,
    /// The encrypted transports that all name servers offer, as `ALPN[:PORT]`, such as `dot` or `h2:8443`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 16)), extend("x-kubernetes-list-type" = "atomic"))]
    pub transports: Vec<String>,
    /// The path of DNS over HTTPS, if encrypted transports are offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub https_path: Option<String>,
    /// The name servers that the platform queries to verify names, as `ADDRESS:PORT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 64)), extend("x-kubernetes-list-type" = "atomic"))]
    pub asked: Vec<String>,
    /// The scheduling strategy: the name of a strategy, or `webhook`.
    #[schemars(length(max = 63))]
    pub strategy: String,
    /// The fallback strategy for `webhook`, in use when the webhook does not choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub webhook_fallback: Option<String>,
    /// The number of Routes per second that move away from draining Routers.
    pub drain_rate: u32,
    /// The time for which the former names of a moved Route lead to it, in seconds. It is longer if caches can hold the former
    /// addresses for longer.
    pub former_name_retention_seconds: u32,
    /// The maximum number of labels in quarantine for a namespace to get new labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_quarantine_max: Option<u32>,
    /// The labels that no Route can get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000), inner(length(max = 63)), extend("x-kubernetes-list-type" = "atomic"))]
    pub reserved_labels: Option<Vec<String>>,
}

/// A name server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneNameServer {
    /// The name of the name server, without a trailing dot.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The addresses of the name server. Empty if its name is outside the domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 45)), extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Vec<String>,
}

/// The purpose of a zone.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneKind {
    Parent,
    Alias,
    Shard,
}

/// A version of a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneVersion {
    /// The SOA serial, an RFC 1982 number.
    pub serial: u32,
    /// The digest of the inputs of the zone, in hexadecimal.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// The time when the serial was allocated.
    pub at: Time,
}
