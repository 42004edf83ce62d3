//! Transfers to other servers, over loopback, with the servers of the system:
//!
//! - `transfers`: a whole zone of a million names from Signpost, Knot and NSD, to the same client in interleaved rounds: names per
//!   second, and processor time of the server.
//! - `crowd`: twenty such transfers from Signpost at once, of which one client stops reading: memory, and queries meanwhile.
//! - `changes`: from a change in a zone until Knot, NSD, BIND and PowerDNS answer with it, by NOTIFY and IXFR.
//!
//! `SECONDARIES_MODE` selects one of them, `SECONDARIES_NAMES` the names of the zone, `SECONDARIES_CHANGES` the changes. Servers that are
//! not installed are an error. In the first two, servers run on the first processor, and clients on the second.

#![allow(clippy::unwrap_used, reason = "a bench fails by its panic")]

#[path = "../tests/secondaries/peers.rs"]
#[allow(dead_code, reason = "the peers are those of the test; the bench uses a part of them")]
mod peers;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use signpost_dns::nameserver::Settings;
use signpost_dns::sys::cpu;
use signpost_dns::transfer::{Rule, Transfers};
use signpost_dns::transport::{self, Config};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::publish::build;
use signpost_dns::zone::{Contents, Ttl, ZoneDb};
use signpost_dns::zonefile::write::to_text;
use signpost_testing::free_address;

use peers::{APEX, Primary, knot, knot_zone, named, nsd, powerdns};

/// The longest wait for a server, and for an answer.
const PATIENCE: Duration = Duration::from_secs(180);
const ROUNDS: usize = 5;
/// The transfers at once, and the queries per second meanwhile.
const CROWD: usize = 20;
const RATE: u32 = 2_000;
/// Types of queries.
const A: u8 = 1;
const SOA: u8 = 6;
const AXFR: u8 = 252;

fn main() {
    if let Some(address) = argument("--serve") {
        return serve(address);
    }
    if let Some(address) = argument("--read") {
        return read_until_stopped(address);
    }
    let mode = std::env::var("SECONDARIES_MODE").ok();
    for (name, run) in [("changes", changes as fn()), ("transfers", transfers), ("crowd", crowd)] {
        if mode.as_deref().is_none_or(|mode| mode == name) {
            run();
        }
    }
}

/// Returns the value after a flag of this program as another process.
fn argument(flag: &str) -> Option<SocketAddr> {
    std::env::args().skip_while(|argument| argument != flag).nth(1)?.parse().ok()
}

fn number(variable: &str, default: u32) -> u32 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A zone of aliases.
fn contents() -> Contents {
    let name = |text: &str| text.parse::<Name>().unwrap();
    let (apex, ttl) = (name(APEX), Ttl::new(60).unwrap());
    let mut contents = Contents::new(apex.clone());
    let numbers = [1u32, 3_600, 600, 86_400, 30].map(u32::to_be_bytes).concat();
    let soa = [name("ns.example.").as_wire(), name("admin.example.").as_wire(), &numbers].concat();
    contents.add(apex.clone(), RecordType::SOA, ttl, soa.into()).unwrap();
    contents.add(apex.clone(), RecordType::NS, ttl, name("ns.example.").as_wire().into()).unwrap();
    for number in 0..number("SECONDARIES_NAMES", 1_000_000) {
        let target = name(&format!("team-app{number}.shard{}.example.", number % 50));
        let owner = apex.prepend(format!("team-app{number}").as_bytes()).unwrap();
        contents.add(owner, RecordType::CNAME, ttl, target.as_wire().into()).unwrap();
    }
    contents
}

