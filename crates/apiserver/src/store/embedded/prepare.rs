//! The first look into the file: makes its tables, checks its format, and upgrades an older one.
//!
//! Format 2 has checksums (`seal`). A file of format 1 is upgraded when it is opened, in one transaction: each value gets the
//! checksum of what it is at that moment, so damage from before is not found by it. An older program refuses the file then, and
//! says that a newer one wrote it; the way back is a backup, whose format has not changed.

use std::path::Path;
use std::time::Instant;

use redb::{Database, ReadableDatabase, ReadableTable};

use super::tables::{FIRST, LOG, META, VERSIONS, WriteTables, number};
use super::{FORMAT, OpenError, seal};
use crate::store::Revision;

/// Why [`prepare`] failed.
#[derive(Debug)]
pub(in crate::store) enum PrepareError {
    NewerFormat(u64),
    Redb(redb::Error),
}

impl<E: Into<redb::Error>> From<E> for PrepareError {
    fn from(error: E) -> Self {
        PrepareError::Redb(error.into())
    }
}

impl PrepareError {
    pub(in crate::store) fn at(self, path: &Path) -> OpenError {
        match self {
            PrepareError::NewerFormat(found) => OpenError::NewerFormat { path: path.into(), found, supported: FORMAT },
            PrepareError::Redb(redb::Error::Io(source)) => OpenError::Io { path: path.into(), source },
            PrepareError::Redb(error) => OpenError::Corrupt { path: path.into(), reason: error.to_string() },
        }
    }
}

/// Makes the tables of a new file, checks the format of another, and returns the newest revision.
pub(in crate::store) fn prepare(database: &Database) -> std::result::Result<Revision, PrepareError> {
    match written(database)? {
        Some((format, _)) if format > FORMAT => return Err(PrepareError::NewerFormat(format)),
        Some((1, newest)) => {
            upgrade(database)?;
            return Ok(Revision(newest));
        }
        Some((FORMAT, newest)) => return Ok(Revision(newest)),
        Some((format, _)) => return Err(redb::Error::Corrupted(format!("it has format {format}")).into()),
        None => {}
    }
    let transaction = database.begin_write()?;
    let id = uuid::Uuid::new_v4().as_u64_pair();
    {
        let mut meta = transaction.open_table(META)?;
        for (name, value) in [
            ("format", FORMAT),
            ("revision", FIRST),
            ("compacted", FIRST),
            ("store-id-high", id.0),
            ("store-id-low", id.1),
        ] {
            meta.insert(name, value)?;
        }
        seal::seal_meta(&mut meta)?;
    }
    drop(WriteTables::open(&transaction)?);
    transaction.commit()?;
    Ok(Revision(FIRST))
}

/// The format of the file; `None` if it has no tables of a store.
pub(in crate::store) fn format(database: &Database) -> std::result::Result<Option<u64>, PrepareError> {
    match written(database)? {
        Some((format, _)) if format > FORMAT => Err(PrepareError::NewerFormat(format)),
        found => Ok(found.map(|(format, _)| format)),
    }
}

/// Whether the file has the tables of a store.
pub(super) fn is_store(database: &Database) -> std::result::Result<bool, redb::Error> {
    Ok(written(database)?.is_some())
}

/// The format and the newest revision of a file that is not new.
fn written(database: &Database) -> std::result::Result<Option<(u64, u64)>, redb::Error> {
    let meta = match database.begin_read()?.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let number = |name| -> std::result::Result<_, redb::Error> {
        let missing = || redb::Error::Corrupted(format!("meta has no {name}"));
        Ok(meta.get(name)?.ok_or_else(missing)?.value())
    };
    let format = number("format")?;
    if format == FORMAT && number("seal")? != seal::of_meta(&meta)? {
        return Err(redb::Error::Corrupted("its revision and identity do not match their checksum".to_owned()));
    }
    // What the other numbers are called in a newer format is not ours to say.
    Ok(Some((format, if format > FORMAT { 0 } else { number("revision")? })))
}

/// Gives every entry of a file of format 1 its checksum.
fn upgrade(database: &Database) -> std::result::Result<(), redb::Error> {
    let begun = Instant::now();
    let before = database.begin_read()?;
    let transaction = database.begin_write()?;
    let mut tables = WriteTables::open(&transaction)?;
    let mut values = 0_u64;
    for entry in before.open_table(VERSIONS)?.iter()? {
        let (place, stored) = entry?;
        let (key, revision) = place.value();
        let sealed = match stored.value() {
            [0] => seal::deletion(key, revision),
            [1, rest @ ..] if rest.len() >= 8 => {
                let (created, value) = rest.split_at(8);
                seal::value(key, revision, number(created), value)
            }
            // It was damaged before; it is reported as such from now on.
            _ => continue,
        };
        tables.versions.insert((key, revision), &*sealed)?;
        values += 1;
    }
    for entry in before.open_table(LOG)?.iter()? {
        let (revision, changes) = entry?;
        let mut changes = changes.value().to_vec();
        seal::close_log_entry(revision.value(), &mut changes);
        tables.log.insert(revision.value(), &*changes)?;
    }
    tables.meta.insert("format", FORMAT)?;
    seal::seal_meta(&mut tables.meta)?;
    drop(tables);
    transaction.commit()?;
    let seconds = begun.elapsed().as_secs_f64();
    tracing::info!(values, seconds, "the store was upgraded to format {FORMAT}: its values have checksums now");
    Ok(())
}
