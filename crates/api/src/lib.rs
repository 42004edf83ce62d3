//! The kinds of `signpost-types` in the API server: their hooks, rules, and rights, and the CRDs of the same kinds.

#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "an ApiError ends its request: its size in a result is small compared with the response"
)]

pub mod kinds;
pub(crate) mod rules;

pub mod access;
pub mod identity;

pub mod crds;
