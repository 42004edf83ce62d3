//! The watch of the zones folder: when something in it has changed, and which of its files are being written.
//!
//! A program that writes a file in place opens it, writes as often as it likes and closes it; only then is the file whole.
//! The system tells of each of these steps in the folder itself, so a file is whole there when it was closed, or when it
//! came by a rename. Of what lies elsewhere, such as an included file in a folder below or what a link leads to, it tells
//! nothing: such a file is whole when it is another file than before, or was last changed some seconds ago.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use crate::zonefile::folder::Stamp;

/// How long after a write a file that was not closed is taken for whole nevertheless: who writes seldom, and never closes,
/// is heard too. Longer than the pauses of a copy over a slow line.
const WRITTEN: Duration = Duration::from_secs(5);
/// How long after a write the system's word of it may be under way.
const UNDER_WAY: Duration = Duration::from_millis(100);

/// A watch of one folder, for as long as it lives.
pub(super) struct Watch {
    folder: PathBuf,
    changed: mpsc::Sender<()>,
    writes: Arc<Writes>,
    /// Device and inode of what is watched: another folder may come to have its name.
    watched: Option<(u64, u64)>,
    watcher: Option<RecommendedWatcher>,
}

/// Which files of the folder are being written.
pub(super) struct Writes {
    folder: PathBuf,
    /// When each file that is open was written last.
    open: Mutex<HashMap<PathBuf, Instant>>,
    /// Whether the system tells of the folder's files.
    is_told: AtomicBool,
}

impl Watch {
    /// Watches `folder` and says to `changed` that there is something to read.
    pub(super) fn new(folder: &Path, changed: mpsc::Sender<()>) -> Self {
        let writes = Writes { folder: folder.to_owned(), open: Mutex::default(), is_told: AtomicBool::new(false) };
        let (folder, writes) = (folder.to_owned(), Arc::new(writes));
        let mut watch = Watch { folder, changed, writes, watched: None, watcher: None };
        watch.renew();
        watch
    }

    /// What is being written.
    pub(super) fn writes(&self) -> Arc<Writes> {
        self.writes.clone()
    }

    /// Watches the folder of now, if that is another one than was watched. Where the system cannot, the reason is logged, and
    /// changes are only found by looking.
    pub(super) fn renew(&mut self) {
        let Ok(metadata) = std::fs::metadata(&self.folder) else { return };
        let now = Some((metadata.dev(), metadata.ino()));
        if now == self.watched {
            return;
        }
        let (changed, writes) = (self.changed.clone(), self.writes.clone());
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.is_ok_and(|event| writes.take(&event)) {
                // One that is in the channel already stands for this one as well.
                let _ = changed.try_send(());
            }
        });
        let watching = watcher.and_then(|mut watcher| {
            watcher.watch(&self.folder, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        self.watched = now;
        self.writes.is_told.store(watching.is_ok(), Ordering::Relaxed);
        self.watcher = watching
            .map_err(|error| {
                let folder = self.folder.display();
                tracing::warn!(%folder, %error, "changes of the zones folder are only noticed by looking every few seconds");
            })
            .ok();
    }
}

impl Writes {
    fn open(&self) -> MutexGuard<'_, HashMap<PathBuf, Instant>> {
        // A map of times is whole whatever happened.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up what the system tells, and returns whether there may be something to read.
    fn take(&self, event: &Event) -> bool {
        let mut open = self.open();
        match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
            // Reading the folder is an event, too, and would never end.
            EventKind::Access(_) => return false,
            EventKind::Modify(ModifyKind::Data(_)) => {
                open.extend(event.paths.iter().map(|path| (path.clone(), Instant::now())));
                return false;
            }
            // A link has no writer.
            EventKind::Create(CreateKind::File) if event.paths.iter().all(|path| is_single_file(path)) => {
                open.extend(event.paths.iter().map(|path| (path.clone(), Instant::now())));
                return false;
            }
            _ => {}
        }
        for path in &event.paths {
            open.remove(path);
        }
        true
    }

    /// Forgets files that nobody has written for long.
    pub(super) fn forget_old(&self) {
        self.open().retain(|_, written| written.elapsed() < WRITTEN);
    }

    /// Whether a file that is new, or was `before` and is `now` another, can be read.
    pub(super) fn is_whole(&self, path: &Path, before: Option<&Stamp>, now: &Stamp) -> bool {
        let is_link = || path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        if self.is_told.load(Ordering::Relaxed) && path.parent() == Some(&self.folder) && !is_link() {
            let is_written = self.open().get(path).is_some_and(|written| written.elapsed() < WRITTEN);
            return !is_written && !is_younger(now, UNDER_WAY);
        }
        before.is_some_and(|before| before.inode != now.inode) || !is_younger(now, WRITTEN)
    }
}

