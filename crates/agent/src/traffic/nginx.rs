//! nginx's log line for each request, which it sends as a datagram to a socket of the agent.
//!
//! nginx has no counters by Route. It sends a line without waiting: if the queue of the socket is full, the line is lost
//! (`net.unix.max_dgram_qlen`). nginx counts all requests, without Routes, so that their number is known: the counted requests and those
//! in progress are fewer.
//!
//! A line is a syslog message (RFC 3164) that ends with one of these texts. No field is chosen by a client:
//!
//! ```text
//! h|<Route>|<status>|<bytes in>|<bytes out>|<endpoints>|<times to the response head>
//! s|<Route>|<status>|<bytes in>|<bytes out>|<endpoints>|<times to connect>
//! ```
//!
//! `h` is an HTTP request, and `s` a connection with passthrough. The Route is empty if the request is for none, or if the router itself
//! responds. Endpoints and times are lists in the order in which the request was sent to them; a time of one that did not answer is `-`.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::access_log::{AccessLog, MARK};
use super::socket::{LineReceiver, receive};
use super::{Attempts, Delta, Mean, Reading, delta_of};
use crate::render::nginx::{GENERATION_SOCKET, STATUS_PATH, TRAFFIC_SOCKET};

/// The longest line about traffic. Those of nginx have less than 512 bytes.
pub const LINE_BYTES_MAX: usize = 2_048;
/// The most endpoints of a request. The proxy tries three.
const ATTEMPTS_MAX: usize = 8;
/// The time after which a line counts as lost. The agent can be late to read it on a busy machine.
const LINE_LATENCY_MAX: Duration = Duration::from_secs(4);
/// The time for nginx to respond with its number of requests.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A finished request or connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<'a> {
    /// Whether it is a connection with passthrough.
    pub is_connection: bool,
    /// The identifier of the Route; empty: none.
    pub route: &'a str,
    pub status: u16,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// The endpoints, each with the time until it answered in milliseconds; `None`: it did not.
    pub attempts: Vec<(&'a str, Option<f64>)>,
}

