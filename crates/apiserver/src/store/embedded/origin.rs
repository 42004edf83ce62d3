//! The identity of the last store of a data directory, to detect an empty or older file in place of the store.
//!
//! The file `store-identity` contains the store's ID, the number that its latest opening wrote into it, and the highest revision,
//! some seconds old. A store that does not match was replaced by other means than `signpost restore`: its history went back. Name
//! servers and clients can have seen later revisions. The store therefore resumes like a restored one, [`REVISION_JUMP`] later
//! and without history, and all clients list again.
//!
//! ```text
//!          identity: O1            identity: O1 O2          identity: O1 O2        identity: O2
//!  stopped ─────────► open ──────────────────────► commit O2 ─────────────► write ────────────► in use
//!          store:    O1            store:    O1             store:    O2           store:    O2
//! ```
//!
//! A process that is killed at any moment thus leaves a pair that matches.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use bytes::Bytes;
use redb::{Database, ReadableDatabase};

use super::files;
use super::tables::{META, Reader, WriteTables, unavailable};
use super::{FILE_NAME, OpenError, Shared, prepare, seal};
use crate::store::backup::REVISION_JUMP;
use crate::store::{Error, Key, KeyValue, Revision};

/// The name of the file.
pub(in crate::store) const NAME: &str = "store-identity";

/// The other files that prove that a data directory belongs to a platform: its certificates, and the state of a name server.
const SIGNS: [&str; 4] = [NAME, "pki", "kubeconfig", "state/last-good"];

/// The interval at which the highest revision is recorded.
const NOTE_EVERY: Duration = Duration::from_secs(5);

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    store: (u64, u64),
    openings: Vec<u64>,
    revision: u64,
}

/// Returns whether the store's file exists. An empty or missing file is an error if the directory shows signs of a platform.
pub(super) fn check_present(data_dir: &Path) -> Result<bool, OpenError> {
    let path = data_dir.join(FILE_NAME);
    let sign = SIGNS.iter().map(|sign| data_dir.join(sign)).find(|sign| sign.exists());
    match fs::metadata(&path) {
        Ok(file) if file.len() > 0 => Ok(true),
        Ok(_) => match sign {
            None => Ok(false),
            Some(sign) => Err(OpenError::Gone { path, what: "is empty", sign }),
        },
        // Certificates and kubeconfigs may well be there before a first start.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match sign.filter(|sign| sign.ends_with(NAME)) {
            None => Ok(false),
            Some(sign) => Err(OpenError::Gone { path, what: "is missing", sign }),
        },
        Err(source) => Err(OpenError::Io { path, source }),
    }
}

/// Rejects a file that has none of our tables where a platform was before.
pub(super) fn check_tables(data_dir: &Path, database: &Database) -> Result<(), OpenError> {
    let path = data_dir.join(FILE_NAME);
    let is_store = prepare::written(database).map_err(|error| error.at(&path))?.is_some();
    match SIGNS.iter().map(|sign| data_dir.join(sign)).find(|sign| sign.exists()) {
        Some(sign) if !is_store => Err(OpenError::Gone { path, what: "has no tables of a store", sign }),
        _ => Ok(()),
    }
}

/// Writes a value again, without a change, while writes are staged. A write reads pages that no verification reads, such as the list
/// of free ones, and panics if they are damaged.
pub(super) fn try_write(database: &Database) -> Result<(), prepare::PrepareError> {
    let (_, opening) = identity(database)?;
    let transaction = database.begin_write().map_err(redb::Error::from)?;
    let mut tables = WriteTables::open(&transaction)?;
    tables.meta.insert("opening", opening).map_err(redb::Error::from)?;
    seal::seal_meta(&mut tables.meta)?;
    drop(tables);
    transaction.commit().map_err(redb::Error::from)?;
    Ok(())
}

