//! The engine for more than one machine: an etcd cluster, which any number of API servers share.
//!
//! Revisions are those of etcd: they are equal on every API server. Each key has the prefix of the settings in etcd, and its value is
//! stored unchanged. A transaction is a transaction of etcd, and a time to live is a lease. A watch reopens after an error, at the
//! revision that it has reached. Reads are linearizable.
//!
//! etcd keeps history until a client compacts it: [`Etcd::keep_compacting`] does, as kube-apiserver does; so does
//! `etcd --auto-compaction-retention`.

pub mod metrics;
mod watch;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, EventType, GetOptions, GetResponse, KvClient, PutOptions,
    ResponseHeader, TxnOp, TxnOpResponse, WatchClient, WatchOptions,
};
use futures::stream::BoxStream;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::metrics::Metrics;
use super::backup::{self, BackupError};
use super::{Error, Event, EventKind, Key, KeyValue, Outcome, Page, Precondition, Result, Revision, Store, Txn, Write};

/// The values of one page of a list. A page of the largest values fits into [`MESSAGE_OCTETS_MAX`].
const PAGE_VALUES: usize = 500;
/// The maximum size of a message: a page of the largest values, which etcd limits to 1.5 MiB each.
const MESSAGE_OCTETS_MAX: usize = (PAGE_VALUES + 1) * 1_536 * 1024;
/// Time limits of a request, and of the connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval of keepalive probes on an idle connection, and the time limit of the answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));
/// The pause before a watch reopens after an error: the first one, and the longest one.
const REOPEN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// The maximum number of attempts of a request: the next attempt can reach another member.
const TRIES: u32 = 6;
/// The maximum number of keys that share a lease, and the part of their time to live that they can live longer for it.
const LEASE_KEYS_MAX: u32 = 1_000;
const LEASE_REUSE_PART: u32 = 20;

/// The cluster, and the credentials for it. Do not log it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The URLs of its members, such as `https://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// The prefix of all keys, such as `/signpost`, without a slash at the end.
    pub prefix: String,
    /// A user and the password.
    pub user: Option<(String, String)>,
    /// Certificates, in PEM; for `https`.
    pub tls: Option<Tls>,
}

/// Certificates for the connection to etcd, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// The CA of the members' certificates; `None`: the CAs of the system.
    pub ca: Option<Vec<u8>>,
    /// The client certificate and its key, if etcd requires one.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

/// The error of [`Etcd::connect`].
pub use etcd_client::Error as ConnectError;

/// A handle to an etcd cluster. Clones share its connections; with the last one its watches end.
#[derive(Clone)]
pub struct Etcd {
    cluster: Arc<Cluster>,
    /// Ends watches.
    closed: CancellationToken,
    _guard: Arc<DropGuard>,
}

/// The connections, and the state that clones share.
struct Cluster {
    connection: ArcSwap<Connection>,
    prefix: String,
    /// The ID of the cluster. A restored cluster has another ID.
    id: u64,
    /// Whether progress notifications of watches are reliable.
    has_progress: bool,
    lease: Mutex<Option<Lease>>,
    metrics: Metrics,
}

/// The connections to the members, made with the credentials of one time.
struct Connection {
    kv: KvClient,
    watches: WatchClient,
    client: Client,
}

/// The lease that new keys get.
struct Lease {
    id: i64,
    ttl: Duration,
    since: Instant,
    keys: u32,
}

