//! The API server: Kubernetes API conventions over a [`crate::store::Store`].

pub mod error;
pub mod registry;
