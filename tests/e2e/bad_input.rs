//! Bad input from people: each a clear, located error; nothing lost, nothing half-applied.

use std::net::UdpSocket;
use std::process::Command;

use crate::platform::example;
use signpost_testing::program::run;
use signpost_testing::{DataDir, Kubectl, PATIENCE, Ports, Server, dig, eventually, root};

/// Runs the program to its end with these arguments and returns its exit code and its error messages.
fn fails(arguments: &[&str]) -> (i32, String) {
    let ran = run(arguments);
    assert_ne!(ran.code, Some(0), "{arguments:?} should fail");
    (ran.code.expect("it was not killed"), ran.err + &ran.out)
}

#[test]
fn manifests_that_are_wrong_are_refused_with_their_paths() {
    let data = DataDir::new();
    let _server = Server::start(Ports::free(), &["--data-dir", data.path(), "--domain", "v3.rhcloud.com"]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let router =
        |spec: &str| format!("apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {{name: r}}\nspec: {spec}\n");
    let route = |spec: &str| {
        format!(
            "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {{name: r, namespace: default}}\nspec: {spec}\n"
        )
    };
    for (manifest, expected) in [
        (router("{addresses: [{ip: 192.0.2.300}]}"), "spec.addresses[0].ip"),
        (router("{addresses: [{ip: 192.0.2.1}, {ip: 192.0.2.1}]}"), "spec.addresses[1]"),
        (router("{ttl: soon}"), "spec.ttl"),
        (router("{mode: sometimes}"), "spec.mode"),
        (router("{dns: not..a.name}"), "spec.dns"),
        (router("{bogus: 1}"), "spec.bogus"),
        (router("{capacity: {soft: 5, hard: 2}}"), "spec.capacity"),
        (route("{host: www.example.com.}"), "spec.host"),
        (route("{host: mine.v3.rhcloud.com}"), "spec.host"),
        (route("{subdomain: a.b}"), "spec.subdomain"),
        (route("{path: shop}"), "spec.path"),
        (route("{to: {nmae: x}}"), "nmae"),
        (route("{}\nstatus: {phase: scheduled}"), "status"),
    ] {
        let complaint = kubectl.refused(&["create", "-f", "-"], &manifest);
        assert!(complaint.contains(expected), "{manifest} gave {complaint}");
    }
    assert!(
        kubectl.ok(&["get", "signpost", "-A", "-o", "name"]).lines().all(|line| line.starts_with("zone")),
        "nothing was stored"
    );
}

/// A FIFO may never have a writer, a device no end: neither is waited for.
#[test]
fn a_zone_file_that_is_no_file_is_refused_at_once() {
    let folder = DataDir::new();
    let fifo = folder.join("example.org.zone");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("it runs").success());
    let fifo = fifo.display().to_string();
    for file in [fifo.as_str(), "/dev/zero"] {
        let (_, complaint) = fails(&["check", "zone", file]);
        assert!(complaint.contains("it is not a regular file"), "{complaint}");
    }
}

