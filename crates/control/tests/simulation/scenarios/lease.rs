//! Leader election: one candidate leads, and another does when it stops, hangs, or dies.

use std::time::Duration;

use serde_json::json;
use signpost_api::identity::USER_SCHEDULER;
use signpost_control::client::lease::{Leadership, Lease, Settings, Term};
use signpost_types::v1alpha1::SCHEDULER_LEASE_NAMESPACE;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Scene, until};
use crate::api::Behaviour;
use crate::connection::Weather;

/// Returns short settings, for fast tests, which are longer than a busy machine delays a renewal, so that the leader keeps its
/// term.
fn settings() -> Settings {
    Settings { duration: Duration::from_secs(4), renew: Duration::from_millis(50) }
}

fn candidate(api: &Scene, holder: &str) -> (watch::Receiver<Leadership>, CancellationToken) {
    let stop = CancellationToken::new();
    (Lease::run(api.connection.client(USER_SCHEDULER), "signpost", holder, settings(), stop.clone()), stop)
}

fn term(leadership: &watch::Receiver<Leadership>) -> Option<Term> {
    leadership.borrow().term().cloned()
}

#[tokio::test]
async fn one_leads_and_hands_over_when_it_stops() {
    let api = Scene::start(Behaviour::Ours).await;
    let (mut first, stop_first) = candidate(&api, "first");
    until("the first leads", || term(&first).is_some()).await;
    let (second, stop_second) = candidate(&api, "second");
    until(
        "the second has seen the leader",
        || matches!(&*second.borrow(), Leadership::Follower { holder: Some(holder) } if holder == "first"),
    )
    .await;
    let old = term(&first).expect("it leads");
    stop_first.cancel();
    while first.changed().await.is_ok() {}
    assert!(!old.is_current(), "a stopped leader does not lead");
    until("the second leads", || term(&second).is_some()).await;
    assert!(term(&second).expect("it leads").fencing() > old.fencing());
    stop_second.cancel();
}

#[tokio::test]
async fn a_leader_without_api_steps_down_before_another_may_lead() {
    let api = Scene::start(Behaviour::Ours).await;
    let (first, stop_first) = candidate(&api, "first");
    until("the first leads", || term(&first).is_some()).await;
    let old = term(&first).expect("it leads");
    let lease = || api.get("leases", SCHEDULER_LEASE_NAMESPACE, "signpost").expect("it exists");
    let renewed = lease()["spec"]["renewTime"].clone();
    until("it renews", || lease()["spec"]["renewTime"] != renewed).await;
    api.set_down(true).await;
    until("it steps down by itself", || !old.is_current()).await;
    until("it knows", || matches!(&*first.borrow(), Leadership::Follower { .. })).await;
    api.set_down(false).await;
    until("it leads again, in a new term", || term(&first).is_some_and(|term| term.fencing() > old.fencing())).await;
    stop_first.cancel();
}

