//! Leader election over a Kubernetes Lease (`coordination.k8s.io/v1`): of several candidates one leads.
//!
//! A candidate reads the Lease every [`Settings::renew`]. A leader renews it by a write that carries the resourceVersion it
//! read, so that of two writers one fails. Others take it when it was let go, or when they have seen no renewal for the
//! time the Lease itself names. That time is measured on **our own monotonic clock, from when we saw the Lease change**:
//! the times in the Lease are for people, since clocks of machines differ.
//!
//! A renewal without an answer is given up after half of the time that the term still has, as client-go does it, so that another try,
//! which may be one at another API server, comes before the term ends.
//!
//! A leader that cannot renew steps down by itself before anyone else may lead: its [`Term`] ends at two thirds of the
//! duration after it *sent* its last successful renewal. Each new leader counts `leaseTransitions` up by one, which makes it
//! a fencing number: what a leader writes can carry it, and of two writes the one with the lower number is a deposed
//! leader's. Numbers only go up: a candidate remembers the greatest that it has seen, and begins above that also when
//! the Lease was deleted. Whoever changes the number of a Lease that is held, by hand or by putting another store in its
//! place, takes the term from the holder: that one begins a new term with a number of its own.
//!
//! ```text
//!                 free, expired, ours without a term or with another number: PUT with a greater number
//!      Follower ────────────────────────────────────────────────────────────────────────► Leader ──┐ renewed
//!         ▲                                                                                │  ▲    │
//!         └──────────── someone else holds it, the term ended, or stop (then released) ────┘  └────┘
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::backoff;
use super::reflector::{self, Change, Changes, reflect};
use signpost_api::v1alpha1::SCHEDULER_LEASE_NAMESPACE;

/// How long releasing may take when we stop; after that others wait for the Lease to expire.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// The shortest limit of a try to renew, and the shortest wait before another one: an API needs some time for two requests.
const RETRY_SHORTEST: Duration = Duration::from_millis(250);

/// Where the Lease is, and how long it lives.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Namespace of the Lease object.
    pub namespace: String,
    /// How long after a renewal others may take it, in whole seconds, at least one. A leader that died is replaced after
    /// this; an API server that pauses for two thirds of it costs the leader its term.
    pub duration: Duration,
    /// How often the leader renews, and others look; well below the duration.
    pub renew: Duration,
}

impl Settings {
    /// Of a Lease that lasts for `duration`: the leader renews it five times in that time.
    pub fn lasting(duration: Duration) -> Self {
        Settings { duration, renew: duration / 5, ..Settings::default() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            namespace: SCHEDULER_LEASE_NAMESPACE.to_owned(),
            duration: Duration::from_secs(15),
            renew: Duration::from_secs(3),
        }
    }
}

/// Whether this process leads.
#[derive(Debug, Clone)]
pub enum Leadership {
    /// Someone else does, or nobody is known to.
    Follower {
        /// Who, if known.
        holder: Option<String>,
    },
    /// This process does.
    Leader(Term),
}

impl Leadership {
    /// The term, if this process leads.
    pub fn term(&self) -> Option<&Term> {
        match self {
            Leadership::Leader(term) if term.is_current() => Some(term),
            _ => None,
        }
    }
}

/// One uninterrupted leadership of this process; clones speak of the same one.
#[derive(Debug, Clone)]
pub struct Term {
    fencing: u64,
    started: Instant,
    /// Milliseconds after `started` at which the term ends, unless renewed.
    ends_millis: Arc<AtomicU64>,
}

