//! Authentication and authorization of requests.
//!
//! [`Authenticator::authenticate`] finds the sender: an [`Identity`] in the request's extensions (the process's own loops), a
//! client certificate, a bearer token of Signpost or of an identity provider ([`jwt`]), or anonymous (`system:anonymous`).
//! [`impersonate`](mod@impersonate) lets permitted users act as others. [`rules`] defines the permissions.
//!
//! Credentials can be revoked while they are in use: each request is authenticated, and long requests (watches) end as
//! [`Authenticator::until_refused`] determines.

pub mod certificate;
pub mod identity;
pub mod impersonate;
pub mod jwks;
pub mod jwt;
pub mod rules;
pub mod tokens;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header;
use http::request::Parts;
use tokio::sync::watch;

use self::certificate::Revocations;
use self::identity::{GROUP_UNAUTHENTICATED, Identity, USER_ANONYMOUS};
use self::jwt::Issuer;
use self::tokens::Tokens;
use super::error::ApiError;
use signpost_runtime::clock;
use signpost_runtime::httpd::ClientCertificate;

/// The authenticator of requests.
pub struct Authenticator {
    tokens: ArcSwap<Tokens>,
    revocations: ArcSwap<Revocations>,
    issuers: Vec<Issuer>,
    /// The notifier of changed tokens or revocations.
    changed: watch::Sender<()>,
}

impl Default for Authenticator {
    fn default() -> Self {
        Authenticator::new(Tokens::default())
    }
}

/// The sender of a request, and its method of authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    /// The user.
    pub identity: Identity,
    /// The method of authentication.
    pub proof: AuthMethod,
}

/// The method of authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthMethod {
    /// No credentials.
    Nothing,
    /// The request comes from this process.
    InProcess,
    /// A token of Signpost, with this hash.
    Token(tokens::Hash),
    /// A client certificate.
    Certificate(Box<ClientCertificate>),
    /// A token of an identity provider, with its expiry in seconds since the epoch.
    Jwt {
        /// `exp`.
        expires: i64,
    },
}

impl Authenticator {
    /// Returns an authenticator with these bearer tokens.
    pub fn new(tokens: Tokens) -> Self {
        Authenticator {
            tokens: ArcSwap::from_pointee(tokens),
            revocations: ArcSwap::default(),
            issuers: Vec::new(),
            changed: watch::Sender::new(()),
        }
    }

    /// Accepts tokens of these identity providers as well.
    pub fn with_issuers(mut self, issuers: Vec<Issuer>) -> Self {
        self.issuers = issuers;
        self
    }

    /// Replaces the tokens; requests in flight keep the former ones.
    pub fn replace_tokens(&self, tokens: Tokens) {
        self.tokens.store(tokens.into());
        self.changed.send_replace(());
    }

    /// Replaces the revoked certificates.
    pub fn replace_revocations(&self, revocations: Revocations) {
        self.revocations.store(revocations.into());
        self.changed.send_replace(());
    }

