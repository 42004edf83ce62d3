//! HTTP/2 of DNS over HTTPS without a connection: frames of a client, and the frames with which the server responds. The tests are in
//! the order of the sections of RFC 9113.

mod client;

use proptest::prelude::*;
use signpost_dns::transport::https::http2::PREFACE;

use client::*;

#[test]
fn section_3_4_the_preface_is_checked() {
    let unknown = b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n";
    assert_eq!(Server::new().receive_octets(unknown), (Vec::new(), false));
    let mut server = Server::new();
    assert_eq!(server.receive_octets(&PREFACE[..10]), (Vec::new(), true));
    assert_eq!(server.http.missing(&PREFACE[..10]), 0);
    assert_eq!(server.receive_octets(b"!"), (Vec::new(), false));
    for first in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, ACK, 0, &[]), get(1, 5)] {
        let output = Server::new().receive(&[PREFACE, &first].concat());
        assert_eq!(output, ["SETTINGS", "GOAWAY 0 PROTOCOL_ERROR"]);
    }
}

#[test]
fn section_4_frames() {
    let reserved = [&[0, 0, 8, PING, 0, 0x80, 0, 0, 0][..], b"reserved"].concat();
    check("the reserved bit", &[reserved], &["PING ACK reserved"]);
    check("an unknown type", &[frame(0xfa, 0xff, 7, b"?"), get(1, 5)], &["HEADERS 1 200", "DATA 1 5 END"]);
    check("too long", &[frame(0xfa, 0, 0, &[0; 16_385])], &["GOAWAY 0 FRAME_SIZE_ERROR"]);
    check("not compressed", &[frame(HEADERS, END | WHOLE, 1, &[0x80])], &["GOAWAY 0 COMPRESSION_ERROR"]);
    // A name of 4,000 octets, which two octets repeat.
    let large = [&[0x40, 0x7f, 0xa1, 0x1e][..], &[b'a'; 4_000], &[0], &[0x7e, 0].repeat(1_000)].concat();
    check("decoded size", &[frame(HEADERS, END | WHOLE, 1, &large)], &["GOAWAY 0 COMPRESSION_ERROR"]);
    let server = Server::open();
    assert_eq!(server.http.missing(&frame(DATA, 0, 1, &[0; 100])[..20]), 89);
}

/// The fields of a response, octet by octet.
#[test]
fn a_response() {
    let (output, _) = Server::open().receive_octets(&[get(1, 3), get(3, 3)].concat());
    let fields = [
        &b"\x88"[..],
        b"\x0f\x10\x17application/dns-message",
        b"\x0f\x0d\x013",
        b"\x0f\x09\x08no-store",
        b"\x0f\x12\x1dThu, 01 Jan 1970 00:00:00 GMT",
    ]
    .concat();
    let response =
        |stream, section: &[u8]| [frame(HEADERS, WHOLE, stream, section), frame(DATA, END, stream, b"xxx")].concat();
    // The first one sets the size of the dynamic table to 0.
    assert_eq!(output, [response(1, &[&b"\x20"[..], &fields].concat()), response(3, &fields)].concat());
}

