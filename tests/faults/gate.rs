//! A TCP proxy that breaks connections in every way that networks and dying peers do.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The treatment of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Connections are forwarded to the server.
    Pass,
    /// Each is reset at once, those that are open too.
    Reset,
    /// No data passes, without an error. New connections are accepted.
    Hang,
    /// The server's side closes gracefully (FIN) in the middle of its data, and sends nothing more. New connections are treated
    /// the same.
    HalfClose,
    /// Instead of the server's octets come others.
    Garbage,
    /// The server's octets come a few at a time.
    Drip,
}

/// A running proxy. Connections that hung, were half-closed, or received garbage stay in that state; afterwards, only new ones
/// pass, as after a firewall's restart.
pub struct Gate {
    mode: watch::Sender<Mode>,
    held: Arc<AtomicUsize>,
    /// The address for clients.
    pub address: SocketAddr,
    _runtime: Runtime,
}

impl Gate {
    /// Returns a proxy to `server`, open.
    pub fn to(server: SocketAddr) -> Gate {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("threads");
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (mode, receiver) = watch::channel(Mode::Pass);
        let held = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&held);
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, server, receiver.clone(), Arc::clone(&counted)));
            }
        });
        Gate { mode, held, address, _runtime: runtime }
    }

    /// Returns the number of open connections that will never carry correct data again.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Sets the treatment of connections.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn serve(client: TcpStream, server: SocketAddr, mode: watch::Receiver<Mode>, held: Arc<AtomicUsize>) {
    let begun = *mode.borrow();
    if begun == Mode::Reset {
        return reset(&client);
    }
    // A server that is not there refuses.
    let Ok(server) = TcpStream::connect(server).await else { return reset(&client) };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = tokio::spawn(forward_up(from_client, to_server, mode.clone()));
    let back = forward_down(from_server, to_client, mode).await;
    if let Some((from_server, to_client)) = back {
        // The client's data is read until the client closes the connection.
        held.fetch_add(1, Ordering::Relaxed);
        drop(up.await);
        held.fetch_sub(1, Ordering::Relaxed);
        drop((from_server, to_client));
    } else {
        up.abort();
    }
}

/// Makes the system answer with RST instead of FIN when the socket is closed.
fn reset(stream: &TcpStream) {
    drop(socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)));
}

/// The client's octets to the server, but while everything hangs.
async fn forward_up(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut mode: watch::Receiver<Mode>) {
    let mut octets = vec![0; 16 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut octets).await else { return };
        if *mode.borrow_and_update() == Mode::Hang {
            // Read and forgotten, until the client gives up.
            while matches!(from.read(&mut octets).await, Ok(1..)) {}
            return;
        }
        if to.write_all(&octets[..length]).await.is_err() {
            return;
        }
    }
}

/// Forwards the server's octets to the client, changed as the mode requires. `None`: the connection is closed. Otherwise, returns
/// the sockets to keep open.
async fn forward_down(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
) -> Option<(OwnedReadHalf, OwnedWriteHalf)> {
    let mut octets = vec![0; 16 * 1024];
    loop {
        let now = *mode.borrow_and_update();
        match now {
            Mode::Reset => {
                reset(to.as_ref());
                return None;
            }
            Mode::Hang => return Some((from, to)),
            Mode::HalfClose => {
                to.shutdown().await.ok()?;
                return Some((from, to));
            }
            Mode::Garbage => {
                to.write_all(b"\x16\x03\x03\xff\xff}{ not a message of a known protocol \x00\x01\x02\r\n\r\n")
                    .await
                    .ok()?;
                return Some((from, to));
            }
            Mode::Pass | Mode::Drip => {}
        }
        let length = tokio::select! {
            length = from.read(&mut octets) => length.ok().filter(|length| *length > 0)?,
            changed = mode.changed() => {
                changed.ok()?;
                continue;
            }
        };
        if now == Mode::Drip {
            for piece in octets[..length].chunks(64) {
                to.write_all(piece).await.ok()?;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        } else {
            to.write_all(&octets[..length]).await.ok()?;
        }
    }
}