/// Whether it is a file with one name, and no link.
fn is_single_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file() && metadata.nlink() == 1)
}

/// Whether the last change of a file is not `age` ago. Times to come are no news: they stay.
fn is_younger(stamp: &Stamp, age: Duration) -> bool {
    let modified = u64::try_from(stamp.modified).ok();
    let modified = modified.map(|nanoseconds| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds));
    modified.and_then(|modified| modified.elapsed().ok()).is_some_and(|elapsed| elapsed < age)
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{DataChange, RenameMode};

    fn stamp(path: &Path) -> Stamp {
        Stamp::of(&path.metadata().expect("it is there"))
    }

    /// A file in the folder and one below, both last changed `age` ago.
    fn files(age: Duration) -> (tempfile::TempDir, Writes, [PathBuf; 2]) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("sub")).expect("a folder");
        let paths = ["a.zone", "sub/hosts"].map(|file| folder.path().join(file));
        for path in &paths {
            let file = std::fs::File::create(path).expect("a file");
            file.set_modified(SystemTime::now() - age).expect("its time is set");
        }
        let writes = Writes { folder: folder.path().into(), open: Mutex::default(), is_told: AtomicBool::new(true) };
        (folder, writes, paths)
    }

    const DATA: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    const CLOSED: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));

    #[test]
    fn a_file_is_whole_when_it_is_closed_or_comes_by_a_rename() {
        let (_folder, writes, [path, _]) = files(Duration::from_secs(1));
        let tell = |kind| writes.take(&Event::new(kind).add_path(path.clone()));
        let is_whole = || writes.is_whole(&path, None, &stamp(&path));
        assert!(is_whole());
        for (kind, tells, whole) in [
            (EventKind::Create(CreateKind::File), false, false),
            (DATA, false, false),
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), false, false),
            (CLOSED, true, true),
            (DATA, false, false),
            (EventKind::Modify(ModifyKind::Name(RenameMode::To)), true, true),
        ] {
            assert_eq!((tell(kind), is_whole()), (tells, whole), "{kind:?}");
        }
        tell(DATA);
        let written = Instant::now().checked_sub(WRITTEN).expect("the machine is up for longer");
        writes.open().insert(path.clone(), written);
        assert!(is_whole(), "nobody has written for long");
        writes.forget_old();
        assert!(writes.open().is_empty());
    }

    #[test]
    fn what_nobody_tells_of_is_whole_when_it_is_another_or_old() {
        let (folder, writes, [path, below]) = files(Duration::from_secs(1));
        let other = Stamp { inode: (0, 0), ..stamp(&below) };
        assert!(!writes.is_whole(&below, None, &stamp(&below)));
        assert!(!writes.is_whole(&below, Some(&Stamp { octets: 7, ..stamp(&below) }), &stamp(&below)));
        assert!(writes.is_whole(&below, Some(&other), &stamp(&below)));
        let link = folder.path().join("b.zone");
        std::os::unix::fs::symlink(&below, &link).expect("a link");
        assert!(!writes.is_whole(&link, None, &stamp(&link)), "writes of what it leads to are not told");
        assert!(
            writes.take(&Event::new(EventKind::Create(CreateKind::File)).add_path(link)),
            "a link is whole at once"
        );
        writes.is_told.store(false, Ordering::Relaxed);
        assert!(!writes.is_whole(&path, None, &stamp(&path)));
        let (_folder, writes, [_, below]) = files(WRITTEN);
        assert!(writes.is_whole(&below, None, &stamp(&below)));
    }
}
