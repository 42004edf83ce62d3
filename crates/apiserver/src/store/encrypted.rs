//! Encryption at rest: a [`Store`] that keeps the values of some kinds encrypted in another one.
//!
//! ```text
//! MAGIC(8) key id(8) salt(32) AES-256-GCM ciphertext, tag(16)
//! ```
//!
//! Each value has a key of its own: HKDF-SHA-256 of a key of the [`Keyring`] and 32 random octets. So no nonce is used twice with a
//! key. The associated data is the key of the value (group, kind, namespace, and name), so that values cannot be exchanged in the store. The
//! UID is inside the ciphertext.
//!
//! A value that no key of the ring decrypts is [damaged](super::Damaged): it exists, is neither served nor overwritten unread, and can be
//! deleted. That includes a value in plain text, which another program has written. Backups take values from the store below, so they
//! are encrypted, too.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::rand;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _};

use super::{
    Damage, Damaged, Error, Event, EventKind, Key, KeyValue, Outcome, Page, Precondition, Result, Revision, Store, Txn,
    Write,
};

/// The length of a key in octets.
pub const KEY_OCTETS: usize = 32;

/// The first octets of an encrypted value. JSON never begins with the first one.
const MAGIC: [u8; 8] = *b"\0sealed1";
const ID_OCTETS: usize = 8;
const SALT_OCTETS: usize = 32;
/// The number of values that [`reencrypt`] has in memory.
const PAGE_VALUES: usize = 100;

/// The keys that decrypt values. The first one also encrypts. Clones of an [`Arc`] of it share the keys.
pub struct Keyring {
    keys: ArcSwap<Vec<MasterKey>>,
}

struct MasterKey {
    octets: [u8; KEY_OCTETS],
    id: [u8; ID_OCTETS],
}

/// The reason why a value cannot be decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The value is not encrypted, so that its origin is unknown.
    #[error("it is not encrypted")]
    NotEncrypted,
    /// The key that encrypted it is not in the ring.
    #[error("it is encrypted with another key")]
    UnknownKey,
    /// The value was changed, or belongs to another object.
    #[error("it was changed in the store")]
    Altered,
}

impl Keyring {
    /// Returns a ring of these keys.
    ///
    /// # Panics
    ///
    /// If there is no key.
    pub fn new(keys: &[[u8; KEY_OCTETS]]) -> Keyring {
        let ring = Keyring { keys: ArcSwap::default() };
        ring.replace(keys);
        ring
    }

    /// Replaces the keys.
    ///
    /// # Panics
    ///
    /// If there is no key.
    pub fn replace(&self, keys: &[[u8; KEY_OCTETS]]) {
        assert!(!keys.is_empty(), "the first key encrypts");
        let key = |octets: &[u8; KEY_OCTETS]| {
            let hash = digest(&SHA256, &[b"signpost encryption key id\0".as_slice(), octets].concat());
            let id = *hash.as_ref().first_chunk().expect("a hash of 32 octets");
            MasterKey { octets: *octets, id }
        };
        self.keys.store(Arc::new(keys.iter().map(key).collect()));
    }

    /// Returns a value of the key `of`, encrypted. `None`: the system returned no random numbers.
    pub fn seal(&self, of: &Key, value: &[u8]) -> Option<Bytes> {
        let keys = self.keys.load();
        let key = keys.first()?;
        let mut salt = [0; SALT_OCTETS];
        rand::fill(&mut salt).ok()?;
        let header = [MAGIC.as_slice(), &key.id, &salt].concat();
        let mut sealed = Vec::with_capacity(header.len() + value.len() + AES_256_GCM.tag_len());
        sealed.extend_from_slice(value);
        key.of_value(&salt)?.seal_in_place_append_tag(nonce(), aad(&header, of), &mut sealed).ok()?;
        sealed.splice(0..0, header);
        Some(sealed.into_boxed_slice().into())
    }

