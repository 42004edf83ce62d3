//! Tests of Routers: rejected objects, defaults, and conditions that prevent deletion.

use signpost_apiserver::registry::{RelatedWrite, SideEffect, conflict_key};

use super::*;
use crate::kinds::fixture::{Objects, context};

fn hooks() -> Routers {
    Routers::new(Arc::new(PlatformConfig::new("v3.example")))
}

fn router(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name}, "spec": spec})
}

fn reported(writes: &[RelatedWrite]) -> Vec<(&str, Option<&str>, &SideEffect)> {
    assert!(writes.iter().all(|write| write.kind == conflict_key::KIND));
    writes.iter().map(|write| (write.name.as_str(), write.expect.as_deref(), &write.effect)).collect()
}

#[test]
fn the_zone_defaults_to_the_name_below_the_domain() {
    let mut object = router("shard1", json!({}));
    hooks().prepare(&context(), None, &mut object);
    assert_eq!(object["spec"]["dns"], "shard1.v3.example");
    let mut replaced = router("shard1", json!({"ttl": 5}));
    hooks().prepare(&context(), Some(&object), &mut replaced);
    assert_eq!(replaced["spec"]["dns"], "shard1.v3.example");
}

#[test]
fn the_name_of_a_name_server_is_no_shard() {
    let name_servers = ["ns1.v3.example".to_owned()];
    let hooks = Routers::new(Arc::new(PlatformConfig {
        name_servers: name_servers.into(),
        ..PlatformConfig::new("v3.example")
    }));
    for (dns, good) in [("ns1.v3.example", false), ("ns2.v3.example", true), ("xn--zz99.v3.example", false)] {
        let found = hooks.validate(&context(), None, &router("r", json!({"dns": dns})));
        assert_eq!(found.is_empty(), good, "{dns}");
        assert!(found.iter().all(|cause| cause.field == "spec.dns"));
    }
}

#[test]
fn what_has_no_effect_is_warned_of() {
    for (check, warned) in [
        (json!({}), vec![]),
        (json!({"type": "tcp", "path": "/", "expectedStatuses": "200-399", "insecure": false}), vec![]),
        (json!({"type": "tcp", "path": "/up", "insecure": true}), vec!["path", "insecure"]),
        (json!({"type": "http", "path": "/up", "host": "a.example", "insecure": true}), vec!["insecure"]),
        (json!({"type": "https", "path": "/up", "insecure": true}), vec![]),
        (json!({"type": "tcp", "timeoutSeconds": 6, "intervalSeconds": 5}), vec!["timeoutSeconds"]),
        (json!({"type": "tcp", "timeoutSeconds": 5, "intervalSeconds": 5}), vec![]),
    ] {
        let found = check_warnings(&check);
        let path = |warning: &String| warning.split(": ").next().map(|path| path.replace("spec.healthCheck.", ""));
        let found: Vec<String> = found.iter().filter_map(path).collect();
        assert_eq!(found, warned, "{check}");
    }
}

#[test]
fn a_lowered_ttl_is_remembered_as_long_as_caches_may_hold_it() {
    let mut stored = router("shard1", json!({"ttl": 3600}));
    for (ttl, horizon) in [
        (7200, None),
        (30, Some("2026-01-01T14:00:00Z")),
        (20, Some("2026-01-01T14:00:00Z")),
        (10_000, Some("2026-01-01T14:00:00Z")),
        (5, Some("2026-01-01T14:46:40Z")),
    ] {
        let mut new = router("shard1", json!({"ttl": ttl}));
        new["status"] = stored["status"].clone();
        hooks().prepare(&context(), Some(&stored), &mut new);
        assert_eq!(new["status"]["ttlHorizon"].as_str(), horizon, "{ttl}");
        stored = new;
    }
}

