//! Zones from primary servers: Knot and BIND of the system, over TCP and TLS, with and without TSIG, and a server of the test that lies.

#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use signpost_dns::nameserver::Settings;
use signpost_dns::secondary::client::{ALPN, Primary};
use signpost_dns::secondary::{Secondary, Status};
use signpost_dns::transport::{self, Config, Running};
use signpost_dns::tsig::{Key, Keys};
use signpost_dns::wire::Name;
use signpost_dns::zone::ZoneDb;
use signpost_dns::zone::publish::Publisher;
use signpost_dns::zonefile::write::to_text;
use signpost_testing::free_address;
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);
const APEX: &str = "z.test.";
const TLS_NAME: &str = "ns1.example";

fn apex() -> Name {
    APEX.parse().unwrap()
}

fn key() -> Arc<Key> {
    Arc::new(Key::new("transfer.example.".parse().unwrap(), "hmac-sha256", b"a secret of the test").unwrap())
}

/// A server with one zone of primary servers.
struct Server {
    zones: Arc<Publisher>,
    secondary: Arc<Secondary>,
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
    running: Option<Running>,
    stop: CancellationToken,
}

impl Server {
    fn start(primaries: Vec<Primary>, copies: &Path) -> Server {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let db = Arc::new(ZoneDb::new());
        let zones = Arc::new(Publisher::new(Arc::clone(&db)));
        let secondary = Arc::new(Secondary::new([(apex(), primaries)], copies, zones.clone()).unwrap());
        assert_eq!(secondary.restore(), [""; 0]);
        db.set_ready();
        let config = Config { addresses: vec!["127.0.0.1:0".parse().unwrap()], udp_workers: 1, ..Config::default() };
        let mut bound = transport::bind(&config).unwrap();
        bound.set_handler(secondary.clone());
        let keys = Some(Arc::new(Keys::new([Key::clone(&key())]).unwrap()));
        let settings = Arc::new(ArcSwap::from_pointee(Settings { keys, ..Settings::default() }));
        let running = runtime.block_on(async { bound.start(&db, &settings) }).unwrap();
        let stop = CancellationToken::new();
        let (following, stopped) = (secondary.clone(), stop.clone());
        runtime.spawn(async move { following.run(stopped).await });
        let address = running.addresses()[0];
        Server { zones, secondary, address, runtime, running: Some(running), stop }
    }

    fn status(&self) -> Status {
        self.secondary.statuses().next().unwrap().1
    }

    fn serial(&self) -> Option<u32> {
        self.zones.db().get(&apex())?.serial().map(|serial| serial.0)
    }

    /// Returns the records, in lower case, as Knot sends them.
    fn text(&self) -> BTreeSet<String> {
        let text = String::from_utf8(to_text(&self.zones.db().get(&apex()).unwrap().contents())).unwrap();
        text.lines().filter(|line| !line.starts_with('$')).map(str::to_ascii_lowercase).collect()
    }

    /// Returns the header of the answer to a query for the SOA record.
    fn rcode(&self) -> String {
        let text = dig(self.address, &[APEX, "SOA"]);
        let words = text.split_once("status: ").map(|(_, rest)| rest.split(',').next().unwrap_or_default().to_owned());
        words.unwrap_or_default()
    }

    /// Sends a NOTIFY from 127.0.0.1, and returns the response code.
    fn notify(&self, from: Ipv4Addr) -> u8 {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let message = [&[0, 9, 0x24, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], apex().as_wire(), &[0, 6, 0, 1]].concat();
        socket.send_to(&message, self.address).unwrap();
        let mut answer = [0; 512];
        let octets = socket.recv(&mut answer).unwrap();
        assert!(octets >= 12 && answer[..2] == [0, 9] && answer[2] & 0xf8 == 0xa0, "a NOTIFY response");
        answer[3] & 0x0f
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(running) = self.running.take() {
            self.runtime.block_on(async { drop(tokio::time::timeout(PATIENCE, running.stop()).await) });
        }
    }
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(program: &str, arguments: &[&str], folder: &Path, configuration: &str) -> Process {
        let path = folder.join(format!("{program}.conf"));
        std::fs::write(&path, configuration).unwrap();
        let log = std::fs::File::create(folder.join(format!("{program}.log"))).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).arg(&path).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Process(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
    }

