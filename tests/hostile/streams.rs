//! HTTP/2 clients that open streams and take nothing of the responses.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Instant;

use bytes::Bytes;
use futures::future::join_all;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::support::{Platform, is_long, routes_path};
use signpost_testing::namespace::inside_namespace;
use signpost_testing::{PATIENCE, eventually, http_get, wait_for};

/// All clients of these tests.
pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime")
});

/// Octets of responses in flight at the admin endpoints, and those of one client (`docs/limits.md`).
const ALL_OCTETS: usize = 64 << 20;
const CLIENT_OCTETS: usize = ALL_OCTETS / 8;
/// Streams of one connection, less than the admin endpoints allow.
const STREAMS: usize = 100;
/// A path that answers with more than 4 KiB in one piece of known length.
const METRICS: &str = "http://localhost/metrics";

/// One HTTP/2 connection.
pub struct Attacker {
    send: SendRequest<Bytes>,
    window: mpsc::UnboundedSender<u32>,
    ended: JoinHandle<Result<(), h2::Error>>,
}

type Answer = Result<Response<RecvStream>, h2::Error>;

impl Attacker {
    /// Connects from the address `client`; each stream has a `window` in octets.
    pub fn connect(client: [u8; 4], server: SocketAddr, window: u32) -> std::io::Result<Attacker> {
        RUNTIME.block_on(async { Attacker::over(tcp(client, server).await?, window).await })
    }

    /// Returns the same over TLS, to the API of `platform`.
    pub fn connect_to_api(client: [u8; 4], platform: &Platform, window: u32) -> std::io::Result<Attacker> {
        let pem = std::fs::read(platform.data.join("pki/ca.crt"))?;
        let mut tls = signpost_runtime::trust::only(&pem).expect("a certificate");
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(tls));
        RUNTIME.block_on(async {
            let tcp = tcp(client, platform.ports.api).await?;
            let name = tokio_rustls::rustls::pki_types::ServerName::try_from("localhost").expect("a name");
            Attacker::over(connector.connect(name, tcp).await?, window).await
        })
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        window: u32,
    ) -> std::io::Result<Attacker> {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window).initial_connection_window_size((1 << 31) - 1);
        let (send, mut connection) = builder.handshake(stream).await.map_err(std::io::Error::other)?;
        let (window, mut windows) = mpsc::unbounded_channel();
        let ended = tokio::spawn(async move {
            loop {
                tokio::select! {
                    ended = &mut connection => return ended,
                    Some(window) = windows.recv() => connection.set_initial_window_size(window)?,
                }
            }
        });
        Ok(Attacker { send, window, ended })
    }

    /// Returns a GET of `url`; its response's head.
    pub async fn get(&self, url: &str, token: Option<&str>) -> Answer {
        let mut send = self.send.clone().ready().await?;
        let mut request = Request::get(url);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        send.send_request(request.body(()).expect("a request"), true)?.0.await
    }

    /// Sends `count` of these requests concurrently.
    async fn get_many(&self, count: usize, url: &str, token: Option<&str>) -> Vec<Answer> {
        join_all((0..count).map(|_| self.get(url, token))).await
    }
}

async fn tcp(client: [u8; 4], server: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((client, 0)))?;
    socket.connect(server).await
}

/// Waits until the server has closed each of these connections.
fn until_closed(attackers: Vec<Attacker>) {
    let ended = join_all(attackers.into_iter().map(|attacker| attacker.ended));
    let began = Instant::now();
    RUNTIME.block_on(async { tokio::time::timeout(PATIENCE, ended).await }).expect("each connection is closed");
    println!("all connections are closed after another {:?}", began.elapsed());
}

fn count(answers: &[Answer], status: u16) -> usize {
    answers.iter().flatten().filter(|answer| answer.status() == status).count()
}

/// Returns the octets of a response.
async fn read(mut response: Response<RecvStream>) -> Result<usize, h2::Error> {
    let mut octets = 0;
    while let Some(data) = response.body_mut().data().await {
        let data = data?;
        octets += data.len();
        response.body_mut().flow_control().release_capacity(data.len())?;
    }
    Ok(octets)
}

