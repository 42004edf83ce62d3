//! Limits, which are the same for both proxies, and documented in docs/agent.md.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::bench::Bench;
use crate::recorder::{Answer, HOST, Recorder, Request, Served, WAYS, Way, read_head, read_response, site};

const KIB: usize = 1024;

/// Heads of requests and responses up to 24 KiB pass, as those with cookies of identity providers are. Above 64 KiB, none does.
pub async fn heads(bench: Bench) {
    let application = Recorder::start(|request| {
        let size = request.target.trim_start_matches("/size/").parse().unwrap_or(0);
        let lines: String =
            (0..size / KIB).map(|at| format!("Set-Cookie: c{at}={}\r\n", "x".repeat(KIB - 25))).collect();
        Answer::Raw(format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 2\r\n\r\nok"))
    })
    .await;
    let served = Served::new(bench, &[&application]).await;
    for way in WAYS {
        for (size, passes) in
            [(2 * KIB, true), (8 * KIB, true), (16 * KIB, true), (24 * KIB - 512, true), (80 * KIB, false)]
        {
            // Many lines; HAProxy and nginx have a limit for one of them, too.
            let mut many = Request::new("GET", "/");
            for at in 0..size / KIB {
                many = many.with("Cookie", &format!("c{at}={}", "x".repeat(KIB - 30)));
            }
            let mut requests = vec![("lines", many)];
            if size <= 16 * KIB || !passes {
                requests.push(("a line", Request::new("GET", "/").with("Authorization", &"x".repeat(size - 64))));
                // A target has a limit of its own in nginx.
                requests.push(("a query", Request::new("GET", &format!("/?{}", "x".repeat(size - 64)))));
            }
            for (of, request) in requests {
                let response = served.send(way, &request).await;
                let received = application.take().iter().filter(|request| request.target != "/first").count();
                if passes {
                    assert_eq!((response.map(|one| one.status), received), (Ok(200), 1), "{way:?} {size} of {of}");
                    continue;
                }
                assert_eq!(received, 0, "{way:?} {size} of {of}");
                match response {
                    Ok(response) => assert!([400, 414, 431].contains(&response.status), "{way:?} {size} of {of}"),
                    // HAProxy ends the stream: it reads no further, and cannot respond.
                    Err(error) => assert!(!error.contains("REFUSED_STREAM"), "{way:?} {size} of {of}: {error}"),
                }
            }
            let response = served.send(way, &Request::new("GET", &format!("/size/{size}"))).await;
            let expected = if passes { 200 } else { 502 };
            assert_eq!(response.map(|response| response.status), Ok(expected), "{way:?} {size} in a response");
            application.take();
        }
    }
}

/// Bodies have no limit of size, and are streamed in both directions: the application reads while the client still sends.
pub async fn bodies(bench: Bench) {
    let application = Recorder::start(|_| {
        Answer::Raw(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 8 << 20, "y".repeat(8 << 20)))
    })
    .await;
    let served = Served::new(bench, &[&application]).await;
    for way in [Way::Http, Way::Https] {
        let mut request = Request::new("POST", "/");
        request.body = vec![b'x'; 8 << 20];
        let response = served.send(way, &request).await.expect("a response");
        assert_eq!((response.status, response.body.len()), (200, 8 << 20), "{way:?}");
        assert_eq!(application.take().pop().map(|request| request.body.len()), Some(8 << 20), "{way:?}");
    }
    // An application that is new to the router.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let mut served = served;
    served.bench.apply(&site(&[address], &served.identity)).await;
    let mut stream = TcpStream::connect(served.bench.http).await.expect("a connection");
    let head = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1000000000000\r\n\r\nbegin");
    stream.write_all(head.as_bytes()).await.expect("it is read");
    let read = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\nbegin") {
            assert!(stream.read_buf(&mut received).await.expect("it is open") > 0, "the connection ended");
        }
    };
    timeout(signpost_testing::PATIENCE, read).await.expect("the application reads while the client still sends");
}

