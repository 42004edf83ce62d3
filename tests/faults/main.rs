//! Faults on purpose: the real program in its roles, with the API killed, hung and lying, connections cut in every way,
//! the disk full, the clock wrong, and `kill -9` in the middle of everything.
//!
//! Each file covers one kind of fault. After each fault, the same properties hold: no acknowledged write is lost ([`model`]), no
//! name server ever denied a live name ([`observer`]), and DNS matches the objects ([`platform`]). The guarantees and the
//! measurements are in docs/reliability.md.
//!
//! `SIGNPOST_FAULT_ROUNDS` sets the number of `kill -9` rounds (default 8; the long form is 1000), and `SIGNPOST_FAULT_SEED` sets
//! the seed of the writes and their timing.

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
