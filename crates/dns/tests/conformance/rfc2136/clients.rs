//! The messages of ACME clients, recorded without the signature, and their search for the zone.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use futures::FutureExt as _;
use signpost_dns::nameserver::Transport;
use signpost_dns::nameserver::hand_off::Answer;
use signpost_dns::tsig::{Key, Keys, Signer};
use signpost_dns::update::{Request, plan};
use signpost_dns::wire::header::Rcode;

use super::handler::Server;
use super::{ID, name, outcome, request, served, text_of, to_octets};
use crate::conformance::stage::{Stage, lines, query, well_formed, zone};

/// The zone section of all messages, for `z.test.`.
const ZONE: &str = "017a04746573740000060001";
/// `_acme-challenge.a.z.test.`, and the same with a pointer to the zone.
const OWNER: &str = "0f5f61636d652d6368616c6c656e67650161017a047465737400";
const SHORT: &str = "0f5f61636d652d6368616c6c656e67650161c00c";
const VALUE: &str = "00020176";

/// Each message, and its meaning.
#[test]
fn messages_of_clients() {
    let add = |owner: &str, ttl: &str| format!("{owner}00100001{ttl}{VALUE}");
    let delete_value = |owner: &str| format!("{owner}001000fe00000000{VALUE}");
    let delete_all = format!("{OWNER}001000ff000000000000");
    let cases = [
        // lego deletes the RRset and adds the value in one message, and deletes the value afterwards.
        ("lego", vec![delete_all.clone(), add(OWNER, "00000078")], "ANY {} TXT\nIN=120 {} TXT v"),
        ("lego", vec![delete_value(OWNER)], "NONE {} TXT v"),
        // dnspython compresses names.
        ("certbot", vec![add(SHORT, "00000078")], "IN=120 {} TXT v"),
        ("certbot", vec![delete_value(SHORT)], "NONE {} TXT v"),
        ("cert-manager", vec![add(OWNER, "0000003c")], "IN=60 {} TXT v"),
        ("cert-manager", vec![delete_value(OWNER)], "NONE {} TXT v"),
        // acme.sh calls nsupdate, and deletes the RRset afterwards.
        ("acme.sh", vec![add(OWNER, "0000003c")], "IN=60 {} TXT v"),
        ("acme.sh", vec![delete_all], "ANY {} TXT"),
        ("Caddy", vec![add(OWNER, "00000000")], "IN {} TXT v"),
        ("Caddy", vec![delete_value(OWNER)], "NONE {} TXT v"),
        ("nsupdate", vec![format!("{OWNER}00ff00ff000000000000")], "ANY {} ANY"),
    ];
    for (client, records, expected) in cases {
        let text = format!("abcd280000010000{:04x}0000{ZONE}{}", records.len(), records.concat());
        let message = HEXLOWER.decode(text.as_bytes()).expect("hex digits");
        let expected = expected.replace("{}", "_acme-challenge.a.z.test.");
        assert_eq!(Request::read(&message), Ok(request(&expected)), "{client}");
        assert!(plan(&request(&expected), &served()).is_ok() && !outcome(&expected).is_empty(), "{client}");
    }
}

/// The requests of each client for a certificate of a name and its wildcard, which have two values at one name: with the algorithms and the
/// transport of its settings, in its order. Each request is one change, and gets a signed answer.
#[test]
fn orders_of_clients() {
    const ADDED: [&str; 2] = ["+_acme-challenge.a.z.test. v1", "+_acme-challenge.a.z.test. v2"];
    const REMOVED: [&str; 2] = ["-_acme-challenge.a.z.test. v1", "-_acme-challenge.a.z.test. v2"];
    const EMPTIED: &str = "-_acme-challenge.a.z.test.";
    let add = |ttl: u32, value: &str| format!("IN={ttl} _acme-challenge.a.z.test. TXT {value}");
    let remove = |value: &str| format!("NONE _acme-challenge.a.z.test. TXT {value}");
    let empty = "ANY _acme-challenge.a.z.test. TXT".to_owned();
    let cert_manager = vec![
        (add(60, "v1"), ADDED[0]),
        (add(60, "v2"), ADDED[1]),
        (remove("v1"), REMOVED[0]),
        (remove("v2"), REMOVED[1]),
    ];
    let caddy = vec![
        (add(0, "v1"), ADDED[0]),
        (add(0, "v2"), ADDED[1]),
        (remove("v1"), REMOVED[0]),
        (remove("v2"), REMOVED[1]),
    ];
    // It deletes the RRset once for each of the two values.
    let acme_sh =
        vec![(add(60, "v1"), ADDED[0]), (add(60, "v2"), ADDED[1]), (empty.clone(), EMPTIED), (empty, EMPTIED)];
    for (client, algorithms, transports, requests) in [
        (
            "cert-manager",
            &["hmac-sha1", "hmac-sha256", "hmac-sha512"][..],
            &[Transport::Udp, Transport::Tcp][..],
            cert_manager,
        ),
        ("acme.sh", &["hmac-sha256", "hmac-sha512"], &[Transport::Udp], acme_sh),
        ("Caddy", &["hmac-sha256", "hmac-sha512"], &[Transport::Tcp], caddy),
    ] {
        for (algorithm, transport) in algorithms.iter().flat_map(|one| transports.iter().map(move |other| (one, other)))
        {
            let key = Key::new(name("one."), algorithm, b"a secret").expect("a key");
            let mut server = Server::with_keys([key.clone()]);
            server.stage.peer.transport = *transport;
            let now = server.stage.peer.now;
            for (number, (lines_of_request, expected)) in requests.iter().enumerate() {
                let plain = to_octets(number as u16, &request(lines_of_request)).expect("it is short");
                let mut signer = Signer::of_request(Arc::new(key.clone()));
                let mut signed = plain.clone();
                signed.resize(plain.len() + signer.octets(), 0);
                // A second after the previous one.
                signer.sign(&mut signed, plain.len(), now + number as u64).expect("there is room");
                let case = format!("{client} {algorithm} {lines_of_request}");
                let Some(Answer::Later(answer)) = server.send(&signed) else { panic!("{case}: later") };
                let job = server.next_job().unwrap_or_else(|| panic!("{case}: a job"));
                assert_eq!(text_of(&job.operations), *expected, "{case}");
                job.answer.send(Rcode::NOERROR).expect("it is awaited");
                let answer = answer.now_or_never().expect("it is there");
                assert_eq!(lines(&answer), ["NOERROR"], "{case}");
            }
        }
    }
    // The default of cert-manager's `tsigAlgorithm`: BADKEY, and a log line with the setting.
    let server = Server::new();
    let algorithm = b"\x08hmac-md5\x07sig-alg\x03reg\x03int\0";
    let times = [&server.stage.peer.now.to_be_bytes()[2..], &[1, 44, 0, 16], &[7; 16], &[0, 0, 0, 0, 0, 0]].concat();
    let rdata = [&algorithm[..], &times].concat();
    let mut message = to_octets(ID, &request(&add(60, "v1"))).expect("it is short");
    message[11] += 1;
    message.extend([b"\x03one\0\0\xfa\0\xff\0\0\0\0", &(rdata.len() as u16).to_be_bytes()[..], &rdata].concat());
    assert!(server.ask(&message).starts_with("NOTAUTH"));
    assert!(server.next_job().is_none());
}

