//! The answers of a server with keys. hickory-proto signs the queries and verifies the responses.

use std::sync::Arc;

use hickory_proto::op::Message;
use hickory_proto::rr::TSigner;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use signpost_dns::nameserver::cookie::Cookies;
use signpost_dns::nameserver::{Stats, Transport};
use signpost_dns::tsig::{Key, Keys, Signer, StreamVerifier, Verified, verify};
use signpost_dns::wire::build::Writer;
use signpost_dns::wire::message::find_tsig;
use signpost_dns::wire::tsig::{Fields, TsigError, put, timers};
use signpost_dns::wire::{Name, RecordType};

use crate::conformance::stage::{Stage, lines, opt, query, records, well_formed};

const SECRET: &[u8] = b"a secret of some length";
const NOW: u64 = 1_800_000_000;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn key(algorithm: &str) -> Key {
    Key::new(name("Key.example."), algorithm, SECRET).expect("a key")
}

fn stage(algorithm: &str) -> Stage {
    let mut stage = Stage::with("z.test.", "* A 192.0.2.1\n* A 192.0.2.2\nbig TXT x");
    stage.settings.keys = Some(Arc::new(Keys::new([key(algorithm)]).expect("one key")));
    stage
}

/// Our own signature of a query at a time.
fn signed_at(message: &[u8], key: Key, now: u64) -> (Vec<u8>, Signer) {
    let mut signer = Signer::of_request(Arc::new(key));
    let mut buffer = message.to_vec();
    buffer.resize(message.len() + signer.octets(), 0);
    let length = signer.sign(&mut buffer, message.len(), now).expect("there is room");
    buffer.truncate(length);
    (buffer, signer)
}

fn ask(stage: &Stage, message: &[u8]) -> Vec<u8> {
    let response = stage.respond_to(message, &stage.peer, &stage.settings, &stage.stats).expect("a response");
    well_formed(message, &response);
    response
}

/// Returns the error of the response's TSIG record, and whether it has a MAC.
fn error(response: &[u8]) -> (TsigError, bool) {
    let fields = find_tsig(response).and_then(|tsig| tsig.fields(response)).expect("a TSIG record");
    (fields.error, !fields.mac.is_empty())
}

/// §4.3, §5.2, §5.3: "the server MUST [...] generate a TSIG [...] for the response".
#[test]
fn a_signed_query_gets_a_signed_answer() {
    for (ours, theirs) in [
        ("hmac-sha256", TsigAlgorithm::HmacSha256),
        ("hmac-sha384", TsigAlgorithm::HmacSha384),
        ("hmac-sha512", TsigAlgorithm::HmacSha512),
    ] {
        let mut stage = stage(ours);
        for transport in [Transport::Udp, Transport::Tcp] {
            stage.peer.transport = transport;
            for (question, expected) in [
                ("a.z.test. A", "NOERROR aa"),
                ("z.test. SOA", "NOERROR aa"),
                ("z.test. SOA noedns rd", "NOERROR aa rd"),
                ("z.test. MX", "NOERROR aa"),
                ("a.big.z.test. A", "NXDOMAIN aa"),
                ("elsewhere. A", "REFUSED"),
                ("z.test. AXFR", "REFUSED"),
                ("version.bind. TXT class=CH", "REFUSED"),
            ] {
                let signer_name = hickory_proto::rr::Name::from_ascii("kEy.example.").expect("a name");
                let signer = TSigner::new(SECRET.to_vec(), theirs.clone(), signer_name, 300).expect("supported");
                let mut message = Message::from_vec(&query(question)).expect("a query");
                let mut verifier = message.finalize(&signer, NOW).expect("it signs").expect("a verifier");
                let message = message.to_vec().expect("it encodes");
                let response = ask(&stage, &message);
                assert_eq!(lines(&response)[0], expected, "{question}");
                verifier.verify(&response).expect("hickory accepts the signature");
                let last = records(&response).pop().expect("a TSIG record");
                assert_eq!((last.rtype, last.class, last.ttl), (RecordType::TSIG, 255, 0));
                assert_eq!(opt(&response).is_some(), !question.contains("noedns"), "OPT stays before it");
            }
        }
    }
}

