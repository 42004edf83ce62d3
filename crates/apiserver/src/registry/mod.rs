//! The kinds that are served, a file each: names, schema, columns, defaults, validation and what else a write entails.
//!
//! The handlers know no kind; all that is particular stands here. A write goes through a kind in this order:
//!
//! 1. `schema::parse_json`, `schema::prune` (unknown fields), and the verb's own work (patch, merge, server-side apply);
//! 2. [`Rules::validate_sent_status`] on what the client sent as `status`, then the stored status takes its place;
//! 3. [`Rules::prepare_create`], [`Rules::prepare_update`] or [`Rules::prepare_status`], then `apply::track_update`
//!    (which fills in the defaults of the schema) unless it was a server-side apply, then `schema::apply_defaults`;
//! 4. `schema::validate`, [`metadata::validate`], and the kind's own `validate_…`: all causes together make one answer;
//! 5. [`Rules::before_commit`], and the commit with all the side writes.

pub mod brake;
pub mod event;
pub mod lease;
pub mod name_claim;
pub mod namespace;
pub mod route;
pub mod route_binding;
pub mod router;
pub mod zone;

pub mod bounds;
mod cel;
pub mod columns;
pub mod crd;
pub mod field;
pub mod labels;
pub mod metadata;
pub mod selectable;
pub mod turnstile;

#[cfg(test)]
pub(crate) mod fixture;

use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use self::columns::Columns;
use self::selectable::Selectable;
use self::turnstile::Turnstile;
use super::apply;
use super::error::{ApiError, Cause};
use super::handlers::write::whole_seconds;
use super::request::is_built_in;
use super::schema::{self, Schema};
use signpost_api::identity::Identity;
use signpost_api::names::LabelRules;

/// A kind with all that the handlers need to serve it.
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind, such as `Route`.
    pub kind: &'static str,
    /// Lower-case plural, such as `routes`.
    pub plural: &'static str,
    /// Lower-case singular.
    pub singular: &'static str,
    /// Short names.
    pub short_names: &'static [&'static str],
    /// Categories.
    pub categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether it has the subresource `status`.
    pub has_status: bool,
    /// The first segment of its keys and the plural, e.g. `/signpost.dev/routes/`. Two views of one kind (events) share it.
    pub key_prefix: &'static str,
    /// Structural OpenAPI v3 schema of the whole object, with defaults and descriptions.
    pub schema: Arc<Schema>,
    /// Table columns after `Name`. Where one of them is itself called `Name` (events, as in Kubernetes), none is put first.
    pub columns: Columns,
    /// Field selectors beside `metadata.name` and `metadata.namespace`, as dotted paths.
    pub selectable_fields: Selectable,
    /// How long objects live (events).
    pub time_to_live: Option<std::time::Duration>,
    /// For a kind that is another view of a stored kind (events): how the two are made from each other.
    pub view: Option<View>,
    /// Its rules.
    pub rules: &'static dyn Rules,
}

/// A second representation of objects that are stored as another kind. Rules, schema and selectors of the view speak of the
/// view's representation, columns of the stored one.
#[derive(Clone, Copy)]
pub struct View {
    /// From the stored representation to this one.
    pub from_stored: fn(Value) -> Value,
    /// From this representation to the stored one.
    pub to_stored: fn(Value) -> Value,
}

/// All kinds that are served.
pub fn kinds() -> &'static [Kind] {
    static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
        vec![
            router::kind(),
            route::kind(),
            route_binding::kind(),
            name_claim::kind(),
            zone::kind(),
            brake::kind(),
            namespace::kind(),
            lease::kind(),
            event::core_kind(),
            event::new_kind(),
        ]
    });
    &KINDS
}

/// The kind served at `/apis/<group>/<version>/<plural>` (core: empty group).
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    kinds().iter().find(|kind| kind.plural == plural && kind.version == version && kind.group == group)
}

/// The kind with this name, such as `Route`; of the two views of events, the stored one (core `v1`).
pub fn find_kind(name: &str) -> Option<&'static Kind> {
    kinds().iter().find(|kind| kind.kind == name && kind.view.is_none())
}

/// A kind that is known to be served.
fn known(name: &str) -> &'static Kind {
    find_kind(name).expect("the name of a kind in kinds()")
}

impl Kind {
    /// `apiVersion` of its objects: `signpost.dev/v1alpha1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The value of a field that can be selected by, `""` where it is absent; `None` if `path` cannot be selected by. All
    /// kinds can be selected by `metadata.name` and, in a namespace, `metadata.namespace`.
    pub fn field(&self, object: &Value, path: &str) -> Option<String> {
        let declared = path == "metadata.name"
            || path == "metadata.namespace" && self.namespaced
            || self.selectable_fields.contains(&path);
        if !declared {
            return None;
        }
        let found = selectable::path_of(path).split('.').try_fold(object, |value, segment| value.get(segment));
        Some(match found {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        })
    }
}

