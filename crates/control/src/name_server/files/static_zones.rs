//! Static zones: the zone files of the zones directory, served unchanged and reloaded when they change.
//!
//! [`StaticZones::load`] reads the directory, and [`run`] reads changed files again: on request (SIGHUP), when the kernel reports
//! a change in the directory, and every few seconds, because the kernel does not report changes of all files that a zone
//! includes. A file with an error keeps its last good version in service. If it never had one, and no other source provides its
//! zone, the zone answers SERVFAIL: the zone is known, its contents are not, and NXDOMAIN would be wrong. Each finding is logged
//! once as `file:line:column`.
//!
//! [`Publisher`] decides which source serves each apex. Together with the platform's zones, the file of the platform's domain is the
//! base of the parent zone instead of a zone ([`crate::name_server::reserved`]).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::zone_watch::{self, FolderChanges, Watch, Writes};
use crate::name_server::reserved::ALIASES_REFUSED;
use signpost_dns::sys::allocator::release_free_memory;
use signpost_dns::wire::{Name, NameSet};
use signpost_dns::zone::ZoneDb;
use signpost_dns::zone::publish::{self, Change, Origin, Publisher, Reservation, Swap, What};
use signpost_dns::zonefile::folder::{Extent, FileChange, Folder, IsWhole, Tally};
use signpost_dns::zonefile::{Severity, ZoneFinding};

/// The quiet time after a change of the directory before it is read: writes of an editor or an archiver come together, and a file
/// is complete only after the last one.
const QUIET: Duration = zone_watch::UNDER_WAY;
/// The quiet time after a zone file was removed: some programs delete a file before they write the next.
const QUIET_GONE: Duration = Duration::from_millis(100);
/// The longest wait for quiet, if files change continuously.
const QUIET_LONGEST: Duration = Duration::from_secs(1);
/// The interval of checks without a reported change: the kernel does not report files in other directories, behind links, or on
/// other machines.
const LOOK: Duration = Duration::from_secs(5);
/// The minimum wait until the next check, as a multiple of the duration of the check, so that checks of very many files use at
/// most one hundredth of a processor.
const LOOK_SHARE: u32 = 100;
/// The most zones that are published in one step while many are loaded: enough for cheap steps, and few enough that they are
/// served soon and need little duplicate memory.
const PUBLISH_CHUNK: usize = 4096;
/// The time from a change of zones until no worker reads the former ones, whose memory is then released.
const RELEASE_AFTER: Duration = Duration::from_secs(3);

/// The reason why the directory was not read; the served zones stay.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the zones directory {}: {source}; check its path and mode", path.display())]
pub struct FolderError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

pub struct StaticZones {
    folder: Folder,
    zones: Arc<Publisher>,
    /// The apexes of files with errors that never provided a zone.
    broken: NameSet,
}

/// Counts for metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Zones from files.
    pub zones: usize,
    /// Zone files that have errors and provide no zone.
    pub broken: usize,
    /// Zone files that are not used, and instead of which the previous version of the zone is served.
    pub outdated: usize,
    /// Readings because of a change or a request.
    pub reloads: u64,
}

impl Counts {
    fn see(&mut self, folder: &Folder) {
        (self.zones, self.broken, self.outdated) =
            (folder.zone_count(), folder.broken_count(), folder.outdated_count());
    }
}

impl StaticZones {
    /// Returns the zones of `folder`, none of them read yet.
    pub fn new(folder: &Path, zones: Arc<Publisher>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        StaticZones { folder: Folder::new(folder, threads), zones, broken: NameSet::default() }
    }

    /// Reads the changes since the last call, at first everything. It blocks, for long if the directory is large.
    pub fn load(&mut self) -> Result<Tally, FolderError> {
        self.load_whole(Extent::All, None)
    }

