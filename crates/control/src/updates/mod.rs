//! The updates of ACME clients (RFC 2136): each job of [`signpost_dns::update`] becomes ChallengeRecords, and is answered when name servers
//! serve them.
//!
//! The client gets NOERROR when this server and every listed one that answers has the change, so that the authority can check it immediately.
//! Otherwise, the change is undone, and the client gets SERVFAIL and can try again. REFUSED: the namespace of the key does not have the
//! name. The name server's loop decides that as it does when it compiles zones ([`Permissions`]), because the API of a cluster does
//! not check names.

mod changes;
mod wait;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all, try_join_all};
use futures::stream::{FuturesUnordered, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use self::changes::{Changes, Existing, changes};
use crate::client::failure_log::FailureLog;
use crate::client::reflector::Store;
use crate::client::write;
use crate::compiler::Settings;
use crate::compiler::settings::text_of;
use crate::name_server::objects::Objects;
use crate::name_server::permission::Permissions;
use crate::world::ChallengeInfo;
use signpost_dns::update::{Job, Operation};
use signpost_dns::wire::Name;
use signpost_dns::wire::header::Rcode;
use signpost_dns::zone::ZoneDb;
use signpost_types::v1alpha1::challenge_record::{ChallengeRecord, ChallengeRecordSpec};
use signpost_types::v1alpha1::zone::{Zone, current_parent};

/// The longest time from a request to its success. Clients such as `nsupdate` repeat a request after 3 seconds.
const SUCCESS_MAX: Duration = Duration::from_millis(1_500);
/// The time for undoing a change, after which the client gets its answer. Remaining records expire.
const UNDO_MAX: Duration = Duration::from_millis(1_500);
/// The lifetime of a record: less than the maximum by the tolerance for the API's clock.
const LIFETIME: SignedDuration = SignedDuration::from_mins(24 * 60 - 10);

/// The values that jobs share.
pub struct Updates {
    client: kube::Client,
    records: Store<ChallengeInfo>,
    zones: Store<Zone>,
    settings: Arc<Settings>,
    db: Arc<ZoneDb>,
    permissions: Permissions,
    failures: Mutex<FailureLog>,
}

/// The reason why a job fails.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("namespace {namespace} has no Route with the name of {owner}")]
    NoSuchName { namespace: Arc<str>, owner: Name },
    #[error("{0} has the maximum number of values, all of other keys")]
    Full(Name),
    #[error("the API rejects the record: {0}")]
    Rejected(String),
    #[error("the objects of the API are not known yet")]
    NotSynced,
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("the API does not respond in time")]
    ApiTimeout,
    #[error("this name server does not serve the change in time")]
    NotServed,
    #[error("name server {0} does not serve the change in time")]
    NotServedBy(SocketAddr),
}

impl Failure {
    fn rcode(&self) -> Rcode {
        match self {
            Failure::NoSuchName { .. } | Failure::Full(_) | Failure::Rejected(_) => Rcode::REFUSED,
            _ => Rcode::SERVFAIL,
        }
    }
}

impl Updates {
    /// Returns the values for jobs of a name server with these zones, whose loop reads these objects, and has these permissions.
    pub fn new(
        client: kube::Client,
        objects: &Objects,
        settings: Arc<Settings>,
        db: Arc<ZoneDb>,
        permissions: Permissions,
    ) -> Self {
        let (records, zones) = (objects.challenges.0.clone(), objects.zones.0.clone());
        Updates { client, records, zones, settings, db, permissions, failures: Mutex::default() }
    }

