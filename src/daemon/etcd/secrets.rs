//! The secrets that API servers share through etcd: the key and the certificate of their CA, tokens, and users. In etcd, each file is a
//! value, encrypted with AES-256-GCM. On each machine, it is a file in `pki/`.
//!
//! At the start, the values replace the files, and missing values are created from the files. Later, a changed file (for example by
//! `signpost user add`) updates its value, and a changed value updates the file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use bytes::Bytes;
use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::super::Error;
use super::super::encryption_key::EncryptionKey;
use signpost_apiserver::store::encrypted::KEY_OCTETS;
use signpost_apiserver::store::{self, EventKind, Key, Outcome, Precondition, Revision, Store, Txn, Write};
use signpost_runtime::tls::{files, users};

/// The shared files.
const FILES: [&str; 4] = [IDENTITY, "ca.crt", "tokens", users::FILE];
/// The identity of the platform: it does not change.
const IDENTITY: &str = "ca.key";
const PREFIX: &str = "/!pki/";
/// The interval of checks for changed files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The keys that encrypt the files. The first encrypts, all decrypt.
struct Cipher {
    path: PathBuf,
    keys: Vec<RandomizedNonceKey>,
}

impl Cipher {
    fn new(EncryptionKey { path, keys }: EncryptionKey) -> Cipher {
        let key = |octets: &[u8; KEY_OCTETS]| RandomizedNonceKey::new(&AES_256_GCM, octets).expect("it has 32 octets");
        Cipher { path, keys: keys.iter().map(key).collect() }
    }

    /// Returns the nonce, and the encrypted contents of the file `name`.
    fn encrypt(&self, name: &str, contents: &[u8]) -> Result<Bytes, Error> {
        let mut sealed = contents.to_vec();
        let nonce = self.keys[0].seal_in_place_append_tag(Aad::from(name), &mut sealed);
        let nonce = nonce.map_err(|_| Error::Etcd("encryption failed".to_owned()))?;
        Ok([nonce.as_ref().as_slice(), &sealed].concat().into())
    }

    fn decrypt(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        self.keys.iter().find_map(|key| opened(key, name, value)).ok_or_else(|| {
            let path = self.path.display();
            Error::Etcd(format!(
                "the platform's secrets are encrypted with another key than those in {path}: copy the file of another API \
                 server; if it is lost, delete the keys that begin with <etcd.prefix>{PREFIX}, and all clients need new \
                 kubeconfigs"
            ))
        })
    }
}

fn opened(key: &RandomizedNonceKey, name: &str, value: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = value.split_at_checked(NONCE_LEN)?;
    let mut sealed = sealed.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    Some(key.open_in_place(nonce, Aad::from(name), &mut sealed).ok()?.to_vec())
}

/// Encrypts all files in etcd with the first key; returns how many it has changed.
pub async fn reencrypt(store: &impl Store, key: EncryptionKey) -> Result<u64, Error> {
    let (cipher, mut changed) = (Cipher::new(key), 0);
    for (name, value, revision) in list(store).await? {
        let contents = cipher.decrypt(name, &value)?;
        if opened(&cipher.keys[0], name, &value).is_some() {
            continue;
        }
        let write = Write::Put { key: key_of(name), value: cipher.encrypt(name, &contents)?, ttl: None };
        let expect = vec![(key_of(name), Precondition::At(revision))];
        match store.commit(Txn { expect, writes: vec![write], ..Txn::default() }).await {
            Ok(Outcome::Committed(_)) => changed += 1,
            Ok(Outcome::Refused { .. }) => {
                return Err(Error::Etcd(
                    "another API server changed users or tokens at the same time; try again".to_owned(),
                ));
            }
            Err(error) => return Err(unavailable(&error)),
        }
    }
    Ok(changed)
}

/// The result of [`Secrets::publish`].
#[derive(Debug, PartialEq, Eq)]
pub enum Published {
    /// etcd has the contents of the files.
    Equal,
    /// Another server has changed a value. Nothing was written.
    Conflict,
}

/// The shared files of this machine.
pub struct Secrets<S> {
    store: S,
    cipher: Cipher,
    folder: PathBuf,
    /// The last known contents in etcd, and their revisions.
    known: HashMap<&'static str, (Vec<u8>, Revision)>,
}

impl<S: Store> Secrets<S> {
    /// Returns the secrets with files in `folder`. Creates the key if there is neither a key nor a secret.
    pub async fn open(store: S, key: &Path, folder: &Path) -> Result<Self, Error> {
        let has_secrets = !list(&store).await?.is_empty();
        let key = match EncryptionKey::read(key)? {
            Some(found) => found,
            None if has_secrets => {
                let path = key.display();
                return Err(Error::Etcd(format!(
                    "the key that decrypts the platform's secrets is not in {path}; copy the file from another API \
                     server"
                )));
            }
            None => EncryptionKey::create(key)?,
        };
        Ok(Secrets { store, cipher: Cipher::new(key), folder: folder.to_owned(), known: HashMap::new() })
    }

