//! The client of the certificate authority: `instant-acme` over the HTTP client of everything else.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use instant_acme::{
    Account, AccountCredentials, BodyWrapper, BytesResponse, Error, ExternalAccountKey, HttpClient, NewAccount, Problem,
};
use parking_lot::Mutex;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::objects;
use super::plan::Failure;
use crate::client::transport_error::cause_text;
use signpost_types::text::cut;

/// The time for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of a response: a chain of certificates has some KiB.
const BODY_BYTES_MAX: usize = 256 << 10;
/// The time, in seconds, until the next request for a suggested time of renewal: after a failure (RFC 9773 §4.3.3), where the CA makes no
/// suggestions, and after a suggestion without `Retry-After` (RFC 9773 §4.3.2).
pub(super) const SUGGESTED_AGAIN: i64 = 6 * 3_600;
/// The longest pause that a CA can require.
const RETRY_LONGEST: Duration = Duration::from_secs(7 * 86_400);
/// The longest problem in a condition, in octets.
const PROBLEM_OCTETS_MAX: usize = 600;
/// The prefix of the types of problems (RFC 8555 §6.7).
const PROBLEM_PREFIX: &str = "urn:ietf:params:acme:error:";

/// The settings of the CA.
#[derive(Clone)]
pub struct Settings {
    /// The URL of the directory.
    pub directory: String,
    /// The addresses for mail about the account.
    pub contact: Vec<String>,
    /// The profile of certificates.
    pub profile: Option<String>,
    /// The identifier and the key of an account at the CA's operator, to which the ACME account is bound.
    pub external_account: Option<(String, Vec<u8>)>,
    /// The file with the authorities of the directory's own certificate; `None`: those of the system.
    pub authorities: Option<PathBuf>,
}

/// The account, and the client that speaks for it. It is made for each order, with the current directory.
pub(super) struct Session {
    pub(super) account: Account,
    pub(super) thumbprint: String,
    /// The UID of the Secret with the account.
    pub(super) account_uid: Option<String>,
    last: Arc<Mutex<LastResponse>>,
}

/// The last response.
#[derive(Default)]
struct LastResponse {
    /// `None`: there was no response.
    status: Option<StatusCode>,
    /// The pause that it requires, if it has an error.
    retry_after: Option<Duration>,
}

impl Session {
    /// Returns the failure of a request of this session.
    pub(super) fn failure(&self, error: &Error) -> Failure {
        failure(error, self.last.lock().retry_after.take())
    }

    /// Returns whether the CA answered no request, or would answer no other one either.
    pub(super) fn is_refused(&self) -> bool {
        let status = self.last.lock().status;
        status.is_none_or(|status| status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error())
    }
}

/// Returns the HTTP client for a directory; the error is a text.
pub(super) fn http(settings: &Settings) -> Result<reqwest::Client, String> {
    let mut builder = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).no_proxy().https_only(true);
    if let Some(path) = &settings.authorities {
        let text = |error: &dyn std::fmt::Display| format!("acme.ca-file {}: {error}", path.display());
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| text(&error))?;
        let certificates: Result<Vec<_>, _> = certificates.collect();
        let certificates = certificates.map_err(|error| text(&error))?;
        let certificates: Result<Vec<_>, _> =
            certificates.iter().map(|der| reqwest::Certificate::from_der(der)).collect();
        builder = builder.tls_certs_only(certificates.map_err(|error| text(&error))?);
    }
    builder.build().map_err(|error| error.to_string())
}

/// Opens a session with the stored account, or with a new one, which is stored.
pub(super) async fn open(
    client: &kube::Client,
    settings: &Settings,
    http: &reqwest::Client,
) -> Result<Session, Failure> {
    let last = Arc::new(Mutex::new(LastResponse::default()));
    let builder = Account::builder_with_http(Box::new(Http { client: http.clone(), last: last.clone() }));
    let failed = |error: &Error| failure(error, last.lock().retry_after.take());
    let stored = objects::account(client, &settings.directory).await.map_err(|error| of_api(&error))?;
    let stored = stored
        .and_then(|stored| Some((serde_json::from_str::<AccountCredentials>(&stored.credentials).ok()?, stored.uid)));
    let (account, account_uid) = match stored {
        Some((credentials, uid)) => (builder.from_credentials(credentials).await.map_err(|error| failed(&error))?, uid),
        None => {
            let contact: Vec<String> = settings.contact.iter().map(|address| format!("mailto:{address}")).collect();
            let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
            let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
            let external = settings.external_account.as_ref();
            let external = external.map(|(id, key)| ExternalAccountKey::new(id.clone(), key));
            let made = builder.create(&new, settings.directory.clone(), external.as_ref()).await;
            let (account, credentials) = made.map_err(|error| failed(&error))?;
            let credentials = serde_json::to_string(&credentials).map_err(|error| failed(&error.into()))?;
            let thumbprint = account.key_thumbprint();
            let uid = objects::write_account(client, &settings.directory, &credentials, thumbprint).await;
            let uid = uid.map_err(|error| of_api(&error))?;
            tracing::info!(account = account.id(), "created an account at the certificate authority");
            (account, uid)
        }
    };
    let thumbprint = account.key_thumbprint().to_owned();
    Ok(Session { account, thumbprint, account_uid, last })
}

/// Returns the failure of a request to the platform's own API.
pub(super) fn of_api(error: &kube::Error) -> Failure {
    let message = format!("the API of the platform: {error}");
    Failure { reason: "api".to_owned(), message, is_validation: false, retry_after: None }
}