    /// Returns the sender; 401 if the credentials are invalid. A request with an invalid token is never treated as anonymous.
    pub async fn authenticate(&self, request: &Parts) -> Result<Sender, ApiError> {
        if let Some(identity) = request.extensions.get::<Identity>() {
            return Ok(Sender { identity: identity.clone(), proof: AuthMethod::InProcess });
        }
        if let Some(certificate) = request.extensions.get::<ClientCertificate>() {
            let identity = self.revocations.load().identify(certificate, now()).ok_or_else(ApiError::unauthorized)?;
            return Ok(Sender { identity, proof: AuthMethod::Certificate(Box::new(certificate.clone())) });
        }
        let Some(authorization) = request.headers.get(header::AUTHORIZATION) else {
            let identity = Identity { user: USER_ANONYMOUS.into(), groups: vec![GROUP_UNAUTHENTICATED.into()] };
            return Ok(Sender { identity, proof: AuthMethod::Nothing });
        };
        let text = authorization.to_str().map_err(|_| ApiError::unauthorized())?;
        let (scheme, token) = text.trim().split_once(' ').ok_or_else(ApiError::unauthorized)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(ApiError::unauthorized());
        }
        let token = token.trim();
        // A token of Signpost has no dots; a token of an identity provider has two.
        if !self.issuers.is_empty() && jwt::looks_like_one(token) {
            let (identity, expires) = jwt::identify(&self.issuers, token).await.map_err(|refused| {
                tracing::debug!(%refused, "rejected a token of an identity provider");
                ApiError::unauthorized()
            })?;
            return Ok(Sender { identity, proof: AuthMethod::Jwt { expires } });
        }
        let (identity, hash) = self.tokens.load().identify(token, now()).ok_or_else(ApiError::unauthorized)?;
        Ok(Sender { identity, proof: AuthMethod::Token(hash) })
    }

    /// Completes when the credentials are revoked or have expired; never, if neither can happen.
    pub async fn until_refused(self: Arc<Self>, proof: AuthMethod) {
        let mut changed = self.changed.subscribe();
        loop {
            let end = match &proof {
                AuthMethod::Nothing | AuthMethod::InProcess => return std::future::pending().await,
                AuthMethod::Token(hash) => match self.tokens.load().identity_of(hash, now()) {
                    Some(_) => self.tokens.load().expiry_of(hash),
                    None => return,
                },
                AuthMethod::Certificate(certificate) => match self.revocations.load().identify(certificate, now()) {
                    Some(_) => Some(certificate.not_after + 1),
                    None => return,
                },
                AuthMethod::Jwt { expires } if *expires <= now() => return,
                AuthMethod::Jwt { expires } => Some(*expires),
            };
            // The clock can be changed, so expiry is checked at least once an hour.
            let wait = end.map_or(3_600, |end| (end - now()).clamp(1, 3_600));
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(Duration::from_secs(wait.unsigned_abs())) => {}
            }
        }
    }
}

/// Seconds since the epoch.
fn now() -> i64 {
    i64::try_from(clock::unix_seconds()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    pub(super) fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut builder = Request::builder().uri("/");
        for (key, value) in headers {
            builder = builder.header(*key, *value);
        }
        builder.body(()).expect("a request").into_parts().0
    }

    #[tokio::test]
    async fn tokens_identify_and_wrong_ones_are_refused() {
        let text = tokens::line("s3cret", "alice", &["ops".to_owned()]);
        let authenticator = Authenticator::new(Tokens::parse(&text).expect("tokens"));
        for (authorization, expected) in [
            (None, Ok(USER_ANONYMOUS)),
            (Some("Bearer s3cret"), Ok("alice")),
            (Some("bearer  s3cret "), Ok("alice")),
            (Some("Bearer other"), Err(401)),
            (Some("Bearer a.b.c"), Err(401)),
            (Some("Bearer "), Err(401)),
            (Some("Basic s3cret"), Err(401)),
            (Some("s3cret"), Err(401)),
        ] {
            let headers: Vec<_> = authorization.into_iter().map(|value| ("authorization", value)).collect();
            let found = authenticator.authenticate(&parts(&headers)).await;
            let found = found.as_ref().map(|sender| sender.identity.user.as_str()).map_err(|error| error.code);
            assert_eq!(found, expected, "{authorization:?}");
        }
    }

    #[tokio::test]
    async fn what_lasts_ends_when_the_token_is_taken_back() {
        let line = |token: &str| tokens::line(token, "alice", &[]);
        let authenticator = Arc::new(Authenticator::new(Tokens::parse(&line("one")).expect("tokens")));
        let sender = authenticator.authenticate(&parts(&[("authorization", "Bearer one")])).await.expect("known");
        let mut refused = std::pin::pin!(authenticator.clone().until_refused(sender.proof));
        let mut soon = async || tokio::time::timeout(Duration::from_millis(20), refused.as_mut()).await.is_ok();
        assert!(!soon().await);
        authenticator.replace_tokens(Tokens::parse(&(line("one") + &line("two"))).expect("tokens"));
        assert!(!soon().await, "it is there still");
        authenticator.replace_tokens(Tokens::parse(&line("two")).expect("tokens"));
        assert!(tokio::time::timeout(Duration::from_secs(10), refused).await.is_ok());
    }

    #[tokio::test]
    async fn what_lasts_ends_with_its_proof() {
        let authenticator = Arc::new(Authenticator::default());
        let ended = authenticator.clone().until_refused(AuthMethod::Jwt { expires: now() - 1 });
        assert!(tokio::time::timeout(Duration::from_secs(10), ended).await.is_ok());
        let own = authenticator.until_refused(AuthMethod::InProcess);
        assert!(tokio::time::timeout(Duration::from_millis(20), own).await.is_err());
    }
}
