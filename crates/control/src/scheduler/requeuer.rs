//! Requeues the unschedulable Routes that a change could help.
//!
//! 100,000 Routes can wait when a Router is added, and checking all of them takes as long as scheduling hundreds. So they are
//! checked in batches, in the order of their wait, with other work between batches. A change during a *pass* is for the next
//! pass, together with all others until then: each waiting Route is checked once per pass, for any number of changes.

use std::collections::{BTreeSet, HashSet};

use super::Scheduler;
use super::filter::{PlacementRequest, evaluate};
use super::queue::{Queue, RequeuePass};
use crate::client::reflector::ObjectKey;

/// The number of unschedulable Routes up to which a change of any Router requeues all of them, so that their messages mention it.
/// Above it, such a change would write to too many Routes; their messages change with the next attempt.
const REQUEUED_WITHOUT_HINT_MAX: usize = 1000;
/// The number of Routes in a batch: half a millisecond's worth.
const CHECKED_IN_A_ROW: usize = 256;

/// The changes that could help.
#[derive(Debug, Default, PartialEq, Eq)]
struct ClusterEvents {
    /// A change that could help any Route.
    any: bool,
    /// Routers that are new, affect decisions, have room, or were deleted.
    routers: BTreeSet<String>,
    /// Namespaces that changed, or whose quota has room.
    namespaces: BTreeSet<String>,
}

impl ClusterEvents {
    /// Returns whether these could help the Route at `key`. `fits` returns whether one of the Routers can take it.
    fn queueing_hint(&self, key: &ObjectKey, fits: impl Fn(&BTreeSet<String>) -> bool) -> bool {
        self.any || self.namespaces.contains(key.namespace()) || !self.routers.is_empty() && fits(&self.routers)
    }
}

/// The pass in progress, and the changes for the next one.
#[derive(Debug, Default)]
pub(super) struct Requeuer {
    current: Option<(ClusterEvents, RequeuePass)>,
    next: ClusterEvents,
    /// The namespaces of Routes that got no name, because too many of their names are in quarantine.
    await_names: HashSet<String>,
}

impl Requeuer {
    /// Requeues every unschedulable Route.
    pub fn for_any(&mut self) {
        self.next.any = true;
    }

    fn for_routers(&mut self, names: &[String]) {
        self.next.routers.extend(names.iter().cloned());
    }

    /// Requeues the Routes of these namespaces.
    pub fn for_namespaces(&mut self, names: impl IntoIterator<Item = String>) {
        self.next.namespaces.extend(names);
    }

    /// Records that a Route of the namespace waits until fewer of its names are in quarantine.
    pub fn awaits_names(&mut self, namespace: &str) {
        self.await_names.insert(namespace.to_owned());
    }

    /// Requeues the Routes of a namespace that may have new names again.
    pub fn for_names_of(&mut self, namespace: &str) {
        self.next.namespaces.extend(self.await_names.take(namespace));
    }

    /// Checks the next batch. `fits` returns whether one of some Routers can take a Route. Returns the number of requeued Routes,
    /// and whether more must be checked.
    fn requeue_batch(
        &mut self,
        queue: &mut Queue,
        fits: impl Fn(&ObjectKey, &BTreeSet<String>) -> bool,
    ) -> (usize, bool) {
        let (events, mut pass) = match self.current.take() {
            Some(current) => current,
            None if self.next == ClusterEvents::default() => return (0, false),
            None => (std::mem::take(&mut self.next), queue.requeue_pass()),
        };
        let hint = |key: &ObjectKey| events.queueing_hint(key, |routers| fits(key, routers));
        let requeued = queue.requeue(&mut pass, CHECKED_IN_A_ROW, hint);
        if !pass.is_over() {
            self.current = Some((events, pass));
        }
        (requeued, self.current.is_some() || self.next != ClusterEvents::default())
    }
}

impl Scheduler {
    /// Requeues the Routes that one of these Routers can take now, and those whose host a deleted one may have blocked; or, when
    /// few wait, all of them, because their messages list Routers.
    pub(super) fn requeue_for_routers(&mut self, names: &[String]) {
        if names.is_empty() {
            return;
        }
        self.moves.could_help();
        match self.queue.depths().unschedulable {
            0..=REQUEUED_WITHOUT_HINT_MAX => self.requeuer.for_any(),
            _ => self.requeuer.for_routers(names),
        }
    }

