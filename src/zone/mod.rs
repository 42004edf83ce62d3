//! Zones: what they hold, and the lock-free map from which queries are answered.
//!
//! [`contents::Contents`] is a zone as the control plane, zone files and transfers see it: plain, ordered, editable.

pub mod check;
pub mod contents;
pub mod db;
pub mod rrset;

pub use contents::Contents;
pub use rrset::{Rrset, Ttl};
