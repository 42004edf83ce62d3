//! The stage on which zones are asked, and the standards.

pub mod stage;

mod rfc4592;
