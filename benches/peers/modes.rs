//! The modes of the comparison: one function per mode, each of which prints a table. The rows of a table are from one run, in
//! interleaved rounds.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::generator::{self, Load, Peers};
use crate::paced;
use crate::servers::{Process, Server, Setup, Usage};
use crate::zones::{ZONES, Zones};

/// The duration of the warm-up of a server and, below, of the measurement in each round.
const WARM: Duration = Duration::from_millis(300);
const MEASURED: Duration = Duration::from_millis(1_500);

/// The maximum time until a server answers at all.
const PATIENCE: Duration = Duration::from_secs(120);

/// The queries per second of the latency measurement: DESIGN.md §10.
const RATE: u32 = 30_000;

/// The hosts of the large zone, the wait for its change to be loaded, and the time after which memory is measured.
const HOSTS: usize = 1_000_000;
const RELOADED: Duration = Duration::from_secs(8);
const SETTLED: Duration = Duration::from_secs(3);

/// Zone changes a second of the storm.
const STORM: u32 = 1_000;

/// One row of a table.
#[derive(Clone)]
struct Row<'a> {
    label: String,
    setup: Setup<'a>,
    peers: Peers,
}

impl<'a> Row<'a> {
    fn new(server: Server, zones: &'a Zones) -> Self {
        let setup = Setup { server, zones, gso: true, dont_fragment: true, guarded: false, changes: 0 };
        Row { label: server.name().to_owned(), setup, peers: Peers::Few }
    }

    fn labelled(mut self, more: &str) -> Self {
        self.label = format!("{}, {more}", self.label);
        self
    }

    fn without_gso(mut self) -> Self {
        self.setup.gso = false;
        self.labelled("no GSO")
    }

    fn without_df(mut self) -> Self {
        self.setup.dont_fragment = false;
        self.labelled("no DF")
    }

    fn guarded(mut self) -> Self {
        self.setup.guarded = true;
        self.labelled("guarded")
    }

    fn load(&self, server: SocketAddr) -> Load {
        Load { server, zones: self.setup.zones.count, peers: self.peers, cookies: self.setup.guarded }
    }
}

/// Processor time a query, of eight clients and of 512.
pub fn cpu() -> std::io::Result<()> {
    let zones = Zones::new(ZONES)?;
    let mut rows = Vec::new();
    for peers in [Peers::Few, Peers::Many] {
        let servers = [Server::Echo, Server::Signpost, Server::Knot, Server::Nsd, Server::Gdnsd];
        let all = servers.into_iter().map(|server| Row::new(server, &zones));
        let plain = Row::new(Server::Signpost, &zones).without_gso();
        let guarded = Row::new(Server::Signpost, &zones).guarded();
        let all = all.chain([guarded, plain.clone(), plain.without_df()]);
        rows.extend(all.map(|row| Row { peers, ..row }.labelled(&format!("{} peers", peers.count()))));
    }
    rows.retain(|row| is_wanted(&row.label));
    costs(&rows).map(|_| ())
}

/// Returns whether the row is among those that `PEERS_ROWS` names, each by a part of its label; without it all are.
fn is_wanted(label: &str) -> bool {
    std::env::var("PEERS_ROWS").map_or(true, |parts| parts.split(';').any(|part| label.contains(part)))
}

/// Processor time a query with few zones and with many.
pub fn zones() -> std::io::Result<()> {
    let sets = [Zones::new(100)?, Zones::new(ZONES)?, Zones::new(100_000)?];
    let rows: Vec<Row<'_>> = [Peers::Few, Peers::Many]
        .into_iter()
        .flat_map(|peers| sets.iter().map(move |zones| (peers, zones)))
        .map(|(peers, zones)| {
            let what = format!("{} zones, {} peers", zones.count, peers.count());
            Row { peers, ..Row::new(Server::Signpost, zones) }.labelled(&what)
        })
        .collect();
    let costs = costs(&rows)?;
    for row in [0, 3] {
        println!("{} against {}: {:.2}", rows[row + 2].label, rows[row].label, costs[row + 2] / costs[row]);
    }
    Ok(())
}

/// Measures the latency of answers at a fixed rate.
pub fn latency() -> std::io::Result<()> {
    let zones = Zones::new(ZONES)?;
    let servers = [Server::Signpost, Server::Knot, Server::Nsd, Server::Gdnsd];
    let rows: Vec<Row<'_>> = servers.into_iter().map(|server| Row::new(server, &zones)).collect();
    latencies(&rows)
}

