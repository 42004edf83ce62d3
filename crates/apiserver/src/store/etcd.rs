//! The engine for more than one machine: an etcd cluster, which any number of API servers share.
//!
//! Revisions are etcd's: the same for every server, and compared across them. A key of ours is one of etcd's below the prefix of
//! the settings, and its value is stored as it is. A transaction is one of etcd's, a time to live is a lease, and a watch is one
//! of etcd's that is opened again where it broke. Reads are linearizable.
//!
//! etcd keeps history until somebody compacts it. [`Etcd::compact`] does; so does `etcd --auto-compaction-retention`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, EventType, GetOptions, GetResponse, KvClient, PutOptions,
    ResponseHeader, TxnOp, TxnOpResponse, WatchClient, WatchOptions, WatchStream,
};
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Error, Event, EventKind, Key, KeyValue, Outcome, Page, Precondition, Result, Revision, Store, Txn, Write};

/// How many values one request of a list asks for: so many of the largest still fit into [`MESSAGE_OCTETS_MAX`].
const PAGE_VALUES: usize = 500;
/// The largest message that is taken: a page of the largest values, which etcd bounds at 1.5 MiB each.
const MESSAGE_OCTETS_MAX: usize = (PAGE_VALUES + 1) * 1_536 * 1024;
/// Time limits of a request, and of the connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often an idle connection is asked whether it lives, and how long it may take to answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));
/// How long a broken watch waits before it is opened again, at first and at most.
const REOPEN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How often a request is made while the members that it meets are away: others may be there.
const TRIES: u32 = 6;
/// How many keys share a lease, and which part of their time to live they may live longer for that.
const LEASE_KEYS_MAX: u32 = 1_000;
const LEASE_REUSE_PART: u32 = 20;

/// Where the cluster is, and as whom it is used. It has secrets, and is never printed.
#[derive(Clone, Default)]
pub struct Settings {
    /// The URLs of its members, such as `https://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// What all keys begin with, such as `/signpost`; no slash at the end.
    pub prefix: String,
    /// A user and the password.
    pub user: Option<(String, String)>,
    /// Certificates, in PEM.
    pub tls: Option<Tls>,
}

/// Certificates for the connection to etcd, in PEM.
#[derive(Clone)]
pub struct Tls {
    /// The authority of the members' certificates.
    pub ca: Vec<u8>,
    /// The client's own certificate and its key, if etcd asks for one.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

/// A handle to an etcd cluster. Clones share its connections; with the last one its watches end.
#[derive(Clone)]
pub struct Etcd {
    cluster: Cluster,
    /// Ends watches.
    closed: CancellationToken,
    _guard: Arc<DropGuard>,
}

/// The connections, and what is shared of them.
#[derive(Clone)]
struct Cluster {
    kv: KvClient,
    watches: WatchClient,
    client: Client,
    prefix: String,
    lease: Arc<Mutex<Option<Lease>>>,
}

/// A lease that keys are still given.
struct Lease {
    id: i64,
    ttl: Duration,
    since: Instant,
    keys: u32,
}

impl Etcd {
    /// Connects, and asks for the revision once, so that a wrong password or certificate is found here.
    pub async fn connect(settings: &Settings) -> Result<Self> {
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
            let mut with = etcd_client::TlsOptions::new().ca_certificate(etcd_client::Certificate::from_pem(&tls.ca));
            if let Some((certificate, key)) = &tls.client {
                with = with.identity(etcd_client::Identity::from_pem(certificate, key));
            }
            options = options.with_tls(with);
        }
        let client = Client::connect(&settings.endpoints, Some(options)).await.map_err(|error| read_error(&error))?;
        let cluster = Cluster {
            kv: client.kv_client().max_decoding_message_size(MESSAGE_OCTETS_MAX),
            watches: client.watch_client().max_decoding_message_size(MESSAGE_OCTETS_MAX),
            client,
            prefix: settings.prefix.trim_end_matches('/').to_owned(),
            lease: Arc::default(),
        };
        cluster.revision().await?;
        let closed = CancellationToken::new();
        let _guard = Arc::new(closed.clone().drop_guard());
        Ok(Etcd { cluster, closed, _guard })
    }
}

impl Cluster {
    async fn revision(&self) -> Result<Revision> {
        let options = GetOptions::new().with_count_only();
        let key = self.full_key(&Key("/".into()));
        let response = self.range(key, options).await;
        Ok(revision_of(response.map_err(|error| read_error(&error))?.header()))
    }

    fn full_key(&self, key: &Key) -> String {
        format!("{}{}", self.prefix, key.0)
    }