impl Etcd {
    /// Connects, and reads the revision to verify the credentials.
    ///
    /// # Errors
    ///
    /// The error of etcd ([`is_denied`] if it denies access), or no member is reachable.
    pub async fn connect(settings: &Settings) -> std::result::Result<Self, ConnectError> {
        let mut options = ConnectOptions::new()
            .with_timeout(REQUEST_TIMEOUT)
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(KEEP_ALIVE.0, KEEP_ALIVE.1)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((user, password)) = &settings.user {
            options = options.with_user(user, password);
        }
        if let Some(tls) = &settings.tls {
            let mut with = etcd_client::TlsOptions::new();
            with = match &tls.ca {
                Some(ca) => with.ca_certificate(etcd_client::Certificate::from_pem(ca)),
                None => with.with_native_roots(),
            };
            if let Some((certificate, key)) = &tls.client {
                with = with.identity(etcd_client::Identity::from_pem(certificate, key));
            }
            options = options.with_tls(with);
        }
        let client = Client::connect(&settings.endpoints, Some(options)).await?;
        let connection = Connection {
            kv: client.kv_client().max_decoding_message_size(MESSAGE_OCTETS_MAX),
            watches: client.watch_client().max_decoding_message_size(MESSAGE_OCTETS_MAX),
            client,
        };
        let cluster = Cluster {
            connection: ArcSwap::from_pointee(connection),
            prefix: settings.prefix.trim_end_matches('/').to_owned(),
            id: 0,
            has_progress: false,
            lease: Mutex::default(),
            metrics: Metrics::default(),
        };
        let found = cluster.range(cluster.full_key(&Key("/".into())), GetOptions::new()).await?;
        let id = found.header().map_or(0, ResponseHeader::cluster_id);
        let status = cluster.connection.load().client.maintenance_client().status().await;
        let has_progress = status.is_ok_and(|status| has_progress(status.version()));
        let cluster = Cluster { id, has_progress, ..cluster };
        let closed = CancellationToken::new();
        let _guard = Arc::new(closed.clone().drop_guard());
        Ok(Etcd { cluster: Arc::new(cluster), closed, _guard })
    }

    /// Sends new requests over the connections of `other`, which has other credentials. Open watches keep theirs until they reopen.
    ///
    /// Returns false, and changes nothing, if `other` is another cluster.
    pub fn use_connections_of(&self, other: &Etcd) -> bool {
        let is_same = self.cluster.id == other.cluster.id;
        if is_same {
            self.cluster.connection.store(other.cluster.connection.load_full());
        }
        is_same
    }

    /// Returns the ID of the cluster, and the newest revision.
    pub async fn place(&self) -> Result<(u64, Revision)> {
        self.cluster.place().await
    }

    /// Returns the metrics of requests and watches.
    pub fn metrics(&self) -> &Metrics {
        &self.cluster.metrics
    }

    /// Compacts the history that is older than `history`, periodically until `stop`. Several servers can do it concurrently.
    pub async fn keep_compacting(&self, history: Duration, stop: CancellationToken) {
        let mut before = None;
        loop {
            let newest = self.cluster.revision().await.ok();
            if let Some(before) = before.filter(|before| newest.is_some_and(|newest| newest > *before))
                && let Err(error) = self.compact(before).await
            {
                tracing::warn!(%error, "failed to compact old revisions of etcd");
            }
            before = newest.or(before);
            if stop.run_until_cancelled(sleep(history)).await.is_none() {
                return;
            }
        }
    }

    /// Writes all objects at the newest revision to `to`; see [`backup::Writer`]. Other writes continue. It blocks the calling
    /// thread, which must not run tasks of `runtime`.
    ///
    /// # Errors
    ///
    /// See [`BackupError`]; the output is then incomplete.
    pub fn backup(&self, runtime: &Handle, to: &mut dyn std::io::Write) -> std::result::Result<Revision, BackupError> {
        let cluster = &self.cluster;
        let at = runtime.block_on(cluster.revision())?;
        let mut writer = backup::Writer::begin(to, at)?;
        let mut deadlines = HashMap::from([(0, 0)]);
        let all = cluster.full_key(&Key("/".into()));
        let mut start = all.clone();
        loop {
            let options = GetOptions::new().with_range(end_of(&all)).with_limit(signed_count(PAGE_VALUES));
            let (_, found) = runtime.block_on(cluster.read(start, options, Some(at)))?;
            for found in found.kvs() {
                if let Entry::Vacant(unknown) = deadlines.entry(found.lease()) {
                    unknown.insert(runtime.block_on(cluster.deadline(found.lease()))?);
                }
                let value = cluster.value(found)?;
                if !value.key.is_internal() {
                    writer.value(&value, deadlines[&found.lease()])?;
                }
            }
            match found.kvs().last() {
                Some(last) if found.more() => start = format!("{}\0", String::from_utf8_lossy(last.key())),
                _ => break,
            }
        }
        writer.end()?;
        Ok(at)
    }
}

