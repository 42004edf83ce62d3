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
            /// Iterations of the loop: several per second without work.
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
    /// Calls that received them: `datagrams / batches` is the average size of a batch.
    batches,
    /// Replies passed to the kernel.
    replies,
    /// GSO messages among them: several replies to one peer that were passed to the kernel as one message.
    gso_messages,
    /// Workers that stopped sending GSO messages because the kernel rejected one.
    gso_refused,
    /// Replies that the kernel rejected.
    send_errors,
    /// Failed calls to receive.
    receive_errors,
    /// Batches lost to a panic, which is a bug; the next batch is not affected.
    panics,
    /// Connections accepted.
    connections,
    /// Connections closed immediately, because there were too many in total.
    refused_total,
    /// Connections closed immediately, because there were too many from one client.
    refused_client,
    /// Failed calls to accept, for example without free file descriptors.
    accept_errors,
    /// Messages received on streams.
    messages,
    /// Connections closed because they were idle.
    idle_timeouts,
    /// Connections closed because a message was not complete in time.
    read_timeouts,
    /// Connections closed because the client did not read answers in time.
    write_timeouts,
    /// Connections closed because of a malformed message, or one that must not be answered.
    malformed,
    /// Connections that broke.
    broken,
    /// TLS handshakes that created a session.
    handshakes_full,
    /// TLS handshakes that resumed a session.
    handshakes_resumed,
    /// TLS handshakes that were not complete in time.
    handshake_timeouts,
    /// TLS handshakes rejected because the client offered only other protocols (ALPN).
    handshakes_no_protocol,
    /// TLS handshakes rejected because client and server have no common version or cipher.
    handshakes_incompatible,
    /// TLS handshakes that the client rejected, for example because it does not trust the certificate.
    handshakes_refused_by_client,
    /// TLS handshakes rejected because of an invalid message.
    handshakes_invalid,
    /// TLS handshakes whose connection broke.
    handshakes_broken,
}
