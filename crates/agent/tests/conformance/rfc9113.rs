//! RFC 9113, HTTP/2, and RFC 8441, WebSocket over it.

use bytes::Bytes;

use crate::bench::Bench;
use crate::recorder::{Answer, HOST, Recorder, Request, Served, Way};

/// §8.3.1: "An intermediary that converts a request to HTTP/1.1 […] MUST create a Host header field" from `:authority`, and one that
/// disagrees is ignored or refused; §8.2.3: pieces of a cookie are one header.
pub async fn requests(bench: Bench) {
    let application = Recorder::start(|_| Answer::Body("ok")).await;
    let served = Served::new(bench, &[&application]).await;
    let cookies =
        Request::new("GET", "/").with("cookie", "a=b").with("cookie", "c=d").with("x-same", "1").with("x-same", "2");
    assert_eq!(served.send(Way::Http2, &cookies).await.expect("a response").status, 200);
    let request = application.take().pop().expect("a request");
    assert_eq!((request.all("cookie"), request.all("host")), (vec!["a=b; c=d"], vec![HOST]));
    assert_eq!(request.all("x-same").join(", ").replace(' ', ""), "1,2");
    for host in ["evil.example", "app.example", "app.example:8443", "evil.example,app.example"] {
        let response = served.send(Way::Http2, &Request::new("GET", "/").with("host", host)).await;
        let received = application.take();
        let routed = received.iter().filter(|request| request.target != "/first");
        for request in routed {
            let hosts = [request.all("host"), request.all("x-forwarded-host")].concat();
            assert!(hosts.iter().all(|host| host.split(':').next() == Some(HOST)), "{host}: {hosts:?} {response:?}");
        }
    }
}

/// §8.1: many requests share a connection, and one that fails does not disturb the others.
pub async fn streams(bench: Bench) {
    let application = Recorder::start(|request| match request.target.as_str() {
        "/close" => Answer::Close,
        _ => Answer::Body("ok"),
    })
    .await;
    let served = Served::new(bench, &[&application]).await;
    let (mut client, connection) =
        h2::client::handshake(served.tls(b"h2").await.expect("TLS")).await.expect("a connection");
    tokio::spawn(connection);
    let mut responses = Vec::new();
    for at in 0..60 {
        let path = if at % 3 == 0 { "/close" } else { "/" };
        let request = http::Request::builder().uri(format!("https://{HOST}{path}")).body(()).expect("a request");
        client = client.ready().await.expect("a stream is free");
        responses.push((path, client.send_request(request, true).expect("it is sent").0));
    }
    for (path, response) in responses {
        let status = response.await.map(|response| response.status().as_u16());
        assert_eq!(status.map_err(|error| format!("{error:?}")), Ok(if path == "/" { 200 } else { 502 }));
    }
    assert_eq!(application.take().len(), 60);
}

/// RFC 8441: a WebSocket is a stream of an HTTP/2 connection.
pub async fn websocket(bench: Bench) {
    let application = Recorder::start(|request| match request.all("upgrade").as_slice() {
        ["websocket"] => Answer::Switch("websocket"),
        _ => Answer::Body("ok"),
    })
    .await;
    let served = Served::new(bench, &[&application]).await;
    let (client, mut connection) =
        h2::client::handshake(served.tls(b"h2").await.expect("TLS")).await.expect("a connection");
    let mut ping = connection.ping_pong().expect("a ping");
    tokio::spawn(connection);
    // The settings of the server come before its answer.
    ping.ping(h2::Ping::opaque()).await.expect("an answer");
    assert!(client.is_extended_connect_protocol_enabled(), "the router offers it");
    let mut client = client.ready().await.expect("a stream is free");
    let mut request =
        http::Request::builder().method("CONNECT").uri(format!("https://{HOST}/chat")).body(()).expect("a request");
    request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    request.headers_mut().insert("sec-websocket-version", http::HeaderValue::from_static("13"));
    let (response, mut send) = client.send_request(request, false).expect("it is sent");
    let response = response.await.expect("a response");
    assert_eq!(response.status(), 200);
    send.send_data(Bytes::from_static(b"hello"), false).expect("it is sent");
    let mut body = response.into_body();
    assert_eq!(body.data().await.expect("data").expect("data"), Bytes::from_static(b"hello"));
}