    async fn range(&self, key: String, options: GetOptions) -> std::result::Result<GetResponse, etcd_client::Error> {
        let send = || {
            let (mut kv, key, options) = (self.kv.clone(), key.clone(), options.clone());
            async move { kv.get(key, Some(options)).await }
        };
        with_retries(is_unavailable, send).await
    }

    /// Reads a range; where it cannot be read for its revision, what is known of the others.
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

    /// That history is gone, with the oldest revision that is left: only a watch from before it says which that is.
    async fn compacted_error(&self) -> Error {
        let send = || {
            let (mut watches, key) = (self.watches.clone(), self.full_key(&Key("/".into())));
            async move { watches.watch(key, Some(WatchOptions::new().with_start_revision(1))).await }
        };
        let Ok(mut watch) = with_retries(is_unavailable, send).await else { return Error::Unavailable };
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

    /// A lease for a key that is to live for `ttl`: one that was given to others a moment ago, or a new one.
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
        // One of which the answer is lost has no keys, and ends.
        let send = || {
            let mut leases = self.client.lease_client();
            async move { leases.grant(seconds, None).await }
        };
        let granted = with_retries(is_unavailable, send).await.map_err(|error| read_error(&error))?;
        *lease = Some(Lease { id: granted.id(), ttl, since: Instant::now(), keys: 1 });
        Ok(granted.id())
    }

    /// The operations of a transaction's writes.
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
        // The value before may be compacted while the event waits: then only a list tells what is there.
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
            // Nothing is wanted but how many there are: etcd takes a limit of 0 for none.
            let options = match wanted {
                0 => options.with_count_only(),
                wanted => options.with_limit(i64::try_from(wanted).unwrap_or(i64::MAX)),
            };
            let (newest, found) = cluster.read(start, options, at).await?;
            let revision = *at.get_or_insert(newest);
            for found in found.kvs() {
                items.push(cluster.value(found)?);
            }
            let left = u64::try_from(found.count()).unwrap_or(0).saturating_sub(found.kvs().len() as u64);
            match found.kvs().last() {
                Some(last) if left > 0 && items.len() < limit => {
                    // The next key there can be.
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
            // etcd answers an empty transaction from the member that gets it, which may be behind.
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
        let compares: Vec<Compare> = txn.expect.iter().map(compare).collect();
        let reads: Vec<TxnOp> = txn.expect.iter().map(|(key, _)| TxnOp::get(cluster.full_key(key), None)).collect();
        let request = etcd_client::Txn::new().when(compares).and_then(cluster.writes(txn.writes).await?).or_else(reads);
        let send = || {
            let (mut kv, request) = (cluster.kv.clone(), request.clone());
            async move { kv.txn(request).await }
        };
        let response = with_retries(wrote_nothing, send).await;
        let response = response.map_err(|error| write_error(&error))?;
        let at = revision_of(response.header());
        if response.succeeded() {
            return Ok(Outcome::Committed(at));
        }
        let found = response.op_responses().into_iter().map(|response| match response {
            TxnOpResponse::Get(found) => found.kvs().first().map(|found| cluster.value(found)).transpose(),
            _ => Ok(None),
        });
        Ok(Outcome::Refused { at, found: found.collect::<Result<_>>()? })
    }

    fn watch(&self, prefix: &Key, after: Revision) -> BoxStream<'static, Result<Vec<Event>>> {
        let watch = Watch {
            cluster: self.cluster.clone(),
            closed: self.closed.clone(),
            prefix: self.cluster.full_key(prefix),
            after,
            open: None,
            taken: VecDeque::new(),
            pause: REOPEN.0,
            has_ended: false,
        };
        stream::unfold(watch, |mut watch| async move {
            let item = watch.next().await?;
            watch.has_ended = item.is_err();
            Some((item, watch))
        })
        .boxed()
    }