/// A response whose parts come slowly reaches the client part by part, also for longer than an application may take to respond:
/// server-sent events.
pub async fn events(bench: Bench) {
    let pause = Duration::from_secs(3);
    let application = Recorder::start(move |_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        Answer::Slow(pause, vec![head.to_owned(), "2\r\na\n\r\n".to_owned(), "2\r\nb\n\r\n0\r\n\r\n".to_owned()])
    })
    .await;
    let bench = bench.with(|settings| settings.response_timeout = Duration::from_secs(2));
    let served = Served::new(bench, &[&application]).await;
    for way in [Way::Http, Way::Https] {
        let request = Request::new("GET", "/").with("Accept", "text/event-stream");
        let response = served.send(way, &request).await.expect("a response");
        assert_eq!((response.status, response.body.as_str()), (200, "a\nb\n"), "{way:?}");
        // Without the header, it is a slow response.
        let response = served.send(way, &Request::new("GET", "/")).await;
        assert_eq!(response.map(|response| response.status), Ok(504), "{way:?}");
    }
}

/// An idle WebSocket stays open for longer than an application may take to respond.
pub async fn idle_websocket(bench: Bench) {
    let application = Recorder::start(|_| Answer::Switch("websocket")).await;
    let bench = bench.with(|settings| settings.response_timeout = Duration::from_secs(2));
    let served = Served::new(bench, &[&application]).await;
    let head = format!(
        "GET /chat HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: {}\r\nSec-WebSocket-Version: 13\r\n\r\n",
        crate::recorder::WEBSOCKET_KEY
    );
    let mut stream = TcpStream::connect(served.bench.http).await.expect("a connection");
    stream.write_all(head.as_bytes()).await.expect("it is read");
    let head = read_head(&mut stream, &mut Vec::new()).await.expect("a response");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        stream.write_all(b"hello").await.expect("it is open");
        let mut back = [0; 5];
        stream.read_exact(&mut back).await.expect("it is open");
    }
}

