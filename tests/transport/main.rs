//! The listeners on real loopback sockets, with a real zone behind them.

mod bind;
mod stream;
mod support;
mod udp;
