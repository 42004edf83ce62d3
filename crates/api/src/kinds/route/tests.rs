//! Tests of Routes: rejected objects, and permissions per user.

use super::*;
use crate::access::GROUP_ADMINS;
use crate::identity::Identity;
use crate::kinds::fixture::{self, Objects, context};
use signpost_types::names::LabelRules;

fn hooks() -> Routes {
    Routes::new(Arc::new(PlatformConfig::new("v3.example")))
}

fn route(spec: Value) -> Value {
    json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": "r", "namespace": "n"}, "spec": spec})
}

fn scheduled(spec: Value) -> Value {
    let mut route = route(spec);
    route["status"] = json!({"phase": "scheduled", "router": "s1", "dns": "n-r.s1.v3.example", "names": [
        {"name": "n-r.s1.v3.example", "type": "system"}, {"name": "n-r.routes.v3.example", "type": "alias"}]});
    route
}

#[test]
fn one_that_must_not_have_its_host_does_not_look_healthy() {
    let cell = |object: &Value, name: &str| fixture::cell(&ROUTE, name, object);
    let mut route = scheduled(json!({"host": "www.shop.test"}));
    for (admitted, live, reason) in
        [(("True", "Admitted"), "True", "Bound"), (("False", "OwnershipNotVerified"), "False", "OwnershipNotVerified")]
    {
        route["status"]["conditions"] = json!([
            {"type": "Scheduled", "status": "True", "reason": "Bound"},
            {"type": "Admitted", "status": admitted.0, "reason": admitted.1},
            {"type": "Resolvable", "status": "True", "reason": "Resolvable"},
        ]);
        assert_eq!((cell(&route, "Live"), cell(&route, "Reason")), (json!(live), json!(reason)));
    }
    route["status"]["names"] =
        json!([{"name": "n-r.s1.v3.example", "type": "system"}, {"name": "www.shop.test", "type": "custom"}]);
    for (points, live) in
        [(None, "Unknown"), (Some("Unknown"), "Unknown"), (Some("False"), "False"), (Some("True"), "True")]
    {
        let mut conditions = vec![json!({"type": "Resolvable", "status": "True", "reason": "Resolvable"})];
        conditions.extend(points.map(|points| json!({"type": "HostPointsHere", "status": points, "reason": "X"})));
        route["status"]["conditions"] = json!(conditions);
        assert_eq!(cell(&route, "Live"), json!(live));
    }
}

#[test]
fn only_a_binding_sets_the_status() {
    let stored = scheduled(json!({}));
    let mut new = stored.clone();
    new["status"]["conditions"] = json!([{"type": "Resolvable"}]);
    assert!(hooks().validate_status_update(&context(), &stored, &new).is_empty());
    new["status"]["dns"] = json!("evil.test");
    new["status"].as_object_mut().unwrap().remove("names");
    let found: Vec<String> =
        hooks().validate_status_update(&context(), &stored, &new).into_iter().map(|cause| cause.field).collect();
    assert_eq!(found, ["status.dns", "status.names"]);
}

#[tokio::test]
async fn a_host_inside_a_zone_of_ours_is_refused() {
    let objects = Objects::new(vec![json!({"kind": "Zone", "metadata": {"name": "shards.elsewhere.test"}})]);
    for (host, good) in [
        ("www.shop.test", true),
        ("elsewhere.test", true),
        ("x.Shards.elsewhere.test", false),
        ("*.shards.elsewhere.test", false),
    ] {
        let object = route(json!({"host": host}));
        let context = context();
        let found = hooks().before_commit(&context, Operation::Create(&object), &objects).await;
        assert_eq!(found.is_ok(), good, "{host}");
    }
}

#[tokio::test]
async fn its_own_name_is_that_on_a_router_that_is_there() {
    // The API gives each Router a zone.
    let router = json!({"kind": "Router", "metadata": {"name": "s1"}, "spec": {"dns": "s1.v3.example"}});
    let objects = Objects::new(vec![router]);
    let context = context();
    for (spec, good) in [
        (json!({"host": "n-r.s1.v3.example"}), true),
        (json!({"host": "n-r.s2.v3.example"}), false),
        (json!({"host": "b.s1.v3.example", "subdomain": "b"}), true),
    ] {
        let (old, new) = (route(json!({})), route(spec.clone()));
        for operation in [Operation::Create(&new), Operation::Update { old: &old, new: &new }] {
            let found = hooks().before_commit(&context, operation, &objects).await;
            assert_eq!(found.is_ok(), good, "{spec}");
        }
    }
}

