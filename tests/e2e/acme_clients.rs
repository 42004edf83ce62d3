//! ACME clients that prove names by updates of DNS (RFC 2136): `nsupdate`, lego, and certbot, with Pebble as the authority. Pebble queries the
//! program itself.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use signpost_testing::program::ok;
use signpost_testing::{DataDir, Kubectl, Ports, Process, Scrape, Server, eventually, free_address, try_dig};

const OBJECTS: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n---\n\
     apiVersion: v1\nkind: Namespace\nmetadata: {name: team-b}\n---\n\
     apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard1}\nspec: {addresses: [{ip: 192.0.2.1}]}\n---\n\
     apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: app, namespace: team-a}\nspec: {to: {name: web}}\n---\n\
     apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: app, namespace: team-b}\nspec: {to: {name: web}}\n";

const HOST: &str = "team-a-app.shard1.v3.rhcloud.com";
const CHALLENGE: &str = "_acme-challenge.team-a-app.shard1.v3.rhcloud.com";

/// Runs `nsupdate`, and returns what it prints; `None` after SERVFAIL.
fn nsupdate(arguments: &[&str]) -> Option<String> {
    let output = Command::new("nsupdate").args(arguments).output().expect("nsupdate is installed (bind9-dnsutils)");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned();
    (!said.contains("SERVFAIL")).then_some(said)
}

/// Waits until a client has succeeded. Its update can get SERVFAIL on a busy machine; then it runs again.
fn succeeds(mut process: Process, again: impl Fn() -> Process) {
    while !process.wait().success() {
        assert!(process.log().contains("SERVFAIL"), "{}", process.log());
        process = again();
    }
}

/// The platform with a Route, and a key for each of two namespaces.
struct Platform {
    data: DataDir,
    server: Server,
    kubectl: Kubectl,
    /// The secret of each key, in Base64.
    secrets: [String; 2],
}

impl Platform {
    fn start() -> Platform {
        let data = DataDir::new();
        let files = ["a", "b"].map(|team| data.file(&format!("{team}.key")));
        let secrets = ["a", "b"].map(|team| {
            let file = data.file(&format!("{team}.key"));
            ok(&["key", "tsig", "generate", &format!("acme.team-{team}"), "--output", &file]);
            let text = std::fs::read_to_string(file).expect("it was written");
            text.split('"').nth(3).expect("a secret").to_owned()
        });
        let mut arguments = vec!["--data-dir", data.path()];
        files.iter().for_each(|file| arguments.extend(["--dns-tsig-keys", file]));
        for right in ["key=acme.team-a,namespace=team-a", "key=acme.team-b,namespace=team-b"] {
            arguments.extend(["--dns-update", right]);
        }
        let server = Server::start(Ports::free(), &arguments);
        let kubectl = Kubectl::new(data.join("kubeconfig"));
        kubectl.ok_with(&["apply", "-f", "-"], OBJECTS);
        eventually("the name is served", || {
            try_dig(server.dns, HOST, "A", &[]).filter(|answer| answer.data("A") == ["192.0.2.1"])
        });
        Platform { data, server, kubectl, secrets }
    }

    /// Sends an update; `key` is `[ALGORITHM:]NAME:SECRET`. Returns what `nsupdate` prints. An update that takes too long on a busy machine gets
    /// SERVFAIL, and is repeated.
    fn nsupdate(&self, key: &str, zone: &str, lines: &str) -> String {
        let (at, port) = (self.server.dns.ip(), self.server.dns.port());
        let script = self.data.write("update", format!("server {at} {port}\nzone {zone}\n{lines}\nsend\n"));
        eventually("the update is answered", || nsupdate(&["-y", key, "-t", "30", &script]))
    }

    fn key(&self, team: usize) -> String {
        format!("hmac-sha256:acme.team-{}:{}", ["a", "b"][team], self.secrets[team])
    }

    /// Returns the TXT values of a name, in order.
    fn texts(&self, name: &str) -> Vec<String> {
        let answer = try_dig(self.server.dns, name, "TXT", &[]).expect("an answer");
        answer.sorted("TXT").into_iter().map(|text| text.trim_matches('"').to_owned()).collect()
    }
}

