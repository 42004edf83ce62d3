//! Signpost: an authoritative DNS server whose zones follow a platform's router shards, and the scheduler that puts routes
//! on them.
//!
//! This package is the program; the crates under `crates/` are its layers:
//!
//! 1. `signpost-dns`: a query, from socket to answer.
//! 2. `signpost-apiserver` and `signpost-api`: the API and its kinds. `signpost-control`: from an object to a zone.
//! 3. Here: what an operator starts (`daemon`), configures (`config`), calls (`cli`) and watches (`admin`); the requests to
//!    agents (`agents`), and the sign-in at identity providers (`oidc`).

mod admin;
mod agents;
pub mod cli;
pub mod config;
mod daemon;
mod oidc;
