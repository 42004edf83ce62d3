//! The program `signpost`; all of it is in the library.

use std::process::ExitCode;

/// The control plane makes and drops objects on several threads all the time; the system's allocator takes a quarter of its
/// processor time for that (`docs/performance.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    signpost::cli::run(std::env::args_os())
}
