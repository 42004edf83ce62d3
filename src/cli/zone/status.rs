//! `signpost zone status`: queries each name server, and each secondary server, for the serial of each zone.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ArgMatches, Command, value_parser};
use futures::StreamExt as _;
use serde::Serialize;

use crate::admin::secondaries::{Notified, Report};
use crate::cli::access::{self, ApiLocation};
use crate::cli::output::{self, ListOptions, Listing};
use crate::cli::style::Style;
use crate::cli::table::Table;
use crate::cli::zones::{ZoneSummary, Zones};
use crate::cli::{Error, Outcome, note, option, progress, scrape, success_if, switch, table::Cell};
use crate::config::DNS_PORT;
use crate::config::secondary::Secondary;
use crate::config::value::server_address;
use signpost_control::dns_client;
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;
use signpost_dns::zone::policy::ZonePattern;

/// The maximum number of queries in flight.
const ASKED_AT_A_TIME: usize = 32;
/// The time limit for all queries: a thousand zones at a silent server.
const LIMIT: Duration = Duration::from_secs(600);
/// The time limit of one try of a query.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The columns of the table. The last one is for wide output.
const COLUMNS: [&str; 5] = ["zone", "serial", "status", "servers", "kind"];

pub(super) fn command() -> Command {
    let server = option("server", "ADDR[:PORT]").action(ArgAction::Append).value_parser(server_address).help(
        "A name server to query (repeats) [default: the servers in --nameserver or --dns-listen, or the servers that the \
         platform verifies]",
    );
    let port = option("port", "PORT")
        .value_parser(value_parser!(u16))
        .help("The port of the servers [default: 53 for --nameserver, or the port that the platform uses]");
    Command::new("status")
        .about("Query each name server for the serial of each zone, and compare")
        .after_help(
            "A server can be ahead of the API's objects: it applied a later change, or it published a provisional \
             serial while it waited for the API. The secondary servers in dns.secondary are queried, too; the admin endpoint \
             of the name server has the serial that each has acknowledged, and the error of the last NOTIFY. Exit codes: 0 \
             every server has the serial of the API's objects, or is ahead, 1 a server is behind or does not answer, or the \
             API is unreachable, 2 invalid usage.",
        )
        .arg(super::apex_argument().num_args(0..).help("Query only these zones"))
        .args([server, port])
        .arg(switch("all").help("Show the serials of all name servers, not only of those that differ"))
        .args(scrape::arguments())
        .args(output::list_arguments(COLUMNS))
        .args(super::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let (all, mut is_current) = (matches.get_flag("all"), true);
    let read = || {
        let rows = read(matches)?;
        is_current = rows.iter().all(|row| row.in_step || row.ahead);
        Ok(rows)
    };
    ListOptions::of(matches).show(read, |rows| listing(rows, all))?;
    Ok(success_if(is_current))
}

fn read(matches: &ArgMatches) -> Result<Vec<Row>, Error> {
    let (place, zones) = super::gather(matches)?;
    let servers: Vec<SocketAddr> = matches.get_many("server").unwrap_or_default().copied().collect();
    let given = !servers.is_empty();
    let servers = if given { servers } else { listed(&place, &zones, matches.get_one("port").copied()) };
    if servers.is_empty() {
        let error = "no name server address is known; set --server, or addresses in --nameserver";
        return Err(Error::Usage(error.to_owned()));
    }
    let apexes: Vec<&Name> = matches.get_many("apex").unwrap_or_default().collect();
    if let Some(unknown) = apexes.iter().find(|apex| zones.at(apex).is_none()) {
        return Err(super::not_found(unknown).into());
    }
    // Secondary servers are those of the configuration: with --server, only these are queried.
    let secondaries: &[Secondary] = if given { &[] } else { &place.settings.dns.secondary };
    let scrape::Target { urls, authorities } = scrape::target(matches)?;
    let asking = async {
        let report = if secondaries.is_empty() { Report::default() } else { notified(&urls, authorities).await };
        Ok(progress::during("querying name servers", ask(&zones, &apexes, &servers, (secondaries, &report))).await)
    };
    access::run(LIMIT, asking).map_err(Error::from)
}

/// Returns the state of NOTIFY in the first process that has one.
async fn notified(urls: &[String], authorities: Option<PathBuf>) -> Report {
    let report = match scrape::Admin::new(authorities.as_deref()) {
        Ok(admin) => admin.report(urls, "/secondaries").await,
        Err(reason) => Err(reason),
    };
    report.unwrap_or_else(|reason| {
        note(format_args!("acknowledgements of secondary servers are unknown: {reason}"));
        Report::default()
    })
}

/// Returns the servers of the configuration, or those that the platform itself verifies.
fn listed(place: &ApiLocation, zones: &Zones, port: Option<u16>) -> Vec<SocketAddr> {
    let servers = &place.settings.nameserver;
    if servers.is_empty() {
        let asked = zones.asked.iter().map(|server| SocketAddr::new(server.ip(), port.unwrap_or(server.port())));
        let asked: Vec<SocketAddr> = asked.collect();
        return if place.is_given("dns.listen") || asked.is_empty() {
            place.settings.dns.listen.clone()
        } else {
            asked
        };
    }
    let addresses = servers.iter().flat_map(|server| &server.addresses);
    addresses.map(|address| SocketAddr::new(*address, port.unwrap_or(DNS_PORT))).collect()
}

/// A zone. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    /// The summary, with the serial from the API's objects or from the zone's file.
    #[serde(flatten)]
    summary: ZoneSummary,
    /// Whether every server has it.
    in_step: bool,
    /// Whether all servers with another serial are ahead: they applied a later change, or published a provisional
    /// serial.
    ahead: bool,
    servers: Vec<Held>,
    /// The secondary servers of the configuration that are notified of the zone.
    secondaries: Vec<SecondaryState>,
}

