//! Tests of verification without sockets and clocks: the queries, their number, and the reported conditions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::check::Fault;
use super::checks::Job;
use super::feed::{WithheldShards, ZoneUpdate};
use super::server_zone::DOUBT as PATIENCE;
use crate::compiler::expectation::Expected;
use signpost_dns::wire::Name;
use signpost_dns::wire::header::Rcode;
use signpost_dns::zone::Serial;
use signpost_types::v1alpha1::deletion_hold::DeletionHoldKind;

mod world;
use world::*;

#[test]
fn a_route_on_an_idle_system_is_asked_for_by_its_names() {
    let mut world = World::with_routes(Some(2), &[]);
    world.run(Duration::ZERO, right);
    assert_eq!(world.queried(), ["1 *.s.v3.example", "2 *.s.v3.example"]);
    world.alias("app", "s", 9);
    assert_eq!(world.reason("app"), None, "not before it was queried");
    world.run(Duration::from_millis(20), right);
    let names = ["*.s.v3.example", "app.routes.v3.example", "app.s.v3.example"];
    let expected: Vec<String> = (1..=2).flat_map(|server| names.map(|name| format!("{server} {name}"))).collect();
    assert_eq!(world.queried(), expected);
    assert_eq!(
        world.resolvable("app").expect("it is known"),
        (
            "Resolvable",
            "app.s.v3.example and app.routes.v3.example are answered correctly by ns1.v3.example (127.0.0.1:5301) with \
             serials 7 and 9, ns2.v3.example (127.0.0.1:5302) with serials 7 and 9; checked at 1970-01-01T00:00:00Z"
                .to_owned()
        )
    );
    // After that, the zones are checked at intervals.
    world.run(INTERVAL * 10, right);
    let count = world.jobs.len();
    assert!((30..=60).contains(&count), "{count} checks in ten intervals, of two servers and two zones");
}

#[test]
fn many_routes_are_verified_by_few_checks() {
    let mut world = World::with_routes(Some(2), &[]);
    world.run(Duration::ZERO, right);
    world.jobs.clear();
    for round in 0..50 {
        for number in 0..40 {
            world.alias(&format!("app{round}-{number}"), "s", 100 + round);
        }
        world.run(Duration::from_millis(20), right);
    }
    let questions: usize = world.jobs.iter().map(|job| job.check.queries()).sum();
    assert!(questions < 500, "{questions} questions for 2,000 routes in a second");
    world.run(Duration::from_millis(20), right);
    for (reason, count) in world.proofs.reasons() {
        assert_eq!((*reason, *count), if *reason == "Resolvable" { ("Resolvable", 2000) } else { (*reason, 0) });
    }
}

#[test]
fn a_server_that_lags_under_steady_change_still_proves() {
    let mut world = World::with_routes(Some(1), &[]);
    let mut newest = 100;
    for round in 0..200 {
        newest = 100 + round;
        for number in 0..10 {
            world.alias(&format!("app{round}-{number}"), "s", newest);
        }
        // The server always has the version before the newest one.
        world.run(Duration::from_millis(25), |job| {
            let has = if is_alias(job) { Serial(newest - 1) } else { Serial(7) };
            answers(job, has, |_| true)
        });
    }
    let pending = world.proofs.reasons()["Pending"];
    assert!(pending <= 20, "{pending} routes of 2,000 are not verified");
    assert_eq!(world.proofs.reasons()["Resolvable"], 2000 - pending, "and none has failed");
    world.run(PATIENCE, |job| match job.check.serial == Serial(newest) {
        true => answers(job, Serial(newest - 1), |_| false),
        false => right(job),
    });
    let last = format!("app{}-1", newest - 100);
    assert_eq!(world.reason(&last), Some("OldSerial"));
    let (_, message) = world.resolvable(&last).expect("it is known");
    assert_eq!(
        message,
        format!("ns1.v3.example (127.0.0.1:5301) has routes.v3.example under a serial older than {newest}")
    );
    assert_eq!(world.reason("app0-1"), Some("Resolvable"), "older versions are there");
}

