//! Checks that `deploy/` and the operators' pages match the program: names of series, settings, alerts, and findings.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use kube_cel::{AdmissionRequest, VapEvaluator, VapExpression};
use serde_json::{Value, json};
use signpost::config::{self, ConfigSources};
use signpost_api::access::{GROUP_NAME_SERVERS, GROUP_ROUTER_AGENT_PREFIX, decide};
use signpost_api::identity::Identity;
use signpost_apiserver::auth::rules::{Access, Decision};
use signpost_control::sources::{Family, rights};
use signpost_types::instance::AGENT_NAMESPACE;
use signpost_types::v1alpha1::router::FORCE_DELETE_ANNOTATION;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns all words of `text` that begin with `signpost_`.
fn series(text: &str) -> BTreeSet<String> {
    let part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.split(|character| !part(character)).filter(|word| word.starts_with("signpost_")).map(str::to_owned).collect()
}

#[test]
fn alerts_and_dashboard_name_series_that_there_are() {
    let known = series(&read("docs/metrics.md"));
    for file in ["deploy/prometheus/alerts.yaml", "deploy/prometheus/alerts_test.yaml", "deploy/grafana/signpost.json"]
    {
        for name in series(&read(file)) {
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            assert!(known.contains(histogram.unwrap_or(&name)), "{file} names {name}, which docs/metrics.md does not");
        }
    }
}

#[test]
fn each_alert_is_explained_and_tested() {
    let of_lines = |text: &str, prefix: &str| -> BTreeSet<String> {
        text.lines()
            .filter_map(|line| line.trim_start().strip_prefix(prefix))
            .map(|name| name.trim().to_owned())
            .collect()
    };
    let rules = read("deploy/prometheus/alerts.yaml");
    let alerts = of_lines(&rules, "- alert:");
    assert!(alerts.len() > 20);
    assert_eq!(of_lines(&read("docs/alerts.md"), "## "), alerts);
    let tests = read("deploy/prometheus/alerts_test.yaml");
    for alert in &alerts {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert} is not tested");
        assert!(
            rules.contains(&format!("runbook_url: docs/alerts.md#{}\n", alert.to_lowercase())),
            "{alert} does not name its page"
        );
    }
}

#[test]
fn panels_of_the_dashboard_lie_beside_each_other() {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/signpost.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("a list");
    let mut seen: Vec<(&Value, [u64; 4])> = Vec::new();
    for panel in panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_u64().expect("a number"));
        assert!(x + w <= 24 && w > 0 && h > 0, "{}: beyond the page", panel["title"]);
        for (other, [other_x, other_y, other_w, other_h]) in &seen {
            assert_ne!(panel["id"], other["id"], "{} and {} have one id", panel["title"], other["title"]);
            let is_apart = x + w <= *other_x || other_x + other_w <= x || y + h <= *other_y || other_y + other_h <= y;
            assert!(is_apart, "{} overlaps {}", panel["title"], other["title"]);
        }
        seen.push((panel, [x, y, w, h]));
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert!(!series(target["expr"].as_str().expect("text")).is_empty(), "{} queries nothing", panel["title"]);
        }
    }
    assert!(seen.len() > 40);
}