/// The state of a zone at a secondary server.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct SecondaryState {
    #[serde(flatten)]
    held: Held,
    /// The last serial whose announcement it has acknowledged, if it is known.
    acknowledged: Option<u32>,
    /// The error of the last NOTIFY, if it failed.
    notify_error: Option<String>,
}

/// A server's state of a zone.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Held {
    server: String,
    serial: Option<u32>,
    error: Option<String>,
}

async fn ask(
    zones: &Zones,
    apexes: &[&Name],
    servers: &[SocketAddr],
    (secondaries, report): (&[Secondary], &Report),
) -> Vec<Row> {
    let wanted = |apex: &Name| apexes.is_empty() || apexes.iter().any(|wanted| **wanted == *apex);
    let asked: Vec<_> = zones.zones.iter().filter(|zone| wanted(zone.contents.apex())).collect();
    let has = |secondary: &Secondary, apex: &Name| ZonePattern::any(&secondary.zones, apex);
    let notified: HashMap<(&str, &str), &Notified> = report
        .servers
        .iter()
        .flat_map(|server| server.zones.iter().map(|zone| ((server.server.as_str(), zone.zone.as_str()), zone)))
        .collect();
    let questions = asked.iter().flat_map(|zone| {
        let apex = zone.contents.apex();
        let secondaries = secondaries.iter().filter(move |secondary| has(secondary, apex));
        let all = servers.iter().copied().chain(secondaries.map(|secondary| secondary.address));
        all.map(move |server| (apex.clone(), server))
    });
    let answers = futures::stream::iter(questions).map(|(apex, server)| async move {
        let found = dns_client::serial_on(apex, server, TIMEOUT).await;
        let serial = found.as_ref().ok().map(|serial| serial.0);
        Held { server: server.to_string(), serial, error: found.err().map(|error| error.to_string()) }
    });
    let mut answers = answers.buffered(ASKED_AT_A_TIME).collect::<Vec<Held>>().await.into_iter();
    let mut rows = Vec::with_capacity(asked.len());
    for zone in asked {
        let apex = zone.contents.apex();
        let of_servers: Vec<Held> = answers.by_ref().take(servers.len()).collect();
        let count = secondaries.iter().filter(|secondary| has(secondary, apex)).count();
        let state = |held: Held| {
            let known = notified.get(&(held.server.as_str(), apex.to_string().as_str())).copied();
            let acknowledged = known.and_then(|known| known.acknowledged);
            SecondaryState { acknowledged, notify_error: known.and_then(|known| known.error.clone()), held }
        };
        let of_secondaries = answers.by_ref().take(count).map(state).collect();
        rows.push(Row::new(zone.summary(), of_servers, of_secondaries));
    }
    rows
}

impl Row {
    fn new(summary: ZoneSummary, servers: Vec<Held>, secondaries: Vec<SecondaryState>) -> Row {
        let ZoneSummary { serial, published, .. } = summary;
        // A serial that is not allocated yet is a guess: then all servers must have the same one.
        let reference = if published { serial } else { servers.first().and_then(|held| held.serial) };
        let all = || servers.iter().chain(secondaries.iter().map(|secondary| &secondary.held));
        let in_step = all().all(|held| held.serial.is_some() && held.serial == reference);
        let is_ahead = |held: &Held| match (held.serial, reference) {
            (Some(has), Some(reference)) => has == reference || Serial(has).is_after(Serial(reference)),
            _ => false,
        };
        let ahead = !in_step && published && all().all(is_ahead);
        Row { summary, in_step, ahead, servers, secondaries }
    }
}

