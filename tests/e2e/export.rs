//! `signpost zone export` writes master files that other name servers load, and that answer the same there.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::platform::{Promise, apply_example};
use crate::server::{DataDir, Ports, Server, eventually, free_address, program};
use crate::tools::{Kubectl, Response, try_dig};

const ZONES: [&str; 5] = [
    "v3.rhcloud.com",
    "routes.v3.rhcloud.com",
    "shard1.v3.rhcloud.com",
    "shard2.v3.rhcloud.com",
    "shard3.v3.rhcloud.com",
];

/// Another name server. Dropping it ends it.
pub struct Peer {
    child: Child,
    pub dns: SocketAddr,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn knot(folder: &DataDir, zones: &Path) -> Peer {
    let dns = free_address();
    let folder = folder.path();
    let mut configuration = format!(
        "server:\n  listen: {}@{}\n  rundir: {folder}\n  user: root\ndatabase:\n  storage: {folder}/db\nzone:\n",
        dns.ip(),
        dns.port(),
    );
    for zone in ZONES {
        configuration +=
            &format!("  - domain: {zone}\n    file: {}/{zone}.zone\n    zonefile-sync: -1\n", zones.display());
    }
    let path = Path::new(folder).join("knot.conf");
    std::fs::write(&path, configuration).expect("written");
    spawn("knotd", &["-c", path.to_str().expect("UTF-8")], dns)
}

fn nsd(folder: &DataDir, zones: &Path) -> Peer {
    let dns = free_address();
    let mut configuration = format!(
        "server:\n  ip-address: {}@{}\n  server-count: 1\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  pidfile: \"\"\n  \
         zonesdir: \"{2}\"\n  xfrdfile: \"{2}/xfrd.state\"\n  zonelistfile: \"{2}/zone.list\"\n  xfrdir: \"{2}\"\n\
         remote-control:\n  control-enable: no\n",
        dns.ip(),
        dns.port(),
        folder.path(),
    );
    for zone in ZONES {
        configuration += &format!("zone:\n  name: \"{zone}\"\n  zonefile: \"{}/{zone}.zone\"\n", zones.display());
    }
    let path = folder.join("nsd.conf");
    std::fs::write(&path, configuration).expect("written");
    spawn("nsd", &["-d", "-c", path.to_str().expect("UTF-8")], dns)
}

/// Starts another name server, which is to listen on `dns`.
pub fn spawn(program: &str, arguments: &[&str], dns: SocketAddr) -> Peer {
    let child =
        Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Peer {
        child: child
            .unwrap_or_else(|error| panic!("{program} is installed by the test command of the README: {error}")),
        dns,
    }
}

/// A response with what may differ taken out: the order of sets, and the additional section, which is optional.
fn comparable(mut response: Response) -> Response {
    response.answer.sort();
    response.authority.sort();
    response.additional.clear();
    response
}

fn questions(scheduled: &[Promise]) -> Vec<(String, &'static str)> {
    let mut questions = Vec::new();
    for zone in ZONES {
        questions.extend([
            (zone.to_owned(), "SOA"),
            (zone.to_owned(), "NS"),
            (format!("absent.{zone}"), "MX"),
            (format!("a.b.{zone}"), "A"),
        ]);
    }
    for promise in scheduled {
        questions.extend([
            (promise.system.clone(), "A"),
            (promise.system.clone(), "AAAA"),
            (promise.system.clone(), "TXT"),
        ]);
        questions.extend([(promise.alias.clone(), "CNAME"), (promise.alias.clone(), "TXT")]);
    }
    questions
}

#[test]
fn knot_and_nsd_load_the_export_and_answer_the_same() {
    let data = DataDir::new();
    let server = Server::start(Ports::free(), &["--data-dir", data.path(), "--domain", "v3.rhcloud.com"]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let (scheduled, _) = apply_example(&kubectl);
    eventually("the aliases are published", || {
        let published =
            |promise: &Promise| !try_dig(server.dns, &promise.alias, "CNAME", &[]).is_some_and(|r| r.answer.is_empty());
        scheduled.iter().all(published).then_some(())
    });

    let exported = DataDir::new();
    let dns = server.dns.to_string();
    let output = Command::new(program())
        .args(["zone", "export", "--kubeconfig"])
        .arg(data.join("kubeconfig"))
        .args(["--domain", "v3.rhcloud.com", "--dns-listen", &dns, "--out", exported.path()])
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let folders = [DataDir::new(), DataDir::new()];
    let zones = exported.join("");
    for (name, peer) in [("knot", knot(&folders[0], &zones)), ("nsd", nsd(&folders[1], &zones))] {
        eventually(name, || {
            (try_dig(peer.dns, "v3.rhcloud.com", "SOA", &["+tries=1", "+time=1"])?.status == "NOERROR").then_some(())
        });
        for (qname, qtype) in questions(&scheduled) {
            let theirs = eventually(name, || try_dig(peer.dns, &qname, qtype, &[]));
            let ours = try_dig(server.dns, &qname, qtype, &[]).expect("ours answers");
            assert_eq!(comparable(ours), minimal(comparable(theirs)), "{name}: {qname} {qtype}");
        }
    }
}

/// NSD adds the zone's NS to positive answers, which RFC 1034 §4.3.2 leaves open; ours are minimal. It also follows a CNAME
/// into another zone that it serves, and tells of no data there with that zone's SOA; ours ends where the zone ends.
fn minimal(mut response: Response) -> Response {
    if response.answer.last().is_some_and(|record| record.rtype == "CNAME") {
        response.authority.clear();
    } else if !response.answer.is_empty() {
        response.authority.retain(|record| record.rtype != "NS");
    }
    response
}
