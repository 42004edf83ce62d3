//! An API that answers, and answers wrongly.

use std::time::Instant;

use crate::liar::{Liar, Lie};
use crate::split::Split;
use signpost_testing::{Scrape, eventually};

/// The lies that hide the current objects from the name server, each with the reason that it counts.
const HIDING: [(Lie, &str); 8] = [
    (Lie::Lists(403), "forbidden"),
    (Lie::Lists(500), "failing"),
    (Lie::All(401), "forbidden"),
    (Lie::All(429), "failing"),
    (Lie::All(500), "failing"),
    (Lie::All(502), "failing"),
    (Lie::GarbageLists, "invalid_response"),
    (Lie::WrongObjects, "invalid_response"),
];

/// The lies that the name server can correct: by listing again, or because every event contains the whole object.
const SEEN_THROUGH: [(Lie, &str); 7] = [
    (Lie::Watches(403), "forbidden"),
    (Lie::Watches(410), "expired"),
    (Lie::Gone, "expired"),
    (Lie::GarbageLines, "invalid_response"),
    (Lie::CutLines, ""),
    (Lie::ShortWatches, "closed"),
    (Lie::Duplicates, ""),
];

fn through_a_liar() -> (Split, Liar) {
    Split::through(|_, kubeconfig| {
        let liar = Liar::before(kubeconfig);
        (format!("http://{}", liar.address), liar)
    })
}

#[test]
fn and_hides_what_is_there() {
    let (mut split, liar) = through_a_liar();
    let all = split.watches().1;
    for (lie, reason) in HIDING {
        let when = format!("{lie:?}");
        let before = split.restarts(reason);
        liar.set_lie(lie);
        split.change();
        eventually(&format!("{when}: it counts as {reason}"), || (split.restarts(reason) > before).then_some(()));
        eventually(&format!("{when}: no watch is open"), || (split.watches().0 == 0).then_some(()));
        assert!(split.is_ready(), "{when}");
        liar.set_lie(Lie::None);
        let took = split.converge(&when);
        eventually(&format!("{when}: all watches are open"), || (split.watches().0 == all).then_some(()));
        println!("{when}: DNS equals the objects {took:?} after the last lie; {}", split.steady(&when));
    }
}

/// An empty list, once, followed by silent watches, as when nothing changes.
#[test]
fn with_an_empty_list() {
    let (mut split, liar) = through_a_liar();
    let held = |split: &Split| Scrape::of(split.dns_ports.admin).sum("signpost_deletion_hold_objects", &[]);
    liar.set_lie(Lie::EmptyLists);
    eventually("the name server holds the deletion of all objects", || (held(&split) >= 6.0).then_some(()));
    split.steady("an empty list");
    liar.set_lie(Lie::None);
    let restored = Instant::now();
    eventually("a new list has the held objects", || (held(&split) == 0.0).then_some(()));
    let found = restored.elapsed();
    split.change();
    split.converge("the list is true again");
    println!("an empty list: all of it held, and found again after {found:?}; {}", split.steady("after an empty list"));
}

#[test]
fn and_is_seen_through() {
    let (mut split, liar) = through_a_liar();
    for (lie, reason) in SEEN_THROUGH {
        let when = format!("{lie:?}");
        let before = split.restarts(reason);
        liar.set_lie(lie);
        split.change();
        let took = split.converge(&when);
        if !reason.is_empty() {
            eventually(&format!("{when}: it counts as {reason}"), || (split.restarts(reason) > before).then_some(()));
        }
        println!("{when}: DNS equals the objects {took:?} later, while it still lies; {}", split.steady(&when));
        liar.set_lie(Lie::None);
        split.change();
        split.converge(&format!("the truth after {when}"));
    }
}

/// Events that arrive together are reordered, or only the last one of each object is delivered: many changes of the same objects
/// at once, including objects that are deleted and re-created under their names.
#[test]
fn about_the_order_of_events() {
    let (mut split, liar) = through_a_liar();
    for lie in [Lie::Coalesced, Lie::Reordered] {
        let when = format!("{lie:?}");
        liar.set_lie(lie);
        for _ in 0..12 {
            split.change();
        }
        let took = split.converge(&when);
        println!("{when}: DNS equals the objects after {took:?}; {}", split.steady(&when));
    }
}