#[test]
fn section_5_1_states_of_streams() {
    for idle in [frame(DATA, 0, 1, b"x"), frame(RST_STREAM, 0, 1, &[0; 4]), window_update(1, 1), window_update(2, 1)] {
        check("idle", &[idle], &["GOAWAY 0 PROTOCOL_ERROR"]);
    }
    check("idle, with a priority", &[frame(PRIORITY, 0, 9, &[0; 5]), get(1, 1)], &["HEADERS 1 200", "DATA 1 1 END"]);
    // Half-closed (remote): the response is blocked.
    let blocked = [settings(&[(4, 0)]), get(1, 5)].concat();
    for (more, expected) in [
        (frame(DATA, 0, 1, b"x"), "RST_STREAM 1 STREAM_CLOSED"),
        (get(1, 5), "RST_STREAM 1 STREAM_CLOSED"),
        (window_update(1, 5), "DATA 1 5 END"),
    ] {
        check("half-closed", &[blocked.clone(), more], &["SETTINGS ACK", "HEADERS 1 200", expected]);
    }
    for more in [frame(RST_STREAM, 0, 1, &[0; 4]), frame(PRIORITY, 0, 1, &[0; 5])] {
        check("half-closed", &[blocked.clone(), more], &["SETTINGS ACK", "HEADERS 1 200"]);
    }
    // Closed by both.
    for more in [frame(RST_STREAM, 0, 1, &[0; 4]), frame(PRIORITY, 0, 1, &[0; 5]), window_update(1, 9)] {
        check("closed", &[get(1, 5), more], &["HEADERS 1 200", "DATA 1 5 END"]);
    }
    let more = [frame(DATA, 0, 1, b"x"), frame(DATA, 0, 1, b"x")].concat();
    check("closed", &[get(1, 5), more], &["HEADERS 1 200", "DATA 1 5 END", "RST_STREAM 1 STREAM_CLOSED"]);
    // Closed by the server: frames can be on their way, trailers among them.
    let refused =
        frame(HEADERS, WHOLE, 1, &section(&[(":method", "PUT"), (":scheme", "https"), (":path", "/dns-query")]));
    let late = [frame(DATA, 0, 1, b"x"), frame(HEADERS, END | WHOLE, 1, &section(&[("a", "b")])), get(3, 1)].concat();
    let expected = ["HEADERS 1 405 END", "RST_STREAM 1 NO_ERROR", "HEADERS 3 200", "DATA 3 1 END"];
    check("reset", &[refused, late], &expected);
    // Closed by the client.
    check(
        "cancelled",
        &[post(1), frame(RST_STREAM, 0, 1, &[0; 4]), frame(DATA, 0, 1, b"x")],
        &["RST_STREAM 1 STREAM_CLOSED"],
    );
}

#[test]
fn section_5_1_identifiers_of_streams() {
    check("even", &[get(2, 5)], &["GOAWAY 0 PROTOCOL_ERROR"]);
    let answered = ["HEADERS 5 200", "DATA 5 5 END", "GOAWAY 5 PROTOCOL_ERROR"];
    check("smaller", &[get(5, 5), get(3, 5)], &answered);
    check("the same", &[get(5, 5), get(5, 5)], &["HEADERS 5 200", "DATA 5 5 END", "GOAWAY 5 STREAM_CLOSED"]);
    let many: Vec<_> = (0..129).map(|number| post(2 * number + 1)).collect();
    check("too many", &many, &["RST_STREAM 257 REFUSED_STREAM"]);
}

#[test]
fn section_6_1_data() {
    check("stream 0", &[frame(DATA, 0, 0, b"x")], &["GOAWAY 0 PROTOCOL_ERROR"]);
    check("more padding than payload", &[post(1), frame(DATA, PADDED, 1, &[3, 0, 0])], &["GOAWAY 1 PROTOCOL_ERROR"]);
    check("no padding", &[post(1), frame(DATA, PADDED, 1, &[])], &["GOAWAY 1 FRAME_SIZE_ERROR"]);
    let response = ["HEADERS 1 200", "DATA 1 5 END"];
    check("one frame", &[post(1), frame(DATA, END, 1, &[0, 5])], &response);
    check("padded", &[post(1), frame(DATA, END | PADDED, 1, &[2, 0, 5, 0, 0])], &response);
    check("two frames", &[post(1), frame(DATA, 0, 1, &[0]), frame(DATA, END, 1, &[5])], &response);
    check("an empty end", &[post(1), frame(DATA, 0, 1, &[0, 5]), frame(DATA, END, 1, &[])], &response);
    let padded = [frame(DATA, PADDED, 1, &[2, 0, 0, 0]), frame(DATA, END, 1, &[5])].concat();
    check("the padding is returned", &[post(1), padded], &["WINDOW_UPDATE 1 3", "HEADERS 1 200", "DATA 1 5 END"]);
    check("a body of GET", &[frame(HEADERS, WHOLE, 1, &get_section(5)), frame(DATA, END, 1, b"?")], &response);
    check(
        "interleaved",
        &[post(1), get(3, 1), frame(DATA, END, 1, &[0, 5])],
        &["HEADERS 3 200", "DATA 3 1 END", "HEADERS 1 200", "DATA 1 5 END"],
    );
}