/// §6: every algorithm, by our own signer.
#[test]
fn section_6_algorithms() {
    for algorithm in ["hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha512-256"] {
        let stage = stage(algorithm);
        let (message, signer) = signed_at(&query("a.z.test. A"), key(algorithm), NOW);
        let response = ask(&stage, &message);
        assert_eq!(lines(&response)[0], "NOERROR aa", "{algorithm}");
        assert!(signer.verify(&response, NOW + 300) && !signer.verify(&response, NOW + 301));
        let mut other = response.clone();
        other[30] ^= 1;
        assert!(!signer.verify(&other, NOW), "a changed response");
        assert!(!signer.verify(&response[..response.len() - 1], NOW), "a cut one");
    }
}

/// §5.2.1 and §5.2.2: BADKEY and BADSIG, which are not signed.
#[test]
fn section_5_2_2_wrong_keys_and_signatures() {
    let stage = stage("hmac-sha256");
    let good = query("a.z.test. A");
    let other_name = Key::new(name("other.example."), "hmac-sha256", SECRET).expect("a key");
    let other_secret = Key::new(name("key.example."), "hmac-sha256", b"another").expect("a key");
    for (signer, expected) in
        [(other_name, TsigError::BADKEY), (key("hmac-sha512"), TsigError::BADKEY), (other_secret, TsigError::BADSIG)]
    {
        let (message, _) = signed_at(&good, signer, NOW);
        let response = ask(&stage, &message);
        assert_eq!((lines(&response)[0].as_str(), error(&response)), ("NOTAUTH", (expected, false)));
    }
    // Every octet up to the MAC's end is covered, except for the ID, which a forwarder may change.
    let (message, signer) = signed_at(&good, key("hmac-sha256"), NOW);
    for at in 0..message.len() {
        let mut changed = message.clone();
        changed[at] ^= 0x80;
        let response = stage.respond_to(&changed, &stage.peer, &stage.settings, &Stats::new());
        let Some(response) = response else { continue };
        // A record of another type makes it another, unsigned query.
        let is_accepted = lines(&response)[0] == "NOERROR aa" && find_tsig(&response).is_some();
        assert_eq!(is_accepted, at < 2, "octet {at}");
    }
    let mut forwarded = message;
    forwarded[..2].copy_from_slice(&[1, 2]);
    let mut response = ask(&stage, &forwarded);
    assert_eq!(response[..2], [1, 2]);
    // The forwarder restores the client's ID; that of the signature is in the record.
    response[..2].copy_from_slice(&good[..2]);
    assert!(signer.verify(&response, NOW));
}

/// §5.2.3: "If the server time is outside the time interval specified by the request [...] the server MUST generate an error
/// response with RCODE 9 (NOTAUTH) and TSIG ERROR 18 (BADTIME)", signed, with the client's time and the server's.
#[test]
fn section_5_2_3_time() {
    let stage = stage("hmac-sha256");
    for (time, is_good) in
        [(NOW - 300, true), (NOW + 300, true), (NOW - 301, false), (NOW + 301, false), (1_000, false)]
    {
        let (message, signer) = signed_at(&query("a.z.test. A"), key("hmac-sha256"), time);
        let response = ask(&stage, &message);
        if is_good {
            assert_eq!((lines(&response)[0].as_str(), signer.verify(&response, NOW)), ("NOERROR aa", true));
            continue;
        }
        assert_eq!((lines(&response)[0].as_str(), error(&response)), ("NOTAUTH", (TsigError::BADTIME, true)));
        let fields = find_tsig(&response).and_then(|tsig| tsig.fields(&response)).expect("a TSIG record");
        assert_eq!((fields.time, fields.other), (time, &NOW.to_be_bytes()[2..]));
        assert_eq!(records(&response).iter().filter(|record| record.section == "an").count(), 0);
        // The MAC is right; the error is in the record.
        let signer_name = hickory_proto::rr::Name::from_ascii("key.example.").expect("a name");
        let theirs = TSigner::new(SECRET.to_vec(), TsigAlgorithm::HmacSha256, signer_name, 300).expect("supported");
        let mac = find_tsig(&message).and_then(|tsig| tsig.fields(&message)).expect("a TSIG record").mac;
        theirs.verify_message_byte(&response, Some(mac), true).expect("hickory accepts the MAC");
    }
}

