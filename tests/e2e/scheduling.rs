//! Strategies from the operator's view: a custom webhook, its fallback, a change by SIGHUP, and the output of `signpost explain`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use signpost_testing::program::{Ran, run};
use signpost_testing::{DataDir, Kubectl, Ports, Process, Scrape, Server, eventually, root};

/// The service of `examples/webhook`.
struct Placer {
    _process: Process,
    url: String,
}

impl Placer {
    fn start(token: &Path) -> Placer {
        let mut command = Command::new("python3");
        command
            .arg(root().join("examples/webhook/placer.py"))
            .args(["--listen", "127.0.0.1:0", "--token-file"])
            .arg(token);
        let process = Process::logged(&mut command);
        let url = process.logs("listening on ").replace("listening on ", "");
        Placer { _process: process, url }
    }
}

fn explain(data: &DataDir, arguments: &[&str]) -> Ran {
    run(&[&["explain", "route"], arguments, &["--data-dir", data.path()]].concat())
}

/// Returns the explanation; expects success.
fn ok(data: &DataDir, arguments: &[&str]) -> String {
    explain(data, arguments).ok()
}

/// Returns the explanation as text, with one space between columns, because their widths depend on their contents.
fn page(data: &DataDir, arguments: &[&str]) -> String {
    let lines = ok(data, arguments);
    lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

fn router(name: &str, region: &str, spec: &str) -> String {
    format!(
        "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {{name: {name}, labels: {{region: {region}}}}}\n\
         spec: {{addresses: [{{ip: 192.0.2.1}}]{spec}}}\n---\n"
    )
}

/// Makes a route and waits until it is placed; gives its Router.
fn place(kubectl: &Kubectl, name: &str) -> String {
    let manifest = format!(
        "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{to: {{name: web}}}}\n"
    );
    kubectl.ok_with(&["apply", "-f", "-"], &manifest);
    eventually("the route is placed", || {
        let route = kubectl.json(&["routes.signpost.dev", "-n", "shop", name]);
        route["status"]["router"].as_str().map(str::to_owned)
    })
}

#[test]
fn a_webhook_chooses_until_it_is_gone_and_another_strategy_after_a_reload() {
    let data = DataDir::new();
    let config = data.join("signpost.toml");
    let token = data.join("placer.token");
    std::fs::write(&token, "first-token\n").expect("written");
    let placer = Placer::start(&token);
    let write = |text: &str| std::fs::write(&config, text).expect("written");
    let by_webhook = format!(
        "scheduler.strategy = \"webhook\"\nwebhook.url = \"{}\"\nwebhook.fallback = \"least-routes\"\nwebhook.timeout = \"30s\"\n",
        placer.url
    );
    write(&format!("{by_webhook}webhook.token-file = \"placer.token\"\n"));
    let arguments = ["--data-dir", data.path(), "--config", config.to_str().expect("UTF-8")];
    let server = Server::start(Ports::free(), &arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let routers = [router("east", "us", ""), router("north", "eu", ""), router("south", "eu", ", state: cordoned")];
    kubectl.ok_with(&["apply", "-f", "-"], &routers.concat());
    kubectl.ok(&["create", "namespace", "shop"]);
    kubectl.ok(&["label", "namespace", "shop", "region=eu"]);

    assert_eq!(place(&kubectl, "first"), "north");
    let found = page(&data, &["shop/first"]);
    for part in [
        "route shop/first\n",
        "router north (north.v3.rhcloud.com)\n",
        "strategy webhook\n",
        "strategy webhook selected north: 2 of 3 Routers feasible; it is in the region eu; 0 routes at weight 1; filtered out: 1 Cordoned\n",
        "Scheduled True, ",
        "\nnorth Chosen ",
        "\nsouth Cordoned ",
    ] {
        assert!(found.contains(part), "{part:?} is not in\n{found}");
    }
    let why_not = |router: &str| -> Value {
        let text = ok(&data, &["shop/first", "--output", "json", "--why-not", router]);
        serde_json::from_str(&text).expect("JSON")
    };
    let (east, south) = (why_not("east"), why_not("south"));
    assert_eq!(east["placement"]["strategy"], "webhook");
    assert_eq!(
        (&east["whyNot"]["whenPlaced"]["eligible"], &east["whyNot"]["now"]["eligible"]),
        (&true.into(), &true.into())
    );
    assert_eq!(
        (&south["whyNot"]["whenPlaced"]["reason"], &south["whyNot"]["now"]["reason"]),
        (&"Cordoned".into(), &"Cordoned".into())
    );
    let yaml = ok(&data, &["shop/first", "--output", "yaml", "--why-not", "east"]);
    assert!(yaml.contains("whyNot:") && yaml.contains("strategy: webhook"), "{yaml}");

    // Another token is in use at once; without one the service refuses.
    std::fs::write(&token, "second-token\n").expect("written");
    assert_eq!(place(&kubectl, "renewed"), "north");
    assert!(page(&data, &["shop/renewed"]).contains("strategy webhook\n"));
    write(&by_webhook);
    server.signal("HUP");
    server.logs("scheduling strategy changed");
    place(&kubectl, "refused");
    let found = page(&data, &["shop/refused"]);
    assert!(found.contains("the webhook returned 401 Unauthorized: it requires a token"), "{found}");
    for name in ["renewed", "refused"] {
        kubectl.ok(&["delete", "routes.signpost.dev", "-n", "shop", name]);
    }

    // Without the service, the fallback decides, and the explanation reports it.
    drop(placer);
    assert_eq!(place(&kubectl, "second"), "east");
    let found = page(&data, &["shop/second"]);
    assert!(found.contains("strategy least-routes\n") && found.contains("the webhook is unreachable: "), "{found}");
    let scrape = Scrape::of(server.admin);
    assert!(scrape.sum("signpost_scheduler_webhook_calls_total", &[("result", "answered")]) >= 1.0);
    assert!(scrape.sum("signpost_scheduler_webhook_calls_total", &[("result", "unreachable")]) >= 2.0);
    assert!(scrape.sum("signpost_scheduler_webhook_fallbacks_total", &[("reason", "unreachable")]) >= 1.0);

    // Another strategy by SIGHUP moves nothing.
    write("scheduler.strategy = \"rendezvous\"\n");
    server.signal("HUP");
    server.logs("scheduling strategy changed");
    place(&kubectl, "third");
    assert!(page(&data, &["shop/third"]).contains("strategy rendezvous\n"));
    for (name, strategy) in [("first", "webhook"), ("second", "least-routes")] {
        assert!(page(&data, &[&format!("shop/{name}")]).contains(&format!("strategy {strategy}\n")), "{name}");
    }

    // A route that waits is explained by its conditions: here a quota.
    kubectl.ok(&["annotate", "namespace", "shop", "signpost.dev/route-quota=3"]);
    let fourth = "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: fourth, namespace: shop}\nspec: {to: {name: web}}\n";
    kubectl.ok_with(&["apply", "-f", "-"], fourth);
    let found = eventually("it has the reason", || {
        let found = page(&data, &["shop/fourth", "--why-not", "east"]);
        found.contains("QuotaExceeded").then_some(found)
    });
    for part in ["router none\n", "has 3 Routes with a Router", "allows 3", "why not east could take the Route"] {
        assert!(found.contains(part), "{part:?} is not in\n{found}");
    }
    kubectl.ok(&["delete", "routes.signpost.dev", "-n", "shop", "first"]);
    eventually("it takes the room", || page(&data, &["shop/fourth"]).contains("strategy rendezvous").then_some(()));

    let complaint = explain(&data, &["second"]).fails(1);
    assert!(complaint.contains("default/second"), "{complaint}");
    assert!(server.terminate().success());
}
