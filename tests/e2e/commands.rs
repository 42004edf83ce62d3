//! The commands that show a platform, run by an operator and a tenant: `status`, `topology`, `dig`, `zone`, their errors
//! when nothing responds, and the `kubectl` equivalents of removed commands.

use std::path::Path;

use serde_json::Value;

use crate::platform::{Promise, apply_example};
use crate::{export, operator};
use signpost_testing::peers::Peer;
use signpost_testing::program::{Ran, bare, command, json, ok, run};
use signpost_testing::{DataDir, Kubectl, Ports, Process, Server, dig, eventually, free_address, http_get, program};

/// A server with the example on it.
pub struct Example {
    pub data: DataDir,
    pub server: Server,
    kubectl: Kubectl,
    /// The Routes with a Router.
    pub scheduled: Vec<Promise>,
    admin: String,
    dns: String,
}

impl Example {
    fn start() -> Example {
        let data = DataDir::new();
        let server = Server::start(Ports::free(), &["--data-dir", data.path(), "--domain", "v3.rhcloud.com"]);
        let kubectl = Kubectl::new(data.join("kubeconfig"));
        let (scheduled, _) = apply_example(&kubectl);
        let (admin, dns) = (format!("http://{}", server.admin), server.dns.to_string());
        Example { data, server, kubectl, scheduled, admin, dns }
    }
}

/// Journeys that leave the objects unchanged share a platform.
#[test]
fn an_operator_and_tenants_look_at_the_example() {
    let example = Example::start();
    an_operator_looks_at_the_example(&example);
    a_tenant_sees_its_own(&example);
    operator::a_tenant_digs_and_sees_its_topology(&example);
    export::knot_and_nsd_load_the_export_and_answer_the_same(&example);
    export::the_file_of_a_shard_comes_before_its_router(&example);
    assert!(example.server.terminate().success());
}

