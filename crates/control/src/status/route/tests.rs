//! Statuses of Routes, judged without an API.

use super::*;
use crate::world::{self, route::Conditions};
use signpost_types::v1alpha1::route::{PROGRAMMED, RESOLVED_REFS};
use signpost_types::v1alpha1::router::Router;

fn router(spec: serde_json::Value) -> RouterInfo {
    let router: Router = serde_json::from_value(json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "shard1"}, "spec": spec,
    }))
    .expect("a Router");
    RouterInfo::new(&router, &world::Settings::of_domain("v3.example"))
}

/// Returns a Route in the state after its binding.
fn placed() -> RouteInfo {
    with([])
}

/// Returns the same Route, whose status has these conditions, in addition or instead.
fn with(updates: impl IntoIterator<Item = ConditionUpdate>) -> RouteInfo {
    let mut all = Vec::from([reported(SCHEDULED, true), reported(ADMITTED, true)]);
    for update in updates {
        all.retain(|one| one.kind != update.kind);
        all.push(update);
    }
    RouteInfo { bound: true, conditions: Conditions::of_updates(all), ..RouteInfo::default() }
}

/// Returns the same Route without one of these conditions.
fn without(kind: &str) -> RouteInfo {
    let both = [(SCHEDULED, true), (ADMITTED, true)];
    let conditions = Conditions::of_statuses(both.into_iter().filter(|(of, _)| *of != kind));
    RouteInfo { conditions, ..placed() }
}

fn reported(kind: &'static str, is_true: bool) -> ConditionUpdate {
    update(kind, is_true, "", "")
}

fn kinds(
    route: &RouteInfo,
    router: Option<&RouterInfo>,
    hold: &Hold,
    (blocking, lost): (&[String], &[String]),
) -> Vec<(&'static str, bool)> {
    let binding = BindingInfo { router: "shard1".into(), label: "ns-app".into(), ..BindingInfo::default() };
    let key = ObjectKey::namespaced("ns", "app");
    let placement = Placement { binding: &binding, router, namespace: &Labels::new(), hold, blocking, lost };
    statements(route, &key, placement).iter().map(|statement| (statement.kind, statement.is_true())).collect()
}

#[test]
fn conditions_follow_changes_and_are_silent_otherwise() {
    let router = router(json!({"routeSelector": {"matchLabels": {"tier": "gold"}}}));
    for (tier, bound, admitted, mismatch, expected) in [
        ("gold", true, Some(true), None, vec![]),
        ("gold", true, Some(true), Some(false), vec![]),
        ("lead", true, Some(true), None, vec![(SELECTOR_MISMATCH, true)]),
        ("lead", true, Some(true), Some(true), vec![]),
        ("gold", true, Some(true), Some(true), vec![(SELECTOR_MISMATCH, false)]),
        ("gold", true, None, None, vec![(ADMITTED, true)]),
        ("gold", true, Some(false), None, vec![(ADMITTED, true)]),
        ("lead", false, Some(false), None, vec![]),
    ] {
        let labels = Labels::from([("tier".to_owned(), tier.to_owned())]);
        let reported = [(SCHEDULED, Some(true)), (ADMITTED, admitted), (SELECTOR_MISMATCH, mismatch)];
        let reported = reported.into_iter().filter_map(|(kind, is_true)| Some((kind, is_true?)));
        let route = RouteInfo { labels, bound, conditions: Conditions::of_statuses(reported), ..placed() };
        assert_eq!(kinds(&route, Some(&router), &Hold::Held, (&[], &[])), expected, "{route:?}");
    }
}

