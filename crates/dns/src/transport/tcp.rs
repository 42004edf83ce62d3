//! TCP listeners: who is let in. What happens on a connection is in [`super::stream`].

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::TcpStream;
use tokio::time::MissedTickBehavior;
use tokio_util::task::TaskTracker;

use super::BindError;
use super::admission::Refusal;
use super::count::Count;
use super::stream::Service;
use crate::nameserver::Transport;

/// How many connections may wait to be accepted; the kernel bounds it further (`net.core.somaxconn`).
const BACKLOG: i32 = 1_024;

/// What the kernel holds of a connection's answers for a client that does not read. Without a bound of ours it would grow
/// to megabytes for each.
const SEND_BUFFER_OCTETS: usize = 128 * 1024;

/// How long a listener waits after a failed accept: without file descriptors, at once is in vain.
const AFTER_ERROR: Duration = Duration::from_millis(50);

/// How often a listener without clients shows that it moves.
const TICK_EVERY: Duration = Duration::from_secs(1);

/// How often workers without work let go of zones that have been replaced.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// Listens on `address`.
pub(super) fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
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
    open().map_err(|source| BindError::new(address, "TCP", source))
}

/// Uses a socket that listens on `address` already.
pub(super) fn adopt(address: SocketAddr, listener: TcpListener) -> Result<TcpListener, BindError> {
    let tune = || {
        SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER_OCTETS)?;
        listener.set_nonblocking(true)
    };
    tune().map_err(|source| BindError::new(address, "TCP", source))?;
    Ok(listener)
}

/// Accepts connections until told to stop. Each turn is counted, and there is one every second.
pub(super) async fn accept(
    listener: tokio::net::TcpListener,
    address: SocketAddr,
    service: Arc<Service>,
    iterations: Arc<Count>,
    tasks: TaskTracker,
) {
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
                tracing::debug!(%address, %error, "a connection could not be accepted");
                tokio::select! {
                    () = service.stopped() => return,
                    () = tokio::time::sleep(AFTER_ERROR) => {}
                }
            }
        }
    }
}

/// Serves a connection if there is room for it.
async fn serve(stream: TcpStream, peer: SocketAddr, service: Arc<Service>) {
    let counters = &service.counters;
    let _permit = match service.admission.admit(peer.ip()) {
        Ok(permit) => permit,
        Err(Refusal::Total) => return counters.refused_total.add_shared(1),
        Err(Refusal::Client) => return counters.refused_client.add_shared(1),
    };
    counters.connections.add_shared(1);
    // Answers are written whole, so there is nothing to wait for. What the kernel still holds for a client that does not
    // take it goes after the time to write, too. Neither is worth refusing a client for.
    drop(stream.set_nodelay(true));
    drop(SockRef::from(&stream).set_tcp_user_timeout(Some(service.limits.write)));
    service.serve(stream, peer, Transport::Tcp).await;
}

/// Lets idle workers go of replaced zones until told to stop.
pub(super) async fn refresh(service: Arc<Service>) {
    let mut tick = tokio::time::interval(REFRESH_EVERY);
    loop {
        tokio::select! {
            () = service.stopped() => return,
            _ = tick.tick() => service.stream_workers.refresh(),
        }
    }
}
