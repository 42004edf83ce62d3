//! Size, times and inode of a file, which show whether it has changed.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The properties that distinguish two states of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Size in octets.
    pub octets: u64,
    /// The time of the last modification, in nanoseconds since 1970. The writer of a file can set it.
    pub modified: i64,
    /// The time of the last change of the file or of its metadata, in the same unit. It cannot be set.
    pub changed: i64,
    /// Device and inode, after symbolic links.
    pub inode: (u64, u64),
}

impl FileStamp {
    /// Returns the stamp for this metadata.
    pub fn of(metadata: &std::fs::Metadata) -> Self {
        FileStamp {
            octets: metadata.len(),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            inode: (metadata.dev(), metadata.ino()),
        }
    }

    pub(super) fn of_path(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| FileStamp::of(&metadata))
    }
}

/// Converts seconds with nanoseconds; times after the year 2262 are treated as in that year.
fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}