/// Serves the zone until its standard input ends.
fn serve(address: SocketAddr) {
    let db = Arc::new(ZoneDb::new());
    db.publish(build(contents()).unwrap());
    db.set_ready();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { addresses: vec![address], udp_workers: 1, ..Config::default() };
    let mut bound = transport::bind(&config).unwrap();
    let networks = vec!["127.0.0.0/8".parse().unwrap()];
    bound.set_handler(Arc::new(Transfers::new(vec![Rule {
        zones: Vec::new(),
        networks,
        keys: Vec::new(),
        tls: false,
    }])));
    let settings = Arc::new(ArcSwap::from_pointee(Settings::default()));
    let _running = runtime.block_on(async { bound.start(&db, &settings) }).unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// A process on one processor that is killed at the end.
struct Process(Child);

impl Process {
    fn start(processor: &str, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str], folder: &Path) -> Process {
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new("taskset");
        command.args(["-c", processor]).arg(program).args(arguments).stdin(Stdio::piped());
        Process(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }

    /// Starts this program with a flag and an address.
    fn of_this(processor: &str, nice: &str, flag: &str, address: SocketAddr, folder: &Path) -> Process {
        let this = std::env::current_exe().unwrap();
        let arguments = ["-n", nice, this.to_str().unwrap(), flag, &address.to_string()];
        Process::start(processor, "nice", &arguments, folder)
    }

    /// Returns its processor time, and that of its children.
    fn processor_time(&self) -> Duration {
        let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        let (mut family, mut time, mut next) = (vec![self.0.id()], Duration::ZERO, 0);
        while let Some(process) = family.get(next).copied() {
            for task in std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
                let path = task.path();
                let spent = read(format!("{}/schedstat", path.display()));
                let nanoseconds = spent.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
                time += Duration::from_nanos(nanoseconds);
                let children = read(format!("{}/children", path.display()));
                family.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            }
            next += 1;
        }
        time
    }

    /// Returns its resident memory in MiB.
    fn resident(&self) -> f64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.0.id())).unwrap_or_default();
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) / 256.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // NSD's children end after SIGTERM only.
        drop(Command::new("kill").arg(self.0.id().to_string()).status());
        drop(self.0.wait());
    }
}

/// A query for a type at the apex, or at a name below it.
fn question(label: &str, qtype: u8) -> Vec<u8> {
    let apex: Name = APEX.parse().unwrap();
    let name = if label.is_empty() { apex } else { apex.prepend(label.as_bytes()).unwrap() };
    [&[0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], name.as_wire(), &[0, qtype, 0, 1]].concat()
}

/// Transfers the zone, and returns the number of records.
fn transfer(address: SocketAddr) -> u32 {
    let (mut stream, mut message, mut found) = (begin(address), vec![0; 65_536], 0);
    let records = number("SECONDARIES_NAMES", 1_000_000) + 3;
    while found < records {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let length = usize::from(u16::from_be_bytes(length));
        stream.read_exact(&mut message[..length]).unwrap();
        assert_eq!(message[3] & 15, 0, "the response code");
        found += u32::from(u16::from_be_bytes([message[6], message[7]]));
    }
    found
}

/// Requests a transfer.
fn begin(address: SocketAddr) -> TcpStream {
    let request = question("", AXFR);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[&(request.len() as u16).to_be_bytes()[..], &request].concat()).unwrap();
    stream
}

/// Transfers the zone to all clients of a crowd but one, again and again.
fn read_until_stopped(address: SocketAddr) {
    for _ in 1..CROWD {
        std::thread::spawn(move || {
            loop {
                transfer(address);
            }
        });
    }
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn client(address: SocketAddr, patience: Duration) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket
}

