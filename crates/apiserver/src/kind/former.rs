//! The names of a kind, its fields, and its annotations in an earlier version.
//!
//! Nothing is served under them. A request that uses one gets an error with the current name.

use serde_json::Value;

/// The former names of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormerNames {
    /// The former kind and plural, if they were different.
    pub kind: Option<(&'static str, &'static str)>,
    /// The former names of fields, at any place in the object, each with its current name.
    pub fields: &'static [(&'static str, &'static str)],
    /// The former annotations, each with its current name.
    pub annotations: &'static [(&'static str, &'static str)],
}

impl FormerNames {
    /// Returns the addition to a message about the unknown field at `path`: its current name, or nothing.
    pub(crate) fn hint(&self, path: &str) -> String {
        let field = path.rsplit('.').next().unwrap_or(path);
        let known = self.fields.iter().find(|(former, _)| *former == field);
        known.map_or_else(String::new, |(_, now)| format!(" (now {now:?})"))
    }

    /// Returns a warning for each former annotation of an object.
    pub(crate) fn warnings(&self, object: &Value) -> impl Iterator<Item = String> {
        let annotations = &object["metadata"]["annotations"];
        let used = self.annotations.iter().filter(|(former, _)| !annotations[*former].is_null());
        used.map(|(former, now)| format!("metadata.annotations[{former}]: the annotation has no effect; use {now}"))
    }
}
