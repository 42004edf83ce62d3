//! Knot, NSD and BIND as secondary servers: AXFR, IXFR and NOTIFY, with and without TSIG. Afterwards, each holds the same zone, by its
//! own AXFR.
//!
//! The servers and `dig` are those of the system.

#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

#[path = "conformance/stage.rs"]
#[allow(dead_code, reason = "the stage is the conformance tests'; these use a part of it")]
mod stage;

/// The stage queries no other server.
fn also_ask(_: &stage::Stage, _: &[u8]) {}

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use signpost_dns::nameserver::Settings;
use signpost_dns::notify::{Notifier, Secondary};
use signpost_dns::transfer::catalog::{Catalog, Group};
use signpost_dns::transfer::{Rule, Transfers};
use signpost_dns::transport::{self, Config, Running};
use signpost_dns::tsig::{Key, Keys};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::builder::OwnerChange;
use signpost_dns::zone::publish::{Change, Origin, Publisher, What, build};
use signpost_dns::zone::rrset::Rdata;
use signpost_dns::zone::{Rrset, Serial, Ttl, ZoneDb};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use stage::contents;

const PATIENCE: Duration = Duration::from_secs(60);
const APEX: &str = "z.test.";
const CATALOG: &str = "catalog.invalid.";

fn key() -> Key {
    Key::new("transfer.example.".parse().unwrap(), "hmac-sha256", b"a secret of the test").unwrap()
}

/// A primary server on a loopback port.
struct Primary {
    zones: Publisher,
    catalog: Arc<Catalog>,
    transfers: Arc<Transfers>,
    notifier: Arc<Notifier>,
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
    running: Option<Running>,
    stop: CancellationToken,
}

impl Primary {
    /// Starts a server that notifies these addresses, with the key if `signs`.
    fn start(secondaries: &[SocketAddr], signs: bool) -> Primary {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let keys = Arc::new(Keys::new([key()]).unwrap());
        let key = signs.then(|| keys.get(key().name()).unwrap().clone());
        let rule = Rule {
            zones: Vec::new(),
            networks: vec!["127.0.0.0/8".parse().unwrap()],
            keys: key.iter().map(|key| key.name().clone()).collect(),
            tls: false,
        };
        let groups = vec![Group { name: "shards".to_owned(), zones: Vec::new() }];
        let catalog = Arc::new(Catalog::new(CATALOG.parse().unwrap(), groups, vec![rule.clone()]));
        let transfers = Arc::new(Transfers::new(vec![rule]).with_catalog(Some(catalog.clone())));
        let source = Some("127.0.0.1".parse().unwrap());
        let secondary =
            |address: &SocketAddr| Secondary { address: *address, key: key.clone(), zones: Vec::new(), source };
        let notifier = Arc::new(Notifier::new(secondaries.iter().map(secondary).collect()));
        let db = Arc::new(ZoneDb::new());
        let zones = Publisher::new(Arc::clone(&db));
        for zones in [&zones, catalog.publisher()] {
            let (transfers, notifier) = (transfers.clone(), notifier.clone());
            zones.listen(move |step| {
                transfers.record(step);
                notifier.change(step);
            });
        }
        let of_catalog = catalog.clone();
        zones.listen(move |step| of_catalog.record(step));
        db.set_ready();
        let config = Config { addresses: vec!["127.0.0.1:0".parse().unwrap()], udp_workers: 1, ..Config::default() };
        let mut bound = transport::bind(&config).unwrap();
        bound.set_handler(transfers.clone());
        let settings = Arc::new(ArcSwap::from_pointee(Settings {
            keys: Some(keys),
            catalog: Some(catalog.name().clone()),
            ..Settings::default()
        }));
        let running = runtime.block_on(async { bound.start(&db, &settings) }).unwrap();
        let stop = CancellationToken::new();
        let (sender, stopped) = (notifier.clone(), stop.clone());
        runtime.spawn(async move { sender.run(stopped).await.unwrap() });
        let address = running.addresses()[0];
        Primary { zones, catalog, transfers, notifier, address, runtime, running: Some(running), stop }
    }