    /// Replaces the files by the contents in etcd.
    pub async fn fetch(&mut self) -> Result<(), Error> {
        files::private_folder(&self.folder)?;
        for (name, value, revision) in list(&self.store).await? {
            self.take(name, &value, revision)?;
        }
        Ok(())
    }

    /// Replaces a file by a value.
    fn take(&mut self, name: &'static str, value: &[u8], revision: Revision) -> Result<(), Error> {
        let contents = match self.cipher.decrypt(name, value) {
            Ok(contents) => contents,
            // The file may have a new key.
            Err(error) => {
                let Some(key) = EncryptionKey::read(&self.cipher.path)? else { return Err(error) };
                self.cipher = Cipher::new(key);
                self.cipher.decrypt(name, value)?
            }
        };
        let path = self.folder.join(name);
        let own = files::read(&path)?;
        if own.as_deref().map(str::as_bytes) != Some(&contents) {
            if name == IDENTITY && own.is_some() {
                return Err(Error::Etcd(format!(
                    "{} is another CA than that of the platform in etcd: move it and the other files of that directory \
                     away to join that platform, or set another \"etcd.prefix\"",
                    path.display()
                )));
            }
            files::write_private(&path, &contents)?;
        }
        self.known.insert(name, (contents, revision));
        Ok(())
    }

