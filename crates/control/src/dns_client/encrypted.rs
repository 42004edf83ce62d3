//! Queries over TLS (RFC 7858), HTTPS (RFC 8484) and, with the feature `quic`, QUIC (RFC 9250).
//!
//! The server's certificate must be valid for the name, or the address, that the caller expects. Queries carry the padding option, and the
//! client pads them to a multiple of 128 octets (RFC 8467 §4.1).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::header::CONTENT_TYPE;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};

use super::{Match, Query, QueryError, QueryMessage, Response, Transport, exchange};
use signpost_dns::wire::edns::option;
use signpost_runtime::causes::causes;

/// The media type of messages (RFC 8484 §6).
const MEDIA_TYPE: &str = "application/dns-message";
/// The largest message.
const MESSAGE_OCTETS_MAX: usize = 65_535;
/// Queries are padded to a multiple of this (RFC 8467 §4.1).
const BLOCK_OCTETS: usize = 128;
/// The octets of an option before its data.
const OPTION_HEAD_OCTETS: usize = 4;

/// An encrypted transport to a server, and the identity that the server must prove.
#[derive(Debug, Clone)]
pub struct Encrypted {
    /// TLS, HTTPS or QUIC.
    pub transport: Transport,
    /// The trust anchors of the client, from `signpost_runtime::trust`.
    pub trust: ClientConfig,
    /// The name or the address that the server's certificate must have.
    pub host: String,
    /// The path of the HTTPS service, such as `/dns-query`.
    pub path: String,
}

impl Query<'_> {
    /// Sends the query over an encrypted transport. All of it may take `patience`.
    ///
    /// # Errors
    ///
    /// [`QueryError`] without a whole response. An error code is a [`Response`].
    pub async fn send_encrypted(
        &self,
        server: SocketAddr,
        over: &Encrypted,
        patience: Duration,
    ) -> Result<Response, QueryError> {
        let mut message = QueryMessage::padded(self);
        let sent = async {
            match over.transport {
                Transport::Https => {
                    message.clear_id();
                    over_https(server, &message, over).await
                }
                Transport::Quic => {
                    message.clear_id();
                    over_quic(server, &message, over).await
                }
                Transport::Tls | Transport::Udp | Transport::Tcp => over_tls(server, &message, over).await,
            }
        };
        let response = timeout(patience, sent).await.map_err(|_| QueryError::Silent(patience))??;
        response.filter(|response| !response.is_truncated()).ok_or(QueryError::Malformed)
    }
}

impl QueryMessage {
    /// Returns an encoded query with the padding option, whose length is a multiple of [`BLOCK_OCTETS`].
    fn padded(query: &Query<'_>) -> QueryMessage {
        let unpadded = QueryMessage::new(query).octets.len() + OPTION_HEAD_OCTETS;
        let padding = unpadded.next_multiple_of(BLOCK_OCTETS) - unpadded;
        let length = u16::try_from(padding).expect("less than a block");
        let head = [option::PADDING.to_be_bytes(), length.to_be_bytes()].concat();
        let options = [query.options, &head, &vec![0; padding]].concat();
        QueryMessage::new(&Query { options: &options, ..*query })
    }

    /// The identifier 0, as QUIC requires (RFC 9250 §4.2.1) and HTTPS wants for caches (RFC 8484 §4.1).
    fn clear_id(&mut self) {
        self.octets[..2].fill(0);
    }

    fn response(&self, octets: &[u8], over: Transport, sent: Instant) -> Option<Response> {
        let is_answer = self.match_of(octets) == Match::Answers;
        if is_answer { Response::parse(octets, over, sent.elapsed()) } else { None }
    }
}

async fn over_tls(server: SocketAddr, query: &QueryMessage, over: &Encrypted) -> Result<Option<Response>, QueryError> {
    let sent = Instant::now();
    let mut trust = over.trust.clone();
    trust.alpn_protocols = vec![b"dot".to_vec()];
    let name =
        ServerName::try_from(over.host.clone()).map_err(|_| QueryError::Unreachable(io::ErrorKind::InvalidInput))?;
    let stream = TcpStream::connect(server).await.map_err(|error| QueryError::Unreachable(error.kind()))?;
    let mut stream = TlsConnector::from(Arc::new(trust)).connect(name, stream).await.map_err(|error| fault(&error))?;
    let octets = exchange(&mut stream, query).await.map_err(|error| fault(&error))?;
    Ok(query.response(&octets, Transport::Tls, sent))
}

