//! `signpost check`: says what is wrong with a file before anything serves it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};

use super::{Exit, complain, print, serve};
use crate::config::{self, layers, reference};
use crate::wire::Name;
use crate::zonefile::include::{FolderIncludes, read_file};
use crate::zonefile::{Scrutiny, Severity, read_zone_with};

pub(super) fn command() -> Command {
    let reference = Arg::new("reference")
        .long("reference")
        .action(ArgAction::SetTrue)
        .help("Prints the reference page of all settings instead (docs/configuration.md)");
    let config = Command::new("config")
        .about("Reads the configuration as `serve` would, from the same flags, and says what is wrong")
        .arg(reference)
        .args(serve::arguments());
    let files = Arg::new("files")
        .value_name("FILE")
        .required(true)
        .num_args(1..)
        .help("Master files; the first origin of each is its name without .zone")
        .value_parser(ValueParser::path_buf())
        .value_hint(ValueHint::FilePath);
    let origin = Arg::new("origin")
        .long("origin")
        .value_name("NAME")
        .help("The first origin instead of the file's name")
        .value_parser(|text: &str| text.parse::<Name>().map_err(|error| error.to_string()));
    let strict =
        Arg::new("strict").long("strict").action(ArgAction::SetTrue).help("Warnings count as errors for the exit code");
    let zone = Command::new("zone")
        .about("Reads zone files and prints every finding as FILE:LINE:COLUMN: SEVERITY: MESSAGE")
        .arg(origin)
        .arg(strict)
        .arg(files);
    Command::new("check")
        .about("Says what is wrong with a file before anything serves it")
        .after_help(
            "Exit codes: 0 nothing wrong (warnings may be there, but for --strict), 1 errors found, 2 called wrongly.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(zone)
        .subcommand(config)
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    match matches.subcommand() {
        Some(("zone", matches)) => zone(matches),
        Some(("config", matches)) => config(matches),
        _ => Exit::Usage,
    }
}

fn zone(matches: &ArgMatches) -> Exit {
    let files = matches.get_many::<PathBuf>("files").expect("clap demands it");
    let origin = matches.get_one::<Name>("origin");
    let counts = if matches.get_flag("strict") { Severity::Warning } else { Severity::Error };
    let mut faults = 0;
    for file in files {
        faults += zone_file(file, origin.cloned(), counts);
    }
    if faults == 0 { Exit::Success } else { Exit::Failure }
}

/// Prints the findings of one file; how many are at least as bad as `counts`.
fn zone_file(file: &Path, origin: Option<Name>, counts: Severity) -> usize {
    let mut text = Vec::new();
    if let Err(error) = read_file(file, &mut text) {
        complain(format_args!("{}: {error}", file.display()));
        return 1;
    }
    let by_name = || Name::parse(file.file_stem()?.as_encoded_bytes(), &Name::root()).ok();
    let folder = file.parent().unwrap_or(Path::new(""));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut includes, scrutiny) = (FolderIncludes::new(folder), Scrutiny::of_check(now, threads));
    let read = read_zone_with(&text, &Arc::from(file), origin.or_else(by_name), &mut includes, &scrutiny);
    for finding in &read.findings {
        print(&format!("{finding}\n"));
    }
    if let Some(contents) = &read.contents {
        let (owners, records) = (contents.owner_count(), contents.record_count());
        print(&format!("{}: zone {}: {records} records of {owners} owners\n", file.display(), contents.apex()));
    }
    read.findings.iter().filter(|finding| finding.severity >= counts).count()
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
