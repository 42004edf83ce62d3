//! The whole suite over each transport: each query of a test to its stage also goes to a running server, which must send
//! the same answer, except for the changes that a transport requires: order by chance, padding, and keepalive.
//!
//! The suite runs in a process of its own for each, which knows by a variable that it is one.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use h2::client::SendRequest;
use parking_lot::Mutex;
#[cfg(feature = "quic")]
use quinn::crypto::rustls::QuicClientConfig;
use signpost_dns::nameserver::stats::TRANSPORTS;
use signpost_dns::nameserver::{Peer, Stats, Transport};
use signpost_dns::transport::Config;
use signpost_dns::wire::RecordType;
use signpost_dns::wire::message::Query;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
#[cfg(feature = "quic")]
use tokio_rustls::rustls;
use tokio_rustls::rustls::DEFAULT_VERSIONS;

use crate::conformance::stage::{Stage, opt, records};
use crate::support::{PATIENCE, Server, framed, receive};
use crate::tls_client::{NAME, TlsStream, connect_tls};

/// Names the transport.
const VARIABLE: &str = "CONFORMANCE_OVER";
/// The maximum of a test's queries to a running server. Tests with more are about chance, and some results are too rare to be
/// found again below.
const ASKED_MAX: usize = 200;
/// Numbers that decide about chance in an answer; one of them must lead to the server's answer.
const CHANCES: u32 = 4_096;

static TRANSPORT: LazyLock<Option<Transport>> = LazyLock::new(|| {
    let name = std::env::var(VARIABLE).ok()?;
    let all = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Https, Transport::Quic];
    Some(*all.iter().find(|transport| TRANSPORTS[**transport as usize] == name).expect("a transport"))
});

#[test]
fn the_whole_suite_over_tls() {
    run_over(Transport::Tls);
}

#[test]
fn the_whole_suite_over_https() {
    run_over(Transport::Https);
}

#[cfg(feature = "quic")]
#[test]
fn the_whole_suite_over_quic() {
    run_over(Transport::Quic);
}

