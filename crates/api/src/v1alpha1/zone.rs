//! A Zone: the serial that every name server uses for the same contents.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Zone records which serial belongs to which contents of a zone that is made from the API's objects. Its name is the
/// zone's apex. The leading controller writes it; every name server that has the same contents publishes them under that
/// serial, so that all of them, and their restarts, agree.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "signpost.dev",
    version = "v1alpha1",
    kind = "Zone",
    plural = "zones",
    singular = "zone",
    shortname = "zn",
    category = "signpost",
    doc = "A Zone records which serial belongs to which contents of a zone that is made from the API's objects."
)]
#[serde(rename_all = "camelCase")]
pub struct ZoneSpec {
    /// What the zone is made for: the platform's `parent` zone, the `alias` zone, or a `shard`.
    #[serde(rename = "type")]
    pub kind: ZoneKind,
    /// The Router whose shard it is, for a shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub router: Option<String>,
    /// The newest versions of the zone, newest first; at most 16.
    #[serde(default)]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub versions: Vec<ZoneVersion>,
    /// For the parent zone: how the platform is configured, as the leading controller is. Nothing is decided by it: it is
    /// what tools foretell by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<ZonePlatform>,
}

/// How the platform is configured, for those who cannot read its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZonePlatform {
    /// The name servers of every zone, the first of them the SOA's.
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
    /// Where name servers are asked whether names are live, as `ADDRESS:PORT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 64)), extend("x-kubernetes-list-type" = "atomic"))]
    pub asked: Vec<String>,
    /// What chooses Routers: the name of a strategy, or `webhook`.
    #[schemars(length(max = 63))]
    pub strategy: String,
    /// For `webhook`: the strategy that chooses when that does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub webhook_fallback: Option<String>,
    /// How many routes a second leave draining Routers.
    pub drain_rate: u32,
    /// How long the former names of a moved route lead to it at least, in seconds.
    pub former_name_retention_seconds: u32,
    /// For how long nobody must have asked for a former name before it ends, in seconds; 0: that makes no difference.
    #[serde(default)]
    pub former_name_idle_timeout_seconds: u32,
    /// How many labels may be in quarantine for a namespace that is to get new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_quarantine_max: Option<u32>,
    /// The labels that no Route gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000), inner(length(max = 63)), extend("x-kubernetes-list-type" = "atomic"))]
    pub reserved_labels: Option<Vec<String>>,
}

/// A name server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneNameServer {
    /// Its name, without a dot at the end.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its addresses; none if its name is outside the domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 45)), extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Vec<String>,
}

/// What a zone is made for.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneKind {
    Parent,
    Alias,
    Shard,
}

/// One version of a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneVersion {
    /// SOA serial, an RFC 1982 number.
    pub serial: u32,
    /// Digest of what the zone was made from, in hexadecimal.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// When the serial was given out.
    pub at: Time,
}
