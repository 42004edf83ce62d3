//! RFC 9112, HTTP/1.1: the request line, and the host.

use crate::bench::Bench;
use crate::recorder::{Answer, HOST, Recorder, Request, Served, WAYS, deliveries};

async fn served(bench: Bench) -> (Served, Recorder) {
    let application = Recorder::start(|_| Answer::Body("ok")).await;
    (Served::new(bench, &[&application]).await, application)
}

/// §3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks a Host header field and
/// to any request message that contains more than one Host header field line or a Host header field with an invalid field value."
pub async fn host(bench: Bench) {
    let (served, application) = served(bench).await;
    let haproxy = served.bench.kind == "haproxy";
    let passes: &[&str] = &[
        "Host: app.example",
        "Host: APP.example",
        "Host: app.example:80",
        "Host: app.example:65000",
        "Host: app.example.",
        "host:app.example",
    ];
    for lines in passes {
        let response = served.raw(&format!("GET / HTTP/1.1\r\n{lines}\r\n\r\n")).await.expect(lines);
        assert_eq!(response.status, 200, "{lines}");
        let request = application.take().pop().expect("a request");
        let sent = lines.split_once(':').map_or("", |(_, host)| host.trim());
        // HAProxy puts a host name into lower case only if it removes the scheme's default port.
        assert_eq!(request.all("host"), [sent], "{lines}");
        assert_eq!(request.all("x-forwarded-host"), [sent], "{lines}");
    }
    let refused: &[(&str, &[u16])] = &[
        ("", &[400]),
        ("Host:", &[400]),
        ("Host: a.example,app.example", &[400]),
        ("Host: app.example, app.example", &[400]),
        ("Host: app.example,", &[400]),
        ("Host: app.example\r\nHost: b.example", &[400]),
        ("Host: b.example\r\nHost: app.example", &[400]),
        ("Host: app.example:80:80", &[400]),
        ("Host: app.example:http", &[400]),
        ("Host: app.example:", &[400]),
        ("Host: app.example/", &[400]),
        ("Host: app.example#", &[400]),
        ("Host: app.example?x", &[400]),
        ("Host: user@app.example", &[400]),
        ("Host: app.example\\", &[400]),
        ("Host: app.example%00", &[400]),
        ("Host: app.example\t.b", &[400]),
        ("Host: app example", &[400]),
        ("Host: \"app.example\"", &[400]),
        ("Host: <script>", &[400]),
        ("Host: app.éxample", &[400]),
        ("Host : app.example", &[400]),
        ("Host: [::1]", &[400, 404]),
        ("Host: [::1]:80", &[400, 404]),
        ("Host: b.example", &[404]),
        ("Host: *.example", &[400]),
    ];
    for (lines, statuses) in refused {
        let end = if lines.is_empty() { "" } else { "\r\n" };
        let response = served.raw(&format!("GET / HTTP/1.1\r\n{lines}{end}\r\n")).await.expect(lines);
        assert!(statuses.contains(&response.status), "{lines}: {response:?}");
        assert_eq!(deliveries(&[&application]).len(), 0, "{lines}");
    }
    // HAProxy itself takes two equal lines for one, before any of its rules. nginx does not.
    let equal = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nHost: {HOST}\r\n\r\n");
    let response = served.raw(&equal).await.expect("a response");
    assert_eq!(response.status, if haproxy { 200 } else { 400 });
    assert!(application.take().iter().all(|request| request.all("host") == [HOST]));
}

