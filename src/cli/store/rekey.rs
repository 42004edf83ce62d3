//! `signpost store rekey`: replaces the key that encrypts Secrets and the files that API servers share.
//!
//! The new key is in the file before any value has it, and a former key until no value has it. So a rotation that ends at any point leaves
//! everything readable, and can be repeated.

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
        if matches.get_flag("use-prepared") {
            if key.keys.len() < 2 {
                return Err(Error::Failed(format!(
                    "{}: there is no prepared key; run --prepare first",
                    path.display()
                )));
            }
            key.keys.rotate_right(1);
        } else if !matches.get_flag("remove-former") {
            key.keys.insert(0, encryption_key::random().map_err(text)?);
        }
        done = with_store(&settings, &mut key, matches.get_flag("remove-former"))?;
    }
    let report = Report {
        file: path.display().to_string(),
        keys: key.keys.len(),
        changed: done.changed,
        current: done.current,
        undecryptable: done.unreadable.iter().map(|key| key.relative(SECRET.key_prefix).to_owned()).collect(),
    };
    Format::of(matches).show(&report, |painter| report.text(painter))?;
    match report.undecryptable.is_empty() {
        true => Ok(Exit::Success),
        false => {
            Err(Error::Failed("no key decrypts some Secrets; delete them, or add their key to the file".to_owned()))
        }
    }
}

/// Writes the keys, encrypts everything with the first one, and then keeps only this one if `removes_former`.
fn with_store(settings: &Settings, key: &mut EncryptionKey, removes_former: bool) -> Result<Reencrypted, String> {
    let text = |error: crate::daemon::Error| error.to_string();
    let done = match settings.store {
        Engine::File => {
            let store = backup::stopped_store(&settings.data_dir)?;
            key.write().map_err(text)?;
            let keyring = Keyring::new(&key.keys);
            access::run(backup::LIMIT, async {
                reencrypt(&store, &keyring, &[SECRET.key_prefix]).await.map_err(|error| error.to_string())
            })?
        }
        #[cfg(feature = "etcd")]
        Engine::Etcd => backup::with_etcd(settings, "encrypting", async |etcd| {
            key.write().map_err(text)?;
            let (keyring, keys) = (Keyring::new(&key.keys), key.keys.clone());
            let of_files = EncryptionKey { path: key.path.clone(), keys };
            let files = crate::daemon::etcd::secrets::reencrypt(&etcd, of_files).await.map_err(text)?;
            let done = reencrypt(&etcd, &keyring, &[SECRET.key_prefix]).await.map_err(|error| error.to_string())?;
            Ok(Reencrypted { changed: done.changed + files, ..done })
        })?,
        #[cfg(not(feature = "etcd"))]
        Engine::Etcd => backup::with_etcd(settings, "", async |_| Ok(Reencrypted::default()))?,
    };
    if removes_former {
        key.keys.truncate(1);
        key.write().map_err(text)?;
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
