//! Compiling a zone.

use super::rrset::Rrset;
use crate::wire::{Name, RecordType};

/// What an owner has after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerChange {
    /// Whose records.
    pub owner: Name,
    /// All its RRsets; none: it is gone.
    pub rrsets: Vec<Rrset>,
    /// Weights of its address RRsets, as in [`super::Contents::set_weights`].
    pub weights: Vec<(RecordType, Vec<u16>)>,
}

/// Why contents cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// There is not exactly one well-formed SOA at the apex.
    #[error("the apex needs exactly one SOA record")]
    NoSoa,
}
