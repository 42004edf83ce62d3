//! One step of a certificate: reads its Secrets, orders it or continues its order, and stores the result.

use std::time::Duration;

use instant_acme::{
    AuthorizationStatus, ChallengeStatus, ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus,
};
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use tokio::time::{Instant, sleep};

use super::ca::{Session, kind, not_ready, of_api, refused};
use super::context::Context;
use super::objects::{self, StoredAttempt};
use super::plan::{self, Attempt, Failure, Issued, Step, Subject};
use super::{Job, Settings, ari, caa, challenges};
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

/// The failures in a row after which an order does not name the certificate that it replaces.
const REPLACING_MAX: u32 = 3;

/// The result of a step.
pub(super) struct Outcome {
    /// The time of the next step, in seconds since 1970.
    pub(super) next_at: i64,
    pub(super) note: Note,
    pub(super) ended: Option<Ended>,
    /// Whether the last order failed.
    pub(super) is_failing: bool,
    /// The end of the certificate in use.
    pub(super) not_after: Option<i64>,
}

/// The end of an order, or of a try.
pub(super) enum Ended {
    Issued {
        is_renewal: bool,
    },
    /// `reason` is one word. `is_news`: the try before did not fail for the same reason.
    Failed {
        reason: String,
        message: String,
        is_news: bool,
    },
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
    Job { blocked, proofs, instances, others }: Job,
) -> kube::Result<Outcome> {
    let (client, directory) = (&context.client, &context.settings.ca.directory);
    let mut issued = objects::certificate(client, subject).await?;
    if issued.is_none() && !subject.is_zone() && objects::copy(client, subject, &others).await? {
        issued = objects::certificate(client, subject).await?;
    }
    let stored = objects::attempt(client, subject).await?;
    let now = Timestamp::now().as_second();
    let attempt = stored.as_ref().map(|stored| &stored.attempt);
    let window = match &issued {
        Some(issued) if now <= issued.not_after => ari::window(context, subject, issued, now).await,
        _ => None,
    };
    let (step, renewal) = plan::next(subject, directory, (issued.as_ref(), window), attempt, blocked, now);
    let failed_before = attempt.and_then(|attempt| attempt.reason.clone());
    let was_issued = issued.is_some();
    let known = Usable { issued: issued.filter(|_| renewal.is_some()), renewal, is_failing: failed_before.is_some() };
    let is_new = match step {
        Step::Wait(until) => {
            let problem = attempt.and_then(|attempt| attempt.problem.as_deref()).filter(|_| renewal != Some(until));
            let failed = problem.map(|problem| failed(problem, until));
            return Ok(known.outcome(subject, until, failed.unwrap_or_default()));
        }
        Step::Blocked(blocked) => return Ok(known.outcome(subject, now + BLOCK, blocked.describe(&subject.host))),
        Step::Resume(_) => false,
        Step::Order => true,
    };
    let mut proof = proofs.first().map(String::as_str);
    if subject.is_wildcard_host() {
        match challenges::target_of(context, &subject.host, &proofs).await {
            None if is_new => {
                let kept = current(stored, directory);
                return record_missing(context, subject, &known, kept, proof.unwrap_or_default(), was_issued).await;
            }
            target => proof = target.or(proof),
        }
    }
    let limited = |until| {
        let message = format!(
            "too many orders in the last hour (acme.orders, acme.namespace-orders); the next attempt is at {}",
            moment(until)
        );
        known.outcome(subject, until, ("OrdersLimited", message))
    };
    let namespace = subject.namespace.as_deref();
    if is_new && let Err(until) = context.may_order(namespace, now).await? {
        return Ok(limited(until));
    }
    let mut stored = current(stored, directory);
    let session = match context.session().await {
        Ok(session) => session,
        Err(failure) => return give_up(context, subject, &known, stored, failure.into()).await,
    };
    if is_new {
        // A try that ends before the CA receives an order does not count.
        let Settings { ca, resolvers, patience, .. } = &context.settings;
        if let Err(failure) = caa::check(&context.http, &ca.directory, &subject.names(), resolvers, *patience).await {
            return give_up(context, subject, &known, stored, failure.into()).await;
        }
        match context.take_order(namespace, now).await? {
            Ok(placed) => stored.attempt.begin(placed, now),
            Err(until) => return Ok(limited(until)),
        }
        // So that the next leader counts it, even if nothing can be stored after the CA has received it.
        objects::write_attempt(client, subject, &stored).await?;
    }
    let replaced = known.issued.as_ref().filter(|_| window.is_some() && stored.attempt.failures < REPLACING_MAX);
    let way = Way { proof, instances: &instances, replaced: replaced.and_then(|issued| issued.id.as_deref()) };
    match carry_out(context, &session, subject, &mut stored, &way).await? {
        Ok((chain, issued)) => keep(context, subject, &known, &chain, issued, stored).await,
        Err(failed) => give_up(context, subject, &known, stored, failed).await,
    }
}