#[tokio::test]
async fn a_dead_leader_is_replaced_and_never_two_lead() {
    let api = Scene::start(Behaviour::Ours).await;
    api.set_weather(Weather { conflicts: 100, failures: 100, lost_answers: 100, ..Weather::default() });
    let mut candidates: Vec<_> = ["a", "b", "c"].into_iter().map(|holder| candidate(&api, holder)).collect();
    for round in 0..3 {
        until("one of them leads", || candidates.iter().any(|(leadership, _)| term(leadership).is_some())).await;
        for _ in 0..50 {
            let leaders = candidates.iter().filter(|(leadership, _)| term(leadership).is_some()).count();
            assert!(leaders <= 1, "{leaders} lead");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The leader hands over, and comes back as a candidate.
        if let Some(index) = candidates.iter().position(|(leadership, _)| term(leadership).is_some()) {
            let (_, stop) = candidates.remove(index);
            stop.cancel();
            candidates.push(candidate(&api, &format!("again-{round}")));
        }
    }
    for (_, stop) in candidates {
        stop.cancel();
    }
}

#[tokio::test]
async fn a_number_that_was_changed_costs_a_term_and_never_comes_again() {
    let api = Scene::start(Behaviour::Ours).await;
    let (first, stop) = candidate(&api, "first");
    until("it leads", || term(&first).is_some()).await;
    let lease = || api.get("leases", SCHEDULER_LEASE_NAMESPACE, "signpost").expect("it exists");
    let mut greatest = term(&first).expect("it leads").fencing();
    // A change by hand, another store in place of this one, a deletion.
    for change in [Some(7), Some(2), None, Some(0), None] {
        let before = term(&first).expect("it leads");
        match change {
            Some(number) => {
                let mut changed = lease();
                changed["metadata"]["namespace"] = json!(SCHEDULER_LEASE_NAMESPACE);
                changed["spec"]["leaseTransitions"] = json!(number);
                api.put("leases", changed);
            }
            None => api.delete("leases", SCHEDULER_LEASE_NAMESPACE, "signpost"),
        }
        until("it leads in a new term", || term(&first).is_some_and(|term| term.fencing() > before.fencing())).await;
        assert!(!before.is_current(), "{change:?}: the former term is over");
        let now = term(&first).expect("it leads");
        assert!(now.fencing() > greatest.max(change.unwrap_or(0)), "{change:?}: {}", now.fencing());
        until("the Lease has the holder", || {
            let lease = api.get("leases", SCHEDULER_LEASE_NAMESPACE, "signpost");
            lease.is_some_and(|lease| lease["spec"]["leaseTransitions"] == now.fencing())
        })
        .await;
        greatest = now.fencing();
    }
    // A follower also remembers the earlier number.
    let (second, stop_second) = candidate(&api, "second");
    until("it has seen the leader", || matches!(&*second.borrow(), Leadership::Follower { holder: Some(_) })).await;
    api.set_down(true).await;
    until("the first steps down", || term(&first).is_none()).await;
    stop.cancel();
    api.delete("leases", SCHEDULER_LEASE_NAMESPACE, "signpost");
    api.set_down(false).await;
    until("the second leads", || term(&second).is_some()).await;
    assert!(term(&second).expect("it leads").fencing() > greatest);
    stop_second.cancel();
}

#[tokio::test]
async fn one_that_follows_takes_over_as_soon_as_the_leader_lets_go() {
    let api = Scene::start(Behaviour::Ours).await;
    let stop_first = CancellationToken::new();
    // No candidate reads again within the test: only the watch can report the change.
    let patient = Settings { duration: Duration::from_secs(7200), renew: Duration::from_secs(3600) };
    let first =
        Lease::run(api.connection.client(USER_SCHEDULER), "signpost", "first", patient.clone(), stop_first.clone());
    until("the first leads", || term(&first).is_some()).await;
    let stop_second = CancellationToken::new();
    let second = Lease::run(api.connection.client(USER_SCHEDULER), "signpost", "second", patient, stop_second.clone());
    until(
        "the second has seen the leader",
        || matches!(&*second.borrow(), Leadership::Follower { holder: Some(holder) } if holder == "first"),
    )
    .await;
    stop_first.cancel();
    until("the second leads", || term(&second).is_some()).await;
    stop_second.cancel();
}

#[tokio::test]
async fn a_dead_leader_is_replaced_within_a_second_after_its_lease() {
    let (lease, settings) = (Duration::from_secs(15), Settings::lasting(Duration::from_secs(15)));
    for step in 0..8 {
        let api = Scene::start(Behaviour::Ours).await;
        let (stop, of_first) = (CancellationToken::new(), api.api.connection("first"));
        let run = |client, holder| Lease::run(client, "signpost", holder, settings.clone(), stop.clone());
        let first = run(of_first.client(USER_SCHEDULER), "first");
        until("the first leads", || term(&first).is_some()).await;
        let second = run(api.connection.client(USER_SCHEDULER), "second");
        tokio::time::sleep(Duration::from_secs(20) + Duration::from_millis(410) * step).await;
        assert!(term(&second).is_none(), "the first renews");
        of_first.cut(true);
        let died = tokio::time::Instant::now();
        until("the second leads", || term(&second).is_some()).await;
        let took = died.elapsed();
        assert!(took <= lease + Duration::from_secs(1), "step {step}: it took {took:?}");
        stop.cancel();
    }
}
