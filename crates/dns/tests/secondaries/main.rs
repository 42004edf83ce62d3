//! Knot, NSD, BIND and PowerDNS as secondary servers: AXFR, IXFR and NOTIFY, with and without TSIG, while each of them is killed and
//! started again. Afterwards, each holds the same zone, by its own AXFR.
//!
//! The servers and `dig` are those of the system.

#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod peers;
#[path = "../conformance/stage.rs"]
#[allow(dead_code, reason = "the stage is the conformance tests'; these use a part of it")]
mod stage;

/// The stage queries no other server.
fn also_ask(_: &stage::Stage, _: &[u8]) {}

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use signpost_dns::wire::RecordType;
use signpost_dns::zone::builder::OwnerChange;
use signpost_dns::zone::publish::{Change, Origin, What, build};
use signpost_dns::zone::rrset::Rdata;
use signpost_dns::zone::{Contents, Rrset, Serial, Ttl};
use signpost_testing::free_address;
use tempfile::TempDir;

use peers::{
    APEX, CATALOG, Primary, Server, dig, eventually, key, knot, knot_catalog, knot_zone, named, nsd, powerdns,
    serial_of, soa_serial, zone_at,
};
use stage::contents;

fn zone_of(text: &str) -> Contents {
    contents(APEX, &format!("@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n{text}"))
}

/// The number of changes, and the changes of each round, in which one server is killed and started again.
const CHANGES: usize = 200;
const ROUND: usize = 25;