    /// Writes all changed files to etcd in one transaction.
    pub async fn publish(&mut self) -> Result<Published, Error> {
        let mut changed = Vec::new();
        for name in FILES {
            let Some(own) = files::read(&self.folder.join(name))? else { continue };
            if self.known.get(name).is_none_or(|(known, _)| known != own.as_bytes()) {
                changed.push((name, own.into_bytes()));
            }
        }
        if changed.is_empty() {
            return Ok(Published::Equal);
        }
        let mut txn = Txn::default();
        for (name, contents) in &changed {
            let precondition = self.known.get(name).map_or(Precondition::Absent, |(_, at)| Precondition::At(*at));
            txn.expect.push((key_of(name), precondition));
            let value = self.cipher.encrypt(name, contents)?;
            txn.writes.push(Write::Put { key: key_of(name), value, ttl: None });
        }
        match self.store.commit(txn).await {
            Ok(Outcome::Committed(revision)) => {
                self.known.extend(changed.into_iter().map(|(name, contents)| (name, (contents, revision))));
                Ok(Published::Equal)
            }
            Ok(Outcome::Refused { .. }) => Ok(Published::Conflict),
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// Synchronizes files and values until `stop`.
    pub async fn keep(mut self, stop: CancellationToken) {
        loop {
            match stop.run_until_cancelled(self.follow()).await {
                None => return,
                Some(Err(error)) => tracing::error!("{error}; retrying"),
                Some(Ok(())) => {}
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    async fn follow(&mut self) -> Result<(), Error> {
        let start = self.store.revision().await.map_err(|error| unavailable(&error))?;
        self.fetch_unless_changed().await?;
        // Changes since the last watch.
        self.fetch().await?;
        let mut changes = self.store.watch(&Key(PREFIX.into()), start);
        loop {
            tokio::select! {
                changed = changes.next() => {
                    let Some(Ok(events)) = changed else { return Ok(()) };
                    for event in events.iter().filter(|event| event.kind == EventKind::Put) {
                        let Some(name) = name_of(&event.now.key) else { continue };
                        if self.known.get(name).is_none_or(|(_, known)| *known < event.at) {
                            self.take(name, &event.now.value, event.at)?;
                        }
                    }
                }
                () = tokio::time::sleep(LOOK_INTERVAL) => self.fetch_unless_changed().await?,
            }
        }
    }

    /// Writes changed files to etcd. After a conflict, it replaces the files by the contents in etcd.
    async fn fetch_unless_changed(&mut self) -> Result<(), Error> {
        if self.publish().await? == Published::Conflict {
            self.fetch().await?;
            tracing::warn!(
                "users or tokens were changed on two API servers at the same time; the change on this machine is lost; repeat it"
            );
        }
        Ok(())
    }
}

/// Returns the names, values and revisions in etcd.
async fn list(store: &impl Store) -> Result<Vec<(&'static str, Bytes, Revision)>, Error> {
    let page = store.list(&Key(PREFIX.into()), None, None, None).await.map_err(|error| unavailable(&error))?;
    let known = page.items.into_iter().filter_map(|item| Some((name_of(&item.key)?, item.value, item.modified)));
    Ok(known.collect())
}

fn key_of(name: &str) -> Key {
    Key::below(PREFIX, name)
}

fn name_of(key: &Key) -> Option<&'static str> {
    FILES.into_iter().find(|name| *name == key.relative(PREFIX))
}

fn unavailable(error: &store::Error) -> Error {
    Error::Etcd(format!("the platform's secrets: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_apiserver::store::memory::Memory;

    struct Machine {
        folder: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Machine {
            Machine { folder: tempfile::tempdir().expect("a folder") }
        }

        fn key(&self) -> PathBuf {
            self.folder.path().join("encryption.key")
        }

        fn file(&self, name: &str) -> PathBuf {
            self.folder.path().join("pki").join(name)
        }

        fn write(&self, name: &str, text: &str) {
            files::private_folder(&self.folder.path().join("pki")).expect("is made");
            std::fs::write(self.file(name), text).expect("is written");
        }

        fn reads(&self, name: &str) -> String {
            std::fs::read_to_string(self.file(name)).unwrap_or_default()
        }

        async fn open(&self, store: &Memory) -> Result<Secrets<Memory>, Error> {
            Secrets::open(store.clone(), &self.key(), &self.folder.path().join("pki")).await
        }

        /// Does the same as the start of a process.
        async fn starts(&self, store: &Memory) -> Secrets<Memory> {
            let mut secrets = self.open(store).await.expect("opens");
            secrets.fetch().await.expect("is read");
            assert_eq!(secrets.publish().await.expect("is written"), Published::Equal);
            secrets
        }
    }

    #[tokio::test]
    async fn machines_share_files_that_etcd_holds_encrypted() {
        let (store, one, two) = (Memory::new(), Machine::new(), Machine::new());
        one.write(IDENTITY, "the private key");
        one.write("tokens", "a");
        let first = one.starts(&store).await;
        let found = store.list(&Key("/".into()), None, None, None).await.expect("lists");
        assert_eq!(found.items.len(), 2);
        assert!(found.items.iter().all(|item| !item.value.windows(7).any(|part| part == b"private")), "{found:?}");
        let error = two.open(&store).await.map(drop).expect_err("has no key");
        assert!(error.to_string().contains("copy the file from another API server"), "{error}");
        EncryptionKey::create(&two.key()).expect("is made");
        let error = two.open(&store).await.expect("opens").fetch().await.expect_err("has another key");
        assert!(error.to_string().contains("another key"), "{error}");
        // A former key decrypts, too.
        let keys = [two.key(), one.key()].map(|path| std::fs::read_to_string(path).expect("is there"));
        std::fs::write(two.key(), keys.concat()).expect("is written");
        let second = two.starts(&store).await;
        assert_eq!((two.reads(IDENTITY), two.reads("tokens")), ("the private key".into(), "a".into()));
        let stop = CancellationToken::new();
        let running = [first, second].map(|secrets| tokio::spawn(secrets.keep(stop.clone())));
        one.write("tokens", "b");
        while two.reads("tokens") != "b" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stop.cancel();
        for running in running {
            running.await.expect("ends");
        }
    }

    #[tokio::test]
    async fn nobodys_change_is_written_over() {
        let (store, one, two) = (Memory::new(), Machine::new(), Machine::new());
        one.write(IDENTITY, "k");
        one.write("tokens", "a");
        let mut first = one.starts(&store).await;
        std::fs::copy(one.key(), two.key()).expect("is copied");
        let mut second = two.starts(&store).await;
        one.write("tokens", "one");
        two.write("tokens", "two");
        assert_eq!(first.publish().await.expect("is written"), Published::Equal);
        assert_eq!(second.publish().await.expect("gets an answer"), Published::Conflict);
        second.fetch_unless_changed().await.expect("is read");
        assert_eq!(two.reads("tokens"), "one");
        // Another platform's machine keeps its identity.
        let other = Machine::new();
        other.write(IDENTITY, "another");
        std::fs::copy(one.key(), other.key()).expect("is copied");
        let error = other.open(&store).await.expect("opens").fetch().await.expect_err("is another platform");
        assert!(error.to_string().contains("another CA"), "{error}");
        assert_eq!(other.reads(IDENTITY), "another");
    }

    /// After a rotation, servers with the new file read all files, and those with only the former key none.
    #[tokio::test]
    async fn files_are_encrypted_again() {
        let (store, one) = (Memory::new(), Machine::new());
        one.write(IDENTITY, "k");
        one.write("tokens", "a");
        let mut running = one.starts(&store).await;
        let former = EncryptionKey::read(&one.key()).expect("read").expect("it is there");
        let new = EncryptionKey { keys: vec![[7; KEY_OCTETS], former.keys[0]], path: one.key() };
        new.write().expect("written");
        assert_eq!(reencrypt(&store, new).await.expect("encrypted"), 2);
        let again = EncryptionKey { keys: vec![[7; KEY_OCTETS]], path: one.key() };
        again.write().expect("written");
        assert_eq!(reencrypt(&store, again).await.expect("read"), 0);
        running.fetch().await.expect("it reads the new key");
        assert!(reencrypt(&store, former).await.is_err());
    }
}
