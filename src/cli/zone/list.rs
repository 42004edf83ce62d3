//! `signpost zone list`: which zones there are.

use clap::{ArgMatches, Command};
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::output::{self, Format};
use crate::cli::style::Painter;
use crate::cli::table::{Cell, Table};
use crate::cli::zones::{Source, ZoneEntry, ZoneSummary};

pub(super) fn command() -> Command {
    Command::new("list")
        .about("List zones with their sources, serials, and numbers of records")
        .after_help(
            "A serial in parentheses is not allocated yet. Exit codes: 0 listed, 1 the API is unreachable, or a zone \
             file has errors, 2 invalid usage.",
        )
        .arg(output::argument())
        .args(super::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let (_, zones) = super::gather(matches)?;
    let rows: Vec<Row> = zones.zones.iter().map(Row::new).collect();
    Format::of(matches).show(&rows, |painter| table(&rows, painter))
}

/// A zone. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    summary: ZoneSummary,
    router: Option<String>,
    file: Option<String>,
    owners: usize,
    records: usize,
}

impl Row {
    fn new(zone: &ZoneEntry) -> Row {
        let (router, file) = match &zone.source {
            Source::Shard(router) => (Some(router.clone()), None),
            Source::File(path) => (None, Some(path.display().to_string())),
            Source::Parent | Source::Alias => (None, None),
        };
        let (owners, records) = (zone.contents.owner_count(), zone.contents.record_count());
        Row { summary: zone.summary(), router, file, owners, records }
    }
}

fn table(rows: &[Row], painter: Painter) -> String {
    if rows.is_empty() {
        return "no zones\n".to_owned();
    }
    let mut table = Table::new(["ZONE", "KIND", "SERIAL", "OWNERS", "RECORDS", "SOURCE"]);
    for row in rows {
        let made_of = match (&row.router, &row.file) {
            (Some(router), _) => format!("Router {router}"),
            (_, Some(file)) => file.clone(),
            _ if row.summary.kind == "alias" => "RouteBindings".to_owned(),
            _ => "Routers, configuration".to_owned(),
        };
        let (owners, records) = (row.owners.to_string().into(), row.records.to_string().into());
        let zone = Cell::from(row.summary.zone.as_str());
        table.row([zone, row.summary.kind.into(), row.summary.serial_cell(), owners, records, made_of.into()]);
    }
    table.text(painter)
}
