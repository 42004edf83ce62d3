//! `webhook`: an HTTP endpoint of the operator's own chooses the Router.
//!
//! It is asked with a POST of a [question](message::question), with a bearer token if there is one, and says its [`Answer`] with a
//! status 2xx. Asking waits for a network, and so goes on beside the scheduler's loop, [`ASKED_AT_A_TIME`] questions at once; what comes of it is judged in the loop, against
//! the snapshot of that moment: a Router that cannot take the route any more is not given it.
//!
//! What passes (no connection, no answer in time, 429 and 5xx) is tried once again. If there is no answer to go by then, the
//! fallback strategy decides, and the explanation says why; after failures in a row the webhook is left alone for a while
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

/// Its name in settings and explanations.
pub const NAME: &str = "webhook";
/// Questions under way at a time. More would be answered faster by a slow endpoint, and each would know less of what the
/// others come to: those under way are in nobody's counts.
pub const ASKED_AT_A_TIME: usize = 16;
/// Largest answer in octets: scores of a thousand Routers with the longest names.
const ANSWER_OCTETS_MAX: usize = 512 * 1024;
/// Largest file of a token in octets.
const TOKEN_OCTETS_MAX: usize = 16 * 1024;
/// How long until the second try. An endpoint that has just been restarted is there again.
const PAUSE: Duration = Duration::from_millis(50);

/// Where the endpoint is, and what happens without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Its URL, `http` or `https`.
    pub url: String,
    /// How long one try may take, from connecting to the last octet of the answer.
    pub timeout: Duration,
    /// Authorities in PEM to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// The file of the token that it is shown; read for each question, so that a new one is in use at once.
    pub token: Option<PathBuf>,
    /// Who decides when it gives no answer to go by.
    pub fallback: StrategyName,
}

/// Why there is no answer to go by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No request can be made.
    #[error("cannot be called: {0}")]
    Unusable(String),
    /// There is no connection, or it broke.
    #[error("is unreachable: {0}")]
    Unreachable(String),
    /// It did not answer in time.
    #[error("did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// It answered 401, without a token or to the one that it was shown.
    #[error("returned {}: {}", StatusCode::UNAUTHORIZED, if *.0 {
        "it does not accept the token in webhook.token-file"
    } else {
        "it requires a token: set webhook.token-file"
    })]
    Unauthorized(bool),
    /// It answered with another status than 2xx.
    #[error("returned {0}")]
    Status(StatusCode),
    /// It answered more than anyone would.
    #[error("returned more than {max} octets", max = ANSWER_OCTETS_MAX)]
    TooLarge,
    /// What it answered is no answer.
    #[error("returned an invalid response: {0}")]
    Malformed(AnswerError),
}

impl CallError {
    /// As a metric's label.
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

    /// Whether this says that the endpoint does not work, rather than that it said something wrong.
    pub fn is_outage(&self) -> bool {
        !matches!(self, CallError::TooLarge | CallError::Malformed(_))
    }

    /// Whether another try may go better.
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

/// The endpoint, ready to be asked.
pub struct Webhook {
    /// Where it is.
    pub settings: Settings,
    /// Made with the first question, since it reads a file; a failure is another try's chance.
    client: OnceCell<reqwest::Client>,
    metrics: Metrics,
}

impl Webhook {
    /// The endpoint that the settings name. Nothing is sent yet.
    pub fn new(settings: Settings, metrics: Metrics) -> Webhook {
        Webhook { settings, client: OnceCell::new(), metrics }
    }

    /// Asks, twice if need be. It takes at most two timeouts and a pause.
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

/// A file that the settings name is not as it must be. It is not named: the text stands in explanations of Routes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The authorities to trust.
    #[error("webhook.ca: {0}")]
    Authorities(String),
    /// The token.
    #[error("webhook.token-file: {0}")]
    Token(String),
}

/// Checks whether questions can be asked at all.
///
/// # Errors
///
/// A file that the settings name cannot be used.
pub async fn check(settings: &Settings) -> Result<(), FileError> {
    client(settings.authorities.as_ref()).map_err(FileError::Authorities)?;
    authorization(settings.token.as_deref()).await.map(drop).map_err(FileError::Token)
}

/// The header that shows the token in this file.
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
