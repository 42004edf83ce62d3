//! Secrets become certificates of proxies, and the last good one stays.

use std::os::unix::fs::PermissionsExt as _;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Status;
use rcgen::{CertificateParams, KeyPair as Key};

use super::*;

const NOW: i64 = 1_767_225_600;
const DAY: i64 = 86_400;

/// A certificate and its key for hosts, valid for days from `NOW`.
fn pair(hosts: &[&str], from: i64, until: i64) -> (String, String) {
    let day = |days: i64| {
        let seconds = u64::try_from(NOW + days * DAY).expect("after 1970");
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut parameters = CertificateParams::new(hosts).expect("names");
    (parameters.not_before, parameters.not_after) = (day(from), day(until));
    let key = Key::generate().expect("a key");
    (parameters.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

fn secret(kind: &str, version: u32, data: &[(&str, &[u8])]) -> Secret {
    Secret {
        metadata: ObjectMeta {
            uid: Some("u".to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        },
        type_: Some(kind.to_owned()),
        data: Some(data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec()))).collect()),
        ..Secret::default()
    }
}

fn tls(version: u32, (chain, key): &(String, String)) -> Secret {
    secret(TYPE, version, &[("tls.crt", chain.as_bytes()), ("tls.key", key.as_bytes())])
}

fn rejected(code: u16, message: &str) -> Error {
    Error::Api(Box::new(Status { code, message: message.to_owned(), ..Status::default() }))
}

/// Hosts with their Secrets, `host=namespace/name`.
fn wanted(pairs: &[&str]) -> Arc<BTreeMap<Host, SecretKey>> {
    let pair = |text: &&str| {
        let (host, key) = text.split_once('=').expect("a pair");
        let (namespace, name) = key.split_once('/').expect("a key");
        (host.parse().expect("a host"), (namespace.to_owned(), name.to_owned()))
    };
    Arc::new(pairs.iter().map(pair).collect())
}

fn key(namespace: &str, name: &str) -> SecretKey {
    (namespace.to_owned(), name.to_owned())
}

impl Secrets {
    /// Returns the report as text: `host=number of the pair served:reason`.
    fn shown(&self, pairs: &[&(String, String)]) -> String {
        let certificates = self.certificates();
        let number = |host: &Host| {
            let pem = &certificates.get(host)?.pem;
            pairs.iter().position(|(chain, _)| pem.starts_with(&chain.replace("\r\n", "\n")))
        };
        let one = |(host, report): (Host, CertificateReport)| {
            assert_eq!(report.served.is_some(), certificates.contains_key(&host), "{host}");
            let reason = report.secret.expect("all are of Secrets").reason;
            let served = number(&host).map_or("-".to_owned(), |number| number.to_string());
            format!("{host}={served}:{}", reason.map_or(String::new(), |reason| format!("{reason:?}")))
        };
        self.report().into_iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn contents_that_cannot_be_used() {
    let (good, other) = (pair(&["a.example"], -1, 1), pair(&["a.example"], -1, 1));
    let of = |kind: &str, chain: &str, key: &str| {
        load(&secret(kind, 1, &[("tls.crt", chain.as_bytes()), ("tls.key", key.as_bytes())]))
            .map(|loaded| loaded.served.names.len())
    };
    let (chain, private) = (good.0.as_str(), good.1.as_str());
    let encrypted = private.replace("PRIVATE", "ENCRYPTED PRIVATE");
    let weak = include_str!("../pem/rsa1024-sha1.pem");
    let bomb = format!("-----BEGIN CERTIFICATE-----\n{}", "A\n".repeat(1 << 19));
    for (kind, chain, key, expected) in [
        (TYPE, chain, private, None),
        (TYPE, &chain.replace('\n', "\r\n"), private, None),
        (TYPE, &chain.repeat(2), private, None),
        ("Opaque", chain, private, Some(SecretFault::WrongType)),
        (TYPE, "", private, Some(SecretFault::Invalid)),
        (TYPE, private, private, Some(SecretFault::Invalid)),
        (TYPE, chain, chain, Some(SecretFault::Invalid)),
        (TYPE, chain, &encrypted, Some(SecretFault::Invalid)),
        (TYPE, &chain.replacen("MI", "AA", 1), private, Some(SecretFault::Invalid)),
        (TYPE, &format!("{chain}{weak}"), private, Some(SecretFault::Invalid)),
        (TYPE, chain, &other.1, Some(SecretFault::KeyMismatch)),
        (TYPE, &chain.repeat(CHAIN_MAX + 1), private, Some(SecretFault::TooLarge)),
        (TYPE, &bomb, private, Some(SecretFault::TooLarge)),
        (TYPE, &bomb[..TEXT_BYTES_MAX - 1_000], private, Some(SecretFault::Invalid)),
        (
            TYPE,
            &"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n".repeat(2_000),
            private,
            Some(SecretFault::TooLarge),
        ),
    ] {
        let found = of(kind, chain, key);
        assert_eq!(found.as_ref().err().map(|(fault, _)| *fault), expected, "{}", &chain[..chain.len().min(99)]);
        // No detail quotes the contents.
        assert!(found.err().is_none_or(|(_, text)| text.len() < 200 && !text.contains("MI")));
    }
    let (found, binary) = (
        load(&secret(TYPE, 1, &[("tls.crt", b"x")])),
        load(&secret(TYPE, 1, &[("tls.crt", &[0xff]), ("tls.key", &[0xff])])),
    );
    assert_eq!(found.expect_err("no key").0, SecretFault::Invalid);
    assert_eq!(binary.expect_err("no text").0, SecretFault::Invalid);
}

/// The platform's certificates come in their own time: a host without one has no fault and no entry, and their number has no limit.
#[test]
fn certificates_of_the_platform() {
    let directory = tempfile::tempdir().expect("a directory");
    let secrets = Secrets::new(directory.path(), Origin::Platform);
    let hosts: Vec<String> = (0..=HOSTS_MAX).map(|at| format!("h{at:04}.example=own/tls{at}")).collect();
    let zone = ["*.s1.example=own/zone".to_owned(), "s1.example=own/zone".to_owned()];
    let hosts: Vec<&str> = hosts.iter().chain(&zone).map(String::as_str).collect();
    secrets.want(&wanted(&hosts));
    assert!(!secrets.settle_at(NOW) && secrets.report().is_empty() && secrets.faults() == 0);
    secrets.take(key("own", "tls7"), Err(rejected(404, "")));
    assert!(!secrets.settle_at(NOW) && secrets.report().is_empty() && secrets.faults() == 0);
    let (one, two) = (pair(&["*.s1.example", "s1.example"], -1, 2), pair(&["h1000.example"], -1, 2));
    secrets.take(key("own", "zone"), Ok(tls(1, &one)));
    secrets.take(key("own", "tls1000"), Ok(tls(2, &two)));
    assert!(secrets.settle_at(NOW));
    let report = secrets.report();
    let served: Vec<&str> = report.keys().map(Host::as_str).collect();
    assert_eq!(served, ["*.s1.example", "h1000.example", "s1.example"]);
    assert!(report.values().all(|one| one.secret.is_none() && one.fault.is_none()));
    // One that is gone stays in use.
    secrets.take(key("own", "zone"), Err(rejected(404, "")));
    assert!(!secrets.settle_at(NOW) && secrets.certificates().len() == 3);
    secrets.take(key("own", "zone"), Ok(tls(3, &two)));
    assert!(secrets.settle_at(NOW));
    assert_eq!((secrets.faults(), secrets.certificates().len()), (2, 3), "it is for other names");
}

#[test]
fn the_last_good_certificate_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let secrets = Secrets::new(directory.path(), Origin::Routes);
    let both = ["a.example", "*.b.example"];
    let (one, two) = (pair(&both, -1, 2), pair(&both, -1, 3));
    let (only_a, expired, later) = (pair(&["a.example"], -1, 1), pair(&both, -2, -1), pair(&both, 1, 2));
    let pairs = [&one, &two, &only_a, &expired, &later];
    let mismatch = (one.0.clone(), two.1.clone());
    let hosts = wanted(&["a.example=shop/tls", "*.b.example=shop/tls"]);
    assert!(secrets.want(&hosts) && !secrets.want(&hosts) && !secrets.is_read());
    assert!(secrets.settle_at(NOW), "the fault is new");
    assert_eq!(secrets.shown(&pairs), "*.b.example=-:Unread a.example=-:Unread");
    let forbidden = "secrets \"tls\" is forbidden: User \"system:serviceaccount:x:y\" cannot get";
    for (version, read, expected) in [
        (1, Err(rejected(404, "")), "*.b.example=-:NotFound a.example=-:NotFound"),
        (2, Err(rejected(403, forbidden)), "*.b.example=-:Forbidden a.example=-:Forbidden"),
        // Nothing that was never good is served.
        (3, Ok(&expired), "*.b.example=-:Expired a.example=-:Expired"),
        (4, Ok(&later), "*.b.example=-:NotYetValid a.example=-:NotYetValid"),
        (5, Ok(&only_a), "*.b.example=-:NameMismatch a.example=2:"),
        (6, Ok(&one), "*.b.example=0: a.example=0:"),
        (7, Ok(&mismatch), "*.b.example=0:KeyMismatch a.example=0:KeyMismatch"),
        (8, Ok(&expired), "*.b.example=0:Expired a.example=0:Expired"),
        (9, Ok(&later), "*.b.example=0:NotYetValid a.example=0:NotYetValid"),
        (10, Ok(&only_a), "*.b.example=0:NameMismatch a.example=2:"),
        (11, Err(rejected(404, "")), "*.b.example=0:NotFound a.example=2:NotFound"),
        (12, Ok(&two), "*.b.example=1: a.example=1:"),
        (13, Err(rejected(403, forbidden)), "*.b.example=1:Forbidden a.example=1:Forbidden"),
    ] {
        let is_changed = secrets.take(key("shop", "tls"), read.map(|pair| tls(version, pair)));
        assert!(is_changed && secrets.settle_at(NOW), "{expected}");
        assert_eq!(secrets.shown(&pairs), expected);
        // Another host of the Secret has its certificate.
        let is_fault = |part: &&str| !part.ends_with(':') && !part.ends_with("NameMismatch");
        assert_eq!(secrets.faults(), expected.split(' ').filter(is_fault).count(), "{expected}");
    }
    let details = secrets.report().into_values().next().expect("a report").fault;
    assert_eq!(details.as_deref(), Some("system:serviceaccount:x:y"));
    // An API that does not answer changes nothing, and neither does an equal version.
    assert!(!secrets.take(key("shop", "tls"), Err(rejected(500, ""))));
    assert!(
        secrets.take(key("shop", "tls"), Ok(tls(14, &two))) && !secrets.take(key("shop", "tls"), Ok(tls(14, &one)))
    );
    assert!(secrets.settle_at(NOW + 9 * DAY));
    assert_eq!(secrets.shown(&pairs), "*.b.example=1: a.example=1:", "its end is reported with it");
    // Another namespace gets nothing of it.
    assert!(secrets.want(&wanted(&["a.example=other/tls"])) && secrets.settle_at(NOW));
    assert_eq!(secrets.shown(&pairs), "a.example=-:Unread");
    assert!(!secrets.take(key("shop", "tls"), Ok(tls(15, &one))), "no host uses it");
}

#[test]
fn a_certificate_becomes_valid() {
    let directory = tempfile::tempdir().expect("a directory");
    let secrets = Secrets::new(directory.path(), Origin::Routes);
    let later = pair(&["a.example"], 1, 2);
    secrets.want(&wanted(&["a.example=shop/tls"]));
    secrets.take(key("shop", "tls"), Ok(tls(1, &later)));
    secrets.settle_at(NOW);
    assert_eq!(secrets.state.lock().valid_from, Some(NOW + DAY));
    assert!(secrets.settle_at(NOW + DAY));
    assert_eq!(secrets.shown(&[&later]), "a.example=0:");
    assert_eq!(secrets.state.lock().valid_from, None);
}

#[test]
fn one_namespace_has_a_limit() {
    let directory = tempfile::tempdir().expect("a directory");
    let secrets = Secrets::new(directory.path(), Origin::Routes);
    let certificate = pair(&["*.a.example", "z.example"], -1, 1);
    let mut hosts: Vec<String> = (0..HOSTS_MAX + 2).map(|number| format!("h{number:05}.a.example=shop/tls")).collect();
    hosts.push("z.example=other/tls".to_owned());
    secrets.want(&wanted(&hosts.iter().map(String::as_str).collect::<Vec<_>>()));
    for namespace in ["shop", "other"] {
        secrets.take(key(namespace, "tls"), Ok(tls(1, &certificate)));
    }
    secrets.settle_at(NOW);
    assert_eq!((secrets.certificates().len(), secrets.faults()), (HOSTS_MAX + 1, 2));
    let report = secrets.report();
    let last = report.get("h01001.a.example").and_then(|one| one.secret.clone()).expect("it is reported");
    assert_eq!(last.reason, Some(SecretFault::TooLarge));
    assert!(report.get("z.example").is_some_and(|one| one.fault.is_none()));
}

#[tokio::test]
async fn certificates_survive_in_private_files_until_nobody_needs_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let certificate = pair(&["a.example", "*.b.example"], -1, 1);
    let files = || -> Vec<String> {
        let entries =
            std::fs::read_dir(directory.path().join(Origin::Routes.directory())).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let secrets = Secrets::new(directory.path(), Origin::Routes);
    secrets.want(&wanted(&["a.example=shop/tls", "*.b.example=shop/tls"]));
    secrets.take(key("shop", "tls"), Ok(tls(1, &certificate)));
    secrets.settle_at(NOW);
    secrets.save().await;
    assert_eq!(files(), ["shop_+.b.example.pem", "shop_a.example.pem"]);
    for name in files() {
        let mode = std::fs::metadata(directory.path().join(Origin::Routes.directory()).join(name))
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    std::fs::write(directory.path().join(Origin::Routes.directory()).join("shop_c.example.pem"), "garbage")
        .expect("written");
    // The next agent has them before it reaches the API, and afterwards those that Routes name.
    let secrets = Secrets::new(directory.path(), Origin::Routes);
    assert_eq!(secrets.certificates().len(), 2);
    secrets.want(&wanted(&["a.example=shop/other", "*.b.example=foreign/tls"]));
    assert!(secrets.settle_at(NOW));
    assert_eq!(secrets.shown(&[&certificate]), "*.b.example=-:Unread a.example=0:Unread");
    secrets.save().await;
    assert_eq!(files(), ["shop_a.example.pem"]);
    let secrets = Secrets::new(directory.path(), Origin::Routes);
    assert!(secrets.want(&wanted(&[])) && secrets.settle_at(NOW) && !secrets.want(&wanted(&[])));
    secrets.save().await;
    assert_eq!(files(), Vec::<String>::new());
}
