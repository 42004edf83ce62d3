//! Free ports on loopback, and plain HTTP requests.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// Returns a loopback address whose port is free for TCP and UDP, and stays free between two starts of a server: the system
/// takes the ports of its own connections from a higher range.
pub fn free_address() -> SocketAddr {
    const PORTS: std::ops::Range<u32> = 10_000..32_000;
    static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later");
        AtomicU32::new(since.subsec_nanos() ^ std::process::id())
    });
    for _ in PORTS {
        let at = NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(PORTS.start + at).expect("a port")));
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port is free for both UDP and TCP");
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
