//! Configuration of proxies, made from a [`Site`](crate::site::Site). Pure.

pub mod haproxy;
pub mod nginx;

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;

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
        }
    }
}

/// The file with the certificate for clients that name no host or an unknown one.
pub const DEFAULT_CERTIFICATE: &str = "default.pem";
/// The directory of the certificates of hosts.
pub const CERTIFICATES: &str = "certificates";
/// The file with the certificate authorities of applications.
pub const AUTHORITIES: &str = "authorities.pem";

/// The body of the response to requests for hosts and paths that no Route has.
pub(crate) const NOT_FOUND: &str = "404: no application is served at this address.\n";
/// The body of the response to requests for Routes without a ready endpoint.
pub(crate) const UNAVAILABLE: &str = "503: no endpoint of this application is ready.\n";
/// The body of the response to requests over a TLS connection that was opened for another host (RFC 9110 §15.5.20).
pub(crate) const MISDIRECTED: &str = "421: this host needs a connection of its own.\n";

/// Returns the file of a certificate. A host never contains `+`.
fn certificate_file(host: &Host) -> String {
    format!("{CERTIFICATES}/{}.pem", host.as_str().replace('*', "+"))
}