/// §5.2 for requests that are handed off: NOTIFY, UPDATE and transfers get the same errors as queries, and are not refused instead.
#[test]
fn section_5_2_requests_of_other_programs() {
    let stage = stage("hmac-sha256-160");
    let other_name = || Key::new(name("other.example."), "hmac-sha256", SECRET).expect("a key");
    let other_secret = || Key::new(name("key.example."), "hmac-sha256", b"another").expect("a key");
    let short = || key("hmac-sha256-128");
    for (question, opcode) in [("z.test. SOA", 4), ("z.test. SOA", 5), ("z.test. AXFR", 0), ("z.test. IXFR", 0)] {
        let mut request = query(question);
        request[2] |= opcode << 3;
        for (signer, time, expected) in [
            (other_name(), NOW, (TsigError::BADKEY, false)),
            (key("hmac-sha512"), NOW, (TsigError::BADKEY, false)),
            (other_secret(), NOW, (TsigError::BADSIG, false)),
            (key("hmac-sha256"), NOW - 301, (TsigError::BADTIME, true)),
            (key("hmac-sha256"), NOW + 301, (TsigError::BADTIME, true)),
            (short(), NOW, (TsigError::BADTRUNC, true)),
            // §5.2: the key comes first, then the MAC, the time, and the length.
            (other_name(), NOW - 301, (TsigError::BADKEY, false)),
            (other_secret(), NOW - 301, (TsigError::BADSIG, false)),
            (short(), NOW - 301, (TsigError::BADTIME, true)),
        ] {
            let (message, _) = signed_at(&request, signer, time);
            let response = ask(&stage, &message);
            assert_eq!((lines(&response)[0].as_str(), error(&response)), ("NOTAUTH", expected), "{question} {opcode}");
            assert_eq!(response[2] & 0x78, opcode << 3, "the opcode");
            assert!(records(&response).iter().all(|record| record.section == "ar"), "{question}: no record of a zone");
        }
        // Without the records of a signature, there is nothing to verify: it is refused, or has another meaning.
        let response = ask(&stage, &request);
        assert_eq!((lines(&response)[0].as_str(), find_tsig(&response).is_some()), (refusal(opcode), false));
    }
}

/// The answer of a server without transfers, zones of primary servers and updates.
fn refusal(opcode: u8) -> &'static str {
    if opcode == 5 { "NOTIMP" } else { "REFUSED" }
}

/// A recorded query that is sent again gets its answer within the fudge, and BADTIME afterwards (§10).
#[test]
fn section_10_replays() {
    let mut stage = stage("hmac-sha256");
    let (message, signer) = signed_at(&query("z.test. SOA"), key("hmac-sha256"), NOW);
    for (seconds, is_good) in [(0, true), (1, true), (300, true), (301, false), (86_400, false)] {
        stage.peer.now = NOW + seconds;
        let response = ask(&stage, &message);
        match is_good {
            true => {
                assert!(lines(&response)[0] == "NOERROR aa" && signer.verify(&response, NOW + seconds), "{seconds}")
            }
            false => assert_eq!(error(&response), (TsigError::BADTIME, true), "{seconds}"),
        }
    }
}