/// Returns whether members of this version send a progress notification only after all earlier events: since 3.4.25 and 3.5.8
/// (etcd-io/etcd issue 15220).
fn has_progress(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    match (next(), next(), next()) {
        (3, 4, patch) => patch >= 25,
        (3, 5, patch) => patch >= 8,
        (major, minor, _) => (major, minor) > (3, 5),
    }
}

impl Cluster {
    /// Returns the ID of the cluster, and the newest revision.
    async fn place(&self) -> Result<(u64, Revision)> {
        // Any key works: this one never exists.
        let found = self.range(self.full_key(&Key("/".into())), GetOptions::new()).await;
        let found = found.map_err(|error| read_error(&error))?;
        Ok((found.header().map_or(0, ResponseHeader::cluster_id), revision_of(found.header())))
    }

    async fn revision(&self) -> Result<Revision> {
        Ok(self.place().await?.1)
    }

    fn full_key(&self, key: &Key) -> String {
        format!("{}{}", self.prefix, key.0)
    }

    /// Sends a request, and repeats it after errors for which `is_passing` returns true, up to [`TRIES`] times.
    async fn request<T, F: Future<Output = std::result::Result<T, etcd_client::Error>>>(
        &self,
        operation: &'static str,
        is_passing: impl Fn(&etcd_client::Error) -> bool,
        request: impl Fn() -> F,
    ) -> F::Output {
        let (begun, mut pause, mut tries) = (Instant::now(), REOPEN.0, 1);
        let outcome = loop {
            match request().await {
                Err(error) if tries < TRIES && is_passing(&error) => sleep(pause).await,
                done => break done,
            }
            pause *= 2;
            tries += 1;
        };
        self.metrics.observe(operation, begun.elapsed(), outcome.as_ref().err());
        outcome
    }

    async fn range(&self, key: String, options: GetOptions) -> std::result::Result<GetResponse, etcd_client::Error> {
        let send = || {
            let (mut kv, key, options) = (self.connection.load().kv.clone(), key.clone(), options.clone());
            async move { kv.get(key, Some(options)).await }
        };
        self.request("range", is_unavailable, send).await
    }

    /// Returns the end of the keys of a lease, in milliseconds since 1970.
    async fn deadline(&self, lease: i64) -> Result<u64> {
        let send = || {
            let mut leases = self.connection.load().client.lease_client();
            async move { leases.time_to_live(lease, None).await }
        };
        let left = self.request("lease", is_unavailable, send).await.map_err(|error| read_error(&error))?.ttl();
        let left = Duration::from_secs(u64::try_from(left).unwrap_or(0));
        let end = (SystemTime::now() + left).duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(u64::try_from(end.as_millis()).unwrap_or(u64::MAX))
    }

    /// Reads a range. An error names the revisions that can be read.
    async fn read(&self, key: String, options: GetOptions, at: Option<Revision>) -> Result<(Revision, GetResponse)> {
        let options = at.map_or(options.clone(), |at| options.with_revision(signed(at)));
        match self.range(key, options).await {
            Ok(response) => Ok((revision_of(response.header()), response)),
            Err(error) => Err(match message(&error) {
                Some(text) if text.contains("required revision has been compacted") => self.compacted_error().await,
                Some(text) if text.contains("required revision is a future revision") => {
                    Error::Future { newest: self.revision().await? }
                }
                _ => read_error(&error),
            }),
        }
    }