/// Clients query the SOA record of the name and of each parent, with and without a signature and RD, until an answer has it. An
/// error ends their search, and certbot ignores an answer without AA.
#[test]
fn the_zone_of_a_challenge_is_found() {
    let mut stage = Stage::new([
        zone("v3.test.", "shard1 NS ns.elsewhere.\nroutes NS ns.elsewhere.\napp.acme TXT v"),
        zone("shard1.v3.test.", "* A 192.0.2.1\napp A 192.0.2.1\n_acme-challenge.app TXT v"),
        zone("routes.v3.test.", "app CNAME app.shard1.v3.test."),
    ]);
    let key = Key::new(name("one."), "hmac-sha256", b"a secret").expect("a key");
    stage.settings.keys = Some(Arc::new(Keys::new([key.clone()]).expect("one key")));
    let key = Arc::new(key);
    let (of_shard, of_parent) = ("shard1.v3.test.", "v3.test.");
    for (question, head, section, zone) in [
        ("_acme-challenge.app.shard1.v3.test.", "NOERROR aa", "ns", of_shard),
        ("_acme-challenge.new.shard1.v3.test.", "NOERROR aa", "ns", of_shard),
        ("app.shard1.v3.test.", "NOERROR aa", "ns", of_shard),
        ("shard1.v3.test.", "NOERROR aa", "an", of_shard),
        ("_acme-challenge.app.routes.v3.test.", "NXDOMAIN aa", "ns", "routes.v3.test."),
        ("routes.v3.test.", "NOERROR aa", "an", "routes.v3.test."),
        ("app.acme.v3.test.", "NOERROR aa", "ns", of_parent),
        ("new.acme.v3.test.", "NXDOMAIN aa", "ns", of_parent),
        ("acme.v3.test.", "NOERROR aa", "ns", of_parent),
        ("v3.test.", "NOERROR aa", "an", of_parent),
    ] {
        for (more, transport) in [("", Transport::Tcp), (" rd", Transport::Udp), (" noedns", Transport::Udp)] {
            stage.peer.transport = transport;
            let plain = query(&format!("{question} SOA{more}"));
            let mut signer = Signer::of_request(Arc::clone(&key));
            let mut signed = plain.clone();
            signed.resize(plain.len() + signer.octets(), 0);
            signer.sign(&mut signed, plain.len(), stage.peer.now).expect("there is room");
            for (message, is_signed) in [(&plain, false), (&signed, true)] {
                let response =
                    stage.respond_to(message, &stage.peer, &stage.settings, &stage.stats).expect("a response");
                well_formed(message, &response);
                let lines = lines(&response);
                let expected = if more == " rd" { format!("{head} rd") } else { head.to_owned() };
                assert_eq!(lines[..2], [expected, format!("{section} {zone} SOA")], "{question}{more} {is_signed}");
                assert_eq!(signer.verify(&response, stage.peer.now), is_signed, "{question}{more}");
            }
        }
    }
    // The alias itself has a CNAME: clients continue with its parent.
    stage.check("app.routes.v3.test. SOA", "NOERROR aa\nan app.routes.v3.test. CNAME app.shard1.v3.test.");
}
