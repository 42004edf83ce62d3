//! Tests that only a store in a data directory can pass.

use super::*;

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
        let written = commit(&store, vec![put("/a", "1"), put("/held", "locked")]).await;
        assert_eq!(store.full(), None);
        drop(store);
        let store = open(&directory, full());
        for writes in [vec![put("/a", "22")], vec![put("/b", "1")], vec![put("/b", "1"), delete("/a")]] {
            let refused = store.commit(Txn { writes, ..Txn::default() }).await;
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
        let writes = vec![put("/held", "held, to be deleted"), put("/mark", "x")];
        let marking = Txn { writes, frees: true, ..Txn::default() };
        assert!(matches!(store.commit(marking).await.unwrap(), Outcome::Committed(_)));
        LATER.store(true, Ordering::Relaxed);
        let expired = async {
            while value(&store, "/brief", None).await.is_some() {
                tokio::task::yield_now().await
            }
        };
        tokio::time::timeout(PATIENCE, expired).await.expect("keys with a time to live go");
        // All history is removed, regardless of the configured retention.
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
        let failed = store.commit(Txn { writes: vec![put("/a", "2")], ..Txn::default() }).await;
        assert!(matches!(failed, Err(Error::OutcomeUnknown)), "{failed:?}");
        let why = tokio::time::timeout(Duration::from_secs(60), ended).await.expect("it ends");
        let named = directory.join("store.redb").display().to_string();
        assert!(why.starts_with(&named) && why.contains("failed to sync to disk"), "{why}");
        let refused = store.commit(Txn { writes: vec![put("/b", "1")], ..Txn::default() }).await;
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
        let failed = store.commit(Txn { writes: vec![put("/a", "2")], ..Txn::default() }).await;
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
        for format in [FORMAT - 1, FORMAT + 1] {
            let database = redb::Database::open(directory.join("store.redb")).unwrap();
            let meta: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("meta");
            let transaction = database.begin_write().unwrap();
            transaction.open_table(meta).unwrap().insert("format", format).unwrap();
            transaction.commit().unwrap();
            drop(database);
            let error = Embedded::open(&directory, Options::default()).err().expect("it is refused");
            assert!(matches!(error, OpenError::OtherFormat { found, .. } if found == format), "{error}");
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
