//! System calls and machine instructions that safe Rust has no words for: the only module with `unsafe`.
//!
//! Each file wraps one thing in small safe functions. Every `unsafe` block says which invariants it relies on, and the
//! file says why safe code would not do.
#![allow(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("signpost needs Linux: its UDP workers use recvmmsg, sendmmsg and Linux's SO_REUSEPORT");

pub mod cpu;
pub mod datagrams;
pub mod files;
mod gso;
mod memory;
pub mod packet_info;

/// How many datagrams one call receives or sends at most. At 32 the cost of the call itself is already down to a few
/// nanoseconds each; more than 64 would only add to the latency of the first.
pub const BATCH_MAX: usize = 64;
