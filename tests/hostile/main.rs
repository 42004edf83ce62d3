//! Hostile tenants and hostile strangers against the real program: whatever one of them does, *others* are still served, and
//! memory and disk stay below the bounds of `docs/limits.md`.
//!
//! Each file is one kind of attack, from the seat of a tenant (a token with rights in one namespace) or of a stranger
//! (nothing but the ports). A test measures that a second tenant's API requests, DNS queries and `/healthz` are answered
//! while the attack runs. Without `HOSTILE=long` the attacks run in their short form, which is what `scripts/test` does.

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
mod streams;
mod support;
