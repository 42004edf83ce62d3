//! The path from the writer to the watchers: committed revisions, in order, without either side waiting for the other.
//!
//! The writer puts each durable revision into one bounded ring and wakes the sleeping watchers. A watcher is only a cursor: it
//! reads the ring after its cursor, or the engine's history if the ring no longer reaches back that far. A thousand watchers
//! therefore cost the writer one push, and a watcher that stalls holds no memory. If the history has been compacted as well when
//! it wakes up, it gets an error.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Error, Event, Key, Result, Revision};

/// The maximum number of revisions in the ring: enough that a watcher that was busy for a second need not read the file.
const RING_REVISIONS_MAX: usize = 4_096;

/// The maximum size of the keys and values in the ring in octets (one revision of any size is always kept): a third of a second
/// at 2,000 objects per second. There is one watcher per process of the API server, and it falls far behind only if this is
/// exceeded.
const RING_OCTETS_MAX: usize = 8 * 1024 * 1024;

/// The maximum number of revisions that a watcher takes at once, so that its own queue is bounded, too.
pub(super) const TAKE_REVISIONS_MAX: usize = 256;

/// One committed revision and its events.
pub(super) type Committed = (Revision, Arc<[Event]>);

/// The interface of an engine for [`watch()`].
pub(super) trait History: Send + Sync + 'static {
    /// Returns the feed to which the writer publishes.
    fn feed(&self) -> &Feed;

    /// Returns the oldest available revision.
    fn compacted(&self) -> Result<Revision>;

    /// Returns up to [`TAKE_REVISIONS_MAX`] revisions after `after`, oldest first. Can read from disk.
    fn history(&self, after: Revision) -> Result<Vec<Committed>>;
}

/// The ring, and the notifier that wakes watchers.
pub(super) struct Feed {
    ring: Mutex<Ring>,
    newest: watch::Sender<u64>,
}

struct Ring {
    /// Every revision greater than this one is in `revisions`.
    floor: Revision,
    revisions: VecDeque<Committed>,
    octets: usize,
}

impl Feed {
    /// Returns a feed of an engine whose newest revision is `newest`.
    pub(super) fn new(newest: Revision) -> Self {
        Feed {
            ring: Mutex::new(Ring { floor: newest, revisions: VecDeque::new(), octets: 0 }),
            newest: watch::Sender::new(newest.0),
        }
    }

    /// Returns the newest published revision, which is durable.
    pub(super) fn newest(&self) -> Revision {
        Revision(*self.newest.borrow())
    }

    /// Makes durable revisions visible to watchers. Only the writer calls it, in revision order.
    pub(super) fn publish(&self, committed: Vec<Committed>) {
        let Some(newest) = committed.last().map(|(revision, _)| *revision) else { return };
        let mut ring = self.ring.lock();
        for (revision, events) in committed {
            ring.octets += octets(&events);
            ring.revisions.push_back((revision, events));
        }
        while ring.revisions.len() > 1 && (ring.revisions.len() > RING_REVISIONS_MAX || ring.octets > RING_OCTETS_MAX) {
            if let Some((revision, events)) = ring.revisions.pop_front() {
                ring.octets -= octets(&events);
                ring.floor = revision;
            }
        }
        drop(ring);
        self.newest.send_replace(newest.0);
    }

    /// Returns the contents of the ring after `after`; `None` if that is before its floor.
    fn take(&self, after: Revision) -> Option<Vec<Committed>> {
        let ring = self.ring.lock();
        if after < ring.floor {
            return None;
        }
        let start = ring.revisions.partition_point(|(revision, _)| *revision <= after);
        Some(ring.revisions.range(start..).take(TAKE_REVISIONS_MAX).cloned().collect())
    }
}

fn octets(events: &[Event]) -> usize {
    let of = |event: &Event| {
        let before = event.before.as_ref().map_or(0, |before| before.value.len());
        event.now.key.0.len() + event.now.value.len() + before
    };
    events.iter().map(of).sum()
}

/// Returns the stream behind `Store::watch`. It does not keep the engine alive.
pub(super) fn watch<H: History>(
    engine: &Arc<H>,
    prefix: &Key,
    after: Revision,
) -> BoxStream<'static, Result<Vec<Event>>> {
    let watcher = Watcher {
        engine: Arc::downgrade(engine),
        bell: engine.feed().newest.subscribe(),
        prefix: prefix.clone(),
        cursor: after,
        taken: VecDeque::new(),
        state: State::Starting,
    };
    stream::unfold(watcher, |mut watcher| async move {
        let item = watcher.next().await?;
        if item.is_err() {
            watcher.state = State::Ended;
        }
        Some((item, watcher))
    })
    .boxed()
}

/// A watcher: a cursor, and a bounded number of revisions that it has taken and not delivered.
struct Watcher<H> {
    engine: Weak<H>,
    bell: watch::Receiver<u64>,
    prefix: Key,
    cursor: Revision,
    taken: VecDeque<Committed>,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Starting,
    Running,
    Ended,
}

impl<H: History> Watcher<H> {
    async fn next(&mut self) -> Option<Result<Vec<Event>>> {
        if self.state == State::Ended {
            return None;
        }
        loop {
            while let Some((revision, events)) = self.taken.pop_front() {
                self.cursor = revision;
                let ours = |event: &&Event| event.now.key.0.starts_with(&*self.prefix.0);
                let events: Vec<Event> = events.iter().filter(ours).cloned().collect();
                if !events.is_empty() {
                    return Some(Ok(events));
                }
            }
            if let Err(error) = self.take().await {
                return Some(Err(error));
            }
        }
    }

    /// Fills `taken`, and waits until there is at least one revision.
    async fn take(&mut self) -> Result<()> {
        let engine = self.engine.upgrade().ok_or(Error::Unavailable)?;
        if self.state == State::Starting {
            let oldest = engine.compacted()?;
            if self.cursor < oldest {
                return Err(Error::Compacted { oldest });
            }
            self.state = State::Running;
        }
        let committed = match engine.feed().take(self.cursor) {
            Some(committed) => committed,
            None => {
                let (engine, after) = (engine.clone(), self.cursor);
                tokio::task::spawn_blocking(move || engine.history(after)).await.map_err(|_| Error::Unavailable)??
            }
        };
        if committed.is_empty() {
            // The watcher does not hold the engine while it sleeps, so that the engine can be closed.
            drop(engine);
            let cursor = self.cursor.0;
            self.bell.wait_for(|newest| *newest > cursor).await.map_err(|_| Error::Unavailable)?;
        }
        self.taken = committed.into();
        Ok(())
    }
}
