//! The watch of the zones directory: its changes, and the files that are being written.
//!
//! A program that writes a file in place opens it, writes any number of times, and closes it; only then is the file complete. The
//! kernel reports each of these steps in the directory itself, so a file there is complete after a close, or after a rename to
//! its name. The kernel does not report files elsewhere, such as an included file in a subdirectory or the target of a link: such
//! a file is complete when it is a different file, or was last changed some seconds ago.
//!
//! Reported changes are collected by file name, so that only those files are checked. A changed link or directory, as when a
//! ConfigMap is updated, can affect any file: then all files are checked.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;

use signpost_dns::zonefile::file_stamp::FileStamp;
use signpost_dns::zonefile::folder::is_zone_file;

/// The age of the last write at which a file that was not closed counts as complete, for writers that write rarely and never
/// close. Longer than the pauses of a copy over a slow network.
const WRITTEN: Duration = Duration::from_secs(5);
/// The time after a write in which the kernel's event can be pending; file times have a resolution of up to 10 ms.
pub(super) const UNDER_WAY: Duration = Duration::from_millis(10);
/// The most names collected; beyond it, all files are checked.
const NAMES_MAX: usize = 4096;

/// A watch of one directory, for its lifetime.
pub(super) struct Watch {
    folder: PathBuf,
    changed: mpsc::Sender<()>,
    writes: Arc<Writes>,
    /// The device and inode of the watched directory: another directory can get its name.
    watched: Option<(u64, u64)>,
    watcher: Option<RecommendedWatcher>,
}

/// The files of the directory that are being written.
pub(super) struct Writes {
    folder: PathBuf,
    /// The folder as the system calls it.
    absolute: PathBuf,
    state: Mutex<WatchState>,
    /// Whether the kernel reports changes of the directory's files.
    is_watched: AtomicBool,
}

/// The reported changes, by the names of files in the directory.
#[derive(Default)]
struct WatchState {
    /// The last write of each open file.
    open: HashMap<OsString, Instant>,
    changes: FolderChanges,
}

/// The changes since the last read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FolderChanges {
    /// The files that changed.
    pub(super) names: BTreeSet<OsString>,
    /// Removed zone files that were not re-created.
    gone: BTreeSet<OsString>,
    /// Whether any file may have changed.
    pub(super) is_all: bool,
}

impl Watch {
    /// Watches `folder` and notifies `changed` when there is something to read.
    pub(super) fn new(folder: &Path, changed: mpsc::Sender<()>) -> Self {
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let writes =
            Writes { folder: folder.to_owned(), absolute, state: Mutex::default(), is_watched: AtomicBool::new(false) };
        let (folder, writes) = (folder.to_owned(), Arc::new(writes));
        let mut watch = Watch { folder, changed, writes, watched: None, watcher: None };
        watch.renew();
        watch
    }

    /// Returns the files that are being written.
    pub(super) fn writes(&self) -> Arc<Writes> {
        self.writes.clone()
    }