/// Compares the store with the recorded identity, gives it the number of this opening, and returns its newest revision. `change`
/// returns the replacements of values in a history that went back. Without `room` on the disk, only necessary writes are made.
pub(super) fn settle(
    data_dir: &Path,
    database: &Database,
    newest: Revision,
    change: fn(&KeyValue) -> Option<Bytes>,
    room: bool,
) -> Result<Revision, prepare::PrepareError> {
    let (store, opening) = identity(database)?;
    let seen = read(data_dir);
    let why = match &seen {
        Some(seen) if seen.store != store => Some("it is a different store"),
        Some(seen) if !seen.openings.contains(&opening) => Some("it is an older copy of the store"),
        Some(seen) if newest.0 < seen.revision => Some("it lacks revisions of the previous file"),
        _ => None,
    };
    let floor = seen.map_or(0, |seen| seen.revision).max(newest.0);
    if !room && why.is_none() {
        return Ok(newest);
    }
    let next = uuid::Uuid::new_v4().as_u64_pair().0.max(1);
    let noted = write(data_dir, &Identity { store, openings: vec![opening, next], revision: newest.0 });
    if let Err(error) = &noted {
        tracing::warn!(%error, "failed to write the identity of the store; a replacement by an older file would not be detected");
        if why.is_none() {
            return Ok(newest);
        }
    }
    let transaction = database.begin_write().map_err(redb::Error::from)?;
    let mut tables = WriteTables::open(&transaction)?;
    let mut first = newest;
    if let Some(why) = why {
        first = Revision(floor.saturating_add(REVISION_JUMP));
        let reader = Reader::new(&database.begin_read().map_err(redb::Error::from)?)?;
        move_on(&mut tables, &reader, first, change)?;
        tracing::warn!(
            store = %data_dir.join(FILE_NAME).display(), revision = newest.0, seen = floor, first = first.0,
            "the store's file was replaced: {why}; treating it as restored, so that clients and name servers relist; \
             to go back to a backup, use \"restore\""
        );
    }
    tables.meta.insert("opening", next).map_err(redb::Error::from)?;
    seal::seal_meta(&mut tables.meta)?;
    drop(tables);
    transaction.commit().map_err(redb::Error::from)?;
    // If that fails, the former pair still matches.
    if noted.is_ok()
        && let Err(error) = write(data_dir, &Identity { store, openings: vec![next], revision: first.0 })
    {
        tracing::warn!(%error, "failed to write the identity of the store");
    }
    Ok(first)
}

/// Makes a store resume at `first`, without history.
fn move_on(
    tables: &mut WriteTables<'_>,
    reader: &Reader,
    first: Revision,
    change: fn(&KeyValue) -> Option<Bytes>,
) -> Result<(), redb::Error> {
    let corrupt = |error: Error| redb::Error::Corrupted(error.to_string());
    tables.compact(reader.newest().0, usize::MAX)?;
    let mut from: Option<Key> = None;
    loop {
        let page = reader.list(&Key("".into()), from.as_ref(), None, Some(1_000)).map_err(corrupt)?;
        for item in &page.items {
            if let Some(value) = change(item) {
                tables.versions.remove((&*item.key.0, item.modified.0))?;
                tables.restore(&KeyValue { value, modified: first, ..item.clone() }, 0)?;
            }
        }
        match page.items.last() {
            Some(last) if page.more => from = Some(Key(format!("{}\0", last.key.0).into())),
            _ => break,
        }
    }
    tables.start_at(first.0)
}

/// Returns the ID of the store and the number of its latest opening.
fn identity(database: &Database) -> Result<((u64, u64), u64), redb::Error> {
    let meta = database.begin_read()?.open_table(META)?;
    let number = |name| -> Result<u64, redb::Error> { Ok(meta.get(name)?.map_or(0, |number| number.value())) };
    Ok(((number("store-id-high")?, number("store-id-low")?), number("opening")?))
}

