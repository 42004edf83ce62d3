//! The resources that users see, as data: types, documentation, the rules of names, and what a binding sets in a Route; no I/O.
//!
//! The API server, the control plane, and the agents share these types. This crate does not depend on the API server.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod v1alpha1;

pub mod names;
pub mod paths;

pub mod assignment;
pub mod conditions;

pub mod instance;
pub mod probe;
pub mod route_state;
pub mod selectors;
pub mod statuses;
pub mod text;

pub mod addresses;
pub mod backends;
pub mod traffic;
