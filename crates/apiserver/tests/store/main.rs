//! One suite for every engine of `store`: what the trait promises, each promise a test, each test run on each engine.
#![allow(clippy::unwrap_used)]

mod directory;
#[cfg(feature = "etcd")]
mod etcd;

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
use signpost_apiserver::store::encrypted::{Encrypted, KEY_OCTETS, Keyring};
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

/// Returns a view of an engine in which all values are encrypted.
fn encrypted(engine: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Encrypted::new(engine, Arc::new(Keyring::new(&[[7; KEY_OCTETS]])), [""]))
}

/// Runs `test` on an empty store of each engine, with values in plain text and with encrypted ones.
fn on_each_engine<F: Future<Output = ()>>(test: impl Fn(Arc<dyn Store>) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (plain, sealed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for engine in [
        Arc::new(Memory::new()) as Arc<dyn Store>,
        open(plain.path(), Options::default()),
        encrypted(Arc::new(Memory::new())),
        encrypted(open(sealed.path(), Options::default())),
    ] {
        runtime.block_on(async { tokio::time::timeout(PATIENCE, test(engine)).await.expect("in time") });
    }
    #[cfg(feature = "etcd")]
    for (members, is_encrypted) in [(1, false), (3, false), (1, true)] {
        let cluster = etcd::start(members);
        runtime.block_on(async {
            let engine = etcd::connect(&cluster).await;
            let engine = if is_encrypted { encrypted(engine) } else { engine };
            tokio::time::timeout(PATIENCE, test(engine)).await.expect("in time");
        });
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
    Txn { expect: expect.iter().map(|(name, expect)| (key(name), *expect)).collect(), writes, ..Txn::default() }
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

/// Returns the next `count` items of a watch.
async fn events(store: &Arc<dyn Store>, prefix: &str, after: Revision, count: usize) -> Vec<Vec<Event>> {
    let watch = store.watch(&key(prefix), after);
    watch.take(count).map(|item| item.unwrap()).collect().await
}

/// Returns an event in short: `revision key=value was before`.
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
fn what_was_read_is_in_the_revision_that_is_reported_next() {
    on_each_engine(|store| async move {
        let writing = store.clone();
        let writer = tokio::spawn(async move {
            for number in 0..200 {
                commit(&writing, vec![put("/a", &number.to_string())]).await;
            }
        });
        while !writer.is_finished() {
            let (at, found) = store.get(&key("/a"), None).await.unwrap();
            let listed = store.list(&key("/"), None, None, None).await.unwrap();
            let newest = store.revision().await.unwrap();
            assert!(found.is_none_or(|found| found.modified <= at) && at <= listed.at && listed.at <= newest);
        }
        writer.await.unwrap();
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
        // Longer than the writes in between take, even on a busy machine.
        let (ttl, long_ttl) = (Duration::from_secs(8), Duration::from_secs(3600));
        let start = commit(&store, vec![brief("/e/2", ttl), put("/e/3", "x"), brief("/e/4", long_ttl)]).await;
        // Written again without a deadline: the first deadline is void. The expiring one has a later deadline.
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
                            // The values in the refusal suffice for a retry; this loop does not read.
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
