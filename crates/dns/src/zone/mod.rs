//! Zones: their contents, their compilation, and the lock-free map that answers queries.
//!
//! [`contents::Contents`] is a zone for the control plane, zone files and transfers: plain, ordered, editable. [`builder`]
//! compiles it into a [`Zone`]: immutable, with a layout for answers. [`lookup`] finds the data for a query in a zone, and
//! [`db::ZoneDb`] holds all zones. Every change comes there through [`publish`].

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
mod ordered_map;

pub mod policy;

pub mod counter_slots;
pub mod db;
pub mod diff;
pub mod journal;
pub mod parallel;
pub mod publish;
pub mod serial;
pub mod stored;

pub use builder::OwnerChange;
pub use contents::Contents;
pub use db::ZoneDb;
pub use image::Zone;
pub use rrset::{Rrset, Ttl};
pub use serial::Serial;