    fn publish(&self, text: &str) {
        let zone = build(&contents(APEX, &format!("@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n{text}"))).unwrap();
        self.zones.publish([Change::whole(Origin::Objects, zone)]);
    }

    fn change(&self, serial: u32, owner: &str, addresses: &[[u8; 4]]) {
        let rdata = addresses.iter().map(|address| Rdata::from(*address)).collect::<Vec<_>>();
        let rrset = Rrset { rtype: RecordType::A, ttl: Ttl::new(300).unwrap(), rdata };
        let rrsets = if addresses.is_empty() { Vec::new() } else { vec![rrset] };
        let change = OwnerChange { owner: format!("{owner}.{APEX}").parse().unwrap(), rrsets, weights: Vec::new() };
        let what = What::Owners { changes: vec![change], serial: Serial(serial) };
        self.zones.publish([Change::of(&APEX.parse::<Name>().unwrap(), Origin::Objects, what)]);
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(running) = self.running.take() {
            self.runtime.block_on(async { drop(tokio::time::timeout(PATIENCE, running.stop()).await) });
        }
    }
}

/// A process that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A loopback address for a server. Its port is not one that the system selects for clients: their connections occupy it for a minute
/// after their end, and named, which then cannot listen on TCP, answers over UDP only.
fn free_address() -> SocketAddr {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = 10_000 + (std::process::id() as u16).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

fn start(program: &str, arguments: &[&str], folder: &Path, configuration: &str) -> Server {
    let path = folder.join(format!("{program}.conf"));
    std::fs::write(&path, configuration).unwrap();
    let log = std::fs::File::create(folder.join(format!("{program}.log"))).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).arg(&path).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Server(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
}

/// Returns the part of a configuration of Knot about its zones.
fn knot_zone(folder: &Path) -> String {
    let here = folder.display();
    format!(
        "zone:\n  - domain: {APEX}\n    master: primary\n    acl: [notify, transfer]\n    file: {here}/knot.zone\n    \
         zonefile-sync: -1\n    zonefile-load: none\n    journal-content: all\n"
    )
}

/// Returns the part of a configuration of Knot with the zones of a catalog.
fn knot_catalog(folder: &Path) -> String {
    let here = folder.display();
    let common = "master: primary\n    acl: [notify, transfer]\n    zonefile-sync: -1\n    zonefile-load: none\n    \
                  journal-content: all\n";
    format!(
        "template:\n  - id: default\n    storage: {here}/knot\n  - id: shards\n    storage: {here}/knot\n    {common}zone:\n  - \
         domain: {CATALOG}\n    {common}    catalog-role: interpret\n    catalog-template: [shards]\n"
    )
}

fn knot(listen: SocketAddr, primary: SocketAddr, folder: &Path, signs: bool, zones: &str) -> Server {
    let (key_section, with_key) = match signs {
        true => (key().to_knot(), "    key: transfer.example\n"),
        false => (String::new(), ""),
    };
    let here = folder.display();
    std::fs::create_dir_all(folder.join("knot")).unwrap();
    let (host, port) = (listen.ip(), listen.port());
    let (primary_host, primary_port) = (primary.ip(), primary.port());
    let text = format!(
        "server:\n  listen: {host}@{port}\n  rundir: {here}\n  user: root\n{key_section}remote:\n  - id: primary\n    \
         address: {primary_host}@{primary_port}\n{with_key}acl:\n  - id: notify\n    address: 127.0.0.1\n    action: notify\n{with_key}  \
         - id: transfer\n    address: 127.0.0.1\n    action: transfer\ndatabase:\n  storage: {here}/knot\nlog:\n  - target: stderr\n    \
         any: info\n{zones}"
    );
    start("knotd", &["-c"], folder, &text)
}

fn nsd(listen: SocketAddr, primary: SocketAddr, folder: &Path, signs: bool) -> Server {
    let secret = key().secret_text();
    let (key_section, key_name) = match signs {
        true => (
            format!("key:\n  name: transfer.example\n  algorithm: hmac-sha256\n  secret: \"{secret}\"\n"),
            "transfer.example",
        ),
        false => (String::new(), "NOKEY"),
    };
    let here = folder.display();
    let (host, port) = (listen.ip(), listen.port());
    let (primary_host, primary_port) = (primary.ip(), primary.port());
    let text = format!(
        "server:\n  ip-address: {host}@{port}\n  server-count: 1\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  pidfile: \"\"\n  \
         zonesdir: \"{here}\"\n  xfrdfile: \"{here}/xfrd\"\n  zonelistfile: \"{here}/list\"\n  xfrdir: \"{here}\"\n  \
         xfrd-reload-timeout: 0\n  verbosity: 2\nremote-control:\n  control-enable: no\n{key_section}zone:\n  name: \"{APEX}\"\n  \
         zonefile: \"{here}/nsd.zone\"\n  request-xfr: {primary_host}@{primary_port} {key_name}\n  allow-notify: 127.0.0.1 {key_name}\n  \
         provide-xfr: 127.0.0.1 NOKEY\n"
    );
    start("nsd", &["-d", "-c"], folder, &text)
}

fn named(listen: SocketAddr, primary: SocketAddr, folder: &Path, signs: bool, apex: &str) -> Server {
    let (key_section, with_key, notify) = match signs {
        true => (key().to_bind(), " key transfer.example", "key transfer.example"),
        false => (String::new(), "", "127.0.0.1"),
    };
    let here = folder.display();
    let (host, port) = (listen.ip(), listen.port());
    let (primary_host, primary_port) = (primary.ip(), primary.port());
    let primaries = format!("{primary_host} port {primary_port}{with_key};");
    let catalog = match apex {
        CATALOG => format!(
            "catalog-zones {{ zone \"{CATALOG}\" default-primaries {{ {primaries} }} in-memory no min-update-interval 1; }};"
        ),
        _ => String::new(),
    };
    let text = format!(
        "{key_section}options {{ directory \"{here}\"; pid-file none; session-keyfile none; listen-on port {port} {{ {host}; }};\n\
         listen-on-v6 {{ none; }}; dnssec-validation no; notify no; recursion no; allow-transfer {{ 127.0.0.1; }}; \
         serial-query-rate 1000; {catalog} }};\ncontrols {{ }};\nzone \"{apex}\" {{ type secondary; file \"named.db\"; masterfile-format text;\n\
         primaries {{ {primaries} }}; allow-notify {{ {notify}; }}; }};\n"
    );
    start("named", &["-g", "-n", "1", "-c"], folder, &text)
}

/// Returns what `dig` prints without comments.
fn dig(server: SocketAddr, arguments: &[&str]) -> String {
    let (at, port) = (format!("@{}", server.ip()), server.port().to_string());
    let output = Command::new("dig").args([&at, "-p", &port]).args(arguments).output().expect("dig is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the records of a server's zone, each once; none if it has none.
fn zone_at(server: SocketAddr) -> BTreeSet<String> {
    let text = dig(server, &[APEX, "AXFR", "+noall", "+answer", "+onesoa", "+nocookie"]);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
    text.lines().filter(|line| !line.starts_with(';') && !line.is_empty()).map(words).collect()
}

#[track_caller]
fn eventually(what: &str, folder: &Path, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            let mut logs = String::new();
            for program in ["knotd", "nsd", "named"] {
                let log = std::fs::read_to_string(folder.join(format!("{program}.log"))).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(25).collect();
                write!(logs, "\n--- {program}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n")).unwrap();
            }
            panic!("not in time: {what}{logs}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn soa_serial(server: SocketAddr) -> Option<u32> {
    serial_of(server, APEX)
}

fn serial_of(server: SocketAddr, apex: &str) -> Option<u32> {
    dig(server, &[apex, "SOA", "+short", "+time=1", "+tries=1"]).split_whitespace().nth(2)?.parse().ok()
}

fn converge(signs: bool) {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let addresses: [SocketAddr; 3] = std::array::from_fn(|_| free_address());
    let primary = Primary::start(&addresses, signs);
    let text = (0..2_000).map(|number| format!("Name{number} A 10.0.0.1\n")).collect::<String>();
    primary.publish(&format!(
        "{text}* A 192.0.2.1\n* AAAA 2001:db8::1\ncut NS ns.cut\nns.cut A 192.0.2.2\nm MX 1 mail.m\ntxt TXT x"
    ));
    let [at_knot, at_nsd, at_named] = addresses;
    let start_all = || {
        [
            knot(at_knot, primary.address, here, signs, &knot_zone(here)),
            nsd(at_nsd, primary.address, here, signs),
            named(at_named, primary.address, here, signs, APEX),
        ]
    };
    let mut servers = start_all();
    let have = |serial: u32| {
        eventually(&format!("all have serial {serial}"), here, || {
            addresses.iter().all(|address| soa_serial(*address) == Some(serial))
        });
    };
    have(2026);
    for number in 0..20u8 {
        primary.change(
            2027 + 2 * u32::from(number),
            &format!("name{}", number % 7),
            &[[192, 0, 2, number], [192, 0, 2, 99]],
        );
        primary.change(2028 + 2 * u32::from(number), "gone", if number % 2 == 0 { &[[192, 0, 2, 7]] } else { &[] });
        std::thread::sleep(Duration::from_millis(20));
    }
    have(2066);
    // They miss a change while they are down, one of them also the notification.
    drop(servers);
    primary.change(4000, "during", &[[192, 0, 2, 44]]);
    servers = start_all();
    primary.change(4001, "after", &[[192, 0, 2, 45]]);
    have(4001);
    let expected: BTreeSet<String> = match signs {
        // `dig` transfers from the primary with the key.
        true => {
            let with_key = format!("hmac-sha256:transfer.example:{}", key().secret_text());
            let text = dig(primary.address, &["-y", &with_key, APEX, "AXFR", "+noall", "+answer", "+onesoa"]);
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
            // With a key, it prints the TSIG records of the messages, too.
            text.lines()
                .filter(|line| !line.starts_with(';') && !line.is_empty() && !line.contains("TSIG"))
                .map(words)
                .collect()
        }
        false => zone_at(primary.address),
    };
    assert_eq!(expected.len(), 2_000 + 2 + 8 + 8 - 1, "all records of the primary: {expected:?}");
    for (name, address) in [("knot", at_knot), ("nsd", at_nsd), ("named", at_named)] {
        assert_eq!(zone_at(address), expected, "{name}");
    }
    let counts = primary.transfers.counts();
    assert!(counts.incremental > 0 && counts.full >= 3, "{counts:?}");
    let mut acknowledged = 0;
    eventually("all acknowledge", here, || {
        acknowledged = 0;
        primary
            .notifier
            .each_state(|_, _, state| acknowledged += usize::from(state.acknowledged == Some(Serial(4001))));
        acknowledged == 3
    });
    drop(servers);
}

#[test]
fn others_converge_without_keys() {
    converge(false);
}

#[test]
fn others_converge_with_keys() {
    converge(true);
}

/// RFC 9432: 50 shards come and go, and the secondary servers have only the catalog in their configuration.
#[test]
fn zones_come_and_go_through_the_catalog() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let addresses: [SocketAddr; 2] = std::array::from_fn(|_| free_address());
    let [at_knot, at_named] = addresses;
    let primary = Primary::start(&addresses, true);
    let (catalog, stop) = (primary.catalog.clone(), primary.stop.clone());
    primary.runtime.spawn(async move { catalog.run(|| true, stop).await });
    let shard = |number: usize| format!("s{number}.test.");
    let publish = |numbers: std::ops::Range<usize>| {
        let zones = numbers.map(|number| {
            let text = "@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n* A 192.0.2.1";
            Change::whole(Origin::Objects, build(&contents(&shard(number), text)).unwrap())
        });
        primary.zones.publish(zones);
    };
    publish(0..10);
    let start_all = || {
        let knot = knot(at_knot, primary.address, here, true, &knot_catalog(here));
        [knot, named(at_named, primary.address, here, true, CATALOG)]
    };
    let mut servers = start_all();
    let have = |present: std::ops::Range<usize>, gone: std::ops::Range<usize>| {
        for address in addresses {
            for number in present.clone() {
                eventually(&format!("{address} has {}", shard(number)), here, || {
                    serial_of(address, &shard(number)) == Some(2026)
                });
            }
            for number in gone.clone() {
                let refuses =
                    || dig(address, &[&shard(number), "SOA", "+time=1", "+tries=1"]).contains("status: REFUSED");
                eventually(&format!("{address} has no longer {}", shard(number)), here, refuses);
            }
        }
    };
    have(0..10, 0..0);
    for number in 10..50 {
        publish(number..number + 1);
        std::thread::sleep(Duration::from_millis(10));
    }
    have(0..50, 0..0);
    let withdraw = |numbers: std::ops::Range<usize>| {
        let gone = numbers.map(|number| Change::of(&shard(number).parse().unwrap(), Origin::Objects, What::Withdraw));
        primary.zones.publish(gone);
    };
    withdraw(0..25);
    have(25..50, 0..25);
    withdraw(45..50);
    have(25..45, 45..50);
    // Some come back while they are down. (Knot 3.2 can keep a member that goes while it is down.)
    drop(servers);
    publish(0..5);
    servers = start_all();
    have(0..5, 45..50);
    have(25..45, 5..25);
    // Others get nothing of it.
    for (arguments, expected) in [
        (&[CATALOG, "SOA"][..], "status: REFUSED"),
        (&[CATALOG, "NS"], "status: REFUSED"),
        (&["version.catalog.invalid.", "TXT"], "status: REFUSED"),
        (&[CATALOG, "AXFR"], "Transfer failed"),
    ] {
        let answer = dig(primary.address, arguments);
        assert!(answer.contains(expected), "{arguments:?}: {answer}");
    }
    let with_key = format!("hmac-sha256:transfer.example:{}", key().secret_text());
    let answer = dig(primary.address, &["-y", &with_key, CATALOG, "AXFR"]);
    assert_eq!(answer.matches("PTR s").count(), 25, "{answer}");
    let answer = dig(primary.address, &["-y", &with_key, "version.catalog.invalid.", "TXT"]);
    assert!(answer.contains("status: REFUSED"), "{answer}");
    drop(servers);
}

/// RFC 8945 §5.2, as `dig` and `kdig` see it: another key, another algorithm, another secret.
#[test]
fn clients_see_the_errors_of_signatures() {
    let primary = Primary::start(&[], true);
    primary.publish("a A 192.0.2.1");
    let secret = key().secret_text();
    let port = primary.address.port().to_string();
    let ask = |with_key: &str, arguments: &[&str]| dig(primary.address, &[&["-y", with_key], arguments].concat());
    let good = format!("hmac-sha256:transfer.example:{secret}");
    let answer = ask(&good, &["a.z.test", "A"]);
    assert!(
        answer.contains("status: NOERROR") && answer.contains("TSIG PSEUDOSECTION") && answer.contains("192.0.2.1"),
        "{answer}"
    );
    assert!(!answer.contains("verify"), "{answer}");
    for (with_key, expected) in [
        (format!("hmac-sha256:other.example:{secret}"), "BADKEY"),
        (format!("hmac-sha512:transfer.example:{secret}"), "BADKEY"),
        (format!("hmac-md5:transfer.example:{secret}"), "BADKEY"),
        ("hmac-sha256:transfer.example:AAAA".to_owned(), "BADSIG"),
    ] {
        let answer = ask(&with_key, &["a.z.test", "A"]);
        assert!(answer.contains("status: NOTAUTH") && answer.contains(expected), "{with_key}: {answer}");
    }
    // Without and with the key, for a transfer.
    let refused = dig(primary.address, &["z.test", "AXFR", "+noall", "+answer", "+comments"]);
    assert!(refused.contains("Transfer failed"), "{refused}");
    let kdig = Command::new("kdig")
        .args(["@127.0.0.1", "-p", &port, "-y", &good, "z.test", "AXFR"])
        .output()
        .expect("kdig is installed");
    let answer = String::from_utf8_lossy(&kdig.stdout);
    assert!(answer.contains("192.0.2.1") && !answer.contains("failed"), "{answer}");
}
