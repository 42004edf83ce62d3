//! The one thread that writes: group commit, the end of keys with a time to live, and compaction.
//!
//! It takes what waits in the queue (up to [`GROUP_MAX`] transactions), judges each by what is there, the earlier ones of
//! the group included, gives each its own revision, and makes all of them durable by one commit. Then watchers see them and
//! the callers are answered, in this order, so that whoever has its answer finds the write in every later read and watch.
//! While the disk syncs, the next group gathers by itself; a group that is smaller than the last one waits a little for more.
//!
//! While the disk has less than [`Options::room_octets`] left, what would make the store larger is refused, and the callers
//! are told so. What frees room goes on, in small commits and of the `reserve` if need be: deletions, keys that end, and
//! compaction, which then forgets all history and gives what the file no longer needs back to the disk. A fault of the file
//! in spite of that, such as a disk that is filled up at that moment, leaves it open
//! what of the group is on disk. The file is then closed and opened anew until that works, which brings it to its last
//! commit; if that was the group in doubt, watchers see it now. A sync that failed is another matter (`disk`): the writer
//! ends, and the process with it.

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

/// How many transactions one commit holds at most. More would make the first of them wait longer for hardly more
/// throughput: at 256 the fsync is less than a tenth of the group's time.
pub(super) const GROUP_MAX: usize = 256;

/// How long a group waits for more that holds less than the one before it, at a time and in all. A commit costs some 0.3 ms of
/// processor time whatever is in it, so at a thousand writes a second groups that only gather while the disk syncs spend most
/// of a processor on commits. A writer alone never waits; several wait so much longer for their answers.
const LINGER: Duration = Duration::from_micros(500);

/// How often it waits so at most, and after a group of how many once more. Where many write, each waits for the others anyway.
const LINGERS_MAX: usize = 4;
/// See [`LINGERS_MAX`].
const LINGER_MORE_AT: usize = 4;

/// How many revisions one commit forgets at most, so that writers behind it wait for milliseconds, not seconds.
const COMPACT_REVISIONS_MAX: usize = 1_000;

/// How long the writer sleeps at most while keys with a time to live exist: a clock that jumps is noticed within this.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// From how many on, keys with a time to live that are too many are ended: each time is a revision.
const OVER_AT_ONCE: u64 = 64;

/// How often a file that failed is opened anew, and how often room is looked for.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// How many transactions one commit holds, and how many revisions it forgets, on a full disk: so few that the reserve has room
/// for it.
const GROUP_FULL_MAX: usize = 16;
/// See [`GROUP_FULL_MAX`].
const COMPACT_FULL_MAX: usize = 64;

/// How often the log says that the disk is still full.
const FULL_TOLD_AGAIN: Duration = Duration::from_secs(600);

/// What the writer is asked to do.
pub(super) enum Task {
    Commit {
        txn: Txn,
        /// Whether it goes on while the disk is full.
        frees: bool,
        answer: oneshot::Sender<Result<Outcome>>,
    },
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
    /// When the first key ends, as far as is known.
    deadline: Option<SystemTime>,
    /// Compactions asked for and not finished.
    compactions: Vec<(Revision, oneshot::Sender<Result<()>>)>,
    /// How far history is to be forgotten by the writer's own schedule.
    forget: u64,
    /// The bytes of history.
    retention: Retention,
    /// When that schedule was looked at, and what was newest then.
    marked: (Instant, u64),
    /// After a fault of the file nothing is written until it was opened anew: redb cannot know what is on disk.
    failed: bool,
    /// When it was opened anew last, or failed.
    tried: Instant,
    room: Room,
    /// How many jobs the last group held.
    gathered: usize,
}

/// The room on the disk.
struct Room {
    reserve: Reserve,
    /// Whether there was too little when it was last looked at.
    full: bool,
    /// When the log last said so.
    full_reported: Option<Instant>,
    /// Whether not even the reserve has enough for a commit.
    stuck: bool,
    /// How many octets within the file are not used, as far as is known; counted while the disk is full.
    unused: u64,
}

