//! The kinds that a server serves: their specific behavior ([`Hooks`]), and the set of all ([`Kinds`]). [`Kind`] describes a
//! kind.
//!
//! The only kind with special treatment in the handlers is Namespace. A write goes through the hooks of its kind in this order:
//!
//! 1. `schema::parse_json`, `schema::prune` (unknown fields), and the verb's own work (patch, merge, server-side apply), then
//!    `bounds::check` and `schema::sizes`: an object with a list, map, or text above its maximum goes no further;
//! 2. the stored status takes the place of the `status` that the client sent; see [`Hooks::status_writer`];
//! 3. [`Hooks::prepare`] or [`Hooks::prepare_status`], then `apply::track_update` (which fills in the defaults of the schema)
//!    unless it was a server-side apply, then `schema::apply_defaults`;
//! 4. `schema::validate`, [`metadata::validate`], and [`Hooks::validate`] or [`Hooks::validate_status_update`]: all causes
//!    together make one answer;
//! 5. [`Hooks::before_commit`], and the commit with all the related writes;
//! 6. [`Hooks::warnings`].

pub mod event;
pub mod lease;
pub mod namespace;

pub mod bounds;
pub mod conflict_key;
pub mod kinds;
pub mod labels;
pub mod metadata;

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use self::conflict_key::ConflictKey;
use self::kinds::Kinds;
use super::apply;
use super::auth::identity::Identity;
use super::cause::Cause;
use super::error::ApiError;
use super::kind::Kind;
use super::schema;

/// The request, in the form for hooks.
pub struct Context<'a> {
    /// All kinds that the server serves.
    pub kinds: &'a Kinds,
    /// The user that sent it.
    pub identity: &'a Identity,
    /// Namespace of the object, if it has one.
    pub namespace: Option<&'a str>,
    /// The field manager of the request.
    pub manager: &'a str,
    /// The time of the request.
    pub now: Timestamp,
}

/// A write before the commit, in the form for the hooks of the kind.
#[derive(Clone, Copy)]
pub enum Operation<'a> {
    /// A new object.
    Create(&'a Value),
    /// A changed object, main resource or status.
    Update {
        /// The stored object.
        old: &'a Value,
        /// The object to store.
        new: &'a Value,
    },
    /// A client deletes the object: the hook decides whether the deletion is permitted. The commit deletes the object; or, if
    /// finalizers hold it, the deletion only begins, and then only the preconditions of the related writes apply.
    Delete {
        /// The stored object.
        old: &'a Value,
        /// The query parameters and body of the DELETE.
        options: &'a Value,
    },
    /// The deletion of the object began earlier, was checked then, and ends with this commit. (Or a DELETE is repeated meanwhile;
    /// then only the preconditions of the related writes apply.)
    Release {
        /// The stored object.
        old: &'a Value,
    },
}

/// Reads of other objects during a write, in the form that [`crate::kind::HookReads`] of their kind defines. Lists have no field
/// sets.
#[async_trait]
pub trait Reader: Send + Sync {
    /// Returns one stored object, `None` if it does not exist.
    fn get(&self, kind: &str, namespace: Option<&str>, name: &str) -> Result<Option<Arc<Value>>, ApiError>;
    /// Returns all objects of a kind, of a namespace or of all.
    fn list(&self, kind: &str, namespace: Option<&str>) -> Result<Vec<Value>, ApiError>;
    /// Returns the number of objects of a kind, in all namespaces, with `value` in `field`, one of the kind's
    /// `selectable_fields`.
    fn count(&self, kind: &str, field: &str, value: &str) -> Result<usize, ApiError>;
    /// Returns the number of all objects of a kind.
    fn number(&self, kind: &str) -> Result<usize, ApiError>;
    /// Returns the stored bytes of all objects of a kind that has a quota.
    fn bytes(&self, kind: &str) -> Result<u64, ApiError>;
    /// Returns the objects of a kind, in all namespaces, whose `field`, one of the kind's `selectable_fields`, is as `test` wants
    /// it.
    fn matching(&self, kind: &str, field: &str, test: &dyn Fn(&str) -> bool) -> Result<Vec<Value>, ApiError>;
    /// Returns the objects of a kind in a namespace with `value` in `field`, one of the kind's `selectable_fields`.
    fn selected(&self, kind: &str, namespace: &str, field: &str, value: &str) -> Result<Vec<Value>, ApiError>;
    /// Returns the last write of the key as a precondition; `None`: it was never touched. Later reads include all changes up to
    /// then that touched it. An error if that takes too long.
    async fn touched(&self, key: &ConflictKey) -> Result<Option<String>, ApiError>;
}

/// A change of, or dependency on, another object. It is committed in the same transaction, which fails and is tried again if that
/// object differs from the version that the hook read.
pub struct RelatedWrite {
    /// Kind of the other object, or [`conflict_key::KIND`].
    pub kind: &'static str,
    /// The namespace of the object, if it has one.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
    /// The required `metadata.resourceVersion` of the object; `None`: it must not exist.
    pub expect: Option<String>,
    /// The effect on the object.
    pub effect: SideEffect,
}

