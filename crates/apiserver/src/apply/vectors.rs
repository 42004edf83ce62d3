//! The behavior of server-side apply as observed on a real kube-apiserver (`vectors.yaml`): a resource whose `host` has parts,
//! `opts` is atomic, `to` a list-map by name, `ports` a list-set, `extra` without a schema.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::update::track_anew;
use super::{server_side_apply, track_update};
use crate::error::ApiError;
use crate::kind::columns::Columns;
use crate::kind::schemas;
use crate::kind::selectable::Selectable;
use crate::kind::{Aliases, HookReads, Kind};
use crate::patch::merge_patch;
use crate::registry::lease::LEASE;
use crate::schema::{self, Schema};

pub(crate) fn kind() -> Kind {
    let text = json!({"type": "string"});
    let metadata = schemas::metadata();
    let schema = json!({"type": "object", "properties": {
        "apiVersion": text, "kind": text, "metadata": metadata,
        "spec": {"type": "object", "properties": {
            "host": text, "path": text,
            "opts": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text, "b": text}},
            "to": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
                "type": "object", "required": ["name"], "properties": {
                    "name": text, "weight": {"type": "integer", "default": 1}}}},
            "ports": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
            "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "mode": {"type": "string", "default": "plain"}
        }},
        "status": {"type": "object", "properties": {"phase": text}}
    }});
    Kind {
        group: "g.test",
        version: "v1",
        kind: "Thing",
        plural: "things",
        aliases: Aliases::default(),
        namespaced: true,
        has_status: true,
        key_prefix: "/g.test/things/",
        schema: Schema::new(schema),
        columns: Columns::new(&[]),
        selectable_fields: Selectable::new(&[]),
        time_to_live: None,
        view: None,
        hook_reads: HookReads::Content,
        is_built_in: false,
        is_secret: false,
        object_bytes: None,
    }
}

/// An object under test, with a clock that ticks a second with each request.
struct Server {
    kind: Kind,
    object: Option<Value>,
    now: Timestamp,
}

impl Server {
    fn new() -> Self {
        Server { kind: kind(), object: None, now: "2026-01-01T00:00:00Z".parse().unwrap() }
    }

    fn config(part: Value) -> Value {
        let mut config =
            json!({"apiVersion": "g.test/v1", "kind": "Thing", "metadata": {"name": "x", "namespace": "n"}});
        merge_patch(&mut config, &part);
        config
    }

    fn apply_with(
        &mut self,
        manager: &str,
        part: Value,
        force: bool,
        subresource: Option<&str>,
    ) -> Result<(), ApiError> {
        self.now = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
        let live = self.object.as_ref();
        let mut result =
            server_side_apply(&self.kind, live, Self::config(part), manager, force, subresource, self.now)?;
        schema::apply_defaults(&self.kind.schema, &mut result);
        let faults = schema::validate(&self.kind.schema, &result);
        if !faults.is_empty() {
            return Err(ApiError::invalid(&self.kind, "x", faults));
        }
        if self.object.is_none() {
            result["metadata"]["uid"] = json!("u");
        }
        self.object = Some(result);
        Ok(())
    }

    fn apply(&mut self, manager: &str, part: Value) -> Result<(), ApiError> {
        self.apply_with(manager, part, false, None)
    }

    fn write(&mut self, manager: &str, mut new: Value, subresource: Option<&str>) {
        self.now = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
        let mut anew = new.clone();
        track_anew(&self.kind, self.object.as_ref(), &mut anew, manager, subresource, self.now);
        track_update(&self.kind, self.object.as_ref(), &mut new, manager, subresource, self.now);
        new["metadata"]["uid"] = json!("u");
        if schema::validate(&self.kind.schema, &new).is_empty() {
            anew["metadata"]["uid"] = json!("u");
            assert_eq!(new, anew, "the short way and the long one give the same");
            self.object = Some(new);
        }
    }

    fn create(&mut self, manager: &str, part: Value) {
        self.write(manager, Self::config(part), None);
    }

    fn patch(&mut self, manager: &str, patch: Value) {
        let mut new = self.object.clone().unwrap();
        merge_patch(&mut new, &patch);
        self.write(manager, new, None);
    }

    fn spec(&self) -> &Value {
        &self.object.as_ref().unwrap()["spec"]
    }

    /// Returns the managers with operation, subresource and fields.
    fn managers(&self) -> Vec<(String, Value)> {
        let entries =
            self.object.as_ref().unwrap()["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let reported = entries.into_iter().map(|entry| {
            assert_eq!(entry["fieldsType"], "FieldsV1");
            assert_eq!(entry["apiVersion"], "g.test/v1");
            let subresource = entry["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
            let name =
                format!("{} {}{subresource}", entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap());
            (name, entry["fieldsV1"].clone())
        });
        reported.collect()
    }

    fn fields_of(&self, manager: &str) -> Value {
        let found = self.managers().into_iter().find(|(name, _)| name == manager);
        found.map(|(_, fields)| fields).unwrap_or(Value::Null)
    }

