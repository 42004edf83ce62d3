//! One suite for every engine of `store`: what the trait promises, each promise a test, each test run on each engine.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use signpost_apiserver::store::embedded::{Embedded, FORMAT, OpenError, Options};
use signpost_apiserver::store::memory::Memory;
use signpost_apiserver::store::repair::Offline;
use signpost_apiserver::store::{
    Error, Event, EventKind, Key, KeyValue, Outcome, Precondition, Revision, Store, TXN_OCTETS_MAX, TXN_OPERATIONS_MAX,
    Txn, Write,
};

/// No wait in this suite is longer, so that a lost event is a failure and not a hang.
const PATIENCE: Duration = Duration::from_secs(120);

fn open(directory: &Path, options: Options) -> Arc<dyn Store> {
    Arc::new(Embedded::open(directory, options).unwrap())
}

/// Runs `test` on an empty store of each engine.
fn on_each_engine<F: Future<Output = ()>>(test: impl Fn(Arc<dyn Store>) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for engine in [Arc::new(Memory::new()) as Arc<dyn Store>, open(directory.path(), Options::default())] {
        runtime.block_on(async { tokio::time::timeout(PATIENCE, test(engine)).await.expect("in time") });
    }
}

fn key(name: &str) -> Key {
    Key(name.into())
}

fn put(name: &str, value: &str) -> Write {
    Write::Put { key: key(name), value: Bytes::copy_from_slice(value.as_bytes()), ttl: None }
}

fn delete(name: &str) -> Write {
    Write::Delete { key: key(name) }
}

fn txn(expect: &[(&str, Precondition)], writes: Vec<Write>) -> Txn {
    Txn { expect: expect.iter().map(|(name, expect)| (key(name), *expect)).collect(), writes }
}

/// Commits without conditions.
async fn commit(store: &Arc<dyn Store>, writes: Vec<Write>) -> Revision {
    match store.commit(txn(&[], writes)).await.unwrap() {
        Outcome::Committed(revision) => revision,
        refused => panic!("{refused:?}"),
    }
}

async fn value(store: &Arc<dyn Store>, name: &str, at: Option<Revision>) -> Option<String> {
    let (_, found) = store.get(&key(name), at).await.unwrap();
    found.map(|found| text(&found))
}

fn text(value: &KeyValue) -> String {
    String::from_utf8(value.value.to_vec()).unwrap()
}

/// The next `count` items of a watch.
async fn events(store: &Arc<dyn Store>, prefix: &str, after: Revision, count: usize) -> Vec<Vec<Event>> {
    let watch = store.watch(&key(prefix), after);
    watch.take(count).map(|item| item.unwrap()).collect().await
}

/// An event in short: `revision key=value was before`.
fn short(event: &Event) -> String {
    let what = match event.kind {
        EventKind::Put => format!("{}={}", event.now.key.0, text(&event.now)),
        EventKind::Delete => format!("{} deleted, last {}", event.now.key.0, text(&event.now)),
    };
    let before = event.before.as_ref().map(|before| format!(" was {}", text(before))).unwrap_or_default();
    format!("{what}{before}")
}

#[test]
fn an_empty_store_has_a_revision_and_nothing_else() {
    on_each_engine(|store| async move {
        assert!(store.revision().await.unwrap() > Revision(0));
        let page = store.list(&key("/"), None, None, None).await.unwrap();
        assert_eq!((page.items.len(), page.more), (0, false));
        assert_eq!(page.at, store.revision().await.unwrap());
    });
}