#[tokio::test]
async fn a_subdomain_is_chosen_by_who_may_and_reveals_no_namespace() {
    let member = |group: &str| Identity { user: "u".to_owned(), groups: vec![group.to_owned()] };
    let (admin, tenant) = (member(GROUP_ADMINS), member("signpost:tenant:n"));
    let namespace = |name: &str| json!({"kind": "Namespace", "metadata": {"name": name}});
    let objects = Objects::new(vec![namespace("n"), namespace("shop"), namespace("n-eu")]);
    let (open, closed) = (LabelRules::default(), LabelRules { tenant_subdomains: false, ..LabelRules::default() });
    for (identity, label_rules, old, new, expected) in [
        (&tenant, &open, None, "pay", Ok(())),
        (&tenant, &open, None, "shop-pr-124", Err(422)),
        (&tenant, &open, Some("pay"), "Shop-x", Err(422)),
        (&tenant, &open, None, "nowhere-x", Err(422)),
        (&tenant, &open, None, "shop", Ok(())),
        (&tenant, &open, None, "N-x", Ok(())),
        // The scheduler gives it another label if a Route of that namespace has it.
        (&tenant, &open, None, "n-eu-x", Ok(())),
        (&admin, &open, None, "shop", Err(422)),
        (&admin, &open, None, "shop-x", Err(422)),
        (&admin, &open, None, "nowhere-x", Ok(())),
        // It was granted before the namespace was there.
        (&tenant, &open, Some("shop-x"), "shop-x", Ok(())),
        (&tenant, &closed, None, "pay", Err(403)),
        (&tenant, &closed, Some("pay"), "other", Err(403)),
        (&tenant, &closed, Some("pay"), "pay", Ok(())),
        (&tenant, &closed, Some("pay"), "", Ok(())),
        (&admin, &closed, None, "pay", Ok(())),
    ] {
        let context = Context { identity, ..context() };
        let platform = PlatformConfig { label_rules: label_rules.clone(), ..PlatformConfig::new("v3.example") };
        let (before, after) = (old.map(|old| route(json!({"subdomain": old}))), route(json!({"subdomain": new})));
        let operation = match &before {
            Some(before) => Operation::Update { old: before, new: &after },
            None => Operation::Create(&after),
        };
        let found = Routes::new(Arc::new(platform)).before_commit(&context, operation, &objects).await;
        assert_eq!(found.map(drop).map_err(|error| error.code), expected, "{old:?} {new}");
    }
}

#[tokio::test]
async fn a_move_is_asked_for_by_who_may_and_to_what_there_is() {
    let asked = |to: &str| {
        let mut route = scheduled(json!({}));
        route["metadata"]["annotations"] = json!({MOVE_ANNOTATION: to, "other": "x"});
        route
    };
    let member = |group: &str| Identity { user: "u".to_owned(), groups: vec![group.to_owned()] };
    let (admin, tenant) = (member(GROUP_ADMINS), member("signpost:tenant:n"));
    let objects = Objects::new(vec![json!({"kind": "Router", "metadata": {"name": "s2"}})]);
    for (identity, old, new, expected) in [
        (&admin, scheduled(json!({})), asked("s2"), Ok(())),
        (&admin, scheduled(json!({})), asked("s3"), Err(422)),
        (&tenant, scheduled(json!({})), asked("s2"), Err(403)),
        (&tenant, asked("s2"), asked("s2"), Ok(())),
        (&tenant, asked("s2"), scheduled(json!({})), Ok(())),
    ] {
        let context = Context { identity, ..context() };
        let update = Operation::Update { old: &old, new: &new };
        let found = hooks().before_commit(&context, update, &objects).await;
        assert_eq!(found.map(drop).map_err(|error| error.code), expected, "{} {new}", identity.groups[0]);
        let created = hooks().before_commit(&context, Operation::Create(&new), &objects).await;
        let may = move_to(&new).is_none() || expected.is_ok() && *identity == admin;
        assert_eq!(created.is_ok(), may, "{} {new}", identity.groups[0]);
    }
    for (to, left) in [("s1", None), ("s2", Some("s2"))] {
        let mut new = asked(to);
        hooks().prepare(&context(), Some(&scheduled(json!({}))), &mut new);
        assert_eq!(move_to(&new), left);
        assert_eq!(new["metadata"]["annotations"]["other"], "x");
    }
}