#[test]
fn while_the_deletion_hold_holds_a_name_is_verified_by_its_answer() {
    let mut world = World::with_routes(Some(1), &["before"]);
    world.run(Duration::ZERO, right);
    // From now on, the server holds back deletions: new names arrive under its own serials.
    let held = |lost: &'static str| {
        move |job: &Job| match is_alias(job) {
            true => answers(job, Serial(10), |name| !name.starts_with(lost)),
            false => right(job),
        }
    };
    world.proofs.set_deletion_holds([("routebindings-1".to_owned(), DeletionHoldKind::RouteBinding)].into());
    world.alias("app", "s", 100);
    world.run(Duration::from_millis(500), held("none"));
    assert_eq!(world.reason("app"), None, "while in doubt, only the serial is queried");
    world.run(PATIENCE, held("none"));
    let (reason, message) = world.resolvable("app").expect("it is known");
    assert_eq!(reason, "Resolvable");
    assert!(message.contains("with serials 7 and 10"), "{message}");
    assert_eq!(world.reason("before"), Some("Resolvable"));
    // A name without an answer is not verified, and the condition shows the server.
    world.alias("lost", "s", 108);
    world.run(PATIENCE / 2, held("lost"));
    assert_eq!(world.reason("lost"), None);
    world.run(PATIENCE, held("lost"));
    let (reason, message) = world.resolvable("lost").expect("it is known");
    assert_eq!(reason, "DeletionHeld");
    assert!(message.contains("while a DeletionHold keeps deleted objects"), "{message}");
    world.run(Duration::from_secs(6), held("none"));
    assert_eq!(world.reason("lost"), Some("Resolvable"));
    // Many are queried by their names, some at a time, and each once.
    world.jobs.clear();
    (0..1000).for_each(|number| world.alias(&format!("app{number}"), "s", 116));
    world.run(PATIENCE, held("none"));
    assert_eq!(world.proofs.reasons()["Resolvable"], 1003);
    let questions: usize = world.jobs.iter().map(|job| job.check.queries()).sum();
    assert!(questions < 1300, "{questions} questions for 1,000 routes");
    // A server that becomes unreachable is reported, and so is the fault of a server without a DeletionHold.
    world.run(INTERVAL * 2, |_| Err(silent()));
    assert_eq!((world.reason("app"), world.reason("before")), (Some("NotAnswering"), Some("NotAnswering")));
    world.run(Duration::from_secs(6), held("none"));
    world.alias("last", "s", 124);
    world.run(PATIENCE, held("last"));
    assert_eq!((world.reason("app"), world.reason("last")), (Some("Resolvable"), Some("DeletionHeld")));
    world.proofs.set_deletion_holds(BTreeMap::new());
    world.update_reasons();
    assert_eq!(world.reason("last"), Some("OldSerial"));
    // The deletion hold ends: the ledger's serial verifies again.
    world.run(Duration::from_secs(6), right);
    assert_eq!(world.proofs.reasons()["Resolvable"], 1004);
}

#[test]
fn a_shard_that_stays_old_is_verified_by_its_answers() {
    let apex: Name = "s.v3.example.".parse().expect("a name");
    let stays = |is_right: bool| {
        move |job: &Job| match is_alias(job) {
            true => right(job),
            false => answers(job, Serial(7), |_| is_right),
        }
    };
    let mut world = World::with_routes(Some(1), &["app"]);
    world.run(Duration::ZERO, right);
    let records = serde_json::json!({"addresses": [{"ip": "192.0.2.1"}], "records": ["@ TXT new"]});
    world.shard("s", records, 8);
    world.run(PATIENCE * 2, stays(true));
    assert_eq!(world.reason("app"), Some("Resolvable"));
    // A zone has more than addresses: without a DeletionHold, its version counts.
    let zone = |world: &World| {
        world.proofs.router_condition(&apex).map(|(_, update, _)| (update.is_true(), update.reason, update.message))
    };
    let (is_true, reason, _) = zone(&world).expect("it is known");
    assert_eq!((is_true, reason), (false, "OldSerial"));
    world.proofs.set_deletion_holds([("routers-1".to_owned(), DeletionHoldKind::Router)].into());
    assert_eq!(world.proofs.next_shard(), Some(apex.clone()));
    let (is_true, reason, message) = zone(&world).expect("it is known");
    assert!(
        is_true && reason == "Published" && message.contains("while a DeletionHold keeps deleted objects"),
        "{reason} {message}"
    );
    world.run(PATIENCE * 3, stays(false));
    assert_eq!(world.reason("app"), Some("DeletionHeld"));
    assert_eq!(zone(&world).map(|(is_true, reason, _)| (is_true, reason)), Some((false, "DeletionHeld")));
    world.run(PATIENCE * 3, right);
    assert_eq!(world.reason("app"), Some("Resolvable"));
}