#[test]
fn a_key_changes_the_challenges_of_its_namespace_only() {
    let platform = Platform::start();
    let (ours, theirs) = (platform.key(0), platform.key(1));
    let (shard, parent) = ("shard1.v3.rhcloud.com", "v3.rhcloud.com");
    let add = |name: &str, value: &str| format!("update add {name} 60 TXT {value}");
    let acme = "team-a-app.acme.v3.rhcloud.com";
    let alias = "_acme-challenge.team-a-app.routes.v3.rhcloud.com";
    for (key, zone, lines, expected) in [
        (&ours, shard, add(CHALLENGE, "one"), ""),
        // The answer is there when the record is: no test waits.
        (&ours, shard, format!("update delete {CHALLENGE} TXT\n{}", add(CHALLENGE, "two")), ""),
        (&ours, parent, add(acme, "v"), ""),
        (&ours, "routes.v3.rhcloud.com", add(alias, "v"), ""),
        (&theirs, shard, add(CHALLENGE, "evil"), "REFUSED"),
        (&theirs, shard, format!("update delete {CHALLENGE} TXT one"), "REFUSED"),
        (&theirs, parent, add(acme, "evil"), "REFUSED"),
        (&ours, shard, add("_acme-challenge.shard1.v3.rhcloud.com", "evil"), "REFUSED"),
        (&ours, shard, add(HOST, "evil"), "REFUSED"),
        (&ours, shard, format!("update add {HOST} 60 A 192.0.2.66"), "REFUSED"),
        (&ours, shard, format!("prereq nxdomain {CHALLENGE}\n{}", add(CHALLENGE, "three")), "YXDOMAIN"),
        (&ours, parent, add(CHALLENGE, "v"), "NOTZONE"),
        (&ours, "rhcloud.com", add(CHALLENGE, "v"), "NOTAUTH"),
    ] {
        let found = platform.nsupdate(key, zone, &lines);
        let is_expected = if expected.is_empty() { found.is_empty() } else { found.contains(expected) };
        assert!(is_expected, "{zone} {lines}: {found}");
    }
    assert_eq!(platform.texts(CHALLENGE), ["one", "two"]);
    assert_eq!((platform.texts(acme), platform.texts(alias)), (vec!["v".to_owned()], vec!["v".to_owned()]));
    // The name of the Route still has its address.
    let address = try_dig(platform.server.dns, HOST, "A", &[]).expect("an answer");
    assert_eq!(address.data("A"), ["192.0.2.1"]);
    let records = platform.kubectl.json(&["challengerecords", "-n", "team-a"]);
    assert_eq!(records["items"].as_array().map(Vec::len), Some(4), "{records}");
    assert_eq!(records["items"][0]["spec"]["key"], "acme.team-a");

    assert_eq!(platform.nsupdate(&ours, shard, &format!("update delete {CHALLENGE} TXT one")), "");
    assert_eq!(platform.texts(CHALLENGE), ["two"]);
    // Keys: an unknown one, another secret, another algorithm, a short MAC, and HMAC-MD5.
    let secret = &platform.secrets[0];
    for (key, error) in [
        (format!("hmac-sha256:unknown:{secret}"), "BADKEY"),
        (theirs.replace("team-b", "team-a"), "BADSIG"),
        (ours.replace("sha256", "sha512"), "BADKEY"),
        (ours.replace("sha256", "sha256-128"), "BADTRUNC"),
        (ours.replace("sha256", "md5"), "BADKEY"),
    ] {
        let found = platform.nsupdate(&key, shard, &add(CHALLENGE, "evil"));
        assert!(found.contains(error), "{key}: {found}");
    }
    platform.server.logs("set dns_rfc2136_algorithm = HMAC-SHA256");
    let (at, port) = (format!("@{}", platform.server.dns.ip()), platform.server.dns.port().to_string());
    let late = ["+10 minutes", "kdig", "+retry=0", "-y", &ours, "-p", &port, &at, shard, "SOA"];
    let late = Command::new("faketime").args(late).output().expect("faketime is installed");
    let said = String::from_utf8_lossy(&late.stdout).into_owned();
    assert!(said.contains("status: BADTIME"), "{said}");
    let scrape = Scrape::of(platform.server.admin);
    let count = |result: &str| scrape.sum("signpost_dns_updates_total", &[("result", result)]);
    assert_eq!(
        (count("applied"), count("refused"), count("prerequisite"), count("not_authoritative")),
        (5.0, 6.0, 1.0, 2.0)
    );
    // The scripts of acme.sh for a name and its wildcard: without a zone, so that nsupdate looks for it. It deletes the RRset once for
    // each of the two values, which keeps young ones: they can be those of another order.
    let acme_sh = |line: &str| {
        let script =
            platform.data.write("update", format!("server {}  {port}\n{line}\nsend\n", platform.server.dns.ip()));
        let said = eventually("the update is answered", || nsupdate(&["-k", &platform.data.file("a.key"), &script]));
        assert_eq!(said, "", "{line}");
        platform.texts(CHALLENGE)
    };
    let (add, delete) =
        (|value: &str| format!("update add {CHALLENGE}. 60 in txt \"{value}\""), "update delete {}. txt");
    assert_eq!(acme_sh(&add("v1")), ["two", "v1"]);
    assert_eq!(acme_sh(&add("v2")), ["two", "v1", "v2"]);
    for _ in 0..2 {
        assert_eq!(acme_sh(&delete.replace("{}", CHALLENGE)), ["two", "v1", "v2"]);
    }
}

/// Pebble, which queries this name server.
struct Authority {
    address: SocketAddr,
    certificate: String,
    _process: Process,
}

