//! Arbitrary octets as the words of a proxy about its traffic. After the first octet, they are a line of nginx about a request, a line
//! for the access log, or HAProxy's counters. A client chooses parts of the second one. The properties: no panic; a parsed line is
//! within its bounds, and parses alike behind another head; a line of the log is one JSON object with the texts of the request, word for
//! word; and counters that are read twice add nothing the second time.

#![no_main]

use futures::FutureExt as _;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use signpost_agent::traffic::Counters;
use signpost_agent::traffic::access_log::logged;
use signpost_agent::traffic::haproxy::HaproxyMeter;
use signpost_agent::traffic::nginx::{Entry, LINE_BYTES_MAX};

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((b'n', line)) => nginx(line),
        Some((b'a', line)) => access_log(line),
        Some((b'h', response)) => haproxy(response),
        _ => {}
    }
});

fn nginx(line: &[u8]) {
    let Some(entry) = Entry::parse(line) else { return };
    let is_identifier = entry.route.len() == 16 && entry.route.bytes().all(|octet| octet.is_ascii_hexdigit());
    assert!(entry.route.is_empty() || is_identifier);
    assert!(entry.status <= 999 && entry.bytes_in < 1 << 56 && entry.bytes_out < 1 << 56);
    for (address, time) in &entry.attempts {
        assert!(!address.is_empty() && !address.contains([',', ' ', '|']));
        assert!(time.is_none_or(|time| time.is_finite() && time >= 0.0));
    }
    let behind = [b"<190>Jan  1 00:00:00 x: ", line].concat();
    assert!(behind.len() > LINE_BYTES_MAX || Entry::parse(&behind) == Some(entry));
}

fn access_log(line: &[u8]) {
    let Some(text) = logged(line, Timestamp::UNIX_EPOCH, |route| (!route.is_empty()).then(|| route.to_owned())) else {
        return;
    };
    assert!(!text.contains(|character: char| character < ' '));
    let written: Value = serde_json::from_str(&text).expect("every line is JSON");
    let fields = written.as_object().expect("every line is an object");
    assert!(fields.values().all(|value| !value.is_array() && !value.is_object()));
    let read: Value = serde_json::from_str(&String::from_utf8_lossy(line)).expect("it was read as JSON");
    for (name, of_proxy) in
        [("method", "method"), ("host", "host"), ("path", "path"), ("userAgent", "agent"), ("requestId", "id")]
    {
        assert_eq!(written[name].as_str(), Some(read[of_proxy].as_str().unwrap_or_default()), "{text}");
    }
}

fn haproxy(response: &[u8]) {
    let meter = HaproxyMeter::new("".into(), "".into());
    let backends = [("h0", "a"), ("h1", "b"), ("t0", "c")].map(|(one, route)| (one.to_owned(), route.to_owned()));
    meter.started("7".to_owned(), backends.into_iter());
    let read = || {
        let response = [&b"Pid: 7\n# pxname,svname,scur,stot,bin,bout,hrsp_2xx,hrsp_5xx\n"[..], response].concat();
        let _ = meter.absorb(&response[..], None, true).now_or_never().expect("all is there");
        meter.take().routes
    };
    read();
    // Entries of a table expire in HAProxy, so that their numbers may become lower.
    let has_table = response.windows(4).any(|octets| octets == b"key=");
    for (route, delta) in read() {
        assert!(has_table || ["a", "b", "c"].contains(&&*route) && delta.counters == Counters::default());
    }
}