/// Waits until a server answers with the zone.
fn wait(address: SocketAddr) {
    let (socket, started, mut answer) = (client(address, Duration::from_millis(200)), Instant::now(), [0; 512]);
    while started.elapsed() < PATIENCE {
        drop(socket.send(&question("", SOA)));
        if socket.recv(&mut answer).is_ok_and(|octets| octets > 12) && answer[3] & 15 == 0 && answer[7] == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{address} does not answer");
}

fn transfers() {
    cpu::pin(1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().display().to_string();
    std::fs::write(folder.path().join("z.zone"), to_text(&contents())).unwrap();
    let configure = |program: &str, address: SocketAddr| {
        let (ip, port) = (address.ip(), address.port());
        let text = match program {
            "knotd" => format!(
                "server:\n  listen: {ip}@{port}\n  rundir: {here}\n  user: root\n  udp-workers: 1\n  tcp-workers: 1\n  \
                 background-workers: 1\nacl:\n  - id: transfer\n    address: 127.0.0.1\n    action: transfer\ndatabase:\n  \
                 storage: {here}\nzone:\n  - domain: {APEX}\n    file: {here}/z.zone\n    acl: transfer\n    zonefile-sync: -1\n    \
                 journal-content: none\n"
            ),
            _ => format!(
                "server:\n  ip-address: {ip}@{port}\n  server-count: 1\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  \
                 pidfile: \"\"\n  zonesdir: \"{here}\"\n  xfrdfile: \"{here}/xfrd\"\n  zonelistfile: \"{here}/list\"\n  xfrdir: \
                 \"{here}\"\nremote-control:\n  control-enable: no\nzone:\n  name: \"{APEX}\"\n  zonefile: \"{here}/z.zone\"\n  \
                 provide-xfr: 127.0.0.1 NOKEY\n"
            ),
        };
        let path = folder.path().join(program).display().to_string();
        std::fs::write(&path, text).unwrap();
        path
    };
    let servers = ["signpost", "knotd", "nsd"];
    let names = f64::from(number("SECONDARIES_NAMES", 1_000_000));
    let mut found: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for program in servers {
            let address = free_address();
            let process = match program {
                "signpost" => Process::of_this("0", "0", "--serve", address, folder.path()),
                "knotd" => Process::start("0", program, &["-c", &configure(program, address)], folder.path()),
                _ => Process::start("0", program, &["-d", "-c", &configure(program, address)], folder.path()),
            };
            wait(address);
            // The first one is not measured.
            transfer(address);
            let (before, began) = (process.processor_time(), Instant::now());
            transfer(address);
            let (took, spent) = (began.elapsed(), process.processor_time() - before);
            found.entry(program).or_default().push((names / took.as_secs_f64(), spent.as_secs_f64() * 1e9 / names));
        }
    }
    println!("{:<36} {:>14} {:>14}", format!("AXFR of {names} names"), "names/s", "CPU ns/name");
    for program in servers {
        let of = |at: fn(&(f64, f64)) -> f64| middle(found[program].iter().map(at).collect());
        println!("{program:<36} {:>14.0} {:>14.0}", of(|one| one.0), of(|one| one.1));
    }
}

/// Returns the value below which this share of the values is.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}

fn middle(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// Returns the times of answers in microseconds, each from the scheduled time of its query.
fn latencies(address: SocketAddr, time: Duration) -> Vec<f64> {
    let (socket, began, mut found) = (client(address, Duration::from_secs(2)), Instant::now(), Vec::new());
    let (query, mut answer) = (question("team-app7", A), [0; 512]);
    for tick in 0.. {
        let at = began + Duration::from_secs(1) * tick / RATE;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if began.elapsed() > time {
            break;
        }
        socket.send(&query).unwrap();
        let octets = socket.recv(&mut answer).expect("an answer");
        assert!(octets > query.len() && answer[3] & 15 == 0);
        found.push(at.elapsed().as_secs_f64() * 1e6);
    }
    found
}

fn crowd() {
    cpu::pin(1).unwrap();
    let (folder, address, time) = (tempfile::tempdir().unwrap(), free_address(), Duration::from_secs(10));
    let server = Process::of_this("0", "0", "--serve", address, folder.path());
    wait(address);
    transfer(address);
    latencies(address, Duration::from_secs(1));
    let (quiet, before) = (latencies(address, time), server.resident());
    // It stops reading at once.
    let stalled = begin(address);
    let readers = Process::of_this("1", "19", "--read", address, folder.path());
    std::thread::sleep(Duration::from_millis(500));
    let is_over = AtomicBool::new(false);
    let (busy, most) = std::thread::scope(|scope| {
        let sampling = scope.spawn(|| {
            let mut most = 0.0;
            while !is_over.load(Ordering::Relaxed) {
                most = server.resident().max(most);
                std::thread::sleep(Duration::from_millis(20));
            }
            most
        });
        let busy = latencies(address, time);
        is_over.store(true, Ordering::Relaxed);
        (busy, sampling.join().unwrap())
    });
    drop((readers, stalled));
    println!("{CROWD} transfers at once, one of them stalled: {before:.1} MiB before, at most {most:.1} MiB meanwhile");
    println!("{:<36} {:>9} {:>9} {:>9}", format!("{RATE} queries/s"), "p50 µs", "p99 µs", "most µs");
    for (label, times) in [("quiet", quiet), ("during transfers", busy)] {
        let of = |share| quantile(times.clone(), share);
        println!("{label:<36} {:>9.1} {:>9.1} {:>9.0}", of(0.5), of(0.99), of(1.0));
    }
}

fn changes() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let addresses: [SocketAddr; 4] = std::array::from_fn(|_| free_address());
    let primary = Primary::start(&addresses, true);
    let mut zone = Contents::new(APEX.parse().unwrap());
    for (owner, rrset) in
        contents().owners().take(10_000).flat_map(|(owner, rrsets)| rrsets.iter().map(move |one| (owner, one)))
    {
        zone.add(owner.clone(), rrset.rtype, rrset.ttl, rrset.rdata[0].clone()).unwrap();
    }
    primary.publish(&zone);
    let at = primary.address;
    let servers = [
        ("knot", knot(addresses[0], at, here, true, &knot_zone(here))),
        ("nsd", nsd(addresses[1], at, here, true)),
        ("named", named(addresses[2], at, here, true, APEX)),
        ("powerdns", powerdns(addresses[3], at, here, true, APEX)),
    ];
    addresses.into_iter().for_each(wait);
    let lone = number("SECONDARIES_CHANGES", 100);
    println!("{:<36} {:>9} {:>9} {:>9}", "from a change to the answer of", "p50 ms", "p99 ms", "most ms");
    let mut first = 1;
    for (label, count, interval) in [("each 1.5 s", lone, 1_500), ("each 0.1 s", 3 * lone, 100)] {
        let last = first + count - 1;
        let mut published = Vec::new();
        let seen = std::thread::scope(|scope| {
            let polling = addresses.map(|address| scope.spawn(move || poll(address, first, last)));
            for change in first..=last {
                published.push(Instant::now());
                let [_, rest @ ..] = change.to_be_bytes();
                primary.change(1 + change, "changing", &[[10, rest[0], rest[1], rest[2]]]);
                std::thread::sleep(Duration::from_millis(interval));
            }
            polling.map(|polling| polling.join().unwrap())
        });
        for ((server, _), seen) in servers.iter().zip(seen) {
            let times: Vec<f64> =
                seen.iter().zip(&published).map(|(seen, at)| seen.duration_since(*at).as_secs_f64() * 1e3).collect();
            let of = |share| quantile(times.clone(), share);
            println!("{:<36} {:>9.1} {:>9.1} {:>9.0}", format!("{server}, {label}"), of(0.5), of(0.99), of(1.0));
        }
        first = last + 1;
    }
}

/// Returns the times at which a server first had each of these changes, or a later one.
fn poll(address: SocketAddr, first: u32, last: u32) -> Vec<Instant> {
    let (socket, started) = (client(address, Duration::from_secs(1)), Instant::now());
    let (query, mut answer, mut seen) = (question("changing", A), [0; 512], Vec::new());
    while seen.len() < (last - first + 1) as usize {
        assert!(started.elapsed() < PATIENCE * 5, "{address} has {} changes", seen.len());
        socket.send(&query).unwrap();
        // The data of the first answer, whose owner is a pointer to the question.
        if socket.recv(&mut answer).is_ok_and(|octets| octets >= query.len() + 16) && answer[7] > 0 {
            let data = &answer[query.len() + 12..query.len() + 16];
            let found = u32::from_be_bytes([0, data[1], data[2], data[3]]);
            while found >= first + seen.len() as u32 && seen.len() < (last - first + 1) as usize {
                seen.push(Instant::now());
            }
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    seen
}