/// §3.2.2: "When an origin server receives a request with an absolute-form of request-target, the origin server MUST ignore the received
/// Host header field (if any) and instead use the host information of the request-target."
pub async fn absolute_form(bench: Bench) {
    let (served, application) = served(bench).await;
    for (target, expected) in [
        ("http://app.example/a?b=c", "/a?b=c"),
        ("http://app.example", "/"),
        ("http://app.example/", "/"),
        ("HTTP://app.example/a", "/a"),
        ("http://app.example/a//b/../c%20d", "/a//b/../c%20d"),
    ] {
        let response = served.raw(&format!("GET {target} HTTP/1.1\r\nHost: app.example\r\n\r\n")).await.expect(target);
        assert_eq!(response.status, 200, "{target}: {response:?}");
        let request = application.take().pop().expect("a request");
        assert_eq!((request.target.as_str(), request.all("host")), (expected, vec![HOST]), "{target}");
    }
    // A Host that disagrees is ignored, or the request is refused: the application of one host never sees another host.
    for (target, host) in [
        ("http://app.example/", "evil.example"),
        ("http://app.example/", "evil.example:80"),
        ("http://evil.example/", "app.example"),
        ("http://app.example:81/", "app.example:82"),
        ("http://user@app.example/", "app.example"),
    ] {
        let response = served.raw(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await.expect(target);
        let received = application.take();
        assert!(matches!(response.status, 200 | 400 | 404), "{target}, {host}: {response:?}");
        assert_eq!(received.len(), usize::from(response.status == 200), "{target}, {host}");
        for request in received {
            let hosts = [request.all("host"), request.all("x-forwarded-host")].concat();
            assert!(hosts.iter().all(|host| host.split(':').next() == Some(HOST)), "{target}, {host}: {hosts:?}");
        }
    }
}

/// §3.2.1, and docs/agent.md: a path is compared and passed octet by octet, without normalization.
pub async fn paths_as_sent(bench: Bench) {
    let (served, application) = served(bench).await;
    let paths = [
        "/",
        "//",
        "/a//b",
        "/a/./b",
        "/a/../b",
        "/../etc",
        "/a/..",
        "/%2e%2e/a",
        "/a%2fb",
        "/a%20b",
        "/caf%C3%A9",
        "/a;b=c",
        "/it's,(a)$b!*",
        "/a%00b",
        "/a?b=/../c",
        "/a?b=%20&c=d+e",
        "/a?",
        "/a|b",
    ];
    for way in WAYS {
        for path in paths {
            // The library has no such paths.
            if way == crate::recorder::Way::Http2 && path == "/a|b" {
                continue;
            }
            let response = served.send(way, &Request::new("GET", path)).await;
            let status = response.map(|response| response.status);
            // nginx refuses a path above the root, and one with a zero byte, before it looks for a server.
            if served.bench.kind == "nginx" && ["/../etc", "/%2e%2e/a", "/a%00b"].contains(&path) && status == Ok(400) {
                continue;
            }
            assert_eq!(status, Ok(200), "{way:?} {path}");
            let target = application.take().pop().map(|request| request.target);
            assert_eq!(target.as_deref(), Some(path), "{way:?}");
        }
    }
}

/// §3.2: a fragment does not belong to a target, and the parts of a router could differ about what it belongs to.
pub async fn fragments(bench: Bench) {
    let (served, application) = served(bench).await;
    for target in ["/a#b", "/#", "/a?b#c"] {
        let response = served.raw(&format!("GET {target} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await.expect(target);
        assert_eq!(response.status, 400, "{target}");
        assert!(application.take().is_empty(), "{target}");
    }
}

/// §6.3 and §11.2: a message whose length is not certain gets to no application.
pub async fn smuggling(bench: Bench) {
    let (served, application) = served(bench).await;
    for (headers, body) in [
        ("Content-Length: 4\r\nContent-Length: 5\r\n", "abcde"),
        ("Content-Length: +4\r\n", "abcd"),
        ("Content-Length: 4, 5\r\n", "abcde"),
        ("Content-Length: 0x4\r\n", "abcd"),
        ("Content-Length: -1\r\n", ""),
        ("Content-Length:\r\n", "abcd"),
        ("Transfer-Encoding: gzip, foo\r\n", "4\r\nabcd\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked, identity\r\n", "4\r\nabcd\r\n0\r\n\r\n"),
        ("Transfer-Encoding : chunked\r\n", "4\r\nabcd\r\n0\r\n\r\n"),
        ("X: a\r\n folded\r\nContent-Length : 4\r\n", "abcd"),
    ] {
        let bytes = format!("POST /a HTTP/1.1\r\nHost: {HOST}\r\n{headers}\r\n{body}");
        let response = served.raw(&bytes).await;
        let status = response.as_ref().map_or(0, |response| response.status);
        assert!(matches!(status, 0 | 400 | 422 | 501), "{headers:?}: {response:?}");
        assert!(application.take().is_empty(), "{headers:?}");
    }
    // §6.3: "If a message is received with both a Transfer-Encoding and a Content-Length header field, the Transfer-Encoding overrides the
    // Content-Length. […] An intermediary that chooses to forward the message MUST first remove the received Content-Length field".
    let both = format!(
        "POST /a HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"
    );
    let response = served.raw(&both).await.expect("a response");
    let received = application.take();
    assert!(matches!((response.status, received.len()), (200, 1) | (400, 0)), "{response:?}, {received:?}");
    assert!(received.iter().all(|request| request.body == b"abcd"), "{received:?}");
}

/// §6.3 for responses: one whose length is certain passes whole, any other is 502, on all ways, and the next request is served. nginx
/// passes also some of the others, with a length of its own.
pub async fn response_framing(bench: Bench) {
    let chunked = "3\r\nweb\r\n0\r\n\r\n";
    let many: String = (0..150).map(|at| format!("X-Header-{at}: value\r\n")).collect();
    let cases = [
        ("/length", "1.1", "Content-Length: 3\r\n".to_owned(), "web", &[200][..]),
        ("/chunked", "1.1", "Transfer-Encoding: chunked\r\n".to_owned(), chunked, &[200]),
        ("/to-the-end", "1.1", String::new(), "web", &[200]),
        ("/http10", "1.0", String::new(), "web", &[200]),
        ("/many-headers", "1.1", format!("{many}Content-Length: 3\r\n"), "web", &[200]),
        ("/two-lengths", "1.1", "Content-Length: 3\r\nContent-Length: 4\r\n".to_owned(), "web", &[502]),
        ("/bad-length", "1.1", "Content-Length: three\r\n".to_owned(), "web", &[502]),
        ("/equal-lengths", "1.1", "Content-Length: 3\r\nContent-Length: 3\r\n".to_owned(), "web", &[200, 502]),
        ("/both", "1.1", "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n".to_owned(), chunked, &[200, 502]),
        // Users of OpenShift's router met this one with HAProxy 2.6 (openshift/router#625).
        (
            "/chunked-twice",
            "1.1",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n".to_owned(),
            chunked,
            &[502],
        ),
        ("/gzip-chunked", "1.1", "Transfer-Encoding: gzip, chunked\r\n".to_owned(), chunked, &[502]),
    ];
    let answers: Vec<(&str, String)> = cases
        .iter()
        .map(|(path, version, headers, body, _)| (*path, format!("HTTP/{version} 200 OK\r\n{headers}\r\n{body}")))
        .collect();
    let application = Recorder::start(move |request| {
        let answer = answers.iter().find(|(path, _)| *path == request.target);
        answer.map_or(Answer::Body("ok"), |(_, text)| Answer::Last(text.clone()))
    })
    .await;
    let served = Served::new(bench, &[&application]).await;
    let nginx = served.bench.kind == "nginx";
    for way in WAYS {
        for (path, _, _, _, statuses) in &cases {
            let response = served.send(way, &Request::new("GET", path)).await;
            let count = deliveries(&[&application]).values().sum::<usize>();
            assert_eq!(count, 1, "{way:?} {path}");
            // Of two lengths, nginx takes the last, and the client sees that the response is not whole.
            if nginx && *path == "/two-lengths" && response.is_err() {
                continue;
            }
            let response = response.unwrap_or_else(|error| panic!("{way:?} {path}: {error}"));
            assert!(nginx || statuses.contains(&response.status), "{way:?} {path}: {response:?}");
            assert!(response.status == 502 || response.body == "web", "{way:?} {path}: {response:?}");
        }
    }
}