    /// Does the same as [`Self::load`] for a part of the directory, without incomplete files.
    fn load_whole(&mut self, extent: Extent<'_>, is_whole: Option<IsWhole<'_>>) -> Result<Tally, FolderError> {
        let StaticZones { folder, zones, broken } = self;
        let mut ready: Vec<Change> = Vec::new();
        let (mut refused, mut withdrawn) = (Vec::new(), Vec::new());
        let result = folder.rescan_whole(extent, is_whole, publish::build, |change| match change {
            FileChange::Serve { path, apex, zone, findings, .. } => {
                log(&findings);
                if zones.reservation(&apex) == Some(Reservation::Refused) {
                    tracing::error!(file = %path.display(), "{ALIASES_REFUSED}");
                }
                match zone {
                    Ok(zone) => ready.push(Change::whole(Origin::File(path), zone)),
                    Err(error) => tracing::error!(file = %path.display(), "{error}"),
                }
                if ready.len() >= PUBLISH_CHUNK {
                    publish(zones, ready.drain(..));
                }
            }
            FileChange::Refuse { path, apex, last_good, findings } => {
                log(&findings);
                match last_good {
                    Some(zone) => {
                        tracing::error!(file = %path.display(), %zone, "the zone file has errors; still serving the \
                                                                        previous version of the zone");
                    }
                    None => refused.push((path, apex)),
                }
            }
            FileChange::Withdraw { path, apex } => {
                tracing::info!(zone = %apex, "the zone no longer has a file");
                withdrawn.push(Change { apex, origin: Origin::File(path), what: What::Withdraw });
            }
        });
        publish(zones, ready.drain(..));
        let tally = result.map_err(|source| FolderError { path: folder.path().to_owned(), source })?;
        // Only now are the zones without a file known.
        let unserved: NameSet = folder.unserved().map(|(apex, _)| apex.clone()).collect();
        let mended = broken.iter().filter(|apex| !unserved.contains(*apex));
        withdrawn.extend(mended.map(|apex| Change::of(apex, Origin::BrokenFile, What::Withdraw)));
        let failing = unserved.iter().filter(|apex| !broken.contains(*apex));
        withdrawn.extend(failing.map(|apex| Change::unavailable(Origin::BrokenFile, apex)));
        publish(zones, withdrawn);
        *broken = unserved;
        refused.iter().for_each(|(path, apex)| log_refused(folder, zones, path, apex.as_ref()));
        if tally.is_change() {
            release_free_memory();
        }
        Ok(tally)
    }
}

/// Publishes changes of files in one step, with a warning for each serial that does not fit its change.
fn publish(zones: &Publisher, changes: impl IntoIterator<Item = Change>) {
    for swap in &zones.publish(changes).swaps {
        if let (Some(Origin::File(path)), Some(fault)) =
            (swap.after.as_ref().map(|after| &after.origin), serial_fault(swap))
        {
            tracing::warn!(file = %path.display(), zone = %swap.apex, "{fault}");
        }
    }
}

/// Logs the use of a file with errors that never provided a zone. `apex` is that of the zone for which it is probably intended.
fn log_refused(folder: &Folder, zones: &Publisher, file: &Path, apex: Option<&Name>) {
    let file = file.display();
    let owner = apex.and_then(|apex| zones.owner(apex));
    match (apex, owner.map(|owner| owner.origin)) {
        (Some(zone), _) if folder.file_of(zone).is_some() => {
            tracing::error!(%file, %zone, "the zone file is not used; still serving the zone from another file");
        }
        (Some(zone), Some(Origin::BrokenFile)) => {
            tracing::error!(%file, %zone, "the zone file has errors; the zone answers SERVFAIL");
        }
        (Some(zone), Some(_)) if zones.reservation(zone).is_none() => {
            tracing::error!(%file, %zone, "the zone file has errors; still serving the zone from the API's objects");
        }
        _ => tracing::error!(%file, "the zone file has errors and is not used"),
    }
}

