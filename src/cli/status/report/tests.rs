//! The report of `signpost status`, from fixed objects and numbers.

use super::*;
use crate::cli::objects::object;
use serde_json::{Value, json};
use std::time::Instant;

const METRICS: &str = "signpost_build_info{version=\"0.1.0\"} 1\nsignpost_start_time_seconds 1735689000.5\n\
        signpost_dns_zones 5\nsignpost_informer_synced{owner=\"dns\",kind=\"Router\"} 1\n\
        signpost_informer_connected{owner=\"dns\",kind=\"Router\"} 1\nsignpost_informer_age_seconds{owner=\"dns\",kind=\"Router\"} 0.4\n\
        signpost_informer_age_seconds{owner=\"dns\",kind=\"Zone\"} 12.5\nsignpost_deletion_hold_objects{kind=\"Router\"} 0\n\
        signpost_scheduler_leading 1\nsignpost_dns_requests_total{transport=\"udp\"} 10\nsignpost_zone_input_errors 0\n";

fn now() -> Timestamp {
    "2025-01-01T00:00:00Z".parse().expect("a time")
}

fn platform() -> ApiSnapshot {
    let lease = json!({"metadata": {}, "spec": {"holderIdentity": "host-1", "renewTime": "2024-12-31T23:59:58.000000Z",
            "leaseDurationSeconds": 15, "leaseTransitions": 3}});
    let scheduled = |name: &str| {
        object("Route", json!({"namespace": "shop", "name": name}), json!({}), json!({"phase": "scheduled"}))
    };
    let condition = json!([{"type": "Scheduled", "status": "False", "reason": "NoRouter", "message": "none",
            "lastTransitionTime": "2025-01-01T00:00:00Z"}]);
    let waits =
        object("Route", json!({"namespace": "shop", "name": "vault"}), json!({}), json!({"conditions": condition}));
    let ready = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "NoActiveAddress", "message": "none is",
            "lastTransitionTime": "2025-01-01T00:00:00Z"}]});
    let addresses = json!({"addresses": [{"ip": "192.0.2.1"}]});
    ApiSnapshot {
        version: "v1.33.0+signpost".to_owned(),
        took: Duration::from_micros(2_340),
        lease: Some(SchedulerLease::Found(Box::new(serde_json::from_value(lease).expect("a Lease")))),
        objects: Objects {
            routers: Some(vec![
                object("Router", json!({"name": "shard1"}), addresses, Value::Null),
                object("Router", json!({"name": "shard2"}), json!({"state": "cordoned"}), ready),
            ]),
            routes: Some(vec![scheduled("a"), scheduled("b"), waits]),
            zones: Some(vec![object(
                "Zone",
                json!({"name": "v3.example"}),
                json!({"type": "parent", "versions": []}),
                Value::Null,
            )]),
            holds: Some(vec![
                object(
                    "DeletionHold",
                    json!({"name": "b-1"}),
                    json!({"type": "Router", "objects": 2, "known": 5, "cause": "list"}),
                    json!({"holders": [{"server": "ns1", "since": "2026-01-01T00:00:00Z", "generation": 1, "keeps": ["DNS"]}]}),
                ),
                // What one left that has died.
                object(
                    "DeletionHold",
                    json!({"name": "b-0"}),
                    json!({"type": "Router", "objects": 4, "known": 5, "cause": "list"}),
                    Value::Null,
                ),
                object(
                    "DeletionHold",
                    json!({"name": "b-2"}),
                    json!({"type": "Router", "objects": 1, "known": 5, "cause": "list", "decision": "reject"}),
                    Value::Null,
                ),
            ]),
        },
    }
}

#[test]
fn a_screen() {
    let scrape = Scrape::of_text(Instant::now(), METRICS);
    let rcodes = BTreeMap::from([("NOERROR".to_owned(), 90.0), ("NXDOMAIN".to_owned(), 30.0)]);
    let rates = Rates { queries: 120.0, rcodes, ..Rates::default() };
    let checks = ["[+] process/start", "[+] api/store", "[+] scheduler/objects", "[+] dns/zones"].map(str::to_owned);
    let process = Process::answered("http://127.0.0.1:9453", true, &checks, &scrape, Some(rates), now());
    let asked =
        StatusInputs { kubeconfig: "kubeconfig".to_owned(), platform: Ok(platform()), processes: vec![process] };
    let report = Report::new(asked, now());
    let expected = "\
api         v1.33.0+signpost, answers in 2.3 ms (kubeconfig)
domain      v3.example
leader      host-1, renewed 2s ago, term 3
process     http://127.0.0.1:9453 ready: api, scheduler (leading), dns; version 0.1.0, up 9m59s
  sync      all watches connected, last message 12s ago
  zones     5 served
  queries   120.0/s: NOERROR 75%, NXDOMAIN 25%
  hold      none
routers     2: 1 active, 1 cordoned
routes      3: 1 pending, 2 scheduled
serials     1 zones
warnings    3

- deletion hold: 2 of 5 Routers are missing from the API; kept until you decide: DNS; run \"signpost hold approve b-1\", or reject
- Router shard2: Ready is False, NoActiveAddress: none is
- 1 Route pending, NoRouter: shop/vault

healthy, 3 warnings
";
    assert_eq!(report.text(Painter::PLAIN), expected);
    assert!(report.healthy);
    let json = serde_json::to_value(&report).expect("plain data");
    assert_eq!((&json["routes"]["scheduled"], &json["processes"][0]["zones"]), (&json!(2), &json!(5)));
}