#[test]
fn a_zone_that_takes_a_host_is_reported() {
    let mut world = World::with_routes(Some(1), &["app"]);
    world.run(Duration::ZERO, right);
    let resolvable = |world: &World, host: &str| {
        let conditions = world.proofs.conditions("app", Some(host), world.now, Timestamp::UNIX_EPOCH);
        conditions.resolvable.map(|statement| (statement.reason, statement.message))
    };
    let reason = |world: &World, host: &str| resolvable(world, host).map(|(reason, _)| reason);
    assert_eq!(reason(&world, "*.shop.test"), Some("Resolvable"));
    world.shard("shop", serde_json::json!({"dns": "shop.test", "addresses": [{"ip": "192.0.2.1"}]}), 7);
    for (host, expected) in [
        ("*.shop.test", "HostInZone"),
        ("www.SHOP.test", "HostInZone"),
        ("shop.test", "HostInZone"),
        ("notshop.test", "Resolvable"),
        ("*.test", "Resolvable"),
        // The route's own name on the shard is there on purpose.
        ("App.s.v3.example", "Resolvable"),
        ("other.s.v3.example", "HostInZone"),
    ] {
        assert_eq!(reason(&world, host), Some(expected), "{host}");
    }
    let (_, message) = resolvable(&world, "*.shop.test").expect("it is known");
    assert!(message.starts_with("*.shop.test is in shop.test, the zone of Router shop,"), "{message}");
}

#[test]
fn a_serial_that_the_api_refuses_is_reported() {
    let mut world = World::with_routes(Some(1), &[]);
    let apex: Name = "s.v3.example.".parse().expect("a name");
    let router = Arc::clone(&world.proofs.zones.shards[&apex].router);
    for (refused, expected) in [(Some((router, "no such name".to_owned())), Some("SerialRefused")), (None, None)] {
        let mut news = ZoneUpdate::default();
        news.refused.insert(apex.clone(), refused);
        while world.proofs.next_shard().is_some() {}
        world.proofs.apply(news, world.now);
        assert_eq!(world.proofs.next_shard(), Some(apex.clone()));
        assert_eq!(world.proofs.router_condition(&apex).map(|(_, statement, _)| statement.reason), expected);
    }
}

#[test]
fn the_router_of_a_withheld_shard_reports_it() {
    let mut world = World::with_routes(Some(1), &[]);
    let (apex, outer): (Name, Name) = ("eu.s.v3.example.".parse().unwrap(), "s.v3.example.".parse().unwrap());
    let withheld = [(apex.clone(), ("eu".into(), outer))].into();
    for (withheld, expected) in [(withheld, Some("ZoneWithheld")), (WithheldShards::new(), None)] {
        while world.proofs.next_shard().is_some() {}
        world.proofs.apply(ZoneUpdate { withheld: Some(withheld), ..ZoneUpdate::default() }, world.now);
        assert_eq!(world.proofs.next_shard(), Some(apex.clone()));
        let found = world.proofs.router_condition(&apex);
        assert_eq!(found.as_ref().map(|(_, statement, _)| statement.reason), expected);
        assert!(
            found.is_none_or(|(router, statement, _)| router == "eu" && statement.message.contains("in s.v3.example"))
        );
    }
}