impl<'a> Entry<'a> {
    /// Parses a line; `None`: it is not one of nginx.
    pub fn parse(line: &'a [u8]) -> Option<Entry<'a>> {
        let text = std::str::from_utf8(line).ok().filter(|text| text.len() <= LINE_BYTES_MAX)?;
        let mut fields = text.split('|');
        // Before it is the head of the syslog message.
        let kind = fields.next()?.rsplit(' ').next()?;
        let is_connection = match kind {
            "h" => false,
            "s" => true,
            _ => return None,
        };
        let route = fields.next().filter(|route| is_identifier(route))?;
        let status = fields.next()?.parse().ok().filter(|status| *status <= 999)?;
        let mut bytes = || fields.next()?.parse::<u64>().ok().filter(|bytes| *bytes < 1 << 56);
        let (bytes_in, bytes_out) = (bytes()?, bytes()?);
        let (addresses, times) = (fields.next()?, fields.next()?);
        if fields.next().is_some() {
            return None;
        }
        // ` : ` between the groups of an internal redirect.
        let list = |text: &'a str| text.split([',', ' ']).filter(|part| !matches!(*part, "" | ":" | "-"));
        let times: Vec<&str> = times.split([',', ' ']).filter(|part| !matches!(*part, "" | ":")).collect();
        let attempt = |(at, address): (usize, &'a str)| {
            let seconds = times.get(at).and_then(|time| time.parse::<f64>().ok());
            (address, seconds.filter(|time| (0.0..1e9).contains(time)).map(|time| time * 1_000.0))
        };
        let attempts = list(addresses).take(ATTEMPTS_MAX).enumerate().map(attempt).collect();
        Some(Entry { is_connection, route, status, bytes_in, bytes_out, attempts })
    }
}

/// Returns whether a text is empty or an identifier of a Route.
fn is_identifier(text: &str) -> bool {
    text.is_empty() || text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The counts of the thread that receives lines.
#[derive(Debug, Default)]
struct Received {
    routes: HashMap<Box<str>, Delta>,
    /// The lines of HTTP requests.
    requests: u64,
    /// The lines that could not be counted.
    dropped: u64,
}

impl Received {
    fn add(&mut self, line: &[u8]) {
        let Some(entry) = Entry::parse(line) else {
            self.dropped += 1;
            return;
        };
        self.requests += u64::from(!entry.is_connection);
        if entry.route.is_empty() {
            return;
        }
        match delta_of(&mut self.routes, entry.route) {
            Some(delta) => delta.add(&entry),
            None => self.dropped += 1,
        }
    }
}

impl Delta {
    fn add(&mut self, entry: &Entry<'_>) {
        let counters = &mut self.counters;
        counters.bytes_in += entry.bytes_in;
        counters.bytes_out += entry.bytes_out;
        // The last endpoint has responded, unless it has no time.
        let response = entry.attempts.last().and_then(|(_, time)| *time);
        if entry.is_connection {
            counters.connections += 1;
            counters.errors += u64::from(response.is_none());
        } else {
            let class = match entry.status {
                // nginx's own: the client closed the connection.
                0 | 499 => 0,
                status => usize::from(status / 100).min(5),
            };
            counters.requests[class] += 1;
            counters.errors += u64::from(response.is_none() && class == 5);
            if let Some(time) = response {
                let (sum, count) = match self.mean {
                    Some(Mean::New(sum, count)) => (sum, count),
                    _ => (0.0, 0),
                };
                self.mean = Some(Mean::New(sum + time, count + 1));
            }
        }
        // If the client has left, the endpoint that did not answer is not at fault.
        let has_left = !entry.is_connection && matches!(entry.status, 0 | 499);
        for (address, time) in entry.attempts.iter().filter(|(_, time)| time.is_some() || !has_left) {
            if !self.endpoints.contains_key(*address) && self.endpoints.len() < ENDPOINTS_MAX {
                self.endpoints.insert((*address).into(), Attempts::default());
            }
            if let Some(attempts) = self.endpoints.get_mut(*address) {
                attempts.answered += u64::from(time.is_some());
                attempts.failed += u64::from(time.is_none());
            }
        }
    }
}

/// The most endpoints of a Route between two readings: twice the limit of servers.
const ENDPOINTS_MAX: usize = 512;

/// The receivers of nginx's lines.
#[derive(Debug)]
struct Receiving {
    received: Mutex<Received>,
    log: Arc<AccessLog>,
}

impl LineReceiver for Receiving {
    fn take(&self, line: &[u8]) {
        // After the head of the syslog message, which has less than 64 bytes.
        let is_of_log = line.windows(MARK.len() + 1).take(64).any(|window| window == b"a|{");
        if is_of_log {
            self.log.take(line);
        } else {
            self.received.lock().add(line);
        }
    }
}

/// The meter of an nginx.
#[derive(Debug)]
pub struct NginxMeter {
    status_socket: PathBuf,
    received: Arc<Receiving>,
    losses: Mutex<Losses>,
}

/// The requests that nginx has counted, and those of which a line came, since a common start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Losses {
    /// The numbers at the start; `None`: they are not known yet.
    start: Option<(u64, u64)>,
    /// nginx's number at the last reading.
    counted: u64,
    /// The number that the lines are compared with, and its time.
    earlier: Option<(Instant, u64)>,
    /// The reported losses since the start.
    lost: u64,
}

impl Losses {
    /// Returns the further losses, from nginx's number of finished requests and that of lines. nginx counts a request before it sends the
    /// line, which can still be on the way: so the lines are compared with an earlier number.
    fn advance(&mut self, counted: u64, received: u64, now: Instant) -> u64 {
        if counted < self.counted {
            // nginx was started again.
            *self = Losses { start: Some((0, received.saturating_sub(counted))), ..Losses::default() };
        }
        let (counted_start, received_start) = *self.start.get_or_insert((counted, received));
        self.counted = counted;
        let (at, earlier) = *self.earlier.get_or_insert((now, counted));
        if now.saturating_duration_since(at) < LINE_LATENCY_MAX {
            return 0;
        }
        self.earlier = Some((now, counted));
        let difference = earlier.saturating_sub(counted_start).saturating_sub(received.saturating_sub(received_start));
        let more = difference.saturating_sub(self.lost);
        self.lost += more;
        more
    }
}

impl NginxMeter {
    /// Receives the lines of an nginx in a directory, also those for an access log. `owner` is the user of its workers, if it is not
    /// that of the agent.
    pub fn new(directory: &Path, owner: Option<u32>, log: Arc<AccessLog>) -> io::Result<NginxMeter> {
        let received = Arc::new(Receiving { received: Mutex::default(), log });
        receive(&directory.join(TRAFFIC_SOCKET), owner, &received)?;
        Ok(NginxMeter { status_socket: directory.join(GENERATION_SOCKET), received, losses: Mutex::default() })
    }