/// Returns a failure that the CA does not count.
pub(super) fn not_ready(reason: &str, message: String) -> Failure {
    Failure { reason: reason.to_owned(), message, is_validation: false, retry_after: None }
}

fn failure(error: &Error, retry_after: Option<Duration>) -> Failure {
    let (reason, message) = match error {
        Error::Api(problem) => (kind(problem), describe(problem)),
        Error::Json(_) => ("response".to_owned(), "the certificate authority sent no valid response".to_owned()),
        Error::Timeout(_) => ("timeout".to_owned(), "the certificate authority takes too long".to_owned()),
        Error::Other(error) => {
            ("connection".to_owned(), format!("the certificate authority cannot be reached: {error}"))
        }
        other => ("response".to_owned(), other.to_string()),
    };
    Failure { reason, message, is_validation: false, retry_after }
}

/// Returns the failure of a validation, or of an order, that the CA reports.
pub(super) fn refused(problem: Option<&Problem>) -> Failure {
    let (reason, message) = match problem {
        Some(problem) => (kind(problem), describe(problem)),
        None => ("unknown".to_owned(), "the certificate authority refused the order without a reason".to_owned()),
    };
    Failure { reason, message, is_validation: true, retry_after: None }
}

/// Returns the last part of the type of a problem.
pub(super) fn kind(problem: &Problem) -> String {
    let kind = problem.r#type.as_deref().and_then(|kind| kind.strip_prefix(PROBLEM_PREFIX));
    let kind = kind.filter(|kind| kind.len() <= 40 && kind.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    kind.unwrap_or("other").to_owned()
}

/// Returns a problem in the words of the CA.
fn describe(problem: &Problem) -> String {
    let part = |detail: &Option<String>, kind: &Option<String>| {
        let kind = kind.as_deref().unwrap_or("no type");
        format!("{} ({kind})", detail.as_deref().unwrap_or("no details"))
    };
    let mut text = format!("the certificate authority reports: {}", part(&problem.detail, &problem.r#type));
    for sub in &problem.subproblems {
        text += &format!("; {}", part(&sub.detail, &sub.r#type));
    }
    // A condition has one line.
    let text: String = text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    cut(&text, PROBLEM_OCTETS_MAX).to_owned()
}

/// The HTTP client of `instant-acme`.
struct Http {
    client: reqwest::Client,
    last: Arc<Mutex<LastResponse>>,
}

impl HttpClient for Http {
    fn request(&self, request: Request<BodyWrapper<Bytes>>) -> BoxFuture<'static, Result<BytesResponse, Error>> {
        let (client, last) = (self.client.clone(), self.last.clone());
        *last.lock() = LastResponse::default();
        Box::pin(async move {
            let other = |error: reqwest::Error| Error::Other(cause(error).into());
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_or_else(|never| match never {}, http_body_util::Collected::to_bytes);
            let request = Request::from_parts(parts, reqwest::Body::from(body));
            let mut response = client.execute(request.try_into().map_err(other)?).await.map_err(other)?;
            let retry_after = pause(response.headers()).filter(|_| !response.status().is_success());
            *last.lock() = LastResponse { status: Some(response.status()), retry_after };
            let mut octets = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(other)? {
                if octets.len() + chunk.len() > BODY_BYTES_MAX {
                    return Err(Error::Str("the response is too long"));
                }
                octets.extend_from_slice(&chunk);
            }
            let (mut parts, _) = http::Response::from(response).into_parts();
            // Without the header, `instant-acme` reads no window of renewal, and no problem in its place.
            parts.headers.entry(RETRY_AFTER).or_insert(SUGGESTED_AGAIN.into());
            Ok(BytesResponse { parts, body: Box::new(Bytes::from(octets)) })
        })
    }
}

fn cause(error: reqwest::Error) -> String {
    let host = error.url().and_then(|url| url.host_str()).unwrap_or("the host").to_owned();
    format!("{host}: {}", cause_text(error, &host))
}

/// Returns the pause in `Retry-After` (RFC 9110 §10.2.3).
fn pause(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(SystemTime::now()).ok()?,
    };
    Some(pause.min(RETRY_LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_shown_in_the_words_of_the_ca() {
        for (text, reason, message) in [
            (
                r#"{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many certificates already issued", "status": 429}"#,
                "rateLimited",
                "the certificate authority reports: too many certificates already issued (urn:ietf:params:acme:error:rateLimited)",
            ),
            (
                r#"{"type": "urn:ietf:params:acme:error:caa", "detail": "a\nb", "subproblems": [{"type": "urn:x", "detail": "c"}]}"#,
                "caa",
                "the certificate authority reports: a b (urn:ietf:params:acme:error:caa); c (urn:x)",
            ),
            (r#"{"type": "about:blank"}"#, "other", "the certificate authority reports: no details (about:blank)"),
        ] {
            let problem: Problem = serde_json::from_str(text).expect("a problem");
            let found = failure(&Error::Api(problem), Some(Duration::from_secs(60)));
            assert_eq!((found.reason.as_str(), found.message.as_str()), (reason, message));
            assert_eq!(found.retry_after, Some(Duration::from_secs(60)));
        }
    }

    #[test]
    fn a_pause_is_a_number_or_a_date() {
        for (value, expected) in [
            ("120", Some(Duration::from_secs(120))),
            ("99999999999", Some(RETRY_LONGEST)),
            ("Fri, 31 Dec 1999 23:59:59 GMT", None),
            ("soon", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().expect("a value"))]);
            assert_eq!(pause(&headers), expected, "{value}");
        }
    }
}