#[test]
fn the_horizon_outlives_a_status_without_it() {
    let with = |horizon: &str| {
        let mut router = router("shard1", json!({}));
        router["status"] = json!({"ttlHorizon": horizon});
        router
    };
    let (noon, one, two) = ("2026-01-01T12:00:00Z", "2026-01-01T14:00:00Z", "2026-01-01T15:00:00Z");
    for (stored, sent, kept) in [
        (one, Value::Null, Some(one)),
        (one, json!({}), Some(one)),
        (one, json!({"ttlHorizon": noon}), Some(one)),
        (one, json!({"ttlHorizon": two}), Some(two)),
        (noon, json!({}), None),
    ] {
        let mut new = router("shard1", json!({}));
        new["status"] = sent.clone();
        hooks().prepare_status(&context(), &with(stored), &mut new);
        assert_eq!(new["status"]["ttlHorizon"].as_str(), kept, "{stored} {sent}");
    }
}

#[tokio::test]
async fn a_router_through_whose_zone_former_names_lead_is_not_deleted_unknowingly() {
    let former_name_in = |zone: &str, router: &str, until: &str| json!({"name": format!("n-a.{zone}"), "router": router, "since": until, "until": until});
    let former = |router: &str, until: &str| former_name_in("s1.v3.example", router, until);
    let binding = |name: &str, former_names: Value| {
        json!({"kind": "RouteBinding", "metadata": {"name": name, "namespace": "n"},
        "spec": {"router": "shard2", "formerNames": former_names}})
    };
    let objects = Objects::new(vec![
        binding("a", json!([former("shard1", "2026-01-02T00:00:00Z"), former("shard3", "2027-01-02T00:00:00Z")])),
        binding("b", json!([former("shard1", "2026-01-03T00:00:00Z")])),
        // It went with the zone of a former Router of the name.
        binding("c", json!([former_name_in("old.v3.example", "shard1", "2026-01-04T00:00:00Z")])),
    ]);
    let context = context();
    for (options, reported) in [
        (
            json!({}),
            Some(
                "its zone serves former names of 2 routes that moved away, the last until 2026-01-03T00:00:00Z. Wait until then; or,",
            ),
        ),
        (json!({"forceDeleteRoutes": 1}), Some("the number of lost Routes is 2, not 1")),
        (json!({"forceDeleteRoutes": 2}), None),
    ] {
        let old = router("shard1", json!({"dns": "s1.v3.example"}));
        let delete = Operation::Delete { old: &old, options: &options };
        let found = hooks().before_commit(&context, delete, &objects).await;
        match (found, reported) {
            (Ok(_), None) => {}
            (Err(error), Some(reported)) => assert!(error.message.contains(reported), "{}", error.message),
            (found, _) => panic!("{options}: {}", found.is_ok()),
        }
    }
}

/// Hooks that read the first word of each record as a name, which is below the zone unless it ends with a dot.
fn hooks_with_records() -> Routers {
    let record_names = |router: &Router| {
        let dns = router.spec.dns.clone().unwrap_or_default();
        let name = |record: &String| match record.split(' ').next().unwrap_or_default() {
            full if full.ends_with('.') => full.trim_end_matches('.').to_owned(),
            name => format!("{name}.{dns}"),
        };
        router.spec.records.iter().map(name).collect()
    };
    Routers::new(Arc::new(PlatformConfig { record_names: Box::new(record_names), ..PlatformConfig::new("v3.example") }))
}

