//! Size, times and inode of a file: they tell whether it changed.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Size in octets.
    pub octets: u64,
    /// Time of the last modification, in nanoseconds since 1970. Who writes a file can set it.
    pub modified: i64,
    /// Time of the last change of the file or of what is known of it, likewise. Nobody can set it.
    pub changed: i64,
    /// Device and inode, after symbolic links.
    pub inode: (u64, u64),
}

impl FileStamp {
    /// Of a file that was looked at.
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

/// Of seconds with nanoseconds; what is beyond the year 2262 is as if it were then.
fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}