/// The wildcard answers for an adopted host, and a record at its top label does not, unless it is that very name.
#[test]
fn an_adopted_host_is_verified_in_place_of_the_system_name() {
    let mut world = World::new(Some(1));
    let spec =
        serde_json::json!({"addresses": [{"ip": "192.0.2.1"}], "records": ["own A 192.0.2.9", "cut NS ns.example."]});
    world.shard("s", spec, 7);
    let hosts = ["web.x.s.v3.example.", "a.own.s.v3.example.", "own.s.v3.example.", "a.cut.s.v3.example."];
    let expected = [Some("Resolvable"), Some("Resolvable"), Some("NameTaken"), Some("NameTaken")];
    for (number, (host, expected)) in hosts.into_iter().zip(expected).enumerate() {
        let label = format!("ns-app{number}");
        world.adopted(&label, "s", host, 9 + number as u32);
        world.run(INTERVAL, right);
        assert_eq!(world.reason(&label), expected, "{host}");
        let host = host.trim_end_matches('.');
        let queried = world.queried();
        assert_eq!(queried.contains(&format!("1 {host}")), expected == Some("Resolvable"), "{host} {queried:?}");
        assert!(!queried.contains(&format!("1 {label}.s.v3.example")), "{queried:?}");
        let (_, message) = world.resolvable(&label).expect("it is known");
        assert!(message.contains(host), "{message}");
    }
}

#[test]
fn a_silent_server_is_waited_for_only_for_a_while() {
    let mut world = World::with_routes(Some(2), &["app"]);
    world.run(Duration::ZERO, right);
    assert_eq!(world.reason("app"), Some("Resolvable"));
    let mut lost = 0;
    let second_is_gone = |job: &Job| if job.server == 1 { Err(silent()) } else { right(job) };
    // One lost answer is nothing.
    world.run(INTERVAL * 2, |job| {
        lost += u32::from(job.server == 1);
        if job.server == 1 && lost == 1 { Err(silent()) } else { right(job) }
    });
    assert_eq!(world.reason("app"), Some("Resolvable"));
    // A Route that is verified stays so all the time.
    for _ in 0..(INTERVAL * 2).as_secs() {
        world.run(Duration::from_secs(1), second_is_gone);
        assert!(matches!(world.reason("app"), None | Some("Resolvable")), "{:?}", world.resolvable("app"));
        assert_eq!(world.proofs.reasons()["Resolvable"], 1);
    }
    let (reason, message) = world.resolvable("app").expect("it is known");
    assert_eq!(reason, "Resolvable");
    assert!(
        message.contains("answered correctly by ns1.v3.example (127.0.0.1:5301) with serials 7 and 9;"),
        "{message}"
    );
    assert!(message.ends_with("; ns2.v3.example (127.0.0.1:5302) does not answer"), "{message}");
    let apex: Name = "s.v3.example.".parse().expect("a name");
    let (router, statement, serial) = world.proofs.router_condition(&apex).expect("it is known");
    assert_eq!((router.as_str(), statement.reason, serial), ("s", "Published", Some(Serial(7))));
    let expected = "ns1.v3.example (127.0.0.1:5301) answers for s.v3.example with serial 7 or later; ns2.v3.example \
                    (127.0.0.1:5302) does not answer";
    assert_eq!(statement.message, expected);
    let from: Vec<bool> = world.proofs.silent_from().map(|from| from.is_some_and(|from| from <= world.now)).collect();
    assert_eq!(from, [false, true]);
    // The server may lack a new name without knowing it, but not for long.
    world.alias("late", "s", 10);
    world.run(SILENCE - Duration::from_millis(1), second_is_gone);
    assert_eq!(world.reason("late"), None);
    world.run(Duration::from_millis(1), second_is_gone);
    assert_eq!(world.reason("late"), Some("Resolvable"));
    // So may the zone above a new shard.
    world.no_shard("s");
    world.run(INTERVAL, second_is_gone);
    world.shard("s", addresses(), 8);
    world.run(SILENCE - Duration::from_millis(1), second_is_gone);
    assert_eq!(world.reason("late"), None);
    world.run(Duration::from_millis(1), second_is_gone);
    assert_eq!(world.reason("late"), Some("Resolvable"));
    // The only other one must answer correctly.
    world.run(INTERVAL * 2, |_| Err(silent()));
    let found = world.resolvable("app").expect("it is known");
    let expected = "ns1.v3.example (127.0.0.1:5301) does not answer; ns2.v3.example (127.0.0.1:5302) does not answer";
    assert_eq!(found, ("NotAnswering", expected.to_owned()));
    world.run(Duration::from_secs(6), second_is_gone);
    assert_eq!(world.reason("app"), Some("Resolvable"));
    // A wrong answer blocks.
    let refused = |job: &Job| Fault::Error { name: job.check.apex.clone(), rcode: Rcode::REFUSED };
    world.run(INTERVAL, |job| if job.server == 1 { Err(refused(job)) } else { right(job) });
    assert_eq!((world.reason("app"), world.reason("late")), (Some("ErrorAnswer"), Some("ErrorAnswer")));
    world.run(Duration::from_secs(6), right);
    assert_eq!((world.reason("app"), world.reason("late")), (Some("Resolvable"), Some("Resolvable")));
    assert!(world.proofs.silent_from().all(|from| from.is_none()));
}

