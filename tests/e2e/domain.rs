//! Another `--domain` on the same objects, by a typing error or a missing flag: nothing is created or deleted, and the error is
//! reported. With `--former-domain`, the change is intended, and the former names are served until an administrator ends that.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use serde_json::{Value, json};

use crate::platform::{Promise, promises};
use signpost_testing::{DataDir, Kubectl, Ports, Server, dig, eventually, http_get, program, root, try_dig_all};

const DOMAIN: [&str; 2] = ["--domain", "v3.rhcloud.com"];
const OTHER: [&str; 2] = ["--domain", "v4.rhcloud.com"];
const FORMER: [&str; 2] = ["--former-domain", "v3.rhcloud.com"];
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
}

/// Queries two name servers of one platform without a pause, until it is stopped. While one restarts, the other one answers: a client
/// must never get a negative or wrong answer from either.
struct Watch {
    stop: Arc<AtomicBool>,
    watching: JoinHandle<Vec<String>>,
}

impl Watch {
    /// Watches that `alias` leads to `target`, and that the serials of the alias zone `zone` and its parent never go backward.
    fn start(servers: [SocketAddr; 2], alias: &str, target: &str, zone: &str) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let (ended, alias, target, zone) = (stop.clone(), alias.to_owned(), format!("{target}."), zone.to_owned());
        let watching = std::thread::spawn(move || {
            let (mut faults, mut serials) = (Vec::new(), BTreeMap::new());
            let parent = zone.split_once('.').expect("it is below the domain").1.to_owned();
            while !ended.load(Ordering::Relaxed) {
                let mut answered = 0;
                for server in servers {
                    let questions = [(alias.as_str(), "CNAME"), (zone.as_str(), "SOA"), (parent.as_str(), "SOA")];
                    let Some(responses) = try_dig_all(server, &questions, &["+tries=1", "+time=10"]) else { continue };
                    // Names that are not loaded yet get SERVFAIL, and a resolver queries the other name server.
                    if responses.iter().any(|response| response.status == "SERVFAIL") {
                        continue;
                    }
                    answered += 1;
                    if responses[0].status != "NOERROR" || responses[0].data("CNAME") != [target.as_str()] {
                        faults.push(format!("{server}: {:?}", responses[0]));
                    }
                    for (name, response) in [(&zone, &responses[1]), (&parent, &responses[2])] {
                        let serial = response.serial();
                        let before = serials.insert((server, name.clone()), serial).flatten();
                        if serial.is_none() || before > serial {
                            faults.push(format!("{server}: the serial of {name} was {before:?}, and is {serial:?}"));
                        }
                    }
                }
                if answered == 0 {
                    faults.push("no name server answered".to_owned());
                }
            }
            faults
        });
        Watch { stop, watching }
    }

    /// Ends the watch, and expects no fault.
    #[track_caller]
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let faults = self.watching.join().expect("the watch does not panic");
        assert!(faults.is_empty(), "{} faults, first {:#?}", faults.len(), &faults[..faults.len().min(5)]);
    }
}

const ALIAS: &str = "web-shop.routes.v3.rhcloud.com";

