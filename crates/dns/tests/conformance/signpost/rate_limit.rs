//! Response rate limiting: which answers count together, which are sent instead, and which clients are not limited.

use signpost_dns::nameserver::rrl::RateLimit;
use signpost_dns::nameserver::{Limiter, Transport};

use crate::conformance::rfc7873::{COOKIE, cookies};
use crate::conformance::stage::{Stage, lines, opt, query, query_with_option, zone};

/// A stage that lets `per_second` answers through in a second.
fn stage(per_second: u32, slip: u16) -> Stage {
    let text =
        "* A 192.0.2.1\n * TXT x\n w CNAME y\n y A 192.0.2.2\n *.c CNAME y\n *.out CNAME away.example.\n d DNAME y
                e TXT x\n sub NS ns.sub\n ns.sub A 192.0.2.3\n other NS ns.sub";
    let mut stage = Stage::new([zone("z.test.", text), zone("n.test.", "a A 192.0.2.1\n b A 192.0.2.1")]);
    stage.settings.rate_limit = Some(RateLimit { per_second, window: 1, slip, ..RateLimit::default() });
    stage.limiter = Some(Limiter::new([1, 2]));
    stage
}

/// Whether each of `questions` is answered.
fn answered(stage: &Stage, questions: &[&str]) -> Vec<bool> {
    questions.iter().map(|question| stage.respond(&query(question)).is_some()).collect()
}

#[test]
fn one_kind_of_answer_is_counted_together() {
    // The first of each row uses up the token of its kind; the second is of the same kind, the third is not.
    for [first, same, another] in [
        ["a.z.test. A", "b.c2.z.test. A", "y.z.test. A"],
        ["a.z.test. A", "b.z.test. TXT", "a.n.test. A"],
        ["a.n.test. A", "A.n.TEST. A", "b.n.test. A"],
        ["a.z.test. AAAA", "y.z.test. MX", "a.z.test. A"],
        ["x.n.test. A", "y.n.test. TXT", "a.n.test. TXT"],
        ["a.c.z.test. A", "b.c.z.test. A", "w.z.test. A"],
        ["a.out.z.test. A", "b.out.z.test. A", "a.z.test. A"],
        ["a.d.z.test. A", "b.d.z.test. TXT", "y.z.test. A"],
        ["a.sub.z.test. A", "b.sub.z.test. MX", "a.other.z.test. A"],
        ["a.example. A", "b.example.org. TXT", "a.z.test. A"],
        ["a.z.test. AXFR", "a.z.test. OPT", "a.z.test. A"],
    ] {
        let stage = stage(1, 0);
        assert_eq!(answered(&stage, &[first, same, another]), [true, false, true], "{first}, {same}, {another}");
    }
}

#[test]
fn over_the_limit_a_small_response_leads_to_a_stream() {
    let stage = stage(1, 1);
    for (question, expected) in [
        ("a.z.test. A", "NOERROR tc"),
        ("a.z.test. AAAA rd", "NOERROR tc rd"),
        ("x.n.test. A", "NOERROR tc"),
        ("a.sub.z.test. A", "NOERROR tc"),
    ] {
        stage.ask(question);
        let small = stage.ask(question);
        assert_eq!(lines(&small), [expected], "{question}");
        assert_eq!(small.len(), query(question).len(), "no larger than the query");
        assert!(opt(&small).is_some());
    }
    let without = stage.ask("a.z.test. A noedns");
    assert_eq!((lines(&without), opt(&without)), (vec!["NOERROR tc".to_owned()], None));
    // Errors stay what they are.
    stage.check_all(&[("a.example. A", "REFUSED"), ("a.example. A", "REFUSED")]);
    let counts = stage.stats.counts();
    assert_eq!((counts.limited, counts.traffic[0].truncated), ([0, 5, 1, 0, 0], 5));
    assert_eq!(counts.traffic[0].responses[3], 1, "one NXDOMAIN was sent");
}

/// NSID (RFC 5001).
const NSID: u16 = 3;

