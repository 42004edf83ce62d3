//! The selection of a shard's addresses for answers, by their state, their priority, and the probes.
//!
//! ```text
//!   active addresses ── active-active: one group ──────────────────┐
//!                    └─ active-passive: one group per priority ────┤ in order: the first group with enough healthy addresses
//!                                                                  ▼
//!              enough are healthy: those ── otherwise: panic, a whole group, regardless of the probes
//! ```
//!
//! Enough is a share of the group, the panic threshold. Below it, the probes are more likely wrong than the addresses, or the
//! remaining addresses could not carry the load and would fail next; so the answer ignores the probes. Health therefore never
//! empties the wildcard. In panic mode, the group is the first that has any healthy address: a standby that is half healthy is
//! better than a primary without any healthy address.
//!
//! The verdicts are part of the Router's status, so that all name servers make the same selection; the state `drained`, which an
//! operator sets, overrides any verdict.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use signpost_types::v1alpha1::router::Mode;

/// One address of a Router. The last-known-good state on disk contains it in this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AddressInput {
    /// The address; never an IPv4 address in IPv6 form.
    pub ip: IpAddr,
    /// Whether its state is `active`.
    pub active: bool,
    /// Order of use under `active-passive`.
    pub priority: u32,
    /// Share of the answers against the others, at least 1.
    pub weight: u16,
    /// The known health.
    pub health: Health,
}

/// The known health of an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Health {
    /// The address is not probed, or could not be in time: it counts as healthy.
    #[default]
    Unknown,
    /// The address must be probed, but has no verdict: it waits, unless its whole group does.
    Pending,
    /// Probes reach it.
    Up,
    /// Probes do not reach the address.
    Down,
}

/// The addresses to answer with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressSelection<'a> {
    /// The addresses in the Router's order; empty only if none is active.
    pub addresses: Vec<&'a AddressInput>,
    /// Whether too few addresses are healthy, so that health does not count.
    pub panic: bool,
}

/// Selects the addresses; `threshold_percent` is the share of a group that must be healthy for health to count.
pub fn choose(addresses: &[AddressInput], mode: Mode, threshold_percent: u8) -> AddressSelection<'_> {
    let active = || addresses.iter().filter(|address| address.active);
    let mut priorities: Vec<Option<u32>> = match mode {
        Mode::ActiveActive => vec![None],
        Mode::ActivePassive => active().map(|address| Some(address.priority)).collect(),
    };
    priorities.sort_unstable();
    priorities.dedup();
    let groups: Vec<PriorityGroup<'_>> = priorities
        .into_iter()
        .map(|only| {
            PriorityGroup::new(active().filter(|address| only.is_none_or(|only| address.priority == only)).collect())
        })
        .collect();
    if let Some(group) = groups.iter().find(|group| group.has_enough(threshold_percent)) {
        return AddressSelection { addresses: group.well.clone(), panic: false };
    }
    let group = groups.iter().find(|group| !group.well.is_empty()).or(groups.first());
    let addresses = group.map_or(Vec::new(), |group| group.all.clone());
    AddressSelection { panic: !addresses.is_empty(), addresses }
}

/// Addresses that are answered with together.
struct PriorityGroup<'a> {
    all: Vec<&'a AddressInput>,
    well: Vec<&'a AddressInput>,
    /// The number of addresses with a verdict, or that need none.
    judged: usize,
}

impl<'a> PriorityGroup<'a> {
    fn new(all: Vec<&'a AddressInput>) -> Self {
        let judged = all.iter().filter(|address| address.health != Health::Pending).count();
        if judged == 0 {
            // A new shard must not depend on a prober to be served.
            return PriorityGroup { well: all.clone(), judged: all.len(), all };
        }
        let is_well = |address: &&&AddressInput| matches!(address.health, Health::Unknown | Health::Up);
        PriorityGroup { well: all.iter().filter(is_well).copied().collect(), judged, all }
    }

    fn has_enough(&self, threshold_percent: u8) -> bool {
        !self.well.is_empty() && self.well.len() * 100 >= self.judged * usize::from(threshold_percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Addresses by a letter each: `u` up, `d` down, `?` unknown, `p` pending, in upper case drained; a digit sets the
    /// priority of those that follow.
    fn addresses(text: &str) -> Vec<AddressInput> {
        let mut priority = 0;
        let mut all = Vec::new();
        for letter in text.chars() {
            let health = match letter.to_ascii_lowercase() {
                'u' => Health::Up,
                'd' => Health::Down,
                'p' => Health::Pending,
                '?' => Health::Unknown,
                digit => {
                    priority = digit.to_digit(10).expect("a digit");
                    continue;
                }
            };
            let ip = Ipv4Addr::new(192, 0, 2, all.len() as u8).into();
            all.push(AddressInput { ip, active: !letter.is_ascii_uppercase(), priority, weight: 1, health });
        }
        all
    }

    #[test]
    fn health_chooses_and_never_empties() {
        use Mode::{ActiveActive as All, ActivePassive as First};
        for (mode, threshold, text, expected, panic) in [
            (All, 50, "", "", false),
            (All, 50, "UD", "", false),
            (All, 50, "??", "01", false),
            (All, 50, "uu", "01", false),
            (All, 50, "ud", "0", false),
            (All, 50, "udd", "012", true),
            (All, 50, "dd", "01", true),
            (All, 0, "udd", "0", false),
            (All, 0, "ddd", "012", true),
            (All, 100, "uud", "012", true),
            // A drained address is not in the answer and does not count.
            (All, 50, "uDdD", "0", false),
            (All, 50, "Udd", "12", true),
            // A new address waits for its verdict, and does not affect the others; a whole group of new ones does not wait.
            (All, 50, "up", "0", false),
            (All, 50, "udpp", "0", false),
            (All, 50, "ddp", "012", true),
            (All, 50, "pp", "01", false),
            (All, 50, "?d", "0", false),
            // The first priority with enough.
            (First, 50, "0uu1u", "01", false),
            (First, 50, "0ud1u", "0", false),
            (First, 50, "0udd1u", "3", false),
            (First, 50, "0dd1u", "2", false),
            (First, 50, "0dd1dd2u", "4", false),
            (First, 50, "1u0u", "1", false),
            (First, 50, "0UU1u", "2", false),
            // No group has enough: the first with any healthy address, as a whole.
            (First, 50, "0dd1udd", "234", true),
            (First, 50, "0dd1dd", "01", true),
            (First, 0, "0d1udd", "1", false),
            (First, 50, "0pp1u", "01", false),
            (First, 50, "0dp1u", "2", false),
        ] {
            let addresses = addresses(text);
            let choice = choose(&addresses, mode, threshold);
            let chosen: String = choice
                .addresses
                .iter()
                .map(|chosen| addresses.iter().position(|address| address == *chosen).expect("one of them").to_string())
                .collect();
            assert_eq!((chosen.as_str(), choice.panic), (expected, panic), "{mode:?} {threshold} {text}");
        }
    }
}
