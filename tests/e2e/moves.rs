//! Moving as an operator does it: a route to another shard, a shard empty, and what names answer meanwhile and afterwards.

use serde_json::Value;

use signpost_testing::dig::Response;
use signpost_testing::program::{Ran, run};
use signpost_testing::{DataDir, Kubectl, Ports, Server, dig, eventually};

fn signpost(data: &DataDir, arguments: &[&str]) -> Ran {
    run(&[arguments, &["--data-dir", data.path()]].concat())
}

/// Runs the command, expects success, and returns its output.
fn ok(data: &DataDir, arguments: &[&str]) -> String {
    signpost(data, arguments).ok()
}

fn refused(data: &DataDir, arguments: &[&str], code: i32) -> String {
    signpost(data, arguments).fails(code)
}

fn router(name: &str, address: &str, more: &str) -> String {
    format!(
        "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {{name: {name}}}\n\
         spec: {{ttl: 1, addresses: [{{ip: {address}}}]{more}}}\n---\n"
    )
}

fn route(name: &str, more: &str) -> String {
    format!(
        "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{to: {{name: web}}{more}}}\n---\n"
    )
}

/// Returns the CNAME that a name answers with, if it does.
fn leads_to(response: &Response) -> Option<String> {
    response.data("CNAME").first().map(|target| (*target).to_owned())
}

