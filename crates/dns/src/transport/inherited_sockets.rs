//! Sockets that another process opened for this one, such as a service manager that holds them over a restart.
//!
//! Sockets are identified by their addresses: code that listens on an address first searches here. Sockets that remain unclaimed at
//! the end would collect queries without a reader: [`InheritedSockets::left`] returns them.

use std::net::{SocketAddr, TcpListener, UdpSocket};

/// Sockets that are open already, by the addresses that they are bound to.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    tcp: Vec<(SocketAddr, TcpListener)>,
    udp: Vec<(SocketAddr, UdpSocket)>,
}

impl InheritedSockets {
    /// Adds a socket that listens for connections.
    pub fn add_tcp(&mut self, address: SocketAddr, socket: TcpListener) {
        self.tcp.push((address, socket));
    }

    /// Adds a socket that receives datagrams. Several may share an address (SO_REUSEPORT).
    pub fn add_udp(&mut self, address: SocketAddr, socket: UdpSocket) {
        self.udp.push((address, socket));
    }

    /// Takes the listener on `address`, if there is one.
    pub fn take_tcp(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let at = self.tcp.iter().position(|(bound, _)| *bound == address)?;
        Some(self.tcp.swap_remove(at).1)
    }

    /// Takes all datagram sockets on `address`, in their order.
    pub fn take_udp(&mut self, address: SocketAddr) -> Vec<UdpSocket> {
        self.udp.extract_if(.., |(bound, _)| *bound == address).map(|(_, socket)| socket).collect()
    }

    /// Returns the unclaimed sockets, such as `UDP 192.0.2.1:53`.
    pub fn left(&self) -> Vec<String> {
        let tcp = self.tcp.iter().map(|(address, _)| format!("TCP {address}"));
        tcp.chain(self.udp.iter().map(|(address, _)| format!("UDP {address}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn each_socket_is_taken_once_by_its_address() {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (at_tcp, at_udp) = (tcp.local_addr().expect("bound"), udp.local_addr().expect("bound"));
        let mut given = InheritedSockets::default();
        given.add_udp(at_udp, udp.try_clone().expect("another handle"));
        given.add_tcp(at_tcp, tcp);
        given.add_udp(at_udp, udp);
        assert_eq!(given.left(), [format!("TCP {at_tcp}"), format!("UDP {at_udp}"), format!("UDP {at_udp}")]);
        assert_eq!(given.take_udp(at_udp).len(), 2);
        assert!(given.take_udp(at_udp).is_empty());
        assert!(given.take_tcp(at_udp).is_none() || at_udp == at_tcp);
        assert!(given.take_tcp(at_tcp).is_some());
        assert!(given.take_tcp(at_tcp).is_none());
        assert!(given.left().is_empty());
    }
}
