//! A watch of etcd that reopens after an error.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{WatchOptions, WatchStream};
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Cluster, REOPEN, end_of, revision_of, signed, unsigned};
use crate::store::{Error, Event, Result, Revision};

/// Returns the changes of keys with `prefix` after the revision `after`, until `closed`.
pub(super) fn watch(
    cluster: Arc<Cluster>,
    closed: CancellationToken,
    prefix: String,
    after: Revision,
) -> BoxStream<'static, Result<Vec<Event>>> {
    let (taken, pause) = (VecDeque::new(), REOPEN.0);
    let watch =
        Watch { cluster, closed, prefix, after, open: None, taken, pause, is_reopened: false, is_finished: false };
    stream::unfold(watch, |mut watch| async move {
        let item = watch.next().await?;
        watch.is_finished = item.is_err();
        Some((item, watch))
    })
    .boxed()
}

/// A watch that resumes at the revision that it has reached.
struct Watch {
    cluster: Arc<Cluster>,
    closed: CancellationToken,
    prefix: String,
    /// The last revision that the stream has returned.
    after: Revision,
    open: Option<WatchStream>,
    /// Received revisions that the stream has not returned yet.
    taken: VecDeque<Vec<Event>>,
    pause: Duration,
    /// Whether it was opened before.
    is_reopened: bool,
    is_finished: bool,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<Vec<Event>>> {
        if self.is_finished {
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

    /// Waits for a message of the watch. Opens the watch first if necessary.
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
        let newest = revision_of(response.header());
        if response.created() {
            // A restored etcd would send nothing until it reaches this revision again.
            let is_other = response.header().is_some_and(|header| header.cluster_id() != self.cluster.id);
            if is_other || (self.is_reopened && newest < self.after) {
                return Err(Error::WentBack { newest });
            }
        } else if response.events().is_empty() && self.cluster.has_progress {
            // A progress notification: a watch that reopens here does not need compacted revisions.
            self.after = self.after.max(newest);
        }
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
            .with_prev_key()
            .with_progress_notify();
        let mut watches = self.cluster.connection.load().watches.clone();
        match watches.watch(self.prefix.clone(), Some(options)).await {
            Ok(watch) => self.open = Some(watch),
            Err(error) => return self.broken(&error.to_string()).await,
        }
        Ok(())
    }

    /// Handles an error, such as a cluster without a leader: the watch reopens after a pause.
    async fn broken(&mut self, error: &str) -> Result<()> {
        // One line per outage.
        if self.pause == REOPEN.0 {
            tracing::warn!(error, "the watch of etcd failed; reopening");
        }
        (self.open, self.is_reopened) = (None, true);
        self.cluster.metrics.reopened.inc();
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(REOPEN.1);
        Ok(())
    }
}