/// A shard at `apps.v3.example` with records and Routes, and one inside it.
fn nested() -> Objects {
    let binding = |name: &str, router: &str, label: &str, former_names: Value| {
        json!({"kind": "RouteBinding", "metadata": {"name": name, "namespace": "n"},
            "spec": {"router": router, "label": label, "formerNames": former_names}})
    };
    let claim = |kind: &str, value: &str, route: &str, released: Value| {
        json!({"kind": "NameClaim", "metadata": {"name": value}, "spec": {"type": kind, "value": value, "releasedAt": released,
            "holder": {"namespace": "n", "name": route, "uid": route}}})
    };
    Objects::new(vec![
        router("apps", json!({"dns": "apps.v3.example", "records": ["x.rec TXT a", "www TXT b"]})),
        router("inner", json!({"dns": "inner.apps.v3.example"})),
        claim("label", "web", "web", Value::Null),
        binding("web", "apps", "web", json!([])),
        claim("label", "moved", "moved", Value::Null),
        binding("moved", "other", "moved", json!([{"name": "moved.apps.v3.example", "router": "apps"}])),
        claim("label", "elsewhere", "elsewhere", Value::Null),
        binding("elsewhere", "other", "elsewhere", json!([])),
        claim("label", "released", "released", json!("2026-01-01T00:00:00Z")),
        claim("host", "a.b.adopted.apps.v3.example", "host", Value::Null),
        claim("host", "*.wild.apps.v3.example", "host", Value::Null),
        claim("host", "c.left.apps.v3.example", "gone", Value::Null),
        binding("host", "apps", "n-host", json!([])),
    ])
}

#[tokio::test]
async fn a_zone_is_unique_and_takes_no_name_of_another_shard() {
    for (dns, records, refused) in [
        ("s2.v3.example", json!([]), None),
        ("aapps.v3.example", json!([]), None),
        ("apps.v3.example", json!([]), Some("is already the zone of Router \"apps\"")),
        ("eu.apps.v3.example", json!([]), None),
        ("x.eu.apps.v3.example", json!([]), None),
        ("x.inner.apps.v3.example", json!([]), None),
        ("rec.apps.v3.example", json!([]), Some("at or below it: x.rec.apps.v3.example; move")),
        ("x.rec.apps.v3.example", json!([]), Some("x.rec.apps.v3.example")),
        ("y.rec.apps.v3.example", json!([]), None),
        ("web.apps.v3.example", json!([]), Some("at or below it: web.apps.v3.example of Route n/web; move")),
        ("moved.apps.v3.example", json!([]), Some("moved.apps.v3.example, a former name of Route n/moved")),
        ("elsewhere.apps.v3.example", json!([]), None),
        ("released.apps.v3.example", json!([]), None),
        ("b.adopted.apps.v3.example", json!([]), Some("a.b.adopted.apps.v3.example of Route n/host")),
        ("c.adopted.apps.v3.example", json!([]), None),
        ("wild.apps.v3.example", json!([]), Some("*.wild.apps.v3.example of Route n/host")),
        ("left.apps.v3.example", json!([]), None),
        // Around others, its own records are the names.
        ("around.example", json!(["a TXT x"]), None),
    ] {
        let object = router("new", json!({"dns": dns, "records": records}));
        let context = context();
        let found = hooks_with_records().before_commit(&context, Operation::Create(&object), &nested()).await;
        match (found, refused) {
            (Ok(writes), None) => {
                let key = |name: &str| format!("/signpost.dev/turnstiles/{name}");
                let next = SideEffect::Put(json!({}));
                let outer = dns.ends_with(".apps.v3.example").then(|| match dns.contains("inner") {
                    true => key("routers/inner"),
                    false => key("routers/apps"),
                });
                let expected: Vec<_> = outer.into_iter().chain([key("zones")]).collect();
                let expected: Vec<_> = expected.iter().map(|key| (key.as_str(), Some("7"), &next)).collect();
                assert_eq!(reported(&writes), expected, "{dns}");
            }
            (Err(error), Some(part)) => {
                assert_eq!((error.code, error.causes[0].field.as_str()), (422, "spec.dns"), "{dns}");
                assert!(error.message.contains(part), "{dns}: {}", error.message);
            }
            (found, _) => panic!("{dns}: {:?}", found.map(drop).map_err(|error| error.message)),
        }
    }
    // A zone around others, whose records would be theirs.
    for (record, good) in [("www TXT a", true), ("inner.apps TXT a", false), ("a.apps TXT a", false)] {
        let object = router("new", json!({"dns": "v3.example", "records": [record]}));
        let context = context();
        let found = hooks_with_records().before_commit(&context, Operation::Create(&object), &nested()).await;
        assert_eq!(found.is_ok(), good, "{record}");
    }
}

