//! Headers by which an application learns about the client, and those that only the router may set.

use crate::bench::Bench;
use crate::recorder::{Answer, HOST, Recorder, Request, Served, WAYS, Way};

/// Headers that no client may choose.
const FORGED: [(&str, &str); 37] = [
    ("X-Forwarded-For", "192.0.2.99"),
    ("x-forwarded-for", "192.0.2.98, 192.0.2.97"),
    ("X-Forwarded-Proto", "gopher"),
    ("X-Forwarded-Host", "evil.example"),
    ("X-Forwarded-Port", "4711"),
    ("X-Forwarded-Server", "evil.example"),
    ("X-Forwarded-Ssl", "evil"),
    ("X-Forwarded-Prefix", "/evil"),
    ("X-Real-IP", "192.0.2.99"),
    ("X-Client-IP", "192.0.2.99"),
    ("X-Cluster-Client-IP", "192.0.2.99"),
    ("X_Cluster_Client_IP", "192.0.2.99"),
    ("Client-IP", "192.0.2.99"),
    ("True-Client-IP", "192.0.2.99"),
    ("True_Client_IP", "192.0.2.99"),
    ("X-Scheme", "gopher"),
    ("Forwarded", "for=192.0.2.99;host=evil.example"),
    ("Proxy", "http://evil.example"),
    ("X-Original-URL", "/evil"),
    ("X-Rewrite-URL", "/evil"),
    ("X_Forwarded_For", "192.0.2.99"),
    ("X-Forwarded_For", "192.0.2.99"),
    ("X_Forwarded-For", "192.0.2.99"),
    ("X_Forwarded_Proto", "gopher"),
    ("X_Forwarded_Host", "evil.example"),
    ("X_Forwarded_Port", "4711"),
    ("X_Forwarded_Server", "evil.example"),
    ("X_Forwarded_Ssl", "evil"),
    ("X_Forwarded_Prefix", "/evil"),
    ("X_Real_IP", "192.0.2.99"),
    ("X_Original_URL", "/evil"),
    ("X_Rewrite_URL", "/evil"),
    ("Signpost-Route", "evil"),
    ("Signpost-Backend", "evil"),
    ("Signpost-Trace", ""),
    ("Signpost-Probe", ""),
    ("Signpost_Trace", "evil"),
];

/// Returns the headers as an application reads them, as CGI variables: `-` and `_` are the same.
fn known(request: &crate::recorder::Received) -> Vec<(String, String)> {
    let names = [
        "client-ip",
        "forwarded",
        "proxy",
        "signpost",
        "true-client-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-original-url",
        "x-real-ip",
        "x-rewrite-url",
        "x-scheme",
    ];
    let named = request.headers.iter().map(|(name, value)| (name.replace('_', "-"), value.clone()));
    let mut known: Vec<_> = named
        .filter(|(name, _)| name.starts_with("x-forwarded") || names.iter().any(|one| name.starts_with(one)))
        .collect();
    known.sort();
    known
}