    /// Watches the current directory, if it differs from the watched one. If the kernel cannot, the reason is logged, and only
    /// periodic checks find changes. Returns whether it differs.
    pub(super) fn renew(&mut self) -> bool {
        let Ok(metadata) = std::fs::metadata(&self.folder) else { return false };
        let now = Some((metadata.dev(), metadata.ino()));
        if now == self.watched {
            return false;
        }
        let (changed, writes) = (self.changed.clone(), self.writes.clone());
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.is_ok_and(|event| writes.take(&event)) {
                // A notification that is already in the channel suffices.
                let _ = changed.try_send(());
            }
        });
        let watching = watcher.and_then(|mut watcher| {
            watcher.watch(&self.writes.absolute, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        self.watched = now;
        self.writes.is_watched.store(watching.is_ok(), Ordering::Relaxed);
        self.watcher = watching
            .map_err(|error| {
                let folder = self.folder.display();
                tracing::warn!(%folder, %error, "failed to watch the zones directory; checking it for changes every \
                                                 few seconds");
            })
            .ok();
        true
    }
}

impl Writes {
    fn state(&self) -> MutexGuard<'_, WatchState> {
        // The names and times are consistent after any panic.
        self.state.lock()
    }

    /// Takes an event of the kernel, and returns whether there may be something to read.
    fn take(&self, event: &Event) -> bool {
        let is_write = match event.kind {
            // Reading the directory is an event, too, and would cause an endless loop.
            EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write) => return false,
            EventKind::Modify(ModifyKind::Data(_)) => true,
            // A link has no writer.
            EventKind::Create(CreateKind::File) => event.paths.iter().all(|path| is_single_file(path)),
            _ => false,
        };
        let mut state = self.state();
        state.changes.is_all |= event.need_rescan() || event.paths.is_empty();
        for path in &event.paths {
            let name = path.file_name().filter(|_| path.parent() == Some(&self.absolute));
            match name {
                Some(name) if is_write => drop(state.open.insert(name.to_owned(), Instant::now())),
                Some(name) => {
                    state.open.remove(name);
                    state.changes.take(name.to_owned(), path);
                }
                // The folder itself.
                None => state.changes.is_all = true,
            }
        }
        !is_write
    }

    /// Returns the changes since the last call.
    pub(super) fn changes(&self) -> FolderChanges {
        std::mem::take(&mut self.state().changes)
    }

    /// Returns whether a zone file was removed: another one may be about to replace it.
    pub(super) fn is_gone(&self) -> bool {
        !self.state().changes.gone.is_empty()
    }

    /// Forgets files without recent writes.
    pub(super) fn forget_old(&self) {
        self.state().open.retain(|_, written| written.elapsed() < WRITTEN);
    }

    /// Returns whether a new file, or one that was `before` and is `now` different, is ready to be read.
    pub(super) fn is_whole(&self, path: &Path, before: Option<&FileStamp>, now: &FileStamp) -> bool {
        let is_link = || path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        if self.is_watched.load(Ordering::Relaxed) && path.parent() == Some(&self.folder) && !is_link() {
            let name = path.file_name().unwrap_or_default();
            let is_written = self.state().open.get(name).is_some_and(|written| written.elapsed() < WRITTEN);
            return !is_written && !is_younger(now, UNDER_WAY);
        }
        before.is_some_and(|before| before.inode != now.inode) || !is_younger(now, WRITTEN)
    }
}

impl FolderChanges {
    /// Handles the creation, change, or removal of the file `name` at `path`.
    fn take(&mut self, name: OsString, path: &Path) {
        let metadata = path.symlink_metadata().ok();
        if metadata.is_none() && is_zone_file(&name) {
            self.gone.insert(name.clone());
        } else {
            self.gone.remove(&name);
        }
        // Any zone file may be reached through it.
        self.is_all |= metadata.is_some_and(|metadata| !metadata.is_file()) && !is_zone_file(&name);
        self.names.insert(name);
        self.is_all |= self.names.len() > NAMES_MAX;
        if self.is_all {
            self.names.clear();
        }
    }
}

/// Returns whether it is a file with one name, and not a link.
fn is_single_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file() && metadata.nlink() == 1)
}

