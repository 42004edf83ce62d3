//! Applications that record what they receive, and clients that send the same request in every way that a router offers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use signpost_agent::site::{Certificate, Insecure, Site};
use signpost_types::v1alpha1::route::Termination;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::bench::{Bench, plain, route, with_tls};
use crate::client::{Identity, Response};

/// The time in which a router must respond in any case.
const PATIENCE: Duration = Duration::from_secs(20);
/// The host of the only Route.
pub const HOST: &str = "app.example";

/// A request as an application received it.
#[derive(Clone, Debug, Default)]
pub struct Received {
    pub method: String,
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Received {
    /// Returns the values of all lines of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_str()).collect()
    }

    fn parse(head: &str) -> Received {
        let mut lines = head.split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let mut word = || first.next().unwrap_or_default().to_owned();
        let (method, target) = (word(), word());
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        Received { method, target, headers, body: Vec::new() }
    }
}

/// The behavior of an application after it has received a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A response with a body.
    Body(&'static str),
    /// A whole response, octet by octet.
    Raw(String),
    /// The same, and the end of the connection.
    Last(String),
    /// The end of the connection, without a response.
    Close,
    /// A close with RST instead of FIN.
    Reset,
    /// Nothing.
    Silence,
    /// A response whose parts are sent with a pause before each.
    Slow(Duration, Vec<String>),
    /// The switch to a protocol in which everything is sent back.
    Switch(&'static str),
}

/// An application that records its requests.
#[derive(Clone)]
pub struct Recorder {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    pub connections: Arc<AtomicUsize>,
}

impl Recorder {
    /// Starts an application with a behavior by request.
    pub async fn start(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let recorder = Recorder { address, received: Arc::default(), connections: Arc::default() };
        let (one, answer) = (recorder.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                one.connections.fetch_add(1, Ordering::Relaxed);
                let (one, answer) = (one.clone(), answer.clone());
                tokio::spawn(async move { one.serve(stream, &*answer).await });
            }
        });
        recorder
    }

    /// Returns the requests since the last call.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock())
    }

    async fn serve(&self, mut stream: TcpStream, answer: &(dyn Fn(&Received) -> Answer + Send + Sync)) -> Option<()> {
        let mut buffer = Vec::new();
        loop {
            let head = read_head(&mut stream, &mut buffer).await?;
            let mut request = Received::parse(&head);
            request.body = read_body(&mut stream, &mut buffer, &head, false).await?;
            let behavior = answer(&request);
            self.received.lock().push(request.clone());
            let body = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            match behavior {
                Answer::Body(_) if request.method == "HEAD" => {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n").await.ok()?;
                }
                Answer::Body(text) => stream.write_all(body(text).as_bytes()).await.ok()?,
                Answer::Raw(text) => stream.write_all(text.as_bytes()).await.ok()?,
                Answer::Last(text) => {
                    let _ = stream.write_all(text.as_bytes()).await;
                    let _ = stream.shutdown().await;
                    return None;
                }
                Answer::Close => return None,
                Answer::Reset => {
                    let _ = stream.set_zero_linger();
                    return None;
                }
                Answer::Silence => tokio::time::sleep(Duration::from_secs(60)).await,
                Answer::Slow(pause, parts) => {
                    for part in parts {
                        tokio::time::sleep(pause).await;
                        stream.write_all(part.as_bytes()).await.ok()?;
                    }
                }
                Answer::Switch(protocol) => {
                    let key = request.all("sec-websocket-key").concat();
                    let accept = websocket_accept(&key);
                    let head = format!(
                        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
                    );
                    stream.write_all(head.as_bytes()).await.ok()?;
                    stream.write_all(&buffer).await.ok()?;
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await.ok()?;
                    return None;
                }
            }
        }
    }
}

/// The key in RFC 6455 §1.3.
pub const WEBSOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Returns the proof that a key was understood (RFC 6455 §4.2.2).
fn websocket_accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    data_encoding::BASE64.encode(digest.as_ref())
}

/// Returns the head of a message without the empty line; `None` at the end of the connection.
pub async fn read_head(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = buffer.drain(..end + 4).take(end).collect::<Vec<u8>>();
            return Some(String::from_utf8_lossy(&head).into_owned());
        }
        read_more(stream, buffer).await?;
    }
}

