//! The file `encryption.key`: the keys that encrypt Secrets at rest, and with the store `etcd` also the files that API servers share.
//!
//! Each line is a key. The first one encrypts, all decrypt, so that a former key stays readable while values are encrypted again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand;
use data_encoding::BASE64;
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::config::Settings;
use signpost_apiserver::store::encrypted::{KEY_OCTETS, Keyring};
use signpost_runtime::tls::files;

const NAME: &str = "encryption.key";
/// The interval of checks for a changed file.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The keys in the file: at least one.
pub struct EncryptionKey {
    pub path: PathBuf,
    pub keys: Vec<[u8; KEY_OCTETS]>,
}

/// Returns the path of the file in the configuration.
pub fn path(settings: &Settings) -> PathBuf {
    settings.etcd.encryption_key.clone().unwrap_or_else(|| settings.data_dir.join(NAME))
}

/// Returns a random key.
pub fn random() -> Result<[u8; KEY_OCTETS], Error> {
    let mut octets = [0; KEY_OCTETS];
    rand::fill(&mut octets).map_err(|_| Error::EncryptionKey("the system returned no random numbers".to_owned()))?;
    Ok(octets)
}

impl EncryptionKey {
    /// Reads the file; `None` if it is not there.
    pub fn read(path: &Path) -> Result<Option<EncryptionKey>, Error> {
        let Some(text) = files::read(path)? else { return Ok(None) };
        let wrong = |number: usize| {
            let expected = "must be a key: 32 octets in Base64, as \"openssl rand -base64 32\" prints them";
            Error::EncryptionKey(format!("{}:{number}: {expected}", path.display()))
        };
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let keys = lines.map(|(number, line)| {
            let octets = BASE64.decode(line.trim().as_bytes()).map_err(|_| wrong(number))?;
            octets.try_into().map_err(|_| wrong(number))
        });
        let keys = keys.collect::<Result<Vec<_>, Error>>()?;
        if keys.is_empty() { Err(wrong(1)) } else { Ok(Some(EncryptionKey { path: path.to_owned(), keys })) }
    }

    /// Reads the file, or creates it with a new key.
    pub fn read_or_create(path: &Path) -> Result<EncryptionKey, Error> {
        match EncryptionKey::read(path)? {
            Some(key) => Ok(key),
            None => EncryptionKey::create(path),
        }
    }

    /// Creates the file with a new key.
    pub fn create(path: &Path) -> Result<EncryptionKey, Error> {
        let key = EncryptionKey { path: path.to_owned(), keys: vec![random()?] };
        key.write()?;
        tracing::info!("created {}, which encrypts Secrets; keep a copy apart from backups", path.display());
        Ok(key)
    }

    /// Replaces the file.
    pub fn write(&self) -> Result<(), Error> {
        let lines: String = self.keys.iter().map(|key| format!("{}\n", BASE64.encode(key))).collect();
        Ok(files::write_private(&self.path, lines.as_bytes())?)
    }
}

/// Follows a changed file until `stop`. A missing or damaged file changes no key.
pub async fn follow(path: PathBuf, keyring: Arc<Keyring>, stop: CancellationToken) {
    let (mut last, mut reported) = (None, None);
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_INTERVAL)).await.is_some() {
        match EncryptionKey::read(&path) {
            Ok(None) => {}
            Ok(Some(EncryptionKey { keys, .. })) => {
                reported = None;
                let keys = Some(keys);
                if keys != last {
                    if let (Some(keys), true) = (&keys, last.is_some()) {
                        tracing::info!(keys = keys.len(), "read the changed encryption key");
                    }
                    keyring.replace(keys.as_deref().unwrap_or_default());
                    last = keys;
                }
            }
            Err(error) => {
                let error = Some(error.to_string());
                if error != reported {
                    tracing::error!("{}; the former keys stay in use", error.as_deref().unwrap_or_default());
                    reported = error;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_none_is_located() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(NAME);
        assert!(EncryptionKey::read(&path).expect("it is not there").is_none());
        for text in ["", "a", "AAAA\n"] {
            std::fs::write(&path, text).expect("written");
            let error = EncryptionKey::read(&path).map(drop).expect_err(text);
            assert!(error.to_string().contains("encryption.key:1: must be a key"), "{error}");
        }
        std::fs::remove_file(&path).expect("removed");
        let mut created = EncryptionKey::read_or_create(&path).expect("created");
        created.keys.push([7; KEY_OCTETS]);
        created.write().expect("written");
        assert_eq!(EncryptionKey::read_or_create(&path).expect("read").keys, created.keys);
    }
}
