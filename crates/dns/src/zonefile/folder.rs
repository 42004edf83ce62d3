//! The directory of static zones: every `*.zone` file in it is a zone, and each rescan finds the changes.
//!
//! A scan lists the directory, checks each file's [`FileStamp`] and those of its included files, and reads only new or changed
//! files, on a bounded number of threads. The caller's conversion of a zone (`make`) also runs on those threads, so that of
//! 100,000 zones only a few exist in their editable form at a time. Changes are passed on one at a time, in the order of the file
//! names, independent of the threads.
//!
//! Symbolic links are followed, and hidden names skipped: Kubernetes mounts a ConfigMap in this form (`a.zone → ..data/a.zone`,
//! `..data → ..2024…`), and an update swaps the middle link. A file that cannot be read or has errors is rejected, and its last
//! good zone remains served. If two files have one apex, the earlier one keeps it, and the other is rejected. A zone that
//! rejected files refer to and no file provides is [`Folder::unserved`], regardless of the order in which its files were added,
//! changed, and removed.
//!
//! A file provides one zone until it is removed. If its SOA changes to another owner, the file is rejected, because that is more
//! often a mistake in `$ORIGIN` or the owner than a rename, and accepting a mistake would withdraw a live zone. Knot DNS, NSD,
//! and BIND, in which the zone's name is in the configuration, reject such a file, too.
//!
//! A file that is being written is not read: half a zone would deny the other half. The directory does not show this, so
//! [`Folder::rescan_whole`] calls a function for each changed file.
//!
//! A caller that has the names of the changed files can scan only those ([`Extent::Names`]): among 100,000 files, one change
//! costs as much as among ten.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::file_path::FilePath;
use super::file_stamp::FileStamp;
use super::finding::{Position, Severity, ZoneFinding};
use super::include::{FolderIncludes, read_file};
use super::read::{CheckLevel, read_zone_with};
use crate::wire::Name;
use crate::zone::Contents;
use crate::zone::parallel::in_order;

/// The files of a zone, with their stamps at the time of the read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// The zone file; `None` if its metadata could not be read.
    pub own: Option<FileStamp>,
    /// The included files, also those whose metadata could not be read: their appearance is a change.
    pub includes: Box<[(PathBuf, Option<FileStamp>)]>,
    /// A hash of the octets of the zone file without includes; not a cryptographic one.
    pub content: u64,
}

/// A difference that a scan found.
#[derive(Debug)]
pub enum FileChange<T> {
    /// A zone is new, or its file changed.
    Serve {
        /// The file.
        path: Arc<Path>,
        /// The zone's apex.
        apex: Name,
        /// The result of `make`.
        zone: T,
        /// The files from which it was read.
        sources: Sources,
        /// Warnings.
        findings: Vec<ZoneFinding>,
    },
    /// A file cannot be served in its present state.
    Refuse {
        /// The file.
        path: Arc<Path>,
        /// The zone for which it is probably intended: the owner of its SOA, otherwise its name.
        apex: Option<Name>,
        /// The zone that this file provided before, and that remains served. Without one, the state of the intended zone is known
        /// at the end of the scan: another file may provide it, see [`Folder::file_of`].
        last_good: Option<Name>,
        /// The findings, with at least one error.
        findings: Vec<ZoneFinding>,
    },
    /// No file provides this zone any more.
    Withdraw {
        /// The file that provided it.
        path: Arc<Path>,
        /// The zone's apex.
        apex: Name,
    },
}

/// The numbers of files of a scan, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Served in a new version.
    pub served: usize,
    /// Refused.
    pub refused: usize,
    /// Zones withdrawn.
    pub withdrawn: usize,
    /// Unchanged since the previous scan.
    pub unchanged: usize,
    /// Files in use by a writer, and therefore unchanged.
    pub unfinished: usize,
    /// The zones that the directory provides after the scan.
    pub zones: usize,
}

impl Tally {
    /// Returns whether the scan found a new or changed file, or a zone without a file.
    pub fn is_change(&self) -> bool {
        self.served + self.refused + self.withdrawn > 0
    }
}

/// The scope of a scan.
#[derive(Debug, Clone, Copy)]
pub enum Extent<'a> {
    /// The whole directory.
    All,
    /// Files of the directory with these names, the zones that include such a file, and files whose zone another file provides.
    Names(&'a BTreeSet<OsString>),
}

/// A function that returns whether a new or changed file is complete, by its path, its former stamp, and its new one.
pub type IsWhole<'a> = &'a (dyn Fn(&Path, Option<&FileStamp>, &FileStamp) -> bool + Sync);

