//! DNS over TLS (RFC 7858): a TCP connection, a handshake, and then messages as over TCP ([`super::stream`]).
//!
//! A connection counts for its client before the handshake, and a handshake has the timeout of one message. Unfinished
//! handshakes are therefore limited like connections, in total and for each client. The runtime limits their cost: encrypted
//! transports have separate threads, and the system divides the processors between these and the threads of UDP and TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, HandshakeKind, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::count::Count;
use super::counters::Counters;
use super::stream::Service;
use super::tcp;
use crate::nameserver::Transport;

/// Serves a connection if there is room for it.
pub(super) async fn serve(stream: TcpStream, peer: SocketAddr, service: Arc<Service>, config: Arc<ServerConfig>) {
    let Some(_permit) = tcp::admit(&stream, peer, &service) else { return };
    if let Some(stream) = handshake(stream, &service, config).await {
        service.serve(stream, peer, Transport::Tls).await;
    }
}

/// Performs the handshake, within the maximum time of a message or of silence, whichever is less; `None` if it failed. It is
/// counted in both cases.
pub(super) async fn handshake<S>(stream: S, service: &Service, config: Arc<ServerConfig>) -> Option<Box<TlsStream<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let patience = service.limits.read.min(service.idle());
    // On the heap: the memory of the handshake must not be part of the connection for its whole life.
    let handshake = Box::pin(timeout(patience, TlsAcceptor::from(config).accept(stream)));
    let ended = tokio::select! {
        biased;
        ended = handshake => ended,
        () = service.stopped() => return None,
    };
    let counters = &service.counters;
    let (counter, stream) = match ended {
        Ok(Ok(stream)) => match stream.get_ref().1.handshake_kind() {
            Some(HandshakeKind::Resumed) => (&counters.handshakes_resumed, Some(Box::new(stream))),
            _ => (&counters.handshakes_full, Some(Box::new(stream))),
        },
        Ok(Err(error)) => (failure(counters, &error), None),
        Err(_) => (&counters.handshake_timeouts, None),
    };
    counter.add_shared(1);
    stream
}

/// Returns the counter for a failed handshake.
fn failure<'c>(counters: &'c Counters, error: &io::Error) -> &'c Count {
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        // The client disconnected, as port scanners do.
        None => &counters.handshakes_broken,
        Some(rustls::Error::NoApplicationProtocol) => &counters.handshakes_no_protocol,
        Some(rustls::Error::PeerIncompatible(_)) => &counters.handshakes_incompatible,
        // For example, it does not trust the certificate.
        Some(rustls::Error::AlertReceived(_)) => &counters.handshakes_refused_by_client,
        Some(_) => &counters.handshakes_invalid,
    }
}
