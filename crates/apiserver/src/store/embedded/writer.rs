//! The only thread that writes: group commit, expiry of keys with a time to live, and compaction.
//!
//! It takes the queued transactions (up to [`GROUP_MAX`]), evaluates each against the current state, including the earlier ones
//! of the group, gives each its own revision, and makes all of them durable in one commit. Then it publishes them to watchers and
//! answers the callers, in this order, so that a caller with an answer finds the write in every later read and watch. While the
//! disk syncs, the next group collects; a group that is smaller than the last one waits briefly for more.
//!
//! While the disk has less than [`Options::room_octets`] free, transactions that would enlarge the store are rejected with an
//! error. Operations that free space continue, in small commits and, if necessary, with the `reserve`: deletions, expiry, and
//! compaction, which then removes all history and returns the freed space to the disk. A write to the file can still fail, for
//! example on a disk that fills up at that moment. Then it is unknown which part of the group is on disk. The writer closes the
//! file and reopens it until that succeeds, which resets it to its last commit; if that is the group in doubt, watchers see it
//! now. A failed sync is different (`disk`): the writer ends, and the process with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant, SystemTime};

use redb::{Database, Durability};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::damage::Damaged;
use super::files;
use super::reserve::Reserve;
use super::retention::{self, Retention};
use super::tables::{Applied, WriteTables, unavailable};
use super::{OpenError, Options, Shared};
use crate::store::feed::{Committed, History as _};
use crate::store::{Error, Outcome, Result, Revision, TXN_OPERATIONS_MAX, Txn, Write};

/// The maximum number of transactions per commit. With more, the first of them would wait longer for hardly more throughput: at
/// 256, the fsync takes less than a tenth of the group's time.
pub(super) const GROUP_MAX: usize = 256;

/// The wait of a group that is smaller than the previous one, for each attempt and in total. A commit costs some 0.3 ms of CPU
/// time regardless of its size. At a thousand writes per second, groups that only collect while the disk syncs would spend most
/// of a CPU on commits. A single writer never waits; the answers of several writers take that much longer.
const LINGER: Duration = Duration::from_micros(500);

/// The maximum number of such waits, and the group size from which there is only one. With many writers, each waits for the
/// others anyway.
const LINGERS_MAX: usize = 4;
/// See [`LINGERS_MAX`].
const LINGER_MORE_AT: usize = 4;

/// The maximum number of revisions that one commit removes, so that writes behind it wait for milliseconds, not seconds.
const COMPACT_REVISIONS_MAX: usize = 1_000;

/// The maximum sleep of the writer while keys with a time to live exist: a clock change is noticed within this time.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The number of excess keys with a time to live from which they are removed: each removal is a revision.
const OVER_AT_ONCE: u64 = 64;

/// The interval of attempts to reopen a failed file, and of checks for free space.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// The maximum number of transactions per commit, and of removed revisions, on a full disk: few enough for the space of the
/// reserve.
const GROUP_FULL_MAX: usize = 16;
/// See [`GROUP_FULL_MAX`].
const COMPACT_FULL_MAX: usize = 64;

/// The interval of log lines while the disk stays full.
const FULL_TOLD_AGAIN: Duration = Duration::from_secs(600);

/// The tasks of the writer.
pub(super) enum Task {
    Commit { txn: Txn, answer: oneshot::Sender<Result<Outcome>> },
    Compact(Revision, oneshot::Sender<Result<()>>),
}

/// A task with its place in the queue, which becomes free when the task is done.
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) _permit: OwnedSemaphorePermit,
}

/// The state of the writing thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    options: Options,
    newest: u64,
    /// The first deadline of a key, if it is known.
    deadline: Option<SystemTime>,
    /// The compactions in progress.
    compactions: Vec<(Revision, oneshot::Sender<Result<()>>)>,
    /// The revision up to which the writer's own schedule removes history.
    forget: u64,
    /// The account of retained history.
    retention: Retention,
    /// The time of the last run of that schedule, and the newest revision at that time.
    marked: (Instant, u64),
    /// After a failure of the file, nothing is written until it was reopened: redb cannot determine the contents of the disk.
    failed: bool,
    /// The time of the last attempt to reopen it, or of its failure.
    tried: Instant,
    room: Room,
    /// The number of jobs in the last group.
    gathered: usize,
}

