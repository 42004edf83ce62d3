//! Signpost: an authoritative DNS server whose zones follow a platform's router shards, and the scheduler that puts routes
//! on them.
//!
//! Three walks lead through the tree, each to be read top to bottom:
//!
//! 1. A query: `transport::udp` → `nameserver` → `zone::lookup` → `nameserver::answer` → back out.
//! 2. An object: `apiserver` → `store` → `client` → `scheduler` → `controller::zone` → `compiler` → `zone::db`.
//! 3. An operator: `admin` → what is running.
//!
//! The data plane (`wire` to `transport`) and the control plane (`api` to `controller`) meet in `zone::db` and nowhere
//! else. `tests/tidy.rs` holds the table of which module may use which.

// --- data plane ---
pub mod nameserver;
pub mod sys;
pub mod transport;
pub mod wire;
pub mod zone;
pub mod zonefile;

// --- control plane ---
pub mod api;
pub mod apiserver;
pub mod client;
pub mod compiler;
pub mod controller;
pub mod scheduler;
pub mod store;

// --- edges ---
pub mod admin;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod httpd;
pub mod tls;

// --- below everything ---
pub mod clock;
pub mod telemetry;
