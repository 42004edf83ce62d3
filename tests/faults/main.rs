//! Faults on purpose: the real program in its roles, with the API killed, hung and lying, connections cut in every way,
//! the disk full, the clock wrong, and `kill -9` in the middle of everything.
//!
//! Each file is one kind of fault. After each, the same is asked: no acknowledged write is lost ([`model`]), no name server
//! ever denied a live name ([`observer`]), and DNS is what the objects say ([`platform`]). What is promised and what was
//! measured is in docs/reliability.md.
//!
//! `SIGNPOST_FAULT_ROUNDS` sets how often `kill -9` comes (8 if unset; the long form is 1000), and `SIGNPOST_FAULT_SEED`
//! what is written and when.

mod api_gone;
mod api_lies;
mod clock;
mod connections;
mod disk_full;
mod gate;
mod kill;
mod liar;
mod model;
mod observer;
mod partition;
mod platform;
mod split;
mod sync;
mod telling;
