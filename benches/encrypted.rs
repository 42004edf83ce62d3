//! Compares Signpost over TLS, HTTPS and QUIC with Knot, Unbound and dnsdist, which answer from memory, too.
//!
//! `cargo bench --bench encrypted --features quic` starts each server on the first processor with one thread that answers, and keeps itself on
//! the second one. Signpost is the real program. For each server and transport it prints
//!
//! - queries per second of the server's processor, over 16 warm connections with one query or 16 in flight on each;
//! - full and resumed handshakes per second of the server's processor;
//! - memory for each idle connection, after one query on each of `SIGNPOST_BENCH_CONNECTIONS` (default 5,000) connections;
//! - the latency of queries at 2,000 per second over these connections.
//!
//! Words after `--` select transports and servers: `cargo bench --bench encrypted --features quic -- https signpost dnsdist`.
//!
//! A server that is not installed is left out. Knot 3.2 and NSD 4.6 of Debian 12 serve none of these transports; Knot 3.4 serves TLS and QUIC.
//! `debootstrap --variant=minbase --include=knot trixie DIRECTORY` installs it, and `SIGNPOST_BENCH_KNOT=DIRECTORY` names the directory.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use signpost_testing::{DataDir, Process, free_address, program};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::ServerName;

const NAME: &str = "ns.bench.example";
/// A query for www.bench.example, A, with its length before it and the ID 0.
const QUERY: &[u8] = b"\0\x23\0\0\0\0\0\x01\0\0\0\0\0\0\x03www\x05bench\x07example\0\0\x01\0\x01";
const ZONE: &str = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.1\n";
const WARM: usize = 16;
const WINDOWS: [usize; 2] = [1, 16];
const MEASURED: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(10);
const PACED: f64 = 2_000.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    Tls,
    Https,
    Quic,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Peer {
    Signpost,
    Knot,
    Unbound,
    Dnsdist,
}

/// A running server.
struct Server {
    process: Process,
    tls: SocketAddr,
    https: SocketAddr,
    quic: SocketAddr,
    _data: DataDir,
}

impl Server {
    fn start(peer: Peer, certificate: &Path, key: &Path) -> Option<Server> {
        let data = DataDir::new();
        let [plain, tls, https, quic] = [free_address(), free_address(), free_address(), free_address()];
        let (crt, key) = (certificate.display(), key.display());
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]);
        match peer {
            Peer::Signpost => {
                std::fs::write(data.join("bench.example.zone"), ZONE).expect("written");
                command.arg(program()).args(["serve", "--roles", "dns", "--dns-workers", "1", "--zones", data.path()]);
                command.args(["--dns-listen", &plain.to_string(), "--dns-tls-listen", &tls.to_string()]);
                command.args(["--dns-https-listen", &https.to_string(), "--tcp-connections-per-client", "20000"]);
                command.args(["--tcp-connections", "8192", "--tcp-idle-timeout", "10m"]);
                command.args(["--dns-certificate", &crt.to_string(), "--dns-key", &key.to_string()]);
                if cfg!(feature = "quic") {
                    command.args(["--dns-quic-listen", &quic.to_string()]);
                }
            }
            Peer::Knot => {
                let root = std::env::var("SIGNPOST_BENCH_KNOT").ok()?;
                let directory = data.path();
                let text = format!(
                    "server:\n  rundir: {directory}\n  listen: {}@{}\n  listen-tls: {}@{}\n  listen-quic: {}@{}\n  cert-file: {crt}\n  \
                     key-file: {key}\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n  tcp-max-clients: 8192\n  \
                     tcp-idle-timeout: 600\n  quic-max-clients: 8192\n  quic-idle-close-timeout: 600\n  quic-outbuf-max-size: 1G\n\
                     database:\n  storage: {directory}/db\nzone:\n  - domain: bench.example\n    file: {directory}/bench.example.zone\n    \
                     zonefile-sync: -1\n    journal-content: none\n",
                    plain.ip(),
                    plain.port(),
                    tls.ip(),
                    tls.port(),
                    quic.ip(),
                    quic.port()
                );
                std::fs::write(data.join("bench.example.zone"), ZONE).expect("written");
                std::fs::write(data.join("knot.conf"), text).expect("written");
                // Its own C library, which is newer than the machine's.
                command.arg(format!("{root}/lib64/ld-linux-x86-64.so.2")).arg("--library-path");
                command.arg(format!("{root}/usr/lib/x86_64-linux-gnu")).arg(format!("{root}/usr/sbin/knotd"));
                command.arg("-c").arg(data.join("knot.conf"));
            }
            Peer::Unbound => {
                let text = format!(
                    "server:\n  interface: {}@{}\n  interface: {}@{}\n  tls-port: {}\n  https-port: {}\n  tls-service-pem: \"{crt}\"\n  \
                     tls-service-key: \"{key}\"\n  num-threads: 1\n  incoming-num-tcp: 8192\n  tcp-idle-timeout: 600000\n  \
                     http-query-buffer-size: 64m\n  http-response-buffer-size: 64m\n  \
                     username: \"\"\n  chroot: \"\"\n  directory: \"/\"\n  pidfile: \"\"\n  use-syslog: no\n  do-daemonize: no\n  \
                     access-control: 127.0.0.0/8 allow\n  module-config: \"iterator\"\n  local-zone: \"bench.example.\" static\n  \
                     local-data: \"www.bench.example. 60 A 192.0.2.1\"\nremote-control:\n  control-enable: no\n",
                    tls.ip(),
                    tls.port(),
                    https.ip(),
                    https.port(),
                    tls.port(),
                    https.port()
                );
                std::fs::write(data.join("unbound.conf"), text).expect("written");
                command.args(["unbound", "-d", "-c"]).arg(data.join("unbound.conf"));
            }
            Peer::Dnsdist => {
                let text = format!(
                    "setLocal(\"{plain}\")\nsetMaxTCPClientThreads(1)\nsetMaxTCPConnectionsPerClient(0)\nsetTCPRecvTimeout(600)\n\
                     addTLSLocal(\"{tls}\", \"{crt}\", \"{key}\", {{maxInFlight=64, numberOfStoredSessions=20480}})\n\
                     addDOHLocal(\"{https}\", \"{crt}\", \"{key}\", \"/dns-query\", {{idleTimeout=600}})\n\
                     addAction(AllRule(), SpoofAction(\"192.0.2.1\", {{ttl=60}}))\nsetSecurityPollSuffix(\"\")\n"
                );
                std::fs::write(data.join("dnsdist.conf"), text).expect("written");
                command.args(["dnsdist", "--supervised", "-C"]).arg(data.join("dnsdist.conf"));
            }
        }
        let tool = match peer {
            Peer::Signpost | Peer::Knot => None,
            Peer::Unbound => Some("/usr/sbin/unbound"),
            Peer::Dnsdist => Some("/usr/bin/dnsdist"),
        };
        if tool.is_some_and(|tool| !Path::new(tool).exists()) {
            return None;
        }
        Some(Server { process: Process::logged(&mut command), tls, https, quic, _data: data })
    }

    fn address(&self, transport: Transport) -> SocketAddr {
        match transport {
            Transport::Tls => self.tls,
            Transport::Https => self.https,
            Transport::Quic => self.quic,
        }
    }
}

