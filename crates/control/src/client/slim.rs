//! Texts and labels as they are kept where there are 100,000: names of Routers and zones, which are few, once for all; and
//! labels in one pointer, since most objects have none.

use std::collections::{BTreeMap, HashSet};
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// So many texts are there before those are looked for that nobody has any more.
const TEXTS_MIN: usize = 1_024;

/// `text`, in the same memory as wherever else in this process it was got from here. For texts that many objects have; each takes
/// a look into a table.
pub fn text(text: &str) -> Arc<str> {
    static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);
    TEXTS.lock().unwrap_or_else(PoisonError::into_inner).one(text)
}

struct Texts {
    known: HashSet<Arc<str>>,
    /// From how many on those that nobody has are given up.
    full: usize,
}

impl Default for Texts {
    fn default() -> Self {
        Texts { known: HashSet::new(), full: TEXTS_MIN }
    }
}

impl Texts {
    fn one(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.full {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.full = TEXTS_MIN.max(2 * self.known.len());
        }
        let new: Arc<str> = text.into();
        self.known.insert(Arc::clone(&new));
        new
    }
}

/// Labels of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::box_collection, reason = "most objects have none: eight octets are a third of those of a map")]
pub struct Labels(Option<Box<BTreeMap<String, String>>>);

impl Deref for Labels {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(labels: BTreeMap<String, String>) -> Self {
        Labels((!labels.is_empty()).then(|| Box::new(labels)))
    }
}

impl From<&Option<BTreeMap<String, String>>> for Labels {
    fn from(labels: &Option<BTreeMap<String, String>>) -> Self {
        Labels(labels.as_ref().filter(|labels| !labels.is_empty()).map(|labels| Box::new(labels.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_as_long_as_someone_has_it() {
        let mut texts = Texts::default();
        let first = texts.one("shard1");
        assert!(Arc::ptr_eq(&first, &texts.one("shard1")));
        for number in 0..10 * TEXTS_MIN {
            assert_eq!(*texts.one(&number.to_string()), *number.to_string());
        }
        assert!(texts.known.len() <= TEXTS_MIN, "{}", texts.known.len());
        assert!(Arc::ptr_eq(&first, &texts.one("shard1")), "it was held all the while");
    }

    #[test]
    fn labels_are_read_as_they_came() {
        let map: BTreeMap<String, String> = [("tier".to_owned(), "gold".to_owned())].into();
        assert_eq!(*Labels::from(map.clone()), map);
        assert_eq!(Labels::from(&Some(map.clone())), map.into());
        assert_eq!(Labels::from(&Some(BTreeMap::new())), Labels::default());
        assert!(Labels::default().is_empty());
        assert_eq!(size_of::<Labels>(), size_of::<usize>());
    }
}
