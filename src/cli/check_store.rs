//! `signpost check store`: verifies every checksum of a stopped server's store, and repairs single values.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::{ArgAction, ArgMatches, Command};
use serde::Serialize;

use super::backup::Undecryptable;
use super::output::{self, Format};
use super::style::Painter;
use super::table::Properties;
use super::{Outcome, file, option, serve, success_if};
use crate::config::{self, Settings};
use signpost_api::kinds::secret::SECRET;
use signpost_api::kinds::{PlatformConfig, kinds};
use signpost_apiserver::store::embedded::OpenError;
use signpost_apiserver::store::repair::Offline;
use signpost_apiserver::store::{Key, Write, backup};

pub(super) fn command() -> Command {
    let drop = option("drop", "KEY").action(ArgAction::Append).help("Delete the damaged value of this key (repeats)");
    let restore = option("restore", "KEY")
        .action(ArgAction::Append)
        .requires("from")
        .help("Replace the damaged value of this key with the one in the backup (repeats)");
    let from = file(option("from", "BACKUP")).help("The backup that --restore reads");
    Command::new("store")
        .about("Verify the store of a stopped server, and restore or drop single damaged objects")
        .after_help(
            "Without --restore and --drop, the command changes nothing. Only damaged values can be restored or \
             dropped. The command also lists the Secrets that no key in <data-dir>/encryption.key decrypts. Exit codes: 0 all \
             values are intact, 1 damaged values or such Secrets remain, or the store cannot be read, 2 invalid usage.",
        )
        .args([drop, restore, from])
        .arg(output::argument())
        .args(serve::arguments_of(&["data-dir"]))
}

/// The report. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    store: String,
    /// The number of intact values.
    values: u64,
    damaged: Vec<Damaged>,
    /// `namespace/name` of the Secrets that no key in the file of the configuration decrypts.
    undecryptable: Vec<String>,
    /// The message about them.
    #[serde(skip)]
    lost_secrets: Option<String>,
    /// The number of unreadable revisions. Clients list again; no object is lost with them.
    lost_history: u64,
    /// Keys that were restored from the backup.
    restored: Vec<String>,
    dropped: Vec<String>,
}

/// A value that cannot be read.
#[derive(Debug, Serialize)]
struct Damaged {
    key: String,
    /// The kind, if the value is an object.
    kind: Option<&'static str>,
    /// `namespace/name` or `name`.
    object: Option<String>,
    revision: u64,
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let settings = config::read(&serve::places(matches))?;
    let keys = |name| -> Vec<Key> {
        matches.get_many::<String>(name).into_iter().flatten().map(|key| Key(key.as_str().into())).collect()
    };
    let (drop, restore, from) = (keys("drop"), keys("restore"), matches.get_one::<PathBuf>("from"));
    let report = check(&settings, &drop, &restore, from)?;
    Format::of(matches).show(&report, |painter| report.text(painter))?;
    Ok(success_if(report.damaged.is_empty() && report.undecryptable.is_empty()))
}

fn check(settings: &Settings, drop: &[Key], restore: &[Key], from: Option<&PathBuf>) -> Result<Report, String> {
    let data_dir = &settings.data_dir;
    let failure = |error: OpenError| match error {
        // Its own message recommends this command.
        OpenError::Corrupt { path, reason } => format!(
            "{}: not a readable store ({reason}); move the file away, and restore a backup with \"restore\"",
            path.display()
        ),
        error => error.to_string(),
    };
    let store = Offline::open(data_dir).map_err(failure)?;
    let mut found = store.verify().map_err(failure)?;
    let is_damaged = |key: &&Key| found.damaged.iter().any(|damaged| damaged.key == **key);
    if let Some(key) = drop.iter().chain(restore).find(|key| !is_damaged(key)) {
        return Err(format!("{}: this value is not damaged; nothing was changed", key.0));
    }
    if let Some(key) = drop.iter().find(|key| restore.contains(key)) {
        return Err(format!("{}: use either --drop or --restore; nothing was changed", key.0));
    }
    let mut writes: Vec<Write> = drop.iter().map(|key| Write::Delete { key: key.clone() }).collect();
    if let Some(from) = from {
        let fault = |error: String| format!("{}: {error}; nothing was changed", from.display());
        let mut file = BufReader::new(File::open(from).map_err(|error| fault(error.to_string()))?);
        let take = |item: signpost_apiserver::store::KeyValue| {
            if restore.contains(&item.key) {
                writes.push(Write::Put { key: item.key, value: item.value, ttl: None });
            }
        };
        backup::read(&mut file, take).map_err(|error| fault(error.to_string()))?;
        let is_there = |key: &&Key| writes.iter().any(|write| write.key() == *key);
        if let Some(key) = restore.iter().find(|key| !is_there(key)) {
            return Err(fault(format!("key {} not found", key.0)));
        }
    }
    if !writes.is_empty() {
        store.mend(writes).map_err(failure)?;
        found = store.verify().map_err(failure)?;
    }
    let mut secrets = Undecryptable::with_key_of(settings)?;
    let prefix = Key(SECRET.key_prefix.into());
    store.values(&prefix).map_err(failure)?.iter().for_each(|item| secrets.check(item));
    let kinds = kinds(PlatformConfig::new(""));
    let damaged = found.damaged.iter().map(|damaged| {
        let kind = kinds.iter().find(|kind| damaged.key.0.starts_with(kind.key_prefix));
        Damaged {
            key: damaged.key.0.to_string(),
            kind: kind.map(|kind| kind.kind),
            object: kind.map(|kind| damaged.key.0[kind.key_prefix.len()..].to_owned()),
            revision: damaged.modified.0,
        }
    });
    let texts = |keys: &[Key]| keys.iter().map(|key| key.0.to_string()).collect();
    Ok(Report {
        store: data_dir.join(signpost_apiserver::store::embedded::FILE_NAME).display().to_string(),
        values: found.values,
        damaged: damaged.collect(),
        lost_secrets: secrets.fault(),
        undecryptable: secrets.names,
        lost_history: found.lost_history,
        restored: texts(restore),
        dropped: texts(drop),
    })
}

impl Report {
    fn text(&self, painter: Painter) -> String {
        let mut facts = Properties::default();
        facts.add("store", self.store.as_str());
        facts.add("intact", format!("{} values", self.values));
        facts.add("damaged", format!("{} values", self.damaged.len()));
        if self.lost_history > 0 {
            let lost = format!("{} revisions cannot be read; clients that need them list again", self.lost_history);
            facts.add("history", lost);
        }
        self.restored.iter().for_each(|key| facts.add("restored", key.as_str()));
        self.dropped.iter().for_each(|key| facts.add("dropped", key.as_str()));
        let mut text = facts.text(painter);
        for Damaged { key, kind, object, .. } in &self.damaged {
            let object = match (kind, object) {
                (Some(kind), Some(object)) => format!("{kind} {object}"),
                _ => "not an API object".to_owned(),
            };
            text.push_str(&format!(
                "\n{key} ({object}) is damaged.\n  Restore it:  signpost check store --restore {key} --from BACKUP\n  \
                 or drop it:  signpost check store --drop {key}\n"
            ));
        }
        if let Some(fault) = &self.lost_secrets {
            text.push_str(&format!(
                "\n{fault}.\n  They are not served, and all else is. Add the platform's former encryption.key to that file.\n"
            ));
        }
        text
    }
}