#[test]
fn settings_that_are_not_honored_are_reported_until_they_are() {
    let binding = BindingInfo { router: "shard1".into(), ..BindingInfo::default() };
    let (key, hold, namespace) = (ObjectKey::namespaced("ns", "app"), Hold::Held, Labels::new());
    let change_of = |traffic: serde_json::Value, router: &RouterInfo, settings: Option<ConditionUpdate>| {
        let object: Route = serde_json::from_value(json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": "app", "namespace": "ns",
            "annotations": {"haproxy.router.openshift.io/timeout": "soon"}}, "spec": {"traffic": traffic},
        }))
        .expect("a Route");
        let requested = RouteInfo::new(&object).requested.filter(|_| !traffic.is_null());
        let is_reported = settings.is_some();
        let route = RouteInfo { requested, ..with(settings) };
        let placement = Placement {
            binding: &binding,
            router: Some(router),
            namespace: &namespace,
            hold: &hold,
            blocking: &[],
            lost: &[],
        };
        let reported = of_settings(&route, placement);
        let is_withdrawn = is_reported && super::settings(&route, placement).is_some_and(|found| found.is_empty());
        assert_eq!(statements(&route, &key, placement).len(), usize::from(reported.is_some()));
        (reported.map(|update| (update.is_true(), update.reason, update.message)), is_withdrawn)
    };
    let maxima = json!({"maxima": {"requestTimeoutSeconds": 60}});
    let haproxy = router(json!({"type": "haproxy", "proxy": maxima}));
    let invalid = "haproxy.router.openshift.io/timeout: \"soon\" is not a time such as 30s or 5m";
    let above = "spec.traffic.requestTimeoutSeconds: 61 s is above the maximum of Router shard1, so 60 s applies";
    let both = format!("{invalid}; {above}");
    let long = json!({"requestTimeoutSeconds": 61});
    assert_eq!(change_of(long.clone(), &haproxy, None), (Some((false, "InvalidAnnotation", both.clone())), false));
    let reported = || Some(update(SETTINGS_HONORED, false, "InvalidAnnotation", both.as_str()));
    assert_eq!(change_of(long.clone(), &haproxy, reported()), (None, false));
    assert_eq!(change_of(json!(null), &haproxy, reported()), (None, true));
    assert_eq!(change_of(json!(null), &haproxy, None), (None, false));
    let (external, _) = change_of(long, &router(json!({})), None);
    let nobody = format!("{invalid}; spec.traffic: no agent configures the proxies of Router shard1");
    assert_eq!(external, Some((false, "InvalidAnnotation", nobody)));
    for (one, other, is_same) in [
        (json!({"type": "haproxy"}), json!({"type": "nginx"}), false),
        (json!({"type": "haproxy", "proxy": maxima}), json!({"type": "haproxy"}), false),
        (json!({"type": "haproxy", "proxy": {"keepAliveSeconds": 5}}), json!({"type": "haproxy"}), true),
    ] {
        assert_eq!(router(one.clone()).places_as(&router(other)), is_same, "{one}");
    }
}

#[test]
fn a_host_is_admitted_as_long_as_it_is_held() {
    let router = router(json!({}));
    let taken = Hold::Taken("another's".to_owned());
    for (hold, admitted, expected) in [
        (&Hold::Held, None, Some(true)),
        (&Hold::Held, Some(true), None),
        (&Hold::Held, Some(false), Some(true)),
        (&Hold::Unverified, Some(true), Some(false)),
        (&Hold::Unverified, Some(false), None),
        (&taken, Some(true), Some(false)),
        // The status already shows that the host is not admitted, and now gets the reason: another Route holds it.
        (&taken, Some(false), Some(false)),
        // The claim comes first.
        (&Hold::Free, Some(false), None),
    ] {
        let host = Some("www.shop.example".into());
        let reported = admitted.map_or_else(|| without(ADMITTED), |is_true| with([reported(ADMITTED, is_true)]));
        let route = RouteInfo { host, ..reported };
        let expected: Vec<_> = expected.map(|is_true| (ADMITTED, is_true)).into_iter().collect();
        assert_eq!(kinds(&route, Some(&router), hold, (&[], &[])), expected, "{hold:?} {admitted:?}");
    }
}

#[test]
fn what_was_taken_away_is_put_back() {
    let router = router(json!({}));
    let bare = RouteInfo { bound: true, ..RouteInfo::default() };
    let both = vec![(ADMITTED, true), (SCHEDULED, true)];
    for (route, router, expected) in [
        (bare.clone(), Some(&router), both),
        (without(SCHEDULED), Some(&router), vec![(SCHEDULED, true)]),
        (with([reported(SCHEDULED, false)]), Some(&router), vec![(SCHEDULED, true)]),
        // A Route whose Router was deleted is not reported as scheduled there.
        (without(SCHEDULED), None, vec![(SCHEDULED, false)]),
        (RouteInfo { bound: false, ..bare }, Some(&router), vec![]),
    ] {
        assert_eq!(kinds(&route, router, &Hold::Held, (&[], &[])), expected, "{route:?}");
    }
}

