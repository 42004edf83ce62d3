//! Strangers who open connections and streams and do nothing with them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::{Platform, is_long};
use signpost_testing::wait_for;

/// Returns a connection to `server` from the loopback address `client`.
pub fn connect_from(client: [u8; 4], server: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((client, 0)).into())?;
    socket.connect(&server.into())?;
    Ok(socket.into())
}

#[test]
fn silent_connections_lock_nobody_out() {
    // The test's own files are bounded, too; what the server refuses or closes is closed here at the end only.
    let (each, most) = if is_long() { (4_500, "8192") } else { (150, "160") };
    let platform = Platform::start(&["--http-connections", most, "--http-connections-per-client", "100"]);
    let bystander = platform.bystander();
    let before = platform.resident_mib();
    let mut held = Vec::new();
    // The bystander has another address: a new connection of it is not closed for one of these before its request.
    let (servers, one) = ([platform.ports.admin, platform.ports.api], [127, 0, 0, 2]);
    for server in servers {
        held.extend((0..each).filter_map(|_| connect_from(one, server).ok()));
    }
    // A client with its most connections gets another one, for which the oldest is closed.
    let mut further = connect_from(one, platform.ports.admin).expect("connects");
    further.set_read_timeout(Some(Duration::from_secs(60))).expect("is set");
    further.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("writes");
    let mut answer = String::new();
    further.read_to_string(&mut answer).expect("reads");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for server in servers {
        let address = |index: usize| [127, 1, (index / 250) as u8, (index % 250) as u8 + 1];
        held.extend((0..each).filter_map(|index| connect_from(address(index), server).ok()));
    }
    assert!(held.len() > each, "the attack takes place: {}", held.len());
    for server in ["admin", "api"] {
        let line = format!("signpost_http_connections_closed_total{{server=\"{server}\",reason=\"evicted\"}}");
        wait_for("places are full", || platform.metric(&line) > 0.0);
    }
    let grown = platform.resident_mib().saturating_sub(before);
    println!("{} connections opened, {grown} MiB more", held.len());
    assert!(grown < 256, "{grown} MiB more");
    println!("{:?}", bystander.was_served());
}

#[test]
fn connections_without_a_request_end() {
    let platform = Platform::start(&["--http-idle-timeout", "1s"]);
    for server in [platform.ports.admin, platform.ports.api] {
        for first in ["", "GET / HTTP/1.1\r\nHost"] {
            let mut stream = TcpStream::connect(server).expect("connects");
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("is set");
            stream.write_all(first.as_bytes()).expect("writes");
            // The server may send an error before it closes the connection, but no success.
            let mut said = Vec::new();
            if let Err(error) = stream.read_to_end(&mut said) {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{server} {first:?}");
            }
            assert!(!said.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&said));
        }
    }
}
