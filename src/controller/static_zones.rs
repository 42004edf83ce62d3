//! Static zones: the master files of the zones folder, served as they are and reloaded when they change.
//!
//! [`StaticZones::load`] reads the folder, and [`run`] reads again what changed: when asked to (SIGHUP), and when the system
//! tells of a change in the folder. A file with an error keeps its last good version in service, or, if it never had one,
//! makes its zone answer SERVFAIL: the zone is known, its contents are not, and "no such name" would be a lie. Each finding
//! is logged once as `file:line:column`.
//!
//! With the platform's zones beside them, the file of the platform's domain is the base of the parent zone instead of a
//! zone, and [`Apexes`] settles who serves what.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use notify::{RecursiveMode, Watcher};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::apexes::{Apexes, Placed};
use crate::wire::Name;
use crate::zone::image::Unavailable;
use crate::zone::{Contents, Zone, ZoneDb};
use crate::zonefile::folder::{Change, Folder, Tally};
use crate::zonefile::{Finding, Severity};

/// How long a change of the folder must be the last one before it is read: an editor's or an unpacker's writes come
/// together.
const QUIET: Duration = Duration::from_millis(100);
/// The longest wait for quiet, where files change all the time.
const QUIET_LONGEST: Duration = Duration::from_secs(2);
/// Zones that are published in one step at most, while many are loaded: enough to make a step cheap, few enough that they
/// answer soon and take little memory twice.
const PUBLISH_CHUNK: usize = 4096;

/// What became of the folder's files at one reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Zone files that are new or changed, and good.
    pub served: usize,
    /// Zone files with errors; their last good version stays.
    pub refused: usize,
    /// Zones whose file is gone.
    pub withdrawn: usize,
    /// Files as they were.
    pub unchanged: usize,
    /// Zones served, as of now.
    pub zones: usize,
}

impl Loaded {
    fn of(tally: Tally, zones: usize) -> Self {
        let Tally { served, refused, withdrawn, unchanged } = tally;
        Loaded { served, refused, withdrawn, unchanged, zones }
    }
}

/// Why the folder was not read; what was served stays.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the zones folder {}: {source}; check its path and mode", path.display())]
pub struct FolderError {
    /// The folder.
    pub path: PathBuf,
    /// What happened.
    #[source]
    pub source: io::Error,
}

/// The zones of a folder.
pub struct StaticZones {
    folder: Folder,
    db: Arc<ZoneDb>,
    apexes: Arc<Apexes>,
    /// Zones that never had a good version.
    broken: std::collections::HashMap<Arc<Path>, Name>,
}

/// Counts for metrics.
#[derive(Debug, Default)]
pub struct Status {
    zones: AtomicUsize,
    broken: AtomicUsize,
    reloads: AtomicUsize,
}

impl Status {
    /// How many zones files give.
    pub fn zones(&self) -> usize {
        self.zones.load(Ordering::Relaxed)
    }

    /// How many zone files have errors and never had a good version.
    pub fn broken(&self) -> usize {
        self.broken.load(Ordering::Relaxed)
    }

    /// How often the folder was read.
    pub fn reloads(&self) -> usize {
        self.reloads.load(Ordering::Relaxed)
    }
}

/// What a thread makes of a file's contents: a zone to serve, or the base of the parent zone as it is.
enum Made {
    Zone(Arc<Zone>),
    Base(Arc<Contents>),
    Aliases,
    /// It has no well-formed SOA, which the checks refuse before.
    Unbuildable(Name),
}

impl StaticZones {
    /// The zones of `folder`, none of them read yet.
    pub fn new(folder: &Path, db: Arc<ZoneDb>, apexes: Arc<Apexes>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        StaticZones { folder: Folder::new(folder, threads), db, apexes, broken: std::collections::HashMap::new() }
    }

    /// Reads what changed since the last time, at first everything. It blocks: on a large folder for as long as the disk
    /// takes.
    pub fn load(&mut self) -> Result<Loaded, FolderError> {
        let StaticZones { folder, db, apexes, broken } = self;
        let make = |contents: Contents| match apexes.place(contents.apex()) {
            Placed::Base => Made::Base(Arc::new(contents)),
            Placed::Refused => Made::Aliases,
            Placed::Served => match Zone::build(&contents) {
                Ok(zone) => Made::Zone(Arc::new(zone)),
                Err(_) => Made::Unbuildable(contents.apex().clone()),
            },
        };
        let mut ready: Vec<(Arc<Zone>, PathBuf)> = Vec::new();
        let result = folder.rescan(make, |change| match change {
            Change::Serve { path, zone, findings, .. } => {
                broken.remove(&path);
                log(&findings);
                match zone {
                    Made::Zone(zone) => ready.push((zone, path.to_path_buf())),
                    Made::Base(base) => apexes.set_base(Some(base)),
                    Made::Aliases => tracing::error!(
                        file = %path.display(),
                        "the zone of the aliases is made from the API's objects and cannot be a file; remove the file"
                    ),
                    Made::Unbuildable(apex) => tracing::error!(file = %path.display(), zone = %apex, "the zone has no SOA"),
                }
                if ready.len() >= PUBLISH_CHUNK {
                    apexes.publish_files(ready.drain(..), db);
                }
            }
            Change::Refuse { path, apex, last_good, findings } => {
                log(&findings);
                match (last_good, apex) {
                    (Some(zone), _) => tracing::error!(
                        file = %path.display(), %zone,
                        "the zone file has errors; the zone stays as it was"
                    ),
                    // Another file gives the zone: it is served.
                    (None, Some(zone)) if apexes.file_of(&zone).is_some_and(|file| *file != *path) => {
                        tracing::error!(file = %path.display(), %zone, "the zone is that of another file, which stays");
                    }
                    (None, Some(zone)) if apexes.place(&zone) == Placed::Served => {
                        tracing::error!(file = %path.display(), %zone, "the zone file has errors; the zone answers SERVFAIL");
                        let unavailable = Zone::unavailable(zone.clone(), Unavailable::NotLoaded);
                        ready.push((Arc::new(unavailable), path.to_path_buf()));
                        broken.insert(path, zone);
                    }
                    (None, _) => tracing::error!(file = %path.display(), "the zone file has errors and is not used"),
                }
            }
            Change::Withdraw { apex, .. } => {
                apexes.publish_files(ready.drain(..), db);
                match apexes.place(&apex) {
                    Placed::Served => apexes.remove_files([&apex], db),
                    Placed::Base => apexes.set_base(None),
                    Placed::Refused => {}
                }
                tracing::info!(zone = %apex, "the zone has no file any more");
            }
        });
        apexes.publish_files(ready.drain(..), db);
        let tally = result.map_err(|source| FolderError { path: folder.path().to_owned(), source })?;
        self.forget_vanished();
        Ok(Loaded::of(tally, self.folder.zone_count()))
    }

