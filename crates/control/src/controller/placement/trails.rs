//! Which Routes have former names, by where these are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::client::reflector::ObjectKey;
use crate::world::binding::FormerName;

/// The Router and the zone of a trail. A Router has one zone, unless it was made again with another.
type Place = (Arc<str>, Arc<str>);

/// The trails in each place, the last to end last.
#[derive(Debug, Default)]
pub(super) struct Trails(BTreeMap<Place, BTreeSet<(Timestamp, ObjectKey)>>);

impl Trails {
    /// The Route has this trail.
    pub(super) fn add(&mut self, trail: &FormerName, route: &ObjectKey) {
        self.0.entry(place_of(trail)).or_default().insert((trail.until, route.clone()));
    }

    /// The Route has it no more.
    pub(super) fn remove(&mut self, trail: &FormerName, route: &ObjectKey) {
        let place = place_of(trail);
        if let Some(trails) = self.0.get_mut(&place) {
            trails.remove(&(trail.until, route.clone()));
            if trails.is_empty() {
                self.0.remove(&place);
            }
        }
    }

    /// The trails that a Router has, by their zones.
    pub(super) fn of_router(
        &self,
        router: &str,
    ) -> impl Iterator<Item = (&Arc<str>, &BTreeSet<(Timestamp, ObjectKey)>)> + use<'_> {
        let router: Arc<str> = router.into();
        self.0
            .range((Arc::clone(&router), "".into())..)
            .take_while(move |(place, _)| place.0 == router)
            .map(|((_, zone), trails)| (zone, trails))
    }

    /// The Routes that have left a Router, and have trails there.
    pub(super) fn routes_of(&self, router: &str) -> impl Iterator<Item = &ObjectKey> + use<'_> {
        self.of_router(router).flat_map(|(_, trails)| trails).map(|(_, route)| route)
    }

    /// The Routes that have trails in certain zones, whatever the Router.
    pub(super) fn routes_in(&self, is_meant: impl Fn(&str) -> bool) -> impl Iterator<Item = &ObjectKey> {
        self.0
            .iter()
            .filter(move |((_, zone), _)| is_meant(zone))
            .flat_map(|(_, trails)| trails)
            .map(|(_, route)| route)
    }
}

fn place_of(trail: &FormerName) -> Place {
    (Arc::clone(&trail.router), Arc::clone(&trail.zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trails_are_found_by_router_and_by_zone() {
        let trail = |router: &str, zone: &str, until: i64| FormerName {
            name: format!("a.{zone}").into(),
            router: router.into(),
            zone: zone.into(),
            from: None,
            asked: None,
            until: Timestamp::from_second(until).expect("a time"),
        };
        let route = |name: &str| ObjectKey::namespaced("ns", name);
        let mut trails = Trails::default();
        let all =
            [("s1", "a.test", 9, "x"), ("s1", "a.test", 5, "y"), ("s1", "b.test", 7, "x"), ("s10", "a.test", 1, "z")];
        for (router, zone, until, name) in all {
            trails.add(&trail(router, zone, until), &route(name));
        }
        let names = |found: Vec<&ObjectKey>| found.into_iter().map(|key| key.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(trails.routes_of("s1").collect()), ["y", "x", "x"], "in order of their ends, zone by zone");
        assert_eq!(names(trails.routes_of("s10").collect()), ["z"]);
        assert_eq!(names(trails.routes_of("s").collect()), [""; 0]);
        assert_eq!(names(trails.routes_in(|zone| zone == "a.test").collect()), ["y", "x", "z"]);
        trails.remove(&trail("s1", "a.test", 9), &route("x"));
        trails.remove(&trail("s1", "b.test", 7), &route("x"));
        assert_eq!(
            trails.of_router("s1").map(|(zone, trails)| (&**zone, trails.len())).collect::<Vec<_>>(),
            [("a.test", 1)]
        );
    }
}
