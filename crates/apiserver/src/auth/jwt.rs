//! Tokens of users' own identity providers (RFC 7519, as OpenID Connect uses them).
//!
//! A token is accepted if a configured provider issued it for one of its audiences, a key of its set ([`jwks`](super::jwks))
//! signed it with an asymmetric algorithm on the list, and it has not expired. Its claims then determine the user and the groups,
//! each with a prefix. A provider cannot issue the platform's own identities (`system:…`): such a user is rejected, and such a
//! group is ignored.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::{Algorithm, AlgorithmFamily, Validation};
use serde_json::{Map, Value};

use super::jwks::{KeySet, RefreshPolicy, Source};
use crate::auth::identity::{GROUP_AUTHENTICATED, Identity};

/// The maximum length of a token in octets. Real tokens have one to four thousand.
pub const TOKEN_OCTETS_MAX: usize = 16 * 1024;
/// The maximum number of groups of a token.
const GROUPS_MAX: usize = 500;
/// The maximum length of a user or group name in octets, including the prefix.
const NAME_OCTETS_MAX: usize = 512;
/// The prefix of the platform's own names.
const RESERVED_PREFIX: &str = "system:";
/// The maximum permitted clock skew.
pub const LEEWAY_MAX: Duration = Duration::from_secs(300);

/// The supported signature algorithms. `none` and those with a shared secret are excluded and cannot be configured.
pub const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// The settings of an identity provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerSettings {
    /// The exact `iss` of its tokens.
    pub issuer: String,
    /// At least one of these must be in `aud`; not empty.
    pub audiences: Vec<String>,
    /// The source of the keys.
    pub keys: Source,
    /// The accepted algorithms among [`ALGORITHMS`].
    pub algorithms: Vec<Algorithm>,
    /// The claim that holds the user's name.
    pub username_claim: String,
    /// The prefix of the user name.
    pub username_prefix: String,
    /// The claim that holds the groups: a list of texts, or one text.
    pub groups_claim: String,
    /// The prefix of each group.
    pub groups_prefix: String,
    /// The permitted clock skew of the provider.
    pub leeway: Duration,
    /// The clients with which users sign in, if the provider is set up for that.
    pub sign_in: Option<SignIn>,
}

/// The clients that are registered at an identity provider for the sign-in of users (OpenID Connect).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    /// The client of web pages.
    pub client_id: String,
    /// The file with the secret of that client; a public client has none.
    pub secret_file: Option<PathBuf>,
    /// The client of command lines, which cannot keep a secret.
    pub cli_client_id: String,
    /// The scopes to request, instead of the usual ones.
    pub scopes: Vec<String>,
    /// The certificate authorities in PEM to trust for the provider instead of the system's.
    pub authorities: Option<PathBuf>,
}

/// An identity provider with its keys.
pub struct Issuer {
    settings: IssuerSettings,
    keys: Arc<KeySet>,
}

impl Issuer {
    /// Returns the provider; its keys are fetched when its first token comes.
    pub fn new(settings: IssuerSettings, pace: RefreshPolicy) -> Self {
        let keys = KeySet::new(settings.keys.clone(), pace);
        Issuer { settings, keys }
    }
}

/// The reason why a token is rejected. The client receives only 401; this is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The token is malformed.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// The issuer is not configured.
    #[error("its issuer is not configured")]
    Issuer,
    /// The algorithm is not on the list.
    #[error("its algorithm is not allowed")]
    Algorithm,
    /// No key with its id is known.
    #[error("its key is unknown")]
    Key,
    /// The signature, audience, or time is invalid; the message is the library's.
    #[error("{0}")]
    Invalid(String),
    /// A claim is missing or is not a valid name.
    #[error("claim {0:?} is missing or invalid")]
    Claim(String),
}

/// Returns whether a bearer token has the three parts of these tokens.
pub fn looks_like_one(token: &str) -> bool {
    token.bytes().filter(|octet| *octet == b'.').count() == 2
}

/// Returns the claims of a token. Nothing is verified: only for its bearer, which got it from the provider.
pub fn unverified_claims(token: &str) -> Option<Map<String, Value>> {
    let payload = token.split('.').nth(1).filter(|_| token.len() <= TOKEN_OCTETS_MAX && looks_like_one(token))?;
    object(payload)
}