async fn over_https(
    server: SocketAddr,
    query: &QueryMessage,
    over: &Encrypted,
) -> Result<Option<Response>, QueryError> {
    let sent = Instant::now();
    let mut trust = over.trust.clone();
    trust.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .https_only(true)
        .resolve(&over.host, server)
        .tls_backend_preconfigured(trust)
        .build()
        .map_err(|error| fault(&error))?;
    let host = if over.host.contains(':') { format!("[{}]", over.host) } else { over.host.clone() };
    let url = format!("https://{host}:{}{}", server.port(), over.path);
    let request = client.post(url).header(CONTENT_TYPE, MEDIA_TYPE).header("accept", MEDIA_TYPE);
    let answer = request.body(query.octets.clone()).send().await.map_err(|error| fault(&error))?;
    if answer.status() != reqwest::StatusCode::OK {
        return Err(QueryError::Http(answer.status().as_u16()));
    }
    let is_message = answer.headers().get(CONTENT_TYPE).is_some_and(|of| of.as_bytes() == MEDIA_TYPE.as_bytes());
    let is_short = answer.content_length().is_none_or(|octets| octets <= MESSAGE_OCTETS_MAX as u64);
    if !is_message || !is_short {
        return Err(QueryError::Malformed);
    }
    let octets = answer.bytes().await.map_err(|error| fault(&error))?;
    Ok(query.response(&octets, Transport::Https, sent))
}

#[cfg(feature = "quic")]
async fn over_quic(server: SocketAddr, query: &QueryMessage, over: &Encrypted) -> Result<Option<Response>, QueryError> {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    let sent = Instant::now();
    let mut trust = over.trust.clone();
    trust.alpn_protocols = vec![b"doq".to_vec()];
    let unusable = |_| QueryError::Unreachable(io::ErrorKind::Unsupported);
    let trust = quinn::crypto::rustls::QuicClientConfig::try_from(trust).map_err(unusable)?;
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let endpoint = quinn::Endpoint::client((any, 0).into()).map_err(|error| QueryError::Unreachable(error.kind()))?;
    let config = quinn::ClientConfig::new(Arc::new(trust));
    let connecting = endpoint.connect_with(config, server, &over.host);
    let connecting = connecting.map_err(|_| QueryError::Unreachable(io::ErrorKind::InvalidInput))?;
    let connection = connecting.await.map_err(|error| quic_fault(&error))?;
    let (mut send, mut receive) = connection.open_bi().await.map_err(|error| fault(&error))?;
    send.write_all(&query.framed()).await.map_err(|error| fault(&error))?;
    send.finish().map_err(|error| fault(&error))?;
    let octets = receive.read_to_end(MESSAGE_OCTETS_MAX + 2).await.map_err(|error| fault(&error))?;
    // RFC 9250 §8.4: DOQ_NO_ERROR.
    connection.close(quinn::VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    let is_whole =
        octets.first_chunk().is_some_and(|length| usize::from(u16::from_be_bytes(*length)) + 2 == octets.len());
    if is_whole { Ok(query.response(&octets[2..], Transport::Quic, sent)) } else { Ok(None) }
}

/// Returns the error of a QUIC connection. A rejected certificate is a TLS alert of these numbers (RFC 8446 §6.2).
#[cfg(feature = "quic")]
fn quic_fault(error: &quinn::ConnectionError) -> QueryError {
    match error {
        quinn::ConnectionError::TransportError(error)
            if (42..=48).any(|alert| error.code == quinn::TransportErrorCode::crypto(alert)) =>
        {
            QueryError::Certificate(error.reason.clone())
        }
        error => fault(error),
    }
}

#[cfg(not(feature = "quic"))]
async fn over_quic(_: SocketAddr, _: &QueryMessage, _: &Encrypted) -> Result<Option<Response>, QueryError> {
    Err(QueryError::NotBuilt)
}

/// Returns the error of a connection: whether the certificate is refused, and why, or that the server is not reachable.
fn fault(error: &(dyn std::error::Error + 'static)) -> QueryError {
    let mut kind = io::ErrorKind::Other;
    let mut last = String::new();
    for cause in causes(error) {
        if let Some(rustls::Error::InvalidCertificate(error)) = cause.downcast_ref::<rustls::Error>() {
            return QueryError::Certificate(error.to_string());
        }
        kind = cause.downcast_ref::<io::Error>().map_or(kind, io::Error::kind);
        last = cause.to_string();
    }
    if kind == io::ErrorKind::Other { QueryError::Broken(last) } else { QueryError::Unreachable(kind) }
}
