//! When a former name whose time is over ends: when its name was not asked for in the quiet time, or the longest time is over.
//!
//! ```text
//!  the route leaves         retention, caches      asked  asked
//!  ├────────────────────────────┤────────────────────┤──────┤┄┄┄┄┄┄ idle-timeout ┄┄┄┄┄┄┤ the former name ends
//!                               until: then it is looked at     until: then it is looked at
//! ```
//!
//! When a name was asked last stands in the binding's status, where name servers tell it; nothing there means that nobody
//! asked. A former name that stays gets a later end, so that everyone who reads `until` reads the earliest moment at which it can
//! end by what is known now. Name servers tell of a name a quarter of the quiet time after they last did, at the latest, so
//! whoever asks while a former name waits for its end is known by then.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use signpost_api::v1alpha1::route_binding::RouteBinding;

/// What keeps former names beyond their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerNameRetention {
    /// How long a name must not have been asked for; `None`: that makes no difference.
    pub time: Option<Duration>,
    /// How long after its begin a former name ends, asked for or not.
    pub maximum: Duration,
}

impl Default for FormerNameRetention {
    fn default() -> Self {
        FormerNameRetention { time: Some(Duration::from_secs(24 * 3600)), maximum: Duration::from_secs(90 * 24 * 3600) }
    }
}

/// Takes the former names off a binding whose time is over and whose names are quiet, and gives those a later end whose names are
/// not. The answer names those that end though they were asked for lately.
pub fn settle(binding: &mut RouteBinding, quiet: FormerNameRetention, now: Timestamp) -> Vec<String> {
    let uses = binding.status.as_ref().map_or(&[][..], |status| &status.former_names);
    let mut ended = Vec::new();
    binding.spec.former_names.retain_mut(|former| {
        if former.until.0 > now {
            return true;
        }
        let asked = uses.iter().find(|one| one.name == former.name).map(|one| one.last_queried_time.0.min(now));
        let (Some(time), Some(asked)) = (quiet.time, asked.filter(|asked| *asked >= former.since.0)) else {
            return false;
        };
        let wanted = later(asked, time);
        let until = wanted.min(later(former.since.0, quiet.maximum));
        if until <= now {
            if wanted > now {
                ended.push(former.name.clone());
            }
            return false;
        }
        former.until = Time(until);
        true
    });
    ended
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| time.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    /// A binding whose former name began at 1000 and ends at `until`, asked last at `asked`.
    fn binding(until: i64, asked: Option<i64>) -> RouteBinding {
        let name = "ns-app.s1.v3.example";
        let uses: Vec<Value> = asked.iter().map(|asked| json!({"name": name, "lastQueriedTime": at(*asked)})).collect();
        serde_json::from_value(json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": {"namespace": "ns", "name": "app"},
            "spec": {"routeNamespace": "ns", "routeName": "app", "routeUID": "u", "router": "s2", "dns": "s2.v3.example",
                "label": "ns-app", "strategy": "move", "names": [],
                "formerNames": [{"name": name, "router": "s1", "since": at(1_000), "until": at(until)}]},
            "status": {"formerNames": uses},
        }))
        .expect("a RouteBinding")
    }

    #[test]
    fn a_former_name_ends_when_its_name_is_quiet() {
        let quiet = FormerNameRetention { time: Some(Duration::from_secs(100)), maximum: Duration::from_secs(5_000) };
        let off = FormerNameRetention { time: None, ..quiet };
        for (rule, until, asked, now, expected, told) in [
            (quiet, 2_000, Some(1_990), 1_999, Some(2_000), false),
            (quiet, 2_000, None, 2_000, None, false),
            (quiet, 2_000, Some(1_900), 2_000, None, false),
            (quiet, 2_000, Some(1_901), 2_000, Some(2_001), false),
            (quiet, 2_000, Some(1_990), 2_050, Some(2_090), false),
            (off, 2_000, Some(1_990), 2_000, None, false),
            // Told before the former name began, or by a clock that is ahead.
            (quiet, 1_050, Some(999), 1_050, None, false),
            (quiet, 2_000, Some(9_999), 2_000, Some(2_100), false),
            // The longest time is near, and over.
            (quiet, 5_990, Some(5_980), 5_990, Some(6_000), false),
            (quiet, 6_000, Some(5_999), 6_000, None, true),
            (quiet, 7_000, Some(6_999), 7_000, None, true),
        ] {
            let mut binding = binding(until, asked);
            let ended = settle(&mut binding, rule, at(now));
            let found = binding.spec.former_names.first().map(|former| former.until.0);
            assert_eq!((found, !ended.is_empty()), (expected.map(at), told), "{until} {asked:?} {now}");
        }
    }

    proptest! {
        /// Whatever is asked when: a former name that is looked at whenever its time is over ends neither before its first end, nor
        /// within the quiet time after a question, nor after the longest time; and it does end.
        #[test]
        fn it_ends_in_time(
            first in 0_i64..3_000,
            time in 1_u64..500,
            maximum in 0_u64..4_000,
            mut asked in proptest::collection::vec(1_000_i64..9_000, 0..60),
        ) {
            asked.sort_unstable();
            let rule = FormerNameRetention { time: Some(Duration::from_secs(time)), maximum: Duration::from_secs(maximum) };
            let first = 1_000 + first;
            let mut binding = binding(first, None);
            let mut end = None;
            for _ in 0..1_000 {
                let Some(now) = binding.spec.former_names.first().map(|former| former.until.0) else { break };
                let last = asked.iter().copied().rfind(|second| at(*second) <= now);
                binding.status = self::binding(0, last).status;
                settle(&mut binding, rule, now);
                end = Some(now.as_second());
            }
            prop_assert!(binding.spec.former_names.is_empty());
            let end = end.expect("it was looked at");
            let longest = first.max(1_000 + maximum as i64);
            prop_assert!(end >= first && end <= longest);
            let last = asked.iter().copied().rfind(|second| *second <= end);
            prop_assert!(end == longest || last.is_none_or(|last| end - last >= time as i64), "{end} {last:?}");
        }
    }
}
