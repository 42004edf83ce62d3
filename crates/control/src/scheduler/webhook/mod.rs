//! `webhook`: an HTTP endpoint of the operator chooses the Router.
//!
//! The scheduler sends a POST of a [question](message::question), with a bearer token if there is one, and gets an [`Answer`]
//! with a status 2xx. A call waits for the network, and so runs outside the scheduler's loop, with [`ASKED_AT_A_TIME`] calls at
//! once. The loop checks the answer against the snapshot of that moment: a Router that can no longer take the route does not get
//! it.
//!
//! Transient errors (no connection, a timeout, 429, and 5xx) are retried once. Without a usable answer, the fallback strategy
//! decides, and the explanation contains the reason; after failures in a row, the webhook is not called for a while
//! ([`circuit_breaker`]).

pub mod circuit_breaker;
pub mod message;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use reqwest::StatusCode;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout};

use self::message::{Answer, AnswerError};
use super::metrics::Metrics;
use super::strategy::StrategyName;
use crate::client::transport_error;
use signpost_runtime::trust;

/// The name of the webhook in settings and explanations.
pub const NAME: &str = "webhook";
/// The most calls in flight. More would be faster with a slow endpoint, but each call would lack more of the others' results:
/// calls in flight are in no count.
pub const ASKED_AT_A_TIME: usize = 16;
/// The largest response in bytes: scores of a thousand Routers with the longest names.
const ANSWER_OCTETS_MAX: usize = 512 * 1024;
/// The largest file of a token in octets.
const TOKEN_OCTETS_MAX: usize = 16 * 1024;
/// The wait before the second try. An endpoint that has just been restarted is available again.
const PAUSE: Duration = Duration::from_millis(50);

/// The location of the endpoint, and the fallback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The endpoint's URL, `http` or `https`.
    pub url: String,
    /// The time limit for one try, from connecting to the last byte of the response.
    pub timeout: Duration,
    /// Authorities in PEM to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// The file with the bearer token, read for each request, so that a new token is used immediately.
    pub token: Option<PathBuf>,
    /// The strategy that decides without a usable answer.
    pub fallback: StrategyName,
}

/// The reason why there is no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No request can be made.
    #[error("cannot be called: {0}")]
    Unusable(String),
    /// There is no connection, or it broke.
    #[error("is unreachable: {0}")]
    Unreachable(String),
    /// The endpoint did not respond in time.
    #[error("did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The endpoint responded with 401, without a token or to the token that it got.
    #[error("returned {}: {}", StatusCode::UNAUTHORIZED, if *.0 {
        "it does not accept the token in webhook.token-file"
    } else {
        "it requires a token: set webhook.token-file"
    })]
    Unauthorized(bool),
    /// The endpoint responded with a status other than 2xx.
    #[error("returned {0}")]
    Status(StatusCode),
    /// The response is too long.
    #[error("returned more than {max} octets", max = ANSWER_OCTETS_MAX)]
    TooLarge,
    /// The response is not a valid answer.
    #[error("returned an invalid response: {0}")]
    Malformed(AnswerError),
}

impl CallError {
    /// Returns the error as a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            CallError::Unusable(_) => "unusable",
            CallError::Unreachable(_) => "unreachable",
            CallError::Timeout(_) => "timeout",
            CallError::Unauthorized(_) => "unauthorized",
            CallError::Status(_) => "status",
            CallError::TooLarge => "too_large",
            CallError::Malformed(_) => "malformed",
        }
    }

    /// Returns whether the error shows that the endpoint does not work, rather than that its response is wrong.
    pub fn is_outage(&self) -> bool {
        !matches!(self, CallError::TooLarge | CallError::Malformed(_))
    }

    /// Returns whether a retry may succeed.
    fn passes(&self) -> bool {
        match self {
            CallError::Unreachable(_) | CallError::Timeout(_) => true,
            CallError::Status(status) => *status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error(),
            CallError::Unusable(_) | CallError::Unauthorized(_) | CallError::TooLarge | CallError::Malformed(_) => {
                false
            }
        }
    }
}

/// The endpoint, ready for calls.
pub struct Webhook {
    /// The location of the endpoint.
    pub settings: Settings,
    /// Created with the first request, because it reads a file; after a failure, the next try creates it.
    client: OnceCell<reqwest::Client>,
    metrics: Metrics,
}

