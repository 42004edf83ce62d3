//! A damaged store: the affected objects are reported and isolated, their names are never denied, and each can be restored or
//! dropped separately.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use signpost_testing::program::command;
use signpost_testing::{DataDir, Kubectl, Ports, Server, dig, eventually, http_get, try_dig};

const DOMAIN: [&str; 2] = ["--domain", "v3.rhcloud.com"];
const OBJECTS: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard1}\n\
spec: {addresses: [{ip: 192.0.2.1}]}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: web}\n---\n\
apiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n---\n\
apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: hit, namespace: web}\nspec: {to: {name: x}}\n---\n\
apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: whole, namespace: web}\nspec: {to: {name: x}}\n---\n\
apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: far, namespace: other}\nspec: {to: {name: x}}\n";
const KEY: &str = "/signpost.dev/routebindings/web/hit";
const HIT: &str = "web-hit.routes.v3.rhcloud.com";
const WHOLE: &str = "web-whole.routes.v3.rhcloud.com";
const NONE: &str = "missing.routes.v3.rhcloud.com";

fn signpost(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Flips a bit of every copy of `part` in the store.
fn damage(data: &DataDir, part: &str) {
    let file = data.join("store.redb");
    let mut octets = std::fs::read(&file).expect("the store is there");
    let places: Vec<usize> = octets
        .windows(part.len())
        .enumerate()
        .filter(|(_, found)| *found == part.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty(), "{part} is not in the store");
    places.iter().for_each(|at| octets[at + part.len() - 2] ^= 1);
    std::fs::write(file, octets).expect("the store can be written");
}

fn is_answered(server: &Server, name: &str) -> Option<()> {
    (!try_dig(server.dns, name, "A", &[])?.answer.is_empty()).then_some(())
}

fn rcode(server: &Server, name: &str) -> String {
    dig(server.dns, name, "A", &[]).status
}

fn backup(data: &DataDir, file: &Path) -> Output {
    signpost(&["backup", file.to_str().expect("UTF-8"), "--data-dir", data.path()])
}

#[test]
fn a_damaged_binding_denies_no_name_and_is_restored() {
    let data = DataDir::new();
    let file = data.join("before");
    let ports = Ports::free();
    let arguments = [&["--data-dir", data.path()][..], &DOMAIN].concat();
    let server = Server::start(ports, &arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], OBJECTS);
    for name in [HIT, WHOLE] {
        eventually(name, || is_answered(&server, name));
    }
    assert!(server.terminate().success());
    let made = backup(&data, &file);
    assert!(made.status.success(), "{}", text(&made));
    damage(&data, "\"routeName\":\"hit\"");

    // Without a last-known-good state, nothing is known of the binding.
    std::fs::remove_dir_all(data.join("state")).expect("the state is there");
    let server = Server::start(ports, &arguments);
    eventually("the others are answered", || is_answered(&server, WHOLE));
    assert_eq!([HIT, NONE].map(|name| rcode(&server, name)), ["SERVFAIL", "SERVFAIL"]);
    let (code, ready) = http_get(server.admin, "/readyz").expect("it answers");
    assert!(code == 200 && ready.contains("[!] api/stored values: 1 damaged") && ready.contains(KEY), "{ready}");
    let (_, metrics) = http_get(server.admin, "/metrics").expect("it answers");
    assert!(metrics.contains("signpost_store_damaged_values 1"));
    let status = signpost(&["status", "--data-dir", data.path(), "--admin", &format!("http://{}", server.admin)]);
    assert!(text(&status).contains(KEY), "{}", text(&status));
    let log = server.log();
    let named = log.lines().filter(|line| line.contains("a stored value is damaged") && line.contains(KEY)).count();
    assert_eq!(named, 1, "{log}");

    // Clients that list or watch the collection get all others, and a placeholder of this one.
    for arguments in [
        &["get", "routebindings", "-n", "web", "-o", "name"][..],
        &["get", "routebindings", "-A", "-o", "json"],
        &["get", "routebindings", "-A", "-o", "jsonpath={.items[*].metadata.name}"],
        &["get", "routebindings", "-A", "-l", "some=label", "-o", "json"],
    ] {
        let listed = text(&kubectl.run(arguments));
        let is_whole = listed.contains("whole") || arguments.contains(&"-l");
        assert!(
            listed.contains("hit") && listed.contains("Warning: the stored value of web/hit") && is_whole,
            "{listed}"
        );
    }
    let placeholder = &kubectl.json(&["routebindings", "-n", "web"])["items"][0];
    assert_eq!(
        (&placeholder["metadata"]["annotations"]["signpost.dev/damaged"], &placeholder["spec"]),
        (&"true".into(), &Value::Null)
    );
    let watched =
        kubectl.run(&["get", "--raw", "/apis/signpost.dev/v1alpha1/routebindings?watch=true&timeoutSeconds=1"]);
    assert!(
        ["far", "hit", "whole"].iter().all(|name| text(&watched).contains(&format!("\"name\":\"{name}\""))),
        "{}",
        text(&watched)
    );
    let error = kubectl.refused(&["get", "routebinding", "hit", "-n", "web", "-o", "yaml"], "");
    assert!(error.contains(KEY), "{error}");
    kubectl.ok(&["get", "routebindings", "-n", "other", "-o", "json"]);
    kubectl.ok(&["get", "routebinding", "whole", "-n", "web", "-o", "json"]);
    kubectl.ok(&["get", "routes", "-A", "-o", "json"]);
    let table = kubectl.run(&["get", "routebindings", "-n", "web"]);
    assert!(
        table.status.success() && text(&table).contains("hit") && text(&table).contains("Warning"),
        "{}",
        text(&table)
    );
    // A new Route is bound and answered as usual.
    let new = "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: new, namespace: web}\nspec: {to: {name: x}}\n";
    kubectl.ok_with(&["apply", "-f", "-"], new);
    eventually("the new route is answered", || is_answered(&server, "web-new.routes.v3.rhcloud.com"));
    // An unreadable value is never overwritten.
    let error = kubectl.refused(&["label", "routebinding", "hit", "-n", "web", "a=b"], "");
    assert!(error.contains("damaged"), "{error}");
    let error = kubectl.refused(&["delete", "routebinding", "hit", "-n", "web"], "");
    assert!(error.contains("ignoreStoreReadErrorWithClusterBreakingPotential"), "{error}");

    assert!(server.terminate().success());
    let partial = data.join("after");
    let made = backup(&data, &partial);
    assert!(made.status.code() == Some(1) && text(&made).contains(KEY), "{}", text(&made));
    let store = ["check", "store", "--data-dir", data.path()];
    let found = signpost(&store);
    assert!(found.status.code() == Some(1) && text(&found).contains(&format!("--restore {KEY}")), "{}", text(&found));
    let from =
        |file: &Path| [&store[..], &["--restore", KEY, "--from", file.to_str().expect("UTF-8")]].concat().join("\0");
    let mend = |file: &Path| signpost(&from(file).split('\0').collect::<Vec<_>>());
    assert_eq!(mend(&partial).status.code(), Some(1), "the later backup does not hold it");
    let mended = mend(&file);
    assert!(mended.status.success(), "{}", text(&mended));
    let found = signpost(&store);
    assert!(found.status.success() && text(&found).contains("0 values"), "{}", text(&found));

    let server = Server::start(ports, &arguments);
    eventually("the name is back", || is_answered(&server, HIT));
    eventually("all names are known", || (rcode(&server, NONE) == "NXDOMAIN").then_some(()));
    assert!(server.terminate().success());
}

