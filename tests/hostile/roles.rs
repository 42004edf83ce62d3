//! Each role of the rule table with every verb on every kind: exactly the permissions in `docs/security.md`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::Platform;
use signpost_testing::client::Client;
use signpost_testing::{Kubectl, eventually};

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete"];
const CHANGE: &[&str] = &["update", "patch"];
/// The targets of Routes.
const BACKENDS: [(&str, &str); 2] = [("", "services"), ("discovery.k8s.io", "endpointslices")];
const NAMESPACES: [&str; 2] = ["team", "other"];

/// One of a group's resources.
#[derive(Debug, Clone)]
struct Resource {
    /// Such as `/apis/signpost.dev/v1alpha1`.
    base: String,
    group: String,
    /// Such as `routes/status`.
    name: String,
    namespaced: bool,
    verbs: Vec<String>,
}

/// Returns all that the server's discovery lists.
fn resources(client: &Client) -> Vec<Resource> {
    let groups = ["signpost.dev/v1alpha1", "coordination.k8s.io/v1", "discovery.k8s.io/v1", "events.k8s.io/v1"];
    let bases = groups.map(|group| format!("/apis/{group}")).into_iter().chain(["/api/v1".to_owned()]);
    let mut all = Vec::new();
    for base in bases {
        let (status, body) = client.send("GET", &base, None);
        assert_eq!(status, 200, "{body}");
        let list: Value = serde_json::from_str(&body).expect("JSON");
        let group = base.strip_prefix("/apis/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        for resource in list["resources"].as_array().expect("a list") {
            let verbs = resource["verbs"].as_array().expect("a list").iter();
            all.push(Resource {
                base: base.clone(),
                group: group.to_owned(),
                name: resource["name"].as_str().expect("a name").to_owned(),
                namespaced: resource["namespaced"] == true,
                verbs: verbs.map(|verb| verb.as_str().expect("a verb").to_owned()).collect(),
            });
        }
    }
    all
}

/// `group/resource verb`, for each verb.
fn all_of(allowed: &mut BTreeSet<String>, group: &str, resources: &[&str], verbs: &[&str]) {
    for resource in resources {
        allowed.extend(verbs.iter().map(|verb| format!("{group}/{resource} {verb}")));
    }
}

/// Returns the permissions of a role in a namespace according to `docs/security.md`. `team` is the tenant's namespace; those of the
/// Leases of leaders and of agents are among the others.
fn documented(role: &str, namespace: &str, kinds: &[Resource]) -> BTreeSet<String> {
    const OURS: &str = "signpost.dev";
    let ours: Vec<&str> = kinds.iter().filter(|kind| kind.group == OURS).map(|kind| kind.name.as_str()).collect();
    let mut allowed = BTreeSet::new();
    let mut on = |group: &str, resources: &[&str], verbs: &[&str]| all_of(&mut allowed, group, resources, verbs);
    for (group, resource) in BACKENDS {
        if role != "tenant" || namespace == "team" {
            on(group, &[resource], READ);
        }
        if role == "tenant" && namespace == "team" {
            on(group, &[resource], WRITE);
            on(group, &[resource], &["deletecollection"]);
        }
    }
    match role {
        "name-server" => {
            on(
                OURS,
                &["routers", "routes", "routebindings", "nameclaims", "zones", "deletionholds", "challengerecords"],
                READ,
            );
            on(OURS, &["deletionholds", "challengerecords"], &["create", "delete"]);
            on(OURS, &["deletionholds/status"], CHANGE);
            on("", &["namespaces"], READ);
        }
        "scheduler" => {
            on(OURS, &ours, READ);
            on(OURS, &["routebindings", "nameclaims", "zones"], WRITE);
            // Of these, only those of sources: kinds/route/tests.rs.
            on(OURS, &["routers", "routes"], WRITE);
            on("", &["namespaces"], &["create"]);
            on(OURS, &["routes/status", "routers/status"], CHANGE);
            on(OURS, &["deletionholds", "challengerecords"], &["create", "delete"]);
            on(OURS, &["deletionholds/status"], CHANGE);
            on("", &["namespaces"], READ);
            for group in ["", "events.k8s.io"] {
                on(group, &["events"], READ);
                on(group, &["events"], WRITE);
            }
            on("coordination.k8s.io", &["leases"], READ);
            match namespace {
                "signpost-system" => on("coordination.k8s.io", &["leases"], WRITE),
                "signpost-machines" => on("coordination.k8s.io", &["leases"], &["delete"]),
                _ => {}
            }
            // Certificates, accounts at certificate authorities, and orders.
            if ["signpost-system", "signpost-machines"].contains(&namespace) {
                on("", &["secrets"], &["get", "list", "create", "patch", "delete"]);
            }
        }
        "router-agent" => {
            // Of Leases those of its Router: an_agent_has_the_leases_of_its_router. Of Secrets those that its Routes name.
            on(OURS, &["routers", "routes", "routebindings"], READ);
            on("", &["secrets"], &["get"]);
        }
        "viewer" => {
            on(OURS, &ours, READ);
            on("", &["namespaces", "events"], READ);
            on("events.k8s.io", &["events"], READ);
            on("coordination.k8s.io", &["leases"], READ);
        }
        "tenant" => {
            on(OURS, &["routers"], READ);
            if namespace == "team" {
                on(OURS, &["routes", "routes/status", "routebindings", "challengerecords"], READ);
                on(OURS, &["routes"], WRITE);
                on(OURS, &["routes"], &["deletecollection"]);
                on("", &["secrets"], READ);
                on("", &["secrets"], WRITE);
                on("", &["secrets"], &["deletecollection"]);
                on("", &["events"], READ);
                on("events.k8s.io", &["events"], READ);
                on("", &["namespaces"], &["get"]);
            }
        }
        _ => panic!("no role {role}"),
    }
    // Subresources of status have no list and no watch.
    let exists = |one: &String| {
        let (path, verb) = one.split_once(' ').expect("as made above");
        let is_it = |kind: &&Resource| format!("{}/{}", kind.group, kind.name) == path;
        let kind = kinds.iter().find(is_it).unwrap_or_else(|| panic!("{path} is not served"));
        kind.verbs.iter().any(|served| served == verb)
    };
    allowed.retain(exists);
    allowed
}