/// A directory of zone files, and the state of the last scan.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    threads: usize,
    files: BTreeMap<FilePath, KnownFile>,
    /// The files that are more than one valid zone: they include others, or do not provide the zone that they refer to.
    special: BTreeSet<FilePath>,
    /// The file of each zone.
    holders: HashMap<Name, FilePath, foldhash::fast::RandomState>,
    /// Zones whose file was removed, and that are still served: the SOA of each is in a file that provides another zone, and is
    /// therefore rejected, for example after `mv b.zone a.zone`. Each is in `holders`, too.
    retained: Vec<(Name, FilePath)>,
}

#[derive(Debug)]
struct KnownFile {
    sources: Sources,
    /// Read again at the next scan, regardless of the stamps.
    suspect: bool,
    state: State,
    /// The zone that it provides: its own or its last good one. It stays the same until the file is removed.
    gives: Option<Name>,
    /// The zone that it is probably for and does not provide, because it has errors or provides another zone.
    fails: Option<Name>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Served,
    Refused,
    /// The file is valid, but another file provides its zone.
    Contended,
}

/// A file that was written less than this time before its read may be written again without a change of its time stamp, which
/// has the resolution of the kernel's tick (up to 10 ms). Such a file is read again at the next scan.
const TICK: Duration = Duration::from_millis(20);

