//! Tokens of an identity provider: which are taken, and how its keys are followed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use axum::body::Body;
use data_encoding::BASE64URL_NOPAD;
use http::Request;
use serde_json::{Value, json};
use signpost_apiserver::auth::jwks::{RefreshPolicy, Source};
use signpost_apiserver::auth::jwt::{ALGORITHMS, Issuer, IssuerSettings};
use signpost_apiserver::auth::{AuthMethod, Authenticator, Sender};
use signpost_runtime::httpd::{self, Limits};
use signpost_runtime::tls::{self, Authority};
use tokio_util::sync::CancellationToken;

const ISSUER: &str = "https://idp.example";

/// A key of the provider.
enum Key {
    Es256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl Key {
    fn es256() -> Key {
        Key::Es256(EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"))
    }

    fn ed25519() -> Key {
        Key::Ed25519(Ed25519KeyPair::generate().expect("a key"))
    }

    fn rsa() -> Key {
        Key::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key"))
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Key::Es256(_) => "ES256",
            Key::Ed25519(_) => "EdDSA",
            Key::Rsa(_) => "RS256",
        }
    }

    /// Returns the public key as a key set contains it.
    fn jwk(&self, id: &str) -> Value {
        let text = |octets: &[u8]| BASE64URL_NOPAD.encode(octets);
        match self {
            Key::Es256(key) => {
                let point = &key.public_key().as_ref()[1..];
                json!({"kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "x": text(&point[..32]), "y": text(&point[32..])})
            }
            Key::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "alg": "EdDSA", "x": text(key.public_key().as_ref())})
            }
            Key::Rsa(key) => {
                let modulus = key.public_key().modulus().big_endian_without_leading_zero();
                let exponent = key.public_key().exponent().big_endian_without_leading_zero();
                json!({"kty": "RSA", "kid": id, "alg": "RS256", "n": text(modulus), "e": text(exponent)})
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Key::Es256(key) => key.sign(&random, message).expect("signs").as_ref().to_vec(),
            Key::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature).expect("signs");
                signature
            }
        }
    }

    /// Returns a token with this header and these claims, valid or not.
    fn token(&self, header: &Value, claims: &Value) -> String {
        let message = unsigned(header, claims);
        format!("{message}.{}", BASE64URL_NOPAD.encode(&self.sign(message.as_bytes())))
    }

    /// Returns a good token.
    fn good(&self, id: &str) -> String {
        self.token(&json!({"alg": self.algorithm(), "kid": id}), &claims(json!({})))
    }
}

fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

/// Good claims, with some of them replaced; `null` takes one out.
fn claims(change: Value) -> Value {
    let now = now();
    let mut claims = json!({"iss": ISSUER, "aud": ["other", "signpost"], "sub": "tina", "groups": ["viewers"],
        "iat": now, "nbf": now - 3600, "exp": now + 3600});
    json_patch::merge(&mut claims, &change);
    claims
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_secs()).expect("a time")
}

fn settings(keys: Source) -> IssuerSettings {
    IssuerSettings {
        issuer: ISSUER.into(),
        audiences: vec!["signpost".into()],
        keys,
        algorithms: ALGORITHMS.to_vec(),
        username_claim: "sub".into(),
        username_prefix: "idp:".into(),
        groups_claim: "groups".into(),
        groups_prefix: "signpost:".into(),
        leeway: Duration::from_secs(30),
        sign_in: None,
    }
}

fn authenticator(settings: IssuerSettings, pace: RefreshPolicy) -> Authenticator {
    Authenticator::default().with_issuers(vec![Issuer::new(settings, pace)])
}

/// Sets are as good as new for an hour, and may be fetched at any time.
const EAGER: RefreshPolicy = RefreshPolicy { fresh: Duration::from_secs(3600), pause: Duration::ZERO };

async fn ask(authenticator: &Authenticator, token: &str) -> Result<Sender, u16> {
    let request = Request::get("/").header("authorization", format!("Bearer {token}")).body(()).expect("a request");
    authenticator.authenticate(&request.into_parts().0).await.map_err(|error| error.code)
}

fn file(set: &Value) -> (tempfile::TempDir, Source) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    std::fs::write(&path, set.to_string()).expect("writes");
    (folder, Source::File(path))
}

/// A provider's web server: what it answers can be changed, and it counts.
struct Provider {
    url: String,
    answer: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
    stop: CancellationToken,
    server: tokio::task::JoinHandle<()>,
}

