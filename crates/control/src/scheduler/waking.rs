//! Which of the routes that wait for a Router a change could help.
//!
//! 100,000 of them may wait when a Router comes, and to look at all takes as long as to place hundreds. So they are looked at a
//! slice at a time, in the order in which they began to wait, and between slices whatever else comes is seen to. A change that
//! comes while a *round* goes on is for the next one, with all others that come until then: however many there are, each
//! waiting route is looked at once a round. A route that begins to wait meanwhile was judged by what is known now, and is not
//! looked at.

use std::collections::{BTreeSet, HashSet};

use super::Scheduler;
use super::filter::{Wish, judge};
use super::queue::{Queue, Round};
use crate::client::reflector::ObjectKey;

/// When no more routes than this wait, a change of any Router makes them all say anew why they wait. When more do, each such
/// change would write to all of them; they then say so at their next look.
const TOLD_AT_ONCE_MAX: usize = 1000;
/// Routes that are looked at before other work is: half a millisecond's worth.
const LOOKED_AT_IN_A_ROW: usize = 256;

/// What has changed that could help.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Causes {
    /// Something that could help any route.
    any: bool,
    /// Routers that are new, decide differently, have room, or are gone.
    routers: BTreeSet<String>,
    /// Namespaces that changed, or whose quota has room.
    namespaces: BTreeSet<String>,
}

impl Causes {
    fn is_empty(&self) -> bool {
        *self == Causes::default()
    }

    /// Whether the route at `key` could be helped, if `fits` tells whether one of these Routers can take it.
    fn could_help(&self, key: &ObjectKey, fits: impl Fn(&BTreeSet<String>) -> bool) -> bool {
        self.any
            || key.namespace.as_ref().is_some_and(|namespace| self.namespaces.contains(namespace))
            || !self.routers.is_empty() && fits(&self.routers)
    }
}

/// The round that goes on, and what the next one is for.
#[derive(Debug, Default)]
pub(super) struct Waking {
    current: Option<(Causes, Round)>,
    next: Causes,
    /// The namespaces with routes that were refused a name since too many of theirs are in quarantine.
    await_names: HashSet<String>,
}

impl Waking {
    /// Everything may be otherwise.
    pub fn for_any(&mut self) {
        self.next.any = true;
    }

    fn for_routers(&mut self, names: &[String]) {
        self.next.routers.extend(names.iter().cloned());
    }

    /// Namespaces may take routes that they did not.
    pub fn for_namespaces(&mut self, names: impl IntoIterator<Item = String>) {
        self.next.namespaces.extend(names);
    }

    /// A route waits until fewer names of its namespace are in quarantine.
    pub fn awaits_names(&mut self, namespace: &str) {
        self.await_names.insert(namespace.to_owned());
    }

    /// A namespace may have new names.
    pub fn for_names_of(&mut self, namespace: &str) {
        self.next.namespaces.extend(self.await_names.take(namespace));
    }

    /// Looks at the next slice; `fits` tells whether one of some Routers can take a route. The answer is how many are woken,
    /// and whether more are to be looked at.
    fn go_on(&mut self, queue: &mut Queue, fits: impl Fn(&ObjectKey, &BTreeSet<String>) -> bool) -> (usize, bool) {
        let (causes, mut round) = match self.current.take() {
            Some(current) => current,
            None if self.next.is_empty() => return (0, false),
            None => (std::mem::take(&mut self.next), queue.round()),
        };
        let could_help = |key: &ObjectKey| causes.could_help(key, |routers| fits(key, routers));
        let woken = queue.wake(&mut round, LOOKED_AT_IN_A_ROW, could_help);
        if !round.is_over() {
            self.current = Some((causes, round));
        }
        (woken, self.current.is_some() || !self.next.is_empty())
    }
}

impl Scheduler {
    /// Wakes the routes that one of these Routers can take now, and those that one which is gone may have kept from their host;
    /// when few wait, all of them, to tell of these Routers too, or of one that is gone no more.
    pub(super) fn wake_for_routers(&mut self, names: &[String]) {
        if names.is_empty() {
            return;
        }
        self.moves.could_help();
        match self.queue.depths().unschedulable {
            0..=TOLD_AT_ONCE_MAX => self.waking.for_any(),
            _ => self.waking.for_routers(names),
        }
    }

