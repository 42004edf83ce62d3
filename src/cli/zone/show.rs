//! `signpost zone show`: one zone as a master file.

use clap::{ArgMatches, Command};
use serde::Serialize;

use super::difference::lines;
use crate::cli::Outcome;
use crate::cli::output::{self, Format};
use crate::cli::zones::{RecordLine, ZoneEntry};
use signpost_control::compiler::apex;
use signpost_dns::wire::Name;
use signpost_dns::zonefile;

pub(super) fn command() -> Command {
    Command::new("show")
        .about("Print one zone as a zone file")
        .after_help("Exit codes: 0 printed, 1 there is no such zone or the API does not answer, 2 invalid usage.")
        .arg(super::apex_argument().required(true).help("The zone's apex, such as shard1.v3.rhcloud.com"))
        .arg(output::argument())
        .args(super::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let apex = matches.get_one::<Name>("apex").expect("clap demands it");
    let (_, zones) = super::gather(matches)?;
    let zone = zones.at(apex).ok_or_else(|| super::not_found(apex))?;
    let text = || String::from_utf8_lossy(&zonefile::write::to_text(&zone.contents)).into_owned();
    Format::of(matches).show(&Shown::of(zone), |_| text())
}

/// A zone. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    zone: String,
    /// `parent`, `alias`, `shard` or `file`.
    kind: &'static str,
    serial: Option<u32>,
    /// Whether the serial is given out.
    published: bool,
    /// In canonical order of their owners.
    records: Vec<RecordLine>,
}

impl Shown {
    fn of(zone: &ZoneEntry) -> Shown {
        let contents = &zone.contents;
        let records =
            contents.owners().flat_map(|(owner, rrsets)| rrsets.iter().flat_map(|rrset| lines(owner, Some(rrset))));
        Shown {
            zone: contents.apex().to_string(),
            kind: zone.source.kind(),
            serial: apex::serial_of(contents),
            published: zone.serial_is_sure,
            records: records.collect(),
        }
    }
}
