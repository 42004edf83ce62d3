//! `signpost top`: queries per second by shard, response code and transport, and instances of Routers, from the metrics
//! of running processes.
//!
//! On a terminal, the screen refreshes at each interval, until Ctrl-C. Otherwise, each interval prints a line that
//! other programs can parse. The command only reads metrics, and does not affect query threads.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Command, value_parser};
use serde::Serialize;

use super::output::{self, Format};
use super::rates::{Rates, largest, number};
use super::scrape::{self, Admin, Scrape, Target};
use super::style::{Painter, Style, harmless};
use super::table::{Cell, Properties, Table};
use super::{Exit, Outcome, access, option, print, serve, switch};

/// The longest time between two turns, in seconds.
const INTERVAL_MAX: f64 = 3_600.0;
/// The time limit of the command, which ends when it is interrupted.
const EVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Length of the longest bar.
const BAR: usize = 30;
/// The columns next to zone and bar: the rate, and the gaps.
const BESIDE_BAR: usize = 18;

pub(super) fn command() -> Command {
    let interval = option("interval", "SECONDS")
        .default_value("2")
        .value_parser(|text: &str| match text.parse::<f64>() {
            Ok(seconds) if (0.1..=INTERVAL_MAX).contains(&seconds) => Ok(seconds),
            _ => Err("must be a number of seconds from 0.1 to 3600"),
        })
        .help("The time between refreshes");
    let once = switch("once").help("Print one full page and exit");
    let refreshes = option("count", "N")
        .value_parser(value_parser!(u64).range(1..))
        .conflicts_with("once")
        .help("Exit after N refreshes");
    Command::new("top")
        .about("Show queries per second by shard, response code, and transport, and the instances of Routers")
        .after_help(
            "On a terminal, the screen refreshes at each interval, until Ctrl-C. Otherwise, the command prints a line \
             at each interval, or a document with -o json and -o yaml. Give --admin once for each process; the command \
             adds their numbers. The instances of Routers come from the leader. LAG is the number of Routes that an \
             instance has not applied yet. Exit codes: 0 ended on request, 1 no process answers, 2 invalid usage.",
        )
        .args(scrape::arguments())
        .args(serve::arguments_of(&["data-dir"]))
        .args([interval, once, refreshes])
        .arg(output::argument())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let format = Format::of(matches);
    let refreshes = if matches.get_flag("once") { Some(1) } else { matches.get_one::<u64>("count").copied() };
    let Target { urls, authorities } = scrape::target(matches)?;
    let watch = Watch {
        urls,
        authorities,
        interval: Duration::from_secs_f64(*matches.get_one::<f64>("interval").expect("it has a default")),
        refreshes,
        format,
        once: matches.get_flag("once"),
        screen: format == Format::Table && !matches.get_flag("once") && stdout().is_terminal(),
    };
    access::run(EVER, watch.run())?;
    Ok(Exit::Success)
}

/// The watched processes, and the form of the output.
struct Watch {
    urls: Vec<String>,
    authorities: Option<PathBuf>,
    interval: Duration,
    refreshes: Option<u64>,
    format: Format,
    once: bool,
    screen: bool,
}

impl Watch {
    async fn run(&self) -> Result<(), String> {
        let admin = Admin::new(self.authorities.as_deref())?;
        let mut before = self.scrape_all(&admin).await;
        if before.iter().all(Result::is_err) {
            return Err(before.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("\n"));
        }
        let _screen = self.screen.then(Screen::enter);
        let mut turn = 0;
        let mut due = Instant::now();
        loop {
            due += self.interval;
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                // Ctrl-C ends it on a terminal.
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
            let after = self.scrape_all(&admin).await;
            let turned = Refresh::new(&self.urls, &before, &after);
            self.show(&turned);
            // What does not answer now is measured from where it answered last.
            for (before, after) in before.iter_mut().zip(after) {
                if after.is_ok() {
                    *before = after;
                }
            }
            turn += 1;
            if self.refreshes.is_some_and(|refreshes| turn >= refreshes) {
                return Ok(());
            }
        }
    }

    async fn scrape_all(&self, admin: &Admin) -> Vec<Result<Scrape, String>> {
        futures::future::join_all(self.urls.iter().map(|url| admin.scrape(url))).await
    }

