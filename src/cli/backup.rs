//! `signpost backup` and `signpost restore`: all objects of the API in one file, and back.
//!
//! A stopped server is backed up from its data directory, and a running one through its API, without interruption.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Serialize;

use super::access::{self, ApiLocation};
use super::output::{self, Format};
use super::style::Painter;
use super::table::Properties;
use super::{Error, Exit, Outcome, confirm, note, progress, serve, switch};

use crate::config::{self, Engine, Settings};
use crate::daemon::data_dir::STATE;
use crate::daemon::encryption_key::{self, EncryptionKey};
use crate::daemon::restored;
use signpost_api::kinds::route_binding::ROUTE_BINDING;
use signpost_api::kinds::router::ROUTER;
use signpost_api::kinds::secret::SECRET;
use signpost_apiserver::store::backup::{self, RestoreError, Summary};
use signpost_apiserver::store::embedded::{Embedded, FILE_NAME, OpenError, Options};
use signpost_apiserver::store::encrypted::Keyring;
#[cfg(feature = "etcd")]
use signpost_apiserver::store::etcd::Etcd;
use signpost_apiserver::store::{Key, KeyValue};
use signpost_control::name_server::last_known_good::served_objects;

/// The time limit of a backup over the API, and of other work on a whole store.
pub(super) const LIMIT: Duration = Duration::from_secs(3_600);

pub(super) fn command() -> Command {
    let file = file_argument().help("The file to write, with mode 0600; with --check, the backup to check");
    let check = switch("check").help("Verify a backup instead of writing one");
    let force = switch("force").conflicts_with("check").help("Replace FILE if it exists");
    let online = switch("online")
        .conflicts_with("check")
        .help("Read from the API even if <data-dir> holds a store that no process uses");
    Command::new("backup")
        .about("Write all objects of the API into one file, from a running or a stopped server")
        .after_help(
            "If <data-dir> holds a store that no process uses, the command reads that store. Otherwise it reads from \
             the API, which requires an administrator. The backup is a consistent snapshot. The command verifies it \
             before it replaces FILE. A backup contains no keys and no tokens, and Secrets are encrypted: also keep \
             <data-dir>/encryption.key, <data-dir>/pki and the kubeconfigs. The command skips damaged objects and lists them. Exit codes: 0 written (or valid), 1 \
             failed, or damaged objects were skipped, 2 invalid usage.",
        )
        .arg(file)
        .args([check, force, online])
        .arg(output::argument())
        .args(access::arguments())
}

/// The maximum number of listed objects that a backup does not have.
const MISSING_SHOWN: usize = 10;

/// `signpost restore`.
pub(super) fn restore_command() -> Command {
    Command::new("restore")
        .about("Restore a backup into an empty store")
        .after_help(
            "The configuration selects the store. A data directory must not contain a store (move store.redb away \
             first). Its other files, such as pki/, stay. Revisions continue 1,000,000,000 above those of the backup, \
             so that clients list again. In etcd, no object may exist below <etcd.prefix>, and revisions are new: stop \
             the API servers first. In both stores, the serials of zones continue after all serials used since the \
             backup. The command verifies the whole backup before it writes anything, and lists the Secrets that no key \
             in <data-dir>/encryption.key decrypts. If <data-dir> has the state of a \
             name server, the command lists the objects that this server still serves and that the backup does not \
             have, and prompts for confirmation on a terminal. Exit codes: 0 restored, 1 not \
             restored, 2 invalid usage.",
        )
        .arg(file_argument().help("The backup"))
        .args([confirm::argument(), output::argument()])
        .args(serve::arguments_of(STORE_KEYS))
}

/// The settings that select the store.
pub(super) const STORE_KEYS: &[&str] = &[
    "data-dir",
    "store",
    "etcd.endpoints",
    "etcd.prefix",
    "etcd.ca",
    "etcd.certificate",
    "etcd.key",
    "etcd.user",
    "etcd.password-file",
    "etcd.encryption-key",
];

