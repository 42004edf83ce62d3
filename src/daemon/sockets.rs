//! The sockets of HTTP, bound before any other step, so that a port in use has no side effects.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use signpost_dns::transport::inherited_sockets::InheritedSockets;

/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({flag}): {}", why(source))]
pub struct ListenError {
    pub address: SocketAddr,
    pub flag: &'static str,
    pub source: io::Error,
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the address is in use by another process; stop that process, or choose another address".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "not permitted; ports below 1024 need root or CAP_NET_BIND_SERVICE".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Listens on all `addresses`, which `flag` configures, with inherited sockets where available.
pub fn listen(
    addresses: &[SocketAddr],
    flag: &'static str,
    given: &mut InheritedSockets,
) -> Result<Vec<TcpListener>, ListenError> {
    let one = |address: &SocketAddr| {
        let listener = match given.take_tcp(*address) {
            None => bind(*address),
            Some(listener) => listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)),
        };
        listener.map_err(|source| ListenError { address: *address, flag, source })
    };
    addresses.iter().map(one).collect()
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart need not wait until connections of the former process have expired.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` can then be listened on side by side.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Returns the addresses of the listeners, including ports that the system chose.
pub fn addresses(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    listeners.iter().map(|listener| listener.local_addr().expect("a bound socket has an address")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_with_its_flag() {
        let first =
            listen(&["127.0.0.1:0".parse().expect("an address")], "--api-listen", &mut InheritedSockets::default())
                .expect("listens");
        let taken = addresses(&first)[0];
        let error =
            listen(&[taken], "--api-listen", &mut InheritedSockets::default()).expect_err("is taken").to_string();
        assert!(error.contains(&taken.to_string()) && error.contains("--api-listen"), "{error}");
        assert!(error.contains("in use by another process"), "{error}");
    }
}