/// The handle that makes [`run`] read the directory again.
#[derive(Debug, Clone)]
pub struct Reloader(mpsc::Sender<oneshot::Sender<Result<Tally, FolderError>>>);

impl Reloader {
    /// Reads the changes in the directory, and returns the results. `None` if the loop has ended.
    pub async fn reload(&self) -> Option<Result<Tally, FolderError>> {
        let (answer, answered) = oneshot::channel();
        self.0.send(answer).await.ok()?;
        answered.await.ok()
    }
}

/// Follows the directory until `stop`: loads changes by itself, and when the [`Reloader`] requests it. `zones` has been loaded
/// once.
pub fn run(
    zones: StaticZones,
    counts: Arc<Mutex<Counts>>,
    stop: CancellationToken,
) -> (Reloader, impl Future<Output = ()> + Send + 'static) {
    let (sender, requests) = mpsc::channel(8);
    (Reloader(sender), follow(zones, counts, requests, stop))
}

async fn follow(
    zones: StaticZones,
    counts: Arc<Mutex<Counts>>,
    mut requests: mpsc::Receiver<oneshot::Sender<Result<Tally, FolderError>>>,
    stop: CancellationToken,
) {
    let (changed, mut changes) = mpsc::channel(1);
    let mut watch = Watch::new(zones.folder.path(), changed);
    counts.lock().see(&zones.folder);
    let db = Arc::clone(zones.zones.db());
    let mut zones = Some(zones);
    let mut error_logged = None;
    // This check finds changes from before the watch was set up.
    let mut next_look = Instant::now() + LOOK;
    let mut release_at = Some(Instant::now() + RELEASE_AFTER);
    loop {
        // The files that the kernel reported, unless all files can have changed; and the requester that waits for the results.
        let (mut changed_names, mut request, mut is_look) = (None, None, false);
        tokio::select! {
            () = stop.cancelled() => return,
            Some(()) = changes.recv() => {
                let writes = watch.writes();
                settle(&mut changes, &writes).await;
                let FolderChanges { names, is_all, .. } = writes.changes();
                changed_names = Some(names).filter(|_| !is_all);
            }
            Some(answer) = requests.recv() => request = Some(answer),
            () = tokio::time::sleep_until(release_at.unwrap_or(next_look)), if release_at.is_some() => {
                release_at = None;
                release(Arc::clone(&db));
                continue;
            }
            // A change can be unreported.
            () = tokio::time::sleep_until(next_look) => is_look = true,
        }
        if watch.renew() {
            changed_names = None;
        }
        let begun = Instant::now();
        let mut reading = zones.take().expect("it comes back from every reading");
        let (writes, is_request) = (watch.writes(), request.is_some());
        let read = tokio::task::spawn_blocking(move || {
            // The requester guarantees that the files are complete.
            let loaded =
                if is_request { reading.load() } else { read_whole(&mut reading, changed_names.as_ref(), &writes) };
            (reading, loaded)
        });
        let Ok((read, loaded)) = read.await else {
            // The runtime is shutting down, or reading panicked, which is logged.
            return;
        };
        next_look = Instant::now()
            + match &loaded {
                Ok(loaded) if loaded.unfinished > 0 => LOOK,
                _ => LOOK.max(begun.elapsed() * LOOK_SHARE),
            };
        let error = loaded.as_ref().err().map(ToString::to_string);
        match &loaded {
            Ok(loaded) if loaded.is_change() => {
                let Tally { served, refused, withdrawn, zones, .. } = loaded;
                tracing::info!(served, refused, withdrawn, zones, "zone files loaded");
                release_at = Some(Instant::now() + RELEASE_AFTER);
            }
            // Checks continue, and log the same error once.
            Err(error) if is_request || error_logged != Some(error.to_string()) => tracing::error!("{error}"),
            _ => {}
        }
        error_logged = error;
        let is_reload = !is_look || loaded.as_ref().is_ok_and(Tally::is_change);
        let mut counted = counts.lock();
        counted.see(&read.folder);
        counted.reloads += u64::from(is_reload);
        drop(counted);
        zones = Some(read);
        if let Some(answer) = request {
            // The requester can have gone.
            let _ = answer.send(loaded);
        }
    }
}

