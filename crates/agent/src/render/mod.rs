//! Configuration of proxies, made from a [`Site`](crate::site::Site). Pure.

pub mod haproxy;
pub mod nginx;

use std::net::SocketAddr;
use std::path::PathBuf;

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
