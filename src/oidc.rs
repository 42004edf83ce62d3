//! Sign-in at an identity provider: a client of OpenID Connect Core 1.0 and Discovery 1.0.
//!
//! ```text
//!   Login ──► authorization_url ──► browser, provider ──► query of the redirect ──► code ──► exchange ──► Tokens
//!                                                                         refresh token ──► refresh ──► Tokens
//! ```
//!
//! The dashboard uses the authorization code flow (RFC 6749 §4.1) with PKCE (RFC 7636). The API verifies the signature, audience,
//! and time of an ID token at each request. This module checks what only the client can: `state`, `nonce`, and that issuer and
//! client are the expected ones.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use data_encoding::BASE64URL_NOPAD;
use form_urlencoded::{Serializer, byte_serialize};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;

use signpost_apiserver::auth::jwt::{self, TOKEN_OCTETS_MAX};
use signpost_runtime::trust;

/// The timeout of a request to the provider.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// The maximum size of a response in octets: two tokens of the maximum length, and the largest discovery documents.
const RESPONSE_OCTETS_MAX: usize = 64 * 1024;
/// The maximum length of the query of a redirect in octets. Codes of some providers have two thousand.
const QUERY_OCTETS_MAX: usize = 8 * 1024;
/// The maximum length of a provider's text in a message.
const SHOWN_CHARACTERS_MAX: usize = 300;
/// The time for which a discovery document is used.
const ENDPOINTS_LAST: Duration = Duration::from_secs(600);
/// The time for which the error of a discovery is used, so that strangers cannot cause a request each.
const ERROR_LASTS: Duration = Duration::from_secs(5);
/// The scopes to request if the provider supports them. Many providers issue a refresh token for `offline_access` only.
const USUAL_SCOPES: [&str; 4] = ["profile", "email", "groups", "offline_access"];

/// The reason why a sign-in fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The provider is not reachable, or its response is invalid.
    #[error("identity provider: {url}: {reason}")]
    Provider {
        /// The URL of the request.
        url: String,
        /// The problem.
        reason: String,
    },
    /// The provider rejected the user or the request (RFC 6749 §4.1.2.1 and §5.2).
    #[error("the identity provider rejected the sign-in: {code}{description}")]
    Rejected {
        /// The error code of the standard.
        code: String,
        /// The provider's explanation, after a colon; can be empty.
        description: String,
    },
    /// The response belongs to another sign-in.
    #[error("the response does not belong to this sign-in: {0}")]
    Foreign(&'static str),
    /// The secret of the client cannot be read.
    #[error("client-secret-file {0}")]
    Secret(String),
    /// The system returned no random numbers.
    #[error("the system returned no random numbers")]
    NoRandomNumbers,
}

impl Error {
    fn provider(url: &str, reason: impl Display) -> Self {
        Error::Provider { url: url.to_owned(), reason: plain(&reason.to_string()) }
    }

    fn rejected(code: &str, description: Option<&str>) -> Self {
        let description = description.filter(|text| !text.is_empty());
        let description = description.map(|text| format!(": {}", plain(text))).unwrap_or_default();
        Error::Rejected { code: plain(code), description }
    }
}

/// Returns a text of the provider for a message: a terminal or a log line.
fn plain(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(SHOWN_CHARACTERS_MAX).collect()
}

/// The secrets of one sign-in. They are derived from a key and a name, so that a server can make them again from its key and what
/// the browser kept, instead of storing each sign-in that a stranger begins.
pub struct Login {
    /// The parameter `state`, which shows that a redirect belongs to the sign-in.
    pub state: String,
    nonce: String,
    /// The `code_verifier` of PKCE, with 43 characters (RFC 7636 §4.1).
    verifier: String,
}

