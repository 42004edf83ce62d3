//! The API is killed, or hangs: the name server answers as before, reports the lost connection, and catches up.

use std::time::Duration;

use hickory_proto::rr::RecordType;

use crate::split::Split;
use signpost_testing::dns::Asker;
use signpost_testing::{eventually, until};

/// Waits until the name server reports that it is disconnected, and stays ready.
fn reports_disconnection(split: &Split, when: &str) {
    eventually(&format!("{when}: it counts no open watch"), || (split.watches().0 == 0).then_some(()));
    eventually(&format!("{when}: it calls its answers stale"), || split.is_stale().then_some(()));
    let mut asker = Asker::new(split.dns_ports.dns);
    until(&format!("{when}: an answer is marked as stale"), || {
        let answer = asker.ask(&split.name(), RecordType::A, Duration::from_secs(2)).ok_or("no answer")?;
        if answer.stale && answer.is_live() { Ok(()) } else { Err(format!("{answer:?}")) }
    });
    assert!(split.is_ready(), "{when}: it answers from what it has, and stays ready");
}

/// Waits until it no longer reports that.
fn is_over(split: &Split, when: &str) {
    eventually(&format!("{when}: all watches are open"), || {
        let (open, all) = split.watches();
        (open == all && all > 0).then_some(())
    });
    eventually(&format!("{when}: nothing is stale"), || (!split.is_stale()).then_some(()));
}

#[test]
fn killed() {
    let mut split = Split::direct();
    split.change();
    split.converge("before");
    if let Some(server) = split.api.take() {
        server.kill();
    }
    reports_disconnection(&split, "the API is dead");
    split.start_api();
    let caught_up = split.converge("the API is back");
    split.change();
    split.converge("a change after that");
    is_over(&split, "the API is back");
    println!(
        "API killed: after its start DNS equals the objects within {caught_up:?}; {}",
        split.steady("the API was dead")
    );

    // A name server that starts without the API answers from its last good state.
    if let Some(server) = split.api.take() {
        server.kill();
    }
    if let Some(server) = split.dns.take() {
        server.kill();
    }
    split.start_dns();
    reports_disconnection(&split, "a start without the API");
    split.start_api();
    split.converge("the API is back again");
    let report = split.observer.turn_page();
    report.assert_honest("a start without the API");
    println!("name server killed while the API was dead: {report}");
}

#[test]
fn hung() {
    let mut split = Split::direct();
    let api = split.api.take().expect("it runs");
    api.signal("STOP");
    reports_disconnection(&split, "the API hangs");
    api.signal("CONT");
    split.api = Some(api);
    split.change();
    let caught_up = split.converge("the API continues");
    is_over(&split, "the API continues");
    println!("API stopped: DNS equals the objects {caught_up:?} after it continues; {}", split.steady("the API hung"));
}
