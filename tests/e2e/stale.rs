//! A name server that has lost the API marks its answers as stale, if that is configured.

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
    assert!(!is_marked(live) && !is_marked(file));
    assert!(api.terminate().success());
    eventually("the answer is marked as stale", || is_marked(live).then_some(()));
    assert!(!is_marked(file), "a zone file is not marked");
    assert_eq!(Scrape::of(server.admin).sum("signpost_dns_stale", &[]), 1.0);
    let _api = Server::start(ports, &arguments);
    eventually("the mark goes when the API is reachable", || (!is_marked(live)).then_some(()));
    assert_eq!(Scrape::of(server.admin).sum("signpost_dns_stale", &[]), 0.0);
}
