//! RFC 7873: cookies.

use signpost_dns::nameserver::cookie::Cookies;
use signpost_dns::nameserver::{Settings, Transport};

use crate::conformance::stage::{Stage, lines, opt, query, query_with_option, well_formed};

pub const COOKIE: u16 = 10;
const CLIENT: &[u8] = b"client-1";

/// A stage that answers cookies made with this secret.
pub fn stage(text: &str) -> Stage {
    let mut stage = Stage::with("z.test.", text);
    stage.settings.cookies = Some(cookies());
    stage
}

pub fn cookies() -> Cookies {
    let first = "e5e973e5a6b2a43f48e7dc849e37bfcf".parse().expect("a secret");
    Cookies { first, others: Box::default(), required: false }
}

/// The head line of the response and its cookie.
fn ask(stage: &Stage, message: &[u8]) -> (String, Option<Vec<u8>>) {
    let response = stage.respond(message).expect("a response");
    well_formed(message, &response);
    let cookie = opt(&response).and_then(|(_, _, options)| options.into_iter().find(|option| option.0 == COOKIE));
    (lines(&response)[0].clone(), cookie.map(|(_, data)| data))
}

/// Queries `a.z.test. A` with this cookie.
fn ask_with(stage: &Stage, cookie: &[u8]) -> (String, Option<Vec<u8>>) {
    ask(stage, &query_with_option("a.z.test. A", COOKIE, cookie))
}

fn is_full(cookie: &Option<Vec<u8>>, client: &[u8]) -> bool {
    cookie.as_ref().is_some_and(|cookie| cookie.len() == 24 && cookie[..8] == *client)
}

/// A query about the cookie alone.
fn without_question(cookie: &[u8]) -> Vec<u8> {
    let message = query_with_option(". A", COOKIE, cookie);
    [&message[..5], &[0], &message[6..12], &message[17..]].concat()
}

#[test]
fn section_5_2_1_no_cookie_for_none() {
    let stage = stage("* A 192.0.2.1");
    for question in ["a.z.test. A", "a.z.test. A noedns", "a.example. A"] {
        let response = stage.ask(question);
        let options = opt(&response).map(|(_, _, options)| options).unwrap_or_default();
        assert!(options.iter().all(|(code, _)| *code != COOKIE), "{question}");
    }
    assert_eq!(stage.stats.counts().cookies, [0; 3]);
}

#[test]
fn section_5_2_2_malformed() {
    let stage = stage("* A 192.0.2.1");
    for length in [0, 1, 7, 9, 15, 41] {
        assert_eq!(ask_with(&stage, &vec![b'c'; length]), ("FORMERR".into(), None), "{length}");
        assert_eq!(ask(&stage, &without_question(&vec![b'c'; length])), ("FORMERR".into(), None), "{length}");
    }
    for length in [8, 16, 24, 40] {
        let (head, cookie) = ask_with(&stage, &vec![b'c'; length]);
        assert!(head == "NOERROR aa" && is_full(&cookie, b"cccccccc"), "{length}");
    }
}

/// §5.2: "all but the first (closest to the DNS header) MUST be ignored".
#[test]
fn section_5_2_the_first_of_several() {
    let stage = stage("* A 192.0.2.1");
    for second in [&b"client-2"[..], b"bad"] {
        let mut message = query_with_option("a.z.test. A", COOKIE, CLIENT);
        let at = message.len() - 14;
        message[at..at + 2].copy_from_slice(&(16 + second.len() as u16).to_be_bytes());
        message.extend_from_slice(&[0, 10, 0, second.len() as u8]);
        message.extend_from_slice(second);
        let (head, cookie) = ask(&stage, &message);
        assert!(head == "NOERROR aa" && is_full(&cookie, CLIENT), "{second:?}");
    }
}

#[test]
fn section_5_2_3_a_client_cookie_alone_gets_a_full_one() {
    let stage = stage("* A 192.0.2.1");
    let (head, cookie) = ask_with(&stage, CLIENT);
    assert_eq!(head, "NOERROR aa");
    assert!(is_full(&cookie, CLIENT));
    assert_eq!(stage.stats.counts().cookies, [1, 0, 0]);
}

#[test]
fn section_5_2_4_a_bad_server_cookie_gets_a_fresh_one() {
    let mut stage = stage("* A 192.0.2.1");
    let good = ask_with(&stage, CLIENT).1.expect("a cookie");
    let mut bad = good.clone();
    bad[23] ^= 1;
    assert_eq!(ask_with(&stage, &bad), ("NOERROR aa".into(), Some(good.clone())));
    stage.peer.address = "192.0.2.54:4000".parse().expect("an address");
    let (head, cookie) = ask_with(&stage, &good);
    assert_eq!(head, "NOERROR aa");
    assert!(is_full(&cookie, CLIENT) && cookie != Some(good), "another client's is bad");
    assert_eq!(stage.stats.counts().cookies, [1, 0, 2]);
}

#[test]
fn section_5_2_5_a_good_cookie_comes_back() {
    let stage = stage("* A 192.0.2.1");
    let good = ask_with(&stage, CLIENT).1.expect("a cookie");
    assert_eq!(ask_with(&stage, &good), ("NOERROR aa".into(), Some(good)));
    assert_eq!(stage.stats.counts().cookies, [1, 1, 0]);
}

