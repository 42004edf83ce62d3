//! A name server that has lost the API: it denies no names, and marks its answers as stale, if that is configured.

use signpost_testing::dig::printed;
use signpost_testing::{DataDir, Kubectl, Ports, Scrape, Server, eventually};

const DOMAIN: [&str; 2] = ["--domain", "v3.rhcloud.com"];
const ROUTER: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard1}\n\
spec: {addresses: [{ip: 192.0.2.1}]}\n";
const ZONE: &str = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n* A 192.0.2.1\n";

#[test]
fn answers_are_marked_while_the_api_is_away() {
    let (data, state) = (DataDir::new(), DataDir::new());
    let ports = Ports::free();
    let arguments = [&["--roles", "api,scheduler,admin", "--data-dir", data.path()][..], &DOMAIN].concat();
    let api = Server::start(ports, &arguments);
    Kubectl::new(data.join("kubeconfig")).ok_with(&["apply", "-f", "-"], ROUTER);
    std::fs::write(state.join("file.example.zone"), ZONE).expect("written");
    let kubeconfig = data.join("name-server.kubeconfig");
    let more = ["--roles", "dns,admin", "--data-dir", state.path(), "--zones", state.path(), "--dns-stale-after", "1s"];
    let kubeconfig = ["--kubeconfig", kubeconfig.to_str().expect("UTF-8")];
    let server = Server::start(Ports::free(), &[&more[..], &kubeconfig, &DOMAIN].concat());
    let is_marked = |name: &str| {
        let text = printed(server.dns, name, "A", &[]);
        assert!(text.contains("192.0.2.1"), "it is answered in any case: {text}");
        text.contains("EDE: 3")
    };
    let (live, file) = ("app.shard1.v3.rhcloud.com", "app.file.example");
    eventually("the shard is served", || printed(server.dns, live, "A", &[]).contains("192.0.2.1").then_some(()));
    eventually("no answer is marked", || (!is_marked(live) && !is_marked(file)).then_some(()));
    assert!(api.terminate().success());
    eventually("the answer is marked as stale", || is_marked(live).then_some(()));
    assert!(!is_marked(file), "a zone file is not marked");
    assert_eq!(Scrape::of(server.admin).sum("signpost_dns_stale", &[]), 1.0);
    let _api = Server::start(ports, &arguments);
    eventually("the mark goes when the API is reachable", || (!is_marked(live)).then_some(()));
    assert_eq!(Scrape::of(server.admin).sum("signpost_dns_stale", &[]), 0.0);
}

#[test]
fn names_are_not_denied_while_the_api_is_away() {
    let (data, state) = (DataDir::new(), DataDir::new());
    let ports = Ports::free();
    let arguments = [&["--roles", "api,scheduler,admin", "--data-dir", data.path()][..], &DOMAIN].concat();
    let api = Server::start(ports, &arguments);
    Kubectl::new(data.join("kubeconfig")).ok_with(&["apply", "-f", "-"], ROUTER);
    std::fs::write(state.join("file.example.zone"), ZONE.replace("* A", "app A")).expect("written");
    let kubeconfig = data.join("name-server.kubeconfig");
    let more = ["--roles", "dns,admin", "--data-dir", state.path(), "--zones", state.path()];
    let kubeconfig = ["--kubeconfig", kubeconfig.to_str().expect("UTF-8")];
    let arguments_of_dns = [&more[..], &kubeconfig, &DOMAIN].concat();
    let dns_ports = Ports::free();
    let server = Server::start(dns_ports, &arguments_of_dns);
    let is_denied = |name: &str| printed(dns_ports.dns, name, "A", &[]).contains("NXDOMAIN");
    let is_unsure = |name: &str| {
        let text = printed(dns_ports.dns, name, "A", &[]);
        text.contains("SERVFAIL") && text.contains("EDE: 14")
    };
    let missing = ["new-app.routes.v3.rhcloud.com", "app.shard9.v3.rhcloud.com"];
    let until_denied = |when: &str| missing.iter().for_each(|name| eventually(when, || is_denied(name).then_some(())));
    until_denied("the API is there");
    assert_eq!(Scrape::of(server.admin).sum("signpost_dns_denies_names", &[]), 1.0);
    assert!(api.terminate().success());
    let check_unsure = |server: &Server| {
        missing.iter().for_each(|name| eventually("the API is away", || is_unsure(name).then_some(())));
        // Names and types that are known are answered.
        for name in ["app.shard1.v3.rhcloud.com", "app.file.example"] {
            assert!(printed(dns_ports.dns, name, "A", &[]).contains("192.0.2.1"), "{name}");
        }
        for (name, rtype) in
            [("app.shard1.v3.rhcloud.com", "AAAA"), ("routes.v3.rhcloud.com", "A"), ("v3.rhcloud.com", "A")]
        {
            let text = printed(dns_ports.dns, name, rtype, &[]);
            assert!(text.contains("NOERROR") && text.contains("SOA"), "NODATA for {name} {rtype}: {text}");
        }
        assert!(is_denied("gone.file.example"), "the truth of a zone file is the file");
        // The answers end with the second before.
        let denies = || Scrape::of(server.admin).sum("signpost_dns_denies_names", &[]);
        eventually("the metric reports it", || (denies() == 0.0).then_some(()));
    };
    check_unsure(&server);
    // After a restart, its last-known-good zones are of any age.
    server.kill();
    let server = Server::start(dns_ports, &arguments_of_dns);
    check_unsure(&server);
    let _api = Server::start(ports, &arguments);
    until_denied("the API is back");
}
