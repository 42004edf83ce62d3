//! The signals that a process handles.

use std::io;

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Stop (SIGTERM, SIGINT).
    End,
    Reload,
}

/// The signals of this process, from its creation on.
pub struct Signals {
    terminate: Stream,
    interrupt: Stream,
    hang_up: Stream,
    is_interrupted: bool,
}

impl Signals {
    /// Registers handlers; the default actions of these signals are disabled.
    pub fn new() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            is_interrupted: false,
        })
    }

    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::End,
            _ = self.interrupt.recv() => {
                self.is_interrupted = true;
                Signal::End
            }
            _ = self.hang_up.recv() => Signal::Reload,
        }
    }

    /// Returns whether a person has ended the process at a terminal (SIGINT).
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Waits for the next signal that stops the process. A request to reload meanwhile stays pending for [`Signals::next`]: a
    /// process that starts has perhaps already read the former file.
    pub async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => self.is_interrupted = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};
    use std::time::Duration;

    use super::{Signal, Signals};

    #[tokio::test]
    async fn a_request_to_reload_during_the_start_stays_pending() {
        let mut signals = Signals::new().expect("handlers");
        let sent = Command::new("kill").args(["-HUP", &id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        let ended = tokio::time::timeout(Duration::from_millis(50), signals.end()).await;
        assert!(ended.is_err(), "a request to reload does not stop the process");
        assert_eq!(signals.next().await, Signal::Reload);
    }
}
