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
/// The number of lines that a queue must have space for, so that they can be received together.
const BATCHED_QUEUE_MIN: u64 = 256;
/// The wait after a line, for others to receive with it. A line that wakes the thread costs the proxy more than the line itself.
const BATCH: Duration = Duration::from_millis(1);

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
    // That of the network namespace in which the socket was created.
    let queue = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").ok();
    let is_long =
        queue.and_then(|queue| queue.trim().parse::<u64>().ok()).is_some_and(|queue| queue >= BATCHED_QUEUE_MIN);
    let run = move || run(&socket, &lines, is_long);
    std::thread::Builder::new().name("proxy-lines".to_owned()).spawn(run)?;
    Ok(())
}

fn run(socket: &UnixDatagram, lines: &Weak<impl LineReceiver>, in_batches: bool) {
    let mut line = vec![0; LINE_BYTES_MAX];
    loop {
        let length = socket.recv(&mut line);
        let Some(lines) = lines.upgrade() else { return };
        match length {
            Ok(length) => {
                lines.take(&line[..length]);
                if in_batches {
                    std::thread::sleep(BATCH);
                    receive_waiting(socket, &mut line, &*lines);
                }
            }
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

/// Gives the lines that wait in the queue to a receiver.
fn receive_waiting(socket: &UnixDatagram, line: &mut [u8], lines: &impl LineReceiver) {
    if socket.set_nonblocking(true).is_ok() {
        while let Ok(length) = socket.recv(line) {
            lines.take(&line[..length]);
        }
    }
    if let Err(error) = socket.set_nonblocking(false) {
        tracing::error!(%error, "failed to wait for lines of the proxy");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use parking_lot::Mutex;
    use signpost_testing::eventually;

    #[derive(Default)]
    struct Received(Mutex<Vec<Vec<u8>>>);

    impl LineReceiver for Received {
        fn take(&self, line: &[u8]) {
            self.0.lock().push(line.to_vec());
        }
    }

    #[test]
    fn each_line_arrives_in_order_alone_or_with_others() {
        for in_batches in [false, true] {
            let (sender, socket) = UnixDatagram::pair().expect("two sockets");
            socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a time");
            let received = Arc::new(Received::default());
            let lines = Arc::downgrade(&received);
            let thread = std::thread::spawn(move || run(&socket, &lines, in_batches));
            let sent: Vec<Vec<u8>> = (0..200_u32).map(|number| number.to_string().into_bytes()).collect();
            for line in &sent {
                sender.send(line).expect("it is received");
            }
            eventually("all lines are received", || (*received.0.lock() == sent).then_some(()));
            drop(received);
            thread.join().expect("the thread ends with its receiver");
        }
    }
}
