//! The settings of the proxies: those of a Route for its traffic, and those of a Router, with the maxima for its Routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The maximum number of networks in a list.
pub const NETWORKS_MAX: usize = 64;

/// The settings of the proxies for the traffic of a Route. The condition `SettingsHonored` has those that the Router's proxy cannot honor,
/// or that are above a maximum of the Router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// The time for the application to begin its response, and between two parts of a request or response body; in seconds, 1 to
    /// 86400. Absent: 5 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub request_timeout_seconds: Option<u32>,
    /// The time without data after which an upgraded connection, such as a WebSocket, and the response to a request that accepts
    /// `text/event-stream` end; in seconds, 1 to 604800. Absent: 1 hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 604800))]
    pub tunnel_timeout_seconds: Option<u32>,
    /// The largest request body, in bytes; 1 to 1099511627776 (1 TiB). A larger one gets the status 413. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1099511627776_u64))]
    pub max_request_body_bytes: Option<u64>,
    /// Send the requests of a client to the endpoint that answered its first one, as long as that endpoint is ready. Absent: each request
    /// goes to any endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky_sessions: Option<StickySessions>,
    /// The networks whose clients are served, such as `192.0.2.0/24`, `2001:db8::/32`, or `192.0.2.7`; at most 64. Others get the status
    /// 403, or no connection with TLS passthrough. Empty or absent: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 2, max = 49)), extend("x-kubernetes-list-type" = "set"))]
    pub allowed_networks: Vec<String>,
    /// The header `Strict-Transport-Security` of responses over TLS that ends at the router, instead of the application's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hsts: Option<Hsts>,
    /// The requests of a client (an IPv4 address, or an IPv6 /64) in each second, averaged over ten seconds; 1 to 100000. Further ones
    /// get the status 429. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub requests_per_second: Option<u32>,
    /// The version of the PROXY protocol with which the router begins each connection to an endpoint, which must expect it. Absent:
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The protocols to which a connection can be upgraded (the header `Upgrade`), in lower case, such as `websocket` or `spdy/3.1`; at
    /// most 8. `h2c` is not possible. Empty: none. Absent: `websocket`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 32)), extend("x-kubernetes-list-type" = "set"))]
    pub upgrades: Option<Vec<String>>,
}

/// Sticky sessions by a cookie that the router sets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StickySessions {
    /// The name of the cookie: letters, digits, `_`, and `-`. Absent: a name of the router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub cookie_name: Option<String>,
}

/// The values of `Strict-Transport-Security` (RFC 6797).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hsts {
    /// The time for which browsers use TLS only, in seconds; 0 to 315360000 (10 years). With 0, browsers forget the host.
    #[schemars(range(min = 0, max = 315360000))]
    pub max_age_seconds: u32,
    /// Whether this is also true for all names below the host.
    #[serde(default)]
    pub include_sub_domains: bool,
    /// Whether the host may be built into browsers. Requires `includeSubDomains`, and a `maxAgeSeconds` of at least one year.
    #[serde(default)]
    pub preload: bool,
}

/// A version of the PROXY protocol.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyProtocol {
    V1,
    V2,
}

/// The settings of the proxies of a Router. They have an effect where an agent of the platform configures the proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterProxy {
    /// The networks of proxies in front of the Router's instances, such as load balancers; at most 64. They can name the address of a
    /// client, their `X-Forwarded-*` headers are kept, and they have no limit of connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 2, max = 49)), extend("x-kubernetes-list-type" = "set"))]
    pub trusted_proxies: Vec<String>,
    /// The way in which trusted proxies name the address of a client. `x-forwarded-for`: the last address in the header
    /// `X-Forwarded-For` that is not a trusted proxy. `proxy-protocol`: with the PROXY protocol, version 1 or 2. All others are
    /// clients themselves.
    #[serde(default)]
    pub client_address: ClientAddress,
    /// The time for which the connection of a client can be idle between two requests, in seconds; 1 to 3600. Absent: 60 seconds. A load
    /// balancer in front needs a shorter time than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub keep_alive_seconds: Option<u32>,
    /// The maxima for the settings of Routes. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maxima: Option<TrafficMaxima>,
    /// The access log of the instances: a JSON object for each HTTP request. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_log: Option<AccessLog>,
}

/// The access log of a Router's instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessLog {
    /// The output. `stdout`: the standard output of the agent. `file`: `access.log` in the directory of the agent. `syslog`: the
    /// syslog server in `server`.
    pub output: AccessLogOutput,
    /// The address and UDP port of the syslog server, such as `192.0.2.1:514` or `[2001:db8::1]:514`. Only with `syslog`, which
    /// requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 47))]
    pub server: Option<String>,
}

/// The output of an access log.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AccessLogOutput {
    Stdout,
    File,
    Syslog,
}

/// The way in which a client's address is found.
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAddress {
    #[default]
    XForwardedFor,
    ProxyProtocol,
}

/// The maxima for `spec.traffic` of Routes. A Route with a larger value gets the maximum, and a Route without one gets the default or the
/// maximum, whichever is less.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficMaxima {
    /// The maximum of `requestTimeoutSeconds`, 1 to 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub request_timeout_seconds: Option<u32>,
    /// The maximum of `tunnelTimeoutSeconds`, 1 to 604800.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 604800))]
    pub tunnel_timeout_seconds: Option<u32>,
    /// The maximum of `maxRequestBodyBytes`, 1 to 1099511627776 (1 TiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1099511627776_u64))]
    pub max_request_body_bytes: Option<u64>,
    /// The maximum of `requestsPerSecond`, 1 to 100000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub requests_per_second: Option<u32>,
}