    /// Returns the error of compacted history, with the oldest revision. Only a watch from an older revision returns that number.
    async fn compacted_error(&self) -> Error {
        let send = || {
            let (mut watches, key) = (self.connection.load().watches.clone(), self.full_key(&Key("/".into())));
            async move { watches.watch(key, Some(WatchOptions::new().with_start_revision(1))).await }
        };
        let Ok(mut watch) = self.request("watch", is_unavailable, send).await else { return Error::Unavailable };
        loop {
            match timeout(REQUEST_TIMEOUT, watch.message()).await {
                Ok(Ok(Some(response))) if response.compact_revision() > 0 => {
                    return Error::Compacted { oldest: unsigned(response.compact_revision()) };
                }
                Ok(Ok(Some(response))) if !response.canceled() => {}
                _ => return Error::Unavailable,
            }
        }
    }

    /// Returns a lease for a key with this time to live: one that other keys got recently, or a new one.
    async fn lease(&self, ttl: Duration) -> Result<i64> {
        let spare = (ttl / LEASE_REUSE_PART).max(Duration::from_secs(1));
        let mut lease = self.lease.lock().await;
        let is_fit =
            |lease: &&mut Lease| lease.ttl == ttl && lease.keys < LEASE_KEYS_MAX && lease.since.elapsed() < spare;
        if let Some(lease) = lease.as_mut().filter(is_fit) {
            lease.keys += 1;
            return Ok(lease.id);
        }
        let seconds = i64::try_from((ttl + spare).as_secs_f64().ceil() as u64).unwrap_or(i64::MAX);
        // If the response is lost, a lease without keys expires.
        let send = || {
            let mut leases = self.connection.load().client.lease_client();
            async move { leases.grant(seconds, None).await }
        };
        let granted = self.request("lease", is_unavailable, send).await.map_err(|error| read_error(&error))?;
        *lease = Some(Lease { id: granted.id(), ttl, since: Instant::now(), keys: 1 });
        Ok(granted.id())
    }

    /// Returns the operations of a transaction's writes.
    async fn writes(&self, writes: Vec<Write>) -> Result<Vec<TxnOp>> {
        let mut operations = Vec::with_capacity(writes.len());
        for write in writes {
            operations.push(match write {
                Write::Put { key, value, ttl } => {
                    let options = match ttl {
                        Some(ttl) => Some(PutOptions::new().with_lease(self.lease(ttl).await?)),
                        None => None,
                    };
                    TxnOp::put(self.full_key(&key), value, options)
                }
                Write::Delete { key } => TxnOp::delete(self.full_key(&key), None),
            });
        }
        Ok(operations)
    }

    fn value(&self, found: &etcd_client::KeyValue) -> Result<KeyValue> {
        let key = found.key_str().ok().and_then(|key| key.strip_prefix(&self.prefix));
        let key = key.ok_or_else(|| Error::Corrupt("a key of etcd is not below the prefix".to_owned()))?;
        Ok(KeyValue {
            key: Key(key.into()),
            value: Bytes::copy_from_slice(found.value()),
            created: unsigned(found.create_revision()),
            modified: unsigned(found.mod_revision()),
        })
    }

    fn event(&self, event: &etcd_client::Event) -> Result<Event> {
        let found = event.kv().ok_or_else(|| Error::Corrupt("an event of etcd has no key".to_owned()))?;
        let now = self.value(found)?;
        let before = event.prev_kv().map(|before| self.value(before)).transpose()?;
        // The previous value can be compacted before etcd sends the event. Then a list is necessary.
        let lost = || Error::Compacted { oldest: now.modified };
        match event.event_type() {
            EventType::Put if before.is_none() && now.created != now.modified => Err(lost()),
            EventType::Put => Ok(Event { at: now.modified, kind: EventKind::Put, now, before }),
            EventType::Delete => {
                let last = before.clone().ok_or_else(lost)?;
                let at = now.modified;
                Ok(Event { at, kind: EventKind::Delete, now: KeyValue { modified: at, ..last }, before })
            }
        }
    }
}

