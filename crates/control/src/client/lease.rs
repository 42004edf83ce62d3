//! Leader election over a Kubernetes Lease (`coordination.k8s.io/v1`): one of several candidates leads.
//!
//! A candidate reads the Lease every [`Settings::renew`]. A leader renews it by a write that carries the resourceVersion that it
//! read, so that one of two concurrent writes fails. Other candidates take the Lease when it is released, or when they have seen
//! no renewal for the duration in the Lease. They measure that time on **their own monotonic clock, from when they saw the Lease
//! change**: the times in the Lease are informational, because clocks of machines differ.
//!
//! The watch shows a renewal when it happens, and a follower reads again when the Lease expires, so that it takes over within a second
//! of that.
//!
//! A renewal without a response is cancelled after half of the remaining term, as in client-go, so that another try, possibly at
//! another API server, happens before the term ends.
//!
//! A leader that cannot renew steps down before another candidate may lead: its [`Term`] ends at two thirds of the duration after
//! it *sent* its last successful renewal. Each new leader increments `leaseTransitions`, which makes it a fencing number: a
//! leader's writes can carry it, and the write with the lower number is from a deposed leader. Numbers never
//! decrease: a candidate remembers the greatest number that it has seen, and starts above that number even if the Lease was
//! deleted. If the number of a held Lease changes, by hand or because another store replaced the first one, the holder's term
//! ends, and it begins a new term with a new number.
//!
//! ```text
//!                 free, expired, ours without a term or with another number: PUT with a greater number
//!      Follower ────────────────────────────────────────────────────────────────────────► Leader ──┐ renewed
//!         ▲                                                                                │  ▲    │
//!         └──────────── another holder, the term ended, or stop (then released) ───────────┘  └────┘
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::backoff;
use super::reflector::{self, Change, Changes, reflect};
use signpost_types::instance::AGENT_NAMESPACE;
use signpost_types::v1alpha1::SCHEDULER_LEASE_NAMESPACE;

/// The time limit for releasing the Lease on shutdown; after that, other candidates wait for the Lease to expire.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// The shortest time limit of a renewal, and the shortest wait before another try: an API needs some time for two requests.
const RETRY_SHORTEST: Duration = Duration::from_millis(250);
/// The longest wait after the Lease has expired, before a candidate reads it: of several, one usually writes first.
const TAKE_OVER_WAIT: Duration = Duration::from_millis(200);

/// The timing of the Lease.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The time after a renewal at which other candidates may take the Lease, in whole seconds, at least one. A dead leader is
    /// replaced after this time; an API server that pauses for two thirds of it costs the leader its term.
    pub duration: Duration,
    /// The interval at which the leader renews, and other candidates read; well below the duration.
    pub renew: Duration,
}

impl Settings {
    /// Returns the settings for a Lease that lasts for `duration`: the leader renews it five times in that time.
    pub fn lasting(duration: Duration) -> Self {
        Settings { duration, renew: duration / 5 }
    }
}

/// Whether this process leads.
#[derive(Debug, Clone)]
pub enum Leadership {
    /// Another process leads, or no leader is known.
    Follower {
        /// The holder, if known.
        holder: Option<String>,
    },
    /// This process leads.
    Leader(Term),
}

impl Leadership {
    /// Returns the term, if this process leads.
    pub fn term(&self) -> Option<&Term> {
        match self {
            Leadership::Leader(term) if term.is_current() => Some(term),
            _ => None,
        }
    }
}

/// One uninterrupted leadership of this process; clones share it.
#[derive(Debug, Clone)]
pub struct Term {
    fencing: u64,
    started: Instant,
    /// Milliseconds after `started` at which the term ends, unless renewed.
    ends_millis: Arc<AtomicU64>,
}