    fn show(&self, turn: &Refresh) {
        let painter = Painter::of_stdout();
        if self.screen {
            output::redraw(&turn.page(output::screen_lines(), painter));
            return;
        }
        let text = self.format.render(turn, || match self.once {
            true => turn.page(usize::MAX, painter),
            false => turn.line(),
        });
        print(&if self.format == Format::Yaml { format!("---\n{text}") } else { text });
    }
}

/// The terminal's other screen, without a cursor; dropping it restores the previous contents.
struct Screen;

impl Screen {
    fn enter() -> Screen {
        print("\x1b[?1049h\x1b[?25l");
        Screen
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = stdout();
        // A failure of this cannot be reported.
        let _ = out.write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| out.flush());
    }
}

/// One turn. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Refresh {
    /// Processes that answered.
    processes: usize,
    /// The errors of the processes that did not answer.
    errors: Vec<String>,
    /// The rates per second, of all processes together.
    rates: Rates,
    /// The instances of Routers, as the process that leads knows them.
    routers: BTreeMap<String, RouterInstances>,
}

/// The instances of a Router.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct RouterInstances {
    /// The instances by state: serving, leaving, expired.
    states: BTreeMap<String, u64>,
    /// The Routes that an instance that serves has not applied.
    unapplied_routes: u64,
    /// The Routes and certificates that an instance does not, or not wholly, serve.
    faults: u64,
}

impl RouterInstances {
    fn add(routers: &mut BTreeMap<String, RouterInstances>, scrape: &Scrape) {
        let count = |value: f64| value as u64;
        for sample in scrape.of("signpost_router_instances") {
            let (Some(router), Some(state)) = (sample.labels.get("router"), sample.labels.get("state")) else {
                continue;
            };
            let states = &mut routers.entry(router.clone()).or_default().states;
            *states.entry(state.clone()).or_default() += count(sample.value);
        }
        // Of Routers without instances, nothing is shown.
        for (router, value) in scrape.by("signpost_router_unapplied_routes", "router") {
            routers.entry(router).and_modify(|router| router.unapplied_routes += count(value));
        }
        for (router, value) in scrape.by("signpost_router_instance_faults", "router") {
            routers.entry(router).and_modify(|router| router.faults += count(value));
        }
        routers.retain(|_, router| router.states.values().any(|count| *count > 0));
    }

    /// Returns the number of instances by state, without states that have none.
    fn text(&self) -> String {
        let states = ["serving", "leaving", "expired"].iter().filter_map(|state| {
            let count = self.states.get(*state).filter(|count| **count > 0)?;
            Some(format!("{count} {state}"))
        });
        states.collect::<Vec<_>>().join(", ")
    }
}

impl Refresh {
    fn new(urls: &[String], before: &[Result<Scrape, String>], after: &[Result<Scrape, String>]) -> Refresh {
        let mut turn = Refresh { processes: 0, errors: Vec::new(), rates: Rates::default(), routers: BTreeMap::new() };
        for ((url, before), after) in urls.iter().zip(before).zip(after) {
            match (before, after) {
                (_, Err(error)) => turn.errors.push(error.clone()),
                (Err(_), Ok(_)) => {
                    turn.errors.push(format!("{url} answers again; its rates start with the next refresh"));
                }
                (Ok(before), Ok(after)) => {
                    turn.processes += 1;
                    turn.rates.add(&Rates::between(before, after));
                    RouterInstances::add(&mut turn.routers, after);
                }
            }
        }
        turn
    }

    /// Returns a line for other programs and for logs.
    fn line(&self) -> String {
        let Rates { queries, unrouted, dropped, rate_limited, rcodes, transports, .. } = &self.rates;
        let mut parts = vec![format!("qps={}", number(*queries))];
        for rates in [rcodes, transports] {
            parts.extend(largest(rates).into_iter().map(|(key, rate)| format!("{key}={}", number(rate))));
        }
        for (name, rate) in [("unrouted", *unrouted), ("dropped", *dropped), ("limited", *rate_limited)] {
            if rate > 0.0 {
                parts.push(format!("{name}={}", number(rate)));
            }
        }
        let lag: u64 = self.routers.values().map(|router| router.unapplied_routes).sum();
        let expired: u64 = self.routers.values().filter_map(|router| router.states.get("expired")).sum();
        for (name, count) in [("lag", lag), ("expired", expired)] {
            if count > 0 {
                parts.push(format!("{name}={count}"));
            }
        }
        parts.extend(self.errors.iter().map(|error| format!("error={:?}", harmless(error))));
        parts.join(" ") + "\n"
    }

