//! Signpost between other name servers: a primary server with a catalog, and a second Signpost as its secondary server.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;
use signpost_testing::net::{free_address, http_get};
use signpost_testing::program::{ok, run};
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, try_dig};

const SHARD: &str = "
apiVersion: signpost.dev/v1alpha1
kind: Router
metadata: {name: shard2}
spec: {dns: shard2.v3.rhcloud.com, addresses: [{ip: 192.0.2.2}]}
";

/// Returns the output of `dig` with the key.
fn signed(server: SocketAddr, key: &str, arguments: &[&str]) -> String {
    let (at, port) = (format!("@{}", server.ip()), server.port().to_string());
    let output =
        Command::new("dig").args([&at, "-p", &port, "-k", key]).args(arguments).output().expect("dig is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn shards_appear_in_the_catalog_and_a_secondary_server_follows_a_zone() {
    let (data, copies, key) = (DataDir::new(), DataDir::new(), DataDir::new());
    let key = key.file("transfer.key");
    ok(&["key", "tsig", "generate", "transfer.example", "--output", &key]);
    let (primary, secondary) = (Ports::free(), Ports::free());
    let secondary_address = secondary.dns.to_string();
    let configuration = data.write(
        "signpost.toml",
        format!(
            "domain = \"v3.rhcloud.com\"\n[dns]\ntsig-keys = [\"{key}\"]\n[[dns.transfer]]\nkey = \"transfer.example\"\n\
             [[dns.secondary]]\naddress = \"{secondary_address}\"\nkey = \"transfer.example\"\nzone = \"v3.rhcloud.com\"\n\
             [dns.catalog]\nname = \"catalog.invalid\"\n[[dns.catalog.group]]\nname = \"shards\"\nzone = \"*.v3.rhcloud.com\"\n"
        ),
    );
    let arguments =
        ["--config", &configuration, "--data-dir", data.path(), "--nameserver", "ns1.v3.rhcloud.com=127.0.0.1"];
    let server = Server::start(primary, &arguments);
    let members = || {
        let text = signed(server.dns, &key, &["catalog.invalid", "AXFR", "+noall", "+answer"]);
        let mut members: Vec<String> = text
            .lines()
            .filter_map(|line| {
                Some(line.split_once(" PTR ").or_else(|| line.split_once("\tPTR\t"))?.1.trim().to_owned())
            })
            .collect();
        members.sort();
        members
    };
    eventually("the catalog is complete", || {
        (members() == ["routes.v3.rhcloud.com.", "v3.rhcloud.com."]).then_some(())
    });
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], SHARD);
    eventually("the shard is in the catalog", || {
        members().contains(&"shard2.v3.rhcloud.com.".to_owned()).then_some(())
    });
    let text = signed(server.dns, &key, &["catalog.invalid", "AXFR", "+noall", "+answer"]);
    assert!(text.contains("\"shards\""), "{text}");
    let refused = try_dig(server.dns, "catalog.invalid", "SOA", &[]).expect("an answer");
    assert_eq!(refused.status, "REFUSED");

    // The secondary server does not run yet.
    let admin = format!("http://{}", server.admin);
    let status = || {
        let listen = server.dns.to_string();
        let arguments =
            ["--admin", &admin, "--config", &configuration, "--data-dir", data.path(), "--dns-listen", &listen];
        run(&[&["zone", "status", "v3.rhcloud.com", "-o", "json"], &arguments[..]].concat())
    };
    let found = eventually("NOTIFY has failed", || {
        let ran = status();
        assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
        let rows: Value = serde_json::from_str(&ran.out).expect("JSON");
        let secondary = rows[0]["secondaries"][0].clone();
        secondary["notifyError"].is_string().then_some(secondary)
    });
    assert!(found["server"] == secondary_address.as_str() && found["error"].is_string(), "{found}");

    // Another Signpost, which needs no API, as the secondary server.
    let mine = copies.write(
        "signpost.toml",
        format!(
            "roles = [\"dns\", \"admin\"]\n[dns]\ntsig-keys = [\"{key}\"]\n[[dns.primary]]\nzone = \"v3.rhcloud.com\"\n\
             address = \"{}\"\nkey = \"transfer.example\"\n",
            server.dns
        ),
    );
    let arguments = ["--config", &mine, "--data-dir", copies.path()];
    let second = Server::start(secondary, &arguments);
    let serial = |server: SocketAddr| try_dig(server, "v3.rhcloud.com", "SOA", &[])?.serial();
    eventually("the zone is there", || serial(second.dns).filter(|found| Some(*found) == serial(server.dns)));
    kubectl.ok_with(&["apply", "-f", "-"], &SHARD.replace("shard2", "shard3"));
    let answer = || try_dig(second.dns, "a.shard3.v3.rhcloud.com", "A", &["+norecurse"]);
    eventually("the delegation of the new shard is there", || {
        answer().filter(|answer| !answer.authority.is_empty()).map(drop)
    });
    let page = http_get(server.admin, "/secondaries").expect("an answer").1;
    assert!(page.contains("\"state\":"), "{page}");
    eventually("all are in step", || (status().code == Some(0)).then_some(()));

    // Without the primary server, a restart serves the copy.
    let last = serial(second.dns).expect("a serial");
    assert!(server.terminate().success() && second.terminate().success());
    let second = Server::start(Ports::free(), &arguments);
    assert_eq!(serial(second.dns), Some(last));
}

