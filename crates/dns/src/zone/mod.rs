//! Zones: what they hold, how they are compiled, and the lock-free map from which queries are answered.
//!
//! [`contents::Contents`] is a zone as the control plane, zone files and transfers see it: plain, ordered, editable.
//! [`builder`] compiles it into a [`Zone`]: immutable, laid out for answering. [`lookup`] finds in one what a query asks for,
//! and [`db::ZoneDb`] holds them all.

pub mod check;
pub mod contents;
pub mod rrset;

pub mod builder;
pub mod compression;
pub mod image;
mod leaf;
pub mod node;
pub mod qname;

pub mod denial;
pub mod lookup;

pub mod asked;
pub mod db;
pub mod diff;
pub mod journal;
pub mod numbers;
pub mod parallel;
pub mod serial;
pub mod stored;

pub use builder::OwnerChange;
pub use contents::Contents;
pub use db::ZoneDb;
pub use image::Zone;
pub use rrset::{Rrset, Ttl};
pub use serial::Serial;
