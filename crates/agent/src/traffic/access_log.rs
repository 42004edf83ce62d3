//! The access log: a JSON object for each request, to the agent's output, a file, or a syslog server.
//!
//! The proxies send a line for each request to a socket of the agent: [`MARK`] and a JSON object with short names, in which
//! all values are text. The agent adds the name of the Route, and writes the object again, so that every line of the log is valid JSON with
//! the documented fields for any request of a client.
//!
//! Lines are lost if the queue of the socket is full, or if the output is slower than the requests. The proxies never wait.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::{Timestamp, Unit};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Traffic;
use super::socket::LineReceiver;

/// The beginning of a line for the access log.
pub const MARK: &str = "a|";
/// The lines that wait to be written: with 1 KiB each, 8 MiB.
const QUEUE_MAX: usize = 8_192;
/// The time between two checks whether the file was renamed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The output of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Output {
    #[default]
    Off,
    /// The standard output of the agent.
    Stdout,
    File(PathBuf),
    /// A server for syslog messages over UDP (RFC 5424, RFC 5426).
    Syslog(SocketAddr),
}

/// The line of a proxy.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RequestRecord<'a> {
    /// The identifier of the Route.
    #[serde(borrow)]
    r: Cow<'a, str>,
    /// The status.
    #[serde(borrow)]
    s: Cow<'a, str>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    scheme: Cow<'a, str>,
    #[serde(borrow)]
    host: Cow<'a, str>,
    /// The path and the query.
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow)]
    protocol: Cow<'a, str>,
    #[serde(borrow)]
    agent: Cow<'a, str>,
    /// The address of the client.
    #[serde(borrow)]
    client: Cow<'a, str>,
    #[serde(borrow)]
    id: Cow<'a, str>,
    /// The bytes of the client, and to it.
    #[serde(borrow, rename = "in")]
    bytes_in: Cow<'a, str>,
    #[serde(borrow, rename = "out")]
    bytes_out: Cow<'a, str>,
    /// The endpoints, the last of which responded.
    #[serde(borrow)]
    endpoint: Cow<'a, str>,
    /// The times until the head of the response, and until its end: in milliseconds, or in seconds with a decimal point.
    #[serde(borrow)]
    head: Cow<'a, str>,
    #[serde(borrow)]
    total: Cow<'a, str>,
}

/// A line of the log. Its fields are an interface: more can be added, but none renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Logged<'a> {
    time: Timestamp,
    /// The Route as `namespace/name`; absent: no Route has the host and path.
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<SocketAddr>,
    /// Absent if the client ended the request before.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    client: Option<IpAddr>,
    scheme: &'a str,
    method: &'a str,
    host: &'a str,
    path: &'a str,
    protocol: &'a str,
    user_agent: &'a str,
    bytes_in: u64,
    bytes_out: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_ms: Option<u64>,
    duration_ms: u64,
    request_id: &'a str,
}

/// Returns the line of the log for the line of a proxy after its [`MARK`]; `None`: it is not valid. `route` returns the name of a Route.
pub fn logged(line: &[u8], now: Timestamp, route: impl FnOnce(&str) -> Option<String>) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    let line: RequestRecord<'_> = serde_json::from_str(&text).ok()?;
    let last = |list: &str| -> Option<String> {
        list.split([',', ' ']).rfind(|part| !matches!(*part, "" | ":" | "-")).map(str::to_owned)
    };
    let milliseconds = |text: &str| match text.contains('.') {
        true => text.parse::<f64>().ok().filter(|seconds| (0.0..1e9).contains(seconds)).map(|one| (one * 1e3) as u64),
        false => text.parse().ok(),
    };
    // A time of an endpoint that did not respond is `-`.
    let head = line.head.rsplit([',', ' ']).next().unwrap_or_default();
    let logged = Logged {
        time: now.round(Unit::Millisecond).unwrap_or(now),
        route: route(&line.r),
        endpoint: last(&line.endpoint).and_then(|text| endpoint(&text)),
        status: line.s.parse().ok().filter(|status| (100..=599).contains(status) && *status != 499),
        client: line.client.parse().ok(),
        scheme: &line.scheme,
        method: &line.method,
        host: &line.host,
        path: &line.path,
        protocol: &line.protocol,
        user_agent: &line.agent,
        bytes_in: line.bytes_in.parse().unwrap_or_default(),
        bytes_out: line.bytes_out.parse().unwrap_or_default(),
        response_ms: milliseconds(head),
        duration_ms: milliseconds(&line.total).unwrap_or_default(),
        request_id: &line.id,
    };
    serde_json::to_string(&logged).ok()
}