#[test]
fn section_6_2_headers_and_6_10_continuation() {
    let get_section = get_section(5);
    check("stream 0", &[frame(HEADERS, END | WHOLE, 0, &get_section)], &["GOAWAY 0 PROTOCOL_ERROR"]);
    let response = ["HEADERS 1 200", "DATA 1 5 END"];
    let padded = [&[2_u8, 0, 0, 0, 0, 16][..], &get_section, &[0, 0]].concat();
    check("padded", &[frame(HEADERS, END | WHOLE | PADDED | WITH_PRIORITY, 1, &padded)], &response);
    check("no priority", &[frame(HEADERS, END | WHOLE | WITH_PRIORITY, 1, &[0; 4])], &["GOAWAY 0 FRAME_SIZE_ERROR"]);
    let (first, rest) = get_section.split_at(10);
    let (second, third) = rest.split_at(10);
    let parts =
        [frame(HEADERS, END, 1, first), frame(CONTINUATION, 0, 1, second), frame(CONTINUATION, WHOLE, 1, third)];
    check("in three parts", &parts, &response);
    for between in [frame(PING, 0, 0, &[0; 8]), frame(0xfa, 0, 1, b"?"), get(3, 5), frame(CONTINUATION, WHOLE, 3, rest)]
    {
        check("between the parts", &[parts[0].clone(), between], &["GOAWAY 0 PROTOCOL_ERROR"]);
    }
    check("without a beginning", &[frame(CONTINUATION, WHOLE, 1, rest)], &["GOAWAY 0 PROTOCOL_ERROR"]);
    check(
        "after an end",
        &[get(1, 5), frame(CONTINUATION, WHOLE, 1, &[])],
        &["HEADERS 1 200", "DATA 1 5 END", "GOAWAY 1 PROTOCOL_ERROR"],
    );
    let endless: Vec<_> = [frame(HEADERS, END, 1, first)]
        .into_iter()
        .chain((0..3).map(|_| frame(CONTINUATION, 0, 1, &[0; 16_384])))
        .collect();
    check("endless", &endless, &["GOAWAY 0 ENHANCE_YOUR_CALM"]);
}