    /// A broken file that is gone gives its zone up: that is no change of a zone that was served.
    fn forget_vanished(&mut self) {
        let StaticZones { folder, apexes, db, broken } = self;
        broken.retain(|path, apex| {
            let holds = path.exists();
            if !holds && folder.file_of(apex).is_none() {
                apexes.remove_files([&*apex], db);
            }
            holds
        });
    }
}

/// Asks [`run`] to read the folder again.
#[derive(Debug, Clone)]
pub struct Reloader(mpsc::Sender<oneshot::Sender<Result<Loaded, FolderError>>>);

impl Reloader {
    /// Reads what changed in the folder, and says what became of it. `None` if the loop has ended.
    pub async fn reload(&self) -> Option<Result<Loaded, FolderError>> {
        let (answer, answered) = oneshot::channel();
        self.0.send(answer).await.ok()?;
        answered.await.ok()
    }
}

/// Keeps up with the folder until `stop`: loads what changes, on its own and when the [`Reloader`] asks. `zones` has been
/// loaded once.
pub fn run(
    zones: StaticZones,
    status: Arc<Status>,
    stop: CancellationToken,
) -> (Reloader, impl Future<Output = ()> + Send + 'static) {
    let (sender, requests) = mpsc::channel(8);
    (Reloader(sender), follow(zones, status, requests, stop))
}

async fn follow(
    zones: StaticZones,
    status: Arc<Status>,
    mut requests: mpsc::Receiver<oneshot::Sender<Result<Loaded, FolderError>>>,
    stop: CancellationToken,
) {
    let (changed, mut changes) = mpsc::channel(1);
    // It watches for as long as it lives.
    let _watcher = watch(zones.folder.path(), changed);
    status.zones.store(zones.folder.zone_count(), Ordering::Relaxed);
    status.broken.store(zones.broken.len(), Ordering::Relaxed);
    let mut zones = Some(zones);
    loop {
        let answer = tokio::select! {
            () = stop.cancelled() => return,
            Some(()) = changes.recv() => {
                settle(&mut changes).await;
                None
            }
            Some(answer) = requests.recv() => Some(answer),
        };
        let mut reading = zones.take().expect("it comes back from every reading");
        let read = tokio::task::spawn_blocking(move || {
            let loaded = reading.load();
            (reading, loaded)
        });
        let Ok((read, loaded)) = read.await else {
            // The runtime is shutting down, or reading panicked, which is told by then.
            return;
        };
        match &loaded {
            Ok(loaded) if loaded.served + loaded.refused + loaded.withdrawn > 0 => {
                let Loaded { served, refused, withdrawn, zones, .. } = loaded;
                tracing::info!(served, refused, withdrawn, zones, "the zones folder was read");
            }
            Ok(_) => {}
            Err(error) => tracing::error!("{error}"),
        }
        status.zones.store(read.folder.zone_count(), Ordering::Relaxed);
        status.broken.store(read.broken.len(), Ordering::Relaxed);
        status.reloads.fetch_add(1, Ordering::Relaxed);
        zones = Some(read);
        if let Some(answer) = answer {
            // Who asked may have gone.
            let _ = answer.send(loaded);
        }
    }
}

/// Waits until the folder is quiet, but not for ever.
async fn settle(changes: &mut mpsc::Receiver<()>) {
    let longest = tokio::time::Instant::now() + QUIET_LONGEST;
    while tokio::time::Instant::now() < longest {
        if tokio::time::timeout(QUIET, changes.recv()).await.is_err() {
            return;
        }
    }
}

/// Watches the folder. Where the system cannot, the reason is logged, and reading again is left to SIGHUP.
fn watch(folder: &Path, changed: mpsc::Sender<()>) -> Option<impl Watcher + use<>> {
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading the folder is an event, too, and would never end.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // One that is in the channel already stands for this one as well.
            let _ = changed.try_send(());
        }
    });
    let watching = watcher.and_then(|mut watcher| {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    match watching {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "changes of the zones folder are not noticed; send SIGHUP to reload");
            None
        }
    }
}

fn log(findings: &[Finding]) {
    for finding in findings {
        match finding.severity {
            Severity::Error => tracing::error!("{finding}"),
            Severity::Warning => tracing::warn!("{finding}"),
            Severity::Note => tracing::info!("{finding}"),
        }
    }
}