/// A restarted server has the zones from its disk, and answers SERVFAIL for other names until it has caught up.
#[test]
fn a_server_that_returns_may_catch_up() {
    let old = |fault: fn(Name) -> Fault| {
        move |job: &Job| match (job.server, is_alias(job)) {
            (1, true) => answers_or(job, Serial(9), |name| !name.starts_with("late"), fault),
            _ => right(job),
        }
    };
    let unsure = old(|name| Fault::Error { name, rcode: Rcode::SERVFAIL });
    let second_is_gone = |job: &Job| if job.server == 1 { Err(silent()) } else { right(job) };
    let mut world = World::with_routes(Some(2), &["app"]);
    world.run(Duration::ZERO, right);
    world.run(INTERVAL * 2, second_is_gone);
    world.alias("late", "s", 10);
    world.run(SILENCE * 2, second_is_gone);
    assert_eq!(world.proofs.reasons()["Resolvable"], 2);
    for _ in 0..60 {
        world.run(Duration::from_millis(500), &unsure);
        assert_eq!(world.proofs.reasons()["Resolvable"], 2, "{:?}", world.resolvable("late"));
    }
    // Clients do not get wrong answers from it, so new Routes do not wait for it either, only longer.
    world.alias("later", "s", 11);
    world.run(SILENCE * 3, &unsure);
    let (reason, message) = world.resolvable("later").expect("it is known");
    assert!(reason == "Resolvable" && message.contains("under a serial older than 11"), "{message}");
    // Nor is one that denies names silent.
    world.alias("latest", "s", 12);
    world.run(INTERVAL, old(Fault::NotAuthoritative));
    assert_eq!(world.reason("latest"), Some("OldSerial"));
    world.run(Duration::from_secs(6), right);
    assert_eq!(world.proofs.reasons()["Resolvable"], 4, "{:?}", world.proofs.reasons());
}

#[test]
fn routes_that_came_while_a_server_failed_recover_with_it() {
    let apart = |job: &Job| Fault::Error { name: job.check.apex.clone(), rcode: Rcode::SERVFAIL };
    for (fault, reason) in [(apart as fn(&Job) -> Fault, "ErrorAnswer"), (|_| silent(), "NotAnswering")] {
        let mut world = World::with_routes(Some(2), &[]);
        world.run(Duration::from_secs(1), right);
        // The rate is that of an idle system, so that each route must be queried by its own names.
        for number in 0..60 {
            world.alias(&format!("app{number}"), "s", 9 + number);
            world.run(Duration::from_millis(60), |job| Err(fault(job)));
        }
        world.run(INTERVAL, |job| Err(fault(job)));
        assert_eq!(world.proofs.reasons()[reason], 60);
        world.jobs.clear();
        world.run(Duration::from_secs(2), right);
        assert_eq!(world.proofs.reasons()["Resolvable"], 60, "{reason}: {:?}", world.proofs.reasons());
        assert!(world.jobs.len() < 100, "{reason}: {} checks", world.jobs.len());
    }
}