impl Term {
    /// Returns a term that never ends, for a process that shares its work with no other process.
    pub fn unlimited() -> Self {
        Term { fencing: 0, started: Instant::now(), ends_millis: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Returns the fencing number: greater than that of every earlier leader.
    pub fn fencing(&self) -> u64 {
        self.fencing
    }

    /// Returns whether no other process can lead at this moment. Call this immediately before each write.
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
    /// The newest version that the watch has shown, and when.
    watched: Option<(String, Instant)>,
    /// The greatest fencing number that this process has seen in the Lease or has taken.
    greatest: i32,
    /// Whether the last read of the Lease failed.
    fails: bool,
    leadership: watch::Sender<Leadership>,
}

/// The last state of the Lease that was read, and the time at which it was first seen.
struct ObservedLease {
    object: LeaseObject,
    since: Instant,
}

impl Lease {
    /// Runs for the Lease `name` as `holder` until `stop`, and then releases the Lease. The receiver's channel closes at the end.
    /// No two processes that run at the same time may have the same `holder`; a process that restarts under its former name takes
    /// over its own Lease immediately.
    pub fn run(
        client: kube::Client,
        name: &str,
        holder: &str,
        settings: Settings,
        stop: CancellationToken,
    ) -> watch::Receiver<Leadership> {
        let (leadership, receiver) = watch::channel(Leadership::Follower { holder: None });
        let candidate = Lease {
            api: Api::namespaced(client.clone(), SCHEDULER_LEASE_NAMESPACE),
            name: name.to_owned(),
            holder: holder.to_owned(),
            settings,
            observed: None,
            watched: None,
            greatest: 0,
            fails: false,
            leadership,
        };
        tokio::spawn(candidate.run_until(client, stop));
        receiver
    }

    async fn run_until(mut self, client: kube::Client, stop: CancellationToken) {
        // Election works by regular reads. The watch shortens the wait when the holder releases the Lease, and makes a leader
        // read as soon as the Lease is deleted or has another holder, because until it reads, two processes lead. The watch ends
        // with this value.
        let one = reflector::Settings {
            namespace: Some(SCHEDULER_LEASE_NAMESPACE.to_owned()),
            field_selector: Some(format!("metadata.name={}", self.name)),
            ..reflector::Settings::default()
        };
        let (_informer, mut changes) = reflect(client, one, |lease: LeaseObject| {
            let (spec, version) = (lease.spec.unwrap_or_default(), lease.metadata.resource_version.unwrap_or_default());
            (spec.holder_identity.unwrap_or_default(), spec.lease_transitions.unwrap_or(0), version)
        });
        loop {
            let wait = tokio::select! {
                () = stop.cancelled() => break,
                wait = self.round() => wait,
            };
            let term = self.term();
            let (own, watched) = (&self.holder, &mut self.watched);
            let is_as_known = |(holder, number, version): &Tenure| {
                *watched = Some((version.clone(), Instant::now()));
                match &term {
                    Some(term) => holder == own && u64::try_from(*number) == Ok(term.fencing()),
                    None => !holder.is_empty(),
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(wait) => {}
                () = changes_hands(&mut changes, is_as_known) => {}
            }
        }
        self.release().await;
    }

    /// Reads the Lease once, acts on it, and returns the wait until the next read.
    async fn round(&mut self) -> Duration {
        // Other candidates must not always act in step with this one.
        let regular = backoff::delay(self.settings.renew, self.settings.renew, 0, backoff::random());
        let limit = match self.term() {
            Some(term) => (term.remaining() / 2).max(RETRY_SHORTEST),
            None => self.settings.duration,
        };
        let failure = match timeout(limit, self.attempt()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(explain(&error)),
            Err(_) => Some("the API did not answer in time".to_owned()),
        };
        match &failure {
            // Logged once per outage: the read is retried every few seconds.
            Some(error) if !self.fails => {
                tracing::warn!(lease = %self.name, namespace = SCHEDULER_LEASE_NAMESPACE, error,
                    "failed to read or write the lease, so this process cannot lead; retrying");
            }
            Some(error) => tracing::debug!(lease = %self.name, error, "failed to read or write the lease"),
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
            None if failure.is_some() => regular,
            None => regular.min(self.until_expired() + TAKE_OVER_WAIT.mul_f64(random_share())),
        }
    }

    /// Returns the time until the Lease expires unless it is renewed; it may have been renewed since it was read.
    fn until_expired(&self) -> Duration {
        let Some(observed) = &self.observed else { return self.settings.renew };
        let newest = self.watched.iter().map(|(_, at)| *at).fold(observed.since, Instant::max);
        // An expired Lease is taken at once, and one that another candidate wrote is new.
        self.duration_of(observed).saturating_sub(newest.elapsed()).max(RETRY_SHORTEST)
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
                tracing::warn!(lease = %self.name, number, fencing, "the lease has a different fencing number than the \
                                                                     current term");
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

    /// Records the Lease and the time at which it was seen: a changed version means that it was renewed.
    fn note(&mut self, object: LeaseObject) {
        let number = object.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
        self.greatest = self.greatest.max(number);
        let version = |object: &LeaseObject| object.metadata.resource_version.clone();
        match &mut self.observed {
            Some(observed) if version(&observed.object) == version(&object) => {}
            observed => {
                let watched = self.watched.take().filter(|(watched, _)| version(&object).as_ref() == Some(watched));
                let since = watched.map_or_else(Instant::now, |(_, at)| at);
                *observed = Some(ObservedLease { object, since });
            }
        }
    }

    fn has_expired(&self) -> bool {
        self.observed.as_ref().is_none_or(|observed| observed.since.elapsed() > self.duration_of(observed))
    }

    /// Returns the duration that a Lease names.
    fn duration_of(&self, observed: &ObservedLease) -> Duration {
        let named = observed.object.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let duration = named.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
        duration.unwrap_or(self.settings.duration)
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

    /// Writes the Lease at the version that was read, with this spec; `None`: another candidate wrote first, or deleted it. The first
    /// candidate in a cluster also creates the namespaces of Leases, if no manifest has.
    async fn write(&self, spec: LeaseSpec) -> kube::Result<Option<LeaseObject>> {
        let parameters = PostParams::default();
        let written = match &self.observed {
            Some(observed) => {
                let object = LeaseObject { metadata: observed.object.metadata.clone(), spec: Some(spec) };
                self.api.replace(&self.name, &parameters, &object).await
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                let object = LeaseObject { metadata, spec: Some(spec) };
                match self.api.create(&parameters, &object).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {
                        self.create_namespaces().await?;
                        self.api.create(&parameters, &object).await
                    }
                    created => created,
                }
            }
        };
        match written {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 && self.observed.is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the namespaces of this Lease and of the agents' Leases, as the manifests of an installation do.
    async fn create_namespaces(&self) -> kube::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.api.clone().into_client());
        for name in [SCHEDULER_LEASE_NAMESPACE, AGENT_NAMESPACE] {
            let labels = [("pod-security.kubernetes.io/enforce".to_owned(), "restricted".to_owned())];
            let metadata = ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels.into_iter().collect()),
                ..ObjectMeta::default()
            };
            match namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await {
                Ok(_) => tracing::info!(namespace = name, "created the namespace"),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn release(&mut self) {
        let Some(term) = self.term() else { return };
        let is_over = term.remaining().is_zero();
        // A release on shutdown needs no warning.
        term.end();
        self.leadership.send_replace(Leadership::Follower { holder: None });
        if is_over {
            return;
        }
        let Some(mut spec) = self.observed.as_ref().and_then(|observed| observed.object.spec.clone()) else { return };
        spec.holder_identity = None;
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        let release = async {
            if self.write(spec.clone()).await?.is_some() {
                return Ok::<_, kube::Error>(true);
            }
            // The answer to a renewal can be missing: the Lease has its version, and still this holder.
            self.refresh().await?;
            let stored = self.observed.as_ref().and_then(|observed| observed.object.spec.as_ref());
            let is_own = stored.is_some_and(|stored| {
                stored.holder_identity.as_deref() == Some(&*self.holder)
                    && stored.lease_transitions == spec.lease_transitions
            });
            Ok(is_own && self.write(spec).await?.is_some())
        };
        match timeout(RELEASE_TIMEOUT, release).await {
            Ok(Ok(true)) => tracing::info!(lease = %self.name, "lease released"),
            Ok(Ok(false)) => tracing::info!(lease = %self.name, "another process has the lease"),
            Ok(Err(error)) => tracing::warn!(lease = %self.name, %error, "failed to release the lease; it expires"),
            Err(_) => tracing::warn!(lease = %self.name, "failed to release the lease in time; it expires"),
        }
    }

    fn follow(&self, holder: Option<String>) {
        self.leadership.send_if_modified(|leadership| match leadership {
            Leadership::Leader(term) => {
                term.end();
                tracing::warn!(lease = %self.name, holder = %self.holder, "lost leadership");
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

    /// Returns this process's term, over or not.
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

/// Returns the error, with the rights that a candidate needs if one of them, or the namespace, is missing.
fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if matches!(status.code, 403 | 404) => format!(
            "{} ({}); a scheduler needs the namespace {SCHEDULER_LEASE_NAMESPACE}, and get, list, watch, create, update, and patch on \
             its Leases: apply the manifests of deploy/kubernetes, or run \"kubectl create namespace \
             {SCHEDULER_LEASE_NAMESPACE}\"",
            status.message, status.code
        ),
        _ => error.to_string(),
    }
}

/// The holder of the Lease, its fencing number, and its version.
type Tenure = (String, i32, String);

/// Returns a random number from 0 to 1.
fn random_share() -> f64 {
    (backoff::random() >> 32) as f64 / f64::from(u32::MAX)
}

/// Waits until the Lease is deleted, or differs from the state that the candidate knows.
async fn changes_hands(changes: &mut Changes<Tenure>, mut is_as_known: impl FnMut(&Tenure) -> bool) {
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

    /// A store of one Lease. Its versions count up, and a write of another one than the last is a conflict.
    type Stored = Arc<Mutex<Option<Value>>>;

    async fn store(State(stored): State<Stored>, method: Method, url: Uri, body: Bytes) -> Response {
        let mut lease = stored.lock();
        if let Ok(mut written) = serde_json::from_slice::<Value>(&body) {
            let version =
                |lease: &Value| lease["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
            let last: u64 = lease.as_ref().and_then(version).unwrap_or(0);
            if version(&written).unwrap_or(0) != last {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409});
                return (StatusCode::CONFLICT, status.to_string()).into_response();
            }
            let next = last + 1;
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
        // A term of 18 seconds: on a busy machine, too, there is time for a try at each server.
        let settings = Settings::lasting(Duration::from_secs(27));
        let stop = CancellationToken::new();
        let mut leadership = Lease::run(client, "test", "one", settings, stop.clone());
        let leads = leadership.wait_for(|leadership| leadership.term().is_some()).await.expect("it runs").clone();
        let term = leads.term().expect("it leads").clone();
        // One server hangs and recovers, and then the other one hangs, so the server in use hangs once.
        for hangs in &hung {
            hangs.store(true, Ordering::Relaxed);
            let until = Instant::now() + Duration::from_secs(21);
            while Instant::now() < until {
                assert!(term.is_current(), "the term ended");
                sleep(Duration::from_millis(20)).await;
            }
            hangs.store(false, Ordering::Relaxed);
        }
        stop.cancel();
        while leadership.changed().await.is_ok() {}
    }

    /// An API without the namespaces of Leases. It has those that were created.
    #[derive(Clone, Default)]
    struct EmptyCluster {
        namespaces: Arc<Mutex<Vec<String>>>,
        stored: Stored,
        may_create: bool,
    }

    async fn cluster(State(api): State<EmptyCluster>, method: Method, url: Uri, body: Bytes) -> Response {
        let failure = |code: StatusCode, reason: &str| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
                "message": format!("test: {reason}"), "code": code.as_u16()});
            (code, status.to_string()).into_response()
        };
        if method == Method::POST && url.path() == "/api/v1/namespaces" {
            if !api.may_create {
                return failure(StatusCode::FORBIDDEN, "Forbidden");
            }
            let namespace: Value = serde_json::from_slice(&body).expect("JSON");
            api.namespaces.lock().push(namespace["metadata"]["name"].as_str().expect("a name").to_owned());
            return (StatusCode::CREATED, namespace.to_string()).into_response();
        }
        if !api.namespaces.lock().iter().any(|name| url.path().contains(&format!("/namespaces/{name}/"))) {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        }
        store(State(api.stored.clone()), method, url, body).await
    }

    fn candidate(api: &EmptyCluster) -> Lease {
        let service = Router::new().fallback(cluster).with_state(api.clone());
        let client = kube::Client::new(service, "default");
        Lease {
            api: Api::namespaced(client, SCHEDULER_LEASE_NAMESPACE),
            name: "test".to_owned(),
            holder: "one".to_owned(),
            settings: Settings::lasting(Duration::from_secs(15)),
            watched: None,
            observed: None,
            greatest: 0,
            fails: false,
            leadership: watch::channel(Leadership::Follower { holder: None }).0,
        }
    }

    #[tokio::test]
    async fn the_first_candidate_creates_the_namespaces() {
        let api = EmptyCluster { may_create: true, ..EmptyCluster::default() };
        let mut first = candidate(&api);
        first.attempt().await.expect("written");
        assert!(first.leadership.borrow().term().is_some());
        assert_eq!(*api.namespaces.lock(), [SCHEDULER_LEASE_NAMESPACE, AGENT_NAMESPACE]);
    }

    /// A stop can end the wait for the response to a renewal that the API has stored.
    #[tokio::test]
    async fn a_lease_is_released_after_a_renewal_without_a_response() {
        for (holder, expected) in [(None, None), (Some("two"), Some("two"))] {
            let api = EmptyCluster { may_create: true, ..EmptyCluster::default() };
            let mut leader = candidate(&api);
            leader.attempt().await.expect("written");
            {
                let mut stored = api.stored.lock();
                let lease = stored.as_mut().expect("it leads");
                assert_eq!(lease["spec"]["holderIdentity"], "one");
                lease["metadata"]["resourceVersion"] = "7".into();
                lease["spec"]["holderIdentity"] = holder.unwrap_or("one").into();
            }
            leader.release().await;
            let stored = api.stored.lock().clone().expect("it is there");
            assert_eq!(stored["spec"]["holderIdentity"].as_str(), expected);
        }
    }

    #[tokio::test]
    async fn a_missing_namespace_or_right_is_an_error_that_names_it() {
        let mut candidate = candidate(&EmptyCluster::default());
        let error = candidate.attempt().await.expect_err("it may not create namespaces");
        let text = explain(&error);
        assert!(text.contains("test: Forbidden") && text.contains(SCHEDULER_LEASE_NAMESPACE), "{text}");
        assert!(candidate.leadership.borrow().term().is_none());
        let rights = ["get", "list", "watch", "create", "update", "patch"];
        assert!(rights.iter().all(|right| text.contains(right)), "{text}");
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
