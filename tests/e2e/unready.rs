//! A name server before it has reached the API: zone files answer, the platform's names do not, and no name is denied that can
//! exist. And the serial of the parent zone when it replaces its zone file.

use signpost_testing::{DataDir, Ports, Server, eventually, free_address, try_dig};

const NAME_SERVER: [&str; 4] = ["--domain", "v3.example", "--nameserver", "ns1.v3.example=192.0.2.53"];

fn soa(serial: u32) -> String {
    format!("$TTL 300\n@ SOA ns.example.org. admin.example.org. {serial} 3600 600 86400 60\n@ NS ns.example.org.\n")
}

#[test]
fn zone_files_answer_while_the_api_is_not_heard() {
    let data = DataDir::new();
    let zones = data.join("zones");
    std::fs::create_dir(&zones).expect("a folder");
    let write = |name: &str, text: String| std::fs::write(zones.join(name), text).expect("written");
    write("example.org.zone", soa(1) + "www A 192.0.2.1\n");
    // Above the platform's domain, and without a delegation of it.
    write("example.zone", soa(1) + "www A 192.0.2.2\n");
    // The platform's own zone: its contents are not known yet.
    write("v3.example.zone", soa(2_009_092_001) + "www A 192.0.2.3\n");
    let kubeconfig = data.join("kubeconfig");
    std::fs::write(
        &kubeconfig,
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {{server: 'https://{}', \
             insecure-skip-tls-verify: true}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: \
             {{cluster: k, user: u}}}}]\n",
            free_address()
        ),
    )
    .expect("written");
    let path = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let (zones, kubeconfig) = (path(&zones), path(&kubeconfig));
    let mut arguments = vec!["--roles", "dns,admin", "--data-dir", data.path(), "--zones", &zones];
    arguments.extend(["--kubeconfig", &kubeconfig]);
    arguments.extend(NAME_SERVER);
    let server = Server::spawn(Ports::free(), &arguments);
    let status = |name: &str| try_dig(server.dns, name, "A", &[]).map(|response| response.status);
    eventually("the zone file answers", || (status("www.example.org")? == "NOERROR").then_some(()));
    for (name, expected) in [
        ("nothing.example.org", "NXDOMAIN"),
        ("www.example", "NOERROR"),
        ("nothing.example", "NXDOMAIN"),
        ("v3.example", "SERVFAIL"),
        ("www.v3.example", "SERVFAIL"),
        ("app.shard1.v3.example", "SERVFAIL"),
        ("app.routes.v3.example", "SERVFAIL"),
        // It may be a shard's: a Router's zone can lie anywhere.
        ("app.example.net", "SERVFAIL"),
    ] {
        eventually(&format!("{name} is {expected}"), || (status(name)? == expected).then_some(()));
    }
}

#[test]
fn the_serial_of_the_parent_zone_goes_on_from_its_file() {
    let data = DataDir::new();
    let zones = data.join("zones");
    std::fs::create_dir(&zones).expect("a folder");
    std::fs::write(zones.join("v3.example.zone"), soa(2_009_092_001) + "www A 192.0.2.3\n").expect("written");
    let folder = zones.to_str().expect("UTF-8");
    let store = data.join("data");
    let arguments = [&["--data-dir", store.to_str().expect("UTF-8"), "--zones", folder][..], &NAME_SERVER].concat();
    let server = Server::start(Ports::free(), &arguments);
    let serial = eventually("the parent zone", || try_dig(server.dns, "v3.example", "SOA", &[])?.serial());
    let ahead = serial.wrapping_sub(2_009_092_001);
    assert!((1..1 << 31).contains(&ahead), "{serial} is not newer than the file's serial (RFC 1982)");
    let www = try_dig(server.dns, "www.v3.example", "A", &[]).expect("an answer");
    assert_eq!(www.answer.len(), 1, "the file's records are part of the parent zone");
}
