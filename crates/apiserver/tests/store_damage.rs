//! Damage of a store's file: flipped bits, and files that are empty or older. In every case, the store opens and reports the
//! unreadable values, or refuses to open with an action for the operator. No value is ever wrong or silently missing, and nothing
//! hangs.
//!
//! `DAMAGE=long` flips bits at many more positions.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures::StreamExt;
use signpost_apiserver::store::backup::{REVISION_JUMP, backup, read, restore, verify};
use signpost_apiserver::store::embedded::{Embedded, OpenError, Options};
use signpost_apiserver::store::repair::Offline;
use signpost_apiserver::store::{Error, Key, Outcome, Precondition, Revision, Store, Txn, Write};

const STORE: &str = "store.redb";
const IDENTITY: &str = "store-identity";
/// Longer than any open of a small file takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

type Values = BTreeMap<String, Vec<u8>>;

fn is_long() -> bool {
    std::env::var("DAMAGE").is_ok_and(|form| form == "long")
}

fn key(name: &str) -> Key {
    Key(name.into())
}

fn put(name: &str, value: &[u8]) -> Write {
    Write::Put { key: key(name), value: Bytes::copy_from_slice(value), ttl: None }
}

async fn commit(store: &Embedded, writes: Vec<Write>) -> Revision {
    match store.commit(Txn { writes, ..Txn::default() }).await.unwrap() {
        Outcome::Committed(revision) => revision,
        refused => panic!("{refused:?}"),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Returns a store with values of many sizes, history and deletions, closed; and what it holds.
fn sample(directory: &Path, count: usize) -> Values {
    let mut expected = Values::new();
    runtime().block_on(async {
        let store = Embedded::open(directory, Options::default()).unwrap();
        for round in 0..3 {
            for chunk in (0..count).collect::<Vec<_>>().chunks(16) {
                let mut writes = Vec::new();
                for number in chunk {
                    let name = format!("/signpost.dev/routes/ns{}/route-{number:04}", number % 7);
                    if round == 2 && number % 11 == 0 {
                        expected.remove(&name);
                        writes.push(Write::Delete { key: key(&name) });
                        continue;
                    }
                    let value =
                        format!("{{\"round\":{round},\"name\":\"{name}\"}}").repeat(1 + number % 13).into_bytes();
                    writes.push(put(&name, &value));
                    expected.insert(name, value);
                }
                commit(&store, writes).await;
            }
        }
    });
    expected
}

/// Copies what makes a store into another directory.
fn copy(from: &Path, to: &Path, store: &[u8]) {
    std::fs::write(to.join(STORE), store).unwrap();
    std::fs::copy(from.join(IDENTITY), to.join(IDENTITY)).unwrap();
}

/// The outcome of opening a damaged store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Unaffected,
    Reported,
    Refused,
    BrokeOff,
}

/// Opens a damaged store and compares all its results with its former contents.
fn fate(directory: &Path, expected: &Values) -> Fate {
    let file = directory.join(STORE);
    let before = std::fs::read(&file).unwrap();
    // As `signpost check store` does, which writes nothing, also if it finds damage.
    drop(Offline::open(directory).and_then(|offline| offline.verify()));
    assert!(std::fs::read(&file).unwrap() == before, "a check rewrites the file");
    let store = match Embedded::open(directory, Options::default()) {
        Ok(store) => store,
        Err(error) => {
            assert!(std::fs::read(&file).unwrap() == before, "the file is rewritten before it is refused: {error}");
            let reported = error.to_string();
            assert!(reported.contains(STORE) && reported.contains("restore"), "{reported}");
            return Fate::Refused;
        }
    };
    let runtime = runtime();
    let broke_off = |error: &Error| {
        assert!(store.damage().is_broken(), "{error}");
        let reported = runtime.block_on(store.damage().broken());
        assert!(reported.contains(STORE) && reported.contains("\"check store\""), "{reported}");
        Fate::BrokeOff
    };
    let page = match runtime.block_on(store.list(&key("/"), None, None, None)) {
        Ok(page) => page,
        Err(error) => return broke_off(&error),
    };
    let damaged: Vec<String> = page.damaged.iter().map(|damaged| damaged.key.0.to_string()).collect();
    let found: Values = page.items.iter().map(|item| (item.key.0.to_string(), item.value.to_vec())).collect();
    for (name, value) in &found {
        assert_eq!(expected.get(name), Some(value), "{name} is served and was never written so");
    }
    for name in expected.keys() {
        let (is_found, is_damaged) = (found.contains_key(name), damaged.contains(name));
        assert!(is_found != is_damaged, "{name} is gone without a word, or is both: {is_found} {is_damaged}");
        match runtime.block_on(store.get(&key(name), None)) {
            Ok((_, got)) => assert_eq!(got.map(|got| got.value.to_vec()).as_ref(), found.get(name), "{name}"),
            Err(Error::Damaged { key, .. }) => assert!(*key.0 == **name && damaged.contains(name), "{name}"),
            Err(error) => return broke_off(&error),
        }
    }
    for name in &damaged {
        assert!(store.damage().first(usize::MAX).iter().any(|known| *known.key.0 == **name), "{name} is not reported");
    }
    // What is damaged is not taken for absent, and everything else can be written.
    for name in damaged.iter().take(3) {
        let txn =
            Txn { expect: vec![(key(name), Precondition::Absent)], writes: vec![put(name, b"new")], ..Txn::default() };
        match runtime.block_on(store.commit(txn)) {
            Err(Error::Damaged { .. }) => {}
            // A key that is none of the store's: a deletion, or the key itself was hit.
            Ok(_) if !expected.contains_key(name) => {}
            Err(error) => return broke_off(&error),
            Ok(outcome) => panic!("{name}: {outcome:?}"),
        }
    }
    match runtime.block_on(store.commit(Txn { writes: vec![put("/new", b"new")], ..Txn::default() })) {
        Ok(Outcome::Committed(_)) => {}
        Ok(refused) => panic!("{refused:?}"),
        Err(error) => return broke_off(&error),
    }
    let is_affected = store.damage().count() > 0;
    drop(store);
    match is_affected {
        true => Fate::Reported,
        false => Fate::Unaffected,
    }
}

/// Returns the same, within bounds.
fn bounded_fate(directory: &Path, expected: &Values, what: &str) -> Fate {
    let (report, reported) = mpsc::channel();
    let (directory, expected) = (directory.to_owned(), expected.clone());
    let thread = std::thread::spawn(move || report.send(fate(&directory, &expected)));
    match reported.recv_timeout(PATIENCE) {
        Ok(fate) => fate,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let panic = thread.join().unwrap_err();
            let words = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
            panic!("{what}: {words}");
        }
    }
}

