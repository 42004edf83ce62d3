//! Sockets that the service manager opened and passes on (`LISTEN_FDS`, sd_listen_fds(3)).
//!
//! A restarted process finds the data that arrived meanwhile in these sockets, and needs no permission to open port 53. They do
//! not change the settings: a socket replaces a listener that the settings configure (`dns.listen` and those of encrypted
//! transports, `api.listen`, or `admin.listen`), at the same address. A socket on any other address is an error.

use std::io;
use std::net::SocketAddr;

use listenfd::ListenFd;
use socket2::SockRef;

use super::Error;
use signpost_dns::transport::inherited_sockets::InheritedSockets;

/// The number of the first inherited file descriptor.
const FIRST: usize = 3;

/// Takes over the sockets that were passed to this process, if any. Call it once, before threads exist.
pub fn from_environment() -> Result<InheritedSockets, Error> {
    let mut passed = ListenFd::from_env();
    let mut given = InheritedSockets::default();
    for at in 0..passed.len() {
        take(&mut passed, at, &mut given).map_err(|reason| {
            let number = FIRST + at;
            Error::Configuration(format!(
                "inherited file descriptor {number}: {reason}; check the service manager's socket unit"
            ))
        })?;
    }
    Ok(given)
}

fn take(passed: &mut ListenFd, at: usize, given: &mut InheritedSockets) -> Result<(), String> {
    let say = |error: io::Error| error.to_string();
    if let Ok(Some(socket)) = passed.take_udp_socket(at) {
        let address = socket.local_addr().map_err(say)?;
        check_family(SockRef::from(&socket), address)?;
        given.add_udp(address, socket);
        return Ok(());
    }
    let socket = passed.take_tcp_listener(at).map_err(say)?.ok_or("it is already in use")?;
    let address = socket.local_addr().map_err(say)?;
    let reference = SockRef::from(&socket);
    if !reference.is_listener().map_err(say)? {
        return Err(format!("TCP {address} does not listen (Accept=yes is not supported)"));
    }
    check_family(reference, address)?;
    given.add_tcp(address, socket);
    Ok(())
}

/// A client must have one form of address: IPv4 clients of an IPv6 socket would be counted and limited as IPv6 addresses.
fn check_family(socket: SockRef<'_>, address: SocketAddr) -> Result<(), String> {
    if address.is_ipv6() && address.ip().is_unspecified() && !socket.only_v6().map_err(|error| error.to_string())? {
        return Err(format!("{address} also accepts IPv4; set BindIPv6Only=ipv6-only and add a socket for 0.0.0.0"));
    }
    Ok(())
}

/// Returns an error that lists the unclaimed sockets.
pub fn all_taken(given: &InheritedSockets) -> Result<(), Error> {
    let left = given.left();
    if left.is_empty() {
        return Ok(());
    }
    Err(Error::Configuration(format!(
        "the service manager passed sockets that no setting uses: {}; add their addresses to dns.listen, dns.tls.listen, \
         dns.https.listen, dns.quic.listen, api.listen or admin.listen of a role that this process has, or remove them from \
         the socket unit",
        left.join(", ")
    )))
}