#[test]
fn revisions_say_who_created_and_who_wrote() {
    on_each_engine(|store| async move {
        let first = commit(&store, vec![put("/a", "1")]).await;
        let second = commit(&store, vec![put("/a", "2")]).await;
        assert!(second > first);
        let (at, found) = store.get(&key("/a"), None).await.unwrap();
        let found = found.unwrap();
        assert_eq!((at, found.created, found.modified, text(&found)), (second, first, second, "2".into()));
        assert_eq!(value(&store, "/a", Some(first)).await.as_deref(), Some("1"));
        let gone = commit(&store, vec![delete("/a")]).await;
        assert_eq!(value(&store, "/a", None).await, None);
        assert_eq!(value(&store, "/a", Some(second)).await.as_deref(), Some("2"));
        let again = commit(&store, vec![put("/a", "3")]).await;
        assert_eq!(store.get(&key("/a"), None).await.unwrap().1.unwrap().created, again);
        assert_eq!(value(&store, "/a", Some(gone)).await, None);
    });
}

#[test]
fn expectations_decide_and_refusals_say_what_was_found() {
    on_each_engine(|store| async move {
        let first = commit(&store, vec![put("/a", "1")]).await;
        let cases: [(&[(&str, Precondition)], bool); 9] = [
            (&[("/a", Precondition::Absent)], false),
            (&[("/a", Precondition::Present)], true),
            (&[("/a", Precondition::At(first))], true),
            (&[("/a", Precondition::At(Revision(first.0 + 1)))], false),
            (&[("/b", Precondition::Absent)], true),
            (&[("/b", Precondition::Present)], false),
            (&[("/b", Precondition::At(first))], false),
            (&[("/a", Precondition::At(first)), ("/b", Precondition::Absent)], true),
            (&[("/a", Precondition::At(first)), ("/b", Precondition::Present)], false),
        ];
        for (expect, holds) in cases {
            let before = store.revision().await.unwrap();
            match store.commit(txn(expect, vec![put("/c", "x"), delete("/d")])).await.unwrap() {
                Outcome::Committed(revision) => assert!(holds && revision > before, "{expect:?}"),
                Outcome::Refused { at, found } => {
                    assert!(!holds, "{expect:?}");
                    assert_eq!(at, before);
                    assert_eq!(store.revision().await.unwrap(), before, "a refusal takes no revision");
                    let found: Vec<_> = found.iter().map(|found| found.as_ref().map(text)).collect();
                    let mut expected = Vec::new();
                    for (name, _) in expect {
                        expected.push(value(&store, name, None).await);
                    }
                    assert_eq!(found, expected);
                }
            }
        }
    });
}

#[test]
fn what_changes_nothing_takes_no_revision() {
    on_each_engine(|store| async move {
        let newest = commit(&store, vec![put("/a", "1")]).await;
        for writes in [vec![], vec![delete("/b")], vec![delete("/b"), delete("/c")]] {
            assert_eq!(commit(&store, writes).await, newest);
        }
        assert_eq!(store.revision().await.unwrap(), newest);
    });
}

#[test]
fn lists_show_one_revision_in_key_order() {
    on_each_engine(|store| async move {
        let names = ["/r/ns1/b", "/r/ns1/a", "/r/ns10/a", "/r/ns2/a", "/q/ns1/a", "/r/ns1/c"];
        commit(&store, names.iter().map(|name| put(name, "old")).collect()).await;
        commit(&store, vec![delete("/r/ns1/c"), put("/r/ns1/d", "old")]).await;
        let names = |items: &[KeyValue]| items.iter().map(|item| item.key.0.to_string()).collect::<Vec<_>>();

        let all = store.list(&key("/r/"), None, None, None).await.unwrap();
        assert_eq!(names(&all.items), ["/r/ns1/a", "/r/ns1/b", "/r/ns1/d", "/r/ns10/a", "/r/ns2/a"]);
        let one = store.list(&key("/r/ns1/"), None, None, None).await.unwrap();
        assert_eq!(names(&one.items), ["/r/ns1/a", "/r/ns1/b", "/r/ns1/d"]);

        // Pages of two at the first page's revision, with writes between them that must not show.
        let mut found = Vec::new();
        let mut page = store.list(&key("/r/"), None, None, Some(2)).await.unwrap();
        let at = page.at;
        let mut left = 5;
        loop {
            assert_eq!(page.at, at);
            left -= page.items.len();
            assert_eq!(page.more, left > 0);
            assert!(page.remaining.is_none_or(|remaining| remaining == left as u64));
            assert!(page.items.iter().all(|item| text(item) == "old"));
            found.extend(names(&page.items));
            if !page.more {
                break;
            }
            let from = key(&format!("{}\0", found.last().unwrap()));
            commit(&store, vec![put("/r/ns1/a", "new"), put("/r/ns2/a", "new"), put("/r/ns2/b", "new")]).await;
            commit(&store, vec![delete("/r/ns10/a")]).await;
            commit(&store, vec![put("/r/ns10/a", "new")]).await;
            page = store.list(&key("/r/"), Some(&from), Some(at), Some(2)).await.unwrap();
        }
        assert_eq!(found, names(&all.items));
        // `from` includes its key, and one that lies before the prefix is no way out of it.
        let from = store.list(&key("/r/"), Some(&key("/r/ns2/a")), Some(at), None).await.unwrap();
        assert_eq!(names(&from.items), ["/r/ns2/a"]);
        let before = store.list(&key("/r/"), Some(&key("/a")), Some(at), None).await.unwrap();
        assert_eq!(before.items.len(), 5);
        let none = store.list(&key("/r/"), None, Some(at), Some(0)).await.unwrap();
        assert_eq!((none.items.len(), none.more), (0, true));
    });
}