/// Parses an address with a port. HAProxy writes no brackets around an IPv6 address.
fn endpoint(text: &str) -> Option<SocketAddr> {
    let unbracketed = || {
        let (address, port) = text.rsplit_once(':')?;
        Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
    };
    text.parse().ok().or_else(unbracketed)
}

/// The access log of an instance.
#[derive(Debug, Default)]
pub struct AccessLog {
    queue: Mutex<Option<SyncSender<Box<[u8]>>>>,
    output: Arc<Mutex<Output>>,
    written: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
}

impl AccessLog {
    /// Sets the output, with the Routes whose names are logged.
    pub fn set(&self, output: Output, traffic: &Arc<Traffic>) {
        let is_off = output == Output::Off;
        *self.output.lock() = output;
        let mut queue = self.queue.lock();
        if is_off {
            *queue = None;
        } else if queue.is_none() {
            let (sender, receiver) = sync_channel(QUEUE_MAX);
            let (output, written, lost) = (self.output.clone(), self.written.clone(), self.lost.clone());
            let traffic = traffic.clone();
            let writer = std::thread::Builder::new().name("access-log".to_owned());
            match writer.spawn(move || write(&receiver, &output, &traffic, &written, &lost)) {
                Ok(_) => *queue = Some(sender),
                Err(error) => tracing::error!(%error, "failed to start the access log"),
            }
        }
    }

    /// Returns the number of lines that were written, and of those that were lost in the agent.
    pub fn counts(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }
}