/// The headers about a client are the router's own, each once, regardless of the client's headers.
pub async fn forged(bench: Bench) {
    let application = Recorder::start(|_| Answer::Body("ok")).await;
    let served = Served::new(bench, &[&application]).await;
    for way in WAYS {
        let (proto, port) = match way {
            Way::Http | Way::Kept => ("http", served.bench.http.port()),
            Way::Https | Way::Http2 => ("https", served.bench.https.port()),
        };
        let expected = [
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-host", HOST),
            ("x-forwarded-port", &port.to_string()),
            ("x-forwarded-proto", proto),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut request = Request::new("GET", "/");
        for (name, value) in FORGED {
            let single = Request::new("GET", "/").with(name, value);
            request.headers.extend(single.headers.clone());
            assert_eq!(served.send(way, &single).await.map(|response| response.status), Ok(200), "{way:?} {name}");
            let received = application.take().pop().expect("a request");
            assert_eq!(known(&received), expected, "{way:?} {name}");
        }
        assert_eq!(served.send(way, &request).await.map(|response| response.status), Ok(200), "{way:?}");
        assert_eq!(known(&application.take().pop().expect("a request")), expected, "{way:?}");
    }
}

/// The headers of a proxy in front of this one are kept, and its address is appended.
pub async fn trusted(bench: Bench) {
    let bench = bench.with(|settings| {
        settings.trusted_proxies =
            vec!["192.0.2.0/24".parse().expect("a network"), "127.0.0.0/8".parse().expect("a network")];
    });
    let application = Recorder::start(|_| Answer::Body("ok")).await;
    let served = Served::new(bench, &[&application]).await;
    for way in WAYS {
        let request = Request::new("GET", "/")
            .with("X-Forwarded-For", "192.0.2.99, 192.0.2.98")
            .with("X-Forwarded-Proto", "https")
            .with("X-Forwarded-Host", "outer.example")
            .with("X-Forwarded-Port", "8443")
            .with("Forwarded", "for=192.0.2.99")
            .with("X_Forwarded_For", "192.0.2.97")
            .with("X-Real-IP", "192.0.2.97");
        assert_eq!(served.send(way, &request).await.map(|response| response.status), Ok(200), "{way:?}");
        let expected = [
            ("forwarded", "for=192.0.2.99"),
            ("x-forwarded-for", "192.0.2.99, 192.0.2.98, 127.0.0.1"),
            ("x-forwarded-host", "outer.example"),
            ("x-forwarded-port", "8443"),
            ("x-forwarded-proto", "https"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(known(&application.take().pop().expect("a request")), expected, "{way:?}");
        // Two lines are one list (RFC 9110 §5.3).
        let request =
            Request::new("GET", "/").with("X-Forwarded-For", "192.0.2.99").with("X-Forwarded-For", "192.0.2.98");
        assert_eq!(served.send(way, &request).await.map(|response| response.status), Ok(200), "{way:?}");
        let received = application.take().pop().expect("a request");
        assert_eq!(received.all("x-forwarded-for").join(", "), "192.0.2.99, 192.0.2.98, 127.0.0.1", "{way:?}");
        // Missing headers are set.
        assert_eq!(served.send(way, &Request::new("GET", "/")).await.map(|response| response.status), Ok(200));
        let received = application.take().pop().expect("a request");
        assert_eq!(
            (received.all("x-forwarded-for"), received.all("x-forwarded-host")),
            (vec!["127.0.0.1"], vec![HOST])
        );
    }
}

/// An application cannot speak for the router, and its other headers pass, also those that one proxy or the other obeys.
pub async fn responses(bench: Bench) {
    let headers = [
        ("x-accel-redirect", "/etc/passwd"),
        ("x-accel-buffering", "no"),
        ("x-accel-limit-rate", "1"),
        ("x-accel-expires", "1"),
        ("x-accel-charset", "koi8-r"),
        ("server", "app/1"),
        ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ("x_under_score", "yes"),
        ("location", "http://elsewhere.example/x"),
        ("refresh", "5; url=http://elsewhere.example/x"),
        ("content-type", "text/html"),
    ];
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let text = format!(
        "HTTP/1.1 201 Created\r\n{lines}Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nSignpost-Route: evil\r\nSignpost-Backend: evil\r\nContent-Length: 2\r\n\r\nok"
    );
    let application = Recorder::start(move |_| Answer::Raw(text.clone())).await;
    // The first request of a connection expects 200.
    let served = Served::new(bench, &[&application]).await;
    for way in [Way::Http, Way::Https, Way::Http2] {
        let response = served.send(way, &Request::new("GET", "/")).await.expect("a response");
        assert_eq!((response.status, response.body.as_str()), (201, "ok"), "{way:?}");
        for (name, value) in headers {
            assert_eq!(
                response.header(name),
                Some(value.to_ascii_lowercase().as_str()),
                "{way:?} {name}: {}",
                response.head
            );
        }
        assert_eq!(response.head.matches("set-cookie: ").count(), 2, "{way:?}: {}", response.head);
        assert!(!response.head.contains("evil"), "{way:?}: {}", response.head);
    }
}