    /// Returns the screen, in at most `lines` lines.
    fn page(&self, lines: usize, painter: Painter) -> String {
        let Rates { queries, unrouted, dropped, rate_limited, rcodes, transports, zones } = &self.rates;
        let share = |rates| {
            let parts = largest(rates).into_iter().map(|(name, rate)| format!("{name} {}", number(rate)));
            let parts: Vec<String> = parts.collect();
            Cell::or_dash((!parts.is_empty()).then(|| parts.join(", ")))
        };
        let mut facts = Properties::default();
        let plural = if self.processes == 1 { "" } else { "es" };
        facts.add("queries", format!("{} per second of {} process{plural}", number(*queries), self.processes));
        facts.add("codes", share(rcodes));
        facts.add("transports", share(transports));
        if *dropped > 0.0 || *rate_limited > 0.0 {
            let text = format!("{} dropped, {} over the rate limit", number(*dropped), number(*rate_limited));
            facts.add("held back", Cell::styled(Style::Warning, text));
        }
        if *unrouted > 0.0 {
            facts.add("unrouted", format!("{} for names without a Route (signpost zone unrouted)", number(*unrouted)));
        }
        self.errors.iter().for_each(|error| facts.add("error", Cell::styled(Style::Bad, error.as_str())));
        let mut page = facts.text(painter) + "\n";
        page += &self.instances(lines.saturating_sub(page.lines().count()) / 2, painter);
        let zones = largest(zones);
        // In addition to the zones: the heading, the line about the others, and the cursor's.
        let room = lines.saturating_sub(page.lines().count() + 3).max(1);
        let shown = &zones[..zones.len().min(room)];
        let most = shown.first().map_or(1.0, |(_, rate)| *rate);
        // A bar that wraps would double the lines.
        let longest = shown.iter().map(|(zone, _)| zone.chars().count()).max().unwrap_or(0);
        let bar_max = painter.width().map_or(BAR, |width| width.saturating_sub(longest + BESIDE_BAR).min(BAR));
        let mut table = Table::new(["ZONE", "QUERIES/S", ""]);
        for (zone, rate) in shown {
            let bar = "▇".repeat(((rate / most) * bar_max as f64).round() as usize);
            table.row([Cell::from(*zone), number(*rate).into(), bar.into()]);
        }
        page += &table.text(painter);
        if zones.len() > shown.len() {
            let rest: f64 = zones[shown.len()..].iter().map(|(_, rate)| rate).sum();
            page += &format!("and {} more zones with {} queries/s\n", zones.len() - shown.len(), number(rest));
        }
        page
    }

