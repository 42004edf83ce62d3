//! A resolver over it: `unbound` follows the delegation from the parent's server to ours.
//!
//! The test makes a network namespace of its own, where every loopback address has a port 53: the parent zone is served
//! on one address, the shards on another, and the resolver on a third knows only the parent's.

use std::process::{Child, Command, Stdio};

use crate::platform::apply_example;
use crate::server::{DataDir, Ports, Server, eventually, program};
use crate::tools::{Kubectl, inside_namespace, try_dig};

/// A child that is killed when the test ends.
pub struct Daemon(pub Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

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

    // The parent's server has the parent zone alone, as it was exported.
    let exported = DataDir::new();
    let kubeconfig = data.join("kubeconfig");
    let export = Command::new(program())
        .args(["zone", "export", "--kubeconfig", kubeconfig.to_str().expect("UTF-8"), "--out", exported.path()])
        .args(common)
        .output()
        .expect("the program runs");
    assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
    let parent_zones = DataDir::new();
    std::fs::copy(exported.join("v3.rhcloud.com.zone"), parent_zones.join("v3.rhcloud.com.zone"))
        .expect("was exported");
    let parent_ports = Ports { dns: "127.0.0.2:53".parse().expect("an address"), ..Ports::free() };
    let _parent = Server::start(parent_ports, &["--roles", "dns,admin", "--zones", parent_zones.path()]);
    let referral = try_dig(parent_ports.dns, &scheduled[0].system, "A", &[]).expect("the parent answers");
    assert!(referral.answer.is_empty() && !referral.flags.contains(&"aa".to_owned()), "{referral:?}");
    assert!(referral.additional.iter().any(|record| record.data == "127.0.0.3"), "glue: {referral:?}");

    let configuration = data.join("unbound.conf");
    std::fs::write(
        &configuration,
        "server:\n  interface: 127.0.0.4\n  port: 53\n  username: \"\"\n  chroot: \"\"\n  directory: \"/\"\n  pidfile: \"\"\n\
         \x20 use-syslog: no\n  do-daemonize: no\n  do-not-query-localhost: no\n  module-config: \"iterator\"\n\
         \x20 access-control: 127.0.0.0/8 allow\n  local-zone: \"test.\" nodefault\n\
         stub-zone:\n  name: \"v3.rhcloud.com\"\n  stub-addr: 127.0.0.2\nremote-control:\n  control-enable: no\n",
    )
    .expect("the data directory can be written");
    let unbound = Command::new("unbound")
        .arg("-c")
        .arg(&configuration)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _unbound = Daemon(unbound.expect("unbound is installed: the test command of the README installs it"));
    let resolver = "127.0.0.4:53".parse().expect("an address");

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
