//! `signpost zone show`: one zone as a master file.

use clap::{ArgMatches, Command};

use crate::cli::{Exit, complain, print};
use crate::wire::Name;
use crate::zonefile;

pub(super) fn command() -> Command {
    Command::new("show")
        .about("Prints one zone as a master file")
        .after_help("Exit codes: 0 printed, 1 there is no such zone or the API does not answer, 2 called wrongly.")
        .arg(super::apex_argument().required(true).help("The zone's apex, such as shard1.v3.rhcloud.com"))
        .args(super::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    let apex = matches.get_one::<Name>("apex").expect("clap demands it");
    let zones = match super::gather(matches) {
        Ok((_, zones)) => zones,
        Err(exit) => return exit,
    };
    match zones.at(apex) {
        Some(zone) => {
            print(&String::from_utf8_lossy(&zonefile::write::to_text(&zone.contents)));
            Exit::Success
        }
        None => {
            complain(format_args!("there is no zone {apex}; \"signpost zone list\" names all"));
            Exit::Failure
        }
    }
}