#[test]
fn every_answer_has_the_cookie() {
    let mut stage = stage("x A 192.0.2.1\n sub NS ns.elsewhere.");
    for (question, rcode) in [
        ("x.z.test. A", "NOERROR aa"),
        ("x.z.test. AAAA", "NOERROR aa"),
        ("no.z.test. A", "NXDOMAIN aa"),
        ("a.sub.z.test. A", "NOERROR"),
        ("a.example. A", "REFUSED"),
        ("x.z.test. AXFR", "REFUSED"),
        ("x.z.test. OPT", "FORMERR"),
        ("version.bind. TXT class=CH", "REFUSED"),
    ] {
        for transport in [Transport::Udp, Transport::Tcp] {
            stage.peer.transport = transport;
            let (head, cookie) = ask(&stage, &query_with_option(question, COOKIE, CLIENT));
            assert!(head == rcode && is_full(&cookie, CLIENT), "{question} {head} {cookie:?}");
        }
    }
}

/// §5.2.3: BADCOOKIE, or discarding, are the operator's choice; §5.2 leaves streams out of it.
#[test]
fn section_5_2_3_badcookie_only_where_cookies_are_required() {
    let mut stage = stage("* A 192.0.2.1");
    stage.settings.cookies = Some(Cookies { required: true, ..cookies() });
    let message = query_with_option("a.z.test. A", COOKIE, CLIENT);
    let response = stage.respond(&message).expect("a response");
    assert_eq!(lines(&response), ["BADCOOKIE"], "and no records");
    let good = ask(&stage, &message).1.expect("a fresh cookie");
    assert!(is_full(&Some(good.clone()), CLIENT));
    assert_eq!(ask_with(&stage, &good), ("NOERROR aa".into(), Some(good.clone())), "the client uses this one");
    let mut bad = good;
    bad[12] ^= 1;
    assert_eq!(ask_with(&stage, &bad).0, "BADCOOKIE");
    // A client without cookies gets an answer.
    stage.check("a.z.test. A", "NOERROR aa\nan a.z.test. A 192.0.2.1");
    // Other errors are reported first.
    assert_eq!(ask_with(&stage, b"bad").0, "FORMERR");
    for transport in [Transport::Tcp, Transport::Tls, Transport::Https, Transport::Quic] {
        stage.peer.transport = transport;
        assert_eq!(ask(&stage, &message).0, "NOERROR aa", "{transport:?}");
    }
}

#[test]
fn section_5_4_a_query_about_the_cookie_alone() {
    let mut stage = stage("* A 192.0.2.1");
    let (head, cookie) = ask(&stage, &without_question(CLIENT));
    assert_eq!(head, "NOERROR");
    let good = cookie.expect("a cookie");
    assert!(is_full(&Some(good.clone()), CLIENT));
    assert_eq!(ask(&stage, &without_question(&good)), ("NOERROR".into(), Some(good.clone())));
    let mut bad = good.clone();
    bad[16] ^= 1;
    assert_eq!(ask(&stage, &without_question(&bad)), ("BADCOOKIE".into(), Some(good.clone())));
    stage.settings.cookies = Some(Cookies { required: true, ..cookies() });
    assert_eq!(ask(&stage, &without_question(CLIENT)), ("NOERROR".into(), Some(good)));
    // Without the option it stays malformed.
    let mut none = query(". A");
    none[5] = 0;
    none.drain(12..17);
    assert_eq!(ask(&stage, &none), ("FORMERR".into(), None));
}

#[test]
fn cookies_that_are_off_are_not_answered() {
    let mut stage = stage("* A 192.0.2.1");
    let good = ask_with(&stage, CLIENT).1.expect("a cookie");
    stage.settings = Settings::default();
    // Then the option is not known, so there is no length that it must not have.
    for cookie in [CLIENT, &good, b"", b"bad", &[b'c'; 41]] {
        assert_eq!(ask_with(&stage, cookie), ("NOERROR aa".into(), None), "{cookie:?}");
        assert_eq!(ask(&stage, &without_question(cookie)), ("FORMERR".into(), None), "{cookie:?}");
    }
}

/// The room of the cookie is kept free before answers are written, in the smallest message too.
#[test]
fn the_cookie_stays_within_the_size_and_when_the_answer_is_cut() {
    let many = |count: u8| (0..count).map(|last| format!("* A 192.0.2.{last}\n")).collect::<String>();
    // 26 octets of header and question, 39 of OPT with cookie, 16 an address: 27 fit into 512 octets, 28 do not.
    for (count, cut) in [(27, false), (28, true)] {
        let stage = stage(&many(count));
        let message = query_with_option("a.z.test. A size=512", COOKIE, CLIENT);
        let response = stage.respond(&message).expect("a response");
        assert!(response.len() <= 512, "{} octets", response.len());
        assert_eq!(lines(&response)[0], if cut { "NOERROR aa tc" } else { "NOERROR aa" }, "{count} addresses");
        assert!(is_full(&ask(&stage, &message).1, CLIENT));
    }
    // With an identifier as long as can be, below a name as long as can be.
    let mut stage = stage("* TXT x");
    stage.settings.nsid = Some([b'n'; 200].into());
    let label = "l".repeat(60);
    let question = format!("{label}.{label}.{label}.{label}.z.test. TXT size=512");
    let mut message = query_with_option(&question, COOKIE, CLIENT);
    let at = message.len() - 14;
    message[at..at + 2].copy_from_slice(&16u16.to_be_bytes());
    message.extend_from_slice(&[0, 3, 0, 0]);
    let (head, cookie) = ask(&stage, &message);
    assert!(head == "NOERROR aa" && is_full(&cookie, CLIENT), "{head}");
}