#[test]
fn a_change_of_the_domain_is_no_outage() {
    let (data, state, zones) = (DataDir::new(), DataDir::new(), DataDir::new());
    // The host's owner has a zone file here, and this server is the resolver, too.
    let owner = "$TTL 1\n@ SOA ns h 1 2 3 4 1\n@ NS ns\nns A 127.0.0.1\nwww CNAME web-site.routes.v3.rhcloud.com.\n";
    std::fs::write(zones.join("shop.test.zone"), owner).expect("written");
    // The base of the former parent zone stays its base.
    let base = "$TTL 300\n@ SOA . admin 1 1 2 3 4\n@ NS ns1\nns1 A 127.0.0.1\nwww TXT kept\n";
    std::fs::write(zones.join("v3.rhcloud.com.zone"), base).expect("written");
    let (ports, other) = (Ports::free(), Ports::free());
    let (resolver, kubeconfig) = (ports.dns.to_string(), data.join("name-server.kubeconfig"));
    let whole = |domain: &[&str]| {
        let arguments = ["--data-dir", data.path(), "--zones", zones.path(), "--host-resolvers", &resolver];
        Server::start(ports, &[&arguments[..], domain].concat())
    };
    let remote = |domain: &[&str]| {
        let kubeconfig = kubeconfig.to_str().expect("UTF-8");
        let arguments =
            ["--roles", "dns,admin", "--kubeconfig", kubeconfig, "--data-dir", state.path(), "--zones", zones.path()];
        Server::start(other, &[&arguments[..], domain].concat())
    };
    let server = whole(&DOMAIN);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let name_server = remote(&DOMAIN);
    let route = |name: &str, spec: &str| {
        let route = format!(
            "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {{name: {name}, namespace: web}}\n\
             spec: {{to: {{name: x}}{spec}}}\n"
        );
        kubectl.ok_with(&["apply", "-f", "-"], &route);
    };
    kubectl.ok_with(&["apply", "-f", "-"], OBJECTS);
    route("site", ", host: www.shop.test");
    let pointing = || kubectl.condition(&["routes.signpost.dev", "-n", "web", "site"], "HostPointsHere");
    eventually("the host points here", || (pointing()?.reason == "PointsHere").then_some(()));
    let both = [server.dns, name_server.dns];
    let leads = |alias: &str, target: &str| {
        for server in both {
            eventually(&format!("{alias} leads to {target} at {server}"), || {
                (dig(server, alias, "CNAME", &[]).data("CNAME") == [format!("{target}.")]).then_some(())
            });
        }
    };
    leads(ALIAS, "web-shop.shard1.v3.rhcloud.com");
    let admins = [ports, other].map(|ports| format!("http://{}", ports.admin));
    let status = || {
        let arguments = ["status", "--interval", "0", "--data-dir", data.path()];
        signpost_testing::program::json(&[&arguments[..], &["--admin", &admins[0], "--admin", &admins[1]]].concat())
    };
    assert_eq!(status()["formerDomains"], Value::Null);

    // The change, one process after the other, with the setting.
    let watch = Watch::start(both, ALIAS, "web-shop.shard1.v3.rhcloud.com", "routes.v3.rhcloud.com");
    assert!(server.terminate().success());
    let mut server = whole(&[&OTHER[..], &FORMER].concat());
    leads_below_the_new_domain(&kubectl, &server);
    assert!(name_server.terminate().success());
    let name_server = remote(&[&OTHER[..], &FORMER].concat());
    leads("web-shop.routes.v4.rhcloud.com", "web-shop.shard1.v3.rhcloud.com");
    server.logs("still below the former domain v3.rhcloud.com: shard1");
    eventually("the Router reports it, too", || {
        let ready = kubectl.condition(&["router", "shard1"], "Ready")?;
        ready.message.contains("is below the former domain v3.rhcloud.com").then_some(())
    });
    // New Routes have an alias below both.
    route("late", "");
    for domain in ["v3", "v4"] {
        leads(&format!("web-late.routes.{domain}.rhcloud.com"), "web-late.shard1.v3.rhcloud.com");
    }
    for server in both {
        assert_eq!(dig(server, "www.v3.rhcloud.com", "TXT", &[]).data("TXT"), ["\"kept\""], "{server}");
        assert!(!dig(server, "ns1.v3.rhcloud.com", "A", &[]).data("A").is_empty(), "the zone above names it");
        eventually(&format!("{server} is up to date and denies a name"), || {
            (dig(server, "nothing.routes.v3.rhcloud.com", "A", &[]).status == "NXDOMAIN").then_some(())
        });
    }
    // The custom host works, and its condition has the new record.
    let asked = eventually("the host is known to point to the former domain", || {
        pointing().filter(|found| found.reason == "PointsToFormerDomain" && found.message.contains(".v4."))
    });
    assert!(asked.message.contains("www.shop.test. IN CNAME web-site.routes.v4.rhcloud.com."), "{}", asked.message);
    let shown = status();
    assert_eq!(shown["domain"], json!("v4.rhcloud.com"));
    assert_eq!(shown["formerDomains"][0]["domain"], json!("v3.rhcloud.com"));
    assert!(shown["formerDomains"][0]["queries"].as_u64().is_some_and(|queries| queries > 0), "{shown}");
    assert_eq!(shown["formerHosts"], json!({"total": 1, "hosts": ["www.shop.test"]}));

    // The flag is needed once: without it, nothing ends.
    assert!(server.terminate().success());
    server = whole(&OTHER);
    leads_below_the_new_domain(&kubectl, &server);
    sleep(Duration::from_secs(2));
    watch.end();
    // A process that was forgotten in the change is refused, also while the Zones of its domain exist.
    let arguments = ["--data-dir", data.path(), "--roles", "api,admin"];
    assert!(server.terminate().success());
    let mut forgotten = Server::spawn(ports, &[&arguments[..], &DOMAIN].concat());
    assert_eq!(forgotten.wait().code(), Some(2), "{}", forgotten.log());
    assert!(forgotten.log().contains("to the platform domain v4.rhcloud.com"), "{}", forgotten.log());
    server = whole(&[&OTHER[..], &FORMER].concat());

    // The end, which the setting that is left does not undo. The file would be a zone of its own again.
    std::fs::remove_file(zones.join("v3.rhcloud.com.zone")).expect("it was written");
    for server in both {
        eventually("the parent zone has no base", || {
            dig(server, "www.v3.rhcloud.com", "TXT", &[]).data("TXT").is_empty().then_some(())
        });
    }
    kubectl.ok(&["patch", "zone", "v4.rhcloud.com", "--type=merge", "-p", r#"{"spec":{"formerDomains":[]}}"#]);
    for server in both {
        eventually(&format!("{server} no longer serves the former domain"), || {
            let is_gone = |name: &str| dig(server, name, "SOA", &[]).status == "REFUSED";
            is_gone(ALIAS).then_some(())
        });
        assert!(!dig(server, "web-shop.shard1.v3.rhcloud.com", "A", &[]).data("A").is_empty(), "the shard stays");
    }
    eventually("the ledger is the new domain's", || {
        let zones = kubectl.ok(&["get", "zones", "-o", "name"]);
        let is_gone = |name: &str| !zones.lines().any(|zone| zone.ends_with(name));
        (zones.contains("/v4.rhcloud.com") && is_gone("/v3.rhcloud.com") && is_gone("/routes.v3.rhcloud.com"))
            .then_some(())
    });
    assert_eq!(status()["formerDomains"], Value::Null);
    for server in [server, name_server] {
        assert!(!server.log().contains("ERROR"), "{}", server.log());
        assert!(server.terminate().success());
    }
}

/// Waits until every bound Route has its alias below the new domain, and it is live.
fn leads_below_the_new_domain(kubectl: &Kubectl, server: &Server) {
    let alias_of = |object: &Value| object["status"]["canonicalName"].as_str().map(str::to_owned);
    eventually("every route has its alias below the new domain, and it is live", || {
        let routes = kubectl.json(&["routes.signpost.dev", "-A"]);
        let routes = routes["items"].as_array()?;
        let is_live = |route: &Value| {
            let conditions = route["status"]["conditions"].as_array();
            conditions
                .is_some_and(|all| all.iter().any(|said| said["type"] == "Resolvable" && said["status"] == "True"))
        };
        let is_new = |route: &Value| alias_of(route).is_some_and(|alias| alias.ends_with(".routes.v4.rhcloud.com"));
        (routes.len() >= 3 && routes.iter().all(|route| is_live(route) && is_new(route))).then_some(())
    });
    for route in kubectl.json(&["routes.signpost.dev", "-A"])["items"].as_array().expect("a list") {
        let Some(alias) = alias_of(route) else { continue };
        assert_eq!(dig(server.dns, &alias, "CNAME", &[]).status, "NOERROR", "{alias}");
        assert!(route["status"]["names"].as_array().is_some_and(|all| all.iter().any(|name| name["name"] == *alias)));
    }
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
