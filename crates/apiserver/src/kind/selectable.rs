//! The fields that objects of a kind can be selected by.

use std::ops::Deref;

use crate::json_scan::Paths;

/// What is kept of the metadata of every object, in front of the fields of its kind.
const METADATA: [&str; 4] =
    ["metadata.uid", "metadata.labels", "metadata.ownerReferences", "metadata.deletionTimestamp"];

/// Dotted paths, beside `metadata.name` and `metadata.namespace`, and where in a stored object they and all else lie that the
/// cache keeps beside its JSON.
pub struct Selectable {
    fields: &'static [&'static str],
    facts: Paths,
}

impl Selectable {
    /// By these fields, none of which is below `metadata`.
    pub fn new(fields: &'static [&'static str]) -> Selectable {
        Selectable { fields, facts: Paths::new(METADATA.into_iter().chain(fields.iter().map(|field| path_of(field)))) }
    }

    /// Where the facts of an object lie.
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

/// Where the value of a field that can be selected by lies.
pub(super) fn path_of(field: &str) -> &str {
    // `kubectl get events --field-selector source=kubelet` means the component, as it always did.
    if field == "source" { "source.component" } else { field }
}