impl Webhook {
    /// Returns the endpoint in the settings, without sending anything.
    pub fn new(settings: Settings, metrics: Metrics) -> Webhook {
        Webhook { settings, client: OnceCell::new(), metrics }
    }

    /// Calls the endpoint, twice if necessary. It takes at most two timeouts and a pause.
    pub async fn ask(&self, question: &Value) -> Result<Answer, CallError> {
        let unusable = |error: String| {
            let error = CallError::Unusable(error);
            self.metrics.webhook_call(error.label(), None);
            error
        };
        let client = self.client.get_or_try_init(|| async { client(self.settings.authorities.as_ref()) });
        let client = client.await.map_err(unusable)?;
        let authorization = authorization(self.settings.token.as_deref()).await;
        let authorization = authorization.map_err(|error| unusable(FileError::Token(error).to_string()))?;
        let body = question.to_string().into_bytes();
        let call = || self.call(client, authorization.clone(), body.clone());
        match call().await {
            Err(error) if error.passes() => {
                sleep(PAUSE).await;
                call().await
            }
            outcome => outcome,
        }
    }

    async fn call(
        &self,
        client: &reqwest::Client,
        authorization: Option<HeaderValue>,
        body: Vec<u8>,
    ) -> Result<Answer, CallError> {
        let started = Instant::now();
        let outcome = post(client, &self.settings.url, authorization, body);
        let outcome = match timeout(self.settings.timeout, outcome).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CallError::Timeout(self.settings.timeout)),
        };
        let label = outcome.as_ref().err().map_or("answered", CallError::label);
        self.metrics.webhook_call(label, Some(started.elapsed().as_secs_f64()));
        outcome
    }
}

/// A file in the settings is invalid. The text omits its name, because explanations of Routes contain the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The authorities to trust.
    #[error("webhook.ca: {0}")]
    Authorities(String),
    #[error("webhook.token-file: {0}")]
    Token(String),
}

/// Checks whether calls are possible.
///
/// # Errors
///
/// A file in the settings cannot be used.
pub async fn check(settings: &Settings) -> Result<(), FileError> {
    client(settings.authorities.as_ref()).map_err(FileError::Authorities)?;
    authorization(settings.token.as_deref()).await.map(drop).map_err(FileError::Token)
}

/// Returns the header with the token in this file.
async fn authorization(token: Option<&Path>) -> Result<Option<HeaderValue>, String> {
    let Some(path) = token else { return Ok(None) };
    let read = async {
        let mut octets = Vec::new();
        let file = tokio::fs::File::open(path).await?;
        file.take(TOKEN_OCTETS_MAX as u64 + 1).read_to_end(&mut octets).await?;
        Ok::<_, std::io::Error>(octets)
    };
    let octets = read.await.map_err(|error| error.to_string())?;
    let token = octets.trim_ascii();
    if token.is_empty() || octets.len() > TOKEN_OCTETS_MAX || !token.iter().all(u8::is_ascii_graphic) {
        return Err("the file must contain exactly one token of printable ASCII characters".to_owned());
    }
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).map_err(|error| error.to_string())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn client(authorities: Option<&PathBuf>) -> Result<reqwest::Client, String> {
    let builder = trust::client(authorities.map(PathBuf::as_path)).map_err(|error| error.to_string())?;
    builder.pool_max_idle_per_host(ASKED_AT_A_TIME).build().map_err(|error| error.to_string())
}

async fn post(
    client: &reqwest::Client,
    url: &str,
    authorization: Option<HeaderValue>,
    body: Vec<u8>,
) -> Result<Answer, CallError> {
    let mut request = client.post(url).header("content-type", "application/json").header("accept", "application/json");
    let has_token = authorization.is_some();
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let mut response = request.body(body).send().await.map_err(connection_error)?;
    if response.status() == StatusCode::UNAUTHORIZED {
        return Err(CallError::Unauthorized(has_token));
    }
    if !response.status().is_success() {
        return Err(CallError::Status(response.status()));
    }
    let mut octets = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(connection_error)? {
        if octets.len() + chunk.len() > ANSWER_OCTETS_MAX {
            return Err(CallError::TooLarge);
        }
        octets.extend_from_slice(&chunk);
    }
    Answer::parse(&octets).map_err(CallError::Malformed)
}

fn connection_error(error: reqwest::Error) -> CallError {
    CallError::Unreachable(transport_error::cause_text(error, "that of webhook.url"))
}
