//! Configuration of proxies, made from a [`Site`](crate::site::Site). Pure.

pub mod haproxy;
pub mod nginx;
mod settings;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use signpost_types::traffic::{REQUEST_TIMEOUT_MS, TUNNEL_TIMEOUT_MS};
use signpost_types::v1alpha1::traffic::ClientAddress;

use crate::site::Host;

/// The settings of a proxy that do not depend on Routes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The addresses for plain HTTP.
    pub http: Vec<SocketAddr>,
    /// The addresses for TLS.
    pub https: Vec<SocketAddr>,
    /// The public port of `https`, for redirects.
    pub public_https_port: u16,
    /// The certificate authorities (PEM) that verify applications with TLS termination `reencrypt`. `None`: connections to
    /// applications are encrypted, but the certificate is not verified.
    pub upstream_authorities: Option<PathBuf>,
    /// The networks of proxies in front of this one. Their `X-Forwarded-*` headers are kept, and they have no limit of connections.
    pub trusted_proxies: Vec<IpNet>,
    /// The most connections of one client: an IPv4 address or an IPv6 /64.
    pub client_connections_max: u32,
    /// The time for an application to begin its response, and between two reads of a request or response body.
    pub response_timeout: Duration,
    /// The same limit for a WebSocket, in either direction, and for requests that accept `text/event-stream`.
    pub stream_timeout: Duration,
    /// The way in which trusted proxies name the address of a client.
    pub client_address: ClientAddress,
    /// The time for which the connection of a client can be idle between two requests.
    pub keep_alive: Duration,
    /// The account of the processes that serve clients; `None`: that of the agent.
    pub account: Option<Account>,
}

/// A user and a group of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub user: String,
    pub group: String,
    pub uid: u32,
    pub gid: u32,
}

/// Browsers open six connections for a host, and a network address translator can have hundreds of them behind one address. HAProxy
/// accepts 16 times as many in total, so that a few clients cannot use up all of them.
pub const CLIENT_CONNECTIONS_MAX: u32 = 1_024;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            http: Vec::new(),
            https: Vec::new(),
            public_https_port: 443,
            upstream_authorities: None,
            trusted_proxies: Vec::new(),
            client_connections_max: CLIENT_CONNECTIONS_MAX,
            response_timeout: Duration::from_millis(REQUEST_TIMEOUT_MS),
            stream_timeout: Duration::from_millis(TUNNEL_TIMEOUT_MS),
            client_address: ClientAddress::default(),
            keep_alive: Duration::from_secs(60),
            account: None,
        }
    }
}

/// The file with the certificate for clients that name no host or an unknown one.
pub const DEFAULT_CERTIFICATE: &str = "default.pem";
/// The directory of the certificates of hosts.
pub const CERTIFICATES: &str = "certificates";
/// The file with the certificate authorities of applications.
pub const AUTHORITIES: &str = "authorities.pem";

/// The most times that a request may pass a router of the platform: more mean that an application sends it back to where it came
/// from. Two shards, or a Route that leads to another Route, are legitimate.
pub(crate) const HOPS_MAX: u8 = 8;
/// The name of the platform in `CDN-Loop` (RFC 8586 §2).
pub(crate) const LOOP_TOKEN: &str = "signpost";

/// The body of the response to requests without a valid host, or with several (RFC 9112 §3.2).
pub(crate) const INVALID_HOST: &str = "400: the request needs one Host header with a valid host name.\n";
/// The body of the response to methods that are about the router itself, not about the application.
pub(crate) const METHOD_NOT_ALLOWED: &str = "405: CONNECT and TRACE are not supported.\n";
/// The body of the response to requests that an application ended without a response.
pub(crate) const NO_RESPONSE: &str = "502: the application sent no valid response.\n";
/// The body of the response to requests that an application did not answer in time.
pub(crate) const TIMED_OUT: &str = "504: the application did not respond in time.\n";
/// The body of the response to requests that have passed the platform too often (RFC 5842 §7.2).
pub(crate) const LOOP_DETECTED: &str = "508: this request has passed this platform 8 times: it is in a loop.\n";
/// The body of the response to requests for hosts and paths that no Route has.
pub(crate) const NOT_FOUND: &str = "404: no application is served at this address.\n";
/// The body of the response to requests for Routes without a ready endpoint.
pub(crate) const UNAVAILABLE: &str = "503: no endpoint of this application is ready.\n";
/// The body of the response to clients that a Route does not permit.
pub(crate) const FORBIDDEN: &str = "403: this application does not permit your address.\n";
/// The body of the response to requests with a larger body than a Route permits.
pub(crate) const TOO_LARGE: &str = "413: the body of the request is too large.\n";
/// The body of the response to requests beyond the rate of a Route (RFC 6585 §4).
pub(crate) const TOO_MANY: &str = "429: too many requests; try again in a few seconds.\n";
/// The body of the response to requests over a TLS connection that was opened for another host (RFC 9110 §15.5.20).
pub(crate) const MISDIRECTED: &str = "421: this host needs a connection of its own.\n";

/// Returns the file of a certificate. A host never contains `+`.
fn certificate_file(host: &Host) -> String {
    format!("{CERTIFICATES}/{}.pem", host.as_str().replace('*', "+"))
}
