//! The encrypted transports: their sockets, and their start.
//!
//! Each transport has its own [`Service`], so that its clients do not use the connections of other transports. All share one
//! runtime, which TCP does not use: a flood of handshakes, each as costly as a hundred answers, then uses only its threads.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use tokio::runtime::Handle;

use super::https::request::TemplatePath;
use super::https::response::Common;
use super::https::{self, Site};
use super::inherited_sockets::InheritedSockets;
use super::stream::Service;
#[cfg(feature = "quic")]
use super::tls_base::ALPN_H3;
use super::tls_base::{ALPN_DOT, ALPN_H2, ALPN_HTTP1, TlsBase};
use super::{BindError, Config, Running, tcp};
use crate::nameserver::Transport;

/// Sockets of encrypted transports.
#[derive(Default)]
pub(super) struct EncryptedSockets {
    pub(super) tls: Vec<TcpListener>,
    pub(super) quic: Vec<UdpSocket>,
    pub(super) https: Vec<Https>,
    path: TemplatePath,
}

/// An address of DNS over HTTPS, with its socket of HTTP/3, if that is served.
pub(super) struct Https {
    listener: TcpListener,
    http3: Option<UdpSocket>,
}

impl EncryptedSockets {
    /// Opens all of `config`.
    pub(super) fn bind(config: &Config, given: &mut InheritedSockets) -> Result<Self, BindError> {
        let mut sockets = EncryptedSockets { path: config.https.path.clone(), ..EncryptedSockets::default() };
        for address in &config.tls_addresses {
            sockets.tls.push(super::tcp_listener(*address, "TLS", given)?);
        }
        for address in &config.quic_addresses {
            sockets.quic.push(quic_socket(*address, "QUIC", given)?);
        }
        for address in &config.https_addresses {
            let listener = super::tcp_listener(*address, "HTTPS", given)?;
            // The port that the system chose, if it was 0.
            let address = listener.local_addr().unwrap_or(*address);
            let http3 = config.https.http3.then(|| quic_socket(address, "HTTP/3", given)).transpose()?;
            sockets.https.push(Https { listener, http3 });
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
                let serve = move |stream, peer, service| tcp::serve_tls(stream, peer, service, Arc::clone(&config));
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
                let endpoint = quic::listen(socket, config.clone(), &service.limits, 0)?;
                let service = Arc::clone(&service);
                let accept = |iterations| quic::accept(endpoint, service, iterations, doq::serve);
                running.start_listener(handle, "QUIC", address, accept);
            }
        }
        if !self.https.is_empty() {
            let config = Arc::new(tls.server_config(&[ALPN_H2, ALPN_HTTP1]).map_err(io::Error::other)?);
            let of = addresses(&self.https, |https| https.listener.local_addr());
            let service = running.add_encrypted(Transport::Https, of, &service);
            for Https { listener, http3 } in self.https {
                let port = http3.as_ref().and_then(|socket| Some(socket.local_addr().ok()?.port()));
                let site = Arc::new(Site { path: self.path.clone(), common: Common::new(port) });
                #[cfg(feature = "quic")]
                if let Some(socket) = http3 {
                    use super::quic;
                    let address = socket.local_addr()?;
                    let config = tls.server_config_for_quic(&[ALPN_H3]).map_err(io::Error::other)?;
                    let _inside = handle.enter();
                    let endpoint = quic::listen(socket, config, &service.limits, https::http3::UNI_STREAMS_MAX)?;
                    let (site, service) = (Arc::clone(&site), Arc::clone(&service));
                    let serve = move |opened| https::http3::serve(opened, Arc::clone(&site));
                    let accept = |iterations| quic::accept(endpoint, service, iterations, serve);
                    running.start_listener(handle, "HTTP/3", address, accept);
                }
                let config = Arc::clone(&config);
                let serve = move |stream, peer, service| {
                    https::tcp::serve(stream, peer, service, Arc::clone(&config), Arc::clone(&site))
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
fn quic_socket(
    address: SocketAddr,
    protocol: &'static str,
    given: &mut InheritedSockets,
) -> Result<UdpSocket, BindError> {
    // One is sufficient: a connection's packets have to reach the endpoint that has its state.
    match given.take_udp(address).into_iter().next() {
        None => super::quic::bind(address, protocol),
        Some(socket) => super::quic::adopt(address, socket, protocol),
    }
}

#[cfg(not(feature = "quic"))]
fn quic_socket(address: SocketAddr, protocol: &'static str, _: &mut InheritedSockets) -> Result<UdpSocket, BindError> {
    Err(BindError::NotBuilt { address, protocol })
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
