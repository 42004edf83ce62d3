//! Log lines about informers that fail.
//!
//! A process has an informer for each kind, and an outage of the API ends them all repeatedly. The log gets one line when the
//! outage begins, one at intervals while it lasts, and one when it is over. A kind that is unknown to the API is logged in the
//! same way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ApiOf, Restart};

/// The shortest time between two equal log lines.
const AGAIN: Duration = Duration::from_secs(600);

/// The log of this process for each API: an outage of one must not hide that of the other.
static PLATFORM: Mutex<OutageLog> = Mutex::new(OutageLog::new(ApiOf::Platform));
static SOURCES: Mutex<OutageLog> = Mutex::new(OutageLog::new(ApiOf::Sources));

pub(super) struct InformerLog {
    log: &'static Mutex<OutageLog>,
    kind: String,
    reflector: u64,
    fails: bool,
}

impl InformerLog {
    pub(super) fn new(api: ApiOf, kind: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let log = match api {
            ApiOf::Platform => &PLATFORM,
            ApiOf::Sources => &SOURCES,
        };
        InformerLog { log, kind: kind.to_owned(), reflector: NEXT.fetch_add(1, Ordering::Relaxed), fails: false }
    }

    /// Logs that the informer must restart.
    pub(super) fn failed(&mut self, reason: Restart, error: &str) {
        self.fails = true;
        let line = self.log.lock().failed(self.reflector, &self.kind, reason, error, Instant::now());
        match line {
            Some(line) => tracing::warn!("{line}"),
            None => tracing::debug!(kind = self.kind, reason = reason.label(), error, "informer restarted"),
        }
    }

    /// Logs that the API has responded.
    pub(super) fn answered(&mut self) {
        if std::mem::take(&mut self.fails) {
            let line = self.log.lock().answered(self.reflector, &self.kind);
            line.inspect(|line| tracing::info!("{line}"));
        }
    }
}

impl Drop for InformerLog {
    fn drop(&mut self) {
        if self.fails {
            self.log.lock().unanswered.remove(&self.reflector);
        }
    }
}

/// The logged outages of an API.
struct OutageLog {
    api: ApiOf,
    /// The informers without a response of the API, and the time of the log line.
    unanswered: BTreeSet<u64>,
    outage: Option<Instant>,
    /// The errors of kinds, and the times of their log lines.
    kinds: BTreeMap<(String, Restart), (String, Instant)>,
}

impl OutageLog {
    const fn new(api: ApiOf) -> OutageLog {
        OutageLog { api, unanswered: BTreeSet::new(), outage: None, kinds: BTreeMap::new() }
    }

    /// Returns the line, if it is due.
    fn failed(&mut self, reflector: u64, kind: &str, reason: Restart, error: &str, now: Instant) -> Option<String> {
        let is_recent = |logged: Instant| now < logged + AGAIN;
        if matches!(reason, Restart::Closed | Restart::Unreachable | Restart::TimedOut | Restart::Failing) {
            self.unanswered.insert(reflector);
            if self.outage.is_some_and(is_recent) {
                return None;
            }
            self.outage = Some(now);
            return Some(match self.api {
                ApiOf::Platform => format!(
                    "the API is unreachable: {error}; DNS answers continue with the last known objects, and changes \
                     wait until the API is reachable"
                ),
                ApiOf::Sources => format!(
                    "the API of the source cluster is unreachable: {error}; what its objects published stays, and \
                     their changes wait until it is reachable"
                ),
            });
        }
        let key = (kind.to_owned(), reason);
        if self.kinds.get(&key).is_some_and(|(logged, at)| is_recent(*at) && logged == error) {
            return None;
        }
        self.kinds.insert(key, (error.to_owned(), now));
        Some(match (reason, self.api) {
            (Restart::Missing, ApiOf::Sources) => {
                format!("the source cluster does not serve the kind {kind}: what its objects published stays; retrying")
            }
            (Restart::Missing, ApiOf::Platform) => format!(
                "the API does not serve the kind {kind}: install the CustomResourceDefinitions with \"signpost crds \
                 --domain DOMAIN | kubectl apply --server-side -f -\"; retrying"
            ),
            _ => format!("relisting all objects of the kind {kind} ({}): {error}", reason.label()),
        })
    }

    /// Returns the line if a logged outage is over.
    fn answered(&mut self, reflector: u64, kind: &str) -> Option<&'static str> {
        self.kinds.remove(&(kind.to_owned(), Restart::Missing));
        let is_over = self.unanswered.remove(&reflector) && self.unanswered.is_empty() && self.outage.take().is_some();
        is_over.then_some(match self.api {
            ApiOf::Platform => "the API is reachable again",
            ApiOf::Sources => "the API of the source cluster is reachable again",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_once_and_then_rarely() {
        let (mut log, start) = (OutageLog::new(ApiOf::Platform), Instant::now());
        let mut lines = 0;
        for second in 0..1_000 {
            let now = start + Duration::from_secs(second);
            for reflector in 0..6 {
                let line = log.failed(reflector, "Zone", Restart::Unreachable, &format!("refused {reflector}"), now);
                lines += line.map_or(0, |line| usize::from(line.contains("answers continue")));
            }
        }
        assert_eq!(lines, 2);
        let over: Vec<bool> = (0..6).map(|reflector| log.answered(reflector, "Zone").is_some()).collect();
        assert_eq!(over, [false, false, false, false, false, true], "when all were answered");
        assert!(log.failed(0, "Zone", Restart::TimedOut, "nothing", start).is_some(), "the next is logged at once");
    }

    #[test]
    fn an_outage_of_the_source_cluster_hides_none_of_the_platform() {
        let [of_sources, of_platform] =
            [ApiOf::Sources, ApiOf::Platform].map(|api| InformerLog::new(api, "Service").log);
        assert!(!std::ptr::eq(of_sources, of_platform));
        let (mut sources, mut platform) = (OutageLog::new(ApiOf::Sources), OutageLog::new(ApiOf::Platform));
        let fail = |log: &mut OutageLog, reason| log.failed(7, "Service", reason, "refused", Instant::now());
        for (api, reason, expected) in [
            (ApiOf::Sources, Restart::Unreachable, "the API of the source cluster is unreachable: refused; what"),
            (ApiOf::Platform, Restart::Unreachable, "the API is unreachable: refused; DNS answers continue"),
            (ApiOf::Sources, Restart::Missing, "the source cluster does not serve the kind Service: what"),
        ] {
            let log = if api == ApiOf::Sources { &mut sources } else { &mut platform };
            let line = fail(log, reason).expect("it is logged");
            assert!(line.starts_with(expected), "{line}");
            assert_eq!(fail(log, reason), None);
        }
        assert_eq!(sources.answered(7, "Service"), Some("the API of the source cluster is reachable again"));
        assert_eq!(platform.answered(7, "Service"), Some("the API is reachable again"));
    }

    #[test]
    fn a_missing_kind_is_logged_once_and_then_rarely() {
        let (mut log, start) = (OutageLog::new(ApiOf::Platform), Instant::now());
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
