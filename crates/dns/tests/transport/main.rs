//! The listeners on real loopback sockets, with a real zone behind them.
#![allow(clippy::unwrap_used)]

mod bind;
mod frames;
mod hand_off;
mod https;
#[cfg(feature = "quic")]
mod quic;
mod stream;
mod support;
mod tls;
mod tls_client;
mod transfers;
mod udp;
