//! `signpost zone export` writes master files that other name servers load, and that answer the same there.

use std::path::Path;

use serde_json::Value;

use crate::commands::Example;
use crate::platform::Promise;
use signpost_testing::dig::Response;
use signpost_testing::peers::Peer;
use signpost_testing::program::{json, ok};
use signpost_testing::{DataDir, eventually, free_address, try_dig, try_dig_all};

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

/// Exports the zones of the example.
pub fn knot_and_nsd_load_the_export_and_answer_the_same(example: &Example) {
    let Example { data, server, scheduled, .. } = example;
    eventually("the aliases are published", || {
        let aliases: Vec<_> = scheduled.iter().map(|promise| (promise.alias.as_str(), "CNAME")).collect();
        let responses = try_dig_all(server.dns, &aliases, &[])?;
        responses.iter().all(|response| !response.answer.is_empty()).then_some(())
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
    let questions = questions(scheduled);
    let questions: Vec<_> = questions.iter().map(|(name, rtype)| (name.as_str(), *rtype)).collect();
    for (name, peer) in [("knot", knot), ("nsd", nsd)] {
        eventually(name, || {
            (try_dig(peer, "v3.rhcloud.com", "SOA", &["+tries=1", "+time=1"])?.status == "NOERROR").then_some(())
        });
        let theirs = eventually(name, || try_dig_all(peer, &questions, &[]));
        let ours = try_dig_all(server.dns, &questions, &[]).expect("ours answers");
        for (question, (ours, theirs)) in questions.iter().zip(ours.into_iter().zip(theirs)) {
            assert_eq!(comparable(ours), minimal(comparable(theirs)), "{name}: {question:?}");
        }
    }
}

/// A zone file comes before the Router with the same apex, as in a name server. Both exist while an operator replaces zone files.
pub fn the_file_of_a_shard_comes_before_its_router(example: &Example) {
    let Example { data, server, .. } = example;
    let folder = DataDir::new();
    let text = "$TTL 60\n@ SOA ns hostmaster 7 3600 600 86400 30\n@ NS ns\nns A 192.0.2.53\n* A 192.0.2.1\n";
    std::fs::write(folder.join("shard1.v3.rhcloud.com.zone"), text).expect("written");
    let (dns, kubeconfig) = (server.dns.to_string(), data.file("kubeconfig"));
    let zones =
        ["--kubeconfig", &kubeconfig, "--domain", "v3.rhcloud.com", "--dns-listen", &dns, "--zones", folder.path()];
    let listed = json(&[&["zone", "list"][..], &zones].concat());
    let kinds: Vec<_> = listed.as_array().expect("a list").iter().map(|zone| (&zone["zone"], &zone["kind"])).collect();
    for (apex, kind) in ZONES.into_iter().zip(["parent", "alias", "file", "shard", "shard"]) {
        let wanted = (&Value::from(format!("{apex}.")), &Value::from(kind));
        assert!(kinds.contains(&wanted), "{apex}: {kinds:?}");
    }
    assert_eq!(kinds.len(), ZONES.len(), "{kinds:?}");
    let shown = ok(&[&["zone", "show", "shard1.v3.rhcloud.com"][..], &zones].concat());
    assert!(shown.contains("192.0.2.1"), "{shown}");
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
