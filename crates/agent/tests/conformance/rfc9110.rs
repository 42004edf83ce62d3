//! RFC 9110, HTTP semantics: what a router may do with requests and responses.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bench::Bench;
use crate::recorder::{
    Answer, HOST, Received, Recorder, Request, Served, WAYS, WEBSOCKET_KEY, Way, deliveries, read_head,
};

/// The methods with and without a body, idempotent ones and others, and one that no proxy knows.
const METHODS: [&str; 9] = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "PROPFIND", "FROB"];

/// Behaviors by path, for applications that fail.
fn failing(request: &Received) -> Answer {
    match request.target.split('?').next().unwrap_or_default() {
        "/close" => Answer::Close,
        "/reset" => Answer::Reset,
        "/half" => Answer::Last("HTTP/1.1 200 OK\r\nContent-Le".to_owned()),
        "/garbage" => Answer::Last("220 mail.example ESMTP\r\n\r\n".to_owned()),
        "/silence" => Answer::Silence,
        _ => Answer::Body("ok"),
    }
}

fn request(method: &'static str, path: &str) -> Request {
    let body = matches!(method, "POST" | "PUT" | "PATCH").then(|| b"body".to_vec()).unwrap_or_default();
    Request { body, ..Request::new(method, path) }
}

/// §9.2.2: "A proxy MUST NOT automatically retry non-idempotent requests." Here, no request that an application may have seen is sent
/// again, to the same endpoint or another one, by the router or, because of its response, by the client (RFC 9113 §8.7).
///
/// nginx passes a response that is not HTTP as one of HTTP/0.9.
pub async fn delivered_once(bench: Bench) {
    let (one, two) = (Recorder::start(failing).await, Recorder::start(failing).await);
    let served = Served::new(bench, &[&one, &two]).await;
    let nginx = served.bench.kind == "nginx";
    for way in WAYS {
        for method in METHODS {
            for path in ["/close", "/reset", "/half", "/garbage"] {
                let case = format!("{way:?} {method} {path}");
                // HTTP/0.9 has no HEAD, so that the client waits.
                if nginx && (method, path) == ("HEAD", "/garbage") {
                    continue;
                }
                let response = served.send(way, &request(method, path)).await;
                if !(nginx && path == "/garbage") {
                    assert_eq!(response.map(|response| response.status), Ok(502), "{case}");
                }
                let counts = deliveries(&[&one, &two]);
                assert_eq!(counts.values().sum::<usize>(), 1, "{case}: {counts:?}");
            }
        }
    }
}

/// §15.6.5: a router that waits too long responds with 504, and has delivered the request once.
pub async fn timeouts(bench: Bench) {
    let (one, two) = (Recorder::start(failing).await, Recorder::start(failing).await);
    let bench = bench.with(|settings| settings.response_timeout = Duration::from_millis(1_500));
    let served = Served::new(bench, &[&one, &two]).await;
    for way in WAYS {
        for method in ["GET", "POST"] {
            let start = Instant::now();
            let response = served.send(way, &request(method, "/silence")).await;
            assert_eq!(response.map(|response| response.status), Ok(504), "{way:?} {method}");
            assert!(start.elapsed() < Duration::from_secs(10), "{way:?} {method}: {:?}", start.elapsed());
            let counts = deliveries(&[&one, &two]);
            assert_eq!(counts.values().sum::<usize>(), 1, "{way:?} {method}: {counts:?}");
        }
    }
}

/// §15.6.4: an endpoint that refuses connections, and has seen nothing of the request, is not the client's concern. nginx
/// cannot read a body twice, except of the methods for which it tries another endpoint itself.
pub async fn refused_connections(bench: Bench) {
    let live = Recorder::start(failing).await;
    let mut dead = live.clone();
    dead.address = signpost_testing::free_address();
    let served = Served::new(bench, &[&live, &dead]).await;
    let nginx = served.bench.kind == "nginx";
    for way in WAYS {
        for method in METHODS {
            for _ in 0..3 {
                let response = served.send(way, &request(method, "/")).await.map(|response| response.status);
                let deliveries = deliveries(&[&live]).values().sum::<usize>();
                let unknown = way == Way::Http2 && ["DELETE", "PROPFIND", "FROB"].contains(&method);
                if nginx && (method == "PUT" || unknown) && deliveries == 0 {
                    assert_eq!(response, Ok(502), "{way:?} {method}");
                    continue;
                }
                assert_eq!((response, deliveries), (Ok(200), 1), "{way:?} {method}");
            }
        }
    }
}

