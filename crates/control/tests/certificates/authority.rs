//! A certificate authority with the parts that Debian's `pebble` lacks: times of renewal, profiles, rate limits, and lies.
//!
//! Its orders are ready at once, like those of a CA that has validated the names before. It checks no signatures.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::serve::Listener;
use data_encoding::{BASE64, BASE64URL_NOPAD};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData, SignatureAlgorithm,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

/// The behavior of the CA.
#[derive(Clone, Debug, Default)]
pub struct Behavior {
    /// The window in which to renew each certificate, and the seconds until the next question. `None`: it has none.
    pub renewal: Option<([&'static str; 2], u64)>,
    /// The problem of new orders, and the pause that it requires, in seconds.
    pub problem: Option<(&'static str, u64)>,
    /// The number of accounts that are revoked, the oldest first.
    pub revoked_accounts: usize,
    /// Whether orders that replace a certificate are rejected.
    pub rejects_replacements: bool,
    pub chain: Chain,
}

/// The chain that the CA sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chain {
    #[default]
    Good,
    OtherNames,
    OtherKey,
    Rubbish,
    /// A part of a certificate is missing.
    Torn,
    /// The second certificate did not issue the first one.
    Unrelated,
    /// A certificate that expired long ago.
    Expired,
}

/// A CA that runs until the test ends.
pub struct Authority {
    shared: Arc<Shared>,
    /// The URL of the directory.
    pub directory: String,
    files: tempfile::TempDir,
}

struct Shared {
    behavior: Mutex<Behavior>,
    base: String,
    issuer: Issuer<'static, KeyPair>,
    root: Certificate,
    accounts: Mutex<usize>,
    /// The number of requests until one gets no response; `None`: all get one.
    until_silence: Mutex<Option<usize>>,
    /// The requests for orders that were received.
    requests: Mutex<Vec<Value>>,
    /// The chains of the orders, in PEM.
    chains: Mutex<Vec<Option<String>>>,
    /// The identifiers of the certificates whose time of renewal was requested.
    renewals: Mutex<Vec<String>>,
}

impl Authority {
    pub async fn start() -> Authority {
        let mut ca = CertificateParams::new(Vec::new()).expect("no names");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "Stub CA");
        let key = KeyPair::generate().expect("a key");
        let root = ca.self_signed(&key).expect("a CA");
        let issuer = Issuer::new(ca, key);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base = format!("https://{}", listener.local_addr().expect("it is bound"));
        let own = KeyPair::generate().expect("a key");
        let names = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
        let certificate = names.signed_by(&own, &issuer).expect("a certificate");
        let key = PrivateKeyDer::try_from(own.serialize_der()).expect("a key");
        let tls = ServerConfig::builder().with_no_client_auth();
        let tls = tls.with_single_cert(vec![certificate.der().clone()], key).expect("they fit");
        let files = tempfile::tempdir().expect("a directory");
        std::fs::write(files.path().join("ca.pem"), root.pem()).expect("written");
        let shared = Arc::new(Shared {
            behavior: Mutex::default(),
            base: base.clone(),
            issuer,
            root,
            accounts: Mutex::default(),
            until_silence: Mutex::default(),
            requests: Mutex::default(),
            chains: Mutex::default(),
            renewals: Mutex::default(),
        });
        let router = axum::Router::new()
            .route("/dir", get(directory))
            .route("/nonce", get(|| async { StatusCode::OK }))
            .route("/account", post(account))
            .route("/order", post(new_order))
            .route("/order/{id}", post(order))
            .route("/finalize/{id}", post(finalize))
            .route("/certificate/{id}", post(certificate_of))
            .route("/renewal/{id}", get(renewal))
            .layer(axum::middleware::map_response(with_nonce))
            .layer(axum::middleware::from_fn_with_state(shared.clone(), silence))
            .with_state(shared.clone());
        let listener = Tls { listener, acceptor: TlsAcceptor::from(Arc::new(tls)) };
        tokio::spawn(async move { axum::serve(listener, router).await });
        Authority { shared, directory: format!("{base}/dir"), files }
    }

    /// Returns the file with the root certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.files.path().join("ca.pem")
    }

