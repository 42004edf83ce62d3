//! A cache of the decoded objects that rules read repeatedly, such as a few Namespaces and one Lease.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::object::Object;

/// The maximum number of trees per kind. They are small, but alternating reads of more objects decode each of them every time.
const TREES_MAX: usize = 256;

/// The trees of one kind's objects, without their field sets.
#[derive(Default)]
pub struct DecodedObjects(Mutex<HashMap<Box<str>, Tree>>);

struct Tree {
    revision: u64,
    whole: Arc<Value>,
}

impl DecodedObjects {
    /// Returns the tree of an object of this kind.
    pub fn of(&self, object: &Object) -> Arc<Value> {
        let mut trees = self.0.lock();
        if let Some(tree) = trees.get(object.key()).filter(|tree| tree.revision == object.revision) {
            return tree.whole.clone();
        }
        let whole = Arc::new(object.tree_without_managed_fields());
        if trees.len() >= TREES_MAX {
            trees.clear();
        }
        trees.insert(object.key().into(), Tree { revision: object.revision, whole: whole.clone() });
        whole
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object;
    use crate::registry::namespace::NAMESPACE;

    #[test]
    fn a_tree_is_that_of_its_revision() {
        let kind = &*NAMESPACE;
        let object = |name: &str, revision| {
            let tree = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            Object::from_stored(kind, name, &object::encode(&tree), revision).expect("encoded")
        };
        let trees = DecodedObjects::default();
        let first = trees.of(&object("a", 7));
        assert_eq!((&first["metadata"]["name"], &first["metadata"]["resourceVersion"]), (&json!("a"), &json!("7")));
        assert!(Arc::ptr_eq(&first, &trees.of(&object("a", 7))));
        assert_eq!(trees.of(&object("a", 8))["metadata"]["resourceVersion"], "8");
        // A former tree that is still in use is unchanged.
        assert_eq!(*trees.of(&object("a", 7)), *first);
        for number in 0..2 * TREES_MAX as u64 {
            trees.of(&object(&format!("n{number}"), number + 1));
            assert!(trees.0.lock().len() <= TREES_MAX);
        }
    }
}
