//! `signpost store rekey`: replaces the key that encrypts Secrets and the files that API servers share.
//!
//! The new key is in the file before any value has it, and a former key until no value has it. A prepared key becomes the first one in the
//! file only when all values have it. So a rotation that ends at any point leaves everything readable, and can be repeated.

use clap::{ArgMatches, Command};
use serde::Serialize;

use crate::cli::backup::{self, STORE_KEYS};
use crate::cli::output::{self, Format};
use crate::cli::style::Painter;
use crate::cli::table::Properties;
use crate::cli::{Error, Exit, Outcome, access, serve, switch};
use crate::config::{self, Engine, Settings};
use crate::daemon::encryption_key::{self, EncryptionKey};
use signpost_api::kinds::secret::SECRET;
use signpost_apiserver::store::encrypted::{Keyring, Reencrypted, reencrypt};

pub(super) fn command() -> Command {
    let prepare = switch("prepare").help("Only add a new key behind the others; it decrypts, and does not encrypt yet");
    let use_prepared = switch("use-prepared").help("Encrypt with the last key of the file instead of a new one");
    let remove_former = switch("remove-former")
        .help("Encrypt with the first key of the file, and then remove the other keys from the file");
    let phases = ["prepare", "use-prepared", "remove-former"];
    let phases = [prepare, use_prepared, remove_former].map(|phase| {
        let others: Vec<&str> = phases.into_iter().filter(|other| *other != phase.get_id().as_str()).collect();
        phase.conflicts_with_all(others)
    });
    Command::new("rekey")
        .about("Replace the key that encrypts Secrets")
        .after_help(
            "Without an option, the command adds a new key to <data-dir>/encryption.key, and encrypts all Secrets with it; the \
             former keys stay in the file. With the store file, stop the server first. With the store etcd, API servers \
             continue to run, and each reads its changed file within a second: run --prepare and copy the file to all API \
             servers, then --use-prepared and copy it again, then --remove-former and copy it again. If the command stops \
             early, everything stays readable; run it again. Backups that are older than the rotation need the former \
             key: keep a copy of it as long as those backups. Exit codes: 0 done, 1 failed, or a Secret cannot be \
             decrypted, 2 invalid usage.",
        )
        .args(phases)
        .arg(output::argument())
        .args(serve::arguments_of(STORE_KEYS))
}

/// The step of a rotation that encrypts values again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    NewKey,
    UsePrepared,
    RemoveFormer,
}

/// The report. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    file: String,
    /// The number of keys in the file.
    keys: usize,
    /// The number of values that were encrypted again.
    changed: u64,
    /// The number of values that had the first key already.
    current: u64,
    /// The Secrets that no key decrypts, as `namespace/name`. They are unchanged.
    undecryptable: Vec<String>,
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let settings = config::read(&serve::places(matches))?;
    let path = encryption_key::path(&settings);
    let text = |error: crate::daemon::Error| error.to_string();
    let mut key = EncryptionKey::read(&path)
        .map_err(text)?
        .ok_or_else(|| format!("{}: no such file; the first start of an API server creates it", path.display()))?;
    let mut done = Reencrypted::default();
    if matches.get_flag("prepare") {
        key.keys.push(encryption_key::random().map_err(text)?);
        key.write().map_err(text)?;
    } else {
        let step = match (matches.get_flag("use-prepared"), matches.get_flag("remove-former")) {
            (true, _) => Step::UsePrepared,
            (_, true) => Step::RemoveFormer,
            _ => Step::NewKey,
        };
        match step {
            Step::NewKey => key.keys.insert(0, encryption_key::random().map_err(text)?),
            Step::UsePrepared if key.keys.len() < 2 => {
                let path = path.display();
                return Err(Error::Failed(format!("{path}: there is no prepared key; run --prepare first")));
            }
            Step::UsePrepared => key.keys.rotate_right(1),
            Step::RemoveFormer => {}
        }
        done = with_store(&settings, &mut key, step)?;
    }
    let report = Report {
        file: path.display().to_string(),
        keys: key.keys.len(),
        changed: done.changed,
        current: done.current,
        undecryptable: done.unreadable.iter().map(|key| key.relative(SECRET.key_prefix).to_owned()).collect(),
    };
    Format::of(matches).show(&report, |painter| report.text(painter))?;
    let fault = "no key decrypts some Secrets; delete them, or add their key to the file";
    match report.undecryptable.is_empty() {
        true => Ok(Exit::Success),
        // The last key is the prepared one.
        false if matches.get_flag("use-prepared") => {
            Err(Error::Failed(format!("{fault} before the last line, and run the command again")))
        }
        false => Err(Error::Failed(fault.to_owned())),
    }
}