#[test]
fn streams_without_a_window_are_bounded_and_end() {
    let connections = if is_long() { 40 } else { 16 };
    let platform = Platform::start(&[]);
    let bystander = platform.bystander();
    let page = http_get(platform.ports.admin, "/metrics").expect("it answers").1.len();
    let before = platform.resident_mib();
    let (mut attackers, mut answers) = (Vec::new(), Vec::new());
    for index in 0..connections {
        let attacker = Attacker::connect([127, 1, 0, index + 1], platform.ports.admin, 0).expect("connects");
        answers.extend(RUNTIME.block_on(attacker.get_many(STREAMS, METRICS, None)));
        attackers.push(attacker);
    }
    let (answered, refused) = (count(&answers, 200), count(&answers, 503));
    let grown = platform.resident_mib().saturating_sub(before);
    println!(
        "{} streams, {answered} answered, {refused} refused, pages of {page} octets, {grown} MiB more",
        answers.len()
    );
    assert_eq!(answered + refused, answers.len());
    assert!(refused > 0, "more than all may have");
    assert!(answered * page / 2 < ALL_OCTETS, "{answered} pages of some {page} octets are in flight");
    assert!(grown < 256, "{grown} MiB more");
    // The eighth stalled response closes its connection.
    until_closed(attackers);
    let closed = "signpost_http_connections_closed_total{server=\"admin\",reason=\"stalled\"}";
    wait_for("each of them is counted", || platform.metric(closed) == f64::from(connections));
    drop(answers);
    let next = Attacker::connect([127, 1, 0, 1], platform.ports.admin, 1 << 20).expect("connects");
    wait_for("what they held is free again", || count(&RUNTIME.block_on(next.get_many(8, METRICS, None)), 200) == 8);
    println!("{:?}", bystander.was_served());
}

#[test]
fn a_response_of_known_length_counts_until_it_was_read() {
    let platform = Platform::start(&[]);
    let page = http_get(platform.ports.admin, "/metrics").expect("it answers").1.len();
    let connect = || Attacker::connect([127, 0, 0, 9], platform.ports.admin, 0).expect("connects");
    let attackers: Vec<_> = (0..CLIENT_OCTETS / (page * STREAMS) + 2).map(|_| connect()).collect();
    let all = attackers.iter().map(|attacker| attacker.get_many(STREAMS, METRICS, None));
    let mut all = RUNTIME.block_on(join_all(all));
    assert!(all.iter().any(|answers| count(answers, 503) > 0), "one client's responses are bounded");
    let open = connect();
    let refused = RUNTIME.block_on(open.get(METRICS, None)).expect("an answer");
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].as_bytes()), (503, &b"5"[..]));
    let others = http_get(platform.ports.admin, "/metrics").expect("it answers");
    assert_eq!(others.0, 200, "others are answered");
    let line = "signpost_http_responses_refused_total{server=\"admin\",reason=\"octets\"}";
    assert!(platform.metric(line) > 0.0);
    // All of one connection are read: there is room again.
    let full = all.iter().position(|answers| count(answers, 200) > 0).expect("some were answered");
    attackers[full].window.send(1 << 20).expect("the connection lives");
    let reads = std::mem::take(&mut all[full]).into_iter().map(|answer| read(answer.expect("an answer")));
    let octets: usize = RUNTIME.block_on(join_all(reads)).into_iter().map(|octets| octets.expect("all is there")).sum();
    assert!(octets > page);
    eventually("there is room", || {
        let answer = RUNTIME.block_on(open.get(METRICS, None)).expect("an answer");
        (answer.status() == 200).then_some(())
    });
}

#[test]
fn a_list_that_is_not_read_holds_its_users_share_alone() {
    let platform = Platform::start(&[]);
    let attacker = platform.tenant("attacker");
    let bystander = platform.bystander();
    let url = format!("https://localhost{}", routes_path("attacker"));
    let connections = if is_long() { 10 } else { 1 };
    let before = platform.resident_mib();
    let connect = |_| Attacker::connect_to_api([127, 0, 0, 9], &platform, 0).expect("connects");
    let attackers: Vec<_> = (0..connections).map(connect).collect();
    let mut answers = Vec::new();
    for connection in &attackers {
        answers.extend(RUNTIME.block_on(connection.get_many(4 * STREAMS, &url, Some(attacker.token()))));
    }
    let (answered, refused) = (count(&answers, 200), count(&answers, 429));
    let grown = platform.resident_mib().saturating_sub(before);
    println!("{} lists, {answered} answered, {refused} refused, {grown} MiB more", answers.len());
    assert_eq!((answered, refused), (128, answers.len() - 128), "a sixteenth of all requests");
    assert!(grown < 256, "{grown} MiB more");
    assert_eq!(attacker.send("GET", &routes_path("attacker"), None).0, 429);
    until_closed(attackers);
    drop(answers);
    wait_for("the shares are free again", || attacker.send("GET", &routes_path("attacker"), None).0 == 200);
    println!("{:?}", bystander.was_served());
}

