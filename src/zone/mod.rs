//! Zones: what they hold, and the lock-free map from which queries are answered.
//!
//! [`contents::Contents`] is a zone as the control plane, zone files and transfers see it: plain, ordered, editable.

pub mod builder;
pub mod check;
pub mod contents;
pub mod db;
pub mod image;
pub mod journal;
pub mod rrset;
pub mod serial;

pub use builder::OwnerChange;
pub use contents::Contents;
pub use db::ZoneDb;
pub use image::Zone;
pub use rrset::{Rrset, Ttl};
pub use serial::Serial;