impl Folder {
    /// Returns a directory without a state; the first scan loads it. `threads` is at least 1.
    pub fn new(path: impl Into<PathBuf>, threads: usize) -> Self {
        Folder {
            path: path.into(),
            threads: threads.max(1),
            files: BTreeMap::new(),
            special: BTreeSet::new(),
            holders: HashMap::default(),
            retained: Vec::new(),
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of zones from its files.
    pub fn zone_count(&self) -> usize {
        self.holders.len()
    }

    /// Returns the file of the zone `apex`; it may have been removed, see [`Self::rescan_whole`].
    pub fn file_of(&self, apex: &Name) -> Option<&Path> {
        self.holders.get(apex).map(|path| path.as_ref())
    }

    /// Returns the zones that files with errors are probably for and that no file provides, each with such a file.
    pub fn unserved(&self) -> impl Iterator<Item = (&Name, &Arc<Path>)> {
        let never_valid = self.special().filter(|(_, known)| known.gives.is_none());
        let fails = never_valid.filter_map(|(path, known)| known.fails.as_ref().map(|apex| (apex, &path.0)));
        fails.filter(|(apex, _)| !self.holders.contains_key(*apex))
    }

    /// Returns the number of files that have errors and provide no zone.
    pub fn broken_count(&self) -> usize {
        self.special().filter(|(_, known)| known.state == State::Refused && known.gives.is_none()).count()
    }

    /// Returns the number of files that are not used, and instead of which the previous version of the zone is served.
    pub fn outdated_count(&self) -> usize {
        self.special().filter(|(_, known)| known.state != State::Served && known.gives.is_some()).count()
    }

    fn special(&self) -> impl Iterator<Item = (&FilePath, &KnownFile)> {
        self.special.iter().filter_map(|path| Some((path, self.files.get(path)?)))
    }

    /// Stores the new state of a file.
    fn know(&mut self, path: &FilePath, known: KnownFile) {
        if known.state == State::Served && known.sources.includes.is_empty() {
            self.special.remove(path);
        } else {
            self.special.insert(path.clone());
        }
        self.files.insert(path.clone(), known);
    }

    /// Finds the changes since the last scan and passes each to `change`, in the order of the file names. If the directory
    /// cannot be listed, nothing changes.
    pub fn rescan<T: Send>(
        &mut self,
        make: impl Fn(Contents) -> T + Sync,
        change: impl FnMut(FileChange<T>),
    ) -> io::Result<Tally> {
        self.rescan_whole(Extent::All, None, make, change)
    }

    /// [`Self::rescan`] of a part of the directory; incomplete files stay in their previous state until the next scan. Without
    /// `is_whole`, all files are complete. The zone of a removed file is withdrawn, unless another file has its SOA and is rejected
    /// only because that file provides another zone.
    pub fn rescan_whole<T: Send>(
        &mut self,
        extent: Extent<'_>,
        is_whole: Option<IsWhole<'_>>,
        make: impl Fn(Contents) -> T + Sync,
        mut change: impl FnMut(FileChange<T>),
    ) -> io::Result<Tally> {
        let (listed, mut released) = match extent {
            Extent::All => {
                let listed = self.list()?;
                let released = self.forget_vanished(&listed);
                (listed, released)
            }
            Extent::Names(names) => self.list_names(names),
        };
        for (apex, path) in std::mem::take(&mut self.retained) {
            self.holders.remove(&apex);
            released.push((apex, path));
        }
        let mut tally = Tally::default();
        let (files, folder, threads) = (&self.files, self.path.clone(), self.threads);
        let mut stale = Vec::new();
        in_order(
            threads,
            &listed,
            |path| match files.get(path) {
                Some(known) if !known.is_stale(path) => HeadScan::Same,
                // It is checked again when it is read; this avoids the read.
                Some(known) if !own_is_whole(path, Some(known), is_whole) => HeadScan::Unfinished,
                _ => HeadScan::Stale,
            },
            |path, look| match look {
                HeadScan::Same => tally.unchanged += 1,
                HeadScan::Unfinished => tally.unfinished += 1,
                HeadScan::Stale => stale.push(path.clone()),
            },
        );
        in_order(
            threads,
            &stale,
            |path| load(&folder, path, &make),
            |path, loaded| {
                let known = self.files.get(path);
                if own_is_whole(path, known, is_whole) && includes_are_whole(&loaded.sources, known, is_whole) {
                    self.apply(path, loaded, &mut tally, &mut change);
                } else {
                    tally.unfinished += 1;
                }
            },
        );
        self.withdraw(released, &mut tally, &mut change);
        tally.zones = self.zone_count();
        Ok(tally)
    }

    /// Returns the zone files of the directory, sorted.
    fn list(&self) -> io::Result<Vec<FilePath>> {
        let mut listed = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if is_zone_file(&entry.file_name()) && entry.file_type().is_ok_and(|kind| !kind.is_dir()) {
                listed.push(FilePath(entry.path().into()));
            }
        }
        listed.sort_unstable();
        Ok(listed)
    }

    /// The zone files that a change of the files `names` may concern, sorted. Removes those that no longer exist, and returns
    /// their zones.
    fn list_names(&mut self, names: &BTreeSet<OsString>) -> (Vec<FilePath>, Vec<(Name, FilePath)>) {
        let includes_one = |known: &KnownFile| {
            known.sources.includes.iter().any(|(path, _)| path.file_name().is_some_and(|name| names.contains(name)))
        };
        let concerned = self.special().filter(|(_, known)| known.state == State::Contended || includes_one(known));
        let mut listed: BTreeSet<FilePath> = concerned.map(|(path, _)| path.clone()).collect();
        listed.extend(names.iter().filter(|name| is_zone_file(name)).map(|name| FilePath(self.path.join(name).into())));
        let is_file = |path: &FilePath| path.symlink_metadata().is_ok_and(|metadata| !metadata.is_dir());
        let (listed, gone): (Vec<_>, Vec<_>) = listed.into_iter().partition(is_file);
        let released = gone.iter().filter_map(|path| self.forget(path)).collect();
        (listed, released)
    }

    /// Removes the files that no longer exist, and returns their zones.
    fn forget_vanished(&mut self, listed: &[FilePath]) -> Vec<(Name, FilePath)> {
        let mut listed = listed.iter().peekable();
        // Both are sorted alike: one walk along both.
        let is_gone = |path: &&FilePath| {
            while listed.next_if(|next| next < path).is_some() {}
            listed.peek() != Some(path)
        };
        let gone: Vec<FilePath> = self.files.keys().filter(is_gone).cloned().collect();
        gone.iter().filter_map(|path| self.forget(path)).collect()
    }

    /// Forgets a file; returns the zone that it provides.
    fn forget(&mut self, path: &FilePath) -> Option<(Name, FilePath)> {
        self.special.remove(path);
        let apex = self.files.remove(path)?.gives?;
        self.holders.remove(&apex);
        Some((apex, path.clone()))
    }

    /// Applies the result of a thread for a file.
    fn apply<T>(
        &mut self,
        path: &FilePath,
        mut loaded: Loaded<T>,
        tally: &mut Tally,
        change: &mut impl FnMut(FileChange<T>),
    ) {
        let before = self.files.get(path);
        let same =
            before.is_some_and(|known| known.state != State::Contended && known.sources.same_content(&loaded.sources));
        if same && let Some(known) = self.files.get_mut(path) {
            (known.sources, known.suspect) = (loaded.sources, loaded.suspect);
            tally.unchanged += 1;
            return;
        }
        let gives = self.files.get(path).and_then(|known| known.gives.as_ref());
        if let Some(finding) = gives.and_then(|gives| apex_changed(gives, &loaded)) {
            loaded.findings.insert(0, finding);
            loaded.good = None;
        }
        let Some((apex, _)) = &loaded.good else { return self.refuse(path, loaded, State::Refused, tally, change) };
        let Some(holder) = self.holders.get(apex).filter(|holder| *holder != path) else {
            return self.serve(path, loaded, tally, change);
        };
        let message = format!(
            "the zone {apex} is in {} and in {}: serving the first; remove one of them",
            holder.display(),
            path.display()
        );
        loaded.findings.insert(0, file_finding(path, Position::START, "apex-taken", message));
        self.refuse(path, loaded, State::Contended, tally, change);
    }

    /// Withdraws the released zones that no other file provides, except those to which a file refers that was valid before: its
    /// SOA has changed to theirs, so that the contents of the removed file may be in that file.
    fn withdraw<T>(
        &mut self,
        released: Vec<(Name, FilePath)>,
        tally: &mut Tally,
        change: &mut impl FnMut(FileChange<T>),
    ) {
        if released.is_empty() {
            return;
        }
        let refers =
            self.special().filter(|(_, known)| known.gives.is_some()).filter_map(|(_, known)| known.fails.clone());
        let refers: HashSet<Name, foldhash::fast::RandomState> = refers.collect();
        for (apex, path) in released {
            if self.holders.contains_key(&apex) {
                continue;
            }
            if refers.contains(&apex) {
                self.holders.insert(apex.clone(), path.clone());
                self.retained.push((apex, path));
            } else {
                tally.withdrawn += 1;
                change(FileChange::Withdraw { path: path.0, apex });
            }
        }
    }

    fn serve<T>(
        &mut self,
        path: &FilePath,
        loaded: Loaded<T>,
        tally: &mut Tally,
        change: &mut impl FnMut(FileChange<T>),
    ) {
        let Some((apex, zone)) = loaded.good else { return };
        let known = KnownFile {
            sources: loaded.sources.clone(),
            suspect: loaded.suspect,
            state: State::Served,
            gives: Some(apex.clone()),
            fails: None,
        };
        self.know(path, known);
        self.holders.insert(apex.clone(), path.clone());
        tally.served += 1;
        change(FileChange::Serve {
            path: path.0.clone(),
            apex,
            zone,
            sources: loaded.sources,
            findings: loaded.findings,
        });
    }

    fn refuse<T>(
        &mut self,
        path: &FilePath,
        loaded: Loaded<T>,
        state: State,
        tally: &mut Tally,
        change: &mut impl FnMut(FileChange<T>),
    ) {
        let before = self.files.get(path);
        let last_good = before.and_then(|known| known.gives.clone());
        // A contended file is checked in every scan, but reported once.
        let reported = before.is_some_and(|known| known.state == state && known.sources.same_content(&loaded.sources));
        let fails = loaded.apex.clone().filter(|apex| match &last_good {
            // Another file already provides the zone; when that file is removed, this one is read again.
            None => state == State::Refused,
            // Its SOA refers to another zone; its name does not.
            Some(gives) => loaded.soa.is_some() && gives != apex,
        });
        let known =
            KnownFile { sources: loaded.sources, suspect: loaded.suspect, state, gives: last_good.clone(), fails };
        self.know(path, known);
        if reported {
            tally.unchanged += 1;
            return;
        }
        tally.refused += 1;
        change(FileChange::Refuse { path: path.0.clone(), apex: loaded.apex, last_good, findings: loaded.findings });
    }
}

/// Returns whether a file with this name is a zone of the directory.
pub fn is_zone_file(name: &OsStr) -> bool {
    let octets = name.as_encoded_bytes();
    octets.ends_with(b".zone") && !octets.starts_with(b".")
}

/// The result of a first check of a file.
enum HeadScan {
    Same,
    Stale,
    Unfinished,
}

/// Returns whether a zone file is unchanged, or complete.
fn own_is_whole(path: &Path, known: Option<&KnownFile>, is_whole: Option<IsWhole<'_>>) -> bool {
    let Some(is_whole) = is_whole else { return true };
    let before = known.and_then(|known| known.sources.own.as_ref());
    FileStamp::of_path(path).is_none_or(|now| before == Some(&now) || is_whole(path, before, &now))
}

/// Returns whether the included files are unchanged, or complete.
fn includes_are_whole(sources: &Sources, known: Option<&KnownFile>, is_whole: Option<IsWhole<'_>>) -> bool {
    let Some(is_whole) = is_whole else { return true };
    sources.includes.iter().all(|(path, now)| {
        let Some(now) = now else { return true };
        let before = known.and_then(|known| {
            let at = known.sources.includes.binary_search_by(|(known, _)| known.cmp(path)).ok()?;
            known.sources.includes[at].1.as_ref()
        });
        before == Some(now) || is_whole(path, before, now)
    })
}

impl KnownFile {
    /// Returns whether the file, or an included one, may have changed since it was read.
    fn is_stale(&self, path: &Path) -> bool {
        self.suspect
            || self.state == State::Contended
            || self.sources.own != FileStamp::of_path(path)
            || self.sources.includes.iter().any(|(path, stamp)| *stamp != FileStamp::of_path(path))
    }
}

impl Sources {
    /// Returns whether the zone's text is the same, although its file may have been rewritten. The stamps of included files must
    /// be equal.
    fn same_content(&self, other: &Sources) -> bool {
        self.own.is_some() == other.own.is_some() && self.content == other.content && self.includes == other.includes
    }
}

/// Returns the initial origin of a zone file: its name without the part after the last dot. `None` if that is not a domain name,
/// or if it contains octets above 127: as in the file, those are probably a mistake.
pub fn origin_by_name(file: &Path) -> Option<Name> {
    let stem = file.file_stem()?.as_encoded_bytes();
    Name::parse(stem, &Name::root()).ok().filter(|_| stem.is_ascii())
}

/// The result of a thread for one file.
struct Loaded<T> {
    sources: Sources,
    suspect: bool,
    good: Option<(Name, T)>,
    /// The owner of the SOA, otherwise the file's name.
    apex: Option<Name>,
    /// The file and the position of the SOA.
    soa: Option<(Arc<Path>, Position)>,
    findings: Vec<ZoneFinding>,
}

fn load<T>(folder: &Path, path: &Arc<Path>, make: &impl Fn(Contents) -> T) -> Loaded<T> {
    let origin = origin_by_name(path);
    let mut text = Vec::new();
    let metadata = match read_file(path, &mut text) {
        Ok(metadata) => metadata,
        Err(error) => {
            let message = format!("failed to read the file: {error}");
            let sources = Sources { own: None, includes: Box::new([]), content: 0 };
            let findings = vec![file_finding(path, Position::START, "unreadable", message)];
            return Loaded { sources, suspect: true, good: None, apex: origin, soa: None, findings };
        }
    };
    let mut includes = FolderIncludes::new(folder);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs());
    let read = read_zone_with(&text, path, origin.clone(), &mut includes, &CheckLevel::of_server(now));
    let mut included: Vec<_> =
        includes.into_opened().into_iter().map(|path| (FileStamp::of_path(&path), path)).collect();
    included.sort_unstable_by(|(_, a), (_, b)| a.cmp(b));
    included.dedup();
    let sources = Sources {
        own: Some(FileStamp::of(&metadata)),
        includes: included.into_iter().map(|(stamp, path)| (path, stamp)).collect(),
        content: hash(&text),
    };
    // A large file takes as much memory as its zone.
    drop(text);
    let apex = read.apex.or(origin);
    let good = read.contents.map(|contents| (contents.apex().clone(), make(contents)));
    Loaded { suspect: sources.is_recent(), sources, good, apex, soa: read.soa, findings: read.findings }
}

