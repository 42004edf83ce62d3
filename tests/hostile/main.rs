//! Hostile tenants and hostile clients against the real program: during each attack, *others* are still served, and memory and
//! disk stay below the limits of `docs/limits.md`.
//!
//! Each file covers one kind of attack, by a tenant (a token with permissions in one namespace) or by an anonymous client (access
//! to the ports only). A test checks that a second tenant's API requests, DNS queries, and `/healthz` are answered during the
//! attack. Without `HOSTILE=long`, the attacks run in their short form, which `scripts/test` uses.

mod certificates;
mod connections;
mod cpu;
mod deletion_holds;
mod encrypted_dns;
mod leaks;
mod memory;
mod names;
mod privilege;
mod rebinding;
mod roles;
mod routers;
mod scene;
mod streams;
mod support;
