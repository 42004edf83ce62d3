//! `signpost check`: reports errors in a file before a server uses it.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use serde::Serialize;

use super::output::{self, Format};
use super::{Exit, Outcome, check_store, complain, file, folder, option, print, serve, success_if, switch};
use crate::config::{layers, reference};
use crate::daemon::configuration;
use signpost_dns::wire::Name;
use signpost_dns::zonefile::{Severity, ZoneFinding};

pub(super) fn command() -> Command {
    let reference =
        switch("reference").help("Print the reference page of all settings instead (docs/configuration.md)");
    let config = Command::new("config")
        .about("Check the configuration that `serve` would use with the same flags")
        .args([reference, output::argument()])
        .args(serve::arguments());
    let files = file(Arg::new("files").value_name("FILE").required(true).num_args(1..))
        .help("The zone files; the first origin of each is its file name without .zone");
    let origin = option("origin", "NAME")
        .help("The first origin [default: the file name without .zone]")
        .value_parser(|text: &str| text.parse::<Name>().map_err(|error| error.to_string()));
    let strict = switch("strict").help("Treat warnings as errors for the exit code");
    let zone = Command::new("zone")
        .about("Check zone files and print every finding as FILE:LINE:COLUMN: SEVERITY: MESSAGE")
        .arg(origin)
        .arg(strict)
        .arg(output::argument())
        .arg(files);
    Command::new("check")
        .about("Check configuration, zone files, or the store before a server uses them")
        .after_help(
            "Exit codes: 0 no errors (warnings are allowed without --strict), 1 errors or faults in a zone file, 2 \
             invalid usage, or an invalid configuration.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(zone)
        .subcommand(config)
        .subcommand(check_store::command())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    match matches.subcommand() {
        Some(("zone", matches)) => zone(matches),
        Some(("config", matches)) => config(matches),
        Some(("store", matches)) => check_store::run(matches),
        _ => Ok(Exit::Usage),
    }
}

/// The findings in one zone file. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
struct File {
    file: String,
    error: Option<String>,
    /// The zone, if the file is one that can be served.
    zone: Option<Zone>,
    findings: Vec<Found>,
}

/// A zone that was read.
#[derive(Debug, Serialize)]
struct Zone {
    apex: String,
    owners: usize,
    records: usize,
}

/// A finding in a zone file.
#[derive(Debug, Serialize)]
struct Found {
    /// `error`, `fault`, `warning` or `note`.
    severity: String,
    /// The file that it is in: an included one, perhaps.
    file: String,
    line: u32,
    column: u32,
    message: String,
    /// The kind of finding; stays the same over versions.
    code: &'static str,
    #[serde(skip)]
    text: String,
}

impl Found {
    fn new(finding: &ZoneFinding) -> Found {
        Found {
            severity: finding.severity.to_string(),
            file: finding.file.display().to_string(),
            line: finding.line,
            column: finding.column,
            message: finding.message.clone(),
            code: finding.code,
            text: finding.to_string(),
        }
    }
}

fn zone(matches: &ArgMatches) -> Outcome {
    let files = matches.get_many::<PathBuf>("files").expect("clap demands it");
    let origin = matches.get_one::<Name>("origin");
    let counts = if matches.get_flag("strict") { Severity::Warning } else { Severity::Fault };
    let format = Format::of(matches);
    let (mut faults, mut all) = (0, Vec::new());
    for file in files {
        let (found, bad) = zone_file(file, origin.cloned(), counts);
        faults += bad;
        if format == Format::Table {
            print(&text(&found));
        }
        if let Some(error) = &found.error {
            complain(format_args!("{}: {error}", found.file));
        }
        all.push(found);
    }
    if format != Format::Table {
        format.show(&all, |_| String::new())?;
    }
    Ok(success_if(faults == 0))
}

/// Returns the text output for a file.
fn text(found: &File) -> String {
    let mut text: String = found.findings.iter().map(|finding| format!("{}\n", finding.text)).collect();
    if let Some(Zone { apex, owners, records }) = &found.zone {
        text.push_str(&format!("{}: zone {apex}: {records} records of {owners} owners\n", found.file));
    }
    text
}

/// Returns the findings in one file, and the number of those that are at least as severe as `counts`.
fn zone_file(file: &Path, origin: Option<Name>, counts: Severity) -> (File, usize) {
    let mut found = File { file: file.display().to_string(), error: None, zone: None, findings: Vec::new() };
    let read = match folder::read(file, origin) {
        Ok(read) => read,
        Err(error) => {
            found.error = Some(error.to_string());
            return (found, 1);
        }
    };
    found.findings = read.findings.iter().map(Found::new).collect();
    found.zone = read.contents.as_ref().map(|contents| Zone {
        apex: contents.apex().to_string(),
        owners: contents.owner_count(),
        records: contents.record_count(),
    });
    (found, read.findings.iter().filter(|finding| finding.severity >= counts).count())
}

/// The findings in the configuration. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
struct Configuration {
    valid: bool,
    errors: Vec<String>,
    warnings: Vec<String>,
}

fn config(matches: &ArgMatches) -> Outcome {
    if matches.get_flag("reference") {
        print(&reference::page());
        return Ok(Exit::Success);
    }
    let places = serve::places(matches);
    let unknown = layers::unknown_variables(&places.environment);
    let warnings = unknown.into_iter().map(|(variable, nearest)| {
        let hint = nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        format!("environment variable {variable} is not a setting{hint}")
    });
    let mut warnings: Vec<String> = warnings.collect();
    let errors: Vec<String> = match configuration::load(&places) {
        Ok(settings) => {
            warnings.extend(configuration::warnings(&settings));
            configuration::missing(&settings)
        }
        Err(errors) => errors.0.iter().map(ToString::to_string).collect(),
    };
    // As of `serve`, which could not use it either.
    let exit = if errors.is_empty() { Exit::Success } else { Exit::Usage };
    errors.iter().for_each(complain);
    let found = Configuration { valid: errors.is_empty(), errors, warnings };
    let text = || {
        let warnings = found.warnings.iter().map(|warning| format!("warning: {warning}\n"));
        warnings.chain(found.valid.then(|| "the configuration is valid\n".to_owned())).collect()
    };
    Format::of(matches).show(&found, |_| text())?;
    Ok(exit)
}
