//! Bindings by their key or by their label: the texts are the bindings' own, so that an entry is one pointer.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use super::inputs::BindingInput;

/// What bindings are found by.
pub(super) trait Part {
    /// This part of a binding.
    fn of(binding: &BindingInput) -> &str;
}

/// [`BindingInput::key`].
#[derive(Debug, Clone)]
pub(super) struct ByKey;

impl Part for ByKey {
    fn of(binding: &BindingInput) -> &str {
        &binding.key
    }
}

/// [`BindingInput::label`].
#[derive(Debug, Clone)]
pub(super) struct ByLabel;

impl Part for ByLabel {
    fn of(binding: &BindingInput) -> &str {
        &binding.label
    }
}

/// Bindings by one of their parts.
#[derive(Debug, Clone)]
pub(super) struct Index<P>(HashSet<Entry<P>>);

#[derive(Debug, Clone)]
struct Entry<P>(Arc<BindingInput>, PhantomData<P>);

impl<P: Part> Index<P> {
    pub fn new() -> Self {
        Index(HashSet::new())
    }

    pub fn get(&self, part: &str) -> Option<&Arc<BindingInput>> {
        self.0.get(part).map(|entry| &entry.0)
    }

    /// Puts a binding in the place of the one with the same part, which it gives.
    pub fn insert(&mut self, binding: Arc<BindingInput>) -> Option<Arc<BindingInput>> {
        self.0.replace(Entry(binding, PhantomData)).map(|entry| entry.0)
    }

    pub fn remove(&mut self, part: &str) -> Option<Arc<BindingInput>> {
        self.0.take(part).map(|entry| entry.0)
    }

    /// All, in no order.
    pub fn values(&self) -> impl Iterator<Item = &Arc<BindingInput>> {
        self.0.iter().map(|entry| &entry.0)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl<P: Part> Borrow<str> for Entry<P> {
    fn borrow(&self) -> &str {
        P::of(&self.0)
    }
}

impl<P: Part> Hash for Entry<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        P::of(&self.0).hash(state);
    }
}

impl<P: Part> PartialEq for Entry<P> {
    fn eq(&self, other: &Self) -> bool {
        P::of(&self.0) == P::of(&other.0)
    }
}

impl<P: Part> Eq for Entry<P> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_takes_the_place_of_the_one_with_its_label() {
        let binding = |key: &str, label: &str| {
            Arc::new(BindingInput {
                key: key.into(),
                created: 0,
                label: label.into(),
                shard: "shard.example".into(),
                former_names: Box::default(),
                former_names_to: None,
            })
        };
        let mut labels: Index<ByLabel> = Index::new();
        assert!(labels.insert(binding("n/a", "one")).is_none());
        assert_eq!(labels.insert(binding("n/b", "one")), Some(binding("n/a", "one")));
        assert_eq!((labels.len(), labels.get("one")), (1, Some(&binding("n/b", "one"))));
        assert_eq!(labels.remove("n/b"), None);
        assert_eq!(labels.remove("one"), Some(binding("n/b", "one")));
        assert_eq!(labels.values().count(), 0);
    }
}