/// What a rule may know of the request.
pub struct Context<'a> {
    /// Who sends it.
    pub identity: &'a Identity,
    /// The platform's domain, such as `v3.rhcloud.com`.
    pub domain: &'a str,
    /// The names of its name servers, as far as they are known here.
    pub name_servers: &'a [String],
    /// Which labels Routes may have.
    pub label_rules: &'a LabelRules,
    /// Namespace of the object, if it has one.
    pub namespace: Option<&'a str>,
    /// The field manager of the request.
    pub manager: &'a str,
    /// The time of the request.
    pub now: Timestamp,
}

/// A write, as the rules of the kind see it before the commit.
#[derive(Clone, Copy)]
pub enum Operation<'a> {
    /// A new object.
    Create(&'a Value),
    /// A changed object, main resource or status.
    Update {
        /// As stored.
        old: &'a Value,
        /// As it will be.
        new: &'a Value,
    },
    /// Somebody deletes the object: here it is judged whether it may go. It goes with this commit; or the deletion only
    /// begins, since finalizers still hold the object, and then of the side writes only their expectations count.
    Delete {
        /// As stored.
        old: &'a Value,
        /// The query parameters and body of the DELETE, such as the number of routes to lose.
        options: &'a Value,
    },
    /// The deletion of the object began earlier, was judged then, and ends with this commit. (Or a DELETE is repeated
    /// meanwhile; then nothing becomes of the side writes but their expectations.)
    Release {
        /// As stored.
        old: &'a Value,
    },
}

/// The kinds of which rules change objects beside the one that is written: a RouteBinding sets the status of its Route.
pub const CHANGED_BY_RULES: [&str; 1] = ["Route"];
/// The kinds of which rules read the same few objects over and over.
pub const READ_OFTEN: [&str; 3] = ["Lease", "Namespace", "Router"];

/// Reads of other objects during a write. They come without their field sets, which are their larger half, but for one object
/// of a kind in [`CHANGED_BY_RULES`], which is whole.
pub trait Reader: Send + Sync {
    /// One object as stored, `None` if it is not there.
    fn get<'a>(
        &'a self,
        kind: &'a str,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, ApiError>>;
    /// All objects of a kind, of a namespace or of all.
    fn list<'a>(&'a self, kind: &'a str, namespace: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Value>, ApiError>>;
    /// How many objects of a kind, in all namespaces, have `value` in `field`, one of the kind's `selectable_fields`.
    fn count<'a>(&'a self, kind: &'a str, field: &'a str, value: &'a str) -> BoxFuture<'a, Result<usize, ApiError>>;
    /// The objects of a kind, in all namespaces, whose `field`, one of the kind's `selectable_fields`, is as `test` wants it.
    fn matching<'a>(
        &'a self,
        kind: &'a str,
        field: &'a str,
        test: &'a (dyn Fn(&str) -> bool + Sync),
    ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>>;
    /// When the turnstile was passed last, as an expectation; `None`: never. What is read after this shows all that passed
    /// until then. An error if that takes too long.
    fn passed<'a>(&'a self, turnstile: &'a Turnstile<'a>) -> BoxFuture<'a, Result<Option<String>, ApiError>>;
}

/// Another object that a write entails a change of, or depends on. Committed in the same transaction, which fails, and is
/// tried again, if the object is not as the rule has seen it.
pub struct SideWrite {
    /// Kind of the other object.
    pub kind: &'static str,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The `metadata.resourceVersion` it must still have; `None`: it must not exist.
    pub expect: Option<String>,
    /// What becomes of it.
    pub effect: Effect,
}

/// What becomes of an object beside the one that is written.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// It will be this.
    Put(Value),
    /// It is deleted.
    Delete,
    /// Nothing: a rule has read it, and would judge otherwise if it were another.
    Keep,
    /// It is written, whatever it was: `expect` does not count. For turnstiles.
    Pass,
}

impl SideWrite {
    /// That `object`, which a rule has read, must still be so at the commit.
    pub fn keep(kind: &'static str, object: &Value) -> SideWrite {
        let text = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
        SideWrite {
            kind,
            namespace: text("namespace"),
            name: text("name").unwrap_or_default(),
            expect: text("resourceVersion"),
            effect: Effect::Keep,
        }
    }

    /// Only what it expects.
    pub fn expectation(self) -> Option<SideWrite> {
        (self.effect != Effect::Pass).then_some(SideWrite { effect: Effect::Keep, ..self })
    }
}

/// A new object that a rule of another kind makes, judged as one that a client sends.
fn made(context: &Context<'_>, kind: &'static Kind, mut object: Value) -> Result<Value, ApiError> {
    let causes = complete(context, kind, &mut object, false);
    match causes.is_empty() {
        true => Ok(object),
        false => Err(ApiError::invalid(kind, object["metadata"]["name"].as_str().unwrap_or_default(), causes)),
    }
}

