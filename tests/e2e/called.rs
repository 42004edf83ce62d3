//! Invocation of commands: the values that they discover themselves, the invocations that they reject immediately, and their exit
//! codes. The platform has no default settings, and its users do not have its settings.

use std::fs::File;
use std::process::{Command, Stdio};

use serde_json::Value;

use signpost_testing::program::{json, ok, run};
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, program};

const OBJECTS: &str = "\
apiVersion: signpost.dev/v1alpha1
kind: Router
metadata: {name: sh1}
spec: {addresses: [{ip: 192.0.2.1}]}
---
apiVersion: signpost.dev/v1alpha1
kind: Route
metadata: {name: web, namespace: shop}
spec: {to: {name: web}, host: www.shop.example}
";

const LATER: &str = "\
apiVersion: signpost.dev/v1alpha1
kind: Router
metadata: {name: sh2}
spec: {addresses: [{ip: 192.0.2.2}]}
---
apiVersion: signpost.dev/v1alpha1
kind: Route
metadata: {name: thief, namespace: other}
spec: {to: {name: web}, host: www.shop.example}
";

/// A platform `plat.example` with a route on `sh1`, an empty `sh2`, and a refused Route.
struct Elsewhere {
    data: DataDir,
    server: Server,
    kubectl: Kubectl,
    kubeconfig: String,
}

impl Elsewhere {
    fn start() -> Elsewhere {
        let data = DataDir::new();
        let settings = [
            "--domain",
            "plat.example",
            "--former-name-retention",
            "2h",
            "--scheduler-drain-rate",
            "5",
            "--scheduler-strategy",
            "weighted",
        ];
        let server = Server::start(Ports::free(), &[&["--data-dir", data.path()][..], &settings].concat());
        let kubeconfig = data.join("kubeconfig").to_str().expect("UTF-8").to_owned();
        let kubectl = Kubectl::new(data.join("kubeconfig"));
        kubectl.ok(&["create", "namespace", "shop"]);
        kubectl.ok(&["create", "namespace", "other"]);
        kubectl.ok_with(&["apply", "-f", "-"], OBJECTS);
        kubectl.ok(&["wait", "routes.signpost.dev/web", "-n", "shop", "--for=condition=Resolvable", "--timeout=180s"]);
        kubectl.ok_with(&["apply", "-f", "-"], LATER);
        kubectl.ok(&[
            "wait",
            "routes.signpost.dev/thief",
            "-n",
            "other",
            "--for=condition=Admitted=False",
            "--timeout=180s",
        ]);
        kubectl.ok(&["wait", "router.signpost.dev/sh2", "--for=condition=ZonePublished", "--timeout=180s"]);
        Elsewhere { data, server, kubectl, kubeconfig }
    }
}

