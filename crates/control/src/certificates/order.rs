//! One step of a certificate: reads its Secrets, orders it or continues its order, and stores the result.

use std::time::Duration;

use futures::future::join_all;
use instant_acme::{AuthorizationStatus, ChallengeStatus, ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus};
use jiff::Timestamp;
use parking_lot::Mutex;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::ca::{self, Session, not_ready, of_api, refused};
use super::objects::{self, StoredAttempt};
use super::plan::{self, Attempt, Blocked, Failure, Issued, Step, Subject};
use super::{Settings, budget::Budget, caa, challenges};
use crate::client::backoff::random;
use crate::observe::programmed::{Clients, ProbeTarget};
use crate::world::issuance::Note;

/// The time for a CA to validate names, and to sign.
const CA_TIMEOUT: Duration = Duration::from_secs(90);
/// The pause between two looks at an order: the first and the longest.
const POLL: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// The time until a block is checked again, which its end brings forward.
const BLOCK: i64 = 600;
/// How often a request whose nonce the CA rejected is sent again, in addition to what the client does.
const NONCES_MAX: usize = 8;
/// The problems after which an order can be continued.
const TRANSIENT: [&str; 4] = ["badNonce", "rateLimited", "serverInternal", "orderNotReady"];

/// The parts of the loop that all orders use.
pub(super) struct Context {
    pub(super) client: kube::Client,
    pub(super) settings: Settings,
    pub(super) instances: Clients,
    http: reqwest::Client,
    budget: Mutex<Budget>,
    /// Held while an account is read or created, so that there is one.
    account: tokio::sync::Mutex<()>,
    thumbprint: watch::Sender<Option<String>>,
}

/// The result of a step.
pub(super) struct Outcome {
    /// The time of the next step, in seconds since 1970.
    pub(super) next_at: i64,
    pub(super) note: Note,
    /// Whether an order ended well, if one ended; the error is one word.
    pub(super) ended: Option<Result<(), String>>,
    /// The end of the certificate in use.
    pub(super) not_after: Option<i64>,
}

/// An order that failed, and whether it ended with that.
struct Failed {
    failure: Failure,
    ends: bool,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        Failed { failure, ends: false }
    }
}

impl Context {
    pub(super) fn new(
        client: kube::Client,
        settings: Settings,
        instances: Clients,
        budget: Budget,
        thumbprint: watch::Sender<Option<String>>,
    ) -> Result<Context, String> {
        let http = ca::http(&settings.ca)?;
        let (budget, account) = (Mutex::new(budget), tokio::sync::Mutex::default());
        Ok(Context { client, settings, instances, http, budget, account, thumbprint })
    }

    async fn session(&self) -> Result<Session, Failure> {
        let _one = self.account.lock().await;
        let session = ca::open(&self.client, &self.settings.ca, &self.http).await?;
        self.thumbprint.send_if_modified(|known| known.replace(session.thumbprint.clone()) != *known);
        Ok(session)
    }
}

/// Does the next step for a certificate. An error is one of the platform's API.
pub(super) async fn advance(
    context: &Context,
    subject: &Subject,
    blocked: Option<Blocked>,
    instances: &[ProbeTarget],
    others: &[String],
) -> kube::Result<Outcome> {
    let (client, directory) = (&context.client, &context.settings.ca.directory);
    let mut issued = objects::certificate(client, subject).await?;
    if issued.is_none() && !subject.is_zone() && objects::copy(client, subject, others).await? {
        issued = objects::certificate(client, subject).await?;
    }
    let stored = objects::attempt(client, subject).await?;
    let now = Timestamp::now().as_second();
    let attempt = stored.as_ref().map(|stored| &stored.attempt);
    let (step, renewal) = plan::next(subject, directory, issued.as_ref(), attempt, blocked, now);
    let issued = issued.filter(|_| renewal.is_some());
    let problem = attempt.and_then(|attempt| attempt.problem.clone());
    let ended = |next_at, (reason, message): (&'static str, String)| {
        let note = note(subject, issued.as_ref(), renewal, reason, message);
        let not_after = issued.as_ref().map(|issued| issued.not_after);
        Ok(Outcome { next_at, note, ended: None, not_after })
    };
    let order = match step {
        Step::Wait(until) => {
            let failed = problem.map(|problem| failed(&problem, until)).filter(|_| renewal != Some(until));
            return ended(until, failed.unwrap_or_default());
        }
        Step::Blocked(blocked) => return ended(now + BLOCK, blocked.describe(&subject.host)),
        Step::Resume(url) => Some(url),
        Step::Order => None,
    };
    if order.is_none()
        && let Err(until) = context.budget.lock().take(subject.namespace.as_deref(), now)
    {
        let message = format!("too many orders in the last hour (acme.orders, acme.namespace-orders); the next attempt is at {}", moment(until));
        return ended(until, ("OrdersLimited", message));
    }
    let former = stored.filter(|stored| stored.attempt.directory == *directory);
    let mut stored = former.unwrap_or_else(|| StoredAttempt {
        attempt: Attempt { directory: directory.clone(), ..Attempt::default() },
        key: String::new(),
    });
    stored.attempt.order = order;
    let mut result = place(context, subject, &mut stored, instances).await;
    for _ in 0..NONCES_MAX {
        match &result {
            Err(failed) if failed.failure.reason == "badNonce" => {
                result = place(context, subject, &mut stored, instances).await;
            }
            _ => break,
        }
    }
    match result {
        Ok(chain) => {
            objects::write_certificate(client, subject, directory, &chain, &stored.key).await?;
            objects::delete_attempt(client, subject).await?;
            let read = objects::certificate(client, subject).await?;
            let (step, renewal) = plan::next(subject, directory, read.as_ref(), None, None, now);
            let Step::Wait(next_at) = step else {
                let message = "the certificate authority issued a certificate that is not valid now; check the clock";
                let note = note(subject, None, None, "OrderFailed", message.to_owned());
                return Ok(Outcome { next_at: now + BLOCK, note, ended: Some(Err("clock".to_owned())), not_after: None });
            };
            tracing::info!(router = subject.router, host = subject.host, "got a certificate");
            let not_after = read.as_ref().map(|issued| issued.not_after);
            let note = note(subject, read.as_ref(), renewal, "", String::new());
            Ok(Outcome { next_at, note, ended: Some(Ok(())), not_after })
        }
        Err(Failed { failure, ends }) => {
            let Failure { reason, message, .. } = &failure;
            tracing::warn!(router = subject.router, host = subject.host, reason, message, "failed to get a certificate; retrying");
            if reason == "accountDoesNotExist" {
                objects::delete_account(client, directory).await?;
            }
            stored.attempt.fail(&failure, ends, Timestamp::now().as_second(), random());
            objects::write_attempt(client, subject, &stored).await?;
            let until = stored.attempt.retry_at;
            let outcome = ended(until, failed(message, until))?;
            Ok(Outcome { ended: Some(Err(failure.reason)), ..outcome })
        }
    }
}