fn file_argument() -> Arg {
    super::file(Arg::new("file").value_name("FILE").required(true))
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let file = matches.get_one::<PathBuf>("file").expect("clap demands it");
    let report = if matches.get_flag("check") {
        let report = Report::new(file, &check(file)?);
        note(format_args!("{}: the backup is valid and complete", file.display()));
        report
    } else if !matches.get_flag("force") && file.exists() {
        let file = file.display();
        return Err(format!("{file}: the file exists; choose another file, or set --force to replace it").into());
    } else {
        make(&place, file, matches.get_flag("online"))?
    };
    Format::of(matches).show(&report, |painter| report.text(painter))?;
    if report.damaged.is_empty() {
        return Ok(Exit::Success);
    }
    let error = "the backup does not contain damaged objects; run \"signpost check store\" to restore or drop them";
    Err(Error::Failed(error.to_owned()))
}

/// `signpost restore`.
pub(super) fn run_restore(matches: &ArgMatches) -> Outcome {
    let settings = config::read(&serve::places(matches))?;
    let file = matches.get_one::<PathBuf>("file").expect("clap demands it");
    let mut left_out = Missing::served_by(&settings)?;
    let mut undecryptable = Undecryptable::with_key_of(&settings)?;
    let summary = check_each(file, |item| {
        left_out.is_in_backup(&item.key);
        undecryptable.check(&item);
    })?;
    if let Some(missing) = left_out.text() {
        note(format_args!("{missing}"));
        if confirm::asks(matches) {
            confirm::confirm("Restore without them?")?;
        }
    }
    let mut report = Report::new(file, &summary);
    report.missing = left_out.names().collect();
    if let Some(text) = undecryptable.text() {
        note(format_args!("{text}"));
    }
    report.undecryptable = undecryptable.names;
    report.first_revision = Some(restore(&settings, settings.store, file, &summary)?);
    match settings.store {
        Engine::File => report.data_dir = Some(settings.data_dir.display().to_string()),
        Engine::Etcd => report.etcd_prefix = Some(settings.etcd.prefix),
    }
    Format::of(matches).show(&report, |painter| report.text(painter))
}

/// Restores `file` into a store of these settings; returns the revision that it continues with.
pub(super) fn restore(settings: &Settings, to: Engine, file: &Path, summary: &Summary) -> Result<u64, String> {
    let failure = |error: RestoreError| match &error {
        RestoreError::Read(_) | RestoreError::Damaged(_) | RestoreError::OtherFormat { .. } => {
            format!("{}: {error}", file.display())
        }
        _ => error.to_string(),
    };
    match to {
        Engine::File => {
            backup::restore(&settings.data_dir, &mut open(file)?, restored::moved_on).map_err(failure)?;
            Ok(summary.first.0)
        }
        Engine::Etcd => with_etcd(settings, "restoring", async |etcd| {
            let restored = backup::restore_into(&etcd, &mut open(file)?, restored::moved_on).await;
            restored.map(|revision| revision.0).map_err(failure)
        }),
    }
}

/// The objects whose names the name server of a data directory still serves, and that a backup does not have.
struct Missing {
    /// The kinds, the prefixes of their keys, and the names.
    kinds: [(&'static str, &'static str, BTreeSet<Box<str>>); 2],
}

impl Missing {
    /// Returns all objects of the last-known-good state, as if a backup had none of them.
    fn served_by(settings: &Settings) -> Result<Self, String> {
        let state = settings.data_dir.join(STATE);
        let served = served_objects(&state).map_err(|error| format!("{}: {error}", state.display()))?;
        let [routers, bindings] = served.unwrap_or_default();
        let kinds = [("Router", ROUTER.key_prefix, routers), ("RouteBinding", ROUTE_BINDING.key_prefix, bindings)];
        Ok(Missing { kinds })
    }

    fn is_in_backup(&mut self, key: &Key) {
        for (_, prefix, names) in &mut self.kinds {
            if let Some(name) = key.0.strip_prefix(*prefix) {
                names.remove(name);
            }
        }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        self.kinds.iter().flat_map(|(kind, _, names)| names.iter().map(move |name| format!("{kind} {name}")))
    }

    /// Returns the consequence for an operator; `None` if nothing is missing.
    fn text(&self) -> Option<String> {
        let count = self.names().count();
        let mut names: Vec<String> = self.names().take(MISSING_SHOWN).collect();
        if count > MISSING_SHOWN {
            names.push("…".to_owned());
        }
        (count > 0).then(|| {
            format!(
                "{count} object(s) that the name server still serves are not in the backup: {}; after the restore, it \
                 holds those that exceed the deletion hold until they exist again or \"signpost hold approve\", and \
                 stops serving the others",
                names.join(", ")
            )
        })
    }
}