/// A connection, ready for queries.
enum Connection {
    Tls {
        read: ReadHalf<TlsStream<TcpStream>>,
        write: WriteHalf<TlsStream<TcpStream>>,
    },
    Https(h2::client::SendRequest<Bytes>),
    #[cfg(feature = "quic")]
    Quic(quinn::Connection),
}

impl Connection {
    async fn open(transport: Transport, server: SocketAddr, client: &Client) -> Option<Connection> {
        #[cfg(feature = "quic")]
        if transport == Transport::Quic {
            let connecting = client.quic.connect_with(client.quic_config.clone(), server, NAME).ok()?;
            return timeout(PATIENCE, connecting).await.ok()?.ok().map(Connection::Quic);
        }
        let opened = async {
            let stream = TcpStream::connect(server).await.ok()?;
            stream.set_nodelay(true).ok()?;
            let alpn: &[u8] = if transport == Transport::Https { b"h2" } else { b"dot" };
            let mut config = ClientConfig::clone(&client.config);
            config.alpn_protocols = vec![alpn.to_vec()];
            let name = ServerName::try_from(NAME).expect("a name");
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
            if transport == Transport::Https {
                let (sender, connection) = h2::client::handshake(stream).await.ok()?;
                tokio::spawn(connection);
                return Some(Connection::Https(sender.ready().await.ok()?));
            }
            let (read, write) = split(stream);
            Some(Connection::Tls { read, write })
        };
        timeout(PATIENCE, opened).await.ok()?
    }

    /// Sends one query, and waits for the response.
    async fn ask(&mut self) -> Option<()> {
        match self {
            Connection::Tls { .. } => self.round(1).await,
            Connection::Https(sender) => over_https(sender.clone()).await,
            #[cfg(feature = "quic")]
            Connection::Quic(connection) => over_quic(connection).await,
        }
    }

    /// Sends `window` queries at once over TLS, and waits for all responses.
    async fn round(&mut self, window: usize) -> Option<()> {
        let Connection::Tls { read, write } = self else { return None };
        // Each query in a record of its own, as clients send them.
        for _ in 0..window {
            write.write_all(QUERY).await.ok()?;
        }
        write.flush().await.ok()?;
        let mut octets = [0; 512];
        for _ in 0..window {
            let length = usize::from(read.read_u16().await.ok()?);
            read.read_exact(octets.get_mut(..length)?).await.ok()?;
            is_right(&octets[..length])?;
        }
        Some(())
    }