    /// Carries out jobs until `stop`, and then those in progress.
    pub async fn run(self, mut jobs: mpsc::Receiver<Job>, stop: CancellationToken) {
        let mut running = FuturesUnordered::<BoxFuture<'_, ()>>::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(job) = jobs.recv() => running.push(Box::pin(self.carry_out(job))),
                Some(()) = running.next() => {}
                else => break,
            }
        }
        while running.next().await.is_some() {}
    }

    async fn carry_out(&self, job: Job) {
        let rcode = match self.apply(&job).await {
            Ok(()) => Rcode::NOERROR,
            Err(failure) => {
                if let Some(omitted) = self.failures.lock().take(Instant::now()) {
                    let (key, zone) = (text_of(&job.right.key), text_of(&job.zone));
                    tracing::warn!(key, zone, omitted, "an update of an ACME client failed: {failure}");
                }
                failure.rcode()
            }
        };
        // The client may have gone.
        let _ = job.answer.send(rcode);
    }

    async fn apply(&self, job: &Job) -> Result<(), Failure> {
        let deadline = Instant::now() + SUCCESS_MAX;
        if !self.records.is_synced() {
            return Err(Failure::NotSynced);
        }
        let (namespace, key) = (&job.right.holder, text_of(&job.right.key));
        let known = self.known(&job.operations, &key);
        self.check_names(namespace, &job.operations, &known, deadline).await?;
        let changes =
            changes(&job.operations, &known, Timestamp::now()).map_err(|changes::Full(owner)| Failure::Full(owner))?;
        let change = Change { api: Api::namespaced(self.client.clone(), namespace), key };
        let done = async {
            timeout_at(deadline, change.make(&changes)).await.map_err(|_| Failure::ApiTimeout)??;
            if !wait::own(&self.db, &changes.expected, deadline).await {
                return Err(Failure::NotServed);
            }
            match wait::others(&self.servers(), &changes.expected, deadline).await {
                Some(server) => Err(Failure::NotServedBy(server)),
                None => Ok(()),
            }
        };
        let result = done.await;
        if result.is_err() && timeout(UNDO_MAX, change.undo(&changes)).await.is_err() {
            tracing::warn!(key = change.key, "an update could not be undone in time; its records expire");
        }
        result
    }

    /// Returns the records at the names of the operations.
    fn known(&self, operations: &[Operation], key: &str) -> Vec<Existing> {
        let records = self.records.all().into_iter();
        let at_names = records.filter_map(|(_, record)| {
            let input = record.input.as_ref()?;
            let is_there = operations.iter().any(|operation| *operation.owner() == input.owner);
            is_there.then(|| Existing {
                owner: input.owner.clone(),
                value: input.value.clone(),
                is_own: record.key.as_deref() == Some(key),
                created: Timestamp::from_second(input.created).unwrap_or_default(),
                expires: record.expires,
            })
        });
        at_names.collect()
    }

    /// Checks that the namespace has the names. Records of the key can be deleted even without the name.
    async fn check_names(
        &self,
        namespace: &Arc<str>,
        operations: &[Operation],
        known: &[Existing],
        deadline: Instant,
    ) -> Result<(), Failure> {
        let is_deletion = |operation: &Operation| {
            let has_own = || known.iter().any(|known| known.is_own && known.owner == *operation.owner());
            !matches!(operation, Operation::Add(..)) && has_own()
        };
        let mut owners: Vec<&Name> = operations.iter().filter(|one| !is_deletion(one)).map(Operation::owner).collect();
        owners.sort();
        owners.dedup();
        for owner in owners {
            match timeout_at(deadline, self.permissions.ask(namespace, owner)).await {
                Ok(Some(true)) => {}
                Ok(Some(false)) => {
                    return Err(Failure::NoSuchName { namespace: Arc::clone(namespace), owner: owner.clone() });
                }
                _ => return Err(Failure::NotSynced),
            }
        }
        Ok(())
    }

    /// Returns the listed name servers: those that the leader queries to verify names, otherwise those of the zones.
    fn servers(&self) -> Vec<SocketAddr> {
        let zones: Vec<Zone> = self.zones.all().into_iter().map(|(_, zone)| (*zone).clone()).collect();
        let asked = current_parent(&zones).and_then(|zone| zone.spec.platform.as_ref()).map(|platform| &platform.asked);
        let asked: Vec<SocketAddr> = asked.into_iter().flatten().filter_map(|address| address.parse().ok()).collect();
        if !asked.is_empty() {
            return asked;
        }
        let addresses = self.settings.name_servers().iter().flat_map(|server| &server.addresses);
        addresses.map(|address| SocketAddr::new(*address, DNS_PORT)).collect()
    }
}

/// The port of name servers.
const DNS_PORT: u16 = 53;

/// The writes of a job.
struct Change {
    api: Api<ChallengeRecord>,
    key: String,
}

impl Change {
    async fn make(&self, changes: &Changes) -> Result<(), Failure> {
        // The name may have no room for more before.
        try_join_all(changes.deleted.iter().map(|(owner, value)| self.delete(owner, value))).await?;
        try_join_all(changes.created.iter().map(|(owner, value)| self.create(owner, value))).await?;
        Ok(())
    }

    async fn undo(&self, changes: &Changes) {
        // After a failed deletion, the record expires.
        join_all(changes.created.iter().map(|(owner, value)| self.delete(owner, value))).await;
        join_all(changes.deleted.iter().map(|(owner, value)| self.create(owner, value))).await;
    }

    fn spec(&self, owner: &Name, value: &str) -> ChallengeRecordSpec {
        let expires_at = Time(Timestamp::now() + LIFETIME);
        ChallengeRecordSpec { name: text_of(owner), value: value.to_owned(), key: Some(self.key.clone()), expires_at }
    }

    async fn create(&self, owner: &Name, value: &str) -> Result<(), Failure> {
        let spec = self.spec(owner, value);
        let record = ChallengeRecord::new(&spec.object_name(), spec);
        match self.api.create(&PostParams::default(), &record).await {
            // Another request with the same key has created it.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404 | 422) => {
                Err(Failure::Rejected(status.message))
            }
            created => Ok(created.map(drop)?),
        }
    }

    async fn delete(&self, owner: &Name, value: &str) -> Result<(), Failure> {
        Ok(write::delete(&self.api, &self.spec(owner, value).object_name(), None).await.map(drop)?)
    }
}