impl Authority {
    fn start(data: &DataDir, dns: SocketAddr) -> Authority {
        let (address, management) = (free_address(), free_address());
        let private = rcgen::KeyPair::generate().expect("a key");
        let names = vec![address.ip().to_string()];
        let certificate =
            rcgen::CertificateParams::new(names).expect("a name").self_signed(&private).expect("a certificate");
        let (crt, key) =
            (data.write("pebble.crt", certificate.pem()), data.write("pebble.key", private.serialize_pem()));
        let configuration = json!({"pebble": {
            "listenAddress": address.to_string(), "managementListenAddress": management.to_string(),
            "certificate": crt, "privateKey": key, "httpPort": 5002, "tlsPort": 5001,
        }});
        let configuration = data.write("pebble.json", configuration.to_string());
        let dns = dns.to_string();
        let mut command = Command::new("pebble");
        command.args(["-config", &configuration, "-dnsserver", &dns]).env("PEBBLE_VA_NOSLEEP", "1");
        // certbot gives up after two rejected nonces in a row.
        command.env("PEBBLE_WFE_NONCEREJECT", "0");
        let process = Process::logged(&mut command);
        eventually("Pebble listens", || std::net::TcpStream::connect(address).ok());
        Authority { address, certificate: crt, _process: process }
    }

    fn directory(&self) -> String {
        format!("https://{}/dir", self.address)
    }
}

fn lego(platform: &Platform, authority: &Authority, folder: &Path, domains: &[&str], more: &[&str]) -> Command {
    let dns = platform.server.dns.to_string();
    let mut command = Command::new("lego");
    command.args(["--server", &authority.directory(), "--email", "a@example.com", "--accept-tos", "--dns", "rfc2136"]);
    command.args(["--dns.resolvers", &dns, "--dns.disable-cp", "--path"]).arg(folder);
    command.args(domains.iter().flat_map(|domain| ["--domains", domain]));
    let keys = [("KEY", "acme.team-a."), ("SECRET", &platform.secrets[0]), ("ALGORITHM", "hmac-sha256.")];
    command.envs(keys.map(|(name, value)| (format!("RFC2136_TSIG_{name}"), value)));
    // By default, it waits for a minute between two challenges.
    command.env("RFC2136_SEQUENCE_INTERVAL", "1");
    command.args(more).env("LEGO_CA_CERTIFICATES", &authority.certificate).env("RFC2136_NAMESERVER", dns);
    command
}

#[test]
fn lego_and_certbot_obtain_and_renew_certificates() {
    let platform = Platform::start();
    let authority = Authority::start(&platform.data, platform.server.dns);
    let wildcard = format!("*.{HOST}");
    // Two orders for one name of the challenge at the same time, and one with both names.
    let (one, other, both) = (platform.data.join("one"), platform.data.join("other"), platform.data.join("both"));
    let orders = [(&one, vec![HOST]), (&other, vec![&*wildcard]), (&both, vec![HOST, &wildcard])];
    let run = |(folder, domains): &(&PathBuf, Vec<&str>)| {
        Process::logged(&mut lego(&platform, &authority, folder, domains, &["run"]))
    };
    let running: Vec<Process> = orders.iter().map(run).collect();
    for (order, process) in orders.iter().zip(running) {
        succeeds(process, || run(order));
    }
    let certificate = one.join(format!("certificates/{HOST}.crt"));
    let first = std::fs::read(&certificate).expect("a certificate");
    let more = ["renew", "--days", "9999", "--no-random-sleep"];
    let renew = || Process::logged(&mut lego(&platform, &authority, &one, &[HOST], &more));
    succeeds(renew(), renew);
    assert_ne!(std::fs::read(&certificate).expect("a certificate"), first);

    let (at, port) = (platform.server.dns.ip(), platform.server.dns.port());
    let secret = &platform.secrets[0];
    let credentials = platform.data.write(
        "certbot.ini",
        format!(
            "dns_rfc2136_server = {at}\ndns_rfc2136_port = {port}\ndns_rfc2136_name = acme.team-a.\n\
             dns_rfc2136_secret = {secret}\ndns_rfc2136_algorithm = HMAC-SHA256\ndns_rfc2136_sign_query = true\n"
        ),
    );
    let folder = platform.data.file("certbot");
    let mut certbot = Command::new("certbot");
    certbot.args([
        "certonly",
        "--non-interactive",
        "--agree-tos",
        "--register-unsafely-without-email",
        "--dns-rfc2136",
    ]);
    certbot.args(["--dns-rfc2136-credentials", &credentials, "--dns-rfc2136-propagation-seconds", "0"]);
    certbot.args(["--server", &authority.directory(), "-d", HOST, "-d", &wildcard]);
    certbot.args(["--config-dir", &folder, "--work-dir", &folder, "--logs-dir", &folder]);
    certbot.env("REQUESTS_CA_BUNDLE", &authority.certificate);
    let certbot = RefCell::new(certbot);
    let run = || Process::logged(&mut certbot.borrow_mut());
    succeeds(run(), run);

    // All of them delete their values afterwards.
    let records: Value = platform.kubectl.json(&["challengerecords", "-n", "team-a"]);
    assert_eq!(records["items"].as_array().map(Vec::len), Some(0), "{records}");
    assert_eq!(platform.texts(CHALLENGE), Vec::<String>::new());
}