/// Encrypts everything with the first key, and writes the keys.
fn with_store(settings: &Settings, key: &mut EncryptionKey, step: Step) -> Result<Reencrypted, String> {
    let text = |error: crate::daemon::Error| error.to_string();
    // A prepared key is in the file, in the last place. If it were the first one there, a repetition would choose the former key.
    let write_first = |key: &EncryptionKey| if step == Step::UsePrepared { Ok(()) } else { key.write().map_err(text) };
    let done = match settings.store {
        Engine::File => {
            let store = backup::stopped_store(&settings.data_dir)?;
            write_first(key)?;
            let keyring = Keyring::new(&key.keys);
            access::run(backup::LIMIT, async {
                reencrypt(&store, &keyring, &[SECRET.key_prefix]).await.map_err(|error| error.to_string())
            })?
        }
        #[cfg(feature = "etcd")]
        Engine::Etcd => backup::with_etcd(settings, "encrypting", async |etcd| {
            write_first(key)?;
            let (keyring, keys) = (Keyring::new(&key.keys), key.keys.clone());
            let of_files = EncryptionKey { path: key.path.clone(), keys };
            let files = crate::daemon::etcd::secrets::reencrypt(&etcd, of_files).await.map_err(text)?;
            let done = reencrypt(&etcd, &keyring, &[SECRET.key_prefix]).await.map_err(|error| error.to_string())?;
            Ok(Reencrypted { changed: done.changed + files, ..done })
        })?,
        #[cfg(not(feature = "etcd"))]
        Engine::Etcd => backup::with_etcd(settings, "", async |_| Ok(Reencrypted::default()))?,
    };
    match step {
        Step::UsePrepared if done.unreadable.is_empty() => key.write().map_err(text)?,
        Step::NewKey | Step::UsePrepared => {}
        Step::RemoveFormer => {
            key.keys.truncate(1);
            key.write().map_err(text)?;
        }
    }
    Ok(done)
}

impl Report {
    fn text(&self, painter: Painter) -> String {
        let mut facts = Properties::default();
        facts.add("file", self.file.as_str());
        facts.add("keys", self.keys.to_string());
        facts.add("encrypted", format!("{} values; {} had the first key", self.changed, self.current));
        for name in &self.undecryptable {
            facts.add("unreadable", format!("Secret {name}: no key decrypts it"));
        }
        facts.text(painter)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use signpost_apiserver::store::embedded::{Embedded, Options};
    use signpost_apiserver::store::encrypted::KEY_OCTETS;
    use signpost_apiserver::store::{Key, Store as _, Txn, Write};

    const A: [u8; KEY_OCTETS] = [1; KEY_OCTETS];
    const B: [u8; KEY_OCTETS] = [2; KEY_OCTETS];
    const LOST: [u8; KEY_OCTETS] = [3; KEY_OCTETS];

    fn rekey(directory: &Path, flag: &str) -> Outcome {
        let directory = directory.to_str().expect("a text");
        run(&command().get_matches_from(["rekey", "--data-dir", directory, flag]))
    }

    /// Runs `work` with the store while no command uses it.
    fn with<T>(directory: &Path, work: impl AsyncFnOnce(&Embedded) -> T) -> T {
        let store = Embedded::open(directory, Options::default()).expect("a store");
        access::run(backup::LIMIT, async { Ok(work(&store).await) }).expect("in time")
    }

    fn key(name: &str) -> Key {
        Key::below(SECRET.key_prefix, name)
    }

    /// A command that is repeated after a failure uses the prepared key, and not the former one.
    #[test]
    fn a_repetition_uses_the_same_prepared_key() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, file) = (directory.path(), directory.path().join("encryption.key"));
        EncryptionKey { path: file.clone(), keys: vec![A, B] }.write().expect("written");
        let keys = || EncryptionKey::read(&file).expect("read").expect("it is there").keys;
        with(path, async |store| {
            for (name, of_value) in [("n/good", A), ("n/lost", LOST)] {
                let value = Keyring::new(&[of_value]).seal(&key(name), b"value").expect("sealed");
                let writes = vec![Write::Put { key: key(name), value, ttl: None }];
                store.commit(Txn { writes, ..Txn::default() }).await.expect("committed");
            }
        });
        let has_key = |name: &str, with_key: [u8; KEY_OCTETS]| {
            with(path, async |store| {
                let (_, found) = store.get(&key(name), None).await.expect("read");
                Keyring::new(&[with_key]).open(&key(name), &found.expect("it is there").value).is_ok()
            })
        };
        for _ in 0..2 {
            let failed = rekey(path, "--use-prepared").expect_err("a Secret is lost");
            assert!(matches!(failed, Error::Failed(text) if text.contains("before the last line")));
            assert_eq!(keys(), [A, B]);
            assert!(has_key("n/good", B));
        }
        // The former key is added as the message demands.
        EncryptionKey { path: file.clone(), keys: vec![A, LOST, B] }.write().expect("written");
        assert!(matches!(rekey(path, "--use-prepared"), Ok(Exit::Success)));
        assert_eq!(keys(), [B, A, LOST]);
        assert!(has_key("n/good", B) && has_key("n/lost", B));
        assert!(matches!(rekey(path, "--remove-former"), Ok(Exit::Success)));
        assert_eq!(keys(), [B]);
    }
}
