//! The API server: Kubernetes API conventions over a [`crate::store::Store`].

pub mod apply;
pub mod error;
pub mod patch;
pub mod protobuf;
pub mod registry;
pub mod schema;