/// The state of the disk space.
struct Room {
    reserve: Reserve,
    /// Whether the last check found too little space.
    full: bool,
    /// The time of the last log line about it.
    full_reported: Option<Instant>,
    /// Whether not even the reserve has enough space for a commit.
    stuck: bool,
    /// The number of unused octets within the file, if it is known; counted while the disk is full.
    unused: u64,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, options: Options, newest: Revision, reserve: Reserve) -> Self {
        let retention = Retention::new(options.history_bytes_max);
        Writer {
            shared,
            options,
            newest: newest.0,
            // In the past, so that the first round looks it up.
            deadline: Some(SystemTime::UNIX_EPOCH),
            compactions: Vec::new(),
            forget: 0,
            retention,
            marked: (Instant::now(), newest.0),
            failed: false,
            tried: Instant::now(),
            room: Room { reserve, full: false, full_reported: None, stuck: false, unused: 0 },
            gathered: 0,
        }
    }

    /// Runs until the queue is closed and empty, or until a sync fails, which it returns as an error.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) -> std::result::Result<(), String> {
        self.account();
        self.check_room();
        loop {
            let first = match jobs.recv_timeout(self.idle()) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let mut group: Vec<Job> = first.into_iter().collect();
            if !group.is_empty() {
                self.gather(&mut group, jobs);
            }
            if self.failed && self.tried.elapsed() >= RETRY_EVERY {
                self.recover();
                self.tried = Instant::now();
            }
            self.work(group);
            if let Some(error) = self.shared.sync_error.get() {
                return Err(self.distrusted(error));
            }
            self.mark();
        }
    }

    /// Returns the message about a failed sync.
    fn distrusted(&self, error: &str) -> String {
        let path = self.shared.path.display();
        format!(
            "{path}: failed to sync to disk: {error}; the system may have dropped earlier writes, so the process exits \
             instead of serving from memory; check the disk (dmesg, smartctl) and restart the process, which reads the \
             file from the disk (a service manager restarts it automatically); if that fails, restore a backup"
        )
    }

    /// Adds up the history in the file.
    fn account(&mut self) {
        let mut retention = Retention::new(self.options.history_bytes_max);
        let reader = self.shared.reader().map_err(|error| error.to_string());
        let read = reader.and_then(|reader| {
            reader.retained(|revision, bytes| retention.add(revision, bytes)).map_err(|error| error.to_string())
        });
        if let Err(error) = read {
            tracing::error!(%error, "failed to read the store's history; its size is unknown");
        }
        self.retention = retention;
        self.limit_history();
    }

    /// Schedules the removal of the oldest history if it has too many bytes.
    fn limit_history(&mut self) {
        self.forget = self.forget.max(self.retention.excess());
    }

    /// Collects the queued jobs into a group and, if it is smaller than the previous group, the jobs that arrive within
    /// [`LINGER`].
    fn gather(&mut self, group: &mut Vec<Job>, jobs: &Receiver<Job>) {
        let most = if self.room.full { GROUP_FULL_MAX } else { GROUP_MAX };
        take(group, jobs, most);
        for _ in 0..LINGERS_MAX.min(1 + self.gathered / LINGER_MORE_AT) {
            if group.len() >= self.gathered {
                break;
            }
            // The thread sleeps instead of waiting at the queue, so that senders cause no wakeup.
            std::thread::sleep(LINGER);
            take(group, jobs, most);
        }
        self.gathered = group.len();
    }

    /// Returns the time until the next task if no job arrives.
    fn idle(&self) -> Duration {
        if self.failed || self.room.stuck {
            return RETRY_EVERY;
        }
        if self.forget > 0 || !self.compactions.is_empty() {
            return Duration::ZERO;
        }
        if self.room.full {
            return RETRY_EVERY;
        }
        let mut idle = self.options.history.unwrap_or(Duration::from_secs(3600));
        if let Some(deadline) = self.deadline {
            idle = idle.min(deadline.duration_since((self.options.now)()).unwrap_or_default()).min(SWEEP_EVERY);
        }
        idle
    }

    /// Every `history`, schedules the removal of revisions that were history at the last mark.
    fn mark(&mut self) {
        let Some(history) = self.options.history else { return };
        let (since, newest_then) = self.marked;
        if since.elapsed() >= history {
            let forget = newest_then.min(self.newest.saturating_sub(self.options.history_revisions_min));
            self.forget = self.forget.max(forget);
            self.marked = (Instant::now(), self.newest);
        }
    }

    /// Runs one round: a group of transactions, expired keys, and a piece of compaction, all in one commit.
    fn work(&mut self, group: Vec<Job>) {
        let mut permits = Vec::with_capacity(group.len());
        let (mut txns, mut answers) = (Vec::with_capacity(group.len()), Vec::with_capacity(group.len()));
        for Job { task, _permit } in group {
            permits.push(_permit);
            match task {
                Task::Commit { txn, answer } => {
                    txns.push(txn);
                    answers.push(answer);
                }
                Task::Compact(upto, answer) if upto.0 > self.newest => {
                    drop(answer.send(Err(Error::Future { newest: Revision(self.newest) })));
                }
                Task::Compact(upto, answer) => self.compactions.push((upto, answer)),
            }
        }
        if !self.failed {
            self.check_room();
        }
        self.shared.writable.store(!self.failed && !self.room.full, Ordering::Relaxed);
        if self.failed || self.room.stuck {
            let (failed, needed) = (self.failed, self.options.room_octets);
            let refusal = || if failed { Error::Unavailable } else { Error::Full { needed } };
            answers.into_iter().for_each(|answer| drop(answer.send(Err(refusal()))));
            std::mem::take(&mut self.compactions).into_iter().for_each(|(_, answer)| drop(answer.send(Err(refusal()))));
            return;
        }
        // A caller can have disconnected, which changes nothing; the results are therefore ignored.
        match self.commit(&txns) {
            Ok(outcomes) => {
                answers.into_iter().zip(outcomes).for_each(|(answer, outcome)| drop(answer.send(outcome)));
            }
            Err(Fault::BeforeCommit(error)) => {
                self.fail(&error);
                answers.into_iter().for_each(|answer| drop(answer.send(Err(Error::Unavailable))));
            }
            Err(Fault::InCommit(error)) => {
                self.fail(&error);
                answers.into_iter().for_each(|answer| drop(answer.send(Err(Error::OutcomeUnknown))));
            }
        }
    }

    /// Checks whether the disk is full, and provides space for the operations that continue.
    fn check_room(&mut self) {
        let needed = self.options.room_octets;
        // If the system does not report free space, the write will fail instead.
        let free = files::free_octets(&self.shared.lock).unwrap_or(u64::MAX);
        let full = match self.room.full {
            // The reserve is refilled first, so that the disk does not fill up again immediately.
            true => free < needed.saturating_add(self.room.reserve.missing()) || !self.room.reserve.fill(),
            false if self.room.reserve.missing() > 0 && free >= self.room.reserve.missing() => {
                self.room.reserve.fill();
                files::free_octets(&self.shared.lock).unwrap_or(u64::MAX) < needed
            }
            false => free < needed,
        };
        self.report_room(full, free);
        if full && !self.room.full {
            self.room.unused = self.shared.unused().unwrap_or(0);
        }
        self.room.full = full;
        self.shared.full.store(if full { needed } else { 0 }, Ordering::Relaxed);
        self.room.stuck = full && !self.room.reserve.make_room(&self.shared.lock);
        if !full || self.room.stuck {
            return;
        }
        // Every client can list again, so superseded and deleted versions are not needed.
        let compacted = self.shared.reader().map_or(self.newest, |reader| reader.compacted().0);
        self.forget = if compacted < self.newest { self.newest } else { 0 };
        if self.forget == 0 && self.room.unused > 0 && free.saturating_add(self.room.unused) >= needed {
            match self.shared.shrink() {
                Ok(true) => self.room.unused = 0,
                Ok(false) => {}
                Err(error) => self.fail(&error),
            }
        }
    }

    /// Logs that the disk is full, at long intervals that it is still full, and that it has space again.
    fn report_room(&mut self, full: bool, free: u64) {
        let (path, needed) = (self.shared.path.display(), self.options.room_octets);
        match (full, self.room.full_reported) {
            (true, reported) if reported.is_none_or(|reported| reported.elapsed() >= FULL_TOLD_AGAIN) => {
                tracing::error!(
                    %path, free, needed,
                    "the disk is full: objects can be deleted, but not created or made larger, until space is freed"
                );
                self.room.full_reported = Some(Instant::now());
            }
            (false, Some(_)) if self.room.full => {
                tracing::warn!(%path, free, "the disk has space again: the store accepts all writes");
                self.room.full_reported = None;
            }
            _ => {}
        }
    }

    fn fail(&mut self, error: &redb::Error) {
        self.failed = true;
        self.tried = Instant::now();
        self.shared.writable.store(false, Ordering::Relaxed);
        if self.shared.sync_error.get().is_some() {
            // The process ends and reports the reason.
            return;
        }
        if is_damage(error) {
            // Reopening it would not help.
            return self.shared.damage.break_off(&error.to_string());
        }
        tracing::error!(%error, "failed to write the store's file; the store rejects writes, and reopening is retried");
        let reported = || unavailable(redb::Error::PreviousIo);
        self.compactions.drain(..).for_each(|(_, answer)| drop(answer.send(Err(reported()))));
    }

    /// Reopens the file after a failure, and publishes the commits that are in it to the watchers.
    fn recover(&mut self) {
        let path = self.shared.path.display();
        let newest = match self.shared.reopen(self.options.cache_octets) {
            Ok(newest) if newest.0 >= self.newest => newest.0,
            Ok(newest) => {
                // An acknowledged write is missing: no later write may hide that.
                tracing::error!(%path, newest = newest.0, acknowledged = self.newest, "the store's file has lost writes");
                return;
            }
            Err(OpenError::Corrupt { reason, .. }) => return self.shared.damage.break_off(&reason),
            Err(error) => {
                tracing::error!(%error, "failed to open the store's file; retrying");
                return;
            }
        };
        while self.newest < newest {
            match self.shared.history(Revision(self.newest)) {
                Ok(committed) if !committed.is_empty() => {
                    self.newest = committed.last().map_or(newest, |(revision, _)| revision.0);
                    self.shared.feed.publish(committed);
                }
                Ok(_) => self.newest = newest,
                Err(error) => {
                    tracing::error!(%error, "failed to read the store's file; retrying");
                    return;
                }
            }
        }
        self.failed = false;
        self.deadline = Some(SystemTime::UNIX_EPOCH);
        self.account();
        let path = self.shared.path.display();
        tracing::warn!(%path, newest, "store reopened: it accepts writes again");
    }

    fn commit(&mut self, txns: &[Txn]) -> std::result::Result<Vec<Result<Outcome>>, Fault> {
        let now = (self.options.now)();
        let sweep = self.deadline.is_some_and(|deadline| deadline <= now);
        let forget = self.compactions.iter().map(|(upto, _)| upto.0).max().unwrap_or(0).max(self.forget);
        if txns.is_empty() && !sweep && forget == 0 {
            return Ok(Vec::new());
        }
        let begun = self.shared.with_database(Database::begin_write);
        let mut transaction = begun.map_err(|_| Fault::before(redb::Error::DatabaseClosed))?.map_err(Fault::before)?;
        transaction.set_durability(Durability::Immediate).map_err(Fault::before)?;
        let mut tables = WriteTables::open(&transaction).map_err(Fault::before)?;

        let full = self.room.full.then_some(self.options.room_octets);
        let mut group = Group { newest: self.newest, committed: Vec::new(), full };
        let outcomes = group.apply(&mut tables, txns, now).map_err(Fault::before)?;
        let mut dirty = !group.committed.is_empty();
        let over = tables.expiring_over(self.options.expiring_max).map_err(Fault::before)?;
        let over = if over >= OVER_AT_ONCE { over } else { 0 };
        if (sweep || over > 0)
            && let Some(writes) = tables.expired(now, over, 2 * TXN_OPERATIONS_MAX).map_err(Fault::before)?
        {
            group.expire(&mut tables, writes, now).map_err(Fault::before)?;
            dirty = true;
        }
        let mut compacted = 0;
        if forget > 0 {
            compacted = tables.compacted().map_err(Fault::before)?;
            if compacted < forget {
                compacted = tables
                    .compact(forget, if self.room.full { COMPACT_FULL_MAX } else { COMPACT_REVISIONS_MAX })
                    .map_err(Fault::before)?;
                dirty = true;
            }
        }
        tables.set_newest(group.newest).map_err(Fault::before)?;
        let deadline = tables.first_deadline().map_err(Fault::before)?;
        drop(tables);
        // A group that was rejected as a whole needs no sync.
        if dirty {
            transaction.commit().map_err(|error| Fault::InCommit(error.into()))?;
        } else {
            transaction.abort().map_err(Fault::before)?;
        }

        self.newest = group.newest;
        self.deadline = deadline;
        for (revision, events) in &group.committed {
            self.retention.add(revision.0, retention::charge_of(events));
            events.iter().for_each(|event| self.shared.damage.settle(&event.now.key));
        }
        self.shared.feed.publish(group.committed);
        let before = self.retention.bytes();
        self.retention.forget(compacted);
        if self.room.full {
            self.room.unused += before - self.retention.bytes();
        }
        self.limit_history();
        if compacted >= self.forget {
            self.forget = 0;
        }
        for (upto, answer) in std::mem::take(&mut self.compactions) {
            if upto.0 <= compacted {
                drop(answer.send(Ok(())));
            } else {
                self.compactions.push((upto, answer));
            }
        }
        Ok(outcomes)
    }
}