/// The change of another object than the written one.
#[derive(Debug, PartialEq)]
pub enum SideEffect {
    /// Write this object.
    Put(Value),
    /// Delete the object.
    Delete,
    /// No change: a hook has read it, and its decision depends on it.
    Keep,
    /// Write the object unconditionally: `expect` does not apply. For conflict keys.
    Touch,
}

/// The related writes that a hook commits with a write, or the reason that it cannot be done.
pub type HookResult = Result<Vec<RelatedWrite>, ApiError>;

impl RelatedWrite {
    /// Returns the requirement that `object`, which a hook has read, is unchanged at the commit.
    pub fn keep(kind: &'static str, object: &Value) -> RelatedWrite {
        let text = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
        RelatedWrite {
            kind,
            namespace: text("namespace"),
            name: text("name").unwrap_or_default(),
            expect: text("resourceVersion"),
            effect: SideEffect::Keep,
        }
    }

    /// Reduces the write to its precondition.
    pub fn expectation(self) -> Option<RelatedWrite> {
        (self.effect != SideEffect::Touch).then_some(RelatedWrite { effect: SideEffect::Keep, ..self })
    }
}

/// Returns a new object that a hook of another kind makes, validated like an object that a client sends.
pub fn made(context: &Context<'_>, kind: &'static Kind, mut object: Value) -> Result<Value, ApiError> {
    let causes = complete(context, kind, &mut object, false);
    match causes.is_empty() {
        true => Ok(object),
        false => Err(ApiError::invalid(kind, object["metadata"]["name"].as_str().unwrap_or_default(), causes)),
    }
}

/// Sets the server's fields of a new object, fills in defaults, and returns its errors. `is_tracked`: its field sets are already
/// computed.
pub(crate) fn complete(context: &Context<'_>, kind: &'static Kind, object: &mut Value, is_tracked: bool) -> Vec<Cause> {
    object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
    object["metadata"]["creationTimestamp"] = metadata::whole_seconds(context.now).into();
    if !kind.is_built_in {
        object["metadata"]["generation"] = 1.into();
    }
    let hooks = context.kinds.hooks(kind);
    hooks.prepare(context, None, object);
    if !is_tracked {
        apply::track_update(kind, None, object, context.manager, None, context.now);
    }
    schema::apply_defaults(&kind.schema, object);
    let mut causes = schema::validate(&kind.schema, object);
    causes.extend(metadata::validate(kind, None, object));
    causes.extend(hooks.validate(context, None, object));
    causes
}

/// The specific behavior of a kind. Each method has a default that does nothing. All objects are whole: `apiVersion`, `kind`,
/// `metadata`, and so on. Before one is validated, defaults are filled in and the object is valid under the schema.
#[async_trait]
pub trait Hooks: Send + Sync + 'static {
    /// Sets the server's fields of a new object (`old` is `None`), or restores them when an object is replaced.
    fn prepare(&self, _context: &Context<'_>, _old: Option<&Value>, _new: &mut Value) {}

    /// Restores the server's fields when a status is replaced.
    fn prepare_status(&self, _context: &Context<'_>, _old: &Value, _new: &mut Value) {}

    /// Returns the faults of a new object (`old` is `None`), or of a change by the main resource, beyond the schema. The status
    /// of a change is the stored one already.
    fn validate(&self, _context: &Context<'_>, _old: Option<&Value>, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Returns the faults of a change by the `status` subresource.
    fn validate_status_update(&self, _context: &Context<'_>, _old: &Value, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Returns the only writer of the status, such as `a Binding`. Then the server rejects a `status` in the main resource that
    /// differs from the stored one. `None`: it drops such a status silently, as Kubernetes does.
    fn status_writer(&self) -> Option<&'static str> {
        None
    }

    /// Returns the related writes that are committed with this one, or the reason that it cannot be done.
    async fn before_commit(&self, _: &Context<'_>, _: Operation<'_>, _: &dyn Reader) -> HookResult {
        Ok(Vec::new())
    }

    /// Returns why an identity must not read the object of this name although its role permits it. For rights that depend on other
    /// objects; such a role must not permit lists and watches, for which this is not called.
    fn denies_get(
        &self,
        _identity: &Identity,
        _namespace: Option<&str>,
        _name: &str,
        _reader: &dyn Reader,
    ) -> Result<Option<&'static str>, ApiError> {
        Ok(None)
    }

    /// Returns whether [`Self::warnings`] ever returns one.
    fn has_warnings(&self) -> bool {
        false
    }

    /// Returns the warnings for the client that wrote an object.
    fn warnings(&self, _is_new: bool, _written: &Value, _reader: &dyn Reader) -> Vec<String> {
        Vec::new()
    }
}

/// The hooks of a kind without specific behavior.
pub struct NoHooks;

impl Hooks for NoHooks {}