fn converge(signs: bool) {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let addresses: [SocketAddr; 4] = std::array::from_fn(|_| free_address());
    let primary = Primary::start(&addresses, signs);
    let text = (0..2_000).map(|number| format!("Name{number} A 10.0.0.1\n")).collect::<String>();
    primary.publish(&zone_of(&format!(
        "{text}* A 192.0.2.1\n* AAAA 2001:db8::1\ncut NS ns.cut\nns.cut A 192.0.2.2\nm MX 1 mail.m\ntxt TXT x"
    )));
    let [at_knot, at_nsd, at_named, at_powerdns] = addresses;
    let start = |number: usize| match number {
        0 => knot(at_knot, primary.address, here, signs, &knot_zone(here)),
        1 => nsd(at_nsd, primary.address, here, signs),
        2 => named(at_named, primary.address, here, signs, APEX),
        _ => powerdns(at_powerdns, primary.address, here, signs, APEX),
    };
    let mut servers: Vec<Option<Server>> = (0..addresses.len()).map(|number| Some(start(number))).collect();
    let have = |serial: u32| {
        eventually(&format!("all have serial {serial}"), here, || {
            addresses.iter().all(|address| soa_serial(*address) == Some(serial))
        });
    };
    have(2026);
    let mut serial = 2026;
    for number in 0..CHANGES {
        let killed = number / ROUND % addresses.len();
        match number % ROUND {
            // In the middle of the transfers of the changes before.
            5 => servers[killed] = None,
            15 => servers[killed] = Some(start(killed)),
            _ => {}
        }
        serial += 1;
        match number % 3 {
            0 => primary.change(serial, &format!("name{}", number % 7), &[[192, 0, 2, number as u8], [192, 0, 2, 201]]),
            1 => primary.change(serial, "comes-and-goes", &[[192, 0, 2, 7]]),
            _ => primary.change(serial, "comes-and-goes", &[]),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    have(serial);
    // All miss a change while they are down, one of them also the notification.
    servers.clear();
    primary.change(4000, "during", &[[192, 0, 2, 44]]);
    servers.extend((0..addresses.len()).map(|number| Some(start(number))));
    primary.change(4001, "after", &[[192, 0, 2, 45]]);
    have(4001);
    let expected: BTreeSet<String> = match signs {
        // `dig` transfers from the primary with the key.
        true => {
            let with_key = format!("hmac-sha256:transfer.example:{}", key().secret_text());
            let text = dig(primary.address, &["-y", &with_key, APEX, "AXFR", "+noall", "+answer", "+onesoa"]);
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
            // With a key, it prints the TSIG records of the messages, too.
            text.lines()
                .filter(|line| !line.starts_with(';') && !line.is_empty() && !line.contains("TSIG"))
                .map(words)
                .collect()
        }
        false => zone_at(primary.address),
    };
    // Seven names have one address more.
    assert_eq!(expected.len(), 2_000 + 7 + 2 + 6 + 3, "all records of the primary: {expected:?}");
    for (name, address) in [("knot", at_knot), ("nsd", at_nsd), ("named", at_named), ("powerdns", at_powerdns)] {
        // NSD answers with the serial a moment before it has the whole zone for transfers.
        eventually(&format!("{name} has the zone"), here, || zone_at(address) == expected);
    }
    let counts @ [full, incremental, ..] = primary.transfers.counts();
    assert!(incremental > 4 && full >= 4, "{counts:?}");
    let mut acknowledged = 0;
    eventually("all acknowledge", here, || {
        acknowledged = 0;
        primary
            .notifier
            .each_state(|_, _, state| acknowledged += usize::from(state.acknowledged == Some(Serial(4001))));
        acknowledged == addresses.len()
    });
}

#[test]
fn others_converge_without_keys() {
    converge(false);
}

#[test]
fn others_converge_with_keys() {
    converge(true);
}

/// RFC 9103: BIND and NSD check the certificate, with and without a key. The server permits transfers over TLS only.
#[test]
fn others_follow_over_tls() {
    for signs in [false, true] {
        let folder = TempDir::new().unwrap();
        let here = folder.path();
        let addresses: [SocketAddr; 2] = std::array::from_fn(|_| free_address());
        let primary = Primary::start_with(&addresses, signs, true);
        primary.publish(&zone_of("a A 192.0.2.1\n* A 192.0.2.1"));
        std::fs::write(here.join("ca.pem"), &primary.certificate).unwrap();
        let [at_nsd, at_named] = addresses;
        let servers =
            [nsd(at_nsd, primary.tls_address, here, signs), named(at_named, primary.tls_address, here, signs, APEX)];
        let have = |serial: u32| {
            eventually(&format!("both have serial {serial}"), here, || {
                addresses.iter().all(|address| soa_serial(*address) == Some(serial))
            });
        };
        have(2026);
        for serial in 2027..2030 {
            primary.change(serial, "b", &[[192, 0, 2, serial as u8]]);
            have(serial);
        }
        eventually("both have the same 5 records", here, || {
            let zone = zone_at(at_nsd);
            zone.len() == 5 && zone == zone_at(at_named)
        });
        assert!(dig(primary.address, &[APEX, "AXFR"]).contains("Transfer failed"), "over TCP");
        // Another authority ends it.
        drop(servers);
        let other = Primary::start(&[], false);
        std::fs::write(here.join("ca.pem"), &other.certificate).unwrap();
        let _servers =
            [nsd(at_nsd, primary.tls_address, here, signs), named(at_named, primary.tls_address, here, signs, APEX)];
        let [before @ .., _, _, _] = primary.transfers.counts();
        primary.change(2030, "b", &[[192, 0, 2, 30]]);
        std::thread::sleep(Duration::from_secs(3));
        addresses.iter().for_each(|address| assert_ne!(soa_serial(*address), Some(2030)));
        let [full, incremental, ..] = primary.transfers.counts();
        assert_eq!([full, incremental], before);
    }
}

#[test]
fn zones_come_and_go_through_the_catalog_with_keys() {
    come_and_go(true);
}

/// PowerDNS 4.7 requests the zones of a catalog without a key.
#[test]
fn zones_come_and_go_through_the_catalog_without_keys() {
    come_and_go(false);
}

/// RFC 9432: 50 shards come and go, and the secondary servers have only the catalog in their configuration.
fn come_and_go(signs: bool) {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let addresses: [SocketAddr; 2] = std::array::from_fn(|_| free_address());
    let [at_knot, at_other] = addresses;
    let primary = Primary::start(&addresses, signs);
    let (catalog, stop) = (primary.catalog.clone(), primary.stop.clone());
    primary.runtime.spawn(async move { catalog.run(|| true, stop).await });
    let shard = |number: usize| format!("s{number}.test.");
    let publish = |numbers: std::ops::Range<usize>| {
        let zones = numbers.map(|number| {
            let text = "@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n* A 192.0.2.1";
            Change::whole(Origin::Objects, build(contents(&shard(number), text)).unwrap())
        });
        primary.zones.publish(zones);
    };
    publish(0..10);
    let start_all = || {
        let other = if signs { named } else { powerdns };
        let knot = knot(at_knot, primary.address, here, signs, &knot_catalog(here));
        [knot, other(at_other, primary.address, here, signs, CATALOG)]
    };
    let servers = start_all();
    // PowerDNS 4.7 with SQLite can fail to apply a change of the catalog ("database is locked"), and then keeps the new serial without it. An
    // operator repeats the transfer, and so does the test after a long wait.
    let looks = std::cell::Cell::new(0u32);
    let repeat = || {
        looks.set(looks.get() + 1);
        if !signs && looks.get().is_multiple_of(300) {
            let config_dir = format!("--config-dir={}", here.display());
            let _ = Command::new("pdns_control").args([&config_dir, "retrieve", CATALOG]).output();
        }
    };
    let have = |present: std::ops::Range<usize>, gone: std::ops::Range<usize>| {
        for address in addresses {
            for number in present.clone() {
                looks.set(0);
                eventually(&format!("{address} has {}", shard(number)), here, || {
                    repeat();
                    serial_of(address, &shard(number)) == Some(2026)
                });
            }
            for number in gone.clone() {
                looks.set(0);
                let refuses = || {
                    repeat();
                    dig(address, &[&shard(number), "SOA", "+time=1", "+tries=1"]).contains("status: REFUSED")
                };
                eventually(&format!("{address} has no longer {}", shard(number)), here, refuses);
            }
        }
    };
    have(0..10, 0..0);
    for number in 10..50 {
        publish(number..number + 1);
        std::thread::sleep(Duration::from_millis(10));
    }
    have(0..50, 0..0);
    let withdraw = |numbers: std::ops::Range<usize>| {
        let gone = numbers.map(|number| Change::of(&shard(number).parse().unwrap(), Origin::Objects, What::Withdraw));
        primary.zones.publish(gone);
    };
    withdraw(0..25);
    have(25..50, 0..25);
    withdraw(45..50);
    have(25..45, 45..50);
    // Some come back while they are down. (Knot 3.2 can keep a member that goes while it is down.) Others are deleted and created again,
    // with the same ID: the copies are replaced, because the new serial is later.
    drop(servers);
    publish(0..5);
    withdraw(25..30);
    let zone = || primary.catalog.zone().expect("it is published");
    eventually("the catalog is without them", here, || zone().contents().owner_count() == 2 + 2 * 20);
    publish(25..30);
    for number in 25..30 {
        let rrset =
            Rrset { rtype: RecordType::A, ttl: Ttl::new(300).unwrap(), rdata: vec![Rdata::from([192, 0, 2, 9])] };
        let change = OwnerChange {
            owner: format!("new.{}", shard(number)).parse().unwrap(),
            rrsets: vec![rrset],
            weights: Vec::new(),
        };
        let what = What::Owners { changes: vec![change], serial: Serial(2030) };
        primary.zones.publish([Change::of(&shard(number).parse().unwrap(), Origin::Objects, what)]);
    }
    eventually("the catalog has them", here, || zone().contents().owner_count() == 2 + 2 * 25);
    let _servers = start_all();
    have(0..5, 45..50);
    have(30..45, 5..25);
    for (address, number) in addresses.iter().flat_map(|address| (25..30).map(move |number| (*address, number))) {
        eventually(&format!("{address} has the new {}", shard(number)), here, || {
            serial_of(address, &shard(number)) == Some(2030)
        });
    }
    let key = format!("hmac-sha256:transfer.example:{}", key().secret_text());
    let with_key: &[&str] = if signs { &["-y", &key] } else { &[] };
    let ask = |arguments: &[&str]| dig(primary.address, &[with_key, arguments].concat());
    assert_eq!(ask(&[CATALOG, "AXFR"]).matches("PTR s").count(), 25);
    let answer = ask(&["version.catalog.invalid.", "TXT"]);
    assert!(answer.contains("status: REFUSED"), "{answer}");
    if !signs {
        return;
    }
    // Others get nothing of it.
    for (arguments, expected) in [
        (&[CATALOG, "SOA"][..], "status: REFUSED"),
        (&[CATALOG, "NS"], "status: REFUSED"),
        (&["version.catalog.invalid.", "TXT"], "status: REFUSED"),
        (&[CATALOG, "AXFR"], "Transfer failed"),
    ] {
        let answer = dig(primary.address, arguments);
        assert!(answer.contains(expected), "{arguments:?}: {answer}");
    }
}

/// RFC 8945 §5.2, as `dig` and `kdig` see it: another key, another algorithm, another secret, a truncated MAC, and another time.
#[test]
fn clients_see_the_errors_of_signatures() {
    let primary = Primary::start(&[], true);
    primary.publish(&zone_of("a A 192.0.2.1"));
    let secret = key().secret_text();
    let port = primary.address.port().to_string();
    let ask = |with_key: &str, arguments: &[&str]| dig(primary.address, &[&["-y", with_key], arguments].concat());
    let good = format!("hmac-sha256:transfer.example:{secret}");
    let answer = ask(&good, &["a.z.test", "A"]);
    assert!(
        answer.contains("status: NOERROR") && answer.contains("TSIG PSEUDOSECTION") && answer.contains("192.0.2.1"),
        "{answer}"
    );
    assert!(!answer.contains("verify"), "{answer}");
    for (with_key, expected) in [
        (format!("hmac-sha256:other.example:{secret}"), "BADKEY"),
        (format!("hmac-sha512:transfer.example:{secret}"), "BADKEY"),
        (format!("hmac-md5:transfer.example:{secret}"), "BADKEY"),
        ("hmac-sha256:transfer.example:AAAA".to_owned(), "BADSIG"),
        // A truncated MAC.
        (format!("hmac-sha256-128:transfer.example:{secret}"), "BADTRUNC"),
    ] {
        let answer = ask(&with_key, &["a.z.test", "A"]);
        assert!(answer.contains("status: NOTAUTH") && answer.contains(expected), "{with_key}: {answer}");
    }
    for clock in ["-10m", "+10m"] {
        let arguments = ["-f", clock, "kdig", "@127.0.0.1", "-p", &port, "-y", &good, "a.z.test", "A"];
        let output = Command::new("faketime").args(arguments).output().expect("faketime is installed");
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(answer.contains("status: BADTIME") && !answer.contains("192.0.2.1"), "{clock}: {answer}");
    }
    // Without and with the key, for a transfer.
    let refused = dig(primary.address, &["z.test", "AXFR", "+noall", "+answer", "+comments"]);
    assert!(refused.contains("Transfer failed"), "{refused}");
    let kdig = Command::new("kdig")
        .args(["@127.0.0.1", "-p", &port, "-y", &good, "z.test", "AXFR"])
        .output()
        .expect("kdig is installed");
    let answer = String::from_utf8_lossy(&kdig.stdout);
    assert!(answer.contains("192.0.2.1") && !answer.contains("failed"), "{answer}");
}
