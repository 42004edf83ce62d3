//! Files with secrets: private from their creation, and replaced atomically.

use std::io::{self, Write};
use std::path::Path;

use super::Error;

fn at(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    |source| Error::File { path: path.to_owned(), source }
}

/// Makes the directory, and its parents, if they are not there. A directory made here has mode 0700.
pub fn private_folder(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(at(parent))?;
    }
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(at(path)(error)),
        _ => Ok(()),
    }
}

/// Returns the file as text, `None` if it is not there.
pub fn read(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error)),
    }
}

/// Writes the file with mode 0600: writes and syncs a temporary file in the same directory, renames it, and syncs the directory.
/// Readers see the old contents or the new, even after a power failure.
pub fn write_private(path: &Path, contents: &[u8]) -> Result<(), Error> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = folder.join(format!(".{name}.new"));
    let write = || {
        // The remains of an interrupted write can have any mode, so the file is re-created and not overwritten.
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&beside)?;
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        std::fs::File::open(folder)?.sync_all()
    };
    write().map_err(at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_replaces_and_leaves_nothing_beside() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        assert_eq!(read(&path).expect("reads"), None);
        std::fs::write(folder.path().join(".secret.new"), "rest of a crash").expect("writes");
        for contents in ["one", "two"] {
            write_private(&path, contents.as_bytes()).expect("writes");
            assert_eq!(read(&path).expect("reads").as_deref(), Some(contents));
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("is there").count(), 1);
    }
}