#[test]
fn section_6_other_frames() {
    let (protocol, size, flow) =
        ("GOAWAY 0 PROTOCOL_ERROR", "GOAWAY 0 FRAME_SIZE_ERROR", "GOAWAY 0 FLOW_CONTROL_ERROR");
    for (what, frame, expected) in [
        ("6.3", frame(PRIORITY, 0, 0, &[0; 5]), &[protocol][..]),
        ("6.3", frame(PRIORITY, 0, 1, &[0; 4]), &[size]),
        ("6.4", frame(RST_STREAM, 0, 0, &[0; 4]), &[protocol]),
        ("6.4", frame(RST_STREAM, 0, 1, &[0; 5]), &[size]),
        ("6.5", frame(SETTINGS, ACK, 0, &[]), &[]),
        ("6.5", frame(SETTINGS, ACK, 0, &[0; 6]), &[size]),
        ("6.5", frame(SETTINGS, 0, 1, &[]), &[protocol]),
        ("6.5", frame(SETTINGS, 0, 0, &[0; 5]), &[size]),
        ("6.5.2", settings(&[(1, 0), (2, 1), (3, 7), (5, 1 << 14), (6, 1), (0xffff, 1)]), &["SETTINGS ACK"]),
        ("6.5.2", settings(&[(2, 2)]), &[protocol]),
        ("6.5.2", settings(&[(4, 1 << 31)]), &[flow]),
        ("6.5.2", settings(&[(5, (1 << 14) - 1)]), &[protocol]),
        ("6.5.2", settings(&[(5, 1 << 24)]), &[protocol]),
        ("6.6", frame(PUSH_PROMISE, WHOLE, 1, &[0, 0, 0, 2]), &[protocol]),
        ("6.7", frame(PING, 0, 0, b"12345678"), &["PING ACK 12345678"]),
        ("6.7", frame(PING, ACK, 0, b"12345678"), &[]),
        ("6.7", frame(PING, 0, 1, b"12345678"), &[protocol]),
        ("6.7", frame(PING, 0, 0, b"1234567"), &[size]),
        ("6.8", frame(GOAWAY, 0, 0, &[0; 8]), &[]),
        ("6.8", frame(GOAWAY, 0, 1, &[0; 8]), &[protocol]),
        ("6.8", frame(GOAWAY, 0, 0, &[0; 7]), &[size]),
        ("6.9", frame(WINDOW_UPDATE, 0, 0, &[0; 3]), &[size]),
        ("6.9", window_update(0, 0), &[protocol]),
        ("6.9.1", window_update(0, (1 << 31) - 65_536), &[]),
        ("6.9.1", window_update(0, (1 << 31) - 65_535), &[flow]),
    ] {
        check(what, &[frame], expected);
    }
    check("6.9", &[post(1), window_update(1, 0)], &["RST_STREAM 1 PROTOCOL_ERROR"]);
    check("6.9.1", &[post(1), window_update(1, (1 << 31) - 65_535)], &["RST_STREAM 1 FLOW_CONTROL_ERROR"]);
    let grown = [post(1), window_update(1, 1), settings(&[(4, (1 << 31) - 1)])];
    check("6.9.2", &grown, &["GOAWAY 1 FLOW_CONTROL_ERROR"]);
}

/// §6.8: the announcement, and the last frame.
#[test]
fn section_6_8_the_end_of_a_connection() {
    let mut output = Vec::new();
    assert!(!Server::new().http.announce_end(&mut output));
    Server::new().http.end(&mut output);
    assert!(output.is_empty(), "before the settings");
    let mut server = Server::open();
    assert!(server.http.announce_end(&mut output));
    assert_eq!(server.receive(&get(7, 5)), ["HEADERS 7 200", "DATA 7 5 END"]);
    server.http.end(&mut output);
    server.http.end(&mut output);
    assert_eq!(texts(&output), ["GOAWAY 2147483647 NO_ERROR", "GOAWAY 7 NO_ERROR"]);
}

/// §5.2, §6.9: responses wait for the windows of their stream and of the connection.
#[test]
fn section_6_9_flow_control_of_responses() {
    let mut server = Server::open();
    assert_eq!(server.receive(&settings(&[(4, 10)])), ["SETTINGS ACK"]);
    assert_eq!(server.receive(&get(1, 25)), ["HEADERS 1 200", "DATA 1 10"]);
    assert_eq!(server.http.waits(), (None, Some(server.moment)));
    // The window of a request counts for its response.
    let body = [post(3), window_update(3, 2), frame(DATA, END, 3, &[0, 13])].concat();
    assert_eq!(server.receive(&body), ["HEADERS 3 200", "DATA 3 12"]);
    assert_eq!(server.receive(&window_update(1, 5)), ["DATA 1 5"]);
    // A window that becomes negative: 10 - 10 - 8.
    assert_eq!(server.receive(&settings(&[(4, 2)])), ["SETTINGS ACK"]);
    assert_eq!(server.receive(&window_update(3, 8)), [""; 0]);
    assert_eq!(server.receive(&settings(&[(4, 12)])), ["SETTINGS ACK", "DATA 1 2", "DATA 3 1 END"]);
    assert_eq!(server.receive(&window_update(1, 100)), ["DATA 1 8 END"]);
    assert_eq!((server.http.waits(), server.http.held_octets()), ((None, None), (0, 0)));
    // The connection's window is 65,535 in total, of which 38 octets are used.
    assert_eq!(server.receive(&settings(&[(4, 1 << 20)])), ["SETTINGS ACK"]);
    let large = ["HEADERS 5 200", "DATA 5 16384", "DATA 5 16384", "DATA 5 16384", "DATA 5 16345"];
    assert_eq!(server.receive(&get(5, u16::MAX)), large);
    assert_eq!(server.receive(&window_update(0, 37)), ["DATA 5 37"]);
    assert_eq!(server.receive(&window_update(0, 100)), ["DATA 5 1 END"]);
    assert_eq!(server.receive(&get(7, 100)), ["HEADERS 7 200", "DATA 7 99"]);
    // HEAD has no body that could wait.
    let head = section(&[(":method", "HEAD"), (":scheme", "https"), (":path", &target(9))]);
    assert_eq!(server.receive(&frame(HEADERS, END | WHOLE, 9, &head)), ["HEADERS 9 200 END"]);
}

