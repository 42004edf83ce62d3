//! The last-known-good state on disk: the objects of a name server's zones, and the serials of the zones.
//!
//! The state contains the reduced objects ([`crate::compiler::inputs`]) and the published version of each zone, but not the
//! zones. So it is smaller, zones are built from it in the same way as from the API, a changed configuration applies to it, and
//! the first list of the API is comparable with it object by object.
//!
//! The file is a journal ([`signpost_dns::zone::journal`]) that one thread owns. A change costs the control loop a message. The
//! thread appends it, syncs once per second, and rewrites the file under another name when the appended part exceeds the initial
//! one. So a process that is killed at any moment restores its state of milliseconds before, and a machine that loses power that
//! of a second before; the API provides the rest.
//!
//! Linux reports a failed sync once, and may have dropped the data. The thread then does not append behind it and sync again: it
//! writes everything to a new file, and copies only parts that the checksums of the journal confirm.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::domain::{DomainMismatch, Domains};
use super::record::{self, JournalEntry, LiveEntries, Loaded};
use crate::put::Put as _;
use signpost_dns::zone::journal::{self, Entry, JournalError, Recovered};
use signpost_runtime::ending::ExitReport;

/// Name of the file in the state directory.
const FILE: &str = "last-good";
/// The most messages in the channel to the thread. While the file is rewritten, they wait here: some seconds of the fastest bulk
/// load.
const QUEUE_MAX: usize = 65_536;
/// The delay between a change and the sync of the file.
const SYNC_AFTER: Duration = Duration::from_secs(1);
/// The appended size below which the file is not rewritten.
const APPENDED_OCTETS_MIN: usize = 4 << 20;
/// The wait after a failure before the file is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The most bytes that wait for a failing disk. Beyond it, the state is abandoned until the next start.
const BACKLOG_OCTETS_MAX: usize = 256 << 20;

/// The file of the state, which a separate thread owns.
pub struct LastKnownGood {
    sender: Option<SyncSender<Vec<JournalEntry>>>,
    thread: Option<JoinHandle<()>>,
    ending: ExitReport,
    failing: Arc<AtomicBool>,
    /// The numbers of messages sent, and of those synced to disk.
    sent: AtomicU64,
    stored: Arc<AtomicU64>,
}

/// The state found at the start.
#[derive(Default)]
pub struct Opened {
    /// The state; `None` if there is no usable one.
    pub loaded: Option<Loaded>,
    /// The problem with the file; for the operator.
    pub problem: Option<String>,
    /// The new path of a file that could not be used.
    pub aside: Option<PathBuf>,
    /// The former domain, after a change of the domain: the state is that of its platform.
    pub former: Option<String>,
}

/// The reason why no state is available.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file or directory cannot be used.
    #[error("cannot use the state file {}: {source}; check the directory's owner, mode and free space", path.display())]
    Unusable {
        /// The file or directory.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The state is of a platform with another domain, and may still be needed.
    #[error("the state file {}: {other}", path.display())]
    DomainMismatch {
        /// The file.
        path: PathBuf,
        #[source]
        other: DomainMismatch,
    },
    /// The thread that writes it has ended.
    #[error("the last-known-good state is no longer written: {0}")]
    Ended(String),
}