/// Places an order or continues it, again after a nonce that the CA rejected. Deletes an account that the CA does not have.
async fn carry_out(
    context: &Context,
    session: &Session,
    subject: &Subject,
    stored: &mut StoredAttempt,
    way: &Way<'_>,
) -> kube::Result<Result<(String, Issued), Failed>> {
    let mut result = place(context, session, subject, stored, way).await;
    for _ in 0..NONCES_MAX {
        match &result {
            Err(failed) if failed.failure.reason == "badNonce" => {
                result = place(context, session, subject, stored, way).await;
            }
            _ => break,
        }
    }
    // Other orders fail for the same reason, and one of them can have created the next account already.
    if let (Err(failed), Some(uid)) = (&result, &session.account_uid)
        && failed.failure.reason == "accountDoesNotExist"
    {
        objects::delete_account(&context.client, &context.settings.ca.directory, uid).await?;
    }
    Ok(result)
}

/// Returns the outcome without the record of a host's owner, which leads to `target`. If a certificate has to be renewed, that is a failure.
async fn record_missing(
    context: &Context,
    subject: &Subject,
    known: &Usable,
    mut stored: StoredAttempt,
    target: &str,
    was_issued: bool,
) -> kube::Result<Outcome> {
    let (now, host) = (Timestamp::now().as_second(), &subject.host);
    let record = format!("{} CNAME {target}.", acme_challenge_name(host));
    let message =
        format!("the platform orders a certificate for {host} when the record \"{record}\" exists; create it");
    let outcome = known.outcome(subject, now + RECORD, ("NoChallengeRecord", message.clone()));
    if !was_issued {
        return Ok(outcome);
    }
    let failure = not_ready("noChallengeRecord", message);
    let is_news = stored.attempt.reason.as_ref() != Some(&failure.reason);
    if is_news {
        stored.attempt.note(&failure, now);
        objects::write_attempt(&context.client, subject, &stored).await?;
    }
    let Failure { reason, message, .. } = failure;
    let ended = is_news.then_some(Ended::Failed { reason, message, is_news });
    Ok(Outcome { ended, is_failing: true, ..outcome })
}

/// Returns the attempt to continue. After a change of the directory, only the orders still count.
fn current(stored: Option<StoredAttempt>, directory: &str) -> StoredAttempt {
    match stored {
        Some(stored) if stored.attempt.directory == directory => stored,
        former => {
            let orders = former.map(|former| former.attempt.orders).unwrap_or_default();
            let attempt = Attempt { directory: directory.to_owned(), orders, ..Attempt::default() };
            StoredAttempt { attempt, key: String::new() }
        }
    }
}

/// The inputs of an order, apart from its names.
struct Way<'a> {
    /// The name of the TXT records that prove the names; `None`: instances answer.
    proof: Option<&'a str>,
    instances: &'a [ProbeTarget],
    /// The identifier of the certificate that the new one replaces, if the CA suggests times of renewal.
    replaced: Option<&'a str>,
}

