//! The times of renewal that the CA has suggested, in memory: the next leader requests them again.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::plan::{Subject, Window};

/// The time without requests after one that the CA did not answer: each can take half a minute, and a new leader has one for each certificate
/// before it reports their states.
const QUIET: i64 = 600;

/// The suggestion for a certificate.
#[derive(Clone)]
struct Suggestion {
    /// The identifier of the certificate.
    id: String,
    window: Option<Window>,
    /// The time of the next request, in seconds since 1970.
    check_at: i64,
}

#[derive(Default)]
pub(super) struct Suggestions(Mutex<SuggestionMap>);

#[derive(Default)]
struct SuggestionMap {
    suggestions: HashMap<Subject, Suggestion>,
    /// The time before which there is no request, in seconds since 1970.
    quiet_until: i64,
}

impl Suggestions {
    /// Returns the last window for a certificate, and whether a request is due at `now`.
    pub(super) fn of(&self, subject: &Subject, id: &str, now: i64) -> (Option<Window>, bool) {
        let map = self.0.lock();
        let known = map.suggestions.get(subject).filter(|known| known.id == id);
        let is_due = now >= map.quiet_until && known.is_none_or(|known| now >= known.check_at);
        (known.and_then(|known| known.window), is_due)
    }

    /// Records the window of a certificate, and the time of the next request.
    pub(super) fn set(&self, subject: &Subject, id: &str, window: Option<Window>, check_at: i64) {
        let suggestion = Suggestion { id: id.to_owned(), window, check_at };
        self.0.lock().suggestions.insert(subject.clone(), suggestion);
    }

    /// Records that the CA answers no request, and the pause that it requires, in seconds.
    pub(super) fn wait(&self, now: i64, pause: i64) {
        self.0.lock().quiet_until = now.saturating_add(pause.max(QUIET));
    }

    pub(super) fn forget(&self, subject: &Subject) {
        self.0.lock().suggestions.remove(subject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_when_the_ca_permits_it() {
        let (suggestions, window) = (Suggestions::default(), Window::new(10, 20));
        let [one, two] = ["one.example", "two.example"].map(|host| Subject::host("n", "r", host));
        assert_eq!(suggestions.of(&one, "a.b", 100), (None, true));
        suggestions.set(&one, "a.b", window, 200);
        assert_eq!(suggestions.of(&one, "a.b", 199), (window, false));
        assert_eq!(suggestions.of(&one, "a.b", 200), (window, true));
        // Another certificate of the same host.
        assert_eq!(suggestions.of(&one, "a.c", 100), (None, true));
        // The CA is away: no request for any certificate, and the last window stays.
        for (pause, until) in [(0, 900), (7_200, 7_500)] {
            suggestions.wait(300, pause);
            assert_eq!(suggestions.of(&one, "a.b", until - 1), (window, false));
            assert_eq!(suggestions.of(&two, "x.y", until - 1), (None, false));
            assert_eq!(suggestions.of(&two, "x.y", until), (None, true));
        }
        suggestions.forget(&one);
        assert_eq!(suggestions.of(&one, "a.b", 10_000), (None, true));
    }
}