impl Login {
    pub fn key() -> Result<hmac::Key, Error> {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| Error::NoRandomNumbers)
    }

    /// Returns the secrets of the sign-in with this name.
    pub fn of(key: &hmac::Key, name: &str) -> Self {
        let derived =
            |purpose: &str| BASE64URL_NOPAD.encode(hmac::sign(key, format!("{purpose} {name}").as_bytes()).as_ref());
        Login { state: derived("state"), nonce: derived("nonce"), verifier: derived("verifier") }
    }

    /// Returns `code_challenge` for the method `S256` (RFC 7636 §4.2).
    fn challenge(&self) -> String {
        BASE64URL_NOPAD.encode(digest(&SHA256, self.verifier.as_bytes()).as_ref())
    }
}

/// The tokens of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The token for the API.
    pub id_token: String,
    /// The token for the next ID token, if the provider issued one.
    pub refresh_token: Option<String>,
    /// The expiry of the ID token in seconds since the epoch.
    pub expires: i64,
    nonce: Option<String>,
}

impl Tokens {
    /// Reads a token response (RFC 6749 §5.1, OpenID Connect Core §3.1.3.3) for `client`.
    fn parse(octets: &[u8], client: &Registration) -> Result<Self, String> {
        let response: Value = serde_json::from_slice(octets).map_err(|error| format!("the response: {error}"))?;
        let token = |name: &str| response[name].as_str().filter(|token| !token.is_empty());
        let id_token =
            token("id_token").ok_or("the response contains no ID token; the client needs the scope openid")?;
        let refresh_token = token("refresh_token");
        if [Some(id_token), refresh_token].into_iter().flatten().any(|token| token.len() > TOKEN_OCTETS_MAX) {
            return Err(format!("a token is longer than {TOKEN_OCTETS_MAX} bytes"));
        }
        let claims = jwt::unverified_claims(id_token).ok_or("the ID token is malformed")?;
        // OpenID Connect Core §3.1.3.7, points 2 and 3.
        if claims.get("iss").and_then(Value::as_str) != Some(client.issuer.as_str()) {
            return Err("the ID token has another issuer".to_owned());
        }
        let is_client = |value: &Value| value.as_str() == Some(client.client_id.as_str());
        let is_for_client = match claims.get("aud") {
            Some(Value::Array(several)) => several.iter().any(is_client),
            Some(one) => is_client(one),
            None => false,
        };
        if !is_for_client {
            return Err("the ID token is for another client".to_owned());
        }
        let expires = claims.get("exp").and_then(Value::as_f64).ok_or("the ID token has no expiry")?;
        Ok(Tokens {
            id_token: id_token.to_owned(),
            refresh_token: refresh_token.map(str::to_owned),
            expires: expires as i64,
            nonce: claims.get("nonce").and_then(Value::as_str).map(str::to_owned),
        })
    }
}

/// The endpoints of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Endpoints {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    scopes_supported: Option<Vec<String>>,
}

impl Endpoints {
    /// Reads the discovery document of `issuer`.
    fn parse(octets: &[u8], issuer: &str) -> Result<Self, String> {
        let found: Endpoints =
            serde_json::from_slice(octets).map_err(|error| format!("not a discovery document: {error}"))?;
        // Discovery §4.3: "The issuer value returned MUST be identical to the Issuer URL".
        if found.issuer != issuer {
            return Err(format!("the document is of issuer \"{}\", not of \"{issuer}\"", found.issuer));
        }
        for url in [&found.authorization_endpoint, &found.token_endpoint] {
            if !trust::is_for_credentials(url) {
                return Err(format!("endpoint \"{url}\" is not an https URL (http only on this machine)"));
            }
        }
        Ok(found)
    }