#[async_trait]
impl Store for Etcd {
    async fn revision(&self) -> Result<Revision> {
        self.cluster.revision().await
    }

    async fn get(&self, key: &Key, at: Option<Revision>) -> Result<(Revision, Option<KeyValue>)> {
        let cluster = &self.cluster;
        let (newest, found) = cluster.read(cluster.full_key(key), GetOptions::new(), at).await?;
        let value = found.kvs().first().map(|found| cluster.value(found)).transpose()?;
        Ok((at.unwrap_or(newest), value))
    }

    async fn list(&self, prefix: &Key, from: Option<&Key>, at: Option<Revision>, limit: Option<usize>) -> Result<Page> {
        let cluster = &self.cluster;
        let end = end_of(&cluster.full_key(prefix));
        let mut start = cluster.full_key(from.unwrap_or(prefix).max(prefix));
        let (mut at, limit) = (at, limit.unwrap_or(usize::MAX));
        let mut items = Vec::new();
        loop {
            let wanted = PAGE_VALUES.min(limit - items.len());
            let options = GetOptions::new().with_range(end.clone());
            // etcd takes the limit 0 for no limit: count the keys instead.
            let options = match wanted {
                0 => options.with_count_only(),
                wanted => options.with_limit(signed_count(wanted)),
            };
            let (newest, found) = cluster.read(start, options, at).await?;
            let revision = *at.get_or_insert(newest);
            for found in found.kvs() {
                items.push(cluster.value(found)?);
            }
            let left = u64::try_from(found.count()).unwrap_or(0).saturating_sub(found.kvs().len() as u64);
            match found.kvs().last() {
                Some(last) if left > 0 && items.len() < limit => {
                    // The next key can be there.
                    start = format!("{}\0", String::from_utf8_lossy(last.key()));
                }
                _ => {
                    let (more, remaining) = (left > 0, Some(left));
                    return Ok(Page { at: revision, items, damaged: Vec::new(), more, remaining });
                }
            }
        }
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        txn.check()?;
        let cluster = &self.cluster;
        if txn.expect.is_empty() && txn.writes.is_empty() {
            // A member of etcd answers an empty transaction itself, and can be behind the leader.
            return Ok(Outcome::Committed(cluster.revision().await?));
        }
        let compare = |(key, expect): &(Key, Precondition)| {
            let key = cluster.full_key(key);
            match expect {
                Precondition::Absent => Compare::create_revision(key, CompareOp::Equal, 0),
                Precondition::Present => Compare::create_revision(key, CompareOp::Greater, 0),
                Precondition::At(revision) => Compare::mod_revision(key, CompareOp::Equal, signed(*revision)),
            }
        };
        let stores = txn.writes.iter().any(|write| matches!(write, Write::Put { .. }));
        let compares: Vec<Compare> = txn.expect.iter().map(compare).collect();
        let reads: Vec<TxnOp> = txn.expect.iter().map(|(key, _)| TxnOp::get(cluster.full_key(key), None)).collect();
        let request = etcd_client::Txn::new().when(compares).and_then(cluster.writes(txn.writes).await?).or_else(reads);
        let send = || {
            let (mut kv, request) = (cluster.connection.load().kv.clone(), request.clone());
            async move { kv.txn(request).await }
        };
        let response = cluster.request("txn", wrote_nothing, send).await;
        let response = response.map_err(|error| write_error(&error))?;
        let at = revision_of(response.header());
        if response.succeeded() {
            if stores {
                cluster.metrics.stored();
            }
            return Ok(Outcome::Committed(at));
        }
        let found = response.op_responses().into_iter().map(|response| match response {
            TxnOpResponse::Get(found) => found.kvs().first().map(|found| cluster.value(found)).transpose(),
            _ => Ok(None),
        });
        Ok(Outcome::Refused { at, found: found.collect::<Result<_>>()? })
    }

