//! Another `--domain` on the same objects, by a typing error or a missing flag: nothing is created or deleted, and the error is
//! reported. With `--former-domain`, the change is intended.

use std::process::Command;

use crate::platform::{Promise, promises};
use signpost_testing::{DataDir, Kubectl, Ports, Server, dig, eventually, http_get, program, root};

const DOMAIN: [&str; 2] = ["--domain", "v3.rhcloud.com"];
const OTHER: [&str; 2] = ["--domain", "v4.rhcloud.com"];
/// Few objects: each change puts the serial of a zone further ahead of the clock, and a former Zone is deleted when the clock has passed
/// its serial.
const OBJECTS: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard1}\n\
spec: {dns: shard1.v3.rhcloud.com, addresses: [{ip: 192.0.2.1}]}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: web}\n---\n\
apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: shop, namespace: web}\nspec: {to: {name: x}}\n---\n\
apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: blog, namespace: web}\nspec: {to: {name: x}}\n";

#[test]
fn another_domain_is_not_taken_for_meant() {
    let data = DataDir::new();
    let ports = Ports::free();
    let whole = ["--data-dir", data.path()];
    let server = Server::start(ports, &[&whole[..], &DOMAIN].concat());
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], OBJECTS);
    let scheduled = eventually("all Routes are scheduled", || {
        let routes: Vec<Promise> = promises(&kubectl).into_values().collect();
        routes.iter().all(|route| route.phase == "scheduled").then_some(routes)
    });
    assert_eq!(scheduled.len(), 2);
    assert!(server.terminate().success());

    // Where the API is in the process, it does not start, and nothing has changed.
    for roles in [&whole[..], &["--data-dir", data.path(), "--roles", "api,admin"]] {
        let mut refused = Server::spawn(ports, &[roles, &OTHER].concat());
        assert_eq!(refused.wait().code(), Some(2), "{}", refused.log());
        let log = refused.log();
        assert!(log.contains("to the platform domain v3.rhcloud.com") && log.contains("--former-domain"), "{log}");
    }
    let api = Server::start(ports, &[&whole[..], &DOMAIN, &["--roles", "api,dns,admin"]].concat());
    let zones = |kubectl: &Kubectl| kubectl.ok(&["get", "zones", "-o", "name"]);
    let before = zones(&kubectl);
    assert!(before.contains("/v3.rhcloud.com") && before.contains("/routes.v3.rhcloud.com"), "{before}");

    // If the process with the API is separate, the process waits, and reports the reason.
    let waits = |roles: &str, kubeconfig: &str| {
        let kubeconfig = data.join(kubeconfig);
        let folder = DataDir::new();
        let arguments = ["--roles", roles, "--kubeconfig", kubeconfig.to_str().expect("UTF-8")];
        let ports = Ports::free();
        let server = Server::spawn(ports, &[&arguments[..], &["--data-dir", folder.path()], &OTHER].concat());
        eventually("/readyz reports the other domain", || {
            let (status, text) = http_get(ports.admin, "/readyz")?;
            (status == 503 && text.contains("to the platform domain v3.rhcloud.com")).then_some(())
        });
        (server, folder)
    };
    let (name_server, _state) = waits("dns,admin", "name-server.kubeconfig");
    let (scheduler, _keys) = waits("scheduler,admin", "scheduler.kubeconfig");
    assert_eq!(dig(name_server.dns, "x.v4.rhcloud.com", "A", &[]).status, "SERVFAIL");
    assert_eq!(zones(&kubectl), before);
    for promise in &scheduled {
        assert!(!dig(api.dns, &promise.system, "A", &[]).data("A").is_empty(), "{promise:?}");
    }
    assert!(name_server.terminate().success() && scheduler.terminate().success() && api.terminate().success());

    // With the flag, the names change, and those of the former domain are gone.
    let former = ["--former-domain", "v3.rhcloud.com"];
    let server = Server::start(ports, &[&whole[..], &OTHER, &former].concat());
    let alias_of = |object: &serde_json::Value| object["status"]["canonicalName"].as_str().map(str::to_owned);
    eventually("every route has its alias below the new domain, and it is live", || {
        let routes = kubectl.json(&["routes.signpost.dev", "-A"]);
        let bound = routes["items"].as_array()?.iter().filter(|route| route["status"]["router"].is_string());
        let (mut count, mut live) = (0, 0);
        for route in bound {
            let conditions = route["status"]["conditions"].as_array()?.iter();
            let mut conditions = conditions.filter(|said| said["type"] == "Resolvable" && said["status"] == "True");
            let is_new = alias_of(route)?.ends_with(".routes.v4.rhcloud.com");
            (count, live) = (count + 1, live + usize::from(is_new && conditions.next().is_some()));
        }
        (count == scheduled.len() && live == count).then_some(())
    });
    for route in kubectl.json(&["routes.signpost.dev", "-A"])["items"].as_array().expect("a list") {
        let Some(alias) = alias_of(route) else { continue };
        assert_eq!(dig(server.dns, &alias, "CNAME", &[]).status, "NOERROR", "{alias}");
        assert!(route["status"]["names"].as_array().is_some_and(|all| all.iter().any(|name| name["name"] == *alias)));
    }
    // These Routers define their zones explicitly, so the zones and their contents stay; this is reported.
    for promise in &scheduled {
        assert!(!dig(server.dns, &promise.system, "A", &[]).data("A").is_empty(), "{promise:?}");
    }
    assert!(server.log().contains("still below the former domain v3.rhcloud.com: shard1"), "{}", server.log());
    eventually("the Router reports it, too", || {
        let ready = kubectl.condition(&["router", "shard1"], "Ready")?;
        ready.message.contains("does not delegate shard1.v3.rhcloud.com").then_some(())
    });
    assert!(!server.log().contains("ERROR"), "{}", server.log());
    assert!(server.terminate().success());

    // One start is enough, even if it ended before the old Zones could go.
    let server = Server::start(ports, &[&whole[..], &OTHER].concat());
    eventually("the ledger is the new domain's", || {
        let zones = zones(&kubectl);
        let is_gone = |name: &str| !zones.lines().any(|zone| zone.ends_with(name));
        (zones.contains("/v4.rhcloud.com") && is_gone("/v3.rhcloud.com") && is_gone("/routes.v3.rhcloud.com"))
            .then_some(())
    });
    assert!(!server.log().contains("ERROR"), "{}", server.log());
}