fn an_operator_looks_at_the_example(example: &Example) {
    let Example { data, server, kubectl, admin, dns, .. } = example;
    let at = ["--data-dir", data.path()];
    let of = |arguments: &[&'static str]| -> Vec<String> {
        arguments.iter().chain(&at).map(|argument| (*argument).to_owned()).collect()
    };
    let text_of = |arguments: &[&'static str]| ok(&of(arguments).iter().map(String::as_str).collect::<Vec<_>>());
    let json_of = |arguments: &[&'static str]| json(&of(arguments).iter().map(String::as_str).collect::<Vec<_>>());

    let status = eventually("all zones are served, and all is well", || {
        let ran = run(&["status", "--admin", admin, "--interval", "0.2", "-o", "json", "--data-dir", data.path()]);
        let status: Value = serde_json::from_str(&ran.out).ok()?;
        (status["processes"][0]["zones"] == 5 && status["healthy"] == true).then_some(status)
    });
    assert_eq!((&status["healthy"], &status["domain"]), (&Value::Bool(true), &Value::from("v3.rhcloud.com")));
    assert_eq!(status["routes"]["pending"], 1);
    assert_eq!(status["routers"]["active"], 3);
    let process = &status["processes"][0];
    assert_eq!((&process["leading"], &process["zones"]), (&Value::Bool(true), &Value::from(5)));
    assert!(
        status["warnings"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|warning| { warning.as_str().is_some_and(|text| text.contains("foo-bar/vault")) })
    );
    let screen = ok(&["status", "--admin", admin, "--interval", "0", "--data-dir", data.path()]);
    assert!(screen.contains("api, scheduler (leading), dns") && !screen.contains('\x1b'), "{screen}");
    // A process that does not respond is a failure.
    let nobody = format!("http://{}", free_address());
    let broken = run(&["status", "--admin", admin, "--admin", &nobody, "--interval", "0", "--data-dir", data.path()]);
    assert_eq!(broken.code, Some(1));
    assert!(broken.out.contains(&format!("{nobody} does not answer")), "{}", broken.out);

    let topology = text_of(&["topology"]);
    for part in ["pending", "10.245.2.2, 10.245.2.3\n"] {
        assert!(topology.contains(part), "{part:?} is not in\n{topology}");
    }
    let filtered = text_of(&["topology", "--filter", "VAULT"]);
    assert!(filtered.contains("vault") && !filtered.contains("myapp"), "{filtered}");
    let topology = json_of(&["topology"]);
    assert_eq!(topology["routes"], 12);
    let namespaces = topology["namespaces"].as_array().expect("a list");
    assert!(namespaces.iter().any(|namespace| namespace["name"] == "myapp" && namespace["routes"] == 6), "{topology}");

    // What kubectl shows: names, Routers, load, and why something is not as it should be.
    let routes = kubectl.ok(&["get", "routes", "-A", "-o", "wide"]);
    assert_eq!(routes.lines().count(), 13, "{routes}");
    let line = |text: &str, name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    assert!(line(&routes, " vault ").contains("Unschedulable"), "{routes}");
    assert!(line(&routes, "myapp-test.routes.v3.rhcloud.com").contains("service/"), "{routes}");
    let routers = kubectl.ok(&["get", "routers", "-o", "wide"]);
    assert!(routers.lines().count() == 4 && line(&routers, "shard3.v3.rhcloud.com").contains("active"), "{routers}");
    kubectl.ok(&["wait", "-n", "myapp", "route/test", "--for=condition=Resolvable", "--timeout=180s"]);
    kubectl.ok(&["wait", "router/shard1", "--for=condition=Ready", "--timeout=180s"]);
    eventually("an event has the reason", || {
        kubectl.ok(&["events", "-n", "foo-bar", "--for", "route/vault"]).contains("FailedScheduling").then_some(())
    });

    // The answer, and why.
    let answer = || json(&["dig", &format!("@{dns}"), "myapp-test.routes.v3.rhcloud.com", "--data-dir", data.path()]);
    let answer = eventually("the alias is served according to the objects", || {
        let answer = answer();
        answer["why"]["differences"].as_array().is_some_and(Vec::is_empty).then_some(answer)
    });
    assert_eq!((&answer["status"], &answer["answer"][0]["type"]), (&"NOERROR".into(), &"CNAME".into()));
    let steps = answer["why"]["steps"].as_array().expect("a list");
    assert_eq!((&steps[0]["routes"][0]["route"], &steps[0]["zone"]["kind"]), (&"myapp/test".into(), &"alias".into()));
    assert_eq!((&steps[1]["wildcard"], &steps[1]["zone"]["kind"]), (&Value::Bool(true), &"shard".into()));
    let page = ok(&["dig", &format!("@{dns}"), "nothing.v3.rhcloud.com", "TXT", "+tcp", "--data-dir", data.path()]);
    assert!(
        page.contains("NXDOMAIN") && page.contains("(tcp, ") && page.contains("no Router, setting, or zone file"),
        "{page}"
    );
    let refused = ok(&["dig", &format!("@{dns}"), "www.example.com", "--answer-only"]);
    assert!(
        refused.contains("REFUSED") && refused.contains("20 Not Authoritative") && !refused.contains("why"),
        "{refused}"
    );

    // Queries are counted between two samples, here by the test.
    let counted = std::thread::spawn({
        let (folder, admin) = (data.path().to_owned(), admin.to_string());
        move || json(&["status", "--admin", &admin, "--interval", "3", "--data-dir", &folder])
    });
    eventually("status has ended", || {
        dig(server.dns, "anything.shard1.v3.rhcloud.com", "A", &[]);
        counted.is_finished().then_some(())
    });
    let counted = counted.join().expect("no panic");
    let rates = &counted["processes"][0]["rates"];
    assert!(rates["queries"].as_f64().is_some_and(|rate| rate > 0.0), "{counted}");
    assert!(rates["zones"]["shard1.v3.rhcloud.com."].as_f64().is_some_and(|rate| rate > 0.0), "{counted}");
}

fn a_tenant_sees_its_own(example: &Example) {
    let data = &example.data;
    let tina = data.join("tina.kubeconfig");
    let tina = tina.to_str().expect("UTF-8");
    ok(&[
        "user",
        "add",
        "tina",
        "--role",
        "tenant",
        "--namespace",
        "foo",
        "--no-credential",
        "--data-dir",
        data.path(),
    ]);
    ok(&["kubeconfig", "--user", "tina", "--out", tina, "--data-dir", data.path()]);
    let routes = eventually("the server knows the new user", || {
        let ran = run(&["topology", "-n", "foo", "--kubeconfig", tina, "-o", "json"]);
        (ran.code == Some(0)).then_some(ran.out)
    });
    let routes: Value = serde_json::from_str(&routes).expect("JSON");
    assert_eq!((&routes["routes"], &routes["namespaces"][0]["name"]), (&2.into(), &"foo".into()));
    assert_eq!(run(&["topology", "-n", "myapp", "--kubeconfig", tina]).code, Some(1));
    // The kubeconfig that users already have.
    let mut command = command(&["explain", "route", "cache"]);
    let ran = Ran::of(command.env("KUBECONFIG", tina));
    assert!(ran.code == Some(0) && ran.out.contains("foo-cache."), "{}{}", ran.out, ran.err);
    let unknown = run(&["topology", "--kubeconfig", tina, "--context", "unlisted"]);
    assert!(unknown.code == Some(1) && unknown.err.contains("unlisted"), "{}", unknown.err);
    let secret = run(&["backup", data.join("b").to_str().expect("UTF-8"), "--kubeconfig", tina]);
    assert!(secret.code == Some(1) && secret.err.contains("forbidden"), "{}", secret.err);
    assert!(!data.join("b").exists() && !data.join("b.new").exists());
}

#[test]
fn a_command_of_kubectl_names_the_one_to_run() {
    for (arguments, instead) in [
        (&["routes", "-A", "--state", "waiting"][..], "kubectl get rt"),
        (&["routers"], "kubectl get routers"),
        (&["events", "--for", "route/x"], "kubectl events --for route.signpost.dev/NAME"),
        (&["wait", "route", "x"], "kubectl wait --for=condition=Resolvable rt/NAME"),
        (&["help", "wait"], "kubectl wait --for=condition=Resolvable rt/NAME"),
    ] {
        let ran = run(arguments);
        let expected = format!("not a command of signpost; run \"{instead}\"");
        assert!(ran.code == Some(2) && ran.err.contains(&expected), "{arguments:?}: {:?} {}", ran.code, ran.err);
        assert!(ran.out.is_empty(), "{}", ran.out);
    }
}

#[test]
fn zones_are_listed_shown_and_asked_for() {
    let Example { data, server, kubectl, dns, .. } = Example::start();
    let at = ["--data-dir", data.path(), "--domain", "v3.rhcloud.com", "--dns-listen", &dns];
    let zone = |arguments: &[&str]| run(&[&["zone"], arguments, &at].concat());
    let list: Value = serde_json::from_str(&zone(&["list", "-o", "json"]).out).expect("JSON");
    let kinds: Vec<&str> = list.as_array().expect("a list").iter().filter_map(|zone| zone["kind"].as_str()).collect();
    assert_eq!(kinds, ["parent", "alias", "shard", "shard", "shard"]);

    // The zones match the objects once the serial allocator and the name server have settled.
    eventually("the name server is in step", || (zone(&["status"]).code == Some(0)).then_some(()));
    let nobody = free_address().to_string();
    let status = zone(&["status", "shard1.v3.rhcloud.com", "--server", &dns, "--server", &nobody]);
    assert_eq!(status.code, Some(1));
    assert!(status.out.contains("differs") && status.out.contains(&nobody), "{}", status.out);

    // A peer that serves an older copy is behind.
    let folder = DataDir::new();
    let file = folder.join("shard1.v3.rhcloud.com.zone");
    let path = file.to_str().expect("UTF-8");
    let shown = zone(&["show", "shard1.v3.rhcloud.com"]);
    std::fs::write(&file, &shown.out).expect("written");
    let peer_address = free_address();
    let (listen, zones) = (peer_address, Path::new(folder.path()));
    let _peer = Peer { listen, folder: zones, zones, apexes: &["shard1.v3.rhcloud.com"], more: "" }.nsd();
    let peer = peer_address.to_string();
    let both = ["status", "shard1.v3.rhcloud.com", "--server", &dns, "--server", &peer];
    eventually("the peer is in step", || (zone(&both).code == Some(0)).then_some(()));
    kubectl.ok(&["patch", "router", "shard1", "--type=merge", "-p", r#"{"spec":{"addresses":[{"ip":"10.245.2.3"}]}}"#]);
    let differs = eventually("the peer is behind", || {
        let ran = zone(&both);
        // Until the name server has published the change, both are behind.
        let is_one = ran.out.contains("behind by") && !ran.out.contains(&format!("{dns}: "));
        (ran.code == Some(1) && is_one).then_some(ran.out)
    });
    assert!(differs.contains(&peer), "{differs}");

    assert_eq!(zone(&["show", "absent.example"]).code, Some(1));
    assert_eq!(zone(&["status", "absent.example"]).code, Some(1));

    // Files alone need no API.
    let alone = ok(&["zone", "list", "--zones", folder.path()]);
    assert!(alone.contains("file") && alone.contains(path), "{alone}");
    drop(server);
}

#[test]
fn a_list_is_sorted_named_and_watched() {
    let folder = DataDir::new();
    let add = |name: &str, more: &str| {
        let records = format!("$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n{more}");
        std::fs::write(folder.join(&format!("{name}.zone")), records).expect("written");
    };
    add("a.example", "x A 192.0.2.2\n");
    add("b.example", "");
    let list = |arguments: &[&str]| ok(&[&["zone", "list", "--zones", folder.path()], arguments].concat());
    assert_eq!(list(&["-o", "name"]), "a.example.\nb.example.\n");
    assert_eq!(list(&["-o", "name", "--sort-by", "records"]), "b.example.\na.example.\n");
    let wide = list(&["-o", "wide"]);
    assert!(wide.contains("NAME SERVERS") && wide.contains("ns.a.example."), "{wide}");

    let watch = Process::logged(&mut command(&["zone", "list", "--zones", folder.path(), "-o", "name", "--watch"]));
    watch.logs("b.example.");
    add("c.example", "");
    watch.logs("c.example.");
}

#[test]
fn colours_are_for_terminals() {
    let folder = DataDir::new();
    std::fs::write(folder.join("a.example.zone"), "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n")
        .expect("written");
    let arguments = ["zone", "list", "--zones", folder.path()];
    assert!(!ok(&arguments).contains('\x1b'));
    // A terminal, as `script` and others make one.
    let in_terminal = |environment: &[(&str, &str)]| {
        let words = [&[program()][..], &arguments].concat();
        let code = format!("import pty, sys; sys.exit(pty.spawn({words:?}) >> 8)");
        let mut command = bare("python3", &["-c", &code]);
        let ran = Ran::of(command.envs(environment.iter().copied()).env("TERM", "xterm"));
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
        ran.out
    };
    assert!(in_terminal(&[]).contains("\x1b[1mZONE"));
    assert!(!in_terminal(&[("NO_COLOR", "1")]).contains('\x1b'));
}

#[test]
fn manual_pages_are_pages() {
    let folder = DataDir::new();
    let written = ok(&["man", "--dir", folder.path()]);
    assert!(written.lines().count() > 20 && written.lines().all(|line| Path::new(line).is_file()), "{written}");
    assert!(ok(&["man"]).contains(".TH signpost 1"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(ok(&["completion", shell]).contains("topology"), "{shell}");
    }
}

#[test]
fn a_backup_is_taken_running_and_stopped_and_restored() {
    let Example { data, server, kubectl, admin, .. } = Example::start();
    let before = kubectl.json(&["routes.signpost.dev", "-A"]);
    let (online, offline) = (data.join("online"), data.join("offline"));
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let made = json(&["backup", &path(&online), "--data-dir", data.path()]);
    assert!(made["objects"].as_u64().is_some_and(|objects| objects > 40), "{made}");
    assert!(http_get(server.admin, "/livez").is_some(), "{admin} still runs");
    assert!(server.terminate().success());
    let made = json(&["backup", &path(&offline), "--data-dir", data.path()]);
    assert!(made["revision"].as_u64() > Some(1), "{made}");
    let checked = json(&["backup", "--check", &path(&online)]);
    assert!(checked["revision"].as_u64() <= made["revision"].as_u64(), "{checked}");
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(std::fs::metadata(&online).expect("is there").permissions().mode() & 0o777, 0o600);

    // A damaged one is rejected, and leaves nothing.
    let new = DataDir::new();
    let mut damaged = std::fs::read(&online).expect("is there");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let bad = data.join("bad");
    std::fs::write(&bad, damaged).expect("written");
    let refused = run(&["restore", &path(&bad), "--data-dir", new.path()]);
    assert!(refused.code == Some(1) && refused.err.contains("incomplete or damaged backup"), "{}", refused.err);
    assert_eq!(run(&["backup", "--check", &path(&bad)]).code, Some(1));
    assert!(!new.join("store.redb").exists());
    // So is one over a store that is there.
    let refused = run(&["restore", &path(&offline), "--data-dir", data.path()]);
    assert!(refused.code == Some(1) && refused.err.contains("already"), "{}", refused.err);

    let restored = json(&["restore", &path(&online), "--data-dir", new.path()]);
    assert!(restored["firstRevision"].as_u64() > Some(1_000_000_000), "{restored}");
    let server = Server::start(Ports::free(), &["--data-dir", new.path(), "--domain", "v3.rhcloud.com"]);
    let kubectl = Kubectl::new(new.join("kubeconfig"));
    let after = kubectl.json(&["routes.signpost.dev", "-A"]);
    let names = |list: &Value| -> Vec<(Value, Value, Value)> {
        let routes = list["items"].as_array().expect("a list").iter();
        routes
            .map(|route| {
                (route["metadata"]["uid"].clone(), route["status"]["dns"].clone(), route["status"]["router"].clone())
            })
            .collect()
    };
    assert_eq!(names(&before), names(&after));
    assert_eq!(names(&before).len(), 12);
    assert!(server.terminate().success());
}