#[tokio::test]
async fn a_route_takes_its_binding_with_it() {
    let (old, options) = (route(json!({})), json!({}));
    let context = context();
    let delete = || Operation::Delete { old: &old, options: &options };
    for (finalizers, effect) in [
        (Value::Null, SideEffect::Delete),
        (json!([]), SideEffect::Delete),
        (json!(["example.com/hold"]), SideEffect::Keep),
    ] {
        let metadata = json!({"name": "r", "namespace": "n", "resourceVersion": "7", "finalizers": finalizers});
        let objects = Objects::new(vec![json!({"kind": "RouteBinding", "metadata": metadata})]);
        let writes = hooks().before_commit(&context, delete(), &objects).await.unwrap();
        assert_eq!(writes.len(), 1);
        let write = (writes[0].kind, writes[0].expect.as_deref(), &writes[0].effect);
        assert_eq!(write, ("RouteBinding", Some("7"), &effect), "{finalizers}");
    }
    assert!(hooks().before_commit(&context, delete(), &Objects::new(vec![])).await.unwrap().is_empty());
}

/// Only a user with the verb `adopt` sets or changes what a source has derived. For others, the rest of the Route can be changed.
#[tokio::test]
async fn a_host_is_adopted_by_who_may() {
    let member = |group: &str| Identity { user: "u".to_owned(), groups: vec![group.to_owned()] };
    let tenant = member("signpost:tenant:n");
    let admission = |router: &str| json!({"router": router, "by": "listener a of Gateway n/g"});
    let adopted = |host: &str, router: &str| {
        let mut route = route(json!({"host": host, "adopted": admission(router)}));
        route["metadata"]["labels"] = json!({SOURCE_LABEL: "uid"});
        route
    };
    let plain = |host: &str| route(json!({"host": host}));
    let (at, elsewhere) = ("web.s1.v3.example", "www.shop.test");
    let mut labeled = plain(elsewhere);
    labeled["metadata"]["labels"] = json!({SOURCE_LABEL: "uid"});
    let mut unlabeled = adopted(at, "s1");
    unlabeled["metadata"] = route(json!({}))["metadata"].clone();
    let mut annotated = plain(elsewhere);
    annotated["metadata"]["annotations"] = json!({SOURCE_OBJECT_ANNOTATION: "HTTPRoute shop/other"});
    let mut other = adopted(at, "s1");
    other["metadata"]["annotations"] = annotated["metadata"]["annotations"].clone();
    let mut retargeted = adopted(at, "s1");
    retargeted["spec"]["to"] = json!({"kind": "Service", "name": "web"});
    retargeted["metadata"]["labels"]["tier"] = json!("gold");
    let mut scheduled = adopted(at, "s1");
    scheduled["status"] = json!({"phase": "scheduled"});
    let objects = Objects::new(vec![json!({"kind": "Zone", "metadata": {"name": "s1.v3.example"}})]);
    for (what, old, new, field) in [
        ("new", None, adopted(at, "s1"), Some("spec.adopted")),
        ("new, with a custom host", None, adopted(elsewhere, "s1"), Some("spec.adopted")),
        ("adopted later", Some(plain(elsewhere)), adopted(elsewhere, "s1"), Some("spec.adopted")),
        ("another Router", Some(adopted(at, "s1")), adopted(at, "s2"), Some("spec.adopted")),
        ("on, after it is scheduled", Some(scheduled), adopted(at, "s2"), Some("spec.adopted")),
        ("given up", Some(adopted(elsewhere, "s1")), labeled.clone(), Some("spec.adopted")),
        ("another host", Some(adopted(at, "s1")), adopted("bank.s1.v3.example", "s1"), Some("spec.host")),
        ("a label", None, labeled.clone(), Some("metadata.labels")),
        ("a label later", Some(plain(elsewhere)), labeled, Some("metadata.labels")),
        ("no label", Some(adopted(at, "s1")), unlabeled, Some("metadata.labels")),
        ("an annotation", None, annotated, Some("metadata.annotations")),
        ("an annotation later", Some(adopted(at, "s1")), other, Some("metadata.annotations")),
        ("other fields", Some(adopted(at, "s1")), retargeted, None),
        ("the same", Some(adopted(at, "s1")), adopted(at, "s1"), None),
        ("not adopted", None, plain(elsewhere), None),
    ] {
        for identity in [&member(GROUP_ADMINS), &tenant] {
            let context = Context { identity, ..context() };
            let operation = match &old {
                Some(old) => Operation::Update { old, new: &new },
                None => Operation::Create(&new),
            };
            let found = hooks().before_commit(&context, operation, &objects).await;
            let expected = field.filter(|_| identity == &tenant);
            match (found, expected) {
                (Ok(_), None) => {}
                (Err(error), Some(field)) => {
                    assert!(error.code == 403 && error.message.contains(field), "{what}: {}", error.message);
                }
                (found, _) => panic!("{what}, {}: {:?}", identity.user, found.map(drop).map_err(|error| error.message)),
            }
        }
        let causes = hooks().validate(&context(), old.as_ref(), &new);
        let is_moved = what == "on, after it is scheduled";
        assert!(causes.is_empty() || is_moved, "{what}: {causes:?}");
    }
    // A host in a zone of the platform is only for adopted Routes.
    assert!(!hooks().validate(&context(), None, &plain(at)).is_empty());
    assert!(!hooks().validate(&context(), Some(&adopted(at, "s1")), &plain(at)).is_empty());
}