    fn is_reachable(&self) -> bool {
        self.cluster.metrics.is_up()
    }

    fn watch(&self, prefix: &Key, after: Revision) -> BoxStream<'static, Result<Vec<Event>>> {
        watch::watch(self.cluster.clone(), self.closed.clone(), self.cluster.full_key(prefix), after)
    }

    async fn compact(&self, upto: Revision) -> Result<()> {
        let send = || {
            let mut kv = self.cluster.connection.load().kv.clone();
            async move { kv.compact(signed(upto), None).await }
        };
        match self.cluster.request("compact", is_unavailable, send).await {
            Ok(_) => Ok(()),
            Err(error) => match message(&error) {
                Some(text) if text.contains("required revision has been compacted") => Ok(()),
                Some(text) if text.contains("required revision is a future revision") => {
                    Err(Error::Future { newest: self.revision().await? })
                }
                _ => Err(read_error(&error)),
            },
        }
    }
}

/// Returns the first key after all keys with `prefix`. Its last octet is below 255, because it is text.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn signed_count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn signed(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

fn unsigned(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

fn revision_of(header: Option<&ResponseHeader>) -> Revision {
    unsigned(header.map_or(0, ResponseHeader::revision))
}

/// Returns the message of etcd.
fn message(error: &etcd_client::Error) -> Option<&str> {
    match error {
        etcd_client::Error::GRpcStatus(status) => Some(status.message()),
        _ => None,
    }
}

/// Returns whether a member is away or has no leader (gRPC: UNAVAILABLE).
fn is_unavailable(error: &etcd_client::Error) -> bool {
    match error {
        etcd_client::Error::GRpcStatus(status) => status.code() as i32 == 14,
        error => matches!(error, etcd_client::Error::TransportError(_)),
    }
}

/// Returns whether etcd denies access (gRPC: INVALID_ARGUMENT, of a wrong password; PERMISSION_DENIED; UNAUTHENTICATED).
pub fn is_denied(error: &ConnectError) -> bool {
    match error {
        etcd_client::Error::GRpcStatus(status) => matches!(status.code() as i32, 3 | 7 | 16),
        _ => false,
    }
}

/// Returns whether a failed write had no effect.
fn wrote_nothing(error: &etcd_client::Error) -> bool {
    let text = message(error).unwrap_or_default();
    ["etcdserver: no leader", "tcp connect error", "too many requests"].iter().any(|words| text.contains(words))
}

/// Returns whether the cluster is full (alarm NOSPACE).
fn is_full(error: &etcd_client::Error) -> bool {
    message(error).is_some_and(|text| text.contains("database space exceeded"))
}

/// Returns the error of a request that writes no value.
fn read_error(error: &etcd_client::Error) -> Error {
    if is_full(error) {
        return Error::NoSpace;
    }
    match is_denied(error) {
        true => tracing::error!(%error, "etcd rejected a request"),
        false => tracing::debug!(%error, "a request to etcd failed"),
    }
    Error::Unavailable
}

/// Returns the error of a write. Unless etcd reports that nothing was written, the write may have been applied.
fn write_error(error: &etcd_client::Error) -> Error {
    let text = message(error).unwrap_or_default();
    let says = |words: &str| text.contains(words);
    if says("request is too large") || says("too many operations") || says("larger than max") {
        return Error::TooLarge { limit: super::TXN_OCTETS_MAX };
    }
    if is_full(error) || wrote_nothing(error) {
        return read_error(error);
    }
    tracing::debug!(%error, "the outcome of a write to etcd is unknown");
    Error::OutcomeUnknown
}