/// Returns the rules of a policy for requests to the API of a cluster: from the kustomization, and the same from the chart.
fn policy(name: &str) -> Vec<VapExpression> {
    let file = read("deploy/kubernetes/cluster-api/admission.yaml");
    let chart =
        read("deploy/helm/signpost/templates/admission.yaml") + &read("deploy/helm/signpost/templates/routers.yaml");
    let documents = serde_saphyr::from_multiple::<Value>(&file).expect("YAML");
    let named = |kind: &str| {
        let mut of_it = documents.iter().filter(|document| document["kind"] == kind);
        of_it.find(|document| document["metadata"]["name"] == name).unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let binding = named("ValidatingAdmissionPolicyBinding");
    assert_eq!(
        (&binding["spec"]["policyName"], &binding["spec"]["validationActions"][0]),
        (&json!(name), &json!("Deny"))
    );
    let rules = named("ValidatingAdmissionPolicy")["spec"]["validations"].as_array().expect("a list").iter();
    let rules = rules.map(|rule| {
        let field = |name: &str| rule[name].as_str().map(str::to_owned);
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        let expression = field("expression").expect("text");
        let message = field("message").expect("text");
        let message_expression = field("messageExpression");
        for text in [&expression].into_iter().chain(&message_expression) {
            assert!(words(&chart).contains(&words(text)), "the chart lacks {text}");
        }
        VapExpression { expression, message: Some(message), message_expression }
    });
    rules.collect()
}

/// Returns whether these rules let a request pass.
fn admits(rules: &[VapExpression], operation: &str, old: Option<&Value>, new: &Value) -> bool {
    let request = AdmissionRequest { operation: operation.to_owned(), ..AdmissionRequest::default() };
    let evaluator =
        VapEvaluator::builder().object(new.clone()).old_object(old.cloned().unwrap_or_default()).request(request);
    let results = evaluator.build().evaluate(rules);
    // A rule that fails to evaluate refuses, but must not.
    for result in &results {
        let expected =
            rules.iter().find(|rule| rule.expression == result.expression).and_then(|rule| rule.message.as_ref());
        assert!(result.passed || result.message.as_ref() == expected, "{result:?}");
    }
    results.iter().all(|result| result.passed)
}

/// Returns rules about an annotation for the evaluator, which escapes the keys of every map, as Kubernetes does those of objects with
/// a schema.
fn with_escaped_key(mut rules: Vec<VapExpression>, key: &str) -> Vec<VapExpression> {
    let escaped = key.replace('.', "__dot__").replace('/', "__slash__").replace('-', "__dash__");
    for rule in &mut rules {
        rule.expression = rule.expression.replace(&format!("'{key}'"), &format!("'{escaped}'"));
    }
    rules
}

/// A cluster's API also rejects what Signpost's own API rejects beyond roles (`tests/hostile/deletion_holds.rs`).
#[test]
fn on_a_clusters_api_nobody_forges_a_decision() {
    let deletion_hold = |generation: i64| {
        json!({
            "metadata": {"name": "b", "uid": "u1", "generation": generation},
            "spec": {"type": "Router", "objects": 1, "known": 1, "cause": "list"},
        })
    };
    let with = |mut object: Value, path: &str, value: Value| {
        let (parent, name) = path.rsplit_once('/').expect("a path");
        object.pointer_mut(parent).expect("is there")[name] = value;
        object
    };
    let (plain, decided) = (deletion_hold(1), with(deletion_hold(2), "/spec/decision", json!("approve")));
    let going = with(deletion_hold(1), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let rules = policy("signpost-deletion-holds");
    for (operation, old, new, passes) in [
        ("CREATE", None, plain.clone(), true),
        ("CREATE", None, decided.clone(), false),
        ("CREATE", None, with(deletion_hold(1), "/spec/decidedAt", json!("2026-01-01T00:00:00Z")), false),
        ("UPDATE", Some(&plain), decided.clone(), true),
        ("UPDATE", Some(&decided), plain.clone(), true),
        ("UPDATE", Some(&going), with(going.clone(), "/spec/decision", json!("approve")), false),
        ("UPDATE", Some(&going), with(going.clone(), "/metadata/finalizers", json!([])), true),
    ] {
        assert_eq!(admits(&rules, operation, old, &new), passes, "{operation} {new}");
    }

    let entry = |server: &str, uid: &str, generation: i64, set: &str| json!({"server": server, "uid": uid, "generation": generation, "set": set, "lastHeartbeatTime": "2026-01-01T00:00:00Z"});
    let held =
        |generation: i64, holders: Value| with(deletion_hold(generation), "/status", json!({"holders": holders}));
    // Decided at generation 2, after ns1 had entered.
    let old = held(2, json!([entry("ns1", "u1", 1, "s1")]));
    let rules = policy("signpost-deletion-hold-holders");
    for (holders, passes) in [
        (json!([]), true),
        (json!([entry("ns1", "u1", 1, "s1")]), true),
        (json!([entry("ns1", "u1", 2, "s2")]), true),
        (json!([entry("ns1", "u1", 1, "s1"), entry("ns2", "u1", 2, "s1")]), true),
        // As if the decision had been about another loss, or made after another name server had entered.
        (json!([entry("ns1", "u1", 1, "s2")]), false),
        (json!([entry("ns1", "u1", 0, "s1")]), false),
        (json!([entry("ns1", "u1", 1, "s1"), entry("ns2", "u1", 1, "s1")]), false),
        (json!([entry("ns1", "u0", 2, "s1")]), false),
    ] {
        assert_eq!(admits(&rules, "UPDATE", Some(&old), &held(2, holders.clone())), passes, "{holders}");
    }
    assert!(admits(&rules, "UPDATE", Some(&plain), &held(1, json!([entry("ns1", "u1", 1, "s1")]))));
    assert!(!admits(
        &rules,
        "CREATE",
        None,
        &with(deletion_hold(1), "/metadata/finalizers", json!(["example.org/stay"]))
    ));

    let route = |to: Option<&str>| match to {
        Some(to) => json!({"metadata": {"name": "r", "annotations": {"signpost.dev/move-to": to, "a": "b"}}}),
        None => json!({"metadata": {"name": "r"}}),
    };
    let rules = with_escaped_key(policy("signpost-move"), "signpost.dev/move-to");
    for (operation, old, new, passes) in [
        ("CREATE", None, None, true),
        ("CREATE", None, Some("shard1"), false),
        ("UPDATE", Some(None), Some("shard1"), false),
        ("UPDATE", Some(Some("shard1")), Some("shard1"), true),
        ("UPDATE", Some(Some("shard1")), Some("shard2"), false),
        ("UPDATE", Some(Some("shard1")), None, true),
    ] {
        let old = old.map(route);
        assert_eq!(admits(&rules, operation, old.as_ref(), &route(new)), passes, "{operation} {new:?}");
    }
}

/// A cluster's API rejects what the hooks of Signpost's own API reject (`kinds/route/tests.rs`).
#[test]
fn on_a_clusters_api_only_sources_adopt_hosts() {
    let plain = || json!({"metadata": {"name": "r"}, "spec": {"host": "www.shop.test"}});
    let labeled = |mut route: Value, uid: &str| {
        route["metadata"]["labels"] = json!({"signpost.dev/source": uid, "a": "b"});
        route
    };
    let adopted = |host: &str, router: &str, by: &str| {
        let spec = json!({"host": host, "adopted": {"router": router, "by": by}});
        labeled(json!({"metadata": {"name": "r"}, "spec": spec}), "u")
    };
    let of = |host: &str| adopted(host, "s1", "listener a");
    let mut retargeted = of("a.test");
    retargeted["spec"]["to"] = json!({"kind": "Service", "name": "web"});
    let mut unlabeled = of("a.test");
    unlabeled["metadata"] = json!({"name": "r"});
    let mut annotated = plain();
    annotated["metadata"]["annotations"] = json!({"signpost.dev/source-object": "HTTPRoute shop/other", "a": "b"});
    let mut other = of("a.test");
    other["metadata"]["annotations"] = annotated["metadata"]["annotations"].clone();
    let rules = with_escaped_key(policy("signpost-adopt"), "signpost.dev/source");
    let rules = with_escaped_key(rules, "signpost.dev/source-object");
    for (what, old, new, passes) in [
        ("plain", None, plain(), true),
        ("adopted", None, of("a.test"), false),
        ("adopted later", Some(labeled(plain(), "u")), of("www.shop.test"), false),
        ("another Router", Some(of("a.test")), adopted("a.test", "s2", "listener a"), false),
        ("another admission", Some(of("a.test")), adopted("a.test", "s1", "listener b"), false),
        ("given up", Some(of("www.shop.test")), labeled(plain(), "u"), false),
        ("another host", Some(of("a.test")), of("b.test"), false),
        ("a label", None, labeled(plain(), "u"), false),
        ("another label", Some(of("a.test")), labeled(of("a.test"), "v"), false),
        ("no label", Some(of("a.test")), unlabeled, false),
        ("an annotation", None, annotated, false),
        ("an annotation later", Some(of("a.test")), other, false),
        ("other fields", Some(of("a.test")), retargeted, true),
        ("the same", Some(of("a.test")), of("a.test"), true),
        (
            "another host of its own",
            Some(plain()),
            json!({"metadata": {"name": "r"}, "spec": {"host": "b.test"}}),
            true,
        ),
    ] {
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        assert_eq!(admits(&rules, operation, old.as_ref(), &new), passes, "{what}");
    }
}

/// A cluster's API also rejects the deletion of a Router with Routes, by the numbers in its status.
#[test]
fn on_a_clusters_api_a_router_with_routes_is_not_deleted_unknowingly() {
    let router = |metadata: Value, status: Value| {
        let mut router = json!({"metadata": {"name": "shard1"}, "spec": {"dns": "shard1.apps.example.com"}});
        for (name, value) in metadata.as_object().expect("an object") {
            router["metadata"][name] = value.clone();
        }
        if !status.is_null() {
            router["status"] = status;
        }
        router
    };
    let agreed = |count: &str| json!({"annotations": {"a": "b", FORCE_DELETE_ANNOTATION: count}});
    let rules = with_escaped_key(policy("signpost-router-deletion"), FORCE_DELETE_ANNOTATION);
    for (metadata, status, passes) in [
        (json!({}), Value::Null, true),
        (json!({}), json!({"conditions": []}), true),
        (json!({}), json!({"routes": 0, "formerNames": 0}), true),
        (json!({}), json!({"routes": 121}), false),
        (json!({}), json!({"routes": 0, "formerNames": 3}), false),
        (json!({"annotations": {"a": "b"}}), json!({"routes": 1}), false),
        (agreed("121"), json!({"routes": 121}), true),
        (agreed("124"), json!({"routes": 121, "formerNames": 3}), true),
        (agreed("121"), json!({"routes": 121, "formerNames": 3}), false),
        (agreed("120"), json!({"routes": 121}), false),
        (agreed("0"), json!({"routes": 121}), false),
        // The deletion began earlier, and a finalizer keeps the object.
        (json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), json!({"routes": 121}), true),
    ] {
        let old = router(metadata, status);
        let request = AdmissionRequest { operation: "DELETE".to_owned(), ..AdmissionRequest::default() };
        let evaluator = VapEvaluator::builder().object(Value::Null).old_object(old.clone()).request(request).build();
        let results = evaluator.evaluate(&rules);
        assert_eq!(results.iter().all(|result| result.passed), passes, "{old}: {results:?}");
        for message in results.iter().filter_map(|result| result.message.as_ref()) {
            let status = &old["status"];
            let count = status["routes"].as_u64().unwrap_or(0) + status["formerNames"].as_u64().unwrap_or(0);
            let command =
                format!("kubectl annotate routers.signpost.dev shard1 {FORCE_DELETE_ANNOTATION}={count} --overwrite");
            assert!(message.contains("signpost drain router shard1") && message.contains(&command), "{message}");
        }
    }
}

/// The same rules as in Signpost's own API (`hostile/roles::an_agent_has_the_leases_of_its_router`).
#[test]
fn on_a_clusters_api_an_agent_writes_the_leases_of_its_router() {
    let rules = policy("signpost-router-agents");
    let admits = |router: &str, operation: &str, lease: &str| {
        let username = format!("system:serviceaccount:signpost-routers:router-{router}");
        let request = AdmissionRequest { operation: operation.to_owned(), username, ..AdmissionRequest::default() };
        let lease = json!({"metadata": {"name": lease}});
        let (object, old) = if operation == "DELETE" { (Value::Null, lease) } else { (lease, Value::Null) };
        let evaluator = VapEvaluator::builder().object(object).old_object(old).request(request).build();
        evaluator.evaluate(&rules).iter().all(|result| result.passed)
    };
    for operation in ["CREATE", "UPDATE", "DELETE"] {
        for (router, lease, is_own) in [
            ("shard1", "router-shard1.192-0-2-1-80", true),
            ("a.b", "router-a.b.192-0-2-1-80", true),
            ("shard1", "router-shard2.192-0-2-1-80", false),
            ("a", "router-a.b.192-0-2-1-80", false),
            ("shard", "router-shard1.192-0-2-1-80", false),
            ("shard1", "router-shard1", false),
            ("shard1", "signpost-scheduler", false),
        ] {
            assert_eq!(admits(router, operation, lease), is_own, "{operation} {lease} by the agent of {router}");
        }
    }
}

#[test]
fn the_settings_that_are_shipped_are_valid() {
    for file in ["deploy/signpost.toml", "deploy/container/signpost.toml", "deploy/kubernetes/base/signpost.toml"] {
        let places = ConfigSources { config: Some(root().join(file)), ..ConfigSources::default() };
        let settings = config::load(&places).unwrap_or_else(|errors| panic!("{file}: {errors}"));
        assert!(settings.data_dir.starts_with(PathBuf::from("/var/lib/signpost")), "{file}");
    }
    // The chart makes a file of templates; its keys are those that the template begins lines with.
    let chart = read("deploy/helm/signpost/templates/config.yaml") + &read("deploy/helm/signpost/values.yaml");
    let keys: Vec<&str> = chart.lines().filter_map(|line| Some(line.trim_start().split_once(" = ")?.0)).collect();
    assert!(keys.len() > 8, "{keys:?}");
    for key in keys {
        assert!(config::find(key).is_some(), "the chart sets {key}, which is not a key");
    }
    // What is commented out is an example, and must be one that works.
    let text = read("deploy/signpost.toml");
    let is_setting = |line: &str| line.starts_with([']', ' ']) || line.contains(" = ");
    let uncommented: Vec<&str> =
        text.lines().map(|line| line.strip_prefix("# ").filter(|rest| is_setting(rest)).unwrap_or(line)).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("signpost.toml");
    fs::write(&file, uncommented.join("\n")).expect("written");
    let settings = config::load(&ConfigSources { config: Some(file), ..ConfigSources::default() });
    let settings = settings.unwrap_or_else(|errors| panic!("deploy/signpost.toml, uncommented: {errors}"));
    assert_eq!((settings.domain.as_str(), settings.nameserver.len()), ("apps.example.com", 2));
}

#[test]
fn each_finding_of_the_doctor_is_explained() {
    let page = read("docs/delegate.md");
    // On one line, however it was formatted.
    let judge = read("src/cli/doctor/judge.rs").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut codes = BTreeSet::new();
    for before in ["Error, \"", "Warning, \"", "Note, \"", "faults.push((\"", "vec![(\""] {
        for (at, before) in judge.match_indices(before) {
            codes.extend(judge[at + before.len()..].split('"').next());
        }
    }
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes.iter().filter(|code| **code != "tcp") {
        assert!(page.contains(&format!("`{code}`")), "docs/delegate.md does not explain {code}");
    }
}

/// A tag can be moved to another image; a digest cannot.
#[test]
fn base_images_are_pinned_by_digest() {
    let file = read("deploy/container/Containerfile");
    let arguments: Vec<(&str, &str)> =
        file.lines().filter_map(|line| line.strip_prefix("ARG ")?.split_once('=')).collect();
    let images: Vec<&str> = file.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(images.len(), 2);
    for image in images {
        let image = image.split_whitespace().next().expect("an image");
        let name = image.strip_prefix("${").and_then(|name| name.strip_suffix('}'));
        let image = name.map_or(image, |name| {
            let found = arguments.iter().find(|(argument, _)| *argument == name);
            found.unwrap_or_else(|| panic!("{name} has no default")).1
        });
        let digest = image.split_once("@sha256:").unwrap_or_else(|| panic!("{image} is not pinned")).1;
        assert!(digest.len() == 64 && digest.bytes().all(|octet| octet.is_ascii_hexdigit()), "{image}");
    }
}

/// `docs/security.md` names tests as `folder/file::test`: each must be there.
#[test]
fn each_test_that_the_security_page_names_exists() {
    let page = read("docs/security.md");
    let names: BTreeSet<(&str, &str)> = page.split('`').filter_map(|word| word.split_once("::")).collect();
    let tests = |(file, test): &(&str, &str)| {
        let is_path = |text: &str| text.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"_/".contains(&octet));
        assert!(is_path(file) && is_path(test), "{file}::{test} is not the name of a test");
        let places = [
            "src",
            "tests",
            "crates/agent/src",
            "crates/agent/tests",
            "crates/api/src",
            "crates/api/tests",
            "crates/apiserver/src",
            "crates/apiserver/tests",
            "crates/control/tests",
            "crates/dns/tests",
            "crates/types/src",
        ];
        let mut texts =
            places.iter().filter_map(|place| std::fs::read_to_string(root().join(format!("{place}/{file}.rs"))).ok());
        assert!(texts.any(|text| text.contains(&format!("fn {test}("))), "no {file}.rs has a test {test}");
    };
    names.iter().for_each(tests);
    assert!(names.len() > 25, "{names:?}");
    for attacker in ["stranger", "tenant", "Viewer", "Name server", "Agent", "Scheduler", "Identity provider"] {
        assert!(page.contains(attacker), "nothing about a {attacker}");
    }
}

