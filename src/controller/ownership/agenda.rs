//! Which host is to be asked for next: the one that has been due longest, of the namespace of which the fewest are being asked
//! for. So whoever has slow name servers, and many hosts, keeps only their own waiting.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use super::{HOSTS_AT_A_TIME, HOSTS_OF_A_NAMESPACE};
use crate::client::reflector::ObjectKey;

/// When which Route's host is to be asked for.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    namespaces: HashMap<Option<String>, Share>,
    times: HashMap<ObjectKey, Instant>,
    under_way: usize,
}

/// What is one namespace's.
#[derive(Debug, Default)]
struct Share {
    due: BTreeSet<(Instant, ObjectKey)>,
    under_way: usize,
}

impl Agenda {
    /// The host of the Route at `key` is to be asked for at this time, and no other.
    pub(super) fn plan(&mut self, key: ObjectKey, at: Instant) {
        self.forget(&key);
        self.times.insert(key.clone(), at);
        self.namespaces.entry(key.namespace.clone()).or_default().due.insert((at, key));
    }

    /// It is not to be asked for.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        if let Some(at) = self.times.remove(key)
            && let Some(share) = self.namespaces.get_mut(&key.namespace)
        {
            share.due.remove(&(at, key.clone()));
            self.tidy(&key.namespace);
        }
    }

    /// Whether it is to be asked for.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.times.contains_key(key)
    }

    /// The next one to ask for, which is under way from then on.
    pub(super) fn begin(&mut self, now: Instant) -> Option<ObjectKey> {
        let ready = self.ready().filter(|(at, _)| *at <= now);
        let (_, _, namespace) =
            ready.map(|(at, namespace)| (self.namespaces[namespace].under_way, at, namespace)).min()?;
        let namespace = namespace.clone();
        let share = self.namespaces.get_mut(&namespace)?;
        let (_, key) = share.due.pop_first()?;
        share.under_way += 1;
        self.under_way += 1;
        self.times.remove(&key);
        Some(key)
    }

    /// It was asked for.
    pub(super) fn end(&mut self, key: &ObjectKey) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(share) = self.namespaces.get_mut(&key.namespace) {
            share.under_way = share.under_way.saturating_sub(1);
            self.tidy(&key.namespace);
        }
    }

    /// When one can be asked for next; `None`: not before another one ends, or is planned.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.ready().map(|(at, _)| at).min()
    }

    /// The first of each namespace that may have another one under way.
    fn ready(&self) -> impl Iterator<Item = (Instant, &Option<String>)> {
        let has_room = self.under_way < HOSTS_AT_A_TIME;
        let shares =
            self.namespaces.iter().filter(move |(_, share)| has_room && share.under_way < HOSTS_OF_A_NAMESPACE);
        shares.filter_map(|(namespace, share)| share.due.first().map(|(at, _)| (*at, namespace)))
    }

    fn tidy(&mut self, namespace: &Option<String>) {
        if self.namespaces.get(namespace).is_some_and(|share| share.due.is_empty() && share.under_way == 0) {
            self.namespaces.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_namespace_keeps_no_other_waiting() {
        let mut agenda = Agenda::default();
        let start = Instant::now();
        let key = |namespace: &str, number: u64| ObjectKey::namespaced(namespace, &number.to_string());
        for number in 0..300 {
            agenda.plan(key("slow", number), start);
        }
        agenda.plan(key("late", 0), start + Duration::from_secs(60));
        let begun: Vec<_> = std::iter::from_fn(|| agenda.begin(start)).collect();
        assert_eq!(begun.len(), HOSTS_OF_A_NAMESPACE);
        assert_eq!(agenda.next_at(), Some(start + Duration::from_secs(60)));
        // Others come, and go at once, as many as there is room for.
        for number in 0..HOSTS_AT_A_TIME as u64 {
            agenda.plan(key(&format!("n{number}"), 0), start + Duration::from_millis(number));
        }
        let others: Vec<_> = std::iter::from_fn(|| agenda.begin(start + Duration::from_secs(1))).collect();
        let expected = (0..(HOSTS_AT_A_TIME - HOSTS_OF_A_NAMESPACE) as u64).map(|number| key(&format!("n{number}"), 0));
        assert!(others.iter().cloned().eq(expected), "{others:?}");
        assert_eq!((agenda.begin(start + Duration::from_secs(1)), agenda.next_at()), (None, None));
        // A place that is free goes to who has none under way.
        agenda.end(&begun[0]);
        assert_eq!(agenda.begin(start + Duration::from_secs(1)), Some(key("n12", 0)));
        begun[1..].iter().chain(&others).for_each(|key| agenda.end(key));
        assert!(agenda.has(&key("late", 0)) && !agenda.has(&begun[0]));
    }

    #[test]
    fn a_route_is_planned_once() {
        let mut agenda = Agenda::default();
        let (start, key) = (Instant::now(), ObjectKey::namespaced("n", "r"));
        agenda.plan(key.clone(), start);
        agenda.plan(key.clone(), start + Duration::from_secs(9));
        assert_eq!((agenda.begin(start), agenda.next_at()), (None, Some(start + Duration::from_secs(9))));
        agenda.forget(&key);
        assert_eq!((agenda.next_at(), agenda.namespaces.len()), (None, 0));
    }
}