/// Measures the effect of a publisher on the same CPU as the queries.
pub fn storm() -> std::io::Result<()> {
    let zones = Zones::new(100_000)?;
    let mut stormy = Row::new(Server::Signpost, &zones);
    stormy.setup.changes = STORM;
    let rows = [Row::new(Server::Signpost, &zones).labelled("calm"), stormy.labelled("storm")];
    costs(&rows)?;
    latencies(&rows)
}

/// Measures the time from the start of the process until a thousand consecutive queries are answered correctly.
pub fn start() -> std::io::Result<()> {
    let zones = Zones::new(100_000)?;
    let servers = [Server::Signpost, Server::Nsd, Server::Knot, Server::Gdnsd];
    let rows: Vec<Row<'_>> = servers.into_iter().map(|server| Row::new(server, &zones)).collect();
    let results = interleaved(&rows, 3, |row, address| {
        let Some(process) = Process::spawn(row.setup, address)? else { return Ok(None) };
        let took = process.wait(row.load(address), PATIENCE)?;
        Ok(Some((took, process.usage())))
    })?;
    println!("{:<36} {:>9} {:>9} {:>9}", "100,000 zone files", "start s", "CPU s", "RSS MiB");
    for (row, results) in rows.iter().zip(results).filter(|(_, results)| !results.is_empty()) {
        println!(
            "{:<36} {:>9.2} {:>9.2} {:>9.1}",
            row.label,
            middle(results.iter().map(|(took, _)| took.as_secs_f64())),
            middle(results.iter().map(|(_, usage)| usage.cpu.as_secs_f64())),
            middle(results.iter().map(|(_, usage)| usage.resident_octets as f64 / 1_048_576.0)),
        );
    }
    Ok(())
}

/// Measures the load of one zone of a million records: at the start, and for Signpost again when its file has changed.
pub fn large() -> std::io::Result<()> {
    let zones = Zones::with_hosts(1, HOSTS)?;
    let rows = [Server::Signpost, Server::Nsd, Server::Knot].map(|server| Row::new(server, &zones));
    let figures = |process: &Process, before: Duration| {
        // The allocator has returned what it returns.
        std::thread::sleep(SETTLED);
        let usage = process.usage();
        let mib = |octets: u64| octets as f64 / 1_048_576.0;
        [(usage.cpu - before).as_secs_f64(), mib(usage.peak_octets), mib(usage.resident_octets)]
    };
    let results = interleaved(&rows, 3, |row, address| {
        let Some(process) = Process::spawn(row.setup, address)? else { return Ok(None) };
        process.wait(row.load(address), PATIENCE)?;
        let start = figures(&process, Duration::ZERO);
        let reload = if row.setup.server == Server::Signpost {
            let before = process.usage().cpu;
            zones.change(0)?;
            std::thread::sleep(RELOADED);
            figures(&process, before)
        } else {
            [f64::NAN; 3]
        };
        Ok(Some([start, reload]))
    })?;
    println!("{:<36} {:>9} {:>9} {:>9}", "one zone of a million records", "CPU s", "peak MiB", "RSS MiB");
    for (row, results) in rows.iter().zip(results).filter(|(_, results)| !results.is_empty()) {
        for (part, what) in ["start", "reload"].into_iter().enumerate() {
            let of = |column: usize| middle(results.iter().map(|result| result[part][column]));
            if !of(0).is_nan() {
                let label = format!("{}, {what}", row.label);
                println!("{label:<36} {:>9.2} {:>9.1} {:>9.1}", of(0), of(1), of(2));
            }
        }
    }
    Ok(())
}

/// One round's figures of one row.
struct Costs {
    cpu_us: f64,
    user_share: f64,
    queries_per_second: f64,
    resident_mib: f64,
    wrong: u64,
    lost: u64,
}

