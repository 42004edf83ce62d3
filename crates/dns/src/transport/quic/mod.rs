//! QUIC (RFC 9000) for DNS over QUIC: sockets, and the admission of clients.
//!
//! `serve` accepts connections as they arrive and never waits for one of them: each handshake is a separate task with the
//! timeout [`Limits::read`]. The first packet may have a forged address, so a client first proves its address: by a token of an earlier
//! connection, or by a Retry (RFC 9000 §8.1.2, §8.1.3). Only then does its connection count. Without a Retry, the handshake would be
//! amplified: `quinn-proto` sends whole datagrams while less than a datagram of the permitted amount is left (§8.1), so a victim
//! would get up to 3.7 times what its attacker sent.
//!
//! `hickory-server` 0.26.3 has such a listener, but not one for this: its accept loop waits up to 5 s for a handshake before it
//! takes the next (`hickory-net` `quic_server.rs`, `next`), reads one request of a connection after another, ends a connection
//! after 100, and has no limits of clients; and its responses are made of `Record`s, never of existing octets.

pub mod doq;
pub mod framing;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::time::{MissedTickBehavior, timeout};
use tokio_rustls::rustls;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::BindError;
use super::count::Count;
use super::requests::REQUESTS_MAX;
use super::stream::{Limits, Service};

/// The size of the kernel's datagram buffer in each direction: as for plain DNS, for the datagrams that arrive while the task is
/// off its processor.
const SOCKET_BUFFER_OCTETS: usize = 4 * 1024 * 1024;

/// The maximum number of initial packets that wait, and the memory for each of them and for all while they wait.
const INCOMING_MAX: usize = 1_024;
const INCOMING_OCTETS: u64 = 8 * 1024;
const INCOMING_OCTETS_TOTAL: u64 = 4 * 1024 * 1024;

/// The maximum size of an incomplete query that each request may hold: more than any query needs, with padding and a signature.
/// A connection may hold one larger query at a time.
const SMALL_OCTETS: usize = 2_048;

/// The amount that a connection may receive before it is read: a few large queries, or all the small ones that it may have open.
const RECEIVE_OCTETS: u32 = 2 * SMALL_OCTETS as u32 * REQUESTS_MAX;

/// The interval of the sign of progress of a listener without clients.
const TICK_EVERY: Duration = Duration::from_secs(1);

/// The time that a stopping listener waits until its last packets are sent.
const LAST_PACKETS_WAIT: Duration = Duration::from_millis(50);

/// Opens a socket for QUIC.
pub(super) fn bind(address: SocketAddr) -> Result<UdpSocket, BindError> {
    let open = || -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    open().and_then(tuned).map_err(|source| BindError::new(address, "QUIC", source))
}

/// Uses a bound socket.
pub(super) fn adopt(address: SocketAddr, socket: UdpSocket) -> Result<UdpSocket, BindError> {
    tuned(socket).map_err(|source| BindError::new(address, "QUIC", source))
}

fn tuned(socket: UdpSocket) -> io::Result<UdpSocket> {
    let options = SockRef::from(&socket);
    // The kernel limits these requested sizes.
    drop(options.set_recv_buffer_size(SOCKET_BUFFER_OCTETS));
    drop(options.set_send_buffer_size(SOCKET_BUFFER_OCTETS));
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Makes a listener of a socket. Call it inside a runtime.
pub(super) fn listen(socket: UdpSocket, tls: rustls::ServerConfig, limits: &Limits) -> io::Result<Endpoint> {
    let crypto = QuicServerConfig::try_from(Arc::new(tls)).map_err(io::Error::other)?;
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(REQUESTS_MAX.into())
        .max_concurrent_uni_streams(0_u8.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window((2 * SMALL_OCTETS as u32).into())
        .receive_window(RECEIVE_OCTETS.into())
        .send_window(limits.unsent_octets_max as u64)
        .max_idle_timeout(limits.idle.try_into().ok());
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(Arc::new(transport))
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(INCOMING_OCTETS)
        .incoming_buffer_size_total(INCOMING_OCTETS_TOTAL);
    Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime))
}

/// Accepts clients until a stop is requested, and serves them. Each iteration is counted, and there is one every second.
pub(super) async fn accept(endpoint: Endpoint, service: Arc<Service>, iterations: Arc<Count>) {
    let connections = TaskTracker::new();
    let mut tick = tokio::time::interval(TICK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        iterations.add(1);
        let incoming = tokio::select! {
            biased;
            () = service.stopped() => break,
            incoming = endpoint.accept() => incoming,
            _ = tick.tick() => continue,
        };
        let Some(incoming) = incoming else { break };
        if incoming.remote_address_validated() {
            connections.spawn(admit(incoming, Arc::clone(&service)));
        } else {
            // It fails only for clients that have been validated.
            drop(incoming.retry());
        }
    }
    endpoint.set_server_config(None);
    connections.close();
    connections.wait().await;
    drop(timeout(LAST_PACKETS_WAIT, endpoint.wait_idle()).await);
}

/// Serves a connection if there is room for it.
async fn admit(incoming: Incoming, service: Arc<Service>) {
    let counters = &service.counters;
    let Some(_permit) = service.admit(incoming.remote_address().ip()) else { return incoming.refuse() };
    let Ok(connecting) = incoming.accept() else { return counters.broken.add_shared(1) };
    counters.connections.add_shared(1);
    // It never fails for a server's connection.
    let Ok((connection, done)) = connecting.into_0rtt() else { return };
    let handshaken = CancellationToken::new();
    let served = doq::serve(connection.clone(), handshaken.clone(), Arc::clone(&service));
    let watched = async {
        let done = timeout(service.limits.read, done).await;
        match done {
            // The difference does not matter for a server's connection. If it failed, the task that serves it detects that.
            Ok(_) if connection.close_reason().is_none() => handshaken.cancel(),
            Ok(_) => counters.handshakes_broken.add_shared(1),
            Err(_) => {
                counters.handshake_timeouts.add_shared(1);
                connection.close(VarInt::from_u32(0), b"");
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        () = served => {}
        () = watched => {}
    }
}