    /// Returns the table of instances in at most `lines` lines, with an empty line below it; the largest lag first.
    fn instances(&self, lines: usize, painter: Painter) -> String {
        if self.routers.is_empty() || lines < 3 {
            return String::new();
        }
        let mut routers: Vec<_> = self.routers.iter().collect();
        routers.sort_by_key(|(name, router)| (std::cmp::Reverse(router.unapplied_routes), *name));
        let mut table = Table::new(["ROUTER", "INSTANCES", "LAG", "FAULTS"]);
        for (name, router) in routers.iter().take(lines - 2) {
            let count = |count: u64| Cell::from(count.to_string());
            let cells = [router.text().into(), count(router.unapplied_routes), count(router.faults)];
            let [instances, lag, faults] = cells;
            table.row([Cell::from(name.as_str()), instances, lag, faults]);
        }
        table.text(painter) + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(zones: usize) -> Refresh {
        let map = |parts: &[(&str, f64)]| parts.iter().map(|(name, rate)| ((*name).to_owned(), *rate)).collect();
        let zones: BTreeMap<String, f64> =
            (0..zones).map(|n| (format!("shard{n}.v3.example."), 2.0 * n as f64)).collect();
        Refresh {
            processes: 2,
            routers: BTreeMap::new(),
            errors: vec!["http://x does not answer: refused (--admin)".to_owned()],
            rates: Rates {
                queries: 120.5,
                rcodes: map(&[("NOERROR", 100.0), ("NXDOMAIN", 20.5)]),
                transports: map(&[("udp", 120.0), ("tcp", 0.5)]),
                zones,
                unrouted: 0.25,
                dropped: 0.0,
                rate_limited: 3.0,
            },
        }
    }

    #[test]
    fn a_line_a_turn() {
        let expected = "qps=120.5 NOERROR=100.0 NXDOMAIN=20.5 udp=120.0 tcp=0.50 unrouted=0.25 limited=3.00 \
                        error=\"http://x does not answer: refused (--admin)\"\n";
        assert_eq!(turn(3).line(), expected);
    }

    #[test]
    fn a_page_fits_its_screen() {
        let expected = "\
queries      120.5 per second of 2 processes
codes        NOERROR 100.0, NXDOMAIN 20.5
transports   udp 120.0, tcp 0.50
held back    0 dropped, 3.00 over the rate limit
unrouted     0.25 for names without a Route (signpost zone unrouted)
error        http://x does not answer: refused (--admin)

ZONE                 QUERIES/S
shard2.v3.example.   4.00        ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇
shard1.v3.example.   2.00        ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇
shard0.v3.example.   0
";
        assert_eq!(turn(3).page(usize::MAX, Painter::PLAIN), expected);
        for (lines, columns) in [(24, 80), (40, 60)] {
            let page = turn(100).page(lines, Painter::of_width(columns));
            assert!(page.lines().count() < lines, "{lines}: {page}");
            assert!(page.lines().all(|line| line.chars().count() <= columns), "{columns}: {page}");
            assert!(page.contains("more zones with"), "{page}");
        }
    }

    #[test]
    fn processes_are_added_and_silence_is_reported() {
        let start = Instant::now();
        let scrape = |seconds, count: u32| {
            let text = format!("signpost_dns_requests_total{{transport=\"udp\"}} {count}\n");
            Ok(Scrape::of_text(start + Duration::from_secs(seconds), &text))
        };
        let urls = ["a", "b", "c"].map(str::to_owned);
        let before = [scrape(0, 0), scrape(0, 10), Err("c is silent".to_owned())];
        let after = [scrape(2, 10), scrape(2, 20), Err("c is silent".to_owned())];
        let turn = Refresh::new(&urls, &before, &after);
        assert_eq!((turn.processes, turn.rates.queries), (2, 10.0));
        assert_eq!(turn.errors, ["c is silent"]);
        let turn = Refresh::new(&urls, &before, &[scrape(2, 10), scrape(2, 20), scrape(2, 5)]);
        assert_eq!(turn.errors, ["c answers again; its rates start with the next refresh"]);
    }
    #[test]
    fn instances_of_routers() {
        let text = "signpost_router_instances{router=\"a\",state=\"serving\"} 2\n\
                    signpost_router_instances{router=\"a\",state=\"leaving\"} 0\n\
                    signpost_router_instances{router=\"b\",state=\"serving\"} 1\n\
                    signpost_router_instances{router=\"b\",state=\"expired\"} 1\n\
                    signpost_router_instances{router=\"none\",state=\"serving\"} 0\n\
                    signpost_router_instance_faults{router=\"a\"} 3\n\
                    signpost_router_unapplied_routes{router=\"b\"} 12\n";
        let mut page = turn(3);
        RouterInstances::add(&mut page.routers, &Scrape::of_text(Instant::now(), text));
        let expected = "\
ROUTER   INSTANCES              LAG   FAULTS
b        1 serving, 1 expired   12    0
a        2 serving              0     3

";
        assert_eq!(page.instances(usize::MAX, Painter::PLAIN), expected);
        assert_eq!(page.instances(3, Painter::PLAIN).lines().count(), 3);
        assert!(page.line().contains(" lag=12 expired=1 "), "{}", page.line());
        // A screen of 12 lines has room for the zones alone.
        for (lines, has_instances) in [(12, false), (24, true)] {
            let text = page.page(lines, Painter::of_width(80));
            assert!(text.lines().count() < lines && text.contains("ROUTER") == has_instances, "{lines}: {text}");
        }
    }
}
