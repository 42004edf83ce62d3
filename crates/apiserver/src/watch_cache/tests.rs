//! Tests of the watch cache: whole revisions, kept lines, packed objects, and the bounds of its history.

use serde_json::json;

use super::*;
use crate::object::encode;
use crate::registry::lease::LEASE;
use crate::registry::namespace::NAMESPACE;
use crate::store::{KeyValue, Revision};

fn namespaces() -> &'static Kind {
    &NAMESPACE
}

/// Returns a revision that writes a Lease of a namespace, with an annotation of `size` bytes.
fn lease(at: u64, namespace: &str, name: &str, size: usize) -> Vec<Event> {
    let kind = &*LEASE;
    let object = json!({"apiVersion": kind.api_version(), "kind": kind.kind,
                        "metadata": {"namespace": namespace, "name": name, "annotations": {"fill": "x".repeat(size)}}});
    let key = Key(format!("{}{namespace}/{name}", kind.key_prefix).into());
    let now = KeyValue { key, value: encode(&object).into(), created: Revision(1), modified: Revision(at) };
    vec![Event { at: Revision(at), kind: EventKind::Put, now, before: None }]
}

fn revisions(changes: Result<Vec<Arc<Change>>, TooOld>) -> Result<Vec<u64>, TooOld> {
    changes.map(|changes| changes.iter().map(|change| change.revision).collect())
}

#[test]
fn churn_of_one_namespace_leaves_the_window_of_another() {
    for (size, writes) in [(1_300_000, 40), (1, 5_000)] {
        let cache = WatchCache::new(&Kinds::default());
        let leases = &*LEASE;
        cache.apply(&[lease(1, "victim", "a", 10)]);
        let (_, mut slow) = cache.snapshot_and_follow(leases, "victim/");
        let (_, mut of_all) = cache.snapshot_and_follow(leases, "");
        cache.apply(&[lease(2, "victim", "a", 20)]);
        for at in 3..3 + writes {
            cache.apply(&[lease(at, "attacker", "big", size)]);
        }
        cache.apply(&[lease(3 + writes, "victim", "a", 30)]);
        assert!(cache.kind_cache(leases).state.read().history.bytes() <= history::HISTORY_BYTES_MAX);

        assert_eq!(revisions(slow.take(10)), Ok(vec![2, 3 + writes]));
        assert_eq!(revisions(slow.take(10)), Ok(vec![]));
        let mut resumed = cache.follow_from(leases, "victim/", 1).expect("nothing of the namespace was evicted");
        assert_eq!(revisions(resumed.take(1)), Ok(vec![2]));
        assert_eq!(revisions(resumed.take(1)), Ok(vec![3 + writes]));
        // A namespace without a change has lost none.
        assert!(cache.follow_from(leases, "quiet/", 1).is_ok());

        // The attacker has lost old changes, and so has a watch of all namespaces.
        let oldest = cache.follow_from(leases, "attacker/", 2).err().expect("evicted").oldest;
        assert!(oldest > 2 && oldest < 3 + writes);
        assert_eq!(of_all.take(10).err(), Some(TooOld { oldest }));
        assert_eq!(cache.follow_from(leases, "", oldest - 1).err(), Some(TooOld { oldest }));
        let mut rest = cache.follow_from(leases, "", oldest).expect("retained");
        let rest = rest.take(usize::MAX).expect("retained");
        assert!(rest.iter().map(|change| change.revision).eq(oldest + 1..=3 + writes));
    }
}

#[test]
fn without_a_large_namespace_the_oldest_changes_go() {
    let cache = WatchCache::new(&Kinds::default());
    let leases = &*LEASE;
    for at in 1..=6_000 {
        cache.apply(&[lease(at, &format!("tenant-{}", at % 50), "a", 1)]);
    }
    let rest = cache.follow_from(leases, "", 6_000 - 4_096).expect("retained").take(usize::MAX).expect("retained");
    assert_eq!(rest.len(), 4_096);
    assert_eq!(cache.follow_from(leases, "", 6_000 - 4_097).err(), Some(TooOld { oldest: 6_000 - 4_096 }));
}

#[test]
fn a_kind_that_is_read_anew_shows_the_revision_that_was_read() {
    let cache = WatchCache::new(&Kinds::default());
    let leases = &*LEASE;
    cache.apply(&[lease(3, "a", "a", 1)]);
    // Other kinds are still to be read, so the cache as a whole has not reached this revision.
    cache.kind_cache(leases).fill(BTreeSet::new(), Vec::new(), 5, false);
    assert_eq!(cache.applied(), 3);
    let (snapshot, mut cursor) = cache.snapshot_and_follow(leases, "");
    assert_eq!((snapshot.revision, snapshot.objects.len()), (5, 0));
    cache.apply(&[lease(6, "a", "b", 1)]);
    assert_eq!(revisions(cursor.take(10)), Ok(vec![6]));
}

/// Returns the events of a revision that writes these namespaces.
fn revision(at: u64, names: impl Iterator<Item = String>) -> Vec<Event> {
    let kind = namespaces();
    let put = |name: String| {
        let object = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": &name}});
        let key = Key(format!("{}{name}", kind.key_prefix).into());
        let now = KeyValue { key, value: encode(&object).into(), created: Revision(1), modified: Revision(at) };
        Event { at: Revision(at), kind: EventKind::Put, now, before: None }
    };
    names.map(put).collect()
}

