//! `signpost zone unrouted`: the names without a Route that shards' wildcards answer most, from the counts of running
//! processes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Command, value_parser};
use jiff::Timestamp;

use crate::admin::unrouted::{QueriedName, Report, Zone};
use crate::cli::output::{self, ListOptions, Listing};
use crate::cli::scrape::{self, Admin, Target};
use crate::cli::serve;
use crate::cli::style::Style;
use crate::cli::table::{Cell, Table};
use crate::cli::{Error, Outcome, access, age, complain, file, option, progress};
use signpost_runtime::trust;

/// The time limit for all processes.
const LIMIT: Duration = Duration::from_secs(30);
/// The columns of the table. The last one is for wide output.
const COLUMNS: [&str; 4] = ["name", "requests", "last-queried", "zone"];

pub(super) fn command() -> Command {
    let zone = super::apex_argument().help("List only this zone");
    let names = option("names", "N")
        .value_parser(value_parser!(u16).range(1..))
        .default_value("10")
        .help("The maximum number of names for each zone");
    let token = file(option("token-file", "FILE"))
        .help("The file with the API token of a user who may list Zones; processes on other machines require it");
    Command::new("unrouted")
        .about("List names without a Route that clients query below shards, from the counters of running processes")
        .after_help(
            "The wildcard of a shard answers for every name below it. The command lists the names that no Route has \
             and that clients queried within the last one or two hours: mistyped or deleted names, names that moved \
             long ago, and names that scanners try. A name after \"*.\" represents all names below it. Give --admin \
             once for each process; the command adds their numbers. Exit codes: 0 listed (possibly none), 1 no process \
             answers, 2 invalid usage.",
        )
        .arg(zone)
        .args(scrape::arguments())
        .args(serve::arguments_of(&["data-dir"]))
        .arg(token)
        .arg(names)
        .args(output::list_arguments(COLUMNS))
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    ListOptions::of(matches).show(|| read(matches), |report| listing(report, Timestamp::now()))
}

fn read(matches: &ArgMatches) -> Result<Report, Error> {
    let Target { urls, authorities } = scrape::target(matches)?;
    let reports = access::run(LIMIT, async {
        let admin = Admin::new(authorities.as_deref())?;
        let token = matches.get_one::<PathBuf>("token-file").map(|path| {
            let read = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<_, String>(read.trim().to_owned())
        });
        let token = token.transpose()?;
        if token.is_some()
            && let Some(url) = urls.iter().find(|url| trust::is_readable_on_its_way(url))
        {
            return Err(format!("{url}: plain HTTP exposes the token; use https (admin.tls)"));
        }
        let reports = futures::future::join_all(urls.iter().map(|url| admin.unrouted(url, token.as_deref())));
        Ok(progress::during("querying processes", reports).await)
    })?;
    let (answered, silent): (Vec<_>, Vec<_>) = reports.into_iter().partition(Result::is_ok);
    let mut errors: Vec<String> = silent.into_iter().filter_map(Result::err).collect();
    let last = errors.pop_if(|_| answered.is_empty());
    errors.iter().for_each(complain);
    if let Some(error) = last {
        return Err(error.into());
    }
    let names = usize::from(*matches.get_one::<u16>("names").expect("it has a default"));
    let apex = matches.get_one::<signpost_dns::wire::Name>("apex").map(|apex| apex.to_string().to_ascii_lowercase());
    let mut report = merged(answered.into_iter().flatten());
    report.zones.retain(|zone| apex.as_ref().is_none_or(|apex| zone.zone == *apex));
    report.zones.iter_mut().for_each(|zone| zone.names.truncate(names));
    Ok(report)
}

