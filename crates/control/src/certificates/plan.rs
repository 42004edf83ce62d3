//! The next step for a certificate. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::budget::PlacedOrder;
use crate::client::backoff::delay;
use crate::hash::hash_of;
use crate::work::queue::Item;

/// The pause after a failed validation: the first and the longest. Let's Encrypt permits five for each host and hour.
const VALIDATION_PAUSE: [Duration; 2] = [Duration::from_secs(1_800), Duration::from_secs(86_400)];
/// The pause after another failure, such as of a CA that is away.
const PAUSE: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(3_600)];
/// The share of its validity at which a certificate is renewed: two thirds of it, as Let's Encrypt recommends.
const RENEWED_AT: (i64, i64) = (2, 3);
/// The inverse share of the validity by which certificates are renewed earlier at random, so that those of one day are not renewed at once.
const SPREAD: i64 = 30;

/// The time, in seconds, after which an order that the CA does not finish is given up. The CA can have lost it in an outage.
const ORDER_LIFETIME: u64 = 4 * 3_600;
/// The largest difference between the clocks of leaders, in seconds.
const CLOCK_DIFFERENCE: i64 = 300;

/// The names of one certificate: `*.` and the zone of a Router, with the zone itself, or a custom host of Routes on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Subject {
    /// The namespace of the Routes; `None` for a zone.
    pub(super) namespace: Option<String>,
    pub(super) router: String,
    pub(super) host: String,
}

impl Subject {
    pub(super) fn zone(router: &str, zone: &str) -> Subject {
        Subject { namespace: None, router: router.to_owned(), host: format!("*.{}", zone.to_ascii_lowercase()) }
    }

    pub(super) fn host(namespace: &str, router: &str, host: &str) -> Subject {
        let namespace = Some(namespace.to_owned());
        Subject { namespace, router: router.to_owned(), host: host.to_ascii_lowercase() }
    }

    pub(super) fn is_zone(&self) -> bool {
        self.namespace.is_none()
    }

    /// Returns whether it is a custom host with an asterisk, for which no instance can answer a challenge.
    pub(super) fn is_wildcard_host(&self) -> bool {
        !self.is_zone() && self.host.starts_with("*.")
    }

    /// Returns the names that the certificate needs.
    pub(super) fn names(&self) -> Vec<String> {
        let zone = self.host.strip_prefix("*.").filter(|_| self.is_zone()).map(str::to_owned);
        std::iter::once(self.host.clone()).chain(zone).collect()
    }

    /// Returns a number that stays the same, and differs between subjects.
    fn seed(&self) -> u64 {
        hash_of(&(&self.router, &self.host))
    }
}

/// Namespaces share the orders in progress.
impl Item for Subject {
    type Owner = Option<String>;

    fn owner(&self) -> &Option<String> {
        &self.namespace
    }
}

/// The reasons why a certificate cannot be ordered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// The host does not lead here, as far as is known, or its ownership is not verified.
    Elsewhere,
    /// The instances of the Router have another port for plain HTTP.
    Port(u16),
}

impl Blocked {
    /// Returns the reason of the condition, and the message.
    pub(super) fn describe(self, host: &str) -> (&'static str, String) {
        match self {
            Blocked::Elsewhere => (
                "HostNotReady",
                format!(
                    "the platform orders a certificate for {host} when HostPointsHere is True, and HostVerified if the platform verifies \
                     hosts; create the record in status.names"
                ),
            ),
            Blocked::Port(port) => (
                "NoPort80",
                format!(
                    "the platform cannot get a certificate for {host}: certificate authorities connect to port 80, and the instances of the \
                     Router have port {port} (spec.ports.http); name a Secret in spec.tls.secretName, or move the Route"
                ),
            ),
        }
    }
}

/// A certificate that the platform got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Issued {
    /// The start and the last second of its validity, in seconds since 1970.
    pub(super) not_before: i64,
    pub(super) not_after: i64,
    pub(super) names: Vec<String>,
    /// The name of the CA.
    pub(super) issuer: String,
    /// The configured directory of the CA.
    pub(super) directory: String,
    /// The identifier under which the CA suggests the time of renewal; `None`: the certificate has none.
    pub(super) id: Option<String>,
}

/// The time in which the CA suggests to renew a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    start: i64,
    end: i64,
}

impl Window {
    /// Returns a window; `None`: it does not end after its start.
    pub(super) fn new(start: i64, end: i64) -> Option<Window> {
        (start < end).then_some(Window { start, end })
    }

    /// Returns the time of renewal of a certificate: at random, and the same for as long as the window is.
    fn time(self, issued: &Issued, seed: u64) -> i64 {
        let length = self.end.saturating_sub(self.start).unsigned_abs().max(1);
        self.start.saturating_add_unsigned(hash_of(&(seed, &issued.id)) % length)
    }
}