impl Provider {
    async fn start(set: &Value, tls: Option<&Authority>) -> Provider {
        let (answer, asked) = (Arc::new(Mutex::new(set.to_string())), Arc::new(AtomicUsize::new(0)));
        let (answers, counts) = (answer.clone(), asked.clone());
        let router = axum::Router::new().fallback(move || {
            counts.fetch_add(1, Ordering::Relaxed);
            let text = answers.lock().expect("no panic").clone();
            async move { Body::from(text) }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let tls = tls.map(|authority| authority.server_config(None).expect("a configuration"));
        let stop = CancellationToken::new();
        let server = tokio::spawn(httpd::serve(listener, tls, router, Limits::default(), stop.clone()));
        Provider { url: format!("{scheme}://{address}/keys"), answer, asked, stop, server }
    }

    fn source(&self) -> Source {
        Source::Url { url: self.url.clone(), authorities: None }
    }

    fn answers(&self, text: &str) {
        *self.answer.lock().expect("no panic") = text.to_owned();
    }

    fn requests(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    async fn stop(self) {
        self.stop.cancel();
        self.server.await.expect("ends");
    }
}

#[tokio::test]
async fn good_tokens_say_who_one_is() {
    let keys = [Key::es256(), Key::ed25519(), Key::rsa()];
    let ids = ["a", "b", "c"];
    let jwks: Vec<Value> = keys.iter().zip(ids).map(|(key, id)| key.jwk(id)).collect();
    let (_folder, source) = file(&json!({"keys": jwks}));
    let authenticator = authenticator(settings(source), EAGER);
    for (key, id) in keys.iter().zip(ids) {
        let sender = ask(&authenticator, &key.good(id)).await.expect("is taken");
        assert_eq!(sender.identity.user, "idp:tina");
        assert_eq!(sender.identity.groups, ["signpost:viewers", "system:authenticated"]);
        assert!(matches!(sender.proof, AuthMethod::Jwt { expires } if expires > now()), "{:?}", sender.proof);
    }
    // Without a key id, the keys that fit the algorithm are tried.
    let without = keys[0].token(&json!({"alg": "ES256"}), &claims(json!({})));
    assert!(ask(&authenticator, &without).await.is_ok());
}

#[tokio::test]
async fn bad_tokens_are_refused() {
    let (key, stranger, rsa) = (Key::es256(), Key::es256(), Key::rsa());
    let (_folder, source) = file(&json!({"keys": [key.jwk("a"), rsa.jwk("r")]}));
    let mut settings = settings(source);
    settings.leeway = Duration::ZERO;
    let all = authenticator(settings.clone(), EAGER);
    let header = json!({"alg": "ES256", "kid": "a"});
    for (what, change) in [
        ("ended", json!({"exp": now() - 10})),
        ("without an end", json!({"exp": null})),
        ("not begun", json!({"nbf": now() + 3600})),
        ("for others", json!({"aud": "other"})),
        ("without audience", json!({"aud": null})),
        ("of another issuer", json!({"iss": "https://evil.example"})),
        ("of no issuer", json!({"iss": null})),
        ("without subject", json!({"sub": null})),
    ] {
        let token = key.token(&header, &claims(change));
        assert_eq!(ask(&all, &token).await, Err(401), "{what}");
    }
    let good = key.good("a");
    let (message, signature) = good.rsplit_once('.').expect("three parts");
    let elsewhere = unsigned(&header, &claims(json!({"sub": "root"})));
    // The public key as a shared secret: what a verifier does that trusts the header alone.
    let public = key.jwk("a")["x"].as_str().expect("text").to_owned();
    let hmac_message = unsigned(&json!({"alg": "HS256", "kid": "a"}), &claims(json!({})));
    let hmac_key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, public.as_bytes());
    let hmac = aws_lc_rs::hmac::sign(&hmac_key, hmac_message.as_bytes());
    for (what, token) in [
        ("other claims under the signature", format!("{elsewhere}.{signature}")),
        ("no signature", format!("{message}.")),
        ("unsigned", format!("{}.", unsigned(&json!({"alg": "none"}), &claims(json!({}))))),
        ("a shared secret", format!("{hmac_message}.{}", BASE64URL_NOPAD.encode(hmac.as_ref()))),
        ("a stranger's key", stranger.good("a")),
        ("an unknown key", key.good("z")),
        ("a key of another kind", key.token(&json!({"alg": "ES256", "kid": "r"}), &claims(json!({})))),
        ("an algorithm that the key is not for", rsa.token(&json!({"alg": "PS256", "kid": "r"}), &claims(json!({})))),
    ] {
        assert_eq!(ask(&all, &token).await, Err(401), "{what}");
    }
    assert!(ask(&all, &good).await.is_ok());

    settings.algorithms.retain(|algorithm| format!("{algorithm:?}") == "EdDSA");
    let few = authenticator(settings, EAGER);
    assert_eq!(ask(&few, &good).await, Err(401), "an algorithm that is not on the list");
}

#[tokio::test]
async fn keys_are_followed_as_they_change() {
    let (old, new) = (Key::es256(), Key::ed25519());
    let provider = Provider::start(&json!({"keys": [old.jwk("old")]}), None).await;
    let authenticator = authenticator(settings(provider.source()), EAGER);
    for _ in 0..3 {
        assert!(ask(&authenticator, &old.good("old")).await.is_ok());
    }
    assert_eq!(provider.requests(), 1, "a known key is not requested again");
    provider.answers(&json!({"keys": [new.jwk("new")]}).to_string());
    assert!(ask(&authenticator, &new.good("new")).await.is_ok());
    assert_eq!(provider.requests(), 2);
    assert_eq!(ask(&authenticator, &old.good("old")).await, Err(401), "it was withdrawn");
    // Invalid or missing responses of a provider do not revoke access.
    provider.answers("<html>");
    assert_eq!(ask(&authenticator, &old.good("old")).await, Err(401));
    assert!(ask(&authenticator, &new.good("new")).await.is_ok());
    provider.stop().await;
    assert_eq!(ask(&authenticator, &old.good("old")).await, Err(401));
    assert!(ask(&authenticator, &new.good("new")).await.is_ok());
}

#[tokio::test]
async fn strangers_do_not_make_us_ask_the_provider_again_and_again() {
    let key = Key::es256();
    let provider = Provider::start(&json!({"keys": [key.jwk("a")]}), None).await;
    let pace = RefreshPolicy { fresh: Duration::from_secs(3600), pause: Duration::from_secs(3600) };
    let authenticator = Arc::new(authenticator(settings(provider.source()), pace));
    let asked = (0..50).map(|number| {
        let (authenticator, token) = (authenticator.clone(), key.good(&format!("unknown-{number}")));
        async move { ask(&authenticator, &token).await }
    });
    for answer in futures::future::join_all(asked).await {
        assert_eq!(answer, Err(401));
    }
    assert_eq!(provider.requests(), 1);
    assert!(ask(&authenticator, &key.good("a")).await.is_ok());
    provider.stop().await;
}

#[tokio::test]
async fn who_waits_for_a_fetch_takes_what_it_brings() {
    let key = Key::es256();
    let provider = Provider::start(&json!({"keys": [key.jwk("a")]}), None).await;
    let authenticator = Arc::new(authenticator(settings(provider.source()), EAGER));
    let tokens = (0..20).map(|number| key.good(if number % 2 == 0 { "a" } else { "unknown" }));
    let answers = tokens.map(|token| {
        let authenticator = authenticator.clone();
        async move { ask(&authenticator, &token).await.is_ok() }
    });
    let answers = futures::future::join_all(answers).await;
    assert!(answers.into_iter().enumerate().all(|(number, good)| good == (number % 2 == 0)));
    assert_eq!(provider.requests(), 1, "though a set may be fetched at any time");
    provider.stop().await;
}

/// A client that started a fetch and disconnects does not cancel it for the other clients that wait.
#[tokio::test]
async fn a_fetch_outlives_who_asked_for_it() {
    let key = Key::es256();
    let provider = Provider::start(&json!({"keys": [key.jwk("a")]}), None).await;
    let pace = RefreshPolicy { fresh: Duration::from_secs(3600), pause: Duration::from_secs(3600) };
    let authenticator = authenticator(settings(provider.source()), pace);
    let token = key.good("a");
    {
        let mut first = std::pin::pin!(ask(&authenticator, &token));
        assert!(futures::poll!(first.as_mut()).is_pending(), "a fetch takes the network");
    }
    assert!(ask(&authenticator, &token).await.is_ok());
    assert_eq!(provider.requests(), 1);
    provider.stop().await;
}

#[tokio::test]
async fn an_old_set_is_fetched_again_while_it_is_used() {
    let key = Key::es256();
    let provider = Provider::start(&json!({"keys": [key.jwk("a")]}), None).await;
    let pace = RefreshPolicy { fresh: Duration::ZERO, pause: Duration::ZERO };
    let authenticator = authenticator(settings(provider.source()), pace);
    for _ in 0..1_000 {
        assert!(ask(&authenticator, &key.good("a")).await.is_ok());
        if provider.requests() >= 3 {
            return provider.stop().await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("only {} requests", provider.requests());
}

#[tokio::test]
async fn a_provider_is_known_by_its_certificate() {
    let (ours, others) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let open = |folder: &tempfile::TempDir| {
        Authority::open(folder.path(), tls::loopback_names(), SystemTime::now()).expect("an authority")
    };
    let (authority, _) = (open(&ours), open(&others));
    let key = Key::es256();
    let provider = Provider::start(&json!({"keys": [key.jwk("a")]}), Some(&authority)).await;
    for (folder, good) in [(&ours, true), (&others, false)] {
        let authorities = Some(folder.path().join("ca.crt"));
        let source = Source::Url { url: provider.url.clone(), authorities };
        let authenticator = authenticator(settings(source), EAGER);
        assert_eq!(ask(&authenticator, &key.good("a")).await.is_ok(), good);
    }
    provider.stop().await;
}