/// §5.2.2.1 and §5.2.4: too long or too short for any signer is FORMERR, too short for the key BADTRUNC.
#[test]
fn section_5_2_2_1_truncation() {
    let stage = stage("hmac-sha256-160");
    let truncated = |octets: usize| {
        let (message, signer) = signed_at(&query("a.z.test. A noedns"), key("hmac-sha256"), NOW);
        let mac_at = message.len() - 6 - 32;
        let rdata_at = mac_at - 2 - 8 - 13;
        let mut mac = message[mac_at..mac_at + 32].to_vec();
        mac.resize(octets, 0);
        let tail = &message[message.len() - 6..];
        let mut changed = [&message[..mac_at - 2], &(octets as u16).to_be_bytes(), &mac, tail].concat();
        let length = (changed.len() - rdata_at) as u16;
        changed[rdata_at - 2..rdata_at].copy_from_slice(&length.to_be_bytes());
        (changed, signer)
    };
    for (octets, expected) in [
        (33, "FORMERR"),
        (32, "NOERROR aa"),
        (24, "NOERROR aa"),
        (20, "NOERROR aa"),
        (19, "NOTAUTH"),
        (16, "NOTAUTH"),
        (15, "FORMERR"),
        (0, "FORMERR"),
    ] {
        let response = ask(&stage, &truncated(octets).0);
        assert_eq!(lines(&response)[0], expected, "{octets}");
        if expected == "NOTAUTH" {
            assert_eq!(error(&response), (TsigError::BADTRUNC, true));
        }
        if expected.starts_with("NOERROR") {
            let tsig = find_tsig(&response).expect("a TSIG record");
            assert_eq!(tsig.fields(&response).expect("fields").mac.len(), octets, "not shorter than the request's");
        }
    }
}

/// §5.3: a response leaves room for its signature, and is truncated if it does not fit then.
#[test]
fn section_5_3_room_for_the_signature() {
    let text = (0..40).map(|number| format!("many A 192.0.2.{number}\n")).collect::<String>();
    let mut stage = Stage::with("z.test.", &text);
    stage.settings.keys = Some(Arc::new(Keys::new([key("hmac-sha512")]).expect("one key")));
    // The response has 680 octets, and its signature 116.
    for (question, expected) in
        [("many.z.test. A size=796", "NOERROR aa"), ("many.z.test. A size=795", "NOERROR aa tc")]
    {
        assert_eq!(stage.ask(question).len(), 680);
        let (message, signer) = signed_at(&query(question), key("hmac-sha512"), NOW);
        let response = ask(&stage, &message);
        assert_eq!(lines(&response)[0], expected, "{question}");
        assert!(signer.verify(&response, NOW) && response.len() <= 796);
        stage.peer.transport = Transport::Tcp;
        let response = ask(&stage, &message);
        assert_eq!((lines(&response)[0].as_str(), signer.verify(&response, NOW)), ("NOERROR aa", true));
        stage.peer.transport = Transport::Udp;
    }
    // Even the question does not fit with it.
    let label = "n".repeat(60);
    let long = name(&format!("{label}.{label}.{label}.{label}."));
    let long_key = || Key::new(long.clone(), "hmac-sha512", SECRET).expect("a key");
    stage.settings.keys = Some(Arc::new(Keys::new([long_key()]).expect("one key")));
    let (message, signer) = signed_at(&query(&format!("{long} A noedns")), long_key(), NOW);
    let response = ask(&stage, &message);
    assert_eq!((&lines(&response)[..], response.len() <= 512), (&["NOERROR tc".to_owned()][..], true));
    stage.peer.transport = Transport::Tcp;
    assert!(signer.verify(&ask(&stage, &message), NOW));
}

/// A signature does not replace other checks, and cookies work with it.
#[test]
fn the_other_checks_stay() {
    let mut stage = stage("hmac-sha256");
    let first = "e5e973e5a6b2a43f48e7dc849e37bfcf".parse().expect("a secret");
    stage.settings.cookies = Some(Cookies { first, others: Box::default(), required: true });
    let cookie = crate::conformance::stage::query_with_option("a.z.test. A", 10, b"12345678");
    let (message, signer) = signed_at(&cookie, key("hmac-sha256"), NOW);
    let response = ask(&stage, &message);
    assert_eq!((lines(&response)[0].as_str(), signer.verify(&response, NOW)), ("BADCOOKIE", true));
    stage.settings.cookies = None;
    let mut response = query("a.z.test. A");
    response[2] |= 0x80;
    let (message, _) = signed_at(&response, key("hmac-sha256"), NOW);
    assert_eq!(stage.respond_to(&message, &stage.peer, &stage.settings, &stage.stats), None, "a response");
    for opcode in [4, 5] {
        let mut message = query("z.test. SOA");
        message[2] |= opcode << 3;
        let (message, signer) = signed_at(&message, key("hmac-sha256"), NOW);
        let response = ask(&stage, &message);
        assert!(signer.verify(&response, NOW), "the refusal of opcode {opcode} is signed");
    }
    let counts = stage.stats.counts().traffic[0];
    assert_eq!(counts.request_count(), 4, "each is counted once");
}

