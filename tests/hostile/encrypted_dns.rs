//! Attackers on DNS over TLS: handshakes that never end, in excessive numbers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use signpost_testing::net::free_address;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::connections::connect_from;
use crate::support::{Platform, is_long};

/// A query for the bystander's name, with its length in front.
const QUERY: &[u8] =
    b"\0\x35\x12\x34\0\0\0\x01\0\0\0\0\0\0\x0dbystander-app\x06shard1\x02v3\x07rhcloud\x03com\0\0\x01\0\x01";

struct Attacked {
    platform: Platform,
    tls: SocketAddr,
    client: Arc<ClientConfig>,
}

impl Attacked {
    fn start(flags: &[&str]) -> Attacked {
        let tls = free_address();
        let listen = tls.to_string();
        let platform = Platform::start(&[&["--dns-tls-listen", &listen], flags].concat());
        let authority = std::fs::read(platform.data.join("pki/ca.crt")).expect("the authority's certificate is there");
        let mut client = signpost_runtime::trust::only(&authority).expect("a certificate");
        client.resumption = tokio_rustls::rustls::client::Resumption::disabled();
        Attacked { platform, tls, client: Arc::new(client) }
    }

    /// Returns a connection over TLS from this address.
    fn connect(&self, client: [u8; 4]) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut socket = connect_from(client, self.tls)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let name = ServerName::try_from("localhost").expect("a name");
        let mut connection = ClientConnection::new(self.client.clone(), name).expect("the settings are good");
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(connection, socket))
    }

    fn handshakes(&self, result: &str) -> f64 {
        let series = "signpost_dns_encrypted_handshakes_total{transport=\"tls\"";
        self.platform.metric(&format!("{series},result=\"{result}\"}}"))
    }
}

/// Queries the bystander's name.
fn ask(stream: &mut (impl Read + Write)) -> std::io::Result<()> {
    stream.write_all(QUERY)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    assert_eq!((answer[3] & 15, answer[7]), (0, 1), "one address: {answer:?}");
    Ok(())
}

#[test]
fn handshakes_that_never_end_lock_nobody_out() {
    let (clients, each) = if is_long() { (60, 100) } else { (20, 25) };
    let total = (clients * each + 400).to_string();
    let most = ["--tcp-connections", &total, "--tcp-connections-per-client", "20", "--tcp-read-timeout", "2s"];
    let attacked = Attacked::start(&most);
    let bystander = attacked.platform.bystander();
    let before = attacked.platform.resident_mib();
    // Nothing, the start of a record, and a record with the maximum length in its header.
    let beginnings: [&[u8]; 3] = [b"", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\x3f\xff\x01\x00\x3f\xfb"];
    let mut held = Vec::new();
    for number in 0..clients * each {
        let address = [127, 2, 0, (number % clients) as u8 + 1];
        if let Ok(mut stream) = connect_from(address, attacked.tls) {
            drop(stream.write_all(beginnings[number % beginnings.len()]));
            held.push(stream);
        }
    }
    assert!(held.len() > clients * each / 2, "the attack takes place: {}", held.len());
    let began = Instant::now();
    ask(&mut attacked.connect([127, 3, 0, 1]).expect("others shake hands")).expect("and are answered over TLS");
    ask(&mut connect_from([127, 3, 0, 1], attacked.platform.ports.dns).expect("connects")).expect("and over TCP");
    println!("another client was served within {:?}", began.elapsed());
    let grown = attacked.platform.resident_mib().saturating_sub(before);
    assert!(grown < 128, "{grown} MiB more");
    let refused = "signpost_dns_encrypted_closed_total{transport=\"tls\",reason=\"client\"}";
    assert!(attacked.platform.metric(refused) > 0.0, "a client has 20 places");
    // They are ended without the client's help.
    signpost_testing::eventually("they time out", || {
        (attacked.handshakes("timeout") >= (clients * 20) as f64 * 0.9).then_some(())
    });
    println!("{:?}", bystander.was_served());
}

#[test]
fn a_flood_of_handshakes_leaves_udp_and_tcp_their_time() {
    let attacked = Attacked::start(&[]);
    let bystander = attacked.platform.bystander();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (attacked, stop, done) = (&attacked, &stop, &done);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Some send a query; most disconnect without one.
                    if attacked.connect([127, 4, 0, number + 1]).is_ok() {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(if is_long() { 30 } else { 3 });
        while Instant::now() < until {
            let began = Instant::now();
            ask(&mut connect_from([127, 3, 0, 1], attacked.platform.ports.dns).expect("connects")).expect("over TCP");
            slowest = slowest.max(began.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let done = done.into_inner();
    println!("{done} handshakes; the slowest answer over a new TCP connection took {slowest:?}");
    assert!(done > 100, "the attack takes place: {done}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    println!("{:?}", bystander.was_served());
}