    fn time_of(&self, manager: &str) -> Value {
        let entries = self.object.as_ref().unwrap()["metadata"]["managedFields"].as_array().unwrap();
        entries.iter().find(|entry| entry["manager"] == manager).map(|entry| entry["time"].clone()).unwrap_or_default()
    }
}

fn conflicts(error: &ApiError) -> Value {
    assert_eq!((error.code, error.reason), (409, "Conflict"), "{error}");
    assert!(error.causes.iter().all(|cause| cause.reason == "FieldManagerConflict"));
    error.causes.iter().map(|cause| json!([cause.message, cause.field])).collect()
}

/// Plays a step of `vectors.yaml`, and compares the result.
fn play(server: &mut Server, step: &Value) {
    let by = step["by"].as_str().expect("a manager");
    let outcome = if !step["apply"].is_null() {
        server.apply_with(by, step["apply"].clone(), step["force"] == true, step["subresource"].as_str())
    } else {
        match ["create", "patch", "put", "put status"].into_iter().find(|verb| !step[*verb].is_null()) {
            Some("patch") => server.patch(by, step["patch"].clone()),
            Some("put status") => {
                let mut new = server.object.clone().unwrap();
                new["status"] = step["put status"].clone();
                server.write(by, new, Some("status"));
            }
            Some(verb) => server.create(by, step[verb].clone()),
            None => panic!("{step} does nothing"),
        }
        Ok(())
    };
    let expected = |name: &str| Some(&step[name]).filter(|expected| !expected.is_null());
    match outcome {
        Ok(()) => {
            assert!(["conflicts", "message", "invalid"].iter().all(|name| step[*name].is_null()), "{step} succeeded");
        }
        Err(error) => {
            let fields: Value = error.causes.iter().map(|cause| cause.field.as_str()).collect();
            let found =
                [("conflicts", error.code == 409), ("message", error.code == 409), ("invalid", error.code == 422)];
            assert!(found.iter().any(|(name, of_code)| *of_code && expected(name).is_some()), "{step} {error}");
            expected("conflicts").inspect(|expected| assert_eq!(conflicts(&error), **expected));
            expected("message").inspect(|expected| assert_eq!(error.message, **expected));
            expected("invalid").inspect(|expected| assert_eq!(fields, **expected));
            return;
        }
    }
    expected("spec").inspect(|expected| assert_eq!(server.spec(), *expected, "{step}"));
    if let Some(status) = step.get("status") {
        assert_eq!(server.object.as_ref().unwrap()["status"], *status, "{step}");
    }
    expected("managers").inspect(|expected| {
        let managers: Map<String, Value> = server.managers().into_iter().collect();
        assert_eq!(Value::Object(managers), **expected, "{step}");
    });
    for (manager, fields) in step["fields"].as_object().into_iter().flatten() {
        assert_eq!(server.fields_of(manager), *fields, "{step}");
    }
}

#[test]
fn steps_have_the_outcomes_of_kubernetes() {
    let (vectors, _) = schema::parse_yaml(include_bytes!("vectors.yaml")).expect("it is YAML");
    for (name, steps) in vectors.as_object().expect("named lists") {
        println!("{name}");
        let mut server = Server::new();
        steps.as_array().expect("steps").iter().for_each(|step| play(&mut server, step));
    }
}

#[test]
fn the_metadata_is_not_the_appliers_to_remove() {
    let mut server = Server::new();
    server.apply("m1", json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
    let live = server.object.clone();
    let result =
        server_side_apply(&server.kind, live.as_ref(), json!({"spec": {}}), "m1", false, None, server.now).unwrap();
    assert_eq!(result["metadata"]["name"], "x");
    assert!(result["metadata"].get("labels").is_none());
}

fn two_managers() -> Server {
    let mut server = Server::new();
    let first =
        json!({"spec": {"path": "/1", "opts": {"a": "x"}, "to": [{"name": "n1", "weight": 5}], "ports": [1, 2]}});
    server.apply("m1", first).unwrap();
    server.apply("m2", json!({"spec": {"to": [{"name": "n2"}], "ports": [2, 3]}})).unwrap();
    server
}

#[test]
fn built_in_kinds_have_no_member_for_their_spec() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let kind = &*LEASE;
    let mut lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    let (mut anew, expected) = (lease.clone(), json!({"f:spec": {"f:holderIdentity": {}}}));
    track_update(kind, None, &mut lease, "m", None, now);
    track_anew(kind, None, &mut anew, "m", None, now);
    assert_eq!(lease["metadata"]["managedFields"][0]["fieldsV1"], expected);
    assert_eq!(lease, anew);
}

