//! The first access to the file: creates its tables, or checks its format. Files of other formats are rejected.

use std::path::Path;

use redb::{Database, ReadableDatabase};

use super::tables::{FIRST, META, WriteTables};
use super::{FORMAT, OpenError, seal};
use crate::store::Revision;

/// The error of [`prepare`].
#[derive(Debug)]
pub(in crate::store) enum PrepareError {
    OtherFormat(u64),
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
            PrepareError::OtherFormat(found) => OpenError::OtherFormat { path: path.into(), found },
            PrepareError::Redb(redb::Error::Io(source)) => OpenError::Io { path: path.into(), source },
            PrepareError::Redb(error) => OpenError::Corrupt { path: path.into(), reason: error.to_string() },
        }
    }
}

/// Makes the tables of a new file, checks the format of another, and returns the newest revision.
pub(in crate::store) fn prepare(database: &Database) -> std::result::Result<Revision, PrepareError> {
    if let Some(newest) = written(database)? {
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
        seal::seal_meta(&mut meta)?;
    }
    drop(WriteTables::open(&transaction)?);
    transaction.commit()?;
    Ok(Revision(FIRST))
}

/// Returns the newest revision of a file that is not new; `None` if it has no tables of a store.
pub(in crate::store) fn written(database: &Database) -> std::result::Result<Option<Revision>, PrepareError> {
    let meta = match database.begin_read()?.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let number = |name| -> std::result::Result<_, redb::Error> {
        let missing = || redb::Error::Corrupted(format!("meta has no {name}"));
        Ok(meta.get(name)?.ok_or_else(missing)?.value())
    };
    match number("format")? {
        FORMAT if number("seal")? == seal::of_meta(&meta)? => Ok(Some(Revision(number("revision")?))),
        FORMAT => {
            let what = "its revision and identity do not match their checksum";
            Err(redb::Error::Corrupted(what.to_owned()).into())
        }
        // The meaning of the other numbers is unknown.
        other => Err(PrepareError::OtherFormat(other)),
    }
}