    /// Decrypts a value of the key `of`.
    ///
    /// # Errors
    ///
    /// See [`Unreadable`].
    pub fn open(&self, of: &Key, sealed: &[u8]) -> std::result::Result<Bytes, Unreadable> {
        let parts = sealed.strip_prefix(&MAGIC).ok_or(Unreadable::NotEncrypted)?;
        let (id, parts) = parts.split_first_chunk::<ID_OCTETS>().ok_or(Unreadable::Altered)?;
        let (salt, ciphertext) = parts.split_first_chunk::<SALT_OCTETS>().ok_or(Unreadable::Altered)?;
        let keys = self.keys.load();
        let key = keys.iter().find(|key| key.id == *id).ok_or(Unreadable::UnknownKey)?;
        let header = &sealed[..sealed.len() - ciphertext.len()];
        let mut value = ciphertext.to_vec();
        let opened = key.of_value(salt).and_then(|key| key.open_in_place(nonce(), aad(header, of), &mut value).ok());
        let length = opened.ok_or(Unreadable::Altered)?.len();
        value.truncate(length);
        Ok(value.into_boxed_slice().into())
    }

    /// Returns whether the first key encrypted a value.
    fn is_current(&self, sealed: &[u8]) -> bool {
        let id = sealed.strip_prefix(&MAGIC).and_then(|parts| parts.first_chunk::<ID_OCTETS>());
        id.is_some_and(|id| self.keys.load().first().is_some_and(|key| key.id == *id))
    }
}

impl MasterKey {
    /// Returns the key of a value.
    fn of_value(&self, salt: &[u8; SALT_OCTETS]) -> Option<LessSafeKey> {
        let derived = Salt::new(HKDF_SHA256, salt).extract(&self.octets);
        let mut octets = [0; KEY_OCTETS];
        derived.expand(&[b"signpost value"], HKDF_SHA256).ok()?.fill(&mut octets).ok()?;
        UnboundKey::new(&AES_256_GCM, &octets).ok().map(LessSafeKey::new)
    }
}

/// The nonce of all values, because each has a key of its own.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

fn aad(header: &[u8], of: &Key) -> Aad<Vec<u8>> {
    Aad::from([header, of.0.as_bytes()].concat())
}

/// A store that encrypts the values whose keys begin with certain prefixes.
pub struct Encrypted {
    cipher: Arc<Cipher>,
    store: Arc<dyn Store>,
}

/// The parts that watches use, which outlive a borrow of the store.
struct Cipher {
    keyring: Arc<Keyring>,
    prefixes: Vec<&'static str>,
    damage: Arc<Damage>,
}

impl Encrypted {
    /// Returns a view of `store` in which values whose keys begin with one of `prefixes` are in plain text.
    pub fn new(store: Arc<dyn Store>, keyring: Arc<Keyring>, prefixes: impl IntoIterator<Item = &'static str>) -> Self {
        let damage = store.damage();
        Encrypted { cipher: Arc::new(Cipher { keyring, prefixes: prefixes.into_iter().collect(), damage }), store }
    }
}

impl Cipher {
    fn is_ours(&self, key: &Key) -> bool {
        self.prefixes.iter().any(|prefix| key.0.starts_with(prefix))
    }

    fn open(&self, item: KeyValue) -> std::result::Result<KeyValue, Damaged> {
        if !self.is_ours(&item.key) {
            return Ok(item);
        }
        match self.keyring.open(&item.key, &item.value) {
            Ok(value) => Ok(KeyValue { value, ..item }),
            Err(why) => {
                let damaged = Damaged { key: item.key, modified: item.modified };
                self.damage.note_unreadable(&damaged, why);
                Err(damaged)
            }
        }
    }

    fn event(&self, event: Event) -> Result<Event> {
        let Event { at, kind, now, before } = event;
        let (key, modified) = (now.key.clone(), now.modified);
        let now = match (self.open(now), kind) {
            (Ok(now), _) => now,
            // As of a value that the engine cannot read.
            (Err(_), EventKind::Delete) => KeyValue { key, value: Bytes::new(), created: modified, modified },
            (Err(damaged), EventKind::Put) => return Err(error_of(damaged)),
        };
        Ok(Event { at, kind, now, before: before.and_then(|before| self.open(before).ok()) })
    }
}

fn error_of(Damaged { key, modified }: Damaged) -> Error {
    Error::Damaged { key, modified }
}

#[async_trait]
impl Store for Encrypted {
    async fn revision(&self) -> Result<Revision> {
        self.store.revision().await
    }