/// The cluster's role of name servers and the rule table agree on each verb and each of Signpost's kinds.
#[test]
fn on_a_clusters_api_name_servers_have_the_same_rights() {
    let documents =
        serde_saphyr::from_multiple::<Value>(&read("deploy/kubernetes/cluster-api/rbac.yaml")).expect("YAML");
    let role = documents
        .iter()
        .find(|document| document["kind"] == "ClusterRole" && document["metadata"]["name"] == "signpost-name-server");
    let rules = role.expect("the role is there")["rules"].as_array().expect("a list");
    let has = |list: &Value, one: &str| list.as_array().expect("a list").iter().any(|item| item == one || item == "*");
    let name_server = Identity { user: "ns1".to_owned(), groups: vec![GROUP_NAME_SERVERS.to_owned()] };
    let mut allowed = 0;
    for kind in ["routers", "routes", "routebindings", "nameclaims", "zones", "deletionholds"] {
        for resource in [kind.to_owned(), format!("{kind}/status")] {
            for verb in ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"] {
                let rule = rules.iter().find(|rule| {
                    has(&rule["apiGroups"], "signpost.dev")
                        && has(&rule["resources"], &resource)
                        && has(&rule["verbs"], verb)
                });
                let access = Access::resource(verb, "signpost.dev", &resource, None, None);
                let is_allowed = matches!(decide(&name_server, &access), Decision::Allowed { .. });
                assert_eq!(rule.is_some(), is_allowed, "{verb} {resource}");
                allowed += usize::from(is_allowed);
            }
        }
    }
    assert!(allowed > 20, "{allowed}");
}