/// The platform's leader writes the objects of sources, and no others; users with further rights are not confined.
#[tokio::test]
async fn the_leader_writes_only_what_sources_derive() {
    let of = |label: Option<&str>, spec: Value| {
        let mut route = route(spec);
        if let Some(label) = label {
            route["metadata"]["labels"] = json!({SOURCE_LABEL: label});
        }
        route
    };
    let derived = || of(Some("uid"), json!({"host": "a.test", "adopted": {"router": "s1", "by": "listener a"}}));
    let (plain, other) = (of(None, json!({})), of(None, json!({"path": "/a"})));
    let mut reported = plain.clone();
    reported["status"] = json!({"conditions": []});
    let group =
        |groups: &[&str]| Identity { user: "u".to_owned(), groups: groups.iter().map(ToString::to_string).collect() };
    let leaders = [Identity::user(crate::identity::USER_CONTROLLER), group(&[access::GROUP_SCHEDULERS])];
    let admin = group(&[access::GROUP_SCHEDULERS, GROUP_ADMINS]);
    let (objects, options) = (Objects::new(Vec::new()), json!({}));
    let (derived, changed) = (derived(), of(Some("uid"), json!({"host": "a.test", "path": "/b"})));
    for identity in leaders.iter().chain([&admin]) {
        let context = Context { identity, ..context() };
        let is_confined = identity != &admin;
        for (old, new, good) in [
            (None, &derived, true),
            (None, &plain, false),
            (Some(&derived), &changed, true),
            (Some(&plain), &other, false),
            (Some(&plain), &derived, false),
            (Some(&derived), &plain, false),
        ] {
            let causes = hooks().validate(&context, old, new);
            let is_refused = causes.iter().any(|cause| cause.field.starts_with("metadata.labels"));
            assert_eq!(is_refused, is_confined && !good, "{} {new} {causes:?}", identity.user);
        }
        assert!(hooks().validate_status_update(&context, &plain, &reported).is_empty());
        for (old, good) in [(&derived, true), (&plain, false)] {
            let delete = Operation::Delete { old, options: &options };
            let found = hooks().before_commit(&context, delete, &objects).await;
            assert_eq!(found.is_ok(), good || !is_confined, "{} {:?}", identity.user, found.map(drop).err());
        }
    }
}

#[test]
fn the_source_is_a_column() {
    let mut object = route(json!({}));
    let cell = |object: &Value| fixture::cell(&ROUTE, "Source", object);
    assert_eq!(cell(&object), Value::Null);
    object["metadata"]["annotations"] = json!({"a": "b", SOURCE_OBJECT_ANNOTATION: "HTTPRoute shop/web"});
    assert_eq!(cell(&object), json!("HTTPRoute shop/web"));
}
