//! The address of this machine that received a datagram, and from which its answer is sent: IP_PKTINFO and IPV6_PKTINFO.
//!
//! A socket bound to the wildcard address would otherwise answer from the address that the route prefers, and a resolver drops an
//! answer from another address than the one it queried (RFC 2181 §4.1). The option costs 0.1–0.3 µs per datagram, so sockets
//! bound to one address do not use it. `socket2` has neither option.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_void};

/// Requests the destination address of each datagram, on a socket bound to the wildcard address of this family.
///
/// # Errors
///
/// The error of `setsockopt`.
pub fn enable(socket: BorrowedFd<'_>, bound: SocketAddr) -> io::Result<()> {
    match bound {
        SocketAddr::V4(_) => set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
        SocketAddr::V6(_) => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
    }
}

/// Ignores received "fragmentation needed" messages: a forged one would make the kernel send fragments, and an attacker can also
/// forge their tails. RFC 9715 describes this; BIND, Knot, NSD and Unbound do the same.
///
/// # Errors
///
/// The error of `setsockopt`.
pub fn ignore_path_mtu(socket: BorrowedFd<'_>, bound: SocketAddr) -> io::Result<()> {
    match bound {
        SocketAddr::V4(_) => set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT),
        SocketAddr::V6(_) => set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, IPV6_PMTUDISC_OMIT),
    }
}

/// Also sets DF, so that routers do not fragment answers; over IPv6 they never do (RFC 9715 R2, "prevent fragmentation of UDP
/// packets when sending replies"). An answer that is too large for an interface is then rejected with `EMSGSIZE`, and one that is
/// too large for the path is lost; so this is for answers that fit everywhere. A datagram that cannot be fragmented needs no
/// identification for reassembly (RFC 6864), and the kernel's selection of that number is a tenth of the cost of a reply, because
/// all processors share its counters.
///
/// # Errors
///
/// The error of `setsockopt`.
pub fn forbid_fragments(socket: BorrowedFd<'_>, bound: SocketAddr) -> io::Result<()> {
    match bound {
        // Not IP_PMTUDISC_DO, which would accept unauthenticated path MTU messages.
        SocketAddr::V4(_) => set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
        SocketAddr::V6(_) => ignore_path_mtu(socket, bound),
    }
}

/// `linux/in6.h`; missing in the `libc` crate.
const IPV6_PMTUDISC_OMIT: c_int = 5;

fn set(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let (pointer, size) = (std::ptr::from_ref(&value).cast::<c_void>(), size_of_val(&value) as libc::socklen_t);
    // SAFETY: the pointer is to a `c_int` that outlives the call, and the size given is its size; the descriptor is open
    // since it is borrowed.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer, size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
