//! A name server that restarts while the API is away: from the start of the process to answers from the last-known-good state.
//!
//! `cargo bench --bench last_good` writes the state of `SIGNPOST_BENCH_SHARDS` Routers (default 100,000), lets the real
//! program take it over once, so that every zone has its serial there, ends that, and starts it again: the time is until a
//! thousand questions in a row, one each for another shard, are answered rightly. `SIGNPOST_BIN` names another program
//! than this build's. The bar of DESIGN.md §10 is one second for 100,000 zones.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use signpost_control::compiler::Digest;
use signpost_control::compiler::health::{AddressInput, Health};
use signpost_control::compiler::inputs::RouterInput;
use signpost_control::name_server::domain::Domains;
use signpost_control::name_server::last_known_good::LastKnownGood;
use signpost_control::name_server::record;
use signpost_control::name_server::version_history::Published;
use signpost_dns::wire::Name;
use signpost_dns::zone::{Serial, Ttl};
use signpost_testing::{Process, free_address};
use signpost_types::v1alpha1::router::Mode;

const DOMAIN: &str = "bench.example";
const ASKED: usize = 1_000;
const STARTS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(120);

fn main() {
    let shards = std::env::var("SIGNPOST_BENCH_SHARDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let data = tempfile::tempdir().expect("a temporary directory");
    write_state(&data.path().join("state"), shards);
    let kubeconfig = data.path().join("away");
    std::fs::write(&kubeconfig, AWAY).expect("it is written");
    let mut starts = Vec::with_capacity(STARTS);
    for number in 0..=STARTS {
        let (took, resident_mib) = start(data.path(), &kubeconfig, shards);
        if number == 0 {
            println!("{shards} shards, state taken over: {:.2} s", took.as_secs_f64());
        } else {
            starts.push((took, resident_mib));
        }
    }
    starts.sort_by_key(|(took, _)| *took);
    let (took, resident_mib) = starts[STARTS / 2];
    println!(
        "{shards} shards, process start -> {ASKED} right answers from last-good state: {:.2} s (bar 1), median of {STARTS}, {resident_mib} MiB",
        took.as_secs_f64()
    );
}

/// A cluster whose API does not answer.
const AWAY: &str = "apiVersion: v1
kind: Config
clusters: [{name: away, cluster: {server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true}}]
users: [{name: guest, user: {token: none}}]
contexts: [{name: away, context: {cluster: away, user: guest}}]
current-context: away
";

fn write_state(directory: &Path, shards: usize) {
    let (state, opened) = LastKnownGood::open(directory, &Domains::unchanged(DOMAIN)).expect("a new state");
    assert!(opened.loaded.is_none());
    // A state without publications is empty.
    let published = Published { serial: Serial(1), digest: Digest(0), config: Digest(0), provisional: true };
    let apex: Name = format!("{DOMAIN}.").parse().expect("a name");
    state.write(vec![record::zone(&apex, Some(&published), None)]);
    for first in (0..shards).step_by(1_000) {
        let changes = (first..shards.min(first + 1_000)).map(|number| {
            let router = router(number);
            record::router(&router.name, Some(&router))
        });
        state.write(changes.collect());
    }
}

fn router(number: usize) -> RouterInput {
    let address = |low: u32| AddressInput {
        ip: Ipv4Addr::from(0xc612_0000 + (number as u32 & 0xffff) * 2 + low).into(),
        active: true,
        priority: 0,
        weight: 1,
        health: Health::Unknown,
    };
    RouterInput {
        name: format!("shard{number}").into(),
        created: 1_700_000_000,
        apex: format!("shard{number}.{DOMAIN}.").parse().expect("a name"),
        ttl: Ttl::new(60).expect("a TTL"),
        mode: Mode::ActiveActive,
        addresses: [address(0), address(1)].into(),
        records: Box::default(),
        panic_percent: 0,
    }
}

/// Starts the program, waits for its answers, and ends it.
fn start(data: &Path, kubeconfig: &Path, shards: usize) -> (Duration, u64) {
    let [dns, admin] = [free_address(), free_address()];
    let program = std::env::var_os("SIGNPOST_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_signpost").into());
    let mut command = Command::new(program);
    command.args(["serve", "--roles", "dns,admin", "--domain", DOMAIN, "--data-dir"]).arg(data);
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["--dns-listen", &dns.to_string(), "--admin-listen", &admin.to_string()]);
    let began = Instant::now();
    let server = Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    let server = server.expect("the program starts");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a duration");
    let mut right = 0;
    while right < ASKED {
        assert!(began.elapsed() < PATIENCE, "no answers");
        let number = right * 7_919 % shards;
        match is_answered(&socket, dns, number) {
            true => right += 1,
            false => {
                // Not bound or not ready yet: the pause keeps the polling from taking CPU time.
                std::thread::sleep(Duration::from_millis(2));
                right = 0;
            }
        }
    }
    let took = began.elapsed();
    let resident_mib = server.resident_kib() / 1024;
    // A graceful stop, so that the state contains the publications.
    server.terminate();
    (took, resident_mib)
}

/// Returns whether a name of the shard is answered with its two addresses.
fn is_answered(socket: &UdpSocket, server: SocketAddr, number: usize) -> bool {
    let mut query = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x03app".to_vec();
    let name: Name = format!("shard{number}.{DOMAIN}.").parse().expect("a name");
    query.extend_from_slice(name.as_wire());
    query.extend_from_slice(&[0, 1, 0, 1]);
    let mut answer = [0; 512];
    let asked = socket.send_to(&query, server).is_ok();
    match socket.recv(&mut answer) {
        Ok(length) => asked && length > 12 && answer[3] & 15 == 0 && answer[7] == 2,
        Err(_) => false,
    }
}