    /// Records that nginx was started.
    pub fn started(&self) {
        let received = self.received.received.lock().requests;
        *self.losses.lock() = Losses { start: Some((0, received)), ..Losses::default() };
    }

    /// Returns nginx's number of finished requests.
    async fn finished(&self) -> io::Result<u64> {
        let exchange = async {
            let mut stream = UnixStream::connect(&self.status_socket).await?;
            stream.write_all(format!("GET {STATUS_PATH} HTTP/1.0\r\n\r\n").as_bytes()).await?;
            let mut response = String::new();
            stream.take(4_096).read_to_string(&mut response).await?;
            finished(&response).ok_or_else(|| io::Error::other("invalid status of nginx"))
        };
        timeout(TIMEOUT, exchange).await?
    }
}

/// Parses the response of `ngx_http_stub_status_module`: the requests without those in progress.
fn finished(response: &str) -> Option<u64> {
    let mut lines = response.lines().skip_while(|line| !line.starts_with("server accepts"));
    let requests: u64 = lines.nth(1)?.split_ascii_whitespace().nth(2)?.parse().ok()?;
    let mut words = lines.next()?.split_ascii_whitespace();
    let mut after = |name: &str| words.find(|word| *word == name).and_then(|_| words.next()?.parse::<u64>().ok());
    let (reading, writing) = (after("Reading:")?, after("Writing:")?);
    Some(requests.saturating_sub(reading).saturating_sub(writing))
}

#[async_trait]
impl super::Meter for NginxMeter {
    async fn read(&self) -> io::Result<Reading> {
        let finished = self.finished().await;
        let (routes, requests, dropped) = {
            let mut received = self.received.received.lock();
            (std::mem::take(&mut received.routes), received.requests, std::mem::take(&mut received.dropped))
        };
        let lost = finished.map_or(0, |finished| self.losses.lock().advance(finished, requests, Instant::now()));
        Ok(Reading { routes, lost: lost + dropped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f56c37b68290394";

    #[test]
    fn lines() {
        let head = "<190>Nov 29 22:45:00 signpost: ";
        for (line, expected) in [
            ("h||404|80|150|-|-", Some((false, "", 404, (80, 150), vec![]))),
            (
                "h|4f56c37b68290394|200|80|150|192.0.2.1:80|0.004",
                Some((false, ID, 200, (80, 150), vec![("192.0.2.1:80", Some(4.0))])),
            ),
            (
                "h|4f56c37b68290394|200|1|2|192.0.2.1:80, [2001:db8::1]:80 : 192.0.2.3:80|-, - : 0.250",
                Some((
                    false,
                    ID,
                    200,
                    (1, 2),
                    vec![("192.0.2.1:80", None), ("[2001:db8::1]:80", None), ("192.0.2.3:80", Some(250.0))],
                )),
            ),
            ("h|4f56c37b68290394|503|1|2||", Some((false, ID, 503, (1, 2), vec![]))),
            (
                "s|4f56c37b68290394|200|1|2|192.0.2.1:443|0.000",
                Some((true, ID, 200, (1, 2), vec![("192.0.2.1:443", Some(0.0))])),
            ),
            (
                "s|4f56c37b68290394|502|1|2|192.0.2.1:443|-",
                Some((true, ID, 502, (1, 2), vec![("192.0.2.1:443", None)])),
            ),
            // Not numbers, not an identifier, too few and too many fields.
            ("h|4f56c37b68290394|x|1|2|-|-", None),
            ("h|4f56c37b68290394|200|-1|2|-|-", None),
            ("h|4f56c37b68290394|200|1|18446744073709551615|-|-", None),
            ("h|4f56c37b6829039g|200|1|2|-|-", None),
            ("h|4f56|200|1|2|-|-", None),
            ("h|4f56c37b68290394|200|1|2|-", None),
            ("h|4f56c37b68290394|200|1|2|-|-|", None),
            ("x|4f56c37b68290394|200|1|2|-|-", None),
            ("", None),
        ] {
            let line = format!("{head}{line}");
            let entry = Entry::parse(line.as_bytes());
            let found = entry.map(|one| {
                (one.is_connection, one.route, one.status, (one.bytes_in, one.bytes_out), one.attempts.clone())
            });
            assert_eq!(found, expected, "{line}");
        }
        assert_eq!(Entry::parse(b"h|\xff|200|1|2|-|-"), None);
        let long = format!("h||200|1|2|{}|-", "a".repeat(LINE_BYTES_MAX));
        assert_eq!(Entry::parse(long.as_bytes()), None);
    }

    #[test]
    fn requests_are_counted() {
        let mut received = Received::default();
        for (line, times) in [
            ("h|4f56c37b68290394|200|10|20|192.0.2.1:80|0.004", 3),
            ("h|4f56c37b68290394|502|10|20|192.0.2.1:80|-", 2),
            // Of the application itself.
            ("h|4f56c37b68290394|503|10|20|192.0.2.1:80|0.012", 1),
            ("h|4f56c37b68290394|503|10|20||", 1),
            ("h|4f56c37b68290394|499|10|0|192.0.2.1:80|-", 1),
            ("h|4f56c37b68290394|101|10|0|192.0.2.2:80|0.000", 1),
            ("s|4f56c37b68290394|200|10|20|192.0.2.1:443|0.000", 2),
            ("h||404|10|20|-|-", 5),
            ("nonsense", 4),
        ] {
            (0..times).for_each(|_| received.add(line.as_bytes()));
        }
        assert_eq!((received.requests, received.dropped), (14, 4));
        let delta = &received.routes[ID];
        assert_eq!(delta.counters.requests, [1, 1, 3, 0, 0, 4]);
        assert_eq!((delta.counters.errors, delta.counters.connections), (3, 2));
        assert_eq!((delta.counters.bytes_in, delta.counters.bytes_out), (110, 180));
        assert_eq!(delta.mean, Some(Mean::New(24.0, 5)));
        assert_eq!(delta.endpoints["192.0.2.1:80"], Attempts { answered: 4, failed: 2 });
    }

    #[test]
    fn losses() {
        let mut losses = Losses { start: Some((0, 0)), ..Losses::default() };
        let start = Instant::now();
        for (second, counted, received, expected) in [
            (0, 10, 10, 0),
            // The lines of 10 requests can still be on the way.
            (5, 20, 10, 0),
            (6, 20, 10, 0),
            (10, 22, 10, 10),
            (15, 22, 12, 0),
            // Lines came for requests that finished after the count.
            (20, 30, 21, 0),
            (25, 40, 25, 0),
            (30, 40, 28, 2),
            // nginx starts again.
            (35, 2, 30, 0),
            (40, 10, 33, 0),
            (45, 10, 33, 5),
        ] {
            let now = start + Duration::from_secs(second);
            assert_eq!(losses.advance(counted, received, now), expected, "{second}: {counted} {received}");
        }
        // Of an adopted nginx, the number at the start is not known.
        let mut losses = Losses::default();
        let mut advance = |second, counted| losses.advance(counted, 2, start + Duration::from_secs(second));
        assert_eq!([advance(0, 1_000), advance(5, 1_009), advance(10, 1_009)], [0, 0, 9]);
    }

    #[test]
    fn status() {
        let text = "HTTP/1.1 200 OK\r\n\r\nActive connections: 3 \nserver accepts handled requests\n 7 7 100 \nReading: 1 Writing: 2 Waiting: 0 \n";
        assert_eq!(finished(text), Some(97));
        assert_eq!(finished("HTTP/1.1 404 Not Found\r\n\r\n"), None);
    }

    proptest::proptest! {
        /// A line that parses has fields within their bounds, and parses alike with another head.
        #[test]
        fn any_line(line in "[hs ]?(\\||[0-9a-f]{16}|[0-9]{1,20}|, | : |-|\\PC){0,20}") {
            if let Some(entry) = Entry::parse(line.as_bytes()) {
                proptest::prop_assert!(entry.attempts.len() <= ATTEMPTS_MAX && entry.status <= 999);
                proptest::prop_assert!(is_identifier(entry.route));
                let other = format!("<190>Jan  1 00:00:00 x: {line}");
                proptest::prop_assert_eq!(Entry::parse(other.as_bytes()), Some(entry));
            }
        }
    }
}