    async fn get(&self, key: &Key, at: Option<Revision>) -> Result<(Revision, Option<KeyValue>)> {
        let (revision, found) = self.store.get(key, at).await?;
        Ok((revision, found.map(|found| self.cipher.open(found)).transpose().map_err(error_of)?))
    }

    async fn list(&self, prefix: &Key, from: Option<&Key>, at: Option<Revision>, limit: Option<usize>) -> Result<Page> {
        let mut page = self.store.list(prefix, from, at, limit).await?;
        let mut unreadable = Vec::new();
        loop {
            let next = page.items.last().map(|last| Key(format!("{}\0", last.key.0).into()));
            let mut items = Vec::with_capacity(page.items.len());
            for item in std::mem::take(&mut page.items) {
                match self.cipher.open(item) {
                    Ok(item) => items.push(item),
                    Err(damaged) => unreadable.push(damaged),
                }
            }
            page.items = items;
            let Some(next) = next.filter(|_| page.more && page.items.is_empty()) else { break };
            // The next page begins after the last value of this one, so there must be one.
            let (at, damaged) = (page.at, page.damaged);
            page = self.store.list(prefix, Some(&next), Some(at), limit).await?;
            page.damaged.splice(0..0, damaged);
        }
        // Those after it are in the next page, too.
        let last = page.items.last().filter(|_| page.more).map(|last| last.key.clone());
        unreadable.retain(|damaged| last.as_ref().is_none_or(|last| damaged.key < *last));
        page.damaged.extend(unreadable);
        Ok(page)
    }

    async fn commit(&self, mut txn: Txn) -> Result<Outcome> {
        let mut ours = Vec::new();
        for write in &mut txn.writes {
            if !self.cipher.is_ours(write.key()) {
                continue;
            }
            ours.push(write.key().clone());
            if let Write::Put { key, value, .. } = write {
                *value = self.cipher.keyring.seal(key, value).ok_or(Error::Unavailable)?;
            }
        }
        Ok(match self.store.commit(txn).await? {
            Outcome::Committed(revision) => {
                ours.iter().for_each(|key| self.cipher.damage.settle(key));
                Outcome::Committed(revision)
            }
            Outcome::Refused { at, found } => {
                // Of an unreadable value, only its presence counts here.
                let found = found.into_iter().map(|item| {
                    item.map(|item| {
                        let empty = KeyValue { value: Bytes::new(), ..item.clone() };
                        self.cipher.open(item).unwrap_or(empty)
                    })
                });
                Outcome::Refused { at, found: found.collect() }
            }
        })
    }

    fn full(&self) -> Option<u64> {
        self.store.full()
    }

    fn is_reachable(&self) -> bool {
        self.store.is_reachable()
    }

    fn watch(&self, prefix: &Key, after: Revision) -> BoxStream<'static, Result<Vec<Event>>> {
        let cipher = self.cipher.clone();
        let events = self.store.watch(prefix, after).map(move |events| -> Result<Vec<Event>> {
            events?.into_iter().map(|event| cipher.event(event)).collect()
        });
        // An error is the last item, as of every engine.
        let until_error = events.scan(false, |has_ended, item| {
            let item = (!std::mem::replace(has_ended, item.is_err())).then_some(item);
            futures::future::ready(item)
        });
        until_error.boxed()
    }

    async fn compact(&self, upto: Revision) -> Result<()> {
        self.store.compact(upto).await
    }

    fn damage(&self) -> Arc<Damage> {
        self.cipher.damage.clone()
    }
}

/// The result of [`reencrypt`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reencrypted {
    /// The number of values that were encrypted again.
    pub changed: u64,
    /// The number of values that the first key had encrypted already.
    pub current: u64,
    /// The values that cannot be decrypted. They are unchanged.
    pub unreadable: Vec<Key>,
}

/// Encrypts all values below `prefixes` with the first key of the ring, each in a transaction of its own. API servers can run: a value
/// that one of them writes at the same time is read again.
///
/// # Errors
///
/// The store is unavailable. Then some values are encrypted with the first key, and the others with their former ones.
pub async fn reencrypt(store: &dyn Store, keyring: &Keyring, prefixes: &[&str]) -> Result<Reencrypted> {
    let mut result = Reencrypted::default();
    for prefix in prefixes {
        let prefix = Key((*prefix).into());
        let mut from = None;
        loop {
            let page = store.list(&prefix, from.as_ref(), None, Some(PAGE_VALUES)).await?;
            from = page.items.last().map(|last| Key(format!("{}\0", last.key.0).into()));
            result.unreadable.extend(page.damaged.into_iter().map(|damaged| damaged.key));
            for item in page.items {
                reencrypt_value(store, keyring, item, &mut result).await?;
            }
            if !page.more || from.is_none() {
                break;
            }
        }
    }
    Ok(result)
}