/// Gives the memory of replaced zones back to the system. Nothing waits for it.
fn release(db: Arc<ZoneDb>) {
    drop(tokio::task::spawn_blocking(move || {
        db.reclaim();
        release_free_memory();
    }));
}

/// Reads the complete files: those in `changed_names`, or all.
fn read_whole(
    zones: &mut StaticZones,
    changed_names: Option<&BTreeSet<OsString>>,
    writes: &Writes,
) -> Result<Tally, FolderError> {
    writes.forget_old();
    let extent = changed_names.map_or(Extent::All, Extent::Names);
    zones.load_whole(extent, Some(&|path, before, now| writes.is_whole(path, before, now)))
}

/// Waits until the directory is quiet, up to a limit.
async fn settle(changes: &mut mpsc::Receiver<()>, writes: &Writes) {
    let longest = Instant::now() + QUIET_LONGEST;
    while Instant::now() < longest {
        let quiet = if writes.is_gone() { QUIET_GONE } else { QUIET };
        if tokio::time::timeout(quiet, changes.recv()).await.is_err() {
            return;
        }
    }
}

/// Returns the problem with the new serial of a file's zone: secondaries and caches of zones depend on it (RFC 1034 §4.3.5). The zone
/// is served in any case.
fn serial_fault(swap: &Swap) -> Option<String> {
    let (old, new) = (swap.old_serial()?, swap.new_serial()?);
    // Zones from the API's objects have their own serials.
    if swap.before.as_ref().is_some_and(|before| before.origin == Origin::Objects) {
        return None;
    }
    if old == new {
        let text = || {
            format!(
                "the zone changed, but its serial {new} did not: secondaries do not load the change; increase the serial"
            )
        };
        return (!swap.difference().is_empty()).then(text);
    }
    let text = || {
        format!("the zone's serial decreased from {old} to {new}: secondaries keep their version; increase the serial")
    };
    (!new.is_after(old)).then(text)
}