    /// Lets it read its zone files again.
    fn reload(&self) {
        assert!(Command::new("kill").args(["-HUP", &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn dig(server: SocketAddr, arguments: &[&str]) -> String {
    let (at, port) = (format!("@{}", server.ip()), server.port().to_string());
    let output = Command::new("dig").args([&at, "-p", &port]).args(arguments).output().expect("dig is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn eventually(what: &str, folder: &Path, server: &Server, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            let mut logs = format!("{:?}", server.status());
            for program in ["knotd", "named"] {
                let log = std::fs::read_to_string(folder.join(format!("{program}.log"))).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(15).collect();
                write!(logs, "\n--- {program}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n")).unwrap();
            }
            panic!("not in time: {what}\n{logs}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The zone file of a version: many names, some of which change.
fn zone_file(serial: u32) -> String {
    let mut text =
        format!("$ORIGIN {APEX}\n$TTL 300\n@ SOA ns.elsewhere. admin {serial} 3600 600 86400 60\n@ NS ns.elsewhere.\n");
    (0..1_500).for_each(|number| writeln!(text, "Name{number} A 10.0.0.1").unwrap());
    (0..serial % 7).for_each(|number| writeln!(text, "odd{number} TXT \"{serial}\"").unwrap());
    writeln!(text, "* AAAA 2001:db8::{serial:x}\nm MX {serial} mail.m\ncut NS ns.cut\nns.cut A 192.0.2.2").unwrap();
    text
}

/// Returns the records of a version as [`Server::text`] returns them.
fn expected(serial: u32) -> BTreeSet<String> {
    let file: Arc<Path> = Path::new("expected.zone").into();
    let mut includes = signpost_dns::zonefile::include::NoIncludes;
    let read = signpost_dns::zonefile::read_zone(zone_file(serial).as_bytes(), &file, None, &mut includes);
    let text = String::from_utf8(to_text(&read.contents.expect("a zone"))).unwrap();
    text.lines().filter(|line| !line.starts_with('$')).map(str::to_ascii_lowercase).collect()
}

fn plain(address: SocketAddr, signs: bool) -> Primary {
    Primary { address, key: signs.then(key), tls: None }
}

fn knot(address: SocketAddr, notified: SocketAddr, folder: &Path) -> Process {
    let here = folder.display();
    std::fs::create_dir_all(folder.join("knot")).unwrap();
    let key = key().to_knot();
    let (host, port, notified_port) = (address.ip(), address.port(), notified.port());
    let text = format!(
        "server:\n  listen: {host}@{port}\n  rundir: {here}\n  user: root\n{key}remote:\n  - id: signpost\n    \
         address: {host}@{notified_port}\n    via: {host}\n    key: transfer.example\nacl:\n  - id: transfer\n    key: transfer.example\n    \
         action: transfer\ndatabase:\n  storage: {here}/knot\nlog:\n  - target: stderr\n    any: info\nzone:\n  - domain: {APEX}\n    \
         file: {here}/z.zone\n    acl: transfer\n    notify: signpost\n    zonefile-load: difference\n    zonefile-sync: -1\n    \
         journal-content: changes\n"
    );
    Process::start("knotd", &["-c"], folder, &text)
}

fn named(address: SocketAddr, tls: Option<SocketAddr>, notified: SocketAddr, folder: &Path) -> Process {
    let here = folder.display();
    let (host, port, notified_port) = (address.ip(), address.port(), notified.port());
    let (tls_section, listen) = match tls {
        Some(tls) => (
            format!("tls local {{ cert-file \"{here}/cert.pem\"; key-file \"{here}/key.pem\"; }};\n"),
            format!("listen-on port {} tls local {{ {host}; }};", tls.port()),
        ),
        None => Default::default(),
    };
    let text = format!(
        "{tls_section}options {{ directory \"{here}\"; pid-file none; session-keyfile none; listen-on port {port} {{ {host}; }}; {listen}\n\
         listen-on-v6 {{ none; }}; dnssec-validation no; recursion no; allow-transfer {{ 127.0.0.1; }}; notify-delay 0;\n\
         notify-source {host}; }};\ncontrols {{ }};\nzone \"{APEX}\" {{ type primary; file \"z.zone\"; ixfr-from-differences yes;\n\
         notify explicit; also-notify {{ {host} port {notified_port}; }}; }};\n"
    );
    Process::start("named", &["-g", "-n", "1", "-c"], folder, &text)
}

/// Follows a primary server of the system through many changes, a restart of each side, and its end.
fn follow(primary: Primary, start: impl Fn(SocketAddr, &Path) -> Process) {
    let folder = TempDir::new().unwrap();
    let (here, copies) = (folder.path(), folder.path().join("copies"));
    let write = |serial: u32| std::fs::write(here.join("z.zone"), zone_file(serial)).unwrap();
    write(1);
    let mut server = Server::start(vec![primary.clone()], &copies);
    assert_eq!((server.serial(), server.rcode().as_str()), (None, "SERVFAIL"), "known, and not yet transferred");
    let mut process = start(server.address, here);
    eventually("the first transfer", here, &server, || server.serial() == Some(1));
    assert_eq!(server.text(), expected(1));
    for serial in 2..12 {
        write(serial);
        process.reload();
        eventually(&format!("serial {serial}"), here, &server, || server.serial() == Some(serial));
        assert_eq!(server.text(), expected(serial));
    }
    // A change while the primary server is down, and one while we are.
    drop(process);
    write(20);
    // named does not load a file that changed without it together with its journal.
    drop(std::fs::remove_file(here.join("z.zone.jnl")));
    process = start(server.address, here);
    eventually("a change during its restart", here, &server, || server.serial() == Some(20));
    drop(server);
    write(21);
    process.reload();
    server = Server::start(vec![primary.clone()], &copies);
    // It notifies the former address.
    let is_there = || server.notify(Ipv4Addr::LOCALHOST) == 0 && server.serial() == Some(21);
    eventually("a change during our restart", here, &server, is_there);
    assert_eq!(server.text(), expected(21));
    // Without any primary server, a restart serves the copy.
    drop(process);
    drop(server);
    let server = Server::start(vec![primary.clone()], &copies);
    assert_eq!((server.serial(), server.text()), (Some(21), expected(21)));
    eventually("the failure is reported", here, &server, || server.status().error.is_some());
    assert_eq!(server.rcode(), "NOERROR");
}

#[test]
fn knot_with_a_key_is_followed() {
    let address = free_address();
    follow(plain(address, true), |notified, folder| knot(address, notified, folder));
}

#[test]
fn bind_is_followed() {
    let address = free_address();
    follow(plain(address, false), |notified, folder| named(address, None, notified, folder));
}

/// RFC 9103.
#[test]
fn bind_is_followed_over_tls() {
    let (address, tls) = (free_address(), free_address());
    let pair = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![TLS_NAME.to_owned()]).unwrap().self_signed(&pair).unwrap();
    let client = |pem: &str| {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Arc::new(config)
    };
    let over_tls = |client: Arc<ClientConfig>, address: SocketAddr| {
        let name = ServerName::try_from(TLS_NAME).unwrap();
        Primary { address, key: None, tls: Some((client, name)) }
    };
    let pems = [certificate.pem(), pair.serialize_pem()];
    let start = |notified: SocketAddr, folder: &Path| {
        std::fs::write(folder.join("cert.pem"), &pems[0]).unwrap();
        std::fs::write(folder.join("key.pem"), &pems[1]).unwrap();
        named(address, Some(tls), notified, folder)
    };
    follow(over_tls(client(&pems[0]), tls), start);
    // Another certificate, and a server without TLS: nothing is transferred.
    let other = rcgen::KeyPair::generate().unwrap();
    let other = rcgen::CertificateParams::new(vec![TLS_NAME.to_owned()]).unwrap().self_signed(&other).unwrap();
    for primary in [over_tls(client(&other.pem()), tls), over_tls(client(&pems[0]), address)] {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("z.zone"), zone_file(1)).unwrap();
        let server = Server::start(vec![primary], &folder.path().join("copies"));
        let _process = start(server.address, folder.path());
        eventually("named answers", folder.path(), &server, || dig(address, &[APEX, "SOA"]).contains("NOERROR"));
        assert_eq!(server.notify(Ipv4Addr::LOCALHOST), 0);
        eventually("an error", folder.path(), &server, || {
            server.status().error.is_some_and(|error| !error.contains("refused"))
        });
        assert_eq!(server.serial(), None);
    }
}

/// A wrong key, and no key where one is necessary.
#[test]
fn a_transfer_without_the_right_key_fails() {
    let address = free_address();
    let wrong = Arc::new(Key::new("transfer.example.".parse().unwrap(), "hmac-sha256", b"another secret").unwrap());
    for key in [None, Some(wrong)] {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("z.zone"), zone_file(1)).unwrap();
        let server = Server::start(vec![Primary { address, key, tls: None }], &folder.path().join("copies"));
        let _process = knot(address, server.address, folder.path());
        let fails = || server.status().error.is_some_and(|error| error.contains("NOTAUTH"));
        eventually("NOTAUTH", folder.path(), &server, fails);
        assert_eq!((server.serial(), server.rcode().as_str()), (None, "SERVFAIL"));
    }
}

/// The records of a message.
type Records = Vec<Vec<u8>>;

/// The messages of a [`Liar`].
#[derive(Clone, Default)]
struct Lie {
    /// The serial in the answer to a query for the SOA record; 0: it closes the connection.
    announced: u32,
    /// The records of each message of a transfer. Afterwards, it closes the connection.
    messages: Vec<Records>,
    /// The answer to IXFR, if it differs from that to AXFR.
    incremental: Option<Reply>,
}

#[derive(Clone)]
enum Reply {
    Rcode(u8),
    Messages(Vec<Records>),
    Silence,
}

/// A primary server that sends anything.
struct Liar {
    address: SocketAddr,
    lie: Arc<Mutex<Lie>>,
    /// The types of the queries.
    queries: Arc<Mutex<Vec<u16>>>,
}

impl Liar {
    fn start() -> Liar {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (lie, queries) = (Arc::<Mutex<Lie>>::default(), Arc::<Mutex<Vec<u16>>>::default());
        let (of_thread, asked) = (lie.clone(), queries.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that closes the connection first.
                drop(answer(stream.unwrap(), &of_thread.lock().clone(), &asked));
            }
        });
        Liar { address, lie, queries }
    }

    fn send(&self, announced: u32, messages: &[&[Vec<u8>]]) {
        let messages = messages.iter().map(|records| records.to_vec()).collect();
        *self.lie.lock() = Lie { announced, messages, incremental: None };
    }
}

fn answer(mut stream: TcpStream, lie: &Lie, queries: &Mutex<Vec<u16>>) -> std::io::Result<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query)?;
        let end = 12 + apex().as_wire().len() + 4;
        let qtype = u16::from_be_bytes([query[end - 4], query[end - 3]]);
        queries.lock().push(qtype);
        let reply = match qtype {
            6 if lie.announced == 0 => return Ok(()),
            6 => Reply::Messages(vec![vec![soa(lie.announced)]]),
            251 if let Some(reply) = &lie.incremental => reply.clone(),
            _ => Reply::Messages(lie.messages.clone()),
        };
        let (rcode, messages) = match reply {
            Reply::Rcode(rcode) => (rcode, vec![vec![]]),
            Reply::Messages(messages) => (0, messages),
            // Until the client closes the connection.
            Reply::Silence => return stream.read(&mut length).map(drop),
        };
        for records in messages {
            let mut message = query[..end].to_vec();
            message[2..12].copy_from_slice(&[0x84, rcode, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
            message.extend(records.concat());
            stream.write_all(&(message.len() as u16).to_be_bytes())?;
            stream.write_all(&message)?;
        }
        if qtype != 6 {
            return Ok(());
        }
    }
}

fn record(owner: &str, rtype: u16, rdata: &[u8]) -> Vec<u8> {
    let head = [&rtype.to_be_bytes()[..], &[0, 1, 0, 0, 0, 60], &(rdata.len() as u16).to_be_bytes()].concat();
    [owner.parse::<Name>().unwrap().as_wire(), &head, rdata].concat()
}

/// Returns a SOA record with a refresh time of one hour and an expire time of two.
fn soa(serial: u32) -> Vec<u8> {
    let timers = [serial, 3_600, 10, 7_200, 60].map(u32::to_be_bytes).concat();
    record(APEX, 6, &[b"\x02ns\x04test\0\x05admin\x04test\0", &timers[..]].concat())
}

fn ns() -> Vec<u8> {
    record(APEX, 2, b"\x02ns\x04test\0")
}

fn a(owner: &str) -> Vec<u8> {
    record(owner, 1, &[192, 0, 2, 1])
}

/// The served zone stays, and the version of an honest server is taken. The tests in `incoming.rs` have the contents of transfers.
#[test]
fn a_lying_primary_server_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let (liar, honest) = (Liar::start(), Liar::start());
    let of = |liar: &Liar| plain(liar.address, false);
    liar.send(5, &[&[soa(5), ns(), a("a.z.test."), soa(5)]]);
    let server = Server::start(vec![of(&liar), of(&honest)], folder.path());
    eventually("the first version", folder.path(), &server, || server.serial() == Some(5));
    let before = server.text();
    let lies: [(&str, u32, Vec<Records>); 12] = [
        ("silence", 0, vec![]),
        ("an older serial", 4, vec![]),
        ("an older zone than announced", 9, vec![vec![soa(4), ns(), soa(4)]]),
        ("an equal zone", 9, vec![vec![soa(5), ns(), soa(5)]]),
        ("a single SOA record", 9, vec![vec![soa(5)]]),
        ("no closing SOA record", 9, vec![vec![soa(9), ns(), a("b.z.test.")]]),
        ("SOA in the middle", 9, vec![vec![soa(9), ns()], vec![soa(8), a("b.z.test.")], vec![soa(9)]]),
        ("out of zone", 9, vec![vec![soa(9), ns(), a("b.test."), soa(9)]]),
        ("no name server", 9, vec![vec![soa(9), a("b.z.test."), soa(9)]]),
        ("differences of a record that is missing", 9, vec![vec![soa(9), soa(5), a("x.z.test."), soa(9), soa(9)]]),
        ("differences in a circle", 9, vec![vec![soa(9), soa(5), soa(5)]]),
        ("an empty message", 9, vec![vec![soa(9), ns()], vec![]]),
    ];
    for (case, announced, messages) in lies {
        let messages: Vec<&[Vec<u8>]> = messages.iter().map(Vec::as_slice).collect();
        liar.send(announced, &messages);
        // The other one is queried after it.
        let queried = honest.queries.lock().len();
        assert_eq!(server.notify(Ipv4Addr::LOCALHOST), 0, "{case}");
        let address = liar.address.to_string();
        let is_seen = || {
            let is_asked = honest.queries.lock().len() > queried;
            is_asked && server.status().error.is_some_and(|error| error.contains(&address))
        };
        eventually(case, folder.path(), &server, is_seen);
        assert_eq!((server.serial(), server.text()), (Some(5), before.clone()), "{case}");
    }
    // A NOTIFY of any serial causes one query, and many cause at most one per second.
    liar.send(5, &[]);
    honest.send(5, &[]);
    let queried = liar.queries.lock().len();
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(server.notify(Ipv4Addr::LOCALHOST), 0);
        std::thread::sleep(Duration::from_millis(5));
    }
    eventually("it is current", folder.path(), &server, || server.status().error.is_none());
    let seconds = started.elapsed().as_secs() as usize;
    let queries = liar.queries.lock().len() - queried;
    assert!((1..=seconds + 2).contains(&queries), "{queries} queries in {seconds} s");
    // The other primary server has a newer version.
    honest.send(6, &[&[soa(6), soa(5), a("a.z.test."), soa(6), a("c.z.test."), soa(6)]]);
    server.notify(Ipv4Addr::LOCALHOST);
    eventually("the newer version", folder.path(), &server, || server.serial() == Some(6));
    assert!(server.text().iter().any(|line| line.starts_with("c\t")), "{:?}", server.text());
}

