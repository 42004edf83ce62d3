//! The orders that a namespace, and the platform, may place in an hour. Pure.
//!
//! A certificate authority limits the orders of an account, which all tenants share. A namespace therefore has a part of what the platform
//! has. The certificates of zones count, but never wait.

use std::collections::VecDeque;

const HOUR: i64 = 3_600;

/// The orders of the last hour.
pub(super) struct Budget {
    namespace_max: usize,
    max: usize,
    /// The time of each order, in seconds since 1970, and its namespace.
    placed: VecDeque<(i64, Option<String>)>,
}

impl Budget {
    pub(super) fn new(namespace_max: u32, max: u32) -> Budget {
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Budget { namespace_max: number(namespace_max), max: number(max), placed: VecDeque::new() }
    }

    /// Counts an order of a namespace, or returns the time at which there can be one. `None` is the platform itself.
    pub(super) fn take(&mut self, namespace: Option<&str>, now: i64) -> Result<(), i64> {
        // A clock that went back does not keep orders for longer.
        self.placed.retain(|(at, _)| (now - HOUR + 1..=now).contains(at));
        if let Some(namespace) = namespace {
            let mut own = self.placed.iter().filter(|(_, of)| of.as_deref() == Some(namespace)).map(|(at, _)| *at);
            if own.clone().count() >= self.namespace_max {
                return Err(own.next().unwrap_or(now) + HOUR);
            }
            if self.placed.len() >= self.max {
                return Err(self.placed.front().map_or(now, |(at, _)| *at) + HOUR);
            }
        }
        self.placed.push_back((now, namespace.map(str::to_owned)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_namespace_uses_up_the_platform() {
        let mut budget = Budget::new(3, 5);
        for (namespace, now, expected) in [
            (Some("many"), 0, Ok(())),
            (Some("many"), 10, Ok(())),
            (Some("many"), 20, Ok(())),
            (Some("many"), 30, Err(3_600)),
            (Some("one"), 40, Ok(())),
            (Some("two"), 50, Ok(())),
            (Some("three"), 60, Err(3_600)),
            // A zone does not wait, and counts.
            (None, 70, Ok(())),
            (Some("many"), 3_600, Err(3_610)),
            (Some("many"), 3_610, Ok(())),
            (Some("many"), 3_620, Ok(())),
            (Some("three"), 3_620, Err(3_640)),
        ] {
            assert_eq!(budget.take(namespace, now), expected, "{namespace:?} {now}");
        }
    }
}