/// One client's failed requests do not take an endpoint from the others.
pub async fn failures_disable_nothing(bench: Bench) {
    let (one, two) = (Recorder::start(failing).await, Recorder::start(failing).await);
    let served = Served::new(bench, &[&one, &two]).await;
    for path in ["/close", "/reset", "/half", "/garbage"] {
        for _ in 0..6 {
            let response = served.send(Way::Http, &request("GET", path)).await;
            if served.bench.kind == "haproxy" || path != "/garbage" {
                assert_eq!(response.map(|response| response.status), Ok(502), "{path}");
            }
        }
        deliveries(&[&one, &two]);
        for _ in 0..12 {
            let response = served.send(Way::Http, &request("GET", "/")).await;
            assert_eq!(response.map(|response| response.status), Ok(200), "after {path}");
        }
        assert!(!one.take().is_empty() && !two.take().is_empty(), "an endpoint gets no requests after {path}");
    }
}

/// §9.1 and §9.3: every method and its body get to the application unchanged. CONNECT and TRACE are about the router itself.
pub async fn methods(bench: Bench) {
    let application = Recorder::start(failing).await;
    let served = Served::new(bench, &[&application]).await;
    for way in WAYS {
        for method in METHODS {
            let sent = request(method, "/a?b=c");
            let response = served.send(way, &sent).await.unwrap_or_else(|error| panic!("{way:?} {method}: {error}"));
            let body = if method == "HEAD" { "" } else { "ok" };
            assert_eq!((response.status, response.body.as_str()), (200, body), "{way:?} {method}");
            let received = application.take().pop().expect("a request");
            assert_eq!((received.method.as_str(), received.target.as_str()), (method, "/a?b=c"), "{way:?}");
            assert_eq!(received.body, sent.body, "{way:?} {method}");
        }
        let response = served.send(way, &request("HEAD", "/")).await.expect("a response");
        assert_eq!(response.header("content-length"), Some("7"), "{way:?}");
        let response = served.send(way, &request("TRACE", "/")).await.expect("a response");
        assert_eq!(response.status, 405, "{way:?}");
    }
    application.take();
    let response = served.raw(&format!("CONNECT {HOST}:80 HTTP/1.1\r\nHost: {HOST}:80\r\n\r\n")).await;
    // nginx takes the target for a malformed path.
    assert!(matches!(response.map(|response| response.status), Ok(400 | 405)));
    assert!(application.take().is_empty());
}

/// §7.6.1: headers of one connection do not pass, and `Connection` removes nothing that the router sets.
pub async fn connection_headers(bench: Bench) {
    let application = Recorder::start(|_| {
        Answer::Raw(
            "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\nUpgrade: h2,h2c\r\nConnection: Upgrade\r\nX-Kept: yes\r\nContent-Length: 2\r\n\r\nok"
                .to_owned(),
        )
    })
    .await;
    let served = Served::new(bench, &[&application]).await;
    // A header of the client, and what the application gets of it.
    let cases: &[(&str, &str, &str, &[&str])] = &[
        ("Connection", "X-Forwarded-For", "x-forwarded-for", &["127.0.0.1"]),
        ("Connection", "close, X-Forwarded-Host, host", "x-forwarded-host", &[HOST]),
        ("Connection", "X-Forwarded-For, X-Custom", "connection", &[]),
        ("Connection", "keep-alive, host", "host", &[HOST]),
        ("Keep-Alive", "timeout=99", "keep-alive", &[]),
        ("Proxy-Connection", "keep-alive", "proxy-connection", &[]),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__", "http2-settings", &[]),
        ("TE", "trailers", "te", &["trailers"]),
        ("TE", "gzip, trailers;q=0.5", "te", &[]),
        ("TE", "gzip", "te", &[]),
        ("Upgrade", "h2c", "upgrade", &[]),
        ("X-Custom", "a", "x-custom", &["a"]),
        ("x_custom", "a", "x_custom", &["a"]),
    ];
    for way in [Way::Http, Way::Kept, Way::Https] {
        for (name, value, received, expected) in cases {
            let response = served.send(way, &Request::new("GET", "/").with(name, value)).await;
            let response = response.unwrap_or_else(|error| panic!("{way:?} {name}: {value}: {error}"));
            assert_eq!(response.status, 200, "{way:?} {name}: {value}");
            let request = application.take().pop().expect("a request");
            // An idle connection is kept by its default, or by an option (RFC 9112 §9.3).
            let all: Vec<&str> =
                request.all(received).into_iter().filter(|value| !["close", "keep-alive"].contains(value)).collect();
            assert_eq!(all, *expected, "{way:?} {name}: {value}: {request:?}");
        }
    }
    for way in WAYS {
        let response = served.send(way, &Request::new("GET", "/")).await.expect("a response");
        let gone = ["keep-alive", "proxy-connection", "upgrade"].map(|name| response.header(name).is_some());
        assert_eq!((gone, response.header("x-kept")), ([false; 3], Some("yes")), "{way:?}: {}", response.head);
    }
}

