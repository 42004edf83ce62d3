//! `webhook`: an HTTP endpoint of the operator's own chooses the Router.
//!
//! It is asked with a POST of a [`Question`] and says its [`Answer`] with a status 2xx. Asking waits for a network, and so goes
//! on beside the scheduler's loop, [`ASKED_AT_A_TIME`] questions at once; what comes of it is judged in the loop, against
//! the snapshot of that moment: a Router that cannot take the route any more is not given it.
//!
//! What passes (no connection, no answer in time, 429 and 5xx) is tried once again. If there is no answer to go by then, the
//! fallback strategy decides, and the explanation says why; after failures in a row the webhook is left alone for a while
//! ([`rest`]).

pub mod message;
pub mod rest;

use std::path::PathBuf;
use std::time::Duration;

use reqwest::StatusCode;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout};

use self::message::{Answer, Question};
use super::metrics::Metrics;
use super::strategy::StrategyName;
use crate::client::unreached;
use crate::trust;

/// Its name in settings and explanations.
pub const NAME: &str = "webhook";
/// Questions under way at a time. More would be answered faster by a slow endpoint, and each would know less of what the
/// others come to: those under way are in nobody's counts.
pub const ASKED_AT_A_TIME: usize = 16;
/// Largest answer in octets: scores of a thousand Routers with the longest names.
const ANSWER_OCTETS_MAX: usize = 512 * 1024;
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
    /// Who decides when it gives no answer to go by.
    pub fallback: StrategyName,
}

/// Why there is no answer to go by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// No request can be made.
    #[error("cannot be asked: {0}")]
    Unusable(String),
    /// There is no connection, or it broke.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// It did not answer in time.
    #[error("did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// It answered with another status than 2xx.
    #[error("answered {0}")]
    Status(StatusCode),
    /// It answered more than anyone would.
    #[error("answered more than {max} octets", max = ANSWER_OCTETS_MAX)]
    TooLarge,
    /// What it answered is no answer.
    #[error("answered what cannot be read: {0}")]
    Malformed(String),
}

impl AskError {
    /// As a metric's label.
    pub fn label(&self) -> &'static str {
        match self {
            AskError::Unusable(_) => "unusable",
            AskError::Unreachable(_) => "unreachable",
            AskError::Timeout(_) => "timeout",
            AskError::Status(_) => "status",
            AskError::TooLarge => "too_large",
            AskError::Malformed(_) => "malformed",
        }
    }

    /// Whether this says that the endpoint does not work, rather than that it said something wrong.
    pub fn is_outage(&self) -> bool {
        !matches!(self, AskError::TooLarge | AskError::Malformed(_))
    }

    /// Whether another try may go better.
    fn passes(&self) -> bool {
        match self {
            AskError::Unreachable(_) | AskError::Timeout(_) => true,
            AskError::Status(status) => *status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error(),
            AskError::Unusable(_) | AskError::TooLarge | AskError::Malformed(_) => false,
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
    pub async fn ask(&self, question: &Question) -> Result<Answer, AskError> {
        let unusable = |error: String| {
            let error = AskError::Unusable(error);
            self.metrics.webhook_call(error.label(), None);
            error
        };
        let client = self.client.get_or_try_init(|| client(self.settings.authorities.as_ref()));
        let client = client.await.map_err(unusable)?;
        let body = serde_json::to_vec(question).map_err(|error| unusable(error.to_string()))?;
        match self.call(client, body.clone()).await {
            Err(error) if error.passes() => {
                sleep(PAUSE).await;
                self.call(client, body).await
            }
            outcome => outcome,
        }
    }

    async fn call(&self, client: &reqwest::Client, body: Vec<u8>) -> Result<Answer, AskError> {
        let started = Instant::now();
        let outcome = match timeout(self.settings.timeout, post(client, &self.settings.url, body)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(AskError::Timeout(self.settings.timeout)),
        };
        let label = outcome.as_ref().err().map_or("answered", AskError::label);
        self.metrics.webhook_call(label, Some(started.elapsed().as_secs_f64()));
        outcome
    }
}

/// Whether questions can be asked at all: why not, if a file that the settings name is not as it must be.
pub async fn check(settings: &Settings) -> Result<(), String> {
    client(settings.authorities.as_ref()).await.map(drop)
}

/// A client that goes where it is sent and nowhere else: no redirects, no proxies of the environment.
async fn client(authorities: Option<&PathBuf>) -> Result<reqwest::Client, String> {
    let at = |error: String| authorities.map(|path| format!("{}: {error}", path.display())).unwrap_or(error);
    let pem = match authorities {
        Some(path) => Some(tokio::fs::read(path).await.map_err(|error| at(error.to_string()))?),
        None => None,
    };
    let builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .pool_max_idle_per_host(ASKED_AT_A_TIME)
        .user_agent(concat!("signpost/", env!("CARGO_PKG_VERSION")))
        .tls_backend_preconfigured(trust::of(pem.as_deref()).map_err(at)?);
    builder.build().map_err(|error| error.to_string())
}

async fn post(client: &reqwest::Client, url: &str, body: Vec<u8>) -> Result<Answer, AskError> {
    let request = client.post(url).header("content-type", "application/json").header("accept", "application/json");
    let mut response = request.body(body).send().await.map_err(told)?;
    if !response.status().is_success() {
        return Err(AskError::Status(response.status()));
    }
    let mut octets = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(told)? {
        if octets.len() + chunk.len() > ANSWER_OCTETS_MAX {
            return Err(AskError::TooLarge);
        }
        octets.extend_from_slice(&chunk);
    }
    Answer::parse(&octets).map_err(AskError::Malformed)
}

fn told(error: reqwest::Error) -> AskError {
    AskError::Unreachable(unreached::told(error, "that of webhook-url"))
}