#[test]
fn a_platform_is_as_its_api_says() {
    let Elsewhere { data: _data, server, kubectl, kubeconfig } = Elsewhere::start();
    let at = ["--kubeconfig", kubeconfig.as_str()];
    let json_of = |arguments: &[&str]| json(&[arguments, &at].concat());

    let plan = json_of(&["move", "route", "-n", "shop", "web", "--to", "sh2", "--dry-run"]);
    let one = &plan["moves"][0];
    assert_eq!(
        (&one["nameThen"], &one["alias"]),
        (&"shop-web.sh2.plat.example".into(), &"shop-web.routes.plat.example".into())
    );
    assert_eq!(plan["formerNameSeconds"], 7_200);
    let record = kubectl.json(&["routes.signpost.dev", "-n", "shop", "web"])["status"]["names"].clone();
    let record = record.as_array().and_then(|names| names.iter().find(|name| name["type"] == "custom")).cloned();
    assert_eq!(plan["hosts"][0]["record"], record.expect("it has its own host")["record"]);
    let zones = eventually("all zones are published", || {
        let zones = json_of(&["zone", "list"]);
        zones.as_array()?.iter().all(|zone| zone["published"] == true).then_some(zones)
    });
    let apexes: Vec<&str> = zones.as_array().expect("zones").iter().filter_map(|zone| zone["zone"].as_str()).collect();
    assert_eq!(apexes, ["plat.example.", "routes.plat.example.", "sh1.plat.example.", "sh2.plat.example."]);
    // It queries the same name servers as the platform, at their port.
    assert_eq!(json_of(&["zone", "status"])[0]["servers"][0]["server"], server.dns.to_string());
    let dig = json_of(&["dig", &format!("@{}", server.dns), "shop-web.routes.plat.example"]);
    assert_eq!(dig["why"]["steps"][0]["routes"][0]["route"], "shop/web", "{dig}");
    let shown = json_of(&["zone", "show", "sh1.plat.example"]);
    assert!(shown["records"].as_array().is_some_and(|all| all.iter().any(|one| one["data"] == "192.0.2.1")), "{shown}");
    for arguments in
        [&["zone", "list"][..], &["simulate", "--drain", "sh1"], &["move", "route", "shop/web", "--to", "sh2"]]
    {
        let other = run(&[arguments, &["--domain", "v3.example"], &at].concat());
        assert!(other.code == Some(1) && other.err.contains("is plat.example, not v3.example"), "{}", other.err);
    }

    // A refused Route takes no capacity, and its reason is printed.
    let plan = json_of(&["simulate", "--remove", "sh1"]);
    assert_eq!(plan["stays"][0]["reason"], "HostAlreadyClaimed", "{plan}");
    let row =
        |name: &str| plan["capacity"].as_array().expect("Routers").iter().find(|row| row["router"] == name).cloned();
    let (gone, left) = (row("sh1").expect("it was there"), row("sh2").expect("it is there"));
    assert_eq!((&gone["state"], &gone["routesBefore"], &gone["routesAfter"]), (&Value::Null, &1.into(), &0.into()));
    assert_eq!(left["routesAfter"], 1);
    assert!(plan["notes"].to_string().contains("the deletion removes the zone with these names"), "{plan}");

    // Where a route is since when is when it was moved there.
    ok(&[&["move", "route", "web", "--namespace", "shop", "--to", "sh2"][..], &at].concat());
    let binding = kubectl.json(&["routebindings.signpost.dev", "-n", "shop", "web"]);
    let placed = json_of(&["explain", "route", "web", "-n", "shop"])["placement"]["placedAt"].clone();
    assert_eq!(placed, binding["spec"]["explanation"]["movedAt"]);
    assert!(placed.as_str() >= binding["metadata"]["creationTimestamp"].as_str() && placed.is_string(), "{binding}");
    eventually("the topology shows a part of a Router's routes", || {
        let topology = json_of(&["topology", "-n", "other"]);
        let shards = topology["shards"].as_array().expect("a list");
        shards.iter().any(|shard| shard["routes"] == 0 && shard["of"] == 1).then_some(())
    });

    // One without a Router is placed where it is moved to.
    ok(&[&["cordon", "sh1"][..], &at].concat());
    ok(&[&["cordon", "sh2"][..], &at].concat());
    let late = "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: late, namespace: shop}\nspec: {}\n";
    kubectl.ok_with(&["apply", "-f", "-"], late);
    kubectl.ok(&[
        "wait",
        "routes.signpost.dev/late",
        "-n",
        "shop",
        "--for=condition=Scheduled=False",
        "--timeout=180s",
    ]);
    let refused = run(&[&["move", "route", "shop/late", "--to", "sh1"][..], &at].concat());
    assert!(refused.code == Some(1) && refused.err.contains("cannot be placed on sh1"), "{}", refused.err);
    let patch = r#"{"spec": {"state": "active", "weight": 0}}"#;
    kubectl.ok(&["patch", "router.signpost.dev", "sh1", "--type=merge", "-p", patch]);
    ok(&[&["move", "route", "shop/late", "--to", "sh1"][..], &at].concat());
    assert_eq!(kubectl.json(&["routes.signpost.dev", "-n", "shop", "late"])["status"]["router"], "sh1");
}

