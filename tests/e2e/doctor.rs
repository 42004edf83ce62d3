//! The doctor at a delegation that is built of other makers' servers: one that is as it should be, and one that is
//! broken in every way. The root is Knot's, the parent NSD's, the resolver Unbound; of the platform's two name servers
//! one is BIND's where it must do what ours never does.
//!
//! Each server has a loopback address of its own, and all of them one port.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use signpost_testing::peers::{Peer, unbound};
use signpost_testing::{Ports, Process, Server, eventually, free_address, program, try_dig};

const ROOT: &str = "127.0.0.10";
const PARENT: &str = "127.0.0.11";
const NS1: &str = "127.0.0.12";
const NS2: &str = "127.0.0.13";
const RESOLVER: &str = "127.0.0.14";
/// BIND listens on 127.0.0.0/8 only on the interface's address.
const BIND: &str = "127.0.0.1";
/// An address without a listener.
const NOBODY: &str = "127.0.0.19";

const NAME_SERVERS: &str = "@ NS ns1.apps.example.\n@ NS ns2.apps.example.\n";

fn zone(serial: u32, rest: &str) -> String {
    format!("$TTL 60\n@ SOA ns1.apps.example. hostmaster.apps.example. {serial} 3600 600 86400 60\n{rest}")
}

/// A directory, and the port of all servers.
struct Stage {
    folder: TempDir,
    port: u16,
    daemons: Vec<Process>,
    ours: Vec<Server>,
}

impl Stage {
    /// Returns the root and the parent, whose zone has `delegation`.
    fn new(delegation: &str) -> Stage {
        let (folder, port) = (TempDir::new().expect("a temporary directory"), free_address().port());
        let mut stage = Stage { folder, port, daemons: Vec::new(), ours: Vec::new() };
        let root = format!(
            "$TTL 60\n. SOA a.root. hostmaster.root. 1 3600 600 86400 60\n. NS a.root.\na.root. A {ROOT}\nexample. NS \
             ns.example.\nns.example. A {PARENT}\n"
        );
        stage.knot(ROOT, ".", &root);
        let parent = format!("$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A {PARENT}\n{delegation}");
        stage.nsd(PARENT, "example.", &parent);
        fs::write(stage.path().join("hints"), format!(". 60 NS a.root.\na.root. 60 A {ROOT}\n")).expect("written");
        stage
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, folder: &str, zones: &[(&str, &str)]) -> String {
        let folder = self.path().join(folder);
        fs::create_dir_all(&folder).expect("made");
        for (apex, text) in zones {
            fs::write(folder.join(format!("{}.zone", apex.trim_end_matches('.'))), text).expect("written");
        }
        folder.to_str().expect("temporary paths are UTF-8").to_owned()
    }

    fn at(&self, address: &str) -> SocketAddr {
        format!("{address}:{}", self.port).parse().expect("an address")
    }

    /// Starts a peer at an address with these zones, and waits until it serves them.
    fn peer(&mut self, address: &str, more: &str, zones: &[(&str, &str)], start: fn(&Peer) -> Process) {
        let folder = self.write(address, zones);
        let (folder, listen) = (Path::new(&folder), self.at(address));
        let apexes: Vec<&str> = zones.iter().map(|(apex, _)| *apex).collect();
        self.daemons.push(start(&Peer { listen, folder, zones: folder, apexes: &apexes, more }));
        zones.iter().for_each(|(apex, _)| self.wait(address, apex));
    }

    fn named(&mut self, address: &str, options: &str, zones: &[(&str, &str)]) {
        self.peer(address, options, zones, |peer| peer.named());
    }

    fn knot(&mut self, address: &str, apex: &str, text: &str) {
        self.peer(address, "", &[(apex, text)], |peer| peer.knot());
    }

    fn nsd(&mut self, address: &str, apex: &str, text: &str) {
        self.peer(address, "", &[(apex, text)], |peer| peer.nsd());
    }

    fn signpost(&mut self, address: &str, zones: &[(&str, &str)]) {
        let folder = self.write(address, zones);
        let ports = Ports { dns: self.at(address), api: free_address(), admin: free_address() };
        self.ours.push(Server::start(ports, &["--roles", "dns,admin", "--zones", &folder]));
    }

