//! TCP listeners and the admission of clients. [`super::stream`] serves a connection; over TLS, [`super::tls`] comes first.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::TcpStream;
use tokio::time::MissedTickBehavior;
use tokio_util::task::TaskTracker;

use super::BindError;
use super::admission::Permit;
use super::count::Count;
use super::stream::Service;
use crate::nameserver::Transport;

/// The maximum number of connections that wait to be accepted; the kernel limits it further (`net.core.somaxconn`).
const BACKLOG: i32 = 1_024;

/// The size of the kernel's send buffer of a connection for a client that does not read. Without this limit, it would grow to
/// megabytes for each.
const SEND_BUFFER_OCTETS: usize = 128 * 1024;

/// The wait of a listener after a failed accept: without file descriptors, an immediate retry is in vain.
const AFTER_ERROR: Duration = Duration::from_millis(50);

/// The interval of the sign of progress of a listener without clients.
const TICK_EVERY: Duration = Duration::from_secs(1);

/// The interval at which idle workers release replaced zones.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// Listens on `address`.
pub(super) fn bind(address: SocketAddr, protocol: &'static str) -> Result<TcpListener, BindError> {
    let open = || -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // Connections of a process that has just ended must not keep the address for minutes.
        socket.set_reuse_address(true)?;
        // Connections inherit it.
        socket.set_send_buffer_size(SEND_BUFFER_OCTETS)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open().map_err(|source| BindError::new(address, protocol, source))
}

/// Uses a socket that listens on `address` already.
pub(super) fn adopt(
    address: SocketAddr,
    listener: TcpListener,
    protocol: &'static str,
) -> Result<TcpListener, BindError> {
    let tune = || {
        SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER_OCTETS)?;
        listener.set_nonblocking(true)
    };
    tune().map_err(|source| BindError::new(address, protocol, source))?;
    Ok(listener)
}

/// Accepts connections until a stop is requested, and serves each with `serve`. Each iteration is counted, and there is one every
/// second.
pub(super) async fn accept<F>(
    (listener, address): (tokio::net::TcpListener, SocketAddr),
    service: Arc<Service>,
    iterations: Arc<Count>,
    tasks: TaskTracker,
    serve: impl Fn(TcpStream, SocketAddr, Arc<Service>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tick = tokio::time::interval(TICK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        iterations.add(1);
        let accepted = tokio::select! {
            biased;
            () = service.stopped() => return,
            accepted = listener.accept() => accepted,
            _ = tick.tick() => continue,
        };
        match accepted {
            Ok((stream, peer)) => drop(tasks.spawn(serve(stream, peer, Arc::clone(&service)))),
            Err(error) => {
                service.counters.accept_errors.add_shared(1);
                tracing::debug!(%address, %error, "failed to accept a connection");
                tokio::select! {
                    () = service.stopped() => return,
                    () = tokio::time::sleep(AFTER_ERROR) => {}
                }
            }
        }
    }
}

/// Serves a connection if there is room for it.
pub(super) async fn serve(stream: TcpStream, peer: SocketAddr, service: Arc<Service>) {
    if let Some(_permit) = admit(&stream, peer, &service) {
        service.serve(stream, peer, Transport::Tcp).await;
    }
}

/// Returns the permit of a connection, if there is room for it.
pub(super) fn admit(stream: &TcpStream, peer: SocketAddr, service: &Service) -> Option<Permit> {
    let permit = service.admit(peer.ip())?;
    service.counters.connections.add_shared(1);
    // Answers are complete writes, so no delay is necessary. After the write timeout, the kernel also discards data that a client
    // does not read. A failure of either option is no reason to reject a client.
    drop(stream.set_nodelay(true));
    drop(SockRef::from(stream).set_tcp_user_timeout(Some(service.limits.write)));
    Some(permit)
}

/// Makes idle workers release replaced zones until a stop is requested.
pub(super) async fn refresh(service: Arc<Service>) {
    let mut tick = tokio::time::interval(REFRESH_EVERY);
    loop {
        tokio::select! {
            () = service.stopped() => return,
            _ = tick.tick() => service.stream_workers.refresh(),
        }
    }
}