#[test]
fn no_flipped_bit_changes_or_hides_a_value() {
    let (origin, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = sample(origin.path(), 120);
    let whole = std::fs::read(origin.path().join(STORE)).unwrap();
    copy(origin.path(), place.path(), &whole);
    assert_eq!(bounded_fate(place.path(), &expected, "nothing"), Fate::Unaffected);

    // Pages that were never used are zero.
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let rounds: usize = if is_long() { 20_000 } else { 250 };
    let mut fates = BTreeMap::<Fate, usize>::new();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..rounds {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // One of five hits the header, where few bits steer everything.
        let at = match round % 5 {
            0 => used[random as usize % used.partition_point(|at| *at < 512)],
            _ => used[random as usize % used.len()],
        };
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (random >> 40 & 7);
        copy(origin.path(), place.path(), &damaged);
        *fates.entry(bounded_fate(place.path(), &expected, &format!("octet {at}"))).or_default() += 1;
    }
    println!("{fates:?}");
    assert!(fates.contains_key(&Fate::Reported) && fates.contains_key(&Fate::Refused), "{fates:?}");
}

/// An operator sees the error of a damaged page, not a panic of the library. The other tests of this file, in a process of
/// their own, print nothing else.
#[test]
fn a_damaged_page_prints_no_panic() {
    let tests = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "no_flipped_bit_changes_or_hides_a_value", "--nocapture"])
        .env_remove("DAMAGE")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&tests.stderr);
    assert!(tests.status.success(), "{printed}");
    // A write that meets a damaged page ends the store's writer, which reports its panic like any other.
    let panics = printed.lines().filter(|line| line.contains("panicked at") && !line.contains("'store-writer'"));
    assert_eq!(panics.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn no_lost_block_changes_or_hides_a_value() {
    let (origin, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = sample(origin.path(), 120);
    let whole = std::fs::read(origin.path().join(STORE)).unwrap();
    let mut fates = BTreeMap::<Fate, usize>::new();
    let blocks: Vec<usize> =
        (0..whole.len()).step_by(4096).filter(|at| whole[*at..].iter().take(4096).any(|octet| *octet != 0)).collect();
    for (nth, at) in blocks.iter().enumerate() {
        let mut damaged = whole.clone();
        let end = (at + 4096).min(whole.len());
        match nth % 2 {
            0 => damaged[*at..end].fill(0),
            // What another block holds.
            _ => damaged.copy_within(blocks[nth - 1]..(blocks[nth - 1] + end - at), *at),
        }
        copy(origin.path(), place.path(), &damaged);
        *fates.entry(bounded_fate(place.path(), &expected, &format!("block {at}"))).or_default() += 1;
    }
    println!("{fates:?}");
}

/// Flips a bit of every copy of `part` in the file of a store.
fn damage(directory: &Path, part: &str) {
    let file = directory.join(STORE);
    let mut octets = std::fs::read(&file).unwrap();
    let places: Vec<usize> = octets
        .windows(part.len())
        .enumerate()
        .filter(|(_, found)| *found == part.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty(), "{part} is not there");
    places.iter().for_each(|at| octets[*at] ^= 1);
    std::fs::write(file, octets).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_damaged_value_is_reported_restored_and_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(directory.path(), Options::default()).unwrap();
    for name in ["/a", "/b", "/c"] {
        commit(&store, vec![put(name, format!("value-of-{name}").as_bytes())]).await;
    }
    let mut whole = Vec::new();
    backup(&store, &mut whole).unwrap();
    drop(store);
    for name in ["/a", "/b"] {
        damage(directory.path(), &format!("value-of-{name}"));
    }

    let store = Embedded::open(directory.path(), Options::default()).unwrap();
    assert_eq!(store.damage().count(), 2, "found at the start");
    let mut partial = Vec::new();
    backup(&store, &mut partial).unwrap();
    let summary = verify(&mut partial.as_slice()).unwrap();
    assert_eq!((summary.values, summary.damaged), (1, vec![key("/a"), key("/b")]), "a backup names what it lacks");
    // An existing watch receives the deletion of an unreadable value.
    let from = store.revision().await.unwrap();
    let mut watch = Box::pin(store.watch(&key("/"), from));
    commit(&store, vec![Write::Delete { key: key("/a") }]).await;
    let events = watch.next().await.unwrap().unwrap();
    assert_eq!((&*events[0].now.key.0, events[0].now.value.len(), events[0].before.is_none()), ("/a", 0, true));
    assert_eq!(store.damage().first(9).len(), 1);
    drop((watch, store));

    // As `signpost check store` does.
    let offline = Offline::open(directory.path()).unwrap();
    let found = offline.verify().unwrap();
    assert_eq!((found.values, found.damaged.len()), (1, 1));
    let mut writes = Vec::new();
    read(&mut whole.as_slice(), |item| {
        if item.key == found.damaged[0].key {
            writes.push(Write::Put { key: item.key, value: item.value, ttl: None });
        }
    })
    .unwrap();
    offline.mend(writes).unwrap();
    assert!(offline.verify().unwrap().damaged.is_empty());
    drop(offline);
    let store = Embedded::open(directory.path(), Options::default()).unwrap();
    assert_eq!(store.damage().count(), 0);
    assert_eq!(&*store.get(&key("/b"), None).await.unwrap().1.unwrap().value, b"value-of-/b");
    assert!(store.get(&key("/a"), None).await.unwrap().1.is_none());
}

#[tokio::test]
async fn a_value_under_another_key_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(directory.path(), Options::default()).unwrap();
    commit(&store, vec![put("/a-key", b"a"), put("/c-key", b"c")]).await;
    drop(store);
    // At every position, the key is then another one, and the value that of the former.
    damage(directory.path(), "c-key");
    let store = Embedded::open(directory.path(), Options::default()).unwrap();
    let page = store.list(&key(""), None, None, None).await.unwrap();
    let names: Vec<_> = page.items.iter().map(|item| &*item.key.0).collect();
    assert_eq!((names, &*page.damaged[0].key.0), (vec!["/a-key"], "/b-key"));
}

#[test]
fn a_large_store_is_verified_while_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let count = if is_long() { 60_000 } else { 200 };
    sample(directory.path(), count);
    damage(directory.path(), "\"round\":2,\"name\":\"/signpost.dev/routes/ns3/route-0003");
    let octets = std::fs::metadata(directory.path().join(STORE)).unwrap().len();
    let open = |verified_first_bytes_max| {
        let options = Options { verified_first_bytes_max, ..Options::default() };
        let begun = Instant::now();
        let store = Embedded::open(directory.path(), options).unwrap();
        (store, begun.elapsed())
    };
    let (store, first) = open(u64::MAX);
    assert_eq!(store.damage().count(), 1, "it was verified first");
    drop(store);
    let (store, beside) = open(0);
    let begun = Instant::now();
    while store.damage().count() == 0 {
        assert!(begun.elapsed() < PATIENCE, "it is not verified");
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("{octets} bytes: open and verify {first:?}; open {beside:?}, found after {:?}", begun.elapsed());
    drop(store);
    // One that is closed at once does not wait for the check, and can be opened again.
    drop(open(0));
    drop(open(0));
}

#[tokio::test]
async fn an_empty_file_is_no_new_platform() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(STORE);
    drop(Embedded::open(directory.path(), Options::default()).unwrap());
    let refused = |what: &str| {
        let error = Embedded::open(directory.path(), Options::default()).err().unwrap();
        let reported = error.to_string();
        assert!(matches!(error, OpenError::Gone { .. }), "{reported}");
        assert!(reported.contains(what) && reported.contains("\"restore\""), "{reported}");
    };
    std::fs::write(&file, "").unwrap();
    refused("is empty");
    std::fs::remove_file(&file).unwrap();
    refused("is missing");
    drop(redb::Database::create(&file).unwrap());
    refused("has no tables of a store");
    // Certificates show it as well.
    std::fs::remove_file(directory.path().join(IDENTITY)).unwrap();
    std::fs::create_dir(directory.path().join("pki")).unwrap();
    refused("has no tables of a store");
    std::fs::write(&file, "").unwrap();
    refused("is empty");
    // Before a first start there may be certificates, and no store.
    std::fs::remove_file(&file).unwrap();
    drop(Embedded::open(directory.path(), Options::default()).unwrap());
}

