//! A name server with a hold, and a thief with its kubeconfig: only an administrator can make a decision.

use serde_json::Value;

use signpost_testing::{DataDir, Kubectl, Ports, Scrape, Server, dig, eventually};

const OBJECTS: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard1}\n\
spec: {dns: shard1.v3.rhcloud.com, addresses: [{ip: 192.0.2.1}]}\n---\n\
apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: app, namespace: default}\nspec: {to: {name: web}}\n";
const DECIDE: &str = r#"{"spec":{"decision":"approve"}}"#;

/// Returns the number of holds of Routers that wait for a decision, as the name server reports.
fn undecided(server: &Server) -> u32 {
    Scrape::of(server.admin).value("signpost_deletion_hold_pending{kind=\"Router\"}") as u32
}

/// Returns the DeletionHold for Routers that has a holder, if it is not `before`.
fn held(kubectl: &Kubectl, before: &str) -> Value {
    eventually("the name server holds", || {
        let list = kubectl.json(&["deletionholds"]);
        let mut holds = list["items"].as_array().into_iter().flatten();
        let found = holds.find(|hold| {
            let uid = &hold["metadata"]["uid"];
            hold["spec"]["type"] == "Router" && *uid != before && hold["status"]["holders"][0]["uid"] == *uid
        });
        found.cloned()
    })
}

#[test]
fn a_deletion_hold_that_is_deleted_or_made_anew_is_not_decided() {
    let (data, state, ports) = (DataDir::new(), DataDir::new(), Ports::free());
    let roles = ["--roles", "api,scheduler,admin", "--domain", "v3.rhcloud.com", "--data-dir", data.path()];
    let api = Server::start(ports, &roles);
    let admin = Kubectl::new(data.join("kubeconfig"));
    admin.ok_with(&["apply", "-f", "-"], OBJECTS);
    let kubeconfig = data.join("name-server.kubeconfig");
    let thief = Kubectl::new(kubeconfig.clone());
    let name_server = Server::start(
        Ports::free(),
        &[
            "--roles",
            "dns,admin",
            "--domain",
            "v3.rhcloud.com",
            "--data-dir",
            state.path(),
            "--kubeconfig",
            kubeconfig.to_str().expect("UTF-8"),
        ],
    );
    let is_answered = || dig(name_server.dns, "default-app.shard1.v3.rhcloud.com", "A", &[]).data("A") == ["192.0.2.1"];
    eventually("the name is answered", || is_answered().then_some(()));

    // All objects are lost.
    assert!(api.terminate().success());
    // With the store's identity: otherwise the start is rejected.
    for file in ["store.redb", "store-identity"] {
        std::fs::remove_file(data.join(file)).expect("the store is there");
    }
    let _api = Server::start(ports, &roles);
    let hold = held(&admin, "");
    let name = hold["metadata"]["name"].as_str().expect("a name");
    assert!(undecided(&name_server) == 1 && is_answered());

    // With the credential of the name server, no request can set a decision.
    let mut again = serde_json::json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "DeletionHold", "metadata": {"name": name}, "spec": hold["spec"],
    });
    again["spec"]["decision"] = "approve".into();
    thief.refused(&["patch", "deletionhold", name, "--type=merge", "-p", DECIDE], "");
    // The status alone is written by this.
    thief.run(&["patch", "deletionhold", name, "--type=merge", "--subresource=status", "-p", DECIDE]);
    assert_eq!(admin.json(&["deletionhold", name])["spec"]["decision"], Value::Null);
    thief.refused(&["apply", "--server-side", "-f", "-"], &again.to_string());

    // It is deleted, and stays because of an administrator's finalizer: decisions on it have no effect any longer.
    admin.ok(&[
        "patch",
        "deletionhold",
        name,
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":["example.org/stay"]}}"#,
    ]);
    thief.ok(&["delete", "deletionhold", name, "--wait=false"]);
    let refusal = admin.refused(&["patch", "deletionhold", name, "--type=merge", "-p", DECIDE], "");
    assert!(refusal.contains("being deleted"), "{refusal}");
    admin.ok(&["patch", "deletionhold", name, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);

    // It is re-created, by the name server or by the thief, with a decision in it: the decision has no effect.
    thief.refused(&["create", "-f", "-"], &again.to_string());
    let first = held(&admin, hold["metadata"]["uid"].as_str().expect("a uid"));
    assert_eq!(first["spec"]["decision"], Value::Null);
    assert!(is_answered());

    // A decision, here to keep all, ends with the object that it was made on.
    admin.ok(&["patch", "deletionhold", name, "--type=merge", "-p", r#"{"spec":{"decision":"reject"}}"#]);
    eventually("the name server knows the decision", || (undecided(&name_server) == 0).then_some(()));
    thief.ok(&["delete", "deletionhold", name, "--wait=false"]);
    let second = held(&admin, first["metadata"]["uid"].as_str().expect("a uid"));
    assert_eq!(second["spec"]["decision"], Value::Null);
    eventually("it waits for a decision again", || (undecided(&name_server) == 1).then_some(()));
    assert!(is_answered());
}