#[test]
fn an_administrator_drops_a_damaged_object_and_name_servers_keep_what_they_know() {
    let (data, state) = (DataDir::new(), DataDir::new());
    let name_server = ["--nameserver", "ns1.v3.rhcloud.com=192.0.2.53"];
    let arguments = ["--roles", "api,scheduler,admin", "--data-dir", data.path()];
    let (api_ports, ports) = (Ports::free(), Ports::free());
    let arguments = [&arguments[..], &DOMAIN, &name_server].concat();
    let api = Server::start(api_ports, &arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], OBJECTS);
    let kubeconfig = data.join("name-server.kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let dns = ["--roles", "dns,admin", "--data-dir", state.path(), "--kubeconfig", kubeconfig];
    let dns = [&dns[..], &DOMAIN, &name_server].concat();
    let server = Server::start(ports, &dns);
    for name in [HIT, WHOLE] {
        eventually(name, || is_answered(&server, name));
    }
    assert!(server.terminate().success());
    assert!(api.terminate().success());
    damage(&data, "\"routeName\":\"hit\"");

    // It has a last-known-good state: the binding is unchanged, before and after it has reached the API.
    let api = Server::start(api_ports, &arguments);
    let server = Server::start(ports, &dns);
    eventually("all is listed", || server.log().contains("keeping its last good value").then_some(()));
    for _ in 0..20 {
        assert_eq!([HIT, WHOLE].map(|name| is_answered(&server, name)), [Some(()), Some(())]);
    }
    eventually("all names are known", || (rcode(&server, NONE) == "NXDOMAIN").then_some(()));

    // What newer versions of kubectl have a flag for.
    let path = "/apis/signpost.dev/v1alpha1/namespaces/web/routebindings/hit";
    let path = format!("{path}?ignoreStoreReadErrorWithClusterBreakingPotential=true");
    assert!(kubectl.ok(&["delete", "--raw", &path]).contains("Success"));
    let gone = kubectl.refused(&["get", "routebinding", "hit", "-n", "web"], "");
    assert!(gone.contains("NotFound"), "{gone}");
    kubectl.ok(&["get", "routebindings", "-A", "-o", "json"]);
    assert!(server.terminate().success());
    assert!(api.terminate().success());
}

#[test]
fn a_broken_file_and_an_empty_one_end_the_start_with_what_to_do() {
    let data = DataDir::new();
    let ports = Ports::free();
    let arguments = [&["--data-dir", data.path()][..], &DOMAIN].concat();
    let server = Server::start(ports, &arguments);
    assert!(server.terminate().success());
    let file = data.join("store.redb");
    let whole = std::fs::read(&file).expect("the store is there");
    // Pages of the tree that the newest state begins with.
    let mut broken = whole.clone();
    broken.iter_mut().skip(4096).for_each(|octet| *octet = octet.wrapping_mul(3));
    for (octets, expected) in
        [(broken, "\"check store\""), (Vec::new(), "is empty"), (whole[..9_000].to_vec(), "restore")]
    {
        std::fs::write(&file, &octets).expect("the store can be written");
        let mut server = Server::spawn(ports, &arguments);
        let status = server.wait();
        let log = server.log();
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.contains("store.redb") && log.contains(expected) && log.contains("\"restore\""), "{log}");
        // The command that the log names does not name itself, and changes nothing.
        let checked = command(&["check", "store", "--data-dir", data.path()]).output().expect("the command starts");
        let printed = String::from_utf8_lossy(&checked.stderr);
        assert!(printed.contains("store.redb") && printed.contains("restore"), "{printed}");
        assert!(!checked.status.success() && !printed.contains("\"check store\""), "{printed}");
        assert_eq!(std::fs::read(&file).expect("the store is there"), octets);
    }
    std::fs::write(&file, whole).expect("the store can be written");
    assert!(Server::start(ports, &arguments).terminate().success());
}
