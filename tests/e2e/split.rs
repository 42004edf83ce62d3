//! The roles apart: one process with the API and the scheduler, two name servers that watch it over TLS.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::platform::{Promise, apply_example, check_names, promises};
use signpost_testing::dig::Record;
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, try_dig_all};

const DOMAIN: [&str; 2] = ["--domain", "v3.rhcloud.com"];
const NAME_SERVERS: [&str; 4] =
    ["--nameserver", "ns1.v3.rhcloud.com=192.0.2.53", "--nameserver", "ns2.v3.rhcloud.com=192.0.2.54,2001:db8::54"];

const ZONES: [&str; 5] = [
    "v3.rhcloud.com",
    "routes.v3.rhcloud.com",
    "shard1.v3.rhcloud.com",
    "shard2.v3.rhcloud.com",
    "shard3.v3.rhcloud.com",
];

/// The state of one zone on a name server: its serial and a sample of its answers.
type View = BTreeMap<String, (u32, Vec<Record>)>;

/// Returns the state of every generated zone on a name server; `None` while it does not answer for one.
fn view(dns: SocketAddr, scheduled: &[Promise]) -> Option<View> {
    let mut view = View::new();
    let zones = ZONES.map(|zone| (zone, "SOA"));
    for (zone, response) in ZONES.iter().zip(try_dig_all(dns, &zones, &[])?) {
        view.insert((*zone).to_owned(), (response.serial()?, Vec::new()));
    }
    let names = scheduled.iter().flat_map(|promise| [promise.system.as_str(), promise.alias.as_str()]);
    let names = names.chain(["v3.rhcloud.com"]);
    let questions: Vec<_> = names.flat_map(|name| ["A", "AAAA", "NS"].map(|rtype| (name, rtype))).collect();
    for response in try_dig_all(dns, &questions, &[])? {
        let zone = response.authority.first().map(|record| record.owner.trim_end_matches('.').to_owned());
        let zone = zone.filter(|zone| view.contains_key(zone)).unwrap_or_else(|| "v3.rhcloud.com".to_owned());
        view.get_mut(&zone).expect("was filtered").1.extend(response.answer);
    }
    for (_, records) in view.values_mut() {
        records.sort();
    }
    Some(view)
}

/// Waits until both name servers have the same state with the same serials, and returns it.
fn agreed(servers: [SocketAddr; 2], scheduled: &[Promise], what: &str, accept: impl Fn(&View) -> bool) -> View {
    eventually(what, || {
        let views = [view(servers[0], scheduled)?, view(servers[1], scheduled)?];
        let [one, two] = &views;
        (one == two && accept(one)).then(|| one.clone())
    })
}

#[test]
fn two_name_servers_follow_the_api_and_outlive_it() {
    let data = DataDir::new();
    let api_ports = Ports::free();
    let api_arguments =
        [&["--roles", "api,scheduler,admin", "--data-dir", data.path()][..], &DOMAIN, &NAME_SERVERS].concat();
    let api = Server::start(api_ports, &api_arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let (scheduled, _) = apply_example(&kubectl);

    let kubeconfig = data.join("name-server.kubeconfig");
    let states = [DataDir::new(), DataDir::new()];
    let ports = [Ports::free(), Ports::free()];
    let start = |which: usize| {
        let arguments = [
            "--roles",
            "dns,admin",
            "--kubeconfig",
            kubeconfig.to_str().expect("UTF-8"),
            "--data-dir",
            states[which].path(),
        ];
        Server::spawn(ports[which], &[&arguments[..], &DOMAIN, &NAME_SERVERS].concat())
    };
    let mut name_servers = [start(0), start(1)];
    name_servers.iter_mut().for_each(Server::wait_ready);
    let addresses = [name_servers[0].dns, name_servers[1].dns];
    for address in addresses {
        check_names(&kubectl, address, &scheduled);
    }
    // Not a provisional serial, which a name server uses until the Zone has one.
    let is_final = |view: &View| {
        let serial = |zone: &str| kubectl.json(&["zones.signpost.dev", zone])["spec"]["versions"][0]["serial"].clone();
        view.iter().all(|(zone, (found, _))| serial(zone) == *found)
    };
    let first = agreed(addresses, &scheduled, "equal answers under equal serials", is_final);

    // A name server may look and do nothing else.
    let watcher = Kubectl::new(kubeconfig.clone());
    watcher.ok(&["get", "routers"]);
    watcher.refused(&["delete", "router", "shard2"], "");

    // Each change is followed by both.
    kubectl.ok(&["patch", "router", "shard2", "--type=merge", "-p", r#"{"spec":{"addresses":[{"ip":"10.245.2.4"}]}}"#]);
    let on_shard2 =
        scheduled.iter().find(|promise| promise.router == "shard2").expect("the example uses shard2").clone();
    let changed = agreed(addresses, &scheduled, "both drop the address", |view| {
        let of_route =
            view["v3.rhcloud.com"].1.iter().filter(|r| r.owner == format!("{}.", on_shard2.system) && r.rtype == "A");
        of_route.map(|record| record.data.as_str()).collect::<Vec<_>>() == ["10.245.2.4"] && is_final(view)
    });
    assert_ne!(changed["shard2.v3.rhcloud.com"].0, first["shard2.v3.rhcloud.com"].0, "new contents, new serial");
    assert_eq!(changed["shard1.v3.rhcloud.com"].0, first["shard1.v3.rhcloud.com"].0, "same contents, same serial");

    // The API goes; they keep answering, and one that is restarted answers from its last good state.
    assert!(api.terminate().success());
    assert_eq!(agreed(addresses, &scheduled, "they answer without the API", |_| true), changed);
    let [zero, one] = name_servers;
    zero.kill();
    let zero = Server::spawn(
        ports[0],
        &[
            &[
                "--roles",
                "dns,admin",
                "--kubeconfig",
                kubeconfig.to_str().expect("UTF-8"),
                "--data-dir",
                states[0].path(),
            ][..],
            &DOMAIN,
            &NAME_SERVERS,
        ]
        .concat(),
    );
    assert_eq!(agreed(addresses, &scheduled, "a restart without the API answers the same", |_| true), changed);

    // The API comes back; they catch up with what happens then.
    let _api = Server::start(api_ports, &api_arguments);
    kubectl.ok(&["create", "namespace", "late"]);
    let route = "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: comer, namespace: late}\nspec: {to: {name: x}}\n";
    kubectl.ok_with(&["apply", "-f", "-"], route);
    kubectl.ok(&["wait", "-n", "late", "routes.signpost.dev/comer", "--for=condition=Scheduled", "--timeout=180s"]);
    let late = promises(&kubectl)["late/comer"].clone();
    let with_late = [scheduled.clone(), vec![late.clone()]].concat();
    let last = agreed(addresses, &with_late, "both have the new alias", |view| {
        view.values().any(|(_, records)| records.iter().any(|record| record.owner == format!("{}.", late.alias)))
    });
    assert_eq!(last["shard2.v3.rhcloud.com"].0, changed["shard2.v3.rhcloud.com"].0, "nothing changed there");
    for server in [zero, one] {
        assert!(server.terminate().success());
    }
}
