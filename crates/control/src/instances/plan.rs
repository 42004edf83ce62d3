//! The selection of a Router's instances to start and to stop. Pure.
//!
//! A changed proxy or port requires a new instance. With a separate address, it starts in parallel with the instances that it
//! replaces, and they stop once it serves. With an address that the Router names, it starts when its predecessor has ended, one
//! after another.

use std::net::IpAddr;

use super::Wanted;
use signpost_types::v1alpha1::router::{Ports, RouterKind};

/// The configuration of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The proxy.
    pub kind: RouterKind,
    /// The ports on which it accepts requests.
    pub ports: Ports,
}

/// An instance that runs, or is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The instance's number, constant for its lifetime.
    pub id: u32,
    /// The instance's configuration; `None`: another version of the program, or one with other options, has started it.
    pub shape: Option<Shape>,
    /// The instance's address.
    pub address: IpAddr,
    /// Whether the instance has been signaled to stop.
    pub is_stopping: bool,
    /// Whether its Lease reports that it serves.
    pub is_serving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Starts an instance at an address that the Router names, or at a free one.
    Start(Option<IpAddr>),
    Stop(u32),
}

/// Returns the steps for the existing instances of a Router, oldest first; `None`: the Router must have none.
pub fn steps(wanted: Option<&Wanted>, slots: &[Slot]) -> Vec<Step> {
    let running = || slots.iter().filter(|slot| !slot.is_stopping);
    let Some(wanted) = wanted else { return running().map(|slot| Step::Stop(slot.id)).collect() };
    let shape = Some(Shape { kind: wanted.kind, ports: wanted.ports });
    let is_named = |slot: &&Slot| wanted.addresses.contains(&slot.address);
    let mut steps = Vec::new();

    for address in &wanted.addresses {
        if !slots.iter().any(|slot| slot.address == *address) {
            steps.push(Step::Start(Some(*address)));
        }
    }
    let named = || slots.iter().filter(is_named);
    let outdated = || named().filter(|slot| slot.shape != shape);
    if steps.is_empty() && !named().any(|slot| slot.is_stopping) {
        let others_serve = |outdated: &&Slot| named().all(|slot| slot.id == outdated.id || slot.is_serving);
        // One that does not serve is replaced without loss. It must not wait for others of its kind.
        let idle = outdated().find(|slot| !slot.is_serving);
        let next = idle.or_else(|| outdated().next().filter(others_serve));
        steps.extend(next.map(|slot| Step::Stop(slot.id)));
    }

    let count = wanted.count.saturating_sub(wanted.addresses.len());
    let (current, old): (Vec<_>, Vec<_>) =
        running().filter(|slot| !is_named(slot)).partition(|slot| slot.shape == shape);
    steps.extend((current.len()..count).map(|_| Step::Start(None)));
    steps.extend(current.iter().skip(count).rev().map(|slot| Step::Stop(slot.id)));
    // Serving instances stay until as many new ones serve.
    let serving = current.iter().take(count).filter(|slot| slot.is_serving).count();
    let spare = (serving + old.len()).saturating_sub(count).min(old.len());
    let (idle, busy): (Vec<_>, Vec<_>) = old.into_iter().partition(|slot: &&Slot| !slot.is_serving);
    steps.extend(idle.into_iter().chain(busy).take(spare).map(|slot| Step::Stop(slot.id)));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const HAPROXY: Shape = Shape { kind: RouterKind::Haproxy, ports: Ports { http: 80, https: 443 } };

    fn address(octet: u8) -> IpAddr {
        [192, 0, 2, octet].into()
    }

    /// Returns instances from `ID LETTERS`: `h` HAProxy or `n` nginx, then `s` if it serves, `x` if it stops. The number defines
    /// the address.
    fn slots(words: &str) -> Vec<Slot> {
        let slot = |word: &str| {
            let (id, letters) = word.split_at(1);
            let kind = if letters.starts_with('n') { RouterKind::Nginx } else { RouterKind::Haproxy };
            let id = id.parse().expect("a digit");
            Slot {
                id: u32::from(id),
                shape: Some(Shape { kind, ..HAPROXY }),
                address: address(id),
                is_stopping: letters.contains('x'),
                is_serving: letters.contains('s'),
            }
        };
        words.split_whitespace().map(slot).collect()
    }

    fn summary(steps: &[Step]) -> String {
        let words = steps.iter().map(|step| match step {
            Step::Start(None) => "+".to_owned(),
            Step::Start(Some(address)) => format!("+{}", address.to_string().rsplit('.').next().unwrap_or_default()),
            Step::Stop(id) => format!("-{id}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn wanted(count: usize, octets: &[u8]) -> Wanted {
        let addresses = octets.iter().map(|octet| address(*octet)).collect();
        Wanted { kind: HAPROXY.kind, count, ports: HAPROXY.ports, addresses, ttl: 60, serving: BTreeSet::new() }
    }

    #[test]
    fn with_addresses_of_their_own() {
        for (count, is, steps) in [
            (2, "", "+ +"),
            (2, "1hs 2hs", ""),
            (2, "1hs 2hsx", "+"),
            (3, "1hs 2hs", "+"),
            (1, "1hs 2hs 3hs", "-3 -2"),
            (0, "1hs", "-1"),
            // Another proxy: the new ones start first, and then as many old ones stop as serve.
            (2, "1ns 2ns", "+ +"),
            (2, "1ns 2ns 3h 4h", ""),
            (2, "1ns 2ns 3hs 4h", "-1"),
            (2, "1nsx 2ns 3hs 4h", ""),
            (2, "1ns 2ns 3hs 4hs", "-1 -2"),
            // An instance that does not serve can be replaced without loss.
            (2, "1ns 2n 3hs 4h", "-2"),
            (1, "1ns 2ns", "+ -1"),
        ] {
            assert_eq!(summary(&super::steps(Some(&wanted(count, &[])), &slots(is))), steps, "{count} of {is}");
        }
        assert_eq!(summary(&super::steps(None, &slots("1hs 2hsx"))), "-1");
    }

    #[test]
    fn with_addresses_of_the_router() {
        for (octets, is, steps) in [
            (&[1, 2][..], "", "+1 +2"),
            (&[1, 2], "1hs 2hs", ""),
            (&[1, 2], "1hs 2hsx", ""),
            // Another proxy: one leaves when all others serve.
            (&[1, 2], "1ns 2ns", "-1"),
            (&[1, 2], "1nsx 2ns", ""),
            (&[1, 2], "2ns", "+1"),
            (&[1, 2], "1h 2ns", ""),
            (&[1, 2], "1hs 2ns", "-2"),
            // None of those that do not serve waits for another one.
            (&[1, 2], "1n 2n", "-1"),
            (&[1, 2], "1nx 2n", ""),
            (&[1, 2], "1h 2n", "-2"),
            (&[1, 2, 3], "1ns 2n 3n", "-2"),
            (&[1], "1ns", "-1"),
            // The Router names another address.
            (&[1, 3], "1hs 2hs", "+3 -2"),
        ] {
            let wanted = wanted(octets.len(), octets);
            assert_eq!(summary(&super::steps(Some(&wanted), &slots(is))), steps, "{octets:?} of {is}");
        }
    }
}
