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
mod memory;
pub mod packet_info;
mod trains;
