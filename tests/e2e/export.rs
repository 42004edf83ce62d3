//! `signpost zone export` writes master files that other name servers load, and that answer the same there.

use std::path::Path;

use crate::platform::{Promise, apply_example};
use signpost_testing::dig::Response;
use signpost_testing::peers::Peer;
use signpost_testing::program::ok;
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, free_address, try_dig};

const ZONES: [&str; 5] = [
    "v3.rhcloud.com",
    "routes.v3.rhcloud.com",
    "shard1.v3.rhcloud.com",
    "shard2.v3.rhcloud.com",
    "shard3.v3.rhcloud.com",
];

/// Returns a response with what may differ taken out: the order of sets, and the additional section, which is optional.
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
    let kubeconfig = data.file("kubeconfig");
    let arguments = ["zone", "export", "--kubeconfig", &kubeconfig, "--domain", "v3.rhcloud.com"];
    ok(&[&arguments[..], &["--dns-listen", &dns, "--out", exported.path()]].concat());

    let [knot, nsd] = [free_address(), free_address()];
    let folders = [DataDir::new(), DataDir::new()];
    let zones = Path::new(exported.path());
    let [in_knot, in_nsd] = folders.each_ref().map(|folder| Path::new(folder.path()));
    let peer = |listen, folder| Peer { listen, folder, zones, apexes: &ZONES, more: "" };
    let _peers = [peer(knot, in_knot).knot(), peer(nsd, in_nsd).nsd()];
    for (name, peer) in [("knot", knot), ("nsd", nsd)] {
        eventually(name, || {
            (try_dig(peer, "v3.rhcloud.com", "SOA", &["+tries=1", "+time=1"])?.status == "NOERROR").then_some(())
        });
        for (qname, qtype) in questions(&scheduled) {
            let theirs = eventually(name, || try_dig(peer, &qname, qtype, &[]));
            let ours = try_dig(server.dns, &qname, qtype, &[]).expect("ours answers");
            assert_eq!(comparable(ours), minimal(comparable(theirs)), "{name}: {qname} {qtype}");
        }
    }
}

/// NSD adds the zone's NS to positive answers, which RFC 1034 §4.3.2 leaves open; Signpost's are minimal. NSD also follows a
/// CNAME into another zone that it serves, and returns NODATA there with that zone's SOA; Signpost stops at the end of the zone.
fn minimal(mut response: Response) -> Response {
    if response.answer.last().is_some_and(|record| record.rtype == "CNAME") {
        response.authority.clear();
    } else if !response.answer.is_empty() {
        response.authority.retain(|record| record.rtype != "NS");
    }
    response
}