impl LineReceiver for AccessLog {
    fn take(&self, line: &[u8]) {
        // Before it is the head of the syslog message.
        let Some(start) = line.windows(MARK.len() + 1).position(|window| window == b"a|{") else { return };
        if let Some(queue) = &*self.queue.lock()
            && queue.try_send(line[start + MARK.len()..].into()).is_err()
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes lines until the log is turned off.
fn write(
    lines: &Receiver<Box<[u8]>>,
    output: &Mutex<Output>,
    traffic: &Traffic,
    written: &AtomicU64,
    lost: &AtomicU64,
) {
    let (mut writer, mut checked, mut has_failed) = (Writer::Off, Instant::now(), false);
    let mut current = Output::Off;
    loop {
        let first = lines.recv_timeout(CHECK_INTERVAL);
        let wanted = output.lock().clone();
        let is_due = checked.elapsed() >= CHECK_INTERVAL || has_failed;
        if current != wanted || is_due {
            checked = Instant::now();
            if current != wanted || writer.is_stale() {
                (writer, current) = (Writer::Off, wanted);
                match Writer::open(&current) {
                    Ok(opened) => writer = opened,
                    Err(error) if !has_failed => tracing::error!(%error, ?current, "failed to open the access log"),
                    Err(_) => {}
                }
            }
        }
        let first = match first {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        for line in std::iter::once(first).chain(lines.try_iter().take(QUEUE_MAX)) {
            let text = logged(&line, Timestamp::now(), |id| traffic.name_of(id));
            let outcome = text.map(|text| writer.write(&text));
            match outcome {
                Some(Ok(())) => _ = written.fetch_add(1, Ordering::Relaxed),
                _ => _ = lost.fetch_add(1, Ordering::Relaxed),
            }
            if let Some(Err(error)) = &outcome
                && !std::mem::replace(&mut has_failed, true)
            {
                tracing::error!(%error, "failed to write the access log; its lines are lost");
            }
            has_failed &= !matches!(outcome, Some(Ok(())));
        }
    }
}

/// An open output.
enum Writer {
    Off,
    Stdout,
    File(PathBuf, File),
    Syslog(UdpSocket),
}

impl Writer {
    fn open(output: &Output) -> io::Result<Writer> {
        Ok(match output {
            Output::Off => Writer::Off,
            Output::Stdout => Writer::Stdout,
            Output::File(path) => {
                let file = OpenOptions::new().create(true).append(true).mode(0o640).open(path)?;
                Writer::File(path.clone(), file)
            }
            Output::Syslog(server) => {
                let any: IpAddr = match server {
                    SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
                    SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
                };
                let socket = UdpSocket::bind((any, 0))?;
                socket.connect(server)?;
                socket.set_nonblocking(true)?;
                Writer::Syslog(socket)
            }
        })
    }

    /// Returns whether the output must be opened again: a tool for rotation has renamed or removed the file.
    fn is_stale(&self) -> bool {
        let same = |path: &Path, file: &File| {
            let (there, open) = (std::fs::metadata(path)?, file.metadata()?);
            io::Result::Ok((there.dev(), there.ino()) == (open.dev(), open.ino()))
        };
        match self {
            Writer::Off => true,
            Writer::File(path, file) => !same(path, file).unwrap_or(false),
            Writer::Stdout | Writer::Syslog(_) => false,
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Writer::Off => Err(io::Error::other("the log is not open")),
            Writer::Stdout => writeln!(io::stdout().lock(), "{text}"),
            // One write for a line, so that a rotation by copying and truncation never cuts one.
            Writer::File(_, file) => file.write_all(format!("{text}\n").as_bytes()),
            // Facility local0, severity informational.
            Writer::Syslog(socket) => {
                socket.send(format!("<134>1 {} - signpost - access - {text}", Timestamp::now()).as_bytes()).map(|_| ())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(line: &str) -> Option<serde_json::Value> {
        let name = |id: &str| (id == "4f56c37b68290394").then(|| "shop/web".to_owned());
        let text = logged(line.as_bytes(), Timestamp::UNIX_EPOCH, name)?;
        assert!(!text.contains('\n'), "{text}");
        Some(serde_json::from_str(&text).expect("every line is JSON"))
    }

    #[test]
    fn lines() {
        let line = r#"{"r":"4f56c37b68290394","s":"200","method":"GET","scheme":"https","host":"a.example","path":"/x?y","protocol":"HTTP/2.0","agent":"curl","client":"192.0.2.1","id":"1f","in":"80","out":"150","endpoint":"192.0.2.7:80, 192.0.2.8:80","head":"-, 0.012","total":"0.250"}"#;
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:00Z", "route": "shop/web", "endpoint": "192.0.2.8:80", "status": 200,
            "client": "192.0.2.1", "scheme": "https", "method": "GET", "host": "a.example", "path": "/x?y",
            "protocol": "HTTP/2.0", "userAgent": "curl", "bytesIn": 80, "bytesOut": 150, "responseMs": 12,
            "durationMs": 250, "requestId": "1f",
        });
        assert_eq!(log(line), Some(expected));
        for (line, field, expected) in [
            (r#"{"s":"-1","endpoint":"-:-","head":"-1"}"#, "status", serde_json::Value::Null),
            (r#"{"s":"499"}"#, "status", serde_json::Value::Null),
            (r#"{"endpoint":"2001:db8::1:80"}"#, "endpoint", "[2001:db8::1]:80".into()),
            (r#"{"head":"12"}"#, "responseMs", 12.into()),
            (r#"{"head":"-"}"#, "responseMs", serde_json::Value::Null),
            (r#"{"path":"/\"\n\u0000\\"}"#, "path", "/\"\n\0\\".into()),
            (r#"{"path":"é"}"#, "path", "é".into()),
        ] {
            assert_eq!(log(line).expect("a line")[field], expected, "{line}");
        }
        for line in ["", "{", r#"{"s":200}"#, r#"{"s":"1"} x"#, r#"{"s":"1","s":"2"}"#] {
            assert_eq!(log(line), None, "{line}");
        }
    }

    /// Octets that are not UTF-8 are replaced.
    #[test]
    fn octets() {
        let text = logged(b"{\"path\":\"/\xff\xc3\"}", Timestamp::UNIX_EPOCH, |_| None).expect("a line");
        assert!(text.contains("/\u{fffd}\u{fffd}"), "{text}");
    }

    /// A file that was renamed is created again.
    #[test]
    fn rotation() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.log");
        let (log, traffic) = (AccessLog::default(), Arc::new(Traffic::default()));
        log.set(Output::File(path.clone()), &traffic);
        let written = |path: &Path, number: u64| {
            signpost_testing::until("the line is written", || {
                log.take(format!("<134>x: a|{{\"path\":\"/{number}\"}}").as_bytes());
                let text = std::fs::read_to_string(path).unwrap_or_default();
                if text.contains(&format!("/{number}\"")) { Ok(()) } else { Err(text) }
            });
        };
        written(&path, 1);
        let renamed = directory.path().join("access.log.1");
        std::fs::rename(&path, &renamed).expect("it is there");
        written(&path, 2);
        assert!(log.counts().0 >= 2);
        log.set(Output::Off, &traffic);
        log.take(b"a|{}");
    }

    proptest::proptest! {
        /// The log has one line of JSON for any line, or none.
        #[test]
        fn any_line(line in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), path in "\\PC{0,40}") {
            let inside = serde_json::json!({"path": path, "s": "200"}).to_string();
            for line in [line.as_slice(), inside.as_bytes()] {
                if let Some(text) = logged(line, Timestamp::UNIX_EPOCH, |_| None) {
                    proptest::prop_assert!(!text.contains('\n') && serde_json::from_str::<serde_json::Value>(&text).is_ok());
                }
            }
        }
    }
}