#[tokio::test]
async fn an_older_file_in_the_place_of_the_store_is_a_new_history() {
    let directory = tempfile::tempdir().unwrap();
    let (file, old) = (directory.path().join(STORE), directory.path().join("old"));
    let options = || Options {
        moved_on: |item| (&*item.key.0 == "/zone").then(|| Bytes::from_static(b"moved on")),
        ..Options::default()
    };
    let open = || Embedded::open(directory.path(), options()).unwrap();
    let store = open();
    commit(&store, vec![put("/kept", b"old"), put("/zone", b"unchanged")]).await;
    drop(store);
    // In another directory, and after several openings, it is unchanged.
    let before = open().revision().await.unwrap();
    std::fs::copy(&file, &old).unwrap();
    assert_eq!(open().revision().await.unwrap(), before);

    // While it ran, and after it had been stopped: both are older than what comes next.
    for is_copied_while_it_runs in [false, true] {
        let store = open();
        if is_copied_while_it_runs {
            std::fs::copy(&file, &old).unwrap();
        }
        commit(&store, vec![put("/new", b"lost")]).await;
        let newest = store.revision().await.unwrap();
        drop(store);
        std::fs::rename(&old, &file).unwrap();
        let store = open();
        let first = store.revision().await.unwrap();
        assert_eq!(first, Revision(newest.0 + REVISION_JUMP), "{is_copied_while_it_runs}");
        // Clients that saw the lost revision start again.
        let mut watch = Box::pin(store.watch(&key("/"), newest));
        assert!(matches!(watch.next().await, Some(Err(Error::Compacted { oldest })) if oldest == first));
        let value = async |name: &str| store.get(&key(name), None).await.unwrap().1;
        assert_eq!(value("/kept").await.unwrap().value, "old");
        let zone = value("/zone").await.unwrap();
        assert_eq!((&*zone.value, zone.modified), (&b"moved on"[..], first));
        assert!(store.verify().unwrap().damaged.is_empty());
        drop((watch, store));
        std::fs::copy(&file, &old).unwrap();
    }
    // A restore is recorded as such and not reported as a replaced file.
    let store = open();
    let mut whole = Vec::new();
    let at = backup(&store, &mut whole).unwrap();
    drop(store);
    std::fs::remove_file(&file).unwrap();
    let first = restore(directory.path(), &mut whole.as_slice(), |_| None).unwrap();
    assert_eq!(first, Revision(at.0 + REVISION_JUMP));
    assert_eq!(open().revision().await.unwrap(), first);
}

#[tokio::test]
async fn the_end_of_a_damaged_event_is_a_deletion() {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(directory.path(), Options::default()).unwrap();
    let ttl = Some(Duration::from_secs(600));
    let value = Bytes::from_static(b"an event");
    commit(&store, vec![Write::Put { key: key("/event"), value, ttl }]).await;
    drop(store);
    damage(directory.path(), "an event");
    let later = Options { now: || SystemTime::now() + Duration::from_secs(3600), ..Options::default() };
    let store = Embedded::open(directory.path(), later).unwrap();
    let gone = async {
        while store.damage().count() > 0 || store.get(&key("/event"), None).await.unwrap().1.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it ends with its time");
}
