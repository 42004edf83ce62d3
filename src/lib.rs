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
//! else. `tests/tidy.rs` holds the table of which module may use which. The fuzz targets of the data plane are built with it
//! alone (`--cfg fuzzing`, which `scripts/fuzz` sets for them).

// --- data plane ---
#[cfg(not(fuzzing))]
pub mod inquiry;
pub mod nameserver;
#[cfg(not(fuzzing))]
pub mod sys;
#[cfg(not(fuzzing))]
pub mod transport;
pub mod wire;
pub mod zone;
pub mod zonefile;

// --- control plane ---
#[cfg(not(fuzzing))]
pub mod api;
#[cfg(not(fuzzing))]
pub mod apiserver;
#[cfg(not(fuzzing))]
pub mod client;
#[cfg(not(fuzzing))]
pub mod compiler;
#[cfg(not(fuzzing))]
pub mod controller;
#[cfg(not(fuzzing))]
pub mod scheduler;
#[cfg(not(fuzzing))]
pub mod store;

// --- edges ---
#[cfg(not(fuzzing))]
pub mod admin;
#[cfg(not(fuzzing))]
pub mod cli;
#[cfg(not(fuzzing))]
pub mod config;
#[cfg(not(fuzzing))]
pub mod daemon;
#[cfg(not(fuzzing))]
pub mod httpd;
#[cfg(not(fuzzing))]
pub mod tls;

// --- below everything ---
#[cfg(not(fuzzing))]
pub mod clock;
#[cfg(not(fuzzing))]
pub mod ending;
#[cfg(not(fuzzing))]
pub mod telemetry;
#[cfg(not(fuzzing))]
pub mod trust;