#[tokio::test]
async fn new_records_are_not_in_the_zones_of_inner_shards() {
    let with = |records: &[&str]| router("apps", json!({"dns": "apps.v3.example", "records": records}));
    for (old, new, good) in [
        (&[][..], &["www TXT a"][..], true),
        (&[], &["inner TXT a"], false),
        (&[], &["x.inner TXT a"], false),
        (&["x.inner TXT a"], &["x.inner TXT a", "www TXT b"], true),
        (&["x.inner TXT a"], &["x.inner TXT a", "y.inner TXT b"], false),
        (&["x.inner TXT a"], &[], true),
    ] {
        let (old, new, context) = (with(old), with(new), context());
        let update = Operation::Update { old: &old, new: &new };
        let found = hooks_with_records().before_commit(&context, update, &nested()).await;
        assert_eq!(found.is_ok(), good, "{new}");
        if let Err(error) = found {
            assert!(error.message.contains("the zone of Router \"inner\""), "{}", error.message);
        }
    }
}

#[test]
fn hosts_that_a_new_zone_takes_are_reported() {
    let claim = |kind: &str, value: &str, released: Value| {
        json!({"kind": "NameClaim", "metadata": {"name": value}, "spec": {"type": kind, "value": value,
            "releasedAt": released}})
    };
    let objects = Objects::new(vec![
        claim("host", "*.shop.test", Value::Null),
        claim("host", "www.shop.test", Value::Null),
        claim("host", "old.shop.test", json!("2026-01-01T00:00:00Z")),
        claim("host", "notshop.test", Value::Null),
        claim("label", "shop", Value::Null),
    ]);
    for (dns, reported) in [
        ("shop.test", Some("contains custom hosts of Routes: *.shop.test, www.shop.test; ")),
        ("www.shop.test", Some("contains custom hosts of Routes: www.shop.test; ")),
        ("old.shop.test", None),
        ("shop", None),
        ("s1.v3.example", None),
    ] {
        let router = json!({"spec": {"dns": dns}});
        let found = taken_hosts(&router, "v3.example", &objects).unwrap();
        assert_eq!(found.is_some(), reported.is_some(), "{dns} {found:?}");
        assert!(found.is_none_or(|found| found.contains(reported.unwrap_or_default())), "{dns}");
    }
}

#[test]
fn records_at_the_names_of_routes_are_warned_of() {
    let claim = |label: &str, route: &str| {
        json!({"kind": "NameClaim", "metadata": {"name": label},
            "spec": {"type": "label", "value": label, "holder": {"namespace": "shop", "name": route, "uid": "u"}}})
    };
    let binding = |route: &str, router: &str, label: &str| {
        json!({"kind": "RouteBinding", "metadata": {"namespace": "shop", "name": route},
            "spec": {"router": router, "label": label}})
    };
    let objects = Objects::new(vec![
        claim("shop-web", "web"),
        binding("web", "s1", "shop-web"),
        claim("shop-far", "far"),
        binding("far", "s2", "shop-far"),
        claim("shop-gone", "gone"),
    ]);
    let router = json!({"metadata": {"name": "s1"}});
    let taken =
        |labels: &[&str]| labels.iter().map(|label| ((*label).to_owned(), "is an alias of x".to_owned())).collect();
    let warned = |labels: &[&str]| {
        let taken: Vec<(String, String)> = taken(labels);
        taken_names(&router, &taken, &objects).unwrap()
    };
    assert_eq!(warned(&["shop-far", "shop-gone", "other"]), None);
    let reported = warned(&["shop-far", "shop-web"]).expect("a route is on it");
    assert!(
        reported.ends_with("get the reason NameTaken: shop-web, the name of Route shop/web, is an alias of x"),
        "{reported}"
    );
}