#[test]
fn a_revision_is_seen_whole_or_not_at_all() {
    const OBJECTS: usize = 300;
    const REVISIONS: u64 = 200;
    let cache = WatchCache::new(&Kinds::default());
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while cache.applied() < REVISIONS {
                let (snapshot, mut cursor) = cache.snapshot_and_follow(namespaces(), "");
                let shown = snapshot.objects.iter().filter(|object| object.revision == snapshot.revision).count();
                assert!(snapshot.revision == 0 || shown == OBJECTS, "{shown} of revision {}", snapshot.revision);
                // What comes after it are whole revisions, too.
                let next = cursor.take(1).unwrap_or_default();
                assert!(next.is_empty() || next.len().is_multiple_of(OBJECTS), "{}", next.len());
                seen += 1;
            }
            seen
        });
        for at in 1..=REVISIONS {
            cache.apply(&[revision(at, (0..OBJECTS).map(|index| format!("ns-{index}")))]);
        }
        reader.join().expect("sees whole revisions")
    });
    assert!(seen > 0);
}

#[test]
fn a_piece_ends_with_a_revision() {
    let cache = WatchCache::new(&Kinds::default());
    let (_, mut cursor) = cache.snapshot_and_follow(namespaces(), "");
    for at in 1..=3 {
        cache.apply(&[revision(at, (0..3).map(|index| format!("ns-{index}")))]);
    }
    let mut pieces = |max| cursor.take(max).map(|changes| changes.iter().map(|one| one.revision).collect::<Vec<_>>());
    assert_eq!(pieces(1), Ok(vec![1, 1, 1]));
    assert_eq!(pieces(4), Ok(vec![2, 2, 2, 3, 3, 3]));
    assert_eq!(pieces(4), Ok(vec![]));
}

#[test]
fn lines_are_kept_for_those_who_keep_up() {
    let cache = WatchCache::new(&Kinds::default());
    let (_, mut late) = cache.snapshot_and_follow(namespaces(), "");
    let (_, mut prompt) = cache.snapshot_and_follow(namespaces(), "");
    let mut lines = Vec::new();
    for at in 1..=3 * LINES_KEPT as u64 {
        cache.apply(&[revision(at, std::iter::once("ns".to_owned()))]);
        lines.extend(prompt.take(10).expect("keeps up").iter().map(|change| change.line()));
    }
    let with_line = |cache: &WatchCache| {
        cache
            .kind_cache(namespaces())
            .state
            .read()
            .history
            .since(0)
            .filter(|change| change.line.get().is_some())
            .count()
    };
    assert_eq!(with_line(&cache), LINES_KEPT);
    let reported: Vec<_> = late.take(usize::MAX).expect("in the ring").iter().map(|change| change.line()).collect();
    assert_eq!(reported, lines, "re-created, the same");
}

#[test]
fn objects_at_rest_are_packed_and_reported_as_they_were() {
    const OBJECTS: usize = 3 * LINES_KEPT;
    let cache = WatchCache::new(&Kinds::default());
    cache.apply(&[revision(1, (0..OBJECTS).map(|index| format!("ns-{index:04}")))]);
    let packed = |cache: &WatchCache| {
        let snapshot = cache.snapshot(namespaces(), "");
        for (index, object) in snapshot.objects.iter().enumerate() {
            let metadata = json!({"name": format!("ns-{index:04}"), "resourceVersion": object.revision.to_string()});
            assert_eq!(object.tree()["metadata"], metadata);
        }
        snapshot.objects.iter().filter(|object| object.is_packed()).count()
    };
    assert_eq!(packed(&cache), OBJECTS - LINES_KEPT);
    // Who is written again is no longer at rest; who was written before it is.
    cache.apply(&[revision(2, std::iter::once("ns-0000".to_owned()))]);
    assert_eq!(packed(&cache), OBJECTS - LINES_KEPT);
    assert!(!cache.kind_cache(namespaces()).get("ns-0000").expect("there").is_packed());
}

#[test]
fn a_predicate_holds_up_no_write() {
    let cache = WatchCache::new(&Kinds::default());
    cache.apply(&[revision(1, (0..3).map(|index| format!("ns-{index}")))]);
    std::thread::scope(|scope| {
        let wrote = std::cell::OnceCell::new();
        let wanted = |_: &Object| {
            // Another client writes while a client's selector is evaluated.
            *wrote.get_or_init(|| {
                let (done, is_done) = std::sync::mpsc::channel();
                let cache = &cache;
                scope.spawn(move || {
                    cache.apply(&[revision(2, std::iter::once("ns-9".to_owned()))]);
                    let _ = done.send(());
                });
                is_done.recv_timeout(Duration::from_secs(20)).is_ok()
            })
        };
        let (page, more) = cache.page(namespaces(), "", 2, Some(&wanted));
        assert_eq!(wrote.get(), Some(&true), "the write waits for the selector");
        assert_eq!((page.revision, page.objects.len(), more), (1, 2, 1), "the page is of one revision");
    });
}
