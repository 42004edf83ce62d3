//! The behaviour of server-side apply, step by step, as seen on a real kube-apiserver: a resource whose `host` has parts,
//! `opts` is atomic, `to` a list-map by name, `ports` a list-set, `extra` without a schema.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::update::track_anew;
use super::{server_side_apply, track_update};
use crate::error::ApiError;
use crate::kind::columns::Columns;
use crate::kind::former::FormerNames;
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
        former: FormerNames::default(),
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

    /// The managers with operation, subresource and fields.
    fn managers(&self) -> Vec<(String, Value)> {
        let entries =
            self.object.as_ref().unwrap()["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let told = entries.into_iter().map(|entry| {
            assert_eq!(entry["fieldsType"], "FieldsV1");
            assert_eq!(entry["apiVersion"], "g.test/v1");
            let subresource = entry["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
            let name =
                format!("{} {}{subresource}", entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap());
            (name, entry["fieldsV1"].clone())
        });
        told.collect()
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

fn paths(error: &ApiError) -> Vec<(String, String)> {
    assert_eq!((error.code, error.reason), (409, "Conflict"));
    let told = error.causes.iter().map(|cause| {
        assert_eq!(cause.reason, "FieldManagerConflict");
        (cause.message.clone(), cause.field.clone())
    });
    told.collect()
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
fn two_managers_share_lists() {
    let server = two_managers();
    assert_eq!(server.spec()["ports"], json!([1, 2, 3]));
    assert_eq!(server.spec()["to"], json!([{"name": "n1", "weight": 5}, {"name": "n2", "weight": 1}]));
    let expected = [
        (
            "m1 Apply".to_owned(),
            json!({"f:spec": {
                "f:opts": {}, "f:path": {}, "f:ports": {"v:1": {}, "v:2": {}},
                "f:to": {"k:{\"name\":\"n1\"}": {".": {}, "f:name": {}, "f:weight": {}}}}}),
        ),
        (
            "m2 Apply".to_owned(),
            json!({"f:spec": {
                "f:ports": {"v:2": {}, "v:3": {}}, "f:to": {"k:{\"name\":\"n2\"}": {".": {}, "f:name": {}}}}}),
        ),
    ];
    assert_eq!(server.managers(), expected);
}

#[test]
fn what_is_no_longer_named_goes_unless_another_owns_it() {
    let mut server = two_managers();
    server.apply("m1", json!({"spec": {"ports": [2]}})).unwrap();
    assert_eq!(server.spec(), &json!({"ports": [2, 3], "to": [{"name": "n2", "weight": 1}], "mode": "plain"}));
    assert_eq!(server.fields_of("m1 Apply"), json!({"f:spec": {"f:ports": {"v:2": {}}}}));
    assert_eq!(server.fields_of("m2 Apply")["f:spec"]["f:ports"], json!({"v:2": {}, "v:3": {}}));
    // The metadata is not the applier's to remove, even with a configuration that does not name the object.
    server.apply("m1", json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
    let live = server.object.clone();
    let result =
        server_side_apply(&server.kind, live.as_ref(), json!({"spec": {}}), "m1", false, None, server.now).unwrap();
    assert_eq!(result["metadata"]["name"], "x");
    assert!(result["metadata"].get("labels").is_none());
}

#[test]
fn a_conflict_names_each_owner() {
    let mut server = Server::new();
    server.apply("m1", json!({"spec": {"host": "a"}})).unwrap();
    server.apply("m2", json!({"spec": {"host": "a"}})).unwrap();
    let error = server.apply("m3", json!({"spec": {"host": "b"}})).unwrap_err();
    let expected = [("conflict with \"m1\"", ".spec.host"), ("conflict with \"m2\"", ".spec.host")];
    assert_eq!(paths(&error), expected.map(|(message, path)| (message.to_owned(), path.to_owned())));
    assert_eq!(
        error.message,
        "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .spec.host\nconflicts with \"m2\":\n- .spec.host"
    );
    server.apply_with("m3", json!({"spec": {"host": "b"}}), true, None).unwrap();
    assert_eq!(server.spec()["host"], "b");
    assert_eq!(server.managers().len(), 1, "{:?}", server.managers());
    let error = server.apply("m1", json!({"spec": {"host": "a"}})).unwrap_err();
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"m3\": .spec.host");
}

#[test]
fn an_atomic_object_conflicts_as_a_whole() {
    let mut server = Server::new();
    server.apply("m2", json!({"spec": {"opts": {"b": "y"}}})).unwrap();
    let error = server.apply("m3", json!({"spec": {"opts": {"a": "x"}}})).unwrap_err();
    assert_eq!(paths(&error), [("conflict with \"m2\"".to_owned(), ".spec.opts".to_owned())]);
}

#[test]
fn an_update_takes_what_it_changed() {
    let mut server = Server::new();
    server.apply("m2", json!({"spec": {"opts": {"a": "x"}, "path": "/1"}})).unwrap();
    server.patch("up", json!({"spec": {"opts": {"b": "y"}}}));
    assert_eq!(server.fields_of("up Update"), json!({"f:spec": {"f:opts": {}}}));
    assert_eq!(server.fields_of("m2 Apply"), json!({"f:spec": {"f:path": {}}}));
    let error = server.apply("m2", json!({"spec": {"opts": {"a": "z"}, "path": "/1"}})).unwrap_err();
    assert_eq!(paths(&error), [("conflict with \"up\" using g.test/v1".to_owned(), ".spec.opts".to_owned())]);
}

#[test]
fn two_items_with_one_key_are_refused() {
    let mut server = Server::new();
    let error = server.apply("m1", json!({"spec": {"to": [{"name": "a"}, {"name": "a"}]}})).unwrap_err();
    assert_eq!((error.code, error.causes[0].field.as_str()), (422, "spec.to[1]"));
    let error = server.apply("m1", json!({"spec": {"ports": [1, 2, 1]}})).unwrap_err();
    assert_eq!(error.causes[0].field, "spec.ports[2]");
    let error = server.apply("m1", json!({"spec": {"to": [{"weight": 1}, 7]}})).unwrap_err();
    let found: Vec<&str> = error.causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(found, ["spec.to[0].name", "spec.to[1]"]);
}

#[test]
fn conflict_paths_are_kubernetes_own() {
    let mut server = Server::new();
    let part = |label: &str, weight: u32| {
        json!({"metadata": {"labels": {"a.b/c": label}},
            "spec": {"extra": {"z": {"y": label}}, "to": [{"name": "n1", "weight": weight}]}})
    };
    server.apply("m1", part("1", 1)).unwrap();
    let error = server.apply("m2", part("2", 2)).unwrap_err();
    let found: Vec<String> = paths(&error).into_iter().map(|(_, path)| path).collect();
    assert_eq!(found, [".metadata.labels.a.b/c", ".spec.extra.z.y", ".spec.to[name=\"n1\"].weight"]);
    assert_eq!(
        error.message,
        "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .metadata.labels.a.b/c\n- .spec.extra.z.y\n- \
         .spec.to[name=\"n1\"].weight"
    );
}

#[test]
fn conflicts_list_leaves_before_what_is_nested() {
    let mut server = Server::new();
    server.apply("m1", json!({"spec": {"extra": {"z": "1", "a": {"y": "1"}}, "host": "a", "path": "/1"}})).unwrap();
    let part = json!({"spec": {"extra": {"z": "2", "a": {"y": "2"}}, "host": "b", "path": "/2"}});
    let error = server.apply("m2", part).unwrap_err();
    let found: Vec<String> = paths(&error).into_iter().map(|(_, path)| path).collect();
    assert_eq!(found, [".spec.host", ".spec.path", ".spec.extra.z", ".spec.extra.a.y"]);
}

#[test]
fn a_wrong_type_is_no_conflict() {
    let mut server = Server::new();
    server.apply("m1", json!({"spec": {"host": "a", "ports": [1]}})).unwrap();
    for part in [json!({"spec": {"host": 5}}), json!({"spec": {"host": ["b"]}}), json!({"spec": {"host": {"b": 1}}})] {
        let error = server.apply("m2", part).unwrap_err();
        assert_eq!((error.code, error.causes[0].field.as_str()), (422, "spec.host"));
    }
}

#[test]
fn updates_name_containers_and_applies_only_items_and_schemaless_objects() {
    let part = json!({"metadata": {"labels": {"app": "x"}},
        "spec": {"host": "h", "to": [{"name": "n1"}], "ports": [1], "extra": {"z": {"y": "1"}, "e": {}}}});
    let mut server = Server::new();
    server.create("up", part.clone());
    assert_eq!(
        server.fields_of("up Update"),
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {".": {}, "f:host": {}, "f:mode": {}, "f:ports": {".": {}, "v:1": {}},
                "f:to": {".": {}, "k:{\"name\":\"n1\"}": {".": {}, "f:name": {}, "f:weight": {}}},
                "f:extra": {".": {}, "f:z": {".": {}, "f:y": {}}, "f:e": {}}}
        })
    );
    let mut server = Server::new();
    server.apply("m", part).unwrap();
    assert_eq!(
        server.fields_of("m Apply"),
        json!({
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {"f:host": {}, "f:ports": {"v:1": {}},
                "f:to": {"k:{\"name\":\"n1\"}": {".": {}, "f:name": {}}},
                "f:extra": {"f:z": {".": {}, "f:y": {}}, "f:e": {}}}
        })
    );
}