/// The roles `edit` and `view` of a cluster give tenants the rights of the rule table on Signpost's kinds.
#[test]
fn on_a_clusters_api_tenants_have_the_same_rights() {
    let file = read("deploy/kubernetes/cluster-api/roles.yaml");
    let documents = serde_saphyr::from_multiple::<Value>(&file).expect("YAML");
    let has = |list: &Value, one: &str| list.as_array().expect("a list").iter().any(|item| item == one || item == "*");
    let allows = |roles: &[&Value], verb: &str, resource: &str| {
        roles.iter().flat_map(|role| role["rules"].as_array().expect("a list")).any(|rule| {
            has(&rule["apiGroups"], "signpost.dev") && has(&rule["resources"], resource) && has(&rule["verbs"], verb)
        })
    };
    let added_to = |role: &str| -> Vec<&Value> {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{role}");
        documents.iter().filter(|document| document["metadata"]["labels"][&label] == "true").collect()
    };
    let named = |name: &str| {
        let role = documents.iter().find(|document| document["metadata"]["name"] == name);
        [role.unwrap_or_else(|| panic!("no ClusterRole {name}"))]
    };
    let (view, edit, admin) = (added_to("view"), added_to("edit"), added_to("admin"));
    let (routers, operator) = (named("signpost-routers-view"), named("signpost-operator"));
    let member = |group: &str| Identity { user: "tina".to_owned(), groups: vec![group.to_owned()] };
    let (tenant, administrator) = (member("signpost:tenant:shop"), member("signpost:admins"));
    let may = |who: &Identity, verb: &str, resource: &str, namespace: Option<&str>| {
        let access = Access::resource(verb, "signpost.dev", resource, namespace, None);
        matches!(decide(who, &access), Decision::Allowed { .. })
    };
    let read_verbs = ["get", "list", "watch"];
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "move"];
    let mut allowed = 0;
    for kind in ["routers", "routes", "routebindings", "nameclaims", "zones", "deletionholds"] {
        for resource in [kind.to_owned(), format!("{kind}/status")] {
            for verb in verbs {
                let of_tenant = may(&tenant, verb, &resource, Some("shop")) && kind != "routers";
                let at_large = may(&tenant, verb, &resource, None);
                let is_read = read_verbs.contains(&verb);
                assert_eq!(allows(&edit, verb, &resource), of_tenant, "edit: {verb} {resource}");
                assert_eq!(allows(&admin, verb, &resource), of_tenant, "admin: {verb} {resource}");
                assert_eq!(allows(&view, verb, &resource), of_tenant && is_read, "view: {verb} {resource}");
                assert_eq!(allows(&routers, verb, &resource), at_large, "at large: {verb} {resource}");
                let of_operator = allows(&operator, verb, &resource);
                assert!(!of_operator || may(&administrator, verb, &resource, None), "operator: {verb} {resource}");
                assert!(of_operator || !is_read, "operator: {verb} {resource}");
                assert!(!of_operator || is_read || kind != "routebindings", "operator: {verb} {resource}");
                allowed += usize::from(of_tenant || at_large);
            }
        }
    }
    assert!(allows(&operator, "move", "routes") && allowed > 15, "{allowed}");
}

