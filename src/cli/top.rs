//! `signpost top`: queries a second by shard, response code and transport, from the counters of running processes.
//!
//! On a terminal the screen is drawn anew at each interval, until Ctrl-C; elsewhere a line a turn is printed, which
//! other programs can read. Between two turns it waits; nothing of it reaches a query thread.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde::Serialize;

use super::output::{self, Format};
use super::rates::{Rates, largest, number};
use super::scrape::{self, Admin, Scrape, Target};
use super::style::{Painter, Style, harmless};
use super::{Exit, Outcome, access, print, serve};

/// Longest time between two turns, in seconds.
const INTERVAL_MAX: f64 = 3_600.0;
/// How long it goes on: until it is interrupted.
const EVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Lines of a terminal that does not say how many it has.
const LINES_ASSUMED: usize = 24;
/// Columns of such a terminal.
const COLUMNS_ASSUMED: usize = 80;
/// Lines that are not zones: heading, totals, processes' faults, blanks.
const LINES_OF_FRAME: usize = 10;
/// Octets of the longest bar.
const BAR: usize = 30;

pub(super) fn command() -> Command {
    let interval = Arg::new("interval")
        .long("interval")
        .value_name("SECONDS")
        .default_value("2")
        .value_parser(|text: &str| match text.parse::<f64>() {
            Ok(seconds) if (0.1..=INTERVAL_MAX).contains(&seconds) => Ok(seconds),
            _ => Err("must be a number of seconds from 0.1 to 3600"),
        })
        .help("Time between two looks");
    let once = Arg::new("once").long("once").action(ArgAction::SetTrue).help("Prints one turn in full and ends");
    let turns = Arg::new("count")
        .long("count")
        .value_name("N")
        .value_parser(value_parser!(u64).range(1..))
        .conflicts_with("once")
        .help("Ends after so many turns");
    Command::new("top")
        .about("Show queries per second by shard, response code, and transport")
        .after_help(
            "On a terminal the screen is drawn anew at each interval, until Ctrl-C; elsewhere a line a turn is \
             printed, or with -o json and -o yaml a document a turn. Give --admin once for each process; their \
             numbers are added. Exit codes: 0 ended as asked, 1 no process answers, 2 invalid usage.",
        )
        .args(scrape::arguments())
        .args(serve::arguments_of(&["data-dir"]))
        .args([interval, once, turns])
        .arg(output::argument())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let format = Format::of(matches);
    let turns = if matches.get_flag("once") { Some(1) } else { matches.get_one::<u64>("count").copied() };
    let Target { urls, authorities } = scrape::target(matches)?;
    let watch = Watch {
        urls,
        authorities,
        interval: Duration::from_secs_f64(*matches.get_one::<f64>("interval").expect("it has a default")),
        turns,
        format,
        once: matches.get_flag("once"),
        screen: format == Format::Table && !matches.get_flag("once") && stdout().is_terminal(),
    };
    access::run(EVER, watch.run())?;
    Ok(Exit::Success)
}

/// What is watched, and how it is shown.
struct Watch {
    urls: Vec<String>,
    authorities: Option<PathBuf>,
    interval: Duration,
    turns: Option<u64>,
    format: Format,
    once: bool,
    screen: bool,
}

impl Watch {
    async fn run(&self) -> Result<(), String> {
        let admin = Admin::new(self.authorities.as_deref())?;
        let mut before = self.look(&admin).await;
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
                // Its way of ending on a terminal.
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
            let after = self.look(&admin).await;
            let turned = Turn::new(&self.urls, &before, &after);
            self.show(&turned);
            // What does not answer now is measured from where it answered last.
            for (before, after) in before.iter_mut().zip(after) {
                if after.is_ok() {
                    *before = after;
                }
            }
            turn += 1;
            if self.turns.is_some_and(|turns| turn >= turns) {
                return Ok(());
            }
        }
    }

    async fn look(&self, admin: &Admin) -> Vec<Result<Scrape, String>> {
        futures::future::join_all(self.urls.iter().map(|url| admin.scrape(url))).await
    }

    fn show(&self, turn: &Turn) {
        let painter = Painter::of_stdout();
        if self.screen {
            let size = terminal_size::terminal_size();
            let (columns, lines) =
                size.map_or((COLUMNS_ASSUMED, LINES_ASSUMED), |(width, height)| (width.0.into(), height.0.into()));
            print(&format!("\x1b[H\x1b[2J{}", turn.page(lines, columns, painter)));
            return;
        }
        let text = self.format.render(turn, || match self.once {
            true => turn.page(usize::MAX, usize::MAX, painter),
            false => turn.line(),
        });
        print(&if self.format == Format::Yaml { format!("---\n{text}") } else { text });
    }
}

