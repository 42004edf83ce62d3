//! The engine's answers, by standard and section: a test's path is its specification.

#[path = "conformance/mod.rs"]
mod conformance;

use conformance::over::also_ask;

/// A running server, for the sections about streams.
#[path = "transport/support.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests of the transports use more of it, and fail by their panics"
)]
mod support;

/// Clients of the encrypted transports.
#[path = "transport/tls_client.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests of the transports use more of it, and fail by their panics"
)]
mod tls_client;
