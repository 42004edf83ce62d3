//! The socket at which an agent receives lines from its proxy, one in each datagram.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The longest line. Longer ones are cut off, and are then not valid.
pub const LINE_BYTES_MAX: usize = 16 << 10;
/// The time after which the thread checks whether it is needed.
const IDLE: Duration = Duration::from_millis(500);

/// A receiver of lines.
pub trait LineReceiver: Send + Sync + 'static {
    /// Takes a line. The queue of the socket is short, so that it must not wait.
    fn take(&self, line: &[u8]);
}

/// Creates the socket, and gives its lines to a receiver for as long as that lives. `owner` is the user of the proxy's processes, if it
/// is not that of the agent.
pub(crate) fn receive(path: &Path, owner: Option<u32>, lines: &Arc<impl LineReceiver>) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixDatagram::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    if owner.is_some() {
        std::os::unix::fs::chown(path, owner, None)?;
    }
    socket.set_read_timeout(Some(IDLE))?;
    let lines = Arc::downgrade(lines);
    std::thread::Builder::new().name("proxy-lines".to_owned()).spawn(move || run(&socket, &lines))?;
    Ok(())
}

fn run(socket: &UnixDatagram, lines: &Weak<impl LineReceiver>) {
    let mut line = vec![0; LINE_BYTES_MAX];
    loop {
        let length = socket.recv(&mut line);
        let Some(lines) = lines.upgrade() else { return };
        match length {
            Ok(length) => lines.take(&line[..length]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => {
                tracing::error!(%error, "failed to receive lines of the proxy");
                std::thread::sleep(IDLE);
            }
        }
    }
}