/// Returns whether an error means that the file's pages contradict each other.
fn is_damage(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Corrupted(_) | redb::Error::LockPoisoned(_))
}

/// Moves queued jobs into a group of at most `most`.
fn take(group: &mut Vec<Job>, jobs: &Receiver<Job>, most: usize) {
    while group.len() < most {
        match jobs.try_recv() {
            Ok(job) => group.push(job),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
        }
    }
}

/// A commit in progress.
struct Group {
    newest: u64,
    committed: Vec<Committed>,
    /// The required free space, on a full disk.
    full: Option<u64>,
}

impl Group {
    fn apply(
        &mut self,
        tables: &mut WriteTables<'_>,
        txns: &[Txn],
        now: SystemTime,
    ) -> std::result::Result<Vec<Result<Outcome>>, redb::Error> {
        let apply = |txn: &Txn| match self.full {
            Some(needed) if !txn.frees && tables.grows(txn)? => Ok(Err(Error::Full { needed })),
            _ => self.apply_one(tables, txn, now),
        };
        txns.iter().map(apply).collect()
    }

    fn expire(
        &mut self,
        tables: &mut WriteTables<'_>,
        writes: Vec<Write>,
        now: SystemTime,
    ) -> std::result::Result<(), redb::Error> {
        self.apply_one(tables, &Txn { writes, ..Txn::default() }, now).map(drop)
    }

    fn apply_one(
        &mut self,
        tables: &mut WriteTables<'_>,
        txn: &Txn,
        now: SystemTime,
    ) -> std::result::Result<Result<Outcome>, redb::Error> {
        Ok(match tables.apply(txn, self.newest + 1, now)? {
            Applied::Refused(found) => Ok(Outcome::Refused { at: Revision(self.newest), found }),
            Applied::Damaged(Damaged { key, modified }) => Err(Error::Damaged { key, modified }),
            Applied::Unchanged => Ok(Outcome::Committed(Revision(self.newest))),
            Applied::Changed(events) => {
                self.newest += 1;
                self.committed.push((Revision(self.newest), events));
                Ok(Outcome::Committed(Revision(self.newest)))
            }
        })
    }
}

/// A failure of the file, by its meaning for the callers.
enum Fault {
    /// Nothing was written.
    BeforeCommit(redb::Error),
    /// The outcome is unknown: the group may have been written.
    InCommit(redb::Error),
}

impl Fault {
    fn before(error: impl Into<redb::Error>) -> Self {
        Fault::BeforeCommit(error.into())
    }
}