fn log(findings: &[ZoneFinding]) {
    for finding in findings {
        match finding.severity {
            Severity::Error | Severity::Fault => tracing::error!("{finding}"),
            Severity::Warning => tracing::warn!("{finding}"),
            Severity::Note => tracing::info!("{finding}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name_server::reserved;
    use signpost_dns::zone::Zone;

    #[test]
    fn serials_go_up_with_each_change() {
        let zone = |serial: u32, address: &str| {
            let text = format!("$TTL 60\n@ SOA ns admin {serial} 2 3 4 5\n@ NS ns\nns A {address}\na A 192.0.2.9\n");
            let (file, origin) = (Arc::from(Path::new("z.test.zone")), "z.test.".parse().ok());
            let read = signpost_dns::zonefile::read_zone(
                text.as_bytes(),
                &file,
                origin,
                &mut signpost_dns::zonefile::include::NoIncludes,
            );
            publish::build(read.contents.expect("nothing is wrong")).expect("a zone")
        };
        let serial_fault = |before: &Arc<Zone>, after: &Arc<Zone>| {
            let zones = Publisher::new(Arc::default());
            let origin = || Origin::File(Arc::from(Path::new("z.test.zone")));
            zones.publish([Change::whole(origin(), Arc::clone(before))]);
            let step = zones.publish([Change::whole(origin(), Arc::clone(after))]);
            serial_fault(step.swaps.first().expect("another zone"))
        };
        let (one, two) = ("192.0.2.1", "192.0.2.2");
        for (before, after, expected) in [
            (zone(7, one), zone(8, two), None),
            (zone(7, one), zone(7, one), None),
            (zone(u32::MAX, one), zone(3, two), None),
            (zone(7, one), zone(7, two), Some("its serial 7 did not")),
            (zone(7, one), zone(6, one), Some("decreased from 7 to 6")),
            (zone(7, one), zone(7 + (1 << 31), two), Some("decreased from 7 to 2147483655")),
        ] {
            let found = serial_fault(&before, &after);
            assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
            assert!(
                expected.is_none_or(|expected| found.is_some_and(|found| found.contains(expected))),
                "{expected:?}"
            );
        }
        let spelled = |name: &str| {
            let mut contents = zone(7, one).contents();
            let ttl = signpost_dns::zone::Ttl::new(60).expect("small");
            let (owner, target): (Name, Name) = ("b.z.test.".parse().expect("a name"), name.parse().expect("a name"));
            let added = contents.add(owner, signpost_dns::wire::RecordType::CNAME, ttl, target.as_wire().into());
            added.expect("in the zone");
            publish::build(contents).expect("a zone")
        };
        assert!(serial_fault(&spelled("a.test."), &spelled("A.test.")).is_some(), "answers differ");
        let apex = "z.test.".parse().expect("a name");
        let unread = Arc::new(Zone::unavailable(apex, signpost_dns::zone::image::Unavailable::NotLoaded));
        assert_eq!(serial_fault(&unread, &zone(7, one)), None);
    }

    /// The base of the parent zone is a file's zone as any other: a file with another apex does not remove it, and does not become it.
    #[test]
    fn another_apex_in_a_file_removes_neither_a_zone_nor_the_base() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |file: &str, apex: &str, address: u8| {
            let text = format!("$ORIGIN {apex}\n@ 60 SOA ns admin 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.{address}\n");
            let temporary = folder.path().join(".new");
            std::fs::write(&temporary, text).expect("written");
            std::fs::rename(temporary, folder.path().join(file)).expect("renamed");
        };
        let name = |text: &str| -> Name { text.parse().expect("a name") };
        let address = "192.0.2.53".parse().expect("an address");
        let settings = crate::compiler::Settings::new("v3.test.", Vec::new(), &[address]).expect("good settings");
        let publisher = Arc::new(Publisher::new(Arc::default()));
        reserved::reserve(&publisher, &settings, &[]);
        let platform_base = || publisher.base(settings.domain());
        let mut zones = StaticZones::new(folder.path(), Arc::clone(&publisher));
        write("base.zone", "v3.test.", 1);
        write("z.zone", "z.test.", 1);
        let loaded = zones.load().expect("read");
        assert_eq!((loaded.served, loaded.zones), (2, 2));
        let base = platform_base().expect("a base");

        for (address, base_apex, zone_apex) in
            [(2, "v4.test.", "v3.test."), (3, "z.test.", "v3.test."), (4, "routes.v3.test.", "y.test.")]
        {
            write("base.zone", base_apex, address);
            write("z.zone", zone_apex, address);
            let loaded = zones.load().expect("read");
            assert_eq!((loaded.refused, loaded.served, loaded.withdrawn, loaded.zones), (2, 0, 0, 2), "{base_apex}");
            assert_eq!(platform_base().as_ref(), Some(&base), "{base_apex}");
            let db = publisher.db();
            assert!(db.get(&name("z.test.")).is_some_and(|zone| zone.why_unavailable().is_none()), "{zone_apex}");
            let is_there = db.get(&name(base_apex)).is_some_and(|zone| zone.why_unavailable().is_none());
            assert_eq!(is_there, base_apex == "z.test.", "{base_apex}");
        }

        write("base.zone", "v3.test.", 5);
        assert_eq!(zones.load().expect("read").served, 1);
        assert_ne!(platform_base(), Some(base));
        std::fs::remove_file(folder.path().join("base.zone")).expect("removed");
        assert_eq!(zones.load().expect("read").withdrawn, 1);
        assert_eq!(platform_base(), None);
    }
}
