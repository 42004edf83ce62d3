//! Tests of RouteBindings against their Routes, Routers, and labels, and of the resulting status of Routes.

use super::*;
use crate::kinds::fixture::{Objects, check_create, context};
use signpost_types::v1alpha1::route::MOVE_ANNOTATION;

fn hooks() -> RouteBindings {
    RouteBindings::new("v3.example")
}

fn names(host: Option<&str>) -> Value {
    let mut names = json!([
        {"name": "n-r.s1.v3.example", "type": "system"},
        {"name": "n-r.routes.v3.example", "type": "alias"}
    ]);
    if let Some(host) = host {
        names.as_array_mut().unwrap().push(json!({"name": host, "type": "custom"}));
    }
    names
}

fn binding(change: Value) -> Value {
    let mut spec = json!({"routeNamespace": "n", "routeName": "r", "routeUID": "u", "router": "s1", "dns": "s1.v3.example",
        "label": "n-r", "names": names(None), "strategy": "round-robin"});
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": {"name": "r", "namespace": "n"}, "spec": spec})
}

fn route(host: &str) -> Value {
    json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
        "metadata": {"name": "r", "namespace": "n", "uid": "u", "resourceVersion": "5", "generation": 2,
            "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}]},
        "spec": {"host": host}, "status": {"phase": "new", "conditions": [
            {"type": "Scheduled", "status": "False", "reason": "NoRouter", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "Resolvable", "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}})
}

fn world(route: Value) -> Vec<Value> {
    vec![
        route,
        json!({"kind": "Router", "metadata": {"name": "s1", "resourceVersion": "2"}, "spec": {"dns": "s1.v3.example"}}),
        json!({"kind": "NameClaim", "metadata": {"name": names::label_claim_name("n-r"), "resourceVersion": "3"}, "spec": {"type": "label", "value": "n-r", "holder": {"uid": "u"}}}),
    ]
}

fn moved(former_names: Value) -> Value {
    let mut moved = binding(json!({"router": "s2", "dns": "s2.v3.example", "names": [
        {"name": "n-r.s2.v3.example", "type": "system"}, {"name": "n-r.routes.v3.example", "type": "alias"}]}));
    moved["spec"]["formerNames"] = former_names;
    moved
}

/// Returns a former name; a `!` before its name means that it has not begun.
fn former(name: &str) -> Value {
    if let Some(name) = name.strip_prefix('!') {
        let mut former = former(name);
        former["from"] = json!("2026-01-01T12:00:00Z");
        return former;
    }
    json!({"name": name, "router": "s1", "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"})
}

#[tokio::test]
async fn a_move_and_the_end_of_its_former_name() {
    let mut asked = route("");
    asked["metadata"]["annotations"] = json!({MOVE_ANNOTATION: "s2", "mine": "x"});
    asked["status"] = json!({"phase": "scheduled", "router": "s1", "conditions": [
        {"type": "MovePending", "status": "True"}, {"type": "Published", "status": "True"}]});
    let mut objects = world(asked);
    objects[1] =
        json!({"kind": "Router", "metadata": {"name": "s2", "resourceVersion": "2"}, "spec": {"dns": "s2.v3.example"}});
    let (objects, context) = (Objects::new(objects), context());
    let (old, new) = (binding(json!({})), moved(json!([former("n-r.s1.v3.example")])));
    let update = Operation::Update { old: &old, new: &new };
    let writes = hooks().before_commit(&context, update, &objects).await.unwrap();
    let passed = writes.iter().filter(|write| write.effect == SideEffect::Touch).map(|write| write.name.as_str());
    assert_eq!(
        passed.collect::<Vec<_>>(),
        ["/signpost.dev/turnstiles/routers/s2", "/signpost.dev/turnstiles/routers/s1"]
    );
    let after = put(&writes[0]);
    assert_eq!(after["metadata"]["annotations"], json!({"mine": "x"}));
    assert_eq!((&after["status"]["router"], &after["status"]["dns"]), (&json!("s2"), &json!("n-r.s2.v3.example")));
    assert_eq!(after["status"]["formerNames"], new["spec"]["formerNames"]);
    let conditions = after["status"]["conditions"].as_array().unwrap();
    let reported: Vec<_> = conditions.iter().map(|one| (&one["type"], &one["status"])).collect();
    let expected = [("MovePending", "False"), ("Admitted", "True"), ("Scheduled", "True")];
    assert_eq!(reported, expected.map(|(kind, status)| (json!(kind), json!(status))).each_ref().map(|(a, b)| (a, b)));

    // So does a former name that begins.
    let pending = moved(json!([former("n-r.s3.v3.example"), former("!n-r.s1.v3.example")]));
    let begun = moved(json!([former("n-r.s3.v3.example"), former("n-r.s1.v3.example")]));
    let route_only = Objects::new(vec![after.clone()]);
    let update = Operation::Update { old: &pending, new: &begun };
    let writes = hooks().before_commit(&context, update, &route_only).await.unwrap();
    assert_eq!(put(&writes[0])["status"]["formerNames"], begun["spec"]["formerNames"]);
    let update = Operation::Update { old: &begun, new: &pending };
    assert!(hooks().before_commit(&context, update, &route_only).await.is_err(), "it cannot be put off");

    // The end of a former name changes nothing else, and does not need the Router to be there; another end does.
    let mut later = new.clone();
    later["spec"]["formerNames"][0]["until"] = json!("2026-01-03T00:00:00Z");
    let update = Operation::Update { old: &new, new: &later };
    assert!(hooks().before_commit(&context, update, &route_only).await.is_err());
    let mut stored = new.clone();
    stored["spec"]["explanation"] = json!({"unknown": "a field of another version"});
    let mut ended = new.clone();
    ended["spec"].as_object_mut().unwrap().remove("formerNames");
    let mut route = after.clone();
    route["status"]["conditions"] = json!([{"type": "Published", "status": "True"}]);
    let objects = Objects::new(vec![route]);
    let update = Operation::Update { old: &stored, new: &ended };
    let writes = hooks().before_commit(&context, update, &objects).await.unwrap();
    assert_eq!(writes.len(), 1);
    assert!(put(&writes[0])["status"].get("formerNames").is_none());
    assert_eq!(put(&writes[0])["status"]["conditions"], json!([{"type": "Published", "status": "True"}]));
    let update = Operation::Update { old: &ended, new: &new };
    assert_eq!(hooks().before_commit(&context, update, &objects).await.err().map(|error| error.code), Some(422));
}

fn put(write: &RelatedWrite) -> &Value {
    match &write.effect {
        SideEffect::Put(object) => object,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_deposed_leader_binds_nothing() {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"leaseTransitions": 4},
        "metadata": {"name": "signpost-scheduler", "namespace": "signpost-system", "resourceVersion": "9"}});
    for (number, with_lease, expected) in [
        (Some("4"), true, Ok(5)),
        (Some("3"), true, Err(409)),
        // The number of a leader from before the Lease was re-created.
        (Some("5"), true, Err(409)),
        // It is unknown whether this sender was the leader when the Lease was deleted.
        (Some("3"), false, Err(409)),
        (Some("0"), true, Ok(4)),
        (Some("0"), false, Ok(4)),
        (Some("x"), true, Err(422)),
        (None, true, Ok(4)),
    ] {
        let mut binding = binding(json!({}));
        if let Some(number) = number {
            binding["metadata"]["annotations"] = json!({FENCING_ANNOTATION: number});
        }
        let mut objects = world(route(""));
        objects.extend(with_lease.then(|| lease.clone()));
        let context = context();
        let found = hooks().before_commit(&context, Operation::Create(&binding), &Objects::new(objects)).await;
        let reported = found.map(|writes| writes.len()).map_err(|error| error.code);
        assert_eq!(reported, expected, "{number:?} {with_lease}");
    }
}

#[tokio::test]
async fn a_binding_sets_the_routes_status() {
    for (host, names, dns) in
        [("", names(None), "n-r.s1.v3.example"), ("www.shop.test", names(Some("www.shop.test")), "www.shop.test")]
    {
        let binding = binding(json!({"names": names, "routeResourceVersion": "5"}));
        let context = context();
        let objects = Objects::new(world(route(host)));
        let writes = hooks().before_commit(&context, Operation::Create(&binding), &objects).await.unwrap();
        let reported: Vec<_> = writes.iter().map(|it| (it.kind, it.name.as_str(), it.expect.as_deref())).collect();
        let claim = names::label_claim_name("n-r");
        let pinned = [
            ("Route", "r", Some("5")),
            ("Router", "s1", Some("2")),
            ("ConflictKey", "/signpost.dev/turnstiles/routers/s1", None),
            ("NameClaim", &claim, Some("3")),
        ];
        assert_eq!(reported, pinned);
        let effects: Vec<_> = writes[1..].iter().map(|write| &write.effect).collect();
        assert_eq!(effects, [&SideEffect::Keep, &SideEffect::Touch, &SideEffect::Keep]);
        let status = &put(&writes[0])["status"];
        assert_eq!(status["phase"], "scheduled");
        assert_eq!(status["dns"], dns);
        assert_eq!(status["router"], "s1");
        assert_eq!(status["canonicalName"], "n-r.routes.v3.example");
        assert_eq!(status["names"], names);
        assert_eq!(status["observedGeneration"], 2);
        let conditions = status["conditions"].as_array().unwrap();
        let reported: Vec<_> = conditions.iter().map(|condition| (&condition["type"], &condition["status"])).collect();
        assert_eq!(reported, [(&json!("Scheduled"), &json!("True")), (&json!("Admitted"), &json!("True"))]);
        for condition in conditions {
            assert_eq!(condition["observedGeneration"], 2);
            assert_ne!(condition["lastTransitionTime"], "2020-01-01T00:00:00Z");
        }
        let managed = &put(&writes[0])["metadata"]["managedFields"];
        assert_eq!(managed[1]["subresource"], "status", "{managed}");
    }
}

#[tokio::test]
async fn a_binding_that_does_not_fit_is_refused() {
    let without = |kind: &str| world(route("")).into_iter().filter(|object| object["kind"] != kind).collect::<Vec<_>>();
    let mut deleted = route("");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let claimed = |change: Value| {
        let mut objects = world(route(""));
        objects[2]["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        objects
    };
    let released = claimed(json!({"releasedAt": "2026-01-01T00:00:00Z"}));
    let quarantined = claimed(json!({"releasedAt": "2026-01-01T00:00:00Z", "quarantineUntil": "2026-02-01T00:00:00Z",
        "holder": {"namespace": "n", "name": "other", "uid": "w"}}));
    let capital = json!({"label": "N-r", "names": [
        {"name": "N-r.s1.v3.example", "type": "system"}, {"name": "N-r.routes.v3.example", "type": "alias"}]});
    for (objects, change, code, path) in [
        (without("Route"), json!({}), 404, ""),
        (without("Router"), json!({}), 422, "spec.router"),
        (without("NameClaim"), capital, 422, "metadata.name"),
        (claimed(json!({"holder": {"uid": "w"}})), json!({}), 409, ""),
        (quarantined, json!({}), 409, ""),
        (released, json!({}), 409, ""),
        (world(route("")), json!({"routeUID": "v"}), 409, ""),
        (world(route("")), json!({"routeResourceVersion": "4"}), 409, ""),
        (world(deleted), json!({}), 409, ""),
        (world(route("")), json!({"dns": "s9.v3.example"}), 422, "spec.dns"),
        (world(route("")), json!({"names": names(Some("www.shop.test"))}), 422, "spec.names[2].name"),
        (world(route("a.shop.test")), json!({"names": names(Some("www.shop.test"))}), 422, "spec.names[2].name"),
    ] {
        let binding = binding(change.clone());
        let context = context();
        let found = hooks().before_commit(&context, Operation::Create(&binding), &Objects::new(objects)).await;
        let error = found.err().unwrap_or_else(|| panic!("{change}"));
        assert_eq!(error.code, code, "{change} {}", error.message);
        assert_eq!(error.causes.first().map_or("", |cause| &cause.field), path, "{change}");
    }
}

#[tokio::test]
async fn a_new_binding_claims_a_label_that_nobody_ever_had() {
    let mut objects = world(route(""));
    objects.pop();
    let (objects, context) = (Objects::new(objects), context());
    let new = binding(json!({}));
    let writes = hooks().before_commit(&context, Operation::Create(&new), &objects).await.unwrap();
    let claim = writes.iter().find(|write| write.kind == "NameClaim").unwrap();
    assert_eq!((claim.name.as_str(), &claim.expect), (names::label_claim_name("n-r").as_str(), &None));
    let claim = put(claim);
    assert_eq!(check_create("NameClaim", claim.clone()), Vec::<String>::new());
    assert_eq!(claim["spec"]["holder"], json!({"namespace": "n", "name": "r", "uid": "u"}));
    assert_eq!((&claim["spec"]["type"], &claim["spec"]["value"]), (&json!("label"), &json!("n-r")));
    assert_eq!(claim["metadata"]["labels"], json!({"signpost.dev/claim": "label"}));
    for set in ["uid", "creationTimestamp", "generation", "managedFields"] {
        assert!(!claim["metadata"][set].is_null(), "{set}");
    }
    // One that is there already must have had a claim.
    let update = Operation::Update { old: &new, new: &binding(json!({"strategy": "other"})) };
    let refused = hooks().before_commit(&context, update, &objects).await.err().map(|error| error.code);
    assert_eq!(refused, Some(409));
}

#[tokio::test]
async fn without_its_binding_a_route_is_new_again() {
    let mut bound = route("");
    bound["status"] = json!({"phase": "scheduled", "dns": "d", "router": "s1", "canonicalName": "c", "names": [],
        "conditions": [{"type": "Published", "status": "True"}, {"type": "Scheduled", "status": "True"}]});
    let (old, options) = (binding(json!({})), json!({}));
    let context = context();
    let delete = || Operation::Delete { old: &old, options: &options };
    let writes = hooks().before_commit(&context, delete(), &Objects::new(vec![bound])).await.unwrap();
    let status = &put(&writes[0])["status"];
    assert_eq!(status["phase"], "new");
    assert!(assignment::BOUND_FIELDS[1..].iter().all(|name| status.get(*name).is_none()), "{status}");
    assert_eq!(status["conditions"].as_array().unwrap().len(), 1);
    assert_eq!(status["conditions"][0]["reason"], "BindingDeleted");
    let mut another = route("");
    another["metadata"]["uid"] = json!("v");
    assert!(hooks().before_commit(&context, delete(), &Objects::new(vec![another])).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_binding_of_a_route_that_is_there_is_not_deleted() {
    let bound = || {
        let mut bound = route("");
        bound["status"] = json!({"phase": "scheduled"});
        bound
    };
    let deleting = |mut object: Value| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object
    };
    let shard = || json!({"kind": "Router", "metadata": {"name": "s1"}});
    let home = || json!({"kind": "Namespace", "metadata": {"name": "n"}});
    let (old, options) = (binding(json!({})), json!({}));
    for (objects, good, why) in [
        (vec![bound(), shard(), home()], false, "a live route"),
        (vec![shard(), home()], true, "its route is gone"),
        (vec![deleting(bound()), shard(), home()], true, "its route goes"),
        (vec![bound(), shard(), deleting(home())], true, "its namespace goes"),
        (vec![bound(), home()], true, "its Router is gone"),
    ] {
        let context = context();
        let delete = Operation::Delete { old: &old, options: &options };
        let found = hooks().before_commit(&context, delete, &Objects::new(objects.clone())).await;
        assert_eq!(found.is_ok(), good, "{why}");
        let release = Operation::Release { old: &old };
        let released = hooks().before_commit(&context, release, &Objects::new(objects)).await;
        assert!(released.is_ok(), "it was judged when it began: {why}");
    }
}

#[tokio::test]
async fn an_adopted_name_is_the_host_that_was_admitted() {
    let with = |name: &str, kind: &str| {
        let mut names = names(None);
        names.as_array_mut().expect("a list").push(json!({"name": name, "type": kind}));
        binding(json!({"names": names, "strategy": "adopted"}))
    };
    let adopted = |host: &str| {
        let mut route = route(host);
        route["spec"]["adopted"] = json!({"router": "s1", "by": "listener a of Gateway n/g"});
        route
    };
    let zone = json!({"kind": "Zone", "metadata": {"name": "inner.s1.v3.example"}});
    for (route, binding, fault) in [
        (adopted("web.s1.v3.example"), with("web.s1.v3.example", "adopted"), None),
        (adopted("a.b.s1.v3.example"), with("a.b.s1.v3.example", "adopted"), None),
        (adopted("www.shop.test"), with("www.shop.test", "custom"), None),
        (adopted("web.s1.v3.example"), with("bank.s1.v3.example", "adopted"), Some("must be the Route's spec.host")),
        (route("web.s1.v3.example"), with("web.s1.v3.example", "adopted"), Some("no spec.adopted")),
        (adopted("inner.s1.v3.example"), with("inner.s1.v3.example", "adopted"), Some("the zone of another shard")),
        (
            adopted("a.b.inner.s1.v3.example"),
            with("a.b.inner.s1.v3.example", "adopted"),
            Some("in inner.s1.v3.example"),
        ),
    ] {
        assert_eq!(check_create("RouteBinding", binding.clone()), Vec::<String>::new());
        let mut objects = world(route);
        objects.push(zone.clone());
        let context = context();
        let found = hooks().before_commit(&context, Operation::Create(&binding), &Objects::new(objects)).await;
        match (found, fault) {
            (Ok(writes), None) => {
                let status = &put(&writes[0])["status"];
                assert_eq!(status["dns"], binding["spec"]["names"][2]["name"]);
                assert_eq!(status["canonicalName"], "n-r.routes.v3.example");
            }
            (Err(error), Some(part)) => assert!(error.message.contains(part), "{}", error.message),
            (found, _) => panic!("{binding}: {:?}", found.map(drop).map_err(|error| error.message)),
        }
    }
    assert!(!check_create("RouteBinding", with("web.s2.v3.example", "adopted")).is_empty());
}