fn failed(problem: &str, until: i64) -> (&'static str, String) {
    ("OrderFailed", format!("{problem}; the next attempt is at {}", moment(until)))
}

/// Returns the state of a certificate: what is in use, and why another one is not there.
fn note(subject: &Subject, issued: Option<&Issued>, renewal: Option<i64>, reason: &'static str, message: String) -> Note {
    let (names, is_of_zone) = (subject.names().join(" and "), subject.is_zone());
    let Some(issued) = issued else {
        let reason = if reason.is_empty() { "Ordering" } else { reason };
        let message = if message.is_empty() { format!("the platform orders a certificate for {names}") } else { message };
        return Note { is_issued: false, is_of_zone, reason, message };
    };
    let (issuer, until) = (&issued.issuer, moment(issued.not_after));
    let mut text = format!("{issuer} issued a certificate for {names}, valid until {until}");
    match message.as_str() {
        "" => text += &format!("; the next renewal is at {}", renewal.map_or_else(String::new, moment)),
        message => text += &format!("; the renewal: {message}"),
    }
    Note { is_issued: true, is_of_zone, reason: "CertificateIssued", message: text }
}

fn moment(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| "an unknown time".to_owned(), |time| time.to_string())
}

/// Brings an order to its end; returns the chain of certificates in PEM. The private key and the URL are stored before the CA is asked for
/// a signature.
async fn place(
    context: &Context,
    subject: &Subject,
    stored: &mut StoredAttempt,
    instances: &[ProbeTarget],
) -> Result<String, Failed> {
    let session = context.session().await?;
    let failed = |error: Error| {
        let failure = session.failure(&error);
        let ends = matches!(error, Error::Api(_)) && !TRANSIENT.contains(&failure.reason.as_str());
        Failed { failure, ends }
    };
    let mut order = match stored.attempt.order.clone() {
        Some(url) => session.account.order(url).await.map_err(failed)?,
        None => {
            let Settings { ca, resolvers, patience, .. } = &context.settings;
            caa::check(&context.http, &ca.directory, &subject.names(), resolvers, *patience).await?;
            let names: Vec<Identifier> = subject.names().into_iter().map(Identifier::Dns).collect();
            let mut new = NewOrder::new(&names);
            if let Some(profile) = &ca.profile {
                new = new.profile(profile);
            }
            let order = session.account.new_order(&new).await.map_err(failed)?;
            let key = KeyPair::generate().map_err(|error| not_ready("key", error.to_string()))?;
            (stored.key, stored.attempt.order) = (key.serialize_pem(), Some(order.url().to_owned()));
            stored.attempt.since = Timestamp::now().as_second();
            objects::write_attempt(&context.client, subject, stored).await.map_err(|error| of_api(&error))?;
            order
        }
    };
    if order.state().status == OrderStatus::Pending {
        let proven = prove(context, &session, subject, &mut order, instances, &failed).await;
        if subject.is_zone() {
            challenges::withdraw(&context.client, &subject.host).await;
        }
        proven?;
    }
    if order.state().status == OrderStatus::Ready {
        let key = KeyPair::from_pem(&stored.key).map_err(|error| not_ready("key", error.to_string()));
        // The order is of no use without its key.
        let key = key.map_err(|failure| Failed { failure, ends: true })?;
        let request = CertificateParams::new(subject.names()).and_then(|mut parameters| {
            parameters.distinguished_name = DistinguishedName::new();
            parameters.serialize_request(&key)
        });
        let request = request.map_err(|error| not_ready("key", error.to_string()))?;
        order.finalize_csr(request.der()).await.map_err(failed)?;
    }
    let (deadline, mut pause) = (Instant::now() + CA_TIMEOUT, POLL[0]);
    loop {
        match order.state().status {
            OrderStatus::Processing | OrderStatus::Valid => {}
            _ => return Err(Failed { failure: refused(order.state().error.as_ref()), ends: true }),
        }
        if let Some(chain) = order.certificate().await.map_err(failed)? {
            let names = subject.names();
            let issued = objects::read(&chain, "");
            let is_right = issued.is_some_and(|issued| names.iter().all(|name| issued.names.contains(name)));
            let wrong = || not_ready("response", "the certificate authority issued a certificate for other names".to_owned());
            return if is_right { Ok(chain) } else { Err(Failed { failure: wrong(), ends: true }) };
        }
        if Instant::now() > deadline {
            return Err(not_ready("timeout", "the certificate authority has not signed yet".to_owned()).into());
        }
        wait(&mut pause).await;
    }
}