#[test]
fn a_bad_manifest_folder_applies_nothing() {
    let data = DataDir::new();
    let folder = DataDir::new();
    std::fs::write(folder.join("1-good.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: good}\n")
        .expect("written");
    let bad =
        "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: bad}\nspec: {addresses: [{ip: nowhere}]}\n";
    std::fs::write(folder.join("2-bad.yaml"), bad).expect("written");
    let ports = Ports::free();
    let mut server = Server::spawn(ports, &["--data-dir", data.path(), "--manifests", folder.path()]);
    assert!(!server.wait().success());
    let log = server.log();
    assert!(log.contains("2-bad.yaml") && log.contains("spec.addresses[0].ip"), "{log}");
    let _server = Server::start(ports, &["--data-dir", data.path()]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    assert!(!kubectl.ok(&["get", "namespaces"]).contains("good"), "nothing is half-applied");
}

#[test]
fn settings_that_are_wrong_are_refused() {
    let folder = DataDir::new();
    let config = folder.join("signpost.toml");
    let path = config.to_str().expect("UTF-8");
    std::fs::write(&config, "domain = \"v3.example\"\ndns.lissten = [\"127.0.0.1:0\"]\n").expect("written");
    let (code, complaint) = fails(&["serve", "--config", path]);
    assert_eq!(code, 2, "{complaint}");
    assert!(complaint.contains("signpost.toml:2") && complaint.contains("dns.listen"), "{complaint}");
    let (_, complaint) = fails(&["serve", "--data-dir", folder.path(), "--dns-listen", "127.0.0.1:99999"]);
    assert!(complaint.contains("--dns-listen"), "{complaint}");
}

#[test]
fn ports_and_directories_in_use_are_named() {
    let data = DataDir::new();
    let ports = Ports::free();
    let _server = Server::start(ports, &["--data-dir", data.path()]);
    let mut second = Server::spawn(Ports::free(), &["--data-dir", data.path()]);
    assert!(!second.wait().success());
    assert!(second.log().contains(data.path()) && second.log().contains("in use"), "{}", second.log());

    for (which, taken) in
        [("dns", Ports { dns: ports.dns, ..Ports::free() }), ("api", Ports { api: ports.api, ..Ports::free() })]
    {
        let other = DataDir::new();
        let mut server = Server::spawn(taken, &["--data-dir", other.path()]);
        assert!(!server.wait().success());
        let address = if which == "dns" { ports.dns } else { ports.api };
        assert!(server.log().contains(&address.to_string()) && server.log().contains("in use"), "{}", server.log());
    }
}

#[test]
fn one_apex_is_never_served_from_two_sources() {
    let data = DataDir::new();
    let zones = DataDir::new();
    let zone = "$TTL 60\n@ SOA ns1 h 7 2 3 4 5\n@ NS ns1\nns1 A 192.0.2.53\n* A 192.0.2.99\n";
    std::fs::write(zones.join("shard1.v3.rhcloud.com.zone"), zone).expect("written");
    let arguments =
        ["--data-dir", data.path(), "--domain", "v3.rhcloud.com", "--zones", zones.path(), "--manifests", &example()];
    let server = Server::start(Ports::free(), &arguments);
    let answer = eventually("the static zone is served", || {
        Some(dig(server.dns, "x.shard1.v3.rhcloud.com", "A", &[])).filter(|response| response.status == "NOERROR")
    });
    assert_eq!(answer.data("A"), ["192.0.2.99"], "the file and the Router are never mixed");
    eventually("the clash names the file and the Router", || {
        let log = server.log();
        log.lines().any(|line| line.contains("shard1.v3.rhcloud.com.zone") && line.contains("Router")).then_some(())
    });
}

#[test]
fn malformed_packets_get_formerr_or_nothing_and_harm_nobody() {
    let zones = root().join("zones");
    let server = Server::start(Ports::free(), &["--roles", "dns,admin", "--zones", zones.to_str().expect("UTF-8")]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    socket.connect(server.dns).expect("loopback");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // What comes for the packet before what comes for a good query that is sent after it: nothing, where that is the first.
    let good = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x01x\x06shard1\x02v3\x07rhcloud\x03com\0\0\x01\0\x01";
    let ask = |packet: &[u8]| {
        socket.send(packet).expect("loopback");
        socket.send(good).expect("loopback");
        let mut answer = [0; 512];
        let mut next = || {
            let length = socket.recv(&mut answer).expect("a good query is answered");
            answer[..length].to_vec()
        };
        let first = next();
        let is_good = |answer: &[u8]| answer.starts_with(&good[..2]);
        if is_good(&first) {
            return None;
        }
        assert!(is_good(&next()), "one answer to one packet");
        Some(first)
    };
    let header = |flags: u8, questions: u8| [0xab, 0xcd, flags, 0, 0, questions, 0, 0, 0, 0, 0, 0].to_vec();
    let rcode = |answer: Option<Vec<u8>>| answer.map(|octets| octets[3] & 0x0f);
    let with = |mut head: Vec<u8>, tail: &[u8]| {
        head.extend_from_slice(tail);
        head
    };
    for (what, packet, expected) in [
        ("shorter than a header", vec![0xab, 0xcd], None),
        ("a response", with(header(0x80, 1), b"\x00\x00\x01\x00\x01"), None),
        ("no question", header(0, 0), Some(1)),
        ("two questions", with(header(0, 2), b"\x00\x00\x01\x00\x01\x00\x00\x01\x00\x01"), Some(1)),
        ("a pointer as the question", with(header(0, 1), b"\xc0\x0c\x00\x01\x00\x01"), Some(1)),
        ("a name past the end", with(header(0, 1), b"\x3fabc"), Some(1)),
        ("an unknown opcode", with(header(0x78, 1), b"\x00\x00\x01\x00\x01"), Some(4)),
    ] {
        assert_eq!(rcode(ask(&packet)), expected, "{what}");
    }
    assert_eq!(dig(server.dns, "x.shard1.v3.rhcloud.com", "A", &[]).status, "NOERROR");
}