#[test]
fn a_route_moves_and_a_shard_is_emptied() {
    let data = DataDir::new();
    let arguments = [
        "--data-dir",
        data.path(),
        "--former-name-retention",
        "1m",
        "--scheduler-drain-rate",
        "100",
        "--scheduler-strategy",
        "least-routes",
    ];
    let server = Server::start(Ports::free(), &arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok(&["create", "namespace", "shop"]);
    kubectl.ok_with(&["apply", "-f", "-"], &router("shard1", "192.0.2.1", ""));
    kubectl.ok_with(&["apply", "-f", "-"], &[route("web", ", host: www.shop.example"), route("api", "")].concat());
    kubectl.ok(&["wait", "routes.signpost.dev", "--all", "-n", "shop", "--for=condition=Scheduled", "--timeout=180s"]);
    let more =
        [router("shard2", "192.0.2.2", ", capacity: {hard: 1}"), router("shard3", "192.0.2.3", ", state: cordoned")];
    kubectl.ok_with(&["apply", "-f", "-"], &more.concat());
    let status = |name: &str| kubectl.json(&["routes.signpost.dev", "-n", "shop", name])["status"].clone();
    let (old, new) = ("shop-web.shard1.v3.rhcloud.com", "shop-web.shard2.v3.rhcloud.com");
    assert_eq!(status("web")["router"], "shard1", "a new Router moves nothing");
    let versions = || kubectl.json(&["routes.signpost.dev,routers.signpost.dev,routebindings.signpost.dev", "-A"]);
    let specs = |list: &Value| -> Vec<Value> {
        list["items"].as_array().expect("a list").iter().map(|one| one["spec"].clone()).collect()
    };

    // A dry run prints everything and changes nothing.
    let before = specs(&versions());
    let page = ok(&data, &["move", "route", "shop/web", "--to", "shard2", "--dry-run"]);
    let rows: Vec<String> = page.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in [
        format!("shop/web shard1 shard2 {old} {new}"),
        "shop 1".to_owned(),
        "shard2 active 0 1 - 1 0".to_owned(),
        "dry run: nothing was changed".to_owned(),
    ] {
        assert!(rows.contains(&row), "{row:?} is not in\n{page}");
    }
    assert!(page.contains("www.shop.example. IN CNAME shop-web.routes.v3.rhcloud.com."), "{page}");
    let plan: Value = serde_json::from_str(&ok(&data, &["drain", "router", "shard1", "--dry-run", "--output", "json"]))
        .expect("JSON");
    assert_eq!((&plan["dryRun"], plan["moves"].as_array().map(Vec::len)), (&Value::Bool(true), Some(1)), "{plan}");
    assert_eq!(plan["stays"][0]["reason"], "Unschedulable", "{plan}");
    assert_eq!(plan["cachesSeconds"], 31, "{plan}");
    for (arguments, code, complaint) in [
        (
            &["move", "route", "shop/web", "--to", "shard3", "--dry-run"][..],
            1,
            "cannot move: Router shard3, requested by signpost.dev/move-to, is cordoned",
        ),
        (&["move", "route", "shop/web", "--to", "shard9"], 1, "there is no Router shard9"),
        (&["move", "route", "shop/none", "--to", "shard2"], 1, "there is no Route shop/none"),
        (&["move", "route", "web", "--to", "shard2"], 1, "there is no Route default/web"),
        (&["move", "route", "a/b/c", "--to", "shard2"], 2, "must be NAMESPACE/NAME"),
        (&["drain", "router", "shard9"], 1, "there is no Router shard9"),
    ] {
        let found = refused(&data, arguments, code);
        assert!(found.contains(complaint), "{arguments:?}: {found}");
    }
    assert_eq!(specs(&versions()), before);

    // The move: the alias is at the new name, and the old name leads there, for every type and for the names below.
    ok(&data, &["move", "route", "shop/web", "--to", "shard2"]);
    eventually("the new name is verified, and never the old one in its place", || {
        let proof = kubectl.condition(&["routes.signpost.dev", "-n", "shop", "web"], "Resolvable")?;
        let message = (proof.status == "True").then_some(proof.message)?;
        assert!(message.contains(new) && !message.contains(old), "{message}");
        Some(())
    });
    let web = status("web");
    assert_eq!((&web["router"], &web["dns"]), (&Value::from("shard2"), &Value::from("www.shop.example")));
    assert_eq!(
        (&web["formerNames"][0]["name"], &web["formerNames"][0]["router"]),
        (&Value::from(old), &Value::from("shard1"))
    );
    let ask = |name: &str, rtype: &str| dig(server.dns, name, rtype, &[]);
    let target = Some(format!("{new}."));
    eventually("the alias is at the new name", || {
        (leads_to(&ask("shop-web.routes.v3.rhcloud.com", "A")) == target).then_some(())
    });
    eventually("the old name leads to the new one", || (leads_to(&ask(old, "A")) == target).then_some(()));
    assert_eq!(leads_to(&ask(old, "TXT")), target);
    assert_eq!(leads_to(&ask(&format!("below.{old}"), "AAAA")), target);
    assert_eq!(ask(new, "A").data("A"), ["192.0.2.2"]);
    assert_eq!(ask("shop-api.shard1.v3.rhcloud.com", "A").data("A"), ["192.0.2.1"], "the others stay");
    let account = ok(&data, &["explain", "route", "shop/web"]);
    assert!(account.contains("as requested by signpost.dev/move-to"), "{account}");
    let until = web["formerNames"][0]["until"].as_str().expect("it has an end");
    assert!(account.contains(&format!("{old} (answered until {until})")), "{account}");
    // The other Route has no feasible Router: the exit code reports that, too.
    refused(&data, &["drain", "router", "shard1", "--dry-run"], 1);

    // It may not be forgotten that names lead through the zone.
    let complaint = kubectl.refused(&["delete", "router.signpost.dev", "shard1"], "");
    assert!(complaint.contains("signpost drain router shard1"), "{complaint}");
    // A former name ends by itself after a minute, although it is queried: what comes before its end here has time even on a busy
    // machine.
    let drained = ok(&data, &["drain", "router", "shard1", "-o", "json"]);
    let drained: Value = serde_json::from_str(&drained).expect("JSON");
    assert_eq!((&drained["stays"][0]["name"], drained["stays"].as_array().map(Vec::len)), (&"api".into(), Some(1)));
    assert!(drained["notes"].to_string().contains("--for=jsonpath='{.status.routes}'=0"), "{drained}");
    eventually("no Router can take it, which it reports", || {
        let pending = kubectl.condition(&["routes.signpost.dev", "-n", "shop", "api"], "MovePending")?;
        (pending.status == "True" && pending.message.contains("shard3")).then_some(())
    });
    ok(&data, &["uncordon", "shard3"]);
    eventually("it leaves for where it can", || (status("api")["router"] == "shard3").then_some(()));
    eventually("its old name leads on", || {
        let found = leads_to(&ask("shop-api.shard1.v3.rhcloud.com", "A"));
        (found.as_deref() == Some("shop-api.shard3.v3.rhcloud.com.")).then_some(())
    });
    // A stop at a random moment: afterwards, everything is unchanged, including former names.
    drop(server);
    let server = Server::start(Ports::free(), &arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let ask = |name: &str, rtype: &str| dig(server.dns, name, rtype, &[]);
    assert_eq!(ask(new, "A").data("A"), ["192.0.2.2"]);
    kubectl.ok(&["wait", "router.signpost.dev/shard1", "--for=condition=Drained", "--timeout=180s"]);
    eventually("the former name is gone, and the wildcard answers again", || {
        (ask(old, "A").data("A") == ["192.0.2.1"]).then_some(())
    });
    let web = kubectl.json(&["routes.signpost.dev", "-n", "shop", "web"])["status"].clone();
    assert!(web.get("formerNames").is_none() && web["router"] == "shard2", "{web}");
    kubectl.ok(&["delete", "router.signpost.dev", "shard1"]);
    assert!(server.terminate().success());
}

#[test]
fn kubectl_alone_moves_and_tenants_do_not() {
    let data = DataDir::new();
    let server = Server::start(Ports::free(), &["--data-dir", data.path()]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok(&["create", "namespace", "shop"]);
    kubectl.ok_with(&["apply", "-f", "-"], &[router("shard1", "192.0.2.1", ""), route("web", "")].concat());
    kubectl.ok(&["wait", "routes.signpost.dev/web", "-n", "shop", "--for=condition=Scheduled", "--timeout=180s"]);
    kubectl.ok_with(&["apply", "-f", "-"], &router("shard2", "192.0.2.2", ""));
    let move_to = |to: &str| format!("signpost.dev/move-to={to}");
    let annotate = ["annotate", "routes.signpost.dev/web", "-n", "shop"];

    ok(&data, &["user", "add", "tina", "--role", "tenant", "--namespace", "shop", "--no-credential"]);
    let tina = data.join("tina.kubeconfig");
    let api = kubectl.ok(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]);
    let out = tina.to_str().expect("UTF-8").to_owned();
    ok(&data, &["kubeconfig", "--user", "tina", "--namespace", "shop", "--server", &api, "--out", &out]);
    let tenant = Kubectl::new(tina);
    eventually("the server knows her", || {
        tenant.run(&["get", "routes.signpost.dev", "-n", "shop"]).status.success().then_some(())
    });
    let complaint = tenant.refused(&[&annotate[..], &[&move_to("shard2")]].concat(), "");
    assert!(complaint.contains("cannot move resource \"routes\""), "{complaint}");
    assert_eq!(kubectl.ok(&["auth", "can-i", "move", "routes.signpost.dev", "-n", "shop"]).trim(), "yes");
    let complaint = kubectl.refused(&[&annotate[..], &[&move_to("shard9")]].concat(), "");
    assert!(complaint.contains("signpost.dev/move-to") && complaint.contains("shard9"), "{complaint}");

    kubectl.ok(&[&annotate[..], &[&move_to("shard2")]].concat());
    let route = eventually("it has moved", || {
        let route = kubectl.json(&["routes.signpost.dev", "-n", "shop", "web"]);
        (route["status"]["router"] == "shard2").then_some(route)
    });
    assert!(route["metadata"]["annotations"].get("signpost.dev/move-to").is_none(), "the request is gone: {route}");
    assert_eq!(dig(server.dns, "shop-web.shard2.v3.rhcloud.com", "A", &[]).data("A"), ["192.0.2.2"]);
    assert!(server.terminate().success());
}

#[test]
fn a_simulation_touches_nothing_and_comes_true() {
    let data = DataDir::new();
    let arguments =
        ["--data-dir", data.path(), "--scheduler-strategy", "least-routes", "--scheduler-drain-rate", "1000"];
    let server = Server::start(Ports::free(), &arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok(&["create", "namespace", "shop"]);
    let routers = [router("shard1", "192.0.2.1", ""), router("shard2", "192.0.2.2", ", capacity: {hard: 6}")].concat();
    kubectl.ok_with(&["apply", "-f", "-"], &routers);
    let routes: String = (0..8).map(|i| route(&format!("r{i}"), "")).collect();
    kubectl.ok_with(&["apply", "-f", "-"], &routes);
    kubectl.ok(&["wait", "routes.signpost.dev", "--all", "-n", "shop", "--for=condition=Scheduled", "--timeout=180s"]);
    let new = data.join("shard3.yaml");
    std::fs::write(&new, router("shard3", "192.0.2.3", ", capacity: {hard: 3}")).expect("written");
    let new = new.to_str().expect("UTF-8");
    let where_all_are = || -> Vec<(String, String)> {
        let list = kubectl.json(&["routebindings.signpost.dev", "-n", "shop"]);
        let items = list["items"].as_array().expect("a list").clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        items.iter().map(|one| (text(&one["metadata"]["name"]), text(&one["spec"]["router"]))).collect()
    };
    let before = where_all_are();

    let simulate = ["simulate", "--add", new, "--drain", "shard1", "--scheduler-strategy", "least-routes"];
    let page = ok(&data, &simulate);
    assert!(page.contains("dry run: nothing was changed") && page.contains("shop-r0.shard"), "{page}");
    let json = ok(&data, &[&simulate[..], &["--output", "json"]].concat());
    let plan: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(plan["moves"].as_array().map(Vec::len), Some(4), "{plan}");
    let row = |router: &str| {
        let capacity = plan["capacity"].as_array().expect("Routers").iter();
        let row = capacity.clone().find(|one| one["router"] == router).expect("it is listed");
        (row["routesBefore"].as_u64(), row["routesAfter"].as_u64())
    };
    assert_eq!(
        [row("shard1"), row("shard2"), row("shard3")],
        [(Some(4), Some(0)), (Some(4), Some(5)), (Some(0), Some(3))]
    );
    assert_eq!(where_all_are(), before);
    assert!(kubectl.refused(&["get", "router.signpost.dev", "shard3"], "").contains("NotFound"));
    let yaml = ok(&data, &["simulate", "--remove", "shard1", "--set-weight", "shard2=7", "--output", "yaml"]);
    assert!(
        yaml.contains("action: simulate") && yaml.contains("would not be deleted: no other Router can take 2 of"),
        "{yaml}"
    );
    for (arguments, code, complaint) in [
        (&["simulate", "--drain", "shard9"][..], 1, "there is no Router shard9"),
        (&["simulate", "--set-weight", "shard1"], 2, "must be ROUTER=N"),
        (&["simulate", "--add", &data.file("missing.yaml")], 2, "missing.yaml"),
    ] {
        let found = refused(&data, arguments, code);
        assert!(found.contains(complaint), "{arguments:?}: {found}");
    }
    std::fs::write(data.join("bad.yaml"), router("x", "300.0.0.1", "")).expect("written");
    let found = refused(&data, &["simulate", "--add", data.join("bad.yaml").to_str().expect("UTF-8")], 1);
    assert!(found.contains("spec.addresses[0].ip"), "{found}");

    // What was foretold is what happens.
    kubectl.ok(&["apply", "-f", new]);
    ok(&data, &["drain", "router", "shard1"]);
    eventually("the shard is empty", || where_all_are().iter().all(|(_, router)| router != "shard1").then_some(()));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let moves = plan["moves"].as_array().expect("moves").iter();
    let foretold: std::collections::BTreeMap<String, String> =
        moves.map(|one| (text(&one["name"]), text(&one["to"]))).collect();
    for (name, router) in before {
        let expected = foretold.get(&name).unwrap_or(&router);
        assert!(where_all_are().contains(&(name.clone(), expected.clone())), "{name} is not on {expected}");
    }
    assert!(server.terminate().success());
}
