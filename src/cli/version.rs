//! `signpost version`: what this program is.

use clap::{ArgMatches, Command};
use serde::Serialize;

use super::Outcome;
use super::output::{self, Format};
use signpost_types::v1alpha1;

pub(super) fn command() -> Command {
    Command::new("version")
        .about("Print the version of the program and of the API that it serves")
        .after_help("Exit codes: 0 printed, 2 invalid usage.")
        .arg(output::argument())
}

/// The versions. The JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
struct Version {
    signpost: &'static str,
    api: String,
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let api = format!("{}/{}", v1alpha1::GROUP, v1alpha1::VERSION);
    let version = Version { signpost: env!("CARGO_PKG_VERSION"), api };
    let text = || format!("signpost {}\napi {}\n", version.signpost, version.api);
    Format::of(matches).show(&version, |_| text())
}
