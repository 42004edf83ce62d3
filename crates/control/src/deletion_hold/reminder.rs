//! The times at which a holder logs its holds, and lists the objects again.

use std::time::{Duration, Instant};

use super::hold::Held;
use signpost_types::v1alpha1::deletion_hold::{Decision, DeletionHoldCause};

/// The interval of log lines about a hold without a decision.
const LOGGED_AGAIN: Duration = Duration::from_secs(600);
/// The wait from the start of a hold to another list.
const RELIST_FIRST: Duration = Duration::from_secs(5);
/// The longest wait between such lists.
const RELIST_LONGEST: Duration = Duration::from_secs(300);

/// The times of one holder.
pub struct Reminder {
    /// The consequence of its holds, for the log.
    consequence: &'static str,
    /// The logged holds, with their numbers of objects, and the time.
    logged: (Vec<(String, Option<Decision>, usize)>, Instant),
    /// The time of the next list, and the wait before it.
    relist: Option<(Instant, Duration)>,
}

impl Reminder {
    pub fn new(consequence: &'static str) -> Self {
        Reminder { consequence, logged: (Vec::new(), Instant::now()), relist: None }
    }

    /// Returns whether another list is due, soon and then with growing intervals: if a list lacked objects by mistake, no watch
    /// shows them again, because they do not change.
    pub fn is_relist_due(&mut self, held: &[Held], now: Instant) -> bool {
        if held.is_empty() {
            self.relist = None;
            return false;
        }
        let (due, wait) = *self.relist.get_or_insert((now + RELIST_FIRST, RELIST_FIRST));
        if now < due {
            return false;
        }
        let wait = (wait * 2).min(RELIST_LONGEST);
        self.relist = Some((now + wait, wait));
        true
    }

    /// Logs the holds: when one begins or is decided, each time that it has doubled, and every `LOGGED_AGAIN` while one waits
    /// for a decision.
    pub fn log(&mut self, held: &[Held]) {
        let now: Vec<_> = held.iter().map(|held| (held.id.clone(), held.decision, held.count)).collect();
        let waits = held.iter().any(|held| held.decision.is_none());
        let (before, at) = &self.logged;
        let is_logged = |(now, before): (&(String, _, usize), &(String, _, usize))| {
            (&now.0, now.1) == (&before.0, before.1) && now.2 < before.2.saturating_mul(2)
        };
        let all_logged = now.len() == before.len() && now.iter().zip(before).all(is_logged);
        if all_logged && !(waits && at.elapsed() >= LOGGED_AGAIN) {
            return;
        }
        if held.is_empty() {
            tracing::info!("all deletion holds ended");
        }
        for Held { id, kind, cause, count, known, names, decision, .. } in held {
            let (kind, names) = (kind.word(), names.join(" "));
            if *decision == Some(Decision::Reject) {
                tracing::info!(%id, kind, count, "deletion rejected: {}", self.consequence);
                continue;
            }
            let how = match cause {
                DeletionHoldCause::List => "objects are missing from the API's list",
                DeletionHoldCause::Burst => "many objects were deleted in a short time",
            };
            tracing::error!(
                %id,
                kind,
                count,
                known,
                %names,
                "{how}; {}: restore the objects, or run \"signpost hold approve {id}\" or \"signpost hold reject {id}\"",
                self.consequence
            );
        }
        self.logged = (now, Instant::now());
    }
}