/// The chart has every rule of the manifests.
#[test]
fn the_chart_grants_the_same_rights() {
    for file in ["rbac.yaml", "roles.yaml", "routers.yaml"] {
        let rules = |text: &str| -> Vec<String> {
            let rules = text.split("---\n").filter_map(|document| document.split_once("\nrules:\n"));
            let line = |line: &&str| !line.trim_start().starts_with(['#', '{']) && !line.is_empty();
            rules.map(|(_, rules)| rules.lines().filter(line).collect::<Vec<_>>().join("\n")).collect()
        };
        let manifests = read(&format!("deploy/kubernetes/cluster-api/{file}"));
        let chart = read(&format!("deploy/helm/signpost/templates/{file}"));
        // The right to all Secrets is a choice of the chart.
        let chart = match chart.split_once("  {{- if .Values.routers.readSecrets }}\n") {
            Some((before, rest)) => before.to_owned() + rest.split_once("{{- end }}\n").expect("an end").1,
            None => chart,
        };
        let expected = rules(&manifests);
        assert!(!expected.is_empty(), "{file}");
        assert_eq!(rules(&chart), expected, "{file}");
        for label in ["aggregate-to-view", "aggregate-to-edit", "aggregate-to-admin"] {
            assert_eq!(manifests.matches(label).count(), chart.matches(label).count(), "{label} in {file}");
        }
    }
}