    /// Returns the scopes to request in addition to `openid`: those that are configured, or the usual ones.
    fn scopes<'a>(&self, configured: &'a [String]) -> Vec<&'a str> {
        if !configured.is_empty() {
            return configured.iter().map(String::as_str).filter(|scope| *scope != "openid").collect();
        }
        let supported = self.scopes_supported.as_deref().unwrap_or_default();
        USUAL_SCOPES.into_iter().filter(|usual| supported.iter().any(|one| one == usual)).collect()
    }

    /// Returns the address for the browser.
    fn authorization_url(&self, client: &Registration, login: &Login, redirect_uri: &str) -> String {
        let scope = [&["openid"][..], &self.scopes(&client.scopes)].concat().join(" ");
        let challenge = login.challenge();
        let parameters: [(&str, &str); 8] = [
            ("response_type", "code"),
            ("client_id", &client.client_id),
            ("redirect_uri", redirect_uri),
            ("scope", &scope),
            ("state", &login.state),
            ("nonce", &login.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        let query = Serializer::new(String::new()).extend_pairs(parameters).finish();
        let separator = if self.authorization_endpoint.contains('?') { '&' } else { '?' };
        format!("{}{separator}{query}", self.authorization_endpoint)
    }
}

/// The registration of a client at an identity provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The URL of the provider, exactly as in `iss` of its tokens.
    pub issuer: String,
    /// The name of the client at the provider.
    pub client_id: String,
    /// The scopes to request, instead of the usual ones that the provider supports.
    pub scopes: Vec<String>,
    /// The certificate authorities in PEM to trust for the provider instead of the system's.
    pub ca: Option<String>,
}

/// A client at a provider.
pub struct Client {
    registration: Registration,
    secret_file: Option<PathBuf>,
    http: reqwest::Client,
    /// The result of the last discovery, and its time.
    discovered: Mutex<Option<(Instant, Result<Endpoints, Error>)>>,
}

impl Client {
    /// Returns the client with this registration. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// If the issuer is not a URL for credentials, or the certificate authorities are invalid.
    pub fn new(registration: Registration, secret_file: Option<PathBuf>) -> Result<Self, Error> {
        let issuer = registration.issuer.as_str();
        if !trust::is_for_credentials(issuer) {
            return Err(Error::provider(issuer, "the issuer must be an https URL (http only on this machine)"));
        }
        let builder = trust::client_of_pem(registration.ca.as_deref());
        let builder = builder.map_err(|error| Error::provider(issuer, error))?.timeout(REQUEST_TIME_MAX);
        let http = builder.build().map_err(|error| Error::provider(issuer, error))?;
        Ok(Client { registration, secret_file, http, discovered: Mutex::default() })
    }

