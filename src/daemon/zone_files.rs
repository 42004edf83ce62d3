//! The folder of zone files of a running name server: loaded at the start, read again on SIGHUP and when a file changes.
//!
//! What a file says is served through the register of apexes, which keeps files and the platform's objects apart. A file
//! with errors leaves what it last gave in service.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use notify::{RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::controller::apexes::{Apexes, Placed};
use crate::wire::Name;
use crate::zone::builder::BuildError;
use crate::zone::{Contents, Zone, ZoneDb};
use crate::zonefile::folder::{Change, Folder, Tally};
use crate::zonefile::{Finding, Severity};

/// Findings of one scan that go to the log; of the rest the number.
const FINDINGS_TOLD_MAX: usize = 50;
/// How long after a change the folder is looked at, so that a copy of many files is one scan.
const SETTLE: Duration = Duration::from_millis(200);

/// The folder and where its zones go.
pub struct ZoneFiles {
    folder: Folder,
    apexes: Arc<Apexes>,
    db: Arc<ZoneDb>,
    counts: Arc<Counts>,
}

/// What the last scan came to, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    /// Zones that files give.
    pub zones: AtomicU64,
    /// Files that are refused.
    pub refused: AtomicU64,
    /// Scans since the start.
    pub scans: AtomicU64,
}

/// What becomes of a file's zone, made on the folder's threads.
enum Made {
    Serve(Arc<Zone>),
    Base(Arc<Contents>),
    Alias,
    Impossible(BuildError),
}

/// The folder cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the folder of zone files {} (--zones): {source}", path.display())]
pub struct FolderError {
    /// The folder.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

impl ZoneFiles {
    /// A folder of which nothing is loaded yet.
    pub fn new(path: &Path, apexes: Arc<Apexes>, db: Arc<ZoneDb>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        ZoneFiles { folder: Folder::new(path, threads), apexes, db, counts: Arc::default() }
    }

    /// Numbers of the scans.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Reads what is new or changed. Blocks; on error nothing has changed.
    pub fn rescan(&mut self) -> Result<Tally, FolderError> {
        let mut served = Vec::new();
        let mut withdrawn: Vec<Name> = Vec::new();
        let mut base = None;
        let mut told = Told::default();
        let (apexes, make) = (self.apexes.clone(), self.apexes.clone());
        let scanned = self.folder.rescan(
            |contents| made(&make, contents),
            |change| match change {
                Change::Serve { path, apex, zone, findings, .. } => {
                    told.findings(&findings);
                    match zone {
                        Made::Serve(zone) => served.push((zone, path.to_path_buf())),
                        Made::Base(contents) => base = Some(Some(contents)),
                        Made::Alias => told.error(format!(
                            "{}: the zone {apex} is the platform's own zone of aliases; this file is not served",
                            path.display()
                        )),
                        Made::Impossible(error) => told.error(format!("{}: {error}", path.display())),
                    }
                }
                Change::Refuse { findings, .. } => told.findings(&findings),
                Change::Withdraw { apex, .. } => match apexes.place(&apex) {
                    Placed::Base => base = Some(None),
                    _ => withdrawn.push(apex),
                },
            },
        );
        let tally = match scanned {
            Ok(tally) => tally,
            Err(source) => return Err(FolderError { path: self.folder.path().to_owned(), source }),
        };
        if let Some(base) = base {
            self.apexes.set_base(base);
        }
        // First those that go: an apex may have moved from one file to another.
        if !withdrawn.is_empty() {
            withdrawn.retain(|apex| !served.iter().any(|(zone, _)| zone.apex() == apex));
            self.apexes.remove_files(&withdrawn, &self.db);
        }
        if !served.is_empty() {
            self.apexes.publish_files(served, &self.db);
        }
        told.finish();
        self.counts.zones.store(self.folder.zone_count() as u64, Ordering::Relaxed);
        self.counts.refused.store(tally.refused as u64, Ordering::Relaxed);
        self.counts.scans.fetch_add(1, Ordering::Relaxed);
        Ok(tally)
    }

    /// Reads the folder whenever `wanted` says so or a file in it changes, until `stop` fires.
    pub async fn follow(mut self, mut wanted: mpsc::Receiver<()>, stop: CancellationToken) {
        let (changed, mut changes) = mpsc::channel(1);
        let _watcher = watch(self.folder.path(), changed);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                // The sender lives as long as the process listens to signals.
                Some(()) = wanted.recv() => {}
                Some(()) = changes.recv() => {
                    tokio::time::sleep(SETTLE).await;
                    while changes.try_recv().is_ok() {}
                }
            }
            let scan = tokio::task::spawn_blocking(move || {
                let outcome = self.rescan();
                (self, outcome)
            });
            let outcome;
            (self, outcome) = scan.await.expect("reading zone files does not panic");
            match outcome {
                Ok(tally) if tally.served + tally.refused + tally.withdrawn == 0 => {}
                Ok(Tally { served, refused, withdrawn, unchanged }) => {
                    tracing::info!(served, refused, withdrawn, unchanged, "zone files were read");
                }
                Err(error) => tracing::error!("{error}; the zones stay as they are"),
            }
        }
    }
}

fn made(apexes: &Apexes, contents: Contents) -> Made {
    match apexes.place(contents.apex()) {
        Placed::Base => Made::Base(Arc::new(contents)),
        Placed::Refused => Made::Alias,
        Placed::Served => match Zone::build(&contents) {
            Ok(zone) => Made::Serve(Arc::new(zone)),
            Err(error) => Made::Impossible(error),
        },
    }
}

/// Sends to `changed` when something in the folder changes. Where the system cannot tell, SIGHUP still does.
fn watch(folder: &Path, changed: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let on_event = move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // One that waits already says the same.
            let _ = changed.try_send(());
        }
    };
    let watcher = notify::recommended_watcher(on_event).and_then(|mut watcher| {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    watcher
        .inspect_err(|error| tracing::warn!(%error, "changes of zone files will be read on SIGHUP alone"))
        .ok()
}

/// Tells findings to the log, up to a bound.
#[derive(Default)]
struct Told {
    count: usize,
}

impl Told {
    fn findings(&mut self, findings: &[Finding]) {
        for finding in findings {
            match finding.severity {
                Severity::Error => self.error(finding.to_string()),
                Severity::Warning if self.another() => tracing::warn!("{finding}"),
                Severity::Warning => {}
            }
        }
    }

    fn error(&mut self, text: String) {
        if self.another() {
            tracing::error!("{text}");
        }
    }

    fn another(&mut self) -> bool {
        self.count += 1;
        self.count <= FINDINGS_TOLD_MAX
    }

    fn finish(self) {
        if self.count > FINDINGS_TOLD_MAX {
            let more = self.count - FINDINGS_TOLD_MAX;
            tracing::warn!("{more} more findings in zone files; `signpost check zone FILE…` shows those of a file");
        }
    }
}
