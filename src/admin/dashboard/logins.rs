//! Sign-in at an identity provider.
//!
//! ```text
//!   page ── POST login ──► address of the provider, and a cookie
//!     └──► provider ──► /dashboard/callback?code=…&state=… ──► page ── POST session, with the query and the cookie ──► session
//! ```
//!
//! Nothing is stored between the two requests, so strangers who begin sign-ins use no memory, and displace no sign-in. The cookie
//! has the provider, the time, and random bits. `state`, `nonce`, and the verifier of PKCE are derived from it with a key of this
//! process. If the `state` in the query is the derived one, then this process made the cookie, for this browser. A code works once:
//! the provider rejects the second exchange (RFC 6749 §4.1.2). The page itself sends the query, and no redirect leads elsewhere.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use axum::http::{HeaderMap, StatusCode};
use tokio::sync::Semaphore;

use super::ask::Failure;
use super::session;
use crate::oidc::{self, Login, Tokens};
use signpost_runtime::clock;

/// The time for the user to sign in at the provider.
pub const VALID: Duration = Duration::from_secs(600);
/// The maximum number of concurrent exchanges of codes, which strangers can cause, too.
const EXCHANGES_MAX: usize = 16;
/// The name of the cookie of a sign-in.
pub const COOKIE: &str = "signpost_login";
/// The path to which the provider sends the browser. It serves the page.
pub const CALLBACK: &str = "/dashboard/callback";

/// The identity providers of a process.
pub struct Logins {
    key: hmac::Key,
    providers: Vec<Arc<oidc::Client>>,
    exchanges: Semaphore,
}

impl Logins {
    /// Returns the sign-in at these providers.
    pub fn new(providers: Vec<Arc<oidc::Client>>) -> Result<Self, oidc::Error> {
        Ok(Logins { key: Login::key()?, providers, exchanges: Semaphore::new(EXCHANGES_MAX) })
    }

    /// Returns the names of the providers for the page.
    pub fn names(&self) -> Vec<&str> {
        self.providers.iter().map(|provider| provider.name()).collect()
    }

    /// Begins a sign-in of the page at `origin`. Returns the address of the provider, and the value of the cookie.
    pub async fn begin(&self, provider: usize, origin: &str) -> Result<(String, String), Failure> {
        let client = self.provider(provider)?;
        let cookie = format!("{provider}.{}.{}", clock::unix_seconds(), session::random()?);
        let url = client.authorization_url(&Login::of(&self.key, &cookie), &redirect_uri(origin)).await;
        Ok((url.map_err(|error| failed(&error))?, cookie))
    }

    /// Completes a sign-in with the query of the redirect. Returns the provider, and the tokens of the user.
    pub async fn complete(
        &self,
        headers: &HeaderMap,
        origin: &str,
        query: &str,
    ) -> Result<(Arc<oidc::Client>, Tokens), Failure> {
        let cookie = session::cookie_of(headers, COOKIE).ok_or_else(expired)?;
        let (provider, began) = parts(cookie).ok_or_else(expired)?;
        let client = self.provider(provider)?;
        let login = Login::of(&self.key, cookie);
        let code = client.code(query, &login).map_err(|error| failed(&error))?;
        // Only now the cookie is known to be genuine, and with it the time.
        if clock::unix_seconds().saturating_sub(began) > VALID.as_secs() {
            return Err(expired());
        }
        let _permit = self.exchanges.try_acquire().map_err(|_| super::too_many())?;
        let tokens = client.exchange(&code, &login, &redirect_uri(origin)).await;
        Ok((client, tokens.map_err(|error| failed(&error))?))
    }

    fn provider(&self, provider: usize) -> Result<Arc<oidc::Client>, Failure> {
        let unknown = || Failure::new(StatusCode::NOT_FOUND, "NoProvider", "identity provider not found");
        self.providers.get(provider).cloned().ok_or_else(unknown)
    }
}

/// Returns the provider and the time in a cookie.
fn parts(cookie: &str) -> Option<(usize, u64)> {
    let mut parts = cookie.splitn(3, '.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn redirect_uri(origin: &str) -> String {
    format!("{origin}{CALLBACK}")
}

fn expired() -> Failure {
    let message = "the sign-in was not begun in this browser, or took longer than ten minutes; sign in again";
    Failure::new(StatusCode::FORBIDDEN, "LoginExpired", message)
}

fn failed(error: &oidc::Error) -> Failure {
    let (status, reason) = match error {
        oidc::Error::Foreign(_) => (StatusCode::FORBIDDEN, "LoginExpired"),
        oidc::Error::Rejected { .. } => (StatusCode::FORBIDDEN, "LoginRejected"),
        oidc::Error::Provider { .. } | oidc::Error::Secret(_) | oidc::Error::NoRandomNumbers => {
            tracing::warn!(%error, "failed to sign a user in to the dashboard");
            (StatusCode::BAD_GATEWAY, "ProviderAway")
        }
    };
    Failure::new(status, reason, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oidc::Registration;

    fn logins() -> Logins {
        let registration = Registration {
            issuer: "https://idp.example".to_owned(),
            client_id: "dashboard".to_owned(),
            scopes: Vec::new(),
            ca: None,
        };
        let provider = oidc::Client::new(registration, None).expect("a client");
        Logins::new(vec![Arc::new(provider)]).expect("random numbers")
    }

    async fn refused(logins: &Logins, cookie: &str, query: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert("cookie", format!("{COOKIE}={cookie}").parse().expect("a value"));
        match logins.complete(&headers, "https://dashboard.example", query).await {
            Ok(_) => panic!("it is complete"),
            Err(failure) => failure.reason,
        }
    }

    #[tokio::test]
    async fn only_a_fresh_cookie_of_this_process_completes_a_sign_in() {
        let (logins, others) = (logins(), logins());
        assert_eq!(logins.names(), ["idp.example"]);
        let now = clock::unix_seconds();
        let cookie = |began: u64| format!("0.{began}.random");
        // An error of the provider ends the sign-in before any request, but only if the rest is right.
        let query = |logins: &Logins, cookie: &str| {
            format!("error=access_denied&state={}", Login::of(&logins.key, cookie).state)
        };
        let good = cookie(now);
        assert_eq!(refused(&logins, &good, &query(&logins, &good)).await, "LoginRejected");
        assert_eq!(refused(&logins, &good, &query(&others, &good)).await, "LoginExpired");
        assert_eq!(refused(&logins, &cookie(now - 1), &query(&logins, &good)).await, "LoginExpired");
        let old = cookie(now - VALID.as_secs() - 1);
        let code = query(&logins, &old).replace("error=access_denied", "code=c");
        assert_eq!(refused(&logins, &old, &code).await, "LoginExpired");
        for bad in ["", "0", "x.1.r", "0.x.r"] {
            assert_eq!(refused(&logins, bad, &query(&logins, bad)).await, "LoginExpired", "{bad}");
        }
        assert_eq!(refused(&logins, "1.1.r", &query(&logins, "1.1.r")).await, "NoProvider");
    }
}
