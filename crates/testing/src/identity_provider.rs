//! An identity provider (OpenID Connect) on loopback. Its one user, `tina`, agrees to everything at once.
//!
//! It is as strict as the standards permit: codes and refresh tokens work once, a code only with its redirect URI and verifier
//! (RFC 7636), and the client `web` only with its secret. The client `cli` is that of a credential plugin, which a test replaces.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use serde_json::{Value, json};

use crate::net::visit;

/// The secret of the client `web`, with characters that must be encoded (RFC 6749 §2.3.1).
pub const WEB_SECRET: &str = "s3cret/+";

/// A running provider. It ends with the process of the test.
pub struct IdentityProvider {
    /// The URL of the provider.
    pub issuer: String,
    shared: Arc<Shared>,
}

struct Shared {
    issuer: String,
    key: EcdsaKeyPair,
    state: Mutex<State>,
}

struct State {
    /// The lifetime of ID tokens in seconds.
    lifetime: i64,
    /// Whether the user refuses.
    denies: bool,
    /// The unused codes and refresh tokens.
    grants: BTreeMap<String, Grant>,
    /// The number of grants so far.
    number: usize,
    /// The grant types of the token requests so far, with the status of the response.
    requests: Vec<(String, u16)>,
}

#[derive(Clone, Default)]
struct Grant {
    /// The values that the next token request must repeat.
    redirect_uri: Option<String>,
    challenge: Option<String>,
    nonce: Option<String>,
}

type Form = BTreeMap<String, String>;
/// The status, the value of `Location`, and the body of a response.
type Answer = (u16, Option<String>, Value);

