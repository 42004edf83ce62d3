//! The counters of the listeners. Each worker writes its own counters; readers sum them.

use super::count::Count;
use super::durations::Durations;
use crate::nameserver::Transport;
use crate::nameserver::stats::TRANSPORTS;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one worker; those of streams are shared by all connections.
        #[derive(Default)]
        #[repr(align(128))] // So that no two workers write to one cache line, nor to the line prefetched with it.
        pub(super) struct Counters {
            $(pub(super) $name: Count,)*
            /// Iterations of the loop: several a second without work.
            pub(super) iterations: Count,
            durations: [Durations; TRANSPORTS.len()],
        }

        impl Counters {
            /// Returns the durations of requests by this transport.
            pub(super) fn durations(&self, transport: Transport) -> &Durations {
                &self.durations[transport as usize]
            }

            /// Returns the durations for all of [`TRANSPORTS`].
            pub(super) fn all_durations(&self) -> &[Durations; TRANSPORTS.len()] {
                &self.durations
            }
        }

        /// The counts of all listeners since their start.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Totals { $($(#[$doc])* pub $name: u64,)* }

        impl Totals {
            /// Adds one worker's counters.
            pub(super) fn add(&mut self, counters: &Counters) {
                $(self.$name += counters.$name.read();)*
            }
        }
    };
}

counters! {
    /// Datagrams received.
    datagrams,
    /// Calls that received them: `datagrams / batches` is how many come at once.
    batches,
    /// Replies given to the kernel.
    replies,
    /// GSO messages among them: several replies to one peer that were given to the kernel as one.
    gso_messages,
    /// Workers that stopped sending GSO messages because the kernel rejected one.
    gso_refused,
    /// Replies that the kernel refused.
    send_errors,
    /// Failed calls to receive.
    receive_errors,
    /// Batches lost to a panic, which is a bug; the next batch is not affected.
    panics,
    /// Connections accepted.
    connections,
    /// Connections closed at once, since there were too many in total.
    refused_total,
    /// Connections closed at once, since there were too many from one client.
    refused_client,
    /// Failed calls to accept, such as for want of file descriptors.
    accept_errors,
    /// Messages received on streams.
    messages,
    /// Connections closed for their silence.
    idle_timeouts,
    /// Connections closed since a message did not come whole in time.
    read_timeouts,
    /// Connections closed since answers were not taken in time.
    write_timeouts,
    /// Connections closed because of a malformed message, or one that must not be answered.
    malformed,
    /// Connections that broke.
    broken,
    /// TLS handshakes that made a new session.
    handshakes_full,
    /// TLS handshakes that resumed a session.
    handshakes_resumed,
    /// TLS handshakes that were not done in time.
    handshake_timeouts,
    /// TLS handshakes refused since the client offered other protocols only (ALPN).
    handshakes_no_protocol,
    /// TLS handshakes refused since client and server have no version or cipher in common.
    handshakes_incompatible,
    /// TLS handshakes that the client refused, as for a certificate that it does not trust.
    handshakes_refused_by_client,
    /// TLS handshakes refused for a message that is none.
    handshakes_invalid,
    /// TLS handshakes whose connection broke.
    handshakes_broken,
}