/// §8.7: while responses of a certain size wait, further requests are refused, also those that are open.
#[test]
fn section_8_7_refusal_of_requests_while_responses_wait() {
    let mut server = Server::open();
    server.receive(&[settings(&[(4, 0)]), post(1), post(3)].concat());
    assert_eq!(server.receive(&[get(5, 40_000), get(7, 40_000)].concat()), ["HEADERS 5 200", "HEADERS 7 200"]);
    assert_eq!(server.receive(&get(9, 1)), ["RST_STREAM 9 REFUSED_STREAM"]);
    assert_eq!(server.receive(&frame(DATA, END, 1, &[0, 1])), ["RST_STREAM 1 REFUSED_STREAM"]);
    assert_eq!(server.http.held_octets(), (0, 80_000));
    assert_eq!(server.receive(&frame(RST_STREAM, 0, 5, &[0; 4])), [""; 0]);
    assert_eq!(server.receive(&frame(DATA, END, 3, &[0, 1])), ["HEADERS 3 200"]);
    assert_eq!(server.http.held_octets(), (0, 40_001));
}

/// §5.2: received octets are returned to the client, and what open requests hold is bounded.
#[test]
fn section_6_9_flow_control_of_requests() {
    let mut server = Server::open();
    let part = |stream| frame(DATA, 0, stream, &[0; 16_384]);
    server.receive(&post(1));
    assert_eq!(server.receive(&part(1)), [""; 0]);
    assert_eq!(server.receive(&part(1)), [""; 0]);
    assert_eq!(server.receive(&part(1)), ["WINDOW_UPDATE 0 49152"]);
    assert_eq!(server.http.waits(), (Some(server.moment), None));
    // One octet more than a message can have.
    assert_eq!(server.receive(&part(1)), ["HEADERS 1 413 END", "RST_STREAM 1 NO_ERROR"]);
    // The queries that are not whole have 128 KiB.
    let mut server = Server::open();
    for stream in [1, 3] {
        server.receive(&[post(stream), part(stream).repeat(3)].concat());
    }
    server.receive(&[post(5), part(5).repeat(2)].concat());
    assert_eq!(server.http.held_octets().0, 128 * 1024);
    assert_eq!(server.receive(&part(5)), ["WINDOW_UPDATE 0 49152", "RST_STREAM 5 REFUSED_STREAM"]);
    assert_eq!(server.http.held_octets().0, 6 * 16_384);
}