impl IdentityProvider {
    /// Starts it.
    pub fn start() -> IdentityProvider {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let issuer = format!("http://{}", listener.local_addr().expect("it is bound"));
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        let state = State { lifetime: 3_600, denies: false, grants: BTreeMap::new(), number: 0, requests: Vec::new() };
        let shared = Arc::new(Shared { issuer: issuer.clone(), key, state: Mutex::new(state) });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A browser also opens connections that it does not use yet.
                let serving = serving.clone();
                std::thread::spawn(move || {
                    // A client that disconnects gets no response.
                    let _ = serving.serve(stream);
                });
            }
        });
        IdentityProvider { issuer, shared }
    }

    /// Returns the value of `--jwt-issuer` for a platform whose groups are `prefix` and those of the user: `tenant:shop`.
    pub fn setting(&self, more: &str) -> String {
        let issuer = &self.issuer;
        format!(
            "issuer={issuer},jwks={issuer}/keys,client-id=web,cli-client-id=cli,username-prefix=idp:,\
             groups-prefix=signpost:,leeway=0s{more}"
        )
    }

    /// Sets the lifetime of ID tokens from now on.
    pub fn set_lifetime(&self, seconds: i64) {
        self.shared.state().lifetime = seconds;
    }

    /// Sets whether the user refuses.
    pub fn set_denies(&self, denies: bool) {
        self.shared.state().denies = denies;
    }

    /// Ends all sign-ins: no code or refresh token works any more.
    pub fn revoke_all(&self) {
        self.shared.state().grants.clear();
    }

    /// Returns a token of the user for the client `cli`.
    pub fn cli_token(&self) -> String {
        let lifetime = self.shared.state().lifetime;
        self.shared.id_token("cli", None, lifetime)
    }

    /// Returns the number of token requests of a grant type with this status.
    pub fn requests(&self, grant_type: &str, status: u16) -> usize {
        let is_it = |request: &&(String, u16)| request.0 == grant_type && request.1 == status;
        self.shared.state().requests.iter().filter(is_it).count()
    }

    /// Visits the address of a sign-in as the user's browser, and returns the address to which the provider sends it.
    #[track_caller]
    pub fn sign_in(&self, address: &str) -> String {
        assert!(address.starts_with(&self.issuer), "{address}");
        let answer = visit(address).expect("the provider responds");
        answer.header("location").unwrap_or_else(|| panic!("{}: {}", answer.status, answer.body)).to_owned()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut request = Vec::new();
        let mut chunk = [0; 4096];
        let text = loop {
            let length = stream.read(&mut chunk)?;
            request.extend_from_slice(&chunk[..length]);
            let text = String::from_utf8_lossy(&request);
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                if length == 0 {
                    return Ok(());
                }
                continue;
            };
            let expected = header(head, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
            if body.len() >= expected || length == 0 {
                break text.into_owned();
            }
        };
        let (head, body) = text.split_once("\r\n\r\n").expect("it was found");
        let (status, location, body) = self.answer(head, body);
        let location = location.map(|address| format!("Location: {address}\r\n")).unwrap_or_default();
        let body = body.to_string();
        write!(
            stream,
            "HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Type: application/json\r\n{location}Content-Length: \
             {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn answer(&self, head: &str, body: &str) -> Answer {
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let form = |text: &str| -> Form { form_urlencoded::parse(text.as_bytes()).into_owned().collect() };
        match (method, path) {
            ("GET", "/.well-known/openid-configuration") => (200, None, self.document()),
            ("GET", "/keys") => (200, None, self.keys()),
            ("GET", "/authorize") => self.authorize(&form(query)),
            ("POST", "/token") => {
                let form = form(body);
                let answer = self.token(&form, header(head, "authorization"));
                let grant_type = form.get("grant_type").cloned().unwrap_or_default();
                self.state().requests.push((grant_type, answer.0));
                answer
            }
            _ => (404, None, json!({})),
        }
    }

    fn document(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        json!({"issuer": self.issuer, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
            "jwks_uri": at("/keys"), "scopes_supported": ["openid", "groups", "offline_access"]})
    }

    fn keys(&self) -> Value {
        let point = &self.key.public_key().as_ref()[1..];
        let [x, y] = [&point[..32], &point[32..]].map(|half| BASE64URL_NOPAD.encode(half));
        json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "a", "use": "sig", "x": x, "y": y}]})
    }

    fn authorize(&self, form: &Form) -> Answer {
        let text = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let is_good = text("response_type") == "code"
            && text("client_id") == "web"
            && text("scope").split(' ').any(|scope| scope == "openid")
            && text("code_challenge_method") == "S256";
        if !is_good {
            return (400, None, json!({"error": "invalid_request"}));
        }
        let state = text("state");
        let redirect_uri = text("redirect_uri");
        if self.state().denies {
            let query = format!("error=access_denied&error_description=tina+refuses&state={state}");
            return (302, Some(format!("{redirect_uri}?{query}")), json!({}));
        }
        let code = self.grant(Grant {
            redirect_uri: Some(redirect_uri.to_owned()),
            challenge: Some(text("code_challenge").to_owned()),
            nonce: Some(text("nonce").to_owned()),
        });
        (302, Some(format!("{redirect_uri}?code={code}&state={state}&iss={}", self.issuer)), json!({}))
    }

    /// Returns the text of a new grant.
    fn grant(&self, grant: Grant) -> String {
        let mut state = self.state();
        state.number += 1;
        let text = format!("grant-{}", state.number);
        state.grants.insert(text.clone(), grant);
        text
    }

    fn token(&self, form: &Form, authorization: Option<&str>) -> Answer {
        let error = |code: &str| (400, None, json!({"error": code}));
        let secret = WEB_SECRET.replace('/', "%2F").replace('+', "%2B");
        let expected = format!("Basic {}", BASE64.encode(format!("web:{secret}").as_bytes()));
        if authorization != Some(expected.as_str()) {
            return (401, None, json!({"error": "invalid_client"}));
        }
        let grant_type = form.get("grant_type").map(String::as_str).unwrap_or_default();
        let parameter = match grant_type {
            "authorization_code" => "code",
            "refresh_token" => "refresh_token",
            _ => return error("unsupported_grant_type"),
        };
        let name = form.get(parameter).cloned().unwrap_or_default();
        let (grant, lifetime) = {
            let mut state = self.state();
            (state.grants.remove(&name), state.lifetime)
        };
        let verifier = form.get("code_verifier").map(|text| digest(&SHA256, text.as_bytes()));
        let challenge = verifier.map(|hash| BASE64URL_NOPAD.encode(hash.as_ref()));
        let Some(grant) = grant
            .filter(|grant| grant.redirect_uri.as_ref() == form.get("redirect_uri") && grant.challenge == challenge)
        else {
            return error("invalid_grant");
        };
        let id_token = self.id_token("web", grant.nonce.as_deref(), lifetime);
        let refresh_token = self.grant(Grant::default());
        (200, None, json!({"token_type": "Bearer", "id_token": id_token, "refresh_token": refresh_token}))
    }

    fn id_token(&self, client: &str, nonce: Option<&str>, lifetime: i64) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
        let now = i64::try_from(now).expect("a time");
        let mut claims = json!({"iss": self.issuer, "aud": client, "sub": "tina", "groups": ["tenant:shop"],
            "iat": now, "exp": now + lifetime});
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        let part = |value: Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let message = format!("{}.{}", part(json!({"alg": "ES256", "kid": "a"})), part(claims));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).expect("signs");
        format!("{message}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
    }
}

/// Returns the value of a header.
fn header<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
}
