//! System calls and machine instructions that safe Rust does not provide: the only module with `unsafe`.
//!
//! Each file wraps one facility in small safe functions. Every `unsafe` block states the invariants on which it relies, and the
//! file states why safe code is not sufficient.
#![allow(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("signpost needs Linux: its UDP workers use recvmmsg, sendmmsg and Linux's SO_REUSEPORT");

pub mod allocator;
pub mod cpu;
pub mod datagrams;
pub mod files;
mod gso;
mod memory;
pub mod packet_info;

/// The maximum number of datagrams that one call receives or sends. At 32, the cost of the call itself is already down to a few
/// nanoseconds each; more than 64 would only add to the latency of the first.
pub const BATCH_MAX: usize = 64;