/// The Secrets of a backup, or of a store, that the encryption key of the configuration does not decrypt.
pub(super) struct Undecryptable {
    path: PathBuf,
    /// `None`: there is no key.
    keyring: Option<Keyring>,
    /// `namespace/name` of each.
    pub(super) names: Vec<String>,
}

impl Undecryptable {
    pub(super) fn with_key_of(settings: &Settings) -> Result<Self, String> {
        let path = encryption_key::path(settings);
        let key = EncryptionKey::read(&path).map_err(|error| error.to_string())?;
        Ok(Undecryptable { path, keyring: key.map(|key| Keyring::new(&key.keys)), names: Vec::new() })
    }

    pub(super) fn check(&mut self, item: &KeyValue) {
        let Some(name) = item.key.0.strip_prefix(SECRET.key_prefix) else { return };
        let opened = self.keyring.as_ref().is_some_and(|keyring| keyring.open(&item.key, &item.value).is_ok());
        if !opened {
            self.names.push(name.to_owned());
        }
    }

    /// Returns the consequence of a restore for an operator; `None` if the key decrypts all.
    fn text(&self) -> Option<String> {
        let fault = self.fault()?;
        Some(format!(
            "{fault}; they are restored, but not served until you add the platform's former encryption.key to that file and \
             restart the API servers"
        ))
    }

    /// Names the Secrets; `None` if the key decrypts all.
    pub(super) fn fault(&self) -> Option<String> {
        let count = self.names.len();
        (count > 0).then(|| {
            let (path, names) = (self.path.display(), self.names[..count.min(MISSING_SHOWN)].join(", "));
            let more = if count > MISSING_SHOWN { ", …" } else { "" };
            format!("no key in {path} decrypts {count} Secret(s): {names}{more}")
        })
    }
}

/// Runs a task with the etcd of these settings.
#[cfg(feature = "etcd")]
pub(super) fn with_etcd<T>(
    settings: &Settings,
    what: &'static str,
    task: impl AsyncFnOnce(Etcd) -> Result<T, String>,
) -> Result<T, String> {
    let connected = async {
        let etcd = crate::daemon::etcd::connect(settings).await.map_err(|error| error.to_string())?;
        let etcd = etcd.map_err(|error| format!("etcd at {}: {error}", settings.etcd.endpoints.join(", ")))?;
        task(etcd).await
    };
    access::run(LIMIT, progress::during(what, connected))
}

/// Returns an error. Without the feature, the configuration accepts no etcd.
#[cfg(not(feature = "etcd"))]
pub(super) fn with_etcd<T>(
    _: &Settings,
    _: &'static str,
    _: impl AsyncFnOnce(signpost_apiserver::store::memory::Memory) -> Result<T, String>,
) -> Result<T, String> {
    Err("this program was built without etcd".to_owned())
}

fn open(file: &Path) -> Result<BufReader<File>, String> {
    File::open(file).map(BufReader::new).map_err(|error| format!("{}: {error}", file.display()))
}

pub(super) fn check(file: &Path) -> Result<Summary, String> {
    check_each(file, drop)
}

