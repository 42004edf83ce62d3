//! The common part of all encrypted transports: the certificate, the keys of session tickets, and the TLS configuration.
//!
//! The embedding program provides the certificate, which is requested at each handshake: new connections get a new certificate,
//! and open ones are not affected. Resumption needs no memory: a session is in the ticket of the client, sealed with a key that
//! changes every six hours and opens tickets for six more.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::aws_lc_rs::{self, Ticketer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use tokio_rustls::rustls::{self, ServerConfig, SupportedProtocolVersion};

/// DNS over TLS (RFC 7858 and RFC 9103 §11).
pub const ALPN_DOT: &[u8] = b"dot";
/// DNS over QUIC (RFC 9250 §4.1.1).
pub const ALPN_DOQ: &[u8] = b"doq";
/// DNS over HTTPS by HTTP/2.
pub const ALPN_H2: &[u8] = b"h2";
/// DNS over HTTPS by HTTP/1.1.
pub const ALPN_HTTP1: &[u8] = b"http/1.1";

/// The TLS settings that are common to all encrypted transports.
#[derive(Clone)]
pub struct TlsBase {
    certificate: Arc<dyn ResolvesServerCert>,
    tickets: Arc<dyn ProducesTickets>,
}

impl TlsBase {
    /// Creates the settings with the `certificate` that each handshake requests, and new ticket keys.
    ///
    /// # Errors
    ///
    /// If the system provides no random numbers.
    pub fn new(certificate: Arc<dyn ResolvesServerCert>) -> Result<TlsBase, rustls::Error> {
        Ok(TlsBase { certificate, tickets: Ticketer::new()? })
    }

    /// Returns a configuration of TLS 1.3 and 1.2 for clients that offer one of the protocols `alpn`, or no protocol. A client
    /// that offers only others is rejected (RFC 7301 §3.2). There is no early data, unless the caller sets it.
    ///
    /// # Errors
    ///
    /// If the cryptography provider does not support the TLS version.
    pub fn server_config(&self, alpn: &[&[u8]]) -> Result<ServerConfig, rustls::Error> {
        let mut config = self.with_versions(alpn, rustls::DEFAULT_VERSIONS)?;
        config.ticketer = self.tickets.clone();
        Ok(config)
    }

    /// Returns the configuration with only TLS 1.3, as QUIC requires, and without tickets.
    ///
    /// # Errors
    ///
    /// If the cryptography provider does not support the TLS version.
    pub fn server_config_for_quic(&self, alpn: &[&[u8]]) -> Result<ServerConfig, rustls::Error> {
        self.with_versions(alpn, &[&rustls::version::TLS13])
    }

    fn with_versions(
        &self,
        alpn: &[&[u8]],
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<ServerConfig, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(versions)?.with_no_client_auth();
        let mut config = builder.with_cert_resolver(self.certificate.clone());
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        // A store of sessions would need a lock, and memory that any client could fill.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }
}