/// A name, and the reply to IXFR for the version with this serial.
type Case = (&'static str, fn(u32) -> Reply);

/// Follows a primary server whose zone has one more serial for each case, and which answers IXFR with these replies.
fn follow_without_increments(cases: &[Case]) {
    let (folder, liar) = (TempDir::new().unwrap(), Liar::start());
    liar.send(5, &[&[soa(5), ns(), soa(5)]]);
    let server = Server::start(vec![plain(liar.address, false)], folder.path());
    eventually("the first version", folder.path(), &server, || server.serial() == Some(5));
    for (serial, (case, reply)) in (6..).zip(cases) {
        let queried = liar.queries.lock().len();
        let messages = vec![vec![soa(serial), ns(), soa(serial)]];
        *liar.lie.lock() = Lie { announced: serial, messages, incremental: Some(reply(serial)) };
        assert_eq!(server.notify(Ipv4Addr::LOCALHOST), 0, "{case}");
        eventually(case, folder.path(), &server, || server.serial() == Some(serial));
        assert_eq!(liar.queries.lock()[queried..], [6, 251, 6, 252], "{case}");
    }
}

/// The history of a primary server may be damaged, and its zone is not. It would otherwise expire here.
#[test]
fn a_failed_incremental_transfer_is_followed_by_a_whole_one() {
    follow_without_increments(&[
        ("SERVFAIL", |_| Reply::Rcode(2)),
        ("NOTIMP", |_| Reply::Rcode(4)),
        ("REFUSED", |_| Reply::Rcode(5)),
        ("NOTAUTH", |_| Reply::Rcode(9)),
        ("a closed connection", |_| Reply::Messages(vec![])),
        ("a closed connection in the middle", |new| Reply::Messages(vec![vec![soa(new), soa(new - 1), soa(new)]])),
        ("a single SOA record", |new| Reply::Messages(vec![vec![soa(new)]])),
        ("an empty message", |_| Reply::Messages(vec![vec![]])),
        ("a record outside the zone", |new| {
            Reply::Messages(vec![vec![soa(new), soa(new - 1), soa(new), a("b.test."), soa(new)]])
        }),
        ("differences from another version", |new| Reply::Messages(vec![vec![soa(new), soa(new - 2), soa(new)]])),
        ("differences of a record that is missing", |new| {
            Reply::Messages(vec![vec![soa(new), soa(new - 1), a("x.z.test."), soa(new), soa(new)]])
        }),
    ]);
}

#[test]
fn a_silent_incremental_transfer_is_followed_by_a_whole_one() {
    follow_without_increments(&[("silence", |_| Reply::Silence)]);
}

#[test]
fn a_notify_of_strangers_is_refused() {
    let (folder, liar) = (TempDir::new().unwrap(), Liar::start());
    let server = Server::start(vec![plain(liar.address, false)], folder.path());
    assert_eq!((server.notify(Ipv4Addr::new(127, 0, 0, 2)), server.notify(Ipv4Addr::LOCALHOST)), (5, 0));
    let with_key = Server::start(vec![plain("192.0.2.1:53".parse().unwrap(), true)], &folder.path().join("other"));
    assert_eq!(with_key.notify(Ipv4Addr::LOCALHOST), 5);
}

/// RFC 8945 §5.2 for NOTIFY, as Knot's `kdig` sends it. A signature that cannot be verified is an error, even from an address that needs
/// none, and nothing is queried.
#[test]
fn a_notify_with_a_wrong_signature_is_an_error() {
    let (folder, liar) = (TempDir::new().unwrap(), Liar::start());
    liar.send(5, &[&[soa(5), ns(), soa(5)]]);
    let server = Server::start(vec![plain(liar.address, false)], folder.path());
    eventually("the first version", folder.path(), &server, || server.serial() == Some(5));
    let queried = liar.queries.lock().len();
    let notify = |program: &str, clock: &[&str], with_key: Option<&str>| {
        let port = server.address.port().to_string();
        let signature: Vec<&str> = with_key.into_iter().flat_map(|with_key| ["-y", with_key]).collect();
        let arguments = [clock, &["@127.0.0.1", "-p", &port, "-t", "NOTIFY", APEX], &signature].concat();
        let output =
            Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let secret = key().secret_text();
    let good = format!("hmac-sha256:transfer.example:{secret}");
    for (program, clock, with_key, expected) in [
        ("kdig", &[][..], format!("hmac-sha256:other.example:{secret}"), "BADKEY"),
        ("kdig", &[], format!("hmac-sha512:transfer.example:{secret}"), "BADKEY"),
        ("kdig", &[], "hmac-sha256:transfer.example:AAAA".to_owned(), "BADSIG"),
        ("faketime", &["-f", "-10m", "kdig"], good.clone(), "BADTIME"),
        ("faketime", &["-f", "+10m", "kdig"], good.clone(), "BADTIME"),
    ] {
        let answer = notify(program, clock, Some(&with_key));
        assert!(answer.contains(&format!("status: {expected}")), "{with_key}: {answer}");
    }
    std::thread::sleep(Duration::from_millis(1_200));
    assert_eq!((liar.queries.lock().len(), server.serial()), (queried, Some(5)), "nothing is queried");
    for (with_key, serial) in [(Some(&*good), 6), (None, 7)] {
        liar.send(serial, &[&[soa(serial), ns(), soa(serial)]]);
        let answer = notify("kdig", &[], with_key);
        assert!(answer.contains("status: NOERROR"), "{with_key:?}: {answer}");
        eventually("the next version", folder.path(), &server, || server.serial() == Some(serial));
    }
}

/// RFC 1034 §4.3.5: after the expire time, the zone is not served. Its names then get SERVFAIL.
#[test]
fn an_expired_zone_gets_servfail_until_it_is_transferred() {
    let (folder, liar) = (TempDir::new().unwrap(), Liar::start());
    liar.send(5, &[&[soa(5), ns(), a("a.z.test."), soa(5)]]);
    let start = || Server::start(vec![plain(liar.address, false)], folder.path());
    let server = start();
    eventually("the first version", folder.path(), &server, || server.serial() == Some(5));
    drop(server);
    let path = folder.path().join("z.test.zone");
    let set_age = |age| std::fs::File::options().append(true).open(&path).unwrap().set_modified(age).unwrap();
    let ago = |seconds| SystemTime::now().checked_sub(Duration::from_secs(seconds)).unwrap();
    liar.send(0, &[]);
    for (seconds, serial, rcode) in [(7_000, Some(5), "NOERROR"), (7_300, None, "SERVFAIL")] {
        set_age(ago(seconds));
        let server = start();
        assert_eq!((server.serial(), server.rcode().as_str()), (serial, rcode));
        assert_eq!(server.status().has_expired, serial.is_none());
        let text = dig(server.address, &["missing.z.test.", "A"]);
        assert!(text.contains(if serial.is_some() { "NXDOMAIN" } else { "SERVFAIL" }), "{text}");
    }
    let server = start();
    liar.send(5, &[&[soa(5), ns(), a("a.z.test."), soa(5)]]);
    server.notify(Ipv4Addr::LOCALHOST);
    eventually("it is back", folder.path(), &server, || server.serial() == Some(5));
    assert_eq!((server.rcode().as_str(), server.status().has_expired), ("NOERROR", false));
    // A confirmation is recorded on disk, too.
    set_age(ago(7_000));
    server.notify(Ipv4Addr::LOCALHOST);
    let is_fresh = || std::fs::metadata(&path).unwrap().modified().unwrap() > ago(3_600);
    eventually("the copy is fresh", folder.path(), &server, is_fresh);
}
