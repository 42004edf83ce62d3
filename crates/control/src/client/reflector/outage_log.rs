//! Log lines about informers that fail.
//!
//! A process has an informer for each kind, and an outage of the API ends them all repeatedly. The log gets one line when the
//! outage begins, one at intervals while it lasts, and one when it is over. A kind that is unknown to the API is logged in the
//! same way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Restart;

/// The shortest time between two equal log lines.
const AGAIN: Duration = Duration::from_secs(600);

/// The log of this process.
static LOG: LazyLock<Mutex<OutageLog>> = LazyLock::new(Mutex::default);

pub(super) struct InformerLog {
    kind: String,
    reflector: u64,
    fails: bool,
}

impl InformerLog {
    pub(super) fn new(kind: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        InformerLog { kind: kind.to_owned(), reflector: NEXT.fetch_add(1, Ordering::Relaxed), fails: false }
    }

    /// Logs that the informer must restart.
    pub(super) fn failed(&mut self, reason: Restart, error: &str) {
        self.fails = true;
        let line = LOG.lock().failed(self.reflector, &self.kind, reason, error, Instant::now());
        match line {
            Some(line) => tracing::warn!("{line}"),
            None => tracing::debug!(kind = self.kind, reason = reason.label(), error, "informer restarted"),
        }
    }

    /// Logs that the API has responded.
    pub(super) fn answered(&mut self) {
        if std::mem::take(&mut self.fails) && LOG.lock().answered(self.reflector, &self.kind) {
            tracing::info!("the API is reachable again");
        }
    }
}

impl Drop for InformerLog {
    fn drop(&mut self) {
        if self.fails {
            LOG.lock().unanswered.remove(&self.reflector);
        }
    }
}

/// The logged outages.
#[derive(Default)]
struct OutageLog {
    /// The informers without a response of the API, and the time of the log line.
    unanswered: BTreeSet<u64>,
    outage: Option<Instant>,
    /// The errors of kinds, and the times of their log lines.
    kinds: BTreeMap<(String, Restart), (String, Instant)>,
}

impl OutageLog {
    /// Returns the line, if it is due.
    fn failed(&mut self, reflector: u64, kind: &str, reason: Restart, error: &str, now: Instant) -> Option<String> {
        let is_recent = |logged: Instant| now < logged + AGAIN;
        if matches!(reason, Restart::Closed | Restart::Unreachable | Restart::TimedOut | Restart::Failing) {
            self.unanswered.insert(reflector);
            if self.outage.is_some_and(is_recent) {
                return None;
            }
            self.outage = Some(now);
            return Some(format!(
                "the API is unreachable: {error}; DNS answers continue with the last known objects, and changes wait \
                 until the API is reachable"
            ));
        }
        let key = (kind.to_owned(), reason);
        if self.kinds.get(&key).is_some_and(|(logged, at)| is_recent(*at) && logged == error) {
            return None;
        }
        self.kinds.insert(key, (error.to_owned(), now));
        Some(match reason {
            Restart::Missing => format!(
                "the API does not serve the kind {kind}: install the CustomResourceDefinitions with \"signpost crds \
                 --domain DOMAIN | kubectl apply --server-side -f -\"; retrying"
            ),
            _ => format!("relisting all objects of the kind {kind} ({}): {error}", reason.label()),
        })
    }

    /// Returns whether a logged outage is over.
    fn answered(&mut self, reflector: u64, kind: &str) -> bool {
        self.kinds.remove(&(kind.to_owned(), Restart::Missing));
        self.unanswered.remove(&reflector) && self.unanswered.is_empty() && self.outage.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_once_and_then_rarely() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let mut lines = 0;
        for second in 0..1_000 {
            let now = start + Duration::from_secs(second);
            for reflector in 0..6 {
                let line = log.failed(reflector, "Zone", Restart::Unreachable, &format!("refused {reflector}"), now);
                lines += line.map_or(0, |line| usize::from(line.contains("answers continue")));
            }
        }
        assert_eq!(lines, 2);
        let over: Vec<bool> = (0..6).map(|reflector| log.answered(reflector, "Zone")).collect();
        assert_eq!(over, [false, false, false, false, false, true], "when all were answered");
        assert!(log.failed(0, "Zone", Restart::TimedOut, "nothing", start).is_some(), "the next is logged at once");
    }

    #[test]
    fn a_missing_kind_is_logged_once_and_then_rarely() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let mut fail = |kind: &str, second: u64| {
            log.failed(second, kind, Restart::Missing, "404", start + Duration::from_secs(second))
        };
        let line = fail("Zone", 0).expect("it is logged");
        assert!(line.contains("kind Zone") && line.contains("signpost crds"), "{line}");
        assert!(fail("Router", 1).is_some() && fail("Zone", 1).is_none() && fail("Zone", 599).is_none());
        assert!(fail("Zone", 601).is_some());
        log.answered(1, "Zone");
        assert!(log.failed(1, "Zone", Restart::Missing, "404", start).is_some());
    }
}
