//! Another `--domain` on the same objects, by a typing error or a flag left out: nothing is made of it, nothing is taken
//! away, and it is said; with `--former-domain` it is meant.

use crate::platform::apply_example;
use crate::server::{DataDir, Ports, Server, eventually, http_get};
use crate::tools::{Kubectl, dig};

const DOMAIN: [&str; 2] = ["--domain", "v3.rhcloud.com"];
const OTHER: [&str; 2] = ["--domain", "v4.rhcloud.com"];

#[test]
fn another_domain_is_not_taken_for_meant() {
    let data = DataDir::new();
    let ports = Ports::free();
    let whole = ["--data-dir", data.path()];
    let server = Server::start(ports, &[&whole[..], &DOMAIN].concat());
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let (scheduled, _) = apply_example(&kubectl);
    assert!(server.terminate().success());

    // Where the API is in the process, it does not start, and nothing has changed.
    for roles in [&whole[..], &["--data-dir", data.path(), "--roles", "api,admin"]] {
        let mut refused = Server::spawn(ports, &[roles, &OTHER].concat());
        assert_eq!(refused.wait().code(), Some(1), "{}", refused.log());
        let log = refused.log();
        assert!(log.contains("of the platform v3.rhcloud.com") && log.contains("--former-domain"), "{log}");
    }
    let api = Server::start(ports, &[&whole[..], &DOMAIN, &["--roles", "api,dns,admin"]].concat());
    let zones = |kubectl: &Kubectl| kubectl.ok(&["get", "zones", "-o", "name"]);
    let before = zones(&kubectl);
    assert!(before.contains("/v3.rhcloud.com") && before.contains("/routes.v3.rhcloud.com"), "{before}");

    // Where it is elsewhere, the process waits, and says for what.
    let waits = |roles: &str, kubeconfig: &str| {
        let kubeconfig = data.join(kubeconfig);
        let folder = DataDir::new();
        let arguments = ["--roles", roles, "--kubeconfig", kubeconfig.to_str().expect("UTF-8")];
        let ports = Ports::free();
        let server = Server::spawn(ports, &[&arguments[..], &["--data-dir", folder.path()], &OTHER].concat());
        eventually("it says that the domain is another one", || {
            let (status, text) = http_get(ports.admin, "/readyz")?;
            (status == 503 && text.contains("of the platform v3.rhcloud.com")).then_some(())
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

    // Said to be meant, the names are others, and what the former domain had is gone.
    let former = ["--former-domain", "v3.rhcloud.com"];
    let _server = Server::start(ports, &[&whole[..], &OTHER, &former].concat());
    eventually("the ledger is the new domain's", || {
        let zones = zones(&kubectl);
        let is_new = zones.contains("/v4.rhcloud.com") && !zones.lines().any(|zone| zone.ends_with("/v3.rhcloud.com"));
        is_new.then_some(())
    });
}