#[test]
fn nothing_that_goes_out_over_the_limit_is_larger_than_its_query() {
    let cases = [("a.z.test. A", "NOERROR tc"), ("x.n.test. A", "NOERROR tc"), ("a.example. A", "REFUSED")];
    for (question, expected) in cases {
        // A client's cookie alone comes back with the server's, which has 16 octets.
        for (option, data, growth) in
            [(NSID, &b""[..], 0), (COOKIE, b"client-1", 16), (COOKIE, b"client-1 and one of another server here", 0)]
        {
            let mut stage = stage(1, 1);
            stage.settings.nsid = Some([b'n'; 128].into());
            stage.settings.cookies = Some(cookies());
            let query = query_with_option(question, option, data);
            let whole = stage.respond(&query).expect("an answer");
            let small = stage.respond(&query).expect("a small response");
            assert!(whole.len() > small.len(), "{question} {option}");
            assert_eq!(lines(&small), [expected], "{question} {option}");
            assert!(small.len() <= query.len() + growth, "{question} {option}: {} for {}", small.len(), query.len());
            let (_, _, options) = opt(&small).expect("an OPT record");
            let codes: Vec<u16> = options.iter().map(|(code, _)| *code).collect();
            assert_eq!(codes, if option == COOKIE { vec![COOKIE] } else { Vec::new() }, "{question}");
        }
    }
    // Below the limit, and where it is only watched, all answers are whole.
    let mut stage = stage(1, 1);
    stage.settings.nsid = Some([b'n'; 128].into());
    if let Some(limit) = &mut stage.settings.rate_limit {
        limit.enforced = false;
    }
    for _ in 0..3 {
        let response = stage.respond(&query_with_option("a.example. A", NSID, b"")).expect("an answer");
        let (_, _, options) = opt(&response).expect("an OPT record");
        let sent: Vec<(u16, usize)> = options.iter().map(|(code, data)| (*code, data.len())).collect();
        assert_eq!(sent, [(NSID, 128), (15, 2)], "NSID and the extended error");
    }
}

#[test]
fn of_errors_over_the_limit_each_nth_goes_out() {
    for (slip, expected) in [(0, [true, false, false, false, false]), (2, [true, false, true, false, true])] {
        let stage = stage(1, slip);
        assert_eq!(answered(&stage, &["a.example. A"; 5]), expected, "slip {slip}");
        let sent = expected.iter().filter(|sent| **sent).count() as u64 - 1;
        assert_eq!(stage.stats.counts().limited, [4 - sent, 0, sent, 0, 0], "slip {slip}");
    }
}

#[test]
fn a_small_response_brings_the_cookie_with_which_the_limit_ends() {
    let mut stage = stage(1, 1);
    stage.settings.cookies = Some(cookies());
    let client = query_with_option("a.z.test. A", COOKIE, b"client-1");
    stage.respond(&client).expect("the first is answered");
    let small = stage.respond(&client).expect("a small response");
    assert_eq!(lines(&small), ["NOERROR tc"]);
    let (_, _, options) = opt(&small).expect("an OPT record");
    let full = &options.iter().find(|(code, _)| *code == COOKIE).expect("a cookie").1;
    for _ in 0..10 {
        let response = stage.respond(&query_with_option("a.z.test. A", COOKIE, full)).expect("a response");
        assert_eq!(lines(&response), ["NOERROR aa", "an a.z.test. A 192.0.2.1"]);
    }
    // Of another address it does not help.
    stage.peer.address = "192.0.2.99:4000".parse().expect("an address");
    let response = stage.respond(&query_with_option("a.z.test. A", COOKIE, full)).expect("a response");
    assert_eq!(lines(&response), ["NOERROR tc"]);
}

#[test]
fn what_is_dropped_is_counted() {
    let stage = stage(3, 4);
    let sent = answered(&stage, &["a.z.test. A"; 12]);
    let expected: Vec<bool> = (1..=12).map(|turn| turn <= 3 || turn % 4 == 3).collect();
    assert_eq!(sent, expected, "each fourth over the limit");
    let counts = stage.stats.counts();
    assert_eq!((counts.drops[4], counts.limited), (7, [7, 2, 0, 0, 0]));
    assert_eq!(counts.traffic[0].responses.iter().sum::<u64>(), 5, "responses are the sent messages");
}