impl Term {
    /// A term that never ends, for a process that shares its work with no one.
    pub fn unlimited() -> Self {
        Term { fencing: 0, started: Instant::now(), ends_millis: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// The fencing number: greater than that of every earlier leader.
    pub fn fencing(&self) -> u64 {
        self.fencing
    }

    /// Whether no one else can lead at this moment. To be asked right before each write.
    pub fn is_current(&self) -> bool {
        self.is_current_at(Instant::now())
    }

    fn is_current_at(&self, now: Instant) -> bool {
        let ends = self.ends_millis.load(Ordering::Acquire);
        u64::try_from(now.duration_since(self.started).as_millis()).unwrap_or(u64::MAX) < ends
    }

    fn new(fencing: u64, sent: Instant, length: Duration) -> Self {
        let term = Term { fencing, started: sent, ends_millis: Arc::default() };
        term.extend(sent, length);
        term
    }

    fn extend(&self, sent: Instant, length: Duration) {
        let ends = sent.duration_since(self.started).saturating_add(length).as_millis();
        self.ends_millis.store(u64::try_from(ends).unwrap_or(u64::MAX), Ordering::Release);
    }

    fn end(&self) {
        self.ends_millis.store(0, Ordering::Release);
    }

    fn remaining(&self) -> Duration {
        let ends = Duration::from_millis(self.ends_millis.load(Ordering::Acquire));
        ends.saturating_sub(self.started.elapsed())
    }
}

/// A candidate for one Lease.
pub struct Lease {
    api: Api<LeaseObject>,
    name: String,
    holder: String,
    settings: Settings,
    observed: Option<ObservedLease>,
    /// The greatest fencing number that the Lease was ever seen with, or that was taken here.
    greatest: i32,
    /// Whether the last look at the Lease failed.
    fails: bool,
    leadership: watch::Sender<Leadership>,
}

/// What was read last, and when it was first seen to be so.
struct ObservedLease {
    object: LeaseObject,
    since: Instant,
}

impl Lease {
    /// Runs for the Lease `name` as `holder` until `stop`; then the Lease is let go, and the receiver's channel closes,
    /// which is how to wait for the end. No two processes that run at once may have the same `holder`; one that comes back
    /// under its former name takes its own Lease over at once.
    pub fn run(
        client: kube::Client,
        name: &str,
        holder: &str,
        settings: Settings,
        stop: CancellationToken,
    ) -> watch::Receiver<Leadership> {
        let (leadership, receiver) = watch::channel(Leadership::Follower { holder: None });
        let candidate = Lease {
            api: Api::namespaced(client.clone(), &settings.namespace),
            name: name.to_owned(),
            holder: holder.to_owned(),
            settings,
            observed: None,
            greatest: 0,
            fails: false,
            leadership,
        };
        tokio::spawn(candidate.run_until(client, stop));
        receiver
    }

    async fn run_until(mut self, client: kube::Client, stop: CancellationToken) {
        // Looking now and then is what it works by. The watch saves the wait where the holder lets go, and has a leader look as soon as
        // the Lease is deleted or another's: until it looks, two processes lead. It ends with this.
        let one = reflector::Settings {
            namespace: Some(self.settings.namespace.clone()),
            field_selector: Some(format!("metadata.name={}", self.name)),
            ..reflector::Settings::default()
        };
        let (_informer, mut changes) = reflect(client, one, |lease: LeaseObject| {
            let spec = lease.spec.unwrap_or_default();
            (spec.holder_identity.unwrap_or_default(), spec.lease_transitions.unwrap_or(0))
        });
        loop {
            let wait = tokio::select! {
                () = stop.cancelled() => break,
                wait = self.round() => wait,
            };
            let term = self.term();
            let is_as_known = |(holder, number): &Tenure| match &term {
                Some(term) => *holder == self.holder && u64::try_from(*number) == Ok(term.fencing()),
                None => !holder.is_empty(),
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(wait) => {}
                () = changes_hands(&mut changes, is_as_known) => {}
            }
        }
        self.release().await;
    }

    /// One look at the Lease and what follows from it. The answer is how long to wait for the next.
    async fn round(&mut self) -> Duration {
        // Other candidates must not always arrive in step with us.
        let regular = backoff::delay(self.settings.renew, self.settings.renew, 0, backoff::random());
        let limit = match self.term() {
            Some(term) => (term.remaining() / 2).max(RETRY_SHORTEST),
            None => self.settings.duration,
        };
        let failure = match timeout(limit, self.attempt()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the API did not answer in time".to_owned()),
        };
        match &failure {
            // Once an outage: it is tried every few seconds.
            Some(error) if !self.fails => {
                tracing::warn!(lease = %self.name, error, "the lease cannot be read or written; trying again");
            }
            Some(error) => tracing::debug!(lease = %self.name, error, "the lease cannot be read or written"),
            None => {}
        }
        self.fails = failure.is_some();
        match self.term() {
            Some(term) if term.is_current() && failure.is_some() => {
                regular.min((term.remaining() / 4).max(RETRY_SHORTEST)).min(term.remaining())
            }
            Some(term) if term.is_current() => regular.min(term.remaining()),
            Some(_) => {
                self.follow(None);
                regular
            }
            None => regular,
        }
    }

    async fn attempt(&mut self) -> kube::Result<()> {
        self.refresh().await?;
        let spec = self.observed.as_ref().and_then(|observed| observed.object.spec.as_ref());
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
        let ours = holder == Some(self.holder.as_str());
        let number = spec.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        match (self.term(), ours) {
            (Some(term), true) if u64::try_from(number) == Ok(term.fencing()) => self.renew(term).await,
            (Some(term), true) => {
                let fencing = term.fencing();
                tracing::warn!(lease = %self.name, number, fencing, "the lease has another fencing number than our term");
                self.follow(None);
                self.take().await
            }
            (None, true) => self.take().await,
            (_, false) if holder.is_none() || self.has_expired() => {
                self.follow(None);
                self.take().await
            }
            (_, false) => {
                let holder = holder.map(str::to_owned);
                self.follow(holder);
                Ok(())
            }
        }
    }

    async fn refresh(&mut self) -> kube::Result<()> {
        match self.api.get_opt(&self.name).await? {
            Some(object) => self.note(object),
            None => self.observed = None,
        }
        Ok(())
    }

    /// Remembers what the Lease is, and since when: a changed version means someone renewed it.
    fn note(&mut self, object: LeaseObject) {
        let number = object.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
        self.greatest = self.greatest.max(number);
        let version = |object: &LeaseObject| object.metadata.resource_version.clone();
        match &mut self.observed {
            Some(observed) if version(&observed.object) == version(&object) => {}
            observed => *observed = Some(ObservedLease { object, since: Instant::now() }),
        }
    }

    fn has_expired(&self) -> bool {
        let Some(observed) = &self.observed else { return true };
        let named = observed.object.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let duration = named.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
        observed.since.elapsed() > duration.unwrap_or(self.settings.duration)
    }

    async fn take(&mut self) -> kube::Result<()> {
        let transitions = self.greatest.saturating_add(1);
        let now = MicroTime(Timestamp::now());
        let spec = LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: Some(self.duration_seconds()),
            lease_transitions: Some(transitions),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        };
        let sent = Instant::now();
        if let Some(object) = self.write(spec).await? {
            self.note(object);
            let fencing = u64::try_from(transitions).unwrap_or(0);
            tracing::info!(lease = %self.name, holder = %self.holder, fencing, "leading");
            self.leadership.send_replace(Leadership::Leader(Term::new(fencing, sent, self.term_length())));
        }
        Ok(())
    }

    async fn renew(&mut self, term: Term) -> kube::Result<()> {
        let Some(mut spec) = self.observed.as_ref().and_then(|observed| observed.object.spec.clone()) else {
            return Ok(());
        };
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        spec.lease_duration_seconds = Some(self.duration_seconds());
        let sent = Instant::now();
        if let Some(object) = self.write(spec).await? {
            self.note(object);
            term.extend(sent, self.term_length());
        }
        Ok(())
    }

    /// Writes the Lease as it was read, with this spec; `None`: someone else was faster.
    async fn write(&self, spec: LeaseSpec) -> kube::Result<Option<LeaseObject>> {
        let parameters = PostParams::default();
        let written = match &self.observed {
            Some(observed) => {
                let object = LeaseObject { metadata: observed.object.metadata.clone(), spec: Some(spec) };
                self.api.replace(&self.name, &parameters, &object).await
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                self.api.create(&parameters, &LeaseObject { metadata, spec: Some(spec) }).await
            }
        };
        match written {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn release(&mut self) {
        let Some(term) = self.term() else { return };
        let is_over = term.remaining().is_zero();
        // On purpose, which is nothing to warn of.
        term.end();
        self.leadership.send_replace(Leadership::Follower { holder: None });
        if is_over {
            return;
        }
        let Some(mut spec) = self.observed.as_ref().and_then(|observed| observed.object.spec.clone()) else { return };
        spec.holder_identity = None;
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        match timeout(RELEASE_TIMEOUT, self.write(spec)).await {
            Ok(Ok(_)) => tracing::info!(lease = %self.name, "lease let go"),
            Ok(Err(error)) => tracing::warn!(lease = %self.name, %error, "the lease cannot be let go; it expires"),
            Err(_) => tracing::warn!(lease = %self.name, "the lease cannot be let go in time; it expires"),
        }
    }

    fn follow(&self, holder: Option<String>) {
        self.leadership.send_if_modified(|leadership| match leadership {
            Leadership::Leader(term) => {
                term.end();
                tracing::warn!(lease = %self.name, holder = %self.holder, "leading no more");
                *leadership = Leadership::Follower { holder };
                true
            }
            Leadership::Follower { holder: known } if *known == holder => false,
            Leadership::Follower { holder: known } => {
                *known = holder;
                true
            }
        });
    }

    /// Our term, over or not.
    fn term(&self) -> Option<Term> {
        match &*self.leadership.borrow() {
            Leadership::Leader(term) => Some(term.clone()),
            Leadership::Follower { .. } => None,
        }
    }

    fn term_length(&self) -> Duration {
        self.settings.duration * 2 / 3
    }

    fn duration_seconds(&self) -> i32 {
        i32::try_from(self.settings.duration.as_secs().max(1)).unwrap_or(i32::MAX)
    }
}

/// Whose the Lease is, and under which fencing number.
type Tenure = (String, i32);

/// Waits until the Lease is seen to be deleted, or not as a candidate knows it.
async fn changes_hands(changes: &mut Changes<Tenure>, is_as_known: impl Fn(&Tenure) -> bool) {
    loop {
        let is_known = match changes.next().await {
            Change::Applied(applied) => is_as_known(&applied.now),
            Change::Deleted { .. } => false,
            Change::Relisted(resync) => {
                resync.vanished.is_empty() && resync.applied.iter().all(|applied| is_as_known(&applied.now))
            }
        };
        if !is_known {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::AtomicBool;

    use axum::Router;
    use axum::body::Bytes;
    use axum::extract::State;
    use axum::response::{IntoResponse as _, Response};
    use http::{Method, Request, StatusCode, Uri};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;
    use crate::client::failover::Servers;

    /// A store of one Lease. Its versions count up.
    type Stored = Arc<Mutex<Option<Value>>>;

    async fn store(State(stored): State<Stored>, method: Method, url: Uri, body: Bytes) -> Response {
        let mut lease = stored.lock();
        if let Ok(mut written) = serde_json::from_slice::<Value>(&body) {
            let version =
                |lease: &Value| lease["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
            let next: u64 = lease.as_ref().and_then(version).unwrap_or(0) + 1;
            written["metadata"]["resourceVersion"] = next.to_string().into();
            *lease = Some(written);
        }
        let is_it = method != Method::GET || url.path().ends_with("/test");
        match lease.clone().filter(|_| is_it) {
            Some(lease) => lease.to_string().into_response(),
            None => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
                (StatusCode::NOT_FOUND, status.to_string()).into_response()
            }
        }
    }

    #[tokio::test]
    async fn a_leader_outlives_a_server_that_hangs() {
        let service = Router::new().fallback(store).with_state(Stored::default());
        let hung: [Arc<AtomicBool>; 2] = Default::default();
        let clients = hung.clone().map(|hangs| {
            let service = service.clone();
            let answer = move |request: Request<Body>| {
                let (hangs, service) = (Arc::clone(&hangs), service.clone());
                async move {
                    if hangs.load(Ordering::Relaxed) {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Infallible>(service.oneshot(request).await.unwrap_or_else(|never| match never {}))
                }
            };
            kube::Client::new(tower::service_fn(answer), "default")
        });
        let urls = ["https://a.example", "https://b.example"].map(|url| url.parse().expect("a URL"));
        let client = Servers::new(urls.into()).client(Arc::new(clients));
        let settings = Settings::lasting(Duration::from_secs(6));
        let stop = CancellationToken::new();
        let mut leadership = Lease::run(client, "test", "one", settings, stop.clone());
        let leads = leadership.wait_for(|leadership| leadership.term().is_some()).await.expect("it runs").clone();
        let term = leads.term().expect("it leads").clone();
        // One hangs, is mended, and then the other one hangs: whichever is in use, that is it at one of them.
        for hangs in &hung {
            hangs.store(true, Ordering::Relaxed);
            let until = Instant::now() + Duration::from_secs(5);
            while Instant::now() < until {
                assert!(term.is_current(), "the term ended");
                sleep(Duration::from_millis(20)).await;
            }
            hangs.store(false, Ordering::Relaxed);
        }
        stop.cancel();
        while leadership.changed().await.is_ok() {}
    }

    #[test]
    fn a_term_ends_by_itself_unless_extended() {
        let started = Instant::now();
        let after = |seconds| started + Duration::from_secs(seconds);
        let term = Term::new(7, started, Duration::from_secs(10));
        assert_eq!(term.fencing(), 7);
        assert!(term.is_current_at(after(9)) && !term.is_current_at(after(10)));
        term.extend(after(9), Duration::from_secs(10));
        assert!(term.is_current_at(after(18)), "counted from when the renewal was sent");
        assert!(!term.is_current_at(after(19)));
        term.end();
        assert!(!term.is_current_at(started), "what has ended stays so");
        assert!(Leadership::Leader(term).term().is_none());
        assert!(Term::unlimited().is_current_at(after(1_000_000_000)));
    }
}