#[test]
fn all_zones_of_a_server_that_answers_again_are_looked_at() {
    const SHARDS: usize = 200;
    let mut world = World::new(Some(2));
    for number in 0..SHARDS {
        world.shard(&format!("s{number}"), addresses(), 7);
        world.alias(&format!("app{number}"), &format!("s{number}"), 9);
    }
    world.run(INTERVAL, right);
    let second_is_gone = |job: &Job| if job.server == 1 { Err(silent()) } else { right(job) };
    world.run(INTERVAL * 3, second_is_gone);
    assert_eq!(world.proofs.reasons()["Resolvable"], SHARDS, "they do not wait for it");
    let count_failed = |world: &World| {
        let zones = world.proofs.zones.shards.values().map(|shard| &shard.zone);
        zones.filter(|zone| zone.servers[1].state.has_failed()).count()
    };
    assert_eq!(count_failed(&world), SHARDS);
    world.jobs.clear();
    world.run(INTERVAL, second_is_gone);
    let asked = world.jobs.iter().filter(|job| job.server == 1).count();
    assert!(asked < SHARDS * 2, "{asked} checks in an interval of a server that does not answer");
    world.jobs.clear();
    world.run(Duration::from_millis(1500), right);
    assert_eq!((count_failed(&world), world.proofs.reasons()["Resolvable"]), (0, SHARDS));
    let asked = world.jobs.iter().filter(|job| job.server == 1).count();
    assert!(asked < SHARDS * 2, "{asked} checks until all zones were right");
}

/// The shard recovers while the alias zone is in doubt, which is not reported.
#[test]
fn a_route_that_recovers_in_doubt_is_reported_when_the_doubt_ends() {
    let mut world = World::with_routes(Some(1), &["app"]);
    world.run(INTERVAL, |job| if is_alias(job) { right(job) } else { Err(silent()) });
    assert_eq!(world.proofs.reasons()["NotAnswering"], 1);
    let [alias, shard]: [Name; 2] = ["routes.v3.example.", "s.v3.example."].map(|apex| apex.parse().expect("a name"));
    world.proofs.schedule(&alias, 0, true, world.now);
    world.run(Duration::ZERO, |_| Err(silent()));
    world.proofs.schedule(&shard, 0, true, world.now);
    world.run(Duration::ZERO, right);
    assert_eq!((world.reason("app"), world.proofs.reasons()["NotAnswering"]), (None, 1), "it stands");
    world.run(Duration::from_secs(1), right);
    assert_eq!(world.proofs.reasons()["Resolvable"], 1, "{:?}", world.proofs.reasons());
}

#[test]
fn names_of_their_own_that_failed_recover_together() {
    let mut world = World::new(Some(1));
    let records: Vec<String> = (0..40).map(|number| format!("own{number} A 192.0.2.1")).collect();
    world.shard("s", serde_json::json!({"addresses": [{"ip": "192.0.2.1"}], "records": records}), 7);
    (0..40).for_each(|number| world.alias(&format!("own{number}"), "s", 9));
    world.run(INTERVAL * 8, right_but(|name| name.starts_with("own") && name.contains(".s.")));
    assert_eq!(world.proofs.reasons()["NotAuthoritative"], 40);
    world.run(Duration::from_secs(6), right);
    assert_eq!(world.proofs.reasons()["Resolvable"], 40, "{:?}", world.proofs.reasons());
}

#[test]
fn one_server_answers_and_two_answer() {
    let apex: Name = "s.v3.example.".parse().expect("a name");
    for (servers, words) in [(1, "(127.0.0.1:5301) answers for"), (2, "(127.0.0.1:5302) answer for")] {
        let mut world = World::new(Some(servers));
        world.shard("s", serde_json::json!({"addresses": [{"ip": "192.0.2.1"}]}), 7);
        world.run(INTERVAL, right);
        let (_, statement, _) = world.proofs.router_condition(&apex).expect("it is known");
        let expected = format!("{words} s.v3.example with serial 7 or later");
        assert!(statement.message.ends_with(&expected), "{}", statement.message);
    }
}

