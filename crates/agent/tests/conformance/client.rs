//! A client that sends hosts and paths that no library would, and TLS with any name and trust.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// A self-signed certificate.
pub struct Identity {
    pub pem: String,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    pub fn new(name: &str) -> Identity {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a name");
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        Identity { pem, certificate: made.cert.der().clone(), key: made.signing_key.serialize_der() }
    }

    /// Returns a line of the private key.
    pub fn secret(&self) -> &str {
        let key = self.pem.split_once("PRIVATE KEY-----").expect("a key").1;
        key.lines().nth(1).expect("a line")
    }

    /// Opens a TLS connection to a server that must have this certificate, with one ALPN protocol or none.
    pub async fn connect(&self, address: SocketAddr, name: &str, protocol: &[u8]) -> Option<TlsStream<TcpStream>> {
        self.greet(TcpStream::connect(address).await.ok()?, name, protocol).await
    }

    /// Begins TLS on a connection.
    pub async fn greet(&self, stream: TcpStream, name: &str, protocol: &[u8]) -> Option<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).ok()?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .ok()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        if !protocol.is_empty() {
            config.alpn_protocols = vec![protocol.to_vec()];
        }
        let name = ServerName::try_from(name.to_owned()).ok()?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()
    }

    /// Returns the settings of a server with this certificate.
    pub fn server(&self) -> ServerConfig {
        let key = PrivateKeyDer::try_from(self.key.clone()).expect("a key");
        ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the default versions")
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key)
            .expect("they belong together")
    }
}

/// Returns a connector that accepts each of these certificates for its own name.
pub fn trusting<'a>(identities: impl IntoIterator<Item = &'a Identity>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    identities.into_iter().for_each(|identity| roots.add(identity.certificate.clone()).expect("a certificate"));
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

impl Response {
    /// Returns the value of a header, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let name = name.to_ascii_lowercase();
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(found, _)| *found == name).map(|(_, value)| value)
    }
}

/// Sends a GET over plain HTTP on a connection of its own.
pub async fn get(address: SocketAddr, host: &str, path: &str) -> Option<Response> {
    get_with(address, host, path, "").await
}

/// Sends the same request with additional headers, each including its line end.
pub async fn get_with(address: SocketAddr, host: &str, path: &str, headers: &str) -> Option<Response> {
    exchange(TcpStream::connect(address).await.ok()?, host, path, headers).await
}

/// Sends a GET over TLS to a server that must have a certificate; `None` if it has another one, or does not respond.
pub async fn get_tls(address: SocketAddr, identity: &Identity, name: &str, host: &str, path: &str) -> Option<Response> {
    get_tls_with(address, identity, name, host, path, "").await
}

/// Sends the same request with additional headers, each including its line end.
pub async fn get_tls_with(
    address: SocketAddr,
    identity: &Identity,
    name: &str,
    host: &str,
    path: &str,
    headers: &str,
) -> Option<Response> {
    exchange(identity.connect(address, name, b"").await?, host, path, headers).await
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    path: &str,
    headers: &str,
) -> Option<Response> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut bytes = Vec::new();
    // A TLS connection can end without notice after the response.
    let _ = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut bytes)).await.ok()?;
    parse(&bytes)
}

/// Parses a whole response.
pub fn parse(bytes: &[u8]) -> Option<Response> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Response { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
}