#[tokio::test]
async fn a_router_that_what_is_held_may_lead_to_is_not_deleted_unknowingly() {
    let hold = |more: Value, holders: usize| {
        let holder = |at| json!({"server": format!("ns{at}"), "since": "2026-01-01T00:00:00Z", "generation": 1});
        let holders: Vec<Value> = (0..holders).map(holder).collect();
        let mut spec = json!({"type": "RouteBinding", "objects": 98, "known": 98, "cause": "list"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "DeletionHold", "metadata": {"name": "b", "generation": 2},
               "spec": spec, "status": {"holders": holders}})
    };
    let lose = json!({"forceDeleteRoutes": 98});
    for (held, options, good) in [
        (hold(json!({}), 1), json!({}), false),
        (hold(json!({}), 1), lose, true),
        (hold(json!({"decision": "reject"}), 1), json!({}), false),
        (hold(json!({"decision": "approve"}), 1), json!({}), true),
        (hold(json!({"type": "Router"}), 1), json!({}), true),
        (hold(json!({}), 0), json!({}), true),
    ] {
        let (old, context, objects) = (router("shard1", json!({})), context(), Objects::new(vec![held.clone()]));
        let delete = Operation::Delete { old: &old, options: &options };
        match hooks().before_commit(&context, delete, &objects).await {
            Ok(_) => assert!(good, "{held}"),
            Err(error) => {
                assert!(!good && error.message.contains("98 RouteBindings (signpost hold list)"), "{held}: {error:?}")
            }
        }
    }
}

#[tokio::test]
async fn a_router_with_routes_is_not_deleted_unknowingly() {
    let binding = |name: &str, router: &str| json!({"kind": "RouteBinding", "metadata": {"name": name, "namespace": "n"}, "spec": {"router": router}});
    let objects = Objects::new(vec![binding("a", "shard1"), binding("b", "shard1"), binding("c", "shard2")]);
    let plain = router("shard1", json!({}));
    let mut annotated = plain.clone();
    annotated["metadata"]["annotations"] = json!({FORCE_DELETE_ANNOTATION: "2"});
    let mut mistaken = plain.clone();
    mistaken["metadata"]["annotations"] = json!({FORCE_DELETE_ANNOTATION: "3"});
    for (old, options, good) in [
        (&plain, json!({}), false),
        (&plain, json!({"forceDeleteRoutes": "2"}), true),
        (&plain, json!({"forceDeleteRoutes": 1}), false),
        (&annotated, json!({}), true),
        (&mistaken, json!({}), false),
        (&router("shard3", json!({})), json!({}), true),
    ] {
        let context = context();
        let found = hooks().before_commit(&context, Operation::Delete { old, options: &options }, &objects).await;
        assert_eq!(found.is_ok(), good, "{old} {options}");
        match found {
            Ok(writes) => {
                let name = format!("/signpost.dev/turnstiles/routers/{}", old["metadata"]["name"].as_str().unwrap());
                assert_eq!(reported(&writes), [(name.as_str(), Some("7"), &SideEffect::Delete)]);
            }
            Err(error) => {
                assert_eq!(error.code, 409);
                assert!(error.message.contains("2 Routes are bound to it"), "{}", error.message);
            }
        }
    }
    let context = context();
    let released = hooks().before_commit(&context, Operation::Release { old: &plain }, &objects).await.unwrap();
    assert_eq!(
        reported(&released),
        [("/signpost.dev/turnstiles/routers/shard1", Some("7"), &SideEffect::Delete)],
        "it was judged when it began"
    );
}

#[test]
fn applies_are_tracked_by_address_and_by_whole_selectors() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let config = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "s1"},
        "spec": {"addresses": [{"ip": "192.0.2.1"}], "routeSelector": {"matchLabels": {"a": "b"}}}});
    let applied =
        signpost_apiserver::apply::server_side_apply(&ROUTER, None, config, "gitops", false, None, now).unwrap();
    let expected = json!([{"manager": "gitops", "operation": "Apply", "apiVersion": "signpost.dev/v1alpha1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {
            "f:addresses": {"k:{\"ip\":\"192.0.2.1\"}": {".": {}, "f:ip": {}}}, "f:routeSelector": {}}}}]);
    assert_eq!(applied["metadata"]["managedFields"], expected);
}
