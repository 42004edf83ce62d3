//! A process has one list-watch of each kind, for any number of loops; the audit log shows it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::dig;
use signpost_testing::{DataDir, Ports, Server, eventually, root};

#[test]
fn the_audit_log_shows_few_watches_and_lists() {
    let data = DataDir::new();
    let example = root().join("examples/rhcloud");
    let example = example.to_str().expect("UTF-8");
    let server =
        Server::start(Ports::free(), &["--data-dir", data.path(), "--manifests", example, "--audit-policy", "all"]);
    all_roles_in_one_process_watch_each_kind_once(&data);
    dig::one_name_takes_no_list_of_routes(&data, &server);
}

fn all_roles_in_one_process_watch_each_kind_once(data: &DataDir) {
    let kinds = [
        "challengerecords",
        "deletionholds",
        "nameclaims",
        "namespaces",
        "routebindings",
        "routers",
        "routes",
        "zones",
    ];
    let expected: BTreeMap<&str, usize> = kinds.into_iter().map(|kind| (kind, 1)).collect();
    eventually("the loops of a leader run, and each kind is watched once", || {
        let text = std::fs::read_to_string(data.join("audit.log")).expect("the audit log is there");
        let events: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let of = |event: &Value| {
            let text = |place: &str| event.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
            [text("/user/username"), text("/verb"), text("/objectRef/resource")]
        };
        let events: Vec<[String; 3]> = events.iter().map(of).collect();
        let mut watches: BTreeMap<&str, usize> = BTreeMap::new();
        for [user, verb, resource] in &events {
            // The one Lease that decides who leads is watched by name.
            if verb == "watch" && user.starts_with("system:signpost:") && resource != "leases" {
                *watches.entry(resource.as_str()).or_default() += 1;
            }
        }
        assert!(watches.values().all(|count| *count == 1), "{watches:?}");
        // The ledger writes Zones, and the verification of names the status of Routes.
        let writes = |of: &str| {
            events.iter().any(|[user, verb, resource]| {
                user == "system:signpost:controller"
                    && resource == of
                    && ["create", "patch", "update"].contains(&&**verb)
            })
        };
        (watches == expected && writes("zones") && writes("routes")).then_some(())
    });
}
