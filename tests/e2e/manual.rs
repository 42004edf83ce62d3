//! Manual zones: the proposal's own two zone files and their parent, with no API and no state.

use signpost_testing::{DataDir, Ports, Server, dig, eventually, root, try_dig};

#[test]
fn the_proposals_zone_files_are_served_verbatim() {
    let zones = DataDir::new();
    let proposal = root().join("crates/dns/tests/zonefile/proposal");
    for (file, folder) in
        [("shard1.zone", &proposal), ("shard2.zone", &proposal), ("v3.rhcloud.com.zone", &root().join("zones"))]
    {
        std::fs::copy(folder.join(file), zones.join(file)).expect("copied");
    }
    let server = Server::start(Ports::free(), &["--roles", "dns,admin", "--zones", zones.path()]);

    for (shard, addresses) in [("shard1", ["10.245.2.2", "10.245.2.3"]), ("shard2", ["10.245.2.4", "10.245.2.5"])] {
        let name = format!("myapp-test.{shard}.v3.rhcloud.com");
        let response = dig(server.dns, &name, "A", &[]);
        assert_eq!((response.status.as_str(), response.sorted("A")), ("NOERROR", addresses.to_vec()));
        assert!(response.flags.contains(&"aa".to_owned()));
        let response = dig(server.dns, &name, "AAAA", &[]);
        assert_eq!((response.status.as_str(), response.answer.len()), ("NOERROR", 0), "NODATA, never NXDOMAIN");
        assert_eq!(response.authority[0].rtype, "SOA");
        // The proposal's SOA: MINIMUM is 300, and no $TTL is there.
        assert_eq!(response.authority[0].ttl, 300);
        assert_eq!(dig(server.dns, &name, "A", &["+tcp"]).sorted("A"), addresses.to_vec());
        assert_eq!(dig(server.dns, &format!("{shard}.v3.rhcloud.com"), "SOA", &[]).serial(), Some(2_009_092_001));
    }
    assert_eq!(dig(server.dns, "www.example.com", "A", &[]).status, "REFUSED");
    assert_eq!(dig(server.dns, "nothing.v3.rhcloud.com", "A", &[]).status, "NXDOMAIN");
    for expected in ["shard1.zone", "loopback", "soa-mname-root"] {
        eventually(&format!("the log warns of {expected}"), || server.log().contains(expected).then_some(()));
    }
    assert!(server.terminate().success());
}

#[test]
fn a_reload_takes_what_changed_and_keeps_the_last_good() {
    let folder = DataDir::new();
    let zone = |serial: u32, address: &str| {
        format!("$TTL 60\n@ SOA ns hostmaster {serial} 3600 600 86400 30\n@ NS ns\nns A 192.0.2.53\n* A {address}\n")
    };
    std::fs::write(folder.join("a.example.zone"), zone(1, "192.0.2.1")).expect("written");
    std::fs::write(folder.join("b.example.zone"), zone(1, "192.0.2.2")).expect("written");
    let server = Server::start(Ports::free(), &["--roles", "dns,admin", "--zones", folder.path()]);
    let address_of = |name: &str| {
        let response = try_dig(server.dns, name, "A", &[])?;
        Some(format!("{} {}", response.status, response.data("A").join(" ")))
    };
    assert_eq!(address_of("x.a.example").as_deref(), Some("NOERROR 192.0.2.1"));

    // One changed, one broken, one new.
    std::fs::write(folder.join("a.example.zone"), zone(2, "192.0.2.11")).expect("written");
    std::fs::write(
        folder.join("b.example.zone"),
        "$TTL 60\n@ SOA ns hostmaster 2 3600 600 86400 30\n@ NS ns\n* A 192.0.2.300\n",
    )
    .expect("written");
    std::fs::write(folder.join("c.example.zone"), zone(1, "192.0.2.3")).expect("written");
    server.signal("HUP");
    eventually("the changed zone is served", || (address_of("x.a.example")? == "NOERROR 192.0.2.11").then_some(()));
    eventually("the new zone is served", || (address_of("x.c.example")? == "NOERROR 192.0.2.3").then_some(()));
    assert_eq!(address_of("x.b.example").as_deref(), Some("NOERROR 192.0.2.2"), "the broken file replaces nothing");
    eventually("the error names file, line and column", || server.log().contains("b.example.zone:4:5").then_some(()));

    std::fs::remove_file(folder.join("c.example.zone")).expect("removed");
    server.signal("HUP");
    eventually("the removed zone is gone", || {
        (try_dig(server.dns, "x.c.example", "A", &[])?.status == "REFUSED").then_some(())
    });
}

#[test]
fn a_broken_file_at_the_start_is_servfail_and_others_serve() {
    let folder = DataDir::new();
    std::fs::write(folder.join("good.example.zone"), "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n")
        .expect("written");
    std::fs::write(folder.join("bad.example.zone"), "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A nonsense\n")
        .expect("written");
    let server = Server::start(Ports::free(), &["--roles", "dns,admin", "--zones", folder.path()]);
    assert_eq!(dig(server.dns, "ns.good.example", "A", &[]).status, "NOERROR");
    assert_eq!(dig(server.dns, "ns.bad.example", "A", &[]).status, "SERVFAIL");
    eventually("the log names it", || server.log().contains("bad.example.zone:4:6").then_some(()));
}
