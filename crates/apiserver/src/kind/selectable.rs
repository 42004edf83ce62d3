//! The fields of a kind for field selectors.

use std::ops::Deref;

use crate::json_scan::Paths;

/// The metadata that the cache keeps for every object, before the fields of its kind.
const METADATA: [&str; 4] =
    ["metadata.uid", "metadata.labels", "metadata.ownerReferences", "metadata.deletionTimestamp"];

/// The dotted paths of the selectable fields, in addition to `metadata.name` and `metadata.namespace`, and the paths of all
/// values that the cache keeps outside an object's JSON.
pub struct Selectable {
    fields: &'static [&'static str],
    facts: Paths,
}

impl Selectable {
    /// Returns these fields; none of them may be below `metadata`.
    pub fn new(fields: &'static [&'static str]) -> Selectable {
        Selectable { fields, facts: Paths::new(METADATA.into_iter().chain(fields.iter().map(|field| path_of(field)))) }
    }

    /// Returns the paths of the indexed fields of an object.
    pub(crate) fn facts(&self) -> &Paths {
        &self.facts
    }
}

impl Deref for Selectable {
    type Target = [&'static str];

    fn deref(&self) -> &[&'static str] {
        self.fields
    }
}

/// Returns the path of a selectable field's value.
pub(super) fn path_of(field: &str) -> &str {
    // `kubectl get events --field-selector source=kubelet` refers to the component, for compatibility.
    if field == "source" { "source.component" } else { field }
}