async fn reencrypt_value(store: &dyn Store, keyring: &Keyring, item: KeyValue, result: &mut Reencrypted) -> Result<()> {
    let mut item = Some(item);
    while let Some(KeyValue { key, value, modified, .. }) = item.take() {
        if keyring.is_current(&value) {
            result.current += 1;
            return Ok(());
        }
        let Ok(value) = keyring.open(&key, &value) else {
            result.unreadable.push(key);
            return Ok(());
        };
        let value = keyring.seal(&key, &value).ok_or(Error::Unavailable)?;
        let expect = vec![(key.clone(), Precondition::At(modified))];
        let writes = vec![Write::Put { key, value, ttl: None }];
        match store.commit(Txn { expect, writes, ..Txn::default() }).await? {
            Outcome::Committed(_) => result.changed += 1,
            Outcome::Refused { found, .. } => item = found.into_iter().next().flatten(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;

    fn key(name: &str) -> Key {
        Key(name.into())
    }

    fn put(name: &str, value: &str) -> Txn {
        let value = Bytes::copy_from_slice(value.as_bytes());
        Txn { writes: vec![Write::Put { key: key(name), value, ttl: None }], ..Txn::default() }
    }

    fn ring(keys: &[u8]) -> Arc<Keyring> {
        Arc::new(Keyring::new(&keys.iter().map(|octet| [*octet; KEY_OCTETS]).collect::<Vec<_>>()))
    }

    fn view(store: &Memory, ring: &Arc<Keyring>) -> Encrypted {
        Encrypted::new(Arc::new(store.clone()), ring.clone(), ["/secrets/"])
    }

    async fn value(store: &dyn Store, name: &str) -> Result<Option<String>> {
        let (_, found) = store.get(&key(name), None).await?;
        Ok(found.map(|found| String::from_utf8_lossy(&found.value).into_owned()))
    }

    /// The keys that a list has and those that it cannot read, by pages of `limit`.
    async fn listed(store: &dyn Store, limit: Option<usize>) -> (Vec<String>, Vec<String>) {
        let (mut items, mut damaged, mut from) = (Vec::new(), Vec::new(), None);
        loop {
            let page = store.list(&key("/"), from.as_ref(), None, limit).await.expect("lists");
            let last = page.items.last().map(|last| Key(format!("{}\0", last.key.0).into()));
            items.extend(page.items.into_iter().map(|item| item.key.0.to_string()));
            damaged.extend(page.damaged.into_iter().map(|damaged| damaged.key.0.to_string()));
            if !page.more {
                return (items, damaged);
            }
            from = Some(last.expect("a page that is not the last one has a value"));
        }
    }

    #[tokio::test]
    async fn values_are_encrypted_and_belong_to_their_keys() {
        let (store, ring) = (Memory::new(), ring(&[1]));
        let view = view(&store, &ring);
        let start = view.revision().await.expect("answers");
        for (name, text) in [("/secrets/n/a", "marker"), ("/secrets/n/b", "marker"), ("/others/n/a", "marker")] {
            view.commit(put(name, text)).await.expect("committed");
            assert_eq!(value(&view, name).await.expect("read").as_deref(), Some(text), "{name}");
        }
        let raw = store.list(&key("/secrets/"), None, None, None).await.expect("lists").items;
        let has_marker = |value: &[u8]| value.windows(6).any(|part| part == b"marker");
        assert!(!raw.iter().any(|item| has_marker(&item.value)));
        assert_ne!(raw[0].value[16..], raw[1].value[16..], "each has a salt of its own");
        // A watch has plain text, also of the value before.
        view.commit(put("/secrets/n/a", "second")).await.expect("committed");
        let events: Vec<_> = view.watch(&key("/secrets/"), start).take(3).collect().await;
        let last = &events[2].as_ref().expect("events")[0];
        let before = last.before.as_ref().map(|before| &before.value[..]);
        assert_eq!((&last.now.value[..], before), (&b"second"[..], Some(&b"marker"[..])));
        // Values that were exchanged, cut, changed, or written in plain text are not served.
        let cut = raw[0].value.slice(..raw[0].value.len() - 1);
        let changed: Vec<u8> = raw[0].value.iter().enumerate().map(|(at, octet)| octet ^ u8::from(at == 20)).collect();
        for wrong in [raw[1].value.clone(), cut, changed.into(), Bytes::from_static(b"{}"), Bytes::new()] {
            let write = Write::Put { key: key("/secrets/n/a"), value: wrong, ttl: None };
            store.commit(Txn { writes: vec![write], ..Txn::default() }).await.expect("committed");
            assert!(matches!(value(&view, "/secrets/n/a").await, Err(Error::Damaged { .. })));
        }
        // It counts as there, and can be deleted or replaced.
        let create = Txn { expect: vec![(key("/secrets/n/a"), Precondition::Absent)], ..put("/secrets/n/a", "new") };
        let refused = view.commit(create).await.expect("an answer");
        assert!(matches!(refused, Outcome::Refused { found, .. } if found[0].is_some()));
        assert_eq!(view.damage().count(), 1);
        view.commit(put("/secrets/n/a", "new")).await.expect("committed");
        assert_eq!(
            (value(&view, "/secrets/n/a").await.expect("read").as_deref(), view.damage().count()),
            (Some("new"), 0)
        );
    }

    #[tokio::test]
    async fn a_list_without_the_key_has_the_rest() {
        let store = Memory::new();
        for (ring, names) in [(ring(&[1]), ["a", "c", "d", "g"]), (ring(&[2]), ["b", "e", "f", "h"])] {
            for name in names {
                view(&store, &ring).commit(put(&format!("/secrets/{name}"), name)).await.expect("committed");
            }
        }
        store.commit(put("/others/x", "x")).await.expect("committed");
        let names = |names: &str| names.chars().map(|name| format!("/secrets/{name}")).collect::<Vec<_>>();
        for limit in [None, Some(1), Some(2), Some(3), Some(100)] {
            let both = listed(&view(&store, &ring(&[2, 1])), limit).await;
            assert_eq!((both.0.len(), both.1.len()), (9, 0));
            let (found, lost) = listed(&view(&store, &ring(&[1])), limit).await;
            assert_eq!((&found[1..], lost), (&names("acdg")[..], names("befh")), "{limit:?}");
        }
        let other = ring(&[3]);
        for limit in [None, Some(1), Some(3)] {
            let (found, lost) = listed(&view(&store, &other), limit).await;
            assert_eq!((found.len(), lost), (1, names("abcdefgh")), "{limit:?}");
        }
    }

    #[tokio::test]
    async fn a_rotation_that_stops_leaves_all_readable() {
        let (store, old) = (Memory::new(), ring(&[1]));
        for name in 0..250 {
            view(&store, &old).commit(put(&format!("/secrets/{name:03}"), "x")).await.expect("committed");
        }
        view(&store, &ring(&[9])).commit(put("/secrets/lost", "x")).await.expect("committed");
        let (rotated, lost) = (ring(&[2, 1]), vec![key("/secrets/lost")]);
        // Some are encrypted again, and the process ends.
        let page = store.list(&key("/secrets/"), None, None, Some(7)).await.expect("lists");
        for item in page.items {
            reencrypt_value(&store, &rotated, item, &mut Reencrypted::default()).await.expect("committed");
        }
        assert_eq!(listed(&view(&store, &rotated), None).await.0.len(), 250);
        let again = reencrypt(&store, &rotated, &["/secrets/"]).await.expect("committed");
        assert_eq!(again, Reencrypted { changed: 243, current: 7, unreadable: lost.clone() });
        assert_eq!(listed(&view(&store, &ring(&[2])), None).await.0.len(), 250);
        let again = reencrypt(&store, &rotated, &["/secrets/"]).await.expect("committed");
        assert_eq!(again, Reencrypted { changed: 0, current: 250, unreadable: lost });
        rotated.replace(&[[9; KEY_OCTETS]]);
        assert_eq!(listed(&view(&store, &rotated), None).await.0, ["/secrets/lost"]);
    }
}
