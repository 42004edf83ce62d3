//! The placeholder for an object whose stored value is damaged.
//!
//! The object exists. If a list left it out, every controller would conclude that it was deleted; if the list failed, as in
//! kube-apiserver, one object would stop every client of its kind. A list therefore has a placeholder, with an annotation
//! ([`DamageMarks::annotation`]), a warning, and no contents. For a client that sends a header ([`DamageMarks::header`]), the placeholder
//! is none of its kind, so that it cannot be taken for an object that has become empty. The platform's own informers send it: they
//! keep the last known value.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::json;

use super::kind::Kind;
use super::object::{self, Object};

/// The names that a server and its clients use for damaged objects.
#[derive(Debug, Clone, Copy)]
pub struct DamageMarks {
    /// The annotation of a placeholder for a damaged object. The object exists; its contents are unknown.
    pub annotation: &'static str,
    /// The header with which a client requests placeholders that do not decode as their kind, with the value [`PLACEHOLDERS`].
    pub header: &'static str,
}

impl Default for DamageMarks {
    fn default() -> Self {
        DamageMarks { annotation: "damaged-object", header: "damaged-objects" }
    }
}

/// The value of [`DamageMarks::header`].
pub const PLACEHOLDERS: &str = "placeholders";

/// A key behind its kind's prefix, and the revision that wrote it.
pub type DamagedKey = (Box<str>, u64);

impl DamageMarks {
    /// Returns whether the client distinguishes placeholders from objects of their kind.
    pub fn distinguishes_placeholders(&self, headers: &HeaderMap) -> bool {
        headers.get(self.header).is_some_and(|value| value == PLACEHOLDERS)
    }

    /// Returns the placeholder of an object. If it is distinct, its spec is a string, so that it does not decode as an object of its
    /// kind; otherwise it has no spec.
    pub fn placeholder(&self, kind: &Kind, (key, revision): &DamagedKey, is_distinct: bool) -> Option<Arc<Object>> {
        let (namespace, name) = key.split_once('/').map_or((None, &**key), |(namespace, name)| (Some(namespace), name));
        let mut tree = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": {"name": name, "annotations": {self.annotation: "true"}},
        });
        if is_distinct {
            tree["spec"] = "damaged".into();
        }
        if let Some(namespace) = namespace {
            tree["metadata"]["namespace"] = namespace.into();
        }
        Object::from_stored(kind, key, &object::encode(&tree), *revision).ok().map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::lease::LEASE;

    #[test]
    fn a_placeholder_names_its_object_and_a_distinct_one_is_none() {
        for is_distinct in [false, true] {
            let damaged = ("shop/www".into(), 7);
            let placeholder =
                DamageMarks::default().placeholder(&LEASE, &damaged, is_distinct).expect("it can be made");
            let tree = placeholder.tree();
            assert_eq!((placeholder.name(), placeholder.namespace(), placeholder.revision), ("www", Some("shop"), 7));
            assert_eq!(tree["metadata"]["namespace"], "shop");
            let lease = serde_json::from_value::<k8s_openapi::api::coordination::v1::Lease>(tree);
            assert_eq!(lease.is_err(), is_distinct);
        }
    }
}
