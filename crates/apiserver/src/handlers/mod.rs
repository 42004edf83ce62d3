//! What is done to objects, a file a verb. [`mod@write`] holds what all writes share, `related` what they do to
//! other objects, and `admit` what limits them.

pub(crate) mod admit;
pub mod body;
pub mod create;
pub mod delete;
mod difference;
pub mod get;
pub mod list;
pub mod patch;
pub(crate) mod related;
pub mod update;
pub mod watch;
pub mod write;

use std::sync::Arc;

use http::HeaderMap;

use super::Shared;
use super::request::{Query, Resource};
use crate::auth::identity::Identity;

/// A request for objects that may be answered: its sender has the right.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Arc<Shared>,
    pub(crate) resource: Resource,
    pub(crate) query: Query,
    pub(crate) identity: &'a Identity,
    pub(crate) headers: &'a HeaderMap,
}