    /// Returns the name of the provider for users: its host.
    pub fn name(&self) -> &str {
        let issuer = &self.registration.issuer;
        let rest = issuer.split_once("://").map_or(issuer.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    /// Returns the scopes that a sign-in requests in addition to `openid`.
    pub async fn scopes(&self) -> Result<Vec<String>, Error> {
        let endpoints = self.endpoints().await?;
        Ok(endpoints.scopes(&self.registration.scopes).into_iter().map(str::to_owned).collect())
    }

    /// Returns the address at which the user signs in. The provider then sends the browser to `redirect_uri`.
    pub async fn authorization_url(&self, login: &Login, redirect_uri: &str) -> Result<String, Error> {
        Ok(self.endpoints().await?.authorization_url(&self.registration, login, redirect_uri))
    }

    /// Returns the code in the query of the redirect (RFC 6749 §4.1.2).
    pub fn code(&self, query: &str, login: &Login) -> Result<String, Error> {
        if query.len() > QUERY_OCTETS_MAX {
            return Err(Error::Foreign("it is too long"));
        }
        let mut parameters = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            // RFC 6749 §3.1: "parameters MUST NOT be included more than once".
            if parameters.insert(name, value).is_some() {
                return Err(Error::Foreign("a parameter is repeated"));
            }
        }
        let text = |name: &str| parameters.get(name).map(|value| &**value);
        let state = text("state").unwrap_or_default();
        if verify_slices_are_equal(state.as_bytes(), login.state.as_bytes()).is_err() {
            return Err(Error::Foreign("its state is another one"));
        }
        // RFC 9207 §2.4: clients of several providers must compare it.
        if text("iss").is_some_and(|issuer| issuer != self.registration.issuer) {
            return Err(Error::Foreign("its issuer is another one"));
        }
        if let Some(error) = text("error") {
            return Err(Error::rejected(error, text("error_description")));
        }
        text("code").filter(|code| !code.is_empty()).map(str::to_owned).ok_or(Error::Foreign("it contains no code"))
    }

    /// Exchanges a code for the tokens of the user.
    pub async fn exchange(&self, code: &str, login: &Login, redirect_uri: &str) -> Result<Tokens, Error> {
        let tokens = self
            .tokens(&[
                ("grant_type", "authorization_code"),
                ("code", code),
                ("redirect_uri", redirect_uri),
                ("code_verifier", &login.verifier),
            ])
            .await?;
        // OpenID Connect Core §3.1.3.7, point 11: the token was made for this sign-in.
        match tokens.nonce.as_ref() == Some(&login.nonce) {
            true => Ok(tokens),
            false => Err(Error::Foreign("the nonce of the ID token is another one")),
        }
    }

    /// Exchanges a refresh token for new tokens (RFC 6749 §6).
    pub async fn refresh(&self, refresh_token: &str, former: &str) -> Result<Tokens, Error> {
        let tokens = self.tokens(&[("grant_type", "refresh_token"), ("refresh_token", refresh_token)]).await?;
        // OpenID Connect Core §12.2: the subject stays the same.
        let subject = |token: &str| jwt::unverified_claims(token)?.get("sub").cloned();
        if subject(&tokens.id_token) != subject(former) {
            return Err(Error::Foreign("the renewed ID token is of another user"));
        }
        // A provider that issues no new one leaves the old one valid.
        Ok(Tokens { refresh_token: tokens.refresh_token.or_else(|| Some(refresh_token.to_owned())), ..tokens })
    }

    /// Returns the endpoints. Concurrent sign-ins share one request.
    async fn endpoints(&self) -> Result<Endpoints, Error> {
        let mut discovered = self.discovered.lock().await;
        if let Some((at, found)) = &*discovered {
            let lasts = if found.is_ok() { ENDPOINTS_LAST } else { ERROR_LASTS };
            if at.elapsed() < lasts {
                return found.clone();
            }
        }
        let issuer = &self.registration.issuer;
        // Discovery §4.1: a terminating slash is removed.
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        // For the next sign-in, if the client of this one disconnects before the response.
        *discovered = Some((Instant::now(), Err(Error::provider(&url, "the last request was canceled; retry"))));
        let found = match self.send(&url, self.http.get(&url)).await {
            Ok((status, octets)) if status.is_success() => {
                Endpoints::parse(&octets, issuer).map_err(|reason| Error::provider(&url, reason))
            }
            Ok((status, _)) => Err(Error::provider(&url, format!("the response has status {status}"))),
            Err(error) => Err(error),
        };
        *discovered = Some((Instant::now(), found.clone()));
        found
    }

    async fn tokens(&self, parameters: &[(&str, &str)]) -> Result<Tokens, Error> {
        let url = self.endpoints().await?.token_endpoint;
        let octets = self.post(&url, parameters).await?;
        Tokens::parse(&octets, &self.registration).map_err(|reason| Error::provider(&url, reason))
    }

    /// Posts a form, with the credentials of the client.
    async fn post(&self, url: &str, parameters: &[(&str, &str)]) -> Result<Vec<u8>, Error> {
        let (client_id, secret) = (self.registration.client_id.as_str(), self.secret()?);
        let public = secret.is_none().then_some(("client_id", client_id));
        let form = Serializer::new(String::new()).extend_pairs(parameters.iter().copied().chain(public)).finish();
        let mut request = self.http.post(url).header("content-type", "application/x-www-form-urlencoded").body(form);
        if let Some(secret) = secret {
            // RFC 6749 §2.3.1: "The client identifier is encoded using the "application/x-www-form-urlencoded" encoding".
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            request = request.basic_auth(encoded(client_id), Some(encoded(&secret)));
        }
        let (status, octets) = self.send(url, request).await?;
        if status.is_success() {
            return Ok(octets);
        }
        let error: Value = serde_json::from_slice(&octets).unwrap_or_default();
        Err(match error["error"].as_str() {
            Some(code) => Error::rejected(code, error["error_description"].as_str()),
            None => Error::provider(url, format!("the response has status {status}")),
        })
    }

    /// Returns the secret of the client. The file is read for each request, so that a new secret needs no restart.
    fn secret(&self) -> Result<Option<String>, Error> {
        let Some(path) = &self.secret_file else { return Ok(None) };
        let bad = |reason: &dyn Display| Error::Secret(format!("{}: {reason}", path.display()));
        let secret = std::fs::read_to_string(path).map_err(|error| bad(&error))?;
        match secret.trim() {
            "" => Err(bad(&"is empty")),
            secret => Ok(Some(secret.to_owned())),
        }
    }

    async fn send(&self, url: &str, request: reqwest::RequestBuilder) -> Result<(reqwest::StatusCode, Vec<u8>), Error> {
        let sent = trust::exchange(request.header("accept", "application/json"), RESPONSE_OCTETS_MAX).await;
        sent.map_err(|error| Error::provider(url, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ISSUER: &str = "https://idp.example";

    fn registration() -> Registration {
        Registration { issuer: ISSUER.to_owned(), client_id: "cli".to_owned(), scopes: Vec::new(), ca: None }
    }

    fn login() -> Login {
        Login::of(&hmac::Key::new(hmac::HMAC_SHA256, b"a key of this test"), "name")
    }

    fn document(change: &Value) -> Vec<u8> {
        let mut document = json!({"issuer": ISSUER, "authorization_endpoint": format!("{ISSUER}/authorize"),
            "token_endpoint": format!("{ISSUER}/token"), "scopes_supported": ["openid", "groups", "address", "email"]});
        json_patch::merge(&mut document, change);
        document.to_string().into_bytes()
    }

    #[test]
    fn secrets_differ_by_purpose_and_by_sign_in() {
        let key = Login::key().expect("random numbers");
        let (one, again, other) = (Login::of(&key, "one"), Login::of(&key, "one"), Login::of(&key, "other"));
        assert_eq!((&one.state, &one.nonce, &one.verifier), (&again.state, &again.nonce, &again.verifier));
        let all = [&one, &other].map(|login| [&login.state, &login.nonce, &login.verifier]);
        let all: std::collections::BTreeSet<_> = all.iter().flatten().collect();
        assert!(all.len() == 6 && all.iter().all(|secret| secret.len() == 43), "{all:?}");
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        assert_eq!(Login { verifier, ..one }.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn a_discovery_document_is_of_its_issuer_and_names_safe_endpoints() {
        let found = Endpoints::parse(&document(&json!({})), ISSUER).expect("it is valid");
        assert_eq!(found.scopes(&[]), ["email", "groups"]);
        assert_eq!(found.scopes(&["openid".to_owned(), "roles".to_owned()]), ["roles"]);
        for (change, part) in [
            (json!({"issuer": "https://evil.example"}), "of issuer \"https://evil.example\""),
            (json!({"token_endpoint": null}), "not a discovery document"),
            (json!({"token_endpoint": "http://idp.example/token"}), "is not an https URL"),
            (json!({"authorization_endpoint": "javascript:alert(1)"}), "is not an https URL"),
        ] {
            let error = Endpoints::parse(&document(&change), ISSUER).expect_err("it is invalid");
            assert!(error.contains(part), "{change}: {error}");
        }
    }

    #[test]
    fn the_address_for_the_browser_has_all_parameters() {
        let change =
            json!({"authorization_endpoint": "https://idp.example/authorize?tenant=a", "scopes_supported": null});
        let endpoints = Endpoints::parse(&document(&change), ISSUER).expect("it is valid");
        let url = endpoints.authorization_url(&registration(), &login(), "http://127.0.0.1:1/callback");
        let query = url.strip_prefix("https://idp.example/authorize?").expect("the endpoint");
        let found: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let (secrets, challenge) = (login(), login().challenge());
        let expected: [(&str, &str); 9] = [
            ("tenant", "a"),
            ("response_type", "code"),
            ("client_id", "cli"),
            ("redirect_uri", "http://127.0.0.1:1/callback"),
            ("scope", "openid"),
            ("state", &secrets.state),
            ("nonce", &secrets.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, BTreeMap::from(expected));
        assert!(!url.contains(&secrets.verifier));
    }

    #[test]
    fn only_the_response_to_a_sign_in_has_its_code() {
        let client = Client::new(registration(), None).expect("a client");
        let state = login().state;
        let foreign = |what| Err(Error::Foreign(what));
        for (query, expected) in [
            (format!("code=a%2Bb&state={state}"), Ok("a+b".to_owned())),
            (format!("code=c&state={state}&iss=https%3A%2F%2Fidp.example&session_state=x"), Ok("c".to_owned())),
            (format!("code=c&state={state}&iss=https://evil.example"), foreign("its issuer is another one")),
            (format!("code=c&code=d&state={state}"), foreign("a parameter is repeated")),
            ("code=c&state=x".to_owned(), foreign("its state is another one")),
            ("error=access_denied".to_owned(), foreign("its state is another one")),
            (format!("state={state}"), foreign("it contains no code")),
            (format!("code=&state={state}"), foreign("it contains no code")),
            (format!("code={}&state={state}", "c".repeat(9_000)), foreign("it is too long")),
            (String::new(), foreign("its state is another one")),
            (
                format!("error=access_denied&error_description=no%0Aaccess&state={state}"),
                Err(Error::Rejected { code: "access_denied".to_owned(), description: ": noaccess".to_owned() }),
            ),
        ] {
            assert_eq!(client.code(&query, &login()), expected, "{query:.200}");
        }
    }

    #[test]
    fn token_responses_are_for_the_client_and_bounded() {
        let token = |claims: Value| format!("e30.{}.c2ln", BASE64URL_NOPAD.encode(claims.to_string().as_bytes()));
        let good = json!({"iss": ISSUER, "aud": ["other", "cli"], "exp": 1_700_000_000.5, "nonce": "n"});
        let with = |name: &str, value: Value| {
            let mut claims = good.clone();
            claims[name] = value;
            json!({"id_token": token(claims)})
        };
        let parse = |response: &Value| Tokens::parse(response.to_string().as_bytes(), &registration());
        let found = parse(&json!({"id_token": token(good.clone()), "refresh_token": "r", "access_token": "a"}));
        let expected = Tokens {
            id_token: token(good.clone()),
            refresh_token: Some("r".to_owned()),
            expires: 1_700_000_000,
            nonce: Some("n".to_owned()),
        };
        assert_eq!(found, Ok(expected));
        assert!(parse(&with("aud", json!("cli"))).is_ok());
        for (response, part) in [
            (json!({"access_token": "a"}), "no ID token"),
            (json!({"id_token": "a.b"}), "malformed"),
            (json!({"id_token": format!("a.{}.c", "b".repeat(20_000))}), "longer than"),
            (json!({"id_token": token(good.clone()), "refresh_token": "r".repeat(20_000)}), "longer than"),
            (with("iss", json!("https://evil.example")), "another issuer"),
            (with("aud", json!(["other"])), "another client"),
            (with("aud", Value::Null), "another client"),
            (with("exp", Value::Null), "no expiry"),
            (json!([]), "no ID token"),
        ] {
            let error = parse(&response).expect_err("it is invalid");
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(Tokens::parse(b"<html>", &registration()).is_err());
    }

    #[test]
    fn providers_are_named_by_their_hosts() {
        for (issuer, name) in
            [("https://idp.example/realms/a", "idp.example"), ("http://127.0.0.1:5556", "127.0.0.1:5556")]
        {
            let client = Client::new(Registration { issuer: issuer.to_owned(), ..registration() }, None);
            assert_eq!(client.expect("a client").name(), name);
        }
        let unsafe_issuer = Registration { issuer: "http://idp.example".to_owned(), ..registration() };
        assert!(Client::new(unsafe_issuer, None).is_err());
    }
}
