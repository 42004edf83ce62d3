//! A certificate authority with the parts that Debian's `pebble` lacks: times of renewal, profiles, rate limits, and lies.
//!
//! Unless it has challenges, its orders are ready at once, like those of a CA that has validated the names before. It checks no signatures, and
//! validates nothing: a request to validate a name has the result that the test chooses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
    /// The number of accounts that the CA has lost, the oldest first. It reports that for one order when there are two, and for the other one when
    /// there is another account.
    pub lost_accounts: usize,
    /// Whether all requests fail.
    pub is_away: bool,
    /// The name of the CA in CAA records.
    pub caa_identity: Option<&'static str>,
    /// The type of the challenges of orders, and the result of a validation. `None`: orders have no challenges.
    pub challenges: Option<(&'static str, Validation)>,
    /// Whether the CA fails while it signs.
    pub fails_to_sign: bool,
    /// Whether the CA has no time of renewal for the first certificate that is queried, and sends none with `Retry-After`.
    pub has_half_of_renewals: bool,
    /// Whether orders that replace a certificate are rejected.
    pub rejects_replacements: bool,
    pub chain: Chain,
}

/// The result of a request to validate a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    Good,
    /// The response has the fault of the name.
    Fails,
    /// The CA is overloaded.
    Overloaded,
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
    /// The number of orders with an account that the CA has lost.
    refusals: Mutex<usize>,
    /// The number of requests until one gets no response; `None`: all get one.
    until_silence: Mutex<Option<usize>>,
    /// The requests for orders that were received.
    requests: Mutex<Vec<Value>>,
    /// The chains of the orders, in PEM.
    chains: Mutex<Vec<Option<String>>>,
    /// The states of the authorizations of the orders.
    authorizations: Mutex<Vec<Vec<&'static str>>>,
    /// The orders that the CA did not sign.
    unsigned: Mutex<Vec<usize>>,
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
            refusals: Mutex::default(),
            until_silence: Mutex::default(),
            requests: Mutex::default(),
            chains: Mutex::default(),
            authorizations: Mutex::default(),
            unsigned: Mutex::default(),
            renewals: Mutex::default(),
        });
        let router = axum::Router::new()
            .route("/dir", get(directory))
            .route("/nonce", get(|| async { StatusCode::OK }))
            .route("/account", post(account))
            .route("/order", post(new_order))
            .route("/order/{id}", post(order))
            .route("/authorization/{id}/{at}", post(authorization))
            .route("/challenge/{id}/{at}", post(challenge))
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

    /// Returns the number of accounts that were created.
    pub fn accounts(&self) -> usize {
        *self.shared.accounts.lock()
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
    if shared.behavior.lock().is_away {
        return problem("serverInternal", "away", StatusCode::SERVICE_UNAVAILABLE, 0);
    }
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
    let behavior = shared.behavior.lock().clone();
    if let Some(identity) = behavior.caa_identity {
        directory["meta"]["caaIdentities"] = json!([identity]);
    }
    if behavior.renewal.is_some() {
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
    let (authorizations, is_unsigned) =
        (shared.authorizations.lock()[id].clone(), shared.unsigned.lock().contains(&id));
    let status = match () {
        () if is_issued => "valid",
        () if is_unsigned || authorizations.contains(&"invalid") => "invalid",
        () if authorizations.contains(&"pending") => "pending",
        () => "ready",
    };
    let urls: Vec<String> = (0..authorizations.len()).map(|at| format!("{base}/authorization/{id}/{at}")).collect();
    let mut order = json!({
        "status": status, "authorizations": urls, "finalize": format!("{base}/finalize/{id}"),
        "certificate": format!("{base}/certificate/{id}"),
    });
    if is_unsigned {
        order["error"] = json!({"type": "urn:ietf:params:acme:error:serverInternal", "detail": "cannot sign"});
    }
    if !request["replaces"].is_null() {
        order["replaces"] = request["replaces"].clone();
    }
    order
}

async fn new_order(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let (behavior, request) = (shared.behavior.lock().clone(), payload(&body));
    shared.requests.lock().push(request.clone());
    shared.chains.lock().push(None);
    let names = request["identifiers"].as_array().map_or(0, Vec::len);
    let count = if behavior.challenges.is_some() { names } else { 0 };
    shared.authorizations.lock().push(vec!["pending"; count]);
    let id = shared.requests.lock().len() - 1;
    if account_of(&body).is_some_and(|account| account <= behavior.lost_accounts) {
        let before = {
            let mut refusals = shared.refusals.lock();
            *refusals += 1;
            *refusals - 1
        };
        let is_over = || match before {
            0 => *shared.refusals.lock() > 1,
            _ => *shared.accounts.lock() > behavior.lost_accounts,
        };
        while !is_over() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        return problem("accountDoesNotExist", "no such account", StatusCode::BAD_REQUEST, 0);
    }
    if account_of(&body).is_some_and(|account| account <= behavior.revoked_accounts) {
        return problem("unauthorized", "the account is revoked", StatusCode::UNAUTHORIZED, 0);
    }
    if let Some((kind, pause)) = behavior.problem {
        return problem(kind, "not now", StatusCode::TOO_MANY_REQUESTS, pause);
    }
    if behavior.rejects_replacements && !request["replaces"].is_null() {
        return problem("malformed", "unknown predecessor", StatusCode::NOT_FOUND, 0);
    }
    let location = [(header::LOCATION, format!("{}/order/{id}", shared.base))];
    (StatusCode::CREATED, location, state(&shared, id).to_string()).into_response()
}

async fn order(State(shared): State<Arc<Shared>>, Path(id): Path<usize>) -> Response {
    state(&shared, id).to_string().into_response()
}

async fn authorization(State(shared): State<Arc<Shared>>, Path((id, at)): Path<(usize, usize)>) -> Response {
    let name = shared.requests.lock()[id]["identifiers"][at]["value"].as_str().expect("a name").to_owned();
    let (status, kind) =
        (shared.authorizations.lock()[id][at], shared.behavior.lock().challenges.expect("it has some").0);
    let challenge = json!({"type": kind, "url": format!("{}/challenge/{id}/{at}", shared.base), "status": status,
        "token": format!("token-{id}-{at}")});
    let identifier = json!({"type": "dns", "value": name.trim_start_matches("*.")});
    let state = json!({"status": status, "identifier": identifier, "wildcard": name.starts_with("*."),
        "challenges": [challenge]});
    state.to_string().into_response()
}

async fn challenge(State(shared): State<Arc<Shared>>, Path((id, at)): Path<(usize, usize)>) -> Response {
    let (kind, result) = shared.behavior.lock().challenges.expect("it has some");
    let state = match result {
        Validation::Good => "valid",
        Validation::Fails => "invalid",
        Validation::Overloaded => return problem("serverInternal", "overloaded", StatusCode::SERVICE_UNAVAILABLE, 0),
    };
    shared.authorizations.lock()[id][at] = state;
    if result == Validation::Fails {
        return problem("unauthorized", "wrong record", StatusCode::FORBIDDEN, 0);
    }
    let challenge = json!({"type": kind, "url": format!("{}/challenge/{id}/{at}", shared.base), "status": state,
        "token": format!("token-{id}-{at}")});
    challenge.to_string().into_response()
}

async fn finalize(State(shared): State<Arc<Shared>>, Path(id): Path<usize>, body: Bytes) -> Response {
    if shared.behavior.lock().fails_to_sign {
        shared.unsigned.lock().push(id);
        return state(&shared, id).to_string().into_response();
    }
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
    shared.renewals.lock().push(id.clone());
    let (is_half, is_first) = (shared.behavior.lock().has_half_of_renewals, shared.renewals.lock()[0] == id);
    if is_half && is_first {
        let problem = json!({"type": "urn:ietf:params:acme:error:malformed", "detail": "no such certificate"});
        return (StatusCode::NOT_FOUND, problem.to_string()).into_response();
    }
    let Some(([start, end], pause)) = shared.behavior.lock().renewal else {
        return problem("malformed", "not found", StatusCode::NOT_FOUND, 0);
    };
    let window = json!({"suggestedWindow": {"start": start, "end": end}});
    if is_half {
        return window.to_string().into_response();
    }
    ([(header::RETRY_AFTER, pause.to_string())], window.to_string()).into_response()
}