    /// Looks at some of the routes that wait; whether there are more to look at.
    pub(super) fn wake_some(&mut self) -> bool {
        let strategy = self.choice.in_use.strategy();
        let (objects, snapshot) = (&self.objects, &self.snapshot);
        let fits = |key: &ObjectKey, names: &BTreeSet<String>| {
            let Some(route) = objects.routes.get(key) else { return false };
            // Whether a host is the platform's own depends on all Routers, also on those that are gone.
            if route.host.is_some() || route.move_to.is_some() {
                return true;
            }
            let namespace = objects.namespace_of(key);
            let wish = Wish { key, route: &route, namespace: &namespace, platform_host: None, leaving: None };
            let takes = |name: &String| {
                snapshot.router(name).is_some_and(|(router, shard)| judge(&wish, router, shard, strategy).is_ok())
            };
            names.iter().any(takes)
        };
        let (woken, more) = self.waking.go_on(&mut self.queue, fits);
        self.metrics.woken.inc_by(woken as u64);
        more
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;
    use crate::scheduler::queue::Waits;

    fn key(number: usize) -> ObjectKey {
        ObjectKey::namespaced(["even", "odd"][number % 2], &number.to_string())
    }

    /// A queue in which so many wait, in their order.
    fn waiting(count: usize) -> Queue {
        let mut queue = Queue::new(Waits::default());
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
    fn all_are_looked_at_a_slice_at_a_time_in_the_order_in_which_they_came() {
        let mut queue = waiting(3 * LOOKED_AT_IN_A_ROW - 1);
        let mut waking = Waking::default();
        assert_eq!(waking.go_on(&mut queue, |_, _| unreachable!("nothing changed")), (0, false));
        waking.for_routers(&names(&["a"]));
        let seen = RefCell::new(Vec::new());
        for slice in 1..=3 {
            let fits = |key: &ObjectKey, routers: &BTreeSet<String>| {
                assert!(routers.contains("a"));
                seen.borrow_mut().push(key.clone());
                false
            };
            assert_eq!(waking.go_on(&mut queue, fits), (0, slice < 3), "{slice}");
        }
        assert_eq!(*seen.borrow(), (0..3 * LOOKED_AT_IN_A_ROW - 1).map(key).collect::<Vec<_>>());
    }

    #[test]
    fn what_changes_during_a_round_is_for_the_next() {
        let mut queue = waiting(LOOKED_AT_IN_A_ROW + 2);
        let mut waking = Waking::default();
        waking.for_routers(&names(&["a"]));
        assert_eq!(waking.go_on(&mut queue, |_, routers| routers.contains("b")), (0, true));
        waking.for_routers(&names(&["b"]));
        waking.for_namespaces(names(&["odd"]));
        // The last two are asked about `a` alone, and all of them then about the others.
        assert_eq!(waking.go_on(&mut queue, |_, routers| routers.contains("b")), (0, true));
        let fits = |key: &ObjectKey, routers: &BTreeSet<String>| {
            assert!(routers.contains("b") && !routers.contains("a"));
            key.name == "0"
        };
        assert_eq!(waking.go_on(&mut queue, fits), (1 + LOOKED_AT_IN_A_ROW / 2, true));
        assert_eq!(waking.go_on(&mut queue, fits), (1, false));
        waking.for_any();
        assert_eq!(waking.go_on(&mut queue, |_, _| false), (LOOKED_AT_IN_A_ROW / 2, false));
        assert_eq!(queue.depths().unschedulable, 0);
    }

    #[test]
    fn who_begins_to_wait_during_a_round_is_not_looked_at_in_it() {
        let mut queue = waiting(LOOKED_AT_IN_A_ROW + 1);
        let mut waking = Waking::default();
        waking.for_routers(&names(&["a"]));
        assert!(waking.go_on(&mut queue, |_, _| false).1);
        // The route that is still to be looked at changes, and is found to wait anew.
        let changed = key(LOOKED_AT_IN_A_ROW);
        queue.push(changed.clone());
        assert_eq!(queue.pop(), Some(changed.clone()));
        queue.unschedulable(&changed, Instant::now(), 0);
        assert_eq!(waking.go_on(&mut queue, |_, _| unreachable!("it was judged a moment ago")), (0, false));
        assert_eq!(queue.depths().unschedulable, LOOKED_AT_IN_A_ROW + 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever happens between the slices, no waiting route is lost: once all rounds are over, each that a Router fits
        /// which has come has been woken or judged since; and none is woken that none fits, or while it does not wait.
        #[test]
        fn none_is_lost_and_none_seen_twice(
            steps in proptest::collection::vec((0_u8..5, 0_usize..1_000), 0..60),
        ) {
            let mut queue = waiting(1_000);
            let mut waking = Waking::default();
            // Router n fits the routes whose number it divides.
            let mut routers: BTreeSet<usize> = BTreeSet::new();
            let fits_one = |key: &ObjectKey, router: usize| key.name.parse::<usize>().expect("a number") % router == 0;
            let fits = |key: &ObjectKey, names: &BTreeSet<String>| {
                names.iter().any(|name| fits_one(key, name.parse().expect("a number")))
            };
            let mut placed: BTreeSet<String> = BTreeSet::new();
            for (action, number) in steps.into_iter().chain(std::iter::repeat_n((0, 0), 30)) {
                match action {
                    0 | 1 => { waking.go_on(&mut queue, fits); }
                    2 => {
                        let router = 2 + number % 50;
                        routers.insert(router);
                        waking.for_routers(&[router.to_string()]);
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
            prop_assert_eq!(waking.go_on(&mut queue, fits), (0, false));
            let fitting = (0..1_000).filter(|number| routers.iter().any(|router| number % router == 0));
            prop_assert_eq!(placed, fitting.map(|number: usize| number.to_string()).collect());
            prop_assert_eq!(queue.depths().unschedulable + queue.depths().active, 1_000 - placed_count(&queue));
        }
    }

    fn placed_count(queue: &Queue) -> usize {
        (0..1_000).filter(|number| !queue.holds(&key(*number))).count()
    }
}
