//! What stands for an object whose stored value is damaged.
//!
//! The object exists, so a list that left it out would be taken for the word that it was deleted: by name servers, by
//! the scheduler, and by every controller. So a list that it belongs to fails, as kube-apiserver's does, and names it. A client
//! that asks for it by a header ([`DAMAGED_HEADER`]) gets a placeholder in its place instead, and everything else as usual. The
//! platform's own mirrors do: they keep the last value they know. Tables for people show placeholders, too.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::json;

use super::object::{self, Object};
use super::registry::Kind;
use signpost_api::v1alpha1::{DAMAGED_ANNOTATION, DAMAGED_HEADER, DAMAGED_PLACEHOLDERS};

/// A key behind its kind's prefix, and the revision that wrote it.
pub type Lost = (Box<str>, u64);

/// Whether the client takes placeholders.
pub fn takes_placeholders(headers: &HeaderMap) -> bool {
    headers.get(DAMAGED_HEADER).is_some_and(|value| value == DAMAGED_PLACEHOLDERS)
}

/// Whether an object is a placeholder.
pub fn is_damaged(object: &Object) -> bool {
    let json = object.json();
    let metadata = &json[object.metadata()];
    metadata.windows(DAMAGED_ANNOTATION.len()).any(|part| part == DAMAGED_ANNOTATION.as_bytes())
        && json.ends_with(br#""spec":"damaged"}"#)
}

/// The placeholder of an object. Its spec is none, so that a client that reads it as an object of its kind fails.
pub fn placeholder(kind: &Kind, (key, revision): &Lost) -> Option<Arc<Object>> {
    let (namespace, name) = key.split_once('/').map_or((None, &**key), |(namespace, name)| (Some(namespace), name));
    let mut tree = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": {"name": name, "annotations": {DAMAGED_ANNOTATION: "true"}},
        "spec": "damaged",
    });
    if let Some(namespace) = namespace {
        tree["metadata"]["namespace"] = namespace.into();
    }
    Object::from_stored(kind, key, &object::encode(&tree), *revision).ok().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find_kind;
    use signpost_api::v1alpha1::route_binding::RouteBinding;

    #[test]
    fn a_placeholder_names_its_object_and_is_none() {
        let kind = find_kind("RouteBinding").expect("a kind");
        let placeholder = placeholder(kind, &("shop/www".into(), 7)).expect("it can be made");
        let tree = placeholder.tree();
        assert_eq!((placeholder.name(), placeholder.namespace(), placeholder.revision), ("www", Some("shop"), 7));
        assert_eq!(tree["metadata"]["namespace"], "shop");
        assert!(serde_json::from_value::<RouteBinding>(tree).is_err());
    }
}