/// Returns whether the last change of a file is less than `age` ago. A time in the future is ignored.
fn is_younger(stamp: &FileStamp, age: Duration) -> bool {
    let modified = u64::try_from(stamp.modified).ok();
    let modified = modified.map(|nanoseconds| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds));
    modified.and_then(|modified| modified.elapsed().ok()).is_some_and(|elapsed| elapsed < age)
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{DataChange, RenameMode};

    fn stamp(path: &Path) -> FileStamp {
        FileStamp::of(&path.metadata().expect("it is there"))
    }

    /// Returns a file in the directory and one below, both last changed `age` ago.
    fn files(age: Duration) -> (tempfile::TempDir, Writes, [PathBuf; 2]) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("sub")).expect("a folder");
        let paths = ["a.zone", "sub/hosts"].map(|file| folder.path().join(file));
        for path in &paths {
            let file = std::fs::File::create(path).expect("a file");
            file.set_modified(SystemTime::now() - age).expect("its time is set");
        }
        let (path, is_watched) = (folder.path().to_owned(), AtomicBool::new(true));
        let writes = Writes { folder: path.clone(), absolute: path, state: Mutex::default(), is_watched };
        (folder, writes, paths)
    }

    const DATA: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    const CLOSED: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));

    #[test]
    fn a_file_is_whole_when_it_is_closed_or_comes_by_a_rename() {
        let (_folder, writes, [path, _]) = files(Duration::from_secs(1));
        let event = |kind| writes.take(&Event::new(kind).add_path(path.clone()));
        let is_whole = || writes.is_whole(&path, None, &stamp(&path));
        assert!(is_whole());
        for (kind, is_change, whole) in [
            (EventKind::Create(CreateKind::File), false, false),
            (DATA, false, false),
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), false, false),
            (CLOSED, true, true),
            (DATA, false, false),
            (EventKind::Modify(ModifyKind::Name(RenameMode::To)), true, true),
        ] {
            assert_eq!((event(kind), is_whole()), (is_change, whole), "{kind:?}");
        }
        event(DATA);
        let written = Instant::now().checked_sub(WRITTEN).expect("the machine is up for longer");
        writes.state().open.insert("a.zone".into(), written);
        assert!(is_whole(), "no process has written for long");
        writes.forget_old();
        assert!(writes.state().open.is_empty());
    }

    #[test]
    fn an_unwatched_file_is_whole_when_it_is_another_or_old() {
        let (folder, writes, [path, below]) = files(Duration::from_secs(1));
        let other = FileStamp { inode: (0, 0), ..stamp(&below) };
        assert!(!writes.is_whole(&below, None, &stamp(&below)));
        assert!(!writes.is_whole(&below, Some(&FileStamp { octets: 7, ..stamp(&below) }), &stamp(&below)));
        assert!(writes.is_whole(&below, Some(&other), &stamp(&below)));
        let link = folder.path().join("b.zone");
        std::os::unix::fs::symlink(&below, &link).expect("a link");
        assert!(!writes.is_whole(&link, None, &stamp(&link)), "writes to the target of the link are not notified");
        assert!(
            writes.take(&Event::new(EventKind::Create(CreateKind::File)).add_path(link)),
            "a link is whole at once"
        );
        writes.is_watched.store(false, Ordering::Relaxed);
        assert!(!writes.is_whole(&path, None, &stamp(&path)));
        let (_folder, writes, [_, below]) = files(WRITTEN);
        assert!(writes.is_whole(&below, None, &stamp(&below)));
    }

    #[test]
    fn what_changed_is_gathered_by_name() {
        let (folder, writes, [path, _]) = files(Duration::from_secs(1));
        let event = |kind, name: &str| writes.take(&Event::new(kind).add_path(folder.path().join(name)));
        let names = |names: &[&str]| names.iter().map(OsString::from).collect::<BTreeSet<_>>();
        const REMOVED: EventKind = EventKind::Remove(notify::event::RemoveKind::File);
        event(CLOSED, "a.zone");
        event(CLOSED, "hosts");
        assert!(!writes.is_gone());
        assert_eq!(writes.changes(), FolderChanges { names: names(&["a.zone", "hosts"]), ..FolderChanges::default() });
        assert_eq!(writes.changes(), FolderChanges::default());

        std::fs::remove_file(&path).expect("removed");
        event(REMOVED, "a.zone");
        assert!(writes.is_gone());
        std::fs::write(&path, "").expect("written");
        event(CLOSED, "a.zone");
        assert!(!writes.is_gone(), "it came again");
        event(REMOVED, "4913");
        assert!(!writes.is_gone() && !writes.changes().is_all, "no zone file");

        event(CLOSED, "sub");
        assert!(writes.changes().is_all, "a folder: links may lead through it");
        assert!(writes.take(&Event::new(CLOSED).add_path(folder.path().into())));
        assert!(writes.changes().is_all, "the folder itself");
        for n in 0..=NAMES_MAX {
            event(CLOSED, &format!("{n}.zone"));
        }
        assert_eq!(writes.changes().names, BTreeSet::new(), "too many to count");
    }
}
