//! `signpost check`: says what is wrong with a file before anything serves it.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{Exit, complain, print, serve};
use crate::config::{self, layers, reference};

pub(super) fn command() -> Command {
    let reference = Arg::new("reference")
        .long("reference")
        .action(ArgAction::SetTrue)
        .help("Prints the reference page of all settings instead (docs/configuration.md)");
    let config = Command::new("config")
        .about("Reads the configuration as `serve` would, from the same flags, and says what is wrong")
        .arg(reference)
        .args(serve::arguments());
    Command::new("check")
        .about("Says what is wrong with a file before anything serves it")
        .after_help("Exit codes: 0 nothing wrong (warnings may be there), 1 errors found, 2 called wrongly.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(config)
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    match matches.subcommand() {
        Some(("config", matches)) => config(matches),
        _ => Exit::Usage,
    }
}

fn config(matches: &ArgMatches) -> Exit {
    if matches.get_flag("reference") {
        print(&reference::page());
        return Exit::Success;
    }
    let places = serve::places(matches);
    for (variable, nearest) in layers::unknown_variables(&places.environment) {
        let hint = nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        print(&format!("warning: environment variable {variable} is no setting{hint}\n"));
    }
    match config::load(&places) {
        Ok(_) => {
            print("the configuration is valid\n");
            Exit::Success
        }
        Err(errors) => {
            for error in &errors.0 {
                complain(error);
            }
            Exit::Failure
        }
    }
}