/// The terminal's other screen, without a cursor; dropping it brings back what was there.
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
        // Nobody is left to see it if this fails.
        let _ = out.write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| out.flush());
    }
}

/// One turn. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Turn {
    /// Processes that answered.
    processes: usize,
    /// What those that did not say.
    errors: Vec<String>,
    /// By the second, of all processes together.
    rates: Rates,
}

impl Turn {
    fn new(urls: &[String], before: &[Result<Scrape, String>], after: &[Result<Scrape, String>]) -> Turn {
        let mut turn = Turn { processes: 0, errors: Vec::new(), rates: Rates::default() };
        for ((url, before), after) in urls.iter().zip(before).zip(after) {
            match (before, after) {
                (_, Err(error)) => turn.errors.push(error.clone()),
                (Err(_), Ok(_)) => turn.errors.push(format!("{url} answers again, and is counted from now on")),
                (Ok(before), Ok(after)) => {
                    turn.processes += 1;
                    turn.rates.add(&Rates::between(before, after));
                }
            }
        }
        turn
    }

    /// A line for other programs and for logs.
    fn line(&self) -> String {
        let Rates { queries, unbound, dropped, rate_limited, rcodes, transports, .. } = &self.rates;
        let mut parts = vec![format!("qps={}", number(*queries))];
        for rates in [rcodes, transports] {
            parts.extend(largest(rates).into_iter().map(|(key, rate)| format!("{key}={}", number(rate))));
        }
        for (name, rate) in [("unbound", *unbound), ("dropped", *dropped), ("limited", *rate_limited)] {
            if rate > 0.0 {
                parts.push(format!("{name}={}", number(rate)));
            }
        }
        parts.extend(self.errors.iter().map(|error| format!("error={:?}", harmless(error))));
        parts.join(" ") + "\n"
    }

    /// The screen, in at most so many lines and columns.
    fn page(&self, lines: usize, columns: usize, painter: Painter) -> String {
        let Rates { queries, unbound, dropped, rate_limited, rcodes, transports, zones } = &self.rates;
        let share = |rates| -> String {
            let parts = largest(rates).into_iter().map(|(name, rate)| format!("{name} {}", number(rate)));
            let parts: Vec<String> = parts.collect();
            if parts.is_empty() { "-".to_owned() } else { parts.join("   ") }
        };
        let heading = |name: &str| painter.paint(Style::Strong, &format!("{name:<12}"));
        let plural = if self.processes == 1 { "" } else { "es" };
        let mut page: Vec<String> = vec![
            format!("{}{} queries/s of {} process{plural}", heading("queries"), number(*queries), self.processes),
            format!("{}{}", heading("codes"), cut(&share(rcodes), columns.saturating_sub(12))),
            format!("{}{}", heading("transports"), cut(&share(transports), columns.saturating_sub(12))),
        ];
        if *dropped > 0.0 || *rate_limited > 0.0 {
            let text = format!("{} dropped/s   {} over the rate limit/s", number(*dropped), number(*rate_limited));
            page.push(format!("{}{}", heading("held back"), painter.paint(Style::Warning, &text)));
        }
        if *unbound > 0.0 {
            page.push(format!(
                "{}{} for names without a Route (signpost zone unbound)",
                heading("unbound"),
                number(*unbound)
            ));
        }
        page.extend(self.errors.iter().map(|error| painter.paint(Style::Bad, &cut(&harmless(error), columns))));
        page.push(String::new());
        let zones = largest(zones);
        let room = lines.saturating_sub(LINES_OF_FRAME.max(page.len() + 3));
        let shown = &zones[..zones.len().min(room)];
        let width = shown.iter().map(|(zone, _)| zone.chars().count()).max().unwrap_or(0).max(4);
        page.push(painter.paint(Style::Strong, &format!("{:<width$}   {:>10}", "ZONE", "QUERIES/S")));
        let most = shown.first().map_or(1.0, |(_, rate)| *rate);
        for (zone, rate) in shown {
            let bar = "▇".repeat(((rate / most) * BAR as f64).round() as usize);
            let line = format!("{:<width$}   {:>10}   {bar}", harmless(zone), number(*rate));
            page.push(cut(&line, columns));
        }
        if zones.len() > shown.len() {
            let rest: f64 = zones[shown.len()..].iter().map(|(_, rate)| rate).sum();
            page.push(format!("and {} more zones with {} queries/s", zones.len() - shown.len(), number(rest)));
        }
        page.join("\n") + "\n"
    }
}