/// Sets what the server sets on a new object, fills in defaults, and says what is wrong with it. `is_tracked` says that its
/// field sets are made already.
pub(crate) fn complete(context: &Context<'_>, kind: &'static Kind, object: &mut Value, is_tracked: bool) -> Vec<Cause> {
    object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
    object["metadata"]["creationTimestamp"] = whole_seconds(context.now).into();
    if !is_built_in(kind) {
        object["metadata"]["generation"] = 1.into();
    }
    kind.rules.prepare_create(context, object);
    if !is_tracked {
        apply::track_update(kind, None, object, context.manager, None, context.now);
    }
    schema::apply_defaults(&kind.schema, object);
    let mut causes = schema::validate(&kind.schema, object);
    causes.extend(metadata::validate(kind, None, object));
    causes.extend(kind.rules.validate_create(context, object));
    causes
}

/// What is particular to a kind. All objects are whole: `apiVersion`, `kind`, `metadata`, and so on; defaults of the schema
/// are filled in and the schema is met before any rule is asked.
pub trait Rules: Send + Sync {
    /// Sets what the server sets on a new object.
    fn prepare_create(&self, _context: &Context<'_>, _object: &mut Value) {}

    /// Sets what the server keeps of an object when it is replaced.
    fn prepare_update(&self, _context: &Context<'_>, _old: &Value, _new: &mut Value) {}

    /// Sets what the server keeps of a status when it is replaced.
    fn prepare_status(&self, _context: &Context<'_>, _old: &Value, _new: &mut Value) {}

    /// The faults of a new object beyond its schema.
    fn validate_create(&self, _context: &Context<'_>, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// The faults of a change by the main resource, beyond the schema; the status is the stored one already.
    fn validate_update(&self, _context: &Context<'_>, _old: &Value, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// The faults of the `status` that a client sent to the main resource, which is to be dropped. `old` is the stored object;
    /// `None`: it is created.
    fn validate_sent_status(&self, _old: Option<&Value>, _sent: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// The faults of a change by the `status` subresource.
    fn validate_status_update(&self, _context: &Context<'_>, _old: &Value, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// What the sender of an object that is taken should know all the same; `None` if nothing is ever said of the kind.
    fn warnings(&self) -> Option<fn(&Value) -> Vec<String>> {
        None
    }

    /// What else must be written with this, or why it cannot be done.
    fn before_commit<'a>(
        &'a self,
        _context: &'a Context<'a>,
        _operation: Operation<'a>,
        _reader: &'a dyn Reader,
    ) -> BoxFuture<'a, Result<Vec<SideWrite>, ApiError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::{without_bound, without_description};

    #[test]
    fn every_field_of_every_kind_has_a_description() {
        for kind in kinds() {
            let mut found = Vec::new();
            without_description(kind.schema.document(), "", &mut found);
            assert_eq!(found, Vec::<String>::new(), "{} {}", kind.group, kind.kind);
        }
    }

    /// The lists, maps and texts of the metadata are bounded by [`bounds`] and [`metadata`], and its field sets by the size of
    /// the object, since an object that was stored with more must stay writable.
    #[test]
    fn every_text_list_and_map_of_every_kind_is_bounded() {
        for kind in kinds() {
            let mut found = Vec::new();
            let mut schema = kind.schema.document().clone();
            schema["properties"].as_object_mut().expect("fields").remove("metadata");
            without_bound(&schema, "", &mut found);
            assert_eq!(found, Vec::<String>::new(), "{} {}", kind.group, kind.kind);
        }
    }

    #[test]
    fn kinds_are_found_by_their_names() {
        assert_eq!(find("signpost.dev", "v1alpha1", "routes").map(|kind| kind.kind), Some("Route"));
        assert_eq!(find("", "v1", "events").map(Kind::api_version).as_deref(), Some("v1"));
        assert_eq!(find("events.k8s.io", "v1", "events").map(Kind::api_version).as_deref(), Some("events.k8s.io/v1"));
        assert_eq!(find_kind("Event").map(|kind| kind.group), Some(""));
        assert!(find("", "v1", "routes").is_none());
        for kind in kinds() {
            assert!(kind.key_prefix.starts_with('/') && kind.key_prefix.ends_with('/'));
            let same = kinds().iter().filter(|other| other.key_prefix == kind.key_prefix && other.view.is_none());
            assert_eq!(same.count(), 1, "{}", kind.key_prefix);
        }
    }

    #[test]
    fn cells_of_an_empty_object_are_blank_and_do_not_panic() {
        for kind in kinds() {
            for object in
                [serde_json::json!({}), Value::Null, serde_json::json!({"spec": [], "status": 1, "metadata": "x"})]
            {
                for column in kind.columns.iter() {
                    let _ = kind.columns.cell_of(column.name, &object, 0);
                }
            }
        }
    }
}
