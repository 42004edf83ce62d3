//! The verbs on objects, one file per verb. Every write passes through `writer` (its sender and target), `prepare` (the object to
//! write), `admit` (its limits), and `commit` (with its changes to other objects, `related`).

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
use crate::work::UsersWork;

/// An authorized request for objects.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Arc<Shared>,
    pub(crate) resource: Resource,
    pub(crate) query: Query,
    pub(crate) identity: &'a Identity,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) work: UsersWork,
}