#[test]
fn the_limit_is_a_networks_and_a_seconds() {
    let mut stage = stage(2, 0);
    assert_eq!(answered(&stage, &["a.z.test. A"; 3]), [true, true, false]);
    stage.peer.address = "192.0.2.200:5000".parse().expect("an address");
    assert_eq!(answered(&stage, &["a.z.test. A"]), [false], "the same network");
    stage.peer.address = "198.51.100.1:4000".parse().expect("an address");
    assert_eq!(answered(&stage, &["a.z.test. A"]), [true]);
    stage.peer.address = "192.0.2.53:4000".parse().expect("an address");
    stage.peer.now += 1;
    assert_eq!(answered(&stage, &["a.z.test. A"; 3]), [true, true, false], "the next second");
}

#[test]
fn streams_are_not_limited() {
    let mut stage = stage(1, 0);
    for transport in [Transport::Tcp, Transport::Tls, Transport::Https, Transport::Quic] {
        stage.peer.transport = transport;
        assert_eq!(answered(&stage, &["a.z.test. A"; 5]), [true; 5], "{transport:?}");
    }
    assert_eq!(stage.stats.counts().limited, [0; 5]);
}

#[test]
fn exempt_networks_and_watching_are_counted_only() {
    let mut stage = stage(1, 0);
    if let Some(limit) = &mut stage.settings.rate_limit {
        limit.exempt = ["192.0.2.0/28", "192.0.2.32/27"].map(|text| text.parse().expect("a prefix")).into();
    }
    assert_eq!(answered(&stage, &["a.z.test. A"; 4]), [true; 4]);
    assert_eq!(stage.stats.counts().limited, [0, 0, 0, 3, 0]);
    if let Some(limit) = &mut stage.settings.rate_limit {
        limit.exempt = Box::default();
        limit.enforced = false;
    }
    assert_eq!(answered(&stage, &["a.z.test. A"; 2]), [true; 2]);
    assert_eq!(stage.stats.counts().limited, [0, 0, 0, 3, 2]);
}

#[test]
fn the_default_limits_only_amplified_answers_to_strangers() {
    let limit = RateLimit::of_amplified();
    let whole = (limit.per_second * u32::from(limit.window)) as usize;
    let text = format!("a A 192.0.2.1\n large TXT {}", ["0123456789012345678901234567890123456789"; 4].join(" "));
    for (question, client, is_limited) in [
        ("large.z.test. TXT", "192.0.2.1:4000", true),
        ("large.z.test. TXT", "[2001:db8::1]:4000", true),
        ("a.z.test. A", "192.0.2.1:4000", false),
        ("x.z.test. A", "192.0.2.1:4000", false),
        ("large.z.test. A", "192.0.2.1:4000", false),
        ("a.example. A", "192.0.2.1:4000", false),
        ("large.z.test. TXT", "127.0.0.1:4000", false),
        ("large.z.test. TXT", "172.31.255.255:4000", false),
        ("large.z.test. TXT", "[fd00::1]:4000", false),
        ("large.z.test. TXT", "[::1]:4000", false),
    ] {
        let mut stage = Stage::new([zone("z.test.", &text)]);
        stage.settings.rate_limit = Some(limit.clone());
        stage.limiter = Some(Limiter::new([1, 2]));
        stage.peer.address = client.parse().expect("an address");
        let query = query(question);
        for _ in 0..whole {
            assert!(!lines(&stage.respond(&query).expect("an answer"))[0].contains("tc"), "{question} {client}");
        }
        let over = stage.respond(&query).expect("an answer");
        assert_eq!(lines(&over)[0].contains("tc"), is_limited, "{question} {client}");
        assert!(
            is_limited || client != "192.0.2.1:4000" || over.len() <= 3 * query.len(),
            "{question}: {}",
            over.len()
        );
    }
}
