//! The program `signpost`; all of it is in the library.

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    signpost::cli::run(std::env::args_os())
}

/// Where fuzz targets are built there is no command line (see `lib.rs`), but cargo builds the program with them.
#[cfg(fuzzing)]
fn main() {}