/// §5.3.1: the messages of an answer are a chain; the first and the last one are signed, and at least one of 100 in between: "The client
/// MUST accept up to 99 intermediary messages between signed messages".
#[test]
fn a_chain_of_messages_is_verified() {
    let message = |number: u8| {
        let mut message = query("z.test AXFR");
        message[..4].copy_from_slice(&[0, 7, 0x84, number]);
        message
    };
    let (request, signer) = signed_at(&query("z.test AXFR"), key("hmac-sha256"), NOW);
    let keys = Keys::new([key("hmac-sha256")]).expect("one key");
    let tsig = find_tsig(&request).expect("it is signed");
    let Verified::Good(mut server) = verify(&keys, &request, &tsig, NOW) else { panic!("a good signature") };
    let mut sign = |number| {
        let mut buffer = message(number);
        let length = buffer.len();
        buffer.resize(length + server.octets(), 0);
        server.sign(&mut buffer, length, NOW).expect("there is room");
        buffer
    };
    let signed = [sign(1), sign(2), sign(3)];
    let new = || StreamVerifier::new(signer.clone());
    let mut verifier = new();
    assert!(!verifier.is_complete());
    for message in &signed {
        assert!(verifier.verify(message, NOW) && verifier.is_complete());
    }
    // Unsigned at the start, changed, missing, late, of another exchange.
    assert!(!new().verify(&message(1), NOW));
    for at in 0..signed[0].len() {
        let mut changed = signed[0].clone();
        changed[at] ^= 0x10;
        // The ID can change on the way: the signature has the original one.
        assert!(!new().verify(&changed, NOW) || at < 2, "octet {at}");
    }
    let mut verifier = new();
    assert!(verifier.verify(&signed[0], NOW) && !verifier.verify(&signed[2], NOW));
    assert!(!new().verify(&signed[0], NOW + 301));
    let (_, other) = signed_at(&query("z.test AXFR"), key("hmac-sha256"), NOW + 1);
    assert!(!StreamVerifier::new(other).verify(&signed[0], NOW));
    // 99 messages without a signature, and one with: its MAC covers all of them.
    let mac =
        |message: &[u8]| find_tsig(message).and_then(|tsig| Some(tsig.fields(message)?.mac.to_vec())).expect("a MAC");
    let with_unsigned = |unsigned: u8| {
        let before = mac(&signed[0]);
        let mut digest =
            aws_lc_rs::hmac::Context::with_key(&aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, SECRET));
        digest.update(&(before.len() as u16).to_be_bytes());
        digest.update(&before);
        (0..unsigned).for_each(|number| digest.update(&message(number)));
        let last = message(200);
        digest.update(&last);
        let mut fields = Fields { time: NOW, fudge: 300, mac: &[], original_id: 7, error: TsigError::NONE, other: &[] };
        digest.update(&timers(&fields));
        let tag = digest.sign();
        fields.mac = tag.as_ref();
        let mut buffer = vec![0; 500];
        let mut writer = Writer::new(&mut buffer, usize::MAX);
        writer.put(&last).expect("there is room");
        put(&mut writer, b"\x03key\x07example\0", b"\x0bhmac-sha256\0", &fields).expect("there is room");
        let length = writer.position();
        buffer.truncate(length);
        buffer[11] += 1;
        let mut verifier = new();
        assert!(verifier.verify(&signed[0], NOW));
        let unsigned = (0..unsigned).all(|number| verifier.verify(&message(number), NOW) && !verifier.is_complete());
        unsigned && verifier.verify(&buffer, NOW) && verifier.is_complete()
    };
    assert!(with_unsigned(0) && with_unsigned(1) && with_unsigned(99) && !with_unsigned(100));
}