/// The scheduler reads and writes Events: a repeated one is read, and then patched.
#[test]
fn on_a_clusters_api_the_scheduler_reads_its_events() {
    let documents =
        serde_saphyr::from_multiple::<Value>(&read("deploy/kubernetes/cluster-api/rbac.yaml")).expect("YAML");
    let role = documents
        .iter()
        .find(|document| document["kind"] == "ClusterRole" && document["metadata"]["name"] == "signpost-scheduler");
    let rules = role.expect("the role is there")["rules"].as_array().expect("a list");
    let has = |list: &Value, one: &str| list.as_array().expect("a list").iter().any(|item| item == one);
    for group in ["", "events.k8s.io"] {
        for verb in ["get", "create", "patch"] {
            let grants = |rule: &Value| {
                has(&rule["apiGroups"], group) && has(&rule["resources"], "events") && has(&rule["verbs"], verb)
            };
            assert!(rules.iter().any(grants), "{verb} events in {group:?}");
        }
    }
}

/// The cluster's role of agents and the rule table agree, except for Leases, which a policy restricts there.
#[test]
fn on_a_clusters_api_agents_have_the_same_rights() {
    let documents =
        serde_saphyr::from_multiple::<Value>(&read("deploy/kubernetes/cluster-api/routers.yaml")).expect("YAML");
    let rules_of = |kind: &str, namespace: Value| {
        let mut of_it = documents.iter().filter(|document| document["kind"] == kind);
        let role = of_it.find(|role| {
            role["metadata"]["name"] == "signpost-router-agent" && role["metadata"]["namespace"] == namespace
        });
        role.expect("the role is there")["rules"].as_array().cloned().expect("a list")
    };
    let has = |list: &Value, one: &str| list.as_array().expect("a list").iter().any(|item| item == one);
    let agent = Identity { user: "agent".to_owned(), groups: vec![format!("{GROUP_ROUTER_AGENT_PREFIX}shard1")] };
    let mut allowed = 0;
    for (rules, namespace, name) in [
        (rules_of("ClusterRole", Value::Null), "shop", None),
        (rules_of("Role", json!(AGENT_NAMESPACE)), AGENT_NAMESPACE, Some("router-shard1.192-0-2-1-80")),
    ] {
        for (group, resource) in [
            ("signpost.dev", "routers"),
            ("signpost.dev", "routes"),
            ("signpost.dev", "routes/status"),
            ("signpost.dev", "routebindings"),
            ("signpost.dev", "nameclaims"),
            ("", "services"),
            ("", "secrets"),
            ("", "namespaces"),
            ("", "events"),
            ("discovery.k8s.io", "endpointslices"),
            ("coordination.k8s.io", "leases"),
        ] {
            for verb in ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"] {
                let rule = rules.iter().find(|rule| {
                    has(&rule["apiGroups"], group) && has(&rule["resources"], resource) && has(&rule["verbs"], verb)
                });
                let access = Access::resource(verb, group, resource, Some(namespace), name);
                let may = matches!(decide(&agent, &access), Decision::Allowed { .. });
                // Agents only need to apply and delete.
                let is_lease = resource == "leases" && ["get", "update"].contains(&verb);
                // There, each namespace of tenants grants the right for single Secrets.
                let is_secret = resource == "secrets";
                let is_of_this_role = (resource == "leases" || is_secret) == (namespace == AGENT_NAMESPACE);
                let is_granted_apart = is_lease || is_secret && namespace != AGENT_NAMESPACE;
                assert_eq!(
                    rule.is_some(),
                    may && is_of_this_role && !is_granted_apart,
                    "{verb} {resource} in {namespace}"
                );
                allowed += usize::from(rule.is_some());
            }
        }
    }
    assert_eq!(allowed, 19);
}