/// The first so many characters.
fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn turn(zones: usize) -> Turn {
        let map = |parts: &[(&str, f64)]| parts.iter().map(|(name, rate)| ((*name).to_owned(), *rate)).collect();
        let zones: BTreeMap<String, f64> =
            (0..zones).map(|n| (format!("shard{n}.v3.example."), 2.0 * n as f64)).collect();
        Turn {
            processes: 2,
            errors: vec!["http://x does not answer: refused (--admin)".to_owned()],
            rates: Rates {
                queries: 120.5,
                rcodes: map(&[("NOERROR", 100.0), ("NXDOMAIN", 20.5)]),
                transports: map(&[("udp", 120.0), ("tcp", 0.5)]),
                zones,
                unbound: 0.25,
                dropped: 0.0,
                rate_limited: 3.0,
            },
        }
    }

    #[test]
    fn a_line_a_turn() {
        let expected = "qps=120.5 NOERROR=100.0 NXDOMAIN=20.5 udp=120.0 tcp=0.50 unbound=0.25 limited=3.00 \
            error=\"http://x does not answer: refused (--admin)\"\n";
        assert_eq!(turn(3).line(), expected);
    }

    #[test]
    fn a_page_fits_its_screen() {
        let page = turn(3).page(usize::MAX, usize::MAX, Painter::PLAIN);
        let expected = "\
queries     120.5 queries/s of 2 processes
codes       NOERROR 100.0   NXDOMAIN 20.5
transports  udp 120.0   tcp 0.50
held back   0 dropped/s   3.00 over the rate limit/s
unbound     0.25 for names without a Route (signpost zone unbound)
http://x does not answer: refused (--admin)

ZONE                  QUERIES/S
shard2.v3.example.         4.00   ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇
shard1.v3.example.         2.00   ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇
shard0.v3.example.            0   
";
        assert_eq!(page, expected);
        for (lines, columns) in [(24, 80), (12, 40), (5, 20)] {
            let page = turn(100).page(lines, columns, Painter::PLAIN);
            assert!(page.lines().count() <= lines.max(10), "{lines}: {page}");
            assert!(page.lines().skip(7).all(|line| line.chars().count() <= columns.max(40)), "{columns}: {page}");
            assert!(page.contains("more zones with"), "{page}");
        }
    }

    #[test]
    fn processes_are_added_and_silence_is_told() {
        let start = Instant::now();
        let scrape = |seconds, count: u32| {
            let text = format!("signpost_dns_requests_total{{transport=\"udp\"}} {count}\n");
            Ok(Scrape::of_text(start + Duration::from_secs(seconds), &text))
        };
        let urls = ["a", "b", "c"].map(str::to_owned);
        let before = [scrape(0, 0), scrape(0, 10), Err("c is silent".to_owned())];
        let after = [scrape(2, 10), scrape(2, 20), Err("c is silent".to_owned())];
        let turn = Turn::new(&urls, &before, &after);
        assert_eq!((turn.processes, turn.rates.queries), (2, 10.0));
        assert_eq!(turn.errors, ["c is silent"]);
        let turn = Turn::new(&urls, &before, &[scrape(2, 10), scrape(2, 20), scrape(2, 5)]);
        assert_eq!(turn.errors, ["c answers again, and is counted from now on"]);
    }
}