/// Returns the identity of a token, and its expiry in seconds since the epoch.
pub async fn identify(issuers: &[Issuer], token: &str) -> Result<(Identity, i64), Refused> {
    if token.len() > TOKEN_OCTETS_MAX {
        return Err(Refused::Malformed("too long"));
    }
    let mut parts = token.split('.');
    let (Some(header), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(Refused::Malformed("not three parts"));
    };
    let header = object(header).ok_or(Refused::Malformed("its header is not a JSON object"))?;
    // RFC 7515 §4.1.11: a recipient that does not support the parameters in `crit` must reject the token; none is supported.
    if header.contains_key("crit") {
        return Err(Refused::Malformed("it requires an unsupported extension (crit)"));
    }
    let algorithm = header.get("alg").and_then(Value::as_str).and_then(|name| name.parse::<Algorithm>().ok());
    let algorithm = algorithm.filter(|one| one.family() != AlgorithmFamily::Hmac).ok_or(Refused::Algorithm)?;
    // Not verified yet: this only selects the keys for the verification, which requires the same issuer below.
    let claimed = object(payload).ok_or(Refused::Malformed("its claims are not a JSON object"))?;
    let claimed = claimed.get("iss").and_then(Value::as_str).unwrap_or_default();
    let issuer = issuers.iter().find(|issuer| issuer.settings.issuer == claimed).ok_or(Refused::Issuer)?;
    if !issuer.settings.algorithms.contains(&algorithm) {
        return Err(Refused::Algorithm);
    }
    let id = header.get("kid").and_then(Value::as_str);
    let keys = issuer.keys.find(id, algorithm).await;
    let mut refused = Refused::Key;
    for key in keys {
        match jsonwebtoken::decode::<Map<String, Value>>(token, &key, &validation(&issuer.settings, algorithm)) {
            Ok(token) => return issuer.settings.identity(&token.claims),
            Err(error) => refused = Refused::Invalid(error.to_string()),
        }
    }
    Err(refused)
}

fn validation(settings: &IssuerSettings, algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims = HashSet::from(["exp", "iss", "aud"].map(str::to_owned));
    validation.set_issuer(&[&settings.issuer]);
    validation.set_audience(&settings.audiences);
    validation.validate_nbf = true;
    validation.leeway = settings.leeway.as_secs();
    validation
}

impl IssuerSettings {
    /// Returns the identity in the verified claims.
    fn identity(&self, claims: &Map<String, Value>) -> Result<(Identity, i64), Refused> {
        let fault = |name: &str| Refused::Claim(name.to_owned());
        let name = claims.get(&self.username_claim).and_then(Value::as_str).filter(|name| !name.is_empty());
        let user = format!("{}{}", self.username_prefix, name.ok_or_else(|| fault(&self.username_claim))?);
        if !is_name(&user) || user.starts_with(RESERVED_PREFIX) {
            return Err(fault(&self.username_claim));
        }
        // As in Kubernetes: otherwise, a user who can register an unverified address with the provider could act as any other
        // user.
        if self.username_claim == "email" && claims.get("email_verified").is_some_and(|value| *value != true) {
            return Err(fault("email_verified"));
        }
        let named: Vec<&str> = match claims.get(&self.groups_claim) {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).take(GROUPS_MAX).collect(),
            _ => Vec::new(),
        };
        let mut groups: Vec<String> = named
            .into_iter()
            .filter(|group| !group.is_empty())
            .map(|group| format!("{}{group}", self.groups_prefix))
            .filter(|group| is_name(group) && !group.starts_with(RESERVED_PREFIX))
            .collect();
        groups.push(GROUP_AUTHENTICATED.to_owned());
        let expires = claims.get("exp").and_then(Value::as_f64).ok_or_else(|| fault("exp"))?;
        let leeway = i64::try_from(self.leeway.as_secs()).unwrap_or(0);
        Ok((Identity { user, groups }, (expires as i64).saturating_add(leeway)))
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_OCTETS_MAX && !name.chars().any(char::is_control)
}