impl LastKnownGood {
    /// Reads the state in `directory`, creating the directory if necessary, and opens the state for changes. A state of the
    /// former domain becomes one of the current domain. A damaged file is moved aside; a state of any other domain stays, and is an
    /// error.
    pub fn open(directory: &Path, domains: &Domains) -> Result<(LastKnownGood, Opened), StateError> {
        let path = directory.join(FILE);
        let fault = |source| StateError::Unusable { path: path.clone(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(fault)?;
        let mut opened = Opened::default();
        let mut recovered = None;
        match fs::read(&path) {
            Ok(octets) => match read(&octets) {
                // A state from before the first publication contains nothing.
                Ok((loaded, _)) if loaded.published.is_empty() => {}
                // A platform without Routers and Routes has no names to lose: any domain can take it over.
                Ok((loaded, _)) if loaded.domain != domains.domain && loaded.is_vacant() => {}
                Ok((mut loaded, found)) => {
                    let different = |other| StateError::DomainMismatch { path: path.clone(), other };
                    domains.agree(&loaded.domain).map_err(different)?;
                    if loaded.domain != domains.domain {
                        opened.former = Some(std::mem::replace(&mut loaded.domain, domains.domain.clone()));
                    }
                    if found.torn_octets > 0 {
                        let torn = found.torn_octets;
                        opened.problem = Some(format!("{}: the last {torn} octets were incomplete", path.display()));
                    }
                    (opened.loaded, recovered) = (Some(loaded), Some(found));
                }
                Err(error) => {
                    let aside = move_aside(&path, "damaged").map_err(fault)?;
                    let message = format!("{}: {error}; it was moved to {}", path.display(), aside.display());
                    (opened.problem, opened.aside) = (Some(message), Some(aside));
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fault(error)),
        }
        let writer = match recovered {
            Some(recovered) => Writer::reopen(&path, recovered),
            None => Writer::create(&path, &domains.domain),
        };
        let mut writer = writer.map_err(fault)?;
        if opened.former.is_some() {
            let mut entry = journal::Writer::append();
            let (key, value) = record::domain(&domains.domain);
            entry.put(Entry { key: &key, value: Some(&value) });
            writer.take(entry.finish());
        }
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let failing = Arc::new(AtomicBool::new(false));
        let stored = Arc::new(AtomicU64::new(0));
        let shared = (Arc::clone(&failing), Arc::clone(&stored));
        let ending = ExitReport::new();
        let work = move || run(writer, &receiver, &shared.0, &shared.1);
        let thread = Some(ending.spawn("last-good", work).map_err(fault)?);
        let sent = AtomicU64::new(0);
        Ok((LastKnownGood { sender: Some(sender), thread, ending, failing, sent, stored }, opened))
    }

    /// Waits until the thread ends by itself, and returns why.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.ending.reported()
    }

    /// Returns the flag that the file currently cannot be written: shared with the thread, which updates it.
    pub fn failing(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.failing)
    }

    /// Returns a mark of all messages so far, for [`LastKnownGood::is_stored`].
    pub fn mark(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns whether all messages before `mark` are on disk.
    pub fn is_stored(&self, mark: u64) -> bool {
        self.stored.load(Ordering::Relaxed) >= mark
    }

    /// Writes changes, in order. If the disk is so slow that the queue is full, it waits: no change is omitted.
    pub fn write(&self, changes: Vec<JournalEntry>) {
        let Some(sender) = self.sender.as_ref().filter(|_| !changes.is_empty()) else { return };
        self.sent.fetch_add(1, Ordering::Relaxed);
        if let Err(TrySendError::Full(changes)) = sender.try_send(changes) {
            tracing::warn!("the last-known-good state changes faster than the disk can write it; waiting for the disk");
            // Sending fails only if the thread has ended, which it has logged.
            let _ = sender.send(changes);
        }
    }
}

impl Drop for LastKnownGood {
    /// Waits until all is written and synced.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported by `ended`.
            drop(thread.join());
        }
    }
}

/// Creates an empty state in `directory` if there is none: the only step of [`LastKnownGood::open`] that needs free space.
pub fn prepare(directory: &Path, domain: &str) -> Result<(), StateError> {
    let path = directory.join(FILE);
    let create = || -> io::Result<()> {
        fs::create_dir_all(directory)?;
        if path.try_exists()? { Ok(()) } else { Writer::create(&path, domain).map(drop) }
    };
    create().map_err(|source| StateError::Unusable { path: path.clone(), source })
}

/// The reason why a state is not used.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("an entry is unreadable")]
    Entry,
}

fn read(octets: &[u8]) -> Result<(Loaded, Recovered), LoadError> {
    let mut live = LiveEntries::default();
    let recovered = journal::read(octets, record::VERSION, |entry| _ = live.put(entry.key, entry.value))?;
    Ok((record::load(live).ok_or(LoadError::Entry)?, recovered))
}