#[test]
fn watches_give_history_then_the_present_with_what_was_before() {
    on_each_engine(|store| async move {
        let start = store.revision().await.unwrap();
        commit(&store, vec![put("/a/x", "1"), put("/b/x", "1")]).await;
        commit(&store, vec![put("/c/x", "1")]).await;
        let watcher = store.clone();
        let watching = tokio::spawn(async move { events(&watcher, "/a/", start, 4).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        commit(&store, vec![put("/a/y", "1"), put("/a/x", "2")]).await;
        let deletion = commit(&store, vec![delete("/a/x"), put("/c/x", "2")]).await;
        commit(&store, vec![put("/a/x", "3")]).await;

        let seen = watching.await.unwrap();
        let short: Vec<Vec<String>> = seen.iter().map(|events| events.iter().map(short).collect()).collect();
        assert_eq!(
            short,
            [vec!["/a/x=1"], vec!["/a/x=2 was 1", "/a/y=1"], vec!["/a/x deleted, last 2 was 2"], vec!["/a/x=3"]]
        );
        let deleted = &seen[2][0];
        assert_eq!((deleted.at, deleted.now.modified), (deletion, deletion));
        assert!(deleted.before.as_ref().unwrap().modified < deletion);
        assert!(seen.windows(2).all(|pair| pair[0][0].at < pair[1][0].at));
        // A second watch from the same place sees the same.
        assert_eq!(events(&store, "/a/", start, 4).await, seen);
        // From the middle, and everything.
        assert_eq!(events(&store, "/a/", seen[1][0].at, 2).await, seen[2..]);
        assert_eq!(events(&store, "/", start, 5).await.iter().map(Vec::len).sum::<usize>(), 8);
    });
}

#[test]
fn a_watch_of_the_future_waits_for_it() {
    on_each_engine(|store| async move {
        let newest = commit(&store, vec![put("/a", "1")]).await;
        let watcher = store.clone();
        let watching = tokio::spawn(async move { events(&watcher, "/", Revision(newest.0 + 2), 1).await });
        for value in ["2", "3", "4"] {
            commit(&store, vec![put("/a", value)]).await;
        }
        assert_eq!(short(&watching.await.unwrap()[0][0]), "/a=4 was 3");
    });
}

#[test]
fn compaction_forgets_what_was_superseded_and_says_so() {
    on_each_engine(|store| async move {
        let start = store.revision().await.unwrap();
        let mut revisions = Vec::new();
        for step in 0..10 {
            revisions.push(commit(&store, vec![put("/a", &step.to_string()), put(&format!("/k{step}"), "x")]).await);
        }
        commit(&store, vec![delete("/k0")]).await;
        let (upto, newest) = (revisions[6], commit(&store, vec![put("/last", "x")]).await);
        store.compact(upto).await.unwrap();
        store.compact(revisions[2]).await.expect("what is forgotten already needs no error");

        for old in [start, revisions[0], revisions[5]] {
            let compacted = |error: &Error| matches!(error, Error::Compacted { oldest } if *oldest == upto);
            assert!(store.get(&key("/a"), Some(old)).await.is_err_and(|error| compacted(&error)));
            assert!(store.list(&key("/"), None, Some(old), None).await.is_err_and(|error| compacted(&error)));
            let mut watch = pin!(store.watch(&key("/"), old));
            assert!(watch.next().await.unwrap().is_err_and(|error| compacted(&error)));
            assert!(watch.next().await.is_none(), "the stream ends after an error");
        }
        assert_eq!(value(&store, "/a", Some(upto)).await.as_deref(), Some("6"));
        assert_eq!(value(&store, "/k0", Some(upto)).await.as_deref(), Some("x"));
        assert_eq!(store.list(&key("/"), None, Some(upto), None).await.unwrap().items.len(), 8);
        let seen = events(&store, "/a", upto, 3).await;
        let seen: Vec<String> = seen.iter().map(|events| short(&events[0])).collect();
        assert_eq!(seen, ["/a=7 was 6", "/a=8 was 7", "/a=9 was 8"]);

        store.compact(newest).await.unwrap();
        assert_eq!(value(&store, "/k0", None).await, None);
        assert_eq!(store.list(&key("/"), None, None, None).await.unwrap().items.len(), 11);
    });
}

#[test]
fn the_future_cannot_be_read() {
    on_each_engine(|store| async move {
        let newest = commit(&store, vec![put("/a", "1")]).await;
        let future = Revision(newest.0 + 1);
        let reported = |error: Error| matches!(error, Error::Future { newest: reported } if reported == newest);
        assert!(store.get(&key("/a"), Some(future)).await.is_err_and(reported));
        assert!(store.list(&key("/"), None, Some(future), None).await.is_err_and(reported));
        assert!(store.compact(future).await.is_err_and(reported));
    });
}

#[test]
fn keys_with_a_time_to_live_go() {
    on_each_engine(|store| async move {
        let brief = |name: &str, ttl| Write::Put { key: key(name), value: Bytes::from_static(b"x"), ttl: Some(ttl) };
        // Long enough for what is written in between, however slow the disk.
        let (ttl, long_ttl) = (Duration::from_secs(4), Duration::from_secs(3600));
        let start = commit(&store, vec![brief("/e/2", ttl), put("/e/3", "x"), brief("/e/4", long_ttl)]).await;
        // Written again without an end: the first deadline is void. The one that goes has a later one.
        commit(&store, vec![put("/e/2", "kept"), brief("/e/1", ttl)]).await;
        let seen: Vec<String> = events(&store, "/e/", start, 2).await.iter().flatten().map(short).collect();
        assert_eq!(seen, ["/e/1=x", "/e/2=kept was x", "/e/1 deleted, last x was x"]);
        assert_eq!(store.list(&key("/e/"), None, None, None).await.unwrap().items.len(), 3);
    });
}

#[test]
fn what_is_too_large_is_refused_whole() {
    on_each_engine(|store| async move {
        let before = store.revision().await.unwrap();
        let large = "x".repeat(TXN_OCTETS_MAX / 2);
        let many = (0..=TXN_OPERATIONS_MAX).map(|number| put(&format!("/{number}"), "x")).collect();
        for writes in [vec![put("/a", &large), put("/b", &large)], many, vec![put(&"k".repeat(70_000), "x")]] {
            let outcome = store.commit(txn(&[], writes)).await;
            assert!(matches!(outcome, Err(Error::TooLarge { .. })), "{outcome:?}");
        }
        assert_eq!(store.revision().await.unwrap(), before);
        commit(&store, vec![put("/a", &large)]).await;
        assert_eq!(value(&store, "/a", None).await.unwrap().len(), large.len());
    });
}

#[test]
fn concurrent_read_modify_write_loses_nothing() {
    on_each_engine(|store| async move {
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let store = store.clone();
                tokio::spawn(async move {
                    let name = format!("/counter/{}", task % 4);
                    let mut done = 0;
                    let mut held = None;
                    while done < 25 {
                        let (expect, number) = match &held {
                            None => (Precondition::Absent, 0),
                            Some(found) => {
                                (Precondition::At(KeyValue::clone(found).modified), text(found).parse().unwrap())
                            }
                        };
                        let next: u32 = number + 1;
                        match store.commit(txn(&[(&name, expect)], vec![put(&name, &next.to_string())])).await.unwrap()
                        {
                            Outcome::Committed(_) => done += 1,
                            // What was found is enough to try again; no read in this loop.
                            Outcome::Refused { found, .. } => held = found.into_iter().next().unwrap(),
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        for counter in 0..4 {
            assert_eq!(value(&store, &format!("/counter/{counter}"), None).await.as_deref(), Some("100"));
        }
    });
}

#[test]
fn a_watcher_that_sleeps_reads_history_and_misses_nothing() {
    on_each_engine(|store| async move {
        let start = store.revision().await.unwrap();
        let mut watch = pin!(store.watch(&key("/"), start));
        commit(&store, vec![put("/n", "first")]).await;
        assert_eq!(short(&watch.next().await.unwrap().unwrap()[0]), "/n=first");
        // More than the ring of recent revisions holds, while the watcher does not look.
        let writers: Vec<_> = (0..50)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move {
                    for number in 0..100 {
                        commit(&store, vec![put(&format!("/n/{writer}"), &number.to_string())]).await;
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let mut last = BTreeMap::new();
        let mut newest = Revision(0);
        for _ in 0..5_000 {
            let events = watch.next().await.unwrap().unwrap();
            assert!(events[0].at > newest, "revisions in order");
            newest = events[0].at;
            let number: i32 = text(&events[0].now).parse().unwrap();
            let before = last.insert(events[0].now.key.clone(), number);
            assert_eq!(number, before.map_or(0, |before| before + 1), "none is left out");
        }
        assert_eq!(newest, store.revision().await.unwrap());
    });
}

#[test]
fn watches_end_when_the_store_is_closed() {
    on_each_engine(|store| async move {
        let newest = store.revision().await.unwrap();
        let watch = store.watch(&key("/"), newest);
        let watching = tokio::spawn(async move { pin!(watch).next().await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(store);
        assert!(matches!(watching.await.unwrap(), Some(Err(Error::Unavailable))));
    });
}

#[test]
#[should_panic(expected = "writes the key /a twice")]
fn writing_a_key_twice_is_a_fault_of_the_program() {
    on_each_engine(|store| async move {
        commit(&store, vec![put("/a", "1"), delete("/a")]).await;
    });
}

// --- what only a store in a data directory can show ---

/// Runs `test` with a data directory.
fn in_directory<F: Future<Output = ()>>(test: impl FnOnce(std::path::PathBuf) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_path_buf();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test(path)).await.expect("in time") });
}

#[test]
fn a_second_start_finds_everything() {
    in_directory(|directory| async move {
        let open = || open(&directory, Options::default());
        let store = open();
        let start = store.revision().await.unwrap();
        commit(&store, vec![put("/a", "1")]).await;
        let newest = commit(&store, vec![put("/a", "2"), put("/b", "1")]).await;
        let seen = events(&store, "/", start, 2).await;
        drop(store);

        let store = open();
        assert_eq!(store.revision().await.unwrap(), newest);
        assert_eq!(value(&store, "/a", None).await.as_deref(), Some("2"));
        assert_eq!(events(&store, "/", start, 2).await, seen, "watches resume over a restart");
        assert!(commit(&store, vec![put("/a", "3")]).await > newest);
    });
}

#[test]
fn history_is_forgotten_by_itself_but_never_the_newest_revisions() {
    in_directory(|directory| async move {
        let options =
            Options { history: Some(Duration::from_millis(20)), history_revisions_min: 5, ..Options::default() };
        let store = open(&directory, options);
        let start = store.revision().await.unwrap();
        let mut newest = start;
        for number in 0..20 {
            newest = commit(&store, vec![put("/a", &number.to_string())]).await;
        }
        let deadline = tokio::time::Instant::now() + PATIENCE / 2;
        let oldest = loop {
            match store.get(&key("/a"), Some(Revision(newest.0 - 6))).await {
                Err(Error::Compacted { oldest }) => break oldest,
                Ok(_) => assert!(tokio::time::Instant::now() < deadline, "history stays"),
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(oldest, Revision(newest.0 - 5));
        assert_eq!(events(&store, "/", oldest, 5).await.len(), 5);
    });
}

#[test]
fn history_is_bounded_in_bytes_and_its_space_is_used_again() {
    in_directory(|directory| async move {
        let options = || Options { history_bytes_max: 4 << 20, ..Options::default() };
        let store = open(&directory, options());
        let start = commit(&store, vec![put("/small", "x")]).await;
        let large = "x".repeat(500_000);
        let mut newest = start;
        for number in 0..200 {
            newest = commit(&store, vec![put("/a", &format!("{number}{large}"))]).await;
        }
        let forgotten = async |store: &Arc<dyn Store>, at: Revision| {
            let deadline = tokio::time::Instant::now() + PATIENCE / 2;
            while !matches!(store.get(&key("/small"), Some(at)).await, Err(Error::Compacted { .. })) {
                assert!(tokio::time::Instant::now() < deadline, "history stays");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // Eight large values are within the budget, and little more than that is forgotten.
        forgotten(&store, Revision(newest.0 - 9)).await;
        assert!(value(&store, "/a", Some(Revision(newest.0 - 6))).await.is_some(), "more than needed is forgotten");
        assert_eq!(value(&store, "/small", None).await.as_deref(), Some("x"));
        let octets = std::fs::metadata(directory.join("store.redb")).unwrap().len();
        assert!(octets < 40 << 20, "100 MB of writes with 4 MiB of history take {octets} octets");
        drop(store);

        // The history in the file counts after a restart.
        let store = open(&directory, options());
        let before = newest;
        for number in 0..4 {
            newest = commit(&store, vec![put("/a", &format!("{number}{large}"))]).await;
        }
        forgotten(&store, Revision(before.0 - 5)).await;
        assert!(value(&store, "/a", Some(Revision(newest.0 - 6))).await.is_some(), "more than needed is forgotten");
    });
}

#[test]
fn of_too_many_keys_with_a_time_to_live_the_first_to_end_go() {
    in_directory(|directory| async move {
        let store = open(&directory, Options { expiring_max: 10, ..Options::default() });
        commit(&store, vec![put("/e/stays", "x")]).await;
        let brief = |number: usize| Write::Put {
            key: key(&format!("/e/{number:03}")),
            value: Bytes::from_static(b"x"),
            ttl: Some(Duration::from_secs(3600 + number as u64)),
        };
        for number in 0..200 {
            commit(&store, vec![brief(number)]).await;
        }
        let left = store.list(&key("/e/"), None, None, None).await.unwrap().items;
        // It is not done for each one that is too many.
        assert!((11..100).contains(&left.len()), "{}", left.len());
        let expected = (200 - (left.len() - 1)..200).map(|number| format!("/e/{number:03}"));
        let names: Vec<_> = left.iter().map(|item| item.key.0.to_string()).collect();
        assert_eq!(names, expected.chain(["/e/stays".to_owned()]).collect::<Vec<_>>());
    });
}

/// Options of a store whose disk never has enough room.
fn full() -> Options {
    Options { room_octets: u64::MAX, ..Options::default() }
}

#[test]
fn without_room_the_store_does_not_grow_and_all_can_be_read() {
    in_directory(|directory| async move {
        let store = open(&directory, Options::default());
        let written = commit(&store, vec![put("/a", "1"), put("/held", "held by someone")]).await;
        assert_eq!(store.full(), None);
        drop(store);
        let store = open(&directory, full());
        for writes in [vec![put("/a", "22")], vec![put("/b", "1")], vec![put("/b", "1"), delete("/a")]] {
            let refused = store.commit(Txn { expect: vec![], writes }).await;
            assert!(matches!(refused, Err(Error::Full { needed: u64::MAX })), "{refused:?}");
        }
        assert_eq!(store.full(), Some(u64::MAX));
        assert_eq!(store.revision().await.unwrap(), written);
        assert_eq!(value(&store, "/a", None).await.as_deref(), Some("1"));
        drop(store);
        let store = open(&directory, Options::default());
        assert!(commit(&store, vec![put("/a", "22")]).await > written);
    });
}

#[test]
fn without_room_deletions_expiry_and_compaction_go_on() {
    static LATER: AtomicBool = AtomicBool::new(false);
    let now = || {
        let later = if LATER.load(Ordering::Relaxed) { Duration::from_secs(7_200) } else { Duration::ZERO };
        std::time::SystemTime::now() + later
    };
    in_directory(|directory| async move {
        let store = open(&directory, Options { now, ..Options::default() });
        let hour = Some(Duration::from_secs(3600));
        let brief = Write::Put { key: key("/brief"), value: Bytes::from_static(b"x"), ttl: hour };
        let first = commit(&store, vec![put("/a", "1"), put("/b", "22"), put("/held", "held"), brief]).await;
        for number in 0..100 {
            commit(&store, vec![put("/churn", &format!("{number:0>600}"))]).await;
        }
        drop(store);
        let store = open(&directory, Options { now, ..full() });
        // What does not grow, what only deletes, and what is part of a deletion even where it grows.
        commit(&store, vec![put("/b", "33")]).await;
        commit(&store, vec![delete("/a")]).await;
        let marking = Txn { expect: vec![], writes: vec![put("/held", "held, to be deleted"), put("/mark", "x")] };
        assert!(matches!(store.commit_freeing(marking).await.unwrap(), Outcome::Committed(_)));
        LATER.store(true, Ordering::Relaxed);
        let expired = async {
            while value(&store, "/brief", None).await.is_some() {
                tokio::task::yield_now().await
            }
        };
        tokio::time::timeout(PATIENCE, expired).await.expect("keys with a time to live go");
        // All history goes, whatever was to be kept.
        let forgotten = async {
            while !matches!(store.get(&key("/a"), Some(first)).await, Err(Error::Compacted { .. })) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, forgotten).await.expect("history is forgotten");
        store.compact(store.revision().await.unwrap()).await.unwrap();
        let left: Vec<_> = store.list(&key("/"), None, None, None).await.unwrap().items;
        let names: Vec<&str> = left.iter().map(|item| &*item.key.0).collect();
        assert_eq!(names, ["/b", "/churn", "/held", "/mark"]);
    });
}

#[test]
fn after_a_failed_sync_the_store_ends_and_the_next_one_reads_the_disk() {
    static FAILS: AtomicBool = AtomicBool::new(false);
    // Once, as Linux reports it: what is tried again succeeds.
    let before_sync = || match FAILS.swap(false, Ordering::Relaxed) {
        true => Err(std::io::Error::from_raw_os_error(5)),
        false => Ok(()),
    };
    in_directory(|directory| async move {
        let store = Embedded::open(&directory, Options { before_sync, ..Options::default() }).unwrap();
        let ended = store.ended();
        let store: Arc<dyn Store> = Arc::new(store);
        let acknowledged = commit(&store, vec![put("/a", "1")]).await;
        FAILS.store(true, Ordering::Relaxed);
        let failed = store.commit(Txn { expect: vec![], writes: vec![put("/a", "2")] }).await;
        assert!(matches!(failed, Err(Error::OutcomeUnknown)), "{failed:?}");
        let why = tokio::time::timeout(Duration::from_secs(60), ended).await.expect("it ends");
        let named = directory.join("store.redb").display().to_string();
        assert!(why.starts_with(&named) && why.contains("failed to sync to disk"), "{why}");
        let refused = store.commit(Txn { expect: vec![], writes: vec![put("/b", "1")] }).await;
        assert!(matches!(refused, Err(Error::Unavailable | Error::OutcomeUnknown)), "{refused:?}");
        drop(store);
        let store = open(&directory, Options::default());
        assert!(store.revision().await.unwrap() >= acknowledged);
        assert!(value(&store, "/a", None).await.is_some());
        commit(&store, vec![put("/b", "1")]).await;
    });
}

#[test]
fn a_panic_of_the_writer_ends_the_store() {
    static PANICS: AtomicBool = AtomicBool::new(false);
    let now = || {
        assert!(!PANICS.load(Ordering::Relaxed), "a fault of its own");
        std::time::SystemTime::now()
    };
    in_directory(|directory| async move {
        let store = Embedded::open(&directory, Options { now, ..Options::default() }).unwrap();
        let ended = store.ended();
        let store: Arc<dyn Store> = Arc::new(store);
        commit(&store, vec![put("/a", "1")]).await;
        PANICS.store(true, Ordering::Relaxed);
        let failed = store.commit(Txn { expect: vec![], writes: vec![put("/a", "2")] }).await;
        assert!(matches!(failed, Err(Error::OutcomeUnknown)), "{failed:?}");
        let why = tokio::time::timeout(Duration::from_secs(60), ended).await.expect("it ends");
        assert_eq!(why, "the thread store-writer panicked: a fault of its own");
    });
}

#[test]
fn a_directory_in_use_is_refused() {
    in_directory(|directory| async move {
        let store = open(&directory, Options::default());
        let Err(error) = Embedded::open(&directory, Options::default()) else { panic!("opened twice") };
        assert!(matches!(error, OpenError::InUse { .. }));
        assert!(error.to_string().contains("lock: another process uses this data directory"), "{error}");
        drop(store);
        Embedded::open(&directory, Options::default()).expect("free again");
    });
}

#[test]
fn another_format_is_refused() {
    in_directory(|directory| async move {
        drop(open(&directory, Options::default()));
        for format in [1, FORMAT - 1, FORMAT + 1] {
            let database = redb::Database::open(directory.join("store.redb")).unwrap();
            let meta: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("meta");
            let transaction = database.begin_write().unwrap();
            transaction.open_table(meta).unwrap().insert("format", format).unwrap();
            transaction.commit().unwrap();
            drop(database);
            let error = Embedded::open(&directory, Options::default()).err().expect("it is refused");
            match &error {
                OpenError::NewerFormat { found, supported, .. } => assert_eq!((*found, *supported), (format, FORMAT)),
                OpenError::OlderFormat { found, .. } => assert!(*found == format && format < FORMAT, "{found}"),
                error => panic!("{error}"),
            }
            let again = Embedded::open(&directory, Options::default()).err().unwrap();
            assert_eq!(error.to_string(), again.to_string());
            let offline = Offline::open(&directory).err().expect("it is refused");
            assert_eq!(error.to_string(), offline.to_string());
        }
    });
}

#[test]
fn what_is_no_store_is_refused() {
    in_directory(|directory| async move {
        let file = directory.join("store.redb");
        std::fs::write(&file, "apiVersion: v1\n".repeat(1000)).unwrap();
        let error = Embedded::open(&directory, Options::default()).err().unwrap();
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
        assert!(error.to_string().contains("store.redb: not a readable store"), "{error}");
        let error = Embedded::open(&file, Options::default()).err().unwrap();
        assert!(matches!(error, OpenError::Io { .. }), "{error:?}");

        // A store that was cut off.
        std::fs::remove_file(&file).unwrap();
        drop(open(&directory, Options::default()));
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..whole.len() / 3]).unwrap();
        let error = Embedded::open(&directory, Options::default()).err().unwrap();
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
    });
}
