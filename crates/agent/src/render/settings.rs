//! The parts of the settings of Routes and Routers that both proxies share.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Settings;
use crate::site::{RouteKey, RouterSettings};

/// The most proxies in front of the router that a request can have passed. The address of a client is that of the last one beyond.
pub(super) const FORWARDERS_MAX: usize = 5;

impl Settings {
    /// Returns the settings for a Router, which adds its own to those of the agent.
    pub(super) fn of_router(&self, router: &RouterSettings) -> Settings {
        let networks = self.trusted_proxies.iter().map(ipnet::IpNet::trunc);
        let networks = networks.chain(router.trusted_proxies.iter().map(|network| network.net()));
        let keep_alive = router.keep_alive_seconds.map(|seconds| Duration::from_secs(seconds.into()));
        Settings {
            trusted_proxies: networks.collect::<BTreeSet<_>>().into_iter().collect(),
            client_address: router.client_address,
            keep_alive: keep_alive.unwrap_or(self.keep_alive),
            ..self.clone()
        }
    }
}

/// Numbers the values that Routes need, at most a number of them. Namespaces choose in turn, each first the value that most of its Routes
/// need, so that none takes the numbers of the others.
pub(super) fn numbered<'a, T: Ord + Clone + 'a>(
    wanted: impl Iterator<Item = (&'a RouteKey, T)>,
    most: usize,
) -> BTreeMap<T, usize> {
    let mut uses: BTreeMap<&str, BTreeMap<T, usize>> = BTreeMap::new();
    for (route, value) in wanted {
        let namespace = route.as_str().split('/').next().unwrap_or_default();
        *uses.entry(namespace).or_default().entry(value).or_default() += 1;
    }
    let by_use = |values: BTreeMap<T, usize>| {
        let mut values: Vec<(T, usize)> = values.into_iter().collect();
        values.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        values.into_iter().map(|(value, _)| value)
    };
    let mut queues: Vec<_> = uses.into_values().map(by_use).collect();
    let mut numbers: BTreeMap<T, usize> = BTreeMap::new();
    while !queues.is_empty() && numbers.len() < most {
        queues.retain_mut(|queue| {
            let next = queue.find(|value| !numbers.contains_key(value));
            let is_left = next.is_some();
            let number = numbers.len();
            numbers.extend(next.filter(|_| number < most).map(|value| (value, number)));
            is_left
        });
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_choose_in_turn() {
        let keys: Vec<(RouteKey, u32)> = ["a/1 7", "a/2 8", "a/3 8", "a/4 9", "b/1 7", "b/2 1", "c/1 9"]
            .map(|text| text.split_once(' ').expect("a pair"))
            .map(|(key, value)| (key.parse().expect("a Route"), value.parse().expect("a number")))
            .into();
        let chosen = |most| {
            let mut chosen: Vec<(usize, u32)> = numbered(keys.iter().map(|(key, value)| (key, *value)), most)
                .into_iter()
                .map(|(a, b)| (b, a))
                .collect();
            chosen.sort_unstable();
            chosen.into_iter().map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(chosen(0), [0_u32; 0]);
        assert_eq!(chosen(2), [8, 1]);
        assert_eq!(chosen(9), [8, 1, 9, 7]);
    }
}