    /// A resolver that finds these zones at `server`.
    fn unbound(&mut self, server: &str, zones: &[&str]) {
        let folder = self.write(RESOLVER, &[]);
        let stubs: Vec<_> = zones.iter().map(|zone| (*zone, self.at(server))).collect();
        self.daemons.push(unbound(self.at(RESOLVER), Path::new(&folder), &stubs));
        self.wait(RESOLVER, zones[0]);
    }

    fn wait(&self, address: &str, apex: &str) {
        let server = self.at(address);
        eventually(&format!("{address} serves {apex}"), || {
            try_dig(server, apex, "SOA", &["+recurse"]).filter(|response| response.serial().is_some())
        });
    }

    /// Runs without an API, and without a user's settings.
    fn alone<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.current_dir(self.path()).env_remove("KUBECONFIG").env("HOME", self.path())
    }

    /// Runs the doctor; its exit code and its report.
    fn doctor(&self, more: &[&str]) -> (i32, Value) {
        let (port, hints) = (self.port.to_string(), self.path().join("hints"));
        let mut command = Command::new(program());
        command.args(["doctor", "--domain", "apps.example", "--port", &port, "--output", "json", "--timeout", "20"]);
        command.args(["--shard", "shard1.apps.example", "--private"]).args(more);
        if !more.contains(&"--parent") {
            command.arg("--root").arg(hints);
        }
        let output = self.alone(&mut command).output().expect("the program runs");
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{errors}"));
        (output.status.code().expect("it exits"), report)
    }
}

/// Returns the findings that are not good, as `severity code subject`.
fn found(report: &Value) -> BTreeSet<String> {
    let findings = report["findings"].as_array().expect("a list").iter();
    let bad = findings.filter(|finding| finding["severity"] != "good");
    let text = |finding: &Value, field: &str| finding[field].as_str().expect("text").to_owned();
    bad.map(|finding| format!("{} {}", text(finding, "severity"), text(finding, "code"))).collect()
}

/// Returns the records that the finding with this code wants added (or removed).
fn records<'a>(report: &'a Value, code: &str, what: &str) -> Vec<&'a str> {
    let findings = report["findings"].as_array().expect("a list").iter();
    let of_code = findings.filter(|finding| finding["code"] == code);
    let lists = of_code.filter_map(|finding| finding[what].as_array());
    lists.flatten().map(|record| record.as_str().expect("text")).collect()
}

#[test]
fn a_good_delegation_is_found_good() {
    let glue = format!("ns1.apps A {NS1}\nns2.apps A {NS2}\n");
    let mut stage = Stage::new(&format!("apps NS ns1.apps\napps NS ns2.apps\n{glue}"));
    let apps = zone(7, &format!("{NAME_SERVERS}ns1 A {NS1}\nns2 A {NS2}\n"));
    let alias = zone(3, &format!("{NAME_SERVERS}shop-web CNAME shop-web.shard1.apps.example.\n"));
    let shard = zone(4, &format!("{NAME_SERVERS}* A 203.0.113.7\n"));
    let shop = zone(1, &format!("{NAME_SERVERS}www CNAME shop-web.routes.apps.example.\nold A 203.0.113.99\n"));
    let zones = [
        ("apps.example", apps.as_str()),
        ("routes.apps.example", &alias),
        ("shard1.apps.example", &shard),
        ("shop.test", &shop),
    ];
    stage.signpost(NS1, &zones);
    stage.signpost(NS2, &zones);
    stage.unbound(NS1, &["apps.example.", "shop.test."]);
    let (ns1, ns2) = (format!("ns1.apps.example={NS1}"), format!("ns2.apps.example={NS2}"));
    let expected = ["--nameserver", &ns1, "--nameserver", &ns2];

    let (code, report) = stage.doctor(&expected);
    assert_eq!(found(&report), BTreeSet::new(), "{report:#}");
    assert_eq!((code, &report["errors"], &report["warnings"]), (0, &Value::from(0), &Value::from(0)));

    // From a given parent, and without a configuration, it is the same.
    let parent = format!("{PARENT}:{}", stage.port);
    assert_eq!(found(&stage.doctor(&["--parent", &parent]).1), BTreeSet::new());

    let resolver = format!("{RESOLVER}:{}", stage.port);
    let host = |name: &str| {
        stage.doctor(&["--name", name, "--target", "shop-web.routes.apps.example", "--resolver", &resolver])
    };
    let (code, report) = host("www.shop.test");
    assert_eq!((code, found(&report)), (0, BTreeSet::new()), "{report:#}");
    let (code, report) = host("new.shop.test");
    assert_eq!((code, found(&report)), (1, ["error host-missing".to_owned()].into()), "{report:#}");
    let wanted = "new.shop.test. 300 IN CNAME shop-web.routes.apps.example.";
    assert_eq!(records(&report, "host-missing", "add"), [wanted]);
    let (code, report) = host("old.shop.test");
    assert_eq!((code, found(&report)), (0, ["warning host-addresses".to_owned()].into()), "{report:#}");
    assert_eq!(stage.doctor(&["--strict", "--name", "old.shop.test", "--resolver", &resolver]).0, 1);
}

