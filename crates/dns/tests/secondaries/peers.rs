//! A primary server, and Knot, NSD, BIND and PowerDNS of the system as its secondary servers. The bench `secondaries` uses them, too.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use signpost_dns::nameserver::{Settings, Transport};
use signpost_dns::notify::{Notifier, Secondary};
use signpost_dns::transfer::catalog::{Catalog, Group};
use signpost_dns::transfer::{Rule, Transfers};
use signpost_dns::transport::tls_base::TlsBase;
use signpost_dns::transport::{self, Config, Running};
use signpost_dns::tsig::{Key, Keys};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::builder::OwnerChange;
use signpost_dns::zone::publish::{Change, Origin, Publisher, What, build};
use signpost_dns::zone::rrset::Rdata;
use signpost_dns::zone::{Contents, Rrset, Serial, Ttl, ZoneDb};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_util::sync::CancellationToken;

pub const PATIENCE: Duration = Duration::from_secs(60);
pub const APEX: &str = "z.test.";
pub const CATALOG: &str = "catalog.invalid.";

pub fn key() -> Key {
    Key::new("transfer.example.".parse().unwrap(), "hmac-sha256", b"a secret of the test").unwrap()
}

/// A primary server on a loopback port.
pub struct Primary {
    pub zones: Publisher,
    pub catalog: Arc<Catalog>,
    pub transfers: Arc<Transfers>,
    pub notifier: Arc<Notifier>,
    pub address: SocketAddr,
    pub tls_address: SocketAddr,
    /// The certificate of the server, in PEM.
    pub certificate: String,
    pub runtime: tokio::runtime::Runtime,
    running: Option<Running>,
    pub stop: CancellationToken,
}

impl Primary {
    /// Starts a server that notifies these addresses, with the key if `signs`.
    pub fn start(secondaries: &[SocketAddr], signs: bool) -> Primary {
        Primary::start_with(secondaries, signs, false)
    }