    pub fn set(&self, behavior: Behavior) {
        *self.shared.behavior.lock() = behavior;
    }

    /// Answers this number of requests, and not the next one; `None`: answers all.
    pub fn fall_silent_after(&self, requests: Option<usize>) {
        *self.shared.until_silence.lock() = requests.map(|requests| requests + 1);
    }

    /// Returns whether a request has come that gets no response.
    pub fn is_silent(&self) -> bool {
        *self.shared.until_silence.lock() == Some(0)
    }

    /// Returns the requests for orders.
    pub fn orders(&self) -> Vec<Value> {
        self.shared.requests.lock().clone()
    }

    /// Returns the identifiers of the certificates whose time of renewal was requested.
    pub fn renewals(&self) -> Vec<String> {
        self.shared.renewals.lock().clone()
    }
}

struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, address)) = self.listener.accept().await else { continue };
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Handles a request whose response can be lost.
async fn silence(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let is_silent = {
        let mut left = shared.until_silence.lock();
        *left = left.map(|left| left.saturating_sub(1));
        *left == Some(0)
    };
    let response = next.run(request).await;
    if is_silent {
        std::future::pending::<()>().await;
    }
    response
}

async fn with_nonce(mut response: Response) -> Response {
    response.headers_mut().insert("replay-nonce", HeaderValue::from_static("nonce"));
    response
}

/// Returns the payload of a signed request.
fn payload(body: &Bytes) -> Value {
    part(body, "payload")
}

/// Returns the number of the account that signed a request.
fn account_of(body: &Bytes) -> Option<usize> {
    part(body, "protected")["kid"].as_str()?.rsplit('/').next()?.parse().ok()
}

fn part(body: &Bytes, name: &str) -> Value {
    let request: Value = serde_json::from_slice(body).expect("a signed request");
    let part = BASE64URL_NOPAD.decode(request[name].as_str().expect("a text").as_bytes()).expect("base64");
    serde_json::from_slice(&part).unwrap_or_default()
}

async fn directory(State(shared): State<Arc<Shared>>) -> Response {
    let base = &shared.base;
    let mut directory = json!({
        "newNonce": format!("{base}/nonce"), "newAccount": format!("{base}/account"), "newOrder": format!("{base}/order"),
        "meta": {"profiles": {"short": "six days"}},
    });
    if shared.behavior.lock().renewal.is_some() {
        directory["renewalInfo"] = format!("{base}/renewal").into();
    }
    directory.to_string().into_response()
}

async fn account(State(shared): State<Arc<Shared>>) -> Response {
    let mut accounts = shared.accounts.lock();
    *accounts += 1;
    let location = [(header::LOCATION, format!("{}/account/{}", shared.base, *accounts))];
    (StatusCode::CREATED, location, json!({"status": "valid"}).to_string()).into_response()
}