#[test]
fn a_put_that_drops_fields_takes_them_from_all() {
    let mut server = Server::new();
    let part = json!({"metadata": {"labels": {"app": "x"}},
        "spec": {"host": "h", "to": [{"name": "n1"}], "extra": {"z": "1"}}});
    server.apply("m1", part).unwrap();
    server.write("put", Server::config(json!({"spec": {"host": "h"}})), None);
    assert_eq!(server.managers(), [("m1 Apply".to_owned(), json!({"f:spec": {"f:host": {}}}))]);
    assert_eq!(server.spec(), &json!({"host": "h", "mode": "plain"}));
}

#[test]
fn defaults_are_of_who_creates_or_updates() {
    let mut server = Server::new();
    server.create("up", json!({"spec": {"to": [{"name": "n1", "weight": 7}]}}));
    assert_eq!(server.spec()["mode"], "plain");
    assert_eq!(server.fields_of("up Update")["f:spec"]["f:mode"], json!({}));
    assert!(server.apply("m", json!({"spec": {"mode": "other"}})).is_err());
    server.apply_with("m", json!({"spec": {"mode": "other"}}), true, None).unwrap();
    // A value that falls back to its default is a change.
    server.write("put", Server::config(json!({"spec": {"to": [{"name": "n1"}], "mode": "other"}})), None);
    assert_eq!(server.spec()["to"], json!([{"name": "n1", "weight": 1}]));
    assert_eq!(server.fields_of("up Update")["f:spec"]["f:to"]["k:{\"name\":\"n1\"}"], json!({".": {}, "f:name": {}}));
    assert_eq!(server.fields_of("put Update"), json!({"f:spec": {"f:to": {"k:{\"name\":\"n1\"}": {"f:weight": {}}}}}));
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
fn the_status_has_managers_of_its_own() {
    let mut server = Server::new();
    server.apply("m1", json!({"spec": {"host": "h"}, "status": {"phase": "evil"}})).unwrap();
    assert!(server.object.as_ref().unwrap().get("status").is_none());
    let mut new = server.object.clone().unwrap();
    new["status"] = json!({"phase": "good"});
    server.write("controller", new, Some("status"));
    assert_eq!(server.fields_of("controller Update/status"), json!({"f:status": {".": {}, "f:phase": {}}}));
    server
        .apply_with("m1", json!({"spec": {"host": "evil"}, "status": {"phase": "good"}}), false, Some("status"))
        .unwrap();
    assert_eq!(server.spec()["host"], "h");
    assert_eq!(server.fields_of("m1 Apply/status"), json!({"f:status": {"f:phase": {}}}));
    assert_eq!(server.fields_of("m1 Apply"), json!({"f:spec": {"f:host": {}}}));
    let error = server.apply_with("m2", json!({"status": {"phase": "x"}}), false, Some("status")).unwrap_err();
    let expected = [
        "conflict with \"m1\" with subresource \"status\"",
        "conflict with \"controller\" with subresource \"status\" using g.test/v1",
    ];
    assert_eq!(paths(&error).into_iter().map(|(message, _)| message).collect::<Vec<_>>(), expected);
}

#[test]
fn cleared_managers_come_back_with_the_first_apply() {
    let mut server = two_managers();
    server.patch("up", json!({"metadata": {"managedFields": [{}]}, "spec": {"path": "/2"}}));
    assert_eq!(server.managers(), []);
    server.patch("up", json!({"spec": {"path": "/3"}}));
    assert_eq!(server.managers(), []);
    server.apply("m1", json!({"spec": {"path": "/3"}})).unwrap();
    let names: Vec<String> = server.managers().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["m1 Apply", "before-first-apply Update"]);
    let fields = server.fields_of("before-first-apply Update");
    assert_eq!(fields["f:spec"]["f:opts"], json!({}));
    assert_eq!(fields["f:spec"]["."], json!({}));
    let error = server.apply("m1", json!({"spec": {"path": "/4"}})).unwrap_err();
    assert_eq!(paths(&error)[0].0, "conflict with \"before-first-apply\" using g.test/v1");
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

    // Someone else would conflict; kubectl takes over what is still as it applied it.
    let changed = json!({"spec": {"host": "b", "path": "/1"}});
    assert!(server.apply("other", changed.clone()).is_err());
    server.apply("kubectl", changed.clone()).unwrap();
    assert_eq!(server.spec()["host"], "b");
    let kept_up: Value =
        serde_json::from_str(server.object.as_ref().unwrap()["metadata"]["annotations"][annotation].as_str().unwrap())
            .unwrap();
    assert_eq!(kept_up, Server::config(changed));

    // A field that another one has changed since is not forced.
    let mut server = Server::new();
    let mut with_annotation = part.clone();
    with_annotation["metadata"] = json!({"annotations": {annotation: Server::config(part).to_string()}});
    server.create("kubectl-client-side-apply", with_annotation);
    server.patch("edit", json!({"spec": {"host": "edited"}}));
    let error = server.apply("kubectl", json!({"spec": {"host": "b", "path": "/2"}})).unwrap_err();
    assert_eq!(paths(&error), [("conflict with \"edit\" using g.test/v1".to_owned(), ".spec.host".to_owned())]);
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

#[test]
fn a_list_item_goes_when_nobody_owns_anything_in_it() {
    let mut server = Server::new();
    server.apply("m1", json!({"spec": {"to": [{"name": "n1"}, {"name": "n2"}]}})).unwrap();
    server.apply("m2", json!({"spec": {"to": [{"name": "n1", "weight": 3}]}})).unwrap();
    server.apply("m1", json!({"spec": {"to": [{"name": "n2"}]}})).unwrap();
    assert_eq!(server.spec()["to"], json!([{"name": "n1", "weight": 3}, {"name": "n2", "weight": 1}]));
    server.apply("m2", json!({"spec": {}})).unwrap();
    assert_eq!(server.spec()["to"], json!([{"name": "n2", "weight": 1}]));
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
        // The label keeps the manager there; an empty list alone is owned by nobody.
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