/// Checks a backup, and calls `each` with every value of it.
fn check_each(file: &Path, each: impl FnMut(KeyValue)) -> Result<Summary, String> {
    let mut from = open(file)?;
    let summary = backup::read(&mut from, each).map_err(|error| format!("{}: {error}", file.display()))?;
    match from.read(&mut [0]) {
        Ok(0) => Ok(summary),
        Ok(_) => Err(format!("{}: not a valid backup: data follows its end", file.display())),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

/// Writes a backup to a temporary file, verifies it, and renames it to `file`.
fn make(place: &ApiLocation, file: &Path, online: bool) -> Result<Report, String> {
    let mut name = file.file_name().ok_or_else(|| format!("{}: not a file", file.display()))?.to_owned();
    name.push(".new");
    let beside = file.with_file_name(name);
    let made = write(place, &beside, online).and_then(|source| {
        let summary = check(&beside)?;
        std::fs::rename(&beside, file).map_err(|error| format!("{}: {error}", file.display()))?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| format!("{}: {error}", folder.display()))?;
        note(format_args!("read from {source}"));
        Ok(Report::new(file, &summary))
    });
    made.inspect_err(|_| drop(std::fs::remove_file(&beside)))
}

/// Writes a backup; the answer is where it came from.
fn write(place: &ApiLocation, beside: &Path, online: bool) -> Result<String, String> {
    let fault = |error: io::Error| format!("{}: {error}", beside.display());
    let mut to = BufWriter::new(create(beside)?);
    let store = if online || place.is_explicit() { None } else { stopped(&place.settings.data_dir)? };
    let source = match store {
        Some(store) => {
            backup::backup(&store, &mut to).map_err(|error| error.to_string())?;
            place.settings.data_dir.display().to_string()
        }
        None => {
            access::run(LIMIT, progress::during("backing up", fetch(place, &mut to)))?;
            format!("the API of {}", place.origin())
        }
    };
    let file = to.into_inner().map_err(|error| fault(error.into_error()))?;
    file.sync_all().map_err(fault)?;
    Ok(source)
}

/// Creates the file of a backup. Only its owner may read it, because it contains the objects of all users.
pub(super) fn create(path: &Path) -> Result<File, String> {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the store in a data directory, if there is one and no process uses it.
fn stopped(data_dir: &Path) -> Result<Option<Embedded>, String> {
    if !data_dir.join(FILE_NAME).is_file() {
        return Ok(None);
    }
    // Nothing of it is forgotten meanwhile.
    match Embedded::open(data_dir, Options { history: None, ..Options::default() }) {
        Ok(store) => Ok(Some(store)),
        Err(OpenError::InUse { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the store in a data directory, which no process may use.
pub(super) fn stopped_store(data_dir: &Path) -> Result<Embedded, String> {
    let missing = "no store found, or a process is using it; stop that process";
    stopped(data_dir)?.ok_or_else(|| format!("{}: {missing}", data_dir.display()))
}

/// Reads a backup from a running server.
async fn fetch(place: &ApiLocation, to: &mut impl io::Write) -> Result<(), String> {
    let access = place.connect().await?;
    let request =
        http::Request::get(signpost_apiserver::backup::PATH).body(Body::empty()).map_err(|error| error.to_string())?;
    let response = access.client.send(request).await.map_err(|error| access.unanswered(error))?;
    let status = response.status();
    if !status.is_success() {
        let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let failure: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        let message = failure.as_ref().and_then(|status| status["message"].as_str());
        let message = message.unwrap_or("the server does not provide backups");
        return Err(access.refused(status.as_u16(), &format!("{message} ({status})")));
    }
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| access.refused(status.as_u16(), &error.to_string()))?;
        if let Some(octets) = frame.data_ref() {
            to.write_all(octets).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// The report. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    file: String,
    revision: u64,
    objects: u64,
    /// Objects that were damaged in the store, and are not in the backup, by key.
    damaged: Vec<String>,
    data_dir: Option<String>,
    etcd_prefix: Option<String>,
    first_revision: Option<u64>,
    /// The objects that the name server of the data directory still serves, and that are not in the restored backup.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    /// The Secrets that no key decrypts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    undecryptable: Vec<String>,
}

impl Report {
    fn new(file: &Path, summary: &Summary) -> Report {
        Report {
            file: file.display().to_string(),
            revision: summary.revision.0,
            objects: summary.values,
            damaged: summary.damaged.iter().map(|key| key.0.to_string()).collect(),
            ..Report::default()
        }
    }

    fn text(&self, painter: Painter) -> String {
        let mut facts = Properties::default();
        facts.add("backup", self.file.as_str());
        facts.add("objects", self.objects.to_string());
        facts.add("revision", self.revision.to_string());
        facts.add("checksum", "verified (SHA-256 of the whole file)");
        for key in &self.damaged {
            facts.add("skipped", format!("{key}: damaged in the store"));
        }
        let place = self.data_dir.clone().or_else(|| self.etcd_prefix.as_ref().map(|prefix| format!("etcd, {prefix}")));
        if let (Some(place), Some(first)) = (place, self.first_revision) {
            facts.add("restored", format!("to {place}; first revision {first}"));
        }
        facts.text(painter)
    }
}
