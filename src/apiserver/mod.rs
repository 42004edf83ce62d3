//! The API server: Kubernetes API conventions over a [`crate::store::Store`].

pub mod apply;
pub mod auth;
pub mod continue_token;
pub mod engine;
pub mod error;
pub mod negotiate;
pub mod object;
pub mod patch;
pub mod protobuf;
pub mod registry;
pub mod request;
pub mod review;
pub mod schema;
pub mod selector;
pub mod watch_cache;