/// The manifests of the rights of sources are those of the table. `SIGNPOST_RENEW_RIGHTS=1` writes them.
#[test]
fn sources_have_the_rights_of_the_table() {
    let check = |path: &str, text: &str| {
        if std::env::var_os("SIGNPOST_RENEW_RIGHTS").is_some() {
            let path = root().join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("created");
            std::fs::write(path, text).expect("written");
        }
        assert_eq!(read(path), text, "{path}: write it with SIGNPOST_RENEW_RIGHTS=1");
    };
    let mut chart =
        "# The rights of sources, generated from the table in crates/control/src/sources/rights.rs.\n".to_owned();
    for family in Family::ALL {
        let word = family.word();
        let names = rights::Names { prefix: "signpost", account: ["signpost-scheduler", "signpost"], labels: "" };
        let head = format!(
            "# The rights that sources.{word} needs in the cluster, generated from the table in crates/control/src/sources/rights.rs.\n"
        );
        let manifests = rights::manifests(family, &names);
        check(&format!("deploy/kubernetes/sources/{word}.yaml"), &(head + &manifests));
        let account = "{{ .Release.Name }}-{{ ternary \"scheduler\" \"api\" (eq .Values.apiMode \"cluster\") }}";
        let labels = "  labels: {{- include \"signpost.labels\" $ | nindent 4 }}\n";
        let names =
            rights::Names { prefix: "{{ .Release.Name }}", account: [account, "{{ .Release.Namespace }}"], labels };
        let manifests = rights::manifests(family, &names);
        chart += &format!("{{{{- if ne .Values.sources.{word} \"off\" }}}}\n{manifests}{{{{- end }}}}\n");

        let documents = serde_saphyr::from_multiple::<Value>(&read(&format!("deploy/kubernetes/sources/{word}.yaml")));
        let documents = documents.expect("YAML");
        let rules = documents.iter().filter_map(|document| document["rules"].as_array()).flatten();
        let resources: Vec<&str> = rules
            .clone()
            .flat_map(|rule| rule["resources"].as_array().expect("a list"))
            .filter_map(Value::as_str)
            .collect();
        for kind in family.kinds() {
            assert!(resources.contains(&&*kind.plural()), "{word} reads {}", kind.name());
        }
        for rule in rules {
            let writes =
                rule["verbs"].as_array().expect("a list").iter().any(|verb| verb == "update" || verb == "patch");
            let resources = rule["resources"].as_array().expect("a list").iter().filter_map(Value::as_str);
            for resource in resources {
                assert!(!["secrets", "pods", "nodes", "*"].contains(&resource), "{word}: {resource}");
                assert!(!writes || resource == "events" || resource.ends_with("/status"), "{word} writes {resource}");
            }
        }
    }
    check("deploy/helm/signpost/templates/sources.yaml", &chart);
}
