//! The files that `$INCLUDE` can open (RFC 1035 §5.1).
//!
//! The author of a zone file may not be permitted to read every file of the machine, and error messages quote the text of files.
//! An included file must therefore be, after all symbolic links, in the directory of the zone file or below it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The maximum size of a zone file or included file in octets: some ten million records.
pub const FILE_OCTETS_MAX: u64 = 1 << 30;

/// The source of the texts of included files.
pub trait Includes {
    /// Returns the path and text of the file that `name` means in `includer`.
    ///
    /// # Errors
    ///
    /// The reason why the file is not included.
    fn open(&mut self, includer: &Path, name: &Path) -> Result<(Arc<Path>, Vec<u8>), String>;
}

/// Rejects every include, for text that is not from a file.
pub struct NoIncludes;

impl Includes for NoIncludes {
    fn open(&mut self, _: &Path, _: &Path) -> Result<(Arc<Path>, Vec<u8>), String> {
        Err("$INCLUDE cannot be used here".to_owned())
    }
}

/// The files of one directory and below, relative to the including file. Records the requested files, so that a change of any of
/// them, or its later appearance, can be detected.
pub struct FolderIncludes<'a> {
    root: &'a Path,
    opened: Vec<PathBuf>,
}

impl<'a> FolderIncludes<'a> {
    /// Includes from `root` and below.
    pub fn new(root: &'a Path) -> Self {
        FolderIncludes { root, opened: Vec::new() }
    }

    /// Returns each requested path, readable or not.
    pub fn into_opened(self) -> Vec<PathBuf> {
        self.opened
    }
}

impl Includes for FolderIncludes<'_> {
    fn open(&mut self, includer: &Path, name: &Path) -> Result<(Arc<Path>, Vec<u8>), String> {
        let path = includer.parent().unwrap_or(Path::new("")).join(name);
        self.opened.push(path.clone());
        let unreadable = |error: io::Error| format!("failed to read {}: {error}", path.display());
        let root = if self.root.as_os_str().is_empty() { Path::new(".") } else { self.root };
        let root = root.canonicalize().map_err(unreadable)?;
        let real = path.canonicalize().map_err(unreadable)?;
        if !real.starts_with(&root) {
            return Err(format!(
                "{} is outside {}; a zone file can include only files in its own directory and below",
                real.display(),
                root.display()
            ));
        }
        let mut text = Vec::new();
        read_file(&real, &mut text).map_err(unreadable)?;
        Ok((path.into(), text))
    }
}

/// Opens a regular file, and nothing else. Opening a FIFO could block indefinitely on its writer, and all other zones with it;
/// `O_NONBLOCK` changes nothing for regular files. `O_NOCTTY`: a terminal does not become the controlling terminal.
///
/// # Errors
///
/// The error of the system, or another kind of file.
fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    // The metadata of the open file, not of the path, which may already refer to another file.
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok((file, metadata)),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Reads a regular file of at most [`FILE_OCTETS_MAX`] into `text`, which is cleared before. Returns its metadata.
///
/// # Errors
///
/// The error of the system, a file that is too long, or another kind of file: a FIFO may never have a writer, and a device no
/// end.
pub fn read_file(path: &Path, text: &mut Vec<u8>) -> io::Result<Metadata> {
    text.clear();
    let (mut file, metadata) = open_regular(path)?;
    if metadata.len() > FILE_OCTETS_MAX {
        return Err(io::Error::other(format!("it has {} bytes, more than {FILE_OCTETS_MAX}", metadata.len())));
    }
    // One more than its size: a file that has grown is read to its end, and any other file needs a single read.
    text.reserve(metadata.len() as usize + 1);
    file.by_ref().take(FILE_OCTETS_MAX).read_to_end(text)?;
    Ok(metadata)
}
