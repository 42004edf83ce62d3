//! Compares Signpost with Knot, NSD, and gdnsd; see README.md in this directory.

mod generator;
mod modes;
mod paced;
mod servers;
mod zones;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use signpost_dns::nameserver::Settings;
use signpost_dns::nameserver::cookie::{Cookies, Secret};
use signpost_dns::nameserver::rrl::RateLimit;
use signpost_dns::sys::BATCH_MAX;
use signpost_dns::sys::cpu;
use signpost_dns::sys::datagrams::{Batch, Wait};
use signpost_dns::transport::{self, Config, LiveSettings};
use signpost_dns::zone::db::ZoneDb;

fn main() -> std::io::Result<()> {
    if let Some(address) = argument("--serve-zones") {
        return serve_zones(address);
    }
    if let Some(address) = argument("--serve-echo") {
        return serve_echo(address);
    }
    // The generator stays on the second processor, the servers on the first.
    cpu::pin(1)?;
    match std::env::var("PEERS_MODE").as_deref() {
        Err(_) | Ok("cpu") => modes::cpu(),
        Ok("zones") => modes::zones(),
        Ok("latency") => modes::latency(),
        Ok("start") => modes::start(),
        Ok("large") => modes::large(),
        Ok("storm") => modes::storm(),
        Ok(other) => Err(std::io::Error::other(format!("PEERS_MODE is {other}; see benches/peers/README.md"))),
    }
}

/// Returns the value after a flag of this program as its own server.
fn argument<T: std::str::FromStr>(flag: &str) -> Option<T> {
    std::env::args().skip_while(|argument| argument != flag).nth(1)?.parse().ok()
}

/// Our data plane as a process of its own.
fn serve_zones(address: SocketAddr) -> std::io::Result<()> {
    let zones = argument("--zones").unwrap_or(zones::ZONES);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let db = ZoneDb::new();
    db.publish_many((0..zones).map(|zone| zones::compile(zone, 1)));
    db.set_ready();
    let is_on = |flag| argument::<String>(flag).is_none_or(|switch| switch == "on");
    let guard = is_on("--guard");
    let cookies = || Cookies { first: Secret::new([7; 16]), others: Box::default(), required: false };
    let limit = || RateLimit { per_second: 1_000_000, ..RateLimit::default() };
    let settings = Settings { cookies: guard.then(cookies), rate_limit: guard.then(limit), ..Settings::default() };
    let settings: LiveSettings = Arc::new(ArcSwap::from_pointee(settings));
    let config = Config {
        addresses: vec![address],
        udp_workers: 1,
        udp_gso: is_on("--gso"),
        udp_dont_fragment: is_on("--dont-fragment"),
        ..Config::default()
    };
    runtime.block_on(async {
        let bound = transport::bind(&config).map_err(std::io::Error::other)?;
        let _running = bound.start(&db, &settings)?;
        match argument("--changes") {
            Some(changes) if changes > 0 => change(&db, zones, changes),
            // Until killed.
            _ => std::future::pending::<()>().await,
        }
        Ok(())
    })
}

/// Compiles and publishes `changes` zones a second, until killed.
fn change(db: &ZoneDb, zones: usize, changes: u32) {
    let began = Instant::now();
    for number in 1.. {
        db.publish(zones::compile(number as usize * 7_919 % zones, number + 1));
        let next = Duration::from_secs(1) * number / changes;
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
}

/// Sends back each datagram, lengthened to the size of a middling answer, each by a message of its own.
fn serve_echo(address: SocketAddr) -> std::io::Result<()> {
    let socket = std::net::UdpSocket::bind(address)?;
    let mut batch = Batch::new();
    loop {
        let received = batch.receive(socket.as_fd(), Wait::ForOne)?;
        let mut slots = [0; BATCH_MAX];
        batch.each().zip(&mut slots).for_each(|(datagram, slot)| *slot = datagram.slot);
        slots[..received].iter().for_each(|slot| batch.queue(*slot, 130));
        batch.send(socket.as_fd());
    }
}
