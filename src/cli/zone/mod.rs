//! `signpost zone`: the zones from the API's objects and the zone files, as text, and on name servers.

mod export;
mod list;
mod show;
mod status;

use clap::{Arg, ArgMatches, Command};

use super::access::{self, API_TIMEOUT, ApiLocation};
use super::zones::{self, Zones};
use super::{Error, Exit, Outcome, progress, serve};
use signpost_dns::wire::Name;

pub(super) fn command() -> Command {
    Command::new("zone")
        .about("List, show, and export zones")
        .after_help(
            "The zones are those built from API objects, and those of --zones. With --zones and without --kubeconfig, \
             the command does not use the API. The domain and the name servers come from the API. Set --zones to \
             include the records of the domain's zone file.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([list::command(), show::command(), status::command(), export::command()])
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    match matches.subcommand() {
        Some(("list", matches)) => list::run(matches),
        Some(("show", matches)) => show::run(matches),
        Some(("status", matches)) => status::run(matches),
        Some(("export", matches)) => export::run(matches),
        _ => Ok(Exit::Usage),
    }
}

/// Returns the arguments that select the zones.
fn arguments() -> impl Iterator<Item = Arg> {
    serve::arguments_of(zones::KEYS).chain([access::context_argument()])
}

/// Returns all zones that the arguments select, and the location of their API.
fn gather(matches: &ArgMatches) -> Result<(ApiLocation, Zones), Error> {
    let place = ApiLocation::of(matches)?;
    let ask = place.settings.zones.is_none() || place.settings.kubeconfig.is_some();
    let zones = access::run(API_TIMEOUT, progress::during("listing objects", Zones::gather(&place, ask)))?;
    Ok((place, zones))
}

fn not_found(apex: &Name) -> String {
    format!("NotFound: zone {apex} not found; run \"signpost zone list\" to list zones")
}

/// Returns an apex on the command line.
fn apex_argument() -> Arg {
    Arg::new("apex")
        .value_name("ZONE")
        .value_parser(|text: &str| text.parse::<Name>().map_err(|error| error.to_string()))
}
