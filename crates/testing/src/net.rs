//! Free ports on loopback, and plain HTTP requests.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as SocketName, UnixDatagram};
use std::sync::Mutex;
use std::time::Duration;

/// The ports that tests use: below those that the system takes for its own connections.
const PORTS: Range<u16> = 10_000..32_000;
/// The number of ports that a process reserves at a time.
const BLOCK: u16 = 50;

/// Returns a loopback address whose port is free for TCP and UDP. No other call returns the same port while this process runs, so a
/// server can be started again on it.
pub fn free_address() -> SocketAddr {
    static RESERVED: Mutex<ReservedPorts> = Mutex::new(ReservedPorts { blocks: Vec::new(), unused: 0..0 });
    let mut reserved = RESERVED.lock().expect("a panic means that no port is left");
    loop {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, reserved.next()));
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

/// The ports of this process. Other programs with tests run at the same time, and a port is free while its server restarts. So each
/// process reserves blocks of ports by a Unix socket with an abstract name, which the kernel releases when the process ends.
struct ReservedPorts {
    blocks: Vec<UnixDatagram>,
    unused: Range<u16>,
}

impl ReservedPorts {
    fn next(&mut self) -> u16 {
        if self.unused.is_empty() {
            self.reserve();
        }
        self.unused.next().expect("a block has ports")
    }

    /// Reserves the next block. Each process begins at another one, so that no client of an ended test finds another test's server.
    fn reserve(&mut self) {
        let count = (PORTS.end - PORTS.start) / BLOCK;
        let first = (std::process::id() % u32::from(count)) as u16;
        let free = (first..count).chain(0..first).find_map(|block| {
            let name = SocketName::from_abstract_name(format!("signpost-testing-ports-{block}")).expect("a short name");
            Some((block, UnixDatagram::bind_addr(&name).ok()?))
        });
        let (block, socket) = free.expect("other tests have reserved all ports");
        self.blocks.push(socket);
        let start = PORTS.start + block * BLOCK;
        self.unused = start..start + BLOCK;
    }
}

/// The response to an HTTP/1.1 request.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The status code.
    pub status: u16,
    /// The status line and the header lines, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
    headers: String,
}

impl Exchange {
    /// Returns the value of a header, as the server sent it.
    pub fn header(&self, wanted: &str) -> Option<&str> {
        let mut headers = self.headers.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    }

    /// Returns a cookie that the response sets, as `name=value`.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let set = self.headers.lines().filter_map(|line| line.strip_prefix("set-cookie: "));
        set.filter_map(|line| line.split(';').next()).find(|cookie| cookie.split('=').next() == Some(name))
    }
}

/// Sends a request line with header lines (without `Connection`) and a body on a new connection; `None` if no response comes.
pub fn exchange(server: SocketAddr, head: &str, body: &str) -> Option<Exchange> {
    let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(10)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes()).ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Exchange { status, head: head.to_ascii_lowercase(), body: body.to_owned(), headers: head.to_owned() })
}

/// Gets an address such as `http://127.0.0.1:1/path?query` as a browser does; `None` if no response comes.
pub fn visit(address: &str) -> Option<Exchange> {
    let (host, path) = address.strip_prefix("http://")?.split_once('/')?;
    exchange(host.parse().ok()?, &format!("GET /{path} HTTP/1.1\r\nHost: {host}"), "")
}

/// Returns the status and body of a plain HTTP GET; `None` if no response comes.
pub fn http_get(server: SocketAddr, path: &str) -> Option<(u16, String)> {
    let answer = exchange(server, &format!("GET {path} HTTP/1.1\r\nHost: localhost"), "")?;
    Some((answer.status, answer.body))
}