fn listing(rows: &[Row], all: bool) -> Listing {
    let mut table = Table::new(COLUMNS).hiding_last();
    for row in rows {
        let ZoneSummary { zone, serial, published, .. } = &row.summary;
        let status = match (row.in_step, row.ahead) {
            (true, _) => Cell::styled(Style::Good, "in step"),
            (false, true) => Cell::styled(Style::Good, "ahead"),
            (false, false) => Cell::styled(Style::Bad, "differs"),
        };
        let shown = |held: &Held| match (held.serial, *serial, &held.error) {
            (Some(has), Some(serial), _) if Serial(serial).is_after(Serial(has)) => {
                format!("{}: {has}, behind by {}", held.server, serial.wrapping_sub(has))
            }
            (Some(has), Some(serial), _) if *published && has != serial => {
                format!("{}: {has}, ahead by {}", held.server, has.wrapping_sub(serial))
            }
            (Some(has), ..) => format!("{}: {has}", held.server),
            (None, _, error) => format!("{}: {}", held.server, error.as_deref().unwrap_or("no serial")),
        };
        let is_shown = |held: &Held| all || held.serial != *serial || held.serial.is_none();
        let secondaries = row.secondaries.iter().filter(|one| is_shown(&one.held) || one.notify_error.is_some());
        let others = row.servers.iter().filter(|held| is_shown(held)).map(shown).chain(secondaries.map(|one| {
            let acknowledged = one.acknowledged.map(|serial| format!(", acknowledged {serial}")).unwrap_or_default();
            let error = one.notify_error.as_ref().map(|error| format!(", NOTIFY: {error}")).unwrap_or_default();
            format!("secondary {}{acknowledged}{error}", shown(&one.held))
        }));
        let others: Vec<String> = others.collect();
        let others = if others.is_empty() {
            format!("all {}", row.servers.len() + row.secondaries.len())
        } else {
            others.join("; ")
        };
        let kind = Cell::from(row.summary.kind);
        table.row([Cell::from(zone.as_str()), row.summary.serial_cell(), status, Cell::from(others), kind]);
    }
    Listing { tables: vec![table], note: rows.is_empty().then(|| "no zones".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::style::Painter;

    #[test]
    fn serials_side_by_side() {
        let servers: Vec<SocketAddr> =
            ["192.0.2.1:53", "192.0.2.2:53"].map(|server| server.parse().expect("an address")).to_vec();
        let row = |zone: &str, published, has: [Option<u32>; 2]| {
            let held = servers.iter().zip(has).map(|(server, serial)| Held {
                server: server.to_string(),
                serial,
                error: serial.is_none().then(|| "REFUSED".to_owned()),
            });
            let summary = ZoneSummary { zone: zone.to_owned(), kind: "file", serial: Some(5), published };
            Row::new(summary, held.collect(), Vec::new())
        };
        let rows = [
            row("c.example.", true, [None, Some(6)]),
            row("d.example.", false, [Some(4), Some(4)]),
            row("e.example.", true, [Some(5), Some(6)]),
            row("f.example.", true, [Some(6), Some(4)]),
        ];
        let expected = "\
ZONE         SERIAL   STATUS    SERVERS
c.example.   5        differs   192.0.2.1:53: REFUSED; 192.0.2.2:53: 6, ahead by 1
d.example.   (5)      in step   192.0.2.1:53: 4, behind by 1; 192.0.2.2:53: 4, behind by 1
e.example.   5        ahead     192.0.2.2:53: 6, ahead by 1
f.example.   5        differs   192.0.2.1:53: 6, ahead by 1; 192.0.2.2:53: 4, behind by 1
";
        let text = |rows: &[Row], all| ListOptions::default().text(listing(rows, all), Painter::PLAIN);
        assert_eq!(text(&rows, false), expected);
        let mut secondary = row("s.example.", true, [Some(5), Some(5)]);
        let held = Held { server: "192.0.2.53:53".to_owned(), serial: Some(3), error: None };
        let notify_error = Some("no response".to_owned());
        let state = SecondaryState { held, acknowledged: Some(4), notify_error };
        secondary = Row::new(secondary.summary, secondary.servers, vec![state]);
        let expected = "\
ZONE         SERIAL   STATUS    SERVERS
s.example.   5        differs   secondary 192.0.2.53:53: 3, behind by 2, acknowledged 4, NOTIFY: no response
";
        assert_eq!(text(&[secondary], false), expected);
        let equal = [row("a.example.", true, [Some(5), Some(5)])];
        let expected = "\
ZONE         SERIAL   STATUS    SERVERS
a.example.   5        in step   192.0.2.1:53: 5; 192.0.2.2:53: 5
";
        assert_eq!(text(&equal, true), expected);
    }
}
