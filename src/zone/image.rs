//! A zone compiled for answering: immutable, contiguous.

use super::builder::{BuildError, OwnerChange};
use super::contents::Contents;
use super::serial::Serial;
use crate::wire::Name;

/// A compiled zone.
pub struct Zone {
    apex: Name,
}

/// Why a known zone cannot be answered from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// It was never loaded, or its load failed and there is no earlier version.
    NotLoaded,
    /// A secondary's copy that was not refreshed within the SOA's expiry.
    Expired,
}

impl Zone {
    /// Compiles `contents`.
    pub fn build(_contents: &Contents) -> Result<Zone, BuildError> {
        Err(BuildError::NoSoa)
    }

    /// A zone that is known and cannot be served: its names are answered SERVFAIL.
    pub fn unavailable(apex: Name, _why: Unavailable) -> Zone {
        Zone { apex }
    }

    /// This zone with the records of some owners replaced; costs what changed, not what is there.
    pub fn with_changes(&self, _changes: &[OwnerChange]) -> Result<Zone, BuildError> {
        Err(BuildError::NoSoa)
    }

    /// The name at the zone's top.
    pub fn apex(&self) -> &Name {
        &self.apex
    }

    /// The SOA's serial; `None` for an unavailable zone.
    pub fn serial(&self) -> Option<Serial> {
        None
    }

    /// The zone's records, taken back out of the image.
    pub fn contents(&self) -> Contents {
        Contents::new(self.apex.clone())
    }
}
