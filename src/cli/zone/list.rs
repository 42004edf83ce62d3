//! `signpost zone list`: which zones there are.

use clap::{ArgMatches, Command};
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::output::{self, Format};
use crate::cli::style::{Painter, Style};
use crate::cli::table::{Cell, Table};
use crate::cli::zones::{Source, Zones};
use signpost_control::compiler::apex;

pub(super) fn command() -> Command {
    Command::new("list")
        .about("List zones with their sources, serials, and numbers of records")
        .after_help(
            "A serial in parentheses is not given out yet. Exit codes: 0 listed, 1 the API does not answer or a zone \
             file has errors, 2 invalid usage.",
        )
        .arg(output::argument())
        .args(super::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let (_, zones) = super::gather(matches)?;
    let rows = rows(&zones);
    Format::of(matches).show(&rows, |painter| table(&rows, painter))
}

/// A zone. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    zone: String,
    /// `parent`, `alias`, `shard` or `file`.
    kind: &'static str,
    router: Option<String>,
    file: Option<String>,
    serial: Option<u32>,
    /// Whether the serial is given out.
    published: bool,
    owners: usize,
    records: usize,
}

fn rows(zones: &Zones) -> Vec<Row> {
    let row = |zone: &crate::cli::zones::ZoneEntry| Row {
        zone: zone.contents.apex().to_string(),
        kind: zone.source.kind(),
        router: match &zone.source {
            Source::Shard(router) => Some(router.clone()),
            _ => None,
        },
        file: match &zone.source {
            Source::File(path) => Some(path.display().to_string()),
            _ => None,
        },
        serial: apex::serial_of(&zone.contents),
        published: zone.serial_is_sure,
        owners: zone.contents.owner_count(),
        records: zone.contents.record_count(),
    };
    zones.zones.iter().map(row).collect()
}

fn table(rows: &[Row], painter: Painter) -> String {
    if rows.is_empty() {
        return "no zones\n".to_owned();
    }
    let mut table = Table::new(["ZONE", "KIND", "SERIAL", "OWNERS", "RECORDS", "MADE OF"]);
    for row in rows {
        let serial = match row.serial {
            Some(serial) if row.published => Cell::from(serial.to_string()),
            Some(serial) => Cell::styled(Style::Warning, format!("({serial})")),
            None => Cell::or_dash(None::<String>),
        };
        let made_of = match (&row.router, &row.file) {
            (Some(router), _) => format!("Router {router}"),
            (_, Some(file)) => file.clone(),
            _ if row.kind == "alias" => "RouteBindings".to_owned(),
            _ => "Routers, configuration".to_owned(),
        };
        table.row([
            Cell::from(row.zone.as_str()),
            Cell::from(row.kind),
            serial,
            Cell::from(row.owners.to_string()),
            Cell::from(row.records.to_string()),
            Cell::from(made_of),
        ]);
    }
    table.text(painter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::zones::ZoneEntry;
    use signpost_dns::wire::RecordType;
    use signpost_dns::zone::{Contents, Ttl};

    #[test]
    fn a_line_a_zone() {
        let known = |apex: &str, source: Source, serial_is_sure| {
            let mut contents = Contents::new(apex.parse().expect("a name"));
            let soa = [b"\x02ns\0\x01h\0".as_slice(), &[0, 0, 0, 7], &[0; 16]].concat();
            contents.add(contents.apex().clone(), RecordType::SOA, Ttl::MAX, soa.into()).expect("is in the zone");
            ZoneEntry { contents, source, serial_is_sure }
        };
        let zones = Zones {
            zones: vec![
                known("v3.example.", Source::Parent, true),
                known("routes.v3.example.", Source::Alias, false),
                known("shard1.v3.example.", Source::Shard("shard1".into()), true),
                known("own.example.", Source::File("zones/own.example.zone".into()), true),
            ],
            ..Zones::default()
        };
        let expected = "\
ZONE                 KIND     SERIAL   OWNERS   RECORDS   MADE OF
v3.example.          parent   7        1        1         Routers, configuration
routes.v3.example.   alias    (7)      1        1         RouteBindings
shard1.v3.example.   shard    7        1        1         Router shard1
own.example.         file     7        1        1         zones/own.example.zone
";
        assert_eq!(table(&rows(&zones), Painter::PLAIN), expected);
        assert_eq!(table(&[], Painter::PLAIN), "no zones\n");
    }
}