/// The certificate that can be used before a step, and the time of its renewal.
struct Usable {
    issued: Option<Issued>,
    renewal: Option<i64>,
    is_failing: bool,
}

impl Usable {
    /// Returns the outcome of a step that ended no order.
    fn outcome(&self, subject: &Subject, next_at: i64, (reason, message): (&'static str, String)) -> Outcome {
        let note = note(subject, self.issued.as_ref(), self.renewal, reason, message);
        let not_after = self.issued.as_ref().map(|issued| issued.not_after);
        Outcome { next_at, note, ended: None, is_failing: self.is_failing, not_after }
    }
}

/// Stores a certificate that was issued, unless the one in use is as good.
async fn keep(
    context: &Context,
    subject: &Subject,
    known: &Usable,
    chain: &str,
    issued: Issued,
    mut stored: StoredAttempt,
) -> kube::Result<Outcome> {
    let (client, directory) = (&context.client, &context.settings.ca.directory);
    let now = Timestamp::now().as_second();
    let (step, renewal) = plan::next(subject, directory, (Some(&issued), None), None, None, now);
    let Step::Wait(next_at) = step else {
        let message = "the certificate authority issued a certificate that has to be renewed at once; check the clock";
        let failed = Failed { failure: not_ready("clock", message.to_owned()), ends: true };
        return give_up(context, subject, known, stored, failed).await;
    };
    objects::write_certificate(client, subject, directory, chain, &stored.key).await?;
    (stored.attempt, stored.key) = (stored.attempt.succeeded(), String::new());
    objects::write_attempt(client, subject, &stored).await?;
    tracing::info!(router = subject.router, host = subject.host, "got a certificate");
    let is_renewal = known.issued.is_some();
    let kept = Usable { issued: Some(issued), renewal, is_failing: false };
    let outcome = kept.outcome(subject, next_at, ("", String::new()));
    Ok(Outcome { ended: Some(Ended::Issued { is_renewal }), ..outcome })
}

/// Stores a failure, which the next step waits for.
async fn give_up(
    context: &Context,
    subject: &Subject,
    known: &Usable,
    mut stored: StoredAttempt,
    Failed { failure, ends }: Failed,
) -> kube::Result<Outcome> {
    let (Failure { reason, message, .. }, Subject { router, host, .. }) = (&failure, subject);
    tracing::warn!(router, host, reason, message, "failed to get a certificate; retrying");
    let is_news = stored.attempt.reason.as_ref() != Some(reason);
    stored.attempt.fail(&failure, ends, Timestamp::now().as_second(), random());
    objects::write_attempt(&context.client, subject, &stored).await?;
    let until = stored.attempt.retry_at;
    let outcome = known.outcome(subject, until, failed(message, until));
    let Failure { reason, message, .. } = failure;
    Ok(Outcome { ended: Some(Ended::Failed { reason, message, is_news }), is_failing: true, ..outcome })
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

/// Brings an order to its end; returns the chain of certificates in PEM, and the first of them. The private key and the URL are stored before
/// the CA signs anything.
async fn place(
    context: &Context,
    session: &Session,
    subject: &Subject,
    stored: &mut StoredAttempt,
    way: &Way<'_>,
) -> Result<(String, Issued), Failed> {
    let failed = |error: Error| {
        let failure = session.failure(&error);
        let ends = matches!(error, Error::Api(_)) && !TRANSIENT.contains(&failure.reason.as_str());
        Failed { failure, ends }
    };
    let mut order = match stored.attempt.order.clone() {
        Some(url) => session.account.order(url).await.map_err(failed)?,
        None => {
            let ca = &context.settings.ca;
            let order = new_order(session, subject, ca.profile.as_deref(), way.replaced).await;
            let order = order.map_err(|error| with_advice(failed(error), &ca.directory))?;
            let key = KeyPair::generate().map_err(|error| not_ready("key", error.to_string()))?;
            (stored.key, stored.attempt.order) = (key.serialize_pem(), Some(order.url().to_owned()));
            objects::write_attempt(&context.client, subject, stored).await.map_err(|error| of_api(&error))?;
            order
        }
    };
    let proof = way.proof.map_or(Proof::Http(way.instances), Proof::Dns);
    let proven = match order.state().status {
        OrderStatus::Pending => prove(context, session, subject, &mut order, proof, &failed).await,
        _ => Ok(()),
    };
    // An order that continues needs its records: the CA can be validating them.
    if let Proof::Dns(name) = proof
        && proven.as_ref().err().is_none_or(|failed| failed.ends)
    {
        challenges::withdraw(&context.client, name).await;
    }
    proven?;
    let key = KeyPair::from_pem(&stored.key).map_err(|error| not_ready("key", error.to_string()));
    // The order is of no use without its key.
    let key = key.map_err(|failure| Failed { failure, ends: true })?;
    if order.state().status == OrderStatus::Ready {
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
            _ => return Err(refusal(&mut order, &failed).await?),
        }
        if let Some(chain) = order.certificate().await.map_err(failed)? {
            let issued = objects::check(&chain, &subject.names(), &key, &context.settings.ca.directory);
            return issued.map(|issued| (chain, issued)).map_err(|fault| {
                let failure = not_ready("response", format!("the certificate authority sent {fault}"));
                Failed { failure, ends: true }
            });
        }
        if Instant::now() > deadline {
            return Err(not_ready("timeout", "the certificate authority has not signed yet".to_owned()).into());
        }
        wait(&mut pause).await;
    }
}

/// Places an order, which names the certificate that it replaces if there is one and the CA accepts that.
async fn new_order(
    session: &Session,
    subject: &Subject,
    profile: Option<&str>,
    replaced: Option<&str>,
) -> Result<Order, Error> {
    let names: Vec<Identifier> = subject.names().into_iter().map(Identifier::Dns).collect();
    let new = || match profile {
        Some(profile) => NewOrder::new(&names).profile(profile),
        None => NewOrder::new(&names),
    };
    if let Some(replaced) = replaced.and_then(ari::identifier) {
        match session.account.new_order(&new().replaces(replaced)).await {
            // CAs report different problems for a certificate that was replaced already, or that they do not have.
            Err(Error::Api(problem)) if !TRANSIENT.contains(&kind(&problem).as_str()) => {}
            placed => return placed,
        }
    }
    session.account.new_order(&new()).await
}

/// Adds to the failure of a new order what to do if the CA has revoked the account (RFC 8555 §7.3.6): a new one is the operator's decision.
/// Later in an order, the same problem is about a name.
fn with_advice(mut failed: Failed, directory: &str) -> Failed {
    if failed.failure.reason == "unauthorized" {
        let secret = objects::account_secret(directory);
        failed.failure.message += &format!("; to create another account, delete Secret {secret}");
    }
    failed
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
            challenge.set_ready().await.map_err(|error| of_validation(failed(error)))?;
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
    Err(refusal(order, failed).await?)
}

/// Returns the failure of a request to validate a name: some CAs validate it before they respond.
fn of_validation(mut failed: Failed) -> Failed {
    failed.failure.is_validation = failed.ends;
    failed
}

/// Returns why an order is invalid: a validation failed, or the CA has not signed.
async fn refusal(order: &mut Order, failed: &impl Fn(Error) -> Failed) -> Result<Failed, Failed> {
    let (mut problem, mut is_validation) = (None, false);
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(failed)?;
        let state = authorization.refresh().await.map_err(failed)?;
        is_validation |= state.status == AuthorizationStatus::Invalid;
        problem = problem.or_else(|| state.challenges.iter().find_map(|challenge| challenge.error.clone()));
    }
    is_validation |= problem.is_some();
    let problem = problem.or_else(|| order.state().error.clone());
    Ok(Failed { failure: Failure { is_validation, ..refused(problem.as_ref()) }, ends: true })
}