/// The state of a certificate that is being ordered, apart from its private key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attempt {
    /// The directory of the CA.
    pub(super) directory: String,
    /// The time of the order, in seconds since 1970.
    pub(super) since: i64,
    /// The URL of the order; `None`: it ended, or the CA has none yet.
    pub(super) order: Option<String>,
    /// The failures in a row.
    pub(super) failures: u32,
    /// The failed validations among them.
    #[serde(default)]
    pub(super) failed_validations: u32,
    /// The time of the last failure, in seconds since 1970.
    #[serde(default)]
    pub(super) failed_at: i64,
    /// The time of the next attempt, in seconds since 1970.
    pub(super) retry_at: i64,
    /// The last failure, and its reason: `None` if the last order succeeded.
    pub(super) problem: Option<String>,
    #[serde(default)]
    pub(super) reason: Option<String>,
    /// The orders of the last hour.
    #[serde(default)]
    pub(super) orders: Vec<PlacedOrder>,
}

/// A failure of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// One word for the metrics.
    pub(super) reason: String,
    pub(super) message: String,
    /// Whether the CA tried to validate a name.
    pub(super) is_validation: bool,
    /// The pause that the CA requires.
    pub(super) retry_after: Option<Duration>,
}

impl Attempt {
    /// Returns the state after a success, in which the next leader finds the orders.
    pub(super) fn succeeded(self) -> Attempt {
        let Attempt { directory, since, orders, .. } = self;
        Attempt { directory, since, orders, ..Attempt::default() }
    }

    /// Records an order that the CA is about to receive.
    pub(super) fn begin(&mut self, placed: PlacedOrder, now: i64) {
        self.orders.retain(|placed| placed.counts(now));
        self.orders.push(placed);
        (self.order, self.since) = (None, now);
    }

    /// Returns whether no order is in progress or failed.
    pub(super) fn is_over(&self) -> bool {
        self.order.is_none() && self.problem.is_none()
    }

    /// Returns whether the pause after a failure lasts. One that begins in the future is of a clock that was wrong.
    fn pauses(&self, now: i64) -> bool {
        now < self.retry_at && now >= self.failed_at.saturating_sub(CLOCK_DIFFERENCE)
    }

    /// Records a failure before an order, after which there is no pause.
    pub(super) fn note(&mut self, failure: &Failure, now: i64) {
        (self.failed_at, self.retry_at) = (now, now);
        self.problem = Some(failure.message.clone());
        self.reason = Some(failure.reason.clone());
    }

