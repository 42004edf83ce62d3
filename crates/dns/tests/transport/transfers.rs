//! Transfers of a running server: signed chains of messages, rights of TLS, and clients that do not read.

use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_proto::op::Message;
use hickory_proto::rr::TSigner;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use signpost_dns::nameserver::{Settings, Transport};
use signpost_dns::transfer::{Rule, Transfers};
use signpost_dns::transport::Config;
use signpost_dns::tsig::{Key, Keys};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::contents::Contents;
use signpost_dns::zone::rrset::Ttl;
use signpost_dns::zone::{Zone, ZoneDb};

use crate::support::{LIMIT, PATIENCE, Server, connect, framed, query, receive, shard};
use crate::tls;

const AXFR: u16 = 252;
const SECRET: &[u8] = b"a secret of the test";

fn key() -> Key {
    Key::new("transfer.example.".parse().unwrap(), "hmac-sha256", SECRET).unwrap()
}

/// A shard's zone with this many names.
fn large(names: u32) -> Zone {
    let mut contents: Contents = shard(4).contents();
    for number in 0..names {
        let owner: Name = format!("name-{number}.shard.example.").parse().unwrap();
        contents.add(owner, RecordType::A, Ttl::MAX, number.to_be_bytes().into()).unwrap();
    }
    Zone::build(contents).unwrap()
}

fn server(db: &ZoneDb, rule: Rule, change: impl FnOnce(&mut Config)) -> Server {
    let mut config = Config {
        addresses: vec!["127.0.0.1:0".parse().unwrap()],
        tls_addresses: vec!["127.0.0.1:0".parse().unwrap()],
        udp_workers: 1,
        ..Config::default()
    };
    change(&mut config);
    db.set_ready();
    let settings = Settings { keys: Some(Arc::new(Keys::new([key()]).unwrap())), ..Settings::default() };
    Server::of(db, settings, &config, Some(Arc::new(Transfers::new(vec![rule]))))
}

fn rule() -> Rule {
    Rule { zones: Vec::new(), networks: vec!["127.0.0.0/8".parse().unwrap()], keys: Vec::new(), tls: false }
}

fn records(message: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([message[6], message[7]]))
}

/// RFC 8945 §5.3.1: each message of a transfer is signed, and its MAC covers the previous MAC. hickory-proto verifies the chain.
#[test]
fn trap_63_every_message_of_a_transfer_is_signed() {
    let db = ZoneDb::new();
    db.publish(large(20_000));
    let server = server(&db, Rule { keys: vec![key().name().clone()], ..rule() }, |_| {});
    let mut stream = connect(&server);
    // Unsigned, it is refused on the same connection.
    stream.write_all(&framed(&query(1, "shard.example", AXFR))).unwrap();
    assert_eq!(receive(&mut stream).unwrap()[3] & 15, 5);
    let name = hickory_proto::rr::Name::from_ascii("transfer.example.").unwrap();
    let signer = TSigner::new(SECRET.to_vec(), TsigAlgorithm::HmacSha256, name, 300).unwrap();
    let mut request = Message::from_vec(&query(2, "shard.example", AXFR)).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut verifier = request.finalize(&signer, now).unwrap().unwrap();
    stream.write_all(&framed(&request.to_vec().unwrap())).unwrap();
    let (mut messages, mut found) = (0, 0);
    // The wildcard has four addresses, the text 200 strings; SOA at both ends, and NS.
    let expected = 20_000 + 4 + 200 + 3;
    while found < expected {
        let message = receive(&mut stream).expect("a message");
        assert_eq!(message[..2], [0, 2]);
        verifier.verify(&message).expect("hickory accepts the chain");
        found += records(&message);
        messages += 1;
    }
    assert!(found == expected && messages > 10, "{found} records in {messages} messages");
}

/// RFC 9103: a right that requires TLS does not hold over TCP, for the same client and the same key.
#[test]
fn trap_62_a_right_of_tls_is_none_of_tcp() {
    let db = ZoneDb::new();
    db.publish(large(100));
    let server = server(&db, Rule { tls: true, ..rule() }, |_| {});
    let request = framed(&query(1, "shard.example", AXFR));
    let mut plain = connect(&server);
    plain.write_all(&request).unwrap();
    assert_eq!(receive(&mut plain).unwrap()[3] & 15, 5, "REFUSED");
    let mut encrypted = tls::connect(&server);
    encrypted.write_all(&request).unwrap();
    let mut found = 0;
    while found < 307 {
        found += records(&receive(&mut encrypted).expect("a message"));
    }
    assert_eq!(found, 307);
    // As another client sees it: Knot's kdig, which selects the protocol "dot".
    for (transport, address, records) in
        [("+tls", server.encrypted_address(Transport::Tls), 307), ("+tcp", server.address(), 0)]
    {
        let port = address.port().to_string();
        let arguments = ["@127.0.0.1", "-p", &port, transport, "shard.example", "AXFR", "+noall", "+answer"];
        let kdig = Command::new("kdig").args(arguments).output().expect("kdig is installed");
        let text = String::from_utf8_lossy(&kdig.stdout);
        assert_eq!(
            text.lines().filter(|line| line.contains(".shard.example.") || line.starts_with("shard.example.")).count(),
            records,
            "{transport}: {text}"
        );
    }
}

/// The bound on what a client that stops reading can keep: its version of the zone, for the time of one write.
#[test]
fn a_client_that_stops_reading_releases_the_zone() {
    let db = ZoneDb::new();
    db.publish(large(200_000));
    let server = server(&db, rule(), |config| config.streams.write = LIMIT);
    let mut streams: Vec<_> = (0..4).map(|_| connect(&server)).collect();
    for stream in &mut streams {
        stream.write_all(&framed(&query(1, "shard.example", AXFR))).unwrap();
        // The transfer has begun.
        stream.read_exact(&mut [0; 2]).unwrap();
    }
    let zone = db.zones().pop().map(|zone| Arc::downgrade(&zone)).unwrap();
    let began = Instant::now();
    db.publish(shard(4));
    while zone.upgrade().is_some() {
        assert!(began.elapsed() < PATIENCE, "the zone is still in memory");
        db.reclaim();
        std::thread::sleep(Duration::from_millis(20));
    }
    server.wait("all are closed", |totals| totals.write_timeouts == 4);
    // Others are served meanwhile and afterwards.
    crate::support::ask_on(&mut connect(&server), 2, 4);
}