#[test]
fn a_broken_delegation_is_found_broken_with_the_records_that_mend_it() {
    // The parent has an old address of ns1, no glue of ns2, a server that was given up, and not the third.
    let glue = format!("ns1.apps A {BIND}\nns9.apps A {NOBODY}\n");
    let mut stage = Stage::new(&format!("apps NS ns1.apps\napps NS ns2.apps\napps NS ns9.apps\n{glue}"));
    let servers = format!("{NAME_SERVERS}@ NS ns3.apps.example.\nns1 A {NS1}\nns2 A {BIND}\nns3 A {NOBODY}\n");
    let apps = zone(7, &servers);
    let shard = zone(4, &format!("{NAME_SERVERS}* A 203.0.113.7\n"));
    let alias = zone(3, NAME_SERVERS);
    stage.signpost(NS1, &[("apps.example", &apps), ("routes.apps.example", &alias), ("shard1.apps.example", &shard)]);
    // It is behind, gives recursion and the whole zone to everyone, has a shard without wildcard, and no alias zone.
    let (behind, bare) = (zone(6, &servers), zone(4, NAME_SERVERS));
    let options = "recursion yes; allow-recursion { any; }; allow-query { any; }; allow-transfer { any; };";
    stage.named(BIND, options, &[("apps.example", &behind), ("shard1.apps.example", &bare)]);
    let expected: Vec<String> = [("ns1", NS1), ("ns2", BIND), ("ns3", NOBODY)]
        .map(|(name, address)| format!("{name}.apps.example={address}"))
        .into();
    let flags: Vec<&str> = expected.iter().flat_map(|server| ["--nameserver", server]).collect();

    let (code, report) = stage.doctor(&flags);
    let wanted = [
        "error glue-missing",
        "error glue-wrong",
        "error ns-missing",
        "error udp-silent",
        "error wildcard-missing",
        "error zone-missing",
        "warning ns-extra",
        "warning recursion",
        "warning serials-differ",
        "warning transfer-open",
    ];
    assert_eq!(found(&report), wanted.map(str::to_owned).into(), "{report:#}");
    assert_eq!(code, 1);
    assert_eq!(records(&report, "glue-missing", "add"), [format!("ns2.apps.example. 3600 IN A {BIND}")]);
    assert_eq!(records(&report, "glue-wrong", "add"), [format!("ns1.apps.example. 3600 IN A {NS1}")]);
    assert_eq!(records(&report, "glue-wrong", "remove"), [format!("ns1.apps.example. 3600 IN A {BIND}")]);
    let third =
        ["apps.example. 3600 IN NS ns3.apps.example.".to_owned(), format!("ns3.apps.example. 3600 IN A {NOBODY}")];
    assert_eq!(records(&report, "ns-missing", "add"), third);
    assert_eq!(records(&report, "ns-extra", "remove"), ["apps.example. 3600 IN NS ns9.apps.example."]);

    // A domain without any delegation gets the whole delegation; loopback addresses are reported where they are a mistake.
    let hints = stage.path().join("hints");
    let mut command = Command::new(program());
    command.args(["doctor", "--domain", "new.example", "--nameserver", &format!("ns1.new.example={NS1}"), "--root"]);
    command.arg(hints).args(["--port", &stage.port.to_string(), "--timeout", "20"]);
    let output = stage.alone(&mut command).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    for part in [
        "[delegation-missing]\n",
        "it cannot delegate to ns1.new.example.",
        "is a loopback address",
        "[not-authoritative]",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("           add "), "what is wrong elsewhere is not recommended:\n{text}");
    let output = stage.alone(command.arg("--private")).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    for part in [
        "[delegation-missing]\n           add     new.example. 3600 IN NS ns1.new.example.\n",
        &format!("           add     ns1.new.example. 3600 IN A {NS1}\n"),
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
