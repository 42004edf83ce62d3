//! The signals that a process handles.

use std::io;

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// End (SIGTERM, SIGINT).
    End,
    Reload,
}

/// Signals of this process, from the moment this was made.
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

    /// The next one that ends the process; reloads meanwhile are forgotten.
    pub async fn end(&mut self) {
        while self.next().await != Signal::End {}
    }
}