    /// Starts the same server, whose zones can be transferred over TLS only if `tls` (RFC 9103).
    pub fn start_with(secondaries: &[SocketAddr], signs: bool, tls: bool) -> Primary {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let keys = Arc::new(Keys::new([key()]).unwrap());
        let key = signs.then(|| keys.get(key().name()).unwrap().clone());
        let rule = Rule {
            zones: Vec::new(),
            networks: vec!["127.0.0.0/8".parse().unwrap()],
            keys: key.iter().map(|key| key.name().clone()).collect(),
            tls,
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
        let any = || vec!["127.0.0.1:0".parse().unwrap()];
        let config = Config { addresses: any(), tls_addresses: any(), udp_workers: 1, ..Config::default() };
        let mut bound = transport::bind(&config).unwrap();
        let (certificate, shown) = make_certificate();
        bound.set_tls(TlsBase::new(Arc::new(shown)).unwrap());
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
        let (address, tls_address) = (running.addresses()[0], running.encrypted_addresses(Transport::Tls)[0]);
        let running = Some(running);
        Primary { zones, catalog, transfers, notifier, address, tls_address, certificate, runtime, running, stop }
    }

    pub fn publish(&self, contents: &Contents) {
        self.zones.publish([Change::whole(Origin::Objects, build(contents.clone()).unwrap())]);
    }

    pub fn change(&self, serial: u32, owner: &str, addresses: &[[u8; 4]]) {
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

/// The name in the certificate of a primary server.
pub const TLS_NAME: &str = "ns1.example";

/// Returns a certificate in PEM, and the same with its key.
fn make_certificate() -> (String, SingleCertAndKey) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![TLS_NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    let private = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let provider = aws_lc_rs::default_provider();
    let with_key = CertifiedKey::from_der(vec![certificate.der().clone()], private, &provider).unwrap();
    (certificate.pem(), SingleCertAndKey::from(with_key))
}

/// A process that ends with the test.
pub struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start(program: &str, arguments: &[&str], folder: &Path, configuration: &str) -> Server {
    let path = folder.join(format!("{program}.conf"));
    std::fs::write(&path, configuration).unwrap();
    spawn(Command::new(program).args(arguments).arg(&path), program, folder)
}

fn spawn(command: &mut Command, program: &str, folder: &Path) -> Server {
    let log = std::fs::File::options().create(true).append(true).open(folder.join(format!("{program}.log"))).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Server(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
}

/// Returns the part of a configuration of Knot about its zones.
pub fn knot_zone(folder: &Path) -> String {
    let here = folder.display();
    format!(
        "zone:\n  - domain: {APEX}\n    master: primary\n    acl: [notify, transfer]\n    file: {here}/knot.zone\n    \
         zonefile-sync: -1\n    zonefile-load: none\n    journal-content: all\n"
    )
}

/// Returns the part of a configuration of Knot with the zones of a catalog.
pub fn knot_catalog(folder: &Path) -> String {
    let here = folder.display();
    let common = "master: primary\n    acl: [notify, transfer]\n    zonefile-sync: -1\n    zonefile-load: none\n    \
                  journal-content: all\n";
    format!(
        "template:\n  - id: default\n    storage: {here}/knot\n  - id: shards\n    storage: {here}/knot\n    {common}zone:\n  - \
         domain: {CATALOG}\n    {common}    catalog-role: interpret\n    catalog-template: [shards]\n"
    )
}

pub fn knot(listen: SocketAddr, primary: SocketAddr, folder: &Path, signs: bool, zones: &str) -> Server {
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

/// NSD, which transfers over TLS if there is a `ca.pem` in the folder.
pub fn nsd(listen: SocketAddr, primary: SocketAddr, folder: &Path, signs: bool) -> Server {
    let (tls_section, tls_bundle, tls_name) = match folder.join("ca.pem") {
        ca if ca.exists() => (
            format!("tls-auth:\n  name: primary\n  auth-domain-name: {TLS_NAME}\n"),
            format!("  tls-cert-bundle: \"{}\"\n", ca.display()),
            " primary",
        ),
        _ => Default::default(),
    };
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
         xfrd-reload-timeout: 0\n  verbosity: 2\n{tls_bundle}remote-control:\n  control-enable: no\n{tls_section}{key_section}zone:\n  name: \"{APEX}\"\n  \
         zonefile: \"{here}/nsd.zone\"\n  request-xfr: {primary_host}@{primary_port} {key_name}{tls_name}\n  allow-notify: 127.0.0.1 {key_name}\n  \
         provide-xfr: 127.0.0.1 NOKEY\n"
    );
    start("nsd", &["-d", "-c"], folder, &text)
}

/// BIND, which transfers over TLS if there is a `ca.pem` in the folder.
pub fn named(listen: SocketAddr, primary: SocketAddr, folder: &Path, signs: bool, apex: &str) -> Server {
    let (tls_section, with_tls) = match folder.join("ca.pem") {
        ca if ca.exists() => (
            format!("tls primary {{ ca-file \"{}\"; remote-hostname \"{TLS_NAME}\"; }};\n", ca.display()),
            " tls primary",
        ),
        _ => Default::default(),
    };
    let (key_section, with_key, notify) = match signs {
        true => (key().to_bind(), " key transfer.example", "key transfer.example"),
        false => (String::new(), "", "127.0.0.1"),
    };
    let here = folder.display();
    let (host, port) = (listen.ip(), listen.port());
    let (primary_host, primary_port) = (primary.ip(), primary.port());
    let primaries = format!("{primary_host} port {primary_port}{with_key}{with_tls};");
    let catalog = match apex {
        CATALOG => format!(
            "catalog-zones {{ zone \"{CATALOG}\" default-primaries {{ {primaries} }} in-memory no min-update-interval 1; }};"
        ),
        _ => String::new(),
    };
    let text = format!(
        "{tls_section}{key_section}options {{ directory \"{here}\"; pid-file none; session-keyfile none; listen-on port {port} {{ {host}; }};\n\
         listen-on-v6 {{ none; }}; dnssec-validation no; notify no; recursion no; allow-transfer {{ 127.0.0.1; }}; \
         serial-query-rate 1000; {catalog} }};\ncontrols {{ }};\nzone \"{apex}\" {{ type secondary; file \"named.db\"; masterfile-format text;\n\
         primaries {{ {primaries} }}; allow-notify {{ {notify}; }}; }};\n"
    );
    start("named", &["-g", "-n", "1", "-c"], folder, &text)
}

/// PowerDNS, with its zones in a database of SQLite, which stays. It follows the zone, or the catalog and its zones.
pub fn powerdns(listen: SocketAddr, primary: SocketAddr, folder: &Path, signs: bool, apex: &str) -> Server {
    let (here, database) = (folder.display(), folder.join("pdns.sqlite"));
    let text = format!(
        "launch=gsqlite3\ngsqlite3-database={}\nsecondary=yes\nlocal-address={}\nlocal-port={}\nsocket-dir={here}\nsetuid=\nsetgid=\n\
         disable-syslog=yes\ncache-ttl=0\nquery-cache-ttl=0\nnegquery-cache-ttl=0\nzone-cache-refresh-interval=0\n\
         xfr-cycle-interval=1\nretrieval-threads=1\nguardian=no\ndaemon=no\nsecurity-poll-suffix=\n",
        database.display(),
        listen.ip(),
        listen.port(),
    );
    std::fs::write(folder.join("pdns.conf"), text).unwrap();
    let config_dir = format!("--config-dir={here}");
    if !database.exists() {
        let schema = std::fs::File::open("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql");
        let schema = schema.expect("pdns-backend-sqlite3 is installed");
        run(Command::new("sqlite3").arg(&database).stdin(schema));
        let apex = apex.trim_end_matches('.');
        let utility = |arguments: &[&str]| run(Command::new("pdnsutil").arg(&config_dir).args(arguments));
        utility(&["create-secondary-zone", apex, &primary.to_string()]);
        if signs {
            utility(&["import-tsig-key", "transfer.example", "hmac-sha256", &key().secret_text()]);
            utility(&["activate-tsig-key", apex, "transfer.example", "secondary"]);
        }
        // It cannot apply the differences of a catalog (4.7.3: "can't determine backend, not configured as slave").
        match format!("{apex}.") == CATALOG {
            true => utility(&["set-kind", apex, "consumer"]),
            false => utility(&["set-meta", apex, "IXFR", "1"]),
        }
    }
    spawn(Command::new("pdns_server").arg(config_dir), "pdns_server", folder)
}

/// Runs a command that succeeds.
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns what `dig` prints without comments.
pub fn dig(server: SocketAddr, arguments: &[&str]) -> String {
    let (at, port) = (format!("@{}", server.ip()), server.port().to_string());
    let output = Command::new("dig").args([&at, "-p", &port]).args(arguments).output().expect("dig is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the records of a server's zone, each once; none if it has none.
pub fn zone_at(server: SocketAddr) -> BTreeSet<String> {
    let text = dig(server, &[APEX, "AXFR", "+noall", "+answer", "+onesoa", "+nocookie"]);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
    text.lines().filter(|line| !line.starts_with(';') && !line.is_empty()).map(words).collect()
}

#[track_caller]
pub fn eventually(what: &str, folder: &Path, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            let mut logs = String::new();
            for program in ["knotd", "nsd", "named", "pdns_server"] {
                let log = std::fs::read_to_string(folder.join(format!("{program}.log"))).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(25).collect();
                write!(logs, "\n--- {program}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n")).unwrap();
            }
            panic!("not in time: {what}{logs}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn soa_serial(server: SocketAddr) -> Option<u32> {
    serial_of(server, APEX)
}

pub fn serial_of(server: SocketAddr, apex: &str) -> Option<u32> {
    dig(server, &[apex, "SOA", "+short", "+time=1", "+tries=1"]).split_whitespace().nth(2)?.parse().ok()
}