#[test]
fn what_changes_nothing_keeps_everything() {
    let mut server = two_managers();
    let before = server.object.clone();
    let again =
        json!({"spec": {"path": "/1", "opts": {"a": "x"}, "to": [{"name": "n1", "weight": 5}], "ports": [1, 2]}});
    server.apply("m1", again).unwrap();
    assert_eq!(server.object, before);
    server.write("put", before.clone().unwrap(), None);
    assert_eq!(server.object, before);
    server.patch("up", json!({"spec": {"path": "/1"}}));
    assert_eq!(server.object, before);
    // Only a change of the object moves a time.
    let (time, time_of_m2) = (server.time_of("m1"), server.time_of("m2"));
    server.apply("m2", json!({"spec": {"to": [{"name": "n2"}], "ports": [2, 3], "path": "/1"}})).unwrap();
    assert_eq!(server.time_of("m1"), time);
    assert_eq!(server.time_of("m2"), time_of_m2);
    server.apply("m3", json!({"spec": {"path": "/1"}})).unwrap();
    assert_eq!((server.fields_of("m3 Apply"), server.time_of("m3")), (json!({"f:spec": {"f:path": {}}}), Value::Null));
    assert_eq!(server.spec(), &before.unwrap()["spec"]);
}

#[test]
fn old_updaters_are_folded() {
    let mut server = Server::new();
    server.create("u0", json!({"spec": {"extra": {"k0": 1}}}));
    for number in 1..=11 {
        server.patch(&format!("u{number:02}"), json!({"spec": {"extra": {format!("k{number}"): 1}}}));
    }
    let names: Vec<String> = server.managers().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 10, "{names:?}");
    assert_eq!(names[0], "ancient-changes Update");
    let folded = server.fields_of("ancient-changes Update");
    for key in ["f:k0", "f:k1", "f:k2"] {
        assert_eq!(folded["f:spec"]["f:extra"][key], json!({}), "{folded}");
    }
    assert_eq!(server.fields_of("u03 Update"), json!({"f:spec": {"f:extra": {"f:k3": {}}}}));
}

#[test]
fn kubectl_moves_from_client_side_to_server_side() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let part = json!({"spec": {"host": "a", "path": "/1"}});
    let mut with_annotation = part.clone();
    with_annotation["metadata"] = json!({"annotations": {annotation: Server::config(part.clone()).to_string()}});
    let mut server = Server::new();
    server.create("kubectl-client-side-apply", with_annotation);

    // Another manager would conflict; kubectl takes over the fields that are still as applied.
    let changed = json!({"spec": {"host": "b", "path": "/1"}});
    assert!(server.apply("other", changed.clone()).is_err());
    server.apply("kubectl", changed.clone()).unwrap();
    assert_eq!(server.spec()["host"], "b");
    let kept_up: Value =
        serde_json::from_str(server.object.as_ref().unwrap()["metadata"]["annotations"][annotation].as_str().unwrap())
            .unwrap();
    assert_eq!(kept_up, Server::config(changed));

    // A field that another manager has changed since is not forced.
    let mut server = Server::new();
    let mut with_annotation = part.clone();
    with_annotation["metadata"] = json!({"annotations": {annotation: Server::config(part).to_string()}});
    server.create("kubectl-client-side-apply", with_annotation);
    server.patch("edit", json!({"spec": {"host": "edited"}}));
    let error = server.apply("kubectl", json!({"spec": {"host": "b", "path": "/2"}})).unwrap_err();
    assert_eq!(conflicts(&error), json!([["conflict with \"edit\" using g.test/v1", ".spec.host"]]));
}

#[test]
fn clients_may_write_managed_fields() {
    let mut server = two_managers();
    let mut new = server.object.clone().unwrap();
    new["metadata"]["managedFields"].as_array_mut().unwrap().remove(1);
    server.write("up", new, None);
    assert_eq!(server.managers().len(), 1);
    // Broken ones are ignored.
    for broken in [
        json!([{"manager": "x", "operation": "Explode"}]),
        json!([{"operation": "Apply", "fieldsV1": {"x": {}}}]),
        json!("x"),
    ] {
        let mut new = server.object.clone().unwrap();
        new["metadata"]["managedFields"] = broken.clone();
        let before = server.managers();
        server.write("up", new, None);
        assert_eq!(server.managers(), before, "{broken}");
    }
    let mut config = Server::config(json!({}));
    config["metadata"]["managedFields"] = json!([]);
    let error = server_side_apply(&server.kind, None, config, "m", false, None, server.now).unwrap_err();
    assert_eq!(error.code, 400);
}

pub(super) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop_oneof![
            Just("to"),
            Just("ports"),
            Just("opts"),
            Just("extra"),
            Just("host"),
            Just("name"),
            Just("weight"),
            Just("a")
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map(name.prop_map(str::to_owned), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_object_panics_and_a_second_apply_changes_nothing(first in any_value(), second in any_value(), third in any_value()) {
        let mut server = Server::new();
        server.create("up", json!({"spec": first}));
        // The label keeps the manager there; an empty list alone has no owner.
        let config = json!({"metadata": {"labels": {"a": "b"}}, "spec": second});
        let _ = server.apply_with("m", config.clone(), true, None);
        let before = server.object.clone();
        let _ = server.apply_with("m", config, true, None);
        prop_assert_eq!(&server.object, &before);
        if server.object.is_some() {
            server.patch("up", json!({"spec": third.clone()}));
        }
        let _ = server.apply("m2", json!({"spec": third, "metadata": {"labels": first}}));
    }
}