#[test]
fn what_a_router_says_is_what_must_be_answered() {
    let mut world = World::with_routes(Some(1), &[]);
    for label in ["app", "own", "moved"] {
        world.alias(label, "s", 9);
    }
    world.run(Duration::from_secs(1), right);
    world.queried();
    let records = serde_json::json!({
        "addresses": [{"ip": "192.0.2.2"}], "records": ["own A 192.0.2.2", "moved CNAME there.example."],
    });
    world.shard("s", records, 8);
    assert_eq!(world.reason("app"), None, "the new contents are not verified yet");
    world.run(Duration::ZERO, right);
    let check = world.jobs.iter().find(|job| job.check.serial == Serial(8)).expect("the new version was queried");
    let expected = |name: &str| {
        let probe =
            check.check.names.iter().chain(&check.check.witness).find(|probe| super::check::text(&probe.name) == name);
        probe.map(|probe| probe.expected.clone()).unwrap_or_else(|| panic!("{name} in {check:?}"))
    };
    let to = |address: &str| Expected::Addresses([address.parse().expect("an address")].into());
    assert_eq!(expected("*.s.v3.example"), to("192.0.2.2"));
    assert_eq!(expected("own.s.v3.example"), to("192.0.2.2"));
    assert_eq!(
        ["app", "own", "moved"].map(|label| world.reason(label)),
        ["Resolvable", "Resolvable", "NameTaken"].map(Some)
    );
    // Another version with the same targets is verified again, and causes no report.
    world.shard("s", serde_json::json!({"addresses": [{"ip": "192.0.2.2"}], "records": ["own A 192.0.2.2", "moved CNAME there.example."]}), 18);
    assert_eq!(world.reason("app"), None);
    assert_eq!(world.proofs.next_route(world.now), None);
    world.run(Duration::ZERO, right);
    assert_eq!(world.reason("app"), Some("Resolvable"));
    // While the Router drains, the names have no target; with the address back, they resolve again.
    world.shard("s", serde_json::json!({"addresses": [{"ip": "192.0.2.2", "state": "drained"}]}), 19);
    world.run(Duration::ZERO, right);
    assert_eq!(world.reason("app"), Some("NoActiveAddress"));
    world.shard("s", addresses(), 20);
    world.run(Duration::ZERO, right);
    assert_eq!(world.reason("app"), Some("Resolvable"));
    world.no_shard("s");
    world.run(PATIENCE, right);
    assert_eq!(world.reason("app"), Some("NotPublished"));
    assert!(world.conditions("app").published.is_some_and(|statement| !statement.is_true()));
}

#[test]
fn a_name_that_something_else_has_is_no_matter_of_other_routes() {
    let mut world = World::new(Some(1));
    let addresses = serde_json::json!([{"ip": "192.0.2.1"}]);
    let records = serde_json::json!([
        "deleg NS ns.elsewhere.example.",
        "own A 192.0.2.77",
        "moved CNAME elsewhere.example.",
        "same A 192.0.2.1",
        "_acme-challenge.acme TXT token",
    ]);
    world.shard("s", serde_json::json!({"addresses": addresses, "records": records}), 7);
    let labels = ["app", "acme", "same", "deleg", "own", "moved"];
    for label in labels {
        world.alias(label, "s", 9);
    }
    // Another server answers for these names.
    let is_else = |name: &str| ["deleg.s.", "own.s.", "moved.s."].iter().any(|other| name.starts_with(other));
    world.run(INTERVAL, right_but(is_else));
    let found = labels.map(|label| world.reason(label).unwrap_or_default());
    assert_eq!(found, ["Resolvable", "Resolvable", "Resolvable", "NameTaken", "NameTaken", "NameTaken"]);
    let apex: Name = "s.v3.example.".parse().expect("a name");
    assert_eq!(world.proofs.router_condition(&apex).map(|(_, statement, _)| statement.reason), Some("Published"));
    let (_, message) = world.resolvable("deleg").expect("it is known");
    assert_eq!(
        message,
        "deleg.s.v3.example is delegated to other name servers by spec.records of Router s and does not lead to the \
         Route: remove these records, or move the Route to another Router"
    );
    // Records that are added later also take the name, and their removal releases it.
    world.shard("s", serde_json::json!({"addresses": addresses, "records": ["app CNAME elsewhere.example."]}), 8);
    world.run(INTERVAL, right_but(|name| name.starts_with("app.s.")));
    let found = labels.map(|label| world.reason(label).unwrap_or_default());
    assert_eq!(found, ["NameTaken", "Resolvable", "Resolvable", "Resolvable", "Resolvable", "Resolvable"]);
}