async fn read_more(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<()> {
    let read = timeout(PATIENCE * 3, stream.read_buf(buffer)).await.ok()?.ok()?;
    (read > 0).then_some(())
}

/// Returns the body of a message: by its length, its chunks, or for a response (`to_end`) up to the end of the connection.
async fn read_body(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    head: &str,
    to_end: bool,
) -> Option<Vec<u8>> {
    let lower = head.to_ascii_lowercase();
    let header = |name: &str| lower.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    if let Some(length) = header("content-length") {
        let length = length.trim().parse().ok()?;
        while buffer.len() < length {
            read_more(stream, buffer).await?;
        }
        return Some(buffer.drain(..length).collect());
    }
    let mut body = Vec::new();
    if header("transfer-encoding").is_some() {
        loop {
            let end = loop {
                match buffer.windows(2).position(|two| two == b"\r\n") {
                    Some(end) => break end,
                    None => read_more(stream, buffer).await?,
                }
            };
            let size = usize::from_str_radix(std::str::from_utf8(&buffer[..end]).ok()?.trim(), 16).ok()?;
            while buffer.len() < end + 2 + size + 2 {
                read_more(stream, buffer).await?;
            }
            body.extend_from_slice(&buffer[end + 2..end + 2 + size]);
            buffer.drain(..end + 2 + size + 2);
            if size == 0 {
                return Some(body);
            }
        }
    }
    while to_end && read_more(stream, buffer).await.is_some() {}
    if to_end {
        body.append(buffer);
    }
    Some(body)
}

/// The transport of a request to the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The first request of a plain connection.
    Http,
    /// The second request of a plain connection.
    Kept,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 over TLS, as the second stream of a connection.
    Http2,
}

pub const WAYS: [Way; 4] = [Way::Http, Way::Kept, Way::Https, Way::Http2];