/// Returns whether `kubectl auth can-i` would print yes.
fn can_i(client: &Client, kind: &Resource, verb: &str, namespace: &str) -> bool {
    let (resource, subresource) = kind.name.split_once('/').unwrap_or((&kind.name, ""));
    let name = if resource == "namespaces" { namespace } else { "" };
    let namespace = if kind.namespaced { namespace } else { "" };
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "verb": verb, "group": kind.group, "resource": resource, "subresource": subresource,
            "namespace": namespace, "name": name,
        }},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (status, body) = client.send("POST", path, Some(&review));
    assert_eq!(status, 201, "{body}");
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    answer["status"]["allowed"] == true
}

/// Returns whether the server lets such a request pass. It is one that changes nothing: about an object that is not there, or
/// without a valid body.
fn passes(client: &Client, kind: &Resource, verb: &str, namespace: &str) -> bool {
    let (resource, subresource) = kind.name.split_once('/').map_or((&kind.name[..], ""), |(name, _)| (name, "/status"));
    let (place, object) = match (kind.namespaced, resource) {
        (true, _) => (format!("{}/namespaces/{namespace}/{resource}", kind.base), "nosuch"),
        // A Namespace counts as being inside itself.
        (false, "namespaces") => (format!("{}/{resource}", kind.base), namespace),
        (false, _) => (format!("{}/{resource}", kind.base), "nosuch"),
    };
    let one = format!("{place}/{object}{subresource}");
    let empty = json!({});
    let (status, body) = match verb {
        "get" => client.send("GET", &one, None),
        "list" => client.send("GET", &place, None),
        // A watch that began would not end by itself.
        "watch" => client.send("GET", &format!("{place}?watch=true&resourceVersion=invalid"), None),
        "create" => client.send("POST", &place, Some(&empty)),
        "update" => client.send("PUT", &one, Some(&empty)),
        "patch" => client.send("PATCH", &one, Some(&json!({"metadata": {"labels": {"Ä": "invalid"}}}))),
        "delete" => client.send("DELETE", &one, None),
        "deletecollection" => client.send("DELETE", &place, None),
        _ => panic!("no verb {verb}"),
    };
    assert!(matches!(status, 200 | 400 | 403 | 404 | 409 | 415 | 422), "{verb} {one}: {status} {body}");
    status != 403
}