    /// Records a failure; `random` is a random number. Such an order ends if the CA has refused it.
    pub(super) fn fail(&mut self, failure: &Failure, ends: bool, now: i64, random: u64) {
        // A CA that was away has not counted anything, so that a validation after that waits like a first one.
        let ([first, longest], earlier) = match failure.is_validation {
            true => (VALIDATION_PAUSE, self.failed_validations),
            false => (PAUSE, self.failures),
        };
        let pause = delay(first, longest, earlier, random).max(failure.retry_after.unwrap_or_default());
        self.failures = self.failures.saturating_add(1);
        self.failed_validations = self.failed_validations.saturating_add(failure.is_validation.into());
        self.note(failure, now);
        self.retry_at = now.saturating_add_unsigned(pause.as_secs());
        if ends || now.abs_diff(self.since) > ORDER_LIFETIME {
            self.order = None;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is nothing to do until a time, in seconds since 1970.
    Wait(i64),
    Blocked(Blocked),
    /// Continue the order with this URL.
    Resume(String),
    Order,
}

/// Returns the next step at `now`, and the time of the next renewal if there is a certificate that can be used. `window`: in which the CA
/// suggests to renew it.
pub(super) fn next(
    subject: &Subject,
    directory: &str,
    (issued, window): (Option<&Issued>, Option<Window>),
    attempt: Option<&Attempt>,
    blocked: Option<Blocked>,
    now: i64,
) -> (Step, Option<i64>) {
    let names = subject.names();
    let covers = |issued: &&Issued| names.iter().all(|name| issued.names.contains(name)) && now <= issued.not_after;
    let issued = issued.filter(covers);
    // After a change of the directory, a certificate of another CA is replaced at once: it can be one of a test.
    let renewal = issued.map(|issued| match issued.directory == directory {
        true => {
            let suggested = window.map(|window| window.time(issued, subject.seed()));
            // A suggestion after its end is of no use.
            suggested.filter(|at| *at < issued.not_after).unwrap_or_else(|| renewal(issued, subject.seed()))
        }
        false => now,
    });
    let attempt = attempt.filter(|attempt| attempt.directory == directory);
    let step = match (renewal, attempt, blocked) {
        (Some(renewal), ..) if now < renewal => Step::Wait(renewal),
        (.., Some(blocked)) => Step::Blocked(blocked),
        (_, Some(attempt), _) if attempt.pauses(now) => Step::Wait(attempt.retry_at),
        (_, Some(Attempt { order: Some(order), .. }), _) => Step::Resume(order.clone()),
        _ => Step::Order,
    };
    (step, renewal)
}

/// Returns the time at which a certificate is renewed.
fn renewal(issued: &Issued, seed: u64) -> i64 {
    let validity = issued.not_after.saturating_sub(issued.not_before).max(0);
    let spread = u64::try_from(validity / SPREAD + 1).unwrap_or(1);
    let earlier = i64::try_from(seed % spread).unwrap_or(0);
    issued.not_before.saturating_add(validity / RENEWED_AT.1 * RENEWED_AT.0).saturating_sub(earlier)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn issued(names: &[&str], from: i64, until: i64, directory: &str) -> Issued {
        Issued {
            not_before: from * DAY,
            not_after: until * DAY,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            issuer: "Test CA".to_owned(),
            directory: directory.to_owned(),
            id: Some("a.b".to_owned()),
        }
    }

    fn attempt(directory: &str, order: Option<&str>, retry_at: i64) -> Attempt {
        let order = order.map(str::to_owned);
        Attempt { directory: directory.to_owned(), order, retry_at: retry_at * DAY, ..Attempt::default() }
    }

    /// A certificate, an attempt, a block, the day, and the step: `wait` with the day on which it ends.
    #[test]
    fn steps() {
        let zone = Subject::zone("s1", "S1.example");
        let good = issued(&["*.s1.example", "s1.example"], 0, 90, "ca");
        let (half, old) =
            (issued(&["*.s1.example"], 0, 90, "ca"), issued(&["*.s1.example", "s1.example"], 0, 90, "test"));
        let (running, failed) = (attempt("ca", Some("url"), 0), attempt("ca", None, 65));
        let (late, other) = (attempt("ca", Some("url"), 65), attempt("test", Some("url"), 65));
        // The clock was a year ahead.
        let ahead = |order| Attempt { failed_at: 364 * DAY, ..attempt("ca", order, 365) };
        let (ahead, running_ahead) = (ahead(None), ahead(Some("url")));
        let elsewhere = Some(Blocked::Elsewhere);
        for (issued, attempt, blocked, day, expected) in [
            (None, None, None, 0, "order"),
            (None, None, elsewhere, 0, "blocked"),
            (None, Some(&running), None, 0, "url"),
            (None, Some(&running), elsewhere, 0, "blocked"),
            (None, Some(&failed), None, 64, "wait 65"),
            (None, Some(&failed), None, 65, "order"),
            (None, Some(&late), None, 64, "wait 65"),
            (None, Some(&late), None, 65, "url"),
            (None, Some(&ahead), None, 64, "order"),
            (None, Some(&running_ahead), None, 64, "url"),
            (Some(&good), Some(&ahead), None, 61, "order"),
            (None, Some(&ahead), None, 364, "wait 365"),
            // That of another CA.
            (None, Some(&other), None, 1, "order"),
            (Some(&good), None, None, 1, "wait 57"),
            // A good certificate needs nothing else, and a block matters when it is renewed.
            (Some(&good), Some(&running), elsewhere, 56, "wait 57"),
            (Some(&good), None, elsewhere, 60, "blocked"),
            (Some(&good), None, None, 60, "order"),
            (Some(&good), Some(&failed), None, 61, "wait 65"),
            (Some(&good), Some(&running), None, 61, "url"),
            (Some(&good), None, None, 91, "order"),
            (Some(&half), None, None, 1, "order"),
            (Some(&old), None, None, 1, "order"),
        ] {
            let (step, renewal) = next(&zone, "ca", (issued, None), attempt, blocked, day * DAY);
            let said = match step {
                Step::Wait(until) => format!("wait {}", until / DAY),
                Step::Blocked(_) => "blocked".to_owned(),
                Step::Resume(url) => url,
                Step::Order => "order".to_owned(),
            };
            assert!(
                said == expected || said.replace("58", "57").replace("59", "57") == expected,
                "{issued:?} {attempt:?} {day}: {said}"
            );
            assert_eq!(renewal.is_some(), issued.is_some_and(|issued| issued != &half && day <= 90));
        }
    }

    #[test]
    fn renewals_are_spread_and_stay() {
        let of = |host: &str, days: i64| renewal(&issued(&[host], 0, days, "ca"), Subject::host("n", "r", host).seed());
        for days in [1, 6, 45, 90] {
            let times: Vec<i64> = (0..200).map(|at| of(&format!("h{at}.example"), days)).collect();
            let (first, last) = (times.iter().min().expect("some"), times.iter().max().expect("some"));
            let (end, spread) = (days * DAY * 2 / 3, days * DAY / 30);
            assert!(*first >= end - spread - 1 && *last <= end && last - first > spread / 2, "{days}: {first} {last}");
            assert_eq!(of("h7.example", days), times[7]);
        }
    }

    /// The window that the CA suggests, and the first and the last day of the renewal.
    #[test]
    fn the_ca_suggests_the_time_of_renewal() {
        let host = |at: usize| Subject::host("n", "r", &format!("h{at}.example"));
        let window = |from: i64, until: i64| Window::new(from * DAY, until * DAY);
        for (window, first, last) in [
            (None, 57, 60),
            (window(10, 12), 10, 12),
            (window(62, 80), 62, 80),
            // It revokes them.
            (window(-5, -1), -5, -1),
            // Of no use.
            (window(12, 10), 57, 60),
            (window(12, 12), 57, 60),
            (window(400, 500), 57, 60),
            (Window::new(i64::MIN, i64::MAX), i64::MIN / DAY, 90),
        ] {
            for at in 0..50 {
                let issued = issued(&[&host(at).host], 0, 90, "ca");
                let renewal = |directory| next(&host(at), directory, (Some(&issued), window), None, None, 20 * DAY).1;
                let time = renewal("ca").expect("it is in use");
                assert!((first * DAY..=last * DAY).contains(&time), "{window:?} {}", time / DAY);
                assert_eq!(renewal("ca"), Some(time), "it stays");
                assert_eq!(renewal("other"), Some(20 * DAY), "of another CA");
            }
        }
        let times: std::collections::BTreeSet<Option<i64>> = (0..50)
            .map(|at| {
                let issued = issued(&[&host(at).host], 0, 90, "ca");
                next(&host(at), "ca", (Some(&issued), window(10, 12)), None, None, 0).1
            })
            .collect();
        assert!(times.len() > 40, "they are spread");
    }

    /// The CA has lost an order, or never finishes it.
    #[test]
    fn an_order_that_never_ends_is_given_up() {
        let failure = Failure {
            reason: "timeout".to_owned(),
            message: "not yet".to_owned(),
            is_validation: false,
            retry_after: None,
        };
        let mut attempt = attempt("ca", Some("url"), 0);
        let mut now = attempt.since;
        while attempt.order.is_some() {
            now = attempt.retry_at.max(now);
            attempt.fail(&failure, false, now, 0);
            assert!(now < 6 * 3_600, "{attempt:?}");
        }
        assert!(now.unsigned_abs() > ORDER_LIFETIME);
        // That of a clock which was ahead, too.
        let mut ahead = Attempt { order: Some("url".to_owned()), since: 365 * DAY, ..Attempt::default() };
        ahead.fail(&failure, false, DAY, 0);
        assert_eq!(ahead.order, None);
        let attempt = attempt.succeeded();
        assert!(attempt.is_over() && attempt.failures == 0 && attempt.directory == "ca");
    }

    #[test]
    fn failures_wait_longer_each_time() {
        let failure = |is_validation, seconds: Option<u64>| Failure {
            reason: "connection".to_owned(),
            message: "it refused".to_owned(),
            is_validation,
            retry_after: seconds.map(Duration::from_secs),
        };
        let mut attempt = attempt("ca", Some("url"), 0);
        for (failure, ends, waits) in [
            (failure(true, None), true, 900..=1_800),
            (failure(true, None), false, 1_800..=3_600),
            (failure(false, None), false, 16..=32),
            (failure(false, Some(5_000)), false, 5_000..=5_000),
        ] {
            attempt.fail(&failure, ends, 1_000, 0);
            assert!(waits.contains(&(attempt.retry_at - 1_000)), "{failure:?} {attempt:?}");
            assert_eq!((attempt.order.as_deref(), attempt.problem.as_deref()), (None, Some("it refused")));
        }
        assert_eq!(attempt.failures, 4);
        // That of a former version has no number of validations.
        let former =
            r#"{"directory": "ca", "since": 0, "order": null, "failures": 6, "retryAt": 0, "problem": "away"}"#;
        let mut attempt: Attempt = serde_json::from_str(former).expect("an attempt");
        for first in [900, 1_800] {
            attempt.fail(&failure(true, None), true, 1_000, 0);
            assert!((first..=2 * first).contains(&(attempt.retry_at - 1_000)), "{attempt:?}");
            attempt.fail(&failure(false, None), true, 1_000, 0);
        }
    }
}
