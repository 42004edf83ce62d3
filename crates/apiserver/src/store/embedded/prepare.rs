//! The first look into the file: makes its tables, and checks its format.
//!
//! Since format 3, the objects in it have the names of kinds and fields of today. Files of before are refused, and so is a newer
//! one.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable};

use super::tables::{FIRST, META, WriteTables};
use super::{FORMAT, OpenError, seal};
use crate::store::Revision;

/// The numbers of `meta` that one checksum covers.
const SEALED: [&str; 6] = ["format", "revision", "compacted", "store-id-high", "store-id-low", "opening"];

/// Why [`prepare`] failed.
#[derive(Debug)]
pub(in crate::store) enum PrepareError {
    NewerFormat(u64),
    OlderFormat(u64),
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
            PrepareError::OlderFormat(found) => OpenError::OlderFormat { path: path.into(), found },
            PrepareError::Redb(redb::Error::Io(source)) => OpenError::Io { path: path.into(), source },
            PrepareError::Redb(error) => OpenError::Corrupt { path: path.into(), reason: error.to_string() },
        }
    }
}

/// Makes the tables of a new file, checks the format of another, and returns the newest revision.
pub(in crate::store) fn prepare(database: &Database) -> std::result::Result<Revision, PrepareError> {
    if let Some(newest) = newest(database)? {
        return Ok(newest);
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
        seal(&mut meta)?;
    }
    drop(WriteTables::open(&transaction)?);
    transaction.commit()?;
    Ok(Revision(FIRST))
}

/// The newest revision of a file of the format of today; `None` if it has no tables of a store.
pub(in crate::store) fn newest(database: &Database) -> std::result::Result<Option<Revision>, PrepareError> {
    match written(database)? {
        Some((format, _)) if format > FORMAT => Err(PrepareError::NewerFormat(format)),
        Some((format, _)) if format < FORMAT => Err(PrepareError::OlderFormat(format)),
        found => Ok(found.map(|(_, newest)| Revision(newest))),
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
    if format == FORMAT && number("seal")? != checksum(&meta)? {
        return Err(redb::Error::Corrupted("its revision and identity do not match their checksum".to_owned()));
    }
    // What the other numbers are called in another format is not ours to say.
    Ok(Some((format, if format == FORMAT { number("revision")? } else { 0 })))
}

fn checksum(meta: &impl ReadableTable<&'static str, u64>) -> std::result::Result<u64, redb::Error> {
    let mut numbers = Vec::with_capacity(SEALED.len());
    for name in SEALED {
        numbers.push(meta.get(name)?.map_or(0, |number| number.value()));
    }
    Ok(seal::numbers(&numbers))
}

/// Writes the checksum of the numbers of `meta`: to be called after each change of them.
pub(super) fn seal(meta: &mut redb::Table<'_, &'static str, u64>) -> std::result::Result<(), redb::Error> {
    let seal = checksum(meta)?;
    meta.insert("seal", seal)?;
    Ok(())
}
