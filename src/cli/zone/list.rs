//! `signpost zone list`: which zones there are.

use clap::{ArgMatches, Command};
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::output::{self, ListOptions, Listing};
use crate::cli::table::{Cell, Table};
use crate::cli::zones::{Source, ZoneEntry, ZoneSummary};
use signpost_dns::wire::RecordType;
use signpost_dns::zonefile::rdata_out;

/// The columns of the table. The last one is for wide output.
const COLUMNS: [&str; 7] = ["zone", "kind", "serial", "owners", "records", "source", "name-servers"];

pub(super) fn command() -> Command {
    Command::new("list")
        .about("List zones with their sources, serials, and numbers of records")
        .after_help(
            "A serial in parentheses is not allocated yet. Exit codes: 0 listed, 1 the API is unreachable, or a zone \
             file has errors, 2 invalid usage.",
        )
        .args(output::list_arguments(COLUMNS))
        .args(super::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let read = || {
        let (_, zones) = super::gather(matches)?;
        Ok(zones.zones.iter().map(Row::new).collect::<Vec<_>>())
    };
    ListOptions::of(matches).show(read, |rows| listing(rows))
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
    /// The name servers in the NS records of the apex.
    #[serde(rename = "nameServers")]
    name_servers: Vec<String>,
}

impl Row {
    fn new(zone: &ZoneEntry) -> Row {
        let (router, file) = match &zone.source {
            Source::Shard(router) => (Some(router.clone()), None),
            Source::File(path) => (None, Some(path.display().to_string())),
            Source::Parent | Source::Alias => (None, None),
        };
        let (owners, records) = (zone.contents.owner_count(), zone.contents.record_count());
        let name_servers = zone.contents.get(zone.contents.apex(), RecordType::NS).map(|rrset| &*rrset.rdata);
        let name_servers = name_servers.unwrap_or_default().iter().map(|rdata| rdata_out::text(RecordType::NS, rdata));
        Row { summary: zone.summary(), router, file, owners, records, name_servers: name_servers.collect() }
    }
}

fn listing(rows: &[Row]) -> Listing {
    let mut table = Table::new(COLUMNS).hiding_last();
    for row in rows {
        let made_of = match (&row.router, &row.file) {
            (Some(router), _) => format!("Router {router}"),
            (_, Some(file)) => file.clone(),
            _ if row.summary.kind == "alias" => "RouteBindings".to_owned(),
            _ => "Routers, configuration".to_owned(),
        };
        let (owners, records) = (row.owners.to_string().into(), row.records.to_string().into());
        let zone = Cell::from(row.summary.zone.as_str());
        let (serial, name_servers) = (row.summary.serial_cell(), row.name_servers.join(", ").into());
        table.row([zone, row.summary.kind.into(), serial, owners, records, made_of.into(), name_servers]);
    }
    Listing { tables: vec![table], note: rows.is_empty().then(|| "no zones".to_owned()) }
}
