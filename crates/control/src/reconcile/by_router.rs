//! Which Routes have former names, by where these are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::client::reflector::ObjectKey;
use crate::world::binding::FormerNameInfo;

/// The Router and the zone of a former name. A Router has one zone, unless it was made again with another.
type Place = (Arc<str>, Arc<str>);

/// The former names in each place, the last to end last.
#[derive(Debug, Default)]
pub(super) struct FormerNamesByRouter(BTreeMap<Place, BTreeSet<(Timestamp, ObjectKey)>>);

impl FormerNamesByRouter {
    /// The Route has this former name.
    pub(super) fn add(&mut self, former: &FormerNameInfo, route: &ObjectKey) {
        self.0.entry(place_of(former)).or_default().insert((former.until, route.clone()));
    }

    /// The Route has it no more.
    pub(super) fn remove(&mut self, former: &FormerNameInfo, route: &ObjectKey) {
        let place = place_of(former);
        if let Some(former_names) = self.0.get_mut(&place) {
            former_names.remove(&(former.until, route.clone()));
            if former_names.is_empty() {
                self.0.remove(&place);
            }
        }
    }

    /// The former names that a Router has, by their zones.
    pub(super) fn of_router(
        &self,
        router: &str,
    ) -> impl Iterator<Item = (&Arc<str>, &BTreeSet<(Timestamp, ObjectKey)>)> + use<'_> {
        let router: Arc<str> = router.into();
        self.0
            .range((Arc::clone(&router), "".into())..)
            .take_while(move |(place, _)| place.0 == router)
            .map(|((_, zone), former_names)| (zone, former_names))
    }

    /// The Routes that have left a Router, and have former names there.
    pub(super) fn routes_of(&self, router: &str) -> impl Iterator<Item = &ObjectKey> + use<'_> {
        self.of_router(router).flat_map(|(_, former_names)| former_names).map(|(_, route)| route)
    }

    /// The Routes that have former names in certain zones, whatever the Router.
    pub(super) fn routes_in(&self, is_meant: impl Fn(&str) -> bool) -> impl Iterator<Item = &ObjectKey> {
        self.0
            .iter()
            .filter(move |((_, zone), _)| is_meant(zone))
            .flat_map(|(_, former_names)| former_names)
            .map(|(_, route)| route)
    }
}

fn place_of(former: &FormerNameInfo) -> Place {
    (Arc::clone(&former.router), Arc::clone(&former.zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_names_are_found_by_router_and_by_zone() {
        let former = |router: &str, zone: &str, until: i64| FormerNameInfo {
            name: format!("a.{zone}").into(),
            router: router.into(),
            zone: zone.into(),
            from: None,
            asked: None,
            until: Timestamp::from_second(until).expect("a time"),
        };
        let route = |name: &str| ObjectKey::namespaced("ns", name);
        let mut former_names = FormerNamesByRouter::default();
        let all =
            [("s1", "a.test", 9, "x"), ("s1", "a.test", 5, "y"), ("s1", "b.test", 7, "x"), ("s10", "a.test", 1, "z")];
        for (router, zone, until, name) in all {
            former_names.add(&former(router, zone, until), &route(name));
        }
        let names = |found: Vec<&ObjectKey>| found.into_iter().map(|key| key.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            names(former_names.routes_of("s1").collect()),
            ["y", "x", "x"],
            "in order of their ends, zone by zone"
        );
        assert_eq!(names(former_names.routes_of("s10").collect()), ["z"]);
        assert_eq!(names(former_names.routes_of("s").collect()), [""; 0]);
        assert_eq!(names(former_names.routes_in(|zone| zone == "a.test").collect()), ["y", "x", "z"]);
        former_names.remove(&former("s1", "a.test", 9), &route("x"));
        former_names.remove(&former("s1", "b.test", 7), &route("x"));
        assert_eq!(
            former_names.of_router("s1").map(|(zone, former_names)| (&**zone, former_names.len())).collect::<Vec<_>>(),
            [("a.test", 1)]
        );
    }
}
