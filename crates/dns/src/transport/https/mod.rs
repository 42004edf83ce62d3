//! DNS over HTTPS (RFC 8484) by HTTP/2 and HTTP/1.1, with `hyper`. [`request`] and [`response`] are pure; `connection` serves a
//! connection, `streams` its HTTP/2 streams, and `exchange` each request.
//!
//! `hyper` is used directly and not `hickory-server` 0.26.3, whose HTTP listener does not support GET (`hickory-net` `h2.rs`,
//! `message_from`), resets the stream of a rejected request instead of sending a status, sets no cache headers, limits neither
//! connections nor clients, and sends responses made of `Record`s, never existing octets.
//!
//! There is no status 429: a client with too many connections is rejected before its handshake, as on every transport, and a
//! client that does not read its answers is disconnected after a wait.

pub(super) mod connection;
mod exchange;
pub mod request;
pub mod response;
mod streams;
