//! Tenants whose Secrets attack the agent and the proxy: bombs of PEM, huge keys, and certificates for hosts of others.

use std::process::Command;
use std::time::Instant;

use data_encoding::BASE64;
use rcgen::{CertificateParams, Issuer, KeyPair, PublicKeyData, SignatureAlgorithm};
use serde_json::{Value, json};

use crate::scene::{PATIENCE, Scene, route};
use crate::support::routes_path;
use signpost_testing::client::Client;
use signpost_testing::until;

/// The host of the bystander whose certificate the attacker wants to replace.
const VICTIM: &str = "bystander-tls.shard1.v3.rhcloud.com";

/// Defines the test for each proxy, inside namespaces of its own.
macro_rules! for_each_proxy {
    ($($proxy:ident)*) => {
        $(#[test]
        fn $proxy() {
            if signpost_testing::namespace::inside_namespaces(concat!("certificates::", stringify!($proxy))) {
                secrets(stringify!($proxy));
            }
        })*
    };
}

for_each_proxy!(haproxy nginx);

/// A public RSA key of 16,384 bits without a private key.
struct HugeKey(Vec<u8>);

impl HugeKey {
    fn new() -> HugeKey {
        let octets = 16_384 / 8;
        let modulus = [&[0][..], &vec![0xc3; octets]].concat();
        let modulus = [&[2, 0x82][..], &(modulus.len() as u16).to_be_bytes(), &modulus].concat();
        let parts = [&modulus[..], &[2, 3, 1, 0, 1]].concat();
        HugeKey([&[0x30, 0x82][..], &(parts.len() as u16).to_be_bytes(), &parts].concat())
    }
}

impl PublicKeyData for HugeKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_RSA_SHA256
    }
}

/// Returns a self-signed certificate for a host, and its key.
fn pair(host: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec![host.to_owned()]).expect("a name");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn create_secret(client: &Client, namespace: &str, name: &str, certificate: &str, key: &str) {
    let data = json!({"tls.crt": BASE64.encode(certificate.as_bytes()), "tls.key": BASE64.encode(key.as_bytes())});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls",
        "data": data});
    let (status, answer) = client.send("POST", &format!("/api/v1/namespaces/{namespace}/secrets"), Some(&secret));
    assert_eq!(status, 201, "{name}: {answer}");
}

fn secrets(proxy: &'static str) {
    let scene = Scene::start(proxy, &[]);
    let host = |name: &str| format!("attacker-{name}.shard1.v3.rhcloud.com");
    let ca = KeyPair::generate().expect("a key");
    let issuer = Issuer::new(CertificateParams::new(Vec::new()).expect("no names"), ca);
    let (huge, bomb, rsa) = (pair(&host("huge")), pair(&host("bomb")), pair(&host("rsa")));
    let with_huge_key = CertificateParams::new(vec![host("rsa")]).expect("a name");
    let with_huge_key = with_huge_key.signed_by(&HugeKey::new(), &issuer).expect("a certificate").pem();
    let other = pair(VICTIM);
    let mismatch = (pair(&host("mismatch")).0, pair(&host("mismatch")).1);
    let cases = [
        ("huge", format!("{}\n{}", "x".repeat(900 << 10), huge.0), huge.1, "SecretTooLarge"),
        ("bomb", bomb.0.repeat(1_500), bomb.1, "SecretTooLarge"),
        ("rsa", with_huge_key, rsa.1, "KeyMismatch"),
        ("other", other.0, other.1, "NameMismatch"),
        ("mismatch", mismatch.0, mismatch.1, "KeyMismatch"),
    ];
    for (name, certificate, key, _) in &cases {
        create_secret(&scene.attacker, "attacker", name, certificate, key);
        let tls = json!({"termination": "edge", "secretName": name});
        route(&scene.attacker, "attacker", name, json!({"to": {"name": "web"}, "tls": tls}), None);
    }
    // The path of challenges.
    let path = "/.well-known/acme-challenge/";
    route(&scene.attacker, "attacker", "shadow", json!({"to": {"name": "web"}, "path": path}), None);

    // The bystander has a Secret of the same name as one of the attacker, and its certificate is served.
    let began = Instant::now();
    let (certificate, key) = pair(VICTIM);
    create_secret(&scene.tenant, "bystander", "other", &certificate, &key);
    let tls = json!({"termination": "edge", "secretName": "other"});
    route(&scene.tenant, "bystander", "tls", json!({"to": {"name": "web"}, "tls": tls}), None);
    let trusted = scene.platform.data.write("victim.pem", &certificate);
    until("the bystander is served over TLS", || https(&scene, &trusted));
    assert!(began.elapsed() < PATIENCE, "it took {:?}", began.elapsed());

    for (name, _, _, expected) in &cases {
        until(&format!("{name} has {expected}"), || {
            let (_, text) = scene.attacker.send("GET", &format!("{}/{name}", routes_path("attacker")), None);
            let object: Value = serde_json::from_str(&text).unwrap_or_default();
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let condition = conditions.into_iter().find(|one| one["type"] == "CertificateReady").unwrap_or_default();
            let is_it = condition["reason"] == *expected && condition["status"] == "False";
            if is_it { Ok(()) } else { Err(condition.to_string()) }
        });
    }
    println!("{proxy}: {:?} next to Secrets that are not usable", scene.new_route("next"));
    https(&scene, &trusted).expect("it is still served");
    scene.was_served();
}

/// Requests the bystander's host over TLS, with its certificate as the only trusted one.
fn https(scene: &Scene, trusted: &str) -> Result<(), String> {
    let resolve = format!("{VICTIM}:{}:{}", scene.https.port(), scene.https.ip());
    let arguments =
        ["-sS", "--max-time", "10", "--cacert", trusted, "--resolve", &resolve, &format!("https://{VICTIM}/")];
    let output = Command::new("curl").args(arguments).output().expect("curl is installed");
    match output.stdout == b"ok" {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
