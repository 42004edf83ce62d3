//! The copies of zones from primary servers on disk: a zone file for each, with the time of the last refresh as its modification time,
//! as in BIND. A restart serves them at once, and does not prolong them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;

use crate::wire::Name;
use crate::zone::Contents;
use crate::zonefile::include::NoIncludes;
use crate::zonefile::write::write;
use crate::zonefile::{Severity, read_zone};

/// The longest name of a zone in a file name. Others are hashed.
const NAME_MAX: usize = 200;

/// The directory of the copies.
#[derive(Debug, Clone)]
pub(super) struct Copies(PathBuf);

impl Copies {
    /// Opens the directory, and creates it if it does not exist. Only the owner has access, as to all data.
    pub(super) fn open(directory: &Path) -> io::Result<Copies> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Copies(directory.to_owned()))
    }

    pub(super) fn path(&self, apex: &Name) -> PathBuf {
        let text = apex.to_string().to_ascii_lowercase();
        let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.');
        let name = match text.trim_end_matches('.') {
            "" => "root".to_owned(),
            plain if plain.len() <= NAME_MAX && plain.bytes().all(is_plain) && !plain.starts_with('.') => {
                plain.to_owned()
            }
            _ => HEXLOWER.encode(digest(&SHA256, text.as_bytes()).as_ref()),
        };
        self.0.join(format!("{name}.zone"))
    }

    /// Returns the copy of a zone, and the time since its last refresh; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The problem of the file.
    pub(super) fn read(&self, apex: &Name, now: SystemTime) -> Result<Option<(Contents, Duration)>, String> {
        let path = self.path(apex);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let (text, modified) = match fs::read(&path) {
            Ok(text) => (text, fs::metadata(&path).and_then(|metadata| metadata.modified()).map_err(failed)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let read = read_zone(&text, &Arc::from(path.as_path()), None, &mut NoIncludes);
        let error = read.findings.iter().find(|finding| finding.severity == Severity::Error);
        match read.contents.filter(|contents| contents.apex() == apex) {
            // A clock that went back does not prolong it by more than one period.
            Some(contents) => Ok(Some((contents, now.duration_since(modified).unwrap_or_default()))),
            None => Err(match error {
                Some(finding) => finding.to_string(),
                None => format!("{}: it is the copy of another zone", path.display()),
            }),
        }
    }

    /// Writes the copy of a zone that was refreshed now. It replaces the former one when it is on disk.
    pub(super) fn write(&self, contents: &Contents) -> io::Result<()> {
        let path = self.path(contents.apex());
        let new = path.with_extension("new");
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let mut file = io::BufWriter::new(file);
        write(contents, &mut file)?;
        file.flush()?;
        file.get_ref().sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.0)?.sync_all()
    }

    /// Records that the copy of a zone was refreshed now.
    pub(super) fn touch(&self, apex: &Name, now: SystemTime) -> io::Result<()> {
        File::options().append(true).open(self.path(apex))?.set_modified(now)
    }
}
