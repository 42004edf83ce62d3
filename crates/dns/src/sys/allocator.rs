//! Free memory of the allocator, back to the system.
//!
//! mimalloc returns free memory only while the program allocates. A name server allocates while it loads zones, and hardly ever
//! after that: the program would keep the memory of the load. The safe crate has no function for that.

// Links the library.
use libmimalloc_sys as _;

unsafe extern "C" {
    fn mi_collect(force: bool);
}

/// Gives the memory that this thread and ended threads have freed back to the system. It takes some milliseconds for each hundred
/// MiB. If the allocator of the program is not mimalloc, there is none.
pub fn release_free_memory() {
    // SAFETY: the library permits calls from every thread at any time. It changes only its own lists, and memory that is not in use.
    unsafe { mi_collect(true) }
}