#[test]
fn each_role_may_do_what_is_documented_and_nothing_else() {
    let platform = Platform::start(&[]);
    let tenant = platform.tenant("team");
    platform.admin.ok(&["create", "namespace", "other"]);
    let kinds = resources(&tenant);
    assert!(kinds.len() > 12, "{kinds:?}");
    let mut users = vec![("tenant", tenant)];
    for role in ["name-server", "scheduler", "router-agent", "viewer"] {
        let flags = ["--role", role, "--router", "shard1"];
        let flags = if role == "router-agent" { &flags[..] } else { &flags[..2] };
        users.push((role, platform.user(&format!("thief-{role}"), flags)));
    }
    for (role, client) in &users {
        let version = || (client.send("GET", "/apis/signpost.dev/v1alpha1/routers", None).0 == 200).then_some(());
        eventually("the user is known", version);
        for namespace in NAMESPACES.iter().chain(&["default", "signpost-machines", "signpost-system"]) {
            let documented = documented(role, namespace, &kinds);
            let mut found = [BTreeSet::new(), BTreeSet::new()];
            for kind in &kinds {
                for verb in &kind.verbs {
                    let one = format!("{}/{} {verb}", kind.group, kind.name);
                    for (set, is_allowed) in found
                        .iter_mut()
                        .zip([can_i(client, kind, verb, namespace), passes(client, kind, verb, namespace)])
                    {
                        set.extend(is_allowed.then(|| one.clone()));
                    }
                }
            }
            let [reviewed, mut served] = found;
            if *role == "router-agent" {
                // No Route names the Secret of the request.
                assert!(served.insert("/secrets get".to_owned()), "{role}");
            }
            assert_eq!(reviewed, documented, "kubectl auth can-i as {role} in {namespace}");
            assert_eq!(served, documented, "requests as {role} in {namespace}");
        }
        // No paths other than objects, and no impersonation.
        assert_eq!(client.send("GET", "/backup", None).0, 403, "{role}");
        let others = Resource {
            base: String::new(),
            group: String::new(),
            name: "users".to_owned(),
            namespaced: false,
            verbs: Vec::new(),
        };
        assert!(!can_i(client, &others, "impersonate", ""), "{role}");
    }

    // The same from the kubeconfigs that the first start writes, by kubectl itself.
    for (file, yes, no) in [
        (
            "name-server",
            ["create deletionholds", "delete deletionholds"],
            ["update deletionholds", "create routebindings"],
        ),
        ("scheduler", ["create routebindings", "update zones"], ["update leases", "update deletionholds"]),
    ] {
        let kubectl = Kubectl::new(platform.data.join(&format!("{file}.kubeconfig")));
        for (questions, answer) in [(yes, "yes"), (no, "no")] {
            for question in questions {
                let (verb, resource) = question.split_once(' ').expect("two words");
                let printed = kubectl.run(&["auth", "can-i", verb, resource, "-A"]).stdout;
                // A no may have its reason behind it.
                let printed = String::from_utf8_lossy(&printed);
                assert_eq!(printed.split_whitespace().next(), Some(answer), "{file}: {question}");
            }
        }
    }
}

/// A stolen credential of an agent can affect only the instances of its own Router.
#[test]
fn an_agent_has_the_leases_of_its_router() {
    let platform = Platform::start(&[]);
    let agent = platform.user("thief", &["--role", "router-agent", "--router", "shard1"]);
    let place = "/apis/coordination.k8s.io/v1/namespaces/signpost-machines/leases";
    let lease = |name: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": "thief"}})
    };
    eventually("the user is known", || (agent.send("GET", "/apis", None).0 == 200).then_some(()));
    for (name, is_own) in [
        ("router-shard1.192-0-2-1-80", true),
        ("router-shard1.2001-db8-0-0-0-0-0-1-80", true),
        ("router-shard2.192-0-2-1-80", false),
        ("router-shard1.b.192-0-2-1-80", false),
        ("router-shard1", false),
        ("signpost-scheduler", false),
    ] {
        let one = format!("{place}/{name}");
        let expected = if is_own { 200 } else { 403 };
        platform.admin.ok_with(&["apply", "-n", "signpost-machines", "-f", "-"], &lease(name).to_string());
        let patch = json!({"spec": {"leaseDurationSeconds": 15}});
        assert_eq!(agent.send("PATCH", &one, Some(&patch)).0, expected, "{name}");
        let (status, held) = agent.send("GET", &one, None);
        assert_eq!(status, expected, "{name}");
        let body = if is_own { serde_json::from_str(&held).expect("a Lease") } else { lease(name) };
        assert_eq!(agent.send("PUT", &one, Some(&body)).0, expected, "{name}");
        assert_eq!(agent.send("DELETE", &one, None).0, expected, "{name}");
        // The name of what is created is in the body: an agent applies.
        assert_eq!(agent.send("POST", place, Some(&lease(name))).0, 403, "{name}");
    }
    assert_eq!(agent.send("GET", place, None).0, 403);
    assert_eq!(agent.send("DELETE", place, None).0, 403);
    let elsewhere = place.replace("signpost-machines", "signpost-system");
    assert_eq!(agent.send("GET", &format!("{elsewhere}/router-shard1.192-0-2-1-80"), None).0, 403);
}