    /// Keeps `window` queries in flight until `until`, and returns the number of responses.
    async fn load(mut self, window: usize, until: Instant) -> u64 {
        let count = AtomicU64::new(0);
        match &mut self {
            Connection::Tls { .. } => {
                while Instant::now() < until && timeout(PATIENCE, self.round(window)).await.ok().flatten().is_some() {
                    count.fetch_add(window as u64, Ordering::Relaxed);
                }
            }
            Connection::Https(sender) => {
                let streams = (0..window).map(|_| async {
                    while Instant::now() < until
                        && timeout(PATIENCE, over_https(sender.clone())).await.ok().flatten().is_some()
                    {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
                join_all(streams).await;
            }
            #[cfg(feature = "quic")]
            Connection::Quic(connection) => {
                let streams = (0..window).map(|_| async {
                    while Instant::now() < until
                        && timeout(PATIENCE, over_quic(connection)).await.ok().flatten().is_some()
                    {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
                join_all(streams).await;
            }
        }
        count.into_inner()
    }
}

async fn over_https(sender: h2::client::SendRequest<Bytes>) -> Option<()> {
    let request = http::Request::post(format!("https://{NAME}/dns-query"))
        .header("content-type", "application/dns-message")
        .header("accept", "application/dns-message")
        .body(())
        .expect("a request");
    let (response, mut body) = sender.ready().await.ok()?.send_request(request, false).ok()?;
    body.send_data(Bytes::from_static(&QUERY[2..]), true).ok()?;
    let response = response.await.ok()?;
    let mut body = response.into_body();
    let mut octets = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.ok()?;
        body.flow_control().release_capacity(chunk.len()).ok()?;
        octets.extend_from_slice(&chunk);
    }
    is_right(&octets)
}

#[cfg(feature = "quic")]
async fn over_quic(connection: &quinn::Connection) -> Option<()> {
    let (mut send, mut receive) = connection.open_bi().await.ok()?;
    send.write_all(QUERY).await.ok()?;
    send.finish().ok()?;
    let octets = receive.read_to_end(4_096).await.ok()?;
    is_right(octets.get(2..)?)
}

/// Whether a message is a response with one record.
fn is_right(message: &[u8]) -> Option<()> {
    (message.len() > 12 && message[2] & 0x80 != 0 && message[3] & 15 == 0 && message[7] == 1).then_some(())
}

/// The settings of all connections.
struct Client {
    config: ClientConfig,
    #[cfg(feature = "quic")]
    quic: quinn::Endpoint,
    #[cfg(feature = "quic")]
    quic_config: quinn::ClientConfig,
}

impl Client {
    fn new(pem: &[u8], resumption: Resumption) -> Client {
        let mut config = signpost_runtime::trust::only(pem).expect("a certificate");
        config.resumption = resumption;
        #[cfg(feature = "quic")]
        {
            let mut quic = config.clone();
            quic.alpn_protocols = vec![b"doq".to_vec()];
            let quic = quinn::crypto::rustls::QuicClientConfig::try_from(quic).expect("TLS 1.3");
            let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("a socket");
            Client { config, quic: endpoint, quic_config: quinn::ClientConfig::new(Arc::new(quic)) }
        }
        #[cfg(not(feature = "quic"))]
        Client { config }
    }
}

fn main() {
    signpost_dns::sys::cpu::pin(1).expect("two processors");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let data = DataDir::new();
    let (certificate, key) = (data.join("crt.pem"), data.join("key.pem"));
    let private = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(vec![NAME.to_owned()]).expect("parameters");
    let pem = parameters.self_signed(&private).expect("a certificate").pem();
    std::fs::write(&key, private.serialize_pem()).expect("written");
    std::fs::write(&certificate, &pem).expect("written");
    for transport in [Transport::Tls, Transport::Https, Transport::Quic] {
        for peer in [Peer::Signpost, Peer::Knot, Peer::Unbound, Peer::Dnsdist] {
            let is_served = match peer {
                Peer::Signpost => transport != Transport::Quic || cfg!(feature = "quic"),
                Peer::Knot => transport != Transport::Https,
                Peer::Unbound | Peer::Dnsdist => transport != Transport::Quic,
            };
            if is_served
                && is_selected(transport, peer)
                && let Some(server) = Server::start(peer, &certificate, &key)
            {
                runtime.block_on(measure(peer, transport, &server, pem.as_bytes()));
            }
        }
    }
}

/// Whether the arguments of the bench select a transport and a server: by default, all.
fn is_selected(transport: Transport, peer: Peer) -> bool {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let transports = [Transport::Tls, Transport::Https, Transport::Quic].map(|one| format!("{one:?}").to_lowercase());
    let (of_transports, of_peers): (Vec<_>, Vec<_>) = words.iter().partition(|word| transports.contains(word));
    let has = |words: &[&String], name: String| words.is_empty() || words.contains(&&name.to_lowercase());
    has(&of_transports, format!("{transport:?}")) && has(&of_peers, format!("{peer:?}"))
}

async fn measure(peer: Peer, transport: Transport, server: &Server, pem: &[u8]) {
    let (address, process) = (server.address(transport), &server.process);
    let client = Client::new(pem, Resumption::disabled());
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(mut connection) = Connection::open(transport, address, &client).await
            && timeout(PATIENCE, connection.ask()).await.ok().flatten().is_some()
        {
            break;
        }
        assert!(Instant::now() < deadline, "{peer:?} does not answer over {transport:?}: {}", process.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for window in WINDOWS {
        let mut connections = Vec::new();
        while connections.len() < WARM {
            assert!(Instant::now() < deadline + PATIENCE, "{peer:?} accepts {} connections only", connections.len());
            connections.extend(Connection::open(transport, address, &client).await);
        }
        let (cpu, began) = (process.cpu(), Instant::now());
        let until = began + MEASURED;
        let answered: u64 = join_all(connections.into_iter().map(|one| one.load(window, until))).await.iter().sum();
        let cpu = process.cpu() - cpu;
        println!(
            "{transport:?} {peer:?}: {:.0} queries per CPU second ({:.0}/s), {WARM} connections, {window} in flight on each",
            answered as f64 / cpu.as_secs_f64(),
            answered as f64 / began.elapsed().as_secs_f64()
        );
    }
    for (kind, resumption) in [("full", Resumption::disabled()), ("resumed", Resumption::in_memory_sessions(WARM))] {
        let client = Client::new(pem, resumption);
        let (cpu, began, done) = (process.cpu(), Instant::now(), AtomicU64::new(0));
        let clients = (0..WARM).map(|_| async {
            while began.elapsed() < MEASURED {
                if let Some(mut connection) = Connection::open(transport, address, &client).await
                    && timeout(PATIENCE, connection.ask()).await.ok().flatten().is_some()
                {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        join_all(clients).await;
        let cpu = process.cpu() - cpu;
        let done = done.into_inner() as f64;
        println!(
            "{transport:?} {peer:?}: {:.0} {kind} handshakes with a query per CPU second",
            done / cpu.as_secs_f64()
        );
    }
    many(peer, transport, server, &client).await;
}

/// Idle connections, and queries over all of them at a pace.
async fn many(peer: Peer, transport: Transport, server: &Server, client: &Client) {
    let (address, process) = (server.address(transport), &server.process);
    let count = std::env::var("SIGNPOST_BENCH_CONNECTIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(5_000);
    let before = process.resident_kib();
    let mut connections = Vec::new();
    while connections.len() < count {
        let opened = join_all((0..WARM).map(|_| async {
            let mut connection = Connection::open(transport, address, client).await?;
            timeout(PATIENCE, connection.ask()).await.ok()??;
            Some(connection)
        }));
        let opened: Vec<Connection> = opened.await.into_iter().flatten().collect();
        if opened.is_empty() {
            println!("{transport:?} {peer:?}: no more than {} connections", connections.len());
            break;
        }
        connections.extend(opened);
    }
    let each = process.resident_kib().saturating_sub(before) as f64 / connections.len() as f64;
    println!("{transport:?} {peer:?}: {each:.1} KiB for each of {} idle connections", connections.len());
    let began = Instant::now();
    let pool: Vec<_> = connections.into_iter().map(tokio::sync::Mutex::new).collect();
    let samples = tokio::sync::Mutex::new(Vec::new());
    let total = (PACED * MEASURED.as_secs_f64()) as usize;
    let queries = (0..total).map(|number| {
        let (pool, samples) = (&pool, &samples);
        async move {
            let due = began + Duration::from_secs_f64(number as f64 / PACED);
            tokio::time::sleep_until(due).await;
            // The connections take turns, far apart.
            let mut connection = pool[number * 7_919 % pool.len()].lock().await;
            let answered = timeout(PATIENCE, connection.ask()).await.ok().flatten();
            samples.lock().await.push(if answered.is_some() { due.elapsed() } else { PATIENCE });
        }
    });
    join_all(queries).await;
    let mut samples = samples.into_inner();
    samples.sort();
    let at = |hundredth: usize| samples[samples.len() * hundredth / 100].as_secs_f64() * 1e3;
    println!(
        "{transport:?} {peer:?}: p50 {:.2} ms, p99 {:.2} ms at {PACED} queries/s over {} connections",
        at(50),
        at(99),
        pool.len()
    );
}
