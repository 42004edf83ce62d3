//! Name verification: `Resolvable` as a user waits for it, and as it follows the name servers.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use signpost_testing::dns::{RecordType, query};
use signpost_testing::kubectl::Condition;
use signpost_testing::{DataDir, Kubectl, Ports, Scrape, Server, dig, eventually, program};

const PLATFORM: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
     apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: one}\nspec: {addresses: [{ip: 192.0.2.1}, {ip: 2001:db8::1}]}\n";

fn route(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{to: {{name: web}}{spec}}}\n"
    )
}

fn resolvable(kubectl: &Kubectl, name: &str) -> Option<Condition> {
    kubectl.condition(&["routes.signpost.dev", "-n", "shop", name], "Resolvable")
}

fn wait(kubectl: &Kubectl, name: &str, condition: &str) {
    kubectl.ok(&[
        "wait",
        "-n",
        "shop",
        &format!("rt/{name}"),
        &format!("--for=condition={condition}"),
        "--timeout=180s",
    ]);
}

/// Returns the reasons of the Events about a route.
fn events(kubectl: &Kubectl, name: &str) -> Vec<String> {
    let events = kubectl.json(&["events.events.k8s.io", "-n", "shop"]);
    let of_route =
        events["items"].as_array().expect("a list").iter().filter(|event| event["regarding"]["name"] == name);
    of_route.filter_map(|event| event["reason"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_route_is_live_when_it_says_so_without_any_setting() {
    let data = DataDir::new();
    let server = Server::start(Ports::free(), &["--data-dir", data.path()]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], PLATFORM);
    kubectl.ok_with(&["apply", "-f", "-"], &route("cart", ""));
    wait(&kubectl, "cart", "Resolvable");
    assert_eq!(dig(server.dns, "shop-cart.one.v3.rhcloud.com", "A", &[]).data("A"), ["192.0.2.1"]);
    wait(&kubectl, "cart", "Published");
    let Condition { reason, message, .. } = resolvable(&kubectl, "cart").expect("it was waited for");
    assert_eq!(reason, "Resolvable");
    let serial = dig(server.dns, "one.v3.rhcloud.com", "SOA", &[]).serial().expect("a serial").to_string();
    for part in ["shop-cart.one.v3.rhcloud.com", "shop-cart.routes.v3.rhcloud.com", &server.dns.to_string(), &serial] {
        assert!(message.contains(part), "{part} in {message}");
    }
    // kubectl's own table shows it, and so does the Router.
    let line = kubectl.ok(&["get", "rt", "-n", "shop", "cart", "--no-headers"]);
    assert!(line.split_whitespace().any(|word| word == "True"), "{line}");
    let router = eventually("the Router reports it, too", || {
        let router = kubectl.json(&["routers.signpost.dev", "one"]);
        router["status"]["serial"].is_number().then_some(router)
    });
    assert_eq!(router["status"]["serial"].to_string(), serial);
    let published = kubectl.condition(&["routers.signpost.dev", "one"], "ZonePublished").expect("it is reported");
    assert_eq!(published.status, "True");

    // A host of one's own is verified as far as the platform's names go.
    kubectl.ok_with(&["apply", "-f", "-"], &route("www", ", host: www.shop.example"));
    wait(&kubectl, "www", "Resolvable");
    let message = resolvable(&kubectl, "www").expect("it was waited for").message;
    assert!(message.contains("www.shop.example"), "{message}");

    // Conditions carry the generation, otherwise `kubectl wait` would ignore them.
    kubectl.ok(&["patch", "rt", "cart", "-n", "shop", "--type=merge", "-p", r#"{"spec":{"path":"/cart"}}"#]);
    wait(&kubectl, "cart", "Resolvable");

    // Without an active address the name leads nowhere; with it, it is back.
    let state = |state: &str| {
        format!(r#"[{{"op":"replace","path":"/spec/addresses","value":[{{"ip":"192.0.2.1","state":"{state}"}}]}}]"#)
    };
    kubectl.ok(&["patch", "router", "one", "--type=json", "-p", &state("drained")]);
    wait(&kubectl, "cart", "Resolvable=False");
    assert_eq!(resolvable(&kubectl, "cart").expect("it was waited for").reason, "NoActiveAddress");
    wait(&kubectl, "cart", "Published=False");
    // That is an outage, and all outputs report it.
    let output = |arguments: &[&str]| {
        let admin = format!("http://{}", server.admin);
        let mut command = Command::new(program());
        command.args(arguments).args(["--data-dir", data.path()]);
        if arguments[0] == "status" {
            command.args(["--admin", &admin, "--interval", "0"]);
        }
        command.output().expect("the program starts")
    };
    let outage =
        eventually("the status is an outage", || Some(output(&["status"])).filter(|found| !found.status.success()));
    let printed = String::from_utf8_lossy(&outage.stdout).into_owned();
    assert_eq!(outage.status.code(), Some(1), "{printed}");
    assert!(printed.contains("Router one has no active address: its 2 Routes are unreachable"), "{printed}");
    let routes = kubectl.ok(&["get", "routes", "-n", "shop", "-o", "wide"]);
    assert!(routes.lines().any(|line| line.contains("cart") && line.contains("NoActiveAddress")), "{routes}");
    kubectl.ok(&["patch", "router", "one", "--type=json", "-p", &state("active")]);
    wait(&kubectl, "cart", "Resolvable");
    wait(&kubectl, "cart", "Published");
    eventually("the outage is over", || output(&["status"]).status.success().then_some(()));

    // Records take its name: their author gets a warning, and the Router and the Route report it.
    let records = |records: &str| format!(r#"{{"spec":{{"records":[{records}]}}}}"#);
    let patch = |text: &str| {
        let patched = kubectl.run(&["patch", "router", "one", "--type=merge", "-p", text]);
        let printed = String::from_utf8_lossy(&patched.stderr).into_owned();
        assert!(patched.status.success(), "{printed}");
        printed
    };
    let patched = patch(&records(r#""shop-cart CNAME elsewhere.example.""#));
    let warning = "these records replace names of Routes on this Router, and the Routes get the reason NameTaken: \
                   shop-cart, the name of Route shop/cart, is an alias of elsewhere.example";
    assert!(patched.contains(warning), "{patched}");
    wait(&kubectl, "cart", "Resolvable=False");
    assert_eq!(resolvable(&kubectl, "cart").expect("it was waited for").reason, "NameTaken");
    let accepted = |status: &str| {
        kubectl.ok(&["wait", "router/one", &format!("--for=condition=Accepted={status}"), "--timeout=180s"]);
        kubectl.condition(&["router", "one"], "Accepted").expect("it was waited for")
    };
    let Condition { reason, message, .. } = accepted("False");
    assert!(reason == "NameTaken" && !message.contains("cart"), "{reason}: {message}");
    let mended = patch(&records(""));
    assert!(!mended.contains("NameTaken"), "{mended}");
    accepted("True");
    wait(&kubectl, "cart", "Resolvable");

    let reasons = eventually("each step has an Event", || {
        let reasons = events(&kubectl, "cart");
        let count = |reason: &str| reasons.iter().filter(|found| *found == reason).count();
        (count("Resolvable") == 3).then(|| reasons.clone())
    });
    let count = |reason: &str| reasons.iter().filter(|found| *found == reason).count();
    assert_eq!((count("NotPublished"), count("NotResolvable")), (1, 2), "{reasons:?}");
    // None if the names were found to be published and resolvable at the same time.
    assert!(count("Published") <= 2, "{reasons:?}");
    let scrape = Scrape::of(server.admin);
    assert_eq!(scrape.sum("signpost_route_create_to_resolvable_seconds_count", &[]), 2.0);
    assert!(scrape.sum("signpost_verify_checks_total", &[("outcome", "right")]) >= 3.0);
}

#[test]
fn many_routes_at_once_all_come_live() {
    let data = DataDir::new();
    let server = Server::start(Ports::free(), &["--data-dir", data.path()]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], PLATFORM);
    let routes: Vec<String> = (0..60).map(|number| route(&format!("r{number}"), "")).collect();
    kubectl.ok_with(&["create", "-f", "-"], &routes.join("---\n"));
    eventually("all are resolvable", || {
        let lines = kubectl.ok(&["get", "rt", "-n", "shop", "--no-headers"]);
        let live = lines.lines().filter(|line| line.split_whitespace().any(|word| word == "True")).count();
        (live == 60).then_some(())
    });
    eventually("the metrics have it", || {
        let scrape = Scrape::of(server.admin);
        let missing = scrape.sum("signpost_routes_not_resolvable", &[]);
        let counted = scrape.sum("signpost_route_create_to_resolvable_seconds_count", &[]);
        ((missing, counted) == (0.0, 60.0)).then_some(())
    });
}

/// Returns a process that only answers.
fn name_server(ports: Ports, api: &DataDir, state: &DataDir) -> Server {
    let kubeconfig = api.join("name-server.kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    Server::start(ports, &["--roles", "dns,admin", "--kubeconfig", kubeconfig, "--data-dir", state.path()])
}

/// A platform with two name servers that are verified, in processes of their own.
struct TwoServers {
    data: DataDir,
    ports: [Ports; 2],
    states: [DataDir; 2],
    api: Server,
    kubectl: Kubectl,
}

impl TwoServers {
    fn start() -> TwoServers {
        let (data, ports) = (DataDir::new(), [Ports::free(), Ports::free()]);
        let servers = format!("ns1.v3.rhcloud.com={},ns2.v3.rhcloud.com={}", ports[0].dns, ports[1].dns);
        let arguments = ["--roles", "api,scheduler,admin", "--data-dir", data.path(), "--verify-server", &servers];
        let api = Server::start(Ports::free(), &[&arguments[..], &["--verify-interval", "1s"]].concat());
        let kubectl = Kubectl::new(data.join("kubeconfig"));
        kubectl.ok_with(&["apply", "-f", "-"], &(PLATFORM.to_owned() + "---\n" + &route("cart", "")));
        TwoServers { data, ports, states: [DataDir::new(), DataDir::new()], api, kubectl }
    }

    fn name_server(&self, number: usize) -> Server {
        name_server(self.ports[number], &self.data, &self.states[number])
    }

    /// Waits until the metric reports whether a server is silent.
    fn until_silent(&self, number: usize, is_silent: bool) {
        let address = self.ports[number].dns.to_string();
        eventually("the metric of silent name servers", || {
            let silent = Scrape::of(self.api.admin).sum("signpost_name_server_silent", &[("address", &address)]);
            (silent == f64::from(u8::from(is_silent))).then_some(())
        });
    }

    /// Returns the message of the condition of a Route, which becomes resolvable.
    fn message_of(&self, name: &str) -> String {
        self.kubectl.ok_with(&["apply", "-f", "-"], &route(name, ""));
        wait(&self.kubectl, name, "Resolvable");
        resolvable(&self.kubectl, name).expect("it was waited for").message
    }
}

#[test]
fn routes_do_not_wait_for_a_name_server_that_is_gone() {
    let scene = TwoServers::start();
    let (kubectl, ports) = (&scene.kubectl, scene.ports);
    // While none answers, no name is live.
    wait(kubectl, "cart", "Resolvable=False");
    let Condition { reason, message, .. } = eventually("the message has both", || {
        resolvable(kubectl, "cart").filter(|said| said.message.contains(&ports[1].dns.to_string()))
    });
    assert_eq!(reason, "NotAnswering", "{message}");
    let _first = scene.name_server(0);
    wait(kubectl, "cart", "Resolvable");
    let message = resolvable(kubectl, "cart").expect("it was waited for").message;
    assert!(message.contains(&format!("ns2.v3.rhcloud.com ({}) does not answer", ports[1].dns)), "{message}");
    scene.until_silent(1, true);
    wait(kubectl, "cart", "Published");

    let second = scene.name_server(1);
    scene.until_silent(1, false);
    let message = scene.message_of("both");
    assert!(ports.iter().all(|ports| message.contains(&ports.dns.to_string())), "{message}");
    assert!(!message.contains("does not answer"), "{message}");

    // A Route that is verified stays so, without a write, and a new one becomes so.
    let version =
        |name: &str| kubectl.json(&["routes.signpost.dev", "-n", "shop", name])["metadata"]["resourceVersion"].clone();
    let before = [version("cart"), version("both")];
    second.kill();
    let message = scene.message_of("late");
    assert!(message.contains(&format!("({}) does not answer", ports[1].dns)), "{message}");
    scene.until_silent(1, true);
    scene.until_silent(0, false);
    assert_eq!([version("cart"), version("both")], before);
    eventually("the Router names it", || {
        let published = kubectl.condition(&["routers.signpost.dev", "one"], "ZonePublished")?;
        (published.status == "True" && published.message.contains("ns2.v3.rhcloud.com")).then_some(())
    });
    scene.api.logs("a name server does not answer");

    let _second = scene.name_server(1);
    scene.until_silent(1, false);
    let message = scene.message_of("again");
    assert!(!message.contains("does not answer"), "{message}");
    // Checks without news write nothing. The last news of the name server may come later than the condition.
    let checks = || Scrape::of(scene.api.admin).sum("signpost_verify_checks_total", &[]);
    eventually("eight checks leave the Route unchanged", || {
        let (before, done) = (version("cart"), checks());
        eventually("checks continue", || (checks() >= done + 8.0).then_some(()));
        (version("cart") == before).then_some(())
    });
    assert_eq!([version("cart"), version("both")], before);
}

/// A process that is stopped and continues answers from zones that are older than it can know.
#[test]
fn a_name_server_that_continues_after_a_stop_denies_no_live_name() {
    let scene = TwoServers::start();
    let (_first, second) = (scene.name_server(0), scene.name_server(1));
    wait(&scene.kubectl, "cart", "Resolvable");
    let gone = "shop-gone.routes.v3.rhcloud.com";
    eventually("a name that does not exist is denied", || (status(second.dns, gone)? == 3).then_some(()));
    second.signal("STOP");
    scene.message_of("late");
    let name = "shop-late.routes.v3.rhcloud.com";
    // The queries wait in the socket, and are answered first.
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.connect(second.dns).expect("an address");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a duration");
    const QUERIES: u16 = 20;
    for id in 0..QUERIES {
        socket.send(&query(id, name, RecordType::CNAME)).expect("loopback takes it");
    }
    second.signal("CONT");
    let mut response = [0; 1500];
    for _ in 0..QUERIES {
        socket.recv(&mut response).expect("it answers");
        assert!([0, 2].contains(&(response[3] & 15)), "rcode {}", response[3] & 15);
    }
    eventually("it has the name", || (status(second.dns, name)? == 0).then_some(()));
    eventually("it denies others", || (status(second.dns, gone)? == 3).then_some(()));
}

/// Returns the response code for a CNAME query.
fn status(server: SocketAddr, name: &str) -> Option<u8> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    socket.connect(server).ok()?;
    socket.send(&query(1, name, RecordType::CNAME)).ok()?;
    let mut response = [0; 1500];
    socket.recv(&mut response).ok()?;
    Some(response[3] & 15)
}

/// Returns the LIVE column of `kubectl get`.
fn live(kubectl: &Kubectl, name: &str) -> String {
    let page = kubectl.ok(&["get", "rt", "-n", "shop", name]);
    let mut lines = page.lines();
    let (head, line) = (lines.next().expect("a head"), lines.next().expect("a line"));
    let at = head.find("LIVE").expect("the column is there");
    line[at..].split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn nothing_says_live_of_a_host_before_its_own_dns_leads_here() {
    let (data, zones) = (DataDir::new(), DataDir::new());
    // The host's owner has a zone file here, and this server is the resolver, too.
    let zone = |serial: u32, more: &str| {
        let text = format!("$TTL 1\n@ SOA ns h {serial} 2 3 4 1\n@ NS ns\nns A 127.0.0.1\n{more}\n");
        std::fs::write(zones.join("shop.test.zone"), text).expect("written");
    };
    zone(1, "www A 198.51.100.9");
    let ports = Ports::free();
    let resolver = ports.dns.to_string();
    let arguments = ["--data-dir", data.path(), "--zones", zones.path(), "--host-resolvers", &resolver];
    let server = Server::start(ports, &arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], PLATFORM);
    let hosts =
        [("www", "www.shop.test"), ("none", "none.shop.test"), ("wild", "*.wild.shop.test"), ("apex", "shop.test")];
    for (name, host) in hosts {
        kubectl.ok_with(&["apply", "-f", "-"], &route(name, &format!(", host: \"{host}\"")));
        wait(&kubectl, name, "Resolvable");
        wait(&kubectl, name, "HostPointsHere=False");
        assert_eq!(live(&kubectl, name), "False", "{host}");
    }
    let found = |name: &str| kubectl.condition(&["routes.signpost.dev", "-n", "shop", name], "HostPointsHere");
    let Condition { reason, message, .. } = found("www").expect("it was waited for");
    assert_eq!(reason, "PointsElsewhere");
    assert!(message.contains("www.shop.test. IN CNAME shop-www.routes.v3.rhcloud.com."), "{message}");
    assert!(!message.contains("198.51.100.9"), "the targets of other names are not reported: {message}");
    assert_eq!(found("none").expect("it was waited for").reason, "NoRecord");
    let is_counted = |live: usize, answered: usize| {
        let mut command = Command::new(program());
        command.args(["status", "--interval", "0", "-o", "json", "--data-dir", data.path()]);
        let status: Value = serde_json::from_slice(&command.output().expect("it starts").stdout).expect("JSON");
        let count = |state: &str| status["routes"][state].as_u64().unwrap_or(0) as usize;
        assert_eq!((count("resolvable"), count("answered")), (live, answered), "{status}");
    };
    is_counted(0, 4);

    // The owner makes the records: by the stable alias, by a wildcard, and at the apex by the address.
    let alias = |name: &str| format!("shop-{name}.routes.v3.rhcloud.com.");
    zone(
        2,
        &format!(
            "www CNAME {}\n*.wild CNAME {}\n@ A 192.0.2.1\nnone A 192.0.2.1\nnone A 198.51.100.9",
            alias("www"),
            alias("wild")
        ),
    );
    for name in ["www", "wild", "apex"] {
        wait(&kubectl, name, "HostPointsHere");
        assert_eq!(live(&kubectl, name), "True", "{name}");
    }
    eventually("half of its addresses elsewhere is elsewhere", || {
        found("none").filter(|said| said.reason == "PointsElsewhere")
    });
    is_counted(3, 1);

    // Without resolvers, the condition reports that, and LIVE is Unknown.
    assert!(server.terminate().success());
    let server = Server::start(ports, &["--data-dir", data.path(), "--zones", zones.path()]);
    kubectl.ok_with(&["apply", "-f", "-"], &route("late", ", host: late.shop.test"));
    wait(&kubectl, "late", "HostPointsHere=Unknown");
    wait(&kubectl, "late", "Resolvable");
    assert_eq!(found("late").expect("it was waited for").reason, "NotChecked");
    assert_eq!(live(&kubectl, "late"), "Unknown");
    wait(&kubectl, "www", "HostPointsHere=Unknown");
    drop(server);
}
