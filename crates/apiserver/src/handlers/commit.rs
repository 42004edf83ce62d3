//! The commit of a write with all related writes, and the response.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::admit::Admitted;
use super::related::{self, CacheReader};
use super::writer::{CurrentObject, Writer, name_of};
use crate::error::ApiError;
use crate::kind::Kind;
use crate::negotiate::Format;
use crate::object::{self, Object};
use crate::registry::{HookResult, Operation, RelatedWrite};
use crate::request::object_key;
use crate::store::{Error, Key, KeyValue, Outcome, Precondition, Revision, Txn, Write};
use crate::table::Include;
use crate::watch_cache::SHOWN_WAIT;
use crate::{representation, respond};

/// The number of attempts of a write that loses races before it fails with a conflict.
pub(crate) const ATTEMPTS: usize = 6;

/// A commit that failed.
pub(crate) enum CommitConflict {
    /// Another client wrote one of the objects first; `main` is the current value of the written key.
    Race {
        /// The current value of the written key.
        main: Option<KeyValue>,
    },
    /// The commit failed.
    Failed(ApiError),
}

impl From<ApiError> for CommitConflict {
    fn from(error: ApiError) -> Self {
        CommitConflict::Failed(error)
    }
}

/// The result of a write.
pub(crate) struct Written {
    pub(crate) status: StatusCode,
    /// The object after the write.
    pub(crate) object: Arc<Object>,
    /// The warnings for the client.
    pub(crate) warnings: Vec<String>,
}

impl Writer<'_> {
    /// Calls the hook of the kind and returns the related writes.
    pub(crate) async fn before_commit(&self, operation: Operation<'_>) -> HookResult {
        let reader = CacheReader { server: self.server };
        self.hooks().before_commit(&self.context(), operation, &reader).await
    }

    /// Commits a new object.
    pub(crate) async fn commit_create(
        &self,
        admitted: Admitted,
        side: Vec<RelatedWrite>,
        namespace: Option<(Key, Revision)>,
    ) -> Result<Arc<Object>, CommitConflict> {
        let expect = namespace.map(|(key, at)| (key, Precondition::At(at)));
        self.commit(admitted.name.clone(), Precondition::Absent, Some(admitted), side, expect, false).await
    }

    /// Commits a changed object over `live`.
    pub(crate) async fn commit_update(
        &self,
        live: &CurrentObject,
        admitted: Admitted,
        side: Vec<RelatedWrite>,
    ) -> Result<Arc<Object>, CommitConflict> {
        let (expect, frees) = (Precondition::At(Revision(live.revision)), admitted.frees);
        self.commit(admitted.name.clone(), expect, Some(admitted), side, None, frees).await
    }

    /// Commits a deletion.
    pub(crate) async fn commit_delete(
        &self,
        live: &CurrentObject,
        side: Vec<RelatedWrite>,
    ) -> Result<u64, CommitConflict> {
        let expect = Precondition::At(Revision(live.revision));
        let name = name_of(&live.tree).to_owned();
        self.commit(name, expect, None, side, None, true).await.map(|object| object.revision)
    }

    async fn commit(
        &self,
        name: String,
        expect: Precondition,
        admitted: Option<Admitted>,
        side: Vec<RelatedWrite>,
        also: Option<(Key, Precondition)>,
        frees: bool,
    ) -> Result<Arc<Object>, CommitConflict> {
        let key = self.store_key(&name);
        let (encoded, reservation) = match admitted {
            Some(Admitted { value, reservation, .. }) => (Some(value), reservation),
            None => (None, None),
        };
        let mut txn = Txn { expect: vec![(key.clone(), expect)], frees, ..Txn::default() };
        txn.expect.extend(also);
        txn.writes.push(match &encoded {
            Some(value) => Write::Put { key: key.clone(), value: value.clone(), ttl: self.kind.time_to_live },
            None => Write::Delete { key: key.clone() },
        });
        for write in side {
            related::add(&self.server.kinds, &mut txn, write)?;
        }
        let server = self.server.clone();
        let committing = async move { server.store.commit(txn).await };
        let committed = match reservation {
            None => committing.await,
            Some(reservation) => {
                // A client that disconnects ends the request, but not the commit, which the reservation must outlast.
                let server = self.server.clone();
                let reserved = async move {
                    let committed = committing.await;
                    if let Ok(Outcome::Committed(revision)) = &committed {
                        server.cache.reaches(revision.0, SHOWN_WAIT).await;
                    }
                    drop(reservation);
                    committed
                };
                let reserved = tokio::spawn(reserved).await;
                reserved.map_err(|_| ApiError::internal("internal error during the commit"))?
            }
        };
        let revision = match committed {
            Ok(Outcome::Committed(revision)) => revision.0,
            Ok(Outcome::Refused { at, found }) => {
                // The retry reads the cache, which must contain the change that caused the conflict.
                self.server.cache.reaches(at.0, SHOWN_WAIT).await;
                return Err(CommitConflict::Race { main: found.into_iter().next().flatten() });
            }
            Err(Error::OutcomeUnknown) => {
                // If the store cannot be read, the outcome stays unknown.
                let (_, found) =
                    self.server.store.get(&key, None).await.map_err(|_| ApiError::from(Error::OutcomeUnknown))?;
                match (found, &encoded) {
                    (Some(found), Some(value)) if found.value == *value => found.modified.0,
                    _ => return Err(CommitConflict::Failed(Error::OutcomeUnknown.into())),
                }
            }
            Err(error) => return Err(CommitConflict::Failed(error.into())),
        };
        if !self.server.cache.reaches(revision, SHOWN_WAIT).await {
            tracing::warn!(revision, "answered a write before the watch cache had it");
        }
        let relative = object_key(self.namespace, &name);
        // The cache has usually decoded it already.
        if let Some(shown) = self.server.cache.kind_cache(self.kind).get(&relative).filter(|it| it.revision == revision)
        {
            return Ok(shown);
        }
        // A deletion returns only its revision.
        let value = encoded.unwrap_or_else(|| object::encode(&json!({})).into());
        Ok(Arc::new(self.object(&relative, &value, revision)?))
    }

    /// Returns the warnings for the sender of an object.
    pub(crate) fn warnings(&self, is_new: bool, object: &Object) -> Vec<String> {
        if !self.hooks().has_warnings() {
            return Vec::new();
        }
        let (tree, reader) = (representation::tree(self.kind, object), CacheReader { server: self.server });
        self.hooks().warnings(is_new, &tree, &reader)
    }
}

impl Written {
    /// Returns the answer to the client.
    pub(crate) fn respond(self, kind: &'static Kind, format: Format, include: Include) -> Response {
        let mut response = respond::object(self.status, kind, format, include, &self.object);
        respond::warn(&mut response, &self.warnings);
        response
    }
}