#[test]
fn a_former_domain_is_shown_until_its_end() {
    let metrics = "signpost_dns_zone_requests_total{kind=\"data\",zone=\"routes.v2.example.\"} 40\n\
            signpost_dns_zone_requests_total{kind=\"nxdomain\",zone=\"v2.example.\"} 2\n\
            signpost_dns_zone_requests_total{kind=\"data\",zone=\"v3.example.\"} 7\n";
    let scrape = Scrape::of_text(Instant::now(), metrics);
    let process = || Process::answered("http://a", true, &[], &scrape, None, now());
    let mut platform = platform();
    let parent = |name: &str, former: Value| {
        let spec = json!({"type": "parent", "versions": [], "formerDomains": former});
        object("Zone", json!({"name": name}), spec, Value::Null)
    };
    platform.objects.zones = Some(vec![parent("v2.example", json!([])), parent("v3.example", json!(["v2.example"]))]);
    let route = |host: &str, reason: &str| {
        let said = json!([{"type": "HostPointsHere", "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": "2025-01-01T00:00:00Z"}]);
        let status = json!({"phase": "scheduled", "conditions": said});
        object("Route", json!({"namespace": "shop", "name": "x"}), json!({"host": host}), status)
    };
    let there = ["g", "f", "e", "d", "c", "b"].map(|host| route(&format!("{host}.example"), "PointsToFormerDomain"));
    platform.objects.routes = Some(there.into_iter().chain([route("a.example", "PointsHere")]).collect());
    let inputs = StatusInputs { kubeconfig: "k".into(), platform: Ok(platform), processes: vec![process(), process()] };
    let report = Report::new(inputs, now());
    let text = report.text(Painter::PLAIN);
    for line in [
        "domain     v3.example\n",
        "former     v2.example, still served: 84 queries since the start of its name servers\n",
        "  hosts    6 custom hosts there: b.example, c.example, d.example, e.example, f.example, …\n",
    ] {
        assert!(text.contains(line), "{line} is missing from {text}");
    }
    let json = serde_json::to_value(&report).expect("plain data");
    assert_eq!(json["formerDomains"], json!([{"domain": "v2.example", "queries": 84}]));
    assert_eq!(json["formerHosts"]["total"], json!(6));
}

#[test]
fn what_does_not_answer_is_said() {
    let broken = "signpost_informer_connected{owner=\"dns\",kind=\"Zone\"} 0\nsignpost_deletion_hold_objects{kind=\"Router\"} 2\n";
    let scrape = Scrape::of_text(Instant::now(), broken);
    let checks = ["[-] dns/zones: not listed yet".to_owned()];
    let processes = vec![
        Process::answered("http://a", false, &checks, &scrape, None, now()),
        Process::silent("http://b", "http://b does not answer: refused (--admin)".to_owned()),
    ];
    let asked = StatusInputs { kubeconfig: "k".to_owned(), platform: Err("the API is away".to_owned()), processes };
    let report = Report::new(asked, now());
    assert!(!report.healthy);
    assert_eq!(
        report.warnings,
        [
            "the API is away",
            "http://a: dns/zones: not listed yet",
            "http://a: watches that are not connected or not complete: dns/Zone",
            "http://a: 2 objects are missing from the API; their names are still served",
            "http://b does not answer: refused (--admin)",
        ]
    );
    let text = report.text(Painter::PLAIN);
    assert!(text.contains("api        does not answer (k)\n") && text.contains("http://b does not answer\n"), "{text}");
    assert!(
        text.ends_with("\n\nunhealthy: the API does not answer, 2 of 2 processes not ready; 5 warnings\n"),
        "{text}"
    );
}

#[test]
fn an_empty_platform_has_a_next_step() {
    let mut platform = platform();
    platform.objects = Objects {
        routers: Some(Vec::new()),
        routes: Some(Vec::new()),
        zones: Some(Vec::new()),
        holds: Some(Vec::new()),
    };
    let inputs = StatusInputs { kubeconfig: "k".into(), platform: Ok(platform), processes: Vec::new() };
    let text = Report::new(inputs, now()).text(Painter::PLAIN);
    assert!(text.contains("next step   create a Router; \"kubectl explain router.spec\""), "{text}");
    assert!(text.ends_with("\n\nhealthy, 0 warnings\n"), "{text}");
}

#[test]
fn a_leader_that_is_gone() {
    let mut platform = platform();
    let lease = json!({"metadata": {}, "spec": {"holderIdentity": "host-1", "renewTime": "2024-12-31T23:58:00.000000Z",
            "leaseDurationSeconds": 15}});
    platform.lease = Some(SchedulerLease::Found(Box::new(serde_json::from_value(lease).expect("a Lease"))));
    let report =
        Report::new(StatusInputs { kubeconfig: "k".into(), platform: Ok(platform), processes: Vec::new() }, now());
    assert_eq!(report.warnings[0], "no scheduler leads: host-1 has not renewed its Lease for 2m");
}

#[test]
fn a_platform_that_never_had_a_leader() {
    for (lease, is_reported) in [(Some(SchedulerLease::Missing), true), (None, false)] {
        let platform = ApiSnapshot { lease, ..platform() };
        let report =
            Report::new(StatusInputs { kubeconfig: "k".into(), platform: Ok(platform), processes: Vec::new() }, now());
        let found = report.warnings.iter().filter(|warning| warning.starts_with("no scheduler leads")).count();
        assert_eq!(found == 1, is_reported, "{:?}", report.warnings);
    }
}