#[test]
fn one_name_that_is_answered_wrong_is_not_the_zone() {
    for wrong in ["app.s.v3.example", "app.routes.v3.example"] {
        let mut world = World::with_routes(Some(2), &[]);
        for label in ["first", "second"] {
            world.alias(label, "s", 9);
        }
        world.run(Duration::from_secs(1), right);
        // The route is queried by its own name, because few arrive.
        world.alias("app", "s", 9);
        world.run(PATIENCE / 2, right_but(|name| name == wrong));
        assert_eq!(world.reason("app"), None, "{wrong}: one answer does not decide");
        world.alias("late", "s", 9);
        world.run(Duration::from_millis(500), right_but(|name| name == wrong));
        assert_eq!(world.reason("late"), Some("Resolvable"), "{wrong}");
        world.jobs.clear();
        world.run(INTERVAL * 2, right_but(|name| name == wrong));
        let found = ["first", "second", "late", "app"].map(|label| world.reason(label).unwrap_or_default());
        assert_eq!(found, ["Resolvable", "Resolvable", "Resolvable", "NotAuthoritative"], "{wrong}");
        let (_, message) = world.resolvable("app").expect("it is known");
        let of = |number| format!("ns{number}.v3.example (127.0.0.1:530{number}) is not authoritative for {wrong}");
        assert_eq!(message, format!("{}; {}", of(1), of(2)));
        assert!(world.jobs.len() < 120, "{wrong}: {} checks in two intervals", world.jobs.len());
        let apex: Name = "s.v3.example.".parse().expect("a name");
        assert!(world.proofs.router_condition(&apex).is_some_and(|(_, statement, _)| statement.is_true()), "{wrong}");
        world.run(Duration::from_secs(6), right);
        assert_eq!(world.reason("app"), Some("Resolvable"), "{wrong}");
    }
}

#[test]
fn a_zone_file_that_hides_a_name_is_reported_on_its_route() {
    for file in ["app.s.v3.example", "app.routes.v3.example"] {
        let mut world = World::with_routes(Some(2), &[]);
        for label in ["first", "app", "second"] {
            world.alias(label, "s", 9);
        }
        world.run(Duration::from_secs(1), right);
        assert_eq!(world.reason("app"), Some("Resolvable"));
        let all = |world: &World| ["first", "app", "second"].map(|label| world.reason(label).unwrap_or_default());
        let apexes = |names: &[&str]| names.iter().map(|name| name.parse().expect("a name")).collect();
        world.proofs.set_files(apexes(&["elsewhere.example.", file]), world.now);
        world.run(PATIENCE * 2, right_but(|name| name == file));
        assert_eq!(all(&world), ["Resolvable", "NotAuthoritative", "Resolvable"], "{file}");
        // Only a route that arrives while the file exists gets this condition.
        world.proofs.set_files(apexes(&[file, "late.s.v3.example."]), world.now);
        world.alias("late", "s", 9);
        let hidden = ["late.s.v3.example", file];
        world.run(PATIENCE * 3, right_but(|name| hidden.contains(&name)));
        assert_eq!(world.reason("late"), Some("NotAuthoritative"), "{file}");
        assert_eq!(all(&world), ["Resolvable", "NotAuthoritative", "Resolvable"], "{file}");
        world.proofs.set_files(apexes(&[]), world.now);
        world.run(Duration::from_secs(6), right);
        assert_eq!((all(&world), world.reason("late")), (["Resolvable"; 3], Some("Resolvable")), "{file}");
    }
}

#[test]
fn answers_about_former_contents_prove_nothing() {
    let mut world = World::with_routes(Some(1), &["app"]);
    let mut jobs = Vec::new();
    while let Some(job) = world.proofs.next_job(world.now, 0) {
        jobs.push(job);
    }
    assert_eq!(jobs.len(), 2);
    world.shard("s", serde_json::json!({"addresses": [{"ip": "192.0.2.7"}]}), 8);
    for job in &jobs {
        world.proofs.finish(job.clone(), right(job), world.now, 0);
    }
    assert_eq!(world.reason("app"), None);
    world.run(Duration::ZERO, right);
    assert_eq!(world.reason("app"), Some("Resolvable"));
}

#[test]
fn without_servers_it_says_why_and_switched_off_it_says_nothing() {
    for (servers, reason) in [(Some(0), Some("NoNameServer")), (None, None)] {
        let mut world = World::with_routes(servers, &["app"]);
        world.run(Duration::from_secs(1), right);
        assert_eq!(world.reason("app"), reason);
        let published = world.conditions("app").published.expect("it is known");
        assert_eq!((published.reason, world.jobs.len()), ("Published", 0));
    }
}
