//! The objects of a mirror, each in as little memory as can be: there may be several mirrors of 100,000 objects in one process.
//!
//! A uid is 16 octets and a version a number, wherever the server writes them as all known servers do; where an object is
//! is one text; and the table has one pointer an object, since up to half of its places are empty.

use std::borrow::{Borrow, Cow};
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::ObjectKey;
use crate::client::uid::Uid;

/// The objects.
pub(super) struct Kept<V>(HashSet<Entry<V>>);

/// One of them.
pub(super) struct Entry<V>(Box<Parts<V>>);

struct Parts<V> {
    /// `namespace/name` or `name`.
    place: Box<str>,
    uid: Uid,
    version: Version,
    value: Arc<V>,
}

impl<V> Default for Kept<V> {
    fn default() -> Self {
        Kept(HashSet::new())
    }
}

impl<V> Kept<V> {
    pub fn get(&self, key: &ObjectKey) -> Option<&Entry<V>> {
        self.0.get(&*place(key))
    }

    /// Puts it in the place of the one that has its key, which it gives.
    pub fn insert(&mut self, entry: Entry<V>) -> Option<Entry<V>> {
        self.0.replace(entry)
    }

    pub fn remove(&mut self, key: &ObjectKey) -> Option<Entry<V>> {
        self.0.take(&*place(key))
    }

    /// Takes out the one that has the key of `other`.
    pub fn remove_same(&mut self, other: &Entry<V>) -> Option<Entry<V>> {
        self.0.take(other)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry<V>> {
        self.0.iter()
    }

    pub fn into_entries(self) -> impl Iterator<Item = Entry<V>> {
        self.0.into_iter()
    }
}

impl<V> Entry<V> {
    pub fn new(key: &ObjectKey, uid: Uid, version: &str, value: Arc<V>) -> Self {
        Entry(Box::new(Parts { place: place(key).into(), uid, version: Version::new(version), value }))
    }

    pub fn key(&self) -> ObjectKey {
        match self.0.place.split_once('/') {
            Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(&self.0.place),
        }
    }

    pub fn uid(&self) -> &Uid {
        &self.0.uid
    }

    pub fn version(&self) -> &Version {
        &self.0.version
    }

    pub fn value(&self) -> &Arc<V> {
        &self.0.value
    }
}

/// No namespace and no name has a slash in it.
fn place(key: &ObjectKey) -> Cow<'_, str> {
    match &key.namespace {
        Some(namespace) => Cow::Owned([namespace, "/", &key.name].concat()),
        None => Cow::Borrowed(&key.name),
    }
}

impl<V> Borrow<str> for Entry<V> {
    fn borrow(&self) -> &str {
        &self.0.place
    }
}

impl<V> Hash for Entry<V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.place.hash(state);
    }
}

impl<V> PartialEq for Entry<V> {
    fn eq(&self, other: &Self) -> bool {
        self.0.place == other.0.place
    }
}

impl<V> Eq for Entry<V> {}

/// A version, to be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Version {
    Number(u64),
    Text(Box<str>),
}

impl Version {
    pub fn new(text: &str) -> Self {
        match text.parse::<u64>() {
            Ok(number) if !text.starts_with(['0', '+']) || number == 0 && text == "0" => Version::Number(number),
            _ => Version::Text(text.into()),
        }
    }

    pub fn text(&self) -> Box<str> {
        match self {
            Version::Number(number) => number.to_string().into(),
            Version::Text(text) => text.clone(),
        }
    }

    /// Whether it is newer than `other`. Where they are no numbers, which the API conventions allow, any difference counts
    /// as newer.
    pub fn is_newer_than(&self, other: &Version) -> bool {
        match (self, other) {
            (Version::Number(this), Version::Number(other)) => this > other,
            _ => self != other,
        }
    }

    /// Whether the server is now at a version, `now`, before this one.
    pub fn went_back(&self, now: &Version) -> bool {
        matches!((self, now), (Version::Number(this), Version::Number(now)) if now < this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_uids_and_versions_are_given_as_they_came() {
        for (key, uid, version) in [
            (ObjectKey::cluster("a"), "391d05cf-d81e-4196-a83e-22fcabafd036", "0"),
            (ObjectKey::namespaced("n", "a"), "391D05CF-d81e-4196-a83e-22fcabafd036", "18446744073709551615"),
            (ObjectKey::namespaced("n", "b"), "", ""),
            (ObjectKey::namespaced("m", "a"), "391d05cfd81e4196a83e22fcabafd036", "007"),
        ] {
            let mut kept = Kept::default();
            kept.insert(Entry::new(&key, Uid::new(uid), version, Arc::new(())));
            let entry = kept.get(&key).expect("put in");
            assert_eq!((entry.key(), &*entry.version().text()), (key.clone(), version));
            assert_eq!(entry.uid().to_string(), uid);
            assert!(kept.get(&ObjectKey::namespaced("x", "a")).is_none());
            assert!(kept.remove(&key).is_some() && kept.len() == 0);
        }
    }

    #[test]
    fn versions_are_compared_as_numbers_if_they_are() {
        let newer = |a: &str, b: &str| Version::new(a).is_newer_than(&Version::new(b));
        assert!(newer("10", "9") && !newer("9", "10") && !newer("9", "9"));
        assert!(newer("a", "b") && newer("b", "a") && newer("1", "a") && !newer("a", "a"));
        let went_back = |known: &str, now: &str| Version::new(known).went_back(&Version::new(now));
        assert!(went_back("10", "9") && !went_back("9", "10") && !went_back("b", "a"));
    }

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Parts<()>>() <= 64, "{}", size_of::<Parts<()>>());
        assert_eq!(size_of::<Entry<()>>(), size_of::<usize>());
    }
}
