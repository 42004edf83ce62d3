//! The engine over clusters of etcd for the suite, and what only clusters do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use signpost_apiserver::store::etcd::{Etcd, Settings};
use signpost_apiserver::store::{Error, Event, Outcome, Revision, Store, Txn, Write};
use signpost_testing::etcd::Cluster;

/// Starts a cluster. By default, members elect a leader after a second without a message from one, which is too short on a busy
/// machine; a longer time delays the first election, which a single member does not need.
pub fn start(members: usize) -> Cluster {
    let arguments = ["--unsafe-no-fsync", "--heartbeat-interval=500", "--election-timeout=5000"];
    let used = if members > 1 { &arguments[..] } else { &arguments[..1] };
    Cluster::start(members, used)
}

/// Returns the engine over all members of a cluster, once they are up.
pub async fn connect(cluster: &Cluster) -> Arc<dyn Store> {
    let settings = Settings { endpoints: cluster.endpoints(), prefix: "/signpost".to_owned(), ..Settings::default() };
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match Etcd::connect(&settings).await {
            Ok(store) => return Arc::new(store),
            Err(error) if Instant::now() > until => panic!("etcd does not come up: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn put(key: &str, value: Vec<u8>) -> Txn {
    let write = Write::Put { key: super::key(key), value: value.into(), ttl: None };
    Txn { writes: vec![write], ..Txn::default() }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn a_full_cluster_says_so_and_takes_deletions() {
    let cluster = Cluster::start(1, &["--quota-backend-bytes", "8388608"]);
    runtime().block_on(async {
        let store = connect(&cluster).await;
        let mut refused = None;
        for number in 0..100 {
            if let Err(error) = store.commit(put(&format!("/n/{number}"), vec![7; 1 << 20])).await {
                refused = Some(error);
                break;
            }
        }
        assert!(matches!(refused, Some(Error::NoSpace)), "{refused:?}");
        let delete = Txn { writes: vec![Write::Delete { key: super::key("/n/0") }], ..Txn::default() };
        assert!(matches!(store.commit(delete).await, Ok(Outcome::Committed(_))));
        assert_eq!(store.get(&super::key("/n/0"), None).await.unwrap().1, None);
        let brief = Write::Put { key: super::key("/e"), value: Bytes::new(), ttl: Some(Duration::from_secs(60)) };
        let refused = store.commit(Txn { writes: vec![brief], ..Txn::default() }).await;
        assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    });
}

#[test]
fn a_watch_misses_and_repeats_nothing_while_members_go() {
    const WRITES: usize = 150;
    let mut cluster = start(3);
    runtime().block_on(async {
        let store = connect(&cluster).await;
        let start = store.revision().await.unwrap();
        let watching = store.watch(&super::key("/n/"), start);
        let seen = tokio::spawn(async move { until(watching, WRITES).await });
        for number in 0..WRITES {
            if number == WRITES / 2 {
                // With any leader, two of three members keep working.
                cluster.kill(2);
            }
            let give_up = Instant::now() + super::PATIENCE;
            while let Err(error) = store.commit(put(&format!("/n/{number:03}"), b"x".to_vec())).await {
                assert!(Instant::now() < give_up, "{number}: {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let seen = tokio::time::timeout(super::PATIENCE, seen).await.expect("in time").unwrap();
        let history = until(store.watch(&super::key("/n/"), start), WRITES).await;
        assert_eq!(seen, history);
        assert!(history.windows(2).all(|pair| pair[0].0 < pair[1].0), "{history:?}");
    });
}

/// Collects the events of a watch until `keys` keys: each event's revision and key.
async fn until(
    mut watch: futures::stream::BoxStream<'static, Result<Vec<Event>, Error>>,
    keys: usize,
) -> Vec<(Revision, String)> {
    let last = format!("/n/{:03}", keys - 1);
    let mut seen = Vec::new();
    while let Some(events) = watch.next().await {
        seen.extend(events.unwrap().into_iter().map(|event| (event.at, event.now.key.0.to_string())));
        if seen.last().is_some_and(|(_, key)| *key == last) {
            break;
        }
    }
    seen
}