fn object(part: &str) -> Option<Map<String, Value>> {
    let octets = BASE64URL_NOPAD.decode(part.as_bytes()).ok()?;
    match serde_json::from_slice(&octets).ok()? {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings() -> IssuerSettings {
        IssuerSettings {
            issuer: "https://idp.example".into(),
            audiences: vec!["library".into()],
            keys: Source::File("keys".into()),
            algorithms: ALGORITHMS.to_vec(),
            username_claim: "sub".into(),
            username_prefix: "idp:".into(),
            groups_claim: "groups".into(),
            groups_prefix: String::new(),
            leeway: Duration::ZERO,
            sign_in: None,
        }
    }

    #[test]
    fn claims_become_a_user_and_groups() {
        let email = IssuerSettings { username_claim: "email".into(), username_prefix: String::new(), ..settings() };
        let bare = IssuerSettings { username_prefix: String::new(), ..settings() };
        let prefixed = IssuerSettings { groups_prefix: "library:".into(), ..settings() };
        for (settings, claims, expected) in [
            (settings(), json!({"sub": "u", "exp": 1}), Some(("idp:u", vec![]))),
            (settings(), json!({"sub": "u", "exp": 1, "groups": "a"}), Some(("idp:u", vec!["a"]))),
            (settings(), json!({"sub": "u", "exp": 1, "groups": ["a", 7, "", "b"]}), Some(("idp:u", vec!["a", "b"]))),
            (settings(), json!({"sub": "u", "exp": 1, "groups": ["system:masters", "b"]}), Some(("idp:u", vec!["b"]))),
            (
                prefixed,
                json!({"sub": "u", "exp": 1, "groups": ["viewers", "tenant:shop"]}),
                Some(("idp:u", vec!["library:viewers", "library:tenant:shop"])),
            ),
            (settings(), json!({"exp": 1}), None),
            (settings(), json!({"sub": "", "exp": 1}), None),
            (settings(), json!({"sub": 7, "exp": 1}), None),
            (settings(), json!({"sub": "a\nb", "exp": 1}), None),
            (bare.clone(), json!({"sub": "system:masters", "exp": 1}), None),
            (bare, json!({"sub": "u", "exp": 1}), Some(("u", vec![]))),
            (email.clone(), json!({"email": "u@shop.test", "exp": 1}), Some(("u@shop.test", vec![]))),
            (
                email.clone(),
                json!({"email": "u@shop.test", "email_verified": true, "exp": 1}),
                Some(("u@shop.test", vec![])),
            ),
            (email, json!({"email": "u@shop.test", "email_verified": false, "exp": 1}), None),
        ] {
            let found = settings.identity(claims.as_object().expect("an object")).ok().map(|(identity, _)| identity);
            let expected = expected.map(|(user, groups)| {
                let groups = groups.into_iter().chain([GROUP_AUTHENTICATED]).map(str::to_owned).collect();
                Identity { user: user.to_owned(), groups }
            });
            assert_eq!(found, expected, "{claims}");
        }
    }

    #[tokio::test]
    async fn what_is_no_token_is_refused_before_any_key_is_asked_for() {
        let issuers = [Issuer::new(settings(), RefreshPolicy::default())];
        let part = |value: Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let claims = || part(json!({"iss": "https://idp.example"}));
        for (token, expected) in [
            ("a.b".to_owned(), Refused::Malformed("not three parts")),
            ("!.b.c".to_owned(), Refused::Malformed("its header is not a JSON object")),
            (format!("{}.{}.", part(json!({"alg": "none"})), claims()), Refused::Algorithm),
            (format!("{}.{}.x", part(json!({"alg": "HS256"})), claims()), Refused::Algorithm),
            (format!("{}.{}.x", part(json!({})), claims()), Refused::Algorithm),
            (
                format!("{}.{}.x", part(json!({"alg": "ES256"})), part(json!({"iss": "https://other.example"}))),
                Refused::Issuer,
            ),
            (
                format!("{}.{}.x", part(json!({"alg": "ES256", "crit": ["x"]})), claims()),
                Refused::Malformed("it requires an unsupported extension (crit)"),
            ),
            (format!("{}.{}.x", part(json!({"alg": "ES256", "kid": "k"})), claims()), Refused::Key),
            ("x".repeat(20_000), Refused::Malformed("too long")),
        ] {
            assert_eq!(identify(&issuers, &token).await, Err(expected), "{token:.80}");
        }
    }
}