#[test]
fn what_was_judged_before_a_move_is_not_said_after_it() {
    let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
        "metadata": {"namespace": "ns", "name": "app", "uid": "u1"}, "spec": {"to": {"kind": "Service", "name": "app"}},
        "status": {"phase": "scheduled", "router": "shard2", "conditions": [{"type": "Resolvable", "status": "True",
            "reason": "Resolvable", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let route: Route = serde_json::from_value(object).expect("a Route");
    for (router, expected) in [("shard1", None), ("shard2", Some(["Resolvable", "Programmed", "Admitted", "Ready"]))] {
        let uid = Uid::from("u1");
        let statements = vec![update(PROGRAMMED, true, "Programmed", "")];
        let about = About::BoundTo(router.into());
        let finding = RouteFinding::new(&uid, about, statements);
        let mut findings = RouteFindings::default();
        findings.set(PROGRAMMED, Some(Arc::new(finding)));
        let facts = ConditionInputs { instances: Some(true), verifies_names: true, ..ConditionInputs::default() };
        let statements = vec![admitted("it holds its names")];
        let named = Some(router.into());
        let change = Change { uid, router: named, statements, findings, facts, ..Change::default() };
        let changed = apply(&change, &route, Timestamp::UNIX_EPOCH).map(|changed| changed.patch);
        let kinds = changed.map(|patch| {
            let conditions = patch["conditions"].as_array().cloned().unwrap_or_default();
            let kinds = conditions.iter().map(|condition| condition["type"].as_str().unwrap_or_default().to_owned());
            kinds.collect::<std::collections::BTreeSet<_>>()
        });
        assert_eq!(kinds, expected.map(|kinds| kinds.map(str::to_owned).into()), "{router}");
    }
}

#[test]
fn a_finding_about_another_generation_is_not_written() {
    let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
        "metadata": {"namespace": "ns", "name": "app", "uid": "u1", "generation": 2}, "spec": {},
        "status": {"phase": "scheduled", "router": "shard1"}});
    let route: Route = serde_json::from_value(object).expect("a Route");
    for (router, generation, is_written) in
        [("shard1", Some(1), false), ("shard1", Some(2), true), ("shard1", None, false), ("shard2", Some(2), false)]
    {
        let (uid, statements) = (Uid::from("u1"), vec![update(RESOLVED_REFS, true, "ResolvedRefs", "")]);
        let about = About::Generation(generation.and_then(std::num::NonZeroI64::new), router.into());
        let finding = RouteFinding::new(&uid, about, statements);
        let mut findings = RouteFindings::default();
        findings.set(RESOLVED_REFS, Some(Arc::new(finding)));
        let change = Change { uid, router: Some("shard1".into()), findings, ..Change::default() };
        let changed = apply(&change, &route, Timestamp::UNIX_EPOCH);
        assert_eq!(changed.is_some(), is_written, "{router} {generation:?}");
    }
}

#[test]
fn the_condition_of_backends_is_withdrawn_where_it_does_not_count() {
    let route = with([reported(PROGRAMMED, true), reported(RESOLVED_REFS, false)]);
    let key = ObjectKey::namespaced("ns", "app");
    for (instances, services, expected) in [
        (true, true, vec![]),
        // Services cannot be listed.
        (true, false, vec![RESOLVED_REFS]),
        (false, false, vec![PROGRAMMED, RESOLVED_REFS]),
    ] {
        let facts = ConditionInputs {
            instances: Some(instances),
            services,
            verifies_names: true,
            ..ConditionInputs::default()
        };
        let findings = RouteFindings::default();
        let inputs = Inputs { key: &key, placement: None, findings: &findings, facts };
        assert_eq!(super::route(&route, inputs).withdrawn, expected, "{instances} {services}");
    }
}

#[test]
fn a_label_that_is_not_the_wished_for_one_has_event_of_again() {
    let route = |label: &str| {
        let names = json!([{"type": "system", "name": format!("{label}.shard1.v3.example")}]);
        let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
            "metadata": {"namespace": "ns", "name": "app"}, "spec": {"to": {"kind": "Service", "name": "app"}},
            "status": {"phase": "scheduled", "names": names}});
        serde_json::from_value::<Route>(object).expect("a Route")
    };
    let admitted = |is_true| update(ADMITTED, is_true, "Admitted", "");
    for (label, is_true, reason) in [
        ("ns-app", true, "Admitted"),
        ("ns-app-0123456789", true, "LabelTaken"),
        ("ns-app-0123456789", false, "Admitted"),
    ] {
        assert_eq!(with_label_reason(&admitted(is_true), &route(label)).reason, reason, "{label}");
    }
}