fn run_over(transport: Transport) {
    if TRANSPORT.is_some() {
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let name = TRANSPORTS[transport as usize];
    let output = Command::new(program).env(VARIABLE, name).output().expect("it runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
}

/// Sends the query to a server with the zones and settings of `stage`, if this process has a transport, and compares.
pub fn also_ask(stage: &Stage, query: &[u8]) {
    let Some(transport) = *TRANSPORT else { return };
    let Some(query) = &adapted(transport, query) else { return };
    let live = stage.also.get_or_init(|| Box::new(LiveServer::start(stage)));
    let live: &LiveServer = live.downcast_ref().expect("no other code stores a value there");
    if live.asked.fetch_add(1, Ordering::Relaxed) >= ASKED_MAX {
        return;
    }
    live.server.settings.store(stage.settings.clone().into());
    let (found, address) = live.ask(transport, query);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later").as_secs();
    let peer = Peer { address, transport: Transport::Tcp, now, random: 0, keepalive: None };
    let mut expected = None;
    let is_expected = (0..CHANCES).any(|chance| {
        let peer = Peer { random: chance.wrapping_mul(0x9e37_79b9), ..peer };
        let answer = stage.respond_to(query, &peer, &stage.settings, &Stats::new());
        let is_same = answer.as_deref().map(essence) == found.as_deref().map(essence);
        expected = expected.take().or(answer);
        is_same
    });
    let found = found.as_deref().map(essence);
    assert!(
        is_expected,
        "over {transport:?} {found:#?}, and not {:#?}; {query:02x?}",
        expected.as_deref().map(essence)
    );
}

/// The query as it may come by this transport, if it may. Over QUIC its ID is 0 (RFC 9250 §4.2.1), and a keepalive option is a
/// fault (§5.5.2); over HTTPS that option means nothing, so that a forbidden length is not a fault.
fn adapted(transport: Transport, query: &[u8]) -> Option<Vec<u8>> {
    let edns = Query::read(query).and_then(|query| query.edns).unwrap_or_default();
    let mut query = query.to_vec();
    match transport {
        Transport::Https if edns.malformed_keepalive => return None,
        Transport::Quic if edns.keepalive || edns.malformed_keepalive => return None,
        Transport::Quic => query.iter_mut().take(2).for_each(|octet| *octet = 0),
        _ => {}
    }
    Some(query)
}

/// The header, the OPT record, and the other records of a response.
type Essence = (Vec<u8>, Option<(u16, u32, Vec<String>)>, Vec<String>);

/// Returns what no transport may change of a response, its records in some order.
fn essence(message: &[u8]) -> Essence {
    let mut lines: Vec<String> = records(message)
        .into_iter()
        .filter(|record| record.rtype != RecordType::OPT)
        .map(|record| format!("{record:?}"))
        .collect();
    lines.sort();
    let options = |options: Vec<(u16, Vec<u8>)>| {
        let options = options.into_iter().filter(|(code, _)| ![11, 12].contains(code));
        // The server's part of a cookie is of the moment.
        let option = |(code, data): (u16, Vec<u8>)| match code {
            10 => format!("10 {:02x?} of {}", &data[..8.min(data.len())], data.len()),
            _ => format!("{code} {data:02x?}"),
        };
        options.map(option).collect()
    };
    (message[..12].to_vec(), opt(message).map(|(size, ttl, all)| (size, ttl, options(all))), lines)
}

/// A server, and a connection to it.
struct LiveServer {
    server: Server,
    asked: AtomicUsize,
    stream: Mutex<Option<TlsStream>>,
    /// The runtime of the asynchronous clients.
    runtime: Runtime,
    https: Mutex<Option<(SendRequest<Bytes>, SocketAddr)>>,
    #[cfg(feature = "quic")]
    quic: Mutex<Option<(quinn::Connection, SocketAddr)>>,
}

impl LiveServer {
    fn start(stage: &Stage) -> LiveServer {
        let mut config =
            Config { tls_addresses: vec!["127.0.0.1:0".parse().expect("an address")], ..Config::default() };
        config.https_addresses = vec!["127.0.0.1:0".parse().expect("an address")];
        #[cfg(feature = "quic")]
        config.quic_addresses.push("127.0.0.1:0".parse().expect("an address"));
        config.streams.idle = 10 * PATIENCE;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        LiveServer {
            server: Server::of(&stage.db, stage.settings.clone(), &config, None),
            asked: AtomicUsize::new(0),
            stream: Mutex::default(),
            runtime: runtime.expect("a runtime"),
            https: Mutex::default(),
            #[cfg(feature = "quic")]
            quic: Mutex::default(),
        }
    }

    /// Returns the response, and the client's address at the server. A message without a response ends the connection.
    fn ask(&self, transport: Transport, query: &[u8]) -> (Option<Vec<u8>>, SocketAddr) {
        match transport {
            Transport::Tls => self.ask_over_tls(query),
            Transport::Https => self.run(self.ask_over_https(query)),
            #[cfg(feature = "quic")]
            Transport::Quic => self.run(self.ask_over_quic(query)),
            _ => panic!("no client for {transport:?}"),
        }
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { timeout(PATIENCE, work).await.expect("in time") })
    }

    /// A message that gets no response is a bad request.
    async fn ask_over_https(&self, query: &[u8]) -> (Option<Vec<u8>>, SocketAddr) {
        let held = self.https.lock().take();
        let (client, address) = match held {
            Some(held) => held,
            None => {
                let tls = TlsConnector::from(self.server.certificate.client(DEFAULT_VERSIONS, &[b"h2"]));
                let server = self.server.encrypted_address(Transport::Https);
                let socket = tokio::net::TcpStream::connect(server).await.expect("a connection");
                let address = socket.local_addr().expect("an address");
                let stream = tls.connect(NAME.try_into().expect("a name"), socket).await.expect("a handshake");
                let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
                tokio::spawn(connection);
                (client, address)
            }
        };
        let request = hyper::Request::post(format!("https://{NAME}/dns-query"));
        let request = request.header("content-type", "application/dns-message").body(()).expect("a request");
        let mut ready = client.clone().ready().await.expect("it continues");
        let (response, mut body) = ready.send_request(request, false).expect("it takes the request");
        body.send_data(Bytes::copy_from_slice(query), true).expect("it takes the query");
        let response = response.await.expect("a response");
        let status = response.status().as_u16();
        let (mut stream, mut answer) = (response.into_body(), Vec::new());
        while let Some(octets) = stream.data().await {
            let octets = octets.expect("the whole of it");
            stream.flow_control().release_capacity(octets.len()).expect("it continues");
            answer.extend_from_slice(&octets);
        }
        *self.https.lock() = Some((client, address));
        match status {
            200 => (Some(answer), address),
            400 => (None, address),
            status => panic!("{status}"),
        }
    }

    #[cfg(feature = "quic")]
    async fn ask_over_quic(&self, query: &[u8]) -> (Option<Vec<u8>>, SocketAddr) {
        let held = self.quic.lock().take();
        let (connection, address) = match held {
            Some(held) => held,
            None => {
                let tls = self.server.certificate.client(&[&rustls::version::TLS13], &[b"doq"]);
                let tls = QuicClientConfig::try_from(rustls::ClientConfig::clone(&tls)).expect("TLS 1.3");
                let mut endpoint =
                    quinn::Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("a socket");
                endpoint.set_default_client_config(quinn::ClientConfig::new(std::sync::Arc::new(tls)));
                let server = self.server.encrypted_address(Transport::Quic);
                let connection = endpoint.connect(server, NAME).expect("a connection").await.expect("a handshake");
                (connection, endpoint.local_addr().expect("an address"))
            }
        };
        let (mut send, mut receive) = connection.open_bi().await.expect("it continues");
        // One that is none may end the connection before it is sent.
        drop(send.write_all(&framed(query)).await);
        drop(send.finish());
        let answer = receive.read_to_end(70_000).await.ok();
        if answer.is_some() {
            *self.quic.lock() = Some((connection, address));
        }
        (answer.map(|answer| answer[2..].to_vec()), address)
    }

    fn ask_over_tls(&self, query: &[u8]) -> (Option<Vec<u8>>, SocketAddr) {
        let mut held = self.stream.lock();
        let client = self.server.certificate.client(DEFAULT_VERSIONS, &[b"dot"]);
        let mut stream = held
            .take()
            .unwrap_or_else(|| connect_tls(self.server.tls_addresses[0], &client, PATIENCE).expect("a connection"));
        std::io::Write::write_all(&mut stream, &framed(query)).expect("it takes the query");
        let address = stream.sock.local_addr().expect("an address");
        let answer = receive(&mut stream);
        *held = answer.is_some().then_some(stream);
        (answer, address)
    }
}