/// A request to [`HOST`].
#[derive(Clone, Debug)]
pub struct Request {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &'static str, path: &str) -> Request {
        Request { method, path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    pub fn with(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A router with one Route, over HTTP and HTTPS, to all paths of [`HOST`].
pub struct Served {
    pub bench: Bench,
    pub identity: Identity,
}

impl Served {
    pub async fn new(mut bench: Bench, recorders: &[&Recorder]) -> Served {
        let addresses: Vec<SocketAddr> = recorders.iter().map(|recorder| recorder.address).collect();
        let identity = Identity::new(HOST);
        bench.apply(&site(&addresses, &identity)).await;
        Served { bench, identity }
    }

    /// Sends a request with a body of its own length.
    pub async fn send(&self, way: Way, request: &Request) -> Result<Response, String> {
        let sent = async {
            match way {
                Way::Http | Way::Kept => {
                    let mut stream = TcpStream::connect(self.bench.http).await.map_err(|error| error.to_string())?;
                    if way == Way::Kept {
                        first_request(&mut stream).await?;
                    }
                    exchange(&mut stream, request).await
                }
                Way::Https => exchange(&mut self.tls(b"http/1.1").await?, request).await,
                Way::Http2 => self.http2(request).await,
            }
        };
        timeout(PATIENCE, sent).await.map_err(|_| "no response in time".to_owned())?
    }

    /// Sends the bytes of a request on a plain connection of their own, and returns the response.
    pub async fn raw(&self, bytes: &str) -> Result<Response, String> {
        let mut stream = TcpStream::connect(self.bench.http).await.map_err(|error| error.to_string())?;
        stream.write_all(bytes.as_bytes()).await.map_err(|error| error.to_string())?;
        let method = bytes.split(' ').next().unwrap_or_default();
        timeout(PATIENCE, read_response(&mut stream, method)).await.map_err(|_| "no response in time".to_owned())?
    }

    /// Opens a TLS connection.
    pub async fn tls(&self, protocol: &[u8]) -> Result<TlsStream<TcpStream>, String> {
        self.identity.connect(self.bench.https, HOST, protocol).await.ok_or_else(|| "no TLS".to_owned())
    }

    async fn http2(&self, request: &Request) -> Result<Response, String> {
        let text = |error: h2::Error| format!("{error:?}");
        let (mut client, connection) = h2::client::handshake(self.tls(b"h2").await?).await.map_err(text)?;
        tokio::spawn(connection);
        let build = |method: &str, path: &str| {
            http::Request::builder().method(method).uri(format!("https://{HOST}{path}")).version(http::Version::HTTP_2)
        };
        let first = build("GET", "/first").body(()).expect("a request");
        client.send_request(first, true).map_err(text)?.0.await.map_err(text)?;
        let mut next = build(request.method, &request.path);
        for (name, value) in &request.headers {
            next = next.header(name, value);
        }
        let next = next.body(()).map_err(|error| error.to_string())?;
        client = client.ready().await.map_err(text)?;
        let (response, mut body) = client.send_request(next, request.body.is_empty()).map_err(text)?;
        if !request.body.is_empty() {
            body.send_data(Bytes::from(request.body.clone()), true).map_err(text)?;
        }
        let (head, mut body) = response.await.map_err(text)?.into_parts();
        let mut bytes = Vec::new();
        while let Some(part) = body.data().await {
            let part = part.map_err(text)?;
            let _ = body.flow_control().release_capacity(part.len());
            bytes.extend_from_slice(&part);
        }
        let lines = head.headers.iter().map(|(name, value)| format!("\r\n{name}: {}", value.to_str().unwrap_or("?")));
        let head_text = format!("http/2 {}{}", head.status.as_u16(), lines.collect::<String>());
        Ok(Response {
            status: head.status.as_u16(),
            head: head_text.to_ascii_lowercase(),
            body: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }
}

/// Returns the Site of [`Served`].
pub fn site(addresses: &[SocketAddr], identity: &Identity) -> Site {
    let mut site = Site::default();
    let mut upstream = with_tls(addresses[0], Termination::Edge, Insecure::Allow);
    let servers: Vec<(SocketAddr, u16)> = addresses.iter().map(|address| (*address, 1)).collect();
    upstream.servers = plain(&servers).servers;
    route(&mut site, "app", HOST, "/", upstream);
    site.certificates.insert(HOST.parse().expect("a host"), Certificate { pem: identity.pem.as_str().into() });
    site
}

async fn first_request(stream: &mut TcpStream) -> Result<(), String> {
    let first = format!("GET /first HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    stream.write_all(first.as_bytes()).await.map_err(|error| error.to_string())?;
    let response = read_response(stream, "GET").await?;
    if response.status == 200 { Ok(()) } else { Err(format!("the first request: {response:?}")) }
}

async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &Request) -> Result<Response, String> {
    let mut head = format!("{} {} HTTP/1.1\r\nHost: {HOST}\r\n", request.method, request.path);
    for (name, value) in &request.headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !request.body.is_empty() {
        head += &format!("Content-Length: {}\r\n", request.body.len());
    }
    let bytes = [head.as_bytes(), b"\r\n", &request.body].concat();
    // A router can respond before it has read everything. A TLS stream holds what the connection does not take at once.
    if stream.write_all(&bytes).await.is_ok() {
        let _ = stream.flush().await;
    }
    read_response(stream, request.method).await
}

/// Reads a response, without the interim ones before it.
pub async fn read_response(stream: &mut (impl AsyncRead + Unpin), method: &str) -> Result<Response, String> {
    let mut buffer = Vec::new();
    loop {
        let closed = || "the connection ended without a response".to_owned();
        let head = read_head(stream, &mut buffer).await.ok_or_else(closed)?;
        let status: u16 = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(head.clone())?;
        if status < 200 && status != 101 {
            continue;
        }
        let has_body = method != "HEAD" && !matches!(status, 101 | 204 | 304);
        let body = if has_body { read_body(stream, &mut buffer, &head, true).await } else { Some(Vec::new()) };
        let body = body.ok_or("the connection ended within the response")?;
        return Ok(Response {
            status,
            head: head.to_ascii_lowercase(),
            body: String::from_utf8_lossy(&body).into_owned(),
        });
    }
}

/// Returns the number of requests for each target, without the first ones of connections.
pub fn deliveries(recorders: &[&Recorder]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in recorders.iter().flat_map(|recorder| recorder.take()).filter(|one| one.target != "/first") {
        *counts.entry(format!("{} {}", request.method, request.target)).or_default() += 1;
    }
    counts
}
