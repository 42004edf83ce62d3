//! The API loses its objects, for example by a restore of the wrong backup: DNS keeps answering, and an operator sees the held
//! objects and decides.

use std::net::{SocketAddr, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::operator::on_terminal;
use crate::platform::apply_example;
use signpost_testing::program::run;
use signpost_testing::{DataDir, Kubectl, Ports, Scrape, Server, dig, eventually};

const DOMAIN: [&str; 2] = ["--domain", "v3.rhcloud.com"];

const EXTRA: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: extra}\n\
spec: {state: cordoned, addresses: [{ip: 192.0.2.1}]}\n";

/// `signpost hold` with a kubeconfig: whether it worked, and what it printed on both outputs.
fn deletion_hold(kubeconfig: &str, arguments: &[&str]) -> (bool, String) {
    let ran = run(&[&["hold"], arguments, &["--kubeconfig", kubeconfig]].concat());
    (ran.code == Some(0), ran.out + &ran.err)
}

/// Returns the holds as `signpost hold list -o json` prints them, once there are `count` holds of `holders` name servers each.
fn holds(kubeconfig: &str, count: usize, holders: usize) -> Vec<Value> {
    eventually("the holds are listed", || {
        let (true, printed) = deletion_hold(kubeconfig, &["list", "-o", "json"]) else { return None };
        let list: Vec<Value> = serde_json::from_str(&printed).expect("JSON");
        let all_hold = list.iter().all(|hold| hold["holders"].as_array().is_some_and(|all| all.len() == holders));
        (list.len() == count && all_hold).then_some(list)
    })
}