#[test]
fn a_catalog_below_a_zone_and_a_missing_key_are_errors() {
    let data = DataDir::new();
    data.write("a.example.zone", "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n");
    let listen = free_address().to_string();
    let serve = [
        "serve",
        "--roles",
        "dns,admin",
        "--zones",
        data.path(),
        "--dns-listen",
        &listen,
        "--admin-listen",
        "127.0.0.1:0",
    ];
    let failed = run(&[&serve[..], &["--dns-catalog-name", "catalog.a.example"]].concat());
    assert!(failed.code != Some(0) && failed.err.contains("at or below the served zone a.example."), "{}", failed.err);
    let primary = ["--data-dir", data.path(), "--dns-primary", "zone=b.example,address=192.0.2.1,key=k.example"];
    let failed = run(&[&serve[..], &primary].concat());
    assert!(failed.code != Some(0) && failed.err.contains("key k.example. is in no key file"), "{}", failed.err);
}

const ROUTE: &str = "
apiVersion: signpost.dev/v1alpha1
kind: Route
metadata: {name: NAME, namespace: default}
spec: {to: {name: web}}
";

/// A Route is `Resolvable` when a secondary server with `verify` has its names, too. A server that does not answer is reported, and delays
/// Routes for seconds only.
#[test]
fn a_secondary_server_is_part_of_resolvable() {
    let (data, copies) = (DataDir::new(), DataDir::new());
    let (primary, secondary) = (Ports::free(), Ports::free());
    let secondary_address = secondary.dns.to_string();
    let configuration = data.write(
        "signpost.toml",
        format!(
            "domain = \"v3.rhcloud.com\"\n[[dns.transfer]]\nnetwork = \"127.0.0.0/8\"\n\
             [[dns.secondary]]\naddress = \"{secondary_address}\"\nsource = \"127.0.0.1\"\nverify = true\n"
        ),
    );
    let server = Server::start(primary, &["--config", &configuration, "--data-dir", data.path()]);
    let zones = ["v3.rhcloud.com", "routes.v3.rhcloud.com", "shard2.v3.rhcloud.com"].map(|zone| format!("\"{zone}\""));
    let mine = copies.write(
        "signpost.toml",
        format!(
            "roles = [\"dns\", \"admin\"]\n[[dns.primary]]\nzone = [{}]\naddress = \"{}\"\n",
            zones.join(", "),
            server.dns
        ),
    );
    let second = Server::start(secondary, &["--config", &mine, "--data-dir", copies.path()]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let create = |name: &str| kubectl.ok_with(&["apply", "-f", "-"], &ROUTE.replace("NAME", name));
    let resolvable = |name: &str| {
        let condition = || kubectl.condition(&["routes.signpost.dev", "-n", "default", name], "Resolvable");
        eventually("the Route is resolvable", || condition().filter(|condition| condition.status == "True"))
    };
    kubectl.ok_with(&["apply", "-f", "-"], SHARD);
    for number in 0..5 {
        let name = format!("app{number}");
        create(&name);
        let message = resolvable(&name).message;
        // In this moment, the secondary server answers.
        let alias = format!("default-{name}.routes.v3.rhcloud.com");
        let answer = try_dig(second.dns, &alias, "CNAME", &["+norecurse"]).expect("an answer");
        assert_eq!((answer.status.as_str(), answer.answer.len()), ("NOERROR", 1), "{alias}");
        assert!(message.contains(&format!("secondary ({secondary_address}) with serials")), "{message}");
    }
    // It ends; a new Route waits, and is then resolvable without it.
    assert!(second.terminate().success());
    create("alone");
    let message = resolvable("alone").message;
    assert!(message.contains(&format!("; secondary ({secondary_address}) does not answer")), "{message}");
    let before =
        kubectl.condition(&["routes.signpost.dev", "-n", "default", "app0"], "Resolvable").expect("it was verified");
    assert_eq!(before.status, "True");
}
