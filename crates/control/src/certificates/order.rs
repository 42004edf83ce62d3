//! One step of a certificate: reads its Secrets, orders it or continues its order, and stores the result.

use std::time::Duration;

use instant_acme::{
    AuthorizationStatus, ChallengeStatus, ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus,
};
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use tokio::time::{Instant, sleep};

use super::ca::{Session, not_ready, of_api, refused};
use super::context::Context;
use super::objects::{self, StoredAttempt};
use super::plan::{self, Attempt, Failure, Issued, Step, Subject};
use super::{Job, Settings, caa, challenges};
use crate::client::backoff::random;
use crate::observe::programmed::ProbeTarget;
use crate::world::issuance::Note;
use signpost_types::names::acme_challenge_name;

/// The time for a CA to validate names, and to sign.
const CA_TIMEOUT: Duration = Duration::from_secs(90);
/// The pause between two checks of an order: the first and the longest.
const POLL: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// The time until a block is checked again, which its end brings forward.
const BLOCK: i64 = 600;
/// The time until a missing record of a host is looked up again.
const RECORD: i64 = 30;
/// The maximum number of further tries with a new nonce, in addition to those of the client.
const NONCES_MAX: usize = 8;
/// The problems after which an order can be continued.
const TRANSIENT: [&str; 4] = ["badNonce", "rateLimited", "serverInternal", "orderNotReady"];

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

/// Does the next step for a certificate. An error is one of the platform's API.
pub(super) async fn advance(
    context: &Context,
    subject: &Subject,
    Job { blocked, proof, instances, others }: Job,
) -> kube::Result<Outcome> {
    let (client, directory) = (&context.client, &context.settings.ca.directory);
    let mut issued = objects::certificate(client, subject).await?;
    if issued.is_none() && !subject.is_zone() && objects::copy(client, subject, &others).await? {
        issued = objects::certificate(client, subject).await?;
    }
    let stored = objects::attempt(client, subject).await?;
    let now = Timestamp::now().as_second();
    let attempt = stored.as_ref().map(|stored| &stored.attempt);
    let (step, renewal) = plan::next(subject, directory, issued.as_ref(), attempt, blocked, now);
    let known = Usable { issued: issued.filter(|_| renewal.is_some()), renewal };
    let order = match step {
        Step::Wait(until) => {
            let problem = attempt.and_then(|attempt| attempt.problem.as_deref()).filter(|_| renewal != Some(until));
            let failed = problem.map(|problem| failed(problem, until));
            return Ok(known.outcome(subject, until, failed.unwrap_or_default()));
        }
        Step::Blocked(blocked) => return Ok(known.outcome(subject, now + BLOCK, blocked.describe(&subject.host))),
        Step::Resume(url) => Some(url),
        Step::Order => None,
    };
    if order.is_none()
        && let Some(target) = proof.as_deref().filter(|_| subject.is_wildcard_host())
        && !challenges::lead_to(context, &subject.host, target).await
    {
        let message = format!(
            "the platform orders a certificate for {} when the record \"{} CNAME {target}.\" exists; create it",
            subject.host,
            acme_challenge_name(&subject.host)
        );
        return Ok(known.outcome(subject, now + RECORD, ("NoChallengeRecord", message)));
    }
    if order.is_none()
        && let Err(until) = context.budget.lock().take(subject.namespace.as_deref(), now)
    {
        let message = format!(
            "too many orders in the last hour (acme.orders, acme.namespace-orders); the next attempt is at {}",
            moment(until)
        );
        return Ok(known.outcome(subject, until, ("OrdersLimited", message)));
    }
    let former = stored.filter(|stored| stored.attempt.directory == *directory);
    let mut stored = former.unwrap_or_else(|| StoredAttempt {
        attempt: Attempt { directory: directory.clone(), ..Attempt::default() },
        key: String::new(),
    });
    stored.attempt.order = order;
    let proof = proof.as_deref();
    let mut result = place(context, subject, &mut stored, proof, &instances).await;
    for _ in 0..NONCES_MAX {
        match &result {
            Err(failed) if failed.failure.reason == "badNonce" => {
                result = place(context, subject, &mut stored, proof, &instances).await;
            }
            _ => break,
        }
    }
    match result {
        Ok(chain) => keep(context, subject, &chain, &stored.key).await,
        Err(failed) => give_up(context, subject, &known, stored, failed).await,
    }
}

/// The certificate that can be used before a step, and the time of its renewal.
struct Usable {
    issued: Option<Issued>,
    renewal: Option<i64>,
}