#[test]
fn a_router_made_again_with_another_zone_is_not_the_one_that_was() {
    let key = ObjectKey::namespaced("ns", "app");
    let dns = "old.v3.example".into();
    let binding = BindingInfo { router: "shard1".into(), label: "ns-app".into(), dns, ..BindingInfo::default() };
    for (dns, router_gone, expected) in [
        ("old.v3.example", false, None),
        ("OLD.v3.example", true, Some((true, "Router shard1 exists again"))),
        ("new.v3.example", true, None),
        ("new.v3.example", false, Some((false, "Router shard1 was re-created with another zone than old.v3.example"))),
    ] {
        let router = router(json!({"dns": dns}));
        let route = with([update(SCHEDULED, !router_gone, if router_gone { ROUTER_GONE } else { "Scheduled" }, "")]);
        let (namespace, hold) = (Labels::new(), Hold::Held);
        let placement = Placement {
            binding: &binding,
            router: Some(&router),
            namespace: &namespace,
            hold: &hold,
            blocking: &[],
            lost: &[],
        };
        let said = statements(&route, &key, placement);
        assert_eq!(said.len(), usize::from(expected.is_some()), "{said:?}");
        if let Some((is_true, message)) = expected {
            assert!(said[0].is_true() == is_true && said[0].message.starts_with(message), "{said:?}");
        }
    }
}

#[test]
fn a_former_name_that_leads_elsewhere_has_event_of() {
    let router = router(json!({}));
    let on = |routers: &[&str]| routers.iter().map(|&router| router.to_owned()).collect::<Vec<_>>();
    let route = placed();
    let blocked = |routers: &[&str], zones: &[&str]| with(blocked("ns-app", &on(routers), &on(zones)));
    for (route, blocking, lost, expected) in [
        (route.clone(), on(&[]), on(&[]), vec![]),
        (route.clone(), on(&["shard2"]), on(&[]), vec![(FORMER_NAME_BLOCKED, true)]),
        (blocked(&["shard2"], &[]), on(&["shard2"]), on(&[]), vec![]),
        (blocked(&["shard2"], &[]), on(&["shard2", "shard3"]), on(&[]), vec![(FORMER_NAME_BLOCKED, true)]),
        (blocked(&["shard2"], &[]), on(&[]), on(&[]), vec![(FORMER_NAME_BLOCKED, false)]),
        (route.clone(), on(&[]), on(&["s2.example"]), vec![(FORMER_NAME_BLOCKED, true)]),
        (blocked(&[], &["s2.example"]), on(&[]), on(&["s2.example"]), vec![]),
        (blocked(&[], &["s2.example"]), on(&["shard3"]), on(&["s2.example"]), vec![(FORMER_NAME_BLOCKED, true)]),
        (blocked(&["shard3"], &["s2.example"]), on(&["shard3"]), on(&["s2.example"]), vec![]),
        (blocked(&[], &["s2.example"]), on(&[]), on(&[]), vec![(FORMER_NAME_BLOCKED, false)]),
    ] {
        let said = kinds(&route, Some(&router), &Hold::Held, (&blocking, &lost));
        assert_eq!(said, expected, "{route:?} {blocking:?} {lost:?}");
    }
}