/// Measures and prints processor time a query; returns its medians.
fn costs(rows: &[Row<'_>]) -> std::io::Result<Vec<f64>> {
    let all = interleaved(rows, 5, cost)?;
    println!(
        "{:<36} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6}",
        "", "CPU µs", "user µs", "user %", "queries/s", "RSS MiB", "wrong", "lost"
    );
    let mut medians = Vec::new();
    for (row, figures) in rows.iter().zip(&all) {
        let median = |of: fn(&Costs) -> f64| middle(figures.iter().map(of));
        medians.push(median(|figure| figure.cpu_us));
        if figures.is_empty() {
            continue;
        }
        println!(
            "{:<36} {:>9.2} {:>9.2} {:>9.0} {:>9.0} {:>9.1} {:>6} {:>6}",
            row.label,
            median(|figure| figure.cpu_us),
            median(|figure| figure.cpu_us * figure.user_share),
            median(|figure| figure.user_share * 100.0),
            median(|figure| figure.queries_per_second),
            median(|figure| figure.resident_mib),
            figures.iter().map(|figure| figure.wrong).sum::<u64>(),
            figures.iter().map(|figure| figure.lost).sum::<u64>(),
        );
    }
    Ok(medians)
}

fn cost(row: &Row<'_>, address: SocketAddr) -> std::io::Result<Option<Costs>> {
    let Some(process) = Process::spawn(row.setup, address)? else { return Ok(None) };
    let load = row.load(address);
    process.wait(load, PATIENCE)?;
    generator::run(load, WARM);
    let before = process.usage();
    let report = generator::run(load, MEASURED);
    let after = process.usage();
    let echo = row.setup.server == Server::Echo;
    let answers = if echo { report.answered + report.wrong } else { report.answered };
    let ticks = |usage: Usage| (usage.user_ticks, usage.user_ticks + usage.system_ticks);
    let ((user, all), (user_before, all_before)) = (ticks(after), ticks(before));
    Ok(Some(Costs {
        cpu_us: (after.cpu - before.cpu).as_secs_f64() * 1e6 / answers.max(1) as f64,
        user_share: (user - user_before) as f64 / (all - all_before).max(1) as f64,
        queries_per_second: answers as f64 / report.took.as_secs_f64(),
        resident_mib: after.resident_octets as f64 / 1_048_576.0,
        wrong: if echo { 0 } else { report.wrong },
        lost: report.lost,
    }))
}

/// Measures and prints times of answers at a fixed rate.
fn latencies(rows: &[Row<'_>]) -> std::io::Result<()> {
    let all = interleaved(rows, 5, |row, address| {
        let Some(process) = Process::spawn(row.setup, address)? else { return Ok(None) };
        let load = row.load(address);
        process.wait(load, PATIENCE)?;
        generator::run(load, WARM);
        Ok(Some(paced::run(load, RATE, MEASURED)))
    })?;
    println!(
        "{:<36} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6}",
        format!("{RATE} queries/s"),
        "p50 µs",
        "p99 µs",
        "p999 µs",
        "most µs",
        "queries",
        "missed",
        "late %"
    );
    for (row, rounds) in rows.iter().zip(&all).filter(|(_, rounds)| !rounds.is_empty()) {
        let of = |share: f64| middle(rounds.iter().map(|round| round.quantile(share)));
        let asked: usize = rounds.iter().map(|round| round.asked).sum();
        println!(
            "{:<36} {:>9.1} {:>9.1} {:>9.1} {:>9.0} {:>9} {:>6} {:>6.2}",
            row.label,
            of(0.5),
            of(0.99),
            of(0.999),
            of(1.0),
            asked,
            asked - rounds.iter().map(|round| round.times.len()).sum::<usize>(),
            rounds.iter().map(|round| round.late).sum::<usize>() as f64 * 100.0 / asked as f64,
        );
    }
    Ok(())
}

/// Runs the same step for every row in each round, so that other load on the machine affects all rows alike.
fn interleaved<T>(
    rows: &[Row<'_>],
    rounds: usize,
    measure: impl Fn(&Row<'_>, SocketAddr) -> std::io::Result<Option<T>>,
) -> std::io::Result<Vec<Vec<T>>> {
    let rounds = std::env::var("PEERS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(rounds);
    // Always the same port, since they run one at a time.
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let mut results: Vec<Vec<T>> = rows.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (row, results) in rows.iter().zip(&mut results) {
            match measure(row, SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
                Ok(Some(result)) => results.push(result),
                Ok(None) if round == 0 => println!("{} is not installed", row.label),
                Ok(None) => {}
                Err(error) => println!("{}: {error}", row.label),
            }
        }
    }
    Ok(results)
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