#[test]
fn what_is_called_wrongly_is_said_at_once() {
    let Elsewhere { data, server, kubeconfig, .. } = Elsewhere::start();
    let at = ["--kubeconfig", kubeconfig.as_str()];
    let of_api = |arguments: &[&str]| run(&[arguments, &at].concat());
    for (arguments, complaint) in [
        (&["explain", "route", "shop/web", "-n", "other"][..], "--namespace other: the object is in namespace shop"),
        (
            &["move", "route", "shop/web", "-n", "other", "--to", "sh2"],
            "--namespace other: the object is in namespace shop",
        ),
        (&["simulate", "--add", &data.file("missing")], "missing"),
    ] {
        let ran = of_api(arguments);
        assert!(ran.code == Some(2) && ran.err.contains(complaint), "{arguments:?}: {:?} {}", ran.code, ran.err);
    }
    for arguments in [
        &["user", "add", "tina", "--role", "tenant"][..],
        &["user", "add", "a b", "--role", "viewer"],
        &["user", "add", "tina", "--role", "viewer", "--namespace", "shop"],
    ] {
        let ran = run(&[arguments, &["--data-dir", data.path()]].concat());
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.err);
    }
    assert_eq!(run(&["check", "config", "--config", &data.file("missing")]).code, Some(2));
    let found = run(&["check", "config", "--scheduler-drain-rate", "x", "-o", "json"]);
    let found: Value = serde_json::from_str(&found.out).expect("JSON");
    assert!(
        found["valid"] == false && found["errors"][0].as_str().is_some_and(|text| text.contains("drain-rate")),
        "{found}"
    );
    assert_eq!(json(&["version"])["api"], "signpost.dev/v1alpha1");
    let file = data.join("z.example.zone");
    std::fs::write(&file, "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\nx A nonsense\n").expect("written");
    let found = run(&["check", "zone", file.to_str().expect("UTF-8"), "-o", "json"]);
    let report: Value = serde_json::from_str(&found.out).expect("JSON");
    let error = &report[0]["findings"][0];
    assert!(found.code == Some(1) && error["severity"] == "error" && error["line"] == 5, "{report}");

    // Output that cannot be written is a failure; a reader that has closed the pipe is not.
    let full = || Stdio::from(File::options().write(true).open("/dev/full").expect("it is there"));
    for arguments in [&["version"][..], &["--help"], &["completion", "bash"]] {
        let output =
            Command::new(program()).args(arguments).stdout(full()).stderr(Stdio::piped()).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1) && said.contains("failed to write to standard output"),
            "{arguments:?}: {said}"
        );
    }
    let mut child = Command::new(program()).args(["man"]).stdout(Stdio::piped()).spawn().expect("runs");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));

    // A tenant gets an error for forbidden objects, and a note about incomplete data.
    let tina = data.join("tina.kubeconfig").to_str().expect("UTF-8").to_owned();
    let user = [
        "user",
        "add",
        "tina",
        "--role",
        "tenant",
        "--namespace",
        "shop",
        "--no-credential",
        "--data-dir",
        data.path(),
    ];
    ok(&user);
    ok(&["kubeconfig", "--user", "tina", "--namespace", "shop", "--out", &tina, "--data-dir", data.path()]);
    let moved = eventually("the server knows her", || {
        let ran = run(&["move", "route", "web", "--to", "sh2", "--kubeconfig", &tina]);
        (!ran.err.contains("Unauthorized")).then_some(ran)
    });
    assert!(
        moved.code == Some(1) && moved.err.contains("you are not allowed to read the whole platform"),
        "{}",
        moved.err
    );
    let status =
        ok(&["status", "--admin", &format!("http://{}", server.admin), "--interval", "0", "--kubeconfig", &tina]);
    assert!(
        status.contains("you are not allowed to read the Routes of all namespaces, Zones, DeletionHolds"),
        "{status}"
    );
    assert!(run(&["explain", "route", "web", "--why-not", "sh2", "--kubeconfig", &tina]).code == Some(0));
}
