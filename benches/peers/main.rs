//! CPU a query beside Knot, NSD and gdnsd; see README.md in this folder.

mod generator;
mod servers;
mod zones;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use signpost::nameserver::Settings;
use signpost::nameserver::cookie::{Cookies, Secret};
use signpost::nameserver::rrl::RateLimit;
use signpost::sys::cpu;
use signpost::sys::datagrams::{BATCH_MAX, Batch, Wait};
use signpost::transport::{self, Config, LiveSettings};
use signpost::zone::db::ZoneDb;

use servers::{Process, Server, Usage};

/// How long a server is warmed up, and how long it is measured in each round.
const WARM: Duration = Duration::from_millis(300);
const MEASURED: Duration = Duration::from_millis(1_500);

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let served = |flag: &str| -> Option<SocketAddr> {
        let place = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(place + 1)?.parse().ok()
    };
    if let Some(address) = served("--serve-zones") {
        return serve_zones(address, arguments.iter().any(|argument| argument == "--guard"));
    }
    if let Some(address) = served("--serve-echo") {
        return serve_echo(address);
    }
    compare()
}

/// One round's figures of one server.
struct Figures {
    cpu_us: f64,
    user_share: f64,
    queries_per_second: f64,
    resident_mib: f64,
    wrong: u64,
    lost: u64,
}

fn compare() -> std::io::Result<()> {
    let rounds: usize = std::env::var("PEERS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    // The generator stays on the second processor, the servers on the first.
    cpu::pin(1)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port()));
    let mut figures: Vec<Vec<Figures>> = Server::ALL.map(|_| Vec::new()).into();
    for round in 0..rounds {
        for (server, figures) in Server::ALL.into_iter().zip(&mut figures) {
            match measure(server, address) {
                Ok(Some(figure)) => figures.push(figure),
                Ok(None) if round == 0 => println!("{:<9} is not installed", server.name()),
                Ok(None) => {}
                Err(error) => println!("{:<9} {error}", server.name()),
            }
        }
    }
    println!(
        "{:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6}",
        "", "CPU µs", "user µs", "user %", "queries/s", "RSS MiB", "wrong", "lost"
    );
    for (server, figures) in Server::ALL.into_iter().zip(&figures).filter(|(_, figures)| !figures.is_empty()) {
        let middle = |of: fn(&Figures) -> f64| {
            let mut values: Vec<f64> = figures.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!(
            "{:<9} {:>9.2} {:>9.2} {:>9.0} {:>9.0} {:>9.1} {:>6} {:>6}",
            server.name(),
            middle(|figure| figure.cpu_us),
            middle(|figure| figure.cpu_us * figure.user_share),
            middle(|figure| figure.user_share * 100.0),
            middle(|figure| figure.queries_per_second),
            middle(|figure| figure.resident_mib),
            figures.iter().map(|figure| figure.wrong).sum::<u64>(),
            figures.iter().map(|figure| figure.lost).sum::<u64>(),
        );
    }
    Ok(())
}

fn measure(server: Server, address: SocketAddr) -> std::io::Result<Option<Figures>> {
    let Some(process) = Process::start(server, address)? else { return Ok(None) };
    let cookies = server == Server::Guarded;
    generator::run(address, WARM, cookies);
    let before = process.usage();
    let report = generator::run(address, MEASURED, cookies);
    let after = process.usage();
    let answers = if server == Server::Echo { report.answered + report.wrong } else { report.answered };
    let ticks = |usage: Usage| (usage.user_ticks, usage.user_ticks + usage.system_ticks);
    let ((user, all), (user_before, all_before)) = (ticks(after), ticks(before));
    Ok(Some(Figures {
        cpu_us: (after.cpu - before.cpu).as_secs_f64() * 1e6 / answers.max(1) as f64,
        user_share: (user - user_before) as f64 / (all - all_before).max(1) as f64,
        queries_per_second: answers as f64 / report.took.as_secs_f64(),
        resident_mib: after.resident_octets as f64 / 1_048_576.0,
        wrong: if server == Server::Echo { 0 } else { report.wrong },
        lost: report.lost,
    }))
}

/// Our data plane as a process of its own.
fn serve_zones(address: SocketAddr, guard: bool) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let db = ZoneDb::new();
    db.publish_many(zones::compiled());
    db.set_ready();
    let limit = || RateLimit { per_second: 1_000_000, ..RateLimit::default() };
    let cookies = || Cookies { first: Secret::new([7; 16]), others: Box::default(), required: false };
    let settings = Settings { cookies: guard.then(cookies), rate_limit: guard.then(limit), ..Settings::default() };
    let settings: LiveSettings = Arc::new(ArcSwap::from_pointee(settings));
    let config = Config { addresses: vec![address], udp_workers: 1, ..Config::default() };
    runtime.block_on(async {
        let bound = transport::bind(&config).map_err(std::io::Error::other)?;
        let _running = bound.start(&db, &settings)?;
        // Until killed.
        std::future::pending::<()>().await;
        Ok(())
    })
}

/// Sends back each datagram, lengthened to the size of a middling answer.
fn serve_echo(address: SocketAddr) -> std::io::Result<()> {
    let socket = UdpSocket::bind(address)?;
    let mut batch = Batch::new();
    loop {
        let received = batch.receive(socket.as_fd(), Wait::ForOne)?;
        let mut slots = [0; BATCH_MAX];
        batch.each().zip(&mut slots).for_each(|(datagram, slot)| *slot = datagram.slot);
        slots[..received].iter().for_each(|slot| batch.queue(*slot, 130));
        batch.send(socket.as_fd());
    }
}
