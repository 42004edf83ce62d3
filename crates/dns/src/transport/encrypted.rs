//! The encrypted transports: their sockets, and their start.
//!
//! Each transport has its own [`Service`], so that its clients do not use the connections of other transports. All share one
//! runtime, which TCP does not use: a flood of handshakes, each as costly as a hundred answers, then uses only its threads.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use tokio::runtime::Handle;

use super::https;
use super::https::request::TemplatePath;
use super::inherited_sockets::InheritedSockets;
use super::stream::Service;
use super::tls_base::{ALPN_DOT, ALPN_H2, ALPN_HTTP1, TlsBase};
use super::{BindError, Config, Running, tls};
use crate::nameserver::Transport;

/// Sockets of encrypted transports.
#[derive(Default)]
pub(super) struct EncryptedSockets {
    pub(super) tls: Vec<TcpListener>,
    pub(super) quic: Vec<UdpSocket>,
    pub(super) https: Vec<TcpListener>,
    path: TemplatePath,
}

impl EncryptedSockets {
    /// Opens all of `config`.
    pub(super) fn bind(config: &Config, given: &mut InheritedSockets) -> Result<Self, BindError> {
        let mut sockets = EncryptedSockets { path: config.https_path.clone(), ..EncryptedSockets::default() };
        for address in &config.tls_addresses {
            sockets.tls.push(super::tcp_listener(*address, "TLS", given)?);
        }
        for address in &config.quic_addresses {
            sockets.quic.push(quic_socket(*address, given)?);
        }
        for address in &config.https_addresses {
            sockets.https.push(super::tcp_listener(*address, "HTTPS", given)?);
        }
        Ok(sockets)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tls.is_empty() && self.quic.is_empty() && self.https.is_empty()
    }

    /// Starts all of them.
    pub(super) fn start(
        self,
        running: &mut Running,
        handle: &Handle,
        tls: &TlsBase,
        service: impl Fn() -> Arc<Service>,
    ) -> io::Result<()> {
        if !self.tls.is_empty() {
            let config = Arc::new(tls.server_config(&[ALPN_DOT]).map_err(io::Error::other)?);
            let service =
                running.add_encrypted(Transport::Tls, addresses(&self.tls, TcpListener::local_addr), &service);
            for listener in self.tls {
                let config = Arc::clone(&config);
                let serve = move |stream, peer, service| tls::serve(stream, peer, service, Arc::clone(&config));
                running.start_tcp(handle, listener, "TLS", Arc::clone(&service), serve)?;
            }
        }
        #[cfg(feature = "quic")]
        if !self.quic.is_empty() {
            use super::quic::{self, doq};
            let config = doq::tls(tls).map_err(io::Error::other)?;
            let service =
                running.add_encrypted(Transport::Quic, addresses(&self.quic, UdpSocket::local_addr), &service);
            let _inside = handle.enter();
            for socket in self.quic {
                let address = socket.local_addr()?;
                let endpoint = quic::listen(socket, config.clone(), &service.limits)?;
                let service = Arc::clone(&service);
                let accept = |iterations| quic::accept(endpoint, service, iterations);
                running.start_listener(handle, "QUIC", address, accept);
            }
        }
        if !self.https.is_empty() {
            let config = Arc::new(tls.server_config(&[ALPN_H2, ALPN_HTTP1]).map_err(io::Error::other)?);
            let template = Arc::new(self.path);
            let service =
                running.add_encrypted(Transport::Https, addresses(&self.https, TcpListener::local_addr), &service);
            for listener in self.https {
                let template = Arc::clone(&template);
                let config = Arc::clone(&config);
                let serve = move |stream, peer, service| {
                    https::connection::serve(stream, peer, service, Arc::clone(&config), Arc::clone(&template))
                };
                running.start_tcp(handle, listener, "HTTPS", Arc::clone(&service), serve)?;
            }
        }
        Ok(())
    }
}

fn addresses<S>(sockets: &[S], address: impl Fn(&S) -> io::Result<SocketAddr>) -> Vec<SocketAddr> {
    sockets.iter().filter_map(|socket| address(socket).ok()).collect()
}

/// Returns a socket for QUIC.
#[cfg(feature = "quic")]
fn quic_socket(address: SocketAddr, given: &mut InheritedSockets) -> Result<UdpSocket, BindError> {
    // One is sufficient: a connection's packets have to reach the endpoint that has its state.
    match given.take_udp(address).into_iter().next() {
        None => super::quic::bind(address),
        Some(socket) => super::quic::adopt(address, socket),
    }
}

#[cfg(not(feature = "quic"))]
fn quic_socket(address: SocketAddr, _: &mut InheritedSockets) -> Result<UdpSocket, BindError> {
    Err(BindError::NotBuilt { address })
}

/// A transport that is listened on.
pub(super) struct Encrypted {
    pub(super) transport: Transport,
    pub(super) service: Arc<Service>,
    pub(super) addresses: Vec<SocketAddr>,
}

impl Running {
    fn add_encrypted(
        &mut self,
        transport: Transport,
        addresses: Vec<SocketAddr>,
        service: &impl Fn() -> Arc<Service>,
    ) -> Arc<Service> {
        let service = service();
        self.encrypted.push(Encrypted { transport, service: Arc::clone(&service), addresses });
        service
    }

    /// Returns the addresses of an encrypted transport, in the order of the configuration, with the ports that the system chose
    /// for port 0.
    pub fn encrypted_addresses(&self, transport: Transport) -> &[SocketAddr] {
        let of = self.encrypted.iter().find(|encrypted| encrypted.transport == transport);
        of.map_or(&[], |encrypted| &encrypted.addresses)
    }
}