impl Sources {
    /// Returns whether a file was written so recently that its next change may not change the stamp.
    fn is_recent(&self) -> bool {
        let Ok(now) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) else { return true };
        let stamps = self.own.iter().chain(self.includes.iter().filter_map(|(_, stamp)| stamp.as_ref()));
        let newest = stamps.map(|stamp| stamp.modified.max(stamp.changed)).max().unwrap_or(0);
        let age = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX) - i128::from(newest);
        age < TICK.as_nanos() as i128
    }
}

fn hash(text: &[u8]) -> u64 {
    let mut state = foldhash::quality::FixedState::default().build_hasher();
    state.write(text);
    state.finish()
}

/// Returns the error of a file that provided the zone `gives`, if its SOA has another owner now.
fn apex_changed<T>(gives: &Name, loaded: &Loaded<T>) -> Option<ZoneFinding> {
    let (file, position) = loaded.soa.as_ref()?;
    let apex = loaded.apex.as_ref().filter(|apex| *apex != gives)?;
    let message = format!(
        "the owner of the SOA is {apex}, but this file provides the zone {gives}, whose previous version stays; correct the \
         owner or $ORIGIN, or, to replace the zone {gives}, write {apex} to a file with another name and delete this file"
    );
    Some(file_finding(file, *position, "apex-changed", message))
}

fn file_finding(path: &Arc<Path>, position: Position, code: &'static str, message: String) -> ZoneFinding {
    let Position { line, column } = position;
    ZoneFinding { severity: Severity::Error, file: path.clone(), line, column, message, code }
}
