//! The placeholder for an object whose stored value is damaged.
//!
//! The object exists. If a list left it out, every controller would conclude that it was deleted. A list that includes it
//! therefore fails and names it, as in kube-apiserver. A client that sends a header ([`DamageMarks::header`]) gets a placeholder
//! instead, and everything else as usual. The platform's own informers send it: they keep the last known value. Tables for users
//! also show placeholders.

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
    /// The header with which a client accepts such placeholders, with the value [`PLACEHOLDERS`]. Without it, a list that
    /// includes a placeholder fails.
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
    /// Returns whether the client takes placeholders.
    pub fn takes_placeholders(&self, headers: &HeaderMap) -> bool {
        headers.get(self.header).is_some_and(|value| value == PLACEHOLDERS)
    }

    /// Returns whether an object is a placeholder.
    pub fn is_damaged(&self, object: &Object) -> bool {
        let json = object.json();
        let metadata = &json[object.metadata()];
        metadata.windows(self.annotation.len()).any(|part| part == self.annotation.as_bytes())
            && json.ends_with(br#""spec":"damaged"}"#)
    }

    /// Returns the placeholder of an object. Its spec is none, so that a client that reads it as an object of its kind fails.
    pub fn placeholder(&self, kind: &Kind, (key, revision): &DamagedKey) -> Option<Arc<Object>> {
        let (namespace, name) = key.split_once('/').map_or((None, &**key), |(namespace, name)| (Some(namespace), name));
        let mut tree = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": {"name": name, "annotations": {self.annotation: "true"}},
            "spec": "damaged",
        });
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
    fn a_placeholder_names_its_object_and_is_none() {
        let placeholder = DamageMarks::default().placeholder(&LEASE, &("shop/www".into(), 7)).expect("it can be made");
        let tree = placeholder.tree();
        assert_eq!((placeholder.name(), placeholder.namespace(), placeholder.revision), ("www", Some("shop"), 7));
        assert_eq!(tree["metadata"]["namespace"], "shop");
        assert!(serde_json::from_value::<k8s_openapi::api::coordination::v1::Lease>(tree).is_err());
    }
}