#[test]
fn section_8_1_requests() {
    let response = ["HEADERS 1 200", "DATA 1 5 END"];
    let trailers = |fields: &[(&str, &str)], flags| frame(HEADERS, WHOLE | flags, 1, &section(fields));
    let body = frame(DATA, 0, 1, &[0, 5]);
    let malformed = ["RST_STREAM 1 PROTOCOL_ERROR"];
    check("trailers", &[post(1), body.clone(), trailers(&[("a", "b")], END)], &response);
    check("trailers and no end", &[post(1), body.clone(), trailers(&[("a", "b")], 0)], &malformed);
    check("pseudo-header fields in trailers", &[post(1), body.clone(), trailers(&[(":path", "/")], END)], &malformed);
    let end = frame(DATA, END, 1, &[]);
    check("content-length", &[post_with(1, &[("content-length", "2")]), body.clone(), end.clone()], &response);
    check("another content-length", &[post_with(1, &[("content-length", "3")]), body.clone(), end], &malformed);
    let statuses = |status: &str| [format!("HEADERS 1 {status} END"), "RST_STREAM 1 NO_ERROR".to_owned()];
    for (head, status) in
        [(post_with(1, &[("content-length", "65536")]), "413"), (post_with(1, &[("a", &"b".repeat(16_200))]), "431")]
    {
        assert_eq!(Server::open().receive(&head), statuses(status));
    }
    // No message, and an empty one.
    check("a body that is not a query", &[post(1), frame(DATA, END, 1, b"x")], &["HEADERS 1 400 END"]);
    check("no body", &[post(1), frame(DATA, END, 1, b"")], &["HEADERS 1 400 END"]);
}

/// §8.2, §8.3: a malformed request is reset, and the connection continues.
#[test]
fn section_8_2_malformed_requests() {
    let target = target(5);
    let (method, scheme, path) = ((":method", "GET"), (":scheme", "https"), (":path", &target[..]));
    let with = |field| vec![method, scheme, path, field];
    let malformed = [
        vec![method, scheme],
        vec![method, path],
        vec![scheme, path],
        vec![method, scheme, (":path", "")],
        vec![method, scheme, (":path", "dns-query")],
        vec![method, scheme, (":path", "*")],
        vec![(":method", "GET IT"), scheme, path],
        vec![(":method", "CONNECT"), scheme, path],
        vec![method, method, scheme, path],
        vec![method, scheme, path, path],
        vec![method, scheme, ("a", "b"), path],
        with((":status", "200")),
        with((":protocol", "websocket")),
        with(("Accept", "a")),
        with(("", "a")),
        with(("a b", "a")),
        with(("a:b", "a")),
        with(("\u{e4}", "a")),
        with(("a", "b\0")),
        with(("a", "b\r\nc: d")),
        with(("a", " b")),
        with(("a", "b\t")),
        with(("connection", "close")),
        with(("keep-alive", "1")),
        with(("proxy-connection", "close")),
        with(("transfer-encoding", "chunked")),
        with(("upgrade", "h2c")),
        with(("te", "gzip")),
        with(("content-length", "1")),
        with(("content-length", "+0")),
        with(("content-length", "")),
        vec![method, scheme, path, ("content-length", "0"), ("content-length", "1")],
    ];
    for fields in malformed {
        let input = [frame(HEADERS, END | WHOLE, 1, &section(&fields)), get(3, 1)];
        check(&format!("{fields:?}"), &input, &["RST_STREAM 1 PROTOCOL_ERROR", "HEADERS 3 200", "DATA 3 1 END"]);
    }
    for fields in [
        with((":authority", "a.example")),
        with(("te", "trailers")),
        with(("content-length", "0")),
        with(("accept", "")),
        with(("cookie", "a=b; c")),
        vec![path, (":scheme", "http"), method, ("x-\u{7e}", "\u{e4}")],
    ] {
        let input = [frame(HEADERS, END | WHOLE, 1, &section(&fields))];
        check(&format!("{fields:?}"), &input, &["HEADERS 1 200", "DATA 1 5 END"]);
    }
    for (fields, expected) in [
        (vec![(":method", "CONNECT"), (":authority", "a.example:443")], "HEADERS 1 404 END"),
        (vec![(":method", "OPTIONS"), scheme, (":path", "*")], "HEADERS 1 404 END"),
        (vec![(":method", "DELETE"), scheme, path], "HEADERS 1 405 END"),
    ] {
        check(expected, &[frame(HEADERS, END | WHOLE, 1, &section(&fields))], &[expected]);
    }
}

