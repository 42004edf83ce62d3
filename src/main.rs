//! The program `signpost`; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    signpost::cli::run(std::env::args_os())
}