/// §7.8: only WebSocket leaves HTTP. Any other upgrade would be a way around the paths of Routes.
pub async fn upgrades(bench: Bench) {
    let application = Recorder::start(|request| match request.all("upgrade").as_slice() {
        [protocol] if protocol.eq_ignore_ascii_case("websocket") => Answer::Switch("websocket"),
        [] => Answer::Body("ok"),
        _ => Answer::Switch("h2c"),
    })
    .await;
    let served = Served::new(bench, &[&application]).await;
    for (connection, upgrade, status) in [
        ("Upgrade", "websocket", 101),
        ("keep-alive, Upgrade", "WebSocket", 101),
        ("Upgrade, HTTP2-Settings", "h2c", 200),
        ("keep-alive", "websocket", 200),
        ("Upgrade", "TLS/1.0", 200),
        ("Upgrade", "h2c, foo/1", 200),
    ] {
        let head = format!(
            "GET /chat HTTP/1.1\r\nHost: {HOST}\r\nConnection: {connection}\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nSec-WebSocket-Key: {WEBSOCKET_KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        let mut stream = TcpStream::connect(served.bench.http).await.expect("a connection");
        stream.write_all(head.as_bytes()).await.expect("it is read");
        let mut buffer = Vec::new();
        let head = read_head(&mut stream, &mut buffer).await.expect("a response");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{connection}, {upgrade}: {head}");
        if status == 101 {
            stream.write_all(b"hello").await.expect("it is read");
            let mut back = [0; 5];
            stream.read_exact(&mut back).await.expect("it comes back");
            assert_eq!(&back, b"hello");
        }
    }
    let mut stream = served.tls(b"http/1.1").await.expect("TLS");
    let head = format!(
        "GET /chat HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: {WEBSOCKET_KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("it is read");
    let head = read_head(&mut stream, &mut Vec::new()).await.expect("a response");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
}

/// §15.5.22: a response that requires an upgrade passes with the headers that name it.
pub async fn upgrade_required(bench: Bench) {
    let application = Recorder::start(|_| {
        Answer::Raw(
            "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nno"
                .to_owned(),
        )
    })
    .await;
    let served = Served::new(bench, &[&application]).await;
    let response = served.send(Way::Http, &Request::new("GET", "/")).await.expect("a response");
    assert_eq!((response.status, response.header("upgrade"), response.body.as_str()), (426, Some("websocket"), "no"));
    let response = served.send(Way::Http2, &Request::new("GET", "/")).await.expect("a response");
    assert_eq!(response.status, 426);
}

/// §15.2: interim responses do not end a request; §10.1.1: `100-continue` works, also if the application sends none.
pub async fn interim_responses(bench: Bench) {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n".to_owned();
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned();
    let application = Recorder::start(move |request| match request.target.as_str() {
        "/hints" => Answer::Slow(Duration::from_millis(200), vec![hints.clone(), hints.clone(), last.clone()]),
        _ => Answer::Body("ok"),
    })
    .await;
    let served = Served::new(bench, &[&application]).await;
    for way in WAYS {
        // nginx passes the bytes of interim responses, which is none over HTTP/2.
        if way == Way::Http2 && served.bench.kind == "nginx" {
            continue;
        }
        let response = served.send(way, &Request::new("GET", "/hints")).await;
        assert_eq!(response.map(|response| (response.status, response.body)), Ok((200, "ok".to_owned())), "{way:?}");
    }
    for way in [Way::Http, Way::Kept, Way::Https] {
        let mut request = request("POST", "/").with("Expect", "100-continue");
        request.body = vec![b'x'; 100_000];
        let response = served.send(way, &request).await;
        assert_eq!(response.map(|response| response.status), Ok(200), "{way:?}");
    }
}

/// Known wrong behavior of HAProxy: after an interim response, it does not see the application close. The request is delivered once, and
/// the client gets no final response.
pub async fn interim_response_and_close(bench: Bench) {
    let application = Recorder::start(|request| match request.target.as_str() {
        "/first" => Answer::Body("ok"),
        _ => Answer::Last("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n".to_owned()),
    })
    .await;
    let served = Served::new(bench, &[&application]).await;
    for way in [Way::Http, Way::Kept, Way::Https, Way::Http2] {
        let response = served.send(way, &request("POST", "/hints")).await;
        assert!(response.map_or(true, |response| response.status == 502), "{way:?}");
        assert_eq!(deliveries(&[&application]).values().sum::<usize>(), 1, "{way:?}");
    }
}