/// §10.5: frames without a request are bounded, and requests make room for more.
#[test]
fn section_10_5_floods() {
    let cancelled = |number: u32| [post(2 * number + 1), frame(RST_STREAM, 0, 2 * number + 1, &[0; 4])].concat();
    type Flood<'f> = (&'static str, &'f dyn Fn(u32) -> Vec<u8>);
    let floods: [Flood<'_>; 8] = [
        ("PING", &|_| frame(PING, 0, 0, &[0; 8])),
        ("PING ACK", &|_| frame(PING, ACK, 0, &[0; 8])),
        ("SETTINGS", &|_| settings(&[])),
        ("PRIORITY", &|_| frame(PRIORITY, 0, 1, &[0; 5])),
        ("an unknown type", &|_| frame(0xfa, 0, 0, b"?")),
        ("cancelled requests", &cancelled),
        ("malformed requests", &|number| frame(HEADERS, END | WHOLE, 2 * number + 1, &section(&[("a", "b")]))),
        ("empty frames", &|number| if number == 0 { post(1) } else { frame(DATA, 0, 1, &[]) }),
    ];
    for (what, flood) in floods {
        let mut server = Server::open();
        let ended = (0..300).position(|number| !server.receive_octets(&flood(number)).1);
        assert!(ended.is_some_and(|count| (250..=256).contains(&count)), "{what}: {ended:?}");
    }
    let mut server = Server::open();
    for number in 0..1_000 {
        let output = server.receive(&[get(2 * number + 1, 1), frame(PING, 0, 0, b"........")].concat());
        assert_eq!(output.len(), 3, "{number}");
    }
}

/// One of many frames: most are valid, and those of requests have increasing streams.
fn any_frame(index: u32, choice: u8, number: u16, flags: u8) -> Vec<u8> {
    let (next, former) = (2 * index + 1, 2 * (u32::from(number) % (index / 2 + 1)) + 1);
    match choice {
        0..60 => get(next, number),
        60..100 => post(next),
        100..160 => frame(DATA, flags & (END | PADDED), former, &[1, number as u8, 0]),
        160..190 => window_update(former, number.into()),
        190..200 => window_update(0, number.into()),
        200..220 => settings(&[(4, number.into())]),
        220..240 => frame(RST_STREAM, 0, former, &[0; 4]),
        240..250 => frame(HEADERS, flags, former, &get_section(number)),
        _ => frame(flags % 12, choice, former, &number.to_be_bytes()),
    }
}

proptest! {
    /// The division of the octets into reads changes nothing. The fuzz target `http2` holds the same property over more of them.
    #[test]
    fn reads_of_any_size_have_the_same_result(
        frames in prop::collection::vec(any::<(u8, u16, u8)>(), 0..60),
        sizes in prop::collection::vec(1..200usize, 1..10),
    ) {
        let frame = |(index, (choice, number, flags))| any_frame(index, choice, number, flags);
        let frames: Vec<_> = (0..).zip(frames).flat_map(frame).collect();
        let input = [PREFACE, &settings(&[]), &frames].concat();
        let (mut whole, mut divided) = (Server::new(), Server::new());
        let expected = whole.receive_octets(&input);
        let (mut output, mut continues, mut rest) = (Vec::new(), true, &input[..]);
        for size in sizes.iter().cycle() {
            if rest.is_empty() || !continues {
                break;
            }
            let (read, after) = rest.split_at(rest.len().min(*size));
            let (more, next) = divided.receive_octets(read);
            output.extend(more);
            (continues, rest) = (next, after);
        }
        texts(&output);
        prop_assert_eq!((output, continues), expected);
        prop_assert_eq!(divided.http.held_octets(), whole.http.held_octets());
    }
}