/// A client that is slow with the head of its request is refused after 10 seconds.
pub async fn slow_heads(bench: Bench) {
    let application = Recorder::start(|_| Answer::Body("ok")).await;
    let served = Served::new(bench, &[&application]).await;
    let start = Instant::now();
    let mut stream = TcpStream::connect(served.bench.http).await.expect("a connection");
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n").as_bytes()).await.expect("it is read");
    let (mut read, mut write) = stream.into_split();
    let drip = tokio::spawn(async move {
        while write.write_all(b"X: y\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    });
    let mut rest = Vec::new();
    let _ = timeout(Duration::from_secs(30), read.read_to_end(&mut rest)).await.expect("it is closed");
    drip.abort();
    let text = String::from_utf8_lossy(&rest).into_owned();
    assert!(rest.is_empty() || text.starts_with("HTTP/1.1 408 "), "{text}");
    assert!((8..20).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert!(application.take().is_empty());
}

/// Opens connections from one address and returns those that stay open, of which there should be at most `most`.
async fn hold(from: &str, to: SocketAddr, count: usize, most: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..count {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(from.parse().expect("an address"), 0)).expect("a port");
        if let Ok(stream) = socket.connect(to).await {
            open.push(stream);
        }
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let is_open = |stream: &TcpStream| {
        let read = stream.try_read(&mut [0; 1]);
        matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    open.retain(is_open);
    // The router can take longer to close the others. It closes a connection without a request after 10 seconds in any case.
    let deadline = Instant::now() + Duration::from_secs(7);
    while open.len() > most && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
        open.retain(is_open);
    }
    open
}

/// A client has a limited number of connections, over HTTP and HTTPS together in HAProxy; others are not affected, and proxies in front
/// of this one have no limit.
pub async fn connections_of_a_client(bench: Bench) {
    let application = Recorder::start(|_| Answer::Body("ok")).await;
    let bench = bench.with(|settings| {
        settings.client_connections_max = 8;
        settings.trusted_proxies = vec!["127.0.0.9/32".parse().expect("a network")];
    });
    let served = Served::new(bench, &[&application]).await;
    let (http, https) = (served.bench.http, served.bench.https);
    let held = hold("127.0.0.2", http, 20, 8).await;
    assert!(held.len() <= 8, "{}", held.len());
    assert!(hold("127.0.0.2", https, 20, 8).await.len() <= 8);
    assert_eq!(hold("127.0.0.9", http, 20, 20).await.len(), 20);
    assert_eq!(hold("127.0.0.9", https, 20, 20).await.len(), 20);
    // Others, and the same client when it has closed its own.
    for way in WAYS {
        let response = served.send(way, &Request::new("GET", "/")).await;
        assert_eq!(response.map(|response| response.status), Ok(200), "{way:?}");
    }
    drop(held);
    let deadline = Instant::now() + signpost_testing::PATIENCE;
    let mut status = None;
    while status != Some(200) && Instant::now() < deadline {
        let mut streams = hold("127.0.0.2", http, 1, 1).await;
        if let Some(stream) = streams.first_mut() {
            let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("it is open");
            status = read_response(stream, "GET").await.ok().map(|response| response.status);
        }
    }
    assert_eq!(status, Some(200));
}

/// A client that has as many slow uploads as it may have, to the same Route, harms no other client. They live as long as they make progress.
pub async fn slow_bodies(bench: Bench) {
    // A part is sent each second: in all, this takes three times as long as the time limit for silence.
    const SILENCE_MAX: Duration = Duration::from_secs(8);
    const PARTS: usize = 24;
    let application = Recorder::start(|request| match request.body.len() {
        0 => Answer::Body("ok"),
        _ => Answer::Body("uploaded"),
    })
    .await;
    let bench = bench.with(|settings| {
        settings.client_connections_max = 32;
        settings.response_timeout = SILENCE_MAX;
    });
    let served = Served::new(bench, &[&application]).await;
    let mut held = hold("127.0.0.2", served.bench.http, 40, 32).await;
    assert!((16..=32).contains(&held.len()), "{}", held.len());
    let head = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {PARTS}\r\n\r\n");
    for stream in &mut held {
        stream.write_all(head.as_bytes()).await.expect("it is open");
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..PARTS {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for stream in &mut held {
            stream.write_all(b"x").await.expect("it makes progress");
        }
        let start = Instant::now();
        for way in WAYS {
            let response = served.send(way, &Request::new("GET", "/")).await;
            assert_eq!(response.map(|response| response.status), Ok(200), "{way:?}");
        }
        slowest = slowest.max(start.elapsed());
    }
    assert!(slowest < Duration::from_secs(5), "others waited for {slowest:?}");
    for stream in &mut held {
        let response = read_response(stream, "POST").await.expect("the upload is complete");
        assert_eq!((response.status, response.body.as_str()), (200, "uploaded"));
    }
}

/// RFC 8586: a request that has passed the platform 8 times is in a loop.
pub async fn loops(bench: Bench) {
    let application = Recorder::start(|_| Answer::Body("ok")).await;
    let served = Served::new(bench, &[&application]).await;
    let times = |count: usize, token: &str| vec![token; count].join(", ");
    for (lines, status) in [
        (vec![], 200),
        (vec![times(7, "signpost")], 200),
        (vec![times(8, "signpost")], 508),
        (vec![times(30, "signpost")], 508),
        (vec![times(9, "signpost2")], 200),
        (vec![times(9, "cdn.example")], 200),
        (vec![times(9, "signpost.example")], 200),
        (vec![times(8, "Signpost; hop=1")], 508),
        (vec![format!("{}, {}", times(7, "signpost"), times(7, "a.example"))], 200),
        (vec![times(4, "signpost"), times(4, "signpost")], 508),
        (vec!["signpost".to_owned(); 8], 508),
        (vec!["signpost".to_owned(); 7], 200),
    ] {
        // nginx reads the first line, and passes it alone. Its own passes are in one line.
        if served.bench.kind == "nginx" && lines.len() > 1 {
            continue;
        }
        for way in WAYS {
            let mut request = Request::new("GET", "/");
            for line in &lines {
                request = request.with("CDN-Loop", line);
            }
            let response = served.send(way, &request).await.map(|response| response.status);
            assert_eq!(response, Ok(status), "{way:?} {lines:?}");
            let received = application.take();
            if status == 200 {
                let before = lines.iter().flat_map(|line| line.split(',')).count();
                let tokens = received.last().expect("a request").all("cdn-loop").join(",");
                assert_eq!(tokens.split(',').count(), before + 1, "{way:?} {lines:?}: {tokens}");
                assert_eq!(tokens.rsplit(',').next().map(str::trim), Some("signpost"), "{way:?} {lines:?}: {tokens}");
            }
        }
    }
}

/// A Route whose endpoint is the router itself ends with 508, and after a few rounds.
pub async fn loop_of_a_route(bench: Bench) {
    let application = Recorder::start(|_| Answer::Body("ok")).await;
    let mut looped = application.clone();
    looped.address = bench.http;
    let served = Served::new(bench, &[&looped]).await;
    for way in [Way::Http, Way::Https] {
        let response = served.send(way, &Request::new("GET", "/")).await;
        assert_eq!(response.map(|response| response.status), Ok(508), "{way:?}");
    }
}
