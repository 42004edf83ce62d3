//! `signpost version`: what this program is.

use clap::{ArgMatches, Command};

use super::{Exit, print};
use crate::api::v1alpha1;

pub(super) fn command() -> Command {
    Command::new("version").about("Prints the version of the program and of the API it serves")
}

pub(super) fn run(_matches: &ArgMatches) -> Exit {
    print(&format!("signpost {}\napi {}/{}\n", env!("CARGO_PKG_VERSION"), v1alpha1::GROUP, v1alpha1::VERSION));
    Exit::Success
}