/// A transaction of a group, and whether it goes on while the disk is full.
type QueuedTxn = (Txn, bool);

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, options: Options, newest: Revision, reserve: Reserve) -> Self {
        let retention = Retention::new(options.history_bytes_max);
        Writer {
            shared,
            options,
            newest: newest.0,
            // In the past: the first round looks it up.
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

    /// Works until the queue's other end is gone and the queue is empty, or until a sync fails: the error says so.
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

    /// What is said of a sync that failed.
    fn distrusted(&self, error: &str) -> String {
        let path = self.shared.path.display();
        format!(
            "{path}: failed to sync to disk: {error}; the system may have dropped writes that it had taken, so the process \
             ends and nothing more is read from memory; check the disk (dmesg, smartctl) and start the process again, which \
             reads the file from the disk (a service manager does so by itself); if that fails, restore a backup"
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
            tracing::error!(%error, "failed to read the store's history; its size is not known");
        }
        self.retention = retention;
        self.limit_history();
    }

    /// Sets out to forget the oldest history if there are too many bytes of it.
    fn limit_history(&mut self) {
        self.forget = self.forget.max(self.retention.excess());
    }

    /// Puts what waits into a group; and, as long as that is less than the group before held, what comes within [`LINGER`].
    fn gather(&mut self, group: &mut Vec<Job>, jobs: &Receiver<Job>) {
        let most = if self.room.full { GROUP_FULL_MAX } else { GROUP_MAX };
        take(group, jobs, most);
        for _ in 0..LINGERS_MAX.min(1 + self.gathered / LINGER_MORE_AT) {
            if group.len() >= self.gathered {
                break;
            }
            // Asleep, and not at the queue: who sends something there wakes nobody.
            std::thread::sleep(LINGER);
            take(group, jobs, most);
        }
        self.gathered = group.len();
    }

    /// How long there is nothing to do if nobody asks.
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

    /// Every `history` sets out to forget what was already history at the last mark.
    fn mark(&mut self) {
        let Some(history) = self.options.history else { return };
        let (since, newest_then) = self.marked;
        if since.elapsed() >= history {
            let forget = newest_then.min(self.newest.saturating_sub(self.options.history_revisions_min));
            self.forget = self.forget.max(forget);
            self.marked = (Instant::now(), self.newest);
        }
    }

    /// One round: a group of transactions, what has expired, a piece of compaction, all in one commit.
    fn work(&mut self, group: Vec<Job>) {
        let mut permits = Vec::with_capacity(group.len());
        let (mut txns, mut answers) = (Vec::with_capacity(group.len()), Vec::with_capacity(group.len()));
        for Job { task, _permit } in group {
            permits.push(_permit);
            match task {
                Task::Commit { txn, frees, answer } => {
                    txns.push((txn, frees));
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
        // A caller that is not there any more is no reason to do otherwise; hence the dropped results.
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

    /// Looks whether the disk is full, and sees to it that there is room for what goes on even so.
    fn check_room(&mut self) {
        let needed = self.options.room_octets;
        // Where the system does not tell, the write will.
        let free = files::free_octets(&self.shared.lock).unwrap_or(u64::MAX);
        let full = match self.room.full {
            // The reserve comes first, so that the disk is not full again at once.
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
        // What is superseded or deleted serves nobody now who could not read the whole list again.
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

    /// Tells the log that the disk is full, and rarely that it still is; and that it is not any more.
    fn report_room(&mut self, full: bool, free: u64) {
        let (path, needed) = (self.shared.path.display(), self.options.room_octets);
        match (full, self.room.full_reported) {
            (true, reported) if reported.is_none_or(|reported| reported.elapsed() >= FULL_TOLD_AGAIN) => {
                tracing::error!(
                    %path, free, needed,
                    "the disk is full: objects can be deleted, but not created or made larger, until there is room"
                );
                self.room.full_reported = Some(Instant::now());
            }
            (false, Some(_)) if self.room.full => {
                tracing::warn!(%path, free, "the disk has room again: the store takes all writes");
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
            // The process ends, and says why.
            return;
        }
        if is_damage(error) {
            // To open it anew would mend nothing.
            return self.shared.damage.break_off(&error.to_string());
        }
        tracing::error!(%error, "the store takes no writes: its file cannot be written; it is opened anew until that works");
        let reported = || unavailable(redb::Error::PreviousIo);
        self.compactions.drain(..).for_each(|(_, answer)| drop(answer.send(Err(reported()))));
    }

    /// Opens the file anew after a fault, and tells the watchers what turns out to have been committed.
    fn recover(&mut self) {
        let path = self.shared.path.display();
        let newest = match self.shared.reopen(self.options.cache_octets) {
            Ok(newest) if newest.0 >= self.newest => newest.0,
            Ok(newest) => {
                // What was acknowledged is not there: no write may hide that.
                tracing::error!(%path, newest = newest.0, acknowledged = self.newest, "the store's file has lost writes");
                return;
            }
            Err(OpenError::Corrupt { reason, .. }) => return self.shared.damage.break_off(&reason),
            Err(error) => {
                tracing::error!(%error, "the store's file cannot be opened; it is tried again");
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
                    tracing::error!(%error, "the store's file cannot be read; it is tried again");
                    return;
                }
            }
        }
        self.failed = false;
        self.deadline = Some(SystemTime::UNIX_EPOCH);
        self.account();
        let path = self.shared.path.display();
        tracing::warn!(%path, newest, "the store's file was opened anew: it takes writes again");
    }

    fn commit(&mut self, txns: &[QueuedTxn]) -> std::result::Result<Vec<Result<Outcome>>, Fault> {
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
        // A group that was refused as a whole needs no sync.
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

/// Whether a fault says that the file's pages contradict each other.
fn is_damage(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Corrupted(_) | redb::Error::LockPoisoned(_))
}

/// Moves what waits in the queue into a group of at most `most`.
fn take(group: &mut Vec<Job>, jobs: &Receiver<Job>, most: usize) {
    while group.len() < most {
        match jobs.try_recv() {
            Ok(job) => group.push(job),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
        }
    }
}

/// A commit in the making.
struct Group {
    newest: u64,
    committed: Vec<Committed>,
    /// On a full disk, how much room it must have.
    full: Option<u64>,
}

impl Group {
    fn apply(
        &mut self,
        tables: &mut WriteTables<'_>,
        txns: &[QueuedTxn],
        now: SystemTime,
    ) -> std::result::Result<Vec<Result<Outcome>>, redb::Error> {
        let apply = |(txn, frees): &QueuedTxn| match self.full {
            Some(needed) if !frees && tables.grows(txn)? => Ok(Err(Error::Full { needed })),
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
        self.apply_one(tables, &Txn { expect: Vec::new(), writes }, now).map(drop)
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

/// A fault of the file, told apart by what it means for the callers.
enum Fault {
    /// Nothing was written.
    BeforeCommit(redb::Error),
    /// Whether it was written is not known.
    InCommit(redb::Error),
}

impl Fault {
    fn before(error: impl Into<redb::Error>) -> Self {
        Fault::BeforeCommit(error.into())
    }
}