fn problem(kind: &str, detail: &str, status: StatusCode, pause: u64) -> Response {
    let problem = json!({"type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail});
    (status, [(header::RETRY_AFTER, pause.to_string())], problem.to_string()).into_response()
}

/// Returns the state of an order.
fn state(shared: &Shared, id: usize) -> Value {
    let is_issued = shared.chains.lock()[id].is_some();
    let (base, request) = (&shared.base, shared.requests.lock()[id].clone());
    let mut order = json!({
        "status": if is_issued { "valid" } else { "ready" }, "authorizations": [], "finalize": format!("{base}/finalize/{id}"),
        "certificate": format!("{base}/certificate/{id}"),
    });
    if !request["replaces"].is_null() {
        order["replaces"] = request["replaces"].clone();
    }
    order
}

async fn new_order(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let (behavior, request) = (shared.behavior.lock().clone(), payload(&body));
    shared.requests.lock().push(request.clone());
    shared.chains.lock().push(None);
    if account_of(&body).is_some_and(|account| account <= behavior.revoked_accounts) {
        return problem("unauthorized", "the account is revoked", StatusCode::UNAUTHORIZED, 0);
    }
    if let Some((kind, pause)) = behavior.problem {
        return problem(kind, "not now", StatusCode::TOO_MANY_REQUESTS, pause);
    }
    if behavior.rejects_replacements && !request["replaces"].is_null() {
        return problem("malformed", "unknown predecessor", StatusCode::NOT_FOUND, 0);
    }
    let id = shared.requests.lock().len() - 1;
    let location = [(header::LOCATION, format!("{}/order/{id}", shared.base))];
    (StatusCode::CREATED, location, state(&shared, id).to_string()).into_response()
}

async fn order(State(shared): State<Arc<Shared>>, Path(id): Path<usize>) -> Response {
    state(&shared, id).to_string().into_response()
}

async fn finalize(State(shared): State<Arc<Shared>>, Path(id): Path<usize>, body: Bytes) -> Response {
    let request = payload(&body);
    let der = BASE64URL_NOPAD.decode(request["csr"].as_str().expect("a CSR").as_bytes()).expect("base64");
    let identifiers = shared.requests.lock()[id]["identifiers"].clone();
    let names = identifiers.as_array().expect("names").iter();
    let names: Vec<String> = names.map(|name| name["value"].as_str().expect("a name").to_owned()).collect();
    let chain = chain(&shared, &names, &der);
    shared.chains.lock()[id] = Some(chain);
    state(&shared, id).to_string().into_response()
}

/// The key in a request, which is ECDSA with P-256.
struct RequestedKey(Vec<u8>);

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

fn chain(shared: &Shared, names: &[String], request: &[u8]) -> String {
    let kind = shared.behavior.lock().chain;
    let names = if kind == Chain::OtherNames { vec!["other.example".to_owned()] } else { names.to_vec() };
    let mut parameters = CertificateParams::new(names).expect("names");
    parameters.use_authority_key_identifier_extension = true;
    (parameters.not_before, parameters.not_after) = (
        rcgen::date_time_ymd(2026, 1, 1),
        rcgen::date_time_ymd(if kind == Chain::Expired { 2026 } else { 2090 }, 1, 2),
    );
    let (_, request) = X509CertificationRequest::from_der(request).expect("a CSR");
    let key = request.certification_request_info.subject_pki.subject_public_key.data.to_vec();
    let requested = parameters.signed_by(&RequestedKey(key), &shared.issuer).expect("signed").pem();
    let other = KeyPair::generate().expect("a key");
    match kind {
        Chain::OtherKey => parameters.signed_by(&other, &shared.issuer).expect("signed").pem() + &shared.root.pem(),
        Chain::Rubbish => "<html>Welcome</html>".to_owned(),
        Chain::Torn => {
            let octets = BASE64.encode(&shared.root.der()[..40]);
            format!("{requested}-----BEGIN CERTIFICATE-----\n{octets}\n-----END CERTIFICATE-----\n")
        }
        Chain::Unrelated => requested.clone() + &requested,
        Chain::Good | Chain::OtherNames | Chain::Expired => requested + &shared.root.pem(),
    }
}

async fn certificate_of(State(shared): State<Arc<Shared>>, Path(id): Path<usize>) -> Response {
    shared.chains.lock()[id].clone().expect("it is issued").into_response()
}

async fn renewal(State(shared): State<Arc<Shared>>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    assert!(!headers.contains_key(header::AUTHORIZATION));
    shared.renewals.lock().push(id);
    let Some(([start, end], pause)) = shared.behavior.lock().renewal else {
        return problem("malformed", "not found", StatusCode::NOT_FOUND, 0);
    };
    let window = json!({"suggestedWindow": {"start": start, "end": end}});
    ([(header::RETRY_AFTER, pause.to_string())], window.to_string()).into_response()
}