/// The order after the installation of a package: the first start has the wrong domain, the second the correct one.
#[test]
fn an_empty_platform_takes_another_domain() {
    let data = DataDir::new();
    let ports = Ports::free();
    let whole = ["--data-dir", data.path()];
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let parent = |domain: &str| {
        let mut wanted = [format!("zone.signpost.dev/{domain}"), format!("zone.signpost.dev/routes.{domain}")];
        wanted.sort();
        eventually(&format!("the ledger is that of {domain} alone"), || {
            kubectl.ok(&["get", "zones", "-o", "name"]).lines().eq(wanted.iter()).then_some(())
        });
    };
    for domain in ["apps.example.com", "v3.rhcloud.com", "apps.example.com"] {
        let server = Server::start(ports, &[&whole[..], &["--domain", domain]].concat());
        parent(domain);
        eventually("the zone is served", || (dig(server.dns, domain, "SOA", &[]).status == "NOERROR").then_some(()));
        assert!(server.terminate().success());
    }

    // And where the scheduler is elsewhere: it takes the platform over, a name server waits for that.
    let api = Server::start(ports, &[&whole[..], &["--domain", "apps.example.com", "--roles", "api,admin"]].concat());
    let kubeconfig = |name: &str| data.join(name).to_str().expect("UTF-8").to_owned();
    let (of_scheduler, of_name_server) = (kubeconfig("scheduler.kubeconfig"), kubeconfig("name-server.kubeconfig"));
    let (own, state) = (DataDir::new(), DataDir::new());
    let start = |roles: &str, kubeconfig: &str, data: &DataDir| {
        let arguments = ["--roles", roles, "--kubeconfig", kubeconfig, "--data-dir", data.path()];
        Server::spawn(Ports::free(), &[&arguments[..], &DOMAIN].concat())
    };
    let mut name_server = start("dns,admin", &of_name_server, &state);
    let mut scheduler = start("scheduler,admin", &of_scheduler, &own);
    scheduler.wait_ready();
    name_server.wait_ready();
    parent("v3.rhcloud.com");
    assert_eq!(dig(name_server.dns, "v3.rhcloud.com", "SOA", &[]).status, "NOERROR");
    assert!(name_server.terminate().success() && scheduler.terminate().success() && api.terminate().success());
}

/// There is no default domain, so that a process never starts with a foreign one.
#[test]
fn a_domain_is_required() {
    let data = DataDir::new();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(program());
        command.args(arguments).args(["--data-dir", data.path()]).env_remove("SIGNPOST_DOMAIN");
        command.output().expect("the program runs")
    };
    let example = root().join("examples/rhcloud");
    let with_manifests = ["serve", "--manifests", example.to_str().expect("UTF-8")];
    for arguments in [&["serve"][..], &["check", "config"], &["serve", "--roles", "api"], &with_manifests] {
        let output = run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        for part in ["\"domain\" is not set", "--domain", "signpost init", "signpost serve --demo"] {
            assert!(complaint.contains(part), "{part}: {complaint}");
        }
    }
    assert!(!data.join("store.redb").exists());
}

/// The README's first command, in a directory without any files.
#[test]
fn the_demo_needs_no_files_and_no_domain() {
    let directory = DataDir::new();
    let ports = Ports::free();
    let mut command = Command::new(program());
    // Instances of Routers would stay at fixed addresses of this machine.
    command.args(["serve", "--demo", "--routers-runtime", "off"]).args(ports.arguments());
    command.current_dir(directory.path());
    let mut server = Server::logged(ports, command);
    server.wait_ready();
    // The address is in the zone of the shard.
    eventually("a Route's alias leads to its shard", || {
        (!dig(server.dns, "myapp-test.routes.v3.rhcloud.com", "A", &[]).data("CNAME").is_empty()).then_some(())
    });
    server.logs("cannot be delegated");
    server.logs("dashboard --data-dir signpost-data");
    let kubectl = Kubectl::new(directory.join("signpost-data/kubeconfig"));
    assert_eq!(kubectl.json(&["routes.signpost.dev", "-A"])["items"].as_array().map(Vec::len), Some(12));
    assert!(server.terminate().success());
}
