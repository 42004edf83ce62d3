//! Shared test code for the kinds: a request, a store with a few objects, and a function that checks an object.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use signpost_apiserver::cause::Cause;
use signpost_apiserver::error::ApiError;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::registry::conflict_key::ConflictKey;
use signpost_apiserver::registry::kinds::Kinds;
use signpost_apiserver::registry::{Context, Reader, metadata};
use signpost_apiserver::schema;

use super::{PlatformConfig, kinds};
use crate::identity::Identity;

/// The platform's domain in tests.
pub(crate) const DOMAIN: &str = "v3.example";
/// The time of all requests in tests.
pub(crate) const NOW: &str = "2026-01-01T12:00:00Z";

/// Returns a request of an administrator in the namespace `n`; the platform's domain is `v3.example`.
pub(crate) fn context() -> Context<'static> {
    static IDENTITY: LazyLock<Identity> = LazyLock::new(|| Identity::user("admin"));
    Context {
        kinds: &KINDS,
        identity: &IDENTITY,
        namespace: Some("n"),
        manager: "test",
        now: NOW.parse::<Timestamp>().expect("a constant"),
    }
}

static KINDS: LazyLock<Kinds> = LazyLock::new(|| kinds(PlatformConfig::new(DOMAIN)));

pub(crate) fn known(name: &str) -> &'static Kind {
    KINDS.find_kind(name).expect("the name of a kind")
}

/// Returns all faults of a new object, as `path: message`, found as the handlers do.
pub(crate) fn check_create(kind: &str, mut object: Value) -> Vec<String> {
    let kind = known(kind);
    assert_eq!(schema::prune(&kind.schema, &mut object), Vec::<String>::new());
    let sizes = schema::sizes(&kind.schema, None, &object);
    if !sizes.is_empty() {
        return shown(&sizes);
    }
    KINDS.hooks(kind).prepare(&context(), None, &mut object);
    schema::apply_defaults(&kind.schema, &mut object);
    let mut causes = schema::validate(&kind.schema, &object);
    causes.extend(metadata::validate(kind, None, &object));
    causes.extend(KINDS.hooks(kind).validate(&context(), None, &object));
    shown(&causes)
}

/// Returns all faults of a changed object, as `path: message`.
pub(crate) fn check_update(kind: &str, old: &Value, mut new: Value) -> Vec<String> {
    let kind = known(kind);
    let mut old = old.clone();
    schema::apply_defaults(&kind.schema, &mut old);
    assert_eq!(schema::prune(&kind.schema, &mut new), Vec::<String>::new());
    let sizes = schema::sizes(&kind.schema, Some(&old), &new);
    if !sizes.is_empty() {
        return shown(&sizes);
    }
    KINDS.hooks(kind).prepare(&context(), Some(&old), &mut new);
    schema::apply_defaults(&kind.schema, &mut new);
    let mut causes = schema::validate(&kind.schema, &new);
    causes.extend(metadata::validate(kind, Some(&old), &new));
    causes.extend(KINDS.hooks(kind).validate(&context(), Some(&old), &new));
    shown(&causes)
}

/// Returns the cell of an object under a heading.
pub(crate) fn cell(kind: &Kind, heading: &str, object: &Value) -> Value {
    let place = kind.columns.iter().position(|column| column.name == heading).expect("a column");
    let (json, mut out) = (object.to_string(), Vec::new());
    kind.columns.cells(json.as_bytes(), 0).nth(place).expect("a cell for each").write(&mut out);
    serde_json::from_slice(&out).expect("JSON")
}

fn shown(causes: &[Cause]) -> Vec<String> {
    causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

/// A store of a few objects. Every conflict key was touched at revision 7.
pub(crate) struct Objects(Vec<Value>);

impl Objects {
    pub(crate) fn new(objects: Vec<Value>) -> Self {
        Objects(objects)
    }

    fn find(&self, kind: &str, namespace: Option<&str>) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |object| {
            object["kind"] == kind && (namespace.is_none() || object["metadata"]["namespace"].as_str() == namespace)
        })
    }
}

#[async_trait]
impl Reader for Objects {
    fn get(&self, kind: &str, namespace: Option<&str>, name: &str) -> Result<Option<Arc<Value>>, ApiError> {
        Ok(self.find(kind, namespace).find(|object| object["metadata"]["name"] == name).cloned().map(Arc::new))
    }

    fn list(&self, kind: &str, namespace: Option<&str>) -> Result<Vec<Value>, ApiError> {
        Ok(self.find(kind, namespace).cloned().collect())
    }

    fn count(&self, kind: &str, field: &str, value: &str) -> Result<usize, ApiError> {
        let same = |object: &&Value| known(kind).field(object, field).as_deref() == Some(value);
        Ok(self.find(kind, None).filter(same).count())
    }

    fn matching(&self, kind: &str, field: &str, test: &dyn Fn(&str) -> bool) -> Result<Vec<Value>, ApiError> {
        let wanted = |object: &&Value| known(kind).field(object, field).is_some_and(|found| test(&found));
        Ok(self.find(kind, None).filter(wanted).cloned().collect())
    }

    fn selected(&self, kind: &str, namespace: &str, field: &str, value: &str) -> Result<Vec<Value>, ApiError> {
        let same = |object: &&Value| known(kind).field(object, field).as_deref() == Some(value);
        Ok(self.find(kind, Some(namespace)).filter(same).cloned().collect())
    }

    fn number(&self, kind: &str) -> Result<usize, ApiError> {
        Ok(self.find(kind, None).count())
    }

    fn bytes(&self, kind: &str) -> Result<u64, ApiError> {
        Ok(self.find(kind, None).map(|object| object.to_string().len() as u64).sum())
    }

    async fn touched(&self, _key: &ConflictKey) -> Result<Option<String>, ApiError> {
        Ok(Some("7".to_owned()))
    }
}
