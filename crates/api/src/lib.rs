//! The resources that users see: types, documentation, the rules of names, and what the API server needs to serve them; no I/O.

#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "an ApiError ends its request: its size in a result is small compared with the response"
)]

pub mod v1alpha1;

pub mod names;
pub(crate) mod rules;

pub mod instance;
pub mod probe;
pub mod route_state;
pub mod selectors;
pub mod statuses;
pub mod text;

pub mod identity;

pub mod access;
pub mod crds;
pub mod kinds;
