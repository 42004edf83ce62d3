//! The orders that a namespace, and the platform, may place in an hour. Pure.
//!
//! A certificate authority limits the orders of an account, which all tenants share. A namespace therefore has a part of what the platform
//! has. The certificates of zones count, but never wait.
//!
//! Each order is stored with its attempt before the CA receives it. The next leader begins with the stored ones, so that leaders which
//! crash one after another place at most as many orders as one.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

const HOUR: i64 = 3_600;

/// An order that was placed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct PlacedOrder {
    /// The time, in seconds since 1970.
    pub(super) at: i64,
    /// `None`: the platform itself.
    pub(super) namespace: Option<String>,
}

impl PlacedOrder {
    /// Returns whether the order still counts. So does one of a leader whose clock is ahead.
    pub(super) fn counts(&self, now: i64) -> bool {
        self.at > now.saturating_sub(HOUR)
    }
}

/// The orders of the last hour.
pub(super) struct Budget {
    namespace_max: usize,
    max: usize,
    /// In the order of their times.
    placed: VecDeque<PlacedOrder>,
}

impl Budget {
    /// Returns the budget after these orders.
    pub(super) fn new(namespace_max: u32, max: u32, mut placed: Vec<PlacedOrder>) -> Budget {
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        placed.sort();
        Budget { namespace_max: number(namespace_max), max: number(max), placed: placed.into() }
    }

    /// Counts an order of a namespace and returns it, or returns the time at which there can be one. `None` is the platform itself.
    pub(super) fn take(&mut self, namespace: Option<&str>, now: i64) -> Result<PlacedOrder, i64> {
        self.check(namespace, now)?;
        let placed = PlacedOrder { at: now, namespace: namespace.map(str::to_owned) };
        self.placed.push_back(placed.clone());
        Ok(placed)
    }

    /// Returns the time at which a namespace can have an order, unless it can have one now.
    pub(super) fn check(&mut self, namespace: Option<&str>, now: i64) -> Result<(), i64> {
        self.placed.retain(|placed| placed.counts(now));
        // A clock that went back keeps orders for one more hour at most.
        self.placed.iter_mut().for_each(|placed| placed.at = placed.at.min(now));
        let Some(namespace) = namespace else { return Ok(()) };
        let own = self.placed.iter().filter(|placed| placed.namespace.as_deref() == Some(namespace));
        let mut own = own.map(|placed| placed.at);
        if own.clone().count() >= self.namespace_max {
            return Err(own.next().unwrap_or(now) + HOUR);
        }
        if self.placed.len() >= self.max {
            return Err(self.placed.front().map_or(now, |placed| placed.at) + HOUR);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_namespace_uses_up_the_platform() {
        let mut budget = Budget::new(3, 5, Vec::new());
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
            // The clock goes back: the orders from then on count for an hour.
            (Some("three"), 10, Err(3_610)),
            (Some("three"), 3_610, Ok(())),
        ] {
            assert_eq!(budget.take(namespace, now).map(drop), expected, "{namespace:?} {now}");
        }
    }

    const NAMESPACES: [Option<&str>; 4] = [None, Some("a"), Some("b"), Some("c")];

    #[derive(Clone, Debug)]
    enum Event {
        /// The leader orders one of the certificates of a namespace, and stores the order or crashes before that.
        Order {
            certificate: usize,
            is_stored: bool,
        },
        /// Another leader begins, whose clock is some seconds ahead or behind.
        Leader(i64),
        Wait(i64),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let order = (0..12usize, prop::bool::weighted(0.8));
        let event = prop_oneof![
            8 => order.prop_map(|(certificate, is_stored)| Event::Order { certificate, is_stored }),
            2 => (-30..30i64).prop_map(Event::Leader),
            2 => prop_oneof![1..60i64, 600..4_000i64].prop_map(Event::Wait),
        ];
        prop::collection::vec(event, 0..200)
    }

    proptest! {
        /// Over any sequence of leaders, the CA receives at most the budget in an hour. Leaders' clocks differ by at most
        /// a minute, by which the hour is shorter here.
        #[test]
        fn leaders_share_the_budget(events in events(), namespace_max in 1..4u32, max in 1..8u32) {
            let mut now = 1_000_000;
            let mut skew = 0;
            // The attempts of certificates, which the next leader reads.
            let mut stored: BTreeMap<usize, Vec<PlacedOrder>> = BTreeMap::new();
            let mut budget = Budget::new(namespace_max, max, Vec::new());
            // The orders that the CA received.
            let mut received: Vec<(i64, Option<&str>)> = Vec::new();
            for event in events {
                match event {
                    Event::Wait(seconds) => now += seconds,
                    Event::Leader(ahead) => {
                        skew = ahead;
                        budget = Budget::new(namespace_max, max, stored.values().flatten().cloned().collect());
                    }
                    Event::Order { certificate, is_stored } => {
                        let namespace = NAMESPACES[certificate % NAMESPACES.len()];
                        let Ok(placed) = budget.take(namespace, now + skew) else { continue };
                        if !is_stored {
                            // It crashes, and the CA has received nothing.
                            budget = Budget::new(namespace_max, max, stored.values().flatten().cloned().collect());
                            continue;
                        }
                        let attempt = stored.entry(certificate).or_default();
                        attempt.retain(|placed| placed.counts(now + skew));
                        attempt.push(placed);
                        received.push((now, namespace));
                        let hour = received.iter().filter(|(at, _)| *at > now - HOUR + 60);
                        let of_namespace = hour.clone().filter(|(_, of)| *of == namespace).count();
                        if namespace.is_some() {
                            prop_assert!(of_namespace <= namespace_max as usize, "{received:?}");
                            prop_assert!(hour.count() <= max as usize, "{received:?}");
                        }
                    }
                }
            }
        }
    }
}