    /// Checks a batch of the unschedulable Routes. Returns whether there are more to check.
    pub(super) fn requeue_batch(&mut self) -> bool {
        let strategy = self.choice.in_use.strategy();
        let (objects, snapshot) = (&self.objects, &self.snapshot);
        let fits = |key: &ObjectKey, names: &BTreeSet<String>| {
            let Some(route) = objects.routes.get(key) else { return false };
            // Whether a host is the platform's own depends on all Routers, also on deleted ones.
            if route.host.is_some() || route.move_to.is_some() {
                return true;
            }
            let namespace = objects.namespace_of(key);
            let request = PlacementRequest::new(key, &route, &namespace);
            names
                .iter()
                .filter_map(|name| snapshot.router(name))
                .any(|(router, shard)| evaluate(&request, router, shard, strategy).is_ok())
        };
        let (requeued, more) = self.requeuer.requeue_batch(&mut self.queue, fits);
        self.metrics.woken.inc_by(requeued as u64);
        more
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;
    use crate::scheduler::queue::BackoffSettings;

    fn key(number: usize) -> ObjectKey {
        ObjectKey::namespaced(["even", "odd"][number % 2], &number.to_string())
    }

    /// Returns a queue with `count` waiting Routes in order.
    fn waiting(count: usize) -> Queue {
        let mut queue = Queue::new(BackoffSettings::default());
        (0..count).for_each(|number| queue.push(key(number)));
        while let Some(key) = queue.pop() {
            queue.unschedulable(&key, Instant::now(), 0);
        }
        queue
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_change_during_a_pass_is_for_the_next_pass() {
        let mut queue = waiting(CHECKED_IN_A_ROW + 2);
        let mut requeuer = Requeuer::default();
        requeuer.for_routers(&names(&["a"]));
        assert_eq!(requeuer.requeue_batch(&mut queue, |_, routers| routers.contains("b")), (0, true));
        requeuer.for_routers(&names(&["b"]));
        requeuer.for_namespaces(names(&["odd"]));
        // The last two are checked for `a` alone, and all of them then for the others.
        assert_eq!(requeuer.requeue_batch(&mut queue, |_, routers| routers.contains("b")), (0, true));
        let fits = |key: &ObjectKey, routers: &BTreeSet<String>| {
            assert!(routers.contains("b") && !routers.contains("a"));
            key.name == "0"
        };
        assert_eq!(requeuer.requeue_batch(&mut queue, fits), (1 + CHECKED_IN_A_ROW / 2, true));
        assert_eq!(requeuer.requeue_batch(&mut queue, fits), (1, false));
        requeuer.for_any();
        assert_eq!(requeuer.requeue_batch(&mut queue, |_, _| false), (CHECKED_IN_A_ROW / 2, false));
        assert_eq!(queue.depths().unschedulable, 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any events between batches: no waiting Route is lost: after all passes, each Route that fits a new Router was
        /// requeued or decided since, and no other was.
        #[test]
        fn none_is_lost_and_none_seen_twice(
            steps in proptest::collection::vec((0_u8..5, 0_usize..1_000), 0..60),
        ) {
            let mut queue = waiting(1_000);
            let mut requeuer = Requeuer::default();
            // Router n fits the routes whose number it divides.
            let mut routers: BTreeSet<usize> = BTreeSet::new();
            let fits_one = |key: &ObjectKey, router: usize| key.name.parse::<usize>().expect("a number") % router == 0;
            let fits = |key: &ObjectKey, names: &BTreeSet<String>| {
                names.iter().any(|name| fits_one(key, name.parse().expect("a number")))
            };
            let mut placed: BTreeSet<String> = BTreeSet::new();
            for (action, number) in steps.into_iter().chain(std::iter::repeat_n((0, 0), 30)) {
                match action {
                    0 | 1 => { requeuer.requeue_batch(&mut queue, fits); }
                    2 => {
                        let router = 2 + number % 50;
                        routers.insert(router);
                        requeuer.for_routers(&[router.to_string()]);
                    }
                    // A route changes.
                    3 => if !placed.contains(&number.to_string()) { queue.push(key(number)); },
                    // Some that are awake are judged.
                    _ => for _ in 0..number % 40 {
                        let Some(key) = queue.pop() else { break };
                        if routers.iter().any(|router| fits_one(&key, *router)) {
                            queue.done(&key);
                            prop_assert!(placed.insert(key.name), "placed twice");
                        } else {
                            queue.unschedulable(&key, Instant::now(), 0);
                        }
                    },
                }
            }
            while let Some(key) = queue.pop() {
                if routers.iter().any(|router| fits_one(&key, *router)) {
                    queue.done(&key);
                    prop_assert!(placed.insert(key.name), "placed twice");
                } else {
                    queue.unschedulable(&key, Instant::now(), 0);
                }
            }
            prop_assert_eq!(requeuer.requeue_batch(&mut queue, fits), (0, false));
            let fitting = (0..1_000).filter(|number| routers.iter().any(|router| number % router == 0));
            prop_assert_eq!(placed, fitting.map(|number: usize| number.to_string()).collect());
            prop_assert_eq!(queue.depths().unschedulable + queue.depths().active, 1_000 - placed_count(&queue));
        }
    }

    fn placed_count(queue: &Queue) -> usize {
        (0..1_000).filter(|number| !queue.holds(&key(*number))).count()
    }
}