    async fn compact(&self, upto: Revision) -> Result<()> {
        let send = || {
            let mut kv = self.cluster.kv.clone();
            async move { kv.compact(signed(upto), None).await }
        };
        match with_retries(is_unavailable, send).await {
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

/// A watch that goes on where it broke.
struct Watch {
    cluster: Cluster,
    closed: CancellationToken,
    prefix: String,
    /// The last revision that was given out.
    after: Revision,
    open: Option<WatchStream>,
    /// Revisions that have come and are to be given out.
    taken: VecDeque<Vec<Event>>,
    pause: Duration,
    has_ended: bool,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<Vec<Event>>> {
        if self.has_ended {
            return None;
        }
        loop {
            if let Some(events) = self.taken.pop_front() {
                self.after = events.first().map_or(self.after, |event| event.at);
                return Some(Ok(events));
            }
            let closed = self.closed.clone();
            let taken = closed.run_until_cancelled(self.take()).await;
            if let Err(error) = taken.unwrap_or(Err(Error::Unavailable)) {
                return Some(Err(error));
            }
        }
    }

    /// Waits for a message of the watch, which is opened if it is not.
    async fn take(&mut self) -> Result<()> {
        let Some(watch) = &mut self.open else { return self.open().await };
        let response = match watch.message().await {
            Ok(Some(response)) => response,
            Ok(None) => return self.broken("it ended").await,
            Err(error) => return self.broken(&error.to_string()).await,
        };
        if response.compact_revision() > 0 {
            return Err(Error::Compacted { oldest: unsigned(response.compact_revision()) });
        }
        if response.canceled() {
            return self.broken(response.cancel_reason()).await;
        }
        self.pause = REOPEN.0;
        // One message holds whole revisions.
        for event in response.events() {
            let event = self.cluster.event(event)?;
            match self.taken.back_mut().filter(|revision| revision.first().is_some_and(|first| first.at == event.at)) {
                Some(revision) => revision.push(event),
                None => self.taken.push_back(vec![event]),
            }
        }
        for revision in &mut self.taken {
            revision.sort_by(|one, other| one.now.key.cmp(&other.now.key));
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<()> {
        let options = WatchOptions::new()
            .with_range(end_of(&self.prefix))
            .with_start_revision(signed(self.after).saturating_add(1))
            .with_prev_key();
        match self.cluster.watches.clone().watch(self.prefix.clone(), Some(options)).await {
            Ok(watch) => self.open = Some(watch),
            Err(error) => return self.broken(&error.to_string()).await,
        }
        Ok(())
    }

    /// The cluster is away, or has no leader: the watch is opened again, a little later.
    async fn broken(&mut self, error: &str) -> Result<()> {
        tracing::warn!(error, "the watch of etcd broke; opening it again");
        self.open = None;
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(REOPEN.1);
        Ok(())
    }
}

/// The first key after all that begin with `prefix`, which ends in an octet below 255, as text does.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
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

/// What etcd says of an error.
fn message(error: &etcd_client::Error) -> Option<&str> {
    match error {
        etcd_client::Error::GRpcStatus(status) => Some(status.message()),
        _ => None,
    }
}

/// Makes a request again, a little later, as long as it fails in a way that `is_passing` says may pass, and some times at most.
async fn with_retries<T, F: Future<Output = std::result::Result<T, etcd_client::Error>>>(
    is_passing: impl Fn(&etcd_client::Error) -> bool,
    request: impl Fn() -> F,
) -> F::Output {
    let mut pause = REOPEN.0;
    for _ in 1..TRIES {
        match request().await {
            Err(error) if is_passing(&error) => sleep(pause).await,
            done => return done,
        }
        pause *= 2;
    }
    request().await
}

/// Whether a member is away or has no leader (gRPC: UNAVAILABLE).
fn is_unavailable(error: &etcd_client::Error) -> bool {
    match error {
        etcd_client::Error::GRpcStatus(status) => status.code() as i32 == 14,
        error => matches!(error, etcd_client::Error::TransportError(_)),
    }
}

/// Whether a write that failed was not even begun.
fn wrote_nothing(error: &etcd_client::Error) -> bool {
    let text = message(error).unwrap_or_default();
    ["etcdserver: no leader", "tcp connect error", "too many requests"].iter().any(|words| text.contains(words))
}

/// Whether the cluster is full (alarm NOSPACE).
fn is_full(error: &etcd_client::Error) -> bool {
    message(error).is_some_and(|text| text.contains("database space exceeded"))
}

/// The error of a request that writes no value.
fn read_error(error: &etcd_client::Error) -> Error {
    if is_full(error) {
        return Error::NoSpace;
    }
    tracing::debug!(%error, "a request to etcd failed");
    Error::Unavailable
}

/// The error of a write. Unless etcd says that nothing was written, it may have been.
fn write_error(error: &etcd_client::Error) -> Error {
    let text = message(error).unwrap_or_default();
    let says = |words: &str| text.contains(words);
    if says("request is too large") || says("too many operations") || says("larger than max") {
        return Error::TooLarge { limit: super::TXN_OCTETS_MAX };
    }
    if is_full(error) || wrote_nothing(error) {
        return read_error(error);
    }
    tracing::debug!(%error, "the outcome of a write to etcd is not known");
    Error::OutcomeUnknown
}
