//! The resources that users see: types, documentation and the rules of names; no I/O.

#![forbid(unsafe_code)]

pub mod identity;
pub mod names;
pub mod selectors;
pub mod standing;
pub mod statuses;
pub mod text;
pub mod v1alpha1;