#[test]
fn one_client_has_its_own_connections_only() {
    let platform = Platform::start(&["--http-connections-per-client", "4"]);
    // A connection with a request in flight is not closed for another.
    let busy = |client| {
        let attacker = Attacker::connect(client, platform.ports.admin, 0)?;
        let answer = RUNTIME.block_on(attacker.get(METRICS, None)).map_err(std::io::Error::other)?;
        Ok::<_, std::io::Error>((attacker, answer))
    };
    let held: Vec<_> = (0..4).map(|_| busy([127, 0, 0, 9]).expect("is served")).collect();
    assert!(busy([127, 0, 0, 9]).is_err(), "the fifth is closed at once");
    let _other = busy([127, 0, 0, 10]).expect("others are served");
    let line = "signpost_http_connections_refused_total{server=\"admin\",reason=\"client\"}";
    assert!(platform.metric(line) > 0.0);
    drop(held);
    eventually("the places are free again", || busy([127, 0, 0, 9]).ok());
}

/// The addresses of strangers, on the loopback interface of a namespace.
pub const STRANGER: [u8; 4] = [192, 0, 2, 9];
const SCHEDULER: [u8; 4] = [192, 0, 2, 10];

/// Gives this address to the loopback interface of a namespace.
pub fn add_address(address: [u8; 4]) {
    let address = std::net::Ipv4Addr::from(address).to_string() + "/32";
    let added = std::process::Command::new("ip").args(["address", "add", &address, "dev", "lo"]).status();
    assert!(added.expect("iproute2 is installed").success());
}

#[test]
fn the_reserve_is_for_loopback_and_users_of_the_platform() {
    if !inside_namespace("streams::the_reserve_is_for_loopback_and_users_of_the_platform") {
        return;
    }
    [STRANGER, SCHEDULER].into_iter().for_each(add_address);
    let platform = Platform::start(&["--http-connections", "32"]);
    let kubeconfig = std::fs::read_to_string(platform.data.join("scheduler.kubeconfig")).expect("the server wrote it");
    let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token:")).expect("it has a token");
    let token = token.trim().trim_matches('"');
    let url = "https://localhost/apis/signpost.dev/v1alpha1/routes";
    let list = |client| {
        let connection = Attacker::connect_to_api(client, &platform, 1 << 20)?;
        RUNTIME.block_on(connection.get(url, Some(token))).map_err(std::io::Error::other)
    };
    assert_eq!(list(SCHEDULER).expect("is answered").status(), 200);
    let bystander = platform.bystander();
    let mut held = Vec::new();
    // A refusal that is not read is in flight, too.
    let mut hold = || {
        let stranger = Attacker::connect_to_api(STRANGER, &platform, 0)?;
        let answer = RUNTIME.block_on(stranger.get(url, None)).map_err(std::io::Error::other)?;
        held.push((stranger, answer));
        Ok::<_, std::io::Error>(held.len())
    };
    let places = std::iter::from_fn(|| hold().ok()).take(33).count();
    // On a slow machine a held connection may have ended meanwhile: its place is taken, too.
    assert!(places >= 20, "all but an eighth of 32, less those of others: {places}");
    eventually("its address gives it no place of the reserve", || {
        while hold().is_ok() {}
        list(STRANGER).is_err().then_some(())
    });
    // The bystander comes and goes in the reserve, too.
    eventually("its user gives it a place of the reserve", || {
        list(SCHEDULER).is_ok_and(|answer| answer.status() == 200).then_some(())
    });
    let line = "signpost_http_connections_refused_total{server=\"api\",reason=\"total\"}";
    assert!(platform.metric(line) > 0.0);
    bystander.was_served();
}

#[test]
fn an_idle_connection_gets_a_goaway() {
    let platform = Platform::start(&["--http-idle-timeout", "1s"]);
    let said = RUNTIME.block_on(async {
        let mut stream = TcpStream::connect(platform.ports.admin).await.expect("connects");
        // The preface and empty SETTINGS (RFC 9113 §3.4), and nothing more.
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("writes");
        let mut said = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("it ends").expect("reads");
        said
    });
    let (mut rest, mut types) = (&said[..], Vec::new());
    while let [a, b, c, kind, after @ ..] = rest {
        types.push(*kind);
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        rest = &after[5 + length..];
    }
    assert!(types.contains(&7), "a GOAWAY (RFC 9113 §6.8): {types:?}");
}
