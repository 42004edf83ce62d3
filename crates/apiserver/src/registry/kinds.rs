//! The kinds that one server serves, with their hooks and quotas.

use std::sync::{Arc, LazyLock};

use super::{Hooks, event, lease, namespace};
use crate::damaged::DamageMarks;
use crate::kind::Kind;
use crate::limits::Quota;

/// The kinds of a server: its own, and those of Kubernetes that every server has (Namespace, Lease, Event). A clone shares
/// them.
#[derive(Clone)]
pub struct Kinds {
    entries: Arc<Vec<Entry>>,
    damage_marks: DamageMarks,
    namespaces: &'static [&'static str],
}

#[derive(Clone)]
struct Entry {
    kind: &'static Kind,
    hooks: Arc<dyn Hooks>,
    quota: Option<Arc<Quota>>,
}

impl Default for Kinds {
    /// Returns only the kinds that every server has.
    fn default() -> Self {
        Kinds::new([])
    }
}

impl Kinds {
    /// Returns these kinds with their hooks, and those that every server has.
    pub fn new(own: impl IntoIterator<Item = (&'static Kind, Arc<dyn Hooks>)>) -> Kinds {
        let every_server: [(&'static LazyLock<Kind>, Arc<dyn Hooks>); 4] = [
            (&namespace::NAMESPACE, Arc::new(namespace::Namespaces)),
            (&lease::LEASE, Arc::new(lease::Leases)),
            (&event::EVENT, Arc::new(event::CoreEvents)),
            (&event::NEW_EVENT, Arc::new(event::NewEvents)),
        ];
        let every_server = every_server.into_iter().map(|(kind, hooks)| (&**kind, hooks));
        let entries = own.into_iter().chain(every_server);
        let entries = entries.map(|(kind, hooks)| Entry { kind, hooks, quota: None }).collect();
        Kinds { entries: Arc::new(entries), damage_marks: DamageMarks::default(), namespaces: &namespace::ALWAYS }
    }

    /// Adds a quota of a kind for each namespace.
    pub fn with_quota(mut self, kind: &'static Kind, quota: Quota) -> Kinds {
        let entries = Arc::make_mut(&mut self.entries);
        if let Some(entry) = entries.iter_mut().find(|entry| std::ptr::eq(entry.kind, kind)) {
            entry.quota = Some(Arc::new(quota));
        }
        self
    }

    /// Sets the names for damaged objects.
    pub fn with_damage_marks(self, damage_marks: DamageMarks) -> Kinds {
        Kinds { damage_marks, ..self }
    }

    /// Sets the namespaces that always exist, instead of `default` and `kube-system` alone.
    pub fn with_namespaces(self, namespaces: &'static [&'static str]) -> Kinds {
        Kinds { namespaces, ..self }
    }

    /// Returns the namespaces that always exist.
    pub fn namespaces(&self) -> &'static [&'static str] {
        self.namespaces
    }

    /// Returns the names for what is damaged.
    pub fn damage_marks(&self) -> DamageMarks {
        self.damage_marks
    }

    /// Returns all kinds, in the order in which discovery lists their groups.
    pub fn iter(&self) -> impl Iterator<Item = &'static Kind> + '_ {
        self.entries.iter().map(|entry| entry.kind)
    }

    /// Returns the kind served at `/apis/<group>/<version>/<plural>` (core: empty group).
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        self.iter().find(|kind| kind.plural == plural && kind.version == version && kind.group == group)
    }

    /// Returns the kind with this name, such as `Lease`; of the two views of events, the stored one (core `v1`).
    pub fn find_kind(&self, name: &str) -> Option<&'static Kind> {
        self.iter().find(|kind| kind.kind == name && kind.view.is_none())
    }

    /// Returns the prefixes of the keys of kinds whose objects are encrypted at rest.
    pub fn secret_prefixes(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.iter().filter(|kind| kind.is_secret).map(|kind| kind.key_prefix)
    }

    /// Returns the hooks of a kind.
    pub fn hooks(&self, kind: &Kind) -> &dyn Hooks {
        self.entry(kind).map_or(&super::NoHooks, |entry| &*entry.hooks)
    }

    /// Returns the quota that each namespace has of a kind.
    pub fn quota(&self, kind: &Kind) -> Option<&Quota> {
        self.entry(kind)?.quota.as_deref()
    }

    /// Returns all quotas.
    pub fn quotas(&self) -> impl Iterator<Item = &Quota> {
        self.entries.iter().filter_map(|entry| entry.quota.as_deref())
    }

    fn entry(&self, kind: &Kind) -> Option<&Entry> {
        self.entries.iter().find(|entry| std::ptr::eq(entry.kind, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_their_names() {
        let kinds = Kinds::default();
        assert_eq!(kinds.find("", "v1", "events").map(Kind::api_version).as_deref(), Some("v1"));
        assert_eq!(
            kinds.find("events.k8s.io", "v1", "events").map(Kind::api_version).as_deref(),
            Some("events.k8s.io/v1")
        );
        assert_eq!(kinds.find_kind("Event").map(|kind| kind.group), Some(""));
        assert!(kinds.find("", "v1", "leases").is_none());
        for kind in kinds.iter() {
            assert!(kind.key_prefix.starts_with('/') && kind.key_prefix.ends_with('/'));
            let same = kinds.iter().filter(|other| other.key_prefix == kind.key_prefix && other.view.is_none());
            assert_eq!(same.count(), 1, "{}", kind.key_prefix);
        }
    }
}
