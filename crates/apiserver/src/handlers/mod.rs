//! What is done to objects, a file a verb. Every write passes `writer` (what it is about), `prepare` (the object that will be
//! written), `admit` (what limits it) and `commit` (with what it does to other objects, `related`).

pub mod body;
mod difference;
pub(crate) mod related;
pub(crate) mod writer;

pub(crate) mod admit;
pub(crate) mod commit;
pub(crate) mod prepare;

pub mod get;
pub mod list;
pub mod watch;

pub mod create;
pub mod update;

pub mod delete;
pub mod patch;

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
