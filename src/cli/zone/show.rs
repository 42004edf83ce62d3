//! `signpost zone show`: one zone as a master file.

use clap::{ArgMatches, Command};
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::output::{self, Format};
use crate::cli::zones::{RecordLine, ZoneEntry, ZoneSummary};
use signpost_dns::wire::Name;
use signpost_dns::zonefile;

pub(super) fn command() -> Command {
    Command::new("show")
        .about("Print one zone as a zone file")
        .after_help("Exit codes: 0 printed, 1 the zone does not exist, or the API is unreachable, 2 invalid usage.")
        .arg(super::apex_argument().required(true).help("The apex of the zone, such as shard1.v3.rhcloud.com"))
        .arg(output::argument())
        .args(super::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let apex = matches.get_one::<Name>("apex").expect("clap demands it");
    let (_, zones) = super::gather(matches)?;
    let zone = zones.at(apex).ok_or_else(|| super::not_found(apex))?;
    let text = || String::from_utf8_lossy(&zonefile::write::to_text(&zone.contents)).into_owned();
    Format::of(matches).show(&ZoneDocument::new(zone), |_| text())
}

/// A zone. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
struct ZoneDocument {
    #[serde(flatten)]
    summary: ZoneSummary,
    /// In canonical order of their owners.
    records: Vec<RecordLine>,
}

impl ZoneDocument {
    fn new(zone: &ZoneEntry) -> ZoneDocument {
        let mut records = Vec::new();
        for (owner, rrsets) in zone.contents.owners() {
            for rrset in rrsets {
                let (ttl, rtype) = (rrset.ttl.seconds(), rrset.rtype);
                records.extend(rrset.rdata.iter().map(|rdata| RecordLine::new(owner, ttl, rtype, rdata)));
            }
        }
        ZoneDocument { summary: zone.summary(), records }
    }
}
