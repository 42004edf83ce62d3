//! The whole suite over each transport: what a test asks on its stage is asked of a running server, too, and has to be answered
//! with the same, but for what a transport has to change: order by chance, padding, and keepalive.
//!
//! The suite runs in a process of its own for each, which knows by a variable that it is one.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::LazyLock;
use std::time::SystemTime;

use parking_lot::Mutex;
use signpost_dns::nameserver::stats::TRANSPORTS;
use signpost_dns::nameserver::{Peer, Settings, Stats, Transport};
use signpost_dns::transport::Config;
use signpost_dns::wire::RecordType;
use tokio_rustls::rustls::DEFAULT_VERSIONS;

use crate::conformance::stage::{Stage, opt, records};
use crate::support::{PATIENCE, Server, framed, receive};
use crate::tls_client::{TlsStream, connect_tls};

/// Names the transport.
const VARIABLE: &str = "CONFORMANCE_OVER";
/// Numbers that decide about chance in an answer; one of them must lead to what the server said.
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

fn run_over(transport: Transport) {
    if TRANSPORT.is_some() {
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let name = TRANSPORTS[transport as usize];
    let output = Command::new(program).env(VARIABLE, name).output().expect("it runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
}

/// Asks a server with the zones and settings of `stage`, if this process is to, and compares.
pub fn also_ask(stage: &Stage, query: &[u8]) {
    let Some(transport) = *TRANSPORT else { return };
    let live = stage.also.get_or_init(|| Box::new(Live::start(stage)));
    let live: &Live = live.downcast_ref().expect("nobody else keeps something there");
    // Marks of names are of the stage's own time.
    let settings = Settings { asked: None, ..stage.settings.clone() };
    live.server.settings.store(settings.clone().into());
    let (found, address) = live.ask(transport, query);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later").as_secs();
    let peer = Peer { address, transport: Transport::Tcp, now, random: 0, keepalive: None };
    let mut expected = None;
    let is_expected = (0..CHANCES).any(|chance| {
        let peer = Peer { random: chance.wrapping_mul(0x9e37_79b9), ..peer };
        let answer = stage.respond_to(query, &peer, &settings, &Stats::new());
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

/// The header, the OPT record, and the other records.
type Essence = (Vec<u8>, Option<(u16, u32, Vec<String>)>, Vec<String>);

/// All of a response that no transport may change, its records in some order.
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
struct Live {
    server: Server,
    stream: Mutex<Option<TlsStream>>,
}

impl Live {
    fn start(stage: &Stage) -> Live {
        let mut config =
            Config { tls_addresses: vec!["127.0.0.1:0".parse().expect("an address")], ..Config::default() };
        config.streams.idle = 10 * PATIENCE;
        Live { server: Server::of(&stage.db, stage.settings.clone(), &config), stream: Mutex::default() }
    }

    /// Its response, and whose query it was for the server. A message that gets none ends the connection.
    fn ask(&self, transport: Transport, query: &[u8]) -> (Option<Vec<u8>>, SocketAddr) {
        match transport {
            Transport::Tls => self.ask_over_tls(query),
            _ => panic!("no client for {transport:?}"),
        }
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