/// Returns the sums of several processes, since the earliest of their times.
fn merged(reports: impl Iterator<Item = Report>) -> Report {
    let mut since: Option<Timestamp> = None;
    let mut zones: BTreeMap<String, (u64, BTreeMap<String, QueriedName>)> = BTreeMap::new();
    for report in reports {
        since = Some(since.map_or(report.since, |since| since.min(report.since)));
        for zone in report.zones {
            let (requests, names) = zones.entry(zone.zone).or_default();
            *requests += zone.requests;
            for queried in zone.names {
                let sum = names.entry(queried.name.clone()).or_insert_with(|| QueriedName {
                    requests: 0,
                    at_least: 0,
                    ..queried.clone()
                });
                sum.requests += queried.requests;
                sum.at_least += queried.at_least;
                sum.last_queried_time = sum.last_queried_time.max(queried.last_queried_time);
            }
        }
    }
    let zone = |(zone, (requests, names)): (String, (u64, BTreeMap<String, QueriedName>))| {
        let mut names: Vec<QueriedName> = names.into_values().collect();
        names.sort_by_key(|queried| std::cmp::Reverse(queried.requests));
        Zone { zone, requests, names }
    };
    let mut zones: Vec<Zone> = zones.into_iter().map(zone).collect();
    zones.sort_by_key(|zone| std::cmp::Reverse(zone.requests));
    Report { since: since.unwrap_or_default(), zones }
}

fn listing(report: &Report, now: Timestamp) -> Listing {
    let since = age::since(report.since, now);
    let mut table = Table::new(COLUMNS).hiding_last();
    for zone in &report.zones {
        let sum = [Cell::styled(Style::Strong, zone.zone.as_str()), Cell::from(zone.requests.to_string())];
        table.row_of(Vec::new(), sum);
        for queried in &zone.names {
            let requests = match queried.requests == queried.at_least {
                true => Cell::from(queried.requests.to_string()),
                false => Cell::from(format!("{}-{}", queried.at_least, queried.requests)).ranked(queried.requests),
            };
            let last = Cell::from(format!("{} ago", age::since(queried.last_queried_time, now)));
            let last = last.ranked(-queried.last_queried_time.as_second());
            let name = Cell::from(format!("  {}", queried.name));
            table.row_of(vec![queried.name.clone()], [name, requests, last, Cell::from(zone.zone.as_str())]);
        }
    }
    let note = match table.is_empty() {
        true => format!("no queries for names without a Route in the last {since}"),
        false => format!("in the last {since}"),
    };
    Listing { tables: vec![table], note: Some(note) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::style::Painter;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn queried(name: &str, requests: u64, at_least: u64, last: i64) -> QueriedName {
        QueriedName { name: name.to_owned(), requests, at_least, last_queried_time: at(last) }
    }

    fn zone(zone: &str, requests: u64, names: Vec<QueriedName>) -> Zone {
        Zone { zone: zone.to_owned(), requests, names }
    }

    #[test]
    fn processes_are_added() {
        let one = Report {
            since: at(1_000),
            zones: vec![
                zone("s2.example.", 9, vec![queried("a.s2.example.", 9, 9, 1_500)]),
                zone(
                    "s1.example.",
                    4,
                    vec![queried("a.s1.example.", 3, 3, 1_200), queried("b.s1.example.", 1, 1, 1_100)],
                ),
            ],
        };
        let other = Report {
            since: at(900),
            zones: vec![zone(
                "s1.example.",
                8,
                vec![queried("b.s1.example.", 6, 4, 1_300), queried("*.c.s1.example.", 2, 2, 990)],
            )],
        };
        let report = merged([one, other].into_iter());
        let expected = "\
NAME                REQUESTS   LAST QUERIED
s1.example.         12
  b.s1.example.     5-7        11m ago
  a.s1.example.     3          13m ago
  *.c.s1.example.   2          16m ago
s2.example.         9
  a.s2.example.     9          500s ago

in the last 18m
";
        let shown = |report, now| ListOptions::default().text(listing(report, now), Painter::PLAIN);
        assert_eq!(shown(&report, at(2_000)), expected.replace("500s", "8m20s"));
        let nothing = merged(std::iter::once(Report { since: at(2_000), zones: Vec::new() }));
        assert_eq!(shown(&nothing, at(2_060)), "no queries for names without a Route in the last 60s\n");
    }
}