/// Forgets the store that was here: another takes its place on purpose.
pub(in crate::store) fn forget(data_dir: &Path) -> io::Result<()> {
    match fs::remove_file(data_dir.join(NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read(data_dir: &Path) -> Option<Identity> {
    parse(&fs::read_to_string(data_dir.join(NAME)).ok()?)
}

fn parse(text: &str) -> Option<Identity> {
    let mut identity = Identity { store: (0, 0), openings: Vec::new(), revision: 0 };
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(' ')? {
            ("store", id) => identity.store = uuid::Uuid::parse_str(id).ok()?.as_u64_pair(),
            ("opening", number) => identity.openings.push(u64::from_str_radix(number, 16).ok()?),
            ("revision", number) => identity.revision = number.parse().ok()?,
            _ => return None,
        }
    }
    (identity.store != (0, 0) && !identity.openings.is_empty()).then_some(identity)
}

fn text(identity: &Identity) -> String {
    let Identity { store, openings, revision } = identity;
    let openings: String = openings.iter().map(|opening| format!("opening {opening:016x}\n")).collect();
    let store = uuid::Uuid::from_u64_pair(store.0, store.1);
    format!(
        "# The identity of the {FILE_NAME} in this directory. Written by signpost; keep it with the store.\nstore \
         {store}\n{openings}revision {revision}\n"
    )
}

fn write(data_dir: &Path, identity: &Identity) -> io::Result<()> {
    let (path, beside) = (data_dir.join(NAME), data_dir.join(format!("{NAME}.new")));
    let mut file = files::private().truncate(true).open(&beside)?;
    file.write_all(text(identity).as_bytes())?;
    file.sync_all()?;
    own(data_dir, &beside)?;
    fs::rename(&beside, &path)?;
    File::open(data_dir)?.sync_all()
}

/// Gives a file to the user that its directory belongs to: root may work on the directory of a server that runs as another.
fn own(data_dir: &Path, path: &Path) -> io::Result<()> {
    let owner = fs::metadata(data_dir)?;
    if fs::metadata(path)?.uid() != owner.uid() {
        chown(path, Some(owner.uid()), Some(owner.gid()))?;
    }
    Ok(())
}

/// Writes the highest revision down every [`NOTE_EVERY`], until the store is closed.
pub(super) fn keep(data_dir: &Path, shared: &Weak<Shared>, stop: &Receiver<()>) {
    let mut noted = 0;
    loop {
        let is_over = stop.recv_timeout(NOTE_EVERY) != Err(RecvTimeoutError::Timeout);
        let Some(shared) = shared.upgrade() else { return };
        let revision = shared.feed.newest().0;
        let room = || files::free_octets(&shared.lock).is_ok_and(|free| free > 1 << 20);
        if revision != noted
            && room()
            && let Some(seen) = read(data_dir)
        {
            match write(data_dir, &Identity { revision, ..seen }) {
                Ok(()) => noted = revision,
                Err(error) => tracing::debug!(%error, "failed to record the highest revision"),
            }
        }
        if is_over {
            return;
        }
    }
}

/// Returns the path where a new store is created before it is moved into place, so that a file without tables is never a store.
pub(super) fn unfinished(data_dir: &Path) -> PathBuf {
    data_dir.join(format!("{FILE_NAME}.new"))
}

/// Returns the error for the caller about a fault of the file.
pub(super) fn reported(path: &Path, error: prepare::PrepareError) -> OpenError {
    match error {
        prepare::PrepareError::Redb(error) => match unavailable(error) {
            Error::Corrupt(reason) => OpenError::Corrupt { path: path.into(), reason },
            error => OpenError::Io { path: path.into(), source: io::Error::other(error) },
        },
        error => error.at(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let identity = Identity { store: (1 << 60, 7), openings: vec![1, u64::MAX], revision: 42 };
        assert_eq!(parse(&text(&identity)), Some(identity.clone()));
        for broken in ["", "store x\n", "revision 3\n", "nonsense\n"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
        let folder = tempfile::tempdir().expect("a directory");
        assert_eq!(read(folder.path()), None);
        write(folder.path(), &identity).expect("written");
        assert_eq!(read(folder.path()), Some(identity));
        forget(folder.path()).expect("removed");
        forget(folder.path()).expect("it is gone already");
        assert_eq!(read(folder.path()), None);
    }
}