impl Usable {
    /// Returns the outcome of a step that ended no order.
    fn outcome(&self, subject: &Subject, next_at: i64, (reason, message): (&'static str, String)) -> Outcome {
        let note = note(subject, self.issued.as_ref(), self.renewal, reason, message);
        Outcome { next_at, note, ended: None, not_after: self.issued.as_ref().map(|issued| issued.not_after) }
    }
}

/// Stores a certificate that was issued.
async fn keep(context: &Context, subject: &Subject, chain: &str, key: &str) -> kube::Result<Outcome> {
    let (client, directory) = (&context.client, &context.settings.ca.directory);
    objects::write_certificate(client, subject, directory, chain, key).await?;
    objects::delete_attempt(client, subject).await?;
    let issued = objects::read(chain, directory);
    let now = Timestamp::now().as_second();
    let (step, renewal) = plan::next(subject, directory, issued.as_ref(), None, None, now);
    let Step::Wait(next_at) = step else {
        let message = "the certificate authority issued a certificate that has to be renewed at once; check the clock";
        let outcome =
            Usable { issued: None, renewal }.outcome(subject, now + BLOCK, ("OrderFailed", message.to_owned()));
        return Ok(Outcome { ended: Some(Err("clock".to_owned())), ..outcome });
    };
    tracing::info!(router = subject.router, host = subject.host, "got a certificate");
    let outcome = Usable { issued, renewal }.outcome(subject, next_at, ("", String::new()));
    Ok(Outcome { ended: Some(Ok(())), ..outcome })
}

/// Stores a failure, which the next step waits for.
async fn give_up(
    context: &Context,
    subject: &Subject,
    known: &Usable,
    mut stored: StoredAttempt,
    Failed { failure, ends }: Failed,
) -> kube::Result<Outcome> {
    let (client, directory) = (&context.client, &context.settings.ca.directory);
    let (Failure { reason, message, .. }, Subject { router, host, .. }) = (&failure, subject);
    tracing::warn!(router, host, reason, message, "failed to get a certificate; retrying");
    if reason == "accountDoesNotExist" {
        objects::delete_account(client, directory).await?;
    }
    stored.attempt.fail(&failure, ends, Timestamp::now().as_second(), random());
    objects::write_attempt(client, subject, &stored).await?;
    let until = stored.attempt.retry_at;
    let outcome = known.outcome(subject, until, failed(message, until));
    Ok(Outcome { ended: Some(Err(failure.reason)), ..outcome })
}

fn failed(problem: &str, until: i64) -> (&'static str, String) {
    ("OrderFailed", format!("{problem}; the next attempt is at {}", moment(until)))
}

/// Returns the state of a certificate: what is in use, and why another one is not there.
fn note(
    subject: &Subject,
    issued: Option<&Issued>,
    renewal: Option<i64>,
    reason: &'static str,
    message: String,
) -> Note {
    let (names, is_of_zone) = (subject.names().join(" and "), subject.is_zone());
    let Some(issued) = issued else {
        let reason = if reason.is_empty() { "Ordering" } else { reason };
        let message =
            if message.is_empty() { format!("the platform orders a certificate for {names}") } else { message };
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

/// Brings an order to its end; returns the chain of certificates in PEM. The private key and the URL are stored before the CA
/// signs anything.
async fn place(
    context: &Context,
    subject: &Subject,
    stored: &mut StoredAttempt,
    proof: Option<&str>,
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
        let proven = match proof {
            None => prove(context, &session, subject, &mut order, Proof::Http(instances), &failed).await,
            Some(name) => {
                let proven = prove(context, &session, subject, &mut order, Proof::Dns(name), &failed).await;
                challenges::withdraw(&context.client, name).await;
                proven
            }
        };
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
            let wrong =
                || not_ready("response", "the certificate authority issued a certificate for other names".to_owned());
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

/// The way to prove names.
#[derive(Clone, Copy)]
enum Proof<'a> {
    /// TXT records at a name.
    Dns(&'a str),
    /// Answers of the instances.
    Http(&'a [ProbeTarget]),
}

/// Proves all names of an order, until the CA has a result.
async fn prove(
    context: &Context,
    session: &Session,
    subject: &Subject,
    order: &mut Order,
    proof: Proof<'_>,
    failed: &impl Fn(Error) -> Failed,
) -> Result<(), Failed> {
    let kind = || match proof {
        Proof::Dns(_) => ChallengeType::Dns01,
        Proof::Http(_) => ChallengeType::Http01,
    };
    let no_challenge = || {
        not_ready(
            "noChallenge",
            format!("the certificate authority offers no challenge of the type that {} needs", subject.host),
        )
    };
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
    match proof {
        Proof::Dns(name) => challenges::publish(context, name, &values).await?,
        Proof::Http(instances) => {
            challenges::prove_http(context, &subject.host, &tokens, &session.thumbprint, instances).await?;
        }
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
