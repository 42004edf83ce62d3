//! A client of encrypted transports that trusts what the server of the test shows, and a certificate for that server.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The name in each certificate.
pub const NAME: &str = "ns1.example";

/// A self-signed certificate, which can be replaced while it is shown.
#[derive(Debug)]
pub struct Certificate(ArcSwap<CertifiedKey>);

impl Certificate {
    pub fn new() -> Self {
        Certificate(ArcSwap::from_pointee(make()))
    }

    /// Shows another from now on.
    pub fn replace(&self) {
        self.0.store(Arc::new(make()));
    }

    /// A client that trusts the current certificate, with TLS of these versions, and these protocols (ALPN).
    pub fn client(&self, versions: &[&'static rustls::SupportedProtocolVersion], alpn: &[&[u8]]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.load().cert[0].clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

fn make() -> CertifiedKey {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    let private = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    CertifiedKey::from_der(vec![certificate.der().clone()], private, &aws_lc_rs::default_provider()).unwrap()
}

/// A connection over TLS.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Shakes hands with the server; an error is the server's or the client's refusal.
pub fn connect_tls(address: SocketAddr, config: &Arc<ClientConfig>, patience: Duration) -> std::io::Result<TlsStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))?;
    socket.set_nodelay(true)?;
    let connection = ClientConnection::new(config.clone(), ServerName::try_from(NAME).unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() || stream.conn.wants_write() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}