#[test]
fn an_emptied_api_is_not_believed_until_someone_says_so() {
    let data = DataDir::new();
    let api_ports = Ports::free();
    let api_arguments = [&["--roles", "api,scheduler,admin", "--data-dir", data.path()][..], &DOMAIN].concat();
    let api = Server::start(api_ports, &api_arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let (scheduled, _) = apply_example(&kubectl);
    let kubeconfig = data.join("name-server.kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let admin = data.join("kubeconfig");
    let admin = admin.to_str().expect("UTF-8");
    let states = [DataDir::new(), DataDir::new()];
    let start = |state: &DataDir| {
        let arguments = ["--roles", "dns,admin", "--kubeconfig", kubeconfig, "--data-dir", state.path()];
        Server::start(Ports::free(), &[&arguments[..], &DOMAIN].concat())
    };
    let servers = states.each_ref().map(start);
    let addresses = |server: &Server, name: &str| dig(server.dns, name, "A", &[]).sorted("A").len();
    let held = |server: &Server| {
        let scrape = Scrape::of(server.admin);
        ["signpost_deletion_hold_objects", "signpost_deletion_hold_pending"].map(|name| scrape.sum(name, &[]))
    };
    let system = scheduled[0].system.as_str();
    for server in &servers {
        eventually("the aliases are served", || (addresses(server, system) > 0).then_some(()));
        assert_eq!(held(server), [0.0, 0.0]);
    }
    let (_, printed) = deletion_hold(admin, &["list"]);
    assert_eq!(printed, "no holds\n");

    // One object that a user deletes disappears immediately.
    kubectl.ok_with(&["apply", "-f", "-"], EXTRA);
    let extra = "x.extra.v3.rhcloud.com";
    for server in &servers {
        eventually("a further shard is served", || (addresses(server, extra) == 1).then_some(()));
    }
    kubectl.ok(&["delete", "router", "extra"]);
    for server in &servers {
        eventually("what was deleted is gone", || (addresses(server, extra) == 0).then_some(()));
        assert_eq!(held(server), [0.0, 0.0]);
    }

    // The store is replaced by an empty one.
    assert!(api.terminate().success());
    // The identity is deleted as well: otherwise, the process refuses to start.
    for file in ["store.redb", "store-identity"] {
        std::fs::remove_file(data.join(file)).expect("the store is there");
    }
    let api = Server::start(api_ports, &api_arguments);
    let list = holds(admin, 2, 2);
    for server in &servers {
        for promise in &scheduled {
            assert!(addresses(server, &promise.system) > 0, "{promise:?}");
            assert_eq!(dig(server.dns, &promise.alias, "CNAME", &[]).data("CNAME").len(), 1, "{promise:?}");
        }
        let [objects, undecided] = held(server);
        assert!(objects >= 2.0 && undecided == 2.0, "{objects} {undecided}");
        eventually("the log has the held deletions and the next step", || {
            let log = server.log();
            (log.contains("signpost hold approve routers-") && log.contains("shard1")).then_some(())
        });
    }
    let of = |kind: &str| {
        let hold = list.iter().find(|hold| hold["type"] == kind).unwrap_or_else(|| panic!("no {kind}: {list:?}"));
        hold["id"].as_str().expect("an ID").to_owned()
    };
    let (routers, bindings) = (of("Router"), of("RouteBinding"));
    let table = kubectl.ok(&["get", "deletionholds"]);
    assert!(table.contains(&routers) && table.contains("list"), "{table}");
    kubectl.ok(&["wait", &format!("deletionhold/{routers}"), "--for=condition=Held", "--timeout=180s"]);

    // A name server reports and does not decide. It cannot change the description of a hold either.
    let watcher = Kubectl::new(kubeconfig.into());
    let approval = r#"{"spec":{"decision":"approve"}}"#;
    watcher.refused(&["patch", "deletionhold", &routers, "--type=merge", "-p", approval], "");
    kubectl.refused(&["patch", "deletionhold", &routers, "--type=merge", "-p", r#"{"spec":{"objects":1}}"#], "");
    assert!(!deletion_hold(kubeconfig, &["approve", &routers]).0);
    assert!(!deletion_hold(admin, &["approve", "routers-0000000000000000"]).0);

    // A rejection keeps everything unchanged and silences the alarm; a restart of the API and of a name server does not change
    // that.
    let (done, printed) = deletion_hold(admin, &["reject", &routers]);
    assert!(done && printed.contains("rejected"), "{printed}");
    for server in &servers {
        eventually("the alarm is quiet", || (held(server)[1] == 1.0).then_some(()));
        assert!(addresses(server, system) > 0);
    }
    let [one, two] = servers;
    assert!(one.terminate().success());
    let one = start(&states[0]);
    eventually("the rejection counts after a restart", || (held(&one)[0] >= 2.0 && held(&one)[1] == 1.0).then_some(()));

    // With an approval the names go, on both name servers, and with them the hold.
    let (done, printed) = deletion_hold(admin, &["approve", &bindings, "--dry-run"]);
    assert!(done && printed.contains("nothing was decided"), "{printed}");
    // On a terminal, the command requires confirmation, unless an option disables it.
    let approve = |hold: &str, more: &[&str], typed: &str| {
        let arguments = [&["hold", "approve", hold, "--kubeconfig", admin][..], more].concat();
        on_terminal(200, typed, &arguments)
    };
    for typed in ["n\n", "\n", "\u{4}"] {
        let Some((code, said)) = approve(&bindings, &[], typed) else { break };
        let is_asked = said.contains("RouteBindings would no longer be served") && said.contains("Approve? [y/N]");
        assert!(code == Some(1) && is_asked && said.contains("nothing was changed"), "{typed:?}: {said}");
        assert!(deletion_hold(admin, &["list"]).1.contains("none"), "the hold is undecided");
    }
    if let Some((code, said)) = approve(&bindings, &[], "y\n") {
        assert!(code == Some(0) && said.contains("approved"), "{said}");
        let (code, said) = approve(&routers, &["--yes"], "").expect("it was there");
        assert!(code == Some(0) && said.contains("approved") && !said.contains("[y/N]"), "{said}");
    } else {
        assert!(deletion_hold(admin, &["approve", &bindings]).0 && deletion_hold(admin, &["approve", &routers]).0);
    }
    for server in [&one, &two] {
        eventually("the names go", || {
            let gone = scheduled.iter().all(|promise| addresses(server, &promise.system) == 0);
            (gone && held(server) == [0.0, 0.0]).then_some(())
        });
        assert_eq!(dig(server.dns, &scheduled[0].alias, "CNAME", &[]).status, "NXDOMAIN");
    }
    holds(admin, 0, 0);

    // Without the API, the error names the place to check instead.
    assert!(api.terminate().success());
    let (done, printed) = deletion_hold(admin, &["list"]);
    assert!(!done && printed.contains("signpost_deletion_hold_objects"), "{printed}");
}

/// The longest time for which queries wait for the zones of a server that starts. On a slow machine, it can be over before they are
/// there.
const SILENT_LONGEST: Duration = Duration::from_secs(2);

/// Returns the first answer of a server at `address` that is starting: the RCODE, the number of records, and whether the answer came
/// within [`SILENT_LONGEST`].
fn first_answer(address: SocketAddr, name: &str, rtype: u8) -> JoinHandle<(u8, u8, bool)> {
    let labels = name.trim_end_matches('.').split('.');
    let name = labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    let query: Vec<u8> =
        [0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0].into_iter().chain(name).chain([0, 0, rtype, 0, 1]).collect();
    std::thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("binds");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("is set");
        let begun = Instant::now();
        loop {
            // Before the server has its socket, the system refuses.
            drop(socket.send_to(&query, address));
            let mut answer = [0; 512];
            if socket.recv(&mut answer).is_ok() {
                return (answer[3] & 15, answer[7], begun.elapsed() < SILENT_LONGEST);
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no answer");
        }
    })
}

/// The name server in the API's process is like any other: it answers from the first packet, and holds what a restored backup
/// lacks.
#[test]
fn one_process_holds_what_an_older_backup_lacks() {
    let data = DataDir::new();
    let ports = Ports::free();
    let arguments = [&["--data-dir", data.path()][..], &DOMAIN].concat();
    let first = first_answer(ports.dns, DOMAIN[1], 6);
    let server = Server::start(ports, &arguments);
    let (rcode, records, is_prompt) = first.join().expect("answers");
    assert!((rcode, records) == (0, 1) || !is_prompt, "the first answer of an empty platform is its SOA: {rcode}");
    let path = |name: &str| data.join(name).to_str().expect("UTF-8").to_owned();
    let (admin, empty, full) = (path("kubeconfig"), path("empty"), path("full"));
    assert_eq!(run(&["backup", &empty, "--online", "--data-dir", data.path()]).code, Some(0));
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let (scheduled, _) = apply_example(&kubectl);
    let system = scheduled[0].system.clone();
    let addresses = |server: &Server, name: &str| dig(server.dns, name, "A", &[]).sorted("A").len();
    eventually("the names are served", || (addresses(&server, &system) > 0).then_some(()));
    assert!(server.terminate().success());

    let lose_store = || {
        std::fs::remove_file(data.join("store.redb")).expect("the store is there");
        // A server writes it, a restore does not.
        drop(std::fs::remove_file(data.join("store-identity")));
    };
    assert_eq!(run(&["backup", &full, "--data-dir", data.path()]).code, Some(0));
    lose_store();
    let restore = |backup: &str| run(&["restore", backup, "--data-dir", data.path()]);
    // A backup of the same objects is restored without a question or notice.
    let same = restore(&full);
    assert!(same.code == Some(0) && !same.err.contains("not in the backup"), "{}", same.err);
    lose_store();
    if let Some((code, said)) = on_terminal(200, "n\n", &["restore", &empty, "--data-dir", data.path()]) {
        assert!(code == Some(1) && said.contains("Restore without them?"), "{said}");
        assert!(said.contains("Router shard1") && said.contains("nothing was changed"), "{said}");
        assert!(!data.join("store.redb").exists());
    }
    let older = restore(&empty);
    assert!(older.code == Some(0) && older.err.contains("not in the backup: Router shard1"), "{}", older.err);

    let first = first_answer(ports.dns, &system, 1);
    let server = Server::start(ports, &arguments);
    let (rcode, records, is_prompt) = first.join().expect("answers");
    assert!((rcode == 0 && records > 0) || !is_prompt, "{rcode} {records}");
    holds(&admin, 2, 1);
    for promise in &scheduled {
        assert!(addresses(&server, &promise.system) > 0, "{promise:?}");
    }
    // What no state and no object has does not exist, once the objects are listed.
    eventually("absent names are denied", || {
        (dig(server.dns, "no.v3.rhcloud.com", "A", &[]).status == "NXDOMAIN").then_some(())
    });
}