/// Returns the names of the Routers and RouteBindings whose names the state in `directory` serves, in order; `None` if there is no
/// state. The file is only read.
///
/// # Errors
///
/// The file cannot be read, or is not a state of this version.
pub fn served_objects(directory: &Path) -> io::Result<Option<[BTreeSet<Box<str>>; 2]>> {
    let octets = match fs::read(directory.join(FILE)) {
        Ok(octets) => octets,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let loaded = read(&octets).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?.0;
    let routers = loaded.routers.into_iter().map(|router| router.name).collect();
    Ok(Some([routers, loaded.bindings.into_iter().map(|binding| binding.key).collect()]))
}

/// Renames a file that is not used, for inspection. Only the newest one with this extension is kept.
fn move_aside(path: &Path, extension: &str) -> io::Result<PathBuf> {
    let aside = path.with_extension(extension);
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Runs until there is nothing more to come.
fn run(mut writer: Writer, receiver: &Receiver<Vec<JournalEntry>>, failing: &AtomicBool, stored: &AtomicU64) {
    let mut sync_at: Option<Instant> = None;
    let mut taken = 0;
    loop {
        let wait = sync_at.map(|at| at.saturating_duration_since(Instant::now()));
        let received = match wait {
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => receiver.recv_timeout(wait),
        };
        match received {
            Ok(changes) => {
                let mut frames = journal::Writer::append();
                let more = std::iter::once(changes).chain(receiver.try_iter().take(1024));
                for (key, value) in more.inspect(|_| taken += 1).flatten() {
                    if !frames.put(Entry { key: &key, value: value.as_deref() }) {
                        tracing::error!(
                            octets = value.map_or(0, |value| value.len()),
                            "an entry is too large for the last-known-good state"
                        );
                    }
                }
                writer.take(frames.finish());
                if writer.fails() {
                    failing.store(true, Ordering::Relaxed);
                }
                sync_at.get_or_insert_with(|| Instant::now() + SYNC_AFTER);
            }
            Err(RecvTimeoutError::Timeout) => {
                let again = writer.settle();
                let fails = again || writer.fails();
                failing.store(fails, Ordering::Relaxed);
                if !fails {
                    stored.store(taken, Ordering::Relaxed);
                }
                sync_at = again.then(|| Instant::now() + RETRY_AFTER);
            }
            Err(RecvTimeoutError::Disconnected) => {
                writer.settle();
                return;
            }
        }
    }
}

struct Writer {
    path: PathBuf,
    file: File,
    /// The length of the valid part of the file.
    good_octets: usize,
    snapshot_octets: usize,
    /// The messages that are not in the file yet.
    backlog: Vec<u8>,
    failing: bool,
    /// Whether a sync has failed since the file was created: then any part can be missing.
    distrusted: bool,
    given_up: bool,
    /// Syncs a file to disk; fails in a test.
    sync: fn(&File) -> io::Result<()>,
}

impl Writer {
    fn create(path: &Path, domain: &str) -> io::Result<Writer> {
        let mut first = journal::Writer::with_header(record::VERSION);
        let (key, value) = record::domain(domain);
        first.put(Entry { key: &key, value: Some(&value) });
        first.end_snapshot();
        let octets = first.finish();
        let file = replace(path, &octets, File::sync_all)?;
        sync_directory(path)?;
        Ok(Writer::of(path, file, octets.len(), octets.len()))
    }

    fn reopen(path: &Path, recovered: Recovered) -> io::Result<Writer> {
        let file = OpenOptions::new().append(true).open(path)?;
        file.set_len(recovered.good_octets as u64)?;
        Ok(Writer::of(path, file, recovered.good_octets, recovered.snapshot_octets))
    }

    fn of(path: &Path, file: File, good_octets: usize, snapshot_octets: usize) -> Writer {
        Writer {
            path: path.to_owned(),
            file,
            good_octets,
            snapshot_octets,
            backlog: Vec::new(),
            failing: false,
            distrusted: false,
            given_up: false,
            sync: File::sync_all,
        }
    }

    /// Appends frames, or stores them while the disk fails.
    fn take(&mut self, frames: Vec<u8>) {
        if self.given_up {
            return;
        }
        if self.backlog.is_empty() {
            self.backlog = frames;
        } else {
            self.backlog.extend_from_slice(&frames);
        }
        if !self.failing {
            self.write_backlog();
        } else if self.backlog.len() > BACKLOG_OCTETS_MAX {
            tracing::error!(path = %self.path.display(), "failed to write the last-known-good state; not writing it \
                                                          again until the next start");
            self.given_up = true;
            self.backlog = Vec::new();
        }
    }

    /// Returns whether some of its input is not in the file.
    fn fails(&self) -> bool {
        self.failing || self.given_up
    }

    fn write_backlog(&mut self) {
        // Frames behind an incomplete frame would never be read.
        if self.failing
            && let Err(error) = self.file.set_len(self.good_octets as u64)
        {
            tracing::error!(path = %self.path.display(), %error, "failed to truncate the last-known-good state to its \
                                                                  valid part; retrying");
            return;
        }
        match self.file.write_all(&self.backlog) {
            Ok(()) => {
                self.good_octets += self.backlog.len();
                self.backlog = Vec::new();
                self.failing = false;
            }
            Err(error) => {
                tracing::error!(path = %self.path.display(), %error, "failed to write the last-known-good state; retrying");
                self.failing = true;
            }
        }
    }

    /// Syncs the file to disk, and rewrites it if it has grown. Returns whether some work must be retried.
    fn settle(&mut self) -> bool {
        if self.failing {
            self.write_backlog();
        }
        if self.failing || self.given_up {
            return self.failing && !self.given_up;
        }
        let appended_octets = self.good_octets - self.snapshot_octets;
        let has_grown = appended_octets > self.snapshot_octets.max(APPENDED_OCTETS_MIN);
        if !self.distrusted {
            // The appended messages are safe, even if the copy fails.
            let synced = (self.sync)(&self.file);
            self.distrusted = synced.is_err();
            if let Err(error) = synced {
                tracing::error!(path = %self.path.display(), %error, "failed to sync the last-known-good state to \
                                                                      disk; rewriting it");
            }
        }
        let settled = if has_grown || self.distrusted { self.compact() } else { Ok(()) };
        if let Err(error) = &settled {
            tracing::error!(path = %self.path.display(), %error, "failed to rewrite the last-known-good state or to \
                                                                  sync it to disk; retrying");
        }
        settled.is_err()
    }

    /// Rewrites the file with its live contents.
    fn compact(&mut self) -> io::Result<()> {
        let octets = fs::read(&self.path)?;
        let mut live = LiveEntries::default();
        let found = journal::read(&octets, record::VERSION, |entry| _ = live.put(entry.key, entry.value));
        let found = found.map_err(io::Error::other)?;
        if found.good_octets != self.good_octets {
            return Err(io::Error::other("the length of the file differs from the length that was written"));
        }
        let mut anew = journal::Writer::with_header(record::VERSION);
        for (key, value) in live {
            anew.put(Entry { key, value: Some(value) });
        }
        anew.end_snapshot();
        let anew = anew.finish();
        self.file = replace(&self.path, &anew, self.sync)?;
        (self.good_octets, self.snapshot_octets) = (anew.len(), anew.len());
        // Without this, the old file may be found after a power loss.
        self.distrusted = true;
        sync_directory(&self.path)?;
        self.distrusted = false;
        Ok(())
    }
}

/// Replaces the file at `path` with a new one atomically: a reader finds one or the other, complete. The new file is open for
/// writes. The caller must still sync the directory.
fn replace(path: &Path, octets: &[u8], sync: fn(&File) -> io::Result<()>) -> io::Result<File> {
    let beside = path.with_extension("new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(octets)?;
    sync(&file)?;
    fs::rename(&beside, path)?;
    Ok(file)
}

/// Syncs the name of the file at `path` to disk.
fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{entries, sorted, state};
    use super::super::version_history::Published;
    use super::*;
    use crate::compiler::Digest;
    use crate::compiler::inputs::RouterInput;
    use proptest::prelude::*;
    use serde_json::json;
    use signpost_dns::wire::Name;
    use signpost_dns::zone::Serial;

    fn domains(domain: &str, former: Option<&str>) -> Domains {
        Domains { domain: domain.to_owned(), former: former.map(str::to_owned) }
    }

    fn shard1() -> RouterInput {
        let router = json!({"metadata": {"name": "shard1"}, "spec": {"addresses": [{"ip": "192.0.2.1"}]}});
        let router = serde_json::from_value(router).expect("a Router");
        RouterInput::read(&router, "v3.example", &mut Vec::new()).expect("it has a zone")
    }

    fn published(serial: u32) -> Published {
        Published { serial: Serial(serial), digest: Digest(1), config: Digest(2), provisional: false }
    }

    fn serial(opened: &Opened, apex: &Name) -> Option<u32> {
        opened.loaded.as_ref()?.published.get(apex).map(|published| published.serial.0)
    }

    proptest! {
        /// A file with a snapshot and appended entries. Any changed octet is an error, or makes no difference.
        #[test]
        fn a_damaged_file_is_not_used(
            state in state(), snapshot in 0_usize..20, at in any::<prop::sample::Index>(), change in 1..=u8::MAX,
        ) {
            let entries = entries(&state);
            let (snapshot, appended) = entries.split_at(snapshot.min(entries.len()));
            let put = |frames: &mut journal::Writer, (key, value): &(Vec<u8>, Vec<u8>)| {
                frames.put(Entry { key, value: Some(value) })
            };
            let mut file = journal::Writer::with_header(record::VERSION);
            prop_assert!(snapshot.iter().all(|entry| put(&mut file, entry)));
            file.end_snapshot();
            let mut file = file.finish();
            for entry in appended {
                let mut frames = journal::Writer::append();
                prop_assert!(put(&mut frames, entry));
                file.extend(frames.finish());
            }
            let (found, recovered) = read(&file).expect("it was written here");
            prop_assert_eq!(&sorted(found), &state);
            prop_assert_eq!((recovered.good_octets, recovered.torn_octets), (file.len(), 0));
            let at = at.index(file.len());
            file[at] ^= change;
            if let Ok((found, again)) = read(&file) {
                prop_assert_eq!((sorted(found), again), (state, recovered), "octet {}", at);
            }
        }
    }

    #[test]
    fn a_full_disk_is_reported_and_so_is_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut writer = Writer::create(&folder.path().join(FILE), "v3.example").expect("written");
        let good =
            std::mem::replace(&mut writer.file, OpenOptions::new().write(true).open("/dev/full").expect("a device"));
        let mut frames = journal::Writer::append();
        frames.put(Entry { key: b"key", value: None });
        writer.take(frames.finish());
        assert!(writer.fails());
        assert!(writer.settle(), "it is tried again");
        writer.file = good;
        assert!(!writer.settle());
        assert!(!writer.fails());
    }

    #[test]
    fn after_a_failed_sync_everything_is_written_to_a_new_file() {
        let fails: fn(&File) -> io::Result<()> = |_| Err(io::Error::from_raw_os_error(5));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).expect("it is there"));
        let apex: Name = "v3.example.".parse().expect("a name");
        let add = |writer: &mut Writer, serial: u32| {
            let (key, value) = record::zone(&apex, Some(&published(serial)), None);
            let mut frames = journal::Writer::append();
            frames.put(Entry { key: &key, value: value.as_deref() });
            writer.take(frames.finish());
        };
        let mut writer = Writer::create(&path, "v3.example").expect("written");
        let before = inode();
        add(&mut writer, 1);
        writer.sync = fails;
        assert!(writer.settle(), "it is tried again");
        // The second sync of the same file would succeed, although the data is lost.
        let second: fn(&File) -> io::Result<()> = |file| match file.metadata()?.len() {
            0 => Err(io::Error::other("nothing was written")),
            _ => file.sync_all(),
        };
        writer.sync = second;
        assert_eq!(inode(), before);
        assert!(!writer.settle());
        assert_ne!(inode(), before, "it is a new file");
        let after = inode();
        add(&mut writer, 2);
        assert!(!writer.settle());
        assert_eq!(inode(), after, "which is trusted");
        // Data that the kernel has dropped does not count as stored.
        writer.sync = fails;
        add(&mut writer, 3);
        assert!(writer.settle());
        writer.sync = second;
        let whole = fs::read(&path).expect("it is there");
        fs::write(&path, &whole[..whole.len() - 8]).expect("written");
        assert!(writer.settle(), "a part of it is gone");
        fs::write(&path, &whole).expect("written");
        assert!(!writer.settle());
        drop(writer);
        let (_, opened) = LastKnownGood::open(folder.path(), &domains("v3.example", None)).expect("usable");
        assert_eq!((serial(&opened, &apex), opened.problem), (Some(3), None));
    }

    #[test]
    fn what_was_written_is_there_and_the_file_stays_small() {
        let folder = tempfile::tempdir().expect("a folder");
        let (apex, gone): (Name, Name) =
            ("v3.example.".parse().expect("a name"), "gone.v3.example.".parse().expect("a name"));
        let (state, opened) = LastKnownGood::open(folder.path(), &domains("v3.example", None)).expect("usable");
        assert!(opened.loaded.is_none() && opened.problem.is_none());
        state.write(vec![record::router("shard1", Some(&shard1())), record::zone(&gone, Some(&published(1)), None)]);
        for batch in 0..220 {
            state.write(
                (0..1000).map(|number| record::zone(&apex, Some(&published(batch * 1000 + number)), None)).collect(),
            );
        }
        state.write(vec![record::zone(&gone, None, None)]);
        drop(state);
        let path = folder.path().join(FILE);
        // They exceed that by half. The file is rewritten at the end, and earlier on a slow machine: then the later messages
        // remain.
        let octets = fs::metadata(&path).expect("it is there").len();
        assert!(octets < APPENDED_OCTETS_MIN as u64 + 1000, "220,000 changes of one key took {octets} octets");

        let (state, opened) = LastKnownGood::open(folder.path(), &domains("v3.example", None)).expect("usable");
        assert_eq!((serial(&opened, &apex), serial(&opened, &gone)), (Some(219_999), None));
        state.write(vec![record::zone(&apex, Some(&published(220_000)), None)]);
        drop(state);

        // A flipped bit in the appended part is not a torn end: no older state may replace the served one.
        let whole = fs::read(&path).expect("it is there");
        let mut damaged = whole.clone();
        *damaged.last_mut().expect("not empty") ^= 1;
        fs::write(&path, damaged).expect("written");
        let (state, opened) = LastKnownGood::open(folder.path(), &domains("v3.example", None)).expect("usable");
        let aside = folder.path().join("last-good.damaged");
        assert!(opened.loaded.is_none() && opened.problem.expect("a problem").contains("damaged at octet"));
        assert!(opened.aside.as_ref() == Some(&aside) && aside.exists());
        drop(state);
        fs::write(&path, whole).expect("written");

        // Half a frame at the end, as after a crash, is cut off and reported, and later messages are readable.
        let mut torn = fs::read(&path).expect("it is there");
        torn.extend_from_slice(&[9; 11]);
        fs::write(&path, torn).expect("written");
        let (state, opened) = LastKnownGood::open(folder.path(), &domains("v3.example", None)).expect("usable");
        assert_eq!(serial(&opened, &apex), Some(220_000));
        assert!(opened.problem.is_some());
        state.write(vec![record::zone(&apex, Some(&published(220_001)), None)]);
        drop(state);
        let (state, opened) = LastKnownGood::open(folder.path(), &domains("v3.example", None)).expect("usable");
        assert_eq!((serial(&opened, &apex), opened.problem), (Some(220_001), None));
        drop(state);

        // The state of another platform is not ours.
        let Err(error) = LastKnownGood::open(folder.path(), &domains("other.example", None)) else {
            panic!("it is used")
        };
        assert!(error.to_string().contains("--domain") && error.to_string().contains("v3.example"), "{error}");
        assert!(path.exists());
        let (state, opened) =
            LastKnownGood::open(folder.path(), &domains("other.example", Some("v3.example"))).expect("usable");
        // A planned change of the domain is not reported as damage, and the state serves the former one.
        assert_eq!((serial(&opened, &apex), opened.former.as_deref()), (Some(220_001), Some("v3.example")));
        assert!(opened.problem.is_none() && opened.aside.is_none());
        drop(state);
        // It is one of the new domain from then on.
        let (_, opened) = LastKnownGood::open(folder.path(), &domains("other.example", None)).expect("usable");
        assert_eq!((serial(&opened, &apex), opened.former), (Some(220_001), None));
    }
}
