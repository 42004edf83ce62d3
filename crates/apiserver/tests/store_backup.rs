//! Backup and restore: a backup during writes contains one revision; clients of the old store recover.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use signpost_apiserver::store::backup::{REVISION_JUMP, RestoreError, backup, restore, verify};
use signpost_apiserver::store::embedded::{Embedded, Options};
use signpost_apiserver::store::{Error, Key, KeyValue, Outcome, Precondition, Revision, Store, Txn, Write};

fn key(name: &str) -> Key {
    Key(name.into())
}

fn put(name: &str, value: &str, ttl: Option<Duration>) -> Write {
    Write::Put { key: key(name), value: Bytes::copy_from_slice(value.as_bytes()), ttl }
}

async fn commit(store: &Embedded, expect: Vec<(Key, Precondition)>, writes: Vec<Write>) -> Outcome {
    store.commit(Txn { expect, writes, ..Txn::default() }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_store_holds_one_revision_and_moves_on() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Embedded::open(old.path(), Options::default()).unwrap();
    // Each transaction writes the same number to two keys, so that half a one would show.
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0..300 {
                let number = number.to_string();
                commit(&store, vec![], vec![put("/a", &number, None), put("/z", &number, None)]).await;
            }
        }
    });
    commit(&store, vec![], vec![put("/event", "brief", Some(Duration::from_secs(15))), put("/m", "kept", None)]).await;
    let mut file = Vec::new();
    let at = tokio::task::block_in_place(|| backup(&store, &mut file)).unwrap();
    let summary = verify(&mut file.as_slice()).unwrap();
    assert_eq!((summary.revision, summary.first), (at, Revision(at.0 + REVISION_JUMP)));
    // One value is replaced.
    let changed = |item: &KeyValue| (&*item.key.0 == "/m").then(|| Bytes::from_static(b"another"));
    assert_eq!(restore(new.path(), &mut file.as_slice(), changed).unwrap(), summary.first);
    let restored = Embedded::open(new.path(), Options::default()).unwrap();
    let first = restored.revision().await.unwrap();
    let items = restored.list(&key("/"), None, None, None).await.unwrap().items;
    writing.await.unwrap();
    let newest = store.revision().await.unwrap();
    drop(store);
    let store = restored;
    assert!(first > newest, "no revision that a client holds is allocated again");
    assert!(items.iter().all(|item| item.modified <= at || &*item.key.0 == "/m" && item.modified == first));
    assert_eq!(items.len() as u64, summary.values);
    let value = |name: &str| items.iter().find(|item| &*item.key.0 == name).map(|item| item.value.clone());
    assert_eq!(value("/a"), value("/z"));
    assert_eq!(value("/m").as_deref(), Some(b"another".as_slice()));

    // A client of the old store: its watch and its continued list must start again.
    let mut watch = Box::pin(store.watch(&key("/"), newest));
    assert!(matches!(watch.next().await, Some(Err(Error::Compacted { oldest })) if oldest == first));
    assert!(matches!(store.list(&key("/"), None, Some(newest), None).await, Err(Error::Compacted { .. })));
    // Revisions of single objects stay valid for clients that read them before the backup.
    let kept = items.iter().find(|item| &*item.key.0 == "/m").unwrap().modified;
    let outcome = commit(&store, vec![(key("/m"), Precondition::At(kept))], vec![put("/m", "new", None)]).await;
    assert!(matches!(outcome, Outcome::Committed(revision) if revision > first));
    // The time to live continues.
    let gone = async {
        while store.get(&key("/event"), None).await.unwrap().1.is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), gone).await.expect("the event ends");
}

#[tokio::test]
async fn what_is_not_a_whole_backup_leaves_nothing() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Embedded::open(old.path(), Options::default()).unwrap();
    for number in 0..20 {
        commit(&store, vec![], vec![put(&format!("/{number}"), "value", None)]).await;
    }
    let mut whole = Vec::new();
    backup(&store, &mut whole).unwrap();
    for length in (0..whole.len()).step_by(7) {
        let error = restore(new.path(), &mut &whole[..length], |_| None).unwrap_err();
        assert!(matches!(error, RestoreError::Damaged(_)), "{length}: {error}");
        assert_eq!(verify(&mut &whole[..length]).unwrap_err().to_string(), error.to_string());
    }
    for changed in [3, 40, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[changed] ^= 0x40;
        let error = restore(new.path(), &mut damaged.as_slice(), |_| None).unwrap_err();
        assert!(matches!(error, RestoreError::Damaged(_)), "{changed}: {error}");
    }
    let mut other = whole.clone();
    other[22] = 9;
    assert!(matches!(
        restore(new.path(), &mut other.as_slice(), |_| None),
        Err(RestoreError::OtherFormat { found: 9 })
    ));
    let left: Vec<_> = std::fs::read_dir(new.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);

    let error = restore(old.path(), &mut whole.as_slice(), |_| None).unwrap_err();
    assert!(error.to_string().contains("another process uses"), "{error}");
    drop(store);
    assert!(matches!(restore(old.path(), &mut whole.as_slice(), |_| None), Err(RestoreError::Exists(_))));
    restore(new.path(), &mut whole.as_slice(), |_| None).expect("the whole one is taken");
}