async fn wait(pause: &mut Duration) {
    sleep(*pause).await;
    *pause = (*pause * 2).min(POLL[1]);
}

/// Proves all names of an order, until the CA has a result.
async fn prove(
    context: &Context,
    session: &Session,
    subject: &Subject,
    order: &mut Order,
    instances: &[ProbeTarget],
    failed: &impl Fn(Error) -> Failed,
) -> Result<(), Failed> {
    let kind = || if subject.is_zone() { ChallengeType::Dns01 } else { ChallengeType::Http01 };
    let no_challenge = || not_ready("noChallenge", format!("the certificate authority offers no challenge of the type that {} needs", subject.host));
    let (mut tokens, mut values) = (Vec::new(), Vec::new());
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(failed)?;
        if authorization.status != AuthorizationStatus::Pending {
            continue;
        }
        let challenge = authorization.challenge(kind()).ok_or_else(no_challenge)?;
        tokens.push(challenge.token.clone());
        values.push(challenge.key_authorization().dns_value());
    }
    match subject.is_zone() {
        true => challenges::publish(context, &subject.host, &values).await?,
        false => challenges::prove_http(context, &subject.host, &tokens, &session.thumbprint, instances).await?,
    }
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(failed)?;
        if authorization.status != AuthorizationStatus::Pending {
            continue;
        }
        let mut challenge = authorization.challenge(kind()).ok_or_else(no_challenge)?;
        // After a restart, the CA can be at it already.
        if challenge.status == ChallengeStatus::Pending {
            challenge.set_ready().await.map_err(failed)?;
        }
    }
    let (deadline, mut pause) = (Instant::now() + CA_TIMEOUT, POLL[0]);
    loop {
        let status = order.refresh().await.map_err(failed)?.status;
        match status {
            OrderStatus::Pending if Instant::now() > deadline => {
                let message = "the certificate authority has not validated the names yet".to_owned();
                return Err(not_ready("timeout", message).into());
            }
            OrderStatus::Pending => wait(&mut pause).await,
            OrderStatus::Invalid => break,
            _ => return Ok(()),
        }
    }
    let mut authorizations = order.authorizations();
    let mut problem = None;
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(failed)?;
        let state = authorization.refresh().await.map_err(failed)?;
        problem = problem.or_else(|| state.challenges.iter().find_map(|challenge| challenge.error.clone()));
    }
    let problem = problem.or_else(|| order.state().error.clone());
    Err(Failed { failure: refused(problem.as_ref()), ends: true })
}

/// Runs a check of all servers or instances until none of them has a fault, or the time is over: then the faults are the error.
pub(super) async fn until_all<T, F: Future<Output = Result<bool, String>>>(
    targets: &[T],
    patience: Duration,
    check: impl Fn(usize) -> F,
) -> Result<usize, String> {
    let (deadline, mut pause) = (Instant::now() + patience, POLL[0]);
    loop {
        let results = join_all((0..targets.len()).map(&check)).await;
        let faults: Vec<&str> = results.iter().filter_map(|result| result.as_ref().err().map(String::as_str)).collect();
        let good = results.iter().filter(|result| **result == Ok(true)).count();
        if faults.is_empty() {
            return Ok(good);
        }
        if Instant::now() > deadline {
            let (named, more) = (faults[..faults.len().min(3)].join("; "), faults.len().saturating_sub(3));
            return Err(if more > 0 { format!("{named}; and {more} more") } else { named });
        }
        wait(&mut pause).await;
    }
}
