//! A resolver over it: `unbound` follows the delegation from the parent's server to ours.
//!
//! The test makes a network namespace of its own, where every loopback address has a port 53: the parent zone is served
//! on one address, the shards on another, and the resolver on a third knows only the parent's.

use std::path::Path;

use crate::platform::apply_example;
use signpost_testing::namespace::inside_namespace;
use signpost_testing::peers::unbound;
use signpost_testing::program::ok;
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, try_dig};

#[test]
fn unbound_resolves_through_the_delegation() {
    if !inside_namespace("resolver::unbound_resolves_through_the_delegation") {
        return;
    }
    let data = DataDir::new();
    let ports = Ports { dns: "127.0.0.3:53".parse().expect("an address"), ..Ports::free() };
    let name_server = "ns1.v3.rhcloud.com=127.0.0.3";
    let common = ["--domain", "v3.rhcloud.com", "--nameserver", name_server];
    let _child = Server::start(ports, &[&["--data-dir", data.path()][..], &common].concat());
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let (scheduled, _) = apply_example(&kubectl);
    eventually("the aliases are published", || {
        let all = scheduled.iter().all(|promise| {
            try_dig(ports.dns, &promise.alias, "A", &[]).is_some_and(|response| !response.data("CNAME").is_empty())
        });
        all.then_some(())
    });

    // The parent's server has only the exported parent zone.
    let exported = DataDir::new();
    let kubeconfig = data.file("kubeconfig");
    let export = ["zone", "export", "--kubeconfig", &kubeconfig, "--out", exported.path()];
    ok(&[&export[..], &common].concat());
    let parent_zones = DataDir::new();
    std::fs::copy(exported.join("v3.rhcloud.com.zone"), parent_zones.join("v3.rhcloud.com.zone"))
        .expect("was exported");
    let parent_ports = Ports { dns: "127.0.0.2:53".parse().expect("an address"), ..Ports::free() };
    let _parent = Server::start(parent_ports, &["--roles", "dns,admin", "--zones", parent_zones.path()]);
    let referral = try_dig(parent_ports.dns, &scheduled[0].system, "A", &[]).expect("the parent answers");
    assert!(referral.answer.is_empty() && !referral.flags.contains(&"aa".to_owned()), "{referral:?}");
    assert!(referral.additional.iter().any(|record| record.data == "127.0.0.3"), "glue: {referral:?}");

    let resolver = "127.0.0.4:53".parse().expect("an address");
    let _unbound = unbound(resolver, Path::new(data.path()), &[("v3.rhcloud.com", parent_ports.dns)]);

    for promise in &scheduled {
        for name in [&promise.system, &promise.alias] {
            let resolved = eventually("the resolver answers", || {
                try_dig(resolver, name, "A", &["+recurse"])
                    .filter(|response| response.status == "NOERROR" && !response.data("A").is_empty())
            });
            let authoritative = try_dig(ports.dns, &promise.system, "A", &[]).expect("ours answers");
            assert_eq!(resolved.sorted("A"), authoritative.sorted("A"), "{name}");
        }
    }
    let absent = try_dig(resolver, "absent.routes.v3.rhcloud.com", "A", &["+recurse"]).expect("the resolver answers");
    assert_eq!(absent.status, "NXDOMAIN");
}
